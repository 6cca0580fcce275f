/* shape: checked arithmetic of sizes and axes, and shapes as text: the pieces of every operator's prologue. Prototypes in tensor.h.
 *
 * Invariant: sizes, strides and byte counts are multiplied with overflow checks before anything is allocated; axes are normalised once,
 * signed.
 */
#include "tensor.h"

#include <stdio.h>

rl_status rl_shape_numel(int ndim, const int64_t *shape, int64_t *out)
{
    int64_t n = 1;
    bool overflow = false, empty = false;
    for (int i = 0; i < ndim; i++) {
        if (shape[i] < 0)
            return rl_fail(RL_ERR_RUNTIME, "Trying to create tensor with negative dimension %lld: %s", (long long)shape[i],
                           rl_shape_text(ndim, shape));
        empty |= shape[i] == 0;
        overflow |= __builtin_mul_overflow(n, shape[i], &n);
    }
    if (overflow && !empty)
        return rl_fail(RL_ERR_RUNTIME, "Storage size calculation overflowed with sizes=%s", rl_shape_text(ndim, shape));
    *out = empty ? 0 : n;
    return RL_OK;
}

rl_status rl_shape_contiguous_strides(int ndim, const int64_t *shape, int64_t *strides)
{
    int64_t s = 1;
    for (int i = ndim - 1; i >= 0; i--) {
        strides[i] = s;
        if (shape[i] > 1 && __builtin_mul_overflow(s, shape[i], &s))
            return rl_fail(RL_ERR_RUNTIME, "Stride calculation overflowed for shape %s", rl_shape_text(ndim, shape));
    }
    return RL_OK;
}

rl_status rl_axis_normalize(int64_t axis, int ndim, int *out)
{
    int64_t n = ndim > 0 ? ndim : 1;
    if (RL_UNLIKELY(axis < -n || axis >= n))
        return rl_fail(RL_ERR_INDEX, "Dimension out of range (expected to be in range of [%lld, %lld], but got %lld)", (long long)-n,
                       (long long)(n - 1), (long long)axis);
    *out = (int)(axis < 0 ? axis + n : axis);
    return RL_OK;
}

rl_status rl_axes_normalize(const int64_t *axes, int n, int ndim, bool all_if_empty, uint64_t *mask)
{
    *mask = 0;
    if (n == 0 && all_if_empty) {
        *mask = ndim >= 64 ? ~(uint64_t)0 : ((uint64_t)1 << ndim) - 1;
        return RL_OK;
    }
    for (int i = 0; i < n; i++) {
        int axis = 0;
        RL_RETURN(rl_axis_normalize(axes[i], ndim, &axis));
        if (*mask >> axis & 1)
            return rl_fail(RL_ERR_RUNTIME, "dim %d appears multiple times in the list of dims", axis);
        *mask |= (uint64_t)1 << axis;
    }
    return RL_OK;
}

rl_status rl_shape_broadcast(int ndim, const int64_t *shape, int *out_ndim, int64_t *out)
{
    int n = *out_ndim;
    if (ndim > n) { /* make room on the left */
        for (int i = n - 1; i >= 0; i--)
            out[i + ndim - n] = out[i];
        for (int i = 0; i < ndim - n; i++)
            out[i] = 1;
        n = *out_ndim = ndim;
    }
    for (int i = 0; i < ndim; i++) {
        int64_t a = out[i + n - ndim], b = shape[i];
        if (a == b || b == 1)
            continue;
        if (a != 1)
            return rl_fail(RL_ERR_RUNTIME,
                           "The size of tensor a (%lld) must match the size of tensor b (%lld) at non-singleton dimension %d", (long long)a,
                           (long long)b, i + n - ndim);
        out[i + n - ndim] = b;
    }
    return RL_OK;
}

const char *rl_shape_text(int ndim, const int64_t *shape)
{
    char *text = rl_text_buffer();
    size_t n = 1;
    text[0] = '[';
    for (int i = 0; i < ndim && n < RL_TEXT_BYTES - 24; i++)
        n += (size_t)snprintf(text + n, RL_TEXT_BYTES - n, i ? ", %lld" : "%lld", (long long)shape[i]);
    text[n] = ']';
    text[n + 1] = 0;
    return text;
}
