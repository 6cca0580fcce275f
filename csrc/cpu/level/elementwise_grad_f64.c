/* elementwise_grad_f64.c: the derivative loops of the table's elementwise rows that compute in double (elementwise_loops.h does the
 * work). */
#define TYPE double
#define PARAM(k) ((double)p_[k].f)
#define ARRAY rl_elem_grad_f64
#define LOOPS_FLOAT
#define LOOPS_GRAD
#define RL_SCALAR_F64
#include "../../ops/scalar.h"

#include "elementwise_loops.h"
