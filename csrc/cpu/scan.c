/* scan: RL_K_SCAN on the CPU: running sum, product, maximum, minimum and log-sum-exp along the middle of (outer, n, inner).
 *
 * Each line runs in the accumulation type (double for the float types, as PyTorch's CPU scan; int64 for integers) on one thread. MAX and MIN take the last of
 * equal elements, and NaN once it has come.
 */
#include "cpu.h"

#include <math.h>

typedef struct line {
    const rl_scan_args *a;
    int size;
} line;

static double log_add(double a, double b)
{
    double m = a > b ? a : b;
    if (isinf(m) && (a == b || m < 0))
        return m;
    return a != a || b != b ? a + b : m + log1p(exp(-fabs(a - b)));
}

/* Does b replace a as the running extreme? */
static bool replaces(const rl_scan_args *a, rl_scalar old, rl_scalar fresh)
{
    if (old.kind == RL_CAT_FLOAT) {
        if (old.d != old.d)
            return fresh.d != fresh.d;
        return fresh.d != fresh.d || (a->op == RL_SCAN_MAX ? fresh.d >= old.d : fresh.d <= old.d);
    }
    return a->op == RL_SCAN_MAX ? fresh.i >= old.i : fresh.i <= old.i;
}

static void fold(const rl_scan_args *a, rl_scalar *acc, rl_scalar v)
{
    bool is_float = acc->kind == RL_CAT_FLOAT;
    switch (a->op) {
    case RL_SCAN_SUM:
        if (is_float)
            acc->d += v.d;
        else
            acc->i = (int64_t)((uint64_t)acc->i + (uint64_t)v.i);
        break;
    case RL_SCAN_PROD:
        if (is_float)
            acc->d *= v.d;
        else
            acc->i = (int64_t)((uint64_t)acc->i * (uint64_t)v.i);
        break;
    case RL_SCAN_LOGSUMEXP: acc->d = log_add(acc->d, v.d); break;
    default: break;
    }
}

static void run_lines(void *context, int64_t begin, int64_t end, int64_t block)
{
    const line *l = context;
    const rl_scan_args *a = l->a;
    rl_dtype d = (rl_dtype)a->dtype;
    bool extreme = a->op == RL_SCAN_MAX || a->op == RL_SCAN_MIN;
    (void)block;
    for (int64_t r = begin; r < end; r++) {
        int64_t base = r / a->inner * a->n * a->inner + r % a->inner, place = 0;
        rl_scalar acc = {0};
        for (int64_t k = 0; k < a->n; k++) {
            int64_t i = a->reverse ? a->n - 1 - k : k, at = base + i * a->inner;
            rl_scalar v = rl_element_load((const char *)a->in + at * l->size, d);
            if (k == 0 || (extreme && replaces(a, acc, v))) {
                acc = v;
                place = i;
            } else
                fold(a, &acc, v);
            rl_element_store((char *)a->out + at * l->size, d, acc);
            if (extreme && a->out2)
                ((int64_t *)a->out2)[at] = place;
        }
    }
}

rl_status rl_cpu_scan(const void *args, rl_stream stream)
{
    const rl_scan_args *a = args;
    line l = {a, rl_dtype_size((rl_dtype)a->dtype)};
    int64_t grain = 8192 / (a->n > 0 ? a->n : 1);
    (void)stream;
    rl_parallel_for(a->outer * a->inner, grain < 1 ? 1 : grain, run_lines, &l);
    return RL_OK;
}
