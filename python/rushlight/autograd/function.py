"""Custom Functions: forward and backward in Python, one node in the graph. The mechanics are in C (csrc/py/function.c)."""
from __future__ import annotations

from .. import _C
from .._C import FunctionCtx

TYPE_CHECKING = False  # known to type checkers; importing typing takes longer than all of this package
if TYPE_CHECKING:
    from typing import Any

__all__ = ["Function", "FunctionCtx", "InplaceFunction", "BackwardCFunction", "FunctionMeta", "NestedIOFunction", "once_differentiable"]


class BackwardCFunction(FunctionCtx):
    """The base of the contexts: for class MyFn there is a MyFnBackward, whose instances are ctx in forward and grad_fn of the results."""

    _forward_cls: Any = None

    def apply(self, *grads: Any) -> Any:  # type: ignore[override]
        """backward with these gradients."""
        return self._forward_cls.backward(self, *grads)


class FunctionMeta(type):
    """Gives each Function its context class, and finds out which of the two forms of forward it uses."""

    def __init__(cls, name: str, bases: tuple[type, ...], attrs: dict[str, Any]) -> None:
        super().__init__(name, bases, attrs)
        cls._backward_cls = type(name + "Backward", (BackwardCFunction,), {"_forward_cls": cls})
        base = globals().get("Function")
        if "vjp" in attrs and base is not None:
            if "backward" in attrs:
                raise RuntimeError("Implementing both 'backward' and 'vjp' for a custom Function is not allowed. You should only "
                                   "implement one of them.")
            cls.backward = attrs["vjp"]
        cls._uses_setup_context = base is not None and cls.setup_context is not base.setup_context  # type: ignore[attr-defined]


class Function(FunctionCtx, metaclass=FunctionMeta):
    """A differentiable operation of one's own: subclass it, write forward and backward as static methods, call MyFn.apply(…).

    forward(ctx, *args), or forward(*args) with setup_context(ctx, inputs, output); backward(ctx, *grads) returns one gradient for each
    argument of forward, None where there is none.
    """

    _uses_setup_context = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("Legacy autograd function with non-static forward method is deprecated. Please use new-style autograd "
                           "function with "
                           "static forward method. (Example: https://pytorch.org/docs/stable/autograd.html#torch.autograd.Function)")

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError("You must implement the forward function for custom autograd.Function.")

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> Any:
        raise NotImplementedError("setup_context is not implemented.")

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        raise NotImplementedError("You must implement either the backward or vjp method for your custom autograd.Function to use it with "
                                  "backward "
                                  "mode AD.")

    vjp = backward

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Any) -> Any:
        raise NotImplementedError("You must implement the jvp function for custom autograd.Function to use it with forward mode AD.")

    @classmethod
    def _bind_arguments(cls, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """Keywords and defaults of forward as positions: what apply hands on."""
        import inspect
        skip = 0 if cls._uses_setup_context else 1
        bound = inspect.signature(cls.forward).bind(*([None] * skip), *args, **kwargs)
        bound.apply_defaults()
        if bound.kwargs:
            raise TypeError(f"{cls.__name__}.apply() takes no keyword-only arguments: {', '.join(bound.kwargs)}")
        return bound.args[skip:]


class InplaceFunction(Function):
    """A Function whose constructor notes whether it works in place; kept for older code."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace


NestedIOFunction = Function


class _Once(Function):
    """Behind a once-differentiable backward: asking for its gradient is an error."""

    @staticmethod
    def forward(ctx: Any, *grads: Any) -> Any:
        return tuple(g.detach() if isinstance(g, _C.Tensor) else g for g in grads)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise RuntimeError("trying to differentiate twice a function that was marked with @once_differentiable")


def once_differentiable(fn: Any) -> Any:
    """Decorates a backward that is not differentiable itself: under create_graph its results raise when differentiated."""

    import functools

    @functools.wraps(fn)
    def wrapper(ctx: Any, *args: Any) -> Any:
        from .grad_mode import no_grad
        with no_grad():
            outputs = fn(ctx, *args)
        if not _C.is_grad_enabled() or not any(isinstance(a, _C.Tensor) and a.requires_grad for a in args):
            return outputs
        single = not isinstance(outputs, tuple)
        grads = (outputs,) if single else outputs
        anchor = _C.tensor(0.0, requires_grad=True)
        marked = _Once.apply(*grads, anchor)[:-1]
        return marked[0] if single else marked

    return wrapper
