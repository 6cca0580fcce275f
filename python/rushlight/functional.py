"""Functions of the package that are composed of operators in Python: contractions, broadcasting, norms, grids, distances.

Loaded when one of them is first named. Gradients come from the operators that they are made of. Order and counting stand in `_order.py`.
"""
from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import rushlight

from . import _C
from ._C import Size, Tensor
from ._einsum import einsum
from ._order import (
    bucketize,
    histc,
    histogram,
    isin,
    mode,
    nanquantile,
    nonzero,
    quantile,
    searchsorted,
    unique,
    unique_consecutive,
)
from ._statistics import corrcoef, cov, cumulative_trapezoid, gradient, trapezoid, trapz

__all__ = ["atleast_1d", "atleast_2d", "atleast_3d", "block_diag", "broadcast_shapes", "broadcast_tensors", "bucketize",
           "cartesian_prod", "cdist", "chain_matmul", "combinations", "corrcoef", "cov", "cross", "cumulative_trapezoid", "dist",
           "dsplit", "einsum", "fill", "fliplr", "flipud", "gradient", "histc", "histogram", "hsplit", "isin", "kron", "meshgrid",
           "mode", "nanquantile", "nonzero", "norm", "quantile", "renorm", "rot90", "searchsorted", "tensordot", "trapezoid", "trapz",
           "unique", "unique_consecutive", "unravel_index", "vander", "vsplit"]


# ---- shapes ----

def broadcast_shapes(*shapes: Any) -> Size:
    """The shape that tensors of these shapes have together. RuntimeError when they do not fit."""
    shapes = tuple((s,) if isinstance(s, int) else tuple(s) for s in shapes)
    ndim = max((len(s) for s in shapes), default=0)
    out = [1] * ndim
    for shape in shapes:
        for i in range(-1, -1 - len(shape), -1):
            if shape[i] < 0:
                raise RuntimeError(f"Trying to create tensor with negative dimension ({shape[i]}): ({shape[i]})")
            if shape[i] != 1 and shape[i] != out[i]:
                if out[i] != 1:
                    raise RuntimeError("Shape mismatch: objects cannot be broadcast to a single shape")
                out[i] = shape[i]
    return Size(out)


def _given(tensors: tuple[Any, ...]) -> list[Tensor]:
    return list(tensors[0]) if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)) else list(tensors)


def broadcast_tensors(*tensors: Any) -> tuple[Tensor, ...]:
    """Views of the tensors in the shape that they have together."""
    given = _given(tensors)
    if not given:
        return ()
    ndim = max(t.dim() for t in given)
    shape = [1] * ndim
    for t in given:
        for i in range(-1, -1 - t.dim(), -1):
            if t.shape[i] != 1 and t.shape[i] != shape[i]:
                if shape[i] != 1:
                    raise RuntimeError(f"The size of tensor a ({shape[i]}) must match the size of tensor b ({t.shape[i]}) at non-singleton "
                                       f"dimension {ndim + i}")
                shape[i] = t.shape[i]
    return tuple(t.expand(shape) for t in given)


def _atleast(tensors: tuple[Any, ...], one: Any) -> Any:
    if len(tensors) == 1 and isinstance(tensors[0], Tensor):
        return one(tensors[0])
    return tuple(one(t) for t in _given(tensors))


def atleast_1d(*tensors: Any) -> Any:
    """The tensor, or the tensors, with at least 1 dimension."""
    return _atleast(tensors, lambda t: t.reshape(1) if t.dim() == 0 else t)


def atleast_2d(*tensors: Any) -> Any:
    """The tensor, or the tensors, with at least 2 dimensions: (n) becomes (1, n)."""
    return _atleast(tensors, lambda t: t.reshape(1, 1) if t.dim() == 0 else t.unsqueeze(0) if t.dim() == 1 else t)


def _three(t: Tensor) -> Tensor:
    return t.reshape(1, 1, 1) if t.dim() == 0 else t.unsqueeze(0).unsqueeze(-1) if t.dim() == 1 else t.unsqueeze(-1) if t.dim() == 2 else t


def atleast_3d(*tensors: Any) -> Any:
    """The tensor, or the tensors, with at least 3 dimensions: (n) becomes (1, n, 1), (m, n) becomes (m, n, 1)."""
    return _atleast(tensors, _three)


def _split_along(name: str, least: int, input: Tensor, how: Any, dim: int) -> tuple[Tensor, ...]:
    if input.dim() < least:
        raise RuntimeError(f"torch.{name} requires a tensor with at least {least} dimension, but got a tensor "
                           f"with "
                           f"{input.dim()} dimensions!")
    if isinstance(how, int):
        if how <= 0 or input.shape[dim] % how:
            raise RuntimeError(f"torch.{name} attempted to split along dimension {dim}, but the size of the dimension {input.shape[dim]} "
                               f"is not "
                               f"divisible by the split_size {how}!")
    return input.tensor_split(how, dim)


def hsplit(input: Tensor, indices_or_sections: Any) -> tuple[Tensor, ...]:
    """Parts along dimension 1 (0 of a vector), by count or by positions."""
    return _split_along("hsplit", 1, input, indices_or_sections, 0 if input.dim() == 1 else 1)


def vsplit(input: Tensor, indices_or_sections: Any) -> tuple[Tensor, ...]:
    """Parts along dimension 0."""
    return _split_along("vsplit", 2, input, indices_or_sections, 0)


def dsplit(input: Tensor, indices_or_sections: Any) -> tuple[Tensor, ...]:
    """Parts along dimension 2."""
    return _split_along("dsplit", 3, input, indices_or_sections, 2)


def fliplr(input: Tensor) -> Tensor:
    """The columns in reverse order."""
    if input.dim() < 2:
        raise RuntimeError("Input must be >= 2-d.")
    return input.flip(1)


def flipud(input: Tensor) -> Tensor:
    """The rows in reverse order."""
    if input.dim() < 1:
        raise RuntimeError("Input must be >= 1-d.")
    return input.flip(0)


def rot90(input: Tensor, k: int = 1, dims: Sequence[int] = (0, 1)) -> Tensor:
    """Turned by k quarters from the first towards the second of two dimensions."""
    if len(dims) != 2:
        raise RuntimeError(f"expected total rotation dims == 2, but got dims = {len(dims)}")
    if input.dim() < 2:
        raise RuntimeError(f"expected total dims >= 2, but got total dims = {input.dim()}")
    a, b = (d % input.dim() if -input.dim() <= d < input.dim() else d for d in dims)
    if a == b:
        raise RuntimeError(f"expected rotation dims to be different, but got dim0 = {dims[0]} and dim1 = {dims[1]}")
    for d in (a, b):
        if not 0 <= d < input.dim():
            raise RuntimeError(f"Rotation dim{'0' if d == a else '1'} out of range, dim{'0' if d == a else '1'} = {d}")
    k %= 4
    if k == 1:
        return input.flip(b).transpose(a, b)
    if k == 2:
        return input.flip(a, b)
    return input.flip(a).transpose(a, b) if k == 3 else input.clone()


def fill(input: Tensor, value: Any) -> Tensor:
    """A copy filled with one value."""
    return input.clone().fill_(value)


def unravel_index(indices: Tensor, shape: Any) -> tuple[Tensor, ...]:
    """Coordinates in `shape` of flat positions."""
    if not isinstance(indices, Tensor) or indices.is_floating_point() or indices.dtype == rushlight.bool:
        raise ValueError(f"expected 'indices' to be integer dtype, but got {getattr(indices, 'dtype', type(indices))}")
    sizes = [shape] if isinstance(shape, int) else list(shape)
    indices = indices.to(rushlight.int64)
    if any(s < 0 for s in sizes):
        raise ValueError(f"'shape' cannot have negative values, but got {tuple(sizes)}")
    coordinates = []
    for size in reversed(sizes):
        coordinates.append(indices % size)
        indices = indices.div(size, rounding_mode="floor")
    return tuple(reversed(coordinates))


# ---- grids ----

def meshgrid(*tensors: Any, indexing: str | None = None) -> tuple[Tensor, ...]:
    """Grids of coordinates from vectors: out[k] has shape (n0, n1, …); indexing="xy" swaps the first two."""
    given = _given(tensors)
    if indexing is None:
        import warnings
        warnings.warn("torch.meshgrid: in an upcoming release, it will be required to pass the indexing argument.", stacklevel=2)
        indexing = "ij"
    if indexing not in ("ij", "xy"):
        raise RuntimeError(f'torch.meshgrid: indexing must be one of "xy" or "ij", but received: {indexing}')
    if not given:
        raise RuntimeError("meshgrid expects a non-empty TensorList")
    for t in given:
        if t.dim() > 1:
            raise RuntimeError(f"torch.meshgrid: Expected 0D or 1D tensor in the tensor list but got: {t}")
        if t.dtype != given[0].dtype:
            raise RuntimeError("torch.meshgrid expects all tensors to have the same dtype")
    swap = indexing == "xy" and len(given) >= 2
    if swap:
        given[0], given[1] = given[1], given[0]
    shape = [t.numel() for t in given]
    grids = [t.reshape([-1 if j == k else 1 for j in range(len(given))]).expand(shape) for k, t in enumerate(given)]
    if swap:
        grids[0], grids[1] = grids[1], grids[0]
    return tuple(grids)


def cartesian_prod(*tensors: Any) -> Tensor:
    """All pairs, triples … of the vectors' elements, one a row."""
    given = _given(tensors)
    for t in given:
        if t.dim() != 1:
            raise RuntimeError(f"Expect a 1D vector, but got shape {list(t.shape)}")
    if len(given) == 1:
        return given[0]
    return rushlight.stack([g.flatten() for g in meshgrid(given, indexing="ij")], dim=1)


def combinations(input: Tensor, r: int = 2, with_replacement: bool = False) -> Tensor:
    """All choices of r elements of a vector, one a row."""
    if input.dim() != 1:
        raise RuntimeError(f"Expect a 1D vector, but got shape {list(input.shape)}")
    if r < 0:
        raise RuntimeError(f"Expect a non-negative number, but got {r}")
    if r == 0:
        return input[:0]
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    rows = list(choose(range(input.numel()), r))
    return input[rushlight.tensor(rows, dtype=rushlight.int64).reshape(len(rows), r)]


def block_diag(*tensors: Any) -> Tensor:
    """The matrices along the diagonal of a matrix of zeros."""
    if not tensors:
        return rushlight.empty((1, 0))
    blocks = []
    for k, t in enumerate(_given(tensors)):
        if t.dim() > 2:
            raise RuntimeError(f"torch.block_diag: Input tensors must have 2 or fewer dimensions. Input {k} has {t.dim()} dimensions")
        blocks.append(atleast_2d(t))
    dtype = blocks[0].dtype
    for b in blocks[1:]:
        dtype = rushlight.promote_types(dtype, b.dtype)
    width, before, rows = sum(b.shape[1] for b in blocks), 0, []
    for b in blocks:
        b = b.to(dtype)
        after = width - before - b.shape[1]
        rows.append(rushlight.cat([b.new_zeros(b.shape[0], before), b, b.new_zeros(b.shape[0], after)], 1))
        before += b.shape[1]
    return rushlight.cat(rows, 0)


def vander(x: Tensor, N: int | None = None, increasing: bool = False) -> Tensor:
    """Powers of a vector's elements in columns, falling unless `increasing`."""
    if x.dim() != 1:
        raise RuntimeError("x must be a one-dimensional tensor.")
    n = x.numel() if N is None else N
    if n < 0:
        raise RuntimeError("N must be non-negative.")
    powers = rushlight.arange(n, dtype=x.dtype) if increasing else rushlight.arange(n - 1, -1, -1, dtype=x.dtype)
    return x.unsqueeze(1) ** powers


# ---- products ----

def tensordot(a: Tensor, b: Tensor, dims: Any = 2, out: Tensor | None = None) -> Tensor:
    """Sums products over pairs of dimensions: the last `dims` of a with the first of b, or two lists of dimensions."""
    if isinstance(dims, Tensor):
        dims = dims.tolist()
    if isinstance(dims, int):
        if dims < 0:
            raise RuntimeError(f"tensordot expects dims >= 0, but got dims={dims}")
        if dims > min(a.dim(), b.dim()):
            raise RuntimeError(f"tensordot expects dims < ndim_a or ndim_b, but got dims={dims}")
        over_a, over_b = list(range(a.dim() - dims, a.dim())), list(range(dims))
    else:
        over_a, over_b = ([d] if isinstance(d, int) else list(d) for d in dims)
    if len(over_a) != len(over_b):
        raise RuntimeError("both dimension lists should have same length")
    over_a, over_b = [d % max(a.dim(), 1) for d in over_a], [d % max(b.dim(), 1) for d in over_b]
    for i, j in zip(over_a, over_b, strict=True):
        if a.shape[i] != b.shape[j] and 1 not in (a.shape[i], b.shape[j]):
            raise RuntimeError(f"contracted dimensions need to match, but first has size {a.shape[i]} in dim {i} and second has size "
                               f"{b.shape[j]} "
                               f"in dim {j}")
        if a.shape[i] != b.shape[j]:
            a, b = (a.sum(i, keepdim=True), b) if b.shape[j] == 1 else (a, b.sum(j, keepdim=True))
    keep_a, keep_b = [d for d in range(a.dim()) if d not in over_a], [d for d in range(b.dim()) if d not in over_b]
    shape = [a.shape[d] for d in keep_a] + [b.shape[d] for d in keep_b]
    size = math.prod(a.shape[d] for d in over_a)
    left = a.permute(keep_a + over_a).reshape(math.prod(a.shape[d] for d in keep_a), size)
    right = b.permute(over_b + keep_b).reshape(size, math.prod(b.shape[d] for d in keep_b))
    result = left.mm(right).reshape(shape)
    return result if out is None else out.resize_(shape).copy_(result)


def _chain_order(sizes: list[int]) -> dict[tuple[int, int], int]:
    """Where to split products i..j for the fewest multiplications; matrix i is (sizes[i], sizes[i + 1])."""
    n = len(sizes) - 1
    cost, split = {(i, i): 0 for i in range(n)}, {}
    for length in range(1, n):
        for i in range(n - length):
            j = i + length
            cost[i, j], split[i, j] = min((cost[i, k] + cost[k + 1, j] + sizes[i] * sizes[k + 1] * sizes[j + 1], k) for k in range(i, j))
    return split


def chain_matmul(*matrices: Any, out: Tensor | None = None) -> Tensor:
    """The product of matrices in the order of the fewest multiplications."""
    given = _given(matrices)
    if not given:
        raise RuntimeError("chain_matmul(): Expected one or more matrices")
    for m in given:
        if m.dim() != 2:
            raise RuntimeError(f"Tensor dimension is {m.dim()}, expected 2 instead.")
    split = _chain_order([given[0].shape[0], *(m.shape[1] for m in given)])

    def product(i: int, j: int) -> Tensor:
        return given[i] if i == j else product(i, split[i, j]) @ product(split[i, j] + 1, j)

    result = product(0, len(given) - 1)
    return result if out is None else out.resize_(result.shape).copy_(result)


def kron(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The Kronecker product: every element of input times the whole of other."""
    n = max(input.dim(), other.dim())
    a, b = input.reshape([1] * (n - input.dim()) + list(input.shape)), other.reshape([1] * (n - other.dim()) + list(other.shape))
    shape = [x * y for x, y in zip(a.shape, b.shape, strict=True)]
    wide_a = a.reshape([s for x in a.shape for s in (x, 1)])
    wide_b = b.reshape([s for y in b.shape for s in (1, y)])
    result = (wide_a * wide_b).reshape(shape)
    return result if out is None else out.resize_(shape).copy_(result)


def cross(input: Tensor, other: Tensor, dim: int | None = None, *, out: Tensor | None = None) -> Tensor:
    """The cross product along a dimension of size 3 (the first one by default)."""
    a, b = broadcast_tensors(input, other)
    if dim is None:
        dim = next((d for d in range(a.dim()) if a.shape[d] == 3), -1)
        if dim < 0:
            raise RuntimeError("no dimension of size 3 in input")
    if a.shape[dim] != 3:
        raise RuntimeError(f"linalg.cross: inputs dimension {dim} must have length 3. Got {input.shape[dim]} and {other.shape[dim]}")
    result = a.roll(-1, dim) * b.roll(-2, dim) - a.roll(-2, dim) * b.roll(-1, dim)
    return result if out is None else out.resize_(result.shape).copy_(result)


# ---- norms and distances ----

def norm(input: Tensor, p: Any = "fro", dim: Any = None, keepdim: bool = False, out: Tensor | None = None, dtype: Any = None) -> Tensor:
    """The p-norm of all elements, or along dim: a number, ±inf, or "fro" (2). "nuc" needs singular values, which rushlight lacks."""
    if isinstance(p, str):
        if p == "nuc":
            raise NotImplementedError("norm(p='nuc'): rushlight has no singular value decomposition")
        if p != "fro":
            raise RuntimeError(f"linalg.matrix_norm: Order {p} not supported.")
        p = 2
    result = _C.linalg_vector_norm(input, 2 if p is None else p, dim, keepdim, dtype=dtype)
    return result if out is None else out.resize_(result.shape).copy_(result)


def dist(input: Tensor, other: Tensor, p: float = 2) -> Tensor:
    """The p-norm of the difference."""
    return norm(input - other, p)


def renorm(input: Tensor, p: float, dim: int, maxnorm: float) -> Tensor:
    """Every part along dim whose p-norm is above maxnorm is scaled down to it."""
    if p <= 0:
        raise RuntimeError("renorm: non-positive-norm not supported")
    if maxnorm < 0:
        raise RuntimeError("renorm: expected maxnorm to be >= 0")
    if input.dim() < 2:
        raise RuntimeError(f"renorm: input needs at least 2 dimensions, got {input.dim()} dimensions")
    dim %= input.dim()
    size = norm(input, p, [d for d in range(input.dim()) if d != dim], True)
    return input * rushlight.where(size > maxnorm, maxnorm / (size + 1e-7), rushlight.ones_like(size))


def cdist(x1: Tensor, x2: Tensor, p: float = 2.0, compute_mode: str = "use_mm_for_euclid_dist_if_necessary") -> Tensor:
    """Distances between all rows of (*, P, M) and (*, R, M): (*, P, R)."""
    if x1.dim() < 2 or x2.dim() < 2:
        raise RuntimeError(f"cdist only supports at least 2D tensors, X{1 if x1.dim() < 2 else 2} got: {min(x1.dim(), x2.dim())}D")
    if x1.shape[-1] != x2.shape[-1]:
        raise RuntimeError(f"X1 and X2 must have the same number of columns. X1: {x1.shape[-1]} X2: {x2.shape[-1]}")
    if p < 0:
        raise RuntimeError("cdist only supports non-negative p values")
    difference = x1.unsqueeze(-2) - x2.unsqueeze(-3)
    if p == 0:  # a count, whose gradient is 0
        return difference.where(difference.new_zeros((), dtype=rushlight.bool), (difference != 0).to(difference.dtype)).sum(-1)
    return norm(difference, p, -1)
