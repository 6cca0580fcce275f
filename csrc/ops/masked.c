/* masked.c: masks and positions: nonzero, argwhere, masked_select, masked_scatter, and counts by value (bincount, histc, one_hot).
 */
#include "derivs.h"

/* ---- nonzero ---- */

static void nonzero_args(rl_nonzero_args *a, const rl_tensor *x, int64_t *count)
{
    *a = (rl_nonzero_args){.dtype = x->dtype, .ndim = x->ndim, .numel = x->numel, .in = rl_tensor_data(x), .count = count};
    for (int d = 0; d < x->ndim; d++) {
        a->shape[d] = x->shape[d];
        a->strides[d] = x->strides[d] * rl_tensor_itemsize(x);
    }
}

rl_status rl_nonzero(rl_tensor *x, rl_tensor **out)
{
    rl_nonzero_args a;
    rl_tensor *o = NULL;
    int64_t count = 0;
    if (x->ndim > RL_ARG_DIMS)
        return rl_fail(RL_ERR_RUNTIME, "nonzero is not supported for tensors with more than %d dimensions, got %d", RL_ARG_DIMS, x->ndim);
    nonzero_args(&a, x, &count);
    if (x->numel > 0)
        RL_RETURN(rl_launch(x, RL_K_NONZERO, &a));
    int64_t shape[2] = {count, x->ndim};
    RL_RETURN(rl_tensor_empty(2, shape, RL_I64, rl_tensor_device(x), &o));
    rl_status st = RL_OK;
    if (o->numel > 0) {
        a.index = rl_tensor_data(o);
        st = rl_launch(x, RL_K_NONZERO, &a);
    }
    if (st == RL_OK)
        *out = o;
    else
        rl_tensor_release(o);
    return st;
}

rl_status rl_op_nonzero(rl_call *c, rl_result *r)
{
    rl_tensor *out = NULL;
    return rl_give(rl_nonzero(c->args[0].t, &out), out, r);
}

/* ---- masked_select, masked_scatter ---- */

static rl_status need_mask(const rl_tensor *mask, const char *op)
{
    if (mask->dtype == RL_BOOL)
        return RL_OK;
    if (op[7] == 's' && op[8] == 'c')
        return rl_fail(RL_ERR_RUNTIME, "masked_scatter_ only supports boolean masks, but got mask with dtype %s", rl_dtype_name((rl_dtype)mask->dtype));
    return rl_fail(RL_ERR_RUNTIME, "%s: expected BoolTensor for mask, but got %s", op, rl_scalar_type_text((rl_dtype)mask->dtype));
}

/* x and mask broadcast together. */
static rl_status both_wide(rl_tensor *x, rl_tensor *mask, rl_tensor **wide_x, rl_tensor **wide_mask)
{
    rl_tensor *both[2] = {x, mask};
    int64_t shape[RL_MAX_NDIM];
    int ndim;
    RL_RETURN(rl_plan_shape(both, 2, &ndim, shape));
    RL_RETURN(rl_expand(x, ndim, shape, wide_x));
    return rl_expand(mask, ndim, shape, wide_mask);
}

/* The elements under the mask, flat; unrecorded. */
static rl_status select_raw(rl_tensor *x, rl_tensor *mask, rl_tensor **out)
{
    bool grad = rl_grad_off();
    rl_status st = mask->ndim ? rl_index(x, &mask, 1, out) : RL_OK;
    if (mask->ndim == 0) { /* one element or none */
        rl_tensor *row = NULL, *flag = NULL;
        st = rl_unsqueeze(x, 0, &row);
        if (st == RL_OK)
            st = rl_unsqueeze(mask, 0, &flag);
        if (st == RL_OK)
            st = rl_index(row, &flag, 1, out);
        rl_tensor_release(row);
        rl_tensor_release(flag);
    }
    rl_grad_restore(grad);
    return st;
}

rl_status rl_masked_select(rl_tensor *x, rl_tensor *mask, rl_tensor **out)
{
    rl_tensor *wide = NULL, *wide_mask = NULL, *o = NULL;
    rl_node *node;
    rl_status st = need_mask(mask, "masked_select");
    RL_RETURN(st);
    bool grad = rl_grad_off();
    st = both_wide(x, mask, &wide, &wide_mask);
    rl_grad_restore(grad);
    RL_TRY(st);
    RL_TRY(select_raw(wide, wide_mask, &o));
    RL_TRY(rl_record(&rl_class_masked_select, &x, 1, &o, 1, 1, &node));
    if (node) {
        RL_TRY(rl_node_save(node, 0, mask, -1));
        RL_TRY(rl_node_set_list(node, x->shape, x->ndim));
    }
    *out = o;
    o = NULL;
fail:
    rl_tensor_release(wide);
    rl_tensor_release(wide_mask);
    rl_tensor_release(o);
    return st;
}

rl_status rl_op_masked_select(rl_call *c, rl_result *r)
{
    rl_tensor *out = NULL;
    return rl_give(rl_masked_select(c->args[0].t, c->args[1].t, &out), out, r);
}

/* The first elements of source into the places of the mask. */
static rl_status scatter_raw(rl_tensor *x, rl_tensor *mask, rl_tensor *source, rl_tensor **out)
{
    rl_tensor *wide = NULL, *wide_mask = NULL, *flat = NULL, *first = NULL, *o = NULL, *where = NULL, *total = NULL;
    rl_status st = RL_OK;
    int64_t rest = -1;
    rl_scalar count;
    RL_TRY(both_wide(x, mask, &wide, &wide_mask));
    RL_TRY(rl_sum(wide_mask, NULL, 0, false, RL_I64, &total));
    RL_TRY(rl_item(total, &count));
    if (count.i > source->numel)
        RL_FAIL(RL_ERR_RUNTIME, "masked_scatter: expected self and source to have same dtypes and source to have at least as many "
                                "elements as the mask has "
                "ones, but it has %lld and %lld are needed", (long long)source->numel, (long long)count.i);
    if (wide_mask->ndim == 0) {
        RL_TRY(rl_unsqueeze(wide, 0, &where));
        rl_tensor_release(wide);
        wide = where;
        where = NULL;
        RL_TRY(rl_unsqueeze(wide_mask, 0, &where));
        rl_tensor_release(wide_mask);
        wide_mask = where;
        where = NULL;
    }
    RL_TRY(rl_clone(wide, RL_FORMAT_CONTIGUOUS, &o));
    RL_TRY(rl_reshape(source, 1, &rest, &flat));
    RL_TRY(rl_narrow(flat, 0, 0, count.i, &first));
    RL_TRY(rl_index_put_(o, &wide_mask, 1, first, false));
    RL_TRY(x->ndim || mask->ndim ? rl_contiguous(o, out) : rl_reshape(o, 0, NULL, out));
fail:
    rl_tensor_release(wide);
    rl_tensor_release(wide_mask);
    rl_tensor_release(flat);
    rl_tensor_release(first);
    rl_tensor_release(o);
    rl_tensor_release(where);
    rl_tensor_release(total);
    return st;
}

rl_status rl_op_masked_scatter(rl_call *c, rl_result *r)
{
    rl_tensor *in[2] = {c->args[0].t, c->args[2].t}, *mask = c->args[1].t, *out = NULL;
    rl_node *node;
    rl_status st = need_mask(mask, "masked_scatter_");
    RL_RETURN(st);
    if (in[0]->dtype != in[1]->dtype)
        return rl_fail(RL_ERR_RUNTIME, "masked_scatter: expected self and source to have same dtypes but got %s and %s",
                       rl_scalar_type_text((rl_dtype)in[0]->dtype),
                       rl_scalar_type_text((rl_dtype)in[1]->dtype));
    bool grad = rl_grad_off();
    st = scatter_raw(in[0], mask, in[1], &out);
    rl_grad_restore(grad);
    RL_TRY(st);
    RL_TRY(rl_record(&rl_class_masked_scatter, in, 2, &out, 1, 1, &node));
    if (node) {
        int64_t shapes[2 * RL_MAX_NDIM];
        node->attrs.i[0] = in[0]->ndim;
        for (int d = 0; d < in[0]->ndim + in[1]->ndim; d++)
            shapes[d] = d < in[0]->ndim ? in[0]->shape[d] : in[1]->shape[d - in[0]->ndim];
        RL_TRY(rl_node_set_list(node, shapes, in[0]->ndim + in[1]->ndim));
        RL_TRY(rl_node_save(node, 0, mask, -1));
    }
fail:
    return rl_give(st, out, r);
}

/* ---- counts by value ---- */

static rl_status range_of(rl_tensor *x, rl_scalar *low, rl_scalar *high)
{
    rl_reduction how = {.op = RL_RED_MIN, .mask = ~0ull, .dtype = (rl_dtype)x->dtype};
    rl_tensor *t = NULL;
    rl_status st = rl_reduce_run(x, &how, &t, NULL);
    if (st == RL_OK)
        st = rl_item(t, low);
    rl_tensor_clear(&t);
    how.op = RL_RED_MAX;
    if (st == RL_OK)
        st = rl_reduce_run(x, &how, &t, NULL);
    if (st == RL_OK)
        st = rl_item(t, high);
    rl_tensor_release(t);
    return st;
}

/* (self, Tensor? weights=None, int minlength=0) */
static rl_status bincount(rl_tensor *x, rl_tensor *weights, int64_t n, rl_tensor **out)
{
    rl_tensor *index = NULL, *zeros = NULL, *add = NULL;
    rl_status st = RL_OK;
    rl_dtype d = !weights ? RL_I64 : weights->dtype == RL_F32 ? RL_F32 : RL_F64;
    RL_TRY(rl_cast(x, RL_I64, &index));
    RL_TRY(rl_zeros(1, &n, d, rl_tensor_device(x), &zeros));
    if (weights)
        RL_TRY(rl_cast(weights, d, &add));
    else
        RL_TRY(rl_full(1, x->shape, rl_scalar_int(1), d, rl_tensor_device(x), &add));
    RL_TRY(rl_scatter_add(zeros, 0, index, add, out));
fail:
    rl_tensor_release(index);
    rl_tensor_release(zeros);
    rl_tensor_release(add);
    return st;
}

rl_status rl_op_bincount(rl_call *c, rl_result *r)
{
    rl_tensor *x = c->args[0].t, *weights = c->args[1].given ? c->args[1].t : NULL, *out = NULL;
    rl_scalar low = rl_scalar_int(0), high = rl_scalar_int(-1);
    int64_t n = c->args[2].i;
    if (n < 0)
        return rl_fail(RL_ERR_RUNTIME, "minlength should be >= 0");
    if (x->ndim != 1 || rl_dtype_is_float((rl_dtype)x->dtype) || x->dtype == RL_BOOL)
        return rl_fail(RL_ERR_RUNTIME, "bincount only supports 1-d non-negative integral inputs.");
    if (weights && (weights->ndim != 1 || weights->numel != x->numel))
        return rl_fail(RL_ERR_RUNTIME, "weights should be 1-d and have the same length as input");
    if (x->numel > 0)
        RL_RETURN(range_of(x, &low, &high));
    if (low.i < 0)
        return rl_fail(RL_ERR_RUNTIME, "bincount only supports 1-d non-negative integral inputs.");
    if (high.i == INT64_MAX)
        return rl_fail(RL_ERR_RUNTIME, "maximum value of input overflowed, it should be < %lld but got %lld", (long long)INT64_MAX,
                       (long long)high.i);
    bool grad = rl_grad_off();
    rl_status st = bincount(x, weights, high.i + 1 > n ? high.i + 1 : n, &out);
    rl_grad_restore(grad);
    return rl_give(st, out, r);
}

/* (self, int num_classes=-1): zeros with a 1 at the class, int64. */
static rl_status one_hot(rl_tensor *x, int64_t classes, rl_tensor **out)
{
    int64_t shape[RL_MAX_NDIM];
    rl_tensor *zeros = NULL, *index = NULL, *ones = NULL;
    rl_status st = RL_OK;
    for (int d = 0; d < x->ndim; d++)
        shape[d] = x->shape[d];
    shape[x->ndim] = classes;
    RL_TRY(rl_zeros(x->ndim + 1, shape, RL_I64, rl_tensor_device(x), &zeros));
    RL_TRY(rl_unsqueeze(x, -1, &index));
    RL_TRY(rl_full(index->ndim, index->shape, rl_scalar_int(1), RL_I64, rl_tensor_device(x), &ones));
    RL_TRY(rl_scatter_add(zeros, -1, index, ones, out));
fail:
    rl_tensor_release(zeros);
    rl_tensor_release(index);
    rl_tensor_release(ones);
    return st;
}

rl_status rl_op_one_hot(rl_call *c, rl_result *r)
{
    rl_tensor *x = c->args[0].t, *out = NULL;
    int64_t classes = c->args[1].i;
    rl_scalar low, high;
    if (x->dtype != RL_I64)
        return rl_fail(RL_ERR_RUNTIME, "one_hot is only applicable to index tensor of type LongTensor.");
    if (x->ndim == RL_MAX_NDIM)
        return rl_fail(RL_ERR_RUNTIME, "one_hot(): a result of %d dimensions", x->ndim + 1);
    if (x->numel == 0 && classes <= 0)
        return rl_fail(RL_ERR_RUNTIME, "Can not infer total number of classes from empty tensor.");
    if (x->numel > 0) {
        RL_RETURN(range_of(x, &low, &high));
        if (low.i < 0)
            return rl_fail(RL_ERR_RUNTIME, "Class values must be non-negative.");
        if (classes != -1 && high.i >= classes)
            return rl_fail(RL_ERR_RUNTIME, "Class values must be smaller than num_classes.");
        classes = classes == -1 ? high.i + 1 : classes;
    }
    return rl_give(one_hot(x, classes, &out), out, r);
}
