"""Indexing reads and writes what NumPy's does, where the two agree, and speaks PyTorch's words where it is an error.

Random indices of every kind, alone and mixed, are compared with NumPy on the same data; what PyTorch does differently (a list of slices
and lists is a tuple, uint8 is a mask) is listed case by case from PyTorch 2.13.
"""
import random

import numpy as np
import pytest
import rushlight as rl

SHAPES = [(5,), (4, 3), (2, 3, 4), (3, 1, 2, 4)]


def pair(shape):
    a = np.arange(int(np.prod(shape))).reshape(shape)
    return a, rl.tensor(a)


def random_item(r, size, advanced):
    """An index for an axis of `size`: (for NumPy, for us, axes taken)."""
    kinds = ["int", "slice", "slice", "full"] + (["list", "tensor", "mask", "array"] if advanced else [])
    kind = r.choice(kinds)
    if kind == "int":
        i = r.randrange(-size, size)
        return i, i
    if kind == "slice":
        ends = [None, *range(-size - 2, size + 3)]
        s = slice(r.choice(ends), r.choice(ends), r.choice([None, 1, 2, 3]))
        return s, s
    if kind == "full":
        return slice(None), slice(None)
    if kind == "mask":
        m = np.array([r.random() < 0.5 for _ in range(size)])
        return m, rl.tensor(m)
    values = [r.randrange(-size, size) for _ in range(2)]
    return np.array(values), values if kind == "list" else rl.tensor(values) if kind == "tensor" else np.array(values)


def random_index(r, shape, advanced):
    ours, theirs, axis, masks = [], [], 0, 0
    while axis < len(shape) and r.random() < 0.9:
        if r.random() < 0.15:
            theirs.append(None)
            ours.append(None)
            continue
        if Ellipsis not in [x for x in ours if x is Ellipsis] and r.random() < 0.15:
            theirs.append(Ellipsis)
            ours.append(Ellipsis)
            skip = r.randrange(0, len(shape) - axis + 1)
            rest = [random_item(r, n, False) for n in shape[axis + skip:]]
            return tuple(theirs + [t for t, _ in rest]), tuple(ours + [o for _, o in rest])
        t, o = random_item(r, shape[axis], advanced and masks == 0)
        masks += isinstance(t, np.ndarray) and t.dtype == bool
        theirs.append(t)
        ours.append(o)
        axis += 1
    return tuple(theirs), tuple(ours)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("advanced", [False, True], ids=["basic", "advanced"])
def test_reading(shape, advanced):
    r = random.Random(f"{shape}{advanced}")
    a, t = pair(shape)
    for _ in range(300):
        theirs, ours = random_index(r, shape, advanced)
        try:
            expected = a[theirs]
        except IndexError:
            with pytest.raises(IndexError):
                t[ours]
            continue
        if mixes_int_and_array(theirs):
            continue  # NumPy counts an int among the index arrays, PyTorch selects first
        got = t[ours]
        assert tuple(got.shape) == expected.shape, (theirs, ours)
        assert got.tolist() == expected.tolist(), (theirs, ours)


def mixes_int_and_array(index):
    return any(isinstance(i, int) for i in index) and any(isinstance(i, np.ndarray) for i in index)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("advanced", [False, True], ids=["basic", "advanced"])
def test_writing(shape, advanced):
    r = random.Random(f"w{shape}{advanced}")
    for _ in range(200):
        a, t = pair(shape)
        theirs, ours = random_index(r, shape, advanced)
        try:
            target = a[theirs]
        except IndexError:
            continue
        if mixes_int_and_array(theirs):
            continue
        if r.random() < 0.5:
            value = -7
            mine = value
        else:
            value = np.full(target.shape, -3)
            if value.ndim and value.shape[0] != 0 and r.random() < 0.3:
                value = value[:1]
            mine = rl.tensor(value)
        a[theirs] = value
        t[ours] = mine
        assert t.tolist() == a.tolist(), (theirs, ours)


def test_views_and_copies():
    t = rl.arange(24.0).reshape(2, 3, 4)
    for view in (t[0], t[1:], t[:, 1], t[..., None], t[None], t[...], t[()], t[:], t[0, 1:, ::2], t[rl.tensor(1)]):
        assert view._is_view() and view.untyped_storage() is t.untyped_storage()
    for copy in (t[[0]], t[rl.tensor([0, 1])], t[t > 3], t[rl.tensor([True, False])], t[True]):
        assert copy.untyped_storage() is not t.untyped_storage()
    assert t[0:1][0, 0:2].stride() == (4, 1)


X, V = rl.arange(24).reshape(2, 3, 4), rl.arange(3)
M = rl.ones(2, 3, dtype=rl.bool)


@pytest.mark.parametrize("get, shape", [
    (lambda: V[None], (1, 3)), (lambda: V[True], (1, 3)), (lambda: V[False], (0, 3)), (lambda: V[True, False], (0, 3)),
    (lambda: V[rl.tensor(True)], (1, 3)), (lambda: V[rl.tensor(False)], (0, 3)), (lambda: X[[0, 1]], (2, 3, 4)),
    (lambda: X[[0, 1], [1, 2]], (2, 4)), (lambda: X[[[0, 1], [1, 2]]], (2, 4)), (lambda: X[[0, slice(None)]], (3, 4)),
    (lambda: X[[True, False]], (1, 3, 4)), (lambda: X[rl.tensor([[True, False, True], [False, True, True]])], (4, 4)),
    (lambda: V[[0.5]], (1,)), (lambda: V[range(2)], (2,)), (lambda: V[(0, 1),], (2,)), (lambda: V[rl.tensor([[0, 1], [2, 0]])], (2, 2)),
    (lambda: X[rl.tensor([0, 1]), :, rl.tensor([0, 1])], (2, 3)), (lambda: X[:, rl.tensor([0, 1]), rl.tensor([0, 1])], (2, 2)),
    (lambda: X[rl.tensor([0, 1]), None, rl.tensor([0, 1])], (2, 1, 4)), (lambda: X[0, rl.tensor([0, 1]), :], (2, 4)),
    (lambda: X[0, :, rl.tensor([0, 1])], (3, 2)), (lambda: X[:, 0, rl.tensor([0, 1])], (2, 2)), (lambda: X[rl.tensor([0, 1]), 0], (2, 4)),
    (lambda: X[rl.tensor([0, 1]), ..., rl.tensor([0, 1])], (2, 3)), (lambda: X[rl.tensor([], dtype=rl.int64)], (0, 3, 4)),
    (lambda: X[[]], (0, 3, 4)), (lambda: X[:, rl.tensor([True, False, True])], (2, 2, 4)), (lambda: X[True, 0], (1, 3, 4)),
    (lambda: X[rl.tensor([True, False]), rl.tensor([True, False, True])], (2, 4)), (lambda: X[0, True], (1, 3, 4)),
    (lambda: X[None, True], (1, 1, 2, 3, 4)), (lambda: X[True, [0, 1]], (2, 3, 4)), (lambda: X[[0, 1], True], (2, 3, 4)),
    (lambda: X[M, 0], (6,)), (lambda: X[M, :], (6, 4)), (lambda: X[M, None], (6, 1, 4)), (lambda: X[0, M[0]], (3, 4)),
    (lambda: X[None, M], (1, 6, 4)), (lambda: X[:, M[0], 0], (2, 3)), (lambda: X[M, rl.tensor([0, 1, 2, 3, 0, 1])], (6,)),
    (lambda: rl.zeros(0, 3)[rl.zeros(0, dtype=rl.bool)], (0, 3)), (lambda: rl.zeros(0, 3)[rl.tensor([], dtype=rl.int64)], (0, 3)),
    (lambda: V[1:0], (0,)), (lambda: V[-10:10], (3,)), (lambda: V[2**63:], (0,)), (lambda: V[:2**70], (3,)), (lambda: V[np.int64(1)], ()),
    (lambda: V[np.array(1)], ()), (lambda: V[np.array([True, False, True])], (2,)), (lambda: V[rl.tensor([0, 1], dtype=rl.int32)], (2,)),
    (lambda: rl.tensor(3)[None], (1,)), (lambda: rl.tensor(3)[...], ()), (lambda: rl.tensor(3)[()], ()), (lambda: rl.tensor(3)[True], (1,)),
    (lambda: V[rl.tensor(0):rl.tensor(2)], (2,)), (lambda: X[..., 0, ...], (2, 3)), (lambda: V[..., ...], (3,)),
    (lambda: X[np.s_[0, None, ..., 1:3]], (1, 3, 2)),
])
def test_what_pytorch_gives(get, shape):
    assert tuple(get().shape) == shape


@pytest.mark.parametrize("get, error, text", [
    (lambda: V[5], IndexError, "index 5 is out of bounds for dimension 0 with size 3"),
    (lambda: V[-4], IndexError, "index -4 is out of bounds for dimension 0 with size 3"),
    (lambda: X[:, 5], IndexError, "index 5 is out of bounds for dimension 1 with size 3"),
    (lambda: V[0, 0], IndexError, "too many indices for tensor of dimension 1"),
    (lambda: X[0, 0, 0, 0], IndexError, "too many indices for tensor of dimension 3"),
    (lambda: V[[0, [1]]], IndexError, "too many indices for tensor of dimension 1"),
    (lambda: V[[[True, False], [True, True]], 0], IndexError, "too many indices|shape of the mask"),
    (lambda: V[::-1], ValueError, "step must be greater than zero"), (lambda: V[::0], ValueError, "slice step cannot be zero"),
    (lambda: V[1.0], IndexError, r"only integers, slices \(`:`\), ellipsis \(`...`\), None and long or byte Variables are valid indices "
                                 r"\(got float\)"),
    (lambda: V[{}], IndexError, r"\(got dict\)"), (lambda: V[object()], IndexError, r"\(got object\)"),
    (lambda: V["a"], TypeError, r"new\(\): invalid data type 'str'"), (lambda: V[["a"]], (TypeError, ValueError), "str"),
    (lambda: V[1:2.5], TypeError, "slice indices must be integers or None or have an __index__ method"),
    (lambda: V[rl.tensor([0.0, 1])], IndexError, "tensors used as indices must be long, int, byte or bool tensors"),
    (lambda: V[rl.tensor([0], dtype=rl.int8)], IndexError, "tensors used as indices must be long, int, byte or bool tensors"),
    (lambda: V[rl.tensor([5])], IndexError, "index 5 is out of bounds for dimension 0 with size 3"),
    (lambda: V[rl.tensor([-4])], IndexError, "index -4 is out of bounds for dimension 0 with size 3"),
    (lambda: V[rl.tensor(5)], IndexError, "index 5 is out of bounds for dimension 0 with size 3"),
    (lambda: V[rl.tensor([True, False])], IndexError,
     r"The shape of the mask \[2\] at index 0 does not match the shape of the indexed tensor \[3\] at index 0"),
    (lambda: X[[True, False, True]], IndexError,
     r"The shape of the mask \[3\] at index 0 does not match the shape of the indexed tensor \[2, 3, 4\] at index 0"),
    (lambda: X[rl.tensor([0, 1]), rl.tensor([0, 1, 2])], IndexError, r"shape mismatch: indexing tensors could not be broadcast together"),
    (lambda: rl.tensor(3)[0], IndexError, r"invalid index of a 0-dim tensor. Use `tensor.item\(\)` in Python"),
    (lambda: rl.tensor(3)[:], IndexError, r"slice\(\) cannot be applied to a 0-dim tensor."),
    (lambda: rl.zeros(0, 3)[0], IndexError, "index 0 is out of bounds for dimension 0 with size 0"),
    (lambda: V[2**70], ValueError, "Overflow when unpacking long long"), (lambda: V[(None,) * 65], (IndexError, RuntimeError), ""),
    (lambda: len(rl.tensor(3)), TypeError, "len.. of a 0-d tensor"), (lambda: iter(rl.tensor(3)), TypeError, "iteration over a 0-d tensor"),
    (lambda: "a" in V, RuntimeError, "Tensor.__contains__ only supports Tensor or scalar, but you passed in a <class 'str'>."),
])
@pytest.mark.filterwarnings("ignore::pytest.PytestWarning")
def test_reading_errors(get, error, text):
    with pytest.raises(error, match=text):
        get()


def test_bytes_are_masks_with_a_warning():
    with pytest.warns(UserWarning, match="uint8 is now deprecated"):
        assert V[rl.tensor([0, 1, 1], dtype=rl.uint8)].tolist() == [1, 2]
    assert tuple(X[rl.tensor(1, dtype=rl.uint8)].shape) == (1, 2, 3, 4)


ASSIGNMENTS = [
    ("v[0] = 1.5", [1, 1, 2]), ("v[0] = rl.tensor(2.7)", [2, 1, 2]), ("v[:2] = rl.tensor([5, 6])", [5, 6, 2]),
    ("v[:2] = rl.tensor([[5, 6]])", [5, 6, 2]), ("v[[0, 1]] = rl.tensor([5, 6])", [5, 6, 2]), ("v[[0, 1]] = rl.tensor([[5, "
                                                                                               "6]])", [5, 6, 2]),
    ("v[[0, 1]] = 7.5", [7, 7, 2]), ("v[rl.tensor([True, False, True])] = 9", [9, 1, 9]),
    ("v[rl.tensor([True, False, True])] = rl.tensor([8, 9])", [8, 1, 9]), ("v[v > 0] = -1", [0, -1, -1]), ("v[True] = 5", [5, 5, 5]),
    ("v[False] = 5", [0, 1, 2]), ("v[None] = 5", [5, 5, 5]), ("v[...] = 5", [5, 5, 5]), ("v[()] = 5", [5, 5, 5]),
    ("v[rl.tensor(1)] = 5", [0, 5, 2]), ("v[0] += 5", [5, 1, 2]), ("v[[0, 0]] += 1", [1, 1, 2]), ("v[1:] *= 3", [0, 3, 6]),
    ("v[0] = np.int64(4)", [4, 1, 2]), ("v[np.array([0, 2])] = 4", [4, 1, 4]), ("v[rl.tensor([True, True, False])] = "
                                                                                "rl.tensor(3.9)", [3, 3, 2]),
    ("v[-1] = True", [0, 1, 1]),
]


@pytest.mark.parametrize("code, expected", ASSIGNMENTS, ids=[c for c, _ in ASSIGNMENTS])
def test_assignment(code, expected):
    v = rl.arange(3)
    version = v._version
    exec(code, {"v": v, "rl": rl, "np": np})
    assert v.tolist() == expected
    assert v._version > version or expected == [0, 1, 2]


ASSIGNMENT_ERRORS = [
    ("v[5] = 1", IndexError, "index 5 is out of bounds for dimension 0 with size 3"), ("v[0] = 'a'", TypeError, "can't assign a str to a "
                                                                                                                ".*LongTensor"),
    ("v[0] = None", TypeError, "can't assign a NoneType to a"), ("v[:] = [1, 2, 3]", TypeError, "can't assign a list to a"),
    ("v[:2] = np.array([8, 9])", TypeError, "can't assign a numpy.ndarray to a"),
    ("v[:2] = rl.tensor([[5, 6], [7, 8]])", RuntimeError, r"the number of sizes provided \(1\) must be greater or equal to the number of "
                                                          r"dimensions"),
    ("v[:2] = rl.tensor([5, 6, 7])", RuntimeError, r"The expanded size of the tensor \(2\) must match the existing size \(3\)"),
    ("v[[0, 1]] = rl.tensor([5, 6, 7])", RuntimeError,
     r"shape mismatch: value tensor of shape \[3\] cannot be broadcast to indexing result of shape \[2\]"),
    ("v[[0, 1]] = rl.tensor([5.5, 6])", RuntimeError,
     "Index put requires the source and destination dtypes match, got Long for the destination and Float for the source."),
    ("v[rl.tensor([True, False, True])] = rl.tensor([8, 9, 10])", RuntimeError, r"shape mismatch: value tensor of shape \[3\]"),
    ("v[rl.tensor([7])] = 5", IndexError, "index 7 is out of bounds for dimension 0 with size 3"),
    ("del v[0]", TypeError, "Tensor does not support deleting items"), ("v[0] = 2**63", ValueError, "Overflow when unpacking long long"),
    ("v[0] = float('nan')", RuntimeError, "without overflow"), ("v[1.5] = 1", IndexError, r"\(got float\)"),
    ("v[::-1] = 1", ValueError, "step must be greater"),
    ("v[0, 0] = 1", IndexError, "too many indices"), ("rl.tensor(3)[0] = 1", IndexError, "invalid index of a 0-dim tensor"),
]


@pytest.mark.parametrize("code, error, text", ASSIGNMENT_ERRORS, ids=[c for c, _, _ in ASSIGNMENT_ERRORS])
def test_assignment_errors_change_nothing(code, error, text):
    v = rl.arange(3)
    with pytest.raises(error, match=text):
        exec(code, {"v": v, "rl": rl, "np": np})
    assert v.tolist() == [0, 1, 2] and v._version == 0


def test_assignment_into_itself_and_expanded():
    v = rl.arange(5)
    v[1:] = v[:-1].clone()
    assert v.tolist() == [0, 0, 1, 2, 3]
    with pytest.raises(RuntimeError, match="single memory location"):
        rl.ones(1, 1).expand(4, 5)[:] = 2.0


# ---- gradients ------------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("read, name", [
    (lambda y: y[0], "SelectBackward0"), (lambda y: y[:1], "SliceBackward0"), (lambda y: y[0:2], "SliceBackward0"),
    (lambda y: y[None], "UnsqueezeBackward0"), (lambda y: y[...], "AliasBackward0"),
    (lambda y: y[()], "AliasBackward0"), (lambda y: y[[0]], "IndexBackward0"), (lambda y: y[y > 1], "IndexBackward0"),
    (lambda y: y[0:2, 1], "SelectBackward0"), (lambda y: y[rl.tensor(0)], "SelectBackward0"), (lambda y: y[True], "IndexBackward0"),
])
def test_history(read, name):
    y = rl.arange(6.0).reshape(2, 3).requires_grad_()
    assert read(y).grad_fn.name() == name


def test_full_slices_in_a_tuple_are_no_nodes():
    y = rl.arange(6.0).reshape(2, 3).requires_grad_()
    assert y[0:2, 1].grad_fn.next_functions[0][0].name().endswith("AccumulateGrad")


def test_gradients():
    x = rl.arange(6.0).reshape(2, 3).requires_grad_()
    x[[0, 0, 1]].sum().backward()
    assert x.grad.tolist() == [[2.0] * 3, [1.0] * 3]  # duplicates accumulate
    for index in (0, slice(1, None), (slice(None), 1), ([0, 1], [2, 0]), x.detach() > 2, (None, 1), (Ellipsis, 0)):
        assert rl.autograd.gradcheck(lambda t, index=index: t[index] * 2, rl.arange(6.0, dtype=rl.float64).reshape(2, 3).requires_grad_())


def test_assignment_is_recorded():
    x = rl.ones(4, requires_grad=True)
    y = x * 2
    y[1:3] = y[1:3] * 10
    y.sum().backward()
    assert x.grad.tolist() == [2.0, 20.0, 20.0, 2.0]
    x, v = rl.ones(3, requires_grad=True), rl.tensor(5.0, requires_grad=True)
    y = x * 1
    y[0] = v
    y[[1]] = v * 2
    y.sum().backward()
    assert x.grad.tolist() == [0.0, 0.0, 1.0] and v.grad.item() == 3.0


def test_assignment_to_leaves():
    x = rl.ones(3, requires_grad=True)
    for write in (lambda: x.__setitem__(0, 1.0), lambda: x.__setitem__([0], 1.0), lambda: x.__setitem__(slice(None), 2.0)):
        with pytest.raises(RuntimeError, match="leaf Variable that requires grad is being used in an in-place operation"):
            write()
    assert x.tolist() == [1.0] * 3 and x._version == 0
    with rl.no_grad():
        x[0] = 5.0
        x[[1]] = 6.0
    assert x.tolist() == [5.0, 6.0, 1.0] and x.is_leaf


# ---- iteration -----------------------------------------------------------------------------------------------------------------------

def test_iteration():
    x = rl.arange(6.0).reshape(3, 2).requires_grad_()
    rows = list(x)
    assert [r.tolist() for r in rows] == x.tolist() and rows[0].grad_fn.name() == "UnbindBackward0"
    a, b, c = x
    assert c.tolist() == [4.0, 5.0] and len(x) == 3 and list(reversed(x))[0].tolist() == [4.0, 5.0]
    assert 3 in rl.arange(5) and 7 not in rl.arange(5) and rl.tensor(2) in rl.arange(5)
    assert list(rl.zeros(0, 3)) == [] and [i.item() for i in rl.arange(3)] == [0, 1, 2]
    assert dict(zip("abc", rl.arange(3), strict=True))["c"].item() == 2
