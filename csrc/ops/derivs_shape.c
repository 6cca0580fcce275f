/* derivs_shape: backward rules of views, joins and copies.
 *
 * All of these operators are linear, so no rule reads a value: a view's gradient is the gradient placed into zeros of the base's shape
 * through the same view. Every step is a public operator, so the rules differentiate again by themselves.
 */
#include "derivs_shape.h"
#include "deriv.h"
#include "shape.h"

#include <string.h>

#define GIVES(call) rl_tensor *t = NULL; rl_status st = (call); return d_keep(d, st, t)

static rl_tensor *reshape(rl_deriv *d, rl_tensor *g, int n, const int64_t *shape)
{
    if (d->st != RL_OK)
        return NULL;
    GIVES(rl_reshape(g, n, shape, &t));
}

static rl_tensor *sum_to(rl_deriv *d, rl_tensor *g, int n, const int64_t *shape)
{
    if (d->st != RL_OK)
        return NULL;
    GIVES(rl_sum_to(g, n, shape, &t));
}

static rl_tensor *cast(rl_deriv *d, rl_tensor *g, rl_dtype dtype)
{
    if (d->st != RL_OK)
        return NULL;
    GIVES(rl_cast(g, dtype, &t));
}

static rl_tensor *zeros(rl_deriv *d, int n, const int64_t *shape, const rl_tensor *like)
{
    if (d->st != RL_OK)
        return NULL;
    GIVES(rl_zeros(n, shape, (rl_dtype)like->dtype, rl_tensor_device(like), &t));
}

/* The gradient of a view: zeros of the base, of which the view takes g. Recorded as one operator, whose own gradient is the view of its
 * gradient. */
static void place(rl_deriv *d, rl_view_fn view, const rl_node_class *cls)
{
    const rl_attrs *a = &d->node->attrs;
    rl_tensor *g = d->gout[0], *base = NULL, *part = NULL;
    rl_node *node;
    bool old = rl_grad_off();
    rl_status st;
    RL_TRY(rl_zeros(a->nlist, a->list, (rl_dtype)g->dtype, rl_tensor_device(g), &base));
    RL_TRY(view(base, a->i, &part));
    RL_TRY(rl_copy_raw(part, g));
    rl_grad_restore(old);
    RL_TRY(rl_record(cls, &g, 1, &base, 1, 0, &node));
    if (node)
        memcpy(node->attrs.i, a->i, sizeof a->i);
fail:
    rl_grad_restore(old);
    rl_tensor_release(part);
    if (st != RL_OK)
        rl_tensor_clear(&base);
    d_set(d, 0, d_keep(d, st, base));
}

static void again(rl_deriv *d, rl_view_fn view)
{
    rl_tensor *t = NULL;
    rl_status st = view(d->gout[0], d->node->attrs.i, &t);
    d_set(d, 0, d_keep(d, st, t));
}

static void again_select(rl_deriv *d) { again(d, rl_view_select); }
static void again_slice(rl_deriv *d) { again(d, rl_view_slice); }
static void again_diagonal(rl_deriv *d) { again(d, rl_view_diagonal); }
static void back_select(rl_deriv *d) { place(d, rl_view_select, &rl_class_select_back); }
static void back_slice(rl_deriv *d) { place(d, rl_view_slice, &rl_class_slice_back); }
static void back_diagonal(rl_deriv *d) { place(d, rl_view_diagonal, &rl_class_diagonal_back); }

/* x gets g without the part that src replaced, src gets that part. */
static void back_scatter(rl_deriv *d, rl_view_fn view, const rl_node_class *cls)
{
    const rl_attrs *a = &d->node->attrs;
    rl_tensor *t = NULL;
    if (d_needs(d, 0)) {
        rl_tensor *nothing = zeros(d, a->nlist, a->list, d->gout[0]);
        rl_status st = nothing ? rl_view_scatter(d->gout[0], nothing, view, a->i, cls, &t) : RL_OK;
        d_set(d, 0, d_keep(d, st, t));
    }
    if (d_needs(d, 1)) {
        rl_status st = view(d->gout[0], a->i, &t);
        d_set(d, 1, d_keep(d, st, t));
    }
}

static void back_select_scatter(rl_deriv *d) { back_scatter(d, rl_view_select, &rl_class_select_scatter); }
static void back_slice_scatter(rl_deriv *d) { back_scatter(d, rl_view_slice, &rl_class_slice_scatter); }
static void back_diagonal_scatter(rl_deriv *d) { back_scatter(d, rl_view_diagonal, &rl_class_diagonal_scatter); }

static void back_zero(rl_deriv *d)
{
    rl_tensor *t = NULL;
    if (!d_needs(d, 0))
        return;
    rl_status st = rl_full_like(d->gout[0], rl_scalar_int(0), RL_DTYPE_NONE, &t);
    d_set(d, 0, d_keep(d, st, t));
}

static void back_same(rl_deriv *d)
{
    d_set(d, 0, d->gout[0]);
}

static void back_cast(rl_deriv *d)
{
    d_set(d, 0, cast(d, d->gout[0], (rl_dtype)d->node->attrs.i[0]));
}

/* x.copy_(src): x's own gradient is gone, src gets g */
static void back_copy_into(rl_deriv *d)
{
    const rl_attrs *a = &d->node->attrs;
    if (d_needs(d, 0))
        d_set(d, 0, zeros(d, d->gout[0]->ndim, d->gout[0]->shape, d->gout[0]));
    if (d_needs(d, 1))
        d_set(d, 1, cast(d, sum_to(d, d->gout[0], a->nlist, a->list), (rl_dtype)a->i[0]));
}

static void back_fill(rl_deriv *d)
{
    back_zero(d);
    if (d_needs(d, 1))
        d_set(d, 1, cast(d, sum_to(d, d->gout[0], 0, NULL), (rl_dtype)d->node->attrs.i[0]));
}

static void back_reshape(rl_deriv *d)
{
    d_set(d, 0, reshape(d, d->gout[0], d->node->attrs.nlist, d->node->attrs.list));
}

static void back_expand(rl_deriv *d)
{
    d_set(d, 0, sum_to(d, d->gout[0], d->node->attrs.nlist, d->node->attrs.list));
}

static void back_permute(rl_deriv *d)
{
    const rl_attrs *a = &d->node->attrs;
    int64_t inverse[RL_MAX_NDIM];
    rl_tensor *t = NULL;
    for (int i = 0; i < a->nlist; i++)
        inverse[a->list[i]] = i;
    rl_status st = rl_permute(d->gout[0], a->nlist, inverse, &t);
    d_set(d, 0, d_keep(d, st, t));
}

static void back_transpose(rl_deriv *d)
{
    rl_tensor *t = NULL;
    rl_status st = rl_transpose(d->gout[0], d->node->attrs.i[0], d->node->attrs.i[1], &t);
    d_set(d, 0, d_keep(d, st, t));
}

static void back_diag_embed(rl_deriv *d)
{
    const rl_attrs *a = &d->node->attrs;
    rl_tensor *t = NULL;
    rl_status st = rl_diagonal(d->gout[0], a->i[0], a->i[1], a->i[2], &t);
    d_set(d, 0, d_keep(d, st, t));
}

/* A flat tensor of n zeros with g added at the positions `index` gives (an element may be named many times). */
static rl_tensor *scatter_flat(rl_deriv *d, int64_t n, rl_tensor *index, rl_tensor *g)
{
    int64_t count = g->numel;
    rl_tensor *flat = zeros(d, 1, &n, g), *rows = reshape(d, index, 1, &count), *values = reshape(d, g, 1, &count);
    if (d->st != RL_OK)
        return NULL;
    GIVES(rl_index_add(flat, 0, rows, values, rl_scalar_int(1), &t));
}

static rl_tensor *positions(rl_deriv *d, int64_t n, const rl_tensor *like)
{
    if (d->st != RL_OK)
        return NULL;
    GIVES(rl_arange(rl_scalar_int(0), rl_scalar_int(n), rl_scalar_int(1), RL_I64, rl_tensor_device(like), &t));
}

static rl_tensor *as_strided(rl_deriv *d, rl_tensor *x, int n, const int64_t *shape, const int64_t *strides, int64_t offset)
{
    if (d->st != RL_OK)
        return NULL;
    GIVES(rl_as_strided(x, n, shape, strides, offset, &t));
}

/* Elements of storage from 0 that a geometry reaches. */
static int64_t reach(int n, const int64_t *shape, const int64_t *strides, int64_t offset)
{
    for (int i = 0; i < n; i++) {
        if (shape[i] == 0)
            return 0;
        offset += (shape[i] - 1) * strides[i];
    }
    return offset + 1;
}

/* Adds g over the storage that base and view share, then reads it with the base's geometry. */
static void back_as_strided(rl_deriv *d)
{
    const rl_attrs *a = &d->node->attrs;
    rl_tensor *g = d->gout[0];
    int base_ndim = (int)a->i[0], ndim = a->nlist - 2 * base_ndim;
    const int64_t *shape = a->list, *strides = a->list + base_ndim, *view_strides = a->list + 2 * base_ndim;
    int64_t from = a->i[1] < a->i[2] ? a->i[1] : a->i[2];
    int64_t n = reach(base_ndim, shape, strides, a->i[1] - from), m = reach(ndim, g->shape, view_strides, a->i[2] - from);
    n = n > m ? n : m;
    rl_tensor *all = positions(d, n, g), *index = NULL, *flat = NULL;
    if (all && g->numel > 0)
        index = as_strided(d, all, ndim, g->shape, view_strides, a->i[2] - from);
    if (index)
        flat = scatter_flat(d, n, index, g);
    else if (d->st == RL_OK)
        flat = zeros(d, 1, &n, g);
    if (flat)
        d_set(d, 0, as_strided(d, flat, base_ndim, shape, strides, a->i[1] - from));
}

static void back_unfold(rl_deriv *d)
{
    const rl_attrs *a = &d->node->attrs;
    rl_tensor *g = d->gout[0], *windows = NULL;
    int64_t n = 1;
    for (int i = 0; i < a->nlist; i++)
        n *= a->list[i];
    rl_tensor *index = reshape(d, positions(d, n, g), a->nlist, a->list);
    if (index == NULL)
        return;
    rl_status st = rl_unfold(index, a->i[0], a->i[1], a->i[2], &windows);
    windows = d_keep(d, st, windows);
    if (windows)
        d_set(d, 0, reshape(d, scatter_flat(d, n, windows, g), a->nlist, a->list));
}

/* Parts come together again, with zeros where an output had no gradient. The parts stand in a list of their own: there may be many. */
static void back_parts(rl_deriv *d, bool stacked)
{
    rl_node *n = d->node;
    const rl_tensor *some = NULL;
    rl_tensor *t = NULL, **part;
    rl_status st = RL_OK;
    int done = 0;
    for (int k = 0; k < n->nout; k++)
        some = d->gout[k] ? d->gout[k] : some;
    if (some == NULL)
        return;
    if ((part = rl_pool_alloc((size_t)n->nout * sizeof *part)) == NULL) {
        d->st = RL_ERR_MEMORY;
        return;
    }
    for (; done < n->nout; done++) {
        if (d->gout[done])
            part[done] = rl_tensor_retain(d->gout[done]);
        else
            RL_TRY(rl_zeros(n->outs[done].ndim, n->outs[done].shape, (rl_dtype)some->dtype, rl_tensor_device(some), &part[done]));
    }
    st = stacked ? rl_stack(part, n->nout, n->attrs.i[0], &t) : rl_cat(part, n->nout, n->attrs.i[0], &t);
fail:
    for (int k = 0; k < done; k++)
        rl_tensor_release(part[k]);
    rl_pool_free(part, (size_t)n->nout * sizeof *part);
    d_set(d, 0, d_keep(d, st, t));
}

static void back_unbind(rl_deriv *d)
{
    back_parts(d, true);
}

static void back_split(rl_deriv *d)
{
    back_parts(d, false);
}

/* Hands gin[k] a part of g; not through d_keep, whose room is bounded and a list may be long. */
static void give_part(rl_deriv *d, int k, rl_status st, rl_tensor *part, rl_dtype dtype)
{
    rl_tensor *t = NULL;
    if (d->st == RL_OK && (d->st = st) == RL_OK) {
        d->st = rl_cast(part, dtype, &t);
        rl_tensor_release(part);
    }
    if (d->st == RL_OK)
        d->gin[k] = t;
}

static void back_cat(rl_deriv *d)
{
    const rl_attrs *a = &d->node->attrs;
    int64_t start = 0;
    for (int k = 0; k < d->node->nedges && d->st == RL_OK; k++) {
        int64_t size = a->list[2 * k];
        if (d_needs(d, k)) {
            rl_tensor *part = NULL;
            int64_t none = 0;
            rl_status st = size < 0 ? rl_zeros(1, &none, (rl_dtype)d->gout[0]->dtype, rl_tensor_device(d->gout[0]), &part)
                                    : rl_narrow(d->gout[0], a->i[0], start, size, &part);
            give_part(d, k, st, part, (rl_dtype)a->list[2 * k + 1]);
        }
        start += size > 0 ? size : 0;
    }
}

static void back_stack(rl_deriv *d)
{
    const rl_attrs *a = &d->node->attrs;
    for (int k = 0; k < d->node->nedges && d->st == RL_OK; k++)
        if (d_needs(d, k)) {
            rl_tensor *part = NULL;
            rl_status st = rl_select(d->gout[0], a->i[0], k, &part);
            give_part(d, k, st, part, (rl_dtype)a->list[2 * k + 1]);
        }
}

/* list: r0, s0, r1, s1, … as repeat saw its result */
static void back_repeat(rl_deriv *d)
{
    const rl_attrs *a = &d->node->attrs;
    int64_t axes[RL_MAX_NDIM], shape[RL_MAX_NDIM];
    int n = a->nlist / 2, ndim = (int)a->i[0];
    for (int i = 0; i < n; i++) {
        axes[i] = 2 * i;
        shape[i] = a->list[2 * i + 1];
    }
    if (n == 0) {
        d_set(d, 0, d->gout[0]);
        return;
    }
    if (d->gout[0]->numel == 0) {
        d_set(d, 0, zeros(d, ndim, shape + (n - ndim), d->gout[0]));
        return;
    }
    rl_tensor *wide = reshape(d, d->gout[0], a->nlist, a->list), *t = NULL;
    if (wide == NULL)
        return;
    rl_status st = rl_sum(wide, axes, n, false, RL_DTYPE_NONE, &t);
    d_set(d, 0, reshape(d, d_keep(d, st, t), ndim, shape + (n - ndim)));
}

static void back_flip(rl_deriv *d)
{
    rl_tensor *t = NULL;
    rl_status st = rl_flip(d->gout[0], d->node->attrs.list, d->node->attrs.nlist, &t);
    d_set(d, 0, d_keep(d, st, t));
}

static void back_roll(rl_deriv *d)
{
    const rl_attrs *a = &d->node->attrs;
    int64_t shifts[RL_MAX_NDIM];
    int n = (int)a->i[0];
    rl_tensor *t = NULL;
    for (int i = 0; i < n; i++)
        shifts[i] = -a->list[i];
    rl_status st = rl_roll(d->gout[0], shifts, n, a->list + n, a->nlist - n, &t);
    d_set(d, 0, d_keep(d, st, t));
}

static void back_tri(rl_deriv *d, bool upper)
{
    rl_tensor *t = NULL;
    rl_status st = rl_tri(d->gout[0], d->node->attrs.i[0], upper, &t);
    d_set(d, 0, d_keep(d, st, t));
}

static void back_tril(rl_deriv *d)
{
    back_tri(d, false);
}

static void back_triu(rl_deriv *d)
{
    back_tri(d, true);
}

#define X(name, grad_fn, rule) RL_DERIV(name, grad_fn, rule)
RL_SHAPE_DERIVS(X)
#undef X
