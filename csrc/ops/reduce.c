/* reduce.c: one pass over the axes of a mask, and the operators that are just that: sum, mean, prod, any, all, counts, logsumexp.
 *
 * Invariant: results are contiguous, as PyTorch's are, whatever the input's strides. The kernel sees at most 8 kept and 8 reduced
 * dimensions, merged where the strides allow; an input that does not merge is copied with the reduced axes last.
 */
#include "derivs.h"

#include <math.h>
#include <string.h>

/* ---- the pass ---- */

/* One side of the domain while it is gathered, innermost first; out strides only for kept ones. */
typedef struct side {
    int n;
    int64_t size[RL_MAX_NDIM], in[RL_MAX_NDIM], out[RL_MAX_NDIM];
} side;

static void side_push(side *s, int64_t size, int64_t in, int64_t out)
{
    int last = s->n - 1;
    if (last >= 0 && in == s->in[last] * s->size[last] && out == s->out[last] * s->size[last]) {
        s->size[last] *= size;
        return;
    }
    s->size[s->n] = size;
    s->in[s->n] = in;
    s->out[s->n++] = out;
}

/* The order of the reduced axes does not matter when no index comes out: by stride, more of them merge. */
static void side_sort(side *s)
{
    side sorted = {.n = 0};
    for (int k = 0; k < s->n; k++) {
        int at = k;
        int64_t size = s->size[k], in = s->in[k];
        for (; at > 0 && s->in[at - 1] > in; at--) {
            s->size[at] = s->size[at - 1];
            s->in[at] = s->in[at - 1];
        }
        s->size[at] = size;
        s->in[at] = in;
    }
    for (int k = 0; k < s->n; k++)
        side_push(&sorted, s->size[k], s->in[k], 0);
    memcpy(s, &sorted, sizeof *s);
}

static bool gives_index(int op) { return op == RL_RED_ARGMAX || op == RL_RED_ARGMIN || op == RL_RED_MAX_INDEX || op == RL_RED_MIN_INDEX; }

static void gather_sides(const rl_tensor *x, const rl_reduction *how, side *kept, side *reduced)
{
    int64_t size = rl_tensor_itemsize(x), step = 1;
    kept->n = reduced->n = 0;
    for (int d = x->ndim - 1; d >= 0; d--) {
        if (x->shape[d] == 1)
            continue;
        if (how->mask >> d & 1) {
            side_push(reduced, x->shape[d], x->strides[d] * size, 0);
        } else {
            side_push(kept, x->shape[d], x->strides[d] * size, step);
            step *= x->shape[d];
        }
    }
    if (reduced->n > 1 && !gives_index(how->op))
        side_sort(reduced);
}

static void fill_args(rl_reduce_args *a, const side *kept, const side *reduced, int out_size, int out2_size)
{
    a->nkept = a->nreduced = 1;
    a->nkeep = (uint8_t)kept->n;
    a->nreduce = (uint8_t)reduced->n;
    for (int k = 0; k < kept->n; k++) {
        a->keep[k] = kept->size[k];
        a->in_keep_strides[k] = kept->in[k];
        a->out_strides[k] = kept->out[k] * out_size;
        a->out2_strides[k] = kept->out[k] * out2_size;
        a->nkept *= kept->size[k];
    }
    for (int k = 0; k < reduced->n; k++) {
        a->reduce[k] = reduced->size[k];
        a->in_reduce_strides[k] = reduced->in[k];
        a->nreduced *= reduced->size[k];
    }
}

/* A contiguous copy with the kept axes first: it merges to one kept and one reduced dimension. */
static rl_status regroup(rl_tensor *x, uint64_t *mask, rl_tensor **out)
{
    int64_t order[RL_MAX_NDIM];
    int n = 0;
    rl_tensor *turned = NULL;
    rl_status st = RL_OK;
    bool grad = rl_grad_off();
    for (int pass = 0; pass < 2; pass++)
        for (int d = 0; d < x->ndim; d++)
            if ((int)(*mask >> d & 1) == pass)
                order[n++] = d;
    uint64_t all = x->ndim == 64 ? ~0ull : (1ull << x->ndim) - 1; /* a mask of every bit stands for all axes there are */
    int kept = x->ndim - __builtin_popcountll(*mask & all);
    RL_TRY(rl_permute(x, n, order, &turned));
    RL_TRY(rl_contiguous(turned, out));
    *mask = kept == 64 ? 0 : all >> kept << kept;
fail:
    rl_grad_restore(grad);
    rl_tensor_release(turned);
    return st;
}

static rl_status run_regrouped(rl_tensor *x, const rl_reduction *how, rl_reduce_args *a, side *kept, side *reduced, rl_tensor *out,
                               rl_tensor *out2)
{
    rl_tensor *grouped = NULL;
    rl_reduction turned = *how;
    RL_RETURN(regroup(x, &turned.mask, &grouped));
    gather_sides(grouped, &turned, kept, reduced);
    a->in = rl_tensor_data(grouped);
    fill_args(a, kept, reduced, rl_tensor_itemsize(out), out2 ? rl_tensor_itemsize(out2) : 0);
    rl_status st = rl_launch(out, RL_K_REDUCE, a);
    rl_tensor_release(grouped);
    return st;
}

rl_status rl_reduce_run(rl_tensor *x, const rl_reduction *how, rl_tensor **out, rl_tensor **out2)
{
    int64_t shape[RL_MAX_NDIM];
    side kept, reduced;
    rl_tensor *o = NULL, *o2 = NULL;
    rl_status st = RL_OK;
    rl_reduce_args a;
    int n = rl_reduced_shape(x, how->mask, how->keepdim, shape);
    RL_TRY(rl_tensor_empty(n, shape, how->dtype, rl_tensor_device(x), &o));
    if (out2)
        RL_TRY(rl_tensor_empty(n, shape, how->dtype2, rl_tensor_device(x), &o2));
    if (o->numel > 0) {
        a.op = how->op;
        a.in_dtype = x->dtype;
        a.out_dtype = (uint8_t)how->dtype;
        a.p = how->p;
        a.in = rl_tensor_data(x);
        a.out = rl_tensor_data(o);
        a.out2 = o2 ? rl_tensor_data(o2) : NULL;
        gather_sides(x, how, &kept, &reduced);
        if (RL_LIKELY(kept.n <= RL_ARG_DIMS && reduced.n <= RL_ARG_DIMS)) {
            fill_args(&a, &kept, &reduced, rl_tensor_itemsize(o), o2 ? rl_tensor_itemsize(o2) : 0);
            RL_TRY(rl_launch(x, RL_K_REDUCE, &a));
        } else {
            RL_TRY(run_regrouped(x, how, &a, &kept, &reduced, o, o2));
        }
    }
    *out = o;
    if (out2)
        *out2 = o2;
    return RL_OK;
fail:
    rl_tensor_release(o);
    rl_tensor_release(o2);
    return st;
}

rl_status rl_arg_axes(const rl_arg *a, int ndim, uint64_t *mask)
{
    return rl_axes_normalize(a->given ? a->ints.v : NULL, a->given ? a->ints.n : 0, ndim, true, mask);
}

/* ---- recording: attrs are mask, keepdim; the list is the input's shape ---- */

static rl_status record(const rl_node_class *cls, const char *name, rl_tensor *x, rl_tensor *out, const rl_reduction *how, int nsaved,
                        rl_node **node)
{
    RL_RETURN(rl_record(cls, &x, 1, &out, 1, nsaved, node));
    if (!*node)
        return RL_OK;
    (*node)->name = name;
    (*node)->attrs.i[0] = (int64_t)how->mask;
    (*node)->attrs.i[1] = how->keepdim;
    return rl_node_set_list(*node, x->shape, x->ndim);
}

/* PyTorch sums in the dtype asked for: the input is converted first, except where the kernel's accumulator does the same. */
static rl_status in_dtype(rl_tensor *x, rl_dtype d, rl_tensor **out)
{
    bool direct = x->dtype == d || (!rl_dtype_is_float((rl_dtype)x->dtype) && d == RL_I64)
        || ((x->dtype == RL_F16 || x->dtype == RL_BF16) && d == RL_F32);
    if (direct) {
        *out = rl_tensor_retain(x);
        return RL_OK;
    }
    bool grad = rl_grad_off();
    rl_status st = rl_cast(x, d, out);
    rl_grad_restore(grad);
    return st;
}

static rl_dtype sum_dtype(const rl_tensor *x, rl_dtype asked)
{
    return asked != RL_DTYPE_NONE ? asked : rl_dtype_is_float((rl_dtype)x->dtype) ? (rl_dtype)x->dtype : RL_I64;
}

/* sum, mean, nansum, prod: one kernel, one node. saved: bit 0 the input, bit 1 the result. */
static rl_status accumulate(rl_tensor *x, rl_reduction *how, rl_dtype d, const rl_node_class *cls, const char *name, int saved,
                            rl_tensor **out)
{
    rl_tensor *in = NULL, *o = NULL;
    rl_node *node;
    rl_status st = RL_OK;
    how->dtype = d;
    RL_TRY(in_dtype(x, d, &in));
    RL_TRY(rl_reduce_run(in, how, &o, NULL));
    if (rl_dtype_is_float(d)) {
        RL_TRY(record(cls, name, x, o, how, saved ? 2 : 0, &node));
        if (node && saved & 1)
            RL_TRY(rl_node_save(node, 0, x, -1));
        if (node && saved & 2)
            RL_TRY(rl_node_save(node, 1, o, 0));
    }
    *out = o;
    o = NULL;
fail:
    rl_tensor_release(in);
    rl_tensor_release(o);
    return st;
}

static rl_status sum_mask(rl_tensor *x, uint64_t mask, bool all, bool keepdim, rl_dtype d, rl_tensor **out)
{
    rl_reduction how = {.op = RL_RED_SUM, .mask = mask, .keepdim = keepdim};
    return accumulate(x, &how, sum_dtype(x, d), &rl_class_sum, all ? "SumBackward0" : "SumBackward1", 0, out);
}

rl_status rl_sum(rl_tensor *x, const int64_t *dims, int n, bool keepdim, rl_dtype d, rl_tensor **out)
{
    uint64_t mask;
    RL_RETURN(rl_axes_normalize(dims, n, x->ndim, true, &mask));
    return sum_mask(x, mask, n == 0, keepdim, d, out);
}

static rl_dtype arg_dtype(const rl_arg *a) { return a->given ? a->dtype : RL_DTYPE_NONE; }

/* Overloads: (self, *, dtype), (self, dim, keepdim, *, dtype). */
rl_status rl_op_sum(rl_call *c, rl_result *r)
{
    rl_tensor *x = c->args[0].t, *out = NULL;
    uint64_t mask = ~0ull;
    bool all = c->overload == 0;
    if (!all)
        RL_RETURN(rl_arg_axes(&c->args[1], x->ndim, &mask));
    rl_status st = sum_mask(x, mask, all, !all && c->args[2].b, arg_dtype(&c->args[all ? 1 : 3]), &out);
    return rl_give(st, out, r);
}

rl_status rl_sum_to(rl_tensor *x, int ndim, const int64_t *shape, rl_tensor **out)
{
    uint64_t mask = 0;
    rl_tensor *sum = NULL;
    int lead = x->ndim - ndim;
    if (lead < 0)
        return rl_fail(RL_ERR_RUNTIME, "cannot sum %s to the larger shape %s", rl_shape_text(x->ndim, x->shape),
                       rl_shape_text(ndim, shape));
    for (int d = 0; d < x->ndim; d++) {
        int64_t want = d < lead ? 1 : shape[d - lead];
        if (d >= lead && want != x->shape[d] && want != 1)
            return rl_fail(RL_ERR_RUNTIME, "size {%s} is not expandable to size {%s}.", rl_shape_text(ndim, shape),
                           rl_shape_text(x->ndim, x->shape));
        if (d < lead || want != x->shape[d])
            mask |= 1ull << d;
    }
    if (mask == 0) {
        *out = rl_tensor_retain(x);
        return RL_OK;
    }
    if (lead == 0)
        return sum_mask(x, mask, false, true, RL_DTYPE_NONE, out);
    /* leading axes go, inner ones stay with size 1 */
    uint64_t leading = (1ull << lead) - 1;
    if (mask == leading)
        return sum_mask(x, mask, false, false, RL_DTYPE_NONE, out);
    RL_RETURN(sum_mask(x, mask, false, false, RL_DTYPE_NONE, &sum));
    rl_status st = rl_reshape(sum, ndim, shape, out);
    rl_tensor_release(sum);
    return st;
}

rl_status rl_op_sum_to_size(rl_call *c, rl_result *r)
{
    rl_tensor *out = NULL;
    return rl_give(rl_sum_to(c->args[0].t, c->args[1].ints.n, c->args[1].ints.v, &out), out, r);
}

static rl_status mean_dtype(const rl_tensor *x, rl_dtype asked, rl_dtype *d)
{
    *d = asked != RL_DTYPE_NONE ? asked : (rl_dtype)x->dtype;
    if (rl_dtype_is_float(*d))
        return RL_OK;
    return rl_fail(RL_ERR_RUNTIME, "mean(): could not infer output dtype. %s dtype must be either a floating point or complex dtype. "
                                   "Got: %s",
                   asked != RL_DTYPE_NONE ? "Optional" : "Input", rl_scalar_type_text(*d));
}

static rl_status mean_mask(rl_tensor *x, uint64_t mask, bool all, bool keepdim, rl_dtype asked, rl_tensor **out)
{
    rl_reduction how = {.op = RL_RED_MEAN, .mask = mask, .keepdim = keepdim};
    rl_dtype d;
    RL_RETURN(mean_dtype(x, asked, &d));
    return accumulate(x, &how, d, &rl_class_mean, all ? "MeanBackward0" : "MeanBackward1", 0, out);
}

rl_status rl_mean(rl_tensor *x, const int64_t *dims, int n, bool keepdim, rl_dtype d, rl_tensor **out)
{
    uint64_t mask;
    RL_RETURN(rl_axes_normalize(dims, n, x->ndim, true, &mask));
    return mean_mask(x, mask, n == 0, keepdim, d, out);
}

rl_status rl_op_mean(rl_call *c, rl_result *r)
{
    rl_tensor *x = c->args[0].t, *out = NULL;
    uint64_t mask = ~0ull;
    bool all = c->overload == 0;
    if (!all)
        RL_RETURN(rl_arg_axes(&c->args[1], x->ndim, &mask));
    rl_status st = mean_mask(x, mask, all, !all && c->args[2].b, arg_dtype(&c->args[all ? 1 : 3]), &out);
    return rl_give(st, out, r);
}

static rl_status nansum(rl_tensor *x, uint64_t mask, bool keepdim, rl_dtype asked, rl_tensor **out)
{
    rl_reduction how = {.op = rl_dtype_is_float((rl_dtype)x->dtype) ? RL_RED_NANSUM : RL_RED_SUM, .mask = mask, .keepdim = keepdim};
    return accumulate(x, &how, sum_dtype(x, asked), &rl_class_nansum, "NansumBackward0", 1, out);
}

rl_status rl_op_nansum(rl_call *c, rl_result *r)
{
    rl_tensor *out = NULL;
    uint64_t mask;
    RL_RETURN(rl_arg_axes(&c->args[1], c->args[0].t->ndim, &mask));
    rl_status st = nansum(c->args[0].t, mask, c->args[2].b, arg_dtype(&c->args[3]), &out);
    return rl_give(st, out, r);
}

/* nansum over the count of numbers. */
rl_status rl_op_nanmean(rl_call *c, rl_result *r)
{
    rl_tensor *x = c->args[0].t, *sum = NULL, *numbers = NULL, *count = NULL, *out = NULL;
    rl_status st = RL_OK;
    uint64_t mask;
    if (!rl_dtype_is_float((rl_dtype)x->dtype))
        return rl_fail(RL_ERR_RUNTIME, "nanmean(): expected input to have floating point or complex dtype but got %s",
                       rl_scalar_type_text((rl_dtype)x->dtype));
    RL_RETURN(rl_arg_axes(&c->args[1], x->ndim, &mask));
    RL_TRY(nansum(x, mask, c->args[2].b, arg_dtype(&c->args[3]), &sum));
    RL_TRY(rl_eq(rl_operand_tensor(x), rl_operand_tensor(x), &numbers));
    RL_TRY(sum_mask(numbers, mask, false, c->args[2].b, RL_DTYPE_NONE, &count));
    RL_TRY(rl_div(rl_operand_tensor(sum), rl_operand_tensor(count), &out));
fail:
    rl_tensor_release(sum);
    rl_tensor_release(numbers);
    rl_tensor_release(count);
    return rl_give(st, out, r);
}

/* Overloads: (self, *, dtype), (self, dim, keepdim, *, dtype). */
rl_status rl_op_prod(rl_call *c, rl_result *r)
{
    rl_tensor *x = c->args[0].t, *out = NULL;
    bool all = c->overload == 0;
    rl_reduction how = {.op = RL_RED_PROD, .mask = ~0ull, .keepdim = !all && c->args[2].b};
    int axis;
    if (!all) {
        RL_RETURN(rl_axis_normalize(c->args[1].i, x->ndim, &axis));
        how.mask = 1ull << axis;
    }
    rl_dtype d = sum_dtype(x, arg_dtype(&c->args[all ? 1 : 3]));
    rl_status st = accumulate(x, &how, d, &rl_class_prod, all ? "ProdBackward0" : "ProdBackward1", 3, &out);
    return rl_give(st, out, r);
}

/* ---- truth and counts: no gradient ---- */

static rl_status truth(rl_call *c, rl_result *r, int op)
{
    rl_tensor *x = c->args[0].t, *out = NULL;
    rl_reduction how = {.op = op, .mask = ~0ull, .dtype = x->dtype == RL_U8 ? RL_U8 : RL_BOOL};
    if (c->overload == 1) {
        RL_RETURN(rl_arg_axes(&c->args[1], x->ndim, &how.mask));
        how.keepdim = c->args[2].b;
    }
    rl_status st = rl_reduce_run(x, &how, &out, NULL);
    return rl_give(st, out, r);
}

/* Overloads: (self), (self, dims, keepdim). */
rl_status rl_op_any(rl_call *c, rl_result *r) { return truth(c, r, RL_RED_ANY); }
rl_status rl_op_all(rl_call *c, rl_result *r) { return truth(c, r, RL_RED_ALL); }

rl_status rl_op_count_nonzero(rl_call *c, rl_result *r)
{
    rl_tensor *x = c->args[0].t, *out = NULL;
    rl_reduction how = {.op = RL_RED_COUNT_NONZERO, .dtype = RL_I64};
    int64_t lone = c->args[1].i;
    bool list = c->overload == 0, some = list ? c->args[1].ints.n > 0 : c->args[1].given;
    RL_RETURN(rl_axes_normalize(list ? c->args[1].ints.v : &lone, list ? c->args[1].ints.n : some, x->ndim, true, &how.mask));
    rl_status st = rl_reduce_run(x, &how, &out, NULL);
    return rl_give(st, out, r);
}

rl_status rl_op_logsumexp(rl_call *c, rl_result *r)
{
    rl_tensor *x = c->args[0].t, *in = NULL, *out = NULL;
    rl_reduction how = {.op = RL_RED_LOGSUMEXP, .keepdim = c->args[2].b};
    rl_node *node;
    rl_status st = RL_OK;
    how.dtype = rl_dtype_is_float((rl_dtype)x->dtype) ? (rl_dtype)x->dtype : rl_default_dtype();
    RL_TRY(rl_arg_axes(&c->args[1], x->ndim, &how.mask));
    RL_TRY(in_dtype(x, how.dtype, &in));
    RL_TRY(rl_reduce_run(in, &how, &out, NULL));
    RL_TRY(record(&rl_class_logsumexp, "LogsumexpBackward0", x, out, &how, 2, &node));
    if (node) {
        RL_TRY(rl_node_save(node, 0, x, -1));
        RL_TRY(rl_node_save(node, 1, out, 0));
    }
fail:
    rl_tensor_release(in);
    return rl_give(st, out, r);
}
