/* module_type: the C base type of nn.Module: attribute lookup, the rules of assignment's fast path, and the call with its hook check.
 *
 * Invariant: the dicts `_parameters`, `_buffers`, `_modules` and the hook dicts in the instance's __dict__ are the only truth; nothing
 * of them is cached here, so whatever Python code does to them is seen at once. Everything that is not the common case (a call with
 * hooks, an assignment of a Parameter, a Module or to a registered name) is handed to the Python class (`_call_impl`, `_set_registered`).
 *
 * Why C: a lookup that falls through to a Python __getattr__ costs 0.5 us, three of them a Linear call. Python gives every class with a
 * `__getattr__` in its method resolution order the slow slot, although ours is only there for `super().__getattr__(name)` in
 * subclasses: __init_subclass__ puts the fast slot back where no other class defines one.
 */
#include "py.h"

#include <structmember.h>

typedef struct module_object {
    PyObject_HEAD
    PyObject *dict;
    PyObject *weakrefs;
    vectorcallfunc vectorcall;
} module_object;

/* Interned names, in the order of name_texts. */
enum { N_PARAMETERS, N_BUFFERS, N_MODULES, N_NONPERSISTENT, N_BACKWARD_HOOKS, N_BACKWARD_PRE_HOOKS, N_FORWARD_HOOKS, N_FORWARD_PRE_HOOKS,
       N_FORWARD, N_CALL_IMPL, N_SET_REGISTERED, N_GETATTR, N_GETATTRIBUTE, N_WEIGHT, N_BIAS, N_INPUT, N_INPLACE, N_COUNT };
static const char *const name_texts[N_COUNT] = {"_parameters", "_buffers", "_modules", "_non_persistent_buffers_set", "_backward_hooks",
                                                "_backward_pre_hooks", "_forward_hooks", "_forward_pre_hooks", "forward", "_call_impl",
                                                "_set_registered", "__getattr__", "__getattribute__", "weight", "bias", "input", "inplace"};
static PyObject *names[N_COUNT];
#define GLOBAL_HOOKS 4
static PyObject *global_hooks[GLOBAL_HOOKS]; /* the dicts of hooks that all modules share, given once by nn/modules/module.py */

/* ---- attributes ---- */

/* The value of `name` in _parameters, _buffers or _modules: borrowed, NULL without an exception when it stands in none. */
static PyObject *find_registered(module_object *m, PyObject *name)
{
    for (int k = N_PARAMETERS; k <= N_MODULES; k++) {
        PyObject *d = m->dict ? PyDict_GetItemWithError(m->dict, names[k]) : NULL;
        PyObject *v = d && PyDict_Check(d) ? PyDict_GetItemWithError(d, name) : NULL;
        if (v || PyErr_Occurred())
            return v;
    }
    return NULL;
}

static PyObject *registered_or_error(PyObject *self, PyObject *name)
{
    PyObject *v = find_registered((module_object *)self, name);
    if (v)
        return Py_NewRef(v);
    if (!PyErr_Occurred())
        PyErr_Format(PyExc_AttributeError, "'%.200s' object has no attribute '%U'", Py_TYPE(self)->tp_name, name);
    return NULL;
}

/* As object's lookup (data descriptor, instance dict, class), then the three dicts. */
static PyObject *module_getattro(PyObject *self, PyObject *name)
{
    PyTypeObject *type = Py_TYPE(self);
    if (!PyUnicode_Check(name))
        return PyErr_Format(PyExc_TypeError, "attribute name must be string, not '%.200s'", Py_TYPE(name)->tp_name);
    PyObject *d = _PyType_Lookup(type, name), *v = NULL;
    descrgetfunc get = NULL;
    if (d) {
        Py_INCREF(d);
        get = Py_TYPE(d)->tp_descr_get;
        if (get && PyDescr_IsData(d)) {
            v = get(d, self, (PyObject *)type);
            Py_DECREF(d);
            return v;
        }
    }
    module_object *m = (module_object *)self;
    v = m->dict ? Py_XNewRef(PyDict_GetItemWithError(m->dict, name)) : NULL;
    if (!v && !PyErr_Occurred()) {
        if (!d)
            return registered_or_error(self, name);
        v = get ? get(d, self, (PyObject *)type) : Py_NewRef(d);
    }
    Py_XDECREF(d);
    return v;
}

static PyObject *module_getattr_method(PyObject *self, PyObject *name)
{
    if (!PyUnicode_Check(name))
        return PyErr_Format(PyExc_TypeError, "attribute name must be string, not '%.200s'", Py_TYPE(name)->tp_name);
    return registered_or_error(self, name);
}

static int delete_attribute(PyObject *self, PyObject *name)
{
    module_object *m = (module_object *)self;
    for (int k = N_PARAMETERS; k <= N_MODULES; k++) {
        PyObject *d = m->dict ? PyDict_GetItemWithError(m->dict, names[k]) : NULL;
        int has = d && PyDict_Check(d) ? PyDict_Contains(d, name) : 0;
        if (has < 0 || (!d && PyErr_Occurred()))
            return -1;
        if (!has)
            continue;
        if (k == N_BUFFERS) {
            PyObject *set = PyDict_GetItemWithError(m->dict, names[N_NONPERSISTENT]);
            if (set && PySet_Check(set) && PySet_Discard(set, name) < 0)
                return -1;
        }
        return PyDict_DelItem(d, name);
    }
    return PyObject_GenericSetAttr(self, name, NULL);
}

/* May the value be a Parameter, a Buffer or a Module? A plain Tensor without a dict is none of them. */
static bool may_register(PyObject *value)
{
    if (PyObject_TypeCheck(value, rl_st->Module))
        return true;
    return rl_py_is_tensor(value) && (Py_TYPE(value) != rl_st->Tensor || ((rl_py_tensor *)value)->dict);
}

static int module_setattro(PyObject *self, PyObject *name, PyObject *value)
{
    if (!value)
        return PyUnicode_Check(name) ? delete_attribute(self, name) : PyObject_GenericSetAttr(self, name, value);
    if (!may_register(value)) {
        /* find_registered does not tell a missing name from one registered as None: both lead to the right place below. */
        if (!find_registered((module_object *)self, name)) {
            if (PyErr_Occurred())
                return -1;
            return PyObject_GenericSetAttr(self, name, value);
        }
    }
    PyObject *r = PyObject_CallMethodObjArgs(self, names[N_SET_REGISTERED], name, value, NULL);
    Py_XDECREF(r);
    return r ? 0 : -1;
}

/* object.__setattr__ past the rules above, for _set_registered. */
static PyObject *module_set_plain(PyObject *self, PyObject *args)
{
    PyObject *name, *value;
    if (!PyArg_ParseTuple(args, "UO:_set_plain", &name, &value) || PyObject_GenericSetAttr(self, name, value) < 0)
        return NULL;
    Py_RETURN_NONE;
}

/* ---- the call ---- */

static PyObject *module_call(PyObject *self, PyObject *args, PyObject *kwargs);

#define SMALL_CALL 8
static PyObject *call_with_self(PyObject *f, PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    Py_ssize_t n = PyVectorcall_NARGS(nargsf), total = n + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0);
    PyObject *small[SMALL_CALL], **v = small, *r;
    if (nargsf & PY_VECTORCALL_ARGUMENTS_OFFSET) {
        v = (PyObject **)args - 1;
        PyObject *saved = v[0];
        v[0] = self;
        r = PyObject_Vectorcall(f, v, (size_t)n + 1, kwnames);
        v[0] = saved;
        return r;
    }
    if (total + 1 > SMALL_CALL && !(v = PyMem_Malloc((size_t)(total + 1) * sizeof(PyObject *))))
        return PyErr_NoMemory();
    v[0] = self;
    for (Py_ssize_t k = 0; k < total; k++)
        v[k + 1] = args[k];
    r = PyObject_Vectorcall(f, v, (size_t)n + 1, kwnames);
    if (v != small)
        PyMem_Free(v);
    return r;
}

/* 1: some hook is set, 0: none, -1: an exception (Module.__init__ was not called). */
static int has_hooks(module_object *m)
{
    for (int k = 0; k < GLOBAL_HOOKS; k++)
        if (global_hooks[k] && PyDict_GET_SIZE(global_hooks[k]))
            return 1;
    for (int k = N_BACKWARD_HOOKS; k <= N_FORWARD_PRE_HOOKS; k++) {
        PyObject *d = m->dict ? PyDict_GetItemWithError(m->dict, names[k]) : NULL;
        if (RL_UNLIKELY(!d || !PyDict_Check(d))) {
            if (d)
                return 1; /* somebody's own container: the Python side copes */
            if (!PyErr_Occurred())
                PyErr_Format(PyExc_AttributeError, "'%.200s' object has no attribute '%U'", Py_TYPE(m)->tp_name, names[k]);
            return -1;
        }
        if (PyDict_GET_SIZE(d))
            return 1;
    }
    return 0;
}

/* A method of the instance with `self` put before the arguments: no bound method is made for functions and C methods. */
static PyObject *call_method(PyObject *self, int name, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    module_object *m = (module_object *)self;
    PyObject *f = m->dict ? PyDict_GetItemWithError(m->dict, names[name]) : NULL, *r;
    if (!f && PyErr_Occurred())
        return NULL;
    if (!f && Py_TYPE(self)->tp_getattro == module_getattro) {
        f = _PyType_Lookup(Py_TYPE(self), names[name]);
        if (f && PyType_HasFeature(Py_TYPE(f), Py_TPFLAGS_METHOD_DESCRIPTOR)) {
            Py_INCREF(f);
            r = call_with_self(f, self, args, nargsf, kwnames);
            Py_DECREF(f);
            return r;
        }
    }
    f = PyObject_GetAttr(self, names[name]);
    if (!f)
        return NULL;
    r = PyObject_Vectorcall(f, args, nargsf, kwnames);
    Py_DECREF(f);
    return r;
}

static PyObject *call_checked(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    int hooks = has_hooks((module_object *)self);
    if (RL_UNLIKELY(hooks < 0) || Py_EnterRecursiveCall(" while calling a Module"))
        return NULL;
    PyObject *r = call_method(self, hooks ? N_CALL_IMPL : N_FORWARD, args, nargsf, kwnames);
    Py_LeaveRecursiveCall();
    return r;
}

/* A class whose __call__ was replaced after its creation has another tp_call, but keeps this entry. */
static PyObject *module_vectorcall(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    if (RL_LIKELY(Py_TYPE(self)->tp_call == module_call))
        return call_checked(self, args, nargsf, kwnames);
    Py_ssize_t n = PyVectorcall_NARGS(nargsf), nkw = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
    PyObject *tuple = PyTuple_New(n), *kwargs = nkw ? PyDict_New() : NULL, *r = NULL;
    if (!tuple || (nkw && !kwargs))
        goto done;
    for (Py_ssize_t k = 0; k < n; k++)
        PyTuple_SET_ITEM(tuple, k, Py_NewRef(args[k]));
    for (Py_ssize_t k = 0; k < nkw; k++)
        if (PyDict_SetItem(kwargs, PyTuple_GET_ITEM(kwnames, k), args[n + k]) < 0)
            goto done;
    r = Py_TYPE(self)->tp_call(self, tuple, kwargs);
done:
    Py_XDECREF(tuple);
    Py_XDECREF(kwargs);
    return r;
}

static PyObject *module_call(PyObject *self, PyObject *args, PyObject *kwargs)
{
    if (!kwargs || PyDict_GET_SIZE(kwargs) == 0)
        return call_checked(self, &PyTuple_GET_ITEM(args, 0), (size_t)PyTuple_GET_SIZE(args), NULL);
    int hooks = has_hooks((module_object *)self);
    PyObject *f = hooks < 0 ? NULL : PyObject_GetAttr(self, names[hooks ? N_CALL_IMPL : N_FORWARD]);
    if (!f)
        return NULL;
    PyObject *r = NULL;
    if (!Py_EnterRecursiveCall(" while calling a Module")) {
        r = PyObject_Call(f, args, kwargs);
        Py_LeaveRecursiveCall();
    }
    Py_DECREF(f);
    return r;
}

/* ---- forwards in C: `forward` of Linear, ReLU and Sequential, as methods of the base type ---- */

static PyObject *one_input(const char *what, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    Py_ssize_t nkw = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
    if (nargs == 1 && nkw == 0)
        return args[0];
    if (nargs == 0 && nkw == 1 && PyUnicode_Compare(PyTuple_GET_ITEM(kwnames, 0), names[N_INPUT]) == 0)
        return args[0];
    if (nkw)
        return PyErr_Format(PyExc_TypeError, "%s.forward() got an unexpected keyword argument '%U'", what,
                            PyTuple_GET_ITEM(kwnames, nargs ? 0 : nkw - 1));
    if (nargs == 0)
        return PyErr_Format(PyExc_TypeError, "%s.forward() missing 1 required positional argument: 'input'", what);
    return PyErr_Format(PyExc_TypeError, "%s.forward() takes 2 positional arguments but %zd were given", what, nargs + 1);
}

/* A new reference: from _parameters at once, else by the ordinary lookup (parametrized weights are properties of a subclass). */
static PyObject *parameter_of(PyObject *self, int name)
{
    module_object *m = (module_object *)self;
    PyObject *d = m->dict ? PyDict_GetItemWithError(m->dict, names[N_PARAMETERS]) : NULL;
    PyObject *v = d && PyDict_Check(d) ? PyDict_GetItemWithError(d, names[name]) : NULL;
    if (v)
        return Py_NewRef(v);
    return PyErr_Occurred() ? NULL : PyObject_GetAttr(self, names[name]);
}

static PyObject *linear(PyObject *x, PyObject *w, PyObject *b)
{
    bool plain = rl_py_is_tensor_exact(x) && rl_py_is_tensor_exact(w) && (b == Py_None || rl_py_is_tensor_exact(b));
    if (RL_LIKELY(plain && rl_fast_paths && !rl_state_get()->autocast[rl_tensor_device(rl_py_unwrap(x)).type])) {
        rl_tensor *out = NULL;
        rl_status st = rl_linear(rl_py_unwrap(x), rl_py_unwrap(w), b == Py_None ? NULL : rl_py_unwrap(b), &out);
        return st == RL_OK ? rl_py_wrap(out) : rl_py_raise(st);
    }
    PyObject *args[3] = {x, w, b};
    return rl_py_call(&rl_op_table[RL_OP_linear], false, args, 3, NULL);
}

static PyObject *module_linear_forward(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    PyObject *x = one_input("Linear", args, nargs, kwnames), *r = NULL;
    if (!x)
        return NULL;
    PyObject *w = parameter_of(self, N_WEIGHT), *b = w ? parameter_of(self, N_BIAS) : NULL;
    if (b)
        r = linear(x, w, b);
    Py_XDECREF(w);
    Py_XDECREF(b);
    return r;
}

static PyObject *module_relu_forward(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    PyObject *x = one_input("ReLU", args, nargs, kwnames);
    PyObject *inplace = x ? PyObject_GetAttr(self, names[N_INPLACE]) : NULL;
    int truth = inplace ? PyObject_IsTrue(inplace) : -1;
    Py_XDECREF(inplace);
    if (truth < 0)
        return NULL;
    if (truth == 0 && RL_LIKELY(rl_py_is_tensor_exact(x))) {
        rl_tensor *out = NULL;
        rl_status st = rl_relu(rl_py_unwrap(x), &out);
        return st == RL_OK ? rl_py_wrap(out) : rl_py_raise(st);
    }
    return rl_py_call(&rl_op_table[RL_OP_relu], truth, &x, 1, NULL);
}

static PyObject *module_sequential_forward(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    PyObject *x = one_input("Sequential", args, nargs, kwnames), *child;
    PyObject *own = ((module_object *)self)->dict;
    PyObject *d = x && own ? PyDict_GetItemWithError(own, names[N_MODULES]) : NULL;
    if (!d || !PyDict_Check(d))
        return x && !PyErr_Occurred()
                   ? PyErr_Format(PyExc_AttributeError, "'%.200s' object has no attribute '_modules'", Py_TYPE(self)->tp_name)
                   : NULL;
    Py_INCREF(d);
    Py_INCREF(x);
    Py_ssize_t at = 0, size = PyDict_GET_SIZE(d);
    while (x && PyDict_Next(d, &at, NULL, &child)) {
        PyObject *stack[2] = {NULL, x}, *y;
        Py_INCREF(child);
        y = PyObject_Vectorcall(child, stack + 1, 1 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
        Py_DECREF(child);
        Py_SETREF(x, y);
        if (x && PyDict_GET_SIZE(d) != size) {
            PyErr_SetString(PyExc_RuntimeError, "dictionary changed size during iteration");
            Py_CLEAR(x);
        }
    }
    Py_DECREF(d);
    return x;
}

/* ---- the type ---- */

static PyObject *module_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    module_object *m = (module_object *)type->tp_alloc(type, 0);
    if (!m)
        return NULL;
    m->vectorcall = module_vectorcall;
    m->dict = PyDict_New();
    if (!m->dict) {
        Py_DECREF(m);
        return NULL;
    }
    return (PyObject *)m;
}

static int module_init(PyObject *self, PyObject *args, PyObject *kwargs)
{
    return 0;
}

static int module_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(((module_object *)self)->dict);
    return 0;
}

static int module_clear(PyObject *self)
{
    Py_CLEAR(((module_object *)self)->dict);
    return 0;
}

static void module_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    if (((module_object *)self)->weakrefs)
        PyObject_ClearWeakRefs(self);
    Py_TRASHCAN_BEGIN(self, module_dealloc)
    Py_CLEAR(((module_object *)self)->dict);
    type->tp_free(self);
    Py_DECREF(type);
    Py_TRASHCAN_END
}

/* Does a class other than ours define `name` in the method resolution order? */
static int defined_elsewhere(PyTypeObject *type, int name, PyObject *ours)
{
    PyObject *found = _PyType_Lookup(type, names[name]);
    return found && found != ours;
}

static PyObject *module_init_subclass(PyObject *cls, PyObject *args)
{
    PyTypeObject *type = (PyTypeObject *)cls;
    static PyObject *ours, *plain;
    if (!ours && !(ours = PyDict_GetItemWithError(rl_st->Module->tp_dict, names[N_GETATTR])))
        return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
    if (!plain)
        plain = _PyType_Lookup(rl_st->Module, names[N_GETATTRIBUTE]);
    if (!defined_elsewhere(type, N_GETATTR, ours) && !defined_elsewhere(type, N_GETATTRIBUTE, plain)) {
        type->tp_getattro = module_getattro;
        PyType_Modified(type);
    }
    if (type->tp_call == module_call && type->tp_vectorcall_offset)
        type->tp_flags |= Py_TPFLAGS_HAVE_VECTORCALL; /* heap classes do not inherit it before 3.12 */
    Py_RETURN_NONE;
}

static PyMemberDef module_members[] = {{"__dictoffset__", T_PYSSIZET, offsetof(module_object, dict), READONLY, NULL},
                                       {"__weaklistoffset__", T_PYSSIZET, offsetof(module_object, weakrefs), READONLY, NULL},
                                       {"__vectorcalloffset__", T_PYSSIZET, offsetof(module_object, vectorcall), READONLY, NULL},
                                       {NULL, 0, 0, 0, NULL}};

static PyGetSetDef module_getset[] = {{"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL},
                                      {NULL, NULL, NULL, NULL, NULL}};

static PyMethodDef module_methods[] = {
    {"__getattr__", module_getattr_method, METH_O, "The parameter, buffer or submodule of that name."},
    {"__init_subclass__", module_init_subclass, METH_NOARGS | METH_CLASS, NULL},
    {"_set_plain", module_set_plain, METH_VARARGS, "Sets an ordinary attribute, past the rules for parameters, buffers and submodules."},
    {"_linear_forward", (PyCFunction)(void (*)(void))module_linear_forward, METH_FASTCALL | METH_KEYWORDS, "input @ weight.T + bias"},
    {"_relu_forward", (PyCFunction)(void (*)(void))module_relu_forward, METH_FASTCALL | METH_KEYWORDS, "max(input, 0)"},
    {"_sequential_forward", (PyCFunction)(void (*)(void))module_sequential_forward, METH_FASTCALL | METH_KEYWORDS,
     "Passes the input through the submodules in order."},
    {NULL, NULL, 0, NULL}};

static PyType_Slot module_slots[] = {{Py_tp_new, module_new},
                                     {Py_tp_init, module_init},
                                     {Py_tp_dealloc, module_dealloc},
                                     {Py_tp_traverse, module_traverse},
                                     {Py_tp_clear, module_clear},
                                     {Py_tp_getattro, module_getattro},
                                     {Py_tp_setattro, module_setattro},
                                     {Py_tp_call, module_call},
                                     {Py_tp_members, module_members},
                                     {Py_tp_getset, module_getset},
                                     {Py_tp_methods, module_methods},
                                     {Py_tp_doc, "The C part of rushlight.nn.Module."},
                                     {0, NULL}};

static PyType_Spec module_spec = {"rushlight._C._ModuleBase", sizeof(module_object), 0,
                                  Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL, module_slots};

/* ---- what the Python side tells this file ---- */

static PyObject *set_global_hooks(PyObject *m, PyObject *args)
{
    PyObject *d[GLOBAL_HOOKS];
    if (!PyArg_ParseTuple(args, "O!O!O!O!:_set_global_module_hooks", &PyDict_Type, &d[0], &PyDict_Type, &d[1], &PyDict_Type, &d[2],
                          &PyDict_Type, &d[3]))
        return NULL;
    for (int k = 0; k < GLOBAL_HOOKS; k++)
        Py_XSETREF(global_hooks[k], Py_NewRef(d[k]));
    Py_RETURN_NONE;
}

static PyObject *set_parameter_type(PyObject *m, PyObject *cls)
{
    if (!PyType_Check(cls) || !PyType_IsSubtype((PyTypeObject *)cls, rl_st->Tensor))
        return PyErr_Format(PyExc_TypeError, "_set_parameter_type: expected a subclass of Tensor, got %R", cls);
    Py_XSETREF(rl_st->Parameter, (PyTypeObject *)Py_NewRef(cls));
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {{"_set_global_module_hooks", set_global_hooks, METH_VARARGS, NULL},
                                  {"_set_parameter_type", set_parameter_type, METH_O, NULL},
                                  {NULL, NULL, 0, NULL}};

int rl_py_init_module_type(PyObject *m)
{
    for (int k = 0; k < N_COUNT; k++)
        if (!names[k] && !(names[k] = PyUnicode_InternFromString(name_texts[k])))
            return -1;
    rl_st->Module = (PyTypeObject *)PyType_FromSpec(&module_spec);
    if (!rl_st->Module || PyModule_AddObjectRef(m, "_ModuleBase", (PyObject *)rl_st->Module) < 0)
        return -1;
    return PyModule_AddFunctions(m, functions);
}
