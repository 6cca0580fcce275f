"""Runs a piece of work many times and says how memory and reference counts grew. A script of its own: one process for each kind of work.

    python leaks.py WORK      prints one line: bytes of resident memory, live tensor bytes, Python blocks, the least gained over any stretch of loops after the first
"""
from __future__ import annotations

import gc
import io
import os
import sys

import rushlight as rl
from rushlight import nn


def resident() -> int:
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def training_step():
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.1), nn.LayerNorm(16), nn.Linear(16, 4))
    optimizer = rl.optim.AdamW(model.parameters(), lr=1e-3)
    x, y = rl.randn(12, 8), rl.randint(0, 4, (12,))

    def work():
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.item()
    return work


def functions():
    x, y = rl.rand(6, 6).requires_grad_(), rl.rand(6, 6)
    names = [n for n in ("exp", "tanh", "relu", "sum", "mean", "softmax_", "sort", "cumsum", "std", "max", "norm", "abs", "sqrt", "t", "unbind", "chunk_") if n[-1] != "_"]

    def work():
        for n in names:
            r = getattr(x, n)(0) if n in ("cumsum",) else getattr(x, n)()
            r = r[0] if isinstance(r, (tuple, list)) else r
            r.sum().backward()
        z = x @ y + x[1] * y.t() - x[:, ::2].sum(1, keepdim=True)
        rl.cat([z, x]).softmax(0)[rl.tensor([0, 2])].sum().backward()
        x.grad = None
        x.tolist(), repr(y), y[y > 0.5], rl.stack([x, y]).std(dim=0)
    return work


def errors():
    x = rl.ones(3, requires_grad=True)

    def work():
        for bad in (lambda: x + rl.ones(4), lambda: x.view(2, 2), lambda: x[7], lambda: rl.ones(2, 3) @ rl.ones(2, 3), lambda: x.add_(1), lambda: rl.tensor([[1], [1, 2]]),
                    lambda: rl.zeros(-1), lambda: x.sum(5), lambda: (x * 2).backward(), lambda: rl.load(io.BytesIO(b"PK")), lambda: x.sum(dim="a")):
            try:
                bad()
            except Exception:
                continue
            raise AssertionError("no error")
    return work


def double_backward():
    def work():
        x = rl.rand(5, requires_grad=True)
        g, = rl.autograd.grad((x.exp() * x).sum(), x, create_graph=True)
        g.sum().backward()
        y = x.clone()
        y[1:3] *= 2
        y.sum().backward()
    return work


def custom_function():
    class Square(rl.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            ctx.result = y = x * x
            ctx.itself = ctx
            return y

        @staticmethod
        def backward(ctx, g):
            return 2 * g * ctx.saved_tensors[0]

    def work():
        x = rl.rand(4, requires_grad=True)
        Square.apply(x).sum().backward()
        h = x.register_hook(lambda g: g * 2)
        Square.apply(x).sum().backward()
        h.remove()
    return work


def files():
    model = nn.Linear(16, 16)

    def work():
        buffer = io.BytesIO()
        rl.save({"m": model.state_dict(), "l": [1, 2, {"x": rl.ones(3)}]}, buffer)
        buffer.seek(0)
        rl.load(buffer)
    return work


def loader():
    from rushlight.utils.data import DataLoader, TensorDataset
    data = DataLoader(TensorDataset(rl.rand(40, 3), rl.arange(40)), batch_size=8, shuffle=True)

    def work():
        for x, y in data:
            x.sum() + y.sum()
    return work


def wrappers():
    class Sub(rl.Tensor):
        pass

    def work():
        x = rl.ones(3).as_subclass(Sub)
        x.note = [x]
        y = x * 2
        y.me = y
        assert rl.ones(2).__dict__ == {}
    return work


def main(name: str, loops: int = 1000) -> None:
    work = globals()[name]()
    figures = []
    for _part in range(5):
        for _ in range(loops // 2):
            work()
        gc.collect()
        figures.append((resident(), rl._C._host_memory()["live_bytes"], sys.getallocatedblocks()))
    # The least growth of any stretch: free lists fill in some, a leak grows in each.
    print(*[min(b[k] - a[k] for a, b in zip(figures[1:], figures[2:])) for k in range(3)])


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
