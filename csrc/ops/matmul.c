/* matmul.c: products of matrices and vectors: matmul in all its broadcasting, mm, bmm, mv, dot, inner, outer, linear.
 *
 * Nothing is copied or viewed on the way: a transposed, sliced or expanded operand goes to the kernel as strides. Every product is one
 * node;
 * where PyTorch makes a chain of views around it, the node carries the name of the chain's last one.
 */
#include "matmul.h"

/* ---- the kernel call ---- */

rl_status rl_product_types(const rl_tensor *a, const rl_tensor *b, const char *kernel)
{
    if (RL_UNLIKELY(a->dtype != b->dtype))
        return rl_fail(RL_ERR_RUNTIME, "expected m1 and m2 to have the same dtype, but got: %s != %s", rl_cpp_type_text((rl_dtype)a->dtype),
                       rl_cpp_type_text((rl_dtype)b->dtype));
    if (RL_UNLIKELY(a->dtype == RL_BOOL))
        return rl_fail(RL_ERR_NOT_IMPLEMENTED, "\"%s\" not implemented for 'Bool'", kernel);
    rl_tensor *both[2] = {(rl_tensor *)a, (rl_tensor *)b};
    return rl_same_device(both, 2, "mm");
}

static void gemm_args(rl_gemm_args *g, rl_tensor *out, void *c, rl_matrix a, rl_matrix b, const rl_scaling *s)
{
    g->dtype = out->dtype;
    g->relu = 0;
    g->m = a.rows;
    g->n = b.cols;
    g->k = a.cols;
    g->batch = 1;
    g->a = a.data;
    g->b = b.data;
    g->c = c;
    g->bias = s->bias;
    g->a_row = a.row;
    g->a_col = a.col;
    g->b_row = b.row;
    g->b_col = b.col;
    g->c_row = b.cols;
    g->c_col = 1;
    g->a_batch = g->b_batch = g->c_batch = 0;
    g->alpha = rl_scalar_to_double(s->alpha);
    g->beta = rl_scalar_to_double(s->beta);
    g->alpha_i = rl_scalar_to_int64(s->alpha);
    g->beta_i = rl_scalar_to_int64(s->beta);
}

rl_status rl_gemm(rl_tensor *out, void *c, rl_matrix a, rl_matrix b, rl_scaling s)
{
    rl_gemm_args g;
    if (a.rows == 0 || b.cols == 0)
        return RL_OK;
    gemm_args(&g, out, c, a, b, &s);
    return rl_launch(out, RL_K_GEMM, &g);
}

/* ---- batches ---- */

typedef struct batch {
    int n; /* dimensions, innermost first, after merging */
    int64_t size[RL_MAX_NDIM], a[RL_MAX_NDIM], b[RL_MAX_NDIM], c[RL_MAX_NDIM]; /* strides in elements */
} batch;

static int batch_ndim(const rl_tensor *t) { return t->ndim > 2 ? t->ndim - 2 : 0; }

static int64_t batch_stride(const rl_tensor *t, int from_inside)
{
    int d = batch_ndim(t) - 1 - from_inside;
    return d < 0 || t->shape[d] == 1 ? 0 : t->strides[d];
}

/* Merges the broadcast batch dimensions; `out` is contiguous and ends with one matrix of m x n. */
static void batch_build(batch *p, const rl_tensor *a, const rl_tensor *b, int64_t matrix)
{
    int na = batch_ndim(a), nb = batch_ndim(b), n = na > nb ? na : nb;
    int64_t step = matrix;
    p->n = 0;
    for (int k = 0; k < n; k++) {
        int da = na - 1 - k, db = nb - 1 - k, last = p->n - 1;
        int64_t sa = da >= 0 ? a->shape[da] : 1, sb = db >= 0 ? b->shape[db] : 1, size = sa != 1 ? sa : sb;
        int64_t ta = batch_stride(a, k), tb = batch_stride(b, k);
        if (size == 1)
            continue;
        if (last >= 0 && ta == p->a[last] * p->size[last] && tb == p->b[last] * p->size[last]) {
            p->size[last] *= size;
        } else {
            p->size[p->n] = size;
            p->a[p->n] = ta;
            p->b[p->n] = tb;
            p->c[p->n++] = step;
        }
        step *= size;
    }
}

/* A batch that shares b is more rows of a: (B, m, k) @ (k, n) is one product of B*m rows. */
static void batch_fold(batch *p, rl_matrix *a)
{
    if (p->n == 0 || p->b[0] != 0 || (a->rows != 1 && p->a[0] != a->rows * a->row))
        return;
    if (a->rows == 1)
        a->row = p->a[0];
    a->rows *= p->size[0];
    p->n--;
    for (int k = 0; k < p->n; k++) {
        p->size[k] = p->size[k + 1];
        p->a[k] = p->a[k + 1];
        p->b[k] = p->b[k + 1];
        p->c[k] = p->c[k + 1];
    }
}

static rl_matrix last_matrix(const rl_tensor *t, bool left)
{
    int n = t->ndim;
    if (n == 1)
        return left ? (rl_matrix){rl_tensor_data(t), 1, t->shape[0], 0, t->strides[0]}
            : (rl_matrix){rl_tensor_data(t), t->shape[0], 1, t->strides[0], 0};
    return (rl_matrix){rl_tensor_data(t), t->shape[n - 2], t->shape[n - 1], t->strides[n - 2], t->strides[n - 1]};
}

rl_status rl_gemm_batched(rl_tensor *out, rl_tensor *a, rl_tensor *b, rl_scaling s)
{
    batch p;
    rl_gemm_args g;
    rl_matrix ma = last_matrix(a, true), mb = last_matrix(b, false);
    int64_t outer = 1, size = rl_tensor_itemsize(out);
    if (out->numel == 0)
        return RL_OK;
    batch_build(&p, a, b, ma.rows * mb.cols);
    batch_fold(&p, &ma);
    gemm_args(&g, out, rl_tensor_data(out), ma, mb, &s);
    if (p.n > 0) {
        g.batch = p.size[0];
        g.a_batch = p.a[0];
        g.b_batch = p.b[0];
        g.c_batch = p.c[0];
    }
    for (int k = 1; k < p.n; k++)
        outer *= p.size[k];
    for (int64_t i = 0; i < outer; i++) {
        int64_t left = i, at_a = 0, at_b = 0, at_c = 0;
        for (int k = 1; k < p.n; k++) {
            int64_t j = left % p.size[k];
            left /= p.size[k];
            at_a += j * p.a[k];
            at_b += j * p.b[k];
            at_c += j * p.c[k];
        }
        g.a = (const char *)ma.data + at_a * size;
        g.b = (const char *)mb.data + at_b * size;
        g.c = (char *)rl_tensor_data(out) + at_c * size;
        RL_RETURN(rl_launch(out, RL_K_GEMM, &g));
    }
    return RL_OK;
}

/* ---- recording: saved a and b, each only where the other needs it; the list is a's and b's shape ---- */

static rl_status record(const rl_node_class *cls, const char *name, rl_tensor *a, rl_tensor *b, rl_tensor *out)
{
    rl_tensor *in[2] = {a, b};
    rl_node *node;
    RL_RETURN(rl_record(cls, in, 2, &out, 1, 2, &node));
    if (RL_LIKELY(!node))
        return RL_OK;
    node->name = name;
    if (rl_node_needs(node, 1))
        RL_RETURN(rl_node_save(node, 0, a, -1));
    if (rl_node_needs(node, 0))
        RL_RETURN(rl_node_save(node, 1, b, -1));
    if (cls != &rl_class_matmul)
        return RL_OK;
    int64_t shapes[2 * RL_MAX_NDIM];
    for (int k = 0; k < a->ndim; k++)
        shapes[k] = a->shape[k];
    for (int k = 0; k < b->ndim; k++)
        shapes[a->ndim + k] = b->shape[k];
    node->attrs.i[0] = a->ndim;
    node->attrs.i[1] = b->ndim;
    return rl_node_set_list(node, shapes, a->ndim + b->ndim);
}

static rl_status finish(rl_status st, const rl_node_class *cls, const char *name, rl_tensor *a, rl_tensor *b, rl_tensor *o, rl_tensor **out)
{
    if (st == RL_OK)
        st = record(cls, name, a, b, o);
    if (st == RL_OK)
        *out = o;
    else
        rl_tensor_release(o);
    return st;
}

static rl_status cannot_multiply(int64_t m, int64_t k, int64_t k2, int64_t n)
{
    return rl_fail(RL_ERR_RUNTIME, "mat1 and mat2 shapes cannot be multiplied (%lldx%lld and %lldx%lld)", (long long)m, (long long)k,
                   (long long)k2, (long long)n);
}

/* ---- the products of matrices and vectors ---- */

rl_status rl_mm_raw(rl_tensor *a, bool ta, rl_tensor *b, bool tb, rl_tensor **out)
{
    rl_matrix ma = rl_matrix_of(a), mb = rl_matrix_of(b);
    rl_tensor *o = NULL;
    ma = ta ? rl_matrix_t(ma) : ma;
    mb = tb ? rl_matrix_t(mb) : mb;
    int64_t shape[2] = {ma.rows, mb.cols};
    RL_RETURN(rl_tensor_empty(2, shape, (rl_dtype)a->dtype, rl_tensor_device(a), &o));
    rl_status st = rl_gemm(o, rl_tensor_data(o), ma, mb, RL_PLAIN_PRODUCT);
    if (st == RL_OK)
        *out = o;
    else
        rl_tensor_release(o);
    return st;
}

static rl_status mm(rl_tensor *a, rl_tensor *b, rl_tensor **out)
{
    rl_tensor *o = NULL;
    if (RL_UNLIKELY(a->shape[1] != b->shape[0]))
        return cannot_multiply(a->shape[0], a->shape[1], b->shape[0], b->shape[1]);
    RL_RETURN(rl_product_types(a, b, "addmm_impl_cpu_"));
    RL_RETURN(rl_mm_raw(a, false, b, false, &o));
    return finish(RL_OK, &rl_class_mm, "MmBackward0", a, b, o, out);
}

static rl_status mv(rl_tensor *a, rl_tensor *v, rl_tensor **out)
{
    rl_tensor *o = NULL;
    if (a->shape[1] != v->shape[0])
        return rl_fail(RL_ERR_RUNTIME, "size mismatch, got input (%lld), mat (%lldx%lld), vec (%lld)", (long long)a->shape[0],
                       (long long)a->shape[0],
                       (long long)a->shape[1], (long long)v->shape[0]);
    RL_RETURN(rl_product_types(a, v, "addmv_impl_cpu"));
    RL_RETURN(rl_tensor_empty(1, a->shape, (rl_dtype)a->dtype, rl_tensor_device(a), &o));
    rl_status st = rl_gemm(o, rl_tensor_data(o), rl_matrix_of(a), last_matrix(v, false), RL_PLAIN_PRODUCT);
    return finish(st, &rl_class_mv, "MvBackward0", a, v, o, out);
}

static rl_status dot(rl_tensor *a, rl_tensor *b, const char *name, rl_tensor **out)
{
    rl_tensor *o = NULL;
    if (a->ndim != 1 || b->ndim != 1)
        return rl_fail(RL_ERR_RUNTIME, "1D tensors expected, but got %dD and %dD tensors", a->ndim, b->ndim);
    if (a->dtype != b->dtype)
        return rl_fail(RL_ERR_RUNTIME, "dot : expected both vectors to have same dtype, but found %s and %s",
                       rl_scalar_type_text((rl_dtype)a->dtype),
                       rl_scalar_type_text((rl_dtype)b->dtype));
    if (a->numel != b->numel)
        return rl_fail(RL_ERR_RUNTIME, "inconsistent tensor size, expected tensor [%lld] and src [%lld] to have the same number of "
                                       "elements, but got %lld and "
                       "%lld elements respectively", (long long)a->numel, (long long)b->numel, (long long)a->numel, (long long)b->numel);
    RL_RETURN(rl_product_types(a, b, "dot"));
    RL_RETURN(rl_tensor_empty(0, NULL, (rl_dtype)a->dtype, rl_tensor_device(a), &o));
    rl_status st = rl_gemm(o, rl_tensor_data(o), last_matrix(a, true), last_matrix(b, false), RL_PLAIN_PRODUCT);
    return finish(st, &rl_class_dot, name, a, b, o, out);
}

/* The shape of a @ b after the checks of matmul. */
static rl_status broadcast_shape(rl_tensor *a, rl_tensor *b, int64_t *shape, int *ndim)
{
    rl_matrix ma = last_matrix(a, true), mb = last_matrix(b, false);
    int na = batch_ndim(a), nb = batch_ndim(b), n = na > nb ? na : nb;
    for (int k = 0; k < n; k++) {
        int da = na - n + k, db = nb - n + k;
        int64_t sa = da >= 0 ? a->shape[da] : 1, sb = db >= 0 ? b->shape[db] : 1;
        if (sa != sb && sa != 1 && sb != 1)
            return rl_fail(RL_ERR_RUNTIME, "The size of tensor a (%lld) must match the size of tensor b (%lld) at non-singleton "
                                           "dimension %d", (long long)sa,
                           (long long)sb, k);
        shape[k] = sa != 1 ? sa : sb;
    }
    if (ma.cols != mb.rows && na && nb) {
        int64_t count = 1;
        for (int k = 0; k < n; k++)
            count *= shape[k];
        return rl_fail(RL_ERR_RUNTIME, "Expected size for first two dimensions of batch2 tensor to be: [%lld, %lld] but got: [%lld, "
                                       "%lld].", (long long)count,
                       (long long)ma.cols, (long long)count, (long long)mb.rows);
    }
    if (ma.cols != mb.rows) {
        int64_t rows = ma.rows;
        for (int k = 0; k < na; k++)
            rows *= a->shape[k];
        return cannot_multiply(rows, ma.cols, mb.rows, mb.cols);
    }
    if (a->ndim > 1)
        shape[n++] = ma.rows;
    if (b->ndim > 1)
        shape[n++] = mb.cols;
    *ndim = n;
    return RL_OK;
}

static rl_status broadcast_product(rl_tensor *a, rl_tensor *b, const rl_node_class *cls, const char *name, rl_tensor **out)
{
    int64_t shape[RL_MAX_NDIM];
    rl_tensor *o = NULL;
    int ndim;
    RL_RETURN(broadcast_shape(a, b, shape, &ndim));
    RL_RETURN(rl_product_types(a, b, a->ndim > 2 && b->ndim > 2 ? "bmm" : "addmm_impl_cpu_"));
    RL_RETURN(rl_tensor_empty(ndim, shape, (rl_dtype)a->dtype, rl_tensor_device(a), &o));
    return finish(rl_gemm_batched(o, a, b, RL_PLAIN_PRODUCT), cls, name, a, b, o, out);
}

rl_status rl_matmul(rl_tensor *a, rl_tensor *b, rl_tensor **out)
{
    if (a->ndim == 2 && b->ndim == 2)
        return mm(a, b, out);
    if (a->ndim == 0 || b->ndim == 0)
        return rl_fail(RL_ERR_RUNTIME, "both arguments to matmul need to be at least 1D, but they are %dD and %dD", a->ndim, b->ndim);
    if (a->ndim == 2 && b->ndim == 1)
        return mv(a, b, out);
    if (a->ndim == 1 && b->ndim == 1)
        return dot(a, b, "DotBackward0", out);
    return broadcast_product(a, b, &rl_class_matmul, a->ndim == 1 && b->ndim == 2 ? "SqueezeBackward4" : "UnsafeViewBackward0", out);
}

/* ---- rows ---- */

rl_status rl_op_matmul(rl_call *c, rl_result *r)
{
    rl_tensor *out = NULL;
    return rl_give(rl_matmul(c->args[0].t, c->args[1].t, &out), out, r);
}

rl_status rl_op_mm(rl_call *c, rl_result *r)
{
    rl_tensor *a = c->args[0].t, *b = c->args[1].t, *out = NULL;
    if (a->ndim != 2)
        return rl_fail(RL_ERR_RUNTIME, "self must be a matrix");
    if (b->ndim != 2)
        return rl_fail(RL_ERR_RUNTIME, "mat2 must be a matrix");
    return rl_give(mm(a, b, &out), out, r);
}

rl_status rl_op_bmm(rl_call *c, rl_result *r)
{
    rl_tensor *a = c->args[0].t, *b = c->args[1].t, *out = NULL;
    if (a->ndim != 3 || b->ndim != 3)
        return rl_fail(RL_ERR_RUNTIME, "batch%d must be a 3D tensor", a->ndim != 3 ? 1 : 2);
    if (a->shape[0] != b->shape[0] || a->shape[2] != b->shape[1])
        return rl_fail(RL_ERR_RUNTIME, "Expected size for first two dimensions of batch2 tensor to be: [%lld, %lld] but got: [%lld, %lld].",
                       (long long)a->shape[0], (long long)a->shape[2], (long long)b->shape[0], (long long)b->shape[1]);
    return rl_give(broadcast_product(a, b, &rl_class_mm, "BmmBackward0", &out), out, r);
}

rl_status rl_op_mv(rl_call *c, rl_result *r)
{
    rl_tensor *a = c->args[0].t, *v = c->args[1].t, *out = NULL;
    if (a->ndim != 2 || v->ndim != 1)
        return rl_fail(RL_ERR_RUNTIME, "vector + matrix @ vector expected, got 1, %d, %d", a->ndim, v->ndim);
    return rl_give(mv(a, v, &out), out, r);
}

rl_status rl_op_dot(rl_call *c, rl_result *r)
{
    rl_tensor *out = NULL;
    return rl_give(dot(c->args[0].t, c->args[1].t, "DotBackward0", &out), out, r);
}

rl_status rl_op_vdot(rl_call *c, rl_result *r)
{
    rl_tensor *out = NULL;
    return rl_give(dot(c->args[0].t, c->args[1].t, "VdotBackward0", &out), out, r);
}

/* The last axes of both: (..., k) and (..., k) give (..., ...). */
static rl_status inner(rl_tensor *a, rl_tensor *b, rl_tensor **out)
{
    rl_tensor *a2 = NULL, *b2 = NULL, *b2t = NULL, *product = NULL;
    rl_status st = RL_OK;
    int64_t shape[2 * RL_MAX_NDIM], k = a->shape[a->ndim - 1];
    int n = 0;
    if (b->shape[b->ndim - 1] != k)
        return rl_fail(RL_ERR_RUNTIME, "inner() the last dimension must match on both input tensors but got shapes %s and %s",
                       rl_shape_text(a->ndim, a->shape),
                       rl_shape_text(b->ndim, b->shape));
    if (a->ndim + b->ndim - 2 > RL_MAX_NDIM)
        return rl_fail(RL_ERR_RUNTIME, "inner(): a result of %d dimensions", a->ndim + b->ndim - 2);
    for (int d = 0; d < a->ndim - 1; d++)
        shape[n++] = a->shape[d];
    for (int d = 0; d < b->ndim - 1; d++)
        shape[n++] = b->shape[d];
    int64_t flat_a[2] = {k ? a->numel / k : 0, k}, flat_b[2] = {k ? b->numel / k : 0, k};
    if (k == 0)
        for (flat_a[0] = flat_b[0] = 1, n = 0; n < a->ndim + b->ndim - 2; n++)
            *(n < a->ndim - 1 ? flat_a : flat_b) *= shape[n];
    RL_TRY(rl_reshape(a, 2, flat_a, &a2));
    RL_TRY(rl_reshape(b, 2, flat_b, &b2));
    RL_TRY(rl_transpose(b2, 0, 1, &b2t));
    RL_TRY(mm(a2, b2t, &product));
    RL_TRY(rl_reshape(product, n, shape, out));
fail:
    rl_tensor_release(a2);
    rl_tensor_release(b2);
    rl_tensor_release(b2t);
    rl_tensor_release(product);
    return st;
}

rl_status rl_op_inner(rl_call *c, rl_result *r)
{
    rl_tensor *a = c->args[0].t, *b = c->args[1].t, *out = NULL;
    rl_status st;
    if (a->ndim == 0 || b->ndim == 0)
        st = rl_mul(rl_operand_tensor(a), rl_operand_tensor(b), &out);
    else if (a->ndim == 1 && b->ndim == 1 && a->numel == b->numel)
        st = dot(a, b, "DotBackward0", &out);
    else
        st = inner(a, b, &out);
    return rl_give(st, out, r);
}

rl_status rl_op_outer(rl_call *c, rl_result *r)
{
    rl_tensor *a = c->args[0].t, *b = c->args[1].t, *column = NULL, *out = NULL;
    if (a->ndim != 1 || b->ndim != 1)
        return rl_fail(RL_ERR_RUNTIME, "outer: Expected 1-D argument %s, but got %d-D", a->ndim != 1 ? "self" : "vec2", a->ndim != 1
                       ? a->ndim : b->ndim);
    RL_RETURN(rl_unsqueeze(a, 1, &column));
    rl_status st = rl_mul(rl_operand_tensor(column), rl_operand_tensor(b), &out);
    rl_tensor_release(column);
    return rl_give(st, out, r);
}
