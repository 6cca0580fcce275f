"""Layers, activations, losses and containers: values against NumPy, printed forms and errors against recorded PyTorch 2.13."""
import copy
import math
import re
import warnings

import numpy as np
import pytest
import rushlight as rl
from rushlight import nn
from rushlight.nn import functional as F
from scipy import special


def raises(cls, text):
    return pytest.raises(cls, match="^" + re.escape(text) + "$")


def close(got, want, tol=1e-6):
    np.testing.assert_allclose(np.asarray(got.detach().tolist()), want, rtol=tol, atol=tol)


X = np.array([[-3.0, -1.0, -0.4, 0.0, 0.3, 1.0, 2.5, 7.0], [0.2, -0.7, 5.0, -6.5, 1.5, -2.0, 0.6, -0.1]])
x64 = rl.tensor(X.tolist(), dtype=rl.float64)


def sigmoid(x):
    return special.expit(x)


def softplus(x):
    return np.logaddexp(0, x)


ALPHA, SCALE = 1.6732632423543772, 1.0507009873554805
ACTIVATIONS = [
    (nn.ReLU(), lambda x: np.maximum(x, 0), "ReLU()"),
    (nn.ReLU6(), lambda x: np.clip(x, 0, 6), "ReLU6()"),
    (nn.LeakyReLU(0.2), lambda x: np.where(x > 0, x, 0.2 * x), "LeakyReLU(negative_slope=0.2)"),
    (nn.ELU(1.5), lambda x: np.where(x > 0, x, 1.5 * np.expm1(x)), "ELU(alpha=1.5)"),
    (nn.SELU(), lambda x: SCALE * np.where(x > 0, x, ALPHA * np.expm1(x)), "SELU()"),
    (nn.CELU(1.5), lambda x: np.maximum(x, 0) + np.minimum(0, 1.5 * np.expm1(x / 1.5)), "CELU(alpha=1.5)"),
    (nn.GELU(), lambda x: x * special.ndtr(x), "GELU(approximate='none')"),
    (nn.GELU("tanh"), lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))), "GELU(approximate='tanh')"),
    (nn.SiLU(), lambda x: x * sigmoid(x), "SiLU()"),
    (nn.Mish(), lambda x: x * np.tanh(softplus(x)), "Mish()"),
    (nn.Softplus(2.0), lambda x: softplus(2 * x) / 2, "Softplus(beta=2.0, threshold=20.0)"),
    (nn.Softsign(), lambda x: x / (1 + abs(x)), "Softsign()"),
    (nn.Tanh(), np.tanh, "Tanh()"),
    (nn.Sigmoid(), sigmoid, "Sigmoid()"),
    (nn.LogSigmoid(), lambda x: -softplus(-x), "LogSigmoid()"),
    (nn.Hardtanh(-2, 1), lambda x: np.clip(x, -2, 1), "Hardtanh(min_val=-2, max_val=1)"),
    (nn.Hardsigmoid(), lambda x: np.clip(x / 6 + 0.5, 0, 1), "Hardsigmoid()"),
    (nn.Hardswish(), lambda x: x * np.clip(x / 6 + 0.5, 0, 1), "Hardswish()"),
    (nn.Hardshrink(0.5), lambda x: np.where(abs(x) > 0.5, x, 0), "Hardshrink(0.5)"),
    (nn.Softshrink(0.5), lambda x: np.sign(x) * np.maximum(abs(x) - 0.5, 0), "Softshrink(0.5)"),
    (nn.Tanhshrink(), lambda x: x - np.tanh(x), "Tanhshrink()"),
    (nn.Threshold(0.1, 20), lambda x: np.where(x > 0.1, x, 20), "Threshold(threshold=0.1, value=20)"),
    (nn.Softmax(dim=-1), lambda x: special.softmax(x, -1), "Softmax(dim=-1)"),
    (nn.Softmin(dim=0), lambda x: special.softmax(-x, 0), "Softmin(dim=0)"),
    (nn.LogSoftmax(dim=1), lambda x: special.log_softmax(x, 1), "LogSoftmax(dim=1)"),
    (nn.GLU(), lambda x: x[:, :4] * sigmoid(x[:, 4:]), "GLU(dim=-1)"),
    (nn.RReLU(0.1, 0.3).eval(), lambda x: np.where(x >= 0, x, 0.2 * x), "RReLU(lower=0.1, upper=0.3)"),
    (nn.PReLU(), lambda x: np.where(x > 0, x, 0.25 * x), "PReLU(num_parameters=1)"),
    (nn.Identity(1, a=2), lambda x: x, "Identity()"),
    (nn.Flatten(0), lambda x: x.reshape(-1), "Flatten(start_dim=0, end_dim=-1)"),
    (nn.Unflatten(1, (2, -1)), lambda x: x.reshape(2, 2, 4), "Unflatten(dim=1, unflattened_size=(2, -1))"),
]


@pytest.mark.parametrize("module, formula, text", ACTIVATIONS, ids=[t for _, _, t in ACTIVATIONS])
def test_activation(module, formula, text):
    module = copy.deepcopy(module).double()
    close(module(x64), formula(X), 1e-9)
    assert repr(module) == text
    with rl.no_grad():
        close(module.float()(rl.tensor(X.tolist())), formula(X.astype(np.float32)), 3e-6)


@pytest.mark.parametrize("make", [nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.SELU, nn.CELU, nn.SiLU, nn.Mish, nn.Hardsigmoid, nn.Hardswish,
                                  nn.Hardtanh])
def test_in_place_activation(make):
    x = rl.tensor(X.tolist())
    want = make()(x)
    assert make(inplace=True)(x) is x and rl.equal(x, want)


def test_softmax_without_dim_warns():
    with pytest.warns(UserWarning, match="Implicit dimension choice for softmax has been deprecated"):
        close(nn.Softmax()(x64), special.softmax(X, 1))
    image = rl.arange(24.0).view(1, 4, 2, 3)
    close(nn.Softmax2d()(image).sum(1), np.ones((1, 2, 3)))
    with raises(ValueError, "Softmax2d: expected input to be 3D or 4D, got 2D instead"):
        nn.Softmax2d()(x64)


def test_prelu_of_channels():
    m = nn.PReLU(8, init=0.5).double()
    with rl.no_grad():
        m.weight.copy_(rl.arange(8.0) / 10)
    close(m(x64), np.where(X > 0, X, X * np.arange(8) / 10))
    m(x64).sum().backward()
    close(m.weight.grad, np.where(X > 0, 0, X).sum(0))


def test_errors_of_options():
    for call, cls, text in (
            (lambda: nn.Hardtanh(1, -1), AssertionError, "max_val (-1) must be greater than min_val (1)"),
            (lambda: F.hardtanh(x64, 1, -1), ValueError, "min_val cannot be greater than max_val"),
            (lambda: nn.Dropout(1.5), ValueError, "dropout probability has to be between 0 and 1, but got 1.5"),
            (lambda: F.dropout(x64, -0.5), ValueError, "dropout probability has to be between 0 and 1, but got -0.5"),
            (lambda: nn.Bilinear(0, 1, 1), ValueError, "in1_features must be > 0, but got (in1_features=0)"),
            (lambda: nn.Unflatten(1, (2, "a")), TypeError, "unflattened_size must be tuple of ints, but found element of type str at pos "
                                                           "1"),
            (lambda: nn.Unflatten(1, 3), TypeError, "unflattened_size must be a tuple of ints, but found type int"),
            (lambda: nn.TripletMarginLoss(margin=0), ValueError, "TripletMarginLoss: expected margin to be greater than 0, got 0 instead"),
            (lambda: nn.MultiMarginLoss(p=3), ValueError, "only p == 1 and p == 2 supported"),
            (lambda: F.mse_loss(x64, x64, reduction="total"), ValueError, "total is not a valid value for reduction"),
            (lambda: nn.Embedding(3, 2, padding_idx=3), AssertionError, "Padding_idx must be within num_embeddings")):
        with raises(cls, text):
            call()


# ---- linear layers ----


def test_linear():
    m = nn.Linear(3, 2).double()
    x = rl.randn(4, 3, dtype=rl.float64, requires_grad=True)
    y = m(x)
    w, b = np.array(m.weight.tolist()), np.array(m.bias.tolist())
    close(y, np.array(x.tolist()) @ w.T + b)
    y.sum().backward()
    close(m.bias.grad, [4, 4])
    close(m.weight.grad, np.tile(np.array(x.tolist()).sum(0), (2, 1)))
    close(x.grad, np.tile(w.sum(0), (4, 1)))
    close(m(x[0]), np.array(x[0].tolist()) @ w.T + b)
    close(m(x.view(2, 2, 3)), (np.array(x.tolist()) @ w.T + b).reshape(2, 2, 2))
    no_bias = nn.Linear(3, 2, bias=False).double()
    close(no_bias(x), np.array(x.tolist()) @ np.array(no_bias.weight.tolist()).T)
    assert no_bias.bias is None and "bias" not in no_bias.state_dict()
    with raises(RuntimeError, "mat1 and mat2 shapes cannot be multiplied (4x5 and 3x2)"):
        m(rl.ones(4, 5, dtype=rl.float64))
    with pytest.raises(RuntimeError, match="must have the same dtype"):
        m(rl.ones(4, 3))
    with pytest.raises(TypeError):
        m("text")


def test_linear_with_a_computed_weight():
    m = nn.Linear(2, 2, bias=False)
    w = m.weight.detach() * 2
    del m.weight
    m.weight = w
    close(m(rl.ones(1, 2)), np.ones((1, 2)) @ np.array(w.tolist()).T)


def test_empty_linear():
    with pytest.warns(UserWarning, match="Initializing zero-element tensors is a no-op"):
        m = nn.Linear(0, 3)
    assert m(rl.ones(2, 0)).shape == (2, 3)
    assert nn.Linear(3, 2)(rl.ones(0, 3)).shape == (0, 2)


def test_bilinear():
    m = nn.Bilinear(3, 2, 4).double()
    a, b = rl.randn(5, 3, dtype=rl.float64), rl.randn(5, 2, dtype=rl.float64)
    want = np.einsum("bi,oij,bj->bo", *(np.array(t.tolist()) for t in (a, m.weight, b))) + np.array(m.bias.tolist())
    close(m(a, b), want)
    close(m(a.view(5, 1, 3), b.view(5, 1, 2)), want.reshape(5, 1, 4))
    assert repr(m) == "Bilinear(in1_features=3, in2_features=2, out_features=4, bias=True)"


# ---- containers ----


def lines(*texts):
    return "\n".join(texts)


def test_sequential():
    s = nn.Sequential(nn.ReLU(), nn.Tanh(), nn.Sigmoid())
    assert len(s) == 3 and isinstance(s[-1], nn.Sigmoid) and [type(m).__name__ for m in s[1:]] == ["Tanh", "Sigmoid"]
    close(s(x64), sigmoid(np.tanh(np.maximum(X, 0))))
    del s[1]
    assert list(s._modules) == ["0", "1"]
    s.append(nn.Identity()).insert(0, nn.ELU())
    assert [type(m).__name__ for m in s] == ["ELU", "ReLU", "Sigmoid", "Identity"]
    assert isinstance(s.pop(0), nn.ELU) and len(s) == 3
    assert len(s + s) == 6 and len(s * 2) == 6 and len(s.extend([nn.Tanh()])) == 4
    s[0] = nn.Softsign()
    assert isinstance(s[0], nn.Softsign)
    named = nn.Sequential(nn.modules.container.OrderedDict(first=nn.ReLU(), second=nn.Tanh()))
    assert isinstance(named.second, nn.Tanh) and isinstance(named[1], nn.Tanh) and list(named[:1]._modules) == ["first"]
    with raises(IndexError, "index 10 is out of range"):
        s[10]


def test_module_list():
    m = nn.ModuleList([nn.Linear(2, 3), nn.Linear(2, 3)])
    m.append(nn.ReLU())
    m += [nn.Tanh()]
    m.insert(0, nn.Tanh())
    assert len(m) == 5 and isinstance(m[-2], nn.ReLU) and len(m[1:3]) == 2 and isinstance(m[1:3], nn.ModuleList)
    del m[0]
    assert repr(m) == lines("ModuleList(", "  (0-1): 2 x Linear(in_features=2, out_features=3, bias=True)", "  (2): ReLU()",
                            "  (3): Tanh()", ")")
    assert len(list(m.parameters())) == 4 and repr(nn.ModuleList()) == "ModuleList()"
    del m[1:]
    assert list(m._modules) == ["0"] and len(m + m) == 2
    with raises(TypeError, "ModuleList.extend should be called with an iterable, but got int"):
        m.extend(3)
    with raises(NotImplementedError, 'Module [ModuleList] is missing the required "forward" function'):
        m(1)


def test_module_dict():
    m = nn.ModuleDict({"b": nn.ReLU(), "a": nn.Tanh()})
    m.update([("c", nn.Linear(1, 1))])
    assert list(m) == ["b", "a", "c"] and "a" in m and len(m) == 3 and isinstance(m.pop("a"), nn.Tanh)
    assert repr(m) == lines("ModuleDict(", "  (b): ReLU()", "  (c): Linear(in_features=1, out_features=1, bias=True)", ")")
    assert [k for k, _ in m.items()] == ["b", "c"] and len(list(m.parameters())) == 2
    m.clear()
    assert len(m) == 0
    with raises(TypeError, "ModuleDict.update should be called with an iterable of key/value pairs, but got int"):
        m.update(3)


def test_parameter_list():
    m = nn.ParameterList([rl.ones(2, 3), nn.Parameter(rl.ones(1)), 3])
    assert len(m) == 3 and isinstance(m[0], nn.Parameter) and len(list(m.parameters())) == 2 and m[-1] == 3
    dtype = str(rl.float32)
    assert repr(m) == lines("ParameterList(", f"    (0): Parameter containing: [{dtype} of size 2x3]",
                            f"    (1): Parameter containing: [{dtype} of size 1]", "    (2): Object of type: int", ")")
    m += [rl.zeros(1)]
    assert len(m) == 4 and len(m[1:3]) == 2 and list(m.state_dict()) == ["0", "1", "3"]
    m[0] = rl.zeros(2)
    assert m[0].shape == (2,)
    with raises(RuntimeError, "ParameterList should not be called."):
        m(1)


def test_parameter_dict():
    m = nn.ParameterDict({"b": rl.ones(1), "a": rl.ones(2)})
    assert list(m) == ["a", "b"] and isinstance(m["a"], nn.Parameter)
    m["c"] = 5
    assert "c" in m and m.get("d") is None and m.setdefault("e", rl.ones(3)).shape == (3,) and len(m) == 4
    assert m.pop("c") == 5 and [k for k, _ in m.items()] == ["a", "b", "e"]
    assert list(m.state_dict()) == ["a", "b", "e"] and list(m | {"z": rl.ones(1)}) == ["a", "b", "e", "z"]
    with raises(RuntimeError, "ParameterDict should not be called."):
        m(1)


# ---- dropout, embedding, norms ----


def test_dropout():
    rl.manual_seed(0)
    m = nn.Dropout(0.25)
    y = m(rl.ones(1000))
    values = set(y.tolist())
    assert values == {0.0, np.float32(1) / np.float32(0.75)} and 200 < y.tolist().count(0.0) < 300
    assert m.eval()(y) is y and repr(m) == "Dropout(p=0.25, inplace=False)"
    assert nn.Dropout(1.0)(rl.ones(3)).tolist() == [0.0, 0.0, 0.0]
    for cls, shape in ((nn.Dropout1d, (20, 5, 4)), (nn.Dropout2d, (20, 5, 2, 2)), (nn.Dropout3d, (20, 5, 1, 2, 2))):
        y = cls(0.5)(rl.ones(*shape)).reshape(100, 4)
        assert set(map(tuple, y.tolist())) == {(0.0,) * 4, (2.0,) * 4}
    with pytest.raises(RuntimeError, match="dropout1d: Expected 2D or 3D input, but received a 4D input"):
        nn.Dropout1d()(rl.ones(1, 1, 1, 1))
    with pytest.warns(UserWarning, match="dropout2d: Received a 2-D input to dropout2d, which is deprecated"):
        nn.Dropout2d()(rl.ones(2, 2))


def test_alpha_dropout_keeps_mean_and_variance():
    rl.manual_seed(1)
    y = nn.AlphaDropout(0.3)(rl.randn(200, 200))
    assert abs(y.mean().item()) < 0.02 and abs(y.std().item() - 1) < 0.02
    y = nn.FeatureAlphaDropout(0.5)(rl.ones(50, 4, 3))
    assert len({tuple(r) for r in y.reshape(200, 3).tolist()}) == 2


def test_embedding():
    m = nn.Embedding(5, 3, padding_idx=-1)
    assert m.padding_idx == 4 and m.weight[4].tolist() == [0.0] * 3 and repr(m) == "Embedding(5, 3, padding_idx=4)"
    i = rl.tensor([[1, 4], [1, 0]])
    y = m(i)
    assert y.shape == (2, 2, 3) and rl.equal(y[0, 0], m.weight[1])
    y.sum().backward()
    assert m.weight.grad.sum(1).tolist() == [3.0, 6.0, 0.0, 0.0, 0.0]
    with raises(IndexError, "index out of range in self"):
        m(rl.tensor([5]))
    with raises(IndexError, "index out of range in self"):
        m(rl.tensor([-1]))
    frozen = nn.Embedding.from_pretrained(rl.arange(6.0).view(3, 2))
    assert not frozen.weight.requires_grad and frozen(rl.tensor(2)).tolist() == [4.0, 5.0]
    small = nn.Embedding.from_pretrained(rl.tensor([[3.0, 4.0], [0.3, 0.4]]), max_norm=1.0)
    close(small(rl.tensor([0, 1, 0])).norm(2, -1), [1.0, 0.5, 1.0], 1e-5)
    close(small.weight.norm(2, -1), [1.0, 0.5], 1e-5)
    counted = nn.Embedding(3, 1, scale_grad_by_freq=True)
    counted(rl.tensor([0, 0, 2])).sum().backward()
    assert counted.weight.grad.tolist() == [[1.0], [0.0], [1.0]]


def test_layer_norm():
    m = nn.LayerNorm(8).double()
    mean, var = X.mean(-1, keepdims=True), X.var(-1, keepdims=True)
    close(m(x64), (X - mean) / np.sqrt(var + 1e-5))
    assert repr(m) == "LayerNorm((8,), eps=1e-05, elementwise_affine=True, bias=True)"
    assert list(nn.LayerNorm((2, 4), bias=False).state_dict()) == ["weight"] and not nn.LayerNorm(3, elementwise_affine=False).state_dict()
    rms = nn.RMSNorm(8).double()
    close(rms(x64), X / np.sqrt((X**2).mean(-1, keepdims=True) + np.finfo(np.float64).eps))
    close(nn.RMSNorm(8, eps=0.1).double()(x64), X / np.sqrt((X**2).mean(-1, keepdims=True) + 0.1))
    assert repr(nn.RMSNorm((2, 3))) == "RMSNorm((2, 3), eps=None, elementwise_affine=True)"
    with pytest.raises(RuntimeError, match=re.escape("Given normalized_shape=[7], expected input with shape [*, 7], but got input of "
                                                     "size[2, 8]")):
        F.layer_norm(x64, (7,))


# ---- losses ----

A, B = X[:, :4], X[:, 4:]
P = sigmoid(A)
OFF = A + 0.013 * np.arange(8).reshape(2, 4)  # no difference of two is 1, where the hinge has its kink
T01 = np.array([[0.0, 1, 1, 0], [1, 0, 0.5, 0.25]])
SIGN = np.array([[1.0, -1, 1, -1], [-1, -1, 1, 1]])


def t(a):
    return rl.tensor(np.asarray(a).tolist(), dtype=rl.float64 if np.asarray(a).dtype.kind == "f" else rl.int64)


def huber(d, delta):
    return np.where(abs(d) <= delta, 0.5 * d * d, delta * (abs(d) - 0.5 * delta))


LOSSES = [
    (nn.MSELoss, {}, (A, B), (A - B) ** 2),
    (nn.L1Loss, {}, (A, B), abs(A - B)),
    (nn.SmoothL1Loss, {"beta": 2.0}, (A, B), huber(A - B, 2.0) / 2),
    (nn.HuberLoss, {"delta": 2.0}, (A, B), huber(A - B, 2.0)),
    (nn.BCELoss, {}, (P, T01), -(T01 * np.log(P) + (1 - T01) * np.log1p(-P))),
    (nn.BCEWithLogitsLoss, {}, (A, T01), -(T01 * np.log(P) + (1 - T01) * np.log1p(-P))),
    (nn.KLDivLoss, {}, (A, P), special.xlogy(P, P) - P * A),
    (nn.KLDivLoss, {"log_target": True}, (A, B), np.exp(B) * (B - A)),
    (nn.PoissonNLLLoss, {}, (A, abs(B)), np.exp(A) - abs(B) * A),
    (nn.PoissonNLLLoss, {"log_input": False, "full": True}, (P, abs(B)),
     P - abs(B) * np.log(P + 1e-8) + np.where(abs(B) > 1, abs(B) * np.log(abs(B)) - abs(B) + 0.5 * np.log(2 * math.pi * abs(B)), 0)),
    (nn.GaussianNLLLoss, {"full": True}, (A, B, P), 0.5 * (np.log(P) + (A - B) ** 2 / P) + 0.5 * math.log(2 * math.pi)),
    (nn.MarginRankingLoss, {"margin": 0.5}, (A, B, SIGN), np.maximum(0, -SIGN * (A - B) + 0.5)),
    (nn.HingeEmbeddingLoss, {}, (A, SIGN), np.where(SIGN == 1, A, np.maximum(0, 1 - A))),
    (nn.SoftMarginLoss, {}, (A, SIGN), np.log1p(np.exp(-SIGN * A))),
    (nn.NLLLoss, {}, (A, np.array([1, 3])), -A[[0, 1], [1, 3]]),
    (nn.CrossEntropyLoss, {}, (A, np.array([1, 3])), -special.log_softmax(A, 1)[[0, 1], [1, 3]]),
    (nn.CrossEntropyLoss, {}, (A, T01), -(T01 * special.log_softmax(A, 1)).sum(1)),
    (nn.CrossEntropyLoss, {"label_smoothing": 0.1}, (A, np.array([1, 3])),
     -0.9 * special.log_softmax(A, 1)[[0, 1], [1, 3]] - 0.1 * special.log_softmax(A, 1).mean(1)),
    (nn.MultiLabelSoftMarginLoss, {}, (A, T01), -(T01 * np.log(P) + (1 - T01) * np.log1p(-P)).mean(1)),
    (nn.MultiMarginLoss, {}, (A, np.array([1, 3])),
     np.array([sum(max(0, 1 - A[r, y] + A[r, j]) for j in range(4) if j != y) / 4 for r, y in ((0, 1), (1, 3))])),
    (nn.MultiMarginLoss, {"p": 2, "margin": 0.5}, (A, np.array([1, 3])),
     np.array([sum(max(0, 0.5 - A[r, y] + A[r, j]) ** 2 for j in range(4) if j != y) / 4 for r, y in ((0, 1), (1, 3))])),
    (nn.MultiLabelMarginLoss, {}, (OFF, np.array([[3, 0, -1, 1], [2, -1, 0, 0]])),
     np.array([sum(max(0, 1 - OFF[r, y] + OFF[r, j]) for y in ys for j in range(4) if j not in ys) / 4
               for r, ys in ((0, (3, 0)), (1, (2,)))])),
    (nn.TripletMarginLoss, {}, (A, B, P),
     np.maximum(0, np.linalg.norm(A - B + 1e-6, axis=1) - np.linalg.norm(A - P + 1e-6, axis=1) + 1)),
    (nn.TripletMarginLoss, {"swap": True, "p": 1.0}, (A, B, P),
     np.maximum(0, abs(A - B + 1e-6).sum(1) - np.minimum(abs(A - P + 1e-6).sum(1), abs(B - P + 1e-6).sum(1)) + 1)),
    (nn.CosineEmbeddingLoss, {"margin": 0.1}, (A, B, np.array([1.0, -1.0])),
     np.where([True, False], 1 - (A * B).sum(1) / np.linalg.norm(A, axis=1) / np.linalg.norm(B, axis=1),
              np.maximum(0, (A * B).sum(1) / np.linalg.norm(A, axis=1) / np.linalg.norm(B, axis=1) - 0.1))),
]


@pytest.mark.parametrize("cls, options, args, want", LOSSES, ids=[f"{c.__name__}{o}" for c, o, _, _ in LOSSES])
def test_loss(cls, options, args, want):
    inputs = [t(a) for a in args]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for reduction, reduced in (("none", want), ("mean", want.mean()), ("sum", want.sum())):
            close(cls(reduction=reduction, **options)(*inputs), reduced, 1e-7)
        x = inputs[0].clone().requires_grad_()
        loss = cls(**options)(x, *inputs[1:])
        loss.backward()
        for k in range(3):  # central differences along a few axes
            e = np.zeros_like(args[0])
            e.flat[2 * k + 1] = 1e-6
            with rl.no_grad():
                up, down = (cls(**options)(t(args[0] + s * e), *inputs[1:]).item() for s in (1, -1))
            assert abs((up - down) / 2e-6 - x.grad.view(-1)[2 * k + 1].item()) < 1e-4


def test_weighted_losses():
    w = np.array([1.0, 2.0, 0.5, 3.0])
    y = np.array([1, 3])
    logp = special.log_softmax(A, 1)
    close(nn.CrossEntropyLoss(weight=t(w))(t(A), t(y)), -(w[y] * logp[[0, 1], y]).sum() / w[y].sum())
    close(nn.NLLLoss(weight=t(w), ignore_index=3)(t(A), t(y)), -A[0, 1])
    close(nn.BCELoss(weight=t(w))(t(P), t(T01)), (w * -(T01 * np.log(P) + (1 - T01) * np.log1p(-P))).mean())
    close(nn.BCEWithLogitsLoss(pos_weight=t(w))(t(A), t(T01)), -(w * T01 * np.log(P) + (1 - T01) * np.log1p(-P)).mean())
    close(F.mse_loss(t(A), t(B), weight=t(T01)), (T01 * (A - B) ** 2).sum() / T01.sum())
    assert list(nn.CrossEntropyLoss(weight=t(w)).state_dict()) == ["weight"]
    close(F.kl_div(t(A), t(P), reduction="batchmean"), (special.xlogy(P, P) - P * A).sum() / 2)


def test_losses_of_probability_zero_and_one():
    assert F.binary_cross_entropy(rl.tensor([0.0, 1.0]), rl.tensor([1.0, 0.0])).item() == 100
    assert F.binary_cross_entropy_with_logits(rl.tensor([1000.0, -1000.0]), rl.tensor([0.0, 1.0])).item() == 1000
    assert F.cross_entropy(rl.tensor([[1000.0, 0.0]]), rl.tensor([1])).item() == 1000
    assert math.isnan(F.cross_entropy(rl.ones(2, 3), rl.tensor([-100, -100])).item())
    assert F.cross_entropy(rl.ones(2, 3), rl.tensor([-100, -100]), reduction="sum").item() == 0
    assert F.kl_div(rl.zeros(1), rl.zeros(1), reduction="sum").item() == 0


def test_loss_errors_and_warnings():
    with pytest.warns(UserWarning, match=re.escape("Using a target size") + ".*that is different to the input size"):
        assert abs(F.mse_loss(rl.arange(3.0), rl.arange(3.0).view(3, 1)).item() - 4 / 3) < 1e-6
    with pytest.raises(ValueError, match="Using a target size .* that is different to the input size .* is deprecated"):
        F.binary_cross_entropy(rl.ones(2), rl.ones(3))
    with pytest.raises(ValueError, match="Target size .* must be the same as input size"):
        F.binary_cross_entropy_with_logits(rl.ones(2), rl.ones(3))
    with pytest.warns(UserWarning, match="size_average and reduce args will be deprecated, please use reduction='sum' instead."):
        assert nn.MSELoss(size_average=False).reduction == "sum"
    with pytest.warns(UserWarning, match="reduction: 'mean' divides the total loss by both the batch size and the support size"):
        nn.KLDivLoss()(t(A), t(P))
    with raises(ValueError, "var has negative entry/entries"):
        F.gaussian_nll_loss(t(A), t(B), t(-P))
    with pytest.raises(IndexError, match="Target 5 is out of bounds."):
        F.cross_entropy(rl.ones(1, 5), rl.tensor([5]))


def test_distances():
    close(nn.CosineSimilarity()(t(A), t(B)), (A * B).sum(1) / np.linalg.norm(A, axis=1) / np.linalg.norm(B, axis=1))
    assert F.cosine_similarity(rl.ones(84), rl.ones(84), dim=0).item() <= 1
    close(nn.PairwiseDistance(3.0, keepdim=True)(t(A), t(B)), (abs(A - B + 1e-6) ** 3).sum(1, keepdims=True) ** (1 / 3))
    close(F.normalize(t(A)), A / np.linalg.norm(A, axis=1, keepdims=True))
    assert F.one_hot(rl.tensor([2, 0])).tolist() == [[0, 0, 1], [1, 0, 0]]


def test_gumbel_softmax():
    rl.manual_seed(0)
    y = F.gumbel_softmax(rl.zeros(50, 3, requires_grad=True), hard=True)
    assert sorted(set(map(tuple, y.tolist()))) == [(0, 0, 1), (0, 1, 0), (1, 0, 0)] and y.requires_grad
    close(F.gumbel_softmax(rl.zeros(5, 3)).sum(-1), np.ones(5))
