/* derivs: the words of derivs.h, each one call of a public operator. */
#include "derivs.h"

#define GIVES(call)                                \
    do {                                           \
        rl_tensor *t = NULL;                       \
        if (d->st != RL_OK)                        \
            return NULL;                           \
        rl_status st = (call);                     \
        return d_keep(d, st, t);                   \
    } while (0)

#define T(x) rl_operand_tensor(x)
#define N(x) rl_operand_number(x)

rl_tensor *d_add(rl_deriv *d, rl_tensor *a, rl_tensor *b) { GIVES(rl_add(T(a), T(b), &t)); }
rl_tensor *d_sub(rl_deriv *d, rl_tensor *a, rl_tensor *b) { GIVES(rl_sub(T(a), T(b), &t)); }
rl_tensor *d_mul(rl_deriv *d, rl_tensor *a, rl_tensor *b) { GIVES(rl_mul(T(a), T(b), &t)); }
rl_tensor *d_div(rl_deriv *d, rl_tensor *a, rl_tensor *b) { GIVES(rl_div(T(a), T(b), &t)); }
rl_tensor *d_add_number(rl_deriv *d, rl_tensor *a, double b) { GIVES(rl_add(T(a), N(b), &t)); }
rl_tensor *d_scale(rl_deriv *d, rl_tensor *a, double by) { GIVES(rl_mul(T(a), N(by), &t)); }
rl_tensor *d_scale_by(rl_deriv *d, rl_tensor *a, rl_scalar by)
{
    rl_operand number = {.s = by};
    GIVES(rl_mul(T(a), number, &t));
}
rl_tensor *d_div_number(rl_deriv *d, rl_tensor *a, double b) { GIVES(rl_div(T(a), N(b), &t)); }
rl_tensor *d_pow(rl_deriv *d, rl_tensor *a, double p) { GIVES(rl_pow(T(a), N(p), &t)); }
rl_tensor *d_neg(rl_deriv *d, rl_tensor *a) { GIVES(rl_neg(a, &t)); }
rl_tensor *d_exp(rl_deriv *d, rl_tensor *a) { GIVES(rl_exp(a, &t)); }
rl_tensor *d_log(rl_deriv *d, rl_tensor *a) { GIVES(rl_log(a, &t)); }
rl_tensor *d_abs(rl_deriv *d, rl_tensor *a) { GIVES(rl_abs(a, &t)); }
rl_tensor *d_sgn(rl_deriv *d, rl_tensor *a) { GIVES(rl_sgn(a, &t)); }
rl_tensor *d_eq(rl_deriv *d, rl_tensor *a, rl_tensor *b) { GIVES(rl_eq(T(a), T(b), &t)); }
rl_tensor *d_eq_number(rl_deriv *d, rl_tensor *a, double b) { GIVES(rl_eq(T(a), N(b), &t)); }
rl_tensor *d_lt_number(rl_deriv *d, rl_tensor *a, double b) { GIVES(rl_lt(T(a), N(b), &t)); }
rl_tensor *d_ge_number(rl_deriv *d, rl_tensor *a, double b) { GIVES(rl_ge(T(a), N(b), &t)); }
rl_tensor *d_fill_where(rl_deriv *d, rl_tensor *x, rl_tensor *mask, double value) { GIVES(rl_where(T(mask), N(value), T(x), &t)); }
rl_tensor *d_keep_where(rl_deriv *d, rl_tensor *x, rl_tensor *mask, double otherwise) { GIVES(rl_where(T(mask), T(x), N(otherwise), &t)); }
rl_tensor *d_cast(rl_deriv *d, rl_tensor *a, rl_dtype dtype) { GIVES(rl_cast(a, dtype, &t)); }

rl_tensor *d_zeros(rl_deriv *d, int ndim, const int64_t *shape, const rl_tensor *like)
{
    GIVES(rl_zeros(ndim, shape, (rl_dtype)like->dtype, rl_tensor_device(like), &t));
}
rl_tensor *d_zeros_like(rl_deriv *d, rl_tensor *a) { GIVES(rl_full_like(a, rl_scalar_int(0), RL_DTYPE_NONE, &t)); }
rl_tensor *d_reshape(rl_deriv *d, rl_tensor *a, int ndim, const int64_t *shape) { GIVES(rl_reshape(a, ndim, shape, &t)); }
rl_tensor *d_expand(rl_deriv *d, rl_tensor *a, int ndim, const int64_t *shape) { GIVES(rl_expand(a, ndim, shape, &t)); }
rl_tensor *d_sum_to(rl_deriv *d, rl_tensor *a, int ndim, const int64_t *shape) { GIVES(rl_sum_to(a, ndim, shape, &t)); }
rl_tensor *d_unsqueeze(rl_deriv *d, rl_tensor *a, int64_t dim) { GIVES(rl_unsqueeze(a, dim, &t)); }
rl_tensor *d_transpose(rl_deriv *d, rl_tensor *a, int64_t x, int64_t y) { GIVES(rl_transpose(a, x, y, &t)); }
rl_tensor *d_t(rl_deriv *d, rl_tensor *a) { GIVES(rl_transpose(a, -2, -1, &t)); }
rl_tensor *d_narrow(rl_deriv *d, rl_tensor *a, int64_t dim, int64_t start, int64_t length) { GIVES(rl_narrow(a, dim, start, length, &t)); }
rl_tensor *d_flip(rl_deriv *d, rl_tensor *a, int64_t dim) { GIVES(rl_flip(a, &dim, 1, &t)); }

rl_tensor *d_unreduce(rl_deriv *d, rl_tensor *a, int ndim, uint64_t mask, bool keepdim)
{
    int64_t shape[RL_MAX_NDIM];
    if (d->st != RL_OK || keepdim || ndim == 0 || mask == 0)
        return d->st == RL_OK ? a : NULL;
    for (int k = 0, at = 0; k < ndim; k++)
        shape[k] = mask >> k & 1 ? 1 : a->shape[at++];
    return d_reshape(d, a, ndim, shape);
}

static int axes_of(uint64_t mask, int ndim, int64_t *dims)
{
    int n = 0;
    for (int k = 0; k < ndim; k++)
        if (mask >> k & 1)
            dims[n++] = k;
    return n;
}

rl_tensor *d_sum_all(rl_deriv *d, rl_tensor *a) { GIVES(rl_sum(a, NULL, 0, false, RL_DTYPE_NONE, &t)); }

rl_tensor *d_sum_axes(rl_deriv *d, rl_tensor *a, uint64_t mask, bool keepdim)
{
    int64_t dims[RL_MAX_NDIM];
    if (d->st != RL_OK)
        return NULL;
    int n = axes_of(mask, a->ndim, dims);
    if (n == 0)
        return a;
    GIVES(rl_sum(a, dims, n, keepdim, RL_DTYPE_NONE, &t));
}

rl_tensor *d_cumsum(rl_deriv *d, rl_tensor *a, int64_t dim, bool reverse)
{
    if (reverse)
        return d_flip(d, d_cumsum(d, d_flip(d, a, dim), dim, false), dim);
    GIVES(rl_cumsum(a, dim, RL_DTYPE_NONE, &t));
}

rl_tensor *d_matmul(rl_deriv *d, rl_tensor *a, rl_tensor *b) { GIVES(rl_matmul(a, b, &t)); }
rl_tensor *d_gather(rl_deriv *d, rl_tensor *a, int64_t dim, rl_tensor *index) { GIVES(rl_gather(a, dim, index, &t)); }
rl_tensor *d_scatter_add(rl_deriv *d, rl_tensor *a, int64_t dim, rl_tensor *index, rl_tensor *src)
{
    GIVES(rl_scatter_add(a, dim, index, src, &t));
}
rl_tensor *d_index_select(rl_deriv *d, rl_tensor *a, int64_t dim, rl_tensor *index) { GIVES(rl_index_select(a, dim, index, &t)); }
rl_tensor *d_index_add(rl_deriv *d, rl_tensor *a, int64_t dim, rl_tensor *index, rl_tensor *src)
{
    GIVES(rl_index_add(a, dim, index, src, rl_scalar_int(1), &t));
}
