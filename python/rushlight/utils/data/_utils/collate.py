"""Collating: a list of samples into one batch, and NumPy values into tensors.

NumPy is never imported here: its types are recognised only when somebody has imported it already.
"""
import collections.abc
import copy
import re
import sys
from collections.abc import Callable
from typing import Any

import rushlight
from rushlight._C import Tensor

np_str_obj_array_pattern = re.compile(r"[SaUO]")
default_collate_err_msg_format = "default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found {}"


def _is_numpy_array(x: Any) -> bool:
    """An array or scalar of NumPy that is no text or object."""
    np = sys.modules.get("numpy")
    return np is not None and isinstance(x, (np.ndarray, np.generic)) and np_str_obj_array_pattern.search(x.dtype.str) is None


def _rebuilt(data, items):
    """items in a container like data: a copy of it with the items replaced, so that other attributes stay."""
    try:
        if isinstance(data, collections.abc.Mapping):
            if isinstance(data, collections.abc.MutableMapping):
                clone = copy.copy(data)
                clone.update(items)
                return clone
            return type(data)(items)
        if isinstance(data, collections.abc.MutableSequence):
            clone = copy.copy(data)
            for i, x in enumerate(items):
                clone[i] = x
            return clone
        return type(data)(items)
    except TypeError:
        return items


def default_convert(data: Any) -> Any:
    """NumPy arrays and scalars anywhere in data become tensors; everything else stays."""
    if isinstance(data, Tensor):
        return data
    if _is_numpy_array(data):
        return rushlight.as_tensor(data)
    if isinstance(data, collections.abc.Mapping):
        return _rebuilt(data, {k: default_convert(v) for k, v in data.items()})
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*(default_convert(d) for d in data))
    if isinstance(data, tuple):
        return [default_convert(d) for d in data]
    if isinstance(data, collections.abc.Sequence) and not isinstance(data, (str, bytes)):
        return _rebuilt(data, [default_convert(d) for d in data])
    return data


def collate_tensor_fn(batch, *, collate_fn_map=None):
    """Tensors of one shape: stacked."""
    return rushlight.stack(list(batch), 0)


def collate_numpy_array_fn(batch, *, collate_fn_map=None):
    """NumPy arrays of one shape: stacked as tensors."""
    elem = batch[0]
    if np_str_obj_array_pattern.search(elem.dtype.str) is not None:
        raise TypeError(default_collate_err_msg_format.format(elem.dtype))
    return collate([rushlight.as_tensor(b) for b in batch], collate_fn_map=collate_fn_map)


def collate_numpy_scalar_fn(batch, *, collate_fn_map=None):
    """NumPy scalars: a 1-dim tensor of their dtype."""
    np = sys.modules["numpy"]
    return rushlight.as_tensor(np.asarray(batch))


def collate_float_fn(batch, *, collate_fn_map=None):
    """Python floats: a float64 tensor."""
    return rushlight.tensor(batch, dtype=rushlight.float64)


def collate_int_fn(batch, *, collate_fn_map=None):
    """Python ints: an int64 tensor; bools: a bool tensor."""
    return rushlight.tensor(batch)


def collate_str_fn(batch, *, collate_fn_map=None):
    """Text stays a list."""
    return batch


default_collate_fn_map: dict[type | tuple[type, ...], Callable] = {
    Tensor: collate_tensor_fn, float: collate_float_fn, int: collate_int_fn, str: collate_str_fn, bytes: collate_str_fn}


def _find_rule(elem, rules) -> Callable | None:
    if not rules:
        return None
    rule = rules.get(type(elem))
    if rule is not None:
        return rule
    np = sys.modules.get("numpy")
    if np is not None and rules is default_collate_fn_map:  # before float: float64 scalars are floats too
        if isinstance(elem, np.ndarray):
            return collate_numpy_array_fn
        if isinstance(elem, (np.bool_, np.number, np.object_)):
            return collate_numpy_scalar_fn
    return next((rule for kind, rule in rules.items() if isinstance(elem, kind)), None)


def collate(batch, *, collate_fn_map: dict[type | tuple[type, ...], Callable] | None = None):
    """A batch of samples into one, by the rule of their type; mappings and sequences item by item."""
    elem = batch[0]
    rule = _find_rule(elem, collate_fn_map)
    if rule is not None:
        return rule(batch, collate_fn_map=collate_fn_map)
    if isinstance(elem, collections.abc.Mapping):
        return _rebuilt(elem, {key: collate([d[key] for d in batch], collate_fn_map=collate_fn_map) for key in elem})
    if isinstance(elem, tuple) and hasattr(elem, "_fields"):
        return type(elem)(*(collate(samples, collate_fn_map=collate_fn_map) for samples in zip(*batch, strict=False)))
    if isinstance(elem, collections.abc.Sequence):
        size = len(elem)
        if not all(len(e) == size for e in batch):
            raise RuntimeError("each element in list of batch should be of equal size")
        items = [collate(samples, collate_fn_map=collate_fn_map) for samples in zip(*batch, strict=True)]
        return items if isinstance(elem, tuple) else _rebuilt(elem, items)
    raise TypeError(default_collate_err_msg_format.format(type(elem)))


def default_collate(batch):
    """Samples into a batch: tensors stacked, numbers as tensors, texts as lists, containers item by item (tuples become lists)."""
    return collate(batch, collate_fn_map=default_collate_fn_map)
