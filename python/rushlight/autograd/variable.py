"""Variable: what tensors with gradients were called before PyTorch 0.4."""
from __future__ import annotations

from .. import _C

TYPE_CHECKING = False  # known to type checkers; importing typing takes longer than all of this package
if TYPE_CHECKING:
    from typing import Any


class _Meta(type):
    def __instancecheck__(cls, other: Any) -> bool:
        return isinstance(other, _C.Tensor)


class Variable(metaclass=_Meta):
    """Variable(data) is data itself, or an alias that requires grad; every Tensor is an instance."""

    def __new__(cls, data: Any = None, requires_grad: bool = False, volatile: bool = False) -> Any:
        if data is None:
            data = _C.tensor([])
        out = data.detach()
        return out.requires_grad_() if requires_grad else out
