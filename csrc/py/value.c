/* value.c: Python objects into the core's small values, and their names in messages.
 *
 * Invariant: rl_py_is_number runs no code of the object; the rl_py_to_* parsers raise what PyTorch raises. A NumPy scalar is
 * recognised by its type's name, so that NumPy is never imported for it.
 */
#include "internal.h"

#include <math.h>

const char *rl_py_prefix(void) { return rl_st->print_as_torch ? "torch" : "rushlight"; }

const char *rl_py_type_name(PyTypeObject *type)
{
    static const char own[] = "rushlight.";
    const char *name = type->tp_name;
    if (type == rl_st->Tensor)
        return "Tensor";
    if (strncmp(name, own, sizeof own - 1) != 0)
        return name;
    char *text = rl_text_buffer();
    snprintf(text, RL_TEXT_BYTES, "%s.%s", rl_py_prefix(), name + sizeof own - 1);
    return text;
}

const char *rl_py_type_text(PyObject *o) { return rl_py_type_name(Py_TYPE(o)); }

/* ---- numbers ---- */

typedef enum number_kind { NOT_NUMBER, NUMBER_BOOL, NUMBER_INT, NUMBER_FLOAT } number_kind;

static number_kind numpy_kind(PyTypeObject *type)
{
    const char *name = type->tp_name;
    if (strncmp(name, "numpy.", 6) != 0)
        return NOT_NUMBER;
    name += 6;
    if (strcmp(name, "bool_") == 0 || strcmp(name, "bool") == 0)
        return NUMBER_BOOL;
    if (strncmp(name, "int", 3) == 0 || strncmp(name, "uint", 4) == 0 || strcmp(name, "longlong") == 0 || strcmp(name, "ulonglong") == 0)
        return NUMBER_INT;
    return strncmp(name, "float", 5) == 0 || strcmp(name, "longdouble") == 0 ? NUMBER_FLOAT : NOT_NUMBER;
}

static number_kind kind_of(PyObject *o)
{
    if (PyFloat_Check(o))
        return NUMBER_FLOAT;
    if (PyBool_Check(o))
        return NUMBER_BOOL;
    if (PyLong_Check(o))
        return NUMBER_INT;
    return numpy_kind(Py_TYPE(o));
}

bool rl_py_is_number(PyObject *o) { return kind_of(o) != NOT_NUMBER; }
bool rl_py_is_int(PyObject *o) { return PyLong_CheckExact(o) || kind_of(o) == NUMBER_INT; }
bool rl_py_is_bool(PyObject *o) { return PyBool_Check(o) || kind_of(o) == NUMBER_BOOL; }

bool rl_py_to_int64(PyObject *o, int64_t *out)
{
    if (rl_py_small_int(o, out))
        return true;
    PyObject *index = PyNumber_Index(o);
    if (!index)
        return false;
    int overflow;
    *out = PyLong_AsLongLongAndOverflow(index, &overflow);
    if (overflow)
        PyErr_Format(PyExc_OverflowError, "Overflow when unpacking long long: %R", index);
    Py_DECREF(index);
    return !overflow && !(*out == -1 && PyErr_Occurred());
}

/* An int beyond int64 that fits uint64 wraps, as PyTorch's scalars do; beyond that it is an error. */
static bool int_scalar(PyObject *o, rl_scalar *out)
{
    int64_t i;
    if (rl_py_small_int(o, &i)) {
        *out = rl_scalar_int(i);
        return true;
    }
    PyObject *index = PyNumber_Index(o);
    if (!index)
        return false;
    int overflow;
    i = PyLong_AsLongLongAndOverflow(index, &overflow);
    if (overflow > 0)
        i = (int64_t)PyLong_AsUnsignedLongLong(index);
    else if (overflow < 0)
        PyErr_SetString(PyExc_OverflowError, "int too big to convert");
    Py_DECREF(index);
    *out = rl_scalar_int(i);
    return !PyErr_Occurred();
}

static bool tensor_scalar(PyObject *o, rl_scalar *out)
{
    rl_status st = rl_item(rl_py_unwrap(o), out);
    if (st != RL_OK)
        rl_py_raise(st);
    return st == RL_OK;
}

bool rl_py_to_scalar(PyObject *o, rl_scalar *out)
{
    if (PyFloat_CheckExact(o)) {
        *out = rl_scalar_float(PyFloat_AS_DOUBLE(o));
        return true;
    }
    if (o == Py_True || o == Py_False) {
        *out = rl_scalar_bool(o == Py_True);
        return true;
    }
    if (rl_py_is_tensor(o))
        return tensor_scalar(o, out);
    switch (kind_of(o)) {
    case NUMBER_INT:
        return int_scalar(o, out);
    case NUMBER_FLOAT:
        *out = rl_scalar_float(PyFloat_AsDouble(o));
        return !(out->d == -1.0 && PyErr_Occurred());
    case NUMBER_BOOL: {
        int truth = PyObject_IsTrue(o);
        *out = rl_scalar_bool(truth > 0);
        return truth >= 0;
    }
    default:
        PyErr_Format(PyExc_TypeError, "must be a number, not %s", rl_py_type_text(o));
        return false;
    }
}

PyObject *rl_py_scalar(rl_scalar s)
{
    if (s.kind == RL_CAT_FLOAT)
        return PyFloat_FromDouble(s.d);
    return s.kind == RL_CAT_BOOL ? PyBool_FromLong(s.i != 0) : PyLong_FromLongLong(s.i);
}

/* ---- lists of ints ---- */

/* An int inside a list: an int, a NumPy integer, an integer tensor of one element. False with an exception. */
bool rl_py_list_int(PyObject *o, int64_t *out)
{
    if (rl_py_small_int(o, out))
        return true;
    if (rl_py_is_tensor(o) ? rl_dtype_is_float((rl_dtype)rl_py_unwrap(o)->dtype) : !rl_py_is_int(o)) {
        PyErr_Format(PyExc_TypeError, "type must be tuple of ints,but got %s", rl_py_type_text(o));
        return false;
    }
    return rl_py_to_int64(o, out);
}

static bool one_int(PyObject *o, int64_t *v, int cap, int *n)
{
    if (cap < 1) {
        PyErr_SetString(PyExc_ValueError, "too many ints: at most 0");
        return false;
    }
    *n = 1;
    return rl_py_list_int(o, v);
}

bool rl_py_to_ints(PyObject *o, int64_t *v, int cap, int *n)
{
    if (PyLong_Check(o) || (rl_py_is_tensor(o) && rl_py_unwrap(o)->ndim == 0))
        return one_int(o, v, cap, n);
    PyObject *fast = PySequence_Fast(o, "expected a sequence of ints");
    if (!fast)
        return false;
    Py_ssize_t count = PySequence_Fast_GET_SIZE(fast);
    bool ok = count <= cap;
    if (!ok)
        PyErr_Format(PyExc_ValueError, "too many ints: %zd, at most %d", count, cap);
    /* The list may shrink under an element's __index__: its length is read each time. */
    for (Py_ssize_t k = 0; ok && k < count && k < PySequence_Fast_GET_SIZE(fast); k++) {
        PyObject *item = Py_NewRef(PySequence_Fast_GET_ITEM(fast, k));
        ok = rl_py_list_int(item, &v[k]);
        Py_DECREF(item);
    }
    if (ok && count > PySequence_Fast_GET_SIZE(fast)) {
        PyErr_SetString(PyExc_RuntimeError, "the list of ints changed while it was read");
        ok = false;
    }
    *n = (int)count;
    Py_DECREF(fast);
    return ok;
}
