"""Automatic differentiation: backward, grad, the modes and custom Functions."""
from __future__ import annotations

from .. import _C
from .anomaly_mode import detect_anomaly, set_detect_anomaly
from .function import Function
from .grad_mode import enable_grad, inference_mode, no_grad, set_grad_enabled, set_multithreading_enabled
from .gradcheck import gradcheck, gradgradcheck
from .variable import Variable

TYPE_CHECKING = False  # known to type checkers; importing typing takes longer than all of this package
if TYPE_CHECKING:
    from typing import Any

backward = _C._autograd_backward
grad = _C._autograd_grad
is_grad_enabled = _C.is_grad_enabled

__all__ = ["Function", "Variable", "backward", "detect_anomaly", "enable_grad", "grad", "gradcheck", "gradgradcheck", "inference_mode",
           "no_grad", "set_detect_anomaly", "set_grad_enabled", "set_multithreading_enabled"]

_LAZY = {"functional", "graph", "profiler"}


def __getattr__(name: str) -> Any:
    """Submodules that few scripts use are imported when first named."""
    if name in _LAZY:
        import importlib
        return importlib.import_module("." + name, __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
