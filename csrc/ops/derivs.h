/* derivs: the words that backward rules are written in, and the node classes of reductions, products, indexing, rows and losses.
 *
 * Each d_* is one public operator inside a derivation (deriv.h): NULL in, or an error before, gives NULL. Axes are masks here: bit k is axis k.
 */
#ifndef RL_DERIVS_H
#define RL_DERIVS_H
#include "common.h"
#include "deriv.h"

/* ---- operators ---- */
rl_tensor *d_add(rl_deriv *d, rl_tensor *a, rl_tensor *b);
rl_tensor *d_sub(rl_deriv *d, rl_tensor *a, rl_tensor *b);
rl_tensor *d_mul(rl_deriv *d, rl_tensor *a, rl_tensor *b);
rl_tensor *d_div(rl_deriv *d, rl_tensor *a, rl_tensor *b);
rl_tensor *d_add_number(rl_deriv *d, rl_tensor *a, double b);
rl_tensor *d_scale(rl_deriv *d, rl_tensor *a, double by);
rl_tensor *d_scale_by(rl_deriv *d, rl_tensor *a, rl_scalar by);
rl_tensor *d_div_number(rl_deriv *d, rl_tensor *a, double b);
rl_tensor *d_pow(rl_deriv *d, rl_tensor *a, double p);
rl_tensor *d_neg(rl_deriv *d, rl_tensor *a);
rl_tensor *d_exp(rl_deriv *d, rl_tensor *a);
rl_tensor *d_log(rl_deriv *d, rl_tensor *a);
rl_tensor *d_abs(rl_deriv *d, rl_tensor *a);
rl_tensor *d_sgn(rl_deriv *d, rl_tensor *a);
rl_tensor *d_eq(rl_deriv *d, rl_tensor *a, rl_tensor *b);
rl_tensor *d_eq_number(rl_deriv *d, rl_tensor *a, double b);
rl_tensor *d_lt_number(rl_deriv *d, rl_tensor *a, double b);
rl_tensor *d_ge_number(rl_deriv *d, rl_tensor *a, double b);
/* where(mask, number, x) and where(mask, x, number) */
rl_tensor *d_fill_where(rl_deriv *d, rl_tensor *x, rl_tensor *mask, double value);
rl_tensor *d_keep_where(rl_deriv *d, rl_tensor *x, rl_tensor *mask, double otherwise);
rl_tensor *d_cast(rl_deriv *d, rl_tensor *a, rl_dtype dtype);

/* ---- shapes ---- */
rl_tensor *d_zeros(rl_deriv *d, int ndim, const int64_t *shape, const rl_tensor *like);
rl_tensor *d_zeros_like(rl_deriv *d, rl_tensor *a);
rl_tensor *d_reshape(rl_deriv *d, rl_tensor *a, int ndim, const int64_t *shape);
rl_tensor *d_expand(rl_deriv *d, rl_tensor *a, int ndim, const int64_t *shape);
rl_tensor *d_sum_to(rl_deriv *d, rl_tensor *a, int ndim, const int64_t *shape);
rl_tensor *d_unsqueeze(rl_deriv *d, rl_tensor *a, int64_t dim);
rl_tensor *d_transpose(rl_deriv *d, rl_tensor *a, int64_t x, int64_t y);
rl_tensor *d_t(rl_deriv *d, rl_tensor *a); /* of the last two axes */
rl_tensor *d_narrow(rl_deriv *d, rl_tensor *a, int64_t dim, int64_t start, int64_t length);
rl_tensor *d_flip(rl_deriv *d, rl_tensor *a, int64_t dim);
/* The reduced axes of `mask` come back with size 1, for a result of keepdim == false. */
rl_tensor *d_unreduce(rl_deriv *d, rl_tensor *a, int ndim, uint64_t mask, bool keepdim);

/* ---- families ---- */
rl_tensor *d_sum_all(rl_deriv *d, rl_tensor *a);
rl_tensor *d_sum_axes(rl_deriv *d, rl_tensor *a, uint64_t mask, bool keepdim);
rl_tensor *d_cumsum(rl_deriv *d, rl_tensor *a, int64_t dim, bool reverse);
rl_tensor *d_matmul(rl_deriv *d, rl_tensor *a, rl_tensor *b);
rl_tensor *d_gather(rl_deriv *d, rl_tensor *a, int64_t dim, rl_tensor *index);
rl_tensor *d_scatter_add(rl_deriv *d, rl_tensor *a, int64_t dim, rl_tensor *index, rl_tensor *src);
rl_tensor *d_index_select(rl_deriv *d, rl_tensor *a, int64_t dim, rl_tensor *index);
rl_tensor *d_index_add(rl_deriv *d, rl_tensor *a, int64_t dim, rl_tensor *index, rl_tensor *src);

/* ---- node classes: X(name, grad_fn, rule), the rule in derivs_<area>.c ---- */
#define RL_REDUCE_DERIVS(X)                                   \
    X(sum, "SumBackward0", back_sum)                          \
    X(mean, "MeanBackward0", back_mean)                       \
    X(nansum, "NansumBackward0", back_nansum)                 \
    X(prod, "ProdBackward0", back_prod)                       \
    X(extreme, "MaxBackward1", back_extreme)                  \
    X(extreme_index, "MaxBackward0", back_extreme_index)      \
    X(aminmax, "AminmaxBackward0", back_aminmax)              \
    X(var, "VarBackward0", back_var)                          \
    X(std, "StdBackward0", back_std)                          \
    X(var_mean, "VarMeanBackward0", back_var_mean)            \
    X(std_mean, "StdMeanBackward0", back_std_mean)            \
    X(vector_norm, "LinalgVectorNormBackward0", back_norm)    \
    X(logsumexp, "LogsumexpBackward0", back_logsumexp)        \
    X(cumsum, "CumsumBackward0", back_cumsum)                 \
    X(cumprod, "CumprodBackward0", back_cumprod)              \
    X(cumextreme, "CummaxBackward0", back_cumextreme)         \
    X(logcumsumexp, "LogcumsumexpBackward0", back_logcumsumexp) \
    X(trace, "TraceBackward0", back_trace)
#define RL_MATMUL_DERIVS(X)                                   \
    X(mm, "MmBackward0", back_mm)                             \
    X(mv, "MvBackward0", back_mv)                             \
    X(dot, "DotBackward0", back_dot)                          \
    X(matmul, "UnsafeViewBackward0", back_matmul)             \
    X(linear, "AddmmBackward0", back_linear)                  \
    X(addmm, "AddmmBackward0", back_addmm)                    \
    X(addmv, "AddmvBackward0", back_addmv)                    \
    X(addr, "AddrBackward0", back_addr)                       \
    X(addbmm, "AddbmmBackward0", back_addbmm)
#define RL_INDEX_DERIVS(X)                                    \
    X(index, "IndexBackward0", back_index)                    \
    X(index_put, "IndexPutBackward0", back_index_put)         \
    X(index_select, "IndexSelectBackward0", back_index_select) \
    X(index_add, "IndexAddBackward0", back_index_add)         \
    X(index_copy, "IndexCopyBackward0", back_index_copy)      \
    X(index_fill, "IndexFillBackward0", back_index_fill)      \
    X(gather, "GatherBackward0", back_gather)                 \
    X(scatter, "ScatterBackward0", back_scatter)              \
    X(scatter_add, "ScatterAddBackward0", back_scatter_add)   \
    X(scatter_reduce, "ScatterReduceBackward0", back_scatter_reduce) \
    X(take, "TakeBackward0", back_take)                       \
    X(put, "PutBackward0", back_put)                          \
    X(masked_select, "MaskedSelectBackward0", back_masked_select) \
    X(masked_scatter, "MaskedScatterBackward0", back_masked_scatter) \
    X(embedding, "EmbeddingBackward0", back_embedding)        \
    X(sort, "SortBackward0", back_sort)
#define RL_NORM_DERIVS(X)                                     \
    X(softmax, "SoftmaxBackward0", back_softmax)              \
    X(log_softmax, "LogSoftmaxBackward0", back_log_softmax)   \
    X(layer_norm, "NativeLayerNormBackward0", back_layer_norm) \
    X(rms_norm, "FusedRmsNormBackward0", back_rms_norm)
#define RL_LOSS_DERIVS(X)                                     \
    X(mse_loss, "MseLossBackward0", back_mse_loss)            \
    X(smooth_l1_loss, "SmoothL1LossBackward0", back_smooth_l1) \
    X(huber_loss, "HuberLossBackward0", back_huber)           \
    X(bce, "BinaryCrossEntropyBackward0", back_bce)           \
    X(bce_logits, "BinaryCrossEntropyWithLogitsBackward0", back_bce_logits) \
    X(nll_loss, "NllLossBackward0", back_nll_loss)            \
    X(cross_entropy, "NllLossBackward0", back_cross_entropy)

#define X(name, grad_fn, rule) extern const rl_node_class rl_class_##name;
RL_REDUCE_DERIVS(X)
RL_MATMUL_DERIVS(X)
RL_INDEX_DERIVS(X)
RL_NORM_DERIVS(X)
RL_LOSS_DERIVS(X)
#undef X
extern const rl_node_class rl_class_random; /* random.c */

#endif
