/* gemm_float.h: the product of one float type. Included by gemm_f32.c and gemm_f64.c, which set T, V (the vector), I (its index), VL and OF(name).
 *
 * Large products: A and B are packed into panels of MR rows and NR columns (zero-padded), and a kernel of MR x NR accumulators in registers runs over KC steps of k
 * (the scheme of Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication", 2008). Strides are dealt with by the packing, so NN, NT, TN and TT
 * cost the same. Small products go over the operands where they lie, by dots or by rows. The order of additions over k depends on sizes only, never on the
 * number of threads. Compiled with contraction: a product and its sum are one rounding.
 */
#include "gemm.h"
#include "vec.h"

#include <string.h>

#if VEC_BYTES == 64
enum { MR = 12 };
#elif VEC_BYTES == 32
enum { MR = 6 };
#else
enum { MR = 4 };
#endif
enum { NR = 2 * VL, KC = 256, NC = 3072 };

typedef struct product {
    const rl_gemm_args *a;
    const T *A, *B; /* of this batch */
    T *C;
    T *panels; /* packed B: panel j has kc x NR */
    char *scratch;
    int64_t mc, pc, kc, jc, nc;
    bool first, last; /* block of k */
} product;

/* ---- packing ---- */

/* VL rows of VL elements (rows beyond `rows` are zeros), turned: column k of `from` becomes row k of `to`. Each step swaps halves of lanes between rows that are
 * `s` apart, for s = 1, 2, 4 … */
static inline void turn(T *to, int64_t to_stride, const T *from, int64_t from_stride, int64_t rows)
{
    V r[VL];
    for (int j = 0; j < VL; j++)
        r[j] = j < rows ? OF(vec_load)(from + j * from_stride) : (V){0};
#pragma GCC unroll 4
    for (int s = 1; s < VL; s *= 2) {
        I low, high;
#pragma GCC unroll 16
        for (int l = 0; l < VL; l++) {
            low[l] = l & s ? VL + l - s : l;
            high[l] = l & s ? VL + l : l + s;
        }
#pragma GCC unroll 16
        for (int j = 0; j < VL; j++)
            if (!(j & s)) {
                V a = r[j], b = r[j + s];
                r[j] = __builtin_shuffle(a, b, low);
                r[j + s] = __builtin_shuffle(a, b, high);
            }
    }
    for (int k = 0; k < VL; k++)
        OF(vec_store)(to + k * to_stride, r[k]);
}

/* A full panel of rows that lie along k. A store reaches past the panel's MR where VL does not divide it; what it hits is written after it: later steps of k by the
 * same group of rows, then the groups to its left; past the last step lies spare room. */
static void pack_a_turned(const product *p, T *to, const T *from, int64_t row)
{
    int64_t whole = p->kc / VL * VL;
    for (int r = (MR - 1) / VL * VL; r >= 0; r -= VL) {
        int64_t rows = MR - r < VL ? MR - r : VL;
        for (int64_t k = 0; k < whole; k += VL)
            turn(to + k * MR + r, MR, from + r * row + k, row, rows);
    }
    for (int64_t k = whole; k < p->kc; k++)
        for (int r = 0; r < MR; r++)
            to[k * MR + r] = from[r * row + k];
}

static void pack_a(const product *p, T *to, int64_t i0, int64_t rows)
{
    const rl_gemm_args *a = p->a;
    for (int64_t i = 0; i < rows; i += MR) {
        int64_t m = rows - i < MR ? rows - i : MR;
        const T *from = p->A + (i0 + i) * a->a_row + p->pc * a->a_col;
        if (m == MR && a->a_row == 1) {
            for (int64_t k = 0; k < p->kc; k++, to += MR)
                for (int r = 0; r < MR; r++)
                    to[r] = from[k * a->a_col + r];
            continue;
        }
        if (m == MR && a->a_col == 1) {
            pack_a_turned(p, to, from, a->a_row);
            to += MR * p->kc;
            continue;
        }
        for (int64_t k = 0; k < p->kc; k++, to += MR) {
            int64_t r = 0;
            for (; r < m; r++)
                to[r] = from[r * a->a_row + k * a->a_col];
            for (; r < MR; r++)
                to[r] = 0;
        }
    }
}

static void pack_b_panel(const product *p, int64_t panel)
{
    const rl_gemm_args *a = p->a;
    int64_t j0 = panel * NR, n = p->nc - j0 < NR ? p->nc - j0 : NR;
    T *to = p->panels + panel * NR * p->kc;
    const T *from = p->B + p->pc * a->b_row + (p->jc + j0) * a->b_col;
    if (n == NR && a->b_col == 1) {
        for (int64_t k = 0; k < p->kc; k++)
            memcpy(to + k * NR, from + k * a->b_row, NR * sizeof(T));
        return;
    }
    if (n == NR && a->b_row == 1) {
        int64_t whole = p->kc / VL * VL;
        for (int64_t k = 0; k < whole; k += VL)
            for (int h = 0; h < NR; h += VL)
                turn(to + k * NR + h, NR, from + k + h * a->b_col, a->b_col, VL);
        for (int64_t k = whole; k < p->kc; k++)
            for (int64_t j = 0; j < NR; j++)
                to[k * NR + j] = from[k + j * a->b_col];
        return;
    }
    if (n < NR)
        memset(to, 0, (size_t)(NR * p->kc) * sizeof(T));
    for (int64_t k = 0; k < p->kc; k++)
        for (int64_t j = 0; j < n; j++)
            to[k * NR + j] = from[k * a->b_row + j * a->b_col];
}

static void pack_panels(void *context, int64_t begin, int64_t end, int64_t block)
{
    (void)block;
    for (int64_t j = begin; j < end; j++)
        pack_b_panel(context, j);
}

/* ---- the kernel ---- */

/* What becomes of a tile of sums: alpha, beta or what earlier blocks of k left, bias and relu. */
static void write_tile(const product *p, const T *sums, int64_t i0, int64_t j0, int64_t m, int64_t n)
{
    const rl_gemm_args *a = p->a;
    const T *bias = a->bias && p->last ? (const T *)a->bias + j0 : NULL;
    T alpha = (T)a->alpha, beta = p->first ? (T)a->beta : 1;
    for (int64_t i = 0; i < m; i++) {
        T *c = p->C + (i0 + i) * a->c_row + j0 * a->c_col;
        const T *s = sums + i * NR;
        for (int64_t j = 0; j < n; j++) {
            T v = alpha * s[j];
            if (beta != 0)
                v += beta * c[j * a->c_col];
            if (bias)
                v += bias[j];
            c[j * a->c_col] = a->relu && p->last && v < 0 ? 0 : v;
        }
    }
}

static inline __attribute__((always_inline)) void multiply(const T *A, const T *B, int64_t kc, V (*acc)[2])
{
    for (int64_t k = 0; k < kc; k++, A += MR, B += NR) {
        V b0 = OF(vec_load)(B), b1 = OF(vec_load)(B + VL);
#pragma GCC unroll 12
        for (int i = 0; i < MR; i++) {
            V x = OF(vec_splat)(A[i]);
            acc[i][0] += x * b0;
            acc[i][1] += x * b1;
        }
    }
}

static void tile(const product *p, const T *A, const T *B, int64_t i0, int64_t j0, int64_t m, int64_t n)
{
    V acc[MR][2] = {{{0}}};
    _Alignas(64) T sums[MR * NR];
    const rl_gemm_args *a = p->a;
    multiply(A, B, p->kc, acc);
    if (m == MR && n == NR && a->c_col == 1 && a->alpha == 1 && a->bias == NULL && !a->relu && (!p->first || a->beta == 0)) {
        T *c = p->C + i0 * a->c_row + j0;
        for (int i = 0; i < MR; i++, c += a->c_row) {
            V s0 = acc[i][0], s1 = acc[i][1];
            if (!p->first) {
                s0 += OF(vec_load)(c);
                s1 += OF(vec_load)(c + VL);
            }
            OF(vec_store)(c, s0);
            OF(vec_store)(c + VL, s1);
        }
        return;
    }
    for (int i = 0; i < MR; i++) {
        OF(vec_store)(sums + i * NR, acc[i][0]);
        OF(vec_store)(sums + i * NR + VL, acc[i][1]);
    }
    write_tile(p, sums, i0, j0, m, n);
}

/* One block of rows against all packed panels. */
static void run_rows(void *context, int64_t begin, int64_t end, int64_t block)
{
    const product *p = context;
    T *packed = (T *)(p->scratch + (size_t)block * (size_t)((p->mc + MR) * KC + NR) * sizeof(T));
    int64_t i0 = begin, rows = end - begin;
    pack_a(p, packed, i0, rows);
    for (int64_t j = 0; j < p->nc; j += NR)
        for (int64_t i = 0; i < rows; i += MR)
            tile(p, packed + i * p->kc, p->panels + j * p->kc, i0 + i, p->jc + j, rows - i < MR ? rows - i : MR, p->nc - j < NR ? p->nc - j : NR);
}

/* Rows of a block: enough blocks for every thread, each about the second-level cache. The result does not depend on it. */
static int64_t rows_of_block(const rl_gemm_args *a)
{
    double work = (double)a->m * (double)a->n * (double)a->k;
    int64_t threads = work < 1.2e6 ? 1 : rl_threads_get(), mc = (a->m + threads - 1) / threads;
    mc = mc > 20 * MR ? 20 * MR : mc;
    return (mc + MR - 1) / MR * MR;
}

static rl_status run_packed(const rl_gemm_args *a, const T *A, const T *B, T *C)
{
    product p = {.a = a, .A = A, .B = B, .C = C, .mc = rows_of_block(a)};
    int64_t nc = a->n < NC ? (a->n + NR - 1) / NR * NR : NC, kc = a->k < KC ? a->k : KC, blocks = (a->m + p.mc - 1) / p.mc;
    size_t panel_bytes = ((size_t)(nc * kc) * sizeof(T) + 63) / 64 * 64, bytes = panel_bytes + (size_t)blocks * (size_t)((p.mc + MR) * KC + NR) * sizeof(T);
    void *memory;
    bool serial = p.mc >= a->m;
    RL_RETURN(rl_host_alloc(bytes, &memory));
    p.panels = memory;
    p.scratch = (char *)memory + panel_bytes;
    for (p.jc = 0; p.jc < a->n; p.jc += NC) {
        p.nc = a->n - p.jc < NC ? a->n - p.jc : NC;
        for (p.pc = 0; p.pc < a->k; p.pc += KC) {
            p.kc = a->k - p.pc < KC ? a->k - p.pc : KC;
            p.first = p.pc == 0;
            p.last = p.pc + KC >= a->k;
            int64_t panels = (p.nc + NR - 1) / NR;
            if (serial)
                pack_panels(&p, 0, panels, 0);
            else
                rl_parallel_for(panels, 1 + 32768 / (NR * p.kc), pack_panels, &p);
            rl_parallel_for(a->m, p.mc, run_rows, &p);
        }
    }
    rl_host_free(memory, bytes);
    return RL_OK;
}

/* ---- small ---- */
static inline T dot(const T *x, const T *y, int64_t k)
{
    V acc = {0}, acc2 = {0};
    T sum = 0;
    int64_t i = 0;
    for (; i + 2 * VL <= k; i += 2 * VL) {
        acc += OF(vec_load)(x + i) * OF(vec_load)(y + i);
        acc2 += OF(vec_load)(x + i + VL) * OF(vec_load)(y + i + VL);
    }
    if (i + VL <= k) {
        acc += OF(vec_load)(x + i) * OF(vec_load)(y + i);
        i += VL;
    }
    if (i > 0)
        sum = OF(vec_sum)(acc + acc2);
    for (; i < k; i++)
        sum += x[i] * y[i];
    return sum;
}

static inline void put(const rl_gemm_args *a, T *c, T sum, int64_t j)
{
    T v = (T)a->alpha * sum;
    if (a->beta != 0)
        v += (T)a->beta * *c;
    if (a->bias)
        v += ((const T *)a->bias)[j];
    *c = a->relu && v < 0 ? 0 : v;
}

/* Rows of A and columns of B both lie along k. */
static void run_dots(const rl_gemm_args *a, const T *A, const T *B, T *C)
{
    for (int64_t i = 0; i < a->m; i++)
        for (int64_t j = 0; j < a->n; j++)
            put(a, C + i * a->c_row + j * a->c_col, dot(A + i * a->a_row, B + j * a->b_col, a->k), j);
}

enum { ROW = 256 };

/* A row of C is a sum of rows of B (or of its strided columns), ROW columns at a time. */
static void run_row_sums(const rl_gemm_args *a, const T *A, const T *B, T *C)
{
    T sums[ROW];
    for (int64_t i = 0; i < a->m; i++)
        for (int64_t j0 = 0; j0 < a->n; j0 += ROW) {
            int64_t n = a->n - j0 < ROW ? a->n - j0 : ROW;
            memset(sums, 0, (size_t)n * sizeof *sums);
            for (int64_t k = 0; k < a->k; k++) {
                T x = A[i * a->a_row + k * a->a_col];
                const T *b = B + k * a->b_row + j0 * a->b_col;
                if (a->b_col == 1)
                    for (int64_t j = 0; j < n; j++)
                        sums[j] += x * b[j];
                else
                    for (int64_t j = 0; j < n; j++)
                        sums[j] += x * b[j * a->b_col];
            }
            for (int64_t j = 0; j < n; j++)
                put(a, C + i * a->c_row + (j0 + j) * a->c_col, sums[j], j0 + j);
        }
}

static bool is_small(const rl_gemm_args *a)
{
    return a->m * a->n * a->k <= 8192 || (a->m < 4 && (a->b_col == 1 || (a->b_row == 1 && a->a_col == 1))) || (a->n < 4 && a->b_row == 1 && a->a_col == 1);
}

static rl_status run_one(const rl_gemm_args *a, const T *A, const T *B, T *C)
{
    if (!is_small(a))
        return run_packed(a, A, B, C);
    if (a->b_row == 1 && a->a_col == 1 && (a->b_col != 1 || a->k >= VL))
        run_dots(a, A, B, C);
    else
        run_row_sums(a, A, B, C);
    return RL_OK;
}

typedef struct batch {
    const rl_gemm_args *a;
    atomic_int failed;
} batch;

static void run_batch(void *context, int64_t begin, int64_t end, int64_t block)
{
    batch *b = context;
    const rl_gemm_args *a = b->a;
    (void)block;
    for (int64_t k = begin; k < end; k++)
        if (run_one(a, (const T *)a->a + k * a->a_batch, (const T *)a->b + k * a->b_batch, (T *)a->c + k * a->c_batch) != RL_OK)
            atomic_store(&b->failed, 1);
}

rl_status RL_LEVEL_NAME(OF(rl_gemm))(const rl_gemm_args *a)
{
    batch b = {.a = a};
    double each = (double)a->m * (double)a->n * (double)a->k;
    if (a->batch == 1)
        return run_one(a, a->a, a->b, a->c);
    int64_t grain = each > 0 ? (int64_t)(1e6 / each) + 1 : a->batch;
    rl_parallel_for(a->batch, grain, run_batch, &b);
    return atomic_load(&b.failed) ? rl_fail(RL_ERR_MEMORY, "out of memory for a product of %lldx%lldx%lld", (long long)a->m, (long long)a->k, (long long)a->n) : RL_OK;
}
