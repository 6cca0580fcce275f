/* nonzero: RL_K_NONZERO on the CPU: counts the elements that are not 0, then writes their coordinates in logical order. NaN is not 0. */
#include "cpu.h"

#include <string.h>

static bool is_set(const char *p, uint8_t dtype)
{
    rl_scalar s = rl_element_load(p, (rl_dtype)dtype);
    return s.kind == RL_CAT_FLOAT ? s.d != 0 : s.i != 0;
}

/* Steps the coordinates and the address to the next element. */
static const char *step(const rl_nonzero_args *a, int64_t *at, const char *p)
{
    for (int d = a->ndim - 1; d >= 0; d--) {
        p += a->strides[d];
        if (++at[d] < a->shape[d])
            return p;
        p -= a->strides[d] * a->shape[d];
        at[d] = 0;
    }
    return p;
}

rl_status rl_cpu_nonzero(const void *args, rl_stream stream)
{
    const rl_nonzero_args *a = args;
    int64_t at[RL_ARG_DIMS] = {0}, count = 0, *out = a->index;
    const char *p = a->in;
    (void)stream;
    for (int64_t i = 0; i < a->numel; i++, p = step(a, at, p)) {
        if (!is_set(p, a->dtype))
            continue;
        count++;
        for (int d = 0; out && d < a->ndim; d++)
            *out++ = at[d];
    }
    if (a->count)
        *a->count = count;
    return RL_OK;
}
