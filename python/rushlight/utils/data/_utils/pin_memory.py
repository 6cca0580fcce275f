"""Pinning: batches into page-locked memory, from which copies to a GPU do not wait."""
import collections.abc
from typing import Any

from rushlight._C import Tensor

from .collate import _rebuilt


def pin_memory(data: Any, device=None) -> Any:
    """Every tensor in data pinned; objects with a method pin_memory are asked themselves."""
    if isinstance(data, Tensor):
        return data.pin_memory()
    if hasattr(data, "pin_memory"):
        return data.pin_memory()
    if isinstance(data, (str, bytes)):
        return data
    if isinstance(data, collections.abc.Mapping):
        return _rebuilt(data, {k: pin_memory(v, device) for k, v in data.items()})
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*(pin_memory(d, device) for d in data))
    if isinstance(data, tuple):
        return [pin_memory(d, device) for d in data]
    if isinstance(data, collections.abc.Sequence):
        return _rebuilt(data, [pin_memory(d, device) for d in data])
    return data
