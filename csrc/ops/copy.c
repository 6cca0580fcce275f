/* copy: copies, conversions, clones and what reads a single element.
 *
 * rl_copy_raw is the one way elements get from one tensor to another: converted, broadcast and across devices. Everything recorded here is
 * linear, so its backward is a conversion or a copy again.
 */
#include "common.h"
#include "derivs_shape.h"
#include "factory.h"

#include <string.h>

static rl_status copy_on_device(rl_tensor *dst, rl_tensor *src);

/* More axes than a kernel walks: one copy for each index of the first. */
static rl_status copy_by_slices(rl_tensor *dst, rl_tensor *src)
{
    rl_status st = RL_OK;
    int s0 = src->ndim == dst->ndim;
    int64_t step = s0 && src->shape[0] != 1 ? src->strides[0] : 0;
    for (int64_t i = 0; i < dst->shape[0] && st == RL_OK; i++) {
        rl_tensor *to = NULL, *from = NULL;
        st = rl_tensor_on_storage(dst->storage, dst->version, dst->ndim - 1, dst->shape + 1, dst->strides + 1,
                                  dst->offset + i * dst->strides[0],
                                  (rl_dtype)dst->dtype, &to);
        if (st == RL_OK)
            st = rl_tensor_on_storage(src->storage, src->version, src->ndim - s0, src->shape + s0, src->strides + s0,
                                      src->offset + i * step,
                                      (rl_dtype)src->dtype, &from);
        if (st == RL_OK)
            st = copy_on_device(to, from);
        rl_tensor_release(to);
        rl_tensor_release(from);
    }
    return st;
}

static rl_status copy_on_device(rl_tensor *dst, rl_tensor *src)
{
    rl_plan p;
    rl_tensor *both[2] = {dst, src};
    rl_copy_args a = {.dst_dtype = dst->dtype, .src_dtype = src->dtype, .numel = dst->numel};
    if (rl_tensor_is_contiguous(dst) && rl_tensor_is_contiguous(src) && dst->numel == src->numel) {
        a.ndim = 1;
        a.shape[0] = dst->numel;
        a.dst = rl_tensor_data(dst);
        a.src = rl_tensor_data(src);
        a.dst_strides[0] = rl_tensor_itemsize(dst);
        a.src_strides[0] = rl_tensor_itemsize(src);
        return rl_launch(dst, RL_K_COPY, &a);
    }
    rl_status st = rl_plan_build(&p, both, 2, 1, dst->ndim, dst->shape);
    if (RL_UNLIKELY(st == RL_ERR_NOT_IMPLEMENTED))
        return copy_by_slices(dst, src);
    RL_RETURN(st);
    a.ndim = p.ndim;
    a.dst = p.data[0];
    a.src = p.data[1];
    for (int i = 0; i < p.ndim; i++) {
        a.shape[i] = p.shape[i];
        a.dst_strides[i] = p.strides[0][i];
        a.src_strides[i] = p.strides[1][i];
    }
    return rl_launch(dst, RL_K_COPY, &a);
}

/* Flat bytes between devices: both contiguous, of one dtype. */
static rl_status copy_bytes(rl_tensor *dst, rl_tensor *src)
{
    size_t bytes = (size_t)dst->numel * (size_t)rl_tensor_itemsize(dst);
    rl_device to = rl_tensor_device(dst), from = rl_tensor_device(src);
    if (to.type == RL_DEVICE_CPU)
        return src->storage->backend->to_host(from.index, rl_tensor_data(dst), rl_tensor_data(src), bytes,
                                              src->storage->backend->stream_current(from.index));
    const rl_backend *b = dst->storage->backend;
    if (from.type == RL_DEVICE_CPU)
        return b->to_device(to.index, rl_tensor_data(dst), rl_tensor_data(src), bytes, b->stream_current(to.index));
    return b->copy_peer(to.index, rl_tensor_data(dst), from.index, rl_tensor_data(src), bytes, b->stream_current(to.index));
}

static rl_status copy_across(rl_tensor *dst, rl_tensor *src)
{
    rl_tensor *plain = NULL, *landed = NULL;
    rl_status st;
    bool direct = rl_tensor_is_contiguous(dst) && src->dtype == dst->dtype && rl_tensor_same_shape(dst, src);
    RL_TRY(rl_tensor_empty(src->ndim, src->shape, (rl_dtype)src->dtype, rl_tensor_device(src), &plain));
    RL_TRY(copy_on_device(plain, src));
    if (direct)
        RL_TRY(copy_bytes(dst, plain));
    else {
        RL_TRY(rl_tensor_empty(src->ndim, src->shape, (rl_dtype)src->dtype, rl_tensor_device(dst), &landed));
        RL_TRY(copy_bytes(landed, plain));
        RL_TRY(copy_on_device(dst, landed));
    }
fail:
    rl_tensor_release(plain);
    rl_tensor_release(landed);
    return st;
}

rl_status rl_copy_raw(rl_tensor *dst, rl_tensor *src)
{
    if (dst->storage->read_only)
        return rl_fail(RL_ERR_RUNTIME, "the tensor's memory is read-only");
    if (dst->numel == 0)
        return RL_OK;
    if (dst == src || rl_tensor_overlap(dst, src) == RL_OVERLAP_FULL)
        return RL_OK;
    return rl_device_same(rl_tensor_device(dst), rl_tensor_device(src)) ? copy_on_device(dst, src) : copy_across(dst, src);
}

/* src's shape must broadcast to dst's, dst's stays. */
static rl_status check_expands(const rl_tensor *dst, const rl_tensor *src)
{
    bool ok = src->ndim <= dst->ndim;
    for (int i = 1; ok && i <= src->ndim; i++)
        ok = src->shape[src->ndim - i] == dst->shape[dst->ndim - i] || src->shape[src->ndim - i] == 1;
    if (ok)
        return RL_OK;
    if (src->ndim > dst->ndim)
        return rl_fail(RL_ERR_RUNTIME, "output with shape %s doesn't match the broadcast shape %s", rl_shape_text(dst->ndim, dst->shape),
                       rl_shape_text(src->ndim, src->shape));
    int i = 1;
    while (src->shape[src->ndim - i] == dst->shape[dst->ndim - i] || src->shape[src->ndim - i] == 1)
        i++;
    return rl_fail(RL_ERR_RUNTIME, "The size of tensor a (%lld) must match the size of tensor b (%lld) at non-singleton dimension %d",
                   (long long)dst->shape[dst->ndim - i], (long long)src->shape[src->ndim - i], dst->ndim - i);
}

rl_status rl_copy_(rl_tensor *dst, rl_tensor *src)
{
    rl_status st;
    rl_node *n = NULL;
    rl_tensor *both[2] = {dst, src}, *aside = NULL;
    RL_RETURN(rl_inplace_check(dst, "copy"));
    RL_RETURN(check_expands(dst, src));
    rl_overlap overlap = dst->storage == src->storage ? rl_tensor_overlap(dst, src) : RL_OVERLAP_NONE;
    if (overlap == RL_OVERLAP_PARTIAL)
        return rl_fail(RL_ERR_RUNTIME, "unsupported operation: some elements of the input tensor and the written-to tensor refer to a "
                                       "single memory location. Please clone() the tensor before performing the operation.");
    if (rl_grad_needed(both, 2) && rl_dtype_is_float((rl_dtype)dst->dtype)) {
        RL_TRY(rl_node_new(&rl_class_copy_into, both, 2, 1, 0, &n));
        RL_TRY(rl_node_set_list(n, src->shape, src->ndim));
        n->attrs.i[0] = src->dtype;
        RL_TRY(rl_node_set_out(n, 0, dst));
    }
    if (overlap == RL_OVERLAP_UNKNOWN) {
        RL_TRY(rl_tensor_empty(src->ndim, src->shape, (rl_dtype)src->dtype, rl_tensor_device(src), &aside));
        RL_TRY(copy_on_device(aside, src));
    }
    RL_TRY(rl_copy_raw(dst, aside ? aside : src));
    RL_TRY(rl_inplace_rebase(dst, n, 0));
fail:
    rl_tensor_release(aside);
    rl_node_release(n);
    return st;
}

rl_status rl_op_copy_(rl_call *c, rl_result *r)
{
    rl_tensor *x = c->args[0].t, *src = rl_tensor_retain(c->args[1].t);
    if (src == NULL) /* a number */
        RL_RETURN(rl_tensor_from_scalar(c->args[1].s, (rl_dtype)x->dtype, rl_tensor_device(x), &src));
    rl_status st = rl_copy_(x, src);
    rl_tensor_release(src);
    return rl_give(st, rl_tensor_retain(x), r);
}

/* ---- fresh copies ---- */
static rl_status empty_in_format(const rl_tensor *x, rl_dtype d, rl_device dev, rl_memory_format f, rl_tensor **out)
{
    rl_factory how = {d, dev, f};
    return rl_factory_empty_like(&how, x, out);
}

/* A copy of x with dtype, device and format, recorded as `cls`. */
static rl_status copied(rl_tensor *x, rl_dtype d, rl_device dev, rl_memory_format f, const rl_node_class *cls, rl_tensor **out)
{
    rl_status st;
    rl_tensor *t = NULL;
    rl_node *n;
    RL_TRY(empty_in_format(x, d, dev, f, &t));
    RL_TRY(rl_copy_raw(t, x));
    if (rl_dtype_is_float(d))
        RL_TRY(rl_record(cls, &x, 1, &t, 1, 0, &n));
    if (rl_dtype_is_float(d) && n)
        n->attrs.i[0] = x->dtype;
    *out = t;
    return RL_OK;
fail:
    rl_tensor_release(t);
    return st;
}

rl_status rl_clone(rl_tensor *x, rl_memory_format f, rl_tensor **out)
{
    return copied(x, (rl_dtype)x->dtype, rl_tensor_device(x), f, &rl_class_clone, out);
}

static bool in_format(const rl_tensor *x, rl_memory_format f)
{
    if (f == RL_FORMAT_PRESERVE)
        return true;
    if (f == RL_FORMAT_CONTIGUOUS)
        return rl_tensor_is_contiguous(x);
    return rl_tensor_is_channels_last(x) && x->ndim == (f == RL_FORMAT_CHANNELS_LAST ? 4 : 5);
}

rl_status rl_contiguous(rl_tensor *x, rl_tensor **out)
{
    if (rl_tensor_is_contiguous(x)) {
        *out = rl_tensor_retain(x);
        return RL_OK;
    }
    return rl_clone(x, RL_FORMAT_CONTIGUOUS, out);
}

rl_status rl_to(rl_tensor *x, rl_dtype d, rl_device dev, bool copy, rl_memory_format f, rl_tensor **out)
{
    if (!copy && x->dtype == d && rl_device_same(rl_tensor_device(x), dev) && in_format(x, f)) {
        *out = rl_tensor_retain(x);
        return RL_OK;
    }
    return copied(x, d, dev, f, &rl_class_to_copy, out);
}

rl_status rl_cast(rl_tensor *x, rl_dtype d, rl_tensor **out)
{
    return rl_to(x, d, rl_tensor_device(x), false, RL_FORMAT_PRESERVE, out);
}

static rl_memory_format format_arg(const rl_arg *a, rl_memory_format otherwise)
{
    return a->given ? (rl_memory_format)a->memory_format : otherwise;
}

rl_status rl_op_clone(rl_call *c, rl_result *r)
{
    rl_tensor *t = NULL;
    return rl_give(rl_clone(c->args[0].t, format_arg(&c->args[1], RL_FORMAT_PRESERVE), &t), t, r);
}

rl_status rl_op_contiguous(rl_call *c, rl_result *r)
{
    rl_tensor *x = c->args[0].t, *t = NULL;
    rl_memory_format f = format_arg(&c->args[1], RL_FORMAT_CONTIGUOUS);
    if (f == RL_FORMAT_PRESERVE && !rl_tensor_is_contiguous(x))
        return rl_fail(RL_ERR_RUNTIME, "preserve memory format is unsupported by the contiguous operator");
    if (in_format(x, f))
        return rl_give(RL_OK, rl_tensor_retain(x), r);
    return rl_give(rl_clone(x, f, &t), t, r);
}

/* to(device, dtype, …), to(dtype, …), to(other, …) */
rl_status rl_op_to(rl_call *c, rl_result *r)
{
    rl_tensor *x = c->args[0].t, *t = NULL;
    rl_factory f = {(rl_dtype)x->dtype, rl_tensor_device(x), RL_FORMAT_PRESERVE};
    int at = c->overload == 0 ? 3 : 2; /* of non_blocking */
    if (c->overload == 2) {
        f.dtype = (rl_dtype)c->args[1].t->dtype;
        f.device = rl_tensor_device(c->args[1].t);
    } else {
        const rl_arg *dtype = &c->args[c->overload == 0 ? 2 : 1];
        f.dtype = dtype->given ? dtype->dtype : f.dtype;
        if (c->overload == 0 && c->args[1].given)
            RL_RETURN(rl_device_resolve(c->args[1].device, &f.device));
    }
    f.format = format_arg(&c->args[at + 2], RL_FORMAT_PRESERVE);
    return rl_give(rl_to(x, f.dtype, f.device, c->args[at + 1].given && c->args[at + 1].b, f.format, &t), t, r);
}

rl_status rl_op_type_as(rl_call *c, rl_result *r)
{
    rl_tensor *t = NULL, *other = c->args[1].t;
    return rl_give(rl_to(c->args[0].t, (rl_dtype)other->dtype, rl_tensor_device(other), false, RL_FORMAT_PRESERVE, &t), t, r);
}

#define CONVERSION(name, d)                                                                                                      \
    rl_status rl_op_##name(rl_call *c, rl_result *r)                                                                             \
    {                                                                                                                            \
        rl_tensor *x = c->args[0].t, *t = NULL;                                                                                  \
        return rl_give(rl_to(x, d, rl_tensor_device(x), false, format_arg(&c->args[1], RL_FORMAT_PRESERVE), &t), t, r);          \
    }
CONVERSION(float, RL_F32)
CONVERSION(double, RL_F64)
CONVERSION(half, RL_F16)
CONVERSION(bfloat16, RL_BF16)
CONVERSION(bool, RL_BOOL)
CONVERSION(byte, RL_U8)
CONVERSION(char, RL_I8)
CONVERSION(short, RL_I16)
CONVERSION(int, RL_I32)
CONVERSION(long, RL_I64)

/* cpu(memory_format) */
rl_status rl_op_cpu(rl_call *c, rl_result *r)
{
    rl_tensor *x = c->args[0].t, *t = NULL;
    rl_device cpu = {RL_DEVICE_CPU, -1};
    return rl_give(rl_to(x, (rl_dtype)x->dtype, cpu, false, format_arg(&c->args[1], RL_FORMAT_PRESERVE), &t), t, r);
}

/* ---- fills in place ---- */
static rl_status fill_recorded(rl_tensor *x, rl_tensor *value, const rl_scalar *s, const char *name, const rl_node_class *cls)
{
    rl_status st;
    rl_node *n = NULL;
    rl_scalar item;
    rl_tensor *both[2] = {x, value};
    RL_RETURN(rl_inplace_check_fill(x, name));
    if (value && value->ndim > 0)
        return rl_fail(RL_ERR_RUNTIME, "fill_ only supports 0-dimension value tensor but got tensor with %d dimensions.", value->ndim);
    if (value)
        RL_RETURN(rl_item(value, &item));
    else
        RL_RETURN(rl_scalar_fits(*s, (rl_dtype)x->dtype));
    if (rl_grad_needed(both, 2) && rl_dtype_is_float((rl_dtype)x->dtype)) {
        RL_TRY(rl_node_new(cls, both, value ? 2 : 1, 1, 0, &n));
        RL_TRY(rl_node_set_list(n, x->shape, x->ndim));
        n->attrs.i[0] = value ? value->dtype : x->dtype;
        RL_TRY(rl_node_set_out(n, 0, x));
    }
    RL_TRY(rl_fill_(x, value ? item : *s));
    RL_TRY(rl_inplace_rebase(x, n, 0));
fail:
    rl_node_release(n);
    return st;
}

/* fill_(Tensor value), fill_(Scalar value): a number may arrive in place of the tensor. */
rl_status rl_op_fill_(rl_call *c, rl_result *r)
{
    rl_tensor *x = c->args[0].t;
    rl_status st = fill_recorded(x, c->args[1].t, &c->args[1].s, "fill", c->args[1].t ? &rl_class_fill_tensor : &rl_class_fill);
    return rl_give(st, rl_tensor_retain(x), r);
}

rl_status rl_op_zero_(rl_call *c, rl_result *r)
{
    rl_tensor *x = c->args[0].t;
    rl_scalar zero = rl_scalar_int(0);
    return rl_give(fill_recorded(x, NULL, &zero, "zero", &rl_class_zero), rl_tensor_retain(x), r);
}

rl_status rl_item(rl_tensor *x, rl_scalar *out)
{
    char element[8];
    if (x->numel != 1)
        return rl_fail(RL_ERR_RUNTIME, "a Tensor with %lld elements cannot be converted to Scalar", (long long)x->numel);
    if (rl_tensor_device(x).type == RL_DEVICE_CPU) {
        *out = rl_element_load(rl_tensor_data(x), (rl_dtype)x->dtype);
        return RL_OK;
    }
    const rl_backend *b = x->storage->backend;
    int index = rl_tensor_device(x).index;
    RL_RETURN(b->to_host(index, element, rl_tensor_data(x), (size_t)rl_tensor_itemsize(x), b->stream_current(index)));
    *out = rl_element_load(element, (rl_dtype)x->dtype);
    return RL_OK;
}

/* ---- storage in place: resize_, set_ ---- */
static rl_status check_resizable(rl_tensor *x, const char *op)
{
    if (rl_tensor_requires_grad(x))
        return rl_fail(RL_ERR_RUNTIME, "cannot %s variables that require grad", op);
    return rl_inplace_check(x, op);
}

rl_status rl_tensor_resize(rl_tensor *x, int ndim, const int64_t *shape)
{
    int64_t strides[RL_MAX_NDIM], numel;
    if (ndim > RL_MAX_NDIM)
        return rl_fail(RL_ERR_RUNTIME, "tensors have at most %d dimensions, got %d", RL_MAX_NDIM, ndim);
    RL_RETURN(rl_shape_numel(ndim, shape, &numel));
    RL_RETURN(rl_shape_contiguous_strides(ndim, shape, strides));
    if (numel > (INT64_MAX / 16) - x->offset)
        return rl_fail(RL_ERR_RUNTIME, "Storage size calculation overflowed with sizes=%s", rl_shape_text(ndim, shape));
    size_t bytes = (size_t)(x->offset + numel) * (size_t)rl_tensor_itemsize(x);
    if (numel > 0 && bytes > x->storage->bytes)
        RL_RETURN(rl_storage_resize(x->storage, bytes));
    return rl_tensor_set_geometry(x, ndim, shape, strides, x->offset);
}

rl_status rl_op_resize_(rl_call *c, rl_result *r)
{
    rl_tensor *x = c->args[0].t;
    const rl_arg *size = &c->args[1];
    RL_RETURN(check_resizable(x, "resize"));
    for (int i = 0; i < size->ints.n; i++)
        if (size->ints.v[i] < 0)
            return rl_fail(RL_ERR_RUNTIME, "resize_: sizes must be non-negative, got %s", rl_shape_text(size->ints.n, size->ints.v));
    RL_RETURN(rl_tensor_resize(x, size->ints.n, size->ints.v));
    rl_tensor_bump(x);
    return rl_give(RL_OK, rl_tensor_retain(x), r);
}

rl_status rl_op_resize_as_(rl_call *c, rl_result *r)
{
    rl_tensor *x = c->args[0].t, *like = c->args[1].t;
    RL_RETURN(check_resizable(x, "resize"));
    RL_RETURN(rl_tensor_resize(x, like->ndim, like->shape));
    rl_tensor_bump(x);
    return rl_give(RL_OK, rl_tensor_retain(x), r);
}

rl_status rl_op_detach(rl_call *c, rl_result *r)
{
    rl_tensor *t = NULL;
    return rl_give(rl_detach(c->args[0].t, &t), t, r);
}

/* detach_: x drops its history and becomes a leaf; a view would go on sharing its base's. */
rl_status rl_op_detach_(rl_call *c, rl_result *r)
{
    rl_tensor *x = c->args[0].t;
    if (x->meta && x->meta->base && rl_tensor_requires_grad(x))
        return rl_fail(RL_ERR_RUNTIME, "Can't detach views in-place. Use detach() instead. If you are using DistributedDataParallel (DDP) "
                                       "for training, and gradient_as_bucket_view is set as True, gradients are views of DDP buckets, and "
                                       "hence detach_() cannot be called on these gradients. To fix this error, please refer to the "
                                       "Optimizer.zero_grad() function in torch/optim/optimizer.py as the solution.");
    rl_node *old = x->grad_fn;
    if (x->meta && x->meta->retains_grad)
        rl_tensor_forget_retained(x);
    x->grad_fn = NULL;
    x->output_nr = 0;
    x->flags &= (uint16_t)~RL_TF_REQUIRES_GRAD;
    rl_node_release(old);
    return rl_give(RL_OK, rl_tensor_retain(x), r);
}
