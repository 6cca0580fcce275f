/* elementwise.h: what the engine (elementwise.c) and the files of loops agree on.
 *
 * A loop computes UNIT elements or a multiple of them over dense operands of its compute type; it has no tail, the engine pads. in[]
 * holds valid
 * pointers in all places, so an expression may name every operand. Loops are numbered like the expressions of the table (RL_E_* in op.h);
 * a compute type's array holds NULL where an expression has no such loop. Forward loops see the operands as x, y, z; derivatives as g, x,
 * y, z.
 */
#ifndef RL_LEVEL_ELEMENTWISE_H
#define RL_LEVEL_ELEMENTWISE_H
#include "kernels.h"

enum { RL_ELEM_UNIT = 16 };
typedef void (*rl_elem_loop)(void *out, const void *const *in, int64_t n, const rl_number *p);

/* The same numbering as op.h's, without what else stands there. */
enum {
#define UNARY(name, ...) E_##name, E_##name##_d1, E_##name##_d2,
#define BINARY(name, ...) E_##name, E_##name##_dx, E_##name##_dy, E_##name##_dxx, E_##name##_dxy, E_##name##_dyy,
#define TERNARY(name, ...)                                                                                               \
    E_##name, E_##name##_dx, E_##name##_dy, E_##name##_dz, E_##name##_dxx, E_##name##_dxy, E_##name##_dxz, E_##name##_dyy, \
        E_##name##_dyz, E_##name##_dzz,
#define ALIAS(...)
#include "../../ops/elementwise.def"
#undef UNARY
#undef BINARY
#undef TERNARY
#undef ALIAS
    E_COUNT
};

/* forward and derivative loops of the float types; integers and masks have forward ones only */
extern const rl_elem_loop RL_LEVEL_NAME(rl_elem_f32)[E_COUNT], RL_LEVEL_NAME(rl_elem_f64)[E_COUNT];
extern const rl_elem_loop RL_LEVEL_NAME(rl_elem_grad_f32)[E_COUNT], RL_LEVEL_NAME(rl_elem_grad_f64)[E_COUNT];
extern const rl_elem_loop RL_LEVEL_NAME(rl_elem_i64)[E_COUNT], RL_LEVEL_NAME(rl_elem_u8)[E_COUNT];

#endif
