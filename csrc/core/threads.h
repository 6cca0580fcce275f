/* threads: the pool and parallel_for.
 *
 * Work is split in fixed blocks of `grain` items whatever the number of threads, so the thread count never changes a bit
 * of a result: a reduction keeps one partial result a block and combines them in block order. Nested calls run serially.
 * Workers spin at most 50 us, then sleep. The pool is made at first use and again in a forked child.
 */
#ifndef RL_THREADS_H
#define RL_THREADS_H
#include "status.h"

#include <stdbool.h>
#include <stdint.h>

typedef void (*rl_block_fn)(void *context, int64_t begin, int64_t end, int64_t block);

/* Calls fn over [0, n) in blocks [k*grain, min(n, (k+1)*grain)); serial when there is one block, one thread, or the
 * caller is itself inside a block. Blocks may run in any order and at the same time. */
void rl_parallel_for(int64_t n, int64_t grain, rl_block_fn fn, void *context);

int rl_threads_get(void);
rl_status rl_threads_set(int n); /* >= 1 */
bool rl_threads_inside(void);    /* in a block now */
void rl_threads_before_fork(void);
void rl_threads_after_fork(bool child);

#endif
