/* reduce: RL_K_REDUCE one element at a time, over any strides and dtypes, in double or int64. The level's kernel (level/reduce.c) takes the dense cases.
 *
 * The order is the logical one on one thread a result, so results depend on nothing else. NaN wins in extremes; of equal elements the first is taken.
 */
#include "cpu.h"

#include <math.h>

typedef struct cell {
    double d, m2, mean, max;
    int64_t i, n, at;
    bool nan;
} cell;

static void start(cell *c, int op)
{
    *c = (cell){0};
    if (op == RL_RED_PROD)
        c->d = c->i = 1;
    if (op == RL_RED_ALL)
        c->i = 1;
}

static void add_norm(const rl_reduce_args *a, cell *c, double x)
{
    if (isinf(a->p)) {
        if (c->n == 0 || x != x || (c->d == c->d && (a->p > 0 ? x > c->d : x < c->d)))
            c->d = x;
    } else if (a->p == 0)
        c->d += x != 0;
    else
        c->d += a->p == 2 ? x * x : a->p == 1 ? x : pow(x, a->p);
}

/* Running log-sum-exp: d is the sum of exp(v - max). */
static void add_exp(cell *c, double v)
{
    if (c->n == 0) {
        c->max = v;
        c->d = 1;
    } else if (v <= c->max)
        c->d += v == c->max ? 1 : exp(v - c->max);
    else if (v > c->max) {
        c->d = c->d * exp(c->max - v) + 1;
        c->max = v;
    } else
        c->max = c->d = NAN;
}

/* Welford's update (Technometrics 4, 1962, 419-420). */
static void add_moment(cell *c, double v)
{
    double e = v - c->mean;
    c->mean += e / (double)(c->n + 1);
    c->m2 += e * (v - c->mean);
}

static void add_extreme(const rl_reduce_args *a, cell *c, rl_scalar v, int64_t place)
{
    bool max = a->op == RL_RED_MAX || a->op == RL_RED_ARGMAX || a->op == RL_RED_MAX_INDEX, take;
    if (v.kind == RL_CAT_FLOAT)
        take = c->n == 0 || (!c->nan && (v.d != v.d || (max ? v.d > c->d : v.d < c->d)));
    else
        take = c->n == 0 || (max ? v.i > c->i : v.i < c->i);
    if (!take)
        return;
    c->at = place;
    if (v.kind == RL_CAT_FLOAT) {
        c->d = v.d;
        c->nan = v.d != v.d;
    } else
        c->i = v.i;
}

static void add(const rl_reduce_args *a, cell *c, rl_scalar v, int64_t place)
{
    double d = rl_scalar_to_double(v);
    int64_t i = v.kind == RL_CAT_FLOAT ? 0 : v.i;
    switch (a->op) {
    case RL_RED_NANSUM: d = d != d ? 0 : d; /* fall through */
    case RL_RED_SUM:
    case RL_RED_MEAN:
        c->d += d;
        c->i = (int64_t)((uint64_t)c->i + (uint64_t)i);
        break;
    case RL_RED_PROD:
        c->d *= d;
        c->i = (int64_t)((uint64_t)c->i * (uint64_t)i);
        break;
    case RL_RED_ANY: c->i |= d != 0; break;
    case RL_RED_ALL: c->i &= d != 0; break;
    case RL_RED_COUNT_NONZERO: c->i += d != 0; break;
    case RL_RED_VAR:
    case RL_RED_STD:
    case RL_RED_VAR_MEAN:
    case RL_RED_STD_MEAN: add_moment(c, d); break;
    case RL_RED_NORM: add_norm(a, c, fabs(d)); break;
    case RL_RED_LOGSUMEXP: add_exp(c, d); break;
    default: add_extreme(a, c, v, place);
    }
    c->n++;
}

static double variance(const rl_reduce_args *a, const cell *c)
{
    double left = (double)c->n - a->p;
    return c->n ? c->m2 / (left > 0 ? left : 0) : NAN;
}

static rl_scalar result_of(const rl_reduce_args *a, const cell *c)
{
    bool from_float = rl_dtype_is_float((rl_dtype)a->in_dtype), to_float = rl_dtype_is_float((rl_dtype)a->out_dtype);
    switch (a->op) {
    case RL_RED_MEAN: return rl_scalar_float(c->d / (double)c->n);
    case RL_RED_ANY:
    case RL_RED_ALL:
    case RL_RED_COUNT_NONZERO: return rl_scalar_int(c->i);
    case RL_RED_ARGMAX:
    case RL_RED_ARGMIN: return rl_scalar_int(c->at);
    case RL_RED_VAR:
    case RL_RED_VAR_MEAN: return rl_scalar_float(variance(a, c));
    case RL_RED_STD:
    case RL_RED_STD_MEAN: return rl_scalar_float(sqrt(variance(a, c)));
    case RL_RED_NORM: return rl_scalar_float(isinf(a->p) || a->p == 0 || a->p == 1 ? c->d : a->p == 2 ? sqrt(c->d) : pow(c->d, 1 / a->p));
    case RL_RED_LOGSUMEXP: return rl_scalar_float(c->n == 0 ? -INFINITY : isinf(c->max) ? c->max : c->max + log(c->d));
    default: return from_float ? rl_scalar_float(c->d) : to_float && a->op <= RL_RED_PROD ? rl_scalar_float(c->d) : rl_scalar_int(c->i);
    }
}

static void finish(const rl_reduce_args *a, const cell *c, char *out, char *out2)
{
    rl_element_store(out, (rl_dtype)a->out_dtype, result_of(a, c));
    if (out2 == NULL)
        return;
    if (a->op == RL_RED_MAX_INDEX || a->op == RL_RED_MIN_INDEX)
        *(int64_t *)out2 = c->at;
    else
        rl_element_store(out2, (rl_dtype)a->out_dtype, rl_scalar_float(c->n ? c->mean : NAN));
}

static void fold(const rl_reduce_args *a, cell *c, const char *p)
{
    int64_t at[RL_ARG_DIMS] = {0};
    start(c, a->op);
    for (int64_t r = 0; r < a->nreduced; r++) {
        add(a, c, rl_element_load(p, (rl_dtype)a->in_dtype), r);
        for (int d = 0; d < a->nreduce; d++) {
            p += a->in_reduce_strides[d];
            if (++at[d] < a->reduce[d])
                break;
            p -= a->in_reduce_strides[d] * a->reduce[d];
            at[d] = 0;
        }
    }
}

static void run_results(void *context, int64_t begin, int64_t end, int64_t block)
{
    const rl_reduce_args *a = context;
    (void)block;
    for (int64_t k = begin; k < end; k++) {
        int64_t rest = k, in = 0, out = 0, out2 = 0;
        cell c;
        for (int d = 0; d < a->nkeep; d++) {
            int64_t i = rest % a->keep[d];
            rest /= a->keep[d];
            in += i * a->in_keep_strides[d];
            out += i * a->out_strides[d];
            out2 += i * a->out2_strides[d];
        }
        fold(a, &c, (const char *)a->in + in);
        finish(a, &c, (char *)a->out + out, a->out2 ? (char *)a->out2 + out2 : NULL);
    }
}

rl_status rl_cpu_reduce(const void *args, rl_stream stream)
{
    const rl_reduce_args *a = args;
    (void)stream;
    rl_parallel_for(a->nkept, 1 + 8192 / (a->nreduced + 1), run_results, (void *)a);
    return RL_OK;
}
