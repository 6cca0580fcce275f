/* rng: random generators. CPU: MT19937 with PyTorch's state, bit for bit (see tests/golden/RNG.md). CUDA: Philox4x32-10.
 *
 * A generator is locked for a whole fill, so a fill is one contiguous piece of the stream whatever the threads.
 */
#ifndef RL_RNG_H
#define RL_RNG_H
#include "backend.h"

#include <pthread.h>
#include <stdatomic.h>

#define RL_RNG_STATE_BYTES 5056

typedef struct rl_generator {
    atomic_llong refs;
    pthread_mutex_t lock;
    rl_device device;
    uint64_t seed;
    uint32_t mt[624];
    int32_t left;
    uint32_t next;
    bool has_normal;
    double normal;
    uint64_t philox_offset;
} rl_generator;

rl_status rl_generator_new(rl_device device, rl_generator **out);
void rl_generator_release(rl_generator *g);
rl_generator *rl_generator_retain(rl_generator *g);
/* The process's generator of a device; seeded from the system at first use. */
rl_generator *rl_generator_default(rl_device device);
void rl_generator_seed(rl_generator *g, uint64_t seed);
void rl_generator_get_state(rl_generator *g, uint8_t out[RL_RNG_STATE_BYTES]);
rl_status rl_generator_set_state(rl_generator *g, const uint8_t *state, size_t bytes);
rl_status rl_generator_clone(rl_generator *g, rl_generator **out);

/* Draws; the caller holds the lock. */
uint32_t rl_rng_u32(rl_generator *g);
uint64_t rl_rng_u64(rl_generator *g);
float rl_rng_u24(rl_generator *g);  /* [0, 1) of 24 bits */
double rl_rng_u53(rl_generator *g); /* [0, 1) of 53 bits */
double rl_rng_normal(rl_generator *g); /* the serial normal, with its cache */
void rl_rng_fill_u32(rl_generator *g, uint32_t *out, int64_t n);

#endif
