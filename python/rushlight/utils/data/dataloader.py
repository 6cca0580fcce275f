"""DataLoader: batches of a data set, in this process or from worker processes, in PyTorch's order for a seed.

Every iteration draws a base seed (also without workers), then the sampler draws its own. `_Progress` keeps the random states from before
those draws and counts batches, so that state_dict() can say where an epoch stands and another process can go on from there.
"""
import functools
import itertools
import math
import os
import warnings
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

import rushlight

from . import _utils
from ._utils import worker as _worker
from .dataset import Dataset, IterableDataset
from .sampler import BatchSampler, RandomSampler, Sampler, SequentialSampler

__all__ = ["DataLoader", "get_worker_info", "default_collate", "default_convert"]

default_collate = _utils.collate.default_collate
default_convert = _utils.collate.default_convert
get_worker_info = _worker.get_worker_info
_T_co = TypeVar("_T_co", covariant=True)


class _DatasetKind:
    Map = 0
    Iterable = 1

    @staticmethod
    def create_fetcher(kind, dataset, auto_collation, collate_fn, drop_last):
        """The fetcher for a kind of data set."""
        cls = _utils.fetch._MapDatasetFetcher if kind == _DatasetKind.Map else _utils.fetch._IterableDatasetFetcher
        return cls(dataset, auto_collation, collate_fn, drop_last)


class _InfiniteConstantSampler(Sampler):
    """For iterable data sets: None for ever."""

    def __iter__(self):
        return itertools.repeat(None)


class _Progress:
    """Where an epoch stands: the random states before its draws, the number of batches given, whether it is over."""

    def __init__(self, generators) -> None:
        self.rng = rushlight.get_rng_state()
        self.generators = [g.get_state() for g in generators]
        self.yielded = 0
        self.finished = False


class DataLoader(Generic[_T_co]):
    """Iterates over a data set in batches.

    batch_size None: samples as they are. shuffle, sampler and batch_sampler choose the order. num_workers: processes that load, each
    prefetch_factor batches ahead. timeout: seconds to wait for a batch. worker_init_fn(number): runs first in each worker. generator: where
    the seeds come from. persistent_workers: kept between epochs. in_order False: batches as they come.
    """

    dataset: Dataset[_T_co]
    batch_size: int | None
    num_workers: int
    pin_memory: bool
    drop_last: bool
    timeout: float
    sampler: Sampler | Iterable
    pin_memory_device: str
    prefetch_factor: int | None
    _iterator: "_BaseDataLoaderIter | None"
    __initialized = False

    def __init__(self, dataset: Dataset[_T_co], batch_size: int | None = 1, shuffle: bool | None = None,
                 sampler: Sampler | Iterable | None = None,
                 batch_sampler: Sampler[list] | Iterable[list] | None = None, num_workers: int = 0, collate_fn: Callable | None = None,
                 pin_memory: bool = False, drop_last: bool = False, timeout: float = 0, worker_init_fn: Callable[[int], None] | None = None,
                 multiprocessing_context=None, generator=None, *, prefetch_factor: int | None = None, persistent_workers: bool = False,
                 pin_memory_device: str = "", in_order: bool = True) -> None:
        self._check_workers(num_workers, timeout, prefetch_factor, persistent_workers)
        self.dataset, self.num_workers = dataset, num_workers
        self.prefetch_factor = 2 if num_workers > 0 and prefetch_factor is None else prefetch_factor
        self.pin_memory, self.pin_memory_device, self.timeout = pin_memory, pin_memory_device, timeout
        self.worker_init_fn, self.in_order = worker_init_fn, in_order
        self.multiprocessing_context = multiprocessing_context
        self._dataset_kind = _DatasetKind.Iterable if isinstance(dataset, IterableDataset) else _DatasetKind.Map
        if self._dataset_kind == _DatasetKind.Iterable:
            self._check_iterable(shuffle, sampler, batch_sampler)
        shuffle = bool(shuffle)
        self._check_order(batch_size, shuffle, sampler, batch_sampler, drop_last)
        if batch_sampler is not None:
            batch_size, drop_last = None, False
        if sampler is None:
            sampler = self._default_sampler(dataset, shuffle, generator)
        if batch_size is not None and batch_sampler is None:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        self.batch_size, self.drop_last, self.generator = batch_size, drop_last, generator
        self.sampler, self.batch_sampler = sampler, batch_sampler
        self.collate_fn = collate_fn if collate_fn is not None else default_collate if self._auto_collation else default_convert
        self.persistent_workers = persistent_workers
        self._IterableDataset_len_called: int | None = None
        self._iterator = None
        self._progress: _Progress | None = None
        self._resume: dict[str, Any] | None = None
        self.__initialized = True
        self.check_worker_number_rationality()

    @staticmethod
    def _check_workers(num_workers, timeout, prefetch_factor, persistent_workers) -> None:
        if num_workers < 0:
            raise ValueError("num_workers option should be non-negative; use num_workers=0 to disable multiprocessing.")
        if timeout < 0:
            raise ValueError("timeout option should be non-negative")
        if num_workers == 0 and prefetch_factor is not None:
            raise ValueError("prefetch_factor option could only be specified in multiprocessing.let num_workers > 0 to enable "
                             "multiprocessing, "
                             "otherwise set prefetch_factor to None.")
        if prefetch_factor is not None and prefetch_factor < 0:
            raise ValueError("prefetch_factor option should be non-negative")
        if persistent_workers and num_workers == 0:
            raise ValueError("persistent_workers option needs num_workers > 0")

    @staticmethod
    def _check_iterable(shuffle, sampler, batch_sampler) -> None:
        text = "DataLoader with IterableDataset: expected unspecified {0} option, but got {0}={1}"
        if shuffle not in (False, None):
            raise ValueError(text.format("shuffle", shuffle))
        if sampler is not None:
            raise ValueError(text.format("sampler", sampler))
        if batch_sampler is not None:
            raise ValueError(text.format("batch_sampler", batch_sampler))

    @staticmethod
    def _check_order(batch_size, shuffle, sampler, batch_sampler, drop_last) -> None:
        if sampler is not None and shuffle:
            raise ValueError("sampler option is mutually exclusive with shuffle")
        if batch_sampler is not None:
            if batch_size != 1 or shuffle or sampler is not None or drop_last:
                raise ValueError("batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, and drop_last")
        elif batch_size is None and drop_last:
            raise ValueError("batch_size=None option disables auto-batching and is mutually exclusive with drop_last")

    def _default_sampler(self, dataset, shuffle, generator):
        if self._dataset_kind == _DatasetKind.Iterable:
            return _InfiniteConstantSampler()
        return RandomSampler(dataset, generator=generator) if shuffle else SequentialSampler(dataset)

    @property
    def multiprocessing_context(self):
        """The context that workers are started in; None: rushlight.multiprocessing's default."""
        return self.__multiprocessing_context

    @multiprocessing_context.setter
    def multiprocessing_context(self, context) -> None:
        if context is not None:
            import multiprocessing
            if self.num_workers <= 0:
                raise ValueError("multiprocessing_context can only be used with multi-process loading (num_workers > 0), but got "
                                 f"num_workers={self.num_workers}")
            if isinstance(context, str):
                methods = multiprocessing.get_all_start_methods()
                if context not in methods:
                    raise ValueError(f"multiprocessing_context option should specify a valid start method in {methods!r}, but got "
                                     f"multiprocessing_context={context!r}")
                context = multiprocessing.get_context(context)
            if not isinstance(context, multiprocessing.context.BaseContext):
                raise TypeError("multiprocessing_context option should be a valid context object or a string specifying the start "
                                "method, but got "
                                f"multiprocessing_context={context}")
        self.__multiprocessing_context = context

    def __setattr__(self, attr, value) -> None:
        if self.__initialized and attr in ("batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers"):
            raise ValueError(f"{attr} attribute should not be set after {type(self).__name__} is initialized")
        super().__setattr__(attr, value)

    @property
    def _auto_collation(self) -> bool:
        return self.batch_sampler is not None

    @property
    def _index_sampler(self):
        return self.batch_sampler if self._auto_collation else self.sampler

    def __len__(self) -> int:
        if self._dataset_kind == _DatasetKind.Map:
            return len(self._index_sampler)
        length = self._IterableDataset_len_called = len(self.dataset)  # type: ignore[arg-type]
        if self.batch_size is None:
            return length
        return length // self.batch_size if self.drop_last else math.ceil(length / self.batch_size)

    def check_worker_number_rationality(self) -> None:
        """Warns when there are more workers than processors."""
        cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        if self.num_workers and cpus is not None and self.num_workers > cpus:
            warnings.warn(f"This DataLoader will create {self.num_workers} worker processes in total. Our suggested max number of worker "
                          "in current "
                          f"system is {cpus}, which is smaller than what this DataLoader is going to create. Please be aware that "
                          "excessive worker "
                          "creation might get DataLoader running slow or even freeze, lower the worker number to avoid potential "
                          "slowness/freeze "
                          "if necessary.", stacklevel=3)

    # ---- iterating ----

    def _get_iterator(self) -> "_BaseDataLoaderIter":
        return _SingleProcessDataLoaderIter(self) if self.num_workers == 0 else _MultiProcessingDataLoaderIter(self)

    def __iter__(self) -> "_BaseDataLoaderIter":
        if self._resume is not None:
            return self._resumed()
        progress = self._progress = _Progress(self._generators())
        if not (self.persistent_workers and self.num_workers > 0):
            it = self._get_iterator()
        elif self._iterator is None:
            it = self._iterator = self._get_iterator()
        else:
            it = self._iterator
            it._reset(self)
        it._progress = progress
        return it

    # ---- where an epoch stands ----

    def _generators(self) -> list:
        """The explicit generators that an epoch draws from, each once."""
        places = (self, self.sampler, self.batch_sampler, getattr(self.batch_sampler, "sampler", None))
        found = {id(g): g for p in places if isinstance(g := getattr(p, "generator", None), rushlight.Generator)}
        return list(found.values())

    def state_dict(self) -> dict[str, Any]:
        """Where the running epoch stands: save it with the checkpoint, give it to load_state_dict of a DataLoader made with the same
        arguments, and its next iteration goes on with the batch after the last one given. After the end of an epoch: a new epoch."""
        p = self._progress
        if p is None or p.finished:
            return {"version": 1, "num_yielded": 0, "rng_state": None, "generator_states": []}
        return {"version": 1, "num_yielded": p.yielded, "rng_state": p.rng, "generator_states": list(p.generators)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The next iteration goes on where state_dict() was taken.

        Its order comes from the random states saved there; the process's own random state is left as it is. Skipped batches are not loaded,
        except in workers and from iterable data sets, where they are loaded and dropped, so that later random samples are the same.
        """
        if state.get("version") != 1:
            raise ValueError(f"DataLoader.load_state_dict: expected a state of version 1, got {state.get('version')!r}")
        if state["rng_state"] is not None and len(state["generator_states"]) != len(self._generators()):
            raise ValueError(f"DataLoader.load_state_dict: the state holds {len(state['generator_states'])} generators, this DataLoader "
                             "has "
                             f"{len(self._generators())}")
        if self._iterator is not None:
            self._iterator._close()
            self._iterator = None
        self._progress = None
        self._resume = state if state["rng_state"] is not None else None

    def _resumed(self) -> "_BaseDataLoaderIter":
        state, self._resume = self._resume, None
        assert state is not None
        now = rushlight.get_rng_state()
        try:
            rushlight.set_rng_state(state["rng_state"])
            for g, s in zip(self._generators(), state["generator_states"], strict=True):
                g.set_state(s)
            progress = self._progress = _Progress(self._generators())
            self._to_skip = state["num_yielded"]
            it = self._get_iterator()
            it._skip(state["num_yielded"])
        finally:
            self._to_skip = 0
            rushlight.set_rng_state(now)
        progress.yielded = state["num_yielded"]
        it._progress = progress
        if self.persistent_workers and self.num_workers > 0:
            self._iterator = it
        return it

    _to_skip = 0


class _BaseDataLoaderIter:
    _progress: _Progress | None = None

    def __init__(self, loader: DataLoader) -> None:
        self._dataset = loader.dataset
        self._dataset_kind = loader._dataset_kind
        self._IterableDataset_len_called = loader._IterableDataset_len_called
        self._auto_collation = loader._auto_collation
        self._drop_last = loader.drop_last
        self._index_sampler = loader._index_sampler
        self._num_workers = loader.num_workers
        self._pin_memory = self._may_pin(loader)
        self._timeout = loader.timeout
        self._collate_fn = loader.collate_fn
        self._sampler_iter = iter(self._index_sampler)
        self._base_seed = rushlight.empty((), dtype=rushlight.int64).random_(generator=loader.generator).item()
        self._persistent_workers = loader.persistent_workers
        self._num_yielded = 0

    @staticmethod
    def _may_pin(loader) -> bool:
        if not loader.pin_memory:
            return False
        if loader.pin_memory_device:
            warnings.warn("pin_memory_device is deprecated, the current accelerator will be used as the device,ignore "
                          f"pin_memory_device='{loader.pin_memory_device}'.", stacklevel=5)
        if rushlight.cuda.is_available():
            return True
        warnings.warn("'pin_memory' argument is set as true but no accelerator is found, then device pinned memory won't be used.",
                      stacklevel=5)
        return False

    def __iter__(self):
        return self

    def _reset(self, loader) -> None:
        """A new epoch of the same iterator: persistent workers."""
        self._sampler_iter = iter(self._index_sampler)
        self._num_yielded = 0
        self._IterableDataset_len_called = loader._IterableDataset_len_called

    def _close(self) -> None:
        """Ends what the iterator holds."""

    def _next_index(self):
        return next(self._sampler_iter)

    def _next_data(self):
        raise NotImplementedError

    def _skip(self, n: int) -> None:
        """Passes over the first n batches."""
        raise NotImplementedError

    def _draw_now(self) -> None:
        """Makes the sampler draw at once what it would draw at the first batch."""
        first = list(itertools.islice(self._sampler_iter, 1))
        self._sampler_iter = itertools.chain(first, self._sampler_iter)

    def __next__(self) -> Any:
        try:
            data = self._next_data()
        except StopIteration:
            if self._progress is not None:
                self._progress.finished = True
            raise
        self._num_yielded += 1
        if self._progress is not None:
            self._progress.yielded += 1
        if self._dataset_kind == _DatasetKind.Iterable:
            self._warn_length()
        return data

    def _warn_length(self) -> None:
        told = self._IterableDataset_len_called
        if told is None or self._num_yielded <= told:
            return
        text = (f"Length of IterableDataset {self._dataset} was reported to be {told}(when accessing len(dataloader)), but "
                f"{self._num_yielded} samples "
                "have been fetched. ")
        if self._num_workers > 0:
            text += ("For multiprocessing data-loading, this could be caused by not properly configuring the IterableDataset replica at "
                     "each worker. "
                     "Please see https://pytorch.org/docs/stable/data.html#torch.utils.data.IterableDataset for examples.")
        warnings.warn(text, stacklevel=3)

    def __len__(self) -> int:
        return len(self._index_sampler)

    def __getstate__(self):
        raise NotImplementedError("{} cannot be pickled", type(self).__name__)


class _SingleProcessDataLoaderIter(_BaseDataLoaderIter):
    def __init__(self, loader) -> None:
        super().__init__(loader)
        if self._timeout != 0:
            raise AssertionError("_SingleProcessDataLoaderIter requires timeout == 0")
        self._dataset_fetcher = _DatasetKind.create_fetcher(self._dataset_kind, self._dataset, self._auto_collation, self._collate_fn,
                                                            self._drop_last)

    def _next_data(self):
        data = self._dataset_fetcher.fetch(self._next_index())
        return _utils.pin_memory.pin_memory(data) if self._pin_memory else data

    def _skip(self, n: int) -> None:
        self._draw_now()
        for _ in range(n):
            index = next(self._sampler_iter, None)
            if self._dataset_kind == _DatasetKind.Iterable:
                try:
                    self._dataset_fetcher.fetch(index)
                except StopIteration:
                    return
        self._num_yielded = n


class _MultiProcessingDataLoaderIter(_BaseDataLoaderIter):
    """Tasks are numbered as they are sent; `_tasks` maps the number to its worker until its batch is given on, `_arrived` holds batches
    that came before their turn. Worker k gets every k-th task while all are active."""

    def __init__(self, loader) -> None:
        super().__init__(loader)
        from rushlight import multiprocessing
        self._in_order = loader.in_order
        self._to_skip = loader._to_skip
        if loader.prefetch_factor <= 0:
            raise AssertionError("prefetch_factor must be greater than 0 for MultiProcessingDataLoaderIter")
        self._max_tasks = loader.prefetch_factor * self._num_workers
        context = loader.multiprocessing_context or multiprocessing.get_context()
        make_fetcher = functools.partial(_DatasetKind.create_fetcher, self._dataset_kind, self._dataset, self._auto_collation,
                                         self._collate_fn,
                                         self._drop_last)
        self._workers = _utils.processes._Workers(context, self._num_workers, make_fetcher, self._dataset, self._base_seed,
                                                  loader.worker_init_fn,
                                                  self._dataset_kind == _DatasetKind.Iterable)
        self._start()

    def _start(self) -> None:
        self._send_idx = self._rcvd_idx = 0
        self._tasks: dict[int, Any] = {}
        self._arrived: dict[int, Any] = {}
        self._cycle = itertools.cycle(range(self._num_workers))
        for w in self._workers.list:
            w.active = True
        if self._to_skip:
            self._draw_now()
        for _ in range(self._max_tasks):
            self._try_put_index()

    def _reset(self, loader) -> None:
        super()._reset(loader)
        for w in self._workers.list:
            w.requests.send(_worker._ResumeIteration())
        waiting = self._num_workers
        while waiting:  # what the last epoch left unread comes first
            w, (idx, _) = self._workers.receive(self._timeout)
            if isinstance(idx, _worker._ResumeIteration):
                waiting -= 1
                w.asked.clear()
                w.requests.sizes.clear()
        self._to_skip = 0
        self._start()

    def _try_put_index(self) -> None:
        try:
            index = self._next_index()
        except StopIteration:
            return
        workers = self._workers.list
        active = sum(w.active for w in workers)
        for _ in range(self._num_workers):
            w = workers[next(self._cycle)]
            if w.active and (self._in_order or len(w.asked) < self._max_tasks // active):
                break
        else:
            return
        w.ask(self._send_idx, index, self._send_idx < self._to_skip)
        self._tasks[self._send_idx] = w
        self._send_idx += 1

    def _give(self, data):
        self._try_put_index()
        if isinstance(data, _worker.ExceptionWrapper):
            data.reraise()
        return _utils.pin_memory.pin_memory(data) if self._pin_memory else data

    def _pass_lost(self) -> bool:
        """Moves on past tasks that a worker whose stream has ended will not answer. False: nothing is left."""
        while self._rcvd_idx < self._send_idx:
            w = self._tasks.get(self._rcvd_idx)
            if w is not None and (w.active or self._rcvd_idx in self._arrived):
                return True
            self._tasks.pop(self._rcvd_idx, None)
            self._rcvd_idx += 1
        return False

    def _next_data(self):
        while self._pass_lost():
            if self._rcvd_idx in self._arrived:
                data = self._arrived.pop(self._rcvd_idx)
                del self._tasks[self._rcvd_idx]
                self._rcvd_idx += 1
                return self._give(data)
            try:
                w, (idx, data) = self._workers.receive(self._timeout)
            except RuntimeError:
                if any(not w.process.is_alive() for w in self._workers.list):
                    self._close()
                raise
            w.asked.pop(idx, None)
            if isinstance(data, _worker._IterableDatasetStopIteration):
                w.active = False
                self._tasks.pop(idx, None)
                self._try_put_index()
                continue
            if idx == self._rcvd_idx or not self._in_order:
                del self._tasks[idx]
                self._rcvd_idx += idx == self._rcvd_idx
                return self._give(data)
            self._arrived[idx] = data
        if not self._persistent_workers:
            self._close()
        raise StopIteration

    def _skip(self, n: int) -> None:
        for _ in range(n):
            try:
                self._next_data()
            except StopIteration:
                return
        self._num_yielded = n

    def _close(self) -> None:
        self._workers.close()
        self._send_idx = self._rcvd_idx = 0
        self._tasks = {}
        self._arrived = {}

    def __del__(self) -> None:
        try:
            self._workers.close()
        except Exception:  # the interpreter ends, or __init__ failed before there were workers
            pass
