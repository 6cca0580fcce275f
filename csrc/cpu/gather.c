/* gather: RL_K_GATHER and RL_K_SELECT on the CPU: elements and rows by number.
 *
 * Indices are checked in a first pass, before anything is written. Scatters run in index order on one thread, so that equal indices always add in the same order;
 * reading rows is split in fixed blocks. Arithmetic is in the accumulation type of the dtype, with one rounding an addition as PyTorch's.
 */
#include "cpu.h"

#include <string.h>

/* dst = dst (op) src for one element */
static void combine(char *dst, const char *src, uint8_t dtype, int mode)
{
    rl_dtype d = (rl_dtype)dtype;
    if (mode == RL_SCATTER_SET || mode == RL_GATHER_GET) {
        memcpy(dst, src, (size_t)rl_dtype_size(d));
        return;
    }
    rl_scalar a = rl_element_load(dst, d), b = rl_element_load(src, d), r = a;
    bool nan = a.kind == RL_CAT_FLOAT && (a.d != a.d || b.d != b.d);
    switch (mode) {
    case RL_SCATTER_ADD:
    case RL_SCATTER_MEAN:
        if (a.kind == RL_CAT_FLOAT)
            r.d = d == RL_F64 ? a.d + b.d : (double)((float)a.d + (float)b.d);
        else
            r.i = (int64_t)((uint64_t)a.i + (uint64_t)b.i);
        break;
    case RL_SCATTER_PROD:
        if (a.kind == RL_CAT_FLOAT)
            r.d = d == RL_F64 ? a.d * b.d : (double)((float)a.d * (float)b.d);
        else
            r.i = (int64_t)((uint64_t)a.i * (uint64_t)b.i);
        break;
    default: /* NaN wins */
        if (a.kind == RL_CAT_FLOAT)
            r.d = nan ? a.d + b.d : ((mode == RL_SCATTER_MAX) == (b.d > a.d) && a.d != b.d ? b.d : a.d);
        else
            r.i = (mode == RL_SCATTER_MAX) == (b.i > a.i) && a.i != b.i ? b.i : a.i;
    }
    rl_element_store(dst, d, r);
}

static rl_status check_gather(const rl_gather_args *a, int64_t numel)
{
    int64_t at[RL_ARG_DIMS] = {0};
    const char *p = (const char *)a->index;
    for (int64_t i = 0; i < numel; i++) {
        int64_t index = *(const int64_t *)p;
        if (index < 0 || index >= a->dim_size)
            return rl_fail(RL_ERR_RUNTIME, "index %lld is out of bounds for dimension %d with size %lld", (long long)index, a->dim, (long long)a->dim_size);
        for (int d = a->ndim - 1; d >= 0; d--) {
            p += a->index_strides[d];
            if (++at[d] < a->shape[d])
                break;
            p -= a->index_strides[d] * a->shape[d];
            at[d] = 0;
        }
    }
    return RL_OK;
}

rl_status rl_cpu_gather(const void *args, rl_stream stream)
{
    const rl_gather_args *a = args;
    int64_t at[RL_ARG_DIMS] = {0}, numel = 1;
    char scalar[8], *x = a->x, *value = a->value;
    const char *index = (const char *)a->index;
    (void)stream;
    for (int d = 0; d < a->ndim; d++)
        numel *= a->shape[d];
    RL_RETURN(check_gather(a, numel));
    if (a->value_is_scalar)
        rl_element_store(scalar, (rl_dtype)a->dtype, rl_dtype_is_float((rl_dtype)a->dtype) ? rl_scalar_float(a->scalar.f) : rl_scalar_int(a->scalar.i));
    for (int64_t i = 0; i < numel; i++) {
        char *there = x + *(const int64_t *)index * a->x_strides[a->dim], *here = a->value_is_scalar ? scalar : value;
        if (a->mode == RL_GATHER_GET)
            combine(here, there, a->dtype, a->mode);
        else
            combine(there, here, a->dtype, a->mode);
        for (int d = a->ndim - 1; d >= 0; d--) {
            index += a->index_strides[d];
            value += a->value_strides[d];
            x += d == a->dim ? 0 : a->x_strides[d];
            if (++at[d] < a->shape[d])
                break;
            index -= a->index_strides[d] * a->shape[d];
            value -= a->value_strides[d] * a->shape[d];
            x -= d == a->dim ? 0 : a->x_strides[d] * a->shape[d];
            at[d] = 0;
        }
    }
    return RL_OK;
}

/* ---- rows ---- */
static int64_t row_index(const rl_select_args *a, int64_t i)
{
    return a->index_is_32 ? ((const int32_t *)a->index)[i] : ((const int64_t *)a->index)[i];
}

static void add_row(char *x, const char *value, const rl_select_args *a)
{
    if (a->dtype == RL_F32)
        for (int64_t i = 0; i < a->inner; i++)
            ((float *)x)[i] += (float)a->alpha * ((const float *)value)[i];
    else if (a->dtype == RL_F64)
        for (int64_t i = 0; i < a->inner; i++)
            ((double *)x)[i] += a->alpha * ((const double *)value)[i];
    else {
        rl_dtype d = (rl_dtype)a->dtype;
        int size = rl_dtype_size(d);
        for (int64_t i = 0; i < a->inner; i++) {
            rl_scalar u = rl_element_load(x + i * size, d), v = rl_element_load(value + i * size, d);
            if (u.kind == RL_CAT_FLOAT)
                u.d = (double)((float)u.d + (float)a->alpha * (float)v.d);
            else
                u.i = (int64_t)((uint64_t)u.i + (uint64_t)(int64_t)a->alpha * (uint64_t)v.i);
            rl_element_store(x + i * size, d, u);
        }
    }
}

/* Rows [begin, end) of the outer * count pairs. */
static void select_rows(void *context, int64_t begin, int64_t end, int64_t block)
{
    const rl_select_args *a = context;
    int64_t bytes = a->inner * rl_dtype_size((rl_dtype)a->dtype);
    (void)block;
    for (int64_t r = begin; r < end; r++) {
        int64_t o = r / a->count, index = row_index(a, r % a->count);
        if (index == a->skip && a->skip >= 0)
            continue;
        char *x = (char *)a->x + (o * a->size + index) * bytes, *value = (char *)a->value + r * bytes;
        if (a->mode == RL_SELECT_GET)
            memcpy(value, x, (size_t)bytes);
        else if (a->mode == RL_SELECT_SET)
            memcpy(x, value, (size_t)bytes);
        else
            add_row(x, value, a);
    }
}

rl_status rl_cpu_select(const void *args, rl_stream stream)
{
    const rl_select_args *a = args;
    (void)stream;
    for (int64_t i = 0; i < a->count; i++) {
        int64_t index = row_index(a, i);
        if (index < 0 || index >= a->size)
            return rl_fail(RL_ERR_INDEX, "index out of range in self");
    }
    int64_t rows = a->outer * a->count, grain = 32768 / (a->inner > 0 ? a->inner : 1) + 1;
    if (a->inner == 0 || rows == 0)
        return RL_OK;
    if (a->mode == RL_SELECT_GET)
        rl_parallel_for(rows, grain, select_rows, (void *)a);
    else
        select_rows((void *)a, 0, rows, 0);
    return RL_OK;
}
