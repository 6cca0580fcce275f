/* hook.c: Python callables in the graph's hook lists, and the handles that take them out again.
 *
 * The handle that register_hook returns is the very object that the list holds. Removing empties it at once, and unlinks it where its
 * list can still be found: a tensor written in place since has another grad_fn, and the old one keeps an empty handle.
 */
#include "autograd.h"

typedef enum hook_kind { HOOK_TENSOR, HOOK_ACCUMULATE, HOOK_NODE_PRE, HOOK_NODE_POST } hook_kind;

typedef struct hook_object {
    PyObject_HEAD
    PyObject *fn;     /* NULL: removed */
    PyObject *target; /* weak reference to the tensor, or NULL */
    uint64_t id;
    hook_kind kind;
} hook_object;

/* ---- calling ---- */

static PyObject *name_of(PyObject *fn)
{
    PyObject *name = PyObject_GetAttrString(fn, "__name__");
    if (!name) {
        PyErr_Clear();
        name = PyUnicode_FromString(Py_TYPE(fn)->tp_name);
    }
    return name;
}

/* May `result` take the place of the gradient `old`? As PyTorch asks. */
static bool fits(PyObject *fn, rl_tensor *old, PyObject *result)
{
    if (!rl_py_is_tensor(result)) {
        PyErr_Format(PyExc_TypeError, "expected Variable, but hook returned '%s'", Py_TYPE(result)->tp_name);
        return false;
    }
    const rl_tensor *t = rl_py_unwrap(result);
    PyObject *name = name_of(fn);
    if (!name)
        return false;
    const char *prefix = rl_py_prefix();
    if (!old)
        PyErr_SetString(PyExc_RuntimeError, "can't replace a None gradient with a non-None value");
    else if (t->dtype != old->dtype || !rl_device_same(rl_tensor_device(t), rl_tensor_device(old)))
        PyErr_Format(PyExc_RuntimeError, "hook '%U' has changed the type of value (was %s.%s got %s.%s)", name, prefix,
                     rl_dtype_table[old->dtype].tensor_type, prefix, rl_dtype_table[t->dtype].tensor_type);
    else if (!rl_tensor_same_shape(t, old))
        PyErr_Format(PyExc_RuntimeError, "hook '%U' has changed the size of value", name);
    Py_DECREF(name);
    return !PyErr_Occurred();
}

static bool put(PyObject *fn, rl_tensor **slot, PyObject *result)
{
    if (result == Py_None || !fits(fn, *slot, result))
        return result == Py_None && !PyErr_Occurred();
    rl_tensor *old = *slot;
    *slot = rl_tensor_retain(rl_py_unwrap(result));
    rl_tensor_release(old);
    return true;
}

static bool put_all(PyObject *fn, rl_tensor **slots, int n, PyObject *result)
{
    if (!PyTuple_Check(result)) {
        PyErr_Format(PyExc_TypeError, "expected tuple, but hook returned '%s'", rl_py_type_text(result));
        return false;
    }
    if (PyTuple_GET_SIZE(result) != n) {
        PyObject *name = name_of(fn);
        if (name)
            PyErr_Format(PyExc_RuntimeError, "hook '%U' has returned an incorrect number of values (got %zd, but expected %d)", name,
                         PyTuple_GET_SIZE(result), n);
        Py_XDECREF(name);
        return false;
    }
    for (int k = 0; k < n; k++)
        if (!put(fn, &slots[k], PyTuple_GET_ITEM(result, k)))
            return false;
    return true;
}

static bool run(hook_object *h, PyObject *fn, rl_tensor **grads, int n, rl_tensor *const *others, int nothers)
{
    bool single = h->kind == HOOK_TENSOR || h->kind == HOOK_ACCUMULATE;
    PyObject *a = single ? rl_py_wrap(rl_tensor_retain(grads[0])) : rl_py_tensor_tuple(grads, n);
    PyObject *b = h->kind == HOOK_NODE_POST ? rl_py_tensor_tuple(others, nothers) : NULL;
    PyObject *result = !a || (h->kind == HOOK_NODE_POST && !b) ? NULL : PyObject_CallFunctionObjArgs(fn, a, b, NULL);
    bool ok = result != NULL;
    if (ok && result != Py_None) {
        if (h->kind == HOOK_ACCUMULATE) {
            PyErr_Format(PyExc_TypeError, "a post accumulate grad hook should return None, but hook returned "
                                          "'%s'", Py_TYPE(result)->tp_name);
            ok = false;
        } else {
            ok = single ? put(fn, grads, result) : put_all(fn, grads, n, result);
        }
    }
    Py_XDECREF(a);
    Py_XDECREF(b);
    Py_XDECREF(result);
    return ok;
}

static rl_status hook_call(void *self, rl_tensor **grads, int n, rl_tensor *const *others, int nothers)
{
    hook_object *h = self;
    PyGILState_STATE gil = PyGILState_Ensure();
    bool ok = true;
    if (h->fn && (n != 1 || grads[0] || h->kind == HOOK_NODE_POST || h->kind == HOOK_NODE_PRE)) {
        PyObject *fn = Py_NewRef(h->fn);
        Py_INCREF(h);
        ok = run(h, fn, grads, n, others, nothers);
        Py_DECREF(h);
        Py_DECREF(fn);
    }
    PyGILState_Release(gil);
    return ok ? RL_OK : RL_ERR_PYTHON;
}

static void hook_free(void *self)
{
    rl_py_guard g;
    if (!Py_IsInitialized())
        return;
    rl_py_enter(&g);
    Py_DECREF((PyObject *)self);
    rl_py_leave(&g);
}

int rl_py_visit_hooks(const rl_hook *list, visitproc visit, void *arg)
{
    for (; list; list = list->next)
        if (list->call == hook_call)
            Py_VISIT((PyObject *)list->self);
    return 0;
}

/* ---- the handle ---- */

/* Borrowed: whoever holds the target holds it while the lock is held. */
static PyObject *target_of(hook_object *h)
{
#if PY_VERSION_HEX >= 0x030d0000
    PyObject *o = NULL;
    if (h->target && PyWeakref_GetRef(h->target, &o) > 0)
        Py_DECREF(o);
    return o;
#else
    return h->target ? PyWeakref_GetObject(h->target) : NULL;
#endif
}

static rl_hook **list_of_target(hook_object *h)
{
    PyObject *o = target_of(h);
    rl_hook **list = NULL;
    int nr;
    if (!o || o == Py_None)
        return NULL;
    rl_tensor *t = rl_py_unwrap(o);
    if (h->kind == HOOK_ACCUMULATE)
        return t->meta ? &t->meta->post_accumulate_hooks : NULL;
    return rl_tensor_hook_list(t, &list, &nr) == RL_OK ? list : NULL;
}

static PyObject *hook_remove(PyObject *self, PyObject *ignored)
{
    hook_object *h = (hook_object *)self;
    PyObject *fn = h->fn;
    h->fn = NULL;
    if (fn) {
        rl_hook **list = list_of_target(h);
        if (list)
            rl_hook_remove(list, h->id);
    }
    Py_XDECREF(fn);
    Py_RETURN_NONE;
}

static PyObject *hook_enter(PyObject *self, PyObject *ignored) { return Py_NewRef(self); }
static PyObject *hook_exit(PyObject *self, PyObject *args) { return hook_remove(self, NULL); }
static PyObject *hook_id(PyObject *self, void *ignored) { return PyLong_FromUnsignedLongLong(((hook_object *)self)->id); }

static int hook_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(((hook_object *)self)->fn);
    Py_VISIT(((hook_object *)self)->target);
    return 0;
}

static int hook_clear(PyObject *self)
{
    Py_CLEAR(((hook_object *)self)->fn);
    Py_CLEAR(((hook_object *)self)->target);
    return 0;
}

static void hook_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    hook_clear(self);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMethodDef hook_methods[] = {{"remove", hook_remove, METH_NOARGS, "Takes the hook out."},
                                     {"__enter__", hook_enter, METH_NOARGS, NULL},
                                     {"__exit__", hook_exit, METH_VARARGS, NULL},
                                     {NULL, NULL, 0, NULL}};
static PyGetSetDef hook_getset[] = {{"id", hook_id, NULL, NULL, NULL}, {NULL, NULL, NULL, NULL, NULL}};
static PyType_Slot hook_slots[] = {{Py_tp_dealloc, hook_dealloc}, {Py_tp_traverse, hook_traverse}, {Py_tp_clear, hook_clear},
                                   {Py_tp_methods, hook_methods}, {Py_tp_getset, hook_getset},     {0, NULL}};
static PyType_Spec hook_spec = {.name = "rushlight.utils.hooks.RemovableHandle",
                                .basicsize = sizeof(hook_object),
                                .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                                .slots = hook_slots};

/* ---- registering ---- */

static PyObject *add(rl_hook **list, int nr, hook_kind kind, PyObject *fn, PyObject *target)
{
    PyTypeObject *type = rl_st->HookHandle;
    if (!PyCallable_Check(fn))
        return PyErr_Format(PyExc_TypeError, "a hook must be callable, not %s", Py_TYPE(fn)->tp_name);
    hook_object *h = (hook_object *)type->tp_alloc(type, 0);
    if (!h)
        return NULL;
    h->fn = Py_NewRef(fn);
    h->kind = kind;
    if (target && !(h->target = PyWeakref_NewRef(target, NULL))) {
        Py_DECREF(h);
        return NULL;
    }
    Py_INCREF(h);
    rl_status st = rl_hook_add(list, nr, hook_call, hook_free, h, &h->id);
    if (st != RL_OK) {
        Py_DECREF(h);
        Py_DECREF(h);
        return rl_py_raise(st);
    }
    return (PyObject *)h;
}

static PyObject *register_hook(PyObject *self, PyObject *fn)
{
    rl_tensor *t = rl_py_unwrap(self);
    rl_hook **list;
    int nr;
    if (!rl_tensor_requires_grad(t))
        return PyErr_Format(PyExc_RuntimeError, "cannot register a hook on a tensor that doesn't require gradient");
    rl_status st = rl_tensor_hook_list(t, &list, &nr);
    return st == RL_OK ? add(list, nr, HOOK_TENSOR, fn, self) : rl_py_raise(st);
}

static PyObject *register_post_accumulate(PyObject *self, PyObject *fn)
{
    rl_tensor *t = rl_py_unwrap(self);
    if (!rl_tensor_requires_grad(t))
        return PyErr_Format(PyExc_RuntimeError, "cannot register a hook on a tensor that doesn't require gradient");
    if (t->grad_fn)
        return PyErr_Format(PyExc_RuntimeError, "post accumulate grad hooks cannot be registered on non-leaf tensors");
    rl_meta *meta = rl_tensor_meta(t);
    return meta ? add(&meta->post_accumulate_hooks, 0, HOOK_ACCUMULATE, fn, self) : rl_py_raise(RL_ERR_MEMORY);
}

static PyObject *retain_grad(PyObject *self, PyObject *ignored)
{
    rl_status st = rl_tensor_retain_grad(rl_py_unwrap(self));
    return st == RL_OK ? Py_NewRef(Py_None) : rl_py_raise(st);
}

PyObject *rl_py_node_hook(PyObject *node, PyObject *fn, bool pre)
{
    rl_node *n = ((rl_py_node *)node)->n;
    return add(pre ? &n->pre_hooks : &n->post_hooks, -1, pre ? HOOK_NODE_PRE : HOOK_NODE_POST, fn, NULL);
}

PyObject *rl_py_tensor_tuple(rl_tensor *const *v, Py_ssize_t n)
{
    PyObject *out = PyTuple_New(n);
    for (Py_ssize_t k = 0; out && k < n; k++) {
        PyObject *o = rl_py_wrap(rl_tensor_retain(v[k]));
        if (!o)
            Py_CLEAR(out);
        else
            PyTuple_SET_ITEM(out, k, o);
    }
    return out;
}

static PyMethodDef tensor_methods[] = {
    {"retain_grad", retain_grad, METH_NOARGS, "retain_grad()\n\nKeeps .grad of this non-leaf too."},
    {"register_hook", register_hook, METH_O, "register_hook(fn) -> handle\n\nfn(grad) each time a gradient of this tensor is computed; "
                                             "may return another."},
    {"register_post_accumulate_grad_hook", register_post_accumulate, METH_O,
     "register_post_accumulate_grad_hook(fn) -> handle\n\nfn(tensor) after this leaf's .grad has been accumulated."},
    {NULL, NULL, 0, NULL}};

int rl_py_init_hook(PyObject *m)
{
    rl_st->HookHandle = (PyTypeObject *)PyType_FromSpec(&hook_spec);
    if (!rl_st->HookHandle || PyModule_AddObjectRef(m, "RemovableHandle", (PyObject *)rl_st->HookHandle) < 0)
        return -1;
    return rl_py_add_methods(rl_st->Tensor, tensor_methods);
}
