/* dtype: the element types, their sizes, promotion and the conversions of the 16-bit floats.
 *
 * The order of the enum is the order of promotion within a category; tables index by it. Conversions round to nearest
 * even and keep NaN, as PyTorch's do. Scalars (rl_scalar) are Python numbers on their way into a kernel.
 */
#ifndef RL_DTYPE_H
#define RL_DTYPE_H
#include "status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef enum rl_dtype {
    RL_BOOL = 0,
    RL_U8,
    RL_I8,
    RL_I16,
    RL_I32,
    RL_I64,
    RL_F16,
    RL_BF16,
    RL_F32,
    RL_F64,
    RL_DTYPE_COUNT,
    RL_DTYPE_NONE = 255, /* "not given" in signatures */
} rl_dtype;

typedef enum rl_category { RL_CAT_BOOL = 0, RL_CAT_INT, RL_CAT_FLOAT } rl_category;

typedef struct rl_dtype_info {
    const char *name;       /* "float32" */
    const char *alias;      /* "float", or NULL */
    const char *scalar_type; /* PyTorch's ScalarType as its messages print it: "Float", "Long" */
    const char *tensor_type; /* "FloatTensor" */
    uint8_t size;           /* bytes */
    uint8_t category;       /* rl_category */
    bool is_signed;
    char kind; /* buffer protocol and NumPy: '?', 'B', 'b', 'h', 'i', 'q', 'e', 'f', 'd'; 0 for bfloat16 */
} rl_dtype_info;

extern const rl_dtype_info rl_dtype_table[RL_DTYPE_COUNT];

static inline int rl_dtype_size(rl_dtype d) { return rl_dtype_table[d].size; }
static inline rl_category rl_dtype_category(rl_dtype d) { return (rl_category)rl_dtype_table[d].category; }
static inline bool rl_dtype_is_float(rl_dtype d) { return d >= RL_F16; }
static inline bool rl_dtype_is_int(rl_dtype d) { return d >= RL_U8 && d <= RL_I64; }
static inline const char *rl_dtype_name(rl_dtype d) { return rl_dtype_table[d].name; }

/* torch.promote_types. */
rl_dtype rl_dtype_promote(rl_dtype a, rl_dtype b);
/* torch.can_cast: false when the category would fall (float to int, int to bool). */
bool rl_dtype_can_cast(rl_dtype from, rl_dtype to);

/* A number without a tensor. kind is its category: i for bool and int, d for float. */
typedef struct rl_scalar {
    rl_category kind;
    union {
        int64_t i;
        double d;
    };
} rl_scalar;

static inline rl_scalar rl_scalar_float(double d) { return (rl_scalar){.kind = RL_CAT_FLOAT, .d = d}; }
static inline rl_scalar rl_scalar_int(int64_t i) { return (rl_scalar){.kind = RL_CAT_INT, .i = i}; }
static inline rl_scalar rl_scalar_bool(bool b) { return (rl_scalar){.kind = RL_CAT_BOOL, .i = b}; }
static inline double rl_scalar_to_double(rl_scalar s) { return s.kind == RL_CAT_FLOAT ? s.d : (double)s.i; }
int64_t rl_scalar_to_int64(rl_scalar s); /* saturates nothing: C conversion, 0 for NaN */

/* One element at `p` of type `d`, read into or written from a scalar (bool: != 0; ints wrap; floats round once). */
rl_scalar rl_element_load(const void *p, rl_dtype d);
void rl_element_store(void *p, rl_dtype d, rl_scalar s);

static inline float rl_bf16_to_f32(uint16_t h)
{
    uint32_t u = (uint32_t)h << 16;
    float f;
    memcpy(&f, &u, 4);
    return f;
}

static inline uint16_t rl_f32_to_bf16(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    if (f != f)
        return 0x7fc0;
    return (uint16_t)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

float rl_f16_to_f32(uint16_t h);
uint16_t rl_f32_to_f16(float f);

#endif
