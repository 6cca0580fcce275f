/* size.c: Size, the shape of a tensor: a tuple of ints that stays a Size under slicing, + and *. */
#include "internal.h"

/* A Size of n items that the caller fills with PyTuple_SET_ITEM. */
static PyObject *size_new_empty(PyTypeObject *type, Py_ssize_t n)
{
    PyObject *self = type->tp_alloc(type, n);
#if PY_VERSION_HEX >= 0x030e0000
    if (self)
        ((PyTupleObject *)self)->ob_hash = -1; /* 3.14 caches the hash in the tuple; -1: not computed */
#endif
    return self;
}

PyObject *rl_py_size(int n, const int64_t *v)
{
    PyObject *self = size_new_empty(rl_st->Size, n);
    if (!self)
        return NULL;
    for (int k = 0; k < n; k++) {
        PyObject *item = PyLong_FromLongLong(v[k]);
        if (!item) {
            Py_DECREF(self);
            return NULL;
        }
        PyTuple_SET_ITEM(self, k, item);
    }
    return self;
}

/* A Size with the items of a plain tuple; takes the reference, NULL passes through. */
static PyObject *as_size(PyObject *tuple)
{
    if (!tuple)
        return NULL;
    Py_ssize_t n = PyTuple_GET_SIZE(tuple);
    PyObject *self = size_new_empty(rl_st->Size, n);
    for (Py_ssize_t k = 0; self && k < n; k++)
        PyTuple_SET_ITEM(self, k, Py_NewRef(PyTuple_GET_ITEM(tuple, k)));
    Py_DECREF(tuple);
    return self;
}

static PyObject *size_item(PyObject *o, Py_ssize_t k)
{
    if (PyLong_Check(o))
        return Py_NewRef(o);
    if (PyIndex_Check(o)) {
        PyObject *index = PyNumber_Index(o);
        if (index)
            return index;
        PyErr_Clear();
    }
    return PyErr_Format(PyExc_TypeError, "%s.Size() takes an iterable of 'int' (item %zd is '%s')", rl_py_prefix(), k, rl_py_type_text(o));
}

static PyObject *size_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *source = NULL;
    if (kwargs && PyDict_GET_SIZE(kwargs))
        return PyErr_Format(PyExc_TypeError, "Size() takes no keyword arguments");
    if (!PyArg_UnpackTuple(args, "Size", 0, 1, &source))
        return NULL;
    PyObject *items = source ? PySequence_Tuple(source) : PyTuple_New(0);
    if (!items)
        return NULL;
    Py_ssize_t n = PyTuple_GET_SIZE(items);
    PyObject *self = size_new_empty(type, n);
    for (Py_ssize_t k = 0; self && k < n; k++) {
        PyObject *item = size_item(PyTuple_GET_ITEM(items, k), k);
        if (!item)
            Py_CLEAR(self);
        else
            PyTuple_SET_ITEM(self, k, item);
    }
    Py_DECREF(items);
    return self;
}

static PyObject *size_repr(PyObject *self)
{
    PyObject *list = PySequence_List(self);
    PyObject *text = list ? PyUnicode_FromFormat("%s.Size(%R)", rl_py_prefix(), list) : NULL;
    Py_XDECREF(list);
    return text;
}

static PyObject *size_add(PyObject *a, PyObject *b)
{
    if (!PyTuple_Check(a) || !PyTuple_Check(b)) {
        if (Py_TYPE(a) == rl_st->Size)
            return PyErr_Format(PyExc_TypeError, "can only concatenate tuple (not %s) to %s.Size", rl_py_type_text(b), rl_py_prefix());
        Py_RETURN_NOTIMPLEMENTED;
    }
    Py_ssize_t na = PyTuple_GET_SIZE(a), nb = PyTuple_GET_SIZE(b);
    PyObject *all = PyTuple_New(na + nb);
    if (!all)
        return NULL;
    for (Py_ssize_t k = 0; k < na; k++)
        PyTuple_SET_ITEM(all, k, Py_NewRef(PyTuple_GET_ITEM(a, k)));
    for (Py_ssize_t k = 0; k < nb; k++)
        PyTuple_SET_ITEM(all, na + k, Py_NewRef(PyTuple_GET_ITEM(b, k)));
    PyObject *args = PyTuple_Pack(1, all);
    Py_DECREF(all);
    PyObject *out = args ? size_new(rl_st->Size, args, NULL) : NULL;
    Py_XDECREF(args);
    return out;
}

static PyObject *size_repeat(PyObject *self, Py_ssize_t n) { return as_size(PyTuple_Type.tp_as_sequence->sq_repeat(self, n)); }

static PyObject *size_subscript(PyObject *self, PyObject *key)
{
    PyObject *got = PyTuple_Type.tp_as_mapping->mp_subscript(self, key);
    return got && PySlice_Check(key) ? as_size(got) : got;
}

static PyObject *size_numel(PyObject *self, PyObject *ignored)
{
    int64_t numel = 1, item;
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(self); k++) {
        if (!rl_py_to_int64(PyTuple_GET_ITEM(self, k), &item))
            return NULL;
        if (__builtin_mul_overflow(numel, item, &numel))
            return PyErr_Format(PyExc_OverflowError, "numel of %R does not fit in 64 bits", self);
    }
    return PyLong_FromLongLong(numel);
}

static PyObject *size_reduce(PyObject *self, PyObject *ignored)
{
    PyObject *plain = PyTuple_GetSlice(self, 0, PyTuple_GET_SIZE(self));
    return plain ? Py_BuildValue("O(N)", rl_st->Size, plain) : NULL;
}

static PyMethodDef size_methods[] = {
    {"numel", size_numel, METH_NOARGS, "numel() -> int\n\nThe product of the sizes."},
    {"__reduce__", size_reduce, METH_NOARGS, NULL},
    {NULL},
};
static PyType_Slot size_slots[] = {
    {Py_tp_new, size_new},          {Py_tp_repr, size_repr},       {Py_nb_add, size_add},
    {Py_sq_repeat, size_repeat},    {Py_mp_subscript, size_subscript}, {Py_tp_methods, size_methods},
    {Py_tp_doc, "Size(iterable=()) -> Size\n\nThe shape of a tensor: a tuple of ints."}, {0, NULL},
};
static PyType_Spec size_spec = {"rushlight.Size", 0, 0, Py_TPFLAGS_DEFAULT, size_slots};

int rl_py_init_size(PyObject *m)
{
    rl_st->Size = rl_py_make_type(m, &size_spec, &PyTuple_Type, "Size");
    return rl_st->Size ? 0 : -1;
}
