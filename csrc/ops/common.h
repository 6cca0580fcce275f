/* common: the small change of the operators that are not elementwise: launching a kernel, recording a node, giving results.
 *
 * Invariant: a function here that fails has left nothing behind; results and inputs stay the caller's.
 */
#ifndef RL_COMMON_H
#define RL_COMMON_H
#include "ops.h"

#include "../core/alloc.h"

/* Runs a kernel of the device that `on` lives on; a family that the device lacks is an error. */
rl_status rl_launch(const rl_tensor *on, rl_kernel k, const void *args);

/* When a gradient is needed: a node of `cls` over the inputs (NULLs allowed) whose outputs are outs[0..nout). *node is borrowed (the
 * outputs hold it) and NULL when nothing is recorded. */
rl_status rl_record(const rl_node_class *cls, rl_tensor *const *in, int nin, rl_tensor *const *outs, int nout, int nsaved, rl_node **node);

/* Recording is off between these two: what runs there is the inside of one operator. */
static inline bool rl_grad_off(void)
{
    rl_state *s = rl_state_get();
    bool old = s->grad_mode;
    s->grad_mode = false;
    return old;
}
static inline void rl_grad_restore(bool old) { rl_state_get()->grad_mode = old; }

/* The end of a row's function: hands `t` over, or drops it after a failure. A macro, so that `call` has run, and set t, before t is read. */
#define rl_give(call, t, r)               \
    ({                                    \
        rl_status given_st_ = (call);     \
        rl_give_one(given_st_, (t), (r)); \
    })
static inline rl_status rl_give_one(rl_status st, rl_tensor *t, rl_result *r)
{
    if (st == RL_OK)
        r->t[r->n++] = t;
    else
        rl_tensor_release(t);
    return st;
}
#define rl_give2(call, a, b, r)                  \
    ({                                           \
        rl_status given_st_ = (call);            \
        rl_give_one(given_st_, (a), (r));        \
        rl_give_one(given_st_, (b), (r));        \
    })

/* "Float": the dtype as PyTorch's messages print it. */
static inline const char *rl_scalar_type_text(rl_dtype d) { return rl_dtype_table[d].scalar_type; }
/* "float", "long int": the C++ type, for those that print that. */
const char *rl_cpp_type_text(rl_dtype d);

/* All operands on one device, as PyTorch words it; NULLs are skipped. */
rl_status rl_same_device(rl_tensor *const *v, int n, const char *op);

/* (outer, n, inner) around an axis. */
typedef struct rl_axis_split {
    int64_t outer, n, inner;
    int axis;
} rl_axis_split;
rl_status rl_axis_split_of(const rl_tensor *x, int64_t dim, rl_axis_split *out);

/* A contiguous tensor of x's values, in dtype d when that is not RL_DTYPE_NONE; unrecorded. */
rl_status rl_plain(rl_tensor *x, rl_dtype d, rl_tensor **out);

/* The shape of x with `mask`'s axes reduced to 1 (keepdim) or dropped. Returns the number of dimensions. */
int rl_reduced_shape(const rl_tensor *x, uint64_t mask, bool keepdim, int64_t *shape);

/* reduce.c: one pass of RL_K_REDUCE over the axes of `mask`; out2 only for operators that have it. Unrecorded. */
typedef struct rl_reduction {
    int op; /* RL_RED_ */
    uint64_t mask;
    bool keepdim;
    rl_dtype dtype, dtype2; /* of out, of out2 */
    double p;
} rl_reduction;
rl_status rl_reduce_run(rl_tensor *x, const rl_reduction *how, rl_tensor **out, rl_tensor **out2);
/* The axes of an optional list argument; none given or an empty list: all. */
rl_status rl_arg_axes(const rl_arg *a, int ndim, uint64_t *mask);

#endif
