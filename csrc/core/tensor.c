/* tensor: making, changing and freeing tensors. See tensor.h.
 *
 * Invariant: RL_TF_CONTIGUOUS and numel always agree with shape and strides, and every reachable element lies inside the storage: set_shape
 * is the one place that writes geometry, and it checks before it changes anything.
 */
#include "tensor.h"
#include "alloc.h"
#include "graph.h"
#include "plan.h"
#include "state.h"

#include <string.h>

rl_py_hooks rl_py;

static rl_tensor *tensor_new(void)
{
    rl_tensor *t = rl_pool_alloc(sizeof *t);
    if (RL_UNLIKELY(t == NULL))
        return NULL;
    memset(t, 0, offsetof(rl_tensor, dims));
    atomic_init(&t->refs, 1);
    return t;
}

static size_t heap_dims_bytes(int ndim)
{
    return (size_t)ndim * 2 * sizeof(int64_t);
}

/* Room for ndim sizes and strides; the old ones are dropped only when the new are there. */
static rl_status reserve_dims(rl_tensor *t, int ndim)
{
    int64_t *block = t->dims;
    if (RL_UNLIKELY(ndim > RL_MAX_NDIM))
        return rl_fail(RL_ERR_RUNTIME, "tensors have at most %d dimensions, got %d", RL_MAX_NDIM, ndim);
    if (ndim > RL_INLINE_DIMS && (block = rl_pool_alloc(heap_dims_bytes(ndim))) == NULL)
        return RL_ERR_MEMORY;
    if (t->flags & RL_TF_HEAP_DIMS)
        rl_pool_free(t->shape, heap_dims_bytes(t->ndim));
    t->flags = (uint16_t)(ndim > RL_INLINE_DIMS ? t->flags | RL_TF_HEAP_DIMS : t->flags & ~RL_TF_HEAP_DIMS);
    t->shape = block;
    t->strides = block + (ndim > RL_INLINE_DIMS ? ndim : RL_INLINE_DIMS);
    t->ndim = (uint8_t)ndim;
    return RL_OK;
}

static bool strides_contiguous(int ndim, const int64_t *shape, const int64_t *strides, int64_t numel)
{
    int64_t expected = 1;
    if (numel == 0)
        return true;
    for (int i = ndim - 1; i >= 0; i--) {
        if (shape[i] == 1)
            continue;
        if (strides[i] != expected)
            return false;
        expected *= shape[i];
    }
    return true;
}

/* Elements of storage that a geometry needs, from its start; 0 when empty. Negative strides are refused. */
static rl_status reach_of(int ndim, const int64_t *shape, const int64_t *strides, int64_t numel, int64_t offset, int64_t *out)
{
    int64_t last = offset, step;
    if (offset < 0)
        return rl_fail(RL_ERR_RUNTIME, "Tensor: invalid storage offset %lld", (long long)offset);
    for (int i = 0; i < ndim; i++) {
        if (strides[i] < 0)
            return rl_fail(RL_ERR_RUNTIME, "as_strided: Negative strides are not supported at the moment, got strides: %s",
                           rl_shape_text(ndim, strides));
        if (numel == 0)
            continue;
        if (__builtin_mul_overflow(shape[i] - 1, strides[i], &step) || __builtin_add_overflow(last, step, &last))
            return rl_fail(RL_ERR_RUNTIME, "Storage size calculation overflowed with sizes=%s and strides=%s", rl_shape_text(ndim, shape),
                           rl_shape_text(ndim, strides));
    }
    if (numel == 0)
        last = 0;
    else if (__builtin_add_overflow(last, 1, &last))
        return rl_fail(RL_ERR_RUNTIME, "Storage size calculation overflowed with sizes=%s", rl_shape_text(ndim, shape));
    *out = last;
    return RL_OK;
}

static rl_status bytes_of(int64_t elements, rl_dtype dtype, int ndim, const int64_t *shape, size_t *out)
{
    int64_t bytes;
    if (__builtin_mul_overflow(elements, (int64_t)rl_dtype_size(dtype), &bytes))
        return rl_fail(RL_ERR_RUNTIME, "Storage size calculation overflowed with sizes=%s", rl_shape_text(ndim, shape));
    *out = (size_t)bytes;
    return RL_OK;
}

static rl_status check_span(const rl_storage *s, int ndim, const int64_t *shape, const int64_t *strides, int64_t offset, rl_dtype dtype,
                            int64_t *numel)
{
    int64_t reach;
    size_t bytes = 0;
    RL_RETURN(rl_shape_numel(ndim, shape, numel));
    RL_RETURN(reach_of(ndim, shape, strides, *numel, offset, &reach));
    RL_RETURN(bytes_of(reach, dtype, ndim, shape, &bytes));
    if (RL_UNLIKELY(bytes > s->bytes))
        return rl_fail(RL_ERR_RUNTIME,
                       "setStorage: sizes %s, strides %s, storage offset %lld, and itemsize %d requiring a storage size of %zu are out of "
                       "bounds for storage of size %zu",
                       rl_shape_text(ndim, shape), rl_shape_text(ndim, strides), (long long)offset, rl_dtype_size(dtype), bytes, s->bytes);
    return RL_OK;
}

/* A loop: the lists are short, and may be NULL when they are empty. */
static void copy_dims(int64_t *to, const int64_t *from, int n)
{
    for (int i = 0; i < n; i++)
        to[i] = from[i];
}

/* The one writer of geometry. shape and strides may point into t's own. */
static rl_status set_shape(rl_tensor *t, int ndim, const int64_t *shape, const int64_t *strides, int64_t offset, int64_t numel)
{
    int64_t copy[2 * RL_MAX_NDIM];
    if (RL_LIKELY(ndim <= RL_INLINE_DIMS && !(t->flags & RL_TF_HEAP_DIMS))) {
        t->shape = t->dims;
        t->strides = t->dims + RL_INLINE_DIMS;
        t->ndim = (uint8_t)ndim;
        copy_dims(t->shape, shape, ndim);
        copy_dims(t->strides, strides, ndim);
    } else {
        copy_dims(copy, shape, ndim);
        copy_dims(copy + ndim, strides, ndim);
        RL_RETURN(reserve_dims(t, ndim));
        copy_dims(t->shape, copy, ndim);
        copy_dims(t->strides, copy + ndim, ndim);
    }
    t->offset = offset;
    t->numel = numel;
    bool contiguous = strides_contiguous(ndim, t->shape, t->strides, numel);
    t->flags = (uint16_t)(contiguous ? t->flags | RL_TF_CONTIGUOUS : t->flags & ~RL_TF_CONTIGUOUS);
    return RL_OK;
}

/* Version or inference flag of a fresh tensor. */
static rl_status give_version(rl_tensor *t, rl_version *shared)
{
    if (shared)
        t->version = rl_version_retain(shared);
    else if (rl_state_get()->inference_mode)
        t->flags |= RL_TF_INFERENCE;
    else if ((t->version = rl_version_new()) == NULL)
        return RL_ERR_MEMORY;
    return RL_OK;
}

/* Fast path: at most RL_INLINE_DIMS dimensions written straight into the fresh tensor. */
static rl_status set_contiguous(rl_tensor *t, int ndim, const int64_t *shape)
{
    int64_t numel = 1, stride = 1;
    t->shape = t->dims;
    t->strides = t->dims + RL_INLINE_DIMS;
    t->ndim = (uint8_t)ndim;
    bool bad = false;
    for (int i = ndim - 1; i >= 0; i--) {
        t->shape[i] = shape[i];
        t->strides[i] = stride;
        bad |= shape[i] < 0 || __builtin_mul_overflow(numel, shape[i], &numel);
        bad |= __builtin_mul_overflow(stride, shape[i] > 1 ? shape[i] : 1, &stride);
    }
    if (RL_UNLIKELY(bad)) {
        RL_RETURN(rl_shape_numel(ndim, shape, &numel));
        RL_RETURN(rl_shape_contiguous_strides(ndim, shape, t->strides));
    }
    t->numel = numel;
    t->flags |= RL_TF_CONTIGUOUS;
    return RL_OK;
}

rl_status rl_tensor_empty(int ndim, const int64_t *shape, rl_dtype dtype, rl_device device, rl_tensor **out)
{
    rl_status st;
    size_t bytes = 0;
    rl_tensor *t = tensor_new();
    if (RL_UNLIKELY(t == NULL))
        return RL_ERR_MEMORY;
    t->dtype = (uint8_t)dtype;
    if (RL_LIKELY(ndim <= RL_INLINE_DIMS)) {
        RL_TRY(set_contiguous(t, ndim, shape));
    } else {
        int64_t strides[RL_MAX_NDIM], numel;
        if (ndim > RL_MAX_NDIM)
            RL_FAIL(RL_ERR_RUNTIME, "tensors have at most %d dimensions, got %d", RL_MAX_NDIM, ndim);
        RL_TRY(rl_shape_numel(ndim, shape, &numel));
        RL_TRY(rl_shape_contiguous_strides(ndim, shape, strides));
        RL_TRY(set_shape(t, ndim, shape, strides, 0, numel));
    }
    RL_TRY(bytes_of(t->numel, dtype, ndim, shape, &bytes));
    RL_TRY(rl_storage_new(device, bytes, &t->storage));
    RL_TRY(give_version(t, NULL));
    *out = t;
    return RL_OK;
fail:
    rl_tensor_release(t);
    return st;
}

rl_status rl_tensor_empty_strided(int ndim, const int64_t *shape, const int64_t *strides, rl_dtype dtype, rl_device device, rl_tensor **out)
{
    int64_t numel, reach;
    size_t bytes = 0;
    rl_storage *storage;
    if (ndim > RL_MAX_NDIM)
        return rl_fail(RL_ERR_RUNTIME, "tensors have at most %d dimensions, got %d", RL_MAX_NDIM, ndim);
    RL_RETURN(rl_shape_numel(ndim, shape, &numel));
    RL_RETURN(reach_of(ndim, shape, strides, numel, 0, &reach));
    RL_RETURN(bytes_of(reach, dtype, ndim, shape, &bytes));
    RL_RETURN(rl_storage_new(device, bytes, &storage));
    rl_status st = rl_tensor_on_storage(storage, NULL, ndim, shape, strides, 0, dtype, out);
    rl_storage_release(storage);
    return st;
}

rl_status rl_tensor_empty_like(const rl_tensor *like, rl_dtype dtype, rl_tensor **out)
{
    rl_tensor *one = (rl_tensor *)like;
    if (rl_tensor_is_contiguous(like) && like->ndim <= RL_INLINE_DIMS) {
        RL_RETURN(rl_tensor_empty(like->ndim, like->shape, dtype, rl_tensor_device(like), out));
        memcpy((*out)->strides, like->strides, (size_t)like->ndim * sizeof *like->strides); /* those of axes of size 1 may differ */
        return RL_OK;
    }
    if (rl_tensor_is_dense(like))
        return rl_tensor_empty_strided(like->ndim, like->shape, like->strides, dtype, rl_tensor_device(like), out);
    return rl_plan_output(&one, 1, like->ndim, like->shape, dtype, rl_tensor_device(like), out);
}

rl_status rl_tensor_on_storage(rl_storage *storage, rl_version *version, int ndim, const int64_t *shape, const int64_t *strides,
                               int64_t offset, rl_dtype dtype, rl_tensor **out)
{
    rl_status st;
    int64_t numel;
    rl_tensor *t = NULL;
    if (ndim > RL_MAX_NDIM)
        return rl_fail(RL_ERR_RUNTIME, "tensors have at most %d dimensions, got %d", RL_MAX_NDIM, ndim);
    RL_RETURN(check_span(storage, ndim, shape, strides, offset, dtype, &numel));
    if ((t = tensor_new()) == NULL)
        return RL_ERR_MEMORY;
    t->dtype = (uint8_t)dtype;
    RL_TRY(set_shape(t, ndim, shape, strides, offset, numel));
    RL_TRY(give_version(t, version));
    t->storage = rl_storage_retain(storage);
    *out = t;
    return RL_OK;
fail:
    rl_tensor_release(t);
    return st;
}

rl_status rl_tensor_alias(const rl_tensor *t, rl_tensor **out)
{
    rl_status st = rl_tensor_on_storage(t->storage, t->version, t->ndim, t->shape, t->strides, t->offset, (rl_dtype)t->dtype, out);
    if (st == RL_OK)
        (*out)->flags |= t->flags & RL_TF_INFERENCE;
    return st;
}

rl_status rl_tensor_from_scalar(rl_scalar value, rl_dtype dtype, rl_device device, rl_tensor **out)
{
    rl_tensor *t;
    char element[8];
    RL_RETURN(rl_tensor_empty(0, NULL, dtype, device, &t));
    rl_element_store(element, dtype, value);
    if (device.type == RL_DEVICE_CPU)
        memcpy(rl_tensor_data(t), element, (size_t)rl_dtype_size(dtype));
    else {
        const rl_storage *s = t->storage;
        rl_status st = s->backend->to_device(device.index, s->data, element, (size_t)rl_dtype_size(dtype), s->stream);
        if (st != RL_OK) {
            rl_tensor_release(t);
            return st;
        }
    }
    *out = t;
    return RL_OK;
}

static void free_meta(rl_tensor *t)
{
    rl_meta *m = t->meta;
    if (m->retains_grad)
        rl_tensor_forget_retained(t);
    t->meta = NULL;
    rl_tensor_release(m->base);
    rl_hook_free_all(&m->hooks);
    rl_hook_free_all(&m->post_accumulate_hooks);
    rl_pool_free(m, sizeof *m);
}

void rl_tensor_free(rl_tensor *t)
{
    if (RL_UNLIKELY(t->flags & RL_TF_OWNS_PY) && rl_py.drop(t))
        return;
    rl_tensor *grad = t->grad;
    rl_node *grad_fn = t->grad_fn;
    if (t->meta)
        free_meta(t);
    if (t->storage)
        rl_storage_release(t->storage);
    rl_version_release(t->version);
    if (RL_UNLIKELY(t->flags & RL_TF_HEAP_DIMS))
        rl_pool_free(t->shape, heap_dims_bytes(t->ndim));
    rl_pool_free(t, sizeof *t);
    if (grad_fn)
        rl_node_release(grad_fn);
    if (grad)
        rl_tensor_release(grad);
}

bool rl_tensor_same_shape(const rl_tensor *a, const rl_tensor *b)
{
    return a->ndim == b->ndim && memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof *a->shape) == 0;
}

rl_status rl_tensor_set_geometry(rl_tensor *t, int ndim, const int64_t *shape, const int64_t *strides, int64_t offset)
{
    int64_t numel;
    if (ndim > RL_MAX_NDIM)
        return rl_fail(RL_ERR_RUNTIME, "tensors have at most %d dimensions, got %d", RL_MAX_NDIM, ndim);
    RL_RETURN(check_span(t->storage, ndim, shape, strides, offset, (rl_dtype)t->dtype, &numel));
    return set_shape(t, ndim, shape, strides, offset, numel);
}

rl_status rl_tensor_set_storage(rl_tensor *t, rl_storage *s)
{
    int64_t numel;
    RL_RETURN(check_span(s, t->ndim, t->shape, t->strides, t->offset, (rl_dtype)t->dtype, &numel));
    rl_storage_retain(s);
    rl_storage_release(t->storage);
    t->storage = s;
    return RL_OK;
}

rl_meta *rl_tensor_meta(rl_tensor *t)
{
    if (t->meta == NULL && (t->meta = rl_pool_alloc(sizeof *t->meta)) != NULL)
        *t->meta = (rl_meta){0};
    return t->meta;
}
