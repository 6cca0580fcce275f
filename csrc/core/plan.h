/* plan: one iteration space for several operands. Broadcast, coalesce, overlap-check and choose output strides once;
 * CPU and CUDA loops both consume it.
 *
 * Operand 0 is the output (or the first of them). Strides are in bytes, dimensions from the innermost (0) outwards,
 * reordered so that the output (else the inputs) walk memory forwards, and merged where every operand allows it.
 * Invariant: after rl_plan_build every operand has `ndim` strides, 0 where it is broadcast, and ndim <= RL_PLAN_DIMS.
 */
#ifndef RL_PLAN_H
#define RL_PLAN_H
#include "tensor.h"

#define RL_PLAN_DIMS 8
#define RL_PLAN_OPERANDS 6

typedef struct rl_plan {
    int ndim, noperands;
    int64_t numel;
    int64_t shape[RL_PLAN_DIMS];
    int64_t strides[RL_PLAN_OPERANDS][RL_PLAN_DIMS];
    char *data[RL_PLAN_OPERANDS];
} rl_plan;

/* The broadcast shape of the tensors (NULLs skipped: immediates) into shape[RL_MAX_NDIM]; the error names both shapes as PyTorch does. */
rl_status rl_plan_shape(rl_tensor *const *inputs, int n, int *ndim, int64_t *shape);
/* An output for that shape: its strides follow the inputs as PyTorch's TensorIterator chooses them. */
rl_status rl_plan_output(rl_tensor *const *inputs, int n, int ndim, const int64_t *shape, rl_dtype dtype, rl_device device,
                         rl_tensor **out);
/* tensors[0..noutputs) have exactly `shape`; the rest broadcast to it; NULL entries get stride 0 and no data. Refuses an
 * output that overlaps itself or partly overlaps an input. More than 8 dimensions after merging: an error (callers copy first). */
rl_status rl_plan_build(rl_plan *p, rl_tensor *const *tensors, int n, int noutputs, int ndim, const int64_t *shape);

#endif
