/* pointwise: elementwise operators that are more than one row: overloads that choose a row, options that change it, results that are
 * answers.
 *
 * Each only decides which row of elementwise.def computes, and with which numbers; checking, promotion, broadcasting, recording and the
 * second
 * derivative are the row's. Where PyTorch numbers the overloads of an operator apart (PowBackward1), the node's name is set here.
 */
#include "../core/alloc.h"
#include "common.h"

#include <math.h>
#include <string.h>

/* ---- helpers ---- */

static rl_operand operand_of(const rl_arg *a)
{
    rl_operand o = {.t = a->t, .s = a->s};
    return o;
}

static void name_node(rl_tensor *t, const char *name)
{
    if (t->grad_fn && (t->meta == NULL || t->meta->base == NULL))
        t->grad_fn->name = name;
}

/* A macro, so that `call` has run, and set t, before t is read. */
#define give(r, call, t, name)                    \
    ({                                            \
        rl_status given_st_ = (call);             \
        give_one((r), given_st_, (t), (name));    \
    })
static rl_status give_one(rl_result *r, rl_status st, rl_tensor *t, const char *name)
{
    if (st != RL_OK)
        return st;
    if (name)
        name_node(t, name);
    r->t[r->n++] = t;
    return RL_OK;
}

/* `into`: the tensor that is written in place, NULL for a new one. */
static rl_status one(int op, rl_tensor *x, const rl_scalar *p, int np, rl_tensor *into, rl_tensor **out)
{
    rl_operand in[1] = {rl_operand_tensor(x)};
    return rl_elementwise(op, in, 1, p, np, into, into != NULL, out);
}

static rl_status two(int op, rl_operand x, rl_operand y, const rl_scalar *p, int np, rl_tensor *into, rl_tensor **out)
{
    rl_operand in[2] = {x, y};
    return rl_elementwise(op, in, 2, p, np, into, into != NULL, out);
}

/* Operators of form W write in place themselves, so that their rows keep of self what the write destroys. */
static rl_tensor *target(const rl_call *c)
{
    return c->inplace ? c->args[0].t : NULL;
}

/* ---- positive, round, gelu, logit, nan_to_num ---- */

rl_status rl_op_positive(rl_call *c, rl_result *r)
{
    rl_tensor *x = c->args[0].t;
    if (x->dtype == RL_BOOL)
        return rl_fail(RL_ERR_RUNTIME, "The `+` operator, on a bool tensor is not supported.");
    return give(r, RL_OK, rl_tensor_retain(x), NULL);
}

/* Overloads: (self), (self, *, int decimals). */
rl_status rl_op_round(rl_call *c, rl_result *r)
{
    rl_tensor *out = NULL;
    rl_scalar decimals = rl_scalar_float(c->overload == 1 ? (double)c->args[1].i : 0);
    if (decimals.d == 0)
        return give(r, one(RL_OP_round_even, c->args[0].t, NULL, 0, target(c), &out), out, NULL);
    rl_status st = one(RL_OP_round_decimals, c->args[0].t, &decimals, 1, target(c), &out);
    return give(r, st, out, "RoundBackward1");
}

/* (self, *, str approximate='none') */
rl_status rl_op_gelu(rl_call *c, rl_result *r)
{
    rl_tensor *out = NULL;
    const char *form = c->args[1].str;
    bool is_tanh = !strcmp(form, "tanh");
    if (!is_tanh && strcmp(form, "none"))
        return rl_fail(RL_ERR_RUNTIME, "approximate argument must be either none or tanh.");
    return give(r, one(is_tanh ? RL_OP_gelu_tanh : RL_OP_gelu_erf, c->args[0].t, NULL, 0, NULL, &out), out, NULL);
}

rl_status rl_op_logit(rl_call *c, rl_result *r)
{
    rl_tensor *out = NULL;
    rl_scalar eps = rl_scalar_float(c->args[1].given ? c->args[1].f : -1);
    return give(r, one(RL_OP_logit_eps, c->args[0].t, &eps, 1, target(c), &out), out, NULL);
}

static double largest_finite(rl_dtype d)
{
    switch (d) {
    case RL_F16: return 65504.0;
    case RL_BF16: return 0x1.fep127;
    case RL_F32: return 0x1.fffffep127;
    default: return 0x1.fffffffffffffp1023;
    }
}

/* (self, float? nan=None, float? posinf=None, float? neginf=None) */
rl_status rl_op_nan_to_num(rl_call *c, rl_result *r)
{
    rl_tensor *x = c->args[0].t, *out = NULL;
    double most = largest_finite((rl_dtype)x->dtype);
    if (!rl_dtype_is_float((rl_dtype)x->dtype))
        return give(r, c->inplace ? RL_OK : rl_clone(x, RL_FORMAT_PRESERVE, &out), c->inplace ? rl_tensor_retain(x) : out, NULL);
    rl_scalar p[3] = {rl_scalar_float(c->args[1].given ? c->args[1].f : 0), rl_scalar_float(c->args[2].given ? c->args[2].f : most),
                      rl_scalar_float(c->args[3].given ? c->args[3].f : -most)};
    return give(r, one(RL_OP_nan_to_num_values, x, p, 3, target(c), &out), out, NULL);
}

/* ---- clamp ---- */

/* An integer tensor with a float bound becomes the default float dtype, as under promotion with a number. */
static rl_status clamp_cast(rl_tensor *x, rl_scalar low, rl_scalar high, rl_tensor **out)
{
    rl_dtype d = (rl_dtype)x->dtype;
    if (!rl_dtype_is_float(d) && (low.kind == RL_CAT_FLOAT || high.kind == RL_CAT_FLOAT))
        d = rl_default_dtype();
    else if (d == RL_BOOL && (low.kind == RL_CAT_INT || high.kind == RL_CAT_INT))
        d = RL_I64;
    return rl_cast(x, d, out);
}

static rl_status clamp_scalars(rl_tensor *x, const rl_arg *low, const rl_arg *high, rl_tensor *into, rl_tensor **out)
{
    rl_tensor *cast = NULL;
    rl_status st = RL_OK;
    rl_scalar none = rl_scalar_bool(false);
    RL_TRY(clamp_cast(x, low->given ? low->s : none, high->given ? high->s : none, &cast));
    bool is_float = rl_dtype_is_float((rl_dtype)cast->dtype);
    rl_scalar p[2] = {low->given ? low->s : is_float ? rl_scalar_float(-INFINITY) : rl_scalar_int(INT64_MIN),
                      high->given ? high->s : is_float ? rl_scalar_float(INFINITY) : rl_scalar_int(INT64_MAX)};
    RL_TRY(one(RL_OP_clamp_scalars, cast, p, 2, into, out));
fail:
    rl_tensor_release(cast);
    return st;
}

static rl_status clamp_tensors(rl_tensor *x, const rl_arg *low, const rl_arg *high, rl_tensor *into, rl_tensor **out)
{
    rl_operand in[3] = {rl_operand_tensor(x), operand_of(low), operand_of(high)};
    if (!high->given)
        return two(RL_OP_clamp_above, in[0], in[1], NULL, 0, into, out);
    if (!low->given)
        return two(RL_OP_clamp_below, in[0], in[2], NULL, 0, into, out);
    return rl_elementwise(RL_OP_clamp_tensors, in, 3, NULL, 0, into, into != NULL, out);
}

/* Overloads: (self, Tensor? min=None, Tensor? max=None), (self, Scalar? min=None, Scalar? max=None). */
rl_status rl_op_clamp(rl_call *c, rl_result *r)
{
    rl_tensor *out = NULL;
    const rl_arg *low = &c->args[1], *high = &c->args[2];
    if (!low->given && !high->given)
        return rl_fail(RL_ERR_RUNTIME, "torch.clamp: At least one of 'min' or 'max' must not be None");
    if (low->t || high->t)
        return give(r, clamp_tensors(c->args[0].t, low, high, target(c), &out), out, NULL);
    return give(r, clamp_scalars(c->args[0].t, low, high, target(c), &out), out, "ClampBackward1");
}

/* Overloads: (self, Tensor bound), (self, Scalar bound). */
static rl_status clamp_one(rl_call *c, rl_result *r, bool is_low)
{
    static const rl_arg none;
    rl_tensor *x = c->args[0].t, *cast = NULL, *out = NULL;
    const rl_arg *bound = &c->args[1];
    rl_status st = RL_OK;
    if (bound->t) {
        st = is_low ? clamp_tensors(x, bound, &none, target(c), &out) : clamp_tensors(x, &none, bound, target(c), &out);
        return give(r, st, out, is_low ? "ClampMinBackward1" : "ClampMaxBackward1");
    }
    RL_TRY(clamp_cast(x, bound->s, bound->s, &cast));
    st = one(is_low ? RL_OP_clamp_low : RL_OP_clamp_high, cast, &bound->s, 1, target(c), &out);
fail:
    rl_tensor_release(cast);
    return give(r, st, out, NULL);
}

rl_status rl_op_clamp_min(rl_call *c, rl_result *r) { return clamp_one(c, r, true); }
rl_status rl_op_clamp_max(rl_call *c, rl_result *r) { return clamp_one(c, r, false); }

/* ---- operators that refuse mixed dtypes ---- */

rl_status rl_op_heaviside(rl_call *c, rl_result *r)
{
    rl_operand x = operand_of(&c->args[0]), y = operand_of(&c->args[1]);
    rl_tensor *out = NULL;
    if (x.t && y.t && x.t->dtype != y.t->dtype)
        return rl_fail(RL_ERR_RUNTIME, "heaviside is not yet implemented for tensors with different dtypes.");
    return give(r, two(RL_OP_heaviside_step, x, y, NULL, 0, target(c), &out), out, NULL);
}

/* Overloads: (self, end, Tensor weight), (self, end, Scalar weight). A weight of no dimension is a number. */
rl_status rl_op_lerp(rl_call *c, rl_result *r)
{
    rl_operand in[3] = {operand_of(&c->args[0]), operand_of(&c->args[1]), operand_of(&c->args[2])};
    rl_tensor *x = in[0].t, *out = NULL;
    for (int k = 1; k < 3; k++) {
        rl_tensor *t = in[k].t;
        if (!t || t->dtype == x->dtype || (k == 2 && x->ndim == 0 && t->ndim == 0))
            continue;
        if (k == 1 || t->ndim > 0)
            return rl_fail(RL_ERR_RUNTIME, "expected dtype %s for `%s` but got dtype %s", rl_cpp_type_text((rl_dtype)x->dtype),
                    k == 1 ? "end" : "weight",
                           rl_cpp_type_text((rl_dtype)t->dtype));
        RL_RETURN(rl_item(t, &in[k].s));
        in[k].t = NULL;
    }
    if (!rl_dtype_is_float((rl_dtype)x->dtype))
        return rl_fail(RL_ERR_NOT_IMPLEMENTED, "\"lerp_kernel_%s\" not implemented for '%s'", in[2].t ? "tensor" : "scalar",
                rl_dtype_table[x->dtype].scalar_type);
    return give(r, rl_elementwise(RL_OP_lerp_weight, in, 3, NULL, 0, target(c), c->inplace, &out), out, NULL);
}

/* ---- powers ---- */

static rl_status pow_number(rl_tensor *x, rl_scalar e, rl_tensor *into, rl_tensor **out)
{
    rl_tensor *wide = NULL;
    rl_status st = RL_OK;
    rl_dtype d = (rl_dtype)x->dtype;
    if (e.kind == RL_CAT_FLOAT && !rl_dtype_is_float(d))
        return one(RL_OP_pow_scalar, x, &e, 1, into, out);
    if (!rl_dtype_is_float(d)) {
        if (e.i < 0)
            return rl_fail(RL_ERR_RUNTIME, "Integers to negative integer powers are not allowed.");
        RL_TRY(rl_cast(x, d == RL_BOOL && e.kind == RL_CAT_INT ? RL_I64 : d, &wide));
        st = one(RL_OP_pow_int, wide, &e, 1, into, out);
        goto fail;
    }
    double v = rl_scalar_to_double(e);
    if (v == 2 || v == 3)
        return one(v == 2 ? RL_OP_pow_two : RL_OP_pow_three, x, NULL, 0, into, out);
    st = one(RL_OP_pow_scalar, x, &e, 1, into, out);
fail:
    rl_tensor_release(wide);
    return st;
}

static rl_status power(rl_operand x, rl_operand y, rl_tensor *into, rl_tensor **out)
{
    if (x.t && !y.t)
        return pow_number(x.t, y.s, into, out);
    RL_RETURN(two(RL_OP_pow_tensor, x, y, NULL, 0, into, out));
    name_node(*out, x.t ? "PowBackward1" : "PowBackward2");
    return RL_OK;
}

rl_status rl_pow(rl_operand x, rl_operand y, rl_tensor **out)
{
    return power(x, y, NULL, out);
}

rl_status rl_op_pow(rl_call *c, rl_result *r)
{
    rl_tensor *out = NULL;
    return give(r, power(operand_of(&c->args[0]), operand_of(&c->args[1]), target(c), &out), out, NULL);
}

rl_status rl_square(rl_tensor *x, rl_tensor **out)
{
    return pow_number(x, rl_scalar_int(2), NULL, out);
}

rl_status rl_op_square(rl_call *c, rl_result *r)
{
    rl_tensor *out = NULL;
    return give(r, pow_number(c->args[0].t, rl_scalar_int(2), target(c), &out), out, NULL);
}

/* In float64 whatever the operands. */
rl_status rl_op_float_power(rl_call *c, rl_result *r)
{
    rl_operand in[2] = {operand_of(&c->args[0]), operand_of(&c->args[1])};
    rl_tensor *cast[2] = {NULL}, *out = NULL;
    rl_status st = RL_OK;
    for (int k = 0; k < 2; k++) {
        if (!in[k].t) {
            in[k].s = rl_scalar_float(rl_scalar_to_double(in[k].s));
            continue;
        }
        RL_TRY(rl_cast(in[k].t, RL_F64, &cast[k]));
        in[k].t = cast[k];
    }
    st = rl_pow(in[0], in[1], &out);
fail:
    rl_tensor_release(cast[0]);
    rl_tensor_release(cast[1]);
    return give(r, st, out, NULL);
}

/* ---- division with a rounding mode: div's second overload (self, other, *, str? rounding_mode) ---- */

rl_status rl_op_div_mode(rl_call *c, rl_result *r)
{
    rl_operand x = operand_of(&c->args[0]), y = operand_of(&c->args[1]);
    const char *mode = c->args[2].given ? c->args[2].str : NULL;
    rl_tensor *out = NULL;
    if (!mode)
        return give(r, two(RL_OP_div, x, y, NULL, 0, target(c), &out), out, NULL);
    if (strcmp(mode, "floor") && strcmp(mode, "trunc"))
        return rl_fail(RL_ERR_RUNTIME, "div expected rounding_mode to be one of None, 'trunc', or 'floor' but found '%s'", mode);
    rl_status st = two(*mode == 'f' ? RL_OP_floor_divide : RL_OP_trunc_divide, x, y, NULL, 0, target(c), &out);
    return give(r, st, out, y.t ? "DivBackward1" : "DivBackward2");
}

/* ---- masks ---- */

static rl_status choose(rl_operand condition, rl_operand x, rl_operand y, rl_tensor *into, rl_tensor **out)
{
    rl_operand in[3] = {condition, x, y};
    rl_tensor *mask = NULL;
    rl_status st = RL_OK;
    if (condition.t && condition.t->dtype == RL_U8) { /* bytes as masks: they must not take part in promotion */
        RL_RETURN(rl_cast(condition.t, RL_BOOL, &mask));
        in[0] = rl_operand_tensor(mask);
    } else if (condition.t && condition.t->dtype != RL_BOOL) {
        return rl_fail(RL_ERR_RUNTIME, "where expected condition to be a boolean tensor, but got a tensor with dtype %s",
                       rl_dtype_table[condition.t->dtype].scalar_type);
    }
    st = rl_elementwise(RL_OP_select_where, in, 3, NULL, 0, into, into != NULL, out);
    rl_tensor_release(mask);
    return st;
}

rl_status rl_where(rl_operand condition, rl_operand x, rl_operand y, rl_tensor **out)
{
    return choose(condition, x, y, NULL, out);
}

/* One operand: the coordinates of what is not 0, one tensor for each dimension. */
static rl_status where_coordinates(rl_tensor *x, rl_result *r)
{
    rl_tensor *index = NULL;
    rl_status st = RL_OK;
    RL_TRY(rl_nonzero(x, &index));
    int n = (int)index->shape[1];
    r->list = rl_pool_alloc((size_t)(n ? n : 1) * sizeof *r->list);
    if (!r->list) {
        st = RL_ERR_MEMORY;
        goto fail;
    }
    r->is_list = true;
    for (int k = 0; k < n; k++) {
        RL_TRY(rl_select(index, 1, k, &r->list[k]));
        r->n = k + 1;
    }
fail:
    rl_tensor_release(index);
    return st;
}

/* Overloads: (condition), (condition, self, other). */
rl_status rl_op_where(rl_call *c, rl_result *r)
{
    rl_tensor *out = NULL;
    if (c->overload == 0)
        return where_coordinates(c->args[0].t, r);
    return give(r, rl_where(operand_of(&c->args[0]), operand_of(&c->args[1]), operand_of(&c->args[2]), &out), out, NULL);
}

/* (self, Tensor mask, Tensor value): the value is a number or a tensor of no dimension; the result has self's dtype. */
rl_status rl_op_masked_fill(rl_call *c, rl_result *r)
{
    rl_tensor *x = c->args[0].t, *mask = c->args[1].t, *value = c->args[2].t, *cast = NULL, *out = NULL;
    rl_scalar s = c->args[2].s;
    rl_status st = RL_OK;
    if (mask->dtype != RL_BOOL)
        return rl_fail(RL_ERR_RUNTIME, "masked_fill_ only supports boolean masks, but got mask with dtype %s",
                rl_cpp_type_text((rl_dtype)mask->dtype));
    if (value && value->ndim > 0)
        return rl_fail(RL_ERR_RUNTIME, "masked_fill only supports a 0-dimensional value tensor, but got tensor with %d dimension(s).",
                value->ndim);
    if (value && rl_tensor_requires_grad(value)) {
        RL_TRY(rl_cast(value, (rl_dtype)x->dtype, &cast));
        st = choose(rl_operand_tensor(mask), rl_operand_tensor(cast), rl_operand_tensor(x), target(c), &out);
        goto fail;
    }
    if (value)
        RL_TRY(rl_item(value, &s));
    if (!rl_dtype_is_float((rl_dtype)x->dtype))
        s = x->dtype == RL_BOOL ? rl_scalar_bool(rl_scalar_to_double(s) != 0) : rl_scalar_int(rl_scalar_to_int64(s));
    st = two(RL_OP_masked_value, rl_operand_tensor(x), rl_operand_tensor(mask), &s, 1, target(c), &out);
fail:
    rl_tensor_release(cast);
    return give(r, st, out, NULL);
}

/* ---- prelu: one weight, or one for each channel (dimension 1) ---- */

rl_status rl_op_prelu(rl_call *c, rl_result *r)
{
    rl_tensor *x = c->args[0].t, *w = c->args[1].t, *shaped = NULL, *out = NULL;
    int64_t shape[RL_MAX_NDIM], channels = x->ndim > 1 ? x->shape[1] : 1;
    rl_status st = RL_OK;
    if (w->ndim > 1)
        return rl_fail(RL_ERR_RUNTIME, "prelu: Expected `weight` to be a scalar or 1D tensor, but got: ndim = %d", w->ndim);
    if (w->numel != 1 && (x->ndim == 0 || w->numel != channels))
        return rl_fail(RL_ERR_RUNTIME, "Mismatch of parameter numbers and input channel size. Found parameter numbers = %lld, "
                       "and channel size = %lld.",
                       (long long)w->numel, (long long)channels);
    for (int k = 0; k < x->ndim; k++)
        shape[k] = k == 1 || x->ndim == 1 ? w->numel : 1;
    if (x->ndim == 1 && w->numel != 1)
        shape[0] = w->numel;
    RL_TRY(rl_reshape(w, x->ndim, shape, &shaped));
    st = two(RL_OP_prelu_kernel, rl_operand_tensor(x), rl_operand_tensor(shaped), NULL, 0, NULL, &out);
fail:
    rl_tensor_release(shaped);
    return give(r, st, out, NULL);
}

/* ---- answers ---- */

static rl_status same_dtype(const rl_tensor *x, const rl_tensor *y)
{
    if (x->dtype == y->dtype)
        return RL_OK;
    return rl_fail(RL_ERR_RUNTIME, "%s did not match %s", rl_dtype_table[x->dtype].scalar_type, rl_dtype_table[y->dtype].scalar_type);
}

static rl_status close_mask(const rl_call *c, rl_tensor **out)
{
    rl_tensor *in[2] = {c->args[0].t, c->args[1].t}, *wide[2] = {NULL};
    rl_scalar p[3] = {rl_scalar_float(c->args[2].f), rl_scalar_float(c->args[3].f), rl_scalar_float(c->args[4].b)};
    rl_status st = RL_OK;
    if (p[0].d < 0 || p[1].d < 0)
        return rl_fail(RL_ERR_RUNTIME, "%s must be greater than or equal to zero, but got %g", p[0].d < 0 ? "rtol" : "atol",
                p[0].d < 0 ? p[0].d : p[1].d);
    RL_RETURN(same_dtype(in[0], in[1]));
    for (int k = 0; k < 2; k++) /* the tolerances are fractions */
        RL_TRY(rl_cast(in[k], rl_dtype_is_float((rl_dtype)in[k]->dtype) ? (rl_dtype)in[k]->dtype : RL_F64, &wide[k]));
    st = two(RL_OP_close_to, rl_operand_tensor(wide[0]), rl_operand_tensor(wide[1]), p, 3, NULL, out);
fail:
    rl_tensor_release(wide[0]);
    rl_tensor_release(wide[1]);
    return st;
}

/* Whether every element of a mask is true. */
static rl_status all_true(rl_tensor *mask, bool *answer)
{
    rl_tensor *sum = NULL;
    rl_scalar count;
    rl_status st = RL_OK;
    RL_TRY(rl_sum(mask, NULL, 0, false, RL_I64, &sum));
    RL_TRY(rl_item(sum, &count));
    *answer = rl_scalar_to_int64(count) == mask->numel;
fail:
    rl_tensor_release(sum);
    return st;
}

static rl_status answer(rl_result *r, rl_status st, bool yes)
{
    rl_tensor *out = NULL;
    if (st == RL_OK)
        st = rl_tensor_from_scalar(rl_scalar_bool(yes), RL_BOOL, (rl_device){RL_DEVICE_CPU, -1}, &out);
    return give(r, st, out, NULL);
}

rl_status rl_op_isclose(rl_call *c, rl_result *r)
{
    rl_tensor *out = NULL;
    return give(r, close_mask(c, &out), out, NULL);
}

rl_status rl_op_allclose(rl_call *c, rl_result *r)
{
    rl_tensor *mask = NULL;
    bool yes = false;
    rl_status st = RL_OK;
    RL_TRY(close_mask(c, &mask));
    st = all_true(mask, &yes);
fail:
    rl_tensor_release(mask);
    return answer(r, st, yes);
}

rl_status rl_op_equal(rl_call *c, rl_result *r)
{
    rl_tensor *x = c->args[0].t, *y = c->args[1].t, *mask = NULL;
    bool yes = false;
    rl_status st = RL_OK;
    if (!rl_tensor_same_shape(x, y))
        return answer(r, RL_OK, false);
    RL_TRY(rl_eq(rl_operand_tensor(x), rl_operand_tensor(y), &mask));
    st = all_true(mask, &yes);
fail:
    rl_tensor_release(mask);
    return answer(r, st, yes);
}
