"""Optimizers: steps against independent NumPy formulas and recorded PyTorch 2.13 values, the kernel against the composed formula, state
dicts, groups, hooks; clipping and parameter vectors."""
import copy
import math
import pickle
import re
import warnings

import numpy as np
import pytest
import rushlight as rl
from rushlight import nn, optim
from rushlight.nn import utils
from rushlight.optim import optimizer as optimizer_file


def raises(cls, text):
    return pytest.raises(cls, match="^" + re.escape(text) + "$")


class Reference:
    """The textbook formulas in NumPy, one array at a time."""

    def __init__(self, kind, lr, **o):
        self.kind, self.lr, self.o, self.t, self.s = kind, lr, o, 0, {}

    def step(self, p, g):
        o, s = self.o, self.s
        self.t += 1
        g = -g if o.get("maximize") else g
        decay = o.get("weight_decay", 0)
        if self.kind == "AdamW":
            p = p * (1 - self.lr * decay)
        else:
            g = g + decay * p
        return getattr(self, self.kind.lower())(p, g, o, s)

    def sgd(self, p, g, o, s):
        mu = o.get("momentum", 0)
        if mu:
            s["b"] = g if "b" not in s else mu * s["b"] + (1 - o.get("dampening", 0)) * g
            g = g + mu * s["b"] if o.get("nesterov") else s["b"]
        return p - self.lr * g

    def adam(self, p, g, o, s):
        b1, b2 = o.get("betas", (0.9, 0.999))
        s["m"] = b1 * s.get("m", 0) + (1 - b1) * g
        s["v"] = b2 * s.get("v", 0) + (1 - b2) * g * g
        s["top"] = np.maximum(s.get("top", 0), s["v"])
        v = s["top"] if o.get("amsgrad") else s["v"]
        return p - self.lr / (1 - b1**self.t) * s["m"] / (np.sqrt(v / (1 - b2**self.t)) + 1e-8)

    adamw = adam

    def rmsprop(self, p, g, o, s):
        a = o.get("alpha", 0.99)
        s["v"] = a * s.get("v", 0) + (1 - a) * g * g
        s["m"] = a * s.get("m", 0) + (1 - a) * g
        step = g / (np.sqrt(s["v"] - s["m"] ** 2 if o.get("centered") else s["v"]) + 1e-8)
        s["b"] = o.get("momentum", 0) * s.get("b", 0) + step
        return p - self.lr * s["b"]

    def adagrad(self, p, g, o, s):
        s["sum"] = s.get("sum", o.get("initial_accumulator_value", 0)) + g * g
        return p - self.lr / (1 + (self.t - 1) * o.get("lr_decay", 0)) * g / (np.sqrt(s["sum"]) + 1e-10)


CASES = [("SGD", {}), ("SGD", {"weight_decay": 0.1}), ("SGD", {"momentum": 0.9}), ("SGD", {"momentum": 0.9, "nesterov": True}),
         ("SGD", {"momentum": 0.9, "dampening": 0.5, "maximize": True}), ("Adam", {}), ("Adam", {"weight_decay": 0.1, "amsgrad": True}),
         ("Adam", {"betas": (0.5, 0.7), "maximize": True}), ("AdamW", {"weight_decay": 0.1}), ("AdamW", {"weight_decay": 0.1, "amsgrad": True}),
         ("RMSprop", {}), ("RMSprop", {"centered": True, "momentum": 0.5}), ("RMSprop", {"alpha": 0.5, "weight_decay": 0.1, "maximize": True}),
         ("Adagrad", {}), ("Adagrad", {"lr_decay": 0.1, "weight_decay": 0.1, "initial_accumulator_value": 0.5})]


def parameters(dtype=rl.float64):
    rl.manual_seed(2)
    return [nn.Parameter(rl.randn(shape).to(dtype)) for shape in ((5, 7), (3,), ())]


def array(t):
    return np.array(t.detach().double().tolist())


@pytest.mark.parametrize("name, options", CASES, ids=[f"{n}{o}" for n, o in CASES])
def test_formula(name, options):
    ps = parameters()
    want, refs = [array(p) for p in ps], [Reference(name, 0.1, **options) for _ in ps]
    o = getattr(optim, name)(ps, lr=0.1, **options)
    for i in range(6):
        for k, p in enumerate(ps):
            if (i, k) == (2, 1):  # a parameter that sits a step out
                p.grad = None
                continue
            p.grad = rl.randn(p.shape, dtype=rl.float64)
            want[k] = refs[k].step(want[k], array(p.grad))
        o.step()
    for p, w in zip(ps, want, strict=True):
        np.testing.assert_allclose(array(p), w, rtol=1e-9, atol=1e-9)
        assert p.requires_grad and p.is_leaf


@pytest.mark.parametrize("name, options", CASES, ids=[f"{n}{o}" for n, o in CASES])
@pytest.mark.parametrize("how", ["differentiable", "transposed"])
def test_composed_formula_equals_the_kernel(name, options, how):
    """What the kernel does not take: differentiable steps, and gradients whose layout is not the parameter's."""
    grads = [rl.randn(4, 6, dtype=rl.float64) for _ in range(4)]

    def run(special):
        p = rl.arange(24.0, dtype=rl.float64).view(4, 6).clone()
        if special == "differentiable":
            p.requires_grad_()
            p = p * 1
            o = getattr(optim, name)([p], lr=0.1, differentiable=True, **options)
        else:
            p = nn.Parameter(p)
            o = getattr(optim, name)([p], lr=0.1, **options)
        for g in grads:
            p.grad = None
            if special == "differentiable":
                p.retain_grad()
            p.grad = g.t().contiguous().t() if special == "transposed" else g.clone()
            o.step()
        return array(p), {k: array(v) if isinstance(v, rl.Tensor) else v for k, v in o.state[p].items()}

    if how == "differentiable" and options.get("maximize"):
        return
    (p, state), (q, other) = run(how), run("")
    # A differentiable Adam counts its steps in float32, where 1 - 0.999^t keeps about four digits.
    atol = 0.1 * 4 * 1e-4 if how == "differentiable" and name.startswith("Adam") else 0
    np.testing.assert_allclose(p, q, rtol=1e-9, atol=atol)
    assert list(state) == list(other)
    for k in state:
        np.testing.assert_allclose(state[k], other[k], rtol=1e-9, atol=atol)


def run_one(make, steps):
    p = nn.Parameter(rl.tensor(1.0, dtype=rl.float64))
    o = make([p])
    for _ in range(steps):
        p.grad = rl.tensor(0.5, dtype=rl.float64)
        o.step()
    return p.item()


def test_recorded_values():
    """p = 1, g = 0.5, lr = 0.1 in float64."""
    for make, steps, want in ((lambda p: optim.SGD(p, 0.1, weight_decay=0.1), 1, 0.94), (lambda p: optim.SGD(p, 0.1, momentum=0.9), 3, 0.7195),
                              (lambda p: optim.SGD(p, 0.1, momentum=0.9, nesterov=True), 3, 0.59755),
                              (lambda p: optim.SGD(p, 0.1, momentum=0.9, dampening=0.5), 3, 0.792),
                              (lambda p: optim.Adam(p, 0.1, weight_decay=0.1), 3, 0.7001745748),
                              (lambda p: optim.AdamW(p, 0.1, weight_decay=0.1), 3, 0.6732890059),
                              (lambda p: optim.RMSprop(p, 0.1), 1, 1.9999996e-7), (lambda p: optim.RMSprop(p, 0.1, centered=True), 3, -1.3101419640),
                              (lambda p: optim.Adagrad(p, 0.1), 3, 0.7715542950)):
        assert abs(run_one(make, steps) - want) < 1e-9


@pytest.mark.parametrize("dtype", [rl.float32, rl.float16, rl.bfloat16])
def test_other_dtypes_follow_float64(dtype):
    for name in ("SGD", "Adam", "RMSprop", "Adagrad"):
        ends = []
        for d in (dtype, rl.float64):
            ps = parameters(rl.float64)
            ps = [nn.Parameter(p.detach().to(d)) for p in ps]
            o = getattr(optim, name)(ps, lr=0.01)
            rl.manual_seed(1)
            for _ in range(3):
                for p in ps:
                    p.grad = rl.randn(p.shape, dtype=rl.float64).to(d)
                o.step()
            assert all(v.dtype == d for s in o.state.values() for k, v in s.items() if k != "step")
            ends.append(np.concatenate([array(p).ravel() for p in ps]))
        np.testing.assert_allclose(ends[0], ends[1], atol=1e-5 if dtype == rl.float32 else 0.05)


def test_mixed_dtypes_in_one_group():
    ps = [nn.Parameter(rl.ones(3)), nn.Parameter(rl.ones(2, dtype=rl.float64))]
    o = optim.SGD(ps, lr=0.5, momentum=0.9)
    for p in ps:
        p.grad = rl.ones_like(p)
    o.step()
    ps[1].grad = None
    o.step()
    assert ps[0].tolist() == [0.5 - 0.5 * np.float32(1.9)] * 3 or abs(ps[0][0].item() + 0.45) < 1e-6
    assert ps[1].tolist() == [0.5, 0.5]


def test_tensor_learning_rate():
    p = nn.Parameter(rl.ones(2))
    lr = rl.tensor(0.5)
    o = optim.SGD([p], lr=lr)
    p.grad = rl.ones(2)
    o.step()
    assert p.tolist() == [0.5, 0.5] and o.param_groups[0]["lr"] is lr
    lr.fill_(0.25)
    o.step()
    assert p.tolist() == [0.25, 0.25]
    with raises(ValueError, "Tensor lr must be 1-element"):
        optim.Adam([p], lr=rl.ones(2))


def test_a_step_bumps_versions():
    p = nn.Parameter(rl.ones(2))
    y = (p * p).sum()
    p.grad = rl.ones(2)
    optim.SGD([p], lr=0.1).step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


# ---- the base class ----


def test_state_dict_has_pytorchs_form():
    a, b, c = (nn.Parameter(rl.ones(2)) for _ in range(3))
    o = optim.Adam([{"params": [a]}, {"params": [b, c], "lr": 0.5}])
    a.grad = c.grad = rl.ones(2)
    o.step()
    sd = o.state_dict()
    assert list(sd) == ["state", "param_groups"] and list(sd["state"]) == [0, 2]
    assert [g["params"] for g in sd["param_groups"]] == [[0], [1, 2]] and sd["param_groups"][1]["lr"] == 0.5
    assert list(sd["param_groups"][0]) == ["lr", "betas", "eps", "weight_decay", "amsgrad", "maximize", "foreach", "capturable", "differentiable",
                                           "fused", "decoupled_weight_decay", "params"]
    step = sd["state"][0]["step"]
    assert step.dtype == rl.float32 and step.shape == () and step.item() == 1 and list(sd["state"][0]) == ["step", "exp_avg", "exp_avg_sq"]
    for name, keys in (("SGD", "lr momentum dampening weight_decay nesterov maximize foreach differentiable fused params"),
                       ("RMSprop", "lr momentum alpha eps centered weight_decay capturable foreach maximize differentiable params"),
                       ("Adagrad", "lr lr_decay eps weight_decay initial_accumulator_value foreach maximize differentiable fused params")):
        assert list(getattr(optim, name)([a]).state_dict()["param_groups"][0]) == keys.split()


@pytest.mark.parametrize("name, options", CASES, ids=[f"{n}{o}" for n, o in CASES])
def test_resuming_equals_going_on(name, options):
    def make():
        ps = parameters(rl.float32)
        return ps, getattr(optim, name)(ps, lr=0.1, **options)

    def go(ps, o, n):
        for _ in range(n):
            for p in ps:
                p.grad = rl.cos(p.detach() * 3)
            o.step()

    ps, o = make()
    go(ps, o, 2)
    sd = pickle.loads(pickle.dumps(o.state_dict()))
    qs, other = make()
    with rl.no_grad():
        for q, p in zip(qs, ps, strict=True):
            q.copy_(p)
    other.load_state_dict(sd)
    copied = copy.deepcopy(o)
    go(ps, o, 3)
    go(qs, other, 3)
    assert all(rl.equal(p, q) for p, q in zip(ps, qs, strict=True)) and len(copied.param_groups[0]["params"]) == 3


def test_loading_casts_state_but_not_step():
    p = nn.Parameter(rl.ones(2))
    o = optim.Adam([p])
    p.grad = rl.ones(2)
    o.step()
    q = nn.Parameter(rl.ones(2, dtype=rl.float64))
    other = optim.Adam([q])
    other.load_state_dict(o.state_dict())
    assert other.state[q]["exp_avg"].dtype == rl.float64 and other.state[q]["step"].dtype == rl.float32
    with raises(ValueError, "loaded state dict has a different number of parameter groups"):
        optim.Adam([{"params": [p]}, {"params": [q]}]).load_state_dict(o.state_dict())
    with raises(ValueError, "loaded state dict contains a parameter group that doesn't match the size of optimizer's group"):
        optim.Adam([p, q]).load_state_dict(o.state_dict())


def test_old_state_with_a_number_as_step():
    p = nn.Parameter(rl.ones(2))
    o = optim.Adam([p])
    p.grad = rl.ones(2)
    o.step()
    sd = o.state_dict()
    sd["state"][0]["step"] = 1
    del sd["param_groups"][0]["amsgrad"], sd["param_groups"][0]["decoupled_weight_decay"]
    other = optim.Adam([p])
    other.load_state_dict(sd)
    other.step()
    assert other.state[p]["step"].item() == 2


def test_groups():
    a, b = nn.Parameter(rl.ones(1)), nn.Parameter(rl.ones(1))
    o = optim.SGD([{"params": a, "lr": 1.0}], lr=0.1)
    o.add_param_group({"params": [b]})
    a.grad = b.grad = rl.ones(1)
    o.step()
    assert a.item() == 0 and abs(b.item() - 0.9) < 1e-6
    named = optim.SGD([("first", a), ("second", b)], lr=0.1)
    assert named.param_groups[0]["param_names"] == ["first", "second"] and named.state_dict()["param_groups"][0]["params"] == [0, 1]
    assert optim.SGD(nn.Sequential(nn.ReLU(), nn.Linear(1, 1)).parameters(), lr=0.1).param_groups[0]["params"][0].shape == (1, 1)


def test_group_errors():
    p = nn.Parameter(rl.ones(1))
    for call, cls, text in ((lambda: optim.SGD([], lr=0.1), ValueError, "optimizer got an empty parameter list"),
                            (lambda: optim.SGD([{"params": {p}}], lr=0.1), TypeError,
                             "optimizer parameters need to be organized in ordered collections, but the ordering of tensors in sets will change "
                             "between runs. Please use a list instead."),
                            (lambda: optim.SGD([3], lr=0.1), TypeError, "optimizer can only optimize Tensors, but one of the params is int"),
                            (lambda: optim.SGD([p * 1], lr=0.1), ValueError, "can't optimize a non-leaf Tensor"),
                            (lambda: optim.SGD([{"params": [p]}, {"params": [p]}], lr=0.1), ValueError,
                             "some parameters appear in more than one parameter group"),
                            (lambda: optim.SGD([p], lr=0.1).add_param_group([p]), TypeError, "param_group must be a dict, but got <class 'list'>"),
                            (lambda: optim.SGD([p], lr=-1), ValueError, "Invalid learning rate: -1"),
                            (lambda: optim.SGD([p], momentum=-1), ValueError, "Invalid momentum value: -1"),
                            (lambda: optim.SGD([p], nesterov=True), ValueError, "Nesterov momentum requires a momentum and zero dampening"),
                            (lambda: optim.Adam([p], betas=(1.0, 0.9)), ValueError, "Invalid beta parameter at index 0: 1.0"),
                            (lambda: optim.Adam([p], betas=(0.5, 1)), ValueError, "Invalid beta parameter at index 1: 1"),
                            (lambda: optim.Adam([p], betas=(0, 0.5)), ValueError, "betas must be either both floats or both Tensors"),
                            (lambda: optim.Adam([p], eps=-1), ValueError, "Invalid epsilon value: -1"),
                            (lambda: optim.RMSprop([p], alpha=-1), ValueError, "Invalid alpha value: -1"),
                            (lambda: optim.Adagrad([p], lr_decay=-1), ValueError, "Invalid lr_decay value: -1"),
                            (lambda: optim.SGD([p], fused=True, foreach=True), RuntimeError, "`fused` and `foreach` cannot be `True` together.")):
        with raises(cls, text):
            call()
    with pytest.raises(TypeError, match="params argument given to the optimizer should be an iterable of Tensors or dicts, but got .*FloatTensor"):
        optim.SGD(rl.ones(1), lr=0.1)
    with pytest.warns(UserWarning, match="optimizer contains a parameter group with duplicate parameters"):
        optim.SGD([p, p], lr=0.1)


def test_repr():
    p = nn.Parameter(rl.ones(1))
    assert repr(optim.SGD([{"params": [p]}, {"params": [], "lr": 1}], lr=0.1)) == (
        "SGD (\nParameter Group 0\n    dampening: 0\n    differentiable: False\n    foreach: None\n    fused: None\n    lr: 0.1\n"
        "    maximize: False\n    momentum: 0\n    nesterov: False\n    weight_decay: 0\n\nParameter Group 1\n    dampening: 0\n"
        "    differentiable: False\n    foreach: None\n    fused: None\n    lr: 1\n    maximize: False\n    momentum: 0\n    nesterov: False\n"
        "    weight_decay: 0\n)")


def test_zero_grad_and_closure():
    p = nn.Parameter(rl.ones(2))
    o = optim.SGD([p], lr=0.1)

    def closure():
        o.zero_grad()
        loss = (p * p).sum()
        loss.backward()
        return loss

    with rl.no_grad():
        assert o.step(closure).item() == 2
    assert rl.allclose(p, rl.full((2,), 0.8))
    o.zero_grad(set_to_none=False)
    assert p.grad.tolist() == [0.0, 0.0]
    o.zero_grad()
    assert p.grad is None


def test_hooks():
    p, log = nn.Parameter(rl.ones(1)), []
    o = optim.SGD([p], lr=0.5)
    p.grad = rl.ones(1)
    handles = [o.register_step_pre_hook(lambda opt, args, kwargs: log.append(("pre", opt is o, len(args)))),
               o.register_step_post_hook(lambda opt, args, kwargs: log.append(("post", p.item()))),
               optimizer_file.register_optimizer_step_pre_hook(lambda *a: log.append("global pre")),
               optimizer_file.register_optimizer_step_post_hook(lambda *a: log.append("global post"))]
    o.step()
    assert log == ["global pre", ("pre", True, 1), ("post", 0.5), "global post"]
    for h in handles:
        h.remove()
    o.step()
    assert len(log) == 4
    o.register_state_dict_post_hook(lambda opt, sd: sd.update(extra=1))
    assert o.state_dict()["extra"] == 1
    o.register_load_state_dict_pre_hook(lambda opt, sd: {**sd, "param_groups": [{**sd["param_groups"][0], "lr": 9.0}]})
    o.load_state_dict(o.state_dict())
    assert o.param_groups[0]["lr"] == 9.0


def test_an_optimizer_of_ones_own():
    class Halve(optim.Optimizer):
        def __init__(self, params):
            super().__init__(params, {"factor": 0.5})

        @rl.no_grad()
        def step(self, closure=None):
            for group in self.param_groups:
                for p in group["params"]:
                    p.mul_(group["factor"])
                    self.state[p]["seen"] = self.state[p].get("seen", 0) + 1

    p, log = nn.Parameter(rl.ones(1)), []
    o = Halve([p])
    o.register_step_post_hook(lambda *a: log.append(1))
    o.step()
    assert p.item() == 0.5 and log == [1] and o.state_dict()["state"] == {0: {"seen": 1}}


def test_training_learns():
    rl.manual_seed(0)
    x = rl.randn(64, 2)
    y = (x[:, :1] * 2 - x[:, 1:] + 1)
    for make in (lambda p: optim.SGD(p, lr=0.1, momentum=0.9), lambda p: optim.Adam(p, lr=0.05), lambda p: optim.AdamW(p, lr=0.05),
                 lambda p: optim.RMSprop(p, lr=0.01), lambda p: optim.Adagrad(p, lr=0.5)):
        m = nn.Linear(2, 1)
        o = make(m.parameters())
        for _ in range(200):
            o.zero_grad()
            loss = nn.functional.mse_loss(m(x), y)
            loss.backward()
            o.step()
        assert loss.item() < 0.01


# ---- clipping, vectors ----


def with_grads(*values):
    ps = [nn.Parameter(rl.zeros(len(v))) for v in values]
    for p, v in zip(ps, values, strict=True):
        p.grad = rl.tensor(v)
    return ps


def test_clip_grad_norm():
    ps = with_grads([3.0], [4.0, 0.0])
    ps.append(nn.Parameter(rl.ones(1)))
    total = utils.clip_grad_norm_(ps, 1.0)
    assert total.item() == 5 and total.dtype == rl.float32 and total.shape == ()
    assert abs(ps[0].grad.item() - 0.6) < 1e-5 and abs(ps[1].grad[0].item() - 0.8) < 1e-5
    ps = with_grads([3.0], [4.0, 0.0])
    assert utils.clip_grad_norm_(ps, 10.0).item() == 5 and ps[0].grad.item() == 3
    assert utils.clip_grad_norm_(ps, 1e9, norm_type=1).item() == 7 and utils.clip_grad_norm_(ps, 1e9, norm_type=math.inf).item() == 4
    assert utils.clip_grad_norm_(iter(ps), 1e9).item() == 5 and utils.clip_grad_norm_(ps[0], 1e9).item() == 3
    assert utils.clip_grad_norm_([nn.Parameter(rl.ones(1))], 1.0).item() == 0


def test_clip_grad_norm_of_large_and_bad_gradients():
    ps = with_grads([1e20, 1e20])
    total = utils.clip_grad_norm_(ps, 1.0).item()
    if rl.__name__ == "rushlight":
        assert abs(total / (2**0.5 * 1e20) - 1) < 1e-6 and abs(ps[0].grad[0].item() - 0.5**0.5) < 1e-5
        with raises(ValueError, "max_norm must not be negative, but got -1.0"):
            utils.clip_grad_norm_(ps, -1)
    ps = with_grads([float("inf"), 1.0])
    with pytest.raises(RuntimeError, match="The total norm of order 2.0 for gradients from `parameters` is non-finite, so it cannot be clipped"):
        utils.clip_grad_norm_(ps, 1.0, error_if_nonfinite=True)
    assert ps[0].grad[1].item() == 1
    assert math.isinf(utils.clip_grad_norm_(ps, 1.0).item()) and ps[0].grad[1].item() == 0


def test_clip_grad_norm_of_what_the_kernel_does_not_take():
    ps = [nn.Parameter(rl.zeros(2, 2)), nn.Parameter(rl.zeros(1, dtype=rl.float64))]
    ps[0].grad, ps[1].grad = rl.tensor([[3.0, 0.0], [0.0, 0.0]]), rl.tensor([4.0], dtype=rl.float64)
    assert abs(utils.clip_grad_norm_(ps, 1.0).item() - 5) < 1e-6 and abs(ps[0].grad[0, 0].item() - 0.6) < 1e-5
    assert abs(ps[1].grad.item() - 0.8) < 1e-5


def test_other_clipping():
    ps = with_grads([3.0, -3.0])
    utils.clip_grad_value_(ps, 1.0)
    assert ps[0].grad.tolist() == [1.0, -1.0]
    assert abs(utils.get_total_norm([rl.tensor([3.0]), rl.tensor([4.0])]).item() - 5) < 1e-6 and utils.get_total_norm([]).item() == 0
    ps = with_grads([3.0], [4.0])
    utils.clip_grads_with_norm_(ps, 1.0, rl.tensor(5.0))
    assert abs(ps[0].grad.item() - 0.6) < 1e-5
    with pytest.warns(FutureWarning, match="clip_grad_norm` is now deprecated"):
        utils.clip_grad_norm(ps, 1.0)


def test_parameters_as_a_vector():
    m = nn.Linear(2, 3)
    v = utils.parameters_to_vector(m.parameters())
    assert v.shape == (9,) and v.requires_grad
    utils.vector_to_parameters(rl.arange(9.0), m.parameters())
    assert m.weight.tolist() == [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]] and m.bias.tolist() == [6.0, 7.0, 8.0]
    with raises(TypeError, "expected torch.Tensor, but got: int"):
        utils.vector_to_parameters(3, m.parameters())


def test_warnings_are_errors_nowhere_here():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optim.Adam(parameters()).step()
