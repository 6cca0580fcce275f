"""record_function: names a stretch of code. There is no profiler here; the names are accepted, so that scripts which mark steps run."""
from __future__ import annotations

import functools
from typing import Any

__all__ = ["record_function", "emit_nvtx"]


class record_function:
    """A with block or decorator with a name; records nothing."""

    def __init__(self, name: str, args: str | None = None) -> None:
        self.name, self.args = name, args

    def __enter__(self) -> record_function:
        return self

    def __exit__(self, *exc: Any) -> None:
        pass

    def __call__(self, func: Any) -> Any:
        @functools.wraps(func)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return func(*args, **kwargs)

        return wrapper


def emit_nvtx(*args: Any, **kwargs: Any) -> Any:
    """Not available: there is no GPU profiler here."""
    raise NotImplementedError("emit_nvtx: there is no profiler in rushlight")
