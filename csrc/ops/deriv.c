/* deriv: the context in which a backward rule runs. See deriv.h. */
#include "deriv.h"

rl_status rl_deriv_run(rl_node *node, rl_tensor *const *gout, rl_tensor **gin, void (*rule)(rl_deriv *))
{
    rl_deriv d;
    rl_state *s = rl_state_get();
    bool was = s->in_derivative;
    d.node = node;
    d.gout = gout;
    d.gin = gin;
    d.st = RL_OK;
    d.ntemps = 0;
    s->in_derivative = true;
    rule(&d);
    s->in_derivative = was;
    for (int i = 0; i < d.ntemps; i++)
        rl_tensor_release(d.temps[i]);
    return d.st;
}

rl_tensor *d_keep(rl_deriv *d, rl_status st, rl_tensor *t)
{
    if (d->st == RL_OK && st == RL_OK && d->ntemps == RL_DERIV_TEMPS)
        st = rl_fail(RL_ERR_RUNTIME, "%s: more than %d temporaries in a backward rule", d->node->name, RL_DERIV_TEMPS);
    if (d->st == RL_OK)
        d->st = st;
    if (d->st != RL_OK) {
        if (st == RL_OK)
            rl_tensor_release(t);
        return NULL;
    }
    d->temps[d->ntemps++] = t;
    return t;
}

rl_tensor *d_saved(rl_deriv *d, int k)
{
    rl_tensor *t = NULL;
    if (d->st != RL_OK)
        return NULL;
    rl_status st = rl_node_unpack(d->node, k, &t);
    return st == RL_OK && t == NULL ? NULL : d_keep(d, st, t);
}

void d_set(rl_deriv *d, int k, rl_tensor *t)
{
    if (d->st == RL_OK && t && rl_node_needs(d->node, k))
        d->gin[k] = rl_tensor_retain(t);
}
