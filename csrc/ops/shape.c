/* shape: views: other sizes and strides over the same memory.
 *
 * Invariant: a view shares storage and version with its base; what a backward rule needs (the base's sizes, the axis, the start) stands in
 * the node's attributes. Every function computes the new geometry first and changes nothing when an argument is wrong.
 */
#include "shape.h"

#include <string.h>

rl_status rl_view_record(rl_tensor *x, const rl_geometry *g, const rl_node_class *cls, const rl_view_attrs *attrs, rl_tensor **out)
{
    rl_status st;
    rl_tensor *v = NULL;
    rl_node *n;
    RL_TRY(rl_view_new(x, g->ndim, g->shape, g->strides, g->offset, &v));
    RL_TRY(rl_record(cls, &x, 1, &v, 1, 0, &n));
    if (n) {
        memcpy(n->attrs.i, attrs->i, sizeof n->attrs.i);
        RL_TRY(attrs->list ? rl_node_set_list(n, attrs->list, attrs->nlist) : rl_node_set_list(n, x->shape, x->ndim));
    }
    *out = v;
    return RL_OK;
fail:
    rl_tensor_release(v);
    return st;
}

void rl_geometry_of(const rl_tensor *x, rl_geometry *g)
{
    g->ndim = x->ndim;
    g->offset = x->offset;
    rl_ints_copy(g->shape, x->shape, x->ndim);
    rl_ints_copy(g->strides, x->strides, x->ndim);
}

static const rl_view_attrs no_attrs;

/* ---- view, reshape ---- */

/* Puts the size that -1 stands for, and checks that the elements fit. */
static rl_status infer_sizes(const rl_tensor *x, int ndim, const int64_t *shape, int64_t *out)
{
    int64_t known = 1;
    int hole = -1;
    if (ndim > RL_MAX_NDIM)
        return rl_fail(RL_ERR_RUNTIME, "tensors have at most %d dimensions, got %d", RL_MAX_NDIM, ndim);
    for (int i = 0; i < ndim; i++) {
        out[i] = shape[i];
        if (shape[i] == -1) {
            if (hole >= 0)
                return rl_fail(RL_ERR_RUNTIME, "only one dimension can be inferred");
            hole = i;
        } else if (shape[i] < 0)
            return rl_fail(RL_ERR_RUNTIME, "invalid shape dimension %lld at index %d of shape %s", (long long)shape[i], i,
                           rl_shape_text(ndim, shape));
        else if (__builtin_mul_overflow(known, shape[i], &known))
            known = -1; /* more than any tensor has, unless a zero follows */
    }
    for (int i = 0; i < ndim; i++)
        known = shape[i] == 0 ? 0 : known;
    if (hole >= 0 && known == 0 && x->numel == 0)
        return rl_fail(RL_ERR_RUNTIME, "cannot reshape tensor of %lld elements into shape %s because the unspecified dimension size -1 "
                                       "can be any value and is ambiguous", (long long)x->numel, rl_shape_text(ndim, shape));
    if (hole >= 0 ? known <= 0 || x->numel % known != 0 : known != x->numel)
        return rl_fail(RL_ERR_RUNTIME, "shape '%s' is invalid for input of size %lld", rl_shape_text(ndim, shape), (long long)x->numel);
    if (hole >= 0)
        out[hole] = x->numel / known;
    return RL_OK;
}

/* Strides for `shape` over x's memory; false when none exist. Walks both shapes from the right, chunk of contiguous memory by chunk. */
static bool view_strides(const rl_tensor *x, int ndim, const int64_t *shape, int64_t *strides)
{
    if (x->numel == 0 || rl_tensor_is_contiguous(x))
        return rl_shape_contiguous_strides(ndim, shape, strides) == RL_OK;
    int at = ndim - 1;
    int64_t chunk = x->ndim ? x->strides[x->ndim - 1] : 1, have = 1, used = 1;
    for (int d = x->ndim - 1; d >= 0; d--) {
        have *= x->shape[d];
        if (d > 0 && (x->shape[d - 1] == 1 || x->strides[d - 1] == have * chunk))
            continue;
        while (at >= 0 && (used < have || shape[at] == 1)) {
            strides[at] = used * chunk;
            used *= shape[at--];
        }
        if (used != have)
            return false;
        if (d > 0) {
            chunk = x->strides[d - 1];
            have = used = 1;
        }
    }
    return at == -1;
}

static rl_status view_as_sizes(rl_tensor *x, int ndim, const int64_t *sizes, const rl_node_class *cls, bool *possible, rl_tensor **out)
{
    rl_geometry g;
    rl_geometry_begin(&g, ndim, x->offset);
    rl_ints_copy(g.shape, sizes, ndim);
    *possible = view_strides(x, ndim, sizes, g.strides);
    return *possible ? rl_view_record(x, &g, cls, &no_attrs, out) : RL_OK;
}

rl_status rl_view(rl_tensor *x, int ndim, const int64_t *shape, rl_tensor **out)
{
    int64_t sizes[RL_MAX_NDIM];
    bool possible;
    RL_RETURN(infer_sizes(x, ndim, shape, sizes));
    RL_RETURN(view_as_sizes(x, ndim, sizes, &rl_class_view, &possible, out));
    return possible ? RL_OK : rl_fail(RL_ERR_RUNTIME, "view size is not compatible with input tensor's size and stride (at least one "
                                                      "dimension spans across two contiguous subspaces). Use .reshape(...) instead.");
}

rl_status rl_reshape(rl_tensor *x, int ndim, const int64_t *shape, rl_tensor **out)
{
    int64_t sizes[RL_MAX_NDIM];
    bool possible;
    rl_tensor *copy;
    RL_RETURN(infer_sizes(x, ndim, shape, sizes));
    RL_RETURN(view_as_sizes(x, ndim, sizes, &rl_class_view, &possible, out));
    if (possible)
        return RL_OK;
    RL_RETURN(rl_clone(x, RL_FORMAT_CONTIGUOUS, &copy));
    rl_status st = view_as_sizes(copy, ndim, sizes, &rl_class_unsafe_view, &possible, out);
    rl_tensor_release(copy);
    return st;
}

/* The same bytes as another dtype: the last axis shrinks or grows. */
static rl_status view_as_dtype(rl_tensor *x, rl_dtype d, rl_tensor **out)
{
    int from = rl_tensor_itemsize(x), to = rl_dtype_size(d), last = x->ndim - 1;
    const char *of = rl_scalar_type_text((rl_dtype)x->dtype), *as = rl_scalar_type_text(d);
    rl_geometry g;
    rl_geometry_of(x, &g);
    if (from == to)
        return rl_tensor_on_storage(x->storage, x->version, g.ndim, g.shape, g.strides, g.offset, d, out);
    if (x->ndim == 0)
        return rl_fail(RL_ERR_RUNTIME, "self.dim() cannot be 0 to view %s as %s (different element sizes)", of, as);
    if (to > from && x->shape[last] * from % to)
        return rl_fail(RL_ERR_RUNTIME, "self.size(-1) must be divisible by %d to view %s as %s (different element sizes), but got %lld",
                       to / from, of, as,
                       (long long)x->shape[last]);
    if (x->strides[last] != 1)
        return rl_fail(RL_ERR_RUNTIME, "self.stride(-1) must be 1 to view %s as %s (different element sizes), but got %lld", of, as,
                       (long long)x->strides[last]);
    if (x->offset * from % to)
        return rl_fail(RL_ERR_RUNTIME, "self.storage_offset() must be divisible by %d to view %s as %s (different element sizes), but got "
                                       "%lld", to / from, of,
                       as, (long long)x->offset);
    for (int i = 0; i < last; i++) {
        if (x->strides[i] * from % to)
            return rl_fail(RL_ERR_RUNTIME, "self.stride(%d) must be divisible by %d to view %s as %s (different element sizes), but got "
                                           "%lld", i, to / from, of,
                           as, (long long)x->strides[i]);
        g.strides[i] = x->strides[i] * from / to;
    }
    g.shape[last] = x->shape[last] * from / to;
    g.strides[last] = 1;
    g.offset = x->offset * from / to;
    return rl_tensor_on_storage(x->storage, x->version, g.ndim, g.shape, g.strides, g.offset, d, out);
}

rl_status rl_op_view(rl_call *c, rl_result *r)
{
    rl_tensor *x = c->args[0].t, *t = NULL;
    if (c->overload == 1)
        return rl_give(view_as_dtype(x, c->args[1].dtype, &t), t, r);
    return rl_give(rl_view(x, c->args[1].ints.n, c->args[1].ints.v, &t), t, r);
}

rl_status rl_op_reshape(rl_call *c, rl_result *r)
{
    rl_tensor *t = NULL;
    return rl_give(rl_reshape(c->args[0].t, c->args[1].ints.n, c->args[1].ints.v, &t), t, r);
}

rl_status rl_op_view_as(rl_call *c, rl_result *r)
{
    rl_tensor *t = NULL, *o = c->args[1].t;
    return rl_give(rl_view(c->args[0].t, o->ndim, o->shape, &t), t, r);
}

rl_status rl_op_reshape_as(rl_call *c, rl_result *r)
{
    rl_tensor *t = NULL, *o = c->args[1].t;
    return rl_give(rl_reshape(c->args[0].t, o->ndim, o->shape, &t), t, r);
}

rl_status rl_op_flatten(rl_call *c, rl_result *r)
{
    rl_tensor *x = c->args[0].t, *t = NULL;
    int from, to, n = 0;
    int64_t shape[RL_MAX_NDIM];
    RL_RETURN(rl_axis_normalize(c->args[1].i, x->ndim, &from));
    RL_RETURN(rl_axis_normalize(c->args[2].i, x->ndim, &to));
    if (from > to)
        return rl_fail(RL_ERR_RUNTIME, "flatten() has invalid args: start_dim cannot come after end_dim");
    if (x->ndim > 0 && from == to)
        return rl_give(RL_OK, rl_tensor_retain(x), r);
    for (int i = 0; i < from; i++)
        shape[n++] = x->shape[i];
    shape[n] = 1;
    for (int i = from; i <= to && i < x->ndim; i++)
        shape[n] *= x->shape[i];
    n++;
    for (int i = to + 1; i < x->ndim; i++)
        shape[n++] = x->shape[i];
    return rl_give(rl_reshape(x, n, shape, &t), t, r);
}

rl_status rl_op_ravel(rl_call *c, rl_result *r)
{
    rl_tensor *plain = NULL, *t = NULL;
    rl_status st;
    RL_TRY(rl_contiguous(c->args[0].t, &plain));
    st = rl_view(plain, 1, &plain->numel, &t);
fail:
    rl_tensor_release(plain);
    return rl_give(st, t, r);
}

rl_status rl_op_unflatten(rl_call *c, rl_result *r)
{
    rl_tensor *x = c->args[0].t, *t = NULL;
    const rl_arg *sizes = &c->args[2];
    int64_t shape[2 * RL_MAX_NDIM], known = 1;
    int axis, n = 0, hole = -1;
    RL_RETURN(rl_axis_normalize(c->args[1].i, x->ndim, &axis));
    if (sizes->ints.n == 0 || x->ndim == 0 || sizes->ints.n + x->ndim - 1 > RL_MAX_NDIM)
        return rl_fail(RL_ERR_RUNTIME, "unflatten: sizes must be non-empty");
    for (int i = 0; i < axis; i++)
        shape[n++] = x->shape[i];
    for (int i = 0; i < sizes->ints.n; i++) {
        int64_t s = sizes->ints.v[i];
        if (s == -1 && hole >= 0)
            return rl_fail(RL_ERR_RUNTIME, "unflatten got an unexpected error:\nonly one dimension can be inferred");
        hole = s == -1 ? n : hole;
        if (s != -1 && __builtin_mul_overflow(known, s, &known))
            known = 0;
        shape[n++] = s;
    }
    if (hole >= 0 ? known <= 0 || x->shape[axis] % known : known != x->shape[axis])
        return rl_fail(RL_ERR_RUNTIME, "unflatten: Provided sizes %s don't multiply up to the size of dim %d (%lld) in the input tensor",
                       rl_shape_text(sizes->ints.n, sizes->ints.v), axis, (long long)x->shape[axis]);
    if (hole >= 0)
        shape[hole] = x->shape[axis] / known;
    for (int i = axis + 1; i < x->ndim; i++)
        shape[n++] = x->shape[i];
    return rl_give(rl_view(x, n, shape, &t), t, r);
}

/* ---- order of axes ---- */
rl_status rl_permute(rl_tensor *x, int n, const int64_t *dims, rl_tensor **out)
{
    uint64_t mask;
    rl_geometry g;
    rl_geometry_begin(&g, x->ndim, x->offset);
    int64_t order[RL_MAX_NDIM];
    if (n != x->ndim)
        return rl_fail(RL_ERR_RUNTIME, "permute(sparse_coo): number of dimensions in the tensor input does not match the length of the "
                                       "desired ordering of dimensions i.e. input.dim() = %d is not equal to len(dims) = %d", x->ndim, n);
    if (rl_axes_normalize(dims, n, x->ndim, false, &mask) != RL_OK)
        return strstr(rl_last_message(), "multiple") ? rl_fail(RL_ERR_RUNTIME, "permute(): duplicate dims are not allowed.") : RL_ERR_INDEX;
    for (int i = 0; i < n; i++) {
        order[i] = dims[i] < 0 ? dims[i] + n : dims[i];
        g.shape[i] = x->shape[order[i]];
        g.strides[i] = x->strides[order[i]];
    }
    rl_view_attrs a = {.list = order, .nlist = n};
    return rl_view_record(x, &g, &rl_class_permute, &a, out);
}

static rl_status swap_axes(rl_tensor *x, int a, int b, const rl_node_class *cls, rl_tensor **out)
{
    rl_geometry g;
    rl_geometry_of(x, &g);
    if (x->ndim > 0) {
        g.shape[a] = x->shape[b];
        g.shape[b] = x->shape[a];
        g.strides[a] = x->strides[b];
        g.strides[b] = x->strides[a];
    }
    rl_view_attrs attrs = {.i = {a, b}};
    return rl_view_record(x, &g, cls, &attrs, out);
}

rl_status rl_transpose(rl_tensor *x, int64_t a, int64_t b, rl_tensor **out)
{
    int i, j;
    RL_RETURN(rl_axis_normalize(a, x->ndim, &i));
    RL_RETURN(rl_axis_normalize(b, x->ndim, &j));
    return swap_axes(x, i, j, &rl_class_transpose, out);
}

rl_status rl_op_permute(rl_call *c, rl_result *r)
{
    rl_tensor *t = NULL;
    return rl_give(rl_permute(c->args[0].t, c->args[1].ints.n, c->args[1].ints.v, &t), t, r);
}

rl_status rl_op_transpose(rl_call *c, rl_result *r)
{
    rl_tensor *t = NULL;
    return rl_give(rl_transpose(c->args[0].t, c->args[1].i, c->args[2].i, &t), t, r);
}

rl_status rl_op_t(rl_call *c, rl_result *r)
{
    rl_tensor *x = c->args[0].t, *t = NULL;
    if (x->ndim > 2)
        return rl_fail(RL_ERR_RUNTIME, "t() expects a tensor with <= 2 dimensions, but self is %dD", x->ndim);
    return rl_give(swap_axes(x, 0, x->ndim == 2, &rl_class_t, &t), t, r);
}

rl_status rl_op_adjoint(rl_call *c, rl_result *r)
{
    rl_tensor *t = NULL;
    if (c->args[0].t->ndim < 2)
        return rl_fail(RL_ERR_RUNTIME, "tensor.adjoint() is only supported on matrices or batches of matrices. Got %d-D tensor.",
                       c->args[0].t->ndim);
    return rl_give(rl_transpose(c->args[0].t, -2, -1, &t), t, r);
}

static rl_status movedim_axes(const rl_arg *a, int ndim, const char *which, uint64_t *mask)
{
    int axis;
    for (int i = 0; i < a->ints.n; i++)
        RL_RETURN(rl_axis_normalize(a->ints.v[i], ndim, &axis));
    if (rl_axes_normalize(a->ints.v, a->ints.n, ndim, false, mask) != RL_OK)
        return rl_fail(RL_ERR_RUNTIME, "movedim: repeated dim in `%s` (%s)", which, rl_shape_text(a->ints.n, a->ints.v));
    return RL_OK;
}

rl_status rl_op_movedim(rl_call *c, rl_result *r)
{
    rl_tensor *x = c->args[0].t, *t = NULL;
    const rl_arg *from = &c->args[1], *to = &c->args[2];
    uint64_t sources, targets;
    int64_t order[RL_MAX_NDIM];
    if (from->ints.n != to->ints.n)
        return rl_fail(RL_ERR_RUNTIME, "movedim: Invalid source or destination dims: source (%s dims) should contain the same number of "
                                       "dims as destination (%s dims)",
                       rl_shape_text(from->ints.n, from->ints.v), rl_shape_text(to->ints.n, to->ints.v));
    RL_RETURN(movedim_axes(from, x->ndim, "source", &sources));
    RL_RETURN(movedim_axes(to, x->ndim, "destination", &targets));
    int next = 0;
    for (int i = 0; i < x->ndim; i++) {
        if (targets >> i & 1)
            continue;
        while (sources >> next & 1)
            next++;
        order[i] = next++;
    }
    for (int k = 0; k < from->ints.n && x->ndim > 0; k++) {
        int a, b;
        rl_axis_normalize(from->ints.v[k], x->ndim, &a);
        rl_axis_normalize(to->ints.v[k], x->ndim, &b);
        order[b] = a;
    }
    return rl_give(rl_permute(x, x->ndim, order, &t), t, r);
}

/* ---- axes of size 1 ---- */
rl_status rl_expand(rl_tensor *x, int ndim, const int64_t *shape, rl_tensor **out)
{
    rl_geometry g;
    rl_geometry_begin(&g, ndim, x->offset);
    if (ndim < x->ndim || ndim > RL_MAX_NDIM)
        return rl_fail(RL_ERR_RUNTIME, "expand(torch.%s{%s}, size=%s): the number of sizes provided (%d) must be greater or equal to the "
                                       "number of dimensions in the tensor (%d)", rl_dtype_table[x->dtype].tensor_type,
                                           rl_shape_text(x->ndim, x->shape),
                       rl_shape_text(ndim, shape), ndim, x->ndim);
    for (int i = ndim - 1; i >= 0; i--) {
        int d = i - (ndim - x->ndim);
        int64_t size = d >= 0 ? x->shape[d] : 1, stride = d >= 0 ? x->strides[d] : i + 1 < ndim ? g.shape[i + 1] * g.strides[i + 1] : 1,
            want = shape[i];
        if (want == -1) {
            if (d < 0)
                return rl_fail(RL_ERR_RUNTIME, "The expanded size of the tensor (-1) isn't allowed in a leading, non-existing dimension %d",
                               i);
            want = size;
        }
        if (want < 0 || (want != size && size != 1))
            return rl_fail(RL_ERR_RUNTIME, "The expanded size of the tensor (%lld) must match the existing size (%lld) at non-singleton "
                                           "dimension %d.  Target sizes: %s.  Tensor sizes: %s", (long long)want, (long long)size, i,
                                               rl_shape_text(ndim, shape),
                           rl_shape_text(x->ndim, x->shape));
        g.shape[i] = want;
        g.strides[i] = want != size ? 0 : stride;
    }
    return rl_view_record(x, &g, &rl_class_expand, &no_attrs, out);
}

rl_status rl_op_expand(rl_call *c, rl_result *r)
{
    rl_tensor *t = NULL;
    return rl_give(rl_expand(c->args[0].t, c->args[1].ints.n, c->args[1].ints.v, &t), t, r);
}

rl_status rl_op_expand_as(rl_call *c, rl_result *r)
{
    rl_tensor *t = NULL, *o = c->args[1].t;
    return rl_give(rl_expand(c->args[0].t, o->ndim, o->shape, &t), t, r);
}

/* Drops the axes of `mask` that have size 1. */
static rl_status squeeze_mask(rl_tensor *x, uint64_t mask, const rl_node_class *cls, rl_tensor **out)
{
    rl_geometry g;
    rl_geometry_begin(&g, 0, x->offset);
    for (int i = 0; i < x->ndim; i++) {
        if (x->shape[i] == 1 && (mask >> i & 1))
            continue;
        g.shape[g.ndim] = x->shape[i];
        g.strides[g.ndim++] = x->strides[i];
    }
    return rl_view_record(x, &g, cls, &no_attrs, out);
}

rl_status rl_squeeze(rl_tensor *x, rl_tensor **out)
{
    return squeeze_mask(x, ~(uint64_t)0, &rl_class_squeeze, out);
}

rl_status rl_squeeze_dims(rl_tensor *x, const int64_t *dims, int n, rl_tensor **out)
{
    uint64_t mask;
    RL_RETURN(rl_axes_normalize(dims, n, x->ndim, false, &mask));
    return squeeze_mask(x, mask, n == 1 ? &rl_class_squeeze_dim : &rl_class_squeeze_dims, out);
}

rl_status rl_op_squeeze(rl_call *c, rl_result *r)
{
    rl_tensor *x = c->args[0].t, *t = NULL;
    if (c->overload == 0)
        return rl_give(rl_squeeze(x, &t), t, r);
    return rl_give(rl_squeeze_dims(x, c->args[1].ints.v, c->args[1].ints.n, &t), t, r);
}

rl_status rl_unsqueeze(rl_tensor *x, int64_t dim, rl_tensor **out)
{
    int axis;
    rl_geometry g;
    rl_geometry_begin(&g, x->ndim + 1, x->offset);
    RL_RETURN(rl_axis_normalize(dim, x->ndim + 1, &axis));
    if (g.ndim > RL_MAX_NDIM)
        return rl_fail(RL_ERR_RUNTIME, "tensors have at most %d dimensions, got %d", RL_MAX_NDIM, g.ndim);
    for (int i = 0; i < g.ndim; i++) {
        int d = i - (i > axis);
        g.shape[i] = i == axis ? 1 : x->shape[d];
        g.strides[i] = i == axis ? (axis < x->ndim ? x->shape[axis] * x->strides[axis] : 1) : x->strides[d];
    }
    return rl_view_record(x, &g, &rl_class_unsqueeze, &no_attrs, out);
}

rl_status rl_op_unsqueeze(rl_call *c, rl_result *r)
{
    rl_tensor *t = NULL;
    return rl_give(rl_unsqueeze(c->args[0].t, c->args[1].i, &t), t, r);
}

/* ---- parts of an axis ---- */
rl_status rl_select(rl_tensor *x, int64_t dim, int64_t index, rl_tensor **out)
{
    int axis;
    rl_geometry g;
    rl_geometry_begin(&g, x->ndim - 1, 0);
    if (x->ndim == 0)
        return rl_fail(RL_ERR_INDEX, "select() cannot be applied to a 0-dim tensor.");
    RL_RETURN(rl_axis_normalize(dim, x->ndim, &axis));
    int64_t size = x->shape[axis], i = index < 0 ? index + size : index;
    if (index < -size || index >= size)
        return rl_fail(RL_ERR_INDEX, "select(): index %lld out of range for tensor of size %s at dimension %d", (long long)index,
                       rl_shape_text(x->ndim, x->shape), axis);
    for (int d = 0, k = 0; d < x->ndim; d++) {
        if (d == axis)
            continue;
        g.shape[k] = x->shape[d];
        g.strides[k++] = x->strides[d];
    }
    g.offset = x->offset + i * x->strides[axis];
    rl_view_attrs a = {.i = {axis, i}};
    return rl_view_record(x, &g, &rl_class_select, &a, out);
}

rl_status rl_slice(rl_tensor *x, int64_t dim, int64_t start, int64_t end, int64_t step, rl_tensor **out)
{
    int axis;
    rl_geometry g;
    if (x->ndim == 0)
        return rl_fail(RL_ERR_INDEX, "slice() cannot be applied to a 0-dim tensor.");
    RL_RETURN(rl_axis_normalize(dim, x->ndim, &axis));
    if (step <= 0)
        return rl_fail(RL_ERR_RUNTIME, "slice step must be positive");
    int64_t size = x->shape[axis];
    start = start < 0 ? (start + size < 0 ? 0 : start + size) : start > size ? size : start;
    end = end < 0 ? end + size : end > size ? size : end;
    end = end < start ? start : end;
    rl_geometry_of(x, &g);
    g.shape[axis] = (end - start) / step + ((end - start) % step != 0);
    g.offset += start * x->strides[axis];
    if (__builtin_mul_overflow(g.strides[axis], step, &g.strides[axis]))
        g.strides[axis] = x->strides[axis]; /* a step beyond any size: at most one element is left */
    rl_view_attrs a = {.i = {axis, start, end, step}};
    return rl_view_record(x, &g, &rl_class_slice, &a, out);
}

rl_status rl_narrow(rl_tensor *x, int64_t dim, int64_t start, int64_t length, rl_tensor **out)
{
    int axis;
    if (x->ndim == 0)
        return rl_fail(RL_ERR_RUNTIME, "narrow() cannot be applied to a 0-dim tensor.");
    if (length < 0)
        return rl_fail(RL_ERR_RUNTIME, "narrow(): length must be non-negative.");
    RL_RETURN(rl_axis_normalize(dim, x->ndim, &axis));
    int64_t size = x->shape[axis];
    if (start < -size || start > size)
        return rl_fail(RL_ERR_INDEX, "start out of range (expected to be in range of [%lld, %lld], but got %lld)", (long long)-size,
                       (long long)size,
                       (long long)start);
    start += start < 0 ? size : 0;
    if (start > size - length)
        return rl_fail(RL_ERR_RUNTIME, "start (%lld) + length (%lld) exceeds dimension size (%lld).", (long long)start, (long long)length,
                       (long long)size);
    return rl_slice(x, axis, start, start + length, 1, out);
}

rl_status rl_op_select(rl_call *c, rl_result *r)
{
    rl_tensor *t = NULL;
    return rl_give(rl_select(c->args[0].t, c->args[1].i, c->args[2].i, &t), t, r);
}

rl_status rl_op_narrow(rl_call *c, rl_result *r)
{
    rl_tensor *t = NULL;
    rl_scalar start = rl_scalar_int(c->args[2].i);
    if (c->overload == 1)
        RL_RETURN(rl_item(c->args[2].t, &start));
    return rl_give(rl_narrow(c->args[0].t, c->args[1].i, rl_scalar_to_int64(start), c->args[3].i, &t), t, r);
}

rl_status rl_as_strided(rl_tensor *x, int ndim, const int64_t *shape, const int64_t *strides, int64_t offset, rl_tensor **out)
{
    rl_geometry g;
    rl_geometry_begin(&g, ndim, offset);
    int64_t list[3 * RL_MAX_NDIM + 1];
    if (ndim > RL_MAX_NDIM)
        return rl_fail(RL_ERR_RUNTIME, "tensors have at most %d dimensions, got %d", RL_MAX_NDIM, ndim);
    rl_ints_copy(g.shape, shape, ndim);
    rl_ints_copy(g.strides, strides, ndim);
    rl_ints_copy(list, x->shape, x->ndim); /* sizes and strides of the base, then strides of the view */
    rl_ints_copy(list + x->ndim, x->strides, x->ndim);
    rl_ints_copy(list + 2 * x->ndim, strides, ndim);
    rl_view_attrs a = {.i = {x->ndim, x->offset, offset}, .list = list, .nlist = 2 * x->ndim + ndim};
    return rl_view_record(x, &g, &rl_class_as_strided, &a, out);
}

rl_status rl_op_as_strided(rl_call *c, rl_result *r)
{
    rl_tensor *x = c->args[0].t, *t = NULL;
    const rl_arg *size = &c->args[1], *stride = &c->args[2];
    if (size->ints.n != stride->ints.n)
        return rl_fail(RL_ERR_RUNTIME, "mismatch in length of strides and shape");
    int64_t offset = c->args[3].given ? c->args[3].i : x->offset;
    return rl_give(rl_as_strided(x, size->ints.n, size->ints.v, stride->ints.v, offset, &t), t, r);
}

rl_status rl_diagonal(rl_tensor *x, int64_t offset, int64_t d1, int64_t d2, rl_tensor **out)
{
    int a, b;
    rl_geometry g;
    rl_geometry_begin(&g, 0, x->offset);
    RL_RETURN(rl_axis_normalize(d1, x->ndim, &a));
    RL_RETURN(rl_axis_normalize(d2, x->ndim, &b));
    if (a == b || x->ndim < 2)
        return rl_fail(RL_ERR_RUNTIME, "diagonal dimensions cannot be identical %lld, %lld", (long long)d1, (long long)d2);
    int64_t rows = x->shape[a] + (offset < 0 ? offset : 0), cols = x->shape[b] - (offset > 0 ? offset : 0), n = rows < cols ? rows : cols;
    n = n < 0 ? 0 : n;
    if (n > 0)
        g.offset += offset >= 0 ? offset * x->strides[b] : -offset * x->strides[a];
    for (int i = 0; i < x->ndim; i++)
        if (i != a && i != b) {
            g.shape[g.ndim] = x->shape[i];
            g.strides[g.ndim++] = x->strides[i];
        }
    g.shape[g.ndim] = n;
    g.strides[g.ndim++] = x->strides[a] + x->strides[b];
    rl_view_attrs attrs = {.i = {offset, a, b}};
    return rl_view_record(x, &g, &rl_class_diagonal, &attrs, out);
}

rl_status rl_op_diagonal(rl_call *c, rl_result *r)
{
    rl_tensor *t = NULL;
    return rl_give(rl_diagonal(c->args[0].t, c->args[1].i, c->args[2].i, c->args[3].i, &t), t, r);
}

rl_status rl_unfold(rl_tensor *x, int64_t dim, int64_t size, int64_t step, rl_tensor **out)
{
    int axis;
    rl_geometry g;
    RL_RETURN(rl_axis_normalize(dim, x->ndim, &axis));
    int64_t have = x->ndim ? x->shape[axis] : 1, stride = x->ndim ? x->strides[axis] : 1;
    if (size < 0)
        return rl_fail(RL_ERR_RUNTIME, "size is %lld but must be >= 0", (long long)size);
    if (size > have)
        return rl_fail(RL_ERR_RUNTIME, "maximum size for tensor at dimension %d is %lld but size is %lld", axis, (long long)have,
                       (long long)size);
    if (step <= 0)
        return rl_fail(RL_ERR_RUNTIME, "step is %lld but must be > 0", (long long)step);
    if (x->ndim >= RL_MAX_NDIM)
        return rl_fail(RL_ERR_RUNTIME, "tensors have at most %d dimensions, got %d", RL_MAX_NDIM, x->ndim + 1);
    rl_geometry_of(x, &g);
    if (x->ndim > 0) {
        g.shape[axis] = (have - size) / step + 1;
        if (__builtin_mul_overflow(stride, step, &g.strides[axis]))
            g.strides[axis] = stride;
    }
    g.shape[g.ndim] = size;
    g.strides[g.ndim++] = stride;
    rl_view_attrs a = {.i = {axis, size, step}};
    return rl_view_record(x, &g, &rl_class_unfold, &a, out);
}

rl_status rl_op_unfold(rl_call *c, rl_result *r)
{
    rl_tensor *t = NULL;
    return rl_give(rl_unfold(c->args[0].t, c->args[1].i, c->args[2].i, c->args[3].i, &t), t, r);
}

/* ---- the same elements without history ---- */
rl_status rl_detach(rl_tensor *x, rl_tensor **out)
{
    return rl_tensor_alias(x, out);
}

rl_status rl_op_alias(rl_call *c, rl_result *r)
{
    rl_tensor *t = NULL;
    rl_geometry g;
    rl_geometry_of(c->args[0].t, &g);
    return rl_give(rl_view_record(c->args[0].t, &g, &rl_class_alias, &no_attrs, &t), t, r);
}

/* t_, transpose_, squeeze_, unsqueeze_: x takes the geometry and the history of its own view. */
rl_status rl_view_become(rl_tensor *x, const char *name, const char *node_name, rl_op_fn form, rl_call *c, rl_result *r)
{
    rl_status st;
    rl_result made = {0};
    RL_RETURN(rl_inplace_check(x, name));
    RL_TRY(form(c, &made));
    rl_tensor *v = made.t[0];
    RL_TRY(rl_tensor_set_geometry(x, v->ndim, v->shape, v->strides, v->offset));
    if (v->grad_fn)
        v->grad_fn->name = node_name;
    RL_TRY(rl_inplace_rebase(x, v->grad_fn, v->output_nr));
    r->t[r->n++] = rl_tensor_retain(x);
fail:
    rl_result_clear(&made);
    return st;
}

#define IN_PLACE(name, node_name) \
    rl_status rl_op_##name##_(rl_call *c, rl_result *r) { return rl_view_become(c->args[0].t, #name, node_name, rl_op_##name, c, r); }
IN_PLACE(t, "TBackward1")
IN_PLACE(transpose, "TransposeBackward1")
IN_PLACE(squeeze, "SqueezeBackward3")
IN_PLACE(unsqueeze, "UnsqueezeBackward1")
IN_PLACE(as_strided, "AsStridedBackward1")
