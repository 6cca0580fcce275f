/* sort: RL_K_SORT on the CPU: the first k of each row in order, with their places; k == n sorts.
 *
 * Every element becomes an unsigned 64-bit key whose order is the wanted one (NaN the largest, -0 equal to 0, bits flipped for descending), so one stable sort of
 * (key, place) pairs serves all dtypes; values are fetched by place, so their bits are kept. Short rows: merge sort; long ones: radix by bytes that differ; few of
 * many: a heap of k. Level-independent: there is nothing in it for vectors.
 */
#include "cpu.h"
#include "../core/alloc.h"

#include <stdatomic.h>
#include <string.h>

typedef struct pair {
    uint64_t key;
    int64_t place;
} pair;

typedef struct job {
    const rl_sort_args *a;
    int size;
    atomic_int failed;
} job;

enum { INSERTION = 16, RADIX_FROM = 1024 };

static uint64_t key_of_float(double v)
{
    uint64_t bits;
    v = v == 0 ? 0.0 : v;
    memcpy(&bits, &v, sizeof bits);
    if (v != v)
        return UINT64_MAX;
    return bits >> 63 ? ~bits : bits | (uint64_t)1 << 63;
}

static uint64_t key_at(const job *j, const char *row, int64_t i)
{
    rl_scalar s = rl_element_load(row + i * j->size, (rl_dtype)j->a->dtype);
    uint64_t key = s.kind == RL_CAT_FLOAT ? key_of_float(s.d) : (uint64_t)s.i ^ (uint64_t)1 << 63;
    return j->a->descending ? ~key : key;
}

static bool before(const pair *a, const pair *b)
{
    return a->key < b->key || (a->key == b->key && a->place < b->place);
}

static void insertion(pair *p, int64_t n)
{
    for (int64_t i = 1; i < n; i++) {
        pair x = p[i];
        int64_t k = i;
        for (; k > 0 && x.key < p[k - 1].key; k--)
            p[k] = p[k - 1];
        p[k] = x;
    }
}

/* Sorts p with the help of `other`; the result lies in the returned one. */
static pair *merge_sort(pair *p, pair *other, int64_t n)
{
    for (int64_t i = 0; i < n; i += INSERTION)
        insertion(p + i, n - i < INSERTION ? n - i : INSERTION);
    for (int64_t w = INSERTION; w < n; w *= 2) {
        for (int64_t lo = 0; lo < n; lo += 2 * w) {
            int64_t mid = lo + w < n ? lo + w : n, hi = lo + 2 * w < n ? lo + 2 * w : n, a = lo, b = mid;
            for (int64_t k = lo; k < hi; k++)
                other[k] = b >= hi || (a < mid && p[a].key <= p[b].key) ? p[a++] : p[b++];
        }
        pair *t = p;
        p = other;
        other = t;
    }
    return p;
}

static pair *radix_sort(pair *p, pair *other, int64_t n)
{
    uint64_t all_or = 0, all_and = UINT64_MAX;
    for (int64_t i = 0; i < n; i++) {
        all_or |= p[i].key;
        all_and &= p[i].key;
    }
    for (int shift = 0; shift < 64; shift += 8) {
        int64_t count[257] = {0};
        if (((all_or ^ all_and) >> shift & 255) == 0)
            continue; /* the same byte everywhere */
        for (int64_t i = 0; i < n; i++)
            count[(p[i].key >> shift & 255) + 1]++;
        for (int k = 0; k < 256; k++)
            count[k + 1] += count[k];
        for (int64_t i = 0; i < n; i++)
            other[count[p[i].key >> shift & 255]++] = p[i];
        pair *t = p;
        p = other;
        other = t;
    }
    return p;
}

static void sift_down(pair *heap, int64_t n, int64_t i)
{
    pair x = heap[i];
    for (int64_t c; (c = 2 * i + 1) < n; i = c) {
        if (c + 1 < n && before(&heap[c], &heap[c + 1]))
            c++;
        if (!before(&x, &heap[c]))
            break;
        heap[i] = heap[c];
    }
    heap[i] = x;
}

/* The k first pairs of a row, in order, by a heap whose top is the last of those kept. */
static pair *select_first(const job *j, const char *row, pair *heap, pair *other)
{
    int64_t k = j->a->k;
    for (int64_t i = 0; i < k; i++)
        heap[i] = (pair){key_at(j, row, i), i};
    for (int64_t i = k / 2 - 1; i >= 0; i--)
        sift_down(heap, k, i);
    for (int64_t i = k; i < j->a->n; i++) {
        pair x = {key_at(j, row, i), i};
        if (before(&x, &heap[0])) {
            heap[0] = x;
            sift_down(heap, k, 0);
        }
    }
    for (int64_t i = k - 1; i > 0; i--) { /* heap sort: also orders equal keys by place */
        pair x = heap[0];
        heap[0] = heap[i];
        heap[i] = x;
        sift_down(heap, i, 0);
    }
    (void)other;
    return heap;
}

static void sort_row(const job *j, const char *row, char *out, int64_t *index, pair *p, pair *other)
{
    const rl_sort_args *a = j->a;
    if (a->k > 0 && a->k < a->n / 8)
        p = select_first(j, row, p, other);
    else {
        for (int64_t i = 0; i < a->n; i++)
            p[i] = (pair){key_at(j, row, i), i};
        p = a->n >= RADIX_FROM ? radix_sort(p, other, a->n) : merge_sort(p, other, a->n);
    }
    for (int64_t i = 0; i < a->k; i++) {
        if (out)
            memcpy(out + i * j->size, row + p[i].place * j->size, (size_t)j->size);
        if (index)
            index[i] = p[i].place;
    }
}

static void run_rows(void *context, int64_t begin, int64_t end, int64_t block)
{
    job *j = context;
    const rl_sort_args *a = j->a;
    size_t bytes = (size_t)a->n * 2 * sizeof(pair);
    void *memory;
    (void)block;
    if (rl_host_alloc(bytes, &memory) != RL_OK) {
        atomic_store(&j->failed, 1);
        return;
    }
    for (int64_t r = begin; r < end; r++)
        sort_row(j, (const char *)a->in + r * a->n * j->size, a->out ? (char *)a->out + r * a->k * j->size : NULL, a->index ? a->index + r * a->k : NULL, memory,
                 (pair *)memory + a->n);
    rl_host_free(memory, bytes);
}

rl_status rl_cpu_sort(const void *args, rl_stream stream)
{
    const rl_sort_args *a = args;
    job j = {.a = a, .size = rl_dtype_size((rl_dtype)a->dtype)};
    (void)stream;
    if (a->n == 0 || a->rows == 0)
        return RL_OK;
    int64_t grain = 2048 / a->n;
    rl_parallel_for(a->rows, grain < 1 ? 1 : grain, run_rows, &j);
    return atomic_load(&j.failed) ? RL_ERR_MEMORY : RL_OK;
}
