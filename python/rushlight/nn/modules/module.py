"""Module: the base class of everything that has parameters, buffers and submodules.

The C base type looks attributes up in `_parameters`, `_buffers` and `_modules` and calls forward; this class registers, walks,
converts and prints. `_hooks.py` and `_state.py` hold the rest of its methods.
"""
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

import rushlight
from rushlight import _C
from rushlight._C import Tensor
from rushlight.nn.parameter import Buffer, Parameter
from rushlight.utils.hooks import RemovableHandle  # noqa: F401

from . import _hooks
from ._hooks import (  # noqa: F401
    _global_backward_hooks,
    _global_backward_pre_hooks,
    _global_forward_hooks,
    _global_forward_pre_hooks,
    _Hooked,
    _WrappedHook,
    register_module_backward_hook,
    register_module_buffer_registration_hook,
    register_module_forward_hook,
    register_module_forward_pre_hook,
    register_module_full_backward_hook,
    register_module_full_backward_pre_hook,
    register_module_module_registration_hook,
    register_module_parameter_registration_hook,
)
from ._state import _EXTRA_STATE_KEY_SUFFIX, _IncompatibleKeys, _Stateful  # noqa: F401

__all__ = ["register_module_forward_pre_hook", "register_module_forward_hook", "register_module_full_backward_pre_hook",
           "register_module_backward_hook", "register_module_full_backward_hook", "register_module_buffer_registration_hook",
           "register_module_module_registration_hook", "register_module_parameter_registration_hook", "Module"]


def _addindent(text: str, spaces: int) -> str:
    """Every line but the first moved to the right."""
    first, *rest = text.split("\n")
    return "\n".join([first, *(" " * spaces + line for line in rest)])


def _typename(o: Any) -> str:
    """As PyTorch's messages name an object: a tensor by its type, else module and class."""
    if isinstance(o, Tensor):
        return o.type()
    module = getattr(o, "__module__", None)
    name = getattr(o, "__qualname__", None) or getattr(o, "__name__", None) or type(o).__name__
    return name if module in (None, "builtins") else f"{module}.{name}"


def _forward_unimplemented(self, *input: Any) -> None:
    """What a call computes; every subclass overrides it."""
    raise NotImplementedError(f'Module [{type(self).__name__}] is missing the required "forward" function')


def _registration_hooks(hooks, module, name, value):
    for hook in hooks.values():
        output = hook(module, name, value)
        if output is not None:
            value = output
    return value


def _parse_to(args, kwargs):
    """(device, dtype, non_blocking, memory_format) of the spellings of to()."""
    device = dtype = None
    rest = list(args)
    if rest and isinstance(rest[0], Tensor):
        other = rest.pop(0)
        device, dtype = other.device, other.dtype
    elif rest and isinstance(rest[0], rushlight.dtype):
        dtype = rest.pop(0)
    elif rest:
        device = rest.pop(0)
        if rest and (rest[0] is None or isinstance(rest[0], rushlight.dtype)):
            dtype = rest.pop(0)
    if "other" in kwargs or "tensor" in kwargs:
        other = kwargs.pop("other", None)
        other = kwargs.pop("tensor") if other is None else other
        device, dtype = other.device, other.dtype
    device, dtype = kwargs.pop("device", device), kwargs.pop("dtype", dtype)
    non_blocking = kwargs.pop("non_blocking", rest.pop(0) if rest else False)
    kwargs.pop("copy", None)
    memory_format = kwargs.pop("memory_format", None)
    if kwargs or len(rest) > 1:
        raise TypeError(f"to() received an invalid combination of arguments - got ({', '.join(type(a).__name__ for a in args)}"
                        f"{''.join(f', {k}=...' for k in kwargs)})")
    return None if device is None else rushlight.device(device), dtype, non_blocking, memory_format


class Module(_Hooked, _Stateful, _C._ModuleBase):
    """Base class of all neural network modules.

    Assign Parameters, Modules and registered buffers as attributes in `__init__` after `super().__init__()`, and compute in `forward`.
    """

    dump_patches: bool = False
    _version: int = 1
    training: bool
    call_super_init: bool = False
    _compiled_call_impl: Callable | None = None

    def __init__(self, *args, **kwargs) -> None:
        if not self.call_super_init:
            if kwargs:
                raise TypeError(f"{type(self).__name__}.__init__() got an unexpected keyword argument '{next(iter(kwargs))}'")
            if args:
                raise TypeError(f"{type(self).__name__}.__init__() takes 1 positional argument but {len(args) + 1} were given")
        self.__dict__.update(
            training=True, _parameters={}, _buffers={}, _non_persistent_buffers_set=set(), _backward_pre_hooks=OrderedDict(),
            _backward_hooks=OrderedDict(), _is_full_backward_hook=None, _forward_hooks=OrderedDict(),
            _forward_hooks_with_kwargs=OrderedDict(), _forward_hooks_always_called=OrderedDict(), _forward_pre_hooks=OrderedDict(),
            _forward_pre_hooks_with_kwargs=OrderedDict(),
            _state_dict_hooks=OrderedDict(), _state_dict_pre_hooks=OrderedDict(), _load_state_dict_pre_hooks=OrderedDict(),
            _load_state_dict_post_hooks=OrderedDict(), _modules={})
        if self.call_super_init:
            super().__init__(*args, **kwargs)

    forward: Callable[..., Any] = _forward_unimplemented

    # ---- registration ----

    def _check_name(self, kind: str, name: Any, registered: dict) -> None:
        if not isinstance(name, str):
            raise TypeError(f"{kind} name should be a string. Got {_typename(name)}")
        if kind == "module" and hasattr(self, name) and name not in registered:
            raise KeyError(f"attribute '{name}' already exists")
        if "." in name:
            raise KeyError(f'module name can\'t contain ".", got: {name}' if kind == "module" else f'{kind} name can\'t contain "."')
        if name == "":
            raise KeyError(f'{kind} name can\'t be empty string ""')
        if hasattr(self, name) and name not in registered:
            raise KeyError(f"attribute '{name}' already exists")

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Adds a tensor that is state but no parameter; persistent: part of state_dict."""
        if "_buffers" not in self.__dict__:
            raise AttributeError("cannot assign buffer before Module.__init__() call")
        self._check_name("buffer", name, self._buffers)
        if tensor is not None and not isinstance(tensor, Tensor) and not hasattr(tensor, "__torch_function__"):
            raise TypeError(f"cannot assign '{_typename(tensor)}' object to buffer '{name}' (torch Tensor or None required)")
        self._buffers[name] = _registration_hooks(_hooks._global_buffer_registration_hooks, self, name, tensor)
        if persistent:
            self._non_persistent_buffers_set.discard(name)
        else:
            self._non_persistent_buffers_set.add(name)

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Adds a parameter under `name`; None keeps the name but contributes nothing."""
        if "_parameters" not in self.__dict__:
            raise AttributeError("cannot assign parameter before Module.__init__() call")
        self._check_name("parameter", name, self._parameters)
        if param is None:
            self._parameters[name] = None
            return
        if not isinstance(param, Parameter):
            raise TypeError(f"cannot assign '{_typename(param)}' object to parameter '{name}' (torch.nn.Parameter or None required)")
        if param.grad_fn:
            raise ValueError(f"Cannot assign non-leaf Tensor to parameter '{name}'. Model parameters must be created explicitly. To "
                             "express "
                             f"'{name}' as a function of another Tensor, compute the value in the forward() method.")
        self._parameters[name] = _registration_hooks(_hooks._global_parameter_registration_hooks, self, name, param)

    def add_module(self, name: str, module: "Module | None") -> None:
        """Adds a child under `name`."""
        if not isinstance(module, Module) and module is not None:
            raise TypeError(f"{_typename(module)} is not a Module subclass")
        self._check_name("module", name, self._modules)
        self._modules[name] = _registration_hooks(_hooks._global_module_registration_hooks, self, name, module)

    def register_module(self, name: str, module: "Module | None") -> None:
        """The same as add_module."""
        self.add_module(name, module)

    def _forget(self, name: str, *but: str) -> None:
        """Removes a name from the instance's attributes and from every registry that is not named in `but`."""
        d = self.__dict__
        d.pop(name, None)
        for key in ("_parameters", "_buffers", "_modules"):
            if key not in but:
                d.get(key, {}).pop(name, None)
        d.get("_non_persistent_buffers_set", set()).discard(name)

    def _set_registered(self, name: str, value: Any) -> None:
        """Assignments that the C base type does not settle: of a Parameter, a Module, a Buffer, or to a registered name."""
        d = self.__dict__
        params, modules, buffers = d.get("_parameters"), d.get("_modules"), d.get("_buffers")
        if isinstance(value, Parameter):
            if params is None:
                raise AttributeError("cannot assign parameters before Module.__init__() call")
            self._forget(name, "_parameters")
            self.register_parameter(name, value)
        elif params is not None and name in params:
            if value is not None:
                raise TypeError(f"cannot assign '{_typename(value)}' as parameter '{name}' (torch.nn.Parameter or None expected)")
            self.register_parameter(name, value)
        elif isinstance(value, Module):
            if modules is None:
                raise AttributeError("cannot assign module before Module.__init__() call")
            self._forget(name, "_modules")
            modules[name] = _registration_hooks(_hooks._global_module_registration_hooks, self, name, value)
        elif modules is not None and name in modules:
            if value is not None:
                raise TypeError(f"cannot assign '{_typename(value)}' as child module '{name}' (torch.nn.Module or None expected)")
            modules[name] = _registration_hooks(_hooks._global_module_registration_hooks, self, name, value)
        elif isinstance(value, Buffer) or (buffers is not None and name in buffers):
            self._set_buffer(name, value, buffers)
        else:
            self._set_plain(name, value)

    def _set_buffer(self, name: str, value: Any, buffers: dict | None) -> None:
        if value is not None and not isinstance(value, Tensor):
            raise TypeError(f"cannot assign '{_typename(value)}' as buffer '{name}' (torch.nn.Buffer, torch.Tensor or None expected)")
        if isinstance(value, Buffer):
            self.__dict__.pop(name, None)
            self.register_buffer(name, value, value.persistent)
        else:
            assert buffers is not None
            buffers[name] = _registration_hooks(_hooks._global_buffer_registration_hooks, self, name, value)

    # ---- dotted names ----

    def get_submodule(self, target: str) -> "Module":
        """The descendant with that dotted name; "" is the module itself. AttributeError names the part that is missing."""
        mod: Any = self
        for item in target.split(".") if target else []:
            if not hasattr(mod, item):
                raise AttributeError(mod._get_name() + " has no attribute `" + item + "`")
            mod = getattr(mod, item)
            if not isinstance(mod, Module):
                raise AttributeError("`" + item + "` is not an nn.Module")
        return mod

    def set_submodule(self, target: str, module: "Module", strict: bool = False) -> None:
        """Replaces the descendant with that dotted name, or adds it when its parent exists; strict: it must be there."""
        if target == "":
            raise ValueError("Cannot set the submodule without a target name!")
        if not isinstance(module, Module):
            raise ValueError(f"`module` is not an nn.Module, found {type(module)}")
        path, _, name = target.rpartition(".")
        parent = self.get_submodule(path)
        if strict and not hasattr(parent, name):
            raise AttributeError(parent._get_name() + " has no attribute `" + name + "`")
        if hasattr(parent, name) and not isinstance(getattr(parent, name), Module):
            raise AttributeError("`" + name + "` is not an nn.Module")
        setattr(parent, name, module)

    def _get_member(self, target: str) -> tuple["Module", str, Any]:
        path, _, name = target.rpartition(".")
        mod = self.get_submodule(path)
        if not hasattr(mod, name):
            raise AttributeError(mod._get_name() + " has no attribute `" + name + "`")
        return mod, name, getattr(mod, name)

    def get_parameter(self, target: str) -> Parameter:
        """The parameter with that dotted name."""
        _, name, value = self._get_member(target)
        if not isinstance(value, Parameter):
            raise AttributeError("`" + name + "` is not an nn.Parameter")
        return value

    def get_buffer(self, target: str) -> Tensor:
        """The buffer with that dotted name."""
        mod, name, value = self._get_member(target)
        if name not in mod._buffers:
            raise AttributeError("`" + name + "` is not a buffer")
        return value

    # ---- conversion ----

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "Module":
        """fn on every parameter, its gradient and every buffer; parameters stay the same objects."""
        if recurse:
            for module in self.children():
                module._apply(fn)
        for key, param in self._parameters.items():
            if param is None:
                continue
            with rushlight.no_grad():
                new, old_grad = fn(param), param.grad
                grad = None if old_grad is None else fn(old_grad)
            if new.is_meta != param.is_meta:
                param = self._parameters[key] = Parameter(new, param.requires_grad)
                if grad is not None:
                    param.grad = grad.requires_grad_(old_grad.requires_grad)
                continue
            param.grad = None
            param.data = new
            if grad is not None:
                if grad is not old_grad:
                    old_grad.data = grad
                param.grad = old_grad
        for key, buf in self._buffers.items():
            if buf is not None:
                self._buffers[key] = fn(buf)
        return self

    def apply(self, fn: "Callable[[Module], None]") -> "Module":
        """fn on every descendant, children first, and on the module itself."""
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    def cuda(self, device=None) -> "Module":
        """Moves parameters and buffers to a GPU."""
        return self._apply(lambda t: t.cuda(device))

    def cpu(self) -> "Module":
        """Moves parameters and buffers to the CPU."""
        return self._apply(lambda t: t.cpu())

    def type(self, dst_type) -> "Module":
        """Casts all parameters and buffers to dst_type."""
        return self._apply(lambda t: t.type(dst_type))

    def _float_apply(self, dtype) -> "Module":
        return self._apply(lambda t: t.to(dtype) if t.is_floating_point() else t)

    def float(self) -> "Module":
        """Casts floating-point parameters and buffers to float32."""
        return self._float_apply(rushlight.float32)

    def double(self) -> "Module":
        """Casts floating-point parameters and buffers to float64."""
        return self._float_apply(rushlight.float64)

    def half(self) -> "Module":
        """Casts floating-point parameters and buffers to float16."""
        return self._float_apply(rushlight.float16)

    def bfloat16(self) -> "Module":
        """Casts floating-point parameters and buffers to bfloat16."""
        return self._float_apply(rushlight.bfloat16)

    def to_empty(self, *, device, recurse: bool = True) -> "Module":
        """Moves parameters and buffers to a device without copying their values."""
        return self._apply(lambda t: rushlight.empty_like(t, device=device), recurse=recurse)

    def to(self, *args, **kwargs) -> "Module":
        """to(device, dtype, non_blocking), to(dtype), to(tensor), to(memory_format=…): in place; only floating-point tensors change
        dtype."""
        device, dtype, non_blocking, memory_format = _parse_to(args, dict(kwargs))
        if dtype is not None and not dtype.is_floating_point:
            raise TypeError(f"nn.Module.to only accepts floating point or complex dtypes, but got desired dtype={dtype}")

        def convert(t):
            if t.is_meta and device is not None and device.type != "meta":
                raise NotImplementedError("Cannot copy out of meta tensor; no data! Please use torch.nn.Module.to_empty() instead of "
                                          "torch.nn.Module.to() when moving module from meta to a different device.")
            options: dict[str, Any] = {} if memory_format is None or t.dim() not in (4, 5) else {"memory_format": memory_format}
            if device is not None:
                options["device"] = device
            if dtype is not None and t.is_floating_point():
                options["dtype"] = dtype
            return t.to(non_blocking=non_blocking, **options) if options else t

        return self._apply(convert)

    def share_memory(self) -> "Module":
        """Moves the memory of parameters and buffers to where other processes can map it."""
        return self._apply(lambda t: t.share_memory_())

    def requires_grad_(self, requires_grad: bool = True) -> "Module":
        """Whether gradients are computed for the parameters."""
        for p in self.parameters():
            p.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drops the gradients of all parameters, or sets them to zero."""
        for p in self.parameters():
            if p.grad is None:
                continue
            if set_to_none:
                p.grad = None
                continue
            if p.grad.grad_fn is not None:
                p.grad.detach_()
            else:
                p.grad.requires_grad_(False)
            p.grad.zero_()

    def train(self, mode: bool = True) -> "Module":
        """Training mode for the module and its descendants: it changes what Dropout and the like do."""
        if not isinstance(mode, bool):
            raise ValueError("training mode is expected to be boolean")
        self.training = mode
        for module in self.children():
            module.train(mode)
        return self

    def eval(self) -> "Module":
        """train(False)."""
        return self.train(False)

    def compile(self, *args, **kwargs) -> None:
        """Accepted for compatibility; the module is already run as it is."""

    # ---- walking ----

    def _named_members(self, get_members_fn, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True):
        seen = set()
        modules = self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate) if recurse else [(prefix, self)]
        for module_prefix, module in modules:
            for k, v in get_members_fn(module):
                if v is None or v in seen:
                    continue
                if remove_duplicate:
                    seen.add(v)
                yield module_prefix + ("." if module_prefix else "") + k, v

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """The parameters, each once."""
        for _, p in self.named_parameters(recurse=recurse):
            yield p

    def named_parameters(self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True) -> Iterator[tuple[str, Parameter]]:
        """The parameters with their dotted names."""
        yield from self._named_members(lambda m: m._parameters.items(), prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """The buffers, each once."""
        for _, b in self.named_buffers(recurse=recurse):
            yield b

    def named_buffers(self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True) -> Iterator[tuple[str, Tensor]]:
        """The buffers with their dotted names."""
        yield from self._named_members(lambda m: m._buffers.items(), prefix, recurse, remove_duplicate)

    def children(self) -> "Iterator[Module]":
        """The direct submodules, each once."""
        for _, module in self.named_children():
            yield module

    def named_children(self) -> "Iterator[tuple[str, Module]]":
        """The direct submodules with their names."""
        seen = set()
        for name, module in self._modules.items():
            if module is not None and module not in seen:
                seen.add(module)
                yield name, module

    def modules(self, remove_duplicate: bool = True) -> "Iterator[Module]":
        """The module and all its descendants, each once."""
        for _, module in self.named_modules(remove_duplicate=remove_duplicate):
            yield module

    def named_modules(self, memo: set | None = None, prefix: str = "", remove_duplicate: bool = True):
        """The module and all its descendants with their dotted names."""
        memo = set() if memo is None else memo
        if self in memo:
            return
        if remove_duplicate:
            memo.add(self)
        yield prefix, self
        for name, module in self._modules.items():
            if module is not None:
                yield from module.named_modules(memo, prefix + ("." if prefix else "") + name, remove_duplicate)

    # ---- printing, copying ----

    def _get_name(self) -> str:
        return type(self).__name__

    def extra_repr(self) -> str:
        """What stands in the parentheses of the printed module."""
        return ""

    def __repr__(self) -> str:
        extra = self.extra_repr()
        extra_lines = extra.split("\n") if extra else []
        child_lines = [f"({key}): " + _addindent(repr(module), 2) for key, module in self._modules.items()]
        lines = extra_lines + child_lines
        if not lines:
            return self._get_name() + "()"
        if len(extra_lines) == 1 and not child_lines:
            return f"{self._get_name()}({extra_lines[0]})"
        return self._get_name() + "(\n  " + "\n  ".join(lines) + "\n)"

    def __dir__(self):
        keys = [*dir(type(self)), *self.__dict__, *self._parameters, *self._modules, *self._buffers]
        return sorted(key for key in keys if not key[0].isdigit())

    def __getstate__(self):
        return self.__dict__.copy()

    def __setstate__(self, state: dict) -> None:
        self.__dict__.update(state)
        for name in ("_forward_pre_hooks", "_forward_pre_hooks_with_kwargs", "_forward_hooks_with_kwargs", "_forward_hooks_always_called",
                     "_state_dict_hooks", "_state_dict_pre_hooks", "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks",
                     "_backward_pre_hooks", "_backward_hooks", "_forward_hooks"):
            self.__dict__.setdefault(name, OrderedDict())
        self.__dict__.setdefault("_non_persistent_buffers_set", set())
        self.__dict__.setdefault("_is_full_backward_hook", None)

    def _replicate_for_data_parallel(self) -> "Module":
        replica = self.__new__(type(self))
        replica.__dict__ = self.__dict__.copy()
        replica._parameters = {}
        replica._buffers = replica._buffers.copy()
        replica._modules = replica._modules.copy()
        replica._is_replica = True
        return replica
