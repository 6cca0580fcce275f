/* hooks: lists of callbacks on nodes and leaves, and retained gradients. See graph.h.
 *
 * Hooks of a non-leaf tensor stand on its grad_fn with the output's number, so that they run when that node's incoming gradient is complete; those of a leaf
 * stand in its meta. A list is in order of registration; ids are never used twice.
 */
#include "alloc.h"
#include "view.h"

static atomic_ullong next_id = 1;

rl_status rl_hook_add(rl_hook **list, int nr, rl_status (*call)(void *, rl_tensor **, int, rl_tensor *const *, int), void (*free_)(void *), void *self,
                      uint64_t *id)
{
    rl_hook *h = rl_pool_alloc(sizeof *h);
    if (h == NULL)
        return RL_ERR_MEMORY;
    *h = (rl_hook){.id = atomic_fetch_add(&next_id, 1), .nr = nr, .call = call, .free = free_, .self = self};
    while (*list)
        list = &(*list)->next;
    *list = h;
    *id = h->id;
    return RL_OK;
}

static void hook_free(rl_hook *h)
{
    if (h->free)
        h->free(h->self);
    rl_pool_free(h, sizeof *h);
}

bool rl_hook_remove(rl_hook **list, uint64_t id)
{
    for (; *list; list = &(*list)->next)
        if ((*list)->id == id) {
            rl_hook *h = *list;
            *list = h->next;
            hook_free(h);
            return true;
        }
    return false;
}

void rl_hook_free_all(rl_hook **list)
{
    while (*list) {
        rl_hook *h = *list;
        *list = h->next;
        hook_free(h);
    }
}

rl_status rl_tensor_hook_list(rl_tensor *t, rl_hook ***list, int *nr)
{
    rl_node *fn;
    RL_RETURN(rl_tensor_grad_fn(t, &fn));
    if (fn) {
        *list = &fn->pre_hooks;
        *nr = t->output_nr;
        return RL_OK;
    }
    rl_meta *m = rl_tensor_meta(t);
    if (m == NULL)
        return RL_ERR_MEMORY;
    *list = &m->hooks;
    *nr = 0;
    return RL_OK;
}

rl_status rl_tensor_retain_grad(rl_tensor *t)
{
    rl_node *fn;
    rl_meta *m;
    if (!rl_tensor_requires_grad(t))
        return rl_fail(RL_ERR_RUNTIME, "can't retain_grad on Tensor that has requires_grad=False");
    RL_RETURN(rl_tensor_grad_fn(t, &fn));
    if (fn == NULL)
        return RL_OK; /* a leaf keeps its gradient anyway */
    if ((m = rl_tensor_meta(t)) == NULL)
        return RL_ERR_MEMORY;
    if (fn->retained == NULL) {
        if ((fn->retained = rl_pool_alloc((size_t)fn->nout * sizeof *fn->retained)) == NULL)
            return RL_ERR_MEMORY;
        for (int i = 0; i < fn->nout; i++)
            fn->retained[i] = NULL;
    }
    fn->retained[t->output_nr] = t;
    m->retains_grad = true;
    return RL_OK;
}

void rl_tensor_forget_retained(rl_tensor *t)
{
    rl_node *fn = t->grad_fn;
    if (fn && fn->retained && fn->retained[t->output_nr] == t)
        fn->retained[t->output_nr] = NULL;
}
