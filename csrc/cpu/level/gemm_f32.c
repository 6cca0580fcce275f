/* gemm_f32.c: products of float32. See gemm_float.h. */
#define T float
#define V vf32
#define I vi32
#define VL VEC_F32
#define OF(name) name##_f32
#include "gemm_float.h"
