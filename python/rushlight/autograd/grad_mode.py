"""Grad mode and inference mode, as context managers and as decorators of functions, generators and coroutines."""
from __future__ import annotations

from .. import _C

TYPE_CHECKING = False  # known to type checkers; importing typing takes longer than all of this package
if TYPE_CHECKING:
    from typing import Any

__all__ = ["no_grad", "enable_grad", "set_grad_enabled", "inference_mode", "set_multithreading_enabled"]


_IS_GENERATOR = 0x20  # inspect.CO_GENERATOR; inspect is slow to import


class _Mode:
    """A context manager that also decorates: each call of the function gets a context of its own."""

    def clone(self) -> _Mode:
        return type(self)()

    def __call__(self, func: Any) -> Any:
        if isinstance(func, type):
            constructor: Any = func.__init__  # type: ignore[misc]
            setattr(func, "__init__", self(constructor))  # noqa: B010  (a class: its constructor runs in the mode)
            return func
        code = getattr(func, "__code__", None)
        if code is not None and code.co_flags & _IS_GENERATOR:
            return self._decorate_generator(func)

        import functools

        @functools.wraps(func)
        def decorate_context(*args: Any, **kwargs: Any) -> Any:
            with self.clone():
                return func(*args, **kwargs)

        return decorate_context

    def _decorate_generator(self, func: Any) -> Any:
        """The mode holds while the generator's own code runs, not while its consumer's does."""

        import functools

        @functools.wraps(func)
        def generator_context(*args: Any, **kwargs: Any) -> Any:
            with self.clone():
                gen = func(*args, **kwargs)
                step, given = gen.send, None
            try:
                while True:
                    with self.clone():
                        value = step(given)
                    try:
                        given = yield value
                        step = gen.send
                    except GeneratorExit:
                        with self.clone():
                            gen.close()
                        raise
                    except BaseException as e:
                        step, given = gen.throw, e
            except StopIteration as stop:
                return stop.value

        return generator_context

    def __enter__(self) -> Any:
        raise NotImplementedError

    def __exit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> None:
        raise NotImplementedError


class _NoParam(_Mode):
    """Usable without brackets: @no_grad."""

    def __new__(cls, func: Any = None) -> Any:
        self = super().__new__(cls)
        return self if func is None else self(func)


class no_grad(_NoParam):
    """Operators are not recorded; results do not require grad."""

    __slots__ = ("prev",)

    def __enter__(self) -> None:
        self.prev = _C._set_grad_enabled(False)

    def __exit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> None:
        _C._set_grad_enabled(self.prev)


class enable_grad(_NoParam):
    """Operators are recorded again inside no_grad."""

    __slots__ = ("prev",)

    def __enter__(self) -> None:
        self.prev = _C._set_grad_enabled(True)

    def __exit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> None:
        _C._set_grad_enabled(self.prev)


class set_grad_enabled(_Mode):
    """Sets grad mode to `mode`, as a call, for a with block, or for each call of a function."""

    def __init__(self, mode: bool) -> None:
        self.mode = mode
        self.prev = _C._set_grad_enabled(mode)

    def clone(self) -> set_grad_enabled:
        return type(self)(self.mode)

    def __call__(self, func: Any) -> Any:
        _C._set_grad_enabled(self.prev)
        return super().__call__(func)

    def __enter__(self) -> None:
        _C._set_grad_enabled(self.mode)

    def __exit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> None:
        _C._set_grad_enabled(self.prev)

    def __repr__(self) -> str:
        return f"{type(self).__module__}.{type(self).__qualname__}(mode={self.mode})"


class inference_mode(_Mode):
    """no_grad, and new tensors have no version and can never take part in a graph; mode=False switches it off inside."""

    def __new__(cls, mode: Any = True) -> Any:
        self = super().__new__(cls)
        return self if isinstance(mode, bool) else cls()(mode)

    def __init__(self, mode: Any = True) -> None:
        self.mode = mode
        self.prev: list[tuple[bool, bool]] = []

    def clone(self) -> inference_mode:
        return type(self)(self.mode)

    def __enter__(self) -> None:
        self.prev.append((_C._set_inference_mode(self.mode), _C._set_grad_enabled(not self.mode)))

    def __exit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> None:
        inference, grad = self.prev.pop()
        _C._set_inference_mode(inference)
        _C._set_grad_enabled(grad)


class set_multithreading_enabled(_Mode):
    """Accepted for compatibility: backward runs on the calling thread always."""

    def __init__(self, mode: bool) -> None:
        self.mode = mode

    def clone(self) -> set_multithreading_enabled:
        return type(self)(self.mode)

    def __enter__(self) -> None:
        pass

    def __exit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> None:
        pass
