/* export.c: tensors as Python values: item, tolist, numpy, __array__ and the buffer protocol.
 *
 * Invariant: what goes out holds the storage, not the tensor, so that resize_ or set_data on the tensor cannot pull the memory from
 * under an array; a tensor that requires grad gives no buffer, and its __array__ says why.
 */
#include "convert.h"

/* ---- item, tolist ---- */

static inline PyObject *element(const char *p, rl_dtype d)
{
    switch (d) {
    case RL_F32: {
        float f;
        memcpy(&f, p, sizeof f);
        return PyFloat_FromDouble(f);
    }
    case RL_F64: {
        double f;
        memcpy(&f, p, sizeof f);
        return PyFloat_FromDouble(f);
    }
    case RL_I64: {
        int64_t i;
        memcpy(&i, p, sizeof i);
        return PyLong_FromLongLong(i);
    }
    default: {
        rl_scalar s = rl_element_load(p, d);
        if (s.kind == RL_CAT_FLOAT)
            return PyFloat_FromDouble(s.d);
        return s.kind == RL_CAT_BOOL ? PyBool_FromLong(s.i != 0) : PyLong_FromLongLong(s.i);
    }
    }
}

static bool on_cpu(const rl_tensor *t) { return rl_tensor_device(t).type == RL_DEVICE_CPU; }

PyObject *rl_py_item(rl_tensor *t)
{
    rl_scalar s;
    if (t->numel == 1 && on_cpu(t))
        return element(rl_tensor_data(t), (rl_dtype)t->dtype);
    rl_status st = rl_item(t, &s);
    return st == RL_OK ? rl_py_scalar(s) : rl_py_raise(st);
}

static PyObject *item(PyObject *self, PyObject *ignored) { return rl_py_item(rl_py_unwrap(self)); }

static PyObject *list_of(const rl_tensor *t, const char *p, int dim)
{
    if (dim == t->ndim)
        return element(p, (rl_dtype)t->dtype);
    int64_t n = t->shape[dim], step = t->strides[dim] * rl_tensor_itemsize(t);
    PyObject *list = PyList_New((Py_ssize_t)n);
    for (int64_t i = 0; list && i < n; i++) {
        PyObject *o = list_of(t, p + i * step, dim + 1);
        if (!o)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, (Py_ssize_t)i, o);
    }
    return list;
}

/* x itself on the CPU, else a copy there; a new reference, NULL with an exception. */
static rl_tensor *to_cpu(rl_tensor *x)
{
    rl_state *state = rl_state_get();
    bool grad = state->grad_mode;
    rl_tensor *out = NULL;
    if (on_cpu(x))
        return rl_tensor_retain(x);
    state->grad_mode = false;
    rl_status st = rl_to(x, (rl_dtype)x->dtype, (rl_device){RL_DEVICE_CPU, -1}, false, RL_FORMAT_PRESERVE, &out);
    state->grad_mode = grad;
    if (st != RL_OK)
        rl_py_raise(st);
    return st == RL_OK ? out : NULL;
}

static PyObject *tolist(PyObject *self, PyObject *ignored)
{
    rl_tensor *t = to_cpu(rl_py_unwrap(self));
    PyObject *list = t ? list_of(t, rl_tensor_data(t), 0) : NULL;
    rl_tensor_release(t);
    return list;
}

/* ---- the buffer protocol ---- */

typedef struct rl_py_export {
    rl_storage *storage;
    Py_ssize_t shape[RL_MAX_NDIM], strides[RL_MAX_NDIM];
    char format[2];
} rl_py_export;

static bool buffer_allowed(const rl_tensor *t, int flags)
{
    if (!on_cpu(t))
        PyErr_Format(PyExc_BufferError, "a tensor on %s has no buffer: copy it with .cpu() first", rl_device_text(rl_tensor_device(t)));
    else if (!rl_dtype_table[t->dtype].kind)
        PyErr_Format(PyExc_BufferError, "the buffer protocol has no element type for %s", rl_dtype_name((rl_dtype)t->dtype));
    else if (rl_tensor_requires_grad(t))
        PyErr_SetString(PyExc_BufferError, "a tensor that requires grad gives no buffer: use tensor.detach()");
    else if ((flags & PyBUF_WRITABLE) && t->storage->read_only)
        PyErr_SetString(PyExc_BufferError, "the tensor's memory is read-only");
    else if (((flags & PyBUF_STRIDES) != PyBUF_STRIDES || (flags & PyBUF_C_CONTIGUOUS) == PyBUF_C_CONTIGUOUS) &&
             !rl_tensor_is_contiguous(t))
        PyErr_Format(PyExc_BufferError, "the tensor of shape %s is not contiguous", rl_shape_text(t->ndim, t->shape));
    else if ((flags & PyBUF_F_CONTIGUOUS) == PyBUF_F_CONTIGUOUS && t->ndim > 1)
        PyErr_SetString(PyExc_BufferError, "the tensor is not contiguous in Fortran order");
    else
        return true;
    return false;
}

static PyObject *buffer_of(rl_tensor *t, PyObject *owner, Py_buffer *view, int flags)
{
    rl_py_export *e = PyMem_Malloc(sizeof *e);
    static char nothing[8];
    if (!e)
        return PyErr_NoMemory();
    e->storage = rl_storage_retain(t->storage);
    e->format[0] = t->dtype == RL_I64 && sizeof(long) == 8 ? 'l' : rl_dtype_table[t->dtype].kind;
    e->format[1] = 0;
    for (int d = 0; d < t->ndim; d++) {
        e->shape[d] = (Py_ssize_t)t->shape[d];
        e->strides[d] = (Py_ssize_t)(t->strides[d] * rl_tensor_itemsize(t));
    }
    *view = (Py_buffer){.buf = t->storage->data ? rl_tensor_data(t) : nothing,
                        .obj = Py_NewRef(owner),
                        .len = (Py_ssize_t)(t->numel * rl_tensor_itemsize(t)),
                        .itemsize = rl_tensor_itemsize(t),
                        .readonly = t->storage->read_only,
                        .ndim = t->ndim,
                        .format = (flags & PyBUF_FORMAT) ? e->format : NULL,
                        .shape = (flags & PyBUF_ND) ? e->shape : NULL,
                        .strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? e->strides : NULL,
                        .internal = e};
    return owner;
}

int rl_py_getbuffer(PyObject *self, Py_buffer *view, int flags)
{
    rl_tensor *t = rl_py_unwrap(self);
    view->obj = NULL;
    return buffer_allowed(t, flags) && buffer_of(t, self, view, flags) ? 0 : -1;
}

void rl_py_releasebuffer(PyObject *self, Py_buffer *view)
{
    rl_py_export *e = view->internal;
    rl_storage_release(e->storage);
    PyMem_Free(e);
}

/* ---- NumPy ---- */

/* An ndarray over t's memory: NumPy makes it from a memoryview of a wrapper of t. */
static PyObject *array_of(rl_tensor *t)
{
    rl_tensor *plain = NULL;
    if (rl_tensor_requires_grad(t)) {
        rl_status st = rl_tensor_alias(t, &plain);
        if (st != RL_OK)
            return rl_py_raise(st);
    }
    PyObject *wrapper = rl_py_wrap(plain ? plain : rl_tensor_retain(t));
    PyObject *view = wrapper ? PyMemoryView_FromObject(wrapper) : NULL;
    Py_XDECREF(wrapper);
    PyObject *numpy = view ? PyImport_ImportModule("numpy") : NULL;
    PyObject *array = numpy ? PyObject_CallMethod(numpy, "asarray", "O", view) : NULL;
    Py_XDECREF(view);
    Py_XDECREF(numpy);
    return array;
}

static PyObject *numpy_of(rl_tensor *t, bool force)
{
    if (!force && !on_cpu(t))
        return PyErr_Format(PyExc_TypeError,
                            "can't convert %s device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host memory first.",
                            rl_device_text(rl_tensor_device(t)));
    if (!force && rl_tensor_requires_grad(t))
        return PyErr_Format(PyExc_RuntimeError, "Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.");
    if (!rl_dtype_table[t->dtype].kind)
        return PyErr_Format(PyExc_TypeError, "Got unsupported ScalarType %s", rl_dtype_table[t->dtype].scalar_type);
    rl_tensor *host = to_cpu(t);
    PyObject *array = host ? array_of(host) : NULL;
    rl_tensor_release(host);
    return array;
}

static PyObject *numpy_method(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    static const char *const names[] = {"force"};
    PyObject *a[1] = {NULL};
    bool force = false;
    if ((nargs || kwnames) &&
        (!rl_py_bind("numpy", names, 1, 0, 0, args, nargs, kwnames, a) || !rl_py_to_bool("numpy", "force", a[0], &force)))
        return NULL;
    return numpy_of(rl_py_unwrap(self), force);
}

/* __array__(dtype=None, copy=None), NumPy 1's and 2's protocol. */
static PyObject *array_method(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    static const char *const names[] = {"dtype", "copy"};
    PyObject *a[2];
    if (!rl_py_bind("__array__", names, 2, 2, 0, args, nargs, kwnames, a))
        return NULL;
    PyObject *array = numpy_of(rl_py_unwrap(self), false);
    if (array && a[0] && a[0] != Py_None) {
        PyObject *kw = Py_BuildValue("{s:O}", "copy", Py_False), *pos = PyTuple_Pack(1, a[0]);
        PyObject *astype = PyObject_GetAttrString(array, "astype");
        PyObject *cast = kw && pos && astype ? PyObject_Call(astype, pos, kw) : NULL;
        Py_XDECREF(kw);
        Py_XDECREF(pos);
        Py_XDECREF(astype);
        Py_SETREF(array, cast);
    }
    if (array && a[1] == Py_True)
        Py_SETREF(array, PyObject_CallMethod(array, "copy", NULL));
    return array;
}

#define FAST(f) (PyCFunction)(void (*)(void)) f, METH_FASTCALL | METH_KEYWORDS
static PyMethodDef methods[] = {
    {"item", item, METH_NOARGS, "item() -> number\n\nThe value of a tensor of one element."},
    {"tolist", tolist, METH_NOARGS, "tolist() -> list or number\n\nThe values as nested lists, a number for a 0-dim tensor."},
    {"numpy", FAST(numpy_method), "numpy(*, force=False) -> numpy.ndarray\n\nAn array that shares the tensor's memory."},
    {"__array__", FAST(array_method), NULL},
    {NULL, NULL, 0, NULL}};

int rl_py_init_export(PyObject *m) { return rl_py_add_methods(rl_st->Tensor, methods); }
