/* softmax.c: RL_K_SOFTMAX on the CPU: softmax and log_softmax along the middle of (outer, n, inner), forward and backward.
 *
 * A row is read three times while it is in the cache: maximum, exponentials with their sum, scale. Columns (inner > 1) go in strips of LANES that are gathered
 * into dense rows. 16-bit floats pass through float32 rows. A row of -inf is NaN, as in PyTorch.
 */
#include "rows.h"

typedef struct job {
    const rl_softmax_args *a;
    rl_convert_fn load, store; /* 16-bit */
    int size;
    atomic_int failed;
} job;

#define FORMULAS(T, S)                                                              \
    static void forward_##S(int op, T *out, const T *x, int64_t n)                  \
    {                                                                               \
        T m = row_max_##S(x, n);                                                    \
        if (op == RL_LOG_SOFTMAX) {                                                 \
            T shift = m + m_log_##S(row_exp_sum_##S(NULL, x, m, n));                \
            if (m == (T)-INFINITY)                                                  \
                shift = (T)NAN;                                                     \
            T log_sum = shift - m;                                                  \
            for (int64_t i = 0; i < n; i++)                                         \
                out[i] = x[i] - m - log_sum;                                        \
            return;                                                                 \
        }                                                                           \
        T scale = 1 / row_exp_sum_##S(out, x, m, n);                                \
        for (int64_t i = 0; i < n; i++)                                             \
            out[i] *= scale;                                                        \
    }                                                                               \
    static void backward_##S(int op, T *out, const T *g, const T *y, int64_t n)     \
    {                                                                               \
        if (op == RL_LOG_SOFTMAX) {                                                 \
            T sum = row_sum_##S(g, n);                                              \
            for (int64_t i = 0; i < n; i++)                                         \
                out[i] = g[i] - m_exp_##S(y[i]) * sum;                              \
            return;                                                                 \
        }                                                                           \
        T dot = row_dot_##S(g, y, n);                                               \
        for (int64_t i = 0; i < n; i++)                                             \
            out[i] = (g[i] - dot) * y[i];                                           \
    }
FORMULAS(float, f32)
FORMULAS(double, f64)

static void run_row(const job *j, void *out, const void *x, const void *y)
{
    const rl_softmax_args *a = j->a;
    if (a->dtype == RL_F64) {
        if (a->backward)
            backward_f64(a->op, out, x, y, a->n);
        else
            forward_f64(a->op, out, x, a->n);
    } else if (a->backward)
        backward_f32(a->op, out, x, y, a->n);
    else
        forward_f32(a->op, out, x, a->n);
}

/* Rows that are dense and of the compute type. */
static void run_rows(void *context, int64_t begin, int64_t end, int64_t block)
{
    const job *j = context;
    const rl_softmax_args *a = j->a;
    (void)block;
    for (int64_t r = begin; r < end; r++) {
        int64_t at = r * a->n * j->size;
        run_row(j, (char *)a->out + at, (const char *)a->x + at, a->backward ? (const char *)a->y + at : NULL);
    }
}

/* Any other rows: gathered into a dense one, and scattered again. */
static void run_gathered(void *context, int64_t begin, int64_t end, int64_t block)
{
    job *j = context;
    const rl_softmax_args *a = j->a;
    int work = a->dtype == RL_F64 ? 8 : 4;
    size_t bytes = (size_t)(3 * a->n * work);
    void *memory;
    (void)block;
    if (rl_host_alloc(bytes, &memory) != RL_OK) {
        atomic_store(&j->failed, 1);
        return;
    }
    char *x = memory, *y = x + a->n * work, *out = y + a->n * work;
    int64_t stride = a->inner * j->size;
    for (int64_t r = begin; r < end; r++) {
        int64_t at = (r / a->inner * a->n * a->inner + r % a->inner) * j->size;
        j->load(x, (const char *)a->x + at, stride, a->n);
        if (a->backward)
            j->load(y, (const char *)a->y + at, stride, a->n);
        run_row(j, out, x, y);
        j->store((char *)a->out + at, out, stride, a->n);
    }
    rl_host_free(memory, bytes);
}

rl_status RL_LEVEL_NAME(rl_kernel_softmax)(const void *args, rl_stream stream)
{
    const rl_softmax_args *a = args;
    job j = {.a = a, .size = rl_dtype_size((rl_dtype)a->dtype)};
    rl_dtype compute = a->dtype == RL_F64 ? RL_F64 : RL_F32;
    bool dense = a->inner == 1 && !rows_are_half(a->dtype);
    (void)stream;
    if (!rl_dtype_is_float((rl_dtype)a->dtype))
        return rl_fail(RL_ERR_NOT_IMPLEMENTED, "\"softmax_lastdim_kernel_impl\" not implemented for '%s'", rl_dtype_table[a->dtype].scalar_type);
    j.load = RL_LEVEL_NAME(rl_convert_load)(compute, (rl_dtype)a->dtype);
    j.store = RL_LEVEL_NAME(rl_convert_store)(compute, (rl_dtype)a->dtype);
    rl_parallel_for(a->outer * a->inner, rows_grain(a->n), dense ? run_rows : run_gathered, &j);
    return atomic_load(&j.failed) ? RL_ERR_MEMORY : RL_OK;
}
