"""PyTorch's name for rushlight: what lets a script that says `import torch` run as it is.

A packaged folder (_alias) holds a `torch` package and its dist-info; `rushlight run` puts it first in PYTHONPATH, so child and worker processes
see it too. Importing it calls install(), and a finder gives `torch.x.y` as the *same* module object as `rushlight.x.y`: a sys.modules entry
alone would load a second copy of every submodule, with second copies of its classes.
"""
from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from types import ModuleType

import rushlight

TORCH_VERSION = "2.13.0"
_OWN = {"torch._C": "rushlight._C"}


def folder() -> str:
    """The directory to put on the path: it holds nothing but `torch`."""
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), "_alias")


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Gives rushlight.x for torch.x."""

    def find_spec(self, fullname: str, path=None, target=None):
        if not fullname.startswith("torch."):
            return None
        name = _OWN.get(fullname, "rushlight" + fullname[5:])
        try:
            found = name in sys.modules or importlib.util.find_spec(name) is not None
        except (ImportError, ValueError):
            found = False
        if not found:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec) -> ModuleType:
        module = importlib.import_module(_OWN.get(spec.name, "rushlight" + spec.name[5:]))
        spec.loader_state = (module, getattr(module, "__spec__", None), getattr(module, "__loader__", None), getattr(module, "__package__", None))
        return module

    def exec_module(self, module: ModuleType) -> None:
        """The import machinery has just written torch's spec into rushlight's module: put its own back."""
        spec = module.__spec__
        state = getattr(spec, "loader_state", None)
        if state and state[0] is module:
            module.__spec__, module.__loader__, module.__package__ = state[1:]


def install() -> ModuleType:
    """Makes `torch` and `torch.*` mean rushlight in this process. Returns the module. Idempotent."""
    if not any(isinstance(f, _Finder) for f in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
        rushlight._C._set_print_as_torch(True)
        for kind in (rushlight.Tensor, rushlight.Size, rushlight.dtype, rushlight.device, rushlight.Generator):
            kind.__module__ = "torch"
        rushlight.__version__ = f"{TORCH_VERSION}+rushlight.{rushlight.__version__}"
    sys.modules["torch"] = rushlight
    return rushlight


def installed() -> bool:
    """True in a process where `torch` means rushlight."""
    return sys.modules.get("torch") is rushlight
