"""DistributedSampler: each of several processes its own part of a data set."""
import math
from collections.abc import Iterator

import rushlight

from .dataset import Dataset
from .sampler import Sampler

__all__ = ["DistributedSampler"]


def _group() -> tuple[int, int]:
    """(number of processes, own rank) of the process group."""
    dist = getattr(rushlight, "distributed", None)
    if dist is None or not dist.is_available():
        raise RuntimeError("Requires distributed package to be available")
    return dist.get_world_size(), dist.get_rank()


class DistributedSampler(Sampler[int]):
    """Numbers rank, rank + num_replicas, … of the (shuffled) order, padded by repeating from its front, or cut with drop_last, so that
    every process gets as many. Call set_epoch(epoch) before each epoch for another order."""

    def __init__(self, dataset: Dataset, num_replicas: int | None = None, rank: int | None = None, shuffle: bool = True, seed: int = 0,
                 drop_last: bool = False) -> None:
        if num_replicas is None:
            num_replicas = _group()[0]
        if rank is None:
            rank = _group()[1]
        if rank >= num_replicas or rank < 0:
            raise ValueError(f"Invalid rank {rank}, rank should be in the interval [0, {num_replicas - 1}]")
        self.dataset, self.num_replicas, self.rank, self.epoch, self.drop_last = dataset, num_replicas, rank, 0, drop_last
        n = len(dataset)
        if drop_last and n % num_replicas != 0:
            self.num_samples = math.ceil((n - num_replicas) / num_replicas)
        else:
            self.num_samples = math.ceil(n / num_replicas)
        self.total_size = self.num_samples * num_replicas
        self.shuffle, self.seed = shuffle, seed

    def __iter__(self) -> Iterator[int]:
        if self.shuffle:
            g = rushlight.Generator()
            g.manual_seed(self.seed + self.epoch)
            order = rushlight.randperm(len(self.dataset), generator=g).tolist()
        else:
            order = list(range(len(self.dataset)))
        if self.drop_last:
            order = order[:self.total_size]
        elif (missing := self.total_size - len(order)) > 0:
            order += (order * math.ceil(missing / len(order)))[:missing]
        return iter(order[self.rank:self.total_size:self.num_replicas])

    def __len__(self) -> int:
        return self.num_samples

    def set_epoch(self, epoch: int) -> None:
        """Gives the next iteration an order of its own."""
        self.epoch = epoch
