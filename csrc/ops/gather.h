/* gather: what gather.c gives the backward rules of indexing. */
#ifndef RL_GATHER_H
#define RL_GATHER_H
#include "derivs.h"

enum { RL_SCATTER_OF_SUM, RL_SCATTER_OF_PROD, RL_SCATTER_OF_MEAN, RL_SCATTER_OF_AMAX, RL_SCATTER_OF_AMIN };

/* x's copy with the source (NULL: the value) put or combined at index along the axis; checked by the caller, unrecorded. mode: RL_SCATTER_ */
rl_status rl_scatter_raw(rl_tensor *x, int axis, rl_tensor *index, rl_tensor *src, rl_scalar value, int mode, rl_tensor **out);
/* How many elements met in each place of x, at least 1; in x's dtype, unrecorded. */
rl_status rl_scatter_count(rl_tensor *x, int axis, rl_tensor *index, bool include_self, rl_tensor **out);
rl_status rl_scatter_reduce(rl_tensor *x, int64_t dim, rl_tensor *index, rl_tensor *src, int what, bool include_self, rl_tensor **out);

/* select.c */
rl_status rl_index_fill(rl_tensor *x, int64_t dim, rl_tensor *index, rl_scalar value, rl_tensor **out);
rl_status rl_index_from_start(rl_tensor *index, int64_t size, rl_tensor **out); /* -1 becomes size - 1; int64, unrecorded */
rl_status rl_put(rl_tensor *x, rl_tensor *index, rl_tensor *src, bool accumulate, rl_tensor **out);
/* Adds the rows of g at indices into zeros, passing over rows of `padding` (-1: none). */
rl_status rl_embedding_rows(rl_tensor *zeros, rl_tensor *g, rl_tensor *indices, int64_t padding);

#endif
