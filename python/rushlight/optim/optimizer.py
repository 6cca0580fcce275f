"""Optimizer: parameter groups, state and hooks; what every optimizer shares.

`param_groups` and `state` are the only truth, in PyTorch's form; the optimizers of this package hand both to one C call a group and step.
"""
import functools
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from copy import deepcopy
from itertools import chain
from typing import Any
from warnings import warn

import rushlight
from rushlight import _C
from rushlight._C import Tensor
from rushlight.utils.hooks import RemovableHandle

__all__ = ["Optimizer", "register_optimizer_step_pre_hook", "register_optimizer_step_post_hook"]

_global_pre_hooks: OrderedDict = OrderedDict()
_global_post_hooks: OrderedDict = OrderedDict()


class _RequiredParameter:
    def __repr__(self) -> str:
        return "<required parameter>"


required = _RequiredParameter()


def register_optimizer_step_pre_hook(hook) -> RemovableHandle:
    """hook(optimizer, args, kwargs) -> None or (args, kwargs), before every optimizer's step."""
    handle = RemovableHandle(_global_pre_hooks)
    _global_pre_hooks[handle.id] = hook
    return handle


def register_optimizer_step_post_hook(hook) -> RemovableHandle:
    """hook(optimizer, args, kwargs) -> None, after every optimizer's step."""
    handle = RemovableHandle(_global_post_hooks)
    _global_post_hooks[handle.id] = hook
    return handle


def _typename(o: Any) -> str:
    from rushlight.nn.modules.module import _typename as name
    return name(o)


def _scalar(x):
    """A one-element tensor as a number; numbers as they are."""
    return x.item() if isinstance(x, Tensor) else x


def _check_lr(lr, foreach=None, capturable=False) -> None:
    if isinstance(lr, Tensor):
        if foreach and not capturable:
            raise ValueError("lr as a Tensor is not supported for capturable=False and foreach=True")
        if lr.numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
    if not lr >= 0.0:
        raise ValueError(f"Invalid learning rate: {lr}")


def _check_fused(fused, foreach, differentiable) -> None:
    if fused and differentiable:
        raise RuntimeError("`fused` does not support `differentiable`")
    if fused and foreach:
        raise RuntimeError("`fused` and `foreach` cannot be `True` together.")


def _hooked_step(step):
    """A step that runs the hooks around it and tells schedulers that it ran."""

    @functools.wraps(step)
    def run(self, *args, **kwargs):
        if not isinstance(self, Optimizer) or self._stepping:
            return step(self, *args, **kwargs)
        self._opt_called = True
        self._stepping = True
        try:
            for hook in [*_global_pre_hooks.values(), *self._optimizer_step_pre_hooks.values()]:
                result = hook(self, (self, *args), kwargs)
                if result is None:
                    continue
                if not (isinstance(result, tuple) and len(result) == 2):
                    raise RuntimeError(f"{step} must return None or a tuple of (new_args, new_kwargs), but got {result}.")
                args, kwargs = result[0][1:], result[1]
            out = step(self, *args, **kwargs)
            for hook in [*self._optimizer_step_post_hooks.values(), *_global_post_hooks.values()]:
                hook(self, (self, *args), kwargs)
            return out
        finally:
            self._stepping = False

    run.hooked = True  # type: ignore[attr-defined]
    return run


class Optimizer:
    """Base class of optimizers.

    params: tensors, (name, tensor) pairs, or dicts of groups with a "params" entry and options of their own. defaults: the options of
    groups that do not set them.
    """

    _kind: int | None = None  # of the C step; None: an optimizer of the user's own
    _stepping = False
    _opt_called = False

    def __init_subclass__(cls, **kwargs) -> None:
        super().__init_subclass__(**kwargs)
        step = cls.__dict__.get("step")
        if step is not None and not getattr(step, "hooked", False):
            cls.step = _hooked_step(step)

    def __init__(self, params, defaults: dict[str, Any]) -> None:
        self.defaults = defaults
        self._init_hooks()
        if isinstance(params, Tensor):
            raise TypeError("params argument given to the optimizer should be an iterable of Tensors or dicts, but got "
                            + _typename(params))
        self.state: defaultdict[Tensor, Any] = defaultdict(dict)
        self.param_groups: list[dict[str, Any]] = []
        groups = list(params)
        if len(groups) == 0:
            raise ValueError("optimizer got an empty parameter list")
        if not isinstance(groups[0], dict):
            groups = [{"params": groups}]
        for group in groups:
            self.add_param_group(group)

    def _init_hooks(self) -> None:
        for name in ("step_pre", "step_post", "state_dict_pre", "state_dict_post", "load_state_dict_pre", "load_state_dict_post"):
            self.__dict__.setdefault(f"_optimizer_{name}_hooks", OrderedDict())

    def __getstate__(self) -> dict[str, Any]:
        return {"defaults": self.defaults, "state": self.state, "param_groups": self.param_groups}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._init_hooks()
        self.defaults.setdefault("differentiable", False)

    def __repr__(self) -> str:
        groups = ["\n".join([f"Parameter Group {i}", *(f"    {key}: {g[key]}" for key in sorted(g) if key != "params")])
                  for i, g in enumerate(self.param_groups)]
        return f"{type(self).__name__} (\n" + "\n\n".join(groups) + "\n)"

    # ---- hooks ----

    def _add_hook(self, name: str, hook, prepend: bool = False) -> RemovableHandle:
        hooks = getattr(self, f"_optimizer_{name}_hooks")
        handle = RemovableHandle(hooks)
        hooks[handle.id] = hook
        if prepend:
            hooks.move_to_end(handle.id, last=False)
        return handle

    def register_step_pre_hook(self, hook) -> RemovableHandle:
        """hook(optimizer, args, kwargs) -> None or (args, kwargs), before step."""
        return self._add_hook("step_pre", hook)

    def register_step_post_hook(self, hook) -> RemovableHandle:
        """hook(optimizer, args, kwargs) -> None, after step."""
        return self._add_hook("step_post", hook)

    def register_state_dict_pre_hook(self, hook, prepend: bool = False) -> RemovableHandle:
        """hook(optimizer) -> None, before state_dict()."""
        return self._add_hook("state_dict_pre", hook, prepend)

    def register_state_dict_post_hook(self, hook, prepend: bool = False) -> RemovableHandle:
        """hook(optimizer, state_dict) -> None or another state_dict."""
        return self._add_hook("state_dict_post", hook, prepend)

    def register_load_state_dict_pre_hook(self, hook, prepend: bool = False) -> RemovableHandle:
        """hook(optimizer, state_dict) -> None or another state_dict, before it is loaded."""
        return self._add_hook("load_state_dict_pre", hook, prepend)

    def register_load_state_dict_post_hook(self, hook, prepend: bool = False) -> RemovableHandle:
        """hook(optimizer) -> None, after a state_dict was loaded."""
        return self._add_hook("load_state_dict_post", hook, prepend)

    # ---- state ----

    def state_dict(self) -> dict[str, Any]:
        """{"state": {number of the parameter: its state}, "param_groups": [options and numbers]}; tensors are shared, not copied."""
        for hook in self._optimizer_state_dict_pre_hooks.values():
            hook(self)
        numbers: dict[int, int] = {}
        groups = []
        for group in self.param_groups:
            packed = {k: v for k, v in group.items() if k != "params"}
            for p in group["params"]:
                numbers.setdefault(id(p), len(numbers))
            packed["params"] = [numbers[id(p)] for p in group["params"]]
            groups.append(packed)
        state = {numbers[id(k)] if isinstance(k, Tensor) else k: v for k, v in self.state.items()}
        out = {"state": state, "param_groups": groups}
        for hook in self._optimizer_state_dict_post_hooks.values():
            result = hook(self, out)
            out = out if result is None else result
        return out

    @staticmethod
    def _process_value_according_to_param_policy(param: Tensor, value: Tensor, param_id: int, param_groups: list[dict],
                                                 key: Any = None) -> Tensor:
        """A state tensor as it must be beside its parameter: of its dtype and device; "step" stays as it is."""
        if key == "step":
            group = next((g for g in param_groups if param_id in g["params"]), {})
            return value.to(dtype=rushlight.float32, device=param.device) if group.get("capturable") or group.get("fused") else value
        if param.is_floating_point():
            return value.to(dtype=param.dtype, device=param.device)
        return value.to(device=param.device)

    def _cast_state(self, param: Tensor, value: Any, param_id: int, param_groups: list[dict], key: Any = None) -> Any:
        if isinstance(value, Tensor):
            return Optimizer._process_value_according_to_param_policy(param, value, param_id, param_groups, key)
        if isinstance(value, dict):
            return {k: self._cast_state(param, v, param_id, param_groups, k) for k, v in value.items()}
        if isinstance(value, (list, tuple)):
            return type(value)(self._cast_state(param, v, param_id, param_groups) for v in value)
        return value

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes over groups and state of a state_dict; ValueError when groups or their sizes differ (nothing changes then)."""
        state_dict = state_dict.copy()
        for hook in self._optimizer_load_state_dict_pre_hooks.values():
            result = hook(self, state_dict)
            state_dict = state_dict if result is None else result
        groups, saved = self.param_groups, deepcopy(state_dict["param_groups"])
        if len(groups) != len(saved):
            raise ValueError("loaded state dict has a different number of parameter groups")
        if any(len(g["params"]) != len(s["params"]) for g, s in zip(groups, saved, strict=True)):
            raise ValueError("loaded state dict contains a parameter group that doesn't match the size of optimizer's group")
        params = dict(zip(chain.from_iterable(g["params"] for g in saved), chain.from_iterable(g["params"] for g in groups), strict=True))
        state: defaultdict[Any, Any] = defaultdict(dict)
        for k, v in state_dict["state"].items():
            if k in params:
                state[params[k]] = self._cast_state(params[k], v, k, state_dict["param_groups"])
            else:
                state[k] = v
        for g, s in zip(groups, saved, strict=True):
            s["params"] = g["params"]
            if "param_names" in g and "param_names" not in s:
                s["param_names"] = g["param_names"]
            elif "param_names" in s and "param_names" not in g:
                del s["param_names"]
        self.__setstate__({"state": state, "param_groups": saved})
        for hook in self._optimizer_load_state_dict_post_hooks.values():
            hook(self)

    # ---- groups ----

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds a group of parameters with options of its own."""
        if not isinstance(param_group, dict):
            raise TypeError(f"param_group must be a dict, but got {type(param_group)}")
        params = param_group["params"]
        if isinstance(params, set):
            raise TypeError("optimizer parameters need to be organized in ordered collections, but the ordering of tensors in sets will "
                            "change "
                            "between runs. Please use a list instead.")
        params = [params] if isinstance(params, Tensor) else list(params)
        names = [p[0] for p in params if isinstance(p, tuple)]
        if names and len(names) != len(params):
            raise ValueError("all optimizer params should be with/without names. Some param names are missing")
        if names:
            params = [p[1] for p in params]
            param_group["param_names"] = names
        param_group["params"] = params
        for p in params:
            if not isinstance(p, Tensor):
                raise TypeError("optimizer can only optimize Tensors, but one of the params is " + _typename(p))
            if not self.defaults.get("differentiable", None) and not (p.is_leaf or p.retains_grad):
                raise ValueError("can't optimize a non-leaf Tensor")
        for name, default in self.defaults.items():
            if default is required and name not in param_group:
                raise ValueError(f"parameter group didn't specify a value of required optimization parameter {name}")
            param_group.setdefault(name, default)
        if len(params) != len(set(params)):
            warn("optimizer contains a parameter group with duplicate parameters; in future, this will cause an error; see "
                 "github.com/pytorch/pytorch/issues/40967 for more information", stacklevel=3)
        self._check_against_groups(param_group)
        self.param_groups.append(param_group)

    def _check_against_groups(self, new: dict[str, Any]) -> None:
        if not self.param_groups:
            return
        named = "param_names" in new
        if named != ("param_names" in self.param_groups[0]):
            raise ValueError("all optimizer param groups should be with/without names. cannot add param group "
                             f"{'with names' if named else 'without names'} to the optimizer")
        mine = set(chain.from_iterable(g["params"] for g in self.param_groups))
        if not mine.isdisjoint(new["params"]):
            raise ValueError("some parameters appear in more than one parameter group")

    # ---- working ----

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drops the gradients of all parameters, or sets them to zero."""
        for group in self.param_groups:
            if set_to_none:
                _C._zero_grads(group["params"])
                continue
            for p in group["params"]:
                if p.grad is None:
                    continue
                if p.grad.grad_fn is not None:
                    p.grad.detach_()
                else:
                    p.grad.requires_grad_(False)
                p.grad.zero_()

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step; closure computes the loss again and gives it."""
        raise NotImplementedError

    def profile_hook_step(self):
        """The wrapper that runs step hooks."""
        return _hooked_step(self)


class _KernelOptimizer(Optimizer):
    """An optimizer whose step is one C call a group. A subclass says how a parameter's state begins and how one parameter is
    stepped by operators, for what the kernel does not take."""

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step. closure: called first, with gradients enabled; its value is returned."""
        if self._optimizer_step_pre_hooks or self._optimizer_step_post_hooks or _global_pre_hooks or _global_post_hooks:
            return _step_with_hooks(self) if closure is None else _step_with_hooks(self, closure)
        return self._step(closure)

    step.hooked = True  # type: ignore[attr-defined]

    def _step(self, closure=None):
        self._opt_called = True
        loss = None
        if closure is not None:
            with rushlight.enable_grad():
                loss = closure()
        for group in self.param_groups:
            if _C._optim_step(self._kind, group, self.state):
                self._step_group(group)
        return loss

    def _step_group(self, group: dict[str, Any]) -> None:
        """Makes missing states and tries again; else steps each parameter by operators."""
        with rushlight.no_grad():
            for p in group["params"]:
                if p.grad is not None:
                    self._init_state(p, group, self.state[p] if self._has_state(group) else {})
        if _C._optim_step(self._kind, group, self.state) == 0:
            return
        with rushlight.set_grad_enabled(bool(group.get("differentiable", False))):
            for p in group["params"]:
                if p.grad is not None:
                    grad = -p.grad if group["maximize"] else p.grad
                    self._step_param(p, grad, group, self.state[p] if self._has_state(group) else {})

    def _has_state(self, group: dict[str, Any]) -> bool:
        return True

    def _init_state(self, p: Tensor, group: dict[str, Any], state: dict[str, Any]) -> None:
        raise NotImplementedError

    def _step_param(self, p: Tensor, grad: Tensor, group: dict[str, Any], state: dict[str, Any]) -> None:
        raise NotImplementedError


_step_with_hooks = _hooked_step(_KernelOptimizer._step)


def _zeros(p: Tensor) -> Tensor:
    return rushlight.zeros_like(p, memory_format=rushlight.preserve_format)
