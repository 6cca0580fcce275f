/* convert.c: Python values as tensors: tensor, as_tensor, asarray, scalar_tensor, new_tensor, and how their arguments are read.
 *
 * Two passes over nested sequences: the shape is that of the first items at each depth, the dtype that of all numbers together; the
 * second pass writes and finds ragged rows. Items may run code (__float__, __index__) that changes the very lists being read, so
 * lengths are read anew at each step and every item is held while it is used.
 */
#include "convert.h"

#include <math.h>

static const rl_device cpu = {RL_DEVICE_CPU, -1};

/* ---- arguments ---- */

static bool bind_keyword(const char *fn, const char *const *names, int n, PyObject *key, PyObject *value, PyObject **out)
{
    for (int k = 0; k < n; k++) {
        if (PyUnicode_CompareWithASCIIString(key, names[k]) != 0)
            continue;
        if (out[k]) {
            PyErr_Format(PyExc_TypeError, "%s() got multiple values for argument '%s'", fn, names[k]);
            return false;
        }
        out[k] = value;
        return true;
    }
    PyErr_Format(PyExc_TypeError, "%s() got an unexpected keyword argument '%U'", fn, key);
    return false;
}

bool rl_py_bind(const char *fn, const char *const *names, int n, int npos, int nrequired, PyObject *const *args, Py_ssize_t nargs,
                PyObject *kwnames, PyObject **out)
{
    Py_ssize_t nkw = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
    if (nargs > npos) {
        PyErr_Format(PyExc_TypeError, "%s() takes %d positional argument%s but %zd were given", fn, npos, npos == 1 ? "" : "s", nargs);
        return false;
    }
    for (int k = 0; k < n; k++)
        out[k] = k < nargs ? args[k] : NULL;
    for (Py_ssize_t k = 0; k < nkw; k++)
        if (!bind_keyword(fn, names, n, PyTuple_GET_ITEM(kwnames, k), args[nargs + k], out))
            return false;
    for (int k = 0; k < nrequired; k++)
        if (!out[k]) {
            PyErr_Format(PyExc_TypeError, "%s() missing 1 required positional arguments: \"%s\"", fn, names[k]);
            return false;
        }
    return true;
}

bool rl_py_to_bool(const char *fn, const char *name, PyObject *o, bool *out)
{
    if (!o || o == Py_None)
        return true;
    if (!PyBool_Check(o)) {
        PyErr_Format(PyExc_TypeError, "%s(): argument '%s' must be bool, not %s", fn, name, rl_py_type_text(o));
        return false;
    }
    *out = o == Py_True;
    return true;
}

bool rl_py_options_read(const char *fn, rl_py_options *o, PyObject *dtype, PyObject *device, PyObject *requires_grad, PyObject *pin_memory)
{
    *o = (rl_py_options){.dtype = RL_DTYPE_NONE, .device = cpu};
    if (dtype && dtype != Py_None) {
        if (Py_TYPE(dtype) == rl_st->Dtype) {
            o->dtype = ((rl_py_dtype_object *)dtype)->dtype;
        } else if (dtype == (PyObject *)&PyFloat_Type || dtype == (PyObject *)&PyLong_Type || dtype == (PyObject *)&PyBool_Type) {
            if (!rl_py_to_dtype(dtype, &o->dtype))
                return false;
        } else {
            PyErr_Format(PyExc_TypeError, "%s(): argument 'dtype' must be %s.dtype, not %s", fn, rl_py_prefix(), rl_py_type_text(dtype));
            return false;
        }
    }
    if (device && device != Py_None) {
        o->has_device = true;
        if (!rl_py_to_device(device, &o->device))
            return false;
    }
    return rl_py_to_bool(fn, "requires_grad", requires_grad, &o->requires_grad) &&
           rl_py_to_bool(fn, "pin_memory", pin_memory, &o->pin_memory);
}

rl_device rl_py_default_device(void)
{
    const rl_state *s = rl_state_get();
    return s->has_default_device ? s->default_device : cpu;
}

int rl_py_add_methods(PyTypeObject *type, PyMethodDef *methods)
{
    for (; methods->ml_name; methods++) {
        PyObject *d = methods->ml_flags & METH_STATIC  ? PyCFunction_New(methods, NULL)
                      : methods->ml_flags & METH_CLASS ? PyDescr_NewClassMethod(type, methods)
                                                       : PyDescr_NewMethod(type, methods);
        if (d && methods->ml_flags & METH_STATIC)
            Py_SETREF(d, PyStaticMethod_New(d));
        if (!d || PyObject_SetAttrString((PyObject *)type, methods->ml_name, d) < 0) {
            Py_XDECREF(d);
            return -1;
        }
        Py_DECREF(d);
    }
    return 0;
}

/* ---- what a nested sequence holds ---- */

static bool is_text(PyObject *o) { return PyUnicode_Check(o) || PyBytes_Check(o); }

static bool invalid_data(PyObject *o)
{
    PyErr_Format(PyExc_TypeError, "new(): invalid data type '%s'", Py_TYPE(o)->tp_name);
    return false;
}

/* The shape is read off the first items; an array's own shape ends it. */
static bool data_shape(PyObject *data, int *ndim, int64_t *shape)
{
    PyObject *o = Py_NewRef(data);
    *ndim = 0;
    while (PySequence_Check(o) && !rl_py_is_tensor(o) && !rl_py_is_array_scalar(o)) {
        if (*ndim == RL_MAX_NDIM || PyUnicode_Check(o)) {
            PyErr_Format(PyExc_ValueError, "too many dimensions '%s'", Py_TYPE(o)->tp_name);
            break;
        }
        Py_ssize_t n = PySequence_Size(o);
        if (n < 0) {
            /* a 0-dim array is a sequence without a length */
            if (rl_py_is_array(o))
                PyErr_Clear();
            break;
        }
        shape[(*ndim)++] = n;
        if (n == 0)
            break;
        Py_SETREF(o, PySequence_GetItem(o, 0));
        if (!o)
            return false;
    }
    Py_DECREF(o);
    return !PyErr_Occurred();
}

static void promote(rl_dtype *acc, rl_dtype d) { *acc = *acc == RL_DTYPE_NONE ? d : rl_dtype_promote(*acc, d); }

static bool infer(PyObject *o, int depth, rl_dtype *acc);

static bool infer_items(PyObject *o, int depth, rl_dtype *acc)
{
    PyObject *fast = PySequence_Fast(o, "not a sequence");
    bool ok = fast != NULL;
    if (ok && depth > RL_MAX_NDIM) {
        PyErr_Format(PyExc_ValueError, "too many dimensions '%s'", Py_TYPE(o)->tp_name);
        ok = false;
    }
    for (Py_ssize_t i = 0; ok && i < PySequence_Fast_GET_SIZE(fast); i++) {
        PyObject *item = PySequence_Fast_GET_ITEM(fast, i);
        if (PyFloat_CheckExact(item)) {
            promote(acc, rl_default_dtype());
            continue;
        }
        Py_INCREF(item);
        ok = infer(item, depth + 1, acc);
        Py_DECREF(item);
    }
    if (ok && PySequence_Fast_GET_SIZE(fast) == 0)
        promote(acc, rl_default_dtype());
    Py_XDECREF(fast);
    return ok;
}

static bool infer(PyObject *o, int depth, rl_dtype *acc)
{
    rl_dtype d;
    if (PyFloat_CheckExact(o)) {
        d = rl_default_dtype();
    } else if (PyBool_Check(o)) {
        d = RL_BOOL;
    } else if (PyLong_Check(o)) {
        d = RL_I64;
    } else if (rl_py_is_tensor(o)) {
        d = (rl_dtype)rl_py_unwrap(o)->dtype;
    } else if (rl_py_is_array(o) || rl_py_is_array_scalar(o)) {
        if (!rl_py_array_dtype(o, &d))
            return false;
    } else if (PyFloat_Check(o)) {
        d = rl_default_dtype();
    } else if (PyComplex_Check(o)) {
        PyErr_Format(PyExc_NotImplementedError, "complex numbers are not supported: no dtype holds %R", o);
        return false;
    } else if (is_text(o)) {
        return invalid_data(o);
    } else if (PySequence_Check(o)) {
        return infer_items(o, depth, acc);
    } else {
        PyErr_Format(PyExc_RuntimeError, "Could not infer dtype of %s", Py_TYPE(o)->tp_name);
        return false;
    }
    promote(acc, d);
    return true;
}

/* ---- writing ---- */

/* May a number be stored as `d`? As PyTorch: unsigned types take negative numbers that wrap, floats round to infinity. */
static bool fits(rl_dtype d, rl_scalar s)
{
    static const double low[] = {0, -255, -128, -32768, -2147483648.0, -9223372036854775808.0};
    static const double high[] = {0, 255, 127, 32767, 2147483647.0, 9223372036854775808.0};
    if (d == RL_BOOL || d >= RL_F16)
        return true;
    if (s.kind != RL_CAT_FLOAT)
        return d == RL_I64 || ((double)s.i >= low[d] && (double)s.i <= high[d]);
    double v = trunc(s.d);
    return v >= low[d] && (d == RL_I64 ? v < high[d] : v <= high[d]); /* false for NaN */
}

static bool store(void *p, rl_dtype d, rl_scalar s)
{
    if (!fits(d, s)) {
        PyErr_Format(PyExc_RuntimeError, "value cannot be converted to type %s without overflow", rl_dtype_name(d));
        return false;
    }
    if (d != RL_BOOL && d < RL_F16 && s.kind == RL_CAT_FLOAT)
        s = rl_scalar_int(rl_scalar_to_int64(s));
    rl_element_store(p, d, s);
    return true;
}

static bool int_scalar(PyObject *o, rl_dtype d, rl_scalar *s)
{
    int overflow = 0;
    if (rl_dtype_is_float(d)) {
        *s = rl_scalar_float(PyLong_AsDouble(o));
        return !(s->d == -1.0 && PyErr_Occurred());
    }
    *s = rl_scalar_int(PyLong_AsLongLongAndOverflow(o, &overflow));
    if (overflow) {
        PyErr_SetString(PyExc_ValueError, "Overflow when unpacking long long");
        return false;
    }
    return !(s->i == -1 && PyErr_Occurred());
}

static bool tensor_scalar(rl_tensor *t, rl_scalar *s)
{
    if (t->numel != 1) {
        PyErr_SetString(PyExc_ValueError, "only one element tensors can be converted to Python scalars");
        return false;
    }
    rl_status st = rl_item(t, s);
    if (st != RL_OK)
        rl_py_raise(st);
    return st == RL_OK;
}

static bool leaf_scalar(PyObject *o, rl_dtype d, rl_scalar *s)
{
    if (PyFloat_Check(o)) {
        *s = rl_scalar_float(PyFloat_AS_DOUBLE(o));
        return true;
    }
    if (PyLong_Check(o))
        return int_scalar(o, d, s);
    if (rl_py_is_tensor(o))
        return tensor_scalar(rl_py_unwrap(o), s);
    if (rl_py_is_array_scalar(o) || rl_py_is_array(o)) {
        rl_tensor *t = rl_py_array_copy(o);
        bool ok = t && tensor_scalar(t, s);
        rl_tensor_release(t);
        return ok;
    }
    if (rl_dtype_is_float(d) || d == RL_BOOL) {
        *s = rl_scalar_float(PyFloat_AsDouble(o));
        return !(s->d == -1.0 && PyErr_Occurred());
    }
    PyObject *index = PyNumber_Index(o);
    bool ok = index && int_scalar(index, d, s);
    Py_XDECREF(index);
    return ok;
}

static bool store_leaf(PyObject *o, rl_dtype d, char *p)
{
    rl_scalar s;
    int64_t i;
    if (PyFloat_CheckExact(o) && d == RL_F32) {
        float f = (float)PyFloat_AS_DOUBLE(o);
        memcpy(p, &f, sizeof f);
        return true;
    }
    if (d == RL_I64 && rl_py_small_int(o, &i)) {
        memcpy(p, &i, sizeof i);
        return true;
    }
    return leaf_scalar(o, d, &s) && store(p, d, s);
}

typedef struct rl_filler {
    rl_tensor *t;
    char *at;
    int size;
} rl_filler;

/* An array among the items: converted as a whole when its shape is the rest of the shape. */
static bool fill_array(rl_filler *f, PyObject *o, int dim)
{
    rl_tensor *src = rl_py_array_copy(o), *dst = NULL;
    rl_status st = RL_OK;
    int64_t strides[RL_MAX_NDIM], numel = 1;
    int n = f->t->ndim - dim;
    if (!src)
        return false;
    for (int d = 0; d < n; d++) {
        if (d < src->ndim && src->shape[d] == f->t->shape[dim + d])
            continue;
        PyErr_Format(PyExc_ValueError, "expected sequence of length %lld at dim %d (got %lld)", (long long)f->t->shape[dim + d], dim + d,
                     d < src->ndim ? (long long)src->shape[d] : 0LL);
        rl_tensor_release(src);
        return false;
    }
    if (src->ndim > n) {
        PyErr_SetString(PyExc_ValueError, "only one element tensors can be converted to Python scalars");
        rl_tensor_release(src);
        return false;
    }
    for (int d = n - 1; d >= 0; d--) {
        strides[d] = numel;
        numel *= src->shape[d];
    }
    RL_TRY(rl_tensor_on_storage(f->t->storage, f->t->version, n, src->shape, strides, (f->at - (char *)f->t->storage->data) / f->size,
                                (rl_dtype)f->t->dtype, &dst));
    RL_TRY(rl_copy_raw(dst, src));
    f->at += numel * f->size;
fail:
    rl_tensor_release(src);
    rl_tensor_release(dst);
    if (st != RL_OK)
        rl_py_raise(st);
    return st == RL_OK;
}

static bool fill(rl_filler *f, PyObject *o, int dim)
{
    if (dim == f->t->ndim) {
        bool ok = store_leaf(o, (rl_dtype)f->t->dtype, f->at);
        f->at += f->size;
        return ok;
    }
    if (rl_py_is_array(o))
        return fill_array(f, o, dim);
    if (is_text(o))
        return invalid_data(o);
    PyObject *fast = PySequence_Fast(o, "not a sequence");
    if (!fast)
        return false;
    Py_ssize_t n = (Py_ssize_t)f->t->shape[dim], i = 0;
    bool ok = true;
    for (; ok && i < n && PySequence_Fast_GET_SIZE(fast) == n; i++) {
        PyObject *item = Py_NewRef(PySequence_Fast_GET_ITEM(fast, i));
        ok = fill(f, item, dim + 1);
        Py_DECREF(item);
    }
    if (ok && PySequence_Fast_GET_SIZE(fast) != n) {
        PyErr_Format(PyExc_ValueError, "expected sequence of length %zd at dim %d (got %zd)", n, dim, PySequence_Fast_GET_SIZE(fast));
        ok = false;
    }
    Py_DECREF(fast);
    return ok;
}

rl_tensor *rl_py_sequence_tensor(PyObject *data, rl_dtype dtype)
{
    int ndim;
    int64_t shape[RL_MAX_NDIM];
    rl_filler f = {NULL, NULL, 0};
    if (is_text(data)) {
        invalid_data(data);
        return NULL;
    }
    if (!data_shape(data, &ndim, shape) || (dtype == RL_DTYPE_NONE && !infer(data, 0, &dtype)))
        return NULL;
    rl_status st = rl_tensor_empty(ndim, shape, dtype, cpu, &f.t);
    if (st != RL_OK) {
        rl_py_raise(st);
        return NULL;
    }
    f.at = rl_tensor_data(f.t);
    f.size = rl_dtype_size(dtype);
    if (f.t->numel && !fill(&f, data, 0))
        rl_tensor_clear(&f.t);
    return f.t;
}

/* The common calls: a short flat list of floats, or of ints. NULL without an exception: anything else. */
static rl_tensor *flat_list(PyObject *list, rl_dtype dtype)
{
    int64_t n = PyList_GET_SIZE(list), value;
    rl_tensor *t;
    if (n == 0)
        return NULL;
    bool floats = PyFloat_CheckExact(PyList_GET_ITEM(list, 0));
    rl_dtype d = dtype != RL_DTYPE_NONE ? dtype : floats ? rl_default_dtype() : RL_I64;
    if (d != (floats ? RL_F32 : RL_I64) || rl_tensor_empty(1, &n, d, cpu, &t) != RL_OK)
        return NULL;
    void *p = rl_tensor_data(t);
    for (int64_t i = 0; i < n; i++) {
        PyObject *o = PyList_GET_ITEM(list, i);
        if (floats && PyFloat_CheckExact(o)) {
            ((float *)p)[i] = (float)PyFloat_AS_DOUBLE(o);
        } else if (!floats && rl_py_small_int(o, &value)) {
            ((int64_t *)p)[i] = value;
        } else {
            rl_tensor_release(t);
            return NULL;
        }
    }
    return t;
}

/* ---- tensor and its kin ---- */

/* t (taken over) with the dtype and on the device asked for, without a graph. */
static rl_tensor *finish(rl_tensor *t, const rl_py_options *o, bool copy)
{
    rl_state *state = rl_state_get();
    bool grad = state->grad_mode;
    rl_dtype d = o->dtype == RL_DTYPE_NONE ? (rl_dtype)t->dtype : o->dtype;
    rl_device dev = o->has_device ? o->device : rl_tensor_device(t);
    rl_tensor *out = NULL;
    if (!copy && d == (rl_dtype)t->dtype && rl_device_same(dev, rl_tensor_device(t)))
        return t;
    state->grad_mode = false;
    rl_status st = rl_to(t, d, dev, copy, RL_FORMAT_PRESERVE, &out);
    state->grad_mode = grad;
    rl_tensor_release(t);
    if (st != RL_OK)
        rl_py_raise(st);
    return st == RL_OK ? out : NULL;
}

rl_tensor *rl_py_data_tensor(PyObject *data, const rl_py_options *given)
{
    rl_py_options o = *given;
    rl_tensor *t = NULL;
    if (rl_py_is_tensor(data)) {
        rl_status st = rl_tensor_alias(rl_py_unwrap(data), &t);
        if (st != RL_OK) {
            rl_py_raise(st);
            return NULL;
        }
        return finish(t, &o, true);
    }
    if (!o.has_device && rl_state_get()->has_default_device) {
        o.has_device = true;
        o.device = rl_py_default_device();
    }
    if (rl_py_is_array(data))
        t = rl_py_array_copy(data);
    else
        t = rl_py_sequence_tensor(data, o.dtype);
    return t ? finish(t, &o, false) : NULL;
}

static PyObject *give_leaf(rl_tensor *t, bool requires_grad)
{
    if (!t)
        return NULL;
    if (requires_grad && !rl_dtype_is_float((rl_dtype)t->dtype)) {
        rl_tensor_release(t);
        return PyErr_Format(PyExc_RuntimeError, "Only Tensors of floating point and complex dtype can require gradients");
    }
    if (requires_grad)
        t->flags |= RL_TF_REQUIRES_GRAD;
    return rl_py_wrap(t);
}

static int warn_copy_of_tensor(void)
{
    return PyErr_WarnEx(PyExc_UserWarning,
                        "To copy construct from a tensor, it is recommended to use sourceTensor.detach().clone() or "
                        "sourceTensor.detach().clone().requires_grad_(True), rather than torch.tensor(sourceTensor).",
                        1);
}

static PyObject *tensor(PyObject *m, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    static const char *const names[] = {"data", "dtype", "device", "requires_grad", "pin_memory", "names"};
    PyObject *a[6];
    rl_py_options o;
    rl_tensor *t;
    if (nargs == 1 && !kwnames && PyList_CheckExact(args[0]) && !rl_state_get()->has_default_device &&
        (t = flat_list(args[0], RL_DTYPE_NONE)))
        return rl_py_wrap(t);
    if (!rl_py_bind("tensor", names, 6, 1, 1, args, nargs, kwnames, a) || !rl_py_options_read("tensor", &o, a[1], a[2], a[3], a[4]))
        return NULL;
    if (rl_py_is_tensor(a[0]) && warn_copy_of_tensor() < 0)
        return NULL;
    return give_leaf(rl_py_data_tensor(a[0], &o), o.requires_grad);
}

/* Shares the memory of tensors and arrays where dtype and device allow it; keeps the graph of a tensor. */
static PyObject *as_tensor(PyObject *m, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    static const char *const names[] = {"data", "dtype", "device"};
    PyObject *a[3];
    rl_py_options o;
    rl_tensor *t = NULL;
    if (!rl_py_bind("as_tensor", names, 3, 3, 1, args, nargs, kwnames, a) || !rl_py_options_read("as_tensor", &o, a[1], a[2], NULL, NULL))
        return NULL;
    if (rl_py_is_tensor(a[0])) {
        rl_tensor *x = rl_py_unwrap(a[0]);
        rl_dtype d = o.dtype == RL_DTYPE_NONE ? (rl_dtype)x->dtype : o.dtype;
        rl_device dev = o.has_device ? o.device : rl_tensor_device(x);
        if (d == (rl_dtype)x->dtype && rl_device_same(dev, rl_tensor_device(x)))
            return Py_NewRef(a[0]);
        return rl_py_give(rl_to(x, d, dev, false, RL_FORMAT_PRESERVE, &t), &t);
    }
    t = rl_py_is_array(a[0]) ? rl_py_array_tensor(a[0], true) : rl_py_data_tensor(a[0], &o);
    if (t)
        t = finish(t, &o, false);
    return t ? rl_py_wrap(t) : NULL;
}

/* The source of asarray before dtype, device and copy: *shared says that it is somebody else's memory. */
static rl_tensor *asarray_source(PyObject *x, const rl_py_options *o, bool *shared)
{
    *shared = true;
    if (rl_py_is_tensor(x))
        return rl_tensor_retain(rl_py_unwrap(x));
    if (rl_py_is_array(x))
        return rl_py_array_tensor(x, false);
    if (PyObject_HasAttrString(x, "__dlpack__"))
        return rl_py_from_dlpack(x, false, NULL);
    if (PyObject_CheckBuffer(x) && !rl_py_is_array_scalar(x))
        return rl_py_buffer_tensor(x, o->dtype == RL_DTYPE_NONE ? rl_default_dtype() : o->dtype, -1, 0);
    *shared = false;
    return rl_py_data_tensor(x, o);
}

static PyObject *asarray(PyObject *m, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    static const char *const names[] = {"obj", "dtype", "device", "copy", "requires_grad"};
    PyObject *a[5];
    rl_py_options o;
    bool copy = false, shared;
    rl_tensor *out = NULL;
    if (!rl_py_bind("asarray", names, 5, 1, 1, args, nargs, kwnames, a) || !rl_py_options_read("asarray", &o, a[1], a[2], a[4], NULL) ||
        !rl_py_to_bool("asarray", "copy", a[3], &copy))
        return NULL;
    rl_tensor *t = asarray_source(a[0], &o, &shared);
    if (!t)
        return NULL;
    rl_dtype d = o.dtype == RL_DTYPE_NONE ? (rl_dtype)t->dtype : o.dtype;
    rl_device dev = o.has_device ? o.device : rl_tensor_device(t);
    bool change = d != (rl_dtype)t->dtype || !rl_device_same(dev, rl_tensor_device(t));
    if (a[3] == Py_False && shared && change) {
        PyErr_Format(PyExc_ValueError, "can't alias tensor with %s", d != (rl_dtype)t->dtype ? "another dtype" : "another device");
        rl_tensor_release(t);
        return NULL;
    }
    rl_status st = rl_to(t, d, dev, copy && shared, RL_FORMAT_PRESERVE, &out);
    rl_tensor_release(t);
    if (st == RL_OK && o.requires_grad && !out->grad_fn)
        return give_leaf(out, true);
    return rl_py_give(st, &out);
}

static PyObject *scalar_tensor(PyObject *m, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    static const char *const names[] = {"s", "dtype", "device", "layout", "pin_memory", "requires_grad"};
    PyObject *a[6];
    rl_py_options o;
    rl_scalar s;
    rl_tensor *t = NULL;
    if (!rl_py_bind("scalar_tensor", names, 6, 1, 1, args, nargs, kwnames, a) ||
        !rl_py_options_read("scalar_tensor", &o, a[1], a[2], a[5], a[4]) || !rl_py_to_scalar(a[0], &s))
        return NULL;
    rl_status st = rl_tensor_from_scalar(s, o.dtype == RL_DTYPE_NONE ? rl_default_dtype() : o.dtype,
                                         o.has_device ? o.device : rl_py_default_device(), &t);
    return st == RL_OK ? give_leaf(t, o.requires_grad) : rl_py_raise(st);
}

static PyObject *new_tensor(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    static const char *const names[] = {"data", "dtype", "device", "requires_grad", "layout", "pin_memory"};
    PyObject *a[6];
    rl_py_options o;
    const rl_tensor *like = rl_py_unwrap(self);
    if (!rl_py_bind("new_tensor", names, 6, 1, 1, args, nargs, kwnames, a) || !rl_py_options_read("new_tensor", &o, a[1], a[2], a[3], a[5]))
        return NULL;
    if (o.dtype == RL_DTYPE_NONE)
        o.dtype = (rl_dtype)like->dtype;
    if (!o.has_device) {
        o.has_device = true;
        o.device = rl_tensor_device(like);
    }
    return give_leaf(rl_py_data_tensor(a[0], &o), o.requires_grad);
}

#define FAST(f) (PyCFunction)(void (*)(void)) f, METH_FASTCALL | METH_KEYWORDS
static PyMethodDef functions[] = {
    {"tensor", FAST(tensor), "tensor(data, *, dtype=None, device=None, requires_grad=False, pin_memory=False) -> Tensor\n\n"
                             "A new tensor with a copy of data: a number, nested sequences of numbers, an array, a tensor."},
    {"as_tensor", FAST(as_tensor), "as_tensor(data, dtype=None, device=None) -> Tensor\n\nLike tensor(), sharing memory and graph where "
                                   "it can."},
    {"asarray", FAST(asarray), "asarray(obj, *, dtype=None, device=None, copy=None, requires_grad=False) -> Tensor"},
    {"scalar_tensor", FAST(scalar_tensor), "scalar_tensor(s, *, dtype=None, device=None, requires_grad=False) -> Tensor\n\nA 0-dim "
                                           "tensor of s."},
    {NULL, NULL, 0, NULL}};

static PyMethodDef methods[] = {
    {"new_tensor", FAST(new_tensor), "new_tensor(data, *, dtype=None, device=None, requires_grad=False) -> Tensor"}, {NULL, NULL, 0, NULL}};

int rl_py_init_convert(PyObject *m)
{
    if (PyModule_AddFunctions(m, functions) < 0 || rl_py_add_methods(rl_st->Tensor, methods) < 0)
        return -1;
    return rl_py_init_array(m) < 0 || rl_py_init_export(m) < 0 || rl_py_init_dlpack(m) < 0 || rl_py_init_legacy(m) < 0 ? -1 : 0;
}
