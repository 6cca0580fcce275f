"""The process's random generator: seeds and states. On the CPU the numbers are PyTorch's, bit for bit."""
from __future__ import annotations

from ._C import Generator, default_generator

TYPE_CHECKING = False  # known to type checkers; importing typing takes longer than all of this package
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from rushlight import Tensor

__all__ = ["Generator", "default_generator", "fork_rng", "get_rng_state", "initial_seed", "manual_seed", "seed", "set_rng_state"]


def manual_seed(seed: Any) -> Generator:
    """Seeds every device's generator; seed: an int in [-2**63, 2**64), negative ones count from 2**64. Returns the CPU's generator."""
    return default_generator.manual_seed(int(seed))


def seed() -> int:
    """Seeds every device's generator from the system and returns the seed."""
    return default_generator.seed()


def initial_seed() -> int:
    """The seed that the CPU's generator was last given."""
    return default_generator.initial_seed()


def get_rng_state() -> Tensor:
    """The state of the CPU's generator, a uint8 tensor of 5056 bytes."""
    return default_generator.get_state()


def set_rng_state(new_state: Tensor) -> None:
    """Continues where get_rng_state() was called. RuntimeError when new_state is no such state."""
    default_generator.set_state(new_state)


class fork_rng:
    """A context that puts the generator back at the end of the with block to where it was at its start."""

    def __init__(self, devices: Iterable[Any] | None = None, enabled: bool = True, _caller: str = "fork_rng", _devices_kw: str = "devices",
                 device_type: str = "cuda") -> None:
        self.enabled = enabled

    def __enter__(self) -> None:
        self.state = get_rng_state() if self.enabled else None

    def __exit__(self, *exc: Any) -> None:
        if self.state is not None:
            set_rng_state(self.state)
