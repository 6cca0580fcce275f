"""backward, grad, hooks, modes, saved-tensor hooks, checkpointing and the functional helpers, as Python calls them."""
import asyncio
import copy
import functools
import gc
import threading
import warnings
import weakref

import pytest
import rushlight as rl
from rushlight.autograd import functional, graph
from rushlight.utils.checkpoint import CheckpointError, checkpoint, checkpoint_sequential


def leaf(*shape, dtype=None):
    return rl.ones(*(shape or (3,)), dtype=dtype, requires_grad=True)


# ---- backward and grad ----------------------------------------------------------------------------------------------------------

def test_backward_arguments():
    x = leaf()
    (x * 2).backward(rl.ones(3))
    (x * 2).backward(gradient=rl.ones(3, dtype=rl.float64))  # cast to the output's dtype
    assert x.grad.tolist() == [4.0] * 3 and x.grad.dtype == rl.float32
    y = (x * x).sum()
    y.backward(retain_graph=True)
    y.backward()
    assert x.grad.tolist() == [8.0] * 3
    a, b = leaf(), leaf()
    (a * b).sum().backward(inputs=[a])
    assert a.grad is not None and b.grad is None
    (a * b).sum().backward(inputs=b)
    assert b.grad is not None and a.grad.tolist() == [1.0] * 3
    rl.autograd.backward([a.sum(), (b * 2).sum()], [None, rl.tensor(3.0)])
    assert a.grad.tolist() == [2.0] * 3 and b.grad.tolist() == [7.0] * 3
    rl.autograd.backward(a.sum())
    rl.autograd.backward((a * 2,), grad_tensors=(rl.ones(3),))
    assert a.grad.tolist() == [5.0] * 3


@pytest.mark.parametrize("call, error, text", [
    (lambda x: (x * 2).backward(), RuntimeError, "grad can be implicitly created only for scalar outputs"),
    (lambda x: rl.ones(1).backward(), RuntimeError, "element 0 of tensors does not require grad and does not have a grad_fn"),
    (lambda x: rl.autograd.backward([x.sum(), rl.ones(1)]), RuntimeError, "element 1 of tensors does not require grad"),
    (lambda x: (x * 2).backward(rl.ones(2)), RuntimeError,
     r"Mismatch in shape: grad_output\[0\] has a shape of .*Size\(\[2\]\) and output\[0\] has a shape of .*Size\(\[3\]\)."),
    (lambda x: (x * 2).backward(1), TypeError, "'int' object is not iterable"),
    (lambda x: x.sum().backward(inputs=[]), RuntimeError, r"`inputs` argument to `backward\(\)` cannot be empty."),
    (lambda x: x.sum().backward(inputs=[rl.ones(1)]), RuntimeError, "does not require grad"),
    (lambda x: rl.autograd.backward([x.sum(), x.sum()], [None]), RuntimeError, "got 2 tensors and 1 gradients"),
    (lambda x: rl.autograd.backward(x.sum(), "a"), TypeError, "gradients can be either Tensors or None, but got str"),
    (lambda x: rl.autograd.backward(5), TypeError, "'int' object is not iterable"),
    (lambda x: rl.autograd.backward(["a"]), TypeError, "expected Tensor as element 0 in tensors, but got str"),
    (lambda x: x.sum().backward(nonsense=1), TypeError, "unexpected keyword argument 'nonsense'"),
    (lambda x: rl.autograd.grad(x.sum(), rl.ones(1)), RuntimeError, "One of the differentiated Tensors does not require grad"),
    (lambda x: rl.autograd.grad(x.sum(), []), RuntimeError, r"`inputs` argument to `grad\(\)` cannot be empty."),
    (lambda x: rl.autograd.grad(x.sum(), [x, leaf()]), RuntimeError,
            "The differentiated Tensor at index 1 appears to not have been used in the graph"),
    (lambda x: rl.autograd.grad(x.sum(), x, allow_unused=False, materialize_grads=True), ValueError, "Expected allow_unused to be True"),
    (lambda x: rl.autograd.grad(x.sum(), x, is_grads_batched=True), NotImplementedError, "is_grads_batched"),
])
def test_errors(call, error, text):
    x = leaf()
    with pytest.raises(error, match=text):
        call(x)
    assert x.grad is None


def test_grad():
    x, unused = leaf(), leaf(2)
    g, = rl.autograd.grad((x * 2).sum(), x)
    assert g.tolist() == [2.0] * 3 and x.grad is None and not g.requires_grad
    assert rl.autograd.grad((x * 2).sum(), [x, unused], allow_unused=True)[1] is None
    assert rl.autograd.grad((x * 2).sum(), [x, unused], materialize_grads=True)[1].tolist() == [0.0, 0.0]
    g, = rl.autograd.grad([x * 2, x * 3], [x], [rl.ones(3), rl.full((3,), 2.0)])
    assert g.tolist() == [8.0] * 3
    g, = rl.autograd.grad((x**3).sum(), x, create_graph=True)
    g2, = rl.autograd.grad(g.sum(), x)
    assert g2.tolist() == [6.0] * 3
    y = x * 2
    z = (y * y).sum()
    gy, = rl.autograd.grad(z, y)
    assert gy.tolist() == [4.0] * 3


def test_many_roots_and_inputs():
    xs = [leaf(1) for _ in range(50)]
    grads = rl.autograd.grad([x * k for k, x in enumerate(xs)], xs, [rl.ones(1)] * 50)
    assert [g.item() for g in grads] == list(range(50))


# ---- nodes ------------------------------------------------------------------------------------------------------------------------

def test_nodes():
    x = leaf()
    y = x * 2
    fn = y.grad_fn
    assert fn is y.grad_fn and fn.name() == type(fn).__name__ == "MulBackward0" and isinstance(fn, graph.Node)
    assert repr(fn).startswith("<MulBackward0 object at 0x")
    (accumulate, nr), *_ = fn.next_functions
    assert accumulate is y.grad_fn.next_functions[0][0] and nr == 0 and accumulate.variable is x
    assert type(accumulate).__name__ == "AccumulateGrad"
    fn.metadata["a"] = 1
    del fn
    gc.collect()
    assert y.grad_fn.metadata == {"a": 1}
    later = (y * 2).grad_fn
    assert later._sequence_nr() > y.grad_fn._sequence_nr()
    edge = graph.get_gradient_edge(y)
    assert edge.node is y.grad_fn and edge.output_nr == 0
    assert graph.get_gradient_edge(x).node is accumulate
    with pytest.raises(RuntimeError, match="does not require gradients"):
        graph.get_gradient_edge(rl.ones(1))
    with pytest.raises(TypeError):
        graph.Node()
    kept = y.grad_fn
    del y, later, edge
    gc.collect()
    assert kept.next_functions[0][0].variable is x


def test_increment_version():
    x = rl.ones(2)
    graph.increment_version(x)
    graph.increment_version([x, x])
    assert x._version == 3


# ---- hooks ------------------------------------------------------------------------------------------------------------------------

def test_tensor_hooks():
    x, seen = leaf(), []
    y = x * 2
    handle = y.register_hook(lambda g: seen.append(g.tolist()))
    y.register_hook(lambda g: g * 10)
    x.register_hook(lambda g: seen.append(g.tolist()))
    y.sum().backward()
    assert seen == [[1.0] * 3, [20.0] * 3] and x.grad.tolist() == [20.0] * 3
    handle.remove()
    handle.remove()
    (x * 3).sum().backward()
    assert len(seen) == 3
    with x.register_hook(lambda g: g * 0):
        x.grad = None
        x.sum().backward()
        assert x.grad.tolist() == [0.0] * 3
    x.sum().backward()
    assert x.grad.tolist() == [1.0] * 3


def test_hooks_may_change_the_list():
    x, seen = leaf(), []
    handles = []
    handles.append(x.register_hook(lambda g: (seen.append(1), handles[0].remove())[0]))
    handles.append(x.register_hook(lambda g: seen.append(2)))
    for _ in range(2):
        x.sum().backward()
    assert seen == [1, 2, 2]
    for _ in range(1000):
        x.register_hook(lambda g: None).remove()
    x.register_hook(lambda g: x.register_hook(lambda g: seen.append(3)) and None)
    x.sum().backward()
    assert seen[-1] == 3


@pytest.mark.parametrize("hook, error, text", [
    (lambda g: 3, TypeError, "expected Variable, but hook returned 'int'"),
    (lambda g: (g,), TypeError, "expected Variable, but hook returned 'tuple'"),
    (lambda g: rl.ones(2), RuntimeError, "hook '<lambda>' has changed the size of value"),
    (lambda g: g.double(), RuntimeError, r"hook '<lambda>' has changed the type of value \(was .*FloatTensor got .*DoubleTensor\)"),
    (lambda g: 1 / 0, ZeroDivisionError, "division by zero"),
])
def test_wrong_hooks(hook, error, text):
    x = leaf()
    y = x * 2
    y.register_hook(hook)
    with pytest.raises(error, match=text):
        y.sum().backward()
    assert x.grad is None


def test_hooks_need_grad():
    for register in (rl.ones(1).register_hook, rl.ones(1).register_post_accumulate_grad_hook):
        with pytest.raises(RuntimeError, match="cannot register a hook on a tensor that doesn't require gradient"):
            register(print)
    with pytest.raises(RuntimeError, match="post accumulate grad hooks cannot be registered on non-leaf tensors"):
        (leaf() * 2).register_post_accumulate_grad_hook(print)
    with pytest.raises(TypeError, match="callable"):
        leaf().register_hook(3)


def test_post_accumulate_hooks():
    x, seen = leaf(), []

    def step(p):
        seen.append(p.grad.tolist())
        with rl.no_grad():
            p -= p.grad
        p.grad = None

    handle = x.register_post_accumulate_grad_hook(step)
    (x * 2).sum().backward()
    assert seen == [[2.0] * 3] and x.tolist() == [-1.0] * 3 and x.grad is None
    handle.remove()
    (x * 2).sum().backward()
    assert len(seen) == 1
    x.register_post_accumulate_grad_hook(lambda p: 3)
    with pytest.raises(TypeError, match="returned 'int'"):
        x.sum().backward()


def test_node_hooks():
    x, seen = leaf(), []
    y = x * 2
    y.grad_fn.register_prehook(lambda grads: (grads[0] * 3,))
    handle = y.grad_fn.register_hook(lambda gin, gout: seen.append((gin[0].tolist(), gin[1], gout[0].tolist())))
    y.sum().backward()
    assert seen == [([6.0] * 3, None, [3.0] * 3)] and x.grad.tolist() == [6.0] * 3
    handle.remove()
    for hook, error, text in ((lambda i, o: (i[0],), RuntimeError, r"incorrect number of values \(got 1, but expected 2\)"),
                              (lambda i, o: i[0], TypeError, "expected tuple, but hook returned")):
        y = x * 2
        y.grad_fn.register_hook(hook)
        with pytest.raises(error, match=text):
            y.sum().backward()


def test_retain_grad():
    x = leaf()
    y = x * 2
    y.retain_grad()
    y.retain_grad()
    assert y.retains_grad and not x.retains_grad
    x.retain_grad()
    (y * 3).sum().backward()
    assert y.grad.tolist() == [3.0] * 3
    with pytest.raises(RuntimeError, match="can't retain_grad on Tensor that has requires_grad=False"):
        rl.ones(1).retain_grad()


def test_hooks_do_not_keep_their_tensor_alive():
    class Marker:
        pass

    x = leaf()
    x.marker = Marker()
    gone = weakref.ref(x.marker)
    x.register_hook(functools.partial(lambda tensor, g: None, x))
    x.register_post_accumulate_grad_hook(functools.partial(lambda tensor, p: None, x))
    (x * 2).sum().backward()
    del x
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("mode", ["all", "any"])
def test_multi_grad_hook(mode):
    a, b, c = leaf(), leaf(), leaf()
    calls = []
    handle = graph.register_multi_grad_hook([a, b, c], calls.append, mode=mode)
    (a * 2 + b * 3 + c).sum().backward()
    assert len(calls) == 1
    if mode == "all":
        assert [g.tolist() for g in calls[0]] == [[2.0] * 3, [3.0] * 3, [1.0] * 3]
    handle.remove()
    (a + b + c).sum().backward()
    assert len(calls) == 1


# ---- modes ------------------------------------------------------------------------------------------------------------------------

def test_no_grad_and_enable_grad():
    x = leaf()
    with rl.no_grad():
        assert not rl.is_grad_enabled() and not (x * 2).requires_grad
        with rl.enable_grad():
            assert (x * 2).requires_grad
        assert not rl.is_grad_enabled()
    assert rl.is_grad_enabled()
    with pytest.raises(KeyError):
        with rl.no_grad():
            raise KeyError
    assert rl.is_grad_enabled()


def test_set_grad_enabled():
    rl.set_grad_enabled(False)
    assert not rl.is_grad_enabled()
    rl.set_grad_enabled(True)
    with rl.set_grad_enabled(False):
        assert not rl.is_grad_enabled()
    assert rl.is_grad_enabled()

    @rl.set_grad_enabled(False)
    def f():
        return rl.is_grad_enabled()

    assert rl.is_grad_enabled() and f() is False and rl.is_grad_enabled()
    with pytest.raises(TypeError, match=r"argument 'enabled' \(position 1\) must be bool, not int"):
        rl.set_grad_enabled(1)


@pytest.mark.parametrize("decorator", [rl.no_grad(), rl.no_grad, rl.inference_mode(), rl.inference_mode], ids=str)
def test_decorators(decorator):
    @decorator
    def plain(a, b=2):
        """The text."""
        return rl.is_grad_enabled(), a, b

    assert plain(1, b=3) == (False, 1, 3) and plain.__name__ == "plain" and plain.__doc__ == "The text."

    class C:
        @decorator
        def method(self):
            return rl.is_grad_enabled()

    assert C().method() is False and rl.is_grad_enabled()

    @decorator
    def recursive(n):
        return rl.is_grad_enabled() if n == 0 else recursive(n - 1)

    assert recursive(3) is False


def test_generators_hold_the_mode_only_while_they_run():
    @rl.no_grad()
    def numbers():
        got = yield rl.is_grad_enabled()
        try:
            yield got, rl.is_grad_enabled()
        except KeyError:
            yield "caught", rl.is_grad_enabled()
        return 7

    gen = numbers()
    assert next(gen) is False and rl.is_grad_enabled()
    assert gen.send("x") == ("x", False) and rl.is_grad_enabled()
    assert gen.throw(KeyError()) == ("caught", False)
    with pytest.raises(StopIteration) as info:
        next(gen)
    assert info.value.value == 7 and rl.is_grad_enabled()
    gen = numbers()
    next(gen)
    gen.close()


def test_inference_mode():
    with rl.inference_mode():
        assert rl.is_inference_mode_enabled() and not rl.is_grad_enabled()
        t = rl.ones(3)
        t.add_(1)
        with rl.inference_mode(False):
            assert not rl.is_inference_mode_enabled() and rl.is_grad_enabled()
    assert t.is_inference() and not rl.is_inference_mode_enabled() and rl.is_grad_enabled()
    with pytest.raises(RuntimeError, match="Inference tensors cannot be saved for backward"):
        t * leaf()
    with pytest.raises(RuntimeError, match="Inplace update to inference tensor outside InferenceMode is not allowed"):
        t.add_(1)
    with pytest.raises(RuntimeError, match="Setting requires_grad=True on inference tensor outside InferenceMode is not allowed"):
        t.requires_grad_()
    assert (t.clone() * leaf()).requires_grad


def test_modes_are_a_threads_own():
    seen = []
    with rl.no_grad():
        t = threading.Thread(target=lambda: seen.append(rl.is_grad_enabled()))
        t.start()
        t.join()
    assert seen == [True]


def test_coroutines():
    @rl.no_grad()
    async def f():
        return rl.is_grad_enabled()

    with rl.no_grad():
        assert asyncio.run(f()) is False


# ---- anomaly ----------------------------------------------------------------------------------------------------------------------

def test_anomaly_names_the_forward_line():
    x = rl.tensor([-1.0], requires_grad=True)
    with pytest.warns(UserWarning) as seen, pytest.raises(RuntimeError,
            match="Function 'SqrtBackward0' returned nan values in its 0th output"):
        with rl.autograd.detect_anomaly():
            y = x.sqrt()  # the line that is named
            y.backward()
    text = "\n".join(str(w.message) for w in seen)
    assert "Anomaly Detection has been enabled" in text and "Error detected in SqrtBackward0" in text and "the line that is named" in text
    assert not rl.is_anomaly_enabled()


def test_anomaly_without_check_nan_and_as_a_call():
    x = rl.tensor([-1.0], requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with rl.autograd.detect_anomaly(check_nan=False):
            x.sqrt().backward()
    assert x.grad.isnan().item()
    rl.autograd.set_detect_anomaly(True)
    assert rl.is_anomaly_enabled()
    rl.autograd.set_detect_anomaly(False)
    with rl.autograd.set_detect_anomaly(True):
        assert rl.is_anomaly_enabled()
    assert not rl.is_anomaly_enabled()


# ---- saved tensors -----------------------------------------------------------------------------------------------------------------

def test_saved_tensors_hooks():
    packed, unpacked = [], []

    def pack(t):
        packed.append(t.tolist())
        return t.tolist()

    def unpack(values):
        unpacked.append(values)
        return rl.tensor(values) * 10

    x = leaf()
    with graph.saved_tensors_hooks(pack, unpack):
        y = x * x
    z = x * x
    (y + z).sum().backward()
    assert packed == [[1.0] * 3] * 2 and len(unpacked) == 2
    assert x.grad.tolist() == [22.0] * 3


def test_saved_tensors_hooks_nest_and_fail():
    with graph.saved_tensors_hooks(lambda t: t, lambda t: t * 2):
        with graph.saved_tensors_hooks(lambda t: t, lambda t: t * 3):
            x = leaf()
            y = x.exp()
        y.sum().backward()
        assert rl.allclose(x.grad, 3 * rl.ones(3).exp())
    with graph.saved_tensors_hooks(lambda t: 1 / 0, lambda t: t), pytest.raises(ZeroDivisionError):
        leaf().exp()
    with graph.saved_tensors_hooks(lambda t: t, lambda t: 5):
        y = leaf().exp()
    with pytest.raises(TypeError, match="Output of saved tensor unpack_hook expected to be a Tensor but got result of type int"):
        y.sum().backward()
    with pytest.raises(TypeError, match="callable"):
        with graph.saved_tensors_hooks(1, 2):
            pass


def test_disabled_saved_tensors_hooks():
    with graph.disable_saved_tensors_hooks("not here"):
        with pytest.raises(RuntimeError, match="not here"):
            with graph.saved_tensors_hooks(lambda t: t, lambda t: t):
                pass
    with graph.saved_tensors_hooks(lambda t: t, lambda t: t):
        leaf().exp().sum().backward()


def test_save_on_cpu():
    x = leaf()
    with graph.save_on_cpu():
        y = x.exp() * x
    y.sum().backward()
    assert rl.allclose(x.grad, 2 * rl.ones(3).exp())


# ---- checkpoint ---------------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoint(reentrant):
    calls = []

    def block(x, w):
        calls.append(rl.is_grad_enabled())
        return (x * w).exp() * x

    x, w = leaf(dtype=rl.float64), leaf(dtype=rl.float64)
    expected = rl.autograd.grad(block(x, w).sum(), [x, w])
    calls.clear()
    checkpoint(block, x, w, use_reentrant=reentrant).sum().backward()
    assert len(calls) == 2 and rl.allclose(x.grad, expected[0]) and rl.allclose(w.grad, expected[1])


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoint_sees_the_same_random_numbers(reentrant):
    drawn = []

    def block(x):
        noise = rl.rand(3)
        drawn.append(noise.tolist())
        return x * noise

    x = leaf()
    rl.manual_seed(1)
    y = checkpoint(block, x, use_reentrant=reentrant)
    after = rl.rand(2).tolist()
    y.sum().backward()
    assert drawn[0] == drawn[1] == x.grad.tolist()
    rl.manual_seed(1)
    rl.rand(3)
    assert rl.rand(2).tolist() == after, "the second run leaves the stream alone"


def test_checkpoint_of_modules_and_keywords():
    model = rl.nn.Sequential(rl.nn.Linear(4, 8), rl.nn.ReLU(), rl.nn.Linear(8, 2))
    twin = copy.deepcopy(model)
    x = rl.randn(3, 4)
    checkpoint(model, x, use_reentrant=False).sum().backward()
    twin(x).sum().backward()
    for p, q in zip(model.parameters(), twin.parameters(), strict=True):
        assert p.grad.tolist() == q.grad.tolist()
    y = leaf()
    checkpoint(lambda a, scale=1: a * a * scale, y, scale=3, use_reentrant=False).sum().backward()
    assert y.grad.tolist() == [6.0] * 3
    model.zero_grad()
    for reentrant in (True, False):
        z = x.clone().requires_grad_()
        checkpoint_sequential(model, 2, z, use_reentrant=reentrant).sum().backward()
        assert z.grad is not None


def test_checkpoint_twice_and_nested():
    x = leaf()
    y = checkpoint(lambda a: (a * a).exp(), x, use_reentrant=False).sum()
    y.backward(retain_graph=True)
    first = x.grad.clone()
    y.backward()
    assert rl.allclose(x.grad, 2 * first)
    x.grad = None
    inner = leaf()
    checkpoint(lambda a: checkpoint(lambda b: b.exp() * b, a, use_reentrant=False) * a, inner, use_reentrant=False).sum().backward()
    expected, = rl.autograd.grad((x.exp() * x * x).sum(), x)
    assert rl.allclose(inner.grad, expected)


def test_checkpoint_that_is_not_repeatable():
    runs = []

    def changes(x):
        runs.append(1)
        return (x * x).exp() if len(runs) == 1 else x * 2

    with pytest.raises(CheckpointError, match="different number of tensors|different metadata"):
        checkpoint(changes, leaf(), use_reentrant=False).sum().backward()
    with pytest.warns(UserWarning, match="None of the inputs have requires_grad=True"):
        checkpoint(lambda x: x * 2, rl.ones(3), use_reentrant=True)


# ---- functional -----------------------------------------------------------------------------------------------------------------------

def test_functional():
    x = rl.tensor([1.0, 2.0, 3.0])
    assert functional.jacobian(lambda t: t**2, x).tolist() == [[2.0, 0.0, 0.0], [0.0, 4.0, 0.0], [0.0, 0.0, 6.0]]
    assert functional.hessian(lambda t: (t**3).sum(), x).tolist() == [[6.0, 0.0, 0.0], [0.0, 12.0, 0.0], [0.0, 0.0, 18.0]]
    v = rl.tensor([1.0, 0.0, 2.0])
    for product, expected in ((functional.vjp(lambda t: t**2, x, v), [2.0, 0.0, 12.0]), (functional.jvp(lambda t: t**2, x, v), [2.0, 0.0,
            12.0]),
                              (functional.hvp(lambda t: (t**3).sum(), x, v), [6.0, 0.0, 36.0]),
                              (functional.vhp(lambda t: (t**3).sum(), x, v), [6.0, 0.0, 36.0])):
        assert product[1].tolist() == expected and not product[1].requires_grad
    a, b = rl.ones(2), rl.ones(2)
    (aa, ab), (ba, bb) = functional.hessian(lambda p, q: (p * p * q).sum(), (a, b))
    assert aa.tolist() == [[2.0, 0.0], [0.0, 2.0]] and ab.tolist() == ba.tolist() == aa.tolist() and bb.tolist() == [[0.0, 0.0]] * 2
    jac = functional.jacobian(lambda p, q: (p * 2, q * 3), (a, b))
    assert jac[0][0].tolist() == [[2.0, 0.0], [0.0, 2.0]] and jac[0][1].tolist() == [[0.0, 0.0]] * 2
    g = functional.jacobian(lambda t: t**3, x.requires_grad_(), create_graph=True)
    assert g.requires_grad
    with pytest.raises(RuntimeError, match="independent of input 1"):
        functional.vjp(lambda p, q: p * 2, (a, b), rl.ones(2), strict=True)
    with pytest.raises(RuntimeError, match="should return a single Tensor with a single element"):
        functional.hessian(lambda t: t, a)
    with pytest.raises(TypeError, match="must be either a Tensor or a tuple of Tensors"):
        functional.jacobian(lambda t: t, 3)


def test_gradcheck_finds_mistakes():
    class Wrong(rl.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 3

    x = rl.ones(3, dtype=rl.float64, requires_grad=True)
    with pytest.raises(RuntimeError, match="Jacobian mismatch for output 0 with respect to input 0"):
        rl.autograd.gradcheck(Wrong.apply, x)
    assert not rl.autograd.gradcheck(Wrong.apply, x, raise_exception=False)
    assert rl.autograd.gradcheck(lambda a, b: (a * b, a.sin()), (x, x.detach().clone().requires_grad_()))
    assert rl.autograd.gradgradcheck(lambda a, b: a * b * b, (x, x.detach().clone().requires_grad_()))
    with pytest.raises(ValueError, match="at least one input tensor to require gradient"):
        rl.autograd.gradcheck(lambda a: a, x.detach())
    with pytest.warns(UserWarning, match="not a double precision"):
        rl.autograd.gradcheck(lambda a: a * 1, leaf(), eps=1e-2, atol=1e-2, rtol=1e-2)
    assert x.tolist() == [1.0] * 3, "the input is as it was"


def test_variable():
    from rushlight.autograd import Variable
    x = Variable(rl.ones(2), requires_grad=True)
    assert isinstance(x, Variable) and isinstance(x, rl.Tensor) and x.requires_grad and isinstance(rl.ones(1), Variable)
    with rl.autograd.profiler.record_function("part"):
        x.sum().backward()
