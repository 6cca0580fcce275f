"""Every allocation of a piece of work fails once: an exception each time, and afterwards everything still works."""
from __future__ import annotations

import pytest
import rushlight as rl
from rushlight import nn


def step(model, x, y):
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    return loss


def model_step():
    model = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))
    x, y = rl.ones(2, 4), rl.tensor([0, 2])
    return lambda: step(model, x, y)


def shapes():
    x = rl.arange(24.0).reshape(2, 3, 4).requires_grad_()

    def work():
        y = rl.cat([x.permute(2, 0, 1).contiguous(), x[:, 1].reshape(4, 2, 1).expand(4, 2, 3)], 2)
        y[1:3] *= 2
        return rl.stack([y.flip(0), y]).std() + y.softmax(-1).sum()
    return work


def second_order():
    x = rl.ones(3, requires_grad=True)

    def work():
        g, = rl.autograd.grad((x.exp() * x).sum(), x, create_graph=True)
        return rl.autograd.grad(g.sum(), x)[0]
    return work


def indexing():
    x = rl.arange(12.0).reshape(3, 4).requires_grad_()
    mask, rows = rl.tensor([True, False, True]), rl.tensor([0, 0, 2])
    return lambda: rl.autograd.grad((x[mask] * 2).sum() + x[rows, 1].sum() + x.gather(1, rl.zeros(3, 1, dtype=rl.int64)).sum() + x.sort()[0].sum(), x)


@pytest.mark.parametrize("make", [model_step, shapes, second_order, indexing])
def test_each_allocation_may_fail(make):
    work = make()
    work()
    rl._C._alloc_fail_after(10**9)
    work()
    total = rl._C._alloc_fail_after(0)
    assert total > 5
    for n in range(1, total + 1):
        rl._C._alloc_fail_after(n)
        try:
            work()
        except (MemoryError, RuntimeError) as e:
            assert "memory" in str(e) or isinstance(e, MemoryError), e
        finally:
            rl._C._alloc_fail_after(0)
    work()
