"""gradcheck and gradgradcheck: gradients against central finite differences.

Every entry of the Jacobian is compared, in float64: slow and sure. The checks beyond it are PyTorch's: outputs that do not depend on an
input, gradients that repeat (nondeterminism), undefined output gradients.
"""
from __future__ import annotations

import rushlight

TYPE_CHECKING = False  # known to type checkers; importing typing takes longer than all of this package
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from rushlight import Tensor

__all__ = ["GradcheckError", "gradcheck", "gradgradcheck"]


class GradcheckError(RuntimeError):
    """What gradcheck and gradgradcheck raise."""


def _tuple(x: Any) -> tuple[Any, ...]:
    return tuple(x) if isinstance(x, (tuple, list)) else (x,)


def _differentiable(x: Any) -> bool:
    return isinstance(x, rushlight.Tensor) and x.requires_grad and x.is_floating_point()


def _outputs(func: Callable[..., Any], inputs: tuple[Any, ...]) -> tuple[Tensor, ...]:
    return tuple(o for o in _tuple(func(*inputs)) if _differentiable(o))


def _check_inputs(inputs: tuple[Any, ...]) -> None:
    checked = [x for x in inputs if isinstance(x, rushlight.Tensor) and x.requires_grad]
    if not checked:
        raise ValueError("gradcheck expects at least one input tensor to require gradient, but none of the them have requires_grad=True.")
    for i, x in enumerate(checked):
        if x.is_floating_point() and x.dtype != rushlight.float64:
            import warnings
            warnings.warn(f"Input #{i} requires gradient and is not a double precision floating point. This check will likely fail if "
                          f"all the inputs "
                          "are not of double precision floating point. ", stacklevel=3)
        if x.numel() and any(size > 1 and stride == 0 for size, stride in zip(x.shape, x.stride(), strict=True)):
            raise RuntimeError(f"The {i}th input has a dimension with stride 0. gradcheck only supports inputs that are non-overlapping "
                               f"to be able to "
                               "compute the numerical gradients correctly. You should call .contiguous on the input before passing it to "
                               "gradcheck.")


def _numerical(func: Callable[..., Any], inputs: tuple[Any, ...], k: int, eps: float) -> list[Tensor]:
    """d outputs / d inputs[k] by central differences: one (numel of output, numel of input) matrix for each output."""
    x = inputs[k]
    flat = x.data  # its own version: what func saved is not spoilt
    columns: list[list[Tensor]] = []
    indices = [()] if x.dim() == 0 else _indices(x.shape)
    for index in indices:
        sides = []
        saved = flat[index].item()
        for sign in (1, -1):
            with rushlight.no_grad():
                flat[index] = saved + sign * eps
            sides.append([o.detach().clone().reshape(-1) for o in _tuple(func(*inputs)) if _is_float(o)])
        with rushlight.no_grad():
            flat[index] = saved
        columns.append([(a - b) / (2 * eps) for a, b in zip(*sides, strict=True)])
    count = len(columns[0]) if columns else 0
    return [rushlight.stack([c[o] for c in columns], 1) for o in range(count)]


def _is_float(o: Any) -> bool:
    return isinstance(o, rushlight.Tensor) and o.is_floating_point()


def _indices(shape: Any) -> list[tuple[int, ...]]:
    out: list[tuple[int, ...]] = [()]
    for n in shape:
        out = [(*i, j) for i in out for j in range(n)]
    return out


def _analytical(output: Tensor, x: Tensor) -> Tensor:
    """d output / d x by backward: one row for each element of output."""
    rows = []
    for index in [()] if output.dim() == 0 else _indices(output.shape):
        seed = rushlight.zeros_like(output)
        seed[index] = 1
        g, = rushlight.autograd.grad(output, x, seed, retain_graph=True, allow_unused=True)
        rows.append(rushlight.zeros_like(x).reshape(-1) if g is None else g.detach().reshape(-1).clone())
    return rushlight.stack(rows, 0) if rows else rushlight.zeros(0, x.numel(), dtype=x.dtype)


def _compare(analytical: Tensor, numerical: Tensor, o: int, i: int, atol: float, rtol: float) -> None:
    if not rushlight.allclose(analytical, numerical, rtol, atol):
        raise GradcheckError(f"Jacobian mismatch for output {o} with respect to input "
                             f"{i},\nnumerical:{numerical}\nanalytical:{analytical}\n")


def _check(func: Callable[..., Any], inputs: tuple[Any, ...], eps: float, atol: float, rtol: float, nondet_tol: float) -> None:
    outputs = tuple(o for o in _tuple(func(*inputs)) if _is_float(o))
    for i, x in enumerate(inputs):
        if not _differentiable(x):
            continue
        numerical = _numerical(func, inputs, i, eps)
        for o, output in enumerate(outputs):
            if x.numel() == 0 or output.numel() == 0:
                continue
            if not output.requires_grad:
                if numerical[o].abs().max().item() > atol:
                    raise GradcheckError(f"Numerical gradient for function expected to be zero for output {o}, input {i}")
                continue
            first = _analytical(output, x)
            again = _analytical(output, x)
            if (first - again).abs().max().item() > nondet_tol:
                raise GradcheckError(f"Backward is not reentrant, i.e., running backward with same input and grad_output multiple times "
                                     f"gives different "
                                     f"values, although analytical gradient matches numerical gradient. The tolerance for nondeterminism "
                                     f"was {nondet_tol}.")
            _compare(first, numerical[o], o, i, atol, rtol)


def _check_undefined(func: Callable[..., Any], inputs: tuple[Any, ...]) -> None:
    outputs = _outputs(func, inputs)
    wanted = [x for x in inputs if _differentiable(x)]
    if len(outputs) < 2:
        return
    for skipped in range(len(outputs)):
        kept = [o for k, o in enumerate(outputs) if k != skipped]
        try:
            rushlight.autograd.grad(kept, wanted, [rushlight.zeros_like(o) for o in kept], retain_graph=True, allow_unused=True)
        except RuntimeError as e:
            raise GradcheckError("Expected backward function to handle undefined output grads") from e


def gradcheck(func: Callable[..., Any], inputs: Any, *, eps: float = 1e-6, atol: float = 1e-5, rtol: float = 1e-3,
              raise_exception: bool = True, nondet_tol: float = 0.0, check_undefined_grad: bool = True, check_grad_dtypes: bool = False,
              check_batched_grad: bool = False, check_batched_forward_grad: bool = False, check_forward_ad: bool = False,
              check_backward_ad: bool = True, fast_mode: bool = False, masked: bool | None = None) -> bool:
    """True when func's gradients at `inputs` (float64 tensors that require grad among them) agree with finite differences of width eps;
    else GradcheckError, or False with raise_exception=False. fast_mode is accepted; the full Jacobian is compared all the same."""
    if check_forward_ad or check_batched_grad or check_batched_forward_grad:
        raise NotImplementedError("gradcheck: forward-mode and batched gradients do not exist here")
    inputs = _tuple(inputs)
    try:
        _check_inputs(inputs)
        if not any(isinstance(o, rushlight.Tensor) for o in _tuple(func(*inputs))):
            raise GradcheckError("gradcheck: the function returned no tensor")
        _check(func, inputs, eps, atol, rtol, nondet_tol)
        if check_undefined_grad:
            _check_undefined(func, inputs)
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def gradgradcheck(func: Callable[..., Any], inputs: Any, grad_outputs: Any = None, *, eps: float = 1e-6, atol: float = 1e-5,
                  rtol: float = 1e-3, gen_non_contig_grad_outputs: bool = False, raise_exception: bool = True, nondet_tol: float = 0.0,
                  check_undefined_grad: bool = True, check_grad_dtypes: bool = False, check_batched_grad: bool = False,
                  check_fwd_over_rev: bool = False, check_rev_over_rev: bool = True, fast_mode: bool = False, masked: bool = False) -> bool:
    """The same for the gradients of the gradients; grad_outputs default to random tensors that require grad."""
    inputs = _tuple(inputs)
    outputs = _outputs(func, inputs)
    if grad_outputs is None:
        cotangents = tuple(rushlight.randn(o.shape, dtype=o.dtype, device=o.device).requires_grad_() for o in outputs)
        if gen_non_contig_grad_outputs:
            cotangents = tuple(rushlight.stack([g.detach(), g.detach()], -1)[..., 0].requires_grad_() for g in cotangents)
    else:
        cotangents = _tuple(grad_outputs)
    count = len(cotangents)

    def gradient(*args: Any) -> Any:
        values, seeds = args[:-count], args[-count:]
        wanted = tuple(x for x in values if _differentiable(x))
        grads = rushlight.autograd.grad(_outputs(func, values), wanted, seeds, create_graph=True, allow_unused=True)
        return tuple(g for g in grads if g is not None)

    return gradcheck(gradient, inputs + cotangents, eps=eps, atol=atol, rtol=rtol, raise_exception=raise_exception, nondet_tol=nondet_tol,
                     check_undefined_grad=check_undefined_grad, check_grad_dtypes=check_grad_dtypes)
