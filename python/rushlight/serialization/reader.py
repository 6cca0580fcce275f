"""Reads data.pkl: an allow-list machine for the opcodes that checkpoints use. It is never Python's pickle.

Invariants: no name from the file is imported or looked up outside ALLOWED; a call is one of the functions below, each of which checks its
arguments; every read is inside the buffer; nothing is allocated by a count that stands in the file. So the worst a file can do is be refused.
"""
from __future__ import annotations

import struct
from collections import Counter, OrderedDict
from typing import Any

import rushlight as rl

from .writer import STORAGE_TYPES

_MARK = object()
_MAX_DEPTH = 100_000


class DamagedFileError(RuntimeError):
    """A file that is truncated or damaged: the message says where and why."""


class StorageType:
    """torch.FloatStorage in a file: only names a dtype."""

    def __init__(self, dtype):
        self.dtype = dtype


class Call:
    """A function or class of the allow-list."""

    def __init__(self, name: str, run):
        self.name, self.run = name, run


class Storage:
    """Bytes of one storage as a one-dimensional uint8 tensor, with the dtype that the file gives them."""

    def __init__(self, data, dtype):
        self.data, self.dtype = data, dtype


def unpickling_error(text: str) -> Exception:
    """pickle.UnpicklingError, what PyTorch raises for an object that may not be loaded; imported only for its name."""
    from pickle import UnpicklingError
    return UnpicklingError(text)


def _is_ints(v: Any) -> bool:
    return isinstance(v, (tuple, list, rl.Size)) and all(type(x) is int for x in v)


def _rebuild_tensor(storage, offset, size, stride, *_ignored):
    if not isinstance(storage, Storage) or type(offset) is not int or not _is_ints(size) or not _is_ints(stride) or len(size) != len(stride):
        raise DamagedFileError(f"damaged: a tensor with offset {offset!r}, size {size!r}, stride {stride!r}")
    if len(size) > 64 or any(n < 0 for n in size) or any(n < 0 for n in stride) or offset < 0:
        raise DamagedFileError(f"damaged: a tensor with offset {offset}, size {list(size)}, stride {list(stride)}")
    itemsize = rl.empty(0, dtype=storage.dtype).element_size()
    have = storage.data.numel() // itemsize
    last = offset + sum((n - 1) * s for n, s in zip(size, stride, strict=True)) + 1 if all(size) else offset
    if last > have:
        raise DamagedFileError(f"damaged: a tensor of size {list(size)}, stride {list(stride)}, offset {offset} needs {last} elements, its "
                               f"storage has {have}")
    t = rl.empty(0, dtype=storage.dtype, device=storage.data.device)
    return t.set_(storage.data.untyped_storage(), offset, tuple(size), tuple(stride))


def _rebuild_tensor_v2(storage, offset, size, stride, requires_grad=False, hooks=None, metadata=None):
    t = _rebuild_tensor(storage, offset, size, stride)
    if requires_grad is True:
        t.requires_grad_(True)
    return t


def _rebuild_parameter(data, requires_grad=True, hooks=None, state=None):
    if not isinstance(data, rl.Tensor):
        raise DamagedFileError(f"damaged: a Parameter over {type(data).__name__}")
    return rl.nn.Parameter(data.detach(), requires_grad is True)


def _rebuild_from_type(func, kind, args, state=None):
    if not isinstance(func, Call) or not isinstance(args, tuple):
        raise DamagedFileError("damaged: a tensor subclass without its function")
    return func.run(*args)


def _ordered_dict(items=()):
    return OrderedDict(_pairs(items))


def _pairs(items):
    if not isinstance(items, (list, tuple)) or not all(isinstance(p, (list, tuple)) and len(p) == 2 for p in items):
        raise DamagedFileError(f"damaged: {type(items).__name__} in place of pairs")
    return items


def _counter(items=None):
    return Counter(items if isinstance(items, dict) else {})


def _set(items=()):
    if not isinstance(items, (list, tuple)):
        raise DamagedFileError(f"damaged: a set of {type(items).__name__}")
    return set(items)


def _size(items=()):
    if not _is_ints(items):
        raise DamagedFileError(f"damaged: Size of {items!r}")
    return rl.Size(items)


def _device(kind, index=None):
    if not isinstance(kind, str) or not (index is None or type(index) is int):
        raise DamagedFileError(f"damaged: device({kind!r}, {index!r})")
    return rl.device(kind) if index is None else rl.device(kind, index)


def _encode(text, encoding="latin1"):
    if not isinstance(text, str) or encoding not in ("latin1", "latin-1"):
        raise DamagedFileError(f"damaged: bytes in encoding {encoding!r}")
    return text.encode("latin1")


def _bytearray(data=b""):
    if not isinstance(data, bytes):
        raise DamagedFileError(f"damaged: bytearray of {type(data).__name__}")
    return bytearray(data)


def _complex(real, imag=0.0):
    return complex(float(real), float(imag))


def _layout(name):
    if name != "torch.strided":
        raise unpickling_error(f"layout {name!r} is not supported; only dense tensors are")
    return rl.strided


_CALLS = {
    ("torch._utils", "_rebuild_tensor"): _rebuild_tensor, ("torch._utils", "_rebuild_tensor_v2"): _rebuild_tensor_v2,
    ("torch._utils", "_rebuild_parameter"): _rebuild_parameter, ("torch._utils", "_rebuild_parameter_with_state"): _rebuild_parameter,
    ("torch._tensor", "_rebuild_from_type_v2"): _rebuild_from_type,
    ("collections", "OrderedDict"): _ordered_dict, ("collections", "Counter"): _counter, ("torch", "Size"): _size, ("torch", "device"): _device,
    ("torch.serialization", "_get_layout"): _layout, ("_codecs", "encode"): _encode,
    **{(module, name): run for module in ("builtins", "__builtin__")
       for name, run in (("set", _set), ("bytearray", _bytearray), ("complex", _complex))},
    ("torch.nn.parameter", "Parameter"): _rebuild_parameter, ("torch", "Tensor"): _rebuild_tensor_v2,
}


def allowed(module: str, name: str) -> Any:
    """What a GLOBAL of the file stands for; UnpicklingError when it is not on the list."""
    if (module, name) in _CALLS:
        return Call(f"{module}.{name}", _CALLS[module, name])
    if module == "torch":
        for dtype, storage in STORAGE_TYPES.items():
            if name == dtype:
                return getattr(rl, dtype)
            if name == storage:
                return StorageType(getattr(rl, dtype))
    if module.partition(".")[0] in ("torch", "rushlight", "numpy", "builtins", "__builtin__", "posix", "nt", "os", "subprocess"):
        why = "it is not on the list of what a checkpoint may hold"
    else:
        why = ("the file holds a whole saved object of that class, which cannot be read without running code: save its state_dict() where it was "
               "made, and load that")
    raise unpickling_error(f"refused to load {module}.{name}: {why}")


class Reader:
    """The machine. `persistent(id)` gives the Storage of a persistent id."""

    def __init__(self, data: bytes, persistent, where: str = "data.pkl"):
        self.data, self.at, self.persistent, self.where = data, 0, persistent, where
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def load(self) -> Any:
        try:
            while True:
                op = self._take(1)
                if op == b".":
                    break
                step = _STEPS.get(op)
                if step is None:
                    raise DamagedFileError(f"damaged: opcode {op!r}")
                step(self)
                if len(self.stack) > max(_MAX_DEPTH, len(self.data)):
                    raise DamagedFileError("damaged: the stack grows without end")
            (result,) = self.stack
            return result
        except DamagedFileError as e:
            raise DamagedFileError(f"{self.where}: {e} (at byte {self.at} of {len(self.data)})") from None
        except (IndexError, KeyError, TypeError, ValueError, OverflowError, AttributeError, struct.error, UnicodeDecodeError) as e:
            raise DamagedFileError(f"{self.where}: damaged at byte {self.at} of {len(self.data)}: {type(e).__name__}: {e}") from None

    def _take(self, n: int) -> bytes:
        if n < 0 or self.at + n > len(self.data):
            raise DamagedFileError(f"truncated: {n} bytes wanted at {self.at}, {len(self.data)} are there")
        piece = self.data[self.at:self.at + n]
        self.at += n
        return piece

    def _number(self, format: str) -> Any:
        return struct.unpack(format, self._take(struct.calcsize(format)))[0]

    def _line(self) -> str:
        end = self.data.find(b"\n", self.at, self.at + 1000)
        if end < 0:
            raise DamagedFileError("damaged: a name without end")
        line = self.data[self.at:end].decode("utf-8")
        self.at = end + 1
        return line

    def _push(self, v: Any) -> None:
        self.stack.append(v)

    def _pop_mark(self) -> list[Any]:
        for i in range(len(self.stack) - 1, -1, -1):
            if self.stack[i] is _MARK:
                items = self.stack[i + 1:]
                del self.stack[i:]
                return items
        raise DamagedFileError("damaged: no mark on the stack")

    def _tuple(self, n: int) -> None:
        if len(self.stack) < n or any(x is _MARK for x in self.stack[len(self.stack) - n:]):
            raise DamagedFileError("damaged: a tuple of what is not there")
        items = tuple(self.stack[len(self.stack) - n:])
        del self.stack[len(self.stack) - n:]
        self._push(items)

    def _memo(self, key: int) -> None:
        self.memo[key] = self.stack[-1]

    def _set_items(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if not isinstance(target, dict) or len(items) % 2:
            raise DamagedFileError(f"damaged: items for {type(target).__name__}")
        for k, v in zip(items[::2], items[1::2], strict=True):
            target[k] = v

    def _append(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if isinstance(target, list):
            target.extend(items)
        elif isinstance(target, set):
            target.update(items)
        else:
            raise DamagedFileError(f"damaged: items for {type(target).__name__}")

    def _reduce(self) -> None:
        args, call = self.stack.pop(), self.stack.pop()
        if not isinstance(call, Call) or not isinstance(args, tuple):
            raise DamagedFileError(f"damaged: a call of {type(call).__name__}")
        self._push(call.run(*args))

    def _build(self) -> None:
        """State for an object: only OrderedDict keeps one (`_metadata` of a state_dict); a tensor's and a Parameter's is dropped."""
        state, target = self.stack.pop(), self.stack[-1]
        if isinstance(target, OrderedDict) and isinstance(state, dict):
            if set(state) <= {"_metadata"}:
                target.__dict__.update(state)
        elif not isinstance(target, rl.Tensor):
            raise DamagedFileError(f"damaged: state for {type(target).__name__}")

    def _global(self, module: str, name: str) -> None:
        self._push(allowed(module, name))

    def _persistent(self) -> None:
        self._push(self.persistent(self.stack.pop()))

    def _stack_global(self) -> None:
        name, module = self.stack.pop(), self.stack.pop()
        if not isinstance(name, str) or not isinstance(module, str):
            raise DamagedFileError("damaged: a global without a name")
        self._global(module, name)


def _text(r: Reader, n: int) -> None:
    r._push(r._take(n).decode("utf-8", "surrogatepass"))


def _check_protocol(r: Reader) -> None:
    version = r._take(1)[0]
    if version > 5:
        raise DamagedFileError(f"protocol {version} is not known")


def _pop_pair(r: Reader) -> list[Any]:
    v, k = r.stack.pop(), r.stack.pop()
    return [k, v]


def _two_lines(r: Reader) -> None:
    module = r._line()
    r._global(module, r._line())


_STEPS = {
    b"\x80": _check_protocol, b"}": lambda r: r._push({}), b"]": lambda r: r._push([]), b")": lambda r: r._push(()),
    b"\x8f": lambda r: r._push(set()),
    b"(": lambda r: r._push(_MARK), b"N": lambda r: r._push(None), b"\x88": lambda r: r._push(True), b"\x89": lambda r: r._push(False),
    b"K": lambda r: r._push(r._number("<B")), b"M": lambda r: r._push(r._number("<H")), b"J": lambda r: r._push(r._number("<i")),
    b"G": lambda r: r._push(r._number(">d")),
    b"\x8a": lambda r: r._push(int.from_bytes(r._take(r._number("<B")), "little", signed=True)),
    b"\x8b": lambda r: r._push(int.from_bytes(r._take(r._number("<i")), "little", signed=True)),
    b"X": lambda r: _text(r, r._number("<I")), b"\x8c": lambda r: _text(r, r._number("<B")), b"\x8d": lambda r: _text(r, r._number("<Q")),
    b"C": lambda r: r._push(r._take(r._number("<B"))), b"B": lambda r: r._push(r._take(r._number("<I"))),
    b"\x8e": lambda r: r._push(r._take(r._number("<Q"))),
    b"q": lambda r: r._memo(r._number("<B")), b"r": lambda r: r._memo(r._number("<I")), b"\x94": lambda r: r._memo(len(r.memo)),
    b"h": lambda r: r._push(r.memo[r._number("<B")]), b"j": lambda r: r._push(r.memo[r._number("<I")]),
    b"\x95": lambda r: r._take(8), b"c": _two_lines, b"\x93": lambda r: r._stack_global(), b"R": lambda r: r._reduce(), b"b": lambda r: r._build(),
    b"a": lambda r: r._append([r.stack.pop()]), b"e": lambda r: r._append(r._pop_mark()), b"\x90": lambda r: r._append(r._pop_mark()),
    b"s": lambda r: r._set_items(_pop_pair(r)), b"u": lambda r: r._set_items(r._pop_mark()),
    b"t": lambda r: r._push(tuple(r._pop_mark())), b"\x85": lambda r: r._tuple(1), b"\x86": lambda r: r._tuple(2), b"\x87": lambda r: r._tuple(3),
    b"Q": lambda r: r._persistent(),
}
