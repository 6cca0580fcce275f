"""PyTorch's `torch.cuda` on a build without CUDA kernels: it says that there is no device, and why.

Invariant: what asks (is_available, device_count, memory figures) answers truthfully; what would do something on a device raises the sentence of
why_not(). Seeding is accepted, as in PyTorch, where it is deferred until a device is there.
"""
from __future__ import annotations

__all__ = [
    "is_available", "why_not", "device_count", "is_initialized", "manual_seed", "manual_seed_all", "seed", "seed_all",
    "empty_cache", "current_device", "set_device", "synchronize", "get_device_name", "get_device_capability",
    "get_device_properties", "memory_allocated", "memory_reserved", "max_memory_allocated", "max_memory_reserved",
    "reset_peak_memory_stats", "is_bf16_supported", "init", "device", "Stream", "Event", "stream", "current_stream",
    "default_stream",
]


def why_not() -> str:
    """One sentence: why is_available() is False, and what to do."""
    return ("This version of rushlight was built without CUDA kernels, so it runs on the CPU only; use device='cpu' "
            "(torch.device('cuda' if torch.cuda.is_available() else 'cpu') does).")


def is_available() -> bool:
    """False: this build has no CUDA kernels."""
    return False


def is_initialized() -> bool:
    return False


def device_count() -> int:
    return 0


def is_bf16_supported(including_emulation: bool = True) -> bool:
    return False


def manual_seed(seed: int) -> None:
    """Accepted; there is no device generator to seed."""
    int(seed)


def manual_seed_all(seed: int) -> None:
    """Accepted; there is no device generator to seed."""
    int(seed)


def seed() -> None:
    return None


def seed_all() -> None:
    return None


def empty_cache() -> None:
    """Nothing is cached on a device."""


def memory_allocated(device=None) -> int:
    return 0


def memory_reserved(device=None) -> int:
    return 0


def max_memory_allocated(device=None) -> int:
    return 0


def max_memory_reserved(device=None) -> int:
    return 0


def reset_peak_memory_stats(device=None) -> None:
    return None


def _refuse(*args, **kwargs):
    raise RuntimeError(why_not())


init = current_device = set_device = synchronize = get_device_name = get_device_capability = get_device_properties = _refuse
stream = current_stream = default_stream = get_rng_state = set_rng_state = mem_get_info = memory_stats = memory_summary = _refuse


class _NoDevice:
    """Base of what cannot be made without a device."""

    def __init__(self, *args, **kwargs):
        raise RuntimeError(why_not())


class device(_NoDevice):
    """Context of the current device; there is none."""


class Stream(_NoDevice):
    """A stream of a device; there is none."""


class Event(_NoDevice):
    """An event of a device; there is none."""
