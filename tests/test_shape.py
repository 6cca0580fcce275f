"""Views, joins and copies: values and strides against NumPy, gradients through linearity, names and errors as recorded from PyTorch 2.13.

Every operator here is linear, so one exact identity checks both orders of its gradient: for g = vjp(w), g . h == w . f(h), and the
derivative of g . h with respect to w is f(h) itself. Values are small integers in float64: no tolerance is needed.
"""
from __future__ import annotations

import numpy as np
import pytest
import rushlight as rl

# name, the operator on a (3, 4) tensor, the same on an array, the class of its node
VIEWS = [
    ("view", lambda x: x.view(4, 3), lambda a: a.reshape(4, 3), "ViewBackward0"),
    ("view -1", lambda x: x.view(2, -1), lambda a: a.reshape(2, 6), "ViewBackward0"),
    ("view_as", lambda x: x.view_as(rl.zeros(6, 2)), lambda a: a.reshape(6, 2), "ViewBackward0"),
    ("reshape", lambda x: x.reshape(12), lambda a: a.reshape(12), "ViewBackward0"),
    ("flatten", lambda x: x.flatten(), lambda a: a.reshape(12), "ViewBackward0"),
    ("unflatten", lambda x: x.unflatten(1, (2, -1)), lambda a: a.reshape(3, 2, 2), "ViewBackward0"),
    ("ravel", lambda x: x.ravel(), lambda a: a.ravel(), "ViewBackward0"),
    ("permute", lambda x: x.permute(1, 0), lambda a: a.T, "PermuteBackward0"),
    ("T", lambda x: x.T, lambda a: a.T, "PermuteBackward0"),
    ("mT", lambda x: x.mT, lambda a: a.T, "TransposeBackward0"),
    ("t", lambda x: x.t(), lambda a: a.T, "TBackward0"),
    ("transpose", lambda x: x.transpose(0, -1), lambda a: a.T, "TransposeBackward0"),
    ("swapaxes", lambda x: x.swapaxes(0, 1), lambda a: a.T, "TransposeBackward0"),
    ("adjoint", lambda x: x.adjoint(), lambda a: a.T, "TransposeBackward0"),
    ("movedim", lambda x: x.movedim(0, 1), lambda a: np.moveaxis(a, 0, 1), "PermuteBackward0"),
    ("expand", lambda x: x.expand(2, 3, 4), lambda a: np.broadcast_to(a, (2, 3, 4)), "ExpandBackward0"),
    ("expand -1", lambda x: x[:, :1].expand(-1, 5), lambda a: np.broadcast_to(a[:, :1], (3, 5)), "ExpandBackward0"),
    ("broadcast_to", lambda x: x.broadcast_to(2, 3, 4), lambda a: np.broadcast_to(a, (2, 3, 4)), "ExpandBackward0"),
    ("squeeze", lambda x: x[None].squeeze(), lambda a: a, "SqueezeBackward0"),
    ("squeeze dim", lambda x: x[None].squeeze(0), lambda a: a, "SqueezeBackward1"),
    ("squeeze dims", lambda x: x[None, :, None].squeeze((0, 2)), lambda a: a, "SqueezeBackward2"),
    ("unsqueeze", lambda x: x.unsqueeze(-1), lambda a: a[..., None], "UnsqueezeBackward0"),
    ("select", lambda x: x.select(1, -1), lambda a: a[:, -1], "SelectBackward0"),
    ("narrow", lambda x: x.narrow(1, 1, 2), lambda a: a[:, 1:3], "SliceBackward0"),
    ("slice", lambda x: x[1:, ::2], lambda a: a[1:, ::2], "SliceBackward0"),
    ("diagonal", lambda x: x.diagonal(), lambda a: a.diagonal(), "DiagonalBackward0"),
    ("diagonal 1", lambda x: x.diagonal(1), lambda a: a.diagonal(1), "DiagonalBackward0"),
    ("diagonal -1", lambda x: x.diagonal(-1, 1, 0), lambda a: a.diagonal(-1, 1, 0), "DiagonalBackward0"),
    ("as_strided", lambda x: x.as_strided((2, 3), (1, 2), 1),
     lambda a: np.stack([a.ravel()[1:6:2], a.ravel()[2:7:2]]), "AsStridedBackward0"),
    ("as_strided overlapping", lambda x: x.as_strided((2, 3), (1, 1)),
     lambda a: np.stack([a.ravel()[:3], a.ravel()[1:4]]), "AsStridedBackward0"),
    ("unfold", lambda x: x.unfold(1, 2, 1), lambda a: np.lib.stride_tricks.sliding_window_view(a, 2, 1), "UnfoldBackward0"),
    ("unbind", lambda x: x.unbind(1)[2], lambda a: a[:, 2], "UnbindBackward0"),
    ("split", lambda x: x.split(2)[1], lambda a: a[2:], "SplitBackward0"),
    ("split sizes", lambda x: x.split([1, 3], 1)[1], lambda a: a[:, 1:], "SplitWithSizesBackward0"),
    ("chunk", lambda x: x.chunk(3, 1)[1], lambda a: a[:, 2:], "SplitBackward0"),
    ("tensor_split", lambda x: x.tensor_split(2)[0], lambda a: a[:2], "SliceBackward0"),
    ("tensor_split at", lambda x: x.tensor_split((1, 3), 1)[1], lambda a: a[:, 1:3], "SliceBackward0"),
]
COPIES = [
    ("reshape of a transpose", lambda x: x.t().reshape(12), lambda a: a.T.reshape(12), "UnsafeViewBackward0"),
    ("clone", lambda x: x.clone(), lambda a: a, "CloneBackward0"),
    ("contiguous", lambda x: x.t().contiguous(), lambda a: a.T, "CloneBackward0"),
    ("cat", lambda x: rl.cat([x, x * 2, x[:, :1]], 1), lambda a: np.concatenate([a, a * 2, a[:, :1]], 1), "CatBackward0"),
    ("cat 0", lambda x: rl.cat([x, rl.zeros(0, dtype=x.dtype), x.t().reshape(3, 4)]),
     lambda a: np.concatenate([a, a.T.reshape(3, 4)]), "CatBackward0"),
    ("stack", lambda x: rl.stack([x, x * 3], 1), lambda a: np.stack([a, a * 3], 1), "StackBackward0"),
    ("stack strided", lambda x: rl.stack([x.t(), x.t()], -1), lambda a: np.stack([a.T, a.T], -1), "StackBackward0"),
    ("hstack", lambda x: rl.hstack([x[0], x[1]]), lambda a: np.hstack([a[0], a[1]]), "CatBackward0"),
    ("vstack", lambda x: rl.vstack([x[0], x]), lambda a: np.vstack([a[0], a]), "CatBackward0"),
    ("dstack", lambda x: rl.dstack([x, x]), lambda a: np.dstack([a, a]), "CatBackward0"),
    ("column_stack", lambda x: rl.column_stack([x, x[:, 0]]), lambda a: np.column_stack([a, a[:, 0]]), "CatBackward0"),
    ("repeat", lambda x: x.repeat(2, 1, 3), lambda a: np.tile(a, (2, 1, 3)), "RepeatBackward0"),
    ("tile", lambda x: x.tile(2), lambda a: np.tile(a, 2), "RepeatBackward0"),
    ("repeat_interleave", lambda x: x.repeat_interleave(2, 0), lambda a: a.repeat(2, 0), "ViewBackward0"),
    ("repeat_interleave by", lambda x: x.repeat_interleave(rl.tensor([0, 1, 2]), 0),
     lambda a: a.repeat([0, 1, 2], 0), "IndexSelectBackward0"),
    ("flip", lambda x: x.flip(0), lambda a: a[::-1], "FlipBackward0"),
    ("flip both", lambda x: x.t().flip(0, 1), lambda a: a.T[::-1, ::-1], "FlipBackward0"),
    ("roll", lambda x: x.roll(5), lambda a: np.roll(a, 5), "RollBackward0"),
    ("roll axes", lambda x: x.roll((1, -2), (0, 1)), lambda a: np.roll(a, (1, -2), (0, 1)), "RollBackward0"),
    ("tril", lambda x: x.tril(), lambda a: np.tril(a), "TrilBackward0"),
    ("triu", lambda x: x.triu(1), lambda a: np.triu(a, 1), "TriuBackward0"),
    ("diag", lambda x: x.diag(1), lambda a: np.diag(a, 1), "DiagonalBackward0_copy"),
    ("diag of a vector", lambda x: x[1].diag(-1), lambda a: np.diag(a[1], -1), "DiagEmbedBackward0"),
    ("diagflat", lambda x: x.diagflat(), lambda a: np.diagflat(a), "DiagEmbedBackward0"),
    ("diag_embed", lambda x: rl.diag_embed(x), lambda a: np.stack([np.diag(r) for r in a]), "DiagEmbedBackward0"),
    ("float", lambda x: x.float().double(), lambda a: a, "ToCopyBackward0"),
    ("select_scatter", lambda x: x.select_scatter(x[0, :3] * 2, 1, 1),
     lambda a: np.column_stack([a[:, 0], a[0, :3] * 2, a[:, 2:]]), "SelectScatterBackward0"),
    ("slice_scatter", lambda x: x.slice_scatter(x[:1] * 2, 0, 1, 2),
     lambda a: np.stack([a[0], a[0] * 2, a[2]]), "SliceScatterBackward0"),
]
IDS = {"ids": lambda c: c[0]}


def integers(shape, seed=0):
    return np.random.default_rng(seed).integers(-9, 10, shape).astype(np.float64)


@pytest.mark.parametrize("case", VIEWS + COPIES, **IDS)
@pytest.mark.parametrize("layout", ["contiguous", "transposed", "offset"])
def test_values(case, layout):
    a = integers((3, 4))
    x = rl.tensor(a.tolist(), dtype=rl.float64)
    if layout == "transposed":
        x = rl.tensor(a.T.tolist(), dtype=rl.float64).t()
    elif layout == "offset":
        x = rl.cat([rl.zeros(2, 4, dtype=rl.float64), x])[2:]
    if layout != "contiguous" and case[0].startswith("as_strided"):
        return  # counts through the storage, whatever the tensor's own strides
    if layout == "transposed" and case[0].startswith("view"):
        with pytest.raises(RuntimeError, match="view size is not compatible with input tensor's size and stride"):
            case[1](x)
        return
    got = case[1](x)
    np.testing.assert_array_equal(got.numpy(), case[2](a))
    assert got.dtype == rl.float64 and got.is_contiguous() == got.numpy().flags.c_contiguous


@pytest.mark.parametrize("case", VIEWS, **IDS)
def test_views_share_memory(case):
    x = rl.zeros(3, 4, dtype=rl.float64)
    v = case[1](x)
    assert v.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
    with rl.no_grad():
        x.fill_(7)
    assert (v == 7).all().item() and v._version == x._version


@pytest.mark.parametrize("case", VIEWS + COPIES, **IDS)
def test_gradients(case):
    x = rl.tensor(integers((3, 4), 1).tolist(), dtype=rl.float64, requires_grad=True)
    y = case[1](x)
    assert type(y.grad_fn).__name__ == case[3]
    w = rl.tensor(integers(tuple(y.shape), 2).tolist(), dtype=rl.float64).reshape(y.shape).requires_grad_()
    h = integers((3, 4), 3)
    (g,) = rl.autograd.grad(y, x, w, create_graph=True)
    assert g.shape == x.shape
    fh = case[2](h)
    assert (g.detach().numpy() * h).sum() == (w.detach().numpy() * fh).sum()
    (k,) = rl.autograd.grad(g, w, rl.tensor(h.tolist(), dtype=rl.float64))
    np.testing.assert_array_equal(k.numpy(), fh)


ERRORS = [
    ("x.view(5)", RuntimeError, "shape '[5]' is invalid for input of size 12"),
    ("x.view(-1, -1)", RuntimeError, "only one dimension can be inferred"),
    ("x.view(-2, 6)", RuntimeError, "invalid shape dimension -2 at index 0 of shape [-2, 6]"),
    ("x.view(-1, 0)", RuntimeError, "shape '[-1, 0]' is invalid for input of size 12"),
    ("rl.empty(0).view(-1, 0)", RuntimeError,
     "cannot reshape tensor of 0 elements into shape [-1, 0] because the unspecified dimension size -1"),
    ("x.permute(0)", RuntimeError, "input.dim() = 2 is not equal to len(dims) = 1"),
    ("x.permute(0, 0)", RuntimeError, "permute(): duplicate dims are not allowed."),
    ("x.permute(0, 2)", IndexError, "Dimension out of range (expected to be in range of [-2, 1], but got 2)"),
    ("x.transpose(0, -3)", IndexError, "Dimension out of range (expected to be in range of [-2, 1], but got -3)"),
    ("x.unsqueeze(5)", IndexError, "Dimension out of range (expected to be in range of [-3, 2], but got 5)"),
    ("x.expand(2)", RuntimeError,
     "expand(torch.FloatTensor{[3, 4]}, size=[2]): the number of sizes provided (1) must be greater or equal to"),
    ("x.expand(-1, 3, 4)", RuntimeError, "The expanded size of the tensor (-1) isn't allowed in a leading, non-existing dimension 0"),
    ("x.expand(5, 4)", RuntimeError, "The expanded size of the tensor (5) must match the existing size (3) at non-singleton dimension 0."),
    ("x.squeeze((0, 0))", RuntimeError, "dim 0 appears multiple times in the list of dims"),
    ("x.select(0, 3)", IndexError, "select(): index 3 out of range for tensor of size [3, 4] at dimension 0"),
    ("rl.tensor(1.).select(0, 0)", IndexError, "select() cannot be applied to a 0-dim tensor."),
    ("x.narrow(0, 0, 5)", RuntimeError, "start (0) + length (5) exceeds dimension size (3)."),
    ("x.narrow(0, 5, 1)", IndexError, "start out of range (expected to be in range of [-3, 3], but got 5)"),
    ("x.narrow(0, 0, -1)", RuntimeError, "narrow(): length must be non-negative."),
    ("x.as_strided((2,), (1, 1))", RuntimeError, "mismatch in length of strides and shape"),
    ("x.as_strided((20,), (1,))", RuntimeError, "requiring a storage size of 80 are out of bounds for storage of size 48"),
    ("x.as_strided((2,), (-1,))", RuntimeError, "as_strided: Negative strides are not supported at the moment, got strides: [-1]"),
    ("x.as_strided((2,), (2**62,))", RuntimeError, "overflow"),
    ("x.as_strided((2**40, 2**40), (0, 0), 2**63 - 1)", RuntimeError, "overflow"),
    ("x.diagonal(0, 1, 1)", RuntimeError, "diagonal dimensions cannot be identical 1, 1"),
    ("x.unfold(0, 5, 1)", RuntimeError, "maximum size for tensor at dimension 0 is 3 but size is 5"),
    ("x.unfold(0, 2, 0)", RuntimeError, "step is 0 but must be > 0"),
    ("x.split(-1)", RuntimeError, "split expects split_size be non-negative, but got split_size=-1"),
    ("x.split(0)", RuntimeError, "split_size can only be 0 if dimension size is 0, but got dimension size of 3"),
    ("x.split([1, 1])", RuntimeError, "split_with_sizes expects split_sizes to sum exactly to 3 (input tensor's size at dimension 0)"),
    ("x.chunk(0)", RuntimeError, "chunk expects `chunks` to be greater than 0, got: 0"),
    ("x.tensor_split(0)", RuntimeError, "number of sections must be larger than 0, got 0"),
    ("rl.tensor(1.).unbind()", IndexError, "Dimension specified as 0 but tensor has no dimensions"),
    ("rl.cat([])", ValueError, "torch.cat(): expected a non-empty list of Tensors"),
    ("rl.cat([x, rl.tensor(1.)])", RuntimeError, "zero-dimensional tensor (at position 1) cannot be concatenated"),
    ("rl.cat([x, x[0]])", RuntimeError, "Tensors must have same number of dimensions: got 2 and 1"),
    ("rl.cat([x, x.t()])", RuntimeError,
     "Sizes of tensors must match except in dimension 0. Expected size 4 but got size 3 for tensor number 1"),
    ("rl.stack([])", RuntimeError, "stack expects a non-empty TensorList"),
    ("rl.stack([x, x.t()])", RuntimeError, "stack expects each tensor to be equal size, but got [3, 4] at entry 0 and [4, 3] at entry 1"),
    ("x.repeat(2)", RuntimeError, "Number of dimensions of repeat dims can not be smaller than number of dimensions of tensor"),
    ("x.repeat(-1, 1)", RuntimeError, "Trying to create tensor with negative dimension -3: [-3, 4]"),
    ("x.repeat(2**62, 2**62)", RuntimeError, "overflow"),
    ("x.repeat_interleave(-1)", RuntimeError, "Repeats must be non-negative"),
    ("x.repeat_interleave(rl.tensor([1, -2, 3]), 0)", RuntimeError, "repeats can not be negative"),
    ("x.repeat_interleave(rl.tensor([1, 2]), 0)", RuntimeError, "but got repeats.size(0) = 2 and input.size(0) = 3"),
    ("x.flip(0, 0)", RuntimeError, "dim 0 appears multiple times in the list of dims"),
    ("x.roll((1, 2), 0)", RuntimeError, "shifts and dimensions must align. shifts: 2, dims:1"),
    ("rl.diag(rl.zeros(1, 1, 1))", RuntimeError, "diag(): Supports 1D or 2D tensors. Got 3D"),
    ("x.flatten(1, 0)", RuntimeError, "flatten() has invalid args: start_dim cannot come after end_dim"),
    ("x.unflatten(1, (3, 2))", RuntimeError,
     "unflatten: Provided sizes [3, 2] don't multiply up to the size of dim 1 (4) in the input tensor"),
    ("x.movedim((0, 0), (0, 1))", RuntimeError, "movedim: repeated dim in `source` ([0, 0])"),
    ("rl.zeros(1, 1, 1).t()", RuntimeError, "t() expects a tensor with <= 2 dimensions, but self is 3D"),
    ("x[0].tril()", RuntimeError, "tril: input tensor must have at least 2 dimensions"),
    ("x.copy_(rl.zeros(5))", RuntimeError, "The size of tensor a (4) must match the size of tensor b (5) at non-singleton dimension 1"),
    ("x.copy_(rl.zeros(1, 3, 4))", RuntimeError, "output with shape [3, 4] doesn't match the broadcast shape [1, 3, 4]"),
    ("x[:2].copy_(x[1:])", RuntimeError, "some elements of the input tensor and the written-to tensor refer to a single memory location"),
    ("x[0].expand(3, 4).copy_(x)", RuntimeError, "more than one element of the written-to tensor refers to a single memory location"),
    ("x.fill_(rl.zeros(2))", RuntimeError, "fill_ only supports 0-dimension value tensor but got tensor with 1 dimensions."),
    ("x[:, 1:].view(rl.float64)", RuntimeError, "self.size(-1) must be divisible by 2 to view Float as Double"),
    ("x.item()", RuntimeError, "a Tensor with 12 elements cannot be converted to Scalar"),
    ("rl.arange(0, -1)", RuntimeError, "upper bound and lower bound inconsistent with step sign"),
    ("rl.arange(0, 1, 0)", RuntimeError, "step must be nonzero"),
    ("rl.arange(float('inf'))", RuntimeError, "unsupported range: 0 -> inf"),
    ("rl.linspace(0, 1, -1)", RuntimeError, "number of steps must be non-negative"),
    ("rl.eye(-1)", RuntimeError, "n must be greater or equal to 0, got -1"),
    ("rl.empty_strided((2,), (1, 1))", RuntimeError, "dimensionality of sizes (1) must match dimensionality of strides (2)"),
    ("x.repeat_interleave(rl.tensor([1, 2, 3]), 0, output_size=7)", RuntimeError, "allocated size does not match required size"),
    ("x.repeat_interleave(rl.ones(3), 0)", NotImplementedError, "\"repeat_interleave_cpu\" not implemented for 'Float'"),
    ("x.repeat_interleave(2**62)", RuntimeError, "overflow"),
    ("rl.repeat_interleave(rl.ones(2, 2).long())", RuntimeError, "repeat_interleave only accept 1D vector as repeat"),
    ("x.split([4, -1])", RuntimeError, "split_with_sizes expects split_sizes have only non-negative entries, but got split_sizes=[4, -1]"),
    ("x.split([2**63 - 1, 4])", RuntimeError, "split_with_sizes expects split_sizes to sum exactly to 3"),
    ("rl.tensor(1.).split(1)", RuntimeError, "split expects at least a 1-dimensional tensor"),
    ("rl.tensor(1.).chunk(1)", RuntimeError, "chunk expects at least a 1-dimensional tensor"),
    ("rl.tensor(1.).tensor_split(1)", RuntimeError, "tensor_split expected at least a 1-dimensional tensor, but got a tensor with 0 dims"),
    ("x.tensor_split(rl.ones(2))", RuntimeError, "tensor_split expected tensor_indices_or_sections to have dtype of long"),
    ("x.tensor_split(rl.ones(2, 2).long())", RuntimeError, "a zero-dimensional or one-dimensional tensor, but got a tensor with 2 dims"),
    ("x.slice_scatter(x[:1], 0, 1)", RuntimeError, "expected src to have a size equal to the slice of self. src size = [1, 4], slice size = [2, 4]"),
    ("x.unfold(0, -1, 1)", RuntimeError, "size is -1 but must be >= 0"),
    ("x.unflatten(1, (-1, -1))", RuntimeError, "only one dimension can be inferred"),
    ("x.unflatten(1, ())", RuntimeError, "unflatten: sizes must be non-empty"),
    ("x[0].adjoint()", RuntimeError, "tensor.adjoint() is only supported on matrices or batches of matrices. Got 1-D tensor."),
    ("rl.tensor(1.)[0:1]", IndexError, "slice() cannot be applied to a 0-dim tensor."),
    ("rl.tensor(1.).view(rl.int16)", RuntimeError, "self.dim() cannot be 0 to view Float as Short (different element sizes)"),
    ("x[:, ::2].view(rl.int16)", RuntimeError, "self.stride(-1) must be 1 to view Float as Short (different element sizes), but got 2"),
    ("x.flatten()[1:11].view(rl.float64)", RuntimeError, "self.storage_offset() must be divisible by 2 to view Float as Double"),
    ("x.as_strided((2, 2), (3, 1)).view(rl.float64)", RuntimeError, "self.stride(0) must be divisible by 2 to view Float as Double"),
    ("x.t().contiguous(memory_format=rl.preserve_format)", RuntimeError, "preserve memory format is unsupported by the contiguous operator"),
    ("x.to(memory_format=rl.channels_last)", RuntimeError, "required rank 4 tensor to use channels_last format"),
    ("rl.empty((2,), memory_format=rl.preserve_format)", RuntimeError, "unsupported memory format Preserve"),
    ("x.detach().resize_(-1)", RuntimeError, "-1"),
    ("x.detach().resize_(2**62, 2)", RuntimeError, "overflow"),
    ("x.new_empty_strided((2,), (1, 1))", RuntimeError, "dimensionality of sizes (1) must match dimensionality of strides (2)"),
    ("rl.arange(0, 5, 0.5, dtype=rl.int64)", ValueError, "step must be nonzero"),
    ("rl.arange(0, 1e30, 1e-5)", RuntimeError, "invalid size, possible overflow?"),
    ("rl.linspace(rl.ones(1), 2, 3)", RuntimeError, "linspace only supports 0-dimensional start and end tensors, but got start with 1"),
    ("rl.tril_indices(-1, 3)", RuntimeError, "row must be non-negative, got-1"),
    ("rl.triu_indices(3, 3, dtype=rl.float32)", NotImplementedError, "not implemented for 'Float'"),
    ("rl.zeros([1] * 64).unsqueeze(0)", RuntimeError, "tensors have at most 64 dimensions, got 65"),
    ("rl.zeros([1] * 64).unfold(0, 1, 1)", RuntimeError, "tensors have at most 64 dimensions, got 65"),
    ("rl.zeros(3).diag(2**63 - 1)", RuntimeError, "out of range"),
    ("rl.zeros(2, dtype=rl.int64, out=rl.empty(0, dtype=rl.int32))", RuntimeError,
     "dtype Long does not match dtype of out parameter (Int)"),
]


@pytest.mark.parametrize("case", ERRORS, **IDS)
def test_errors_change_nothing(case):
    x = rl.arange(12.0).reshape(3, 4)
    with pytest.raises(case[1]) as e:
        eval(case[0], {"rl": rl, "x": x})
    assert case[2].replace("torch.", "") in str(e.value).replace("torch.", "").replace("rushlight.", "")
    assert x.tolist() == np.arange(12.0).reshape(3, 4).tolist() and x.stride() == (4, 1)


# ---- corners ----
def test_zero_dimensional():
    x = rl.tensor(2.0)
    assert x.squeeze(0).shape == x.permute(()).shape == x.transpose(0, -1).shape == x.t().shape == ()
    assert x.flatten().shape == x.unsqueeze(-1).shape == x.ravel().shape == x.unfold(0, 1, 1).shape == (1,)
    assert x.expand(2, 3).stride() == (0, 0) and x.repeat(2).tolist() == [2.0, 2.0] and x.roll(1).item() == 2.0


def test_empty_tensors():
    assert rl.zeros(2, 0).view(-1).shape == (0,) and rl.zeros(0).reshape(0, 3).shape == (0, 3)
    assert rl.cat([rl.zeros(2, 0), rl.ones(2, 3)], 1).tolist() == [[1.0] * 3] * 2
    assert rl.cat([rl.zeros(0), rl.ones(2, 3)]).shape == (2, 3) and rl.zeros(3).unfold(0, 0, 1).shape == (4, 0)
    assert [p.shape for p in rl.zeros(0, 2).split(3)] == [(0, 2)] and rl.zeros(2, 0).flip(0, 1).shape == (2, 0)


@pytest.mark.parametrize("n", [9, 12])
def test_more_dimensions_than_a_kernel_walks(n):
    order = [i for i in range(n) if i % 2] + [i for i in range(n) if i % 2 == 0]
    x = rl.arange(2**n).reshape([2] * n).permute(order).contiguous()
    np.testing.assert_array_equal(x.numpy(), np.arange(2**n).reshape([2] * n).transpose(order))


def test_more_parts_than_a_node_has_outputs():
    x = rl.ones(40_000, 1, requires_grad=True)
    parts = x.unbind()
    assert len(parts) == 40_000
    (parts[7] * 2 + parts[39_999]).sum().backward()
    assert x.grad[7].item() == 2 and x.grad[39_999].item() == 1 and x.grad[8].item() == 0


def test_results_of_mixed_dtypes():
    assert rl.cat([rl.ones(2), rl.ones(1, dtype=rl.int64)]).dtype == rl.float32
    assert rl.stack([rl.ones(2, dtype=rl.int8), rl.ones(2, dtype=rl.uint8)]).dtype == rl.int16
    x, y = rl.ones(2, requires_grad=True), rl.ones(2, dtype=rl.float64, requires_grad=True)
    rl.cat([x, y * 2]).sum().backward()
    assert x.grad.dtype == rl.float32 and y.grad.tolist() == [2.0, 2.0] and y.grad.dtype == rl.float64


def test_views_of_other_dtypes():
    x = rl.tensor([1.0, -2.0])
    assert x.view(rl.int32).tolist() == [0x3F800000, -0x40000000]
    assert x.view(rl.uint8).shape == (8,) and rl.zeros(2, 8, dtype=rl.uint8).view(rl.float64).shape == (2, 1)
    x.view(rl.int32)[0] = 0
    assert x.tolist() == [0.0, -2.0]


def test_rarer_spellings():
    x = rl.arange(12.0).reshape(3, 4)
    assert rl.repeat_interleave(rl.tensor([1, 0, 2])).tolist() == [0, 2, 2]
    assert [p.tolist() for p in rl.arange(5).tensor_split(rl.tensor([1, 3]))] == [[0], [1, 2], [3, 4]]
    assert [p.numel() for p in rl.arange(5).tensor_split(rl.tensor(2))] == [3, 2]
    assert rl.arange(2).unflatten(0, (1, -1)).flatten(0, 1).tolist() == [0, 1] and x[None].flatten(0, 1).shape == (3, 4)
    assert x.to(rl.zeros(1, dtype=rl.int16)).dtype == rl.int16 and x.type_as(x) is x and x.contiguous(memory_format=rl.preserve_format) is x
    assert rl.empty(2, 3, 4, 5, memory_format=rl.channels_last).stride() == (60, 1, 15, 3)
    assert rl.linspace(rl.tensor(0.0), rl.tensor(2), 3).tolist() == [0, 1, 2]
    assert x[:, :: 2**62].tolist() == x[:, :1].tolist() and x.unfold(0, 2, 2**62).shape == (1, 4, 2)
    y = rl.arange(6.0)
    y[::2].copy_(y[1:4])  # may overlap: the source is copied aside
    assert y.tolist() == [1, 1, 2, 3, 3, 5]


def test_read_only_memory_is_not_written():
    a = np.arange(3.0)
    a.flags.writeable = False
    with pytest.warns(UserWarning):
        x = rl.from_numpy(a)
    for write in (lambda: x.zero_(), lambda: x.fill_(1), lambda: x.copy_(rl.ones(3)), lambda: x.add_(1), lambda: rl.add(x, 1, out=x)):
        with pytest.raises(RuntimeError, match="memory is read-only"):
            write()
    assert a.tolist() == [0, 1, 2]


def test_arange_lengths_and_dtypes():
    assert rl.arange(5).dtype == rl.int64 and rl.arange(5.0).dtype == rl.float32 and rl.arange(0, 1, 0.25).tolist() == [0, 0.25, 0.5, 0.75]
    assert rl.arange(1, 2.5, 0.5).tolist() == [1, 1.5, 2] and rl.arange(5, 0, -2).tolist() == [5, 3, 1] and rl.arange(3, 3).numel() == 0
    assert rl.arange(2.5, dtype=rl.int64).tolist() == [0, 1] and rl.arange(0, 5, 0.5, dtype=rl.int32).tolist() == [0] * 10
    assert rl.arange(0, -5, -1, dtype=rl.uint8).tolist() == [0, 255, 254, 253, 252]
    with pytest.raises(NotImplementedError):
        rl.arange(5, dtype=rl.bool)


def test_linspace_logspace_eye():
    np.testing.assert_array_equal(rl.linspace(-1, 1, 5).numpy(), np.linspace(-1, 1, 5, dtype=np.float32))
    assert rl.linspace(0, 10, 5, dtype=rl.int32).tolist() == [0, 2, 5, 7, 10] and rl.linspace(3, 9, 1).tolist() == [3.0]
    assert rl.logspace(0, 3, 4).tolist() == [1, 10, 100, 1000] and rl.logspace(0, 3, 4, base=2).tolist() == [1, 2, 4, 8]
    assert rl.logspace(0, 3, 7, dtype=rl.int32).tolist() == [1, 3, 10, 31, 100, 316, 1000]
    assert rl.eye(2, 3).tolist() == [[1, 0, 0], [0, 1, 0]] and rl.eye(2, dtype=rl.bool).tolist() == [[True, False], [False, True]]
    for make, numpy_make in ((rl.tril_indices, np.tril_indices), (rl.triu_indices, np.triu_indices)):
        for offset in (-9, -1, 0, 2, 9):
            np.testing.assert_array_equal(make(3, 4, offset).numpy(), np.stack(numpy_make(3, offset, 4)))


# ---- in place ----
def test_in_place_forms_of_views():
    cases = (("t_", (), "TBackward1"), ("transpose_", (0, 1), "TransposeBackward1"), ("unsqueeze_", (0,), "UnsqueezeBackward1"))
    for name, args, want in cases:
        x = rl.ones(2, 3, requires_grad=True)
        y = x * 2
        assert getattr(y, name)(*args) is y and type(y.grad_fn).__name__ == want
        y.sum().backward()
        assert x.grad.tolist() == [[2.0] * 3] * 2
    assert rl.zeros(1, 3, 1).squeeze_().shape == (3,)
    assert rl.zeros(2, 3).swapaxes_(0, 1).shape == (3, 2) and rl.arange(6).as_strided_((2, 2), (1, 2), 1).tolist() == [[1, 3], [2, 4]]


def test_writes_through_views():
    x = rl.arange(12.0).reshape(3, 4).clone().requires_grad_()
    y = x * 1
    v = y.t()
    v[1] = x[0, :3] * 5
    y[2].mul_(2)
    want = np.arange(12.0).reshape(3, 4)
    want[:, 1] = want[0, :3] * 5
    want[2] *= 2
    np.testing.assert_array_equal(y.detach().numpy(), want)
    y.sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), [[6, 5, 11, 1], [1, 0, 1, 1], [2, 0, 2, 2]])


def test_outputs_of_one_operator_are_not_written():
    y = rl.ones(3, 2, requires_grad=True) * 1
    for part, name in ((y.unbind()[0], "Unbind"), (y.split(1)[0], "Split"), (y.chunk(2)[0], "Split")):
        with pytest.raises(RuntimeError, match=f"Output 0 of {name} is a view and is being modified inplace"):
            part.mul_(2)


def test_fill_zero_copy_and_detach():
    x = rl.ones(3, requires_grad=True)
    y = x * 1
    y.fill_(4.0)
    assert type(y.grad_fn).__name__ == "FillBackward2" and rl.autograd.grad(y.sum(), x)[0].tolist() == [0.0] * 3
    s = rl.tensor(2.0, requires_grad=True)
    assert rl.autograd.grad(rl.zeros(3).fill_(s).sum(), s)[0].item() == 3
    y = rl.zeros(2, 3).copy_(x)
    assert type(y.grad_fn).__name__ == "CopyBackwards" and rl.autograd.grad(y.sum(), x)[0].tolist() == [2.0] * 3
    y = (x * 2).detach_()
    assert y.is_leaf and not y.requires_grad
    assert rl.zeros(3).expand(2, 3).fill_(1).tolist() == [[1.0] * 3] * 2


def test_resize():
    x = rl.arange(6.0)
    x.resize_(2, 2)
    assert x.tolist() == [[0.0, 1.0], [2.0, 3.0]]
    x.resize_(3, 4)
    assert x.shape == (3, 4) and x.flatten()[:6].tolist() == [0, 1, 2, 3, 4, 5]
    with pytest.raises(RuntimeError, match="cannot resize variables that require grad"):
        rl.ones(2, requires_grad=True).resize_(3)
