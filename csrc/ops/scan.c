/* scan.c: running results along one axis (cumsum, cumprod, cummax, cummin, logcumsumexp), differences and the trace.
 *
 * The kernel walks (outer, n, inner) of contiguous memory; other layouts are copied first.
 */
#include "derivs.h"

static rl_status run_scan(rl_tensor *x, int op, const rl_axis_split *s, rl_dtype d, rl_tensor **out, rl_tensor **indices)
{
    rl_tensor *in = NULL, *o = NULL, *o2 = NULL;
    rl_scan_args a = {.op = op, .dtype = (uint8_t)d, .outer = s->outer, .n = s->n, .inner = s->inner};
    rl_status st = RL_OK;
    RL_TRY(rl_plain(x, d, &in));
    RL_TRY(rl_tensor_empty(x->ndim, x->shape, d, rl_tensor_device(x), &o));
    if (indices)
        RL_TRY(rl_tensor_empty(x->ndim, x->shape, RL_I64, rl_tensor_device(x), &o2));
    if (o->numel > 0) {
        a.in = rl_tensor_data(in);
        a.out = rl_tensor_data(o);
        a.out2 = o2 ? rl_tensor_data(o2) : NULL;
        RL_TRY(rl_launch(x, RL_K_SCAN, &a));
    }
    *out = o;
    if (indices)
        *indices = o2;
    o = o2 = NULL;
fail:
    rl_tensor_release(in);
    rl_tensor_release(o);
    rl_tensor_release(o2);
    return st;
}

static rl_dtype sum_dtype(const rl_tensor *x, rl_dtype asked)
{
    return asked != RL_DTYPE_NONE ? asked : rl_dtype_is_float((rl_dtype)x->dtype) ? (rl_dtype)x->dtype : RL_I64;
}

/* saved: bit 0 the input, bit 1 the result. */
static rl_status scan(rl_tensor *x, int op, int64_t dim, rl_dtype d, const rl_node_class *cls, int saved, rl_tensor **out)
{
    rl_axis_split s;
    rl_node *node = NULL;
    rl_status st = RL_OK;
    rl_tensor *o = NULL;
    RL_RETURN(rl_axis_split_of(x, dim, &s));
    RL_TRY(run_scan(x, op, &s, d, &o, NULL));
    if (rl_dtype_is_float(d))
        RL_TRY(rl_record(cls, &x, 1, &o, 1, 2, &node));
    if (node) {
        node->attrs.i[0] = s.axis;
        if (saved & 1)
            RL_TRY(rl_node_save(node, 0, x, -1));
        if (saved & 2)
            RL_TRY(rl_node_save(node, 1, o, 0));
    }
    *out = o;
    return RL_OK;
fail:
    rl_tensor_release(o);
    return st;
}

rl_status rl_cumsum(rl_tensor *x, int64_t dim, rl_dtype d, rl_tensor **out)
{
    return scan(x, RL_SCAN_SUM, dim, sum_dtype(x, d), &rl_class_cumsum, 0, out);
}

rl_status rl_cumprod(rl_tensor *x, int64_t dim, rl_dtype d, rl_tensor **out)
{
    return scan(x, RL_SCAN_PROD, dim, sum_dtype(x, d), &rl_class_cumprod, 3, out);
}

static rl_dtype arg_dtype(const rl_arg *a) { return a->given ? a->dtype : RL_DTYPE_NONE; }

rl_status rl_op_cumsum(rl_call *c, rl_result *r)
{
    rl_tensor *out = NULL;
    return rl_give(rl_cumsum(c->args[0].t, c->args[1].i, arg_dtype(&c->args[2]), &out), out, r);
}

rl_status rl_op_cumprod(rl_call *c, rl_result *r)
{
    rl_tensor *out = NULL;
    return rl_give(rl_cumprod(c->args[0].t, c->args[1].i, arg_dtype(&c->args[2]), &out), out, r);
}

rl_status rl_logcumsumexp(rl_tensor *x, int64_t dim, rl_tensor **out)
{
    rl_dtype d = rl_dtype_is_float((rl_dtype)x->dtype) ? (rl_dtype)x->dtype : rl_default_dtype();
    return scan(x, RL_SCAN_LOGSUMEXP, dim, d, &rl_class_logcumsumexp, 3, out);
}

rl_status rl_op_logcumsumexp(rl_call *c, rl_result *r)
{
    rl_tensor *x = c->args[0].t, *out = NULL;
    if (!rl_dtype_is_float((rl_dtype)x->dtype))
        return rl_fail(RL_ERR_NOT_IMPLEMENTED, "\"logcumsumexp_out_cpu\" not implemented for '%s'",
                       rl_scalar_type_text((rl_dtype)x->dtype));
    return rl_give(rl_logcumsumexp(x, c->args[1].i, &out), out, r);
}

static rl_status running_extreme(rl_call *c, rl_result *r, bool max)
{
    rl_tensor *x = c->args[0].t, *values = NULL, *indices = NULL;
    rl_axis_split s;
    rl_node *node;
    rl_status st = RL_OK;
    RL_TRY(rl_axis_split_of(x, c->args[1].i, &s));
    RL_TRY(run_scan(x, max ? RL_SCAN_MAX : RL_SCAN_MIN, &s, (rl_dtype)x->dtype, &values, &indices));
    RL_TRY(rl_record(&rl_class_cumextreme, &x, 1, &values, 1, 1, &node));
    if (node) {
        node->name = max ? "CummaxBackward0" : "CumminBackward0";
        node->attrs.i[0] = s.axis;
        RL_TRY(rl_node_save(node, 0, indices, -1));
        RL_TRY(rl_node_set_list(node, x->shape, x->ndim));
    }
fail:
    return rl_give2(st, values, indices, r);
}

rl_status rl_op_cummax(rl_call *c, rl_result *r) { return running_extreme(c, r, true); }
rl_status rl_op_cummin(rl_call *c, rl_result *r) { return running_extreme(c, r, false); }

/* ---- differences ---- */

static rl_status diff_once(rl_tensor *x, int axis, rl_tensor **out)
{
    rl_tensor *later = NULL, *earlier = NULL;
    rl_status st = RL_OK;
    int64_t n = x->shape[axis] > 0 ? x->shape[axis] - 1 : 0, from = x->shape[axis] > 0 ? 1 : 0;
    RL_TRY(rl_narrow(x, axis, from, n, &later));
    RL_TRY(rl_narrow(x, axis, 0, n, &earlier));
    if (x->dtype == RL_BOOL)
        RL_TRY(rl_logical_xor(rl_operand_tensor(later), rl_operand_tensor(earlier), out));
    else
        RL_TRY(rl_sub(rl_operand_tensor(later), rl_operand_tensor(earlier), out));
fail:
    rl_tensor_release(later);
    rl_tensor_release(earlier);
    return st;
}

static rl_status diff_join(rl_call *c, int axis, rl_tensor **out)
{
    rl_tensor *parts[3];
    int n = 0;
    for (int k = 0; k < 3; k++) {
        rl_tensor *t = k == 0 ? c->args[3].t : k == 1 ? c->args[0].t : c->args[4].t;
        if (t && t->ndim != c->args[0].t->ndim)
            return rl_fail(RL_ERR_RUNTIME, "diff expects prepend or append to be the same dimension as input");
        if (t)
            parts[n++] = t;
    }
    if (n == 1) {
        *out = rl_tensor_retain(parts[0]);
        return RL_OK;
    }
    return rl_cat(parts, n, axis, out);
}

/* (self, int n=1, int dim=-1, Tensor? prepend=None, Tensor? append=None) */
rl_status rl_op_diff(rl_call *c, rl_result *r)
{
    rl_tensor *x = c->args[0].t, *now = NULL, *next = NULL;
    rl_status st = RL_OK;
    int axis;
    int64_t n = c->args[1].i;
    if (x->ndim == 0)
        return rl_fail(RL_ERR_RUNTIME, "diff expects input to be at least one-dimensional");
    if (n < 0)
        return rl_fail(RL_ERR_RUNTIME, "order must be non-negative but got %lld", (long long)n);
    RL_RETURN(rl_axis_normalize(c->args[2].i, x->ndim, &axis));
    if (n == 0)
        return rl_give(rl_clone(x, RL_FORMAT_PRESERVE, &now), now, r);
    RL_TRY(diff_join(c, axis, &now));
    if (n > now->shape[axis])
        n = now->shape[axis] > 0 ? now->shape[axis] : 1;
    for (; n > 0; n--) {
        RL_TRY(diff_once(now, axis, &next));
        rl_tensor_release(now);
        now = next;
        next = NULL;
    }
fail:
    return rl_give(st, now, r);
}

/* The sum of the main diagonal. */
rl_status rl_op_trace(rl_call *c, rl_result *r)
{
    rl_tensor *x = c->args[0].t, *diagonal = NULL, *out = NULL;
    rl_node *node;
    rl_status st = RL_OK;
    if (x->ndim != 2)
        return rl_fail(RL_ERR_RUNTIME, "trace: expected a matrix, but got tensor with dim %d", x->ndim);
    bool grad = rl_grad_off();
    st = rl_diagonal(x, 0, 0, 1, &diagonal);
    if (st == RL_OK)
        st = rl_sum(diagonal, NULL, 0, false, RL_DTYPE_NONE, &out);
    rl_grad_restore(grad);
    RL_TRY(st);
    if (rl_dtype_is_float((rl_dtype)x->dtype)) {
        RL_TRY(rl_record(&rl_class_trace, &x, 1, &out, 1, 0, &node));
        if (node)
            RL_TRY(rl_node_set_list(node, x->shape, x->ndim));
    }
fail:
    rl_tensor_release(diagonal);
    return rl_give(st, out, r);
}
