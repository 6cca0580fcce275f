/* select.c: whole rows by number: index_select, index_add, index_copy, index_fill, embedding, and single elements of the flat tensor (take, put).
 *
 * The kernel sees (outer, size, inner) of contiguous memory and checks every number before it writes. Embedding's backward adds rows into
 * zeros and
 * passes over padding_idx.
 */
#include "gather.h"

#include <string.h>

/* ---- checks and the kernel ---- */

static rl_status check_rows(const rl_tensor *index, const char *op)
{
    if (index->ndim > 1)
        return rl_fail(RL_ERR_INDEX, "%s(): Index is supposed to be a vector, but got dim: %d with type: %s", op, index->ndim,
                       rl_scalar_type_text((rl_dtype)index->dtype));
    if (index->dtype != RL_I64 && index->dtype != RL_I32)
        return rl_fail(RL_ERR_RUNTIME, "%s(): Expected dtype int32 or int64 for index but got: %s", op,
                       rl_scalar_type_text((rl_dtype)index->dtype));
    return RL_OK;
}

typedef struct rows_call {
    int mode;
    rl_axis_split at;
    int64_t skip;
    double alpha;
} rows_call;

/* x and value contiguous. */
static rl_status run_rows(const rows_call *k, rl_tensor *x, rl_tensor *value, rl_tensor *index)
{
    rl_tensor *flat = NULL;
    rl_select_args a = {.mode = k->mode, .dtype = x->dtype, .index_is_32 = index->dtype == RL_I32, .outer = k->at.outer,
                        .size = k->at.n, .inner = k->at.inner,
                        .count = index->numel, .skip = k->skip, .alpha = k->alpha};
    if (index->numel == 0 || value->numel == 0)
        return RL_OK;
    RL_RETURN(rl_plain(index, RL_DTYPE_NONE, &flat));
    a.x = rl_tensor_data(x);
    a.value = rl_tensor_data(value);
    a.index = rl_tensor_data(flat);
    rl_status st = rl_launch(x, RL_K_SELECT, &a);
    rl_tensor_release(flat);
    return st;
}

/* ---- index_select ---- */

rl_status rl_index_select(rl_tensor *x, int64_t dim, rl_tensor *index, rl_tensor **out)
{
    rows_call k = {.mode = RL_SELECT_GET, .skip = -1};
    int64_t shape[RL_MAX_NDIM];
    rl_tensor *in = NULL, *o = NULL;
    rl_node *node;
    rl_status st = RL_OK;
    RL_RETURN(rl_axis_split_of(x, dim, &k.at));
    RL_RETURN(check_rows(index, "index_select"));
    if (x->ndim == 0 && index->numel != 1)
        return rl_fail(RL_ERR_RUNTIME, "index_select(): Index to scalar can have only 1 value, got %lld value(s)", (long long)index->numel);
    memcpy(shape, x->shape, (size_t)x->ndim * sizeof *shape);
    shape[k.at.axis] = index->numel;
    RL_TRY(rl_plain(x, RL_DTYPE_NONE, &in));
    RL_TRY(rl_tensor_empty(x->ndim, shape, (rl_dtype)x->dtype, rl_tensor_device(x), &o));
    RL_TRY(run_rows(&k, in, o, index));
    RL_TRY(rl_record(&rl_class_index_select, &x, 1, &o, 1, 1, &node));
    if (node) {
        node->attrs.i[0] = k.at.axis;
        RL_TRY(rl_node_save(node, 0, index, -1));
        RL_TRY(rl_node_set_list(node, x->shape, x->ndim));
    }
    *out = o;
    o = NULL;
fail:
    rl_tensor_release(in);
    rl_tensor_release(o);
    return st;
}

rl_status rl_op_index_select(rl_call *c, rl_result *r)
{
    rl_tensor *out = NULL;
    return rl_give(rl_index_select(c->args[0].t, c->args[1].i, c->args[2].t, &out), out, r);
}

/* ---- index_add, index_copy, index_fill ---- */

static rl_status check_source(const rl_tensor *x, const rl_axis_split *s, const rl_tensor *index, const rl_tensor *src, const char *op)
{
    int64_t have = src->ndim ? src->shape[s->axis < src->ndim ? s->axis : 0] : 1;
    RL_RETURN(check_rows(index, op));
    if (x->dtype != src->dtype)
        return rl_fail(RL_ERR_RUNTIME, "%s(): self (%s) and source (%s) must have the same scalar type", op,
                       rl_scalar_type_text((rl_dtype)x->dtype),
                       rl_scalar_type_text((rl_dtype)src->dtype));
    bool same = src->ndim == x->ndim || (src->ndim == 0 && x->ndim <= 1) || (x->ndim == 0 && src->numel == 1);
    for (int d = 0; same && src->ndim == x->ndim && d < x->ndim; d++)
        same = d == s->axis || src->shape[d] == x->shape[d];
    if (!same)
        return rl_fail(RL_ERR_RUNTIME, "source tensor shape must match self tensor shape, excluding the specified dimension. Got "
                                       "self.shape = %s "
                       "source.shape = %s", rl_shape_text(x->ndim, x->shape), rl_shape_text(src->ndim, src->shape));
    if (have != index->numel)
        return rl_fail(RL_ERR_INDEX, "%s(): Number of indices (%lld) should be equal to source.size(dim): (%lld), for dim: %d", op,
                       (long long)index->numel,
                       (long long)have, s->axis);
    return RL_OK;
}

/* A copy of x with rows of src added or put. */
static rl_status rows_into(rl_tensor *x, int64_t dim, rl_tensor *index, rl_tensor *src, int mode, double alpha,
                           const rl_node_class *cls, const char *op,
                           rl_tensor **out)
{
    rows_call k = {.mode = mode, .skip = -1, .alpha = alpha};
    rl_tensor *in[2] = {x, src}, *value = NULL, *o = NULL;
    rl_node *node;
    rl_status st = RL_OK;
    RL_RETURN(rl_axis_split_of(x, dim, &k.at));
    RL_RETURN(check_source(x, &k.at, index, src, op));
    bool grad = rl_grad_off();
    st = rl_clone(x, RL_FORMAT_CONTIGUOUS, &o);
    rl_grad_restore(grad);
    RL_TRY(st);
    RL_TRY(rl_plain(src, RL_DTYPE_NONE, &value));
    RL_TRY(run_rows(&k, o, value, index));
    RL_TRY(rl_record(cls, in, 2, &o, 1, 1, &node));
    if (node) {
        node->attrs.i[0] = k.at.axis;
        node->attrs.f[0] = alpha;
        RL_TRY(rl_node_save(node, 0, index, -1));
        RL_TRY(rl_node_set_list(node, src->shape, src->ndim));
    }
    *out = o;
    o = NULL;
fail:
    rl_tensor_release(value);
    rl_tensor_release(o);
    return st;
}

rl_status rl_index_add(rl_tensor *x, int64_t dim, rl_tensor *index, rl_tensor *src, rl_scalar alpha, rl_tensor **out)
{
    return rows_into(x, dim, index, src, RL_SELECT_ADD, rl_scalar_to_double(alpha), &rl_class_index_add, "index_add", out);
}

/* (self, int dim, index, source, *, Scalar alpha=1) */
rl_status rl_op_index_add(rl_call *c, rl_result *r)
{
    rl_tensor *out = NULL;
    return rl_give(rl_index_add(c->args[0].t, c->args[1].i, c->args[2].t, c->args[3].t, c->args[4].s, &out), out, r);
}

rl_status rl_op_index_copy(rl_call *c, rl_result *r)
{
    rl_tensor *out = NULL;
    rl_status st = rows_into(c->args[0].t, c->args[1].i, c->args[2].t, c->args[3].t, RL_SELECT_SET, 1, &rl_class_index_copy,
                             "index_copy", &out);
    return rl_give(st, out, r);
}

/* Numbers from the end become numbers from the start: index_fill and take_along_dim take both. */
rl_status rl_index_from_start(rl_tensor *index, int64_t size, rl_tensor **out)
{
    rl_tensor *wide = NULL, *negative = NULL, *moved = NULL;
    rl_operand zero = {.s = rl_scalar_int(0)}, n = {.s = rl_scalar_int(size)};
    rl_status st = RL_OK;
    bool grad = rl_grad_off();
    RL_TRY(rl_cast(index, RL_I64, &wide));
    RL_TRY(rl_lt(rl_operand_tensor(wide), zero, &negative));
    RL_TRY(rl_add(rl_operand_tensor(wide), n, &moved));
    RL_TRY(rl_where(rl_operand_tensor(negative), rl_operand_tensor(moved), rl_operand_tensor(wide), out));
fail:
    rl_grad_restore(grad);
    rl_tensor_release(wide);
    rl_tensor_release(negative);
    rl_tensor_release(moved);
    return st;
}

/* value: a number, or `tensor` of 0 dimensions. */
static rl_status index_fill(rl_tensor *x, int64_t dim, rl_tensor *index, rl_scalar value, rl_tensor *tensor, rl_tensor **out)
{
    rows_call k = {.mode = RL_SELECT_SET, .skip = -1};
    int64_t shape[RL_MAX_NDIM];
    rl_tensor *in[2] = {x, tensor}, *rows = NULL, *start = NULL, *o = NULL;
    rl_node *node;
    rl_status st = RL_OK;
    RL_RETURN(rl_axis_split_of(x, dim, &k.at));
    RL_RETURN(check_rows(index, "index_fill_"));
    memcpy(shape, x->shape, (size_t)x->ndim * sizeof *shape);
    shape[k.at.axis] = index->numel;
    if (tensor)
        RL_TRY(rl_item(tensor, &value));
    RL_TRY(rl_index_from_start(index, k.at.n, &start));
    RL_TRY(rl_full(x->ndim ? x->ndim : 1, shape, value, (rl_dtype)x->dtype, rl_tensor_device(x), &rows));
    bool grad = rl_grad_off();
    st = rl_clone(x, RL_FORMAT_CONTIGUOUS, &o);
    rl_grad_restore(grad);
    RL_TRY(st);
    RL_TRY(run_rows(&k, o, rows, start));
    RL_TRY(rl_record(&rl_class_index_fill, in, tensor ? 2 : 1, &o, 1, 1, &node));
    if (node) {
        node->name = tensor ? "IndexFillBackward1" : "IndexFillBackward0";
        node->attrs.i[0] = k.at.axis;
        RL_TRY(rl_node_save(node, 0, start, -1));
    }
    *out = o;
    o = NULL;
fail:
    rl_tensor_release(rows);
    rl_tensor_release(start);
    rl_tensor_release(o);
    return st;
}

rl_status rl_index_fill(rl_tensor *x, int64_t dim, rl_tensor *index, rl_scalar value, rl_tensor **out)
{
    return index_fill(x, dim, index, value, NULL, out);
}

/* (self, int dim, index, value): value a number or a 0-dim tensor. */
rl_status rl_op_index_fill(rl_call *c, rl_result *r)
{
    rl_tensor *out = NULL, *value = c->args[3].t;
    if (value && value->ndim > 0)
        return rl_fail(RL_ERR_RUNTIME, "index_fill_ only supports a 0-dimensional value tensor, but got tensor with %d dimension(s).",
                       value->ndim);
    return rl_give(index_fill(c->args[0].t, c->args[1].i, c->args[2].t, c->args[3].s, value, &out), out, r);
}

/* ---- take, put ---- */

rl_status rl_take(rl_tensor *x, rl_tensor *index, rl_tensor **out)
{
    rl_tensor *flat = NULL, *o = NULL;
    rl_node *node;
    rl_status st = RL_OK;
    int64_t all = x->numel;
    if (index->dtype != RL_I64)
        return rl_fail(RL_ERR_RUNTIME, "take(): Expected a long tensor for index, but got %s", rl_scalar_type_text((rl_dtype)index->dtype));
    if (x->numel == 0 && index->numel > 0)
        return rl_fail(RL_ERR_INDEX, "take(): tried to take from an empty tensor");
    bool grad = rl_grad_off();
    st = rl_reshape(x, 1, &all, &flat);
    if (st == RL_OK)
        st = rl_index(flat, &index, 1, &o);
    rl_grad_restore(grad);
    RL_TRY(st);
    RL_TRY(rl_record(&rl_class_take, &x, 1, &o, 1, 1, &node));
    if (node) {
        RL_TRY(rl_node_save(node, 0, index, -1));
        RL_TRY(rl_node_set_list(node, x->shape, x->ndim));
    }
    *out = o;
    o = NULL;
fail:
    rl_tensor_release(flat);
    rl_tensor_release(o);
    return st;
}

rl_status rl_op_take(rl_call *c, rl_result *r)
{
    rl_tensor *out = NULL;
    return rl_give(rl_take(c->args[0].t, c->args[1].t, &out), out, r);
}

static rl_status put_raw(rl_tensor *x, rl_tensor *index, rl_tensor *src, bool accumulate, rl_tensor **out)
{
    rl_tensor *o = NULL, *flat = NULL, *rows = NULL, *value = NULL;
    rl_status st = RL_OK;
    int64_t all = -1;
    RL_TRY(rl_clone(x, RL_FORMAT_CONTIGUOUS, &o));
    if (index->numel > 0) {
        RL_TRY(rl_view(o, 1, &o->numel, &flat));
        RL_TRY(rl_reshape(index, 1, &all, &rows));
        RL_TRY(rl_reshape(src, 1, &all, &value));
        RL_TRY(rl_index_put_(flat, &rows, 1, value, accumulate));
    }
    *out = o;
    o = NULL;
fail:
    rl_tensor_release(o);
    rl_tensor_release(flat);
    rl_tensor_release(rows);
    rl_tensor_release(value);
    return st;
}

rl_status rl_put(rl_tensor *x, rl_tensor *index, rl_tensor *src, bool accumulate, rl_tensor **out)
{
    rl_tensor *in[2] = {x, src};
    rl_node *node;
    rl_status st;
    if (index->dtype != RL_I64)
        return rl_fail(RL_ERR_RUNTIME, "put_(): Expected a long tensor for index, but got %s", rl_scalar_type_text((rl_dtype)index->dtype));
    if (x->dtype != src->dtype)
        return rl_fail(RL_ERR_RUNTIME, "put_(): self and source expected to have the same dtype, but got self.dtype = %s and "
                                       "source.dtype = %s",
                       rl_scalar_type_text((rl_dtype)x->dtype), rl_scalar_type_text((rl_dtype)src->dtype));
    if (index->numel != src->numel)
        return rl_fail(RL_ERR_RUNTIME, "put_(): Expected source and index to have the same number of elements, but got source.numel() = "
                                       "%lld, index.numel() = "
                       "%lld", (long long)src->numel, (long long)index->numel);
    if (x->numel == 0 && index->numel > 0)
        return rl_fail(RL_ERR_INDEX, "put_(): tried to put elements into an empty tensor");
    bool grad = rl_grad_off();
    st = put_raw(x, index, src, accumulate, out);
    rl_grad_restore(grad);
    RL_RETURN(st);
    RL_TRY(rl_record(&rl_class_put, in, 2, out, 1, 1, &node));
    if (node) {
        node->attrs.i[0] = accumulate;
        RL_TRY(rl_node_save(node, 0, index, -1));
        RL_TRY(rl_node_set_list(node, src->shape, src->ndim));
    }
    return RL_OK;
fail:
    rl_tensor_clear(out);
    return st;
}

/* (self, index, source, bool accumulate=False) */
rl_status rl_op_put(rl_call *c, rl_result *r)
{
    rl_tensor *out = NULL;
    return rl_give(rl_put(c->args[0].t, c->args[1].t, c->args[2].t, c->args[3].b, &out), out, r);
}

/* ---- embedding ---- */

rl_status rl_embedding(rl_tensor *weight, rl_tensor *indices, int64_t padding, bool by_frequency, rl_tensor **out)
{
    rows_call k = {.mode = RL_SELECT_GET, .skip = -1};
    int64_t shape[RL_MAX_NDIM + 1];
    rl_tensor *table = NULL, *o = NULL;
    rl_node *node;
    rl_status st = RL_OK;
    if (weight->ndim != 2)
        return rl_fail(RL_ERR_RUNTIME, "'weight' must be 2-D");
    if (indices->dtype != RL_I64 && indices->dtype != RL_I32)
        return rl_fail(RL_ERR_RUNTIME, "Expected tensor for argument #1 'indices' to have one of the following scalar types: Long, Int; "
                                       "but got %s instead "
                       "(while checking arguments for embedding)", rl_dtype_table[indices->dtype].tensor_type);
    if (indices->ndim == RL_MAX_NDIM)
        return rl_fail(RL_ERR_RUNTIME, "embedding(): a result of %d dimensions", RL_MAX_NDIM + 1);
    memcpy(shape, indices->shape, (size_t)indices->ndim * sizeof *shape);
    shape[indices->ndim] = weight->shape[1];
    k.at = (rl_axis_split){.outer = 1, .n = weight->shape[0], .inner = weight->shape[1]};
    RL_TRY(rl_plain(weight, RL_DTYPE_NONE, &table));
    RL_TRY(rl_tensor_empty(indices->ndim + 1, shape, (rl_dtype)weight->dtype, rl_tensor_device(weight), &o));
    RL_TRY(run_rows(&k, table, o, indices));
    RL_TRY(rl_record(&rl_class_embedding, &weight, 1, &o, 1, 1, &node));
    if (node) {
        node->attrs.i[0] = weight->shape[0];
        node->attrs.i[1] = padding < 0 ? -1 : padding;
        node->attrs.i[2] = by_frequency;
        RL_TRY(rl_node_save(node, 0, indices, -1));
    }
    *out = o;
    o = NULL;
fail:
    rl_tensor_release(table);
    rl_tensor_release(o);
    return st;
}

/* (weight, indices, int? padding_idx=None, bool scale_grad_by_freq=False, bool sparse=False) */
rl_status rl_op_embedding(rl_call *c, rl_result *r)
{
    rl_tensor *out = NULL;
    if (c->args[4].b)
        return rl_fail(RL_ERR_NOT_IMPLEMENTED, "embedding with sparse=True: rushlight has no sparse tensors");
    return rl_give(rl_embedding(c->args[0].t, c->args[1].t, c->args[2].given ? c->args[2].i : -1, c->args[3].b, &out), out, r);
}

rl_status rl_embedding_rows(rl_tensor *zeros, rl_tensor *g, rl_tensor *indices, int64_t padding)
{
    rows_call k = {.mode = RL_SELECT_ADD, .skip = padding, .alpha = 1};
    rl_tensor *rows = NULL;
    k.at = (rl_axis_split){.outer = 1, .n = zeros->shape[0], .inner = zeros->shape[1]};
    RL_RETURN(rl_plain(g, (rl_dtype)zeros->dtype, &rows));
    rl_status st = run_rows(&k, zeros, rows, indices);
    rl_tensor_release(rows);
    return st;
}
