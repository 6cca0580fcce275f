"""How calls are bound to the table's signatures: spellings, overloads, out=, defaults, and PyTorch's words for every way to be wrong."""
from __future__ import annotations

import inspect
import pickle

import numpy as np
import pytest
import rushlight as rl

X = rl.arange(6.0).view(2, 3)


# ---- calls that must work ---------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("call", "shape"), [
    (lambda: X.view(3, 2), (3, 2)), (lambda: X.view((3, 2)), (3, 2)), (lambda: X.view([3, -1]), (3, 2)), (lambda: X.view(size=(6,)), (6,)),
    (lambda: X.view(rl.tensor(3), 2), (3, 2)), (lambda: X.view(np.int64(6)), (6,)), (lambda: X.view(rl.Size([6])), (6,)),
    (lambda: X.view(-1), (6,)),
    (lambda: X.permute(1, 0), (3, 2)), (lambda: X.permute(dims=(1, 0)), (3, 2)), (lambda: rl.permute(X, (1, 0)), (3, 2)),
    (lambda: rl.permute(input=X, dims=[1, 0]), (3, 2)), (lambda: X.expand(4, -1, -1), (4, 2, 3)), (lambda: X.repeat(2, 2), (4, 6)),
    (lambda: rl.zeros(2, 3), (2, 3)), (lambda: rl.zeros((2, 3)), (2, 3)), (lambda: rl.zeros(size=[2, 3]), (2, 3)),
    (lambda: rl.zeros(()), ()),
    (lambda: rl.zeros([]), ()), (lambda: rl.zeros(0), (0,)), (lambda: X.reshape(1, 6), (1, 6)), (lambda: X.squeeze(0), (2, 3)),
    (lambda: X.flatten(), (6,)),
    (lambda: X.transpose(0, 1), (3, 2)), (lambda: X.transpose(dim0=0, dim1=1), (3, 2)), (lambda: rl.cat([X, X]), (4, 3)),
    (lambda: rl.cat((X, X), 1), (2, 6)),
    (lambda: rl.cat(tensors=[X, X], dim=-1), (2, 6)), (lambda: rl.cat([X, X], axis=1), (2, 6)),
    (lambda: rl.stack([X, X], dim=0), (2, 2, 3)),
    (lambda: X.new_zeros(2, 2), (2, 2)), (lambda: rl.rand(2, 3, generator=None), (2, 3)), (lambda: rl.randint(5, (2,)), (2,)),
    (lambda: rl.randint(2, 5, (2,)), (2,)), (lambda: rl.randint(low=2, high=5, size=(2,)), (2,)), (lambda: X.unsqueeze(dim=-1), (2, 3, 1)),
    (lambda: rl.full((2, 2), 3), (2, 2)), (lambda: rl.arange(1, 10, 2), (5,)), (lambda: rl.eye(3), (3, 3)), (lambda: X.unbind()[0], (3,)),
    (lambda: X.split(1)[1], (1, 3)), (lambda: X.split([1, 1])[1], (1, 3)), (lambda: X.roll(1, 0), (2, 3)),
    (lambda: X.roll((1, 1), (0, 1)), (2, 3)),
])
def test_shapes(call, shape):
    assert call().shape == shape


@pytest.mark.parametrize("call", [
    lambda: X.sum(1), lambda: X.sum(dim=1), lambda: X.sum(axis=1), lambda: X.sum((1,)), lambda: X.sum([1]), lambda: rl.sum(X, 1),
    lambda: rl.sum(X, axis=(1,)),
    lambda: rl.sum(input=X, dim=1), lambda: rl.sum(x=X, dim=1), lambda: rl.sum(a=X, axis=-1), lambda: X.sum(rl.tensor(1)),
    lambda: X.sum(np.int32(1)),
    lambda: X.sum(1, False), lambda: X.sum(1, keepdim=False), lambda: X.sum(1, keepdims=False), lambda: X.sum(1, dtype=rl.float32),
    lambda: X.sum(1, dtype=None), lambda: rl.sum(X, **{"".join(["d", "im"]): 1}),
])
def test_spellings_of_sum(call):
    assert call().tolist() == [3.0, 12.0]


def test_numbers_for_tensors():
    assert rl.add(1, 2).item() == 3 and rl.add(X, 1)[0, 0].item() == 1 and rl.add(1, X)[0, 1].item() == 2 and rl.add(X, x2=1)[0,
                                                                                                                              0].item() == 1
    assert rl.add(X, X, alpha=2)[0, 1].item() == 3 and X.add(1, alpha=rl.tensor(3))[0, 0].item() == 3
    assert rl.mul(2.5, X)[0, 1].item() == 2.5 and rl.true_divide(1, 2).item() == 0.5 and rl.eq(X, 1)[0, 1].item() is True
    assert rl.pow(2, X)[0, 2].item() == 4 and rl.pow(X, 2)[0, 2].item() == 4 and rl.add(X, np.float32(1.5))[0, 0].item() == 1.5
    assert rl.add(X, True)[0, 0].item() == 1 and rl.remainder(5, X + 2)[0, 0].item() == 1
    assert rl.where(X > 2, 1, 0).sum().item() == 3 and rl.where(X > 2, X, 0.0)[1, 0].item() == 3 and X.masked_fill(X > 2, 9)[1,
                                                                                                                             1].item() == 9
    assert rl.clamp(X, 1, 4).tolist() == [[1, 1, 2], [3, 4, 4]] and rl.clamp(X, max=1)[1, 1].item() == 1
    assert rl.clamp(X, min=rl.tensor(2.0))[0, 0].item() == 2


def test_out():
    out = rl.empty(2, 3)
    assert rl.add(X, 1, out=out) is out and out[0, 0].item() == 1
    small = rl.empty(0)
    assert rl.exp(X, out=small) is small and small.shape == (2, 3)
    assert rl.zeros(2, 3, out=out) is out and out.sum().item() == 0
    values, indices = rl.empty(0), rl.empty(0, dtype=rl.int64)
    r = rl.max(X, 1, out=(values, indices))
    assert r.values is values and values.tolist() == [2.0, 5.0] and indices.tolist() == [2, 2]
    for bad in (1, [X]):
        with pytest.raises(TypeError, match=r"add\(\): argument 'out' must be Tensor, not"):
            rl.add(X, X, out=bad)


def test_factories():
    t = rl.zeros(2, dtype=rl.float64, device="cpu", layout=rl.strided, pin_memory=False, requires_grad=True)
    assert t.dtype is rl.float64 and t.requires_grad and t.is_leaf
    assert rl.ones_like(X, requires_grad=True).requires_grad and X.new_ones(2, requires_grad=True).requires_grad
    with pytest.raises(RuntimeError, match="floating point"):
        rl.zeros(2, dtype=rl.int64, requires_grad=True)
    g = rl.Generator()
    g.manual_seed(3)
    a = rl.rand(3, generator=g)
    g.manual_seed(3)
    assert (a == rl.rand(3, generator=g)).all()


def test_inplace_forms():
    x = rl.ones(3)
    assert x.add_(1) is x and x.mul_(other=2) is x and x.clamp_(max=3) is x and rl.relu_(x) is x and x.tolist() == [3.0, 3.0, 3.0]


# ---- results ------------------------------------------------------------------------------------------------------------------------

def test_named_results():
    r = rl.max(X, 1)
    assert type(r) is rl.return_types.max and r.values is r[0] and r.indices is r[1] and tuple(r) == (r[0], r[1])
    values, indices = r
    assert values.tolist() == [2.0, 5.0] and indices.tolist() == [2, 2]
    assert repr(r) == "rushlight.return_types.max(\nvalues=tensor([2., 5.]),\nindices=tensor([2, 2]))"
    assert type(X.sort(1)) is rl.return_types.sort and type(X.topk(1)) is rl.return_types.topk
    again = pickle.loads(pickle.dumps(r))
    assert type(again) is type(r) and again.values.tolist() == [2.0, 5.0]
    assert "max" in dir(rl.return_types)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        rl.return_types.nothing  # noqa: B018


def test_lists_are_tuples():
    assert type(X.unbind()) is tuple and type(rl.split(X, 1)) is tuple and type(X.chunk(2)) is tuple


def test_python_bools():
    assert rl.equal(X, X) is True and rl.allclose(X, X + 1) is False


# ---- the callables themselves ----------------------------------------------------------------------------------------------------------

def test_functions_and_methods():
    assert rl.add.__name__ == "add" and rl.add.__module__ == "rushlight" and rl.Tensor.add_.__name__ == "add_"
    assert rl.Tensor.add.__qualname__ == "Tensor.add" and rl.Tensor.add.__objclass__ is rl.Tensor
    assert repr(rl.Tensor.add) == "<method 'add' of 'rushlight.Tensor' objects>" and "add" in repr(rl.add)
    assert rl.add.__text_signature__ == "(input, other, *, alpha=1, out=None)"
    assert rl.Tensor.add.__text_signature__ == "($self, other, *, alpha=1)"
    assert rl.add.__doc__.startswith("add(Tensor input, Tensor other, *, Number alpha = 1, Tensor out = None)")
    assert len(rl.sum.__doc__.splitlines()) == 2
    for f in (rl.add, rl.Tensor.add, rl.Tensor.add_, rl._C._nn.gelu):
        assert callable(f)
    assert pickle.loads(pickle.dumps(rl.add)) is rl.add and pickle.loads(pickle.dumps(rl.Tensor.add)) is rl.Tensor.add
    assert not inspect.isclass(rl.add)


def test_a_function_in_a_class_does_not_bind():
    class Layer:
        act = rl.relu

    assert Layer().act(rl.tensor([-1.0, 1.0])).tolist() == [0.0, 1.0]
    assert rl.Tensor.relu(X) is not None and X.relu is not None and X.relu().shape == X.shape


def test_every_operator_compiles_its_signature():
    for name in rl._C._functions:
        assert getattr(rl, name).__doc__.startswith(name + "("), name
    for name, value in vars(rl.Tensor).items():
        if type(value).__name__ == "OpMethod":
            assert value.__doc__.startswith(name + "("), name
            assert value.__text_signature__.startswith("($self"), name


# ---- calls that must fail ----------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("call", "message"), [
    (lambda: rl.add(X, "s"), "add(): argument 'other' (position 2) must be Tensor, not str"),
    (lambda: X.add("s"), "add(): argument 'other' (position 1) must be Tensor, not str"),
    (lambda: rl.add(X, X, X, X), "add() takes 2 positional arguments but 4 were given"),
    (lambda: rl.add(X, X, foo=1), "add() got an unexpected keyword argument 'foo'"),
    (lambda: rl.add(X, X, other=X), "add() got multiple values for argument 'other'"),
    (lambda: X.add(X, self=X), "add() got an unexpected keyword argument 'self'"),
    (lambda: rl.add(X, X, alpha="a"), "add(): argument 'alpha' must be Number, not str"),
    (lambda: rl.exp("a"), "exp(): argument 'input' (position 1) must be Tensor, not str"),
    (lambda: rl.exp(1.0), "exp(): argument 'input' (position 1) must be Tensor, not float"),
    (lambda: rl.exp(X, X), "exp() takes 1 positional argument but 2 were given"),
    (lambda: rl.exp(), 'exp() missing 1 required positional arguments: "input"'),
    (lambda: X.exp(1), "exp() takes no arguments (1 given)"),
    (lambda: rl.mul(X, None), "mul(): argument 'other' (position 2) must be Tensor, not NoneType"),
    (lambda: rl.maximum(X, 1), "maximum(): argument 'other' (position 2) must be Tensor, not int"),
    (lambda: rl.atan2(X, 1), "atan2(): argument 'other' (position 2) must be Tensor, not int"),
    (lambda: rl.matmul(X, 1), "matmul(): argument 'other' (position 2) must be Tensor, not int"),
    (lambda: X.view(2, "a"),
     "view(): argument 'size' failed to unpack the object at pos 2 with error \"type must be tuple of ints,but got str\""),
    (lambda: X.view("a"), "view() received an invalid combination of arguments - got (str), but expected one of:\n"),
    (lambda: X.view(), "view() received an invalid combination of arguments - got (), but expected one of:\n"),
    (lambda: X.view(2.0, 3), "view() received an invalid combination of arguments - got (float, int), but expected one of:\n"),
    (lambda: rl.zeros("a"), "zeros(): argument 'size' (position 1) must be tuple of ints, not str"),
    (lambda: rl.zeros(True), "zeros(): argument 'size' (position 1) must be tuple of ints, not bool"),
    (lambda: rl.zeros(2, "a"),
     "zeros(): argument 'size' failed to unpack the object at pos 2 with error \"type must be tuple of ints,but got str\""),
    (lambda: rl.zeros(2.0), "zeros(): argument 'size' (position 1) must be tuple of ints, not float"),
    (lambda: rl.zeros([2.0]), "zeros(): argument 'size' (position 1) must be tuple of ints, but found element of type float at pos 0"),
    (lambda: rl.zeros(2, dtype="a"), "zeros(): argument 'dtype' must be rushlight.dtype, not str"),
    (lambda: rl.zeros(2, device=1.5), "zeros(): argument 'device' must be rushlight.device, not float"),
    (lambda: rl.zeros(2, bar=1), "zeros() got an unexpected keyword argument 'bar'"),
    (lambda: rl.zeros(2**70),
     "zeros(): argument 'size' failed to unpack the object at pos 1 with error \"Overflow when unpacking long long"),
    (lambda: rl.softmax(X), 'softmax() missing 1 required positional arguments: "dim"'),
    (lambda: X.transpose(0), 'transpose() missing 1 required positional arguments: "dim1"'),
    (lambda: X.transpose(0, 1, 2), "transpose() takes 2 positional arguments but 3 were given"),
    (lambda: X.transpose("a", 1), "transpose(): argument 'dim0' (position 1) must be int, not str"),
    (lambda: X.size("a"), "size(): argument 'dim' (position 1) must be int, not str"),
    (lambda: X.size(1, 2), "size() takes from 0 to 1 positional arguments but 2 were given"),
    (lambda: X.permute("a", "b"), "permute() takes 1 positional argument but 2 were given"),
    (lambda: rl.permute(X, 1), "permute(): argument 'dims' (position 2) must be tuple of ints, not int"),
    (lambda: rl.cat(X), "cat(): argument 'tensors' (position 1) must be tuple of Tensors, not Tensor"),
    (lambda: rl.cat([X, 1]), "expected Tensor as element 1 in argument 0, but got int"),
    (lambda: rl.sum(X, dim=1.5), "sum() received an invalid combination of arguments - got (Tensor, dim=float), but expected one of:\n"),
    (lambda: rl.randint(3), "randint() received an invalid combination of arguments - got (int), but expected one of:\n"),
    (lambda: rl.randint(3, "a"), "randint(): argument 'size' (position 2) must be tuple of ints, not str"),
    (lambda: rl.cat([X], dim=0, axis=0), "cat() got an unexpected keyword argument 'axis'"),
    (lambda: rl.Tensor.add(1, 2), "descriptor 'add' for 'Tensor' objects doesn't apply to a 'int' object"),
    (lambda: rl.Tensor.add(), "unbound method Tensor.add() needs an argument"),
    (lambda: rl.add(X, rl.float32), "add(): argument 'other' (position 2) must be Tensor, not rushlight.dtype"),
    (lambda: rl.add(X, np.ones(2)), "add(): argument 'other' (position 2) must be Tensor, not numpy.ndarray"),
])
def test_words_of_type_errors(call, message):
    with pytest.raises(TypeError) as e:
        call()
    assert message in str(e.value)


def test_the_list_of_overloads():
    with pytest.raises(TypeError) as e:
        rl.max(X, 0, 1, 2, 3)
    assert str(e.value) == (
        "max() received an invalid combination of arguments - got (Tensor, int, int, int, int), but expected one of:\n"
        " * (Tensor input, *, Tensor out = None)\n"
        " * (Tensor input, Tensor other, *, Tensor out = None)\n"
        " * (Tensor input, int dim, bool keepdim = False, *, tuple of Tensors out = None)\n"
        "      didn't match because some of the arguments have invalid types: (Tensor, int, !int!, !int!, !int!)\n")


def test_the_order_of_overloads_does_not_depend_on_the_table():
    """A 0-dim tensor may stand for a number; the overload that takes a tensor comes first."""
    a, b = rl.tensor([1.0, 5.0]), rl.tensor(2)
    assert rl.max(a, b).tolist() == [2.0, 5.0] and rl.maximum(a, b).tolist() == [2.0, 5.0]
    assert rl.max(a, 0).values.item() == 5.0
    for f in (rl.remainder, rl.bitwise_and, rl.xlogy, rl.bitwise_left_shift):
        with pytest.raises(TypeError):
            f(2, 3)


def test_a_bad_call_changes_nothing():
    x = rl.ones(3)
    for call in (lambda: x.add_("a"), lambda: x.add_(1, 2), lambda: rl.add(x, x, out=1), lambda: x.mul_(None)):
        with pytest.raises(TypeError):
            call()
    assert x.tolist() == [1.0, 1.0, 1.0] and x._version == 0


def test_arguments_with_code():
    class Evil:
        def __init__(self, items):
            self.items = items

        def __index__(self):
            self.items.clear()
            return 2

    items: list = []
    items.extend([2, Evil(items), 3])
    for call in (lambda: rl.zeros(items), lambda: X.view(items)):
        with pytest.raises((TypeError, RuntimeError)):
            call()
        items.extend([2, Evil(items), 3])

    class Fails:
        def __index__(self):
            raise KeyError("inside")

    with pytest.raises(TypeError):
        rl.zeros(2, Fails())


def test_values_of_other_kinds():
    with pytest.raises(RuntimeError, match="Expected one of cpu, cuda"):
        rl.zeros(2, device="foo")
    with pytest.raises((RuntimeError, ValueError)):
        rl.zeros(-1)
    with pytest.raises(RuntimeError):
        rl.zeros(2**40, 2**40)
    with pytest.raises(OverflowError, match="int too big to convert"):
        rl.full((2,), 2**70)
