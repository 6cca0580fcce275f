"""torch.nn.functional: activations, layers without state and losses (`_loss_functions.py`), with PyTorch's signatures.

A function that is one row of the operator table is that row, or one call of it; the rest is composed of operators here.
"""
import math
import warnings

import rushlight
from rushlight import _C
from rushlight._C import Tensor

from ._loss_functions import *  # noqa: F403
from ._loss_functions import _reduction_of  # noqa: F401
from ._rows import rows as _n

# ---- activations ----


def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
    """x where x > threshold, else value."""
    return _n.threshold_(input, threshold, value) if inplace else _n.threshold(input, threshold, value)


def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """max(x, 0)."""
    return _n.relu_(input) if inplace else _n.relu(input)


def relu6(input: Tensor, inplace: bool = False) -> Tensor:
    """x limited to [0, 6]."""
    return hardtanh(input, 0.0, 6.0, inplace)


def hardtanh(input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Tensor:
    """x limited to [min_val, max_val]."""
    if min_val > max_val:
        raise ValueError("min_val cannot be greater than max_val")
    return _n.hardtanh_(input, min_val, max_val) if inplace else _n.hardtanh(input, min_val, max_val)


def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """x where x > 0, else negative_slope * x."""
    return _n.leaky_relu_(input, negative_slope) if inplace else _n.leaky_relu(input, negative_slope)


def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """x where x > 0, else alpha * (exp(x) - 1)."""
    return _n.elu_(input, alpha) if inplace else _n.elu(input, alpha)


def selu(input: Tensor, inplace: bool = False) -> Tensor:
    """ELU with the scale and alpha that keep mean 0 and variance 1."""
    return _n.selu_(input) if inplace else _n.selu(input)


def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """max(0, x) + min(0, alpha * (exp(x / alpha) - 1))."""
    return _n.celu_(input, alpha) if inplace else _n.celu(input, alpha)


def gelu(input: Tensor, approximate: str = "none") -> Tensor:
    """x * Phi(x); approximate="tanh" by the usual formula with tanh."""
    return _n.gelu(input, approximate=approximate)


def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """x * sigmoid(x)."""
    return _n.silu_(input) if inplace else _n.silu(input)


def mish(input: Tensor, inplace: bool = False) -> Tensor:
    """x * tanh(softplus(x))."""
    return _n.mish_(input) if inplace else _n.mish(input)


def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    """x / 6 + 1 / 2 limited to [0, 1]."""
    return _n.hardsigmoid_(input) if inplace else _n.hardsigmoid(input)


def hardswish(input: Tensor, inplace: bool = False) -> Tensor:
    """x * hardsigmoid(x)."""
    return _n.hardswish_(input) if inplace else _n.hardswish(input)


def hardshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """x where |x| > lambd, else 0."""
    return _n.hardshrink(input, lambd)


def softshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """x moved by lambd towards 0, 0 between."""
    if lambd < 0:
        raise RuntimeError(f"lambda must be greater or equal to 0, but found to be {float(lambd):g}.")
    return _n.softshrink(input, lambd)


def softplus(input: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """log(1 + exp(beta * x)) / beta; x where beta * x > threshold."""
    return _n.softplus(input, beta, threshold)


def logsigmoid(input: Tensor) -> Tensor:
    """log(sigmoid(x))."""
    return _n.logsigmoid(input)


def softsign(input: Tensor) -> Tensor:
    """x / (1 + |x|)."""
    return _n.softsign(input)


def tanhshrink(input: Tensor) -> Tensor:
    """x - tanh(x)."""
    return _n.tanhshrink(input)


def tanh(input: Tensor) -> Tensor:
    """The hyperbolic tangent."""
    return input.tanh()


def sigmoid(input: Tensor) -> Tensor:
    """1 / (1 + exp(-x))."""
    return input.sigmoid()


def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """x where x > 0, else weight * x; weight: one value, or one a channel (dimension 1)."""
    return _n.prelu(input, weight)


def rrelu(input: Tensor, lower: float = 1.0 / 8, upper: float = 1.0 / 3, training: bool = False, inplace: bool = False) -> Tensor:
    """Leaky ReLU with a slope drawn from U(lower, upper) for every x <= 0 in training, their mean else."""
    if lower > upper:
        raise RuntimeError(f"Lower bound should be less than or equal to the upper bound, got {lower} > {upper}")
    if not training:
        return leaky_relu(input, (lower + upper) / 2, inplace)
    with rushlight.no_grad():
        negative = input <= 0
        drawn = rushlight.empty(int(negative.sum()), dtype=rushlight.float64).uniform_(lower, upper)
        slope = rushlight.ones_like(input)
        slope[negative] = drawn.to(input.dtype)
    return input.mul_(slope) if inplace else input * slope


def glu(input: Tensor, dim: int = -1) -> Tensor:
    """a * sigmoid(b) for the halves a, b along dim."""
    if input.dim() == 0:
        raise RuntimeError("glu does not support scalars because halving size must be even")
    size = input.size(dim)
    if size % 2:
        raise RuntimeError(f"Halving dimension must be even, but dimension {dim % input.dim()} is size {size}")
    a, b = input.narrow(dim, 0, size // 2), input.narrow(dim, size // 2, size // 2)
    return a * b.sigmoid()


def _softmax_dim(name: str, ndim: int, stacklevel: int) -> int:
    warnings.warn(f"Implicit dimension choice for {name} has been deprecated. Change the call to include dim=X as an argument.",
                  stacklevel=stacklevel)
    return 0 if ndim in (0, 1, 3) else 1


def softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype=None) -> Tensor:
    """exp(x) / sum(exp(x)) along dim."""
    if dim is None:
        dim = _softmax_dim("softmax", input.dim(), _stacklevel)
    return input.softmax(dim) if dtype is None else input.softmax(dim, dtype=dtype)


def softmin(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype=None) -> Tensor:
    """Softmax of -x along dim."""
    if dim is None:
        dim = _softmax_dim("softmin", input.dim(), _stacklevel)
    return (-input).softmax(dim) if dtype is None else (-input).softmax(dim, dtype=dtype)


def log_softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype=None) -> Tensor:
    """log(softmax(x)) along dim."""
    if dim is None:
        dim = _softmax_dim("log_softmax", input.dim(), _stacklevel)
    return input.log_softmax(dim) if dtype is None else input.log_softmax(dim, dtype=dtype)


def gumbel_softmax(logits: Tensor, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1) -> Tensor:
    """A sample of the Gumbel-softmax distribution; hard: one-hot, with the soft sample's gradient."""
    gumbels = -rushlight.empty_like(logits).exponential_().log()
    soft = ((logits + gumbels) / tau).softmax(dim)
    if not hard:
        return soft
    index = soft.max(dim, keepdim=True)[1]
    one_hot = rushlight.zeros_like(logits).scatter_(dim, index, 1.0)
    return one_hot - soft.detach() + soft


def _in_place(name: str):
    def f(input, *args, **kwargs):
        return getattr(_n, name)(input, *args, **kwargs)

    f.__name__ = f.__qualname__ = name
    f.__doc__ = f"The in-place form of {name[:-1]}."
    return f


relu_, threshold_, hardtanh_, leaky_relu_, elu_, selu_, celu_ = map(
    _in_place, ("relu_", "threshold_", "hardtanh_", "leaky_relu_", "elu_", "selu_", "celu_"))


def rrelu_(input: Tensor, lower: float = 1.0 / 8, upper: float = 1.0 / 3, training: bool = False) -> Tensor:
    """The in-place form of rrelu."""
    return rrelu(input, lower, upper, training, True)


# ---- layers ----


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """input @ weight.T + bias: (*, in), (out, in), (out) -> (*, out)."""
    return _n.linear(input, weight, bias)


def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x1^T A x2 + b: (*, in1), (*, in2), (out, in1, in2), (out) -> (*, out)."""
    if input1.shape[:-1] != input2.shape[:-1]:
        raise RuntimeError(f"bilinear(): input batch dimensions do not match: got {tuple(input1.shape)} and {tuple(input2.shape)}")
    out, in1, in2 = weight.shape
    if input1.size(-1) != in1 or input2.size(-1) != in2:
        raise RuntimeError(f"bilinear(): input sizes do not match weight size: got {input1.size(-1)} and {input2.size(-1)} but expected "
                           f"{in1} and {in2}")
    batch = input1.shape[:-1]
    left = input1.reshape(-1, in1) @ weight.permute(1, 0, 2).reshape(in1, out * in2)
    y = (left.view(-1, out, in2) * input2.reshape(-1, 1, in2)).sum(-1)
    y = y if bias is None else y + bias
    return y.view(*batch, out)


def _check_p(p: float) -> None:
    if p < 0.0 or p > 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zeroes each element with probability p and scales the rest by 1 / (1 - p)."""
    _check_p(p)
    return _C.dropout_(input, p, training) if inplace else _C.dropout(input, p, training)


def _feature_dropout(input: Tensor, p: float, training: bool, inplace: bool) -> Tensor:
    return _C.feature_dropout_(input, p, training) if inplace else _C.feature_dropout(input, p, training)


_SHAPES = ("To retain the behavior and silence this warning, please use dropout instead. Note that {name} exists to provide channel-wise "
           "dropout on "
           "inputs with {n} spatial dimensions, a channel dimension, and an optional batch dimension (i.e. {a}D or {b}D inputs).")


def dropout1d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zeroes whole channels of (N, C, L) or (C, L)."""
    _check_p(p)
    if input.dim() not in (2, 3):
        raise RuntimeError(f"dropout1d: Expected 2D or 3D input, but received a {input.dim()}D input. Note that dropout1d exists to "
                           "provide "
                           "channel-wise dropout on inputs with 1 spatial dimension, a channel dimension, and an optional batch dimension "
                           "(i.e. 2D or 3D inputs).")
    if input.dim() == 3:
        return _feature_dropout(input, p, training, inplace)
    return _feature_dropout(input.unsqueeze_(0) if inplace else input.unsqueeze(0), p, training, inplace).squeeze(0)


def dropout2d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zeroes whole channels of (N, C, H, W)."""
    _check_p(p)
    if input.dim() not in (3, 4):
        warnings.warn(f"dropout2d: Received a {input.dim()}-D input to dropout2d, which is deprecated and will result in an error in a "
                      "future "
                      "release. " + _SHAPES.format(name="dropout2d", n=2, a=3, b=4), stacklevel=2)
    if input.dim() == 3:
        warnings.warn("dropout2d: Received a 3D input to dropout2d and assuming that channel-wise 1D dropout behavior is desired - input "
                      "is "
                      "interpreted as shape (N, C, L), where C is the channel dim. This behavior will change in a future release to "
                      "interpret the "
                      "input as one without a batch dimension, i.e. shape (C, H, W). To maintain the 1D channel-wise dropout behavior, "
                      "please "
                      "switch to using dropout1d instead.", stacklevel=2)
    return _feature_dropout(input, p, training, inplace)


def dropout3d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zeroes whole channels of (N, C, D, H, W) or (C, D, H, W)."""
    _check_p(p)
    if input.dim() not in (4, 5):
        warnings.warn(f"dropout3d: Received a {input.dim()}-D input to dropout3d, which is deprecated and will result in an error in a "
                      "future "
                      "release. " + _SHAPES.format(name="dropout3d", n=3, a=4, b=5), stacklevel=2)
    if input.dim() != 4:
        return _feature_dropout(input, p, training, inplace)
    return _feature_dropout(input.unsqueeze_(0) if inplace else input.unsqueeze(0), p, training, inplace).squeeze(0)


_ALPHA = 1.7580993408473766  # SELU's scale * alpha


def _alpha_dropout(input: Tensor, p: float, training: bool, inplace: bool, feature: bool) -> Tensor:
    """Dropped elements become -alpha instead of 0, then a * x + b restores mean and variance."""
    _check_p(p)
    if p == 0 or not training or input.numel() == 0:
        return input
    if p == 1:
        return input.mul_(0) if inplace else input * 0
    shape = [*input.shape[:2], *([1] * (input.dim() - 2))] if feature else None
    with rushlight.no_grad():
        noise = (rushlight.empty_like(input) if shape is None else input.new_empty(shape)).bernoulli_(1 - p)
        a = 1.0 / math.sqrt((_ALPHA * _ALPHA * p + 1) * (1 - p))
        b = (noise - 1).mul_(_ALPHA * a).add_(_ALPHA * a * p)
        noise.mul_(a)
    return (input.mul_(noise) if inplace else input * noise).add_(b)


def alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """Dropout that keeps mean and variance under SELU."""
    return _alpha_dropout(input, p, training, inplace, False)


def feature_alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """alpha_dropout of whole channels."""
    return _alpha_dropout(input, p, training, inplace, True)


def _renorm_rows(weight: Tensor, input: Tensor, max_norm: float, norm_type: float) -> None:
    """Scales the rows that input names down to max_norm, in place."""
    with rushlight.no_grad():
        rows = input.reshape(-1).unique()
        norms = weight[rows].norm(norm_type, -1)
        scale = rushlight.where(norms > max_norm, max_norm / (norms + 1e-7), rushlight.ones_like(norms))
        weight[rows] = weight[rows] * scale.unsqueeze(-1)


def embedding(input: Tensor, weight: Tensor, padding_idx: int | None = None, max_norm: float | None = None, norm_type: float = 2.0,
              scale_grad_by_freq: bool = False, sparse: bool = False) -> Tensor:
    """weight[input]: integers (*) -> (*, D). padding_idx: a row without gradient. The gradient is dense, also with sparse=True."""
    if padding_idx is not None:
        rows = weight.size(0)
        if padding_idx > 0 and padding_idx >= rows:
            raise AssertionError("Padding_idx must be within num_embeddings")
        if padding_idx < 0 and padding_idx < -rows:
            raise AssertionError("Padding_idx must be within num_embeddings")
        padding_idx = padding_idx + rows if padding_idx < 0 else padding_idx
    else:
        padding_idx = -1
    if max_norm is not None:
        _renorm_rows(weight, input, max_norm, norm_type)
    return _n.embedding(weight, input, padding_idx, scale_grad_by_freq, False)


def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """int64 (*) -> int64 (*, num_classes), 1 at the class; -1: one more than the largest."""
    return _n.one_hot(tensor, num_classes)


def layer_norm(input: Tensor, normalized_shape, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5) -> Tensor:
    """(x - mean) / sqrt(var + eps) * weight + bias over the last dimensions."""
    return _n.layer_norm(input, normalized_shape, weight, bias, eps)


def rms_norm(input: Tensor, normalized_shape, weight: Tensor | None = None, eps: float | None = None) -> Tensor:
    """x / sqrt(mean(x²) + eps) * weight over the last dimensions; eps None: the dtype's machine epsilon."""
    return _n.rms_norm(input, normalized_shape, weight, eps)


def normalize(input: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12, out: Tensor | None = None) -> Tensor:
    """x / max(|x|_p, eps) along dim."""
    denom = input.norm(p, dim, keepdim=True).clamp_min(eps).expand_as(input)
    return input / denom if out is None else rushlight.div(input, denom, out=out)


def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """x1 · x2 / (max(|x1|, eps) max(|x2|, eps)) along dim."""
    dtype = rushlight.promote_types(x1.dtype, x2.dtype)
    if not dtype.is_floating_point:
        raise RuntimeError(f"expected common dtype to be floating point, yet common dtype is {dtype}")
    x1, x2 = rushlight.broadcast_tensors(x1.to(dtype), x2.to(dtype))

    def unit(x):
        norm = x.norm(2, dim, keepdim=True).clone()
        with rushlight.no_grad():
            norm.clamp_min_(eps)
        return x / norm

    return (unit(x1) * unit(x2)).sum(dim)


def pairwise_distance(x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> Tensor:
    """The p-norm of x1 - x2 + eps along the last dimension."""
    dim = max(x1.dim(), x2.dim()) - 1
    return (x1 - x2 + eps).norm(p, dim, keepdim=keepdim)
