"""Adagrad."""
from typing import Any

import rushlight
from rushlight._C import Tensor

from .optimizer import _check_fused, _check_lr, _KernelOptimizer, _scalar

__all__ = ["Adagrad"]


class Adagrad(_KernelOptimizer):
    """s = s + g², p = p - lr / (1 + (t - 1) * lr_decay) * g / (sqrt(s) + eps). The state is made at once."""

    _kind = 4

    def __init__(self, params, lr: float | Tensor = 1e-2, lr_decay: float = 0, weight_decay: float = 0,
                 initial_accumulator_value: float = 0,
                 eps: float = 1e-10, foreach: bool | None = None, *, maximize: bool = False, differentiable: bool = False,
                 fused: bool | None = None) -> None:
        _check_lr(lr)
        for value, text in ((lr_decay, "lr_decay"), (weight_decay, "weight_decay"),
                            (initial_accumulator_value, "initial_accumulator_value"), (eps, "epsilon")):
            if not value >= 0.0:
                raise ValueError(f"Invalid {text} value: {value}")
        super().__init__(params, {"lr": lr, "lr_decay": lr_decay, "eps": eps, "weight_decay": weight_decay,
                                  "initial_accumulator_value": initial_accumulator_value, "foreach": foreach, "maximize": maximize,
                                  "differentiable": differentiable, "fused": fused})
        _check_fused(fused, foreach, differentiable)
        for group in self.param_groups:
            for p in group["params"]:
                self._init_state(p, group, self.state[p])

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            for name, value in (("foreach", None), ("maximize", False), ("differentiable", False), ("fused", None)):
                group.setdefault(name, value)
        for s in self.state.values():
            if len(s) != 0 and not isinstance(s["step"], Tensor):
                s["step"] = rushlight.tensor(float(s["step"]), dtype=rushlight.float32)

    def share_memory(self) -> None:
        """Moves the state to where other processes can map it."""
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p]["sum"].share_memory_()

    def _init_state(self, p, group, state) -> None:
        if len(state) == 0:
            state["step"] = rushlight.tensor(0.0, dtype=rushlight.float32)
            state["sum"] = rushlight.full_like(p, group["initial_accumulator_value"], memory_format=rushlight.preserve_format)

    def _step_param(self, p, grad, group, state) -> None:
        state["step"] += 1
        if group["weight_decay"] != 0:
            grad = grad.add(p, alpha=group["weight_decay"])
        rate = _scalar(group["lr"]) / (1 + (state["step"].item() - 1) * group["lr_decay"])
        state["sum"].addcmul_(grad, grad, value=1)
        p.addcdiv_(grad, state["sum"].sqrt().add_(group["eps"]), value=-rate)
