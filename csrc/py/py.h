/* py: what the binding's files share. The only place of Python.h; NumPy's header stays in convert.c alone.
 *
 * Invariant: one wrapper for one rl_tensor (identity): rl_py_wrap gives the existing one. All Python-side state stands in one
 * struct behind one static pointer; types are heap types; only these files raise.
 */
#ifndef RL_PY_H
#define RL_PY_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include "../ops/ops.h"

typedef struct rl_py_tensor {
    PyObject_HEAD
    rl_tensor *t;        /* strong, except while C owns the wrapper (RL_TF_OWNS_PY): then borrowed */
    PyObject *dict;      /* made lazily */
    PyObject *weakrefs;
    PyObject *backward_hooks; /* OrderedDict of Tensor._backward_hooks, or NULL */
} rl_py_tensor;

/* The Python objects of the small value types. */
typedef struct rl_py_dtype_object {
    PyObject_HEAD
    rl_dtype dtype;
} rl_py_dtype_object;
typedef struct rl_py_device_object {
    PyObject_HEAD
    rl_device device;
} rl_py_device_object;
typedef struct rl_py_format_object {
    PyObject_HEAD
    int format; /* rl_memory_format */
} rl_py_format_object;
typedef struct rl_py_generator_object {
    PyObject_HEAD
    rl_generator *generator; /* strong */
} rl_py_generator_object;

typedef struct rl_py_state {
    PyObject *module;
    /* types */
    PyTypeObject *Tensor, *Size, *Dtype, *Device, *MemoryFormat, *Layout, *Node, *OpFunction, *Generator, *Storage, *Module, *Finfo, *Iinfo;
    PyTypeObject *HookHandle; /* hook.c: what register_hook returns */
    PyTypeObject *OpMethod; /* an operator as a method of Tensor: a descriptor; OpFunction is not one */
    PyTypeObject *Parameter; /* rushlight.nn.Parameter (a Python class, registered by nn/parameter.py); NULL before */
    /* singletons */
    PyObject *dtypes[RL_DTYPE_COUNT];
    PyObject *strided, *memory_formats[4];
    PyObject *cpu_device;
    PyObject *empty_tuple;
    /* interned names */
    PyObject *s_torch_function, *s_dtype, *s_device, *s_requires_grad, *s_out;
    PyObject *return_types; /* dict: "max" -> structseq type */
    PyObject *node_types;   /* dict: "AddBackward0" -> subclass of Node */
    PyObject *OutOfMemoryError;
    bool print_as_torch; /* under the alias: dtype and type names print as torch.… */
} rl_py_state;
extern rl_py_state *rl_st;

/* ---- errors ---- */
/* Raises the exception class of `st` with rl_last_message(); leaves a pending exception alone for RL_ERR_PYTHON. Always NULL. */
PyObject *rl_py_raise(rl_status st);
/* For core callbacks: the pending Python exception becomes a status. */
static inline rl_status rl_py_failed(void) { return RL_ERR_PYTHON; }

/* ---- tensors ---- */
static inline bool rl_py_is_tensor_exact(PyObject *o) { return Py_TYPE(o) == rl_st->Tensor || Py_TYPE(o) == rl_st->Parameter; }
static inline bool rl_py_is_tensor(PyObject *o) { return rl_py_is_tensor_exact(o) || PyObject_TypeCheck(o, rl_st->Tensor); }
static inline rl_tensor *rl_py_unwrap(PyObject *o) { return ((rl_py_tensor *)o)->t; } /* borrowed */
/* Takes the reference to t; NULL t gives None. The same object for the same t. */
PyObject *rl_py_wrap(rl_tensor *t);
/* As `type` (a subclass of Tensor) when t has no wrapper yet. */
PyObject *rl_py_wrap_as(rl_tensor *t, PyTypeObject *type);
/* For tp_traverse of whatever owns a reference to t: visits the Python objects that t alone keeps alive (as its sole owner). */
int rl_py_visit_tensor(rl_tensor *t, visitproc visit, void *arg);
/* autograd.c: the wrapper of a node (takes the reference; None for NULL), and what a node alone keeps alive (its wrapper when C owns
 * it, a custom Function's context, hooks): called for a node of which the caller holds the only reference. */
PyObject *rl_py_wrap_node(rl_node *n);
int rl_py_visit_node(rl_node *n, visitproc visit, void *arg);
int rl_py_visit_hooks(const rl_hook *list, visitproc visit, void *arg); /* hook.c: the Python objects of a hook list */
PyObject *rl_py_wrap_result(const rl_op *op, int overload, rl_result *r); /* consumes r: a tensor, a named tuple, a tuple or a list */

/* ---- values both ways. The parsers return false with an exception set. ---- */
PyObject *rl_py_size(int n, const int64_t *v); /* a Size */
PyObject *rl_py_dtype(rl_dtype d);             /* new reference */
PyObject *rl_py_device(rl_device d);
PyObject *rl_py_scalar(rl_scalar s);
/* "str", "numpy.ndarray", "Tensor", "rushlight.dtype" (or torch.dtype): the type of o as messages name it. */
const char *rl_py_type_text(PyObject *o);
const char *rl_py_prefix(void); /* "rushlight", or "torch" under the alias */
bool rl_py_to_dtype(PyObject *o, rl_dtype *out);    /* dtype objects; float, int, bool, too */
bool rl_py_to_device(PyObject *o, rl_device *out);  /* device objects, strings, ints */
bool rl_py_to_scalar(PyObject *o, rl_scalar *out);  /* int, float, bool, NumPy scalars, 0-dim tensors */
bool rl_py_is_number(PyObject *o);                  /* without running code: bool, int, float, NumPy scalar, Sym… */
bool rl_py_to_int64(PyObject *o, int64_t *out);     /* __index__ */
/* An exact int of at most one digit or so: the common case, without a call. False: anything else, nothing raised. */
static inline bool rl_py_small_int(PyObject *o, int64_t *out)
{
    if (!PyLong_CheckExact(o))
        return false;
#if PY_VERSION_HEX >= 0x030c0000
    if (!PyUnstable_Long_IsCompact((PyLongObject *)o))
        return false;
    *out = PyUnstable_Long_CompactValue((PyLongObject *)o);
    return true;
#else
    Py_ssize_t n = Py_SIZE(o);
    if (n > 1 || n < -1)
        return false;
    *out = n == 0 ? 0 : n * (int64_t)((PyLongObject *)o)->ob_digit[0];
    return true;
#endif
}
/* A sequence or tensor of ints into v[cap]; *n its length. */
bool rl_py_to_ints(PyObject *o, int64_t *v, int cap, int *n);

/* ---- operators ---- */
PyObject *rl_py_op_function(const rl_op *op, char form); /* form: 'F', 'M', 'I', 'N' …: an OpFunction */
/* Calls a row with operands already unwrapped; used by number protocol and fast paths. Handles torch-function. */
PyObject *rl_py_binary(int op, PyObject *a, PyObject *b);
PyObject *rl_py_call(const rl_op *op, bool inplace, PyObject *const *args, size_t nargsf, PyObject *kwnames);
/* __torch_function__: true when an argument overrides it and the call was handed over (then *result is its result, NULL on error). */
bool rl_py_torch_function(PyObject *func, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames, PyObject **result);

/* ---- parts: each adds its types and functions to the module; 0 or -1 ---- */
int rl_py_init_types(PyObject *m);     /* types.c: dtype, layout, memory_format; size.c; device.c; finfo.c (finfo, iinfo) */
int rl_py_init_tensor(PyObject *m);    /* tensor.c: Tensor's type, identity, gc, attributes */
int rl_py_init_ops(PyObject *m);       /* call.c, signature.c: OpFunction, the table's functions and methods */
int rl_py_init_number(PyObject *m);    /* number.c: slots of the number protocol (called from tensor.c's spec) */
/* convert.c: tensor(), as_tensor …; array.c: from_numpy; export.c: numpy(), tolist, item, buffer; dlpack.c */
int rl_py_init_convert(PyObject *m);
int rl_py_init_index(PyObject *m);     /* index.c: __getitem__, __setitem__ */
int rl_py_init_autograd(PyObject *m);  /* autograd.c: Node, backward, grad, hooks, modes; function.c: custom Functions */
int rl_py_init_random(PyObject *m);    /* random.c: Generator */
int rl_py_init_storage(PyObject *m);   /* storage.c: UntypedStorage, sharing between processes */
int rl_py_init_module_type(PyObject *m); /* module_type.c: nn.Module's base type */
int rl_py_init_optim(PyObject *m);     /* optim.c: one C call a step; clip */
int rl_py_init_data(PyObject *m);      /* data.c: batching of tensor data sets */

/* convert.c: Adds methods to a heap type that exists; 0 or -1. `Tensor(…)`'s tp_new: Tensor(), Tensor(2, 3), Tensor([…]), as `type`. */
int rl_py_add_methods(PyTypeObject *type, PyMethodDef *methods);
PyObject *rl_py_tensor_new(PyTypeObject *type, PyObject *args, PyObject *kwargs);

/* Slots that other files give to Tensor's type spec. */
PyObject *rl_py_getitem(PyObject *self, PyObject *index);
int rl_py_setitem(PyObject *self, PyObject *index, PyObject *value); /* value NULL: deletion, an error */
Py_ssize_t rl_py_length(PyObject *self);
extern PyType_Slot rl_py_number_slots[]; /* ends with {0, NULL} */
int rl_py_getbuffer(PyObject *self, Py_buffer *view, int flags);
void rl_py_releasebuffer(PyObject *self, Py_buffer *view);

#endif
