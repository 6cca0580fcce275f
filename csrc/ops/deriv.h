/* deriv: how a backward rule that is not elementwise is written.
 *
 * A rule is a function of the node and its incoming gradients. It calls the public operators through a context with a sticky
 * error: every d_* returns a borrowed tensor that the context releases at the end, NULL once anything failed, so that a rule
 * reads as its formula. Because the calls are public operators, the rule differentiates again by itself under create_graph.
 *
 *   static void back_mm(rl_deriv *d) {                       // gin a: g @ b^T, gin b: a^T @ g
 *       rl_tensor *g = d->gout[0];
 *       if (d_needs(d, 0)) d_set(d, 0, d_mm(d, g, d_t(d, d_saved(d, 1))));
 *       if (d_needs(d, 1)) d_set(d, 1, d_mm(d, d_t(d, d_saved(d, 0)), g));
 *   }
 *   RL_DERIV(mm, "MmBackward0", back_mm)
 */
#ifndef RL_DERIV_H
#define RL_DERIV_H
#include "ops.h"

#define RL_DERIV_TEMPS 64
typedef struct rl_deriv {
    rl_node *node;
    rl_tensor *const *gout;
    rl_tensor **gin;
    rl_status st;
    int ntemps;
    rl_tensor *temps[RL_DERIV_TEMPS];
} rl_deriv;

rl_status rl_deriv_run(rl_node *node, rl_tensor *const *gout, rl_tensor **gin, void (*rule)(rl_deriv *));

/* Defines rl_class_<name>, the node class that ops/x.c passes to rl_node_new; declared by the list of its area (derivs_shape.h, …). */
#define RL_DERIV(id, grad_fn, rule)                                                                 \
    static rl_status back_run_##id(rl_node *n, rl_tensor *const *gout, rl_tensor **gin)           \
    {                                                                                               \
        return rl_deriv_run(n, gout, gin, rule);                                                    \
    }                                                                                               \
    const rl_node_class rl_class_##id = {.name = grad_fn, .backward = back_run_##id};

static inline bool d_needs(const rl_deriv *d, int k) { return d->st == RL_OK && rl_node_needs(d->node, k); }
rl_tensor *d_keep(rl_deriv *d, rl_status st, rl_tensor *t); /* takes the reference; NULL when st is an error */
rl_tensor *d_saved(rl_deriv *d, int k);
void d_set(rl_deriv *d, int k, rl_tensor *t); /* gin[k] = t, a new reference */

#endif
