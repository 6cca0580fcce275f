/* layer_norm.c: RL_K_LAYER_NORM on the CPU: layer norm and RMS norm over rows, forward and backward.
 *
 * Mean and variance come from two passes over a row in the cache (no cancellation). The gradients of weight and bias are sums over rows: fixed chunks of rows
 * add into their own row of a work array, which is then added in order, so the number of threads changes nothing.
 */
#include "rows.h"

typedef struct job {
    const rl_layer_norm_args *a;
    rl_convert_fn load, store;
    int size, work;    /* bytes of an element, of a compute element */
    int64_t grain;
    char *weight, *bias; /* in the compute type, or NULL */
    char *dw, *db;       /* one row a chunk, or NULL */
    atomic_int failed;
} job;

#define FORMULAS(T, S)                                                                                                        \
    static void forward_##S(const rl_layer_norm_args *a, T *out, const T *x, const T *w, const T *b, T *mean, T *rstd)        \
    {                                                                                                                         \
        int64_t n = a->n;                                                                                                     \
        T m = a->rms ? 0 : row_sum_##S(x, n) / (T)n, acc[LANES] = {0}, rest = 0;                                              \
        int64_t i = 0;                                                                                                        \
        for (; i + LANES <= n; i += LANES)                                                                                    \
            for (int k = 0; k < LANES; k++)                                                                                   \
                acc[k] += (x[i + k] - m) * (x[i + k] - m);                                                                    \
        for (; i < n; i++)                                                                                                    \
            rest += (x[i] - m) * (x[i] - m);                                                                                  \
        T r = 1 / m_sqrt_##S((fold_sum_##S(acc) + rest) / (T)n + (T)a->eps);                                                  \
        if (w && b)                                                                                                           \
            for (i = 0; i < n; i++)                                                                                           \
                out[i] = (x[i] - m) * r * w[i] + b[i];                                                                        \
        else if (w)                                                                                                           \
            for (i = 0; i < n; i++)                                                                                           \
                out[i] = (x[i] - m) * r * w[i];                                                                               \
        else                                                                                                                  \
            for (i = 0; i < n; i++)                                                                                           \
                out[i] = (x[i] - m) * r;                                                                                      \
        *mean = m;                                                                                                            \
        *rstd = r;                                                                                                            \
    }                                                                                                                         \
    /* dx = r * (gw - mean(gw) - xhat * mean(gw * xhat)), gw = g * w; without the mean's term for RMS */                      \
    static void backward_##S(const rl_layer_norm_args *a, T *dx, T *dw, T *db, const T *g, const T *x, const T *w, T m, T r)  \
    {                                                                                                                         \
        int64_t n = a->n, i = 0;                                                                                              \
        T s1[LANES] = {0}, s2[LANES] = {0}, t1 = 0, t2 = 0;                                                                   \
        for (; i + LANES <= n; i += LANES)                                                                                    \
            for (int k = 0; k < LANES; k++) {                                                                                 \
                T gw = w ? g[i + k] * w[i + k] : g[i + k];                                                                    \
                s1[k] += gw;                                                                                                  \
                s2[k] += gw * ((x[i + k] - m) * r);                                                                           \
            }                                                                                                                 \
        for (; i < n; i++) {                                                                                                  \
            T gw = w ? g[i] * w[i] : g[i];                                                                                    \
            t1 += gw;                                                                                                         \
            t2 += gw * ((x[i] - m) * r);                                                                                      \
        }                                                                                                                     \
        T c1 = a->rms ? 0 : (fold_sum_##S(s1) + t1) / (T)n, c2 = (fold_sum_##S(s2) + t2) / (T)n;                              \
        for (i = 0; dx && i < n; i++)                                                                                         \
            dx[i] = r * ((w ? g[i] * w[i] : g[i]) - c1 - (x[i] - m) * r * c2);                                                \
        for (i = 0; dw && i < n; i++)                                                                                         \
            dw[i] += g[i] * ((x[i] - m) * r);                                                                                 \
        for (i = 0; db && i < n; i++)                                                                                         \
            db[i] += g[i];                                                                                                    \
    }
FORMULAS(float, f32)
FORMULAS(double, f64)

static void forward_row(const job *j, int64_t r, void *out, const void *x)
{
    const rl_layer_norm_args *a = j->a;
    double ignored_mean, ignored_rstd;
    void *mean = a->mean ? (char *)a->mean + r * j->work : (void *)&ignored_mean, *rstd = a->rstd ? (char *)a->rstd + r * j->work : (void *)&ignored_rstd;
    if (j->work == 8)
        forward_f64(a, out, x, (double *)j->weight, (double *)j->bias, mean, rstd);
    else
        forward_f32(a, out, x, (float *)j->weight, (float *)j->bias, mean, rstd);
}

static void backward_row(const job *j, int64_t r, int64_t chunk, void *dx, const void *g, const void *x)
{
    const rl_layer_norm_args *a = j->a;
    char *dw = j->dw ? j->dw + chunk * a->n * j->work : NULL, *db = j->db ? j->db + chunk * a->n * j->work : NULL;
    if (j->work == 8)
        backward_f64(a, dx, (double *)dw, (double *)db, g, x, (double *)j->weight, a->rms ? 0 : ((double *)a->mean)[r], ((double *)a->rstd)[r]);
    else
        backward_f32(a, dx, (float *)dw, (float *)db, g, x, (float *)j->weight, a->rms ? 0 : ((float *)a->mean)[r], ((float *)a->rstd)[r]);
}

static void run_rows(void *context, int64_t begin, int64_t end, int64_t chunk)
{
    job *j = context;
    const rl_layer_norm_args *a = j->a;
    bool half = j->size < j->work;
    size_t bytes = (size_t)(3 * a->n * j->work);
    void *memory = NULL;
    if (half && rl_host_alloc(bytes, &memory) != RL_OK) {
        atomic_store(&j->failed, 1);
        return;
    }
    for (int64_t r = begin; r < end; r++) {
        int64_t at = r * a->n * j->size;
        const void *x = (const char *)a->x + at, *g = a->backward ? (const char *)a->grad + at : NULL;
        char *target = a->backward ? (char *)a->dx : (char *)a->out, *out = target ? target + at : NULL;
        if (half) {
            char *wide = memory;
            j->load(wide, x, j->size, a->n);
            x = wide;
            if (g) {
                j->load(wide + a->n * j->work, g, j->size, a->n);
                g = wide + a->n * j->work;
            }
            out = out ? wide + 2 * a->n * j->work : NULL;
        }
        if (a->backward)
            backward_row(j, r, chunk, out, g, x);
        else
            forward_row(j, r, out, x);
        if (half && out)
            j->store(target + at, out, j->size, a->n);
    }
    if (memory)
        rl_host_free(memory, bytes);
}

static void add_chunks(const job *j, char *rows, int64_t chunks, void *out)
{
    int64_t n = j->a->n;
    for (int64_t c = 1; c < chunks; c++)
        for (int64_t i = 0; i < n; i++) {
            if (j->work == 8)
                ((double *)rows)[i] += ((double *)rows)[c * n + i];
            else
                ((float *)rows)[i] += ((float *)rows)[c * n + i];
        }
    j->store(out, rows, j->size, n);
}

rl_status RL_LEVEL_NAME(rl_kernel_layer_norm)(const void *args, rl_stream stream)
{
    const rl_layer_norm_args *a = args;
    job j = {.a = a, .size = rl_dtype_size((rl_dtype)a->dtype), .work = a->dtype == RL_F64 ? 8 : 4};
    rl_dtype compute = a->dtype == RL_F64 ? RL_F64 : RL_F32;
    (void)stream;
    if (!rl_dtype_is_float((rl_dtype)a->dtype))
        return rl_fail(RL_ERR_NOT_IMPLEMENTED, "\"LayerNormKernelImpl\" not implemented for '%s'", rl_dtype_table[a->dtype].scalar_type);
    j.load = RL_LEVEL_NAME(rl_convert_load)(compute, (rl_dtype)a->dtype);
    j.store = RL_LEVEL_NAME(rl_convert_store)(compute, (rl_dtype)a->dtype);
    j.grain = rows_grain(a->n);
    int64_t chunks = a->rows ? (a->rows + j.grain - 1) / j.grain : 1, row = a->n * j.work;
    bool wide = j.size < j.work;
    size_t bytes = (size_t)(row * ((wide ? 2 : 0) + (a->dw ? chunks : 0) + (a->db ? chunks : 0)));
    void *memory = NULL;
    if (bytes)
        RL_RETURN(rl_host_alloc(bytes, &memory));
    char *at = memory;
    j.weight = (char *)a->weight;
    j.bias = (char *)a->bias;
    if (wide) {
        if (a->weight)
            j.load(j.weight = at, a->weight, j.size, a->n);
        if (a->bias)
            j.load(j.bias = at + row, a->bias, j.size, a->n);
        at += 2 * row;
    }
    j.dw = a->dw ? at : NULL;
    j.db = a->db ? at + (a->dw ? chunks * row : 0) : NULL;
    if (a->dw || a->db)
        memset(at, 0, (size_t)(row * ((a->dw ? chunks : 0) + (a->db ? chunks : 0))));
    rl_parallel_for(a->rows, j.grain, run_rows, &j);
    if (a->dw)
        add_chunks(&j, j.dw, chunks, a->dw);
    if (a->db)
        add_chunks(&j, j.db, chunks, a->db);
    if (memory)
        rl_host_free(memory, bytes);
    return atomic_load(&j.failed) ? RL_ERR_MEMORY : RL_OK;
}
