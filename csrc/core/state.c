/* state: the thread's modes. See state.h. The default dtype is process-wide, as in PyTorch; each thread's struct keeps a copy that
 * rl_default_dtype refreshes, so that reading it needs no lock. */
#include "state.h"

#include <stdatomic.h>

_Thread_local rl_state *rl_state_tls;
static _Thread_local rl_state storage;
bool rl_fast_paths = true;
static atomic_int default_dtype = RL_F32;

rl_state *rl_state_init(void)
{
    storage = (rl_state){.grad_mode = true, .anomaly_check_nan = true, .default_dtype = (uint8_t)atomic_load(&default_dtype)};
    for (int i = 0; i < RL_DEVICE_TYPES; i++)
        storage.autocast_dtype[i] = i == RL_DEVICE_CUDA ? RL_F16 : RL_BF16;
    rl_state_tls = &storage;
    return rl_state_tls;
}

void rl_state_set_default_dtype(rl_dtype d)
{
    atomic_store(&default_dtype, (int)d);
    rl_state_get()->default_dtype = (uint8_t)d;
}

rl_dtype rl_default_dtype(void)
{
    return (rl_dtype)atomic_load_explicit(&default_dtype, memory_order_relaxed);
}
