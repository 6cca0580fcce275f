"""nn.Module: registration, attribute rules, walking, conversion, hooks, state dicts, printing, copying. Texts are PyTorch 2.13's."""
import copy
import gc
import pickle
import re
import warnings
import weakref
from collections import OrderedDict

import pytest
import rushlight as rl
from rushlight import nn
from rushlight.nn.modules import module as module_file


def raises(cls, text):
    return pytest.raises(cls, match="^" + re.escape(text) + "$")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(2, 3)
        self.b = nn.Sequential(nn.ReLU(), nn.Linear(3, 1, bias=False))
        self.scale = nn.Parameter(rl.ones(1))
        self.register_buffer("count", rl.zeros(2))
        self.register_buffer("scratch", rl.zeros(1), persistent=False)

    def forward(self, x):
        return self.b(self.a(x)) * self.scale


class Add(nn.Module):
    """Needs no product: x + bias."""

    def __init__(self, n=2):
        super().__init__()
        self.bias = nn.Parameter(rl.arange(float(n)))

    def forward(self, x, *, twice=False):
        y = x + self.bias
        return y + self.bias if twice else y


# ---- registration and attributes ----


def test_names_and_order():
    net = Net()
    assert [n for n, _ in net.named_parameters()] == ["scale", "a.weight", "a.bias", "b.1.weight"]
    assert [n for n, _ in net.named_buffers()] == ["count", "scratch"]
    assert [n for n, _ in net.named_modules()] == ["", "a", "b", "b.0", "b.1"]
    assert [n for n, _ in net.named_children()] == ["a", "b"]
    assert [n for n, _ in net.named_parameters(prefix="p", recurse=False)] == ["p.scale"]
    assert list(net.state_dict()) == ["scale", "count", "a.weight", "a.bias", "b.1.weight"]
    assert dict(net.state_dict()._metadata) == {k: {"version": 1} for k in ("", "a", "b", "b.0", "b.1")}


def test_shared_members_are_walked_once():
    m = nn.Module()
    m.x = nn.Linear(1, 1)
    m.y = m.x
    assert len(list(m.parameters())) == 2 and len(list(m.modules())) == 2
    assert [n for n, _ in m.named_parameters(remove_duplicate=False)] == ["x.weight", "x.bias", "y.weight", "y.bias"]
    assert [n for n, _ in m.named_modules(remove_duplicate=False)] == ["", "x", "y"]


def test_lookup_goes_through_the_dicts_of_the_moment():
    m = nn.Linear(2, 2)
    other = nn.Parameter(rl.zeros(2, 2))
    m._parameters["weight"] = other
    assert m.weight is other
    del m._parameters["weight"]
    with raises(AttributeError, "'Linear' object has no attribute 'weight'"):
        m.weight  # noqa: B018
    m.__dict__["weight"] = 5
    assert m.weight == 5
    assert getattr(m, "missing", 7) == 7


def test_assignment_rules():
    m = nn.Module()
    m.x = 5
    m.x = nn.Parameter(rl.ones(1))
    assert "x" not in m.__dict__ and "x" in m._parameters
    with raises(TypeError, "cannot assign 'float' as parameter 'x' (torch.nn.Parameter or None expected)"):
        m.x = 2.0
    m.x = None
    assert m._parameters == {"x": None} and m.x is None
    with pytest.raises(TypeError, match="as parameter 'x' .torch.nn.Parameter or None expected"):
        m.x = nn.Linear(1, 1)
    del m.x
    m.x = nn.Linear(1, 1)
    assert m._parameters == {} and "x" in m._modules
    with raises(TypeError, "cannot assign 'float' as child module 'x' (torch.nn.Module or None expected)"):
        m.x = 2.0
    m.register_buffer("b", rl.ones(1), persistent=False)
    m.b = rl.zeros(1)
    assert m._buffers["b"].item() == 0 and "b" in m._non_persistent_buffers_set
    with raises(TypeError, "cannot assign 'float' as buffer 'b' (torch.nn.Buffer, torch.Tensor or None expected)"):
        m.b = 2.0
    m.b = nn.Parameter(rl.ones(1))
    assert "b" not in m._buffers and "b" not in m._non_persistent_buffers_set
    m.c = nn.Buffer(rl.ones(2), persistent=False)
    assert "c" in m._buffers and "c" in m._non_persistent_buffers_set
    m.t = rl.ones(1)
    assert "t" in m.__dict__


def test_deletion():
    net = Net()
    del net.scale, net.scratch, net.a
    assert "scale" not in net._parameters and "scratch" not in net._non_persistent_buffers_set and list(net._modules) == ["b"]
    with pytest.raises(AttributeError):
        del net.nothing


def test_before_init():
    class Early(nn.Module):
        def __init__(self, what):
            self.x = what
            super().__init__()

    with raises(AttributeError, "cannot assign parameters before Module.__init__() call"):
        Early(nn.Parameter(rl.ones(1)))
    with raises(AttributeError, "cannot assign module before Module.__init__() call"):
        Early(nn.Identity())
    early = nn.Module.__new__(nn.Module)
    with raises(AttributeError, "cannot assign buffer before Module.__init__() call"):
        early.register_buffer("b", rl.ones(1))
    with raises(AttributeError, "cannot assign parameter before Module.__init__() call"):
        early.register_parameter("p", None)
    with raises(AttributeError, "'Module' object has no attribute '_backward_hooks'"):
        early(1)


def test_registration_errors():
    m = nn.Linear(1, 1)
    one = nn.Parameter(rl.ones(1))
    for register, kind in ((m.register_parameter, "parameter"), (m.register_buffer, "buffer")):
        with raises(TypeError, f"{kind} name should be a string. Got int"):
            register(3, None)
        with raises(KeyError, repr(f'{kind} name can\'t contain "."')):
            register("a.b", None)
        with raises(KeyError, repr(f'{kind} name can\'t be empty string ""')):
            register("", None)
        with raises(KeyError, '"attribute \'in_features\' already exists"'):
            register("in_features", None)
    with raises(KeyError, repr('module name can\'t contain ".", got: a.b')):
        m.add_module("a.b", None)
    with raises(KeyError, '"attribute \'weight\' already exists"'):
        m.register_buffer("weight", rl.ones(1))
    with raises(TypeError, "int is not a Module subclass"):
        m.add_module("x", 3)
    with raises(TypeError, "cannot assign 'int' object to parameter 'p' (torch.nn.Parameter or None required)"):
        m.register_parameter("p", 3)
    with raises(TypeError, "cannot assign 'int' object to buffer 'p' (torch Tensor or None required)"):
        m.register_buffer("p", 3)
    with pytest.raises(TypeError, match="cannot assign '.*FloatTensor' object to parameter 'p'"):
        m.register_parameter("p", rl.ones(1))
    assert one.is_leaf


def test_init_takes_no_arguments():
    with raises(TypeError, "Module.__init__() got an unexpected keyword argument 'x'"):
        nn.Module(x=1)
    with raises(TypeError, "Module.__init__() takes 1 positional argument but 2 were given"):
        nn.Module(1)


def test_getattr_of_subclasses():
    class Wrapper(nn.Module):
        def __init__(self, module):
            super().__init__()
            self.module = module

        def __getattr__(self, name):
            try:
                return super().__getattr__(name)
            except AttributeError:
                return getattr(self.module, name)

    class Inner(Wrapper):
        pass

    for cls in (Wrapper, Inner):
        w = cls(nn.Linear(2, 3))
        assert w.in_features == 2 and w.weight is w.module.weight
        with raises(AttributeError, "'Linear' object has no attribute 'nothing'"):
            w.nothing  # noqa: B018


def test_properties_and_class_attributes_come_first():
    class P(nn.Module):
        kind = "class"

        @property
        def double(self):
            return self.value * 2

    p = P()
    p.value = 4
    assert p.double == 8 and p.kind == "class"
    p.kind = "own"
    assert p.kind == "own"


def test_getattribute_of_subclasses():
    class G(nn.Module):
        def __getattribute__(self, name):
            return 9 if name == "nine" else super().__getattribute__(name)

    g = G()
    g.child = nn.Identity()
    assert g.nine == 9 and isinstance(g.child, nn.Identity)


def test_dir():
    names = dir(nn.Sequential(OrderedDict(first=nn.Linear(1, 1))))
    assert "first" in names and "forward" in names and "training" in names
    assert "0" not in dir(nn.Sequential(nn.Identity()))


def test_dotted_names():
    net = Net()
    assert net.get_submodule("") is net and net.get_submodule("b.1") is net.b[1]
    assert net.get_parameter("b.1.weight") is net.b[1].weight and net.get_buffer("count") is net.count
    for call, text in ((lambda: net.get_submodule("b.9"), "Sequential has no attribute `9`"),
                       (lambda: net.get_submodule("scale"), "`scale` is not an nn.Module"),
                       (lambda: net.get_parameter("a.nope"), "Linear has no attribute `nope`"),
                       (lambda: net.get_parameter("count"), "`count` is not an nn.Parameter"),
                       (lambda: net.get_buffer("scale"), "`scale` is not a buffer")):
        with raises(AttributeError, text):
            call()
    net.set_submodule("b.0", nn.Tanh())
    assert isinstance(net.b[0], nn.Tanh)
    with raises(ValueError, "Cannot set the submodule without a target name!"):
        net.set_submodule("", nn.Tanh())
    with raises(AttributeError, "Sequential has no attribute `7`"):
        net.set_submodule("b.7", nn.Tanh(), strict=True)


def test_registration_hooks():
    seen = []
    handles = [module_file.register_module_parameter_registration_hook(lambda m, n, p: seen.append(("p", n))),
               module_file.register_module_buffer_registration_hook(lambda m, n, b: seen.append(("b", n))),
               module_file.register_module_module_registration_hook(lambda m, n, c: seen.append(("m", n)))]
    Net()
    for h in handles:
        h.remove()
    nn.Linear(1, 1)
    assert seen == [("p", "weight"), ("p", "bias"), ("m", "a"), ("p", "weight"), ("m", "0"), ("m", "1"), ("m", "b"), ("p", "scale"),
                    ("b", "count"), ("b", "scratch")]


# ---- modes and conversion ----


def test_train_and_eval():
    net = Net()
    assert net.eval() is net and not any(m.training for m in net.modules())
    net.train()
    assert all(m.training for m in net.modules())
    with raises(ValueError, "training mode is expected to be boolean"):
        net.train(1)


def test_apply_visits_children_first():
    order = []
    Net().apply(lambda m: order.append(type(m).__name__))
    assert order == ["Linear", "ReLU", "Linear", "Sequential", "Net"]


def test_casts_keep_the_parameter_objects():
    net = Net()
    w, before = net.a.weight, net.a.weight.detach().clone()
    w.grad = rl.ones_like(w)
    g = w.grad
    assert net.double() is net and net.a.weight is w and w.dtype == rl.float64 and net.count.dtype == rl.float64
    assert w.grad is g and g.dtype == rl.float64
    assert net.half().a.bias.dtype == rl.float16 and net.bfloat16().scale.dtype == rl.bfloat16
    net.float()
    assert rl.allclose(w, before, atol=1e-2) and w.requires_grad and w.is_leaf
    net.register_buffer("number", rl.tensor([1, 2]))
    assert net.to(rl.float64).number.dtype == rl.int64
    assert net.to("cpu", rl.float32).a.weight.dtype == rl.float32
    assert net.to(rl.ones(1, dtype=rl.float64)).a.weight.dtype == rl.float64
    assert net.type(rl.float32).number.dtype == rl.float32
    with pytest.raises(TypeError, match="nn.Module.to only accepts floating point or complex dtypes, but got desired dtype="):
        net.to(rl.int32)
    with pytest.raises(TypeError):
        net.to("cpu", nonsense=1)


def test_requires_grad_and_zero_grad():
    net = Net().requires_grad_(False)
    assert not any(p.requires_grad for p in net.parameters())
    net.requires_grad_()
    net.scale.grad = rl.ones(1)
    net.zero_grad(set_to_none=False)
    assert net.scale.grad.item() == 0
    net.zero_grad()
    assert net.scale.grad is None


# ---- calls and hooks ----


def test_call_passes_arguments():
    class Args(nn.Module):
        def forward(self, *args, **kwargs):
            return args, kwargs

    m = Args()
    assert m(1, 2, x=3) == ((1, 2), {"x": 3}) and m() == ((), {}) and m(*range(20)) == (tuple(range(20)), {})
    assert m(**{"a": 1}) == ((), {"a": 1}) and m(*[1], **{"a": 1}) == ((1,), {"a": 1})
    m.forward = lambda x: ("own", x)
    assert m(5) == ("own", 5)
    assert list(map(Args(), [1])) == [((1,), {})]


def test_call_can_be_replaced():
    class C(nn.Module):
        def forward(self, x):
            return x

    c = C()
    assert c(1) == 1
    C.__call__ = lambda self, x: "replaced"
    assert c(1) == "replaced" and c(x=1) == "replaced"
    del C.__call__
    assert c(1) == 1
    C.forward = lambda self, x: "patched"
    assert c(1) == "patched"

    class D(nn.Module):
        def __call__(self, x):
            return "around", super().__call__(x)

        def forward(self, x):
            return x

    assert D()(1) == ("around", 1)


def test_forward_is_missing():
    class Empty(nn.Module):
        pass

    with raises(NotImplementedError, 'Module [Empty] is missing the required "forward" function'):
        Empty()(1)


def test_arguments_of_forwards_in_c():
    for cls, m in (("Linear", nn.Linear(2, 3)), ("Sequential", nn.Sequential(nn.Identity()))):
        with raises(TypeError, f"{cls}.forward() missing 1 required positional argument: 'input'"):
            m()
        with raises(TypeError, f"{cls}.forward() takes 2 positional arguments but 3 were given"):
            m(1, 2)
        with raises(TypeError, f"{cls}.forward() got an unexpected keyword argument 'foo'"):
            m(rl.ones(2), foo=3)
    x = rl.ones(2)
    assert nn.Sequential(nn.Identity())(input=x) is x
    assert nn.Sequential()(x) is x


def test_endless_recursion_is_an_exception():
    s = nn.Sequential()
    s.add_module("0", s)
    with pytest.raises(RecursionError):
        s(1)
    s._modules.clear()


def test_forward_hooks():
    m, log = Add(), []
    x = rl.ones(2)
    h1 = m.register_forward_pre_hook(lambda mod, args: log.append(("pre", mod is m, len(args))))
    h2 = m.register_forward_hook(lambda mod, args, out: out * 10)
    assert m(x).tolist() == [10.0, 20.0] and log == [("pre", True, 1)]
    h1.remove()
    h2.remove()
    assert m(x).tolist() == [1.0, 2.0] and len(log) == 1
    with m.register_forward_pre_hook(lambda mod, args: args[0] * 2):
        assert m(x).tolist() == [2.0, 3.0]
    with m.register_forward_pre_hook(lambda mod, args, kwargs: ((args[0] * 3,), {"twice": True}), with_kwargs=True):
        assert m(x).tolist() == [3.0, 5.0]
    with m.register_forward_hook(lambda mod, args, kwargs, out: (out, kwargs), with_kwargs=True):
        assert m(x, twice=True)[1] == {"twice": True}
    assert m(x).tolist() == [1.0, 2.0]
    with m.register_forward_pre_hook(lambda mod, args, kwargs: 1, with_kwargs=True):
        with raises(RuntimeError, "forward pre-hook must return None or a tuple of (new_args, new_kwargs), but got 1."):
            m(x)


def test_order_of_hooks():
    m, log = Add(), []
    handles = [m.register_forward_hook(lambda *a: log.append("own1")), m.register_forward_hook(lambda *a: log.append("own2")),
               m.register_forward_hook(lambda *a: log.append("first"), prepend=True),
               module_file.register_module_forward_hook(lambda *a: log.append("global")),
               module_file.register_module_forward_pre_hook(lambda *a: log.append("global pre")),
               m.register_forward_pre_hook(lambda *a: log.append("own pre"))]
    m(rl.ones(2))
    for h in handles:
        h.remove()
    assert log == ["global pre", "own pre", "global", "first", "own1", "own2"]
    m(rl.ones(2))
    assert len(log) == 6


def test_always_called_hooks():
    class Bad(nn.Module):
        def forward(self, x):
            raise ValueError("inside")

    m, log = Bad(), []
    m.register_forward_hook(lambda *a: log.append("never"))
    m.register_forward_hook(lambda mod, args, out: log.append(("always", out)), always_call=True)
    with pytest.raises(ValueError, match="inside"):
        m(1)
    assert log == [("always", None)]

    def worse(mod, args, out):
        raise KeyError("second")

    m.register_forward_hook(worse, always_call=True)
    with pytest.warns(UserWarning, match="module forward hook with ``always_call=True`` raised an exception that was silenced"):
        with pytest.raises(ValueError, match="inside"):
            m(1)


def test_full_backward_hooks():
    m, log = Add(), []
    x = rl.ones(2, requires_grad=True)
    with m.register_full_backward_hook(lambda mod, gi, go: log.append((gi[0].tolist(), go[0].tolist()))):
        (m(x) * 3).sum().backward()
    assert log == [([3.0, 3.0], [3.0, 3.0])] and x.grad.tolist() == [3.0, 3.0]
    x.grad = None
    with m.register_full_backward_hook(lambda mod, gi, go: (gi[0] * 10,)):
        m(x).sum().backward()
    assert x.grad.tolist() == [10.0, 10.0]
    x.grad = m.bias.grad = None
    with m.register_full_backward_pre_hook(lambda mod, go: (go[0] * 5,)):
        m(x).sum().backward()
    assert x.grad.tolist() == [5.0, 5.0] and m.bias.grad.tolist() == [5.0, 5.0]


def test_backward_hook_errors():
    m, x = Add(), rl.ones(2, requires_grad=True)
    with m.register_full_backward_hook(lambda mod, gi, go: (1, 2)):
        with pytest.raises(RuntimeError, match="Backward hook returned an invalid number of grad_input, got 2, but expected 1"):
            m(x).sum().backward()
    with raises(RuntimeError, "Cannot use both regular backward hooks and full backward hooks on a single Module. Please use only one of "
                              "them."):
        m.register_backward_hook(lambda *a: None)


def test_backward_hook_without_gradient_of_inputs():
    m, log = Add(), []
    m.register_full_backward_hook(lambda mod, gi, go: log.append((gi, go[0].tolist())))
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        m(rl.ones(2)).sum().backward()
    assert log == [((None,), [1.0, 1.0])] and m.bias.grad.tolist() == [1.0, 1.0]


def test_global_backward_hook():
    m, log = Add(), []
    x = rl.ones(2, requires_grad=True)
    with module_file.register_module_full_backward_hook(lambda mod, gi, go: log.append(type(mod).__name__)):
        m(x).sum().backward()
    m(x).sum().backward()
    assert log == ["Add"]


def test_hooks_stay_on_copies():
    m = Add()
    m.register_forward_hook(lambda mod, args, out: out + 100)
    c = copy.deepcopy(m)
    assert c(rl.zeros(2)).tolist() == [100.0, 101.0]


# ---- state dicts ----


def test_state_dict_shares_memory():
    net = Net()
    sd = net.state_dict()
    assert sd["scale"].data_ptr() == net.scale.data_ptr() and not sd["scale"].requires_grad
    assert net.state_dict(keep_vars=True)["scale"] is net.scale
    assert list(net.state_dict(prefix="p.")) == ["p." + k for k in sd]
    target = OrderedDict()
    assert net.state_dict(destination=target) is target and list(target) == list(sd)


def test_load_state_dict():
    a, b = Net(), Net()
    kept = a.scale
    result = a.load_state_dict(b.state_dict())
    assert repr(result) == "<All keys matched successfully>" and result.missing_keys == [] and a.scale is kept
    assert all(rl.equal(x, y) for x, y in zip(a.state_dict().values(), b.state_dict().values(), strict=True))
    sd = b.state_dict()
    sd["extra"] = rl.ones(1)
    del sd["a.bias"]
    result = a.load_state_dict(sd, strict=False)
    assert result.missing_keys == ["a.bias"] and result.unexpected_keys == ["extra"]


def test_load_errors_list_everything_and_change_nothing():
    net = Net()
    sd = Net().state_dict()
    del sd["a.bias"], sd["count"]
    sd["extra"] = sd["b.7.weight"] = rl.ones(1)
    sd["a.weight"] = rl.ones(5, 5)
    sd["scale"] = rl.full((1,), 99.0)
    with pytest.raises(RuntimeError) as e:
        net.load_state_dict(sd)
    size = "torch.Size" if "torch.Size" in str(e.value) else f"{type(rl.ones(1).shape).__module__}.Size"
    assert str(e.value).replace(size, "Size") == (
        'Error(s) in loading state_dict for Net:\n\tMissing key(s) in state_dict: "count", "a.bias". '
        '\n\tUnexpected key(s) in state_dict: "extra", "b.7.weight". '
        "\n\tsize mismatch for a.weight: copying a param with shape Size([5, 5]) from checkpoint, the shape in current model is Size([3, "
        "2]).")
    if rl.__name__ == "rushlight":
        assert net.scale.item() == 1
    with raises(TypeError, "Expected state_dict to be dict-like, got <class 'int'>."):
        net.load_state_dict(3)
    with pytest.raises(RuntimeError, match='While copying the parameter named "scale", expected torch.Tensor or Tensor-like object from '
                                           "checkpoint but received <class 'int'>"):
        net.load_state_dict({"scale": 3}, strict=False)


def test_load_with_assign():
    net, sd = Net(), Net().state_dict()
    net.load_state_dict(sd, assign=True)
    assert isinstance(net.scale, nn.Parameter) and net.scale.data_ptr() == sd["scale"].data_ptr() and net.scale.requires_grad
    assert net.count is sd["count"]


def test_load_scalar_from_one_element():
    m = nn.Module()
    m.p = nn.Parameter(rl.tensor(1.0))
    m.load_state_dict({"p": rl.tensor([3.0])})
    assert m.p.item() == 3


def test_extra_state():
    class Extra(nn.Module):
        def __init__(self):
            super().__init__()
            self.state = 1

        def get_extra_state(self):
            return {"state": self.state}

        def set_extra_state(self, state):
            self.state = state["state"]

    a, b = Extra(), Extra()
    a.state = 5
    assert list(a.state_dict()) == ["_extra_state"]
    b.load_state_dict(a.state_dict())
    assert b.state == 5
    assert b.load_state_dict({}, strict=False).missing_keys == ["_extra_state"]
    assert nn.Linear(1, 1).load_state_dict({"_extra_state": 1}, strict=False).unexpected_keys == ["_extra_state"]


def test_state_dict_hooks():
    net, log = Net(), []
    net.register_state_dict_pre_hook(lambda m, prefix, keep: log.append(("pre", prefix, keep)))
    net.register_state_dict_post_hook(lambda m, sd, prefix, meta: sd.pop("count") is None)
    with raises(RuntimeError, "state_dict post-hook must return None"):
        net.state_dict()
    net._state_dict_hooks.clear()
    net._register_state_dict_hook(lambda m, sd, prefix, meta: {"only": 1})
    assert net.state_dict() == {"only": 1} and log == [("pre", "", False)] * 2
    net = Net()
    net.register_load_state_dict_pre_hook(lambda m, sd, *rest: sd.update({"scale": rl.full((1,), 4.0)}))
    net.register_load_state_dict_post_hook(lambda m, keys: keys.missing_keys.clear())
    sd = net.state_dict()
    del sd["a.bias"]
    result = net.load_state_dict(sd)
    assert net.scale.item() == 4 and result.missing_keys == []


def test_overridden_loading_still_works():
    class Old(nn.Linear):
        def _load_from_state_dict(self, state_dict, prefix, *rest):
            if prefix + "w" in state_dict:
                state_dict[prefix + "weight"] = state_dict.pop(prefix + "w")
            super()._load_from_state_dict(state_dict, prefix, *rest)

    m = nn.Sequential(Old(2, 2))
    sd = m.state_dict()
    sd["0.w"] = rl.ones(2, 2)
    del sd["0.weight"]
    with pytest.raises(RuntimeError, match="Unexpected key"):
        nn.Sequential(nn.Linear(2, 2)).load_state_dict(sd)
    m.load_state_dict(sd)
    assert m[0].weight.tolist() == [[1.0, 1.0], [1.0, 1.0]]


# ---- printing, copying ----


def test_repr():
    assert repr(nn.Module()) == "Module()" and repr(nn.Linear(2, 3)) == "Linear(in_features=2, out_features=3, bias=True)"
    assert repr(Net()) == ("Net(\n  (a): Linear(in_features=2, out_features=3, bias=True)\n  (b): Sequential(\n    (0): ReLU()\n"
                           "    (1): Linear(in_features=3, out_features=1, bias=False)\n  )\n)")

    class Lines(nn.Module):
        def extra_repr(self):
            return "one\ntwo"

    assert repr(Lines()) == "Lines(\n  one\n  two\n)"


def test_deepcopy_and_pickle():
    net = Net()
    net.a.weight.requires_grad_(False)
    for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert all(rl.equal(x, y) for x, y in zip(net.state_dict().values(), other.state_dict().values(), strict=True))
        assert isinstance(other.a.weight, nn.Parameter) and not other.a.weight.requires_grad and other.scale.requires_grad
        assert other.scale.data_ptr() != net.scale.data_ptr() and repr(other) == repr(net)
        assert list(other.state_dict()) == list(net.state_dict())
    tied = nn.Module()
    tied.x = nn.Linear(1, 1)
    tied.y = tied.x
    assert (c := copy.deepcopy(tied)).x is c.y


def test_cycles_are_collected():
    m = nn.Module()
    m.me = [m]
    ref = weakref.ref(m)
    del m
    gc.collect()
    assert ref() is None


def test_parameter():
    p = nn.Parameter(rl.ones(2))
    assert isinstance(p, rl.Tensor) and p.requires_grad and p.is_leaf and type(p) is nn.Parameter
    assert type(p + 1) is rl.Tensor and type(p.detach()) is rl.Tensor and type(p.data) is rl.Tensor
    assert repr(p) == "Parameter containing:\ntensor([1., 1.], requires_grad=True)"
    assert nn.Parameter().shape == (0,) and not nn.Parameter(rl.ones(1), requires_grad=False).requires_grad
    base = rl.zeros(3)
    shared = nn.Parameter(base)
    base[0] = 5
    assert shared[0].item() == 5
    with raises(RuntimeError, "Only Tensors of floating point and complex dtype can require gradients"):
        nn.Parameter(rl.tensor([1]))
    assert nn.Parameter(rl.tensor([1]), requires_grad=False).dtype == rl.int64
    again = pickle.loads(pickle.dumps(p))
    assert type(again) is nn.Parameter and again.tolist() == [1.0, 1.0] and again.requires_grad
    assert type(copy.deepcopy(p)) is nn.Parameter


def test_parameter_of_a_subclass():
    class Mine(rl.Tensor):
        pass

    t = rl.ones(2).as_subclass(Mine)
    p = nn.Parameter(t)
    assert isinstance(p, nn.Parameter) and type(p) is Mine
    m = nn.Module()
    m.p = p
    assert list(m.parameters())[0] is p
    assert not isinstance(rl.ones(1), nn.Parameter)
