/* count: reference counts of core objects.
 *
 * Invariant: counts change only while the interpreter's lock is held (kernels run without it, and touch no count), so a plain load and store is enough; the
 * members are atomic so that a reader without the lock sees a whole value. Why: a locked instruction costs 5 ns and a recorded operator takes about forty. A build
 * for a free-threaded interpreter defines RL_FREE_THREADED and pays.
 */
#ifndef RL_COUNT_H
#define RL_COUNT_H
#include <stdatomic.h>
#include <stdbool.h>

static inline void rl_count_up(atomic_llong *count)
{
#ifdef RL_FREE_THREADED
    atomic_fetch_add_explicit(count, 1, memory_order_relaxed);
#else
    atomic_store_explicit(count, atomic_load_explicit(count, memory_order_relaxed) + 1, memory_order_relaxed);
#endif
}

/* True when this was the last reference. */
static inline bool rl_count_down(atomic_llong *count)
{
#ifdef RL_FREE_THREADED
    return atomic_fetch_sub_explicit(count, 1, memory_order_acq_rel) == 1;
#else
    long long left = atomic_load_explicit(count, memory_order_relaxed) - 1;
    atomic_store_explicit(count, left, memory_order_relaxed);
    return left == 0;
#endif
}

#endif
