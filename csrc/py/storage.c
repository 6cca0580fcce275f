/* storage.c: UntypedStorage, Tensor.set_, and storages that other processes map.
 *
 * Invariant: one wrapper for one storage while it lives. A shared storage lies in an unnamed memory file (memfd): it needs no place in
 * /dev/shm and goes when the last process lets go of it. share_memory_ moves the bytes there and swaps the pointer, so every tensor over
 * the storage is shared from then on.
 */
#include "convert.h"

#include <structmember.h>

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct storage_object {
    PyObject_HEAD
    rl_storage *s;
    PyObject *weakrefs;
} storage_object;

typedef struct mapping {
    int fd; /* -1: a mapped file, not to be handed on */
    size_t bytes;
} mapping;

static rl_storage *storage_of(PyObject *self) { return ((storage_object *)self)->s; }

/* Takes the reference. */
static PyObject *wrap(rl_storage *s)
{
    if (s->py) {
        rl_storage_release(s);
        return Py_NewRef((PyObject *)s->py);
    }
    storage_object *o = (storage_object *)rl_st->Storage->tp_alloc(rl_st->Storage, 0);
    if (!o) {
        rl_storage_release(s);
        return NULL;
    }
    o->s = s;
    s->py = o;
    return (PyObject *)o;
}

static void storage_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    storage_object *o = (storage_object *)self;
    if (o->weakrefs)
        PyObject_ClearWeakRefs(self);
    if (o->s && o->s->py == self)
        o->s->py = NULL;
    rl_storage_release(o->s);
    type->tp_free(self);
    Py_DECREF(type);
}

rl_tensor *rl_py_storage_tensor(PyObject *storage, rl_dtype dtype)
{
    rl_storage *s = storage_of(storage);
    int64_t n = (int64_t)(s->bytes / (size_t)rl_dtype_size(dtype)), one = 1;
    rl_tensor *t = NULL;
    rl_status st = rl_tensor_on_storage(s, NULL, 1, &n, &one, 0, dtype, &t);
    if (st != RL_OK)
        rl_py_raise(st);
    return st == RL_OK ? t : NULL;
}

/* ---- shared memory ---- */

static void unmap(void *owner, void *data)
{
    mapping *m = owner;
    if (data)
        munmap(data, m->bytes);
    if (m->fd >= 0)
        close(m->fd);
    free(m);
}

static bool is_shared(const rl_storage *s) { return s->release == unmap && ((mapping *)s->owner)->fd >= 0; }

static void *raise_os(const char *what)
{
    PyErr_SetFromErrno(PyExc_OSError);
    PyObject *type, *value, *tb;
    PyErr_Fetch(&type, &value, &tb);
    PyErr_Format(PyExc_RuntimeError, "%s: %S", what, value);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(tb);
    return NULL;
}

/* Takes over fd. *data is the mapping of `bytes` bytes of it, NULL for none. */
static mapping *map_fd(int fd, size_t bytes, int protection, int flags, void **data)
{
    mapping *m = malloc(sizeof *m);
    *data = NULL;
    if (m && bytes)
        *data = mmap(NULL, bytes, protection, flags, fd, 0);
    if (m && *data != MAP_FAILED) {
        *m = (mapping){fd, bytes};
        return m;
    }
    if (!m)
        PyErr_NoMemory();
    else
        raise_os("shared memory could not be mapped");
    close(fd);
    free(m);
    return NULL;
}

static mapping *new_memory_file(size_t bytes, void **data)
{
    int fd = memfd_create("rushlight", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)bytes) < 0) {
        raise_os("shared memory could not be made");
        if (fd >= 0)
            close(fd);
        return NULL;
    }
    return map_fd(fd, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, data);
}

/* The bytes of a CPU storage move into shared memory. */
static bool share(rl_storage *s)
{
    void *data;
    if (is_shared(s))
        return true;
    if (s->device.type != RL_DEVICE_CPU) {
        PyErr_Format(PyExc_RuntimeError, "share_memory_: a storage on %s cannot be shared between processes", rl_device_text(s->device));
        return false;
    }
    mapping *m = new_memory_file(s->bytes, &data);
    if (!m)
        return false;
    if (s->bytes)
        memcpy(data, s->data, s->bytes);
    rl_storage_replace(s, data, unmap, m);
    return true;
}

static PyObject *share_memory_(PyObject *self, PyObject *ignored) { return share(storage_of(self)) ? Py_NewRef(self) : NULL; }

static PyObject *is_shared_method(PyObject *self, PyObject *ignored)
{
    return PyBool_FromLong(is_shared(storage_of(self)) || storage_of(self)->device.type == RL_DEVICE_CUDA);
}

/* _share_fd() -> (fd, nbytes): the storage's own descriptor, which the caller must duplicate to keep. */
static PyObject *share_fd(PyObject *self, PyObject *ignored)
{
    rl_storage *s = storage_of(self);
    return share(s) ? Py_BuildValue("(in)", ((mapping *)s->owner)->fd, (Py_ssize_t)s->bytes) : NULL;
}

static PyObject *over_mapping(mapping *m, void *data, size_t bytes, bool read_only)
{
    rl_storage *s = NULL;
    rl_status st = rl_storage_wrap(data, bytes, read_only, unmap, m, &s);
    if (st == RL_OK)
        return wrap(s);
    unmap(m, data);
    return rl_py_raise(st);
}

/* _from_fd(fd, nbytes): takes over the descriptor. */
static PyObject *from_fd(PyObject *ignored, PyObject *args)
{
    int fd;
    Py_ssize_t bytes;
    struct stat st;
    void *data;
    if (!PyArg_ParseTuple(args, "in:_from_fd", &fd, &bytes))
        return NULL;
    if (bytes < 0 || fstat(fd, &st) < 0 || st.st_size < bytes)
        return PyErr_Format(PyExc_ValueError, "_from_fd: descriptor %d does not hold %zd bytes", fd, bytes);
    mapping *m = map_fd(fd, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_SHARED, &data);
    return m ? over_mapping(m, data, (size_t)bytes, false) : NULL;
}

/* from_file(filename, shared=False, nbytes=0): a mapped file; unshared changes stay in this process. */
static PyObject *from_file(PyObject *ignored, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"filename", "shared", "nbytes", NULL};
    PyObject *name = NULL;
    int shared = 0;
    Py_ssize_t bytes = 0;
    struct stat st;
    void *data;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O&|pn:from_file", names, PyUnicode_FSConverter, &name, &shared, &bytes))
        return NULL;
    int fd = open(PyBytes_AS_STRING(name), (shared ? O_RDWR | O_CREAT : O_RDONLY) | O_CLOEXEC, 0600);
    bool ok = fd >= 0 && fstat(fd, &st) == 0 && (!shared || st.st_size >= bytes || ftruncate(fd, bytes) == 0);
    if (!ok)
        PyErr_SetFromErrnoWithFilenameObject(PyExc_OSError, name);
    else if (bytes < 0 || (!shared && bytes > st.st_size))
        PyErr_Format(PyExc_ValueError, "from_file: %zd bytes asked for, the file holds %lld", bytes, (long long)st.st_size);
    Py_DECREF(name);
    if (PyErr_Occurred()) {
        if (fd >= 0)
            close(fd);
        return NULL;
    }
    mapping *m = map_fd(fd, (size_t)bytes, PROT_READ | PROT_WRITE, shared ? MAP_SHARED : MAP_PRIVATE, &data);
    if (!m)
        return NULL;
    close(fd);
    m->fd = -1;
    return over_mapping(m, data, (size_t)bytes, false);
}

/* ---- bytes ---- */

static PyObject *storage_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"size", "device", NULL};
    PyObject *size = NULL, *device_o = NULL;
    rl_device device = {RL_DEVICE_CPU, -1};
    rl_storage *s = NULL;
    int64_t n = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|OO:UntypedStorage", names, &size, &device_o))
        return NULL;
    if (device_o && device_o != Py_None && !rl_py_to_device(device_o, &device))
        return NULL;
    bool sequence = size && !PyIndex_Check(size);
    if (sequence) {
        rl_tensor *t = rl_py_sequence_tensor(size, RL_U8);
        if (!t)
            return NULL;
        s = rl_storage_retain(t->storage);
        rl_tensor_release(t);
        return wrap(s);
    }
    if (size && !rl_py_to_int64(size, &n))
        return NULL;
    if (n < 0)
        return PyErr_Format(PyExc_RuntimeError, "UntypedStorage: a size of %lld bytes is negative", (long long)n);
    rl_status st = rl_storage_new(device, (size_t)n, &s);
    return st == RL_OK ? wrap(s) : rl_py_raise(st);
}

static PyObject *nbytes(PyObject *self, PyObject *ignored) { return PyLong_FromSize_t(storage_of(self)->bytes); }
static Py_ssize_t length(PyObject *self) { return (Py_ssize_t)storage_of(self)->bytes; }
static PyObject *data_ptr(PyObject *self, PyObject *ignored) { return PyLong_FromVoidPtr(storage_of(self)->data); }
static PyObject *element_size(PyObject *self, PyObject *ignored) { return PyLong_FromLong(1); }
static PyObject *is_pinned(PyObject *self, PyObject *ignored) { return PyBool_FromLong(storage_of(self)->pinned); }
static PyObject *device(PyObject *self, void *ignored) { return rl_py_device(storage_of(self)->device); }
static PyObject *cdata(PyObject *self, void *ignored) { return PyLong_FromVoidPtr(storage_of(self)); }

static PyObject *repr(PyObject *self)
{
    return PyUnicode_FromFormat("<%s.UntypedStorage of %zu bytes on %s>", rl_py_prefix(), storage_of(self)->bytes,
                                rl_device_text(storage_of(self)->device));
}

/* A flat uint8 tensor over the storage: how Python code reads and writes bytes. */
static PyObject *as_bytes(PyObject *self, PyObject *ignored)
{
    rl_tensor *t = rl_py_storage_tensor(self, RL_U8);
    return t ? rl_py_wrap(t) : NULL;
}

static PyObject *resize_(PyObject *self, PyObject *o)
{
    int64_t n;
    if (!rl_py_to_int64(o, &n))
        return NULL;
    if (n < 0)
        return PyErr_Format(PyExc_RuntimeError, "resize_: a size of %lld bytes is negative", (long long)n);
    rl_status st = rl_storage_resize(storage_of(self), (size_t)n);
    return st == RL_OK ? Py_NewRef(self) : rl_py_raise(st);
}

static PyMethodDef methods[] = {{"nbytes", nbytes, METH_NOARGS, "nbytes() -> int"},
                                {"size", nbytes, METH_NOARGS, "size() -> int\n\nIn bytes."},
                                {"data_ptr", data_ptr, METH_NOARGS, NULL},
                                {"element_size", element_size, METH_NOARGS, NULL},
                                {"is_pinned", is_pinned, METH_NOARGS, NULL},
                                {"is_shared", is_shared_method, METH_NOARGS, "is_shared() -> bool\n\nWhether other processes can map it."},
                                {"share_memory_", share_memory_, METH_NOARGS, "share_memory_() -> self\n\nMoves the bytes into memory "
                                                                              "that other processes can map."},
                                {"resize_", resize_, METH_O, "resize_(nbytes)\n\nKeeps the first bytes. RuntimeError on foreign memory."},
                                {"_bytes", as_bytes, METH_NOARGS, NULL},
                                {"_share_fd", share_fd, METH_NOARGS, NULL},
                                {"_from_fd", from_fd, METH_VARARGS | METH_STATIC, NULL},
                                {"from_file", (PyCFunction)(void (*)(void))from_file, METH_VARARGS | METH_KEYWORDS | METH_STATIC,
                                 "from_file(filename, shared=False, nbytes=0) -> UntypedStorage"},
                                {NULL, NULL, 0, NULL}};
static PyGetSetDef getset[] = {{"device", device, NULL, NULL, NULL}, {"_cdata", cdata, NULL, NULL, NULL}, {NULL, NULL, NULL, NULL, NULL}};
static PyMemberDef members[] = {{"__weaklistoffset__", T_PYSSIZET, offsetof(storage_object, weakrefs), READONLY, NULL},
                                {NULL, 0, 0, 0, NULL}};
static PyType_Slot slots[] = {{Py_tp_new, storage_new}, {Py_tp_dealloc, storage_dealloc}, {Py_tp_methods, methods}, {Py_tp_getset, getset},
                              {Py_tp_members, members}, {Py_tp_repr, repr},               {Py_sq_length, length},   {0, NULL}};
static PyType_Spec spec = {
    .name = "rushlight.UntypedStorage", .basicsize = sizeof(storage_object), .flags = Py_TPFLAGS_DEFAULT, .slots = slots};

/* ---- of tensors ---- */

static PyObject *untyped_storage(PyObject *self, PyObject *ignored) { return wrap(rl_storage_retain(rl_py_unwrap(self)->storage)); }

static PyObject *tensor_share_memory_(PyObject *self, PyObject *ignored)
{
    return share(rl_py_unwrap(self)->storage) ? Py_NewRef(self) : NULL;
}

static PyObject *tensor_is_shared(PyObject *self, PyObject *ignored)
{
    const rl_storage *s = rl_py_unwrap(self)->storage;
    return PyBool_FromLong(is_shared(s) || s->device.type == RL_DEVICE_CUDA);
}

/* Storage and geometry at once: whatever fails leaves t as it was. */
static rl_status set_to(rl_tensor *t, rl_storage *s, int ndim, const int64_t *shape, const int64_t *strides, int64_t offset)
{
    int64_t zero = 0, one = 1;
    rl_tensor *probe = NULL;
    RL_RETURN(rl_tensor_on_storage(s, NULL, ndim, shape, strides, offset, (rl_dtype)t->dtype, &probe)); /* checks the span */
    rl_tensor_release(probe);
    RL_RETURN(rl_tensor_set_geometry(t, 1, &zero, &one, 0));
    RL_RETURN(rl_tensor_set_storage(t, s));
    RL_RETURN(rl_tensor_set_geometry(t, ndim, shape, strides, offset));
    rl_tensor_bump(t);
    return RL_OK;
}

static bool set_geometry_args(PyObject *const *a, int *ndim, int64_t *shape, int64_t *strides, int64_t *offset)
{
    int nstrides = 0;
    if (a[1] && !rl_py_to_int64(a[1], offset))
        return false;
    if (!rl_py_to_ints(a[2], shape, RL_MAX_NDIM, ndim))
        return false;
    if (!a[3] || a[3] == Py_None) {
        rl_status st = rl_shape_contiguous_strides(*ndim, shape, strides);
        if (st != RL_OK)
            rl_py_raise(st);
        return st == RL_OK;
    }
    if (!rl_py_to_ints(a[3], strides, RL_MAX_NDIM, &nstrides))
        return false;
    if (nstrides != *ndim)
        PyErr_Format(PyExc_RuntimeError, "set_: %d sizes and %d strides", *ndim, nstrides);
    return nstrides == *ndim;
}

/* set_(), set_(tensor), set_(storage), set_(storage, offset, size, stride=None). */
static PyObject *set_(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    static const char *const names[] = {"source", "storage_offset", "size", "stride"};
    rl_tensor *t = rl_py_unwrap(self), *source = NULL;
    PyObject *a[4];
    int ndim = 1;
    int64_t shape[RL_MAX_NDIM], strides[RL_MAX_NDIM], offset = 0;
    if (!rl_py_bind("set_", names, 4, 4, 0, args, nargs, kwnames, a))
        return NULL;
    if (t->grad_fn || (t->meta && t->meta->base))
        return PyErr_Format(PyExc_RuntimeError, "set_: a tensor with a history cannot get another storage: use detach() first");
    rl_storage *s = NULL;
    if (a[0] && rl_py_is_tensor(a[0])) {
        source = rl_py_unwrap(a[0]);
        s = rl_storage_retain(source->storage);
    } else if (a[0] && PyObject_TypeCheck(a[0], rl_st->Storage)) {
        s = rl_storage_retain(storage_of(a[0]));
    } else if (a[0]) {
        PyObject *untyped = PyObject_GetAttrString(a[0], "_untyped_storage");
        if (!untyped || !PyObject_TypeCheck(untyped, rl_st->Storage)) {
            Py_XDECREF(untyped);
            return PyErr_Format(PyExc_TypeError, "set_(): argument 'source' must be Tensor or Storage, not %s", rl_py_type_text(a[0]));
        }
        s = rl_storage_retain(storage_of(untyped));
        Py_DECREF(untyped);
    } else {
        rl_status st = rl_storage_new(rl_tensor_device(t), 0, &s);
        if (st != RL_OK)
            return rl_py_raise(st);
    }
    bool ok = true;
    if (source && source->dtype != t->dtype) {
        PyErr_Format(PyExc_RuntimeError, "set_: a %s tensor cannot take the storage of a %s tensor", rl_dtype_name((rl_dtype)t->dtype),
                     rl_dtype_name((rl_dtype)source->dtype));
        ok = false;
    } else if (a[2]) {
        ok = set_geometry_args(a, &ndim, shape, strides, &offset);
    } else if (source) {
        ndim = source->ndim;
        offset = source->offset;
        memcpy(shape, source->shape, (size_t)ndim * sizeof *shape);
        memcpy(strides, source->strides, (size_t)ndim * sizeof *strides);
    } else {
        shape[0] = (int64_t)(s->bytes / (size_t)rl_tensor_itemsize(t));
        strides[0] = 1;
    }
    rl_status st = ok ? set_to(t, s, ndim, shape, strides, offset) : RL_OK;
    rl_storage_release(s);
    if (st != RL_OK)
        return rl_py_raise(st);
    return ok ? Py_NewRef(self) : NULL;
}

static PyMethodDef tensor_methods[] = {
    {"untyped_storage", untyped_storage, METH_NOARGS, "untyped_storage() -> UntypedStorage\n\nThe bytes that the tensor is a view of."},
    {"share_memory_", tensor_share_memory_, METH_NOARGS, "share_memory_() -> self\n\nMoves the tensor's storage into memory that other "
                                                         "processes can map."},
    {"is_shared", tensor_is_shared, METH_NOARGS, "is_shared() -> bool"},
    {"set_", (PyCFunction)(void (*)(void))set_, METH_FASTCALL | METH_KEYWORDS, "set_(source=None, storage_offset=0, size=None, "
                                                                               "stride=None) -> self"},
    {NULL, NULL, 0, NULL}};

int rl_py_init_storage(PyObject *m)
{
    rl_st->Storage = (PyTypeObject *)PyType_FromSpec(&spec);
    if (!rl_st->Storage || PyModule_AddObjectRef(m, "UntypedStorage", (PyObject *)rl_st->Storage) < 0)
        return -1;
    return rl_py_add_methods(rl_st->Tensor, tensor_methods);
}
