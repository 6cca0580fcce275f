/* args: one plain struct for each kernel family, the contract between ops and a backend's kernels.
 *
 * Fixed-width members, no pointers to host structures except where a comment says "host"; the same header is C11, C++17
 * and CUDA. Strides are in bytes where a comment does not say elements. Shapes are innermost first where they come from
 * a plan (ELEMENTWISE, COPY, FILL, REDUCE, RANDOM), outermost first elsewhere. dtype members hold rl_dtype.
 * Kernels never see more than 8 dimensions.
 */
#ifndef RL_ARGS_H
#define RL_ARGS_H
#include <stdint.h>

#define RL_ARG_DIMS 8

typedef union rl_number {
    double f;
    int64_t i;
} rl_number;

/* out = expression(in...), see ops.def. Immediates are already in the compute type. */
#define RL_ELEM_INPUTS 5
typedef struct rl_elem_args {
    int32_t expr; /* RL_E_... */
    int32_t ndim;
    int64_t numel;
    int64_t shape[RL_ARG_DIMS];
    void *out;
    const void *in[RL_ELEM_INPUTS]; /* unused when the bit in `immediate` is set */
    int64_t out_strides[RL_ARG_DIMS];
    int64_t in_strides[RL_ELEM_INPUTS][RL_ARG_DIMS];
    rl_number value[RL_ELEM_INPUTS]; /* immediates: f for float compute types, i else */
    rl_number p[4];
    uint8_t nin, compute, out_dtype; /* compute: RL_F32, RL_F64, RL_I64 or RL_U8 */
    uint8_t immediate;               /* bit k: input k is value[k] */
    uint8_t in_dtype[RL_ELEM_INPUTS];
    uint8_t contiguous; /* every operand is dense in the same order: strides need not be read */
    uint8_t padded;     /* contiguous, and every operand may be read, the result written, up to the next multiple of 64 bytes */
} rl_elem_args;

/* dst = convert(src). */
typedef struct rl_copy_args {
    int32_t ndim;
    uint8_t dst_dtype, src_dtype;
    int64_t numel;
    int64_t shape[RL_ARG_DIMS];
    void *dst;
    const void *src;
    int64_t dst_strides[RL_ARG_DIMS], src_strides[RL_ARG_DIMS];
} rl_copy_args;

typedef struct rl_fill_args {
    int32_t ndim;
    uint8_t dtype;
    uint8_t is_float; /* which member of value */
    int64_t numel;
    int64_t shape[RL_ARG_DIMS];
    void *dst;
    int64_t strides[RL_ARG_DIMS];
    rl_number value;
} rl_fill_args;

/* dst[i] = start + i * step (arange), or linspace's symmetric form when `linspace`: from both ends, as PyTorch. Contiguous. */
typedef struct rl_range_args {
    uint8_t dtype, is_float, linspace;
    int64_t n;
    void *dst;
    rl_number start, step, end;
} rl_range_args;

/* dst = src where column - row >= / <= diagonal, else 0, for each matrix of a batch. Element strides; contiguous dst. */
typedef struct rl_tri_args {
    uint8_t itemsize, upper;
    int64_t batch, rows, cols, diagonal;
    void *dst;
    const void *src; /* contiguous */
} rl_tri_args;

enum { RL_RED_SUM, RL_RED_PROD, RL_RED_MAX, RL_RED_MIN, RL_RED_ANY, RL_RED_ALL, RL_RED_ARGMAX, RL_RED_ARGMIN, RL_RED_MAX_INDEX, RL_RED_MIN_INDEX,
       RL_RED_VAR, RL_RED_STD, RL_RED_VAR_MEAN, RL_RED_STD_MEAN, RL_RED_NORM, RL_RED_MEAN, RL_RED_NANSUM, RL_RED_COUNT_NONZERO, RL_RED_LOGSUMEXP, RL_RED_COUNT };
/* The domain is kept dimensions times reduced dimensions, each innermost first; outputs have strides for the kept ones.
 * in: of in_dtype; out: of out_dtype; accumulation in float (16-bit and float32: blocked pairwise), double or int64.
 * ARGMAX/MIN write an index into out (int64), over the flattened reduced dimensions in logical order; *_INDEX write value
 * and index; VAR_MEAN writes var and mean. NaN wins in MAX/MIN, the first index is taken. Empty reduced domain: the
 * identity (ops refuses where there is none). */
typedef struct rl_reduce_args {
    int32_t op;
    uint8_t in_dtype, out_dtype, nkeep, nreduce;
    int64_t keep[RL_ARG_DIMS], reduce[RL_ARG_DIMS];
    int64_t in_keep_strides[RL_ARG_DIMS], in_reduce_strides[RL_ARG_DIMS];
    int64_t out_strides[RL_ARG_DIMS], out2_strides[RL_ARG_DIMS];
    int64_t nkept, nreduced; /* products */
    const void *in;
    void *out, *out2;
    double p; /* NORM: the order (inf, -inf, 0 too); VAR/STD: the correction */
} rl_reduce_args;

enum { RL_SCAN_SUM, RL_SCAN_PROD, RL_SCAN_MAX, RL_SCAN_MIN, RL_SCAN_LOGSUMEXP };
/* Along the middle of (outer, n, inner), all contiguous; MAX/MIN write indices into out2. dtype of in and out is the same. */
typedef struct rl_scan_args {
    int32_t op;
    uint8_t dtype, reverse;
    int64_t outer, n, inner;
    const void *in;
    void *out, *out2;
} rl_scan_args;

/* For each of `batch`: C (m, n) = alpha * A (m, k) @ B (k, n) + beta * C [+ bias over n]; with `relu` clamped at 0 after.
 * Strides in elements, any of them may be 0 or unordered; C's column stride is 1 or its row stride is 1. beta == 0 never reads C. */
typedef struct rl_gemm_args {
    uint8_t dtype, relu;
    int64_t m, n, k, batch;
    const void *a, *b;
    void *c;
    const void *bias; /* contiguous (n), or NULL */
    int64_t a_row, a_col, b_row, b_col, c_row, c_col;
    int64_t a_batch, b_batch, c_batch;
    double alpha, beta;
    int64_t alpha_i, beta_i; /* the same for integer dtypes */
} rl_gemm_args;

enum { RL_INDEX_GET, RL_INDEX_PUT, RL_INDEX_ADD };
/* Advanced indexing. x is seen as strided; `nindex` of its dimensions are indexed by int64 tensors broadcast to one shape.
 * The iteration space is (before..., index..., after...) of the result in logical order, outermost first:
 * value[i] <-> x[ sum(x_strides . plain indices) + sum_k index_k[i] * index_x_stride[k] ].
 * x_strides[d] is 0 on index dimensions, index_strides[k][d] is 0 on plain ones. A negative index counts from the end; one
 * out of range makes the kernel return RL_ERR_INDEX with PyTorch's text before anything is written. */
typedef struct rl_index_args {
    int32_t mode;
    uint8_t dtype, nindex;
    int32_t ndim;
    int64_t numel;
    int64_t shape[RL_ARG_DIMS];
    void *x;
    void *value; /* GET: written; PUT, ADD: read */
    int64_t x_strides[RL_ARG_DIMS], value_strides[RL_ARG_DIMS];
    const int64_t *index[RL_ARG_DIMS];
    int64_t index_strides[RL_ARG_DIMS][RL_ARG_DIMS];
    int64_t index_size[RL_ARG_DIMS];     /* of the indexed dimension: the bound */
    int64_t index_x_stride[RL_ARG_DIMS]; /* bytes */
    int32_t index_dim[RL_ARG_DIMS];      /* for the message */
} rl_index_args;

enum { RL_GATHER_GET, RL_SCATTER_SET, RL_SCATTER_ADD, RL_SCATTER_PROD, RL_SCATTER_MAX, RL_SCATTER_MIN, RL_SCATTER_MEAN };
/* gather: out[i][j][k] = x[index[i][j][k]][j][k] along `dim`; scatter the other way. Shapes outermost first, of index. Strides in bytes. */
typedef struct rl_gather_args {
    int32_t mode, ndim, dim;
    uint8_t dtype;
    int64_t shape[RL_ARG_DIMS];
    int64_t dim_size; /* of x along dim: the bound */
    void *x;
    void *value;      /* GET: written */
    const int64_t *index;
    int64_t x_strides[RL_ARG_DIMS], value_strides[RL_ARG_DIMS], index_strides[RL_ARG_DIMS];
    uint8_t value_is_scalar;
    rl_number scalar;
} rl_gather_args;

enum { RL_SELECT_GET, RL_SELECT_ADD, RL_SELECT_SET };
/* Rows by number: x is (outer, size, inner) contiguous, value (outer, count, inner) contiguous.
 * GET: value[o][j] = x[o][index[j]]; ADD: x[o][index[j]] += alpha * value[o][j]; SET likewise. skip >= 0: index j == skip is passed over
 * (embedding's padding_idx in backward). An index out of [0, size) makes the kernel return RL_ERR_INDEX before anything is written. */
typedef struct rl_select_args {
    int32_t mode;
    uint8_t dtype, index_is_32;
    uint8_t pad_[3];
    int64_t outer, size, inner, count;
    void *x;
    void *value;
    const void *index;
    int64_t skip;
    double alpha;
} rl_select_args;

/* Two calls: with index NULL counts the elements that are not 0 into *count (host); then writes their coordinates,
 * (count, ndim) int64, in logical order. Strides in bytes, outermost first. */
typedef struct rl_nonzero_args {
    uint8_t dtype;
    int32_t ndim;
    int64_t numel;
    int64_t shape[RL_ARG_DIMS], strides[RL_ARG_DIMS];
    const void *in;
    int64_t *index;
    int64_t *count; /* host */
} rl_nonzero_args;

/* Along the last axis of (rows, n) contiguous: the first k in order with their indices; k == n: a whole sort. NaN counts as
 * the largest. stable: equal elements keep their order (always true on the CPU). */
typedef struct rl_sort_args {
    uint8_t dtype, descending, stable, sorted;
    int64_t rows, n, k;
    const void *in;
    void *out;
    int64_t *index;
} rl_sort_args;

enum { RL_SOFTMAX, RL_LOG_SOFTMAX };
/* Along the middle of (outer, n, inner), contiguous. backward: x is grad, y the forward's result, out the input's grad. */
typedef struct rl_softmax_args {
    int32_t op;
    uint8_t dtype, backward;
    int64_t outer, n, inner;
    const void *x, *y;
    void *out;
} rl_softmax_args;

/* Over rows of (rows, n) contiguous. mean and rstd: float32 (float64 for float64), one a row. backward: dx, and dw, db (NULL: not wanted). */
typedef struct rl_layer_norm_args {
    uint8_t dtype, backward, rms;
    int64_t rows, n;
    double eps;
    const void *x, *weight, *bias; /* weight, bias: NULL or (n) */
    void *out, *mean, *rstd;
    const void *grad;
    void *dx, *dw, *db;
} rl_layer_norm_args;

enum { RL_LOSS_NONE, RL_LOSS_MEAN, RL_LOSS_SUM };
/* cross_entropy over (rows, classes) contiguous logits and int64 targets; loss: (rows) or one. lse: one a row, in the accumulation
 * dtype, kept for backward; total_weight: one. backward writes dx from grad (rows or one). log_input: x is log-probabilities (nll_loss).
 * Target out of [0, classes) and != ignore: RL_ERR_INDEX before anything is written. */
typedef struct rl_cross_entropy_args {
    uint8_t dtype, reduction, backward, log_input;
    int64_t rows, classes, ignore;
    double smoothing;
    const void *x;
    const int64_t *target;
    const void *weight; /* NULL or (classes) */
    void *loss, *lse, *total_weight;
    const void *grad;
    void *dx;
} rl_cross_entropy_args;

enum { RL_RAND_UNIFORM, RL_RAND_NORMAL, RL_RAND_BERNOULLI, RL_RAND_BERNOULLI_TENSOR, RL_RAND_RANDINT, RL_RAND_RANDOM, RL_RAND_EXPONENTIAL,
       RL_RAND_GEOMETRIC, RL_RAND_CAUCHY, RL_RAND_LOG_NORMAL, RL_RAND_PERM, RL_RAND_DROPOUT_MASK };
/* A fill in memory order (shape innermost first by stride). dense: the output is contiguous as is_contiguous() says (normal's 16-blocks). */
typedef struct rl_random_args {
    int32_t dist, ndim;
    uint8_t dtype, dense, p_dtype;
    int64_t numel;
    int64_t shape[RL_ARG_DIMS], strides[RL_ARG_DIMS];
    void *out;
    const void *p; /* BERNOULLI_TENSOR: probabilities, p_strides */
    int64_t p_strides[RL_ARG_DIMS];
    double a, b;
    int64_t from;
    uint64_t range;
    uint8_t full; /* RANDINT: raw 64 bits */
    void *generator; /* host: rl_generator, locked by the caller on the CPU */
} rl_random_args;

enum { RL_OPT_SGD, RL_OPT_ADAM, RL_OPT_ADAMW, RL_OPT_RMSPROP, RL_OPT_ADAGRAD };
/* One step over `count` parameters. The arrays are host arrays of `count` data pointers; state[j] may be NULL. All of one dtype.
 * Parameters, gradients and states are dense in the same order. */
typedef struct rl_optim_args {
    int32_t kind;
    uint8_t dtype, maximize, nesterov, amsgrad, centered, first; /* first: momentum buffers are unset */
    int64_t count;
    void *const *param;
    const void *const *grad;
    void *const *state[3]; /* SGD: buf. Adam: exp_avg, exp_avg_sq, max_exp_avg_sq. RMSprop: square_avg, buf, grad_avg. Adagrad: sum */
    const int64_t *numel;
    const double *step; /* the step number of each, after this step */
    double lr, momentum, dampening, weight_decay, beta1, beta2, eps, alpha, lr_decay;
    const float *inv_scale, *found_inf; /* device scalars of GradScaler, or NULL */
} rl_optim_args;

/* The p-norm of all elements of `count` dense tensors into out[0] (double), and of each into out[1..count] when `each`. Scaled or in double:
 * never overflows for finite float32 input. Then, if `clip` >= 0: scales every tensor by min(1, clip / (norm + 1e-6)). */
typedef struct rl_multi_norm_args {
    uint8_t dtype, each;
    int64_t count;
    void *const *data; /* host array */
    const int64_t *numel;
    double p;
    double *out;
    double clip;
} rl_multi_norm_args;

#endif
