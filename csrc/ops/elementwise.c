/* elementwise: the front of the elementwise engine: promotion, output, kernel, and what a row records.
 *
 * Invariants: one path serves new results, in-place and out=; the fast path (same shape, same dtype, contiguous, CPU) comes before any general work and gives the
 * same bits. Numbers stay immediates and take part in promotion as PyTorch's wrapped numbers. A recorded node is of the classes of derivs_elementwise.c.
 */
#include "elementwise.h"
#include "common.h"

#include <string.h>

#define RULES_UNARY(name, rule, saves, f, d1, d2, ...) {rule, saves, 1, RL_E_##name, {#d1, NULL, NULL}},
#define RULES_BINARY(name, rule, saves, f, dx, dy, ...) {rule, saves, 2, RL_E_##name, {#dx, #dy, NULL}},
#define RULES_TERNARY(name, rule, saves, f, dx, dy, dz, ...) {rule, saves, 3, RL_E_##name, {#dx, #dy, #dz}},
const rl_row rl_rows[RL_OP_COUNT] = {
#define UNARY RULES_UNARY
#define BINARY RULES_BINARY
#define TERNARY RULES_TERNARY
#define OP(...) {0},
#define ALIAS(...) {0},
#include "ops.def"
#undef UNARY
#undef BINARY
#undef TERNARY
#undef OP
#undef ALIAS
};

/* ---- promotion ---- */

/* `higher` is the dtype of the operands of higher priority, RL_DTYPE_NONE when there are none. */
static rl_dtype combine(rl_dtype higher, rl_dtype lower)
{
    if (higher == RL_DTYPE_NONE || lower == RL_DTYPE_NONE)
        return higher == RL_DTYPE_NONE ? lower : higher;
    if (rl_dtype_is_float(higher))
        return higher;
    if (higher == RL_BOOL || rl_dtype_is_float(lower))
        return rl_dtype_promote(higher, lower);
    return higher;
}

static rl_dtype merge(rl_dtype a, rl_dtype b)
{
    return a == RL_DTYPE_NONE ? b : rl_dtype_promote(a, b);
}

static rl_dtype number_dtype(rl_category kind)
{
    return kind == RL_CAT_FLOAT ? rl_default_dtype() : kind == RL_CAT_INT ? RL_I64 : RL_BOOL;
}

rl_dtype rl_result_type(const rl_operand *in, int n)
{
    rl_dtype dim = RL_DTYPE_NONE, zero = RL_DTYPE_NONE, wrapped = RL_DTYPE_NONE;
    for (int k = 0; k < n; k++) {
        const rl_tensor *t = in[k].t;
        if (t == NULL)
            wrapped = merge(wrapped, number_dtype(in[k].s.kind));
        else if (t->flags & RL_TF_WRAPPED_NUMBER)
            wrapped = merge(wrapped, number_dtype(rl_dtype_category((rl_dtype)t->dtype)));
        else if (t->ndim == 0)
            zero = merge(zero, (rl_dtype)t->dtype);
        else
            dim = merge(dim, (rl_dtype)t->dtype);
    }
    return combine(dim, combine(zero, wrapped));
}

static rl_status no_bool(const char *name, int n, bool both)
{
    if (strcmp(name, "neg") == 0)
        return rl_fail(RL_ERR_RUNTIME, "Negation, the `-` operator, on a bool tensor is not supported. If you are trying to invert a mask, use the `~` or `logical_not()` "
                                       "operator instead.");
    if (n == 2 && both)
        return rl_fail(RL_ERR_RUNTIME, "Subtraction, the `-` operator, with two bool tensors is not supported. Use the `^` or `logical_xor()` operator instead.");
    return rl_fail(RL_ERR_RUNTIME, "Subtraction, the `-` operator, with a bool tensor is not supported. If you are trying to invert a mask, use the `~` or `logical_not()` "
                                   "operator instead.");
}

static bool is_bool(const rl_operand *o)
{
    return o->t ? o->t->dtype == RL_BOOL : o->s.kind == RL_CAT_BOOL;
}

/* The dtype to compute in and the dtype of the result; errors where the rule has none. */
static rl_status apply_rule(const rl_op *op, rl_rule rule, const rl_operand *in, int n, rl_dtype common, rl_dtype *compute, rl_dtype *result)
{
    *compute = *result = common;
    switch (rule) {
    case RL_RULE_FLOAT:
        if (!rl_dtype_is_float(common))
            *compute = *result = rl_default_dtype();
        return RL_OK;
    case RL_RULE_SIGNED:
        if (is_bool(&in[0]) || (n > 1 && is_bool(&in[1])))
            return no_bool(op->name, n, n > 1 && is_bool(&in[0]) && is_bool(&in[1]));
        return RL_OK;
    case RL_RULE_NUMBER:
        if (common == RL_BOOL)
            return rl_fail(strcmp(op->name, "relu") ? RL_ERR_NOT_IMPLEMENTED : RL_ERR_RUNTIME,
                           strcmp(op->name, "relu") ? "\"%s_cpu\" not implemented for 'Bool'" : "Boolean inputs not supported for %s", op->name);
        return RL_OK;
    case RL_RULE_COMPARE:
    case RL_RULE_LOGICAL:
    case RL_RULE_TEST:
        *result = RL_BOOL;
        return RL_OK;
    case RL_RULE_BITWISE:
    case RL_RULE_SHIFT:
        if (rl_dtype_is_float(common) || (rule == RL_RULE_SHIFT && common == RL_BOOL))
            return rl_fail(RL_ERR_NOT_IMPLEMENTED, "\"%s_cpu\" not implemented for '%s'", op->name, rl_dtype_table[common].scalar_type);
        return RL_OK;
    default:
        return RL_OK;
    }
}

static uint8_t compute_type(rl_dtype d)
{
    static const uint8_t of[RL_DTYPE_COUNT] = {RL_U8, RL_I64, RL_I64, RL_I64, RL_I64, RL_I64, RL_F32, RL_F32, RL_F32, RL_F64};
    return of[d];
}

/* Numbers stay wide: they are not rounded to the dtype of the tensor beside them, as in PyTorch. */
static rl_number number_as(rl_scalar s, uint8_t compute)
{
    rl_number v;
    if (compute == RL_F32 || compute == RL_F64)
        v.f = rl_scalar_to_double(s);
    else
        v.i = rl_scalar_to_int64(s);
    return v;
}

/* ---- the kernel ---- */
static void set_parameters(rl_elem_args *a, const rl_scalar *p, int np)
{
    for (int k = 0; k < np && k < 4; k++)
        a->p[k] = number_as(p[k], a->compute);
}

static void set_input(rl_elem_args *a, int k, const rl_operand *o)
{
    if (o->t) {
        a->in[k] = rl_tensor_data(o->t);
        a->in_dtype[k] = o->t->dtype;
    } else {
        a->in[k] = NULL;
        a->in_dtype[k] = a->compute;
        a->immediate |= (uint8_t)(1u << k);
        a->value[k] = number_as(o->s, a->compute);
    }
}

/* Our own memory comes in units of 64 bytes, so what lies between the end of a whole storage and the next multiple is nobody's. */
static bool ends_storage(const rl_tensor *t)
{
    return t->offset == 0 && t->storage->release == NULL && (size_t)t->numel * (size_t)rl_tensor_itemsize(t) == t->storage->bytes;
}

/* Every tensor operand has the result's shape and all are contiguous. */
static rl_status run_flat(rl_elem_args *a, const rl_operand *in, int n, rl_tensor *out)
{
    a->ndim = 1;
    a->numel = a->shape[0] = out->numel;
    a->out = rl_tensor_data(out);
    a->out_strides[0] = rl_tensor_itemsize(out);
    a->contiguous = 1;
    a->padded = ends_storage(out);
    for (int k = 0; k < n; k++) {
        set_input(a, k, &in[k]);
        a->in_strides[k][0] = in[k].t ? rl_tensor_itemsize(in[k].t) : 0;
        a->padded &= in[k].t == NULL || ends_storage(in[k].t);
    }
    return rl_launch(out, RL_K_ELEMENTWISE, a);
}

static rl_status run_planned(rl_elem_args *a, const rl_operand *in, int n, rl_tensor *out)
{
    rl_plan p;
    rl_tensor *all[1 + RL_ELEM_INPUTS] = {out};
    for (int k = 0; k < n; k++)
        all[k + 1] = in[k].t;
    RL_RETURN(rl_plan_build(&p, all, n + 1, 1, out->ndim, out->shape));
    a->ndim = p.ndim;
    a->numel = p.numel;
    a->out = p.data[0];
    a->contiguous = a->padded = 0;
    for (int i = 0; i < p.ndim; i++) {
        a->shape[i] = p.shape[i];
        a->out_strides[i] = p.strides[0][i];
    }
    for (int k = 0; k < n; k++) {
        set_input(a, k, &in[k]);
        for (int i = 0; i < p.ndim; i++)
            a->in_strides[k][i] = p.strides[k + 1][i];
    }
    return rl_launch(out, RL_K_ELEMENTWISE, a);
}

static bool all_flat(const rl_operand *in, int n, const rl_tensor *out)
{
    if (!rl_tensor_is_contiguous(out))
        return false;
    for (int k = 0; k < n; k++)
        if (in[k].t && in[k].t != out &&
            (!rl_tensor_is_contiguous(in[k].t) || !rl_tensor_same_shape(in[k].t, out) ||
             (in[k].t->storage == out->storage && rl_tensor_overlap(in[k].t, out) == RL_OVERLAP_PARTIAL)))
            return false;
    return true;
}

/* More than 8 dimensions that do not merge: over copies that do. */
static rl_status run_copied(rl_elem_args *a, const rl_operand *in, int n, rl_tensor *out)
{
    rl_status st = RL_OK;
    rl_operand plain[RL_ELEM_INPUTS];
    rl_tensor *result = NULL;
    bool old = rl_grad_off();
    memset(plain, 0, sizeof plain);
    for (int k = 0; k < n; k++) {
        rl_tensor *wide = NULL;
        plain[k] = in[k];
        if (in[k].t == NULL)
            continue;
        plain[k].t = NULL;
        RL_TRY(rl_expand(in[k].t, out->ndim, out->shape, &wide));
        st = rl_clone(wide, RL_FORMAT_CONTIGUOUS, &plain[k].t);
        rl_tensor_release(wide);
        if (st != RL_OK)
            goto fail;
    }
    RL_TRY(rl_tensor_empty(out->ndim, out->shape, (rl_dtype)out->dtype, rl_tensor_device(out), &result));
    RL_TRY(run_flat(a, plain, n, result));
    st = rl_copy_raw(out, result);
fail:
    rl_grad_restore(old);
    for (int k = 0; k < n; k++)
        rl_tensor_release(in[k].t ? plain[k].t : NULL);
    rl_tensor_release(result);
    return st;
}

static rl_status run(rl_elem_args *a, const rl_operand *in, int n, rl_tensor *out)
{
    if (out->numel == 0)
        return RL_OK;
    if (RL_LIKELY(all_flat(in, n, out)))
        return run_flat(a, in, n, out);
    rl_status st = run_planned(a, in, n, out);
    if (RL_UNLIKELY(st == RL_ERR_NOT_IMPLEMENTED && out->ndim > RL_PLAN_DIMS)) {
        a->immediate = 0;
        st = run_copied(a, in, n, out);
    }
    return st;
}

static void begin_args(rl_elem_args *a, int expr, int n, uint8_t compute, rl_dtype out)
{
    a->expr = expr;
    a->nin = (uint8_t)n;
    a->compute = compute;
    a->out_dtype = (uint8_t)out;
    a->immediate = 0;
}

/* ---- the fast path ---- */
static bool same_shape(const rl_tensor *a, const rl_tensor *b)
{
    bool same = a->ndim == b->ndim;
    for (int i = 0; same && i < a->ndim; i++)
        same = a->shape[i] == b->shape[i];
    return same;
}

/* Contiguous tensors of one shape, one floating dtype and one device, and numbers: no promotion, no broadcasting. The first tensor, or NULL. */
static const rl_tensor *plain_operands(const rl_operand *in, int n)
{
    const rl_tensor *first = NULL;
    if (RL_UNLIKELY(!rl_fast_paths))
        return NULL;
    for (int k = 0; k < n; k++) {
        const rl_tensor *t = in[k].t;
        if (t == NULL && in[k].s.kind != RL_CAT_BOOL)
            continue;
        if (t == NULL || !rl_tensor_is_contiguous(t) || !rl_dtype_is_float((rl_dtype)t->dtype) ||
            (first && (t->dtype != first->dtype || !rl_device_same(rl_tensor_device(t), rl_tensor_device(first)) || !same_shape(t, first))))
            return NULL;
        first = first ? first : t;
    }
    return first;
}

/* What is left of a call over plain operands. */
static rl_status run_plain(rl_elem_args *a, const rl_operand *in, int n, const rl_tensor *like, rl_dtype result, rl_tensor **out)
{
    rl_tensor *t;
    RL_RETURN(rl_tensor_empty(like->ndim, like->shape, result, rl_tensor_device(like), &t));
    rl_status st = t->numel ? run_flat(a, in, n, t) : RL_OK;
    if (RL_UNLIKELY(st != RL_OK))
        rl_tensor_release(t);
    else
        *out = t;
    return st;
}

/* ---- shapes and devices ---- */
static rl_status check_devices(const rl_operand *in, int n, const char *name, rl_device *device)
{
    rl_tensor *t[RL_ELEM_INPUTS];
    for (int k = 0; k < n; k++)
        t[k] = in[k].t;
    for (int k = 0; k < n; k++)
        if (t[k])
            *device = rl_tensor_device(t[k]);
    return rl_same_device(t, n, name);
}

static rl_status broadcast(const rl_operand *in, int n, int *ndim, int64_t *shape)
{
    rl_tensor *t[RL_ELEM_INPUTS];
    for (int k = 0; k < n; k++)
        t[k] = in[k].t;
    return rl_plan_shape(t, n, ndim, shape);
}

/* Row-major over the same shape: the result can be made without a plan. */
static bool simple_output(const rl_operand *in, int n, const rl_tensor **like)
{
    *like = NULL;
    for (int k = 0; k < n; k++) {
        const rl_tensor *t = in[k].t;
        if (t == NULL)
            continue;
        if (!rl_tensor_is_contiguous(t) || (*like && !rl_tensor_same_shape(*like, t)))
            return false;
        *like = t;
    }
    return *like != NULL;
}

static rl_status make_output(const rl_operand *in, int n, rl_dtype dtype, rl_device device, rl_tensor **out)
{
    const rl_tensor *like;
    if (RL_LIKELY(simple_output(in, n, &like)))
        return rl_tensor_empty(like->ndim, like->shape, dtype, device, out);
    rl_tensor *t[RL_ELEM_INPUTS];
    int64_t shape[RL_MAX_NDIM];
    int ndim;
    for (int k = 0; k < n; k++)
        t[k] = in[k].t;
    RL_RETURN(rl_plan_shape(t, n, &ndim, shape));
    return rl_plan_output(t, n, ndim, shape, dtype, device, out);
}

/* Writing into a given tensor: what it may hold, and its shape. */
static rl_status check_target(const rl_op *op, const rl_operand *in, int n, rl_tensor *into, bool inplace, rl_dtype result)
{
    int64_t shape[RL_MAX_NDIM];
    int ndim;
    if (!rl_dtype_can_cast(result, (rl_dtype)into->dtype))
        return rl_fail(RL_ERR_RUNTIME, "result type %s can't be cast to the desired output type %s", rl_dtype_table[result].scalar_type,
                       rl_dtype_table[into->dtype].scalar_type);
    if (inplace && in[0].t == into && plain_operands(in, n) == into)
        return rl_inplace_check(into, op->name);
    RL_RETURN(broadcast(in, n, &ndim, shape));
    bool same = ndim == into->ndim && memcmp(shape, into->shape, (size_t)ndim * sizeof *shape) == 0;
    if (inplace) {
        RL_RETURN(rl_inplace_check(into, op->name));
        return same ? RL_OK : rl_fail(RL_ERR_RUNTIME, "output with shape %s doesn't match the broadcast shape %s", rl_shape_text(into->ndim, into->shape),
                                      rl_shape_text(ndim, shape));
    }
    return same ? RL_OK : rl_tensor_resize(into, ndim, shape);
}

/* ---- the operator ---- */
static bool records(const rl_row *row, const rl_operand *in, int n, rl_dtype result)
{
    bool any = false;
    for (int k = 0; k < n; k++)
        any |= in[k].t && rl_tensor_requires_grad(in[k].t);
    return RL_UNLIKELY(any) && rl_dtype_is_float(result) && row->first[0][0] != 'N' && rl_state_get()->grad_mode;
}

static rl_status compute_fresh(int id, const rl_operand *in, int n, const rl_scalar *p, int np, rl_elem_args *a, rl_dtype result, rl_tensor **out)
{
    rl_device device = {RL_DEVICE_CPU, -1};
    rl_tensor *t;
    RL_RETURN(check_devices(in, n, rl_op_table[id].name, &device));
    RL_RETURN(make_output(in, n, result, device, &t));
    set_parameters(a, p, np);
    rl_status st = run(a, in, n, t);
    if (RL_UNLIKELY(st != RL_OK))
        rl_tensor_release(t);
    else
        *out = t;
    return st;
}

static rl_status compute_into(int id, const rl_operand *in, int n, const rl_scalar *p, int np, rl_elem_args *a, rl_dtype result, rl_tensor *into, bool inplace,
                              rl_tensor **out)
{
    rl_status st;
    rl_device device;
    rl_node *node = NULL;
    const rl_row *row = &rl_rows[id];
    RL_RETURN(check_devices(in, n, rl_op_table[id].name, &device));
    RL_RETURN(check_target(&rl_op_table[id], in, n, into, inplace, result));
    if (inplace && rl_dtype_is_float((rl_dtype)into->dtype) && records(row, in, n, (rl_dtype)into->dtype))
        RL_TRY(rl_row_record_begin(id, in, n, p, np, true, &node)); /* keeps what the write would destroy */
    a->out_dtype = into->dtype;
    set_parameters(a, p, np);
    RL_TRY(run(a, in, n, into));
    if (node)
        RL_TRY(rl_node_set_out(node, 0, into));
    if (inplace)
        RL_TRY(rl_inplace_rebase(into, node, 0));
    else
        rl_tensor_bump(into);
    if (node)
        RL_TRY(rl_row_record_end(node, id, into));
    *out = rl_tensor_retain(into);
fail:
    rl_node_release(node);
    return st;
}

rl_status rl_elementwise(int id, const rl_operand *in, int n, const rl_scalar *p, int np, rl_tensor *into, bool inplace, rl_tensor **out)
{
    rl_status st;
    const rl_row *row = &rl_rows[id];
    rl_dtype compute, result;
    rl_elem_args a;
    rl_node *node = NULL;
    rl_tensor *t;
    rl_scalar defaults[1];
    if (np == 0 && (id == RL_OP_add || id == RL_OP_sub || id == RL_OP_rsub || id == RL_OP_addcmul || id == RL_OP_addcdiv)) {
        defaults[0] = rl_scalar_int(1); /* alpha, value */
        p = defaults;
        np = 1;
    }
    const rl_tensor *like = into == NULL && row->rule <= RL_RULE_NUMBER ? plain_operands(in, n) : NULL;
    if (RL_LIKELY(like != NULL)) {
        result = (rl_dtype)like->dtype;
        begin_args(&a, row->expr, n, compute_type(result), result);
        set_parameters(&a, p, np);
        RL_RETURN(run_plain(&a, in, n, like, result, &t));
    } else {
        RL_RETURN(apply_rule(&rl_op_table[id], (rl_rule)row->rule, in, n, rl_result_type(in, n), &compute, &result));
        begin_args(&a, row->expr, n, compute_type(compute), result);
        if (into != NULL)
            return compute_into(id, in, n, p, np, &a, result, into, inplace, out);
        RL_RETURN(compute_fresh(id, in, n, p, np, &a, result, &t));
    }
    if (records(row, in, n, result)) {
        RL_TRY(rl_row_record_begin(id, in, n, p, np, false, &node));
        RL_TRY(rl_node_attach(node, 0, t));
        RL_TRY(rl_row_record_end(node, id, t));
        rl_node_release(node);
    }
    *out = t;
    return RL_OK;
fail:
    rl_node_release(node);
    rl_tensor_release(t);
    return st;
}

rl_status rl_expression(int expr, const rl_operand *in, int n, const rl_number *p, rl_tensor **out)
{
    rl_elem_args a;
    rl_tensor *t;
    rl_device device = rl_tensor_device(in[0].t);
    rl_dtype dtype = (rl_dtype)in[0].t->dtype;
    begin_args(&a, expr, n, compute_type(dtype), dtype);
    for (int k = 0; k < 4; k++)
        a.p[k] = p[k];
    if (RL_LIKELY(plain_operands(in, n) != NULL))
        return run_plain(&a, in, n, in[0].t, dtype, out);
    RL_RETURN(make_output(in, n, dtype, device, &t));
    rl_status st = run(&a, in, n, t);
    if (st != RL_OK)
        rl_tensor_release(t);
    else
        *out = t;
    return st;
}

rl_status rl_expression_over(int expr, const rl_operand *in, int n, const rl_number *p, rl_tensor **out)
{
    rl_elem_args a;
    rl_tensor *g = in[0].t;
    *out = NULL;
    if (plain_operands(in, n) == NULL || g->numel == 0 || g->storage->read_only)
        return RL_OK;
    begin_args(&a, expr, n, compute_type((rl_dtype)g->dtype), (rl_dtype)g->dtype);
    for (int k = 0; k < 4; k++)
        a.p[k] = p[k];
    RL_RETURN(run_flat(&a, in, n, g));
    *out = rl_tensor_retain(g);
    return RL_OK;
}

rl_status rl_add_over(rl_tensor *x, rl_tensor *y)
{
    rl_operand in[2] = {rl_operand_tensor(x), rl_operand_tensor(y)};
    rl_elem_args a;
    rl_tensor *same = NULL;
    if (RL_UNLIKELY(plain_operands(in, 2) == NULL || x->storage->read_only)) {
        rl_status st = rl_elementwise(RL_OP_add, in, 2, NULL, 0, x, true, &same);
        rl_tensor_release(same);
        return st;
    }
    begin_args(&a, RL_E_add, 2, compute_type((rl_dtype)x->dtype), (rl_dtype)x->dtype);
    a.p[0].f = 1;
    return x->numel ? run_flat(&a, in, 2, x) : RL_OK;
}

/* ---- the rows as C functions ---- */
#define UNARY(name, ...)                                                                 \
    rl_status rl_##name(rl_tensor *x, rl_tensor **out)                                   \
    {                                                                                    \
        rl_operand in[1] = {rl_operand_tensor(x)};                                       \
        return rl_elementwise(RL_OP_##name, in, 1, NULL, 0, NULL, false, out);           \
    }
#define BINARY(name, ...)                                                                \
    rl_status rl_##name(rl_operand x, rl_operand y, rl_tensor **out)                     \
    {                                                                                    \
        rl_operand in[2] = {x, y};                                                       \
        return rl_elementwise(RL_OP_##name, in, 2, NULL, 0, NULL, false, out);           \
    }
#define TERNARY(name, ...)                                                               \
    rl_status rl_##name(rl_operand x, rl_operand y, rl_operand z, rl_tensor **out)       \
    {                                                                                    \
        rl_operand in[3] = {x, y, z};                                                    \
        return rl_elementwise(RL_OP_##name, in, 3, NULL, 0, NULL, false, out);           \
    }
#define OP(...)
#define ALIAS(...)
#include "ops.def"
