/* plan: one iteration space for several operands. See plan.h.
 *
 * The order of dimensions and the strides of a new output are those of PyTorch's TensorIterator (aten/src/ATen/TensorIterator.cpp,
 * reorder_dimensions): operands vote in order, broadcast dimensions abstain, ties keep the row-major order.
 */
#include "plan.h"

#include <string.h>

rl_status rl_plan_shape(rl_tensor *const *inputs, int n, int *ndim, int64_t *shape)
{
    *ndim = 0;
    for (int k = 0; k < n; k++) {
        if (inputs[k] == NULL)
            continue;
        RL_RETURN(rl_shape_broadcast(inputs[k]->ndim, inputs[k]->shape, ndim, shape));
    }
    return RL_OK;
}

/* Stride in elements of t along dimension d of the broadcast shape; 0 where it is broadcast. */
static int64_t stride_at(const rl_tensor *t, int d, int ndim, const int64_t *shape)
{
    int i = d - (ndim - t->ndim);
    return i < 0 || (t->shape[i] == 1 && shape[d] != 1) ? 0 : t->strides[i];
}

/* > 0: dimension a must lie outside b; < 0: it lies inside; 0: nobody cares. */
static int compare_dims(rl_tensor *const *t, int n, int a, int b, int ndim, const int64_t *shape)
{
    for (int k = 0; k < n; k++) {
        if (t[k] == NULL)
            continue;
        int64_t sa = stride_at(t[k], a, ndim, shape), sb = stride_at(t[k], b, ndim, shape);
        if (sa == 0 || sb == 0)
            continue;
        sa *= rl_tensor_itemsize(t[k]);
        sb *= rl_tensor_itemsize(t[k]);
        if (sa != sb)
            return sa < sb ? -1 : 1;
        if (shape[a] > shape[b])
            return 1;
    }
    return 0;
}

/* order[0] is the innermost dimension. True when it is the row-major order. */
static bool order_dims(rl_tensor *const *t, int n, int ndim, const int64_t *shape, int *order)
{
    bool row_major = true;
    for (int i = 0; i < ndim; i++)
        order[i] = ndim - 1 - i;
    for (int i = 1; i < ndim; i++) {
        int at = i;
        for (int j = i - 1; j >= 0; j--) {
            int c = compare_dims(t, n, order[j], order[at], ndim, shape);
            if (c < 0)
                break;
            if (c > 0) {
                int d = order[j];
                order[j] = order[at];
                order[at] = d;
                at = j;
                row_major = false;
            }
        }
    }
    return row_major;
}

enum { LAYOUT_NONE, LAYOUT_CONTIGUOUS, LAYOUT_CHANNELS_LAST, LAYOUT_STRIDES };

/* PyTorch's fast setup: operands of one shape that are all contiguous, all channels-last, or all dense with the same strides give the
 * output that layout, whatever the strides of axes of size 1. */
static int common_layout(rl_tensor *const *t, int n, int ndim, const int64_t *shape)
{
    bool contiguous = true, channels_last = ndim == 4, dense = true;
    for (int k = 0; k < n; k++) {
        if (t[k] == NULL || t[k]->ndim != ndim || memcmp(t[k]->shape, shape, (size_t)ndim * sizeof *shape) != 0)
            return LAYOUT_NONE;
        contiguous &= rl_tensor_is_contiguous(t[k]);
        channels_last = channels_last && rl_tensor_is_channels_last(t[k]);
        dense = dense && rl_tensor_is_dense(t[k]) && memcmp(t[k]->strides, t[0]->strides, (size_t)ndim * sizeof *shape) == 0;
    }
    return contiguous ? LAYOUT_CONTIGUOUS : channels_last ? LAYOUT_CHANNELS_LAST : dense ? LAYOUT_STRIDES : LAYOUT_NONE;
}

rl_status rl_plan_output(rl_tensor *const *inputs, int n, int ndim, const int64_t *shape, rl_dtype dtype, rl_device device, rl_tensor **out)
{
    static const int nhwc[] = {1, 3, 2, 0};
    int order[RL_MAX_NDIM];
    int64_t strides[RL_MAX_NDIM], s = 1, numel;
    int layout = common_layout(inputs, n, ndim, shape);
    if (layout == LAYOUT_STRIDES)
        return rl_tensor_empty_strided(ndim, shape, inputs[0]->strides, dtype, device, out);
    if (layout == LAYOUT_CHANNELS_LAST)
        memcpy(order, nhwc, sizeof nhwc);
    else if (layout == LAYOUT_CONTIGUOUS || order_dims(inputs, n, ndim, shape, order))
        return rl_tensor_empty(ndim, shape, dtype, device, out);
    RL_RETURN(rl_shape_numel(ndim, shape, &numel));
    for (int i = 0; i < ndim; i++) {
        strides[order[i]] = s;
        if (__builtin_mul_overflow(s, shape[order[i]], &s))
            return rl_fail(RL_ERR_RUNTIME, "Stride calculation overflowed for shape %s", rl_shape_text(ndim, shape));
    }
    return rl_tensor_empty_strided(ndim, shape, strides, dtype, device, out);
}

static rl_status check_overlap(rl_tensor *const *tensors, int n, int noutputs)
{
    for (int o = 0; o < noutputs; o++) {
        if (tensors[o] == NULL)
            continue;
        if (rl_tensor_overlaps_itself(tensors[o]))
            return rl_fail(RL_ERR_RUNTIME, "unsupported operation: more than one element of the written-to tensor refers to a single "
                                           "memory location. Please clone() the tensor before performing the operation.");
        for (int k = noutputs; k < n; k++)
            if (tensors[k] && rl_tensor_overlap(tensors[o], tensors[k]) == RL_OVERLAP_PARTIAL)
                return rl_fail(RL_ERR_RUNTIME, "unsupported operation: some elements of the input tensor and the written-to tensor refer "
                                               "to a single memory location. Please clone() the tensor before performing the operation.");
    }
    return RL_OK;
}

/* Can dimension i + 1 continue dimension i for every operand? */
static bool mergeable(int n, int64_t inner_size, const int64_t *inner, const int64_t *outer)
{
    for (int k = 0; k < n; k++)
        if (inner[k] * inner_size != outer[k])
            return false;
    return true;
}

rl_status rl_plan_build(rl_plan *p, rl_tensor *const *tensors, int n, int noutputs, int ndim, const int64_t *shape)
{
    int order[RL_MAX_NDIM], top = 0;
    int64_t strides[RL_PLAN_OPERANDS], merged[RL_PLAN_DIMS][RL_PLAN_OPERANDS];
    p->noperands = n;
    RL_RETURN(rl_shape_numel(ndim, shape, &p->numel));
    RL_RETURN(check_overlap(tensors, n, noutputs));
    order_dims(tensors, n, ndim, shape, order);
    for (int i = 0; i < ndim; i++) {
        int d = order[i];
        if (shape[d] == 1)
            continue;
        for (int k = 0; k < n; k++)
            strides[k] = tensors[k] ? stride_at(tensors[k], d, ndim, shape) * rl_tensor_itemsize(tensors[k]) : 0;
        if (top > 0 && mergeable(n, p->shape[top - 1], merged[top - 1], strides)) {
            p->shape[top - 1] *= shape[d];
            continue;
        }
        if (top == RL_PLAN_DIMS)
            return rl_fail(RL_ERR_NOT_IMPLEMENTED, "more than %d dimensions that cannot be merged: %s", RL_PLAN_DIMS,
                           rl_shape_text(ndim, shape));
        p->shape[top] = shape[d];
        memcpy(merged[top++], strides, sizeof strides);
    }
    if (top == 0) { /* one element, or none that needs a loop */
        p->shape[0] = 1;
        for (int k = 0; k < n; k++)
            merged[0][k] = tensors[k] ? rl_tensor_itemsize(tensors[k]) : 0;
        top = 1;
    }
    p->ndim = top;
    for (int k = 0; k < n; k++) {
        p->data[k] = tensors[k] ? rl_tensor_data(tensors[k]) : NULL;
        for (int i = 0; i < top; i++)
            p->strides[k][i] = merged[i][k];
    }
    return RL_OK;
}
