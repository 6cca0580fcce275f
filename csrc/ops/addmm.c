/* addmm.c: products that add to something: linear, addmm, baddbmm, addbmm, addmv, addr.
 *
 * The addend is written into the result first and the kernel adds to it, except a contiguous row with factors of 1, which the kernel adds
 * itself
 * (linear's bias). beta == 0 never reads the addend, so its NaN does not pass.
 */
#include "matmul.h"

#include <string.h>

/* ---- linear ---- */

/* Every row of x is one stride after the one before: (..., k) is a matrix. */
static bool rows_merge(const rl_tensor *x)
{
    if (rl_tensor_is_contiguous(x))
        return true;
    for (int d = 0; d < x->ndim - 2; d++)
        if (x->shape[d] != 1 && x->strides[d] != x->strides[d + 1] * x->shape[d + 1])
            return false;
    return true;
}

static rl_matrix row_matrix(const rl_tensor *x)
{
    int64_t k = x->shape[x->ndim - 1], rows = 1;
    for (int d = 0; d < x->ndim - 1; d++)
        rows *= x->shape[d];
    return (rl_matrix){rl_tensor_data(x), rows, k, x->ndim > 1 ? x->strides[x->ndim - 2] : 0, x->strides[x->ndim - 1]};
}

/* inputs: [bias,] x, w; saved: x, w. */
static rl_status record_linear(rl_tensor *x, rl_tensor *w, rl_tensor *bias, rl_tensor *out)
{
    rl_tensor *in[3] = {bias, x, w};
    int first = bias == NULL;
    rl_node *node;
    RL_RETURN(rl_record(&rl_class_linear, in + first, 3 - first, &out, 1, 2, &node));
    if (!node)
        return RL_OK;
    node->attrs.i[0] = bias != NULL;
    if (x->ndim != 2)
        node->name = bias ? "ViewBackward0" : x->ndim == 1 ? "SqueezeBackward4" : "UnsafeViewBackward0";
    else if (!bias)
        node->name = "MmBackward0";
    if (rl_node_needs(node, 2 - first))
        RL_RETURN(rl_node_save(node, 0, x, -1));
    if (rl_node_needs(node, 1 - first))
        RL_RETURN(rl_node_save(node, 1, w, -1));
    return RL_OK;
}

static rl_status linear_check(rl_tensor *x, rl_tensor *w)
{
    int64_t k = x->shape[x->ndim - 1];
    if (RL_UNLIKELY(w->shape[1] != k)) {
        rl_matrix m = row_matrix(x);
        return rl_fail(RL_ERR_RUNTIME, "mat1 and mat2 shapes cannot be multiplied (%lldx%lld and %lldx%lld)", (long long)m.rows,
                       (long long)k,
                       (long long)w->shape[1], (long long)w->shape[0]);
    }
    return rl_product_types(x, w, "addmm_impl_cpu_");
}

static rl_status linear_fused(rl_tensor *x, rl_tensor *w, rl_tensor *bias, rl_tensor **out)
{
    int64_t shape[RL_MAX_NDIM];
    rl_tensor *rows = NULL, *o = NULL, *row = NULL;
    rl_scaling s = RL_PLAIN_PRODUCT;
    rl_status st = RL_OK;
    RL_TRY(linear_check(x, w));
    if (rows_merge(x))
        rows = rl_tensor_retain(x);
    else
        RL_TRY(rl_plain(x, RL_DTYPE_NONE, &rows));
    memcpy(shape, x->shape, (size_t)x->ndim * sizeof *shape);
    shape[x->ndim - 1] = w->shape[0];
    RL_TRY(rl_tensor_empty(x->ndim, shape, (rl_dtype)x->dtype, rl_tensor_device(x), &o));
    if (bias) {
        RL_TRY(rl_plain(bias, RL_DTYPE_NONE, &row));
        s.bias = rl_tensor_data(row);
    }
    RL_TRY(rl_gemm(o, rl_tensor_data(o), row_matrix(rows), rl_matrix_t(rl_matrix_of(w)), s));
    RL_TRY(record_linear(x, w, bias, o));
    *out = o;
    o = NULL;
fail:
    rl_tensor_release(rows);
    rl_tensor_release(row);
    rl_tensor_release(o);
    return st;
}

/* A weight that is a vector, or a bias that broadcasts. */
static rl_status linear_composed(rl_tensor *x, rl_tensor *w, rl_tensor *bias, rl_tensor **out)
{
    rl_tensor *wt = NULL, *product = NULL, *wide = NULL;
    rl_status st = RL_OK;
    if (w->ndim == 2)
        RL_TRY(rl_transpose(w, 0, 1, &wt));
    else
        wt = rl_tensor_retain(w);
    RL_TRY(rl_matmul(x, wt, &product));
    if (!bias) {
        *out = product;
        product = NULL;
        goto fail;
    }
    RL_TRY(rl_expand(bias, product->ndim, product->shape, &wide));
    RL_TRY(rl_add(rl_operand_tensor(product), rl_operand_tensor(wide), out));
fail:
    rl_tensor_release(wt);
    rl_tensor_release(product);
    rl_tensor_release(wide);
    return st;
}

static rl_status same_addend(const rl_tensor *c, const rl_tensor *a, const rl_tensor *b)
{
    if (RL_LIKELY(c->dtype == b->dtype && a->dtype == b->dtype))
        return RL_OK;
    return rl_fail(RL_ERR_RUNTIME, "%s and mat2 must have the same dtype, but got %s and %s", c->dtype != b->dtype ? "self" : "mat1",
                   rl_scalar_type_text((rl_dtype)(c->dtype != b->dtype ? c : a)->dtype), rl_scalar_type_text((rl_dtype)b->dtype));
}

rl_status rl_linear(rl_tensor *x, rl_tensor *w, rl_tensor *bias, rl_tensor **out)
{
    if (bias)
        RL_RETURN(same_addend(bias, x, w));
    if (RL_UNLIKELY(x->ndim == 0 || w->ndim == 0))
        return rl_fail(RL_ERR_RUNTIME, "both arguments to linear need to be at least 1D, but they are %dD and %dD", x->ndim, w->ndim);
    if (RL_UNLIKELY(w->ndim > 2))
        return rl_fail(RL_ERR_RUNTIME, "linear(): weight must have 1 or 2 dimensions, got %d", w->ndim);
    bool simple = w->ndim == 2 && (!bias || (bias->ndim == 1 && bias->shape[0] == w->shape[0] && bias->dtype == x->dtype));
    return simple ? linear_fused(x, w, bias, out) : linear_composed(x, w, bias, out);
}

rl_status rl_op_linear(rl_call *c, rl_result *r)
{
    rl_tensor *out = NULL;
    return rl_give(rl_linear(c->args[0].t, c->args[1].t, c->args[2].given ? c->args[2].t : NULL, &out), out, r);
}

/* ---- an addend with factors ---- */

/* Kept as they came: doubles, and the exact integers beside them (backward multiplies by them). saved: a, b. */
static rl_status record_add(const rl_node_class *cls, const char *name, rl_tensor *const *in, rl_tensor *out, rl_scalar beta,
                            rl_scalar alpha)
{
    rl_node *node;
    RL_RETURN(rl_record(cls, in, 3, &out, 1, 2, &node));
    if (!node)
        return RL_OK;
    node->name = name;
    node->attrs.f[0] = rl_scalar_to_double(beta);
    node->attrs.f[1] = rl_scalar_to_double(alpha);
    if (rl_node_needs(node, 2))
        RL_RETURN(rl_node_save(node, 0, in[1], -1));
    if (rl_node_needs(node, 1))
        RL_RETURN(rl_node_save(node, 1, in[2], -1));
    return rl_node_set_list(node, in[0]->shape, in[0]->ndim);
}

/* A new tensor of this shape, holding the addend where it counts. */
static rl_status addend(rl_tensor *c, rl_scalar beta, int ndim, const int64_t *shape, rl_tensor **out)
{
    rl_tensor *o = NULL, *wide = NULL;
    rl_status st = RL_OK;
    bool grad = rl_grad_off();
    RL_TRY(rl_expand(c, ndim, shape, &wide));
    RL_TRY(rl_tensor_empty(ndim, shape, (rl_dtype)c->dtype, rl_tensor_device(c), &o));
    if (rl_scalar_to_double(beta) != 0)
        RL_TRY(rl_copy_raw(o, wide));
    *out = o;
    o = NULL;
fail:
    rl_grad_restore(grad);
    rl_tensor_release(wide);
    rl_tensor_release(o);
    return st;
}

static rl_status addmm_check(rl_tensor *c, rl_tensor *a, rl_tensor *b)
{
    if (a->ndim != 2 || b->ndim != 2)
        return rl_fail(RL_ERR_RUNTIME, "%s must be a matrix, got %d-D tensor", a->ndim != 2 ? "mat1" : "mat2", a->ndim != 2 ? a->ndim
                       : b->ndim);
    if (a->shape[1] != b->shape[0])
        return rl_fail(RL_ERR_RUNTIME, "mat1 and mat2 shapes cannot be multiplied (%lldx%lld and %lldx%lld)", (long long)a->shape[0],
                       (long long)a->shape[1],
                       (long long)b->shape[0], (long long)b->shape[1]);
    RL_RETURN(same_addend(c, a, b));
    return rl_product_types(a, b, "addmm_impl_cpu_");
}

static bool is_one(rl_scalar s) { return rl_scalar_to_double(s) == 1; }

rl_status rl_addmm(rl_tensor *c, rl_tensor *a, rl_tensor *b, rl_scalar beta, rl_scalar alpha, rl_tensor **out)
{
    rl_tensor *o = NULL, *in[3] = {c, a, b};
    rl_scaling s = {.alpha = alpha, .beta = beta};
    rl_status st = RL_OK;
    RL_RETURN(addmm_check(c, a, b));
    int64_t shape[2] = {a->shape[0], b->shape[1]};
    bool row = c->ndim == 1 && c->shape[0] == shape[1] && rl_tensor_is_contiguous(c) && is_one(beta) && is_one(alpha);
    if (row) {
        RL_TRY(rl_tensor_empty(2, shape, (rl_dtype)a->dtype, rl_tensor_device(a), &o));
        s = RL_PLAIN_PRODUCT;
        s.bias = rl_tensor_data(c);
    } else {
        RL_TRY(addend(c, beta, 2, shape, &o));
    }
    RL_TRY(rl_gemm(o, rl_tensor_data(o), rl_matrix_of(a), rl_matrix_of(b), s));
    RL_TRY(record_add(&rl_class_addmm, "AddmmBackward0", in, o, beta, alpha));
    *out = o;
    o = NULL;
fail:
    rl_tensor_release(o);
    return st;
}

/* (self, a, b, *, beta=1, alpha=1) of every row below. */
#define ADD_ARGS rl_tensor *in[3] = {c->args[0].t, c->args[1].t, c->args[2].t}, *out = NULL; \
    rl_scaling s = {.beta = c->args[3].s, .alpha = c->args[4].s};                             \
    rl_status st = RL_OK

rl_status rl_op_addmm(rl_call *c, rl_result *r)
{
    rl_tensor *out = NULL;
    return rl_give(rl_addmm(c->args[0].t, c->args[1].t, c->args[2].t, c->args[3].s, c->args[4].s, &out), out, r);
}

static rl_status batches_check(rl_tensor *c, rl_tensor *a, rl_tensor *b)
{
    if (a->ndim != 3 || b->ndim != 3)
        return rl_fail(RL_ERR_RUNTIME, "batch%d must be a 3D tensor", a->ndim != 3 ? 1 : 2);
    if (a->shape[0] != b->shape[0] || a->shape[2] != b->shape[1])
        return rl_fail(RL_ERR_RUNTIME, "Expected size for first two dimensions of batch2 tensor to be: [%lld, %lld] but got: [%lld, %lld].",
                       (long long)a->shape[0], (long long)a->shape[2], (long long)b->shape[0], (long long)b->shape[1]);
    RL_RETURN(rl_product_types(a, b, "baddbmm"));
    return same_addend(c, a, b);
}

rl_status rl_op_baddbmm(rl_call *c, rl_result *r)
{
    ADD_ARGS;
    RL_RETURN(batches_check(in[0], in[1], in[2]));
    int64_t shape[3] = {in[1]->shape[0], in[1]->shape[1], in[2]->shape[2]};
    RL_TRY(addend(in[0], s.beta, 3, shape, &out));
    RL_TRY(rl_gemm_batched(out, in[1], in[2], s));
    RL_TRY(record_add(&rl_class_addmm, "BaddbmmBackward0", in, out, s.beta, s.alpha));
fail:
    return rl_give(st, out, r);
}

/* The products of a batch, added up. */
rl_status rl_op_addbmm(rl_call *c, rl_result *r)
{
    ADD_ARGS;
    rl_tensor *a = in[1], *b = in[2];
    RL_RETURN(batches_check(in[0], a, b));
    int64_t shape[2] = {a->shape[1], b->shape[2]}, size = rl_tensor_itemsize(a);
    RL_TRY(addend(in[0], s.beta, 2, shape, &out));
    rl_matrix ma = {rl_tensor_data(a), a->shape[1], a->shape[2], a->strides[1], a->strides[2]};
    rl_matrix mb = {rl_tensor_data(b), b->shape[1], b->shape[2], b->strides[1], b->strides[2]};
    if (a->shape[0] == 0) { /* beta times the addend is left */
        ma.cols = mb.rows = 0;
        RL_TRY(rl_gemm(out, rl_tensor_data(out), ma, mb, s));
    }
    rl_scaling each = s;
    for (int64_t i = 0; i < a->shape[0]; i++) {
        RL_TRY(rl_gemm(out, rl_tensor_data(out), ma, mb, each));
        each.beta = rl_scalar_int(1);
        ma.data = (const char *)ma.data + a->strides[0] * size;
        mb.data = (const char *)mb.data + b->strides[0] * size;
    }
    RL_TRY(record_add(&rl_class_addbmm, "AddbmmBackward0", in, out, s.beta, s.alpha));
fail:
    return rl_give(st, out, r);
}

rl_status rl_op_addmv(rl_call *c, rl_result *r)
{
    ADD_ARGS;
    rl_tensor *a = in[1], *v = in[2];
    if (a->ndim != 2 || v->ndim != 1 || in[0]->ndim > 1)
        return rl_fail(RL_ERR_RUNTIME, "vector + matrix @ vector expected, got %d, %d, %d", in[0]->ndim, a->ndim, v->ndim);
    bool fits = in[0]->ndim == 0 || in[0]->shape[0] == a->shape[0] || in[0]->shape[0] == 1;
    if (a->shape[1] != v->shape[0] || !fits)
        return rl_fail(RL_ERR_RUNTIME, "size mismatch, got input (%lld), mat (%lldx%lld), vec (%lld)", (long long)in[0]->numel,
                       (long long)a->shape[0],
                       (long long)a->shape[1], (long long)v->shape[0]);
    RL_RETURN(rl_product_types(a, v, "addmv_impl_cpu"));
    RL_RETURN(same_addend(in[0], a, v));
    RL_TRY(addend(in[0], s.beta, 1, a->shape, &out));
    rl_matrix column = {rl_tensor_data(v), v->shape[0], 1, v->strides[0], 1};
    RL_TRY(rl_gemm(out, rl_tensor_data(out), rl_matrix_of(a), column, s));
    RL_TRY(record_add(&rl_class_addmv, "AddmvBackward0", in, out, s.beta, s.alpha));
fail:
    return rl_give(st, out, r);
}

rl_status rl_op_addr(rl_call *c, rl_result *r)
{
    ADD_ARGS;
    rl_tensor *a = in[1], *b = in[2];
    if (a->ndim != 1 || b->ndim != 1)
        return rl_fail(RL_ERR_RUNTIME, "addr: Expected 1-D argument %s, but got %d-D", a->ndim != 1 ? "vec1" : "vec2", a->ndim != 1
                       ? a->ndim : b->ndim);
    RL_RETURN(rl_product_types(a, b, "addr"));
    RL_RETURN(same_addend(in[0], a, b));
    int64_t shape[2] = {a->shape[0], b->shape[0]};
    RL_TRY(addend(in[0], s.beta, 2, shape, &out));
    rl_matrix column = {rl_tensor_data(a), a->shape[0], 1, a->strides[0], 1}, row = {rl_tensor_data(b), 1, b->shape[0], 1, b->strides[0]};
    RL_TRY(rl_gemm(out, rl_tensor_data(out), column, row, s));
    RL_TRY(record_add(&rl_class_addr, "AddrBackward0", in, out, s.beta, s.alpha));
fail:
    return rl_give(st, out, r);
}
