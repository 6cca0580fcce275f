/* node.c: nodes of the graph as Python sees them: grad_fn, next_functions, metadata.
 *
 * Invariant: one wrapper for one node while it lives. A wrapper owns its node; once it carries metadata the node owns the wrapper too, and
 * that cycle is visible to Python's collector. A custom Function's context is the wrapper of its node from birth and is owned by it.
 * The type of a wrapper is a subclass of Node made for the node's name, as scripts print type(t.grad_fn).__name__.
 */
#include "autograd.h"

static const char *short_name(const char *name)
{
    const char *colon = strrchr(name, ':');
    return colon ? colon + 1 : name;
}

/* The type for a name, made once. New reference. */
static PyTypeObject *type_for(const char *name)
{
    PyObject *key = PyUnicode_InternFromString(short_name(name));
    PyObject *type = key ? PyDict_GetItemWithError(rl_st->node_types, key) : NULL;
    if (type) {
        Py_INCREF(type);
    } else if (key && !PyErr_Occurred()) {
        type = PyObject_CallFunction((PyObject *)&PyType_Type, "O(O){s:(),s:s}", key, rl_st->Node, "__slots__", "__module__", "builtins");
        if (type && PyDict_SetItem(rl_st->node_types, key, type) < 0)
            Py_CLEAR(type);
    }
    Py_XDECREF(key);
    return (PyTypeObject *)type;
}

PyObject *rl_py_wrap_node(rl_node *n)
{
    if (!n)
        Py_RETURN_NONE;
    if (n->py) {
        PyObject *o = Py_NewRef((PyObject *)n->py);
        rl_node_release(n);
        return o;
    }
    PyTypeObject *type = type_for(n->name);
    rl_py_node *o = type ? (rl_py_node *)type->tp_alloc(type, 0) : NULL;
    Py_XDECREF(type);
    if (!o) {
        rl_node_release(n);
        return NULL;
    }
    o->n = n;
    o->metadata = NULL;
    n->py = o;
    return (PyObject *)o;
}

/* ---- life and gc ---- */

/* How far the collector follows a chain of nodes that nobody else holds: cycles through a custom Function's ctx are this close. */
#define VISIT_DEPTH 8

static int visit_node(rl_node *n, visitproc visit, void *arg, int depth)
{
    int r;
    if (n->flags & RL_NF_OWNS_PY)
        Py_VISIT((PyObject *)n->py);
    Py_VISIT((PyObject *)n->traceback);
    if ((r = rl_py_visit_hooks(n->pre_hooks, visit, arg)) || (r = rl_py_visit_hooks(n->post_hooks, visit, arg)))
        return r;
    for (int k = 0; k < n->nsaved; k++) {
        Py_VISIT((PyObject *)n->saved[k].packed);
        if (n->saved[k].tensor && n->saved[k].output_nr < 0 && (r = rl_py_visit_tensor(n->saved[k].tensor, visit, arg)))
            return r;
    }
    if (n->leaf && (r = rl_py_visit_tensor(n->leaf, visit, arg)))
        return r;
    for (int k = 0; depth && k < n->nedges; k++) {
        rl_node *next = n->edges[k].node;
        if (next && atomic_load_explicit(&next->refs, memory_order_relaxed) == 1 && (r = visit_node(next, visit, arg, depth - 1)))
            return r;
    }
    return 0;
}

int rl_py_visit_node(rl_node *n, visitproc visit, void *arg) { return visit_node(n, visit, arg, VISIT_DEPTH); }

static int node_traverse(PyObject *self, visitproc visit, void *arg)
{
    rl_py_node *o = (rl_py_node *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(o->metadata);
    if (o->n && !rl_py_is_context(self) && atomic_load_explicit(&o->n->refs, memory_order_relaxed) == 1)
        return rl_py_visit_node(o->n, visit, arg);
    return 0;
}

/* Parts wrapper and node. The node's claim on the wrapper goes with it. */
static void part(rl_py_node *o)
{
    rl_node *n = o->n;
    if (!n)
        return;
    bool owned = (n->flags & RL_NF_OWNS_PY) && n->py == o, context = rl_py_is_context((PyObject *)o);
    o->n = NULL;
    if (n->py == o) {
        n->py = NULL;
        n->flags &= (uint16_t)~RL_NF_OWNS_PY;
    }
    if (!context)
        rl_node_release(n);
    if (owned)
        Py_DECREF(o);
}

static int node_clear(PyObject *self)
{
    rl_py_node *o = (rl_py_node *)self;
    Py_CLEAR(o->metadata);
    part(o);
    return 0;
}

static void node_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    node_clear(self);
    type->tp_free(self);
    Py_DECREF(type);
}

/* ---- attributes ---- */

static rl_node *alive(PyObject *self)
{
    rl_node *n = ((rl_py_node *)self)->n;
    if (!n)
        PyErr_Format(PyExc_RuntimeError, "the graph that this %s belonged to is gone", Py_TYPE(self)->tp_name);
    return n;
}

static PyObject *node_repr(PyObject *self)
{
    return PyUnicode_FromFormat("<%s object at %p>", Py_TYPE(self)->tp_name, (void *)self);
}

static PyObject *node_name(PyObject *self, PyObject *ignored)
{
    rl_node *n = alive(self);
    return n ? PyUnicode_FromString(n->name) : NULL;
}

static PyObject *next_functions(PyObject *self, void *ignored)
{
    rl_node *n = alive(self);
    PyObject *out = n ? PyTuple_New(n->nedges) : NULL;
    for (int k = 0; out && k < n->nedges; k++) {
        PyObject *next = rl_py_wrap_node(rl_node_retain(n->edges[k].node));
        PyObject *pair = next ? Py_BuildValue("(Ni)", next, n->edges[k].node ? n->edges[k].nr : 0) : NULL;
        if (!pair)
            Py_CLEAR(out);
        else
            PyTuple_SET_ITEM(out, k, pair);
    }
    return out;
}

static PyObject *metadata(PyObject *self, void *ignored)
{
    rl_py_node *o = (rl_py_node *)self;
    if (!o->metadata && !(o->metadata = PyDict_New()))
        return NULL;
    if (o->n && o->n->py == o && !(o->n->flags & RL_NF_OWNS_PY)) {
        o->n->flags |= RL_NF_OWNS_PY;
        Py_INCREF(o);
    }
    return Py_NewRef(o->metadata);
}

static PyObject *sequence_nr(PyObject *self, PyObject *ignored)
{
    rl_node *n = alive(self);
    return n ? PyLong_FromUnsignedLongLong(n->sequence) : NULL;
}

static PyObject *variable(PyObject *self, void *ignored)
{
    rl_node *n = alive(self);
    if (n && !n->leaf)
        return PyErr_Format(PyExc_AttributeError, "'%s' object has no attribute 'variable'", Py_TYPE(self)->tp_name);
    return n ? rl_py_wrap(rl_tensor_retain(n->leaf)) : NULL;
}

static PyObject *requires_grad(PyObject *self, void *ignored) { Py_RETURN_TRUE; }

static PyObject *register_hook(PyObject *self, PyObject *fn) { return alive(self) ? rl_py_node_hook(self, fn, false) : NULL; }
static PyObject *register_prehook(PyObject *self, PyObject *fn) { return alive(self) ? rl_py_node_hook(self, fn, true) : NULL; }

static PyMethodDef methods[] = {
    {"name", node_name, METH_NOARGS, "name() -> str"},
    {"_sequence_nr", sequence_nr, METH_NOARGS, "The number of the node in order of creation."},
    {"register_hook", register_hook, METH_O, "register_hook(fn): fn(grad_inputs, grad_outputs) after the node has run"},
    {"register_prehook", register_prehook, METH_O, "register_prehook(fn): fn(grad_outputs) before the node runs"},
    {NULL, NULL, 0, NULL}};

static PyGetSetDef getset[] = {{"next_functions", next_functions, NULL, "((node, output number), …) for each input", NULL},
                               {"metadata", metadata, NULL, "A dict of one's own.", NULL},
                               {"variable", variable, NULL, "The leaf of an AccumulateGrad.", NULL},
                               {"requires_grad", requires_grad, NULL, NULL, NULL},
                               {NULL, NULL, NULL, NULL, NULL}};

static PyType_Slot slots[] = {{Py_tp_dealloc, node_dealloc}, {Py_tp_traverse, node_traverse}, {Py_tp_clear, node_clear},
                              {Py_tp_repr, node_repr},       {Py_tp_methods, methods},        {Py_tp_getset, getset},
                              {0, NULL}};
static PyType_Spec spec = {.name = "rushlight.autograd.graph.Node",
                           .basicsize = sizeof(rl_py_node),
                           .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                           .slots = slots};

int rl_py_init_node(PyObject *m)
{
    rl_st->node_types = PyDict_New();
    rl_st->Node = (PyTypeObject *)PyType_FromSpec(&spec);
    return rl_st->node_types && rl_st->Node ? PyModule_AddObjectRef(m, "Node", (PyObject *)rl_st->Node) : -1;
}
