"""Files: save and load in PyTorch's own zip format, and .safetensors by suffix.

Invariants: no loader runs code (reader.py is an allow-list machine, never Python's pickle, and there is no switch for it); none allocates more
than a small multiple of the file's size; a file that `save` returned for always loads, because it is written beside the target, synced and
renamed over it. writer.py emits the opcodes, archive.py owns the zip container, safetensors.py the other format.
"""
from __future__ import annotations

import os
import sys
from typing import Any

from .atomic import replacing
from .reader import DamagedFileError

__all__ = ["save", "load", "DamagedFileError", "register_package", "get_default_load_endianness", "LoadEndianness"]


class LoadEndianness:
    """Byte orders of files; only the machine's own (little) is read."""

    NATIVE = 1
    LITTLE = 2
    BIG = 3


def get_default_load_endianness() -> None:
    """None: the order that the file names."""
    return None


def register_package(priority, tagger, deserializer) -> None:
    """Refused: storages live on the devices that the library has, and nothing else may construct them while a file is read."""
    raise RuntimeError("register_package: storages of other packages are not supported")


def _is_path(f: Any) -> bool:
    return isinstance(f, (str, os.PathLike))


def _suffix(f: Any) -> str:
    return os.path.splitext(os.fspath(f))[1] if _is_path(f) else ""


def save(obj: Any, f, pickle_module=None, pickle_protocol: int = 2, _use_new_zipfile_serialization: bool = True,
         _disable_byteorder_record: bool = False) -> None:
    """Writes `obj` to `f`, a path or a file object open for writing bytes.

    `obj`: tensors, numbers, strings, bytes, None, dtypes, devices, sizes and any nesting of dict, OrderedDict, Counter, list, tuple and set
    of these; in a .safetensors file a dict of tensors. The file loads in PyTorch with weights_only=True. Tensors that share memory still share
    it after loading; of a large storage only the span that the saved tensors reach is written.

    A path is replaced in one step (temporary file in the same folder, fsync, rename, fsync of the folder): after a crash or on a full disk
    the old file is intact. Raises TypeError for an object that cannot be saved (named with where it stands), OSError from the disk.
    """
    if pickle_module is not None:
        raise ValueError("save: pickle_module is not supported, files are written without pickle")
    if not _use_new_zipfile_serialization:
        raise ValueError("save: the format from before PyTorch 1.6 (_use_new_zipfile_serialization=False) is not written")
    if _suffix(f) == ".safetensors":
        from .safetensors import write as write_file
    else:
        from .archive import write as write_file
    if _is_path(f):
        with replacing(f) as file:
            write_file(obj, file, os.path.basename(os.fspath(f)))
    elif hasattr(f, "write"):
        write_file(obj, f, "archive")
    else:
        raise AttributeError(f"expected 'f' to be a string, path, or a file-like object with a 'write' attribute, got {type(f).__name__}")


def load(f, map_location=None, pickle_module=None, *, weights_only: bool | None = None, mmap: bool | None = None, **pickle_load_args) -> Any:
    """Reads what `save` (here or in PyTorch) wrote: from a path or a seekable file object open for reading bytes.

    map_location: None, a device or its name, a dict from names to names, or a function (storage, location) -> storage or None.
    mmap: True maps a file (a path) copy-on-write instead of reading it. weights_only: accepted; there is one reader, it never runs code.
    Raises DamagedFileError (a RuntimeError) that says where and why for a truncated or damaged file, pickle.UnpicklingError for an object
    that is not on the allow-list, FileNotFoundError, RuntimeError for a device that is not there.
    """
    if pickle_module is not None:
        raise ValueError("load: pickle_module is not supported, files are read without pickle")
    del weights_only, pickle_load_args  # one reader, the safe one
    if not _is_path(f):
        if not (hasattr(f, "read") and hasattr(f, "seek") and hasattr(f, "tell")):
            raise AttributeError(f"expected 'f' to be a string, path, or a file-like object with 'read', 'seek' and 'tell', got {type(f).__name__}")
        return _load_file(f, map_location, False, "archive")
    with open(f, "rb") as file:
        return _load_file(file, map_location, bool(mmap), os.fspath(f))


def _load_file(file, map_location, mmap: bool, name: str) -> Any:
    if sys.byteorder != "little":
        raise RuntimeError("load: files are little-endian and this machine is not")
    if str(name).endswith(".safetensors"):
        from .safetensors import read as read_file
    else:
        from .archive import read as read_file
    return read_file(file, map_location, mmap, str(name))
