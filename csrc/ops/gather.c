/* gather.c: one position for each element along one axis: gather, take_along_dim, scatter and its reductions.
 *
 * Invariant: the index is no larger than x outside of the axis (and than the source anywhere), so that positions along the axis are all
 * there is to
 * check; the kernel does it before it writes. A 0-dim tensor counts as one of 1 element.
 */
#include "gather.h"

#include <float.h>
#include <math.h>
#include <string.h>

static int dims_of(const rl_tensor *t) { return t->ndim ? t->ndim : 1; }
static int64_t size_of(const rl_tensor *t, int d) { return t->ndim ? t->shape[d] : 1; }

static rl_status check_index(const rl_tensor *x, const rl_tensor *index, const char *op)
{
    if (index->numel && index->dtype != RL_I64 && index->dtype != RL_I32)
        return rl_fail(RL_ERR_RUNTIME, "%s(): Expected dtype int32/int64 for index", op);
    if (index->numel && dims_of(x) != dims_of(index))
        return rl_fail(RL_ERR_RUNTIME, "Index tensor must have the same number of dimensions as %s tensor", strcmp(op, "gather")
                       ? "self" : "input");
    if (dims_of(x) > RL_ARG_DIMS)
        return rl_fail(RL_ERR_RUNTIME, "%s(): more than %d dimensions: %d", op, RL_ARG_DIMS, x->ndim);
    return RL_OK;
}

static void fill_args(rl_gather_args *a, const rl_tensor *x, int axis, const rl_tensor *value, const rl_tensor *index)
{
    int n = dims_of(index);
    a->dtype = x->dtype;
    a->ndim = n;
    a->dim = axis;
    a->dim_size = size_of(x, axis);
    a->x = rl_tensor_data(x);
    a->value = value ? rl_tensor_data(value) : NULL;
    a->index = rl_tensor_data(index);
    for (int d = 0; d < n; d++) {
        a->shape[d] = size_of(index, d);
        a->x_strides[d] = x->ndim ? x->strides[d] * rl_tensor_itemsize(x) : 0;
        a->value_strides[d] = value && value->ndim ? value->strides[d] * rl_tensor_itemsize(value) : 0;
        a->index_strides[d] = index->ndim ? index->strides[d] * 8 : 0;
    }
}

/* ---- gather ---- */

rl_status rl_gather(rl_tensor *x, int64_t dim, rl_tensor *index, rl_tensor **out)
{
    rl_gather_args a = {.mode = RL_GATHER_GET};
    rl_tensor *o = NULL, *wide = NULL;
    rl_node *node;
    rl_status st = RL_OK;
    int axis;
    RL_RETURN(rl_axis_normalize(dim, x->ndim, &axis));
    RL_RETURN(check_index(x, index, "gather"));
    for (int d = 0; index->numel && d < dims_of(x); d++)
        if (d != axis && size_of(index, d) > size_of(x, d))
            return rl_fail(RL_ERR_RUNTIME, "Size does not match at dimension %d expected index %s to be no larger than self %s apart "
                                           "from dimension %d", d,
                           rl_shape_text(index->ndim, index->shape), rl_shape_text(x->ndim, x->shape), axis);
    RL_TRY(rl_cast(index, RL_I64, &wide));
    RL_TRY(rl_tensor_empty(index->ndim, index->shape, (rl_dtype)x->dtype, rl_tensor_device(x), &o));
    fill_args(&a, x, axis, o, wide);
    if (o->numel > 0)
        RL_TRY(rl_launch(x, RL_K_GATHER, &a));
    RL_TRY(rl_record(&rl_class_gather, &x, 1, &o, 1, 1, &node));
    if (node) {
        node->attrs.i[0] = axis;
        RL_TRY(rl_node_save(node, 0, wide, -1));
        RL_TRY(rl_node_set_list(node, x->shape, x->ndim));
    }
    *out = o;
    o = NULL;
fail:
    rl_tensor_release(o);
    rl_tensor_release(wide);
    return st;
}

rl_status rl_op_gather(rl_call *c, rl_result *r)
{
    rl_tensor *out = NULL;
    return rl_give(rl_gather(c->args[0].t, c->args[1].i, c->args[2].t, &out), out, r);
}

/* x and indices broadcast together except along the axis. */
static rl_status along_dim(rl_tensor *x, rl_tensor *index, int axis, rl_tensor **out)
{
    int64_t shape_x[RL_MAX_NDIM], shape_i[RL_MAX_NDIM];
    rl_tensor *wide = NULL, *wide_index = NULL, *start = NULL;
    rl_status st = RL_OK;
    for (int d = 0; d < x->ndim; d++) {
        int64_t a = x->shape[d], b = index->shape[d];
        if (d != axis && a != b && a != 1 && b != 1)
            return rl_fail(RL_ERR_RUNTIME, "The size of tensor a (%lld) must match the size of tensor b (%lld) at non-singleton "
                                           "dimension %d", (long long)a,
                           (long long)b, d);
        shape_x[d] = d == axis || a != 1 ? a : b;
        shape_i[d] = d == axis || b != 1 ? b : a;
    }
    RL_TRY(rl_expand(x, x->ndim, shape_x, &wide));
    RL_TRY(rl_index_from_start(index, x->shape[axis], &start));
    RL_TRY(rl_expand(start, x->ndim, shape_i, &wide_index));
    RL_TRY(rl_gather(wide, axis, wide_index, out));
fail:
    rl_tensor_release(wide);
    rl_tensor_release(wide_index);
    rl_tensor_release(start);
    return st;
}

/* (self, indices, int? dim=None) */
rl_status rl_op_take_along_dim(rl_call *c, rl_result *r)
{
    rl_tensor *x = c->args[0].t, *index = c->args[1].t, *flat = NULL, *flat_index = NULL, *start = NULL, *out = NULL;
    rl_status st = RL_OK;
    int64_t all = -1;
    int axis;
    if (index->dtype != RL_I64 && index->dtype != RL_I32)
        return rl_fail(RL_ERR_RUNTIME, "torch.take_along_dim(): dtype of indices should be Long but got %s",
                       rl_scalar_type_text((rl_dtype)index->dtype));
    if (c->args[2].given) {
        if (x->ndim != index->ndim)
            return rl_fail(RL_ERR_RUNTIME, "torch.take_along_dim(): input and indices should have the same number of dimensions, but got "
                                           "%d dimensions for "
                           "input, and %d dimensions for indices", x->ndim, index->ndim);
        RL_RETURN(rl_axis_normalize(c->args[2].i, x->ndim, &axis));
        return rl_give(x->ndim ? along_dim(x, index, axis, &out) : rl_gather(x, 0, index, &out), out, r);
    }
    RL_TRY(rl_reshape(x, 1, &all, &flat));
    RL_TRY(rl_reshape(index, 1, &all, &flat_index));
    RL_TRY(rl_index_from_start(flat_index, x->numel, &start));
    RL_TRY(rl_gather(flat, 0, start, &out));
fail:
    rl_tensor_release(start);
    rl_tensor_release(flat);
    rl_tensor_release(flat_index);
    return rl_give(st, out, r);
}

/* ---- scatter ---- */

static rl_status check_scatter(const rl_tensor *x, int axis, const rl_tensor *index, const rl_tensor *src, const char *op)
{
    RL_RETURN(check_index(x, index, "scatter"));
    if (!index->numel)
        return RL_OK;
    if (src && src->dtype != x->dtype)
        return rl_fail(RL_ERR_RUNTIME, "%s(): Expected self.dtype to be equal to src.dtype", op);
    if (src && dims_of(src) != dims_of(index))
        return rl_fail(RL_ERR_RUNTIME, "Index tensor must have the same number of dimensions as src tensor");
    for (int d = 0; d < dims_of(x); d++) {
        bool over_x = d != axis && size_of(index, d) > size_of(x, d), over_src = src && size_of(index, d) > size_of(src, d);
        if ((over_x || over_src) && src)
            return rl_fail(RL_ERR_RUNTIME, "Expected index %s to be no larger than self %s apart from dimension %d and to be no larger "
                                           "size than src %s",
                           rl_shape_text(index->ndim, index->shape), rl_shape_text(x->ndim, x->shape), axis,
                               rl_shape_text(src->ndim, src->shape));
        if (over_x)
            return rl_fail(RL_ERR_RUNTIME, "Expected index %s to be no larger than self %s apart from dimension %d",
                           rl_shape_text(index->ndim, index->shape), rl_shape_text(x->ndim, x->shape), axis);
    }
    return RL_OK;
}

rl_status rl_scatter_raw(rl_tensor *x, int axis, rl_tensor *index, rl_tensor *src, rl_scalar value, int mode, rl_tensor **out)
{
    rl_gather_args a = {.mode = mode};
    rl_tensor *o = NULL, *wide = NULL;
    rl_status st = RL_OK;
    bool grad = rl_grad_off();
    RL_TRY(rl_cast(index, RL_I64, &wide));
    RL_TRY(rl_clone(x, RL_FORMAT_PRESERVE, &o));
    fill_args(&a, o, axis, src, wide);
    if (!src) {
        a.value_is_scalar = 1;
        if (rl_dtype_is_float((rl_dtype)x->dtype))
            a.scalar.f = rl_scalar_to_double(value);
        else
            a.scalar.i = rl_scalar_to_int64(value);
    }
    if (index->numel > 0 && o->numel == 0)
        RL_FAIL(RL_ERR_INDEX, "scatter(): index of shape %s into an empty tensor", rl_shape_text(index->ndim, index->shape));
    if (index->numel > 0)
        RL_TRY(rl_launch(x, RL_K_GATHER, &a));
    *out = o;
    o = NULL;
fail:
    rl_grad_restore(grad);
    rl_tensor_release(o);
    rl_tensor_release(wide);
    return st;
}

/* attrs: i[0] axis, i[1] what (rl_scatter_what), i[2] include_self; the list is src's shape; saved: index [x, src, out]. */
static rl_status record(const rl_node_class *cls, const char *name, rl_tensor *x, rl_tensor *src, rl_tensor *index, int axis,
                        rl_tensor *out, rl_node **node)
{
    rl_tensor *in[2] = {x, src};
    RL_RETURN(rl_record(cls, in, src ? 2 : 1, &out, 1, 4, node));
    if (!*node)
        return RL_OK;
    (*node)->name = name;
    (*node)->attrs.i[0] = axis;
    RL_RETURN(rl_node_save(*node, 0, index, -1));
    return src ? rl_node_set_list(*node, src->shape, src->ndim) : RL_OK;
}

static rl_status scatter(rl_tensor *x, int64_t dim, rl_tensor *index, rl_tensor *src, rl_scalar value, const char *op, rl_tensor **out)
{
    rl_node *node;
    rl_status st = RL_OK;
    int axis;
    bool add = strcmp(op, "scatter_add") == 0;
    RL_RETURN(rl_axis_normalize(dim, x->ndim, &axis));
    RL_RETURN(check_scatter(x, axis, index, src, op));
    RL_RETURN(rl_scatter_raw(x, axis, index, src, value, add ? RL_SCATTER_ADD : RL_SCATTER_SET, out));
    RL_TRY(record(add ? &rl_class_scatter_add : &rl_class_scatter, add ? "ScatterAddBackward0" : src ? "ScatterBackward0"
                  : "ScatterBackward1", x, src, index,
                  axis, *out, &node));
    return RL_OK;
fail:
    rl_tensor_clear(out);
    return st;
}

rl_status rl_scatter(rl_tensor *x, int64_t dim, rl_tensor *index, rl_tensor *src, rl_tensor **out)
{
    return scatter(x, dim, index, src, rl_scalar_int(0), "scatter", out);
}

rl_status rl_scatter_add(rl_tensor *x, int64_t dim, rl_tensor *index, rl_tensor *src, rl_tensor **out)
{
    return scatter(x, dim, index, src, rl_scalar_int(0), "scatter_add", out);
}

rl_status rl_op_scatter_add(rl_call *c, rl_result *r)
{
    rl_tensor *out = NULL;
    return rl_give(rl_scatter_add(c->args[0].t, c->args[1].i, c->args[2].t, c->args[3].t, &out), out, r);
}

/* Overloads: (src), (value), (src, *, reduce), (value, *, reduce). The last two have no gradient in PyTorch either. */
rl_status rl_op_scatter(rl_call *c, rl_result *r)
{
    rl_tensor *x = c->args[0].t, *index = c->args[2].t, *src = c->args[3].t, *out = NULL, *in[2] = {x, src};
    rl_status st;
    int axis, mode;
    if (c->overload < 2)
        return rl_give(scatter(x, c->args[1].i, index, src, c->args[3].s, "scatter", &out), out, r);
    const char *reduce = c->args[4].str;
    if (strcmp(reduce, "add") == 0)
        mode = RL_SCATTER_ADD;
    else if (strcmp(reduce, "multiply") == 0)
        mode = RL_SCATTER_PROD;
    else
        return rl_fail(RL_ERR_RUNTIME, "reduce argument must be either add or multiply.");
    if (rl_grad_needed(in, src ? 2 : 1))
        return rl_fail(RL_ERR_NOT_IMPLEMENTED, "scatter with reduce= has no gradient: use scatter_add or scatter_reduce");
    RL_RETURN(rl_axis_normalize(c->args[1].i, x->ndim, &axis));
    RL_RETURN(check_scatter(x, axis, index, src, "scatter"));
    st = rl_scatter_raw(x, axis, index, src, c->args[3].s, mode, &out);
    return rl_give(st, out, r);
}

/* ---- scatter_reduce ---- */

static rl_status parse_reduce(const char *name, int *what)
{
    static const char *const names[] = {"sum", "prod", "mean", "amax", "amin"};
    for (int k = 0; k < 5; k++)
        if (strcmp(name, names[k]) == 0) {
            *what = k;
            return RL_OK;
        }
    return rl_fail(RL_ERR_RUNTIME, "reduce argument must be either sum, prod, mean, amax or amin, got %s", name);
}

/* What an element that only the source fills starts from. */
static rl_scalar identity(int what, rl_dtype d)
{
    static const int64_t high[] = {1, 255, 127, 32767, INT32_MAX, INT64_MAX}, low[] = {0, 0, -128, -32768, INT32_MIN, INT64_MIN};
    if (what == RL_SCATTER_OF_PROD)
        return rl_scalar_int(1);
    if (what == RL_SCATTER_OF_AMAX)
        return rl_dtype_is_float(d) ? rl_scalar_float(-INFINITY) : rl_scalar_int(low[d]);
    if (what == RL_SCATTER_OF_AMIN)
        return rl_dtype_is_float(d) ? rl_scalar_float(INFINITY) : rl_scalar_int(high[d]);
    return rl_scalar_int(0);
}

rl_status rl_scatter_count(rl_tensor *x, int axis, rl_tensor *index, bool include_self, rl_tensor **out)
{
    rl_tensor *start = NULL, *ones = NULL, *count = NULL;
    rl_operand one = {.s = rl_scalar_int(1)};
    rl_status st = RL_OK;
    bool grad = rl_grad_off();
    RL_TRY(rl_full(x->ndim, x->shape, rl_scalar_int(include_self), (rl_dtype)x->dtype, rl_tensor_device(x), &start));
    RL_TRY(rl_full(index->ndim, index->shape, rl_scalar_int(1), (rl_dtype)x->dtype, rl_tensor_device(x), &ones));
    RL_TRY(rl_scatter_raw(start, axis, index, ones, rl_scalar_int(0), RL_SCATTER_ADD, &count));
    RL_TRY(rl_maximum(rl_operand_tensor(count), one, out));
fail:
    rl_grad_restore(grad);
    rl_tensor_release(start);
    rl_tensor_release(ones);
    rl_tensor_release(count);
    return st;
}

static rl_status reduce_raw(rl_tensor *x, int axis, rl_tensor *index, rl_tensor *src, int what, bool include_self, rl_tensor **out)
{
    static const int modes[] = {RL_SCATTER_ADD, RL_SCATTER_PROD, RL_SCATTER_ADD, RL_SCATTER_MAX, RL_SCATTER_MIN};
    rl_tensor *start = NULL, *sum = NULL, *count = NULL;
    rl_status st = RL_OK;
    if (include_self)
        start = rl_tensor_retain(x);
    else
        RL_TRY(rl_scatter_raw(x, axis, index, NULL, identity(what, (rl_dtype)x->dtype), RL_SCATTER_SET, &start));
    RL_TRY(rl_scatter_raw(start, axis, index, src, rl_scalar_int(0), modes[what], &sum));
    if (what == RL_SCATTER_OF_MEAN) {
        rl_operand a = rl_operand_tensor(sum);
        bool grad = rl_grad_off();
        st = rl_scatter_count(x, axis, index, include_self, &count);
        if (st == RL_OK)
            st = rl_dtype_is_float((rl_dtype)x->dtype) ? rl_div(a, rl_operand_tensor(count), out)
                : rl_floor_divide(a, rl_operand_tensor(count), out);
        rl_grad_restore(grad);
    } else {
        *out = rl_tensor_retain(sum);
    }
fail:
    rl_tensor_release(start);
    rl_tensor_release(sum);
    rl_tensor_release(count);
    return st;
}

rl_status rl_scatter_reduce(rl_tensor *x, int64_t dim, rl_tensor *index, rl_tensor *src, int what, bool include_self, rl_tensor **out)
{
    rl_node *node;
    rl_status st = RL_OK;
    int axis;
    RL_RETURN(rl_axis_normalize(dim, x->ndim, &axis));
    RL_RETURN(check_scatter(x, axis, index, src, "scatter_reduce"));
    RL_RETURN(reduce_raw(x, axis, index, src, what, include_self, out));
    RL_TRY(record(&rl_class_scatter_reduce, "ScatterReduceBackward0", x, src, index, axis, *out, &node));
    if (node) {
        node->attrs.i[1] = what;
        node->attrs.i[2] = include_self;
        RL_TRY(rl_node_save(node, 1, x, -1));
        RL_TRY(rl_node_save(node, 2, src, -1));
        RL_TRY(rl_node_save(node, 3, *out, 0));
    }
    return RL_OK;
fail:
    rl_tensor_clear(out);
    return st;
}

/* (self, int dim, index, src, str reduce, *, bool include_self=True) */
rl_status rl_op_scatter_reduce(rl_call *c, rl_result *r)
{
    rl_tensor *out = NULL;
    int what;
    RL_RETURN(parse_reduce(c->args[4].str, &what));
    return rl_give(rl_scatter_reduce(c->args[0].t, c->args[1].i, c->args[2].t, c->args[3].t, what, c->args[5].b, &out), out, r);
}
