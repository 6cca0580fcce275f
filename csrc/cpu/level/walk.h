/* walk: visiting a strided domain row by row, from any element on, so that a parallel block may start anywhere.
 *
 * Shapes and strides are innermost first, as a plan gives them. Everything is static: a level file never calls code of another level.
 */
#ifndef RL_WALK_H
#define RL_WALK_H
#include "kernels.h"

typedef struct walk {
    int ndim;
    const int64_t *shape;
    int64_t index[RL_ARG_DIMS];
} walk;

/* At logical element `at`. */
static inline void walk_start(walk *w, int ndim, const int64_t *shape, int64_t at)
{
    w->ndim = ndim;
    w->shape = shape;
    for (int d = 0; d < ndim; d++) {
        w->index[d] = at % shape[d];
        at /= shape[d];
    }
}

static inline int64_t walk_offset(const walk *w, const int64_t *strides)
{
    int64_t offset = 0;
    for (int d = 0; d < w->ndim; d++)
        offset += w->index[d] * strides[d];
    return offset;
}

/* Elements left in this row. */
static inline int64_t walk_left(const walk *w) { return w->ndim ? w->shape[0] - w->index[0] : 1; }

/* `n` elements on, n <= walk_left. */
static inline void walk_advance(walk *w, int64_t n)
{
    if (w->ndim == 0)
        return;
    w->index[0] += n;
    for (int d = 0; w->index[d] == w->shape[d] && d + 1 < w->ndim; d++) {
        w->index[d] = 0;
        w->index[d + 1]++;
    }
}

/* The strides are those of a dense array in this order. */
static inline bool walk_is_dense(int ndim, const int64_t *shape, const int64_t *strides, int64_t size)
{
    for (int d = 0; d < ndim; d++) {
        if (shape[d] != 1 && strides[d] != size)
            return false;
        size *= shape[d];
    }
    return true;
}

#endif
