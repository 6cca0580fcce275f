/* alloc: free lists of small blocks a thread, and the caching allocator of tensor memory. See alloc.h.
 *
 * Invariants: a block of the pool has a class of POOL_STEP bytes and 64-byte alignment; a cached host block lies in the bin of its rounded
 * size, so free needs only the size that was asked for. Under AddressSanitizer nothing is cached, so that it sees every use after free.
 */
#include "alloc.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#define CACHING 0
#else
#define CACHING 1
#endif

/* ---- the switch that makes the n-th allocation fail ---- */
static atomic_bool fail_armed;
static atomic_llong fail_countdown, fail_counted;

int64_t rl_alloc_fail_after(int64_t n)
{
    int64_t counted = atomic_exchange(&fail_counted, 0);
    atomic_store(&fail_countdown, n);
    atomic_store(&fail_armed, n > 0);
    return counted;
}

static bool fails_now(void)
{
    if (RL_LIKELY(!atomic_load_explicit(&fail_armed, memory_order_relaxed)))
        return false;
    atomic_fetch_add(&fail_counted, 1);
    return atomic_fetch_sub(&fail_countdown, 1) == 1;
}

/* ---- the pool ---- */
#define POOL_STEP 64
#define POOL_CLASSES (RL_POOL_MAX / POOL_STEP)
#define POOL_SMALL (1024 / POOL_STEP)
/* Blocks of a class that a thread keeps: at most 16 KiB to 256 KiB of each. */
#define POOL_CAP(k) ((k) <= POOL_SMALL ? 256 : 64)

typedef struct pool_block {
    struct pool_block *next;
} pool_block;
typedef struct pool {
    pool_block *head[POOL_CLASSES + 1];
    int count[POOL_CLASSES + 1];
    char texts[RL_THREAD_TEXTS];
} pool;

/* A thread without a pool has this one: nothing to take from it, no room to give back to it, so the fast paths need no test of their own.
 * Thread-local is only the pointer, for a library that is loaded late has little room for thread-local data that is reached directly. */
static pool no_pool = {.count = {[0 ... POOL_CLASSES] = 1 << 30}};
static _Thread_local pool *thread_pool __attribute__((tls_model("initial-exec"))) = &no_pool;
static atomic_llong pool_bytes;
static pthread_key_t pool_key;
static pthread_once_t pool_once = PTHREAD_ONCE_INIT;

static void pool_give_back(void *p, size_t rounded)
{
    atomic_fetch_sub_explicit(&pool_bytes, (long long)rounded, memory_order_relaxed);
    free(p);
}

static void pool_end(void *p)
{
    pool *q = p;
    thread_pool = &no_pool;
    for (int k = 0; k <= POOL_CLASSES; k++) {
        while (q->head[k]) {
            pool_block *b = q->head[k];
            q->head[k] = b->next;
            pool_give_back(b, (size_t)(k ? k : 1) * POOL_STEP);
        }
    }
    free(q);
}

static void pool_make_key(void)
{
    pthread_key_create(&pool_key, pool_end);
}

/* Without memory for it the thread goes on without a pool. */
static void pool_make(void)
{
    pool *p = calloc(1, sizeof *p);
    pthread_once(&pool_once, pool_make_key);
    if (p == NULL)
        return;
    if (pthread_setspecific(pool_key, p) == 0)
        thread_pool = p;
    else
        free(p);
}

char *rl_thread_texts(void)
{
    if (RL_UNLIKELY(thread_pool == &no_pool))
        pool_make();
    return thread_pool->texts;
}

static void *pool_refill(size_t bytes)
{
    void *p = NULL;
    if (thread_pool == &no_pool)
        pool_make();
    size_t rounded = bytes ? (bytes + POOL_STEP - 1) / POOL_STEP * POOL_STEP : POOL_STEP;
    if (rounded < bytes || (p = aligned_alloc(POOL_STEP, rounded)) == NULL) {
        rl_fail(RL_ERR_MEMORY, "out of memory: %zu bytes", bytes);
        return NULL;
    }
    atomic_fetch_add_explicit(&pool_bytes, (long long)rounded, memory_order_relaxed);
    return p;
}

void *rl_pool_alloc(size_t bytes)
{
    if (RL_UNLIKELY(fails_now())) {
        rl_fail(RL_ERR_MEMORY, "out of memory: %zu bytes", bytes);
        return NULL;
    }
    if (RL_LIKELY(bytes <= RL_POOL_MAX)) {
        size_t k = (bytes + POOL_STEP - 1) / POOL_STEP;
        pool_block *b = thread_pool->head[k];
        if (RL_LIKELY(b != NULL)) {
            thread_pool->head[k] = b->next;
            thread_pool->count[k]--;
            return b;
        }
    }
    return pool_refill(bytes);
}

void rl_pool_free(void *p, size_t bytes)
{
    if (p == NULL)
        return;
    size_t k = (bytes + POOL_STEP - 1) / POOL_STEP;
    if (CACHING && bytes <= RL_POOL_MAX && thread_pool->count[k] < POOL_CAP(k)) {
        pool_block *b = p;
        b->next = thread_pool->head[k];
        thread_pool->head[k] = b;
        thread_pool->count[k]++;
        return;
    }
    pool_give_back(p, (k ? k : 1) * POOL_STEP);
}

/* ---- tensor memory ---- */
#define HUGE_PAGE ((size_t)2 << 20)
#define BINS 320
#define MAP_FROM HUGE_PAGE /* from here on by mmap, huge pages wanted */

typedef struct host_block {
    struct host_block *next;
} host_block;

static pthread_mutex_t host_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t host_once = PTHREAD_ONCE_INIT;
static host_block *bins[BINS];
static rl_host_stats stats;
static int64_t cache_cap, total_memory;

void rl_alloc_before_fork(void)
{
    pthread_mutex_lock(&host_lock);
}

void rl_alloc_after_fork(bool child)
{
    (void)child;
    pthread_mutex_unlock(&host_lock);
}

static void after_fork_parent(void)
{
    rl_alloc_after_fork(false);
}

static void after_fork_child(void)
{
    rl_alloc_after_fork(true);
}

static void host_setup(void)
{
    int64_t pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    total_memory = pages > 0 && page > 0 ? pages * page : (int64_t)4 << 30;
    if (cache_cap == 0)
        cache_cap = total_memory / 8;
    pthread_atfork(rl_alloc_before_fork, after_fork_parent, after_fork_child);
}

/* The rounded size of a request and its bin: eight steps an octave, so at most an eighth is wasted. */
static int size_class(size_t bytes, size_t *rounded)
{
    if (bytes <= 512) {
        *rounded = (bytes + 63) / 64 * 64;
        return (int)(*rounded / 64);
    }
    int log = 63 - __builtin_clzll(bytes - 1);
    size_t step = (size_t)1 << (log - 3);
    *rounded = (bytes + step - 1) / step * step;
    int bin = 9 + (log - 9) * 8 + (int)((*rounded >> (log - 3)) - 8);
    if (*rounded >= MAP_FROM)
        *rounded = (*rounded + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    return bin < BINS ? bin : BINS - 1;
}

static int64_t read_number(const char *path)
{
    char text[64];
    FILE *f = fopen(path, "r");
    if (f == NULL)
        return -1;
    int64_t v = fgets(text, sizeof text, f) && text[0] >= '0' && text[0] <= '9' ? strtoll(text, NULL, 10) : -1;
    fclose(f);
    return v;
}

static int64_t memory_available(void)
{
    char line[128];
    int64_t available = total_memory;
    FILE *f = fopen("/proc/meminfo", "r");
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, "MemAvailable:", 13) == 0)
            available = strtoll(line + 13, NULL, 10) * 1024;
    if (f)
        fclose(f);
    static const char *const cgroup[][2] = {
        {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"},
        {"/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"}, /* version 1 */
    };
    for (int k = 0; k < 2; k++) {
        int64_t limit = read_number(cgroup[k][0]), used = read_number(cgroup[k][1]);
        if (limit > 0 && used >= 0 && limit - used < available)
            available = limit > used ? limit - used : 0;
    }
    return available;
}

/* Overcommit lets a request succeed that ends in SIGKILL when it is written: refuse it here instead. */
static rl_status check_large(size_t bytes)
{
    if ((int64_t)bytes < 0 || (int64_t)bytes > total_memory / 8) {
        int64_t available = memory_available();
        if ((int64_t)bytes < 0 || (int64_t)bytes > available) {
            rl_host_trim();
            available = memory_available();
        }
        if ((int64_t)bytes < 0 || (int64_t)bytes > available)
            return rl_fail(RL_ERR_MEMORY, "DefaultCPUAllocator: can't allocate memory: you tried to allocate %zu bytes, %lld are available",
                           bytes, (long long)available);
    }
    return RL_OK;
}

static void *map_block(size_t rounded)
{
    char *p = mmap(NULL, rounded + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    size_t lead = (HUGE_PAGE - ((uintptr_t)p & (HUGE_PAGE - 1))) & (HUGE_PAGE - 1);
    if (lead)
        munmap(p, lead);
    if (HUGE_PAGE - lead)
        munmap(p + lead + rounded, HUGE_PAGE - lead);
    madvise(p + lead, rounded, MADV_HUGEPAGE);
    return p + lead;
}

static void *system_alloc(size_t rounded)
{
    return CACHING && rounded >= MAP_FROM ? map_block(rounded) : aligned_alloc(64, rounded);
}

static void system_free(void *p, size_t rounded)
{
    if (CACHING && rounded >= MAP_FROM)
        munmap(p, rounded);
    else
        free(p);
}

static void count_alloc(size_t rounded)
{
    stats.allocations++;
    stats.live_bytes += (int64_t)rounded;
    if (stats.live_bytes > stats.peak_bytes)
        stats.peak_bytes = stats.live_bytes;
}

rl_status rl_host_alloc(size_t bytes, void **out)
{
    size_t rounded;
    pthread_once(&host_once, host_setup);
    if (RL_UNLIKELY(fails_now()))
        return rl_fail(RL_ERR_MEMORY, "DefaultCPUAllocator: can't allocate memory: you tried to allocate %zu bytes", bytes);
    if (RL_UNLIKELY(bytes > SIZE_MAX / 4))
        return rl_fail(RL_ERR_MEMORY, "DefaultCPUAllocator: can't allocate memory: you tried to allocate %zu bytes", bytes);
    int bin = size_class(bytes ? bytes : 1, &rounded);
    pthread_mutex_lock(&host_lock);
    host_block *b = bin < BINS - 1 ? bins[bin] : NULL;
    if (b) {
        bins[bin] = b->next;
        stats.cached_bytes -= (int64_t)rounded;
        count_alloc(rounded);
    }
    pthread_mutex_unlock(&host_lock);
    if (b == NULL) {
        RL_RETURN(check_large(rounded));
        if ((b = system_alloc(rounded)) == NULL) {
            rl_host_trim();
            b = system_alloc(rounded);
        }
        if (b == NULL)
            return rl_fail(RL_ERR_MEMORY, "DefaultCPUAllocator: can't allocate memory: you tried to allocate %zu bytes", bytes);
        pthread_mutex_lock(&host_lock);
        count_alloc(rounded);
        pthread_mutex_unlock(&host_lock);
    }
    *out = b;
    return RL_OK;
}

void rl_host_free(void *p, size_t bytes)
{
    size_t rounded;
    if (p == NULL)
        return;
    int bin = size_class(bytes ? bytes : 1, &rounded);
    pthread_mutex_lock(&host_lock);
    stats.frees++;
    stats.live_bytes -= (int64_t)rounded;
    bool keep = CACHING && bin < BINS - 1 && stats.cached_bytes + (int64_t)rounded <= cache_cap;
    if (keep) {
        host_block *b = p;
        b->next = bins[bin];
        bins[bin] = b;
        stats.cached_bytes += (int64_t)rounded;
    }
    pthread_mutex_unlock(&host_lock);
    if (!keep)
        system_free(p, rounded);
}

void rl_host_stats_read(rl_host_stats *out)
{
    pthread_mutex_lock(&host_lock);
    *out = stats;
    out->pool_bytes = atomic_load_explicit(&pool_bytes, memory_order_relaxed);
    pthread_mutex_unlock(&host_lock);
}

/* The rounded size of every block in a bin (all blocks of a bin have one size). */
static size_t bin_size(int bin)
{
    if (bin <= 8)
        return (size_t)bin * 64;
    int log = 9 + (bin - 9) / 8;
    size_t step = (size_t)1 << (log - 3), rounded = step * (size_t)(8 + (bin - 9) % 8);
    return rounded >= MAP_FROM ? (rounded + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE : rounded;
}

void rl_host_trim(void)
{
    host_block *taken[BINS];
    pthread_mutex_lock(&host_lock);
    memcpy(taken, bins, sizeof bins);
    memset(bins, 0, sizeof bins);
    stats.cached_bytes = 0;
    pthread_mutex_unlock(&host_lock);
    for (int bin = 0; bin < BINS; bin++)
        while (taken[bin]) {
            host_block *b = taken[bin];
            taken[bin] = b->next;
            system_free(b, bin_size(bin));
        }
}

void rl_host_set_cap(int64_t bytes)
{
    pthread_once(&host_once, host_setup);
    pthread_mutex_lock(&host_lock);
    cache_cap = bytes;
    bool over = stats.cached_bytes > bytes;
    pthread_mutex_unlock(&host_lock);
    if (over)
        rl_host_trim();
}
