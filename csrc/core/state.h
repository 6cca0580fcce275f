/* state: what the current thread's code runs under, in one struct: grad mode, inference, autocast, default dtype and
 * device, anomaly mode.
 *
 * It is handed on by value to every thread that runs user code or backward (rl_state_copy), so no mode is forgotten.
 */
#ifndef RL_STATE_H
#define RL_STATE_H
#include "backend.h"

typedef struct rl_state {
    bool grad_mode;      /* record operators */
    bool inference_mode; /* new tensors are inference tensors */
    bool anomaly;        /* nodes keep their forward traceback */
    bool anomaly_check_nan;
    bool in_derivative;  /* inside a backward formula: autocast and torch-function are off */
    uint8_t autocast[RL_DEVICE_TYPES]; /* enabled, for each device type */
    uint8_t autocast_dtype[RL_DEVICE_TYPES];
    uint8_t default_dtype; /* process-wide in PyTorch; set on all threads by rl_state_set_default_dtype */
    bool has_default_device;
    rl_device default_device;
    int saved_hooks_disabled;
} rl_state;

extern _Thread_local rl_state *rl_state_tls;
rl_state *rl_state_init(void); /* makes this thread's; never NULL */
static inline rl_state *rl_state_get(void)
{
    rl_state *s = rl_state_tls;
    return RL_LIKELY(s != NULL) ? s : rl_state_init();
}
/* False with RUSHLIGHT_FAST=0: every short cut before the general way is off, so that a test run proves the general way. Set once, at load. */
extern bool rl_fast_paths;
void rl_state_set_default_dtype(rl_dtype d);
rl_dtype rl_default_dtype(void);

#endif
