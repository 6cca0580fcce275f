"""The safetensors format (https://github.com/huggingface/safetensors#format): eight bytes of header length, a JSON header, the tensors' bytes.

Invariants as everywhere in this package: sizes and offsets of the header are checked against the file before anything is allocated, tensors
may neither overlap nor leave holes, and no code runs. Tensors are written contiguous, sorted by dtype size and name as the library does.
"""
from __future__ import annotations

import io
import json
import math
import struct
from typing import Any

import rushlight as rl

from .archive import _read_into, place
from .reader import DamagedFileError
from .writer import dtype_name

_NAMES = {"float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "int64": "I64", "int32": "I32", "int16": "I16", "int8": "I8",
          "uint8": "U8", "bool": "BOOL"}
_DTYPES = {v: k for k, v in _NAMES.items()}
_MAX_HEADER = 100_000_000


def _checked(obj: Any) -> dict[str, Any]:
    if not isinstance(obj, dict):
        raise TypeError(f"save: a .safetensors file holds a dict of tensors, not {type(obj).__name__}")
    for key, t in obj.items():
        if not isinstance(key, str):
            raise TypeError(f"save: keys of a .safetensors file are strings, not {type(key).__name__} ({key!r})")
        if not isinstance(t, rl.Tensor):
            raise TypeError(f"save: {key!r} in a .safetensors file is {type(t).__name__}, not a tensor")
    if "__metadata__" in obj:
        raise ValueError("save: the key '__metadata__' is reserved in a .safetensors file")
    return obj


def write(obj: Any, file, file_name: str) -> None:
    tensors = sorted(_checked(obj).items(), key=lambda kv: (-kv[1].element_size(), kv[0]))
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at, parts = 0, []
    for key, t in tensors:
        flat = t.detach().cpu().contiguous().view(-1)
        size = flat.numel() * t.element_size()
        header[key] = {"dtype": _NAMES[dtype_name(t.dtype)], "shape": list(t.shape), "data_offsets": [at, at + size]}
        at += size
        parts.append(flat)
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    file.write(struct.pack("<Q", len(text)) + text)
    for flat in parts:
        if flat.numel():
            file.write(memoryview(flat.view(rl.uint8)))


def _header(file, name: str) -> tuple[dict[str, Any], int, int]:
    """The JSON header, where the data starts and how long it is."""
    start = file.tell()
    size = file.seek(0, io.SEEK_END) - start
    file.seek(start)
    if size < 8:
        raise DamagedFileError(f"{name}: truncated: {size} bytes, a safetensors file has at least 8")
    (n,) = struct.unpack("<Q", file.read(8))
    if n > min(_MAX_HEADER, size - 8):
        raise DamagedFileError(f"{name}: truncated or damaged: a header of {n} bytes in a file of {size}")
    try:
        header = json.loads(file.read(n).decode("utf-8"))
    except (ValueError, RecursionError) as e:
        raise DamagedFileError(f"{name}: damaged header: {e}") from None
    if not isinstance(header, dict):
        raise DamagedFileError(f"{name}: damaged header: {type(header).__name__} in place of an object")
    return header, start + 8 + n, size - 8 - n


def _entry(name: str, key: str, e: Any, have: int) -> tuple[Any, list[int], int, int]:
    """dtype, shape and byte range of one tensor, checked."""
    ok = isinstance(e, dict) and isinstance(e.get("shape"), list) and isinstance(e.get("data_offsets"), list) and len(e["data_offsets"]) == 2
    ok = ok and all(type(v) is int and 0 <= v < 2**62 for v in [*e["shape"], *e["data_offsets"]]) and len(e["shape"]) <= 64
    if not ok:
        raise DamagedFileError(f"{name}: damaged header of {key!r}: {str(e)[:200]}")
    if e.get("dtype") not in _DTYPES:
        raise DamagedFileError(f"{name}: {key!r} has dtype {e.get('dtype')!r}; known are {', '.join(_DTYPES)}")
    dtype = getattr(rl, _DTYPES[e["dtype"]])
    begin, end = e["data_offsets"]
    size = math.prod(e["shape"]) * rl.empty(0, dtype=dtype).element_size()
    if end - begin != size:
        raise DamagedFileError(f"{name}: damaged: {key!r} of shape {e['shape']} needs {size} bytes, its range has {end - begin}")
    if end > have:
        raise DamagedFileError(f"{name}: truncated: {key!r} needs bytes up to {end} of the data, the file has {have}")
    return dtype, e["shape"], begin, end


def read(file, map_location, mmap: bool, name: str) -> dict[str, Any]:
    header, start, have = _header(file, name)
    header.pop("__metadata__", None)
    entries = {key: _entry(name, key, e, have) for key, e in header.items()}
    at = 0
    for key, (_, _, begin, end) in sorted(entries.items(), key=lambda kv: kv[1][2:]):
        if begin != at:
            raise DamagedFileError(f"{name}: damaged: {key!r} starts at byte {begin} of the data, the one before ends at {at}")
        at = end
    mapped = None
    if mmap:
        import mmap as mapping
        mapped = mapping.mmap(file.fileno(), 0, access=mapping.ACCESS_COPY)
    result = {}
    for key, (dtype, shape, begin, end) in entries.items():
        data = _bytes(file, start + begin, end - begin, mapped)
        result[key] = place(data, "cpu", map_location).view(dtype).view(shape) if end > begin else rl.empty(shape, dtype=dtype)
    return result


def _bytes(file, at: int, n: int, mapped):
    if mapped is not None and n:
        return rl.frombuffer(mapped, dtype=rl.uint8, count=n, offset=at)
    data: Any = rl.empty(n, dtype=rl.uint8)
    file.seek(at)
    view = memoryview(data) if n else memoryview(b"")
    while len(view):
        got = _read_into(file, view)
        if not got:
            raise DamagedFileError(f"truncated while reading: {len(view)} bytes missing")
        view = view[got:]
    return data
