"""Reductions and scans beyond the rows of op_table.py: empty and 0-dim tensors, NaN, ties, dtypes, layouts, error texts, second order."""
from __future__ import annotations

import math

import numpy as np
import pytest
import rushlight as rl
from rushlight.autograd import gradcheck, gradgradcheck

nan, inf = math.nan, math.inf


def t(values, **kw):
    return rl.tensor(values, dtype=rl.float64, **kw)


def grad(f, values):
    x = t(values, requires_grad=True)
    f(x).sum().backward()
    return x.grad.tolist()


# ---- empty, 0-dim, dtypes ----

def test_identities_of_nothing():
    e = rl.empty(0, 3)
    assert e.sum().item() == 0 and e.prod().item() == 1 and math.isnan(e.mean().item())
    assert e.any().item() is False and e.all().item() is True and e.count_nonzero().item() == 0
    assert e.sum(0).tolist() == [0, 0, 0] and e.sum(1).shape == (0,) and e.prod(0).tolist() == [1, 1, 1]
    assert all(math.isnan(v) for v in e.mean(0).tolist()) and e.logsumexp(0).tolist() == [-inf] * 3
    assert e.norm().item() == 0 and math.isnan(e.var().item()) and e.cumsum(0).shape == (0, 3)


@pytest.mark.parametrize("call, kind, text", [
    (lambda e: e.max(), RuntimeError, "max(): Expected reduction dim to be specified for input.numel() == 0. Specify the reduction dim "
                                      "with the 'dim' argument."),
    (lambda e: e.max(0), IndexError, "max(): Expected reduction dim 0 to have non-zero size."),
    (lambda e: e.argmax(), IndexError, "argmax(): Expected reduction dim to be specified for input.numel() == 0."),
    (lambda e: e.amin(0), IndexError, "amin(): Expected reduction dim 0 to have non-zero size."),
    (lambda e: e.aminmax(), RuntimeError, "aminmax(): cannot compute aminmax over an empty dimension as the operation has no identity."),
    (lambda e: e.median(0), IndexError, "median(): Expected reduction dim 0 to have non-zero size."),
    (lambda e: e.sum(2), IndexError, "Dimension out of range (expected to be in range of [-2, 1], but got 2)"),
    (lambda e: e.sum((0, -2)), RuntimeError, "dim 0 appears multiple times in the list of dims"),
    (lambda e: rl.ones(2, dtype=rl.int64).mean(), RuntimeError, "mean(): could not infer output dtype. Input dtype must be either a "
                                                                "floating point or "
                                                               "complex dtype. Got: Long"),
    (lambda e: rl.ones(2, dtype=rl.int64).std(), RuntimeError, "std and var only support floating point and complex dtypes"),
    (lambda e: rl.ones(2, dtype=rl.bool).argmax(), RuntimeError, "argmax(): does not support bool input"),
    (lambda e: rl.ones(2, 2, 2).trace(), RuntimeError, "trace: expected a matrix, but got tensor with dim 3"),
    (lambda e: rl.ones(2).diff(n=-1), RuntimeError, "order must be non-negative but got -1"),
])
def test_errors(call, kind, text):
    with pytest.raises(kind) as e:
        call(rl.empty(0, 3))
    assert str(e.value).startswith(text)


def test_a_dimension_that_is_left_may_be_empty():
    values, indices = rl.empty(0, 3).max(1)
    assert values.shape == indices.shape == (0,) and rl.empty(3, 0).argmax(0).shape == (0,)


def test_zero_dim():
    x = rl.tensor(3.0)
    assert x.sum(0).item() == 3 and x.sum(-1, keepdim=True).shape == () and x.max(0).indices.item() == 0
    assert x.cumsum(0).item() == 3 and math.isnan(x.std().item()) and x.var(0, correction=0).item() == 0
    with pytest.raises(IndexError, match=r"\[-1, 0\], but got 1"):
        x.sum(1)


def test_small_integers_do_not_wrap():
    assert rl.ones(300, dtype=rl.uint8).sum().item() == 300
    for d in (rl.bool, rl.int8, rl.int32):
        assert rl.ones(3, dtype=d).sum().dtype == rl.ones(3, dtype=d).prod().dtype == rl.ones(3, dtype=d).cumsum(0).dtype == rl.int64
    assert rl.ones(3).sum(dtype=rl.int32).dtype == rl.int32 and rl.ones(3, dtype=rl.int32).mean(dtype=rl.float64).dtype == rl.float64
    assert rl.ones(2, dtype=rl.uint8).any().dtype == rl.uint8 and rl.ones(2).any().dtype == rl.bool


def test_half_accumulates_wide():
    assert rl.full((3,), 40000.0, dtype=rl.float16).mean().item() == 40000
    assert rl.ones(4097, dtype=rl.bfloat16).sum().item() == 4096  # one rounding, at the end
    assert rl.ones(2**20 + 2).sum().item() == 2**20 + 2


def test_variance_is_stable():
    x = rl.randn(10000, dtype=rl.float32) + 1e5
    assert abs(x.var().item() - np.var(x.numpy().astype(np.float64), ddof=1)) < 0.01
    assert rl.full((9,), 1e5).var().item() == 0 and rl.tensor([1e-30, 3e-30]).var().item() >= 0
    assert rl.tensor([1.0, 2, 3]).std().item() == 1 and rl.tensor([5.0]).var(correction=0).item() == 0


@pytest.mark.parametrize("shape, dims", [((2, 3, 4), (0, 2)), ((2, 3, 4), (1,)), ((4, 1, 5), (0,)), ((2, 2, 2, 2, 2, 2, 2, 2, 2, 2), (1,
                                                                                                                                      3, 5, 7, 9))])
@pytest.mark.parametrize("order", ["plain", "reversed"])
def test_any_layout(shape, dims, order):
    a = np.random.default_rng(0).standard_normal(shape)
    x = rl.from_numpy(a)
    if order == "reversed":
        x, a, dims = x.permute(*range(len(shape))[::-1]), a.transpose(), tuple(len(shape) - 1 - d for d in dims)
    for keep in (False, True):
        np.testing.assert_allclose(x.sum(dims, keepdim=keep).numpy(), a.sum(dims, keepdims=keep), rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(x.amax(dims, keepdim=keep).numpy(), a.max(dims, keepdims=keep))
        np.testing.assert_allclose(x.std(dims, keepdim=keep, correction=0).numpy(), a.std(dims, keepdims=keep), rtol=1e-12)
    assert x.argmax().item() == a.argmax()
    np.testing.assert_array_equal(x.argmin(dims[0]).numpy(), a.argmin(dims[0]))
    assert x.expand(3, *x.shape).sum().item() == pytest.approx(3 * a.sum())


# ---- NaN and ties ----

def test_nan_wins_and_comes_first():
    x = rl.tensor([[1.0, nan, 3], [nan, nan, 0]])
    assert math.isnan(x.max().item()) and math.isnan(x.amin().item()) and x.argmax().item() == 1
    values, indices = x.min(1)
    assert all(map(math.isnan, values.tolist())) and indices.tolist() == [1, 0]
    assert x.nansum().item() == 4 and x.nanmean(1).tolist() == [2, 0] and x.nanmedian().item() == 1
    assert math.isnan(x.median().item()) and rl.tensor([1.0, nan]).cummax(0)[1].tolist() == [0, 1]


def test_first_index_of_equals():
    assert rl.tensor([1, 3, 3]).max(0).indices.item() == 1 and rl.tensor([3, 1, 1]).argmin().item() == 1
    assert rl.tensor([1, 3, 3, 2]).cummax(0).indices.tolist() == [0, 1, 2, 2]


@pytest.mark.parametrize("f, values, want", [
    (lambda x: x.max(), [1, 3, 3], [0, .5, .5]), (lambda x: x.max(0)[0], [1, 3, 3], [0, 1, 0]), (lambda x: x.amax(0), [1, 3, 3], [0, .5,
                                                                                                                                  .5]),
    (lambda x: x.amin(), [1, 1, 1, 3], [1 / 3, 1 / 3, 1 / 3, 0]), (lambda x: x.median(), [3, 1, 2, 2], [0, 0, .5, .5]),
    (lambda x: x.prod(), [2, 0, 3], [0, 6, 0]), (lambda x: x.prod(), [0, 0, 3], [0, 0, 0]), (lambda x: x.prod(0), [[2, 0], [3, 4]], [[3,
                                                                                                                                      4], [2, 0]]),
    (lambda x: x.cumprod(0), [2, 0, 3], [1, 8, 0]), (lambda x: x.norm(), [0, 0], [0, 0]), (lambda x: x.norm(1), [0, -2], [0, -1]),
    (lambda x: x.norm(inf), [3, -3, 1], [.5, -.5, 0]), (lambda x: x.std(), [2, 2], [0, 0]), (lambda x: x.nansum(), [1, nan], [1, 0]),
    (lambda x: x.cummax(0)[0], [1, 3, 3, 2], [1, 1, 2, 0]), (lambda x: x.trace(), [[1, 2], [3, 4]], [[1, 0], [0, 1]]),
])
def test_gradient_rules(f, values, want):
    assert np.allclose(grad(f, values), want)


# ---- results and overloads ----

def test_named_results_and_overloads():
    x = rl.tensor([[1.0, 4.0], [3.0, 2.0]])
    r = x.max(dim=1)
    assert r.values.tolist() == [4, 3] and r.indices.tolist() == [1, 0] and r[0] is r.values and "max" in type(r).__name__
    assert rl.max(x, rl.tensor([2.0, 3.0])).tolist() == [[2, 4], [3, 3]] and x.max(1, True)[0].shape == (2, 1)
    assert [v.item() for v in x.aminmax()] == [1, 4] and x.aminmax(dim=0).max.tolist() == [3, 4]
    assert x.std(unbiased=False).item() == pytest.approx(x.std(correction=0).item()) and x.var(1, False).tolist() == [2.25, .25]
    assert x.count_nonzero(0, 1).item() == 4 and x.count_nonzero(dim=1).tolist() == [2, 2] and x.count_nonzero().item() == 4
    s, m = rl.std_mean(x, 0)
    assert m.tolist() == [2, 3] and s.tolist() == pytest.approx([math.sqrt(2)] * 2)
    out = rl.empty(2)
    assert rl.sum(x, 0, out=out) is out and out.tolist() == [4, 6] and x.sum(axis=1, keepdims=True).shape == (2, 1)


def test_names_of_nodes():
    x = rl.ones(2, 3, requires_grad=True)
    for r, name in ((x.sum(), "SumBackward0"), (x.sum(0), "SumBackward1"), (x.mean(), "MeanBackward0"), (x.mean(1), "MeanBackward1"),
                    (x.prod(), "ProdBackward0"), (x.prod(0), "ProdBackward1"), (x.max(), "MaxBackward1"), (x.min(0)[0], "MinBackward0"),
                    (x.amax(), "AmaxBackward0"), (x.std(), "StdBackward0"), (rl.var_mean(x)[0], "VarMeanBackward0"), (x.logsumexp(0),
                                                                                                                      "LogsumexpBackward0"),
                    (x.norm(), "LinalgVectorNormBackward0"), (x.cummin(0)[0], "CumminBackward0"), (x.median(0)[0], "MedianBackward1")):
        assert r.grad_fn.name() == name
    assert x.argmax().grad_fn is None and x.max(0)[1].grad_fn is None and x.sum(dtype=rl.int64).grad_fn is None


@pytest.mark.parametrize("f", [
    lambda x: x.prod(), lambda x: x.prod(1), lambda x: x.var(0), lambda x: x.std(), lambda x: x.norm(3,
                                                                                                     1), lambda x: x.norm(), lambda x: x.logsumexp(1),
    lambda x: x.cumprod(1), lambda x: x.logcumsumexp(0), lambda x: x.amax(1), lambda x: rl.std_mean(x,
                                                                                                    1)[0], lambda x: x.diff(dim=0), lambda x: x.nanmean(0),
])
def test_second_order(f):
    x = t([[.7, -1.2, 2.1], [1.3, .4, -.6]], requires_grad=True)
    assert gradcheck(f, (x,)) and gradgradcheck(f, (x,))


def test_second_order_of_prod_with_a_zero():
    x = t([2.0, 0.0, 3.0], requires_grad=True)
    (g,) = rl.autograd.grad(x.prod(), x, create_graph=True)
    (h,) = rl.autograd.grad(g.sum(), x)
    assert g.tolist() == [0, 6, 0] and h.tolist() == [3, 5, 2]


def test_in_place_scan_keeps_what_backward_needs():
    x = t([2.0, 3.0, 4.0], requires_grad=True)
    y = x * 1
    y.cumprod_(0)
    y.sum().backward()
    assert y.tolist() == [2, 6, 24] and x.grad.tolist() == [16, 10, 6]


# ---- order ----

def test_sort_and_topk_backward_scatter():
    x = t([3.0, 1, 2, 5, 4], requires_grad=True)
    x.sort()[0].backward(t([10.0, 20, 30, 40, 50]))
    assert x.grad.tolist() == [30, 10, 20, 50, 40]
    assert rl.tensor([2, nan, 1]).sort()[1].tolist() == [2, 0, 1] and rl.tensor([1, 2, 1, 2]).argsort(stable=True,
                                                                                                      descending=True).tolist() == [1,
                                                                                                                                    3, 0, 2]
    assert rl.ones(2, 5).topk(0).values.shape == (2, 0) and rl.arange(6).view(2, 3).topk(2, 0)[1].tolist() == [[1, 1, 1], [0, 0, 0]]
    with pytest.raises(RuntimeError, match="selected index k out of range"):
        rl.ones(3).topk(4)
    with pytest.raises(RuntimeError, match=r"kthvalue\(\): selected number k out of range for dimension 0"):
        rl.ones(3).kthvalue(4)
    y = t([[.3, .1, .2]], requires_grad=True)
    assert gradgradcheck(lambda v: (v.sort()[0] ** 2 * rl.arange(3)).sum(), (y,))
