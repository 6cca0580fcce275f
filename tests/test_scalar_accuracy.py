"""How far the scalar functions of csrc/ops/scalar.h are from the truth, in units of the last place, and what they make of the edges.

The reference is NumPy's long double (80 bits: 11 more than a double), for the special functions SciPy's double, which bounds float32 well
and float64 up to its own error. The bounds are those stated in scalar.h, rounded up for what a sample may miss.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys

import numpy as np
import pytest
import rushlight as rl
import scipy.special as sp

LD = np.longdouble
N = 20000


def _sigmoid(x):
    return 1 / (1 + np.exp(-x))


def _double(f):
    return lambda x: f(x.astype(np.float64)).astype(LD)


# name: reference, ranges for float32, ranges for float64, bound in float32 and in float64
FUNCTIONS = {
    "exp": (np.exp, [(-104, 89), (-1, 1)], [(-746, 710), (-1, 1)], 1.1, 1.1),
    "exp2": (np.exp2, [(-150, 128), (-1, 1)], [(-1075, 1024), (-1, 1)], 1.2, 1.2),
    "expm1": (np.expm1, [(-20, 89), (-1, 1), (-1e-3, 1e-3)], [(-40, 709), (-1, 1)], 1.6, 2.0),
    "log": (np.log, [(1e-45, 3e38), (0.5, 2), (1e-44, 1e-38)], [(1e-320, 1e308), (0.5, 2)], 1.1, 1.1),
    "log2": (np.log2, [(1e-45, 3e38), (0.5, 2)], [(1e-320, 1e308), (0.5, 2)], 1.9, 1.9),
    "log10": (np.log10, [(1e-45, 3e38), (0.5, 2)], [(1e-320, 1e308), (0.5, 2)], 2.0, 2.0),
    "log1p": (np.log1p, [(-0.999999, 3e38), (-0.5, 0.5), (-1e-4, 1e-4)], [(-0.9999999, 1e308), (-0.5, 0.5)], 1.6, 1.6),
    "sin": (np.sin, [(-10, 10), (-1e5, 1e5)], [(-10, 10), (-1e4, 1e4)], 0.6, 2.5),
    "cos": (np.cos, [(-10, 10), (-1e5, 1e5)], [(-10, 10), (-1e4, 1e4)], 0.6, 2.5),
    "tan": (np.tan, [(-1.5, 1.5), (-100, 100)], [(-1.5, 1.5)], 0.6, 3.0),
    "asin": (np.arcsin, [(-1, 1), (-1e-3, 1e-3)], [(-1, 1)], 0.6, 2.3),
    "acos": (np.arccos, [(-1, 1), (0.9, 1)], [(-1, 1)], 0.6, 1.5),
    "atan": (np.arctan, [(-10, 10), (-1e10, 1e10), (-0.1, 0.1)], [(-50, 50), (-1, 1)], 0.6, 2.0),
    "sinh": (np.sinh, [(-89, 89), (-1, 1)], [(-710, 710), (-1, 1)], 0.6, 2.5),
    "cosh": (np.cosh, [(-89, 89), (-1, 1)], [(-710, 710), (-1, 1)], 0.6, 1.6),
    "tanh": (np.tanh, [(-10, 10), (-1, 1), (-1e-3, 1e-3)], [(-20, 20), (-1, 1)], 2.5, 2.8),
    "asinh": (np.arcsinh, [(-10, 10), (-1e30, 1e30), (-0.01, 0.01)], [(-10, 10), (-1e100, 1e100)], 0.6, 2.0),
    "acosh": (np.arccosh, [(1, 10), (1, 1e30)], [(1.01, 10), (1.01, 1e100)], 0.6, 2.5),
    "atanh": (np.arctanh, [(-1, 1), (-0.01, 0.01)], [(-1, 1)], 0.6, 2.3),
    "sigmoid": (_sigmoid, [(-80, 80)], [(-700, 700)], 2.5, 2.5),
    "sqrt": (np.sqrt, [(0, 1e30)], [(0, 1e300)], 0.5001, 0.5001),
    "rsqrt": (lambda x: 1 / np.sqrt(x), [(1e-3, 1e3)], [(1e-3, 1e3)], 1.6, 1.6),
    "erf": (_double(sp.erf), [(-4, 4), (-1, 1), (-0.01, 0.01)], [(-6, 6), (-1, 1)], 1.8, 3.0),
    "erfc": (_double(sp.erfc), [(-4, 10), (-1, 1)], [(-6, 3)], 0.6, 12.0),
    "lgamma": (_double(sp.gammaln), [(0.1, 100), (3, 1e6)], [(8, 1000)], 0.6, 10.0),
    "digamma": (_double(sp.digamma), [(2, 100), (3, 1e6)], [(3, 1000)], 0.6, 10.0),
}


def sample(low: float, high: float, dtype: type, rng: np.random.Generator) -> np.ndarray:
    """Evenly and, over a wide range, by magnitude."""
    x = rng.uniform(low, high, N)
    if high > 1e5:
        size = np.exp(rng.uniform(math.log(max(low, 1e-10)), math.log(high), N // 2))
        x[: N // 2] = size if low >= -1 else size * rng.choice([-1.0, 1.0], N // 2)
    return x.astype(dtype)


def ulps(got: np.ndarray, want: np.ndarray, dtype: type) -> np.ndarray:
    """NaN and infinity must agree; beyond the largest number infinity is right."""
    big = np.abs(want) > LD(np.finfo(dtype).max)
    with np.errstate(all="ignore"):
        spacing = np.spacing(np.abs(want).astype(dtype)).astype(LD)
        d = np.abs(got.astype(LD) - want) / spacing
    return np.where(big, np.where(np.isinf(got), 0, np.inf), np.nan_to_num(d, nan=np.inf))


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_error(name, dtype):
    ref, narrow, wide, bound32, bound64 = FUNCTIONS[name]
    rng = np.random.default_rng(3)
    slack = 0.6 if rl._C._cpu_level() == "baseline" else 0  # no fused multiply-add there
    if name == "erfc" and slack and dtype is np.float64:
        slack = 600  # the rounding error of x^2 cannot be put back
    for low, high in narrow if dtype is np.float32 else wide:
        x = sample(low, high, dtype, rng)
        got = getattr(rl, name)(rl.from_numpy(x)).numpy()
        with np.errstate(all="ignore"):
            want = ref(x.astype(LD))
        worst = ulps(got, want, dtype)
        k = int(np.argmax(worst))
        assert worst[k] <= (bound32 if dtype is np.float32 else bound64) + slack, (x[k], got[k], want[k])


def test_lgamma_has_a_small_absolute_error_near_its_zeros():
    x = np.concatenate([np.linspace(0.05, 8, 4001), np.linspace(-7.95, -0.05, 1999)])
    np.testing.assert_allclose(rl.lgamma(rl.from_numpy(x)).numpy(), sp.gammaln(x), rtol=1e-14, atol=3e-14)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_power(dtype):
    rng = np.random.default_rng(5)
    x, y = np.exp(rng.uniform(-5, 5, N)).astype(dtype), rng.uniform(-10, 10, N).astype(dtype)
    want = x.astype(LD) ** y.astype(LD)
    assert ulps(rl.pow(rl.from_numpy(x), rl.from_numpy(y)).numpy(), want, dtype).max() <= 1.6
    for e in (2.5, -1, 3, 0.5, 7):
        want = x.astype(LD) ** LD(e)
        assert ulps((rl.from_numpy(x) ** e).numpy(), want, dtype).max() <= 1.6, e


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_two_operands(dtype):
    rng = np.random.default_rng(6)
    x, y = (rng.standard_normal(N) * 10).astype(dtype), (rng.standard_normal(N) * 10).astype(dtype)
    a, b = rl.from_numpy(x), rl.from_numpy(y)
    wide = x.astype(LD), y.astype(LD)
    assert ulps(rl.atan2(a, b).numpy(), np.arctan2(*wide), dtype).max() <= 2.2
    assert ulps(rl.hypot(a, b).numpy(), np.hypot(*wide), dtype).max() <= 2.5
    assert np.array_equal(rl.fmod(a, b).numpy(), np.fmod(x, y))
    assert np.array_equal(rl.nextafter(a, b).numpy(), np.nextafter(x, y))
    assert np.array_equal(rl.copysign(a, b).numpy(), np.copysign(x, y))
    large = (x * dtype(1e9)).astype(dtype)
    assert np.array_equal(rl.fmod(rl.from_numpy(large), b).numpy(), np.fmod(large, y))


EDGES = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -0.5,
    2.0,
    -2.0,
    3.0,
    -3.0,
    1e-3,
    -7.25,
    math.inf,
    -math.inf,
    math.nan,
    88.5,
    -88.5,
    104.0,
    -104.0,
    1e10,
    -1e10,
]
NUMPY = {
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "log": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "log1p": np.log1p,
    "sqrt": np.sqrt,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "erf": sp.erf,
    "erfc": sp.erfc,
    "abs": np.abs,
    "neg": np.negative,
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "round": np.round,
    "square": np.square,
    "isnan": np.isnan,
    "isinf": np.isinf,
    "isfinite": np.isfinite,
    "signbit": np.signbit,
    "isposinf": np.isposinf,
    "isneginf": np.isneginf,
}


@pytest.mark.parametrize("name", NUMPY)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_edges(name, dtype):
    limits = np.finfo(dtype)
    x = np.array([*EDGES, limits.max, -limits.max, limits.tiny, -limits.tiny, limits.smallest_subnormal, -limits.smallest_subnormal], dtype)
    if name in ("sin", "cos", "tan"):
        x = x[~(np.abs(x) > 2.0**50)]  # beyond, any number of [-1, 1]
    if name in ("asinh", "acosh"):
        x = x[np.isinf(x) | (np.abs(x) < 1e300)]
    with np.errstate(all="ignore"):
        want = NUMPY[name](x)
    got = getattr(rl, name)(rl.from_numpy(x)).numpy()
    assert got.dtype == want.dtype
    np.testing.assert_allclose(got, want, rtol=4 * limits.eps if want.dtype != bool else 0, atol=limits.smallest_subnormal * 2)
    if want.dtype != bool:
        zero = (want == 0) & (got == 0)
        assert np.array_equal(np.signbit(got[zero]), np.signbit(want[zero]))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_edges_of_two_operands(dtype):
    e = np.array([*EDGES, 2.5, -2.5, np.finfo(dtype).max, np.finfo(dtype).tiny], dtype)
    x, y = (np.ascontiguousarray(a) for a in np.meshgrid(e, e))
    a, b = rl.from_numpy(x), rl.from_numpy(y)
    with np.errstate(all="ignore"):
        for name, ref in (
            ("pow", np.power),
            ("atan2", np.arctan2),
            ("hypot", np.hypot),
            ("maximum", np.maximum),
            ("minimum", np.minimum),
            ("fmax", np.fmax),
            ("fmin", np.fmin),
            ("copysign", np.copysign),
            ("logaddexp", np.logaddexp),
            ("nextafter", np.nextafter),
        ):
            np.testing.assert_allclose(
                getattr(rl, name)(a, b).numpy(),
                ref(x, y),
                rtol=8 * np.finfo(dtype).eps,
                atol=4 * np.finfo(dtype).smallest_subnormal,
                err_msg=name,
            )


def test_the_levels_agree():
    """What one level computes, another computes too, but for the rounding that a fused multiply-add saves."""
    code = (
        "import rushlight as rl; x = rl.linspace(-6, 6, 999, dtype=rl.float64)\n"
        "for n in 'exp tanh erf sin sigmoid expm1 atan'.split(): print(getattr(rl, n)(x).tolist())"
    )
    texts = {}
    for level in rl._C._cpu_levels():
        env = {**os.environ, "RUSHLIGHT_CPU": level}
        texts[level] = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True).stdout
    rows = {level: [np.array(eval(line)) for line in text.splitlines()] for level, text in texts.items()}  # noqa: S307
    for level in rows:
        for a, b in zip(rows["baseline"], rows[level], strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-15, atol=1e-18)
