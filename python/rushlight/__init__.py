"""rushlight: PyTorch's training loop in a small C wheel.

The names are PyTorch's. `import rushlight as torch` gives tensors, operators and automatic differentiation at once; everything else
(nn, optim, utils.data, files …) is imported when it is first named, so that the import itself takes milliseconds and never loads NumPy.
"""
from __future__ import annotations

import math as _math

from . import _C as _C
from ._C import *  # noqa: F403

__version__ = "0.1.0"

from . import _tensor as _tensor  # noqa: E402  (attaches the methods that are written in Python)
from ._tensor import set_default_tensor_type as set_default_tensor_type  # noqa: E402
from .autograd.grad_mode import *  # noqa: E402, F403
from .random import *  # noqa: E402, F403

TYPE_CHECKING = False  # known to type checkers; importing typing takes longer than all of this package
if TYPE_CHECKING:
    from typing import Any

e, pi, inf, nan, newaxis = _math.e, _math.pi, _math.inf, _math.nan, None

# Names of the package that live in a module which is not imported before one of them is used.
_LAZY = {
    **dict.fromkeys(("save", "load"), "serialization"),
    **dict.fromkeys(("set_printoptions", "get_printoptions"), "_tensor_str"),
    **dict.fromkeys(("are_deterministic_algorithms_enabled", "compile", "get_deterministic_debug_mode", "get_float32_matmul_precision",
                     "get_num_interop_threads", "is_deterministic_algorithms_warn_only_enabled", "is_storage", "is_warn_always_enabled",
                     "set_deterministic_debug_mode", "set_float32_matmul_precision", "set_flush_denormal", "set_num_interop_threads",
                     "set_warn_always", "typename", "use_deterministic_algorithms"), "_settings"),
    "TypedStorage": "storage",
}
_SUBMODULES = ("amp", "autograd", "backends", "cuda", "distributed", "functional", "hub", "jit", "linalg", "multiprocessing", "nn",
               "optim", "overrides", "profiler", "random", "return_types", "serialization", "special", "storage", "testing", "types",
               "utils", "version")


def _submodule(name: str) -> Any:
    """The submodule, or None where this build has none of that name."""
    import importlib
    full = f"{__name__}.{name}"
    try:
        return importlib.import_module(full)
    except ModuleNotFoundError as error:
        if error.name != full:
            raise
        return None


def __getattr__(name: str) -> Any:
    """Lazy names: submodules, the typed constructors, functions that are composed in Python. AttributeError names the nearest one."""
    value = None
    if name in _LAZY:
        value = getattr(_submodule(_LAZY[name]), name, None)
    elif name in _SUBMODULES:
        value = _submodule(name)
    elif name in _tensor.typed_constructors:
        value = _tensor.typed_constructors[name]
    elif not name.startswith("_"):
        functional = _submodule("functional")
        value = getattr(functional, name, None) if name in getattr(functional, "__all__", ()) else None
    if value is None:
        from ._missing import missing
        raise missing(__name__, name, __dir__())
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    names = {*globals(), *_LAZY, *(n for n in _SUBMODULES if n in ("nn", "optim", "utils", "autograd"))}
    return sorted(n for n in names if n != "annotations")
