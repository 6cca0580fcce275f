/* kernels: what the files of one instruction level give each other. Private to csrc/cpu/level.
 *
 * Every function is compiled once for each level and carries its name (rl_kernel_copy_avx2); a kernel family's function takes
 * the struct of args.h that backend.h names for it. table.c puts them into the level's table.
 */
#ifndef RL_KERNELS_H
#define RL_KERNELS_H
#include "../cpu.h"

#define RL_LEVEL_KERNEL(name) rl_status RL_LEVEL_NAME(name)(const void *args, rl_stream stream);
RL_LEVEL_KERNEL(rl_kernel_elementwise)
RL_LEVEL_KERNEL(rl_kernel_copy)
RL_LEVEL_KERNEL(rl_kernel_fill)
RL_LEVEL_KERNEL(rl_kernel_range)
RL_LEVEL_KERNEL(rl_kernel_tri)
RL_LEVEL_KERNEL(rl_kernel_reduce)
RL_LEVEL_KERNEL(rl_kernel_scan)
RL_LEVEL_KERNEL(rl_kernel_gemm)
RL_LEVEL_KERNEL(rl_kernel_index)
RL_LEVEL_KERNEL(rl_kernel_gather)
RL_LEVEL_KERNEL(rl_kernel_select)
RL_LEVEL_KERNEL(rl_kernel_nonzero)
RL_LEVEL_KERNEL(rl_kernel_sort)
RL_LEVEL_KERNEL(rl_kernel_softmax)
RL_LEVEL_KERNEL(rl_kernel_layer_norm)
RL_LEVEL_KERNEL(rl_kernel_cross_entropy)
RL_LEVEL_KERNEL(rl_random)
RL_LEVEL_KERNEL(rl_kernel_optim)
RL_LEVEL_KERNEL(rl_kernel_multi_norm)

/* convert.c: between an element type and a compute type (RL_F32, RL_F64, RL_I64, RL_U8), n elements, one rounding each.
 * load: `src` has `stride` bytes between elements (0: one value repeated), `dst` is dense. store: the other way. */
typedef void (*rl_convert_fn)(void *dst, const void *src, int64_t stride, int64_t n);
rl_convert_fn RL_LEVEL_NAME(rl_convert_load)(rl_dtype compute, rl_dtype src);
rl_convert_fn RL_LEVEL_NAME(rl_convert_store)(rl_dtype compute, rl_dtype dst);
/* The compute type through which `src` reaches `dst` with the roundings PyTorch makes. */
rl_dtype RL_LEVEL_NAME(rl_convert_via)(rl_dtype dst, rl_dtype src);

/* copy.c: memory of at least RL_STREAM_BYTES that is written once goes past the caches; dst 16-byte aligned or it is a memcpy. */
#define RL_STREAM_BYTES (8 << 20)
void RL_LEVEL_NAME(rl_stream_copy)(void *dst, const void *src, int64_t bytes);
void RL_LEVEL_NAME(rl_stream_end)(void); /* orders the streamed stores before what follows */

#endif
