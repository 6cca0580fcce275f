"""Products: every broadcasting, strides, degenerate sizes, dtypes, error texts, names of nodes, first and second order."""
from __future__ import annotations

import numpy as np
import pytest
import rushlight as rl
import rushlight.nn.functional as F
from rushlight.autograd import gradcheck, gradgradcheck

rng = np.random.default_rng(3)


def r(*shape):
    return rng.standard_normal(shape)


SHAPES = [((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 4)), ((2, 3), (3, 4)), ((5, 2, 3), (3,)), ((3,), (5, 3, 4)), ((5, 2, 3), (3, 4)),
          ((2, 3), (5, 3, 4)),
          ((5, 2, 3), (5, 3, 4)), ((1, 2, 3), (5, 3, 4)), ((5, 1, 2, 3), (4, 3, 6)), ((4, 2, 3), (5, 1, 3, 2)), ((2, 1, 3, 2, 3), (5, 1,
                                                                                                                                   3, 4)), ((7, 1, 3), (7, 3, 1))]


@pytest.mark.parametrize("a, b", SHAPES)
def test_matmul_broadcasts(a, b):
    x, y = r(*a), r(*b)
    got = rl.matmul(rl.from_numpy(x), rl.from_numpy(y))
    np.testing.assert_allclose(got.numpy(), np.matmul(x, y), rtol=1e-12, atol=1e-12)
    assert got.is_contiguous()


@pytest.mark.parametrize("a, b", [s for s in SHAPES if len(s[0]) + len(s[1]) < 7])
def test_matmul_gradients(a, b):
    x, y = (rl.from_numpy(r(*s)).requires_grad_() for s in (a, b))
    assert gradcheck(rl.matmul, (x, y)) and gradgradcheck(rl.matmul, (x, y))


@pytest.mark.parametrize("dtype", [rl.float32, rl.float64, rl.float16, rl.bfloat16, rl.int64, rl.int32, rl.uint8])
@pytest.mark.parametrize("m, k, n", [(1, 1, 1), (4, 4, 4), (3, 17, 33), (65, 70, 9)])
def test_layouts_and_dtypes(dtype, m, k, n):
    a, b = rng.integers(-3, 4, (m, k)) % 251, rng.integers(0, 4, (k, n))
    want = a @ b
    for x in (rl.tensor(a).to(dtype), rl.tensor(a.T.copy()).to(dtype).t(), rl.tensor(np.repeat(a, 2, 1)).to(dtype)[:, ::2]):
        for y in (rl.tensor(b).to(dtype), rl.tensor(b.T.copy()).to(dtype).t(), rl.tensor(np.repeat(b, 2, 0)).to(dtype)[::2]):
            got = (x @ y).to(rl.float64).numpy()
            expect = want % 256 if dtype == rl.uint8 else want
            np.testing.assert_allclose(got, expect, rtol=8e-3 if dtype == rl.bfloat16 else 1e-3 if dtype == rl.float16 else 0)


def test_expanded_operands():
    row, x = r(1, 3), r(3, 4)
    np.testing.assert_allclose((rl.from_numpy(row).expand(5, 3) @ rl.from_numpy(x)).numpy(), np.repeat(row, 5, 0) @ x)
    w = rl.from_numpy(x)
    np.testing.assert_allclose((rl.from_numpy(r(2, 5, 3)[:, :1]).expand(2, 6, 3) @ w.expand(2, 3, 4)).shape, (2, 6, 4))


def test_nothing_inside():
    assert (rl.ones(2, 0) @ rl.ones(0, 3)).tolist() == [[0, 0, 0]] * 2 and (rl.ones(0, 2) @ rl.ones(2, 3)).shape == (0, 3)
    assert rl.ones(0).dot(rl.ones(0)).item() == 0 and (rl.ones(4, 2, 0) @ rl.ones(4, 0, 3)).tolist() == [[[0] * 3] * 2] * 4
    assert rl.addmm(rl.ones(2, 2), rl.ones(2, 0), rl.ones(0, 2), beta=2).tolist() == [[2, 2], [2, 2]]
    assert F.linear(rl.ones(2, 0), rl.ones(3, 0), rl.tensor([1.0, 2, 3])).tolist() == [[1, 2, 3]] * 2 and F.linear(rl.ones(0, 4),
                                                                                                                   rl.ones(3,
                                                                                                                           4)).shape == (0, 3)


def test_addends():
    a, b, c = r(2, 3), r(3, 4), r(2, 4)
    ta, tb = rl.from_numpy(a), rl.from_numpy(b)
    for addend in (c, c[0], c[:, :1], np.float64(2.5), c[:1]):
        np.testing.assert_allclose(rl.addmm(rl.tensor(addend), ta, tb, beta=.5, alpha=3).numpy(), .5 * addend + 3 * (a @ b))
        np.testing.assert_allclose(rl.addmm(rl.tensor(addend), ta, tb).numpy(), addend + a @ b)
    assert rl.addmm(rl.full((2, 2), float("nan")), rl.ones(2, 2), rl.ones(2, 2), beta=0).tolist() == [[2, 2], [2, 2]]
    x, y = r(5, 2, 3), r(5, 3, 4)
    tx, ty, tc = rl.from_numpy(x), rl.from_numpy(y), rl.from_numpy(c)
    np.testing.assert_allclose(rl.baddbmm(tc, tx, ty, alpha=2).numpy(), c + 2 * (x @ y))
    np.testing.assert_allclose(rl.addbmm(tc, tx, ty, beta=2).numpy(), 2 * c + (x @ y).sum(0))
    np.testing.assert_allclose(rl.addmv(rl.from_numpy(c[:, 0].copy()), ta, tb[:, 0]).numpy(), c[:, 0] + a @ b[:, 0])
    np.testing.assert_allclose(rl.addr(tc, ta[:, 0], tb[0], alpha=-1).numpy(), c - np.outer(a[:, 0], b[0]))
    assert tc.addmm_(ta, tb) is tc
    np.testing.assert_allclose(tc.numpy(), c)  # from_numpy shares memory
    assert rl.ones(2, 2, dtype=rl.int64).addmm(rl.ones(2, 3, dtype=rl.int64), rl.ones(3, 2, dtype=rl.int64), alpha=2).tolist() == [[7,
                                                                                                                                    7], [7, 7]]


@pytest.mark.parametrize("f, shapes", [
    (lambda c, a, b: rl.addmm(c, a, b, beta=.5, alpha=3), ((4,), (2, 3), (3, 4))), (lambda c, a, b: rl.baddbmm(c, a, b, alpha=2), ((2,
                                                                                                                                    4), (5, 2, 3), (5, 3, 4))),
    (lambda c, a, b: rl.addbmm(c, a, b, alpha=2), ((2, 4), (5, 2, 3), (5, 3, 4))), (lambda c, a, b: rl.addmv(c, a, b, beta=3), ((2,),
                                                                                                                                (2,
                                                                                                                                 3), (3,))),
    (lambda c, a, b: rl.addr(c, a, b, beta=3, alpha=2), ((2, 3), (2,), (3,))), (lambda x, w, b: F.linear(x, w, b), ((2, 5, 3), (4, 3),
                                                                                                                    (4,))),
    (lambda x, w, b: F.linear(x, w, b), ((2, 3), (4, 3), (4,))), (lambda x, w, b: F.linear(x, w, b), ((3,), (4, 3), (4,))),
    (lambda x, w, b: F.linear(x, w) + b, ((5, 3), (4, 3), (1,))),
])
def test_gradients_with_addends(f, shapes):
    x = [rl.from_numpy(r(*s)).requires_grad_() for s in shapes]
    assert gradcheck(f, x) and gradgradcheck(f, x)


def test_linear_takes_any_layout():
    x, w, b = r(2, 4, 3), r(5, 3), r(5)
    want = x @ w.T + b
    for v in (rl.from_numpy(x), rl.from_numpy(x.transpose(1, 0, 2).copy()).transpose(0, 1), rl.from_numpy(np.repeat(x, 2, 2))[..., ::2]):
        for m in (rl.from_numpy(w), rl.from_numpy(w.T.copy()).t()):
            np.testing.assert_allclose(F.linear(v, m, rl.from_numpy(b)).numpy(), want)
            np.testing.assert_allclose(F.linear(v, m, rl.from_numpy(np.repeat(b, 2))[::2]).numpy(), want)
    np.testing.assert_allclose(F.linear(rl.from_numpy(x), rl.from_numpy(w), rl.tensor([2.0], dtype=rl.float64)).numpy(), x @ w.T + 2)
    assert F.linear(rl.ones(3), rl.ones(3)).item() == 3


def test_gradients_are_contiguous():
    x, w, b = rl.ones(4, 3), rl.ones(5, 3, requires_grad=True), rl.ones(5, requires_grad=True)
    F.linear(x, w, b).sum().backward()
    assert w.grad.is_contiguous() and w.grad.tolist() == [[4, 4, 4]] * 5 and b.grad.tolist() == [4] * 5


def test_names_of_nodes():
    m, v, b = rl.ones(3, 3, requires_grad=True), rl.ones(3, requires_grad=True), rl.ones(2, 3, 3, requires_grad=True)
    for y, name in ((m @ m, "MmBackward0"), (m @ v, "MvBackward0"), (v @ v, "DotBackward0"), (v @ m, "SqueezeBackward4"), (b @ m,
                                                                                                                           "UnsafeViewBackward0"),
                    (b.bmm(b), "BmmBackward0"), (rl.vdot(v, v), "VdotBackward0"), (rl.outer(v, v), "MulBackward0"), (F.linear(m, m, v),
                                                                                                                     "AddmmBackward0"),
                    (F.linear(m, m), "MmBackward0"), (F.linear(b, m, v), "ViewBackward0"), (rl.baddbmm(b, b, b), "BaddbmmBackward0")):
        assert y.grad_fn.name() == name


o = rl.ones


@pytest.mark.parametrize("call, kind, text", [
    (lambda: o(2, 3) @ o(4, 5), RuntimeError, "mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)"),
    (lambda: o(2, 3).mm(o(4, 5)), RuntimeError, "mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)"),
    (lambda: o(2, 3) @ o(5), RuntimeError, "size mismatch, got input (2), mat (2x3), vec (5)"),
    (lambda: o(5) @ o(2, 3), RuntimeError, "mat1 and mat2 shapes cannot be multiplied (1x5 and 2x3)"),
    (lambda: o(5) @ o(4), RuntimeError, "inconsistent tensor size, expected tensor [5] and src [4] to have the same number of elements, "
                                        "but got 5 and 4 elements "
                                        "respectively"),
    (lambda: o(5, 2, 3) @ o(4, 3, 5), RuntimeError, "The size of tensor a (5) must match the size of tensor b (4) at non-singleton "
                                                    "dimension 0"),
    (lambda: o(()) @ o(2), RuntimeError, "both arguments to matmul need to be at least 1D, but they are 0D and 1D"),
    (lambda: o(2, 2).dot(o(3)), RuntimeError, "1D tensors expected, but got 2D and 1D tensors"),
    (lambda: o(2).dot(o(2, dtype=rl.int64)), RuntimeError, "dot : expected both vectors to have same dtype, but found Float and Long"),
    (lambda: o(2, 3).mm(o(3, 2, dtype=rl.int64)), RuntimeError, "expected m1 and m2 to have the same dtype, but got: float != long int"),
    (lambda: o(2, 2, dtype=rl.bool) @ o(2, 2, dtype=rl.bool), NotImplementedError, "\"addmm_impl_cpu_\" not implemented for 'Bool'"),
    (lambda: o(2, 2).mm(o(2)), RuntimeError, "mat2 must be a matrix"),
    (lambda: o(2, 2, 3).bmm(o(2, 4, 2)), RuntimeError, "Expected size for first two dimensions of batch2 tensor to be: [2, 3] but got: "
                                                       "[2, 4]."),
    (lambda: o(2, 2).bmm(o(3, 2, 2)), RuntimeError, "batch1 must be a 3D tensor"),
    (lambda: F.linear(o(2, 3), o(4, 4)), RuntimeError, "mat1 and mat2 shapes cannot be multiplied (2x3 and 4x4)"),
    (lambda: F.linear(o(2, 3), o(4, 3), o(5)), RuntimeError, "The expanded size of the tensor (4) must match the existing size (5) at "
                                                             "non-singleton dimension 1.  "
                                                            "Target sizes: [2, 4].  Tensor sizes: [5]"),
    (lambda: rl.addmv(o(3), o(2, 2), o(2)), RuntimeError, "size mismatch, got input (3), mat (2x2), vec (2)"),
    (lambda: rl.outer(o(2, 2), o(2)), RuntimeError, "outer: Expected 1-D argument self, but got 2-D"),
    (lambda: rl.inner(o(2, 3), o(2, 2)), RuntimeError, "inner() the last dimension must match on both input tensors but got shapes [2, "
                                                       "3] and [2, 2]"),
    (lambda: rl.einsum("ij,jk->ik", o(2, 3), o(4, 5)), RuntimeError, "einsum(): subscript j has size 4 for operand 1 which does not "
                                                                     "broadcast with previously "
                                                                    "seen size 3"),
    (lambda: rl.einsum("ij->ijk", o(2, 3)), RuntimeError, "einsum(): output subscript k does not appear in the equation for any input "
                                                          "operand"),
])
def test_errors(call, kind, text):
    with pytest.raises(kind) as e:
        call()
    assert str(e.value) == text


@pytest.mark.parametrize("equation, shapes", [
    ("ij,jk->ik", ((2, 3), (3, 4))), ("ij,jk", ((2, 3), (3, 4))), ("bij,bjk->bik", ((5, 2, 3), (5, 3, 4))), ("ii->i", ((3, 3),)), ("ii",
                                                                                                                                   ((3,
                                                                                                                                     3),)),
    ("ij->ji", ((2, 3),)), ("ij->", ((2, 3),)), ("i,j->ij", ((2,), (3,))), ("...ij,...jk->...ik", ((5, 2, 3), (5, 3, 4))), ("...i->...",
                                                                                                                            ((2, 3),)),
    ("bn,anm,bm->ba", ((2, 3), (4, 3, 5), (2, 5))), ("ij,ij,ij->i", ((2, 3),) * 3), ("i,i,i", ((3,),) * 3), ("bij,jk->bik", ((5, 2, 3),
                                                                                                                             (3, 4))),
    ("...d,d->...", ((2, 4, 3), (3,))), ("hqd,hkd->hqk", ((2, 3, 4), (2, 5, 4))), ("ij,kj->", ((2, 3), (4, 3))), ("a,bb->b", ((2,), (3,
                                                                                                                                     3))),
])
def test_einsum(equation, shapes):
    arrays = [r(*s) for s in shapes]
    tensors = [rl.from_numpy(a).requires_grad_() for a in arrays]
    np.testing.assert_allclose(rl.einsum(equation, *tensors).detach().numpy(), np.einsum(equation, *arrays), rtol=1e-10, atol=1e-12)
    assert gradcheck(lambda *x: rl.einsum(equation, *x), tensors)


def test_einsum_sublists_and_size_one():
    a, b = rl.from_numpy(r(2, 3)), rl.from_numpy(r(3, 4))
    assert rl.allclose(rl.einsum(a, [0, 1], b, [1, 2], [0, 2]), a @ b) and rl.allclose(rl.einsum("ij,jk", [a, b]), a @ b)
    assert rl.allclose(rl.einsum("ij,ij->i", a, a[:, :1]), (a * a[:, :1]).sum(1))


def test_tensordot_kron_chain():
    a, b = r(2, 3, 4), r(4, 3, 5)
    np.testing.assert_allclose(rl.tensordot(rl.from_numpy(a), rl.from_numpy(b), ([2, 1], [0, 1])).numpy(), np.tensordot(a, b, ([2, 1],
                                                                                                                               [0, 1])))
    np.testing.assert_allclose(rl.tensordot(rl.from_numpy(a), rl.from_numpy(b[:, 0]), 1).numpy(), np.tensordot(a, b[:, 0], 1))
    np.testing.assert_allclose(rl.kron(rl.from_numpy(a[0]), rl.from_numpy(b[0])).numpy(), np.kron(a[0], b[0]))
    m = [r(2, 30), r(30, 3), r(3, 40), r(40, 2)]
    np.testing.assert_allclose(rl.linalg.multi_dot([rl.from_numpy(x) for x in m]).numpy(), m[0] @ m[1] @ m[2] @ m[3])
    np.testing.assert_allclose(rl.inner(rl.from_numpy(a), rl.from_numpy(b.transpose(2, 1, 0).copy())).numpy(), np.inner(a,
                                                                                                                        b.transpose(2,
                                                                                                                                    1, 0)))
