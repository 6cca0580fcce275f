/* number.c: the number protocol and comparisons of Tensor. Each slot is one row of the table, found by name when the module is loaded, so
 * that the rows may come in any order; what is neither tensor nor number gets NotImplemented, and Python words the error.
 */
#include "internal.h"

#define BINARY_SLOTS(X)                                                                                                             \
    X(add, "add") X(subtract, "sub") X(multiply, "mul") X(true_divide, "div") X(floor_divide, "floor_divide") X(remainder, "remainder") \
    X(matrix_multiply, "matmul") X(and, "bitwise_and") X(or, "bitwise_or") X(xor, "bitwise_xor") X(lshift, "bitwise_left_shift")    \
    X(rshift, "bitwise_right_shift")

enum {
#define X(slot, row) ROW_##slot,
    BINARY_SLOTS(X)
#undef X
    ROW_power, ROW_lt, ROW_le, ROW_eq, ROW_ne, ROW_gt, ROW_ge, ROW_negative, ROW_positive, ROW_absolute, ROW_invert, ROW_COUNT
};
static const char *const names[ROW_COUNT] = {
#define X(slot, row) row,
    BINARY_SLOTS(X)
#undef X
    "pow", "lt", "le", "eq", "ne", "gt", "ge", "neg", "positive", "abs", "bitwise_not",
};
static int rows[ROW_COUNT]; /* -1: the table has no such row */

#define X(slot, row)                                                                                                \
    static PyObject *number_##slot(PyObject *a, PyObject *b)                                                        \
    {                                                                                                               \
        return RL_LIKELY(rows[ROW_##slot] >= 0) ? rl_py_binary(rows[ROW_##slot], a, b) : Py_NewRef(Py_NotImplemented); \
    }
BINARY_SLOTS(X)
#undef X

#define INPLACE(slot)                                                                                                     \
    static PyObject *number_inplace_##slot(PyObject *a, PyObject *b)                                                      \
    {                                                                                                                     \
        return rows[ROW_##slot] >= 0 ? rl_py_binary_inplace(rows[ROW_##slot], a, b) : Py_NewRef(Py_NotImplemented);       \
    }
INPLACE(add)
INPLACE(subtract)
INPLACE(multiply)
INPLACE(true_divide)
INPLACE(floor_divide)
INPLACE(remainder)
INPLACE(and)
INPLACE(or)
INPLACE(xor)
INPLACE(lshift)
INPLACE(rshift)

static PyObject *number_power(PyObject *a, PyObject *b, PyObject *modulus)
{
    if (modulus != Py_None || rows[ROW_power] < 0)
        Py_RETURN_NOTIMPLEMENTED;
    return rl_py_binary(rows[ROW_power], a, b);
}

static PyObject *number_inplace_power(PyObject *a, PyObject *b, PyObject *modulus)
{
    if (modulus != Py_None || rows[ROW_power] < 0)
        Py_RETURN_NOTIMPLEMENTED;
    return rl_py_binary_inplace(rows[ROW_power], a, b);
}

static PyObject *unary(int row, PyObject *self)
{
    if (rows[row] < 0)
        return PyErr_Format(PyExc_NotImplementedError, "%s: there is no such operator", names[row]);
    PyObject *f = rl_py_public(&rl_op_table[rows[row]], 'M');
    return PyObject_Vectorcall(f ? f : rl_py_public(&rl_op_table[rows[row]], 'F'), &self, 1, NULL);
}
static PyObject *number_negative(PyObject *self) { return unary(ROW_negative, self); }
static PyObject *number_positive(PyObject *self) { return unary(ROW_positive, self); }
static PyObject *number_absolute(PyObject *self) { return unary(ROW_absolute, self); }

static PyObject *number_invert(PyObject *self)
{
    if (rl_dtype_is_float((rl_dtype)rl_py_unwrap(self)->dtype))
        return PyErr_Format(PyExc_TypeError, "~ (operator.invert) is only implemented on integer and Boolean-type tensors");
    return unary(ROW_invert, self);
}

static PyObject *number_compare(PyObject *a, PyObject *b, int op)
{
    int row = rows[ROW_lt + op];
    return RL_LIKELY(row >= 0) ? rl_py_binary(row, a, b) : Py_NewRef(Py_NotImplemented);
}

/* ---- to Python's numbers ---- */

static bool item(PyObject *self, rl_scalar *s)
{
    rl_status st = rl_item(rl_py_unwrap(self), s);
    if (st != RL_OK)
        rl_py_raise(st);
    return st == RL_OK;
}

static int number_bool(PyObject *self)
{
    rl_scalar s;
    rl_tensor *t = rl_py_unwrap(self);
    if (t->numel != 1) {
        PyErr_SetString(PyExc_RuntimeError, t->numel ? "Boolean value of Tensor with more than one value is ambiguous"
                                                     : "Boolean value of Tensor with no values is ambiguous");
        return -1;
    }
    if (!item(self, &s))
        return -1;
    return s.kind == RL_CAT_FLOAT ? s.d != 0 : s.i != 0;
}

static bool one_element(PyObject *self)
{
    if (rl_py_unwrap(self)->numel == 1)
        return true;
    PyErr_SetString(PyExc_ValueError, "only one element tensors can be converted to Python scalars");
    return false;
}

static PyObject *number_float(PyObject *self)
{
    rl_scalar s;
    return one_element(self) && item(self, &s) ? PyFloat_FromDouble(rl_scalar_to_double(s)) : NULL;
}

static PyObject *number_int(PyObject *self)
{
    rl_scalar s;
    if (!one_element(self) || !item(self, &s))
        return NULL;
    return s.kind == RL_CAT_FLOAT ? PyLong_FromDouble(s.d) : PyLong_FromLongLong(s.i);
}

static PyObject *number_index(PyObject *self)
{
    rl_scalar s;
    rl_tensor *t = rl_py_unwrap(self);
    if (t->numel != 1 || rl_dtype_is_float((rl_dtype)t->dtype))
        return PyErr_Format(PyExc_TypeError, "only integer tensors of a single element can be converted to an index");
    return item(self, &s) ? PyLong_FromLongLong(s.i) : NULL;
}

PyType_Slot rl_py_number_slots[] = {
#define X(slot, row) {Py_nb_##slot, number_##slot},
    BINARY_SLOTS(X)
#undef X
    {Py_nb_inplace_add, number_inplace_add},
    {Py_nb_inplace_subtract, number_inplace_subtract},
    {Py_nb_inplace_multiply, number_inplace_multiply},
    {Py_nb_inplace_true_divide, number_inplace_true_divide},
    {Py_nb_inplace_floor_divide, number_inplace_floor_divide},
    {Py_nb_inplace_remainder, number_inplace_remainder},
    {Py_nb_inplace_and, number_inplace_and},
    {Py_nb_inplace_or, number_inplace_or},
    {Py_nb_inplace_xor, number_inplace_xor},
    {Py_nb_inplace_lshift, number_inplace_lshift},
    {Py_nb_inplace_rshift, number_inplace_rshift},
    {Py_nb_inplace_power, number_inplace_power},
    {Py_nb_power, number_power},
    {Py_nb_negative, number_negative},
    {Py_nb_positive, number_positive},
    {Py_nb_absolute, number_absolute},
    {Py_nb_invert, number_invert},
    {Py_nb_bool, number_bool},
    {Py_nb_float, number_float},
    {Py_nb_int, number_int},
    {Py_nb_index, number_index},
    {Py_tp_richcompare, number_compare},
    {0, NULL},
};

int rl_py_init_number(PyObject *m)
{
    for (int k = 0; k < ROW_COUNT; k++) {
        const rl_op *op = rl_py_find_op(names[k]);
        rows[k] = op ? (int)(op - rl_op_table) : -1;
    }
    return 0;
}
