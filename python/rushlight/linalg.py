"""torch.linalg, as far as it needs no factorisation: norms, products, diagonals. A function that needs one is missing by name."""
from __future__ import annotations

import math
from typing import Any

from . import _C
from ._C import Tensor
from .functional import chain_matmul
from .functional import cross as _cross

__all__ = ["cross", "diagonal", "matmul", "matrix_norm", "matrix_power", "multi_dot", "norm", "vander", "vecdot", "vector_norm"]

matmul = _C.matmul


def _into(result: Tensor, out: Tensor | None) -> Tensor:
    return result if out is None else out.resize_(result.shape).copy_(result)


def vector_norm(x: Tensor, ord: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None, out: Tensor | None = None) -> Tensor:
    """(sum |x|^ord)^(1/ord) of all elements or along dim; ±inf: the extremes; 0: how many are not 0."""
    return _into(_C.linalg_vector_norm(x, ord, dim, keepdim, dtype=dtype), out)


def matrix_norm(A: Tensor, ord: Any = "fro", dim: Any = (-2, -1), keepdim: bool = False, *, dtype: Any = None,
                out: Tensor | None = None) -> Tensor:
    """Norms of the matrices in two dimensions: "fro", ±1, ±inf. 2, -2 and "nuc" need singular values, which rushlight lacks."""
    dim = tuple(dim)
    if len(dim) != 2:
        raise RuntimeError(f"linalg.matrix_norm: dim must be a 2-tuple. Got {' '.join(map(str, dim))}")
    if A.dim() < 2:
        raise RuntimeError("linalg.matrix_norm: The input tensor A must have at least 2 dimensions.")
    if not A.is_floating_point():
        raise RuntimeError("linalg.matrix_norm: Expected a floating point or complex tensor as input. Got "
                           f"{str(A.dtype).rpartition('.')[2].title()}")
    if ord == "fro":
        return vector_norm(A, 2, dim, keepdim, dtype=dtype, out=out)
    if ord in (2, -2, "nuc"):
        raise NotImplementedError(f"linalg.matrix_norm(ord={ord!r}): rushlight has no singular value decomposition")
    if isinstance(ord, str) or abs(ord) not in (1, math.inf):
        raise RuntimeError(f"linalg.matrix_norm: Order {ord} not supported.")
    rows, columns = (d % A.dim() for d in dim)
    summed, searched = (rows, columns) if abs(ord) == 1 else (columns, rows)
    x = A if dtype is None else A.to(dtype)
    sums = x.abs().sum(summed, keepdim=True)
    best = sums.amax(searched, keepdim=True) if ord > 0 else sums.amin(searched, keepdim=True)
    return _into(best if keepdim else best.squeeze((rows, columns)), out)


def norm(A: Tensor, ord: Any = None, dim: Any = None, keepdim: bool = False, *, out: Tensor | None = None, dtype: Any = None) -> Tensor:
    """Of all elements; with ord of a matrix, or two dims: matrix_norm; else vector_norm."""
    dims = (dim,) if isinstance(dim, int) else dim
    if ord is None:
        return vector_norm(A, 2, dims, keepdim, dtype=dtype, out=out)
    if dims is not None and len(dims) not in (1, 2):
        raise RuntimeError(f"linalg.norm: If dim is specified, it must be of length 1 or 2. Got {list(dims)}")
    if dims is None and A.dim() not in (1, 2):
        raise RuntimeError(f"linalg.norm: If dim is not specified but ord is, the input must be 1D or 2D. Got {A.dim()}D.")
    if isinstance(ord, str) or (len(dims) == 2 if dims is not None else A.dim() == 2):
        return matrix_norm(A, ord, dims if dims is not None else (0, 1), keepdim, dtype=dtype, out=out)
    return vector_norm(A, ord, dims, keepdim, dtype=dtype, out=out)


def vecdot(x: Tensor, y: Tensor, *, dim: int = -1, out: Tensor | None = None) -> Tensor:
    """Products of vectors along dim, the rest broadcast."""
    return _into((x * y).sum(dim), out)


def diagonal(A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """A view of the diagonals of the matrices in two dimensions."""
    return A.diagonal(offset, dim1, dim2)


def vander(x: Tensor, *, N: int | None = None) -> Tensor:
    """Powers 0 … N - 1 of the elements in the last dimension: (*, n) gives (*, n, N)."""
    n = x.shape[-1] if N is None else N
    if n <= 1 and N is not None:
        raise RuntimeError("N must be greater than 1.")
    x = x.reshape(1) if x.dim() == 0 else x
    wide = x.unsqueeze(-1).expand(*x.shape, n)
    return _C.cat([wide.new_ones((*x.shape, 1)), wide[..., 1:]], -1).cumprod(-1)


def cross(input: Tensor, other: Tensor, *, dim: int = -1, out: Tensor | None = None) -> Tensor:
    """The cross product along dim, of size 3."""
    if input.dim() != other.dim():
        raise RuntimeError("linalg.cross: inputs must have the same number of dimensions.")
    if not -input.dim() <= dim < input.dim():
        raise IndexError(f"Dimension out of range (expected to be in range of [{-input.dim()}, {input.dim() - 1}], but got {dim})")
    if input.shape[dim] != 3 or other.shape[dim] != 3:
        raise RuntimeError(f"linalg.cross: inputs dimension {dim} must have length 3. Got {input.shape[dim]} and {other.shape[dim]}")
    return _cross(input, other, dim, out=out)


def multi_dot(tensors: Any, *, out: Tensor | None = None) -> Tensor:
    """The product of matrices in the order of the fewest multiplications; the first and the last may be vectors."""
    given = list(tensors)
    if len(given) < 2:
        raise RuntimeError("multi_dot(): expected at least 2 tensors but got " + str(len(given)))
    first, last = given[0].dim() == 1, given[-1].dim() == 1
    if first:
        given[0] = given[0].unsqueeze(0)
    if last:
        given[-1] = given[-1].unsqueeze(1)
    for k, t in enumerate(given):
        if t.dim() != 2:
            raise RuntimeError(f"multi_dot(): tensor {k} must be 2D but got {t.dim()}D" if 0 < k < len(given) - 1 else
                               f"multi_dot(): the {'first' if k == 0 else 'last'} tensor must be 1D or 2D but got {t.dim()}D")
    result = chain_matmul(*given)
    result = result.squeeze(0) if first else result
    return _into(result.squeeze(-1) if last else result, out)


def matrix_power(A: Tensor, n: int, *, out: Tensor | None = None) -> Tensor:
    """A multiplied n times by itself; n == 0: the identity. Negative powers need an inverse, which rushlight lacks."""
    if A.dim() < 2 or A.shape[-1] != A.shape[-2]:
        raise RuntimeError(f"linalg.matrix_power: A must be batches of square matrices, but they are "
                           f"{' by '.join(map(str, A.shape[-2:]))} matrices")
    if n < 0:
        raise NotImplementedError(f"linalg.matrix_power(n={n}): rushlight has no matrix inverse")
    if n == 0:
        eye = A.new_zeros(A.shape[-1], A.shape[-1])
        eye.diagonal().fill_(1)
        return _into(A.where(A.new_zeros((), dtype=_C.bool), eye), out)  # the gradient of A is 0
    result, square = None, A
    while n:
        if n & 1:
            result = square if result is None else result @ square
        n >>= 1
        square = square @ square if n else square
    assert result is not None  # n > 0 has a lowest bit
    return _into(result.clone() if result is A else result, out)
