"""DataLoader with worker processes: order, seeds, prefetching, exceptions, death, timeouts, persistence, start methods, resuming."""
import os
import random
import re
import signal
import time

import numpy as np
import pytest
import rushlight as rl
from rushlight.utils import data as D


class Squares(D.Dataset):
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return i * i


class Drawn(D.Dataset):
    """Samples that come from the random streams of whoever loads them."""

    def __len__(self):
        return 8

    def __getitem__(self, i):
        return rl.rand(1).item(), random.random(), float(np.random.rand())


class Calls(D.Dataset):
    """Does to item k what a function says."""

    def __init__(self, n, at, action):
        self.n, self.at, self.action = n, at, action

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        if i == self.at:
            self.action()
        return i


class Shards(D.IterableDataset):
    def __init__(self, n):
        self.n = n

    def __iter__(self):
        info = D.get_worker_info()
        return iter(range(info.id, self.n, info.num_workers)) if info else iter(range(self.n))


def fail():
    raise ValueError("bad sample")


def fail_key():
    raise KeyError("name")


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def leave():
    os._exit(3)


def sleep():
    time.sleep(30)


def lists(loader):
    return [b.tolist() for b in loader]


def test_same_batches_as_without_workers():
    for options in ({"batch_size": 3}, {"batch_size": 3, "shuffle": True}, {"batch_size": 4, "drop_last": True},
                    {"batch_size": 3, "prefetch_factor": 5}):
        rl.manual_seed(1)
        want = lists(D.DataLoader(Squares(17), **{k: v for k, v in options.items() if k != "prefetch_factor"}))
        rl.manual_seed(1)
        assert lists(D.DataLoader(Squares(17), num_workers=2, **options)) == want
    x = rl.arange(20.0).view(10, 2)
    got = list(D.DataLoader(D.TensorDataset(x, rl.arange(10)), batch_size=4, num_workers=2))
    assert rl.equal(rl.cat([b[0] for b in got]), x) and rl.cat([b[1] for b in got]).tolist() == list(range(10))
    got[0][0].add_(1)
    assert D.DataLoader(Squares(3), batch_size=None, num_workers=1).batch_size is None
    assert list(D.DataLoader(Squares(3), batch_size=None, num_workers=1)) == [0, 1, 4]


def test_big_batches_pass():
    x = rl.arange(300_000.0).view(3, 100_000)
    assert rl.equal(rl.cat([b for b, in D.DataLoader(D.TensorDataset(x), num_workers=2)]), x)
    text = ["x" * 200_000] * 6
    assert list(D.DataLoader(text, batch_size=2, num_workers=2)) == [text[:2]] * 3
    assert [len(b) for b in D.DataLoader(range(60_000), batch_size=20_000, num_workers=2, collate_fn=list)] == [20_000] * 3


def test_workers_draw_apart_and_reproducibly():
    def draw():
        rl.manual_seed(3)
        return [v for batch in D.DataLoader(Drawn(), batch_size=2, num_workers=2) for column in batch for v in column.tolist()]

    first = draw()
    assert len(set(first)) == len(first) and draw() == first


def test_seeds_are_as_recorded():
    rl.manual_seed(3)
    loader = D.DataLoader(Drawn(), batch_size=4, num_workers=2)
    (t, p, n), _ = loader
    assert t.tolist() == [0.2876076102256775, 0.686290979385376, 0.6020464301109314, 0.6949343085289001]
    assert p.tolist() == [0.21793848432592644, 0.5235545516688277, 0.3314397597038392, 0.6590908359847807]
    assert n.tolist() == [0.8794862824005928, 0.35186014682096967, 0.992908341615101, 0.5630818155628315]


def test_worker_info_and_init():
    def init(i):
        info = D.get_worker_info()
        info.dataset.n = 10 * (info.id + 1)
        info.dataset.seeds = info.seed
        assert i == info.id and info.num_workers == 2 and rl.get_num_threads() == 1

    class Reports(Squares):
        def __getitem__(self, i):
            return D.get_worker_info().id, self.n, os.getpid()

    ids = [[v[0] for v in b] for b in D.DataLoader(Reports(8), batch_size=2, num_workers=2, worker_init_fn=init, collate_fn=list)]
    assert ids == [[0, 0], [1, 1], [0, 0], [1, 1]]
    sizes = [b[0][1] for b in D.DataLoader(Reports(8), batch_size=2, num_workers=2, worker_init_fn=init, collate_fn=list)]
    assert sizes == [10, 20, 10, 20] and D.get_worker_info() is None


def test_streams():
    got = lists(D.DataLoader(Shards(7), batch_size=2, num_workers=2))
    assert got == [[0, 2], [1, 3], [4, 6], [5]]
    assert sorted(D.DataLoader(Shards(7), batch_size=None, num_workers=2)) == list(range(7))
    assert sorted(v for b in lists(D.DataLoader(D.ChainDataset([Shards(3)]), num_workers=1)) for v in b) == [0, 1, 2]


def test_exceptions_name_the_item_and_keep_their_class():
    it = iter(D.DataLoader(Calls(8, 5, fail), batch_size=2, num_workers=2))
    assert [next(it).tolist(), next(it).tolist()] == [[0, 1], [2, 3]]
    with pytest.raises(ValueError) as e:
        next(it)
    text = str(e.value)
    assert text.startswith("Caught ValueError in DataLoader worker process 0.\nOriginal Traceback (most recent call last):\n")
    assert "ValueError: bad sample\n" in text and "in fail" in text
    if rl.__name__ == "rushlight":
        assert text.endswith("This happened at item 5 of the batch [4, 5].\n")
    assert next(it).tolist() == [6, 7]
    with pytest.raises(KeyError) as e:
        lists(D.DataLoader(Calls(2, 0, fail_key), num_workers=1))
    assert "Caught KeyError in DataLoader worker process 0.\nOriginal Traceback" in str(e.value)
    with pytest.raises(RuntimeError, match="Caught RuntimeError in DataLoader worker process 0."):
        lists(D.DataLoader([rl.ones(2), rl.ones(3)], batch_size=2, num_workers=1))

    def bad_init(i):
        raise OSError("no data")

    with pytest.raises(OSError, match="Caught OSError in DataLoader worker process 0."):
        lists(D.DataLoader(Squares(2), num_workers=1, worker_init_fn=bad_init))


def test_what_cannot_be_sent_is_an_exception_there():
    class Lambdas(Squares):
        def __getitem__(self, i):
            return lambda: i

    with pytest.raises(Exception, match="Caught .* in DataLoader worker process 0"):
        list(D.DataLoader(Lambdas(2), batch_size=None, num_workers=1))


@pytest.mark.parametrize("action, how", [(die, r"killed by signal 9 \(SIGKILL\)"), (leave, "with exit code 3")])
def test_death_is_noticed_at_once(action, how):
    start = time.monotonic()
    it = iter(D.DataLoader(Calls(8, 4, action), batch_size=2, num_workers=2))
    pids = [w.process.pid for w in it._workers.list]
    with pytest.raises(RuntimeError, match=rf"DataLoader worker \(pid\(s\) {pids[0]}\) exited unexpectedly: {how} while it loaded the "
                                             r"batch \[4, 5\]"):
        for _ in it:
            pass
    assert time.monotonic() - start < 10
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_timeout():
    it = iter(D.DataLoader(Calls(4, 0, sleep), num_workers=1, timeout=0.3))
    with pytest.raises(RuntimeError, match=re.escape("DataLoader timed out after 0.3 seconds")):
        next(it)
    process = it._workers.list[0].process
    process.terminate()
    del it
    assert not process.is_alive()


def test_workers_end_with_the_iterator():
    it = iter(D.DataLoader(Squares(100), num_workers=2))
    next(it)
    processes = [w.process for w in it._workers.list]
    assert all(p.is_alive() for p in processes)
    del it
    assert not any(p.is_alive() for p in processes)


def test_persistent_workers():
    class Pids(Squares):
        def __getitem__(self, i):
            return os.getpid()

    loader = D.DataLoader(Pids(6), num_workers=2, persistent_workers=True, collate_fn=list)
    first = [b[0] for b in loader]
    assert [b[0] for b in loader] == first and len(set(first)) == 2
    it = iter(loader)
    next(it)
    assert [b[0] for b in loader] == first  # an epoch that was left in the middle
    loader = D.DataLoader(Shards(5), batch_size=2, num_workers=2, persistent_workers=True)
    assert lists(loader) == lists(loader) == [[0, 2], [1, 3], [4]]
    rl.manual_seed(2)
    loader = D.DataLoader(Squares(6), shuffle=True, num_workers=1, persistent_workers=True)
    assert lists(loader) != lists(loader)


def test_out_of_order():
    class Slow(Squares):
        def __getitem__(self, i):
            time.sleep(0.4 if i == 0 else 0)
            return i

    got = [b.item() for b in D.DataLoader(Slow(6), num_workers=2, in_order=False)]
    assert sorted(got) == list(range(6)) and got[0] != 0
    assert [b.item() for b in D.DataLoader(Slow(6), num_workers=2)] == list(range(6))


def test_start_methods():
    for context in ("spawn", "fork"):
        assert lists(D.DataLoader(Squares(4), batch_size=2, num_workers=1, multiprocessing_context=context)) == [[0, 1], [4, 9]]
    with pytest.raises(ValueError, match="multiprocessing_context option should specify a valid start method in"):
        D.DataLoader(Squares(4), num_workers=1, multiprocessing_context="magic")
    with pytest.raises(TypeError, match="multiprocessing_context option should be a valid context object or a string"):
        D.DataLoader(Squares(4), num_workers=1, multiprocessing_context=3)


def test_too_many_workers_warn():
    with pytest.warns(UserWarning, match="This DataLoader will create 1000 worker processes in total. Our suggested max number of worker"):
        D.DataLoader(Squares(4), num_workers=1000)


def test_resume_with_workers():
    def make():
        return D.DataLoader(Drawn(), batch_size=1, shuffle=True, num_workers=2)

    def flat(b):
        return [c.item() for c in b]

    rl.manual_seed(6)
    loader, got = make(), []
    for n, batch in enumerate(loader):
        got.append(flat(batch))
        if n == 2:
            state = loader.state_dict()
    rl.manual_seed(55)
    other = make()
    other.load_state_dict(state)
    before = rl.get_rng_state()
    assert [flat(b) for b in other] == got[3:] and rl.equal(rl.get_rng_state(), before)
    loader = D.DataLoader(Shards(9), batch_size=2, num_workers=2)
    it = iter(loader)
    next(it), next(it), next(it)
    other = D.DataLoader(Shards(9), batch_size=2, num_workers=2)
    other.load_state_dict(loader.state_dict())
    assert lists(other) == lists(it)


def test_a_child_of_a_killed_parent_ends():
    reader, writer = os.pipe()
    parent = os.fork()
    if parent == 0:
        it = iter(D.DataLoader(Squares(100), num_workers=1))
        next(it)
        os.write(writer, str(it._workers.list[0].process.pid).encode())
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(parent, 0)
    child = int(os.read(reader, 20))
    deadline = time.monotonic() + 8
    while time.monotonic() < deadline:
        try:
            with open(f"/proc/{child}/stat") as f:
                if f.read().split()[2] == "Z":
                    break
        except OSError:
            break
        time.sleep(0.05)
    else:
        raise AssertionError("the worker outlives its parent")
