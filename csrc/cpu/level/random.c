/* random.c: RL_K_RANDOM on the CPU: PyTorch's distributions over the generator's words, bit for bit with its AVX2 kernels.
 *
 * Every fill is serial under the generator's lock (held by the caller): the thread count never matters. Elements are visited
 * in memory order; ops sorted the dimensions. Where PyTorch's kernel fuses a multiply and an add, fma() stands here, so the
 * numbers are the same at every level and on every machine (tests/golden/RNG.md names each rule; §3 the normal's polynomials).
 */
#include "../../core/rng.h"
#include "../cpu.h"

#include <math.h>

typedef const rl_random_args *args_t;

/* ---- visiting and storing ---- */

static void store(void *p, rl_dtype d, double v)
{
    switch (d) {
    case RL_F64: *(double *)p = v; break;
    case RL_F32: *(float *)p = (float)v; break;
    case RL_F16: *(uint16_t *)p = rl_f32_to_f16((float)v); break;
    case RL_BF16: *(uint16_t *)p = rl_f32_to_bf16((float)v); break;
    default: rl_element_store(p, d, rl_scalar_float(v)); break;
    }
}

static void store_int(void *p, rl_dtype d, int64_t v)
{
    switch (d) {
    case RL_I64: *(int64_t *)p = v; break;
    case RL_I32: *(int32_t *)p = (int32_t)v; break;
    case RL_I16: *(int16_t *)p = (int16_t)v; break;
    case RL_U8: case RL_I8: *(uint8_t *)p = (uint8_t)v; break;
    case RL_BOOL: *(uint8_t *)p = v != 0; break;
    default: store(p, d, d == RL_F64 ? (double)v : (double)(float)v); break;
    }
}

/* Calls visit(a, element, probability) for each element, innermost dimension first. */
static void each(args_t a, void (*visit)(args_t, void *, const void *))
{
    int64_t index[RL_ARG_DIMS] = {0};
    char *out = a->out;
    const char *p = a->p;
    for (int64_t i = 0; i < a->numel; i++) {
        visit(a, out, p);
        for (int d = 0; d < a->ndim; d++) {
            out += a->strides[d];
            p += p ? a->p_strides[d] : 0;
            if (++index[d] < a->shape[d])
                break;
            out -= a->strides[d] * a->shape[d];
            p -= p ? a->p_strides[d] * a->shape[d] : 0;
            index[d] = 0;
        }
    }
}

/* ---- uniform ---- */

static float uniform_f32(uint32_t word, float lo, float width)
{
    return fmaf((float)(word & 0xffffffu) * 0x1p-24f, width, lo);
}

static void visit_uniform(args_t a, void *out, const void *p)
{
    rl_dtype d = (rl_dtype)a->dtype;
    if (d == RL_F64) {
        double v = fma(rl_rng_u53(a->generator), a->b - a->a, a->a);
        *(double *)out = v == a->b ? a->a : v;
        return;
    }
    float lo = (float)a->a, hi = (float)a->b;
    double v = uniform_f32(rl_rng_u32(a->generator), lo, hi - lo);
    store(out, d, v);
    double stored = rl_scalar_to_double(rl_element_load(out, d));
    char end[2 * sizeof(double)];
    store(end, d, hi);
    if (stored == rl_scalar_to_double(rl_element_load(end, d)))
        store(out, d, lo);
}

static void uniform_dense_f32(args_t a)
{
    uint32_t words[512];
    float lo = (float)a->a, hi = (float)a->b, width = hi - lo, *out = a->out;
    for (int64_t i = 0; i < a->numel; i += 512) {
        int64_t n = a->numel - i < 512 ? a->numel - i : 512;
        rl_rng_fill_u32(a->generator, words, n);
        for (int64_t k = 0; k < n; k++) {
            float v = uniform_f32(words[k], lo, width);
            out[i + k] = v == hi ? lo : v;
        }
    }
}

/* ---- normal ---- */

static void visit_normal(args_t a, void *out, const void *p)
{
    store(out, (rl_dtype)a->dtype, fma(rl_rng_normal(a->generator), a->b, a->a));
}

/* The logarithm of PyTorch's AVX2 kernel, for x in [2^-24, 1] (Cephes' polynomial). */
static inline float log_block(float x)
{
    static const float c[8] = {-1.1514610310E-1f, 1.1676998740E-1f, -1.2420140846E-1f, 1.4249322787E-1f,
                               -1.6668057665E-1f, 2.0000714765E-1f, -2.4999993993E-1f, 3.3333331174E-1f};
    uint32_t b;
    memcpy(&b, &x, 4);
    float e = (float)((int32_t)(b >> 23) - 126);
    b = (b & 0x7fffffu) | 0x3f000000u;
    memcpy(&x, &b, 4);
    bool small = x < 0.707106781186547524f;
    e = small ? e - 1 : e;
    x = small ? (x - 1) + x : x - 1;
    float z = x * x, y = 7.0376836292E-2f;
    for (int k = 0; k < 8; k++)
        y = fmaf(y, x, c[k]);
    y = fmaf(x * y, z, e * -2.12194440e-4f);
    y = fmaf(-z, 0.5f, y);
    return fmaf(e, 0.693359375f, x + y);
}

static inline void sincos_block(float t, float *sine, float *cosine)
{
    int32_t j = ((int32_t)(t * 1.27323954473516f) + 1) & ~1;
    float y = (float)j;
    float x = fmaf(y, -0.78515625f, t);
    x = fmaf(y, -2.4187564849853515625e-4f, x);
    x = fmaf(y, -3.77489497744594108e-8f, x);
    float z = x * x;
    float c = fmaf(2.443315711809948e-5f, z, -1.388731625493765e-3f);
    c = z * fmaf(c, z, 4.166664568298827e-2f);
    c = fmaf(z, c, -(z * 0.5f)) + 1;
    float s = fmaf(-1.9515295891E-4f, z, 8.3321608736E-3f);
    s = z * fmaf(s, z, -1.6666654611E-1f);
    s = fmaf(x, s, x);
    float sn = j & 2 ? c : s, cs = j & 2 ? s : c;
    *sine = j & 4 ? -sn : sn;
    *cosine = (j - 2) & 4 ? cs : -cs;
}

/* 16 uniforms become 16 normals: the first half gives the radius, the second the angle. */
static void box_muller_f32(float x[16], float mean, float std)
{
    for (int j = 0; j < 8; j++) {
        float u1 = 1 - x[j], u2 = x[j + 8], s, c;
        float r = sqrtf(-2.0f * log_block(u1));
        sincos_block(6.2831855f * u2, &s, &c);
        x[j] = fmaf(r * c, std, mean);
        x[j + 8] = fmaf(r * s, std, mean);
    }
}

static void box_muller_f64(double x[16], double mean, double std)
{
    for (int j = 0; j < 8; j++) {
        double u1 = 1 - x[j], u2 = x[j + 8], r = sqrt(-2.0 * log(u1)), t = 6.283185307179586 * u2;
        x[j] = fma(r * cos(t), std, mean);
        x[j + 8] = fma(r * sin(t), std, mean);
    }
}

static void normal_dense_f32(args_t a)
{
    rl_generator *g = a->generator;
    float *out = a->out, mean = (float)a->a, std = (float)a->b;
    uint32_t words[512];
    for (int64_t i = 0; i < a->numel; i += 512) {
        int64_t n = a->numel - i < 512 ? a->numel - i : 512;
        rl_rng_fill_u32(g, words, n);
        for (int64_t k = 0; k < n; k++)
            out[i + k] = (float)(words[k] & 0xffffffu) * 0x1p-24f;
    }
    for (int64_t i = 0; i + 16 <= a->numel; i += 16)
        box_muller_f32(out + i, mean, std);
    if (a->numel % 16) { /* the last 16 are drawn again: earlier results among them are replaced */
        float *tail = out + a->numel - 16;
        for (int k = 0; k < 16; k++)
            tail[k] = rl_rng_u24(g);
        box_muller_f32(tail, mean, std);
    }
}

static void normal_dense_f64(args_t a)
{
    rl_generator *g = a->generator;
    double *out = a->out;
    for (int64_t i = 0; i < a->numel; i++)
        out[i] = rl_rng_u53(g);
    for (int64_t i = 0; i + 16 <= a->numel; i += 16)
        box_muller_f64(out + i, a->a, a->b);
    if (a->numel % 16) {
        double *tail = out + a->numel - 16;
        for (int k = 0; k < 16; k++)
            tail[k] = rl_rng_u53(g);
        box_muller_f64(tail, a->a, a->b);
    }
}

/* The 16-bit types draw block by block, and nothing for a remainder but its 16 fresh ones. */
static void normal_dense_16(args_t a)
{
    uint16_t *out = a->out;
    float block[16];
    int64_t full = a->numel / 16 * 16;
    for (int64_t i = 0; i < a->numel; i += 16) {
        int64_t at = i < full ? i : a->numel - 16;
        for (int k = 0; k < 16; k++)
            block[k] = rl_rng_u24(a->generator);
        box_muller_f32(block, (float)a->a, (float)a->b);
        for (int k = 0; k < 16; k++)
            out[at + k] = a->dtype == RL_F16 ? rl_f32_to_f16(block[k]) : rl_f32_to_bf16(block[k]);
    }
}

static void fill_normal(args_t a)
{
    if (!a->dense || a->numel < 16)
        each(a, visit_normal);
    else if (a->dtype == RL_F32)
        normal_dense_f32(a);
    else if (a->dtype == RL_F64)
        normal_dense_f64(a);
    else
        normal_dense_16(a);
}

/* ---- integers ---- */

static void visit_randint(args_t a, void *out, const void *p)
{
    uint64_t v;
    if (a->full)
        v = rl_rng_u64(a->generator);
    else
        v = (a->range >= (1u << 28) ? rl_rng_u64(a->generator) : rl_rng_u32(a->generator)) % a->range + (uint64_t)a->from;
    store_int(out, (rl_dtype)a->dtype, (int64_t)v);
}

/* random_() without bounds: all the values that the dtype counts exactly. */
static void visit_random(args_t a, void *out, const void *p)
{
    rl_generator *g = a->generator;
    int64_t v;
    switch (a->dtype) {
    case RL_BOOL: v = rl_rng_u32(g) & 1; break;
    case RL_I64: v = (int64_t)(rl_rng_u64(g) & 0x7fffffffffffffffull); break;
    case RL_F64: v = (int64_t)(rl_rng_u64(g) % ((1ull << 53) + 1)); break;
    case RL_U8: v = rl_rng_u32(g) & 0xff; break;
    case RL_I8: v = rl_rng_u32(g) & 0x7f; break;
    case RL_I16: v = rl_rng_u32(g) & 0x7fff; break;
    case RL_I32: v = rl_rng_u32(g) & 0x7fffffff; break;
    case RL_F16: v = rl_rng_u32(g) % ((1u << 11) + 1); break;
    case RL_BF16: v = rl_rng_u32(g) % ((1u << 8) + 1); break;
    default: v = rl_rng_u32(g) % ((1u << 24) + 1); break;
    }
    store_int(out, (rl_dtype)a->dtype, v);
}

#define PERM_LARGE 214748364 /* from here on 32 bits no longer choose evenly, and PyTorch draws 64 */

/* Into int64, contiguous. */
static void fill_perm(args_t a)
{
    rl_generator *g = a->generator;
    int64_t *r = a->out, n = a->numel;
    if (n >= PERM_LARGE) {
        for (int64_t i = 0; i < n; i++) {
            int64_t z = (int64_t)(rl_rng_u64(g) % (uint64_t)(i + 1));
            r[i] = r[z];
            r[z] = i;
        }
        return;
    }
    for (int64_t i = 0; i < n; i++)
        r[i] = i;
    for (int64_t i = 0; i + 1 < n; i++) {
        int64_t j = i + (int64_t)(rl_rng_u32(g) % (uint64_t)(n - i)), t = r[i];
        r[i] = r[j];
        r[j] = t;
    }
}

/* ---- Bernoulli and the other laws ---- */

static void visit_bernoulli(args_t a, void *out, const void *p)
{
    store_int(out, (rl_dtype)a->dtype, rl_rng_u53(a->generator) < a->a);
}

static void visit_bernoulli_tensor(args_t a, void *out, const void *p)
{
    double v = rl_scalar_to_double(rl_element_load(p, (rl_dtype)a->p_dtype));
    bool hit = a->p_dtype == RL_F64 ? rl_rng_u53(a->generator) < v : rl_rng_u24(a->generator) < (float)v;
    store_int(out, (rl_dtype)a->dtype, hit);
}

/* keep / (1 - p), the quotient rounded in the dtype (16-bit: divided in float). a: 1 - p. */
static void visit_dropout(args_t a, void *out, const void *p)
{
    bool keep = rl_rng_u53(a->generator) < a->a;
    double q = a->dtype == RL_F64 ? keep / a->a : (double)((float)keep / (float)a->a);
    store(out, (rl_dtype)a->dtype, q);
}

static void visit_exponential(args_t a, void *out, const void *p)
{
    store(out, (rl_dtype)a->dtype, (-1.0 / a->a) * log1p(-rl_rng_u53(a->generator)));
}

static void visit_geometric(args_t a, void *out, const void *p)
{
    store(out, (rl_dtype)a->dtype, ceil(log(rl_rng_u53(a->generator)) / log1p(-a->a)));
}

static void visit_cauchy(args_t a, void *out, const void *p)
{
    store(out, (rl_dtype)a->dtype, fma(tan(3.141592653589793 * (rl_rng_u53(a->generator) - 0.5)), a->b, a->a));
}

static void visit_log_normal(args_t a, void *out, const void *p)
{
    store(out, (rl_dtype)a->dtype, exp(fma(rl_rng_normal(a->generator), a->b, a->a)));
}

rl_status RL_LEVEL_NAME(rl_random)(const void *args, rl_stream stream)
{
    args_t a = args;
    switch (a->dist) {
    case RL_RAND_UNIFORM:
        if (a->dense && a->dtype == RL_F32)
            uniform_dense_f32(a);
        else
            each(a, visit_uniform);
        break;
    case RL_RAND_NORMAL: fill_normal(a); break;
    case RL_RAND_BERNOULLI: each(a, visit_bernoulli); break;
    case RL_RAND_BERNOULLI_TENSOR: each(a, visit_bernoulli_tensor); break;
    case RL_RAND_RANDINT: each(a, visit_randint); break;
    case RL_RAND_RANDOM: each(a, visit_random); break;
    case RL_RAND_EXPONENTIAL: each(a, visit_exponential); break;
    case RL_RAND_GEOMETRIC: each(a, visit_geometric); break;
    case RL_RAND_CAUCHY: each(a, visit_cauchy); break;
    case RL_RAND_LOG_NORMAL: each(a, visit_log_normal); break;
    case RL_RAND_PERM: fill_perm(a); break;
    case RL_RAND_DROPOUT_MASK: each(a, visit_dropout); break;
    default: return rl_fail(RL_ERR_NOT_IMPLEMENTED, "the CPU has no random distribution number %d", a->dist);
    }
    return RL_OK;
}
