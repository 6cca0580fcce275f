/* tensor: shape, strides, offset, storage, and the autograd fields.
 *
 * A tensor is a strided view of a storage; the elements it reaches lie inside it (checked when it is made). Reference
 * counts follow count.h. `py` is the back pointer to its Python wrapper: the core never calls Python, it calls rl_py_hooks.
 * Who holds whom: the wrapper holds the tensor; when the wrapper dies while C still holds the tensor and it carries
 * state (dict, subclass, weak reference, hook), the tensor takes the wrapper over (RL_TF_OWNS_PY) until it is exposed
 * again. Geometry of a shared tensor changes only through rl_tensor_set_geometry (resize_, t_, set_data).
 */
#ifndef RL_TENSOR_H
#define RL_TENSOR_H
#include "storage.h"

#define RL_INLINE_DIMS 8
#define RL_MAX_NDIM 64

typedef struct rl_node rl_node;
typedef struct rl_tensor rl_tensor;
typedef struct rl_hook rl_hook;

/* How a differentiable view came to be: decides what an in-place write on it may do. */
typedef enum rl_view_kind {
    RL_VIEW_NORMAL = 0,
    RL_VIEW_NO_GRAD,      /* made under no_grad: in-place with grad is an error */
    RL_VIEW_MULTI_OUTPUT, /* one of several outputs of unbind, split, chunk: likewise */
    RL_VIEW_CUSTOM,       /* returned by a custom Function */
} rl_view_kind;

/* The rare part of a tensor; NULL on most. Owner: view.c (view fields), graph.c (the rest). */
typedef struct rl_meta {
    rl_tensor *base;      /* strong; NULL: not a differentiable view. Never itself a view. */
    uint32_t base_version; /* of the base when this view's grad_fn was last made */
    uint8_t view_kind;
    bool retains_grad;
    rl_node *accumulate;  /* weak: the leaf's AccumulateGrad while it lives; cleared by that node's death */
    rl_hook *hooks;       /* tensor hooks of a leaf; those of a non-leaf stand on its grad_fn */
    rl_hook *post_accumulate_hooks;
} rl_meta;

enum {
    RL_TF_REQUIRES_GRAD = 1 << 0, /* a leaf's; a non-leaf has grad_fn */
    RL_TF_CONTIGUOUS = 1 << 1,    /* cached: row-major without gaps */
    RL_TF_INFERENCE = 1 << 2,
    RL_TF_OWNS_PY = 1 << 3,
    RL_TF_WRAPPED_NUMBER = 1 << 4, /* a Python number as a 0-dim tensor: weak in promotion */
    RL_TF_HEAP_DIMS = 1 << 5,
    RL_TF_NEEDS_PY = 1 << 6, /* the wrapper carries state: resurrect it rather than drop it */
};

struct rl_tensor {
    atomic_llong refs;
    void *py;
    rl_storage *storage;
    rl_version *version; /* NULL on inference tensors */
    int64_t offset;      /* elements */
    int64_t numel;
    int64_t *shape, *strides; /* elements; in dims[] or in one heap block */
    rl_node *grad_fn;         /* strong; read it through rl_tensor_grad_fn, which refreshes a stale view's */
    rl_tensor *grad;          /* strong */
    rl_meta *meta;
    int32_t output_nr; /* which output of grad_fn */
    uint8_t ndim, dtype;
    uint16_t flags;
    int64_t dims[2 * RL_INLINE_DIMS];
};

/* ---- making ---- */
/* Contiguous, uninitialised. Checks sizes >= 0 and every product before it allocates. */
rl_status rl_tensor_empty(int ndim, const int64_t *shape, rl_dtype dtype, rl_device device, rl_tensor **out);
/* With given strides (elements, >= 0): storage as large as they reach. */
rl_status rl_tensor_empty_strided(int ndim, const int64_t *shape, const int64_t *strides, rl_dtype dtype, rl_device device,
                                  rl_tensor **out);
/* preserve_format: the strides of a dense, non-overlapping `like`; else its stride order densified (as PyTorch's empty_like). */
rl_status rl_tensor_empty_like(const rl_tensor *like, rl_dtype dtype, rl_tensor **out);
/* A tensor over an existing storage, which it retains. Checks the span. `version` is shared when given, else fresh. No autograd. */
rl_status rl_tensor_on_storage(rl_storage *storage, rl_version *version, int ndim, const int64_t *shape, const int64_t *strides,
                               int64_t offset, rl_dtype dtype, rl_tensor **out);
/* Shares storage, version and geometry; no autograd (what detach() makes, before its view metadata). */
rl_status rl_tensor_alias(const rl_tensor *t, rl_tensor **out);
/* 0-dim, from a number; RL_TF_WRAPPED_NUMBER not set. */
rl_status rl_tensor_from_scalar(rl_scalar value, rl_dtype dtype, rl_device device, rl_tensor **out);

void rl_tensor_free(rl_tensor *t);
static inline rl_tensor *rl_tensor_retain(rl_tensor *t)
{
    if (t)
        rl_count_up(&t->refs);
    return t;
}
static inline void rl_tensor_release(rl_tensor *t)
{
    if (t && rl_count_down(&t->refs))
        rl_tensor_free(t);
}
/* Releases *slot and puts NULL there. */
static inline void rl_tensor_clear(rl_tensor **slot)
{
    rl_tensor *t = *slot;
    *slot = NULL;
    rl_tensor_release(t);
}

/* ---- reading ---- */
static inline rl_device rl_tensor_device(const rl_tensor *t) { return t->storage->device; }
static inline void *rl_tensor_data(const rl_tensor *t)
{
    return (char *)t->storage->data + t->offset * rl_dtype_size((rl_dtype)t->dtype);
}
static inline int rl_tensor_itemsize(const rl_tensor *t) { return rl_dtype_size((rl_dtype)t->dtype); }
static inline bool rl_tensor_is_contiguous(const rl_tensor *t) { return (t->flags & RL_TF_CONTIGUOUS) != 0; }
/* dense: fills its span without gaps or overlap, in some order of dimensions. */
bool rl_tensor_is_dense(const rl_tensor *t);
bool rl_tensor_is_channels_last(const rl_tensor *t); /* 4-dim (NHWC) or 5-dim (NDHWC) memory order, contiguous in it */
/* Some element is reached by two indices (expand, as_strided). Conservative as PyTorch's has_internal_overlap == Yes. */
bool rl_tensor_overlaps_itself(const rl_tensor *t);
typedef enum rl_overlap { RL_OVERLAP_NONE, RL_OVERLAP_FULL, RL_OVERLAP_PARTIAL, RL_OVERLAP_UNKNOWN } rl_overlap;
/* Of the memory of two tensors; FULL: same elements in the same order. */
rl_overlap rl_tensor_overlap(const rl_tensor *a, const rl_tensor *b);
static inline bool rl_tensor_requires_grad(const rl_tensor *t) { return (t->flags & RL_TF_REQUIRES_GRAD) || t->grad_fn; }
static inline bool rl_tensor_is_leaf(const rl_tensor *t) { return t->grad_fn == NULL; }
bool rl_tensor_same_shape(const rl_tensor *a, const rl_tensor *b);
/* "[2, 3]" in a thread-local ring of buffers: good for a message. */
const char *rl_shape_text(int ndim, const int64_t *shape);
static inline uint32_t rl_tensor_version(const rl_tensor *t)
{
    return t->version ? atomic_load_explicit(&t->version->value, memory_order_relaxed) : 0;
}
static inline void rl_tensor_bump(rl_tensor *t)
{
    if (t->version)
        atomic_store_explicit(&t->version->value, rl_tensor_version(t) + 1, memory_order_relaxed); /* under the interpreter's lock, as counts */
}

/* ---- changing ---- */
/* New geometry on the same storage; checks the span and refreshes the cached flags. */
rl_status rl_tensor_set_geometry(rl_tensor *t, int ndim, const int64_t *shape, const int64_t *strides, int64_t offset);
rl_status rl_tensor_set_storage(rl_tensor *t, rl_storage *s); /* retains s; checks the span */
rl_meta *rl_tensor_meta(rl_tensor *t);                        /* makes it; NULL: out of memory */

/* ---- checked arithmetic of shapes (the prologue's pieces) ---- */
rl_status rl_shape_numel(int ndim, const int64_t *shape, int64_t *out);      /* sizes >= 0, product in int64 */
rl_status rl_shape_contiguous_strides(int ndim, const int64_t *shape, int64_t *strides);
rl_status rl_axis_normalize(int64_t axis, int ndim, int *out); /* IndexError as PyTorch words it; a 0-dim tensor counts as 1-dim */
/* Normalises a list, refuses duplicates, and sets the bits of a mask. n == 0 with `all_if_empty`: every axis. */
rl_status rl_axes_normalize(const int64_t *axes, int n, int ndim, bool all_if_empty, uint64_t *mask);
/* Broadcasts `shape` into out (NumPy's rule); out has *out_ndim on entry. */
rl_status rl_shape_broadcast(int ndim, const int64_t *shape, int *out_ndim, int64_t *out);

/* ---- what py gives the core ---- */
typedef struct rl_py_hooks {
    /* The first thing rl_tensor_free does for a tensor whose wrapper C owns (RL_TF_OWNS_PY). True: the tensor lives on (refs is 1
     * again), because somebody reached the wrapper through a weak reference, or because this thread has no GIL and the tensor was
     * queued to be released later; rl_tensor_free then returns at once. False: the wrapper is gone, t->py is NULL: free t. */
    bool (*drop)(rl_tensor *t);
    bool (*check_interrupt)(void);    /* true: Ctrl-C is pending (RL_ERR_INTERRUPT) */
    /* Around a long kernel, and nowhere else, since counts change under the interpreter's lock: lets it go; takes it again. */
    void *(*leave)(void);
    void (*enter)(void *left);
} rl_py_hooks;
extern rl_py_hooks rl_py;

#endif
