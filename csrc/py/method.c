/* method.c: the methods of Tensor that are no operators: geometry, flags, subclassing. Their arguments are parsed from signatures like the
 * operators', with a direct way for the common calls.
 */
#include "signature.h"

#define METHOD(f) (PyCFunction)(void (*)(void))f
#define KEYWORDS (METH_FASTCALL | METH_KEYWORDS)

/* A subclass's own __torch_function__ for a method of this file: true when it took the call. */
static bool overridden(PyObject *self, const char *name, PyObject *const *args, Py_ssize_t nargs, PyObject **result)
{
    if (RL_LIKELY(rl_py_is_tensor_exact(self) && !rl_py_modes) || rl_py_override_off)
        return false;
    PyObject *stack[8] = {self}, *func;
    if (nargs > 7)
        return false;
    for (Py_ssize_t k = 0; k < nargs; k++)
        stack[k + 1] = args[k];
    func = PyObject_GetAttrString((PyObject *)rl_st->Tensor, name);
    *result = NULL;
    bool taken = !func || rl_py_torch_function(func, stack, nargs + 1, NULL, result);
    Py_XDECREF(func);
    return taken;
}

/* One optional `dim`: where it stands in `values`, or all of them. */
static PyObject *by_dim(rl_parser *p, PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames, const int64_t *values)
{
    rl_tensor *t = rl_py_unwrap(self);
    int64_t dim = 0;
    int at;
    bool given = nargs == 1 && !kwnames && rl_py_small_int(args[0], &dim);
    if (!given && (nargs || kwnames)) {
        rl_frame f;
        rl_call c;
        if (!rl_parse(p, self, args, nargs, kwnames, &f, &c))
            return NULL;
        given = c.args[1].given;
        dim = c.args[1].i;
        rl_frame_release(&f);
    }
    if (!given)
        return NULL;
    if (t->ndim == 0)
        return PyErr_Format(PyExc_IndexError, "Dimension specified as %lld but tensor has no dimensions", (long long)dim);
    rl_status st = rl_axis_normalize(dim, t->ndim, &at);
    return st == RL_OK ? PyLong_FromLongLong(values[at]) : rl_py_raise(st);
}

static PyObject *method_size(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    static rl_parser parser = {"size", "size(Tensor self, int? dim=None)", NULL};
    rl_tensor *t = rl_py_unwrap(self);
    PyObject *result;
    if (overridden(self, "size", args, nargs, &result))
        return result;
    result = by_dim(&parser, self, args, nargs, kwnames, t->shape);
    return result || PyErr_Occurred() ? result : rl_py_size(t->ndim, t->shape);
}

static PyObject *method_stride(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    static rl_parser parser = {"stride", "stride(Tensor self, int? dim=None)", NULL};
    rl_tensor *t = rl_py_unwrap(self);
    PyObject *result;
    if (overridden(self, "stride", args, nargs, &result))
        return result;
    result = by_dim(&parser, self, args, nargs, kwnames, t->strides);
    if (result || PyErr_Occurred())
        return result;
    result = PyTuple_New(t->ndim);
    for (int k = 0; result && k < t->ndim; k++) {
        PyObject *item = PyLong_FromLongLong(t->strides[k]);
        if (item)
            PyTuple_SET_ITEM(result, k, item);
        else
            Py_CLEAR(result);
    }
    return result;
}

static PyObject *method_dim(PyObject *self, PyObject *ignored) { return PyLong_FromLong(rl_py_unwrap(self)->ndim); }
static PyObject *method_numel(PyObject *self, PyObject *ignored) { return PyLong_FromLongLong(rl_py_unwrap(self)->numel); }
static PyObject *method_element_size(PyObject *self, PyObject *ignored) { return PyLong_FromLong(rl_tensor_itemsize(rl_py_unwrap(self))); }
static PyObject *method_storage_offset(PyObject *self, PyObject *ignored) { return PyLong_FromLongLong(rl_py_unwrap(self)->offset); }
static PyObject *method_is_float(PyObject *self, PyObject *ignored)
{
    return PyBool_FromLong(rl_dtype_is_float((rl_dtype)rl_py_unwrap(self)->dtype));
}
static PyObject *method_is_signed(PyObject *self, PyObject *ignored)
{
    return PyBool_FromLong(rl_dtype_table[rl_py_unwrap(self)->dtype].is_signed);
}
static PyObject *method_false(PyObject *self, PyObject *ignored) { Py_RETURN_FALSE; }
static PyObject *method_self(PyObject *self, PyObject *ignored) { return Py_NewRef(self); }
static PyObject *method_is_inference(PyObject *self, PyObject *ignored)
{
    return PyBool_FromLong(rl_py_unwrap(self)->flags & RL_TF_INFERENCE);
}
static PyObject *method_is_pinned(PyObject *self, PyObject *ignored) { return PyBool_FromLong(rl_py_unwrap(self)->storage->pinned); }

static PyObject *method_is_view(PyObject *self, PyObject *ignored)
{
    rl_tensor *t = rl_py_unwrap(self);
    return PyBool_FromLong(t->meta && t->meta->base);
}

static PyObject *method_data_ptr(PyObject *self, PyObject *ignored)
{
    rl_tensor *t = rl_py_unwrap(self);
    return PyLong_FromVoidPtr(t->numel ? rl_tensor_data(t) : NULL);
}

static PyObject *method_get_device(PyObject *self, PyObject *ignored)
{
    rl_device d = rl_tensor_device(rl_py_unwrap(self));
    return PyLong_FromLong(d.type == RL_DEVICE_CPU ? -1 : d.index);
}

static PyObject *method_is_contiguous(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    static rl_parser parser = {"is_contiguous", "is_contiguous(Tensor self, *, MemoryFormat memory_format=contiguous_format)", NULL};
    rl_tensor *t = rl_py_unwrap(self);
    int format = RL_FORMAT_CONTIGUOUS;
    if (nargs || kwnames) {
        rl_frame f;
        rl_call c;
        if (!rl_parse(&parser, self, args, nargs, kwnames, &f, &c))
            return NULL;
        format = c.args[1].memory_format;
        rl_frame_release(&f);
    }
    if (format == RL_FORMAT_PRESERVE)
        return PyErr_Format(PyExc_RuntimeError, "preserve memory format is unsupported by the contiguous operator");
    if (format == RL_FORMAT_CONTIGUOUS)
        return PyBool_FromLong(rl_tensor_is_contiguous(t));
    return PyBool_FromLong(t->ndim == (format == RL_FORMAT_CHANNELS_LAST ? 4 : 5) && rl_tensor_is_channels_last(t));
}

/* Two tensors from (self, other); false with an exception. */
static bool take_other(rl_parser *p, PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames, rl_tensor **other)
{
    rl_frame f;
    rl_call c;
    if (!rl_parse(p, self, args, nargs, kwnames, &f, &c))
        return false;
    *other = c.args[1].t;
    rl_frame_release(&f);
    return true;
}

static PyObject *method_is_same_size(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    static rl_parser parser = {"is_same_size", "is_same_size(Tensor self, Tensor other)", NULL};
    rl_tensor *other;
    if (!take_other(&parser, self, args, nargs, kwnames, &other))
        return NULL;
    return PyBool_FromLong(rl_tensor_same_shape(rl_py_unwrap(self), other));
}

static PyObject *method_is_set_to(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    static rl_parser parser = {"is_set_to", "is_set_to(Tensor self, Tensor tensor)", NULL};
    rl_tensor *t = rl_py_unwrap(self), *o;
    if (!take_other(&parser, self, args, nargs, kwnames, &o))
        return NULL;
    bool same = t->storage == o->storage && t->offset == o->offset && rl_tensor_same_shape(t, o);
    return PyBool_FromLong(same && memcmp(t->strides, o->strides, t->ndim * sizeof *t->strides) == 0);
}

static PyObject *method_is_nonzero(PyObject *self, PyObject *ignored)
{
    rl_tensor *t = rl_py_unwrap(self);
    if (t->numel != 1)
        return PyErr_Format(PyExc_RuntimeError, t->numel ? "Boolean value of Tensor with more than one value is ambiguous"
                                                         : "Boolean value of Tensor with no values is ambiguous");
    int truth = PyObject_IsTrue(self);
    return truth < 0 ? NULL : PyBool_FromLong(truth);
}

static PyObject *method_requires_grad_(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    static rl_parser parser = {"requires_grad_", "requires_grad_(Tensor self, bool requires_grad=True)", NULL};
    PyObject *result;
    bool on = true;
    if (overridden(self, "requires_grad_", args, nargs, &result))
        return result;
    if (nargs || kwnames) {
        rl_frame f;
        rl_call c;
        if (!rl_parse(&parser, self, args, nargs, kwnames, &f, &c))
            return NULL;
        on = c.args[1].b;
        rl_frame_release(&f);
    }
    if (rl_py_set_requires_grad(rl_py_unwrap(self), on, "only Tensors of floating point dtype can require gradients") < 0)
        return NULL;
    return Py_NewRef(self);
}

/* ---- subclasses ---- */

PyObject *rl_py_as_subclass(rl_tensor *t, PyTypeObject *cls)
{
    rl_tensor *out = NULL;
    rl_status st = rl_view(t, t->ndim, t->shape, &out);
    return st == RL_OK ? rl_py_wrap_as(out, cls) : rl_py_raise(st);
}

static bool subclass_ok(PyObject *cls)
{
    if (!PyType_Check(cls))
        return PyErr_Format(PyExc_TypeError, "cls must be a type (got %s)", rl_py_type_text(cls)), false;
    if (!PyType_IsSubtype((PyTypeObject *)cls, rl_st->Tensor))
        return PyErr_Format(PyExc_TypeError, "Creating a Tensor subclass from a class that does not inherit from Tensor is not possible. "
                                             "Make sure your class "
                                             "inherits from Tensor."), false;
    return true;
}

static PyObject *method_as_subclass(PyObject *self, PyObject *cls)
{
    return subclass_ok(cls) ? rl_py_as_subclass(rl_py_unwrap(self), (PyTypeObject *)cls) : NULL;
}

static PyObject *make_subclass(PyObject *ignored, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"cls", "data", "require_grad", NULL};
    PyObject *cls, *data;
    int grad = 0;
    rl_tensor *out = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO|p:_make_subclass", names, &cls, &data, &grad) || !subclass_ok(cls))
        return NULL;
    if (!rl_py_is_tensor(data))
        return PyErr_Format(PyExc_TypeError, "_make_subclass(): argument 'data' (position 2) must be Tensor, not %s",
                            rl_py_type_text(data));
    rl_status st = rl_tensor_alias(rl_py_unwrap(data), &out);
    if (st != RL_OK)
        return rl_py_raise(st);
    if (grad && rl_py_set_requires_grad(out, true, "Only Tensors of floating point and complex dtype can require gradients") < 0) {
        rl_tensor_release(out);
        return NULL;
    }
    return rl_py_wrap_as(out, (PyTypeObject *)cls);
}

PyMethodDef rl_py_tensor_methods[] = {
    {"size", METHOD(method_size), KEYWORDS, "size(dim=None) -> Size or int"},
    {"stride", METHOD(method_stride), KEYWORDS, "stride(dim=None) -> tuple or int"},
    {"dim", method_dim, METH_NOARGS, "dim() -> int"},
    {"ndimension", method_dim, METH_NOARGS, "ndimension() -> int\n\nThe same as dim()."},
    {"numel", method_numel, METH_NOARGS, "numel() -> int"},
    {"nelement", method_numel, METH_NOARGS, "nelement() -> int\n\nThe same as numel()."},
    {"element_size", method_element_size, METH_NOARGS, "element_size() -> int"},
    {"storage_offset", method_storage_offset, METH_NOARGS, "storage_offset() -> int\n\nIn elements."},
    {"data_ptr", method_data_ptr, METH_NOARGS, "data_ptr() -> int"},
    {"get_device", method_get_device, METH_NOARGS, "get_device() -> int\n\n-1 for the CPU."},
    {"is_contiguous", METHOD(method_is_contiguous), KEYWORDS, "is_contiguous(memory_format=contiguous_format) -> bool"},
    {"is_floating_point", method_is_float, METH_NOARGS, "is_floating_point() -> bool"},
    {"is_signed", method_is_signed, METH_NOARGS, "is_signed() -> bool"},
    {"is_complex", method_false, METH_NOARGS, "is_complex() -> bool"},
    {"is_conj", method_false, METH_NOARGS, "is_conj() -> bool"},
    {"is_neg", method_false, METH_NOARGS, "is_neg() -> bool"},
    {"_is_zerotensor", method_false, METH_NOARGS, NULL},
    {"has_names", method_false, METH_NOARGS, NULL},
    {"resolve_conj", method_self, METH_NOARGS, "resolve_conj() -> Tensor"},
    {"resolve_neg", method_self, METH_NOARGS, "resolve_neg() -> Tensor"},
    {"conj", method_self, METH_NOARGS, "conj() -> Tensor"},
    {"is_inference", method_is_inference, METH_NOARGS, "is_inference() -> bool"},
    {"is_pinned", method_is_pinned, METH_NOARGS, "is_pinned() -> bool"},
    {"_is_view", method_is_view, METH_NOARGS, NULL},
    {"is_same_size", METHOD(method_is_same_size), KEYWORDS, "is_same_size(other) -> bool"},
    {"is_set_to", METHOD(method_is_set_to), KEYWORDS, "is_set_to(tensor) -> bool"},
    {"is_nonzero", method_is_nonzero, METH_NOARGS, "is_nonzero() -> bool"},
    {"requires_grad_", METHOD(method_requires_grad_), KEYWORDS, "requires_grad_(requires_grad=True) -> Tensor"},
    {"as_subclass", method_as_subclass, METH_O, "as_subclass(cls) -> Tensor\n\nThe same elements and history as an object of cls."},
    {"_make_subclass", METHOD(make_subclass), METH_VARARGS | METH_KEYWORDS | METH_STATIC, NULL},
    {"__init_subclass__", METHOD(rl_py_init_subclass), METH_VARARGS | METH_KEYWORDS | METH_CLASS, NULL},
    {"__torch_function__", METHOD(rl_py_torch_function_method), METH_VARARGS | METH_KEYWORDS | METH_CLASS,
     "__torch_function__(func, types, args=(), kwargs=None)\n\nThe default of subclasses: results are of the subclass."},
    {NULL},
};

/* ---- the same as functions ---- */

#define FUNCTION(name)                                                                                                        \
    static PyObject *function_##name(PyObject *m, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)                 \
    {                                                                                                                         \
        static rl_parser parser = {#name, #name "(Tensor input)", NULL};                                                      \
        return call_method(&parser, args, nargs, kwnames);                                                                    \
    }

/* name(input) is input.name(). */
static PyObject *call_method(rl_parser *p, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    rl_frame f;
    rl_call c;
    if (!rl_parse(p, NULL, args, nargs, kwnames, &f, &c))
        return NULL;
    rl_frame_release(&f);
    return PyObject_CallMethod(args[0], p->name, NULL); /* the one argument, by position or by keyword */
}

FUNCTION(is_floating_point)
FUNCTION(is_signed)
FUNCTION(is_complex)
FUNCTION(is_conj)
FUNCTION(is_neg)
FUNCTION(is_inference)
FUNCTION(is_nonzero)
FUNCTION(numel)
FUNCTION(conj)
FUNCTION(resolve_conj)
FUNCTION(resolve_neg)
FUNCTION(get_device)

#define ROW(name, doc) {#name, METHOD(function_##name), KEYWORDS, doc}
static PyMethodDef functions[] = {
    ROW(is_floating_point, "is_floating_point(input) -> bool"), ROW(is_signed, "is_signed(input) -> bool"),
    ROW(is_complex, "is_complex(input) -> bool"),
    ROW(is_conj, "is_conj(input) -> bool"), ROW(is_neg, "is_neg(input) -> bool"), ROW(is_inference, "is_inference(input) -> bool"),
    ROW(is_nonzero, "is_nonzero(input) -> bool"), ROW(numel, "numel(input) -> int"), ROW(conj, "conj(input) -> Tensor"),
    ROW(resolve_conj, "resolve_conj(input) -> Tensor"), ROW(resolve_neg, "resolve_neg(input) -> Tensor"),
    ROW(get_device, "get_device(input) -> int"),
    {NULL},
};

int rl_py_init_methods(PyObject *m) { return PyModule_AddFunctions(m, functions); }
