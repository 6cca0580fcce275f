/* index.c: advanced indexing: reading and writing x[i, :, j] with tensors of positions and masks, broadcast together.
 *
 * A call becomes an index_plan: masks turned into positions, positions broadcast, and one iteration space over (before, positions, after)
 * in which
 * x, the value and the positions are strided. The kernel checks every position before it writes. Positions that stand apart put their
 * dimensions first in the result, as in PyTorch and NumPy.
 */
#include "derivs.h"

#include <stdio.h>

#define MAX_INDEX RL_ARG_DIMS

typedef struct index_plan {
    int n;                             /* slots used: one a leading dimension of x */
    rl_tensor *slot[RL_MAX_NDIM];      /* owned, int64; NULL: a full slice */
    int nindex;                        /* of them not NULL */
    int wide_ndim;                     /* their broadcast shape */
    int64_t wide[RL_MAX_NDIM];
    int at;                            /* where it stands in the result */
    int ndim;                          /* the result */
    int64_t shape[RL_MAX_NDIM];
    int plain[RL_MAX_NDIM];            /* the dimension of x behind a plain dimension of the result; -1: of the positions */
} index_plan;

static void plan_drop(index_plan *p)
{
    for (int k = 0; k < p->n; k++)
        rl_tensor_release(p->slot[k]);
    p->n = 0;
}

/* ---- the slots ---- */

static rl_status too_many(const rl_tensor *x) { return rl_fail(RL_ERR_INDEX, "too many indices for tensor of dimension %d", x->ndim); }

static rl_status add_mask(index_plan *p, const rl_tensor *x, rl_tensor *mask)
{
    rl_tensor *where = NULL;
    rl_status st = RL_OK;
    if (p->n + mask->ndim > x->ndim)
        return too_many(x);
    for (int d = 0; d < mask->ndim; d++)
        if (mask->shape[d] != x->shape[p->n + d])
            return rl_fail(RL_ERR_INDEX, "The shape of the mask %s at index %d does not match the shape of the indexed tensor %s at "
                                         "index %d",
                           rl_shape_text(mask->ndim, mask->shape), d, rl_shape_text(x->ndim, x->shape), p->n + d);
    RL_TRY(rl_nonzero(mask, &where));
    for (int d = 0; d < mask->ndim; d++) {
        RL_TRY(rl_select(where, 1, d, &p->slot[p->n]));
        p->n++;
    }
fail:
    rl_tensor_release(where);
    return st;
}

static rl_status add_slot(index_plan *p, const rl_tensor *x, rl_tensor *t)
{
    if (t && (t->dtype == RL_BOOL || t->dtype == RL_U8))
        return add_mask(p, x, t);
    if (p->n >= x->ndim)
        return too_many(x);
    p->slot[p->n] = NULL;
    if (t && rl_dtype_is_float((rl_dtype)t->dtype))
        return rl_fail(RL_ERR_INDEX, "tensors used as indices must be long, int, byte or bool tensors");
    if (t)
        RL_RETURN(rl_cast(t, RL_I64, &p->slot[p->n]));
    p->n++;
    return RL_OK;
}

static rl_status broadcast_slots(index_plan *p)
{
    p->wide_ndim = 0;
    for (int k = 0; k < p->n; k++) {
        const rl_tensor *t = p->slot[k];
        if (!t || rl_shape_broadcast(t->ndim, t->shape, &p->wide_ndim, p->wide) == RL_OK)
            continue;
        char text[512] = "";
        for (int j = 0, at = 0; j < p->n && at < 400; j++)
            if (p->slot[j])
                at += snprintf(text + at, sizeof text - (size_t)at, "%s%s", at ? ", " : "",
                               rl_shape_text(p->slot[j]->ndim, p->slot[j]->shape));
        return rl_fail(RL_ERR_INDEX, "shape mismatch: indexing tensors could not be broadcast together with shapes %s", text);
    }
    return RL_OK;
}

/* The result: positions together stay where they are, positions apart come first. */
static rl_status lay_out(index_plan *p, const rl_tensor *x)
{
    int first = -1, last = -1;
    p->nindex = 0;
    for (int k = 0; k < p->n; k++) {
        if (!p->slot[k])
            continue;
        first = first < 0 ? k : first;
        last = k;
        p->nindex++;
    }
    bool together = last - first + 1 == p->nindex;
    p->at = together && first >= 0 ? first : 0;
    p->ndim = x->ndim - p->nindex + p->wide_ndim;
    if (p->ndim > RL_MAX_NDIM || p->nindex > MAX_INDEX)
        return rl_fail(RL_ERR_RUNTIME, "indexing with %d index tensors to a result of %d dimensions", p->nindex, p->ndim);
    for (int d = 0, k = 0, from = 0; d < p->ndim; d++) {
        if (d >= p->at && k < p->wide_ndim) {
            p->plain[d] = -1;
            p->shape[d] = p->wide[k++];
            continue;
        }
        while (from < p->n && p->slot[from])
            from++;
        p->plain[d] = from;
        p->shape[d] = x->shape[from++];
    }
    return RL_OK;
}

static rl_status plan_build(index_plan *p, const rl_tensor *x, rl_tensor *const *indices, int n)
{
    p->n = 0;
    bool grad = rl_grad_off();
    rl_status st = RL_OK;
    for (int k = 0; k < n && st == RL_OK; k++)
        st = add_slot(p, x, indices[k]);
    rl_grad_restore(grad);
    if (st == RL_OK)
        st = broadcast_slots(p);
    if (st == RL_OK)
        st = lay_out(p, x);
    if (st != RL_OK)
        plan_drop(p);
    return st;
}

/* ---- the kernel ---- */

static int64_t wide_stride(const rl_tensor *t, int wide_ndim, int k)
{
    int d = k - (wide_ndim - t->ndim);
    return d < 0 || t->shape[d] == 1 ? 0 : t->strides[d] * rl_tensor_itemsize(t);
}

static void push_dim(rl_index_args *a, int64_t size, int64_t x, int64_t value, const int64_t *index)
{
    int last = a->ndim - 1;
    bool merge = last >= 0 && a->x_strides[last] == x * size && a->value_strides[last] == value * size;
    for (int k = 0; merge && k < a->nindex; k++)
        merge = a->index_strides[k][last] == index[k] * size;
    int d = merge ? last : a->ndim++;
    a->shape[d] = merge ? a->shape[d] * size : size;
    a->x_strides[d] = x;
    a->value_strides[d] = value;
    for (int k = 0; k < a->nindex; k++)
        a->index_strides[k][d] = index[k];
}

/* value has the plan's shape, any strides. */
static rl_status run(const index_plan *p, rl_tensor *x, rl_tensor *value, int mode)
{
    rl_index_args a = {.mode = mode, .dtype = x->dtype, .numel = value->numel, .x = rl_tensor_data(x), .value = rl_tensor_data(value)};
    int64_t size = rl_tensor_itemsize(x), index[MAX_INDEX] = {0};
    const rl_tensor *used[MAX_INDEX];
    for (int k = 0; k < p->n; k++) {
        if (!p->slot[k])
            continue;
        used[a.nindex] = p->slot[k];
        a.index[a.nindex] = rl_tensor_data(p->slot[k]);
        a.index_size[a.nindex] = x->shape[k];
        a.index_x_stride[a.nindex] = x->strides[k] * size;
        a.index_dim[a.nindex++] = k;
    }
    for (int d = 0, wide = 0; d < p->ndim; d++) {
        bool plain = p->plain[d] >= 0;
        for (int k = 0; k < a.nindex; k++)
            index[k] = plain ? 0 : wide_stride(used[k], p->wide_ndim, wide);
        wide += !plain;
        if (p->shape[d] == 1)
            continue;
        if (a.ndim == RL_ARG_DIMS)
            return rl_fail(RL_ERR_RUNTIME, "indexing: a result of shape %s has more than %d dimensions that do not merge",
                           rl_shape_text(p->ndim, p->shape),
                           RL_ARG_DIMS);
        push_dim(&a, p->shape[d], plain ? x->strides[p->plain[d]] * size : 0, value->strides[d] * size, index);
    }
    return value->numel ? rl_launch(x, RL_K_INDEX, &a) : RL_OK;
}

/* ---- recording: attrs i[0] slots, i[1] accumulate; saved: the slots; the list is the shape of x (index) or of the value (index_put) ---- */

static rl_status save_slots(rl_node *node, const index_plan *p)
{
    node->attrs.i[0] = p->n;
    for (int k = 0; k < p->n; k++)
        RL_RETURN(rl_node_save(node, k, p->slot[k], -1));
    return RL_OK;
}

rl_status rl_index(rl_tensor *x, rl_tensor *const *indices, int n, rl_tensor **out)
{
    index_plan p;
    rl_tensor *o = NULL;
    rl_node *node;
    rl_status st = RL_OK;
    RL_RETURN(plan_build(&p, x, indices, n));
    RL_TRY(rl_tensor_empty(p.ndim, p.shape, (rl_dtype)x->dtype, rl_tensor_device(x), &o));
    RL_TRY(run(&p, x, o, RL_INDEX_GET));
    RL_TRY(rl_record(&rl_class_index, &x, 1, &o, 1, p.n, &node));
    if (node) {
        RL_TRY(save_slots(node, &p));
        RL_TRY(rl_node_set_list(node, x->shape, x->ndim));
    }
    *out = o;
    o = NULL;
fail:
    plan_drop(&p);
    rl_tensor_release(o);
    return st;
}

/* ---- writing ---- */

/* The value as it is written: x's dtype, broadcast to the plan's shape, apart from x's memory. */
static rl_status value_of(const index_plan *p, rl_tensor *x, rl_tensor *value, rl_tensor **out)
{
    rl_tensor *apart = NULL;
    rl_status st = RL_OK;
    int lead = value->ndim - p->ndim;
    if (value->dtype != x->dtype)
        return rl_fail(RL_ERR_RUNTIME, "Index put requires the source and destination dtypes match, got %s for the destination and %s "
                                       "for the source.",
                       rl_scalar_type_text((rl_dtype)x->dtype), rl_scalar_type_text((rl_dtype)value->dtype));
    bool fits = true;
    for (int d = 0; d < value->ndim && fits; d++)
        fits = value->shape[d] == 1 || (d >= lead && value->shape[d] == p->shape[d - lead]);
    if (!fits)
        return rl_fail(RL_ERR_RUNTIME, "shape mismatch: value tensor of shape %s cannot be broadcast to indexing result of shape %s",
                       rl_shape_text(value->ndim, value->shape), rl_shape_text(p->ndim, p->shape));
    bool grad = rl_grad_off();
    if (rl_tensor_overlap(x, value) != RL_OVERLAP_NONE)
        RL_TRY(rl_clone(value, RL_FORMAT_CONTIGUOUS, &apart));
    else
        apart = rl_tensor_retain(value);
    if (lead > 0) { /* leading dimensions of size 1 */
        rl_tensor *less = NULL;
        RL_TRY(rl_reshape(apart, p->ndim, value->shape + lead, &less));
        rl_tensor_release(apart);
        apart = less;
    }
    RL_TRY(rl_expand(apart, p->ndim, p->shape, out));
fail:
    rl_grad_restore(grad);
    rl_tensor_release(apart);
    return st;
}

static rl_status put_node(const index_plan *p, rl_tensor *x, rl_tensor *value, bool accumulate, rl_node **node)
{
    rl_tensor *in[2] = {x, value};
    rl_status st = RL_OK;
    *node = NULL;
    if (!rl_grad_needed(in, 2))
        return RL_OK;
    RL_RETURN(rl_node_new(&rl_class_index_put, in, 2, 1, p->n, node));
    RL_TRY(save_slots(*node, p));
    (*node)->attrs.i[1] = accumulate;
    RL_TRY(rl_node_set_list(*node, value->shape, value->ndim));
    return RL_OK;
fail:
    rl_node_release(*node);
    *node = NULL;
    return st;
}

rl_status rl_index_put_(rl_tensor *x, rl_tensor *const *indices, int n, rl_tensor *value, bool accumulate)
{
    index_plan p;
    rl_tensor *v = NULL;
    rl_node *node = NULL;
    rl_status st = RL_OK;
    RL_RETURN(rl_inplace_check(x, "index_put_"));
    RL_RETURN(plan_build(&p, x, indices, n));
    RL_TRY(value_of(&p, x, value, &v));
    RL_TRY(put_node(&p, x, value, accumulate, &node));
    if (node)
        RL_TRY(rl_node_set_out(node, 0, x));
    RL_TRY(run(&p, x, v, accumulate ? RL_INDEX_ADD : RL_INDEX_PUT));
    RL_TRY(rl_inplace_rebase(x, node, 0));
fail:
    plan_drop(&p);
    rl_tensor_release(v);
    rl_node_release(node);
    return st;
}

rl_status rl_index_put(rl_tensor *x, rl_tensor *const *indices, int n, rl_tensor *value, bool accumulate, rl_tensor **out)
{
    index_plan p;
    rl_tensor *v = NULL, *o = NULL;
    rl_node *node = NULL;
    rl_status st = RL_OK;
    RL_RETURN(plan_build(&p, x, indices, n));
    RL_TRY(value_of(&p, x, value, &v));
    bool grad = rl_grad_off();
    st = rl_clone(x, RL_FORMAT_PRESERVE, &o);
    rl_grad_restore(grad);
    RL_TRY(st);
    RL_TRY(run(&p, o, v, accumulate ? RL_INDEX_ADD : RL_INDEX_PUT));
    RL_TRY(put_node(&p, x, value, accumulate, &node));
    if (node)
        RL_TRY(rl_node_attach(node, 0, o));
    *out = o;
    o = NULL;
fail:
    plan_drop(&p);
    rl_tensor_release(v);
    rl_tensor_release(o);
    rl_node_release(node);
    return st;
}

/* (self, Tensor?[] indices) */
rl_status rl_op_index(rl_call *c, rl_result *r)
{
    rl_tensor *out = NULL;
    return rl_give(rl_index(c->args[0].t, c->args[1].tensors.v, c->args[1].tensors.n, &out), out, r);
}

/* (self, Tensor?[] indices, Tensor values, bool accumulate=False) */
rl_status rl_op_index_put(rl_call *c, rl_result *r)
{
    rl_tensor *out = NULL;
    rl_status st = rl_index_put(c->args[0].t, c->args[1].tensors.v, c->args[1].tensors.n, c->args[2].t, c->args[3].b, &out);
    return rl_give(st, out, r);
}

rl_status rl_op_index_put_(rl_call *c, rl_result *r)
{
    RL_RETURN(rl_index_put_(c->args[0].t, c->args[1].tensors.v, c->args[1].tensors.n, c->args[2].t, c->args[3].b));
    return rl_give(RL_OK, rl_tensor_retain(c->args[0].t), r);
}
