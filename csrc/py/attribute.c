/* attribute.c: the attributes of Tensor: one table of getters and setters.
 *
 * Every read goes through read_attribute, which costs an exact tensor one comparison and hands a subclass's reads to its
 * __torch_function__, as PyTorch does.
 */
#include "internal.h"

typedef struct attribute {
    PyObject *(*get)(PyObject *self, rl_tensor *t);
    const char *name;
    bool keeps_class; /* the result is an object that has its class already: grad, _base */
} attribute;

static PyObject *give(rl_status st, rl_tensor **t) { return RL_LIKELY(st == RL_OK) ? rl_py_wrap(*t) : rl_py_raise(st); }

static PyObject *read_attribute(PyObject *self, void *closure)
{
    const attribute *a = closure;
    if (RL_UNLIKELY(!rl_py_is_tensor_exact(self) || rl_py_modes) && !rl_py_override_off) {
        PyObject *property = PyObject_GetAttrString((PyObject *)rl_st->Tensor, a->name), *result = NULL;
        PyObject *getter = property ? PyObject_GetAttrString(property, "__get__") : NULL;
        bool taken = !getter || rl_py_getter_override(self, getter, &result);
        Py_XDECREF(property);
        Py_XDECREF(getter);
        if (taken)
            return result;
    }
    return a->get(self, rl_py_unwrap(self));
}

/* ---- geometry ---- */

static PyObject *get_shape(PyObject *self, rl_tensor *t) { return rl_py_size(t->ndim, t->shape); }
static PyObject *get_ndim(PyObject *self, rl_tensor *t) { return PyLong_FromLong(t->ndim); }
static PyObject *get_itemsize(PyObject *self, rl_tensor *t) { return PyLong_FromLong(rl_tensor_itemsize(t)); }
static PyObject *get_nbytes(PyObject *self, rl_tensor *t) { return PyLong_FromLongLong(t->numel * rl_tensor_itemsize(t)); }

static PyObject *get_T(PyObject *self, rl_tensor *t)
{
    int64_t dims[RL_MAX_NDIM];
    rl_tensor *out = NULL;
    for (int k = 0; k < t->ndim; k++)
        dims[k] = t->ndim - 1 - k;
    if (t->ndim != 2 && t->ndim != 0 && t->ndim != 1) {
        const char *text = "The use of `x.T` on tensors of dimension other than 2 to reverse their shape is deprecated and it will throw "
                           "an error in a future "
                           "release. Consider `x.mT` to transpose batches of matrices or `x.permute(*torch.arange(x.ndim - 1, -1, -1))` "
                           "to reverse the "
                           "dimensions of a tensor.";
        if (PyErr_WarnEx(PyExc_UserWarning, text, 1) < 0)
            return NULL;
    }
    return give(rl_permute(t, t->ndim, dims, &out), &out);
}

static PyObject *matrix_transpose(rl_tensor *t, const char *name)
{
    rl_tensor *out = NULL;
    if (t->ndim < 2)
        return PyErr_Format(PyExc_RuntimeError, "tensor.%s is only supported on matrices or batches of matrices. Got %d-D tensor.", name,
                            t->ndim);
    return give(rl_transpose(t, -2, -1, &out), &out);
}
static PyObject *get_mT(PyObject *self, rl_tensor *t) { return matrix_transpose(t, "mT"); }
static PyObject *get_mH(PyObject *self, rl_tensor *t) { return matrix_transpose(t, "mH"); }

static PyObject *get_H(PyObject *self, rl_tensor *t)
{
    if (t->ndim == 2 || t->ndim == 0)
        return get_T(self, t);
    return PyErr_Format(PyExc_RuntimeError,
                        "tensor.H is only supported on matrices (2-D tensors). Got %d-D tensor.%s", t->ndim,
                        t->ndim > 2 ? " For batches of matrices, consider using tensor.mH" : "");
}

static PyObject *get_real(PyObject *self, rl_tensor *t) { return Py_NewRef(self); }
static PyObject *get_imag(PyObject *self, rl_tensor *t)
{
    return PyErr_Format(PyExc_RuntimeError, "imag is not implemented for tensors with non-complex dtypes.");
}

/* ---- kind ---- */

static PyObject *get_dtype(PyObject *self, rl_tensor *t) { return rl_py_dtype((rl_dtype)t->dtype); }
static PyObject *get_device(PyObject *self, rl_tensor *t) { return rl_py_device(rl_tensor_device(t)); }
static PyObject *get_layout(PyObject *self, rl_tensor *t) { return Py_NewRef(rl_st->strided); }
static PyObject *get_is_cpu(PyObject *self, rl_tensor *t) { return PyBool_FromLong(rl_tensor_device(t).type == RL_DEVICE_CPU); }
static PyObject *get_is_cuda(PyObject *self, rl_tensor *t) { return PyBool_FromLong(rl_tensor_device(t).type == RL_DEVICE_CUDA); }
static PyObject *get_is_meta(PyObject *self, rl_tensor *t) { return PyBool_FromLong(rl_tensor_device(t).type == RL_DEVICE_META); }
static PyObject *get_false(PyObject *self, rl_tensor *t) { Py_RETURN_FALSE; }
static PyObject *get_none(PyObject *self, rl_tensor *t) { Py_RETURN_NONE; }
static PyObject *get_address(PyObject *self, rl_tensor *t) { return PyLong_FromVoidPtr(t); }

static PyObject *get_version(PyObject *self, rl_tensor *t)
{
    if (!t->version)
        return PyErr_Format(PyExc_RuntimeError, "Inference tensors do not track version counter.");
    return PyLong_FromUnsignedLong(rl_tensor_version(t));
}

/* ---- history ---- */

static PyObject *get_requires_grad(PyObject *self, rl_tensor *t)
{
    bool base = t->meta && t->meta->base && rl_tensor_requires_grad(t->meta->base); /* a view of what was written in place since */
    return PyBool_FromLong(rl_tensor_requires_grad(t) || base);
}

static PyObject *get_is_leaf(PyObject *self, rl_tensor *t)
{
    rl_node *node = NULL;
    rl_status st = rl_tensor_grad_fn(t, &node);
    return st == RL_OK ? PyBool_FromLong(node == NULL) : rl_py_raise(st);
}

static PyObject *get_grad_fn(PyObject *self, rl_tensor *t)
{
    rl_node *node = NULL;
    rl_status st = rl_tensor_grad_fn(t, &node);
    return st == RL_OK ? rl_py_wrap_node(rl_node_retain(node)) : rl_py_raise(st);
}

static PyObject *get_grad(PyObject *self, rl_tensor *t)
{
    bool retains = t->meta && t->meta->retains_grad;
    if (!t->grad && t->grad_fn && !retains) {
        const char *text = "The .grad attribute of a Tensor that is not a leaf Tensor is being accessed. Its .grad attribute won't be "
                           "populated during "
                           "autograd.backward(). If you indeed want the .grad field to be populated for a non-leaf Tensor, use "
                           ".retain_grad() on the "
                           "non-leaf Tensor. If you access the non-leaf Tensor by mistake, make sure you access the leaf Tensor instead.";
        if (PyErr_WarnEx(PyExc_UserWarning, text, 1) < 0)
            return NULL;
    }
    return rl_py_wrap(rl_tensor_retain(t->grad));
}

static PyObject *get_base(PyObject *self, rl_tensor *t) { return rl_py_wrap(rl_tensor_retain(t->meta ? t->meta->base : NULL)); }
static PyObject *get_output_nr(PyObject *self, rl_tensor *t) { return PyLong_FromLong(t->output_nr); }
static PyObject *get_retains_grad(PyObject *self, rl_tensor *t) { return PyBool_FromLong(t->meta && t->meta->retains_grad && t->grad_fn); }

/* The same elements with a version counter of its own and no history. */
static PyObject *get_data(PyObject *self, rl_tensor *t)
{
    rl_tensor *out = NULL;
    return give(rl_tensor_on_storage(t->storage, NULL, t->ndim, t->shape, t->strides, t->offset, (rl_dtype)t->dtype, &out), &out);
}

static PyObject *get_backward_hooks(PyObject *self, rl_tensor *t)
{
    PyObject *hooks = ((rl_py_tensor *)self)->backward_hooks;
    return Py_NewRef(hooks ? hooks : Py_None);
}

/* ---- setters ---- */

static int fail_status(rl_status st)
{
    if (st == RL_OK)
        return 0;
    rl_py_raise(st);
    return -1;
}

static int fail_text(PyObject *type, const char *text)
{
    PyErr_SetString(type, text);
    return -1;
}

/* For the attribute and for requires_grad_(), whose words for integers differ. */
int rl_py_set_requires_grad(rl_tensor *t, bool on, const char *not_float)
{
    if (t->grad_fn && !on)
        return fail_text(PyExc_RuntimeError, "you can only change requires_grad flags of leaf variables. If you want to use a computed "
                                             "variable in a "
                                             "subgraph that doesn't require differentiation use var_no_grad = var.detach().");
    if (on && !rl_dtype_is_float((rl_dtype)t->dtype))
        return fail_text(PyExc_RuntimeError, not_float);
    if (on && (t->flags & RL_TF_INFERENCE) && !rl_state_get()->inference_mode)
        return fail_text(PyExc_RuntimeError, "Setting requires_grad=True on inference tensor outside InferenceMode is not allowed.");
    if (on && !t->grad_fn)
        t->flags |= RL_TF_REQUIRES_GRAD;
    else
        t->flags &= (uint16_t)~RL_TF_REQUIRES_GRAD;
    return 0;
}

static int set_requires_grad(PyObject *self, PyObject *value, void *closure)
{
    if (!value || !PyBool_Check(value))
        return fail_text(PyExc_RuntimeError, "requires_grad must be a bool");
    return rl_py_set_requires_grad(rl_py_unwrap(self), value == Py_True,
                                   "only Tensors of floating point and complex dtype can require gradients");
}

static int check_grad(rl_tensor *t, rl_tensor *grad)
{
    static const char *const cpp[RL_DTYPE_COUNT] = {"bool", "unsigned char", "signed char", "short int", "int", "long int", "c10::Half",
                                                    "c10::BFloat16",
                                                    "float", "double"};
    if (grad == t)
        return fail_text(PyExc_RuntimeError, "can't assign Variable as its own grad");
    if (grad->dtype != t->dtype)
        PyErr_Format(PyExc_RuntimeError,
                     "attempting to assign a gradient with dtype '%s' to a tensor with grad_dtype '%s'. The gradient must match the "
                     "tensor's grad_dtype "
                     "(defaults to the tensor's dtype). You can set the tensor's grad_dtype attribute with a specific dtype, or None to "
                     "allow any dtype. "
                     "Set grad_dtype with caution. Diverging the dtypes of a tensor and its gradient may break downstream systems that "
                     "assume they match.",
                     cpp[grad->dtype], rl_dtype_table[t->dtype].scalar_type);
    else if (!rl_device_same(rl_tensor_device(grad), rl_tensor_device(t)))
        PyErr_Format(PyExc_RuntimeError, "assigned grad has data located on a different device: %s, not %s",
                     rl_device_text(rl_tensor_device(grad)),
                     rl_device_text(rl_tensor_device(t)));
    else if (!rl_tensor_same_shape(grad, t))
        PyErr_Format(PyExc_RuntimeError,
                     "attempting to assign a gradient of size '%s' to a tensor of size '%s'. Please ensure that the gradient and the "
                     "tensor are the same size",
                     rl_shape_text(grad->ndim, grad->shape), rl_shape_text(t->ndim, t->shape));
    else
        return 0;
    return -1;
}

static int set_grad(PyObject *self, PyObject *value, void *closure)
{
    rl_tensor *t = rl_py_unwrap(self), *old = t->grad;
    if (value && value != Py_None && !rl_py_is_tensor(value)) {
        PyErr_Format(PyExc_TypeError, "assigned grad expected to be a Tensor or None but got grad of type %s", rl_py_type_text(value));
        return -1;
    }
    rl_tensor *grad = value && value != Py_None ? rl_py_unwrap(value) : NULL;
    if (grad && check_grad(t, grad) < 0)
        return -1;
    t->grad = rl_tensor_retain(grad);
    rl_tensor_release(old);
    return 0;
}

/* Takes over elements and dtype of `data`. Through an empty geometry, so that no step can see elements outside of a storage. */
static rl_status take_data(rl_tensor *t, rl_tensor *data)
{
    static const int64_t none[1] = {0}, one[1] = {1};
    RL_RETURN(rl_tensor_set_geometry(t, 1, none, one, 0));
    RL_RETURN(rl_tensor_set_storage(t, data->storage));
    t->dtype = data->dtype;
    return rl_tensor_set_geometry(t, data->ndim, data->shape, data->strides, data->offset);
}

static int set_data(PyObject *self, PyObject *value, void *closure)
{
    rl_tensor *t = rl_py_unwrap(self);
    if (!value)
        return fail_text(PyExc_RuntimeError, "Deleting tensor data is not allowed. Delete tensor instead!");
    if (!rl_py_is_tensor(value)) {
        PyErr_Format(PyExc_TypeError, "Variable data has to be a tensor, but got %s", rl_py_type_text(value));
        return -1;
    }
    rl_tensor *data = rl_py_unwrap(value);
    if (rl_tensor_requires_grad(t) && !rl_dtype_is_float((rl_dtype)data->dtype))
        return fail_text(PyExc_RuntimeError, "data set to a tensor that requires gradients must be floating point or complex dtype");
    return data == t ? 0 : fail_status(take_data(t, data));
}

static int set_backward_hooks(PyObject *self, PyObject *value, void *closure)
{
    PyObject *hooks = value && value != Py_None ? Py_NewRef(value) : NULL;
    Py_XSETREF(((rl_py_tensor *)self)->backward_hooks, hooks);
    return 0;
}

static int set_dict(PyObject *self, PyObject *value, void *closure) { return PyObject_GenericSetDict(self, value, NULL); }
static PyObject *get_dict(PyObject *self, void *closure) { return PyObject_GenericGetDict(self, NULL); }

/* ---- the table ---- */

#define ROW(name, get, set, keeps, doc) {#name, read_attribute, set, doc, &(attribute){get, #name, keeps}}
PyGetSetDef rl_py_tensor_getset[] = {
    ROW(shape, get_shape, NULL, false, "The sizes of the dimensions: a Size."),
    ROW(dtype, get_dtype, NULL, false, "The type of the elements."),
    ROW(device, get_device, NULL, false, "Where the elements are."),
    ROW(layout, get_layout, NULL, false, "strided."),
    ROW(ndim, get_ndim, NULL, false, "The number of dimensions."),
    ROW(itemsize, get_itemsize, NULL, false, "Bytes of one element."),
    ROW(nbytes, get_nbytes, NULL, false, "Bytes of all elements."),
    ROW(requires_grad, get_requires_grad, set_requires_grad, false, "Whether gradients are computed for it."),
    ROW(grad, get_grad, set_grad, true, "The gradient that backward() has accumulated, or None."),
    ROW(_grad, get_grad, set_grad, true, NULL),
    ROW(grad_fn, get_grad_fn, NULL, false, "The node that made it, or None for a leaf."),
    ROW(_grad_fn, get_grad_fn, NULL, false, NULL),
    ROW(is_leaf, get_is_leaf, NULL, false, "True when no recorded operator made it."),
    ROW(retains_grad, get_retains_grad, NULL, false, "True for a non-leaf whose .grad is kept."),
    ROW(output_nr, get_output_nr, NULL, false, "Which output of grad_fn it is."),
    ROW(data, get_data, set_data, false, "The same elements without history."),
    ROW(grad_dtype, get_dtype, NULL, false, "The dtype of its gradient."),
    ROW(_version, get_version, NULL, false, "How often the elements were written in place."),
    ROW(_base, get_base, NULL, true, "The tensor that it is a view of, or None."),
    ROW(_backward_hooks, get_backward_hooks, set_backward_hooks, false, NULL),
    ROW(_cdata, get_address, NULL, false, NULL),
    ROW(T, get_T, NULL, false, "The dimensions reversed."),
    ROW(mT, get_mT, NULL, false, "The last two dimensions swapped."),
    ROW(H, get_H, NULL, false, "The transposed matrix."),
    ROW(mH, get_mH, NULL, false, "The last two dimensions swapped."),
    ROW(real, get_real, NULL, true, "The tensor itself."),
    ROW(imag, get_imag, NULL, false, "Raises RuntimeError: there are no complex tensors."),
    ROW(name, get_none, NULL, false, NULL),
    ROW(volatile, get_false, NULL, false, NULL),
    ROW(is_cpu, get_is_cpu, NULL, false, NULL),
    ROW(is_cuda, get_is_cuda, NULL, false, NULL),
    ROW(is_meta, get_is_meta, NULL, false, NULL),
    ROW(is_sparse, get_false, NULL, false, NULL),
    ROW(is_sparse_csr, get_false, NULL, false, NULL),
    ROW(is_quantized, get_false, NULL, false, NULL),
    ROW(is_mkldnn, get_false, NULL, false, NULL),
    ROW(is_mps, get_false, NULL, false, NULL),
    ROW(is_xpu, get_false, NULL, false, NULL),
    ROW(is_xla, get_false, NULL, false, NULL),
    ROW(is_ipu, get_false, NULL, false, NULL),
    ROW(is_maia, get_false, NULL, false, NULL),
    ROW(is_vulkan, get_false, NULL, false, NULL),
    ROW(is_mtia, get_false, NULL, false, NULL),
    ROW(is_nested, get_false, NULL, false, NULL),
    {"__dict__", get_dict, set_dict, NULL, NULL},
    {NULL},
};

bool rl_py_keeps_class(PyObject *func)
{
    PyObject *property = PyObject_GetAttrString(func, "__self__"), *name = property ? PyObject_GetAttrString(property, "__name__") : NULL;
    bool keeps = false;
    PyErr_Clear();
    for (PyGetSetDef *d = rl_py_tensor_getset; name && PyUnicode_Check(name) && d->closure; d++)
        keeps |= ((attribute *)d->closure)->keeps_class && PyUnicode_CompareWithASCIIString(name, d->name) == 0;
    Py_XDECREF(property);
    Py_XDECREF(name);
    return keeps;
}
