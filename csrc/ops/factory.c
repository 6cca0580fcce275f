/* factory: reads the shared options of creating operators. See factory.h. */
#include "factory.h"

#include <math.h>

static rl_device default_device(void)
{
    const rl_state *s = rl_state_get();
    return s->has_default_device ? s->default_device : (rl_device){RL_DEVICE_CPU, -1};
}

rl_status rl_device_resolve(rl_device d, rl_device *out)
{
    const rl_backend *b = rl_backend_get((rl_device_type)d.type);
    if (b == NULL)
        return RL_ERR_RUNTIME;
    *out = d;
    if (d.type == RL_DEVICE_CPU)
        out->index = -1;
    else if (d.index < 0)
        out->index = (int8_t)b->device_current();
    return RL_OK;
}

rl_status rl_factory_options(rl_factory *f, const rl_call *c, int at, rl_dtype dtype)
{
    const rl_arg *a = c->args + at;
    if (a[0].given && c->nout > 0 && c->out[0]->dtype != a[0].dtype)
        return rl_fail(RL_ERR_RUNTIME, "dtype %s does not match dtype of out parameter (%s)", rl_dtype_table[a[0].dtype].scalar_type,
                       rl_dtype_table[c->out[0]->dtype].scalar_type);
    f->dtype = a[0].given ? a[0].dtype : c->nout > 0 ? (rl_dtype)c->out[0]->dtype : dtype;
    f->device = a[2].given ? a[2].device : c->nout > 0 ? rl_tensor_device(c->out[0]) : default_device();
    f->format = RL_FORMAT_CONTIGUOUS;
    return rl_device_resolve(f->device, &f->device);
}

rl_status rl_factory_like(rl_factory *f, const rl_call *c, int at, const rl_tensor *like)
{
    const rl_arg *a = c->args + at;
    f->dtype = a[0].given ? a[0].dtype : (rl_dtype)like->dtype;
    f->device = a[2].given ? a[2].device : rl_tensor_device(like);
    f->format = at + 4 < c->nargs && a[4].given ? (rl_memory_format)a[4].memory_format : RL_FORMAT_PRESERVE;
    return rl_device_resolve(f->device, &f->device);
}

/* Strides of a channels-last tensor: N, then the space, channels innermost. */
static rl_status channels_last_strides(int ndim, const int64_t *shape, rl_memory_format format, int64_t *strides)
{
    int n = format == RL_FORMAT_CHANNELS_LAST ? 4 : 5;
    if (ndim != n)
        return rl_fail(RL_ERR_RUNTIME, "required rank %d tensor to use channels_last%s format", n, n == 4 ? "" : "_3d");
    int64_t s = 1;
    strides[1] = s;
    s *= shape[1] > 1 ? shape[1] : 1;
    for (int i = n - 1; i >= 2; i--) {
        strides[i] = s;
        s *= shape[i] > 1 ? shape[i] : 1;
    }
    strides[0] = s;
    return RL_OK;
}

rl_status rl_factory_empty(const rl_factory *f, int ndim, const int64_t *shape, rl_tensor **out)
{
    int64_t strides[RL_MAX_NDIM];
    if (f->format == RL_FORMAT_CONTIGUOUS)
        return rl_tensor_empty(ndim, shape, f->dtype, f->device, out);
    if (f->format == RL_FORMAT_PRESERVE)
        return rl_fail(RL_ERR_RUNTIME, "unsupported memory format Preserve");
    RL_RETURN(channels_last_strides(ndim, shape, f->format, strides));
    return rl_tensor_empty_strided(ndim, shape, strides, f->dtype, f->device, out);
}

/* The largest magnitude below which a double converts: the limit itself is outside for integers. */
static bool float_fits(double v, rl_dtype d)
{
    static const double largest[RL_DTYPE_COUNT] = {[RL_F16] = 65504.0, [RL_BF16] = 0x1.fep127, [RL_F32] = 0x1.fffffep127,
                                                   [RL_F64] = 0x1.fffffffffffffp1023};
    if (rl_dtype_is_float(d))
        return !isfinite(v) || fabs(v) <= largest[d];
    int bits = 8 * rl_dtype_size(d) - (rl_dtype_table[d].is_signed ? 1 : 0);
    double v0 = trunc(v), top = ldexp(1.0, bits);
    return v0 < top && v0 >= -top;
}

rl_status rl_scalar_fits(rl_scalar s, rl_dtype d)
{
    static const char *const type[RL_DTYPE_COUNT] = {"bool", "uint8_t", "int8_t", "int16_t", "int", "int64_t", "c10::Half", "c10::BFloat16",
                                                     "float", "double"};
    bool fits = true;
    if (d == RL_BOOL || s.kind == RL_CAT_BOOL)
        return RL_OK;
    if (s.kind == RL_CAT_FLOAT || rl_dtype_is_float(d))
        fits = float_fits(rl_scalar_to_double(s), d);
    else if (d == RL_U8)
        fits = s.i >= -255 && s.i <= 255;
    else if (d != RL_I64)
        fits = s.i >= -((int64_t)1 << (8 * rl_dtype_size(d) - 1)) && s.i < (int64_t)1 << (8 * rl_dtype_size(d) - 1);
    return fits ? RL_OK : rl_fail(RL_ERR_RUNTIME, "value cannot be converted to type %s without overflow", type[d]);
}

rl_status rl_factory_empty_like(const rl_factory *f, const rl_tensor *like, rl_tensor **out)
{
    int64_t strides[RL_MAX_NDIM];
    bool same_device = rl_device_same(f->device, rl_tensor_device(like));
    if (f->format == RL_FORMAT_CONTIGUOUS)
        return rl_tensor_empty(like->ndim, like->shape, f->dtype, f->device, out);
    if (f->format == RL_FORMAT_PRESERVE) {
        if (same_device)
            return rl_tensor_empty_like(like, f->dtype, out);
        if (rl_tensor_is_dense(like))
            return rl_tensor_empty_strided(like->ndim, like->shape, like->strides, f->dtype, f->device, out);
        return rl_tensor_empty(like->ndim, like->shape, f->dtype, f->device, out);
    }
    RL_RETURN(channels_last_strides(like->ndim, like->shape, f->format, strides));
    return rl_tensor_empty_strided(like->ndim, like->shape, strides, f->dtype, f->device, out);
}
