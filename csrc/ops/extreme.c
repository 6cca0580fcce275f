/* extreme.c: the largest and smallest: max and min in their three forms, amax, amin, aminmax, argmax, argmin.
 *
 * NaN wins, as in PyTorch. Two gradients exist: where an index is given the gradient goes to that element (the first of equals);
 * where only a value is given (max(), amax) it is shared evenly among equals.
 */
#include "derivs.h"

static rl_status not_empty(const rl_tensor *x, const char *name, rl_status code, bool advice)
{
    if (x->numel > 0)
        return RL_OK;
    return rl_fail(code, "%s(): Expected reduction dim to be specified for input.numel() == 0.%s", name,
                   advice ? " Specify the reduction dim with the 'dim' argument." : "");
}

static rl_status axes_not_empty(const rl_tensor *x, uint64_t mask, const char *name)
{
    for (int d = 0; d < x->ndim; d++)
        if (mask >> d & 1 && x->shape[d] == 0)
            return rl_fail(RL_ERR_INDEX, "%s Expected reduction dim %d to have non-zero size.", name, d);
    return RL_OK;
}

/* Of all elements or along axes, values alone. */
static rl_status extreme(rl_tensor *x, int op, uint64_t mask, bool keepdim, const char *grad_fn, rl_tensor **out)
{
    rl_reduction how = {.op = op, .mask = mask, .keepdim = keepdim, .dtype = (rl_dtype)x->dtype};
    rl_node *node;
    rl_status st = RL_OK;
    RL_TRY(rl_reduce_run(x, &how, out, NULL));
    RL_TRY(rl_record(&rl_class_extreme, &x, 1, out, 1, 2, &node));
    if (node) {
        node->name = grad_fn;
        node->attrs.i[0] = (int64_t)mask;
        node->attrs.i[1] = keepdim;
        RL_TRY(rl_node_save(node, 0, x, -1));
        RL_TRY(rl_node_save(node, 1, *out, 0));
    }
    return RL_OK;
fail:
    rl_tensor_clear(out);
    return st;
}

/* Values and indices along one axis. */
static rl_status extreme_index(rl_tensor *x, int op, int axis, bool keepdim, const char *grad_fn, rl_tensor **values, rl_tensor **indices)
{
    rl_reduction how = {.op = op, .mask = 1ull << axis, .keepdim = keepdim, .dtype = (rl_dtype)x->dtype, .dtype2 = RL_I64};
    rl_node *node;
    rl_status st = RL_OK;
    RL_TRY(rl_reduce_run(x, &how, values, indices));
    RL_TRY(rl_record(&rl_class_extreme_index, &x, 1, values, 1, 1, &node));
    if (node) {
        node->name = grad_fn;
        node->attrs.i[0] = axis;
        node->attrs.i[1] = keepdim;
        RL_TRY(rl_node_save(node, 0, *indices, -1));
        RL_TRY(rl_node_set_list(node, x->shape, x->ndim));
    }
    return RL_OK;
fail:
    rl_tensor_clear(values);
    rl_tensor_clear(indices);
    return st;
}

/* Overloads: (self), (self, other), (self, dim, keepdim). */
static rl_status max_or_min(rl_call *c, rl_result *r, bool max)
{
    rl_tensor *x = c->args[0].t, *out = NULL, *indices = NULL;
    const char *name = max ? "max" : "min";
    char label[8] = {name[0], name[1], name[2], '(', ')', ':', 0};
    rl_status st;
    int axis;
    if (c->overload == 1) {
        rl_operand a = rl_operand_tensor(x), b = {.t = c->args[1].t, .s = c->args[1].s};
        st = max ? rl_maximum(a, b, &out) : rl_minimum(a, b, &out);
        return rl_give(st, out, r);
    }
    if (c->overload == 0) {
        RL_RETURN(not_empty(x, name, RL_ERR_RUNTIME, true));
        st = extreme(x, max ? RL_RED_MAX : RL_RED_MIN, ~0ull, false, max ? "MaxBackward1" : "MinBackward1", &out);
        return rl_give(st, out, r);
    }
    RL_RETURN(rl_axis_normalize(c->args[1].i, x->ndim, &axis));
    RL_RETURN(axes_not_empty(x, 1ull << axis, label));
    st = extreme_index(x, max ? RL_RED_MAX_INDEX : RL_RED_MIN_INDEX, axis, c->args[2].b, max ? "MaxBackward0" : "MinBackward0", &out,
                       &indices);
    return rl_give2(st, out, indices, r);
}

rl_status rl_op_max(rl_call *c, rl_result *r) { return max_or_min(c, r, true); }
rl_status rl_op_min(rl_call *c, rl_result *r) { return max_or_min(c, r, false); }

static rl_status amax_or_amin(rl_tensor *x, const int64_t *dims, int n, bool keepdim, bool max, rl_tensor **out)
{
    uint64_t mask;
    RL_RETURN(rl_axes_normalize(dims, n, x->ndim, true, &mask));
    if (n == 0)
        RL_RETURN(not_empty(x, max ? "amax" : "amin", RL_ERR_RUNTIME, true));
    RL_RETURN(axes_not_empty(x, mask, max ? "amax():" : "amin():"));
    return extreme(x, max ? RL_RED_MAX : RL_RED_MIN, mask, keepdim, max ? "AmaxBackward0" : "AminBackward0", out);
}

rl_status rl_amax(rl_tensor *x, const int64_t *dims, int n, bool keepdim, rl_tensor **out)
{
    return amax_or_amin(x, dims, n, keepdim, true, out);
}

static rl_status amax_op(rl_call *c, rl_result *r, bool max)
{
    rl_tensor *out = NULL;
    const rl_arg *dims = &c->args[1];
    rl_status st = amax_or_amin(c->args[0].t, dims->ints.v, dims->given ? dims->ints.n : 0, c->args[2].b, max, &out);
    return rl_give(st, out, r);
}

rl_status rl_op_amax(rl_call *c, rl_result *r) { return amax_op(c, r, true); }
rl_status rl_op_amin(rl_call *c, rl_result *r) { return amax_op(c, r, false); }

/* (self, *, dim=None, keepdim=False) -> min, max */
rl_status rl_op_aminmax(rl_call *c, rl_result *r)
{
    rl_tensor *x = c->args[0].t, *outs[2] = {NULL, NULL};
    rl_reduction how = {.op = RL_RED_MIN, .mask = ~0ull, .keepdim = c->args[2].b, .dtype = (rl_dtype)x->dtype};
    rl_node *node;
    rl_status st = RL_OK;
    int axis;
    if (c->args[1].given) {
        RL_RETURN(rl_axis_normalize(c->args[1].i, x->ndim, &axis));
        how.mask = 1ull << axis;
        RL_RETURN(axes_not_empty(x, how.mask, "aminmax:"));
    } else if (x->numel == 0) {
        return rl_fail(RL_ERR_RUNTIME, "aminmax(): cannot compute aminmax over an empty dimension as the operation has no identity.");
    }
    RL_TRY(rl_reduce_run(x, &how, &outs[0], NULL));
    how.op = RL_RED_MAX;
    RL_TRY(rl_reduce_run(x, &how, &outs[1], NULL));
    RL_TRY(rl_record(&rl_class_aminmax, &x, 1, outs, 2, 3, &node));
    if (node) {
        node->attrs.i[0] = (int64_t)how.mask;
        node->attrs.i[1] = how.keepdim;
        RL_TRY(rl_node_save(node, 0, x, -1));
        RL_TRY(rl_node_save(node, 1, outs[0], 0));
        RL_TRY(rl_node_save(node, 2, outs[1], 1));
    }
fail:
    return rl_give2(st, outs[0], outs[1], r);
}

/* (self, dim=None, keepdim=False) */
static rl_status arg_extreme(rl_call *c, rl_result *r, bool max)
{
    rl_tensor *x = c->args[0].t, *out = NULL;
    const char *name = max ? "argmax" : "argmin";
    rl_reduction how = {.op = max ? RL_RED_ARGMAX : RL_RED_ARGMIN, .mask = ~0ull, .keepdim = c->args[2].b, .dtype = RL_I64};
    int axis;
    if (c->args[1].given) {
        RL_RETURN(rl_axis_normalize(c->args[1].i, x->ndim, &axis));
        how.mask = 1ull << axis;
        RL_RETURN(axes_not_empty(x, how.mask, max ? "argmax():" : "argmin():"));
    } else {
        RL_RETURN(not_empty(x, name, RL_ERR_INDEX, false));
    }
    if (x->dtype == RL_BOOL)
        return rl_fail(RL_ERR_RUNTIME, "%s(): does not support bool input", name);
    rl_status st = rl_reduce_run(x, &how, &out, NULL);
    return rl_give(st, out, r);
}

rl_status rl_op_argmax(rl_call *c, rl_result *r) { return arg_extreme(c, r, true); }
rl_status rl_op_argmin(rl_call *c, rl_result *r) { return arg_extreme(c, r, false); }
