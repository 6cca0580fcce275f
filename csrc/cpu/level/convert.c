/* convert.c: element types to compute types and back, the blocks around every loop that computes in f32, f64, i64 or u8.
 *
 * One loop for each pair, dense and strided. 16-bit floats go through float32 with one rounding; integers wrap; bool is
 * "not 0". A float becomes an 8- or 16-bit integer through a wider one, as PyTorch's casts do on x86.
 */
#include "kernels.h"

#if defined(__F16C__)
#include <immintrin.h>
#endif

/* ---- 16-bit floats ---- */

#if defined(__F16C__)
static inline float f16_load(uint16_t h) { return _cvtsh_ss(h); }
static inline uint16_t f16_store(float f) { return (uint16_t)_cvtss_sh(f, _MM_FROUND_TO_NEAREST_INT); }
#else
static inline float bits_f32(uint32_t u)
{
    float f;
    memcpy(&f, &u, 4);
    return f;
}

static inline uint32_t f32_bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    return u;
}

/* Without branches, so that it vectorises: the exponent is rebiased by a product, which also makes subnormals normal. */
static inline float f16_load(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, rest = (uint32_t)(h & 0x7fffu) << 13;
    uint32_t finite = f32_bits(bits_f32(rest) * 0x1p112f);
    return bits_f32(sign | (rest >= 0x0f800000u ? rest | 0x7f800000u : finite));
}

static inline uint16_t f16_store(float f)
{
    uint32_t u = f32_bits(f), sign = u >> 16 & 0x8000u, a = u & 0x7fffffffu;
    uint32_t normal = (a - 0x38000000u + 0xfffu + (a >> 13 & 1)) >> 13;         /* rounds to even; carries into the exponent */
    uint32_t small = f32_bits(bits_f32(a) + 0.5f) - 0x3f000000u;                /* the addition rounds to a multiple of 2^-24 */
    uint32_t v = a < 0x38800000u ? small : normal;
    v = a >= 0x477ff000u ? 0x7c00u : v;
    v = a > 0x7f800000u ? 0x7e00u : v;
    return (uint16_t)(sign | v);
}
#endif

/* ---- one conversion: READ_<element type>(p) as a value, WRITE ---- */

#define C_BOOL uint8_t
#define C_U8 uint8_t
#define C_I8 int8_t
#define C_I16 int16_t
#define C_I32 int32_t
#define C_I64 int64_t
#define C_F16 uint16_t
#define C_BF16 uint16_t
#define C_F32 float
#define C_F64 double

#define SAME(v) (v)
#define READ_BOOL(v) ((v) != 0)
#define READ_U8 SAME
#define READ_I8 SAME
#define READ_I16 SAME
#define READ_I32 SAME
#define READ_I64 SAME
#define READ_F16 f16_load
#define READ_BF16 rl_bf16_to_f32
#define READ_F32 SAME
#define READ_F64 SAME

/* From a float; from an integer a plain cast wraps. */
#define WRITE_BOOL(v) ((v) != 0)
#define WRITE_U8(v) (uint8_t)(int64_t)(v)
#define WRITE_I8(v) (int8_t)(int64_t)(v)
#define WRITE_I16(v) (int16_t)(int64_t)(v)
#define WRITE_I32(v) (int32_t)(int64_t)(v)
#define WRITE_I64(v) (int64_t)(v)
#define WRITE_F16(v) f16_store((float)(v))
#define WRITE_BF16(v) rl_f32_to_bf16((float)(v))
#define WRITE_F32(v) (float)(v)
#define WRITE_F64(v) (double)(v)
/* Into u8, the compute type of masks: bool and uint8 as they are, others "not 0". */
#define MASK_BOOL(v) ((v) != 0)
#define MASK_U8 SAME
#define MASK_I8(v) ((v) != 0)
#define MASK_I16 MASK_I8
#define MASK_I32 MASK_I8
#define MASK_I64 MASK_I8
#define MASK_F16(v) (((v) & 0x7fff) != 0)
#define MASK_BF16 MASK_F16
#define MASK_F32 MASK_I8
#define MASK_F64 MASK_I8

/* VALUE sees v, the element. */
#define LOAD_LOOP(name, TO, FROM, VALUE)                                  \
    static void name(void *dst, const void *src, int64_t stride, int64_t n) \
    {                                                                     \
        TO *restrict d = dst;                                             \
        if (stride == (int64_t)sizeof(FROM)) {                            \
            const FROM *restrict s = src;                                 \
            for (int64_t i = 0; i < n; i++) {                             \
                FROM v = s[i];                                            \
                d[i] = (TO)(VALUE);                                       \
            }                                                             \
            return;                                                       \
        }                                                                 \
        const char *s = src;                                              \
        for (int64_t i = 0; i < n; i++, s += stride) {                    \
            FROM v = *(const FROM *)s;                                    \
            d[i] = (TO)(VALUE);                                           \
        }                                                                 \
    }
#define STORE_LOOP(name, TO, FROM, VALUE)                                 \
    static void name(void *dst, const void *src, int64_t stride, int64_t n) \
    {                                                                     \
        const FROM *restrict s = src;                                     \
        if (stride == (int64_t)sizeof(TO)) {                              \
            TO *restrict d = dst;                                         \
            for (int64_t i = 0; i < n; i++) {                             \
                FROM v = s[i];                                            \
                d[i] = (TO)(VALUE);                                       \
            }                                                             \
            return;                                                       \
        }                                                                 \
        char *d = dst;                                                    \
        for (int64_t i = 0; i < n; i++, d += stride) {                    \
            FROM v = s[i];                                                \
            *(TO *)d = (TO)(VALUE);                                       \
        }                                                                 \
    }

#define EACH(X) X(BOOL) X(U8) X(I8) X(I16) X(I32) X(I64) X(F16) X(BF16) X(F32) X(F64)
#define LOOPS(D)                                              \
    LOAD_LOOP(load_F32_##D, float, C_##D, READ_##D(v))        \
    LOAD_LOOP(load_F64_##D, double, C_##D, READ_##D(v))       \
    LOAD_LOOP(load_I64_##D, int64_t, C_##D, READ_##D(v))      \
    LOAD_LOOP(load_U8_##D, uint8_t, C_##D, MASK_##D(v))       \
    STORE_LOOP(store_F32_##D, C_##D, float, WRITE_##D(v))     \
    STORE_LOOP(store_F64_##D, C_##D, double, WRITE_##D(v))    \
    STORE_LOOP(store_I64_##D, C_##D, int64_t, WRITE_##D(v))   \
    STORE_LOOP(store_U8_##D, C_##D, uint8_t, WRITE_##D(v))
EACH(LOOPS)

#if defined(__F16C__)
/* GCC does not vectorise the intrinsics of one element. */
static void load_dense_f16(void *dst, const void *src, int64_t stride, int64_t n)
{
    const uint16_t *s = src;
    float *d = dst;
    int64_t i = 0;
    if (stride != 2) {
        load_F32_F16(dst, src, stride, n);
        return;
    }
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(d + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(s + i))));
    for (; i < n; i++)
        d[i] = f16_load(s[i]);
}

static void store_dense_f16(void *dst, const void *src, int64_t stride, int64_t n)
{
    const float *s = src;
    uint16_t *d = dst;
    int64_t i = 0;
    if (stride != 2) {
        store_F32_F16(dst, src, stride, n);
        return;
    }
    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128((__m128i *)(d + i), _mm256_cvtps_ph(_mm256_loadu_ps(s + i), _MM_FROUND_TO_NEAREST_INT));
    for (; i < n; i++)
        d[i] = f16_store(s[i]);
}
#else
#define load_dense_f16 load_F32_F16
#define store_dense_f16 store_F32_F16
#endif

static int compute_index(rl_dtype compute)
{
    return compute == RL_F32 ? 0 : compute == RL_F64 ? 1 : compute == RL_I64 ? 2 : 3;
}

rl_convert_fn RL_LEVEL_NAME(rl_convert_load)(rl_dtype compute, rl_dtype src)
{
#define ROW(D) [RL_##D] = {load_F32_##D, load_F64_##D, load_I64_##D, load_U8_##D},
    static const rl_convert_fn table[RL_DTYPE_COUNT][4] = {EACH(ROW)};
#undef ROW
    return compute == RL_F32 && src == RL_F16 ? load_dense_f16 : table[src][compute_index(compute)];
}

rl_convert_fn RL_LEVEL_NAME(rl_convert_store)(rl_dtype compute, rl_dtype dst)
{
#define ROW(D) [RL_##D] = {store_F32_##D, store_F64_##D, store_I64_##D, store_U8_##D},
    static const rl_convert_fn table[RL_DTYPE_COUNT][4] = {EACH(ROW)};
#undef ROW
    return compute == RL_F32 && dst == RL_F16 ? store_dense_f16 : table[dst][compute_index(compute)];
}

rl_dtype RL_LEVEL_NAME(rl_convert_via)(rl_dtype dst, rl_dtype src)
{
    if (src == RL_F64 || src == RL_F32)
        return src;
    if (rl_dtype_is_float(src))
        return RL_F32;
    if (src == RL_BOOL || dst == RL_BOOL)
        return RL_U8;
    /* int64 may not go through float32 twice, but a small integer is exact in any float */
    return dst == RL_F64 ? RL_F64 : dst == RL_F32 ? RL_F32 : RL_I64;
}
