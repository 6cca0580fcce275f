"""Parameter and Buffer: tensors that a Module registers when they are assigned to it.

Both accept instances of other Tensor classes: a tensor that carries `_is_param` (`_is_buffer`) is one, so that a subclass of Tensor
keeps its type when it becomes a parameter. The C core knows Parameter, since operators must give plain Tensors for it.
"""
from collections import OrderedDict

import rushlight
from rushlight import _C
from rushlight._C import Tensor

__all__ = ["Parameter", "UninitializedParameter", "is_lazy", "Buffer", "UninitializedBuffer"]


class _ParameterMeta(type(Tensor)):  # type: ignore[misc]
    def __instancecheck__(cls, instance):
        if cls is Parameter and isinstance(instance, Tensor) and getattr(instance, "_is_param", False):
            return True
        return super().__instancecheck__(instance)


class Parameter(Tensor, metaclass=_ParameterMeta):
    """A tensor that is a module's parameter: assigned to a Module it appears in `parameters()`.

    data: the values, shared, not copied; None makes an empty tensor. A tensor of a subclass keeps its class and is only marked.
    """

    def __new__(cls, data=None, requires_grad=True):
        if data is None:
            data = rushlight.empty(0)
        if type(data) is Tensor or type(data) is Parameter:
            return Tensor._make_subclass(cls, data, requires_grad)
        t = data.detach().requires_grad_(requires_grad)
        if type(t) is not type(data):
            raise RuntimeError(f"Creating a Parameter from an instance of type {type(data).__name__} requires that detach() returns an "
                               "instance "
                               f"of the same type, but return type {type(t).__name__} was found instead. To use the type as a Parameter, "
                               "please "
                               "correct the detach() semantics defined by its __torch_dispatch__() implementation.")
        t._is_param = True
        return t

    def __deepcopy__(self, memo):
        if id(self) in memo:
            return memo[id(self)]
        result = type(self)(self.data.clone(memory_format=rushlight.preserve_format), self.requires_grad)
        memo[id(self)] = result
        return result

    def __repr__(self, *, tensor_contents=None):
        return "Parameter containing:\n" + super().__repr__()

    def __reduce_ex__(self, proto):
        state = {k: v for k, v in self.__dict__.items() if k != "_is_param"} if getattr(self, "__dict__", None) else {}
        return _rebuild_parameter, (self.data, self.requires_grad, OrderedDict(), state)


def _rebuild_parameter(data, requires_grad, backward_hooks, state=None):
    p = Parameter(data, requires_grad)
    p._backward_hooks = backward_hooks or None
    if state:
        p.__dict__.update(state)
    return p


class _Uninitialized:
    """What a parameter or buffer without a shape can do: be moved and be given a shape."""

    def materialize(self, shape, device=None, dtype=None):
        """Gives it `shape`; its class becomes `cls_to_become`. The values are uninitialised."""
        new = rushlight.empty(shape, device=self.device if device is None else device, dtype=self.dtype if dtype is None else dtype)
        self.data = new
        self.__class__ = self.cls_to_become

    @property
    def shape(self):
        raise RuntimeError("Can't access the shape of an uninitialized parameter or buffer. This error usually happens in "
                           "`load_state_dict` when "
                           "trying to load an uninitialized parameter into an initialized one. Call `forward` to initialize the parameters "
                           "before accessing their attributes.")

    def share_memory_(self):
        raise RuntimeError("Can't share memory on an uninitialized parameter or buffer. Call `forward` to initialize the parameters before "
                           "calling `module.share_memory()`.")

    def __repr__(self):
        return f"<{type(self).__name__}>"

    def __reduce_ex__(self, proto):
        return type(self), (self.requires_grad,)


def is_lazy(param) -> bool:
    """Has the parameter or buffer no shape yet?"""
    return isinstance(param, _Uninitialized)


class UninitializedParameter(_Uninitialized, Parameter):
    """A parameter whose shape is not known yet; `materialize(shape)` makes it a Parameter."""

    cls_to_become = Parameter

    def __new__(cls, requires_grad=True, device=None, dtype=None):
        return Tensor._make_subclass(cls, rushlight.empty(0, device=device, dtype=dtype), requires_grad)

    def __deepcopy__(self, memo):
        if id(self) not in memo:
            memo[id(self)] = type(self)(self.requires_grad, self.data.device, self.data.dtype)
        return memo[id(self)]


class _BufferMeta(type(Tensor)):  # type: ignore[misc]
    def __instancecheck__(cls, instance):
        if cls is Buffer and isinstance(instance, Tensor) and getattr(instance, "_is_buffer", False):
            return True
        return super().__instancecheck__(instance)


class Buffer(Tensor, metaclass=_BufferMeta):
    """A tensor that a Module registers as a buffer when it is assigned; persistent: it is part of the state_dict."""

    def __new__(cls, data=None, *, persistent=True):
        if data is None:
            data = rushlight.empty(0)
        t = data.detach().requires_grad_(data.requires_grad)
        t.persistent = persistent
        t._is_buffer = True
        return t


class UninitializedBuffer(_Uninitialized, Tensor):
    """A buffer whose shape is not known yet."""

    cls_to_become = Tensor

    def __new__(cls, requires_grad=False, device=None, dtype=None, persistent=True):
        t = Tensor._make_subclass(cls, rushlight.empty(0, device=device, dtype=dtype), requires_grad)
        t.persistent = persistent
        t._is_buffer = True
        return t


_C._set_parameter_type(Parameter)
