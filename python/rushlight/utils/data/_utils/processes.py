"""The parent's side of worker processes: starting them, asking them, noticing that they died, ending them."""
import collections
import multiprocessing
import multiprocessing.connection
import queue
import signal
import socket
import threading
import time
import warnings
from multiprocessing.reduction import ForkingPickler
from pickle import PicklingError

from .channel import Receiver
from .worker import MP_STATUS_CHECK_INTERVAL, _worker_loop

PIPE_BYTES = 48 * 1024  # unanswered requests that surely fit a pipe: writing them cannot block


class _Requests:
    """The writing end of a worker's pipe. Writes directly what surely fits the pipe's buffer; else a thread writes, so that the parent
    never waits for a worker that waits for the parent."""

    def __init__(self, pipe) -> None:
        self.pipe = pipe
        self.sizes: collections.deque[int] = collections.deque()
        self.thread: threading.Thread | None = None
        self.backlog: queue.SimpleQueue = queue.SimpleQueue()

    def send(self, message) -> None:
        """Hands a message over."""
        data = bytes(ForkingPickler.dumps(message))
        self.sizes.append(len(data))
        try:
            if self.thread is None and sum(self.sizes) <= PIPE_BYTES:
                self.pipe.send_bytes(data)
                return
        except (BrokenPipeError, OSError):
            return  # the worker died: its other pipe tells
        if self.thread is None:
            self.thread = threading.Thread(target=self._write, daemon=True)
            self.thread.start()
        self.backlog.put(data)

    def _write(self) -> None:
        while (data := self.backlog.get()) is not None:
            try:
                self.pipe.send_bytes(data)
            except (OSError, ValueError):
                return

    def answered(self) -> None:
        """The oldest message was read and answered."""
        if self.sizes:
            self.sizes.popleft()

    def close(self) -> None:
        """Tells the worker to end."""
        try:
            if self.thread is not None:
                self.backlog.put(bytes(ForkingPickler.dumps(None)))
                self.backlog.put(None)
            else:
                self.pipe.send(None)
        except (OSError, ValueError):
            pass


class _Worker:
    """One process with its two pipes, and the numbers it was asked for and has not answered."""

    def __init__(self, context, number: int, args, inherited) -> None:
        request_reader, request_writer = context.Pipe(duplex=False)
        result_reader, result_writer = socket.socketpair()
        self.results = Receiver(result_reader)
        self.requests = _Requests(request_writer)
        self.number, self.asked, self.active = number, collections.OrderedDict(), True
        to_close = [*inherited, request_writer, result_reader] if context.get_start_method() == "fork" else []
        make_fetcher, dataset, base_seed, init_fn, count, iterable = args
        self.process = context.Process(target=_worker_loop, daemon=True, args=(
            make_fetcher, dataset, request_reader, result_writer, to_close, base_seed, init_fn, number, count, iterable))
        try:
            self.process.start()
        except (TypeError, AttributeError, PicklingError):
            warnings.warn("Got pickle error when attempting to start a worker Process. This might be because the worker Process "
                          "arguments are "
                          "not picklable. Python 3.14+ changed the multiprocessing start method in non-Mac POSIX platforms to "
                          "'forkserver', "
                          "which requires the worker Process arguments to be picklable. You can also try "
                          "multiprocessing.set_start_method('fork').", stacklevel=5)
            raise
        finally:
            request_reader.close()
            result_writer.close()

    def ask(self, idx, index, skip: bool) -> None:
        """Requests a batch."""
        self.asked[idx] = index
        self.requests.send((idx, index, skip))

    def describe_death(self) -> str:
        """How the process ended, and at what."""
        self.process.join(timeout=1.0)
        code = self.process.exitcode
        if code is not None and code < 0:
            try:
                how = f"killed by signal {-code} ({signal.Signals(-code).name})"
            except ValueError:
                how = f"killed by signal {-code}"
        else:
            how = f"with exit code {code}"
        at = next(iter(self.asked.values()), None)
        text = f"DataLoader worker (pid(s) {self.process.pid}) exited unexpectedly: {how}"
        if at is not None and not (isinstance(at, list) and at and at[0] is None):
            text += f" while it loaded the batch {at!r}"
        if code == -signal.SIGBUS:
            text += ". Shared memory may be full: look at /dev/shm, give the container more with --shm-size, or use fewer workers"
        return text


class _Workers:
    """All worker processes of one iterator."""

    def __init__(self, context, count: int, make_fetcher, dataset, base_seed, init_fn, iterable) -> None:
        self.list: list[_Worker] = []
        try:
            for i in range(count):
                inherited = [end for w in self.list for end in (w.requests.pipe, w.results.sock)]
                self.list.append(_Worker(context, i, (make_fetcher, dataset, base_seed, init_fn, count, iterable), inherited))
        except BaseException:
            self.close()
            raise

    def receive(self, timeout: float):
        """(worker, (idx, data)) of the next answer. RuntimeError when a worker died or the time is over."""
        deadline = time.monotonic() + timeout if timeout > 0 else None
        while True:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            ready = multiprocessing.connection.wait([x for w in self.list for x in (w.results, w.process.sentinel)], left)
            if not ready:
                raise RuntimeError(f"DataLoader timed out after {timeout} seconds")
            for w in self.list:
                if w.results in ready or w.process.sentinel in ready:
                    return w, self._read(w)

    @staticmethod
    def _read(w: _Worker):
        try:
            if w.results.poll():
                message = w.results.recv()
                w.requests.answered()
                return message
        except (EOFError, ConnectionError) as e:
            w.active = False
            raise RuntimeError(w.describe_death()) from e
        w.active = False
        raise RuntimeError(w.describe_death())

    def close(self) -> None:
        """Ends every process: asks first, then terminates."""
        for w in self.list:
            w.requests.close()
        for w in self.list:
            w.results.close()  # a worker that writes gets an error and ends
        for w in self.list:
            w.process.join(timeout=MP_STATUS_CHECK_INTERVAL)
            if w.process.is_alive():
                w.process.terminate()
                w.process.join(timeout=MP_STATUS_CHECK_INTERVAL)
            if w.process.is_alive():
                w.process.kill()
                w.process.join(timeout=MP_STATUS_CHECK_INTERVAL)
            w.requests.pipe.close()
        self.list = []
