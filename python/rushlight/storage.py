"""Storages: the bytes under tensors. UntypedStorage is the C type; TypedStorage is a view of one with a dtype, kept for older code."""
from __future__ import annotations

from . import _C
from ._C import UntypedStorage

TYPE_CHECKING = False  # known to type checkers; importing typing takes longer than all of this package
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

__all__ = ["TypedStorage", "UntypedStorage"]


def _contents(self: Any) -> bytes:
    return memoryview(self._bytes().cpu()).tobytes() if self.nbytes() else b""


def _rebuild_storage(data: bytes) -> Any:
    """From pickled bytes, between our own processes."""
    s = UntypedStorage(len(data))
    if data:
        memoryview(s._bytes())[:] = data
    return s


def _clone(self: Any) -> Any:
    return self._bytes().clone().untyped_storage()


def _deepcopy(self: Any, memo: dict[int, Any]) -> Any:
    if id(self) not in memo:
        memo[id(self)] = _clone(self)
    return memo[id(self)]


def _copy_(self: Any, source: Any, non_blocking: bool | None = None) -> Any:
    self._bytes().copy_(source._bytes() if isinstance(source, UntypedStorage) else source._untyped_storage._bytes())
    return self


def _fill_(self: Any, value: int) -> Any:
    self._bytes().fill_(value)
    return self


def _setitem(self: Any, index: Any, value: Any) -> None:
    self._bytes()[index] = value


def _getitem(self: Any, index: Any) -> Any:
    out = self._bytes()[index]
    return out.untyped_storage() if isinstance(index, slice) else out.item()


for _name, _function in {
    "tolist": lambda self: self._bytes().tolist(), "__iter__": lambda self: iter(self._bytes().tolist()), "__getitem__": _getitem,
    "__setitem__": _setitem, "fill_": _fill_, "copy_": _copy_, "clone": _clone, "__copy__": _clone, "__deepcopy__": _deepcopy,
    "cpu": lambda self: self if self.device.type == "cpu" else self._bytes().cpu().untyped_storage(),
    "__reduce__": lambda self: (_rebuild_storage, (_contents(self),)), "untyped": lambda self: self,
    "is_cuda": property(lambda self: self.device.type == "cuda"), "get_device": lambda self: self._bytes().get_device(),
}.items():
    setattr(UntypedStorage, _name, _function)


class TypedStorage:
    """The elements of an UntypedStorage as numbers of one dtype."""

    def __init__(self, *args: Any, wrap_storage: Any = None, dtype: Any = None, device: Any = None, _internal: bool = False) -> None:
        self.dtype = dtype if dtype is not None else _C.get_default_dtype()
        if wrap_storage is not None:
            self._untyped_storage = wrap_storage
        elif not args:
            self._untyped_storage = UntypedStorage(0)
        elif isinstance(args[0], int):
            self._untyped_storage = UntypedStorage(args[0] * self.element_size())
        else:
            self._untyped_storage = _C.tensor(args[0], dtype=self.dtype).untyped_storage()

    def _tensor(self) -> Any:
        return _C.tensor([], dtype=self.dtype, device=self.device).set_(self._untyped_storage)

    def element_size(self) -> int:
        """Bytes of one element."""
        return self.dtype.itemsize

    def untyped(self) -> Any:
        """The UntypedStorage below."""
        return self._untyped_storage

    @property
    def device(self) -> Any:
        return self._untyped_storage.device

    @property
    def is_cuda(self) -> bool:
        return self.device.type == "cuda"

    def size(self) -> int:
        return len(self)

    def nbytes(self) -> int:
        return self._untyped_storage.nbytes()

    def __len__(self) -> int:
        return self.nbytes() // self.element_size()

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            raise RuntimeError("slices are only supported in UntypedStorage.__getitem__")
        return self._tensor()[index].item()

    def __setitem__(self, index: Any, value: Any) -> None:
        self._tensor()[index] = value

    def __iter__(self) -> Iterator[Any]:
        return iter(self.tolist())

    def tolist(self) -> list[Any]:
        """The elements as a list."""
        return self._tensor().tolist()

    def fill_(self, value: Any) -> TypedStorage:
        self._tensor().fill_(value)
        return self

    def copy_(self, source: Any, non_blocking: bool | None = None) -> TypedStorage:
        self._tensor().copy_(source._tensor())
        return self

    def clone(self) -> TypedStorage:
        return TypedStorage(wrap_storage=_clone(self._untyped_storage), dtype=self.dtype)

    def resize_(self, size: int) -> None:
        self._untyped_storage.resize_(size * self.element_size())

    def data_ptr(self) -> int:
        return self._untyped_storage.data_ptr()

    def is_shared(self) -> bool:
        return self._untyped_storage.is_shared()

    def is_pinned(self, device: Any = "cuda") -> bool:
        return self._untyped_storage.is_pinned()

    def share_memory_(self) -> TypedStorage:
        self._untyped_storage.share_memory_()
        return self

    def cpu(self) -> TypedStorage:
        return TypedStorage(wrap_storage=self._untyped_storage.cpu(), dtype=self.dtype)

    @property
    def _cdata(self) -> int:
        return self._untyped_storage._cdata

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TypedStorage) and self.data_ptr() == other.data_ptr() and self.dtype == other.dtype

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        numbers = "\n ".join(f"{v}" for v in self.tolist())
        return f" {numbers}\n[rushlight.storage.TypedStorage(dtype={self.dtype}, device={self.device}) of size {len(self)}]"


def _untyped_repr(self: Any) -> str:
    numbers = "\n ".join(f"{v}" for v in self.tolist())
    return f" {numbers}\n[rushlight.storage.UntypedStorage(device={self.device}) of size {len(self)}]"


UntypedStorage.__repr__ = _untyped_repr  # type: ignore[method-assign]
