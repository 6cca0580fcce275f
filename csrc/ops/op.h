/* op: the operator table at run time, the call that every operator goes through, and how a row is recorded.
 *
 * ops.def is expanded into one rl_op for each row. A call is parsed by py into an rl_call (operands, scalars, lists, the
 * out= tensors, whether it is in place) and goes through rl_op_invoke, which owns what all operators share: the in-place and
 * out= forms, autocast, the check of results. A row's function computes new tensors and records its node; it never deals
 * with in-place or out= unless it is elementwise (elementwise.c writes straight into the given tensor).
 */
#ifndef RL_OP_H
#define RL_OP_H
#include "../core/graph.h"
#include "../core/plan.h"
#include "../core/rng.h"
#include "../core/view.h"
#include "args.h"

/* dtype rules of elementwise rows. */
typedef enum rl_rule {
    RL_RULE_FLOAT,   /* promoted; int and bool go to the default float dtype */
    RL_RULE_ARITH,   /* promoted; computes in f32, f64, i64 or u8 */
    RL_RULE_SIGNED,  /* ARITH, but bool is an error (neg, sub) */
    RL_RULE_NUMBER,  /* ARITH, but bool is an error for one operand (floor, sign keep ints as they are) */
    RL_RULE_COMPARE, /* promoted; result bool */
    RL_RULE_LOGICAL, /* each operand as it is; result bool */
    RL_RULE_BITWISE, /* ints and bool only */
    RL_RULE_SHIFT,   /* ints only */
    RL_RULE_TEST,    /* one operand, any dtype; result bool (isnan) */
    RL_RULE_GRAD,    /* derivative expressions: the dtype of g */
} rl_rule;

/* What backward keeps. UNARY: the input, the result, both. BINARY: CROSS means dx uses y and dy uses x only. */
typedef enum rl_saves { RL_SAVE_NONE, RL_SAVE_X, RL_SAVE_Y, RL_SAVE_XY, RL_SAVE_CROSS, RL_SAVE_BOTH } rl_saves;

typedef enum rl_row_kind { RL_ROW_UNARY, RL_ROW_BINARY, RL_ROW_TERNARY, RL_ROW_OP, RL_ROW_ALIAS } rl_row_kind;

/* A tensor, or a number that takes part in promotion as PyTorch's wrapped numbers do. */
typedef struct rl_operand {
    rl_tensor *t; /* NULL: the number */
    rl_scalar s;
} rl_operand;
static inline rl_operand rl_operand_tensor(rl_tensor *t) { return (rl_operand){.t = t}; }
static inline rl_operand rl_operand_number(double d) { return (rl_operand){.s = rl_scalar_float(d)}; }

#define RL_MAX_ARGS 16
#define RL_MAX_RESULTS 4

/* One parsed argument. `given` is false where the caller passed nothing or None: the signature's default has been filled in where
 * it is a value; for optional types (Tensor?, int?, ScalarType?) given == false means None. */
typedef struct rl_arg {
    bool given;
    rl_tensor *t;    /* Tensor, Tensor? */
    rl_scalar s;     /* Scalar, or a number where a Tensor operand was asked for (t is NULL then) */
    union {
        int64_t i;   /* int, SymInt */
        double f;    /* float */
        bool b;
        rl_dtype dtype;
        rl_device device;
        int memory_format;       /* rl_memory_format */
        const char *str;
        rl_generator *generator; /* borrowed */
        struct { const int64_t *v; int32_t n; } ints;       /* int[]; a lone int where int[1] is allowed has n == 1 */
        struct { const double *v; int32_t n; } floats;      /* float[] */
        struct { rl_tensor *const *v; int32_t n; } tensors; /* Tensor[], Tensor?[] (NULL: None) */
    };
} rl_arg;

typedef enum rl_memory_format { RL_FORMAT_CONTIGUOUS, RL_FORMAT_PRESERVE, RL_FORMAT_CHANNELS_LAST, RL_FORMAT_CHANNELS_LAST_3D } rl_memory_format;

typedef struct rl_op rl_op;

typedef struct rl_call {
    const rl_op *op;
    int overload; /* which signature of the row matched, from 0 */
    int nargs;
    bool inplace;         /* args[0].t is written */
    int nout;             /* out= tensors given */
    rl_tensor *out[RL_MAX_RESULTS];
    rl_arg args[RL_MAX_ARGS];
} rl_call;

/* New references. A list result (split, unbind, chunk) stands in `list`, from rl_pool_alloc(n * sizeof). */
typedef struct rl_result {
    int n;
    rl_tensor *t[RL_MAX_RESULTS];
    rl_tensor **list;
    bool is_list;
} rl_result;
void rl_result_clear(rl_result *r);

typedef rl_status (*rl_op_fn)(rl_call *call, rl_result *result);

struct rl_op {
    const char *name;
    const char *forms;     /* letters: F torch.name, M Tensor.name, I in place (name_), O out=, N torch.nn.functional, S torch.special, L torch.linalg, P private (_C only),
                            * B the result is a 0-dim bool tensor that becomes a Python bool, W the function itself honours call->inplace */
    const char *grad_name; /* "Add": nodes are AddBackward0, … */
    const char *signature; /* native_functions syntax, overloads separated by '\n' */
    rl_op_fn call;
    uint8_t kind; /* rl_row_kind */
    uint8_t rule, saves;
    int16_t expr; /* the first expression of an elementwise row, -1 else */
    const rl_op *alias_of;
};

/* Numbers of rows (RL_OP_exp) and of expressions (RL_E_exp, RL_E_exp_d1, …), from the table. */
enum {
#define UNARY(name, ...) RL_OP_##name,
#define BINARY(name, ...) RL_OP_##name,
#define TERNARY(name, ...) RL_OP_##name,
#define OP(name, ...) RL_OP_##name,
#define ALIAS(name, ...) RL_OP_##name,
#include "ops.def"
#undef UNARY
#undef BINARY
#undef TERNARY
#undef OP
#undef ALIAS
    RL_OP_COUNT
};
enum {
#define UNARY(name, ...) RL_E_##name, RL_E_##name##_d1, RL_E_##name##_d2,
#define BINARY(name, ...) RL_E_##name, RL_E_##name##_dx, RL_E_##name##_dy, RL_E_##name##_dxx, RL_E_##name##_dxy, RL_E_##name##_dyy,
#define TERNARY(name, ...)                                                                                                       \
    RL_E_##name, RL_E_##name##_dx, RL_E_##name##_dy, RL_E_##name##_dz, RL_E_##name##_dxx, RL_E_##name##_dxy, RL_E_##name##_dxz, \
        RL_E_##name##_dyy, RL_E_##name##_dyz, RL_E_##name##_dzz,
#define OP(...)
#define ALIAS(...)
#include "ops.def"
#undef UNARY
#undef BINARY
#undef TERNARY
#undef OP
#undef ALIAS
    RL_E_COUNT
};

extern const rl_op rl_op_table[RL_OP_COUNT];

/* The one way in: shared checks, the row's function, in-place and out= epilogue. */
rl_status rl_op_invoke(rl_call *call, rl_result *result);

/* Elementwise rows from C: the row's forward over operands, scalar parameters p (NULL: none given, all 0). `into` != NULL writes there (in
 * place or out=) after the checks of that form. Records. */
rl_status rl_elementwise(int op, const rl_operand *in, int nin, const rl_scalar *p, int np, rl_tensor *into, bool inplace, rl_tensor **out);
/* An expression over operands of one dtype, unrecorded (derivatives): result dtype is that of in[0], shape the broadcast. */
rl_status rl_expression(int expr, const rl_operand *in, int nin, const rl_number *p, rl_tensor **out);

#endif
