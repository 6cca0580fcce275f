"""The Tensor object: identity with what C holds, resurrection, the collector, subclasses, overrides, attributes and their refusals."""
from __future__ import annotations

import copy
import gc
import pickle
import threading
import warnings
import weakref

import pytest
import rushlight as rl

Tensor = rl.Tensor


class Sub(Tensor):
    pass


def leaf():
    return rl.ones(3, requires_grad=True)


# ---- identity and lifetime ---------------------------------------------------------------------------------------------------

def test_the_same_object_comes_back():
    p = leaf()
    (p * 2).backward(rl.ones(3))
    assert p.grad is p.grad
    v = p.detach()[1:]
    assert v._base is v._base
    y = p * 2
    assert y.grad_fn is y.grad_fn


def test_attributes_survive_while_c_holds_the_tensor():
    p = leaf()
    p.grad = rl.zeros(3)
    p.grad.note = "kept"
    number = id(p.grad)
    gc.collect()
    assert p.grad.note == "kept" and id(p.grad) == number
    other = p.grad
    p.grad = None
    assert other.note == "kept"


def test_without_state_the_wrapper_goes():
    p = leaf()
    p.grad = rl.zeros(3)
    before = p.grad._cdata
    gc.collect()
    assert p.grad._cdata == before


def test_subclass_survives():
    p, s = leaf(), rl.ones(3).as_subclass(Sub)
    s.note = 1
    p.grad = s
    del s
    gc.collect()
    assert type(p.grad) is Sub and p.grad.note == 1


def test_slots_and_finalizer_wait_for_the_real_end():
    log = []

    class Slots(Tensor):
        __slots__ = ("q",)

        def __del__(self):
            log.append(self.q)

    p, s = leaf(), rl.ones(3).as_subclass(Slots)
    s.q = [7]
    p.grad = s
    del s
    for _ in range(3):
        again = p.grad
        assert again.q == [7] and not log
        del again
    p.grad = None
    gc.collect()
    assert log == [[7]]


def test_weak_reference_through_c():
    p = leaf()
    p.grad = rl.ones(3)
    w = weakref.ref(p.grad)
    a = w()
    assert a is p.grad
    p.grad = None
    assert w() is a
    del a
    assert w() is None


def test_weak_key_dictionary():
    p, d = rl.ones(1, requires_grad=True), weakref.WeakKeyDictionary()
    p.grad = rl.ones(1)
    d[p.grad] = "x"
    gc.collect()
    assert d[p.grad] == "x"
    p.grad = None
    gc.collect()
    assert len(d) == 0


def test_weak_reference_callback_cannot_reach_the_dying_wrapper():
    p, seen = leaf(), []
    p.grad = rl.ones(3)
    w = weakref.ref(p.grad, lambda _: seen.append(p.grad))
    p.grad = None
    assert seen == [None] and w() is None


@pytest.mark.parametrize("make", [
    lambda x: setattr(x, "me", x),
    lambda x: (setattr(x, "grad", rl.ones(3)), setattr(x.grad, "owner", x)),
    lambda x: setattr(x, "pair", [x, {"x": x}]),
])
def test_cycles_are_collected(make):
    x = leaf()
    make(x)
    w = weakref.ref(x)
    del x
    gc.collect()
    assert w() is None


def test_a_cycle_that_c_holds_from_outside_is_kept():
    p = leaf()
    p.grad = rl.ones(3)
    p.grad.me = p.grad
    p.grad.note = 5
    for _ in range(3):
        gc.collect()
    assert p.grad.note == 5 and p.grad.me is p.grad
    w = weakref.ref(p.grad)
    p.grad = None
    gc.collect()
    assert w() is None


def test_context_that_holds_its_output_is_collected():
    class Keep(rl.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = x * 2
            ctx.y = y
            return y

        @staticmethod
        def backward(ctx, g):
            return g * 2

    y = Keep.apply(leaf())
    w = weakref.ref(y)
    del y
    gc.collect()
    assert w() is None


def test_release_in_other_threads():
    errors = []

    def work():
        try:
            for k in range(300):
                p = rl.ones(4, requires_grad=True)
                p.grad = rl.ones(4)
                p.grad.k = k
                assert p.grad.k == k
        except Exception as e:  # noqa: BLE001
            errors.append(e)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors


def test_no_growth():
    from rushlight import _C

    def work():
        for _ in range(200):
            x = leaf()
            y = (x * 2 + 1).exp()
            y.note = 1
            y.backward(rl.ones(3))
            x.grad.note = y
    work()
    gc.collect()
    live, objects = _C._host_memory()["live_bytes"], len(gc.get_objects())
    work()
    gc.collect()
    assert _C._host_memory()["live_bytes"] <= live and len(gc.get_objects()) <= objects + 10


# ---- attributes ------------------------------------------------------------------------------------------------------------------

def test_geometry():
    x = rl.zeros(2, 3, 4, dtype=rl.float64)
    assert x.shape == x.size() == (2, 3, 4) and type(x.shape) is rl.Size
    assert x.size(0) == x.size(-3) == x.size(dim=0) == 2
    assert x.stride() == (12, 4, 1) and type(x.stride()) is tuple and x.stride(1) == 4 and x.stride(dim=-1) == 1
    assert x.ndim == x.dim() == x.ndimension() == 3 and x.numel() == x.nelement() == 24
    assert x.itemsize == x.element_size() == 8 and x.nbytes == 192
    assert x[1].storage_offset() == 12 and x[1].data_ptr() == x.data_ptr() + 96
    assert x.is_contiguous() and not x.transpose(0, 1).is_contiguous()
    assert not x.is_contiguous(memory_format=rl.channels_last)
    assert x.is_same_size(rl.zeros(2, 3, 4)) and x.is_set_to(x.view(2, 3, 4)) and not x.is_set_to(x[:1])
    assert (x.layout, x.dtype, x.device) == (rl.strided, rl.float64, rl.device("cpu"))
    assert x.is_cpu and not (x.is_cuda or x.is_meta or x.is_sparse or x.is_quantized) and x.get_device() == -1
    assert x.is_floating_point() and x.is_signed() and not x.is_complex()


def test_transposes():
    m = rl.arange(6.0).view(2, 3)
    assert m.T.shape == m.mT.shape == m.H.shape == m.mH.shape == (3, 2) and m.T.data_ptr() == m.data_ptr()
    assert m.T.tolist() == [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]]
    assert rl.zeros(2, 3, 4).mT.shape == (2, 4, 3) and rl.zeros(3).T.shape == (3,)
    with pytest.warns(UserWarning, match="deprecated"):
        assert rl.zeros(2, 3, 4).T.shape == (4, 3, 2)
    for bad, message in ((lambda: rl.zeros(3).mT, "tensor.mT is only supported on matrices or batches of matrices. Got 1-D tensor."),
                         (lambda: rl.zeros(3).mH, "tensor.mH is only supported"),
                         (lambda: rl.zeros(2, 3, 4).H, "consider using tensor.mH")):
        with pytest.raises(RuntimeError, match=message):
            bad()
    assert m.real is m
    with pytest.raises(RuntimeError, match="imag is not implemented for tensors with non-complex dtypes"):
        m.imag  # noqa: B018


@pytest.mark.parametrize("f", [lambda x: x.size(5), lambda x: x.stride(-4), lambda x: x.size(2)])
def test_dimension_out_of_range(f):
    with pytest.raises(IndexError, match=r"Dimension out of range \(expected to be in range of \[-2, 1\], but got"):
        f(rl.zeros(2, 3))
    with pytest.raises(IndexError, match="tensor has no dimensions"):
        rl.zeros(()).size(0)


def test_requires_grad():
    x = rl.ones(2)
    assert not x.requires_grad and x.is_leaf and x.grad is None and x.grad_fn is None
    x.requires_grad = True
    assert x.requires_grad and x.requires_grad_() is x and not x.requires_grad_(False).requires_grad
    x.requires_grad_(requires_grad=True)
    y = x * 2
    assert y.requires_grad and not y.is_leaf and y.requires_grad_() is y
    with pytest.raises(RuntimeError, match="you can only change requires_grad flags of leaf variables"):
        y.requires_grad = False
    with pytest.raises(RuntimeError, match="you can only change requires_grad flags of leaf variables"):
        y.requires_grad_(False)
    with pytest.raises(RuntimeError, match="requires_grad must be a bool"):
        x.requires_grad = 1
    with pytest.raises(RuntimeError, match="requires_grad must be a bool"):
        del x.requires_grad
    i = rl.ones(2, dtype=rl.int32)
    with pytest.raises(RuntimeError, match="only Tensors of floating point and complex dtype can require gradients"):
        i.requires_grad = True
    with pytest.raises(RuntimeError, match="only Tensors of floating point dtype can require gradients"):
        i.requires_grad_()
    assert i.requires_grad_(False) is i
    with pytest.raises(TypeError, match=r"requires_grad_\(\): argument 'requires_grad' \(position 1\) must be bool, not str"):
        x.requires_grad_("a")


def test_grad_setter():
    x = rl.ones(2, 3)
    cases = [(1, TypeError, "assigned grad expected to be a Tensor or None but got grad of type int"),
             (x, RuntimeError, "can't assign Variable as its own grad"),
             (rl.ones(3), RuntimeError, r"attempting to assign a gradient of size '\[3\]' to a tensor of size '\[2, 3\]'"),
             (rl.ones(2, 3, dtype=rl.float64), RuntimeError,
              "attempting to assign a gradient with dtype 'double' to a tensor with grad_dtype 'Float'")]
    g = rl.ones(2, 3)
    x.grad = g
    for bad, error, message in cases:
        with pytest.raises(error, match=message):
            x.grad = bad
        assert x.grad is g
    del x.grad
    assert x.grad is None


def test_grad_of_a_non_leaf_warns():
    y = leaf() * 2
    with pytest.warns(UserWarning, match="The .grad attribute of a Tensor that is not a leaf Tensor is being accessed"):
        assert y.grad is None
    y.retain_grad()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert y.grad is None


def test_data():
    x = rl.ones(2, requires_grad=True)
    d = x.data
    assert not d.requires_grad and d.data_ptr() == x.data_ptr() and d._version == 0
    d.add_(1)
    assert x.tolist() == [2.0, 2.0] and x._version == 0
    x.data = rl.zeros(2, 3)
    assert x.shape == (2, 3) and x.requires_grad and x.is_leaf
    with pytest.raises(TypeError, match="Variable data has to be a tensor, but got int"):
        x.data = 1
    with pytest.raises(RuntimeError, match="Deleting tensor data is not allowed"):
        del x.data
    with pytest.raises(RuntimeError, match="must be floating point"):
        x.data = rl.ones(2, dtype=rl.int64)
    y = rl.ones(3)
    y.data = rl.arange(4)
    assert y.dtype is rl.int64 and y.tolist() == [0, 1, 2, 3]
    y.data = y


def test_read_only():
    x = rl.ones(2)
    for name in ("shape", "dtype", "device", "grad_fn", "is_leaf", "T", "_version"):
        with pytest.raises(AttributeError):
            setattr(x, name, 1)
    with pytest.raises(AttributeError, match="'Tensor' object has no attribute 'bar'"):
        x.bar  # noqa: B018
    x.bar = 3
    assert x.bar == 3 and x.__dict__ == {"bar": 3}


def test_versions():
    x = rl.ones(4)
    v = x[1:]
    assert (x._version, v._base is x, x._base) == (0, True, None)
    v.add_(1)
    assert x._version == v._version == x.detach()._version == 1
    assert v._is_view() and not x._is_view()
    with rl.inference_mode():
        i = rl.ones(2)
    assert i.is_inference()
    with pytest.raises(RuntimeError, match="Inference tensors do not track version counter"):
        i._version  # noqa: B018
    with pytest.raises(RuntimeError, match="Setting requires_grad=True on inference tensor outside InferenceMode is not allowed"):
        i.requires_grad = True


# ---- numbers ---------------------------------------------------------------------------------------------------------------------

def test_conversions():
    assert float(rl.tensor(2.5)) == 2.5 and int(rl.tensor([-2.7])) == -2
    assert bool(rl.tensor(0.0)) is False and bool(rl.tensor([[3]])) is True
    assert [10, 20, 30][rl.tensor(1)] == 20 and list(range(rl.tensor([2]))) == [0, 1] and rl.tensor(1).is_nonzero()
    for f in (float, int):
        with pytest.raises(ValueError, match="only one element tensors can be converted to Python scalars"):
            f(rl.ones(2))
    for bad in (rl.tensor(1.0), rl.ones(2, dtype=rl.int64)):
        with pytest.raises(TypeError, match="only integer tensors of a single element can be converted to an index"):
            [1, 2][bad]
    for bad, message in ((rl.ones(2), "more than one value"), (rl.ones(0), "no values")):
        with pytest.raises(RuntimeError, match=f"Boolean value of Tensor with {message} is ambiguous"):
            bool(bad)
    with pytest.raises(OverflowError):
        int(rl.tensor(float("inf")))


def test_operators():
    x, y = rl.tensor([7.0, -7.0]), rl.tensor([2.0, 2.0])
    cases = [(x + y, [9, -5]), (x - y, [5, -9]), (x * y, [14, -14]), (x / y, [3.5, -3.5]), (x // y, [3, -4]), (x % y, [1, 1]),
             (x**2, [49, 49]),
             (1 + x, [8, -6]), (1 - x, [-6, 8]), (2 * x, [14, -14]), (14 / x, [2, -2]), (15 // y, [7, 7]), (7 % y, [1, 1]), (2**y, [4, 4]),
             (-x, [-7, 7]), (+x, [7, -7]), (abs(x), [7, 7]), (x @ y, 0)]
    for got, want in cases:
        assert got.tolist() == want
    i = rl.tensor([6, 3])
    cases = [(i & 3, [2, 3]), (i | 1, [7, 3]), (i ^ i, [0, 0]), (~i, [-7, -4]), (i << 1, [12, 6]), (i >> 1, [3, 1]), (3 & i, [2, 3]),
             (1 | i, [7, 3])]
    for got, want in cases:
        assert got.tolist() == want and got.dtype is rl.int64
    assert (x < y).tolist() == [False, True] and (x >= 7).tolist() == [True, False] and (1 < x).tolist() == [True, False]
    assert (x == y).tolist() == [False, False] and (x != 7).tolist() == [False, True]


def test_inplace_operators():
    x = rl.tensor([7.0, -7.0])
    same = x
    x += 1
    x -= rl.ones(2)
    x *= 2
    x /= 2
    x **= 2
    x //= 10
    x %= 3
    assert x is same and x.tolist() == [1.0, 1.0]
    i = rl.tensor([6, 3])
    same = i
    i &= 7
    i |= 8
    i ^= 1
    i <<= 1
    i >>= 1
    assert i is same and i.tolist() == [15, 10]


def test_operators_refuse():
    x = rl.ones(2)
    for f, op in ((lambda: x + "a", r"\+"), (lambda: x - None, "-"), (lambda: x @ 2, "@"), (lambda: x * {}, r"\*"), (lambda: [] // x, "//"),
                  (lambda: pow(x, 2, 3), r"\*\* or pow\(\)")):
        with pytest.raises(TypeError, match=f"unsupported operand type.* for {op}"):
            f()
    with pytest.raises(TypeError, match="'<' not supported between instances of 'Tensor' and 'str'"):
        x < "a"  # noqa: B015
    assert (x == "a") is False and (x != None) is True and x != object()  # noqa: E711
    with pytest.raises(TypeError, match=r"~ \(operator.invert\) is only implemented on integer and Boolean-type tensors"):
        ~x  # noqa: B018
    with pytest.raises(OverflowError, match="int too big to convert"):
        x + 2**70
    with pytest.raises(RuntimeError,
                       match=r"The size of tensor a \(2\) must match the size of tensor b \(3\) at non-singleton dimension 0"):
        x + rl.ones(3)


def test_hash_is_identity():
    x, y = rl.ones(2), rl.ones(2)
    assert len({x, y, x}) == 2 and hash(x) == hash(x)


# ---- subclasses ------------------------------------------------------------------------------------------------------------------

def test_subclass_results():
    s = rl.ones(2).as_subclass(Sub)
    for r in (s + 1, 1 + s, 1 - s, -s, s.exp(), rl.exp(s), s == s, s[0], rl.stack([rl.ones(2), s]), s.view(1, 2), s.clone(), s.detach(),
              rl.ones(2) * s):
        assert type(r) is Sub
    same = s
    s += 1
    assert s is same and type(s) is Sub
    assert all(type(r) is Sub for r in s.unbind())
    assert type(s.shape) is rl.Size and type(s.tolist()) is list


def test_making_subclasses():
    base = rl.ones(2)
    m = Tensor._make_subclass(Sub, base, True)
    assert type(m) is Sub and m.requires_grad and m.data_ptr() == base.data_ptr() and not base.requires_grad
    for f, message in ((lambda: Tensor._make_subclass(1, base), r"cls must be a type \(got int\)"),
                       (lambda: base.as_subclass(int), "class that does not inherit from Tensor is not possible"),
                       (lambda: Tensor._make_subclass(Sub, 1), r"argument 'data' \(position 2\) must be Tensor, not int")):
        with pytest.raises(TypeError, match=message):
            f()
    x = leaf()
    y = x.as_subclass(Sub)
    y.backward(rl.ones(3))
    assert x.grad.tolist() == [1.0, 1.0, 1.0]
    assert type(Sub([1.0, 2.0])) is Sub and Sub(2, 3).shape == (2, 3)


def test_parameter_gives_tensors():
    p = rl.nn.Parameter(rl.ones(2))
    assert type(p) is rl.nn.Parameter and type(p + 1) is Tensor and type(p.detach()) is Tensor and type(p.view(1, 2)) is Tensor


def test_subclass_copies_and_pickles():
    global Sub
    s = rl.ones(2).as_subclass(Sub)
    s.note = [1]
    for t in (copy.deepcopy(s), pickle.loads(pickle.dumps(s))):
        assert type(t) is Sub and t.note == [1] and t.tolist() == [1.0, 1.0]


# ---- __torch_function__ --------------------------------------------------------------------------------------------------------------

class Logged(Tensor):
    calls: list = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.calls.append((func, types))
        return super().__torch_function__(func, types, args, kwargs or {})


class Duck:
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return "duck", func, types, args, kwargs


class Shy:
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return NotImplemented


@pytest.mark.parametrize(("call", "func"), [
    (lambda x: rl.add(x, 1), rl.add), (lambda x: rl.add(rl.ones(2), other=x), rl.add), (lambda x: x.exp(), Tensor.exp),
    (lambda x: x + 1, Tensor.add),
    (lambda x: 1 + x, Tensor.add), (lambda x: 1 - x, Tensor.__rsub__), (lambda x: -x, Tensor.neg), (lambda x: x < 1, Tensor.lt),
    (lambda x: rl.stack([rl.ones(2), x]), rl.stack), (lambda x: x.size(), Tensor.size), (lambda x: x[0], Tensor.__getitem__),
    (lambda x: x.requires_grad_(False), Tensor.requires_grad_),
])
def test_classes_see_the_public_function(call, func):
    x = rl.ones(2).as_subclass(Logged)
    Logged.calls.clear()
    call(x)
    assert Logged.calls[0] == (func, (Logged,))


def test_classes_see_attributes():
    x = rl.ones(2).as_subclass(Logged)
    Logged.calls.clear()
    assert x.shape == (2,) and x.dtype is rl.float32
    assert [f for f, _ in Logged.calls] == [Tensor.shape.__get__, Tensor.dtype.__get__]


def test_objects_that_are_no_tensors():
    x, d = rl.ones(2), Duck()
    assert rl.add(x, d) == ("duck", rl.add, (Duck,), (x, d), None) or rl.add(x, d)[:2] == ("duck", rl.add)
    assert rl.add(x, other=d, alpha=2)[4] == {"other": d, "alpha": 2}
    assert x.mul(d)[1] is Tensor.mul and (x + d)[0] == "duck"
    with pytest.raises(TypeError, match="no implementation found for 'rushlight.add' on types that implement __torch_function__"):
        rl.add(x, Shy())
    assert rl.add(Shy(), d)[0] == "duck"


def test_subclasses_are_asked_before_their_bases():
    class Deeper(Logged):
        calls: list = []

    a, b = rl.ones(2).as_subclass(Logged), rl.ones(2).as_subclass(Deeper)
    Deeper.calls.clear()
    Logged.calls.clear()
    r = rl.add(a, b)
    assert type(r) is Deeper and Deeper.calls[0][1] == (Deeper, Logged) and not Logged.calls


def test_switching_it_off():
    from rushlight import _C

    class Off(Tensor):
        __torch_function__ = _C._disabled_torch_function_impl

    x = rl.ones(2).as_subclass(Off)
    assert type(x + 1) is Tensor and type(x.exp()) is Tensor
    assert not _C._has_torch_function((x, 1)) and _C._has_torch_function((Duck(),))
    assert _C._get_overloaded_args((rl.ones(2), Duck())) != []


def test_exceptions_pass_through():
    class Bad(Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            raise KeyError("mine")

    x = rl.ones(2).as_subclass(Bad)
    for f in (lambda: x + 1, lambda: rl.exp(x), lambda: x.shape, lambda: x.exp()):
        with pytest.raises(KeyError, match="mine"):
            f()
    assert type(rl.ones(2) + 1) is Tensor


class Count(rl.overrides.TorchFunctionMode):
    def __init__(self):
        self.seen = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.seen.append(func)
        return func(*args, **(kwargs or {}))


def test_modes():
    x, outer, inner = rl.ones(2), Count(), Count()
    with outer:
        y = x + 1
        with inner:
            rl.exp(y)
            x.shape  # noqa: B018
    x + 1
    assert outer.seen == [Tensor.add, rl.exp, Tensor.shape.__get__] and inner.seen == [rl.exp, Tensor.shape.__get__]
    with Count() as c, rl._C.DisableTorchFunction():
        x + 1
    assert c.seen == []
    with pytest.raises(RuntimeError, match="no TorchFunctionMode to leave"):
        rl._C._pop_torch_function_mode()
    with pytest.raises(NotImplementedError, match="does not define __torch_function__"), rl.overrides.TorchFunctionMode():
        x + 1
    assert (x + 1).tolist() == [2.0, 2.0]


def test_disabling_subclasses():
    s = rl.ones(2).as_subclass(Sub)
    with rl._C.DisableTorchFunctionSubclass():
        assert type(s + 1) is Tensor
    assert type(s + 1) is Sub


def test_overridable_functions():
    @rl.overrides.wrap_torch_function(lambda x, y=None: (x, y))
    def mine(x, y=None):
        return "plain"

    assert mine(rl.ones(1)) == "plain" and mine(rl.ones(1), y=Duck())[0] == "duck"
    assert rl.overrides.has_torch_function((1, Duck())) and not rl.overrides.has_torch_function_variadic(1, rl.ones(1))
    assert rl.overrides.is_tensor_like(Duck()) and not rl.overrides.is_tensor_like(1)
    with pytest.raises(TypeError, match="no implementation found"):
        rl.overrides.handle_torch_function(mine, (Shy(),), Shy())
