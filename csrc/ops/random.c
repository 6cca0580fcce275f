/* random.c: what the random operators mean: checks, the order in which a fill visits memory, in-place history.
 *
 * Invariant: a call that fails has drawn nothing. Every fill holds the generator's lock from its first to its last word, so
 * the numbers do not depend on threads; which words become which numbers is the kernel's business (RL_K_RANDOM).
 */
#include "common.h"
#include "deriv.h"
#include "factory.h"
#include "ops.h"

#include <math.h>

/* ---- the fill ---- */

/* Dimensions of `t` by falling stride, merged where they walk on: PyTorch visits memory in this order, innermost first here. */
static rl_status fill_dims(const rl_tensor *t, rl_random_args *a, const rl_tensor *p, const int64_t *p_strides)
{
    int order[RL_MAX_NDIM], n = 0, size = rl_tensor_itemsize(t);
    for (int d = t->ndim - 1; d >= 0; d--) {
        if (t->shape[d] == 1)
            continue;
        int k = n++;
        while (k > 0 && t->strides[order[k - 1]] > t->strides[d]) {
            order[k] = order[k - 1];
            k--;
        }
        order[k] = d;
    }
    a->ndim = 0;
    for (int k = 0; k < n; k++) {
        int d = order[k], last = a->ndim - 1;
        int64_t ps = p ? p_strides[d] * rl_tensor_itemsize(p) : 0;
        if (last >= 0 && t->strides[d] * size == a->strides[last] * a->shape[last] && (!p || ps == a->p_strides[last] * a->shape[last])) {
            a->shape[last] *= t->shape[d];
            continue;
        }
        if (a->ndim == RL_ARG_DIMS)
            return rl_fail(RL_ERR_RUNTIME, "random fill: a tensor of shape %s has more than %d dimensions that do not merge",
                           rl_shape_text(t->ndim, t->shape), RL_ARG_DIMS);
        a->shape[a->ndim] = t->shape[d];
        a->strides[a->ndim] = t->strides[d] * size;
        a->p_strides[a->ndim++] = ps;
    }
    return RL_OK;
}

static rl_status run_fill(rl_tensor *t, rl_random_args *a, rl_generator *g)
{
    const rl_backend *be = t->storage->backend;
    if (t->numel == 0)
        return RL_OK;
    if (!g)
        g = rl_generator_default(rl_tensor_device(t));
    a->dtype = t->dtype;
    a->dense = rl_tensor_is_contiguous(t);
    a->numel = t->numel;
    a->out = rl_tensor_data(t);
    a->generator = g;
    pthread_mutex_lock(&g->lock);
    rl_status st = be->kernels[RL_K_RANDOM](a, be->stream_current(rl_tensor_device(t).index));
    pthread_mutex_unlock(&g->lock);
    return st;
}

static rl_status fill(rl_tensor *t, int dist, double a, double b, rl_generator *g)
{
    rl_random_args args = {.dist = dist, .a = a, .b = b};
    rl_status st = fill_dims(t, &args, NULL, NULL);
    return st != RL_OK ? st : run_fill(t, &args, g);
}

static const char *type_text(rl_dtype d) { return rl_dtype_table[d].scalar_type; }

/* PyTorch's messages of bounds name the C++ type. */
static const char *cpp_type(rl_dtype d)
{
    static const char *const names[RL_DTYPE_COUNT] = {"bool", "unsigned char", "signed char", "short", "int", "long int", "c10::Half",
                                                      "c10::BFloat16", "float", "double"};
    return names[d];
}

static rl_status need_float(rl_dtype d, const char *kernel)
{
    return rl_dtype_is_float(d) ? RL_OK : rl_fail(RL_ERR_NOT_IMPLEMENTED, "\"%s\" not implemented for '%s'", kernel, type_text(d));
}

/* ---- checks of the parameters, one for each law ---- */

static double float_max(rl_dtype d)
{
    static const double max[] = {65504.0, 3.3895313892515355e38, 3.4028234663852886e38, 1.7976931348623157e308};
    return max[d - RL_F16];
}

static rl_status check_uniform(rl_dtype d, double from, double to)
{
    RL_RETURN(need_float(d, "check_uniform_bounds"));
    double max = float_max(d);
    if (!(from >= -max && from <= max))
        return rl_fail(RL_ERR_RUNTIME, "from is out of bounds for %s", cpp_type(d));
    if (!(to >= -max && to <= max))
        return rl_fail(RL_ERR_RUNTIME, "to is out of bounds for %s", cpp_type(d));
    if (from > to)
        return rl_fail(RL_ERR_RUNTIME, "uniform_ expects to return a [from, to) range, but found from=%g > to=%g", from, to);
    if (to - from > max)
        return rl_fail(RL_ERR_RUNTIME, "uniform_ expects to-from <= std::numeric_limits<%s>::max(), but found to=%g and from=%g", cpp_type(d), to, from);
    return RL_OK;
}

static rl_status check_normal(rl_dtype d, double std)
{
    if (!(std >= 0))
        return rl_fail(RL_ERR_RUNTIME, "normal expects std >= 0.0, but found std %g", std);
    return need_float(d, "normal_kernel_cpu");
}

static rl_status check_probability(double p)
{
    return p >= 0 && p <= 1 ? RL_OK : rl_fail(RL_ERR_RUNTIME, "bernoulli_ expects p to be in [0, 1], but got p=%g", p);
}

static int float_digits(rl_dtype d)
{
    static const int digits[] = {11, 8, 24, 53};
    return digits[d - RL_F16];
}

/* `v` as the float dtype holds it. */
static int64_t round_to(rl_dtype d, int64_t v)
{
    char bytes[8];
    rl_element_store(bytes, d, rl_scalar_float(d == RL_F64 ? (double)v : (double)(float)v));
    return rl_scalar_to_int64(rl_element_load(bytes, d));
}

static int bit_length(uint64_t v) { return v ? 64 - __builtin_clzll(v) : 0; }

static uint64_t magnitude(int64_t v) { return v < 0 ? 0 - (uint64_t)v : (uint64_t)v; }

/* For float dtypes the bounds of randint move inwards to representable integers. */
static void shrink(rl_dtype d, int64_t *low, int64_t *high)
{
    int digits = float_digits(d);
    int64_t lo = *low, hi = *high, up = round_to(d, lo + 1), down = round_to(d, hi - 1);
    if (up < lo)
        *low = up + (int64_t)(1ull << (bit_length(magnitude(lo + 1)) - 1 - digits + 1));
    if (down >= hi)
        *high = down - (int64_t)(1ull << (bit_length(magnitude(hi - 1)) - 1 - digits + 1));
}

/* Range of integers that random_(from, to) may name for a dtype. */
static rl_status check_int_bounds(rl_dtype d, int64_t from, int64_t last)
{
    static const int64_t min[] = {0, 0, -128, -32768, INT32_MIN, INT64_MIN}, max[] = {1, 255, 127, 32767, INT32_MAX, INT64_MAX};
    double limit = rl_dtype_is_float(d) ? float_max(d) : 0;
    bool low = rl_dtype_is_float(d) ? (double)from < -limit || (double)from > limit : from < min[d] || from > max[d];
    bool high = rl_dtype_is_float(d) ? (double)last < -limit || (double)last > limit : last < min[d] || last > max[d];
    if (low)
        return rl_fail(RL_ERR_RUNTIME, "from is out of bounds for %s", cpp_type(d));
    if (high)
        return rl_fail(RL_ERR_RUNTIME, "to - 1 is out of bounds for %s", cpp_type(d));
    return RL_OK;
}

static rl_status fill_range(rl_tensor *t, int64_t from, int64_t to, rl_generator *g)
{
    rl_dtype d = (rl_dtype)t->dtype;
    rl_random_args a = {.dist = RL_RAND_RANDINT};
    if (from >= to)
        return rl_fail(RL_ERR_RUNTIME, "random_ expects 'from' to be less than 'to', but got from=%lld >= to=%lld", (long long)from, (long long)to);
    if (rl_dtype_is_float(d)) {
        shrink(d, &from, &to);
        if (from >= to)
            return rl_fail(RL_ERR_RUNTIME, "random_ expects 'from' casted to dtype to be less than 'to' casted to dtype, but got from=%lld >= to=%lld",
                           (long long)from, (long long)to);
    }
    RL_RETURN(check_int_bounds(d, from, to - 1));
    RL_RETURN(fill_dims(t, &a, NULL, NULL));
    a.from = from;
    a.range = (uint64_t)to - (uint64_t)from;
    return run_fill(t, &a, g);
}

/* random_(from, None): up to the largest value, all 64 bits from the smallest int64. */
static rl_status fill_upwards(rl_tensor *t, int64_t from, rl_generator *g)
{
    rl_dtype d = (rl_dtype)t->dtype;
    static const int64_t max[] = {1, 255, 127, 32767, INT32_MAX, INT64_MAX};
    if (rl_dtype_is_float(d))
        return fill_range(t, from, (int64_t)1 << float_digits(d), g);
    RL_RETURN(check_int_bounds(d, from, max[d]));
    rl_random_args a = {.dist = RL_RAND_RANDINT, .from = from, .range = (uint64_t)max[d] - (uint64_t)from + 1};
    a.full = d == RL_I64 && from == INT64_MIN;
    RL_RETURN(fill_dims(t, &a, NULL, NULL));
    return run_fill(t, &a, g);
}

/* ---- in-place operators: the new values do not depend on the old ones, so their gradient is zero ---- */

static rl_tensor *zeros_like(rl_deriv *d, rl_tensor *t)
{
    rl_tensor *zeros = NULL;
    rl_status st = rl_full_like(t, rl_scalar_int(0), RL_DTYPE_NONE, &zeros);
    return d_keep(d, st, zeros);
}

static void back_random(rl_deriv *d)
{
    if (d_needs(d, 0))
        d_set(d, 0, zeros_like(d, d->gout[0]));
}
RL_DERIV(random, "RandomBackward0", back_random)

typedef struct in_place {
    rl_tensor *t;
    rl_node *node;
} in_place;

static rl_status in_place_begin(in_place *p, rl_call *c, const char *op, const char *grad_fn)
{
    *p = (in_place){.t = c->args[0].t};
    RL_RETURN(rl_inplace_check(p->t, op));
    if (!rl_grad_needed(&p->t, 1))
        return RL_OK;
    RL_RETURN(rl_node_new(&rl_class_random, &p->t, 1, 1, 0, &p->node));
    p->node->name = grad_fn;
    return rl_node_set_out(p->node, 0, p->t);
}

static rl_status in_place_end(in_place *p, rl_status st, rl_result *r)
{
    if (st == RL_OK)
        st = rl_inplace_rebase(p->t, p->node, 0);
    rl_node_release(p->node);
    if (st == RL_OK)
        r->t[r->n++] = rl_tensor_retain(p->t);
    return st;
}

/* name_(self, a, b, *, generator): check, fill, history. */
#define IN_PLACE_LAW(name, grad_fn, dist, check, a_, b_, gen)                                 \
    rl_status rl_op_##name(rl_call *c, rl_result *r)                                          \
    {                                                                                         \
        in_place p;                                                                           \
        rl_dtype d = (rl_dtype)c->args[0].t->dtype;                                           \
        double a = (a_), b = (b_);                                                            \
        (void)d, (void)b;                                                                     \
        RL_RETURN(check);                                                                     \
        RL_RETURN(in_place_begin(&p, c, #name, grad_fn));                                     \
        return in_place_end(&p, fill(p.t, dist, a, b, c->args[gen].generator), r);            \
    }

static rl_status check_exponential(rl_dtype d, double lambda)
{
    if (!rl_dtype_is_float(d))
        return rl_fail(RL_ERR_RUNTIME, "Exponential distribution is a continuous probability distribution. dtype must be a floating point but you specified %s",
                       type_text(d));
    return lambda > 0 ? RL_OK : rl_fail(RL_ERR_RUNTIME, "exponential_ expects lambda > 0.0, but found lambda=%g", lambda);
}

static rl_status check_geometric(rl_dtype d, double p)
{
    if (!(p > 0 && p < 1))
        return rl_fail(RL_ERR_RUNTIME, "geometric_ expects p to be in (0, 1), but got p=%g", p);
    return d != RL_BOOL ? RL_OK : rl_fail(RL_ERR_NOT_IMPLEMENTED, "\"geometric_cpu\" not implemented for 'Bool'");
}

static rl_status check_cauchy(rl_dtype d, double sigma)
{
    if (!(sigma > 0))
        return rl_fail(RL_ERR_RUNTIME, "cauchy_ expects sigma > 0.0, but found sigma=%g", sigma);
    if (!rl_dtype_is_float(d))
        return rl_fail(RL_ERR_RUNTIME, "Cauchy distribution is a continuous probability distribution. dtype must be a floating point but you specified %s",
                       cpp_type(d));
    return RL_OK;
}

static rl_status check_log_normal(rl_dtype d, double std)
{
    return std > 0 ? need_float(d, "log_normal_cpu") : rl_fail(RL_ERR_RUNTIME, "log_normal_ expects std > 0.0, but found std=%g", std);
}

#define ARG(k) c->args[k].f
IN_PLACE_LAW(uniform_, "UniformBackward0", RL_RAND_UNIFORM, check_uniform(d, a, b), ARG(1), ARG(2), 3)
IN_PLACE_LAW(normal_, "NormalBackward0", RL_RAND_NORMAL, check_normal(d, b), ARG(1), ARG(2), 3)
IN_PLACE_LAW(exponential_, "ExponentialBackward0", RL_RAND_EXPONENTIAL, check_exponential(d, a), ARG(1), 0, 2)
IN_PLACE_LAW(geometric_, "GeometricBackward0", RL_RAND_GEOMETRIC, check_geometric(d, a), ARG(1), 0, 2)
IN_PLACE_LAW(cauchy_, "CauchyBackward0", RL_RAND_CAUCHY, check_cauchy(d, b), ARG(1), ARG(2), 3)
IN_PLACE_LAW(log_normal_, "LogNormalBackward0", RL_RAND_LOG_NORMAL, check_log_normal(d, b), ARG(1), ARG(2), 3)

/* Overloads: (self), (self, to), (self, from, to?). */
rl_status rl_op_random_(rl_call *c, rl_result *r)
{
    static const char *const names[] = {"RandomBackward2", "RandomBackward1", "RandomBackward0"};
    in_place p;
    rl_status st;
    RL_RETURN(in_place_begin(&p, c, "random_", names[c->overload]));
    if (c->overload == 0)
        st = fill(p.t, RL_RAND_RANDOM, 0, 0, c->args[1].generator);
    else if (c->overload == 1)
        st = fill_range(p.t, 0, c->args[1].i, c->args[2].generator);
    else if (c->args[2].given)
        st = fill_range(p.t, c->args[1].i, c->args[2].i, c->args[3].generator);
    else
        st = fill_upwards(p.t, c->args[1].i, c->args[3].generator);
    return in_place_end(&p, st, r);
}

/* ---- Bernoulli ---- */

/* Every probability in [0, 1], as PyTorch checks before it draws. */
static rl_status check_probabilities(rl_tensor *p)
{
    rl_tensor *low = NULL, *high = NULL;
    rl_scalar a = rl_scalar_float(0), b = a;
    rl_status st = RL_OK;
    if (p->numel == 0)
        return RL_OK;
    bool grad = rl_state_get()->grad_mode;
    rl_state_get()->grad_mode = false;
    RL_TRY(rl_amax(p, NULL, 0, false, &high));
    RL_TRY(rl_item(high, &b));
    RL_TRY(rl_neg(p, &low));
    rl_tensor_clear(&high);
    RL_TRY(rl_amax(low, NULL, 0, false, &high));
    RL_TRY(rl_item(high, &a));
    if (!(b.d <= 1 && -a.d >= 0))
        RL_FAIL(RL_ERR_RUNTIME, "Expected p_in >= 0 && p_in <= 1 to be true, but got probabilities from %g to %g", -a.d, b.d);
fail:
    rl_state_get()->grad_mode = grad;
    rl_tensor_release(low);
    rl_tensor_release(high);
    return st;
}

static rl_status fill_bernoulli_tensor(rl_tensor *t, rl_tensor *p, rl_generator *g)
{
    rl_random_args a = {.dist = RL_RAND_BERNOULLI_TENSOR, .p_dtype = p->dtype};
    rl_tensor *wide = NULL;
    rl_status st = RL_OK;
    if (!rl_dtype_is_float((rl_dtype)p->dtype))
        return rl_fail(RL_ERR_NOT_IMPLEMENTED, "\"bernoulli_tensor_cpu_p_\" not implemented for '%s'", type_text((rl_dtype)p->dtype));
    RL_RETURN(check_probabilities(p));
    RL_TRY(rl_expand(p, t->ndim, t->shape, &wide));
    a.p = rl_tensor_data(wide);
    RL_TRY(fill_dims(t, &a, wide, wide->strides));
    RL_TRY(run_fill(t, &a, g));
fail:
    rl_tensor_release(wide);
    return st;
}

/* Overloads: (self, Tensor p), (self, float p=0.5). */
rl_status rl_op_bernoulli_(rl_call *c, rl_result *r)
{
    in_place p;
    rl_status st;
    if (c->overload == 1)
        RL_RETURN(check_probability(ARG(1)));
    RL_RETURN(in_place_begin(&p, c, "bernoulli_", c->overload ? "BernoulliBackward2" : "BernoulliBackward1"));
    if (c->overload == 0)
        st = fill_bernoulli_tensor(p.t, c->args[1].t, c->args[2].generator);
    else
        st = fill(p.t, RL_RAND_BERNOULLI, ARG(1), 0, c->args[2].generator);
    return in_place_end(&p, st, r);
}

/* Overloads: (self, *, generator), (self, float p, *, generator). */
rl_status rl_op_bernoulli(rl_call *c, rl_result *r)
{
    rl_tensor *x = c->args[0].t, *out = NULL;
    rl_node *node = NULL;
    rl_status st = RL_OK;
    if (c->overload == 1)
        RL_TRY(check_probability(ARG(1)));
    RL_TRY(rl_tensor_empty_like(x, (rl_dtype)x->dtype, &out));
    if (c->overload == 0)
        RL_TRY(fill_bernoulli_tensor(out, x, c->args[1].generator));
    else
        RL_TRY(fill(out, RL_RAND_BERNOULLI, ARG(1), 0, c->args[2].generator));
    if (rl_grad_needed(&x, 1)) {
        RL_TRY(rl_node_new(&rl_class_random, &x, 1, 1, 0, &node));
        node->name = "BernoulliBackward0";
        RL_TRY(rl_node_attach(node, 0, out));
    }
    r->t[r->n++] = out;
    out = NULL;
fail:
    rl_node_release(node);
    rl_tensor_release(out);
    return st;
}

/* ---- factories ---- */

typedef enum law { LAW_UNIFORM, LAW_NORMAL } law;

static rl_status check_law(law which, rl_dtype d)
{
    return which == LAW_UNIFORM ? check_uniform(d, 0, 1) : check_normal(d, 1);
}

static rl_status random_factory(rl_call *c, rl_result *r, law which)
{
    rl_factory f;
    rl_tensor *out = NULL;
    RL_RETURN(rl_factory_options(&f, c, 2, rl_default_dtype()));
    RL_RETURN(check_law(which, f.dtype));
    RL_RETURN(rl_tensor_empty(c->args[0].ints.n, c->args[0].ints.v, f.dtype, f.device, &out));
    return rl_give(fill(out, which == LAW_UNIFORM ? RL_RAND_UNIFORM : RL_RAND_NORMAL, 0, 1, c->args[1].generator), out, r);
}

rl_status rl_op_rand(rl_call *c, rl_result *r) { return random_factory(c, r, LAW_UNIFORM); }
rl_status rl_op_randn(rl_call *c, rl_result *r) { return random_factory(c, r, LAW_NORMAL); }

static rl_status random_like(rl_call *c, rl_result *r, law which)
{
    rl_factory f;
    rl_tensor *out = NULL;
    RL_RETURN(rl_factory_like(&f, c, 2, c->args[0].t));
    RL_RETURN(check_law(which, f.dtype));
    RL_RETURN(rl_factory_empty_like(&f, c->args[0].t, &out));
    return rl_give(fill(out, which == LAW_UNIFORM ? RL_RAND_UNIFORM : RL_RAND_NORMAL, 0, 1, c->args[1].generator), out, r);
}

rl_status rl_op_rand_like(rl_call *c, rl_result *r) { return random_like(c, r, LAW_UNIFORM); }
rl_status rl_op_randn_like(rl_call *c, rl_result *r) { return random_like(c, r, LAW_NORMAL); }

/* Overloads: (high, size, …), (low, high, size, …). */
rl_status rl_op_randint(rl_call *c, rl_result *r)
{
    int low = c->overload; /* 1: a low bound stands before high */
    rl_factory f;
    rl_tensor *out = NULL;
    RL_RETURN(rl_factory_options(&f, c, 3 + low, RL_I64));
    RL_RETURN(rl_tensor_empty(c->args[1 + low].ints.n, c->args[1 + low].ints.v, f.dtype, f.device, &out));
    return rl_give(fill_range(out, low ? c->args[0].i : 0, c->args[low].i, c->args[2 + low].generator), out, r);
}

/* Overloads: (self, high, …), (self, low, high, …). */
rl_status rl_op_randint_like(rl_call *c, rl_result *r)
{
    int low = c->overload;
    rl_factory f;
    rl_tensor *out = NULL;
    RL_RETURN(rl_factory_like(&f, c, 3 + low, c->args[0].t));
    RL_RETURN(rl_factory_empty_like(&f, c->args[0].t, &out));
    return rl_give(fill_range(out, low ? c->args[1].i : 0, c->args[1 + low].i, c->args[2 + low].generator), out, r);
}

rl_status rl_op_randperm(rl_call *c, rl_result *r)
{
    static const int64_t largest[RL_DTYPE_COUNT] = {1, 255, 127, 32767, INT32_MAX, INT64_MAX, 2048, 256, 1 << 24, (int64_t)1 << 53};
    rl_factory f;
    rl_tensor *perm = NULL, *out = NULL;
    rl_status st = RL_OK;
    int64_t n = c->args[0].i;
    if (n < 0)
        return rl_fail(RL_ERR_RUNTIME, "n must be non-negative, got %lld", (long long)n);
    RL_RETURN(rl_factory_options(&f, c, 2, RL_I64));
    if (n > 0 && n - 1 > largest[f.dtype])
        return rl_fail(RL_ERR_RUNTIME, "randperm: value %lld cannot be converted to type %s without overflow", (long long)(n - 1), cpp_type(f.dtype));
    RL_TRY(rl_tensor_empty(1, &n, RL_I64, f.device, &perm));
    RL_TRY(fill(perm, RL_RAND_PERM, 0, 0, c->args[1].generator));
    RL_TRY(rl_cast(perm, f.dtype, &out));
fail:
    rl_tensor_release(perm);
    return rl_give(st, out, r);
}

/* ---- normal(mean, std) with tensors: separate roundings, as PyTorch's ---- */

static rl_status check_std_tensor(rl_tensor *std)
{
    rl_tensor *low = NULL, *least = NULL;
    rl_scalar s;
    rl_status st = RL_OK;
    if (std->numel == 0)
        return RL_OK;
    RL_TRY(rl_neg(std, &low));
    RL_TRY(rl_amax(low, NULL, 0, false, &least));
    RL_TRY(rl_item(least, &s));
    if (rl_scalar_to_double(s) > 0)
        RL_FAIL(RL_ERR_RUNTIME, "normal expects all elements of std >= 0.0");
fail:
    rl_tensor_release(low);
    rl_tensor_release(least);
    return st;
}

static rl_status normal_shape(rl_tensor *mean, rl_tensor *std, rl_tensor **out)
{
    rl_tensor *in[2] = {mean, std}, *like = mean ? mean : std;
    int64_t shape[RL_MAX_NDIM];
    int ndim;
    RL_RETURN(rl_plan_shape(in, 2, &ndim, shape));
    if (!mean || !std)
        return rl_tensor_empty_like(like, (rl_dtype)like->dtype, out);
    return rl_tensor_empty(ndim, shape, (rl_dtype)like->dtype, rl_tensor_device(like), out);
}

static rl_status normal_tensors(rl_operand mean, rl_operand std, rl_generator *g, rl_tensor **out)
{
    rl_tensor *z = NULL, *scaled = NULL;
    rl_status st = RL_OK;
    double std_number = std.t ? 1 : rl_scalar_to_double(std.s);
    if (std.t)
        RL_TRY(check_std_tensor(std.t));
    RL_TRY(check_normal((rl_dtype)(mean.t ? mean.t : std.t)->dtype, std_number));
    RL_TRY(normal_shape(mean.t, std.t, &z));
    RL_TRY(fill(z, RL_RAND_NORMAL, 0, std_number, g));
    if (std.t)
        RL_TRY(rl_mul(rl_operand_tensor(z), std, &scaled));
    RL_TRY(rl_add(rl_operand_tensor(scaled ? scaled : z), mean, out));
fail:
    rl_tensor_release(z);
    rl_tensor_release(scaled);
    return st;
}

/* Overloads: (Tensor mean, float std=1), (float mean, Tensor std), (Tensor mean, Tensor std), (float mean, float std, int[] size, …). */
rl_status rl_op_normal(rl_call *c, rl_result *r)
{
    rl_state *state = rl_state_get();
    bool grad = state->grad_mode;
    rl_factory f;
    rl_tensor *out = NULL;
    rl_status st = RL_OK;
    if (c->overload == 3) {
        RL_RETURN(rl_factory_options(&f, c, 4, rl_default_dtype()));
        RL_RETURN(check_normal(f.dtype, ARG(1)));
        RL_RETURN(rl_tensor_empty(c->args[2].ints.n, c->args[2].ints.v, f.dtype, f.device, &out));
        return rl_give(fill(out, RL_RAND_NORMAL, ARG(0), ARG(1), c->args[3].generator), out, r);
    }
    rl_operand mean = c->overload == 1 ? rl_operand_number(ARG(0)) : rl_operand_tensor(c->args[0].t);
    rl_operand std = c->overload == 0 ? rl_operand_number(ARG(1)) : rl_operand_tensor(c->args[1].t);
    state->grad_mode = false; /* samples carry no history */
    st = normal_tensors(mean, std, c->args[2].generator, &out);
    state->grad_mode = grad;
    return rl_give(st, out, r);
}

/* ---- dropout ---- */

/* noise = keep / (1 - p) in x's memory order, or with one draw for each (batch, channel) when `feature`; then x * noise. */
static rl_status dropout(rl_tensor *x, double p, bool train, bool feature, rl_tensor **out)
{
    rl_tensor *noise = NULL;
    rl_status st = RL_OK;
    int64_t shape[RL_MAX_NDIM];
    rl_dtype d = (rl_dtype)x->dtype;
    if (!(p >= 0 && p <= 1))
        return rl_fail(RL_ERR_RUNTIME, "dropout probability has to be between 0 and 1, but got %g", p);
    if (p == 0 || !train || x->numel == 0) {
        *out = rl_tensor_retain(x);
        return RL_OK;
    }
    if (!rl_dtype_is_float(d))
        return rl_fail(RL_ERR_RUNTIME, "result type Float can't be cast to the desired output type %s", type_text(d));
    if (p == 1)
        return rl_mul(rl_operand_tensor(x), rl_operand_number(0), out);
    if (feature) {
        if (x->ndim < 2)
            return rl_fail(RL_ERR_RUNTIME, "Feature dropout requires at least 2 dimensions in the input");
        for (int k = 0; k < x->ndim; k++)
            shape[k] = k < 2 ? x->shape[k] : 1;
        RL_TRY(rl_tensor_empty(x->ndim, shape, d, rl_tensor_device(x), &noise));
    } else {
        RL_TRY(rl_tensor_empty_like(x, d, &noise));
    }
    RL_TRY(fill(noise, RL_RAND_DROPOUT_MASK, 1 - p, 0, NULL));
    RL_TRY(rl_mul(rl_operand_tensor(x), rl_operand_tensor(noise), out));
fail:
    rl_tensor_release(noise);
    return st;
}

rl_status rl_op_dropout(rl_call *c, rl_result *r)
{
    rl_tensor *out = NULL;
    return rl_give(dropout(c->args[0].t, ARG(1), c->args[2].b, false, &out), out, r);
}

rl_status rl_op_feature_dropout(rl_call *c, rl_result *r)
{
    rl_tensor *out = NULL;
    return rl_give(dropout(c->args[0].t, ARG(1), c->args[2].b, true, &out), out, r);
}

/* ---- multinomial ---- */

/* float32 or float64 weights, checked: finite, not negative, each row with a sum above 0. */
static rl_status multinomial_check(const rl_tensor *w, int64_t rows, int64_t n)
{
    for (int64_t i = 0; i < rows; i++) {
        double sum = 0;
        for (int64_t k = 0; k < n; k++) {
            double v = w->dtype == RL_F64 ? ((double *)rl_tensor_data(w))[i * n + k] : ((float *)rl_tensor_data(w))[i * n + k];
            if (!(v >= 0) || isinf(v))
                return rl_fail(RL_ERR_RUNTIME, "probability tensor contains either `inf`, `nan` or element < 0: %g at [%lld, %lld]", v, (long long)i,
                               (long long)k);
            sum += v;
        }
        if (!(sum > 0))
            return rl_fail(RL_ERR_RUNTIME, "invalid multinomial distribution (sum of probabilities <= 0)");
    }
    return RL_OK;
}

/* The running sum in the weights' precision, divided by the total; a sample is the first index whose value is not below a uniform. */
#define MULTINOMIAL_ROW(T)                                            \
    {                                                                 \
        T sum = 0, *cumulative = work;                                \
        for (int64_t k = 0; k < n; k++)                               \
            cumulative[k] = sum += ((const T *)weights)[k];           \
        for (int64_t k = 0; k < n; k++)                               \
            cumulative[k] /= sum;                                     \
        cumulative[n - 1] = 1;                                        \
        for (int64_t s = 0; s < samples; s++) {                       \
            double u = rl_rng_u53(g);                                 \
            int64_t low = 0, high = n - 1;                            \
            while (low < high) {                                      \
                int64_t middle = low + (high - low) / 2;              \
                if ((double)cumulative[middle] < u)                   \
                    low = middle + 1;                                 \
                else                                                  \
                    high = middle;                                    \
            }                                                         \
            out[s] = low;                                             \
        }                                                             \
    }

static void multinomial_row(rl_dtype d, const void *weights, void *work, int64_t n, int64_t samples, int64_t *out, rl_generator *g)
{
    if (d == RL_F64)
        MULTINOMIAL_ROW(double)
    else
        MULTINOMIAL_ROW(float)
}

static rl_status multinomial_replace(rl_tensor *w, int64_t rows, int64_t n, int64_t samples, rl_generator *g, rl_tensor *out)
{
    size_t bytes = (size_t)n * rl_tensor_itemsize(w);
    void *work;
    RL_RETURN(rl_host_alloc(bytes, &work));
    g = g ? g : rl_generator_default(rl_tensor_device(w));
    pthread_mutex_lock(&g->lock);
    for (int64_t i = 0; i < rows; i++)
        multinomial_row((rl_dtype)w->dtype, (char *)rl_tensor_data(w) + (size_t)i * bytes, work, n, samples, (int64_t *)rl_tensor_data(out) + i * samples, g);
    pthread_mutex_unlock(&g->lock);
    rl_host_free(work, bytes);
    return RL_OK;
}

/* The largest `samples` of weight / Exp(1), in falling order. */
static rl_status multinomial_distinct(rl_tensor *w, int64_t samples, rl_generator *g, rl_tensor **out)
{
    rl_tensor *q = NULL, *keys = NULL, *values = NULL;
    rl_status st = RL_OK;
    RL_TRY(rl_tensor_empty_like(w, (rl_dtype)w->dtype, &q));
    RL_TRY(fill(q, RL_RAND_EXPONENTIAL, 1, 0, g));
    RL_TRY(rl_div(rl_operand_tensor(w), rl_operand_tensor(q), &keys));
    RL_TRY(rl_topk(keys, samples, -1, true, true, &values, out));
fail:
    rl_tensor_release(q);
    rl_tensor_release(keys);
    rl_tensor_release(values);
    return st;
}

static rl_status multinomial(rl_tensor *x, int64_t samples, bool replacement, rl_generator *g, rl_tensor **out)
{
    rl_tensor *flat = NULL, *w = NULL;
    rl_status st = RL_OK;
    int64_t n = x->shape[x->ndim - 1], rows = x->ndim == 2 ? x->shape[0] : 1, shape[2] = {rows, samples};
    RL_TRY(rl_contiguous(x, &flat));
    /* 16-bit weights are summed in float32 with replacement, and divided in their own dtype without. */
    RL_TRY(rl_cast(flat, x->dtype == RL_F64 ? RL_F64 : RL_F32, &w));
    RL_TRY(multinomial_check(w, rows, n));
    if (replacement) {
        RL_TRY(rl_tensor_empty(x->ndim, shape + (x->ndim == 1), RL_I64, rl_tensor_device(x), out));
        RL_TRY(multinomial_replace(w, rows, n, samples, g, *out));
    } else {
        RL_TRY(multinomial_distinct(flat, samples, g, out));
    }
fail:
    rl_tensor_release(flat);
    rl_tensor_release(w);
    return st;
}

rl_status rl_op_multinomial(rl_call *c, rl_result *r)
{
    rl_tensor *x = c->args[0].t, *out = NULL;
    rl_state *state = rl_state_get();
    bool grad = state->grad_mode;
    int64_t samples = c->args[1].i;
    if (x->ndim < 1 || x->ndim > 2)
        return rl_fail(RL_ERR_RUNTIME, "prob_dist must be 1 or 2 dim, got %d", x->ndim);
    if (!rl_dtype_is_float((rl_dtype)x->dtype))
        return rl_fail(RL_ERR_RUNTIME, "multinomial only supports floating-point dtypes for input, got: %s", type_text((rl_dtype)x->dtype));
    if (c->nout && c->out[0]->dtype != RL_I64)
        return rl_fail(RL_ERR_RUNTIME, "multinomial expects Long tensor out, got: %s", type_text((rl_dtype)c->out[0]->dtype));
    if (samples <= 0)
        return rl_fail(RL_ERR_RUNTIME, "cannot sample n_sample <= 0 samples, got %lld", (long long)samples);
    if (!c->args[2].b && samples > x->shape[x->ndim - 1])
        return rl_fail(RL_ERR_RUNTIME, "cannot sample n_sample > prob_dist.size(-1) samples without replacement");
    state->grad_mode = false;
    rl_status st = multinomial(x, samples, c->args[2].b, c->args[3].generator, &out);
    state->grad_mode = grad;
    return rl_give(st, out, r);
}
