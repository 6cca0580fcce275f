/* index: RL_K_INDEX on the CPU: advanced indexing, read, written and added.
 *
 * Indices are checked in a first pass, before anything is written. Writing and adding go in logical order on one thread: of equal indices the last one wins, and sums
 * are the same in every run. The innermost plain run is copied at once.
 */
#include "cpu.h"

#include <string.h>

typedef struct cursor {
    int64_t at[RL_ARG_DIMS];
    int64_t x, value, index[RL_ARG_DIMS]; /* byte offsets */
} cursor;

static void advance(const rl_index_args *a, cursor *c, int from)
{
    for (int d = from; d >= 0; d--) {
        c->x += a->x_strides[d];
        c->value += a->value_strides[d];
        for (int k = 0; k < a->nindex; k++)
            c->index[k] += a->index_strides[k][d];
        if (++c->at[d] < a->shape[d])
            return;
        c->x -= a->x_strides[d] * a->shape[d];
        c->value -= a->value_strides[d] * a->shape[d];
        for (int k = 0; k < a->nindex; k++)
            c->index[k] -= a->index_strides[k][d] * a->shape[d];
        c->at[d] = 0;
    }
}

static int64_t index_value(const rl_index_args *a, const cursor *c, int k)
{
    return *(const int64_t *)((const char *)a->index[k] + c->index[k]);
}

/* Where the indices of this place lead, from x. */
static int64_t reach(const rl_index_args *a, const cursor *c)
{
    int64_t offset = c->x;
    for (int k = 0; k < a->nindex; k++) {
        int64_t i = index_value(a, c, k);
        offset += (i < 0 ? i + a->index_size[k] : i) * a->index_x_stride[k];
    }
    return offset;
}

static rl_status check(const rl_index_args *a, int64_t places, int last)
{
    cursor c = {{0}, 0, 0, {0}};
    for (int64_t i = 0; i < places; i++, advance(a, &c, last))
        for (int k = 0; k < a->nindex; k++) {
            int64_t v = index_value(a, &c, k);
            if (v < -a->index_size[k] || v >= a->index_size[k])
                return rl_fail(RL_ERR_INDEX, "index %lld is out of bounds for dimension %d with size %lld", (long long)v, a->index_dim[k],
                               (long long)a->index_size[k]);
        }
    return RL_OK;
}

static void add(char *x, const char *value, rl_dtype d)
{
    if (d == RL_F32)
        *(float *)x += *(const float *)value;
    else if (d == RL_F64)
        *(double *)x += *(const double *)value;
    else {
        rl_scalar a = rl_element_load(x, d), b = rl_element_load(value, d);
        if (a.kind == RL_CAT_FLOAT)
            a.d = (double)((float)a.d + (float)b.d);
        else if (a.kind == RL_CAT_BOOL)
            a.i |= b.i;
        else
            a.i = (int64_t)((uint64_t)a.i + (uint64_t)b.i);
        rl_element_store(x, d, a);
    }
}

/* The last dimension when no index runs along it: one run of n elements a place. */
static int64_t plain_run(const rl_index_args *a)
{
    int d = a->ndim - 1;
    for (int k = 0; d >= 0 && k < a->nindex; k++)
        if (a->index_strides[k][d] != 0 && a->shape[d] > 1)
            return 0;
    return d >= 0 ? a->shape[d] : 0;
}

static void run_place(const rl_index_args *a, char *x, char *value, int64_t n, int64_t xs, int64_t vs)
{
    rl_dtype d = (rl_dtype)a->dtype;
    int size = rl_dtype_size(d);
    if (a->mode != RL_INDEX_ADD && xs == size && vs == size) {
        if (a->mode == RL_INDEX_GET)
            memcpy(value, x, (size_t)(n * size));
        else
            memcpy(x, value, (size_t)(n * size));
        return;
    }
    for (int64_t i = 0; i < n; i++, x += xs, value += vs)
        if (a->mode == RL_INDEX_GET)
            memcpy(value, x, (size_t)size);
        else if (a->mode == RL_INDEX_PUT)
            memcpy(x, value, (size_t)size);
        else
            add(x, value, d);
}

rl_status rl_cpu_index(const void *args, rl_stream stream)
{
    const rl_index_args *a = args;
    int64_t run = plain_run(a), places = run > 0 ? a->numel / run : a->numel;
    int last = run > 0 ? a->ndim - 2 : a->ndim - 1, inner = a->ndim - 1;
    cursor c = {{0}, 0, 0, {0}};
    (void)stream;
    if (a->numel == 0)
        return RL_OK;
    RL_RETURN(check(a, places, last));
    for (int64_t i = 0; i < places; i++, advance(a, &c, last))
        run_place(a, (char *)a->x + reach(a, &c), (char *)a->value + c.value, run > 0 ? run : 1, run > 0 ? a->x_strides[inner] : 0, run > 0 ? a->value_strides[inner] : 0);
    return RL_OK;
}
