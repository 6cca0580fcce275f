"""Covariance, integrals and numerical derivatives, composed of operators."""
from __future__ import annotations

from typing import Any

import rushlight

from ._C import Tensor


def cov(input: Tensor, *, correction: int = 1, fweights: Tensor | None = None, aweights: Tensor | None = None) -> Tensor:
    """The covariance of variables in rows, observations in columns; fweights count, aweights weigh observations."""
    if input.dim() > 2:
        raise RuntimeError(f"cov(): expected input to have two or fewer dimensions but got an input with {input.dim()} dimensions")
    x = input.reshape(1, -1) if input.dim() < 2 else input
    if not x.is_floating_point():
        x = x.to(rushlight.get_default_dtype())
    w = None
    for name, given in (("fweights", fweights), ("aweights", aweights)):
        if given is None:
            continue
        if given.dim() > 1:
            raise RuntimeError(f"cov(): expected {name} to have one or fewer dimensions but got {name} with {given.dim()} dimensions")
        if given.is_floating_point() != (name == "aweights"):
            raise RuntimeError(f"cov(): expected {name} to have {'integral' if name == 'fweights' else 'floating point'} dtype but got {name} "
                               f"with {given.dtype} dtype")
        if given.numel() != x.shape[1]:
            raise RuntimeError(f"cov(): expected {name} to have the same numel as there are observations in the input but got "
                               f"{given.numel()} != "
                               f"{x.shape[1]}")
        if bool((given < 0).any()):
            raise RuntimeError(f"cov(): {name} cannot be negative")
        w = given.to(x.dtype) if w is None else w * given.to(x.dtype)
    total = x.shape[1] if w is None else w.sum()
    mean = x.mean(1, keepdim=True) if w is None else (x * w).sum(1, keepdim=True) / total
    if w is None or aweights is None or correction == 0:
        factor = total - correction
    else:
        a = aweights.to(x.dtype)
        factor = total - correction * (w * a).sum() / total
    factor = max(factor, 0) if isinstance(factor, (int, float)) else factor.clamp_min(0)
    centred = x - mean
    result = (centred if w is None else centred * w) @ centred.T / factor
    return result.squeeze()


def corrcoef(input: Tensor) -> Tensor:
    """Correlations of variables in rows, observations in columns; limited to [-1, 1]."""
    if input.dim() > 2:
        raise RuntimeError(f"corrcoef(): expected input to have two or fewer dimensions but got an input with {input.dim()} dimensions")
    c = cov(input)
    if c.dim() == 0:
        return c / c
    std = c.diagonal().sqrt()
    return (c / std.unsqueeze(1) / std).clamp(-1, 1)


def trapezoid(y: Tensor, x: Tensor | None = None, *, dx: Any = 1, dim: int = -1) -> Tensor:
    """The integral along dim by the trapezoidal rule, at points x or in steps of dx."""
    return _trapezoids(y, x, dx, dim).sum(dim)


def cumulative_trapezoid(y: Tensor, x: Tensor | None = None, *, dx: Any = 1, dim: int = -1) -> Tensor:
    """The running integral along dim by the trapezoidal rule."""
    return _trapezoids(y, x, dx, dim).cumsum(dim)


def trapz(y: Tensor, x: Tensor | None = None, *, dx: Any = 1, dim: int = -1) -> Tensor:
    """trapezoid by its old name."""
    return trapezoid(y, x, dx=dx, dim=dim)


def _trapezoids(y: Tensor, x: Tensor | None, dx: Any, dim: int) -> Tensor:
    n = y.shape[dim]
    if n == 0:
        return y.narrow(dim, 0, 0)
    step: Any = dx
    if x is not None:
        step = x.diff(dim=dim if x.dim() > 1 else -1)
        if x.dim() == 1 and y.dim() > 1:
            step = step.reshape([-1 if d == dim % y.dim() else 1 for d in range(y.dim())])
    return (y.narrow(dim, 1, n - 1) + y.narrow(dim, 0, n - 1)) * step / 2


def _gradient_along(x: Tensor, dim: int, spacing: Any, edge_order: int) -> Tensor:
    n = x.shape[dim]
    if n < edge_order + 1:
        raise RuntimeError("torch.gradient expected each dimension size to be at least edge_order+1")
    at = spacing if isinstance(spacing, Tensor) else rushlight.arange(n, dtype=rushlight.float64).mul(spacing)
    step = at.diff().to(x.dtype if x.is_floating_point() else rushlight.get_default_dtype())
    step = step.reshape([-1 if d == dim else 1 for d in range(x.dim())])

    def take(t: Tensor, start: int, length: int) -> Tensor:
        return t.narrow(dim, start, length)

    slope = x.diff(dim=dim) / step
    before, after = take(step, 0, n - 2), take(step, 1, n - 2)
    inside = (take(slope, 0, n - 2) * after + take(slope, 1, n - 2) * before) / (before + after)
    first, last = take(slope, 0, 1), take(slope, n - 2, 1)
    if edge_order == 2:
        first = first + (first - take(slope, 1, 1)) * take(step, 0, 1) / (take(step, 0, 1) + take(step, 1, 1))
        last = last + (last - take(slope, n - 3, 1)) * take(step, n - 2, 1) / (take(step, n - 2, 1) + take(step, n - 3, 1))
    return rushlight.cat([first, inside, last], dim)


def gradient(input: Tensor, *, spacing: Any = None, dim: Any = None, edge_order: int = 1) -> list[Tensor]:
    """Numerical derivatives along dimensions: second order inside, edge_order at the ends. spacing: steps, or coordinates a dimension."""
    if edge_order not in (1, 2):
        raise RuntimeError("torch.gradient only supports edge_order=1 and edge_order=2.")
    dims = list(range(input.dim())) if dim is None else [dim] if isinstance(dim, int) else list(dim)
    for d in dims:
        if not -input.dim() <= d < input.dim():
            raise IndexError(f"Dimension out of range (expected to be in range of [{-input.dim()}, {input.dim() - 1}], but got {d})")
        if [e % input.dim() for e in dims].count(d % input.dim()) > 1:
            raise RuntimeError(f"dim {d % input.dim()} appears multiple times in the list of dims")
    spacing = 1 if spacing is None else spacing
    steps = list(spacing) if isinstance(spacing, (list, tuple)) else [spacing] * len(dims)
    if len(steps) != len(dims):
        raise RuntimeError("torch.gradient expected spacing to be unspecified, a scalar, or it's spacing and dim arguments to have the "
                           "same "
                           f"length, but got a spacing argument of length {len(steps)} and a dim argument of length {len(dims)}.")
    return [_gradient_along(input, d % input.dim(), s, edge_order) for d, s in zip(dims, steps, strict=True)]
