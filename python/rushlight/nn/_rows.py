"""The operator table's functions by name: first those of nn.functional, then those of the package; found once."""
from typing import Any

from rushlight import _C

__all__ = ["rows"]


class _Rows:
    def __getattr__(self, name: str) -> Any:
        for place in (_C._nn, _C):
            f = getattr(place, name, None)
            if f is not None:
                self.__dict__[name] = f
                return f
        raise NotImplementedError(f"rushlight has no operator '{name}' yet")


rows = _Rows()
