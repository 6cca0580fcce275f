/* gemm.c: RL_K_GEMM on the CPU: which product serves a dtype.
 *
 * float32 and float64 have their own; 16-bit floats are widened once and rounded once, after the whole sum; integers wrap in their own width, so a sum in 64 bits that
 * is cut at the end is the same.
 */
#include "gemm.h"

#include <string.h>

/* A matrix of every batch, dense, in float32. */
static void widen(float *to, const void *from, const rl_gemm_args *a, int64_t rows, int64_t cols, int64_t row, int64_t col, int64_t batch)
{
    rl_convert_fn load = RL_LEVEL_NAME(rl_convert_load)(RL_F32, (rl_dtype)a->dtype);
    for (int64_t b = 0; b < a->batch; b++)
        for (int64_t i = 0; i < rows; i++)
            load(to + (b * rows + i) * cols, (const char *)from + (b * batch + i * row) * 2, col * 2, cols);
}

static rl_status run_half(const rl_gemm_args *a)
{
    int64_t na = a->batch * a->m * a->k, nb = a->batch * a->k * a->n, nc = a->batch * a->m * a->n;
    size_t bytes = (size_t)(na + nb + nc + a->n) * sizeof(float);
    void *memory;
    rl_convert_fn store = RL_LEVEL_NAME(rl_convert_store)(RL_F32, (rl_dtype)a->dtype);
    RL_RETURN(rl_host_alloc(bytes, &memory));
    float *A = memory, *B = A + na, *C = B + nb, *bias = C + nc;
    widen(A, a->a, a, a->m, a->k, a->a_row, a->a_col, a->a_batch);
    widen(B, a->b, a, a->k, a->n, a->b_row, a->b_col, a->b_batch);
    if (a->beta != 0)
        widen(C, a->c, a, a->m, a->n, a->c_row, a->c_col, a->c_batch);
    rl_gemm_args w = *a;
    if (a->bias) {
        RL_LEVEL_NAME(rl_convert_load)(RL_F32, (rl_dtype)a->dtype)(bias, a->bias, 2, a->n);
        w.bias = bias;
    }
    w.dtype = RL_F32;
    w.a = A, w.b = B, w.c = C;
    w.a_row = a->k, w.b_row = w.c_row = a->n;
    w.a_col = w.b_col = w.c_col = 1;
    w.a_batch = a->m * a->k, w.b_batch = a->k * a->n, w.c_batch = a->m * a->n;
    rl_status st = RL_LEVEL_NAME(rl_gemm_f32)(&w);
    for (int64_t b = 0; st == RL_OK && b < a->batch; b++)
        for (int64_t i = 0; i < a->m; i++)
            store((char *)a->c + (b * a->c_batch + i * a->c_row) * 2, C + (b * a->m + i) * a->n, a->c_col * 2, a->n);
    rl_host_free(memory, bytes);
    return st;
}

static int64_t int_dot(const rl_gemm_args *a, const char *x, const char *y, int size)
{
    uint64_t sum = 0;
    for (int64_t k = 0; k < a->k; k++, x += a->a_col * size, y += a->b_row * size)
        sum += (uint64_t)rl_element_load(x, (rl_dtype)a->dtype).i * (uint64_t)rl_element_load(y, (rl_dtype)a->dtype).i;
    return (int64_t)sum;
}

/* Rows [begin, end) of all batches. */
static void run_int_rows(void *context, int64_t begin, int64_t end, int64_t block)
{
    const rl_gemm_args *a = context;
    rl_dtype d = (rl_dtype)a->dtype;
    int size = rl_dtype_size(d);
    (void)block;
    for (int64_t r = begin; r < end; r++) {
        int64_t b = r / a->m, i = r % a->m;
        for (int64_t j = 0; j < a->n; j++) {
            char *c = (char *)a->c + (b * a->c_batch + i * a->c_row + j * a->c_col) * size;
            uint64_t v = (uint64_t)a->alpha_i * (uint64_t)int_dot(a, (const char *)a->a + (b * a->a_batch + i * a->a_row) * size,
                                                                  (const char *)a->b + (b * a->b_batch + j * a->b_col) * size, size);
            if (a->beta_i != 0)
                v += (uint64_t)a->beta_i * (uint64_t)rl_element_load(c, d).i;
            if (a->bias)
                v += (uint64_t)rl_element_load((const char *)a->bias + j * size, d).i;
            rl_element_store(c, d, rl_scalar_int((int64_t)v));
        }
    }
}

rl_status RL_LEVEL_NAME(rl_kernel_gemm)(const void *args, rl_stream stream)
{
    const rl_gemm_args *a = args;
    (void)stream;
    switch (a->dtype) {
    case RL_F32: return RL_LEVEL_NAME(rl_gemm_f32)(a);
    case RL_F64: return RL_LEVEL_NAME(rl_gemm_f64)(a);
    case RL_F16:
    case RL_BF16: return run_half(a);
    default: rl_parallel_for(a->batch * a->m, 1 + 32768 / (1 + a->n * a->k), run_int_rows, (void *)a); return RL_OK;
    }
}
