"""Handles that remove a hook, and the pair of graph hooks behind full backward hooks of modules.

A handle refers weakly to the dict that its hook stands in, so that holding it keeps nothing alive. Ids grow for the whole process: the
order of a dict is the order of registration even when hooks come and go.
"""
import itertools
import warnings
import weakref
from collections import OrderedDict
from typing import Any

__all__ = ["RemovableHandle", "BackwardHook", "unserializable_hook", "warn_if_has_hooks"]


class RemovableHandle:
    """Removes the hook it was returned for: by `remove()`, or at the end of a `with` block.

    hooks_dict: where the hook stands under `handle.id`. extra_dict: one more dict, or a list of them, with entries of the same id.
    """

    id: int
    next_id: int = 0

    def __init__(self, hooks_dict: Any, *, extra_dict: Any = None) -> None:
        self.hooks_dict_ref = weakref.ref(hooks_dict)
        self.id = RemovableHandle.next_id
        RemovableHandle.next_id += 1
        extras = [] if extra_dict is None else extra_dict if isinstance(extra_dict, list) else [extra_dict]
        self.extra_dict_ref = tuple(weakref.ref(d) for d in extras)

    def remove(self) -> None:
        for ref in itertools.chain((self.hooks_dict_ref,), self.extra_dict_ref):
            hooks = ref()
            if hooks is not None:
                hooks.pop(self.id, None)

    def __getstate__(self):
        return (self.hooks_dict_ref(), self.id, tuple(ref() for ref in self.extra_dict_ref))

    def __setstate__(self, state) -> None:
        hooks, self.id, *extra = state
        self.hooks_dict_ref = weakref.ref(OrderedDict() if hooks is None else hooks)
        self.extra_dict_ref = tuple(weakref.ref(OrderedDict() if d is None else d) for d in (extra[0] if extra else ()))
        RemovableHandle.next_id = max(RemovableHandle.next_id, self.id + 1)

    def __enter__(self) -> "RemovableHandle":
        return self

    def __exit__(self, *exc: Any) -> None:
        self.remove()


def unserializable_hook(f):
    """Marks a hook that must not be written to a file."""
    f.__torch_unserializable__ = True
    return f


def warn_if_has_hooks(tensor) -> None:
    for hook in (tensor._backward_hooks or {}).values():
        if not hasattr(hook, "__torch_unserializable__"):
            warnings.warn(f"backward hook {hook!r} on tensor will not be serialized.  If this is expected, you can decorate the function "
                          "with @torch.utils.hooks.unserializable_hook to suppress this warning", stacklevel=2)


def _identity_function():
    """The node that is put around a module: made at first use, for it needs autograd."""
    global _Identity
    if _Identity is None:
        from rushlight.autograd import Function

        class BackwardHookFunction(Function):
            @staticmethod
            def forward(ctx, *args):
                ctx.mark_non_differentiable(*[a for a in args if not a.requires_grad])
                return args

            @staticmethod
            def backward(ctx, *grads):
                return grads

        _Identity = BackwardHookFunction
    return _Identity


_Identity: Any = None


class BackwardHook:
    """Runs a module's full backward (pre-)hooks: one identity node before the module's inputs, one behind its outputs.

    The output node sees grad_output first and keeps it until the input node has grad_input; where no input requires a gradient the
    hooks run at the output node.
    """

    def __init__(self, module, user_hooks, user_pre_hooks) -> None:
        self.module, self.user_hooks, self.user_pre_hooks = module, user_hooks, user_pre_hooks
        self.grad_outputs: Any = None
        self.n_inputs = self.n_outputs = -1
        self.input_index: Any = None
        self.output_index: Any = None

    @staticmethod
    def _spread(index, values, n):
        """`values` at the places `index` of a tuple of n, None elsewhere."""
        out = [None] * n
        for at, v in zip(index, values, strict=False):
            out[at] = v
        return tuple(out)

    def _through_node(self, args, attach):
        """`args` with its tensors passed through one identity node, and their places; (args, None) when nothing requires grad."""
        import rushlight
        index = [i for i, a in enumerate(args) if isinstance(a, rushlight.Tensor)]
        tensors = [args[i] for i in index]
        if not rushlight.is_grad_enabled() or not any(t.requires_grad for t in tensors):
            return args, None
        through = _identity_function().apply(*tensors)
        if not isinstance(through, tuple):
            through = (through,)
        nodes = [t.grad_fn for t in through if t.grad_fn is not None and t.grad_fn.name() == "BackwardHookFunctionBackward"]
        if not nodes:
            raise RuntimeError("Error while setting up backward hooks. Please open an issue with a code sample to reproduce this.")
        attach(nodes[0])
        out = list(args)
        for at, t in zip(index, through, strict=True):
            out[at] = t
        return type(args)(*out) if hasattr(args, "_fields") else type(args)(out), index

    def setup_input_hook(self, args):
        args, self.input_index = self._through_node(args, lambda node: node.register_hook(self._on_inputs))
        self.n_inputs = len(args)
        return args

    def setup_output_hook(self, args):
        single = not isinstance(args, tuple)
        args = (args,) if single else args
        out, self.output_index = self._through_node(args, lambda node: node.register_hook(self._on_outputs))
        self.n_outputs = len(args)
        return out[0] if single else out

    def _on_inputs(self, grad_input, _):
        if self.grad_outputs is None:  # the gradient reached the inputs without passing the outputs
            return None
        res = self._spread(self.input_index, grad_input, self.n_inputs)
        for hook in self.user_hooks:
            out = hook(self.module, res, self.grad_outputs)
            if out is None:
                continue
            if len(out) != len(res):
                raise RuntimeError(f"Backward hook returned an invalid number of grad_input, got {len(out)}, but expected {len(res)}")
            res = out
        self.grad_outputs = None
        return tuple(res[i] for i in self.input_index)

    def _on_outputs(self, _, grad_output):
        self.grad_outputs = self._spread(self.output_index, grad_output, self.n_outputs)
        for hook in self.user_pre_hooks:
            out = hook(self.module, self.grad_outputs)
            if out is None:
                continue
            if len(out) != self.n_outputs:
                raise RuntimeError(f"Backward pre hook returned an invalid number of grad_output, got {len(out)}, but expected "
                                   f"{self.n_outputs}")
            self.grad_outputs = out
        grads = self.grad_outputs
        if self.input_index is None:
            self._without_inputs()
        return tuple(grads[i] for i in self.output_index)

    def _without_inputs(self):
        warnings.warn("Full backward hook is firing when gradients are computed with respect to module outputs since no inputs require "
                      "gradients. See "
                      "https://docs.pytorch.org/docs/main/generated/torch.nn.Module.html#torch.nn.Module.register_full_backward_hook "
                      "for more details.", stacklevel=5)
        for hook in self.user_hooks:
            res = hook(self.module, (None,) * self.n_inputs, self.grad_outputs)
            if res is not None and not (isinstance(res, tuple) and all(r is None for r in res)):
                raise RuntimeError("Backward hook for Modules where no input requires gradient should always return None or None for all "
                                   "gradients.")
        self.grad_outputs = None
