/* elementwise.c: RL_K_ELEMENTWISE on the CPU: runs one loop of the table over any operands.
 *
 * Loops know dense operands of one compute type and whole units. This engine brings everything else to that form in blocks that stay
 * in the first-level cache: converted or strided operands are loaded into a stage, numbers fill one once, a result of
 * another type is stored from one, and the last elements are padded with zeros. Dense operands of the compute type are used in place, so
 * that
 * `x + y` is one pass. Work is split in blocks of `grain` elements whatever the number of threads.
 */
#include "elementwise.h"
#include "walk.h"

#include "../../core/alloc.h"

#include <stdatomic.h>

enum { STAGE_BYTES = 4096, ROW_MIN = 48, GRAIN_CHEAP = 65536, GRAIN_DEAR = 32768, TAIL_BYTES = RL_ELEM_UNIT * 8, STRAIGHTEN_MIN = 65536 };

typedef struct job {
    const rl_elem_args *a;
    rl_elem_loop loop;
    rl_dtype compute, result;         /* what the loop reads and writes */
    int size, result_size, out_size;  /* of an element: compute, result, out */
    int nin, block;                   /* block: elements of a stage */
    bool rows, dense_out, stream, staged; /* rows: blocks end with rows. dense_out: contiguous and of the result's type */
    bool dense[RL_ELEM_INPUTS];       /* contiguous over the whole domain and of the compute type */
    int in_size[RL_ELEM_INPUTS];
    rl_convert_fn load[RL_ELEM_INPUTS], store;
} job;

typedef struct stage {
    _Alignas(64) char in[RL_ELEM_INPUTS][STAGE_BYTES];
    _Alignas(64) char out[STAGE_BYTES];
} stage;

/* ---- one dense block ---- */

/* in[] as the loop wants them; those with a bit in `padded` reach to the end of the last unit. */
static void run_block(const job *j, void *out, const void *const *in, unsigned padded, int64_t n)
{
    _Alignas(64) char tail[RL_ELEM_INPUTS][TAIL_BYTES], last[TAIL_BYTES];
    int64_t whole = n & ~(int64_t)(RL_ELEM_UNIT - 1), rest = n - whole;
    const void *at[RL_ELEM_INPUTS];
    if (whole)
        j->loop(out, in, whole, j->a->p);
    if (!rest)
        return;
    for (int k = 0; k < RL_ELEM_INPUTS; k++) {
        at[k] = k < j->nin ? (const char *)in[k] + whole * j->size : at[0];
        if (k < j->nin && !(padded >> k & 1)) {
            memset(tail[k], 0, (size_t)(RL_ELEM_UNIT * j->size));
            memcpy(tail[k], at[k], (size_t)(rest * j->size));
            at[k] = tail[k];
        }
    }
    j->loop(last, at, RL_ELEM_UNIT, j->a->p);
    memcpy((char *)out + whole * j->result_size, last, (size_t)(rest * j->result_size));
}

static void pad(const job *j, char *block, int64_t n)
{
    int64_t rest = -n & (RL_ELEM_UNIT - 1);
    if (rest)
        memset(block + n * j->size, 0, (size_t)(rest * j->size));
}

/* A number in all of a stage that n elements need. */
static void fill_immediate(const job *j, int k, char *block, int64_t n)
{
    rl_number v = j->a->value[k];
    n = (n + RL_ELEM_UNIT - 1) & ~(int64_t)(RL_ELEM_UNIT - 1);
    for (int64_t i = 0; i < n; i++)
        switch (j->compute) {
        case RL_F32: ((float *)block)[i] = (float)v.f; break;
        case RL_F64: ((double *)block)[i] = v.f; break;
        case RL_I64: ((int64_t *)block)[i] = v.i; break;
        default: ((uint8_t *)block)[i] = (uint8_t)v.i; break;
        }
}

static bool is_immediate(const job *j, int k) { return j->a->immediate >> k & 1; }

/* Operands that the expression does not name may be NULL: any valid pointer does. */
static bool is_absent(const job *j, int k) { return !is_immediate(j, k) && !j->a->in[k]; }

static void fill_immediates(const job *j, stage *s, int64_t n)
{
    for (int k = 0; k < j->nin; k++)
        if (is_immediate(j, k))
            fill_immediate(j, k, s->in[k], n < j->block ? n : j->block);
}

/* ---- ranges of the domain ---- */

static void point_rest(const job *j, const void **in)
{
    const void *valid = NULL;
    for (int k = 0; k < j->nin; k++)
        if (in[k])
            valid = in[k];
    for (int k = 0; k < RL_ELEM_INPUTS; k++)
        if (k >= j->nin || !in[k])
            in[k] = valid;
}

/* Everything dense and of its type, numbers aside. */
static void run_dense(const job *j, int64_t begin, int64_t end)
{
    const rl_elem_args *a = j->a;
    const void *in[RL_ELEM_INPUTS] = {NULL};
    stage s;
    if (j->staged)
        fill_immediates(j, &s, end - begin);
    int64_t step = j->staged || j->stream ? j->block : end - begin;
    for (int64_t at = begin; at < end; at += step) {
        int64_t n = end - at < step ? end - at : step;
        char *out = (char *)a->out + at * j->result_size;
        for (int k = 0; k < j->nin; k++)
            in[k] = is_immediate(j, k) ? (const void *)s.in[k] : is_absent(j, k) ? NULL : (const char *)a->in[k] + at * j->size;
        point_rest(j, in);
        run_block(j, j->stream ? s.out : out, in, a->immediate, n);
        if (j->stream)
            RL_LEVEL_NAME(rl_stream_copy)(out, s.out, n * j->result_size);
    }
    if (j->stream)
        RL_LEVEL_NAME(rl_stream_end)();
}

/* n elements from the walk's place on, in logical order, into a stage. */
static void gather(const job *j, int k, const walk *from, char *block, int64_t n)
{
    const rl_elem_args *a = j->a;
    walk w = *from;
    for (int64_t at = 0; at < n;) {
        int64_t left = walk_left(&w), m = left < n - at ? left : n - at;
        j->load[k](block + at * j->size, (const char *)a->in[k] + walk_offset(&w, a->in_strides[k]), w.ndim ? a->in_strides[k][0] : 0, m);
        walk_advance(&w, m);
        at += m;
    }
}

static void scatter(const job *j, const walk *from, const char *block, int64_t n)
{
    const rl_elem_args *a = j->a;
    walk w = *from;
    for (int64_t at = 0; at < n;) {
        int64_t left = walk_left(&w), m = left < n - at ? left : n - at;
        j->store((char *)a->out + walk_offset(&w, a->out_strides), block + at * j->result_size, w.ndim ? a->out_strides[0] : 0, m);
        walk_advance(&w, m);
        at += m;
    }
}

/* Operand k of the n elements at w: in place where it is dense there, else through its stage. */
static const void *operand_at(const job *j, int k, const walk *w, int64_t at, int64_t n, stage *s, unsigned *padded)
{
    const rl_elem_args *a = j->a;
    if (is_immediate(j, k)) {
        *padded |= 1u << k;
        return s->in[k];
    }
    if (is_absent(j, k))
        return NULL;
    if (j->dense[k])
        return (const char *)a->in[k] + at * j->size;
    if (j->rows && a->in_dtype[k] == j->compute && a->in_strides[k][0] == j->size)
        return (const char *)a->in[k] + walk_offset(w, a->in_strides[k]);
    gather(j, k, w, s->in[k], n);
    pad(j, s->in[k], n);
    *padded |= 1u << k;
    return s->in[k];
}

static void run_range(void *context, int64_t begin, int64_t end, int64_t block)
{
    const job *j = context;
    const rl_elem_args *a = j->a;
    const void *in[RL_ELEM_INPUTS] = {NULL};
    stage s;
    walk w;
    if (a->contiguous) {
        run_dense(j, begin, end);
        return;
    }
    fill_immediates(j, &s, end - begin);
    walk_start(&w, a->ndim, a->shape, begin);
    for (int64_t at = begin; at < end;) {
        int64_t n = end - at < j->block ? end - at : j->block;
        if (j->rows && n > walk_left(&w))
            n = walk_left(&w);
        unsigned padded = 0;
        for (int k = 0; k < j->nin; k++)
            in[k] = operand_at(j, k, &w, at, n, &s, &padded);
        point_rest(j, in);
        bool direct = j->dense_out || (j->rows && a->out_dtype == j->result && a->out_strides[0] == j->result_size);
        char *out = j->dense_out ? (char *)a->out + at * j->result_size : (char *)a->out + walk_offset(&w, a->out_strides);
        run_block(j, direct ? out : s.out, in, padded, n);
        if (!direct)
            scatter(j, &w, s.out, n);
        for (int64_t m = n; m > 0;) {
            int64_t step = walk_left(&w) < m ? walk_left(&w) : m;
            walk_advance(&w, step);
            m -= step;
        }
        at += n;
    }
}

/* ---- integer division: a divisor of 0 is an error before anything is written ---- */

static bool has_zero(const job *j, int k)
{
    const rl_elem_args *a = j->a;
    _Alignas(64) int64_t block[STAGE_BYTES / 8];
    walk w;
    if (is_immediate(j, k))
        return a->value[k].i == 0;
    walk_start(&w, a->contiguous ? 1 : a->ndim, a->contiguous ? &a->numel : a->shape, 0);
    for (int64_t at = 0; at < a->numel;) {
        int64_t n = a->numel - at < STAGE_BYTES / 8 ? a->numel - at : STAGE_BYTES / 8, zeros = 0;
        n = n < walk_left(&w) ? n : walk_left(&w);
        int64_t offset = a->contiguous ? at * j->in_size[k] : walk_offset(&w, a->in_strides[k]);
        j->load[k](block, (const char *)a->in[k] + offset, a->contiguous ? j->in_size[k] : w.ndim ? a->in_strides[k][0] : 0, n);
        for (int64_t i = 0; i < n; i++)
            zeros += block[i] == 0;
        if (zeros)
            return true;
        walk_advance(&w, n);
        at += n;
    }
    return false;
}

/* ---- which loop ---- */

#define WRITES_RL_RULE_FLOAT 0
#define WRITES_RL_RULE_ARITH 0
#define WRITES_RL_RULE_SIGNED 0
#define WRITES_RL_RULE_NUMBER 0
#define WRITES_RL_RULE_BITWISE 0
#define WRITES_RL_RULE_SHIFT 0
#define WRITES_RL_RULE_COMPARE 1
#define WRITES_RL_RULE_LOGICAL 1
#define WRITES_RL_RULE_TEST 1
#define DEAR_RL_RULE_FLOAT 2
#define DEAR_RL_RULE_ARITH 0
#define DEAR_RL_RULE_SIGNED 0
#define DEAR_RL_RULE_NUMBER 0
#define DEAR_RL_RULE_BITWISE 0
#define DEAR_RL_RULE_SHIFT 0
#define DEAR_RL_RULE_COMPARE 0
#define DEAR_RL_RULE_LOGICAL 0
#define DEAR_RL_RULE_TEST 0

/* Bit 0: writes masks (uint8_t). Bit 1: costs several nanoseconds an element. */
static const uint8_t traits[E_COUNT] = {
#define UNARY(name, rule, ...) [E_##name] = WRITES_##rule | DEAR_##rule, [E_##name##_d1] = DEAR_##rule, [E_##name##_d2] = DEAR_##rule,
#define BINARY(name, rule, ...) [E_##name] = WRITES_##rule | DEAR_##rule,
#define TERNARY BINARY
#define ALIAS(...)
#include "../../ops/elementwise.def"
};

static rl_elem_loop find_loop(int expr, rl_dtype compute)
{
    rl_elem_loop f;
    switch (compute) {
    case RL_F32:
        f = RL_LEVEL_NAME(rl_elem_f32)[expr];
        return f ? f : RL_LEVEL_NAME(rl_elem_grad_f32)[expr];
    case RL_F64:
        f = RL_LEVEL_NAME(rl_elem_f64)[expr];
        return f ? f : RL_LEVEL_NAME(rl_elem_grad_f64)[expr];
    case RL_I64: return RL_LEVEL_NAME(rl_elem_i64)[expr];
    default: return RL_LEVEL_NAME(rl_elem_u8)[expr];
    }
}

/* u8 loops treat an element as a mask; uint8 arithmetic, and what has no such loop, computes in int64 and wraps. */
static void choose_loop(job *j)
{
    const rl_elem_args *a = j->a;
    bool masks = a->compute == RL_U8 || a->compute == RL_BOOL;
    j->compute = masks ? RL_U8 : (rl_dtype)a->compute;
    for (int k = 0; k < a->nin && masks; k++)
        masks = is_immediate(j, k) || a->in_dtype[k] == RL_BOOL;
    if (j->compute == RL_U8 && (!masks || !find_loop(a->expr, RL_U8)))
        j->compute = RL_I64;
    j->loop = find_loop(a->expr, j->compute);
}

static bool same_element(rl_dtype a, rl_dtype b)
{
    return a == b || (a == RL_U8 && b == RL_BOOL); /* a stored bool is 0 or 1 */
}

static void prepare(job *j)
{
    const rl_elem_args *a = j->a;
    j->nin = a->nin;
    j->size = rl_dtype_size(j->compute);
    j->result = traits[a->expr] & 1 ? RL_U8 : j->compute;
    if (j->result == RL_U8 && a->out_dtype == RL_BOOL)
        j->result = RL_BOOL; /* the loops' comparisons give 0 or 1, and masks of bools stay bools */
    j->result_size = rl_dtype_size(j->result);
    j->out_size = rl_dtype_size((rl_dtype)a->out_dtype);
    j->block = STAGE_BYTES / (j->size > j->result_size ? j->size : j->result_size);
    j->rows = a->ndim > 0 && a->shape[0] >= ROW_MIN;
    j->dense_out = a->out_dtype == j->result && (a->contiguous || walk_is_dense(a->ndim, a->shape, a->out_strides, j->out_size));
    for (int k = 0; k < j->nin; k++) {
        if (is_immediate(j, k)) {
            j->staged = true;
            continue;
        }
        j->in_size[k] = rl_dtype_size((rl_dtype)a->in_dtype[k]);
        j->load[k] = RL_LEVEL_NAME(rl_convert_load)(j->compute, (rl_dtype)a->in_dtype[k]);
        j->dense[k] = same_element(j->compute, (rl_dtype)a->in_dtype[k]) &&
                      (a->contiguous || walk_is_dense(a->ndim, a->shape, a->in_strides[k], j->in_size[k]));
    }
    j->store = RL_LEVEL_NAME(rl_convert_store)(j->result == RL_BOOL ? RL_U8 : j->result, (rl_dtype)a->out_dtype);
}

/* `contiguous` promises dense operands in one order; the dense way also needs them in the loop's types. Else they get strides. */
static const rl_elem_args *settle(job *j, rl_elem_args *copy)
{
    const rl_elem_args *a = j->a;
    bool dense = j->dense_out;
    for (int k = 0; k < j->nin; k++)
        dense = dense && (j->dense[k] || is_immediate(j, k) || is_absent(j, k));
    if (dense == (bool)a->contiguous)
        return a;
    *copy = *a;
    copy->contiguous = dense;
    if (!dense) {
        copy->ndim = 1;
        copy->shape[0] = a->numel;
        copy->out_strides[0] = j->out_size;
        for (int k = 0; k < j->nin; k++)
            copy->in_strides[k][0] = j->in_size[k];
        j->rows = a->numel >= ROW_MIN;
    }
    return copy;
}

/* A large operand that runs across the rows is read a cache line for each element; a tiled copy of it first reads each line once. */
static void straighten(rl_elem_args *a, int k, void **owned, size_t *bytes)
{
    int size = rl_dtype_size((rl_dtype)a->in_dtype[k]);
    rl_copy_args c = {.ndim = a->ndim, .dst_dtype = a->in_dtype[k], .src_dtype = a->in_dtype[k], .numel = a->numel, .src = a->in[k]};
    *bytes = (size_t)a->numel * (size_t)size;
    if (rl_host_alloc(*bytes, owned) != RL_OK) {
        *owned = NULL; /* slow, but right without it */
        return;
    }
    int64_t stride = size;
    for (int d = 0; d < a->ndim; d++) {
        c.shape[d] = a->shape[d];
        c.src_strides[d] = a->in_strides[k][d];
        c.dst_strides[d] = stride;
        stride *= a->shape[d];
    }
    c.dst = *owned;
    RL_LEVEL_NAME(rl_kernel_copy)(&c, NULL);
    a->in[k] = *owned;
    memcpy(a->in_strides[k], c.dst_strides, sizeof c.dst_strides);
}

static bool runs_across(const rl_elem_args *a, int k)
{
    int64_t size = rl_dtype_size((rl_dtype)a->in_dtype[k]);
    if (a->contiguous || a->immediate >> k & 1 || !a->in[k] || a->ndim < 2 || a->numel < STRAIGHTEN_MIN)
        return false;
    return a->in_strides[k][1] == size && a->in_strides[k][0] >= 8 * size && a->shape[0] >= 64 && a->shape[1] >= 16;
}

static bool divides(int expr) { return expr == E_floor_divide || expr == E_trunc_divide || expr == E_remainder || expr == E_fmod; }

enum { SMALL = 256 };

/* A few float32 elements in padded memory: one call of the loop, and nothing else. False: the general way is needed. */
static bool run_small(const rl_elem_args *a)
{
    _Alignas(64) float numbers[2][SMALL];
    const void *in[RL_ELEM_INPUTS];
    int staged = 0;
    int64_t n = (a->numel + RL_ELEM_UNIT - 1) & ~(int64_t)(RL_ELEM_UNIT - 1);
    if (a->compute != RL_F32 || a->out_dtype != RL_F32 || traits[a->expr] & 1)
        return false;
    for (int k = 0; k < RL_ELEM_INPUTS; k++) {
        in[k] = a->out;
        if (k >= a->nin)
            continue;
        if (a->immediate >> k & 1) {
            if (staged == 2)
                return false;
            for (int64_t i = 0; i < n; i++)
                numbers[staged][i] = (float)a->value[k].f;
            in[k] = numbers[staged++];
        } else if (a->in[k] && a->in_dtype[k] == RL_F32)
            in[k] = a->in[k];
        else if (a->in[k])
            return false;
    }
    rl_elem_loop loop = find_loop(a->expr, RL_F32);
    if (loop)
        loop(a->out, in, n, a->p);
    return loop != NULL;
}

static rl_status run_all(const rl_elem_args *a)
{
    job j = {.a = a};
    rl_elem_args copy;
    choose_loop(&j);
    if (!j.loop)
        return rl_fail(RL_ERR_NOT_IMPLEMENTED, "the CPU has no loop for expression %d in %s", a->expr, rl_dtype_name((rl_dtype)a->compute));
    prepare(&j);
    j.a = settle(&j, &copy);
    if (j.compute == RL_I64 && divides(a->expr) && has_zero(&j, 1))
        return rl_fail(RL_ERR_RUNTIME, "ZeroDivisionError");
    j.stream = j.a->contiguous && a->numel * j.result_size >= RL_STREAM_BYTES;
    int64_t grain = traits[a->expr] & 2 ? GRAIN_DEAR : GRAIN_CHEAP;
    if (a->numel <= grain)
        run_range(&j, 0, a->numel, 0);
    else
        rl_parallel_for(a->numel, grain, run_range, &j);
    return RL_OK;
}

rl_status RL_LEVEL_NAME(rl_kernel_elementwise)(const void *args, rl_stream stream)
{
    const rl_elem_args *a = args;
    rl_elem_args straight;
    void *owned[RL_ELEM_INPUTS] = {NULL};
    size_t bytes[RL_ELEM_INPUTS];
    bool any = false;
    if (a->numel == 0 || (a->padded && a->numel <= SMALL && run_small(a)))
        return RL_OK;
    for (int k = 0; k < a->nin && !a->contiguous; k++)
        any = any || runs_across(a, k);
    if (RL_LIKELY(!any))
        return run_all(a);
    straight = *a;
    for (int k = 0; k < a->nin; k++)
        if (runs_across(a, k) && a->in[k] != a->out)
            straighten(&straight, k, &owned[k], &bytes[k]);
    rl_status st = run_all(&straight);
    for (int k = 0; k < a->nin; k++)
        if (owned[k])
            rl_host_free(owned[k], bytes[k]);
    return st;
}
