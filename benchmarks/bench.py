#!/usr/bin/env python3
"""Side-by-side benchmark: the same PyTorch-style code on two libraries, in one process.

    python bench.py                       # torch against rushlight, every case
    python bench.py --libs torch          # one library alone (a baseline)
    python bench.py --only add_small,mlp  # cases whose name contains one of the words
    python bench.py --json out.json
    python bench.py --table               # writes the table into the READMEs

Every case is written once against the PyTorch API and called with the library's
module, so both run the same lines. Runs are interleaved (A B B A ...), the figure is
the median of ROUNDS timed batches, the ratio is first library / second (above 1: the
second is faster). Results are compared before they are timed: a case whose values
differ is an error, not a figure. Figures hold only on a quiet machine: the script
prints the load before and after.
"""
import argparse
import gc
import importlib
import json
import os
import statistics
import subprocess
import sys
import time

ROUNDS = 15
CASES = {}


def case(bar, goal=None, tol=1e-4):
    """Register a case: `bar` is the ratio torch / rushlight below which it is a defect, `goal` the one we are after."""
    def deco(f):
        CASES[f.__name__] = (f, bar, goal or bar, tol)
        return f
    return deco


# --- one operator, its overhead ------------------------------------------------------
@case(12, 20)
def add_small(T):
    x, y = T.ones(8), T.ones(8)
    return lambda: x + y


@case(20, 40)
def add_scalar_small(T):
    x = T.ones(8)
    return lambda: x + 1


@case(12, 18)
def relu_small(T):
    x = T.ones(8)
    return lambda: T.relu(x)


@case(6, 10)
def view_small(T):
    x = T.ones(8)
    return lambda: x.view(2, 4)


@case(6, 12)
def zeros_small(T):
    return lambda: T.zeros(8)


@case(6, 12)
def tensor_from_list(T):
    return lambda: T.tensor([1.0, 2.0, 3.0, 4.0])


@case(10, 15)
def add_inplace_small(T):
    x, y = T.zeros(8), T.zeros(8)
    return lambda: x.add_(y)


@case(4, 8)
def mask_select_small(T):
    x = T.arange(8, dtype=T.float32)
    m = x > 3
    return lambda: x[m]


@case(6, 10)
def index_row(T):
    x = T.ones(8, 8)
    return lambda: x[3]


@case(6, 15)
def sum_item(T):
    x = T.ones(8)
    return lambda: x.sum().item()


@case(6, 12)
def matmul_4x4(T):
    a, b = T.ones(4, 4), T.ones(4, 4)
    return lambda: a @ b


@case(45, 80)
def autograd_chain_100(T):
    w = T.ones(8, requires_grad=True)

    def run():
        y = w
        for _ in range(100):
            y = y * w
        y.sum().backward()
        g = w.grad
        w.grad = None
        return g
    return run


@case(15, 25)
def linear_8_call(T):
    m = T.nn.Linear(8, 8)
    fill(T, m)
    x = T.ones(4, 8)
    return lambda: m(x)


# --- whole steps of small models -----------------------------------------------------
def fill(T, m):
    """The same weights in both libraries, whatever their initialisers."""
    with T.no_grad():
        for k, p in enumerate(m.parameters()):
            n = p.numel()
            v = T.arange(n, dtype=T.float32)
            p.copy_(((v * 0.7548776662 + 0.31 * k) % 1.0 - 0.5).reshape(p.shape) * (2.0 / max(p.shape[-1], 1)) ** 0.5)


def data(T, *shape, scale=1.0):
    n = 1
    for s in shape:
        n *= s
    return ((T.arange(n, dtype=T.float32) * 0.61803398875) % 1.0 - 0.5).reshape(*shape) * scale


def step(T, model, opt, loss_fn, x, y):
    def run():
        opt.zero_grad()
        loss = loss_fn(model(x), y)
        loss.backward()
        opt.step()
        return loss
    return run


@case(25, 50)
def seed_loop_step(T):
    """The tutorial's loop: Linear(10, 2), MSE, SGD, batch 5."""
    m = T.nn.Linear(10, 2)
    fill(T, m)
    return step(T, m, T.optim.SGD(m.parameters(), lr=0.01), T.nn.MSELoss(), data(T, 5, 10), data(T, 5, 2))


def tiny(T):
    nn = T.nn
    m = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 2))
    fill(T, m)
    return m


@case(20, 35)
def mlp_tiny_sgd_step(T):
    m = tiny(T)
    return step(T, m, T.optim.SGD(m.parameters(), lr=0.001), T.nn.CrossEntropyLoss(), data(T, 32, 2), T.arange(32) % 2)


@case(30, 50)
def mlp_tiny_adam_step(T):
    m = tiny(T)
    return step(T, m, T.optim.Adam(m.parameters(), lr=0.0001), T.nn.CrossEntropyLoss(), data(T, 32, 2), T.arange(32) % 2)


@case(1.5, 2.5)
def mlp_mnist_adam_step(T):
    nn = T.nn
    m = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
    fill(T, m)
    return step(T, m, T.optim.Adam(m.parameters(), lr=0.0001), nn.CrossEntropyLoss(), data(T, 64, 784), T.arange(64) % 10)


# --- matrix products -------------------------------------------------------------------
def mm(n, k, m, form):
    def make(T):
        a = data(T, n, k) if form[0] == "N" else data(T, k, n).t()
        b = data(T, k, m) if form[1] == "N" else data(T, m, k).t()
        return lambda: a @ b
    return make


for n, k, m, form, bar, goal in [(1024, 1024, 1024, "NN", 0.9, 1.05), (2048, 2048, 2048, "NN", 0.9, 1.2), (512, 512, 512, "NT", 0.9, 1.1),
                                 (64, 784, 128, "NT", 1.1, 1.5), (64, 128, 784, "TN", 1.1, 1.5), (32, 32, 32, "NN", 1.5, 3),
                                 (64, 64, 64, "NT", 1.2, 2), (128, 128, 128, "NT", 1.1, 1.5), (768, 128, 512, "NT", 1.0, 1.2)]:
    f = mm(n, k, m, form)
    f.__name__ = f"mm_{n}x{k}x{m}_{form}"
    case(bar, goal)(f)


# --- memory-bound operators -------------------------------------------------------------
BIG = (4096, 4096)


@case(3, 4)
def add_64mb(T):
    x, y = data(T, *BIG), data(T, *BIG)
    return lambda: x + y


@case(3, 4)
def gelu_64mb(T):
    x = data(T, *BIG, scale=4.0)
    return lambda: T.nn.functional.gelu(x)


@case(3, 4.5)
def softmax_64mb(T):
    x = data(T, *BIG, scale=4.0)
    return lambda: T.softmax(x, dim=-1)


@case(3, 4)
def layer_norm_64mb(T):
    x, w, b = data(T, *BIG), T.ones(BIG[1]), T.zeros(BIG[1])
    return lambda: T.nn.functional.layer_norm(x, (BIG[1],), w, b)


@case(3, 4.5)
def exp_64mb(T):
    x = data(T, *BIG)
    return lambda: T.exp(x)


@case(0.95, 1.1)
def sum_64mb(T):
    x = T.ones(*BIG)
    return lambda: x.sum()


@case(4, 10)
def transpose_copy_64mb(T):
    x = data(T, *BIG)
    return lambda: x.t().contiguous()


@case(2.5, 4)
def softmax_1mb(T):
    x = data(T, 512, 512, scale=4.0)
    return lambda: T.softmax(x, dim=-1)


@case(2.5, 4)
def gelu_1mb(T):
    x = data(T, 512, 512, scale=4.0)
    return lambda: T.nn.functional.gelu(x)


@case(5, 10)
def cross_entropy_2048x16384(T):
    x = data(T, 2048, 16384, scale=4.0).requires_grad_()
    y = (T.arange(2048) * 7) % 16384

    def run():
        x.grad = None
        T.nn.functional.cross_entropy(x, y).backward()
        return x.grad
    return run


def adamw(T, **kw):
    p = data(T, 1 << 22).requires_grad_()
    p.grad = data(T, 1 << 22)
    opt = T.optim.AdamW([p], lr=1e-5, **kw)

    def run():
        opt.step()
        return p
    return run


@case(1.5, 1.8)
def adamw_4m_default(T):
    return adamw(T)


# --- data loading -----------------------------------------------------------------------
def loader(T, workers):
    U = importlib.import_module(T.__name__ + ".utils.data")
    ds = U.TensorDataset(data(T, 10000, 784), T.arange(10000) % 10)
    dl = U.DataLoader(ds, batch_size=64, shuffle=True, num_workers=workers)

    def run():
        n = 0
        for x, _ in dl:
            n += x.shape[0]
        return T.tensor(float(n))
    return run


@case(10, 15)
def dataloader_10k_w0(T):
    return loader(T, 0)


@case(10, 20)
def dataloader_10k_w2(T):
    return loader(T, 2)


# --- measuring ----------------------------------------------------------------------------
def batch_time(f, n):
    t = time.perf_counter()
    for _ in range(n):
        f()
    return (time.perf_counter() - t) / n


def as_list(t):
    """Up to about 4,096 values spread over the whole tensor; a figure that a case returns as a number stands for itself."""
    if not hasattr(t, "detach"):
        return [float(t)]
    t = t.detach().reshape(-1)
    return [float(v) for v in t[:: max(1, t.numel() // 4096)].tolist()]


def close(a, b, tol):
    a, b = as_list(a), as_list(b)
    scale = max([1e-6] + [abs(v) for v in a])
    return len(a) == len(b) and all(abs(u - v) <= tol * scale or u == v for u, v in zip(a, b))


def measure(name, mods):
    make, bar, goal, tol = CASES[name]
    fs, row = [], {"case": name, "bar": bar, "goal": goal}
    for T in mods:
        try:
            fs.append(make(T))
        except Exception as e:  # a missing function is a result to report
            row["error"] = f"{T.__name__}: {type(e).__name__}: {e}"
            return row
    try:
        outs = [f() for f in fs]
        if len(outs) == 2 and not close(outs[0], outs[1], tol):
            row["error"] = "values differ"
            return row
        ns = []
        for f in fs:
            t = batch_time(f, 1)
            t = batch_time(f, 3) if t < 0.2 else t
            ns.append(max(1, min(20000, int(0.02 / max(t, 1e-8)))))
        gc.collect()
        samples = [[] for _ in fs]
        rounds = ROUNDS if max(batch_time(f, 1) for f in fs) < 0.5 else 5
        for r in range(rounds):
            order = range(len(fs)) if r % 2 == 0 else reversed(range(len(fs)))
            for i in order:
                time.sleep(0.005)  # let the other library's threads stop spinning
                samples[i].append(batch_time(fs[i], ns[i]))
    except Exception as e:
        row["error"] = f"{type(e).__name__}: {e}"
        return row
    for T, s in zip(mods, samples):
        row[T.__name__] = {"median_us": statistics.median(s) * 1e6, "min_us": min(s) * 1e6}
    if len(mods) == 2:
        a, b = (row[T.__name__]["median_us"] for T in mods)
        row["ratio"] = a / b
    return row


def imports(lib, n=7):
    """Median seconds and MiB of `import lib` above a bare interpreter."""
    probe = "{};print([int(l.split()[1]) / 1024 for l in open('/proc/self/status') if l.startswith('VmHWM')][0])"
    def once(stmt):
        t = time.perf_counter()
        out = subprocess.run([sys.executable, "-c", probe.format(stmt)], capture_output=True, text=True, check=True)
        return time.perf_counter() - t, float(out.stdout)
    bare = [once("pass") for _ in range(n)]
    full = [once(f"import {lib}") for _ in range(n + 1)][1:]
    med = lambda xs: statistics.median(xs)
    return {"seconds": med([t for t, _ in full]) - med([t for t, _ in bare]), "mib": med([m for _, m in full]) - med([m for _, m in bare])}


def table(rows, names):
    """The rows as a Markdown table: ratios, and microseconds of both."""
    lines = [f"| case | {names[0]} µs | {names[1]} µs | ratio | bar |", "|---|---:|---:|---:|---:|"]
    for r in rows:
        if r["case"] == "import":
            a, b = r[names[0]], r[names[1]]
            lines.append(f"| import | {a['seconds'] * 1e6:,.0f} | {b['seconds'] * 1e6:,.0f} | {a['seconds'] / b['seconds']:.0f} | 60 |")
        elif "ratio" in r:
            a, b = r[names[0]]["median_us"], r[names[1]]["median_us"]
            lines.append(f"| {r['case']} | {a:,.2f} | {b:,.2f} | {r['ratio']:.2f} | {r['bar']} |")
    return "\n".join(lines)


def write_tables(text):
    """Between the markers of both READMEs."""
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    for name in ("README.md", "README.zh-CN.md"):
        path = os.path.join(root, name)
        with open(path, encoding="utf-8") as f:
            page = f.read()
        head, rest = page.split("<!-- bench:begin -->")
        tail = rest.split("<!-- bench:end -->")[1]
        with open(path, "w", encoding="utf-8") as f:
            f.write(f"{head}<!-- bench:begin -->\n{text}\n<!-- bench:end -->{tail}")


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--libs", default="torch,rushlight", help="one or two importable modules, the reference first")
    ap.add_argument("--only", default="", help="comma-separated words; a case runs if its name contains one")
    ap.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    ap.add_argument("--json", default="")
    ap.add_argument("--no-import", action="store_true")
    ap.add_argument("--table", action="store_true", help="write the table into the READMEs")
    a = ap.parse_args()
    names = a.libs.split(",")
    mods = [importlib.import_module(n) for n in names]
    for n in names:
        for sub in (".nn", ".optim", ".utils.data"):
            importlib.import_module(n + sub)
    for T in mods:
        T.set_num_threads(a.threads)
    words = [w for w in a.only.split(",") if w]
    print(f"# threads {a.threads}, load {os.getloadavg()[0]:.2f}, " + ", ".join(f"{n} {m.__version__}" for n, m in zip(names, mods)))
    rows = []
    if not a.no_import and not words:
        r = {n: imports(n) for n in names}
        print("import           " + "   ".join(f"{n}: {v['seconds'] * 1e3:.1f} ms {v['mib']:.0f} MiB" for n, v in r.items()))
        rows.append({"case": "import", **r})
    for name in CASES:
        if words and not any(w in name for w in words):
            continue
        r = measure(name, mods)
        rows.append(r)
        if "error" in r:
            print(f"{name:28s} ERROR {r['error'][:150]}", flush=True)
        elif len(mods) == 2:
            print(f"{name:28s} {r[names[0]]['median_us']:12.2f} {r[names[1]]['median_us']:12.2f} us   x{r['ratio']:.2f}   bar x{r['bar']} goal x{r['goal']}"
                  + ("   below bar" if r["ratio"] < r["bar"] else "   below goal" if r["ratio"] < r["goal"] else ""), flush=True)
        else:
            print(f"{name:28s} {r[names[0]]['median_us']:12.2f} us (min {r[names[0]]['min_us']:.2f})", flush=True)
    print(f"# load after {os.getloadavg()[0]:.2f}")
    if a.table and len(names) == 2:
        write_tables(table(rows, names))
    if a.json:
        json.dump(rows, open(a.json, "w"), indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
