/* derivs_matmul: backward rules of products. A gradient of a product is a product with one operand transposed.
 *
 * Outside of create_graph the transposes are strides of one kernel call (d_mm); inside they are public operators.
 */
#include "matmul.h"

/* a @ b of matrices, either transposed. */
static rl_tensor *d_mm(rl_deriv *d, rl_tensor *a, bool ta, rl_tensor *b, bool tb)
{
    rl_tensor *t = NULL;
    if (d->st != RL_OK)
        return NULL;
    if (rl_state_get()->grad_mode || a->dtype != b->dtype)
        return d_matmul(d, ta ? d_t(d, a) : a, tb ? d_t(d, b) : b);
    rl_status st = rl_mm_raw(a, ta, b, tb, &t);
    return d_keep(d, st, t);
}

/* (..., k) as a matrix. */
static rl_tensor *rows_of(rl_deriv *d, rl_tensor *x)
{
    if (d->st != RL_OK || !x || x->ndim == 2)
        return x;
    int64_t k = x->shape[x->ndim - 1], shape[2] = {1, k};
    for (int i = 0; i < x->ndim - 1; i++)
        shape[0] *= x->shape[i];
    return d_reshape(d, x, 2, shape);
}

static void back_mm(rl_deriv *d) /* also bmm */
{
    rl_tensor *g = d->gout[0];
    bool matrix = g->ndim == 2;
    if (d_needs(d, 0)) {
        rl_tensor *b = d_saved(d, 1);
        d_set(d, 0, matrix ? d_mm(d, g, false, b, true) : d_matmul(d, g, d_t(d, b)));
    }
    if (d_needs(d, 1)) {
        rl_tensor *a = d_saved(d, 0);
        d_set(d, 1, matrix ? d_mm(d, a, true, g, false) : d_matmul(d, d_t(d, a), g));
    }
}

static void back_mv(rl_deriv *d)
{
    rl_tensor *g = d->gout[0];
    if (d_needs(d, 0))
        d_set(d, 0, d_mul(d, d_unsqueeze(d, g, 1), d_saved(d, 1)));
    if (d_needs(d, 1))
        d_set(d, 1, d_matmul(d, d_t(d, d_saved(d, 0)), g));
}

static void back_dot(rl_deriv *d)
{
    if (d_needs(d, 0))
        d_set(d, 0, d_mul(d, d->gout[0], d_saved(d, 1)));
    if (d_needs(d, 1))
        d_set(d, 1, d_mul(d, d->gout[0], d_saved(d, 0)));
}

/* Any broadcasting: vectors become matrices, then sums undo the batch. attrs: a's and b's dimensions, their shapes in the list. */
static void back_matmul(rl_deriv *d)
{
    const rl_attrs *at = &d->node->attrs;
    int na = (int)at->i[0], nb = (int)at->i[1];
    const int64_t *shape_a = at->list, *shape_b = at->list + na;
    rl_tensor *g = d->gout[0];
    if (na == 1)
        g = d_unsqueeze(d, g, nb == 1 ? -1 : -2);
    if (nb == 1)
        g = d_unsqueeze(d, g, -1);
    if (d_needs(d, 0)) {
        rl_tensor *b = d_saved(d, 1), *column = nb == 1 ? d_unsqueeze(d, b, 1) : b, *p = d_matmul(d, g, d_t(d, column));
        int64_t row[2] = {1, shape_a[na - 1]};
        p = na == 1 ? d_sum_to(d, p, 2, row) : d_sum_to(d, p, na, shape_a);
        d_set(d, 0, d_reshape(d, p, na, shape_a));
    }
    if (d_needs(d, 1)) {
        rl_tensor *a = d_saved(d, 0), *p;
        a = na == 1 ? d_unsqueeze(d, a, 0) : a;
        if (nb <= 2 && na > 2) {
            p = d_mm(d, rows_of(d, a), true, rows_of(d, g), false);
        } else {
            int64_t column[2] = {shape_b[0], 1};
            p = d_matmul(d, d_t(d, a), g);
            p = nb == 1 ? d_sum_to(d, p, 2, column) : d_sum_to(d, p, nb, shape_b);
        }
        d_set(d, 1, d_reshape(d, p, nb, shape_b));
    }
}

/* edges: [bias,] x, w. x (..., k), w (n, k), g (..., n). */
static void back_linear(rl_deriv *d)
{
    int first = (int)d->node->attrs.i[0];
    rl_tensor *g = d->gout[0], *rows = g->ndim == 2 ? g : rows_of(d, g);
    if (first && d_needs(d, 0))
        d_set(d, 0, d_sum_axes(d, rows, 1, false));
    if (d_needs(d, first)) {
        rl_tensor *w = d_saved(d, 1);
        if (g->ndim == 2)
            d_set(d, first, d_mm(d, g, false, w, false));
        else
            d_set(d, first, d_matmul(d, g, w));
    }
    if (d_needs(d, first + 1))
        d_set(d, first + 1, d_mm(d, rows, true, rows_of(d, d_saved(d, 0)), false));
}

/* ---- with an addend: edges c, a, b; attrs.f: beta, alpha; the list is c's shape ---- */

static rl_tensor *times(rl_deriv *d, rl_tensor *t, double by) { return by == 1 ? t : d_scale(d, t, by); }

static void addend_gradient(rl_deriv *d)
{
    const rl_attrs *a = &d->node->attrs;
    if (d_needs(d, 0))
        d_set(d, 0, d_sum_to(d, times(d, d->gout[0], a->f[0]), a->nlist, a->list));
}

static void back_addmm(rl_deriv *d) /* also baddbmm */
{
    rl_tensor *g = d->gout[0];
    double alpha = d->node->attrs.f[1];
    addend_gradient(d);
    if (d_needs(d, 1)) {
        rl_tensor *b = d_saved(d, 1);
        d_set(d, 1, times(d, g->ndim == 2 ? d_mm(d, g, false, b, true) : d_matmul(d, g, d_t(d, b)), alpha));
    }
    if (d_needs(d, 2)) {
        rl_tensor *a = d_saved(d, 0);
        d_set(d, 2, times(d, g->ndim == 2 ? d_mm(d, a, true, g, false) : d_matmul(d, d_t(d, a), g), alpha));
    }
}

static void back_addbmm(rl_deriv *d)
{
    double alpha = d->node->attrs.f[1];
    addend_gradient(d);
    if (d_needs(d, 1))
        d_set(d, 1, times(d, d_matmul(d, d->gout[0], d_t(d, d_saved(d, 1))), alpha));
    if (d_needs(d, 2))
        d_set(d, 2, times(d, d_matmul(d, d_t(d, d_saved(d, 0)), d->gout[0]), alpha));
}

static void back_addmv(rl_deriv *d)
{
    rl_tensor *g = d->gout[0];
    double alpha = d->node->attrs.f[1];
    addend_gradient(d);
    if (d_needs(d, 1))
        d_set(d, 1, times(d, d_mul(d, d_unsqueeze(d, g, 1), d_saved(d, 1)), alpha));
    if (d_needs(d, 2))
        d_set(d, 2, times(d, d_matmul(d, d_t(d, d_saved(d, 0)), g), alpha));
}

static void back_addr(rl_deriv *d)
{
    rl_tensor *g = d->gout[0];
    double alpha = d->node->attrs.f[1];
    addend_gradient(d);
    if (d_needs(d, 1))
        d_set(d, 1, times(d, d_matmul(d, g, d_saved(d, 1)), alpha));
    if (d_needs(d, 2))
        d_set(d, 2, times(d, d_matmul(d, d_t(d, g), d_saved(d, 0)), alpha));
}

#define X(name, grad_fn, rule) RL_DERIV(name, grad_fn, rule)
RL_MATMUL_DERIVS(X)
#undef X
