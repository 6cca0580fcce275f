"""Clipping of gradients. Norms are one C call over all gradients (`_C._multi_norm`): they are summed in double, so finite gradients have a
finite norm."""
import math
import warnings

import rushlight
from rushlight import _C
from rushlight._C import Tensor

__all__ = ["clip_grad_norm", "clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_", "get_total_norm"]


def _gradients(parameters) -> list[Tensor]:
    if isinstance(parameters, Tensor):
        parameters = [parameters]
    return [g for p in parameters if (g := p.grad) is not None]


def _check_finite(norm: float, norm_type: float, error: bool) -> None:
    if error and not math.isfinite(norm):
        raise RuntimeError(f"The total norm of order {norm_type} for gradients from `parameters` is non-finite, so it cannot be clipped. "
                           "To disable "
                           "this error and scale the gradients by the non-finite norm anyway, set `error_if_nonfinite=False`")


def _total(tensors: list[Tensor], p: float) -> float:
    """The norm of all elements; tensors that the kernel does not take together (mixed dtypes, layouts with gaps) one by one."""
    norm = _C._multi_norm(tensors, p)
    if norm is None:
        norm = float(rushlight.stack([t.detach().norm(p).double() for t in tensors]).norm(p))
    return norm


def _norm_tensor(norm: float, tensors: list[Tensor]) -> Tensor:
    """The norm as PyTorch returns it: 0-dim, of the first gradient's dtype and device."""
    return rushlight.tensor(norm, dtype=tensors[0].dtype, device=tensors[0].device)


def get_total_norm(tensors, norm_type: float = 2.0, error_if_nonfinite: bool = False, foreach: bool | None = None) -> Tensor:
    """The norm of all elements of the tensors together, 0-dim."""
    tensors = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    norm_type = float(norm_type)
    if not tensors:
        return rushlight.tensor(0.0)
    if any(t.requires_grad for t in tensors) and rushlight.is_grad_enabled():
        total = rushlight.stack([t.norm(norm_type) for t in tensors]).norm(norm_type)
        _check_finite(float(total), norm_type, error_if_nonfinite)
        return total
    norm = _total(tensors, norm_type)
    _check_finite(norm, norm_type, error_if_nonfinite)
    return _norm_tensor(norm, tensors)


def clip_grads_with_norm_(parameters, max_norm: float, total_norm: Tensor, foreach: bool | None = None) -> None:
    """Scales the gradients by max_norm / total_norm where that is below 1."""
    grads = _gradients(parameters)
    if not grads:
        return
    _check_max_norm(max_norm)
    coef = (float(max_norm) / (total_norm + 1e-6)).clamp(max=1.0)
    with rushlight.no_grad():
        for g in grads:
            g.mul_(coef.to(g.device))


def _check_max_norm(max_norm: float) -> None:
    if max_norm < 0:
        raise ValueError(f"max_norm must not be negative, but got {max_norm}")


def clip_grad_norm_(parameters, max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False,
                    foreach: bool | None = None) -> Tensor:
    """Scales the gradients of the parameters so that their norm is at most max_norm; returns the norm before.

    RuntimeError with error_if_nonfinite when the norm is inf or nan; ValueError for a negative max_norm.
    """
    if not isinstance(parameters, Tensor):
        is_generator = hasattr(parameters, "__next__")
        parameters = list(parameters)
        if is_generator and not parameters:
            warnings.warn("`parameters` is an empty generator, no gradient clipping will occur.", stacklevel=3)
    grads = _gradients(parameters)
    max_norm, norm_type = float(max_norm), float(norm_type)
    _check_max_norm(max_norm)
    if not grads:
        return rushlight.tensor(0.0)
    if error_if_nonfinite:
        _check_finite(_total(grads, norm_type), norm_type, True)
    norm = _C._multi_norm(grads, norm_type, max_norm)
    if norm is None:
        norm = _total(grads, norm_type)
        clip_grads_with_norm_(parameters, max_norm, _norm_tensor(norm, grads))
    return _norm_tensor(norm, grads)


def clip_grad_norm(parameters, max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False,
                   foreach: bool | None = None) -> Tensor:
    """Deprecated: use clip_grad_norm_."""
    warnings.warn("`torch.nn.utils.clip_grad_norm` is now deprecated in favor of `torch.nn.utils.clip_grad_norm_`.", FutureWarning,
                  stacklevel=2)
    return clip_grad_norm_(parameters, max_norm, norm_type, error_if_nonfinite, foreach)


def clip_grad_value_(parameters, clip_value: float, foreach: bool | None = None) -> None:
    """Limits every element of the gradients to [-clip_value, clip_value]."""
    clip_value = float(clip_value)
    with rushlight.no_grad():
        for g in _gradients(parameters):
            g.clamp_(min=-clip_value, max=clip_value)
