/* saved.c: what the graph asks of Python: saved-tensor hooks, forward tracebacks of anomaly mode, the release of its Python objects.
 *
 * The stack of saved-tensor hooks is a thread's own; a thread without one never takes the GIL here. What pack returned is kept as the pair
 * (unpack, packed), so that each tensor is unpacked by the hook that was active when it was saved.
 */
#include "autograd.h"

static _Thread_local PyObject *stack; /* list of (pack, unpack), or NULL */

/* ---- callbacks of core ---- */

static void drop(void *py)
{
    rl_py_guard g;
    PyObject *o = py;
    if (!o || !Py_IsInitialized())
        return;
    rl_py_enter(&g);
    if (PyObject_TypeCheck(o, rl_st->Node))
        ((rl_py_node *)o)->n = NULL;
    Py_DECREF(o);
    rl_py_leave(&g);
}

static PyObject *call_module(const char *module, const char *function, const char *format, PyObject *arg)
{
    PyObject *m = PyImport_ImportModule(module);
    PyObject *result = m ? PyObject_CallMethod(m, function, format, arg) : NULL;
    Py_XDECREF(m);
    return result;
}

static void *traceback(void)
{
    rl_py_guard g;
    if (!Py_IsInitialized())
        return NULL;
    rl_py_enter(&g);
    PyObject *lines = call_module("traceback", "format_stack", NULL, NULL);
    PyErr_Clear();
    rl_py_leave(&g);
    return lines;
}

static void print_traceback(void *tb, const char *name)
{
    rl_py_guard g;
    if (!Py_IsInitialized())
        return;
    rl_py_enter(&g);
    PyObject *empty = PyUnicode_FromString(""), *text = tb && empty ? PyUnicode_Join(empty, tb) : NULL, *message = NULL;
    if (text)
        message = PyUnicode_FromFormat("Error detected in %s. Traceback of forward call that caused the error:\n%U", name, text);
    else
        message = PyUnicode_FromFormat("Error detected in %s. No forward pass information available. Enable detect anomaly during "
                                       "forward pass for "
                                       "more information.", name);
    PyObject *done = message ? call_module("warnings", "warn", "O", message) : NULL;
    Py_XDECREF(done);
    Py_XDECREF(message);
    Py_XDECREF(text);
    Py_XDECREF(empty);
    PyErr_Clear(); /* a warning that became an error must not hide the error itself */
    rl_py_leave(&g);
}

static PyObject *pack_call(PyObject *hooks, rl_tensor *t)
{
    rl_tensor *alias = NULL;
    rl_status st = rl_tensor_alias(t, &alias);
    if (st != RL_OK)
        return rl_py_raise(st);
    PyObject *arg = rl_py_wrap(alias);
    PyObject *packed = arg ? PyObject_CallOneArg(PyTuple_GET_ITEM(hooks, 0), arg) : NULL;
    Py_XDECREF(arg);
    PyObject *pair = packed ? PyTuple_Pack(2, PyTuple_GET_ITEM(hooks, 1), packed) : NULL;
    Py_XDECREF(packed);
    return pair;
}

static rl_status pack(rl_tensor *t, void **packed)
{
    *packed = NULL;
    if (!stack)
        return RL_OK;
    PyGILState_STATE gil = PyGILState_Ensure();
    Py_ssize_t n = PyList_GET_SIZE(stack);
    bool ok = true;
    if (n) {
        PyObject *hooks = Py_NewRef(PyList_GET_ITEM(stack, n - 1));
        *packed = pack_call(hooks, t);
        Py_DECREF(hooks);
        ok = *packed != NULL;
    }
    PyGILState_Release(gil);
    return ok ? RL_OK : RL_ERR_PYTHON;
}

static rl_status unpack(void *packed, rl_tensor **out)
{
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *pair = packed, *t = PyObject_CallOneArg(PyTuple_GET_ITEM(pair, 0), PyTuple_GET_ITEM(pair, 1));
    *out = NULL;
    if (t && rl_py_is_tensor(t))
        *out = rl_tensor_retain(rl_py_unwrap(t));
    else if (t)
        PyErr_Format(PyExc_TypeError, "Output of saved tensor unpack_hook expected to be a Tensor but got result of type "
                                      "%s", Py_TYPE(t)->tp_name);
    Py_XDECREF(t);
    PyGILState_Release(gil);
    return *out ? RL_OK : RL_ERR_PYTHON;
}

/* ---- from Python ---- */

static PyObject *disabled_message; /* of _disable_saved_hooks, the innermost */

static PyObject *push(PyObject *m, PyObject *const *args, Py_ssize_t n)
{
    if (n != 2 || !PyCallable_Check(args[0]) || !PyCallable_Check(args[1]))
        return PyErr_Format(PyExc_TypeError, "saved_tensors_hooks takes two callables: pack_hook and unpack_hook");
    if (rl_state_get()->saved_hooks_disabled)
        return PyErr_Format(PyExc_RuntimeError, "%U", disabled_message);
    if (!stack && !(stack = PyList_New(0)))
        return NULL;
    PyObject *pair = PyTuple_Pack(2, args[0], args[1]);
    int r = pair ? PyList_Append(stack, pair) : -1;
    Py_XDECREF(pair);
    return r < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *pop(PyObject *m, PyObject *ignored)
{
    Py_ssize_t n = stack ? PyList_GET_SIZE(stack) : 0;
    if (!n)
        return PyErr_Format(PyExc_RuntimeError, "no saved-tensor hooks are active on this thread");
    if (PyList_SetSlice(stack, n - 1, n, NULL) < 0)
        return NULL;
    if (n == 1)
        Py_CLEAR(stack);
    Py_RETURN_NONE;
}

/* _disable_saved_hooks(message) and (None) to allow them again; gives the message that stood before. */
static PyObject *disable(PyObject *m, PyObject *message)
{
    rl_state *state = rl_state_get();
    PyObject *old = disabled_message ? disabled_message : Py_NewRef(Py_None);
    if (message != Py_None && !PyUnicode_Check(message)) {
        if (!disabled_message)
            Py_DECREF(old);
        return PyErr_Format(PyExc_TypeError, "the message must be a str, not %s", Py_TYPE(message)->tp_name);
    }
    if (message != Py_None && stack && PyList_GET_SIZE(stack)) {
        if (!disabled_message)
            Py_DECREF(old);
        return PyErr_Format(PyExc_RuntimeError, "%U", message);
    }
    state->saved_hooks_disabled = message != Py_None;
    disabled_message = message == Py_None ? NULL : Py_NewRef(message);
    return old;
}

static PyMethodDef functions[] = {{"_push_saved_hooks", (PyCFunction)(void (*)(void))push, METH_FASTCALL, NULL},
                                  {"_pop_saved_hooks", pop, METH_NOARGS, NULL},
                                  {"_disable_saved_hooks", disable, METH_O, NULL},
                                  {NULL, NULL, 0, NULL}};

int rl_py_init_saved(PyObject *m)
{
    rl_graph_python =
        (rl_graph_py){.drop = drop, .traceback = traceback, .print_traceback = print_traceback, .pack = pack, .unpack = unpack};
    return PyModule_AddFunctions(m, functions);
}
