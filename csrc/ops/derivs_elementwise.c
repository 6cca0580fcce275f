/* derivs_elementwise: what an elementwise row records, and its backward from the derivative columns of the table.
 *
 * A first-order node (row_class) holds what the row saves. Its backward evaluates a first-derivative expression and, under create_graph, records that evaluation as
 * a node of its own (grad_class): linear in g, with the second-derivative columns as its backward. So second order stays fused. A third order asks for the derivative
 * of a second-derivative expression, which the table does not have: an error names the operator.
 *
 * Slots of row_class: operands 0…n-1, then the result; empty where not saved. Slots of grad_class: g, operands, result. attrs.f: p0…p3; attrs.i[k]: the bits of
 * operand k's number when it is one; attrs.i[5]: the mask of operands that are numbers. grad_class: attrs.i[4] is which first derivative.
 */
#include "elementwise.h"
#include "common.h"

#include <string.h>

static const char *const names[RL_OP_COUNT] = {
#define UNARY(name, rule, saves, f, d1, d2, forms, grad_fn, ...) grad_fn "Backward0",
#define BINARY(name, rule, saves, f, dx, dy, dxx, dxy, dyy, forms, grad_fn, ...) grad_fn "Backward0",
#define TERNARY(name, rule, saves, f, dx, dy, dz, dxx, dxy, dxz, dyy, dyz, dzz, forms, grad_fn, ...) grad_fn "Backward0",
#define OP(...) NULL,
#define ALIAS(...) NULL,
#include "ops.def"
#undef UNARY
#undef BINARY
#undef TERNARY
#undef OP
#undef ALIAS
};

static const char *const second[RL_OP_COUNT][6] = {
#define UNARY(name, rule, saves, f, d1, d2, ...) {#d2},
#define BINARY(name, rule, saves, f, dx, dy, dxx, dxy, dyy, ...) {#dxx, #dxy, #dyy},
#define TERNARY(name, rule, saves, f, dx, dy, dz, dxx, dxy, dxz, dyy, dyz, dzz, ...) {#dxx, #dxy, #dxz, #dyy, #dyz, #dzz},
#define OP(...) {NULL},
#define ALIAS(...) {NULL},
#include "ops.def"
#undef UNARY
#undef BINARY
#undef TERNARY
#undef OP
#undef ALIAS
};

static rl_status row_backward(rl_node *n, rl_tensor *const *gout, rl_tensor **gin);
static rl_status grad_backward(rl_node *n, rl_tensor *const *gout, rl_tensor **gin);
static rl_status third_backward(rl_node *n, rl_tensor *const *gout, rl_tensor **gin);
static const rl_node_class row_class = {.name = "ElementwiseBackward0", .backward = row_backward};
static const rl_node_class grad_class = {.name = "ElementwiseBackwardBackward0", .backward = grad_backward};
static const rl_node_class third_class = {.name = "ElementwiseBackwardBackwardBackward0", .backward = third_backward};

static bool is_zero(const char *text)
{
    return strcmp(text, "T(0)") == 0;
}

/* Index of the second derivative by i and j among the columns: xx, xy, (xz,) yy, (yz, zz). */
static int second_index(int n, int i, int j)
{
    int a = i < j ? i : j, b = i < j ? j : i;
    return n == 3 ? (a == 0 ? b : a == 1 ? 2 + b : 5) : n == 2 ? a + b : 0;
}

/* ---- recording ---- */
static bool saves_operand(const rl_row *row, int k, const rl_operand *in)
{
    switch (row->saves) {
    case RL_SAVE_X: return k == 0;
    case RL_SAVE_Y: return row->n == 2 && k == 1; /* of one operand: the result */
    case RL_SAVE_XY: return k == 0;
    case RL_SAVE_BOTH: return true;
    case RL_SAVE_CROSS: return in[1 - k].t && rl_tensor_requires_grad(in[1 - k].t);
    default: return false;
    }
}

static bool saves_result(const rl_row *row)
{
    return row->n == 1 && (row->saves == RL_SAVE_Y || row->saves == RL_SAVE_XY);
}

static int64_t bits_of(double d)
{
    int64_t i;
    memcpy(&i, &d, sizeof i);
    return i;
}

static double number_of(const rl_node *n, int k)
{
    double d;
    memcpy(&d, &n->attrs.i[k], sizeof d);
    return d;
}

static rl_status save_before_write(rl_node *node, int k, rl_tensor *x)
{
    rl_tensor *kept;
    bool old = rl_grad_off();
    rl_status st = rl_clone(x, RL_FORMAT_PRESERVE, &kept);
    rl_grad_restore(old);
    RL_RETURN(st);
    st = rl_node_save(node, k, kept, -1);
    rl_tensor_release(kept);
    return st;
}

rl_status rl_row_record_begin(int id, const rl_operand *in, int n, const rl_scalar *p, int np, bool inplace, rl_node **out)
{
    rl_status st;
    rl_node *node;
    rl_tensor *inputs[3];
    const rl_row *row = &rl_rows[id];
    for (int k = 0; k < n; k++)
        inputs[k] = in[k].t;
    int nsaved = row->saves == RL_SAVE_NONE ? 0 : n + saves_result(row);
    RL_RETURN(rl_node_new(&row_class, inputs, n, 1, nsaved, &node));
    node->row = id;
    node->name = names[id];
    for (int k = 0; k < np && k < 4; k++)
        node->attrs.f[k] = rl_scalar_to_double(p[k]);
    for (int k = 0; k < n; k++) {
        if (in[k].t == NULL) {
            node->attrs.i[k] = bits_of(rl_scalar_to_double(in[k].s));
            node->attrs.i[5] |= 1 << k;
        } else if (nsaved && saves_operand(row, k, in)) {
            if (inplace && in[k].t == in[0].t)
                RL_TRY(save_before_write(node, k, in[k].t));
            else
                RL_TRY(rl_node_save(node, k, in[k].t, -1));
        }
    }
    *out = node;
    return RL_OK;
fail:
    rl_node_release(node);
    return st;
}

rl_status rl_row_record_end(rl_node *node, int id, rl_tensor *result)
{
    const rl_row *row = &rl_rows[id];
    return saves_result(row) ? rl_node_save(node, row->n, result, 0) : RL_OK;
}

/* ---- evaluating ---- */

/* The operands of a derivative expression: g, then the row's operands (and the result of a unary row). Owned ones are in `own`. */
typedef struct operands {
    rl_operand in[RL_ELEM_INPUTS];
    rl_tensor *own[4];
    int n;
} operands;

/* from: the first slot of the row's operands in this node. */
static rl_status unpack(rl_node *node, const rl_row *row, int from, rl_tensor *g, operands *o)
{
    int extra = row->n + (row->n == 1); /* a unary derivative may read the result */
    memset(o, 0, sizeof *o);
    o->n = 1 + extra;
    o->in[0] = rl_operand_tensor(g);
    for (int k = 0; k < extra; k++) {
        o->in[k + 1] = rl_operand_number(node->attrs.i[5] >> k & 1 ? number_of(node, k) : 0.0);
        if (from + k < node->nsaved) {
            RL_RETURN(rl_node_unpack(node, from + k, &o->own[k]));
            if (o->own[k])
                o->in[k + 1] = rl_operand_tensor(o->own[k]);
        }
    }
    return RL_OK;
}

static void drop(operands *o)
{
    for (int k = 0; k < 4; k++)
        rl_tensor_release(o->own[k]);
}

static rl_status evaluate(const rl_node *node, int expr, const char *text, const operands *o, rl_tensor *g, rl_tensor **out)
{
    rl_number p[4];
    operands use = *o;
    if (text[0] == 'g' && text[1] == 0) {
        *out = rl_tensor_retain(g);
        return RL_OK;
    }
    if (is_zero(text))
        return rl_full_like(g, rl_scalar_int(0), RL_DTYPE_NONE, out);
    for (int k = 0; k < 4; k++)
        p[k].f = node->attrs.f[k];
    use.in[0] = rl_operand_tensor(g);
    return rl_expression(expr, use.in, use.n, p, out);
}

/* Copies what the rows of higher order need to know of the row. */
static void inherit(rl_node *to, const rl_node *from, int which)
{
    to->row = from->row;
    to->name = from->name;
    to->attrs = (rl_attrs){0};
    memcpy(to->attrs.i, from->attrs.i, sizeof to->attrs.i);
    memcpy(to->attrs.f, from->attrs.f, sizeof to->attrs.f);
    to->attrs.i[4] = which;
}

/* Records result = d_which(g, operands). operand_edges: of the row's operands, from a node of lower order (the operands themselves may not be saved). */
static rl_status record_grad(const rl_node_class *cls, const rl_node *from, const rl_edge *operand_edges, int which, const operands *o, rl_tensor *g, rl_tensor *result)
{
    rl_status st;
    rl_node *n;
    const rl_row *row = &rl_rows[from->row];
    rl_tensor *inputs[4] = {g};
    RL_RETURN(rl_node_new(cls, inputs, 1 + row->n, 1, 1 + row->n + (row->n == 1), &n));
    inherit(n, from, which);
    for (int k = 0; k < row->n; k++) {
        /* of several operands, those that the derivative does not depend on have no edge, as in PyTorch's composed formulas */
        bool reads = (row->saves != RL_SAVE_CROSS || k != which) && (row->n == 1 || !is_zero(second[from->row][second_index(row->n, which, k)]));
        if (row->saves == RL_SAVE_NONE || !reads || operand_edges[k].node == NULL)
            continue;
        n->edges[1 + k] = (rl_edge){rl_node_retain(operand_edges[k].node), operand_edges[k].nr};
    }
    RL_TRY(rl_node_save(n, 0, g, -1));
    for (int k = 0; k < row->n + (row->n == 1); k++)
        if (o->own[k])
            RL_TRY(rl_node_save(n, 1 + k, o->own[k], -1));
    RL_TRY(rl_node_attach(n, 0, result));
fail:
    rl_node_release(n);
    return st;
}

static bool any_edge(const rl_edge *e, int n)
{
    bool any = false;
    for (int k = 0; k < n; k++)
        any |= e[k].node != NULL;
    return any;
}

/* d_which(g, operands) of node's row; recorded when grad mode is on and something in it requires a gradient. */
static rl_status first_derivative(rl_node *node, const rl_edge *operand_edges, int which, const operands *o, rl_tensor *g, rl_tensor **out)
{
    const rl_row *row = &rl_rows[node->row];
    rl_tensor *t;
    RL_RETURN(evaluate(node, row->expr + 1 + which, row->first[which], o, g, &t));
    bool recorded = rl_state_get()->grad_mode && t != g &&
                    (rl_tensor_requires_grad(g) || (row->saves != RL_SAVE_NONE && any_edge(operand_edges, row->n)));
    if (RL_UNLIKELY(recorded)) {
        rl_status st = record_grad(&grad_class, node, operand_edges, which, o, g, t);
        if (st != RL_OK) {
            rl_tensor_release(t);
            return st;
        }
    }
    *out = t;
    return RL_OK;
}

/* The incoming gradient is the run's alone and nobody will read it after this node: the last derivative may be written over it. */
static bool is_spent(const rl_node *n, const rl_tensor *g)
{
    return !rl_state_get()->grad_mode && n->post_hooks == NULL && atomic_load_explicit(&g->refs, memory_order_relaxed) == 1 &&
           atomic_load_explicit(&g->storage->refs, memory_order_relaxed) == 1 && g->py == NULL && g->grad_fn == NULL;
}

static rl_status last_derivative(rl_node *n, int which, const operands *o, rl_tensor *g, rl_tensor **out)
{
    const rl_row *row = &rl_rows[n->row];
    const char *text = row->first[which];
    rl_number p[4];
    if (!is_spent(n, g) || is_zero(text) || (text[0] == 'g' && text[1] == 0))
        return first_derivative(n, n->edges, which, o, g, out);
    for (int k = 0; k < 4; k++)
        p[k].f = n->attrs.f[k];
    RL_RETURN(rl_expression_over(row->expr + 1 + which, o->in, o->n, p, out));
    return *out ? RL_OK : first_derivative(n, n->edges, which, o, g, out);
}

static rl_status row_backward(rl_node *n, rl_tensor *const *gout, rl_tensor **gin)
{
    rl_status st;
    operands o;
    const rl_row *row = &rl_rows[n->row];
    int last = row->n - 1;
    RL_TRY(unpack(n, row, 0, gout[0], &o));
    while (last > 0 && !rl_node_needs(n, last))
        last--;
    for (int k = 0; k < last; k++)
        if (rl_node_needs(n, k))
            RL_TRY(first_derivative(n, n->edges, k, &o, gout[0], &gin[k]));
    if (rl_node_needs(n, last))
        RL_TRY(last_derivative(n, last, &o, gout[0], &gin[last]));
fail:
    drop(&o);
    return st;
}

/* result = d_which(g, operands); h its gradient: to g d_which(h, operands), to operand j the second derivative with g * h for g. */
static rl_status grad_backward(rl_node *n, rl_tensor *const *gout, rl_tensor **gin)
{
    rl_status st;
    operands o = {0};
    rl_tensor *g = NULL, *gh = NULL, *h = gout[0];
    const rl_row *row = &rl_rows[n->row];
    int which = (int)n->attrs.i[4];
    RL_TRY(rl_node_unpack(n, 0, &g));
    RL_TRY(unpack(n, row, 1, h, &o));
    if (rl_node_needs(n, 0))
        RL_TRY(first_derivative(n, n->edges + 1, which, &o, h, &gin[0]));
    for (int j = 0; j < row->n; j++) {
        if (!rl_node_needs(n, 1 + j))
            continue;
        int at = second_index(row->n, which, j);
        if (gh == NULL)
            RL_TRY(rl_mul(rl_operand_tensor(g), rl_operand_tensor(h), &gh));
        RL_TRY(evaluate(n, row->expr + 1 + row->n + at, second[n->row][at], &o, gh, &gin[1 + j]));
        if (rl_state_get()->grad_mode && gin[1 + j] != gh && !is_zero(second[n->row][at]))
            RL_TRY(record_grad(&third_class, n, n->edges + 1, at, &o, gh, gin[1 + j]));
    }
fail:
    rl_tensor_release(g);
    rl_tensor_release(gh);
    drop(&o);
    return st;
}

/* result = second_at(g, operands), linear in g; its derivative by an operand is what the table does not have. */
static rl_status third_backward(rl_node *n, rl_tensor *const *gout, rl_tensor **gin)
{
    rl_status st;
    operands o = {0};
    const rl_row *row = &rl_rows[n->row];
    int at = (int)n->attrs.i[4];
    RL_TRY(unpack(n, row, 1, gout[0], &o));
    if (rl_node_needs(n, 0)) {
        RL_TRY(evaluate(n, row->expr + 1 + row->n + at, second[n->row][at], &o, gout[0], &gin[0]));
        if (rl_state_get()->grad_mode && gin[0] != gout[0])
            RL_TRY(record_grad(&third_class, n, n->edges + 1, at, &o, gout[0], gin[0]));
    }
    for (int j = 0; j < row->n; j++)
        if (rl_node_needs(n, 1 + j))
            RL_FAIL(RL_ERR_NOT_IMPLEMENTED, "the third derivative of %s is not implemented", rl_op_table[n->row].name);
fail:
    drop(&o);
    return st;
}
