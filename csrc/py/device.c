/* device.c: device objects: parsing of "cuda:1", printing, comparing, and their use as a context manager for the default device.
 *
 * A device object is immutable; entering it pushes the thread's default device on a list, leaving it pops one, so one object may be
 * entered again while it is entered.
 */
#include "internal.h"

#define EXPECTED_DEVICES                                                                                                              \
    "Expected one of cpu, cuda, ipu, xpu, mkldnn, opengl, opencl, ideep, hip, ve, fpga, maia, xla, lazy, vulkan, mps, meta, hpu, mtia, " \
    "privateuseone device type at start of device string: "

static const char *const type_names[RL_DEVICE_TYPES] = {"cpu", "cuda", "meta"};

static bool device_type(const char *text, size_t n, const char *whole, rl_device *out)
{
    for (int k = 0; k < RL_DEVICE_TYPES; k++)
        if (strlen(type_names[k]) == n && memcmp(type_names[k], text, n) == 0) {
            out->type = (uint8_t)k;
            out->index = -1;
            return true;
        }
    PyErr_Format(PyExc_RuntimeError, EXPECTED_DEVICES "%.200s", whole);
    return false;
}

static bool device_index(const char *text, const char *whole, rl_device *out)
{
    long index = 0;
    const char *p = text;
    for (; *p >= '0' && *p <= '9' && index < 1000; p++)
        index = index * 10 + (*p - '0');
    if (p == text || *p || (text[0] == '0' && p - text > 1)) {
        PyErr_Format(PyExc_RuntimeError, "Invalid device string: '%.200s'", whole);
        return false;
    }
    if (index > INT8_MAX) {
        PyErr_Format(PyExc_RuntimeError, "Device index %ld is too large: at most %d", index, INT8_MAX);
        return false;
    }
    out->index = (int8_t)index;
    return true;
}

bool rl_py_device_parse(const char *text, rl_device *out)
{
    if (!*text) {
        PyErr_SetString(PyExc_RuntimeError, "Device string must not be empty");
        return false;
    }
    const char *colon = strchr(text, ':');
    if (!device_type(text, colon ? (size_t)(colon - text) : strlen(text), text, out))
        return false;
    return !colon || device_index(colon + 1, text, out);
}

static bool index_value(PyObject *o, int8_t *out)
{
    int64_t index;
    if (!rl_py_to_int64(o, &index))
        return false;
    if (index < 0)
        PyErr_SetString(PyExc_RuntimeError, "Device index must not be negative");
    else if (index > INT8_MAX)
        PyErr_Format(PyExc_RuntimeError, "Device index %lld is too large: at most %d", (long long)index, INT8_MAX);
    else
        return *out = (int8_t)index, true;
    return false;
}

bool rl_py_to_device(PyObject *o, rl_device *out)
{
    if (Py_TYPE(o) == rl_st->Device) {
        *out = ((rl_py_device_object *)o)->device;
        return true;
    }
    if (PyUnicode_Check(o)) {
        const char *text = PyUnicode_AsUTF8(o);
        return text && rl_py_device_parse(text, out);
    }
    if (rl_py_is_int(o)) {
        out->type = RL_DEVICE_CUDA;
        return index_value(o, &out->index);
    }
    PyErr_Format(PyExc_TypeError, "device must be %s.device, not %s", rl_py_prefix(), rl_py_type_text(o));
    return false;
}

PyObject *rl_py_device(rl_device d)
{
    if (rl_st->cpu_device && d.type == RL_DEVICE_CPU && d.index < 0)
        return Py_NewRef(rl_st->cpu_device);
    rl_py_device_object *o = PyObject_New(rl_py_device_object, rl_st->Device);
    if (o)
        o->device = d;
    return (PyObject *)o;
}

static rl_device device_of(PyObject *self) { return ((rl_py_device_object *)self)->device; }

static void device_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    type->tp_free(self);
    Py_DECREF(type);
}

/* ---- device(…) ---- */

static PyObject *bad_arguments(PyObject *first)
{
    const char *got = first ? rl_py_type_text(first) : "", *p = rl_py_prefix();
    const char *reason = first ? "      didn't match because some of the arguments have invalid types: (!" : "";
    return PyErr_Format(PyExc_TypeError,
                        "device() received an invalid combination of arguments - got (%s), but expected one of:\n * (%s.device "
                        "device)\n%s%s%s"
                        " * (str type, int index = -1)\n",
                        got, p, reason, got, first ? "!)\n" : "");
}

static PyObject *device_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"type", "index", NULL}, *one[] = {"device", NULL};
    PyObject *first = NULL, *index = Py_None;
    rl_device d;
    bool alone = kwargs && PyDict_GetItemString(kwargs, "device");
    if (PyTuple_GET_SIZE(args) + (kwargs ? PyDict_GET_SIZE(kwargs) : 0) == 0)
        return bad_arguments(NULL);
    if (!(alone ? PyArg_ParseTupleAndKeywords(args, kwargs, "O:device", one, &first)
                : PyArg_ParseTupleAndKeywords(args, kwargs, "O|O:device", names, &first, &index)))
        return NULL;
    if (!PyUnicode_Check(first) && Py_TYPE(first) != rl_st->Device && !rl_py_is_int(first))
        return bad_arguments(first);
    if (index != Py_None && !rl_py_is_int(index))
        return PyErr_Format(PyExc_TypeError, "device(): argument 'index' (position 2) must be int, not %s", rl_py_type_text(index));
    if (!rl_py_to_device(first, &d))
        return NULL;
    if (index != Py_None) {
        if (d.index >= 0 || !PyUnicode_Check(first))
            return PyErr_Format(PyExc_RuntimeError, "type (string) must not include an index because index was passed explicitly: %S",
                                first);
        if (!index_value(index, &d.index))
            return NULL;
    }
    return rl_py_device(d);
}

static PyObject *device_str(PyObject *self) { return PyUnicode_FromString(rl_device_text(device_of(self))); }

static PyObject *device_repr(PyObject *self)
{
    rl_device d = device_of(self);
    if (d.index < 0)
        return PyUnicode_FromFormat("device(type='%s')", type_names[d.type]);
    return PyUnicode_FromFormat("device(type='%s', index=%d)", type_names[d.type], d.index);
}

static Py_hash_t device_hash(PyObject *self) { return (device_of(self).type << 8) + (uint8_t)device_of(self).index; }

static PyObject *device_compare(PyObject *a, PyObject *b, int op)
{
    if (op != Py_EQ && op != Py_NE)
        return PyErr_Format(PyExc_TypeError, "comparison not implemented");
    if (Py_TYPE(b) != rl_st->Device)
        Py_RETURN_NOTIMPLEMENTED;
    return PyBool_FromLong(rl_device_same(device_of(a), device_of(b)) == (op == Py_EQ));
}

static PyObject *device_get_type(PyObject *self, void *c) { return PyUnicode_FromString(type_names[device_of(self).type]); }

static PyObject *device_get_index(PyObject *self, void *c)
{
    if (device_of(self).index < 0)
        Py_RETURN_NONE;
    return PyLong_FromLong(device_of(self).index);
}

static PyObject *device_reduce(PyObject *self, PyObject *ignored)
{
    rl_device d = device_of(self);
    return d.index < 0 ? Py_BuildValue("O(s)", rl_st->Device, type_names[d.type])
        : Py_BuildValue("O(si)", rl_st->Device, type_names[d.type], d.index);
}

static PyObject *device_self(PyObject *self, PyObject *ignored) { return Py_NewRef(self); }

/* ---- as a context manager ---- */

#define DEVICE_STACK 32
static _Thread_local struct { bool had; rl_device device; } entered[DEVICE_STACK];
static _Thread_local int depth;

static PyObject *device_enter(PyObject *self, PyObject *ignored)
{
    rl_state *s = rl_state_get();
    if (depth == DEVICE_STACK)
        return PyErr_Format(PyExc_RuntimeError, "device contexts are nested more than %d deep", DEVICE_STACK);
    entered[depth].had = s->has_default_device;
    entered[depth++].device = s->default_device;
    s->has_default_device = true;
    s->default_device = device_of(self);
    return Py_NewRef(self);
}

static PyObject *device_exit(PyObject *self, PyObject *args)
{
    rl_state *s = rl_state_get();
    if (depth == 0)
        return PyErr_Format(PyExc_RuntimeError, "device context left without having been entered");
    s->has_default_device = entered[--depth].had;
    s->default_device = entered[depth].device;
    Py_RETURN_NONE;
}

static PyGetSetDef device_getset[] = {
    {"type", device_get_type, NULL, "'cpu', 'cuda' or 'meta'.", NULL},
    {"index", device_get_index, NULL, "The number of the device, or None.", NULL},
    {NULL},
};
static PyMethodDef device_methods[] = {
    {"__reduce__", device_reduce, METH_NOARGS, NULL}, {"__copy__", device_self, METH_NOARGS, NULL},
    {"__deepcopy__", device_self, METH_O, NULL},
    {"__enter__", device_enter, METH_NOARGS, NULL},   {"__exit__", device_exit, METH_VARARGS, NULL}, {NULL},
};
static PyType_Slot device_slots[] = {
    {Py_tp_dealloc, device_dealloc}, {Py_tp_new, device_new},   {Py_tp_repr, device_repr},       {Py_tp_str, device_str},
    {Py_tp_hash, device_hash},       {Py_tp_richcompare, device_compare}, {Py_tp_getset, device_getset}, {Py_tp_methods, device_methods},
    {Py_tp_doc, "device(type, index=None) -> device\n\nWhere a tensor's elements are: 'cpu', 'cuda', 'cuda:1'. With `with`, the default "
                "device of what is created inside."},
    {0, NULL},
};
static PyType_Spec device_spec = {"rushlight.device", sizeof(rl_py_device_object), 0, Py_TPFLAGS_DEFAULT, device_slots};

int rl_py_init_device(PyObject *m)
{
    rl_st->Device = rl_py_make_type(m, &device_spec, NULL, "device");
    if (!rl_st->Device)
        return -1;
    rl_st->cpu_device = rl_py_device((rl_device){RL_DEVICE_CPU, -1});
    return rl_st->cpu_device ? 0 : -1;
}
