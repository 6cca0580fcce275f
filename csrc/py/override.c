/* override.c: __torch_function__: which calls are handed to a class, the default of subclasses, and the switches that turn it off.
 *
 * A call is handed over when one of its arguments, or of a list among them, is of a class that defines __torch_function__ and is neither
 * Tensor nor Parameter, or when a mode is active. The public function object is what the class is given, so that it can compare it.
 */
#include "internal.h"

RL_DIRECT_TLS int rl_py_override_off;
RL_DIRECT_TLS PyObject *rl_py_modes;
static _Thread_local int modes_off;
static PyObject *disabled; /* _disabled_torch_function_impl: a class that has it overrides nothing */

/* ---- which arguments override ---- */

/* The class's __torch_function__ (new reference), or NULL; no exception is left. */
static PyObject *override_of(PyObject *o)
{
    PyTypeObject *type = Py_TYPE(o);
    if (rl_py_plain(o) || PyType_Check(o))
        return NULL;
    PyObject *f = PyObject_GetAttr((PyObject *)type, rl_st->s_torch_function);
    if (!f)
        PyErr_Clear();
    else if (f == disabled)
        Py_CLEAR(f);
    return f;
}

/* Adds o to the list of overriding arguments: one of each class, subclasses before their bases. */
static int add_overriding(PyObject *list, PyObject *o)
{
    PyObject *f = override_of(o);
    if (!f)
        return 0;
    Py_DECREF(f);
    Py_ssize_t at = PyList_GET_SIZE(list);
    for (Py_ssize_t k = 0; k < PyList_GET_SIZE(list); k++) {
        PyTypeObject *known = Py_TYPE(PyList_GET_ITEM(list, k));
        if (known == Py_TYPE(o))
            return 0;
        if (at > k && PyType_IsSubtype(Py_TYPE(o), known))
            at = k;
    }
    return PyList_Insert(list, at, o);
}

static PyObject *overriding(PyObject *const *args, Py_ssize_t n)
{
    PyObject *list = PyList_New(0);
    int failed = list == NULL;
    for (Py_ssize_t k = 0; !failed && k < n; k++) {
        PyObject *o = args[k];
        if (!PyTuple_Check(o) && !PyList_Check(o)) {
            failed = add_overriding(list, o) < 0;
            continue;
        }
        for (Py_ssize_t j = 0; !failed && j < PySequence_Fast_GET_SIZE(o); j++)
            failed = add_overriding(list, PySequence_Fast_GET_ITEM(o, j)) < 0;
    }
    if (failed)
        Py_CLEAR(list);
    return list;
}

/* ---- handing over ---- */

typedef struct handing {
    PyObject *func, *types, *args, *kwargs;
} handing;

static bool pack(handing *h, PyObject *func, PyObject *list, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    Py_ssize_t n = PyList_GET_SIZE(list);
    h->func = func;
    h->types = PyTuple_New(n);
    h->args = PyTuple_New(nargs);
    h->kwargs = kwnames ? PyDict_New() : Py_NewRef(Py_None);
    if (!h->types || !h->args || !h->kwargs)
        return false;
    for (Py_ssize_t k = 0; k < n; k++)
        PyTuple_SET_ITEM(h->types, k, Py_NewRef((PyObject *)Py_TYPE(PyList_GET_ITEM(list, k))));
    for (Py_ssize_t k = 0; k < nargs; k++)
        PyTuple_SET_ITEM(h->args, k, Py_NewRef(args[k]));
    for (Py_ssize_t k = 0; kwnames && k < PyTuple_GET_SIZE(kwnames); k++)
        if (PyDict_SetItem(h->kwargs, PyTuple_GET_ITEM(kwnames, k), args[nargs + k]) < 0)
            return false;
    return true;
}

static PyObject *hand_to(PyObject *f, const handing *h)
{
    PyObject *stack[] = {h->func, h->types, h->args, h->kwargs};
    return PyObject_Vectorcall(f, stack, h->kwargs == Py_None ? 3 : 4, NULL);
}

/* The innermost mode takes the call, with the outer ones active while it runs. */
static PyObject *hand_to_mode(const handing *h)
{
    PyObject *outer = rl_py_modes, *f;
    Py_ssize_t n = PyList_GET_SIZE(outer);
    PyObject *mode = PyList_GET_ITEM(outer, n - 1), *rest = PyList_GetSlice(outer, 0, n - 1), *result = NULL;
    if (!rest)
        return NULL;
    Py_INCREF(mode);
    rl_py_modes = rest;
    f = PyObject_GetAttr(mode, rl_st->s_torch_function);
    if (f)
        result = hand_to(f, h);
    rl_py_modes = outer;
    Py_XDECREF(f);
    Py_DECREF(rest);
    Py_DECREF(mode);
    return result;
}

static PyObject *hand_around(const handing *h, PyObject *list)
{
    PyObject *result = Py_NewRef(Py_NotImplemented);
    if (rl_py_modes && !modes_off && PyList_GET_SIZE(rl_py_modes))
        Py_SETREF(result, hand_to_mode(h));
    for (Py_ssize_t k = 0; result == Py_NotImplemented && k < PyList_GET_SIZE(list); k++) {
        PyObject *f = override_of(PyList_GET_ITEM(list, k));
        if (!f)
            continue;
        Py_SETREF(result, hand_to(f, h));
        Py_DECREF(f);
    }
    if (result != Py_NotImplemented)
        return result;
    Py_DECREF(result);
    PyObject *name = PyObject_GetAttrString(h->func, "__qualname__");
    if (!name)
        return NULL;
    PyErr_Format(PyExc_TypeError, "no implementation found for '%s.%S' on types that implement __torch_function__: %R", rl_py_prefix(),
                 name, h->types);
    Py_DECREF(name);
    return NULL;
}

bool rl_py_torch_function(PyObject *func, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames, PyObject **result)
{
    Py_ssize_t all = nargs + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0);
    bool mode = rl_py_modes && !modes_off && PyList_GET_SIZE(rl_py_modes);
    if (rl_py_override_off && !mode)
        return false;
    PyObject *list = rl_py_override_off ? PyList_New(0) : overriding(args, all);
    *result = NULL;
    if (!list)
        return true;
    if (PyList_GET_SIZE(list) == 0 && !mode) {
        Py_DECREF(list);
        return false;
    }
    handing h = {0};
    if (pack(&h, func, list, args, nargs, kwnames))
        *result = hand_around(&h, list);
    Py_XDECREF(h.types);
    Py_XDECREF(h.args);
    Py_XDECREF(h.kwargs);
    Py_DECREF(list);
    return true;
}

/* ---- the default of subclasses ---- */

/* `o` as `cls`, in place when nobody else has it; takes and gives a reference. */
static PyObject *as_class(PyObject *o, PyTypeObject *cls)
{
    if (rl_py_is_tensor(o) && !PyObject_TypeCheck(o, cls)) {
        rl_py_tensor *w = (rl_py_tensor *)o;
        bool alone = Py_REFCNT(o) == 1 && Py_TYPE(o) == rl_st->Tensor && !w->dict && !w->weakrefs && !w->backward_hooks &&
                     !(w->t->flags & RL_TF_NEEDS_PY);
        if (alone) {
            rl_tensor *t = rl_tensor_retain(w->t);
            t->py = NULL;
            Py_DECREF(o);
            return rl_py_wrap_as(t, cls);
        }
        PyObject *made = rl_py_as_subclass(w->t, cls);
        Py_DECREF(o);
        return made;
    }
    if (!PyTuple_CheckExact(o) && !PyList_CheckExact(o))
        return o;
    PyObject *items = PySequence_List(o);
    bool tuple = PyTuple_CheckExact(o);
    Py_DECREF(o);
    for (Py_ssize_t k = 0; items && k < PyList_GET_SIZE(items); k++) {
        PyObject *item = as_class(Py_NewRef(PyList_GET_ITEM(items, k)), cls);
        if (!item || PyList_SetItem(items, k, item) < 0)
            Py_CLEAR(items);
    }
    if (items && tuple)
        Py_SETREF(items, PyList_AsTuple(items));
    return items;
}

PyObject *rl_py_torch_function_method(PyObject *cls, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"func", "types", "args", "kwargs", NULL};
    PyObject *func, *types, *a = rl_st->empty_tuple, *kw = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO|OO:__torch_function__", names, &func, &types, &a, &kw))
        return NULL;
    if (!PyTuple_Check(a) || !(kw == Py_None || PyDict_Check(kw)))
        return PyErr_Format(PyExc_TypeError, "__torch_function__(): args must be a tuple and kwargs a dict or None");
    PyObject *fast = PySequence_Fast(types, "__torch_function__(): types must be a sequence");
    if (!fast)
        return NULL;
    for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(fast); k++) {
        int sub = PyObject_IsSubclass(cls, PySequence_Fast_GET_ITEM(fast, k));
        if (sub <= 0) {
            Py_DECREF(fast);
            return sub < 0 ? NULL : Py_NewRef(Py_NotImplemented);
        }
    }
    Py_DECREF(fast);
    rl_py_override_off++;
    PyObject *result = PyObject_Call(func, a, kw == Py_None ? NULL : kw);
    rl_py_override_off--;
    if (!result || cls == (PyObject *)rl_st->Tensor || rl_py_keeps_class(func))
        return result;
    return as_class(result, (PyTypeObject *)cls);
}

bool rl_py_getter_override(PyObject *self, PyObject *getter, PyObject **result)
{
    if (rl_py_override_off)
        return false;
    return rl_py_torch_function(getter, &self, 1, NULL, result);
}

/* ---- switches ---- */

static PyObject *disabled_impl(PyObject *m, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"func", "types", "args", "kwargs", NULL};
    PyObject *func, *types, *a = rl_st->empty_tuple, *kw = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO|O!O:_disabled_torch_function_impl", names, &func, &types, &PyTuple_Type, &a, &kw))
        return NULL;
    rl_py_override_off++;
    PyObject *result = PyObject_Call(func, a, kw == Py_None ? NULL : kw);
    rl_py_override_off--;
    return result;
}

static PyObject *has_torch_function(PyObject *m, PyObject *args)
{
    PyObject *fast = PySequence_Fast(args, "_has_torch_function(): expected a sequence");
    if (!fast)
        return NULL;
    PyObject *list = rl_py_override_off ? PyList_New(0) : overriding(PySequence_Fast_ITEMS(fast), PySequence_Fast_GET_SIZE(fast));
    bool mode = rl_py_modes && !modes_off && PyList_GET_SIZE(rl_py_modes);
    PyObject *result = list ? PyBool_FromLong(mode || PyList_GET_SIZE(list) > 0) : NULL;
    Py_XDECREF(list);
    Py_DECREF(fast);
    return result;
}

static PyObject *overloaded_args(PyObject *m, PyObject *args)
{
    PyObject *fast = PySequence_Fast(args, "_get_overloaded_args(): expected a sequence");
    PyObject *list = fast ? overriding(PySequence_Fast_ITEMS(fast), PySequence_Fast_GET_SIZE(fast)) : NULL;
    Py_XDECREF(fast);
    return list;
}

static PyObject *push_mode(PyObject *m, PyObject *mode)
{
    if (!rl_py_modes && !(rl_py_modes = PyList_New(0)))
        return NULL;
    return PyList_Append(rl_py_modes, mode) < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *pop_mode(PyObject *m, PyObject *ignored)
{
    if (!rl_py_modes || PyList_GET_SIZE(rl_py_modes) == 0)
        return PyErr_Format(PyExc_RuntimeError, "there is no TorchFunctionMode to leave");
    Py_ssize_t last = PyList_GET_SIZE(rl_py_modes) - 1;
    PyObject *mode = Py_NewRef(PyList_GET_ITEM(rl_py_modes, last));
    if (PyList_SetSlice(rl_py_modes, last, last + 1, NULL) < 0)
        Py_CLEAR(mode);
    if (last == 0)
        Py_CLEAR(rl_py_modes);
    return mode;
}

/* ---- the switches as contexts ---- */

static PyObject *off_enter(PyObject *self, PyObject *ignored)
{
    rl_py_override_off++;
    return Py_NewRef(self);
}

static PyObject *off_exit(PyObject *self, PyObject *exception)
{
    rl_py_override_off--;
    Py_RETURN_NONE;
}

static PyObject *all_off_enter(PyObject *self, PyObject *ignored)
{
    modes_off++;
    return off_enter(self, ignored);
}

static PyObject *all_off_exit(PyObject *self, PyObject *exception)
{
    modes_off--;
    return off_exit(self, exception);
}

static PyMethodDef off_methods[] = {{"__enter__", off_enter, METH_NOARGS, NULL}, {"__exit__", off_exit, METH_VARARGS, NULL}, {NULL}};
static PyMethodDef all_off_methods[] = {{"__enter__", all_off_enter, METH_NOARGS, NULL}, {"__exit__", all_off_exit, METH_VARARGS, NULL},
                                        {NULL}};
static PyType_Slot off_slots[] = {{Py_tp_methods, off_methods}, {Py_tp_doc, "A context in which no class overrides; modes still do."},
                                  {0, NULL}};
static PyType_Slot all_off_slots[] = {{Py_tp_methods, all_off_methods},
                                      {Py_tp_doc, "A context in which neither classes nor modes override."}, {0, NULL}};
static PyType_Spec off_spec = {"rushlight._C.DisableTorchFunctionSubclass", sizeof(PyObject), 0, Py_TPFLAGS_DEFAULT, off_slots};
static PyType_Spec all_off_spec = {"rushlight._C.DisableTorchFunction", sizeof(PyObject), 0, Py_TPFLAGS_DEFAULT, all_off_slots};

static int add_switch(PyObject *m, PyType_Spec *spec, const char *name)
{
    PyTypeObject *type = rl_py_make_type(m, spec, NULL, name);
    Py_XDECREF(type);
    return type ? 0 : -1;
}

static PyMethodDef methods[] = {
    {"_disabled_torch_function_impl", (PyCFunction)(void (*)(void))disabled_impl, METH_VARARGS | METH_KEYWORDS,
     "As a class's __torch_function__: the class overrides nothing."},
    {"_has_torch_function", has_torch_function, METH_O, "Whether one of the arguments overrides."},
    {"_get_overloaded_args", overloaded_args, METH_O, "The arguments that override, in the order in which they are asked."},
    {"_push_torch_function_mode", push_mode, METH_O, NULL},
    {"_pop_torch_function_mode", pop_mode, METH_NOARGS, NULL},
    {NULL},
};

int rl_py_init_override(PyObject *m)
{
    if (PyModule_AddFunctions(m, methods) < 0 || add_switch(m, &off_spec, "DisableTorchFunctionSubclass") < 0 ||
        add_switch(m, &all_off_spec, "DisableTorchFunction") < 0)
        return -1;
    disabled = PyObject_GetAttrString(m, "_disabled_torch_function_impl");
    return disabled ? 0 : -1;
}
