"""A one-way channel between a worker and its parent, over a socket pair: pickled objects, with the memory of tensors as file descriptors.

The descriptors travel inside the message (SCM_RIGHTS), so a batch that was sent stays whole when its sender dies; multiprocessing's own
way asks the sender for them later. Frame: two 64-bit numbers (bytes, descriptors), the descriptors, the pickle.
"""
import io
import pickle
import socket
import struct
from multiprocessing.connection import wait
from multiprocessing.reduction import ForkingPickler
from typing import Any

from rushlight.storage import UntypedStorage

HEADER = struct.Struct("<QQ")
FDS_AT_ONCE = 250  # the kernel takes at most 253 in one message
_received: list[int] = []  # of the message that is being unpickled, by this process's one thread that reads batches


def _take(index: int, nbytes: int) -> UntypedStorage:
    """The storage behind the index-th descriptor of the message."""
    fd, _received[index] = _received[index], -1
    return UntypedStorage._from_fd(fd, nbytes)


class _Pickler(ForkingPickler):
    def __init__(self, file) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self.storages: list[UntypedStorage] = []  # kept until they are sent

    def reducer_override(self, obj):
        if type(obj) is not UntypedStorage or obj.nbytes() == 0:
            return NotImplemented
        obj.share_memory_()
        self.storages.append(obj)
        return _take, (len(self.storages) - 1, obj.nbytes())


class Sender:
    """The writing end."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock

    def send(self, obj: Any) -> None:
        """Pickles first: what cannot be pickled raises with nothing sent. BrokenPipeError when nobody reads any more."""
        buffer = io.BytesIO()
        pickler = _Pickler(buffer)
        pickler.dump(obj)
        fds = [s._share_fd()[0] for s in pickler.storages]
        self.sock.sendall(HEADER.pack(buffer.tell(), len(fds)))
        for at in range(0, len(fds), FDS_AT_ONCE):
            socket.send_fds(self.sock, [b"+"], fds[at:at + FDS_AT_ONCE])
        self.sock.sendall(buffer.getbuffer())


class Receiver:
    """The reading end."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock

    def fileno(self) -> int:
        """For waiting on it."""
        return self.sock.fileno()

    def poll(self) -> bool:
        """Is there something to read, if only the end?"""
        return bool(wait([self.sock], 0))

    def _exactly(self, n: int) -> bytearray:
        data, at = bytearray(n), 0
        while at < n:
            got = self.sock.recv_into(memoryview(data)[at:])
            if got == 0:
                raise EOFError("the other side has closed")
            at += got
        return data

    def recv(self) -> Any:
        """The next object. EOFError when the sender is gone."""
        global _received
        nbytes, nfds = HEADER.unpack(self._exactly(HEADER.size))
        fds: list[int] = []
        try:
            while len(fds) < nfds:
                data, more, flags, _ = socket.recv_fds(self.sock, 1, FDS_AT_ONCE)
                fds += more
                if not data:
                    raise EOFError("the other side has closed")
                if flags & socket.MSG_CTRUNC:
                    raise RuntimeError("Too many open files. Communication with the workers is no longer possible. Please increase the "
                                       "limit using `ulimit -n` in the shell.")
            _received = fds
            return pickle.loads(self._exactly(nbytes))
        finally:
            for fd in fds:
                if fd >= 0:
                    socket.close(fd)

    def close(self) -> None:
        """Ends the reading: the sender's next write fails."""
        self.sock.close()
