/* gemm_f64.c: products of float64. See gemm_float.h. */
#define T double
#define V vf64
#define I vi64
#define VL VEC_F64
#define OF(name) name##_f64
#include "gemm_float.h"
