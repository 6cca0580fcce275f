/* vec: the widest vector of this instruction level, as GCC's vector extension, for loops that the compiler does not vectorise itself.
 *
 * Everything is static and always inlined: no vector crosses a function boundary. VEC_BYTES is the only thing that differs between levels.
 */
#ifndef RL_VEC_H
#define RL_VEC_H
#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__)
#define VEC_BYTES 64
#elif defined(__AVX__)
#define VEC_BYTES 32
#else
#define VEC_BYTES 16
#endif

#define VEC_INLINE static inline __attribute__((always_inline, unused))

typedef float vf32 __attribute__((vector_size(VEC_BYTES)));
typedef double vf64 __attribute__((vector_size(VEC_BYTES)));
typedef int32_t vi32 __attribute__((vector_size(VEC_BYTES)));
typedef int64_t vi64 __attribute__((vector_size(VEC_BYTES)));

#define VEC_F32 (VEC_BYTES / 4)
#define VEC_F64 (VEC_BYTES / 8)

#define VEC_OF(T, V, I, name)                                                                          \
    VEC_INLINE V vec_load_##name(const T *p)                                                           \
    {                                                                                                  \
        V v;                                                                                           \
        memcpy(&v, p, sizeof v);                                                                       \
        return v;                                                                                      \
    }                                                                                                  \
    VEC_INLINE void vec_store_##name(T *p, V v) { memcpy(p, &v, sizeof v); }                            \
    VEC_INLINE V vec_splat_##name(T x) { return x - (V){0}; } /* exact for -0, so it is a broadcast */      \
    VEC_INLINE V vec_select_##name(I mask, V a, V b) { return (V)(((I)a & mask) | ((I)b & ~mask)); }   \
    VEC_INLINE T vec_sum_##name(V v) /* by halves */                                                   \
    {                                                                                                  \
        T a[VEC_BYTES / sizeof(T)];                                                                    \
        memcpy(a, &v, sizeof a);                                                                       \
        for (int w = VEC_BYTES / (2 * sizeof(T)); w; w /= 2)                                           \
            for (int i = 0; i < w; i++)                                                                \
                a[i] += a[i + w];                                                                      \
        return a[0];                                                                                   \
    }
VEC_OF(float, vf32, vi32, f32)
VEC_OF(double, vf64, vi64, f64)

#endif
