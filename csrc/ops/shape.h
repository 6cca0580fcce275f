/* shape: what the files of views and joins share. */
#ifndef RL_SHAPE_H
#define RL_SHAPE_H
#include "common.h"
#include "derivs_shape.h"

typedef struct rl_geometry {
    int ndim;
    int64_t offset; /* elements, as strides */
    int64_t shape[RL_MAX_NDIM + 1], strides[RL_MAX_NDIM + 1];
} rl_geometry;

/* What a backward rule reads: numbers, and a list (the base's sizes when NULL). */
typedef struct rl_view_attrs {
    int64_t i[6];
    const int64_t *list;
    int nlist;
} rl_view_attrs;

/* the lists stay unset: zeroing a kilobyte costs more than a view */
/* n numbers; an empty list may be NULL. */
static inline void rl_ints_copy(int64_t *to, const int64_t *from, int n)
{
    for (int i = 0; i < n; i++)
        to[i] = from[i];
}

static inline void rl_geometry_begin(rl_geometry *g, int ndim, int64_t offset)
{
    g->ndim = ndim;
    g->offset = offset;
}
void rl_geometry_of(const rl_tensor *x, rl_geometry *g);
/* The view with this geometry, recorded as `cls`. */
rl_status rl_view_record(rl_tensor *x, const rl_geometry *g, const rl_node_class *cls, const rl_view_attrs *attrs, rl_tensor **out);
rl_status rl_unfold(rl_tensor *x, int64_t dim, int64_t size, int64_t step, rl_tensor **out);
rl_status rl_stack(rl_tensor *const *v, int n, int64_t dim, rl_tensor **out);
rl_status rl_roll(rl_tensor *x, const int64_t *shifts, int n, const int64_t *dims, int ndims, rl_tensor **out);
rl_status rl_tri(rl_tensor *x, int64_t diagonal, bool upper, rl_tensor **out);
/* One of select, slice and diagonal, by the numbers that a node keeps: axis, index; axis, start, end, step; offset, axis, axis. */
typedef rl_status (*rl_view_fn)(rl_tensor *x, const int64_t *i, rl_tensor **out);
rl_status rl_view_select(rl_tensor *x, const int64_t *i, rl_tensor **out);
rl_status rl_view_slice(rl_tensor *x, const int64_t *i, rl_tensor **out);
rl_status rl_view_diagonal(rl_tensor *x, const int64_t *i, rl_tensor **out);
/* A copy of x whose view holds src instead. */
rl_status rl_view_scatter(rl_tensor *x, rl_tensor *src, rl_view_fn view, const int64_t *i, const rl_node_class *cls, rl_tensor **out);
/* Runs a view operator's `form` and gives x the result's geometry and history: the in-place forms of views. */
rl_status rl_view_become(rl_tensor *x, const char *name, const char *node_name, rl_op_fn form, rl_call *c, rl_result *r);

#endif
