"""Tensors to and from other libraries without a copy."""
from .._C import from_dlpack, to_dlpack

__all__ = ["from_dlpack", "to_dlpack"]
