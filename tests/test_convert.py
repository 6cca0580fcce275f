"""Python values, arrays and buffers as tensors, and tensors as Python values. Messages are PyTorch's, as recorded from 2.13."""
import array
import copy
import gc
import pickle
import warnings
import weakref

import numpy as np
import pytest
import rushlight as rl

DTYPES = {"bool": rl.bool, "uint8": rl.uint8, "int8": rl.int8, "int16": rl.int16, "int32": rl.int32, "int64": rl.int64,
          "float16": rl.float16, "float32": rl.float32, "float64": rl.float64}


def same(t, values, dtype):
    assert t.dtype == dtype
    assert t.tolist() == values


# ---- tensor() ---------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("data, dtype, shape", [
    ([1, 2], rl.int64, (2,)), ([1, 2.0], rl.float32, (2,)), ([True, 2], rl.int64, (2,)), ([True, False], rl.bool, (2,)),
    ([True, 2.0], rl.float32, (2,)), ([1, 2.0, True], rl.float32, (3,)), ([], rl.float32, (0,)), ([[]], rl.float32, (1, 0)),
    ([[], []], rl.float32, (2, 0)), ((1, 2), rl.int64, (2,)), (range(3), rl.int64, (3,)), ([range(3)], rl.int64, (1, 3)),
    (np.float64(3), rl.float64, ()), (np.float32(3), rl.float32, ()), (np.int8(3), rl.int8, ()), ([np.float64(3)], rl.float64, (1,)),
    ([np.float32(3)], rl.float32, (1,)), ([np.int8(3)], rl.int8, (1,)), (3, rl.int64, ()), (True, rl.bool, ()), (2.5, rl.float32, ()),
    (bytearray(b"abc"), rl.int64, (3,)), (memoryview(b"abc"), rl.int64, (3,)), (array.array("f", [1, 2]), rl.float32, (2,)),
    ([[[1, 2], [3, 4]], [[5, 6], [7, 8]]], rl.int64, (2, 2, 2)), ([np.array([1, 2]), np.array([3, 4])], rl.int64, (2, 2)),
    ([np.array([1, 2.0], np.float32)], rl.float32, (1, 2)), ([rl.tensor(1.0), 2], rl.float32, (2,)),
    ([rl.tensor([1.0]), rl.tensor([2])], rl.float32, (2,)), ([rl.tensor(1, dtype=rl.int8)], rl.int8, (1,)),
    ([[rl.tensor(1.0), 2.0], [3, 4]], rl.float32, (2, 2)), (np.zeros((2, 3), np.int16), rl.int16, (2, 3)),
])
def test_inferred(data, dtype, shape):
    t = rl.tensor(data)
    assert t.dtype == dtype and tuple(t.shape) == shape and t.is_contiguous()
    assert not t.requires_grad and t.is_leaf


def test_values():
    same(rl.tensor([[1, 2], [3, 4]]), [[1, 2], [3, 4]], rl.int64)
    same(rl.tensor([1.5, 0], dtype=rl.bool), [True, False], rl.bool)
    same(rl.tensor(-1, dtype=rl.uint8), 255, rl.uint8)
    same(rl.tensor(1.9, dtype=rl.int64), 1, rl.int64)
    same(rl.tensor([-1.9, 2.9], dtype=rl.int8), [-1, 2], rl.int8)
    same(rl.tensor(1e40), float("inf"), rl.float32)
    same(rl.tensor(1e40, dtype=rl.float16), float("inf"), rl.float16)
    same(rl.tensor(2**63, dtype=rl.float32), 2.0**63, rl.float32)
    same(rl.tensor(2**70, dtype=rl.float64), 2.0**70, rl.float64)
    same(rl.tensor([1], dtype=float), [1.0], rl.float64)
    same(rl.tensor([1.5], dtype=int), [1], rl.int64)
    same(rl.tensor([2], dtype=bool), [True], rl.bool)
    same(rl.tensor([True, False], dtype=rl.float16), [1.0, 0.0], rl.float16)
    same(rl.tensor([-9223372036854775808, 9223372036854775807]), [-9223372036854775808, 9223372036854775807], rl.int64)


@pytest.mark.parametrize("value", [2**24 + 1, 2**53 + 1, 2**63, 2**64, 2**100, -(2**63)])
def test_large_ints_round_as_numpy(value):
    assert rl.tensor(value, dtype=rl.float64).item() == float(value)
    assert rl.tensor(value, dtype=rl.float32).item() == float(np.float32(float(value)))


def test_short_lists_of_one_kind():
    """The fast path and the general one agree, at its edges too."""
    for data in ([1.0, 2.0], [1, 2], [1.0, 2], [1, 2.0], [1, 2**40], [1, True], [1.0, np.float32(2)], [1, 2**62]):
        t = rl.tensor(data)
        expected = np.array(data)
        assert t.tolist() == expected.tolist()
        assert t.dtype == (rl.float32 if expected.dtype.kind == "f" else rl.int64)


@pytest.mark.parametrize("data, error, text", [
    ([[1, 2], [3]], ValueError, r"expected sequence of length 2 at dim 1 \(got 1\)"),
    ([[1, 2], [3, 4, 5]], ValueError, r"expected sequence of length 2 at dim 1 \(got 3\)"),
    ([[1, 2], 3], TypeError, "not a sequence"),
    ([1, [2]], TypeError, "'list' object cannot be interpreted as an integer"),
    ("a", TypeError, r"new\(\): invalid data type 'str'"), (b"abc", TypeError, r"new\(\): invalid data type 'bytes'"),
    (["a"], ValueError, "too many dimensions 'str'"), ([1, "a"], TypeError, r"new\(\): invalid data type 'str'"),
    ([1.0, "a"], TypeError, r"new\(\): invalid data type 'str'"), (None, RuntimeError, "Could not infer dtype of NoneType"),
    ([None], RuntimeError, "Could not infer dtype of NoneType"), ([1, None], RuntimeError, "Could not infer dtype of NoneType"),
    ({}, RuntimeError, "Could not infer dtype of dict"), ([{}], RuntimeError, "Could not infer dtype of dict"),
    ({1}, RuntimeError, "Could not infer dtype of set"), (object(), RuntimeError, "Could not infer dtype of object"),
    ([rl.tensor([1.0, 3]), rl.tensor([2])], ValueError, "only one element tensors can be converted to Python scalars"),
    ([rl.tensor([1.0, 2.0])], ValueError, "only one element tensors can be converted to Python scalars"),
    (2**63, ValueError, "Overflow when unpacking long long"), ([2**64], ValueError, "Overflow when unpacking long long"),
    (-(2**63) - 1, ValueError, "Overflow when unpacking long long"), (1j, NotImplementedError, "complex"),
    (np.array(["a"]), TypeError, "can't convert np.ndarray of type numpy.str_"),
    (np.array([1], dtype=object), TypeError, "can't convert np.ndarray of type numpy.object_"),
    (np.array(["2020-01-01"], dtype="M8[D]"), TypeError, "can't convert np.ndarray of type numpy.datetime64"),
    (np.array([1], dtype=">i4"), ValueError, "given numpy array has byte order different from the native byte order"),
])
def test_errors(data, error, text):
    with pytest.raises(error, match=text):
        rl.tensor(data)


@pytest.mark.parametrize("value, dtype", [(300, rl.uint8), (-256, rl.uint8), (300, rl.int8), (-129, rl.int8), (40000, rl.int16),
                                          (2**31, rl.int32), (float("nan"), rl.int64), (float("inf"), rl.int32), (1e30, rl.int64),
                                          (2.0**63, rl.int64), (256.0, rl.uint8)])
def test_numbers_that_do_not_fit(value, dtype):
    with pytest.raises(RuntimeError, match="value cannot be converted to type .* without overflow"):
        rl.tensor(value, dtype=dtype)
    with pytest.raises(RuntimeError, match="value cannot be converted to type .* without overflow"):
        rl.tensor([0, value], dtype=dtype)


def test_arguments():
    assert rl.tensor([1.0], requires_grad=True).requires_grad
    assert rl.tensor(data=[1.0], dtype=None, device=None).tolist() == [1.0]
    for call, error, text in (
            (lambda: rl.tensor(), TypeError, 'missing 1 required positional arguments: "data"'),
            (lambda: rl.tensor(1, 2), TypeError, "takes 1 positional argument but 2 were given"),
            (lambda: rl.tensor([1], foo=1), TypeError, "unexpected keyword argument 'foo'"),
            (lambda: rl.tensor([1], data=2), TypeError, "multiple values"),
            (lambda: rl.tensor([1], dtype="float"), TypeError, "argument 'dtype' must be .*dtype, not str"),
            (lambda: rl.tensor([1.0], requires_grad=1), TypeError, "argument 'requires_grad' must be bool, not int"),
            (lambda: rl.tensor([1], device="xx"), RuntimeError, "xx"),
            (lambda: rl.tensor([1], requires_grad=True), RuntimeError, "Only Tensors of floating point and complex dtype can require "
                                                                       "gradients")):
        with pytest.raises(error, match=text):
            call()


def test_default_dtype_decides():
    rl.set_default_dtype(rl.float64)
    try:
        assert rl.tensor([1.0]).dtype == rl.float64 and rl.tensor([1]).dtype == rl.int64 and rl.tensor([]).dtype == rl.float64
        assert rl.tensor([1.0, True]).dtype == rl.float64
    finally:
        rl.set_default_dtype(rl.float32)


def test_copy_of_a_tensor_warns_and_copies():
    x = rl.ones(2, requires_grad=True)
    with pytest.warns(UserWarning, match="To copy construct from a tensor"):
        y = rl.tensor(x * 2)
    assert y.is_leaf and not y.requires_grad and y.tolist() == [2.0, 2.0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert rl.tensor(x, dtype=rl.int64).dtype == rl.int64 and rl.tensor(x).data_ptr() != x.data_ptr()


def test_lists_that_change_while_they_are_read():
    class Shrinks:
        def __init__(self, owner):
            self.owner = owner

        def __index__(self):
            del self.owner[2:]
            return 1

    data = [0, 1, 2, 3]
    data[1] = Shrinks(data)
    with pytest.raises((ValueError, RuntimeError)):
        rl.tensor(data, dtype=rl.int64)

    class Liar:
        def __len__(self):
            return 3

        def __getitem__(self, i):
            if i > 1:
                raise IndexError
            return i

    with pytest.raises(ValueError, match="expected sequence of length 3"):
        rl.tensor(Liar())


def test_deep_and_recursive_lists():
    deep = [1]
    for _ in range(200):
        deep = [deep]
    with pytest.raises(ValueError, match="too many dimensions"):
        rl.tensor(deep)
    loop = []
    loop.append(loop)
    with pytest.raises(ValueError, match="too many dimensions"):
        rl.tensor(loop)


# ---- as_tensor, asarray, scalar_tensor, new_tensor ---------------------------------------------------------------------------

def test_as_tensor():
    x = rl.ones(2, requires_grad=True)
    assert rl.as_tensor(x) is x
    assert rl.as_tensor(x, dtype=rl.float64).grad_fn is not None
    a = np.ones(3, np.float32)
    t = rl.as_tensor(a)
    t[0] = 5.0
    assert a[0] == 5
    assert rl.as_tensor(a, rl.int64).tolist() == [5, 1, 1]
    same(rl.as_tensor([1, 2]), [1, 2], rl.int64)
    same(rl.as_tensor(3.0), 3.0, rl.float32)


def test_asarray():
    a = np.arange(3.0)
    assert rl.asarray(a).data_ptr() == a.ctypes.data
    assert rl.asarray(a, copy=True).data_ptr() != a.ctypes.data
    with pytest.raises(ValueError, match="can't alias"):
        rl.asarray(a, dtype=rl.int32, copy=False)
    assert rl.asarray(bytearray(b"abcd"), dtype=rl.uint8).tolist() == [97, 98, 99, 100]
    assert rl.asarray([1.0], requires_grad=True).requires_grad
    x = rl.ones(2)
    assert rl.asarray(x).data_ptr() == x.data_ptr()


def test_scalar_tensor_and_new_tensor():
    same(rl.scalar_tensor(3), 3.0, rl.float32)
    same(rl.scalar_tensor(3.5, dtype=rl.int32), 3, rl.int32)
    same(rl.ones(2, dtype=rl.int32).new_tensor([1.5]), [1], rl.int32)
    same(rl.ones(2).new_tensor(3), 3.0, rl.float32)
    same(rl.ones(2).new_tensor([1], dtype=rl.bool), [True], rl.bool)


# ---- the old constructors ------------------------------------------------------------------------------------------------------

def test_old_constructors():
    assert tuple(rl.Tensor(2, 3).shape) == (2, 3) and rl.Tensor(2, 3).dtype == rl.float32
    assert tuple(rl.FloatTensor(rl.Size([2, 3])).shape) == (2, 3)
    assert tuple(rl.FloatTensor((2, 3)).shape) == (2,)
    assert tuple(rl.Tensor().shape) == (0,)
    same(rl.Tensor([2]), [2.0], rl.float32)
    same(rl.LongTensor([1.5, 2]), [1, 2], rl.int64)
    same(rl.BoolTensor([1, 0, 2]), [True, False, True], rl.bool)
    same(rl.HalfTensor([1, 2]), [1.0, 2.0], rl.float16)
    same(rl.DoubleTensor([[1, 2], [3, 4]]), [[1.0, 2.0], [3.0, 4.0]], rl.float64)
    same(rl.Tensor(np.ones(2)), [1.0, 1.0], rl.float32)
    x = rl.tensor([1, 2])
    assert rl.Tensor(x).dtype == rl.int64 and rl.Tensor(x).data_ptr() == x.data_ptr()
    same(rl.ones(2).new([3, 4]), [3.0, 4.0], rl.float32)
    assert tuple(rl.ones(2).new(3).shape) == (3,)
    assert isinstance(rl.ones(2), rl.FloatTensor) and not isinstance(rl.ones(2), rl.LongTensor) and rl.FloatTensor.dtype == rl.float32
    assert rl.Tensor(rl.ones(2).storage()).tolist() == [1.0, 1.0]


@pytest.mark.parametrize("call, error, text", [
    (lambda: rl.Tensor(-1), RuntimeError, "negative dimension -1"), (lambda: rl.Tensor("a"), TypeError, "invalid data type 'str'"),
    (lambda: rl.Tensor(2.5), TypeError, r"data must be a sequence \(got float\)"),
    (lambda: rl.Tensor(None), TypeError, r"data must be a sequence \(got NoneType\)"),
    (lambda: rl.Tensor(2, [3]), TypeError, "type must be tuple of ints,but got list"),
    (lambda: rl.Tensor([[1, 2], [3]]), ValueError, "expected sequence of length 2 at dim 1"),
    (lambda: rl.Tensor(2, dtype=rl.int32), TypeError, "invalid combination of arguments"),
    (lambda: rl.ByteTensor([1, 256]), RuntimeError, "without overflow"), (lambda: rl.FloatTensor(rl.tensor([1, 2])), TypeError, "expected"),
    (lambda: rl.Tensor(2**62, 2**62), RuntimeError, "overflow"),
])
def test_old_constructor_errors(call, error, text):
    with pytest.raises(error, match=text):
        call()


# ---- NumPy and buffers -----------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("name", DTYPES)
def test_numpy_both_ways(name):
    a = np.array([[0, 1, 2], [3, 4, 5]]).astype(name)
    t = rl.from_numpy(a)
    assert t.dtype == DTYPES[name] and t.data_ptr() == a.ctypes.data and t.tolist() == a.tolist()
    b = t.numpy()
    assert b.dtype == a.dtype and b.ctypes.data == a.ctypes.data and np.array_equal(a, b)
    assert np.asarray(t).dtype == a.dtype and np.array_equal(np.array(t), a)
    if name != "float16":
        assert memoryview(t).tolist() == a.tolist()
    assert rl.tensor(a).tolist() == a.tolist()


@pytest.mark.parametrize("make", [lambda: np.arange(24.0).reshape(4, 6).T, lambda: np.arange(24.0)[::3],
                                  lambda: np.zeros((2, 3), order="F"), lambda: np.broadcast_to(np.array(3.0), (2, 2)),
                                  lambda: np.zeros((0, 3)), lambda: np.array(5.0),
                                  lambda: np.arange(24.0).reshape(2, 3, 4)[:, 1:, ::2],
                                  lambda: np.zeros(4, [("a", "f4"), ("b", "f4")])["a"]])
def test_strides(make):
    a = make()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # broadcast_to is read-only
        t = rl.from_numpy(a)
    assert tuple(t.shape) == a.shape and np.array_equal(t.numpy(), a)
    if a.size:
        assert tuple(t.stride()) == tuple(s // a.itemsize for s in a.strides)
    assert np.array_equal(rl.tensor(a[..., ::-1] if a.ndim else a).numpy(), a[..., ::-1] if a.ndim else a)  # copies take any strides


def test_arrays_that_cannot_be_shared():
    for a, error, text in ((np.array([1, 2, 3])[::-1], ValueError, "At least one stride in the given numpy array is negative"),
                           (np.zeros(4, [("a", "f4"), ("b", "i1")])["a"], ValueError, "strides not a multiple of the element byte size"),
                           ([1], TypeError, r"expected np.ndarray \(got list\)"), (np.float32(3), TypeError, "expected np.ndarray")):
        with pytest.raises(error, match=text):
            rl.from_numpy(a)


def test_read_only_memory_stays_so():
    a = np.arange(3.0)
    a.flags.writeable = False
    with pytest.warns(UserWarning, match="The given NumPy array is not writable"):
        t = rl.from_numpy(a)
    for write in (lambda: t.add_(1), lambda: t.__setitem__(0, 1.0), lambda: t.copy_(rl.ones(3, dtype=rl.float64)), lambda: t.zero_(),
                  lambda: t.fill_(2), lambda: t.uniform_()):
        with pytest.raises(RuntimeError, match="read-only"):
            write()
    assert a.tolist() == [0.0, 1.0, 2.0] and not t.numpy().flags.writeable
    assert (t + 1).tolist() == [1.0, 2.0, 3.0]
    assert memoryview(t).readonly and not np.frombuffer(t, dtype=np.float64).flags.writeable


def test_lifetimes():
    a = np.ones(1000)
    gone = weakref.ref(a)
    t = rl.from_numpy(a)
    del a
    gc.collect()
    assert gone() is not None
    view = t[10:]
    del t
    gc.collect()
    assert gone() is not None
    del view
    gc.collect()
    assert gone() is None
    n = rl.ones(5).numpy()
    gc.collect()
    assert n.tolist() == [1.0] * 5
    buffer = bytearray(8)
    t = rl.frombuffer(buffer, dtype=rl.uint8)
    with pytest.raises(BufferError):
        buffer.append(1)
    del t
    buffer.append(1)


def test_an_array_survives_the_tensor_being_resized():
    t = rl.ones(4)
    n = t.numpy()
    t.set_(rl.zeros(2).untyped_storage())
    gc.collect()
    assert n.tolist() == [1.0] * 4


def test_numpy_refuses():
    x = rl.ones(2, requires_grad=True)
    for call in (x.numpy, lambda: np.asarray(x), lambda: np.array(x), lambda: (x * 2).numpy()):
        with pytest.raises(RuntimeError, match=r"Can't call numpy\(\) on Tensor that requires grad. Use tensor.detach\(\).numpy\(\) "
                                               r"instead."):
            call()
    assert x.numpy(force=True).tolist() == [1.0, 1.0]
    with pytest.raises(TypeError, match="Got unsupported ScalarType BFloat16"):
        rl.ones(2, dtype=rl.bfloat16).numpy()
    with pytest.raises(BufferError):
        memoryview(x)
    with pytest.raises(TypeError, match="argument 'force' must be bool"):
        rl.ones(2).numpy(force=3)


def test_array_protocol():
    t = rl.arange(4.0)
    assert np.asarray(t, dtype=np.int32).dtype == np.int32
    assert t.__array__(np.float64).dtype == np.float64
    copied = np.array(t)
    copied[0] = 9
    assert t[0].item() == 0
    assert (np.ones(4, np.float32) + t.numpy()).tolist() == [1.0, 2.0, 3.0, 4.0]


@pytest.mark.parametrize("kwargs, text", [
    ({"buffer": bytearray(b"abcdefg")}, r"buffer length \(7 bytes\) after offset \(0 bytes\) must be a multiple of element size \(4\)"),
    ({"buffer": bytearray(b"abcdefg"), "offset": 7}, r"offset \(7 bytes\) must be non-negative and no greater than buffer length \(7 "
                                                     r"bytes\) minus 1"),
    ({"buffer": bytearray(b"abcdefg"), "offset": -1}, "must be non-negative"),
    ({"buffer": bytearray(b"abcdefg"), "count": 0}, r"both buffer length \(7\) and count \(0\) must not be 0"),
    ({"buffer": bytearray(b"abcdefg"), "count": 3}, r"requested buffer length \(3 \* 4 bytes\) after offset \(0 bytes\)"),
    ({"buffer": bytearray(b"abcdefg"), "count": 2**62}, "must not be greater than actual buffer length"),
    ({"buffer": bytearray(b"")}, r"both buffer length \(0\) and count \(-1\) must not be 0"), ({"buffer": 3}, "does not implement Python "
                                                                                                              "buffer protocol"),
])
def test_frombuffer_errors(kwargs, text):
    with pytest.raises(ValueError, match=text):
        rl.frombuffer(**kwargs, dtype=rl.float32)


def test_frombuffer():
    b = bytearray(np.arange(4, dtype=np.float32).tobytes())
    t = rl.frombuffer(b, dtype=rl.float32, count=2, offset=4)
    assert t.tolist() == [1.0, 2.0]
    t[0] = 7.0
    assert np.frombuffer(b, np.float32)[1] == 7
    with pytest.warns(UserWarning, match="not writable"):
        t = rl.frombuffer(bytes(b), dtype=rl.float32)
    with pytest.raises(RuntimeError, match="read-only"):
        t.add_(1)
    assert rl.frombuffer(b, dtype=rl.float32, requires_grad=True).requires_grad


# ---- item, tolist -----------------------------------------------------------------------------------------------------------------

def test_item_and_tolist():
    for name, dtype in DTYPES.items():
        v = rl.ones(1, 1, dtype=dtype).item()
        assert v == 1 and type(v) is {"b": bool, "f": float}.get(np.dtype(name).kind, int)
    assert type(rl.tensor(1.5, dtype=rl.bfloat16).item()) is float
    for t, n in ((rl.ones(2), 2), (rl.ones(2, 0), 0)):
        with pytest.raises(RuntimeError, match=f"a Tensor with {n} elements cannot be converted to Scalar"):
            t.item()
    assert rl.tensor(3.0).tolist() == 3.0
    assert rl.ones(2, 0, 3).tolist() == [[], []]
    assert rl.arange(6).reshape(2, 3).t().tolist() == [[0, 3], [1, 4], [2, 5]]
    assert rl.ones(2, requires_grad=True).tolist() == [1.0, 1.0]


# ---- DLPack ----------------------------------------------------------------------------------------------------------------------------

def test_dlpack_out():
    t = rl.arange(6.0).reshape(2, 3).t()
    a = np.from_dlpack(t)
    assert a.ctypes.data == t.data_ptr() and np.array_equal(a, t.numpy())
    del t
    gc.collect()
    assert a.tolist() == [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]]
    assert rl.ones(1).__dlpack_device__() == (1, 0)
    with pytest.raises(BufferError, match="require gradient"):
        rl.ones(2, requires_grad=True).__dlpack__()
    with pytest.raises(AssertionError):
        rl.ones(2).__dlpack__(stream=1)
    copied = rl.ones(2)
    b = np.from_dlpack(rl.from_dlpack(copied.__dlpack__(max_version=(1, 0), copy=True)))
    assert b.ctypes.data != copied.data_ptr()


@pytest.mark.parametrize("name", DTYPES)
def test_dlpack_in(name):
    a = np.array([[0, 1, 2], [3, 4, 5]]).astype(name)[:, ::2]
    t = rl.from_dlpack(a)
    assert t.dtype == DTYPES[name] and t.data_ptr() == a.ctypes.data and t.tolist() == a.tolist()
    gone = weakref.ref(a)
    del a
    gc.collect()
    assert gone() is not None or t.tolist()
    assert rl.from_dlpack(np.arange(3.0), copy=True).tolist() == [0.0, 1.0, 2.0]


def test_dlpack_capsules_are_used_once():
    capsule = rl.to_dlpack(rl.ones(2))
    assert rl.utils.dlpack.from_dlpack(capsule).tolist() == [1.0, 1.0]
    with pytest.raises(RuntimeError, match="consumed only once"):
        rl.from_dlpack(capsule)
    rl.to_dlpack(rl.ones(2))  # never consumed: freed with the capsule
    gc.collect()
    read_only = np.arange(3.0)
    read_only.flags.writeable = False
    try:
        t = rl.from_dlpack(read_only)
    except BufferError:
        return  # NumPy before 2 refuses itself
    with pytest.raises(RuntimeError, match="read-only"):
        t.add_(1)
    with pytest.raises(AttributeError):
        rl.from_dlpack(3)


# ---- copies, pickles -----------------------------------------------------------------------------------------------------------------

def test_deepcopy():
    x = rl.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    x.grad = rl.ones(2, 2)
    x.note = ["a"]
    y = copy.deepcopy(x)
    assert y is not x and y.requires_grad and y.data_ptr() != x.data_ptr() and y.tolist() == x.tolist()
    assert y.note == ["a"] and y.note is not x.note and y.grad is not x.grad and y.grad.tolist() == x.grad.tolist()
    base = rl.arange(6.0)
    a, b = copy.deepcopy([base, base[2:]])
    b[0] = 9.0
    assert a[2].item() == 9.0 and base[2].item() == 2.0, "views of one storage stay views of one storage"
    t = rl.arange(6.0).reshape(2, 3).t()
    assert copy.deepcopy(t).stride() == t.stride()
    same_object = copy.deepcopy([x, x])
    assert same_object[0] is same_object[1]
    with pytest.raises(RuntimeError, match="Only Tensors created explicitly by the user"):
        copy.deepcopy(x * 2)


def test_shallow_copy_shares():
    x = rl.ones(2)
    y = copy.copy(x)
    y[0] = 5.0
    assert x[0].item() == 5.0 and y is not x


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_pickle(protocol):
    for name, dtype in [*DTYPES.items(), ("bfloat16", rl.bfloat16)]:
        t = rl.tensor([[0, 1, 2], [3, 4, 5]]).to(dtype).t()
        back = pickle.loads(pickle.dumps(t, protocol))
        assert back.dtype == dtype and back.stride() == t.stride() and back.tolist() == t.tolist(), name
    x = rl.ones(2, requires_grad=True)
    assert pickle.loads(pickle.dumps(x, protocol)).requires_grad
    base = rl.arange(4.0)
    a, b = pickle.loads(pickle.dumps((base, base[1:]), protocol))
    b[0] = 9.0
    assert a[1].item() == 9.0


class Named(rl.Tensor):
    """A subclass that can be pickled by name."""


def test_subclasses_survive_copies():
    t = rl.ones(2).as_subclass(Named)
    t.tag = 1
    for other in (copy.deepcopy(t), pickle.loads(pickle.dumps(t))):
        assert type(other) is Named and other.tag == 1


# ---- storages ---------------------------------------------------------------------------------------------------------------------------

def test_untyped_storage():
    t = rl.tensor([1.0, 2.0])
    s = t.untyped_storage()
    assert s is t.untyped_storage() is t[1:].untyped_storage()
    assert s.nbytes() == len(s) == s.size() == 8 and s.data_ptr() == t.data_ptr() and s.device == rl.device("cpu")
    assert bytes(s.tolist()) == np.array([1, 2], np.float32).tobytes()
    assert s.clone().tolist() == s.tolist() and s.clone().data_ptr() != s.data_ptr()
    assert pickle.loads(pickle.dumps(s)).tolist() == s.tolist()
    s.fill_(0)
    assert t.tolist() == [0.0, 0.0]
    assert len(rl.UntypedStorage(5)) == 5 and rl.UntypedStorage([1, 2]).tolist() == [1, 2]
    s.resize_(16)
    assert len(s) == 16 and t.tolist() == [0.0, 0.0]
    with pytest.raises(RuntimeError, match="negative"):
        rl.UntypedStorage(-1)
    with pytest.raises(RuntimeError):
        rl.from_numpy(np.ones(3)).untyped_storage().resize_(100)


def test_typed_storage():
    t = rl.tensor([1, 2, 3])
    s = t.storage()
    assert len(s) == 3 and s[1] == 2 and list(s) == [1, 2, 3] and s.dtype == rl.int64 and s.nbytes() == 24
    s[0] = 7
    assert t[0].item() == 7


def test_set_():
    s = rl.arange(6.0).untyped_storage()
    t = rl.empty(0).set_(s, 1, (2, 2), (2, 1))
    assert t.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert rl.empty(0).set_(s).tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    assert tuple(rl.ones(3).set_().shape) == (0,)
    assert rl.empty(0).set_(t).data_ptr() == t.data_ptr()
    for args in ((s, 0, (7,), (1,)), (s, -1, (2,), (1,)), (s, 0, (2, 2), (1,)), (s, 0, (2**40, 2**40), (1, 1)), (s, 5, (2,), (1,))):
        x = rl.ones(2)
        with pytest.raises(RuntimeError):
            x.set_(*args)
        assert x.tolist() == [1.0, 1.0], "a failed call changed the tensor"
    with pytest.raises(RuntimeError):
        rl.ones(2, dtype=rl.int64).set_(rl.ones(2))
    with pytest.raises(TypeError):
        rl.ones(2).set_(3)


def test_shared_memory_keeps_the_values():
    for n in (0, 1, 5, 5000):
        t = rl.arange(n).float()
        before, view = t.tolist(), t[n // 2:]
        assert not t.is_shared()
        assert t.share_memory_() is t and t.is_shared() and view.is_shared()
        assert t.tolist() == before
        if n:
            t[n - 1] = -1.0
            assert view[-1].item() == -1.0


def test_from_file(tmp_path):
    path = tmp_path / "data"
    path.write_bytes(np.arange(4, dtype=np.int32).tobytes())
    s = rl.UntypedStorage.from_file(str(path), False, 16)
    t = rl.empty(0, dtype=rl.int32).set_(s)
    assert t.tolist() == [0, 1, 2, 3]
    t.fill_(9)
    assert np.fromfile(path, np.int32).tolist() == [0, 1, 2, 3]
    rl.empty(0, dtype=rl.int32).set_(rl.UntypedStorage.from_file(str(path), True, 16)).fill_(9)
    assert np.fromfile(path, np.int32).tolist() == [9] * 4
    with pytest.raises(ValueError, match="17 bytes asked for"):
        rl.UntypedStorage.from_file(str(path), False, 17)
    with pytest.raises(OSError):
        rl.UntypedStorage.from_file(str(tmp_path / "absent"), False, 1)


# ---- iteration and types ----------------------------------------------------------------------------------------------------------------

def test_types():
    assert rl.ones(2).type() == "torch.FloatTensor"
    assert rl.ones(2).type(rl.int64).dtype == rl.ones(2).type("torch.LongTensor").dtype == rl.ones(2).type(rl.LongTensor).dtype == rl.int64
    with pytest.raises(ValueError, match="invalid type"):
        rl.ones(2).type("nonsense")
    assert rl.tensor([1.0, 2.0]).apply_(lambda v: v * 2).tolist() == [2.0, 4.0]
    assert rl.tensor([1.0, 2.0]).map_(rl.tensor([3.0]), lambda a, b: a + b).tolist() == [4.0, 5.0]
    with pytest.raises(RuntimeError, match="requires grad"):
        rl.ones(2, requires_grad=True).apply_(lambda v: v)
