"""__torch_function__ from the outside: modes, the helpers of functions that want to be overridable, and the switches."""
from __future__ import annotations

from . import _C
from ._C import Tensor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

__all__ = ["BaseTorchFunctionMode", "TorchFunctionMode", "handle_torch_function", "has_torch_function", "has_torch_function_unary",
           "has_torch_function_variadic", "is_tensor_like", "is_tensor_method_or_property", "resolve_name", "wrap_torch_function"]


class TorchFunctionMode:
    """A context in which every operator call goes to its __torch_function__, the innermost mode first.

    While a mode's method runs, the mode itself is off and the outer ones are on.
    """

    def __torch_function__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise NotImplementedError(f"{type(self).__name__} does not define __torch_function__")

    def __enter__(self) -> TorchFunctionMode:
        _C._push_torch_function_mode(self)
        return self

    def __exit__(self, *exc: Any) -> None:
        _C._pop_torch_function_mode()


class BaseTorchFunctionMode(TorchFunctionMode):
    """A mode that only calls the function."""

    def __torch_function__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def has_torch_function(relevant_args: Iterable[Any]) -> bool:
    """Whether one of the arguments overrides, or a mode is active."""
    return _C._has_torch_function(tuple(relevant_args))


def has_torch_function_unary(tensor: Any) -> bool:
    return _C._has_torch_function((tensor,))


def has_torch_function_variadic(*args: Any) -> bool:
    return _C._has_torch_function(args)


def handle_torch_function(public_api: Callable[..., Any], relevant_args: Iterable[Any], *args: Any, **kwargs: Any) -> Any:
    """Calls __torch_function__ of the arguments in order until one gives a result; TypeError when none does."""
    relevant = tuple(relevant_args)
    found = _C._get_overloaded_args(relevant)
    types = tuple(map(type, found))
    for arg in found:
        result = type(arg).__torch_function__(public_api, types, args, kwargs)
        if result is not NotImplemented:
            return result
    name = f"{public_api.__module__}.{public_api.__name__}"
    raise TypeError(f"no implementation found for '{name}' on types that implement __torch_function__: {[type(a) for a in found]}")


def wrap_torch_function(dispatcher: Callable[..., Iterable[Any]]) -> Callable[..., Any]:
    """Decorates a function so that the arguments which `dispatcher` names may override it."""
    def decorate(func: Callable[..., Any]) -> Callable[..., Any]:
        import functools

        @functools.wraps(func)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            relevant = tuple(dispatcher(*args, **kwargs))
            if _C._has_torch_function(relevant):
                return handle_torch_function(wrapped, relevant, *args, **kwargs)
            return func(*args, **kwargs)
        return wrapped
    return decorate


def is_tensor_like(inp: Any) -> bool:
    return type(inp) is Tensor or hasattr(inp, "__torch_function__")


def is_tensor_method_or_property(func: Any) -> bool:
    return getattr(func, "__name__", "") == "__get__" or any(v is func for v in vars(Tensor).values())


def resolve_name(f: Any) -> str | None:
    """The dotted name under which a function of the package is public."""
    module, name = getattr(f, "__module__", None), getattr(f, "__qualname__", None)
    if name is None:
        return None
    return f"{module}.{name}" if module else f"rushlight.{name}"
