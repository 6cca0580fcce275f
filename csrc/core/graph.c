/* graph: making nodes, keeping tensors for backward, freeing. See graph.h.
 *
 * A node, its edges, its outputs' metadata and its saved slots lie in one block of the pool. Nodes whose count falls to zero while another is being freed
 * wait in a list of this thread, so a chain of any length is freed without recursion. Sequence numbers are process-wide: an edge always leads from a
 * higher number to a lower one (AccumulateGrad, which has no edges, has the highest).
 */
#include "graph.h"
#include "alloc.h"
#include "view.h"

#include <stdio.h>
#include <string.h>

rl_graph_ops rl_graph_op;
rl_graph_py rl_graph_python;

static uint64_t sequence; /* under the interpreter's lock, as counts */

bool rl_grad_needed(rl_tensor *const *inputs, int n)
{
    bool any = false;
    for (int i = 0; i < n; i++)
        any |= inputs[i] && rl_tensor_requires_grad(inputs[i]);
    return any && rl_state_get()->grad_mode;
}

/* ---- making ---- */
static rl_node *node_alloc(int nedges, int nout, int nsaved)
{
    size_t edges = sizeof(rl_node), outs = edges + (size_t)nedges * sizeof(rl_edge), saved = outs + (size_t)nout * sizeof(rl_out_meta);
    size_t bytes = saved + (size_t)nsaved * sizeof(rl_saved);
    char *block = rl_pool_alloc(bytes);
    if (RL_UNLIKELY(block == NULL))
        return NULL;
    rl_node *n = (rl_node *)block;
    memset(block, 0, sizeof *n);
    memset(block + edges, 0, outs - edges);
    for (int i = 0; i < nout; i++)
        ((rl_out_meta *)(block + outs))[i].ndim = UINT8_MAX; /* not set */
    memset(block + saved, 0, bytes - saved);
    atomic_init(&n->refs, 1);
    atomic_init(&n->mark, 0);
    n->edges = (rl_edge *)(block + edges);
    n->outs = (rl_out_meta *)(block + outs);
    n->saved = (rl_saved *)(block + saved);
    n->nedges = (int16_t)nedges;
    n->nout = (int16_t)nout;
    n->nsaved = (int16_t)nsaved;
    n->bytes = bytes;
    return n;
}

rl_status rl_node_new(const rl_node_class *cls, rl_tensor *const *inputs, int ninputs, int nout, int nsaved, rl_node **out)
{
    rl_status st;
    if (RL_UNLIKELY(ninputs > INT16_MAX || nout > INT16_MAX || nsaved > INT16_MAX))
        return rl_fail(RL_ERR_NOT_IMPLEMENTED, "%s: more than %d inputs or outputs", cls->name, INT16_MAX);
    rl_node *n = node_alloc(ninputs, nout, nsaved);
    if (RL_UNLIKELY(n == NULL))
        return RL_ERR_MEMORY;
    n->cls = cls;
    n->name = cls->name;
    n->row = -1;
    n->sequence = ++sequence;
    for (int i = 0; i < ninputs; i++)
        if (inputs[i] && rl_tensor_requires_grad(inputs[i]))
            RL_TRY(rl_gradient_edge(inputs[i], &n->edges[i]));
    if (RL_UNLIKELY(rl_state_get()->anomaly) && rl_graph_python.traceback)
        n->traceback = rl_graph_python.traceback();
    *out = n;
    return RL_OK;
fail:
    rl_node_release(n);
    return st;
}

/* ---- the AccumulateGrad of a leaf ---- */
static const rl_node_class accumulate_class = {.name = "AccumulateGrad"};
static rl_status accumulate_node(rl_tensor *leaf, rl_node **out)
{
    rl_meta *m = rl_tensor_meta(leaf);
    if (RL_UNLIKELY(m == NULL))
        return RL_ERR_MEMORY;
    rl_node *n = rl_node_retain(m->accumulate);
    if (n == NULL) {
        if ((n = node_alloc(0, 1, 0)) == NULL)
            return RL_ERR_MEMORY;
        n->cls = &accumulate_class;
        n->name = accumulate_class.name;
        n->sequence = UINT64_MAX;
        n->flags = RL_NF_ACCUMULATE;
        n->leaf = rl_tensor_retain(leaf);
        m->accumulate = n;
    }
    *out = n;
    return RL_OK;
}

rl_status rl_gradient_edge(rl_tensor *t, rl_edge *out)
{
    rl_node *fn;
    *out = (rl_edge){NULL, 0};
    RL_RETURN(rl_tensor_grad_fn(t, &fn));
    if (fn) {
        out->node = rl_node_retain(fn);
        out->nr = t->output_nr;
        return RL_OK;
    }
    return t->flags & RL_TF_REQUIRES_GRAD ? accumulate_node(t, &out->node) : RL_OK;
}

/* ---- outputs ---- */
static void free_out(rl_out_meta *m)
{
    if (m->ndim != UINT8_MAX && m->shape && m->shape != m->inline_shape)
        rl_pool_free(m->shape, (size_t)m->ndim * sizeof *m->shape);
    m->ndim = UINT8_MAX;
}

rl_status rl_node_set_out(rl_node *n, int nr, const rl_tensor *t)
{
    rl_out_meta *m = &n->outs[nr];
    int64_t *shape = m->inline_shape;
    free_out(m);
    if (t->ndim > 5 && (shape = rl_pool_alloc((size_t)t->ndim * sizeof *shape)) == NULL)
        return RL_ERR_MEMORY;
    for (int i = 0; i < t->ndim; i++)
        shape[i] = t->shape[i];
    m->shape = shape;
    m->ndim = t->ndim;
    m->dtype = t->dtype;
    m->device = rl_tensor_device(t);
    return RL_OK;
}

rl_status rl_node_attach(rl_node *n, int nr, rl_tensor *t)
{
    RL_RETURN(rl_node_set_out(n, nr, t));
    rl_node *old = t->grad_fn;
    t->grad_fn = rl_node_retain(n);
    t->output_nr = nr;
    t->flags &= (uint16_t)~RL_TF_REQUIRES_GRAD;
    rl_node_release(old);
    return RL_OK;
}

rl_status rl_node_set_list(rl_node *n, const int64_t *v, int count)
{
    int64_t *list = NULL;
    if (count > 0) {
        if ((list = rl_pool_alloc((size_t)count * sizeof *list)) == NULL)
            return RL_ERR_MEMORY;
        memcpy(list, v, (size_t)count * sizeof *list);
    }
    if (n->attrs.list)
        rl_pool_free(n->attrs.list, (size_t)n->attrs.nlist * sizeof *list);
    n->attrs.list = list;
    n->attrs.nlist = count;
    return RL_OK;
}

/* ---- saved tensors ---- */
rl_status rl_node_save(rl_node *n, int k, rl_tensor *t, int output_nr)
{
    rl_saved *s = &n->saved[k];
    s->output_nr = output_nr;
    if (t == NULL)
        return RL_OK;
    if (RL_UNLIKELY(t->flags & RL_TF_INFERENCE))
        return rl_fail(RL_ERR_RUNTIME,
                       "Inference tensors cannot be saved for backward. Please do not use Tensors created in inference mode in computation tracked by "
                       "autograd. To work around this, you can make a clone to get a normal tensor and use it in autograd, or use `torch.no_grad()` "
                       "instead of `torch.inference_mode()`.");
    if (rl_graph_python.pack) {
        RL_RETURN(rl_graph_python.pack(t, &s->packed));
        if (s->packed)
            return RL_OK;
    }
    if (output_nr >= 0)
        RL_RETURN(rl_tensor_alias(t, &s->tensor));
    else
        s->tensor = rl_tensor_retain(t);
    s->version = rl_version_retain(t->version);
    s->saved_at = rl_tensor_version(t);
    return RL_OK;
}

static rl_status modified(const rl_node *n, const rl_saved *s, uint32_t now)
{
    const rl_tensor *t = s->tensor;
    const rl_node *maker = s->output_nr >= 0 ? n : t->grad_fn;
    char origin[128] = "";
    if (maker)
        snprintf(origin, sizeof origin, ", which is output %d of %.*s,", s->output_nr >= 0 ? s->output_nr : t->output_nr, rl_node_stem(maker),
                 maker->name);
    return rl_fail(RL_ERR_RUNTIME,
                   "one of the variables needed for gradient computation has been modified by an inplace operation: [torch.%s %s]%s is at version %u; "
                   "expected version %u instead. Hint: %s",
                   rl_dtype_table[t->dtype].tensor_type, rl_shape_text(t->ndim, t->shape), origin, now, s->saved_at,
                   rl_state_get()->anomaly ? "the backtrace further above shows the operation that failed to compute its gradient. The variable in question "
                                             "was changed in there or anywhere later. Good luck!"
                                           : "enable anomaly detection to find the operation that failed to compute its gradient, with "
                                             "torch.autograd.set_detect_anomaly(True, check_nan=False).");
}

rl_status rl_node_unpack(rl_node *n, int k, rl_tensor **out)
{
    rl_saved *s = &n->saved[k];
    *out = NULL;
    if (RL_UNLIKELY(n->flags & RL_NF_RELEASED))
        return rl_fail(RL_ERR_RUNTIME,
                       "Trying to backward through the graph a second time (or directly access saved tensors after they have already been freed). Saved "
                       "intermediate values of the graph are freed when you call .backward() or autograd.grad(). Specify retain_graph=True if you need to "
                       "backward through the graph a second time or if you need to access saved tensors after calling backward.");
    if (RL_UNLIKELY(s->packed != NULL)) {
        RL_RETURN(rl_graph_python.unpack(s->packed, out));
    } else if (s->tensor == NULL) {
        return RL_OK;
    } else {
        uint32_t now = s->version ? atomic_load_explicit(&s->version->value, memory_order_relaxed) : 0;
        if (RL_UNLIKELY(now != s->saved_at))
            return modified(n, s, now);
        if (s->output_nr < 0 || !rl_state_get()->grad_mode) {
            *out = rl_tensor_retain(s->tensor);
            return RL_OK;
        }
        RL_RETURN(rl_tensor_alias(s->tensor, out));
    }
    if (s->output_nr >= 0 && (*out)->grad_fn == NULL) { /* an output comes back with its history, for higher orders */
        (*out)->grad_fn = rl_node_retain(n);
        (*out)->output_nr = s->output_nr;
    }
    return RL_OK;
}

int rl_node_stem(const rl_node *n)
{
    const char *suffix = strstr(n->name, "Backward");
    return (int)(suffix ? (size_t)(suffix - n->name) : strlen(n->name));
}

void rl_node_drop_saved(rl_node *n)
{
    for (int k = 0; k < n->nsaved; k++) {
        rl_saved *s = &n->saved[k];
        rl_tensor *t = s->tensor;
        rl_version *v = s->version;
        void *packed = s->packed;
        s->tensor = NULL;
        s->version = NULL;
        s->packed = NULL;
        rl_tensor_release(t);
        rl_version_release(v);
        if (packed)
            rl_graph_python.drop(packed);
    }
    if (n->nsaved > 0 || n->cls->release)
        n->flags |= RL_NF_RELEASED;
    if (n->cls->release)
        n->cls->release(n);
}

/* ---- freeing ---- */
static _Thread_local rl_node *waiting; /* linked through refs, which is zero on these */
static _Thread_local bool freeing;

static void node_destroy(rl_node *n)
{
    if (n->py && (n->flags & RL_NF_OWNS_PY) && rl_graph_python.drop) {
        void *py = n->py;
        n->py = NULL;
        rl_graph_python.drop(py);
    }
    if (n->leaf) {
        rl_tensor *leaf = n->leaf;
        n->leaf = NULL;
        rl_tensor_release(leaf);
    }
    rl_node_drop_saved(n);
    if (n->cls->destroy)
        n->cls->destroy(n);
    rl_hook_free_all(&n->pre_hooks);
    rl_hook_free_all(&n->post_hooks);
    if (n->traceback)
        rl_graph_python.drop(n->traceback);
    for (int i = 0; i < n->nout; i++)
        free_out(&n->outs[i]);
    if (n->retained)
        rl_pool_free(n->retained, (size_t)n->nout * sizeof *n->retained);
    if (n->attrs.list)
        rl_pool_free(n->attrs.list, (size_t)n->attrs.nlist * sizeof *n->attrs.list);
    for (int i = 0; i < n->nedges; i++)
        rl_node_release(n->edges[i].node);
    rl_pool_free(n, n->bytes);
}

void rl_node_free(rl_node *n)
{
    if (n->leaf && n->leaf->meta && n->leaf->meta->accumulate == n)
        n->leaf->meta->accumulate = NULL; /* from here on nobody may find it */
    atomic_store_explicit(&n->refs, (long long)(intptr_t)waiting, memory_order_relaxed);
    waiting = n;
    if (freeing)
        return;
    freeing = true;
    while ((n = waiting) != NULL) {
        waiting = (rl_node *)(intptr_t)atomic_load_explicit(&n->refs, memory_order_relaxed);
        atomic_store_explicit(&n->refs, 0, memory_order_relaxed);
        node_destroy(n);
    }
    freeing = false;
}
