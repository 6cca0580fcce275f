/* join: taking tensors apart and putting them together: split, unbind, cat, stack and their kin.
 *
 * Invariant: parts are views and are marked as outputs of one operator (their in-place rules differ); everything put together is fresh
 * memory, written part by part through rl_copy_raw. What is a combination of other operators here records nothing of its own.
 */
#include "factory.h"
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

/* Part k of take_apart, as a view without history. */
static rl_status part_view(rl_tensor *x, int axis, int64_t start, int64_t size, bool drop, rl_tensor **out)
{
    rl_geometry g;
    rl_geometry_of(x, &g);
    g.offset += start * x->strides[axis];
    g.shape[axis] = size;
    if (drop) {
        memmove(g.shape + axis, g.shape + axis + 1, (size_t)(g.ndim - axis - 1) * sizeof *g.shape);
        memmove(g.strides + axis, g.strides + axis + 1, (size_t)(g.ndim - axis - 1) * sizeof *g.strides);
        g.ndim--;
    }
    return rl_view_new(x, g.ndim, g.shape, g.strides, g.offset, out);
}

/* Views of x along an axis: parts of the given sizes one after the other, or single elements without the axis when `drop`. Outputs of one
 * node, unless there are more than a node can have: then each is a slice of its own. */
static rl_status take_apart(rl_tensor *x, int axis, int64_t n, const int64_t *sizes, bool drop, const rl_node_class *cls, rl_result *r)
{
    rl_status st;
    rl_node *node = NULL;
    int64_t start = 0;
    bool one_node = cls != NULL && n <= INT16_MAX, grad = rl_grad_needed(&x, 1);
    rl_result made = {0};
    RL_RETURN(list_new(&made, n));
    if (grad && one_node) {
        RL_TRY(rl_node_new(cls, &x, 1, (int)n, 0, &node));
        RL_TRY(rl_node_set_list(node, x->shape, x->ndim));
        node->attrs.i[0] = axis;
    }
    for (int64_t i = 0; i < n; i++) {
        int64_t size = sizes ? sizes[i] : 1;
        if (one_node)
            RL_TRY(part_view(x, axis, start, size, drop, &made.list[i]));
        else
            RL_TRY(drop ? rl_select(x, axis, start, &made.list[i]) : rl_narrow(x, axis, start, size, &made.list[i]));
        made.n++;
        start += size;
        if (one_node)
            rl_view_mark(made.list[i], RL_VIEW_MULTI_OUTPUT);
        if (node)
            RL_TRY(rl_node_attach(node, (int)i, made.list[i]));
    }
    rl_node_release(node);
    *r = made;
    return RL_OK;
fail:
    rl_node_release(node);
    for (int i = 0; i < made.n; i++)
        rl_tensor_release(made.list[i]);
    rl_pool_free(made.list, (size_t)(n ? n : 1) * sizeof *made.list);
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
        return rl_fail(RL_ERR_RUNTIME, "split_with_sizes expects split_sizes to sum exactly to %lld (input tensor's size at dimension "
                                       "%d), but got split_sizes=%s", (long long)x->shape[axis], axis, rl_shape_text(n, sizes));
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
        return rl_fail(RL_ERR_RUNTIME, "split_size can only be 0 if dimension size is 0, but got dimension size of %lld",
                       (long long)x->shape[axis]);
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

/* Into n nearly equal parts, or at `cuts` (n - 1 of them). */
static rl_status split_at(rl_tensor *x, int axis, int64_t n, const int64_t *cuts, rl_result *r)
{
    int64_t have = x->shape[axis], at = 0;
    if (n <= 0 || n > INT32_MAX)
        return rl_fail(RL_ERR_RUNTIME, "number of sections must be larger than 0, got %lld", (long long)n);
    int64_t *sizes = rl_pool_alloc((size_t)n * sizeof *sizes);
    if (sizes == NULL)
        return RL_ERR_MEMORY;
    for (int64_t i = 0; i < n; i++) {
        if (cuts) {
            int64_t end = i < n - 1 ? cuts[i] : have;
            end = end < 0 ? end + have : end;
            end = end < at ? at : end > have ? have : end;
            sizes[i] = end - at;
            at = end;
        } else
            sizes[i] = have / n + (i < have % n);
    }
    rl_status st = take_apart(x, axis, n, sizes, false, NULL, r);
    rl_pool_free(sizes, (size_t)n * sizeof *sizes);
    return st;
}

/* tensor_split(Tensor): a 0-dim tensor is a number of sections, a 1-dim tensor holds the cuts. */
static rl_status split_by_tensor(rl_tensor *x, int axis, rl_tensor *how, rl_result *r)
{
    rl_tensor *plain = NULL;
    rl_status st;
    if (rl_tensor_device(how).type != RL_DEVICE_CPU || how->dtype != RL_I64)
        return rl_fail(RL_ERR_RUNTIME, "tensor_split expected tensor_indices_or_sections to %s, but it's %s",
                       how->dtype != RL_I64 ? "have dtype of long" : "be on cpu",
                       how->dtype != RL_I64 ? rl_scalar_type_text((rl_dtype)how->dtype) : rl_device_text(rl_tensor_device(how)));
    if (how->ndim > 1)
        return rl_fail(RL_ERR_RUNTIME, "tensor_split expected tensor_indices_or_sections to be a zero-dimensional or one-dimensional "
                                       "tensor, but got a tensor with %d dims", how->ndim);
    RL_RETURN(rl_plain(how, RL_DTYPE_NONE, &plain));
    const int64_t *v = rl_tensor_data(plain);
    static const int64_t no_cuts;
    st = how->ndim == 0 ? split_at(x, axis, v[0], NULL, r) : split_at(x, axis, plain->numel + 1, plain->numel ? v : &no_cuts, r);
    rl_tensor_release(plain);
    return st;
}

/* tensor_split(sections), (indices), (tensor of either): each part a slice of its own */
rl_status rl_op_tensor_split(rl_call *c, rl_result *r)
{
    rl_tensor *x = c->args[0].t;
    int axis;
    static const int64_t no_cuts;
    const rl_arg *how = &c->args[1];
    if (x->ndim == 0)
        return rl_fail(RL_ERR_RUNTIME, "tensor_split expected at least a 1-dimensional tensor, but got a tensor with 0 dims");
    RL_RETURN(rl_axis_normalize(c->args[2].i, x->ndim, &axis));
    if (c->overload == 2)
        return split_by_tensor(x, axis, how->t, r);
    return c->overload == 0 ? split_at(x, axis, how->i, NULL, r) : split_at(x, axis, how->ints.n + 1, how->ints.n ? how->ints.v : &no_cuts,
                                                                            r);
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
    rl_ints_copy(shape, first->shape, first->ndim);
    shape[*axis] = 0;
    for (int k = 0; k < n; k++) {
        if (is_legacy_empty(v[k]))
            continue;
        if (v[k]->ndim != first->ndim)
            return rl_fail(RL_ERR_RUNTIME, "Tensors must have same number of dimensions: got %d and %d", first->ndim, v[k]->ndim);
        for (int i = 0; i < first->ndim; i++)
            if (i != *axis && v[k]->shape[i] != first->shape[i])
                return rl_fail(RL_ERR_RUNTIME, "Sizes of tensors must match except in dimension %d. Expected size %lld but got size %lld "
                                               "for tensor number %d in the list.", *axis, (long long)first->shape[i],
                                                   (long long)v[k]->shape[i], k);
        if (__builtin_add_overflow(shape[*axis], v[k]->shape[*axis], &shape[*axis]))
            return rl_fail(RL_ERR_RUNTIME, "cat: the sizes add up to more than 2^63 - 1");
    }
    return RL_OK;
}

/* The bytes of t into out[…, start : start + size, …], both contiguous and of one dtype: rows of `run` elements, one for each index before
 * the axis. */
static rl_status put_rows(rl_tensor *out, int64_t row, int64_t start, rl_tensor *t, int64_t run)
{
    int64_t size = rl_tensor_itemsize(out);
    if (t->numel == 0)
        return RL_OK;
    rl_copy_args a = {.ndim = run == t->numel ? 1 : 2, .dst_dtype = out->dtype, .src_dtype = out->dtype, .numel = t->numel,
                      .shape = {run, t->numel / run},
                      .dst = (char *)rl_tensor_data(out) + start * size, .src = rl_tensor_data(t), .dst_strides = {size, row * size},
                      .src_strides = {size, run * size}};
    return rl_launch(out, RL_K_COPY, &a);
}

/* Writes t into out[start : start + its size] along axis. `t` may lack the axis (stack). `inner` is the product of out's sizes after the
 * axis. */
static rl_status put_part(rl_tensor *out, int axis, int64_t inner, int64_t start, rl_tensor *t, bool lacks_axis)
{
    rl_tensor *part, *source = t;
    rl_geometry g;
    if (rl_tensor_is_contiguous(out) && rl_tensor_is_contiguous(t) && out->dtype == t->dtype)
        return put_rows(out, inner * out->shape[axis], start * inner, t, lacks_axis ? inner : inner * t->shape[axis]);
    rl_geometry_of(out, &g);
    g.shape[axis] = lacks_axis ? 1 : t->shape[axis];
    RL_RETURN(rl_tensor_on_storage(out->storage, out->version, g.ndim, g.shape, g.strides, g.offset + start * g.strides[axis],
                                   (rl_dtype)out->dtype, &part));
    rl_status st = RL_OK;
    if (lacks_axis) {
        for (int i = 0; i <= t->ndim; i++) {
            g.shape[i] = i == axis ? 1 : t->shape[i - (i > axis)];
            g.strides[i] = i == axis ? 0 : t->strides[i - (i > axis)];
        }
        st = rl_tensor_on_storage(t->storage, t->version, t->ndim + 1, g.shape, g.strides, t->offset, (rl_dtype)t->dtype, &source);
    }
    if (st == RL_OK)
        st = rl_copy_raw(part, source);
    if (lacks_axis && source != t)
        rl_tensor_release(source);
    rl_tensor_release(part);
    return st;
}

static int64_t product(const int64_t *v, int from, int to)
{
    int64_t n = 1;
    for (int i = from; i < to; i++)
        n *= v[i];
    return n;
}

/* Channels-last when every part is, else contiguous. */
static rl_status cat_output(rl_tensor *const *v, int n, int ndim, const int64_t *shape, rl_dtype dtype, rl_tensor **out)
{
    rl_factory f = {dtype, rl_tensor_device(v[0]), RL_FORMAT_CONTIGUOUS};
    bool channels_last = ndim == 4 || ndim == 5;
    for (int k = 0; k < n && channels_last; k++)
        channels_last = is_legacy_empty(v[k]) || (rl_tensor_is_channels_last(v[k]) && !rl_tensor_is_contiguous(v[k]));
    if (channels_last)
        f.format = ndim == 4 ? RL_FORMAT_CHANNELS_LAST : RL_FORMAT_CHANNELS_LAST_3D;
    return rl_factory_empty(&f, ndim, shape, out);
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
    int axis, ndim = 0;
    rl_dtype dtype;
    rl_tensor *t = NULL;
    if (n == 0)
        return rl_fail(RL_ERR_VALUE, "torch.cat(): expected a non-empty list of Tensors");
    RL_RETURN(rl_same_device(v, n, "cat"));
    RL_RETURN(cat_shape(v, n, dim, &axis, shape, &ndim, &dtype));
    RL_TRY(cat_output(v, n, ndim, shape, dtype, &t));
    int64_t inner = product(shape, axis + 1, ndim);
    for (int k = 0; k < n; k++) {
        if (is_legacy_empty(v[k]))
            continue;
        RL_TRY(put_part(t, axis, inner, at, v[k], false));
        at += v[k]->shape[axis];
    }
    RL_TRY(record_join(v, n, t, axis, &rl_class_cat));
    *out = t;
    return RL_OK;
fail:
    rl_tensor_release(t);
    return st;
}

rl_status rl_stack(rl_tensor *const *v, int n, int64_t dim, rl_tensor **out)
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
    int64_t inner = product(shape, axis + 1, t->ndim);
    for (int k = 0; k < n; k++)
        RL_TRY(put_part(t, axis, inner, k, v[k], true));
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
    return rl_give(rl_stack(c->args[0].tensors.v, c->args[0].tensors.n, c->args[1].i, &t), t, r);
}

/* ---- hstack, vstack, dstack, column_stack: cat of tensors that have been given enough axes ---- */

/* x with at least `n` axes: axes of size 1 are put where atleast_1d, atleast_2d and atleast_3d put them. */
static rl_status at_least(rl_tensor *x, int n, rl_tensor **out)
{
    int64_t shape[3] = {1, 1, 1};
    if (x->ndim >= n) {
        *out = rl_tensor_retain(x);
        return RL_OK;
    }
    if (x->ndim == 1)
        shape[1] = x->shape[0]; /* a row */
    for (int i = 0; i < 2 && x->ndim == 2; i++)
        shape[i] = x->shape[i];
    return rl_reshape(x, n, shape, out);
}

/* What column_stack joins: columns. */
static rl_status as_column(rl_tensor *x, rl_tensor **out)
{
    int64_t shape[2] = {x->numel, 1};
    if (x->ndim <= 1)
        return rl_reshape(x, 2, shape, out);
    *out = rl_tensor_retain(x);
    return RL_OK;
}

/* axes 1 to 3: the atleast form; 0: columns. */
static rl_status joined(rl_call *c, rl_result *r, const char *name, int axes, int dim)
{
    rl_status st = RL_OK;
    rl_tensor *const *v = c->args[0].tensors.v, *t = NULL;
    int n = c->args[0].tensors.n, done = 0;
    if (n == 0)
        return rl_fail(RL_ERR_RUNTIME, "%s expects a non-empty TensorList", name);
    rl_tensor **wide = rl_pool_alloc((size_t)n * sizeof *wide);
    if (wide == NULL)
        return RL_ERR_MEMORY;
    for (; done < n; done++)
        RL_TRY(axes ? at_least(v[done], axes, &wide[done]) : as_column(v[done], &wide[done]));
    st = rl_cat(wide, n, axes == 1 && wide[0]->ndim == 1 ? 0 : dim, &t);
fail:
    for (int k = 0; k < done; k++)
        rl_tensor_release(wide[k]);
    rl_pool_free(wide, (size_t)n * sizeof *wide);
    return rl_give(st, t, r);
}

rl_status rl_op_hstack(rl_call *c, rl_result *r) { return joined(c, r, "hstack", 1, 1); }
rl_status rl_op_vstack(rl_call *c, rl_result *r) { return joined(c, r, "vstack", 2, 0); }
rl_status rl_op_dstack(rl_call *c, rl_result *r) { return joined(c, r, "dstack", 3, 2); }
rl_status rl_op_column_stack(rl_call *c, rl_result *r) { return joined(c, r, "column_stack", 0, 1); }
