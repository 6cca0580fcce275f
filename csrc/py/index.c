/* index.c: Tensor.__getitem__ and __setitem__: what an index means.
 *
 * An index is walked once, left to right: ints, slices, None and Ellipsis become views at once (select, slice, unsqueeze), tensors and
 * lists are collected by the dimension they stand at, and rl_index or rl_index_put_ takes them together at the end. The order, the
 * treatment of lists and the messages are PyTorch's. Invariant: everything is checked before an assignment writes.
 */
#include "convert.h"

typedef struct rl_indexing {
    rl_tensor *x;                    /* the view so far: owned */
    rl_tensor *index[RL_MAX_NDIM];   /* owned; NULL: a full slice */
    int n, covered, dim;             /* slots used and the dimensions they stand for; the dimension that the next item is for */
    bool advanced;
} rl_indexing;

static void indexing_clear(rl_indexing *w)
{
    rl_tensor_clear(&w->x);
    for (int k = 0; k < w->n; k++)
        rl_tensor_clear(&w->index[k]);
}

static bool raise(rl_status st)
{
    rl_py_raise(st);
    return false;
}

/* ---- one item ---- */

static bool replace(rl_indexing *w, rl_status st, rl_tensor **view)
{
    if (st != RL_OK)
        return raise(st);
    rl_tensor_release(w->x);
    w->x = *view;
    return true;
}

static bool too_many(const rl_indexing *w)
{
    PyErr_Format(PyExc_IndexError, "too many indices for tensor of dimension %d", w->x->ndim);
    return false;
}

static bool add_select(rl_indexing *w, int64_t i, int position)
{
    rl_tensor *view = NULL;
    if (w->x->ndim == 0) {
        PyErr_SetString(PyExc_IndexError, "invalid index of a 0-dim tensor. Use `tensor.item()` in Python or `tensor.item<T>()` in C++ "
                                          "to convert a "
                                          "0-dim tensor to a number");
        return false;
    }
    if (w->dim >= w->x->ndim)
        return too_many(w);
    int64_t size = w->x->shape[w->dim];
    if (i >= size || i < -size) {
        PyErr_Format(PyExc_IndexError, "index %lld is out of bounds for dimension %d with size %lld", (long long)i, position,
                     (long long)size);
        return false;
    }
    return replace(w, rl_select(w->x, w->dim, i, &view), &view);
}

/* `always`: a full slice too is a node of its own, as for a lone slice. */
static bool add_slice(rl_indexing *w, PyObject *o, bool always)
{
    Py_ssize_t start, stop, step;
    rl_tensor *view = NULL;
    if (w->x->ndim == 0) {
        PyErr_SetString(PyExc_IndexError, "slice() cannot be applied to a 0-dim tensor.");
        return false;
    }
    if (w->dim >= w->x->ndim)
        return too_many(w);
    if (PySlice_Unpack(o, &start, &stop, &step) < 0)
        return false;
    if (step < 0) {
        PyErr_SetString(PyExc_ValueError, "step must be greater than zero");
        return false;
    }
    int64_t size = w->x->shape[w->dim];
    PySlice_AdjustIndices((Py_ssize_t)size, &start, &stop, step);
    if (stop < start)
        stop = start;
    int dim = w->dim++;
    if (!always && start == 0 && stop == size && step == 1)
        return true;
    return replace(w, rl_slice(w->x, dim, start, stop, step, &view), &view);
}

static bool add_none(rl_indexing *w)
{
    rl_tensor *view = NULL;
    return replace(w, rl_unsqueeze(w->x, w->dim, &view), &view);
}

/* Takes over t. Integers become int64, bytes a mask. */
static bool add_tensor(rl_indexing *w, rl_tensor *t)
{
    rl_tensor *cast = NULL;
    rl_status st = RL_OK;
    if (w->dim >= RL_MAX_NDIM || rl_dtype_is_float((rl_dtype)t->dtype) || t->dtype == RL_I8 || t->dtype == RL_I16) {
        PyErr_SetString(PyExc_IndexError, w->dim >= RL_MAX_NDIM ? "too many indices" : "tensors used as indices must be long, int, byte "
                                                                                       "or bool tensors");
        rl_tensor_release(t);
        return false;
    }
    if (t->dtype == RL_U8 || t->dtype == RL_I32) {
        if (t->dtype == RL_U8 && PyErr_WarnEx(PyExc_UserWarning, "indexing with dtype uint8 is now deprecated, please use a dtype bool "
                                                                 "instead.", 1) < 0) {
            rl_tensor_release(t);
            return false;
        }
        st = rl_cast(t, t->dtype == RL_U8 ? RL_BOOL : RL_I64, &cast);
        rl_tensor_release(t);
        if (st != RL_OK)
            return raise(st);
        t = cast;
    }
    for (; w->covered < w->dim; w->covered++)
        w->index[w->n++] = NULL;
    w->index[w->n++] = t;
    w->covered += t->dtype == RL_BOOL ? t->ndim : 1;
    w->dim = w->covered;
    w->advanced = true;
    return true;
}

/* True adds a dimension of one that is kept, False one that is emptied. */
static bool add_bool(rl_indexing *w, bool value)
{
    rl_tensor *t = NULL;
    int64_t n = value;
    if (!add_none(w))
        return false;
    rl_status st = rl_zeros(1, &n, RL_I64, rl_tensor_device(w->x), &t);
    return st == RL_OK ? add_tensor(w, t) : raise(st);
}

static bool add_tensor_object(rl_indexing *w, rl_tensor *t, int position)
{
    rl_scalar s;
    if (t->ndim != 0 || rl_dtype_is_float((rl_dtype)t->dtype))
        return add_tensor(w, rl_tensor_retain(t));
    rl_status st = rl_item(t, &s);
    if (st != RL_OK)
        return raise(st);
    if (t->dtype == RL_BOOL || t->dtype == RL_U8)
        return add_bool(w, s.i != 0);
    return add_select(w, s.i, position);
}

/* Lists, ranges, NumPy arrays: booleans are masks, all other numbers indices. */
static bool add_sequence(rl_indexing *w, PyObject *o, int position)
{
    rl_tensor *cast = NULL;
    bool array = rl_py_is_array(o);
    rl_tensor *t = array ? rl_py_array_copy(o) : rl_py_sequence_tensor(o, RL_DTYPE_NONE);
    if (!t)
        return false;
    if (array && t->ndim == 0) {
        bool ok = add_tensor_object(w, t, position);
        rl_tensor_release(t);
        return ok;
    }
    if (t->dtype != RL_I64 && t->dtype != RL_BOOL && t->dtype != RL_U8) {
        rl_status st = rl_cast(t, RL_I64, &cast);
        rl_tensor_release(t);
        if (st != RL_OK)
            return raise(st);
        t = cast;
    }
    return add_tensor(w, t);
}

static bool to_index(PyObject *o, int64_t *out)
{
    if (rl_py_small_int(o, out))
        return true;
    PyObject *index = PyNumber_Index(o);
    int overflow = 0;
    if (!index)
        return false;
    *out = PyLong_AsLongLongAndOverflow(index, &overflow);
    Py_DECREF(index);
    if (overflow)
        PyErr_SetString(PyExc_ValueError, "Overflow when unpacking long long");
    return !overflow && !(*out == -1 && PyErr_Occurred());
}

static bool add_item(rl_indexing *w, PyObject *o, int position, int ellipsis)
{
    int64_t i;
    if (rl_py_small_int(o, &i))
        return add_select(w, i, position);
    if (PySlice_Check(o))
        return add_slice(w, o, false);
    if (o == Py_Ellipsis) {
        w->dim += ellipsis;
        return true;
    }
    if (o == Py_None) {
        bool ok = add_none(w);
        w->dim++;
        return ok;
    }
    if (PyBool_Check(o))
        return add_bool(w, o == Py_True);
    if (rl_py_is_tensor(o))
        return add_tensor_object(w, rl_py_unwrap(o), position);
    if (PyIndex_Check(o) && !rl_py_is_array(o))
        return to_index(o, &i) && add_select(w, i, position);
    if (PySequence_Check(o))
        return add_sequence(w, o, position);
    PyErr_Format(PyExc_IndexError, "only integers, slices (`:`), ellipsis (`...`), None and long or byte Variables are valid indices "
                                   "(got %s)",
                 Py_TYPE(o)->tp_name);
    return false;
}

/* ---- the whole index ---- */

/* NumPy's old rule: a short list that holds more than plain numbers means a tuple. */
static bool is_tuple_like(PyObject *o)
{
    if (PyTuple_Check(o))
        return true;
    if (!PySequence_Check(o) || rl_py_is_tensor(o) || rl_py_is_array(o) || PyUnicode_Check(o) || PyBytes_Check(o))
        return false;
    Py_ssize_t n = PySequence_Size(o);
    if (n < 0 || n >= 32) {
        PyErr_Clear();
        return false;
    }
    for (Py_ssize_t k = 0; k < n; k++) {
        PyObject *item = PySequence_GetItem(o, k);
        if (!item) {
            PyErr_Clear();
            return false;
        }
        bool yes = rl_py_is_tensor(item) || (PySequence_Check(item) && !rl_py_is_array_scalar(item)) || PySlice_Check(item) ||
                   item == Py_Ellipsis || item == Py_None;
        Py_DECREF(item);
        if (yes)
            return true;
    }
    return false;
}

/* How many dimensions the items take away from the tensor. */
static int dims_of(PyObject *const *items, Py_ssize_t n)
{
    int count = 0;
    for (Py_ssize_t k = 0; k < n; k++) {
        PyObject *o = items[k];
        if (rl_py_is_tensor(o)) {
            const rl_tensor *t = rl_py_unwrap(o);
            count += t->dtype == RL_BOOL || t->dtype == RL_U8 ? t->ndim : 1;
        } else if (o != Py_None && o != Py_Ellipsis && !PyBool_Check(o)) {
            count++;
        }
    }
    return count;
}

/* Applies the index to self; on false w is clear. */
static bool walk(rl_indexing *w, rl_tensor *self, PyObject *index)
{
    PyObject *tuple = is_tuple_like(index) ? PySequence_Tuple(index) : PyTuple_Pack(1, index);
    w->x = rl_tensor_retain(self);
    w->n = w->covered = w->dim = 0;
    w->advanced = false;
    bool ok = tuple != NULL;
    PyObject *const *items = ok ? ((PyTupleObject *)tuple)->ob_item : NULL;
    Py_ssize_t n = ok ? PyTuple_GET_SIZE(tuple) : 0;
    int taken = dims_of(items, n);
    if (ok && taken > self->ndim && !(self->ndim == 0 && n == 1)) {
        PyErr_Format(PyExc_IndexError, "too many indices for tensor of dimension %d", self->ndim);
        ok = false;
    }
    for (Py_ssize_t k = 0; ok && k < n; k++)
        ok = add_item(w, items[k], (int)k, self->ndim - taken);
    Py_XDECREF(tuple);
    if (!ok)
        indexing_clear(w);
    return ok;
}

/* Calls __torch_function__ of a subclass; true when it took the call. */
static bool overridden(const char *name, PyObject *const *args, Py_ssize_t n, PyObject **result)
{
    PyObject *func = PyObject_GetAttrString((PyObject *)rl_st->Tensor, name);
    *result = NULL;
    bool taken = !func || rl_py_torch_function(func, args, n, NULL, result);
    Py_XDECREF(func);
    return taken;
}

/* x[...]: a view of the whole, recorded as such. */
static rl_status alias(rl_tensor *x, rl_tensor **out)
{
    rl_call call = {.op = &rl_op_table[RL_OP_alias], .nargs = 1, .args = {{.given = true, .t = x}}};
    rl_result result = {0};
    rl_status st = rl_op_invoke(&call, &result);
    *out = st == RL_OK ? result.t[0] : NULL;
    return st;
}

PyObject *rl_py_getitem(PyObject *self, PyObject *index)
{
    rl_tensor *x = rl_py_unwrap(self), *out = NULL;
    rl_indexing w;
    int64_t i;
    rl_status st;
    if (RL_UNLIKELY(!rl_py_is_tensor_exact(self) || (rl_py_is_tensor(index) && !rl_py_is_tensor_exact(index)))) {
        PyObject *args[] = {self, index}, *result;
        if (overridden("__getitem__", args, 2, &result))
            return result;
    }
    if (rl_fast_paths && rl_py_small_int(index, &i) && x->ndim && i < x->shape[0] && i >= -x->shape[0]) {
        st = rl_select(x, 0, i, &out);
        return rl_py_give(st, &out);
    }
    if (PySlice_Check(index)) {
        w = (rl_indexing){.x = rl_tensor_retain(x)};
        if (add_slice(&w, index, true))
            return rl_py_wrap(w.x);
        indexing_clear(&w);
        return NULL;
    }
    if (!walk(&w, x, index))
        return NULL;
    if (w.advanced)
        st = rl_index(w.x, w.index, w.n, &out);
    else if (w.x == x)
        st = alias(x, &out);
    else
        st = RL_OK, out = rl_tensor_retain(w.x);
    indexing_clear(&w);
    return rl_py_give(st, &out);
}

/* ---- assignment ---- */

/* The value as a tensor of x's dtype for numbers; tensors as they are. New reference. */
static rl_tensor *value_tensor(PyObject *o, rl_tensor *x)
{
    rl_tensor *t = NULL;
    if (rl_py_is_tensor(o))
        return rl_tensor_retain(rl_py_unwrap(o));
    if (PyBool_Check(o) || PyLong_Check(o) || PyFloat_Check(o) || rl_py_is_array_scalar(o))
        t = rl_py_sequence_tensor(o, (rl_dtype)x->dtype);
    else
        PyErr_Format(PyExc_TypeError, "can't assign a %s to a %s.%s", Py_TYPE(o)->tp_name, rl_py_prefix(),
                     rl_dtype_table[x->dtype].tensor_type);
    return t;
}

/* Leading dimensions of size one are dropped, so that (1, 1, 3) goes where (3) fits. */
static rl_status strip_ones(rl_tensor **value, int ndim)
{
    rl_tensor *v = *value, *view = NULL;
    int k = 0;
    if (v->ndim <= ndim)
        return RL_OK;
    while (k < v->ndim && v->shape[k] == 1)
        k++;
    if (k == 0)
        return RL_OK;
    rl_status st = rl_view(v, v->ndim - k, v->shape + k, &view);
    if (st == RL_OK) {
        rl_tensor_release(v);
        *value = view;
    }
    return st;
}

/* x[i] = number for a plain tensor in one dimension: no view, no value tensor. 1: done, 0: not this case, -1: an exception. */
static int set_element(rl_tensor *x, PyObject *index, PyObject *value)
{
    int64_t i;
    double d;
    if (x->ndim != 1 || !PyFloat_CheckExact(value) || x->dtype < RL_F16 || !rl_py_small_int(index, &i) || rl_tensor_requires_grad(x) ||
        x->meta ||
        x->storage->read_only || (x->flags & RL_TF_INFERENCE) || rl_tensor_device(x).type != RL_DEVICE_CPU)
        return 0;
    if (i < 0)
        i += x->shape[0];
    if (i < 0 || i >= x->shape[0])
        return 0;
    d = PyFloat_AS_DOUBLE(value);
    rl_element_store((char *)rl_tensor_data(x) + i * x->strides[0] * rl_tensor_itemsize(x), (rl_dtype)x->dtype, rl_scalar_float(d));
    rl_tensor_bump(x);
    return 1;
}

/* One number under one mask is a masked fill, which converts; other values must have x's dtype. */
static rl_status cast_fill(const rl_indexing *w, rl_tensor **value)
{
    rl_tensor *v = *value, *cast = NULL;
    int given = 0;
    for (int k = 0; k < w->n; k++)
        given += w->index[k] != NULL;
    if (v->numel != 1 || v->dtype == w->x->dtype || given != 1 || w->index[w->n - 1]->dtype != RL_BOOL)
        return RL_OK;
    rl_status st = rl_cast(v, (rl_dtype)w->x->dtype, &cast);
    if (st == RL_OK) {
        rl_tensor_release(v);
        *value = cast;
    }
    return st;
}

int rl_py_setitem(PyObject *self, PyObject *index, PyObject *value)
{
    rl_tensor *x = rl_py_unwrap(self), *v = NULL;
    rl_indexing w;
    rl_status st = RL_OK;
    if (!value) {
        PyErr_SetString(PyExc_TypeError, "Tensor does not support deleting items");
        return -1;
    }
    if (RL_UNLIKELY(!rl_py_is_tensor_exact(self) || (rl_py_is_tensor(value) && !rl_py_is_tensor_exact(value)))) {
        PyObject *args[] = {self, index, value}, *result;
        if (overridden("__setitem__", args, 3, &result)) {
            Py_XDECREF(result);
            return result ? 0 : -1;
        }
    }
    if (set_element(x, index, value))
        return 0;
    v = value_tensor(value, x);
    if (!v)
        return -1;
    if (index == Py_False) {
        rl_tensor_release(v);
        return 0;
    }
    if (!walk(&w, x, index)) {
        rl_tensor_release(v);
        return -1;
    }
    RL_TRY(strip_ones(&v, w.advanced ? -1 : w.x->ndim));
    if (!w.advanced && v->ndim && !rl_tensor_same_shape(v, w.x)) {
        rl_tensor *expanded = NULL;
        RL_TRY(rl_expand(v, w.x->ndim, w.x->shape, &expanded));
        rl_tensor_release(v);
        v = expanded;
    }
    if (w.advanced)
        RL_TRY(cast_fill(&w, &v));
    RL_TRY(w.advanced ? rl_index_put_(w.x, w.index, w.n, v, false) : rl_copy_(w.x, v));
fail:
    rl_tensor_release(v);
    indexing_clear(&w);
    if (st != RL_OK)
        rl_py_raise(st);
    return st == RL_OK ? 0 : -1;
}

Py_ssize_t rl_py_length(PyObject *self)
{
    const rl_tensor *t = rl_py_unwrap(self);
    if (t->ndim == 0) {
        PyErr_SetString(PyExc_TypeError, "len() of a 0-d tensor");
        return -1;
    }
    return (Py_ssize_t)t->shape[0];
}

int rl_py_init_index(PyObject *m) { return 0; }
