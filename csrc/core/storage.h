/* storage: reference-counted bytes on one device, and the version counters of tensors.
 *
 * A storage owns its bytes: from the backend's allocator, or foreign (NumPy, DLPack, a mapped file) with a release
 * function. Its size never changes except by rl_storage_resize. A version counts in-place writes; it is its own counted
 * object, shared by a tensor, its views and detach(), because `.data` shares the bytes but not the counter.
 */
#ifndef RL_STORAGE_H
#define RL_STORAGE_H
#include "backend.h"
#include "count.h"

#include <stdatomic.h>

typedef struct rl_storage {
    atomic_llong refs;
    void *data;
    size_t bytes;
    const rl_backend *backend;
    rl_device device;
    bool read_only;  /* writes are refused: a read-only foreign buffer */
    bool pinned;
    rl_stream stream; /* on which it was allocated */
    void (*release)(void *owner, void *data); /* foreign memory; NULL: the backend's */
    void *owner;
    void *py; /* borrowed back pointer to UntypedStorage's wrapper, or NULL */
    uint32_t block; /* bytes of the pool block that this header begins */
} rl_storage;

/* New bytes on a device, uninitialised; bytes may be 0 (data is then NULL). */
rl_status rl_storage_new(rl_device device, size_t bytes, rl_storage **out);
/* Takes over foreign CPU memory: release(owner, data) runs exactly once, possibly without the GIL. */
rl_status rl_storage_wrap(void *data, size_t bytes, bool read_only, void (*release)(void *, void *), void *owner, rl_storage **out);
/* Grows or shrinks; keeps the first min(old, new) bytes. Fails on foreign memory. */
rl_status rl_storage_resize(rl_storage *s, size_t bytes);
/* Puts other CPU memory of the same size in place of the storage's own, which is let go; the caller has copied what should stay. */
void rl_storage_replace(rl_storage *s, void *data, void (*release)(void *, void *), void *owner);
void rl_storage_free(rl_storage *s); /* the last release's work */

static inline rl_storage *rl_storage_retain(rl_storage *s)
{
    rl_count_up(&s->refs);
    return s;
}
static inline void rl_storage_release(rl_storage *s)
{
    if (s && rl_count_down(&s->refs))
        rl_storage_free(s);
}

typedef struct rl_version {
    atomic_llong refs;
    atomic_uint value;
} rl_version;

rl_version *rl_version_new(void); /* NULL: out of memory, message set */
void rl_version_free(rl_version *v);
static inline rl_version *rl_version_retain(rl_version *v)
{
    if (v)
        rl_count_up(&v->refs);
    return v;
}
static inline void rl_version_release(rl_version *v)
{
    if (v && rl_count_down(&v->refs))
        rl_version_free(v);
}

#endif
