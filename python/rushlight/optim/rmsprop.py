"""RMSprop."""
from typing import Any

import rushlight
from rushlight._C import Tensor

from .optimizer import _check_lr, _KernelOptimizer, _scalar, _zeros

__all__ = ["RMSprop"]


class RMSprop(_KernelOptimizer):
    """v = alpha * v + (1 - alpha) * g², p = p - lr * g / (sqrt(v) + eps); centered subtracts the square of the mean gradient from v."""

    _kind = 3

    def __init__(self, params, lr: float | Tensor = 1e-2, alpha: float = 0.99, eps: float = 1e-8, weight_decay: float = 0,
                 momentum: float = 0,
                 centered: bool = False, capturable: bool = False, foreach: bool | None = None, maximize: bool = False,
                 differentiable: bool = False) -> None:
        _check_lr(lr)
        for value, text in ((eps, "epsilon"), (momentum, "momentum"), (weight_decay, "weight_decay"), (alpha, "alpha")):
            if not value >= 0.0:
                raise ValueError(f"Invalid {text} value: {value}")
        super().__init__(params, {"lr": lr, "momentum": momentum, "alpha": alpha, "eps": eps, "centered": centered,
                                  "weight_decay": weight_decay, "capturable": capturable, "foreach": foreach, "maximize": maximize,
                                  "differentiable": differentiable})

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            for name, value in (("momentum", 0), ("centered", False), ("foreach", None), ("maximize", False), ("differentiable", False),
                                ("capturable", False)):
                group.setdefault(name, value)
            for p in group["params"]:
                s = self.state.get(p, {})
                if len(s) != 0 and not isinstance(s["step"], Tensor):
                    s["step"] = rushlight.tensor(float(s["step"]), dtype=rushlight.float32)

    def _init_state(self, p, group, state) -> None:
        if len(state) == 0:
            state["step"] = rushlight.tensor(0.0, dtype=rushlight.float32)
            state["square_avg"] = _zeros(p)
        if group["momentum"] > 0 and "momentum_buffer" not in state:
            state["momentum_buffer"] = _zeros(p)
        if group["centered"] and "grad_avg" not in state:
            state["grad_avg"] = _zeros(p)

    def _step_param(self, p, grad, group, state) -> None:
        lr, alpha = _scalar(group["lr"]), group["alpha"]
        state["step"] += 1
        if group["weight_decay"] != 0:
            grad = grad.add(p, alpha=group["weight_decay"])
        square_avg = state["square_avg"]
        square_avg.mul_(alpha).addcmul_(grad, grad, value=1 - alpha)
        if group["centered"]:
            grad_avg = state["grad_avg"]
            grad_avg.lerp_(grad, 1 - alpha)
            avg = square_avg.addcmul(grad_avg, grad_avg, value=-1).sqrt_()
        else:
            avg = square_avg.sqrt()
        avg = avg.add(group["eps"])
        if group["momentum"] > 0:
            buf = state["momentum_buffer"]
            buf.mul_(group["momentum"]).addcdiv_(grad, avg)
            p.add_(buf, alpha=-lr)
        else:
            p.addcdiv_(grad, avg, value=-lr)
