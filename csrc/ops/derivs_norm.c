/* derivs_norm: backward rules of operators over rows. A plain backward takes the fused kernel; under create_graph, the composed form below. */
#include "norm.h"

static bool fused(void) { return !rl_state_get()->grad_mode; }

/* softmax: y (g - sum g y). log_softmax: g - exp(y) sum g. */
static void back_rows(rl_deriv *d, bool log)
{
    rl_tensor *y = d_saved(d, 0), *g = d->gout[0], *t = NULL;
    int axis = (int)d->node->attrs.i[0];
    if (!y)
        return;
    if (fused()) {
        rl_status st = rl_softmax_backward(g, y, axis, log, &t);
        return d_set(d, 0, d_keep(d, st, t));
    }
    uint64_t mask = y->ndim ? 1ull << axis : 0;
    if (log)
        d_set(d, 0, d_sub(d, g, d_mul(d, d_exp(d, y), d_sum_axes(d, g, mask, true))));
    else
        d_set(d, 0, d_mul(d, y, d_sub(d, g, d_sum_axes(d, d_mul(d, g, y), mask, true))));
}

static void back_softmax(rl_deriv *d) { back_rows(d, false); }
static void back_log_softmax(rl_deriv *d) { back_rows(d, true); }

/* ---- layer norm ---- */

static void norm_fused(rl_deriv *d, rl_tensor *x, rl_tensor *weight, bool rms)
{
    const rl_attrs *at = &d->node->attrs;
    rl_layer_norm_backward_args a = {d->gout[0], x, weight, d_saved(d, 2), d_saved(d, 3), at->i[0], at->f[0], rms};
    rl_tensor *dx = NULL, *dw = NULL, *db = NULL;
    bool want_w = d_needs(d, 1), want_b = d_needs(d, 2);
    if (d->st != RL_OK)
        return;
    rl_status st = rl_layer_norm_backward(&a, d_needs(d, 0) ? &dx : NULL, want_w ? &dw : NULL, want_b ? &db : NULL);
    dx = dx ? d_keep(d, st, dx) : NULL;
    dw = dw ? d_keep(d, st, dw) : NULL;
    db = db ? d_keep(d, st, db) : NULL;
    if (d->st == RL_OK)
        d->st = st;
    d_set(d, 0, dx);
    if (dw)
        d_set(d, 1, d_reshape(d, dw, at->nlist, at->list));
    if (db)
        d_set(d, 2, d_reshape(d, db, at->nlist, at->list));
}

static rl_tensor *mean_of(rl_deriv *d, rl_tensor *x, uint64_t mask, double n) { return d_div_number(d, d_sum_axes(d, x, mask, true), n); }

/* dx = rstd (gw - mean gw - xhat mean(gw xhat)), without the means' part for RMS norm; everything from x, so that it differentiates again. */
static void norm_composed(rl_deriv *d, rl_tensor *x, rl_tensor *weight, bool rms)
{
    const rl_attrs *at = &d->node->attrs;
    int lead = x->ndim - at->nlist;
    uint64_t inner = (x->ndim == 64 ? ~0ull : (1ull << x->ndim) - 1) & ~((1ull << lead) - 1), outer = (1ull << lead) - 1;
    double n = (double)at->i[0];
    rl_tensor *g = d->gout[0], *centred = rms ? x : d_sub(d, x, mean_of(d, x, inner, n));
    rl_tensor *rstd = d_pow(d, d_add_number(d, mean_of(d, d_mul(d, centred, centred), inner, n), at->f[0]), -0.5);
    rl_tensor *xhat = d_mul(d, centred, rstd);
    if (d_needs(d, 0)) {
        rl_tensor *gw = weight ? d_mul(d, g, weight) : g, *dot = d_mul(d, xhat, mean_of(d, d_mul(d, gw, xhat), inner, n));
        rl_tensor *rest = rms ? gw : d_sub(d, gw, mean_of(d, gw, inner, n));
        d_set(d, 0, d_mul(d, rstd, d_sub(d, rest, dot)));
    }
    if (d_needs(d, 1))
        d_set(d, 1, d_sum_axes(d, d_mul(d, g, xhat), outer, false));
    if (d_needs(d, 2))
        d_set(d, 2, d_sum_axes(d, g, outer, false));
}

static void back_norm(rl_deriv *d, bool rms)
{
    rl_tensor *x = d_saved(d, 0), *weight = d_saved(d, 1);
    if (!x || d->st != RL_OK)
        return;
    if (fused())
        norm_fused(d, x, weight, rms);
    else
        norm_composed(d, x, weight, rms);
}

static void back_layer_norm(rl_deriv *d) { back_norm(d, false); }
static void back_rms_norm(rl_deriv *d) { back_norm(d, true); }

#define X(name, grad_fn, rule) RL_DERIV(name, grad_fn, rule)
RL_NORM_DERIVS(X)
#undef X
