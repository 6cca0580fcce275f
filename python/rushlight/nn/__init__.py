"""rushlight.nn: modules, parameters, functions, initial values."""
from rushlight.nn.parameter import Buffer, Parameter, UninitializedBuffer, UninitializedParameter

from . import functional, init, modules, parameter, utils
from .modules import *  # noqa: F403
from .modules import __all__ as _modules_all

__all__ = ["Parameter", "Buffer", "UninitializedParameter", "UninitializedBuffer", "functional", "init", "modules", "parameter", "utils",
           *_modules_all]


def factory_kwargs(kwargs):
    """device, dtype and memory_format out of a module's keyword arguments; TypeError for any other."""
    if kwargs is None:
        return {}
    simple = {"device", "dtype", "memory_format"}
    unexpected = kwargs.keys() - (simple | {"factory_kwargs"})
    if unexpected:
        raise TypeError(f"unexpected kwargs {unexpected}")
    result = dict(kwargs.get("factory_kwargs", {}))
    for k in simple & kwargs.keys():
        if k in result:
            raise TypeError(f"{k} specified twice, in **kwargs and in factory_kwargs")
        result[k] = kwargs[k]
    return result
