/* arrange: the elements of one tensor in another number or order: repeat, interleave, flip, roll, triangles, diagonals.
 *
 * Invariant: results are fresh memory, written through the copy kernel; what runs inside one of these operators records nothing, the
 * operator one node.
 */
#include "shape.h"

#include <string.h>

/* ---- again and again ---- */

/* repeat: out seen as [r0, s0, r1, s1, …] takes x expanded over the r's. */
static rl_status repeat(rl_tensor *x, const int64_t *times, int n, rl_tensor **out)
{
    rl_status st;
    int64_t shape[RL_MAX_NDIM], wide[2 * RL_MAX_NDIM], strides[2 * RL_MAX_NDIM];
    rl_tensor *t = NULL, *to = NULL, *from = NULL;
    rl_node *node;
    if (2 * n > RL_MAX_NDIM)
        return rl_fail(RL_ERR_NOT_IMPLEMENTED, "repeat: more than %d dimensions: %d", RL_MAX_NDIM / 2, n);
    if (n < x->ndim)
        return rl_fail(RL_ERR_RUNTIME, "Number of dimensions of repeat dims can not be smaller than number of dimensions of tensor");
    for (int i = 0; i < n; i++) {
        int d = i - (n - x->ndim);
        int64_t size = d >= 0 ? x->shape[d] : 1;
        if (__builtin_mul_overflow(size, times[i], &shape[i]))
            return rl_fail(RL_ERR_RUNTIME, "repeat: the sizes %s times %s overflow", rl_shape_text(x->ndim, x->shape),
                           rl_shape_text(n, times));
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
    rl_ints_copy(times + pad, dims->ints.v, n);
    return rl_give(repeat(x, times, n + pad, &t), t, r);
}

/* Row numbers 0 0 1 1 1 …: `counts` (int64, on the CPU) says how often each of n is taken; one count serves all. */
static rl_status interleave_index(const rl_tensor *counts, int64_t n, const rl_arg *output_size, rl_tensor **out)
{
    int64_t total = 0;
    const int64_t *count = rl_tensor_data(counts), step = counts->numel != 1;
    for (int64_t i = 0; i < n; i++) {
        if (count[i * step] < 0)
            return rl_fail(RL_ERR_RUNTIME, "repeats can not be negative");
        if (__builtin_add_overflow(total, count[i * step], &total))
            return rl_fail(RL_ERR_RUNTIME, "repeat_interleave: the repeats add up to more than 2^63 - 1");
    }
    if (output_size->given && output_size->i != total)
        return rl_fail(RL_ERR_RUNTIME, "allocated size does not match required size");
    RL_RETURN(rl_tensor_empty(1, &total, RL_I64, rl_tensor_device(counts), out));
    int64_t *at = rl_tensor_data(*out);
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = count[i * step]; k > 0; k--)
            *at++ = i;
    return RL_OK;
}

/* Every element k times: a copy of x with an expanded axis behind `axis`, seen without that axis. */
static rl_status interleave_evenly(rl_tensor *x, int axis, int64_t k, rl_tensor **out)
{
    rl_status st;
    rl_tensor *extra = NULL, *wide = NULL, *copy = NULL;
    int64_t shape[RL_MAX_NDIM + 1];
    if (k < 0)
        return rl_fail(RL_ERR_RUNTIME, "Repeats must be non-negative");
    RL_TRY(rl_unsqueeze(x, axis + 1, &extra));
    rl_ints_copy(shape, extra->shape, extra->ndim);
    shape[axis + 1] = k;
    RL_TRY(rl_expand(extra, extra->ndim, shape, &wide));
    RL_TRY(rl_clone(wide, RL_FORMAT_CONTIGUOUS, &copy));
    rl_ints_copy(shape, x->shape, x->ndim);
    if (__builtin_mul_overflow(shape[axis], k, &shape[axis]))
        RL_FAIL(RL_ERR_RUNTIME, "repeat_interleave: %lld times %lld overflows", (long long)x->shape[axis], (long long)k);
    st = rl_view(copy, x->ndim, shape, out);
fail:
    rl_tensor_release(extra);
    rl_tensor_release(wide);
    rl_tensor_release(copy);
    return st;
}

/* The repeats as int64 on the CPU, for n elements. */
static rl_status repeat_counts(rl_tensor *t, int64_t n, int axis, rl_tensor **out)
{
    rl_device cpu = {RL_DEVICE_CPU, -1};
    if (t->ndim > 1)
        return rl_fail(RL_ERR_RUNTIME, "repeats must be 0-dim or 1-dim tensor");
    if (t->numel != 1 && t->numel != n)
        return rl_fail(RL_ERR_RUNTIME, "repeats must have the same size as input along dim, but got repeats.size(0) = %lld and "
                                       "input.size(%d) = %lld",
                       (long long)t->numel, axis, (long long)n);
    if (t->dtype != RL_I64 && t->dtype != RL_I32)
        return rl_fail(RL_ERR_NOT_IMPLEMENTED, "\"repeat_interleave_cpu\" not implemented for '%s'",
                       rl_scalar_type_text((rl_dtype)t->dtype));
    return rl_to(t, RL_I64, cpu, false, RL_FORMAT_CONTIGUOUS, out);
}

/* repeat_interleave(repeats, output_size): the row numbers themselves. */
static rl_status interleave_alone(rl_call *c, rl_result *r)
{
    rl_tensor *counts = NULL, *index = NULL, *t = NULL, *x = c->args[0].t;
    rl_status st;
    if (x->ndim != 1)
        return rl_fail(RL_ERR_RUNTIME, "repeat_interleave only accept 1D vector as repeat");
    RL_TRY(repeat_counts(x, x->numel, 0, &counts));
    RL_TRY(interleave_index(counts, x->numel, &c->args[1], &index));
    st = rl_to(index, (rl_dtype)x->dtype, rl_tensor_device(x), false, RL_FORMAT_CONTIGUOUS, &t);
fail:
    rl_tensor_release(counts);
    rl_tensor_release(index);
    return rl_give(st, t, r);
}

/* repeat_interleave(int repeats, dim), (Tensor repeats, dim), (repeats) */
rl_status rl_op_repeat_interleave(rl_call *c, rl_result *r)
{
    rl_status st;
    if (c->overload == 2)
        return interleave_alone(c, r);
    rl_tensor *x = rl_tensor_retain(c->args[0].t), *counts = NULL, *index = NULL, *rows = NULL, *t = NULL;
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
    if (c->overload == 0) {
        st = interleave_evenly(x, axis, c->args[1].i, &t);
        goto fail;
    }
    RL_TRY(repeat_counts(c->args[1].t, x->shape[axis], axis, &counts));
    RL_TRY(interleave_index(counts, x->shape[axis], &c->args[3], &index));
    RL_TRY(rl_to(index, RL_I64, rl_tensor_device(x), false, RL_FORMAT_CONTIGUOUS, &rows));
    st = rl_index_select(x, axis, rows, &t);
fail:
    rl_tensor_release(counts);
    rl_tensor_release(index);
    rl_tensor_release(rows);
    rl_tensor_release(x);
    return rl_give(st, t, r);
}

/* ---- turned round ---- */
rl_status rl_flip(rl_tensor *x, const int64_t *dims, int n, rl_tensor **out)
{
    rl_status st;
    uint64_t mask;
    rl_tensor *t = NULL;
    rl_node *node;
    RL_RETURN(rl_axes_normalize(dims, n, x->ndim, false, &mask));
    RL_TRY(rl_tensor_empty_like(x, (rl_dtype)x->dtype, &t));
    rl_copy_args a = {.dst_dtype = x->dtype, .src_dtype = x->dtype, .numel = x->numel, .ndim = x->ndim ? x->ndim : 1, .shape = {1}};
    if (x->ndim > RL_ARG_DIMS)
        RL_FAIL(RL_ERR_NOT_IMPLEMENTED, "flip: more than %d dimensions: %s", RL_ARG_DIMS, rl_shape_text(x->ndim, x->shape));
    char *from = rl_tensor_data(x);
    int size = rl_tensor_itemsize(x);
    for (int i = 0; i < x->ndim; i++) { /* innermost first; flipped axes are read backwards */
        int d = x->ndim - 1 - i;
        bool turned = mask >> d & 1;
        a.shape[i] = x->shape[d];
        a.dst_strides[i] = t->strides[d] * size;
        a.src_strides[i] = (turned ? -x->strides[d] : x->strides[d]) * size;
        from += turned && x->numel ? (x->shape[d] - 1) * x->strides[d] * size : 0;
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
    if (ndims && x->ndim == 0)
        RL_FAIL(RL_ERR_INDEX, "Dimension specified as %lld but tensor has no dimensions", (long long)dims[0]);
    for (int i = 0, axis; i < ndims; i++)
        RL_TRY(rl_axis_normalize(dims[i], x->ndim, &axis));
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
        rl_ints_copy(list, shifts, n);
        rl_ints_copy(list + n, dims, ndims);
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
    rl_tri_args a = {.itemsize = (uint8_t)rl_tensor_itemsize(x), .upper = upper, .rows = x->shape[x->ndim - 2],
                     .cols = x->shape[x->ndim - 1],
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

/* zeros with x on a diagonal of the axes d1 and d2 */
static rl_status diag_embed(rl_tensor *x, int64_t offset, int64_t d1, int64_t d2, rl_tensor **out)
{
    rl_status st;
    int a, b, k = 0;
    int64_t shape[RL_MAX_NDIM + 1], n = x->ndim ? x->shape[x->ndim - 1] : 1, size;
    rl_tensor *t = NULL, *diagonal = NULL;
    rl_node *node;
    bool old = rl_grad_off();
    RL_TRY(rl_axis_normalize(d1, x->ndim + 1, &a));
    RL_TRY(rl_axis_normalize(d2, x->ndim + 1, &b));
    if (a == b)
        RL_FAIL(RL_ERR_RUNTIME, "diagonal dimensions cannot be identical %lld, %lld", (long long)d1, (long long)d2);
    if (offset == INT64_MIN || __builtin_add_overflow(n, offset < 0 ? -offset : offset, &size))
        RL_FAIL(RL_ERR_RUNTIME, "diag_embed: offset %lld is out of range", (long long)offset);
    for (int i = 0; i <= x->ndim; i++)
        shape[i] = i == a || i == b ? size : x->shape[k++];
    RL_TRY(rl_zeros(x->ndim + 1, shape, (rl_dtype)x->dtype, rl_tensor_device(x), &t));
    RL_TRY(rl_diagonal(t, offset, a, b, &diagonal));
    RL_TRY(rl_copy_raw(diagonal, x));
    rl_grad_restore(old);
    RL_TRY(rl_record(&rl_class_diag_embed, &x, 1, &t, 1, 0, &node));
    if (node)
        memcpy(node->attrs.i, (int64_t[]){offset, a, b}, 3 * sizeof(int64_t));
    *out = rl_tensor_retain(t);
fail:
    rl_grad_restore(old);
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
    rl_node *node;
    rl_status st;
    if (x->ndim == 1)
        return rl_give(diag_embed(x, c->args[1].i, 0, 1, &t), t, r);
    if (x->ndim != 2)
        return rl_fail(RL_ERR_RUNTIME, "diag(): Supports 1D or 2D tensors. Got %dD", x->ndim);
    bool old = rl_grad_off();
    st = rl_diagonal(x, c->args[1].i, 0, 1, &view);
    if (st == RL_OK)
        st = rl_clone(view, RL_FORMAT_CONTIGUOUS, &t);
    rl_tensor_release(view);
    rl_grad_restore(old);
    RL_RETURN(st);
    if ((st = rl_record(&rl_class_diagonal_copy, &x, 1, &t, 1, 0, &node)) == RL_OK && node) {
        node->attrs.i[0] = c->args[1].i;
        node->attrs.i[2] = 1;
        st = rl_node_set_list(node, x->shape, x->ndim);
    }
    return rl_give(st, t, r);
}

rl_status rl_op_diagflat(rl_call *c, rl_result *r)
{
    rl_tensor *x = c->args[0].t, *flat = NULL, *t = NULL;
    rl_status st;
    RL_TRY(rl_reshape(x, 1, &x->numel, &flat));
    st = diag_embed(flat, c->args[1].i, 0, 1, &t);
fail:
    rl_tensor_release(flat);
    return rl_give(st, t, r);
}

/* ---- a copy with one part replaced ---- */
rl_status rl_view_select(rl_tensor *x, const int64_t *i, rl_tensor **out) { return rl_select(x, i[0], i[1], out); }
rl_status rl_view_slice(rl_tensor *x, const int64_t *i, rl_tensor **out) { return rl_slice(x, i[0], i[1], i[2], i[3], out); }
rl_status rl_view_diagonal(rl_tensor *x, const int64_t *i, rl_tensor **out) { return rl_diagonal(x, i[0], i[1], i[2], out); }

rl_status rl_view_scatter(rl_tensor *x, rl_tensor *src, rl_view_fn view, const int64_t *i, const rl_node_class *cls, rl_tensor **out)
{
    rl_status st;
    rl_tensor *t = NULL, *part = NULL, *both[2] = {x, src};
    rl_node *node;
    bool old = rl_grad_off();
    RL_TRY(rl_same_device(both, 2, "scatter"));
    RL_TRY(rl_clone(x, RL_FORMAT_PRESERVE, &t));
    RL_TRY(view(t, i, &part));
    if (!rl_tensor_same_shape(part, src))
        RL_FAIL(RL_ERR_RUNTIME, "expected src to have a size equal to the slice of self. src size = %s, slice size = %s",
                rl_shape_text(src->ndim, src->shape),
                rl_shape_text(part->ndim, part->shape));
    RL_TRY(rl_copy_raw(part, src));
    rl_grad_restore(old);
    RL_TRY(rl_record(cls, both, 2, &t, 1, 0, &node));
    if (node) {
        memcpy(node->attrs.i, i, 4 * sizeof *i);
        RL_TRY(rl_node_set_list(node, src->shape, src->ndim));
    }
    *out = rl_tensor_retain(t);
fail:
    rl_grad_restore(old);
    rl_tensor_release(part);
    rl_tensor_release(t);
    return st;
}

rl_status rl_op_select_scatter(rl_call *c, rl_result *r)
{
    rl_tensor *t = NULL;
    int64_t i[4] = {c->args[2].i, c->args[3].i};
    return rl_give(rl_view_scatter(c->args[0].t, c->args[1].t, rl_view_select, i, &rl_class_select_scatter, &t), t, r);
}

rl_status rl_op_slice_scatter(rl_call *c, rl_result *r)
{
    rl_tensor *t = NULL;
    int64_t i[4] = {c->args[2].i, c->args[3].given ? c->args[3].i : 0, c->args[4].given ? c->args[4].i : INT64_MAX, c->args[5].i};
    return rl_give(rl_view_scatter(c->args[0].t, c->args[1].t, rl_view_slice, i, &rl_class_slice_scatter, &t), t, r);
}

rl_status rl_op_diagonal_scatter(rl_call *c, rl_result *r)
{
    rl_tensor *t = NULL;
    int64_t i[4] = {c->args[2].i, c->args[3].i, c->args[4].i};
    return rl_give(rl_view_scatter(c->args[0].t, c->args[1].t, rl_view_diagonal, i, &rl_class_diagonal_scatter, &t), t, r);
}
