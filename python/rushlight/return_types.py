"""The named tuples of operators with several results: `return_types.max` is what `max(x, dim)` gives. Made when first named."""
from __future__ import annotations

from . import _C

TYPE_CHECKING = False  # known to type checkers; importing typing takes longer than all of this package
if TYPE_CHECKING:
    from typing import Any

__all__ = list(_C._return_type_names())


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = _C._return_type(name)
    return value


def __dir__() -> list[str]:
    return __all__
