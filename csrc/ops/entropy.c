/* entropy.c: cross_entropy and nll_loss with classes as integers (one fused kernel over rows of classes) or as probabilities (composed).
 *
 * The fused node keeps one number a row (the logarithm of the sum of exponentials) instead of a second tensor of logits' size; it carries
 * PyTorch's name of the outer node, NllLossBackward0, and its edge is the logits.
 */
#include "loss.h"

#include <math.h>

/* ---- layout: classes last ---- */

static int class_axis(const rl_tensor *x) { return x->ndim == 1 ? 0 : 1; }

rl_status rl_class_rows(rl_tensor *x, rl_tensor **out)
{
    int64_t order[RL_MAX_NDIM];
    rl_tensor *turned = NULL;
    rl_status st = RL_OK;
    if (x->ndim <= 2)
        return rl_plain(x, RL_DTYPE_NONE, out);
    for (int d = 0; d < x->ndim; d++)
        order[d] = d == 0 ? 0 : d == x->ndim - 1 ? 1 : d + 1;
    bool grad = rl_grad_off();
    RL_TRY(rl_permute(x, x->ndim, order, &turned));
    RL_TRY(rl_contiguous(turned, out));
fail:
    rl_grad_restore(grad);
    rl_tensor_release(turned);
    return st;
}

rl_status rl_class_rows_back(rl_tensor *rows, const rl_tensor *x, rl_tensor **out)
{
    int64_t shape[RL_MAX_NDIM], order[RL_MAX_NDIM];
    rl_tensor *wide = NULL;
    rl_status st = RL_OK;
    if (x->ndim <= 2) {
        *out = rl_tensor_retain(rows);
        return RL_OK;
    }
    for (int d = 0; d < x->ndim; d++) {
        shape[d] = x->shape[d == 0 ? 0 : d == x->ndim - 1 ? 1 : d + 1];
        order[d] = d == 0 ? 0 : d == 1 ? x->ndim - 1 : d - 1;
    }
    RL_TRY(rl_view(rows, x->ndim, shape, &wide));
    RL_TRY(rl_permute(wide, x->ndim, order, out));
fail:
    rl_tensor_release(wide);
    return st;
}

/* ---- checks ---- */

static rl_status check_weight(const rl_tensor *weight, int64_t classes)
{
    if (!weight || (weight->ndim == 1 && weight->numel == classes))
        return RL_OK;
    return rl_fail(RL_ERR_RUNTIME, "weight tensor should be defined either for all %lld classes or no classes but got weight tensor of "
                                   "shape: %s",
                   (long long)classes, rl_shape_text(weight->ndim, weight->shape));
}

static rl_status check_target(const rl_class_loss *k)
{
    const rl_tensor *x = k->x, *t = k->target;
    bool same = t->ndim == (x->ndim == 1 ? 0 : x->ndim - 1) || (x->ndim == 1 && t->ndim == 1);
    if (x->ndim < 1)
        return rl_fail(RL_ERR_VALUE, "Expected 1 or more dimensions (got 0)");
    if (x->ndim != 1 && t->ndim > 0 && x->shape[0] != t->shape[0])
        return rl_fail(RL_ERR_VALUE, "Expected input batch_size (%lld) to match target batch_size (%lld).", (long long)x->shape[0],
                       (long long)t->shape[0]);
    if (x->ndim <= 2 && t->ndim > 1)
        return rl_fail(RL_ERR_RUNTIME, "0D or 1D target tensor expected, multi-target not supported");
    for (int d = 1; same && d < t->ndim; d++)
        same = t->shape[d] == x->shape[d + 1];
    if (x->ndim == 1 && t->ndim == 1)
        same = t->numel == 1;
    if (!same && (x->ndim == 3 || x->ndim > 4)) {
        int64_t wanted[RL_MAX_NDIM];
        for (int d = 0; d < x->ndim - 1; d++)
            wanted[d] = x->shape[d + (d > 0)];
        return rl_fail(RL_ERR_RUNTIME, "Expected target size %s, got %s", rl_shape_text(x->ndim - 1, wanted), rl_shape_text(t->ndim, t->shape));
    }
    if (!same)
        return rl_fail(RL_ERR_RUNTIME, "size mismatch (got input: %s, target: %s)", rl_shape_text(x->ndim, x->shape),
                       rl_shape_text(t->ndim, t->shape));
    if (t->dtype != RL_I64 && t->dtype != RL_U8)
        return rl_fail(RL_ERR_RUNTIME, "expected target dtype to be Long or Byte, but got %s", rl_scalar_type_text((rl_dtype)t->dtype));
    if (!rl_dtype_is_float((rl_dtype)x->dtype))
        return rl_fail(RL_ERR_NOT_IMPLEMENTED, "\"%s\" not implemented for '%s'", k->log_input ? "nll_loss_out_frame"
                       : "log_softmax_kernel_impl",
                       rl_scalar_type_text((rl_dtype)x->dtype));
    if (k->reduction < 0 || k->reduction > 2)
        return rl_fail(RL_ERR_VALUE, "%d is not a valid value for reduction", k->reduction);
    rl_tensor *all[3] = {k->x, k->target, k->weight};
    RL_RETURN(rl_same_device(all, 3, "nll_loss"));
    return check_weight(k->weight, x->shape[class_axis(x)]);
}

/* ---- the fused kernel ---- */

static void kernel_args(rl_cross_entropy_args *a, const rl_class_loss *k)
{
    int64_t classes = k->x->shape[class_axis(k->x)];
    *a = (rl_cross_entropy_args){.dtype = k->x->dtype, .reduction = (uint8_t)k->reduction, .log_input = k->log_input,
                                 .classes = classes, .ignore = k->ignore,
                                 .smoothing = k->smoothing};
    a->rows = k->target->numel;
}

static rl_dtype wide_dtype(const rl_tensor *x) { return x->dtype == RL_F64 ? RL_F64 : RL_F32; }

typedef struct class_buffers {
    rl_tensor *rows, *target, *weight;
} class_buffers;

static rl_status buffers_get(class_buffers *b, const rl_class_loss *k)
{
    *b = (class_buffers){NULL};
    RL_RETURN(rl_class_rows(k->x, &b->rows));
    RL_RETURN(rl_plain(k->target, RL_I64, &b->target));
    return k->weight ? rl_plain(k->weight, (rl_dtype)k->x->dtype, &b->weight) : RL_OK;
}

static void buffers_drop(class_buffers *b)
{
    rl_tensor_release(b->rows);
    rl_tensor_release(b->target);
    rl_tensor_release(b->weight);
}

static rl_status class_loss_forward(const rl_class_loss *k, rl_tensor **loss, rl_tensor **lse, rl_tensor **total)
{
    class_buffers b = {NULL};
    rl_cross_entropy_args a;
    rl_status st = RL_OK;
    rl_dtype d = (rl_dtype)k->x->dtype;
    rl_device dev = rl_tensor_device(k->x);
    kernel_args(&a, k);
    RL_TRY(buffers_get(&b, k));
    RL_TRY(rl_tensor_empty(1, &a.rows, wide_dtype(k->x), dev, lse));
    RL_TRY(rl_zeros(0, NULL, wide_dtype(k->x), dev, total));
    if (k->reduction == RL_LOSS_NONE)
        RL_TRY(rl_tensor_empty(k->target->ndim, k->target->shape, d, dev, loss));
    else
        RL_TRY(rl_full(0, NULL, rl_scalar_float(k->reduction == RL_LOSS_MEAN ? NAN : 0), d, dev, loss));
    a.x = rl_tensor_data(b.rows);
    a.target = rl_tensor_data(b.target);
    a.weight = b.weight ? rl_tensor_data(b.weight) : NULL;
    a.loss = rl_tensor_data(*loss);
    a.lse = rl_tensor_data(*lse);
    a.total_weight = rl_tensor_data(*total);
    if (a.rows > 0)
        RL_TRY(rl_launch(k->x, RL_K_CROSS_ENTROPY, &a));
fail:
    buffers_drop(&b);
    return st;
}

rl_status rl_class_loss_backward(const rl_class_loss *k, rl_tensor *g, rl_tensor *lse, rl_tensor *total, rl_tensor **out)
{
    class_buffers b = {NULL};
    rl_cross_entropy_args a;
    rl_tensor *gc = NULL, *dx = NULL;
    rl_status st = RL_OK;
    kernel_args(&a, k);
    a.backward = 1;
    RL_TRY(buffers_get(&b, k));
    RL_TRY(rl_plain(g, (rl_dtype)k->x->dtype, &gc));
    RL_TRY(rl_tensor_empty(b.rows->ndim, b.rows->shape, (rl_dtype)k->x->dtype, rl_tensor_device(k->x), &dx));
    a.x = rl_tensor_data(b.rows);
    a.target = rl_tensor_data(b.target);
    a.weight = b.weight ? rl_tensor_data(b.weight) : NULL;
    a.lse = rl_tensor_data(lse);
    a.total_weight = rl_tensor_data(total);
    a.grad = rl_tensor_data(gc);
    a.dx = rl_tensor_data(dx);
    if (dx->numel > 0)
        RL_TRY(rl_launch(k->x, RL_K_CROSS_ENTROPY, &a));
    RL_TRY(rl_class_rows_back(dx, k->x, out));
fail:
    buffers_drop(&b);
    rl_tensor_release(gc);
    rl_tensor_release(dx);
    return st;
}

/* saved: x, target, weight, lse, total; attrs: i[0] reduction, i[1] ignore, i[2] log_input, f[0] smoothing. */
static rl_status class_loss_record(const rl_class_loss *k, rl_tensor *loss, rl_tensor *lse, rl_tensor *total)
{
    rl_tensor *kept[5] = {k->x, k->target, k->weight, lse, total};
    rl_node *node;
    RL_RETURN(rl_record(k->log_input ? &rl_class_nll_loss : &rl_class_cross_entropy, &k->x, 1, &loss, 1, 5, &node));
    if (!node)
        return RL_OK;
    node->name = k->smoothing > 0 ? "AddBackward0" : k->x->ndim > 2 ? "NllLoss2DBackward0" : "NllLossBackward0";
    node->attrs.i[0] = k->reduction;
    node->attrs.i[1] = k->ignore;
    node->attrs.i[2] = k->log_input;
    node->attrs.f[0] = k->smoothing;
    for (int i = 0; i < 5; i++)
        if (kept[i])
            RL_RETURN(rl_node_save(node, i, kept[i], -1));
    return RL_OK;
}

static rl_status class_loss(const rl_class_loss *k, rl_tensor **out)
{
    rl_tensor *loss = NULL, *lse = NULL, *total = NULL;
    rl_status st = RL_OK;
    RL_RETURN(check_target(k));
    RL_TRY(class_loss_forward(k, &loss, &lse, &total));
    RL_TRY(class_loss_record(k, loss, lse, total));
    *out = loss;
    loss = NULL;
fail:
    rl_tensor_release(loss);
    rl_tensor_release(lse);
    rl_tensor_release(total);
    return st;
}

/* (self, target, Tensor? weight=None, int reduction=Mean, int ignore_index=-100) */
rl_status rl_op_nll_loss(rl_call *c, rl_result *r)
{
    rl_tensor *out = NULL;
    rl_class_loss k = {c->args[0].t, c->args[1].t, c->args[2].given ? c->args[2].t : NULL, (int)c->args[3].i, c->args[4].i, 0, true};
    return rl_give(class_loss(&k, &out), out, r);
}

/* ---- probabilities as targets, composed of public operators ---- */

static rl_status check_probabilities(const rl_class_loss *k)
{
    if (!rl_dtype_is_float((rl_dtype)k->target->dtype))
        return rl_fail(RL_ERR_RUNTIME, "Expected floating point type for target with class probabilities, got %s",
                       rl_scalar_type_text((rl_dtype)k->target->dtype));
    if (k->ignore >= 0)
        return rl_fail(RL_ERR_RUNTIME, "ignore_index is not supported for floating point target");
    return check_weight(k->weight, k->x->shape[class_axis(k->x)]);
}

/* Smoothed target times the log-probabilities, times weight along the classes. */
static rl_status soft_points(const rl_class_loss *k, rl_tensor **out)
{
    int axis = class_axis(k->x);
    int64_t shape[RL_MAX_NDIM], classes = k->x->shape[axis];
    rl_tensor *logs = NULL, *target = NULL, *scaled = NULL, *product = NULL, *weight = NULL;
    rl_status st = RL_OK;
    RL_TRY(rl_softmax(k->x, axis, true, RL_DTYPE_NONE, &logs));
    if (k->smoothing > 0) {
        RL_TRY(rl_mul(rl_operand_tensor(k->target), rl_operand_number(1 - k->smoothing), &scaled));
        RL_TRY(rl_add(rl_operand_tensor(scaled), rl_operand_number(k->smoothing / (double)classes), &target));
    } else {
        target = rl_tensor_retain(k->target);
    }
    RL_TRY(rl_mul(rl_operand_tensor(logs), rl_operand_tensor(target), &product));
    if (k->weight) {
        for (int d = 0; d < k->x->ndim; d++)
            shape[d] = d == axis ? classes : 1;
        RL_TRY(rl_view(k->weight, k->x->ndim, shape, &weight));
        RL_TRY(rl_mul(rl_operand_tensor(product), rl_operand_tensor(weight), out));
    } else {
        *out = rl_tensor_retain(product);
    }
fail:
    rl_tensor_release(logs);
    rl_tensor_release(target);
    rl_tensor_release(scaled);
    rl_tensor_release(product);
    rl_tensor_release(weight);
    return st;
}

static rl_status soft_loss(const rl_class_loss *k, rl_tensor **out)
{
    rl_tensor *points = NULL, *sum = NULL, *negative = NULL;
    rl_status st = RL_OK;
    int64_t axis = class_axis(k->x), classes = k->x->shape[axis];
    RL_RETURN(check_probabilities(k));
    RL_TRY(soft_points(k, &points));
    RL_TRY(rl_sum(points, &axis, k->reduction == RL_LOSS_NONE, false, RL_DTYPE_NONE, &sum));
    RL_TRY(rl_neg(sum, &negative));
    if (k->reduction == RL_LOSS_MEAN) {
        double rows = classes ? (double)(k->x->numel / classes) : NAN;
        RL_TRY(rl_div(rl_operand_tensor(negative), rl_operand_number(rows), out));
    } else {
        *out = rl_tensor_retain(negative);
    }
fail:
    rl_tensor_release(points);
    rl_tensor_release(sum);
    rl_tensor_release(negative);
    return st;
}

/* (self, target, Tensor? weight=None, int reduction=Mean, int ignore_index=-100, float label_smoothing=0.0) */
rl_status rl_op_cross_entropy(rl_call *c, rl_result *r)
{
    rl_tensor *out = NULL;
    rl_class_loss k = {c->args[0].t, c->args[1].t, c->args[2].given ? c->args[2].t : NULL, (int)c->args[3].i, c->args[4].i,
                       c->args[5].f, false};
    if (!(k.smoothing >= 0 && k.smoothing <= 1))
        return rl_fail(RL_ERR_RUNTIME, "label_smoothing must be between 0.0 and 1.0. Got: %g", k.smoothing);
    bool soft = k.x->ndim > 0 && rl_tensor_same_shape(k.x, k.target);
    if (soft && k.x->ndim == 1 && !rl_dtype_is_float((rl_dtype)k.target->dtype) && k.x->numel == 1)
        soft = false;
    return rl_give(soft ? soft_loss(&k, &out) : class_loss(&k, &out), out, r);
}
