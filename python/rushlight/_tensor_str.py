"""How tensors print: PyTorch's text, character for character.

A tensor is read once into nested lists, shortened where it is summarised; one formatter is chosen for all the numbers shown (whole
numbers, fixed or scientific), and the lists are laid out in lines of at most `linewidth`.
"""
from __future__ import annotations

import contextlib
import math
from typing import TYPE_CHECKING, Any

from . import _C

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rushlight import Tensor

__all__ = ["set_printoptions", "get_printoptions", "printoptions"]


class _Options:
    precision: int = 4
    threshold: float = 1000
    edgeitems: int = 3
    linewidth: int = 80
    sci_mode: bool | None = None


PRINT_OPTS = _Options()
_PROFILES: dict[str, tuple[int, float, int, int]] = {"default": (4, 1000, 3, 80), "short": (2, 1000, 2, 80), "full": (4, math.inf, 3, 80)}


def set_printoptions(precision: int | None = None, threshold: float | None = None, edgeitems: int | None = None,
                     linewidth: int | None = None, profile: str | None = None, sci_mode: bool | None = None) -> None:
    """Sets how tensors print. precision: digits; threshold: elements above which a tensor is summarised; edgeitems: shown at each end then;
    linewidth: characters a line; profile: "default", "short" or "full"; sci_mode: True, False or None (as the values ask)."""
    if profile is not None:
        if profile not in _PROFILES:
            raise ValueError(f"profile must be one of {', '.join(_PROFILES)}, got {profile!r}")
        PRINT_OPTS.precision, PRINT_OPTS.threshold, PRINT_OPTS.edgeitems, PRINT_OPTS.linewidth = _PROFILES[profile]
    for name, value in (("precision", precision), ("threshold", threshold), ("edgeitems", edgeitems), ("linewidth", linewidth)):
        if value is not None:
            setattr(PRINT_OPTS, name, value)
    PRINT_OPTS.sci_mode = sci_mode


def get_printoptions() -> dict[str, Any]:
    """The print options as a dict."""
    return {name: getattr(PRINT_OPTS, name) for name in ("precision", "threshold", "edgeitems", "linewidth", "sci_mode")}


@contextlib.contextmanager
def printoptions(**kwargs: Any) -> Iterator[None]:
    """Print options for a with block."""
    old = get_printoptions()
    set_printoptions(**(old | kwargs))
    try:
        yield
    finally:
        set_printoptions(**old)


class _Formatter:
    """One way to write every number of a tensor, all right-justified to one width."""

    def __init__(self, values: list[Any], floating: bool) -> None:
        self.floating, self.whole, self.sci = floating, True, False
        self.width = 1
        if not floating:
            self.width = max((len(f"{v}") for v in values), default=1)
            return
        finite = [abs(v) for v in values if math.isfinite(v) and v != 0]
        if not finite:
            return
        high, low = max(finite), min(finite)
        self.whole = all(v == math.ceil(v) for v in finite)
        self.sci = high / low > 1000 or high > 1e8 or (not self.whole and low < 1e-4)
        if PRINT_OPTS.sci_mode is not None:
            self.sci = PRINT_OPTS.sci_mode
        self.width = max(1, *(len(self._text(v)) for v in values if math.isfinite(v) and v != 0))

    def _text(self, v: Any) -> str:
        if not self.floating:
            return f"{v}"
        if self.sci:
            return f"{v:.{PRINT_OPTS.precision}e}"
        if self.whole:
            return f"{v:.0f}" + ("." if math.isfinite(v) else "")
        return f"{v:.{PRINT_OPTS.precision}f}"

    def format(self, v: Any) -> str:
        return self._text(v).rjust(self.width)


def _edges(n: int, summarize: bool) -> list[int | None]:
    """The indices that are shown along an axis of n; None stands for those left out."""
    e = PRINT_OPTS.edgeitems
    if summarize and n > 2 * e:
        return [*range(e), None, *range(n - e, n)]
    return list(range(n))


def _shown(t: Tensor, summarize: bool) -> Any:
    """The values of t as nested lists, with None where rows or elements are left out."""
    if not summarize:
        return t.tolist()
    if t.dim() == 1:
        e = PRINT_OPTS.edgeitems
        if len(t) <= 2 * e:
            return t.tolist()
        return [*t[:e].tolist(), None, *t[len(t) - e:].tolist()]
    return [None if i is None else _shown(t[i], True) for i in _edges(len(t), True)]


def _flat(values: Any) -> list[Any]:
    if not isinstance(values, list):
        return [values]
    out: list[Any] = []
    for v in values:
        if isinstance(v, list):
            out += _flat(v)
        elif v is not None:
            out.append(v)
    return out


def _vector(values: list[Any], indent: int, f: _Formatter) -> str:
    per_line = max(1, math.floor((PRINT_OPTS.linewidth - indent) / (f.width + 2)))
    words = [" ..." if v is None else f.format(v) for v in values]
    lines = [", ".join(words[i:i + per_line]) for i in range(0, len(words), per_line)]
    return "[" + ("," + "\n" + " " * (indent + 1)).join(lines) + "]"


def _layout(values: Any, dim: int, indent: int, f: _Formatter) -> str:
    if dim == 0:
        return f.format(values)
    if dim == 1:
        return _vector(values, indent, f)
    rows = ["..." if v is None else _layout(v, dim - 1, indent + 1, f) for v in values]
    return "[" + ("," + "\n" * (dim - 1) + " " * (indent + 1)).join(rows) + "]"


def _numbers(t: Tensor, indent: int) -> str:
    t = t.detach()
    if t.device.type != "cpu":
        t = t.cpu()
    summarize = t.numel() > PRINT_OPTS.threshold
    values = _shown(t, summarize)
    return _layout(values, t.dim(), indent, _Formatter(_flat(values), t.is_floating_point()))


def _join(text: str, suffixes: list[str], indent: int) -> str:
    parts = [text]
    length = len(text) - text.rfind("\n") + 1
    for suffix in suffixes:
        if length + len(suffix) + 2 > PRINT_OPTS.linewidth:
            parts.append(",\n" + " " * indent + suffix)
            length = indent + len(suffix)
        else:
            parts.append(", " + suffix)
            length += len(suffix) + 2
    return "".join(parts) + ")"


def _history(t: Tensor) -> str | None:
    try:
        grad_fn = t.grad_fn
    except RuntimeError:
        return "grad_fn=<Invalid>"
    if grad_fn is not None:
        return f"grad_fn=<{type(grad_fn).__name__}>"
    return "requires_grad=True" if t.requires_grad else None


def _tensor_str(t: Tensor, contents: str | None = None) -> str:
    """repr(t). contents: printed in place of the numbers."""
    exact = type(t) is _C.Tensor or type(t).__name__ == "Parameter"
    prefix = "tensor(" if exact else f"{type(t).__name__}("
    indent, suffixes = len(prefix), []
    if t.device.type != "cpu":
        suffixes.append(f"device='{t.device}'")
    default = _C.get_default_dtype()
    if t.device.type == "meta":
        suffixes += [f"size={tuple(t.shape)}"] + ([f"dtype={t.dtype}"] if t.dtype != default else [])
        text = contents or "..."
    elif t.numel() == 0:
        if t.dim() != 1:
            suffixes.append(f"size={tuple(t.shape)}")
        if t.dtype != default:
            suffixes.append(f"dtype={t.dtype}")
        text = contents or "[]"
    else:
        if PRINT_OPTS.edgeitems == 0:
            suffixes.append(f"size={tuple(t.shape)}")
            if t.numel() > PRINT_OPTS.threshold:
                contents = contents or "[...]"
        if t.dtype not in (default, _C.int64, _C.bool):
            suffixes.append(f"dtype={t.dtype}")
        text = contents or _numbers(t, indent)
    history = _history(t)
    if history:
        suffixes.append(history)
    return _join(prefix + text, suffixes, indent)
