#!/usr/bin/env python3
"""Replay facts recorded from PyTorch on any module that looks like PyTorch.

    python replay.py --module torch [--part ops] [--only REGEX] [--supported] [--strict] [--show]

Each check passes, fails, or is missing (the module lacks the function, dtype or keyword, or raises NotImplementedError).
Failures give exit status 1; missing checks do so only under --strict. README.md describes the data. Needs numpy only.
"""
import argparse, collections, contextlib, faulthandler, functools, glob, importlib, json, math, os, re, sys, time, warnings
import numpy as np

TOLERANCE = {"float64": (1e-7, 1e-8), "float32": (2e-6, 1e-5), "float16": (2e-3, 1e-3), "bfloat16": (1.6e-2, 1e-2)}
SHORT = {"b": "bool", "u8": "uint8", "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64",
         "f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64"}
IGNORED = {"foreach", "fused", "capturable", "differentiable", "decoupled_weight_decay"}  # optimizer flags: how, not what
SUBMODULES = "nn nn.functional nn.init nn.utils.rnn optim.lr_scheduler optim.swa_utils autograd amp linalg special func utils.data"


class Wrong(Exception):
    """The result differs; with a second argument, only the wording of the right exception."""


def flat(value):
    """The leaves of a nested value, in order."""
    if hasattr(value, "batch_sizes"):  # a PackedSequence, whatever its class
        value = [value.data, value.batch_sizes, value.sorted_indices, value.unsorted_indices]
    return [leaf for v in value for leaf in flat(v)] if isinstance(value, (list, tuple)) else [value]


def name_of(dtype):
    return getattr(dtype, "__name__", str(dtype).rsplit(".", 1)[-1])


class Player:
    def __init__(self, module, part):
        self.mod, self.pool, self.plain = module, {}, functools.partial(re.sub, rf"\b{module.__name__}\.", "torch.")
        self.env = {"torch": module, "np": np, "math": math, "inf": math.inf, "nan": math.nan}
        for dtype, planes in np.load(part + ".npz").items() if os.path.exists(part + ".npz") else []:  # byte planes: see README
            self.pool[dtype] = np.ascontiguousarray(planes.T).view("uint16" if dtype == "bfloat16" else dtype).reshape(-1)

    def find(self, name):
        return functools.reduce(getattr, name.split(".")[1:], self.mod)

    def storage(self, ref):
        """The memory behind a tensor reference (bfloat16 as float32), and its strides."""
        dtype, at, shape = ref["t"]
        strides = ref.get("strides", [math.prod(shape[i + 1:]) for i in range(len(shape))])
        if isinstance(at, list):  # the values themselves
            return np.array(at, dtype="float32" if dtype == "bfloat16" else dtype), strides
        span = 0 if 0 in shape else 1 + sum((n - 1) * s for n, s in zip(shape, strides))
        raw = self.pool[dtype][at:at + ref.get("start", 0) + span]
        return ((raw.astype(np.uint32) << 16).view(np.float32) if dtype == "bfloat16" else raw.copy()), strides

    def array(self, ref):
        raw, strides = self.storage(ref)
        view = raw[ref.get("start", 0):], ref["t"][2], [s * raw.itemsize for s in strides]
        return np.array(np.lib.stride_tricks.as_strided(*view))

    def tensor(self, ref, leaves=None):
        dtype, strided = self.find("torch." + ref["t"][0]), "strides" in ref and hasattr(self.mod.Tensor, "as_strided")
        raw, strides = self.storage(ref) if strided else (self.array(ref), None)
        t = self.mod.from_numpy(raw) if hasattr(self.mod, "from_numpy") else self.mod.tensor(raw.tolist(), dtype=dtype)
        t = t if t.dtype == dtype else t.to(dtype)
        t = t.as_strided(ref["t"][2], strides, ref.get("start", 0)).detach() if strided else t
        if leaves is not None and ref.get("rg"):
            leaves.append(t.requires_grad_(True))
        return t

    def value(self, v, leaves=None):
        """JSON to a value; tensors marked rg require grad and are appended to `leaves` when that is a list."""
        if isinstance(v, list):
            return [self.value(x, leaves) for x in v]
        if not isinstance(v, dict) or "t" in v:
            return self.tensor(v, leaves) if isinstance(v, dict) else v
        (kind, x), = v.items()
        if kind == "call":  # [name, args, kwargs]
            return self.find(x[0])(*self.value(x[1], leaves), **self.value({"dict": x[2]}, leaves))
        if kind in ("tuple", "slice", "dict"):
            inner = self.value(list(x.values()) if kind == "dict" else x, leaves)
            return tuple(inner) if kind == "tuple" else slice(*inner) if kind == "slice" else dict(zip(x, inner))
        return {"attr": self.find, "float": float, "ellipsis": lambda _: ...}[kind](x)

    def arguments(self, case, leaves=None):
        return self.value(case["args"], leaves), self.value({"dict": case.get("kwargs", {})}, leaves)

    def execute(self, code, **names):
        (*lines, last), env = code.split("\n"), dict(self.env, **names)  # the last line is an expression: the result
        exec("\n".join(lines), env)
        return eval(last, env)

    def make(self, case):
        return eval(case["make"], dict(self.env, **{k: self.value(v) for k, v in case.get("vars", {}).items()}))

    def numbers(self, t):
        t = t.detach().to(self.mod.float32) if name_of(t.dtype) == "bfloat16" else t.detach()
        return t.numpy() if hasattr(t, "numpy") else np.array(t.tolist()).reshape(tuple(t.shape))

    def same(self, got, want, at="result", tol=None, loose=False):
        """Raise Wrong unless `got` is the recorded `want`. loose (optimizer state): a number may stand for a 0-dim tensor."""
        if isinstance(want, dict) and "t" in want:
            return self.same_tensor(got, want, at, tol, loose)
        if isinstance(want, dict):
            (kind, want), = want.items()
            if kind == "dict":
                got = {str(k): v for k, v in got.items()}
                if set(want) - set(got) - IGNORED or not loose and set(got) - set(want):
                    raise Wrong(f"{at}: keys {list(got)}, want {list(want)}")
                return [self.same(got[k], want[k], f"{at}[{k!r}]", tol, loose) for k in want if k not in IGNORED]
            got, want = (name_of(got), want.rsplit(".", 1)[-1]) if kind == "attr" else (got, float(want))
        if isinstance(want, list):
            got = flat(got) if hasattr(got, "batch_sizes") else got
            if hasattr(got, "dtype") or not hasattr(got, "__len__") or len(got) != len(want):
                raise Wrong(f"{at}: got {str(got)[:100]!r}, want {len(want)} items")
            return [self.same(g, w, f"{at}[{i}]", tol, loose) for i, (g, w) in enumerate(zip(got, want))]
        got = got.item() if loose and hasattr(got, "item") else self.plain(got) if isinstance(got, str) else got
        if isinstance(want, float) and isinstance(got, (int, float)):
            ok = np.isclose(got, want, *(tol or TOLERANCE["float64"]), equal_nan=True)
        else:
            ok = not hasattr(got, "dtype") and got == want and (loose or isinstance(got, bool) == isinstance(want, bool))
        if not ok:
            raise Wrong(f"{at}: got {got!r}, want {want!r}")

    def same_tensor(self, got, ref, at, tol, loose):
        want, dtype = self.array(ref), ref["t"][0]
        if loose and want.ndim == 0:  # a step count may be a number or a tensor of any dtype
            return self.same(float(got), float(want), at, TOLERANCE["float32"])
        kind, shape = name_of(getattr(got, "dtype", type(got))), list(getattr(got, "shape", []))
        if kind != dtype or shape != list(want.shape):
            raise Wrong(f"{at}: {kind} {shape}, want {dtype} {list(want.shape)}")
        ref.get("any") or self.near(self.numbers(got), want, dtype, at, tol)  # any: values are random, or left over

    def near(self, a, want, dtype, at, tol):
        rtol, atol = tol or TOLERANCE.get(dtype, (0, 0))
        if dtype in ("float16", "bfloat16"):
            atol = max(atol, rtol * np.max(np.abs(want[np.isfinite(want)]).astype("float64"), initial=0))
        double = lambda x: x.astype("float64")
        bad = ~np.isclose(double(a), double(want), rtol, atol, equal_nan=True) if dtype in TOLERANCE else a != want
        if np.any(bad):
            i = tuple(int(k) for k in np.argwhere(bad)[0])
            raise Wrong(f"{at}: {np.sum(bad)} of {want.size} values differ; at {list(i)} got {a[i]}, want {want[i]}")

    def op(self, case):  # this and the methods below, one for each kind of case, yield (name, function that returns or raises)
        for name in [case["op"]] + case.get("also", []):
            yield name, lambda name=name: self.forward(case, name)
            for order in [o for o in ("grad", "grad2") if o in case and (name == case["op"] or o == "grad" and name.endswith("_"))]:
                yield f"{name} [{order}]", lambda name=name, order=order: self.gradient(case, name, order)

    def call(self, name, args, kwargs):
        method = name.startswith("torch.Tensor.")
        f = getattr(args[0], name[13:]) if method else self.find(name)
        result = f(*args[method:], **kwargs) if callable(f) else f
        return args[0] if result is None else result

    def forward(self, case, name):
        args, kwargs = self.arguments(case)
        if name == "out=":
            out = [self.mod.zeros_like(self.value(w)) for w in ([case["out"]] if "t" in case["out"] else case["out"])]
            kwargs["out"], name = tuple(out) if len(out) > 1 else out[0], case["op"]
        result = self.call(name, args, kwargs)
        self.same([r.abs() for r in flat(result)] if "abs" in case else result, case["out"], tol=case.get("tol"))
        if name.endswith("_") and not name.endswith("__") and hasattr(args[0], "dtype") and result is not args[0]:
            raise Wrong("an in-place function must return its first argument")
        if "view" in case and name == case["op"] and hasattr(result, "data_ptr"):
            last = sum((n - 1) * s for n, s in zip(args[0].shape, args[0].stride())) * args[0].element_size()
            if not 0 <= result.data_ptr() - args[0].data_ptr() <= last:
                raise Wrong("must be a view of the first argument")
            self.same([s if n > 1 else 0 for n, s in zip(result.shape, result.stride())], case["view"], "stride")

    def gradient(self, case, name, order):
        leaves = []
        args, kwargs = self.arguments(case, leaves)
        if name.endswith("_"):
            args[0] = args[0].clone()  # a leaf that requires grad must not be written in place
        outs = [o.abs() if "abs" in case else o for o in flat(self.call(name, args, kwargs))]
        outs, cots = zip(*((o, self.tensor(c)) for o, c in zip(outs, case["cot"]) if c))
        if order == "grad2":
            grads = self.mod.autograd.grad(outs, leaves, cots, create_graph=True, allow_unused=True)
            outs, cots = zip(*((g, self.tensor(c)) for g, c in zip(grads, case["cot2"]) if c))
        self.mod.autograd.backward(list(outs), list(cots))
        self.same([leaf.grad for leaf in leaves], case[order], order, case.get("tol"))

    def module(self, case):
        for suffix in ["", " [grad]"] if any("grad" in step for step in case["steps"]) else [""]:
            yield case["name"] + suffix, lambda grad=bool(suffix): self.run_module(case, grad)

    def run_module(self, case, grad):
        m, tol = self.make(case), case.get("tol")
        m = m.to(self.find("torch." + case["dtype"])) if "dtype" in case else m
        if case["state"]:
            m.load_state_dict({k: self.value(v) for k, v in case["state"].items()})
        for number, step in enumerate(case["steps"]):
            m.train(step["train"])
            m.zero_grad()
            leaves = [] if grad else None
            args, kwargs = self.arguments(step, leaves)
            result = m(*args, **kwargs)
            self.same(result, step["out"], f"step {number}", tol)
            if grad and "grad" in step:
                pairs = [(o, self.tensor(c)) for o, c in zip(flat(result), step["cot"]) if c]
                self.mod.autograd.backward([o for o, _ in pairs], [c for _, c in pairs])
                self.same([leaf.grad for leaf in leaves], step["grad"]["inputs"], "input grads", tol)
                self.same({k: p.grad for k, p in m.named_parameters()}, {"dict": step["grad"]["params"]}, "parameter grads", tol)
        self.same(list(m.state_dict()), case["state_keys"], "keys of state_dict")
        after = case.get("state_after", {})
        self.same({k: m.state_dict()[k] for k in after}, {"dict": after}, "state_dict", tol)

    def error(self, case):
        def check():
            try:
                args, kwargs = self.arguments(case) if "args" in case else ([], {})
                if "code" in case:
                    self.execute(case["code"] + "\nNone")
                else:
                    self.make(case)(*args, **kwargs) if "make" in case else self.call(case["op"], args, kwargs)
            except Exception as e:
                text = self.plain(str(e))
                lacking = [p for p in case.get("phrases", []) if p.lower() not in text.lower()]
                if case["raises"] not in [c.__name__ for c in type(e).__mro__] or lacking and isinstance(e, AttributeError):
                    raise  # `outcome` tells missing from failed
                if lacking:
                    raise Wrong(f"message lacks {lacking}: {text[:200]}") from None
                if "match" in case and not re.search(case["match"], text):
                    raise Wrong(f"{text[:120]!r} does not match {case['match'][:120]!r}", "wording") from None
            else:
                raise Wrong("no error")
        yield case["name"], check

    def define(self, case):  # functions that later cases of this part use
        return exec(case["code"], self.env) or []

    def eval(self, case):
        yield case["name"], lambda: self.same(self.execute(case["code"]), case["value"], "value", case.get("tol"))

    def types(self, case):
        """Result dtypes of an expression in a and b for one left operand and every right one; without left, for every a."""
        def operand(short, form):
            dtype = None if form == "scalar" else self.find("torch." + SHORT[short])
            return self.mod.ones([2] * (form == "tensor"), dtype=dtype) if dtype else {"bool": True, "int": 2, "float": 1.5}[short]

        def cell(*right):
            try:
                given = [operand(*case["left"].split()), operand(*right)] if "left" in case else [operand(*right)]
                r = self.execute(case["code"], **dict(zip("ab", given)))
                return name_of(getattr(r, "dtype", r if isinstance(r, type(self.mod.float32)) else type(r)))
            except (NotImplementedError, AttributeError):
                return None  # missing
            except Exception as e:
                return "!" + type(e).__name__

        def check():
            cells = [(s, f, cell(s, f), SHORT.get(w, w)) for f, row in case["result"].items() for s, w in row.items()]
            if not any(got for _, _, got, _ in cells):
                raise NotImplementedError(case["code"])
            if wrong := [f"{s} {f}: got {g}, want {w}" for s, f, g, w in cells if g and g != w and not g[0] == w[0] == "!"]:
                raise Wrong(f"left {case.get('left', 'none')}; right " + "; ".join(wrong[:5]))
        yield case["code"], check

    def optim(self, case):
        yield case["name"], lambda: self.run_optim(case, None)  # then: a state_dict in a new optimizer must go on as if
        yield case["name"] + " [state_dict]", lambda: self.run_optim(case, case["reload"])  # nothing had happened

    def run_optim(self, case, reload):
        params, tol = [self.mod.nn.Parameter(self.value(p)) for p in case["params"]], case.get("tol")
        env, grads = dict(self.env, params=params), [self.value(g) for g in case.get("grads", [])]
        opt, losses, history = eval(case["make"], env), [], [[] for _ in params]

        def closure():
            opt.zero_grad()
            loss = eval(case["loss"], env)
            loss.backward()
            return loss
        for step in range(case["steps"]):
            if step == reload:
                saved, opt = opt.state_dict(), eval(case["make"], env)
                opt.load_state_dict(saved)
            for i, g in enumerate(grads):
                params[i].grad = None if [step, i] in case.get("none", []) else g[step].clone()
            loss = opt.step(closure if "loss" in case else None)
            losses += [] if loss is None else [float(loss)]
            for h, p in zip(history, params):
                h.append(self.numbers(p).copy())
        self.same(losses, case.get("losses", []), "losses", tol)
        for i, (h, ref) in enumerate(zip(history, case["after"])):
            self.near(np.stack(h), self.array(ref), ref["t"][0], f"parameter {i} by [step, index]", tol)
        self.same(opt.state_dict(), case["state"], "state_dict", tol, loose=True)


def outcome(check):
    try:
        check()
        return "passed", ""
    except Exception as e:
        if isinstance(e, Wrong):
            return e.args[1] if len(e.args) == 2 else "failed", e.args[0]
        lacks = isinstance(e, (NotImplementedError, ImportError)) or "unexpected keyword" in str(e) \
            or isinstance(e, AttributeError) and "NoneType" not in str(e)
        return "missing" if lacks else "failed", f"{type(e).__name__}: {str(e)[:200]}"


def show(player, v):
    if isinstance(v, dict) and "t" in v:
        return f"{v['t'][0]} {v['t'][2]} {player.array(v).tolist()}"[:400]
    v = {k: show(player, x) for k, x in v.items()} if isinstance(v, dict) else v
    return [show(player, x) for x in v] if isinstance(v, list) else v


def main():
    arg = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arg.add_argument("--module", default="torch", help="what to test, by the name it is imported with")
    arg.add_argument("--data", default=os.path.dirname(os.path.abspath(__file__)), help="folder of the .jsonl and .npz files")
    arg.add_argument("--part", action="append", help="ops, errors, layers, ... (default: all)")
    arg.add_argument("--only", default="", help="regular expression to find in the name")
    for flag, text in {"supported": "list names that are not wholly missing", "strict": "what is missing or in other words fails",
                       "show": "print failing cases whole", "trace": "print each name before its check"}.items():
        arg.add_argument("--" + flag, action="store_true", help=text)
    arg.add_argument("--min", type=float, help="fail below this percentage of passed checks among those whose function exists")
    arg.add_argument("--known", help="file of known differences (part, name, reason; tab-separated): others fail")
    arg, bad = arg.parse_args(), 0
    known = {tuple(line.split("\t")[:2]) for line in open(arg.known, encoding="utf-8") if line.strip() and line[0] != "#"} if arg.known else set()
    total, unknown = collections.Counter(), []
    faulthandler.enable(), warnings.simplefilter("ignore"), sys.path.insert(0, os.getcwd())
    module = importlib.import_module(arg.module)
    for name in SUBMODULES.split():
        with contextlib.suppress(ImportError):
            importlib.import_module(f"{arg.module}.{name}")
    paths = {os.path.basename(path)[:-6]: path for path in sorted(glob.glob(os.path.join(arg.data, "*.jsonl")))}
    for part, path in [p for p in paths.items() if not arg.part or p[0] in arg.part]:
        player, counts, names = Player(module, path[:-6]), collections.Counter(), collections.defaultdict(collections.Counter)
        started, printed = time.time(), 0
        for number, line in enumerate(open(path, encoding="utf-8"), 1):
            case = json.loads(line)
            checks = getattr(player, case["kind"], lambda case: [])(case)  # kinds for reading only have no checks
            for name, check in [c for c in checks if re.search(arg.only, c[0])]:
                arg.trace and print(f"{part} line {number} {name}", flush=True)
                how, why = outcome(check)
                counts[how] += 1
                names[name][how] += 1
                if how == "failed" and arg.known and (part, name) not in known:
                    unknown.append((part, name))
                shown = (how == "failed" or arg.strict and how != "passed") and names[name][how] <= 2
                if shown and (printed := printed + 1) <= 20:  # of each name the first two
                    print(f"  line {number}  {name}: {how}: {why}" + (f" (want {case['raises']})" if "raises" in case else ""))
                    arg.show and [print(f"      {k}: {show(player, v)}") for k, v in case.items()]
        kinds = ["passed", "failed", "missing"] + ["wording"] * (counts["wording"] > 0)
        print(f"{part}: " + ", ".join(f"{counts[k]} {k}" for k in kinds) + f"  ({time.time() - started:.1f} s)", flush=True)
        lacking = sorted(n for n, c in names.items() if c["missing"] == sum(c.values()))
        if arg.supported:
            print("\n".join(f"    {c['passed']}/{sum(c.values())} {n}" for n, c in sorted(names.items()) if n not in lacking))
        elif lacking:
            print("    missing: " + ", ".join(lacking[:12]) + (f" and {len(lacking) - 12} more" if len(lacking) > 12 else ""))
        total.update(counts)
        bad += counts["failed"] + (counts["missing"] + counts["wording"] if arg.strict else 0)
    ran = total["passed"] + total["wording"] + total["failed"]
    share = 100 * (ran - total["failed"]) / max(ran, 1)
    print(f"{ran} checks of functions that exist, {share:.2f} % passed; {total['missing']} missing")
    for part, name in sorted(set(unknown)):
        print(f"not among the known differences: {part} {name}")
    if arg.min is not None or arg.known:
        return 1 if share < (arg.min or 0) or unknown else 0
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
