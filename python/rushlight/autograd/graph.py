"""The graph itself: nodes, edges, hooks on what is saved for backward."""
from __future__ import annotations

import contextlib
from collections import namedtuple
from typing import TYPE_CHECKING, Any

from .. import _C
from .._C import Node

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rushlight import Tensor

__all__ = ["GradientEdge", "Node", "disable_saved_tensors_hooks", "get_gradient_edge", "increment_version", "register_multi_grad_hook",
           "save_on_cpu", "saved_tensors_hooks"]

GradientEdge = namedtuple("GradientEdge", ["node", "output_nr", "ownership_token"], defaults=[None])
GradientEdge.__doc__ = "A place in the graph where the gradient of one tensor flows: a node and the number of its output."


def get_gradient_edge(tensor: Tensor) -> Any:
    """The edge where the gradient of `tensor` flows. RuntimeError when it requires none."""
    return GradientEdge(*_C._gradient_edge(tensor))


def increment_version(tensor: Any) -> None:
    """Counts one in-place write on a tensor (or each of several): for memory written outside of rushlight."""
    _C._increment_version(tensor)


class saved_tensors_hooks:
    """For a with block: tensors saved for backward go through pack_hook, and come back through unpack_hook when backward needs them."""

    def __init__(self, pack_hook: Callable[[Tensor], Any], unpack_hook: Callable[[Any], Tensor]) -> None:
        self.pack_hook, self.unpack_hook = pack_hook, unpack_hook

    def __enter__(self) -> None:
        _C._push_saved_hooks(self.pack_hook, self.unpack_hook)

    def __exit__(self, *exc: Any) -> None:
        _C._pop_saved_hooks()


class save_on_cpu(saved_tensors_hooks):
    """For a with block: tensors saved for backward are moved to the CPU, and back to their device in backward."""

    def __init__(self, pin_memory: bool = False, device_type: str = "cuda") -> None:
        def pack(tensor: Tensor) -> Any:
            host = tensor.cpu() if tensor.device.type != "cpu" else tensor.clone()
            return tensor.device, host.pin_memory() if pin_memory and tensor.device.type != "cpu" else host

        def unpack(packed: Any) -> Tensor:
            device, tensor = packed
            return tensor.to(device, non_blocking=pin_memory)

        super().__init__(pack, unpack)


@contextlib.contextmanager
def disable_saved_tensors_hooks(error_message: str) -> Iterator[None]:
    """For a with block: entering saved_tensors_hooks is a RuntimeError with this message."""
    before = _C._disable_saved_hooks(error_message)
    try:
        yield
    finally:
        _C._disable_saved_hooks(before)


class _MultiHandle:
    def __init__(self, handles: list[Any]) -> None:
        self.handles = handles

    def remove(self) -> None:
        for h in self.handles:
            h.remove()

    def __enter__(self) -> _MultiHandle:
        return self

    def __exit__(self, *exc: Any) -> None:
        self.remove()


def register_multi_grad_hook(tensors: Sequence[Tensor], fn: Callable[..., Any], *, mode: str = "all") -> Any:
    """Calls fn once a backward: mode "all": with the gradients of all tensors (None where there is none) when the last is there; mode
    "any": with the first gradient that comes. Gradients are counted over the tensors that require grad."""
    if mode not in ("all", "any"):
        raise ValueError(f"Expects mode to be one of ('all', 'any') but got {mode}")
    wanted = [i for i, t in enumerate(tensors) if t.requires_grad]
    got: dict[int, Any] = {}

    def hook(i: int) -> Callable[[Tensor], None]:
        def on_grad(g: Tensor) -> None:
            if i in got:
                got.clear()  # a second backward began before the first was complete
            got[i] = g
            if mode == "any":
                if len(got) == 1:
                    fn(g)
            elif len(got) == len(wanted):
                grads = [got.get(k) for k in range(len(tensors))]
                got.clear()
                fn(grads)
            if mode == "any" and len(got) == len(wanted):
                got.clear()

        return on_grad

    return _MultiHandle([tensors[i].register_hook(hook(i)) for i in wanted])
