"""Learning rate schedules: rates recorded from PyTorch 2.13, bit for bit; state dicts, warnings, errors."""
import copy
import re
import warnings

import pytest
import rushlight as rl
from rushlight import nn, optim
from rushlight.optim import lr_scheduler as L

# (schedule, the first group's rates in ten steps, the second group's last rate, the first group's momentum at the end)
RATES = [
    ("L.LambdaLR(o, lambda e: 0.95 ** e)",
     [1.0, 0.95, 0.9025, 0.8573749999999999, 0.8145062499999999, 0.7737809374999998, 0.7350918906249998, 0.6983372960937497,
     0.6634204312890623, 0.6302494097246091], 0.1260498819449218, 0.9),
    ("L.MultiplicativeLR(o, lambda e: 0.9)",
     [1.0, 0.9, 0.81, 0.7290000000000001, 0.6561000000000001, 0.5904900000000002, 0.5314410000000002, 0.47829690000000014,
     0.43046721000000016, 0.38742048900000015], 0.07748409780000004, 0.9),
    ("L.StepLR(o, 3, 0.1)",
     [1.0, 1.0, 1.0, 0.1, 0.1, 0.1, 0.010000000000000002, 0.010000000000000002, 0.010000000000000002, 0.0010000000000000002],
     0.00020000000000000006, 0.9),
    ("L.MultiStepLR(o, [2, 5, 5], 0.5)",
     [1.0, 1.0, 0.5, 0.5, 0.5, 0.125, 0.125, 0.125, 0.125, 0.125], 0.025, 0.9),
    ("L.ConstantLR(o, 0.5, 4)",
     [0.5, 0.5, 0.5, 0.5, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0], 0.2, 0.9),
    ("L.LinearLR(o, 0.25, 0.9, 5)",
     [0.25, 0.38, 0.51, 0.64, 0.77, 0.9, 0.9, 0.9, 0.9, 0.9], 0.18, 0.9),
    ("L.ExponentialLR(o, 0.9)",
     [1.0, 0.9, 0.81, 0.7290000000000001, 0.6561000000000001, 0.5904900000000002, 0.5314410000000002, 0.47829690000000014,
     0.43046721000000016, 0.38742048900000015], 0.07748409780000004, 0.9),
    ("L.PolynomialLR(o, 5, 2.0)",
     [1.0, 0.6400000000000001, 0.36, 0.16000000000000003, 0.03999999999999999, 0.0, 0.0, 0.0, 0.0, 0.0], 0.0, 0.9),
    ("L.CosineAnnealingLR(o, 4, 0.01)",
     [1.0, 0.855017856687341, 0.505, 0.15498214331265903, 0.01, 0.15498214331265897, 0.5050000000000001, 0.8550178566873414,
     1.0000000000000004, 0.8550178566873415], 0.17217514421272212, 0.9),
    ("L.CosineAnnealingWarmRestarts(o, 3, 2, 0.01)",
     [1.0, 0.7525, 0.2575000000000001, 1.0, 0.9336825748732972, 0.7525, 0.505, 0.2575000000000001, 0.07631742512670284, 1.0], 0.2, 0.9),
    ("L.CyclicLR(o, 0.1, 0.5, 3, 2)",
     [0.1, 0.2333333333333333, 0.3666666666666666, 0.4999999999999999, 0.29999999999999993, 0.1, 0.23333333333333348, 0.3666666666666666,
     0.4999999999999999, 0.30000000000000016], 0.30000000000000016, 0.9),
    ("L.CyclicLR(o, 0.1, 0.5, 2, mode='triangular2')",
     [0.1, 0.30000000000000004, 0.5, 0.30000000000000004, 0.1, 0.2, 0.30000000000000004, 0.2, 0.1, 0.15000000000000002],
     0.15000000000000002, 0.875),
    ("L.CyclicLR(o, 0.1, 0.5, 2, mode='exp_range', gamma=0.9)",
     [0.1, 0.28, 0.42400000000000004, 0.24580000000000002, 0.1, 0.21809800000000001, 0.31257640000000003, 0.19565938000000002, 0.1,
     0.17748409780000002], 0.17748409780000002, 0.86513215599),
    ("L.OneCycleLR(o, 0.5, total_steps=10)",
     [0.020000000000000018, 0.26, 0.5, 0.47524231600673683, 0.40587282697488153, 0.30563101096814466, 0.19437098903185537,
     0.09412917302511849, 0.024759683993263143, 2e-06], 2e-06, 0.945048443395121),
    ("L.OneCycleLR(o, 0.5, epochs=5, steps_per_epoch=2, anneal_strategy='linear', three_phase=True)",
     [0.02, 0.26, 0.5, 0.26, 0.020000000000000018, 0.016000399999999998, 0.012000799999999999, 0.0080012, 0.0040015999999999975,
     1.9999999999985307e-06], 1.9999999999985307e-06, 0.95),
    ("L.SequentialLR(o, [L.ConstantLR(o, 0.1, 3), L.ExponentialLR(o, 0.9)], [3])",
     [0.1, 0.1, 0.1, 1.0, 0.9, 0.81, 0.7290000000000001, 0.6561000000000001, 0.5904900000000002, 0.5314410000000002], 0.10628820000000004,
     0.9),
    ("L.SequentialLR(o, [L.LinearLR(o, 0.1, total_iters=2), L.CosineAnnealingLR(o, 5), L.StepLR(o, 1)], [2, 6])",
     [0.1, 0.55, 1.0, 0.9045084971874737, 0.6545084971874737, 0.3454915028125263, 1.0, 0.1, 0.010000000000000002, 0.0010000000000000002],
     0.00020000000000000006, 0.9),
    ("L.ChainedScheduler([L.ConstantLR(o, 0.5, 3), L.ExponentialLR(o, 0.9)])",
     [0.5, 0.45, 0.405, 0.7290000000000001, 0.6561000000000001, 0.5904900000000002, 0.5314410000000002, 0.47829690000000014,
     0.43046721000000016, 0.38742048900000015], 0.07748409780000004, 0.9),
]


def raises(cls, text):
    return pytest.raises(cls, match="^" + re.escape(text) + "$")


def optimizer(lr=1.0, **options):
    return optim.SGD([{"params": [nn.Parameter(rl.ones(1))]}, {"params": [nn.Parameter(rl.ones(1))], "lr": 0.2}], lr=lr, momentum=0.9, **options)


def make(text, o):
    return eval(text, {"L": L, "o": o})


@pytest.mark.parametrize("text, rates, last, momentum", RATES, ids=[r[0] for r in RATES])
def test_rates(text, rates, last, momentum):
    o = optimizer()
    s, got = make(text, o), []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(10):
            got.append([g["lr"] for g in o.param_groups])
            assert s.get_last_lr() == got[-1]
            o.step()
            s.step()
    assert [g[0] for g in got] == rates and got[-1][1] == last and o.param_groups[0]["momentum"] == momentum


@pytest.mark.parametrize("text", [r[0] for r in RATES])
def test_resuming(text):
    o = optimizer()
    s = make(text, o)
    for _ in range(4):
        o.step()
        s.step()
    state, groups = copy.deepcopy(s.state_dict()), copy.deepcopy(o.state_dict())
    assert "optimizer" not in state
    other = optimizer()
    t = make(text, other)
    other.load_state_dict(groups)
    t.load_state_dict(state)
    for _ in range(4):
        for pair in ((o, s), (other, t)):
            pair[0].step()
            pair[1].step()
        assert [g["lr"] for g in o.param_groups] == [g["lr"] for g in other.param_groups]


def test_plateau():
    o = optimizer()
    s = L.ReduceLROnPlateau(o, patience=1, factor=0.5, cooldown=1, min_lr=[0.2, 0.1])
    got = []
    for metric in (1.0, 0.9, 0.9, 0.95, 0.9, 0.9, 0.9, 0.9, 0.1, 0.1):
        s.step(rl.tensor(metric))
        got.append(o.param_groups[0]["lr"])
    assert got == [1.0, 1.0, 1.0, 0.5, 0.5, 0.5, 0.25, 0.25, 0.25, 0.25] and s.get_last_lr() == [0.25, 0.1]
    t = L.ReduceLROnPlateau(optimizer(), mode="max", threshold_mode="abs", threshold=0.5, patience=0)
    for metric in (1, 1.6, 2.0):
        t.step(metric)
    assert t.best == 1.6 and t.num_bad_epochs == 0 and t.get_last_lr()[0] == 0.1
    t.load_state_dict(s.state_dict())
    assert t.best == s.best and t.mode == "min"
    for options, cls, text in (({"factor": 1.0}, ValueError, "Factor should be < 1.0."), ({"mode": "x"}, ValueError, "mode x is unknown!"),
                               ({"threshold_mode": "x"}, ValueError, "threshold mode x is unknown!"),
                               ({"min_lr": [1]}, ValueError, "expected 2 min_lrs, got 1")):
        with raises(cls, text):
            L.ReduceLROnPlateau(optimizer(), **options)


def test_rates_that_are_tensors_are_filled():
    lr = rl.tensor(1.0)
    o = optim.SGD([nn.Parameter(rl.ones(1))], lr=lr)
    s = L.ExponentialLR(o, 0.5)
    o.step()
    s.step()
    assert o.param_groups[0]["lr"] is lr and lr.item() == 0.5


def test_momentum_of_betas_moves():
    o = optim.Adam([nn.Parameter(rl.ones(1))], lr=0.1)
    s = L.OneCycleLR(o, 0.5, total_steps=5)
    assert o.param_groups[0]["betas"] == (0.95, 0.999)
    o.step()
    s.step()
    assert o.param_groups[0]["betas"][0] < 0.95
    L.CyclicLR(optim.Adagrad([nn.Parameter(rl.ones(1))]), 0.1, 0.5, cycle_momentum=False)
    with raises(ValueError, "optimizer must support momentum or beta1 with `cycle_momentum` option enabled"):
        L.CyclicLR(optim.Adagrad([nn.Parameter(rl.ones(1))]), 0.1, 0.5)


def test_order_of_steps_is_checked():
    o = optimizer()
    s = L.StepLR(o, 1)
    with pytest.warns(UserWarning, match=r"Detected call of `lr_scheduler.step\(\)` before `optimizer.step\(\)`"):
        s.step()
    with pytest.warns(UserWarning, match=r"please use `get_last_lr\(\)`"):
        s.get_lr()
    o = optimizer()
    s = L.StepLR(o, 1)
    with pytest.warns(UserWarning, match="The epoch parameter in `scheduler.step\\(\\)` was not necessary"):
        o.step()
        s.step(3)
    assert o.param_groups[0]["lr"] == 1.0 * 0.1**3


def test_continuing_from_an_epoch():
    with pytest.raises(KeyError, match="param 'initial_lr' is not specified in param_groups.0. when resuming scheduler with last_epoch >= 0"):
        L.StepLR(optimizer(), 1, last_epoch=3)
    o = optimizer()
    for g in o.param_groups:
        g["initial_lr"] = g["lr"]
    assert L.LambdaLR(o, lambda e: 1 / (1 + e), last_epoch=3).get_last_lr() == [0.2, 0.2 * 0.2]


def test_functions_with_state():
    class Decay:
        def __init__(self):
            self.rate = 0.5

        def __call__(self, epoch):
            return self.rate**epoch

    s = L.LambdaLR(optimizer(), [Decay(), lambda e: 1.0])
    state = s.state_dict()
    assert state["lr_lambdas"] == [{"rate": 0.5}, None]
    state["lr_lambdas"][0]["rate"] = 0.1
    s.load_state_dict(state)
    s.optimizer.step()
    s.step()
    assert s.get_last_lr() == [0.1, 0.2]


def test_errors():
    o = optimizer()
    for call, cls, text in ((lambda: L.StepLR(3, 1), TypeError, "int is not an Optimizer"),
                            (lambda: L.LambdaLR(o, [lambda e: 1]), ValueError, "Expected 2 lr_lambdas, but got 1"),
                            (lambda: L.MultiplicativeLR(o, 3), TypeError, "lr_lambda should be a function, but got int"),
                            (lambda: L.ConstantLR(o, 2.0), ValueError, "Constant multiplicative factor expected to be between 0 and 1."),
                            (lambda: L.LinearLR(o, 0.0), ValueError,
                             "Starting multiplicative factor expected to be greater than 0 and less or equal to 1."),
                            (lambda: L.LinearLR(o, 0.5, 2.0), ValueError, "Ending multiplicative factor expected to be between 0 and 1."),
                            (lambda: L.CosineAnnealingWarmRestarts(o, 0), ValueError, "Expected positive integer T_0, but got 0"),
                            (lambda: L.OneCycleLR(o, 0.5), ValueError,
                             "You must define either total_steps OR (epochs AND steps_per_epoch)"),
                            (lambda: L.OneCycleLR(o, 0.5, 10, pct_start=2), ValueError, "Expected float between 0 and 1 pct_start, but got 2"),
                            (lambda: L.OneCycleLR(o, 0.5, 10, anneal_strategy="x"), ValueError,
                             "anneal_strategy must be one of 'cos' or 'linear', instead got x"),
                            (lambda: L.CyclicLR(o, 0.1, [0.5]), ValueError,
                             "max_lr must have the same length as optimizer.param_groups. max_lr has 1 values, param_groups has 2."),
                            (lambda: L.CyclicLR(o, 0.1, 0.5, mode="x"), ValueError, "mode is invalid and scale_fn is None"),
                            (lambda: L.SequentialLR(o, [], []), ValueError, "SequentialLR expects at least one scheduler, but got no scheduler."),
                            (lambda: L.SequentialLR(o, [L.StepLR(o, 1)], [1]), ValueError,
                             "Sequential Schedulers expects number of schedulers provided to be one more than the number of milestone points, but "
                             "got number of schedulers 1 and the number of milestones to be equal to 1"),
                            (lambda: L.ChainedScheduler([]), ValueError,
                             "ChainedScheduler expects at least one scheduler to be chained, but got no scheduler.")):
        with raises(cls, text):
            call()
    s = L.OneCycleLR(o, 0.5, total_steps=2)
    o.step()
    s.step()
    s.step()
    with raises(ValueError, "Tried to step 3 times. The specified number of total steps is 2"):
        s.step()
