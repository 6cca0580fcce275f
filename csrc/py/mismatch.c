/* mismatch.c: the words for a call that no overload takes, as PyTorch chooses them: a precise sentence when one overload alone has room for
 * the number of arguments, else the list of all overloads. Slow and allocating: only errors come here.
 */
#include "signature.h"

/* ---- texts ---- */

const char *rl_param_type_text(const rl_param *p)
{
    static const char *const names[] = {
        [RL_PT_TENSOR] = "Tensor", [RL_PT_TENSORS] = "tuple of Tensors", [RL_PT_SCALAR] = "Number", [RL_PT_INT] = "int",
        [RL_PT_FLOAT] = "float",
        [RL_PT_BOOL] = "bool", [RL_PT_STR] = "str", [RL_PT_INTS] = "tuple of ints", [RL_PT_FLOATS] = "tuple of floats",
        [RL_PT_DTYPE] = "dtype",
        [RL_PT_LAYOUT] = "layout", [RL_PT_DEVICE] = "device", [RL_PT_FORMAT] = "memory_format", [RL_PT_GENERATOR] = "Generator",
        [RL_PT_SCALARS] = "tuple of Scalars"};
    if (p->type < RL_PT_DTYPE || p->type == RL_PT_SCALARS)
        return names[p->type];
    char *out = rl_text_buffer();
    snprintf(out, RL_TEXT_BYTES, "%s.%s", rl_py_prefix(), names[p->type]);
    return out;
}

/* A piece of text put after what stands; takes nothing, and does nothing once *text is NULL. */
static void put(PyObject **text, const char *format, ...)
{
    va_list args;
    if (!*text)
        return;
    va_start(args, format);
    PyObject *piece = PyUnicode_FromFormatV(format, args);
    va_end(args);
    if (!piece)
        Py_CLEAR(*text);
    else
        PyUnicode_AppendAndDel(text, piece);
}

static void put_default(PyObject **text, const char *value)
{
    if (*value != '[') {
        put(text, " = %s", value);
        return;
    }
    put(text, " = (%s", value + 1); /* PyTorch prints a tuple */
    PyObject *open = *text;
    *text = open ? PyUnicode_Substring(open, 0, PyUnicode_GET_LENGTH(open) - 1) : NULL;
    Py_XDECREF(open);
    put(text, ")");
}

PyObject *rl_signature_text(const rl_signature *s, const char *separator)
{
    PyObject *text = PyUnicode_FromString("(");
    bool starred = false;
    for (int k = 0; k < s->nparams; k++) {
        const rl_param *p = &s->params[k];
        put(&text, "%s%s", k ? separator : "", p->kwonly && !starred ? "*, " : "");
        starred |= p->kwonly;
        put(&text, "%s %U", rl_param_type_text(p), p->name);
        if (p->has_default)
            put_default(&text, p->default_text);
    }
    put(&text, ")");
    return text;
}

/* ---- one overload: the precise sentence ---- */

typedef struct given {
    PyObject *self, *const *args, *kwnames;
    Py_ssize_t nargs, nkw;
} given;

static PyObject *keyword(const rl_param *p, const given *g)
{
    for (Py_ssize_t k = 0; k < g->nkw; k++) {
        PyObject *name = PyTuple_GET_ITEM(g->kwnames, k);
        bool same = PyUnicode_Compare(name, p->name) == 0;
        for (int j = 0; !same && p->spelling[j]; j++)
            same = PyUnicode_Compare(name, p->spelling[j]) == 0;
        if (same)
            return g->args[g->nargs + k];
    }
    return NULL;
}

static void too_many(const rl_overloads *o, const rl_signature *s, const given *g)
{
    int least = 0;
    for (int k = 0; k < s->npos; k++)
        least += !s->params[k].has_default;
    const char *verb = g->nargs == 1 ? "was" : "were";
    if (s->nparams == 0)
        PyErr_Format(PyExc_TypeError, "%s%U() takes no arguments (%zd given)", g->self ? "Tensor." : "", o->name, g->nargs);
    else if (least != s->npos)
        PyErr_Format(PyExc_TypeError, "%U() takes from %d to %d positional arguments but %zd %s given", o->name, least, s->npos, g->nargs,
                     verb);
    else
        PyErr_Format(PyExc_TypeError, "%U() takes %d positional argument%s but %zd %s given", o->name, s->npos, s->npos == 1 ? "" : "s",
                     g->nargs,
                     verb);
}

static void missing(const rl_overloads *o, const rl_signature *s, int from)
{
    PyObject *names = PyUnicode_FromString("");
    int n = 0;
    for (int k = from; k < s->nparams; k++)
        if (!s->params[k].has_default)
            put(&names, "%s\"%U\"", n++ ? ", " : "", s->params[k].name);
    if (names)
        PyErr_Format(PyExc_TypeError, "%U() missing %d required positional arguments: %U", o->name, n, names);
    Py_XDECREF(names);
}

/* The type of the element of a list at which the check of its first element fails, or -1. */
static Py_ssize_t bad_element(const rl_param *p, PyObject *o)
{
    bool list = p->type == RL_PT_INTS || p->type == RL_PT_FLOATS;
    if (!list || !(PyTuple_Check(o) || PyList_Check(o)) || PySequence_Size(o) == 0)
        return -1;
    return 0;
}

static void wrong_type(const rl_overloads *o, const rl_param *p, PyObject *obj, Py_ssize_t position)
{
    const char *type = rl_param_type_text(p);
    Py_ssize_t at = bad_element(p, obj);
    if (position >= 0 && at >= 0) {
        PyObject *item = PySequence_GetItem(obj, at);
        if (item)
            PyErr_Format(PyExc_TypeError, "%U(): argument '%U' (position %zd) must be %s, but found element of type %s at pos %zd", o->name,
                         p->name,
                         position + 1, type, rl_py_type_text(item), at);
        Py_XDECREF(item);
    } else if (position >= 0) {
        PyErr_Format(PyExc_TypeError, "%U(): argument '%U' (position %zd) must be %s, not %s", o->name, p->name, position + 1, type,
                     rl_py_type_text(obj));
    } else {
        PyErr_Format(PyExc_TypeError, "%U(): argument '%U' must be %s, not %s", o->name, p->name, type, rl_py_type_text(obj));
    }
}

static void extra_keyword(const rl_overloads *o, const rl_signature *s, const given *g)
{
    for (Py_ssize_t k = 0; k < g->nkw; k++) {
        PyObject *name = PyTuple_GET_ITEM(g->kwnames, k);
        int at = 0;
        while (at < s->nparams && PyUnicode_Compare(s->params[at].name, name) != 0)
            at++;
        if (at == s->nparams) {
            PyErr_Format(PyExc_TypeError, "%U() got an unexpected keyword argument '%U'", o->name, name);
            return;
        }
        if (at < g->nargs) {
            PyErr_Format(PyExc_TypeError, "%U() got multiple values for argument '%U'", o->name, name);
            return;
        }
    }
    PyErr_Format(PyExc_TypeError, "%U() got invalid keyword arguments", o->name);
}

/* True when `obj` suits the parameter; an exception that converting it raised stands. */
static bool suits(const rl_overloads *o, const rl_param *p, PyObject *obj)
{
    rl_frame f;
    rl_arg a;
    rl_frame_init(&f);
    f.function = o->name;
    int took = rl_param_take(&f, p, obj, &a);
    rl_frame_release(&f);
    return took != 0;
}

static void precise(const rl_overloads *o, const rl_signature *s, const given *g)
{
    Py_ssize_t at = 0, left = g->nkw;
    if (g->nargs > s->npos && !s->varargs) {
        too_many(o, s, g);
        return;
    }
    for (int k = 0; k < s->nparams && !PyErr_Occurred(); k++) {
        const rl_param *p = &s->params[k];
        bool positional = at < g->nargs;
        if (positional && p->kwonly) {
            too_many(o, s, g);
            return;
        }
        PyObject *obj = positional ? g->args[at] : keyword(p, g);
        if (!obj && !p->has_default) {
            missing(o, s, k);
            return;
        }
        bool none = obj == Py_None && (p->optional || (p->default_text && strcmp(p->default_text, "None") == 0));
        if (obj && !none && !suits(o, p, obj)) {
            if (s->varargs && at == 0 && positional && rl_py_is_int(obj)) {
                at = g->nargs;
                continue;
            }
            if (s->varargs && positional && g->nargs > s->npos) {
                too_many(o, s, g);
                return;
            }
            wrong_type(o, p, obj, positional ? at : -1);
            return;
        }
        at += positional;
        left -= !positional && obj;
    }
    if (!PyErr_Occurred() && left > 0)
        extra_keyword(o, s, g);
    else if (!PyErr_Occurred())
        too_many(o, s, g);
}

/* ---- all overloads ---- */

static const char *given_type(const given *g, Py_ssize_t k) { return rl_py_type_text(g->args[k]); }

static void put_given(PyObject **text, const given *g)
{
    put(text, "(");
    for (Py_ssize_t k = 0; k < g->nargs; k++)
        put(text, "%s%s", k ? ", " : "", given_type(g, k));
    for (Py_ssize_t k = 0; k < g->nkw; k++)
        put(text, "%s%U=%s", k + g->nargs ? ", " : "", PyTuple_GET_ITEM(g->kwnames, k), given_type(g, g->nargs + k));
    put(text, ")");
}

/* PyTorch compares type names as they are printed; where a float is asked, an int will do. */
static bool same_type_text(const rl_param *p, const char *got)
{
    return strcmp(rl_param_type_text(p), got) == 0 || (p->type == RL_PT_FLOAT && strcmp(got, "int") == 0);
}

static const rl_param *named(const rl_signature *s, PyObject *name)
{
    for (int k = 0; k < s->nparams; k++)
        if (PyUnicode_Compare(s->params[k].name, name) == 0)
            return &s->params[k];
    return NULL;
}

/* The k-th thing that PyTorch lists: the parameters with the '*' among them. */
static const rl_param *listed_param(const rl_signature *s, Py_ssize_t k)
{
    if (k < s->npos)
        return &s->params[k];
    return k == s->npos || k - 1 >= s->nparams ? NULL : &s->params[k - 1];
}

static void put_reason(PyObject **text, const rl_signature *s, const given *g)
{
    bool starred = s->nparams > s->npos, unknown = false;
    if (g->nargs + g->nkw != s->nparams + starred)
        return;
    for (Py_ssize_t k = 0; k < g->nkw; k++)
        unknown |= !named(s, PyTuple_GET_ITEM(g->kwnames, k));
    put(text, "      didn't match because some of the %s: ", unknown ? "keywords were incorrect" : "arguments have invalid types");
    for (Py_ssize_t k = 0; unknown && k < g->nkw; k++)
        if (!named(s, PyTuple_GET_ITEM(g->kwnames, k)))
            put(text, "%U, ", PyTuple_GET_ITEM(g->kwnames, k));
    for (Py_ssize_t k = 0; !unknown && k < g->nargs + g->nkw; k++) {
        bool kw = k >= g->nargs;
        const rl_param *p = kw ? named(s, PyTuple_GET_ITEM(g->kwnames, k - g->nargs)) : listed_param(s, k);
        const char *got = given_type(g, k), *mark = p && same_type_text(p, got) ? "" : "!";
        put(text, k ? ", " : "(");
        if (kw)
            put(text, "%s%U=%s%s", mark, PyTuple_GET_ITEM(g->kwnames, k - g->nargs), got, mark);
        else
            put(text, "%s%s%s", mark, got, mark);
    }
    put(text, unknown ? "\n" : ")\n");
}

static void list_all(const rl_overloads *o, const given *g)
{
    PyObject *text = PyUnicode_FromFormat("%U() received an invalid combination of arguments - got ", o->name);
    put_given(&text, g);
    put(&text, o->n == 1 ? ", but expected " : ", but expected one of:\n");
    for (int k = 0; k < o->n; k++) {
        PyObject *line = rl_signature_text(&o->v[k], ", ");
        if (!line)
            Py_CLEAR(text);
        else if (o->n == 1)
            put(&text, "%U", line);
        else
            put(&text, " * %U\n", line);
        Py_XDECREF(line);
        if (o->n > 1)
            put_reason(&text, &o->v[k], g);
    }
    if (text)
        PyErr_SetObject(PyExc_TypeError, text);
    Py_XDECREF(text);
}

void rl_mismatch(const rl_overloads *o, PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    given g = {.self = self, .args = args, .kwnames = kwnames, .nargs = nargs, .nkw = kwnames ? PyTuple_GET_SIZE(kwnames) : 0};
    const rl_signature *only = o->n == 1 ? o->v : NULL;
    int plausible = 0;
    for (int k = 0; o->n > 1 && k < o->n; k++)
        if (nargs + g.nkw >= o->v[k].min_args && nargs + g.nkw <= o->v[k].nparams) {
            only = &o->v[k];
            plausible++;
        }
    if (only && plausible <= 1)
        precise(o, only, &g);
    if (!PyErr_Occurred())
        list_all(o, &g);
}
