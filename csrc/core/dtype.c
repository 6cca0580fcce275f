/* dtype: the table of element types, promotion, and element conversions. See dtype.h.
 *
 * Promotion follows PyTorch's lattice: within a category the larger type, uint8 with a signed type the next signed type that
 * holds both, float16 with bfloat16 float32.
 */
#include "dtype.h"

#include <math.h>

const rl_dtype_info rl_dtype_table[RL_DTYPE_COUNT] = {
    [RL_BOOL] = {"bool", NULL, "Bool", "BoolTensor", 1, RL_CAT_BOOL, false, '?'},
    [RL_U8] = {"uint8", NULL, "Byte", "ByteTensor", 1, RL_CAT_INT, false, 'B'},
    [RL_I8] = {"int8", NULL, "Char", "CharTensor", 1, RL_CAT_INT, true, 'b'},
    [RL_I16] = {"int16", "short", "Short", "ShortTensor", 2, RL_CAT_INT, true, 'h'},
    [RL_I32] = {"int32", "int", "Int", "IntTensor", 4, RL_CAT_INT, true, 'i'},
    [RL_I64] = {"int64", "long", "Long", "LongTensor", 8, RL_CAT_INT, true, 'q'},
    [RL_F16] = {"float16", "half", "Half", "HalfTensor", 2, RL_CAT_FLOAT, true, 'e'},
    [RL_BF16] = {"bfloat16", NULL, "BFloat16", "BFloat16Tensor", 2, RL_CAT_FLOAT, true, 0},
    [RL_F32] = {"float32", "float", "Float", "FloatTensor", 4, RL_CAT_FLOAT, true, 'f'},
    [RL_F64] = {"float64", "double", "Double", "DoubleTensor", 8, RL_CAT_FLOAT, true, 'd'},
};

rl_dtype rl_dtype_promote(rl_dtype a, rl_dtype b)
{
    if (a == b)
        return a;
    if (a > b) {
        rl_dtype t = a;
        a = b;
        b = t;
    }
    if (a == RL_U8 && b == RL_I8)
        return RL_I16;
    if (a == RL_F16 && b == RL_BF16)
        return RL_F32;
    return b;
}

bool rl_dtype_can_cast(rl_dtype from, rl_dtype to)
{
    return rl_dtype_category(from) <= rl_dtype_category(to);
}

int64_t rl_scalar_to_int64(rl_scalar s)
{
    if (s.kind != RL_CAT_FLOAT)
        return s.i;
    if (s.d != s.d)
        return 0;
    if (s.d >= 9223372036854775808.0 || s.d < -9223372036854775808.0)
        return INT64_MIN; /* what the conversion instruction gives */
    return (int64_t)s.d;
}

float rl_f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exponent = (h >> 10) & 0x1fu, mantissa = h & 0x3ffu, bits;
    if (exponent == 31)
        bits = sign | 0x7f800000u | (mantissa << 13) | (mantissa ? 0x400000u : 0);
    else if (exponent != 0)
        bits = sign | ((exponent + 112) << 23) | (mantissa << 13);
    else {
        float f = (float)mantissa * 0x1p-24f;
        return sign ? -f : f;
    }
    float f;
    memcpy(&f, &bits, 4);
    return f;
}

uint16_t rl_f32_to_f16(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, 4);
    uint16_t sign = (uint16_t)((bits >> 16) & 0x8000u);
    uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u);
    if (magnitude >= 0x477ff000u) /* 65520 and above round to infinity */
        return (uint16_t)(sign | 0x7c00u);
    if (magnitude < 0x38800000u) { /* subnormal: let the float adder round to a multiple of 2^-24 */
        float a;
        memcpy(&a, &magnitude, 4);
        a += 0.5f; /* the unit of the last place of 0.5 is 2^-24 */
        memcpy(&magnitude, &a, 4);
        return (uint16_t)(sign | (magnitude - 0x3f000000u));
    }
    return (uint16_t)(sign | ((magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13));
}

#define LOAD(type) ({ type v; memcpy(&v, p, sizeof v); v; })

rl_scalar rl_element_load(const void *p, rl_dtype d)
{
    switch (d) {
    case RL_BOOL: return rl_scalar_bool(*(const uint8_t *)p != 0);
    case RL_U8: return rl_scalar_int(*(const uint8_t *)p);
    case RL_I8: return rl_scalar_int(*(const int8_t *)p);
    case RL_I16: return rl_scalar_int(LOAD(int16_t));
    case RL_I32: return rl_scalar_int(LOAD(int32_t));
    case RL_I64: return rl_scalar_int(LOAD(int64_t));
    case RL_F16: return rl_scalar_float(rl_f16_to_f32(LOAD(uint16_t)));
    case RL_BF16: return rl_scalar_float(rl_bf16_to_f32(LOAD(uint16_t)));
    case RL_F32: return rl_scalar_float(LOAD(float));
    case RL_F64: return rl_scalar_float(LOAD(double));
    default: return rl_scalar_int(0);
    }
}

#define STORE(type, value)             \
    do {                               \
        type v = (type)(value);        \
        memcpy(p, &v, sizeof v);       \
    } while (0)

void rl_element_store(void *p, rl_dtype d, rl_scalar s)
{
    switch (d) {
    case RL_BOOL: *(uint8_t *)p = s.kind == RL_CAT_FLOAT ? s.d != 0 : s.i != 0; break;
    case RL_U8: STORE(uint8_t, rl_scalar_to_int64(s)); break;
    case RL_I8: STORE(int8_t, rl_scalar_to_int64(s)); break;
    case RL_I16: STORE(int16_t, rl_scalar_to_int64(s)); break;
    case RL_I32: STORE(int32_t, rl_scalar_to_int64(s)); break;
    case RL_I64: STORE(int64_t, rl_scalar_to_int64(s)); break;
    case RL_F16: STORE(uint16_t, rl_f32_to_f16((float)rl_scalar_to_double(s))); break;
    case RL_BF16: STORE(uint16_t, rl_f32_to_bf16((float)rl_scalar_to_double(s))); break;
    case RL_F32: STORE(float, s.kind == RL_CAT_FLOAT ? (float)s.d : (float)s.i); break;
    case RL_F64: STORE(double, rl_scalar_to_double(s)); break;
    default: break;
    }
}
