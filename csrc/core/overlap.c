/* overlap: what memory a tensor reaches: dense, channels-last, overlapping itself or another. Prototypes in tensor.h.
 *
 * Why conservative: exact overlap of strided sets is a number problem; like PyTorch, "maybe" counts as no except where it is certain.
 */
#include "tensor.h"

/* Axes of size > 1 by rising stride, in order[]; their number. Insertion sort: few axes. */
static int axes_by_stride(const rl_tensor *t, int *order)
{
    int n = 0;
    for (int i = 0; i < t->ndim; i++) {
        if (t->shape[i] <= 1)
            continue;
        int j = n++;
        for (; j > 0 && t->strides[order[j - 1]] > t->strides[i]; j--)
            order[j] = order[j - 1];
        order[j] = i;
    }
    return n;
}

bool rl_tensor_is_dense(const rl_tensor *t)
{
    int order[RL_MAX_NDIM];
    if (rl_tensor_is_contiguous(t))
        return true;
    int n = axes_by_stride(t, order);
    int64_t expected = 1;
    for (int i = 0; i < n; i++) {
        if (t->strides[order[i]] != expected)
            return false;
        expected *= t->shape[order[i]];
    }
    return true;
}

bool rl_tensor_is_channels_last(const rl_tensor *t)
{
    static const int order4[] = {1, 3, 2, 0}, order5[] = {1, 4, 3, 2, 0};
    if (t->ndim != 4 && t->ndim != 5)
        return false;
    const int *order = t->ndim == 4 ? order4 : order5;
    int64_t expected = 1;
    for (int i = 0; i < t->ndim; i++) {
        int d = order[i];
        if (t->shape[d] == 1)
            continue;
        if (t->strides[d] != expected)
            return false;
        expected *= t->shape[d];
    }
    return true;
}

bool rl_tensor_overlaps_itself(const rl_tensor *t)
{
    if (rl_tensor_is_contiguous(t) || t->numel <= 1)
        return false;
    for (int i = 0; i < t->ndim; i++)
        if (t->shape[i] > 1 && t->strides[i] == 0)
            return true;
    return false;
}

static void span_of(const rl_tensor *t, const char **begin, const char **end)
{
    int64_t last = 0;
    for (int i = 0; i < t->ndim; i++)
        last += (t->shape[i] - 1) * t->strides[i];
    *begin = rl_tensor_data(t);
    *end = *begin + (last + 1) * rl_tensor_itemsize(t);
}

rl_overlap rl_tensor_overlap(const rl_tensor *a, const rl_tensor *b)
{
    const char *a0, *a1, *b0, *b1;
    if (a == b)
        return RL_OVERLAP_FULL;
    if (a->numel == 0 || b->numel == 0 || (a->storage != b->storage && a->storage->data != b->storage->data))
        return RL_OVERLAP_NONE;
    span_of(a, &a0, &a1);
    span_of(b, &b0, &b1);
    if (a1 <= b0 || b1 <= a0)
        return RL_OVERLAP_NONE;
    if (a0 == b0 && a->dtype == b->dtype && rl_tensor_same_shape(a, b)) {
        bool same = true;
        for (int i = 0; i < a->ndim; i++)
            same &= a->shape[i] <= 1 || a->strides[i] == b->strides[i];
        if (same)
            return RL_OVERLAP_FULL;
    }
    return rl_tensor_is_dense(a) && rl_tensor_is_dense(b) ? RL_OVERLAP_PARTIAL : RL_OVERLAP_UNKNOWN;
}
