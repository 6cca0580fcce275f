/* function.c: custom Functions: apply, the context, and backward as a call of the user's method.
 *
 * The context is made before forward runs and its node after, so that a call that needs no gradient makes none. From then on the node owns
 * the context (see node.c) and holds the saved tensors, with the same checks of versions as every other node.
 */
#include "autograd.h"

typedef struct context {
    rl_py_node node;
    PyObject *to_save, *dirty, *non_differentiable; /* tuples between forward and the node, or NULL */
    PyObject *needs_input_grad;
    bool materialize;
    Py_ssize_t nargs;
    uint8_t *is_tensor;  /* for each argument of forward */
    uint8_t *out_tensor; /* for each output */
    Py_ssize_t nout;
} context;

static PyTypeObject *context_type; /* set once at import, as the other types of rl_st */

bool rl_py_is_context(PyObject *o) { return context_type && PyObject_TypeCheck(o, context_type); }

/* ---- backward ---- */

static PyObject *materialized(const rl_node *n, int k)
{
    const rl_out_meta *m = &n->outs[k];
    rl_tensor *t = NULL;
    return rl_py_give(rl_zeros(m->ndim, m->shape, (rl_dtype)m->dtype, m->device, &t), &t);
}

static PyObject *backward_args(context *c, const rl_node *n, rl_tensor *const *gout)
{
    PyObject *args = PyTuple_New(n->nout + 1);
    if (!args)
        return NULL;
    PyTuple_SET_ITEM(args, 0, Py_NewRef((PyObject *)c));
    for (int k = 0; k < n->nout; k++) {
        PyObject *g = gout[k]                              ? rl_py_wrap(rl_tensor_retain(gout[k]))
                      : c->materialize && c->out_tensor[k] ? materialized(n, k)
                                                           : Py_NewRef(Py_None);
        if (!g) {
            Py_DECREF(args);
            return NULL;
        }
        PyTuple_SET_ITEM(args, k + 1, g);
    }
    return args;
}

static PyObject *call_backward(context *c, const rl_node *n, rl_tensor *const *gout)
{
    PyObject *cls = PyObject_GetAttrString((PyObject *)c, "_forward_cls");
    PyObject *fn = cls ? PyObject_GetAttrString(cls, "backward") : NULL;
    PyObject *args = fn ? backward_args(c, n, gout) : NULL;
    PyObject *result = args ? PyObject_Call(fn, args, NULL) : NULL;
    if (result && !PyTuple_Check(result))
        Py_SETREF(result, PyTuple_Pack(1, result));
    Py_XDECREF(cls);
    Py_XDECREF(fn);
    Py_XDECREF(args);
    return result;
}

/* More results than inputs are fine while the surplus is None. */
static bool count_fits(const context *c, const rl_node *n, PyObject *result)
{
    Py_ssize_t got = PyTuple_GET_SIZE(result);
    bool ok = got >= c->nargs;
    for (Py_ssize_t k = c->nargs; ok && k < got; k++)
        ok = PyTuple_GET_ITEM(result, k) == Py_None;
    if (!ok)
        PyErr_Format(PyExc_RuntimeError, "function %s returned an incorrect number of gradients (expected %zd, got "
                                         "%zd)", n->name, c->nargs, got);
    return ok;
}

static bool take_grads(const context *c, const rl_node *n, PyObject *result, rl_tensor **gin)
{
    int edge = 0;
    for (Py_ssize_t k = 0; k < c->nargs; k++) {
        PyObject *g = PyTuple_GET_ITEM(result, k);
        if (!c->is_tensor[k]) {
            if (g == Py_None)
                continue;
            PyErr_Format(PyExc_RuntimeError,
                         "function %s returned a gradient different than None at position %zd, but the corresponding forward input was "
                         "not a Variable",
                         n->name, k + 1);
            return false;
        }
        if (g != Py_None && !rl_py_is_tensor(g)) {
            PyErr_Format(PyExc_RuntimeError, "expected Variable or None (got %s)", rl_py_type_text(g));
            return false;
        }
        if (g != Py_None && rl_node_needs(n, edge))
            gin[edge] = rl_tensor_retain(rl_py_unwrap(g));
        edge++;
    }
    return true;
}

static rl_status function_backward(rl_node *n, rl_tensor *const *gout, rl_tensor **gin)
{
    PyGILState_STATE gil = PyGILState_Ensure();
    context *c = (context *)Py_XNewRef((PyObject *)n->py);
    PyObject *result = c ? call_backward(c, n, gout) : NULL;
    if (!c)
        PyErr_Format(PyExc_RuntimeError, "the context of %s is gone", n->name);
    bool ok = result && count_fits(c, n, result) && take_grads(c, n, result, gin);
    for (int k = 0; !ok && k < n->nedges; k++)
        rl_tensor_clear(&gin[k]);
    Py_XDECREF(result);
    Py_XDECREF(c);
    PyGILState_Release(gil);
    return ok ? RL_OK : RL_ERR_PYTHON;
}

static const rl_node_class function_class = {.name = "Function", .backward = function_backward};

/* ---- after forward: the node and the history of the outputs ---- */

static bool holds(PyObject *tuple, PyObject *o)
{
    for (Py_ssize_t k = 0; tuple && k < PyTuple_GET_SIZE(tuple); k++)
        if (PyTuple_GET_ITEM(tuple, k) == o)
            return true;
    return false;
}

static bool all_tensors(PyObject *tuple, bool none, const char *format)
{
    for (Py_ssize_t k = 0; tuple && k < PyTuple_GET_SIZE(tuple); k++) {
        PyObject *o = PyTuple_GET_ITEM(tuple, k);
        if (rl_py_is_tensor(o) || (none && o == Py_None))
            continue;
        PyErr_Format(none ? PyExc_TypeError : PyExc_RuntimeError, format, k, rl_py_type_text(o));
        return false;
    }
    return true;
}

static bool marks_fit(const context *c, PyObject *outputs)
{
    if (!all_tensors(c->to_save, true, "save_for_backward can only save variables, but argument %zd is of type %s") ||
        !all_tensors(c->dirty, false, "mark_dirty can only accept variables, but argument %zd is of type %s") ||
        !all_tensors(c->non_differentiable, false, "mark_non_differentiable only accepts variable arguments, but got argument %zd of "
                                                   "type %s"))
        return false;
    for (Py_ssize_t k = 0; c->dirty && k < PyTuple_GET_SIZE(c->dirty); k++)
        if (!holds(outputs, PyTuple_GET_ITEM(c->dirty, k))) {
            PyErr_SetString(PyExc_RuntimeError, "Some elements marked as dirty during the forward method were not returned as output. "
                                                "The inputs that "
                                                "are modified inplace must all be outputs of the Function.");
            return false;
        }
    return true;
}

/* An alias of an input that forward returned as it was: the input keeps its own history. */
static PyObject *view_of(rl_tensor *t)
{
    rl_tensor *view = NULL;
    rl_status st = rl_view_new(t, t->ndim, t->shape, t->strides, t->offset, &view);
    if (st == RL_OK)
        rl_view_mark(view, RL_VIEW_CUSTOM);
    return rl_py_give(st, &view);
}

static PyObject *plain(PyObject *o, bool is_input)
{
    rl_tensor *t = rl_py_unwrap(o), *alias = NULL;
    if (!rl_tensor_requires_grad(t) || !is_input)
        return Py_NewRef(o);
    return rl_py_give(rl_tensor_alias(t, &alias), &alias);
}

/* The output `o` as what apply returns, with node n as its history (NULL: none is needed). */
static PyObject *finish_output(context *c, rl_node *n, int nr, PyObject *o, PyObject *const *args)
{
    rl_tensor *t = rl_py_unwrap(o);
    bool is_input = false, dirty = holds(c->dirty, o);
    for (Py_ssize_t k = 0; k < c->nargs; k++)
        is_input = is_input || args[k] == o;
    if (!n || holds(c->non_differentiable, o) || !rl_dtype_is_float((rl_dtype)t->dtype)) {
        rl_status st = n ? rl_node_set_out(n, nr, t) : RL_OK;
        return st == RL_OK ? plain(o, is_input) : rl_py_raise(st);
    }
    if (dirty) {
        if ((t->flags & RL_TF_REQUIRES_GRAD) && !t->grad_fn)
            return PyErr_Format(PyExc_RuntimeError, "a leaf Variable that requires grad has been used in an in-place operation.");
        rl_status st = rl_node_set_out(n, nr, t);
        if (st == RL_OK)
            st = rl_inplace_rebase(t, n, nr);
        return st == RL_OK ? Py_NewRef(o) : rl_py_raise(st);
    }
    PyObject *out = is_input || t->grad_fn ? view_of(t) : Py_NewRef(o);
    if (!out)
        return NULL;
    t = rl_py_unwrap(out);
    if (t->meta && t->meta->base)
        rl_view_mark(t, RL_VIEW_CUSTOM);
    rl_status st = rl_node_attach(n, nr, t);
    if (st == RL_OK)
        return out;
    Py_DECREF(out);
    return rl_py_raise(st);
}

static bool save_all(context *c, rl_node *n)
{
    for (Py_ssize_t k = 0; c->to_save && k < PyTuple_GET_SIZE(c->to_save); k++) {
        PyObject *o = PyTuple_GET_ITEM(c->to_save, k);
        rl_tensor *t = o == Py_None ? NULL : rl_py_unwrap(o);
        rl_status st = rl_node_save(n, (int)k, t, t && t->grad_fn == n ? t->output_nr : -1);
        if (st != RL_OK) {
            rl_py_raise(st);
            return false;
        }
    }
    return true;
}

/* A node with an edge for each tensor argument. The context becomes its wrapper, owned by it. New reference. */
static rl_node *make_node(context *c, PyObject *const *args, Py_ssize_t nout)
{
    rl_tensor *small[16], **inputs = c->nargs > 16 ? PyMem_Calloc((size_t)c->nargs, sizeof *inputs) : small;
    rl_node *n = NULL;
    int count = 0;
    if (!inputs) {
        PyErr_NoMemory();
        return NULL;
    }
    for (Py_ssize_t k = 0; k < c->nargs; k++)
        if (c->is_tensor[k])
            inputs[count++] = rl_py_unwrap(args[k]);
    rl_status st = rl_node_new(&function_class, inputs, count, (int)nout, c->to_save ? (int)PyTuple_GET_SIZE(c->to_save) : 0, &n);
    if (inputs != small)
        PyMem_Free(inputs);
    if (st != RL_OK) {
        rl_py_raise(st);
        return NULL;
    }
    n->name = Py_TYPE(c)->tp_name;
    n->py = Py_NewRef((PyObject *)c);
    n->flags |= RL_NF_OWNS_PY;
    c->node.n = n;
    return n;
}

static PyObject *finish_outputs(context *c, bool recorded, PyObject *const *args, PyObject *outputs)
{
    Py_ssize_t nout = PyTuple_GET_SIZE(outputs);
    rl_node *n = NULL;
    PyObject *out = NULL;
    if (nout > INT16_MAX || c->nargs > INT16_MAX || (c->to_save && PyTuple_GET_SIZE(c->to_save) > INT16_MAX))
        return PyErr_Format(PyExc_ValueError, "a Function has at most %d inputs, outputs and saved tensors", INT16_MAX);
    if (!marks_fit(c, outputs) || (recorded && !(n = make_node(c, args, nout))))
        return NULL;
    c->out_tensor = PyMem_Calloc((size_t)nout + 1, 1);
    c->nout = nout;
    out = c->out_tensor ? PyTuple_New(nout) : PyErr_NoMemory();
    for (Py_ssize_t k = 0; out && k < nout; k++) {
        PyObject *o = PyTuple_GET_ITEM(outputs, k);
        c->out_tensor[k] = rl_py_is_tensor(o);
        PyObject *done = c->out_tensor[k] ? finish_output(c, n, (int)k, o, args) : Py_NewRef(o);
        if (!done)
            Py_CLEAR(out);
        else
            PyTuple_SET_ITEM(out, k, done);
    }
    if (out && n && !save_all(c, n))
        Py_CLEAR(out);
    rl_node_release(n);
    return out;
}

/* ---- apply ---- */

static context *new_context(PyObject *cls, PyObject *const *args, Py_ssize_t nargs)
{
    PyObject *type = PyObject_GetAttrString(cls, "_backward_cls");
    context *c = type && PyType_Check(type) && PyType_IsSubtype((PyTypeObject *)type, context_type)
                     ? (context *)((PyTypeObject *)type)->tp_alloc((PyTypeObject *)type, 0)
                     : NULL;
    if (type && !c && !PyErr_Occurred())
        PyErr_Format(PyExc_TypeError, "%R is not a Function", cls);
    Py_XDECREF(type);
    if (!c)
        return NULL;
    c->materialize = true;
    c->nargs = nargs;
    c->needs_input_grad = PyTuple_New(nargs);
    c->is_tensor = PyMem_Calloc((size_t)nargs + 1, 1);
    if (!c->needs_input_grad || !c->is_tensor) {
        if (!c->is_tensor)
            PyErr_NoMemory();
        Py_DECREF(c);
        return NULL;
    }
    for (Py_ssize_t k = 0; k < nargs; k++) {
        c->is_tensor[k] = rl_py_is_tensor(args[k]);
        PyTuple_SET_ITEM(c->needs_input_grad, k, PyBool_FromLong(c->is_tensor[k] && rl_tensor_requires_grad(rl_py_unwrap(args[k]))));
    }
    return c;
}

static bool recorded(const context *c)
{
    bool any = false;
    for (Py_ssize_t k = 0; k < c->nargs; k++)
        any = any || PyTuple_GET_ITEM(c->needs_input_grad, k) == Py_True;
    return any && rl_state_get()->grad_mode;
}

/* forward(ctx, *args), or forward(*args) and setup_context(ctx, args, output). */
static PyObject *call_forward(context *c, PyObject *cls, PyObject *const *args, bool setup)
{
    PyObject *forward = PyObject_GetAttrString(cls, "forward"), *all = PyTuple_New(c->nargs + !setup), *output = NULL;
    if (!forward || !all)
        goto done;
    if (!setup)
        PyTuple_SET_ITEM(all, 0, Py_NewRef((PyObject *)c));
    for (Py_ssize_t k = 0; k < c->nargs; k++)
        PyTuple_SET_ITEM(all, k + !setup, Py_NewRef(args[k]));
    output = PyObject_Call(forward, all, NULL);
    if (output && setup) {
        PyObject *done = PyObject_CallMethod(cls, "setup_context", "OOO", (PyObject *)c, all, output);
        if (!done)
            Py_CLEAR(output);
        Py_XDECREF(done);
    }
done:
    Py_XDECREF(forward);
    Py_XDECREF(all);
    return output;
}

static PyObject *run_forward(context *c, PyObject *cls, PyObject *const *args, bool setup)
{
    rl_state *state = rl_state_get();
    bool record = recorded(c), grad = state->grad_mode;
    state->grad_mode = false;
    PyObject *output = call_forward(c, cls, args, setup);
    state->grad_mode = grad;
    if (!output)
        return NULL;
    bool single = !PyTuple_Check(output);
    PyObject *outputs = single ? PyTuple_Pack(1, output) : Py_NewRef(output);
    Py_DECREF(output);
    PyObject *done = outputs ? finish_outputs(c, record, args, outputs) : NULL;
    Py_XDECREF(outputs);
    if (done && single)
        Py_SETREF(done, Py_NewRef(PyTuple_GET_ITEM(done, 0)));
    return done;
}

/* Keywords and defaults become positions: (cls, args, kwargs) -> tuple. */
static PyObject *bound(PyObject *cls, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    PyObject *kwargs = PyDict_New(), *pos = PyTuple_New(nargs), *out = NULL;
    for (Py_ssize_t k = 0; pos && k < nargs; k++)
        PyTuple_SET_ITEM(pos, k, Py_NewRef(args[k]));
    bool ok = kwargs && pos;
    for (Py_ssize_t k = 0; ok && kwnames && k < PyTuple_GET_SIZE(kwnames); k++)
        ok = PyDict_SetItem(kwargs, PyTuple_GET_ITEM(kwnames, k), args[nargs + k]) == 0;
    if (ok)
        out = PyObject_CallMethod(cls, "_bind_arguments", "OO", pos, kwargs);
    if (out && !PyTuple_Check(out)) {
        PyErr_Format(PyExc_TypeError, "_bind_arguments must give a tuple");
        Py_CLEAR(out);
    }
    Py_XDECREF(kwargs);
    Py_XDECREF(pos);
    return out;
}

static PyObject *apply(PyObject *cls, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    PyObject *setup_o = PyObject_GetAttrString(cls, "_uses_setup_context"), *tuple = NULL, *out = NULL;
    bool setup = setup_o == Py_True;
    if (!setup_o)
        return NULL;
    Py_DECREF(setup_o);
    if (setup || kwnames) {
        tuple = bound(cls, args, nargs, kwnames);
        if (!tuple)
            return NULL;
        args = ((PyTupleObject *)tuple)->ob_item;
        nargs = PyTuple_GET_SIZE(tuple);
    }
    context *c = new_context(cls, args, nargs);
    if (c) {
        out = run_forward(c, cls, args, setup);
        Py_CLEAR(c->to_save);
        Py_CLEAR(c->dirty);
        Py_CLEAR(c->non_differentiable);
        Py_DECREF(c);
    }
    Py_XDECREF(tuple);
    return out;
}

/* ---- the context's methods ---- */

#define KEEP(function, field)                                          \
    static PyObject *function(PyObject *self, PyObject *args)          \
    {                                                                  \
        Py_XSETREF(((context *)self)->field, Py_NewRef(args));         \
        Py_RETURN_NONE;                                                \
    }
KEEP(save_for_backward, to_save)
KEEP(mark_dirty, dirty)
KEEP(mark_non_differentiable, non_differentiable)

static PyObject *set_materialize(PyObject *self, PyObject *value)
{
    int r = PyObject_IsTrue(value);
    if (r < 0)
        return NULL;
    ((context *)self)->materialize = r;
    Py_RETURN_NONE;
}

static PyObject *nothing(PyObject *self, PyObject *args) { Py_RETURN_NONE; }

static PyObject *saved_tensors(PyObject *self, void *ignored)
{
    rl_node *n = ((context *)self)->node.n;
    if (!n)
        return PyTuple_New(0);
    PyObject *out = PyTuple_New(n->nsaved);
    for (int k = 0; out && k < n->nsaved; k++) {
        rl_tensor *t = NULL;
        PyObject *o = rl_py_give(rl_node_unpack(n, k, &t), &t);
        if (!o)
            Py_CLEAR(out);
        else
            PyTuple_SET_ITEM(out, k, o);
    }
    return out;
}

static PyObject *needs_input_grad(PyObject *self, void *ignored)
{
    PyObject *o = ((context *)self)->needs_input_grad;
    return Py_NewRef(o ? o : rl_st->empty_tuple);
}

static int set_needs(PyObject *self, PyObject *value, void *ignored)
{
    Py_XSETREF(((context *)self)->needs_input_grad, Py_XNewRef(value));
    return 0;
}

static PyObject *get_materialize(PyObject *self, void *ignored) { return PyBool_FromLong(((context *)self)->materialize); }

static int put_materialize(PyObject *self, PyObject *value, void *ignored)
{
    int r = value ? PyObject_IsTrue(value) : 1;
    ((context *)self)->materialize = r != 0;
    return r < 0 ? -1 : 0;
}

static int context_traverse(PyObject *self, visitproc visit, void *arg)
{
    context *c = (context *)self;
    Py_VISIT(c->to_save);
    Py_VISIT(c->dirty);
    Py_VISIT(c->non_differentiable);
    Py_VISIT(c->needs_input_grad);
    return rl_st->Node->tp_traverse(self, visit, arg);
}

static int context_clear(PyObject *self)
{
    context *c = (context *)self;
    Py_CLEAR(c->to_save);
    Py_CLEAR(c->dirty);
    Py_CLEAR(c->non_differentiable);
    return rl_st->Node->tp_clear(self);
}

static void context_dealloc(PyObject *self)
{
    context *c = (context *)self;
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    context_clear(self);
    Py_CLEAR(c->needs_input_grad);
    PyMem_Free(c->is_tensor);
    PyMem_Free(c->out_tensor);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyObject *context_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    context *c = (context *)type->tp_alloc(type, 0);
    if (c)
        c->materialize = true;
    return (PyObject *)c;
}

#define FAST(f) (PyCFunction)(void (*)(void)) f, METH_FASTCALL | METH_KEYWORDS
static PyMethodDef methods[] = {
    {"apply", FAST(apply) | METH_CLASS, "apply(*args) -> output of forward, recorded as one node"},
    {"save_for_backward", save_for_backward, METH_VARARGS, "save_for_backward(*tensors): keeps tensors (or None) for backward's "
                                                           "ctx.saved_tensors"},
    {"save_for_forward", nothing, METH_VARARGS, NULL},
    {"mark_dirty", mark_dirty, METH_VARARGS, "mark_dirty(*tensors): inputs that forward wrote in place; each must be returned"},
    {"mark_non_differentiable", mark_non_differentiable, METH_VARARGS, "mark_non_differentiable(*tensors): outputs without a gradient"},
    {"set_materialize_grads", set_materialize, METH_O, "set_materialize_grads(value): whether missing gradients come as zeros (default) "
                                                       "or None"},
    {NULL, NULL, 0, NULL}};
static PyGetSetDef getset[] = {{"saved_tensors", saved_tensors, NULL, "What save_for_backward kept; an error when one was written "
                                                                      "since.", NULL},
                               {"needs_input_grad", needs_input_grad, set_needs, "A bool for each argument of forward.", NULL},
                               {"materialize_grads", get_materialize, put_materialize, NULL, NULL},
                               {NULL, NULL, NULL, NULL, NULL}};

static PyObject *context_repr(PyObject *self) { return PyBaseObject_Type.tp_repr(self); }

static PyType_Slot slots[] = {{Py_tp_dealloc, context_dealloc}, {Py_tp_traverse, context_traverse}, {Py_tp_clear, context_clear},
                              {Py_tp_new, context_new},         {Py_tp_methods, methods},           {Py_tp_getset, getset},
                              {Py_tp_repr, context_repr},       {0, NULL}};
static PyType_Spec spec = {.name = "rushlight.autograd.function.FunctionCtx",
                           .basicsize = sizeof(context),
                           .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
                           .slots = slots};

int rl_py_init_function(PyObject *m)
{
    PyObject *bases = PyTuple_Pack(1, rl_st->Node);
    context_type = bases ? (PyTypeObject *)PyType_FromSpecWithBases(&spec, bases) : NULL;
    Py_XDECREF(bases);
    return context_type ? PyModule_AddObjectRef(m, "FunctionCtx", (PyObject *)context_type) : -1;
}
