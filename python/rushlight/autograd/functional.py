"""Jacobians, Hessians and products with them, by repeated backward. Products with a Jacobian from the right use backward twice."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import rushlight

if TYPE_CHECKING:
    from collections.abc import Callable

    from rushlight import Tensor

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]


def _as_tuple(x: Any, what: str, where: str) -> tuple[bool, tuple[Tensor, ...]]:
    """Whether x is a tuple, and x as one; everything in it must be a tensor."""
    is_tuple = isinstance(x, (tuple, list))
    values = tuple(x) if is_tuple else (x,)
    for i, v in enumerate(values):
        if not isinstance(v, rushlight.Tensor):
            if is_tuple:
                raise TypeError(f"The {what} given to {where} must be either a Tensor or a tuple of Tensors but the value at index {i} "
                                f"has type {type(v)}.")
            raise TypeError(f"The {what} given to {where} must be either a Tensor or a tuple of Tensors but the given {what} has type "
                            f"{type(v)}.")
    return is_tuple, values


def _prepare(values: tuple[Tensor, ...], create_graph: bool) -> tuple[Tensor, ...]:
    """Fresh leaves, or views that stay in the graph."""
    if create_graph:
        return tuple(v.view_as(v) if v.requires_grad else v.detach().requires_grad_() for v in values)
    return tuple(v.detach().clone().requires_grad_() for v in values)


def _finish(values: tuple[Tensor, ...], create_graph: bool) -> tuple[Tensor, ...]:
    return values if create_graph else tuple(v.detach() for v in values)


def _fill(grads: Any, like: tuple[Tensor, ...], strict: bool, where: str) -> tuple[Tensor, ...]:
    out = []
    for i, (g, x) in enumerate(zip(grads, like, strict=True)):
        if g is None:
            if strict:
                raise RuntimeError(f"The output of the user-provided function is independent of input {i}. This is not allowed in strict "
                                   f"mode.")
            g = rushlight.zeros_like(x)
        out.append(g)
    return tuple(out)


def _grad(outputs: tuple[Tensor, ...], inputs: tuple[Tensor, ...], seeds: Any = None, create_graph: bool = False) -> tuple[Any, ...]:
    kept = [(o, None if seeds is None else seeds[k]) for k, o in enumerate(outputs) if o.requires_grad]
    if not kept:
        return (None,) * len(inputs)
    given = None if seeds is None else [s for _, s in kept]
    return rushlight.autograd.grad([o for o, _ in kept], inputs, given, retain_graph=True, create_graph=create_graph, allow_unused=True)


def _unwrap(is_tuple: bool, values: tuple[Any, ...]) -> Any:
    return values if is_tuple else values[0]


def _check_v(v: Any, like: tuple[Tensor, ...], is_tuple: bool, name: str, where: str) -> tuple[Tensor, ...]:
    if v is None:
        if len(like) != 1 or like[0].numel() != 1:
            raise RuntimeError(f"The vector v can only be None if the {name} is a single Tensor with a single element.")
        return (rushlight.ones_like(like[0]),)
    _, vs = _as_tuple(v, "v", where)
    if len(vs) != len(like):
        raise RuntimeError(f"v is a tuple of invalid length: should be {len(like)} but got {len(vs)}.")
    for i, (a, x) in enumerate(zip(vs, like, strict=True)):
        if a.shape != x.shape:
            raise RuntimeError(f"Entry {i} in v has invalid size: should be {x.shape} but got {a.shape}.")
    return vs


def _run(func: Callable[..., Any], inputs: Any, create_graph: bool,
         where: str) -> tuple[bool, tuple[Tensor, ...], bool, tuple[Tensor, ...]]:
    in_tuple, values = _as_tuple(inputs, "inputs", where)
    values = _prepare(values, create_graph)
    with rushlight.enable_grad():
        result = func(*values)
    out_tuple, outputs = _as_tuple(result, "outputs of the user-provided function", where)
    return in_tuple, values, out_tuple, outputs


def vjp(func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False) -> Any:
    """(outputs, v^T J): v has the outputs' shapes, the result the inputs'."""
    with rushlight.enable_grad():
        in_tuple, values, out_tuple, outputs = _run(func, inputs, create_graph, "vjp")
        vs = _check_v(v, outputs, out_tuple, "user-provided function returns", "vjp")
        product = _fill(_grad(outputs, values, vs, create_graph), values, strict, "vjp")
    return _unwrap(out_tuple, _finish(outputs, create_graph)), _unwrap(in_tuple, _finish(product, create_graph))


def _jvp(outputs: tuple[Tensor, ...], values: tuple[Tensor, ...], vs: tuple[Tensor, ...], strict: bool,
         create_graph: bool) -> tuple[Tensor, ...]:
    """J v as the derivative of u -> u^T J, which is linear in u."""
    seeds = tuple(rushlight.zeros_like(o).requires_grad_() for o in outputs)
    transposed = _fill(_grad(outputs, values, seeds, True), values, strict, "jvp")
    return _fill(_grad(transposed, seeds, vs, create_graph), outputs, strict, "jvp")


def jvp(func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False) -> Any:
    """(outputs, J v): v has the inputs' shapes, the result the outputs'."""
    with rushlight.enable_grad():
        in_tuple, values, out_tuple, outputs = _run(func, inputs, create_graph, "jvp")
        vs = _check_v(v, values, in_tuple, "input", "jvp")
        product = _jvp(outputs, values, vs, strict, create_graph)
    return _unwrap(out_tuple, _finish(outputs, create_graph)), _unwrap(out_tuple, _finish(product, create_graph))


def jacobian(func: Callable[..., Any], inputs: Any, create_graph: bool = False, strict: bool = False, vectorize: bool = False,
             strategy: str = "reverse-mode") -> Any:
    """d outputs / d inputs, of shape outputs.shape + inputs.shape; tuples of these where outputs or inputs are tuples."""
    if strategy != "reverse-mode":
        raise NotImplementedError(f"jacobian: strategy {strategy!r} does not exist here, only 'reverse-mode'")
    with rushlight.enable_grad():
        in_tuple, values, out_tuple, outputs = _run(func, inputs, create_graph, "jacobian")
        rows = [_rows(o, values, create_graph, strict) for o in outputs]
    result = tuple(_unwrap(in_tuple, _finish(r, create_graph)) for r in rows)
    return _unwrap(out_tuple, result)


def _rows(output: Tensor, values: tuple[Tensor, ...], create_graph: bool, strict: bool) -> tuple[Tensor, ...]:
    flat = output.reshape(-1)
    if output.numel() == 0 or not output.requires_grad:
        if strict and output.numel():
            raise RuntimeError("Output of the user-provided function is independent of the input. This is not allowed in strict mode.")
        return tuple(x.new_zeros(tuple(output.shape) + tuple(x.shape)) for x in values)
    grads = [_fill(_grad((flat[k],), values, None, create_graph), values, strict, "jacobian") for k in range(output.numel())]
    return tuple(rushlight.stack([g[i] for g in grads], 0).reshape(tuple(output.shape) + tuple(x.shape)) for i, x in enumerate(values))


def _scalar(outputs: tuple[Tensor, ...], out_tuple: bool, where: str) -> None:
    if out_tuple or outputs[0].numel() != 1:
        raise RuntimeError(f"The function given to {where} should return a single Tensor with a single "
                           f"element" + ("." if out_tuple else ""))


def hessian(func: Callable[..., Any], inputs: Any, create_graph: bool = False, strict: bool = False, vectorize: bool = False,
            outer_jacobian_strategy: str = "reverse-mode") -> Any:
    """The second derivatives of a function with one number as result, of shape inputs.shape + inputs.shape."""
    in_tuple, _ = _as_tuple(inputs, "inputs", "hessian")

    def gradient(*values: Tensor) -> Any:
        result = func(*values)
        out_tuple, outputs = _as_tuple(result, "outputs of the user-provided function", "hessian")
        _scalar(outputs, out_tuple, "hessian")
        return _fill(_grad((outputs[0].reshape(()),), values, None, True), values, strict, "hessian")

    blocks = jacobian(gradient, inputs, create_graph, strict)
    return blocks if in_tuple else blocks[0]


def vhp(func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False) -> Any:
    """(output, v^T H) of a function with one number as result."""
    with rushlight.enable_grad():
        in_tuple, values, out_tuple, outputs = _run(func, inputs, create_graph, "vhp")
        _scalar(outputs, out_tuple, "vhp")
        vs = _check_v(v, values, in_tuple, "input", "vhp")
        first = _fill(_grad(outputs, values, None, True), values, strict, "vhp")
        product = _fill(_grad(first, values, vs, create_graph), values, strict, "vhp")
    return _finish(outputs, create_graph)[0], _unwrap(in_tuple, _finish(product, create_graph))


def hvp(func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False) -> Any:
    """(output, H v) of a function with one number as result. H is symmetric wherever it is continuous, so this is vhp: one order of
    differentiation less than by J v of the gradient."""
    return vhp(func, inputs, v, create_graph, strict)
