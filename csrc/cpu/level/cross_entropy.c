/* cross_entropy.c: RL_K_CROSS_ENTROPY on the CPU: the loss over rows of logits (or of log-probabilities) with class indices, forward and backward.
 *
 * With w the class weights, s the smoothing and t the target, a row's loss is -(1 - s) w[t] logp[t] - s / C * sum_c w[c] logp[c], and 'mean' divides by the sum of
 * w[t] (https://pytorch.org/docs/stable/generated/torch.nn.CrossEntropyLoss.html). The forward keeps log-sum-exp of each row, so the backward reads the
 * logits once. Targets are checked before anything is written.
 */
#include "rows.h"

typedef struct job {
    const rl_cross_entropy_args *a;
    rl_convert_fn load, store;
    int size, work;
    char *weight; /* in the compute type, or NULL */
    char *loss;   /* one a row, in the compute type */
    double scale; /* backward: of the one gradient */
    atomic_int failed;
} job;

#define FORMULAS(T, S)                                                                                                            \
    static T loss_##S(const job *j, const T *x, int64_t t, T *lse)                                                                \
    {                                                                                                                             \
        const rl_cross_entropy_args *a = j->a;                                                                                    \
        const T *w = (const T *)j->weight;                                                                                        \
        int64_t n = a->classes;                                                                                                   \
        T l = 0, s = (T)a->smoothing, smooth = 0;                                                                                 \
        if (!a->log_input) {                                                                                                      \
            T m = row_max_##S(x, n);                                                                                              \
            l = m + m_log_##S(row_exp_sum_##S(NULL, x, m, n));                                                                    \
        }                                                                                                                         \
        *lse = l;                                                                                                                 \
        if (t == a->ignore)                                                                                                       \
            return 0;                                                                                                             \
        T picked = (w ? w[t] : 1) * (x[t] - l);                                                                                   \
        if (s == 0)                                                                                                               \
            return -picked;                                                                                                       \
        for (int64_t c = 0; c < n; c++)                                                                                           \
            smooth += (w ? w[c] : 1) * (x[c] - l);                                                                                \
        return -(1 - s) * picked - s / (T)n * smooth;                                                                             \
    }                                                                                                                             \
    /* d loss / dx[c] = p[c] * sum(weights of the row) - weight of c in the row, times g */                                       \
    static void gradient_##S(const job *j, T *dx, const T *x, int64_t t, T lse, T g)                                              \
    {                                                                                                                             \
        const rl_cross_entropy_args *a = j->a;                                                                                    \
        const T *w = (const T *)j->weight;                                                                                        \
        int64_t n = a->classes;                                                                                                   \
        if (t == a->ignore) {                                                                                                     \
            memset(dx, 0, (size_t)n * sizeof *dx);                                                                                \
            return;                                                                                                               \
        }                                                                                                                         \
        T s = (T)a->smoothing, wt = (w ? w[t] : 1) * (1 - s), each = s / (T)n, total = wt;                                        \
        for (int64_t c = 0; c < n && s != 0; c++)                                                                                 \
            total += (w ? w[c] : 1) * each;                                                                                       \
        if (a->log_input)                                                                                                         \
            memset(dx, 0, (size_t)n * sizeof *dx);                                                                                \
        else                                                                                                                      \
            for (int64_t c = 0; c < n; c++)                                                                                       \
                dx[c] = m_exp_##S(x[c] - lse) * (total * g);                                                                      \
        for (int64_t c = 0; c < n && s != 0; c++)                                                                                 \
            dx[c] -= (w ? w[c] : 1) * each * g;                                                                                   \
        dx[t] -= wt * g;                                                                                                          \
    }
FORMULAS(float, f32)
FORMULAS(double, f64)

static double number(const void *p, int work, int64_t at)
{
    return work == 8 ? ((const double *)p)[at] : ((const float *)p)[at];
}

static double incoming(const job *j, int64_t r)
{
    const rl_cross_entropy_args *a = j->a;
    int64_t at = a->reduction == RL_LOSS_NONE ? r : 0;
    return rl_scalar_to_double(rl_element_load((const char *)a->grad + at * j->size, (rl_dtype)a->dtype)) * j->scale;
}

static void run_row(const job *j, int64_t r, const void *x, void *dx)
{
    const rl_cross_entropy_args *a = j->a;
    int64_t t = a->target[r];
    char *lse = (char *)a->lse + r * j->work;
    double kept = 0;
    void *slot = a->lse ? (void *)lse : (void *)&kept;
    if (!a->backward) {
        if (j->work == 8)
            ((double *)j->loss)[r] = loss_f64(j, x, t, slot);
        else
            ((float *)j->loss)[r] = loss_f32(j, x, t, slot);
    } else if (j->work == 8)
        gradient_f64(j, dx, x, t, a->lse ? *(double *)lse : 0, incoming(j, r));
    else
        gradient_f32(j, dx, x, t, a->lse ? *(float *)lse : 0, (float)incoming(j, r));
}

static void run_rows(void *context, int64_t begin, int64_t end, int64_t block)
{
    job *j = context;
    const rl_cross_entropy_args *a = j->a;
    bool half = j->size < j->work;
    size_t bytes = (size_t)(2 * a->classes * j->work);
    void *memory = NULL;
    (void)block;
    if (half && rl_host_alloc(bytes ? bytes : 1, &memory) != RL_OK) {
        atomic_store(&j->failed, 1);
        return;
    }
    for (int64_t r = begin; r < end; r++) {
        int64_t at = r * a->classes * j->size;
        const char *x = (const char *)a->x + at;
        char *dx = a->backward ? (char *)a->dx + at : NULL;
        if (half) {
            j->load(memory, x, j->size, a->classes);
            run_row(j, r, memory, (char *)memory + a->classes * j->work);
            if (dx)
                j->store(dx, (char *)memory + a->classes * j->work, j->size, a->classes);
        } else
            run_row(j, r, x, dx);
    }
    if (memory)
        rl_host_free(memory, bytes ? bytes : 1);
}

static rl_status check_targets(const rl_cross_entropy_args *a)
{
    for (int64_t r = 0; r < a->rows; r++)
        if (a->target[r] != a->ignore && (a->target[r] < 0 || a->target[r] >= a->classes))
            return rl_fail(RL_ERR_INDEX, "Target %lld is out of bounds.", (long long)a->target[r]);
    return RL_OK;
}

/* The sum of the targets' weights: what 'mean' divides by. */
static double weight_of_targets(const job *j)
{
    const rl_cross_entropy_args *a = j->a;
    double total = 0;
    for (int64_t r = 0; r < a->rows; r++)
        if (a->target[r] != a->ignore)
            total += j->weight ? number(j->weight, j->work, a->target[r]) : 1;
    return total;
}

static void finish(const job *j, double total)
{
    const rl_cross_entropy_args *a = j->a;
    if (a->total_weight)
        rl_element_store(a->total_weight, (rl_dtype)a->dtype, rl_scalar_float(total));
    if (a->reduction == RL_LOSS_NONE) {
        j->store(a->loss, j->loss, j->size, a->rows);
        return;
    }
    double sum = j->work == 8 ? row_sum_f64((const double *)j->loss, a->rows) : (double)row_sum_f32((const float *)j->loss, a->rows);
    rl_element_store(a->loss, (rl_dtype)a->dtype, rl_scalar_float(a->reduction == RL_LOSS_MEAN ? sum / total : sum));
}

rl_status RL_LEVEL_NAME(rl_kernel_cross_entropy)(const void *args, rl_stream stream)
{
    const rl_cross_entropy_args *a = args;
    job j = {.a = a, .size = rl_dtype_size((rl_dtype)a->dtype), .work = a->dtype == RL_F64 ? 8 : 4, .scale = 1};
    rl_dtype compute = a->dtype == RL_F64 ? RL_F64 : RL_F32;
    (void)stream;
    if (!rl_dtype_is_float((rl_dtype)a->dtype))
        return rl_fail(RL_ERR_NOT_IMPLEMENTED, "\"nll_loss_out_frame\" not implemented for '%s'", rl_dtype_table[a->dtype].scalar_type);
    RL_RETURN(check_targets(a));
    j.load = RL_LEVEL_NAME(rl_convert_load)(compute, (rl_dtype)a->dtype);
    j.store = RL_LEVEL_NAME(rl_convert_store)(compute, (rl_dtype)a->dtype);
    bool wide = j.size < j.work && a->weight;
    size_t bytes = (size_t)((wide ? a->classes : 0) + (a->backward ? 0 : a->rows)) * (size_t)j.work + 64;
    void *memory;
    RL_RETURN(rl_host_alloc(bytes, &memory));
    j.loss = memory;
    j.weight = (char *)a->weight;
    if (wide)
        j.load(j.weight = j.loss + (a->backward ? 0 : a->rows * j.work), a->weight, j.size, a->classes);
    double total = weight_of_targets(&j);
    if (a->backward && a->reduction == RL_LOSS_MEAN)
        j.scale = total != 0 ? 1 / total : 0;
    rl_parallel_for(a->rows, rows_grain(a->classes), run_rows, &j);
    if (!a->backward)
        finish(&j, total);
    rl_host_free(memory, bytes);
    return atomic_load(&j.failed) ? RL_ERR_MEMORY : RL_OK;
}
