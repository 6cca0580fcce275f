/* rows.h: what the kernels over rows share (softmax, norms, losses): sums and maxima in fixed lanes, rows of 16-bit floats through float32.
 *
 * LANES partial results are kept whatever the vector's width, so every instruction level adds in the same order; loops over LANES elements are what the
 * compiler vectorises. Partial sums are combined by halves.
 */
#ifndef RL_LEVEL_ROWS_H
#define RL_LEVEL_ROWS_H
#include "kernels.h"
#include "../../core/alloc.h"

#define RL_SCALAR_F32
#include "../../ops/scalar.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

enum { LANES = 16 };

/* Fewer than LANES elements in moves of fixed size: a call of memcpy costs more than the exponentials of a short row. */
static inline void copy_part(void *to, const void *from, int64_t n, size_t size)
{
    char *d = to;
    const char *s = from;
    for (int64_t w = LANES / 2; w; w /= 2) {
        size_t bytes = (size_t)w * size;
        if (!(n & w))
            continue;
        switch (bytes) {
        case 64: memcpy(d, s, 64); break;
        case 32: memcpy(d, s, 32); break;
        case 16: memcpy(d, s, 16); break;
        case 8: memcpy(d, s, 8); break;
        default: memcpy(d, s, 4);
        }
        d += bytes;
        s += bytes;
    }
}

#define ROWS_OF(T, S)                                                                       \
    static inline T fold_sum_##S(T *acc)                                                    \
    {                                                                                       \
        for (int w = LANES / 2; w; w /= 2)                                                  \
            for (int i = 0; i < w; i++)                                                     \
                acc[i] += acc[i + w];                                                       \
        return acc[0];                                                                      \
    }                                                                                       \
    static inline T row_max_##S(const T *x, int64_t n)                                      \
    {                                                                                       \
        T acc[LANES], m;                                                                    \
        int64_t i = 0;                                                                      \
        for (int k = 0; k < LANES; k++)                                                     \
            acc[k] = (T)-INFINITY;                                                          \
        for (; i + LANES <= n; i += LANES)                                                  \
            for (int k = 0; k < LANES; k++)                                                 \
                acc[k] = x[i + k] > acc[k] ? x[i + k] : acc[k];                             \
        for (m = acc[0]; i < n; i++)                                                        \
            m = x[i] > m ? x[i] : m;                                                        \
        for (int k = 1; k < LANES; k++)                                                     \
            m = acc[k] > m ? acc[k] : m;                                                    \
        return m;                                                                           \
    }                                                                                       \
    static inline T row_sum_##S(const T *x, int64_t n)                                      \
    {                                                                                       \
        T acc[LANES] = {0}, rest = 0;                                                       \
        int64_t i = 0;                                                                      \
        for (; i + LANES <= n; i += LANES)                                                  \
            for (int k = 0; k < LANES; k++)                                                 \
                acc[k] += x[i + k];                                                         \
        for (; i < n; i++)                                                                  \
            rest += x[i];                                                                   \
        return fold_sum_##S(acc) + rest;                                                    \
    }                                                                                       \
    static inline T row_dot_##S(const T *x, const T *y, int64_t n)                          \
    {                                                                                       \
        T acc[LANES] = {0}, rest = 0;                                                       \
        int64_t i = 0;                                                                      \
        for (; i + LANES <= n; i += LANES)                                                  \
            for (int k = 0; k < LANES; k++)                                                 \
                acc[k] += x[i + k] * y[i + k];                                              \
        for (; i < n; i++)                                                                  \
            rest += x[i] * y[i];                                                            \
        return fold_sum_##S(acc) + rest;                                                    \
    }                                                                                       \
    /* out = exp(x - m); the sum of out. out may be x, or NULL when only the sum is wanted. */ \
    static inline T row_exp_sum_##S(T *out, const T *x, T m, int64_t n)                     \
    {                                                                                       \
        T acc[LANES] = {0}, e[LANES], rest = 0;                                             \
        int64_t i = 0;                                                                      \
        for (; i + LANES <= n; i += LANES) {                                                \
            for (int k = 0; k < LANES; k++)                                                 \
                e[k] = m_exp_##S(x[i + k] - m);                                             \
            for (int k = 0; k < LANES; k++)                                                 \
                acc[k] += e[k];                                                             \
            if (out)                                                                        \
                memcpy(out + i, e, sizeof e);                                               \
        }                                                                                   \
        if (i < n) { /* in a whole vector; exp(-inf) in the spare lanes would cost 150 cycles */ \
            T t[LANES];                                                                     \
            for (int k = 0; k < LANES; k++)                                                 \
                t[k] = m;                                                                   \
            copy_part(t, x + i, n - i, sizeof(T));                                          \
            for (int k = 0; k < LANES; k++)                                                 \
                e[k] = m_exp_##S(t[k] - m);                                                 \
            for (int k = 0; k < n - i; k++)                                                 \
                rest += e[k];                                                               \
            if (out)                                                                        \
                copy_part(out + i, e, n - i, sizeof(T));                                    \
        }                                                                                   \
        return fold_sum_##S(acc) + rest;                                                    \
    }
ROWS_OF(float, f32)
ROWS_OF(double, f64)

static inline bool rows_are_half(uint8_t dtype) { return dtype == RL_F16 || dtype == RL_BF16; }

/* Rows a block of the pool takes: about 30 us of work. */
static inline int64_t rows_grain(int64_t n)
{
    int64_t grain = 16384 / (n > 0 ? n : 1);
    return grain < 1 ? 1 : grain;
}

#endif
