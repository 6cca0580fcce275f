"""Helpers beside the training loop: data loading, checkpointing, hooks, DLPack. Submodules are imported when first named."""
from __future__ import annotations

from typing import Any

_SUBMODULES = {"checkpoint", "data", "dlpack", "hooks"}


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        import importlib
        return importlib.import_module("." + name, __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
