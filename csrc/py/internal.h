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
extern PyMethodDef rl_py_override_methods[];  /* override.c: functions of the module */
void rl_py_drain(void);                       /* releases what threads without the GIL left behind */
PyObject *rl_py_tensor_alias(rl_tensor *t, PyTypeObject *type); /* a new wrapper of `type` over t's elements, without history */
PyObject *rl_py_torch_function_method(PyObject *cls, PyObject *args, PyObject *kwargs); /* override.c: Tensor.__torch_function__ */
/* A getter of a subclass that overrides: the call was handed over. */
bool rl_py_getter_override(PyObject *self, const char *name, PyObject **result);
int rl_py_init_override(PyObject *m);

/* ---- call.c ---- */
const rl_op *rl_py_find_op(const char *name);  /* NULL: no such row */
PyObject *rl_py_public(const rl_op *op, char form); /* borrowed: the function object that __torch_function__ is given */
bool rl_py_bindable(PyObject *o);
int rl_py_init_results(PyObject *m); /* result.c */

extern _Thread_local int rl_py_override_off; /* > 0: __torch_function__ is off on this thread */
extern _Thread_local PyObject *rl_py_modes;  /* a list of TorchFunctionMode objects, or NULL */

#endif
