/* elementwise_grad_f32.c: the derivative loops of the table's elementwise rows that compute in float (elementwise_loops.h does the work).
 * */
#define TYPE float
#define PARAM(k) ((float)p_[k].f)
#define ARRAY rl_elem_grad_f32
#define LOOPS_FLOAT
#define LOOPS_GRAD
#define RL_SCALAR_F32
#include "../../ops/scalar.h"

#include "elementwise_loops.h"
