"""state_dict and load_state_dict of modules.

Invariant, and the one difference from PyTorch: a strict load that fails has copied nothing. The checks of every module run first and
queue their copies; the queue is worked off when no error was found (`_load_from_state_dict` called by itself copies at once).
"""
import threading
import warnings
from collections import OrderedDict, namedtuple
from typing import Any

import rushlight
from rushlight._C import Tensor
from rushlight.nn.parameter import Parameter, is_lazy
from rushlight.utils.hooks import RemovableHandle

from ._hooks import _add, _WrappedHook

_EXTRA_STATE_KEY_SUFFIX = "_extra_state"
_local = threading.local()


class _IncompatibleKeys(namedtuple("IncompatibleKeys", ["missing_keys", "unexpected_keys"])):
    __slots__ = ()

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return super().__repr__()

    __str__ = __repr__


def _as_parameter(value, like):
    """`value` in the role of `like`: a Parameter with its requires_grad when like is one."""
    if not isinstance(like, Parameter):
        return value
    if isinstance(value, Parameter):
        return value.requires_grad_(like.requires_grad)
    return Parameter(value, requires_grad=like.requires_grad)


class _Stateful:
    """The part of Module that writes and reads its state."""

    __slots__ = ()

    def register_state_dict_post_hook(self, hook) -> RemovableHandle:
        """hook(module, state_dict, prefix, local_metadata) -> None, after state_dict() was filled."""
        hook._from_public_api = True
        return _add(self._state_dict_hooks, hook)

    def _register_state_dict_hook(self, hook) -> RemovableHandle:
        if getattr(hook, "_from_public_api", False):
            raise RuntimeError("Cannot register the same function as the state dict post hook that was previously registered via "
                               "register_state_dict_post_hook")
        return _add(self._state_dict_hooks, hook)

    def register_state_dict_pre_hook(self, hook) -> RemovableHandle:
        """hook(module, prefix, keep_vars) -> None, before state_dict() is filled."""
        return _add(self._state_dict_pre_hooks, hook)

    def register_load_state_dict_pre_hook(self, hook) -> RemovableHandle:
        """hook(module, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs) -> None."""
        return self._register_load_state_dict_pre_hook(hook, with_module=True)

    def _register_load_state_dict_pre_hook(self, hook, with_module: bool = False) -> RemovableHandle:
        return _add(self._load_state_dict_pre_hooks, _WrappedHook(hook, self if with_module else None))

    def register_load_state_dict_post_hook(self, hook) -> RemovableHandle:
        """hook(module, incompatible_keys) -> None, after this module and its children were loaded; may change the two lists."""
        return _add(self._load_state_dict_post_hooks, hook)

    def get_extra_state(self) -> Any:
        """Override together with set_extra_state to add something of one's own to the state_dict."""
        raise RuntimeError("Reached a code path in Module.get_extra_state() that should never be called.")

    def set_extra_state(self, state: Any) -> None:
        raise RuntimeError("Reached a code path in Module.set_extra_state() that should never be called.")

    def _has_extra_state(self, method: str) -> bool:
        return getattr(type(self), method) is not getattr(_Stateful, method)

    def _save_to_state_dict(self, destination, prefix, keep_vars) -> None:
        """This module's own entries; children are state_dict's business."""
        for name, p in self._parameters.items():
            if p is not None:
                destination[prefix + name] = p if keep_vars else p.detach()
        for name, b in self._buffers.items():
            if b is not None and name not in self._non_persistent_buffers_set:
                destination[prefix + name] = b if keep_vars else b.detach()
        if self._has_extra_state("get_extra_state"):
            destination[prefix + _EXTRA_STATE_KEY_SUFFIX] = self.get_extra_state()

    def state_dict(self, *args, destination=None, prefix: str = "", keep_vars: bool = False):
        """Parameters and persistent buffers by dotted name; tensors share memory with the module's (keep_vars: are the module's)."""
        if args:
            warnings.warn("Positional args are being deprecated, use kwargs instead. Refer to https://pytorch.org/docs/main/generated/"
                          "torch.nn.Module.html#torch.nn.Module.state_dict for details.", FutureWarning, stacklevel=2)
            destination, prefix, keep_vars = (*args, *(destination, prefix, keep_vars)[len(args):])
        if destination is None:
            destination = OrderedDict()
            destination._metadata = OrderedDict()
        local_metadata = {"version": self._version}
        if hasattr(destination, "_metadata"):
            destination._metadata[prefix[:-1]] = local_metadata
        for hook in self._state_dict_pre_hooks.values():
            hook(self, prefix, keep_vars)
        self._save_to_state_dict(destination, prefix, keep_vars)
        for name, module in self._modules.items():
            if module is not None:
                module.state_dict(destination=destination, prefix=f"{prefix}{name}.", keep_vars=keep_vars)
        for hook in self._state_dict_hooks.values():
            result = hook(self, destination, prefix, local_metadata)
            if result is None:
                continue
            if getattr(hook, "_from_public_api", False):
                raise RuntimeError("state_dict post-hook must return None")
            destination = result
        return destination

    def _check_entry(self, key, param, value, assign, errors):
        """The value that may be copied into `param`, or None with the reason added to errors."""
        if not isinstance(value, Tensor) and not hasattr(type(value), "__torch_function__"):
            errors.append(f'While copying the parameter named "{key}", expected torch.Tensor or Tensor-like object from checkpoint but '
                          'received '
                          f"{type(value)}")
            return None
        if is_lazy(param):
            return value
        if param.dim() == 0 and value.dim() == 1 and value.shape[0] == 1:
            value = value[0]
        if value.shape != param.shape:
            errors.append(f"size mismatch for {key}: copying a param with shape {value.shape} from checkpoint, the shape in current "
                          "model is "
                          f"{param.shape}.")
            return None
        if param.is_meta and not value.is_meta and not assign:
            warnings.warn(f"for {key}: copying from a non-meta parameter in the checkpoint to a meta parameter in the current model, "
                          "which is a "
                          "no-op. (Did you mean to pass `assign=True` to assign items in the state dictionary to their corresponding key "
                          "in the "
                          "module instead of copying them in place?)", stacklevel=2)
        return value

    def _load_entry(self, name, key, param, value, assign, errors) -> None:
        try:
            with rushlight.no_grad():
                if assign:
                    setattr(self, name, _as_parameter(value, param))
                elif is_lazy(param):
                    param.materialize(value.shape)
                    param.copy_(value)
                else:
                    param.copy_(value)
        except Exception as e:
            errors.append(f'While copying the parameter named "{key}", whose dimensions in the model are {param.size()} and whose '
                          'dimensions in '
                          f"the checkpoint are {value.size()}, an exception occurred : {e.args}.")

    def _load_extra_state(self, state_dict, key, strict, missing, unexpected, do) -> None:
        if self._has_extra_state("set_extra_state"):
            if key in state_dict:
                do(lambda: self.set_extra_state(state_dict[key]))
            elif strict:
                missing.append(key)
        elif strict and key in state_dict:
            unexpected.append(key)

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs) -> None:
        """This module's own entries out of state_dict; what does not fit is added to the three lists."""
        for hook in self._load_state_dict_pre_hooks.values():
            hook(state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)
        queue = getattr(_local, "queue", None)
        do = queue.append if queue is not None else (lambda f: f())
        assign = local_metadata.get("assign_to_params_buffers", False)
        entries = [*self._parameters.items(), *((k, b) for k, b in self._buffers.items() if k not in self._non_persistent_buffers_set)]
        state = {k: v for k, v in entries if v is not None}
        for name, param in state.items():
            key = prefix + name
            if key not in state_dict:
                if strict:
                    missing_keys.append(key)
                continue
            value = self._check_entry(key, param, state_dict[key], assign, error_msgs)
            if value is not None:
                do(lambda n=name, k=key, p=param, v=value: self._load_entry(n, k, p, v, assign, error_msgs))
        extra_key = prefix + _EXTRA_STATE_KEY_SUFFIX
        self._load_extra_state(state_dict, extra_key, strict, missing_keys, unexpected_keys, do)
        if strict:
            for key in state_dict:
                if not key.startswith(prefix) or key == extra_key:
                    continue
                head, dot, _ = key[len(prefix):].partition(".")
                if head not in (self._modules if dot else state):
                    unexpected_keys.append(key)

    def _load_tree(self, state_dict, prefix, metadata, assign, missing, unexpected, errors) -> None:
        local = {} if metadata is None else metadata.get(prefix[:-1], {})
        if assign:
            local["assign_to_params_buffers"] = assign
        self._load_from_state_dict(state_dict, prefix, local, True, missing, unexpected, errors)
        for name, child in self._modules.items():
            if child is not None:
                p = f"{prefix}{name}."
                child._load_tree({k: v for k, v in state_dict.items() if k.startswith(p)}, p, metadata, assign, missing, unexpected, errors)
        keys = _IncompatibleKeys(missing, unexpected)
        for hook in self._load_state_dict_post_hooks.values():
            if hook(self, keys) is not None:
                raise AssertionError("Hooks registered with ``register_load_state_dict_post_hook`` are not expected to return new "
                                     "values, if "
                                     "incompatible_keys need to be modified, it should be done inplace.")

    def load_state_dict(self, state_dict, strict: bool = True, assign: bool = False):
        """Copies parameters and buffers from state_dict into this module and its children.

        strict: keys must be exactly those of state_dict(). assign: the tensors themselves become the module's. Returns a named tuple
        of missing_keys and unexpected_keys. RuntimeError lists everything that does not fit; then nothing was copied.
        """
        if not hasattr(state_dict, "keys") or not hasattr(state_dict, "__getitem__"):
            raise TypeError(f"Expected state_dict to be dict-like, got {type(state_dict)}.")
        missing: list[str] = []
        unexpected: list[str] = []
        errors: list[str] = []
        metadata = getattr(state_dict, "_metadata", None)
        entries = OrderedDict(state_dict)
        if metadata is not None:
            entries._metadata = metadata
        outer, _local.queue = getattr(_local, "queue", None), []
        try:
            self._load_tree(entries, "", metadata, assign, missing, unexpected, errors)
            queue = _local.queue
        finally:
            _local.queue = outer
        if not errors and not (strict and (missing or unexpected)):
            for copy in queue:
                copy()
        if strict:
            for keys, text in ((unexpected, "Unexpected key(s) in state_dict: {}. "), (missing, "Missing key(s) in state_dict: {}. ")):
                if keys:
                    errors.insert(0, text.format(", ".join(f'"{k}"' for k in keys)))
        if errors:
            raise RuntimeError("Error(s) in loading state_dict for {}:\n\t{}".format(type(self).__name__, "\n\t".join(errors)))
        return _IncompatibleKeys(missing, unexpected)
