/* view: view metadata and in-place writes, the part of autograd that knows of shared memory.
 *
 * Invariants: a view's base is never a view; a view shares its base's version. An in-place write on a view whose base
 * is in a graph puts a CopySlices node on the base; the grad_fn of every other view of that base is stale from then on
 * (base_version differs) and is rebuilt by rl_tensor_grad_fn as AsStridedBackward0 of the base.
 */
#ifndef RL_VIEW_H
#define RL_VIEW_H
#include "graph.h"

/* A differentiable view of `t` with this geometry (elements), sharing storage and version, with view metadata set:
 * its base is t's base or t, kind is RL_VIEW_NORMAL or RL_VIEW_NO_GRAD by grad mode. Records nothing: the operator does. */
rl_status rl_view_new(rl_tensor *t, int ndim, const int64_t *shape, const int64_t *strides, int64_t offset, rl_tensor **out);
/* The same for one of several outputs. */
void rl_view_mark(rl_tensor *view, rl_view_kind kind);

/* Before an in-place write on t by operator `op` ("add"): a leaf that requires grad, a view whose kind forbids it, an
 * inference tensor outside inference mode, a read-only storage, a tensor that overlaps itself are errors. Changes nothing. */
rl_status rl_inplace_check(rl_tensor *t, const char *op);
/* The same for a fill, which may write an element twice: a tensor that overlaps itself is fine. */
rl_status rl_inplace_check_fill(rl_tensor *t, const char *op);
/* After it: bumps the version and, when `node` is not NULL, makes output `nr` of node the history of t (through CopySlices on the base
 * for a view). Takes no reference to node beyond what it stores. */
rl_status rl_inplace_rebase(rl_tensor *t, rl_node *node, int nr);

/* t->grad_fn, rebuilt first if t is a view whose base was written since. Borrowed; *out may be NULL. */
rl_status rl_tensor_grad_fn(rl_tensor *t, rl_node **out);

#endif
