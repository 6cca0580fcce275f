/* factory: reads the shared options of creating operators. See factory.h. */
#include "factory.h"

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
static rl_status channels_last_strides(const rl_tensor *like, rl_memory_format format, int64_t *strides)
{
    int n = format == RL_FORMAT_CHANNELS_LAST ? 4 : 5;
    if (like->ndim != n)
        return rl_fail(RL_ERR_RUNTIME, "required rank %d tensor to use channels_last%s format", n, n == 4 ? "" : "_3d");
    int64_t s = 1;
    strides[1] = s;
    s *= like->shape[1] > 1 ? like->shape[1] : 1;
    for (int i = n - 1; i >= 2; i--) {
        strides[i] = s;
        s *= like->shape[i] > 1 ? like->shape[i] : 1;
    }
    strides[0] = s;
    return RL_OK;
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
    RL_RETURN(channels_last_strides(like, f->format, strides));
    return rl_tensor_empty_strided(like->ndim, like->shape, strides, f->dtype, f->device, out);
}
