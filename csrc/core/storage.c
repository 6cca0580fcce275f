/* storage: counted bytes and version counters. See storage.h.
 *
 * The data of a small CPU storage lies in one pool block with its header, at INLINE_AT: one pop of a free list makes both. Whether a
 * storage is of this kind follows from its data pointer.
 */
#include "storage.h"
#include "alloc.h"

#define INLINE_AT 128
#define INLINE_MAX 4096
_Static_assert(sizeof(rl_storage) <= INLINE_AT, "the header must fit before inline data");

static bool is_inline(const rl_storage *s)
{
    return s->data == (const char *)s + INLINE_AT;
}

static size_t block_bytes(size_t bytes)
{
    return INLINE_AT + bytes;
}

static rl_status new_inline(rl_device device, const rl_backend *backend, size_t bytes, rl_storage **out)
{
    rl_storage *s = rl_pool_alloc(block_bytes(bytes));
    if (s == NULL)
        return RL_ERR_MEMORY;
    *s = (rl_storage){.bytes = bytes, .backend = backend, .device = device, .block = (uint32_t)block_bytes(bytes)};
    s->data = (char *)s + INLINE_AT;
    atomic_init(&s->refs, 1);
    *out = s;
    return RL_OK;
}

rl_status rl_storage_new(rl_device device, size_t bytes, rl_storage **out)
{
    const rl_backend *backend = rl_backend_get((rl_device_type)device.type);
    if (RL_UNLIKELY(backend == NULL))
        return RL_ERR_RUNTIME;
    if (device.type == RL_DEVICE_CPU && bytes <= INLINE_MAX && bytes > 0)
        return new_inline(device, backend, bytes, out);
    rl_storage *s = rl_pool_alloc(sizeof *s);
    if (s == NULL)
        return RL_ERR_MEMORY;
    *s = (rl_storage){.bytes = bytes, .backend = backend, .device = device, .block = sizeof *s};
    if (bytes > 0) {
        s->stream = backend->stream_current ? backend->stream_current(device.index) : NULL;
        rl_status st = backend->alloc(device.index, bytes, s->stream, &s->data);
        if (st != RL_OK) {
            rl_pool_free(s, sizeof *s);
            return st;
        }
    }
    atomic_init(&s->refs, 1);
    *out = s;
    return RL_OK;
}

rl_status rl_storage_wrap(void *data, size_t bytes, bool read_only, void (*release)(void *, void *), void *owner, rl_storage **out)
{
    const rl_backend *backend = rl_backend_get(RL_DEVICE_CPU);
    if (backend == NULL)
        return RL_ERR_RUNTIME;
    rl_storage *s = rl_pool_alloc(sizeof *s);
    if (s == NULL)
        return RL_ERR_MEMORY;
    *s = (rl_storage){.data = data, .bytes = bytes, .backend = backend, .device = {RL_DEVICE_CPU, -1}, .read_only = read_only,
                      .release = release, .owner = owner, .block = sizeof *s};
    atomic_init(&s->refs, 1);
    *out = s;
    return RL_OK;
}

static void free_data(rl_storage *s)
{
    if (s->release)
        s->release(s->owner, s->data);
    else if (s->data && !is_inline(s))
        s->backend->free(s->device.index, s->data, s->bytes, s->stream);
}

void rl_storage_free(rl_storage *s)
{
    free_data(s);
    rl_pool_free(s, s->block);
}

void rl_storage_replace(rl_storage *s, void *data, void (*release)(void *, void *), void *owner)
{
    free_data(s);
    s->data = data;
    s->release = release;
    s->owner = owner;
    s->read_only = false;
}

rl_status rl_storage_resize(rl_storage *s, size_t bytes)
{
    if (s->release || s->read_only)
        return rl_fail(RL_ERR_RUNTIME, "Trying to resize storage that is not resizable");
    if (bytes == s->bytes)
        return RL_OK;
    void *data = NULL;
    size_t keep = bytes < s->bytes ? bytes : s->bytes;
    if (bytes > 0) {
        RL_RETURN(s->backend->alloc(s->device.index, bytes, s->stream, &data));
        rl_status st = keep ? s->backend->copy_peer(s->device.index, data, s->device.index, s->data, keep, s->stream) : RL_OK;
        if (st != RL_OK) {
            s->backend->free(s->device.index, data, bytes, s->stream);
            return st;
        }
    }
    free_data(s);
    s->data = data;
    s->bytes = bytes;
    return RL_OK;
}

rl_version *rl_version_new(void)
{
    rl_version *v = rl_pool_alloc(sizeof *v);
    if (v) {
        atomic_init(&v->refs, 1);
        atomic_init(&v->value, 0);
    }
    return v;
}

void rl_version_free(rl_version *v)
{
    rl_pool_free(v, sizeof *v);
}
