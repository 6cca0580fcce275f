"""How tensors travel through multiprocessing's queues and pipes: the storage goes as a file descriptor, so both sides see one memory."""
from __future__ import annotations

from multiprocessing.reduction import DupFd, ForkingPickler
from typing import Any

from .. import _C
from .._tensor import _pieces, _rebuild_tensor
from ..storage import UntypedStorage

__all__ = ["init_reductions", "rebuild_storage_fd", "reduce_storage", "reduce_tensor"]


def rebuild_storage_fd(fd: Any, nbytes: int) -> Any:
    """Maps what the other process shared."""
    return UntypedStorage._from_fd(fd.detach(), nbytes)


def reduce_storage(storage: Any) -> tuple[Any, ...]:
    """A storage as a descriptor; its bytes move into shared memory first."""
    if storage.nbytes() == 0:
        return UntypedStorage, (0,)
    fd, nbytes = storage._share_fd()
    return rebuild_storage_fd, (DupFd(fd), nbytes)


def reduce_tensor(tensor: Any) -> tuple[Any, ...]:
    """A tensor as its storage and geometry."""
    if tensor.requires_grad and not tensor.is_leaf:
        raise RuntimeError("Cowardly refusing to serialize non-leaf tensor which requires_grad, since autograd does not support crossing "
                           "process "
                           "boundaries.  If you just want to transfer the data, call detach() on the tensor before serializing (e.g., "
                           "putting it on "
                           "the queue).")
    return _rebuild_tensor, _pieces(tensor, tensor.untyped_storage())


def rebuild_parameter(cls: type, data: Any, requires_grad: bool) -> Any:
    """A Parameter over shared data."""
    return cls(data, requires_grad)


def reduce_parameter(parameter: Any) -> tuple[Any, ...]:
    """A Parameter as its data."""
    return rebuild_parameter, (type(parameter), parameter.detach(), parameter.requires_grad)


def init_reductions() -> None:
    """Registers the above with multiprocessing's pickler."""
    ForkingPickler.register(_C.Tensor, reduce_tensor)
    ForkingPickler.register(UntypedStorage, reduce_storage)
    from ..nn import Parameter
    ForkingPickler.register(Parameter, reduce_parameter)
