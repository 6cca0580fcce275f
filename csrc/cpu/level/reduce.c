/* reduce.c: RL_K_REDUCE on the CPU where memory is dense: sums, extremes and moments of float32 and float64 along runs and down columns.
 *
 * Runs: the reduced elements of a result lie side by side. Columns: the results do, and the rows below each other are folded into them. Everything else (integers,
 * 16-bit floats, strides, rare operators) goes to rl_cpu_reduce, one element at a time in double. Sums keep LANES partial sums over a leaf of 4,096 elements and
 * add the leaves in double, in order: the error stays near the rounding of the result, and neither the threads nor the level change a bit of it.
 */
#include "rows.h"

enum { LEAF = 4096, COLUMNS = 256 };

typedef struct job {
    const rl_reduce_args *a;
    double *partial; /* one a leaf, when one run is shared by threads */
} job;

static bool is_sum(int op)
{
    return op == RL_RED_SUM || op == RL_RED_MEAN;
}

static bool is_moment(int op)
{
    return op == RL_RED_VAR || op == RL_RED_STD || op == RL_RED_VAR_MEAN || op == RL_RED_STD_MEAN;
}

static bool is_extreme(int op)
{
    return op == RL_RED_MAX || op == RL_RED_MIN;
}

static bool is_located(int op)
{
    return op == RL_RED_ARGMAX || op == RL_RED_ARGMIN || op == RL_RED_MAX_INDEX || op == RL_RED_MIN_INDEX;
}

#define RUNS(T, S)                                                                                                      \
    static double run_sum_##S(const T *x, int64_t n)                                                                    \
    {                                                                                                                   \
        double sum = 0;                                                                                                 \
        for (int64_t i = 0; i < n; i += LEAF)                                                                           \
            sum += row_sum_##S(x + i, n - i < LEAF ? n - i : LEAF);                                                     \
        return sum;                                                                                                     \
    }                                                                                                                   \
    static double run_squares_##S(const T *x, int64_t n, T off)                                                         \
    {                                                                                                                   \
        double sum = 0;                                                                                                 \
        for (int64_t i = 0; i < n; i += LEAF) {                                                                         \
            int64_t m = n - i < LEAF ? n - i : LEAF, k = 0;                                                             \
            T acc[LANES] = {0}, rest = 0;                                                                               \
            for (; k + LANES <= m; k += LANES)                                                                          \
                for (int l = 0; l < LANES; l++)                                                                         \
                    acc[l] += (x[i + k + l] - off) * (x[i + k + l] - off);                                              \
            for (; k < m; k++)                                                                                          \
                rest += (x[i + k] - off) * (x[i + k] - off);                                                            \
            sum += fold_sum_##S(acc) + rest;                                                                            \
        }                                                                                                               \
        return sum;                                                                                                     \
    }                                                                                                                   \
    /* sign: 1 for the maximum, -1 for the minimum. NaN when there is one. */                                           \
    static T run_extreme_##S(const T *x, int64_t n, T sign)                                                             \
    {                                                                                                                   \
        T acc[LANES], best = x[0] * sign, nan[LANES] = {0}, any = 0;                                                    \
        int64_t i = 0;                                                                                                  \
        for (int l = 0; l < LANES; l++)                                                                                 \
            acc[l] = best;                                                                                              \
        for (; i + LANES <= n; i += LANES)                                                                              \
            for (int l = 0; l < LANES; l++) {                                                                           \
                T v = x[i + l] * sign;                                                                                  \
                acc[l] = v > acc[l] ? v : acc[l];                                                                       \
                nan[l] = v != v ? 1 : nan[l];                                                                           \
            }                                                                                                           \
        for (; i < n; i++) {                                                                                            \
            best = x[i] * sign > best ? x[i] * sign : best;                                                             \
            any = x[i] != x[i] ? 1 : any;                                                                               \
        }                                                                                                               \
        for (int l = 0; l < LANES; l++) {                                                                               \
            best = acc[l] > best ? acc[l] : best;                                                                       \
            any = nan[l] != 0 ? 1 : any;                                                                                \
        }                                                                                                               \
        return any != 0 || x[0] != x[0] ? (T)NAN : best * sign;                                                         \
    }                                                                                                                   \
    static int64_t run_place_##S(const T *x, T value)                                                                   \
    {                                                                                                                   \
        int64_t i = 0;                                                                                                  \
        while (value != value ? x[i] == x[i] : x[i] != value)                                                           \
            i++;                                                                                                        \
        return i;                                                                                                       \
    }                                                                                                                   \
    static void run_##S(const rl_reduce_args *a, const T *x, T *out, void *out2)                                        \
    {                                                                                                                   \
        int64_t n = a->nreduced;                                                                                        \
        int op = a->op;                                                                                                 \
        if (is_sum(op))                                                                                                 \
            *out = (T)(op == RL_RED_MEAN ? run_sum_##S(x, n) / (double)n : run_sum_##S(x, n));                          \
        else if (op == RL_RED_NORM)                                                                                     \
            *out = (T)sqrt(run_squares_##S(x, n, 0));                                                                   \
        else if (is_moment(op)) {                                                                                       \
            double mean = run_sum_##S(x, n) / (double)n, left = (double)n - a->p;                                       \
            double var = run_squares_##S(x, n, (T)mean) / (left > 0 ? left : 0);                                        \
            *out = (T)(op == RL_RED_STD || op == RL_RED_STD_MEAN ? sqrt(var) : var);                                    \
            if (out2)                                                                                                   \
                *(T *)out2 = (T)mean;                                                                                   \
        } else {                                                                                                        \
            bool max = op == RL_RED_MAX || op == RL_RED_ARGMAX || op == RL_RED_MAX_INDEX;                               \
            T best = run_extreme_##S(x, n, max ? 1 : -1);                                                               \
            if (op == RL_RED_ARGMAX || op == RL_RED_ARGMIN)                                                             \
                *(int64_t *)(void *)out = run_place_##S(x, best);                                                       \
            else {                                                                                                      \
                if (out2)                                                                                               \
                    *(int64_t *)out2 = run_place_##S(x, best);                                                          \
                *out = best;                                                                                            \
            }                                                                                                           \
        }                                                                                                               \
    }                                                                                                                   \
    /* Columns [c0, c0 + n) of `rows` rows, `stride` bytes apart. Sums leaf by leaf of LEAF rows, the leaves in double. */ \
    static void columns_##S(const rl_reduce_args *a, const char *x, int64_t stride, int64_t n, T *out)                  \
    {                                                                                                                   \
        double total[COLUMNS];                                                                                          \
        T acc[COLUMNS];                                                                                                 \
        if (is_extreme(a->op)) {                                                                                        \
            memcpy(acc, x, (size_t)n * sizeof(T));                                                                      \
            for (int64_t r = 1; r < a->nreduced; r++) {                                                                 \
                const T *v = (const T *)(x + r * stride);                                                               \
                if (a->op == RL_RED_MAX)                                                                                \
                    for (int64_t c = 0; c < n; c++)                                                                     \
                        acc[c] = (v[c] > acc[c]) | (v[c] != v[c]) ? v[c] : acc[c];                                      \
                else                                                                                                    \
                    for (int64_t c = 0; c < n; c++)                                                                     \
                        acc[c] = (v[c] < acc[c]) | (v[c] != v[c]) ? v[c] : acc[c];                                      \
            }                                                                                                           \
            memcpy(out, acc, (size_t)n * sizeof(T));                                                                    \
            return;                                                                                                     \
        }                                                                                                               \
        memset(total, 0, sizeof total);                                                                                 \
        for (int64_t r0 = 0; r0 < a->nreduced; r0 += LANES) {                                                           \
            int64_t end = r0 + LANES < a->nreduced ? r0 + LANES : a->nreduced;                                          \
            memset(acc, 0, sizeof acc);                                                                                 \
            for (int64_t r = r0; r < end; r++) {                                                                        \
                const T *v = (const T *)(x + r * stride);                                                               \
                for (int64_t c = 0; c < n; c++)                                                                         \
                    acc[c] += v[c];                                                                                     \
            }                                                                                                           \
            for (int64_t c = 0; c < n; c++)                                                                             \
                total[c] += acc[c];                                                                                     \
        }                                                                                                               \
        for (int64_t c = 0; c < n; c++)                                                                                 \
            out[c] = (T)(a->op == RL_RED_MEAN ? total[c] / (double)a->nreduced : total[c]);                             \
    }
RUNS(float, f32)
RUNS(double, f64)

/* ---- runs ---- */
static void run_results(void *context, int64_t begin, int64_t end, int64_t block)
{
    const rl_reduce_args *a = ((job *)context)->a;
    (void)block;
    for (int64_t k = begin; k < end; k++) {
        int64_t rest = k, in = 0, out = 0, out2 = 0;
        for (int d = 0; d < a->nkeep; d++) {
            int64_t i = a->nkeep == 1 ? rest : rest % a->keep[d];
            rest = a->nkeep == 1 ? 0 : rest / a->keep[d];
            in += i * a->in_keep_strides[d];
            out += i * a->out_strides[d];
            out2 += a->out2 ? i * a->out2_strides[d] : 0;
        }
        const char *x = (const char *)a->in + in;
        void *second = a->out2 ? (char *)a->out2 + out2 : NULL;
        if (a->in_dtype == RL_F32)
            run_f32(a, (const float *)x, (float *)((char *)a->out + out), second);
        else
            run_f64(a, (const double *)x, (double *)((char *)a->out + out), second);
    }
}

/* Leaves [begin, end) of one long run. */
static void sum_leaves(void *context, int64_t begin, int64_t end, int64_t block)
{
    job *j = context;
    const rl_reduce_args *a = j->a;
    (void)block;
    for (int64_t l = begin; l < end; l++) {
        int64_t at = l * LEAF, n = a->nreduced - at < LEAF ? a->nreduced - at : LEAF;
        j->partial[l] = a->in_dtype == RL_F32 ? (double)row_sum_f32((const float *)a->in + at, n) : row_sum_f64((const double *)a->in + at, n);
    }
}

/* The same additions as run_sum's, the leaves by several threads. */
static rl_status long_sum(const rl_reduce_args *a)
{
    job j = {.a = a};
    int64_t leaves = (a->nreduced + LEAF - 1) / LEAF;
    double sum = 0;
    void *memory;
    RL_RETURN(rl_host_alloc((size_t)leaves * sizeof(double), &memory));
    j.partial = memory;
    rl_parallel_for(leaves, 32, sum_leaves, &j);
    for (int64_t l = 0; l < leaves; l++)
        sum += j.partial[l];
    rl_host_free(memory, (size_t)leaves * sizeof(double));
    sum = a->op == RL_RED_MEAN ? sum / (double)a->nreduced : sum;
    if (a->out_dtype == RL_F32)
        *(float *)a->out = (float)sum;
    else
        *(double *)a->out = sum;
    return RL_OK;
}

/* ---- columns ---- */
static void run_columns(void *context, int64_t begin, int64_t end, int64_t block)
{
    const rl_reduce_args *a = ((job *)context)->a;
    int size = a->in_dtype == RL_F32 ? 4 : 8;
    (void)block;
    for (int64_t b = begin; b < end; b++) {
        int64_t blocks = (a->keep[0] + COLUMNS - 1) / COLUMNS, c0 = b % blocks * COLUMNS, outer = b / blocks;
        int64_t n = a->keep[0] - c0 < COLUMNS ? a->keep[0] - c0 : COLUMNS;
        const char *x = (const char *)a->in + c0 * size + (a->nkeep > 1 ? outer * a->in_keep_strides[1] : 0);
        char *out = (char *)a->out + c0 * size + (a->nkeep > 1 ? outer * a->out_strides[1] : 0);
        if (a->in_dtype == RL_F32)
            columns_f32(a, x, a->in_reduce_strides[0], n, (float *)out);
        else
            columns_f64(a, x, a->in_reduce_strides[0], n, (double *)out);
    }
}

static bool is_plain_type(const rl_reduce_args *a)
{
    bool place = a->op == RL_RED_ARGMAX || a->op == RL_RED_ARGMIN;
    return (a->in_dtype == RL_F32 || a->in_dtype == RL_F64) && (place || a->out_dtype == a->in_dtype);
}

rl_status RL_LEVEL_NAME(rl_kernel_reduce)(const void *args, rl_stream stream)
{
    const rl_reduce_args *a = args;
    job j = {.a = a};
    int size = rl_dtype_size((rl_dtype)a->in_dtype);
    if (a->nreduced == 0 || a->nkept == 0 || a->nreduce > 1 || !is_plain_type(a))
        return rl_cpu_reduce(args, stream);
    bool runs = a->nreduce == 0 || a->in_reduce_strides[0] == size;
    if (runs && (is_sum(a->op) || is_moment(a->op) || is_extreme(a->op) || is_located(a->op) || (a->op == RL_RED_NORM && a->p == 2))) {
        if (a->nkept == 1 && is_sum(a->op) && a->nreduced > 64 * LEAF)
            return long_sum(a);
        rl_parallel_for(a->nkept, 1 + 65536 / a->nreduced, run_results, &j);
        return RL_OK;
    }
    bool columns = a->nkeep >= 1 && a->nkeep <= 2 && a->in_keep_strides[0] == size && a->out_strides[0] == size;
    if (columns && (is_sum(a->op) || is_extreme(a->op))) {
        int64_t blocks = (a->keep[0] + COLUMNS - 1) / COLUMNS * (a->nkeep > 1 ? a->keep[1] : 1);
        rl_parallel_for(blocks, 1 + 65536 / (COLUMNS * a->nreduced), run_columns, &j);
        return RL_OK;
    }
    return rl_cpu_reduce(args, stream);
}
