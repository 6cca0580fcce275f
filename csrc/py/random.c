/* random.c: the type Generator over core's generators.
 *
 * Invariant: one object is one generator; default_generator is the process's own. Every method that touches the stream holds its lock.
 */
#include "convert.h"

#include <sys/random.h>
#include <time.h>

static rl_generator *generator_of(PyObject *self) { return ((rl_py_generator_object *)self)->generator; }

static PyObject *wrap(PyTypeObject *type, rl_generator *g)
{
    rl_py_generator_object *o = (rl_py_generator_object *)type->tp_alloc(type, 0);
    if (!o)
        rl_generator_release(g);
    else
        o->generator = g;
    return (PyObject *)o;
}

static PyObject *generator_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"device", NULL};
    PyObject *device_o = NULL;
    rl_device device = {RL_DEVICE_CPU, -1};
    rl_generator *g = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O:Generator", names, &device_o))
        return NULL;
    if (device_o && device_o != Py_None && !rl_py_to_device(device_o, &device))
        return NULL;
    if (device.type != RL_DEVICE_CPU && !rl_backend_get((rl_device_type)device.type))
        return rl_py_raise(RL_ERR_RUNTIME);
    rl_status st = rl_generator_new(device, &g);
    return st == RL_OK ? wrap(type, g) : rl_py_raise(st);
}

static void generator_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    rl_generator_release(generator_of(self));
    type->tp_free(self);
    Py_DECREF(type);
}

/* [-2^63, 2^64), negative ones wrap. */
static bool read_seed(PyObject *o, uint64_t *seed)
{
    PyObject *index = PyNumber_Index(o);
    if (!index) {
        PyErr_Format(PyExc_RuntimeError, "manual_seed expected a long, but got %s", Py_TYPE(o)->tp_name);
        return false;
    }
    int overflow;
    long long value = PyLong_AsLongLongAndOverflow(index, &overflow);
    *seed = (uint64_t)value;
    if (overflow > 0)
        *seed = PyLong_AsUnsignedLongLong(index);
    Py_DECREF(index);
    if (overflow < 0 || PyErr_Occurred()) {
        PyErr_SetString(PyExc_ValueError, "Overflow when unpacking long long");
        return false;
    }
    return true;
}

static void reseed(rl_generator *g, uint64_t seed)
{
    pthread_mutex_lock(&g->lock);
    rl_generator_seed(g, seed);
    pthread_mutex_unlock(&g->lock);
}

static PyObject *manual_seed(PyObject *self, PyObject *o)
{
    uint64_t seed;
    if (!read_seed(o, &seed))
        return NULL;
    reseed(generator_of(self), seed);
    return Py_NewRef(self);
}

static PyObject *seed(PyObject *self, PyObject *ignored)
{
    uint64_t value;
    if (getrandom(&value, sizeof value, GRND_NONBLOCK) != sizeof value) {
        struct timespec t;
        clock_gettime(CLOCK_REALTIME, &t);
        value = (uint64_t)t.tv_nsec * 0x9e3779b97f4a7c15ull ^ (uint64_t)t.tv_sec;
    }
    reseed(generator_of(self), value);
    return PyLong_FromUnsignedLongLong(value);
}

static PyObject *initial_seed(PyObject *self, PyObject *ignored) { return PyLong_FromUnsignedLongLong(generator_of(self)->seed); }

static PyObject *get_state(PyObject *self, PyObject *ignored)
{
    int64_t n = RL_RNG_STATE_BYTES;
    rl_generator *g = generator_of(self);
    rl_tensor *t = NULL;
    rl_status st = rl_tensor_empty(1, &n, RL_U8, (rl_device){RL_DEVICE_CPU, -1}, &t);
    if (st != RL_OK)
        return rl_py_raise(st);
    pthread_mutex_lock(&g->lock);
    rl_generator_get_state(g, rl_tensor_data(t));
    pthread_mutex_unlock(&g->lock);
    return rl_py_wrap(t);
}

static bool put_state(rl_generator *g, PyObject *state)
{
    rl_tensor *t = rl_py_is_tensor(state) ? rl_py_unwrap(state) : NULL, *flat = NULL;
    if (!t)
        PyErr_Format(PyExc_TypeError, "expected a %s.ByteTensor, but got %s", rl_py_prefix(), rl_py_type_text(state));
    else if (t->dtype != RL_U8 || rl_tensor_device(t).type != RL_DEVICE_CPU)
        PyErr_Format(PyExc_TypeError, "RNG state must be a %s.ByteTensor", rl_py_prefix());
    else if (t->numel != RL_RNG_STATE_BYTES)
        PyErr_Format(PyExc_RuntimeError, "Expected a CPUGeneratorImplState of size %d but found the input RNG state size to be "
                                         "%lld", RL_RNG_STATE_BYTES,
                     (long long)t->numel);
    if (PyErr_Occurred())
        return false;
    rl_status st = rl_contiguous(t, &flat);
    if (st == RL_OK) {
        pthread_mutex_lock(&g->lock);
        st = rl_generator_set_state(g, rl_tensor_data(flat), RL_RNG_STATE_BYTES);
        pthread_mutex_unlock(&g->lock);
    }
    rl_tensor_release(flat);
    if (st != RL_OK)
        rl_py_raise(st);
    return st == RL_OK;
}

static PyObject *set_state(PyObject *self, PyObject *state) { return put_state(generator_of(self), state) ? Py_NewRef(self) : NULL; }

static PyObject *clone_state(PyObject *self, PyObject *ignored)
{
    rl_generator *g = generator_of(self), *copy = NULL;
    pthread_mutex_lock(&g->lock);
    rl_status st = rl_generator_clone(g, &copy);
    pthread_mutex_unlock(&g->lock);
    return st == RL_OK ? wrap(Py_TYPE(self), copy) : rl_py_raise(st);
}

static PyObject *reduce(PyObject *self, PyObject *ignored)
{
    PyObject *device = rl_py_device(generator_of(self)->device), *state = device ? get_state(self, NULL) : NULL;
    PyObject *out = state ? Py_BuildValue("(O(O)O)", (PyObject *)Py_TYPE(self), device, state) : NULL;
    Py_XDECREF(device);
    Py_XDECREF(state);
    return out;
}

static PyObject *deepcopy(PyObject *self, PyObject *memo) { return clone_state(self, NULL); }

static PyObject *restore(PyObject *self, PyObject *state) { return put_state(generator_of(self), state) ? Py_NewRef(Py_None) : NULL; }

static PyObject *device(PyObject *self, void *ignored) { return rl_py_device(generator_of(self)->device); }

static PyMethodDef methods[] = {
    {"manual_seed", manual_seed, METH_O, "manual_seed(seed) -> Generator\n\nseed: an int in [-2**63, 2**64), negative ones count from "
                                         "2**64."},
    {"seed", seed, METH_NOARGS, "seed() -> int\n\nSeeds from the system and returns the seed."},
    {"initial_seed", initial_seed, METH_NOARGS, "initial_seed() -> int\n\nThe seed it was last given."},
    {"get_state", get_state, METH_NOARGS, "get_state() -> uint8 Tensor of 5056 bytes, in PyTorch's layout"},
    {"set_state", set_state, METH_O, "set_state(state)\n\nContinues where get_state() was called. RuntimeError when it is no such state."},
    {"clone_state", clone_state, METH_NOARGS, "clone_state() -> Generator with the same state"},
    {"__reduce__", reduce, METH_NOARGS, NULL},
    {"__setstate__", restore, METH_O, NULL},
    {"__deepcopy__", deepcopy, METH_O, NULL},
    {NULL, NULL, 0, NULL}};
static PyGetSetDef getset[] = {{"device", device, NULL, NULL, NULL}, {NULL, NULL, NULL, NULL, NULL}};
static PyType_Slot slots[] = {{Py_tp_new, generator_new},
                              {Py_tp_dealloc, generator_dealloc},
                              {Py_tp_methods, methods},
                              {Py_tp_getset, getset},
                              {Py_tp_doc, "Generator(device='cpu'): a stream of random numbers, PyTorch's bit for bit on the CPU."},
                              {0, NULL}};
static PyType_Spec spec = {.name = "rushlight.Generator",
                           .basicsize = sizeof(rl_py_generator_object),
                           .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
                           .slots = slots};

int rl_py_init_random(PyObject *m)
{
    rl_st->Generator = (PyTypeObject *)PyType_FromSpec(&spec);
    if (!rl_st->Generator || PyModule_AddObjectRef(m, "Generator", (PyObject *)rl_st->Generator) < 0)
        return -1;
    PyObject *g = wrap(rl_st->Generator, rl_generator_retain(rl_generator_default((rl_device){RL_DEVICE_CPU, -1})));
    return g ? PyModule_AddObject(m, "default_generator", g) : -1;
}
