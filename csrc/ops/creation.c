/* creation: the operators that make tensors from sizes and numbers: empty, zeros, full, arange, linspace, eye, tri… and their like and new
 * forms.
 *
 * Invariant: lengths and bounds are checked before memory is asked for. The lengths are PyTorch's formulas (ceil in double, exact for
 * integers).
 */
#include "common.h"
#include "factory.h"

#include <math.h>

rl_status rl_fill_(rl_tensor *x, rl_scalar value)
{
    rl_plan p;
    rl_fill_args a = {.dtype = x->dtype};
    if (x->numel == 0)
        return RL_OK;
    if (x->storage->read_only)
        return rl_fail(RL_ERR_RUNTIME, "the tensor's memory is read-only");
    a.is_float = rl_dtype_is_float((rl_dtype)x->dtype);
    if (a.is_float)
        a.value.f = rl_scalar_to_double(value);
    else if (x->dtype == RL_BOOL)
        a.value.i = value.kind == RL_CAT_FLOAT ? value.d != 0 : value.i != 0;
    else
        a.value.i = rl_scalar_to_int64(value);
    a.numel = x->numel;
    a.dst = rl_tensor_data(x);
    if (rl_tensor_is_contiguous(x)) {
        a.ndim = 1;
        a.shape[0] = x->numel;
        a.strides[0] = rl_tensor_itemsize(x);
        return rl_launch(x, RL_K_FILL, &a);
    }
    RL_RETURN(rl_plan_build(&p, &x, 1, 0, x->ndim, x->shape)); /* as an input: an element that is reached twice may be filled twice */
    a.ndim = p.ndim;
    for (int i = 0; i < p.ndim; i++) {
        a.shape[i] = p.shape[i];
        a.strides[i] = p.strides[0][i];
    }
    return rl_launch(x, RL_K_FILL, &a);
}

/* A fresh tensor, filled or dropped. */
static rl_status filled(rl_status st, rl_tensor *t, rl_scalar value, rl_tensor **out)
{
    if (st == RL_OK && (st = rl_fill_(t, value)) != RL_OK)
        rl_tensor_clear(&t);
    if (st == RL_OK)
        *out = t;
    return st;
}

rl_status rl_full(int ndim, const int64_t *shape, rl_scalar value, rl_dtype d, rl_device dev, rl_tensor **out)
{
    rl_tensor *t = NULL;
    rl_status st = rl_tensor_empty(ndim, shape, d, dev, &t);
    return filled(st, t, value, out);
}

rl_status rl_zeros(int ndim, const int64_t *shape, rl_dtype d, rl_device dev, rl_tensor **out)
{
    return rl_full(ndim, shape, rl_scalar_int(0), d, dev, out);
}

rl_status rl_full_like(rl_tensor *like, rl_scalar value, rl_dtype d, rl_tensor **out)
{
    rl_tensor *t = NULL;
    rl_status st = rl_tensor_empty_like(like, d == RL_DTYPE_NONE ? (rl_dtype)like->dtype : d, &t);
    return filled(st, t, value, out);
}

/* ---- from sizes: NAME(int[] size, *, dtype, layout, device, pin_memory) ---- */
static rl_status from_sizes(rl_call *c, rl_result *r, const rl_scalar *value)
{
    rl_factory f;
    rl_tensor *t = NULL;
    const rl_arg *size = &c->args[0];
    RL_RETURN(rl_factory_options(&f, c, 1, rl_default_dtype()));
    if (value == NULL && c->args[5].given) /* empty alone takes a memory format */
        f.format = (rl_memory_format)c->args[5].memory_format;
    rl_status st = rl_factory_empty(&f, size->ints.n, size->ints.v, &t);
    if (st == RL_OK && value)
        st = rl_fill_(t, *value);
    return rl_give(st, t, r);
}

static const rl_scalar zero = {.kind = RL_CAT_INT, {.i = 0}}, one = {.kind = RL_CAT_INT, {.i = 1}};

rl_status rl_op_empty(rl_call *c, rl_result *r) { return from_sizes(c, r, NULL); }
rl_status rl_op_ones(rl_call *c, rl_result *r) { return from_sizes(c, r, &one); }

rl_status rl_op_zeros(rl_call *c, rl_result *r)
{
    for (int i = 0; i < c->args[0].ints.n; i++)
        if (c->args[0].ints.v[i] < 0)
            return rl_fail(RL_ERR_RUNTIME, "zeros: Dimension size must be non-negative.");
    return from_sizes(c, r, &zero);
}

/* The dtype of a number alone: PyTorch's inference of full() and scalar_tensor(). */
static rl_dtype scalar_dtype(rl_scalar s)
{
    return s.kind == RL_CAT_FLOAT ? rl_default_dtype() : s.kind == RL_CAT_INT ? RL_I64 : RL_BOOL;
}

rl_status rl_op_full(rl_call *c, rl_result *r)
{
    rl_factory f;
    rl_tensor *t = NULL;
    RL_RETURN(rl_factory_options(&f, c, 2, scalar_dtype(c->args[1].s)));
    RL_RETURN(rl_scalar_fits(c->args[1].s, f.dtype));
    rl_status st = rl_full(c->args[0].ints.n, c->args[0].ints.v, c->args[1].s, f.dtype, f.device, &t);
    return rl_give(st, t, r);
}

rl_status rl_op_empty_strided(rl_call *c, rl_result *r)
{
    rl_factory f;
    rl_tensor *t = NULL;
    const rl_arg *size = &c->args[0], *stride = &c->args[1];
    RL_RETURN(rl_factory_options(&f, c, 2, rl_default_dtype()));
    if (size->ints.n != stride->ints.n)
        return rl_fail(RL_ERR_RUNTIME, "dimensionality of sizes (%d) must match dimensionality of strides (%d)", size->ints.n,
                       stride->ints.n);
    return rl_give(rl_tensor_empty_strided(size->ints.n, size->ints.v, stride->ints.v, f.dtype, f.device, &t), t, r);
}

/* ---- like: NAME(Tensor self, *, dtype, layout, device, pin_memory, memory_format) ---- */
static rl_status like_form(rl_call *c, rl_result *r, int at, const rl_scalar *value)
{
    rl_factory f;
    rl_tensor *t = NULL;
    RL_RETURN(rl_factory_like(&f, c, at, c->args[0].t));
    if (value)
        RL_RETURN(rl_scalar_fits(*value, f.dtype));
    rl_status st = rl_factory_empty_like(&f, c->args[0].t, &t);
    if (st == RL_OK && value)
        st = rl_fill_(t, *value);
    return rl_give(st, t, r);
}

rl_status rl_op_empty_like(rl_call *c, rl_result *r) { return like_form(c, r, 1, NULL); }
rl_status rl_op_zeros_like(rl_call *c, rl_result *r) { return like_form(c, r, 1, &zero); }
rl_status rl_op_ones_like(rl_call *c, rl_result *r) { return like_form(c, r, 1, &one); }
rl_status rl_op_full_like(rl_call *c, rl_result *r) { return like_form(c, r, 2, &c->args[1].s); }

/* ---- new: NAME(Tensor self, int[] size, …, dtype, layout, device, pin_memory) ---- */
static rl_status new_form(rl_call *c, rl_result *r, int at, const rl_scalar *value)
{
    rl_factory f;
    rl_tensor *t = NULL;
    RL_RETURN(rl_factory_like(&f, c, at, c->args[0].t));
    if (value)
        RL_RETURN(rl_scalar_fits(*value, f.dtype));
    rl_status st = rl_tensor_empty(c->args[1].ints.n, c->args[1].ints.v, f.dtype, f.device, &t);
    if (st == RL_OK && value)
        st = rl_fill_(t, *value);
    return rl_give(st, t, r);
}

rl_status rl_op_new_empty(rl_call *c, rl_result *r) { return new_form(c, r, 2, NULL); }
rl_status rl_op_new_zeros(rl_call *c, rl_result *r) { return new_form(c, r, 2, &zero); }
rl_status rl_op_new_ones(rl_call *c, rl_result *r) { return new_form(c, r, 2, &one); }
rl_status rl_op_new_full(rl_call *c, rl_result *r) { return new_form(c, r, 3, &c->args[2].s); }

rl_status rl_op_new_empty_strided(rl_call *c, rl_result *r)
{
    rl_factory f;
    rl_tensor *t = NULL;
    const rl_arg *size = &c->args[1], *stride = &c->args[2];
    RL_RETURN(rl_factory_like(&f, c, 3, c->args[0].t));
    if (size->ints.n != stride->ints.n)
        return rl_fail(RL_ERR_RUNTIME, "dimensionality of sizes (%d) must match dimensionality of strides (%d)", size->ints.n,
                       stride->ints.n);
    return rl_give(rl_tensor_empty_strided(size->ints.n, size->ints.v, stride->ints.v, f.dtype, f.device, &t), t, r);
}

/* ---- ranges ---- */

/* PyTorch's length: of int64 by the numbers as int64, of everything else by a division in double. */
static rl_status range_length(rl_scalar start, rl_scalar end, rl_scalar step, rl_dtype d, int64_t *n)
{
    double s = rl_scalar_to_double(start), e = rl_scalar_to_double(end), h = rl_scalar_to_double(step), length;
    if (h == 0)
        return rl_fail(RL_ERR_RUNTIME, "step must be nonzero");
    if (!isfinite(s) || !isfinite(e))
        return rl_fail(RL_ERR_RUNTIME, "unsupported range: %g -> %g", s, e);
    if ((h > 0 && e < s) || (h < 0 && e > s))
        return rl_fail(RL_ERR_RUNTIME, "upper bound and lower bound inconsistent with step sign");
    if (d == RL_I64) {
        uint64_t from = (uint64_t)rl_scalar_to_int64(start), to = (uint64_t)rl_scalar_to_int64(end),
            by = (uint64_t)rl_scalar_to_int64(step);
        uint64_t width = h > 0 ? to - from : from - to, stride = h > 0 ? by : 0 - by;
        if (stride == 0)
            return rl_fail(RL_ERR_VALUE, "step must be nonzero");
        length = (double)(width / stride + (width % stride != 0));
    } else
        length = ceil((e - s) / h);
    if (!(length >= 0 && length < 9.2e18))
        return rl_fail(RL_ERR_RUNTIME, "invalid size, possible overflow?");
    *n = (int64_t)length;
    return RL_OK;
}

static rl_number number_in(rl_scalar s, bool is_float)
{
    rl_number v;
    if (is_float)
        v.f = rl_scalar_to_double(s);
    else
        v.i = rl_scalar_to_int64(s);
    return v;
}

static rl_status run_range(rl_tensor *t, rl_scalar start, rl_scalar step, rl_scalar end, bool linspace)
{
    bool is_float = rl_dtype_is_float((rl_dtype)t->dtype) || linspace;
    rl_range_args a = {.dtype = t->dtype, .is_float = is_float, .linspace = linspace, .n = t->numel, .dst = rl_tensor_data(t),
                       .start = number_in(start, is_float), .step = number_in(step, is_float), .end = number_in(end, is_float)};
    return t->numel ? rl_launch(t, RL_K_RANGE, &a) : RL_OK;
}

rl_status rl_arange(rl_scalar start, rl_scalar end, rl_scalar step, rl_dtype d, rl_device dev, rl_tensor **out)
{
    int64_t n;
    rl_tensor *t;
    if (d == RL_DTYPE_NONE) {
        bool integers = start.kind != RL_CAT_FLOAT && end.kind != RL_CAT_FLOAT && step.kind != RL_CAT_FLOAT;
        d = integers ? RL_I64 : rl_default_dtype();
    }
    if (d == RL_BOOL)
        return rl_fail(RL_ERR_NOT_IMPLEMENTED, "\"arange_cpu\" not implemented for 'Bool'");
    RL_RETURN(range_length(start, end, step, d, &n));
    RL_RETURN(rl_tensor_empty(1, &n, d, dev, &t));
    rl_status st = run_range(t, start, step, end, false);
    if (st == RL_OK)
        *out = t;
    else
        rl_tensor_release(t);
    return st;
}

rl_status rl_op_arange(rl_call *c, rl_result *r)
{
    rl_factory f;
    rl_tensor *t = NULL;
    int numbers = c->overload + 1; /* end; start, end; start, end, step */
    rl_scalar start = numbers > 1 ? c->args[0].s : rl_scalar_int(0), end = c->args[numbers > 1].s;
    rl_scalar step = numbers > 2 && c->args[2].given ? c->args[2].s : rl_scalar_int(1);
    RL_RETURN(rl_factory_options(&f, c, numbers, RL_DTYPE_NONE));
    return rl_give(rl_arange(start, end, step, f.dtype, f.device, &t), t, r);
}

static rl_status check_steps(int64_t n, rl_dtype d, const char *op)
{
    if (n < 0)
        return rl_fail(RL_ERR_RUNTIME, "number of steps must be non-negative");
    return d == RL_BOOL ? rl_fail(RL_ERR_NOT_IMPLEMENTED, "\"%s_cpu\" not implemented for 'Bool'", op) : RL_OK;
}

/* start and end: numbers, or tensors without axes that hold one. */
static rl_status ends(const rl_call *c, const char *op, rl_scalar v[2])
{
    for (int k = 0; k < 2; k++) {
        const rl_tensor *t = c->args[k].t;
        if (t && t->ndim)
            return rl_fail(RL_ERR_RUNTIME, "%s only supports 0-dimensional start and end tensors, but got %s with %d dimension(s).", op,
                           k ? "end" : "start", t->ndim);
    }
    for (int k = 0; k < 2; k++) {
        v[k] = c->args[k].s;
        if (c->args[k].t)
            RL_RETURN(rl_item(c->args[k].t, &v[k]));
    }
    return RL_OK;
}

static rl_status spaced(rl_call *c, int at, rl_tensor **out)
{
    rl_factory f;
    rl_scalar v[2];
    rl_tensor *t;
    int64_t n = c->args[2].i;
    RL_RETURN(rl_factory_options(&f, c, at, rl_default_dtype()));
    RL_RETURN(check_steps(n, f.dtype, "linspace"));
    RL_RETURN(ends(c, "linspace", v));
    RL_RETURN(rl_tensor_empty(1, &n, f.dtype, f.device, &t));
    double start = rl_scalar_to_double(v[0]), end = rl_scalar_to_double(v[1]);
    double step = n > 1 ? (end - start) / (double)(n - 1) : 0;
    rl_status st = run_range(t, rl_scalar_float(start), rl_scalar_float(step), rl_scalar_float(n > 1 ? end : start), true);
    if (st == RL_OK)
        *out = t;
    else
        rl_tensor_release(t);
    return st;
}

rl_status rl_op_linspace(rl_call *c, rl_result *r)
{
    rl_tensor *t = NULL;
    return rl_give(spaced(c, 3, &t), t, r);
}

/* v rounded to dtype d (float32 for integers: PyTorch's step there). */
static double rounded(double v, rl_dtype d)
{
    char element[8];
    d = rl_dtype_is_float(d) ? d : RL_F32;
    rl_element_store(element, d, rl_scalar_float(v));
    return rl_element_load(element, d).d;
}

/* base ** linspace, exponents in the result's dtype from both ends, the power in double. On the host: a rare operator of few elements. */
rl_status rl_op_logspace(rl_call *c, rl_result *r)
{
    rl_factory f;
    rl_scalar v[2];
    rl_tensor *t = NULL, *landed = NULL;
    int64_t n = c->args[2].i;
    RL_RETURN(rl_factory_options(&f, c, 4, rl_default_dtype()));
    RL_RETURN(check_steps(n, f.dtype, "logspace"));
    RL_RETURN(ends(c, "logspace", v));
    RL_RETURN(rl_tensor_empty(1, &n, f.dtype, (rl_device){RL_DEVICE_CPU, -1}, &t));
    bool integer = !rl_dtype_is_float(f.dtype);
    double start = integer ? (double)rl_scalar_to_int64(v[0]) : rounded(rl_scalar_to_double(v[0]), f.dtype);
    double end = integer ? (double)rl_scalar_to_int64(v[1]) : rounded(rl_scalar_to_double(v[1]), f.dtype);
    double step = n > 1 ? rounded(rounded(end - start, f.dtype) / (double)(n - 1), f.dtype) : 0;
    char *at = rl_tensor_data(t);
    for (int64_t i = 0; i < n; i++, at += rl_tensor_itemsize(t)) {
        bool first = i < n / 2 || n == 1;
        double along = rounded(step * (double)(first ? i : n - 1 - i), f.dtype);
        rl_element_store(at, f.dtype, rl_scalar_float(pow(c->args[3].f, rounded(first ? start + along : end - along, f.dtype))));
    }
    rl_status st = rl_to(t, f.dtype, f.device, false, RL_FORMAT_CONTIGUOUS, &landed);
    rl_tensor_release(t);
    return rl_give(st, landed, r);
}

/* ---- eye, triangles ---- */
rl_status rl_op_eye(rl_call *c, rl_result *r)
{
    rl_factory f;
    rl_tensor *t = NULL, *diagonal = NULL;
    rl_status st;
    int at = c->overload + 1;
    int64_t shape[2] = {c->args[0].i, c->args[c->overload].i};
    RL_RETURN(rl_factory_options(&f, c, at, rl_default_dtype()));
    if (shape[0] < 0 || shape[1] < 0)
        return rl_fail(RL_ERR_RUNTIME, "%s must be greater or equal to 0, got %lld", shape[0] < 0 ? "n" : "m",
                       (long long)(shape[0] < 0 ? shape[0] : shape[1]));
    RL_TRY(rl_zeros(2, shape, f.dtype, f.device, &t));
    int64_t n = shape[0] < shape[1] ? shape[0] : shape[1], stride = shape[1] + 1;
    RL_TRY(rl_tensor_on_storage(t->storage, NULL, 1, &n, &stride, 0, f.dtype, &diagonal));
    st = rl_fill_(diagonal, one);
fail:
    rl_tensor_release(diagonal);
    return rl_give(st, t, r);
}

/* Coordinates of a triangle of a (rows, cols) matrix, (2, count) int64, row by row. */
static rl_status tri_indices(rl_call *c, rl_result *r, bool upper)
{
    rl_factory f;
    rl_tensor *t = NULL, *landed = NULL;
    int64_t rows = c->args[0].i, cols = c->args[1].i, offset = c->args[2].i, count = 0;
    RL_RETURN(rl_factory_options(&f, c, 3, RL_I64));
    if (rows < 0 || cols < 0)
        return rl_fail(RL_ERR_RUNTIME, "%s must be non-negative, got%lld", rows < 0 ? "row" : "col", (long long)(rows < 0 ? rows : cols));
    if (f.dtype != RL_I64 && f.dtype != RL_I32)
        return rl_fail(RL_ERR_NOT_IMPLEMENTED, "\"%s_indices\" not implemented for '%s'", upper ? "triu" : "tril",
                       rl_dtype_table[f.dtype].scalar_type);
    for (int pass = 0; pass < 2; pass++) {
        int64_t at = 0, *out = pass ? rl_tensor_data(t) : NULL;
        for (int64_t i = 0; i < rows; i++) {
            int64_t edge = offset > cols ? cols : offset < -rows ? -rows : offset; /* beyond the matrix it is all or nothing */
            edge += i;
            int64_t lo = upper ? (edge > 0 ? edge : 0) : 0, hi = upper ? cols : (edge + 1 < cols ? edge + 1 : cols);
            for (int64_t j = lo; j < hi; j++, at++)
                if (pass) {
                    out[at] = i;
                    out[at + count] = j;
                }
        }
        if (!pass) {
            count = at;
            RL_RETURN(rl_tensor_empty(2, (int64_t[]){2, count}, RL_I64, (rl_device){RL_DEVICE_CPU, -1}, &t));
        }
    }
    rl_status st = rl_to(t, f.dtype, f.device, false, RL_FORMAT_CONTIGUOUS, &landed);
    rl_tensor_release(t);
    return rl_give(st, landed, r);
}

rl_status rl_op_tril_indices(rl_call *c, rl_result *r) { return tri_indices(c, r, false); }
rl_status rl_op_triu_indices(rl_call *c, rl_result *r) { return tri_indices(c, r, true); }
