/* variance.c: std and var in all spellings, with their means, and norms.
 *
 * The overloads (unbiased), (dim, unbiased, keepdim) and (dim, *, correction, keepdim) meet in one struct; the kernel does the
 * arithmetic in two passes, so the result is never negative. norm in all
 * spellings is linalg.vector_norm, as in PyTorch (the spellings are functional.py's).
 */
#include "derivs.h"

#include <math.h>
#include <string.h>

/* ---- std, var ---- */

static rl_status spread_read(rl_call *c, rl_reduction *how)
{
    rl_tensor *x = c->args[0].t;
    how->mask = ~0ull;
    how->p = 1;
    how->dtype = how->dtype2 = (rl_dtype)x->dtype;
    if (!rl_dtype_is_float((rl_dtype)x->dtype))
        return rl_fail(RL_ERR_RUNTIME, "%s only support floating point and complex dtypes", c->op->name[0] == 's' ||
                       c->op->name[0] == 'v' ? "std and var" : c->op->name);
    if (c->overload == 0) {
        how->p = c->args[1].b;
        return RL_OK;
    }
    if (c->overload == 1)
        how->p = c->args[2].b;
    else if (c->args[2].given)
        how->p = rl_scalar_to_double(c->args[2].s);
    how->keepdim = c->args[3].b;
    return rl_arg_axes(&c->args[1], x->ndim, &how->mask);
}

static rl_status spread_attrs(rl_node *node, rl_tensor *x, const rl_reduction *how)
{
    node->attrs.i[0] = (int64_t)how->mask;
    node->attrs.i[1] = how->keepdim;
    node->attrs.f[0] = how->p;
    return rl_node_save(node, 0, x, -1);
}

static rl_status spread(rl_call *c, rl_result *r, int op, const rl_node_class *cls)
{
    rl_tensor *x = c->args[0].t, *out = NULL;
    rl_reduction how = {.op = op};
    rl_node *node;
    rl_status st = RL_OK;
    RL_TRY(spread_read(c, &how));
    RL_TRY(rl_reduce_run(x, &how, &out, NULL));
    RL_TRY(rl_record(cls, &x, 1, &out, 1, 2, &node));
    if (node) {
        RL_TRY(spread_attrs(node, x, &how));
        if (op == RL_RED_STD)
            RL_TRY(rl_node_save(node, 1, out, 0));
    }
fail:
    return rl_give(st, out, r);
}

static rl_status spread_mean(rl_call *c, rl_result *r, int op, const rl_node_class *cls)
{
    rl_tensor *x = c->args[0].t, *outs[2] = {NULL, NULL};
    rl_reduction how = {.op = op};
    rl_node *node;
    rl_status st = RL_OK;
    RL_TRY(spread_read(c, &how));
    RL_TRY(rl_reduce_run(x, &how, &outs[0], &outs[1]));
    RL_TRY(rl_record(cls, &x, 1, outs, 2, 2, &node));
    if (node) {
        RL_TRY(spread_attrs(node, x, &how));
        if (op == RL_RED_STD_MEAN)
            RL_TRY(rl_node_save(node, 1, outs[0], 0));
    }
fail:
    return rl_give2(st, outs[0], outs[1], r);
}

rl_status rl_op_std(rl_call *c, rl_result *r) { return spread(c, r, RL_RED_STD, &rl_class_std); }
rl_status rl_op_var(rl_call *c, rl_result *r) { return spread(c, r, RL_RED_VAR, &rl_class_var); }
rl_status rl_op_std_mean(rl_call *c, rl_result *r) { return spread_mean(c, r, RL_RED_STD_MEAN, &rl_class_std_mean); }
rl_status rl_op_var_mean(rl_call *c, rl_result *r) { return spread_mean(c, r, RL_RED_VAR_MEAN, &rl_class_var_mean); }

/* ---- norms ---- */

static rl_status norm_dtype(const rl_tensor *x, rl_dtype asked, rl_dtype *d)
{
    if (!rl_dtype_is_float((rl_dtype)x->dtype))
        return rl_fail(RL_ERR_RUNTIME, "linalg.vector_norm: Expected a floating point or complex tensor as input. Got %s",
                       rl_scalar_type_text((rl_dtype)x->dtype));
    *d = asked == RL_DTYPE_NONE ? (rl_dtype)x->dtype : asked;
    if (!rl_dtype_is_float(*d))
        return rl_fail(RL_ERR_RUNTIME, "linalg.vector_norm: dtype should be floating point or complex. Got %s", rl_scalar_type_text(*d));
    if (rl_dtype_promote((rl_dtype)x->dtype, *d) != *d)
        return rl_fail(RL_ERR_RUNTIME, "linalg.vector_norm: the dtype of the input (%s) should be convertible without narrowing to the "
                                       "specified dtype (%s)",
                       rl_scalar_type_text((rl_dtype)x->dtype), rl_scalar_type_text(*d));
    return RL_OK;
}

/* max and min of nothing do not exist. */
static rl_status norm_not_empty(const rl_tensor *x, double p, uint64_t mask, bool all)
{
    if (p >= 0 && !isinf(p))
        return RL_OK;
    if (all && x->numel == 0)
        return rl_fail(RL_ERR_RUNTIME, "linalg.vector_norm cannot compute the %g norm on an empty tensor because the operation does not "
                                       "have an identity", p);
    for (int d = 0; d < x->ndim; d++)
        if (mask >> d & 1 && x->shape[d] == 0)
            return rl_fail(RL_ERR_RUNTIME, "linalg.vector_norm cannot compute the %g norm on the dimension %d because this dimension is "
                                           "empty and the "
                           "operation does not have an identity", p, d);
    return RL_OK;
}

static rl_status vector_norm(rl_tensor *x, double p, const rl_arg *dims, bool keepdim, rl_dtype asked, rl_tensor **out)
{
    rl_reduction how = {.op = RL_RED_NORM, .keepdim = keepdim, .p = p};
    rl_tensor *in = NULL, *o = NULL;
    rl_node *node;
    rl_status st = RL_OK;
    uint64_t mask;
    RL_RETURN(norm_dtype(x, asked, &how.dtype));
    if (dims && dims->given)
        RL_RETURN(rl_arg_axes(dims, x->ndim, &mask));
    else
        mask = ~0ull;
    how.mask = mask;
    RL_RETURN(norm_not_empty(x, p, mask, mask == ~0ull));
    bool grad = rl_grad_off();
    st = rl_cast(x, how.dtype, &in);
    rl_grad_restore(grad);
    RL_TRY(st);
    RL_TRY(rl_reduce_run(in, &how, &o, NULL));
    RL_TRY(rl_record(&rl_class_vector_norm, &x, 1, &o, 1, 2, &node));
    if (node) {
        node->attrs.i[0] = (int64_t)mask;
        node->attrs.i[1] = keepdim;
        node->attrs.f[0] = p;
        RL_TRY(rl_node_save(node, 0, x, -1));
        RL_TRY(rl_node_save(node, 1, o, 0));
    }
    *out = o;
    o = NULL;
fail:
    rl_tensor_release(in);
    rl_tensor_release(o);
    return st;
}

static rl_dtype arg_dtype(const rl_arg *a) { return a->given ? a->dtype : RL_DTYPE_NONE; }

/* (self, Scalar ord=2, int[1]? dim=None, bool keepdim=False, *, dtype) */
rl_status rl_op_linalg_vector_norm(rl_call *c, rl_result *r)
{
    rl_tensor *out = NULL;
    rl_status st = vector_norm(c->args[0].t, c->args[1].given ? rl_scalar_to_double(c->args[1].s) : 2, &c->args[2], c->args[3].b,
                               arg_dtype(&c->args[4]), &out);
    return rl_give(st, out, r);
}
