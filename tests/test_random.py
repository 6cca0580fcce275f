"""The random stream is PyTorch's bit for bit: known answers (golden/golden_rng.*), and the generator's own behaviour.

Each case seeds, draws, and compares every bit of the result and of the generator's state afterwards. golden/RNG.md says how the numbers
come about.
"""
import copy
import json
import pathlib
import pickle
import struct
import threading

import numpy as np
import pytest
import rushlight as rl
from rushlight import nn
from rushlight.nn import functional as F
from rushlight.utils.data import DataLoader, RandomSampler, WeightedRandomSampler, random_split

GOLDEN = pathlib.Path(__file__).parent / "golden"
ANSWERS = np.load(GOLDEN / "golden_rng.npz")
POSITIONS = json.loads((GOLDEN / "golden_rng.json").read_text())["cases"]
SEEDS = (0, 1, 42, 2**40 + 7, -1)
FLOATS = {"f32": rl.float32, "f64": rl.float64, "f16": rl.float16, "bf16": rl.bfloat16}


def cases():
    """(key, function) pairs; the keys are those of the answers."""
    for d, dt in FLOATS.items():
        def empty(n, dt=dt):
            return rl.empty(n, dtype=dt)

        for n in (5, 16, 20, 32, 100):
            yield f"rand||{d}|{n}", lambda n=n, dt=dt: rl.rand(n, dtype=dt)
            yield f"randn||{d}|{n}", lambda n=n, dt=dt: rl.randn(n, dtype=dt)
        for n in (7, 50):
            yield f"uniform_|-0.3,0.9|{d}|{n}", lambda e=empty, n=n: e(n).uniform_(-0.3, 0.9)
            yield f"normal_|0.25,1.7|{d}|{n}", lambda e=empty, n=n: e(n).normal_(0.25, 1.7)
            yield f"exponential_|1.3|{d}|{n}", lambda e=empty, n=n: e(n).exponential_(1.3)
            yield f"cauchy_|0.3,1.7|{d}|{n}", lambda e=empty, n=n: e(n).cauchy_(0.3, 1.7)
            yield f"log_normal_|0.3,0.5|{d}|{n}", lambda e=empty, n=n: e(n).log_normal_(0.3, 0.5)
            yield f"geometric_|0.3|{d}|{n}", lambda e=empty, n=n: e(n).geometric_(0.3)
            yield f"bernoulli_|0.3|{d}|{n}", lambda e=empty, n=n: e(n).bernoulli_(0.3)
            yield f"random_||{d}|{n}", lambda e=empty, n=n: e(n).random_()
        yield f"bernoulli|p=linspace(0.02,0.98,50)|{d}|50", lambda dt=dt: rl.bernoulli(rl.linspace(0.02, 0.98, 50).to(dt))
        yield f"dropout of ones|0.1|{d}|60", lambda dt=dt: F.dropout(rl.ones(60, dtype=dt), 0.1)
        yield f"multinomial|w=1..20,30,replacement|{d}|30", lambda dt=dt: rl.multinomial(rl.arange(1.0, 21).to(dt), 30, True)
    yield "normal_ transposed|0,1|f32|empty(6,9).t()", lambda: rl.empty(6, 9).t().normal_()
    yield "normal_ strided|0,1|f32|empty(6,10)[:,::2]", lambda: rl.empty(6, 10)[:, ::2].normal_()
    yield "randn_like permuted||f32|empty(3,4,5).permute(2,0,1)", lambda: rl.randn_like(rl.empty(3, 4, 5).permute(2, 0, 1))
    yield "normal|m=arange(20),s=0.1+arange(20)/10|f32|20", lambda: rl.normal(rl.arange(20.0), 0.1 + rl.arange(20.0) / 10)
    yield ("randn 3, rand 2, randn 20, randn 3||f32|28",
           lambda: rl.cat([rl.randn(3), rl.rand(2), rl.randn(20), rl.randn(3)]))
    for lo, hi, d in ((0, 10, "int64"), (-5, 100, "int32"), (0, 256, "uint8"), (0, 2**28 - 1, "int64"), (0, 2**28, "int64"),
                      (0, 2**31 - 1, "int32"), (-2**40, 2**40, "int64"), (-2**63, 2**63 - 1, "int64"), (0, 60000, "float16")):
        yield f"randint|{lo},{hi}|{d}|20", lambda lo=lo, hi=hi, d=d: rl.randint(lo, hi, (20,), dtype=getattr(rl, d))
    for d in ("int64", "int32", "int16", "int8", "uint8", "bool"):
        yield f"random_||{d}|20", lambda d=d: rl.empty(20, dtype=getattr(rl, d)).random_()
    yield "random_|-2^63,None|int64|10", lambda: rl.empty(10, dtype=rl.int64).random_(-2**63, None)
    for n in (1, 10, 100, 1000):
        yield f"randperm||int32|{n}", lambda n=n: rl.randperm(n, dtype=rl.int32)
    yield "dropout of ones(4,6).t()|0.3|f32|(6,4)", lambda: F.dropout(rl.ones(4, 6).t(), 0.3)
    yield "multinomial|w=1..20,8|f32|8", lambda: rl.multinomial(rl.arange(1.0, 21), 8)
    yield "multinomial|w=1..20,1|f32|1", lambda: rl.multinomial(rl.arange(1.0, 21), 1)
    yield "kaiming_uniform_||f32|(6,5)", lambda: nn.init.kaiming_uniform_(rl.empty(6, 5))
    yield ("kaiming_normal_|fan_out,relu|f32|(6,4,3,3)",
           lambda: nn.init.kaiming_normal_(rl.empty(6, 4, 3, 3), mode="fan_out", nonlinearity="relu"))
    yield "xavier_uniform_||f32|(6,5)", lambda: nn.init.xavier_uniform_(rl.empty(6, 5))
    yield "xavier_normal_||f32|(6,5)", lambda: nn.init.xavier_normal_(rl.empty(6, 5))
    yield "trunc_normal_|0,1,-2,2|f32|200", lambda: nn.init.trunc_normal_(rl.empty(200))
    yield "trunc_normal_|0,1,1,3|f32|200", lambda: nn.init.trunc_normal_(rl.empty(200), a=1.0, b=3.0)
    yield "sparse_|0.35|f32|(10,3)", lambda: nn.init.sparse_(rl.empty(10, 3), 0.35)
    for name, make in (("Linear(10,7)", lambda: nn.Linear(10, 7)), ("LayerNorm(8)", lambda: nn.LayerNorm(8)),
                       ("Embedding(20,5,padding_idx=1)", lambda: nn.Embedding(20, 5, 1))):
        yield f"parameters()|{name}|f32|flat", lambda make=make: rl.cat([p.detach().reshape(-1) for p in make().parameters()])
    ints = list(range(23))

    def epochs(loader, k):
        return rl.cat([b for _ in range(k) for b in loader]).short()

    yield "DataLoader shuffle, 3 epochs||int16|23*3", lambda: epochs(DataLoader(ints, 4, shuffle=True), 3)
    yield ("DataLoader shuffle generator seed 7, 3 epochs||int16|23*3",
           lambda: epochs(DataLoader(ints, 4, shuffle=True, generator=rl.Generator().manual_seed(7)), 3))
    yield "RandomSampler replacement 40 of 23||int64|40", lambda: rl.tensor(list(RandomSampler(ints, True, 40)))
    yield ("WeightedRandomSampler [.1,.9,.4,.7,3,.6]|20,replacement|int64|20",
           lambda: rl.tensor(list(WeightedRandomSampler([0.1, 0.9, 0.4, 0.7, 3.0, 0.6], 20))))
    yield "random_split 23 as .5,.3,.2||int64|23", lambda: rl.tensor([i for s in random_split(ints, [0.5, 0.3, 0.2]) for i in s.indices])


CASES = dict(cases())


def bits(t):
    t = t.detach().contiguous()
    return t.view(rl.int16).numpy().view(np.uint16) if t.dtype == rl.bfloat16 else t.numpy()


def position(words, seed):
    """The engine's part of a state that has given `words` 32-bit words since seeding."""
    g = rl.Generator()
    g.manual_seed(seed)
    if words:
        rl.empty(words, dtype=rl.int32).random_(generator=g)
    return bytes(g.get_state().numpy())[8:5016]


@pytest.mark.parametrize("key", CASES)
def test_known_answer(key):
    for seed in SEEDS:
        rl.manual_seed(seed)
        got = bits(CASES[key]())
        name = f"{key}|seed={seed}"
        np.testing.assert_array_equal(got.view(np.uint8), ANSWERS[name].view(np.uint8), name)
        words, normal = POSITIONS[name]
        state = bytes(rl.get_rng_state().numpy())
        assert state[8:5016] == position(words, seed), f"{name}: the generator stands elsewhere"
        cached, has = struct.unpack("<d", state[5024:5032])[0], struct.unpack("<i", state[5040:5044])[0]
        assert (repr(cached) if has else None) == normal, name


def test_unknown_answers_are_only_of_functions_that_do_not_exist():
    absent = {"poisson", "binomial", "_standard_gamma", "_sample_dirichlet", "rrelu of linspace(-1,1,21)", "gumbel_softmax of zeros",
              "dropout2d of ones", "alpha_dropout of arange(40)", "orthogonal_ (1e-6)", "parameters()"}
    left = {k.split("|")[0] for k in ANSWERS.files if k.rsplit("|", 1)[0] not in CASES and "|c64|" not in k}
    assert left <= absent


def test_seeds():
    g = rl.Generator()
    assert g.initial_seed() == 67280421310721
    assert g.manual_seed(5) is g and g.initial_seed() == 5
    assert g.manual_seed(-1).initial_seed() == 2**64 - 1
    assert g.manual_seed(2**64 - 1).initial_seed() == 2**64 - 1
    for seed in (2**64, -2**63 - 1):
        with pytest.raises(ValueError, match="Overflow when unpacking long long"):
            g.manual_seed(seed)
    with pytest.raises(RuntimeError, match="manual_seed expected a long, but got str"):
        g.manual_seed("a")
    assert rl.manual_seed(3.0) is rl.default_generator and rl.initial_seed() == 3
    assert rl.seed() == rl.initial_seed()
    a = rl.Generator().manual_seed(5)
    b = rl.Generator().manual_seed(5 + 2**32)
    assert rl.rand(4, generator=a).tolist() == rl.rand(4, generator=b).tolist()  # only the low 32 bits choose the stream


def test_state_round_trips():
    g = rl.Generator().manual_seed(1)
    rl.randn(3, generator=g)  # leaves a cached normal
    state = g.get_state()
    assert state.shape == (5056,) and state.dtype == rl.uint8
    first = rl.randn(7, generator=g).tolist()
    for other in (rl.Generator(), g):
        other.set_state(state)
        assert rl.randn(7, generator=other).tolist() == first
    g.set_state(state)
    for twin in (g.clone_state(), copy.deepcopy(g), pickle.loads(pickle.dumps(g))):
        assert rl.randn(7, generator=twin).tolist() == first
    assert rl.randn(7, generator=g).tolist() == first


@pytest.mark.parametrize("bad, error, text", [
    (3, TypeError, "ByteTensor"), (rl.zeros(5056), TypeError, "RNG state must be a"),
    (rl.zeros(3, dtype=rl.uint8), RuntimeError, "of size 5056 but found the input RNG state size to be 3"),
    (rl.zeros(5056, dtype=rl.uint8), RuntimeError, "Invalid mt19937 state"),
])
def test_bad_states_change_nothing(bad, error, text):
    before = rl.get_rng_state().tolist()
    with pytest.raises(error, match=text):
        rl.set_rng_state(bad)
    assert rl.get_rng_state().tolist() == before


def test_states_that_would_read_past_the_block():
    state = rl.Generator().get_state()
    for left, following in ((0, 0), (625, 0), (1, 625), (600, 600), (-1, 0), (624, 2)):
        raw = bytearray(state.numpy().tobytes())
        raw[8:12], raw[16:24] = struct.pack("<i", left), struct.pack("<Q", following)
        with pytest.raises(RuntimeError, match="Invalid mt19937 state"):
            rl.Generator().set_state(rl.tensor(list(raw), dtype=rl.uint8))


def test_fork_rng():
    rl.manual_seed(0)
    expected = rl.rand(3).tolist()
    rl.manual_seed(0)
    with rl.random.fork_rng():
        rl.rand(100)
        rl.manual_seed(7)
    assert rl.rand(3).tolist() == expected
    rl.manual_seed(0)
    with rl.random.fork_rng(enabled=False):
        rl.rand(1)
    assert rl.rand(3).tolist() != expected


def test_generator_argument_leaves_the_default_alone():
    before = rl.get_rng_state().tolist()
    g = rl.Generator().manual_seed(2)
    rl.rand(3, generator=g), rl.randint(0, 9, (3,), generator=g), rl.randperm(5, generator=g), rl.empty(4).normal_(generator=g)
    assert rl.get_rng_state().tolist() == before


def test_empty_and_failed_calls_draw_nothing():
    before = rl.get_rng_state().tolist()
    rl.rand(0), rl.randn(3, 0), rl.empty(0).uniform_(), rl.randint(0, 5, (0,))
    for call in (lambda: rl.randint(5, 5, (3,)), lambda: rl.empty(3).normal_(0, -1), lambda: rl.empty(3).bernoulli_(1.5),
                 lambda: rl.rand(-1), lambda: rl.empty(3, dtype=rl.int64).uniform_(), lambda: rl.randperm(-1)):
        with pytest.raises((RuntimeError, ValueError, NotImplementedError)):
            call()
    assert rl.get_rng_state().tolist() == before


def test_threads_draw_whole_fills():
    """Fills from several threads interleave as wholes: together they are one stream."""
    g = rl.Generator().manual_seed(4)
    expected = rl.rand(8 * 100, generator=g).reshape(8, 100).tolist()
    g.manual_seed(4)
    got = []
    threads = [threading.Thread(target=lambda: got.append(rl.rand(100, generator=g).tolist())) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(got) == sorted(expected)


def test_generator_of_a_device_that_is_not_there():
    with pytest.raises(RuntimeError):
        rl.Generator("cuda")
    with pytest.raises(RuntimeError):
        rl.Generator(device="nonsense")
    assert rl.Generator().device == rl.device("cpu")
