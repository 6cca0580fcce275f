/* optim: one C call a step over a parameter group, and the norm of many gradients.
 *
 * Invariant: the group's dict and the optimizer's `state` are the only truth; nothing is kept between steps. Everything is read and checked
 * before anything is written: a step that fails, or that this file does not take, has changed nothing.
 *
 * _optim_step returns 0: done; 1: a state is missing (the Python side makes it and calls again); 2: not for the kernel (differentiable,
 * mixed layouts or dtypes, foreign state), the composed formula runs instead.
 */
#include "py.h"

/* Interned names, in the order of name_texts. */
enum { N_PARAMS, N_LR, N_MOMENTUM, N_DAMPENING, N_WEIGHT_DECAY, N_NESTEROV, N_MAXIMIZE, N_DIFFERENTIABLE, N_BETAS, N_EPS, N_AMSGRAD,
       N_DECOUPLED, N_ALPHA, N_CENTERED, N_LR_DECAY, N_STEP, N_BUFFER, N_EXP_AVG, N_EXP_AVG_SQ, N_MAX_EXP_AVG_SQ, N_SQUARE_AVG, N_GRAD_AVG,
       N_SUM, N_COUNT };
static const char *const name_texts[N_COUNT] = {
    "params", "lr", "momentum", "dampening", "weight_decay", "nesterov", "maximize", "differentiable", "betas", "eps", "amsgrad",
    "decoupled_weight_decay", "alpha", "centered", "lr_decay", "step", "momentum_buffer", "exp_avg", "exp_avg_sq", "max_exp_avg_sq",
    "square_avg", "grad_avg", "sum"};
static PyObject *names[N_COUNT];

enum { DONE = 0, MISSING = 1, COMPOSE = 2, ERROR = -1 };

typedef struct row {
    rl_tensor *p, *g, *state[3], *step; /* borrowed, but a fresh state[0] */
    double t;
    PyObject *dict;
    bool fresh, run; /* fresh: SGD's buffer does not stand in the dict yet */
} row;

#define INLINE_ROWS 32
typedef struct job {
    rl_optim_args a;
    PyObject *group, *state;
    int slots[3]; /* the name of each state, -1: none */
    bool steps;
    Py_ssize_t n;
    row *rows, inline_rows[INLINE_ROWS];
} job;

/* ---- reading the group ---- */

static PyObject *item(PyObject *d, int name)
{
    PyObject *v = PyDict_GetItemWithError(d, names[name]);
    if (!v && !PyErr_Occurred())
        PyErr_SetObject(PyExc_KeyError, names[name]);
    return v;
}

static bool to_double(PyObject *v, double *out)
{
    if (PyFloat_CheckExact(v)) {
        *out = PyFloat_AS_DOUBLE(v);
        return true;
    }
    if (rl_py_is_tensor(v)) {
        rl_scalar s;
        rl_status st = rl_item(rl_py_unwrap(v), &s);
        if (st != RL_OK)
            return rl_py_raise(st) != NULL;
        *out = rl_scalar_to_double(s);
        return true;
    }
    *out = PyFloat_AsDouble(v);
    return !(*out == -1 && PyErr_Occurred());
}

static bool get_double(PyObject *d, int name, double *out)
{
    PyObject *v = item(d, name);
    return v && to_double(v, out);
}

/* A missing or None flag is false: groups of older files lack the newer ones. */
static bool get_flag(PyObject *d, int name, uint8_t *out)
{
    PyObject *v = PyDict_GetItemWithError(d, names[name]);
    int truth = v && v != Py_None ? PyObject_IsTrue(v) : 0;
    if (truth < 0 || (!v && PyErr_Occurred()))
        return false;
    *out = truth != 0;
    return true;
}

static bool get_betas(PyObject *group, rl_optim_args *a)
{
    PyObject *b = item(group, N_BETAS);
    if (!b)
        return false;
    if (!PyTuple_Check(b) && !PyList_Check(b)) {
        PyErr_Format(PyExc_TypeError, "betas must be a pair of numbers, not %.200s", Py_TYPE(b)->tp_name);
        return false;
    }
    if (PySequence_Fast_GET_SIZE(b) != 2) {
        PyErr_Format(PyExc_ValueError, "betas must be a pair of numbers, got %zd", PySequence_Fast_GET_SIZE(b));
        return false;
    }
    return to_double(PySequence_Fast_GET_ITEM(b, 0), &a->beta1) && to_double(PySequence_Fast_GET_ITEM(b, 1), &a->beta2);
}

static bool read_group(job *j)
{
    rl_optim_args *a = &j->a;
    PyObject *d = j->group;
    uint8_t decoupled = 0;
    bool ok = get_double(d, N_LR, &a->lr) && get_double(d, N_WEIGHT_DECAY, &a->weight_decay) && get_flag(d, N_MAXIMIZE, &a->maximize);
    switch (a->kind) {
    case RL_OPT_SGD:
        ok = ok && get_double(d, N_MOMENTUM, &a->momentum) && get_double(d, N_DAMPENING, &a->dampening) &&
             get_flag(d, N_NESTEROV, &a->nesterov);
        j->slots[0] = a->momentum != 0 ? N_BUFFER : -1;
        break;
    case RL_OPT_ADAM:
        ok = ok && get_betas(d, a) && get_double(d, N_EPS, &a->eps) && get_flag(d, N_AMSGRAD, &a->amsgrad) &&
             get_flag(d, N_DECOUPLED, &decoupled);
        j->slots[0] = N_EXP_AVG;
        j->slots[1] = N_EXP_AVG_SQ;
        j->slots[2] = a->amsgrad ? N_MAX_EXP_AVG_SQ : -1;
        a->kind = decoupled ? RL_OPT_ADAMW : RL_OPT_ADAM;
        break;
    case RL_OPT_RMSPROP:
        ok = ok && get_double(d, N_MOMENTUM, &a->momentum) && get_double(d, N_ALPHA, &a->alpha) && get_double(d, N_EPS, &a->eps) &&
             get_flag(d, N_CENTERED, &a->centered);
        j->slots[0] = N_SQUARE_AVG;
        j->slots[1] = a->momentum > 0 ? N_BUFFER : -1;
        j->slots[2] = a->centered ? N_GRAD_AVG : -1;
        break;
    default:
        ok = ok && get_double(d, N_LR_DECAY, &a->lr_decay) && get_double(d, N_EPS, &a->eps);
        j->slots[0] = N_SUM;
    }
    j->steps = a->kind != RL_OPT_SGD;
    return ok;
}

/* ---- collecting what a step touches ---- */

/* Same elements at the same places: one flat loop serves both. */
static bool same_layout(const rl_tensor *a, const rl_tensor *b)
{
    if (a->dtype != b->dtype || a->numel != b->numel || a->ndim != b->ndim || !rl_device_same(rl_tensor_device(a), rl_tensor_device(b)))
        return false;
    bool both = rl_tensor_is_contiguous(a) && rl_tensor_is_contiguous(b);
    for (int k = 0; k < a->ndim; k++)
        if (a->shape[k] != b->shape[k] || (!both && a->shape[k] != 1 && a->strides[k] != b->strides[k]))
            return false;
    return true;
}

static int read_step(row *r)
{
    PyObject *v = PyDict_GetItemWithError(r->dict, names[N_STEP]);
    if (!v)
        return PyErr_Occurred() ? ERROR : MISSING;
    rl_tensor *t = rl_py_is_tensor(v) ? rl_py_unwrap(v) : NULL;
    if (!t || t->numel != 1 || !rl_dtype_is_float((rl_dtype)t->dtype) || rl_tensor_device(t).type != RL_DEVICE_CPU || t->storage->read_only)
        return COMPOSE;
    r->step = t;
    r->t = rl_scalar_to_double(rl_element_load(rl_tensor_data(t), (rl_dtype)t->dtype)) + 1;
    return DONE;
}

static int read_states(job *j, row *r, PyObject *p)
{
    if (!j->steps && j->slots[0] < 0)
        return DONE;
    r->dict = PyDict_GetItemWithError(j->state, p);
    if (!r->dict || !PyDict_Check(r->dict))
        return PyErr_Occurred() ? ERROR : r->dict ? COMPOSE : MISSING;
    for (int k = 0; k < 3; k++) {
        if (j->slots[k] < 0)
            continue;
        PyObject *v = PyDict_GetItemWithError(r->dict, names[j->slots[k]]);
        if ((!v || v == Py_None) && j->a.kind == RL_OPT_SGD && !PyErr_Occurred()) {
            r->fresh = true;
            continue;
        }
        if (!v)
            return PyErr_Occurred() ? ERROR : MISSING;
        if (!rl_py_is_tensor(v) || !same_layout(r->p, rl_py_unwrap(v)) || rl_py_unwrap(v)->storage->read_only)
            return COMPOSE;
        r->state[k] = rl_py_unwrap(v);
    }
    return j->steps ? read_step(r) : DONE;
}

static int read_row(job *j, PyObject *p)
{
    row *r = &j->rows[j->n];
    /* A hash of one's own could run any code: dicts are searched with tensors' own hash only. */
    if (!rl_py_is_tensor(p) || Py_TYPE(p)->tp_hash != rl_st->Tensor->tp_hash)
        return COMPOSE;
    memset(r, 0, sizeof *r);
    r->p = rl_py_unwrap(p);
    r->g = r->p->grad;
    if (!r->g)
        return DONE;
    if (!same_layout(r->p, r->g) || !rl_tensor_is_dense(r->p) || !rl_dtype_is_float((rl_dtype)r->p->dtype) || r->p->storage->read_only ||
        (r->p->flags & RL_TF_INFERENCE))
        return COMPOSE;
    int verdict = read_states(j, r, p);
    if (verdict == DONE)
        j->n++;
    return verdict;
}

/* ---- running ---- */

static rl_status make_fresh(job *j)
{
    for (Py_ssize_t i = 0; i < j->n; i++)
        if (j->rows[i].fresh)
            RL_RETURN(rl_tensor_empty_like(j->rows[i].p, (rl_dtype)j->rows[i].p->dtype, &j->rows[i].state[0]));
    return RL_OK;
}

static bool together(const row *a, const row *b)
{
    return a->fresh == b->fresh && a->p->dtype == b->p->dtype && rl_device_same(rl_tensor_device(a->p), rl_tensor_device(b->p));
}

/* The next set of rows that one launch can take: one dtype, device and freshness. */
static rl_status launch_set(job *j, row *first, void **block)
{
    rl_optim_args *a = &j->a;
    void **at[5];
    int64_t *numel = (int64_t *)(block + 5 * j->n);
    double *t = (double *)(numel + j->n);
    for (int k = 0; k < 5; k++)
        at[k] = block + k * j->n;
    int64_t n = 0;
    for (row *r = first; r < j->rows + j->n; r++) {
        if (r->run || !together(r, first))
            continue;
        at[0][n] = rl_tensor_data(r->p);
        at[1][n] = rl_tensor_data(r->g);
        for (int k = 0; k < 3; k++)
            at[2 + k][n] = r->state[k] ? rl_tensor_data(r->state[k]) : NULL;
        numel[n] = r->p->numel;
        t[n++] = r->t;
        r->run = true;
    }
    a->dtype = first->p->dtype;
    a->first = first->fresh;
    a->count = n;
    a->param = at[0];
    a->grad = (const void *const *)at[1];
    for (int k = 0; k < 3; k++)
        a->state[k] = j->slots[k] >= 0 ? at[2 + k] : NULL;
    a->numel = numel;
    a->step = j->steps ? t : NULL;
    const rl_backend *be = first->p->storage->backend;
    if (!be->kernels[RL_K_OPTIM])
        return rl_fail(RL_ERR_NOT_IMPLEMENTED, "optimizer: the device %s has no kernel for it", rl_device_text(rl_tensor_device(first->p)));
    return be->kernels[RL_K_OPTIM](a, be->stream_current(rl_tensor_device(first->p).index));
}

static rl_status launch(job *j)
{
    enum { WORDS = 7 }; /* five pointers, a count and a step number a row */
    void *few[WORDS * INLINE_ROWS], **block = few;
    rl_status st = RL_OK;
    if (j->n > INLINE_ROWS && !(block = PyMem_Malloc((size_t)j->n * WORDS * sizeof(void *))))
        return rl_fail(RL_ERR_MEMORY, "out of memory for an optimizer step over %lld parameters", (long long)j->n);
    for (row *r = j->rows; r < j->rows + j->n; r++)
        if (!r->run)
            RL_TRY(launch_set(j, r, block));
fail:
    if (block != few)
        PyMem_Free(block);
    return st;
}

/* After the kernels: version counters, step numbers, and new buffers into their dicts. */
static int finish(job *j)
{
    for (row *r = j->rows; r < j->rows + j->n; r++) {
        rl_tensor_bump(r->p);
        for (int k = 0; k < 3; k++)
            if (r->state[k])
                rl_tensor_bump(r->state[k]);
        if (r->step) {
            rl_element_store(rl_tensor_data(r->step), (rl_dtype)r->step->dtype, rl_scalar_float(r->t));
            rl_tensor_bump(r->step);
        }
    }
    for (row *r = j->rows; r < j->rows + j->n; r++) {
        if (!r->fresh)
            continue;
        PyObject *buffer = rl_py_wrap(r->state[0]);
        r->state[0] = NULL;
        r->fresh = false;
        int failed = buffer ? PyDict_SetItem(r->dict, names[N_BUFFER], buffer) : -1;
        Py_XDECREF(buffer);
        if (failed)
            return ERROR;
    }
    return DONE;
}

static int run(job *j)
{
    rl_status st = make_fresh(j);
    if (st == RL_OK)
        st = launch(j);
    int verdict = st == RL_OK ? finish(j) : ERROR;
    for (row *r = j->rows; r < j->rows + j->n; r++)
        if (r->fresh)
            rl_tensor_clear(&r->state[0]);
    if (st != RL_OK)
        rl_py_raise(st);
    return verdict;
}

static int step(job *j)
{
    uint8_t differentiable = 0;
    PyObject *params = item(j->group, N_PARAMS);
    if (!params || !get_flag(j->group, N_DIFFERENTIABLE, &differentiable) || !read_group(j))
        return ERROR;
    if (differentiable || !PyList_Check(params))
        return COMPOSE;
    Py_ssize_t count = PyList_GET_SIZE(params);
    j->rows = j->inline_rows;
    if (count > INLINE_ROWS && !(j->rows = PyMem_Malloc((size_t)count * sizeof(row)))) {
        PyErr_NoMemory();
        return ERROR;
    }
    int verdict = DONE;
    for (Py_ssize_t i = 0; i < count && verdict == DONE; i++)
        verdict = read_row(j, PyList_GET_ITEM(params, i));
    if (verdict == DONE && j->n)
        verdict = run(j);
    if (j->rows != j->inline_rows)
        PyMem_Free(j->rows);
    return verdict;
}

static PyObject *optim_step(PyObject *m, PyObject *const *args, Py_ssize_t nargs)
{
    job j;
    int64_t kind;
    if (nargs != 3 || !rl_py_small_int(args[0], &kind) || kind < RL_OPT_SGD || kind > RL_OPT_ADAGRAD || !PyDict_Check(args[1]) ||
        !PyDict_Check(args[2]))
        return PyErr_Format(PyExc_TypeError, "_optim_step: expected a kind, a group's dict and the state's dict");
    memset(&j.a, 0, sizeof j.a);
    j.a.kind = (int32_t)kind;
    j.group = args[1];
    j.state = args[2];
    j.slots[0] = j.slots[1] = j.slots[2] = -1;
    j.n = 0;
    int verdict = step(&j);
    return verdict == ERROR ? NULL : PyLong_FromLong(verdict);
}

/* ---- the norm of many tensors ---- */

/* The tensors of a list into data and numel; 1, or 0 when the kernel cannot take them together. */
static int collect(PyObject *list, bool write, void **data, int64_t *numel)
{
    rl_tensor *first = NULL;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); i++) {
        PyObject *o = PyList_GET_ITEM(list, i);
        rl_tensor *t = rl_py_is_tensor(o) ? rl_py_unwrap(o) : NULL;
        first = first ? first : t;
        if (!t || !rl_tensor_is_dense(t) || !rl_dtype_is_float((rl_dtype)t->dtype) || t->dtype != first->dtype ||
            !rl_device_same(rl_tensor_device(t), rl_tensor_device(first)) ||
            (write && (t->storage->read_only || (t->flags & RL_TF_INFERENCE))))
            return 0;
        data[i] = rl_tensor_data(t);
        numel[i] = t->numel;
    }
    return 1;
}

/* _multi_norm(list, p, clip=-1): the norm of all elements as a float, or None when the tensors cannot be taken together. clip >= 0: then
 * every tensor is scaled by min(1, clip / (norm + 1e-6)). */
static PyObject *multi_norm(PyObject *m, PyObject *args)
{
    PyObject *list, *result = NULL;
    double p, clip = -1, norm = 0;
    if (!PyArg_ParseTuple(args, "O!d|d:_multi_norm", &PyList_Type, &list, &p, &clip))
        return NULL;
    Py_ssize_t n = PyList_GET_SIZE(list);
    if (n == 0)
        return PyFloat_FromDouble(0);
    void **data = PyMem_Malloc((size_t)n * sizeof(void *));
    int64_t *numel = PyMem_Malloc((size_t)n * sizeof(int64_t));
    if (!data || !numel) {
        PyErr_NoMemory();
        goto done;
    }
    if (!collect(list, clip >= 0, data, numel)) {
        result = Py_NewRef(Py_None);
        goto done;
    }
    rl_tensor *first = rl_py_unwrap(PyList_GET_ITEM(list, 0));
    const rl_backend *be = first->storage->backend;
    rl_multi_norm_args a = {.dtype = first->dtype, .count = n, .data = data, .numel = numel, .p = p, .out = &norm, .clip = clip};
    if (!be->kernels[RL_K_MULTI_NORM]) {
        result = Py_NewRef(Py_None);
        goto done;
    }
    rl_status st = be->kernels[RL_K_MULTI_NORM](&a, be->stream_current(rl_tensor_device(first).index));
    for (Py_ssize_t i = 0; st == RL_OK && clip >= 0 && i < n; i++)
        rl_tensor_bump(rl_py_unwrap(PyList_GET_ITEM(list, i)));
    result = st == RL_OK ? PyFloat_FromDouble(norm) : rl_py_raise(st);
done:
    PyMem_Free(data);
    PyMem_Free(numel);
    return result;
}

/* _zero_grads(list): drops the gradient of every tensor of the list. */
static PyObject *zero_grads(PyObject *m, PyObject *list)
{
    if (!PyList_Check(list))
        return PyErr_Format(PyExc_TypeError, "_zero_grads: expected a list of tensors, got %.200s", Py_TYPE(list)->tp_name);
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); i++) {
        PyObject *o = PyList_GET_ITEM(list, i);
        if (!rl_py_is_tensor(o))
            return PyErr_Format(PyExc_TypeError, "_zero_grads: expected a list of tensors, got an element of type %.200s",
                                Py_TYPE(o)->tp_name);
        rl_tensor_clear(&rl_py_unwrap(o)->grad);
    }
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"_optim_step", (PyCFunction)(void (*)(void))optim_step, METH_FASTCALL, "One step of a group: 0 done, 1 state missing, 2 compose."},
    {"_multi_norm", multi_norm, METH_VARARGS, "The norm of all elements of a list of tensors; scales them when clip is given."},
    {"_zero_grads", zero_grads, METH_O, "Drops the gradients of a list of tensors."},
    {NULL, NULL, 0, NULL}};

int rl_py_init_optim(PyObject *m)
{
    for (int k = 0; k < N_COUNT; k++)
        if (!names[k] && !(names[k] = PyUnicode_InternFromString(name_texts[k])))
            return -1;
    return PyModule_AddFunctions(m, functions);
}
