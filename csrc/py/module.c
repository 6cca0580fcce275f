/* module.c: the extension module: its one state, the order in which the parts are added, errors, and what the core may ask of Python.
 *
 * Invariant: rl_st points to the one state of the process. The module is initialised in phases and once: a second interpreter is refused
 * with ImportError, because tensors carry pointers to wrappers of the first. The state is never freed: C threads may outlive the
 * interpreter's end.
 */
#include "internal.h"
#include "../core/alloc.h"
#include "../cpu/cpu.h"

static rl_py_state state;
rl_py_state *rl_st = &state;
static bool taken;
static int64_t owner_interpreter;

/* ---- errors ---- */

static PyObject *error_class(rl_status st)
{
    switch (st) {
    case RL_ERR_TYPE: return PyExc_TypeError;
    case RL_ERR_VALUE: return PyExc_ValueError;
    case RL_ERR_INDEX: return PyExc_IndexError;
    case RL_ERR_MEMORY: return rl_st->OutOfMemoryError ? rl_st->OutOfMemoryError : PyExc_MemoryError;
    case RL_ERR_NOT_IMPLEMENTED: return PyExc_NotImplementedError;
    case RL_ERR_OVERFLOW: return PyExc_OverflowError;
    case RL_ERR_OS: return PyExc_OSError;
    case RL_ERR_ZERO_DIVISION: return PyExc_ZeroDivisionError;
    default: return PyExc_RuntimeError;
    }
}

PyObject *rl_py_raise(rl_status st)
{
    if (PyErr_Occurred())
        return NULL;
    if (st == RL_ERR_INTERRUPT) {
        if (PyErr_CheckSignals() == 0)
            PyErr_SetNone(PyExc_KeyboardInterrupt);
        return NULL;
    }
    const char *text = rl_last_message();
    PyObject *message = PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace"); /* the core cuts long messages anywhere */
    if (message)
        PyErr_SetObject(error_class(st), message);
    Py_XDECREF(message);
    return NULL;
}

/* ---- what the core asks of Python ---- */

static bool check_interrupt(void)
{
    PyGILState_STATE gil = PyGILState_Ensure();
    bool pending = PyErr_CheckSignals() < 0;
    PyGILState_Release(gil);
    return pending;
}

static void *leave(void) { return PyEval_SaveThread(); }
static void enter(void *left) { PyEval_RestoreThread(left); }

/* ---- functions of the module ---- */

static PyObject *set_print_as_torch(PyObject *m, PyObject *on)
{
    int truth = PyObject_IsTrue(on);
    if (truth < 0)
        return NULL;
    rl_st->print_as_torch = truth;
    Py_RETURN_NONE;
}

static PyObject *alloc_fail_after(PyObject *m, PyObject *n)
{
    int64_t count;
    return rl_py_to_int64(n, &count) ? PyLong_FromLongLong(rl_alloc_fail_after(count)) : NULL;
}

static PyObject *host_memory(PyObject *m, PyObject *ignored)
{
    rl_host_stats s;
    rl_host_stats_read(&s);
    return Py_BuildValue("{s:L,s:L,s:L,s:L,s:L,s:L}", "live_bytes", (long long)s.live_bytes, "peak_bytes", (long long)s.peak_bytes,
                         "cached_bytes",
                         (long long)s.cached_bytes, "allocations", (long long)s.allocations, "frees", (long long)s.frees, "pool_bytes",
                         (long long)s.pool_bytes);
}

static PyObject *host_trim(PyObject *m, PyObject *ignored)
{
    rl_host_trim();
    Py_RETURN_NONE;
}

static PyObject *cpu_level(PyObject *m, PyObject *ignored) { return PyUnicode_FromString(rl_cpu_level_chosen()); }

/* Every level of this build that this machine can run, from the lowest. */
static PyObject *cpu_levels(PyObject *m, PyObject *ignored)
{
    static const char *const all[] = {"baseline", "avx2", "avx512"};
    static const bool built[] = {true,
#ifdef RL_HAVE_LEVEL_AVX2
                                 true,
#else
                                 false,
#endif
#ifdef RL_HAVE_LEVEL_AVX512
                                 true
#else
                                 false
#endif
    };
    PyObject *list = PyList_New(0);
    for (int k = 0; list && k < 3; k++) {
        PyObject *name = built[k] ? PyUnicode_FromString(all[k]) : NULL;
        if (built[k] && (!name || PyList_Append(list, name) < 0))
            Py_CLEAR(list);
        Py_XDECREF(name);
        if (strcmp(all[k], rl_cpu_level_best()) == 0)
            break;
    }
    return list;
}

static PyObject *is_tensor(PyObject *m, PyObject *o) { return PyBool_FromLong(rl_py_is_tensor(o)); }

static PyMethodDef module_methods[] = {
    {"_set_print_as_torch", set_print_as_torch, METH_O, "Prints dtypes, devices and types as torch's."},
    {"_alloc_fail_after", alloc_fail_after, METH_O, "For tests: the n-th allocation from now fails once; 0: off. Returns the allocations "
                                                    "since the last call."},
    {"_host_memory", host_memory, METH_NOARGS, "Bytes of host memory: live, peak, cached, of small blocks, and counts."},
    {"_host_trim", host_trim, METH_NOARGS, "Gives cached host memory back to the system."},
    {"_cpu_level", cpu_level, METH_NOARGS, "The instruction level of the CPU kernels in use."},
    {"_cpu_levels", cpu_levels, METH_NOARGS, "The instruction levels of this build that this machine can run."},
    {"is_tensor", is_tensor, METH_O, "is_tensor(obj) -> bool"},
    {NULL},
};

/* ---- loading ---- */

static int init_state(PyObject *m)
{
    static const struct { PyObject **slot; const char *text; } names[] = {
        {&state.s_torch_function, "__torch_function__"}, {&state.s_dtype, "dtype"}, {&state.s_device, "device"},
        {&state.s_requires_grad, "requires_grad"}, {&state.s_out, "out"}};
    state.module = Py_NewRef(m);
    for (size_t k = 0; k < sizeof names / sizeof *names; k++)
        if (!(*names[k].slot = PyUnicode_InternFromString(names[k].text)))
            return -1;
    if (!(state.empty_tuple = PyTuple_New(0)))
        return -1;
    PyObject *bases = PyTuple_Pack(2, PyExc_RuntimeError, PyExc_MemoryError);
    state.OutOfMemoryError = bases ? PyErr_NewExceptionWithDoc("rushlight.OutOfMemoryError", "An allocation that does not fit in memory.",
                                                               bases, NULL) : NULL;
    Py_XDECREF(bases);
    if (!state.OutOfMemoryError || PyModule_AddObjectRef(m, "OutOfMemoryError", state.OutOfMemoryError) < 0)
        return -1;
    rl_py.check_interrupt = check_interrupt;
    rl_py.leave = leave;
    rl_py.enter = enter;
    return 0;
}

/* __all__: every public name but the operators that only the package's own code calls. */
static int add_all(PyObject *m)
{
    PyObject *names = PyObject_GetAttrString(m, "_functions"), *all = PyList_New(0), *key, *value;
    Py_ssize_t at = 0;
    int failed = !names || !all;
    while (!failed && PyDict_Next(PyModule_GetDict(m), &at, &key, &value)) {
        bool op = Py_IS_TYPE(value, rl_st->OpFunction) || Py_IS_TYPE(value, rl_st->OpMethod);
        int listed = op ? PySequence_Contains(names, key) : 1;
        bool shown = listed == 1 && PyUnicode_READ_CHAR(key, 0) != '_' && !(PyType_Check(value) && value == (PyObject *)rl_st->OpFunction);
        failed = listed < 0 || (shown && PyList_Append(all, key) < 0);
    }
    failed = failed || PyModule_AddObjectRef(m, "__all__", all) < 0;
    Py_XDECREF(names);
    Py_XDECREF(all);
    return failed ? -1 : 0;
}

/* Imported again after its entry in sys.modules was dropped: the same module. */
static PyObject *module_create(PyObject *spec, PyModuleDef *def)
{
    bool same = taken && PyInterpreterState_GetID(PyInterpreterState_Get()) == owner_interpreter;
    if (same && state.module)
        return Py_NewRef(state.module);
    PyObject *name = PyObject_GetAttrString(spec, "name");
    PyObject *m = name ? PyModule_NewObject(name) : NULL;
    Py_XDECREF(name);
    return m;
}

static int module_exec(PyObject *m)
{
    if (m == state.module)
        return 0;
    static int (*const parts[])(PyObject *) = {
        rl_py_init_types,  rl_py_init_tensor, rl_py_init_ops,     rl_py_init_convert,     rl_py_init_index, rl_py_init_autograd,
        rl_py_init_random, rl_py_init_storage, rl_py_init_module_type, rl_py_init_optim, rl_py_init_data,
    };
    int64_t interpreter = PyInterpreterState_GetID(PyInterpreterState_Get());
    if (taken) {
        bool here = interpreter == owner_interpreter;
        PyErr_SetString(PyExc_ImportError, here ? "rushlight._C could not be loaded before and cannot be loaded again"
                                                : "rushlight._C is loaded in another interpreter of this process");
        return -1;
    }
    taken = true;
    owner_interpreter = interpreter;
    if (rl_cpu_backend() == NULL) {
        rl_py_raise(RL_ERR_RUNTIME);
        return -1;
    }
    const char *fast = getenv("RUSHLIGHT_FAST");
    rl_fast_paths = !fast || strcmp(fast, "0") != 0;
    rl_ops_init();
    if (init_state(m) < 0 || PyModule_AddFunctions(m, module_methods) < 0)
        return -1;
    for (size_t k = 0; k < sizeof parts / sizeof *parts; k++)
        if (parts[k](m) < 0)
            return -1;
    return add_all(m);
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_create, module_create},
    {Py_mod_exec, module_exec},
#if PY_VERSION_HEX >= 0x030c0000
    {Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED},
#endif
#if PY_VERSION_HEX >= 0x030d0000
    {Py_mod_gil, Py_MOD_GIL_USED},
#endif
    {0, NULL},
};
static PyModuleDef module_def = {PyModuleDef_HEAD_INIT, .m_name = "rushlight._C", .m_doc = "The C core of rushlight.",
                                 .m_slots = module_slots};

__attribute__((visibility("default"))) PyMODINIT_FUNC PyInit__C(void) { return PyModuleDef_Init(&module_def); }
