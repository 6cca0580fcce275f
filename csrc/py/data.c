/* data: batches of tensor data sets: rows picked by a list of numbers into new tensors, one call for all tensors of the set.
 *
 * _gather_rows gives what stacking tensor[i] for each i would, and None where that is more than copying rows (a tensor that requires grad,
 * a subclass, rows that are not contiguous, numbers that are no ints): the Python side then goes item by item. Nothing is made before every
 * number was checked. The GIL is released for copies above COPY_UNLOCKED bytes.
 */
#include "py.h"

enum { COPY_UNLOCKED = 512 * 1024, ROWS_INLINE = 512 };

static bool rows_are_simple(PyObject *o)
{
    if (!rl_py_is_tensor_exact(o))
        return false;
    rl_tensor *t = rl_py_unwrap(o);
    return t->ndim > 0 && rl_tensor_is_contiguous(t) && !rl_tensor_requires_grad(t) && rl_tensor_device(t).type == RL_DEVICE_CPU;
}

/* 1: rows[] holds the numbers, all in [0, size); 0: not a list of plain ints; -1: an exception. */
static int read_rows(PyObject *list, int64_t size, int64_t *rows)
{
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); i++) {
        int64_t v;
        PyObject *o = PyList_GET_ITEM(list, i);
        if (!rl_py_small_int(o, &v)) {
            if (!PyLong_CheckExact(o))
                return 0;
            v = PyLong_AsLongLong(o);
            if (v == -1 && PyErr_Occurred())
                return -1;
        }
        if (v < -size || v >= size) {
            PyErr_Format(PyExc_IndexError, "index %lld is out of bounds for dimension 0 with size %lld", (long long)v, (long long)size);
            return -1;
        }
        rows[i] = v < 0 ? v + size : v;
    }
    return 1;
}

static void copy_rows(char *to, const char *from, const int64_t *rows, int64_t n, size_t bytes)
{
    for (int64_t i = 0; i < n;) {
        int64_t run = 1; /* neighbours go in one piece: sequential sampling is one copy */
        while (i + run < n && rows[i + run] == rows[i] + run)
            run++;
        memcpy(to + (size_t)i * bytes, from + (size_t)rows[i] * bytes, (size_t)run * bytes);
        i += run;
    }
}

static PyObject *gather(rl_tensor *t, const int64_t *rows, int64_t n)
{
    int64_t shape[RL_MAX_NDIM], row_numel = 1;
    rl_tensor *out = NULL;
    for (int k = 1; k < t->ndim; k++)
        row_numel *= shape[k] = t->shape[k];
    shape[0] = n;
    rl_status st = rl_tensor_empty(t->ndim, shape, (rl_dtype)t->dtype, rl_tensor_device(t), &out);
    if (st != RL_OK)
        return rl_py_raise(st);
    size_t bytes = (size_t)row_numel * (size_t)rl_tensor_itemsize(t);
    if (out->numel == 0)
        return rl_py_wrap(out);
    if (bytes * (size_t)n < COPY_UNLOCKED) {
        copy_rows(rl_tensor_data(out), rl_tensor_data(t), rows, n, bytes);
        return rl_py_wrap(out);
    }
    rl_storage *source = rl_storage_retain(t->storage); /* t may be given another one while the GIL is free */
    const char *from = rl_tensor_data(t);
    Py_BEGIN_ALLOW_THREADS
    copy_rows(rl_tensor_data(out), from, rows, n, bytes);
    Py_END_ALLOW_THREADS
    rl_storage_release(source);
    return rl_py_wrap(out);
}

static PyObject *gather_all(PyObject *tensors, PyObject *list, int64_t *rows)
{
    Py_ssize_t n = PyTuple_GET_SIZE(tensors);
    PyObject *out = PyList_New(n);
    for (Py_ssize_t i = 0; out && i < n; i++) {
        rl_tensor *t = rl_py_unwrap(PyTuple_GET_ITEM(tensors, i));
        int ok = read_rows(list, t->shape[0], rows);
        PyObject *batch = ok == 1 ? gather(t, rows, PyList_GET_SIZE(list)) : ok == 0 ? Py_NewRef(Py_None) : NULL;
        if (!batch || ok == 0) {
            Py_DECREF(out);
            return batch;
        }
        PyList_SET_ITEM(out, i, batch);
    }
    return out;
}

static PyObject *gather_rows(PyObject *m, PyObject *const *args, Py_ssize_t nargs)
{
    int64_t small[ROWS_INLINE], *rows = small;
    if (nargs != 2 || !PyTuple_Check(args[0]) || !PyList_Check(args[1]))
        return PyErr_Format(PyExc_TypeError, "_gather_rows: expected a tuple of tensors and a list of ints");
    Py_ssize_t n = PyList_GET_SIZE(args[1]);
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args[0]); i++)
        if (!rows_are_simple(PyTuple_GET_ITEM(args[0], i)))
            Py_RETURN_NONE;
    if (n == 0)
        Py_RETURN_NONE;
    if (n > ROWS_INLINE && !(rows = PyMem_Malloc((size_t)n * sizeof *rows)))
        return PyErr_NoMemory();
    PyObject *list = PyList_GetSlice(args[1], 0, n); /* nobody changes this one while the GIL is free */
    PyObject *out = list ? gather_all(args[0], list, rows) : NULL;
    Py_XDECREF(list);
    if (rows != small)
        PyMem_Free(rows);
    return out;
}

static PyMethodDef functions[] = {{"_gather_rows", (PyCFunction)(void (*)(void))gather_rows, METH_FASTCALL,
                                   "_gather_rows(tensors, indices): the rows with these numbers of each tensor, or None: no plain copy."},
                                  {NULL, NULL, 0, NULL}};

int rl_py_init_data(PyObject *m)
{
    return PyModule_AddFunctions(m, functions);
}
