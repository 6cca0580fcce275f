"""SGD."""
from typing import Any

from rushlight._C import Tensor

from .optimizer import _check_fused, _check_lr, _KernelOptimizer, _scalar

__all__ = ["SGD"]


class SGD(_KernelOptimizer):
    """Stochastic gradient descent: b = momentum * b + (1 - dampening) * g, p = p - lr * b (nesterov: lr * (g + momentum * b)).

    The first b is g itself. weight_decay adds weight_decay * p to g; maximize takes -g.
    """

    _kind = 0

    def __init__(self, params, lr: float | Tensor = 1e-3, momentum: float = 0, dampening: float = 0, weight_decay: float | Tensor = 0,
                 nesterov: bool = False, *, maximize: bool = False, foreach: bool | None = None, differentiable: bool = False,
                 fused: bool | None = None) -> None:
        _check_lr(lr)
        if momentum < 0.0:
            raise ValueError(f"Invalid momentum value: {momentum}")
        if weight_decay < 0.0:
            raise ValueError(f"Invalid weight_decay value: {weight_decay}")
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")
        super().__init__(params, {"lr": lr, "momentum": momentum, "dampening": dampening, "weight_decay": weight_decay,
                                  "nesterov": nesterov,
                                  "maximize": maximize, "foreach": foreach, "differentiable": differentiable, "fused": fused})
        _check_fused(fused, foreach, differentiable)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            for name, value in (("nesterov", False), ("maximize", False), ("foreach", None), ("differentiable", False), ("fused", False)):
                group.setdefault(name, value)

    def _has_state(self, group) -> bool:
        return group["momentum"] != 0

    def _init_state(self, p, group, state) -> None:
        """The buffer is made by the first step."""

    def _step_param(self, p, grad, group, state) -> None:
        momentum, lr = group["momentum"], _scalar(group["lr"])
        if group["weight_decay"] != 0:
            grad = grad.add(p, alpha=_scalar(group["weight_decay"]))
        if momentum != 0:
            buf = state.get("momentum_buffer")
            if buf is None:
                buf = state["momentum_buffer"] = grad.clone() if group["differentiable"] else grad.detach().clone()
            else:
                buf.mul_(momentum).add_(grad, alpha=1 - group["dampening"])
            grad = grad.add(buf, alpha=momentum) if group["nesterov"] else buf
        p.add_(grad, alpha=-lr)
