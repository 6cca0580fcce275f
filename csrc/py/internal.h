/* internal: what the files of the binding's centre (module, types, tensor, signature, call, number) share among themselves. */
#ifndef RL_PY_INTERNAL_H
#define RL_PY_INTERNAL_H
#include "py.h"

#ifndef Py_TPFLAGS_DISALLOW_INSTANTIATION
#define Py_TPFLAGS_DISALLOW_INSTANTIATION 0
#endif

/* ---- value.c ---- */
const char *rl_py_type_name(PyTypeObject *type);
bool rl_py_is_int(PyObject *o);  /* an int that is no bool, or a NumPy integer */
bool rl_py_is_bool(PyObject *o); /* a bool, or NumPy's */
bool rl_py_list_int(PyObject *o, int64_t *out);

/* ---- types.c and its neighbours ---- */
/* Makes a heap type and adds it to the module under `name`; a borrowed reference lives in the module, a strong one is returned. */
PyTypeObject *rl_py_make_type(PyObject *m, PyType_Spec *spec, PyTypeObject *base, const char *name);
int rl_py_init_size(PyObject *m);
int rl_py_init_device(PyObject *m);
int rl_py_init_finfo(PyObject *m);
int rl_py_init_defaults(PyObject *m); /* default.c: default dtype and device, promotion, threads */
bool rl_py_device_parse(const char *text, rl_device *out); /* "cuda:1"; raises */

/* ---- tensor.c and its neighbours ---- */
extern PyGetSetDef rl_py_tensor_getset[];     /* attribute.c */
extern PyMethodDef rl_py_tensor_methods[];    /* method.c */
void rl_py_drain(void);                       /* releases what threads without the GIL left behind */
PyObject *rl_py_init_subclass(PyObject *cls, PyObject *args, PyObject *kwargs); /* Tensor.__init_subclass__ */
PyObject *rl_py_torch_function_method(PyObject *cls, PyObject *args, PyObject *kwargs); /* override.c: Tensor.__torch_function__ */
/* A getter of a subclass that overrides: the call was handed over, `getter` is the function that the class sees. */
bool rl_py_getter_override(PyObject *self, PyObject *getter, PyObject **result);
/* attribute.c: getters whose result keeps its class (grad, _base). */
bool rl_py_keeps_class(PyObject *func);
int rl_py_init_methods(PyObject *m); /* method.c: numel(x) and its like */
int rl_py_set_requires_grad(rl_tensor *t, bool on, const char *not_float); /* -1 with an exception */
/* method.c: t's elements and history as `cls`. */
PyObject *rl_py_as_subclass(rl_tensor *t, PyTypeObject *cls);
int rl_py_init_override(PyObject *m);

/* ---- call.c ---- */
const rl_op *rl_py_find_op(const char *name);  /* NULL: no such row */
PyObject *rl_py_public(const rl_op *op, char form); /* borrowed: the function object that __torch_function__ is given */
int rl_py_init_results(PyObject *m); /* result.c */
const char *const *rl_result_fields(const char *op); /* the names of a row's several results, ends with NULL; NULL: none */

PyObject *rl_py_binary_inplace(int op, PyObject *self, PyObject *other);
/* Read without a call on every operator's way. */
#define RL_DIRECT_TLS _Thread_local __attribute__((tls_model("initial-exec")))
extern RL_DIRECT_TLS int rl_py_override_off; /* > 0: __torch_function__ is off on this thread */
extern RL_DIRECT_TLS PyObject *rl_py_modes;  /* a list of TorchFunctionMode objects, or NULL */

/* Never overrides: what most arguments are, found by comparing pointers. */
static inline bool rl_py_plain(PyObject *o)
{
    PyTypeObject *type = Py_TYPE(o);
    return type == rl_st->Tensor || type == rl_st->Parameter || type == &PyLong_Type || type == &PyFloat_Type || type == &PyBool_Type ||
        o == Py_None ||
           type == &PyUnicode_Type || type == rl_st->Dtype || type == rl_st->Size || type == rl_st->Device;
}

/* Whether the arguments must be shown to rl_py_torch_function at all. */
static inline bool rl_py_maybe_overridden(PyObject *const *args, Py_ssize_t n)
{
    for (Py_ssize_t k = 0; k < n; k++) {
        if (RL_LIKELY(rl_py_plain(args[k])))
            continue;
        if (!PyTuple_Check(args[k]) && !PyList_Check(args[k]))
            return true;
        for (Py_ssize_t j = 0; j < PySequence_Fast_GET_SIZE(args[k]); j++)
            if (!rl_py_plain(PySequence_Fast_GET_ITEM(args[k], j)))
                return true;
    }
    return rl_py_modes != NULL;
}

#endif
