/* sort.c: order along one axis: sort, argsort, msort, topk, kthvalue, median, nanmedian.
 *
 * The kernel orders the last axis of contiguous rows; another axis is moved there and back. NaN counts as the largest. Every result with
 * values has one
 * backward rule: the gradient goes to where the value came from.
 */
#include "derivs.h"

#include <string.h>

/* ---- the kernel ---- */

typedef struct order_call {
    int axis;
    int64_t k; /* how many of the axis; -1: all */
    bool descending, stable, sorted;
} order_call;

/* The axis last, contiguous. */
static rl_status axis_last(rl_tensor *x, int axis, rl_tensor **out)
{
    rl_tensor *turned = NULL;
    rl_status st = RL_OK;
    if (x->ndim == 0 || axis == x->ndim - 1)
        return rl_plain(x, RL_DTYPE_NONE, out);
    RL_TRY(rl_transpose(x, axis, -1, &turned));
    RL_TRY(rl_contiguous(turned, out));
fail:
    rl_tensor_release(turned);
    return st;
}

static rl_status axis_back(rl_tensor **t, int axis)
{
    rl_tensor *turned = NULL, *plain = NULL;
    rl_status st = RL_OK;
    if ((*t)->ndim == 0 || axis == (*t)->ndim - 1)
        return RL_OK;
    RL_TRY(rl_transpose(*t, axis, -1, &turned));
    RL_TRY(rl_contiguous(turned, &plain));
    rl_tensor_release(*t);
    *t = plain;
fail:
    rl_tensor_release(turned);
    return st;
}

/* Values and indices, unrecorded. */
static rl_status order(rl_tensor *x, const order_call *k, rl_tensor **values, rl_tensor **indices)
{
    int64_t shape[RL_MAX_NDIM], n = x->ndim ? x->shape[k->axis] : 1, count = k->k < 0 ? n : k->k;
    rl_tensor *in = NULL, *v = NULL, *i = NULL;
    rl_status st = RL_OK;
    bool grad = rl_grad_off();
    RL_TRY(axis_last(x, k->axis, &in));
    memcpy(shape, in->shape, (size_t)in->ndim * sizeof *shape);
    if (in->ndim)
        shape[in->ndim - 1] = count;
    RL_TRY(rl_tensor_empty(in->ndim, shape, (rl_dtype)x->dtype, rl_tensor_device(x), &v));
    RL_TRY(rl_tensor_empty(in->ndim, shape, RL_I64, rl_tensor_device(x), &i));
    if (v->numel > 0) {
        rl_sort_args a = {.dtype = x->dtype, .descending = k->descending, .stable = k->stable, .sorted = k->sorted,
                          .rows = v->numel / count, .n = n, .k = count};
        a.in = rl_tensor_data(in);
        a.out = rl_tensor_data(v);
        a.index = rl_tensor_data(i);
        RL_TRY(rl_launch(x, RL_K_SORT, &a));
    }
    RL_TRY(axis_back(&v, k->axis));
    RL_TRY(axis_back(&i, k->axis));
    *values = v;
    *indices = i;
    v = i = NULL;
fail:
    rl_grad_restore(grad);
    rl_tensor_release(in);
    rl_tensor_release(v);
    rl_tensor_release(i);
    return st;
}

static rl_status record(const char *name, rl_tensor *x, int axis, bool dropped, rl_tensor *values, rl_tensor *indices)
{
    rl_node *node;
    RL_RETURN(rl_record(&rl_class_sort, &x, 1, &values, 1, 1, &node));
    if (!node)
        return RL_OK;
    node->name = name;
    node->attrs.i[0] = axis;
    node->attrs.i[1] = dropped;
    RL_RETURN(rl_node_save(node, 0, indices, -1));
    return rl_node_set_list(node, x->shape, x->ndim);
}

static rl_status order_recorded(rl_tensor *x, const order_call *k, const char *name, rl_tensor **values, rl_tensor **indices)
{
    RL_RETURN(order(x, k, values, indices));
    rl_status st = record(name, x, k->axis, false, *values, *indices);
    if (st == RL_OK)
        return RL_OK;
    rl_tensor_clear(values);
    rl_tensor_clear(indices);
    return st;
}

/* ---- sort, argsort, msort, topk ---- */

/* The plain overload is (self, dim, descending), the other (self, *, stable, dim, descending). */
static rl_status sort_read(const rl_call *c, order_call *k)
{
    int at = c->overload ? 2 : 1;
    *k = (order_call){.k = -1, .descending = c->args[at + 1].b, .stable = true, .sorted = true};
    return rl_axis_normalize(c->args[at].i, c->args[0].t->ndim, &k->axis);
}

rl_status rl_op_sort(rl_call *c, rl_result *r)
{
    order_call k;
    rl_tensor *values = NULL, *indices = NULL;
    RL_RETURN(sort_read(c, &k));
    rl_status st = order_recorded(c->args[0].t, &k, "SortBackward0", &values, &indices);
    return rl_give2(st, values, indices, r);
}

rl_status rl_op_argsort(rl_call *c, rl_result *r)
{
    order_call k;
    rl_tensor *values = NULL, *indices = NULL;
    RL_RETURN(sort_read(c, &k));
    rl_status st = order(c->args[0].t, &k, &values, &indices);
    rl_tensor_release(values);
    return rl_give(st, indices, r);
}

rl_status rl_op_msort(rl_call *c, rl_result *r)
{
    order_call k = {.k = -1, .stable = true, .sorted = true};
    rl_tensor *values = NULL, *indices = NULL;
    rl_status st = order_recorded(c->args[0].t, &k, "SortBackward0", &values, &indices);
    rl_tensor_release(indices);
    return rl_give(st, values, r);
}

rl_status rl_topk(rl_tensor *x, int64_t k, int64_t dim, bool largest, bool sorted, rl_tensor **values, rl_tensor **indices)
{
    order_call how = {.k = k, .descending = largest, .stable = true, .sorted = sorted};
    RL_RETURN(rl_axis_normalize(dim, x->ndim, &how.axis));
    if (k < 0 || k > (x->ndim ? x->shape[how.axis] : 1))
        return rl_fail(RL_ERR_RUNTIME, "selected index k out of range");
    if (x->dtype == RL_BOOL)
        return rl_fail(RL_ERR_RUNTIME, "topk does not support bool dtypes on CPU");
    if (x->ndim == 0)
        how.k = -1;
    return order_recorded(x, &how, "TopkBackward0", values, indices);
}

/* (self, int k, int dim=-1, bool largest=True, bool sorted=True) */
rl_status rl_op_topk(rl_call *c, rl_result *r)
{
    rl_tensor *values = NULL, *indices = NULL;
    rl_status st = rl_topk(c->args[0].t, c->args[1].i, c->args[2].i, c->args[3].b, c->args[4].b, &values, &indices);
    return rl_give2(st, values, indices, r);
}

/* ---- one element of the order ---- */

static rl_status not_empty(const rl_tensor *x, int axis, const char *name)
{
    if (x->ndim && x->shape[axis] == 0)
        return rl_fail(RL_ERR_INDEX, "%s(): Expected reduction dim %d to have non-zero size.", name, axis);
    return RL_OK;
}

/* Takes `at` (one position a row, the axis kept) of both. */
static rl_status pick(rl_tensor **t, int axis, rl_tensor *at, bool keepdim)
{
    rl_tensor *one = NULL, *less = NULL;
    rl_status st = RL_OK;
    int64_t dim = axis;
    RL_TRY(rl_gather(*t, axis, at, &one));
    if (!keepdim && one->ndim) {
        RL_TRY(rl_squeeze_dims(one, &dim, 1, &less));
        rl_tensor_release(one);
        one = less;
        less = NULL;
    }
    rl_tensor_release(*t);
    *t = one;
    one = NULL;
fail:
    rl_tensor_release(one);
    rl_tensor_release(less);
    return st;
}

/* Where the middle stands in sorted rows. Numbers come before NaN: their count is the first NaN's position. */
static rl_status middle(rl_tensor *sorted, int axis, bool ignore_nan, rl_tensor **out)
{
    rl_tensor *number = NULL, *count = NULL, *less = NULL, *half = NULL, *some_nan = NULL;
    int64_t n = sorted->ndim ? sorted->shape[axis] : 1, dim = axis, shape[RL_MAX_NDIM];
    rl_operand size = {.s = rl_scalar_int(n)}, one = {.s = rl_scalar_int(1)}, two = {.s = rl_scalar_int(2)}, zero = {.s = rl_scalar_int(0)};
    rl_operand mid = {.s = rl_scalar_int((n - 1) / 2)};
    rl_status st = RL_OK;
    if (!rl_dtype_is_float((rl_dtype)sorted->dtype) || sorted->ndim == 0) {
        memcpy(shape, sorted->shape, (size_t)sorted->ndim * sizeof *shape);
        if (sorted->ndim)
            shape[axis] = 1;
        return rl_full(sorted->ndim, shape, mid.s, RL_I64, rl_tensor_device(sorted), out);
    }
    RL_TRY(rl_eq(rl_operand_tensor(sorted), rl_operand_tensor(sorted), &number));
    RL_TRY(rl_sum(number, &dim, 1, true, RL_I64, &count));
    if (ignore_nan) {
        RL_TRY(rl_sub(rl_operand_tensor(count), one, &less));
        RL_TRY(rl_floor_divide(rl_operand_tensor(less), two, &half));
        RL_TRY(rl_maximum(rl_operand_tensor(half), zero, out));
    } else {
        RL_TRY(rl_lt(rl_operand_tensor(count), size, &some_nan));
        RL_TRY(rl_where(rl_operand_tensor(some_nan), rl_operand_tensor(count), mid, out));
    }
fail:
    rl_tensor_release(number);
    rl_tensor_release(count);
    rl_tensor_release(less);
    rl_tensor_release(half);
    rl_tensor_release(some_nan);
    return st;
}

/* The element of order `nth` (a median when negative), unrecorded. */
static rl_status nth_element(rl_tensor *x, int axis, int64_t nth, bool ignore_nan, bool keepdim, rl_tensor **values, rl_tensor **indices)
{
    order_call k = {.axis = axis, .k = -1, .stable = true, .sorted = true};
    rl_tensor *at = NULL, *v = NULL, *i = NULL;
    int64_t shape[RL_MAX_NDIM];
    rl_status st = RL_OK;
    bool grad = rl_grad_off();
    RL_TRY(order(x, &k, &v, &i));
    if (nth < 0) {
        RL_TRY(middle(v, axis, ignore_nan, &at));
    } else {
        memcpy(shape, x->shape, (size_t)x->ndim * sizeof *shape);
        if (x->ndim)
            shape[axis] = 1;
        RL_TRY(rl_full(x->ndim, shape, rl_scalar_int(nth), RL_I64, rl_tensor_device(x), &at));
    }
    RL_TRY(pick(&v, axis, at, keepdim));
    RL_TRY(pick(&i, axis, at, keepdim));
    *values = v;
    *indices = i;
    v = i = NULL;
fail:
    rl_grad_restore(grad);
    rl_tensor_release(at);
    rl_tensor_release(v);
    rl_tensor_release(i);
    return st;
}

/* (self, int k, int dim=-1, bool keepdim=False) */
rl_status rl_op_kthvalue(rl_call *c, rl_result *r)
{
    rl_tensor *x = c->args[0].t, *values = NULL, *indices = NULL;
    int64_t k = c->args[1].i;
    int axis;
    RL_RETURN(rl_axis_normalize(c->args[2].i, x->ndim, &axis));
    RL_RETURN(not_empty(x, axis, "kthvalue"));
    if (k < 1 || k > (x->ndim ? x->shape[axis] : 1))
        return rl_fail(RL_ERR_RUNTIME, "kthvalue(): selected number k out of range for dimension %d", axis);
    RL_RETURN(nth_element(x, axis, k - 1, false, c->args[3].b, &values, &indices));
    return rl_give2(record("KthvalueBackward0", x, axis, !c->args[3].b, values, indices), values, indices, r);
}

/* Of all elements: the gradient is shared by all that equal it. */
static rl_status median_all(rl_tensor *x, bool ignore_nan, const char *name, rl_tensor **out)
{
    rl_tensor *flat = NULL, *index = NULL, *o = NULL;
    rl_node *node;
    rl_status st = RL_OK;
    int64_t all = x->numel;
    if (x->numel == 0)
        return rl_full(0, NULL, rl_dtype_is_float((rl_dtype)x->dtype) ? rl_scalar_float(__builtin_nan("")) : rl_scalar_int(INT64_MIN),
                       (rl_dtype)x->dtype,
                       rl_tensor_device(x), out);
    bool grad = rl_grad_off();
    st = rl_reshape(x, 1, &all, &flat);
    rl_grad_restore(grad);
    RL_TRY(st);
    RL_TRY(nth_element(flat, 0, -1, ignore_nan, false, &o, &index));
    RL_TRY(rl_record(&rl_class_extreme, &x, 1, &o, 1, 2, &node));
    if (node) {
        node->name = name;
        node->attrs.i[0] = (int64_t)~0ull;
        RL_TRY(rl_node_save(node, 0, x, -1));
        RL_TRY(rl_node_save(node, 1, o, 0));
    }
    *out = o;
    o = NULL;
fail:
    rl_tensor_release(flat);
    rl_tensor_release(index);
    rl_tensor_release(o);
    return st;
}

/* Overloads: (self), (self, int dim, bool keepdim=False). */
static rl_status median(rl_call *c, rl_result *r, bool ignore_nan)
{
    rl_tensor *x = c->args[0].t, *values = NULL, *indices = NULL;
    int axis;
    if (x->dtype == RL_BOOL)
        return rl_fail(RL_ERR_NOT_IMPLEMENTED, "\"median_cpu\" not implemented for 'Bool'");
    if (c->overload == 0)
        return rl_give(median_all(x, ignore_nan, ignore_nan ? "NanmedianBackward0" : "MedianBackward0", &values), values, r);
    RL_RETURN(rl_axis_normalize(c->args[1].i, x->ndim, &axis));
    RL_RETURN(not_empty(x, axis, "median"));
    RL_RETURN(nth_element(x, axis, -1, ignore_nan, c->args[2].b, &values, &indices));
    rl_status st = record(ignore_nan ? "NanmedianBackward1" : "MedianBackward1", x, axis, !c->args[2].b, values, indices);
    return rl_give2(st, values, indices, r);
}

rl_status rl_op_median(rl_call *c, rl_result *r) { return median(c, r, false); }
rl_status rl_op_nanmedian(rl_call *c, rl_result *r) { return median(c, r, true); }
