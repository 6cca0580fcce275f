/* scalar.h: the scalar functions of the table's expressions, in float, double and, where a row needs them, int64_t and uint8_t.
 *
 * C11, C++17 and CUDA at once. Every function is branch-free, so that a loop over it vectorises, and takes every bit pattern
 * (NaN, infinities, subnormals) without trapping. An includer defines one of RL_SCALAR_F32, _F64, _I64, _U8: m_exp(x) is then
 * m_exp_f32(x) …, and T(c) casts a constant. Errors, in units of the last place, are the largest found against higher precision
 * (tests/test_scalar_accuracy.py holds them).
 */
#ifndef RL_SCALAR_H
#define RL_SCALAR_H
#if !defined(__CUDACC_RTC__)
#include <math.h>
#include <stdint.h>
#include <string.h>
#endif

#if defined(__CUDACC__)
#define RL_S static __device__ __forceinline__
#else
#define RL_S static inline __attribute__((always_inline, unused))
#endif

#if defined(RL_SCALAR_F32)
#define RL_N(f) f##_f32
#define T(c) ((float)(c))
#elif defined(RL_SCALAR_F64)
#define RL_N(f) f##_f64
#define T(c) ((double)(c))
#elif defined(RL_SCALAR_I64)
#define RL_N(f) f##_i64
#define T(c) ((int64_t)(c))
#elif defined(RL_SCALAR_U8)
#define RL_N(f) f##_u8
#define T(c) ((uint8_t)(c))
#endif

#include "scalar_math.h"

/* ---- written once for both float types ---- */

/* p0: the number of decimals; PyTorch multiplies, rounds and divides by the power of ten (or the other way for a negative one). */
RL_S double m_ten_to(double d)
{
    double r = 1, b = 10, n = d < 0 ? -d : d;
    for (int k = 0; k < 9; k++) {
        double half = floor(n / 2);
        r *= n - 2 * half > 0 ? b : 1;
        b *= b;
        n = half;
    }
    return r;
}

#define M_GENERIC(F, S)                                                                                        \
    RL_S F m_sign##S(F x) { return (F)((x > 0) - (x < 0)); }                                                   \
    RL_S F m_clamp##S(F x, F low, F high)                                                                      \
    {                                                                                                          \
        F v = x < low ? low : x;                                                                               \
        return v > high ? high : v;                                                                            \
    }                                                                                                          \
    RL_S int m_isinf##S(F x) { return m_abs##S(x) == (F)INFINITY; }                                            \
    RL_S int m_isfinite##S(F x) { return m_abs##S(x) < (F)INFINITY; }                                          \
    RL_S int m_isposinf##S(F x) { return x == (F)INFINITY; }                                                   \
    RL_S int m_isneginf##S(F x) { return x == -(F)INFINITY; }                                                  \
    RL_S F m_round_decimals##S(F x, F d)                                                                       \
    {                                                                                                          \
        F ten = (F)m_ten_to((double)d), up = m_round##S(x * ten) / ten, down = m_round##S(x / ten) * ten;      \
        return d < 0 ? down : up;                                                                              \
    }                                                                                                          \
    RL_S F m_nan_to_num##S(F x, F nan, F high, F low)                                                          \
    {                                                                                                          \
        F v = x == (F)INFINITY ? high : x == -(F)INFINITY ? low : x;                                           \
        return x != x ? nan : v;                                                                               \
    }                                                                                                          \
    RL_S F m_sigmoid##S(F x) { return (F)1 / ((F)1 + m_exp##S(-x)); }                                          \
    /* log(1 + e^x), without overflow */                                                                       \
    RL_S F m_softplus##S(F x) { return (x > 0 ? x : (F)0) + m_log1p##S(m_exp##S(-m_abs##S(x))); }              \
    RL_S F m_logit##S(F x, F eps)                                                                              \
    {                                                                                                          \
        F low = eps < 0 ? -(F)INFINITY : eps, high = eps < 0 ? (F)INFINITY : (F)1 - eps;                        \
        F v = m_clamp##S(x, low, high);                                                                        \
        return m_log##S(v / ((F)1 - v));                                                                       \
    }                                                                                                          \
    RL_S F m_gelu##S(F x) { return (F)0.5 * x * ((F)1 + m_erf##S(x * (F)0.70710678118654752440)); }            \
    RL_S F m_gelu_d1##S(F x)                                                                                   \
    {                                                                                                          \
        F cdf = (F)0.5 * ((F)1 + m_erf##S(x * (F)0.70710678118654752440));                                     \
        return cdf + x * ((F)0.39894228040143267794 * m_exp##S((F)-0.5 * x * x));                              \
    }                                                                                                          \
    /* gelu's tanh form: u = sqrt(2/pi) (x + 0.044715 x^3) */                                                  \
    RL_S F m_gelu_inner##S(F x) { return (F)0.79788456080286535588 * (x + (F)0.044715 * x * x * x); }          \
    RL_S F m_gelu_tanh##S(F x) { return (F)0.5 * x * ((F)1 + m_tanh##S(m_gelu_inner##S(x))); }                 \
    RL_S F m_gelu_tanh_d1##S(F x)                                                                              \
    {                                                                                                          \
        F t = m_tanh##S(m_gelu_inner##S(x)), du = (F)0.79788456080286535588 * ((F)1 + (F)0.134145 * x * x);    \
        return (F)0.5 * ((F)1 + t) + (F)0.5 * x * ((F)1 - t * t) * du;                                         \
    }                                                                                                          \
    RL_S F m_gelu_tanh_d2##S(F x)                                                                              \
    {                                                                                                          \
        F t = m_tanh##S(m_gelu_inner##S(x)), s = (F)1 - t * t;                                                 \
        F du = (F)0.79788456080286535588 * ((F)1 + (F)0.134145 * x * x), ddu = (F)0.21406510859226658 * x;     \
        return s * du + (F)0.5 * x * (s * ddu - (F)2 * t * s * du * du);                                       \
    }                                                                                                          \
    RL_S F m_silu_d1##S(F x)                                                                                   \
    {                                                                                                          \
        F s = m_sigmoid##S(x);                                                                                 \
        return s * ((F)1 + x * ((F)1 - s));                                                                    \
    }                                                                                                          \
    RL_S F m_silu_d2##S(F x)                                                                                   \
    {                                                                                                          \
        F s = m_sigmoid##S(x);                                                                                 \
        return s * ((F)1 - s) * ((F)2 + x * ((F)1 - (F)2 * s));                                                \
    }                                                                                                          \
    RL_S F m_mish_d1##S(F x)                                                                                   \
    {                                                                                                          \
        F t = m_tanh##S(m_softplus##S(x)), s = m_sigmoid##S(x);                                                \
        return t + x * s * ((F)1 - t * t);                                                                     \
    }                                                                                                          \
    RL_S F m_mish_d2##S(F x)                                                                                   \
    {                                                                                                          \
        F t = m_tanh##S(m_softplus##S(x)), s = m_sigmoid##S(x);                                                \
        return ((F)1 - t * t) * s * ((F)2 + x * (((F)1 - s) - (F)2 * t * s));                                  \
    }                                                                                                          \
    RL_S F m_sinc##S(F x)                                                                                      \
    {                                                                                                          \
        F p = x * (F)3.14159265358979323846;                                                                   \
        return x == 0 ? (F)1 : m_sin##S(p) / (x == 0 ? (F)1 : p);                                              \
    }                                                                                                          \
    RL_S F m_sinc_d1##S(F x)                                                                                   \
    {                                                                                                          \
        F p = x * (F)3.14159265358979323846, safe = x == 0 ? (F)1 : x;                                         \
        return x == 0 ? (F)0 : (m_cos##S(p) * p - m_sin##S(p)) / (p * safe);                                   \
    }                                                                                                          \
    RL_S F m_sinc_d2##S(F x)                                                                                   \
    {                                                                                                          \
        F pi = (F)3.14159265358979323846, p = x * pi, safe = x == 0 ? (F)1 : x;                                \
        F v = -pi * m_sin##S(p) / safe - (F)2 * m_cos##S(p) / (safe * safe) + (F)2 * m_sin##S(p) / (pi * safe * safe * safe); \
        return x == 0 ? -pi * pi / (F)3 : v;                                                                   \
    }                                                                                                          \
    RL_S F m_xlogy##S(F x, F y)                                                                                \
    {                                                                                                          \
        F v = x == 0 ? (F)0 : x * m_log##S(y);                                                                 \
        return y != y ? y : v;                                                                                 \
    }                                                                                                          \
    RL_S F m_logaddexp##S(F x, F y)                                                                            \
    {                                                                                                          \
        F high = x > y ? x : y, d = x == y ? (F)0 : m_abs##S(x - y);                                           \
        return (x != x ? x : high) + m_log1p##S(m_exp##S(-d));                                                 \
    }                                                                                                          \
    RL_S F m_logaddexp2##S(F x, F y)                                                                           \
    {                                                                                                          \
        F high = x > y ? x : y, d = x == y ? (F)0 : m_abs##S(x - y);                                           \
        return (x != x ? x : high) + m_log1p##S(m_exp2##S(-d)) * (F)1.4426950408889634074;                     \
    }                                                                                                          \
    /* d(x^y)/dy; 0^y is flat for y >= 0 */                                                                    \
    RL_S F m_pow_log##S(F x, F y) { return (x == 0) & (y >= 0) ? (F)0 : m_pow##S(x, y) * m_log##S(x); }        \
    RL_S F m_remainder##S(F x, F y)                                                                            \
    {                                                                                                          \
        F r = m_fmod##S(x, y);                                                                                 \
        return (r != 0) & ((y < 0) != (r < 0)) ? r + y : r;                                                    \
    }                                                                                                          \
    RL_S F m_floor_divide##S(F x, F y)                                                                         \
    {                                                                                                          \
        F r = m_fmod##S(x, y), q = (x - r) / y;                                                                \
        q = (r != 0) & ((y < 0) != (r < 0)) ? q - (F)1 : q;                                                    \
        F down = m_floor##S(q), near = q - down > (F)0.5 ? down + (F)1 : down;                                 \
        F v = q == 0 ? m_copysign##S((F)0, x / y) : near;                                                      \
        return y == 0 ? x / y : v;                                                                             \
    }                                                                                                          \
    RL_S F m_trunc_divide##S(F x, F y) { return m_trunc##S(x / y); }                                           \
    RL_S F m_lerp##S(F x, F y, F w)                                                                            \
    {                                                                                                          \
        F d = y - x;                                                                                           \
        return m_abs##S(w) < (F)0.5 ? m_fma##S(w, d, x) : m_fma##S(w - (F)1, d, y);                                          \
    }                                                                                                          \
    RL_S F m_clamp_nan##S(F x, F low, F high)                                                                  \
    {                                                                                                          \
        F v = m_clamp##S(x, low, high);                                                                        \
        v = low != low ? low : high != high ? high : v;                                                        \
        return x != x ? x : v;                                                                                 \
    }                                                                                                          \
    /* the larger one is factored out: no overflow, no underflow */                                            \
    RL_S F m_hypot##S(F x, F y)                                                                                \
    {                                                                                                          \
        F a = m_abs##S(x), b = m_abs##S(y), high = a > b ? a : b, low = a > b ? b : a;                         \
        F q = low / (high == 0 ? (F)1 : high), v = high * m_sqrt##S((F)1 + q * q);                             \
        v = high == (F)INFINITY ? high : v;                                                                    \
        v = (x != x) | (y != y) ? x + y : v;                                                                   \
        return (a == (F)INFINITY) | (b == (F)INFINITY) ? (F)INFINITY : v;                                      \
    }
M_GENERIC(float, _f32)
M_GENERIC(double, _f64)

RL_S int m_signbit_f32(float x) { return m_bits_f32(x) < 0; }
RL_S int m_signbit_f64(double x) { return m_bits_f64(x) < 0; }

/* ---- integers: wrap, never trap; a divisor of 0 gives 0 here, the caller has refused it ---- */

RL_S int64_t m_abs_i64(int64_t x) { return x < 0 ? (int64_t)(0 - (uint64_t)x) : x; }
RL_S int64_t m_sign_i64(int64_t x) { return (x > 0) - (x < 0); }
RL_S int64_t m_floor_i64(int64_t x) { return x; }
RL_S int64_t m_ceil_i64(int64_t x) { return x; }
RL_S int64_t m_trunc_i64(int64_t x) { return x; }
RL_S int64_t m_round_i64(int64_t x) { return x; }
RL_S int64_t m_round_decimals_i64(int64_t x, int64_t d) { return x; }
RL_S int m_isinf_i64(int64_t x) { return 0; }
RL_S int m_isfinite_i64(int64_t x) { return 1; }
RL_S int m_isposinf_i64(int64_t x) { return 0; }
RL_S int m_isneginf_i64(int64_t x) { return 0; }
RL_S int m_signbit_i64(int64_t x) { return x < 0; }
RL_S int64_t m_nan_to_num_i64(int64_t x, int64_t nan, int64_t high, int64_t low) { return x; }
RL_S int64_t m_clamp_i64(int64_t x, int64_t low, int64_t high)
{
    int64_t v = x < low ? low : x;
    return v > high ? high : v;
}
RL_S int64_t m_clamp_nan_i64(int64_t x, int64_t low, int64_t high) { return m_clamp_i64(x, low, high); }
RL_S int64_t m_trunc_divide_i64(int64_t x, int64_t y)
{
    int64_t d = (y == 0) | (y == -1) ? 1 : y, q = x / d;
    return y == -1 ? (int64_t)(0 - (uint64_t)x) : y == 0 ? 0 : q;
}
RL_S int64_t m_fmod_i64(int64_t x, int64_t y) { return x % ((y == 0) | (y == -1) ? 1 : y); }
RL_S int64_t m_remainder_i64(int64_t x, int64_t y)
{
    int64_t r = m_fmod_i64(x, y);
    return (r != 0) & ((r < 0) != (y < 0)) ? r + y : r;
}
RL_S int64_t m_floor_divide_i64(int64_t x, int64_t y)
{
    int64_t r = m_fmod_i64(x, y);
    return m_trunc_divide_i64(x, y) - ((r != 0) & ((r < 0) != (y < 0)));
}
/* A negative exponent: 0 but for 1 and -1, as PyTorch's tensor exponents. */
RL_S int64_t m_pow_i64(int64_t x, int64_t y)
{
    uint64_t r = 1, b = (uint64_t)x;
    if (y < 0)
        return x == 1 ? 1 : x == -1 ? (y & 1 ? -1 : 1) : 0;
    for (; y; y >>= 1, b *= b)
        r *= y & 1 ? b : 1;
    return (int64_t)r;
}
RL_S int64_t m_shift_left_i64(int64_t x, int64_t y) { return (y < 0) | (y > 63) ? 0 : (int64_t)((uint64_t)x << (y & 63)); }
RL_S int64_t m_shift_right_i64(int64_t x, int64_t y) { return x >> ((y < 0) | (y > 63) ? 63 : y); }
RL_S int64_t m_gcd_i64(int64_t x, int64_t y)
{
    x = m_abs_i64(x);
    y = m_abs_i64(y);
    while (y != 0) {
        int64_t r = m_fmod_i64(x, y);
        x = y;
        y = r;
    }
    return x;
}
RL_S int64_t m_lcm_i64(int64_t x, int64_t y)
{
    int64_t d = m_gcd_i64(x, y);
    return d == 0 ? 0 : m_abs_i64((int64_t)((uint64_t)m_trunc_divide_i64(x, d) * (uint64_t)y));
}
RL_S int64_t m_bitwise_not_i64(int64_t x) { return ~x; }
RL_S uint8_t m_bitwise_not_u8(uint8_t x) { return x == 0; } /* masks: bool */

/* ---- what expressions call ---- */

#define m_exp(x) RL_N(m_exp)(x)
#define m_exp2(x) RL_N(m_exp2)(x)
#define m_expm1(x) RL_N(m_expm1)(x)
#define m_log(x) RL_N(m_log)(x)
#define m_log2(x) RL_N(m_log2)(x)
#define m_log10(x) RL_N(m_log10)(x)
#define m_log1p(x) RL_N(m_log1p)(x)
#define m_sqrt(x) RL_N(m_sqrt)(x)
#define m_sin(x) RL_N(m_sin)(x)
#define m_cos(x) RL_N(m_cos)(x)
#define m_tan(x) RL_N(m_tan)(x)
#define m_asin(x) RL_N(m_asin)(x)
#define m_acos(x) RL_N(m_acos)(x)
#define m_atan(x) RL_N(m_atan)(x)
#define m_sinh(x) RL_N(m_sinh)(x)
#define m_cosh(x) RL_N(m_cosh)(x)
#define m_tanh(x) RL_N(m_tanh)(x)
#define m_asinh(x) RL_N(m_asinh)(x)
#define m_acosh(x) RL_N(m_acosh)(x)
#define m_atanh(x) RL_N(m_atanh)(x)
#define m_sigmoid(x) RL_N(m_sigmoid)(x)
#define m_softplus(x) RL_N(m_softplus)(x)
#define m_erf(x) RL_N(m_erf)(x)
#define m_erfc(x) RL_N(m_erfc)(x)
#define m_lgamma(x) RL_N(m_lgamma)(x)
#define m_digamma(x) RL_N(m_digamma)(x)
#define m_trigamma(x) RL_N(m_trigamma)(x)
#define m_tetragamma(x) RL_N(m_tetragamma)(x)
#define m_sinc(x) RL_N(m_sinc)(x)
#define m_sinc_d1(x) RL_N(m_sinc_d1)(x)
#define m_sinc_d2(x) RL_N(m_sinc_d2)(x)
#define m_abs(x) RL_N(m_abs)(x)
#define m_sign(x) RL_N(m_sign)(x)
#define m_floor(x) RL_N(m_floor)(x)
#define m_ceil(x) RL_N(m_ceil)(x)
#define m_trunc(x) RL_N(m_trunc)(x)
#define m_round(x) RL_N(m_round)(x)
#define m_round_decimals(x, d) RL_N(m_round_decimals)(x, d)
#define m_logit(x, eps) RL_N(m_logit)(x, eps)
#define m_isinf(x) RL_N(m_isinf)(x)
#define m_isfinite(x) RL_N(m_isfinite)(x)
#define m_isposinf(x) RL_N(m_isposinf)(x)
#define m_isneginf(x) RL_N(m_isneginf)(x)
#define m_signbit(x) RL_N(m_signbit)(x)
#define m_bitwise_not(x) RL_N(m_bitwise_not)(x)
#define m_nan_to_num(x, a, b, c) RL_N(m_nan_to_num)(x, a, b, c)
#define m_clamp(x, a, b) RL_N(m_clamp)(x, a, b)
#define m_clamp_nan(x, a, b) RL_N(m_clamp_nan)(x, a, b)
#define m_pow(x, y) RL_N(m_pow)(x, y)
#define m_pow_log(x, y) RL_N(m_pow_log)(x, y)
#define m_gelu(x) RL_N(m_gelu)(x)
#define m_gelu_d1(x) RL_N(m_gelu_d1)(x)
#define m_gelu_tanh(x) RL_N(m_gelu_tanh)(x)
#define m_gelu_tanh_d1(x) RL_N(m_gelu_tanh_d1)(x)
#define m_gelu_tanh_d2(x) RL_N(m_gelu_tanh_d2)(x)
#define m_silu_d1(x) RL_N(m_silu_d1)(x)
#define m_silu_d2(x) RL_N(m_silu_d2)(x)
#define m_mish_d1(x) RL_N(m_mish_d1)(x)
#define m_mish_d2(x) RL_N(m_mish_d2)(x)
#define m_floor_divide(x, y) RL_N(m_floor_divide)(x, y)
#define m_trunc_divide(x, y) RL_N(m_trunc_divide)(x, y)
#define m_remainder(x, y) RL_N(m_remainder)(x, y)
#define m_fmod(x, y) RL_N(m_fmod)(x, y)
#define m_atan2(x, y) RL_N(m_atan2)(x, y)
#define m_hypot(x, y) RL_N(m_hypot)(x, y)
#define m_copysign(x, y) RL_N(m_copysign)(x, y)
#define m_xlogy(x, y) RL_N(m_xlogy)(x, y)
#define m_logaddexp(x, y) RL_N(m_logaddexp)(x, y)
#define m_logaddexp2(x, y) RL_N(m_logaddexp2)(x, y)
#define m_nextafter(x, y) RL_N(m_nextafter)(x, y)
#define m_shift_left(x, y) RL_N(m_shift_left)(x, y)
#define m_shift_right(x, y) RL_N(m_shift_right)(x, y)
#define m_gcd(x, y) RL_N(m_gcd)(x, y)
#define m_lcm(x, y) RL_N(m_lcm)(x, y)
#define m_lerp(x, y, w) RL_N(m_lerp)(x, y, w)

#define M_LN2_ T(0.69314718055994530942)
#define M_LN10_ T(2.30258509299404568402)
#define M_2_SQRTPI_ T(1.12837916709551257390)
#define M_INV_SQRT2PI T(0.39894228040143267794)
#define M_SELU_SCALE T(1.0507009873554804934)
#define M_SELU_NEG T(1.0507009873554804934 * 1.6732632423543772848)

#endif
