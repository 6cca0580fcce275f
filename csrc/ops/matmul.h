/* matmul: what matmul.c gives addmm.c and the backward rules of products. */
#ifndef RL_MATMUL_H
#define RL_MATMUL_H
#include "derivs.h"

/* A matrix as the kernel reads it: data and strides in elements. Transposing is swapping the two. */
typedef struct rl_matrix {
    const void *data;
    int64_t rows, cols, row, col;
} rl_matrix;

static inline rl_matrix rl_matrix_of(const rl_tensor *t) /* of 2 dimensions */
{
    return (rl_matrix){rl_tensor_data(t), t->shape[0], t->shape[1], t->strides[0], t->strides[1]};
}
static inline rl_matrix rl_matrix_t(rl_matrix m) { return (rl_matrix){m.data, m.cols, m.rows, m.col, m.row}; }

typedef struct rl_scaling {
    rl_scalar alpha, beta;
    const void *bias;
} rl_scaling;
#define RL_PLAIN_PRODUCT ((rl_scaling){.alpha = {.kind = RL_CAT_INT, .i = 1}, .beta = {.kind = RL_CAT_INT, .i = 0}})

/* out (m, n), contiguous, = alpha a @ b + beta out [+ bias]. Shapes and dtypes are the caller's care. */
rl_status rl_gemm(rl_tensor *out, void *c, rl_matrix a, rl_matrix b, rl_scaling s);
/* The product of (..., m, k) and (..., k, n) into out, contiguous over the broadcast batch; vectors stand for one row or one column. */
rl_status rl_gemm_batched(rl_tensor *out, rl_tensor *a, rl_tensor *b, rl_scaling s);
/* Same dtype, and one that has products. */
rl_status rl_product_types(const rl_tensor *a, const rl_tensor *b, const char *kernel);
/* An unrecorded product of matrices, either of them transposed. */
rl_status rl_mm_raw(rl_tensor *a, bool ta, rl_tensor *b, bool tb, rl_tensor **out);

#endif
