/* legacy.c: Tensor(…), FloatTensor(…) and Tensor.new(…): the old constructors, whose meaning depends on what they are given.
 *
 * Ints and a Size are sizes of an uninitialised tensor, a tensor gives an alias, anything else is data of the constructor's dtype.
 */
#include "convert.h"

static const rl_device cpu = {RL_DEVICE_CPU, -1};

static rl_tensor *give(rl_status st, rl_tensor **t)
{
    if (st != RL_OK)
        rl_py_raise(st);
    return st == RL_OK ? *t : NULL;
}

static rl_tensor *of_sizes(PyObject *const *items, Py_ssize_t n, rl_dtype dtype, rl_device device)
{
    int64_t shape[RL_MAX_NDIM];
    rl_tensor *t = NULL;
    if (n > RL_MAX_NDIM) {
        PyErr_Format(PyExc_RuntimeError, "new(): %zd sizes given, a tensor has at most %d dimensions", n, RL_MAX_NDIM);
        return NULL;
    }
    for (Py_ssize_t k = 0; k < n; k++) {
        if (!PyIndex_Check(items[k]) || PyBool_Check(items[k])) {
            PyErr_Format(PyExc_TypeError,
                         "new(): argument 'size' failed to unpack the object at pos %zd with error \"type must be tuple of ints,but got "
                         "%s\"", k + 1,
                         rl_py_type_text(items[k]));
            return NULL;
        }
        if (!rl_py_to_int64(items[k], &shape[k]))
            return NULL;
    }
    return give(rl_tensor_empty((int)n, shape, dtype, device, &t), &t);
}

static rl_tensor *of_tensor(rl_tensor *x, rl_dtype dtype)
{
    rl_tensor *t = NULL;
    if (dtype != RL_DTYPE_NONE && dtype != (rl_dtype)x->dtype) {
        PyErr_Format(PyExc_TypeError, "expected a tensor of dtype %s (got %s)", rl_dtype_name(dtype), rl_dtype_name((rl_dtype)x->dtype));
        return NULL;
    }
    return give(rl_tensor_alias(x, &t), &t);
}

static rl_tensor *of_data(PyObject *data, rl_dtype dtype, rl_device device)
{
    rl_py_options o = {.dtype = dtype, .has_device = true, .device = device};
    if (PyUnicode_Check(data) || PyBytes_Check(data)) {
        PyErr_Format(PyExc_TypeError, "new(): invalid data type '%s'", Py_TYPE(data)->tp_name);
        return NULL;
    }
    if (!PySequence_Check(data)) {
        PyErr_Format(PyExc_TypeError, "new(): data must be a sequence (got %s)", Py_TYPE(data)->tp_name);
        return NULL;
    }
    return rl_py_data_tensor(data, &o);
}

/* strict: the dtype that a tensor argument must have, RL_DTYPE_NONE for any. */
static rl_tensor *construct(PyObject *const *args, Py_ssize_t n, rl_dtype dtype, rl_dtype strict, rl_device device)
{
    if (n == 1) {
        PyObject *a = args[0];
        if (rl_py_is_tensor(a))
            return of_tensor(rl_py_unwrap(a), strict);
        if (Py_TYPE(a) == rl_st->Size)
            return of_sizes(((PyTupleObject *)a)->ob_item, PyTuple_GET_SIZE(a), dtype, device);
        if (rl_st->Storage && PyObject_TypeCheck(a, rl_st->Storage))
            return rl_py_storage_tensor(a, dtype);
        PyObject *untyped = PyObject_GetAttrString(a, "_untyped_storage");
        if (untyped && rl_st->Storage && PyObject_TypeCheck(untyped, rl_st->Storage)) {
            rl_tensor *t = rl_py_storage_tensor(untyped, dtype);
            Py_DECREF(untyped);
            return t;
        }
        PyErr_Clear();
        Py_XDECREF(untyped);
        if (!PyIndex_Check(a) || rl_py_is_array(a))
            return of_data(a, dtype, device);
    }
    if (n == 0) {
        int64_t zero = 0;
        rl_tensor *t = NULL;
        return give(rl_tensor_empty(1, &zero, dtype, device, &t), &t);
    }
    return of_sizes(args, n, dtype, device);
}

static bool read_device(PyObject *kwargs, rl_device *device)
{
    PyObject *key, *value;
    Py_ssize_t at = 0;
    while (kwargs && PyDict_Next(kwargs, &at, &key, &value)) {
        if (PyUnicode_CompareWithASCIIString(key, "device") != 0) {
            PyErr_Format(PyExc_TypeError,
                         "new() received an invalid combination of arguments - got (%U=%s), but expected one of:\n"
                         " * (*, %s.device device = None)\n"
                         "      didn't match because some of the keywords were incorrect: %U\n"
                         " * (%s.Storage storage)\n * (Tensor other)\n * (tuple of ints size, *, %s.device device = None)\n"
                         " * (object data, *, %s.device device = None)\n",
                         key, rl_py_type_text(value), rl_py_prefix(), key, rl_py_prefix(), rl_py_prefix(), rl_py_prefix());
            return false;
        }
        if (value != Py_None && !rl_py_to_device(value, device))
            return false;
    }
    return true;
}

PyObject *rl_py_tensor_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    rl_device device = rl_py_default_device();
    if (!read_device(kwargs, &device))
        return NULL;
    rl_tensor *t = construct(((PyTupleObject *)args)->ob_item, PyTuple_GET_SIZE(args), rl_default_dtype(), RL_DTYPE_NONE, device);
    if (!t)
        return NULL;
    return type == rl_st->Tensor ? rl_py_wrap(t) : rl_py_wrap_as(t, type);
}

/* _typed_new(dtype, args, kwargs): what FloatTensor(…) and its kin call. */
static PyObject *typed_new(PyObject *m, PyObject *const *args, Py_ssize_t nargs)
{
    rl_dtype dtype;
    rl_device device = cpu;
    if (nargs != 3 || !PyTuple_Check(args[1]) || !PyDict_Check(args[2]))
        return PyErr_Format(PyExc_TypeError, "_typed_new takes a dtype, a tuple and a dict");
    if (!rl_py_to_dtype(args[0], &dtype) || !read_device(args[2], &device))
        return NULL;
    rl_tensor *t = construct(((PyTupleObject *)args[1])->ob_item, PyTuple_GET_SIZE(args[1]), dtype, dtype, device);
    return t ? rl_py_wrap(t) : NULL;
}

/* Tensor.new(…): the same with self's dtype and device. */
static PyObject *method_new(PyObject *self, PyObject *args, PyObject *kwargs)
{
    const rl_tensor *x = rl_py_unwrap(self);
    rl_device device = rl_tensor_device(x);
    if (!read_device(kwargs, &device))
        return NULL;
    rl_tensor *t = construct(((PyTupleObject *)args)->ob_item, PyTuple_GET_SIZE(args), (rl_dtype)x->dtype, (rl_dtype)x->dtype, device);
    return t ? rl_py_wrap(t) : NULL;
}

static PyMethodDef functions[] = {{"_typed_new", (PyCFunction)(void (*)(void))typed_new, METH_FASTCALL, NULL}, {NULL, NULL, 0, NULL}};
static PyMethodDef methods[] = {{"new", (PyCFunction)(void (*)(void))method_new, METH_VARARGS | METH_KEYWORDS, NULL},
                                {NULL, NULL, 0, NULL}};

int rl_py_init_legacy(PyObject *m)
{
    return PyModule_AddFunctions(m, functions) < 0 || rl_py_add_methods(rl_st->Tensor, methods) < 0 ? -1 : 0;
}
