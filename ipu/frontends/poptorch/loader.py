"""The data loader: torch's, with batches of the samples that one call of a model takes.

Sync loads in this process. Async loads ahead: `num_workers` processes build batches while a model
runs. AsyncRebatched cuts the dataset into micro-batches first, so that the workers' incomplete
shares are joined and fewer samples are lost.

Source    Graphcore's PopTorch, python/_dataloader.py and its user guide (batching).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader as TorchLoader
from torch.utils.data import IterableDataset

from ipu.frontends.poptorch.dictionary import check_number, once
from ipu.frontends.poptorch.enums import DataLoaderMode
from ipu.frontends.poptorch.options import Options
from ipu.frontends.poptorch.outputs import flatten, rebuild
from ipu.frontends.poptorch.shares import ProcessShare

__all__ = ["AsynchronousDataAccessor", "DataLoader"]


class DataLoader(TorchLoader):  # type: ignore[misc]
    """Batches of batch_size · deviceIterations · replicationFactor · gradientAccumulation samples.

    options     of the model that the data is for.
    mode        Sync, Async or AsyncRebatched; drop_last: leave an incomplete last batch out.
    auto_distributed_partitioning    each process reads its own share of the dataset.
    rebatched_worker_size    micro-batches that a worker loads at a time, of AsyncRebatched.

    Raises      ValueError for what does not go together.

    >>> options = Options().deviceIterations(2)
    >>> options.Training.gradientAccumulation(3).gradient_accumulation
    3
    >>> loader = DataLoader(options, range(100), batch_size=4)
    >>> loader.combinedBatchSize, len(loader)  # 2 · 3 · 4 samples a call
    (24, 4)
    """

    def __init__(
        self, options: Options, dataset: Any, batch_size: int | None = 1,
        shuffle: bool | None = None, num_workers: int = 0, drop_last: bool = True,
        persistent_workers: bool | None = None, auto_distributed_partitioning: bool = True,
        mode: DataLoaderMode = DataLoaderMode.Sync, async_options: dict[str, Any] | None = None,
        rebatched_worker_size: int | None = None, batch_sampler: Any = None, **kwargs: Any,
    ) -> None:
        _check(options, mode, batch_size, async_options)
        self._options_of_model = options
        self._share: ProcessShare | None = None
        iterable = isinstance(dataset, IterableDataset)
        if batch_size is None or batch_sampler is not None:
            if auto_distributed_partitioning and options.Distributed.numProcesses > 1:
                raise ValueError(
                    "batches of the dataset's own in several processes: give each its share and "
                    "use auto_distributed_partitioning=False"
                )
            self._samples, self._is_rebatched = 0, False
            super().__init__(dataset, batch_size=None if batch_sampler is None else 1,
                             num_workers=num_workers, batch_sampler=batch_sampler,
                             **kwargs)
            return
        self._samples = batch_size * _batches(options)
        rebatched = mode is DataLoaderMode.AsyncRebatched
        if rebatched and not drop_last:
            raise ValueError("mode=AsyncRebatched needs drop_last=True: batches are filled up")
        load = batch_size * (rebatched_worker_size or 1) if rebatched else self._samples
        if rebatched and self._samples % load:
            raise ValueError(
                f"rebatched_worker_size={rebatched_worker_size} does not divide the "
                f"{self._samples // batch_size} micro-batches of a call; use a divisor"
            )
        self._is_rebatched = rebatched
        workers = num_workers if iterable else _workers(num_workers)
        if auto_distributed_partitioning and options.Distributed.numProcesses > 1:
            dataset = self._share = _shared(dataset, options, self._samples, drop_last, shuffle)
            shuffle = False
        super().__init__(
            dataset, batch_size=load, shuffle=None if iterable else bool(shuffle),
            num_workers=workers, drop_last=drop_last and not rebatched,
            persistent_workers=_persistent(persistent_workers, workers), **kwargs,
        )

    @property
    def combinedBatchSize(self) -> int | None:
        """Samples of one element; None where the dataset has batches already."""
        return self._samples or None

    @property
    def options(self) -> Options:
        """Those of the model."""
        return self._options_of_model

    def __len__(self) -> int:
        if self._is_rebatched:
            return len(self.dataset) // self._samples
        return int(super().__len__())

    def __iter__(self) -> Iterator[Any]:
        if self._share is not None:
            self._share.begin()
        if not self._is_rebatched:
            pieces, feeding = super().__iter__(), self._options_of_model.feeding
            # Workers make elements at the same time: their seconds are not known here.
            return iter(pieces if self.num_workers else feeding.timed(pieces))
        return self._rebatched(super().__iter__())

    def _rebatched(self, pieces: Iterator[Any]) -> Iterator[Any]:
        """Whole batches of the pieces that workers load; what does not fill one is left out."""
        pending: list[Any] = []
        count = 0
        for piece in pieces:
            pending.append(piece)
            count += len(flatten(piece)[0])
            if count >= self._samples:
                whole, rest = _split(pending, self._samples)
                yield whole
                pending, count = ([rest], count - self._samples) if rest is not None else ([], 0)

    def terminate(self) -> None:
        """End the workers; torch does so with the iterator."""
        self._iterator = None


def _check(options: Any, mode: Any, batch_size: Any, async_options: Any) -> None:
    if not isinstance(options, Options):
        raise TypeError(f"options={type(options).__name__} is not a poptorch.Options")
    if not isinstance(mode, DataLoaderMode):
        raise TypeError(f"mode={mode!r} is not a poptorch.DataLoaderMode")
    if batch_size is not None:
        check_number("batch_size", batch_size)
    if async_options and mode is DataLoaderMode.Sync:
        raise ValueError("async_options with mode=Sync: use mode=poptorch.DataLoaderMode.Async")
    if async_options:
        once("async_options", "torch's own workers load ahead")


def _shared(
    dataset: Any, options: Options, step: int, drop_last: bool, shuffle: bool | None
) -> ProcessShare:
    """This process's samples of a dataset.

    Raises    ValueError for a dataset without numbers.
    """
    if isinstance(dataset, IterableDataset):
        raise ValueError(
            "an IterableDataset in several processes: give each its share and use "
            "auto_distributed_partitioning=False"
        )
    return ProcessShare(dataset, options, step, drop_last=drop_last, shuffle=bool(shuffle))


def _batches(options: Options) -> int:
    """Micro-batches of one call."""
    count: int = (
        options.device_iterations * options.replication_factor
        * options.Training.gradient_accumulation
    )
    return count


def _workers(asked: int) -> int:
    """As many processes as were asked for, and at most one for each processor.

    The batches of a dataset with indices are the same for any number of them. An iterable dataset
    is cut by their number, so there it stays as it is.
    """
    return min(asked, os.cpu_count() or 1)


def _persistent(asked: bool | None, num_workers: int) -> bool:
    """Workers live as long as the loader, where there are any and nothing else was asked."""
    return num_workers > 0 if asked is None else asked


def _split(pieces: list[Any], size: int) -> tuple[Any, Any]:
    """The first samples of pieces in a row, and the others or None."""
    columns = [torch.cat(column) for column in zip(*map(flatten, pieces), strict=True)]

    def of(first: int, last: int | None) -> Any:
        mine = iter([column[first:last] for column in columns])
        return rebuild(pieces[0], lambda _: next(mine))

    whole = of(0, size)
    return whole, of(size, None) if len(columns[0]) > size else None


class AsynchronousDataAccessor:
    """A loader behind another process in the vendor's library: here the loader as it is.

    >>> loader = DataLoader(Options(), range(4), batch_size=2)
    >>> [batch.tolist() for batch in AsynchronousDataAccessor(loader)]
    [[0, 1], [2, 3]]
    """

    def __init__(self, dataset: Any, **options: Any) -> None:
        if options:
            once("AsynchronousDataAccessor", "torch's own workers load ahead")
        self._dataset = dataset

    def __len__(self) -> int:
        return len(self._dataset)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._dataset)

    def terminate(self) -> None:
        """Nothing to end."""
