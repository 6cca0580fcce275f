/* op: the operator table and the one way into every operator. See op.h.
 *
 * Invariant: a row's own function only makes new tensors; in-place and out= forms are finished here, so that their rules (what may be written, what a result may
 * be cast to, when an out= tensor is resized) stand in one place.
 */
#include "common.h"
#include "elementwise.h"

#include <string.h>

#define OP(name, function, ...) rl_status function(rl_call *call, rl_result *result);
#define UNARY(...)
#define BINARY(...)
#define TERNARY(...)
#define ALIAS(...)
#include "ops.def"
#undef OP
#undef UNARY
#undef BINARY
#undef TERNARY
#undef ALIAS

const rl_op rl_op_table[RL_OP_COUNT] = {
#define UNARY(id, rule_, saves_, f, d1, d2, forms_, grad, sig) \
    {.name = #id, .forms = forms_, .grad_name = grad, .signature = sig, .kind = RL_ROW_UNARY, .rule = rule_, .saves = saves_, .expr = RL_E_##id},
#define BINARY(id, rule_, saves_, f, dx, dy, dxx, dxy, dyy, forms_, grad, sig) \
    {.name = #id, .forms = forms_, .grad_name = grad, .signature = sig, .kind = RL_ROW_BINARY, .rule = rule_, .saves = saves_, .expr = RL_E_##id},
#define TERNARY(id, rule_, saves_, f, dx, dy, dz, dxx, dxy, dxz, dyy, dyz, dzz, forms_, grad, sig) \
    {.name = #id, .forms = forms_, .grad_name = grad, .signature = sig, .kind = RL_ROW_TERNARY, .rule = rule_, .saves = saves_, .expr = RL_E_##id},
#define OP(id, function, forms_, grad, sig) \
    {.name = #id, .forms = forms_, .grad_name = grad, .signature = sig, .call = function, .kind = RL_ROW_OP, .expr = -1},
#define ALIAS(id, of, forms_) {.name = #id, .forms = forms_, .kind = RL_ROW_ALIAS, .expr = -1, .alias_of = &rl_op_table[RL_OP_##of]},
#include "ops.def"
#undef OP
#undef UNARY
#undef BINARY
#undef TERNARY
#undef ALIAS
};

void rl_result_clear(rl_result *r)
{
    for (int i = 0; i < r->n; i++)
        rl_tensor_release(r->is_list ? r->list[i] : r->t[i]);
    if (r->is_list)
        rl_pool_free(r->list, (size_t)(r->n ? r->n : 1) * sizeof *r->list);
    *r = (rl_result){0};
}

/* ---- elementwise rows ---- */

static rl_status out_without_grad(const rl_call *c, const rl_operand *in, int n)
{
    bool any = rl_tensor_requires_grad(c->out[0]);
    for (int k = 0; k < n; k++)
        any |= in[k].t && rl_tensor_requires_grad(in[k].t);
    if (any && rl_state_get()->grad_mode)
        return rl_fail(RL_ERR_RUNTIME, "%s(): functions with out=... arguments don't support automatic differentiation, but one of the arguments requires grad.",
                       c->op->name);
    return rl_inplace_check(c->out[0], c->op->name);
}

static rl_status invoke_elementwise(rl_call *c, const rl_op *op, rl_result *r)
{
    rl_operand in[3];
    rl_scalar p[4];
    int id = (int)(op - rl_op_table), n = op->kind == RL_ROW_UNARY ? 1 : op->kind == RL_ROW_BINARY ? 2 : 3, np = 0;
    rl_tensor *t;
    for (int k = 0; k < n; k++)
        in[k] = (rl_operand){c->args[k].t, c->args[k].s};
    for (int k = n; k < c->nargs && np < 4; k++)
        p[np++] = c->args[k].s;
    if (c->nout > 0)
        RL_RETURN(out_without_grad(c, in, n));
    RL_RETURN(rl_elementwise(id, in, n, p, np, c->inplace ? in[0].t : c->nout > 0 ? c->out[0] : NULL, c->inplace, &t));
    r->t[r->n++] = t;
    return RL_OK;
}

/* ---- in place and out= of everything else ---- */
/* What the node keeps of self is about to be overwritten: a copy stays instead. */
static rl_status keep_saved_self(rl_node *n, const rl_tensor *self)
{
    for (int k = 0; n && k < n->nsaved; k++) {
        rl_saved *s = &n->saved[k];
        rl_tensor *kept;
        if (s->tensor != self || s->output_nr >= 0)
            continue;
        bool old = rl_grad_off();
        rl_status st = rl_clone(s->tensor, RL_FORMAT_PRESERVE, &kept);
        rl_grad_restore(old);
        RL_RETURN(st);
        rl_tensor_clear(&s->tensor);
        rl_version_release(s->version);
        s->version = NULL;
        st = rl_node_save(n, k, kept, -1);
        rl_tensor_release(kept);
        RL_RETURN(st);
    }
    return RL_OK;
}

static rl_status write_in_place(rl_call *c, const rl_op *op, rl_op_fn function, rl_result *r)
{
    rl_status st;
    rl_tensor *self = c->args[0].t;
    rl_result made = {0};
    RL_RETURN(rl_inplace_check(self, op->name));
    c->inplace = false;
    st = function(c, &made);
    c->inplace = true;
    RL_RETURN(st);
    rl_tensor *t = made.t[0];
    if (!rl_dtype_can_cast((rl_dtype)t->dtype, (rl_dtype)self->dtype))
        RL_FAIL(RL_ERR_RUNTIME, "result type %s can't be cast to the desired output type %s", rl_dtype_table[t->dtype].scalar_type, rl_dtype_table[self->dtype].scalar_type);
    if (!rl_tensor_same_shape(t, self))
        RL_FAIL(RL_ERR_RUNTIME, "output with shape %s doesn't match the broadcast shape %s", rl_shape_text(self->ndim, self->shape), rl_shape_text(t->ndim, t->shape));
    RL_TRY(keep_saved_self(t->grad_fn, self));
    RL_TRY(rl_copy_raw(self, t));
    RL_TRY(rl_inplace_rebase(self, t->grad_fn, t->output_nr));
    r->t[r->n++] = rl_tensor_retain(self);
fail:
    rl_result_clear(&made);
    return st;
}

static rl_status check_no_grad_for_out(const rl_call *c, const rl_op *op)
{
    bool any = false;
    for (int k = 0; k < c->nout; k++)
        any |= rl_tensor_requires_grad(c->out[k]);
    for (int k = 0; k < c->nargs; k++)
        any |= c->args[k].t && rl_tensor_requires_grad(c->args[k].t);
    for (int k = 0; strstr(op->signature, "(Tensor[] ") && k < c->args[0].tensors.n; k++)
        any |= c->args[0].tensors.v[k] && rl_tensor_requires_grad(c->args[0].tensors.v[k]);
    if (any && rl_state_get()->grad_mode)
        return rl_fail(RL_ERR_RUNTIME, "%s(): functions with out=... arguments don't support automatic differentiation, but one of the arguments requires grad.",
                       c->op->name);
    return RL_OK;
}

static rl_status write_out(rl_call *c, const rl_op *op, rl_op_fn function, rl_result *r)
{
    rl_status st;
    rl_result made = {0};
    RL_RETURN(check_no_grad_for_out(c, op));
    bool old = rl_grad_off();
    RL_TRY(function(c, &made));
    for (int k = 0; k < c->nout && k < made.n; k++) { /* all are checked before one is written */
        RL_TRY(rl_inplace_check(c->out[k], op->name));
        if (!rl_dtype_can_cast((rl_dtype)made.t[k]->dtype, (rl_dtype)c->out[k]->dtype))
            RL_FAIL(RL_ERR_RUNTIME, "result type %s can't be cast to the desired output type %s", rl_dtype_table[made.t[k]->dtype].scalar_type,
                    rl_dtype_table[c->out[k]->dtype].scalar_type);
    }
    for (int k = 0; k < c->nout && k < made.n; k++) {
        if (!rl_tensor_same_shape(c->out[k], made.t[k]))
            RL_TRY(rl_tensor_resize(c->out[k], made.t[k]->ndim, made.t[k]->shape));
        RL_TRY(rl_copy_raw(c->out[k], made.t[k]));
        rl_tensor_bump(c->out[k]);
        r->t[r->n++] = rl_tensor_retain(c->out[k]);
    }
fail:
    rl_grad_restore(old);
    rl_result_clear(&made);
    return st;
}

rl_status rl_op_invoke(rl_call *c, rl_result *r)
{
    const rl_op *op = c->op->alias_of ? c->op->alias_of : c->op;
    rl_op_fn function = op->call;
    if (op->kind != RL_ROW_OP) {
        if (RL_LIKELY(op != &rl_op_table[RL_OP_div] || c->overload == 0))
            return invoke_elementwise(c, op, r);
        function = rl_op_div_mode;
    }
    if (RL_LIKELY(!c->inplace && c->nout == 0) || (c->inplace && strchr(op->forms, 'W')))
        return function(c, r);
    return c->inplace ? write_in_place(c, op, function, r) : write_out(c, op, function, r);
}

/* ---- what the engine asks of operators ---- */
static rl_status graph_add(rl_tensor *a, rl_tensor *b, rl_tensor **out)
{
    return rl_add(rl_operand_tensor(a), rl_operand_tensor(b), out);
}

static rl_status graph_add_into(rl_tensor *a, rl_tensor *b)
{
    bool old = rl_grad_off();
    rl_status st = rl_add_over(a, b);
    rl_grad_restore(old);
    return st;
}

static rl_status graph_clone(rl_tensor *a, rl_tensor **out)
{
    return rl_clone(a, RL_FORMAT_PRESERVE, out);
}

static rl_status graph_ones_like(rl_tensor *a, rl_tensor **out)
{
    return rl_full_like(a, rl_scalar_int(1), RL_DTYPE_NONE, out);
}

void rl_ops_init(void)
{
    rl_graph_op = (rl_graph_ops){.add = graph_add, .add_into = graph_add_into, .sum_to = rl_sum_to, .cast = rl_cast, .clone = graph_clone, .ones_like = graph_ones_like,
                                 .zeros = rl_zeros, .as_strided = rl_as_strided, .copy_into = rl_copy_};
}
