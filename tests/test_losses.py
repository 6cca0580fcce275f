"""Losses and rows: reductions, weights, ignored targets, edges, error texts, names of nodes, first and second order."""
from __future__ import annotations

import math

import numpy as np
import pytest
import rushlight as rl
import rushlight.nn.functional as F
from rushlight.autograd import gradcheck, gradgradcheck
from scipy import special as sp

rng = np.random.default_rng(7)
nan, inf = math.nan, math.inf


def r(*shape, grad=True):
    return rl.from_numpy(rng.standard_normal(shape)).requires_grad_(grad)


def t(values, **kw):
    return rl.tensor(values, dtype=rl.float64, **kw)


REDUCTIONS = ("none", "mean", "sum")


# ---- classes ----

@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("shape", [(6, 4), (2, 4, 5), (2, 4, 3, 2), (4,)])
@pytest.mark.parametrize("options", [{}, {"weight": True}, {"label_smoothing": .2}, {"ignore_index": 1, "label_smoothing": .1,
                                                                                     "weight": True}])
def test_cross_entropy(shape, reduction, options):
    x = r(*shape)
    axis = 0 if len(shape) == 1 else 1
    classes = shape[axis]
    target = rng.integers(0, classes, shape[:axis] + shape[axis + 1:])
    w = rng.uniform(.5, 2, classes) if options.get("weight") else np.ones(classes)
    s, ignore = options.get("label_smoothing", 0), options.get("ignore_index", -100)
    logp = np.moveaxis(x.detach().numpy() - sp.logsumexp(x.detach().numpy(), axis, keepdims=True), axis, -1)
    at = np.take_along_axis(logp, target[..., None], -1)[..., 0] if target.ndim else logp[target]
    kept = target != ignore
    each = np.where(kept, -(1 - s) * w[target] * at - s / classes * (w * logp).sum(-1), 0)
    want = {"none": each, "sum": each.sum(), "mean": each.sum() / (w[target] * kept).sum()}[reduction] if kept.any() or reduction != "mean" else nan
    weight = rl.from_numpy(w) if options.get("weight") else None

    def f(v):
        return F.cross_entropy(v, rl.tensor(target), weight=weight, reduction=reduction, ignore_index=ignore, label_smoothing=s)

    np.testing.assert_allclose(f(x).detach().numpy(), want, rtol=1e-10)
    if kept.any():
        assert gradcheck(f, (x,)) and gradgradcheck(f, (x,))


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_nll_loss(reduction):
    x, target, w = r(5, 3), rl.tensor([0, 2, 1, 1, 0]), t([.5, 1, 2])

    def f(v):
        return F.nll_loss(v, target, weight=w, ignore_index=0, reduction=reduction)

    each = np.array([0, -2 * x[1, 2].item(), -x[2, 1].item(), -x[3, 1].item(), 0])
    np.testing.assert_allclose(f(x).detach().numpy(), {"none": each, "sum": each.sum(), "mean": each.sum() / 4}[reduction])
    assert gradcheck(f, (x,)) and gradgradcheck(f, (x,))
    moved = F.nll_loss(x.T.unsqueeze(0), target.unsqueeze(0), weight=w, ignore_index=0, reduction=reduction)
    np.testing.assert_allclose(moved.detach().numpy().reshape(-1), f(x).detach().numpy().reshape(-1))


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_probabilities_as_targets(reduction):
    x, p, w = r(4, 3), rl.from_numpy(rng.dirichlet(np.ones(3), 4)).requires_grad_(), t([.5, 1, 2])

    def f(v, q):
        return F.cross_entropy(v, q, weight=w, label_smoothing=.1, reduction=reduction)

    q = p.detach().numpy() * .9 + .1 / 3
    each = -(q * (x.detach().numpy() - sp.logsumexp(x.detach().numpy(), 1, keepdims=True)) * w.numpy()).sum(1)
    np.testing.assert_allclose(f(x, p).detach().numpy(), {"none": each, "sum": each.sum(), "mean": each.mean()}[reduction])
    assert gradcheck(f, (x, p)) and gradgradcheck(f, (x, p))


def test_edges_of_classes():
    x, all_ignored = rl.randn(3, 4), rl.full((3,), -100)
    assert math.isnan(F.cross_entropy(x, all_ignored).item()) and F.cross_entropy(x, all_ignored, reduction="sum").item() == 0
    assert F.cross_entropy(x, all_ignored, reduction="none").tolist() == [0, 0, 0]
    assert F.cross_entropy(rl.tensor([[1000.0, 0.0]]), rl.tensor([1])).item() == 1000
    assert F.cross_entropy(rl.zeros(2, 2), rl.tensor([0, 1]), weight=rl.tensor([1.0, 3.0])).item() == pytest.approx(math.log(2))
    assert math.isnan(F.cross_entropy(rl.rand(5, 0), rl.rand(5, 0)).item()) and F.cross_entropy(rl.ones(0, 3), rl.ones(0,
                                                                                                                       dtype=rl.int64), reduction="sum").item() == 0
    assert math.isnan(F.cross_entropy(rl.ones(0, 3), rl.ones(0, dtype=rl.int64)).item())
    assert F.cross_entropy(rl.tensor([[0.0, -inf]]), rl.tensor([0])).item() == 0


@pytest.mark.parametrize("call, kind, text", [
    (lambda: F.cross_entropy(rl.ones(2, 3), rl.tensor([0, 3])), IndexError, "Target 3 is out of bounds."),
    (lambda: F.cross_entropy(rl.ones(2, 3), rl.tensor([0, -4])), IndexError, "Target -4 is out of bounds."),
    (lambda: F.nll_loss(rl.ones(2, 3), rl.tensor([5, 0])), IndexError, "Target 5 is out of bounds."),
    (lambda: F.cross_entropy(rl.ones(2, 3), rl.tensor([0])), ValueError, "Expected input batch_size (2) to match target batch_size (1)."),
    (lambda: F.cross_entropy(rl.ones(2, 3), rl.tensor([0, 1], dtype=rl.int32)), RuntimeError, "expected target dtype to be Long or Byte, but got Int"),
    (lambda: F.cross_entropy(rl.ones(2, 3), rl.tensor([0, 1]), weight=rl.ones(2)), RuntimeError,
     "weight tensor should be defined either for all 3 classes or no classes but got weight tensor of shape: [2]"),
    (lambda: F.cross_entropy(rl.ones(2, 3), rl.tensor([0, 1]), label_smoothing=1.5), RuntimeError, "label_smoothing must be between 0.0 "
                                                                                                   "and 1.0. Got: 1.5"),
    (lambda: F.cross_entropy(rl.ones(2, 3), rl.ones(2, 3, dtype=rl.int64)), RuntimeError, "Expected floating point type for target with "
                                                                                          "class probabilities, got Long"),
    (lambda: F.binary_cross_entropy(rl.tensor([2.0]), rl.tensor([1.0])), RuntimeError, "all elements of input should be between 0 and 1"),
    (lambda: F.mse_loss(rl.ones(2), rl.ones(2), reduction="all"), ValueError, "all is not a valid value for reduction"),
    (lambda: F.layer_norm(rl.ones(2, 3), (2,)), RuntimeError, "Given normalized_shape=[2], expected input with shape [*, 2], but got "
                                                              "input of size[2, 3]"),
    (lambda: F.layer_norm(rl.ones(2, 3), (3,), rl.ones(2)), RuntimeError,
     "Expected weight to be of same shape as normalized_shape, but got weight of shape [2] and normalized_shape = [3]"),
    (lambda: rl.ones(2, dtype=rl.int64).softmax(0), NotImplementedError, "\"softmax_kernel_impl\" not implemented for 'Long'"),
    (lambda: rl.ones(2).log_softmax(1), IndexError, "Dimension out of range (expected to be in range of [-1, 0], but got 1)"),
])
def test_errors(call, kind, text):
    with pytest.raises(kind) as e:
        call()
    assert str(e.value) == text


# ---- two tensors of a shape ----

LOSSES = {
    "mse": (F.mse_loss, lambda x, y: (x - y) ** 2), "l1": (F.l1_loss, lambda x, y: abs(x - y)),
    "smooth": (lambda *a, **k: F.smooth_l1_loss(*a, beta=.7, **k), lambda x, y: np.where(abs(x - y) < .7, .5 * (x - y) ** 2 / .7, abs(x
                                                                                                                                      - y) - .35)),
    "huber": (lambda *a, **k: F.huber_loss(*a, delta=.7, **k), lambda x, y: np.where(abs(x - y) <= .7, .5 * (x - y) ** 2, .7 * (abs(x
                                                                                                                                    - y) - .35))),
    "logits": (F.binary_cross_entropy_with_logits, lambda x, y: np.logaddexp(0, x) - x * y),
}


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_pairs(name, reduction):
    f, reference = LOSSES[name]
    x, y = r(3, 4), r(3, 4)
    each = reference(x.detach().numpy(), y.detach().numpy())
    want = {"none": each, "mean": each.mean(), "sum": each.sum()}[reduction]
    np.testing.assert_allclose(f(x, y, reduction=reduction).detach().numpy(), want)
    assert gradcheck(lambda a, b: f(a, b, reduction=reduction), (x, y)) and gradgradcheck(lambda a, b: f(a, b, reduction=reduction), (x, y))


@pytest.mark.parametrize("dtype", [rl.float32, rl.float16, rl.bfloat16])
def test_low_precision(dtype):
    x, y = r(4, 5, grad=False), r(4, 5, grad=False)
    a = x.to(dtype).requires_grad_()
    loss = F.mse_loss(a, y.to(dtype))
    loss.backward()
    eps = rl.finfo(dtype).eps
    want = ((a.detach().double() - y.to(dtype).double()) ** 2).mean().item()
    assert loss.dtype == a.grad.dtype == dtype and abs(loss.item() - want) <= 2 * eps * want
    classes = rl.tensor([0, 4, 2, 1])
    got = F.cross_entropy(a, classes).item()
    assert abs(got - F.cross_entropy(a.detach().double(), classes).item()) <= 2 * eps * got


def test_binary_cross_entropy():
    x, y, w = rl.from_numpy(rng.uniform(.1, .9, (3, 2))).requires_grad_(), rl.from_numpy(rng.uniform(0, 1, (3, 2))), t([[1.0, 3.0]])
    each = -(y * x.log() + (1 - y) * (1 - x).log()) * w
    np.testing.assert_allclose(F.binary_cross_entropy(x, y, w).item(), each.mean().item())
    assert gradcheck(lambda v: F.binary_cross_entropy(v, y, w), (x,)) and gradgradcheck(lambda v: F.binary_cross_entropy(v, y, w), (x,))
    assert F.binary_cross_entropy(t([0.0, 1.0]), t([1.0, 0.0]), reduction="none").tolist() == [100, 100]
    assert F.binary_cross_entropy_with_logits(t([1000.0, -1000.0]), t([0.0, 1.0]), reduction="none").tolist() == [1000, 1000]
    z, pos = r(3, 2), t([.5, 3.0])
    weighted = F.binary_cross_entropy_with_logits(z, y, w, pos_weight=pos, reduction="sum")
    s = z.sigmoid()
    np.testing.assert_allclose(weighted.item(), (-(pos * y * s.log() + (1 - y) * (1 - s).log()) * w).sum().item())
    assert gradcheck(lambda v: F.binary_cross_entropy_with_logits(v, y, w, pos_weight=pos), (z,))
    assert gradgradcheck(lambda v: F.binary_cross_entropy_with_logits(v, y, w, pos_weight=pos), (z,))


@pytest.mark.filterwarnings("ignore:reduction")
def test_kl_div():
    x, q = r(4, 3).log_softmax(1).detach().requires_grad_(), rl.from_numpy(rng.dirichlet(np.ones(3), 4))
    want = sp.rel_entr(q.numpy(), np.exp(x.detach().numpy())).sum()
    for reduction, by in (("sum", 1), ("batchmean", 4), ("mean", 12)):
        assert F.kl_div(x, q, reduction=reduction).item() == pytest.approx(want / by)
        assert F.kl_div(x, q.log(), reduction=reduction, log_target=True).item() == pytest.approx(want / by)
    assert F.kl_div(t([[-1.0]]), t([[0.0]]), reduction="sum").item() == 0 and gradcheck(lambda v: F.kl_div(v, q, reduction="sum"), (x,))


@pytest.mark.filterwarnings("ignore:Using a target size")
def test_broadcast_and_mixed_dtypes():
    x, y = t([1.0, 2, 3], requires_grad=True), t([[1.0], [2], [3]], requires_grad=True)
    loss = F.mse_loss(x, y)
    loss.backward()
    assert loss.item() == pytest.approx(4 / 3) and x.grad.shape == (3,) and y.grad.shape == (3,
                                                                                             1) and x.grad.tolist() == pytest.approx([-2 / 3, 0, 2 / 3])
    a = rl.tensor([1.0, 2.0], requires_grad=True)
    F.mse_loss(a, t([0.0, 0.0])).backward()
    assert a.grad.dtype == rl.float32 and a.grad.tolist() == [1, 2]


def test_kinks():
    for f, want in ((F.l1_loss, 0), (F.smooth_l1_loss, 0), (F.huber_loss, 0)):
        x = rl.zeros(3, requires_grad=True)
        f(x, rl.zeros(3)).backward()
        assert x.grad.tolist() == [want] * 3


def test_names_of_nodes():
    x, c = rl.rand(2, 3, requires_grad=True), rl.tensor([0, 1])
    for y, name in ((F.mse_loss(x, rl.ones(2, 3)), "MseLossBackward0"), (F.l1_loss(x, rl.ones(2, 3)), "MeanBackward0"),
                    (F.smooth_l1_loss(x, rl.ones(2, 3)), "SmoothL1LossBackward0"), (F.huber_loss(x, rl.ones(2, 3)), "HuberLossBackward0"),
                    (F.cross_entropy(x, c), "NllLossBackward0"), (F.cross_entropy(x[None].transpose(1, 2), c[None, :].expand(1, 2)),
                                                                  "NllLoss2DBackward0"),
                    (F.cross_entropy(x, rl.ones(2, 3)), "DivBackward0"), (F.binary_cross_entropy(x, rl.ones(2, 3)),
                                                                          "BinaryCrossEntropyBackward0"),
                    (F.binary_cross_entropy_with_logits(x, rl.ones(2, 3)), "BinaryCrossEntropyWithLogitsBackward0"), (x.softmax(1),
                                                                                                                      "SoftmaxBackward0"),
                    (x.log_softmax(1), "LogSoftmaxBackward0"), (F.layer_norm(x, (3,)), "NativeLayerNormBackward0")):
        assert y.grad_fn.name() in (name, name.replace("Div", "Div").replace("0", "1") if name.startswith("Div") else name)


# ---- rows ----

@pytest.mark.parametrize("shape, dim", [((3, 5), 1), ((3, 5), 0), ((2, 3, 4), 1), ((4,), 0), ((2, 33), -1), ((2, 0), 0)])
def test_softmax(shape, dim):
    x = r(*shape)
    for f, reference in ((rl.softmax, sp.softmax), (rl.log_softmax, sp.log_softmax)):
        np.testing.assert_allclose(f(x, dim).detach().numpy(), reference(x.detach().numpy(), dim) if x.numel() else np.zeros(shape),
                                   rtol=1e-12)
        assert gradcheck(lambda v, f=f: f(v, dim), (x,)) and gradgradcheck(lambda v, f=f: f(v, dim), (x,))
    assert rl.softmax(x.float(), dim, dtype=rl.float64).dtype == rl.float64


def test_softmax_edges():
    assert t([1000.0, 0.0]).softmax(0).tolist() == [1, 0] and t([1000.0, 0.0]).log_softmax(0).tolist() == [0, -1000]
    assert all(map(math.isnan, t([-inf, -inf]).softmax(0).tolist())) and t([-inf, 0.0]).softmax(0).tolist() == [0, 1]
    assert rl.tensor(2.0).softmax(0).item() == 1 and rl.ones(3, 4).t().softmax(0)[0, 0].item() == .25


@pytest.mark.parametrize("shape, normalized", [((4, 6), (6,)), ((2, 3, 4), (3, 4)), ((5,), (5,)), ((2, 33), (33,))])
@pytest.mark.parametrize("affine", [0, 1, 2])
def test_layer_norm(shape, normalized, affine):
    x = r(*shape)
    parameters = [r(*normalized) for _ in range(affine)]
    a = x.detach().numpy()
    axes = tuple(range(len(shape) - len(normalized), len(shape)))
    want = (a - a.mean(axes, keepdims=True)) / np.sqrt(a.var(axes, keepdims=True) + 1e-5)
    want = want * (parameters[0].detach().numpy() if affine else 1) + (parameters[1].detach().numpy() if affine > 1 else 0)
    np.testing.assert_allclose(F.layer_norm(x, normalized, *parameters).detach().numpy(), want, rtol=1e-9, atol=1e-12)
    inputs = (x, *parameters)
    assert gradcheck(lambda v, *p: F.layer_norm(v, normalized, *p), inputs)
    assert gradgradcheck(lambda v, *p: F.layer_norm(v, normalized, *p), inputs)


def test_rms_norm():
    x, w = r(3, 5), r(5)
    want = x.detach().numpy() / np.sqrt((x.detach().numpy() ** 2).mean(-1, keepdims=True) + 1e-3) * w.detach().numpy()
    np.testing.assert_allclose(F.rms_norm(x, (5,), w, 1e-3).detach().numpy(), want)
    assert gradcheck(lambda v, u: F.rms_norm(v, (5,), u, 1e-3), (x, w)) and gradgradcheck(lambda v, u: F.rms_norm(v, (5,), u, 1e-3), (x, w))


def test_half_rows_compute_wide():
    x = rl.full((2, 4096), 200.0, dtype=rl.float16)
    x[:, 0] = 100
    assert rl.isfinite(F.layer_norm(x, (4096,))).all() and rl.ones(70000, dtype=rl.float16).softmax(0).float().sum().item() == pytest.approx(1, abs=.05)
