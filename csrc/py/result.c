/* result.c: the results of an operator as Python objects: a tensor, a named tuple (return_types), a tuple, or a bool. */
#include "internal.h"

typedef struct named_results {
    const char *op;
    const char *fields[4];
} named_results;

static const named_results named[] = {
    {"max", {"values", "indices"}},       {"min", {"values", "indices"}},        {"median", {"values", "indices"}},
    {"nanmedian", {"values", "indices"}}, {"mode", {"values", "indices"}},       {"kthvalue", {"values", "indices"}},
    {"sort", {"values", "indices"}},      {"topk", {"values", "indices"}},       {"cummax", {"values", "indices"}},
    {"cummin", {"values", "indices"}},    {"aminmax", {"min", "max"}},           {"frexp", {"mantissa", "exponent"}},
    {"slogdet", {"sign", "logabsdet"}},   {"qr", {"Q", "R"}},                    {"svd", {"U", "S", "V"}},
};
enum { NNAMED = sizeof named / sizeof *named };
static PyTypeObject *types[NNAMED];

static int find(const char *op)
{
    for (int k = 0; k < NNAMED; k++)
        if (strcmp(named[k].op, op) == 0)
            return k;
    return -1;
}

const char *const *rl_result_fields(const char *op)
{
    int k = find(op);
    return k < 0 ? NULL : named[k].fields;
}

/* ---- the types ---- */

/* torch.return_types.max(\nvalues=…,\nindices=…) */
static PyObject *named_repr(PyObject *self, PyObject *ignored)
{
    int k = 0;
    while (k < NNAMED && types[k] != Py_TYPE(self))
        k++;
    if (k == NNAMED)
        return PyUnicode_FromString("return_types");
    PyObject *text = PyUnicode_FromFormat("%s.return_types.%s(\n", rl_py_prefix(), named[k].op);
    for (Py_ssize_t j = 0; text && j < PyTuple_GET_SIZE(self); j++) {
        const char *end = j + 1 < PyTuple_GET_SIZE(self) ? ",\n" : ")";
        PyObject *piece = PyUnicode_FromFormat("%s=%R%s", named[k].fields[j], PyTuple_GET_ITEM(self, j), end);
        if (piece)
            PyUnicode_AppendAndDel(&text, piece);
        else
            Py_CLEAR(text);
    }
    return text;
}

static PyMethodDef named_methods[] = {{"__repr__", named_repr, METH_NOARGS, NULL}, {NULL}};

static PyTypeObject *make_type(int k)
{
    char *name = PyMem_Malloc(64); /* lives as long as the type: some Pythons keep the pointer */
    PyStructSequence_Field fields[4] = {0};
    if (!name)
        return NULL;
    snprintf(name, 64, "rushlight.return_types.%s", named[k].op);
    PyStructSequence_Desc desc = {.name = name, .doc = "The results of an operator.", .fields = fields};
    for (; named[k].fields[desc.n_in_sequence]; desc.n_in_sequence++)
        fields[desc.n_in_sequence].name = named[k].fields[desc.n_in_sequence];
    PyTypeObject *type = PyStructSequence_NewType(&desc);
    if (type && rl_py_add_methods(type, named_methods) < 0)
        Py_CLEAR(type);
    return type;
}

/* Made at first use: an import makes none of them. */
static PyTypeObject *type_of(int k)
{
    if (!types[k] && (types[k] = make_type(k)) && PyDict_SetItemString(rl_st->return_types, named[k].op, (PyObject *)types[k]) < 0)
        Py_CLEAR(types[k]);
    return types[k];
}

/* _return_type(name): for the module rushlight.return_types. */
static PyObject *return_type(PyObject *m, PyObject *name)
{
    const char *text = PyUnicode_AsUTF8(name);
    int k = text ? find(text) : -1;
    if (k < 0 && !PyErr_Occurred())
        PyErr_Format(PyExc_AttributeError, "module 'rushlight.return_types' has no attribute '%U'", name);
    return k < 0 ? NULL : Py_XNewRef((PyObject *)type_of(k));
}

static PyObject *return_type_names(PyObject *m, PyObject *ignored)
{
    PyObject *list = PyList_New(0);
    for (int k = 0; list && k < NNAMED; k++) {
        PyObject *name = PyUnicode_FromString(named[k].op);
        if (!name || PyList_Append(list, name) < 0)
            Py_CLEAR(list);
        Py_XDECREF(name);
    }
    return list;
}

static PyMethodDef methods[] = {{"_return_type", return_type, METH_O, NULL}, {"_return_type_names", return_type_names, METH_NOARGS, NULL},
                                {NULL}};

int rl_py_init_results(PyObject *m)
{
    rl_st->return_types = PyDict_New();
    return rl_st->return_types ? PyModule_AddFunctions(m, methods) : -1;
}

/* ---- wrapping ---- */

static PyObject *wrap_list(rl_result *r)
{
    PyObject *tuple = PyTuple_New(r->n);
    for (int k = 0; tuple && k < r->n; k++) {
        rl_tensor *t = r->list[k];
        r->list[k] = NULL;
        PyObject *item = rl_py_wrap(t);
        if (item)
            PyTuple_SET_ITEM(tuple, k, item);
        else
            Py_CLEAR(tuple);
    }
    rl_result_clear(r);
    return tuple;
}

static PyObject *wrap_several(const rl_op *op, rl_result *r)
{
    int k = find(op->name);
    PyTypeObject *type = k < 0 ? NULL : type_of(k);
    PyObject *tuple = k < 0 ? PyTuple_New(r->n) : type ? PyStructSequence_New(type) : NULL;
    for (int j = 0; tuple && j < r->n; j++) {
        rl_tensor *t = r->t[j];
        r->t[j] = NULL;
        PyObject *item = rl_py_wrap(t);
        if (item)
            PyTuple_SET_ITEM(tuple, j, item);
        else
            Py_CLEAR(tuple);
    }
    rl_result_clear(r);
    return tuple;
}

static PyObject *wrap_bool(rl_result *r)
{
    rl_scalar s;
    rl_status st = rl_item(r->t[0], &s);
    rl_result_clear(r);
    return st == RL_OK ? PyBool_FromLong(s.i != 0) : rl_py_raise(st);
}

PyObject *rl_py_wrap_result(const rl_op *op, int overload, rl_result *r)
{
    if (r->is_list)
        return wrap_list(r);
    if (RL_UNLIKELY(strchr(op->forms, 'B') != NULL))
        return wrap_bool(r);
    if (RL_LIKELY(r->n == 1))
        return rl_py_wrap(r->t[0]);
    if (r->n == 0)
        Py_RETURN_NONE;
    return wrap_several(op, r);
}
