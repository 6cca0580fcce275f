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

/* One rounding where the machine fuses; two where a call of the library would be needed. */
#if defined(__FMA__) || defined(__CUDACC__) || defined(__aarch64__)
RL_S float m_fma_f32(float a, float b, float c) { return fmaf(a, b, c); }
RL_S double m_fma_f64(double a, double b, double c) { return fma(a, b, c); }
#else
RL_S float m_fma_f32(float a, float b, float c) { return a * b + c; }
RL_S double m_fma_f64(double a, double b, double c) { return a * b + c; }
#endif

RL_S int32_t m_bits_f32(float x) { int32_t u; memcpy(&u, &x, 4); return u; }
RL_S int64_t m_bits_f64(double x) { int64_t u; memcpy(&u, &x, 8); return u; }
RL_S float m_make_f32(int32_t u) { float x; memcpy(&x, &u, 4); return x; }
RL_S double m_make_f64(int64_t u) { double x; memcpy(&x, &u, 8); return x; }

/* 2^k for k in the normal range. */
RL_S float m_two_to_f32(int32_t k) { return m_make_f32((int32_t)((uint32_t)(k + 127) << 23)); }
RL_S double m_two_to_f64(int64_t k) { return m_make_f64((int64_t)((uint64_t)(k + 1023) << 52)); }

/* Adding it rounds to an integer, which then stands in the low bits. */
#define M_ROUND_F32 12582912.0f
#define M_ROUND_F64 6755399441055744.0

/* e^x = 2^k e^r, |r| <= ln2/2; scaled in two steps, for subnormal results. 1 ulp. */
RL_S float m_exp_f32(float x)
{
    float c = x < -104.0f ? -104.0f : x;
    c = c > 89.0f ? 89.0f : c;
    float t = m_fma_f32(c, 1.44269504f, M_ROUND_F32), n = t - M_ROUND_F32;
    int32_t k = m_bits_f32(t) - m_bits_f32(M_ROUND_F32);
    float r = m_fma_f32(n, -6.93145752e-1f, c);
    r = m_fma_f32(n, -1.42860677e-6f, r);
    float p = 1.37805939e-3f;
    p = m_fma_f32(p, r, 8.37312452e-3f);
    p = m_fma_f32(p, r, 4.16695364e-2f);
    p = m_fma_f32(p, r, 1.66664720e-1f);
    p = m_fma_f32(p, r, 4.99999851e-1f);
    p = m_fma_f32(p * r, r, r) + 1.0f;
    int32_t half = k >> 1;
    return p * m_two_to_f32(half) * m_two_to_f32(k - half);
}

RL_S double m_exp_f64(double x)
{
    double c = x < -746.0 ? -746.0 : x;
    c = c > 710.0 ? 710.0 : c;
    double t = m_fma_f64(c, 1.4426950408889634, M_ROUND_F64), n = t - M_ROUND_F64;
    int64_t k = m_bits_f64(t) - m_bits_f64(M_ROUND_F64);
    double r = m_fma_f64(n, -6.93147180369123816490e-01, c);
    r = m_fma_f64(n, -1.90821492927058770002e-10, r);
    double p = 1.6059043836821613e-10;
    p = m_fma_f64(p, r, 2.08767569878681e-09);
    p = m_fma_f64(p, r, 2.505210838544172e-08);
    p = m_fma_f64(p, r, 2.755731922398589e-07);
    p = m_fma_f64(p, r, 2.7557319223985893e-06);
    p = m_fma_f64(p, r, 2.48015873015873e-05);
    p = m_fma_f64(p, r, 1.984126984126984e-04);
    p = m_fma_f64(p, r, 1.3888888888888889e-03);
    p = m_fma_f64(p, r, 8.333333333333333e-03);
    p = m_fma_f64(p, r, 4.1666666666666664e-02);
    p = m_fma_f64(p, r, 1.6666666666666666e-01);
    p = m_fma_f64(p, r, 0.5);
    p = m_fma_f64(p * r, r, r) + 1.0;
    int64_t half = k >> 1;
    return p * m_two_to_f64(half) * m_two_to_f64(k - half);
}

#define m_exp(x) RL_N(m_exp)(x)

#endif
