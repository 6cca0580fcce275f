"""Runs the rows of op_table.py: dtype x layout x (forward, gradient, second order), in-place and out= forms, guard elements.

Tolerances come from the dtype's rounding unit and the number of terms of a result; the reference is computed in float64 from the very numbers
that the library was given.
"""
from __future__ import annotations

import numpy as np
import pytest
import rushlight as rl
import rushlight.nn.functional as F
from op_table import ROWS, A, Row, S

FLOATS = {"float32": 2.0**-24, "float64": 2.0**-53, "float16": 2.0**-11, "bfloat16": 2.0**-8}
DTYPES = {"f": ("float32", "float64"), "h": ("float16", "bfloat16"), "i": ("int64", "int32", "uint8"), "b": ("bool",)}
GUARD = 77


def find(name: str):
    """The function of a row: rl.name, nn.functional.name, or a method as a function."""
    if name.startswith("M."):
        return getattr(rl.Tensor, name[2:])
    return getattr(F, name[2:]) if name.startswith("F.") else getattr(rl, name)


def to_numpy(t) -> np.ndarray:
    """Values of a tensor (bfloat16 through float32) as float64, int or bool."""
    t = t.detach()
    if t.dtype == rl.bfloat16 or t.dtype == rl.float16:
        t = t.float()
    a = np.array(t.tolist()) if t.numel() else np.zeros(tuple(t.shape))
    return a.reshape(tuple(t.shape))


def laid_out(a: np.ndarray, dtype: str, layout: str):
    """A tensor with the values of `a` in a memory layout, and a check to call afterwards that its guard elements are untouched."""
    dt = getattr(rl, dtype)
    if layout == "transposed" and a.ndim >= 2:
        return rl.tensor(a.T.tolist(), dtype=dt).reshape(a.T.shape).permute(tuple(range(a.ndim))[::-1]), lambda: None
    if layout == "expanded" and a.ndim >= 1 and a.shape[0]:
        return rl.tensor(a[:1].tolist(), dtype=dt).reshape((1, *a.shape[1:])).expand(a.shape), lambda: None
    if layout == "sliced" and a.ndim >= 1:
        big = np.full([2 * n + 1 for n in a.shape], dtype != "bool" and GUARD)
        base = rl.tensor(big.tolist(), dtype=dt).reshape(big.shape)
        view = base[tuple(slice(1, None, 2) for _ in a.shape)]
        view.copy_(rl.tensor(a.tolist(), dtype=dt).reshape(a.shape))
        mask = np.ones(big.shape, bool)
        mask[tuple(slice(1, None, 2) for _ in a.shape)] = False

        def check():
            assert (to_numpy(base)[mask] == big[mask]).all(), "memory between the elements was written"
        return view, check
    return rl.tensor(a.tolist(), dtype=dt).reshape(a.shape), lambda: None


class Call:
    """One sample for one dtype and layout: tensors for the library, float64 (or int) arrays for the reference."""

    def __init__(self, row: Row, sample: S, dtype: str, layout: str, reshape=None):
        self.row, self.dtype, self.layout = row, dtype, layout
        self.rng = np.random.default_rng(len(row.name) * 7919 + len(str(sample)))
        self.checks, self.tensors, self.arrays = [], [], []
        self.reshape = reshape
        self.args = self._build(list(sample.args))
        self.kwargs = {k: self._build(v) for k, v in sample.kwargs.items()}

    def _build(self, v):
        if isinstance(v, list):
            return [self._build(x) for x in v]
        if not isinstance(v, A):
            return v
        if self.reshape is not None:
            v = A(self.reshape, v.domain)
        a = v.make(self.rng)
        dtype = "int64" if v.is_index else "bool" if v.domain == "bool" else self.dtype
        if dtype in DTYPES["i"] and not v.is_index:
            a = np.abs(np.rint(a * 2)).astype(np.int64) % 11
        if dtype == "bool":
            a = a.astype(bool)
        layout = "contiguous" if v.is_index and self.layout == "expanded" else self.layout
        if layout == "expanded" and a.ndim and a.shape[0]:
            a = np.ascontiguousarray(np.broadcast_to(a[:1], a.shape))
        t, check = laid_out(a, dtype, layout)
        exact = a if dtype in ("int64", "int32", "uint8", "bool") else to_numpy(t).astype(np.float64)
        self.checks.append(check)
        self.tensors.append(t)
        self.arrays.append(exact)
        return len(self.tensors) - 1, "slot"

    def fill(self, v, values):
        if isinstance(v, tuple) and len(v) == 2 and v[1] == "slot":
            return values[v[0]]
        return [self.fill(x, values) for x in v] if isinstance(v, list) else v

    def run(self, f, values):
        return f(*self.fill(self.args, values), **{k: self.fill(v, values) for k, v in self.kwargs.items()})

    def result(self, values=None):
        return self.run(find(self.row.name), self.tensors if values is None else values)

    def reference(self, values=None):
        return self.run(self.row.ref, self.arrays if values is None else values)


def leaves(r) -> list:
    return list(r) if isinstance(r, (list, tuple)) else [r]


def close(got, want, dtype: str, length: int, what: str) -> None:
    want = np.asarray(want)
    assert tuple(got.shape) == want.shape, f"{what}: shape {tuple(got.shape)}, expected {want.shape}"
    have = to_numpy(got)
    if want.dtype.kind in "bi":
        assert (have == want).all(), f"{what}: {have} is not {want}"
        return
    unit = FLOATS[dtype if got.dtype.is_floating_point else "float64"]
    scale = np.max(np.abs(want), initial=1.0)
    tolerance = unit * (8 + 4 * length) * scale
    assert np.max(np.abs(have - want), initial=0.0) <= tolerance, f"{what}: off by {np.max(np.abs(have - want))} > {tolerance}"


def cases():
    for i, row in enumerate(ROWS):
        for letter in row.dtypes:
            for dtype in DTYPES[letter]:
                for layout in row.layouts:
                    yield pytest.param(row, dtype, layout, id=f"{row.name}-{i}-{dtype}-{layout}")


def distinct_lost(row: Row, layout: str) -> bool:
    """An expanded array has ties: which of equal elements an index names is then free."""
    return layout == "expanded" and any(isinstance(a, A) and a.domain == "distinct" for s in row.samples for a in s.args)


@pytest.mark.parametrize("row,dtype,layout", list(cases()))
def test_forward(row, dtype, layout):
    for sample in row.samples:
        call = Call(row, sample, dtype, layout)
        want = leaves(call.reference())
        got = leaves(call.result())
        assert len(got) == len(want)
        for g, w in zip(got, want):
            if not (distinct_lost(row, layout) and g.dtype == rl.int64):
                close(g, wrapped(w, g.dtype), dtype, row.length, row.name)
        for t, a in zip(call.tensors, call.arrays):
            assert (to_numpy(t) == a).all(), "an argument was changed"
        for check in call.checks:
            check()


def wrapped(w, dtype):
    """Integers wrap as their dtype does."""
    w = np.asarray(w)
    return (w.astype(np.int64) & 255) if dtype == rl.uint8 and w.dtype.kind == "i" else w


@pytest.mark.parametrize("row", [pytest.param(r, id=f"{r.name}-{i}") for i, r in enumerate(ROWS) if r.elementwise])
@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1, 1)])
def test_zero_size_and_zero_dim(row, shape):
    for dtype in (d for letter in row.dtypes for d in DTYPES[letter]):
        call = Call(row, row.samples[0], dtype, "contiguous", reshape=shape)
        close(call.result(), wrapped(call.reference(), getattr(rl, dtype)), dtype, 1, row.name)


def cotangents(call, results):
    rng = np.random.default_rng(5)
    return [rng.standard_normal(tuple(r.shape)) for r in results]


def differentiable(call) -> list[int]:
    return [i for i, t in enumerate(call.tensors) if t.dtype == rl.float64]


def numeric(f, arrays, k, eps) -> np.ndarray:
    """Central differences of the scalar f with respect to arrays[k]."""
    g = np.zeros(arrays[k].shape)
    for at in np.ndindex(g.shape):
        ends = []
        for step in (eps, -eps):
            moved = [a.copy() for a in arrays]
            moved[k][at] += step
            ends.append(f(moved))
        g[at] = (ends[0] - ends[1]) / (2 * eps)
    return g


def gradients(call, arrays, cots, create_graph=False):
    """(inputs, gradients) of sum(result * cotangent) at `arrays`."""
    values = [rl.tensor(a.tolist(), dtype=rl.float64).reshape(a.shape).requires_grad_() if i in differentiable(call) else call.tensors[i]
              for i, a in enumerate(arrays)]
    results = [r for r in leaves(call.result(values)) if r.dtype == rl.float64]
    total = sum((r * rl.tensor(c.tolist(), dtype=rl.float64).reshape(c.shape)).sum() for r, c in zip(results, cots))
    inputs = [values[i] for i in differentiable(call)]
    return inputs, rl.autograd.grad(total, inputs, create_graph=create_graph, allow_unused=False)


GRAD_ROWS = [pytest.param(r, layout, id=f"{r.name}-{i}-{layout}") for i, r in enumerate(ROWS) if r.grad and "f" in r.dtypes
             for layout in ("contiguous", "transposed")]


@pytest.mark.parametrize("row,layout", GRAD_ROWS)
def test_gradient(row, layout):
    for sample in row.samples:
        call = Call(row, sample, "float64", layout)
        floats = [np.asarray(w) for w in leaves(call.reference()) if np.asarray(w).dtype.kind == "f"]
        cots = cotangents(call, floats)

        def scalar(arrays):
            return sum(float((np.asarray(w) * c).sum()) for w, c in zip([w for w in leaves(call.reference(arrays)) if np.asarray(w).dtype.kind == "f"], cots))
        got = gradients_at(call, cots)
        for k, g in zip(differentiable(call), got):
            want = numeric(scalar, call.arrays, k, 1e-6)
            scale = max(1.0, np.abs(want).max(initial=0.0))
            assert tuple(g.shape) == want.shape
            assert np.abs(to_numpy(g) - want).max(initial=0.0) <= 2e-7 * scale * (1 + row.length) ** 0.5, f"{row.name} input {k}: {to_numpy(g)} {want}"


def gradients_at(call, cots):
    """Gradients with respect to the laid-out tensors themselves."""
    inputs = [t.requires_grad_() if not t.requires_grad else t for i, t in enumerate(call.tensors) if i in differentiable(call)]
    results = [r for r in leaves(call.result()) if r.dtype == rl.float64]
    return rl.autograd.grad(results, inputs, [rl.tensor(c.tolist(), dtype=rl.float64).reshape(c.shape) for c in cots], allow_unused=False)


@pytest.mark.parametrize("row", [pytest.param(r, id=f"{r.name}-{i}") for i, r in enumerate(ROWS) if r.grad and r.grad2 and "f" in r.dtypes])
def test_second_order(row):
    for sample in row.samples:
        call = Call(row, sample, "float64", "contiguous")
        cots = cotangents(call, [np.asarray(w) for w in leaves(call.reference()) if np.asarray(w).dtype.kind == "f"])
        inputs, first = gradients(call, call.arrays, cots, create_graph=True)
        rng = np.random.default_rng(9)
        weights = [rng.standard_normal(tuple(g.shape)) for g in first]
        total = sum((g * rl.tensor(w.tolist(), dtype=rl.float64).reshape(w.shape)).sum() for g, w in zip(first, weights))
        if not total.requires_grad:  # the gradient does not depend on the inputs
            second = [None] * len(inputs)
        else:
            second = rl.autograd.grad(total, inputs, allow_unused=True)

        def scalar(arrays):
            return sum(float((to_numpy(g) * w).sum()) for g, w in zip(gradients(call, arrays, cots)[1], weights))
        for k, g in zip(differentiable(call), second):
            want = numeric(scalar, call.arrays, k, 1e-5)
            have = np.zeros(want.shape) if g is None else to_numpy(g)
            assert np.abs(have - want).max(initial=0.0) <= 1e-6 * max(1.0, np.abs(want).max(initial=0.0)), f"{row.name} input {k}: {have} {want}"


@pytest.mark.parametrize("row", [pytest.param(r, id=f"{r.name}-{i}") for i, r in enumerate(ROWS) if r.inplace])
@pytest.mark.parametrize("layout", ["contiguous", "transposed", "sliced"])
def test_in_place(row, layout):
    for letter in row.dtypes:
        for dtype in DTYPES[letter]:
            for sample in row.samples:
                call = Call(row, sample, dtype, layout)
                want = call.result()
                target = call.tensors[0]
                if tuple(want.shape) != tuple(target.shape) or not rl.can_cast(want.dtype, target.dtype):
                    continue
                version = target._version
                got = call.run(getattr(rl.Tensor, row.name.split(".")[-1] + "_"), call.tensors)
                assert got is target and target._version == version + 1
                assert (to_numpy(target) == to_numpy(want.to(target.dtype))).all()
                for check in call.checks:
                    check()


@pytest.mark.parametrize("row", [pytest.param(r, id=f"{r.name}-{i}") for i, r in enumerate(ROWS) if r.out])
def test_out(row):
    for sample in row.samples:
        call = Call(row, sample, "float32" if "f" in row.dtypes else "int64", "contiguous")
        want = call.result()
        call.kwargs["out"] = exact = rl.empty(want.shape, dtype=want.dtype)
        assert call.result() is exact and (to_numpy(exact) == to_numpy(want)).all()
        call.kwargs["out"] = grown = rl.empty(0, dtype=want.dtype)
        assert call.result() is grown and tuple(grown.shape) == tuple(want.shape) and (to_numpy(grown) == to_numpy(want)).all()
        if want.ndim:
            base = rl.full((*want.shape[:-1], want.shape[-1] * 2), 0, dtype=want.dtype)
            call.kwargs["out"] = strided = base[..., ::2]
            assert call.result() is strided and (to_numpy(strided) == to_numpy(want)).all() and not base[..., 1::2].any()
