/* autograd: what node.c, hook.c, autograd.c and function.c share.
 *
 * Everything here runs with the GIL except the callbacks of core, which take it.
 */
#ifndef RL_PY_AUTOGRAD_H
#define RL_PY_AUTOGRAD_H
#include "convert.h"

/* The wrapper of a node, and the start of a custom Function's context. */
typedef struct rl_py_node {
    PyObject_HEAD
    rl_node *n;     /* strong for wrappers; borrowed by a context, which its node owns; NULL after the node is gone */
    PyObject *metadata;
} rl_py_node;

bool rl_py_is_context(PyObject *o); /* a custom Function's ctx: its node owns it, not the other way round */

/* Takes the GIL for a callback and keeps a pending exception apart. */
typedef struct rl_py_guard {
    PyGILState_STATE gil;
    PyObject *type, *value, *traceback;
} rl_py_guard;
static inline void rl_py_enter(rl_py_guard *g)
{
    g->gil = PyGILState_Ensure();
    PyErr_Fetch(&g->type, &g->value, &g->traceback);
}
static inline void rl_py_leave(rl_py_guard *g)
{
    PyErr_Restore(g->type, g->value, g->traceback);
    PyGILState_Release(g->gil);
}

/* node.register_hook and register_prehook. */
PyObject *rl_py_node_hook(PyObject *node, PyObject *fn, bool pre);

/* A tuple of tensors (None for NULL) from borrowed references. */
PyObject *rl_py_tensor_tuple(rl_tensor *const *v, Py_ssize_t n);

int rl_py_init_node(PyObject *m);
int rl_py_init_hook(PyObject *m);
int rl_py_init_saved(PyObject *m);
int rl_py_init_function(PyObject *m);

#endif
