/* ops: the public operators as C functions, for derivs.c, composed operators, the engine and py's fast paths.
 *
 * Each checks its arguments, allocates, calls the backend and records, like a call from Python. Results are new references.
 * Elementwise rows get theirs from the table: UNARY rl_exp(x, &out); BINARY rl_mul(operand, operand, &out) without parameters
 * (add and sub with alpha 1).
 */
#ifndef RL_OPS_H
#define RL_OPS_H
#include "op.h"

#define UNARY(name, ...) rl_status rl_##name(rl_tensor *x, rl_tensor **out);
#define BINARY(name, ...) rl_status rl_##name(rl_operand x, rl_operand y, rl_tensor **out);
#define TERNARY(name, ...) rl_status rl_##name(rl_operand x, rl_operand y, rl_operand z, rl_tensor **out);
#define OP(...)
#define ALIAS(...)
#include "ops.def"
#undef UNARY
#undef BINARY
#undef TERNARY
#undef OP
#undef ALIAS

/* pointwise.c */
rl_status rl_pow(rl_operand x, rl_operand y, rl_tensor **out);
rl_status rl_square(rl_tensor *x, rl_tensor **out);
rl_status rl_where(rl_operand condition, rl_operand x, rl_operand y, rl_tensor **out);
rl_status rl_op_div_mode(rl_call *call, rl_result *result); /* div's overload with a rounding mode */
void rl_ops_init(void); /* gives the graph its operators; once, at load */


/* copy.c: creation, copies, conversion */
rl_status rl_full(int ndim, const int64_t *shape, rl_scalar value, rl_dtype d, rl_device dev, rl_tensor **out);
rl_status rl_zeros(int ndim, const int64_t *shape, rl_dtype d, rl_device dev, rl_tensor **out);
rl_status rl_full_like(rl_tensor *like, rl_scalar value, rl_dtype d, rl_tensor **out);
rl_status rl_fill_(rl_tensor *x, rl_scalar value);             /* unrecorded, bumps nothing */
rl_status rl_copy_raw(rl_tensor *dst, rl_tensor *src);         /* dst = src, broadcast and converted, across devices; unrecorded, bumps nothing */
rl_status rl_copy_(rl_tensor *dst, rl_tensor *src);            /* the operator: checked, recorded, bumped */
rl_status rl_clone(rl_tensor *x, rl_memory_format f, rl_tensor **out);
rl_status rl_contiguous(rl_tensor *x, rl_tensor **out);        /* x itself when it is */
rl_status rl_to(rl_tensor *x, rl_dtype d, rl_device dev, bool copy, rl_memory_format f, rl_tensor **out);
rl_status rl_cast(rl_tensor *x, rl_dtype d, rl_tensor **out);
rl_status rl_tensor_resize(rl_tensor *x, int ndim, const int64_t *shape); /* contiguous geometry; the storage grows when it must */
rl_status rl_arange(rl_scalar start, rl_scalar end, rl_scalar step, rl_dtype d, rl_device dev, rl_tensor **out);

/* shape.c: views */
rl_status rl_view(rl_tensor *x, int ndim, const int64_t *shape, rl_tensor **out);    /* -1 allowed once */
rl_status rl_reshape(rl_tensor *x, int ndim, const int64_t *shape, rl_tensor **out);
rl_status rl_permute(rl_tensor *x, int n, const int64_t *dims, rl_tensor **out);
rl_status rl_transpose(rl_tensor *x, int64_t a, int64_t b, rl_tensor **out);
rl_status rl_expand(rl_tensor *x, int ndim, const int64_t *shape, rl_tensor **out);
rl_status rl_squeeze(rl_tensor *x, rl_tensor **out);
rl_status rl_squeeze_dims(rl_tensor *x, const int64_t *dims, int n, rl_tensor **out);
rl_status rl_unsqueeze(rl_tensor *x, int64_t dim, rl_tensor **out);
rl_status rl_select(rl_tensor *x, int64_t dim, int64_t index, rl_tensor **out);
rl_status rl_slice(rl_tensor *x, int64_t dim, int64_t start, int64_t end, int64_t step, rl_tensor **out);
rl_status rl_narrow(rl_tensor *x, int64_t dim, int64_t start, int64_t length, rl_tensor **out);
rl_status rl_as_strided(rl_tensor *x, int ndim, const int64_t *shape, const int64_t *strides, int64_t offset, rl_tensor **out);
rl_status rl_diagonal(rl_tensor *x, int64_t offset, int64_t d1, int64_t d2, rl_tensor **out);
rl_status rl_detach(rl_tensor *x, rl_tensor **out);
rl_status rl_cat(rl_tensor *const *v, int n, int64_t dim, rl_tensor **out);
rl_status rl_sum_to(rl_tensor *x, int ndim, const int64_t *shape, rl_tensor **out); /* undoes broadcasting; x itself when equal */

/* reduce.c. dims NULL or n == 0: all. */
rl_status rl_sum(rl_tensor *x, const int64_t *dims, int n, bool keepdim, rl_dtype d, rl_tensor **out);
rl_status rl_mean(rl_tensor *x, const int64_t *dims, int n, bool keepdim, rl_dtype d, rl_tensor **out);
rl_status rl_amax(rl_tensor *x, const int64_t *dims, int n, bool keepdim, rl_tensor **out);
rl_status rl_cumsum(rl_tensor *x, int64_t dim, rl_dtype d, rl_tensor **out);
rl_status rl_cumprod(rl_tensor *x, int64_t dim, rl_dtype d, rl_tensor **out);
rl_status rl_logcumsumexp(rl_tensor *x, int64_t dim, rl_tensor **out);
rl_status rl_flip(rl_tensor *x, const int64_t *dims, int n, rl_tensor **out);

/* matmul.c */
rl_status rl_matmul(rl_tensor *a, rl_tensor *b, rl_tensor **out);
rl_status rl_linear(rl_tensor *x, rl_tensor *w, rl_tensor *bias, rl_tensor **out); /* bias may be NULL */
rl_status rl_addmm(rl_tensor *c, rl_tensor *a, rl_tensor *b, rl_scalar beta, rl_scalar alpha, rl_tensor **out);

/* index.c. indices: one for each leading dimension of x, NULL: a full slice; bool masks allowed. */
rl_status rl_index(rl_tensor *x, rl_tensor *const *indices, int n, rl_tensor **out);
rl_status rl_index_put_(rl_tensor *x, rl_tensor *const *indices, int n, rl_tensor *value, bool accumulate);
rl_status rl_gather(rl_tensor *x, int64_t dim, rl_tensor *index, rl_tensor **out);
rl_status rl_scatter_add(rl_tensor *x, int64_t dim, rl_tensor *index, rl_tensor *src, rl_tensor **out);
rl_status rl_index_select(rl_tensor *x, int64_t dim, rl_tensor *index, rl_tensor **out);
rl_status rl_index_add(rl_tensor *x, int64_t dim, rl_tensor *index, rl_tensor *src, rl_scalar alpha, rl_tensor **out);
rl_status rl_nonzero(rl_tensor *x, rl_tensor **out);
rl_status rl_index_put(rl_tensor *x, rl_tensor *const *indices, int n, rl_tensor *value, bool accumulate, rl_tensor **out);
rl_status rl_masked_select(rl_tensor *x, rl_tensor *mask, rl_tensor **out);
rl_status rl_scatter(rl_tensor *x, int64_t dim, rl_tensor *index, rl_tensor *src, rl_tensor **out);
rl_status rl_embedding(rl_tensor *weight, rl_tensor *indices, int64_t padding, bool by_frequency, rl_tensor **out);
rl_status rl_take(rl_tensor *x, rl_tensor *index, rl_tensor **out);

/* sort.c: values and indices, both new references */
rl_status rl_topk(rl_tensor *x, int64_t k, int64_t dim, bool largest, bool sorted, rl_tensor **values, rl_tensor **indices);

/* norm.c: softmax, layer norm, losses */
rl_status rl_softmax(rl_tensor *x, int64_t dim, bool log, rl_dtype d, rl_tensor **out);
rl_status rl_layer_norm(rl_tensor *x, const int64_t *shape, int n, rl_tensor *weight, rl_tensor *bias, double eps, rl_tensor **out);

/* The item of a one-element tensor; waits for its device. */
rl_status rl_item(rl_tensor *x, rl_scalar *out);

#endif
