/* graph: nodes, edges, saved tensors, hooks and the backward engine.
 *
 * A node is one recorded operator: its edges lead to the nodes of the operator's inputs, its gradients come in one a
 * forward output and go out one an edge. Nodes hold strong references to the next nodes; a leaf's AccumulateGrad holds
 * the leaf. Counts and gradient slots belong to a backward run (rl_engine_run's side table), never to a node, so runs
 * nest and share nodes across threads. The engine is iterative: chains of 100,000 nodes neither run nor free by recursion.
 *
 * No operator by name stands here: a node's formula is its class's `backward`, given by ops/derivs.c or by py for a
 * custom Function.
 */
#ifndef RL_GRAPH_H
#define RL_GRAPH_H
#include "state.h"
#include "tensor.h"

typedef struct rl_edge {
    rl_node *node; /* strong; NULL: this input needs no gradient */
    int32_t nr;    /* which output of node */
} rl_edge;

/* Shape, dtype and device of one forward output: incoming gradients are checked against it, zeros are made from it. */
typedef struct rl_out_meta {
    uint8_t ndim, dtype;
    rl_device device;
    int64_t *shape; /* in inline_shape or on the heap */
    int64_t inline_shape[5];
} rl_out_meta;

/* A tensor kept for backward. is_output: saved as a bare alias, so that node and output do not hold each other. */
typedef struct rl_saved {
    rl_tensor *tensor;
    rl_version *version;
    uint32_t saved_at;
    int32_t output_nr; /* >= 0: output of this very node; -1: an input or another tensor */
    void *packed;      /* saved_tensors_hooks: the packed Python object, owned through rl_py_saved */
} rl_saved;

/* What a formula needs besides tensors. */
typedef struct rl_attrs {
    int64_t i[6];
    double f[4];
    int32_t nlist;
    int64_t *list; /* a shape, dims, split sizes: owned, from rl_pool_alloc */
} rl_attrs;

typedef struct rl_node_class {
    const char *name; /* "AddBackward0" */
    /* gout[node->nout]: borrowed, NULL where undefined. gin[node->nedges]: filled with new references or NULL; only where
     * rl_node_needs(node, k). Runs with grad mode off, or on under create_graph: formulas are written as calls of operators. */
    rl_status (*backward)(rl_node *node, rl_tensor *const *gout, rl_tensor **gin);
    void (*release)(rl_node *node); /* drops what `extra` holds after a backward without retain_graph; may be NULL */
    void (*destroy)(rl_node *node); /* frees `extra`; may be NULL */
} rl_node_class;

enum {
    RL_NF_RELEASED = 1 << 0,   /* saved tensors are gone: a second backward is an error */
    RL_NF_OWNS_PY = 1 << 1,
    RL_NF_NEEDS_PY = 1 << 2,
    RL_NF_ACCUMULATE = 1 << 3, /* a leaf's AccumulateGrad */
    RL_NF_HEAP = 1 << 4,
};

struct rl_node {
    atomic_llong refs;
    void *py;
    const rl_node_class *cls;
    const char *name;  /* cls->name, or a row's own */
    uint64_t sequence; /* order of creation: the engine runs later nodes first */
    int32_t row;       /* of the operator table, for the generic classes */
    uint16_t flags;
    int16_t nedges, nout, nsaved;
    rl_edge *edges;
    rl_out_meta *outs;
    rl_saved *saved;
    rl_attrs attrs;
    rl_tensor *leaf;      /* AccumulateGrad: strong */
    rl_hook *pre_hooks;   /* of the node, on gout (tensor hooks of its outputs stand here too, with their number) */
    rl_hook *post_hooks;  /* on (gin, gout) */
    rl_stream stream;     /* the forward stream */
    void *extra;          /* the class's own: a custom Function's context */
    void *traceback;      /* anomaly mode: a Python object */
    rl_tensor **retained; /* retain_grad(): weak references to outputs, nout of them, or NULL */
    atomic_ullong mark;   /* a hint of the last run's index; never trusted without a check */
    size_t bytes;         /* of this block */
};

/* ---- recording ---- */
/* True when grad mode is on and one of the tensors (NULLs allowed) requires grad. */
bool rl_grad_needed(rl_tensor *const *inputs, int n);
/* A node with an edge for each input (NULL input: no edge), room for nsaved tensors and nout outputs. */
rl_status rl_node_new(const rl_node_class *cls, rl_tensor *const *inputs, int ninputs, int nout, int nsaved, rl_node **out);
/* Keeps a tensor in slot k. output_nr: -1 for an input, else the number of this node's output that it is. NULL tensor: empty slot. */
rl_status rl_node_save(rl_node *n, int k, rl_tensor *t, int output_nr);
/* A new reference to what slot k holds (NULL in *out for an empty slot); an error when released or when its version moved. */
rl_status rl_node_unpack(rl_node *n, int k, rl_tensor **out);
rl_status rl_node_set_list(rl_node *n, const int64_t *v, int count);
/* Makes t output `nr` of n: sets grad_fn, output_nr and the output's meta. t must not have a history. */
rl_status rl_node_attach(rl_node *n, int nr, rl_tensor *t);
/* For in-place: only the meta. */
rl_status rl_node_set_out(rl_node *n, int nr, const rl_tensor *t);
static inline bool rl_node_needs(const rl_node *n, int k) { return k < n->nedges && n->edges[k].node != NULL; }
/* The edge a gradient of t flows to: its grad_fn, or its AccumulateGrad (made here), or none. Strong reference in *out. */
rl_status rl_gradient_edge(rl_tensor *t, rl_edge *out);

void rl_node_free(rl_node *n);
static inline rl_node *rl_node_retain(rl_node *n)
{
    if (n)
        rl_count_up(&n->refs);
    return n;
}
static inline void rl_node_release(rl_node *n)
{
    if (n && rl_count_down(&n->refs))
        rl_node_free(n);
}
void rl_node_drop_saved(rl_node *n);
/* How much of its name is the operator's: messages say "Exp" of ExpBackward0. */
int rl_node_stem(const rl_node *n);

/* ---- hooks ---- */
/* A list in order of registration. call may replace grads in place (releasing the old one, storing a new reference).
 * What call gets: a pre hook of one output (and a leaf's tensor hook) &gout[nr] with n == 1, a pre hook of all outputs gout with n == nout,
 * a post hook gin with n == nedges and gout as others, a post-accumulate hook the leaf itself in grads[0]. Gradients may be NULL. */
struct rl_hook {
    rl_hook *next;
    uint64_t id;
    int32_t nr; /* pre hooks: the output it watches, -1: all */
    rl_status (*call)(void *self, rl_tensor **grads, int n, rl_tensor *const *others, int nothers);
    void (*free)(void *self);
    void *self;
};
rl_status rl_hook_add(rl_hook **list, int nr, rl_status (*call)(void *, rl_tensor **, int, rl_tensor *const *, int), void (*free)(void *),
                      void *self, uint64_t *id);
bool rl_hook_remove(rl_hook **list, uint64_t id);
void rl_hook_free_all(rl_hook **list);
/* Where the hooks of t stand: on its grad_fn (as a pre hook with its number) or in its meta. */
rl_status rl_tensor_hook_list(rl_tensor *t, rl_hook ***list, int *nr);
/* retain_grad(): t keeps the gradient that flows to it. Forgotten when t dies or gets another history. */
rl_status rl_tensor_retain_grad(rl_tensor *t);
void rl_tensor_forget_retained(rl_tensor *t);

/* ---- the engine ---- */
typedef struct rl_backward_args {
    rl_tensor *const *roots; /* each requires grad */
    rl_tensor *const *grads; /* one a root; NULL: ones for a root of one element, else an error that PyTorch words */
    int nroots;
    rl_tensor *const *inputs; /* NULL: accumulate into leaves; else only these get a gradient */
    int ninputs;
    rl_tensor **results; /* autograd.grad: new references, NULL where unused; NULL with inputs: accumulate into these */
    bool retain_graph, create_graph, allow_unused;
} rl_backward_args;
rl_status rl_engine_run(const rl_backward_args *a);

/* What the engine must ask of ops, since no operator stands in core: set once by ops at load. */
typedef struct rl_graph_ops {
    rl_status (*add)(rl_tensor *a, rl_tensor *b, rl_tensor **out);           /* recorded when grad mode is on */
    rl_status (*add_into)(rl_tensor *a, rl_tensor *b);                       /* a += b, unrecorded */
    rl_status (*sum_to)(rl_tensor *a, int ndim, const int64_t *shape, rl_tensor **out);
    rl_status (*cast)(rl_tensor *a, rl_dtype dtype, rl_tensor **out);
    rl_status (*clone)(rl_tensor *a, rl_tensor **out);                       /* preserve_format */
    rl_status (*ones_like)(rl_tensor *a, rl_tensor **out);
    rl_status (*zeros)(int ndim, const int64_t *shape, rl_dtype d, rl_device dev, rl_tensor **out);
    rl_status (*as_strided)(rl_tensor *a, int ndim, const int64_t *shape, const int64_t *strides, int64_t offset, rl_tensor **out);
    rl_status (*copy_into)(rl_tensor *dst, rl_tensor *src);                  /* dst.copy_(src), recorded when grad mode is on */
} rl_graph_ops;
extern rl_graph_ops rl_graph_op;

/* What py gives the graph. All take the GIL themselves. */
typedef struct rl_graph_py {
    void (*drop)(void *py);                          /* a node's wrapper, traceback or packed object */
    void *(*traceback)(void);                        /* anomaly: the forward stack, a new reference */
    void (*print_traceback)(void *tb, const char *node_name);
    rl_status (*pack)(rl_tensor *t, void **packed);  /* saved_tensors_hooks; *packed NULL: none installed */
    rl_status (*unpack)(void *packed, rl_tensor **out);
} rl_graph_py;
extern rl_graph_py rl_graph_python;

#endif
