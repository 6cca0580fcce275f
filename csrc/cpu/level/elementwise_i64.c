/* elementwise_i64.c: the forward loops of the table's elementwise rows that compute in int64_t (elementwise_loops.h does the work). */
#define TYPE int64_t
#define PARAM(k) ((int64_t)p_[k].i)
#define ARRAY rl_elem_i64
#define LOOPS_INT
#define RL_SCALAR_I64
#include "../../ops/scalar.h"

#include "elementwise_loops.h"
