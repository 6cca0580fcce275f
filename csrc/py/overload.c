/* overload.c: the order in which the overloads of a row are tried, which is PyTorch's: by the text of their C++ form, but what takes a
 * Tensor before what takes a number in its place, and an int before a list of ints; for a 0-dim tensor may stand for a number, and would be
 * taken as one first.
 */
#include "signature.h"

static const char *sort_type(const rl_param *p)
{
    static const char *const names[] = {
        [RL_PT_TENSOR] = "Tensor", [RL_PT_TENSORS] = "TensorList", [RL_PT_SCALAR] = "Scalar", [RL_PT_INT] = "int64_t",
        [RL_PT_FLOAT] = "double",
        [RL_PT_BOOL] = "bool", [RL_PT_STR] = "c10::string_view", [RL_PT_INTS] = "IntArrayRef", [RL_PT_FLOATS] = "ArrayRef<double>",
        [RL_PT_DTYPE] = "ScalarType", [RL_PT_LAYOUT] = "Layout", [RL_PT_DEVICE] = "Device", [RL_PT_FORMAT] = "MemoryFormat",
        [RL_PT_GENERATOR] = "Generator", [RL_PT_SCALARS] = "ArrayRef<Scalar>"};
    return names[p->type];
}

static int compare_text(const rl_signature *a, const rl_signature *b)
{
    for (int k = 0; k < a->nparams && k < b->nparams; k++) {
        const rl_param *p = &a->params[k], *q = &b->params[k];
        bool star = p->kwonly && (k == 0 || !a->params[k - 1].kwonly), other = q->kwonly && (k == 0 || !b->params[k - 1].kwonly);
        int order = star != other ? other - star : strcmp(sort_type(p), sort_type(q)); /* '*' sorts before letters */
        order = order ? order : PyUnicode_Compare(p->name, q->name);
        if (order)
            return order;
    }
    return a->nparams - b->nparams;
}

static bool smaller_type(uint8_t a, uint8_t b)
{
    return ((a == RL_PT_SCALAR || a == RL_PT_INT) && b == RL_PT_TENSOR) || (a == RL_PT_INTS && b == RL_PT_INT);
}

/* b takes, argument by argument, what a takes or what must be tried before it. */
static bool is_smaller(const rl_signature *a, const rl_signature *b)
{
    int na = 0, nb = 0;
    bool differ = false;
    for (; na < a->nparams && a->params[na].slot >= 0; na++)
        ;
    for (; nb < b->nparams && b->params[nb].slot >= 0; nb++)
        ;
    if (na != nb)
        return false;
    for (int k = 0; k < na; k++) {
        uint8_t x = a->params[k].type, y = b->params[k].type;
        if (x != y && !smaller_type(x, y))
            return false;
        differ |= x != y;
    }
    return differ;
}

void rl_overloads_sort(rl_overloads *o)
{
    for (int done = 0; done < o->n; done++) {
        int best = -1;
        for (int k = done; k < o->n; k++) {
            bool behind = false;
            for (int j = done; j < o->n; j++)
                behind |= is_smaller(&o->v[k], &o->v[j]);
            if (!behind && (best < 0 || compare_text(&o->v[k], &o->v[best]) < 0))
                best = k;
        }
        rl_signature next = o->v[best];
        memmove(&o->v[done + 1], &o->v[done], (size_t)(best - done) * sizeof *o->v);
        o->v[done] = next;
    }
}
