"""Process-wide settings that scripts touch, and `compile`. What a setting asks for is said in its docstring where it is always so here."""
from __future__ import annotations

from . import _C

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

__all__ = ["are_deterministic_algorithms_enabled", "compile", "get_deterministic_debug_mode", "get_float32_matmul_precision",
           "get_num_interop_threads", "is_deterministic_algorithms_warn_only_enabled", "is_storage", "is_warn_always_enabled",
           "set_deterministic_debug_mode", "set_float32_matmul_precision", "set_flush_denormal", "set_num_interop_threads", "set_warn_always",
           "typename", "use_deterministic_algorithms"]

_state: dict[str, Any] = {"deterministic": False, "warn_only": False, "precision": "highest", "warn_always": False, "interop": 1}
_PRECISIONS = ("highest", "high", "medium")
_DEBUG_MODES = {"default": 0, "warn": 1, "error": 2}


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Asks for results that do not depend on the run. On the CPU they never do, whatever the number of threads."""
    _state["deterministic"], _state["warn_only"] = bool(mode), bool(warn_only)


def are_deterministic_algorithms_enabled() -> bool:
    return _state["deterministic"]


def is_deterministic_algorithms_warn_only_enabled() -> bool:
    return _state["warn_only"]


def set_deterministic_debug_mode(debug_mode: int | str) -> None:
    """0 or "default", 1 or "warn", 2 or "error"; RuntimeError for others."""
    mode = _DEBUG_MODES.get(debug_mode) if isinstance(debug_mode, str) else debug_mode
    if not isinstance(debug_mode, (int, str)):
        raise TypeError(f"debug_mode must be str or int, but got {type(debug_mode)}")
    if mode not in (0, 1, 2):
        raise RuntimeError(f"invalid value of debug_mode, expected one of `default`, `warn`, `error`, 0, 1, 2, but got {debug_mode}")
    use_deterministic_algorithms(mode > 0, warn_only=mode == 1)


def get_deterministic_debug_mode() -> int:
    return 0 if not _state["deterministic"] else 1 if _state["warn_only"] else 2


def set_float32_matmul_precision(precision: str) -> None:
    """"highest", "high" or "medium": how exact float32 products must be at least. On the CPU they are always of the highest."""
    if precision not in _PRECISIONS:
        raise RuntimeError(f"{precision} is not one of 'highest', 'high', or 'medium'; the current setting is '{_state['precision']}'")
    _state["precision"] = precision


def get_float32_matmul_precision() -> str:
    return _state["precision"]


def set_warn_always(b: bool) -> None:
    """PyTorch repeats some warnings then; here Python's own filters decide."""
    _state["warn_always"] = bool(b)


def is_warn_always_enabled() -> bool:
    return _state["warn_always"]


def set_num_interop_threads(n: int) -> None:
    """There is one pool: only the number is kept."""
    if not isinstance(n, int) or n <= 0:
        raise RuntimeError(f"set_num_interop_threads expects a positive integer, but got {n}")
    _state["interop"] = n


def get_num_interop_threads() -> int:
    return _state["interop"]


def set_flush_denormal(mode: bool) -> bool:
    """Returns False: denormal numbers are kept, as the process's arithmetic is never switched."""
    return False


def is_storage(obj: Any) -> bool:
    from .storage import TypedStorage
    return isinstance(obj, (_C.UntypedStorage, TypedStorage))


def typename(obj: Any) -> str:
    """"torch.FloatTensor" for a tensor, else the object's type with its module."""
    if isinstance(obj, _C.Tensor):
        return obj.type()
    cls = obj if isinstance(obj, type) else type(obj)
    module = getattr(obj, "__module__", "") or getattr(cls, "__module__", "") or ""
    name = getattr(obj, "__qualname__", None) or cls.__qualname__
    return name if module in ("", "builtins") else f"{module}.{name}"


def compile(model: Callable[..., Any] | None = None, **options: Any) -> Any:  # noqa: A001
    """Gives the model or function back as it is: there is nothing to compile, operators are fast as they are called. Also a decorator."""
    return (lambda f: f) if model is None else model
