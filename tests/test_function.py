"""Custom Functions: what they may do, what they may not, and PyTorch's words for it (recorded from 2.13)."""
import gc
import traceback
import weakref

import pytest
import rushlight as rl
from rushlight.autograd import Function
from rushlight.autograd.function import FunctionCtx, InplaceFunction, once_differentiable


def make(backward, forward=lambda ctx, a, b: a * 2):
    """A Function of a tensor and a number."""
    class F(Function):
        pass
    F.forward, F.backward = staticmethod(forward), staticmethod(backward)
    return F


def leaf(*shape):
    return rl.ones(*(shape or (3,)), requires_grad=True)


class Exp(Function):
    @staticmethod
    def forward(ctx, x):
        y = x.exp()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, g):
        y, = ctx.saved_tensors
        return g * y


class Cube(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, g):
        x, = ctx.saved_tensors
        return g * 3 * x**2


# ---- forward and backward ---------------------------------------------------------------------------------------------------

def test_values_and_gradients():
    x = rl.tensor([0.5, 1.0], requires_grad=True)
    y = Exp.apply(x)
    assert rl.allclose(y, x.exp())
    y.sum().backward()
    assert rl.allclose(x.grad, x.detach().exp())


@pytest.mark.parametrize("function", [Exp, Cube])
def test_any_order(function):
    x = rl.tensor([0.5, 1.5, -1.0], dtype=rl.float64, requires_grad=True)
    assert rl.autograd.gradcheck(function.apply, x)
    assert rl.autograd.gradgradcheck(function.apply, x)
    third = function.apply(x).sum()
    for _ in range(3):
        third, = rl.autograd.grad(third.sum(), x, create_graph=True)
    assert rl.allclose(third, x.exp() if function is Exp else rl.full_like(x, 6.0))


def test_names_and_identity():
    x = leaf()
    y = Exp.apply(x)
    assert y.grad_fn is y.grad_fn and y.grad_fn.name() == type(y.grad_fn).__name__ == "ExpBackward"
    assert isinstance(y.grad_fn, FunctionCtx) and y.output_nr == 0
    (node, nr), = y.grad_fn.next_functions
    assert node.variable is x and nr == 0
    assert repr(y).endswith("grad_fn=<ExpBackward>)")


def test_arguments_of_all_kinds():
    seen = {}

    class F(Function):
        @staticmethod
        def forward(ctx, a, factor, b, note=None, items=()):
            seen["needs"] = ctx.needs_input_grad
            ctx.factor = factor
            return a * factor + b

        @staticmethod
        def backward(ctx, g):
            seen["ctx"] = ctx.needs_input_grad
            return g * ctx.factor, None, g, None, None

    a, b = leaf(), rl.ones(3)
    y = F.apply(a, 3.0, b, "note", [1, 2])
    assert seen["needs"] == (True, False, False, False, False)
    y.sum().backward()
    assert a.grad.tolist() == [3.0] * 3 and b.grad is None and seen["ctx"] == seen["needs"]
    assert len(y.grad_fn.next_functions) == 2 and y.grad_fn.next_functions[1] == (None, 0)
    assert F.apply(a, factor=2.0, b=b, note=1, items=()).tolist() == [3.0] * 3
    with pytest.raises(TypeError, match="missing"):
        F.apply(a)


def test_several_outputs():
    class Split(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2, 5, None, x * 3, x.argmax()

        @staticmethod
        def backward(ctx, a, number, none, b, index):
            assert number is None and none is None and index.tolist() == 0
            return a * 2 + b * 3

    x = leaf()
    a, number, none, b, index = Split.apply(x)
    assert number == 5 and none is None and not index.requires_grad and (a.output_nr, b.output_nr) == (0, 3)
    b.sum().backward()
    assert x.grad.tolist() == [3.0] * 3, "the gradient of an unused output is zeros"


def test_materialized_gradients():
    class F(Function):
        materialize = True

        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(F.materialize)
            return x * 1, x * 2

        @staticmethod
        def backward(ctx, a, b):
            if F.materialize:
                assert b.tolist() == [0.0] * 3 and b.dtype == rl.float64
                return a
            assert b is None
            return a

    x = rl.ones(3, dtype=rl.float64, requires_grad=True)
    for F.materialize in (True, False):
        F.apply(x)[0].sum().backward()


def test_no_grad_and_constants_record_nothing():
    with rl.no_grad():
        assert Exp.apply(leaf()).grad_fn is None
    assert Exp.apply(rl.ones(3)).grad_fn is None
    states = []
    F = make(lambda ctx, g: (g, None), lambda ctx, a, b: states.append(rl.is_grad_enabled()) or a * 2)
    F.apply(leaf(), 1)
    assert states == [False], "forward runs without grad mode"


def test_grad_mode_in_backward():
    states = []
    F = make(lambda ctx, g: (states.append(rl.is_grad_enabled()), (g * 2, None))[1])
    x = leaf()
    F.apply(x, 1).sum().backward()
    rl.autograd.grad(F.apply(x, 1).sum(), x, create_graph=True)
    assert states == [False, True]


def test_returning_an_input():
    F = make(lambda ctx, g: (g * 5, None), lambda ctx, a, b: a)
    x = leaf()
    y = F.apply(x, 1)
    assert y is not x and y.data_ptr() == x.data_ptr() and x.is_leaf and y.grad_fn.name() == "FBackward"
    y.sum().backward()
    assert x.grad.tolist() == [5.0] * 3
    z = x * 2
    w = F.apply(z, 1)
    assert z.grad_fn.name() == "MulBackward0" and w.grad_fn.name() == "FBackward"


def test_views_as_outputs():
    F = make(lambda ctx, g: (g.reshape(2, 2) * 5, None), lambda ctx, a, b: a.view(-1))
    x = leaf(2, 2)
    F.apply(x, 1).sum().backward()
    assert x.grad.tolist() == [[5.0, 5.0]] * 2


def test_in_place():
    def double(ctx, a, b):
        a.mul_(2)
        ctx.mark_dirty(a)
        return a

    F = make(lambda ctx, g: (g * 2, None), double)
    x = leaf()
    z = x * 3
    out = F.apply(z, 1)
    assert out is z and z.grad_fn.name() == "FBackward" and z._version >= 1 and z.tolist() == [6.0] * 3
    z.sum().backward()
    assert x.grad.tolist() == [6.0] * 3
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad has been used in an in-place operation"):
        F.apply(leaf(), 1)
    base = leaf(2, 2) * 1
    F.apply(base[0], 1)
    assert base.grad_fn.name() == "CopySlices" and base.tolist() == [[2.0, 2.0], [1.0, 1.0]]


def test_dirty_inputs_must_be_returned():
    F = make(None, lambda ctx, a, b: ctx.mark_dirty(a) or a * 2)
    with pytest.raises(RuntimeError, match="Some elements marked as dirty during the forward method were not returned as output."):
        F.apply(leaf() * 1, 1)


def test_non_differentiable_outputs():
    def forward(ctx, a, b):
        y, z = a * 2, a * 3
        ctx.mark_non_differentiable(z)
        return y, z

    F = make(lambda ctx, g, h: (g * 2 + h, None), forward)
    x = leaf()
    y, z = F.apply(x, 1)
    assert y.requires_grad and not z.requires_grad
    y.sum().backward()
    assert x.grad.tolist() == [2.0] * 3


def test_setup_context():
    class F(Function):
        @staticmethod
        def forward(a, b=2):
            return a * b

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.b = inputs[1]
            ctx.save_for_backward(output)

        @staticmethod
        def backward(ctx, g):
            assert ctx.saved_tensors[0].tolist() == [ctx.b] * 3
            return g * ctx.b, None

    x = leaf()
    F.apply(x).sum().backward()
    F.apply(x, b=3).sum().backward()
    assert x.grad.tolist() == [5.0] * 3


def test_vjp_is_another_name_of_backward():
    class F(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def vjp(ctx, g):
            return g * 2

    x = leaf()
    F.apply(x).sum().backward()
    assert x.grad.tolist() == [2.0] * 3
    with pytest.raises(RuntimeError, match="Implementing both 'backward' and 'vjp'"):
        type("G", (Function,), {"backward": staticmethod(lambda ctx, g: g), "vjp": staticmethod(lambda ctx, g: g)})


def test_saved_tensors():
    x = leaf()
    assert make(None, lambda ctx, a, b: ctx.saved_tensors).apply(x, 1) == ()
    y = Cube.apply(x)
    fn = y.grad_fn
    assert fn.saved_tensors[0] is x
    s = y.sum()
    s.backward()
    for again in (s.backward, lambda: fn.saved_tensors):
        with pytest.raises(RuntimeError, match="Trying to backward through the graph a second time"):
            again()
    y = Cube.apply(z := x * 1)
    z.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation.*is at version 1; expected version 0"):
        y.sum().backward()
    F = make(lambda ctx, g: (g * ctx.saved_tensors[1], None), lambda ctx, a, b: ctx.save_for_backward(None, a) or a * 1)
    F.apply(leaf(), 1).sum().backward()


def test_once_differentiable():
    class F(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**2

        @staticmethod
        @once_differentiable
        def backward(ctx, g):
            assert not rl.is_grad_enabled()
            return ctx.saved_tensors[0] * 2 * g

    x = leaf()
    F.apply(x).sum().backward()
    assert x.grad.tolist() == [2.0] * 3
    seed = rl.ones(3, requires_grad=True)
    g, = rl.autograd.grad(F.apply(x), x, seed, create_graph=True)
    assert g.requires_grad
    with pytest.raises(RuntimeError, match="trying to differentiate twice a function that was marked with @once_differentiable"):
        g.sum().backward()


# ---- errors ----------------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("backward, text", [
    (lambda ctx, g: g, r"function FBackward returned an incorrect number of gradients \(expected 2, got 1\)"),
    (lambda ctx, g: (g, None, g), r"function FBackward returned an incorrect number of gradients \(expected 2, got 3\)"),
    (lambda ctx, g: [g, None], r"function FBackward returned an incorrect number of gradients \(expected 2, got 1\)"),
    (lambda ctx, g: (g, g),
     "returned a gradient different than None at position 2, but the corresponding forward input was not a Variable"),
    (lambda ctx, g: (5, None), r"expected Variable or None \(got int\)"),
    (lambda ctx, g: (rl.ones(2), None),
     r"Function FBackward returned an invalid gradient at index 0 - got \[2\] but expected shape compatible with \[3\]"),
])
def test_wrong_gradients(backward, text):
    x = leaf()
    with pytest.raises(RuntimeError, match=text):
        make(backward).apply(x, 1).sum().backward()
    assert x.grad is None


def test_right_gradients():
    for backward, expected in ((lambda ctx, g: (g, None, None), [1.0] * 3), (lambda ctx, g: (None, None), None),
                               (lambda ctx, g: (g.double(), None), [1.0] * 3), (lambda ctx, g: (rl.ones(2, 3), None), [2.0] * 3)):
        x = leaf()
        make(backward).apply(x, 1).sum().backward()
        assert (x.grad if x.grad is None else x.grad.tolist()) == expected
        assert x.grad is None or x.grad.dtype == rl.float32


@pytest.mark.parametrize("mark, error, text", [
    (lambda ctx, a: ctx.save_for_backward(1), TypeError, "save_for_backward can only save variables, but argument 0 is of type int"),
    (lambda ctx, a: ctx.mark_dirty(3), RuntimeError, "mark_dirty can only accept variables"),
    (lambda ctx, a: ctx.mark_non_differentiable(3), RuntimeError, "mark_non_differentiable only accepts variable arguments"),
])
def test_wrong_marks(mark, error, text):
    with pytest.raises(error, match=text):
        make(None, lambda ctx, a, b: mark(ctx, a) or a * 2).apply(leaf(), 1)


def test_what_is_not_written():
    class Empty(Function):
        pass

    with pytest.raises(NotImplementedError, match="You must implement the forward function"):
        Empty.apply(leaf())
    with pytest.raises(RuntimeError, match="Legacy autograd function with non-static forward method is deprecated"):
        Empty()(leaf())

    class OnlyForward(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

    y = OnlyForward.apply(leaf())
    with pytest.raises(NotImplementedError, match="You must implement either the backward or vjp method"):
        y.sum().backward()
    assert issubclass(InplaceFunction, Function)
    with pytest.raises((TypeError, RuntimeError, AttributeError)):
        FunctionCtx.apply(leaf())


def test_exceptions_pass_through_with_their_traceback():
    class Bad(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            raise KeyError("inside backward")

    x = leaf()
    with pytest.raises(KeyError, match="inside backward") as info:
        (Bad.apply(x) * 3).sum().backward()
    assert "raise KeyError" in "".join(traceback.format_exception(info.value))
    x.sum().backward()
    assert x.grad.tolist() == [1.0] * 3, "the engine works on"


def test_backward_inside_backward():
    class Inner(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx, g):
            x = ctx.saved_tensors[0].detach().requires_grad_()
            with rl.enable_grad():
                (x * 2).backward(g)
            return x.grad

    x = leaf()
    (Inner.apply(Inner.apply(x)) * 1).sum().backward()
    assert x.grad.tolist() == [4.0] * 3


# ---- memory -----------------------------------------------------------------------------------------------------------------------

class Marker:
    pass


@pytest.mark.parametrize("close", [lambda y: setattr(y.grad_fn, "y", y), lambda y: setattr(y, "fn", y.grad_fn),
                                   lambda y: setattr(y.grad_fn, "later", (y * 2).exp()),
                                   lambda y: y.register_hook(lambda g: (g, y)[0]), lambda y: y.grad_fn.metadata.update(y=y)])
def test_cycles_through_the_graph_are_collected(close):
    y = Exp.apply(leaf())
    y.grad_fn.marker = Marker()
    gone = weakref.ref(y.grad_fn.marker)
    close(y)
    del y
    gc.collect()
    assert gone() is None


def test_contexts_die_with_their_graph():
    y = Exp.apply(leaf())
    y.grad_fn.marker = Marker()
    gone = weakref.ref(y.grad_fn.marker)
    fn = y.grad_fn
    del y
    assert gone() is not None and fn.marker is gone()
    del fn
    gc.collect()
    assert gone() is None


def test_a_context_outlives_its_graph():
    y = Cube.apply(leaf())
    fn = y.grad_fn
    fn.note = 1
    del y
    gc.collect()
    assert fn.note == 1 and fn.saved_tensors == ()
    with pytest.raises(RuntimeError, match="graph that this CubeBackward belonged to is gone"):
        fn.next_functions  # noqa: B018
