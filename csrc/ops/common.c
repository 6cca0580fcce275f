/* common.c: see common.h. */
#include "common.h"

static const char *const kernel_names[] = {
#define X(name, args) #name,
    RL_KERNEL_FAMILIES(X)
#undef X
};

/* Long enough (50 us and more) that other Python threads should run meanwhile; a hand-over to a busy thread costs up to 5 ms, so no earlier. */
static bool is_long(const rl_tensor *on, rl_kernel k, const void *args)
{
    if (k == RL_K_GEMM) {
        const rl_gemm_args *g = args;
        return (double)g->m * (double)g->n * (double)g->k * (double)g->batch > 4e6;
    }
    return on->numel > 1 << 17;
}

rl_status rl_launch(const rl_tensor *on, rl_kernel k, const void *args)
{
    const rl_backend *be = on->storage->backend;
    if (RL_UNLIKELY(!be->kernels[k]))
        return rl_fail(RL_ERR_NOT_IMPLEMENTED, "the %s backend has no %s kernel", be->name, kernel_names[k]);
    rl_stream stream = be->type == RL_DEVICE_CPU ? NULL : be->stream_current(rl_tensor_device(on).index);
    if (RL_LIKELY(!is_long(on, k, args) || rl_py.leave == NULL))
        return be->kernels[k](args, stream);
    void *left = rl_py.leave();
    rl_status st = be->kernels[k](args, stream);
    rl_py.enter(left);
    return st;
}

rl_status rl_record(const rl_node_class *cls, rl_tensor *const *in, int nin, rl_tensor *const *outs, int nout, int nsaved, rl_node **node)
{
    rl_node *n = NULL;
    rl_status st = RL_OK;
    *node = NULL;
    if (RL_LIKELY(!rl_grad_needed(in, nin)))
        return RL_OK;
    RL_TRY(rl_node_new(cls, in, nin, nout, nsaved, &n));
    for (int i = 0; i < nout; i++)
        RL_TRY(rl_node_attach(n, i, outs[i]));
    *node = n;
fail:
    rl_node_release(n);
    return st;
}

const char *rl_cpp_type_text(rl_dtype d)
{
    static const char *const names[RL_DTYPE_COUNT] = {"bool", "unsigned char", "signed char", "short int", "int", "long int", "c10::Half",
                                                      "c10::BFloat16", "float", "double"};
    return names[d];
}

rl_status rl_same_device(rl_tensor *const *v, int n, const char *op)
{
    const rl_tensor *first = NULL;
    for (int i = 0; i < n; i++) {
        if (!v[i])
            continue;
        if (!first)
            first = v[i];
        else if (!rl_device_same(rl_tensor_device(first), rl_tensor_device(v[i])))
            return rl_fail(RL_ERR_RUNTIME, "Expected all tensors to be on the same device, but found at least two devices, %s and %s! "
                                           "(when checking "
                           "arguments of %s)", rl_device_text(rl_tensor_device(first)), rl_device_text(rl_tensor_device(v[i])), op);
    }
    return RL_OK;
}

rl_status rl_axis_split_of(const rl_tensor *x, int64_t dim, rl_axis_split *s)
{
    RL_RETURN(rl_axis_normalize(dim, x->ndim, &s->axis));
    s->outer = s->inner = 1;
    s->n = x->ndim ? x->shape[s->axis] : 1;
    for (int d = 0; d < x->ndim; d++) {
        if (d < s->axis)
            s->outer *= x->shape[d];
        else if (d > s->axis)
            s->inner *= x->shape[d];
    }
    return RL_OK;
}

rl_status rl_plain(rl_tensor *x, rl_dtype d, rl_tensor **out)
{
    bool same = d == RL_DTYPE_NONE || x->dtype == d, grad;
    rl_tensor *cast = NULL;
    rl_status st = RL_OK;
    if (same && rl_tensor_is_contiguous(x)) {
        *out = rl_tensor_retain(x);
        return RL_OK;
    }
    grad = rl_grad_off();
    if (!same)
        RL_TRY(rl_cast(x, d, &cast));
    RL_TRY(rl_contiguous(same ? x : cast, out));
fail:
    rl_grad_restore(grad);
    rl_tensor_release(cast);
    return st;
}

int rl_reduced_shape(const rl_tensor *x, uint64_t mask, bool keepdim, int64_t *shape)
{
    int n = 0;
    for (int d = 0; d < x->ndim; d++) {
        if (!(mask >> d & 1))
            shape[n++] = x->shape[d];
        else if (keepdim)
            shape[n++] = 1;
    }
    return n;
}
