"""The methods of Tensor that are written in Python: printing, iteration, copies, pickling, the typed constructors.

The class itself is the C type; these functions are attached to it when this file is imported.
"""
from __future__ import annotations

from . import _C
from ._C import Tensor
from .storage import TypedStorage

TYPE_CHECKING = False  # known to type checkers; importing typing takes longer than all of this package
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from rushlight import dtype as dtype_type

_Number = (int, float, bool)


# ---- printing -----------------------------------------------------------------------------------------------------------

def _repr(self: Tensor, *, tensor_contents: str | None = None) -> str:
    from ._tensor_str import _tensor_str
    return _tensor_str(self, tensor_contents)


def _format(self: Tensor, format_spec: str) -> str:
    if self.dim() == 0 and self.device.type != "meta" and type(self) is Tensor:
        return self.item().__format__(format_spec)
    if format_spec:
        raise TypeError(f"unsupported format string passed to {type(self).__name__}.__format__")
    return str(self)


# ---- as a container -------------------------------------------------------------------------------------------------------

def _iter(self: Tensor) -> Iterator[Tensor]:
    if self.dim() == 0:
        raise TypeError("iteration over a 0-d tensor")
    return iter(self.unbind(0))


def _contains(self: Tensor, element: Any) -> bool:
    if isinstance(element, (Tensor, *_Number)):
        return bool(self.eq(element).any().item())
    raise RuntimeError(f"Tensor.__contains__ only supports Tensor or scalar, but you passed in a {type(element)}.")


def _reversed(self: Tensor) -> Tensor:
    return self if self.dim() == 0 else self.flip(0)


# ---- copies and pickles -----------------------------------------------------------------------------------------------------

def _rebuild_tensor(cls: type, storage: Any, dtype: dtype_type, offset: int, size: Any, stride: Any, requires_grad: bool) -> Tensor:
    """From the pieces that __reduce_ex__ gives, between our own processes."""
    t = _C.tensor([], dtype=dtype, device=storage.device).set_(storage, offset, size, stride)
    if cls is not Tensor:
        t = t.as_subclass(cls)
    return t.requires_grad_() if requires_grad else t


def _pieces(self: Tensor, storage: Any) -> tuple[Any, ...]:
    return type(self), storage, self.dtype, self.storage_offset(), tuple(self.shape), self.stride(), self.requires_grad and self.is_leaf


def _reduce_ex(self: Tensor, protocol: int) -> tuple[Any, ...]:
    state = dict(self.__dict__)
    return (_rebuild_tensor, _pieces(self, self.untyped_storage())) + ((state,) if state else ())


def _setstate(self: Tensor, state: dict[str, Any]) -> None:
    self.__dict__.update(state)


def _deepcopy(self: Tensor, memo: dict[int, Any]) -> Tensor:
    if not self.is_leaf:
        raise RuntimeError("Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the moment.  If "
                           "you were "
                           "attempting to deepcopy a module, this may be because of a torch.nn.utils.weight_norm usage, see "
                           "https://github.com/pytorch/pytorch/pull/103001")
    if id(self) in memo:
        return memo[id(self)]
    from copy import deepcopy
    with _no_grad():
        storage = deepcopy(self.untyped_storage(), memo)
        new = _rebuild_tensor(*_pieces(self, storage))
        if self.grad is not None:
            new.grad = deepcopy(self.grad, memo)
        memo[id(self)] = new
        if self.__dict__:
            new.__dict__.update(deepcopy(self.__dict__, memo))
    return new


class _no_grad:
    __slots__ = ("prev",)

    def __enter__(self) -> None:
        self.prev = _C._set_grad_enabled(False)

    def __exit__(self, *exc: Any) -> None:
        _C._set_grad_enabled(self.prev)


# ---- types ---------------------------------------------------------------------------------------------------------------------

_TYPE_NAMES = {"FloatTensor": "float32", "DoubleTensor": "float64", "HalfTensor": "float16", "BFloat16Tensor": "bfloat16",
               "ByteTensor": "uint8", "CharTensor": "int8", "ShortTensor": "int16", "IntTensor": "int32",
               "LongTensor": "int64", "BoolTensor": "bool"}


class _TypedMeta(type):
    """FloatTensor is a type to call and to ask isinstance of, not a class that a tensor has."""

    dtype: Any

    def __instancecheck__(cls, other: Any) -> bool:
        return isinstance(other, Tensor) and other.dtype == cls.dtype and other.device.type == "cpu"

    def __call__(cls, *args: Any, **kwargs: Any) -> Tensor:
        return _C._typed_new(cls.dtype, args, kwargs)


typed_constructors: dict[str, type] = {name: _TypedMeta(name, (), {"dtype": getattr(_C, dtype), "__module__": "rushlight", "is_cuda": False,
                                                                   "__doc__": f"{name}(sizes…) or {name}(data): a {dtype} tensor."})
                                       for name, dtype in _TYPE_NAMES.items()}
_NAME_OF = {getattr(_C, dtype): name for name, dtype in _TYPE_NAMES.items()}


def _type_dtype(name: Any) -> tuple[Any, str]:
    """The dtype and device type of "torch.cuda.FloatTensor", a typed constructor, or a dtype."""
    if isinstance(name, str):
        parts = name.split(".")
        if parts[0] in ("torch", "rushlight") and parts[-1] in _TYPE_NAMES:
            return getattr(_C, _TYPE_NAMES[parts[-1]]), "cuda" if "cuda" in parts else "cpu"
        raise ValueError(f"invalid type: '{name}'")
    if isinstance(name, _TypedMeta):
        return name.dtype, "cpu"
    return name, ""


def _type(self: Tensor, dtype: Any = None, non_blocking: bool = False, **kwargs: Any) -> Any:
    """type() -> "torch.FloatTensor"; type(dtype or name) -> the tensor as that type."""
    if dtype is None:
        return f"torch.{'cuda.' if self.device.type == 'cuda' else ''}{_NAME_OF[self.dtype]}"
    wanted, device = _type_dtype(dtype)
    return self.to(device=device or self.device, dtype=wanted, non_blocking=non_blocking)


def set_default_tensor_type(t: Any) -> None:
    """Sets the default dtype by the name of a tensor type ("torch.DoubleTensor")."""
    _C.set_default_dtype(_type_dtype(t)[0])


# ---- others --------------------------------------------------------------------------------------------------------------------

def _apply_(self: Tensor, callable: Callable[[Any], Any]) -> Tensor:
    """Replaces each element by callable(element). Slow; for a few elements on the CPU."""
    if self.requires_grad:
        raise RuntimeError("Can't call apply_() on Variable that requires grad. Use var.detach().apply_() instead.")
    values = [callable(v) for v in self.reshape(-1).tolist()]
    return self.copy_(_C.tensor(values, dtype=self.dtype).reshape(self.shape))


def _map_(self: Tensor, other: Tensor, callable: Callable[[Any, Any], Any]) -> Tensor:
    """Replaces each element by callable(element, other's element); other broadcasts."""
    if self.requires_grad or other.requires_grad:
        raise RuntimeError("Can't call map_() on Variable that requires grad. Use var.detach().map_() instead.")
    values = [callable(a, b) for a, b in zip(self.reshape(-1).tolist(), other.expand_as(self).reshape(-1).tolist(), strict=True)]
    return self.copy_(_C.tensor(values, dtype=self.dtype).reshape(self.shape))


def _storage(self: Tensor) -> Any:
    """storage() -> TypedStorage over the tensor's bytes."""
    return TypedStorage(wrap_storage=self.untyped_storage(), dtype=self.dtype)


def _storage_type(self: Tensor) -> type:
    return TypedStorage


def _cuda(self: Tensor, device: Any = None, non_blocking: bool = False, memory_format: Any = None) -> Tensor:
    """The tensor on a CUDA device, the current one unless `device` names another. RuntimeError says why there is none."""
    from . import cuda
    if not cuda.is_available():
        raise RuntimeError(cuda.why_not())
    return self.to(device="cuda" if device is None else device, non_blocking=non_blocking)


def _pin_memory(self: Tensor, device: Any = None) -> Tensor:
    """A copy in page-locked memory. RuntimeError where there is no device to copy to."""
    raise RuntimeError("Cannot access accelerator device when none is available.")


def _is_pinned(self: Tensor, device: Any = None) -> bool:
    return False


def _reinforce(self: Tensor, reward: Any) -> None:
    raise RuntimeError("reinforce() was removed. Use torch.distributions instead.")


def _volatile(self: Tensor) -> bool:
    import warnings
    warnings.warn("volatile was removed (Variable.volatile is always False)", stacklevel=2)
    return False


_METHODS: dict[str, Any] = {
    "__repr__": _repr, "__format__": _format, "__iter__": _iter, "__contains__": _contains, "__reversed__": _reversed,
    "__reduce_ex__": _reduce_ex, "__setstate__": _setstate, "__deepcopy__": _deepcopy, "__array_priority__": 1000, "type": _type,
    "apply_": _apply_, "map_": _map_, "storage": _storage, "_typed_storage": _storage, "storage_type": _storage_type,
    "cuda": _cuda, "pin_memory": _pin_memory, "is_pinned": _is_pinned, "reinforce": _reinforce, "volatile": property(_volatile),
}


def _composed(name: str) -> Callable[..., Any]:
    """A method that functional.py writes: loaded when it is first called."""
    def method(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        from . import functional
        return getattr(functional, name)(self, *args, **kwargs)

    method.__doc__ = f"functional.{name} of this tensor."
    return method


def _composed_in_place(name: str) -> Callable[..., Any]:
    def method(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        from . import functional
        return self.copy_(getattr(functional, name)(self.clone(), *args, **kwargs))

    return method


_METHODS.update({_name: _composed(_name) for _name in (
    "norm", "nonzero", "unique", "unique_consecutive", "mode", "quantile", "nanquantile", "histc", "histogram", "kron", "cross", "dist",
    "renorm", "cov", "corrcoef", "hsplit", "vsplit", "dsplit", "fliplr", "flipud", "rot90")})
_METHODS["renorm_"] = _composed_in_place("renorm")
for _name, _value in _METHODS.items():
    if _name.startswith("__") or not hasattr(Tensor, _name):
        if callable(_value):
            _value.__name__ = _name
            _value.__qualname__ = f"Tensor.{_name}"
        setattr(Tensor, _name, _value)
