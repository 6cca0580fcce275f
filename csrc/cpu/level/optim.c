/* optim.c: RL_K_OPTIM and RL_K_MULTI_NORM on the CPU: one step of an optimizer, and the norm of many tensors with clipping.
 *
 * A step is one pass over memory that makes, element by element, the roundings of PyTorch's sequence of operators (add with alpha, lerp and
 * addcmul fuse multiply and add there, addcdiv does not), so parameters stay equal to PyTorch's bit by bit in float32 and float64 where the
 * machine fuses. Numbers are computed in double and rounded once to the type. 16-bit tensors go through float32 blocks: one rounding a
 * step.
 */
#include "../../ops/scalar.h"

#include "kernels.h"

#include "../../core/alloc.h"

enum { GRAIN = 32768, BLOCK = 512, UNROLL = 16 };

/* What one parameter's loop needs, in double; `p`, `g` and `s` point at the range's first element. */
typedef struct step {
    const rl_optim_args *a;
    double weight_decay, lr, keep, eps; /* keep: the parameter's factor under decoupled decay */
    double scale;                       /* of the gradient: -1 for maximize, and GradScaler's */
    double correction2;                 /* Adam: sqrt of the bias correction of the second moment */
    bool momentum, first, maximum;
    void *param, *state[3];
    const void *grad;
} step;

typedef void (*step_fn)(const step *s, void *p, const void *g, void *const *state, int64_t n);

/* F: the type, S: scalar.h's suffix. A loop is made for each combination of its bool parameters, so that none has a branch. A factor of
 * 1 (scale, keep) changes nothing; a weight decay of 0 might (0 * inf), so it has its own loop. */
#define LOOP static inline __attribute__((always_inline)) void
#define STEPS(F, S)                                                                                                       \
    LOOP sgd_loop##S(const step *s, F *p, const F *gs, F *buf, int64_t n, bool wd, bool momentum, bool first, bool nesterov) \
    {                                                                                                                     \
        const F mu = (F)s->a->momentum, damp = (F)(1 - s->a->dampening), lr = (F)-s->lr, scale = (F)s->scale, decay = (F)s->weight_decay; \
        _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++)                                                              \
        {                                                                                                                 \
            F g = wd ? m_fma##S(decay, p[i], gs[i] * scale) : gs[i] * scale, b = g;                                       \
            if (momentum) {                                                                                               \
                b = first ? g : m_fma##S(damp, g, buf[i] * mu);                                                           \
                buf[i] = b;                                                                                               \
            }                                                                                                             \
            p[i] = m_fma##S(lr, momentum && nesterov ? m_fma##S(mu, b, g) : b, p[i]);                                     \
        }                                                                                                                 \
    }                                                                                                                     \
    static void sgd##S(const step *s, void *p, const void *g, void *const *state, int64_t n)                              \
    {                                                                                                                     \
        F *buf = (F *)state[0];                                                                                           \
        const bool wd = s->weight_decay != 0, nesterov = s->a->nesterov;                                                  \
        if (!s->momentum)                                                                                                 \
            wd ? sgd_loop##S(s, p, g, buf, n, true, false, false, false) : sgd_loop##S(s, p, g, buf, n, false, false, false, false); \
        else if (s->first)                                                                                                \
            sgd_loop##S(s, p, g, buf, n, wd, true, true, nesterov);                                                       \
        else if (nesterov)                                                                                                \
            sgd_loop##S(s, p, g, buf, n, wd, true, false, true);                                                          \
        else                                                                                                              \
            wd ? sgd_loop##S(s, p, g, buf, n, true, true, false, false) : sgd_loop##S(s, p, g, buf, n, false, true, false, false); \
    }                                                                                                                     \
    static inline F lerp##S(F from, F to, F w)                                                                            \
    {                                                                                                                     \
        return m_abs##S(w) < (F)0.5 ? m_fma##S(w, to - from, from) : m_fma##S(w - (F)1, to - from, to);                   \
    }                                                                                                                     \
    LOOP adam_loop##S(const step *s, F *p, const F *gs, F *m, F *v, F *top, int64_t n, bool wd, bool maximum)             \
    {                                                                                                                     \
        const F w1 = (F)(1 - s->a->beta1), b2 = (F)s->a->beta2, w2 = (F)(1 - s->a->beta2), scale = (F)s->scale;           \
        const F correction = (F)s->correction2, eps = (F)s->eps, lr = (F)-s->lr, keep = (F)s->keep, decay = (F)s->weight_decay; \
        _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++)                                                              \
        {                                                                                                                 \
            F g = wd ? m_fma##S(decay, p[i], gs[i] * scale) : gs[i] * scale;                                              \
            F mean = lerp##S(m[i], g, w1), square = m_fma##S(w2 * g, g, v[i] * b2), high = square;                        \
            m[i] = mean;                                                                                                  \
            v[i] = square;                                                                                                \
            if (maximum) {                                                                                                \
                high = (top[i] > square) | (top[i] != top[i]) ? top[i] : square;                                          \
                top[i] = high;                                                                                            \
            }                                                                                                             \
            p[i] = p[i] * keep + lr * mean / (m_sqrt##S(high) / correction + eps);                                        \
        }                                                                                                                 \
    }                                                                                                                     \
    static void adam##S(const step *s, void *p, const void *g, void *const *state, int64_t n)                             \
    {                                                                                                                     \
        F *m = (F *)state[0], *v = (F *)state[1], *top = (F *)state[2];                                                   \
        if (s->maximum)                                                                                                   \
            s->weight_decay != 0 ? adam_loop##S(s, p, g, m, v, top, n, true, true) : adam_loop##S(s, p, g, m, v, top, n, false, true); \
        else                                                                                                              \
            s->weight_decay != 0 ? adam_loop##S(s, p, g, m, v, top, n, true, false) : adam_loop##S(s, p, g, m, v, top, n, false, false); \
    }                                                                                                                     \
    LOOP rmsprop_loop##S(const step *s, F *p, const F *gs, F *v, F *buf, F *mean, int64_t n, bool wd, bool centered, bool momentum) \
    {                                                                                                                     \
        const F alpha = (F)s->a->alpha, w = (F)(1 - s->a->alpha), eps = (F)s->eps, lr = (F)-s->lr, mu = (F)s->a->momentum; \
        const F scale = (F)s->scale, decay = (F)s->weight_decay;                                                          \
        _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++)                                                              \
        {                                                                                                                 \
            F g = wd ? m_fma##S(decay, p[i], gs[i] * scale) : gs[i] * scale;                                              \
            F square = m_fma##S(w * g, g, v[i] * alpha), spread = square;                                                 \
            v[i] = square;                                                                                                \
            if (centered) {                                                                                               \
                F average = lerp##S(mean[i], g, w);                                                                       \
                mean[i] = average;                                                                                        \
                spread = m_fma##S(-average, average, square);                                                             \
            }                                                                                                             \
            F root = m_sqrt##S(spread) + eps;                                                                             \
            if (momentum) {                                                                                               \
                F b = buf[i] * mu + g / root;                                                                             \
                buf[i] = b;                                                                                               \
                p[i] = m_fma##S(lr, b, p[i]);                                                                             \
            } else {                                                                                                      \
                p[i] = p[i] + lr * g / root;                                                                              \
            }                                                                                                             \
        }                                                                                                                 \
    }                                                                                                                     \
    static void rmsprop##S(const step *s, void *p, const void *g, void *const *state, int64_t n)                          \
    {                                                                                                                     \
        F *v = (F *)state[0], *buf = (F *)state[1], *mean = (F *)state[2];                                                \
        const bool wd = s->weight_decay != 0;                                                                             \
        if (s->a->centered)                                                                                               \
            s->momentum ? rmsprop_loop##S(s, p, g, v, buf, mean, n, wd, true, true) : rmsprop_loop##S(s, p, g, v, buf, mean, n, wd, true, false); \
        else if (s->momentum)                                                                                             \
            rmsprop_loop##S(s, p, g, v, buf, mean, n, wd, false, true);                                                   \
        else                                                                                                              \
            wd ? rmsprop_loop##S(s, p, g, v, buf, mean, n, true, false, false) : rmsprop_loop##S(s, p, g, v, buf, mean, n, false, false, false); \
    }                                                                                                                     \
    LOOP adagrad_loop##S(const step *s, F *p, const F *gs, F *sum, int64_t n, bool wd)                                    \
    {                                                                                                                     \
        const F eps = (F)s->eps, lr = (F)-s->lr, scale = (F)s->scale, decay = (F)s->weight_decay;                         \
        _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++)                                                              \
        {                                                                                                                 \
            F g = wd ? m_fma##S(decay, p[i], gs[i] * scale) : gs[i] * scale, total = m_fma##S(g, g, sum[i]);              \
            sum[i] = total;                                                                                               \
            p[i] = p[i] + lr * g / (m_sqrt##S(total) + eps);                                                              \
        }                                                                                                                 \
    }                                                                                                                     \
    static void adagrad##S(const step *s, void *p, const void *g, void *const *state, int64_t n)                          \
    {                                                                                                                     \
        s->weight_decay != 0 ? adagrad_loop##S(s, p, g, state[0], n, true) : adagrad_loop##S(s, p, g, state[0], n, false); \
    }
STEPS(float, _f32)
STEPS(double, _f64)

static step_fn find_step(int kind, bool is_double)
{
    switch (kind) {
    case RL_OPT_SGD: return is_double ? sgd_f64 : sgd_f32;
    case RL_OPT_ADAM: case RL_OPT_ADAMW: return is_double ? adam_f64 : adam_f32;
    case RL_OPT_RMSPROP: return is_double ? rmsprop_f64 : rmsprop_f32;
    case RL_OPT_ADAGRAD: return is_double ? adagrad_f64 : adagrad_f32;
    default: return NULL;
    }
}

/* The numbers of parameter i, as PyTorch's Python computes them: in double. */
static void prepare(step *s, int64_t i)
{
    const rl_optim_args *a = s->a;
    double t = a->step ? a->step[i] : 1;
    s->weight_decay = a->kind == RL_OPT_ADAMW ? 0 : a->weight_decay;
    s->keep = a->kind == RL_OPT_ADAMW && a->weight_decay != 0 ? 1 - a->lr * a->weight_decay : 1;
    s->lr = a->lr;
    s->eps = a->eps;
    s->scale = (a->maximize ? -1 : 1) * (a->inv_scale ? (double)*a->inv_scale : 1);
    if (a->kind == RL_OPT_ADAM || a->kind == RL_OPT_ADAMW) {
        s->lr = a->lr / (1 - pow(a->beta1, t));
        s->correction2 = sqrt(1 - pow(a->beta2, t));
    } else if (a->kind == RL_OPT_ADAGRAD) {
        s->lr = a->lr / (1 + (t - 1) * a->lr_decay);
    }
    s->momentum = a->momentum != 0;
    s->first = a->first;
    s->maximum = a->amsgrad;
    s->param = a->param[i];
    s->grad = a->grad[i];
    for (int k = 0; k < 3; k++)
        s->state[k] = a->state[k] ? a->state[k][i] : NULL;
}

/* Through float32: parameter, gradient and states in blocks. */
static void run_16(const step *s, int64_t begin, int64_t end)
{
    rl_dtype d = (rl_dtype)s->a->dtype;
    rl_convert_fn load = RL_LEVEL_NAME(rl_convert_load)(RL_F32, d), store = RL_LEVEL_NAME(rl_convert_store)(RL_F32, d);
    _Alignas(64) float p[BLOCK], g[BLOCK], state[3][BLOCK];
    void *states[3] = {state[0], state[1], state[2]};
    for (int64_t at = begin; at < end; at += BLOCK) {
        int64_t n = end - at < BLOCK ? end - at : BLOCK;
        load(p, (char *)s->param + at * 2, 2, n);
        load(g, (const char *)s->grad + at * 2, 2, n);
        for (int k = 0; k < 3; k++)
            if (s->state[k])
                load(state[k], (char *)s->state[k] + at * 2, 2, n);
        find_step(s->a->kind, false)(s, p, g, states, n);
        store((char *)s->param + at * 2, p, 2, n);
        for (int k = 0; k < 3; k++)
            if (s->state[k])
                store((char *)s->state[k] + at * 2, state[k], 2, n);
    }
}

static void run_step(void *context, int64_t begin, int64_t end, int64_t block)
{
    const step *s = context;
    int64_t size = rl_dtype_size((rl_dtype)s->a->dtype);
    void *state[3];
    if (size == 2) {
        run_16(s, begin, end);
        return;
    }
    for (int k = 0; k < 3; k++)
        state[k] = s->state[k] ? (char *)s->state[k] + begin * size : NULL;
    find_step(s->a->kind, size == 8)(s, (char *)s->param + begin * size, (const char *)s->grad + begin * size, state, end - begin);
}

rl_status RL_LEVEL_NAME(rl_kernel_optim)(const void *args, rl_stream stream)
{
    const rl_optim_args *a = args;
    if (!find_step(a->kind, false) || !rl_dtype_is_float((rl_dtype)a->dtype))
        return rl_fail(RL_ERR_NOT_IMPLEMENTED, "the CPU has no optimizer number %d for %s", a->kind, rl_dtype_name((rl_dtype)a->dtype));
    if (a->found_inf && *a->found_inf != 0)
        return RL_OK;
    for (int64_t i = 0; i < a->count; i++) {
        step s = {.a = a};
        prepare(&s, i);
        if (a->numel[i] <= GRAIN)
            run_step(&s, 0, a->numel[i], 0);
        else
            rl_parallel_for(a->numel[i], GRAIN, run_step, &s);
    }
    return RL_OK;
}

/* ---- the norm of many tensors ---- */

typedef struct norm_job {
    rl_dtype dtype;
    double p, factor;
    void *data;
    double *partial; /* one a block */
} norm_job;

/* UNROLL sums side by side, so that the loop vectorises and its order is fixed. */
static double block_norm(const double *x, int64_t n, double p)
{
    double sum[UNROLL];
    for (int k = 0; k < UNROLL; k++)
        sum[k] = p == -INFINITY ? INFINITY : 0;
    for (int64_t i = 0; i < n; i += UNROLL) {
        int m = n - i < UNROLL ? (int)(n - i) : UNROLL;
        for (int k = 0; k < m; k++) {
            double v = fabs(x[i + k]);
            if (p == 2)
                sum[k] += v * v;
            else if (p == 1)
                sum[k] += v;
            else if (p == INFINITY)
                sum[k] = (v > sum[k]) | (v != v) ? v : sum[k];
            else if (p == -INFINITY)
                sum[k] = (v < sum[k]) | (v != v) ? v : sum[k];
            else if (p == 0)
                sum[k] += v != 0;
            else
                sum[k] += pow(v, p);
        }
    }
    for (int k = 1; k < UNROLL; k++)
        if (p == INFINITY)
            sum[0] = (sum[k] > sum[0]) | (sum[k] != sum[k]) ? sum[k] : sum[0];
        else if (p == -INFINITY)
            sum[0] = (sum[k] < sum[0]) | (sum[k] != sum[k]) ? sum[k] : sum[0];
        else
            sum[0] += sum[k];
    return sum[0];
}

static double combine(double a, double b, double p)
{
    if (p == INFINITY)
        return (b > a) | (b != b) ? b : a;
    if (p == -INFINITY)
        return (b < a) | (b != b) ? b : a;
    return a + b;
}

static double root(double sum, double p)
{
    return p == 2 ? sqrt(sum) : p == 1 || p == 0 || isinf(p) ? sum : pow(sum, 1 / p);
}

static void norm_range(void *context, int64_t begin, int64_t end, int64_t block)
{
    const norm_job *j = context;
    int64_t size = rl_dtype_size(j->dtype);
    rl_convert_fn load = RL_LEVEL_NAME(rl_convert_load)(RL_F64, j->dtype);
    double total = j->p == -INFINITY ? INFINITY : 0, x[BLOCK];
    for (int64_t at = begin; at < end; at += BLOCK) {
        int64_t n = end - at < BLOCK ? end - at : BLOCK;
        load(x, (const char *)j->data + at * size, size, n);
        total = combine(total, block_norm(x, n, j->p), j->p);
    }
    j->partial[block] = total;
}

static void scale_range(void *context, int64_t begin, int64_t end, int64_t block)
{
    const norm_job *j = context;
    int64_t size = rl_dtype_size(j->dtype);
    float x[BLOCK];
    if (j->dtype == RL_F64) {
        for (int64_t i = begin; i < end; i++)
            ((double *)j->data)[i] *= j->factor;
        return;
    }
    if (j->dtype == RL_F32) {
        for (int64_t i = begin; i < end; i++)
            ((float *)j->data)[i] *= (float)j->factor;
        return;
    }
    for (int64_t at = begin; at < end; at += BLOCK) {
        int64_t n = end - at < BLOCK ? end - at : BLOCK;
        RL_LEVEL_NAME(rl_convert_load)(RL_F32, j->dtype)(x, (char *)j->data + at * size, size, n);
        for (int64_t i = 0; i < n; i++)
            x[i] *= (float)j->factor;
        RL_LEVEL_NAME(rl_convert_store)(RL_F32, j->dtype)((char *)j->data + at * size, x, size, n);
    }
}

static rl_status norm_one(norm_job *j, int64_t n, double *out)
{
    int64_t blocks = (n + GRAIN - 1) / GRAIN;
    double few[64];
    *out = j->p == -INFINITY && n ? INFINITY : 0;
    j->partial = blocks <= 64 ? few : rl_pool_alloc((size_t)blocks * sizeof(double));
    if (!j->partial)
        return RL_ERR_MEMORY;
    rl_parallel_for(n, GRAIN, norm_range, j);
    for (int64_t b = 0; b < blocks; b++)
        *out = combine(*out, j->partial[b], j->p);
    if (blocks > 64)
        rl_pool_free(j->partial, (size_t)blocks * sizeof(double));
    return RL_OK;
}

/* As clip_grad_norm_ computes it in the tensors' dtype: clip / (norm + 1e-6), at most 1. */
static double clip_factor(rl_dtype d, double clip, double norm)
{
    if (d == RL_F64) {
        double f = clip / (norm + 1e-6);
        return f > 1 ? 1 : f;
    }
    float f = (float)clip / ((float)norm + 1e-6f);
    return f > 1 ? 1 : (double)f;
}

rl_status RL_LEVEL_NAME(rl_kernel_multi_norm)(const void *args, rl_stream stream)
{
    const rl_multi_norm_args *a = args;
    norm_job j = {.dtype = (rl_dtype)a->dtype, .p = a->p};
    double total = 0;
    for (int64_t i = 0; i < a->count; i++) {
        double sum;
        j.data = a->data[i];
        RL_RETURN(norm_one(&j, a->numel[i], &sum));
        if (a->each)
            a->out[1 + i] = root(sum, a->p);
        total = i ? combine(total, sum, a->p) : sum;
    }
    a->out[0] = root(total, a->p);
    if (!(a->clip >= 0))
        return RL_OK;
    j.factor = clip_factor(j.dtype, a->clip, a->out[0]);
    for (int64_t i = 0; i < a->count && j.factor != 1; i++) {
        j.data = a->data[i];
        rl_parallel_for(a->numel[i], GRAIN, scale_range, &j);
    }
    return RL_OK;
}
