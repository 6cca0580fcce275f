"""Reading and writing by position: advanced indexing as operators, gather and scatter, rows, masks, counts, embedding, unique, searches."""
from __future__ import annotations

import math

import numpy as np
import pytest
import rushlight as rl
import rushlight.nn.functional as F
from rushlight.autograd import gradcheck, gradgradcheck

rng = np.random.default_rng(5)
L = rl.tensor


def r(*shape):
    return rl.from_numpy(rng.standard_normal(shape))


# ---- advanced indexing as operators ----

def test_duplicates_accumulate():
    x = L([1.0, 2.0], requires_grad=True)
    x[[0, 0, 1]].sum().backward()
    assert x.grad.tolist() == [2, 1]
    y = rl.zeros(3)
    y.index_put_((L([0, 0, 2]),), L([1.0, 2.0, 5.0]), accumulate=True)
    assert y.tolist() == [3, 0, 5] and rl.zeros(3).index_put((L([1]),), L(4.0)).tolist() == [0, 4, 0]


@pytest.mark.parametrize("f", [
    lambda x, v: x[L([0, 2]), L([1, 1])] * v[0, :2], lambda x, v: x[:, L([[0, 1], [2, 0]])].sum(0) * v[:2, :2], lambda x, v: x[L([True,
                                                                                                                                  False, True])] * v[:2],
    lambda x, v: x.index_put((L([0, 0]),), v[:2], accumulate=True), lambda x, v: x.index_put((L([0, 2]),),
                                                                                             v[:2]), lambda x, v: x.index_put((L([1]),
                                                                                                                               L([2])), v[0, 0]),
    lambda x, v: x.gather(1, L([[0, 0], [2, 1]])) * v[:2, :2], lambda x, v: x.scatter(0, L([[1, 1, 2]]),
                                                                                      v), lambda x, v: x.scatter_add(0, L([[1, 1, 2]]), v),
    lambda x, v: x.scatter(1, L([[0], [1]]), 5.0), lambda x, v: x.index_select(1, L([2, 0, 2])) * v, lambda x, v: x.index_add(0, L([1,
                                                                                                                                    1, 0]), v, alpha=2),
    lambda x, v: x.index_copy(0, L([2, 0]), v[:2]), lambda x, v: x.index_fill(1, L([0, -1]), 3.0), lambda x, v: x.index_fill(0, L([1,
                                                                                                                                   1]), v[0, 0]),
    lambda x, v: x.take(L([[0, 8], [8, 4]])) * v[:2, :2], lambda x, v: x.put(L([1, 7]), v[0, :2]), lambda x, v: x.put(L([1, 1]), v[0,
                                                                                                                                   :2], accumulate=True),
    lambda x, v: x.masked_select(L([[True, False, True]])), lambda x, v: x.masked_scatter(L([[True], [False], [True]]),
                                                                                          v), lambda x, v: x.take_along_dim(L([[0],
                                                                                                                               [-1], [1]]), 1),
    lambda x, v: x.scatter_reduce(0, L([[1, 1, 2], [1, 0, 2]]), v, "prod"), lambda x, v: x.scatter_reduce(0, L([[1, 1, 2], [1, 0, 2]]),
                                                                                                          v, "mean"),
    lambda x, v: x.scatter_reduce(0, L([[1, 1, 2], [1, 0, 2]]), v, "amax"), lambda x, v: x.scatter_reduce(0, L([[1, 1, 2], [1, 0, 2]]),
                                                                                                          v, "sum", include_self=False),
    lambda x, v: x.scatter_reduce(0, L([[1, 1, 2], [1, 0, 2]]), v, "amin", include_self=False), lambda x, v: x.sort(0)[0] * v, lambda x, v: x.topk(2)[0] * v[:, :2],
    lambda x, v: x.kthvalue(2, 0)[0] * v[0], lambda x, v: x.median(1)[0] * v[0], lambda x, v: x.quantile(.3, 1) * v[0],
])
def test_gradients(f):
    x, v = r(3, 3).requires_grad_(), r(3, 3).requires_grad_()
    assert gradcheck(f, (x, v)) and gradgradcheck(f, (x, v))


def test_positions_apart_come_first():
    a = rng.standard_normal((2, 3, 4, 5))
    x, i, j = rl.from_numpy(a), np.array([[0], [1]]), np.array([0, 2, 4])
    np.testing.assert_array_equal(x[L(i), :, :, L(j)].numpy(), a[i, :, :, j])
    np.testing.assert_array_equal(x[:, L(i), :, L(j)].numpy(), a[:, i, :, j])
    np.testing.assert_array_equal(x[:, L(i), L(np.array([0, 1, 3]))].numpy(), a[:, i, np.array([0, 1, 3])])
    np.testing.assert_array_equal(x.permute(3, 1, 0, 2)[L(j)].numpy(), a.transpose(3, 1, 0, 2)[j])
    x[L(i), :, :, L(j)] = 7
    b = a.copy()
    b[i, :, :, j] = 7
    np.testing.assert_array_equal(x.numpy(), b)


def test_value_may_be_part_of_what_is_written():
    x = rl.arange(6.0)
    x[L([3, 4, 5])] = x[:3]
    x.index_put_((L([0, 1, 2]),), x[1:4])
    assert x.tolist() == [1, 2, 0, 0, 1, 2]


# ---- gather, scatter, rows ----

def test_scatter_forms():
    x = rl.zeros(2, 3)
    index = L([[0, 1, 0]])
    assert x.scatter(0, index, 2).tolist() == [[2, 0, 2], [0, 2, 0]] and x.scatter_(0, index, L([[1.0, 2,
                                                                                                  3]])) is x and x.tolist() == [[1, 0,
                                                                                                                                 3], [0,
                                                                                                                                      2, 0]]
    assert x.scatter(0, index, 3, reduce="multiply").tolist() == [[3, 0, 9], [0, 6, 0]] and x.scatter(0, index, x[:1],
                                                                                                      reduce="add").tolist()[0][2] == 6
    got = rl.ones(3, dtype=rl.int64).scatter_reduce(0, L([0, 0, 1]), L([5, 6, 7]), "mean", include_self=False)
    assert got.tolist() == [5, 7, 1]
    assert rl.tensor([math.inf, 1]).gather(0, L([1, 1])).tolist() == [1, 1]  # no 0 * inf
    assert rl.ones(3).gather(0, rl.empty(0, dtype=rl.int64)).shape == (0,) and rl.tensor(2.0).gather(0, L(0)).item() == 2


def test_rows():
    x = rl.arange(6.0).view(3, 2)
    assert x.index_select(0, L([2, 0])).tolist() == [[4, 5], [0, 1]] and x.t().index_select(0, L([1], dtype=rl.int32)).tolist() == [[1,
                                                                                                                                     3, 5]]
    assert x.index_add(1, L([0, 0]), rl.ones(3, 2), alpha=.5).tolist() == [[1, 1], [3, 3], [5, 5]]
    assert x.clone().index_copy_(0, L([1]), rl.zeros(1, 2)).tolist() == [[0, 1], [0, 0], [4, 5]] and x.index_fill(0, L([-1]),
                                                                                                                  9).tolist()[2] == [9, 9]
    assert rl.tensor(3.0).index_copy(0, L([0]), L(4.0)).item() == 4 and x.take(L([[-1]])).tolist() == [[5]]
    assert x.index_select(0, rl.empty(0, dtype=rl.int64)).shape == (0, 2)


@pytest.mark.parametrize("call, kind, text", [
    (lambda x: x[L([5])], IndexError, "index 5 is out of bounds for dimension 0 with size 2"),
    (lambda x: x[L([-3])], IndexError, "index -3 is out of bounds for dimension 0 with size 2"),
    (lambda x: x[L([0]), L([0]), L([0])], IndexError, "too many indices for tensor of dimension 2"),
    (lambda x: x[L([0.5])], IndexError, "tensors used as indices must be long, int, byte or bool tensors"),
    (lambda x: x[L([0, 1]), L([0, 1, 2])], IndexError, "shape mismatch: indexing tensors could not be broadcast together with shapes "
                                                       "[2], [3]"),
    (lambda x: x[L([True, False, True])], IndexError, "The shape of the mask [3] at index 0 does not match the shape of the indexed "
                                                      "tensor [2, 3] at index 0"),
    (lambda x: x.index_put_((L([0]),), rl.ones(2)), RuntimeError, "shape mismatch: value tensor of shape [2] cannot be broadcast to "
                                                                  "indexing result of shape [1, 3]"),
    (lambda x: x.index_put_((L([0]),), L([1])), RuntimeError, "Index put requires the source and destination dtypes match, got Float for "
                                                              "the destination and Long "
                                                             "for the source."),
    (lambda x: x.gather(1, L([[3]])), (IndexError, RuntimeError), "index 3 is out of bounds for dimension 1 with size 3"),
    (lambda x: x.gather(1, L([0])), RuntimeError, "Index tensor must have the same number of dimensions as input tensor"),
    (lambda x: x.gather(1, L([[0], [0], [0]])), RuntimeError, "Size does not match at dimension 0 expected index [3, 1] to be no larger "
                                                              "than self [2, 3] apart from "
                                                            "dimension 1"),
    (lambda x: x.scatter(0, L([[2]]), 1.0), (IndexError, RuntimeError), "index 2 is out of bounds for dimension 0 with size 2"),
    (lambda x: x.scatter(0, L([[0, 0]]), rl.ones(1, 1)), RuntimeError, "Expected index [1, 2] to be no larger than self [2, 3] apart "
                                                                       "from dimension 0 and to be no "
                                                                      "larger size than src [1, 1]"),
    (lambda x: x.index_select(0, L([2])), IndexError, "index out of range in self"), (lambda x: x.index_select(0, L([-1])), IndexError,
                                                                                      "index out of range in self"),
    (lambda x: x.index_add(0, L([0, 1]), rl.ones(1, 3)), IndexError, "index_add(): Number of indices (2) should be equal to "
                                                                     "source.size(dim): (1), for dim: 0"),
    (lambda x: F.embedding(L([2]), x), IndexError, "index out of range in self"), (lambda x: F.embedding(L([-1]), x), IndexError, "index "
                                                                                                                                  "out "
                                                                                                                                  "of "
                                                                                                                                  "range "
                                                                                                                                  "in "
                                                                                                                                  "self"),
    (lambda x: F.one_hot(L([3]), 3), RuntimeError, "Class values must be smaller than num_classes."),
    (lambda x: F.one_hot(L([-1])), RuntimeError, "Class values must be non-negative."),
    (lambda x: rl.bincount(L([-1])), RuntimeError, "bincount only supports 1-d non-negative integral inputs."),
    (lambda x: x.masked_select(L([1, 0, 1])), RuntimeError, "masked_select: expected BoolTensor for mask, but got Long"),
    (lambda x: x.masked_scatter_(x > -1, rl.ones(2)), RuntimeError, "masked_scatter: expected self and source to have same dtypes and "
                                                                    "source to have at least"),
])
def test_errors_change_nothing(call, kind, text):
    x = rl.ones(2, 3)
    with pytest.raises(kind) as e:
        call(x)
    assert str(e.value).startswith(text) and x.tolist() == [[1, 1, 1], [1, 1, 1]]


# ---- masks and counts ----

def test_nonzero_and_masks():
    x = L([[0, 1, 0], [2, 0, 3]])
    assert x.nonzero().tolist() == [[0, 1], [1, 0], [1, 2]] and rl.argwhere(x.t()).tolist() == [[0, 1], [1, 0], [2, 1]]
    rows, columns = rl.nonzero(x, as_tuple=True)
    assert rows.tolist() == [0, 1, 1] and columns.tolist() == [1, 0, 2] and L(3).nonzero().shape == (1, 0) and rl.empty(0,
                                                                                                                        2).nonzero().shape == (0, 2)
    assert x.masked_select(x > 1).tolist() == [2, 3] and x.masked_select(L([True, False, False])).tolist() == [0,
                                                                                                               2] and L(3).masked_select(L(True)).tolist() == [3]
    assert x.masked_scatter(x == 0, L([7, 8, 9, 10])).tolist() == [[7, 1, 8], [2, 9, 3]]


def test_counts():
    assert rl.bincount(L([0, 255], dtype=rl.uint8)).numel() == 256 and rl.bincount(rl.empty(0, dtype=rl.int64),
                                                                                   minlength=2).tolist() == [0, 0]
    assert rl.bincount(L([1, 1, 3]), L([.5, 1, 2])).tolist() == [0, 1.5, 0, 2] and F.one_hot(L([[0, 2]])).tolist() == [[[1, 0, 0], [0,
                                                                                                                                    0, 1]]]
    assert rl.histc(L([1.0, 2, 1, 5]), 4, 0, 4).tolist() == [0, 2, 1, 0]


def test_embedding():
    w = r(4, 3).requires_grad_()
    F.embedding(L([[1, 1], [3, 0]]), w, padding_idx=0).sum().backward()
    assert w.grad.tolist() == [[0] * 3, [2] * 3, [0] * 3, [1] * 3]
    w.grad = None
    F.embedding(L([1, 1, 2]), w, scale_grad_by_freq=True).sum().backward()
    assert w.grad.tolist() == [[0] * 3, [1] * 3, [1] * 3, [0] * 3]
    assert F.embedding(rl.empty(2, 0, dtype=rl.int64), w).shape == (2, 0, 3) and F.embedding(L(2), w).shape == (3,)
    assert gradgradcheck(lambda v: F.embedding(L([1, 1, 0]), v, padding_idx=0) ** 2, (w.detach().requires_grad_(),))


# ---- unique, mode, searches, quantiles ----

@pytest.mark.parametrize("shape", [(12,), (3, 4), (0,), ()])
def test_unique(shape):
    a = rng.integers(0, 5, shape)
    values, inverse, counts = rl.unique(L(a), return_inverse=True, return_counts=True)
    want = np.unique(a, return_inverse=True, return_counts=True)
    assert values.tolist() == want[0].tolist() and counts.tolist() == want[2].tolist()
    assert inverse.shape == shape and (values[inverse] == L(a)).all() if a.size else inverse.shape == shape


def test_unique_along_a_dimension_and_consecutive():
    a = np.array([[1, 2], [0, 3], [1, 2], [0, 1]])
    values, inverse, counts = L(a).unique(dim=0, return_inverse=True, return_counts=True)
    assert values.tolist() == [[0, 1], [0, 3], [1, 2]] and inverse.tolist() == [2, 1, 2, 0] and counts.tolist() == [1, 1, 2]
    values, inverse, counts = rl.unique_consecutive(L([1, 1, 2, 2, 1]), return_inverse=True, return_counts=True)
    assert values.tolist() == [1, 2, 1] and inverse.tolist() == [0, 0, 1, 1, 2] and counts.tolist() == [2, 2, 1]
    assert len(L([math.nan, math.nan]).unique()) == 2


def test_mode_and_isin():
    values, indices = L([[1, 2, 2, 3, 3], [5, 5, 1, 1, 4]]).mode(1)
    assert values.tolist() == [2, 1] and indices.tolist() == [2, 3]
    assert rl.isin(L([1, 2, 3]), L([2, 5])).tolist() == [False, True, False] and rl.isin(L([1, 20]), rl.arange(18),
                                                                                         invert=True).tolist() == [False, True]


@pytest.mark.parametrize("right", [False, True])
def test_searchsorted(right):
    seq, v = np.sort(rng.integers(0, 9, 20)).astype(float), rng.integers(-1, 11, (3, 7)).astype(float)
    want = np.searchsorted(seq, v, "right" if right else "left")
    np.testing.assert_array_equal(rl.searchsorted(L(seq), L(v), right=right).numpy(), want)
    np.testing.assert_array_equal(rl.bucketize(L(v), L(seq), right=right).numpy(), want)
    rows = L(np.stack([seq, seq + 1, seq + 2]))
    np.testing.assert_array_equal(rl.searchsorted(rows, L(v), right=right)[1].numpy(), np.searchsorted(seq + 1, v[1],
                                                                                                       "right" if right else "left"))


@pytest.mark.parametrize("how", ["linear", "lower", "higher", "nearest", "midpoint"])
def test_quantiles(how):
    a = rng.standard_normal((4, 7))
    for q in (0.0, .25, .5, .9, 1.0):
        np.testing.assert_allclose(rl.quantile(L(a), q, 1, interpolation=how).numpy(), np.quantile(a, q, 1, method=how))
    got = rl.quantile(L(a), L([.1, .6], dtype=rl.float64), dim=0, keepdim=True, interpolation=how)
    np.testing.assert_allclose(got.numpy(), np.quantile(a, [.1, .6], 0, keepdims=True, method=how))
    a[0, 0] = math.nan
    np.testing.assert_allclose(rl.nanquantile(L(a), .3, 1, interpolation=how).numpy(), np.nanquantile(a, .3, 1, method=how))
    assert math.isnan(rl.quantile(L(a), .3, 1)[0].item())


# ---- composed functions of shape ----

def test_grids_and_stacks():
    x, y = rl.arange(2), rl.arange(3)
    for how in ("ij", "xy"):
        for got, want in zip(rl.meshgrid(x, y, indexing=how), np.meshgrid(x.numpy(), y.numpy(), indexing=how), strict=True):
            np.testing.assert_array_equal(got.numpy(), want)
    assert rl.cartesian_prod(x, y).tolist() == [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2]] and rl.combinations(y).tolist() == [[0,
                                                                                                                                     1], [0, 2], [1, 2]]
    assert rl.block_diag(rl.ones(1, 2), L([3.0])).tolist() == [[1, 1, 0], [0, 0, 3]] and rl.atleast_3d(y).shape == (1, 3, 1)
    assert tuple(rl.broadcast_shapes((2, 1), (3,), 1)) == (2, 3) and [t.shape for t in rl.broadcast_tensors(rl.ones(2, 1), y)] == [(2,
                                                                                                                                    3)] * 2
    assert rl.rot90(rl.arange(4).view(2, 2)).tolist() == [[1, 3], [0, 2]] and [t.tolist() for t in rl.unravel_index(L([5, 3]), (2,
                                                                                                                                3))] == [[1, 1], [2, 0]]
    with pytest.raises(RuntimeError, match="Shape mismatch"):
        rl.broadcast_shapes((2,), (3,))


def test_statistics():
    a = rng.standard_normal((3, 8))
    np.testing.assert_allclose(rl.cov(L(a)).numpy(), np.cov(a))
    np.testing.assert_allclose(rl.corrcoef(L(a)).numpy(), np.corrcoef(a))
    np.testing.assert_allclose(rl.trapezoid(L(a), dx=.5).numpy(), np.trapezoid(a, dx=.5) if hasattr(np, "trapezoid") else np.trapz(a,
                                                                                                                                   dx=.5))
    for got, want in zip(rl.gradient(L(a), spacing=2.0), np.gradient(a, 2.0), strict=True):
        np.testing.assert_allclose(got.numpy(), want)
    x, y = rng.standard_normal((4, 3)), rng.standard_normal((5, 3))
    for p in (1.0, 2.0, math.inf):
        np.testing.assert_allclose(rl.cdist(L(x), L(y), p).numpy(), np.linalg.norm(x[:, None] - y, p, -1))
        np.testing.assert_allclose(rl.linalg.matrix_norm(L(x), "fro" if p == 2 else p).numpy(), np.linalg.norm(x, "fro" if p == 2 else p))
    assert rl.norm(L([3.0, 4.0])).item() == 5 and L([3.0, -4.0]).norm(1).item() == 7 and rl.dist(L([1.0]), L([3.0])).item() == 2
