/* norm.c: operators over rows: softmax, log_softmax, layer_norm, rms_norm, forward and fused backward.
 *
 * Kernels walk contiguous memory, so other layouts are copied first. The fused backward serves a plain backward; under create_graph the
 * rules in derivs_norm.c compose the same from public operators.
 */
#include "norm.h"

#include <float.h>

/* ---- softmax ---- */

static rl_status softmax_kernel(rl_tensor *x, int axis, bool log, rl_tensor **out)
{
    rl_axis_split s;
    rl_tensor *in = NULL, *o = NULL;
    rl_softmax_args a = {.op = log ? RL_LOG_SOFTMAX : RL_SOFTMAX, .dtype = x->dtype};
    rl_status st = RL_OK;
    RL_RETURN(rl_axis_split_of(x, axis, &s));
    RL_TRY(rl_plain(x, RL_DTYPE_NONE, &in));
    RL_TRY(rl_tensor_empty(x->ndim, x->shape, (rl_dtype)x->dtype, rl_tensor_device(x), &o));
    if (o->numel > 0) {
        a.outer = s.outer;
        a.n = s.n;
        a.inner = s.inner;
        a.x = rl_tensor_data(in);
        a.out = rl_tensor_data(o);
        RL_TRY(rl_launch(x, RL_K_SOFTMAX, &a));
    }
    *out = o;
    o = NULL;
fail:
    rl_tensor_release(in);
    rl_tensor_release(o);
    return st;
}

rl_status rl_softmax_backward(rl_tensor *g, rl_tensor *y, int axis, bool log, rl_tensor **out)
{
    rl_axis_split s;
    rl_tensor *gc = NULL, *yc = NULL, *o = NULL;
    rl_softmax_args a = {.op = log ? RL_LOG_SOFTMAX : RL_SOFTMAX, .dtype = y->dtype, .backward = 1};
    rl_status st = RL_OK;
    RL_RETURN(rl_axis_split_of(y, axis, &s));
    RL_TRY(rl_plain(g, (rl_dtype)y->dtype, &gc));
    RL_TRY(rl_plain(y, RL_DTYPE_NONE, &yc));
    RL_TRY(rl_tensor_empty(y->ndim, y->shape, (rl_dtype)y->dtype, rl_tensor_device(y), &o));
    if (o->numel > 0) {
        a.outer = s.outer;
        a.n = s.n;
        a.inner = s.inner;
        a.x = rl_tensor_data(gc);
        a.y = rl_tensor_data(yc);
        a.out = rl_tensor_data(o);
        RL_TRY(rl_launch(y, RL_K_SOFTMAX, &a));
    }
    *out = o;
    o = NULL;
fail:
    rl_tensor_release(gc);
    rl_tensor_release(yc);
    rl_tensor_release(o);
    return st;
}

rl_status rl_softmax(rl_tensor *x, int64_t dim, bool log, rl_dtype d, rl_tensor **out)
{
    rl_tensor *in = NULL, *o = NULL;
    rl_node *node;
    rl_status st = RL_OK;
    int axis;
    RL_RETURN(rl_axis_normalize(dim, x->ndim, &axis));
    if (d == RL_DTYPE_NONE || d == x->dtype)
        in = rl_tensor_retain(x);
    else
        RL_TRY(rl_cast(x, d, &in));
    if (!rl_dtype_is_float((rl_dtype)in->dtype))
        RL_FAIL(RL_ERR_NOT_IMPLEMENTED, "\"%s\" not implemented for '%s'", log ? "log_softmax_kernel_impl" : "softmax_kernel_impl",
                rl_scalar_type_text((rl_dtype)in->dtype));
    RL_TRY(softmax_kernel(in, axis, log, &o));
    RL_TRY(rl_record(log ? &rl_class_log_softmax : &rl_class_softmax, &in, 1, &o, 1, 1, &node));
    if (node) {
        node->attrs.i[0] = axis;
        RL_TRY(rl_node_save(node, 0, o, 0));
    }
    *out = o;
    o = NULL;
fail:
    rl_tensor_release(in);
    rl_tensor_release(o);
    return st;
}

static rl_status softmax_op(rl_call *c, rl_result *r, bool log)
{
    rl_tensor *out = NULL;
    const rl_arg *d = &c->args[2];
    return rl_give(rl_softmax(c->args[0].t, c->args[1].i, log, d->given ? d->dtype : RL_DTYPE_NONE, &out), out, r);
}

rl_status rl_op_softmax(rl_call *c, rl_result *r) { return softmax_op(c, r, false); }
rl_status rl_op_log_softmax(rl_call *c, rl_result *r) { return softmax_op(c, r, true); }

/* ---- layer norm and RMS norm ---- */

typedef struct norm_call {
    rl_tensor *x, *weight, *bias;
    const int64_t *shape;
    int nshape;
    int64_t rows, n;
    double eps;
    bool rms;
} norm_call;

static rl_status check_parameter(const rl_tensor *p, const char *name, const norm_call *k)
{
    bool same = !p || p->ndim == k->nshape;
    for (int d = 0; p && same && d < k->nshape; d++)
        same = p->shape[d] == k->shape[d];
    if (same)
        return RL_OK;
    return rl_fail(RL_ERR_RUNTIME, "Expected %s to be of same shape as normalized_shape, but got %s of shape %s and normalized_shape = "
                                   "%s", name, name,
                   rl_shape_text(p->ndim, p->shape), rl_shape_text(k->nshape, k->shape));
}

static rl_status norm_check(norm_call *k)
{
    const rl_tensor *x = k->x;
    int lead = x->ndim - k->nshape;
    if (k->nshape < 1)
        return rl_fail(RL_ERR_RUNTIME, "Expected normalized_shape to be at least 1-dimensional, i.e., containing at least one element, "
                                       "but got normalized_shape = []");
    RL_RETURN(check_parameter(k->weight, "weight", k));
    RL_RETURN(check_parameter(k->bias, "bias", k));
    bool same = lead >= 0;
    for (int d = 0; same && d < k->nshape; d++)
        same = x->shape[lead + d] == k->shape[d];
    if (!same) {
        const char *want = rl_shape_text(k->nshape, k->shape);
        return rl_fail(RL_ERR_RUNTIME, "Given normalized_shape=%s, expected input with shape [*, %s, but got input of size%s", want,
                       want + 1,
                       rl_shape_text(x->ndim, x->shape));
    }
    if (!rl_dtype_is_float((rl_dtype)x->dtype))
        return rl_fail(RL_ERR_NOT_IMPLEMENTED, "\"LayerNormKernelImpl\" not implemented for '%s'", rl_scalar_type_text((rl_dtype)x->dtype));
    k->rows = k->n = 1;
    for (int d = 0; d < x->ndim; d++)
        *(d < lead ? &k->rows : &k->n) *= x->shape[d];
    rl_tensor *all[3] = {k->x, k->weight, k->bias};
    return rl_same_device(all, 3, k->rms ? "rms_norm" : "layer_norm");
}

/* Scratch of one number a row, in the accumulation dtype. */
static rl_status row_numbers(const rl_tensor *x, int64_t rows, rl_tensor **out)
{
    return rl_tensor_empty(1, &rows, x->dtype == RL_F64 ? RL_F64 : RL_F32, rl_tensor_device(x), out);
}

static rl_status norm_forward(const norm_call *k, rl_tensor *out, rl_tensor *mean, rl_tensor *rstd)
{
    rl_tensor *x = NULL, *w = NULL, *b = NULL;
    rl_layer_norm_args a = {.dtype = k->x->dtype, .rms = k->rms, .rows = k->rows, .n = k->n, .eps = k->eps};
    rl_status st = RL_OK;
    RL_TRY(rl_plain(k->x, RL_DTYPE_NONE, &x));
    if (k->weight)
        RL_TRY(rl_plain(k->weight, (rl_dtype)k->x->dtype, &w));
    if (k->bias)
        RL_TRY(rl_plain(k->bias, (rl_dtype)k->x->dtype, &b));
    a.x = rl_tensor_data(x);
    a.weight = w ? rl_tensor_data(w) : NULL;
    a.bias = b ? rl_tensor_data(b) : NULL;
    a.out = rl_tensor_data(out);
    a.mean = rl_tensor_data(mean);
    a.rstd = rl_tensor_data(rstd);
    if (out->numel > 0)
        RL_TRY(rl_launch(out, RL_K_LAYER_NORM, &a));
fail:
    rl_tensor_release(x);
    rl_tensor_release(w);
    rl_tensor_release(b);
    return st;
}

/* saved: x, weight, mean, rstd; attrs: i[0] n, f[0] eps; the list is normalized_shape. */
static rl_status norm_record(const norm_call *k, rl_tensor *out, rl_tensor *mean, rl_tensor *rstd)
{
    rl_tensor *in[3] = {k->x, k->weight, k->bias};
    rl_node *node;
    RL_RETURN(rl_record(k->rms ? &rl_class_rms_norm : &rl_class_layer_norm, in, k->rms ? 2 : 3, &out, 1, 4, &node));
    if (!node)
        return RL_OK;
    node->attrs.i[0] = k->n;
    node->attrs.f[0] = k->eps;
    RL_RETURN(rl_node_save(node, 0, k->x, -1));
    if (k->weight)
        RL_RETURN(rl_node_save(node, 1, k->weight, -1));
    RL_RETURN(rl_node_save(node, 2, mean, -1));
    RL_RETURN(rl_node_save(node, 3, rstd, -1));
    return rl_node_set_list(node, k->shape, k->nshape);
}

static rl_status norm_run(norm_call *k, rl_tensor **out)
{
    rl_tensor *mean = NULL, *rstd = NULL, *o = NULL;
    rl_status st = RL_OK;
    RL_RETURN(norm_check(k));
    RL_TRY(rl_tensor_empty(k->x->ndim, k->x->shape, (rl_dtype)k->x->dtype, rl_tensor_device(k->x), &o));
    RL_TRY(row_numbers(k->x, k->rows, &mean));
    RL_TRY(row_numbers(k->x, k->rows, &rstd));
    RL_TRY(norm_forward(k, o, mean, rstd));
    RL_TRY(norm_record(k, o, mean, rstd));
    *out = o;
    o = NULL;
fail:
    rl_tensor_release(mean);
    rl_tensor_release(rstd);
    rl_tensor_release(o);
    return st;
}

rl_status rl_layer_norm(rl_tensor *x, const int64_t *shape, int n, rl_tensor *weight, rl_tensor *bias, double eps, rl_tensor **out)
{
    norm_call k = {.x = x, .shape = shape, .nshape = n, .weight = weight, .bias = bias, .eps = eps};
    return norm_run(&k, out);
}

rl_status rl_op_layer_norm(rl_call *c, rl_result *r)
{
    rl_tensor *out = NULL;
    rl_status st = rl_layer_norm(c->args[0].t, c->args[1].ints.v, c->args[1].ints.n, c->args[2].given ? c->args[2].t : NULL,
                                 c->args[3].given ? c->args[3].t : NULL, c->args[4].f, &out);
    return rl_give(st, out, r);
}

static double default_eps(rl_dtype d) { return d == RL_F64 ? DBL_EPSILON : d == RL_F16 ? 0.0009765625 : d == RL_BF16 ? 0.0078125
                                       : FLT_EPSILON; }

/* (input, normalized_shape, weight=None, float? eps=None) */
rl_status rl_op_rms_norm(rl_call *c, rl_result *r)
{
    rl_tensor *out = NULL;
    norm_call k = {.x = c->args[0].t, .shape = c->args[1].ints.v, .nshape = c->args[1].ints.n, .weight = c->args[2].given ? c->args[2].t
                   : NULL, .rms = true};
    k.eps = c->args[3].given ? c->args[3].f : default_eps((rl_dtype)k.x->dtype);
    return rl_give(norm_run(&k, &out), out, r);
}

rl_status rl_layer_norm_backward(const rl_layer_norm_backward_args *k, rl_tensor **dx, rl_tensor **dw, rl_tensor **db)
{
    rl_tensor *g = NULL, *x = NULL, *w = NULL;
    rl_dtype d = (rl_dtype)k->x->dtype;
    rl_layer_norm_args a = {.dtype = d, .rms = k->rms, .backward = 1, .rows = k->mean->numel, .n = k->n, .eps = k->eps};
    rl_status st = RL_OK;
    RL_TRY(rl_plain(k->g, d, &g));
    RL_TRY(rl_plain(k->x, d, &x));
    if (k->weight)
        RL_TRY(rl_plain(k->weight, d, &w));
    if (dx)
        RL_TRY(rl_tensor_empty(k->x->ndim, k->x->shape, d, rl_tensor_device(k->x), dx));
    if (dw)
        RL_TRY(rl_zeros(1, &k->n, d, rl_tensor_device(k->x), dw));
    if (db)
        RL_TRY(rl_zeros(1, &k->n, d, rl_tensor_device(k->x), db));
    a.grad = rl_tensor_data(g);
    a.x = rl_tensor_data(x);
    a.weight = w ? rl_tensor_data(w) : NULL;
    a.mean = rl_tensor_data(k->mean);
    a.rstd = rl_tensor_data(k->rstd);
    a.dx = dx ? rl_tensor_data(*dx) : NULL;
    a.dw = dw ? rl_tensor_data(*dw) : NULL;
    a.db = db ? rl_tensor_data(*db) : NULL;
    if (x->numel > 0)
        RL_TRY(rl_launch(k->x, RL_K_LAYER_NORM, &a));
fail:
    rl_tensor_release(g);
    rl_tensor_release(x);
    rl_tensor_release(w);
    return st;
}
