"""Fetchers: numbers in, a collated batch out. Batches of tensor data sets are one C call."""
from rushlight import _C

from ..dataset import Subset, TensorDataset
from .collate import default_collate


class _Item:
    """The number that is being fetched, for the report when its sample fails."""

    __slots__ = ("index", "known")

    def __init__(self) -> None:
        self.index, self.known = None, False


class _BaseDatasetFetcher:
    def __init__(self, dataset, auto_collation, collate_fn, drop_last) -> None:
        self.dataset, self.auto_collation, self.collate_fn, self.drop_last = dataset, auto_collation, collate_fn, drop_last
        self.item = _Item()

    def fetch(self, index):
        """The batch for these numbers; StopIteration at the end of a stream."""
        raise NotImplementedError


class _IterableDatasetFetcher(_BaseDatasetFetcher):
    def __init__(self, dataset, auto_collation, collate_fn, drop_last) -> None:
        super().__init__(dataset, auto_collation, collate_fn, drop_last)
        self.dataset_iter = iter(dataset)
        self.ended = False

    def fetch(self, index):
        if self.ended:
            raise StopIteration
        if not self.auto_collation:
            return self.collate_fn(next(self.dataset_iter))
        data = []
        for _ in index:
            try:
                data.append(next(self.dataset_iter))
            except StopIteration:
                self.ended = True
                break
        if not data or (self.drop_last and len(data) < len(index)):
            raise StopIteration
        return self.collate_fn(data)


def _tensors_behind(dataset):
    """(tensors, function of numbers) when sample i of the data set is rows of plain tensors, else None."""
    maps = []
    while type(dataset) is Subset:
        maps.append(dataset.indices)
        dataset = dataset.dataset
    if type(dataset) is not TensorDataset or "__getitems__" in dataset.__dict__:
        return None

    def numbers(index):
        for m in maps:
            index = [m[i] for i in index]
        return index

    return dataset, numbers


class _MapDatasetFetcher(_BaseDatasetFetcher):
    def __init__(self, dataset, auto_collation, collate_fn, drop_last) -> None:
        super().__init__(dataset, auto_collation, collate_fn, drop_last)
        self.direct = _tensors_behind(dataset) if auto_collation and collate_fn is default_collate else None

    def fetch(self, index):
        self.item.known = False
        if not self.auto_collation:
            return self.collate_fn(self.dataset[index])
        if self.direct is not None and type(index) is list:
            dataset, numbers = self.direct
            data = _C._gather_rows(dataset.tensors, numbers(index))
            if data is not None:
                return data
        if getattr(self.dataset, "__getitems__", None):
            return self.collate_fn(self.dataset.__getitems__(index))
        data = []
        self.item.known = True
        for self.item.index in index:
            data.append(self.dataset[self.item.index])
        self.item.known = False
        return self.collate_fn(data)
