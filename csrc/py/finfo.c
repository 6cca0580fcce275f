/* finfo.c: finfo and iinfo: the limits of the float and the integer dtypes, read from one table. */
#include "internal.h"

typedef struct float_limits {
    double eps, max, smallest, resolution;
} float_limits;

static const float_limits floats[] = {
    {0.0009765625, 65504.0, 6.103515625e-05, 1e-3},
    {0.0078125, 3.3895313892515355e+38, 1.1754943508222875e-38, 1e-2},
    {1.1920928955078125e-07, 3.4028234663852886e+38, 1.1754943508222875e-38, 1e-6},
    {2.220446049250313e-16, 1.7976931348623157e+308, 2.2250738585072014e-308, 1e-15},
};

static rl_dtype dtype_of(PyObject *self) { return ((rl_py_dtype_object *)self)->dtype; }
static const float_limits *limits_of(PyObject *self) { return &floats[dtype_of(self) - RL_F16]; }

static int64_t int_max(rl_dtype d)
{
    int bits = 8 * rl_dtype_size(d) - rl_dtype_table[d].is_signed;
    return (int64_t)((UINT64_C(1) << bits) - 1);
}
static int64_t int_min(rl_dtype d) { return rl_dtype_table[d].is_signed ? -int_max(d) - 1 : 0; }

static PyObject *info_bits(PyObject *self, void *c) { return PyLong_FromLong(8 * rl_dtype_size(dtype_of(self))); }
static PyObject *info_dtype(PyObject *self, void *c) { return PyUnicode_FromString(rl_dtype_name(dtype_of(self))); }
static PyObject *finfo_eps(PyObject *self, void *c) { return PyFloat_FromDouble(limits_of(self)->eps); }
static PyObject *finfo_max(PyObject *self, void *c) { return PyFloat_FromDouble(limits_of(self)->max); }
static PyObject *finfo_min(PyObject *self, void *c) { return PyFloat_FromDouble(-limits_of(self)->max); }
static PyObject *finfo_tiny(PyObject *self, void *c) { return PyFloat_FromDouble(limits_of(self)->smallest); }
static PyObject *finfo_resolution(PyObject *self, void *c) { return PyFloat_FromDouble(limits_of(self)->resolution); }
static PyObject *iinfo_max(PyObject *self, void *c) { return PyLong_FromLongLong(int_max(dtype_of(self))); }
static PyObject *iinfo_min(PyObject *self, void *c) { return PyLong_FromLongLong(int_min(dtype_of(self))); }

static void info_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyObject *finfo_repr(PyObject *self)
{
    char text[320];
    const float_limits *f = limits_of(self);
    snprintf(text, sizeof text, "finfo(resolution=%g, min=%g, max=%g, eps=%g, smallest_normal=%g, tiny=%g, dtype=%s)", f->resolution,
             -f->max, f->max,
             f->eps, f->smallest, f->smallest, rl_dtype_name(dtype_of(self)));
    return PyUnicode_FromString(text);
}

static PyObject *iinfo_repr(PyObject *self)
{
    char text[160];
    rl_dtype d = dtype_of(self);
    snprintf(text, sizeof text, "iinfo(min=%g, max=%g, dtype=%s)", (double)int_min(d), (double)int_max(d), rl_dtype_name(d));
    return PyUnicode_FromString(text);
}

static PyObject *info_compare(PyObject *a, PyObject *b, int op)
{
    if (Py_TYPE(a) != Py_TYPE(b) || (op != Py_EQ && op != Py_NE))
        Py_RETURN_NOTIMPLEMENTED;
    return PyBool_FromLong((dtype_of(a) == dtype_of(b)) == (op == Py_EQ));
}

static bool parse_type(PyObject *args, PyObject *kwargs, const char *name, const char *format, PyObject **given, rl_dtype *d)
{
    static char *names[] = {"type", NULL};
    *given = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, format, names, given))
        return false;
    if (!*given || rl_py_to_dtype(*given, d))
        return true;
    PyErr_Format(PyExc_TypeError, "%s(): argument 'type' (position 1) must be %s.dtype, not %s", name, rl_py_prefix(),
                 rl_py_type_text(*given));
    return false;
}

static PyObject *new_info(PyTypeObject *type, rl_dtype d)
{
    rl_py_dtype_object *o = (rl_py_dtype_object *)type->tp_alloc(type, 0);
    if (o)
        o->dtype = d;
    return (PyObject *)o;
}

static PyObject *finfo_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *given;
    rl_dtype d = rl_default_dtype();
    if (!parse_type(args, kwargs, "finfo", "|O:finfo", &given, &d))
        return NULL;
    if (!rl_dtype_is_float(d))
        return PyErr_Format(PyExc_TypeError, "%s.finfo() requires a floating point input type. Use %s.iinfo to handle '%s.finfo'",
                            rl_py_prefix(),
                            rl_py_prefix(), rl_py_prefix());
    return new_info(type, d);
}

static PyObject *iinfo_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *given;
    rl_dtype d = RL_I64;
    if (!parse_type(args, kwargs, "iinfo", "O:iinfo", &given, &d))
        return NULL;
    if (rl_dtype_is_float(d))
        return PyErr_Format(PyExc_TypeError, "%s.iinfo() requires an integer input type. Use %s.finfo to handle '%s.iinfo'", rl_py_prefix(),
                            rl_py_prefix(), rl_py_prefix());
    if (d == RL_BOOL)
        return PyErr_Format(PyExc_TypeError, "%s.bool is not supported by %s.iinfo", rl_py_prefix(), rl_py_prefix());
    return new_info(type, d);
}

static PyGetSetDef finfo_getset[] = {
    {"bits", info_bits, NULL, "Bits of one number.", NULL},
    {"dtype", info_dtype, NULL, "The dtype's name.", NULL},
    {"eps", finfo_eps, NULL, "The distance from 1 to the next larger number.", NULL},
    {"max", finfo_max, NULL, "The largest finite number.", NULL},
    {"min", finfo_min, NULL, "The smallest finite number, -max.", NULL},
    {"tiny", finfo_tiny, NULL, "The same as smallest_normal.", NULL},
    {"smallest_normal", finfo_tiny, NULL, "The smallest positive normal number.", NULL},
    {"resolution", finfo_resolution, NULL, "The approximate decimal resolution.", NULL},
    {NULL},
};
static PyGetSetDef iinfo_getset[] = {
    {"bits", info_bits, NULL, "Bits of one number.", NULL},
    {"dtype", info_dtype, NULL, "The dtype's name.", NULL},
    {"max", iinfo_max, NULL, "The largest number.", NULL},
    {"min", iinfo_min, NULL, "The smallest number.", NULL},
    {NULL},
};
static PyType_Slot finfo_slots[] = {{Py_tp_dealloc, info_dealloc}, {Py_tp_new, finfo_new}, {Py_tp_repr, finfo_repr},
    {Py_tp_richcompare, info_compare}, {Py_tp_hash, PyObject_HashNotImplemented}, {Py_tp_getset, finfo_getset},
    {Py_tp_doc, "finfo(type=None) -> finfo\n\nThe limits of a float dtype (of the default dtype)."}, {0, NULL}};
static PyType_Slot iinfo_slots[] = {{Py_tp_dealloc, info_dealloc}, {Py_tp_new, iinfo_new}, {Py_tp_repr, iinfo_repr},
    {Py_tp_richcompare, info_compare}, {Py_tp_hash, PyObject_HashNotImplemented}, {Py_tp_getset, iinfo_getset},
    {Py_tp_doc, "iinfo(type) -> iinfo\n\nThe limits of an integer dtype."}, {0, NULL}};
static PyType_Spec finfo_spec = {"rushlight.finfo", sizeof(rl_py_dtype_object), 0, Py_TPFLAGS_DEFAULT, finfo_slots};
static PyType_Spec iinfo_spec = {"rushlight.iinfo", sizeof(rl_py_dtype_object), 0, Py_TPFLAGS_DEFAULT, iinfo_slots};

int rl_py_init_finfo(PyObject *m)
{
    rl_st->Finfo = rl_py_make_type(m, &finfo_spec, NULL, "finfo");
    rl_st->Iinfo = rl_py_make_type(m, &iinfo_spec, NULL, "iinfo");
    return rl_st->Finfo && rl_st->Iinfo ? 0 : -1;
}
