/* derivs_reduce: backward rules of reductions and scans.
 *
 * attrs of a reduction: i[0] the mask of reduced axes (all bits: all of them), i[1] keepdim; the list is the input's shape where no input
 * is saved.
 */
#include "derivs.h"

#include <math.h>

static uint64_t mask_of(const rl_deriv *d) { return (uint64_t)d->node->attrs.i[0]; }

/* A result of the reduction with its axes back, ready to broadcast against the input. */
static rl_tensor *restore(rl_deriv *d, rl_tensor *t, int ndim) { return d_unreduce(d, t, ndim, mask_of(d), d->node->attrs.i[1] != 0); }

static double count_of(const rl_deriv *d, int ndim, const int64_t *shape)
{
    double n = 1;
    for (int k = 0; k < ndim; k++)
        if (mask_of(d) >> k & 1)
            n *= (double)shape[k];
    return n;
}

static void back_sum(rl_deriv *d)
{
    const rl_attrs *a = &d->node->attrs;
    d_set(d, 0, d_expand(d, restore(d, d->gout[0], a->nlist), a->nlist, a->list));
}

static void back_mean(rl_deriv *d)
{
    const rl_attrs *a = &d->node->attrs;
    rl_tensor *g = d_div_number(d, restore(d, d->gout[0], a->nlist), count_of(d, a->nlist, a->list));
    d_set(d, 0, d_expand(d, g, a->nlist, a->list));
}

static void back_nansum(rl_deriv *d)
{
    rl_tensor *x = d_saved(d, 0);
    if (x)
        d_set(d, 0, d_keep_where(d, restore(d, d->gout[0], x->ndim), d_eq(d, x, x), 0));
}

/* ---- prod and cumprod: by division where nothing is 0, by products of the others where something is ---- */

static bool has_zero(rl_deriv *d, rl_tensor *x)
{
    rl_reduction how = {.op = RL_RED_ALL, .mask = ~0ull, .dtype = RL_BOOL};
    rl_tensor *all = NULL;
    rl_scalar v = rl_scalar_int(1);
    rl_status st = rl_reduce_run(x, &how, &all, NULL);
    if (st == RL_OK)
        st = rl_item(all, &v);
    rl_tensor_release(all);
    d->st = st;
    return st == RL_OK && v.i == 0;
}

static rl_tensor *d_cumprod(rl_deriv *d, rl_tensor *x, int64_t dim)
{
    rl_tensor *t = NULL;
    if (d->st != RL_OK)
        return NULL;
    rl_status st = rl_cumprod(x, dim, RL_DTYPE_NONE, &t);
    return d_keep(d, st, t);
}

/* Element k: the product of the elements before k along dim. */
static rl_tensor *before(rl_deriv *d, rl_tensor *x, int dim)
{
    rl_tensor *ones = NULL, *all = NULL, *parts[2];
    if (d->st != RL_OK)
        return NULL;
    parts[1] = d_narrow(d, x, dim, 0, x->shape[dim] - 1);
    rl_tensor *first = d_narrow(d, x, dim, 0, 1);
    if (d->st != RL_OK)
        return NULL;
    rl_status st = rl_full(first->ndim, first->shape, rl_scalar_int(1), (rl_dtype)x->dtype, rl_tensor_device(x), &ones);
    parts[0] = d_keep(d, st, ones);
    if (d->st != RL_OK)
        return NULL;
    st = rl_cat(parts, 2, dim, &all);
    return d_cumprod(d, d_keep(d, st, all), dim);
}

static rl_tensor *prod_of_others(rl_deriv *d, rl_tensor *x, int dim)
{
    rl_tensor *left = before(d, x, dim), *right = d_flip(d, before(d, d_flip(d, x, dim), dim), dim);
    return d_mul(d, left, right);
}

static void back_prod(rl_deriv *d)
{
    rl_tensor *x = d_saved(d, 0), *y = d_saved(d, 1);
    if (!x || !y)
        return;
    if (x->numel == 0)
        return d_set(d, 0, d_zeros_like(d, x));
    if (x->ndim == 0)
        return d_set(d, 0, d->gout[0]);
    if (d->gout[0]->dtype != x->dtype)
        x = d_cast(d, x, (rl_dtype)d->gout[0]->dtype);
    rl_tensor *g = restore(d, d->gout[0], x->ndim);
    if (!has_zero(d, x))
        return d_set(d, 0, d_div(d, d_mul(d, g, restore(d, y, x->ndim)), x));
    if (mask_of(d) != ~0ull)
        return d_set(d, 0, d_mul(d, g, prod_of_others(d, x, __builtin_ctzll(mask_of(d)))));
    rl_tensor *others = prod_of_others(d, d_reshape(d, x, 1, &x->numel), 0);
    d_set(d, 0, d_mul(d, g, d_reshape(d, others, x->ndim, x->shape)));
}

/* r[k] = g[k] + x[k+1] * r[k+1], from the end: what later products owe to element k, without the factors before it. */
static rl_status owed(rl_tensor *x, rl_tensor *g, int dim, rl_tensor **parts, int64_t n)
{
    rl_tensor *xk = NULL, *gk = NULL, *carried = NULL;
    rl_status st = RL_OK;
    for (int64_t k = n - 1; k >= 0; k--) {
        RL_TRY(rl_narrow(g, dim, k, 1, &gk));
        if (k == n - 1) {
            parts[k] = gk;
            gk = NULL;
            continue;
        }
        RL_TRY(rl_narrow(x, dim, k + 1, 1, &xk));
        RL_TRY(rl_mul(rl_operand_tensor(xk), rl_operand_tensor(parts[k + 1]), &carried));
        RL_TRY(rl_add(rl_operand_tensor(gk), rl_operand_tensor(carried), &parts[k]));
        rl_tensor_clear(&gk);
        rl_tensor_clear(&xk);
        rl_tensor_clear(&carried);
    }
fail:
    rl_tensor_release(gk);
    rl_tensor_release(xk);
    rl_tensor_release(carried);
    return st;
}

static rl_tensor *owed_all(rl_deriv *d, rl_tensor *x, rl_tensor *g, int dim)
{
    int64_t n = x->shape[dim];
    rl_tensor *out = NULL, **parts = rl_pool_alloc((size_t)n * sizeof *parts);
    if (!parts)
        return d_keep(d, RL_ERR_MEMORY, NULL);
    for (int64_t k = 0; k < n; k++)
        parts[k] = NULL;
    rl_status st = owed(x, g, dim, parts, n);
    if (st == RL_OK)
        st = rl_cat(parts, (int)n, dim, &out);
    for (int64_t k = 0; k < n; k++)
        rl_tensor_release(parts[k]);
    rl_pool_free(parts, (size_t)n * sizeof *parts);
    return d_keep(d, st, out);
}

static void back_cumprod(rl_deriv *d)
{
    rl_tensor *x = d_saved(d, 0), *y = d_saved(d, 1), *g = d->gout[0];
    int dim = (int)d->node->attrs.i[0];
    if (!x || !y)
        return;
    if (x->numel == 0 || x->ndim == 0)
        return d_set(d, 0, g);
    if (g->dtype != x->dtype)
        x = d_cast(d, x, (rl_dtype)g->dtype);
    if (!has_zero(d, x))
        return d_set(d, 0, d_div(d, d_cumsum(d, d_mul(d, g, y), dim, true), x));
    d_set(d, 0, d_mul(d, before(d, x, dim), owed_all(d, x, g, dim)));
}

/* ---- extremes ---- */

/* g shared among the elements that equal y. */
static rl_tensor *share(rl_deriv *d, rl_tensor *x, rl_tensor *y, rl_tensor *g)
{
    rl_tensor *equal = d_eq(d, x, restore(d, y, x->ndim));
    if (d->st != RL_OK)
        return NULL;
    rl_tensor *count = x->ndim ? d_sum_axes(d, equal, mask_of(d), true) : NULL;
    rl_tensor *one = restore(d, g, x->ndim);
    return d_keep_where(d, count ? d_div(d, one, count) : one, equal, 0);
}

static void back_extreme(rl_deriv *d)
{
    rl_tensor *x = d_saved(d, 0), *y = d_saved(d, 1);
    if (x && y)
        d_set(d, 0, share(d, x, y, d->gout[0]));
}

static void back_aminmax(rl_deriv *d)
{
    rl_tensor *x = d_saved(d, 0), *sum = NULL;
    for (int k = 0; k < 2 && x; k++) {
        rl_tensor *y = d_saved(d, 1 + k), *one = d->gout[k] && y ? share(d, x, y, d->gout[k]) : NULL;
        sum = sum && one ? d_add(d, sum, one) : one ? one : sum;
    }
    d_set(d, 0, sum);
}

/* attrs: i[0] the axis, i[1] keepdim; saved: the indices. */
static void back_extreme_index(rl_deriv *d)
{
    const rl_attrs *a = &d->node->attrs;
    rl_tensor *index = d_saved(d, 0), *g = d->gout[0];
    if (!index)
        return;
    if (!a->i[1] && a->nlist > 0) {
        index = d_unsqueeze(d, index, a->i[0]);
        g = d_unsqueeze(d, g, a->i[0]);
    }
    d_set(d, 0, d_scatter_add(d, d_zeros(d, a->nlist, a->list, d->gout[0]), a->i[0], index, g));
}

static void back_cumextreme(rl_deriv *d)
{
    const rl_attrs *a = &d->node->attrs;
    rl_tensor *index = d_saved(d, 0);
    if (index)
        d_set(d, 0, d_scatter_add(d, d_zeros(d, a->nlist, a->list, d->gout[0]), a->i[0], index, d->gout[0]));
}

/* ---- variance ---- */

static rl_tensor *var_gradient(rl_deriv *d, rl_tensor *x, rl_tensor *g)
{
    double n = count_of(d, x->ndim, x->shape), dof = fmax(0, n - d->node->attrs.f[0]);
    rl_tensor *mean = x->ndim ? d_div_number(d, d_sum_axes(d, x, mask_of(d), true), n) : x;
    return d_mul(d, d_scale(d, restore(d, g, x->ndim), 2 / dof), d_sub(d, x, mean));
}

/* A constant has std 0: its gradient is 0, not infinite. */
static rl_tensor *std_to_var(rl_deriv *d, rl_tensor *y, rl_tensor *g)
{
    return d_fill_where(d, d_div(d, g, d_scale(d, y, 2)), d_eq_number(d, y, 0), 0);
}

static void back_var(rl_deriv *d)
{
    rl_tensor *x = d_saved(d, 0);
    if (x)
        d_set(d, 0, var_gradient(d, x, d->gout[0]));
}

static void back_std(rl_deriv *d)
{
    rl_tensor *x = d_saved(d, 0), *y = d_saved(d, 1);
    if (x && y)
        d_set(d, 0, var_gradient(d, x, std_to_var(d, y, d->gout[0])));
}

static void with_mean(rl_deriv *d, rl_tensor *x, rl_tensor *g)
{
    rl_tensor *sum = g && x ? var_gradient(d, x, g) : NULL;
    if (x && d->gout[1]) {
        rl_tensor *m = d_div_number(d, restore(d, d->gout[1], x->ndim), count_of(d, x->ndim, x->shape));
        sum = sum ? d_add(d, sum, m) : d_expand(d, m, x->ndim, x->shape);
    }
    d_set(d, 0, sum);
}

static void back_var_mean(rl_deriv *d) { with_mean(d, d_saved(d, 0), d->gout[0]); }

static void back_std_mean(rl_deriv *d)
{
    rl_tensor *x = d_saved(d, 0), *y = d_saved(d, 1);
    with_mean(d, x, y && d->gout[0] ? std_to_var(d, y, d->gout[0]) : NULL);
}

/* ---- norms ---- */

/* sgn(x) |x|^(p-1) g / y^(p-1); at y == 0 the gradient is 0. */
static rl_tensor *power_norm(rl_deriv *d, rl_tensor *x, rl_tensor *y, rl_tensor *g, double p)
{
    rl_tensor *power = d_pow(d, d_abs(d, x), p - 1), *zero = d_eq_number(d, y, 0);
    if (p < 1)
        power = d_fill_where(d, power, d_eq_number(d, x, 0), 0);
    rl_tensor *scale = d_fill_where(d, d_div(d, g, d_pow(d, y, p - 1)), zero, 0);
    return d_mul(d, d_mul(d, d_sgn(d, x), power), scale);
}

static rl_tensor *largest_norm(rl_deriv *d, rl_tensor *x, rl_tensor *y, rl_tensor *g)
{
    rl_tensor *equal = d_eq(d, d_abs(d, x), y);
    rl_tensor *count = d->st == RL_OK && x->ndim ? d_sum_axes(d, equal, mask_of(d), true) : NULL;
    rl_tensor *part = d_keep_where(d, count ? d_div(d, g, count) : g, equal, 0);
    return d_mul(d, d_sgn(d, x), part);
}

static void back_norm(rl_deriv *d)
{
    rl_tensor *x = d_saved(d, 0), *y = d_saved(d, 1);
    double p = d->node->attrs.f[0];
    if (!x || !y)
        return;
    if (y->dtype != x->dtype)
        x = d_cast(d, x, (rl_dtype)y->dtype);
    y = restore(d, y, x->ndim);
    rl_tensor *g = restore(d, d->gout[0], x->ndim);
    if (p == 0)
        return; /* a count has no gradient */
    if (p == 1)
        d_set(d, 0, d_mul(d, d_sgn(d, x), g));
    else if (p == 2)
        d_set(d, 0, d_mul(d, g, d_fill_where(d, d_div(d, x, y), d_eq_number(d, y, 0), 0)));
    else if (isinf(p))
        d_set(d, 0, largest_norm(d, x, y, g));
    else
        d_set(d, 0, power_norm(d, x, y, g, p));
}

static void back_logsumexp(rl_deriv *d)
{
    rl_tensor *x = d_saved(d, 0), *y = d_saved(d, 1);
    if (x && y)
        d_set(d, 0, d_mul(d, restore(d, d->gout[0], x->ndim), d_exp(d, d_sub(d, x, restore(d, y, x->ndim)))));
}

/* ---- scans ---- */

static void back_cumsum(rl_deriv *d)
{
    if (d->gout[0]->ndim == 0)
        d_set(d, 0, d->gout[0]);
    else
        d_set(d, 0, d_cumsum(d, d->gout[0], d->node->attrs.i[0], true));
}

static rl_tensor *reverse_logcumsumexp(rl_deriv *d, rl_tensor *x, int64_t dim)
{
    rl_tensor *t = NULL, *flipped = d_flip(d, x, dim);
    if (d->st != RL_OK)
        return NULL;
    rl_status st = rl_logcumsumexp(flipped, dim, &t);
    return d_flip(d, d_keep(d, st, t), dim);
}

/* The gradient's positive and negative parts in logarithms, so that nothing overflows. */
static void back_logcumsumexp(rl_deriv *d)
{
    rl_tensor *x = d_saved(d, 0), *y = d_saved(d, 1), *g = d->gout[0], *part[2];
    int64_t dim = d->node->attrs.i[0];
    if (!x || !y)
        return;
    if (x->ndim == 0 || x->numel == 0)
        return d_set(d, 0, g);
    rl_tensor *nothing = d_eq_number(d, y, -INFINITY), *level = d_fill_where(d, y, nothing, 0); /* -inf - -inf would be NaN */
    for (int k = 0; k < 2; k++) {
        rl_tensor *one = k ? d_neg(d, g) : g;
        rl_tensor *positive = d_lt_number(d, d_fill_where(d, d_neg(d, one), nothing, 0), 0);
        rl_tensor *logs = d_keep_where(d, d_log(d, d_keep_where(d, one, positive, 1)), positive, -INFINITY);
        part[k] = d_exp(d, d_add(d, reverse_logcumsumexp(d, d_sub(d, logs, level), dim), x));
    }
    d_set(d, 0, d_sub(d, part[0], part[1]));
}

static void back_trace(rl_deriv *d)
{
    rl_tensor *base = d_zeros(d, d->node->attrs.nlist, d->node->attrs.list, d->gout[0]), *view = NULL;
    if (!base)
        return;
    rl_status st = rl_diagonal(base, 0, 0, 1, &view);
    view = d_keep(d, st, view);
    if (view)
        d->st = rl_copy_(view, d->gout[0]);
    d_set(d, 0, base);
}

#define X(name, grad_fn, rule) RL_DERIV(name, grad_fn, rule)
RL_REDUCE_DERIVS(X)
#undef X
