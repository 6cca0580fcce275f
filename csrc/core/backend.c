/* backend: the registry of devices. See backend.h. Backends are static structs that live as long as the process. */
#include "backend.h"

#include <stdatomic.h>
#include <stdio.h>

static _Atomic(const rl_backend *) backends[RL_DEVICE_TYPES];
static const char *const type_names[RL_DEVICE_TYPES] = {"cpu", "cuda", "meta"};

const rl_backend *rl_backend_get(rl_device_type type)
{
    const rl_backend *b = (unsigned)type < RL_DEVICE_TYPES ? atomic_load_explicit(&backends[type], memory_order_acquire) : NULL;
    if (RL_UNLIKELY(b == NULL))
        rl_fail(RL_ERR_RUNTIME, "device type %s is not available in this build of rushlight",
                (unsigned)type < RL_DEVICE_TYPES ? type_names[type] : "?");
    return b;
}

void rl_backend_register(const rl_backend *backend)
{
    atomic_store_explicit(&backends[backend->type], backend, memory_order_release);
}

const char *rl_device_text(rl_device d)
{
    char *text = rl_text_buffer();
    const char *name = d.type < RL_DEVICE_TYPES ? type_names[d.type] : "?";
    if (d.index < 0 || d.type == RL_DEVICE_CPU)
        snprintf(text, RL_TEXT_BYTES, "%s", name);
    else
        snprintf(text, RL_TEXT_BYTES, "%s:%d", name, d.index);
    return text;
}
