"""dtype, Size, device, layout, finfo, iinfo and the defaults: printing, comparing, pickling, and what they refuse."""
from __future__ import annotations

import ast
import copy
import pathlib
import pickle
import subprocess
import sys

import pytest
import rushlight as rl

DTYPES = {"bool": 1, "uint8": 1, "int8": 1, "int16": 2, "int32": 4, "int64": 8, "float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}


# ---- dtype -----------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("name", DTYPES)
def test_dtype(name):
    d = getattr(rl, name)
    assert repr(d) == str(d) == f"rushlight.{name}"
    assert d.itemsize == DTYPES[name]
    assert d.is_floating_point == ("float" in name)
    assert d.is_signed == (name not in ("bool", "uint8"))
    assert d.is_complex is False and d.to_real() is d
    assert pickle.loads(pickle.dumps(d)) is d and copy.deepcopy(d) is d and copy.copy(d) is d
    assert isinstance(d, rl.dtype) and {d: 1}[d] == 1


def test_dtype_aliases():
    pairs = {"float": "float32", "double": "float64", "half": "float16", "short": "int16", "int": "int32", "long": "int64"}
    for alias, name in pairs.items():
        assert getattr(rl, alias) is getattr(rl, name)


def test_dtype_refuses():
    with pytest.raises(TypeError, match="cannot create 'rushlight.dtype' instances"):
        rl.dtype()
    with pytest.raises(RuntimeError, match="Unknown Complex ScalarType for Int"):
        rl.int32.to_complex()
    with pytest.raises(TypeError):
        rl.float32 < rl.float64  # noqa: B015
    with pytest.raises(AttributeError):
        rl.float32.foo  # noqa: B018


def test_python_types_as_dtypes():
    assert rl.zeros(1, dtype=float).dtype is rl.float64
    assert rl.zeros(1, dtype=int).dtype is rl.int64
    assert rl.zeros(1, dtype=bool).dtype is rl.bool


@pytest.mark.parametrize("name", ["contiguous_format", "preserve_format", "channels_last", "channels_last_3d", "strided"])
def test_layout_and_formats(name):
    f = getattr(rl, name)
    assert repr(f) == f"rushlight.{name}"
    assert pickle.loads(pickle.dumps(f)) is f and copy.deepcopy(f) is f
    assert isinstance(f, rl.layout if name == "strided" else rl.memory_format)


# ---- Size ------------------------------------------------------------------------------------------------------------------

def test_size():
    s = rl.Size([2, 3])
    assert repr(s) == "rushlight.Size([2, 3])" and repr(rl.Size()) == "rushlight.Size([])"
    assert s == (2, 3) and hash(s) == hash((2, 3)) and isinstance(s, tuple) and len(s) == 2
    assert s.numel() == 6 and rl.Size().numel() == 1
    assert s[0] == 2 and s[-1] == 3 and list(s) == [2, 3]


@pytest.mark.parametrize("make", [lambda s: s[1:], lambda s: s[:], lambda s: s + (4,), lambda s: (4,) + s, lambda s: s * 2,
                                  lambda s: 2 * s])
def test_size_stays_size(make):
    s = rl.Size([2, 3])
    got, want = make(s), make(tuple(s))
    assert type(got) is rl.Size and got == want and hash(got) == hash(want)


def test_size_items():
    assert type(rl.Size([2])[0]) is int
    assert rl.Size([rl.tensor(2)]) == (2,) and type(rl.Size([rl.tensor(2)])[0]) is int
    assert rl.Size((-1,)) == (-1,)
    for bad, index, name in ((["a"], 0, "str"), ([1, 1.5], 1, "float")):
        with pytest.raises(TypeError, match=rf"rushlight.Size\(\) takes an iterable of 'int' \(item {index} is '{name}'\)"):
            rl.Size(bad)
    with pytest.raises(TypeError, match="not iterable"):
        rl.Size(1)
    with pytest.raises(TypeError, match=r"can only concatenate tuple \(not list\) to rushlight.Size"):
        rl.Size([2]) + [1]  # noqa: RUF005
    with pytest.raises(OverflowError):
        rl.Size([2**40, 2**40]).numel()


def test_size_pickles():
    s = rl.Size([2, 3])
    for got in (pickle.loads(pickle.dumps(s)), copy.copy(s), copy.deepcopy(s)):
        assert type(got) is rl.Size and got == s


# ---- device ----------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("args", "text", "printed"), [
    (("cpu",), "device(type='cpu')", "cpu"), (("cuda",), "device(type='cuda')", "cuda"),
    (("cuda:0",), "device(type='cuda', index=0)", "cuda:0"),
    (("cuda", 1), "device(type='cuda', index=1)", "cuda:1"), (("meta",), "device(type='meta')", "meta"),
    (("cuda", None), "device(type='cuda')", "cuda"),
    ((3,), "device(type='cuda', index=3)", "cuda:3"),
])
def test_device(args, text, printed):
    d = rl.device(*args)
    assert repr(d) == text and str(d) == printed
    assert d == rl.device(d) and hash(d) == hash(rl.device(d)) and d != printed
    assert pickle.loads(pickle.dumps(d)) == d and copy.deepcopy(d) == d
    assert rl.device(type=d.type, index=d.index) == d


@pytest.mark.parametrize(("args", "message"), [
    (("cuda:",), "Invalid device string: 'cuda:'"), (("cuda:x",), "Invalid device string: 'cuda:x'"),
    (("cuda:-1",), "Invalid device string"),
    (("cuda:00",), "Invalid device string"), (("cuda:1 ",), "Invalid device string"), (("",), "must not be empty"),
    (("CPU",), "Expected one of cpu, cuda"),
    (("cuda:0", 1), "must not include an index because index was passed explicitly"), (("cuda", -1), "must not be negative"),
    ((-1,), "must not be negative"),
    (("cuda", 1000), "too large"), (("cuda:1000000000000000000000",), "Invalid|too large"),
])
def test_device_refuses(args, message):
    with pytest.raises(RuntimeError, match=message):
        rl.device(*args)


@pytest.mark.parametrize("args", [(), (1.5,), (None,), (True,), ("cuda", "b"), ([],)])
def test_device_types(args):
    with pytest.raises(TypeError, match="device\\(\\)"):
        rl.device(*args)
    with pytest.raises(TypeError, match="comparison not implemented"):
        rl.device("cpu") < rl.device("cpu")  # noqa: B015


def test_default_device():
    assert rl.get_default_device() == rl.device("cpu")
    with rl.device("meta") as d:
        assert d == rl.device("meta") and rl.get_default_device() == d
        with rl.device("cpu"), rl.device("cpu"):
            assert rl.get_default_device() == rl.device("cpu")
            assert rl.ones(2).device == rl.device("cpu")
        assert rl.get_default_device() == d
    assert rl.get_default_device() == rl.device("cpu")
    rl.set_default_device("cpu")
    rl.set_default_device(None)
    with pytest.raises(RuntimeError, match="Expected one of"):
        rl.set_default_device("foo")


# ---- limits ----------------------------------------------------------------------------------------------------------------

FINFO = {
    "float32": "finfo(resolution=1e-06, min=-3.40282e+38, max=3.40282e+38, eps=1.19209e-07, "
               "smallest_normal=1.17549e-38, tiny=1.17549e-38, dtype=float32)",
    "float16": "finfo(resolution=0.001, min=-65504, max=65504, eps=0.000976562, "
               "smallest_normal=6.10352e-05, tiny=6.10352e-05, dtype=float16)",
    "bfloat16": "finfo(resolution=0.01, min=-3.38953e+38, max=3.38953e+38, eps=0.0078125, "
               "smallest_normal=1.17549e-38, tiny=1.17549e-38, dtype=bfloat16)",
    "float64": "finfo(resolution=1e-15, min=-1.79769e+308, max=1.79769e+308, eps=2.22045e-16, "
               "smallest_normal=2.22507e-308, tiny=2.22507e-308, "
               "dtype=float64)",
}


@pytest.mark.parametrize("name", FINFO)
def test_finfo(name):
    f = rl.finfo(getattr(rl, name))
    assert repr(f) == FINFO[name] and f == rl.finfo(type=getattr(rl, name)) and f.dtype == name
    assert f.min == -f.max and f.tiny == f.smallest_normal and f.bits == 8 * DTYPES[name]
    one = rl.ones((), dtype=getattr(rl, name))
    assert (one + f.eps).item() > 1 and (one + f.eps / 4).item() == 1
    assert rl.finfo() == rl.finfo(rl.float32) and f != rl.iinfo(rl.int8)


@pytest.mark.parametrize(("name", "low", "high"),
                         [("uint8", 0, 255), ("int8", -128, 127), ("int16", -(2**15), 2**15 - 1), ("int32", -(2**31), 2**31 - 1),
                                                   ("int64", -(2**63), 2**63 - 1)])
def test_iinfo(name, low, high):
    i = rl.iinfo(getattr(rl, name))
    assert (i.min, i.max, i.bits, i.dtype) == (low, high, 8 * DTYPES[name], name)
    assert repr(i) == f"iinfo(min={low:g}, max={high:g}, dtype={name})"


def test_limits_refuse():
    for f, message in ((lambda: rl.finfo(rl.int32), "requires a floating point input type. Use rushlight.iinfo"),
                       (lambda: rl.iinfo(rl.float32), "requires an integer input type. Use rushlight.finfo"),
                       (lambda: rl.iinfo(rl.bool), "rushlight.bool is not supported by rushlight.iinfo"),
                       (lambda: rl.finfo(1), r"finfo\(\): argument 'type' \(position 1\) must be rushlight.dtype, not int")):
        with pytest.raises(TypeError, match=message):
            f()
    with pytest.raises(TypeError, match="unhashable"):
        hash(rl.finfo())


# ---- defaults, promotion, threads ---------------------------------------------------------------------------------------------

def test_default_dtype():
    try:
        rl.set_default_dtype(rl.float64)
        assert rl.get_default_dtype() is rl.float64
        assert rl.tensor(1.0).dtype is rl.float64 and rl.zeros(1).dtype is rl.float64 and rl.finfo().dtype == "float64"
    finally:
        rl.set_default_dtype(rl.float32)
    for bad in (rl.int32, "float32", float, None):
        with pytest.raises(TypeError, match="only floating-point types are supported as the default type"):
            rl.set_default_dtype(bad)


def test_promotion():
    assert rl.promote_types(rl.int32, rl.float32) is rl.float32
    assert rl.promote_types(rl.uint8, rl.int8) is rl.int16
    assert rl.promote_types(rl.float16, rl.bfloat16) is rl.float32
    assert rl.can_cast(rl.int64, rl.float32) and not rl.can_cast(rl.float32, rl.int64) and not rl.can_cast(rl.int8, rl.bool)
    i, f0, f64 = rl.ones(2, dtype=rl.int32), rl.tensor(1.0), rl.ones(2, dtype=rl.float64)
    cases = [((i, 1.5), rl.float32), ((i, 2), rl.int32), ((i, True), rl.int32), ((i, f0), rl.float32), ((f64, f0), rl.float64),
             ((f0, f64), rl.float64),
             ((1, 2.5), rl.float32), ((rl.ones(2, dtype=rl.float16), f0), rl.float16), ((rl.tensor(1, dtype=rl.int8), i), rl.int32)]
    for args, want in cases:
        assert rl.result_type(*args) is want, args
    with pytest.raises(TypeError, match="must be Tensor or Number, not str"):
        rl.result_type(i, "a")
    with pytest.raises(TypeError, match="takes 2 arguments but 1 were given"):
        rl.promote_types(rl.int8)


def test_threads():
    n = rl.get_num_threads()
    try:
        rl.set_num_threads(2)
        assert rl.get_num_threads() == 2
        for bad in (0, -1, 2**40):
            with pytest.raises(RuntimeError, match="expects a positive integer"):
                rl.set_num_threads(bad)
        with pytest.raises(TypeError, match="expects an int, but got str"):
            rl.set_num_threads("2")
    finally:
        rl.set_num_threads(n)


# ---- the module -----------------------------------------------------------------------------------------------------------------

def run(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_import_is_light():
    """Nothing that costs as much as the package itself: what it loads beyond a bare interpreter's own modules is its own."""
    root = pathlib.Path(rl.__file__).parent.parent
    code = (f"import os, sys; sys.path.insert(0, {str(root)!r}); before = set(sys.modules); import rushlight; "
            "print(sorted(set(sys.modules) - before))")
    got = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True)
    loaded = set(ast.literal_eval(got.stdout))
    assert {m for m in loaded if not m.startswith("rushlight")} <= {"__future__", "math", "_datetime"}
    assert not {m for m in loaded if m.startswith(("rushlight.nn", "rushlight.optim", "rushlight.utils"))}


def test_submodules_are_imported_when_named():
    got = run("import rushlight as t; print(t.nn.Linear.__name__, t.optim.SGD.__name__, t.autograd.grad.__name__, 'nn' in dir(t))")
    assert got.stdout.split()[:2] == ["Linear", "SGD"] and got.stdout.split()[-1] == "True", got


def test_missing_name():
    with pytest.raises(AttributeError, match="rushlight lacks it; the nearest name it has is 'zeros'"):
        rl.zeross  # noqa: B018
    assert not hasattr(rl, "__wrapped__")


def test_second_interpreter_is_refused():
    got = run("""
import rushlight
try:
    import _interpreters as i
except ImportError:
    import _xxsubinterpreters as i
sub = i.create()
try:
    out = i.run_string(sub, "try:\\n import rushlight._C\\nexcept ImportError as e: print('refused')\\nelse: print('loaded')")
    if out is not None: print(out)
except Exception as e: print('refused', e)
""")
    assert "refused" in got.stdout and got.returncode == 0, got


def test_imported_twice_is_the_same_module():
    got = run("import sys, rushlight._C as a; del sys.modules['rushlight._C']; import importlib as i; b = i.import_module('rushlight._C')\n"
              "print(a is b)")
    assert got.stdout.strip() == "True", got


def test_under_the_alias_types_print_as_torch():
    got = run("import rushlight as t; t._C._set_print_as_torch(True); print(t.float32, t.Size([2]), t.strided, t.finfo, t.channels_last)")
    assert got.stdout.split()[:4] == ["torch.float32", "torch.Size([2])", "torch.strided", "<class"], got


def test_settings():
    try:
        rl.use_deterministic_algorithms(True, warn_only=True)
        assert rl.are_deterministic_algorithms_enabled() and rl.get_deterministic_debug_mode() == 1
        rl.set_deterministic_debug_mode("error")
        assert rl.get_deterministic_debug_mode() == 2 and not rl.is_deterministic_algorithms_warn_only_enabled()
    finally:
        rl.use_deterministic_algorithms(False)
    with pytest.raises(RuntimeError, match="invalid value of debug_mode"):
        rl.set_deterministic_debug_mode("x")
    rl.set_float32_matmul_precision("high")
    assert rl.get_float32_matmul_precision() == "high"
    with pytest.raises(RuntimeError, match="low is not one of 'highest', 'high', or 'medium'"):
        rl.set_float32_matmul_precision("low")
    rl.set_float32_matmul_precision("highest")
    assert rl.typename(rl.ones(1)) == "torch.FloatTensor" and rl.typename(1) == "int" and rl.is_storage(rl.ones(1).untyped_storage())
    assert rl.version.cuda is None and rl.version.__version__ == rl.__version__

    @rl.compile
    def f(x):
        return x + 1

    @rl.compile(mode="max-autotune")
    def g(x):
        return x + 1

    assert f(1) == g(1) == 2
