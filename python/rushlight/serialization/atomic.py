"""A file that is replaced in one step, or not at all.

The new content goes to a private temporary file in the same folder (rename is atomic only within a file system), is synced, renamed over the
target, and the folder is synced, so that a name never points at half a file. Used for checkpoints and for whatever else must survive a crash.
"""
from __future__ import annotations

import contextlib
import os
import stat
import tempfile


def _final_mode(path: str) -> int:
    """The permissions the target has, or those a plain open() would give it."""
    try:
        return stat.S_IMODE(os.stat(path).st_mode)
    except OSError:
        mask = os.umask(0o077)
        os.umask(mask)
        return 0o666 & ~mask


def _sync_folder(folder: str) -> None:
    fd = os.open(folder, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@contextlib.contextmanager
def replacing(path):
    """with replacing(path) as file: … — `file` is open for writing bytes; the target changes only when the block ends without an error."""
    target = os.path.realpath(os.fspath(path))
    folder, name = os.path.split(target)
    if os.path.isdir(target):
        raise IsADirectoryError(f"[Errno 21] Is a directory: {os.fspath(path)!r}")
    if not os.path.isdir(folder):
        raise RuntimeError(f"Parent directory {folder} does not exist.")
    if os.path.exists(target) and not os.path.isfile(target):  # a pipe or a device has no old content to keep
        with open(target, "wb") as file:
            yield file
        return
    fd, temporary = tempfile.mkstemp(prefix=f".{name[:100]}.", suffix=".tmp", dir=folder)
    try:
        with os.fdopen(fd, "wb") as file:
            yield file
            file.flush()
            os.fchmod(file.fileno(), _final_mode(target))
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    _sync_folder(folder)
