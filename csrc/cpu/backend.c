/* backend.c: the CPU backend's vtable, and which instruction level it uses.
 *
 * The level is the best that this build has and this machine supports by CPUID's feature bits and the operating system's
 * (XGETBV: it must save the wide registers), never by a model table; RUSHLIGHT_CPU=baseline|avx2|avx512 lowers it.
 * A name that is unknown, or above what the machine has, gives the best that it has: a script must not die of a variable.
 */
#include "cpu.h"

#include "../core/alloc.h"
#include "../core/threads.h"

#include <pthread.h>
#include <stdlib.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

/* ---- the machine ---- */

#if defined(__x86_64__)
static uint64_t read_xcr0(void)
{
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return ((uint64_t)high << 32) | low;
}

/* 0: baseline, 1: avx2 with fma, f16c and bmi2, 2: avx512 f, bw, vl, dq on top. */
static int machine_level(void)
{
    uint32_t a, b, c, d, ext_b, ext_c;
    if (!__get_cpuid(1, &a, &b, &c, &d))
        return 0;
    uint32_t need = bit_OSXSAVE | bit_AVX | bit_FMA | bit_F16C;
    if ((c & need) != need || (read_xcr0() & 0x6) != 0x6)
        return 0;
    if (!__get_cpuid_count(7, 0, &a, &ext_b, &ext_c, &d) || (ext_b & (bit_AVX2 | bit_BMI2)) != (bit_AVX2 | bit_BMI2))
        return 0;
    need = bit_AVX512F | bit_AVX512BW | bit_AVX512VL | bit_AVX512DQ;
    return (ext_b & need) == need && (read_xcr0() & 0xe6) == 0xe6 ? 2 : 1;
}
#else
static int machine_level(void) { return 0; }
#endif

static const char *const level_names[] = {"baseline", "avx2", "avx512"};

static const rl_cpu_level *level_table(int level)
{
#if defined(RL_HAVE_LEVEL_AVX512)
    if (level == 2)
        return &rl_cpu_level_avx512;
#endif
#if defined(RL_HAVE_LEVEL_AVX2)
    if (level >= 1)
        return &rl_cpu_level_avx2;
#endif
    return &rl_cpu_level_baseline;
}

static int wanted_level(void)
{
    const char *text = getenv("RUSHLIGHT_CPU");
    for (int k = 0; text && k < 3; k++)
        if (!strcmp(text, level_names[k]))
            return k;
    return 2;
}

/* ---- memory ---- */

static rl_status cpu_alloc(int index, size_t bytes, rl_stream stream, void **out) { return rl_host_alloc(bytes, out); }
static void cpu_free(int index, void *data, size_t bytes, rl_stream stream) { rl_host_free(data, bytes); }

static rl_status cpu_copy(int index, void *to, const void *from, size_t bytes, rl_stream stream)
{
    if (bytes)
        memmove(to, from, bytes);
    return RL_OK;
}

static rl_status cpu_copy_peer(int to_index, void *to, int from_index, const void *from, size_t bytes, rl_stream stream)
{
    return cpu_copy(0, to, from, bytes, stream);
}

/* ---- streams: none, everything has happened when it returns ---- */

static rl_stream cpu_stream_current(int index) { return NULL; }
static rl_status cpu_stream_wait(rl_stream stream, rl_stream other) { return RL_OK; }
static rl_status cpu_synchronize(int index) { return RL_OK; }
static int cpu_device_count(void) { return 1; }
static int cpu_device_current(void) { return 0; }

static rl_backend backend = {
    .name = "cpu",
    .type = RL_DEVICE_CPU,
    .alloc = cpu_alloc,
    .free = cpu_free,
    .to_device = cpu_copy,
    .to_host = cpu_copy,
    .copy_peer = cpu_copy_peer,
    .stream_current = cpu_stream_current,
    .stream_wait = cpu_stream_wait,
    .synchronize = cpu_synchronize,
    .device_count = cpu_device_count,
    .device_current = cpu_device_current,
};

static const rl_cpu_level *chosen;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void load(void)
{
    int best = machine_level(), wanted = wanted_level();
    chosen = level_table(wanted < best ? wanted : best);
    memcpy(backend.kernels, chosen->kernels, sizeof backend.kernels);
    static const struct { int family; rl_kernel_run run; } everywhere[] = {
        {RL_K_SCAN, rl_cpu_scan},     {RL_K_INDEX, rl_cpu_index},     {RL_K_GATHER, rl_cpu_gather},
        {RL_K_SELECT, rl_cpu_select}, {RL_K_NONZERO, rl_cpu_nonzero}, {RL_K_SORT, rl_cpu_sort},
    };
    for (size_t k = 0; k < sizeof everywhere / sizeof *everywhere; k++)
        if (backend.kernels[everywhere[k].family] == NULL)
            backend.kernels[everywhere[k].family] = everywhere[k].run;
    rl_backend_register(&backend);
}

const rl_backend *rl_cpu_backend(void)
{
    pthread_once(&once, load);
    return &backend;
}

const char *rl_cpu_level_chosen(void)
{
    rl_cpu_backend();
    return chosen->name;
}

const char *rl_cpu_level_best(void) { return level_names[machine_level()]; }
