/* table.c: the kernels of one instruction level. A family without a line is NULL: not implemented, or composed by ops. */
#include "kernels.h"

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)

const rl_cpu_level RL_LEVEL_NAME(rl_cpu_level) = {
    .name = TEXT(RL_LEVEL),
    .kernels =
        {
            [RL_K_ELEMENTWISE] = RL_LEVEL_NAME(rl_kernel_elementwise),
            [RL_K_COPY] = RL_LEVEL_NAME(rl_kernel_copy),
            [RL_K_FILL] = RL_LEVEL_NAME(rl_kernel_fill),
            [RL_K_RANGE] = RL_LEVEL_NAME(rl_kernel_range),
            [RL_K_TRI] = RL_LEVEL_NAME(rl_kernel_tri),
            [RL_K_REDUCE] = RL_LEVEL_NAME(rl_kernel_reduce),
            [RL_K_GEMM] = RL_LEVEL_NAME(rl_kernel_gemm),
            [RL_K_SOFTMAX] = RL_LEVEL_NAME(rl_kernel_softmax),
            [RL_K_LAYER_NORM] = RL_LEVEL_NAME(rl_kernel_layer_norm),
            [RL_K_CROSS_ENTROPY] = RL_LEVEL_NAME(rl_kernel_cross_entropy),
            [RL_K_RANDOM] = RL_LEVEL_NAME(rl_random),
            [RL_K_OPTIM] = RL_LEVEL_NAME(rl_kernel_optim),
            [RL_K_MULTI_NORM] = RL_LEVEL_NAME(rl_kernel_multi_norm),
        },
};
