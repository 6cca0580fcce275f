"""The zip container of PyTorch's format: NAME/data.pkl, NAME/byteorder, NAME/data/0 …, NAME/version.

Invariant: entries are stored, not compressed, so that what is read is never larger than the file; every entry's CRC is written and checked.
Data starts at multiples of 64 bytes (padding in the local header's extra field), so that a mapped file gives aligned tensors.
"""
from __future__ import annotations

import hashlib
import io
import os
import re
import struct
import zipfile
import zlib
from typing import Any

import rushlight as rl

from .reader import DamagedFileError, Reader, Storage, StorageType, unpickling_error
from .writer import Span, Writer

_ALIGN = 64
_CHUNK = 1 << 24


# ---- writing
def _entry(name: str, file_position: int) -> zipfile.ZipInfo:
    """Header of a stored entry whose data will start at a multiple of _ALIGN."""
    info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
    info.compress_type = zipfile.ZIP_STORED
    base = file_position + 30 + len(name.encode()) + 4
    pad = -base % _ALIGN
    info.extra = b"FB" + struct.pack("<H", pad) + b"Z" * pad
    return info


def _put(archive: zipfile.ZipFile, name: str, data) -> None:
    """Writes one entry. Above 4 GiB zip64 fields move the data, and only the alignment is lost."""
    position = archive.fp.tell() if archive.fp else 0
    archive.writestr(_entry(name, position), data)


def _host_bytes(span: Span) -> memoryview:
    """The bytes of a storage's span on the host, without a copy on the CPU."""
    start = span.start - span.start % 8 if span.start else 0
    count = max(span.end - start, 0)
    if not count:
        return memoryview(b"")
    device = span.storage.device
    flat = rl.empty(0, dtype=rl.uint8, device=device).set_(span.storage, start, (count,), (1,))
    return memoryview(flat.cpu())


def _archive_name(file_name: str) -> str:
    stem = os.path.splitext(os.path.basename(file_name))[0]
    return re.sub(r"[^A-Za-z0-9_.-]", "_", stem) or "archive"


def write(obj: Any, file, file_name: str) -> None:
    """The archive of `obj` into a file object; its position may be anywhere (file objects of unknown kinds get the bytes at once)."""
    writer = Writer()
    try:
        pickled = writer.dump(obj)
    except RecursionError:
        raise ValueError("save: containers are nested more deeply than Python's recursion limit allows") from None
    target = file if _seekable(file) else io.BytesIO()
    top = _archive_name(file_name)
    with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        _put(archive, f"{top}/data.pkl", pickled)
        _put(archive, f"{top}/.format_version", b"1")
        _put(archive, f"{top}/.storage_alignment", str(_ALIGN).encode())
        _put(archive, f"{top}/byteorder", b"little")
        for span in writer.spans.values():
            _put(archive, f"{top}/data/{span.key}", _host_bytes(span))
        _put(archive, f"{top}/version", b"3\n")
        _put(archive, f"{top}/.data/serialization_id", hashlib.sha256(pickled).hexdigest()[:40].encode())
    if target is not file:
        file.write(target.getvalue())


def _seekable(file) -> bool:
    try:
        return bool(file.seekable()) and file.tell() == 0
    except (AttributeError, OSError, ValueError):
        return False


# ---- reading
class _Archive:
    """The entries of a zip file that may be damaged; read() checks bounds and CRC."""

    def __init__(self, file, name: str):
        self.file, self.name = file, name
        self.start = file.tell()
        self.size = file.seek(0, io.SEEK_END) - self.start
        file.seek(self.start)
        self.entries = self._directory()
        pickles = [n for n in self.entries if n.endswith("/data.pkl") and n.count("/") == 1]
        if len(pickles) != 1:
            raise DamagedFileError(f"{name}: not a checkpoint: {len(pickles)} entries named data.pkl (archive holds {sorted(self.entries)[:5]})")
        self.top = pickles[0].partition("/")[0]

    def _directory(self) -> dict[str, zipfile.ZipInfo]:
        head = self.file.read(4)
        self.file.seek(self.start)
        if head[:2] == b"\x80\x02" or head[:1] == b"(":
            raise RuntimeError(f"{self.name}: this is the format from before PyTorch 1.6, which is a bare pickle and is not read; load it in PyTorch "
                               "and save it again")
        if not self.size:
            raise EOFError(f"Ran out of input: {self.name} is empty")
        if head != b"PK\x03\x04":
            raise DamagedFileError(f"{self.name}: not a checkpoint: the file starts with {head!r}, a zip archive with b'PK\\x03\\x04'")
        try:
            with zipfile.ZipFile(self.file) as archive:
                infos = archive.infolist()
        except (zipfile.BadZipFile, ValueError, struct.error, OverflowError, EOFError, NotImplementedError, UnicodeDecodeError, OSError) as e:
            raise DamagedFileError(self._truncation(str(e))) from None
        entries = {i.filename: i for i in infos}
        if len(entries) != len(infos):
            raise DamagedFileError(f"{self.name}: damaged: two entries of one name")
        for i in infos:
            if i.compress_type != zipfile.ZIP_STORED or i.file_size != i.compress_size:
                raise DamagedFileError(f"{self.name}: entry {i.filename} is compressed; checkpoints are stored uncompressed")
        return entries

    def _truncation(self, why: str) -> str:
        """Walks the local headers to say which entry the file ends in."""
        at = 0
        while at + 30 <= self.size:
            self.file.seek(self.start + at)
            head = self.file.read(30)
            if len(head) < 30 or head[:4] != b"PK\x03\x04":
                break
            flags, size, name_n, extra_n = struct.unpack("<6xH10xI4xHH", head)
            entry = self.file.read(name_n).decode("utf-8", "replace")
            need = at + 30 + name_n + extra_n + size
            if flags & 8 and not size:
                break
            if need > self.size:
                return f"{self.name}: truncated: entry {entry} needs bytes up to {need}, the file has {self.size}"
            at = need
        return f"{self.name}: truncated or damaged: failed finding central directory of the archive after {at} of {self.size} bytes ({why})"

    def data_offset(self, entry: str) -> int:
        """Where the data of an entry starts in the file."""
        info = self._info(entry)
        if not 0 <= info.header_offset < self.size:
            raise DamagedFileError(f"{self.name}: damaged: the header of {entry} is said to be at byte {info.header_offset} of {self.size}")
        self.file.seek(self.start + info.header_offset)
        head = self.file.read(30)
        if len(head) < 30 or head[:4] != b"PK\x03\x04":
            raise DamagedFileError(f"{self.name}: damaged: no header of {entry} at byte {info.header_offset}")
        name_n, extra_n = struct.unpack("<26xHH", head)
        at = info.header_offset + 30 + name_n + extra_n
        if at + info.file_size > self.size:
            raise DamagedFileError(f"{self.name}: truncated: {entry} needs bytes up to {at + info.file_size}, the file has {self.size}")
        return self.start + at

    def _info(self, entry: str) -> zipfile.ZipInfo:
        if entry not in self.entries:
            raise DamagedFileError(f"{self.name}: damaged: entry {entry} is missing")
        return self.entries[entry]

    def size_of(self, entry: str) -> int:
        return self._info(entry).file_size

    def read_into(self, entry: str, view: memoryview) -> None:
        self.file.seek(self.data_offset(entry))
        crc, at = 0, 0
        while at < len(view):
            piece = view[at:at + _CHUNK]
            n = _read_into(self.file, piece)
            if not n:
                raise DamagedFileError(f"{self.name}: truncated in {entry}: {at} of {len(view)} bytes")
            crc = zlib.crc32(piece[:n], crc)
            at += n
        if crc != self._info(entry).CRC:
            raise DamagedFileError(f"{self.name}: damaged: checksum of {entry} is {crc:08x}, the archive says {self._info(entry).CRC:08x}")

    def read(self, entry: str) -> bytes:
        buffer = bytearray(self.size_of(entry))
        self.read_into(entry, memoryview(buffer))
        return bytes(buffer)


def _read_into(file, view: memoryview) -> int:
    if hasattr(file, "readinto"):
        return file.readinto(view)
    data = file.read(len(view))
    view[:len(data)] = data
    return len(data)


class _Storages:
    """Gives the machine its storages: each entry is read once, whatever the number of tensors over it."""

    def __init__(self, archive: _Archive, map_location, mapped):
        self.archive, self.map_location, self.mapped = archive, map_location, mapped
        self.loaded: dict[str, Any] = {}

    def __call__(self, id_: Any) -> Storage:
        if not isinstance(id_, tuple) or len(id_) != 5 or id_[0] != "storage" or not isinstance(id_[1], StorageType):
            raise DamagedFileError(f"damaged: storage id {id_!r}")
        _, kind, key, location, numel = id_
        if not isinstance(key, str) or not isinstance(location, str) or type(numel) is not int:
            raise DamagedFileError(f"damaged: storage id {id_!r}")
        if key not in self.loaded:
            self.loaded[key] = place(self._bytes(f"{self.archive.top}/data/{key}"), location, self.map_location)
        data = self.loaded[key]
        need = numel * rl.empty(0, dtype=kind.dtype).element_size()
        if numel < 0 or need > data.numel():
            raise DamagedFileError(f"damaged: storage {key} holds {data.numel()} bytes, {need} are expected")
        return Storage(data, kind.dtype)

    def _bytes(self, entry: str):
        n = self.archive.size_of(entry)
        if not n:
            return rl.empty(0, dtype=rl.uint8)
        if self.mapped is not None:
            return rl.frombuffer(self.mapped, dtype=rl.uint8, count=n, offset=self.archive.data_offset(entry))
        data: Any = rl.empty(n, dtype=rl.uint8)
        self.archive.read_into(entry, memoryview(data))
        return data


def place(data, location: str, map_location) -> Any:
    """`data` (uint8, CPU) on the device that a file's location and map_location give."""
    if callable(map_location):
        result = map_location(data.untyped_storage(), location)
        if result is not None:
            return rl.empty(0, dtype=rl.uint8, device=result.device).set_(result, 0, (result.nbytes(),), (1,))
    elif isinstance(map_location, dict):
        location = str(map_location.get(location, location))
    elif map_location is not None:
        location = str(rl.device(map_location))
    if location == "cpu":
        return data
    if location.startswith("cuda") and not rl.cuda.is_available():
        raise RuntimeError("Attempting to deserialize object on a CUDA device but rushlight.cuda.is_available() is False. If you are running on a "
                           "CPU-only machine, please use load with map_location='cpu' to map your storages to the CPU.")
    return data.to(rl.device(location))


def read(file, map_location, mmap: bool, name: str) -> Any:
    archive = _Archive(file, name)
    order = f"{archive.top}/byteorder"
    if order in archive.entries and archive.size_of(order) < 16 and archive.read(order).strip() != b"little":
        raise RuntimeError(f"{name}: byte order {archive.read(order)!r} is not supported, only little-endian files are read")
    if f"{archive.top}/constants.pkl" in archive.entries:
        raise unpickling_error(f"{name}: this is a TorchScript archive, which holds code and is not loaded; save a state_dict() instead")
    mapped = None
    if mmap:
        import mmap as mapping
        mapped = mapping.mmap(file.fileno(), 0, access=mapping.ACCESS_COPY)
    reader = Reader(archive.read(f"{archive.top}/data.pkl"), _Storages(archive, map_location, mapped), f"{name}: data.pkl")
    return reader.load()
