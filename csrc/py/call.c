/* call.c: operators as Python callables. One implementation serves functions (OpFunction, no descriptor: a class attribute `act = relu`
 * must not bind) and methods of Tensor (OpMethod, a method descriptor: no bound object is made for a call).
 *
 * Order of a call: __torch_function__, the direct way of elementwise operators over plain tensors and numbers, else the parser compiled
 * from the row's text. The GIL is released for large operands only: a busy second thread makes every hand-over cost milliseconds.
 */
#include "signature.h"

#include <structmember.h>

typedef enum direct_kind { DIRECT_NONE, DIRECT_UNARY, DIRECT_BINARY } direct_kind;

typedef struct op_object {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    const rl_op *op, *row; /* as named; aliases resolved */
    rl_overloads *overloads;
    PyObject *name;
    const char *module; /* functions: where they live */
    char form;
    bool inplace, alpha, first_number, second_number, gives_bool;
    uint8_t direct; /* direct_kind */
} op_object;

static PyObject *functions[RL_OP_COUNT], *methods[RL_OP_COUNT], *inplace_methods[RL_OP_COUNT];

const rl_op *rl_py_find_op(const char *name)
{
    for (int k = 0; k < RL_OP_COUNT; k++)
        if (strcmp(rl_op_table[k].name, name) == 0)
            return &rl_op_table[k];
    return NULL;
}

PyObject *rl_py_public(const rl_op *op, char form)
{
    Py_ssize_t k = op - rl_op_table;
    return form == 'M' ? methods[k] : form == 'I' ? inplace_methods[k] : functions[k];
}

/* ---- the direct way ---- */

static inline bool may_go_direct(void)
{
    const rl_state *s = rl_state_get();
    return rl_fast_paths && !(s->autocast[RL_DEVICE_CPU] | s->autocast[RL_DEVICE_CUDA]);
}

static inline bool direct_number(PyObject *o, rl_operand *out)
{
    out->t = NULL;
    if (PyFloat_CheckExact(o))
        out->s = rl_scalar_float(PyFloat_AS_DOUBLE(o));
    else if (PyBool_Check(o))
        out->s = rl_scalar_bool(o == Py_True);
    else if (rl_py_small_int(o, &out->s.i))
        out->s.kind = RL_CAT_INT;
    else
        return false;
    return true;
}

static inline bool direct_operand(PyObject *o, bool number, rl_operand *out)
{
    if (RL_LIKELY(rl_py_is_tensor_exact(o))) {
        out->t = rl_py_unwrap(o);
        return true;
    }
    return number && direct_number(o, out);
}

static PyObject *direct_run(int row, const rl_operand *in, int n, bool alpha, bool inplace)
{
    static const rl_scalar one = {.kind = RL_CAT_INT, .i = 1};
    rl_tensor *out = NULL;
    rl_status st = rl_elementwise(row, in, n, alpha ? &one : NULL, alpha, inplace ? in[0].t : NULL, inplace, &out);
    return RL_LIKELY(st == RL_OK) ? rl_py_wrap(out) : rl_py_raise(st);
}

/* NULL without an exception: not for this way. */
static inline PyObject *direct_call(const op_object *f, PyObject *const *args, Py_ssize_t nargs)
{
    rl_operand in[2];
    if (nargs != (Py_ssize_t)f->direct || !direct_operand(args[0], f->first_number, &in[0]))
        return NULL;
    if (f->direct == DIRECT_BINARY && (!direct_operand(args[1], f->second_number, &in[1]) || !(in[0].t || in[1].t)))
        return NULL;
    if (f->inplace && !in[0].t)
        return NULL;
    return may_go_direct() ? direct_run((int)(f->row - rl_op_table), in, (int)nargs, f->alpha, f->inplace) : NULL;
}

/* ---- the general way ---- */

static rl_status want_grad(rl_result *r)
{
    for (int k = 0; k < r->n && !r->is_list; k++)
        if (rl_py_set_requires_grad(r->t[k], true, "Only Tensors of floating point and complex dtype can require gradients") < 0)
            return RL_ERR_PYTHON;
    return RL_OK;
}

static PyObject *general_call(op_object *f, PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    rl_frame frame;
    rl_call call;
    rl_result result = {0};
    if (!f->overloads && !(f->overloads = rl_overloads_compile(f->op, PyUnicode_AsUTF8(f->name), f->form)))
        return NULL;
    if (!rl_bind(f->overloads, f->row, self, args, nargs, kwnames, &frame, &call))
        return NULL;
    call.inplace = f->inplace;
    rl_status st = rl_op_invoke(&call, &result);
    if (st == RL_OK && frame.requires_grad)
        st = want_grad(&result);
    rl_frame_release(&frame);
    if (st != RL_OK) {
        rl_result_clear(&result);
        return rl_py_raise(st);
    }
    if (RL_LIKELY(result.n == 1 && !result.is_list && !f->gives_bool))
        return rl_py_wrap(result.t[0]);
    return rl_py_wrap_result(f->row, call.overload, &result);
}

static PyObject *function_call(PyObject *callable, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    op_object *f = (op_object *)callable;
    Py_ssize_t nargs = PyVectorcall_NARGS(nargsf), all = nargs + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0);
    PyObject *result;
    if (RL_LIKELY(f->direct && !kwnames && !rl_py_modes) && (result = direct_call(f, args, nargs)))
        return result;
    if (PyErr_Occurred())
        return NULL;
    if (RL_UNLIKELY(rl_py_maybe_overridden(args, all)) && rl_py_torch_function(callable, args, nargs, kwnames, &result))
        return result;
    return general_call(f, NULL, args, nargs, kwnames);
}

static PyObject *method_call(PyObject *callable, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    op_object *f = (op_object *)callable;
    Py_ssize_t nargs = PyVectorcall_NARGS(nargsf), all = nargs + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0);
    PyObject *result;
    if (RL_LIKELY(f->direct && !kwnames && !rl_py_modes) && (result = direct_call(f, args, nargs)))
        return result;
    if (PyErr_Occurred())
        return NULL;
    if (nargs == 0)
        return PyErr_Format(PyExc_TypeError, "unbound method Tensor.%U() needs an argument", f->name);
    if (!rl_py_is_tensor(args[0]))
        return PyErr_Format(PyExc_TypeError, "descriptor '%U' for 'Tensor' objects doesn't apply to a '%s' object", f->name,
                            rl_py_type_text(args[0]));
    if (RL_UNLIKELY(rl_py_maybe_overridden(args, all)) && rl_py_torch_function(callable, args, nargs, kwnames, &result))
        return result;
    return general_call(f, args[0], args + 1, nargs - 1, kwnames);
}

PyObject *rl_py_call(const rl_op *op, bool inplace, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    Py_ssize_t k = op - rl_op_table;
    PyObject *f = inplace ? inplace_methods[k] : functions[k] ? functions[k] : methods[k];
    if (!f)
        return PyErr_Format(PyExc_NotImplementedError, "%s: there is no such %s", op->name, inplace ? "in-place operator" : "operator");
    return PyObject_Vectorcall(f, args, nargsf, kwnames);
}

/* ---- for the number protocol ---- */

/* A number on the left of a tensor that overrides: add and mul are the method with the operands exchanged, the rest Tensor.__r…__. */
static bool reflected_override(const op_object *f, PyObject *a, PyObject *b, PyObject **result)
{
    static const struct { const char *row, *method; } table[] = {
        {"add", "add"}, {"mul", "mul"}, {"sub", "__rsub__"}, {"div", "__rtruediv__"}, {"floor_divide", "__rfloordiv__"},
        {"remainder", "__rmod__"},
        {"pow", "__rpow__"}, {"matmul", "__rmatmul__"}, {"bitwise_and", "__rand__"}, {"bitwise_or", "__ror__"}, {"bitwise_xor", "__rxor__"},
        {"bitwise_left_shift", "__rlshift__"}, {"bitwise_right_shift", "__rrshift__"}};
    PyObject *args[2] = {b, a}, *func = NULL;
    for (size_t k = 0; !func && k < sizeof table / sizeof *table; k++)
        if (strcmp(f->op->name, table[k].row) == 0 && !(func = PyObject_GetAttrString((PyObject *)rl_st->Tensor, table[k].method)))
            return *result = NULL, true;
    bool taken = func && rl_py_torch_function(func, args, 2, NULL, result);
    Py_XDECREF(func);
    return taken;
}

static bool binary_override(const op_object *f, PyObject *a, PyObject *b, PyObject **result)
{
    PyObject *args[2] = {a, b};
    if (RL_LIKELY(!rl_py_maybe_overridden(args, 2)))
        return false;
    return rl_py_is_tensor(a) ? rl_py_torch_function((PyObject *)f, args, 2, NULL, result) : reflected_override(f, a, b, result);
}

/* Row `row` over (a, b), one of them a tensor of any class. Not for other objects: NotImplemented. */
PyObject *rl_py_binary(int row, PyObject *a, PyObject *b)
{
    const rl_op *op = &rl_op_table[row];
    const op_object *f = (const op_object *)(methods[row] ? methods[row] : functions[row]);
    PyObject *args[2] = {a, b}, *result;
    if (RL_UNLIKELY(!f))
        Py_RETURN_NOTIMPLEMENTED;
    if (RL_LIKELY(op->kind == RL_ROW_BINARY && !rl_py_modes)) {
        rl_operand in[2];
        if (direct_operand(a, true, &in[0]) && direct_operand(b, true, &in[1]) && (in[0].t || in[1].t) && may_go_direct())
            return direct_run(row, in, 2, f->alpha, false);
    }
    if (RL_UNLIKELY(binary_override(f, a, b, &result)))
        return result;
    if (!(rl_py_is_tensor(a) || rl_py_is_number(a)) || !(rl_py_is_tensor(b) || rl_py_is_number(b)))
        Py_RETURN_NOTIMPLEMENTED;
    bool numbers = op->kind == RL_ROW_BINARY || strstr(op->signature, "Scalar") != NULL; /* not matmul's */
    if (!numbers && !(rl_py_is_tensor(a) && rl_py_is_tensor(b)))
        Py_RETURN_NOTIMPLEMENTED;
    if (op->kind != RL_ROW_BINARY)
        return functions[row] ? general_call((op_object *)functions[row], NULL, args, 2, NULL)
            : general_call((op_object *)f, a, args + 1, 1, NULL);
    rl_call call = {.op = op, .nargs = 2 + f->alpha};
    for (int k = 0; k < 2; k++) {
        call.args[k].given = true;
        if (rl_py_is_tensor(args[k]))
            call.args[k].t = rl_py_unwrap(args[k]);
        else if (!rl_py_to_scalar(args[k], &call.args[k].s))
            return NULL;
    }
    if (f->alpha)
        call.args[2].s = rl_scalar_int(1);
    rl_result r = {0};
    rl_status st = rl_op_invoke(&call, &r);
    return st == RL_OK ? rl_py_wrap_result(op, 0, &r) : rl_py_raise(st);
}

/* self op= other, by the in-place method. */
PyObject *rl_py_binary_inplace(int row, PyObject *self, PyObject *other)
{
    op_object *f = (op_object *)inplace_methods[row];
    PyObject *args[2] = {self, other}, *result;
    if (RL_UNLIKELY(!f) || !(rl_py_is_tensor(other) || rl_py_is_number(other) || !rl_py_plain(other)))
        Py_RETURN_NOTIMPLEMENTED;
    if (RL_LIKELY(f->direct && !rl_py_modes)) {
        if ((result = direct_call(f, args, 2)) || PyErr_Occurred())
            return result;
    }
    if (RL_UNLIKELY(rl_py_maybe_overridden(args, 2)) && rl_py_torch_function((PyObject *)f, args, 2, NULL, &result))
        return result;
    if (!rl_py_is_tensor(other) && !rl_py_is_number(other))
        Py_RETURN_NOTIMPLEMENTED;
    return general_call(f, self, args + 1, 1, NULL);
}

/* ---- the two types ---- */

static void op_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    Py_XDECREF(((op_object *)self)->name); /* the compiled signatures stay: they are shared with nobody, but calls may be running */
    type->tp_free(self);
    Py_DECREF(type);
}

static bool is_method(const op_object *f) { return Py_TYPE(f) == rl_st->OpMethod; }

static PyObject *op_repr(PyObject *self)
{
    op_object *f = (op_object *)self;
    if (is_method(f))
        return PyUnicode_FromFormat("<method '%U' of '%s.Tensor' objects>", f->name, rl_py_prefix());
    return PyUnicode_FromFormat("<built-in function %U>", f->name);
}

static PyObject *method_get(PyObject *self, PyObject *obj, PyObject *type)
{
    return obj && obj != Py_None ? PyMethod_New(self, obj) : Py_NewRef(self);
}

static PyObject *op_reduce(PyObject *self, PyObject *ignored)
{
    op_object *f = (op_object *)self;
    if (!is_method(f))
        return Py_NewRef(f->name);
    PyObject *builtins = PyImport_ImportModule("builtins"), *getattr = builtins ? PyObject_GetAttrString(builtins, "getattr") : NULL;
    Py_XDECREF(builtins);
    return getattr ? Py_BuildValue("N(OO)", getattr, rl_st->Tensor, f->name) : NULL;
}

static rl_overloads *compiled(op_object *f)
{
    if (!f->overloads)
        f->overloads = rl_overloads_compile(f->op, PyUnicode_AsUTF8(f->name), f->form);
    return f->overloads;
}

static PyObject *op_doc(PyObject *self, void *closure)
{
    op_object *f = (op_object *)self;
    rl_overloads *o = compiled(f);
    PyObject *text = o ? PyUnicode_FromString("") : NULL;
    for (int k = 0; text && k < o->n; k++) {
        PyObject *line = rl_signature_text(&o->v[k], ", ");
        PyObject *piece = line ? PyUnicode_FromFormat("%s%U%U", k ? "\n" : "", f->name, line) : NULL;
        Py_XDECREF(line);
        if (piece)
            PyUnicode_AppendAndDel(&text, piece);
        else
            Py_CLEAR(text);
    }
    return text;
}

/* "($self, other, *, alpha=1)" of the first overload. */
static PyObject *op_text_signature(PyObject *self, void *closure)
{
    op_object *f = (op_object *)self;
    rl_overloads *o = compiled(f);
    PyObject *text = o ? PyUnicode_FromString(is_method(f) ? "($self" : "(") : NULL;
    bool starred = false, first = !is_method(f);
    for (int k = 0; text && k < o->v[0].nparams; k++) {
        const rl_param *p = &o->v[0].params[k];
        PyObject *piece = PyUnicode_FromFormat("%s%s%U%s%s", first ? "" : ", ", p->kwonly && !starred ? "*, " : "", p->name,
                                               p->has_default ? "=" : "", p->has_default ? p->default_text : "");
        starred |= p->kwonly;
        first = false;
        if (piece)
            PyUnicode_AppendAndDel(&text, piece);
        else
            Py_CLEAR(text);
    }
    if (text)
        PyUnicode_AppendAndDel(&text, PyUnicode_FromString(")"));
    return text;
}

static PyObject *op_name(PyObject *self, void *closure) { return Py_NewRef(((op_object *)self)->name); }

static PyObject *op_qualname(PyObject *self, void *closure)
{
    op_object *f = (op_object *)self;
    return is_method(f) ? PyUnicode_FromFormat("Tensor.%U", f->name) : Py_NewRef(f->name);
}

/* The table's letters: what the operator is beside this form. */
static PyObject *op_forms(PyObject *self, void *closure) { return PyUnicode_FromString(((op_object *)self)->row->forms); }

static PyObject *op_module(PyObject *self, void *closure) { return PyUnicode_FromString(((op_object *)self)->module); }
static PyObject *op_objclass(PyObject *self, void *closure) { return Py_NewRef((PyObject *)rl_st->Tensor); }

static PyMemberDef op_members[] = {{"__vectorcalloffset__", T_PYSSIZET, offsetof(op_object, vectorcall), READONLY, NULL}, {NULL}};
static PyMethodDef op_methods[] = {{"__reduce__", op_reduce, METH_NOARGS, NULL}, {NULL}};
static PyGetSetDef function_getset[] = {
    {"__name__", op_name, NULL, NULL, NULL},     {"__qualname__", op_qualname, NULL, NULL, NULL},
    {"__module__", op_module, NULL, NULL, NULL}, {"__doc__", op_doc, NULL, NULL, NULL},
    {"__text_signature__", op_text_signature, NULL, NULL, NULL}, {"_forms", op_forms, NULL, NULL, NULL}, {NULL},
};
static PyGetSetDef method_getset[] = {
    {"__name__", op_name, NULL, NULL, NULL}, {"__qualname__", op_qualname, NULL, NULL, NULL},
    {"__objclass__", op_objclass, NULL, NULL, NULL},
    {"__doc__", op_doc, NULL, NULL, NULL},   {"__text_signature__", op_text_signature, NULL, NULL, NULL},
    {"_forms", op_forms, NULL, NULL, NULL}, {NULL},
};
#define COMMON_SLOTS                                                                                              \
    {Py_tp_dealloc, op_dealloc}, {Py_tp_repr, op_repr}, {Py_tp_call, PyVectorcall_Call}, {Py_tp_members, op_members}, \
        {Py_tp_methods, op_methods}
static PyType_Slot function_slots[] = {COMMON_SLOTS, {Py_tp_getset, function_getset}, {0, NULL}};
static PyType_Slot method_slots[] = {COMMON_SLOTS, {Py_tp_getset, method_getset}, {Py_tp_descr_get, method_get}, {0, NULL}};
enum { OP_FLAGS = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE };
static PyType_Spec function_spec = {"rushlight.OpFunction", sizeof(op_object), 0, OP_FLAGS, function_slots};
static PyType_Spec method_spec = {"rushlight.OpMethod", sizeof(op_object), 0, OP_FLAGS | Py_TPFLAGS_METHOD_DESCRIPTOR, method_slots};

/* ---- from the table ---- */

static op_object *new_op(PyTypeObject *type, const rl_op *op, char form, bool inplace, const char *module)
{
    char name[96];
    op_object *f = PyObject_New(op_object, type);
    if (!f)
        return NULL;
    const rl_op *row = op->alias_of ? op->alias_of : op;
    memset((char *)f + sizeof(PyObject), 0, sizeof *f - sizeof(PyObject));
    snprintf(name, sizeof name, "%s%s", op->name, inplace ? "_" : "");
    f->name = PyUnicode_InternFromString(name);
    if (!f->name) {
        Py_DECREF(f);
        return NULL;
    }
    f->vectorcall = type == rl_st->OpMethod ? method_call : function_call;
    f->op = op;
    f->row = row;
    f->form = form;
    f->inplace = inplace;
    f->module = module;
    f->alpha = strstr(row->signature, "Scalar alpha=1") != NULL;
    f->gives_bool = strchr(row->forms, 'B') != NULL;
    f->first_number = type == rl_st->OpFunction && !inplace && rl_takes_number(row, true, "self");
    f->second_number = rl_takes_number(row, false, "other");
    if (row->kind == RL_ROW_UNARY && !strchr(row->signature, ','))
        f->direct = DIRECT_UNARY;
    else if (row->kind == RL_ROW_BINARY)
        f->direct = DIRECT_BINARY;
    return f;
}

PyObject *rl_py_op_function(const rl_op *op, char form)
{
    PyObject *known = rl_py_public(op, form);
    return known ? Py_NewRef(known) : PyErr_Format(PyExc_AttributeError, "the operator %s has no form '%c'", op->name, form);
}

typedef struct places {
    PyObject *module, *functional, *special, *linalg, *names; /* names: a list of what the package exports */
} places;

static int put(PyObject *place, op_object *f) { return f ? PyObject_SetAttr(place, f->name, (PyObject *)f) : -1; }

static int add_functions(const rl_op *op, const places *p)
{
    static const struct { char letter; const char *module; } kinds[] = {
        {'F', "rushlight"}, {'N', "rushlight.nn.functional"}, {'S', "rushlight.special"}, {'L', "rushlight.linalg"}, {'P', "rushlight._C"}};
    PyObject *const where[] = {p->module, p->functional, p->special, p->linalg, p->module};
    const char *forms = op->forms;
    op_object *f = NULL, *g = NULL;
    int failed = 0;
    for (size_t k = 0; !failed && k < sizeof kinds / sizeof *kinds; k++) {
        if (!strchr(forms, kinds[k].letter))
            continue;
        f = f ? f : new_op(rl_st->OpFunction, op, 'F', false, kinds[k].module);
        failed = put(where[k], f);
        if (!failed && strchr(forms, 'I')) {
            g = g ? g : new_op(rl_st->OpFunction, op, 'i', true, kinds[k].module);
            failed = put(where[k], g);
        }
        if (!failed && kinds[k].letter == 'F')
            failed = PyList_Append(p->names, f->name) < 0 || (g && op->kind != RL_ROW_BINARY && PyList_Append(p->names, g->name) < 0);
    }
    functions[op - rl_op_table] = (PyObject *)f;
    Py_XDECREF(g);
    return failed ? -1 : 0;
}

static int add_methods(const rl_op *op)
{
    PyObject *tensor = (PyObject *)rl_st->Tensor;
    Py_ssize_t k = op - rl_op_table;
    op_object *f;
    if (strchr(op->forms, 'M')) {
        methods[k] = (PyObject *)(f = new_op(rl_st->OpMethod, op, 'M', false, NULL));
        if (put(tensor, f) < 0)
            return -1;
    }
    if (strchr(op->forms, 'M') && strchr(op->forms, 'I')) {
        inplace_methods[k] = (PyObject *)(f = new_op(rl_st->OpMethod, op, 'I', true, NULL));
        if (put(tensor, f) < 0)
            return -1;
    }
    return 0;
}

static PyObject *add_namespace(PyObject *m, const char *name)
{
    char full[64];
    snprintf(full, sizeof full, "rushlight._C.%s", name);
    PyObject *space = PyModule_New(full);
    if (space && PyModule_AddObjectRef(m, name, space) < 0)
        Py_CLEAR(space);
    return space;
}

int rl_py_init_ops(PyObject *m)
{
    places p = {.module = m, .functional = add_namespace(m, "_nn"), .special = add_namespace(m, "_special"),
                .linalg = add_namespace(m, "_linalg"),
                .names = PyList_New(0)};
    int failed = !p.functional || !p.special || !p.linalg || !p.names || rl_py_init_results(m) < 0;
    rl_st->OpFunction = failed ? NULL : rl_py_make_type(m, &function_spec, NULL, "OpFunction");
    rl_st->OpMethod = failed ? NULL : rl_py_make_type(m, &method_spec, NULL, "OpMethod");
    failed |= !rl_st->OpFunction || !rl_st->OpMethod;
    for (int k = 0; !failed && k < RL_OP_COUNT; k++)
        failed = add_functions(&rl_op_table[k], &p) < 0 || add_methods(&rl_op_table[k]) < 0;
    failed = failed || PyModule_AddObjectRef(m, "_functions", p.names) < 0;
    Py_XDECREF(p.functional);
    Py_XDECREF(p.special);
    Py_XDECREF(p.linalg);
    Py_XDECREF(p.names);
    return failed ? -1 : 0;
}
