/* alloc: host memory. Two allocators and one failing switch.
 *
 * rl_pool_*: per-thread, capped free lists of small objects (tensors, nodes, versions, small buffers): a pop and a push
 * cost a few nanoseconds, and a thread's lists go back to malloc when it ends.
 * rl_host_*: the caching allocator of tensor memory, by size class, 64-byte aligned, huge pages for large blocks; cached
 * bytes are capped and trimmed; requests above an eighth of the machine's memory are checked against what is available
 * and against the cgroup's limit, since overcommit ends in SIGKILL and not in an error.
 * Every allocation of core and ops goes through here, so that a test can make the n-th one fail
 * (rl_alloc_fail_after); plain malloc appears in alloc.c alone.
 */
#ifndef RL_ALLOC_H
#define RL_ALLOC_H
#include "status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Small blocks, at most RL_POOL_MAX bytes from the free lists, above that from malloc. free needs the same size.
 * NULL when out of memory, with the message set. Contents are undefined. */
#define RL_POOL_MAX 4352
void *rl_pool_alloc(size_t bytes);
void rl_pool_free(void *p, size_t bytes);

/* Tensor memory. 64-byte aligned. */
rl_status rl_host_alloc(size_t bytes, void **out);
void rl_host_free(void *p, size_t bytes);

typedef struct rl_host_stats {
    int64_t live_bytes, peak_bytes, cached_bytes, allocations, frees;
    int64_t pool_bytes; /* small blocks taken from malloc, on free lists or in use: it grows without end only when something leaks */
} rl_host_stats;
void rl_host_stats_read(rl_host_stats *out);
void rl_host_trim(void);           /* gives cached blocks back to the system */
void rl_host_set_cap(int64_t bytes); /* of the cache */

/* The n-th allocation from now (1: the next) fails, once; 0 switches off. Process-wide, for tests. Returns the
 * number of allocations since the last call. */
int64_t rl_alloc_fail_after(int64_t n);

/* Where this thread's messages and texts lie (status.c): zeroed once, freed with the thread. Threads share one when there is no memory. */
#define RL_THREAD_TEXTS 6400
char *rl_thread_texts(void);

/* fork handlers: locks are held over fork and the child starts with consistent lists. */
void rl_alloc_before_fork(void);
void rl_alloc_after_fork(bool child);

#endif
