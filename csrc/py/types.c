/* types.c: dtype, layout and memory format: immutable singletons, one for each value, compared by identity.
 *
 * They print with the prefix of rl_py_prefix (torch.float32 under the alias) and are pickled by name, so that loading gives the
 * singleton back.
 */
#include "internal.h"

PyTypeObject *rl_py_make_type(PyObject *m, PyType_Spec *spec, PyTypeObject *base, const char *name)
{
    PyObject *type = PyType_FromModuleAndSpec(m, spec, (PyObject *)base);
    if (!type)
        return NULL;
    if (PyModule_AddObjectRef(m, name, type) < 0)
        Py_CLEAR(type);
    return (PyTypeObject *)type;
}

static void plain_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    type->tp_free(self);
    Py_DECREF(type);
}

/* ---- dtype ---- */

static rl_dtype dtype_of(PyObject *self) { return ((rl_py_dtype_object *)self)->dtype; }

static PyObject *dtype_repr(PyObject *self) { return PyUnicode_FromFormat("%s.%s", rl_py_prefix(), rl_dtype_name(dtype_of(self))); }
static PyObject *dtype_reduce(PyObject *self, PyObject *ignored) { return PyUnicode_FromString(rl_dtype_name(dtype_of(self))); }
static PyObject *dtype_float(PyObject *self, void *c) { return PyBool_FromLong(rl_dtype_is_float(dtype_of(self))); }
static PyObject *dtype_complex(PyObject *self, void *c) { Py_RETURN_FALSE; }
static PyObject *dtype_signed(PyObject *self, void *c) { return PyBool_FromLong(rl_dtype_table[dtype_of(self)].is_signed); }
static PyObject *dtype_itemsize(PyObject *self, void *c) { return PyLong_FromLong(rl_dtype_size(dtype_of(self))); }
static PyObject *dtype_to_real(PyObject *self, PyObject *ignored) { return Py_NewRef(self); }
static PyObject *dtype_self(PyObject *self, PyObject *ignored) { return Py_NewRef(self); }

static PyObject *dtype_to_complex(PyObject *self, PyObject *ignored)
{
    return PyErr_Format(PyExc_RuntimeError, "Unknown Complex ScalarType for %s", rl_dtype_table[dtype_of(self)].scalar_type);
}

static PyGetSetDef dtype_getset[] = {
    {"is_floating_point", dtype_float, NULL, "True for float16, bfloat16, float32 and float64.", NULL},
    {"is_complex", dtype_complex, NULL, "False: there are no complex dtypes.", NULL},
    {"is_signed", dtype_signed, NULL, "Whether the dtype has negative values.", NULL},
    {"itemsize", dtype_itemsize, NULL, "Bytes of one element.", NULL},
    {NULL},
};
static PyMethodDef dtype_methods[] = {
    {"__reduce__", dtype_reduce, METH_NOARGS, NULL},
    {"__copy__", dtype_self, METH_NOARGS, NULL},
    {"__deepcopy__", dtype_self, METH_O, NULL},
    {"to_real", dtype_to_real, METH_NOARGS, "The real dtype of the same precision: the dtype itself."},
    {"to_complex", dtype_to_complex, METH_NOARGS, "Raises RuntimeError: there are no complex dtypes."},
    {NULL},
};
static PyType_Slot dtype_slots[] = {
    {Py_tp_dealloc, plain_dealloc},
    {Py_tp_repr, dtype_repr},
    {Py_tp_getset, dtype_getset},
    {Py_tp_methods, dtype_methods},
    {Py_tp_doc, "The type of a tensor's elements."},
    {0, NULL},
};
static PyType_Spec dtype_spec = {"rushlight.dtype", sizeof(rl_py_dtype_object), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                                 dtype_slots};

PyObject *rl_py_dtype(rl_dtype d) { return Py_NewRef(d < RL_DTYPE_COUNT ? rl_st->dtypes[d] : Py_None); }

bool rl_py_to_dtype(PyObject *o, rl_dtype *out)
{
    if (Py_TYPE(o) == rl_st->Dtype)
        *out = dtype_of(o);
    else if (o == (PyObject *)&PyFloat_Type)
        *out = RL_F64;
    else if (o == (PyObject *)&PyLong_Type)
        *out = RL_I64;
    else if (o == (PyObject *)&PyBool_Type)
        *out = RL_BOOL;
    else
        return PyErr_Format(PyExc_TypeError, "dtype must be %s.dtype, not %s", rl_py_prefix(), rl_py_type_text(o)), false;
    return true;
}

static int add_dtypes(PyObject *m)
{
    static const char *const alias[RL_DTYPE_COUNT] = {[RL_I16] = "short", [RL_I32] = "int", [RL_I64] = "long", [RL_F16] = "half",
                                                      [RL_F32] = "float", [RL_F64] = "double"};
    for (int d = 0; d < RL_DTYPE_COUNT; d++) {
        rl_py_dtype_object *o = PyObject_New(rl_py_dtype_object, rl_st->Dtype);
        if (!o)
            return -1;
        o->dtype = (rl_dtype)d;
        rl_st->dtypes[d] = (PyObject *)o;
        if (PyModule_AddObjectRef(m, rl_dtype_name((rl_dtype)d), (PyObject *)o) < 0)
            return -1;
        if (alias[d] && PyModule_AddObjectRef(m, alias[d], (PyObject *)o) < 0)
            return -1;
    }
    return 0;
}

/* ---- layout and memory format ---- */

static const char *const format_names[] = {"contiguous_format", "preserve_format", "channels_last", "channels_last_3d"};

static PyObject *layout_repr(PyObject *self) { return PyUnicode_FromFormat("%s.strided", rl_py_prefix()); }
static PyObject *layout_reduce(PyObject *self, PyObject *ignored) { return PyUnicode_FromString("strided"); }

static int format_of(PyObject *self) { return ((rl_py_format_object *)self)->format; }
static PyObject *format_repr(PyObject *self) { return PyUnicode_FromFormat("%s.%s", rl_py_prefix(), format_names[format_of(self)]); }
static PyObject *format_reduce(PyObject *self, PyObject *ignored) { return PyUnicode_FromString(format_names[format_of(self)]); }

static PyMethodDef layout_methods[] = {
    {"__reduce__", layout_reduce, METH_NOARGS, NULL}, {"__copy__", dtype_self, METH_NOARGS, NULL},
    {"__deepcopy__", dtype_self, METH_O, NULL}, {NULL}};
static PyMethodDef format_methods[] = {
    {"__reduce__", format_reduce, METH_NOARGS, NULL}, {"__copy__", dtype_self, METH_NOARGS, NULL},
    {"__deepcopy__", dtype_self, METH_O, NULL}, {NULL}};
static PyType_Slot layout_slots[] = {{Py_tp_dealloc, plain_dealloc}, {Py_tp_repr, layout_repr}, {Py_tp_methods, layout_methods},
                                     {Py_tp_doc, "How a tensor's elements lie in memory: strided."}, {0, NULL}};
static PyType_Slot format_slots[] = {{Py_tp_dealloc, plain_dealloc}, {Py_tp_repr, format_repr}, {Py_tp_methods, format_methods},
                                     {Py_tp_doc, "The order of a strided tensor's dimensions in memory."}, {0, NULL}};
static PyType_Spec layout_spec = {"rushlight.layout", sizeof(rl_py_format_object), 0,
                                  Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                                  layout_slots};
static PyType_Spec format_spec = {"rushlight.memory_format", sizeof(rl_py_format_object), 0,
                                  Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, format_slots};

static PyObject *new_format(PyTypeObject *type, int format, PyObject *m, const char *name)
{
    rl_py_format_object *o = PyObject_New(rl_py_format_object, type);
    if (!o)
        return NULL;
    o->format = format;
    if (PyModule_AddObjectRef(m, name, (PyObject *)o) < 0)
        Py_CLEAR(o);
    return (PyObject *)o;
}

static int add_formats(PyObject *m)
{
    rl_st->strided = new_format(rl_st->Layout, 0, m, "strided");
    if (!rl_st->strided)
        return -1;
    for (int k = 0; k < 4; k++) {
        rl_st->memory_formats[k] = new_format(rl_st->MemoryFormat, k, m, format_names[k]);
        if (!rl_st->memory_formats[k])
            return -1;
    }
    return 0;
}

int rl_py_init_types(PyObject *m)
{
    if (!(rl_st->Dtype = rl_py_make_type(m, &dtype_spec, NULL, "dtype")) ||
        !(rl_st->Layout = rl_py_make_type(m, &layout_spec, NULL, "layout")) ||
        !(rl_st->MemoryFormat = rl_py_make_type(m, &format_spec, NULL, "memory_format")))
        return -1;
    if (add_dtypes(m) < 0 || add_formats(m) < 0)
        return -1;
    if (rl_py_init_size(m) < 0 || rl_py_init_device(m) < 0 || rl_py_init_finfo(m) < 0)
        return -1;
    return rl_py_init_defaults(m);
}
