/* reduce: RL_K_REDUCE on the CPU, one element at a time in double or int64: the plain form. */
#include "cpu.h"
#include <math.h>
typedef struct acc { double d, m2, mean, max; int64_t i, n, at; bool nan; } acc;
static void add_one(const rl_reduce_args *a, acc *c, rl_scalar v, int64_t place)
{
    bool f = v.kind == RL_CAT_FLOAT;
    double d = f ? v.d : (double)v.i;
    switch (a->op) {
    case RL_RED_NANSUM: if (d != d) break; /* fall through */
    case RL_RED_SUM: case RL_RED_MEAN: c->d += d; c->i = (int64_t)((uint64_t)c->i + (uint64_t)(f ? 0 : v.i)); break;
    case RL_RED_PROD: c->d *= d; c->i = (int64_t)((uint64_t)c->i * (uint64_t)(f ? 1 : v.i)); break;
    case RL_RED_ANY: c->i |= d != 0; break;
    case RL_RED_ALL: c->i &= d != 0; break;
    case RL_RED_COUNT_NONZERO: c->i += d != 0; break;
    case RL_RED_VAR: case RL_RED_STD: case RL_RED_VAR_MEAN: case RL_RED_STD_MEAN: { double e = d - c->mean; c->mean += e / (double)(c->n + 1); c->m2 += e * (d - c->mean); break; }
    case RL_RED_NORM: { double x = fabs(d); if (isinf(a->p)) { if (c->n == 0 || x != x || (c->d == c->d && (a->p > 0 ? x > c->d : x < c->d))) c->d = x; } else if (a->p == 0) c->d += x != 0; else c->d += a->p == 2 ? x * x : a->p == 1 ? x : pow(x, a->p); break; }
    case RL_RED_LOGSUMEXP: if (c->n == 0) { c->max = d; c->d = 1; } else if (d <= c->max) c->d += d == c->max ? 1 : exp(d - c->max); else if (d > c->max) { c->d = c->d * exp(c->max - d) + 1; c->max = d; } else c->max = c->d = NAN; break;
    default: { bool mx = a->op == RL_RED_MAX || a->op == RL_RED_ARGMAX || a->op == RL_RED_MAX_INDEX;
        bool take = c->n == 0 || (f ? !c->nan && (d != d || (mx ? d > c->d : d < c->d)) : (mx ? v.i > c->i : v.i < c->i));
        if (take) { c->d = d; c->i = f ? 0 : v.i; c->at = place; c->nan = d != d; } } }
    c->n++;
}
static void finish(const rl_reduce_args *a, acc *c, char *out, char *out2)
{
    bool fo = rl_dtype_is_float((rl_dtype)a->out_dtype), fi = rl_dtype_is_float((rl_dtype)a->in_dtype);
    rl_scalar r = fo ? rl_scalar_float(c->d) : rl_scalar_int(fi ? (int64_t)c->d : c->i);
    double var = c->n - a->p > 0 ? c->m2 / ((double)c->n - a->p) : c->n ? c->m2 / 0.0 : NAN;
    switch (a->op) {
    case RL_RED_MEAN: r.d = c->d / (double)c->n; break;
    case RL_RED_ANY: case RL_RED_ALL: case RL_RED_COUNT_NONZERO: r = rl_scalar_int(c->i); break;
    case RL_RED_ARGMAX: case RL_RED_ARGMIN: r = rl_scalar_int(c->at); break;
    case RL_RED_VAR: case RL_RED_VAR_MEAN: r.d = var; break;
    case RL_RED_STD: case RL_RED_STD_MEAN: r.d = sqrt(var); break;
    case RL_RED_NORM: if (!isinf(a->p) && a->p != 0 && a->p != 1) r.d = a->p == 2 ? sqrt(c->d) : pow(c->d, 1 / a->p); break;
    case RL_RED_LOGSUMEXP: r.d = c->n == 0 ? -INFINITY : isinf(c->max) ? c->max : c->max + log(c->d); break;
    default: if (!fi && fo) r.d = (double)c->i; }
    rl_element_store(out, (rl_dtype)a->out_dtype, r);
    if (out2) {
        if (a->op == RL_RED_MAX_INDEX || a->op == RL_RED_MIN_INDEX) *(int64_t *)out2 = c->at;
        else rl_element_store(out2, (rl_dtype)a->out_dtype, rl_scalar_float(c->n ? c->mean : NAN));
    }
}
static void kept(void *context, int64_t begin, int64_t end, int64_t block)
{
    const rl_reduce_args *a = context; (void)block;
    for (int64_t k = begin; k < end; k++) {
        int64_t rest = k, in = 0, out = 0, out2 = 0, at[RL_ARG_DIMS] = {0};
        for (int d = 0; d < a->nkeep; d++) { int64_t i = rest % a->keep[d]; rest /= a->keep[d]; in += i * a->in_keep_strides[d]; out += i * a->out_strides[d]; out2 += i * a->out2_strides[d]; }
        acc c = {0}; if (a->op == RL_RED_PROD) { c.d = 1; c.i = 1; } if (a->op == RL_RED_ALL) c.i = 1;
        const char *p = (const char *)a->in + in;
        for (int64_t r = 0; r < a->nreduced; r++) {
            add_one(a, &c, rl_element_load(p, (rl_dtype)a->in_dtype), r);
            for (int d = 0; d < a->nreduce; d++) { p += a->in_reduce_strides[d]; if (++at[d] < a->reduce[d]) break; p -= a->in_reduce_strides[d] * a->reduce[d]; at[d] = 0; }
        }
        finish(a, &c, (char *)a->out + out, a->out2 ? (char *)a->out2 + out2 : NULL);
    }
}
rl_status rl_cpu_reduce(const void *args, rl_stream stream)
{
    const rl_reduce_args *a = args; (void)stream;
    rl_parallel_for(a->nkept, 1024, kept, (void *)a);
    return RL_OK;
}
rl_status rl_cpu_gemm(const void *args, rl_stream stream)
{
    const rl_gemm_args *a = args; rl_dtype d = (rl_dtype)a->dtype; int s = rl_dtype_size(d); (void)stream;
    for (int64_t b = 0; b < a->batch; b++)
        for (int64_t i = 0; i < a->m; i++)
            for (int64_t j = 0; j < a->n; j++) {
                const char *x = (const char *)a->a + (b * a->a_batch + i * a->a_row) * s, *y = (const char *)a->b + (b * a->b_batch + j * a->b_col) * s;
                char *c = (char *)a->c + (b * a->c_batch + i * a->c_row + j * a->c_col) * s;
                double acc = 0; int64_t acci = 0;
                for (int64_t k = 0; k < a->k; k++, x += a->a_col * s, y += a->b_row * s) {
                    if (d == RL_F32) { acc += (double)*(const float *)x * *(const float *)y; continue; }
                    rl_scalar u = rl_element_load(x, d), v = rl_element_load(y, d);
                    if (u.kind == RL_CAT_FLOAT) acc += u.d * v.d; else acci = (int64_t)((uint64_t)acci + (uint64_t)u.i * (uint64_t)v.i);
                }
                rl_scalar old = a->beta != 0 || a->beta_i != 0 ? rl_element_load(c, d) : rl_scalar_int(0);
                if (rl_dtype_is_float(d)) {
                    acc = a->alpha * acc + (a->beta != 0 ? a->beta * rl_scalar_to_double(old) : 0) + (a->bias ? rl_scalar_to_double(rl_element_load((const char *)a->bias + j * s, d)) : 0);
                    rl_element_store(c, d, rl_scalar_float(a->relu && acc < 0 ? 0 : acc));
                } else
                    rl_element_store(c, d, rl_scalar_int((int64_t)((uint64_t)a->alpha_i * (uint64_t)acci + (a->beta_i ? (uint64_t)a->beta_i * (uint64_t)old.i : 0))));
            }
    return RL_OK;
}
