/* array.c: memory from outside as tensors: NumPy arrays and every object with the buffer protocol.
 *
 * NumPy is never imported here and its C API is not used: an array describes itself through the buffer protocol, so the wheel
 * fits every NumPy. Invariant: the storage holds what owns the memory (the array itself, or the locked buffer of a bytearray,
 * whose size could change) and lets it go with the GIL; memory that is read-only stays so, a write into it is an error.
 */
#include "convert.h"

static bool base_named(PyObject *o, const char *name)
{
    for (PyTypeObject *t = Py_TYPE(o); t; t = t->tp_base)
        if (t->tp_name[0] == 'n' && strcmp(t->tp_name, name) == 0)
            return true;
    return false;
}

bool rl_py_is_array(PyObject *o) { return base_named(o, "numpy.ndarray"); }

bool rl_py_is_array_scalar(PyObject *o) { return base_named(o, "numpy.generic"); }

static bool unsupported(PyObject *o)
{
    PyObject *dtype = PyObject_GetAttrString(o, "dtype");
    PyObject *type = dtype ? PyObject_GetAttrString(dtype, "type") : NULL;
    if (!type) {
        PyErr_Clear();
        PyErr_Format(PyExc_TypeError, "can't convert %s to a tensor: its element type is unknown", Py_TYPE(o)->tp_name);
    } else {
        PyErr_Format(PyExc_TypeError,
                     "can't convert np.ndarray of type %s. The only supported types are: float64, float32, float16, int64, int32, int16, "
                     "int8, "
                     "uint8, and bool.",
                     PyType_Check(type) ? ((PyTypeObject *)type)->tp_name : "unknown");
    }
    Py_XDECREF(dtype);
    Py_XDECREF(type);
    return false;
}

/* One letter of the struct module in native order. */
static bool format_dtype(const char *format, Py_ssize_t itemsize, rl_dtype *out)
{
    static const struct {
        char letter;
        rl_dtype dtype;
    } letters[] = {{'?', RL_BOOL}, {'B', RL_U8}, {'b', RL_I8}, {'h', RL_I16}, {'i', RL_I32},
                   {'l', RL_I64},  {'q', RL_I64}, {'e', RL_F16}, {'f', RL_F32}, {'d', RL_F64}};
    if (!format)
        format = "B";
    if (*format == '@' || *format == '=' || *format == '<')
        format++;
    if (!format[0] || format[1])
        return false;
    for (size_t k = 0; k < sizeof letters / sizeof *letters; k++)
        if (letters[k].letter == *format && rl_dtype_size(letters[k].dtype) == itemsize) {
            *out = letters[k].dtype;
            return true;
        }
    return false;
}

static bool view_dtype(PyObject *o, const Py_buffer *v, rl_dtype *out)
{
    if (v->format && (*v->format == '>' || *v->format == '!') && v->itemsize > 1) {
        PyErr_SetString(PyExc_ValueError, "given numpy array has byte order different from the native byte order. "
                                          "Conversion between byte orders is currently not supported.");
        return false;
    }
    return format_dtype(v->format, v->itemsize, out) || unsupported(o);
}

/* The buffer of an array; NumPy refuses some element types (dates) itself, which becomes PyTorch's sentence. */
static bool array_view(PyObject *o, Py_buffer *v)
{
    if (PyObject_GetBuffer(o, v, PyBUF_RECORDS_RO) == 0)
        return true;
    if (PyErr_ExceptionMatches(PyExc_ValueError) || PyErr_ExceptionMatches(PyExc_BufferError) || PyErr_ExceptionMatches(PyExc_TypeError)) {
        PyErr_Clear();
        unsupported(o);
    }
    return false;
}

bool rl_py_array_dtype(PyObject *o, rl_dtype *out)
{
    Py_buffer v;
    if (!array_view(o, &v))
        return false;
    bool ok = view_dtype(o, &v, out);
    PyBuffer_Release(&v);
    return ok;
}

/* ---- owners: released from any thread, with the GIL ---- */

static void release_object(void *owner, void *data)
{
    (void)data;
    if (!Py_IsInitialized())
        return;
    PyGILState_STATE gil = PyGILState_Ensure();
    Py_DECREF((PyObject *)owner);
    PyGILState_Release(gil);
}

static void release_view(void *owner, void *data)
{
    (void)data;
    if (!Py_IsInitialized())
        return;
    PyGILState_STATE gil = PyGILState_Ensure();
    PyBuffer_Release(owner);
    PyMem_Free(owner);
    PyGILState_Release(gil);
}

/* Shape and strides in elements; *bytes: from the first to the last element. Negative or odd strides are errors in PyTorch's words. */
static bool geometry(const Py_buffer *v, int64_t *shape, int64_t *strides, size_t *bytes)
{
    int64_t last = 0, numel = 1;
    if (v->ndim > RL_MAX_NDIM) {
        PyErr_Format(PyExc_ValueError, "an array of %d dimensions cannot become a tensor: at most %d are supported", v->ndim, RL_MAX_NDIM);
        return false;
    }
    for (int d = 0; d < v->ndim; d++) {
        if (v->strides[d] % v->itemsize) {
            PyErr_SetString(PyExc_ValueError, "given numpy array strides not a multiple of the element byte size. Copy the numpy array to "
                                              "reallocate the memory.");
            return false;
        }
        if (v->strides[d] < 0) {
            PyErr_SetString(PyExc_ValueError, "At least one stride in the given numpy array is negative, and tensors with negative "
                                              "strides are not "
                                              "currently supported. (You can probably work around this by making a copy of your array  "
                                              "with "
                                              "array.copy().) ");
            return false;
        }
        shape[d] = v->shape[d];
        strides[d] = v->strides[d] / v->itemsize;
        numel *= shape[d];
        last += (shape[d] - 1) * strides[d];
    }
    *bytes = numel ? (size_t)(last + 1) * (size_t)v->itemsize : 0;
    return true;
}

static rl_tensor *over(void *data, size_t bytes, bool read_only, void (*release)(void *, void *), void *owner, int ndim,
                       const int64_t *shape, const int64_t *strides, rl_dtype dtype)
{
    rl_storage *s = NULL;
    rl_tensor *t = NULL;
    rl_status st = rl_storage_wrap(data, bytes, read_only, release, owner, &s);
    if (st != RL_OK) {
        release(owner, data);
        rl_py_raise(st);
        return NULL;
    }
    st = rl_tensor_on_storage(s, NULL, ndim, shape, strides, 0, dtype, &t);
    rl_storage_release(s);
    if (st != RL_OK)
        rl_py_raise(st);
    return st == RL_OK ? t : NULL;
}

static int warn_read_only(void)
{
    return PyErr_WarnEx(PyExc_UserWarning,
                        "The given NumPy array is not writable, so the tensor that shares its memory is not either: writing to it raises "
                        "an error. "
                        "You may want to copy the array to protect its data or make it writable before converting it to a tensor.",
                        1);
}

rl_tensor *rl_py_array_tensor(PyObject *array, bool warn)
{
    Py_buffer v;
    rl_dtype dtype;
    int64_t shape[RL_MAX_NDIM], strides[RL_MAX_NDIM];
    size_t bytes;
    if (!array_view(array, &v))
        return NULL;
    bool ok = view_dtype(array, &v, &dtype) && geometry(&v, shape, strides, &bytes), read_only = v.readonly;
    void *data = v.buf;
    int ndim = v.ndim;
    PyBuffer_Release(&v);
    if (!ok || (read_only && warn && warn_read_only() < 0))
        return NULL;
    return over(data, bytes, read_only, release_object, Py_NewRef(array), ndim, shape, strides, dtype);
}

/* Row-major copy of a strided view, negative strides included, element by element along the last axis. */
static void copy_strided(char *dst, const char *src, const Py_buffer *v, int d, Py_ssize_t *at)
{
    if (d == v->ndim) {
        memcpy(dst + *at, src, (size_t)v->itemsize);
        *at += v->itemsize;
        return;
    }
    if (d == v->ndim - 1 && v->strides[d] == v->itemsize) {
        memcpy(dst + *at, src, (size_t)(v->itemsize * v->shape[d]));
        *at += v->itemsize * v->shape[d];
        return;
    }
    for (Py_ssize_t i = 0; i < v->shape[d]; i++)
        copy_strided(dst, src + i * v->strides[d], v, d + 1, at);
}

rl_tensor *rl_py_array_copy(PyObject *array)
{
    Py_buffer v;
    rl_dtype dtype;
    rl_tensor *t = NULL;
    int64_t shape[RL_MAX_NDIM];
    Py_ssize_t at = 0;
    if (!array_view(array, &v))
        return NULL;
    if (v.ndim > RL_MAX_NDIM) {
        PyErr_Format(PyExc_ValueError, "an array of %d dimensions cannot become a tensor: at most %d are supported", v.ndim, RL_MAX_NDIM);
    } else if (view_dtype(array, &v, &dtype)) {
        for (int d = 0; d < v.ndim; d++)
            shape[d] = v.shape[d];
        rl_status st = rl_tensor_empty(v.ndim, shape, dtype, (rl_device){RL_DEVICE_CPU, -1}, &t);
        if (st != RL_OK)
            rl_py_raise(st);
        else if (t->numel)
            copy_strided(rl_tensor_data(t), v.buf, &v, 0, &at);
    }
    PyBuffer_Release(&v);
    return t;
}

/* ---- from_numpy, frombuffer ---- */

static PyObject *from_numpy(PyObject *m, PyObject *array)
{
    if (!rl_py_is_array(array))
        return PyErr_Format(PyExc_TypeError, "expected np.ndarray (got %s)", Py_TYPE(array)->tp_name);
    rl_tensor *t = rl_py_array_tensor(array, true);
    return t ? rl_py_wrap(t) : NULL;
}

/* PyTorch's checks in its order; *n is the number of elements. */
static bool buffer_range(int64_t length, int64_t size, int64_t count, int64_t offset, int64_t *n)
{
    if (length == 0 || count == 0) {
        PyErr_Format(PyExc_ValueError, "both buffer length (%lld) and count (%lld) must not be 0", (long long)length, (long long)count);
        return false;
    }
    if (offset < 0 || offset >= length) {
        PyErr_Format(PyExc_ValueError, "offset (%lld bytes) must be non-negative and no greater than buffer length (%lld bytes) minus 1",
                     (long long)offset, (long long)length);
        return false;
    }
    if (count < 0) {
        if ((length - offset) % size) {
            PyErr_Format(PyExc_ValueError, "buffer length (%lld bytes) after offset (%lld bytes) must be a multiple of element size (%lld)",
                         (long long)length, (long long)offset, (long long)size);
            return false;
        }
        count = (length - offset) / size;
    }
    if (count > (length - offset) / size) {
        PyErr_Format(PyExc_ValueError,
                     "requested buffer length (%lld * %lld bytes) after offset (%lld bytes) must not be greater than actual buffer "
                     "length (%lld bytes)",
                     (long long)count, (long long)size, (long long)offset, (long long)length);
        return false;
    }
    *n = count;
    return true;
}

rl_tensor *rl_py_buffer_tensor(PyObject *buffer, rl_dtype dtype, int64_t count, int64_t offset)
{
    int64_t n, one = 1;
    if (!PyObject_CheckBuffer(buffer)) {
        PyErr_SetString(PyExc_ValueError, "object does not implement Python buffer protocol.");
        return NULL;
    }
    Py_buffer *v = PyMem_Malloc(sizeof *v);
    if (!v) {
        PyErr_NoMemory();
        return NULL;
    }
    if (PyObject_GetBuffer(buffer, v, PyBUF_WRITABLE) < 0) {
        PyErr_Clear();
        if (PyObject_GetBuffer(buffer, v, PyBUF_SIMPLE) < 0) {
            PyMem_Free(v);
            return NULL;
        }
    }
    if (!buffer_range(v->len, rl_dtype_size(dtype), count, offset, &n)) {
        PyBuffer_Release(v);
        PyMem_Free(v);
        return NULL;
    }
    return over((char *)v->buf + offset, (size_t)(n * rl_dtype_size(dtype)), v->readonly, release_view, v, 1, &n, &one, dtype);
}

static PyObject *frombuffer(PyObject *m, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    static const char *const names[] = {"buffer", "dtype", "count", "offset", "requires_grad"};
    PyObject *a[5];
    rl_py_options o;
    int64_t count = -1, offset = 0;
    if (!rl_py_bind("frombuffer", names, 5, 1, 2, args, nargs, kwnames, a) || !rl_py_options_read("frombuffer", &o, a[1], NULL, a[4], NULL))
        return NULL;
    if ((a[2] && !rl_py_to_int64(a[2], &count)) || (a[3] && !rl_py_to_int64(a[3], &offset)))
        return NULL;
    if (o.requires_grad && !rl_dtype_is_float(o.dtype))
        return PyErr_Format(PyExc_RuntimeError, "Can only request gradients for tensors of floating point dtype, got "
                                                "%s", rl_dtype_name(o.dtype));
    rl_tensor *t = rl_py_buffer_tensor(a[0], o.dtype, count, offset);
    if (!t)
        return NULL;
    if (t->storage->read_only &&
        PyErr_WarnEx(PyExc_UserWarning, "The given buffer is not writable, so the tensor that shares its memory is not either: writing "
                                        "to it raises an "
                                        "error. You may want to copy the buffer to protect its data or make it writable before "
                                        "converting it to a tensor.", 1) < 0) {
        rl_tensor_release(t);
        return NULL;
    }
    if (o.requires_grad)
        t->flags |= RL_TF_REQUIRES_GRAD;
    return rl_py_wrap(t);
}

static PyMethodDef functions[] = {
    {"from_numpy", from_numpy, METH_O, "from_numpy(ndarray) -> Tensor\n\nA tensor that shares the memory of a NumPy array."},
    {"frombuffer", (PyCFunction)(void (*)(void))frombuffer, METH_FASTCALL | METH_KEYWORDS,
     "frombuffer(buffer, *, dtype, count=-1, offset=0, requires_grad=False) -> Tensor\n\nA flat tensor over the memory of a buffer."},
    {NULL, NULL, 0, NULL}};

int rl_py_init_array(PyObject *m) { return PyModule_AddFunctions(m, functions); }
