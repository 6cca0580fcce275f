"""The core: dtypes and their conversions, strides of results, memory (what it refuses and gives back), threads.

The strides were recorded from PyTorch 2.13: operands of one shape follow its fast setup, others the vote of the operands.
"""
from __future__ import annotations

import gc
import os
import threading

import numpy as np
import pytest
import rushlight as rl

NAMES = ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64")
# Row a, column b of torch.promote_types, by number in NAMES.
PROMOTION = (
    "0123456789",
    "1133456789",
    "2323456789",
    "3333456789",
    "4444456789",
    "5555556789",
    "6666666889",
    "7777778789",
    "8888888889",
    "9999999999",
)
# a's shape and strides, b's shape and strides, the strides of a + b, those of empty_like(a)
STRIDES = [
    ((3, 3, 3), (4, 1, 12), (3, 1, 1), (2, 1, 1), (3, 1, 9), (3, 1, 9)),
    ((2, 1), (1, 1), (2, 1), (1, 2), (1, 1), (1, 1)),
    ((3, 2, 2, 1), (12, 1, 6, 3), (1, 2, 1, 1), (2, 1, 1, 1), (4, 1, 2, 2), (4, 1, 2, 2)),
    ((2, 1, 3), (4, 4, 1), (2, 1, 3), (1, 6, 2), (3, 6, 1), (3, 3, 1)),
    ((2, 3, 2), (6, 2, 1), (2, 3, 2), (9, 3, 1), (6, 2, 1), (6, 2, 1)),
    ((1, 3, 3, 3), (27, 3, 9, 1), (1, 1, 3, 1), (1, 1, 1, 1), (27, 3, 9, 1), (27, 3, 9, 1)),
    ((3, 1, 2), (2, 1, 1), (3, 1, 2), (4, 2, 1), (2, 1, 1), (2, 1, 1)),
    ((3, 2, 1, 3), (2, 1, 6, 6), (3, 2, 1, 3), (6, 1, 6, 2), (2, 1, 6, 6), (2, 1, 6, 6)),
    ((2, 2), (2, 1), (2, 1), (1, 1), (2, 1), (2, 1)),
    ((2, 3, 1, 2), (9, 3, 3, 1), (1, 3, 1, 2), (6, 1, 6, 3), (6, 2, 6, 1), (6, 2, 2, 1)),
    ((3, 2, 3, 1), (3, 9, 1, 18), (3, 2, 1, 1), (1, 3, 3, 1), (3, 9, 1, 18), (3, 9, 1, 18)),
    ((2, 2, 3, 0), (3, 1, 9, 3), (1, 2, 3, 0), (6, 1, 2, 6), (0, 1, 0, 2), (3, 1, 9, 3)),
    ((3,), (1,), (1,), (1,), (1,), (1,)),
    ((0, 3, 2), (1, 3, 1), (0, 1, 2), (2, 2, 1), (1, 0, 0), (1, 3, 1)),
    ((3, 1, 1, 3), (6, 3, 3, 1), (3, 1, 1, 3), (3, 9, 3, 1), (3, 3, 3, 1), (3, 3, 3, 1)),
    ((1, 2, 1, 2), (1, 1, 4, 2), (1, 2, 1, 2), (4, 1, 8, 2), (4, 1, 4, 2), (1, 1, 4, 2)),
    ((1, 1, 1, 2), (1, 1, 1, 1), (1, 1, 1, 1), (1, 1, 1, 1), (1, 1, 1, 1), (1, 1, 1, 1)),
    ((3, 3, 1, 2), (1, 9, 3, 3), (3, 3, 1, 2), (1, 6, 18, 3), (1, 6, 3, 3), (1, 6, 3, 3)),
    ((2, 3, 2, 1), (9, 3, 1, 1), (1, 1, 2, 1), (4, 2, 1, 1), (6, 2, 1, 1), (6, 2, 1, 1)),
    ((1, 3, 2, 1), (3, 1, 3, 6), (1, 3, 1, 1), (1, 1, 6, 3), (3, 1, 3, 6), (3, 1, 3, 6)),
    ((1, 2, 1, 3), (6, 3, 3, 1), (1, 2, 1, 3), (8, 1, 8, 2), (6, 3, 6, 1), (6, 3, 3, 1)),
    ((1, 2, 3, 2), (12, 6, 1, 3), (1, 2, 3, 2), (3, 3, 6, 1), (12, 6, 1, 3), (12, 6, 1, 3)),
    ((3, 3), (1, 3), (3, 3), (3, 1), (1, 3), (1, 3)),
    ((2, 2, 3, 2), (6, 1, 2, 12), (2, 2, 3, 2), (3, 9, 18, 1), (6, 1, 2, 12), (6, 1, 2, 12)),
    ((2, 3, 2), (3, 1, 6), (1, 3, 1), (3, 1, 1), (3, 1, 6), (3, 1, 6)),
    ((3, 3, 2), (6, 1, 3), (3, 3, 2), (12, 3, 1), (6, 1, 3), (6, 1, 3)),
    ((1, 1, 1, 3), (3, 3, 3, 1), (1, 1, 1, 1), (1, 2, 2, 1), (3, 3, 3, 1), (3, 3, 3, 1)),
    ((3, 3), (3, 1), (3, 1), (1, 3), (3, 1), (3, 1)),
    ((2,), (1,), (2,), (1,), (1,), (1,)),
    ((2, 2, 2, 3), (9, 1, 27, 3), (2, 2, 1, 3), (9, 3, 3, 1), (6, 1, 12, 2), (6, 1, 12, 2)),
    ((2, 3), (1, 2), (2, 3), (3, 1), (1, 2), (1, 2)),
    ((3, 1, 2, 3), (8, 4, 4, 1), (3, 1, 2, 3), (2, 24, 1, 6), (6, 3, 3, 1), (6, 3, 3, 1)),
    ((3, 2, 1, 3), (3, 9, 3, 1), (1, 2, 1, 3), (2, 1, 2, 2), (3, 9, 3, 1), (3, 9, 3, 1)),
    ((2, 3, 1, 3), (3, 1, 18, 6), (1, 3, 1, 3), (3, 3, 3, 1), (3, 1, 18, 6), (3, 1, 18, 6)),
    ((3, 3), (1, 3), (3, 3), (3, 1), (1, 3), (1, 3)),
    ((1, 2, 1, 3), (6, 1, 6, 2), (1, 2, 1, 3), (6, 3, 3, 1), (6, 1, 6, 2), (6, 1, 6, 2)),
    ((2, 2), (1, 2), (2, 1), (1, 1), (1, 2), (1, 2)),
    ((1,), (1,), (1,), (1,), (1,), (1,)),
    ((1, 2, 2, 3), (6, 6, 1, 2), (1, 2, 2, 3), (18, 1, 3, 6), (6, 6, 1, 2), (6, 6, 1, 2)),
    ((2, 2, 2, 1), (3, 9, 1, 18), (1, 2, 1, 1), (2, 2, 1, 2), (2, 4, 1, 8), (2, 4, 1, 8)),
    ((2, 2), (1, 2), (1, 2), (1, 1), (1, 2), (1, 2)),
    ((1, 1, 2, 1), (2, 2, 1, 4), (1, 1, 2, 1), (2, 1, 1, 2), (2, 2, 1, 1), (2, 2, 1, 4)),
    ((2, 3, 1, 3), (1, 2, 18, 6), (2, 3, 1, 3), (9, 3, 3, 1), (1, 2, 18, 6), (1, 2, 18, 6)),
    ((3, 2), (1, 3), (3, 1), (1, 1), (1, 3), (1, 3)),
    ((3, 1, 3, 1), (2, 6, 6, 1), (3, 1, 3, 1), (6, 3, 1, 1), (1, 3, 3, 1), (1, 3, 3, 1)),
    ((3,), (1,), (1,), (1,), (1,), (1,)),
    ((2, 3, 3), (4, 1, 8), (2, 3, 3), (16, 4, 1), (3, 1, 6), (3, 1, 6)),
    ((2, 2, 2), (3, 6, 1), (2, 2, 2), (4, 1, 2), (2, 4, 1), (2, 4, 1)),
    ((3,), (1,), (3,), (1,), (1,), (1,)),
    ((2, 1, 3, 1), (1, 1, 0, 1), (1, 1, 1, 1), (1, 2, 2, 4), (3, 1, 1, 3), (3, 3, 1, 1)),
    ((1, 2), (2, 1), (1, 2), (3, 1), (2, 1), (2, 1)),
    ((3, 2, 1, 2), (6, 1, 18, 2), (3, 1, 1, 2), (2, 8, 8, 1), (4, 1, 12, 2), (4, 1, 12, 2)),
    ((1, 3), (3, 1), (1, 3), (3, 1), (3, 1), (3, 1)),
    ((3, 3, 3), (3, 1, 9), (3, 1, 3), (3, 3, 1), (3, 1, 9), (3, 1, 9)),
    ((3, 2, 1), (0, 1, 2), (1, 2, 1), (2, 1, 1), (2, 1, 2), (2, 1, 2)),
    ((2, 2, 2, 3), (27, 9, 1, 3), (2, 1, 1, 1), (2, 6, 1, 6), (12, 6, 1, 2), (12, 6, 1, 2)),
    ((2, 3, 2, 3), (6, 12, 1, 2), (2, 3, 2, 3), (18, 6, 3, 1), (6, 12, 1, 2), (6, 12, 1, 2)),
    ((1, 3, 2, 1), (1, 2, 1, 2), (1, 3, 1, 1), (1, 1, 3, 1), (1, 2, 1, 2), (1, 2, 1, 2)),
    ((3, 1, 2), (2, 2, 1), (3, 1, 2), (1, 3, 6), (2, 6, 1), (2, 2, 1)),
    ((3, 3, 2), (0, 1, 3), (1, 3, 2), (1, 2, 1), (6, 1, 3), (6, 1, 3)),
]


def strided(shape, strides):
    reach = 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True) if n) if all(shape) else 0
    return rl.zeros(max(reach, 1)).as_strided(shape, strides)


# ---- dtypes ----
@pytest.mark.parametrize("a", range(10))
def test_promotion(a):
    for b in range(10):
        want = getattr(rl, NAMES[int(PROMOTION[a][b])])
        assert rl.promote_types(getattr(rl, NAMES[a]), getattr(rl, NAMES[b])) == want
        assert (rl.ones(2, dtype=getattr(rl, NAMES[a])) * rl.ones(2, dtype=getattr(rl, NAMES[b]))).dtype == want


def test_can_cast():
    assert rl.can_cast(rl.float64, rl.float16) and rl.can_cast(rl.int64, rl.uint8) and rl.can_cast(rl.bool, rl.int8)
    assert not rl.can_cast(rl.float32, rl.int64) and not rl.can_cast(rl.int64, rl.bool)


def test_every_half_survives_the_round_trip():
    bits = np.arange(65536, dtype=np.uint16)
    halves = bits.view(np.float16)
    there = rl.from_numpy(halves.copy()).float()
    np.testing.assert_array_equal(there.numpy(), halves.astype(np.float32))
    back = there.half().numpy()
    finite = ~np.isnan(halves)
    np.testing.assert_array_equal(back.view(np.uint16)[finite], bits[finite])
    assert np.isnan(back[~finite]).all()


def test_rounding_to_half_is_to_nearest_even():
    rng = np.random.default_rng(0)
    values = rng.standard_normal(20000) * 10.0 ** rng.integers(-9, 6, 20000)
    values = np.concatenate([values, [65519.996, 65520.0, 2**-25, 2**-25 * 1.0001]]).astype(np.float32)
    with np.errstate(over="ignore"):
        want = values.astype(np.float16)
    np.testing.assert_array_equal(rl.from_numpy(values).half().numpy().view(np.uint16), want.view(np.uint16))


def test_rounding_to_bfloat16_is_to_nearest_even():
    values = np.random.default_rng(1).standard_normal(20000).astype(np.float32)
    bits = values.view(np.uint32).astype(np.uint64)
    want = (((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16) << 16).astype(np.uint32).view(np.float32)
    np.testing.assert_array_equal(rl.from_numpy(values).bfloat16().float().numpy(), want)


@pytest.mark.parametrize("source", NAMES)
@pytest.mark.parametrize("target", NAMES)
def test_conversion(source, target):
    values = [0, 1, 2, 100, 127] if source != "bool" else [False, True]
    got = rl.tensor(values, dtype=getattr(rl, source)).to(getattr(rl, target))
    assert got.dtype == getattr(rl, target)
    assert got.tolist() == [bool(v) if target == "bool" else v for v in values]


# ---- strides of results ----
@pytest.mark.parametrize("case", STRIDES, ids=lambda c: f"{c[0]}{c[1]}+{c[2]}{c[3]}")
def test_strides_follow_the_operands(case):
    a, b = strided(case[0], case[1]), strided(case[2], case[3])
    assert (a + b).stride() == case[4]
    assert rl.empty_like(a).stride() == case[5]


def test_channels_last_is_kept():
    x = rl.rand(2, 3, 4, 5).contiguous(memory_format=rl.channels_last)
    assert x.stride() == (60, 1, 15, 3)
    assert (x + 1).stride() == x.stride() and (x * x).stride() == x.stride() and x.clone().stride() == x.stride()
    assert rl.cat([x, x]).stride() == x.stride()
    assert x.contiguous().stride() == (60, 20, 5, 1)


# ---- memory ----
@pytest.mark.parametrize("shape", [(2**62, 2**62), (2**31, 2**31, 2**31), (3, 2**62), (2**60,)])
def test_sizes_that_overflow(shape):
    with pytest.raises(RuntimeError) as e:
        rl.empty(shape)
    assert str(shape[0]) in str(e.value) or "allocate" in str(e.value)


def test_a_zero_among_sizes():
    assert rl.empty(0, 2**40, 2).numel() == 0


def test_out_of_memory_is_an_exception_and_leaves_memory_as_it_was():
    live = rl._C._host_memory()["live_bytes"]
    with pytest.raises(rl.OutOfMemoryError, match="can't allocate memory: you tried to allocate 4398046511104 bytes"):
        rl.empty(2**40)
    with pytest.raises(MemoryError):
        rl.empty(2**40, dtype=rl.float64)
    assert rl._C._host_memory()["live_bytes"] == live
    assert rl.ones(1000).sum().item() == 1000


def test_negative_sizes():
    with pytest.raises(RuntimeError, match=r"Trying to create tensor with negative dimension -1: \[2, -1\]"):
        rl.empty(2, -1)
    with pytest.raises(RuntimeError, match="zeros: Dimension size must be non-negative."):
        rl.zeros(-3)


def test_too_many_dimensions():
    assert rl.zeros([1] * 64).dim() == 64
    with pytest.raises(RuntimeError, match="at most 64 dimensions"):
        rl.zeros([1] * 65)


@pytest.mark.parametrize("n", [1, 2, 63, 64, 1000, 1024, 1025, 5000, 100_000, 1_000_000])
def test_memory_is_aligned_and_writable(n):
    held = [rl.full((n,), float(k)) for k in range(4)]
    assert all(t.data_ptr() % 64 == 0 for t in held)
    assert all(t[0].item() == k and t[-1].item() == k for k, t in enumerate(held))


@pytest.mark.no_sanitizer  # nothing is cached there
def test_freed_memory_is_counted_and_reused():
    gc.collect()
    before = rl._C._host_memory()
    t = rl.empty(1_000_000)
    assert rl._C._host_memory()["live_bytes"] - before["live_bytes"] >= 4_000_000
    at = t.data_ptr()
    del t
    after = rl._C._host_memory()
    assert after["live_bytes"] == before["live_bytes"] and after["cached_bytes"] >= 4_000_000
    assert rl.empty(1_000_000).data_ptr() == at
    rl._C._host_trim()
    assert rl._C._host_memory()["cached_bytes"] == 0


def test_fill_values_must_fit():
    cases = (
        (lambda: rl.full((2,), 300, dtype=rl.uint8), "uint8_t"),
        (lambda: rl.full((2,), 1e300), "float"),
        (lambda: rl.zeros(2, dtype=rl.int16).fill_(70000), "int16_t"),
        (lambda: rl.full((2,), float("nan"), dtype=rl.int64), "int64_t"),
        (lambda: rl.zeros(2).half().fill_(1e6), "c10::Half"),
        (lambda: rl.ones(2).new_full((2,), -1e39), "float"),
    )
    for make, text in cases:
        with pytest.raises(RuntimeError, match=f"value cannot be converted to type {text} without overflow"):
            make()
    assert rl.full((1,), -1, dtype=rl.uint8).item() == 255
    assert rl.full((1,), float("inf")).item() == float("inf")
    assert rl.full((2,), 2.5, dtype=rl.bool).tolist() == [True, True]


def test_small_tensors_come_from_a_bounded_pool():
    def churn():
        for n in range(1, 1000, 7):
            (rl.ones(n) * 2).sum()
        return rl._C._host_memory()["pool_bytes"]

    churn()
    assert churn() == churn()


# ---- threads ----
def test_thread_count():
    n = rl.get_num_threads()
    try:
        rl.set_num_threads(3)
        assert rl.get_num_threads() == 3
        with pytest.raises((RuntimeError, ValueError)):
            rl.set_num_threads(0)
    finally:
        rl.set_num_threads(n)


def test_results_do_not_depend_on_the_number_of_threads():
    n, x = rl.get_num_threads(), rl.randn(300, 1111)
    results = []
    try:
        for threads in (1, 2, 5):
            rl.set_num_threads(threads)
            results.append(((x * 3 + 1).exp().tolist(), x.sum().item(), x.t().contiguous().tolist()))
    finally:
        rl.set_num_threads(n)
    assert results[0] == results[1] == results[2]


def test_tensors_made_and_dropped_by_many_threads():
    wrong = []

    def work(seed):
        held = []
        for k in range(2000):
            held.append(rl.full((k % 700 + 1,), float(seed)))
            if len(held) > 20 and held.pop(k % 20).sum().item() % seed:
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(s,)) for s in range(1, 5)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_a_forked_child_computes():
    x = rl.ones(2_000_000)
    assert (x + 1).sum().item() == 4_000_000  # the pool runs
    pid = os.fork()
    if pid == 0:
        os._exit(0 if (x + 2).sum().item() == 6_000_000 and rl.zeros(10).tolist() == [0.0] * 10 else 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert (x + 1).sum().item() == 4_000_000
