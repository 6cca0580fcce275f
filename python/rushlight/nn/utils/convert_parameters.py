"""Parameters as one vector, and back."""
import rushlight
from rushlight._C import Tensor

__all__ = ["parameters_to_vector", "vector_to_parameters"]


def _same_device(param: Tensor, device):
    """The device of the parameters so far; TypeError when this one is elsewhere."""
    if device is not None and param.device != device:
        raise TypeError("Found two parameters on different devices, this is currently not supported.")
    return param.device


def parameters_to_vector(parameters) -> Tensor:
    """All parameters, flattened and joined, with history."""
    device, flat = None, []
    for p in parameters:
        device = _same_device(p, device)
        flat.append(p.view(-1))
    return rushlight.cat(flat)


def vector_to_parameters(vec: Tensor, parameters) -> None:
    """Makes the pieces of vec the data of the parameters."""
    if not isinstance(vec, Tensor):
        raise TypeError(f"expected torch.Tensor, but got: {type(vec).__name__}")
    device, at = None, 0
    for p in parameters:
        device = _same_device(p, device)
        n = p.numel()
        p.data = vec[at:at + n].view_as(p).data
        at += n
