"""The error for a name of PyTorch's that is not here: says which, that rushlight lacks it, and the nearest name it has."""
from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(name: str, names: Iterable[str]) -> str | None:
    """The public name most like `name`, or None."""
    found = difflib.get_close_matches(name, [n for n in names if not n.startswith("_")], n=1, cutoff=0.7)
    return found[0] if found else None


def missing(module: str, name: str, names: Iterable[str]) -> AttributeError:
    """The AttributeError to raise from a module's __getattr__ for `module`.`name`."""
    if name.startswith("__"):
        return AttributeError(f"module {module!r} has no attribute {name!r}")
    close = nearest(name, names)
    hint = f"; the nearest name it has is {close!r}" if close else ""
    return AttributeError(f"module {module!r} has no attribute {name!r}: rushlight lacks it{hint}", name=name)
