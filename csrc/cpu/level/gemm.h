/* gemm: between RL_K_GEMM (gemm.c) and the products of each float type (gemm_f32.c, gemm_f64.c). */
#ifndef RL_GEMM_H
#define RL_GEMM_H
#include "kernels.h"
#include "../../core/alloc.h"

#include <stdatomic.h>

rl_status RL_LEVEL_NAME(rl_gemm_f32)(const rl_gemm_args *a);
rl_status RL_LEVEL_NAME(rl_gemm_f64)(const rl_gemm_args *a);

#endif
