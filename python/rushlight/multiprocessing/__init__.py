"""multiprocessing, with tensors that are sent between processes by sharing their memory. Everything of the standard module is here."""
from __future__ import annotations

import multiprocessing
from multiprocessing import *  # noqa: F403
from typing import Any

from .reductions import init_reductions

__all__ = ["get_all_sharing_strategies", "get_sharing_strategy", "set_sharing_strategy"]
__all__ += multiprocessing.__all__  # type: ignore[attr-defined]
__all__ += ["ProcessExitedException", "ProcessRaisedException", "spawn", "start_processes"]  # noqa: F405

init_reductions()


def get_all_sharing_strategies() -> set[str]:
    """The ways to share: by file descriptors of unnamed memory files."""
    return {"file_descriptor"}


def get_sharing_strategy() -> str:
    """The way that tensors are shared."""
    return "file_descriptor"


def set_sharing_strategy(new_strategy: str) -> None:
    """Accepts "file_descriptor" and, for scripts that ask for it, "file_system": memory here never stands in /dev/shm."""
    if new_strategy not in ("file_descriptor", "file_system"):
        raise AssertionError(f"unknown sharing strategy {new_strategy!r}")


def __getattr__(name: str) -> Any:
    if name in ("ProcessExitedException", "ProcessRaisedException", "ProcessException", "spawn", "start_processes", "ProcessContext"):
        import importlib
        module = importlib.import_module(".spawn", __name__)
        for n in ("ProcessExitedException", "ProcessRaisedException", "ProcessException", "start_processes", "ProcessContext", "spawn"):
            globals()[n] = getattr(module, n)
        return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
