/* default.c: the process's and the thread's defaults (dtype, device), promotion of dtypes, and the number of threads. */
#include "internal.h"
#include "../core/threads.h"

static PyObject *set_default_dtype(PyObject *m, PyObject *o)
{
    if (Py_TYPE(o) != rl_st->Dtype)
        return PyErr_Format(PyExc_TypeError, "invalid dtype object: only floating-point types are supported as the default type");
    rl_dtype d = ((rl_py_dtype_object *)o)->dtype;
    if (!rl_dtype_is_float(d))
        return PyErr_Format(PyExc_TypeError, "only floating-point types are supported as the default type");
    rl_state_set_default_dtype(d);
    Py_RETURN_NONE;
}

static PyObject *get_default_dtype(PyObject *m, PyObject *ignored) { return rl_py_dtype(rl_default_dtype()); }

static PyObject *set_default_device(PyObject *m, PyObject *o)
{
    rl_state *s = rl_state_get();
    rl_device d = {RL_DEVICE_CPU, -1};
    if (o != Py_None && !rl_py_to_device(o, &d))
        return NULL;
    s->has_default_device = o != Py_None;
    s->default_device = d;
    Py_RETURN_NONE;
}

static PyObject *get_default_device(PyObject *m, PyObject *ignored)
{
    rl_state *s = rl_state_get();
    return rl_py_device(s->has_default_device ? s->default_device : (rl_device){RL_DEVICE_CPU, -1});
}

static bool two_dtypes(const char *name, PyObject *const *args, Py_ssize_t n, rl_dtype d[2])
{
    if (n != 2) {
        PyErr_Format(PyExc_TypeError, "%s() takes 2 arguments but %zd were given", name, n);
        return false;
    }
    return rl_py_to_dtype(args[0], &d[0]) && rl_py_to_dtype(args[1], &d[1]);
}

static PyObject *promote_types(PyObject *m, PyObject *const *args, Py_ssize_t n)
{
    rl_dtype d[2];
    return two_dtypes("promote_types", args, n, d) ? rl_py_dtype(rl_dtype_promote(d[0], d[1])) : NULL;
}

static PyObject *can_cast(PyObject *m, PyObject *const *args, Py_ssize_t n)
{
    rl_dtype d[2];
    return two_dtypes("can_cast", args, n, d) ? PyBool_FromLong(rl_dtype_can_cast(d[0], d[1])) : NULL;
}

/* Operands by rank of priority: tensors with dimensions, 0-dim tensors, numbers; a lower rank matters only by a higher category. */
static bool result_operand(PyObject *o, rl_dtype *dtype, int *rank)
{
    if (rl_py_is_tensor(o)) {
        rl_tensor *t = rl_py_unwrap(o);
        *dtype = (rl_dtype)t->dtype;
        *rank = t->flags & RL_TF_WRAPPED_NUMBER ? 2 : t->ndim == 0;
        return true;
    }
    rl_scalar s;
    if (!rl_py_is_number(o)) {
        PyErr_Format(PyExc_TypeError, "result_type(): argument must be Tensor or Number, not %s", rl_py_type_text(o));
        return false;
    }
    if (!rl_py_to_scalar(o, &s))
        return false;
    *dtype = s.kind == RL_CAT_FLOAT ? rl_default_dtype() : s.kind == RL_CAT_INT ? RL_I64 : RL_BOOL;
    *rank = 2;
    return true;
}

static PyObject *result_type(PyObject *m, PyObject *const *args, Py_ssize_t n)
{
    rl_dtype d[2], by_rank[3] = {RL_DTYPE_NONE, RL_DTYPE_NONE, RL_DTYPE_NONE}, out = RL_DTYPE_NONE;
    int rank;
    if (n != 2)
        return PyErr_Format(PyExc_TypeError, "result_type() takes 2 arguments but %zd were given", n);
    for (int k = 0; k < 2; k++) {
        if (!result_operand(args[k], &d[k], &rank))
            return NULL;
        by_rank[rank] = by_rank[rank] == RL_DTYPE_NONE ? d[k] : rl_dtype_promote(by_rank[rank], d[k]);
    }
    for (int k = 0; k < 3; k++) {
        if (by_rank[k] == RL_DTYPE_NONE)
            continue;
        if (out == RL_DTYPE_NONE || rl_dtype_category(by_rank[k]) > rl_dtype_category(out))
            out = out == RL_DTYPE_NONE ? by_rank[k] : rl_dtype_promote(out, by_rank[k]);
    }
    return rl_py_dtype(out);
}

static PyObject *get_num_threads(PyObject *m, PyObject *ignored) { return PyLong_FromLong(rl_threads_get()); }

static PyObject *set_num_threads(PyObject *m, PyObject *o)
{
    int64_t n;
    if (!rl_py_is_int(o))
        return PyErr_Format(PyExc_TypeError, "set_num_threads expects an int, but got %s", rl_py_type_text(o));
    if (!rl_py_to_int64(o, &n))
        return NULL;
    if (n <= 0 || n > INT32_MAX)
        return PyErr_Format(PyExc_RuntimeError, "set_num_threads expects a positive integer, but got %lld", (long long)n);
    rl_status st = rl_threads_set((int)n);
    if (st != RL_OK)
        return rl_py_raise(st);
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"set_default_dtype", set_default_dtype, METH_O, "set_default_dtype(d)\n\nThe float dtype of new tensors of Python floats. Raises "
                                                     "TypeError for others."},
    {"get_default_dtype", get_default_dtype, METH_NOARGS, "get_default_dtype() -> dtype"},
    {"set_default_device", set_default_device, METH_O, "set_default_device(device)\n\nWhere this thread's new tensors are created; None: "
                                                       "the CPU."},
    {"get_default_device", get_default_device, METH_NOARGS, "get_default_device() -> device"},
    {"promote_types", (PyCFunction)(void (*)(void))promote_types, METH_FASTCALL,
     "promote_types(type1, type2) -> dtype\n\nThe smallest dtype that holds both."},
    {"can_cast", (PyCFunction)(void (*)(void))can_cast, METH_FASTCALL,
     "can_cast(from_, to) -> bool\n\nFalse where the category would fall (float to int)."},
    {"result_type", (PyCFunction)(void (*)(void))result_type, METH_FASTCALL,
     "result_type(tensor1, tensor2) -> dtype\n\nThe dtype of an operation on both."},
    {"get_num_threads", get_num_threads, METH_NOARGS, "get_num_threads() -> int"},
    {"set_num_threads", set_num_threads, METH_O, "set_num_threads(int)\n\nThreads of the CPU kernels; no result depends on it."},
    {NULL},
};

int rl_py_init_defaults(PyObject *m) { return PyModule_AddFunctions(m, methods); }
