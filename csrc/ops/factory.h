/* factory: the options that creating operators share (dtype, layout, device, pin_memory), read from a call in one place.
 *
 * A signature of a factory ends with "ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None"; `at` is the
 * number of its dtype argument. The like forms add "MemoryFormat? memory_format=None".
 */
#ifndef RL_FACTORY_H
#define RL_FACTORY_H
#include "ops.h"

typedef struct rl_factory {
    rl_dtype dtype;
    rl_device device;
    rl_memory_format format; /* like forms: preserve unless given */
} rl_factory;

/* "cuda" without a number becomes the current one; "cpu:0" is the CPU. An error when there is no such device. */
rl_status rl_device_resolve(rl_device d, rl_device *out);
/* Options of a plain factory: `dtype` and the current default device where nothing is given. */
rl_status rl_factory_options(rl_factory *f, const rl_call *c, int at, rl_dtype dtype);
/* Contiguous, or channels-last where the call asked for it. */
rl_status rl_factory_empty(const rl_factory *f, int ndim, const int64_t *shape, rl_tensor **out);
/* Options of a like form: those of `like` where nothing is given; memory_format stands at `at` + 4. */
rl_status rl_factory_like(rl_factory *f, const rl_call *c, int at, const rl_tensor *like);
/* An error when a number does not fit dtype `d`, as PyTorch's checked conversion words it; bool takes anything, -1 wraps in uint8. */
rl_status rl_scalar_fits(rl_scalar s, rl_dtype d);
rl_status rl_factory_empty_like(const rl_factory *f, const rl_tensor *like, rl_tensor **out);

#endif
