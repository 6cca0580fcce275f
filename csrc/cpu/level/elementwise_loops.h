/* elementwise_loops.h: the table's expressions as loops of one compute type. Included once by each elementwise_<type>.c, which sets
 * TYPE, PARAM(k), ARRAY (the array to define), T(c) and, for rules whose loops it has, FORWARD_<rule>(name, OUT-less) as below.
 *
 * `n` is known to be a multiple of RL_ELEM_UNIT, so the compiler emits the vector body alone. Operands either are the same
 * elements or do not overlap (the plan refuses the rest), which ivdep states; restrict would forbid the first.
 */
#include "elementwise.h"

#define LOOP(fn, OUT, A, B, C, D, EXPR)                                                                         \
    static void fn(void *out_, const void *const *in_, int64_t n_, const rl_number *p_)                         \
    {                                                                                                           \
        OUT *out = (OUT *)out_;                                                                                 \
        const TYPE *a_ = (const TYPE *)in_[0], *b_ = (const TYPE *)in_[1], *c_ = (const TYPE *)in_[2];          \
        const TYPE *d_ = (const TYPE *)in_[3];                                                                  \
        const TYPE p0 = PARAM(0), p1 = PARAM(1), p2 = PARAM(2), p3 = PARAM(3);                                  \
        (void)p0, (void)p1, (void)p2, (void)p3;                                                                 \
        n_ &= ~(int64_t)(RL_ELEM_UNIT - 1);                                                                     \
        _Pragma("GCC ivdep") for (int64_t i_ = 0; i_ < n_; i_++)                                                \
        {                                                                                                       \
            const TYPE A = a_[i_], B = b_[i_], C = c_[i_], D = d_[i_];                                          \
            (void)A, (void)B, (void)C, (void)D;                                                                 \
            out[i_] = (OUT)(EXPR);                                                                              \
        }                                                                                                       \
    }
#define FORWARD(name, OUT, EXPR) LOOP(f_##name, OUT, x, y, z, w_, EXPR)
#define GRAD(name, EXPR) LOOP(f_##name, TYPE, g, x, y, z, EXPR)
#define NONE(name, EXPR) enum { f_##name = 0 };
#define BOOLEAN(name, EXPR) FORWARD(name, uint8_t, EXPR)
#define VALUE(name, EXPR) FORWARD(name, TYPE, EXPR)

/* Which rules have a forward loop in which kind of compute type. */
#if defined(LOOPS_FLOAT)
#define RULE_RL_RULE_FLOAT VALUE
#define RULE_RL_RULE_ARITH VALUE
#define RULE_RL_RULE_SIGNED VALUE
#define RULE_RL_RULE_NUMBER VALUE
#define RULE_RL_RULE_COMPARE BOOLEAN
#define RULE_RL_RULE_LOGICAL BOOLEAN
#define RULE_RL_RULE_TEST BOOLEAN
#define RULE_RL_RULE_BITWISE NONE
#define RULE_RL_RULE_SHIFT NONE
#elif defined(LOOPS_INT)
#define RULE_RL_RULE_FLOAT NONE
#define RULE_RL_RULE_ARITH VALUE
#define RULE_RL_RULE_SIGNED VALUE
#define RULE_RL_RULE_NUMBER VALUE
#define RULE_RL_RULE_COMPARE BOOLEAN
#define RULE_RL_RULE_LOGICAL BOOLEAN
#define RULE_RL_RULE_TEST BOOLEAN
#define RULE_RL_RULE_BITWISE VALUE
#define RULE_RL_RULE_SHIFT VALUE
#elif defined(LOOPS_MASK)
#define RULE_RL_RULE_FLOAT NONE
#define RULE_RL_RULE_ARITH NONE
#define RULE_RL_RULE_SIGNED NONE
#define RULE_RL_RULE_NUMBER NONE
#define RULE_RL_RULE_COMPARE NONE
#define RULE_RL_RULE_LOGICAL BOOLEAN
#define RULE_RL_RULE_TEST NONE
#define RULE_RL_RULE_BITWISE VALUE
#define RULE_RL_RULE_SHIFT NONE
#endif

#define ALIAS(...)
#define NOGRAD T(0)
#if defined(LOOPS_GRAD)
#define UNARY(name, rule, saves, e, d1, d2, ...) GRAD(name##_d1, d1) GRAD(name##_d2, d2)
#define BINARY(name, rule, saves, e, dx, dy, dxx, dxy, dyy, ...) \
    GRAD(name##_dx, dx) GRAD(name##_dy, dy) GRAD(name##_dxx, dxx) GRAD(name##_dxy, dxy) GRAD(name##_dyy, dyy)
#define TERNARY(name, rule, saves, e, dx, dy, dz, dxx, dxy, dxz, dyy, dyz, dzz, ...)                                            \
    GRAD(name##_dx, dx) GRAD(name##_dy, dy) GRAD(name##_dz, dz) GRAD(name##_dxx, dxx) GRAD(name##_dxy, dxy) GRAD(name##_dxz, dxz) \
    GRAD(name##_dyy, dyy) GRAD(name##_dyz, dyz) GRAD(name##_dzz, dzz)
#else
#define UNARY(name, rule, saves, e, ...) RULE_##rule(name, e)
#define BINARY UNARY
#define TERNARY UNARY
#endif
#include "../../ops/elementwise.def"
#undef UNARY
#undef BINARY
#undef TERNARY

#define AT(name) [E_##name] = (rl_elem_loop)f_##name,
#if defined(LOOPS_GRAD)
#define UNARY(name, ...) AT(name##_d1) AT(name##_d2)
#define BINARY(name, ...) AT(name##_dx) AT(name##_dy) AT(name##_dxx) AT(name##_dxy) AT(name##_dyy)
#define TERNARY(name, ...) \
    AT(name##_dx) AT(name##_dy) AT(name##_dz) AT(name##_dxx) AT(name##_dxy) AT(name##_dxz) AT(name##_dyy) AT(name##_dyz) AT(name##_dzz)
#else
#define UNARY(name, ...) AT(name)
#define BINARY UNARY
#define TERNARY UNARY
#endif
const rl_elem_loop RL_LEVEL_NAME(ARRAY)[E_COUNT] = {
#include "../../ops/elementwise.def"
};
