/* engine: one backward run. See graph.h.
 *
 * Invariants: counts and gradient slots live in the run's table, never in a node, so runs nest and may share nodes between threads. A node runs once, when
 * every node that leads to it has run; ready nodes go by descending sequence. The table finds a node by the index in node->mark, which is certain when the
 * entry there is this node; a miss is certain only while no other run can have moved marks, else a hash decides. Edges never change after a node is made, so
 * holding the roots holds everything.
 */
#include "alloc.h"
#include "graph.h"
#include "view.h"

#include <pthread.h>
#include <string.h>

typedef struct entry {
    rl_node *node;
    int32_t deps;
    bool captured, needed, queued;
    union {
        rl_tensor *one;
        rl_tensor **many; /* nout > 1: from the pool */
    };
} entry;

#define STACK_ENTRIES 24

typedef struct run {
    const rl_backward_args *a;
    entry *entries;
    int32_t count, capacity;
    int32_t *heap, nheap; /* ready entries */
    int32_t *hash, hash_size;
    unsigned long long id;
    bool exclusive;
    entry room[STACK_ENTRIES];
    int32_t heap_room[STACK_ENTRIES];
} run;

static atomic_ullong runs_started;
static atomic_int runs_active;

/* ---- the table ---- */
static uint32_t hash_of(const rl_node *n, int32_t size)
{
    return (uint32_t)(((uintptr_t)n >> 6) * 0x9e3779b97f4a7c15ull >> 32) & (uint32_t)(size - 1);
}

static void hash_put(run *r, int32_t index)
{
    uint32_t h = hash_of(r->entries[index].node, r->hash_size);
    while (r->hash[h] >= 0)
        h = (h + 1) & (uint32_t)(r->hash_size - 1);
    r->hash[h] = index;
}

static rl_status hash_build(run *r)
{
    int32_t size = 64;
    while (size < 4 * (r->count + 1))
        size *= 2;
    int32_t *fresh = rl_pool_alloc((size_t)size * sizeof *fresh);
    if (fresh == NULL)
        return RL_ERR_MEMORY;
    rl_pool_free(r->hash, (size_t)r->hash_size * sizeof *fresh);
    r->hash = fresh;
    r->hash_size = size;
    memset(fresh, 0xff, (size_t)size * sizeof *fresh);
    for (int32_t i = 0; i < r->count; i++)
        hash_put(r, i);
    return RL_OK;
}

/* The index of a node in this run, -1 when it is not there. */
static rl_status find(run *r, const rl_node *n, int32_t *index)
{
    unsigned long long at = atomic_load_explicit(&n->mark, memory_order_relaxed);
    *index = (int32_t)at;
    if (at < (unsigned long long)r->count && r->entries[at].node == n)
        return RL_OK;
    *index = -1;
    if (RL_LIKELY(r->exclusive && atomic_load_explicit(&runs_started, memory_order_relaxed) == r->id))
        return RL_OK;
    if (r->hash == NULL || r->hash_size < 2 * r->count)
        RL_RETURN(hash_build(r));
    for (uint32_t h = hash_of(n, r->hash_size); r->hash[h] >= 0; h = (h + 1) & (uint32_t)(r->hash_size - 1))
        if (r->entries[r->hash[h]].node == n) {
            *index = r->hash[h];
            return RL_OK;
        }
    return RL_OK;
}

static rl_status grow(run *r)
{
    int32_t capacity = r->capacity * 4;
    entry *entries = rl_pool_alloc((size_t)capacity * sizeof *entries);
    int32_t *heap = rl_pool_alloc((size_t)capacity * sizeof *heap);
    if (entries == NULL || heap == NULL) {
        rl_pool_free(entries, (size_t)capacity * sizeof *entries);
        rl_pool_free(heap, (size_t)capacity * sizeof *heap);
        return RL_ERR_MEMORY;
    }
    memcpy(entries, r->entries, (size_t)r->count * sizeof *entries);
    if (r->entries != r->room) {
        rl_pool_free(r->entries, (size_t)r->capacity * sizeof *entries);
        rl_pool_free(r->heap, (size_t)r->capacity * sizeof *heap);
    }
    r->entries = entries;
    r->heap = heap;
    r->capacity = capacity;
    return RL_OK;
}

static rl_status add_node(run *r, rl_node *n, int32_t *index)
{
    entry e = {.node = n};
    if (RL_UNLIKELY(r->count == r->capacity))
        RL_RETURN(grow(r));
    if (n->nout > 1) {
        if ((e.many = rl_pool_alloc((size_t)n->nout * sizeof *e.many)) == NULL)
            return RL_ERR_MEMORY;
        memset(e.many, 0, (size_t)n->nout * sizeof *e.many);
    }
    *index = r->count++;
    r->entries[*index] = e;
    atomic_store_explicit(&n->mark, (unsigned long long)*index, memory_order_relaxed);
    if (r->hash && r->hash_size >= 2 * r->count)
        hash_put(r, *index);
    return RL_OK;
}

static rl_tensor **slots_of(entry *e)
{
    return e->node->nout > 1 ? e->many : &e->one;
}

/* Adds every node that is reachable, and counts the edges that lead to each. Entries added are the list of what is still to be looked at. */
static rl_status discover(run *r)
{
    for (int32_t i = 0; i < r->count; i++) {
        rl_node *n = r->entries[i].node;
        for (int k = 0; k < n->nedges; k++) {
            int32_t child;
            if (n->edges[k].node == NULL)
                continue;
            RL_RETURN(find(r, n->edges[k].node, &child));
            if (child < 0)
                RL_RETURN(add_node(r, n->edges[k].node, &child));
            r->entries[child].deps++;
        }
    }
    return RL_OK;
}

/* ---- only what leads to given inputs ---- */

/* Marks nodes from which a captured node is reached: in order of rising sequence, children come before parents. */
static rl_status mark_needed(run *r)
{
    int32_t *stack = rl_pool_alloc((size_t)r->count * 2 * sizeof *stack); /* (entry, next edge) pairs */
    bool *seen = rl_pool_alloc((size_t)r->count);
    rl_status st = RL_OK;
    if (stack == NULL || seen == NULL) {
        st = RL_ERR_MEMORY;
        goto fail;
    }
    memset(seen, 0, (size_t)r->count);
    for (int32_t root = 0; root < r->count; root++) {
        int32_t top = 0;
        if (seen[root])
            continue;
        stack[0] = root;
        stack[1] = 0;
        seen[root] = true;
        while (top >= 0) {
            entry *e = &r->entries[stack[2 * top]];
            int32_t k = stack[2 * top + 1]++, child = -1;
            if (k == e->node->nedges) {
                top--;
                if (top >= 0 && (e->needed || e->captured))
                    r->entries[stack[2 * top]].needed = true;
                continue;
            }
            if (e->node->edges[k].node)
                RL_TRY(find(r, e->node->edges[k].node, &child));
            if (child < 0)
                continue;
            if (seen[child]) {
                e->needed |= r->entries[child].needed || r->entries[child].captured;
            } else {
                seen[child] = true;
                top++;
                stack[2 * top] = child;
                stack[2 * top + 1] = 0;
            }
        }
    }
fail:
    rl_pool_free(stack, (size_t)r->count * 2 * sizeof *stack);
    rl_pool_free(seen, (size_t)r->count);
    return st;
}

/* The inputs' edges: which node and which of its outputs stands for each input. */
static rl_status mark_inputs(run *r, rl_edge *edges)
{
    for (int i = 0; i < r->a->ninputs; i++) {
        int32_t at;
        if (!rl_tensor_requires_grad(r->a->inputs[i]))
            return rl_fail(RL_ERR_RUNTIME, "One of the differentiated Tensors does not require grad");
        RL_RETURN(rl_gradient_edge(r->a->inputs[i], &edges[i]));
        RL_RETURN(find(r, edges[i].node, &at));
        if (at >= 0)
            r->entries[at].captured = true;
    }
    return mark_needed(r);
}

/* ---- ready nodes: a heap by sequence ---- */
static bool later(const run *r, int32_t a, int32_t b)
{
    return r->entries[a].node->sequence > r->entries[b].node->sequence;
}

static void heap_push(run *r, int32_t x)
{
    int32_t i = r->nheap++;
    while (i > 0 && later(r, x, r->heap[(i - 1) / 2])) {
        r->heap[i] = r->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    r->heap[i] = x;
}

static int32_t heap_pop(run *r)
{
    int32_t top = r->heap[0], x = r->heap[--r->nheap], i = 0;
    for (;;) {
        int32_t c = 2 * i + 1;
        if (c >= r->nheap)
            break;
        if (c + 1 < r->nheap && later(r, r->heap[c + 1], r->heap[c]))
            c++;
        if (!later(r, r->heap[c], x))
            break;
        r->heap[i] = r->heap[c];
        i = c;
    }
    if (r->nheap > 0)
        r->heap[i] = x;
    return top;
}

/* ---- gradients ---- */
static bool owned_alone(const rl_tensor *g)
{
    return atomic_load_explicit(&g->refs, memory_order_relaxed) == 1 && atomic_load_explicit(&g->storage->refs, memory_order_relaxed) == 1 && g->py == NULL;
}

/* Takes the reference to g into a slot, adding to what is there. */
static rl_status slot_add(rl_tensor **slot, rl_tensor *g)
{
    rl_tensor *sum;
    rl_status st;
    if (*slot == NULL) {
        *slot = g;
        return RL_OK;
    }
    if (!rl_state_get()->grad_mode) {
        if (owned_alone(*slot) && (*slot)->dtype == g->dtype && rl_tensor_is_dense(*slot)) {
            st = rl_graph_op.add_into(*slot, g);
            rl_tensor_release(g);
            return st;
        }
        if (owned_alone(g) && (*slot)->dtype == g->dtype && rl_tensor_is_dense(g)) {
            if ((st = rl_graph_op.add_into(g, *slot)) != RL_OK) {
                rl_tensor_release(g);
                return st;
            }
            rl_tensor_release(*slot);
            *slot = g;
            return RL_OK;
        }
    }
    st = rl_graph_op.add(*slot, g, &sum);
    rl_tensor_release(g);
    if (st == RL_OK) {
        rl_tensor_release(*slot);
        *slot = sum;
    }
    return st;
}

static rl_status shape_mismatch(const rl_node *from, int k, const rl_tensor *g, int ndim, const int64_t *shape)
{
    return rl_fail(RL_ERR_RUNTIME, "Function %s returned an invalid gradient at index %d - got %s but expected shape compatible with %s", from->name, k,
                   rl_shape_text(g->ndim, g->shape), rl_shape_text(ndim, shape));
}

/* Makes *g fit what the edge leads to: broadcast dimensions summed, dtype cast. Replaces the reference. */
static rl_status fit(const rl_node *from, int k, const rl_edge *e, rl_tensor **g)
{
    const rl_out_meta *m = &e->node->outs[e->nr];
    const rl_tensor *leaf = e->node->leaf;
    int ndim = leaf ? leaf->ndim : m->ndim;
    const int64_t *shape = leaf ? leaf->shape : m->shape;
    uint8_t dtype = leaf ? leaf->dtype : m->dtype;
    rl_tensor *t = *g, *fitted;
    if (RL_UNLIKELY(ndim == UINT8_MAX))
        return RL_OK;
    if (RL_UNLIKELY(t->ndim != ndim || memcmp(t->shape, shape, (size_t)ndim * sizeof *shape) != 0)) {
        bool expandable = t->ndim >= ndim;
        for (int i = 1; expandable && i <= ndim; i++)
            expandable = shape[ndim - i] == t->shape[t->ndim - i] || shape[ndim - i] == 1;
        if (!expandable)
            return shape_mismatch(from, k, t, ndim, shape);
        RL_RETURN(rl_graph_op.sum_to(t, ndim, shape, &fitted));
        rl_tensor_release(t);
        *g = t = fitted;
    }
    if (RL_UNLIKELY(t->dtype != dtype)) {
        RL_RETURN(rl_graph_op.cast(t, (rl_dtype)dtype, &fitted));
        rl_tensor_release(t);
        *g = t = fitted;
    }
    rl_device want = leaf ? rl_tensor_device(leaf) : m->device;
    if (RL_UNLIKELY(!rl_device_same(rl_tensor_device(t), want)))
        return rl_fail(RL_ERR_RUNTIME, "Function %s returned an invalid gradient at index %d - expected device %s but got %s", from->name, k,
                       rl_device_text(want), rl_device_text(rl_tensor_device(t)));
    return RL_OK;
}

/* ---- leaves ---- */
#define LEAF_LOCKS 64
static pthread_mutex_t leaf_locks[LEAF_LOCKS];
static pthread_once_t leaf_once = PTHREAD_ONCE_INIT;

static void leaf_locks_init(void)
{
    for (int i = 0; i < LEAF_LOCKS; i++)
        pthread_mutex_init(&leaf_locks[i], NULL);
}

static bool layout_fits(const rl_tensor *leaf, const rl_tensor *g)
{
    if (rl_tensor_is_contiguous(leaf))
        return rl_tensor_is_contiguous(g);
    if (!rl_tensor_is_dense(leaf))
        return rl_tensor_is_contiguous(g);
    return memcmp(leaf->strides, g->strides, (size_t)leaf->ndim * sizeof *g->strides) == 0;
}

/* A first gradient: g itself when nobody else has it and its layout is the leaf's, else a copy in that layout. */
static rl_status first_gradient(rl_tensor *leaf, rl_tensor *g, rl_tensor **out)
{
    rl_status st;
    rl_tensor *t = NULL;
    bool recorded = rl_state_get()->grad_mode;
    if (recorded) {
        if (owned_alone(g)) {
            *out = g;
            return RL_OK;
        }
        st = rl_graph_op.clone(g, out);
    } else if (owned_alone(g) && layout_fits(leaf, g) && g->grad_fn == NULL && !(g->flags & RL_TF_REQUIRES_GRAD)) {
        *out = g;
        return RL_OK;
    } else if ((st = rl_tensor_empty_like(leaf, (rl_dtype)g->dtype, &t)) == RL_OK) {
        if ((st = rl_graph_op.copy_into(t, g)) == RL_OK)
            *out = t;
        else
            rl_tensor_release(t);
    }
    rl_tensor_release(g);
    return st;
}

/* Takes the reference to g. */
static rl_status accumulate_into(rl_tensor *leaf, rl_tensor *g)
{
    rl_status st;
    rl_tensor *sum = NULL, *old = NULL;
    pthread_once(&leaf_once, leaf_locks_init);
    pthread_mutex_t *lock = &leaf_locks[((uintptr_t)leaf >> 7) % LEAF_LOCKS];
    pthread_mutex_lock(lock);
    if (leaf->grad == NULL) {
        if ((st = first_gradient(leaf, g, &sum)) == RL_OK)
            leaf->grad = sum;
    } else if (!rl_state_get()->grad_mode) {
        st = rl_graph_op.add_into(leaf->grad, g);
        rl_tensor_bump(leaf->grad);
        old = g;
    } else {
        st = rl_graph_op.add(leaf->grad, g, &sum);
        rl_tensor_release(g);
        if (st == RL_OK) {
            old = leaf->grad;
            leaf->grad = sum;
        }
    }
    pthread_mutex_unlock(lock);
    rl_tensor_release(old);
    return st;
}

/* ---- one node ---- */

/* A hook may change the list, and may drop itself: the next one is found by id. */
static rl_status call_hooks(rl_hook **list, rl_tensor **grads, int n, rl_tensor *const *others, int nothers)
{
    uint64_t done = 0;
    for (;;) {
        rl_hook *h = *list;
        while (h && h->id <= done)
            h = h->next;
        if (h == NULL)
            return RL_OK;
        done = h->id;
        bool one = h->nr >= 0 && others == NULL && n > 0;
        RL_RETURN(h->call(h->self, one ? grads + h->nr : grads, one ? 1 : n, others, nothers));
    }
}

static rl_status run_leaf(entry *e, rl_tensor **g)
{
    rl_tensor *leaf = e->node->leaf;
    if (*g == NULL)
        return RL_OK;
    rl_tensor *mine = *g;
    *g = NULL;
    RL_RETURN(accumulate_into(leaf, mine));
    if (leaf->meta && leaf->meta->post_accumulate_hooks)
        return call_hooks(&leaf->meta->post_accumulate_hooks, &leaf, 1, NULL, 0);
    return RL_OK;
}

static void keep_retained(rl_node *n, rl_tensor **g)
{
    for (int i = 0; i < n->nout; i++) {
        rl_tensor *t = n->retained[i], *old;
        if (t == NULL || g[i] == NULL)
            continue;
        old = t->grad;
        t->grad = rl_tensor_retain(g[i]);
        rl_tensor_release(old);
    }
}

static rl_status capture(run *r, const rl_edge *edges, const rl_node *n, rl_tensor **g)
{
    for (int i = 0; i < r->a->ninputs; i++) {
        if (edges[i].node != n || g[edges[i].nr] == NULL)
            continue;
        if (r->a->results) {
            rl_tensor_release(r->a->results[i]);
            r->a->results[i] = rl_tensor_retain(g[edges[i].nr]);
        } else if (n->leaf == NULL)
            RL_RETURN(accumulate_into(r->a->inputs[i], rl_tensor_retain(g[edges[i].nr])));
    }
    return RL_OK;
}

/* Anomaly mode: the first NaN of a gradient is an error that names the function. */
static rl_status check_nan(const rl_node *n, rl_tensor **gin)
{
    for (int k = 0; k < n->nedges; k++) {
        rl_tensor *g = gin[k], *plain;
        if (g == NULL || !rl_dtype_is_float((rl_dtype)g->dtype) || rl_tensor_device(g).type != RL_DEVICE_CPU)
            continue;
        RL_RETURN(rl_graph_op.sum_to(g, 0, NULL, &plain));
        rl_scalar s = rl_element_load(rl_tensor_data(plain), (rl_dtype)plain->dtype);
        rl_tensor_release(plain);
        if (s.d != s.d)
            return rl_fail(RL_ERR_RUNTIME, "Function '%s' returned nan values in its %dth output.", n->name, k);
    }
    return RL_OK;
}

static void enqueue(run *r, int32_t child, int32_t *next)
{
    /* one ready node needs no heap: the chain goes straight on */
    if (*next < 0 && r->nheap == 0)
        *next = child;
    else {
        if (*next >= 0) {
            heap_push(r, *next);
            *next = -1;
        }
        heap_push(r, child);
    }
}

static rl_status pass_on(run *r, rl_node *n, rl_tensor **gin, int32_t *next)
{
    for (int k = 0; k < n->nedges; k++) {
        const rl_edge *e = &n->edges[k];
        int32_t child;
        if (e->node == NULL)
            continue;
        RL_RETURN(find(r, e->node, &child));
        entry *c = &r->entries[child];
        if (gin && gin[k]) {
            RL_RETURN(fit(n, k, e, &gin[k]));
            rl_tensor *g = gin[k];
            gin[k] = NULL;
            RL_RETURN(slot_add(&slots_of(c)[e->nr], g));
        }
        if (--c->deps == 0)
            enqueue(r, child, next);
    }
    return RL_OK;
}

#define STACK_EDGES 16

static rl_status run_formula(run *r, rl_node *n, rl_tensor **g, int32_t *next)
{
    rl_status st;
    rl_tensor *room[STACK_EDGES], **gin = room;
    size_t bytes = (size_t)n->nedges * sizeof *gin;
    if (n->nedges > STACK_EDGES && (gin = rl_pool_alloc(bytes)) == NULL)
        return RL_ERR_MEMORY;
    memset(gin, 0, bytes);
    RL_TRY(n->cls->backward(n, g, gin));
    if (n->post_hooks)
        RL_TRY(call_hooks(&n->post_hooks, gin, n->nedges, g, n->nout));
    if (RL_UNLIKELY(rl_state_get()->anomaly) && rl_state_get()->anomaly_check_nan)
        RL_TRY(check_nan(n, gin));
    if (!r->a->retain_graph)
        rl_node_drop_saved(n);
    st = pass_on(r, n, gin, next);
fail:
    for (int k = 0; k < n->nedges; k++)
        rl_tensor_release(gin[k]);
    if (gin != room)
        rl_pool_free(gin, bytes);
    if (st != RL_OK && n->traceback && rl_graph_python.print_traceback)
        rl_graph_python.print_traceback(n->traceback, n->name);
    return st;
}

static rl_status run_node(run *r, int32_t at, const rl_edge *edges, int32_t *next)
{
    rl_status st = RL_OK;
    rl_node *n = r->entries[at].node;
    rl_tensor *one[1], **g = one;
    bool any = false;
    if (n->nout > 1)
        g = r->entries[at].many;
    else
        one[0] = r->entries[at].one;
    r->entries[at].one = NULL; /* the slots are this function's now; many too, freed below */
    for (int i = 0; i < n->nout; i++)
        any |= g[i] != NULL;
    if (any && n->pre_hooks)
        RL_TRY(call_hooks(&n->pre_hooks, g, n->nout, NULL, 0));
    if (any && n->leaf && n->leaf->meta && n->leaf->meta->hooks)
        RL_TRY(call_hooks(&n->leaf->meta->hooks, g, 1, NULL, 0));
    if (RL_UNLIKELY(n->retained != NULL))
        keep_retained(n, g);
    if (r->entries[at].captured)
        RL_TRY(capture(r, edges, n, g));
    bool wanted = r->a->inputs == NULL || r->entries[at].needed;
    if (n->flags & RL_NF_ACCUMULATE) {
        if (r->a->inputs == NULL || (r->entries[at].captured && r->a->results == NULL))
            RL_TRY(run_leaf(&r->entries[at], g));
    } else if (any && wanted)
        RL_TRY(run_formula(r, n, g, next));
    else
        RL_TRY(pass_on(r, n, NULL, next));
fail:
    for (int i = 0; i < n->nout; i++)
        rl_tensor_release(g[i]);
    if (n->nout > 1)
        rl_pool_free(g, (size_t)n->nout * sizeof *g);
    return st;
}

static rl_status run_all(run *r, const rl_edge *edges)
{
    int32_t next = -1;
    unsigned done = 0;
    for (int32_t i = 0; i < r->count && r->entries[i].queued; i++)
        if (r->entries[i].deps == 0)
            heap_push(r, i);
    while (next >= 0 || r->nheap > 0) {
        int32_t at = next >= 0 ? next : heap_pop(r);
        next = -1;
        RL_RETURN(run_node(r, at, edges, &next));
        if (RL_UNLIKELY((++done & 1023) == 0) && rl_py.check_interrupt && rl_py.check_interrupt())
            return RL_ERR_PYTHON;
    }
    return RL_OK;
}

/* ---- roots ---- */
static rl_status root_gradient(const rl_backward_args *a, int i, rl_tensor **g)
{
    rl_tensor *root = a->roots[i], *given = a->grads ? a->grads[i] : NULL;
    if (given) {
        if (!rl_tensor_same_shape(root, given))
            return rl_fail(RL_ERR_RUNTIME, "Mismatch in shape: grad_output[%d] has a shape of torch.Size(%s) and output[%d] has a shape of torch.Size(%s).", i,
                           rl_shape_text(given->ndim, given->shape), i, rl_shape_text(root->ndim, root->shape));
        *g = rl_tensor_retain(given);
        return RL_OK;
    }
    if (root->numel != 1)
        return rl_fail(RL_ERR_RUNTIME, "grad can be implicitly created only for scalar outputs");
    if (!rl_dtype_is_float((rl_dtype)root->dtype))
        return rl_fail(RL_ERR_RUNTIME, "grad can be implicitly created only for real scalar outputs but got %s", rl_dtype_name((rl_dtype)root->dtype));
    return rl_graph_op.ones_like(root, g);
}

static rl_status add_roots(run *r, rl_edge *roots)
{
    for (int i = 0; i < r->a->nroots; i++) {
        int32_t at;
        rl_tensor *g;
        if (!rl_tensor_requires_grad(r->a->roots[i]))
            return rl_fail(RL_ERR_RUNTIME, "element %d of tensors does not require grad and does not have a grad_fn", i);
        RL_RETURN(rl_gradient_edge(r->a->roots[i], &roots[i]));
        RL_RETURN(root_gradient(r->a, i, &g));
        rl_status st = find(r, roots[i].node, &at);
        if (st == RL_OK && at < 0)
            st = add_node(r, roots[i].node, &at);
        if (st == RL_OK)
            st = fit(roots[i].node, i, &roots[i], &g);
        if (st != RL_OK) {
            rl_tensor_release(g);
            return st;
        }
        r->entries[at].queued = true;
        RL_RETURN(slot_add(&slots_of(&r->entries[at])[roots[i].nr], g));
    }
    return RL_OK;
}

static void clear(run *r)
{
    for (int32_t i = 0; i < r->count; i++) {
        entry *e = &r->entries[i];
        if (e->one == NULL)
            continue;
        rl_tensor **g = slots_of(e);
        for (int k = 0; k < e->node->nout; k++)
            rl_tensor_release(g[k]);
        if (e->node->nout > 1)
            rl_pool_free(g, (size_t)e->node->nout * sizeof *g);
    }
    if (r->entries != r->room) {
        rl_pool_free(r->entries, (size_t)r->capacity * sizeof *r->entries);
        rl_pool_free(r->heap, (size_t)r->capacity * sizeof *r->heap);
    }
    rl_pool_free(r->hash, (size_t)r->hash_size * sizeof *r->hash);
}

static rl_status unused_inputs(const rl_backward_args *a)
{
    for (int i = 0; a->results && !a->allow_unused && i < a->ninputs; i++)
        if (a->results[i] == NULL)
            return rl_fail(RL_ERR_RUNTIME,
                           "The differentiated Tensor at index %d appears to not have been used in the graph. Set allow_unused=True if this is the "
                           "desired behavior.",
                           i);
    return RL_OK;
}

static rl_status run_with(run *r, rl_edge *roots, rl_edge *inputs)
{
    RL_RETURN(add_roots(r, roots));
    RL_RETURN(discover(r));
    if (r->a->inputs)
        RL_RETURN(mark_inputs(r, inputs));
    RL_RETURN(run_all(r, inputs));
    return unused_inputs(r->a);
}

rl_status rl_engine_run(const rl_backward_args *a)
{
    run r = {.a = a, .capacity = STACK_ENTRIES};
    int nedges = a->nroots + (a->inputs ? a->ninputs : 0);
    rl_edge room[8], *edges = room;
    if (nedges > 8 && (edges = rl_pool_alloc((size_t)nedges * sizeof *edges)) == NULL)
        return RL_ERR_MEMORY;
    memset(edges, 0, (size_t)nedges * sizeof *edges);
    r.entries = r.room;
    r.heap = r.heap_room;
    r.exclusive = atomic_fetch_add(&runs_active, 1) == 0;
    r.id = atomic_fetch_add(&runs_started, 1) + 1;
    rl_state *s = rl_state_get();
    bool mode = s->grad_mode;
    s->grad_mode = a->create_graph;
    rl_status st = run_with(&r, edges, edges + a->nroots);
    s->grad_mode = mode;
    clear(&r);
    atomic_fetch_sub(&runs_active, 1);
    for (int i = 0; i < nedges; i++)
        rl_node_release(edges[i].node);
    if (edges != room)
        rl_pool_free(edges, (size_t)nedges * sizeof *edges);
    if (st != RL_OK && a->results)
        for (int i = 0; i < a->ninputs; i++)
            rl_tensor_clear(&a->results[i]);
    return st;
}
