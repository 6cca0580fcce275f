"""The loop of a worker process, and what it sends: batches, ends of streams, exceptions.

A worker has a pipe for numbers and a channel for batches of its own: no lock is shared, so that a worker killed at any moment cannot
block another, and the end of a channel tells at once that its other side has died.
"""
import os
import random
import sys
import traceback
from dataclasses import dataclass
from typing import Any

import rushlight

MP_STATUS_CHECK_INTERVAL = 5.0  # seconds between looks at whether the parent lives, where its pipe cannot tell


@dataclass(frozen=True)
class WorkerInfo:
    """What get_worker_info() gives in a worker: its number, how many there are, its seed, its copy of the data set."""

    id: int
    num_workers: int
    seed: int
    dataset: Any
    rng: Any = None
    worker_method: str | None = "multiprocessing"


_worker_info: WorkerInfo | None = None


def get_worker_info() -> WorkerInfo | None:
    """In a worker process of a DataLoader its WorkerInfo, else None."""
    return _worker_info


class KeyErrorMessage(str):
    """A message whose repr is itself: KeyError prints the repr of its argument."""

    def __repr__(self) -> str:
        return str(self)


class ExceptionWrapper:
    """An exception with its traceback as text, to be raised again in another process."""

    def __init__(self, exc_info=None, where: str = "in background", note: str = "") -> None:
        exc_info = sys.exc_info() if exc_info is None else exc_info
        self.exc_type = exc_info[0]
        self.exc_msg = "".join(traceback.format_exception(*exc_info))
        self.where, self.note = where, note

    def reraise(self):
        """Raises an exception of the same class whose message holds the traceback and which sample it was."""
        msg = f"Caught {self.exc_type.__name__} {self.where}.\nOriginal {self.exc_msg}{self.note}"
        if self.exc_type is KeyError:
            msg = KeyErrorMessage(msg)
        elif getattr(self.exc_type, "message", None):
            raise self.exc_type(message=msg)
        try:
            exception = self.exc_type(msg)
        except Exception:  # a class that wants other arguments
            raise RuntimeError(msg) from None
        raise exception


@dataclass(frozen=True)
class _IterableDatasetStopIteration:
    worker_id: int


@dataclass(frozen=True)
class _ResumeIteration:
    """Tells a persistent worker that a new epoch begins, and comes back as the answer."""

    seed: int | None = None


def _generate_state(base_seed: int, worker_id: int) -> list[int]:
    """Four words for NumPy's seed: NumPy's SeedSequence of (worker_id, low word, high word, 0), as PyTorch computes it."""
    mask = 0xFFFFFFFF
    a = 0x43B0D7E5

    def hashed(value: int) -> int:
        nonlocal a
        value = (value ^ a) & mask
        a = (a * 0x931E8875) & mask
        value = (value * a) & mask
        return value ^ (value >> 16)

    def mixed(x: int, y: int) -> int:
        r = ((0xCA01F9DD * x & mask) - (0x4973F715 * y & mask)) & mask
        return r ^ (r >> 16)

    pool = [hashed(v) for v in (worker_id, base_seed & mask, base_seed >> 32, 0)]
    for source in range(4):
        for target in range(4):
            if source != target:
                pool[target] = mixed(pool[target], hashed(pool[source]))
    b, state = 0x8B51F9DD, []
    for value in pool:
        value = (value ^ b) & mask
        b = (b * 0x58F38DED) & mask
        value = (value * b) & mask
        state.append(value ^ (value >> 16))
    return state


def _seed_everything(base_seed: int, worker_id: int) -> None:
    """One seed a worker for Python, rushlight and, when it is loaded, NumPy: workers must not draw alike."""
    random.seed(base_seed + worker_id)
    rushlight.manual_seed(base_seed + worker_id)
    np = sys.modules.get("numpy")
    if np is not None:
        np.random.seed(_generate_state(base_seed, worker_id))


def _receive(pipe, parent: int):
    """The next message, or None when the parent is gone."""
    while not pipe.poll(MP_STATUS_CHECK_INTERVAL):
        if os.getppid() != parent:
            return None
    try:
        return pipe.recv()
    except EOFError:
        return None


def _batch_note(fetcher, index) -> str:
    """Which sample failed, as the end of an exception's message."""
    if index is None or (isinstance(index, list) and index and index[0] is None):
        return ""
    item = getattr(fetcher, "item", None)
    if item is not None and item.known:
        return f"This happened at item {item.index!r} of the batch {index!r}.\n"
    return f"This happened in the batch {index!r}.\n"


class _Loop:
    """The state of a worker between messages."""

    def __init__(self, make_fetcher, init_fn, worker_id: int, iterable: bool) -> None:
        self.make_fetcher, self.worker_id, self.iterable = make_fetcher, worker_id, iterable
        self.where = f"in DataLoader worker process {worker_id}"
        self.failure: ExceptionWrapper | None = None
        self.fetcher: Any = None
        self.ended = False
        try:
            if init_fn is not None:
                init_fn(worker_id)
            self.fetcher = make_fetcher()
        except Exception:
            self.failure = ExceptionWrapper(where=self.where)

    def restart(self) -> None:
        """A new epoch."""
        self.ended = False
        self.fetcher = self.make_fetcher()

    def fetch(self, index) -> Any:
        """What answers a request: a batch, the end of the stream, or an exception."""
        if self.failure is not None:
            failure, self.failure = self.failure, None
            return failure
        try:
            return self.fetcher.fetch(index)
        except Exception as e:
            if isinstance(e, StopIteration) and self.iterable:
                self.ended = True
                return _IterableDatasetStopIteration(self.worker_id)
            return ExceptionWrapper(where=self.where, note=_batch_note(self.fetcher, index))


def _send(results, idx, data, where: str) -> None:
    """Sends a batch; what cannot be sent becomes an exception there."""
    try:
        results.send((idx, data))
    except (BrokenPipeError, ConnectionResetError):
        raise
    except Exception:
        results.send((idx, ExceptionWrapper(where=where)))


def _worker_loop(make_fetcher, dataset, requests, results, to_close, base_seed, init_fn, worker_id, num_workers, iterable) -> None:
    """Answers requests until None comes or the parent is gone. to_close: the parent's ends of pipes, inherited by a fork."""
    global _worker_info
    from .channel import Sender
    for pipe in to_close:
        pipe.close()
    results = Sender(results)
    parent = os.getppid()
    try:
        rushlight.set_num_threads(1)
        _seed_everything(base_seed, worker_id)
        _worker_info = WorkerInfo(id=worker_id, num_workers=num_workers, seed=base_seed + worker_id, dataset=dataset)
        loop = _Loop(make_fetcher, init_fn, worker_id, iterable)
        while (message := _receive(requests, parent)) is not None:
            if isinstance(message, _ResumeIteration):
                loop.restart()
                results.send((message, None))
                continue
            if loop.ended:
                continue
            idx, index, skip = message
            data = loop.fetch(index)
            if skip and not isinstance(data, (ExceptionWrapper, _IterableDatasetStopIteration)):
                data = None  # a batch of before the interruption: only the random numbers it took matter
            _send(results, idx, data, loop.where)
            del idx, index, data, message
    except (KeyboardInterrupt, BrokenPipeError, ConnectionResetError):
        pass
