"""Turns an object into the opcodes of data.pkl: protocol 2, as PyTorch writes them, emitted here and never by pickle.

Invariant: only what PyTorch's weights_only reader accepts is emitted; anything else is a TypeError that says where it stands in the object.
Tensors become _rebuild_tensor_v2 calls over storages named by persistent ids. Of each storage only the span that the saved tensors reach is
written, so a first pass collects the tensors.
"""
from __future__ import annotations

import struct
from collections import Counter, OrderedDict
from typing import Any

import rushlight as rl

STORAGE_TYPES = {"float64": "DoubleStorage", "float32": "FloatStorage", "float16": "HalfStorage", "bfloat16": "BFloat16Storage",
                 "int64": "LongStorage", "int32": "IntStorage", "int16": "ShortStorage", "int8": "CharStorage", "uint8": "ByteStorage",
                 "bool": "BoolStorage"}
_BATCH = 1000


def dtype_name(dtype) -> str:
    """'float32' of rushlight.float32, whatever the prefix it prints with."""
    return str(dtype).rsplit(".", 1)[-1]


class Span:
    """The bytes [start, end) of one storage that saved tensors reach, and its key in the archive."""

    def __init__(self, storage, key: int):
        self.storage, self.key, self.end = storage, str(key), 0
        self.start: int | None = None

    def cover(self, start: int, end: int) -> None:
        self.start = start if self.start is None else min(self.start, start)
        self.end = max(self.end, end)


def _reach(t) -> tuple[int, int]:
    """First and one past the last byte of its storage that tensor t reaches."""
    size = t.element_size()
    start = t.storage_offset() * size
    if t.numel() == 0:
        return start, start
    last = sum((n - 1) * s for n, s in zip(t.shape, t.stride(), strict=True))
    return start, start + (last + 1) * size


class Writer:
    """One object's opcodes. `spans` afterwards: the storages to write, by address."""

    def __init__(self):
        self.out = bytearray(b"\x80\x02")
        self.memo: dict[int, int] = {}
        self.keep: list[Any] = []  # objects whose id stands in memo must live on
        self.spans: dict[tuple, Span] = {}
        self.path: list[str] = []

    def dump(self, obj: Any) -> bytes:
        self._collect(obj, set())
        self._emit(obj)
        self.out += b"."
        return bytes(self.out)

    # ---- first pass
    def _collect(self, obj: Any, seen: set[int]) -> None:
        """Covers the spans of every tensor under obj; iterative, since containers may nest deeply."""
        todo = [obj]
        while todo:
            o = todo.pop()
            if isinstance(o, rl.Tensor):
                self._span(o).cover(*_reach(o))
            elif isinstance(o, (dict, list, tuple, set)) and id(o) not in seen:
                seen.add(id(o))
                todo.extend([*o.keys(), *o.values(), *getattr(o, "__dict__", {}).values()] if isinstance(o, dict) else o)

    def _span(self, t) -> Span:
        storage = t.untyped_storage()
        key = (str(t.device), storage.data_ptr() if storage.nbytes() else id(t), storage.nbytes())
        if key not in self.spans:
            self.keep.append(t)
            self.spans[key] = Span(storage, len(self.spans))
        return self.spans[key]

    # ---- second pass
    def _refuse(self, o: Any) -> TypeError:
        where = "".join(self.path) or "the object"
        if isinstance(o, rl.nn.Module):
            return TypeError(f"save: {where} is a whole module ({type(o).__name__}); save its state_dict() instead, and load it with "
                             "load_state_dict(): a saved module cannot be read back without running code")
        hint = "; convert it with float() or int()" if type(o).__module__ == "numpy" else ""
        return TypeError(f"save: {where} is of type {type(o).__module__}.{type(o).__qualname__}, which is not on the list of what a file "
                         f"may hold (tensors, numbers, strings, bytes, None, dtype, device, Size, and dict, OrderedDict, Counter, list, tuple, "
                         f"set of them){hint}")

    def _put(self, o: Any) -> None:
        n = len(self.memo)
        self.memo[id(o)] = n
        self.keep.append(o)
        self.out += b"q" + bytes([n]) if n < 256 else b"r" + struct.pack("<I", n)

    def _get(self, o: Any) -> bool:
        n = self.memo.get(id(o))
        if n is None:
            return False
        self.out += b"h" + bytes([n]) if n < 256 else b"j" + struct.pack("<I", n)
        return True

    def _emit(self, o: Any) -> None:
        kind = type(o)
        emit = _EMIT.get(kind)
        if emit is not None:
            emit(self, o)
        elif isinstance(o, rl.Tensor):
            self._tensor(o)
        elif kind in (rl.dtype, rl.device, rl.Size, rl.layout):
            self._value(o)
        else:
            raise self._refuse(o)

    def _int(self, v: int) -> None:
        if 0 <= v < 256:
            self.out += b"K" + bytes([v])
        elif 0 <= v < 65536:
            self.out += b"M" + struct.pack("<H", v)
        elif -2**31 <= v < 2**31:
            self.out += b"J" + struct.pack("<i", v)
        else:
            data = v.to_bytes((v.bit_length() >> 3) + 1, "little", signed=True)
            self.out += b"\x8a" + bytes([len(data)]) if len(data) < 256 else b"\x8b" + struct.pack("<i", len(data))
            self.out += data

    def _str(self, v: str) -> None:
        if self._get(v):
            return
        data = v.encode("utf-8", "surrogatepass")
        self.out += b"X" + struct.pack("<I", len(data)) + data
        self._put(v)

    def _global(self, module: str, name: str) -> None:
        self.out += f"c{module}\n{name}\n".encode()

    def _bytes(self, v: bytes) -> None:
        """Protocol 2 has no bytes: the latin-1 text and a call that encodes it, as Python's pickle does."""
        self._global("_codecs", "encode")
        self._emit(v.decode("latin1"))
        self._emit("latin1")
        self.out += b"\x86R"

    def _bytearray(self, v: bytearray) -> None:
        self._global("__builtin__", "bytearray")
        self._bytes(bytes(v))
        self.out += b"\x85R"

    def _complex(self, v: complex) -> None:
        self._global("__builtin__", "complex")
        self._emit(v.real)
        self._emit(v.imag)
        self.out += b"\x86R"

    def _items(self, items, end: bytes) -> None:
        """MARK, a batch of emitted items, `end`; items yield (label, *objects)."""
        count = 0
        for label, *objects in items:
            if count % _BATCH == 0:
                self.out += (end if count else b"") + b"("
            count += 1
            self.path.append(label)
            for x in objects:
                self._emit(x)
            self.path.pop()
        if count:
            self.out += end

    def _list(self, v: list) -> None:
        if self._get(v):
            return
        self.out += b"]"
        self._put(v)
        self._items(((f"[{i}]", x) for i, x in enumerate(v)), b"e")

    def _tuple(self, v: tuple) -> None:
        if self._get(v):
            return
        if len(v) > 3:
            self.out += b"("
        for i, x in enumerate(v):
            self.path.append(f"[{i}]")
            self._emit(x)
            self.path.pop()
        if id(v) in self.memo:  # it was reached again through one of its own items
            raise self._refuse(v)
        self.out += (b")", b"\x85", b"\x86", b"\x87")[len(v)] if len(v) <= 3 else b"t"
        if v:
            self._put(v)

    def _pairs(self, v: dict) -> None:
        self._items(((f"[{k!r}]", k, x) for k, x in v.items()), b"u")

    def _dict(self, v: dict) -> None:
        if self._get(v):
            return
        self.out += b"}"
        self._put(v)
        self._pairs(v)

    def _ordered_dict(self, v: OrderedDict) -> None:
        if self._get(v):
            return
        self._global("collections", "OrderedDict")
        self.out += b")R"
        self._put(v)
        self._pairs(v)
        if getattr(v, "__dict__", None):
            self._dict(v.__dict__)
            self.out += b"b"

    def _counter(self, v: Counter) -> None:
        if self._get(v):
            return
        self._global("collections", "Counter")
        self._dict(dict(v))
        self.out += b"\x85R"
        self._put(v)

    def _set(self, v: set) -> None:
        if self._get(v):
            return
        self._global("__builtin__", "set")
        self._list(list(v))
        self.out += b"\x85R"
        self._put(v)

    def _value(self, v: Any) -> None:
        if isinstance(v, rl.Size):
            self._global("torch", "Size")
            self._tuple(tuple(v))
            self.out += b"\x85R"
        elif isinstance(v, rl.device):
            self._global("torch", "device")
            self._emit(v.type)
            if v.index is None:
                self.out += b"\x85R"
            else:
                self._int(v.index)
                self.out += b"\x86R"
        elif isinstance(v, rl.layout):
            self._global("torch.serialization", "_get_layout")
            self._emit("torch.strided")
            self.out += b"\x85R"
        else:
            self._global("torch", dtype_name(v))

    def _tensor(self, t: Any) -> None:
        if self._get(t):
            return
        if isinstance(t, rl.nn.Parameter):
            self._global("torch._utils", "_rebuild_parameter")
            self._rebuild(t, False)
            self.out += b"\x88" if t.requires_grad else b"\x89"
            self._empty_ordered_dict()
            self.out += b"\x87R"
        elif type(t) is not rl.Tensor:
            raise self._refuse(t)
        else:
            self._rebuild(t, t.requires_grad)
        self._put(t)

    def _empty_ordered_dict(self) -> None:
        self._global("collections", "OrderedDict")
        self.out += b")R"

    def _rebuild(self, t: Any, requires_grad: bool) -> None:
        """_rebuild_tensor_v2(storage, offset, size, stride, requires_grad, hooks)"""
        name = dtype_name(t.dtype)
        span, size = self._span(t), t.element_size()
        start = span.start - span.start % 8 if span.start else 0  # every dtype stays aligned to its own size
        self._global("torch._utils", "_rebuild_tensor_v2")
        self.out += b"(("
        self._emit("storage")
        self._global("torch", STORAGE_TYPES[name])
        self._emit(span.key)
        self._emit(str(t.device))
        self._int(max(span.end - start, 0) // size)
        self.out += b"tQ"
        self._int(t.storage_offset() - start // size)
        self._tuple(tuple(t.shape))
        self._tuple(tuple(t.stride()))
        self.out += b"\x88" if requires_grad else b"\x89"
        self._empty_ordered_dict()
        self.out += b"tR"


def _emit_bool(w: Writer, v: bool) -> None:
    w.out += b"\x88" if v else b"\x89"


def _emit_none(w: Writer, v: None) -> None:
    w.out += b"N"


def _emit_float(w: Writer, v: float) -> None:
    w.out += b"G" + struct.pack(">d", v)


_EMIT: dict[type, Any] = {bool: _emit_bool, type(None): _emit_none, float: _emit_float, int: Writer._int, str: Writer._str, bytes: Writer._bytes,
         bytearray: Writer._bytearray, complex: Writer._complex, list: Writer._list, tuple: Writer._tuple, dict: Writer._dict,
         OrderedDict: Writer._ordered_dict, Counter: Writer._counter, set: Writer._set}
