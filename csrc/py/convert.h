/* convert: what convert.c, array.c, export.c and dlpack.c share: arguments of plain functions, arrays from outside, options.
 *
 * Functions that return bool or a pointer raise: false or NULL means that an exception is set.
 */
#ifndef RL_CONVERT_H
#define RL_CONVERT_H
#include "py.h"

/* Binds a vectorcall to names[0..n): out[k] is borrowed or NULL. The first `npos` may be positional, the first `nrequired` must be there. */
bool rl_py_bind(const char *fn, const char *const *names, int n, int npos, int nrequired, PyObject *const *args, Py_ssize_t nargs,
                PyObject *kwnames, PyObject **out);
/* The tensor that a call left in *t, wrapped, or the exception of its status. A pointer: arguments are evaluated in any order. */
static inline PyObject *rl_py_give(rl_status st, rl_tensor **t) { return RL_LIKELY(st == RL_OK) ? rl_py_wrap(*t) : rl_py_raise(st); }
bool rl_py_to_bool(const char *fn, const char *name, PyObject *o, bool *out); /* exactly a bool; o NULL: *out stays */

/* dtype=, device=, requires_grad=, pin_memory= of one call; None and NULL mean "not given". */
typedef struct rl_py_options {
    rl_dtype dtype; /* RL_DTYPE_NONE: not given */
    bool has_device, requires_grad, pin_memory;
    rl_device device;
} rl_py_options;
bool rl_py_options_read(const char *fn, rl_py_options *o, PyObject *dtype, PyObject *device, PyObject *requires_grad, PyObject *pin_memory);
/* Where a new tensor goes when no device is given. */
rl_device rl_py_default_device(void);

/* ---- arrays from outside ---- */
bool rl_py_is_array(PyObject *o);        /* a numpy.ndarray, without importing NumPy */
bool rl_py_is_array_scalar(PyObject *o); /* a numpy.generic */
/* The dtype of an array or array scalar that we have; TypeError in PyTorch's words else. */
bool rl_py_array_dtype(PyObject *o, rl_dtype *out);
/* A CPU tensor over the array's memory, which keeps the array alive. `warn`: say when it is read-only. New reference. */
rl_tensor *rl_py_array_tensor(PyObject *array, bool warn);
/* A new CPU tensor with the values of an array or array scalar, whatever its strides. */
rl_tensor *rl_py_array_copy(PyObject *array);
/* A flat tensor over any object with the buffer protocol (frombuffer). */
rl_tensor *rl_py_buffer_tensor(PyObject *buffer, rl_dtype dtype, int64_t count, int64_t offset);

/* ---- nested sequences ---- */
/* A new CPU tensor from numbers and nested sequences; dtype RL_DTYPE_NONE: inferred. */
rl_tensor *rl_py_sequence_tensor(PyObject *data, rl_dtype dtype);
/* torch.tensor's rule for any data: sequences, numbers, arrays, tensors; a copy on the device asked for. */
rl_tensor *rl_py_data_tensor(PyObject *data, const rl_py_options *o);

PyObject *rl_py_item(rl_tensor *t);
rl_tensor *rl_py_from_dlpack(PyObject *capsule_or_object, bool copy, PyObject *device);

/* storage.c: a flat tensor over all of an UntypedStorage. */
rl_tensor *rl_py_storage_tensor(PyObject *storage, rl_dtype dtype);

int rl_py_init_array(PyObject *m);
int rl_py_init_export(PyObject *m);
int rl_py_init_dlpack(PyObject *m);
int rl_py_init_legacy(PyObject *m);

#endif
