/* signature.c: compiles the text of a row (PyTorch's native_functions syntax) into parameters, lazily and once for each form.
 *
 * The forms differ: a function calls its first tensor `input` and may take out=; a method's self is the receiver and no parameter. What
 * creates tensors also takes requires_grad=, which no row spells. Where a number may stand for a Tensor is PyTorch's choice by name.
 */
#include "signature.h"

#include <ctype.h>
#include <stdlib.h>

/* ---- where numbers stand for tensors ---- */

static bool listed(const char *name, const char *const *list)
{
    for (; *list; list++)
        if (strcmp(name, *list) == 0)
            return true;
    return false;
}

/* The rows of which both operands may be numbers: add(1, 2). */
static const char *const both_numbers[] = {"add", "sub", "mul", "div", "floor_divide", NULL};

/* `first`: of the operands. An in-place name ends with '_', which does not matter here. */
bool rl_takes_number(const rl_op *op, bool first, const char *param)
{
    static const char *const also_first[] = {"remainder", "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_left_shift",
                                             "bitwise_right_shift",
                                             "xlogy", NULL};
    static const char *const tensors_only[] = {"maximum", "minimum", "fmax", "fmin", "atan2", "arctan2", "hypot", "logaddexp", "logaddexp2",
                                               "nextafter",
                                               "logical_and", "logical_or", "logical_xor", "gcd", "lcm", NULL};
    static const char *const others[] = {"where", "masked_fill", "fill_", "copy_", "index_fill", NULL};
    if (!op)
        return false;
    if (op->kind == RL_ROW_BINARY)
        return first ? listed(op->name, also_first) || listed(op->name, both_numbers) : !listed(op->name, tensors_only);
    if (op->kind == RL_ROW_TERNARY)
        return false;
    return !first && listed(op->name, others);
}

/* ---- reading the text ---- */

typedef struct reader {
    const char *p;
    const rl_op *op;
    char form;
    bool failed;
} reader;

static void skip_spaces(reader *r)
{
    while (*r->p == ' ')
        r->p++;
}

static bool eat(reader *r, const char *word)
{
    size_t n = strlen(word);
    if (strncmp(r->p, word, n) != 0)
        return false;
    r->p += n;
    return true;
}

static char *copy_text(const char *p, size_t n)
{
    char *text = PyMem_Malloc(n + 1);
    if (text) {
        memcpy(text, p, n);
        text[n] = 0;
    }
    return text;
}

static bool read_type(reader *r, rl_param *p)
{
    static const struct { const char *word; uint8_t type; } words[] = {
        {"Tensor", RL_PT_TENSOR}, {"ScalarType", RL_PT_DTYPE}, {"Scalar", RL_PT_SCALAR}, {"SymInt", RL_PT_INT}, {"int", RL_PT_INT},
        {"float", RL_PT_FLOAT}, {"bool", RL_PT_BOOL}, {"str", RL_PT_STR}, {"Layout", RL_PT_LAYOUT}, {"Device", RL_PT_DEVICE},
        {"MemoryFormat", RL_PT_FORMAT}, {"Generator", RL_PT_GENERATOR},
    };
    size_t k = 0, n = sizeof words / sizeof *words;
    while (k < n && !eat(r, words[k].word))
        k++;
    if (k == n)
        return false;
    p->type = words[k].type;
    p->holes = p->type == RL_PT_TENSOR && strncmp(r->p, "?[", 2) == 0;
    r->p += p->holes;
    if (*r->p == '[') {
        static const uint8_t list_of[] = {[RL_PT_TENSOR] = RL_PT_TENSORS, [RL_PT_INT] = RL_PT_INTS, [RL_PT_FLOAT] = RL_PT_FLOATS,
                                          [RL_PT_SCALAR] = RL_PT_SCALARS};
        p->type = list_of[p->type];
        char *end;
        p->fixed = (int16_t)strtol(r->p + 1, &end, 10);
        r->p = end + 1;
    }
    p->optional = eat(r, "?");
    return *r->p == ' ';
}

/* The text of a default: up to a comma or the closing parenthesis outside of brackets. */
static const char *read_default(reader *r)
{
    const char *start = r->p;
    for (int deep = 0; *r->p && (deep || (*r->p != ',' && *r->p != ')')); r->p++)
        deep += (*r->p == '[') - (*r->p == ']');
    return copy_text(start, (size_t)(r->p - start));
}

static PyObject *intern(const char *p, size_t n)
{
    PyObject *s = PyUnicode_FromStringAndSize(p, (Py_ssize_t)n);
    if (s)
        PyUnicode_InternInPlace(&s);
    return s;
}

/* PyTorch's NumPy-like keywords. */
static bool add_spellings(rl_param *p)
{
    static const struct { const char *name, *others[4]; } table[] = {
        {"dim", {"axis"}}, {"keepdim", {"keepdims"}}, {"input", {"x", "a", "x1"}}, {"other", {"x2"}}};
    const char *name = PyUnicode_AsUTF8(p->name);
    for (size_t k = 0; k < sizeof table / sizeof *table; k++) {
        if (strcmp(name, table[k].name) != 0)
            continue;
        for (int j = 0; table[k].others[j]; j++)
            if (!(p->spelling[j] = PyUnicode_InternFromString(table[k].others[j])))
                return false;
    }
    return true;
}

static bool read_param(reader *r, rl_param *p)
{
    memset(p, 0, sizeof *p);
    if (!read_type(r, p))
        return false;
    skip_spaces(r);
    const char *start = r->p;
    while (isalnum((unsigned char)*r->p) || *r->p == '_')
        r->p++;
    bool self = r->p - start == 4 && memcmp(start, "self", 4) == 0;
    bool renamed = self && (r->form == 'F' || r->form == 'i');
    p->name = renamed ? intern("input", 5) : intern(start, (size_t)(r->p - start));
    if (!p->name || !add_spellings(p))
        return false;
    if (eat(r, "=")) {
        p->has_default = true;
        p->default_text = read_default(r);
    }
    return true;
}

/* ---- defaults ---- */

static bool default_number(const char *text, rl_scalar *s)
{
    char *end;
    if (strcmp(text, "True") == 0 || strcmp(text, "False") == 0)
        return *s = rl_scalar_bool(*text == 'T'), true;
    long long i = strtoll(text, &end, 10);
    *s = *end ? rl_scalar_float(strtod(text, &end)) : rl_scalar_int(i);
    return *end == 0;
}

static bool default_ints(const char *text, int fixed, rl_arg *a)
{
    int64_t *v = PyMem_Calloc(16, sizeof *v);
    int n = 0;
    if (!v)
        return false;
    if (*text != '[') {
        for (n = 0; n < (fixed ? fixed : 1) && n < 16; n++)
            v[n] = strtoll(text, NULL, 10);
    } else {
        for (char *p = (char *)text + 1; *p && *p != ']' && n < 16; p += *p == ',')
            v[n++] = strtoll(p, &p, 10);
    }
    a->ints.v = v;
    a->ints.n = n;
    return true;
}

/* A value that the text names; "None" and what cannot be a constant stay empty. */
static bool read_value(const rl_param *p, rl_arg *a)
{
    const char *text = p->default_text;
    rl_scalar s;
    if (!text || strcmp(text, "None") == 0)
        return true;
    switch (p->type) {
    case RL_PT_STR: {
        size_t n = strlen(text);
        return n >= 2 && (a->str = copy_text(text + 1, n - 2)) != NULL;
    }
    case RL_PT_INTS: return default_ints(text, p->fixed, a);
    case RL_PT_FORMAT: a->memory_format = *text == 'p' ? RL_FORMAT_PRESERVE : RL_FORMAT_CONTIGUOUS; return true;
    case RL_PT_INT:
        if (strcmp(text, "Mean") == 0)
            return a->i = 1, true; /* at::Reduction */
        break;
    default: break;
    }
    if (!default_number(text, &s))
        return false;
    if (p->type == RL_PT_SCALAR || p->type == RL_PT_TENSOR)
        a->s = s;
    else if (p->type == RL_PT_FLOAT)
        a->f = rl_scalar_to_double(s);
    else if (p->type == RL_PT_BOOL)
        a->b = s.i != 0;
    else
        a->i = s.i;
    return true;
}

/* ---- what the forms add ---- */

static bool add_param(rl_param *p, const char *name, uint8_t type, int8_t slot, const char *text)
{
    memset(p, 0, sizeof *p);
    p->name = PyUnicode_InternFromString(name);
    p->type = type;
    p->slot = slot;
    p->has_default = p->kwonly = true;
    p->default_text = text;
    return p->name != NULL;
}

static int find_param(const rl_signature *s, const char *name)
{
    for (int k = 0; k < s->nparams; k++)
        if (PyUnicode_CompareWithASCIIString(s->params[k].name, name) == 0)
            return k;
    return -1;
}

static bool several_results(const char *name, const rl_signature *s)
{
    return rl_result_fields(name) && (find_param(s, "dim") >= 0 || find_param(s, "correction") >= 0);
}

/* out= stands before a factory's dtype, else last; requires_grad= last of all. params has room for both. */
static bool add_extras(const rl_op *op, char form, rl_signature *s)
{
    bool function = form == 'F', factory = find_param(s, "layout") >= 0 && find_param(s, "dtype") >= 0;
    if (function && strchr(op->forms, 'O')) {
        uint8_t type = several_results(op->name, s) ? RL_PT_TENSORS : RL_PT_TENSOR;
        int at = factory ? find_param(s, "dtype") : s->nparams;
        memmove(s->params + at + 1, s->params + at, (size_t)(s->nparams - at) * sizeof *s->params);
        s->nparams++;
        if (!add_param(&s->params[at], "out", type, RL_SLOT_OUT, "None"))
            return false;
    }
    if (factory && op->kind == RL_ROW_OP)
        return add_param(&s->params[s->nparams++], "requires_grad", RL_PT_BOOL, RL_SLOT_REQUIRES_GRAD, "False");
    return true;
}

/* ---- one overload ---- */

static int count_params(const char *p)
{
    int n = 1;
    for (; *p && *p != '\n'; p++)
        n += *p == ',';
    return n;
}

static bool is_receiver(const rl_signature *s, const rl_param *p)
{
    return s->receiver < 0 && p->type == RL_PT_TENSOR &&
           (PyUnicode_CompareWithASCIIString(p->name, "self") == 0 || PyUnicode_CompareWithASCIIString(p->name, "input") == 0);
}

/* Takes p as the next parameter of s, or as the receiver of a method. */
static bool place(reader *r, rl_signature *s, rl_param *p, bool kwonly)
{
    if (s->nargs == RL_MAX_ARGS || !read_value(p, &s->defaults[s->nargs]))
        return false;
    p->slot = (int8_t)s->nargs++;
    p->kwonly = kwonly;
    if (p->type == RL_PT_TENSOR)
        p->numbers = rl_takes_number(r->op, p->slot == 0, PyUnicode_AsUTF8(p->name));
    if ((r->form == 'M' || r->form == 'I') && is_receiver(s, p)) {
        s->receiver = p->slot;
        return true;
    }
    s->nparams++;
    s->npos += !kwonly;
    return true;
}

static bool compile_one(reader *r, rl_signature *s, int overload)
{
    bool kwonly = false;
    s->overload = overload;
    s->receiver = -1;
    s->params = PyMem_Calloc((size_t)count_params(r->p) + 2, sizeof *s->params);
    s->defaults = PyMem_Calloc(RL_MAX_ARGS, sizeof *s->defaults);
    r->p = strchr(r->p, '(');
    if (!s->params || !s->defaults || !r->p)
        return false;
    for (r->p++; *r->p && *r->p != ')';) {
        skip_spaces(r);
        if (eat(r, "*"))
            kwonly = true;
        else if (!read_param(r, &s->params[s->nparams]) || !place(r, s, &s->params[s->nparams], kwonly))
            return false;
        if (*r->p == ',')
            r->p++;
        skip_spaces(r);
    }
    s->needs_tensor = r->op && r->op->kind == RL_ROW_BINARY && !listed(r->op->name, both_numbers);
    /* var(1, False) is not var((1, False)): an optional list takes no loose numbers */
    s->varargs = s->npos == 1 && s->params[0].type == RL_PT_INTS && !s->params[0].optional;
    if (r->op && !add_extras(r->op, r->form, s))
        return false;
    for (int k = 0; k < s->nparams; k++)
        s->min_args += !s->params[k].has_default;
    return true;
}

static rl_overloads *compile(const rl_op *op, const char *name, const char *text, char form)
{
    rl_overloads *o = PyMem_Calloc(1, sizeof *o);
    int lines = 1, number = 0;
    bool method = form == 'M' || form == 'I';
    for (const char *p = text; *p; p++)
        lines += *p == '\n';
    if (!o || !(o->v = PyMem_Calloc((size_t)lines, sizeof *o->v)) || !(o->name = PyUnicode_InternFromString(name)))
        return NULL;
    for (const char *line = text; line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
        reader r = {.p = line, .op = op, .form = form};
        memset(&o->v[o->n], 0, sizeof *o->v);
        if (!compile_one(&r, &o->v[o->n], number++)) {
            if (!PyErr_Occurred())
                PyErr_Format(PyExc_SystemError, "the signature of %s cannot be read at: %.60s", name, r.p ? r.p : line);
            return NULL;
        }
        o->n += !method || o->v[o->n].receiver >= 0; /* pow(Scalar self, …) is no method of a tensor */
    }
    rl_overloads_sort(o);
    return o;
}

rl_overloads *rl_overloads_compile(const rl_op *op, const char *name, char form)
{
    const rl_op *row = op->alias_of ? op->alias_of : op;
    return compile(row, name, row->signature, form == 'M' || form == 'I' || form == 'i' ? form : 'F');
}

rl_overloads *rl_overloads_compile_text(const char *name, const char *text,
                                        bool method) { return compile(NULL, name, text, method ? 'M' : 'f'); }
