/* threads: the pool. See threads.h.
 *
 * One job at a time: the caller publishes it, workers and caller take block numbers from a shared counter. A caller that finds the pool
 * busy (another thread's job) runs its blocks itself: same blocks, same bits. Workers spin SPIN_NS for the next job, then sleep on a
 * condition.
 */
#include "threads.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_THREADS 256
#define SPIN_NS 50000

typedef struct job {
    int64_t n, grain, blocks;
    rl_block_fn fn;
    void *context;
} job;

static struct {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    pthread_t thread[MAX_THREADS];
    int workers;           /* running, beside the caller */
    atomic_ullong sequence; /* of jobs published */
    atomic_int sleeping;
    atomic_bool stop;
    job current;
    atomic_llong next;     /* block to take */
    atomic_int active;     /* workers inside `current` */
    atomic_bool open;      /* workers may still enter `current` */
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER, .wake = PTHREAD_COND_INITIALIZER};

static pthread_mutex_t owner = PTHREAD_MUTEX_INITIALIZER; /* held by the caller whose job runs */
static atomic_int wanted;
static _Thread_local bool inside;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static int from_environment(const char *name)
{
    const char *text = getenv(name);
    long v = text ? strtol(text, NULL, 10) : 0;
    return v >= 1 && v <= MAX_THREADS ? (int)v : 0;
}

static long long number_in_file(const char *path)
{
    long long v = -1;
    FILE *f = fopen(path, "r");
    if (f) {
        v = fscanf(f, "%lld", &v) == 1 ? v : -1;
        fclose(f);
    }
    return v;
}

/* The cgroup's CPUs, rounded up; 0: no limit. */
static int cpu_quota(void)
{
    long long quota = -1, period = 0;
    FILE *f = fopen("/sys/fs/cgroup/cpu.max", "r");
    if (f) {
        if (fscanf(f, "%lld %lld", &quota, &period) != 2) /* "max 100000" */
            quota = -1;
        fclose(f);
    } else { /* version 1 */
        quota = number_in_file("/sys/fs/cgroup/cpu/cpu.cfs_quota_us");
        period = number_in_file("/sys/fs/cgroup/cpu/cpu.cfs_period_us");
    }
    return quota > 0 && period > 0 && quota / period < MAX_THREADS ? (int)((quota + period - 1) / period) : 0;
}

/* CPUs of the affinity mask, cut to the cgroup's quota: a container with two CPUs of time on a 64-core host gets two threads. */
static int usable_cpus(void)
{
    cpu_set_t set;
    int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1, quota = cpu_quota();
    n = quota > 0 && quota < n ? quota : n;
    return n < 1 ? 1 : n > MAX_THREADS ? MAX_THREADS : n;
}

static void fork_prepare(void)
{
    rl_threads_before_fork();
}

static void fork_parent(void)
{
    rl_threads_after_fork(false);
}

static void fork_child(void)
{
    rl_threads_after_fork(true);
}

static void setup(void)
{
    int n = from_environment("RUSHLIGHT_NUM_THREADS");
    n = n ? n : from_environment("OMP_NUM_THREADS");
    atomic_store(&wanted, n ? n : usable_cpus());
    pthread_atfork(fork_prepare, fork_parent, fork_child);
}

static void run_blocks(const job *j)
{
    inside = true;
    for (int64_t b; (b = atomic_fetch_add(&pool.next, 1)) < j->blocks;) {
        int64_t begin = b * j->grain, end = begin + j->grain;
        j->fn(j->context, begin, end < j->n ? end : j->n, b);
    }
    inside = false;
}

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void pause_cpu(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Waits for a job later than `seen`: spins, then sleeps. */
static unsigned long long wait_for_job(unsigned long long seen)
{
    int64_t until = now_ns() + SPIN_NS;
    unsigned long long at;
    while ((at = atomic_load_explicit(&pool.sequence, memory_order_acquire)) == seen && !atomic_load(&pool.stop)) {
        for (int i = 0; i < 64 && atomic_load_explicit(&pool.sequence, memory_order_relaxed) == seen; i++)
            pause_cpu();
        if (now_ns() < until)
            continue;
        pthread_mutex_lock(&pool.lock);
        atomic_fetch_add(&pool.sleeping, 1);
        while (atomic_load(&pool.sequence) == seen && !atomic_load(&pool.stop))
            pthread_cond_wait(&pool.wake, &pool.lock);
        atomic_fetch_sub(&pool.sleeping, 1);
        pthread_mutex_unlock(&pool.lock);
    }
    return at;
}

static void *worker(void *start)
{
    unsigned long long seen = (unsigned long long)(uintptr_t)start;
    while (seen = wait_for_job(seen), !atomic_load(&pool.stop)) {
        atomic_fetch_add(&pool.active, 1); /* before `open` is read: the caller closes, then waits for active == 0 */
        if (atomic_load(&pool.open)) {
            job j = pool.current;
            run_blocks(&j);
        }
        atomic_fetch_sub(&pool.active, 1);
    }
    return NULL;
}

/* Called with `owner` held. Threads that cannot be made are done without. */
static void start_workers(int n)
{
    while (pool.workers < n) {
        void *seen = (void *)(uintptr_t)atomic_load(&pool.sequence);
        if (pthread_create(&pool.thread[pool.workers], NULL, worker, seen) != 0)
            break;
        pool.workers++;
    }
}

static void stop_workers(void)
{
    pthread_mutex_lock(&pool.lock);
    atomic_store(&pool.stop, true);
    pthread_cond_broadcast(&pool.wake);
    pthread_mutex_unlock(&pool.lock);
    for (int i = 0; i < pool.workers; i++)
        pthread_join(pool.thread[i], NULL);
    pool.workers = 0;
    atomic_store(&pool.stop, false);
}

static void publish(const job *j)
{
    pool.current = *j;
    atomic_store(&pool.next, 0);
    atomic_store(&pool.open, true);
    atomic_fetch_add(&pool.sequence, 1);
    if (atomic_load(&pool.sleeping) > 0) {
        pthread_mutex_lock(&pool.lock);
        pthread_cond_broadcast(&pool.wake);
        pthread_mutex_unlock(&pool.lock);
    }
}

static void run_serially(const job *j)
{
    bool was = inside;
    inside = true;
    for (int64_t b = 0; b < j->blocks; b++) {
        int64_t begin = b * j->grain, end = begin + j->grain;
        j->fn(j->context, begin, end < j->n ? end : j->n, b);
    }
    inside = was;
}

void rl_parallel_for(int64_t n, int64_t grain, rl_block_fn fn, void *context)
{
    if (n <= 0)
        return;
    grain = grain < 1 ? 1 : grain;
    job j = {n, grain, (n + grain - 1) / grain, fn, context};
    pthread_once(&once, setup);
    if (j.blocks == 1 || inside || atomic_load(&wanted) <= 1 || pthread_mutex_trylock(&owner) != 0) {
        run_serially(&j);
        return;
    }
    int workers = atomic_load(&wanted) - 1;
    if (pool.workers > workers)
        stop_workers();
    start_workers(workers);
    publish(&j);
    run_blocks(&j);
    atomic_store(&pool.open, false);
    while (atomic_load(&pool.active) > 0)
        pause_cpu();
    pthread_mutex_unlock(&owner);
}

int rl_threads_get(void)
{
    pthread_once(&once, setup);
    return atomic_load(&wanted);
}

rl_status rl_threads_set(int n)
{
    if (n < 1)
        return rl_fail(RL_ERR_RUNTIME, "expected a positive number of threads, but got %d", n);
    pthread_once(&once, setup);
    atomic_store(&wanted, n > MAX_THREADS ? MAX_THREADS : n);
    return RL_OK;
}

bool rl_threads_inside(void)
{
    return inside;
}

void rl_threads_before_fork(void)
{
    pthread_mutex_lock(&owner);
    pthread_mutex_lock(&pool.lock);
}

void rl_threads_after_fork(bool child)
{
    if (child) { /* the workers are gone: begin anew */
        pool.workers = 0;
        atomic_store(&pool.active, 0);
        atomic_store(&pool.sleeping, 0);
        pthread_cond_init(&pool.wake, NULL);
    }
    pthread_mutex_unlock(&pool.lock);
    pthread_mutex_unlock(&owner);
}
