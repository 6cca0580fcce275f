"""Hooks of modules: the global ones, the methods that register them, and the call that runs them.

The C base type calls `forward` directly while every dict here and in the module is empty, and `_call_impl` else; the global dicts are
handed to it once, so they are changed and never replaced.
"""
import functools
import warnings
import weakref
from collections import OrderedDict
from typing import Any

from rushlight import _C
from rushlight._C import Tensor
from rushlight.utils.hooks import BackwardHook, RemovableHandle

_global_backward_pre_hooks: OrderedDict = OrderedDict()
_global_backward_hooks: OrderedDict = OrderedDict()
_global_forward_pre_hooks: OrderedDict = OrderedDict()
_global_forward_hooks: OrderedDict = OrderedDict()
_global_forward_hooks_always_called: OrderedDict = OrderedDict()
_global_forward_hooks_with_kwargs: OrderedDict = OrderedDict()
_global_buffer_registration_hooks: OrderedDict = OrderedDict()
_global_module_registration_hooks: OrderedDict = OrderedDict()
_global_parameter_registration_hooks: OrderedDict = OrderedDict()
_global_is_full_backward_hook: bool | None = None
_C._set_global_module_hooks(_global_backward_pre_hooks, _global_backward_hooks, _global_forward_pre_hooks, _global_forward_hooks)

_MIXED = "Cannot use both regular backward hooks and full backward hooks {}. Please use only one of them."


def _add(hooks: OrderedDict, hook: Any, *extra: tuple[OrderedDict, bool], prepend: bool = False) -> RemovableHandle:
    """Puts hook into hooks under a new id, and the id into each extra dict whose flag is set."""
    handle = RemovableHandle(hooks, extra_dict=[d for d, _ in extra])
    hooks[handle.id] = hook
    for d, wanted in extra:
        if wanted:
            d[handle.id] = True
    if prepend:
        hooks.move_to_end(handle.id, last=False)
    return handle


def register_module_buffer_registration_hook(hook) -> RemovableHandle:
    """hook(module, name, buffer) -> None or a replacement, at every registration of a buffer in any module."""
    return _add(_global_buffer_registration_hooks, hook)


def register_module_module_registration_hook(hook) -> RemovableHandle:
    """hook(module, name, submodule) -> None or a replacement, at every registration of a submodule in any module."""
    return _add(_global_module_registration_hooks, hook)


def register_module_parameter_registration_hook(hook) -> RemovableHandle:
    """hook(module, name, param) -> None or a replacement, at every registration of a parameter in any module."""
    return _add(_global_parameter_registration_hooks, hook)


def register_module_forward_pre_hook(hook) -> RemovableHandle:
    """hook(module, args) -> None or new args, before every module's forward; runs before the module's own hooks."""
    return _add(_global_forward_pre_hooks, hook)


def register_module_forward_hook(hook, *, with_kwargs: bool = False, always_call: bool = False) -> RemovableHandle:
    """hook(module, args, output) -> None or a new output, after every module's forward; runs before the module's own hooks.

    with_kwargs: hook(module, args, kwargs, output). always_call: also when forward raised.
    """
    return _add(_global_forward_hooks, hook, (_global_forward_hooks_always_called, always_call), (_global_forward_hooks_with_kwargs,
                                                                                                  with_kwargs))


def _claim_global_kind(full: bool) -> None:
    global _global_is_full_backward_hook
    if _global_is_full_backward_hook is (not full):
        raise RuntimeError(_MIXED.format("as a global Module hook"))
    _global_is_full_backward_hook = full


def register_module_backward_hook(hook) -> RemovableHandle:
    """Deprecated, as in PyTorch: the gradients it sees are those of the last node of forward only."""
    _claim_global_kind(False)
    return _add(_global_backward_hooks, hook)


def register_module_full_backward_pre_hook(hook) -> RemovableHandle:
    """hook(module, grad_output) -> None or new gradients, before every module's backward."""
    return _add(_global_backward_pre_hooks, hook)


def register_module_full_backward_hook(hook) -> RemovableHandle:
    """hook(module, grad_input, grad_output) -> None or a new grad_input, when the gradients of a module's inputs are known."""
    _claim_global_kind(True)
    return _add(_global_backward_hooks, hook)


class _WrappedHook:
    """A hook that is given the module it was registered on, held weakly; hooks on state loading use it."""

    def __init__(self, hook, module=None) -> None:
        self.hook = hook
        functools.update_wrapper(self, hook)
        self.with_module = module is not None
        if module is not None:
            self.module = weakref.ref(module)

    def __call__(self, *args, **kwargs):
        if not self.with_module:
            return self.hook(*args, **kwargs)
        module = self.module()
        if module is None:
            raise RuntimeError("You are trying to call the hook of a dead Module!")
        return self.hook(module, *args, **kwargs)

    def __getstate__(self):
        state = {"hook": self.hook, "with_module": self.with_module}
        if self.with_module:
            state["module"] = self.module()
        return state

    def __setstate__(self, state) -> None:
        self.hook, self.with_module = state["hook"], state["with_module"]
        if self.with_module:
            if state["module"] is None:
                raise RuntimeError("You are trying to revive the hook of a dead Module!")
            self.module = weakref.ref(state["module"])


_DEPRECATED = {
    "result": "Using non-full backward hooks on a Module that does not return a single Tensor or a tuple of Tensors is deprecated and "
              "will be "
              "removed in future versions. This hook will be missing some of the grad_output. Please use register_full_backward_hook to "
              "get "
              "the documented behavior.",
    "input": "Using non-full backward hooks on a Module that does not take as input a single Tensor or a tuple of Tensors is deprecated "
             "and will "
             "be removed in future versions. This hook will be missing some of the grad_input. Please use register_full_backward_hook to "
             "get "
             "the documented behavior.",
    "nested": "Using a non-full backward hook when outputs are nested in python data structure is deprecated and will be removed in future "
              "versions. This hook will be missing some grad_output.",
    "outputs": "Using a non-full backward hook when outputs are generated by different autograd Nodes is deprecated and will be removed "
               "in future "
               "versions. This hook will be missing some grad_output. Please use register_full_backward_hook to get the documented "
               "behavior.",
    "nodes": "Using a non-full backward hook when the forward contains multiple autograd Nodes is deprecated and will be removed in future "
             "versions. This hook will be missing some grad_input. Please use register_full_backward_hook to get the documented behavior.",
}


def _deprecated_kind(inputs, result, node) -> str | None:
    """What makes a non-full backward hook see too little here, if anything."""
    results = result if isinstance(result, tuple) else (result,)
    if not all(isinstance(r, Tensor) for r in results):
        return "result"
    if not all(isinstance(i, Tensor) for i in inputs):
        return "input"
    nodes = {r.grad_fn for r in results if r.grad_fn is not None}
    if not nodes or (len(nodes) == 1 and node not in nodes):
        return "nested"
    if len(nodes) > 1:
        return "outputs"
    if {i.grad_fn for i in inputs if i.grad_fn is not None} != {n for n, _ in node.next_functions}:
        return "nodes"
    return None


class _Hooked:
    """The part of Module that registers hooks and calls forward between them."""

    __slots__ = ()

    def register_forward_pre_hook(self, hook, *, prepend: bool = False, with_kwargs: bool = False) -> RemovableHandle:
        """hook(module, args) -> None, new args, or one value for them; with_kwargs: hook(module, args, kwargs) -> None or
        (args, kwargs)."""
        return _add(self._forward_pre_hooks, hook, (self._forward_pre_hooks_with_kwargs, with_kwargs), prepend=prepend)

    def register_forward_hook(self, hook, *, prepend: bool = False, with_kwargs: bool = False,
                              always_call: bool = False) -> RemovableHandle:
        """hook(module, args, output) -> None or a new output; with_kwargs: hook(module, args, kwargs, output). always_call: also when
        forward raised."""
        return _add(self._forward_hooks, hook, (self._forward_hooks_with_kwargs, with_kwargs), (self._forward_hooks_always_called,
                                                                                                always_call),
                    prepend=prepend)

    def _claim_kind(self, full: bool) -> None:
        if self._is_full_backward_hook is (not full):
            raise RuntimeError(_MIXED.format("on a single Module"))
        self._is_full_backward_hook = full

    def register_full_backward_pre_hook(self, hook, prepend: bool = False) -> RemovableHandle:
        """hook(module, grad_output) -> None or new gradients of the outputs."""
        return _add(self._backward_pre_hooks, hook, prepend=prepend)

    def register_full_backward_hook(self, hook, prepend: bool = False) -> RemovableHandle:
        """hook(module, grad_input, grad_output) -> None or new gradients of the inputs."""
        self._claim_kind(True)
        return _add(self._backward_hooks, hook, prepend=prepend)

    def register_backward_hook(self, hook) -> RemovableHandle:
        """Deprecated, as in PyTorch: use register_full_backward_hook."""
        self._claim_kind(False)
        return _add(self._backward_hooks, hook)

    def _get_backward_hooks(self):
        """(full, non-full) hooks that apply to this module."""
        full, other = [], []
        (full if _global_is_full_backward_hook is True else other).extend(_global_backward_hooks.values())
        (full if self._is_full_backward_hook is True else other).extend(self._backward_hooks.values())
        return full, other

    def _get_backward_pre_hooks(self):
        return [*_global_backward_pre_hooks.values(), *self._backward_pre_hooks.values()]

    def _maybe_warn_non_full_backward_hook(self, inputs, result, grad_fn) -> None:
        kind = _deprecated_kind(inputs, result, grad_fn)
        if kind:
            warnings.warn(_DEPRECATED[kind], FutureWarning, stacklevel=3)

    def _run_pre_hooks(self, args, kwargs):
        for hooks, with_kwargs in ((_global_forward_pre_hooks, ()), (self._forward_pre_hooks, self._forward_pre_hooks_with_kwargs)):
            for id_, hook in list(hooks.items()):
                res = hook(self, args, kwargs) if id_ in with_kwargs else hook(self, args)
                if res is None:
                    continue
                if id_ in with_kwargs:
                    if not (isinstance(res, tuple) and len(res) == 2):
                        raise RuntimeError(f"forward pre-hook must return None or a tuple of (new_args, new_kwargs), but got {res}.")
                    args, kwargs = res
                else:
                    args = res if isinstance(res, tuple) else (res,)
        return args, kwargs

    def _run_forward_hook(self, id_, hook, args, kwargs, result):
        if id_ in self._forward_hooks_with_kwargs or id_ in _global_forward_hooks_with_kwargs:
            res = hook(self, args, kwargs, result)
        else:
            res = hook(self, args, result)
        return result if res is None else res

    def _attach_non_full_hooks(self, hooks, args, result) -> None:
        var = result
        while not isinstance(var, Tensor):
            var = next(v for v in var.values() if isinstance(v, Tensor)) if isinstance(var, dict) else var[0]
        node = var.grad_fn
        if node is not None:
            for hook in hooks:
                node.register_hook(_WrappedHook(hook, self))
            self._maybe_warn_non_full_backward_hook(args, result, node)

    def _run_always_called(self, done, args, kwargs, result) -> None:
        """After forward or a hook raised: the hooks that are to run in any case and did not; their own errors become warnings."""
        for hooks, always, word in ((_global_forward_hooks, _global_forward_hooks_always_called, "global module"),
                                    (self._forward_hooks, self._forward_hooks_always_called, "module")):
            for id_, hook in list(hooks.items()):
                if id_ not in always or id_ in done:
                    continue
                try:
                    result = self._run_forward_hook(id_, hook, args, kwargs, result)
                except Exception as e:
                    warnings.warn(f"{word} forward hook with ``always_call=True`` raised an exception that was silenced as another error "
                                  "was "
                                  f"raised in forward: {e}", stacklevel=3)

    def _call_impl(self, *args, **kwargs):
        result, done, always = None, set(), {**self._forward_hooks_always_called, **_global_forward_hooks_always_called}
        try:
            full, non_full = self._get_backward_hooks()
            pre = self._get_backward_pre_hooks()
            args, kwargs = self._run_pre_hooks(args, kwargs)
            around = BackwardHook(self, full, pre) if full or pre else None
            if around:
                args = around.setup_input_hook(args)
            result = self.forward(*args, **kwargs)
            for id_, hook in [*_global_forward_hooks.items(), *self._forward_hooks.items()]:
                if id_ in always:
                    done.add(id_)
                result = self._run_forward_hook(id_, hook, args, kwargs, result)
            if around:
                if not isinstance(result, (Tensor, tuple)):
                    warnings.warn("For backward hooks to be called, module output should be a Tensor or a tuple of Tensors but received "
                                  f"{type(result)}", stacklevel=2)
                result = around.setup_output_hook(result)
            if non_full:
                self._attach_non_full_hooks(non_full, args, result)
            return result
        except Exception:
            if always:
                self._run_always_called(done, args, kwargs, result)
            raise

    _wrapped_call_impl = _call_impl
