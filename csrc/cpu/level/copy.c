/* copy.c: RL_K_COPY on the CPU, and the stores that go past the caches.
 *
 * A dense pair of one dtype is a block copy; everything else goes row by row, a conversion through blocks of a compute type.
 * A transposed pair goes through square tiles in a dense buffer: whole cache lines are read and whole ones written, though both sides have
 * strides (often a power of two, which would throw lines out of the cache before they are used up). Blocks of fixed size, whatever the threads.
 */
#include "walk.h"

#if defined(__SSE2__)
#include <immintrin.h>
#endif

enum { GRAIN = 65536, TILE = 64, VIA_BLOCK = 512 };

typedef struct job {
    const rl_copy_args *a;
    int size, dst_size, src_size; /* size: of one dtype, 0 when converted */
    bool dense, stream, transposed; /* transposed: dense across the rows, not along them */
    rl_dtype via;
    rl_convert_fn load, store; /* NULL: the type is `via` already */
} job;

/* ---- past the caches ---- */

void RL_LEVEL_NAME(rl_stream_copy)(void *dst, const void *src, int64_t bytes)
{
#if defined(__SSE2__)
    char *d = dst;
    const char *s = src;
    if (((uintptr_t)d & 15) == 0) {
        int64_t i = 0;
#if defined(__AVX512F__)
        if (((uintptr_t)d & 63) == 0)
            for (; i + 64 <= bytes; i += 64)
                _mm512_stream_si512((__m512i *)(d + i), _mm512_loadu_si512(s + i));
#endif
        for (; i + 16 <= bytes; i += 16)
            _mm_stream_si128((__m128i *)(d + i), _mm_loadu_si128((const __m128i *)(s + i)));
        memcpy(d + i, s + i, (size_t)(bytes - i));
        return;
    }
#endif
    memcpy(dst, src, (size_t)bytes);
}

void RL_LEVEL_NAME(rl_stream_end)(void)
{
#if defined(__SSE2__)
    _mm_sfence();
#endif
}

/* ---- one row ---- */

#define ROW_LOOP(T)                                       \
    {                                                     \
        for (int64_t i = 0; i < n; i++)                   \
            *(T *)(d + i * ds) = *(const T *)(s + i * ss); \
        break;                                            \
    }

static void copy_row(char *d, int64_t ds, const char *s, int64_t ss, int64_t n, int size)
{
    if (ds == size && ss == size) {
        memcpy(d, s, (size_t)(n * size));
        return;
    }
    switch (size) {
    case 1: ROW_LOOP(uint8_t)
    case 2: ROW_LOOP(uint16_t)
    case 4: ROW_LOOP(uint32_t)
    default: ROW_LOOP(uint64_t)
    }
}

/* t[r][k] = from[k][r] for m rows of the source and n1 <= TILE of the destination. */
#define TILE_LOOP(T)                                                    \
    {                                                                   \
        T *t = (T *)tile;                                               \
        for (int64_t k = 0; k < m; k++) {                               \
            const T *from = (const T *)(s + k * stride);                \
            for (int64_t r = 0; r < n1; r++)                            \
                t[r * TILE + k] = from[r];                              \
        }                                                               \
        return;                                                         \
    }

typedef uint32_t quad __attribute__((vector_size(16), aligned(4), may_alias));

/* Four rows by four columns in registers. */
static void transpose_quad(uint32_t *t, const char *s, int64_t stride)
{
    const quad even = {0, 4, 1, 5}, odd = {2, 6, 3, 7}, low = {0, 1, 4, 5}, high = {2, 3, 6, 7};
    quad a = *(const quad *)s, b = *(const quad *)(s + stride), c = *(const quad *)(s + 2 * stride), d = *(const quad *)(s + 3 * stride);
    quad ab = __builtin_shuffle(a, b, even), cd = __builtin_shuffle(c, d, even);
    quad ef = __builtin_shuffle(a, b, odd), gh = __builtin_shuffle(c, d, odd);
    *(quad *)t = __builtin_shuffle(ab, cd, low);
    *(quad *)(t + TILE) = __builtin_shuffle(ab, cd, high);
    *(quad *)(t + 2 * TILE) = __builtin_shuffle(ef, gh, low);
    *(quad *)(t + 3 * TILE) = __builtin_shuffle(ef, gh, high);
}

static void fill_tile(char *tile, const char *s, int64_t stride, int64_t m, int64_t n1, int size)
{
    if (size == 4 && m == TILE && n1 == TILE) {
        for (int64_t k = 0; k < TILE; k += 4)
            for (int64_t r = 0; r < TILE; r += 4)
                transpose_quad((uint32_t *)tile + r * TILE + k, s + k * stride + r * 4, stride);
        return;
    }
    switch (size) {
    case 1: TILE_LOOP(uint8_t)
    case 2: TILE_LOOP(uint16_t)
    case 4: TILE_LOOP(uint32_t)
    default: TILE_LOOP(uint64_t)
    }
}

/* n1 <= TILE whole rows of n0, where the source is dense across the rows. */
static void copy_tile(const job *j, char *d, const char *s, int64_t n0, int64_t n1)
{
    const int64_t *ds = j->a->dst_strides, *ss = j->a->src_strides;
    int size = j->size;
    _Alignas(64) char tile[TILE * TILE * 8];
    for (int64_t i = 0; i < n0; i += TILE) {
        int64_t m = n0 - i < TILE ? n0 - i : TILE;
        fill_tile(tile, s + i * ss[0], ss[0], m, n1, size);
        for (int64_t r = 0; r < n1; r++)
            if (j->stream)
                RL_LEVEL_NAME(rl_stream_copy)(d + r * ds[1] + i * size, tile + r * TILE * size, m * size);
            else
                copy_row(d + r * ds[1] + i * ds[0], ds[0], tile + r * TILE * size, size, m, size);
    }
}

static void convert_row(const job *j, char *d, int64_t ds, const char *s, int64_t ss, int64_t n)
{
    _Alignas(64) char block[VIA_BLOCK * 8];
    for (int64_t i = 0; i < n; i += VIA_BLOCK) {
        int64_t m = n - i < VIA_BLOCK ? n - i : VIA_BLOCK;
        bool direct = ds == j->dst_size && j->via == (rl_dtype)j->a->dst_dtype;
        if (!direct && !j->load && ss == j->src_size) {
            j->store(d + i * ds, s + i * ss, ds, m);
            continue;
        }
        rl_convert_fn load = j->load ? j->load : RL_LEVEL_NAME(rl_convert_load)(j->via, j->via);
        load(direct ? d + i * ds : block, s + i * ss, ss, m);
        if (!direct)
            j->store(d + i * ds, block, ds, m);
    }
}

/* ---- ranges of the domain ---- */

static void copy_dense(const job *j, int64_t begin, int64_t end)
{
    char *d = (char *)j->a->dst + begin * j->size;
    const char *s = (const char *)j->a->src + begin * j->size;
    int64_t bytes = (end - begin) * j->size;
    if (j->stream) {
        RL_LEVEL_NAME(rl_stream_copy)(d, s, bytes);
        RL_LEVEL_NAME(rl_stream_end)();
    } else {
        memcpy(d, s, (size_t)bytes);
    }
}

/* Rows of this plane that a tile may take at w: whole ones, in the range, and only where the source runs across them. */
static int64_t tile_rows(const job *j, const walk *w, int64_t left)
{
    const rl_copy_args *a = j->a;
    if (!j->transposed || w->index[0])
        return 0;
    int64_t rows = a->shape[1] - w->index[1];
    rows = rows < left / a->shape[0] ? rows : left / a->shape[0];
    return rows < TILE ? rows : TILE;
}

static void copy_range(void *context, int64_t begin, int64_t end, int64_t block)
{
    const job *j = context;
    const rl_copy_args *a = j->a;
    walk w;
    if (j->dense) {
        copy_dense(j, begin, end);
        return;
    }
    walk_start(&w, a->ndim, a->shape, begin);
    for (int64_t at = begin; at < end;) {
        char *d = (char *)a->dst + walk_offset(&w, a->dst_strides);
        const char *s = (const char *)a->src + walk_offset(&w, a->src_strides);
        int64_t rows = tile_rows(j, &w, end - at), n = walk_left(&w) < end - at ? walk_left(&w) : end - at;
        int64_t ds = w.ndim ? a->dst_strides[0] : 0, ss = w.ndim ? a->src_strides[0] : 0;
        if (rows > 1) {
            copy_tile(j, d, s, n, rows);
            for (int64_t r = 0; r < rows; r++)
                walk_advance(&w, n);
            at += rows * n;
            continue;
        }
        if (j->size)
            copy_row(d, ds, s, ss, n, j->size);
        else
            convert_row(j, d, ds, s, ss, n);
        walk_advance(&w, n);
        at += n;
    }
    if (j->stream)
        RL_LEVEL_NAME(rl_stream_end)();
}

rl_status RL_LEVEL_NAME(rl_kernel_copy)(const void *args, rl_stream stream)
{
    const rl_copy_args *a = args;
    rl_dtype dd = (rl_dtype)a->dst_dtype, sd = (rl_dtype)a->src_dtype;
    job j = {.a = a, .dst_size = rl_dtype_size(dd), .src_size = rl_dtype_size(sd)};
    if (a->numel == 0)
        return RL_OK;
    if (dd == sd) {
        j.size = j.dst_size;
        j.dense = walk_is_dense(a->ndim, a->shape, a->dst_strides, j.size) && walk_is_dense(a->ndim, a->shape, a->src_strides, j.size);
        j.transposed = !j.dense && a->ndim > 1 && a->src_strides[1] == j.size && a->src_strides[0] != j.size && a->shape[0] >= 16 && a->shape[1] > 1;
        j.stream = (j.dense || (j.transposed && a->dst_strides[0] == j.size)) && a->numel * j.size >= RL_STREAM_BYTES;
    } else {
        j.via = RL_LEVEL_NAME(rl_convert_via)(dd, sd);
        j.load = j.via == sd ? NULL : RL_LEVEL_NAME(rl_convert_load)(j.via, sd);
        j.store = RL_LEVEL_NAME(rl_convert_store)(j.via, dd);
    }
    int64_t grain = GRAIN;
    if (j.transposed) { /* whole tiles: a block is a multiple of TILE rows, or a plane */
        int64_t rows = a->shape[0] * (a->shape[1] < TILE ? a->shape[1] : TILE);
        grain = rows * ((GRAIN + rows - 1) / rows);
    }
    if (a->numel <= grain)
        copy_range(&j, 0, a->numel, 0);
    else
        rl_parallel_for(a->numel, grain, copy_range, &j);
    return RL_OK;
}
