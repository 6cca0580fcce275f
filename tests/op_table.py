"""The rows of the operator tests: one for each operator, with sample arguments, domain, NumPy/SciPy reference and dtypes.

test_ops.py runs every row on dtype x layout (contiguous, transposed, sliced, expanded, zero-size, 0-dim): forward against the reference in
float64, the gradient against finite differences of the reference, the second order against finite differences of the gradient, in-place and
out= forms, with guard elements around sliced memory. A reference is never the library itself.

A sample is S(arguments..., keywords...); A(shape, domain) is an array made for the run. Domains avoid kinks and poles, where a finite difference
says nothing; the values there stand in the files of recorded facts.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.special as sp

DOMAINS = {
    "any": lambda rng, shape: rng.standard_normal(shape) * 1.5,
    "small": lambda rng, shape: rng.uniform(-0.8, 0.8, shape),
    "pos": lambda rng, shape: rng.uniform(0.3, 3.0, shape),
    "prob": lambda rng, shape: rng.uniform(0.1, 0.9, shape),
    "above1": lambda rng, shape: rng.uniform(1.2, 3.0, shape),
    "nonzero": lambda rng, shape: rng.uniform(0.4, 2.5, shape) * rng.choice([-1.0, 1.0], shape),
    # no value near a multiple of 0.5: floor, round, clamp at halves, relu at 0
    "offgrid": lambda rng, shape: rng.integers(-6, 6, shape) * 0.5 + rng.uniform(0.1, 0.4, shape),
    # pairwise distinct, so that max, sort and median have no ties
    "distinct": lambda rng, shape: (rng.permutation(int(np.prod(shape))).reshape(shape) - np.prod(shape) / 3) * 0.37 + 0.11,
    "bool": lambda rng, shape: rng.random(shape) < 0.5,
    "int": lambda rng, shape: rng.integers(-9, 10, shape),
    "posint": lambda rng, shape: rng.integers(1, 6, shape),
}


@dataclass(frozen=True)
class A:
    """An array argument: its shape, its domain, or (low, high) for indices (int64 whatever the dtype of the run)."""

    shape: tuple[int, ...]
    domain: Any = "any"

    @property
    def is_index(self) -> bool:
        return isinstance(self.domain, tuple)

    def make(self, rng: np.random.Generator) -> np.ndarray:
        if self.is_index:
            return rng.integers(*self.domain, self.shape)
        return np.asarray(DOMAINS[self.domain](rng, self.shape))


@dataclass(frozen=True)
class S:
    """One call: positional arguments (A or plain values) and keywords."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)


def s(*args: Any, **kwargs: Any) -> S:
    return S(args, kwargs)


@dataclass(frozen=True)
class Row:
    """name: of rushlight; "M.x" a method, "F.x" of nn.functional. ref: the same over NumPy arrays. dtypes: f float32 and float64, h float16
    and bfloat16, i integers, b bool. length: numbers added up for one result (tolerance). elementwise: also runs zero-size and 0-dim.
    layouts: fewer for what reads the storage itself."""

    name: str
    ref: Callable[..., Any]
    samples: tuple[S, ...]
    dtypes: str = "fh"
    grad: bool = True
    grad2: bool = True
    inplace: bool = False
    out: bool = False
    elementwise: bool = False
    length: int = 1
    layouts: tuple[str, ...] = ("contiguous", "transposed", "sliced", "expanded")


def unary(name: str, ref: Callable[..., Any], domain: str = "any", **kw: Any) -> Row:
    samples = tuple(s(A(shape, domain)) for shape in ((7,), (2, 3, 4)))
    kw.setdefault("inplace", True)
    kw.setdefault("out", True)
    return Row(name, ref, samples, elementwise=True, **kw)


def unary_f(name: str, ref: Callable[..., Any], *args: Any, domain: str = "offgrid", **kw: Any) -> Row:
    return Row("F." + name, lambda x, *a, **k: ref(x), (s(A((2, 9), domain), *args),), elementwise=not args, **kw)


def binary(name: str, ref: Callable[..., Any], d1: str = "any", d2: str = "any", **kw: Any) -> Row:
    shapes = (((5,), (5,)), ((2, 3, 4), (3, 1)), ((4, 1), (1, 3)), ((3, 2), ()))
    kw.setdefault("inplace", True)
    kw.setdefault("out", True)
    return Row(name, ref, tuple(s(A(a, d1), A(b, d2)) for a, b in shapes), **kw)


def predicate(name: str, ref: Callable[..., Any], domain: str = "any", **kw: Any) -> Row:
    return unary(name, ref, domain, grad=False, **{"inplace": False, "out": False, **kw})


def _gelu_tanh(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def _norm(x, p=2, dim=None, keepdim=False):
    return np.sum(np.abs(x) ** p, axis=dim, keepdims=keepdim) ** (1 / p)


UNARY_ROWS = [
    unary("exp", np.exp), unary("exp2", np.exp2), unary("expm1", np.expm1), unary("log", np.log, "pos"), unary("log2", np.log2, "pos"),
    unary("log10", np.log10, "pos"), unary("log1p", np.log1p, "pos"), unary("sqrt", np.sqrt, "pos"), unary("rsqrt", lambda x: 1 / np.sqrt(x), "pos"),
    unary("reciprocal", lambda x: 1 / x, "nonzero"), unary("square", np.square, dtypes="fhi"), unary("sin", np.sin), unary("cos", np.cos),
    unary("tan", np.tan, "small"), unary("asin", np.arcsin, "small"), unary("acos", np.arccos, "small"), unary("atan", np.arctan),
    unary("sinh", np.sinh), unary("cosh", np.cosh), unary("tanh", np.tanh), unary("asinh", np.arcsinh), unary("acosh", np.arccosh, "above1"),
    unary("atanh", np.arctanh, "small"), unary("sigmoid", sp.expit), unary("erf", sp.erf), unary("erfc", sp.erfc), unary("logit", sp.logit, "prob"),
    unary("abs", np.abs, "nonzero", dtypes="fhi"), unary("neg", np.negative, dtypes="fhi"), unary("sign", np.sign, "nonzero", dtypes="fhi"),
    unary("floor", np.floor, "offgrid", dtypes="fhi"), unary("ceil", np.ceil, "offgrid", dtypes="fhi"), unary("round", np.round, "offgrid", dtypes="fhi"),
    unary("trunc", np.trunc, "offgrid", dtypes="fhi"), unary("frac", lambda x: x - np.trunc(x), "offgrid"),
    unary("deg2rad", np.deg2rad), unary("rad2deg", np.rad2deg), unary("positive", np.positive, dtypes="fhi", inplace=False, out=False),
    unary("relu", lambda x: np.maximum(x, 0), "offgrid", dtypes="fhi", out=False),
    predicate("isnan", np.isnan), predicate("isinf", np.isinf), predicate("isfinite", np.isfinite),
    predicate("logical_not", np.logical_not, dtypes="fhib", inplace=True, out=True),
    unary("bitwise_not", np.invert, dtypes="ib", grad=False),
]

ACTIVATION_ROWS = [
    unary_f("leaky_relu", lambda x: np.where(x > 0, x, 0.01 * x)), unary_f("elu", lambda x: np.where(x > 0, x, np.expm1(x))),
    unary_f("selu", lambda x: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(x))),
    unary_f("celu", lambda x: np.where(x > 0, x, np.expm1(x))), unary_f("gelu", lambda x: 0.5 * x * (1 + sp.erf(x / np.sqrt(2)))),
    Row("F.gelu", lambda x, approximate: _gelu_tanh(x), (s(A((2, 9)), approximate="tanh"),)),
    unary_f("silu", lambda x: x * sp.expit(x)), unary_f("mish", lambda x: x * np.tanh(np.logaddexp(0, x))),
    unary_f("softplus", lambda x: np.logaddexp(0, x)), unary_f("softsign", lambda x: x / (1 + np.abs(x))),
    unary_f("logsigmoid", lambda x: -np.logaddexp(0, -x)), unary_f("hardtanh", lambda x: np.clip(x, -1, 1)),
    unary_f("relu6", lambda x: np.clip(x, 0, 6)), unary_f("hardsigmoid", lambda x: np.clip(x / 6 + 0.5, 0, 1), dtypes="f"),
    unary_f("hardswish", lambda x: x * np.clip(x + 3, 0, 6) / 6, domain="small"), unary_f("tanhshrink", lambda x: x - np.tanh(x)),
    unary_f("softshrink", lambda x: np.where(x > 0.5, x - 0.5, np.where(x < -0.5, x + 0.5, 0))),
    unary_f("hardshrink", lambda x: np.where(np.abs(x) > 0.5, x, 0)),
]


def _floor_divide(x, y):
    return np.floor_divide(x, y)


BINARY_ROWS = [
    binary("add", np.add, dtypes="fhi"), binary("sub", np.subtract, dtypes="fhi"), binary("mul", np.multiply, dtypes="fhi"),
    binary("div", np.true_divide, "any", "nonzero"), binary("pow", np.power, "pos", "any"), binary("maximum", np.maximum, dtypes="fhi", inplace=False),
    binary("minimum", np.minimum, dtypes="fhi", inplace=False), binary("fmax", np.fmax, inplace=False), binary("fmin", np.fmin, inplace=False),
    binary("atan2", np.arctan2, "nonzero", "nonzero"), binary("hypot", np.hypot, "nonzero", "nonzero"),
    binary("copysign", np.copysign, "nonzero", "nonzero", dtypes="f"), binary("xlogy", sp.xlogy, "any", "pos"),
    binary("logaddexp", np.logaddexp, inplace=False), binary("remainder", np.mod, "offgrid", "pos", dtypes="f", grad=False),
    binary("fmod", np.fmod, "offgrid", "pos", dtypes="f", grad=False),
    binary("floor_divide", _floor_divide, "offgrid", "pos", dtypes="f", grad=False),
    *[binary(n, r, grad=False, dtypes="fhi", inplace=True) for n, r in (("eq", np.equal), ("ne", np.not_equal), ("lt", np.less), ("le", np.less_equal),
                                                                       ("gt", np.greater), ("ge", np.greater_equal))],
    *[binary("logical_" + n, r, "bool", "bool", grad=False, dtypes="bf") for n, r in (("and", np.logical_and), ("or", np.logical_or),
                                                                                    ("xor", np.logical_xor))],
    *[binary("bitwise_" + n, r, "int", "int", grad=False, dtypes="i") for n, r in (("and", np.bitwise_and), ("or", np.bitwise_or),
                                                                                  ("xor", np.bitwise_xor))],
    Row("add", lambda x, y, alpha: x + alpha * y, (s(A((2, 3)), A((3,)), alpha=2),), "fhi"),
    Row("sub", lambda x, y, alpha: x - alpha * y, (s(A((2, 3)), A((3,)), alpha=3),), "fhi"),
    Row("mul", np.multiply, (s(A((2, 3)), 2.5),)), Row("pow", np.power, (s(A((2, 5), "pos"), 2.5), s(A((4,)), 3), s(A((4,)), 2))),
    Row("div", lambda x, y, rounding_mode: np.floor(x / y), (s(A((6,), "offgrid"), 2.0, rounding_mode="floor"),), grad=False),
    Row("rsub", lambda x, y: y - x, (s(A((3, 2)), A((3, 2))),), "fhi"),
]

TERNARY_ROWS = [
    Row("where", np.where, (s(A((3, 4), "bool"), A((3, 4)), A((3, 4))), s(A((3, 1), "bool"), A((4,)), A((3, 4)))), "f"),
    Row("lerp", lambda x, y, w: x + w * (y - x), (s(A((3, 4)), A((3, 4)), 0.3), s(A((3, 4)), A((4,)), A((3, 1), "prob"))), inplace=True),
    Row("addcmul", lambda x, a, b, value=1: x + value * a * b, (s(A((3, 4)), A((3, 4)), A((4,))), s(A((4,)), A((4,)), A((4,)), value=0.5)), "f", inplace=True),
    Row("addcdiv", lambda x, a, b, value=1: x + value * a / b, (s(A((3, 4)), A((3, 4)), A((4,), "nonzero"), value=2.0),), "f", inplace=True),
    Row("clamp", lambda x, lo, hi: np.clip(x, lo, hi), (s(A((3, 6), "offgrid"), -1.0, 1.5),), "fh", inplace=True, out=True),
    Row("clamp", lambda x, min: np.maximum(x, min), (s(A((9,), "offgrid"), min=-0.5),), "fh", inplace=True),
    Row("masked_fill", lambda x, m, v: np.where(m, v, x), (s(A((3, 4)), A((3, 4), "bool"), 2.0),), "fh", inplace=True),
    Row("nan_to_num", np.nan_to_num, (s(A((3, 4))),)),
]


def _reduction(name, ref, domain="any", length=12, extra=(), **kw):
    shape = (2, 3, 4)
    return Row(name, ref, (s(A(shape, domain)), s(A(shape, domain), 1), s(A(shape, domain), -1, True), *extra), length=length, **kw)


def _axis(f, default=None):
    return lambda x, dim=None, keepdim=False: f(x, axis=tuple(dim) if isinstance(dim, list) else dim, keepdims=keepdim)


def _logsumexp(x, dim, keepdim=False):
    return sp.logsumexp(x, axis=tuple(dim) if isinstance(dim, list) else dim, keepdims=keepdim)


def _two(values, indices):
    return lambda x, *a: (values(x, *a), indices(x, *a))


def _topk(x, k, dim=-1, largest=True):
    order = np.argsort(-x if largest else x, axis=dim, kind="stable").take(range(k), axis=dim)
    return np.take_along_axis(x, order, dim), order


REDUCTION_ROWS = [
    _reduction("sum", _axis(np.sum), dtypes="fhi", extra=(s(A((2, 3, 4)), [0, 2]),), out=False),
    _reduction("mean", _axis(np.mean), extra=(s(A((2, 3, 4)), [0, -1], True),)),
    _reduction("prod", _axis(np.prod), "nonzero", dtypes="f", length=24), _reduction("amax", _axis(np.max), "distinct", extra=(s(A((2, 3, 4), "distinct"), [0, 1]),)),
    _reduction("amin", _axis(np.min), "distinct"), _reduction("any", _axis(np.any), "bool", grad=False, dtypes="bf"),
    _reduction("all", _axis(np.all), "bool", grad=False, dtypes="bf"),
    Row("std", lambda x, dim=None, correction=1, keepdim=False: np.std(x, axis=dim, ddof=correction, keepdims=keepdim),
        (s(A((3, 5))), s(A((3, 5)), 1), s(A((3, 5)), dim=0, correction=0, keepdim=True)), "f", length=15),
    Row("var", lambda x, dim=None, correction=1, keepdim=False: np.var(x, axis=dim, ddof=correction, keepdims=keepdim),
        (s(A((3, 5))), s(A((3, 5)), 1), s(A((3, 5)), dim=0, correction=0, keepdim=True)), "f", length=15),
    Row("logsumexp", _logsumexp, (s(A((3, 5)), 1), s(A((3, 5)), [0, 1]), s(A((3, 5)), 0, keepdim=True)), length=15),
    Row("norm", _norm, (s(A((3, 5), "nonzero")), s(A((3, 5), "nonzero"), 2, 1), s(A((3, 5), "nonzero"), p=3, dim=0, keepdim=True)), "f", length=15),
    Row("argmax", lambda x, dim=None: np.argmax(x, axis=dim), (s(A((3, 5), "distinct")), s(A((3, 5), "distinct"), 1)), "fi", grad=False),
    Row("argmin", lambda x, dim=None: np.argmin(x, axis=dim), (s(A((3, 5), "distinct")), s(A((3, 5), "distinct"), 0)), "fi", grad=False),
    Row("max", lambda x: np.max(x), (s(A((3, 5), "distinct")),), "fhi"), Row("min", lambda x: np.min(x), (s(A((3, 5), "distinct")),), "fhi"),
    Row("max", _two(lambda x, d: np.max(x, d), lambda x, d: np.argmax(x, d)), (s(A((3, 5), "distinct"), 1), s(A((3, 5), "distinct"), 0)), "fh"),
    Row("min", _two(lambda x, d: np.min(x, d), lambda x, d: np.argmin(x, d)), (s(A((3, 5), "distinct"), 1),), "fh"),
    Row("cumsum", lambda x, dim: np.cumsum(x, dim), (s(A((3, 5)), 0), s(A((3, 5)), -1)), "fi", length=5),
    Row("cumprod", lambda x, dim: np.cumprod(x, dim), (s(A((3, 4), "nonzero"), 1),), "f", length=5),
    Row("count_nonzero", lambda x: np.count_nonzero(x), (s(A((3, 4), "bool")),), "bfi", grad=False),
    Row("trace", np.trace, (s(A((3, 4))),), "f", length=3),
    Row("diff", lambda x: np.diff(x), (s(A((3, 6))),), "f"),
]

PRODUCT_ROWS = [
    Row("matmul", np.matmul, (s(A((2, 3)), A((3, 4))), s(A((3,)), A((3,))), s(A((2, 3)), A((3,))), s(A((3,)), A((3, 2))), s(A((5, 2, 3)), A((3, 2))),
                              s(A((2, 1, 2, 3)), A((4, 3, 2))), s(A((2, 3)), A((4, 3, 2)))), "fhi", length=3, out=True),
    Row("mm", np.matmul, (s(A((9, 17)), A((17, 5))),), "fhi", length=17, out=True), Row("bmm", np.matmul, (s(A((3, 2, 4)), A((3, 4, 5))),), "fi", length=4),
    Row("mv", np.matmul, (s(A((3, 4)), A((4,))),), "f", length=4), Row("dot", np.dot, (s(A((5,)), A((5,))),), "fi", length=5),
    Row("outer", np.outer, (s(A((3,)), A((4,))),), "fi"),
    Row("addmm", lambda c, a, b, beta=1, alpha=1: beta * c + alpha * (a @ b), (s(A((2, 4)), A((2, 3)), A((3, 4))), s(A((4,)), A((2, 3)), A((3, 4)), beta=0.5, alpha=2.0)),
        "f", length=4, inplace=False),
    Row("baddbmm", lambda c, a, b, beta=1, alpha=1: beta * c + alpha * (a @ b), (s(A((3, 2, 5)), A((3, 2, 4)), A((3, 4, 5)), beta=2.0, alpha=0.5),), "f", length=5),
    Row("addmv", lambda c, a, b: c + a @ b, (s(A((3,)), A((3, 4)), A((4,))),), "f", length=5),
    Row("F.linear", lambda x, w, b=None: x @ w.T + (0 if b is None else b),
        (s(A((5, 3)), A((4, 3)), A((4,))), s(A((3,)), A((4, 3))), s(A((2, 5, 3)), A((4, 3)), A((4,)))), "fh", length=4),
    Row("einsum", lambda eq, a, b: np.einsum(eq, a, b), (s("ij,jk->ik", A((2, 3)), A((3, 4))), s("bij,bkj->bik", A((2, 3, 4)), A((2, 5, 4)))), "f", length=4),
]

SHAPE_ROWS = [
    Row("M.view", lambda x, *n: x.reshape(n), (s(A((6,)), 2, 3),), "fi"), Row("reshape", lambda x, n: x.reshape(n), (s(A((2, 6)), (3, 4)), s(A((2, 6)), (-1,)))),
    Row("permute", lambda x, d: np.transpose(x, d), (s(A((2, 3, 4)), (2, 0, 1)),), "fi"), Row("transpose", np.swapaxes, (s(A((2, 3, 4)), 0, 2),), "fi"),
    Row("M.t", np.transpose, (s(A((2, 3))),)), Row("M.expand", lambda x, *n: np.broadcast_to(x, n), (s(A((3, 1)), 3, 4), s(A((2,)), 3, 2))),
    Row("squeeze", lambda x, d=None: np.squeeze(x, d), (s(A((2, 1, 3))), s(A((2, 1, 3)), 1))), Row("unsqueeze", np.expand_dims, (s(A((2, 3)), 1), s(A((2, 3)), -1))),
    Row("flatten", lambda x, a=0: x.reshape(*x.shape[:a], -1), (s(A((2, 3, 2))), s(A((2, 3, 2)), 1))),
    Row("narrow", lambda x, d, a, n: x.take(range(a, a + n), d), (s(A((3, 5)), 1, 1, 3),)), Row("select", lambda x, d, i: x.take(i, d), (s(A((3, 5)), 1, 2), s(A((3, 5)), 0, -1))),
    Row("chunk", lambda x, n, d=0: np.array_split(x, n, d), (s(A((6, 2)), 3), s(A((2, 6)), 2, 1))),
    Row("split", lambda x, n, d=0: np.split(x, np.cumsum(n)[:-1], d), (s(A((5, 2)), [2, 3]), s(A((2, 5)), [1, 4], 1))),
    Row("unbind", lambda x, d=0: [x.take(i, d) for i in range(x.shape[d])], (s(A((3, 2))), s(A((3, 2)), 1))),
    Row("cat", lambda v, d=0: np.concatenate(v, d), (s([A((2, 3)), A((1, 3))]), s([A((2, 3)), A((2, 1))], 1)), "fhi"),
    Row("stack", lambda v, d=0: np.stack(v, d), (s([A((2, 3)), A((2, 3))]), s([A((2,)), A((2,))], -1)), "fi"),
    Row("M.repeat", lambda x, *n: np.tile(x, n), (s(A((2, 3)), 2, 1, 2),), "fi"), Row("tile", np.tile, (s(A((2, 3)), (2, 2)),), "f"),
    Row("repeat_interleave", lambda x, n, d: np.repeat(x, n, d), (s(A((2, 3)), 2, 1),), "f"),
    Row("M.contiguous", np.ascontiguousarray, (s(A((2, 3))),)), Row("clone", np.copy, (s(A((2, 3))),), "fhib"),
    Row("as_strided", lambda x, n, st: np.array([[x.ravel()[i * st[0] + j * st[1]] for j in range(n[1])] for i in range(n[0])]), (s(A((9,)), (2, 3), (2, 1)),), "f", layouts=("contiguous",)),
    Row("tril", np.tril, (s(A((3, 4))), s(A((2, 3, 3)), -1)), "fi", inplace=True), Row("triu", np.triu, (s(A((3, 4))), s(A((3, 3)), 1)), "fi", inplace=True),
    Row("flip", lambda x, d: np.flip(x, d), (s(A((2, 3)), [0, 1]),), "fi"), Row("roll", lambda x, n, d: np.roll(x, n, d), (s(A((2, 5)), 2, 1),), "f"),
    Row("diagonal", lambda x, o=0: np.diagonal(x, o), (s(A((3, 4))), s(A((3, 4)), 1))), Row("movedim", np.moveaxis, (s(A((2, 3, 4)), 0, 2),)),
    Row("diag", np.diag, (s(A((3,))), s(A((3, 3)))), "f"),
]


def _scatter(x, dim, index, src, add):
    out = x.copy()
    for at in np.ndindex(index.shape):
        to = list(at)
        to[dim] = index[at]
        out[tuple(to)] = src[at] + (out[tuple(to)] if add else 0)
    return out


def _index_add(x, dim, index, src):
    out = x.copy()
    np.add.at(np.moveaxis(out, dim, 0), index, np.moveaxis(src, dim, 0))
    return out


INDEX_ROWS = [
    Row("gather", lambda x, d, i: np.take_along_axis(x, i, d), (s(A((4, 3)), 0, A((2, 3), (0, 4))), s(A((4, 3)), 1, A((4, 5), (0, 3)))), "fi"),
    Row("scatter_add", lambda x, d, i, v: _scatter(x, d, i, v, True), (s(A((4, 3)), 0, A((2, 3), (0, 4)), A((2, 3))),), "fi", inplace=True),
    Row("index_select", lambda x, d, i: np.take(x, i, d), (s(A((4, 3)), 0, A((5,), (0, 4))), s(A((4, 3)), 1, A((2,), (0, 3)))), "fhi"),
    Row("index_add", _index_add, (s(A((4, 3)), 0, A((5,), (0, 4)), A((5, 3))),), "fi", inplace=True),
    Row("take", lambda x, i: np.take(x.ravel(), i), (s(A((3, 4)), A((2, 3), (0, 12))),), "f"),
    Row("masked_select", lambda x, m: x[m], (s(A((3, 4)), A((3, 4), "bool")),), "f"),
    Row("F.embedding", lambda i, w: w[i], (s(A((2, 5), (0, 7)), A((7, 3))),), "fh"),
    Row("F.one_hot", lambda i, n: np.eye(n, dtype=np.int64)[i], (s(A((2, 5), (0, 4)), 4),), "f", grad=False),
    Row("nonzero", lambda x: np.argwhere(x), (s(A((3, 4), "bool")),), "bf", grad=False),
]

SORT_ROWS = [
    Row("sort", lambda x, dim=-1: (np.sort(x, dim), np.argsort(x, dim, kind="stable")), (s(A((4, 5), "distinct")), s(A((4, 5), "distinct"), 0)), "fhi"),
    Row("argsort", lambda x, dim=-1: np.argsort(x, dim, kind="stable"), (s(A((4, 5), "distinct")),), "f", grad=False),
    Row("topk", _topk, (s(A((4, 6), "distinct"), 3), s(A((4, 6), "distinct"), 2, 0, False)), "f"),
    Row("unique", np.unique, (s(A((20,), "posint")),), "fi", grad=False),
]


def _cross_entropy(x, target, weight=None, ignore_index=-100, reduction="mean", label_smoothing=0.0):
    logp = x - sp.logsumexp(x, axis=1, keepdims=True)
    w = np.ones(x.shape[1]) if weight is None else weight
    keep = target != ignore_index
    rows, t = np.flatnonzero(keep), target[keep]
    loss = np.zeros(len(target))
    loss[rows] = -(1 - label_smoothing) * w[t] * logp[rows, t] - label_smoothing / x.shape[1] * (w * logp[rows]).sum(1)
    total = w[t].sum()
    return {"none": loss, "sum": loss.sum(), "mean": loss.sum() / total}[reduction]


def _soft_cross_entropy(x, p):
    return -(p * (x - sp.logsumexp(x, axis=1, keepdims=True))).sum(1).mean()


def _layer_norm(x, shape, w=None, b=None, eps=1e-5):
    axes = tuple(range(x.ndim - len(shape), x.ndim))
    y = (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + eps)
    return y * (1 if w is None else w) + (0 if b is None else b)


def _reduced(f):
    return lambda x, y, reduction="mean": {"mean": np.mean, "sum": np.sum, "none": lambda v: v}[reduction](f(x, y))


def _loss(name, f, d1="any", d2="any", **kw):
    samples = tuple(s(A((4, 3), d1), A((4, 3), d2), **k) for k in ({}, {"reduction": "sum"}, {"reduction": "none"}))
    return Row("F." + name, _reduced(f), samples, length=12, **kw)


def _smooth_l1(x, y):
    d = np.abs(x - y)
    return np.where(d < 1, 0.5 * d * d, d - 0.5)


ROW_ROWS = [
    Row("softmax", lambda x, dim: sp.softmax(x, dim), (s(A((3, 5)), 1), s(A((3, 5)), 0), s(A((2, 3, 4)), 1), s(A((2, 70)), -1)), length=70),
    Row("log_softmax", lambda x, dim: sp.log_softmax(x, dim), (s(A((3, 5)), 1), s(A((2, 3, 4)), 0)), length=5),
    Row("F.layer_norm", _layer_norm, (s(A((3, 5)), (5,)), s(A((2, 3, 4)), (4,), A((4,)), A((4,))), s(A((2, 3, 4)), (3, 4), A((3, 4)), A((3, 4)))), "f", length=12),
    Row("F.cross_entropy", _cross_entropy,
        (s(A((6, 4)), A((6,), (0, 4))), s(A((6, 4)), A((6,), (0, 4)), reduction="none"), s(A((6, 4)), A((6,), (0, 4)), label_smoothing=0.1),
         s(A((6, 4)), A((6,), (0, 4)), ignore_index=1, reduction="sum")), "fh", length=6),
    Row("F.cross_entropy", _soft_cross_entropy, (s(A((6, 4)), A((6, 4), "prob")),), "f", length=6),
    Row("F.nll_loss", lambda x, t: -x[np.arange(len(t)), t].mean(), (s(A((6, 4)), A((6,), (0, 4))),), "f", length=6),
    _loss("mse_loss", lambda x, y: (x - y) ** 2), _loss("l1_loss", lambda x, y: np.abs(x - y), grad2=False, dtypes="f"),
    _loss("smooth_l1_loss", _smooth_l1, dtypes="f"), _loss("huber_loss", _smooth_l1, dtypes="f"),
    _loss("binary_cross_entropy", lambda x, y: -(y * np.log(x) + (1 - y) * np.log1p(-x)), "prob", "prob", dtypes="f"),
    _loss("binary_cross_entropy_with_logits", lambda x, y: np.logaddexp(0, x) - x * y, "any", "prob", dtypes="f"),
    _loss("kl_div", lambda x, y: y * (np.log(y) - x), "any", "prob", dtypes="f"),
]

ROWS: list[Row] = [*UNARY_ROWS, *ACTIVATION_ROWS, *BINARY_ROWS, *TERNARY_ROWS, *REDUCTION_ROWS, *PRODUCT_ROWS, *SHAPE_ROWS, *INDEX_ROWS, *SORT_ROWS, *ROW_ROWS]
