/* rng.c: generators: MT19937 with PyTorch's seeding, state layout and draws.
 *
 * Invariant: `left` words of the block remain after `--left`, as in PyTorch, so that a state written here continues there
 * and the other way round. The fills of a tensor hold the lock from first to last draw. The algorithm is that of
 * Matsumoto and Nishimura, "Mersenne Twister" (ACM TOMACS 8, 1998); what PyTorch adds is written down in tests/golden/RNG.md.
 */
#include "rng.h"

#include "alloc.h"

#include <math.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#define MT_N 624
#define MT_M 397
#define DEFAULT_SEED 67280421310721ull /* of a generator made without a seed */

rl_status rl_generator_new(rl_device device, rl_generator **out)
{
    rl_generator *g = rl_pool_alloc(sizeof *g);
    *out = NULL;
    if (!g)
        return RL_ERR_MEMORY;
    memset(g, 0, sizeof *g);
    atomic_init(&g->refs, 1);
    pthread_mutex_init(&g->lock, NULL);
    g->device = device;
    rl_generator_seed(g, DEFAULT_SEED);
    *out = g;
    return RL_OK;
}

rl_generator *rl_generator_retain(rl_generator *g)
{
    if (g)
        atomic_fetch_add_explicit(&g->refs, 1, memory_order_relaxed);
    return g;
}

void rl_generator_release(rl_generator *g)
{
    if (!g || atomic_fetch_sub_explicit(&g->refs, 1, memory_order_acq_rel) != 1)
        return;
    pthread_mutex_destroy(&g->lock);
    rl_pool_free(g, sizeof *g);
}

static uint64_t seed_from_system(void)
{
    uint64_t seed;
    if (getrandom(&seed, sizeof seed, GRND_NONBLOCK) == sizeof seed)
        return seed & 0x1fffffffffffffull; /* 53 bits, as PyTorch's: exact in a double */
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return ((uint64_t)t.tv_nsec * 0x9e3779b97f4a7c15ull ^ (uint64_t)t.tv_sec ^ (uint64_t)getpid()) & 0x1fffffffffffffull;
}

static rl_generator cpu_default = {.lock = PTHREAD_MUTEX_INITIALIZER};
static pthread_once_t cpu_default_once = PTHREAD_ONCE_INIT;

/* A fork in the middle of a fill on another thread would leave the child's lock held for ever. */
static void fork_prepare(void) { pthread_mutex_lock(&cpu_default.lock); }
static void fork_done(void) { pthread_mutex_unlock(&cpu_default.lock); }

static void cpu_default_init(void)
{
    atomic_init(&cpu_default.refs, 1);
    rl_generator_seed(&cpu_default, seed_from_system());
    pthread_atfork(fork_prepare, fork_done, fork_done);
}

rl_generator *rl_generator_default(rl_device device)
{
    (void)device; /* the CUDA backend brings its own */
    pthread_once(&cpu_default_once, cpu_default_init);
    return &cpu_default;
}

void rl_generator_seed(rl_generator *g, uint64_t seed)
{
    g->seed = seed;
    g->mt[0] = (uint32_t)seed;
    for (uint32_t j = 1; j < MT_N; j++)
        g->mt[j] = 1812433253u * (g->mt[j - 1] ^ (g->mt[j - 1] >> 30)) + j;
    g->left = 1;
    g->next = 0;
    g->has_normal = false;
    g->normal = 0;
    g->philox_offset = 0;
}

/* The layout of PyTorch's legacy state: see tests/golden/RNG.md §1. */
enum { AT_SEED = 0, AT_LEFT = 8, AT_SEEDED = 12, AT_NEXT = 16, AT_WORDS = 24, AT_NORMAL = 5024, AT_HAS_NORMAL = 5040 };

void rl_generator_get_state(rl_generator *g, uint8_t out[RL_RNG_STATE_BYTES])
{
    int32_t seeded = 1, has = g->has_normal;
    uint64_t next = g->next;
    memset(out, 0, RL_RNG_STATE_BYTES);
    memcpy(out + AT_SEED, &g->seed, 8);
    memcpy(out + AT_LEFT, &g->left, 4);
    memcpy(out + AT_SEEDED, &seeded, 4);
    memcpy(out + AT_NEXT, &next, 8);
    for (int i = 0; i < MT_N; i++)
        memcpy(out + AT_WORDS + 8 * i, &g->mt[i], 4);
    if (has)
        memcpy(out + AT_NORMAL, &g->normal, 8);
    memcpy(out + AT_HAS_NORMAL, &has, 4);
}

rl_status rl_generator_set_state(rl_generator *g, const uint8_t *state, size_t bytes)
{
    int32_t left, seeded, has;
    uint64_t next;
    if (bytes != RL_RNG_STATE_BYTES)
        return rl_fail(RL_ERR_RUNTIME, "RNG state is wrong size: expected %d bytes, got %zu", RL_RNG_STATE_BYTES, bytes);
    memcpy(&left, state + AT_LEFT, 4);
    memcpy(&seeded, state + AT_SEEDED, 4);
    memcpy(&next, state + AT_NEXT, 8);
    memcpy(&has, state + AT_HAS_NORMAL, 4);
    /* next + left > 625 would read past the block; PyTorch's own states never have it. */
    if (!seeded || left < 1 || left > MT_N || next > MT_N || next + (uint64_t)left > MT_N + 1)
        return rl_fail(RL_ERR_RUNTIME, "Invalid mt19937 state (seeded %d, left %d, next %llu)", seeded, left, (unsigned long long)next);
    memcpy(&g->seed, state + AT_SEED, 8);
    g->left = left;
    g->next = (uint32_t)next;
    for (int i = 0; i < MT_N; i++)
        memcpy(&g->mt[i], state + AT_WORDS + 8 * i, 4);
    g->has_normal = has != 0;
    memcpy(&g->normal, state + AT_NORMAL, 8);
    return RL_OK;
}

rl_status rl_generator_clone(rl_generator *g, rl_generator **out)
{
    uint8_t state[RL_RNG_STATE_BYTES];
    rl_status st = rl_generator_new(g->device, out);
    if (st != RL_OK)
        return st;
    rl_generator_get_state(g, state);
    (*out)->philox_offset = g->philox_offset;
    return rl_generator_set_state(*out, state, sizeof state);
}

static inline uint32_t twist(uint32_t a, uint32_t b)
{
    return (((a & 0x80000000u) | (b & 0x7fffffffu)) >> 1) ^ (-(b & 1u) & 0x9908b0dfu);
}

static void refill(rl_generator *g)
{
    uint32_t *p = g->mt;
    for (int i = 0; i < MT_N - MT_M; i++)
        p[i] = p[i + MT_M] ^ twist(p[i], p[i + 1]);
    for (int i = MT_N - MT_M; i < MT_N - 1; i++)
        p[i] = p[i + MT_M - MT_N] ^ twist(p[i], p[i + 1]);
    p[MT_N - 1] = p[MT_M - 1] ^ twist(p[MT_N - 1], p[0]);
    g->left = MT_N;
    g->next = 0;
}

static inline uint32_t temper(uint32_t y)
{
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680u;
    y ^= (y << 15) & 0xefc60000u;
    return y ^ (y >> 18);
}

uint32_t rl_rng_u32(rl_generator *g)
{
    if (--g->left == 0)
        refill(g);
    return temper(g->mt[g->next++]);
}

void rl_rng_fill_u32(rl_generator *g, uint32_t *out, int64_t n)
{
    while (n > 0) {
        int64_t run = g->left - 1;
        if (run == 0) {
            *out++ = rl_rng_u32(g);
            n--;
            continue;
        }
        if (run > n)
            run = n;
        for (int64_t i = 0; i < run; i++)
            out[i] = temper(g->mt[g->next + i]);
        g->next += (uint32_t)run;
        g->left -= (int32_t)run;
        out += run;
        n -= run;
    }
}

uint64_t rl_rng_u64(rl_generator *g)
{
    uint64_t high = rl_rng_u32(g);
    return high << 32 | rl_rng_u32(g);
}

float rl_rng_u24(rl_generator *g) { return (float)(rl_rng_u32(g) & 0xffffffu) * 0x1p-24f; }

double rl_rng_u53(rl_generator *g) { return (double)(rl_rng_u64(g) & 0x1fffffffffffffull) * 0x1p-53; }

double rl_rng_normal(rl_generator *g)
{
    if (g->has_normal) {
        g->has_normal = false;
        return g->normal;
    }
    double u1 = rl_rng_u53(g), u2 = rl_rng_u53(g);
    double r = sqrt(-2.0 * log1p(-u2)), t = 6.283185307179586 * u1;
    g->normal = r * sin(t);
    g->has_normal = true;
    return r * cos(t);
}
