"""The losses of nn.functional. reduction: "none", "mean", "sum"; size_average and reduce are PyTorch's old spelling of it."""
import math
import warnings

import rushlight
from rushlight._C import Tensor

from ._rows import rows as _n

__all__ = ["binary_cross_entropy", "binary_cross_entropy_with_logits", "cosine_embedding_loss", "cross_entropy", "gaussian_nll_loss",
           "hinge_embedding_loss", "huber_loss", "kl_div", "l1_loss", "margin_ranking_loss", "mse_loss", "multi_margin_loss",
           "multilabel_margin_loss", "multilabel_soft_margin_loss", "nll_loss", "poisson_nll_loss", "smooth_l1_loss", "soft_margin_loss",
           "triplet_margin_loss", "triplet_margin_with_distance_loss"]

_ENUM = {"none": 0, "mean": 1, "sum": 2}


def _reduction_of(size_average, reduce, reduction: str) -> str:
    """The reduction, with the two deprecated arguments taken into account."""
    if size_average is None and reduce is None:
        return reduction
    size_average = True if size_average is None else size_average
    reduce = True if reduce is None else reduce
    chosen = ("mean" if size_average else "sum") if reduce else "none"
    warnings.warn(f"size_average and reduce args will be deprecated, please use reduction='{chosen}' instead.", stacklevel=3)
    return chosen


def _enum(reduction: str) -> int:
    """The table's number of a reduction."""
    code = _ENUM.get(reduction)
    if code is None:
        raise ValueError(f"{reduction} is not a valid value for reduction")
    return code


def _reduce(loss: Tensor, reduction: str) -> Tensor:
    code = _enum(reduction)
    return loss if code == 0 else loss.mean() if code == 1 else loss.sum()


def _warn_size(input: Tensor, target: Tensor) -> None:
    if target.size() != input.size():
        warnings.warn(f"Using a target size ({target.size()}) that is different to the input size ({input.size()}). This will likely "
                      "lead to "
                      "incorrect results due to broadcasting. Please ensure they have the same size.", stacklevel=3)


def mse_loss(input: Tensor, target: Tensor, size_average=None, reduce=None, reduction: str = "mean",
             weight: Tensor | None = None) -> Tensor:
    """(input - target)², times weight; with "mean" divided by the sum of the weights."""
    if input.shape != target.shape:
        _warn_size(input, target)
    if size_average is not None or reduce is not None:
        reduction = _reduction_of(size_average, reduce, reduction)
    if weight is None:
        return _n.mse_loss(input, target, _enum(reduction))
    if weight.size() != input.size():
        raise ValueError("Weights and input must have the same size.")
    loss = (input - target).square() * weight
    return loss.sum() / weight.sum() if reduction == "mean" else _reduce(loss, reduction)


def l1_loss(input: Tensor, target: Tensor, size_average=None, reduce=None, reduction: str = "mean", weight: Tensor | None = None) -> Tensor:
    """|input - target|, times weight; with "mean" divided by the sum of the weights."""
    if input.shape != target.shape:
        _warn_size(input, target)
    if size_average is not None or reduce is not None:
        reduction = _reduction_of(size_average, reduce, reduction)
    if weight is None:
        return _n.l1_loss(input, target, _enum(reduction))
    if weight.size() != input.size():
        raise ValueError("Weights and input must have the same size.")
    loss = (input - target).abs() * weight
    return loss.sum() / weight.sum() if reduction == "mean" else _reduce(loss, reduction)


def smooth_l1_loss(input: Tensor, target: Tensor, size_average=None, reduce=None, reduction: str = "mean", beta: float = 1.0) -> Tensor:
    """d² / (2 beta) where |d| < beta, else |d| - beta / 2."""
    if input.shape != target.shape:
        _warn_size(input, target)
    if size_average is not None or reduce is not None:
        reduction = _reduction_of(size_average, reduce, reduction)
    if beta == 0.0:
        return _n.l1_loss(input, target, _enum(reduction))
    if beta < 0:
        raise RuntimeError("smooth_l1_loss does not support negative values for beta.")
    return _n.smooth_l1_loss(input, target, _enum(reduction), beta)


def huber_loss(input: Tensor, target: Tensor, reduction: str = "mean", delta: float = 1.0, weight: Tensor | None = None) -> Tensor:
    """d² / 2 where |d| <= delta, else delta * (|d| - delta / 2)."""
    if input.shape != target.shape:
        _warn_size(input, target)
    if delta <= 0:
        raise RuntimeError("huber_loss does not support non-positive values for delta.")
    if weight is None:
        return _n.huber_loss(input, target, _enum(reduction), delta)
    if weight.size() != input.size():
        raise ValueError("Weights and input must have the same size.")
    loss = _n.huber_loss(input, target, 0, delta) * weight
    return loss.sum() / weight.sum() if reduction == "mean" else _reduce(loss, reduction)


def cross_entropy(input: Tensor, target: Tensor, weight: Tensor | None = None, size_average=None, ignore_index: int = -100, reduce=None,
                  reduction: str = "mean", label_smoothing: float = 0.0) -> Tensor:
    """Of logits (N, C, *) or (C) with classes (N, *) or () or probabilities of the input's shape."""
    if size_average is not None or reduce is not None:
        reduction = _reduction_of(size_average, reduce, reduction)
    return _n.cross_entropy(input, target, weight, _enum(reduction), ignore_index, label_smoothing)


def nll_loss(input: Tensor, target: Tensor, weight: Tensor | None = None, size_average=None, ignore_index: int = -100, reduce=None,
             reduction: str = "mean") -> Tensor:
    """-input[target] for log-probabilities (N, C, *) and classes (N, *)."""
    if size_average is not None or reduce is not None:
        reduction = _reduction_of(size_average, reduce, reduction)
    return _n.nll_loss(input, target, weight, _enum(reduction), ignore_index)


def binary_cross_entropy(input: Tensor, target: Tensor, weight: Tensor | None = None, size_average=None, reduce=None,
                         reduction: str = "mean") -> Tensor:
    """-(target * log(input) + (1 - target) * log(1 - input)); logarithms limited to -100."""
    code = _enum(_reduction_of(size_average, reduce, reduction))
    if target.size() != input.size():
        raise ValueError(f"Using a target size ({target.size()}) that is different to the input size ({input.size()}) is deprecated. "
                         "Please ensure "
                         "they have the same size.")
    if weight is not None:
        weight = weight.expand(rushlight.broadcast_shapes(target.size(), weight.size()))
    return _n.binary_cross_entropy(input, target, weight, code)


def binary_cross_entropy_with_logits(input: Tensor, target: Tensor, weight: Tensor | None = None, size_average=None, reduce=None,
                                     reduction: str = "mean", pos_weight: Tensor | None = None) -> Tensor:
    """binary_cross_entropy of sigmoid(input), computed without overflow."""
    code = _enum(_reduction_of(size_average, reduce, reduction))
    if target.size() != input.size():
        raise ValueError(f"Target size ({target.size()}) must be the same as input size ({input.size()})")
    return _n.binary_cross_entropy_with_logits(input, target, weight, pos_weight, code)


def kl_div(input: Tensor, target: Tensor, size_average=None, reduce=None, reduction: str = "mean", log_target: bool = False) -> Tensor:
    """target * (log(target) - input); "batchmean" divides the sum by the batch's size."""
    if size_average is not None or reduce is not None:
        reduction = _reduction_of(size_average, reduce, reduction)
    if reduction == "mean":
        warnings.warn("reduction: 'mean' divides the total loss by both the batch size and the support size.'batchmean' divides only by "
                      "the batch "
                      "size, and aligns with the KL div math definition.'mean' will be changed to behave the same as 'batchmean' in the "
                      "next major "
                      "release.", stacklevel=2)
    reduced = _n.kl_div(input, target, _enum("sum" if reduction == "batchmean" else reduction), log_target=log_target)
    return reduced / input.size()[0] if reduction == "batchmean" and input.dim() != 0 else reduced


def poisson_nll_loss(input: Tensor, target: Tensor, log_input: bool = True, full: bool = False, size_average=None, eps: float = 1e-8,
                     reduce=None,
                     reduction: str = "mean") -> Tensor:
    """exp(input) - target * input, or input - target * log(input + eps); full: plus Stirling's term where target > 1."""
    if size_average is not None or reduce is not None:
        reduction = _reduction_of(size_average, reduce, reduction)
    _enum(reduction)
    loss = input.exp() - target * input if log_input else input - target * (input + eps).log()
    if full:
        stirling = target * target.log() - target + 0.5 * (2 * math.pi * target).log()
        loss = loss + stirling.masked_fill(target <= 1, 0)
    return _reduce(loss, reduction)


def _gaussian_check(input: Tensor, var: Tensor) -> Tensor:
    """var in a shape that broadcasts over input; negative entries are refused."""
    if var.size() != input.size():
        if input.size()[:-1] == var.size():
            var = var.unsqueeze(-1)
        elif input.size()[:-1] != var.size()[:-1] or var.size(-1) != 1:
            if not (input.ndim == var.ndim and sum(a != b for a, b in zip(input.size(), var.size(), strict=True)) == 1 and 1 in var.size()):
                raise ValueError("var is of incorrect size")
    if (var < 0).any():
        raise ValueError("var has negative entry/entries")
    return var


def gaussian_nll_loss(input: Tensor, target: Tensor, var: Tensor | float, full: bool = False, eps: float = 1e-6,
                      reduction: str = "mean") -> Tensor:
    """(log(var) + (input - target)² / var) / 2 with var at least eps; full: plus log(2 pi) / 2."""
    if not isinstance(var, Tensor):
        if var < 0:
            raise ValueError("var has negative entry/entries")
        var = var * rushlight.ones_like(input)
    else:
        var = _gaussian_check(input, var)
    if reduction not in _ENUM:
        raise ValueError(reduction + " is not valid")
    var = var.clone()
    with rushlight.no_grad():
        var.clamp_(min=eps)
    loss = 0.5 * (var.log() + (input - target) ** 2 / var)
    if full:
        loss = loss + 0.5 * math.log(2 * math.pi)
    return _reduce(loss, reduction)


def margin_ranking_loss(input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0, size_average=None, reduce=None,
                        reduction: str = "mean") -> Tensor:
    """max(0, -target * (input1 - input2) + margin)."""
    if not input1.dim() == input2.dim() == target.dim():
        raise RuntimeError(f"margin_ranking_loss : All input tensors should have same dimension but got sizes: input1: {input1.size()}, "
                           "input2: "
                           f"{input2.size()}, target: {target.size()} ")
    loss = (-target * (input1 - input2) + margin).clamp_min(0)
    return _reduce(loss, _reduction_of(size_average, reduce, reduction))


def hinge_embedding_loss(input: Tensor, target: Tensor, margin: float = 1.0, size_average=None, reduce=None,
                         reduction: str = "mean") -> Tensor:
    """input where target is 1, max(0, margin - input) where it is -1."""
    zero = rushlight.zeros_like(input)
    loss = rushlight.where(target != 1, (margin - input).clamp_min(0), zero) + rushlight.where(target != -1, input, zero)
    return _reduce(loss, _reduction_of(size_average, reduce, reduction))


def cosine_embedding_loss(input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0, size_average=None, reduce=None,
                          reduction: str = "mean") -> Tensor:
    """1 - cos where target is 1, max(0, cos - margin) where it is -1."""
    if target.dim() not in (0, 1):
        raise RuntimeError("0D or 1D target tensor expected, multi-target not supported")
    if target.dim() == 1 and input1.dim() != 2 or target.dim() == 0 and input1.dim() != 1:
        raise RuntimeError(f"{target.dim()}D target tensor expects {target.dim() + 1}D input tensors, but found inputs with sizes "
                           f"{list(input1.size())} and {list(input2.size())}.")
    eps = 1e-12
    cos = (input1 * input2).sum(-1) / (((input1 * input1).sum(-1) + eps) * ((input2 * input2).sum(-1) + eps)).sqrt()
    zero = rushlight.zeros_like(cos)
    loss = rushlight.where(target == 1, 1 - cos, zero) + rushlight.where(target == -1, (cos - margin).clamp_min(0), zero)
    return _reduce(loss, _reduction_of(size_average, reduce, reduction))


def soft_margin_loss(input: Tensor, target: Tensor, size_average=None, reduce=None, reduction: str = "mean") -> Tensor:
    """log(1 + exp(-target * input))."""
    loss = (-target * input).exp().log1p()
    return _reduce(loss, _reduction_of(size_average, reduce, reduction))


def _margin_shapes(input: Tensor, target: Tensor, name: str, like_input: bool) -> tuple[int, int]:
    """(rows, classes) of (N, C) or (C); the target has one entry a row, or the input's shape."""
    rows, classes = (1, input.numel()) if input.dim() <= 1 else tuple(input.shape)[:2]
    if input.dim() > 2 or classes == 0:
        raise RuntimeError(f"Expected non-empty vector or matrix with optional 0-dim batch size, but got: {list(input.shape)}")
    if like_input and target.shape != input.shape:
        raise RuntimeError(f"inconsistent target size: {list(target.shape)} for input of size: {list(input.shape)}")
    if not like_input and (target.dim() > 1 or target.numel() != rows):
        raise RuntimeError(f"{name}: target tensor should be 1-D with size equal to the number of input samples (batch size). Expected target "
                           f"size [{rows}], but got {list(target.shape)}. Input has shape {list(input.shape)}.")
    return rows, classes


def multi_margin_loss(input: Tensor, target: Tensor, p: int = 1, margin: float = 1.0, weight: Tensor | None = None, size_average=None,
                      reduce=None, reduction: str = "mean") -> Tensor:
    """sum over j != y of max(0, margin - x[y] + x[j])^p / C, times weight[y]: (N, C) and (N)."""
    if size_average is not None or reduce is not None:
        reduction = _reduction_of(size_average, reduce, reduction)
    if p not in (1, 2):
        raise ValueError("only p == 1 and p == 2 supported")
    if weight is not None and weight.dim() != 1:
        raise ValueError("weight must be one-dimensional")
    rows, classes = _margin_shapes(input, target, "multi_margin_loss", False)
    x, y = input.reshape(rows, classes), target.reshape(rows, 1)
    if y.numel() and (int(y.min()) < 0 or int(y.max()) >= classes):
        raise RuntimeError("target out of range")
    z = (margin - x.gather(1, y) + x).clamp_min(0)
    z = z * z if p == 2 else z
    if weight is not None:
        z = z * weight[y]
    mask = rushlight.ones_like(x).scatter_(1, y, 0.0)
    loss = (z * mask).sum(1) / classes
    return _reduce(loss if input.dim() == 2 or reduction != "none" else loss.reshape(()), reduction)


def multilabel_margin_loss(input: Tensor, target: Tensor, size_average=None, reduce=None, reduction: str = "mean") -> Tensor:
    """sum over labels y and non-labels j of max(0, 1 - x[y] + x[j]) / C; a row of target ends at its first -1."""
    if size_average is not None or reduce is not None:
        reduction = _reduction_of(size_average, reduce, reduction)
    rows, classes = _margin_shapes(input, target, "multilabel_margin_loss", True)
    x, t = input.reshape(rows, classes), target.reshape(rows, classes)
    valid = (t < 0).to(rushlight.int64).cumsum(1) == 0
    y = t.clamp(min=0)
    if y.numel() and int(y.max()) >= classes:
        raise RuntimeError("argument #2 'target' is out of range")
    is_label = rushlight.zeros(rows, classes, dtype=rushlight.int64).scatter_add_(1, y, valid.to(rushlight.int64)) > 0
    z = (1 - x.gather(1, y).unsqueeze(2) + x.unsqueeze(1)).clamp_min(0)
    mask = (valid.unsqueeze(2) & ~is_label.unsqueeze(1)).to(x.dtype)
    loss = (z * mask).sum(2).sum(1) / classes
    return _reduce(loss if input.dim() == 2 or reduction != "none" else loss.reshape(()), reduction)


def multilabel_soft_margin_loss(input: Tensor, target: Tensor, weight: Tensor | None = None, size_average=None, reduce=None,
                                reduction: str = "mean") -> Tensor:
    """The mean over the last dimension of the binary cross entropy of logits."""
    from .functional import logsigmoid
    if size_average is not None or reduce is not None:
        reduction = _reduction_of(size_average, reduce, reduction)
    loss = -(target * logsigmoid(input) + (1 - target) * logsigmoid(-input))
    if weight is not None:
        loss = loss * weight
    return _reduce(loss.sum(-1) / input.size(-1), reduction)


def triplet_margin_loss(anchor: Tensor, positive: Tensor, negative: Tensor, margin: float = 1.0, p: float = 2, eps: float = 1e-6,
                        swap: bool = False, size_average=None, reduce=None, reduction: str = "mean") -> Tensor:
    """max(0, d(a, p) - d(a, n) + margin); swap: d(a, n) is the smaller of d(a, n) and d(p, n)."""
    from .functional import pairwise_distance
    if size_average is not None or reduce is not None:
        reduction = _reduction_of(size_average, reduce, reduction)
    if margin <= 0:
        raise ValueError(f"margin must be greater than 0, got {margin}")
    return triplet_margin_with_distance_loss(anchor, positive, negative, margin=margin, swap=swap, reduction=reduction,
                                             distance_function=lambda a, b: pairwise_distance(a, b, p, eps))


def triplet_margin_with_distance_loss(anchor: Tensor, positive: Tensor, negative: Tensor, *, distance_function=None, margin: float = 1.0,
                                      swap: bool = False, reduction: str = "mean") -> Tensor:
    """triplet_margin_loss with a distance of one's own."""
    from .functional import pairwise_distance
    distance = pairwise_distance if distance_function is None else distance_function
    if margin <= 0:
        raise ValueError(f"margin must be greater than 0, got {margin}")
    dims = anchor.ndim, positive.ndim, negative.ndim
    if not dims[0] == dims[1] == dims[2]:
        raise RuntimeError("The anchor, positive, and negative tensors are expected to have the same number of dimensions, but got: "
                           "anchor "
                           f"{dims[0]}D, positive {dims[1]}D, and negative {dims[2]}D inputs")
    to_positive, to_negative = distance(anchor, positive), distance(anchor, negative)
    if swap:
        to_negative = rushlight.minimum(to_negative, distance(positive, negative))
    return _reduce((margin + to_positive - to_negative).clamp_min(0), reduction)
