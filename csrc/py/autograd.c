/* autograd.c: backward, grad and the modes.
 *
 * A backward is one call into the engine. It holds the GIL, under which counts change; long kernels let it go themselves (ops/common.c).
 */
#include "autograd.h"

static bool engine(const rl_backward_args *a)
{
    rl_status st = rl_engine_run(a);
    if (RL_UNLIKELY(st != RL_OK))
        rl_py_raise(st);
    return st == RL_OK;
}

/* ---- reading the arguments ---- */

/* Tensors of one call, borrowed from the sequences that `owner` keeps. */
typedef struct rl_tensors {
    PyObject *owner;
    int n;
    rl_tensor *small[8], **v;
} rl_tensors;

static void tensors_clear(rl_tensors *s)
{
    if (s->v != s->small)
        PyMem_Free(s->v);
    Py_CLEAR(s->owner);
}

/* One tensor or a sequence of them; None is NULL where allowed. `fn` names the caller in errors. */
static bool tensors_read(rl_tensors *s, PyObject *o, bool none, const char *what)
{
    s->v = s->small;
    s->owner = o && (rl_py_is_tensor(o) || (o == Py_None && none)) ? PyTuple_Pack(1, o) : o ? PySequence_Tuple(o) : PyTuple_New(0);
    s->n = 0;
    if (!s->owner)
        return false;
    Py_ssize_t n = PyTuple_GET_SIZE(s->owner);
    if (n > INT16_MAX || (n > 8 && !(s->v = PyMem_Calloc((size_t)n, sizeof *s->v)))) {
        s->v = s->small;
        PyErr_Format(PyExc_ValueError, "%zd %s are too many", n, what);
        return false;
    }
    for (Py_ssize_t k = 0; k < n; k++) {
        PyObject *item = PyTuple_GET_ITEM(s->owner, k);
        if (rl_py_is_tensor(item)) {
            s->v[k] = rl_py_unwrap(item);
        } else if (none && item == Py_None) {
            s->v[k] = NULL;
        } else {
            if (none)
                PyErr_Format(PyExc_TypeError, "gradients can be either Tensors or None, but got %s", rl_py_type_text(item));
            else
                PyErr_Format(PyExc_TypeError, "expected Tensor as element %zd in %s, but got %s", k, what, rl_py_type_text(item));
            return false;
        }
    }
    s->n = (int)n;
    return true;
}

/* Are the gradients given ones that the outputs can take? */
static bool grads_fit(const rl_tensors *roots, const rl_tensors *grads)
{
    for (int k = 0; k < roots->n; k++) {
        const rl_tensor *t = roots->v[k], *g = grads->v[k];
        if (!g) {
            if (rl_tensor_requires_grad(t) && t->numel != 1) {
                PyErr_SetString(PyExc_RuntimeError, "grad can be implicitly created only for scalar outputs");
                return false;
            }
        } else if (!rl_tensor_same_shape(g, t)) {
            PyErr_Format(PyExc_RuntimeError, "Mismatch in shape: grad_output[%d] has a shape of %s.Size(%s) and output[%d] has a shape "
                                             "of %s.Size(%s).", k,
                         rl_py_prefix(), rl_shape_text(g->ndim, g->shape), k, rl_py_prefix(), rl_shape_text(t->ndim, t->shape));
            return false;
        }
    }
    for (int k = 0; k < roots->n; k++)
        if (!rl_tensor_requires_grad(roots->v[k])) {
            PyErr_Format(PyExc_RuntimeError, "element %d of tensors does not require grad and does not have a grad_fn", k);
            return false;
        }
    return true;
}

/* grad_tensors: none given means one None for each root. */
static bool grads_read(rl_tensors *grads, PyObject *o, const rl_tensors *roots)
{
    if (o == NULL || o == Py_None) {
        grads->v = grads->small;
        grads->owner = NULL;
        grads->n = roots->n;
        memset(grads->small, 0, sizeof grads->small);
        if (roots->n > 8 && !(grads->v = PyMem_Calloc((size_t)roots->n, sizeof *grads->v))) {
            grads->v = grads->small;
            PyErr_NoMemory();
            return false;
        }
        return true;
    }
    if (PyUnicode_Check(o)) {
        grads->v = grads->small;
        grads->owner = NULL;
        PyErr_Format(PyExc_TypeError, "gradients can be either Tensors or None, but got str");
        return false;
    }
    if (!tensors_read(grads, o, true, "gradients"))
        return false;
    if (grads->n != roots->n)
        PyErr_Format(PyExc_RuntimeError, "got %d tensors and %d gradients", roots->n, grads->n);
    return grads->n == roots->n;
}

static bool flag(PyObject *o, bool *out)
{
    if (o && o != Py_None) {
        int r = PyObject_IsTrue(o);
        if (r < 0)
            return false;
        *out = r;
    }
    return true;
}

/* ---- backward ---- */

static PyObject *run_backward(PyObject *roots_o, PyObject *grads_o, PyObject *retain, PyObject *create, PyObject *inputs_o)
{
    rl_tensors roots = {.v = roots.small}, grads = {.v = grads.small}, inputs = {.v = inputs.small};
    rl_backward_args a = {0};
    bool ok = flag(create, &a.create_graph);
    a.retain_graph = a.create_graph;
    ok = ok && flag(retain, &a.retain_graph) && tensors_read(&roots, roots_o, false, "tensors") && grads_read(&grads, grads_o, &roots) &&
         grads_fit(&roots, &grads);
    if (ok && inputs_o && inputs_o != Py_None) {
        ok = tensors_read(&inputs, inputs_o, false, "inputs");
        if (ok && inputs.n == 0) {
            PyErr_SetString(PyExc_RuntimeError, "`inputs` argument to `backward()` cannot be empty.");
            ok = false;
        }
        for (int k = 0; ok && k < inputs.n; k++)
            if (!rl_tensor_requires_grad(inputs.v[k])) {
                PyErr_Format(PyExc_RuntimeError, "One of the differentiated Tensors does not require grad");
                ok = false;
            }
    }
    if (ok) {
        a.roots = roots.v;
        a.grads = grads.v;
        a.nroots = roots.n;
        a.inputs = inputs.n ? inputs.v : NULL;
        a.ninputs = inputs.n;
        a.allow_unused = true;
        ok = engine(&a);
    }
    tensors_clear(&roots);
    tensors_clear(&grads);
    tensors_clear(&inputs);
    return ok ? Py_NewRef(Py_None) : NULL;
}

static PyObject *tensor_backward(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    static const char *const names[] = {"gradient", "retain_graph", "create_graph", "inputs"};
    PyObject *a[4];
    if (nargs == 0 && !kwnames) {
        rl_tensor *t = rl_py_unwrap(self), *none = NULL;
        if (t->numel == 1 && rl_tensor_requires_grad(t)) {
            Py_INCREF(self);
            bool ok = engine(&(rl_backward_args){.roots = &t, .grads = &none, .nroots = 1, .allow_unused = true});
            Py_DECREF(self);
            return ok ? Py_NewRef(Py_None) : NULL;
        }
    }
    if (!rl_py_bind("backward", names, 4, 4, 0, args, nargs, kwnames, a))
        return NULL;
    return run_backward(self, a[0], a[1], a[2], a[3]);
}

static PyObject *backward(PyObject *m, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    static const char *const names[] = {"tensors", "grad_tensors", "retain_graph", "create_graph", "grad_variables", "inputs"};
    PyObject *a[6];
    if (!rl_py_bind("backward", names, 6, 6, 1, args, nargs, kwnames, a))
        return NULL;
    return run_backward(a[0], a[1] && a[1] != Py_None ? a[1] : a[4], a[2], a[3], a[5]);
}

/* ---- grad ---- */

static PyObject *results_tuple(rl_tensors *inputs, rl_tensor **results, bool materialize)
{
    PyObject *out = PyTuple_New(inputs->n);
    for (int k = 0; k < inputs->n; k++) {
        rl_tensor *t = results[k];
        const rl_tensor *x = inputs->v[k];
        results[k] = NULL;
        if (out && !t && materialize) {
            rl_status st = rl_zeros(x->ndim, x->shape, (rl_dtype)x->dtype, rl_tensor_device(x), &t);
            if (st != RL_OK) {
                rl_py_raise(st);
                Py_CLEAR(out);
            }
        }
        PyObject *o = out ? rl_py_wrap(t) : NULL;
        if (!out)
            rl_tensor_release(t);
        else if (!o)
            Py_CLEAR(out);
        else
            PyTuple_SET_ITEM(out, k, o);
    }
    return out;
}

static bool grad_flags(PyObject *const *a, rl_backward_args *b, bool *materialize)
{
    if (!flag(a[4], &b->create_graph))
        return false;
    b->retain_graph = b->create_graph;
    if (!flag(a[3], &b->retain_graph) || !flag(a[8], materialize) || !flag(a[6], &b->allow_unused))
        return false;
    if (*materialize && a[6] && a[6] != Py_None && !b->allow_unused) {
        PyErr_SetString(PyExc_ValueError, "Expected allow_unused to be True or not passed when materialize_grads=True, but got: "
                                          "allow_unused=False.");
        return false;
    }
    b->allow_unused = b->allow_unused || *materialize;
    if (a[7] == Py_True) {
        PyErr_SetString(PyExc_NotImplementedError, "grad(): is_grads_batched=True is not supported: call grad() once for each gradient");
        return false;
    }
    return true;
}

static bool inputs_fit(const rl_tensors *inputs)
{
    if (inputs->n == 0)
        PyErr_SetString(PyExc_RuntimeError, "`inputs` argument to `grad()` cannot be empty.");
    for (int k = 0; k < inputs->n; k++)
        if (!rl_tensor_requires_grad(inputs->v[k])) {
            PyErr_SetString(PyExc_RuntimeError, "One of the differentiated Tensors does not require grad");
            return false;
        }
    return inputs->n != 0;
}

static PyObject *grad(PyObject *m, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    static const char *const names[] = {"outputs",     "inputs",       "grad_outputs",    "retain_graph",     "create_graph",
                                        "only_inputs", "allow_unused", "is_grads_batched", "materialize_grads"};
    PyObject *a[9], *out = NULL;
    rl_tensors roots = {.v = roots.small}, grads = {.v = grads.small}, inputs = {.v = inputs.small};
    rl_backward_args b = {0};
    bool materialize = false;
    if (!rl_py_bind("grad", names, 9, 9, 2, args, nargs, kwnames, a) || !grad_flags(a, &b, &materialize))
        return NULL;
    bool ok = tensors_read(&roots, a[0], false, "outputs") && tensors_read(&inputs, a[1], false, "inputs") && inputs_fit(&inputs) &&
              grads_read(&grads, a[2], &roots) && grads_fit(&roots, &grads);
    if (ok && (b.results = PyMem_Calloc((size_t)inputs.n, sizeof *b.results)) == NULL) {
        PyErr_NoMemory();
        ok = false;
    }
    if (ok) {
        b.roots = roots.v;
        b.grads = grads.v;
        b.nroots = roots.n;
        b.inputs = inputs.v;
        b.ninputs = inputs.n;
        if (engine(&b))
            out = results_tuple(&inputs, b.results, materialize);
    }
    PyMem_Free(b.results);
    tensors_clear(&roots);
    tensors_clear(&grads);
    tensors_clear(&inputs);
    return out;
}

/* ---- modes ---- */

static bool mode_of(const char *fn, PyObject *o, bool *out)
{
    if (PyBool_Check(o)) {
        *out = o == Py_True;
        return true;
    }
    PyErr_Format(PyExc_TypeError, "%s(): argument 'enabled' (position 1) must be bool, not %s", fn, rl_py_type_text(o));
    return false;
}

/* Each sets a mode and gives the value that stood. */
#define MODE(function, name, field)                                    \
    static PyObject *function(PyObject *m, PyObject *o)                \
    {                                                                  \
        rl_state *s = rl_state_get();                                  \
        bool value, old = s->field;                                    \
        if (!mode_of(name, o, &value))                                 \
            return NULL;                                               \
        s->field = value;                                              \
        return PyBool_FromLong(old);                                   \
    }
MODE(set_grad, "set_grad_enabled", grad_mode)
MODE(set_inference, "inference_mode", inference_mode)
MODE(set_anomaly, "set_detect_anomaly", anomaly)
MODE(set_check_nan, "set_detect_anomaly", anomaly_check_nan)

static PyObject *is_grad_enabled(PyObject *m, PyObject *ignored) { return PyBool_FromLong(rl_state_get()->grad_mode); }
static PyObject *is_inference(PyObject *m, PyObject *ignored) { return PyBool_FromLong(rl_state_get()->inference_mode); }
static PyObject *is_anomaly(PyObject *m, PyObject *ignored) { return PyBool_FromLong(rl_state_get()->anomaly); }
static PyObject *is_check_nan(PyObject *m, PyObject *ignored) { return PyBool_FromLong(rl_state_get()->anomaly_check_nan); }

static PyObject *increment_version(PyObject *m, PyObject *o)
{
    rl_tensors s = {.v = s.small};
    bool ok = tensors_read(&s, o, false, "tensors");
    for (int k = 0; ok && k < s.n; k++)
        rl_tensor_bump(s.v[k]);
    tensors_clear(&s);
    return ok ? Py_NewRef(Py_None) : NULL;
}

/* The node and output number that a gradient of t flows to: graph.get_gradient_edge. */
static PyObject *gradient_edge(PyObject *m, PyObject *o)
{
    rl_edge e = {0};
    if (!rl_py_is_tensor(o) || !rl_tensor_requires_grad(rl_py_unwrap(o)))
        return PyErr_Format(PyExc_RuntimeError, "It is not possible to get the gradient edge for a Tensor that does not require gradients");
    rl_status st = rl_gradient_edge(rl_py_unwrap(o), &e);
    if (st != RL_OK)
        return rl_py_raise(st);
    PyObject *node = rl_py_wrap_node(e.node);
    return node ? Py_BuildValue("(Ni)", node, e.nr) : NULL;
}

#define FAST(f) (PyCFunction)(void (*)(void)) f, METH_FASTCALL | METH_KEYWORDS
static PyMethodDef functions[] = {
    {"_autograd_backward", FAST(backward), "backward(tensors, grad_tensors=None, retain_graph=None, create_graph=False, inputs=None)"},
    {"_autograd_grad", FAST(grad), "grad(outputs, inputs, grad_outputs=None, retain_graph=None, create_graph=False, allow_unused=None, "
                                   "materialize_grads=False) -> tuple of Tensor"},
    {"_set_grad_enabled", set_grad, METH_O, NULL},
    {"is_grad_enabled", is_grad_enabled, METH_NOARGS, "is_grad_enabled() -> bool"},
    {"_set_inference_mode", set_inference, METH_O, NULL},
    {"is_inference_mode_enabled", is_inference, METH_NOARGS, "is_inference_mode_enabled() -> bool"},
    {"_set_anomaly", set_anomaly, METH_O, NULL},
    {"_set_anomaly_check_nan", set_check_nan, METH_O, NULL},
    {"is_anomaly_enabled", is_anomaly, METH_NOARGS, "is_anomaly_enabled() -> bool"},
    {"is_anomaly_check_nan_enabled", is_check_nan, METH_NOARGS, "is_anomaly_check_nan_enabled() -> bool"},
    {"_increment_version", increment_version, METH_O, NULL},
    {"_gradient_edge", gradient_edge, METH_O, NULL},
    {NULL, NULL, 0, NULL}};

static PyMethodDef methods[] = {
    {"backward", FAST(tensor_backward),
     "backward(gradient=None, retain_graph=None, create_graph=False, inputs=None)\n\n"
     "Adds the gradient of this tensor to .grad of the leaves. gradient: of this tensor's shape, needed unless it has one element."},
    {NULL, NULL, 0, NULL}};

int rl_py_init_autograd(PyObject *m)
{
    if (rl_py_init_node(m) < 0 || rl_py_init_hook(m) < 0 || rl_py_init_saved(m) < 0 || rl_py_init_function(m) < 0)
        return -1;
    return PyModule_AddFunctions(m, functions) < 0 || rl_py_add_methods(rl_st->Tensor, methods) < 0 ? -1 : 0;
}
