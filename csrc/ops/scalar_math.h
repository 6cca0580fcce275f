/* scalar_math.h: the elementary functions of scalar.h in float and double: exponentials, logarithms, circular and hyperbolic functions,
 * their
 * inverses, the error function, powers, remainders and the gamma function. Included by scalar.h alone.
 *
 * Polynomials are near-minimax fits (Chebyshev nodes, computed with 60 digits). A comment gives the largest error found in units of the
 * last
 * place with a fused multiply-add; without one (baseline x86-64) it is up to 0.6 more.
 */
#ifndef RL_SCALAR_MATH_H
#define RL_SCALAR_MATH_H

/* One rounding where the machine fuses; two where a call of the library would be needed. */
#if defined(__FMA__) || defined(__CUDACC__) || defined(__aarch64__)
#define M_FUSES 1
RL_S float m_fma_f32(float a, float b, float c) { return fmaf(a, b, c); }
RL_S double m_fma_f64(double a, double b, double c) { return fma(a, b, c); }
#else
RL_S float m_fma_f32(float a, float b, float c) { return a * b + c; }
RL_S double m_fma_f64(double a, double b, double c) { return a * b + c; }
#endif

RL_S int64_t m_fma_i64(int64_t a, int64_t b, int64_t c) { return (int64_t)((uint64_t)a * (uint64_t)b + (uint64_t)c); }
#define m_fma(a, b, c) RL_N(m_fma)(a, b, c)

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

#define M_NAN_F32 ((float)NAN)
#define M_NAN_F64 ((double)NAN)
#define M_INF_F32 ((float)INFINITY)
#define M_INF_F64 ((double)INFINITY)

/* Horner's rule, the highest coefficient first. */
#define M_P2(S, x, a, b) m_fma##S(a, x, b)
#define M_P3(S, x, a, b, c) m_fma##S(M_P2(S, x, a, b), x, c)
#define M_P4(S, x, a, b, c, d) m_fma##S(M_P3(S, x, a, b, c), x, d)
#define M_P5(S, x, a, b, c, d, e) m_fma##S(M_P4(S, x, a, b, c, d), x, e)
#define M_P6(S, x, a, b, c, d, e, f) m_fma##S(M_P5(S, x, a, b, c, d, e), x, f)
#define M_P7(S, x, a, b, c, d, e, f, g) m_fma##S(M_P6(S, x, a, b, c, d, e, f), x, g)
#define M_P8(S, x, a, b, c, d, e, f, g, h) m_fma##S(M_P7(S, x, a, b, c, d, e, f, g), x, h)

/* ---- plain ones ---- */

RL_S float m_sqrt_f32(float x) { return sqrtf(x); }
RL_S double m_sqrt_f64(double x) { return sqrt(x); }
RL_S float m_abs_f32(float x) { return fabsf(x); }
RL_S double m_abs_f64(double x) { return fabs(x); }
RL_S float m_floor_f32(float x) { return floorf(x); }
RL_S double m_floor_f64(double x) { return floor(x); }
RL_S float m_ceil_f32(float x) { return ceilf(x); }
RL_S double m_ceil_f64(double x) { return ceil(x); }
RL_S float m_trunc_f32(float x) { return truncf(x); }
RL_S double m_trunc_f64(double x) { return trunc(x); }
RL_S float m_round_f32(float x) { return rintf(x); }
RL_S double m_round_f64(double x) { return rint(x); }
RL_S float m_copysign_f32(float x, float y) { return copysignf(x, y); }
RL_S double m_copysign_f64(double x, double y) { return copysign(x, y); }

/* ---- exponentials: e^x = 2^k e^r, |r| <= ln2/2, scaled in two steps for subnormal results ---- */

/* p 2^k */
RL_S float m_scale_f32(float p, int32_t k) { return p * m_two_to_f32(k >> 1) * m_two_to_f32(k - (k >> 1)); }
RL_S double m_scale_f64(double p, int64_t k)
{
    int64_t half = (int64_t)((uint64_t)(k + 4096) >> 1) - 2048; /* arithmetic shifts of 64 bits need AVX-512 */
    return p * m_two_to_f64(half) * m_two_to_f64(k - half);
}

/* e^r - 1 - r, over r^2 */
RL_S float m_exp_tail_f32(float r)
{
    return M_P6(_f32, r, 1.989118027e-04f, 1.393382088e-03f, 8.333310485e-03f, 4.166646302e-02f, 1.666666716e-01f, 0.5f);
}
RL_S double m_exp_tail_f64(double r)
{
    double high = M_P5(_f64, r, 2.09148313513804104e-09, 2.51054191920163374e-08, 2.75572732955397243e-07, 2.75572549134867007e-06,
            2.48015873258222830e-05);
    return M_P7(_f64, r, high, 1.98412698752050765e-04, 1.38888888888836701e-03, 8.33333333332602483e-03, 4.16666666666666713e-02,
            1.66666666666666713e-01, 0.5);
}

/* 1.0 ulp */
RL_S float m_exp_f32(float x)
{
    float c = x < -104.0f ? -104.0f : x;
    c = c > 89.0f ? 89.0f : c;
    float t = m_fma_f32(c, 1.44269504f, M_ROUND_F32), n = t - M_ROUND_F32;
    float r = m_fma_f32(n, -1.42860677e-6f, m_fma_f32(n, -6.93145752e-1f, c));
    return m_scale_f32(1.0f + m_fma_f32(r * r, m_exp_tail_f32(r), r), m_bits_f32(t) - m_bits_f32(M_ROUND_F32));
}

/* e^x 2^shift, 1.0 ulp */
RL_S double m_exp_shifted_f64(double x, int64_t shift)
{
    double c = x < -746.0 ? -746.0 : x;
    c = c > 711.0 ? 711.0 : c;
    double t = m_fma_f64(c, 1.4426950408889634, M_ROUND_F64), n = t - M_ROUND_F64;
    double r = m_fma_f64(n, -1.90821492927058770002e-10, m_fma_f64(n, -6.93147180369123816490e-01, c));
    return m_scale_f64(1.0 + m_fma_f64(r * r, m_exp_tail_f64(r), r), m_bits_f64(t) - m_bits_f64(M_ROUND_F64) + shift);
}
RL_S double m_exp_f64(double x) { return m_exp_shifted_f64(x, 0); }

/* 1.0 ulp */
RL_S float m_exp2_f32(float x)
{
    float c = x < -151.0f ? -151.0f : x;
    c = c > 129.0f ? 129.0f : c;
    float t = c + M_ROUND_F32, r = c - (t - M_ROUND_F32);
    float p = M_P6(_f32, r, 1.545336127e-04f, 1.339109382e-03f, 9.618082084e-03f, 5.550356582e-02f, 2.402265072e-01f, 6.931471825e-01f);
    return m_scale_f32(m_fma_f32(p, r, 1.0f), m_bits_f32(t) - m_bits_f32(M_ROUND_F32));
}
RL_S double m_exp2_f64(double x)
{
    double c = x < -1076.0 ? -1076.0 : x;
    c = c > 1025.0 ? 1025.0 : c;
    double t = c + M_ROUND_F64, r = c - (t - M_ROUND_F64);
    double p = M_P5(_f64, r, 2.57295281256659509e-11, 4.45585911233020793e-10, 7.05489718920650777e-09, 1.01780568555011613e-07,
            1.32154868089295182e-06);
    p = M_P8(_f64, r, p, 1.52527338420092312e-05, 1.54035303933705580e-04, 1.33335581464061174e-03, 9.61812910762848035e-03,
            5.55041086648216248e-02,
             2.40226506959100722e-01, 6.93147180559945286e-01);
    return m_scale_f64(m_fma_f64(p, r, 1.0), m_bits_f64(t) - m_bits_f64(M_ROUND_F64));
}

/* 2^k (e^r - 1) + (2^k - 1), halved while it is made, so that it overflows where e^x does. 1.5 ulp */
RL_S float m_expm1_f32(float x)
{
    float c = x < -20.0f ? -20.0f : x;
    c = c > 89.0f ? 89.0f : c;
    float t = m_fma_f32(c, 1.44269504f, M_ROUND_F32), n = t - M_ROUND_F32;
    float r = m_fma_f32(n, -1.42860677e-6f, m_fma_f32(n, -6.93145752e-1f, c));
    float p = m_fma_f32(r * r, m_exp_tail_f32(r), r), half = m_two_to_f32(m_bits_f32(t) - m_bits_f32(M_ROUND_F32) - 1);
    return x == 0 ? x : 2.0f * m_fma_f32(half, p, half - 0.5f);
}
RL_S double m_expm1_f64(double x)
{
    double c = x < -40.0 ? -40.0 : x;
    c = c > 711.0 ? 711.0 : c;
    double t = m_fma_f64(c, 1.4426950408889634, M_ROUND_F64), n = t - M_ROUND_F64;
    double r = m_fma_f64(n, -1.90821492927058770002e-10, m_fma_f64(n, -6.93147180369123816490e-01, c));
    int64_t k = m_bits_f64(t) - m_bits_f64(M_ROUND_F64) - 1;
    double p = m_fma_f64(r * r, m_exp_tail_f64(r), r), half = m_two_to_f64(k > 1023 ? 1023 : k);
    double v = 2.0 * m_fma_f64(half, p, half - 0.5);
    v = c > 709.79 ? M_INF_F64 : v;
    return x == 0 ? x : v;
}

/* ---- logarithms: x = 2^k (1 + f), sqrt(1/2) <= 1 + f < sqrt(2); log(1 + f) = f + y ---- */

RL_S float m_log_tail_f32(float f)
{
    float p = M_P8(_f32, f, 6.971611828e-02f, -1.147973388e-01f, 1.168541983e-01f, -1.242568716e-01f, 1.424905807e-01f,
            -1.666780263e-01f, 2.000071555e-01f,
                   -2.499999702e-01f);
    return f * f * m_fma_f32(m_fma_f32(p, f, 3.333333135e-01f), f, -0.5f);
}
/* with s = f / (2 + f): log(1 + f) = 2 atanh(s) */
RL_S double m_log_tail_f64(double f)
{
    double s = f / (2.0 + f), z = s * s, square = 0.5 * f * f;
    double r = M_P8(_f64, z, 1.30896291606746235e-01, 1.32684856806544266e-01, 1.53862504479401890e-01, 1.81817954423719841e-01,
            2.22222223935666097e-01,
                    2.85714285707954319e-01, 4.00000000000008904e-01, 6.66666666666666630e-01);
    return s * m_fma_f64(z, r, square) - square;
}

/* Subnormals are scaled first: *k starts at -25, or -54. */
RL_S float m_split_f32(float x, float *k)
{
    int small = x < 1.17549435e-38f;
    int32_t u = m_bits_f32(small ? x * 33554432.0f : x), e = (u - 0x3f3504f3) >> 23;
    *k = (float)e - (small ? 25.0f : 0.0f);
    return m_make_f32((int32_t)((uint32_t)u - ((uint32_t)e << 23))) - 1.0f;
}
RL_S double m_split_f64(double x, double *k)
{
    int small = x < 2.2250738585072014e-308;
    int64_t u = m_bits_f64(small ? x * 18014398509481984.0 : x);
    /* k stands in the bits of a double near 2^52: no conversion of 64-bit integers, which needs AVX-512 */
    int64_t e = (int64_t)((uint64_t)(u - 0x3fe6a09e667f3bcd + ((int64_t)1024 << 52)) >> 52);
    *k = m_make_f64(e | 0x4330000000000000) - (4503599627370496.0 + 1024.0) - (small ? 54.0 : 0.0);
    return m_make_f64((int64_t)((uint64_t)u - ((uint64_t)(e - 1024) << 52))) - 1.0;
}

#define M_LOGS(F, S, B)                                                                                                       \
    /* infinity and NaN stay, 0 gives -infinity, below it NaN */                                                              \
    RL_S F m_log_edges##S(F x, F v)                                                                                           \
    {                                                                                                                         \
        v = x < M_INF##B ? v : x;                                                                                             \
        v = x == 0 ? -M_INF##B : v;                                                                                           \
        return x < 0 ? M_NAN##B : v;                                                                                          \
    }                                                                                                                         \
    /* 1.0 ulp */                                                                                                             \
    RL_S F m_log##S(F x)                                                                                                      \
    {                                                                                                                         \
        F k, f = m_split##S(x, &k), y = m_log_tail##S(f);                                                                     \
        return m_log_edges##S(x, m_fma##S(k, M_LN2_HIGH##B, f + m_fma##S(k, M_LN2_LOW##B, y)));                               \
    }                                                                                                                         \
    /* 1.5 ulp, log10 2 */                                                                                                    \
    RL_S F m_log2##S(F x)                                                                                                     \
    {                                                                                                                         \
        F k, f = m_split##S(x, &k), y = m_log_tail##S(f);                                                                     \
        F low = m_fma##S(y, M_LOG2E##B, f * M_LOG2E_LOW##B);                                                                  \
        return m_log_edges##S(x, k + m_fma##S(f, M_LOG2E##B, low));                                                           \
    }                                                                                                                         \
    RL_S F m_log10##S(F x)                                                                                                    \
    {                                                                                                                         \
        F k, f = m_split##S(x, &k), y = m_log_tail##S(f);                                                                     \
        F low = m_fma##S(y, M_LOG10E##B, m_fma##S(f, M_LOG10E_LOW##B, k * M_LOG10_2_LOW##B));                                 \
        return m_log_edges##S(x, m_fma##S(k, M_LOG10_2##B, m_fma##S(f, M_LOG10E##B, low)));                                   \
    }                                                                                                                         \
    /* log of the rounded 1 + x, with f of the exact one. 1.5 ulp */                                                          \
    RL_S F m_log1p##S(F x)                                                                                                    \
    {                                                                                                                         \
        F u = (F)1 + x, k, m = m_split##S(u, &k), s = m_two_to_whole##S(-k);                                                  \
        F f = k > 30 ? m : m_fma##S(x, s, s - (F)1), y = m_log_tail##S(f);                                                    \
        F v = m_fma##S(k, M_LN2_HIGH##B, f + m_fma##S(k, M_LN2_LOW##B, y));                                                   \
        v = m_log_edges##S(u, v);                                                                                             \
        return x == 0 ? x : v;                                                                                                \
    }

/* 2^k for a whole k in the normal range, given as a float; others give anything. */
RL_S float m_two_to_whole_f32(float k) { return m_make_f32((int32_t)((uint32_t)m_bits_f32(k + M_ROUND_F32 + 127.0f) << 23)); }
RL_S double m_two_to_whole_f64(double k) { return m_make_f64((int64_t)((uint64_t)m_bits_f64(k + M_ROUND_F64 + 1023.0) << 52)); }

#define M_LN2_HIGH_F32 0.693359375f
#define M_LN2_LOW_F32 -2.12194440e-4f
#define M_LOG2E_F32 1.44269504f
#define M_LOG2E_LOW_F32 1.925963033e-08f
#define M_LOG10E_F32 0.434294492f
#define M_LOG10E_LOW_F32 -1.010305e-08f
#define M_LOG10_2_F32 0.301025391f
#define M_LOG10_2_LOW_F32 4.605038981e-06f
#define M_LN2_HIGH_F64 6.93147180369123816490e-01
#define M_LN2_LOW_F64 1.90821492927058770002e-10
#define M_LOG2E_F64 1.4426950408889634
#define M_LOG2E_LOW_F64 2.0355273740931033e-17
#define M_LOG10E_F64 0.43429448190325182
#define M_LOG10E_LOW_F64 1.0983196502167651e-17
#define M_LOG10_2_F64 3.01029995663611771306e-01
#define M_LOG10_2_LOW_F64 3.69423907715893078616e-13
M_LOGS(float, _f32, _F32)
M_LOGS(double, _f64, _F64)

/* ---- hyperbolic ---- */

/* u / (u + 2) with u = e^2|x| - 1, whose error fades where the result nears 1. 2.0 ulp */
#define M_TANH(F, S, LIMIT)                                      \
    RL_S F m_tanh##S(F x)                                        \
    {                                                            \
        F a = m_abs##S(x), u = m_expm1##S((a > LIMIT ? LIMIT : a) * 2); \
        return m_copysign##S(u / (u + (F)2), x);                 \
    }
M_TANH(float, _f32, 10.0f)
M_TANH(double, _f64, 20.0)

/* 1.5 ulp; near 0 from expm1, elsewhere from halves of e^|x|, which do not overflow before the result does */
RL_S double m_sinh_f64(double x)
{
    double a = m_abs_f64(x), h = m_exp_shifted_f64(a, -1), t = m_expm1_f64(a > 1.0 ? 1.0 : a);
    double near = 0.5 * (t + t / (t + 1.0)), far = h - 0.25 / h;
    return x != x ? x : m_copysign_f64(a < 1.0 ? near : far, x);
}
RL_S double m_cosh_f64(double x)
{
    double h = m_exp_shifted_f64(m_abs_f64(x), -1);
    return h + 0.25 / h;
}
RL_S double m_asinh_f64(double x)
{
    double a = m_abs_f64(x), big = a > 1e9 ? 2.0 * a - 1.0 : a + a * a / (1.0 + m_sqrt_f64(1.0 + (a > 1e9 ? 1.0 : a * a)));
    return m_copysign_f64(m_log1p_f64(big), x);
}
RL_S double m_acosh_f64(double x)
{
    double t = x - 1.0, big = x > 1e9 ? 2.0 * x - 1.0 : t + m_sqrt_f64(t * (t + 2.0));
    return x < 1.0 ? M_NAN_F64 : m_log1p_f64(big);
}
RL_S double m_atanh_f64(double x)
{
    double a = m_abs_f64(x);
    return m_copysign_f64(0.5 * m_log1p_f64(2.0 * a / (1.0 - a)), x);
}

/* ---- circular ----
 * x = n pi/2 + r with pi/2 in three parts: the error stays near 2^-53 for |x| < 2^50; beyond, where neighbouring doubles are an eighth
 * apart and
 * more, the result is some number of [-1, 1]. float computes in double, with shorter polynomials. */

RL_S double m_reduce(double x, double *r)
{
    double t = m_fma_f64(x, 0.63661977236758134308, M_ROUND_F64), n = t - M_ROUND_F64;
#if defined(M_FUSES)
    double v = m_fma_f64(n, -1.5707963267948966192, x);
    *r = m_fma_f64(n, 1.4973849048591833e-33, m_fma_f64(n, -6.123233995736766e-17, v));
#else
    /* n pi/2 = product + rest, exactly, from halves of 26 bits */
    double product = n * 1.5707963267948966192, wide = 134217729.0 * n, high = wide - (wide - n), low = n - high;
    double rest = ((high * 1.57079637050628662109 - product) + high * -4.371139006309477e-08 + low * 1.57079637050628662109) + low * -4.371139006309477e-08;
    *r = (((x - product) - rest) - n * 6.123233995736766e-17) + n * 1.4973849048591833e-33;
#endif
    return t; /* its low bits: the quadrant */
}
RL_S double m_sin_r_f64(double r, double z)
{
    double p = M_P7(_f64, z, -7.58658484845979853e-13, 1.60585297126668601e-10, -2.50521062204093836e-08, 2.75573192193044769e-06,
            -1.98412698412650193e-04,
                    8.33333333333333148e-03, -1.66666666666666657e-01);
    return m_fma_f64(r * z, p, r);
}
RL_S double m_cos_r_f64(double r, double z)
{
    double p = M_P7(_f64, z, 4.74580948233787602e-14, -1.14704598277346848e-11, 2.08767557843874636e-09, -2.75573192213835384e-07,
            2.48015873015846216e-05,
                    -1.38888888888888873e-03, 4.16666666666666644e-02);
    double h = 0.5 * z, w = 1.0 - h;
    return w + (((1.0 - w) - h) + z * z * p);
}
RL_S double m_sin_r_f32(double r, double z)
{
    return m_fma_f64(r * z, M_P4(_f64, z, 2.72493559797168593e-06, -1.98400823367227125e-04, 8.33333186656025002e-03,
            -1.66666666638343119e-01), r);
}
RL_S double m_cos_r_f32(double r, double z)
{
    double p = M_P4(_f64, z, -2.73004836114771418e-07, 2.48005967059995560e-05, -1.38888876652150622e-03, 4.16666666643037004e-02);
    return m_fma_f64(z, m_fma_f64(z, p, -0.5), 1.0);
}

/* 1.0 ulp, tan 2 */
#define M_CIRCULAR(F, S)                                                                                                \
    RL_S F m_sin##S(F x)                                                                                                \
    {                                                                                                                   \
        double r, t = m_reduce((double)x, &r), z = r * r, s = m_sin_r##S(r, z), c = m_cos_r##S(r, z);                   \
        int64_t q = m_bits_f64(t);                                                                                      \
        double v = q & 1 ? c : s;                                                                                       \
        v = m_make_f64(m_bits_f64(v) ^ (int64_t)((uint64_t)(q & 2) << 62));                                             \
        return x == 0 ? x : (F)v;                                                                                       \
    }                                                                                                                   \
    RL_S F m_cos##S(F x)                                                                                                \
    {                                                                                                                   \
        double r, t = m_reduce((double)x, &r), z = r * r, s = m_sin_r##S(r, z), c = m_cos_r##S(r, z);                   \
        int64_t q = m_bits_f64(t);                                                                                      \
        double v = q & 1 ? s : c;                                                                                       \
        return (F)m_make_f64(m_bits_f64(v) ^ (int64_t)((uint64_t)((q + 1) & 2) << 62));                                 \
    }                                                                                                                   \
    RL_S F m_tan##S(F x)                                                                                                \
    {                                                                                                                   \
        double r, t = m_reduce((double)x, &r), z = r * r, s = m_sin_r##S(r, z), c = m_cos_r##S(r, z);                   \
        int64_t q = m_bits_f64(t);                                                                                      \
        return x == 0 ? x : (F)((q & 1 ? -c : s) / (q & 1 ? s : c));                                                    \
    }
M_CIRCULAR(float, _f32)
M_CIRCULAR(double, _f64)

/* (atan(t) - t) / t^3 of z = t^2, |t| <= tan(pi/8) */
RL_S double m_atan_tail_f64(double z)
{
    double p = M_P4(_f64, z, 1.62851830298656672e-02, -3.45700441860955360e-02, 4.55157308666419083e-02, -5.23044985670924056e-02);
    p = M_P5(_f64, z, p, 5.87892839851723234e-02, -6.66642483361355176e-02, 7.69229637212996420e-02, -9.09090875340049925e-02);
    return M_P5(_f64, z, p, 1.11111111051534289e-01, -1.42857142856598063e-01, 1.99999999999998040e-01, -3.33333333333333315e-01);
}
RL_S double m_atan_tail_f32(double z)
{
    return M_P6(_f64, z, 5.04805501022357397e-02, -8.62464378443836555e-02, 1.10713606823181376e-01, -1.42841509594810179e-01,
            1.99999772543473425e-01,
                -3.33333332792422332e-01);
}
/* (asin(t) - t) / t^3 of z = t^2 <= 1/4 */
RL_S double m_asin_tail_f64(double z)
{
    double p = M_P6(_f64, z, 2.96120112649551209e-02, -1.92416717467430408e-02, 1.95545133361233782e-02, 3.04487990945567734e-03,
            9.31956079476744560e-03,
                    9.62184297010028160e-03);
    p = M_P5(_f64, z, p, 1.15664596121216687e-02, 1.39637800122035700e-02, 1.73528165403254962e-02, 2.23721574435072207e-02);
    return M_P5(_f64, z, p, 3.03819444755323402e-02, 4.46428571425518950e-02, 7.50000000000011768e-02, 1.66666666666666657e-01);
}
RL_S double m_asin_tail_f32(double z)
{
    return M_P7(_f64, z, 3.09745403713550735e-02, 1.05744155169129085e-02, 2.36118170088917521e-02, 3.02691387285891830e-02,
            4.46476638881348475e-02,
                7.49999240440183818e-02, 1.66666666860856433e-01);
}

#define M_ARCS(F, S)                                                                                                    \
    /* the angle of (den, num), both >= 0: atan, with one division. 1.0 ulp */                                          \
    RL_S double m_angle##S(double num, double den)                                                                      \
    {                                                                                                                   \
        int mid = num > 0.41421356237309503 * den, high = num > 2.4142135623730950 * den;                               \
        double a = high ? -den : mid ? num - den : num, b = high ? num : mid ? num + den : den;                         \
        double t = a / b, z = t * t;                                                                                    \
        double base = high ? 1.57079632679489661923 : mid ? 0.78539816339744830962 : 0.0;                               \
        double low = high ? 6.123233995736766e-17 : mid ? 3.061616997868383e-17 : 0.0;                                  \
        return base + (t + m_fma_f64(t * z, m_atan_tail##S(z), low));                                                   \
    }                                                                                                                   \
    RL_S F m_atan##S(F x)                                                                                               \
    {                                                                                                                   \
        double a = m_abs_f64((double)x), v = m_angle##S(a, 1.0);                                                        \
        v = a > 1e300 ? 1.57079632679489661923 : v;                                                                     \
        return (F)(x != x ? (double)x : m_copysign_f64(v, (double)x));                                                  \
    }                                                                                                                   \
    RL_S F m_atan2##S(F y, F x)                                                                                         \
    {                                                                                                                   \
        double a = m_abs_f64((double)y), b = m_abs_f64((double)x), scale = (a > 1e300) | (b > 1e300) ? 9.5367431640625e-07 : 1.0; \
        double num = b == M_INF_F64 ? 0.0 : a * scale, den = a == M_INF_F64 ? 0.0 : b * scale;                          \
        num = a == M_INF_F64 ? 1.0 : num;                                                                               \
        den = b == M_INF_F64 ? 1.0 : den;                                                                               \
        double v = m_angle##S(num, (num == 0) & (den == 0) ? 1.0 : den);                                                \
        v = m_bits_f64((double)x) < 0 ? 3.14159265358979323846 - (v - 1.2246467991473532e-16) : v;                      \
        v = m_copysign_f64(v, (double)y);                                                                               \
        return (F)((x != x) | (y != y) ? (double)x + (double)y : v);                                                    \
    }                                                                                                                   \
    /* asin(x) = pi/2 - 2 asin(sqrt((1 - x) / 2)) above 1/2. 1.5 ulp */                                                 \
    RL_S F m_asin##S(F x)                                                                                               \
    {                                                                                                                   \
        double a = m_abs_f64((double)x), z = a > 0.5 ? 0.5 * (1.0 - a) : a * a, t = a > 0.5 ? m_sqrt_f64(z) : a;        \
        double v = m_fma_f64(t * z, m_asin_tail##S(z), t);                                                              \
        v = a > 0.5 ? 1.57079632679489661923 - (2.0 * v - 6.123233995736766e-17) : v;                                   \
        return (F)m_copysign_f64(v, (double)x);                                                                         \
    }                                                                                                                   \
    RL_S F m_acos##S(F x)                                                                                               \
    {                                                                                                                   \
        double a = m_abs_f64((double)x), z = a > 0.5 ? 0.5 * (1.0 - a) : a * a, t = a > 0.5 ? m_sqrt_f64(z) : (double)x; \
        double v = m_fma_f64(t * z, m_asin_tail##S(z), t);                                                              \
        double near = 1.57079632679489661923 - (v - 6.123233995736766e-17);                                             \
        double far = x < 0 ? 3.14159265358979323846 - (2.0 * v - 1.2246467991473532e-16) : 2.0 * v;                     \
        return (F)(a > 0.5 ? far : near);                                                                               \
    }
M_ARCS(float, _f32)
M_ARCS(double, _f64)

/* float over double: cold functions */
RL_S float m_sinh_f32(float x) { return (float)m_sinh_f64((double)x); }
RL_S float m_cosh_f32(float x) { return (float)m_cosh_f64((double)x); }
RL_S float m_asinh_f32(float x) { return (float)m_asinh_f64((double)x); }
RL_S float m_acosh_f32(float x) { return (float)m_acosh_f64((double)x); }
RL_S float m_atanh_f32(float x) { return (float)m_atanh_f64((double)x); }

/* ---- the error function ---- */

/* |x| < 1: an odd polynomial; up to 3.925, where it rounds to 1: a polynomial about the middle. 1.5 ulp */
RL_S float m_erf_f32(float x)
{
    float a = m_abs_f32(x), z = x * x, t = (a > 3.925f ? 3.925f : a) * 0.683760684f - 1.683760684f;
    float near = M_P7(_f32, z, 7.875874871e-05f, -8.016864303e-04f, 5.189087242e-03f, -2.685421146e-02f, 1.128359437e-01f,
            -3.761262596e-01f, 1.283791670e-01f);
    float far = M_P8(_f32, t, 2.222065232e-04f, 1.563366641e-05f, -1.653000712e-03f, 1.592949266e-03f, 3.416839987e-03f,
            -9.124313481e-03f, 7.313152775e-03f,
                     6.680952385e-03f);
    far = M_P8(_f32, t, far, -2.866348810e-02f, 4.519832879e-02f, -4.496876895e-02f, 3.044882044e-02f, -1.381980348e-02f,
            3.837224329e-03f, 9.995032549e-01f);
    far = m_copysign_f32(far > 1.0f ? 1.0f : far, x);
    return a >= 1.0f ? far : m_fma_f32(near, x, x);
}

/* e^(x^2) erfc(x) for 1/2 <= x <= 27 */
RL_S double m_erfcx_f64(double x)
{
    double t = (x - 3.75) / (x + 3.75);
    double p = M_P8(_f64, t, 2.54979741622377321e-08, 1.36365993400000205e-08, -2.42958733159655979e-07, -4.55445275535111031e-08,
            1.74098566289274161e-06,
                    -9.81686042626464761e-07, -1.14397435717481602e-05, 2.23877382778405555e-05);
    p = M_P8(_f64, t, p, 5.16479765828429968e-05, -2.90155034276795055e-04, 2.93713835623806395e-04, 1.75562601564787269e-03,
            -9.74657957160299758e-03,
             2.83622774023252061e-02, -5.86933985892852672e-02);
    p = M_P7(_f64, t, p, 9.23043211613056858e-02, -1.08803930141734354e-01, 8.22767384901216675e-02, 3.58541548546374451e-03,
            -1.40240598585546800e-01,
             1.23751263083782748e+00);
    return p / m_fma_f64(2.0, x, 1.0);
}
/* erfc of |x|, right for |x| >= 1/2: the square's rounding error is put back */
RL_S double m_erfc_far_f64(double x)
{
    double a = m_abs_f64(x), c = a < 0.5 ? 0.5 : a > 27.3 ? 27.3 : a, square = c * c, low = m_fma_f64(c, c, -square),
            e = m_exp_f64(-square);
    return m_erfcx_f64(c) * m_fma_f64(e, -low, e);
}
RL_S double m_erf_near_f64(double x)
{
    double z = x * x;
    double p = M_P5(_f64, z, 5.95717614774891131e-11, -1.13728488567916737e-09, 1.46597752740474363e-08, -1.63503127010546952e-07,
            1.64610004841213676e-06);
    p = M_P5(_f64, z, p, -1.49255952668311818e-05, 1.20553311116427105e-04, -8.54832698083379003e-04, 5.22397762481801448e-03);
    p = M_P5(_f64, z, p, -2.68661706450767923e-02, 1.12837916709548791e-01, -3.76126389031837483e-01, 1.28379167095512574e-01);
    return m_fma_f64(p, x, x);
}
/* 1.5 ulp, erfc 4 */
RL_S double m_erf_f64(double x)
{
    double a = m_abs_f64(x), far = m_copysign_f64(1.0 - m_erfc_far_f64(a), x);
    return a >= 1.0 ? far : m_erf_near_f64(x);
}
RL_S double m_erfc_f64(double x)
{
    double a = m_abs_f64(x), tail = m_erfc_far_f64(a), far = x < 0 ? 2.0 - tail : tail;
    return a >= 0.5 ? far : 1.0 - m_erf_near_f64(x);
}
RL_S float m_erfc_f32(float x) { return (float)m_erfc_f64((double)x); }

/* ---- powers ---- */

#define M_POWERS(F, S, B)                                                                                               \
    RL_S F m_pow_edges##S(F x, F y, F v)                                                                                \
    {                                                                                                                   \
        F whole = m_trunc##S(y), half = y * (F)0.5;                                                                     \
        int is_whole = whole == y, odd = is_whole & (m_trunc##S(half) != half);                                         \
        v = x == 0 ? (y < 0 ? M_INF##B : (F)0) : v;                                                                     \
        v = odd & (m_copysign##S((F)1, x) < 0) ? -v : v;                                                                \
        v = (x < 0) & (x > -M_INF##B) & !is_whole ? M_NAN##B : v;                                                       \
        v = (x == -1) & (m_abs##S(y) == M_INF##B) ? (F)1 : v;                                                           \
        v = (x != x) | (y != y) ? x + y : v;                                                                            \
        return (x == 1) | (y == 0) ? (F)1 : v;                                                                          \
    }
M_POWERS(float, _f32, _F32)
M_POWERS(double, _f64, _F64)

/* 2^(y log2|x|) in double, both to about 2^-36. 1.0 ulp */
RL_S float m_pow_f32(float x, float y)
{
    double a = (double)m_abs_f32(x), k, f = m_split_f64(a, &k), s = f / (2.0 + f), z = s * s;
    double r = M_P5(_f64, z, 1.93652784217572232e-01, 2.21912655991719665e-01, 2.85717566681463142e-01, 3.99999987868832840e-01,
            6.66666666673827679e-01);
    double log2 = m_fma_f64(m_fma_f64(s * z, r, 2.0 * s), 1.4426950408889634, k);
    log2 = a == M_INF_F64 ? a : log2;
    double w = (double)y * log2, c = w < -160.0 ? -160.0 : w;
    c = c > 140.0 ? 140.0 : c;
    double t = c + M_ROUND_F64, q = c - (t - M_ROUND_F64);
    double p = M_P8(_f64, q, 1.32509471113874951e-06, 1.53039050905845507e-05, 1.54034747431842516e-04, 1.33334778337566981e-03,
            9.61812913556929321e-03,
                    5.55041090680673532e-02, 2.40226506958881536e-01, 6.93147180556782261e-01);
    double v = m_fma_f64(p, q, 1.0) * m_two_to_f64(m_bits_f64(t) - m_bits_f64(M_ROUND_F64));
    return m_pow_edges_f32(x, y, (float)v);
}
/* e^(y log|x|), the logarithm in two parts. 1.0 ulp, growing to 8 where the result nears overflow or underflow */
#if defined(M_FUSES)
RL_S double m_pow_f64(double x, double y)
{
    double a = m_abs_f64(x), k, f = m_split_f64(a, &k), d = 2.0 + f, s = f / d, z = s * s;
    double s_low = (m_fma_f64(-s, d, f) - s * ((2.0 - d) + f)) / d;
    double r = M_P8(_f64, z, 1.30896291606746235e-01, 1.32684856806544266e-01, 1.53862504479401890e-01, 1.81817954423719841e-01,
            2.22222223935666097e-01,
                    2.85714285707954319e-01, 4.00000000000008904e-01, 6.66666666666666630e-01);
    double big = k * M_LN2_HIGH_F64, first = 2.0 * s, sum = big + first;
    double sum_low = k == 0 ? 0.0 : first - (sum - big);
    double low = sum_low + m_fma_f64(k, M_LN2_LOW_F64, m_fma_f64(s * z, r, 2.0 * s_low));
    double high = sum + low;
    low = low - (high - sum);
    high = a == M_INF_F64 ? a : high;
    double w = y * high, w_low = m_fma_f64(y, low, m_fma_f64(y, high, -w));
    w_low = m_abs_f64(w_low) < 1.0 ? w_low : 0.0;
    double e = m_exp_f64(w), v = e < M_INF_F64 ? m_fma_f64(e, w_low, e) : e;
    return m_pow_edges_f64(x, y, v);
}
#else
RL_S double m_pow_f64(double x, double y) { return pow(x, y); }
#endif

/* ---- remainders: x - trunc(x / y) y, exact while the quotient is below 2^100 ---- */

#if defined(M_FUSES)
RL_S double m_fmod_step(double r, double d)
{
    double v = m_fma_f64(-m_trunc_f64(r / d), d, r);
    v = v < 0 ? v + d : v;
    return v >= d ? v - d : v;
}
RL_S double m_fmod_f64(double x, double y)
{
    double d = m_abs_f64(y), r = m_abs_f64(x), v = m_fmod_step(m_fmod_step(m_fmod_step(r, d), d), d);
    v = r < d ? r : v;
    v = (d != d) | (d == 0) | !(r < M_INF_F64) ? M_NAN_F64 : v;
    return m_copysign_f64(v, x);
}
RL_S float m_fmod_f32(float x, float y)
{
    double d = (double)m_abs_f32(y), r = (double)m_abs_f32(x), v = m_fmod_step(m_fmod_step(r, d), d);
    v = r < d ? r : v;
    v = (d != d) | (d == 0) | !(r < M_INF_F64) ? M_NAN_F64 : v;
    return (float)m_copysign_f64(v, (double)x);
}
#else
RL_S double m_fmod_f64(double x, double y) { return fmod(x, y); }
RL_S float m_fmod_f32(float x, float y) { return fmodf(x, y); }
#endif

/* The next number from x towards y: one step of the bits, which order like the numbers. */
RL_S float m_nextafter_f32(float x, float y)
{
    int32_t u = m_bits_f32(x), step = (x < y) == (x > 0) ? 1 : -1;
    float v = x == 0 ? m_copysign_f32(1.40129846e-45f, y) : m_make_f32(u + step);
    v = x == y ? y : v;
    return (x != x) | (y != y) ? x + y : v;
}
RL_S double m_nextafter_f64(double x, double y)
{
    int64_t u = m_bits_f64(x), step = (x < y) == (x > 0) ? 1 : -1;
    double v = x == 0 ? m_copysign_f64(4.9406564584124654e-324, y) : m_make_f64(u + step);
    v = x == y ? y : v;
    return (x != x) | (y != y) ? x + y : v;
}

/* ---- gamma: shifted up by 8 where x < 8, then Stirling's series; reflected below 0. Absolute error about 1e-14 near the zeros ---- */

/* sin(pi x) and cos(pi x) */
RL_S double m_sinpi(double x)
{
    double n = m_round_f64(x), v = m_sin_f64((x - n) * 3.14159265358979323846);
    return m_trunc_f64(n * 0.5) * 2.0 == n ? v : -v;
}
RL_S double m_cospi(double x)
{
    double n = m_round_f64(x), v = m_cos_f64((x - n) * 3.14159265358979323846);
    return m_trunc_f64(n * 0.5) * 2.0 == n ? v : -v;
}
RL_S double m_lgamma_up(double x)
{
    int low = x < 8.0;
    double p = x * (x + 1.0) * (x + 2.0) * (x + 3.0) * (x + 4.0) * (x + 5.0) * (x + 6.0) * (x + 7.0), z = low ? x + 8.0 : x, i = 1.0 / z,
            w = i * i;
    double tail = i * M_P7(_f64, w, 6.41025641025641025e-03, -1.91752691752691753e-03, 8.41750841750841751e-04, -5.95238095238095238e-04,
            7.93650793650793651e-04,
                           -2.77777777777777778e-03, 8.33333333333333333e-02);
    double v = (z - 0.5) * m_log_f64(z) - z + (0.91893853320467274178 + tail);
    return z == M_INF_F64 ? z : v - (low ? m_log_f64(p) : 0.0);
}
RL_S double m_lgamma_f64(double x)
{
    int reflect = x < 0.5;
    double up = m_lgamma_up(reflect ? 1.0 - x : x), s = m_abs_f64(m_sinpi(x));
    double v = reflect ? 1.14472988584940017414 - m_log_f64(s) - up : up;
    v = (x <= 0) & (m_floor_f64(x) == x) ? M_INF_F64 : v;
    return x != x ? x : v;
}
/* sums of 1/(x + k)^n for k < 8 */
RL_S double m_digamma_up(double x)
{
    int low = x < 8.0;
    double sum = 0, z = low ? x + 8.0 : x, i = 1.0 / z, w = i * i;
    for (int k = 0; k < 8; k++)
        sum += 1.0 / (x + (double)k);
    double tail = w * M_P7(_f64, w, 8.33333333333333333e-02, -2.10927960927960928e-02, 7.57575757575757576e-03, -4.16666666666666667e-03,
            3.96825396825396825e-03,
                           -8.33333333333333333e-03, 8.33333333333333333e-02);
    double v = m_log_f64(z) - 0.5 * i - tail;
    return z == M_INF_F64 ? z : v - (low ? sum : 0.0);
}
RL_S double m_digamma_f64(double x)
{
    int reflect = x < 0;
    double up = m_digamma_up(reflect ? 1.0 - x : x);
    double v = reflect ? up - 3.14159265358979323846 * m_cospi(x) / m_sinpi(x) : up;
    v = reflect & (m_floor_f64(x) == x) ? M_NAN_F64 : v;
    v = x == 0 ? m_copysign_f64(M_INF_F64, -x) : v;
    return x != x ? x : v;
}
RL_S double m_trigamma_f64(double x)
{
    int reflect = x < 0.5;
    double a = reflect ? 1.0 - x : x, sum = 0, z = a < 8.0 ? a + 8.0 : a, i = 1.0 / z, w = i * i, s = m_sinpi(x);
    for (int k = 0; k < 8; k++)
        sum += 1.0 / ((a + (double)k) * (a + (double)k));
    double tail = i * w * M_P7(_f64, w, 1.16666666666666667e+00, -2.53113553113553114e-01, 7.57575757575757576e-02,
            -3.33333333333333333e-02, 2.38095238095238095e-02,
                               -3.33333333333333333e-02, 1.66666666666666667e-01);
    double up = i + 0.5 * w + tail + (a < 8.0 ? sum : 0.0);
    double v = reflect ? 9.86960440108935861883 / (s * s) - up : up;
    return x != x ? x : v;
}
RL_S double m_tetragamma_f64(double x)
{
    int reflect = x < 0.5;
    double a = reflect ? 1.0 - x : x, sum = 0, z = a < 8.0 ? a + 8.0 : a, i = 1.0 / z, w = i * i, s = m_sinpi(x);
    for (int k = 0; k < 8; k++)
        sum += 1.0 / ((a + (double)k) * (a + (double)k) * (a + (double)k));
    double tail = w * w * M_P7(_f64, w, -1.75000000000000000e+01, 3.29047619047619048e+00, -8.33333333333333333e-01,
            3.00000000000000000e-01, -1.66666666666666667e-01,
                               1.66666666666666667e-01, -5.00000000000000000e-01);
    double up = -w - i * w + tail - (a < 8.0 ? 2.0 * sum : 0.0);
    double v = reflect ? up - 62.0125533608400 * m_cospi(x) / (s * s * s) : up;
    return x != x ? x : v;
}
RL_S float m_lgamma_f32(float x) { return (float)m_lgamma_f64((double)x); }
RL_S float m_digamma_f32(float x) { return (float)m_digamma_f64((double)x); }
RL_S float m_trigamma_f32(float x) { return (float)m_trigamma_f64((double)x); }
RL_S float m_tetragamma_f32(float x) { return (float)m_tetragamma_f64((double)x); }

#endif
