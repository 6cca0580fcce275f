/* derivs_index: backward rules of indexing and sorting. Reading's backward adds into zeros (an element may be read many times), writing's reads.
 */
#include "gather.h"

/* ---- advanced indexing ---- */

static int slots_of(rl_deriv *d, rl_tensor **slots)
{
    int n = (int)d->node->attrs.i[0];
    for (int k = 0; k < n; k++)
        slots[k] = d_saved(d, k);
    return n;
}

static rl_tensor *d_index_put(rl_deriv *d, rl_tensor *x, rl_tensor *const *slots, int n, rl_tensor *value, bool accumulate)
{
    rl_tensor *t = NULL;
    if (d->st != RL_OK)
        return NULL;
    rl_status st = rl_index_put(x, slots, n, value, accumulate, &t);
    return d_keep(d, st, t);
}

static void back_index(rl_deriv *d)
{
    const rl_attrs *a = &d->node->attrs;
    rl_tensor *slots[RL_MAX_NDIM], *g = d->gout[0];
    int n = slots_of(d, slots);
    d_set(d, 0, d_index_put(d, d_zeros(d, a->nlist, a->list, g), slots, n, g, true));
}

static rl_tensor *zero_number(rl_deriv *d, const rl_tensor *like) { return d_zeros(d, 0, NULL, like); }

static void back_index_put(rl_deriv *d)
{
    const rl_attrs *a = &d->node->attrs;
    rl_tensor *slots[RL_MAX_NDIM], *g = d->gout[0], *t = NULL;
    int n = slots_of(d, slots);
    if (d_needs(d, 0))
        d_set(d, 0, a->i[1] ? g : d_index_put(d, g, slots, n, zero_number(d, g), false));
    if (d_needs(d, 1)) {
        rl_status st = rl_index(g, slots, n, &t);
        t = d_keep(d, st, t);
        if (t && t->ndim < a->nlist) /* the value had leading dimensions of size 1 */
            d_set(d, 1, d_reshape(d, d_sum_to(d, t, t->ndim, a->list + (a->nlist - t->ndim)), a->nlist, a->list));
        else
            d_set(d, 1, d_sum_to(d, t, a->nlist, a->list));
    }
}

/* ---- rows ---- */

static void back_index_select(rl_deriv *d)
{
    const rl_attrs *a = &d->node->attrs;
    rl_tensor *index = d_saved(d, 0), *g = d->gout[0];
    if (index)
        d_set(d, 0, d_index_add(d, d_zeros(d, a->nlist, a->list, g), a->i[0], index, g));
}

static rl_tensor *selected(rl_deriv *d, rl_tensor *index)
{
    const rl_attrs *a = &d->node->attrs;
    return d_reshape(d, d_index_select(d, d->gout[0], a->i[0], index), a->nlist, a->list);
}

static void back_index_add(rl_deriv *d)
{
    rl_tensor *index = d_saved(d, 0);
    double alpha = d->node->attrs.f[0];
    d_set(d, 0, d->gout[0]);
    if (index && d_needs(d, 1))
        d_set(d, 1, alpha == 1 ? selected(d, index) : d_scale(d, selected(d, index), alpha));
}

static rl_tensor *without_rows(rl_deriv *d, rl_tensor *index)
{
    rl_tensor *t = NULL;
    if (d->st != RL_OK)
        return NULL;
    rl_status st = rl_index_fill(d->gout[0], d->node->attrs.i[0], index, rl_scalar_int(0), &t);
    return d_keep(d, st, t);
}

static void back_index_copy(rl_deriv *d)
{
    rl_tensor *index = d_saved(d, 0);
    if (d_needs(d, 0))
        d_set(d, 0, without_rows(d, index));
    if (d_needs(d, 1))
        d_set(d, 1, selected(d, index));
}

static void back_index_fill(rl_deriv *d)
{
    rl_tensor *index = d_saved(d, 0);
    if (d_needs(d, 0))
        d_set(d, 0, without_rows(d, index));
    if (d_needs(d, 1))
        d_set(d, 1, d_sum_all(d, d_sub(d, d->gout[0], without_rows(d, index)))); /* a row counts once */
}

/* ---- gather and scatter ---- */

static void back_gather(rl_deriv *d)
{
    const rl_attrs *a = &d->node->attrs;
    rl_tensor *index = d_saved(d, 0), *g = d->gout[0];
    if (index)
        d_set(d, 0, d_scatter_add(d, d_zeros(d, a->nlist, a->list, g), a->i[0], index, g));
}

/* What index read of t, in the source's shape: the source may be larger than the index. */
static rl_tensor *source_part(rl_deriv *d, rl_tensor *t)
{
    const rl_attrs *a = &d->node->attrs;
    bool same = t && t->ndim == a->nlist;
    for (int k = 0; same && k < a->nlist; k++)
        same = t->shape[k] == a->list[k];
    if (same || !t)
        return t;
    rl_tensor *base = d_zeros(d, a->nlist, a->list, t), *view = base;
    for (int k = 0; k < a->nlist && k < t->ndim; k++)
        view = d_narrow(d, view, k, 0, t->shape[k]);
    if (d->st == RL_OK)
        d->st = rl_copy_(view, t);
    return base;
}

static rl_tensor *cleared(rl_deriv *d, rl_tensor *g, rl_tensor *index)
{
    rl_tensor *t = NULL, *zeros = d->st == RL_OK && index ? d_zeros(d, index->ndim, index->shape, g) : NULL;
    if (d->st != RL_OK)
        return NULL;
    rl_status st = rl_scatter(g, d->node->attrs.i[0], index, zeros, &t);
    return d_keep(d, st, t);
}

static void back_scatter(rl_deriv *d)
{
    rl_tensor *index = d_saved(d, 0), *g = d->gout[0];
    if (d_needs(d, 0))
        d_set(d, 0, cleared(d, g, index));
    if (d_needs(d, 1))
        d_set(d, 1, source_part(d, d_gather(d, g, d->node->attrs.i[0], index)));
}

static void back_scatter_add(rl_deriv *d)
{
    rl_tensor *index = d_saved(d, 0), *g = d->gout[0];
    d_set(d, 0, g);
    if (d_needs(d, 1))
        d_set(d, 1, source_part(d, d_gather(d, g, d->node->attrs.i[0], index)));
}

/* ---- scatter_reduce: its own nodes see x, src and the result ---- */

typedef struct reduced {
    rl_tensor *index, *x, *src, *out, *g;
    int64_t dim;
    bool include;
} reduced;

static void reduce_sum_or_mean(rl_deriv *d, const reduced *k, bool mean)
{
    rl_tensor *g = k->g, *count = NULL;
    if (mean && d->st == RL_OK) {
        rl_status st = rl_scatter_count(k->x, (int)k->dim, k->index, k->include, &count);
        g = d_div(d, g, d_keep(d, st, count));
    }
    if (d_needs(d, 0))
        d_set(d, 0, k->include ? g : cleared(d, g, k->index));
    if (d_needs(d, 1))
        d_set(d, 1, source_part(d, d_gather(d, g, k->dim, k->index)));
}

/* The part of src that index names: src may be larger. */
static rl_tensor *covered(rl_deriv *d, rl_tensor *src, const rl_tensor *index)
{
    for (int i = 0; d->st == RL_OK && i < src->ndim && i < index->ndim; i++)
        src = src->shape[i] == index->shape[i] ? src : d_narrow(d, src, i, 0, index->shape[i]);
    return src;
}

/* The gradient is shared evenly among what equals the result. */
static void reduce_extreme(rl_deriv *d, const reduced *k)
{
    rl_tensor *g = k->g, *value = d_gather(d, k->out, k->dim, k->index), *src = covered(d, k->src, k->index);
    if (d->st != RL_OK)
        return;
    rl_tensor *mine = d_eq(d, k->x, k->out), *theirs = d_eq(d, src, value);
    rl_tensor *self = d->st == RL_OK ? d_cast(d, mine, (rl_dtype)g->dtype) : NULL, *other = d->st == RL_OK
        ? d_cast(d, theirs, (rl_dtype)g->dtype) : NULL;
    if (!k->include)
        self = d->st == RL_OK ? cleared(d, self, k->index) : NULL;
    rl_tensor *count = d_scatter_add(d, self, k->dim, k->index, other);
    rl_tensor *part = d_fill_where(d, d_div(d, g, count), d_eq_number(d, count, 0), 0);
    if (d_needs(d, 0)) {
        rl_tensor *gx = d_mul(d, self, part);
        d_set(d, 0, gx);
    }
    if (d_needs(d, 1))
        d_set(d, 1, source_part(d, d_mul(d, other, d_gather(d, part, k->dim, k->index))));
}

static rl_tensor *d_prod_again(rl_deriv *d, const reduced *k, rl_tensor *x, rl_tensor *src)
{
    rl_tensor *t = NULL;
    if (d->st != RL_OK)
        return NULL;
    rl_status st = rl_scatter_reduce(x, k->dim, k->index, src, RL_SCATTER_OF_PROD, k->include, &t);
    return d_keep(d, st, t);
}

/* The product of the others: by division, with a lone zero replaced by 1 first. */
static void reduce_prod(rl_deriv *d, const reduced *k)
{
    if (d_needs(d, 0)) {
        rl_tensor *one = d_fill_where(d, k->x, d_eq_number(d, k->x, 0), 1);
        rl_tensor *gx = d_div(d, d_mul(d, k->g, d_prod_again(d, k, one, k->src)), one);
        d_set(d, 0, k->include ? gx : cleared(d, gx, k->index));
    }
    if (!d_needs(d, 1))
        return;
    rl_tensor *src = covered(d, k->src, k->index), *zero = d_eq_number(d, src, 0), *as_number = d->st == RL_OK ? d_cast(d, zero, (rl_dtype)k->g->dtype) : NULL;
    rl_tensor *zeros = d_gather(d, d_scatter_add(d, d_zeros_like(d, k->x), k->dim, k->index, as_number), k->dim, k->index);
    rl_tensor *lone = d_eq_number(d, d_mul(d, zeros, as_number), 1), *filled = d_fill_where(d, src, lone, 1);
    rl_tensor *by_others = d_gather(d, d_mul(d, k->g, d_prod_again(d, k, k->x, filled)), k->dim, k->index);
    rl_tensor *by_division = d_div(d, d_gather(d, d_mul(d, k->g, k->out), k->dim, k->index), d_fill_where(d, src, zero, 1));
    d_set(d, 1, source_part(d, d_add(d, d_keep_where(d, by_others, lone, 0), d_fill_where(d, by_division, lone, 0))));
}

static void back_scatter_reduce(rl_deriv *d)
{
    const rl_attrs *a = &d->node->attrs;
    reduced k = {d_saved(d, 0), d_saved(d, 1), d_saved(d, 2), d_saved(d, 3), d->gout[0], a->i[0], a->i[2] != 0};
    if (d->st != RL_OK)
        return;
    if (a->i[1] == RL_SCATTER_OF_SUM || a->i[1] == RL_SCATTER_OF_MEAN)
        reduce_sum_or_mean(d, &k, a->i[1] == RL_SCATTER_OF_MEAN);
    else if (a->i[1] == RL_SCATTER_OF_PROD)
        reduce_prod(d, &k);
    else
        reduce_extreme(d, &k);
}

/* ---- flat positions ---- */

static rl_tensor *d_put(rl_deriv *d, rl_tensor *x, rl_tensor *index, rl_tensor *src, bool accumulate)
{
    rl_tensor *t = NULL;
    if (d->st != RL_OK)
        return NULL;
    rl_status st = rl_put(x, index, src, accumulate, &t);
    return d_keep(d, st, t);
}

static void back_take(rl_deriv *d)
{
    const rl_attrs *a = &d->node->attrs;
    rl_tensor *index = d_saved(d, 0), *g = d->gout[0];
    if (index)
        d_set(d, 0, d_put(d, d_zeros(d, a->nlist, a->list, g), index, g, true));
}

static void back_put(rl_deriv *d)
{
    const rl_attrs *a = &d->node->attrs;
    rl_tensor *index = d_saved(d, 0), *g = d->gout[0], *t = NULL;
    if (!index)
        return;
    if (d_needs(d, 0))
        d_set(d, 0, a->i[0] ? g : d_put(d, g, index, d_zeros(d, index->ndim, index->shape, g), false));
    if (d_needs(d, 1)) {
        rl_status st = rl_take(g, index, &t);
        d_set(d, 1, d_reshape(d, d_keep(d, st, t), a->nlist, a->list));
    }
}

/* ---- masks ---- */

static rl_tensor *d_masked_put(rl_deriv *d, rl_tensor *x, rl_tensor *mask, rl_tensor *value)
{
    if (d->st != RL_OK)
        return NULL;
    if (mask->ndim == 0) {
        rl_tensor *row = d_unsqueeze(d, x, 0), *flag = d_unsqueeze(d, mask, 0);
        if (d->st != RL_OK)
            return NULL;
        return d_reshape(d, d_index_put(d, row, &flag, 1, value, false), 0, NULL);
    }
    return d_index_put(d, x, &mask, 1, value, false);
}

static void back_masked_select(rl_deriv *d)
{
    const rl_attrs *a = &d->node->attrs;
    rl_tensor *mask = d_saved(d, 0), *g = d->gout[0];
    int64_t shape[RL_MAX_NDIM];
    int ndim = a->nlist;
    if (!mask)
        return;
    for (int k = 0; k < ndim; k++)
        shape[k] = a->list[k];
    d->st = rl_shape_broadcast(mask->ndim, mask->shape, &ndim, shape);
    rl_tensor *wide = d_zeros(d, ndim, shape, g), *all = d_expand(d, mask, ndim, shape);
    d_set(d, 0, d_sum_to(d, d_masked_put(d, wide, all, g), a->nlist, a->list));
}

static void back_masked_scatter(rl_deriv *d)
{
    const rl_attrs *a = &d->node->attrs;
    rl_tensor *mask = d_saved(d, 0), *g = d->gout[0], *t = NULL;
    int nx = (int)a->i[0], ns = a->nlist - nx;
    if (!mask)
        return;
    if (d_needs(d, 0))
        d_set(d, 0, d_sum_to(d, d_fill_where(d, g, mask, 0), nx, a->list));
    if (!d_needs(d, 1))
        return;
    int64_t total = 1;
    for (int k = 0; k < ns; k++)
        total *= a->list[nx + k];
    rl_status st = rl_masked_select(g, mask, &t);
    t = d_keep(d, st, t);
    rl_tensor *base = d_zeros(d, 1, &total, g), *view = t ? d_narrow(d, base, 0, 0, t->numel) : NULL;
    if (d->st == RL_OK)
        d->st = rl_copy_(view, t);
    d_set(d, 1, d_reshape(d, base, ns, a->list + nx));
}

/* ---- embedding ---- */

/* Each row's gradient over how often the row was asked for. */
static rl_tensor *by_frequency(rl_deriv *d, rl_tensor *g, rl_tensor *rows, int64_t size)
{
    bool grad = rl_grad_off();
    rl_tensor *ones = d->st == RL_OK ? d_cast(d, d_eq(d, rows, rows), (rl_dtype)g->dtype) : NULL;
    rl_tensor *counts = d_index_select(d, d_index_add(d, d_zeros(d, 1, &size, g), 0, rows, ones), 0, rows);
    rl_tensor *column = d_unsqueeze(d, counts, 1);
    rl_grad_restore(grad);
    return d_div(d, g, column);
}

/* Fused outside of create_graph; inside, the padding row's part is cleared and the rows added by a public operator. */
static void back_embedding(rl_deriv *d)
{
    const rl_attrs *a = &d->node->attrs;
    rl_tensor *indices = d_saved(d, 0), *g = d->gout[0];
    if (!indices)
        return;
    int64_t flat = indices->numel, shape[2] = {indices->numel, g->shape[g->ndim - 1]}, table[2] = {a->i[0], g->shape[g->ndim - 1]};
    rl_tensor *rows = d_reshape(d, indices, 1, &flat), *gr = d_reshape(d, g, 2, shape), *zeros = d_zeros(d, 2, table, g);
    if (a->i[2])
        gr = by_frequency(d, gr, rows, a->i[0]);
    if (d->st != RL_OK)
        return;
    if (!rl_state_get()->grad_mode) {
        d->st = rl_embedding_rows(zeros, gr, rows, a->i[1]);
        return d_set(d, 0, zeros);
    }
    if (a->i[1] >= 0)
        gr = d_fill_where(d, gr, d_unsqueeze(d, d_eq_number(d, rows, (double)a->i[1]), 1), 0);
    d_set(d, 0, d_index_add(d, zeros, 0, rows, gr));
}

/* ---- sort, topk, kthvalue, median, mode: attrs i[0] axis, i[1] the axis is gone; the list is x's shape ---- */

static void back_sort(rl_deriv *d)
{
    const rl_attrs *a = &d->node->attrs;
    rl_tensor *index = d_saved(d, 0), *g = d->gout[0];
    if (!index)
        return;
    if (a->i[1] && a->nlist > 0) {
        index = d_unsqueeze(d, index, a->i[0]);
        g = d_unsqueeze(d, g, a->i[0]);
    }
    d_set(d, 0, d_scatter_add(d, d_zeros(d, a->nlist, a->list, d->gout[0]), a->i[0], index, g));
}

#define X(name, grad_fn, rule) RL_DERIV(name, grad_fn, rule)
RL_INDEX_DERIVS(X)
#undef X
