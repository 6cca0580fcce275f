"""Order and counting, composed of sort, gather and scans: unique, mode, quantiles, searches, histograms, nonzero's two forms."""
from __future__ import annotations

from typing import Any, NamedTuple

import rushlight

from . import _C
from ._C import Tensor


def nonzero(input: Tensor, *, out: Tensor | None = None, as_tuple: bool = False) -> Any:
    """The positions of elements that are not 0, one a row (n, ndim); as_tuple: a vector for each dimension."""
    if not as_tuple:
        where = _C.nonzero(input)
        return where if out is None else out.resize_(where.shape).copy_(where)
    return _C.nonzero(input.reshape(1) if input.dim() == 0 else input).unbind(1)


# ---- unique ----

def _runs(new: Tensor) -> tuple[Tensor, Tensor]:
    """From the flags of first elements: the number of the run of each element, and the lengths of the runs."""
    ids = new.to(rushlight.int64).cumsum(0) - 1
    starts = _C.nonzero(new).reshape(-1)
    ends = rushlight.cat([starts[1:], starts.new_tensor([new.numel()])])
    return ids, ends - starts if starts.numel() else starts


def _firsts(rows: Tensor) -> Tensor:
    """True where a row of (n, …) differs from the one before it."""
    n = rows.shape[0]
    if n == 0:
        return rows.new_zeros(0, dtype=rushlight.bool)
    differs = rows[1:] != rows[:-1]
    differs = differs.reshape(n - 1, -1).any(1) if rows.dim() > 1 else differs
    return rushlight.cat([differs.new_ones(1), differs])


def _answer(values: Tensor, inverse: Tensor, counts: Tensor, return_inverse: bool, return_counts: bool) -> Any:
    results = (values,) + ((inverse,) if return_inverse else ()) + ((counts,) if return_counts else ())
    return results if len(results) > 1 else values


def _row_order(rows: Tensor) -> Tensor:
    """A stable order of the rows by their first column, then the second …"""
    order = rushlight.arange(rows.shape[0])
    for column in range(rows.shape[1] - 1, -1, -1):
        order = order[rows[:, column][order].argsort(stable=True)]
    return order


def unique(input: Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None) -> Any:
    """The different elements (or parts along dim), sorted; with where each element went, and how often each stands."""
    if dim is None:
        values, order = input.detach().reshape(-1).sort(stable=True)
        new = _firsts(values)
        ids, counts = _runs(new)
        inverse = rushlight.empty_like(order).scatter_(0, order, ids) if order.numel() else order
        return _answer(values[new], inverse.reshape(input.shape), counts, return_inverse, return_counts)
    moved = input.detach().movedim(dim, 0)
    if moved.numel() == 0 and moved.shape[0] != 0:
        raise RuntimeError("There are 0 sized dimensions, and they aren't selected, so unique cannot be applied")
    order = _row_order(moved.reshape(moved.shape[0], -1)) if moved.numel() else rushlight.arange(moved.shape[0])
    rows = moved[order]
    new = _firsts(rows)
    ids, counts = _runs(new)
    inverse = rushlight.empty_like(order).scatter_(0, order, ids) if order.numel() else order
    return _answer(rows[new].movedim(0, dim), inverse, counts, return_inverse, return_counts)


def unique_consecutive(input: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None) -> Any:
    """The elements (or parts along dim) that differ from the one before."""
    rows = input.detach().reshape(-1) if dim is None else input.detach().movedim(dim, 0)
    new = _firsts(rows)
    ids, counts = _runs(new)
    values = rows[new]
    if dim is None:
        return _answer(values, ids.reshape(input.shape), counts, return_inverse, return_counts)
    return _answer(values.movedim(0, dim), ids, counts, return_inverse, return_counts)


def isin(elements: Any, test_elements: Any, *, assume_unique: bool = False, invert: bool = False) -> Tensor:
    """Which elements stand among test_elements; either may be a number."""
    e = elements if isinstance(elements, Tensor) else rushlight.tensor(elements)
    t = (test_elements if isinstance(test_elements, Tensor) else rushlight.tensor(test_elements)).reshape(-1)
    dtype = rushlight.promote_types(e.dtype, t.dtype)
    e, t = e.to(dtype), t.to(dtype)
    if t.numel() <= 16:
        found = (e.unsqueeze(-1) == t).any(-1)
    else:
        ordered = t.sort()[0]
        found = ordered[searchsorted(ordered, e).clamp_max(t.numel() - 1)] == e
    return ~found if invert else found


# ---- the most frequent ----

class _Mode(NamedTuple):
    values: Tensor
    indices: Tensor


def mode(input: Tensor, dim: int = -1, keepdim: bool = False) -> Any:
    """The most frequent value along dim (the smallest of equals) and the position of its last occurrence."""
    x = input.reshape(1) if input.dim() == 0 else input
    if x.shape[dim] == 0:
        raise IndexError(f"mode(): Expected reduction dim {dim % x.dim()} to have non-zero size.")
    values, order = x.detach().movedim(dim, -1).sort(dim=-1, stable=True)
    n = values.shape[-1]
    place = rushlight.arange(n).expand(values.shape)
    later = place[..., 1:].where(values[..., 1:] != values[..., :-1], place.new_zeros(()))
    first = rushlight.cat([place.new_zeros(place[..., :1].shape), later], -1)
    length = place - first.cummax(-1)[0]
    indices = order.gather(-1, length.argmax(-1, keepdim=True)).movedim(-1, dim)
    result = x.gather(dim, indices)
    if input.dim() == 0:
        result, indices = result.reshape(()), indices.reshape(())
    elif not keepdim:
        result, indices = result.squeeze(dim), indices.squeeze(dim)
    return _Mode(result, indices)


# ---- searches ----

def searchsorted(sorted_sequence: Tensor, input: Any, *, out_int32: bool = False, right: bool = False, side: str | None = None,
                 sorter: Tensor | None = None, out: Tensor | None = None) -> Tensor:
    """Where values would be inserted into the last dimension of a sorted sequence; right: after equal elements."""
    if side not in (None, "left", "right"):
        raise RuntimeError(f"torch.searchsorted(): side can only be 'left' or 'right' but got {side}")
    if side == "left" and right:
        raise RuntimeError("torch.searchsorted(): side and right can't be set to opposites, got side of left while right was True")
    right = right or side == "right"
    seq = sorted_sequence if sorter is None else sorted_sequence.gather(-1, sorter)
    wide = not isinstance(input, float) or seq.is_floating_point()
    v = input if isinstance(input, Tensor) else rushlight.tensor(input, dtype=seq.dtype if wide else None)
    if seq.dim() > 1 and seq.shape[:-1] != v.shape[:-1]:
        raise RuntimeError("torch.searchsorted(): boundaries tensor should be 1 dimension or the first N-1 dimensions of boundaries "
                           "tensor and "
                           f"input value tensor must match, but we got boundaries tensor {list(seq.shape)} and input value tensor "
                           f"{list(v.shape)}")
    n = seq.shape[-1]
    found = rushlight.zeros(v.shape, dtype=rushlight.int64)
    step = 1 << n.bit_length()
    while n and step:
        tried = found + step
        at = tried.clamp_max(n) - 1
        element = seq[at] if seq.dim() == 1 else seq.gather(-1, at)
        before = ~((element > v) if right else (element >= v)) & (tried <= n)
        found = rushlight.where(before, tried, found)
        step >>= 1
    result = found.to(rushlight.int32) if out_int32 else found
    return result if out is None else out.resize_(result.shape).copy_(result)


def bucketize(input: Any, boundaries: Tensor, *, out_int32: bool = False, right: bool = False, out: Tensor | None = None) -> Tensor:
    """The number of the bucket between boundaries that each value falls into."""
    if boundaries.dim() != 1:
        raise RuntimeError(f"boundaries tensor must be 1 dimension, but got dim({boundaries.dim()})")
    return searchsorted(boundaries, input, out_int32=out_int32, right=right, out=out)


# ---- quantiles ----

_INTERPOLATIONS = ("linear", "lower", "higher", "midpoint", "nearest")


def _quantile(input: Tensor, q: Any, dim: int | None, keepdim: bool, interpolation: str, ignore_nan: bool) -> Tensor:
    name = "nanquantile" if ignore_nan else "quantile"
    if not input.is_floating_point() or input.dtype not in (rushlight.float32, rushlight.float64):
        raise RuntimeError(f"{name}() input tensor must be either float or double dtype")
    if interpolation not in _INTERPOLATIONS:
        raise RuntimeError(f"{name}() interpolation must be one of linear, lower, higher, midpoint or nearest, but got {interpolation}")
    if isinstance(q, Tensor):
        if q.dim() > 1:
            raise RuntimeError(f"{name}() q must be a scalar or 1D tensor")
        if q.dtype != input.dtype:
            raise RuntimeError(f"{name}() q tensor must be same dtype as the input tensor")
        if not bool(((q >= 0) & (q <= 1)).all()):
            raise RuntimeError(f"{name}() q values must be in the range [0, 1]")
    elif not 0 <= q <= 1:
        raise RuntimeError(f"{name}() q must be in the range [0, 1] but got {q:g}")
    qs = (q if isinstance(q, Tensor) else rushlight.tensor(q, dtype=input.dtype))
    if input.numel() == 0:
        raise RuntimeError(f"{name}() input tensor must be non-empty")
    x = (input.reshape(-1) if dim is None else input.reshape(1) if input.dim() == 0 else input.movedim(dim, -1)).sort(-1)[0]
    count = (x == x).sum(-1, keepdim=True)
    last = (count - 1).clamp_min(0) if ignore_nan else count.new_full(count.shape, x.shape[-1] - 1)
    rank = qs.reshape(-1) * last.to(x.dtype)
    if not ignore_nan:
        rank = rank.where(count == x.shape[-1], rank.new_full((), x.shape[-1] - 1))
    if interpolation in ("lower", "higher", "nearest"):
        rank = {"lower": rank.floor, "higher": rank.ceil, "nearest": rank.round}[interpolation]()
    below = rank.detach().to(rushlight.int64)
    low = x.gather(-1, below)
    if interpolation in ("linear", "midpoint"):
        weight = rank.new_full(rank.shape, 0.5) if interpolation == "midpoint" else rank - below.to(rank.dtype)
        low = low.lerp(x.gather(-1, rank.detach().ceil().to(rushlight.int64)), weight)
    low = low.movedim(-1, 0)
    if keepdim and input.dim():
        low = low.reshape([-1] + [1] * input.dim()) if dim is None else low.unsqueeze(dim % input.dim() + 1)
    elif input.dim() == 0:
        low = low.reshape(-1)
    return low if qs.dim() else low.squeeze(0)


def quantile(input: Tensor, q: Any, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear",
             out: Tensor | None = None) -> Tensor:
    """The q-th quantiles of all elements or along dim; NaN where there is one. Several q come first in the shape."""
    result = _quantile(input, q, dim, keepdim, interpolation, False)
    return result if out is None else out.resize_(result.shape).copy_(result)


def nanquantile(input: Tensor, q: Any, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear",
                out: Tensor | None = None) -> Tensor:
    """quantile that passes over NaN."""
    result = _quantile(input, q, dim, keepdim, interpolation, True)
    return result if out is None else out.resize_(result.shape).copy_(result)


# ---- histograms ----

def _ends(x: Tensor, low: float, high: float, around: float) -> tuple[float, float]:
    if low == high and x.numel():
        low, high = float(x.min()), float(x.max())
    if low == high:
        low, high = low - around, high + around
    return low, high


def histc(input: Tensor, bins: int = 100, min: float = 0, max: float = 0, *, out: Tensor | None = None) -> Tensor:
    """Counts of elements in equal bins between min and max (those of the data when equal); elements outside are left out."""
    if bins <= 0:
        raise RuntimeError("torch.histc(): bins must be > 0")
    if not input.is_floating_point():
        raise NotImplementedError(f'"histogram_cpu" not implemented for \'{str(input.dtype).rpartition(".")[2]}\'')
    x = input.detach().reshape(-1)
    low, high = _ends(x, float(min), float(max), 1)
    if not (low < high and abs(low) != float("inf") and abs(high) != float("inf")):
        raise RuntimeError(f"torch.histc: {'max must be larger than min' if low > high else f'range of [{low:g}, {high:g}] is not finite'}")
    x = x[(x >= low) & (x <= high)]
    at = ((x - low) / (high - low) * bins).to(rushlight.int64).clamp(0, bins - 1)
    result = rushlight.bincount(at, minlength=bins).to(input.dtype)
    return result if out is None else out.resize_(result.shape).copy_(result)


def histogram(input: Tensor, bins: Any, *, range: Any = None, weight: Tensor | None = None, density: bool = False) -> Any:
    """Counts (or weights, or a density) between edges, and the edges. bins: a count, or the edges."""
    x = input.detach().reshape(-1)
    if isinstance(bins, Tensor):
        edges = bins
    else:
        first, last = range or (0.0, 0.0)
        low, high = _ends(x, first, last, 0.5)
        edges = rushlight.linspace(low, high, bins + 1, dtype=input.dtype)
    inside = (x >= edges[0]) & (x <= edges[-1])
    at = (searchsorted(edges, x[inside], right=True) - 1).clamp_max(edges.numel() - 2)
    w = None if weight is None else weight.reshape(-1)[inside]
    counts = rushlight.bincount(at, w, minlength=edges.numel() - 1).to(input.dtype)
    if density:
        counts = counts / (counts.sum() * edges.diff())
    return counts, edges
