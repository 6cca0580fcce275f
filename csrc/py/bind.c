/* bind.c: binds the arguments of one Python call to a compiled signature: the path of every call that has no faster one.
 *
 * Invariant: everything a bound call points to lives until rl_frame_release: tensors of lists are retained, because the code of an
 * argument (an __index__) may change the list while it is read; direct arguments are held by the caller.
 */
#include "signature.h"

/* ---- the frame ---- */

static void *frame_block(rl_frame *f, size_t bytes)
{
    void *p = f->nblocks < RL_FRAME_BLOCKS ? PyMem_Malloc(bytes) : NULL;
    if (!p)
        PyErr_NoMemory();
    else
        f->blocks[f->nblocks++] = p;
    return p;
}

static int64_t *frame_ints(rl_frame *f, Py_ssize_t n)
{
    if (n > RL_FRAME_INTS - f->nints)
        return frame_block(f, (size_t)n * sizeof(int64_t));
    f->nints += (int)n;
    return f->ints + f->nints - n;
}

static rl_tensor **frame_tensors(rl_frame *f, Py_ssize_t n)
{
    if (n > RL_FRAME_TENSORS - f->ntensors)
        return frame_block(f, (size_t)n * sizeof(rl_tensor *));
    f->ntensors += (int)n;
    return f->tensors + f->ntensors - n;
}

void rl_frame_release(rl_frame *f)
{
    for (int k = 0; k < f->nlists; k++)
        for (int j = 0; j < f->lists[k].n; j++)
            rl_tensor_release(f->lists[k].v[j]);
    while (f->nblocks > 0)
        PyMem_Free(f->blocks[--f->nblocks]);
    f->nlists = 0;
}

/* ---- one argument ---- */

static bool scalar_tensor(PyObject *o)
{
    return rl_py_is_tensor(o) && rl_py_unwrap(o)->ndim == 0 && !rl_tensor_requires_grad(rl_py_unwrap(o));
}

static bool int_tensor(PyObject *o) { return scalar_tensor(o) && !rl_dtype_is_float((rl_dtype)rl_py_unwrap(o)->dtype); }

static int take_tensor(const rl_param *p, PyObject *o, rl_arg *a)
{
    if (rl_py_is_tensor(o)) {
        a->t = rl_py_unwrap(o);
        return 1;
    }
    a->t = NULL;
    if (!p->numbers || !rl_py_is_number(o))
        return 0;
    return rl_py_to_scalar(o, &a->s) ? 1 : -1;
}

/* An exception inside a list: PyTorch says where, and what the element's own message was. */
static int unpack_failed(const rl_frame *f, const rl_param *p, Py_ssize_t at)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    if (type && (PyErr_GivenExceptionMatches(type, PyExc_TypeError) || PyErr_GivenExceptionMatches(type, PyExc_OverflowError))) {
        PyErr_NormalizeException(&type, &value, &traceback);
        PyErr_Format(PyExc_TypeError, "%U(): argument '%U' failed to unpack the object at pos %zd with error \"%S\"", f->function, p->name,
                     at + 1, value);
        Py_XDECREF(type);
        Py_XDECREF(value);
        Py_XDECREF(traceback);
    } else {
        PyErr_Restore(type, value, traceback);
    }
    return -1;
}

static Py_ssize_t list_size(PyObject *o) { return PyTuple_Check(o) ? PyTuple_GET_SIZE(o) : PyList_GET_SIZE(o); }
static PyObject *list_item(PyObject *o, Py_ssize_t k) { return PyTuple_Check(o) ? PyTuple_GET_ITEM(o, k) : PyList_GET_ITEM(o, k); }

static int list_changed(const rl_frame *f)
{
    PyErr_Format(PyExc_RuntimeError, "%U(): a list changed while it was read", f->function);
    return -1;
}

static bool int_like(PyObject *o)
{
    return rl_py_is_int(o) || (rl_py_is_tensor(o) && !rl_dtype_is_float((rl_dtype)rl_py_unwrap(o)->dtype));
}

static int take_ints(rl_frame *f, const rl_param *p, PyObject *o, rl_arg *a)
{
    if (!PyTuple_Check(o) && !PyList_Check(o)) {
        int64_t lone, *v;
        if (!p->fixed || !(rl_py_is_int(o) || int_tensor(o)))
            return 0;
        if (!rl_py_to_int64(o, &lone) || !(v = frame_ints(f, p->fixed)))
            return -1;
        for (int k = 0; k < p->fixed; k++)
            v[k] = lone;
        a->ints.v = v;
        a->ints.n = p->fixed;
        return 1;
    }
    Py_ssize_t n = list_size(o);
    if (n > 0 && !int_like(list_item(o, 0)))
        return 0;
    int64_t *v = frame_ints(f, n);
    if (!v && n > 0)
        return -1;
    for (Py_ssize_t k = 0; k < n; k++) {
        if (k >= list_size(o))
            return list_changed(f);
        PyObject *item = list_item(o, k);
        if (rl_py_small_int(item, &v[k]))
            continue;
        Py_INCREF(item);
        bool ok = rl_py_list_int(item, &v[k]);
        Py_DECREF(item);
        if (!ok)
            return unpack_failed(f, p, k);
    }
    a->ints.v = v;
    a->ints.n = (int32_t)n;
    return 1;
}

/* f(2, 3) for f((2, 3)). */
static int take_varargs(rl_frame *f, const rl_param *p, PyObject *const *args, Py_ssize_t nargs, rl_arg *a)
{
    int64_t *v = frame_ints(f, nargs);
    if (!v)
        return -1;
    for (Py_ssize_t k = 0; k < nargs; k++)
        if (!rl_py_list_int(args[k], &v[k]))
            return unpack_failed(f, p, k);
    a->ints.v = v;
    a->ints.n = (int32_t)nargs;
    a->given = true;
    return 1;
}

static int take_floats(rl_frame *f, const rl_param *p, PyObject *o, rl_arg *a)
{
    if (!PyTuple_Check(o) && !PyList_Check(o))
        return 0;
    Py_ssize_t n = list_size(o);
    if (n > 0 && !rl_py_is_number(list_item(o, 0)))
        return 0;
    double *v = frame_block(f, (size_t)(n ? n : 1) * sizeof *v);
    if (!v)
        return -1;
    for (Py_ssize_t k = 0; k < n; k++) {
        if (k >= list_size(o))
            return list_changed(f);
        PyObject *item = Py_NewRef(list_item(o, k));
        v[k] = PyFloat_AsDouble(item);
        Py_DECREF(item);
        if (v[k] == -1.0 && PyErr_Occurred())
            return unpack_failed(f, p, k);
    }
    a->floats.v = v;
    a->floats.n = (int32_t)n;
    return 1;
}

static int take_tensors(rl_frame *f, const rl_param *p, PyObject *o, rl_arg *a)
{
    if (p->slot == RL_SLOT_OUT && rl_py_is_tensor(o)) {
        rl_tensor **one = frame_tensors(f, 1);
        if (!one)
            return -1;
        *one = rl_py_unwrap(o);
        a->tensors.v = one;
        a->tensors.n = 1;
        return 1;
    }
    if ((!PyTuple_Check(o) && !PyList_Check(o)) || f->nlists == 4)
        return 0;
    Py_ssize_t n = list_size(o);
    for (Py_ssize_t k = 0; k < n; k++) {
        PyObject *item = list_item(o, k);
        if (!rl_py_is_tensor(item) && !(p->holes && item == Py_None)) {
            PyErr_Format(PyExc_TypeError, "expected Tensor as element %zd in argument %d, but got %s", k, p->slot < 0 ? 0 : p->slot,
                         rl_py_type_text(item));
            return -1;
        }
    }
    rl_tensor **v = frame_tensors(f, n);
    if (!v && n > 0)
        return -1;
    for (Py_ssize_t k = 0; k < n; k++) {
        PyObject *item = list_item(o, k);
        v[k] = item == Py_None ? NULL : rl_tensor_retain(rl_py_unwrap(item));
    }
    f->lists[f->nlists].v = v;
    f->lists[f->nlists++].n = (int)n;
    a->tensors.v = v;
    a->tensors.n = (int32_t)n;
    return 1;
}

static int take_number(const rl_param *p, PyObject *o, rl_arg *a)
{
    if (p->type == RL_PT_INT) {
        if (rl_py_small_int(o, &a->i))
            return 1;
        return rl_py_is_int(o) || int_tensor(o) ? (rl_py_to_int64(o, &a->i) ? 1 : -1) : 0;
    }
    if (p->type == RL_PT_BOOL) {
        if (!rl_py_is_bool(o))
            return 0;
        int truth = PyObject_IsTrue(o);
        a->b = truth > 0;
        return truth < 0 ? -1 : 1;
    }
    if (!rl_py_is_number(o) && !scalar_tensor(o))
        return 0;
    rl_scalar s;
    if (!rl_py_to_scalar(o, &s))
        return -1;
    if (p->type == RL_PT_SCALAR)
        a->s = s;
    else
        a->f = rl_scalar_to_double(s);
    return 1;
}

static bool is_dtype(PyObject *o)
{
    return Py_TYPE(o) == rl_st->Dtype || o == (PyObject *)&PyFloat_Type || o == (PyObject *)&PyLong_Type || o == (PyObject *)&PyBool_Type;
}

int rl_param_take(rl_frame *f, const rl_param *p, PyObject *o, rl_arg *a)
{
    switch ((rl_ptype)p->type) {
    case RL_PT_TENSOR: return take_tensor(p, o, a);
    case RL_PT_TENSORS: return take_tensors(f, p, o, a);
    case RL_PT_INTS: return take_ints(f, p, o, a);
    case RL_PT_FLOATS:
    case RL_PT_SCALARS: return take_floats(f, p, o, a);
    case RL_PT_SCALAR:
    case RL_PT_INT:
    case RL_PT_FLOAT:
    case RL_PT_BOOL: return take_number(p, o, a);
    case RL_PT_STR:
        if (!PyUnicode_Check(o))
            return 0;
        return (a->str = PyUnicode_AsUTF8(o)) ? 1 : -1;
    case RL_PT_DTYPE: return is_dtype(o) ? (rl_py_to_dtype(o, &a->dtype) ? 1 : -1) : 0;
    case RL_PT_LAYOUT: return Py_TYPE(o) == rl_st->Layout;
    case RL_PT_DEVICE:
        if (Py_TYPE(o) != rl_st->Device && !PyUnicode_Check(o) && !rl_py_is_int(o))
            return 0;
        return rl_py_to_device(o, &a->device) ? 1 : -1;
    case RL_PT_FORMAT:
        if (Py_TYPE(o) != rl_st->MemoryFormat)
            return 0;
        a->memory_format = ((rl_py_format_object *)o)->format;
        return 1;
    case RL_PT_GENERATOR:
        if (!rl_st->Generator || !PyObject_TypeCheck(o, rl_st->Generator))
            return 0;
        a->generator = ((rl_py_generator_object *)o)->generator;
        return 1;
    }
    return 0;
}

/* ---- one overload ---- */

static PyObject *find_spelling(PyObject *name, PyObject *const *values, PyObject *kwnames)
{
    Py_ssize_t n = PyTuple_GET_SIZE(kwnames);
    for (Py_ssize_t k = 0; k < n; k++)
        if (PyTuple_GET_ITEM(kwnames, k) == name)
            return values[k];
    for (Py_ssize_t k = 0; k < n; k++) /* names built at run time are not interned */
        if (!PyUnicode_CHECK_INTERNED(PyTuple_GET_ITEM(kwnames, k)) && PyUnicode_Compare(PyTuple_GET_ITEM(kwnames, k), name) == 0)
            return values[k];
    return NULL;
}

static PyObject *find_keyword(const rl_param *p, PyObject *const *values, PyObject *kwnames)
{
    PyObject *o = find_spelling(p->name, values, kwnames);
    for (int k = 0; !o && p->spelling[k]; k++)
        o = find_spelling(p->spelling[k], values, kwnames);
    return o;
}

static int store(rl_frame *f, const rl_param *p, PyObject *o, rl_call *call)
{
    rl_arg local, *a = p->slot >= 0 ? &call->args[p->slot] : &local;
    int took = rl_param_take(f, p, o, a);
    if (took <= 0)
        return took;
    a->given = true;
    if (p->slot == RL_SLOT_REQUIRES_GRAD) {
        f->requires_grad = a->b;
    } else if (p->slot == RL_SLOT_OUT && p->type == RL_PT_TENSOR) {
        call->out[call->nout++] = a->t;
    } else if (p->slot == RL_SLOT_OUT) {
        if (a->tensors.n > RL_MAX_RESULTS)
            return 0;
        for (int k = 0; k < a->tensors.n; k++)
            call->out[call->nout++] = a->tensors.v[k];
    }
    return 1;
}

/* Cannot be the first argument of this overload: the common reasons, found before anything is filled in. */
static inline bool hopeless(const rl_signature *s, PyObject *o)
{
    const rl_param *p = s->params;
    if (s->npos == 0)
        return true;
    if (p->type == RL_PT_DTYPE)
        return o != Py_None && !is_dtype(o);
    return p->type == RL_PT_TENSOR && !p->numbers && (PyLong_CheckExact(o) || PyFloat_CheckExact(o));
}

/* 1: bound; 0: this overload does not take them; -1: an exception. */
static int bind_one(const rl_signature *s, PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames, rl_frame *f,
                    rl_call *call)
{
    Py_ssize_t at = 0, left = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
    if ((nargs > s->npos && !s->varargs) || (nargs && hopeless(s, args[0])))
        return 0;
    memcpy(call->args, s->defaults, (size_t)s->nargs * sizeof *s->defaults);
    call->overload = s->overload;
    call->nargs = s->nargs;
    call->nout = 0;
    if (s->receiver >= 0) {
        call->args[s->receiver].t = rl_py_unwrap(self);
        call->args[s->receiver].given = true;
    }
    for (int k = 0; k < s->nparams; k++) {
        const rl_param *p = &s->params[k];
        bool positional = at < nargs;
        if (positional && p->kwonly)
            return 0;
        PyObject *o = positional ? args[at] : left ? find_keyword(p, args + nargs, kwnames) : NULL;
        if (!o) {
            if (!p->has_default)
                return 0;
            continue;
        }
        if (o != Py_None || !(p->optional || (p->default_text && strcmp(p->default_text, "None") == 0))) {
            int took = positional && at == 0 && s->varargs && int_like(o) ? 2 : store(f, p, o, call);
            if (took == 2) {
                if (take_varargs(f, p, args, nargs, &call->args[p->slot]) < 0)
                    return -1;
                at = nargs - 1;
            } else if (took <= 0) {
                return took;
            }
        }
        at += positional;
        left -= !positional;
    }
    return at == nargs && left == 0 && (!s->needs_tensor || call->args[0].t || call->args[1].t);
}

bool rl_bind(const rl_overloads *o, const rl_op *op, PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames,
             rl_frame *f,
             rl_call *call)
{
    call->op = op;
    call->inplace = false;
    rl_frame_init(f);
    f->function = o->name;
    for (int k = 0; k < o->n; k++) {
        int bound = bind_one(&o->v[k], self, args, nargs, kwnames, f, call);
        if (bound > 0)
            return true;
        rl_frame_release(f);
        if (bound < 0)
            return false;
        rl_frame_init(f);
    }
    rl_mismatch(o, self, args, nargs, kwnames);
    return false;
}

bool rl_parse(rl_parser *p, PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames, rl_frame *f, rl_call *call)
{
    if (!p->compiled && !(p->compiled = rl_overloads_compile_text(p->name, p->text, self != NULL)))
        return false;
    return rl_bind(p->compiled, NULL, self, args, nargs, kwnames, f, call);
}
