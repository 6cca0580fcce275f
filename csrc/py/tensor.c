/* tensor.c: the type Tensor: identity of tensor and wrapper, its lifetime, and what the garbage collector sees.
 *
 * Invariant: t->py is the one wrapper of t, or NULL. Normally the wrapper holds a reference to t. When the wrapper's last reference goes
 * while C still holds t and the wrapper carries state (attributes, a subclass, weak references, hooks), the wrapper is resurrected: t
 * then owns it (RL_TF_OWNS_PY) and the wrapper's pointer to t is borrowed, until it is exposed again or t dies.
 * The collector goes through a C object only as its sole owner (reference count 1): then the edges it reports are exactly the
 * references that exist, and `ctx.y = y` is collected.
 */
#include "internal.h"

#include <structmember.h>

/* ---- wrappers: made, kept, dropped ---- */

#define KEPT_WRAPPERS 256
static PyObject *kept[KEPT_WRAPPERS]; /* of the exact type, untracked; guarded by the GIL */
static int nkept;

static rl_py_tensor *wrapper_new(PyTypeObject *type)
{
    if (type != rl_st->Tensor)
        return (rl_py_tensor *)type->tp_alloc(type, 0);
    rl_py_tensor *self;
    if (nkept > 0)
        self = (rl_py_tensor *)PyObject_Init(kept[--nkept], type);
    else
        self = PyObject_GC_New(rl_py_tensor, type);
    if (self) {
        self->dict = self->weakrefs = self->backward_hooks = NULL;
        self->t = NULL;
    }
    return self;
}

static void wrapper_free(PyObject *self, PyTypeObject *type)
{
#ifndef Py_GIL_DISABLED
    if (type == rl_st->Tensor && nkept < KEPT_WRAPPERS)
        kept[nkept++] = self;
    else
#endif
        type->tp_free(self);
    Py_DECREF(type);
}

PyObject *rl_py_wrap_as(rl_tensor *t, PyTypeObject *type)
{
    if (!t)
        Py_RETURN_NONE;
    PyObject *known = t->py;
    if (known && t->flags & RL_TF_OWNS_PY) {
        t->flags &= (uint16_t)~RL_TF_OWNS_PY; /* t's reference to the wrapper becomes the caller's, the caller's to t the wrapper's */
        return known;
    }
    if (known) {
        Py_INCREF(known);
        rl_tensor_release(t);
        return known;
    }
    rl_py_tensor *self = wrapper_new(type);
    if (!self) {
        rl_tensor_release(t);
        return NULL;
    }
    self->t = t;
    t->py = self;
    if (type == rl_st->Tensor)
        PyObject_GC_Track(self);
    return (PyObject *)self;
}

PyObject *rl_py_wrap(rl_tensor *t) { return rl_py_wrap_as(t, rl_st->Tensor); }

/* ---- the last reference to a wrapper ---- */

static bool carries_state(const rl_py_tensor *self)
{
    return !Py_IS_TYPE(self, rl_st->Tensor) || self->weakrefs || self->backward_hooks || (self->t->flags & RL_TF_NEEDS_PY) ||
           (self->dict && PyDict_GET_SIZE(self->dict));
}

/* C still holds the tensor: true when it has taken the wrapper over. */
static bool resurrect(rl_py_tensor *self)
{
    rl_tensor *t = self->t;
    if (!carries_state(self))
        return false;
    Py_SET_REFCNT((PyObject *)self, 1);
    t->flags |= RL_TF_OWNS_PY;
    rl_tensor_release(t); /* should this be the last one after all, drop() hands t back and the wrapper dies in there */
    return true;
}

/* The attributes that __slots__ of subclasses hold. */
static void clear_slots(PyObject *self, PyTypeObject *type)
{
    for (; type && type != rl_st->Tensor; type = type->tp_base) {
        PyMemberDef *member = type->tp_members;
        for (Py_ssize_t n = Py_SIZE(type); member && n > 0; n--, member++) {
            PyObject **slot = (PyObject **)((char *)self + member->offset);
            if (member->type == T_OBJECT_EX)
                Py_CLEAR(*slot);
        }
    }
}

/* Runs __del__; true when that made the object reachable again. */
static bool finalize(PyObject *self, PyTypeObject *type) { return type->tp_finalize && PyObject_CallFinalizerFromDealloc(self) < 0; }

static void tensor_dealloc(PyObject *op)
{
    rl_py_tensor *self = (rl_py_tensor *)op;
    PyTypeObject *type = Py_TYPE(op);
    rl_tensor *t = self->t;
    if (t && atomic_load_explicit(&t->refs, memory_order_acquire) > 1 && resurrect(self))
        return;
    bool own = type->tp_dealloc == tensor_dealloc; /* else a subclass's dealloc did the finalizer and the slots before it came here */
    if (type != rl_st->Tensor && own && finalize(op, type))
        return;
    PyObject_GC_UnTrack(op);
    if (t && t->py == self)
        t->py = NULL; /* before any code runs that could reach t through C and find a dying wrapper */
    self->t = NULL;
    if (self->weakrefs)
        PyObject_ClearWeakRefs(op);
    if (type != rl_st->Tensor && own)
        clear_slots(op, type);
    Py_CLEAR(self->dict);
    Py_CLEAR(self->backward_hooks);
    rl_tensor_release(t);
    wrapper_free(op, type);
}

/* ---- the last reference to a tensor whose wrapper C owns ---- */

typedef struct pending {
    struct pending *next;
    rl_tensor *t;
} pending;
static _Atomic(pending *) queue;

static void hand_back(rl_tensor *t)
{
    PyObject *wrapper = t->py;
    t->flags &= (uint16_t)~RL_TF_OWNS_PY; /* the wrapper holds t again */
    Py_DECREF(wrapper);
}

void rl_py_drain(void)
{
    pending *p = atomic_exchange(&queue, NULL);
    while (p) {
        pending *next = p->next;
        rl_tensor *t = p->t;
        PyMem_RawFree(p);
        rl_tensor_release(t); /* comes back to drop(), now with the GIL, unless somebody has taken it up since */
        p = next;
    }
}

static int drain_call(void *ignored)
{
    rl_py_drain();
    return 0;
}

/* Without the GIL: keeps t alive until somebody has it. Out of memory: t leaks rather than breaks. */
static void postpone(rl_tensor *t)
{
    pending *p = PyMem_RawMalloc(sizeof *p);
    if (!p)
        return;
    p->t = t;
    p->next = atomic_load(&queue);
    while (!atomic_compare_exchange_weak(&queue, &p->next, p))
        ;
    Py_AddPendingCall(drain_call, NULL);
}

static bool drop(rl_tensor *t)
{
    atomic_store(&t->refs, 1);
    if (!Py_IsInitialized())
        return true;
    if (PyGILState_Check())
        hand_back(t);
    else
        postpone(t);
    return true;
}

/* ---- the garbage collector ---- */

static int visit_inside(rl_tensor *t, visitproc visit, void *arg)
{
    int stop = 0;
    if (t->grad_fn && atomic_load(&t->grad_fn->refs) == 1)
        stop = rl_py_visit_node(t->grad_fn, visit, arg);
    if (!stop)
        stop = rl_py_visit_tensor(t->grad, visit, arg);
    if (!stop && t->meta)
        stop = rl_py_visit_tensor(t->meta->base, visit, arg);
    if (!stop && t->meta)
        stop = rl_py_visit_hooks(t->meta->hooks, visit, arg);
    if (!stop && t->meta)
        stop = rl_py_visit_hooks(t->meta->post_accumulate_hooks, visit, arg);
    return stop;
}

int rl_py_visit_tensor(rl_tensor *t, visitproc visit, void *arg)
{
    if (!t || atomic_load(&t->refs) != 1)
        return 0;
    if (t->flags & RL_TF_OWNS_PY)
        Py_VISIT((PyObject *)t->py);
    return visit_inside(t, visit, arg);
}

static bool holds(const rl_py_tensor *self) { return self->t && !(self->t->flags & RL_TF_OWNS_PY); }
static bool sole_owner(const rl_py_tensor *self) { return holds(self) && atomic_load(&self->t->refs) == 1; }
/* C holds t too: the wrapper may be resurrected, so what it holds must count as reachable and stay as it is. */
static bool shared(const rl_py_tensor *self) { return holds(self) && atomic_load(&self->t->refs) > 1; }

static int tensor_traverse(PyObject *op, visitproc visit, void *arg)
{
    rl_py_tensor *self = (rl_py_tensor *)op;
    if (shared(self))
        return 0;
    Py_VISIT(Py_TYPE(op));
    Py_VISIT(self->dict);
    Py_VISIT(self->backward_hooks);
    return sole_owner(self) ? visit_inside(self->t, visit, arg) : 0;
}

static int tensor_clear(PyObject *op)
{
    rl_py_tensor *self = (rl_py_tensor *)op;
    rl_tensor *t = self->t;
    if (shared(self))
        return 0;
    Py_CLEAR(self->dict);
    Py_CLEAR(self->backward_hooks);
    if (!sole_owner(self))
        return 0;
    rl_node *node = t->grad_fn;
    t->grad_fn = NULL;
    rl_node_release(node);
    rl_tensor_clear(&t->grad);
    if (t->meta) {
        rl_hook_free_all(&t->meta->hooks);
        rl_hook_free_all(&t->meta->post_accumulate_hooks);
    }
    return 0;
}

/* ---- the type ---- */

/* A subclass gets this file's dealloc in place of Python's, which would clear __slots__ and run __del__ before a resurrection. */
PyObject *rl_py_init_subclass(PyObject *cls, PyObject *args, PyObject *kwargs)
{
    if (PyTuple_GET_SIZE(args) || (kwargs && PyDict_GET_SIZE(kwargs)))
        return PyErr_Format(PyExc_TypeError, "%s.__init_subclass__() takes no arguments", rl_py_type_name((PyTypeObject *)cls));
    if (PyType_IsSubtype((PyTypeObject *)cls, rl_st->Tensor))
        ((PyTypeObject *)cls)->tp_dealloc = tensor_dealloc;
    Py_RETURN_NONE;
}

static Py_hash_t tensor_hash(PyObject *self) { return PyBaseObject_Type.tp_hash(self); }

static PyMemberDef members[] = {
    {"__dictoffset__", T_PYSSIZET, offsetof(rl_py_tensor, dict), READONLY, NULL},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(rl_py_tensor, weakrefs), READONLY, NULL},
    {NULL},
};
static const PyType_Slot own_slots[] = {
    {Py_tp_new, rl_py_tensor_new},       {Py_tp_dealloc, tensor_dealloc},     {Py_tp_traverse, tensor_traverse},
    {Py_tp_clear, tensor_clear},         {Py_tp_hash, tensor_hash},           {Py_tp_members, members},
    {Py_tp_getset, rl_py_tensor_getset}, {Py_tp_methods, rl_py_tensor_methods}, {Py_mp_length, rl_py_length},
    {Py_mp_subscript, rl_py_getitem},    {Py_mp_ass_subscript, rl_py_setitem}, {Py_bf_getbuffer, rl_py_getbuffer},
    {Py_bf_releasebuffer, rl_py_releasebuffer}, {Py_tp_doc,
                                                 "An array of numbers of one dtype on one device, with automatic differentiation."},
};

int rl_py_init_tensor(PyObject *m)
{
    enum { NOWN = sizeof own_slots / sizeof *own_slots, NMAX = 96 };
    static PyType_Slot slots[NMAX];
    static PyType_Spec spec = {"rushlight.Tensor", sizeof(rl_py_tensor), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
                               slots};
    int n = 0;
    memcpy(slots, own_slots, sizeof own_slots);
    for (n = NOWN; rl_py_number_slots[n - NOWN].slot && n < NMAX - 1; n++)
        slots[n] = rl_py_number_slots[n - NOWN];
    rl_st->Tensor = rl_py_make_type(m, &spec, NULL, "Tensor");
    if (!rl_st->Tensor || rl_py_init_override(m) < 0)
        return -1;
    rl_st->Tensor->tp_name = "Tensor"; /* what Python's own messages call it; the repr reads __module__ and __qualname__ */
    rl_py.drop = drop;
    return rl_py_init_methods(m) < 0 ? -1 : rl_py_init_number(m);
}
