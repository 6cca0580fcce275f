"""utils.data without worker processes: data sets, samplers, collating, DataLoader's options, order and resuming. Orders are PyTorch's."""
import collections
import re

import numpy as np
import pytest
import rushlight as rl
from rushlight.utils import data as D


def raises(cls, text):
    return pytest.raises(cls, match="^" + re.escape(text) + "$")


def plain(x):
    """Tensors as lists, anywhere."""
    if isinstance(x, rl.Tensor):
        return x.tolist()
    if isinstance(x, (list, tuple)):
        return [plain(v) for v in x]
    return {k: plain(v) for k, v in x.items()} if isinstance(x, dict) else x


class Squares(D.Dataset):
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        if i >= self.n:
            raise IndexError(i)
        return i * i


class Stream(D.IterableDataset):
    def __init__(self, n, length=None):
        self.n, self.length = n, length

    def __iter__(self):
        return iter(range(self.n))

    def __len__(self):
        if self.length is None:
            raise TypeError("no length")
        return self.length


# ---- data sets ----


def test_datasets():
    t = D.TensorDataset(rl.arange(4), rl.arange(8.0).view(4, 2))
    assert len(t) == 4 and plain(t[2]) == [2, [4.0, 5.0]] and plain(t[1:3]) == [[1, 2], [[2.0, 3.0], [4.0, 5.0]]]
    with raises(AssertionError, "Size mismatch between tensors"):
        D.TensorDataset(rl.ones(2), rl.ones(3))
    both = Squares(3) + Squares(2)
    assert isinstance(both, D.ConcatDataset) and [both[i] for i in range(5)] == [0, 1, 4, 0,
                                                                                 1] and both[-1] == 1 and both.cumulative_sizes == [3, 5]
    with raises(ValueError, "absolute value of index should not exceed dataset length"):
        both[-6]
    stacked = D.StackDataset(Squares(3), Squares(3))
    assert stacked[2] == (4, 4) and stacked.__getitems__([0, 2]) == [(0, 0), (4, 4)] and len(stacked) == 3
    named = D.StackDataset(x=Squares(3), y=D.Subset(Squares(9), [8, 1, 0]))
    assert named[0] == {"x": 0, "y": 64} and named.__getitems__([1, 2]) == [{"x": 1, "y": 1}, {"x": 4, "y": 0}]
    assert list(Stream(2) + Stream(3)) == [0, 1, 0, 1, 2]
    sub = D.Subset(Squares(10), [5, 7])
    assert sub[1] == 49 and len(sub) == 2 and sub.__getitems__([0, 1]) == [25, 49]
    with raises(NotImplementedError, "Subclasses of Dataset should implement __getitem__."):
        D.Dataset()[0]


def test_random_split():
    g = rl.Generator().manual_seed(1)
    a, b = D.random_split(Squares(7), [3, 4], generator=g)
    assert a.indices == [0, 6, 1, 3, 5, 2, 4][:3] and b.indices == [0, 6, 1, 3, 5, 2, 4][3:]
    assert [len(s) for s in D.random_split(Squares(10), [0.5, 0.25, 0.25])] == [6, 2, 2]
    with raises(ValueError, "Sum of input lengths does not equal the length of the input dataset!"):
        D.random_split(Squares(3), [1, 1])
    with raises(ValueError, "Fraction at index 0 is not between 0 and 1"):
        D.random_split(Squares(3), [1.5, -0.5])
    with pytest.warns(UserWarning, match="Length of split at index 1 is 0"):
        D.random_split(Squares(1), [0.9, 0.1])


# ---- samplers ----


def test_samplers():
    assert list(D.SequentialSampler(Squares(3))) == [0, 1, 2]
    assert list(D.BatchSampler(range(5), 2, False)) == [[0, 1], [2, 3], [4]] and list(D.BatchSampler(range(5), 2, True)) == [[0, 1], [2, 3]]
    assert len(D.BatchSampler(range(5), 2, False)) == 3 and len(D.BatchSampler(range(5), 2, True)) == 2
    rl.manual_seed(5)
    assert list(D.RandomSampler(Squares(6))) == [1, 5, 0, 4, 3, 2]
    assert list(D.RandomSampler(Squares(6), replacement=True, num_samples=35)) == [2, 2, 4, 5, 5, 5, 2, 4, 5, 4, 1, 3, 4, 1, 4, 3, 5, 4, 5,
                                                                                   1, 1, 1, 2, 2, 2, 1, 0, 0, 0, 2, 2, 2, 3, 3, 4]
    assert list(D.RandomSampler(Squares(4), num_samples=6)) == [1, 0, 2, 3, 2, 3]
    assert list(D.SubsetRandomSampler([10, 20, 30, 40])) == [10, 40, 30, 20]
    assert list(D.WeightedRandomSampler([0.1, 0.9, 0.5], 8)) == [2, 1, 1, 1, 1, 1, 1, 1]
    assert sorted(D.WeightedRandomSampler([1.0, 2.0, 3.0], 3, replacement=False)) == [0, 1, 2]
    for call, cls, text in ((lambda: D.BatchSampler(range(3), 0, False), ValueError, "batch_size should be a positive integer value, but "
                                                                                     "got batch_size=0"),
                            (lambda: D.BatchSampler(range(3), 2, 1), ValueError, "drop_last should be a boolean value, but got "
                                                                                 "drop_last=1"),
                            (lambda: D.RandomSampler(Squares(0)), ValueError, "num_samples should be a positive integer value, but got "
                                                                              "num_samples=0"),
                            (lambda: D.RandomSampler(Squares(2), replacement=1), TypeError,
                             "replacement should be a boolean value, but got replacement=1"),
                            (lambda: D.WeightedRandomSampler([[1.0]], 1), ValueError,
                             "weights should be a 1d sequence but given weights have shape (1, 1)")):
        with raises(cls, text):
            call()


def test_distributed_sampler():
    parts = [list(D.DistributedSampler(Squares(7), num_replicas=3, rank=r, shuffle=False)) for r in range(3)]
    assert parts == [[0, 3, 6], [1, 4, 0], [2, 5, 1]]
    assert [list(D.DistributedSampler(Squares(7), 3, r, shuffle=False, drop_last=True)) for r in range(3)] == [[0, 3], [1, 4], [2, 5]]
    s = D.DistributedSampler(Squares(7), 3, 1, seed=4)
    first = list(s)
    assert first == [1, 2, 3] and len(s) == 3
    s.set_epoch(1)
    assert list(s) != first
    with raises(ValueError, "Invalid rank 3, rank should be in the interval [0, 2]"):
        D.DistributedSampler(Squares(7), 3, 3)


# ---- collating ----


def test_default_collate():
    point = collections.namedtuple("point", "x y")
    c = D.default_collate
    assert plain(c([rl.ones(2), rl.zeros(2)])) == [[1.0, 1.0], [0.0, 0.0]]
    assert c([1.5, 2]).dtype == rl.float64 and c([1, 2]).dtype == rl.int64 and c([True, False]).dtype == rl.bool
    assert c(["a", "b"]) == ["a", "b"]
    assert plain(c([{"a": 1, "b": [2, 3]}, {"a": 4, "b": [5, 6]}])) == {"a": [1, 4], "b": [[2, 5], [3, 6]]}
    assert type(c([(1, 2), (3, 4)])) is list and isinstance(c([point(1, 2), point(3, 4)]), point)
    assert plain(c([np.float32(1), np.float32(2)])) == [1.0, 2.0] and c([np.float32(1)]).dtype == rl.float32
    assert plain(c([np.arange(2), np.arange(2)])) == [[0, 1], [0, 1]] and c([np.float64(1)]).dtype == rl.float64
    with raises(RuntimeError, "each element in list of batch should be of equal size"):
        c([[1], [1, 2]])
    with raises(TypeError, "default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found <class 'object'>"):
        c([object()])
    with raises(TypeError, "default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found object"):
        c([np.array([object()])])
    assert plain(D.default_convert({"a": np.arange(2), "b": (np.float32(1), "text")})) == {"a": [0, 1], "b": [1.0, "text"]}


# ---- DataLoader ----


def test_order_for_a_seed():
    rl.manual_seed(0)
    loader = D.DataLoader(D.TensorDataset(rl.arange(10)), batch_size=4, shuffle=True)
    assert [plain(b) for b in loader] == [[[6, 7, 1, 4]], [[2, 0, 9, 8]], [[3, 5]]]
    assert [plain(b) for b in loader] == [[[2, 4, 7, 0]], [[8, 9, 5, 3]], [[6, 1]]]
    assert rl.rand(1).item() == 0.455627977848053
    g = rl.Generator().manual_seed(9)
    assert [plain(b) for b in D.DataLoader(Squares(5), batch_size=2, shuffle=True, generator=g)] == [[16, 4], [0, 9], [1]]


def test_batches_of_tensor_datasets_are_copies():
    x = rl.arange(12.0).view(6, 2)
    for dataset in (D.TensorDataset(x, rl.arange(6)), D.Subset(D.TensorDataset(x, rl.arange(6)), [5, 4, 3, 2, 1, 0])):
        (a, i), *rest = D.DataLoader(dataset, batch_size=4)
        assert len(rest) == 1 and rl.equal(a, x[i]) and rest[0][0].shape == (2, 2)
        a.zero_()
        assert x.sum().item() == 66
    scalars = list(D.DataLoader(D.TensorDataset(rl.tensor([3, 4, 5])), batch_size=2))
    assert plain(scalars) == [[[3, 4]], [[5]]]


def test_tensor_datasets_that_are_no_plain_copy():
    x = rl.arange(8.0, requires_grad=True)
    (b,) = next(iter(D.DataLoader(D.TensorDataset(x * 2), batch_size=3)))
    b.sum().backward()
    assert x.grad.tolist() == [2.0] * 3 + [0.0] * 5
    transposed = rl.arange(6).view(2, 3).t()
    assert plain(next(iter(D.DataLoader(D.TensorDataset(transposed), batch_size=2)))) == [[[0, 3], [1, 4]]]

    class Doubled(D.TensorDataset):
        def __getitem__(self, i):
            return super().__getitem__(i)[0] * 2

    assert plain(list(D.DataLoader(Doubled(rl.arange(3)), batch_size=3))) == [[0, 2, 4]]
    with pytest.raises(IndexError, match="index 9 is out of bounds for dimension 0 with size 3"):
        list(D.DataLoader(D.TensorDataset(rl.arange(3)), batch_sampler=[[0, 9]]))


def test_options():
    assert plain(list(D.DataLoader(Squares(5), batch_size=2, drop_last=True))) == [[0, 1], [4, 9]]
    assert list(D.DataLoader(Squares(3), batch_size=None)) == [0, 1, 4]
    assert list(D.DataLoader(Squares(4), batch_size=2, collate_fn=list)) == [[0, 1], [4, 9]]
    assert plain(list(D.DataLoader(Squares(4), batch_sampler=[[3], [0, 1]]))) == [[9], [0, 1]]
    assert plain(list(D.DataLoader(Squares(4), sampler=[2, 0]))) == [[4], [0]]
    assert len(D.DataLoader(Squares(5), batch_size=2)) == 3 and len(D.DataLoader(Squares(5), batch_size=2, drop_last=True)) == 2
    assert plain(list(D.DataLoader(Stream(5), batch_size=2))) == [[0, 1], [2, 3], [4]]
    assert plain(list(D.DataLoader(Stream(5), batch_size=2, drop_last=True))) == [[0, 1], [2, 3]]
    assert list(D.DataLoader(Stream(3), batch_size=None)) == [0, 1, 2] and len(D.DataLoader(Stream(5, 5), batch_size=2)) == 3
    loader = D.DataLoader(Stream(3, 1), batch_size=None)
    len(loader)
    with pytest.warns(UserWarning, match="was reported to be 1"):
        list(loader)
    with pytest.warns(UserWarning, match="'pin_memory' argument is set as true but no accelerator is found"):
        assert plain(list(D.DataLoader(Squares(2), pin_memory=True))) == [[0], [1]]


def test_option_errors():
    s = Squares(3)
    for options, text in (({"num_workers": -1}, "num_workers option should be non-negative; use num_workers=0 to disable multiprocessing."),
                          ({"timeout": -1}, "timeout option should be non-negative"),
                          ({"prefetch_factor": 2}, "prefetch_factor option could only be specified in multiprocessing.let num_workers > "
                                                   "0 to enable "
                                                   "multiprocessing, otherwise set prefetch_factor to None."),
                          ({"persistent_workers": True}, "persistent_workers option needs num_workers > 0"),
                          ({"sampler": [1], "shuffle": True}, "sampler option is mutually exclusive with shuffle"),
                          ({"batch_sampler": [[1]], "batch_size": 2},
                           "batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, and drop_last"),
                          ({"batch_size": None, "drop_last": True}, "batch_size=None option disables auto-batching and is mutually "
                                                                    "exclusive with drop_last"),
                          ({"batch_size": 0}, "batch_size should be a positive integer value, but got batch_size=0"),
                          ({"multiprocessing_context": "fork"},
                           "multiprocessing_context can only be used with multi-process loading (num_workers > 0), but got num_workers=0")):
        with raises(ValueError, text):
            D.DataLoader(s, **options)
    with raises(ValueError, "DataLoader with IterableDataset: expected unspecified shuffle option, but got shuffle=True"):
        D.DataLoader(Stream(3), shuffle=True)
    loader = D.DataLoader(s)
    with raises(ValueError, "batch_size attribute should not be set after DataLoader is initialized"):
        loader.batch_size = 3
    assert D.get_worker_info() is None


# ---- resuming ----



def test_resume_in_the_middle_of_an_epoch():
    def make(**options):
        return D.DataLoader(D.TensorDataset(rl.arange(11)), batch_size=2, **options)

    weights = [1.0] * 11
    for options in (lambda: {"shuffle": True}, dict, lambda: {"shuffle": True, "generator": rl.Generator().manual_seed(4)},
                    lambda: {"sampler": D.RandomSampler(range(11), num_samples=25)},
                    lambda: {"sampler": D.WeightedRandomSampler(weights, 9)}, lambda: {"sampler": D.SubsetRandomSampler(list(range(11)))}):
        rl.manual_seed(3)
        loader, got = make(**options()), []
        list(loader)
        for n, batch in enumerate(loader):
            got.append(plain(batch))
            if n == 1:
                state, rng = loader.state_dict(), rl.get_rng_state()
        after = [plain(b) for b in loader]
        rl.manual_seed(77)
        other = make(**options())
        other.load_state_dict(state)
        rl.set_rng_state(rng)
        assert [plain(b) for b in other] == got[2:]
        assert [plain(b) for b in other] == after


def test_resume_of_a_stream_and_of_a_whole_epoch():
    loader = D.DataLoader(Stream(7), batch_size=2)
    it = iter(loader)
    next(it)
    other = D.DataLoader(Stream(7), batch_size=2)
    other.load_state_dict(loader.state_dict())
    assert plain(list(other)) == [[2, 3], [4, 5], [6]]
    list(it)
    other.load_state_dict(loader.state_dict())
    assert len(list(other)) == 4
    with raises(ValueError, "DataLoader.load_state_dict: expected a state of version 1, got 9"):
        other.load_state_dict({"version": 9})
