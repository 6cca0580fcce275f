/* dlpack.c: tensors to and from other libraries without a copy (DLPack, versions 0 and 1).
 *
 * The structs are those of the DLPack specification, written out here so that no header is needed. Invariant: a capsule is consumed
 * once (its name changes), and whoever holds the memory calls the producer's deleter exactly once.
 */
#include "convert.h"

typedef struct dl_device { int32_t type, id; } dl_device;
typedef struct dl_type { uint8_t code, bits; uint16_t lanes; } dl_type;
typedef struct dl_tensor {
    void *data;
    dl_device device;
    int32_t ndim;
    dl_type dtype;
    int64_t *shape, *strides; /* elements; strides NULL: row-major */
    uint64_t byte_offset;
} dl_tensor;
typedef struct dl_managed {
    dl_tensor t;
    void *context;
    void (*deleter)(struct dl_managed *);
} dl_managed;
typedef struct dl_versioned {
    uint32_t major, minor;
    void *context;
    void (*deleter)(struct dl_versioned *);
    uint64_t flags;
    dl_tensor t;
} dl_versioned;

enum { DL_CPU = 1, DL_CUDA = 2, DL_CUDA_HOST = 3 };
enum { DL_INT = 0, DL_UINT = 1, DL_FLOAT = 2, DL_BFLOAT = 4, DL_BOOL = 6 };
enum { DL_READ_ONLY = 1, DL_COPIED = 2 };
#define DL_NAME "dltensor"
#define DL_VERSIONED_NAME "dltensor_versioned"

static dl_type type_of(rl_dtype d)
{
    static const uint8_t code[RL_DTYPE_COUNT] = {DL_BOOL, DL_UINT, DL_INT, DL_INT, DL_INT, DL_INT, DL_FLOAT, DL_BFLOAT, DL_FLOAT, DL_FLOAT};
    return (dl_type){code[d], (uint8_t)(8 * rl_dtype_size(d)), 1};
}

static bool dtype_of(dl_type t, rl_dtype *out)
{
    for (int d = 0; d < RL_DTYPE_COUNT; d++) {
        dl_type have = type_of((rl_dtype)d);
        if (have.code == t.code && have.bits == t.bits && t.lanes == 1) {
            *out = (rl_dtype)d;
            return true;
        }
    }
    PyErr_Format(PyExc_RuntimeError, "from_dlpack: no dtype for DLPack code %d with %d bits and %d lanes", t.code, t.bits, t.lanes);
    return false;
}

/* ---- out ---- */

typedef struct dl_export {
    union {
        dl_managed plain;
        dl_versioned versioned;
    };
    rl_tensor *tensor;
    int64_t shape[RL_MAX_NDIM], strides[RL_MAX_NDIM];
} dl_export;

static void export_free(dl_export *e)
{
    rl_tensor_release(e->tensor);
    free(e);
}

/* Consumers may call these on any thread; counts change under the GIL. */
static void delete_any(dl_export *e)
{
    if (!Py_IsInitialized())
        return;
    PyGILState_STATE gil = PyGILState_Ensure();
    export_free(e);
    PyGILState_Release(gil);
}

static void delete_plain(dl_managed *m) { delete_any(m->context); }
static void delete_versioned(dl_versioned *m) { delete_any(m->context); }

static void capsule_free(PyObject *capsule)
{
    if (PyCapsule_IsValid(capsule, DL_NAME)) {
        dl_managed *m = PyCapsule_GetPointer(capsule, DL_NAME);
        m->deleter(m);
    } else if (PyCapsule_IsValid(capsule, DL_VERSIONED_NAME)) {
        dl_versioned *m = PyCapsule_GetPointer(capsule, DL_VERSIONED_NAME);
        m->deleter(m);
    }
}

static void describe(dl_tensor *d, dl_export *e, const rl_tensor *t)
{
    rl_device dev = rl_tensor_device(t);
    for (int k = 0; k < t->ndim; k++) {
        e->shape[k] = t->shape[k];
        e->strides[k] = t->shape[k] == 1 ? 1 : t->strides[k];
    }
    *d = (dl_tensor){.data = t->storage->data ? rl_tensor_data(t) : NULL,
                     .device = {dev.type == RL_DEVICE_CUDA ? DL_CUDA : DL_CPU, dev.index < 0 ? 0 : dev.index},
                     .ndim = t->ndim,
                     .dtype = type_of((rl_dtype)t->dtype),
                     .shape = e->shape,
                     .strides = e->strides};
}

static PyObject *capsule_of(rl_tensor *t, bool versioned, bool copied)
{
    dl_export *e = calloc(1, sizeof *e); /* lives on after this interpreter's allocator may be gone */
    if (!e)
        return PyErr_NoMemory();
    /* An alias of its own: the geometry of t may change while the consumer holds this. */
    rl_status st = rl_tensor_alias(t, &e->tensor);
    if (st != RL_OK) {
        free(e);
        return rl_py_raise(st);
    }
    if (versioned) {
        e->versioned = (dl_versioned){.major = 1, .context = e, .deleter = delete_versioned,
                                      .flags = (t->storage->read_only ? DL_READ_ONLY : 0) | (copied ? DL_COPIED : 0)};
        describe(&e->versioned.t, e, t);
    } else {
        e->plain = (dl_managed){.context = e, .deleter = delete_plain};
        describe(&e->plain.t, e, t);
    }
    PyObject *capsule = PyCapsule_New(e, versioned ? DL_VERSIONED_NAME : DL_NAME, capsule_free);
    if (!capsule)
        export_free(e);
    return capsule;
}

static PyObject *dlpack(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    static const char *const names[] = {"stream", "max_version", "dl_device", "copy"};
    PyObject *a[4];
    rl_tensor *t = rl_py_unwrap(self), *copied = NULL;
    bool copy = false, versioned = false;
    if (!rl_py_bind("__dlpack__", names, 4, 1, 0, args, nargs, kwnames, a) || !rl_py_to_bool("__dlpack__", "copy", a[3], &copy))
        return NULL;
    if (a[0] && a[0] != Py_None && rl_tensor_device(t).type == RL_DEVICE_CPU)
        return PyErr_Format(PyExc_AssertionError, "stream should be None on cpu.");
    if (rl_tensor_requires_grad(t))
        return PyErr_Format(PyExc_BufferError, "Can't export tensors that require gradient, use tensor.detach()");
    if (a[1] && a[1] != Py_None) {
        int major = 0, minor = 0;
        if (!PyArg_ParseTuple(a[1], "ii", &major, &minor))
            return NULL;
        versioned = major >= 1;
    }
    if (t->storage->read_only && !versioned)
        return PyErr_Format(PyExc_BufferError, "a read-only tensor needs a consumer of DLPack 1.0");
    if (copy) {
        rl_status st = rl_clone(t, RL_FORMAT_PRESERVE, &copied);
        if (st != RL_OK)
            return rl_py_raise(st);
    }
    PyObject *capsule = capsule_of(copied ? copied : t, versioned, copy);
    rl_tensor_release(copied);
    return capsule;
}

static PyObject *dlpack_device(PyObject *self, PyObject *ignored)
{
    rl_device dev = rl_tensor_device(rl_py_unwrap(self));
    return Py_BuildValue("(ii)", dev.type == RL_DEVICE_CUDA ? DL_CUDA : DL_CPU, dev.index < 0 ? 0 : dev.index);
}

/* ---- in ---- */

static void release_plain(void *owner, void *data)
{
    dl_managed *m = owner;
    PyGILState_STATE gil = PyGILState_Ensure();
    if (m->deleter)
        m->deleter(m);
    PyGILState_Release(gil);
}

static void release_versioned(void *owner, void *data)
{
    dl_versioned *m = owner;
    PyGILState_STATE gil = PyGILState_Ensure();
    if (m->deleter)
        m->deleter(m);
    PyGILState_Release(gil);
}

/* Checks everything that the producer says; *bytes: from the first to the last element. */
static bool dl_geometry(const dl_tensor *d, rl_dtype *dtype, int64_t *strides, size_t *bytes)
{
    int64_t numel, last = 0;
    if (d->device.type != DL_CPU && d->device.type != DL_CUDA_HOST) {
        PyErr_Format(PyExc_BufferError, "from_dlpack: memory of DLPack device type %d cannot be used, only that of the "
                                        "CPU", d->device.type);
        return false;
    }
    if (d->ndim < 0 || d->ndim > RL_MAX_NDIM || (d->ndim && !d->shape)) {
        PyErr_Format(PyExc_RuntimeError, "from_dlpack: %d dimensions", d->ndim);
        return false;
    }
    rl_status st = rl_shape_numel(d->ndim, d->shape, &numel);
    if (st == RL_OK && !d->strides)
        st = rl_shape_contiguous_strides(d->ndim, d->shape, strides);
    if (st != RL_OK) {
        rl_py_raise(st);
        return false;
    }
    for (int k = 0; k < d->ndim; k++) {
        int64_t step;
        if (d->strides)
            strides[k] = d->strides[k];
        if (numel && strides[k] < 0 && d->shape[k] > 1) {
            PyErr_SetString(PyExc_BufferError, "from_dlpack: negative strides are not supported");
            return false;
        }
        if (numel == 0 || d->shape[k] == 1)
            strides[k] = strides[k] < 0 ? 0 : strides[k];
        if (numel && (__builtin_mul_overflow(d->shape[k] - 1, strides[k], &step) || __builtin_add_overflow(last, step, &last) ||
                      last > INT64_MAX / 16)) {
            PyErr_SetString(PyExc_BufferError, "from_dlpack: sizes and strides overflow");
            return false;
        }
    }
    *bytes = 0;
    if (!dtype_of(d->dtype, dtype))
        return false;
    if (numel)
        *bytes = (size_t)(last + 1) * (size_t)rl_dtype_size(*dtype);
    return true;
}

static rl_tensor *consume(PyObject *capsule)
{
    bool versioned = PyCapsule_IsValid(capsule, DL_VERSIONED_NAME);
    if (!versioned && !PyCapsule_IsValid(capsule, DL_NAME)) {
        PyErr_SetString(PyExc_RuntimeError, "from_dlpack received an invalid capsule. Note that DLTensor capsules can be consumed only "
                                            "once, so you might "
                                            "have already constructed a tensor from it once.");
        return NULL;
    }
    void *m = PyCapsule_GetPointer(capsule, versioned ? DL_VERSIONED_NAME : DL_NAME);
    if (versioned && ((dl_versioned *)m)->major != 1) {
        PyErr_Format(PyExc_BufferError, "from_dlpack: DLPack version %u is not supported, only 1", ((dl_versioned *)m)->major);
        return NULL;
    }
    const dl_tensor *d = versioned ? &((dl_versioned *)m)->t : &((dl_managed *)m)->t;
    bool read_only = versioned && (((dl_versioned *)m)->flags & DL_READ_ONLY);
    int64_t shape[RL_MAX_NDIM], strides[RL_MAX_NDIM];
    rl_dtype dtype;
    size_t bytes;
    rl_storage *s = NULL;
    rl_tensor *t = NULL;
    if (!dl_geometry(d, &dtype, strides, &bytes))
        return NULL;
    int ndim = d->ndim;
    memcpy(shape, d->shape, (size_t)ndim * sizeof *shape);
    if (PyCapsule_SetName(capsule, versioned ? "used_" DL_VERSIONED_NAME : "used_" DL_NAME) < 0)
        return NULL;
    void (*release)(void *, void *) = versioned ? release_versioned : release_plain;
    rl_status st = rl_storage_wrap(d->data ? (char *)d->data + d->byte_offset : NULL, bytes, read_only, release, m, &s);
    if (st != RL_OK)
        release(m, NULL);
    else
        st = rl_tensor_on_storage(s, NULL, ndim, shape, strides, 0, dtype, &t);
    rl_storage_release(s);
    if (st != RL_OK)
        rl_py_raise(st);
    return st == RL_OK ? t : NULL;
}

/* The capsule of an object: asked with a version first, as producers before DLPack 1.0 do not know the keyword. */
static PyObject *capsule_from(PyObject *o)
{
    PyObject *method = PyObject_GetAttrString(o, "__dlpack__");
    if (!method)
        return NULL;
    PyObject *kw = Py_BuildValue("{s:(ii)}", "max_version", 1, 0);
    PyObject *capsule = kw ? PyObject_Call(method, rl_st->empty_tuple, kw) : NULL;
    if (!capsule && PyErr_ExceptionMatches(PyExc_TypeError)) {
        PyErr_Clear();
        capsule = PyObject_CallNoArgs(method);
    }
    Py_XDECREF(kw);
    Py_DECREF(method);
    return capsule;
}

rl_tensor *rl_py_from_dlpack(PyObject *o, bool copy, PyObject *device)
{
    PyObject *capsule = PyCapsule_CheckExact(o) ? Py_NewRef(o) : capsule_from(o);
    rl_tensor *t = capsule ? consume(capsule) : NULL, *out = NULL;
    rl_device dev = {RL_DEVICE_CPU, -1};
    Py_XDECREF(capsule);
    if (!t)
        return NULL;
    if (device && device != Py_None && !rl_py_to_device(device, &dev)) {
        rl_tensor_release(t);
        return NULL;
    }
    if (!copy && rl_device_same(dev, rl_tensor_device(t)))
        return t;
    rl_status st = rl_to(t, (rl_dtype)t->dtype, dev, copy, RL_FORMAT_PRESERVE, &out);
    rl_tensor_release(t);
    if (st != RL_OK)
        rl_py_raise(st);
    return st == RL_OK ? out : NULL;
}

static PyObject *from_dlpack(PyObject *m, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    static const char *const names[] = {"ext_tensor", "device", "copy"};
    PyObject *a[3];
    bool copy = false;
    if (!rl_py_bind("from_dlpack", names, 3, 1, 1, args, nargs, kwnames, a) || !rl_py_to_bool("from_dlpack", "copy", a[2], &copy))
        return NULL;
    rl_tensor *t = rl_py_from_dlpack(a[0], copy, a[1]);
    return t ? rl_py_wrap(t) : NULL;
}

static PyObject *to_dlpack(PyObject *m, PyObject *o)
{
    if (!rl_py_is_tensor(o))
        return PyErr_Format(PyExc_TypeError, "to_dlpack(): argument 'tensor' must be Tensor, not %s", rl_py_type_text(o));
    rl_tensor *t = rl_py_unwrap(o);
    if (rl_tensor_requires_grad(t))
        return PyErr_Format(PyExc_BufferError, "Can't export tensors that require gradient, use tensor.detach()");
    return capsule_of(t, false, false);
}

#define FAST(f) (PyCFunction)(void (*)(void)) f, METH_FASTCALL | METH_KEYWORDS
static PyMethodDef functions[] = {
    {"from_dlpack", FAST(from_dlpack), "from_dlpack(ext_tensor, *, device=None, copy=None) -> Tensor\n\nA tensor over another library's "
                                       "memory."},
    {"to_dlpack", to_dlpack, METH_O, "to_dlpack(tensor) -> capsule"},
    {NULL, NULL, 0, NULL}};
static PyMethodDef methods[] = {
    {"__dlpack__", FAST(dlpack), NULL}, {"__dlpack_device__", dlpack_device, METH_NOARGS, NULL}, {NULL, NULL, 0, NULL}};

int rl_py_init_dlpack(PyObject *m)
{
    return PyModule_AddFunctions(m, functions) < 0 || rl_py_add_methods(rl_st->Tensor, methods) < 0 ? -1 : 0;
}
