/* fill.c: RL_K_FILL, RL_K_RANGE and RL_K_TRI on the CPU: tensors from a number, from a rule, and triangles of matrices.
 *
 * A value is converted once and repeated. A range computes each element from its index (never by adding up), so blocks are
 * independent; linspace goes from both ends, which makes it symmetric, as PyTorch does.
 */
#include "walk.h"

#include <math.h>

enum { GRAIN = 65536 };

/* ---- fill ---- */

typedef struct fill_job {
    const rl_fill_args *a;
    int size;
    bool dense;
    uint64_t bits; /* the element */
} fill_job;

#define FILL_LOOP(T)                      \
    {                                     \
        T v;                              \
        memcpy(&v, &bits, sizeof v);      \
        if (stride == (int64_t)sizeof v)  \
            for (int64_t i = 0; i < n; i++) \
                ((T *)d)[i] = v;          \
        else                              \
            for (int64_t i = 0; i < n; i++) \
                *(T *)(d + i * stride) = v; \
        break;                            \
    }

static void fill_row(char *d, int64_t stride, int64_t n, int size, uint64_t bits)
{
    switch (size) {
    case 1: FILL_LOOP(uint8_t)
    case 2: FILL_LOOP(uint16_t)
    case 4: FILL_LOOP(uint32_t)
    default: FILL_LOOP(uint64_t)
    }
}

static void fill_range(void *context, int64_t begin, int64_t end, int64_t block)
{
    const fill_job *j = context;
    const rl_fill_args *a = j->a;
    walk w;
    if (j->dense) {
        fill_row((char *)a->dst + begin * j->size, j->size, end - begin, j->size, j->bits);
        return;
    }
    walk_start(&w, a->ndim, a->shape, begin);
    for (int64_t at = begin; at < end;) {
        int64_t n = walk_left(&w) < end - at ? walk_left(&w) : end - at;
        fill_row((char *)a->dst + walk_offset(&w, a->strides), a->strides[0], n, j->size, j->bits);
        walk_advance(&w, n);
        at += n;
    }
}

rl_status RL_LEVEL_NAME(rl_kernel_fill)(const void *args, rl_stream stream)
{
    const rl_fill_args *a = args;
    rl_dtype d = (rl_dtype)a->dtype;
    fill_job j = {.a = a, .size = rl_dtype_size(d)};
    if (a->numel == 0)
        return RL_OK;
    if (a->is_float)
        RL_LEVEL_NAME(rl_convert_store)(RL_F64, d)(&j.bits, &a->value.f, j.size, 1);
    else
        RL_LEVEL_NAME(rl_convert_store)(RL_I64, d)(&j.bits, &a->value.i, j.size, 1);
    j.dense = walk_is_dense(a->ndim, a->shape, a->strides, j.size);
    if (a->numel <= GRAIN)
        fill_range(&j, 0, a->numel, 0);
    else
        rl_parallel_for(a->numel, GRAIN, fill_range, &j);
    return RL_OK;
}

/* ---- arange, linspace ---- */

enum { RANGE_BLOCK = 512 };

/* float32 and below step in float32 for linspace; arange computes in double for every float. */
static double range_float(const rl_range_args *a, int64_t i)
{
    if (!a->linspace)
        return a->start.f + a->step.f * (double)i;
    if (a->dtype != RL_F64) {
        float start = (float)a->start.f, end = (float)a->end.f, step = a->n > 1 ? (end - start) / (float)(a->n - 1) : 0;
        return i < a->n / 2 ? start + step * (float)i : end - step * (float)(a->n - 1 - i);
    }
    return i < a->n / 2 ? a->start.f + a->step.f * (double)i : a->end.f - a->step.f * (double)(a->n - 1 - i);
}

static void range_range(void *context, int64_t begin, int64_t end, int64_t block)
{
    const rl_range_args *a = context;
    int size = rl_dtype_size((rl_dtype)a->dtype);
    rl_convert_fn store = RL_LEVEL_NAME(rl_convert_store)(a->is_float ? RL_F64 : RL_I64, (rl_dtype)a->dtype);
    rl_number values[RANGE_BLOCK];
    for (int64_t at = begin; at < end; at += RANGE_BLOCK) {
        int64_t n = end - at < RANGE_BLOCK ? end - at : RANGE_BLOCK;
        for (int64_t i = 0; i < n; i++)
            if (a->is_float)
                values[i].f = range_float(a, at + i);
            else
                values[i].i = (int64_t)((uint64_t)a->start.i + (uint64_t)a->step.i * (uint64_t)(at + i));
        store((char *)a->dst + at * size, values, size, n);
    }
}

rl_status RL_LEVEL_NAME(rl_kernel_range)(const void *args, rl_stream stream)
{
    const rl_range_args *a = args;
    rl_range_args copy = *a;
    if (a->n <= GRAIN)
        range_range(&copy, 0, a->n, 0);
    else
        rl_parallel_for(a->n, GRAIN, range_range, &copy);
    return RL_OK;
}

/* ---- tril, triu ---- */

static void tri_rows(void *context, int64_t begin, int64_t end, int64_t block)
{
    const rl_tri_args *a = context;
    int64_t size = a->itemsize;
    for (int64_t r = begin; r < end; r++) {
        int64_t cut = r % a->rows + a->diagonal + (a->upper ? 0 : 1); /* the first column on the right side */
        cut = cut < 0 ? 0 : cut > a->cols ? a->cols : cut;
        char *d = (char *)a->dst + r * a->cols * size;
        const char *s = (const char *)a->src + r * a->cols * size;
        int64_t left = a->upper ? 0 : cut, right = a->upper ? a->cols - cut : 0;
        if (left && d != s)
            memcpy(d, s, (size_t)(left * size));
        if (right && d != s)
            memcpy(d + cut * size, s + cut * size, (size_t)(right * size));
        if (a->upper)
            memset(d, 0, (size_t)(cut * size));
        else
            memset(d + cut * size, 0, (size_t)((a->cols - cut) * size));
    }
}

rl_status RL_LEVEL_NAME(rl_kernel_tri)(const void *args, rl_stream stream)
{
    rl_tri_args a = *(const rl_tri_args *)args;
    int64_t rows = a.batch * a.rows, grain = a.cols ? 1 + GRAIN / a.cols : 1;
    if (rows == 0 || a.cols == 0)
        return RL_OK;
    rl_parallel_for(rows, grain, tri_rows, &a);
    return RL_OK;
}
