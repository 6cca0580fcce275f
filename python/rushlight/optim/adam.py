"""Adam."""
from typing import Any

import rushlight
from rushlight._C import Tensor

from .optimizer import _check_fused, _check_lr, _KernelOptimizer, _scalar, _zeros

__all__ = ["Adam"]


class Adam(_KernelOptimizer):
    """Adam: m = lerp(m, g, 1 - beta1), v = beta2 * v + (1 - beta2) * g², p = p - lr / c1 * m / (sqrt(v) / sqrt(c2) + eps) with the bias
    corrections c = 1 - beta^t.

    weight_decay adds weight_decay * p to g, or with decoupled_weight_decay multiplies p by 1 - lr * weight_decay. amsgrad uses the largest
    v so far.
    """

    _kind = 1

    def __init__(self, params, lr: float | Tensor = 1e-3, betas: tuple = (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 0,
                 amsgrad: bool = False, *, foreach: bool | None = None, maximize: bool = False, capturable: bool = False,
                 differentiable: bool = False, fused: bool | None = None, decoupled_weight_decay: bool = False) -> None:
        _check_lr(lr, foreach, capturable)
        if not eps >= 0.0:
            raise ValueError(f"Invalid epsilon value: {eps}")
        for i in range(2):
            if not 0.0 <= betas[i] < 1.0:
                raise ValueError(f"Invalid beta parameter at index {i}: {betas[i]}")
        if not weight_decay >= 0.0:
            raise ValueError(f"Invalid weight_decay value: {weight_decay}")
        self._check_betas(betas, foreach, capturable)
        super().__init__(params, {"lr": lr, "betas": tuple(_scalar(b) for b in betas), "eps": eps, "weight_decay": weight_decay,
                                  "amsgrad": amsgrad, "maximize": maximize, "foreach": foreach, "capturable": capturable,
                                  "differentiable": differentiable, "fused": fused, "decoupled_weight_decay": decoupled_weight_decay})
        _check_fused(fused, foreach, differentiable)

    @staticmethod
    def _check_betas(betas, foreach, capturable) -> None:
        kinds = {isinstance(b, Tensor) for b in betas[:2]}
        if len(kinds) != 1 or not (True in kinds or all(isinstance(b, float) for b in betas[:2])):
            raise ValueError("betas must be either both floats or both Tensors")
        for i, b in enumerate(betas[:2]):
            if isinstance(b, Tensor):
                if not capturable and foreach:
                    raise ValueError(f"betas[{i}] as a Tensor is not supported for capturable=False and foreach=True")
                if b.numel() != 1:
                    raise ValueError(f"Tensor betas[{i}] must be 1-element")

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            for name, value in (("amsgrad", False), ("maximize", False), ("foreach", None), ("capturable", False), ("differentiable",
                                                                                                                    False),
                                ("decoupled_weight_decay", False), ("fused", None)):
                group.setdefault(name, value)
            for p in group["params"]:
                s = self.state.get(p, {})
                if len(s) != 0 and not isinstance(s["step"], Tensor):
                    s["step"] = rushlight.tensor(float(s["step"]), dtype=rushlight.float32)

    def _init_state(self, p, group, state) -> None:
        if len(state) == 0:
            state["step"] = rushlight.tensor(0.0, dtype=rushlight.float32)
            state["exp_avg"] = _zeros(p)
            state["exp_avg_sq"] = _zeros(p)
        if group["amsgrad"] and "max_exp_avg_sq" not in state:
            state["max_exp_avg_sq"] = _zeros(p)

    def _step_param(self, p, grad, group, state) -> None:
        beta1, beta2 = (_scalar(b) for b in group["betas"])
        lr, decay, differentiable = group["lr"], group["weight_decay"], group["differentiable"]
        lr = lr if differentiable else _scalar(lr)
        state["step"] += 1
        if decay != 0:
            if group["decoupled_weight_decay"]:
                p.mul_(1 - lr * decay)
            else:
                grad = grad.add(p, alpha=decay)
        exp_avg, exp_avg_sq = state["exp_avg"], state["exp_avg_sq"]
        exp_avg.lerp_(grad, 1 - beta1)
        exp_avg_sq.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
        step = state["step"] if differentiable else state["step"].item()
        correction1, correction2 = 1 - beta1**step, 1 - beta2**step
        second = exp_avg_sq
        if group["amsgrad"]:
            top = state["max_exp_avg_sq"].clone() if differentiable else state["max_exp_avg_sq"]
            state["max_exp_avg_sq"].copy_(rushlight.maximum(top, exp_avg_sq))
            second = state["max_exp_avg_sq"]
        if differentiable:
            step_size = lr / correction1
            denom = (second.sqrt() / (correction2.sqrt() * -step_size)).add_(group["eps"] / -step_size)
            p.addcdiv_(exp_avg, denom)
        else:
            denom = (second.sqrt() / correction2**0.5).add_(group["eps"])
            p.addcdiv_(exp_avg, denom, value=-(lr / correction1))
