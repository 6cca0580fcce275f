/* loss.c: losses between two tensors of a shape: mse, l1, smooth l1, huber, binary cross entropy, kl_div.
 *
 * Where PyTorch has one node, so have we: a row of the table for the points (its derivative columns serve the backward), a mean or a sum
 * after
 * it, and a node over both. Where PyTorch composes (l1, kl_div), the composition is the same. reduction: 0 none, 1 mean, 2 sum, as
 * at::Reduction.
 */
#include "loss.h"

rl_status rl_op_l1_loss(rl_call *c, rl_result *r);

static rl_status reduce_points(rl_tensor *points, int64_t reduction, rl_tensor **out)
{
    if (reduction == 0) {
        *out = rl_tensor_retain(points);
        return RL_OK;
    }
    if (reduction != 1 && reduction != 2)
        return rl_fail(RL_ERR_VALUE, "%lld is not a valid value for reduction", (long long)reduction);
    return reduction == 1 ? rl_mean(points, NULL, 0, false, RL_DTYPE_NONE, out) : rl_sum(points, NULL, 0, false, RL_DTYPE_NONE, out);
}

static rl_status need_float(const rl_tensor *x, const rl_tensor *t, const char *kernel)
{
    rl_dtype d = rl_dtype_promote((rl_dtype)x->dtype, (rl_dtype)t->dtype);
    return rl_dtype_is_float(d) ? RL_OK : rl_fail(RL_ERR_NOT_IMPLEMENTED, "\"%s\" not implemented for '%s'", kernel,
                                                  rl_scalar_type_text(d));
}

/* One table row over x and target with one parameter, then the reduction; in: x, target and more inputs that backward needs (NULLs allowed). */
typedef struct point_loss {
    int row;
    const rl_node_class *cls;
    double p;
    int64_t reduction;
    rl_tensor *in[4]; /* x, target, weight, pos_weight */
} point_loss;

static rl_status points_of(const point_loss *k, rl_tensor **out)
{
    rl_tensor *plain = NULL;
    rl_scalar p = rl_scalar_float(k->p);
    rl_operand in[3] = {rl_operand_tensor(k->in[0]), rl_operand_tensor(k->in[1])};
    rl_status st;
    if (k->in[3]) {
        in[2] = rl_operand_tensor(k->in[3]);
        st = rl_elementwise(RL_OP_bce_weighted_point, in, 3, NULL, 0, NULL, false, &plain);
    } else {
        st = rl_elementwise(k->row, in, 2, &p, 1, NULL, false, &plain);
    }
    if (st != RL_OK || !k->in[2]) {
        *out = plain;
        return st;
    }
    st = rl_mul(rl_operand_tensor(plain), rl_operand_tensor(k->in[2]), out);
    rl_tensor_release(plain);
    return st;
}

/* attrs: i[0] reduction, i[1] the number of points, i[2] the row, f[0] the parameter; saved: the inputs. */
static rl_status point_loss_run(const point_loss *k, rl_tensor **out)
{
    rl_tensor *points = NULL, *o = NULL;
    rl_node *node;
    rl_status st;
    bool grad = rl_grad_off();
    st = points_of(k, &points);
    if (st == RL_OK)
        st = reduce_points(points, k->reduction, &o);
    rl_grad_restore(grad);
    RL_TRY(st);
    RL_TRY(rl_record(k->cls, k->in, 4 - !k->in[3] - (!k->in[3] && !k->in[2]), &o, 1, 4, &node));
    if (node) {
        node->attrs.i[0] = k->reduction;
        node->attrs.i[1] = points->numel;
        node->attrs.i[2] = k->row;
        node->attrs.f[0] = k->p;
        for (int i = 0; i < 4; i++)
            if (k->in[i])
                RL_TRY(rl_node_save(node, i, k->in[i], -1));
    }
    *out = o;
    o = NULL;
fail:
    rl_tensor_release(points);
    rl_tensor_release(o);
    return st;
}

/* (self, target, int reduction=Mean) */
rl_status rl_op_mse_loss(rl_call *c, rl_result *r)
{
    rl_tensor *out = NULL;
    point_loss k = {RL_OP_mse_point, &rl_class_mse_loss, 0, c->args[2].i, {c->args[0].t, c->args[1].t}};
    RL_RETURN(need_float(k.in[0], k.in[1], "mse_cpu"));
    return rl_give(point_loss_run(&k, &out), out, r);
}

/* (self, target, int reduction=Mean, float beta=1.0) */
rl_status rl_op_smooth_l1_loss(rl_call *c, rl_result *r)
{
    rl_tensor *out = NULL;
    point_loss k = {RL_OP_smooth_l1_point, &rl_class_smooth_l1_loss, c->args[3].f, c->args[2].i, {c->args[0].t, c->args[1].t}};
    RL_RETURN(need_float(k.in[0], k.in[1], "smooth_l1_cpu"));
    if (!(k.p >= 0))
        return rl_fail(RL_ERR_RUNTIME, "smooth_l1_loss does not support negative values for beta.");
    if (k.p == 0)
        return rl_op_l1_loss(c, r);
    return rl_give(point_loss_run(&k, &out), out, r);
}

/* (self, target, int reduction=Mean, float delta=1.0) */
rl_status rl_op_huber_loss(rl_call *c, rl_result *r)
{
    rl_tensor *out = NULL;
    point_loss k = {RL_OP_huber_point, &rl_class_huber_loss, c->args[3].f, c->args[2].i, {c->args[0].t, c->args[1].t}};
    RL_RETURN(need_float(k.in[0], k.in[1], "huber_cpu"));
    if (!(k.p > 0))
        return rl_fail(RL_ERR_RUNTIME, "huber_loss does not support non-positive values for delta.");
    return rl_give(point_loss_run(&k, &out), out, r);
}

/* |x - t| by its public parts. */
rl_status rl_op_l1_loss(rl_call *c, rl_result *r)
{
    rl_tensor *difference = NULL, *points = NULL, *out = NULL;
    rl_status st = RL_OK;
    RL_TRY(rl_sub(rl_operand_tensor(c->args[0].t), rl_operand_tensor(c->args[1].t), &difference));
    RL_TRY(rl_abs(difference, &points));
    RL_TRY(reduce_points(points, c->args[2].i, &out));
fail:
    rl_tensor_release(difference);
    rl_tensor_release(points);
    return rl_give(st, out, r);
}

/* Probabilities only: PyTorch refuses the rest before it takes a logarithm. */
static rl_status check_probabilities(rl_tensor *x)
{
    rl_reduction how = {.op = RL_RED_MIN, .mask = ~0ull, .dtype = (rl_dtype)x->dtype};
    rl_tensor *low = NULL, *high = NULL;
    rl_scalar a, b;
    rl_status st = RL_OK;
    if (x->numel == 0)
        return RL_OK;
    RL_TRY(rl_reduce_run(x, &how, &low, NULL));
    how.op = RL_RED_MAX;
    RL_TRY(rl_reduce_run(x, &how, &high, NULL));
    RL_TRY(rl_item(low, &a));
    RL_TRY(rl_item(high, &b));
    if (a.d < 0 || b.d > 1)
        RL_FAIL(RL_ERR_RUNTIME, "all elements of input should be between 0 and 1");
fail:
    rl_tensor_release(low);
    rl_tensor_release(high);
    return st;
}

/* (self, target, Tensor? weight=None, int reduction=Mean) */
rl_status rl_op_binary_cross_entropy(rl_call *c, rl_result *r)
{
    rl_tensor *out = NULL;
    point_loss k = {RL_OP_bce_point, &rl_class_bce, 0, c->args[3].i, {c->args[0].t, c->args[1].t, c->args[2].given ? c->args[2].t : NULL}};
    if (k.in[0]->dtype != k.in[1]->dtype)
        return rl_fail(RL_ERR_RUNTIME, "Found dtype %s but expected %s", rl_scalar_type_text((rl_dtype)k.in[1]->dtype),
                       rl_scalar_type_text((rl_dtype)k.in[0]->dtype));
    RL_RETURN(need_float(k.in[0], k.in[1], "binary_cross_entropy"));
    RL_RETURN(check_probabilities(k.in[0]));
    return rl_give(point_loss_run(&k, &out), out, r);
}

/* (self, target, Tensor? weight=None, Tensor? pos_weight=None, int reduction=Mean) */
rl_status rl_op_binary_cross_entropy_with_logits(rl_call *c, rl_result *r)
{
    rl_tensor *out = NULL;
    point_loss k = {RL_OP_bce_logits_point, &rl_class_bce_logits, 0, c->args[4].i,
                    {c->args[0].t, c->args[1].t, c->args[2].given ? c->args[2].t : NULL, c->args[3].given ? c->args[3].t : NULL}};
    RL_RETURN(need_float(k.in[0], k.in[1], "binary_cross_entropy_with_logits"));
    return rl_give(point_loss_run(&k, &out), out, r);
}

/* target (log target - x), 0 where target is 0; with log_target: exp(target) (target - x). */
static rl_status kl_points(rl_tensor *x, rl_tensor *t, bool log_target, rl_tensor **out)
{
    rl_tensor *a = NULL, *b = NULL;
    rl_status st = RL_OK;
    rl_operand ox = rl_operand_tensor(x), ot = rl_operand_tensor(t);
    if (log_target) {
        RL_TRY(rl_exp(t, &a));
        RL_TRY(rl_sub(ot, ox, &b));
        RL_TRY(rl_mul(rl_operand_tensor(a), rl_operand_tensor(b), out));
    } else {
        RL_TRY(rl_xlogy(ot, ot, &a));
        RL_TRY(rl_mul(ot, ox, &b));
        RL_TRY(rl_sub(rl_operand_tensor(a), rl_operand_tensor(b), out));
    }
fail:
    rl_tensor_release(a);
    rl_tensor_release(b);
    return st;
}

/* (self, target, int reduction=Mean, *, bool log_target=False) */
rl_status rl_op_kl_div(rl_call *c, rl_result *r)
{
    rl_tensor *points = NULL, *out = NULL;
    rl_status st = RL_OK;
    RL_TRY(need_float(c->args[0].t, c->args[1].t, "kl_div"));
    RL_TRY(kl_points(c->args[0].t, c->args[1].t, c->args[3].b, &points));
    RL_TRY(reduce_points(points, c->args[2].i, &out));
fail:
    rl_tensor_release(points);
    return rl_give(st, out, r);
}
