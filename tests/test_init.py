"""nn.init: values recorded from PyTorch 2.13 (avx2) for the same seed, bit for bit; and the default weights of layers."""
import re

import pytest
import rushlight as rl
from rushlight import nn
from rushlight.nn import init

VALUES = [
    ("uniform_(t, -2, 3)", (5, 20), [0.6746127009391785, -1.0059840679168701, 1.2960584163665771], 58.1349418759346),
    ("normal_(t, 1, 2)", (5, 20), [-0.6402690410614014, 1.7912623882293701, 2.7978169918060303], 64.97340327501297),
    ("trunc_normal_(t)", (5, 20), [-0.8201345205307007, 0.39563116431236267, 0.8989084959030151], -7.522630279767327),
    ("trunc_normal_(t, std=0.02)", (5, 20), [-0.01640268974006176, 0.007912622764706612, 0.01797816902399063], -0.35026597222167766),
    ("trunc_normal_(t, 0, 1, 2, 3)", (5, 20), [2.5349225997924805, 2.198803186416626, 2.6592116355895996], 232.20445704460144),
    ("xavier_uniform_(t)", (5, 20), [0.03421695902943611, -0.29511138796806335, 0.1559949666261673], 1.5941165757831186),
    ("xavier_normal_(t, gain=2)", (5, 20), [-0.4639381766319275, 0.22380279004573822, 0.5084994435310364], -9.907018056663219),
    ("kaiming_uniform_(t)", (5, 20), [0.0382557287812233, -0.32994458079338074, 0.17440767586231232], 1.7822764482116327),
    ("kaiming_normal_(t, mode='fan_out', nonlinearity='relu')", (5, 20), [-0.5186986327171326, 0.25021910667419434, 0.568519651889801],
     -11.07638257916551),
    ("kaiming_uniform_(t, a=0.3)", (4, 3, 2, 2), [0.04730505496263504, -0.407992422580719, 0.21566352248191833], 2.320228708907962),
    ("sparse_(t, 0.5)", (6, 4), [0.0, 0.003956311382353306, 0.008989084511995316], -0.006361178820952773),
    ("xavier_uniform_(t)", (4, 3, 2, 2), [0.03233198821544647, -0.2788540720939636, 0.14740139245986938], 1.58582653850317),
]
LAYERS = [
    ("nn.Linear(3, 2)", [-2.362100575119257, 0.5953234136104584]),
    ("nn.Linear(7, 5, bias=False)", [-2.827355094254017]),
    ("nn.Bilinear(2, 3, 4)", [-1.500392060726881, -1.045053243637085]),
    ("nn.Embedding(4, 3)", [1.7821228615939617]),
    ("nn.Embedding(4, 3, padding_idx=1)", [3.717917636036873]),
    ("nn.LayerNorm(4)", [4.0, 0.0]),
    ("nn.PReLU(2)", [0.5]),
    ("nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 2))",
     [-3.5324212424457073, -4.296118518337607, 1.179947018623352, -0.43087828159332275]),
]


@pytest.mark.parametrize("call, shape, first, total", VALUES, ids=[v[0] + str(v[1]) for v in VALUES])
def test_draws(call, shape, first, total):
    rl.manual_seed(7)
    t = rl.empty(shape)
    assert eval("init." + call, {"init": init, "t": t}) is t
    assert t.flatten()[:3].tolist() == first
    assert abs(t.double().sum().item() - total) < 1e-9


@pytest.mark.parametrize("make, sums", LAYERS, ids=[v[0] for v in LAYERS])
def test_default_weights(make, sums):
    rl.manual_seed(3)
    m = eval(make, {"nn": nn})
    got = [p.detach().double().sum().item() for p in m.parameters()]
    assert len(got) == len(sums) and all(abs(a - b) < 1e-12 * max(1, abs(b)) + 1e-13 for a, b in zip(got, sums, strict=True))


def test_generator():
    g = rl.Generator()
    g.manual_seed(7)
    assert init.uniform_(rl.empty(5, 20), -2, 3, generator=g)[0, 0].item() == VALUES[0][2][0]


def test_constants():
    p = nn.Parameter(rl.empty(3, 4))
    assert init.constant_(p, 2.5) is p and p.sum().item() == 30 and p.requires_grad and p.is_leaf
    assert init.ones_(p).sum().item() == 12 and init.zeros_(p).sum().item() == 0
    assert init.eye_(p).tolist() == [[1.0, 0, 0, 0], [0, 1.0, 0, 0], [0, 0, 1.0, 0]]
    d = init.dirac_(rl.empty(4, 2, 3), groups=2)
    assert d.nonzero().tolist() == [[0, 0, 1], [1, 1, 1], [2, 0, 1], [3, 1, 1]] and d.sum().item() == 4
    assert init.dirac_(rl.empty(2, 3, 3, 5)).nonzero().tolist() == [[0, 0, 1, 2], [1, 1, 1, 2]]
    assert init.dirac_(rl.empty(1, 2, 3, 3, 3)).nonzero().tolist() == [[0, 0, 1, 1, 1]]


@pytest.mark.parametrize("shape", [(4, 4), (6, 3), (3, 6), (4, 2, 3)])
def test_orthogonal(shape):
    rl.manual_seed(1)
    t = init.orthogonal_(rl.empty(shape), gain=2.0)
    m = t.reshape(shape[0], -1)
    m = m if m.shape[0] <= m.shape[1] else m.t()
    assert rl.allclose(m @ m.t(), 4 * rl.eye(m.shape[0]), atol=1e-5)


def test_orthogonal_is_the_recorded_one():
    rl.manual_seed(7)
    want = [[-0.0880767, 0.4716828, 0.5680907, -0.6686036],
            [0.9340302, -0.0852913, 0.3323752, 0.0991955],
            [-0.1911571, -0.8642861, 0.3907644, -0.2525305]]
    assert rl.allclose(init.orthogonal_(rl.empty(3, 4)), rl.tensor(want), atol=1e-6)


def test_gains_and_fans():
    assert [init.calculate_gain(n) for n in ("linear", "conv2d", "sigmoid", "tanh", "relu", "selu")] == [1, 1, 1, 5 / 3, 2**0.5, 0.75]
    assert init.calculate_gain("leaky_relu", 0.2) == (2 / (1 + 0.2**2)) ** 0.5
    assert init._calculate_fan_in_and_fan_out(rl.empty(4, 3, 2, 5)) == (30, 40)


def test_errors():
    for call, text in ((lambda: init.calculate_gain("foo"), "Unsupported nonlinearity foo"),
                       (lambda: init.calculate_gain("leaky_relu", True), "negative_slope True not a valid number"),
                       (lambda: init.xavier_uniform_(rl.empty(3)),
                        "Fan in and fan out can not be computed for tensor with fewer than 2 dimensions"),
                       (lambda: init.kaiming_normal_(rl.empty(3, 3), mode="x"), "Mode x not supported, please use one of ['fan_in', "
                                                                                "'fan_out']"),
                       (lambda: init.eye_(rl.empty(3)), "Only tensors with 2 dimensions are supported"),
                       (lambda: init.sparse_(rl.empty(3), 0.1), "Only tensors with 2 dimensions are supported"),
                       (lambda: init.dirac_(rl.empty(3)), "Only tensors with 3, 4, or 5 dimensions are supported"),
                       (lambda: init.dirac_(rl.empty(3, 2, 1), groups=2), "dim 0 must be divisible by groups"),
                       (lambda: init.orthogonal_(rl.empty(3)), "Only tensors with 2 or more dimensions are supported")):
        with pytest.raises(ValueError, match="^" + re.escape(text) + "$"):
            call()
    with pytest.warns(UserWarning, match="Initializing zero-element tensors is a no-op"):
        init.kaiming_uniform_(rl.empty(0, 3))
    with pytest.warns(UserWarning, match="mean is more than 2 std from"):
        init.trunc_normal_(rl.empty(3), mean=10)
    with pytest.warns(FutureWarning, match="`nn.init.uniform` is now deprecated in favor of `nn.init.uniform_`."):
        init.uniform(rl.empty(2))
