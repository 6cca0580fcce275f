/* signature: what a row's text says about its arguments, compiled once, and how a Python call is bound to it.
 *
 * Invariant: a compiled signature is immutable and lives until the process ends. Binding converts while it matches, in one pass over the
 * arguments and without an exception for a mismatch; the words of an error are found by a second, slow pass (mismatch.c).
 */
#ifndef RL_PY_SIGNATURE_H
#define RL_PY_SIGNATURE_H
#include "internal.h"

typedef enum rl_ptype {
    RL_PT_TENSOR, RL_PT_TENSORS, RL_PT_SCALAR, RL_PT_INT, RL_PT_FLOAT, RL_PT_BOOL, RL_PT_STR, RL_PT_INTS, RL_PT_FLOATS,
    RL_PT_DTYPE, RL_PT_LAYOUT, RL_PT_DEVICE, RL_PT_FORMAT, RL_PT_GENERATOR, RL_PT_SCALARS,
} rl_ptype;

enum { RL_SLOT_OUT = -1, RL_SLOT_REQUIRES_GRAD = -2 };

typedef struct rl_param {
    PyObject *name;         /* interned */
    PyObject *spelling[4];  /* other keywords for it (axis, keepdims, x), ends with NULL */
    uint8_t type;           /* rl_ptype */
    bool optional;          /* the type ends with '?': None is "not given" */
    bool has_default, kwonly;
    bool numbers;           /* a Tensor that may be a number */
    bool holes;             /* Tensor?[] */
    int16_t fixed;          /* int[N]: a lone int stands for N of them; 0: int[] */
    int8_t slot;            /* its place in rl_call.args, or RL_SLOT_* */
    const char *default_text; /* as the signature spells it, NULL: none */
} rl_param;

typedef struct rl_signature {
    int overload, nargs, nparams;
    int npos;      /* parameters that may be positional; they come first */
    int min_args;  /* parameters without a default */
    int receiver;  /* the slot that a method's self fills, -1 for functions */
    bool varargs;  /* f(2, 3) is f((2, 3)) */
    bool needs_tensor; /* either of the first two may be a number, not both */
    rl_param *params;
    rl_arg *defaults; /* nargs */
} rl_signature;

typedef struct rl_overloads {
    PyObject *name; /* as messages spell it: "add", "add_" */
    int n;
    rl_signature *v;
} rl_overloads;

/* What `form` makes of a row's text: 'F' or 'N' functions, 'M' methods, 'I' in-place methods, 'i' in-place functions. NULL with an
 * exception. */
rl_overloads *rl_overloads_compile(const rl_op *op, const char *name, char form);
/* From a text that belongs to no row: a C function's or method's own arguments. */
rl_overloads *rl_overloads_compile_text(const char *name, const char *text, bool method);

void rl_overloads_sort(rl_overloads *o); /* overload.c */

/* Where the values of one call live. Made by rl_bind, undone by rl_frame_release whatever came of it. */
#define RL_FRAME_INTS 40
#define RL_FRAME_TENSORS 16
#define RL_FRAME_BLOCKS 8
typedef struct rl_frame {
    PyObject *function; /* borrowed: the name that messages give */
    int nints, ntensors, nblocks;
    bool requires_grad;
    struct { rl_tensor **v; int n; } lists[4]; /* tensors of lists, retained */
    int nlists;
    void *blocks[RL_FRAME_BLOCKS];
    int64_t ints[RL_FRAME_INTS];
    rl_tensor *tensors[RL_FRAME_TENSORS];
} rl_frame;

/* Binds args (positional ones, then those of kwnames) to the first overload that takes them. self: a method's receiver, or NULL.
 * False with an exception, worded as PyTorch does. */
bool rl_bind(const rl_overloads *o, const rl_op *op, PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames,
             rl_frame *f,
             rl_call *call);
void rl_frame_release(rl_frame *f);
static inline void rl_frame_init(rl_frame *f)
{
    f->nints = f->ntensors = f->nblocks = f->nlists = 0;
    f->requires_grad = false;
}

/* Whether a number may stand for operand `param` of a row; first: it is the first operand. */
bool rl_takes_number(const rl_op *op, bool first, const char *param);
/* 1: converted; 0: not of this type; -1: an exception stands. */
int rl_param_take(rl_frame *f, const rl_param *p, PyObject *o, rl_arg *a);
/* Raises the error of a call that no overload takes. */
void rl_mismatch(const rl_overloads *o, PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);
const char *rl_param_type_text(const rl_param *p);
PyObject *rl_signature_text(const rl_signature *s, const char *separator); /* "(Tensor input, *, Number alpha = 1)" */

/* A C method's own arguments. */
typedef struct rl_parser {
    const char *name, *text; /* "size", "size(Tensor self, int? dim=None)" */
    rl_overloads *compiled;
} rl_parser;
bool rl_parse(rl_parser *p, PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames, rl_frame *f, rl_call *call);

#endif
