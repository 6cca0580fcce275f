/* join: taking tensors apart and putting them together: split, unbind, cat, stack, repeat, flip, roll, triangles, diagonals.
 *
 * Invariant: parts are views and are marked as outputs of one operator (their in-place rules differ); everything put together is fresh memory, written
 * part by part through rl_copy_raw. What is a combination of other operators here records nothing of its own.
 */
#include "shape.h"

#include <string.h>

/* ---- apart ---- */
static rl_status list_new(rl_result *r, int64_t n)
{
    r->is_list = true;
    r->n = 0;
    r->list = rl_pool_alloc((size_t)(n ? n : 1) * sizeof *r->list);
    return r->list ? RL_OK : RL_ERR_MEMORY;
}

/* Views of x along an axis: parts [starts[i], starts[i] + sizes[i]), or single elements without the axis when `drop`. */
static rl_status take_apart(rl_tensor *x, int axis, int64_t n, const int64_t *sizes, bool drop, const rl_node_class *cls, rl_result *r)
{
    rl_status st;
    rl_node *node = NULL;
    int64_t start = 0;
    if (n > INT16_MAX)
        return rl_fail(RL_ERR_NOT_IMPLEMENTED, "more than %d parts of one tensor: %lld", INT16_MAX, (long long)n);
    rl_result made = {0};
    RL_RETURN(list_new(&made, n));
    if (rl_grad_needed(&x, 1)) {
        RL_TRY(rl_node_new(cls, &x, 1, (int)n, 0, &node));
        RL_TRY(rl_node_set_list(node, x->shape, x->ndim));
        node->attrs.i[0] = axis;
    }
    for (int64_t i = 0; i < n; i++) {
        rl_geometry g;
        rl_geometry_of(x, &g);
        g.offset += start * x->strides[axis];
        g.shape[axis] = sizes ? sizes[i] : 1;
        start += g.shape[axis];
        if (drop) {
            memmove(g.shape + axis, g.shape + axis + 1, (size_t)(g.ndim - axis - 1) * sizeof *g.shape);
            memmove(g.strides + axis, g.strides + axis + 1, (size_t)(g.ndim - axis - 1) * sizeof *g.strides);
            g.ndim--;
        }
        RL_TRY(rl_view_new(x, g.ndim, g.shape, g.strides, g.offset, &made.list[i]));
        made.n++;
        rl_view_mark(made.list[i], RL_VIEW_MULTI_OUTPUT);
        if (node)
            RL_TRY(rl_node_attach(node, (int)i, made.list[i]));
    }
    rl_node_release(node);
    *r = made;
    return RL_OK;
fail:
    rl_node_release(node);
    rl_result_clear(&made);
    return st;
}

rl_status rl_op_unbind(rl_call *c, rl_result *r)
{
    rl_tensor *x = c->args[0].t;
    int axis;
    if (x->ndim == 0)
        return rl_fail(RL_ERR_INDEX, "Dimension specified as %lld but tensor has no dimensions", (long long)c->args[1].i);
    RL_RETURN(rl_axis_normalize(c->args[1].i, x->ndim, &axis));
    return take_apart(x, axis, x->shape[axis], NULL, true, &rl_class_unbind, r);
}

static rl_status split_sizes(rl_tensor *x, int axis, const int64_t *sizes, int n, rl_result *r)
{
    int64_t total = 0;
    for (int i = 0; i < n; i++) {
        if (sizes[i] < 0)
            return rl_fail(RL_ERR_RUNTIME, "split_with_sizes expects split_sizes have only non-negative entries, but got split_sizes=%s",
                           rl_shape_text(n, sizes));
        if (__builtin_add_overflow(total, sizes[i], &total))
            total = -1;
    }
    if (total != x->shape[axis])
        return rl_fail(RL_ERR_RUNTIME, "split_with_sizes expects split_sizes to sum exactly to %lld (input tensor's size at dimension %d), but got "
                                       "split_sizes=%s", (long long)x->shape[axis], axis, rl_shape_text(n, sizes));
    return take_apart(x, axis, n, sizes, false, &rl_class_split_sizes, r);
}

/* Parts of `size`, the last one shorter. */
static rl_status split_evenly(rl_tensor *x, int axis, int64_t size, rl_result *r)
{
    int64_t have = x->shape[axis], n = size > 0 && have > 0 ? (have - 1) / size + 1 : 1;
    int64_t *sizes = rl_pool_alloc((size_t)n * sizeof *sizes);
    if (sizes == NULL)
        return RL_ERR_MEMORY;
    for (int64_t i = 0; i < n; i++)
        sizes[i] = i < n - 1 ? size : have - (n - 1) * size;
    rl_status st = take_apart(x, axis, n, sizes, false, &rl_class_split, r);
    rl_pool_free(sizes, (size_t)n * sizeof *sizes);
    return st;
}

static rl_status split_axis(const rl_tensor *x, int64_t dim, const char *op, int *axis)
{
    if (x->ndim == 0)
        return rl_fail(RL_ERR_RUNTIME, "%s expects at least a 1-dimensional tensor", op);
    return rl_axis_normalize(dim, x->ndim, axis);
}

rl_status rl_op_split(rl_call *c, rl_result *r)
{
    rl_tensor *x = c->args[0].t;
    int axis;
    RL_RETURN(split_axis(x, c->args[2].i, "split", &axis));
    if (c->overload == 1)
        return split_sizes(x, axis, c->args[1].ints.v, c->args[1].ints.n, r);
    int64_t size = c->args[1].i;
    if (size < 0)
        return rl_fail(RL_ERR_RUNTIME, "split expects split_size be non-negative, but got split_size=%lld", (long long)size);
    if (size == 0 && x->shape[axis] != 0)
        return rl_fail(RL_ERR_RUNTIME, "split_size can only be 0 if dimension size is 0, but got dimension size of %lld", (long long)x->shape[axis]);
    return split_evenly(x, axis, size, r);
}

rl_status rl_op_split_with_sizes(rl_call *c, rl_result *r)
{
    int axis;
    RL_RETURN(split_axis(c->args[0].t, c->args[2].i, "split_with_sizes", &axis));
    return split_sizes(c->args[0].t, axis, c->args[1].ints.v, c->args[1].ints.n, r);
}

rl_status rl_op_chunk(rl_call *c, rl_result *r)
{
    rl_tensor *x = c->args[0].t;
    int axis;
    int64_t n = c->args[1].i;
    RL_RETURN(split_axis(x, c->args[2].i, "chunk", &axis));
    if (n <= 0)
        return rl_fail(RL_ERR_RUNTIME, "chunk expects `chunks` to be greater than 0, got: %lld", (long long)n);
    int64_t have = x->shape[axis], size = have / n + (have % n != 0);
    return split_evenly(x, axis, size, r);
}

/* tensor_split(sections) and tensor_split(indices) */
rl_status rl_op_tensor_split(rl_call *c, rl_result *r)
{
    rl_tensor *x = c->args[0].t;
    int axis;
    int64_t n = c->overload == 0 ? c->args[1].i : c->args[1].ints.n + 1;
    RL_RETURN(split_axis(x, c->args[2].i, "tensor_split", &axis));
    if (n <= 0 || n > INT16_MAX)
        return rl_fail(RL_ERR_RUNTIME, "number of sections must be larger than 0, got %lld", (long long)n);
    int64_t have = x->shape[axis], at = 0, *sizes = rl_pool_alloc((size_t)n * sizeof *sizes);
    if (sizes == NULL)
        return RL_ERR_MEMORY;
    for (int64_t i = 0; i < n; i++) {
        if (c->overload == 0)
            sizes[i] = have / n + (i < have % n);
        else {
            int64_t end = i < n - 1 ? c->args[1].ints.v[i] : have;
            end = end < 0 ? end + have : end;
            end = end < at ? at : end > have ? have : end;
            sizes[i] = end - at;
            at = end;
        }
    }
    rl_status st = take_apart(x, axis, n, sizes, false, &rl_class_split_sizes, r);
    rl_pool_free(sizes, (size_t)n * sizeof *sizes);
    return st;
}

/* ---- together ---- */

/* A one-dimensional empty tensor is skipped by cat, as in PyTorch. */
static bool is_legacy_empty(const rl_tensor *t)
{
    return t->ndim == 1 && t->shape[0] == 0;
}

static rl_status cat_shape(rl_tensor *const *v, int n, int64_t dim, int *axis, int64_t *shape, int *ndim, rl_dtype *dtype)
{
    const rl_tensor *first = NULL;
    *dtype = (rl_dtype)v[0]->dtype;
    for (int k = 0; k < n; k++) {
        *dtype = rl_dtype_promote(*dtype, (rl_dtype)v[k]->dtype);
        if (v[k]->ndim == 0)
            return rl_fail(RL_ERR_RUNTIME, "zero-dimensional tensor (at position %d) cannot be concatenated", k);
        if (!is_legacy_empty(v[k]) && first == NULL)
            first = v[k];
    }
    first = first ? first : v[0];
    *ndim = first->ndim;
    RL_RETURN(rl_axis_normalize(dim, first->ndim, axis));
    memcpy(shape, first->shape, (size_t)first->ndim * sizeof *shape);
    shape[*axis] = 0;
    for (int k = 0; k < n; k++) {
        if (is_legacy_empty(v[k]))
            continue;
        if (v[k]->ndim != first->ndim)
            return rl_fail(RL_ERR_RUNTIME, "Tensors must have same number of dimensions: got %d and %d", first->ndim, v[k]->ndim);
        for (int i = 0; i < first->ndim; i++)
            if (i != *axis && v[k]->shape[i] != first->shape[i])
                return rl_fail(RL_ERR_RUNTIME, "Sizes of tensors must match except in dimension %d. Expected size %lld but got size %lld for tensor "
                                               "number %d in the list.", *axis, (long long)first->shape[i], (long long)v[k]->shape[i], k);
        if (__builtin_add_overflow(shape[*axis], v[k]->shape[*axis], &shape[*axis]))
            return rl_fail(RL_ERR_RUNTIME, "cat: the sizes add up to more than 2^63 - 1");
    }
    return RL_OK;
}

/* Writes t into out[start : start + its size] along axis. `t` may lack the axis (stack). */
static rl_status put_part(rl_tensor *out, int axis, int64_t start, rl_tensor *t, bool lacks_axis)
{
    rl_tensor *part, *source = t;
    rl_geometry g;
    int64_t shape[RL_MAX_NDIM + 1];
    rl_geometry_of(out, &g);
    g.shape[axis] = lacks_axis ? 1 : t->shape[axis];
    RL_RETURN(rl_tensor_on_storage(out->storage, out->version, g.ndim, g.shape, g.strides, g.offset + start * g.strides[axis], (rl_dtype)out->dtype, &part));
    rl_status st = RL_OK;
    if (lacks_axis) {
        int64_t strides[RL_MAX_NDIM + 1];
        for (int i = 0; i <= t->ndim; i++) {
            shape[i] = i == axis ? 1 : t->shape[i - (i > axis)];
            strides[i] = i == axis ? 0 : t->strides[i - (i > axis)];
        }
        st = rl_tensor_on_storage(t->storage, t->version, t->ndim + 1, shape, strides, t->offset, (rl_dtype)t->dtype, &source);
    }
    if (st == RL_OK)
        st = rl_copy_raw(part, source);
    if (lacks_axis && source != t)
        rl_tensor_release(source);
    rl_tensor_release(part);
    return st;
}

static rl_status record_join(rl_tensor *const *v, int n, rl_tensor *out, int axis, const rl_node_class *cls)
{
    rl_status st = RL_OK;
    rl_node *node;
    int64_t *list;
    if (!rl_dtype_is_float((rl_dtype)out->dtype) || !rl_grad_needed(v, n))
        return RL_OK;
    RL_RETURN(rl_record(cls, v, n, &out, 1, 0, &node));
    if ((list = rl_pool_alloc((size_t)n * 2 * sizeof *list)) == NULL)
        return RL_ERR_MEMORY;
    for (int k = 0; k < n; k++) { /* the part's size along the axis, and its dtype; -1: skipped */
        list[2 * k] = cls == &rl_class_cat ? (is_legacy_empty(v[k]) ? -1 : v[k]->shape[axis]) : 1;
        list[2 * k + 1] = v[k]->dtype;
    }
    node->attrs.i[0] = axis;
    st = rl_node_set_list(node, list, 2 * n);
    rl_pool_free(list, (size_t)n * 2 * sizeof *list);
    return st;
}

rl_status rl_cat(rl_tensor *const *v, int n, int64_t dim, rl_tensor **out)
{
    rl_status st;
    int64_t shape[RL_MAX_NDIM], at = 0;
    int axis, ndim;
    rl_dtype dtype;
    rl_tensor *t = NULL;
    if (n == 0)
        return rl_fail(RL_ERR_VALUE, "expected a non-empty list of Tensors");
    RL_RETURN(rl_same_device(v, n, "cat"));
    RL_RETURN(cat_shape(v, n, dim, &axis, shape, &ndim, &dtype));
    RL_TRY(rl_tensor_empty(ndim, shape, dtype, rl_tensor_device(v[0]), &t));
    for (int k = 0; k < n; k++) {
        if (is_legacy_empty(v[k]))
            continue;
        RL_TRY(put_part(t, axis, at, v[k], false));
        at += v[k]->shape[axis];
    }
    RL_TRY(record_join(v, n, t, axis, &rl_class_cat));
    *out = t;
    return RL_OK;
fail:
    rl_tensor_release(t);
    return st;
}

static rl_status stack(rl_tensor *const *v, int n, int64_t dim, rl_tensor **out)
{
    rl_status st;
    int64_t shape[RL_MAX_NDIM + 1];
    int axis;
    rl_dtype dtype;
    rl_tensor *t = NULL;
    if (n == 0)
        return rl_fail(RL_ERR_RUNTIME, "stack expects a non-empty TensorList");
    RL_RETURN(rl_same_device(v, n, "stack"));
    RL_RETURN(rl_axis_normalize(dim, v[0]->ndim + 1, &axis));
    dtype = (rl_dtype)v[0]->dtype;
    for (int k = 0; k < n; k++) {
        dtype = rl_dtype_promote(dtype, (rl_dtype)v[k]->dtype);
        if (!rl_tensor_same_shape(v[0], v[k]))
            return rl_fail(RL_ERR_RUNTIME, "stack expects each tensor to be equal size, but got %s at entry 0 and %s at entry %d",
                           rl_shape_text(v[0]->ndim, v[0]->shape), rl_shape_text(v[k]->ndim, v[k]->shape), k);
    }
    for (int i = 0; i <= v[0]->ndim; i++)
        shape[i] = i == axis ? n : v[0]->shape[i - (i > axis)];
    RL_TRY(rl_tensor_empty(v[0]->ndim + 1, shape, dtype, rl_tensor_device(v[0]), &t));
    for (int k = 0; k < n; k++)
        RL_TRY(put_part(t, axis, k, v[k], true));
    RL_TRY(record_join(v, n, t, axis, &rl_class_stack));
    *out = t;
    return RL_OK;
fail:
    rl_tensor_release(t);
    return st;
}

rl_status rl_op_cat(rl_call *c, rl_result *r)
{
    rl_tensor *t = NULL;
    return rl_give(rl_cat(c->args[0].tensors.v, c->args[0].tensors.n, c->args[1].i, &t), t, r);
}

rl_status rl_op_stack(rl_call *c, rl_result *r)
{
    rl_tensor *t = NULL;
    return rl_give(stack(c->args[0].tensors.v, c->args[0].tensors.n, c->args[1].i, &t), t, r);
}

/* ---- again and again ---- */

/* repeat: out seen as [r0, s0, r1, s1, …] takes x expanded over the r's. */
static rl_status repeat(rl_tensor *x, const int64_t *times, int n, rl_tensor **out)
{
    rl_status st;
    int64_t shape[RL_MAX_NDIM], wide[2 * RL_MAX_NDIM], strides[2 * RL_MAX_NDIM];
    rl_tensor *t = NULL, *to = NULL, *from = NULL;
    rl_node *node;
    if (n < x->ndim || 2 * n > RL_MAX_NDIM)
        return rl_fail(RL_ERR_RUNTIME, "Number of dimensions of repeat dims can not be smaller than number of dimensions of tensor");
    for (int i = 0; i < n; i++) {
        int d = i - (n - x->ndim);
        int64_t size = d >= 0 ? x->shape[d] : 1;
        if (times[i] < 0)
            return rl_fail(RL_ERR_RUNTIME, "Trying to create tensor with negative dimension %lld: %s", (long long)times[i], rl_shape_text(n, times));
        if (__builtin_mul_overflow(size, times[i], &shape[i]))
            return rl_fail(RL_ERR_RUNTIME, "repeat: the sizes %s times %s overflow", rl_shape_text(x->ndim, x->shape), rl_shape_text(n, times));
        wide[2 * i] = times[i];
        wide[2 * i + 1] = size;
        strides[2 * i] = 0;
        strides[2 * i + 1] = d >= 0 ? x->strides[d] : 0;
    }
    RL_TRY(rl_tensor_empty(n, shape, (rl_dtype)x->dtype, rl_tensor_device(x), &t));
    if (t->numel > 0) {
        RL_TRY(rl_tensor_on_storage(x->storage, x->version, 2 * n, wide, strides, x->offset, (rl_dtype)x->dtype, &from));
        RL_TRY(rl_shape_contiguous_strides(2 * n, wide, strides));
        RL_TRY(rl_tensor_on_storage(t->storage, t->version, 2 * n, wide, strides, 0, (rl_dtype)t->dtype, &to));
        RL_TRY(rl_copy_raw(to, from));
    }
    RL_TRY(rl_record(&rl_class_repeat, &x, 1, &t, 1, 0, &node));
    if (node) {
        node->attrs.i[0] = x->ndim;
        RL_TRY(rl_node_set_list(node, wide, 2 * n));
    }
    *out = rl_tensor_retain(t);
fail:
    rl_tensor_release(from);
    rl_tensor_release(to);
    rl_tensor_release(t);
    return st;
}

rl_status rl_op_repeat(rl_call *c, rl_result *r)
{
    rl_tensor *t = NULL;
    return rl_give(repeat(c->args[0].t, c->args[1].ints.v, c->args[1].ints.n, &t), t, r);
}

rl_status rl_op_tile(rl_call *c, rl_result *r)
{
    rl_tensor *x = c->args[0].t, *t = NULL;
    const rl_arg *dims = &c->args[1];
    int64_t times[RL_MAX_NDIM];
    int n = dims->ints.n, pad = x->ndim > n ? x->ndim - n : 0;
    if (n + pad > RL_MAX_NDIM)
        return rl_fail(RL_ERR_RUNTIME, "tensors have at most %d dimensions, got %d", RL_MAX_NDIM, n + pad);
    for (int i = 0; i < pad; i++)
        times[i] = 1;
    memcpy(times + pad, dims->ints.v, (size_t)n * sizeof *times);
    return rl_give(repeat(x, times, n + pad, &t), t, r);
}

/* Row numbers 0 0 1 1 1 …: how often each element along the axis is taken. */
static rl_status interleave_index(rl_tensor *x, int axis, rl_tensor *repeats, rl_tensor **out)
{
    rl_tensor *counts = NULL, *index = NULL;
    rl_status st;
    int64_t total = 0, n = x->shape[axis];
    if (repeats->dtype != RL_I64 && repeats->dtype != RL_I32)
        return rl_fail(RL_ERR_RUNTIME, "repeats has to be Long or Int tensor");
    if (repeats->ndim > 1 || (repeats->numel != 1 && repeats->numel != n))
        return rl_fail(RL_ERR_RUNTIME, "repeats must have the same size as input along dim, but got repeats.size(0) = %lld and input.size(%d) = %lld",
                       (long long)repeats->numel, axis, (long long)n);
    RL_TRY(rl_plain(repeats, RL_I64, &counts));
    const int64_t *count = rl_tensor_data(counts);
    for (int64_t i = 0; i < n; i++) {
        int64_t k = count[counts->numel == 1 ? 0 : i];
        if (k < 0 || __builtin_add_overflow(total, k, &total))
            RL_FAIL(RL_ERR_RUNTIME, "repeats can not be negative, got %lld", (long long)k);
    }
    RL_TRY(rl_tensor_empty(1, &total, RL_I64, rl_tensor_device(counts), &index));
    int64_t *at = rl_tensor_data(index);
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = count[counts->numel == 1 ? 0 : i]; k > 0; k--)
            *at++ = i;
    *out = rl_tensor_retain(index);
fail:
    rl_tensor_release(counts);
    rl_tensor_release(index);
    return st;
}

/* repeat_interleave(int repeats, dim), (Tensor repeats, dim) */
rl_status rl_op_repeat_interleave(rl_call *c, rl_result *r)
{
    rl_status st;
    rl_tensor *x = rl_tensor_retain(c->args[0].t), *index = NULL, *t = NULL, *repeats = NULL;
    int axis = 0;
    if (c->args[2].given)
        RL_TRY(rl_axis_normalize(c->args[2].i, x->ndim, &axis));
    if (!c->args[2].given || x->ndim == 0) {
        int64_t all = x->numel;
        rl_tensor *flat;
        RL_TRY(rl_reshape(x, 1, &all, &flat));
        rl_tensor_release(x);
        x = flat;
    }
    if (c->overload == 0)
        RL_TRY(rl_tensor_from_scalar(rl_scalar_int(c->args[1].i), RL_I64, rl_tensor_device(x), &repeats));
    else
        repeats = rl_tensor_retain(c->args[1].t);
    RL_TRY(interleave_index(x, axis, repeats, &index));
    st = rl_index_select(x, axis, index, &t);
fail:
    rl_tensor_release(repeats);
    rl_tensor_release(index);
    rl_tensor_release(x);
    return rl_give(st, t, r);
}

/* ---- turned round ---- */
rl_status rl_flip(rl_tensor *x, const int64_t *dims, int n, rl_tensor **out)
{
    rl_status st;
    uint64_t mask;
    rl_tensor *t = NULL, *plain = NULL, *source = x;
    rl_node *node;
    RL_RETURN(rl_axes_normalize(dims, n, x->ndim, false, &mask));
    RL_TRY(rl_tensor_empty_like(x, (rl_dtype)x->dtype, &t));
    rl_copy_args a = {.dst_dtype = x->dtype, .src_dtype = x->dtype, .numel = x->numel, .ndim = x->ndim ? x->ndim : 1, .shape = {1}};
    if (x->ndim > RL_ARG_DIMS)
        RL_FAIL(RL_ERR_NOT_IMPLEMENTED, "flip: more than %d dimensions: %s", RL_ARG_DIMS, rl_shape_text(x->ndim, x->shape));
    char *from = rl_tensor_data(source);
    int size = rl_tensor_itemsize(x);
    for (int i = 0; i < x->ndim; i++) { /* innermost first; flipped axes are read backwards */
        int d = x->ndim - 1 - i;
        bool turned = mask >> d & 1;
        a.shape[i] = x->shape[d];
        a.dst_strides[i] = t->strides[d] * size;
        a.src_strides[i] = (turned ? -source->strides[d] : source->strides[d]) * size;
        from += turned && x->numel ? (x->shape[d] - 1) * source->strides[d] * size : 0;
    }
    a.dst = rl_tensor_data(t);
    a.src = from;
    if (x->numel > 0)
        RL_TRY(rl_launch(x, RL_K_COPY, &a));
    RL_TRY(rl_record(&rl_class_flip, &x, 1, &t, 1, 0, &node));
    if (node)
        RL_TRY(rl_node_set_list(node, dims, n));
    *out = rl_tensor_retain(t);
fail:
    rl_tensor_release(plain);
    rl_tensor_release(t);
    return st;
}

rl_status rl_op_flip(rl_call *c, rl_result *r)
{
    rl_tensor *t = NULL;
    return rl_give(rl_flip(c->args[0].t, c->args[1].ints.v, c->args[1].ints.n, &t), t, r);
}

/* One axis turned by k: two copies. */
static rl_status roll_axis(rl_tensor *x, int axis, int64_t k, rl_tensor **out)
{
    rl_status st;
    int64_t n = x->shape[axis], shift = n ? (k % n + n) % n : 0;
    rl_tensor *head = NULL, *tail = NULL;
    RL_TRY(rl_slice(x, axis, n - shift, n, 1, &head));
    RL_TRY(rl_slice(x, axis, 0, n - shift, 1, &tail));
    rl_tensor *both[2] = {head, tail};
    st = rl_cat(both, 2, axis, out);
fail:
    rl_tensor_release(head);
    rl_tensor_release(tail);
    return st;
}

rl_status rl_roll(rl_tensor *x, const int64_t *shifts, int n, const int64_t *dims, int ndims, rl_tensor **out)
{
    rl_status st = RL_OK;
    rl_tensor *t = NULL, *next;
    rl_node *node;
    int64_t list[2 * RL_MAX_NDIM], flat = x->numel;
    bool old = rl_grad_off();
    if (n == 0)
        RL_FAIL(RL_ERR_RUNTIME, "`shifts` required");
    if (n > RL_MAX_NDIM || (ndims == 0 ? n != 1 : n != ndims))
        RL_FAIL(RL_ERR_RUNTIME, "shifts and dimensions must align. shifts: %d, dims:%d", n, ndims);
    if (ndims == 0)
        RL_TRY(rl_reshape(x, 1, &flat, &t));
    else
        t = rl_tensor_retain(x);
    for (int i = 0; i < n && x->numel > 0 && x->ndim > 0; i++) {
        int axis = 0;
        if (ndims)
            RL_TRY(rl_axis_normalize(dims[i], x->ndim, &axis));
        RL_TRY(roll_axis(t, axis, shifts[i], &next));
        rl_tensor_release(t);
        t = next;
    }
    RL_TRY(rl_reshape(t, x->ndim, x->shape, &next));
    rl_tensor_release(t);
    t = next;
    if (t->storage == x->storage) { /* nothing moved: still a fresh tensor */
        RL_TRY(rl_clone(x, RL_FORMAT_CONTIGUOUS, &next));
        rl_tensor_release(t);
        t = next;
    }
    rl_grad_restore(old);
    RL_TRY(rl_record(&rl_class_roll, &x, 1, &t, 1, 0, &node));
    if (node) {
        memcpy(list, shifts, (size_t)n * sizeof *list);
        memcpy(list + n, dims, (size_t)ndims * sizeof *list);
        node->attrs.i[0] = n;
        RL_TRY(rl_node_set_list(node, list, n + ndims));
    }
    *out = t;
    return RL_OK;
fail:
    rl_grad_restore(old);
    rl_tensor_release(t);
    return st;
}

rl_status rl_op_roll(rl_call *c, rl_result *r)
{
    rl_tensor *t = NULL;
    const rl_arg *shifts = &c->args[1], *dims = &c->args[2];
    return rl_give(rl_roll(c->args[0].t, shifts->ints.v, shifts->ints.n, dims->ints.v, dims->given ? dims->ints.n : 0, &t), t, r);
}

/* ---- triangles and diagonals ---- */
rl_status rl_tri(rl_tensor *x, int64_t diagonal, bool upper, rl_tensor **out)
{
    rl_status st;
    rl_tensor *t = NULL, *plain = NULL;
    rl_node *node;
    if (x->ndim < 2)
        return rl_fail(RL_ERR_RUNTIME, "%s: input tensor must have at least 2 dimensions", upper ? "triu" : "tril");
    RL_TRY(rl_plain(x, RL_DTYPE_NONE, &plain));
    RL_TRY(rl_tensor_empty(x->ndim, x->shape, (rl_dtype)x->dtype, rl_tensor_device(x), &t));
    rl_tri_args a = {.itemsize = (uint8_t)rl_tensor_itemsize(x), .upper = upper, .rows = x->shape[x->ndim - 2], .cols = x->shape[x->ndim - 1],
                     .diagonal = diagonal, .dst = rl_tensor_data(t), .src = rl_tensor_data(plain)};
    a.batch = x->numel ? x->numel / (a.rows * a.cols) : 0;
    if (x->numel)
        RL_TRY(rl_launch(x, RL_K_TRI, &a));
    RL_TRY(rl_record(upper ? &rl_class_triu : &rl_class_tril, &x, 1, &t, 1, 0, &node));
    if (node)
        node->attrs.i[0] = diagonal;
    *out = rl_tensor_retain(t);
fail:
    rl_tensor_release(plain);
    rl_tensor_release(t);
    return st;
}

rl_status rl_op_tril(rl_call *c, rl_result *r)
{
    rl_tensor *t = NULL;
    return rl_give(rl_tri(c->args[0].t, c->args[1].i, false, &t), t, r);
}

rl_status rl_op_triu(rl_call *c, rl_result *r)
{
    rl_tensor *t = NULL;
    return rl_give(rl_tri(c->args[0].t, c->args[1].i, true, &t), t, r);
}

/* zeros with x on a diagonal of its last two axes, moved to d1 and d2 */
static rl_status diag_embed(rl_tensor *x, int64_t offset, int64_t d1, int64_t d2, rl_tensor **out)
{
    rl_status st;
    int a, b, k = 0;
    int64_t shape[RL_MAX_NDIM + 1], n = x->ndim ? x->shape[x->ndim - 1] : 1, size = n + (offset < 0 ? -offset : offset);
    rl_tensor *t = NULL, *diagonal = NULL;
    RL_RETURN(rl_axis_normalize(d1, x->ndim + 1, &a));
    RL_RETURN(rl_axis_normalize(d2, x->ndim + 1, &b));
    if (a == b)
        return rl_fail(RL_ERR_RUNTIME, "diagonal dimensions cannot be identical %lld, %lld", (long long)d1, (long long)d2);
    for (int i = 0; i <= x->ndim; i++)
        shape[i] = i == a || i == b ? size : x->shape[k++];
    RL_TRY(rl_zeros(x->ndim + 1, shape, (rl_dtype)x->dtype, rl_tensor_device(x), &t));
    RL_TRY(rl_diagonal(t, offset, a, b, &diagonal));
    RL_TRY(rl_copy_(diagonal, x));
    *out = rl_tensor_retain(t);
fail:
    rl_tensor_release(diagonal);
    rl_tensor_release(t);
    return st;
}

rl_status rl_op_diag_embed(rl_call *c, rl_result *r)
{
    rl_tensor *t = NULL;
    return rl_give(diag_embed(c->args[0].t, c->args[1].i, c->args[2].i, c->args[3].i, &t), t, r);
}

rl_status rl_op_diag(rl_call *c, rl_result *r)
{
    rl_tensor *x = c->args[0].t, *t = NULL, *view = NULL;
    if (x->ndim == 1)
        return rl_give(diag_embed(x, c->args[1].i, 0, 1, &t), t, r);
    if (x->ndim != 2)
        return rl_fail(RL_ERR_RUNTIME, "diag(): Supports 1D or 2D tensors. Got %dD", x->ndim);
    RL_RETURN(rl_diagonal(x, c->args[1].i, 0, 1, &view));
    rl_status st = rl_clone(view, RL_FORMAT_CONTIGUOUS, &t);
    rl_tensor_release(view);
    return rl_give(st, t, r);
}
