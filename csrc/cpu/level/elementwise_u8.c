/* elementwise_u8.c: the forward loops of the table's elementwise rows that compute in uint8_t (elementwise_loops.h does the work). */
#define TYPE uint8_t
#define PARAM(k) ((uint8_t)p_[k].i)
#define ARRAY rl_elem_u8
#define LOOPS_MASK
#define RL_SCALAR_U8
#include "../../ops/scalar.h"

#include "elementwise_loops.h"
