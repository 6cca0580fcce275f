"""spawn: the same function in several processes, whose first failure is raised in the parent with the child's traceback."""
from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import signal
import sys
import tempfile
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["ProcessContext", "ProcessException", "ProcessExitedException", "ProcessRaisedException", "spawn", "start_processes"]


class ProcessException(Exception):
    """A process of spawn failed."""

    def __init__(self, msg: str, error_index: int, pid: int) -> None:
        super().__init__(msg)
        self.msg, self.error_index, self.error_pid = msg, error_index, pid

    @property
    def pid(self) -> int:
        return self.error_pid


class ProcessRaisedException(ProcessException):
    """It raised an exception."""


class ProcessExitedException(ProcessException):
    """It was killed by a signal or ended with an exit code."""

    def __init__(self, msg: str, error_index: int, error_pid: int, exit_code: int, signal_name: str | None = None) -> None:
        super().__init__(msg, error_index, error_pid)
        self.exit_code, self.signal_name = exit_code, signal_name


def _wrap(fn: Callable[..., Any], i: int, args: tuple[Any, ...], error_file: str) -> None:
    try:
        fn(i, *args)
    except KeyboardInterrupt:
        pass
    except Exception:
        import traceback
        with open(error_file, "w", encoding="utf-8") as f:
            f.write(traceback.format_exc())
        sys.exit(1)


class ProcessContext:
    """The running processes of spawn(join=False)."""

    def __init__(self, processes: list[Any], error_files: list[str]) -> None:
        self.processes, self.error_files = processes, error_files
        self.sentinels = {p.sentinel: i for i, p in enumerate(processes)}

    def pids(self) -> list[int]:
        """The processes' ids."""
        return [p.pid for p in self.processes]

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        """Waits until one or more processes have ended; True when all have. Raises the first failure, after ending the others."""
        if not self.sentinels:
            return True
        failed = None
        for sentinel in multiprocessing.connection.wait(self.sentinels.keys(), timeout):
            i = self.sentinels.pop(sentinel)  # type: ignore[call-overload]
            self.processes[i].join()
            if self.processes[i].exitcode != 0:
                failed = i
                break
        if failed is None:
            return not self.sentinels
        self._end_all(grace_period or 30.0)
        raise self._failure(failed)

    def _end_all(self, grace: float) -> None:
        for p in self.processes:
            if p.is_alive():
                p.terminate()
        deadline = time.monotonic() + grace
        for p in self.processes:
            p.join(max(0.0, deadline - time.monotonic()))
            if p.is_alive():
                p.kill()
                p.join()

    def _failure(self, i: int) -> ProcessException:
        p = self.processes[i]
        if os.path.getsize(self.error_files[i]):
            with open(self.error_files[i], encoding="utf-8") as f:
                return ProcessRaisedException(f"\n\n-- Process {i} terminated with the following error:\n{f.read()}", i, p.pid)
        if p.exitcode < 0:
            name = signal.Signals(-p.exitcode).name
            return ProcessExitedException(f"process {i} terminated with signal {name}", i, p.pid, p.exitcode, name)
        return ProcessExitedException(f"process {i} terminated with exit code {p.exitcode}", i, p.pid, p.exitcode)


def start_processes(fn: Callable[..., Any], args: tuple[Any, ...] = (), nprocs: int = 1, join: bool = True, daemon: bool = False,
                    start_method: str = "spawn") -> ProcessContext | None:
    """fn(i, *args) in nprocs processes, started by start_method. join: waits for all and raises the first failure."""
    mp = multiprocessing.get_context(start_method)
    processes, files = [], []
    with tempfile.TemporaryDirectory(prefix="rushlight-spawn-") if join else _Kept() as folder:
        for i in range(nprocs):
            path = os.path.join(folder, f"error-{i}")
            open(path, "wb").close()
            p = mp.Process(target=_wrap, args=(fn, i, args, path), daemon=daemon)  # type: ignore[attr-defined]
            p.start()
            processes.append(p)
            files.append(path)
        context = ProcessContext(processes, files)
        if not join:
            return context
        while not context.join():
            pass
    return None


class _Kept:
    """A folder that stays while the processes run on their own."""

    def __enter__(self) -> str:
        return tempfile.mkdtemp(prefix="rushlight-spawn-")

    def __exit__(self, *exc: Any) -> None:
        pass


def spawn(fn: Callable[..., Any], args: tuple[Any, ...] = (), nprocs: int = 1, join: bool = True, daemon: bool = False,
          start_method: str = "spawn") -> ProcessContext | None:
    """fn(i, *args) in nprocs fresh processes."""
    return start_processes(fn, args, nprocs, join, daemon, start_method)
