/* view: view metadata and in-place writes. See view.h.
 *
 * A write on a view whose base is, or now comes to be, in a graph becomes a node on the base: CopySlices, which hands the gradient of the written part to the
 * operator's node and leaves the rest. The view itself, and every other view of that base, gets its grad_fn again as as_strided of the base when it is next
 * asked for: views are replayed by geometry, since a view shares its base's storage.
 */
#include "view.h"
#include "alloc.h"

#include <string.h>

rl_status rl_view_new(rl_tensor *t, int ndim, const int64_t *shape, const int64_t *strides, int64_t offset, rl_tensor **out)
{
    rl_tensor *v, *base = t->meta && t->meta->base ? t->meta->base : t;
    rl_status st;
    RL_RETURN(rl_tensor_on_storage(t->storage, t->version, ndim, shape, strides, offset, (rl_dtype)t->dtype, &v));
    if (t->flags & RL_TF_INFERENCE) {
        v->flags |= RL_TF_INFERENCE;
        rl_version_release(v->version);
        v->version = NULL;
    }
    rl_meta *m = rl_tensor_meta(v);
    if (m == NULL) {
        st = RL_ERR_MEMORY;
        goto fail;
    }
    m->base = rl_tensor_retain(base);
    m->base_version = rl_tensor_version(base);
    bool restricted = base != t && t->meta->view_kind != RL_VIEW_NORMAL; /* a view of a restricted view is restricted too */
    m->view_kind = restricted ? t->meta->view_kind : rl_state_get()->grad_mode ? RL_VIEW_NORMAL : RL_VIEW_NO_GRAD;
    *out = v;
    return RL_OK;
fail:
    rl_tensor_release(v);
    return st;
}

void rl_view_mark(rl_tensor *view, rl_view_kind kind)
{
    if (view->meta && view->meta->base && view->meta->view_kind != RL_VIEW_NO_GRAD)
        view->meta->view_kind = (uint8_t)kind;
}

/* ---- before a write ---- */
static rl_status restricted_view(const rl_tensor *t)
{
    const char *maker = t->grad_fn ? t->grad_fn->name : "None";
    int length = t->grad_fn ? rl_node_stem(t->grad_fn) : 4;
    if (t->meta->view_kind == RL_VIEW_NO_GRAD)
        return rl_fail(RL_ERR_RUNTIME, "A view was created in no_grad mode and is being modified inplace with grad mode enabled. Given that this use case is "
                                       "ambiguous and error-prone, it is forbidden. You can clarify your code by moving both the view and the inplace either "
                                       "both inside the no_grad block (if you don't want the inplace to be tracked) or both outside (if you want the inplace to be "
                                       "tracked).");
    if (t->meta->view_kind == RL_VIEW_CUSTOM)
        return rl_fail(RL_ERR_RUNTIME, "Output %d of %.*s is a view and is being modified inplace. This view was created inside a custom Function (or because an input "
                                       "was returned as-is) and the autograd logic to handle view+inplace would override the custom backward associated with the "
                                       "custom Function, leading to incorrect gradients. This behavior is forbidden. You can fix this by cloning the output of the "
                                       "custom Function.", t->output_nr, length, maker);
    return rl_fail(RL_ERR_RUNTIME, "Output %d of %.*s is a view and is being modified inplace. This view is the output of a function that returns multiple views. Such "
                                   "functions do not allow the output views to be modified inplace. You should replace the inplace operation by an out-of-place "
                                   "one.", t->output_nr, length, maker);
}

static bool is_leaf_with_grad(const rl_tensor *t)
{
    return (t->flags & RL_TF_REQUIRES_GRAD) && t->grad_fn == NULL;
}

static rl_status grad_rules(rl_tensor *t)
{
    rl_tensor *base = t->meta ? t->meta->base : NULL;
    if (is_leaf_with_grad(t))
        return rl_fail(RL_ERR_RUNTIME, "a leaf Variable that requires grad is being used in an in-place operation.");
    if (base && is_leaf_with_grad(base))
        return rl_fail(RL_ERR_RUNTIME, "a view of a leaf Variable that requires grad is being used in an in-place operation.");
    if (base && t->meta->view_kind != RL_VIEW_NORMAL && (rl_tensor_requires_grad(base) || rl_tensor_requires_grad(t)))
        return restricted_view(t);
    return RL_OK;
}

rl_status rl_inplace_check_fill(rl_tensor *t, const char *op)
{
    const rl_state *s = rl_state_get();
    if (RL_UNLIKELY((t->flags & RL_TF_INFERENCE) && !s->inference_mode))
        return rl_fail(RL_ERR_RUNTIME, "Inplace update to inference tensor outside InferenceMode is not allowed.You can make a clone to get a normal tensor before "
                                       "doing inplace update.See https://github.com/pytorch/rfcs/pull/17 for more details.");
    if (RL_UNLIKELY(t->storage->read_only))
        return rl_fail(RL_ERR_RUNTIME, "%s_: the tensor's memory is read-only; clone() it first", op);
    return s->grad_mode ? grad_rules(t) : RL_OK;
}

rl_status rl_inplace_check(rl_tensor *t, const char *op)
{
    RL_RETURN(rl_inplace_check_fill(t, op));
    if (RL_UNLIKELY(rl_tensor_overlaps_itself(t)))
        return rl_fail(RL_ERR_RUNTIME, "unsupported operation: more than one element of the written-to tensor refers to a single memory location. Please clone() the "
                                       "tensor before performing the operation.");
    return RL_OK;
}

/* ---- after a write ---- */

/* extra of a CopySlices node: the operator's node, and the written view's geometry in the base. */
typedef struct slices {
    rl_node *fn;
    int32_t nr, ndim;
    int64_t shape[RL_MAX_NDIM], strides[RL_MAX_NDIM], offset;
} slices;

static void slices_release(rl_node *n)
{
    slices *s = n->extra;
    if (s && s->fn)
        rl_node_drop_saved(s->fn);
}

static void slices_destroy(rl_node *n)
{
    slices *s = n->extra;
    n->extra = NULL;
    if (s) {
        rl_node_release(s->fn);
        rl_pool_free(s, sizeof *s);
    }
}

/* The operator's gradients for what it wrote: its gin[0] stays in the base's gradient, the others go on. */
static rl_status slices_part(slices *s, rl_node *n, rl_tensor *whole, rl_tensor **gin)
{
    rl_status st;
    rl_tensor *part = NULL, *plain = NULL, **inner = NULL;
    size_t bytes = (size_t)(s->fn->nedges + 1) * sizeof *inner;
    rl_tensor **gout = rl_pool_alloc((size_t)s->fn->nout * sizeof *gout);
    inner = rl_pool_alloc(bytes);
    if (gout == NULL || inner == NULL) {
        st = RL_ERR_MEMORY;
        goto fail;
    }
    memset(inner, 0, bytes);
    memset(gout, 0, (size_t)s->fn->nout * sizeof *gout);
    RL_TRY(rl_graph_op.as_strided(whole, s->ndim, s->shape, s->strides, s->offset, &part));
    RL_TRY(rl_graph_op.clone(part, &plain));
    gout[s->nr] = plain;
    RL_TRY(s->fn->cls->backward(s->fn, gout, inner));
    if (inner[0])
        RL_TRY(rl_graph_op.copy_into(part, inner[0]));
    else {
        rl_tensor *zero;
        RL_TRY(rl_graph_op.zeros(part->ndim, part->shape, (rl_dtype)part->dtype, rl_tensor_device(part), &zero));
        st = rl_graph_op.copy_into(part, zero);
        rl_tensor_release(zero);
        if (st != RL_OK)
            goto fail;
    }
    for (int k = 1; k < s->fn->nedges && k < n->nedges; k++) {
        gin[k] = inner[k];
        inner[k] = NULL;
    }
fail:
    if (inner)
        for (int k = 0; k < s->fn->nedges; k++)
            rl_tensor_release(inner[k]);
    rl_pool_free(inner, bytes);
    rl_pool_free(gout, (size_t)s->fn->nout * sizeof *gout);
    rl_tensor_release(part);
    rl_tensor_release(plain);
    return st;
}

static rl_status slices_backward(rl_node *n, rl_tensor *const *gout, rl_tensor **gin)
{
    rl_status st;
    slices *s = n->extra;
    rl_tensor *whole = NULL, *copy;
    if (n->flags & RL_NF_RELEASED)
        return rl_fail(RL_ERR_RUNTIME, "Trying to backward through the graph a second time (or directly access saved tensors after they have already been freed). Saved "
                                       "intermediate values of the graph are freed when you call .backward() or autograd.grad(). Specify retain_graph=True if you "
                                       "need to backward through the graph a second time or if you need to access saved tensors after calling backward.");
    /* the base's gradient with the base's own geometry, from storage offset 0 of a dense copy */
    RL_TRY(rl_graph_op.zeros(n->outs[0].ndim, n->outs[0].shape, (rl_dtype)gout[0]->dtype, gout[0]->storage->device, &copy));
    st = rl_graph_op.copy_into(copy, gout[0]);
    whole = copy;
    if (st == RL_OK)
        st = slices_part(s, n, whole, gin);
    if (st == RL_OK && rl_node_needs(n, 0))
        gin[0] = rl_tensor_retain(whole);
fail:
    rl_tensor_release(whole);
    return st;
}

static const rl_node_class slices_class = {.name = "CopySlices", .backward = slices_backward, .release = slices_release, .destroy = slices_destroy};

/* The view's strides in a contiguous copy of the base: each axis steps over base elements in logical order. */
static rl_status replay_geometry(const rl_tensor *base, const rl_tensor *view, slices *s)
{
    int64_t dense[RL_MAX_NDIM];
    RL_RETURN(rl_shape_contiguous_strides(base->ndim, base->shape, dense));
    s->ndim = view->ndim;
    memcpy(s->shape, view->shape, (size_t)view->ndim * sizeof *s->shape);
    if (rl_tensor_is_contiguous(base)) {
        memcpy(s->strides, view->strides, (size_t)view->ndim * sizeof *s->strides);
        s->offset = view->offset - base->offset;
        return RL_OK;
    }
    /* each stride of the view is a sum of multiples of the base's strides: peel them off, largest first */
    for (int part = -1; part < view->ndim; part++) {
        int64_t left = part < 0 ? view->offset - base->offset : view->strides[part], out = 0;
        bool used[RL_MAX_NDIM] = {false};
        for (int round = 0; round < base->ndim; round++) {
            int best = -1;
            for (int d = 0; d < base->ndim; d++)
                if (!used[d] && base->shape[d] > 1 && base->strides[d] > 0 && (best < 0 || base->strides[d] > base->strides[best]))
                    best = d;
            if (best < 0)
                break;
            used[best] = true;
            out += left / base->strides[best] * dense[best];
            left %= base->strides[best];
        }
        if (left != 0)
            return rl_fail(RL_ERR_NOT_IMPLEMENTED, "in-place write on a view that does not follow the strides of its base");
        if (part < 0)
            s->offset = out;
        else
            s->strides[part] = out;
    }
    return RL_OK;
}

static rl_status rebase_base(rl_tensor *t, rl_tensor *base, rl_node *fn, int nr)
{
    rl_status st;
    rl_node *n = NULL;
    rl_tensor *input = base;
    slices *s = rl_pool_alloc(sizeof *s);
    if (s == NULL)
        return RL_ERR_MEMORY;
    s->fn = NULL;
    RL_TRY(replay_geometry(base, t, s));
    rl_tensor *inputs[1] = {input};
    if (fn->nedges <= 1) {
        RL_TRY(rl_node_new(&slices_class, inputs, 1, 1, 0, &n));
    } else {
        RL_TRY(rl_node_new(&slices_class, (rl_tensor *[32]){input}, fn->nedges < 32 ? fn->nedges : 32, 1, 0, &n));
    }
    for (int k = 1; k < n->nedges; k++)
        n->edges[k] = (rl_edge){rl_node_retain(fn->edges[k].node), fn->edges[k].nr};
    s->fn = rl_node_retain(fn);
    s->nr = nr;
    n->extra = s;
    s = NULL;
    RL_TRY(rl_node_attach(n, 0, base));
fail:
    rl_pool_free(s, sizeof *s);
    rl_node_release(n);
    return st;
}

static void move_history(rl_tensor *t, rl_node *fn, int nr)
{
    rl_node *old = t->grad_fn;
    bool retained = t->meta && t->meta->retains_grad;
    if (retained)
        rl_tensor_forget_retained(t);
    t->grad_fn = rl_node_retain(fn);
    t->output_nr = nr;
    rl_node_release(old);
    if (retained)
        rl_tensor_retain_grad(t); /* out of memory here loses the retention only */
}

rl_status rl_inplace_rebase(rl_tensor *t, rl_node *node, int nr)
{
    rl_tensor *base = t->meta ? t->meta->base : NULL;
    rl_tensor_bump(t);
    if (node == NULL)
        return RL_OK;
    if (base == NULL) {
        move_history(t, node, nr);
        return RL_OK;
    }
    RL_RETURN(rebase_base(t, base, node, nr));
    rl_node *fn; /* base_version differs now: this makes the view's new grad_fn */
    return rl_tensor_grad_fn(t, &fn);
}

/* ---- a view's grad_fn ---- */
rl_status rl_tensor_grad_fn(rl_tensor *t, rl_node **out)
{
    rl_meta *m = t->meta;
    *out = t->grad_fn;
    if (RL_LIKELY(m == NULL || m->base == NULL) || m->view_kind != RL_VIEW_NORMAL)
        return RL_OK;
    rl_tensor *base = m->base;
    uint32_t now = rl_tensor_version(base);
    if (m->base_version == now)
        return RL_OK;
    if (base->grad_fn == NULL) { /* written, but never by something recorded */
        m->base_version = now;
        return RL_OK;
    }
    if (t->grad_fn == NULL || m->base_version != now) {
        rl_tensor *fresh = NULL;
        rl_state *s = rl_state_get();
        bool mode = s->grad_mode;
        s->grad_mode = true;
        rl_status st = rl_graph_op.as_strided(base, t->ndim, t->shape, t->strides, t->offset, &fresh);
        s->grad_mode = mode;
        RL_RETURN(st);
        move_history(t, fresh->grad_fn, fresh->output_nr);
        t->flags &= (uint16_t)~RL_TF_REQUIRES_GRAD;
        rl_tensor_release(fresh);
        m->base_version = now;
    }
    *out = t->grad_fn;
    return RL_OK;
}
