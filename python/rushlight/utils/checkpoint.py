"""Checkpointing: activations are computed again in backward instead of being kept.

The default form (use_reentrant=False) packs every tensor saved inside the function as a number, and runs the function once more when
backward first asks for one of them. The reentrant form is one Function around the whole call and runs a backward of its own inside.
Both put the random generator back to where the first run found it, unless preserve_rng_state=False.
"""
from __future__ import annotations

import contextlib
import warnings
from typing import TYPE_CHECKING, Any

import rushlight
from rushlight import random
from rushlight.autograd.graph import saved_tensors_hooks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["CheckpointError", "CheckpointFunction", "check_backward_validity", "checkpoint", "checkpoint_sequential", "detach_variable",
           "noop_context_fn", "set_checkpoint_debug_enabled", "set_checkpoint_early_stop"]

_early_stop = True


class CheckpointError(RuntimeError):
    """The second run of a function saved other tensors than the first."""


class _Stop(Exception):
    """Everything that backward needs has been computed again: the rest of the second run is left out."""


def noop_context_fn() -> tuple[Any, Any]:
    """The default context_fn: no contexts around the two runs."""
    return contextlib.nullcontext(), contextlib.nullcontext()


@contextlib.contextmanager
def set_checkpoint_early_stop(enable: bool) -> Iterator[None]:
    """For a with block: whether a second run ends as soon as the last saved tensor is there (the default)."""
    global _early_stop
    before, _early_stop = _early_stop, enable
    try:
        yield
    finally:
        _early_stop = before


@contextlib.contextmanager
def set_checkpoint_debug_enabled(enabled: bool | None) -> Iterator[None]:
    """Accepted for compatibility; errors carry shapes and dtypes always."""
    yield


def detach_variable(inputs: Any) -> tuple[Any, ...]:
    """The tensors of a tuple as fresh leaves that require what they required."""
    if not isinstance(inputs, tuple):
        raise RuntimeError("Only tuple of tensors is supported. Got Unsupported input type: ", type(inputs).__name__)
    out = []
    for x in inputs:
        if isinstance(x, rushlight.Tensor):
            y = x.detach()
            y.requires_grad_(x.requires_grad)
            x = y
        out.append(x)
    return tuple(out)


def check_backward_validity(inputs: Any) -> None:
    """Warns when no input requires a gradient: the reentrant form then gives none."""
    if not any(x.requires_grad for x in inputs if isinstance(x, rushlight.Tensor)):
        warnings.warn("None of the inputs have requires_grad=True. Gradients will be None", stacklevel=3)


@contextlib.contextmanager
def _rng(preserve: bool, state: Any) -> Iterator[None]:
    """The second run: the generator as the first run found it, and afterwards as it was before."""
    with random.fork_rng(enabled=preserve):
        if preserve:
            random.set_rng_state(state)
        yield


class CheckpointFunction(rushlight.autograd.Function):
    """The reentrant form."""

    @staticmethod
    def forward(ctx: Any, run_function: Callable[..., Any], preserve_rng_state: bool, *args: Any) -> Any:
        check_backward_validity(args)
        ctx.run_function, ctx.preserve = run_function, preserve_rng_state
        ctx.state = random.get_rng_state() if preserve_rng_state else None
        ctx.inputs = [None if isinstance(x, rushlight.Tensor) else x for x in args]
        ctx.places = [i for i, x in enumerate(args) if isinstance(x, rushlight.Tensor)]
        ctx.save_for_backward(*[args[i] for i in ctx.places])
        with rushlight.no_grad():
            return run_function(*args)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        inputs = list(ctx.inputs)
        for i, t in zip(ctx.places, ctx.saved_tensors, strict=True):
            inputs[i] = t
        detached = detach_variable(tuple(inputs))
        with _rng(ctx.preserve, ctx.state), rushlight.enable_grad():
            outputs = ctx.run_function(*detached)
        if isinstance(outputs, rushlight.Tensor):
            outputs = (outputs,)
        wanted = [(o, g) for o, g in zip(outputs, grads, strict=True) if isinstance(o, rushlight.Tensor) and o.requires_grad]
        if not wanted:
            raise RuntimeError("none of output has requires_grad=True, this checkpoint() is not necessary")
        rushlight.autograd.backward([o for o, _ in wanted], [g for _, g in wanted])
        return (None, None) + tuple(x.grad if isinstance(x, rushlight.Tensor) else None for x in detached)


class _Frame:
    """One checkpointed call: what its first run saved, by number, and the tensors of the second run."""

    def __init__(self, rerun: Callable[[], Any]) -> None:
        self.rerun = rerun
        self.meta: list[tuple[Any, Any]] = []  # shape and dtype of each tensor saved
        self.values: list[Any] | None = None
        self.left = 0

    def pack(self, t: Any) -> int:
        self.meta.append((tuple(t.shape), t.dtype))
        return len(self.meta) - 1

    def unpack(self, index: int) -> Any:
        if self.values is None:
            self._run()
        assert self.values is not None
        value, self.values[index] = self.values[index], None
        if value is None:  # asked for again under retain_graph
            self._run()
            value, self.values[index] = self.values[index], None
        self.left -= 1
        if self.left == 0:
            self.values = None
        return value

    def _run(self) -> None:
        values: list[Any] = []

        def pack(t: Any) -> Any:
            index = len(values)
            if index >= len(self.meta):
                if _early_stop:
                    raise _Stop
                raise CheckpointError(f"checkpoint: the second run saved more tensors than the first ({len(self.meta)})")
            if (tuple(t.shape), t.dtype) != self.meta[index]:
                raise CheckpointError(f"checkpoint: Recomputed values for the following tensors have different metadata than during the "
                                      f"forward pass.\n"
                                      f"tensor at position {index}:\nsaved metadata: {self.meta[index]}\nrecomputed metadata: "
                                      f"{(tuple(t.shape), t.dtype)}")
            values.append(t.detach())
            if _early_stop and len(values) == len(self.meta):
                raise _Stop
            return index

        def refuse(index: Any) -> Any:
            raise RuntimeError("checkpoint: a tensor of the second run was asked for inside it")

        with contextlib.suppress(_Stop), saved_tensors_hooks(pack, refuse), rushlight.enable_grad():
            self.rerun()
        if len(values) != len(self.meta):
            raise CheckpointError(f"checkpoint: A different number of tensors was saved during the original forward and "
                                  f"recomputation.\nNumber of tensors "
                                  f"saved during forward: {len(self.meta)}\nNumber of tensors saved during recomputation: {len(values)}.")
        self.values, self.left = values, len(values)


def _checkpoint_frame(function: Callable[..., Any], args: Any, kwargs: Any, preserve: bool, context_fn: Callable[[], Any]) -> Any:
    forward_context, recompute_context = context_fn()
    state = random.get_rng_state() if preserve else None

    def rerun() -> None:
        with _rng(preserve, state), recompute_context:
            function(*args, **kwargs)

    frame = _Frame(rerun)
    with saved_tensors_hooks(frame.pack, frame.unpack), forward_context:
        return function(*args, **kwargs)


def checkpoint(function: Callable[..., Any], *args: Any, use_reentrant: bool | None = None, context_fn: Callable[[], Any] = noop_context_fn,
               determinism_check: str = "default", debug: bool = False, early_stop: bool = True, **kwargs: Any) -> Any:
    """function(*args, **kwargs) without keeping what it saves for backward: it runs again there. Keyword preserve_rng_state=True: both runs
    see the same random numbers. RuntimeError (CheckpointError) when the second run saves other tensors."""
    preserve = kwargs.pop("preserve_rng_state", True)
    if use_reentrant is None:
        use_reentrant = False
    if use_reentrant:
        if kwargs:
            raise ValueError("Unexpected keyword arguments: " + ",".join(kwargs))
        if context_fn is not noop_context_fn or debug is not False:
            raise ValueError("Passing `context_fn` or `debug` is only supported when use_reentrant=False.")
        return CheckpointFunction.apply(function, preserve, *args)
    if not rushlight.is_grad_enabled():
        return function(*args, **kwargs)
    return _checkpoint_frame(function, args, kwargs, preserve, context_fn)


def checkpoint_sequential(functions: Any, segments: int, input: Any, use_reentrant: bool | None = None, **kwargs: Any) -> Any:  # noqa: A002
    """A Sequential (or list of modules) in `segments` pieces, each but the last checkpointed."""
    preserve = kwargs.pop("preserve_rng_state", True)
    if kwargs:
        raise ValueError("Unexpected keyword arguments: " + ",".join(kwargs))
    if isinstance(functions, rushlight.nn.Sequential):
        functions = list(functions.children())
    size = len(functions) // segments

    def piece(start: int, end: int) -> Callable[[Any], Any]:
        def forward(x: Any) -> Any:
            for j in range(start, end + 1):
                x = functions[j](x)
            return x

        return forward

    end = -1
    for start in range(0, size * (segments - 1), size):
        end = start + size - 1
        input = checkpoint(piece(start, end), input, use_reentrant=use_reentrant, preserve_rng_state=preserve)  # noqa: A001
    return piece(end + 1, len(functions) - 1)(input)
