/* cpu: the CPU backend: its vtable and the tables of its instruction levels.
 *
 * Files in csrc/cpu/level/ are compiled once for each level (setup.py: -DRL_LEVEL=baseline|avx2|avx512 and the flags) and give one
 * rl_cpu_level_<level> table each; files in csrc/cpu/ are compiled once. The level is chosen at load from CPUID and can be lowered by
 * RUSHLIGHT_CPU. Nothing in level/ has external linkage except through RL_LEVEL_NAME, so that no vector code of a higher level is
 * ever called on a lower machine (no shared inline helper may be emitted from a level file).
 */
#ifndef RL_CPU_H
#define RL_CPU_H
#include "../core/backend.h"
#include "../core/threads.h"
#include "../ops/args.h"

typedef struct rl_cpu_level {
    const char *name; /* "baseline", "avx2", "avx512", "neon" */
    rl_kernel_run kernels[RL_K_COUNT]; /* NULL: the level-independent one of csrc/cpu */
} rl_cpu_level;

#define RL_LEVEL_CAT_(a, b) a##_##b
#define RL_LEVEL_CAT(a, b) RL_LEVEL_CAT_(a, b)
/* rl_gemm -> rl_gemm_avx2 in a level file */
#define RL_LEVEL_NAME(name) RL_LEVEL_CAT(name, RL_LEVEL)

extern const rl_cpu_level rl_cpu_level_baseline;
/* Of the others, those that this build has (RL_HAVE_LEVEL_AVX2, RL_HAVE_LEVEL_AVX512). */
extern const rl_cpu_level rl_cpu_level_avx2, rl_cpu_level_avx512;

/* Kernels that gain nothing from wider vectors. */
rl_status rl_cpu_reduce(const void *args, rl_stream stream);
rl_status rl_cpu_scan(const void *args, rl_stream stream);
rl_status rl_cpu_index(const void *args, rl_stream stream);
rl_status rl_cpu_gather(const void *args, rl_stream stream);
rl_status rl_cpu_select(const void *args, rl_stream stream);
rl_status rl_cpu_nonzero(const void *args, rl_stream stream);
rl_status rl_cpu_sort(const void *args, rl_stream stream);

const rl_backend *rl_cpu_backend(void); /* chooses the level and registers the backend; idempotent */
const char *rl_cpu_level_chosen(void);
const char *rl_cpu_level_best(void);    /* of this machine */

#endif
