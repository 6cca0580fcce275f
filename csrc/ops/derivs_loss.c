/* derivs_loss: backward rules of losses. A plain backward takes the derivative columns of the row, or the fused kernel; under create_graph the
 * gradient is composed of public operators, so that it differentiates again.
 */
#include "loss.h"

static bool fused(void) { return !rl_state_get()->grad_mode; }

/* The gradient of every point, from the gradient of the reduced loss. */
static rl_tensor *point_gradient(rl_deriv *d)
{
    const rl_attrs *a = &d->node->attrs;
    return a->i[0] == 1 ? d_div_number(d, d->gout[0], (double)a->i[1]) : d->gout[0];
}

/* ---- two tensors ---- */

typedef struct pair {
    rl_tensor *x, *t, *g; /* g: of the points, weights included */
} pair;

static bool pair_read(rl_deriv *d, pair *p)
{
    rl_tensor *weight = d_saved(d, 2);
    p->x = d_saved(d, 0);
    p->t = d_saved(d, 1);
    p->g = point_gradient(d);
    if (weight && d->st == RL_OK)
        p->g = d_mul(d, p->g, weight);
    return d->st == RL_OK;
}

static void give(rl_deriv *d, int k, rl_tensor *gradient, rl_tensor *of)
{
    if (d->st == RL_OK && gradient)
        d_set(d, k, d_sum_to(d, gradient, of->ndim, of->shape));
}

/* Gradient k of a BINARY row by its derivative column, when every operand has one dtype. */
static rl_tensor *column(rl_deriv *d, const pair *p, int k)
{
    rl_tensor *t = NULL;
    rl_number params[4] = {{.f = d->node->attrs.f[0]}};
    rl_operand in[3] = {rl_operand_tensor(p->g), rl_operand_tensor(p->x), rl_operand_tensor(p->t)};
    if (d->st != RL_OK)
        return NULL;
    rl_status st = rl_expression(rl_op_table[d->node->attrs.i[2]].expr + 1 + k, in, 3, params, &t);
    return d_keep(d, st, t);
}

static bool one_dtype(const pair *p) { return p->x->dtype == p->t->dtype && p->g->dtype == p->x->dtype; }

/* d(loss)/dt is -d(loss)/dx for all that see only x - t. */
static void difference_rule(rl_deriv *d, rl_tensor *(*composed)(rl_deriv *, const pair *))
{
    pair p;
    if (!pair_read(d, &p))
        return;
    bool fast = fused() && one_dtype(&p);
    if (d_needs(d, 0))
        give(d, 0, fast ? column(d, &p, 0) : composed(d, &p), p.x);
    if (d_needs(d, 1))
        give(d, 1, fast ? column(d, &p, 1) : d_neg(d, composed(d, &p)), p.t);
}

static rl_tensor *mse_composed(rl_deriv *d, const pair *p) { return d_mul(d, d_scale(d, p->g, 2), d_sub(d, p->x, p->t)); }
static void back_mse_loss(rl_deriv *d) { difference_rule(d, mse_composed); }

static rl_tensor *smooth_l1_composed(rl_deriv *d, const pair *p)
{
    double beta = d->node->attrs.f[0];
    rl_tensor *e = d_sub(d, p->x, p->t), *near = d_lt_number(d, d_abs(d, e), beta);
    rl_tensor *inside = d_keep_where(d, d_div_number(d, e, beta), near, 0), *outside = d_fill_where(d, d_sgn(d, e), near, 0);
    return d_mul(d, p->g, d_add(d, inside, outside));
}
static void back_smooth_l1(rl_deriv *d) { difference_rule(d, smooth_l1_composed); }

static rl_tensor *huber_composed(rl_deriv *d, const pair *p)
{
    double delta = d->node->attrs.f[0];
    rl_tensor *e = d_sub(d, p->x, p->t), *far = d_ge_number(d, d_abs(d, e), delta);
    rl_tensor *inside = d_fill_where(d, e, far, 0), *outside = d_keep_where(d, d_scale(d, d_sgn(d, e), delta), far, 0);
    return d_mul(d, p->g, d_add(d, inside, outside));
}
static void back_huber(rl_deriv *d) { difference_rule(d, huber_composed); }

/* ---- binary cross entropy ---- */

static void back_weight(rl_deriv *d) /* of weight and pos_weight: PyTorch has none */
{
    for (int k = 2; k < d->node->nedges; k++)
        if (d_needs(d, k))
            d->st = rl_fail(RL_ERR_RUNTIME, "the derivative for '%s' is not implemented", k == 2 ? "weight" : "pos_weight");
}

/* (x - t) / max(x (1 - x), 1e-12) */
static rl_tensor *bce_composed(rl_deriv *d, const pair *p)
{
    rl_tensor *one_minus = d_add_number(d, d_neg(d, p->x), 1), *v = d_mul(d, p->x, one_minus);
    return d_div(d, d_mul(d, p->g, d_sub(d, p->x, p->t)), d_fill_where(d, v, d_lt_number(d, v, 1e-12), 1e-12));
}

static rl_tensor *clamped_log(rl_deriv *d, rl_tensor *x)
{
    rl_tensor *l = d_log(d, x);
    return d_fill_where(d, l, d_lt_number(d, l, -100), -100);
}

static void back_bce(rl_deriv *d)
{
    pair p;
    back_weight(d);
    if (!pair_read(d, &p))
        return;
    if (d_needs(d, 0))
        give(d, 0, fused() && one_dtype(&p) ? column(d, &p, 0) : bce_composed(d, &p), p.x);
    if (d_needs(d, 1)) {
        rl_tensor *one_minus = d_add_number(d, d_neg(d, p.x), 1);
        give(d, 1, d_mul(d, p.g, d_sub(d, clamped_log(d, one_minus), clamped_log(d, p.x))), p.t);
    }
}

static rl_tensor *d_sigmoid(rl_deriv *d, rl_tensor *x)
{
    rl_tensor *t = NULL;
    if (d->st != RL_OK)
        return NULL;
    rl_status st = rl_sigmoid(x, &t);
    return d_keep(d, st, t);
}

static rl_tensor *d_softplus(rl_deriv *d, rl_tensor *x)
{
    rl_tensor *zero = d_zeros_like(d, x), *t = NULL;
    if (d->st != RL_OK)
        return NULL;
    rl_status st = rl_logaddexp(rl_operand_tensor(x), rl_operand_tensor(zero), &t);
    return d_keep(d, st, t);
}

/* sigmoid(x) - t; with a weight w of positives: sigmoid(x) (1 - t + w t) - w t. */
static rl_tensor *logits_composed(rl_deriv *d, const pair *p, rl_tensor *positive)
{
    rl_tensor *s = d_sigmoid(d, p->x);
    if (!positive)
        return d_mul(d, p->g, d_sub(d, s, p->t));
    rl_tensor *wt = d_mul(d, p->t, positive), *factor = d_add(d, d_add_number(d, d_neg(d, p->t), 1), wt);
    return d_mul(d, p->g, d_sub(d, d_mul(d, s, factor), wt));
}

static void back_bce_logits(rl_deriv *d)
{
    pair p;
    rl_tensor *positive = d_saved(d, 3);
    back_weight(d);
    if (!pair_read(d, &p))
        return;
    if (d_needs(d, 0))
        give(d, 0, fused() && !positive && one_dtype(&p) ? column(d, &p, 0) : logits_composed(d, &p, positive), p.x);
    if (d_needs(d, 1)) {
        rl_tensor *slope = d_neg(d, p.x);
        if (positive)
            slope = d_add(d, slope, d_mul(d, d_add_number(d, positive, -1), d_softplus(d, slope)));
        give(d, 1, d_mul(d, p.g, slope), p.t);
    }
}

/* ---- classes ---- */

/* How much of each class every row counts: (1 - s) w[t] at the target, s w[c] / C everywhere, nothing in ignored rows. No gradient passes. */
static rl_tensor *shares(rl_deriv *d, const rl_class_loss *k, int axis)
{
    int64_t classes = k->x->shape[axis], shape[RL_MAX_NDIM];
    bool grad = rl_grad_off();
    rl_tensor *t = d_reshape(d, k->target, k->x->ndim > 1 ? k->target->ndim : 0, k->target->shape), *ignored
        = d_eq_number(d, t, (double)k->ignore);
    rl_tensor *safe = d_unsqueeze(d, d_fill_where(d, t, ignored, 0), axis), *weight = NULL, *all = NULL;
    for (int i = 0; i < k->x->ndim; i++)
        shape[i] = i == axis ? classes : 1;
    if (k->weight)
        weight = d_expand(d, d_reshape(d, k->weight, k->x->ndim, shape), k->x->ndim, k->x->shape);
    else if (d->st == RL_OK)
        weight = d_add_number(d, d_zeros_like(d, k->x), 1);
    safe = d->st == RL_OK ? d_cast(d, safe, RL_I64) : NULL;
    all = d_scatter_add(d, d_scale(d, weight, k->smoothing / (double)(classes ? classes : 1)), axis, safe,
                        d_scale(d, d_gather(d, weight, axis, safe), 1 - k->smoothing));
    all = d_fill_where(d, all, d_unsqueeze(d, ignored, axis), 0);
    rl_grad_restore(grad);
    return all;
}

static void back_classes(rl_deriv *d)
{
    const rl_attrs *a = &d->node->attrs;
    rl_class_loss k = {d_saved(d, 0), d_saved(d, 1), d_saved(d, 2), (int)a->i[0], a->i[1], a->f[0], a->i[2] != 0};
    rl_tensor *lse = d_saved(d, 3), *total = d_saved(d, 4), *g = d->gout[0], *t = NULL;
    if (d->st != RL_OK)
        return;
    if (fused()) {
        rl_status st = rl_class_loss_backward(&k, g, lse, total, &t);
        return d_set(d, 0, d_keep(d, st, t));
    }
    int axis = k.x->ndim == 1 ? 0 : 1;
    rl_tensor *share = shares(d, &k, axis);
    if (k.reduction == RL_LOSS_MEAN)
        g = d_div(d, g, total);
    else if (k.reduction == RL_LOSS_NONE)
        g = d_unsqueeze(d, k.x->ndim > 1 ? g : d_reshape(d, g, 0, NULL), axis);
    if (d->st == RL_OK && g->dtype != k.x->dtype)
        g = d_cast(d, g, (rl_dtype)k.x->dtype);
    if (k.log_input)
        return d_set(d, 0, d_neg(d, d_mul(d, share, g)));
    rl_status st = d->st == RL_OK ? rl_softmax(k.x, axis, false, RL_DTYPE_NONE, &t) : d->st;
    t = d_keep(d, st, t);
    d_set(d, 0, d_mul(d, g, d_sub(d, d_mul(d, t, d_sum_axes(d, share, 1ull << axis, true)), share)));
}

static void back_nll_loss(rl_deriv *d) { back_classes(d); }
static void back_cross_entropy(rl_deriv *d) { back_classes(d); }

#define X(name, grad_fn, rule) RL_DERIV(name, grad_fn, rule)
RL_LOSS_DERIVS(X)
#undef X
