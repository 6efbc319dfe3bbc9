"""Shares of a dataset: the samples of each process, one block after the other.

Process p has samples p·n … p·n + n - 1, n a multiple of what one call takes; without `drop_last`
the shares differ by one sample at most. Shuffled, the blocks are those of a permutation of all
samples, another one for each iteration, that all processes draw alike from the options' seed; what
fills no call is left out in every second iteration, and other samples in the others.

Source    Graphcore's PopTorch, python/__init__.py (DataLoader in a distributed environment).
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.data import Dataset

from ipu.frontends.poptorch.options import Options

__all__ = ["ProcessShare"]


class ProcessShare(Dataset):  # type: ignore[misc]
    """This process's samples.

    step       samples of one call.
    shuffle    by the options' seed.

    Raises     ValueError for fewer samples than one call of all processes, and for a shuffle
               without a seed.
    """

    def __init__(
        self, dataset: Any, options: Options, step: int, *, drop_last: bool, shuffle: bool
    ) -> None:
        count, rank = options.Distributed.numProcesses, options.Distributed.processId
        size = len(dataset)
        if shuffle and not options.exists("random_seed"):
            raise ValueError(
                "shuffle=True in several processes: use options.randomSeed(n) with one n, so that "
                "all shuffle alike"
            )
        if drop_last:
            length = step * (size // (step * count))
            if not length:
                raise ValueError(
                    f"a dataset of {size} samples has no batch for each of {count} processes; a "
                    f"call of all takes {step * count}"
                )
            self._first, self._rest = rank * length, size % length
        else:
            shares = [size // count + (size % count > process) for process in range(count)]
            self._first, length, self._rest = sum(shares[:rank]), shares[rank], 0
        self._dataset, self._shuffle = dataset, shuffle
        self._is_late = False
        self._generator = torch.Generator()
        if shuffle:
            self._generator.manual_seed(options.random_seed)
        #: Numbers of this process's samples, in memory that the loader's workers see.
        self._numbers = torch.arange(self._first, self._first + length).share_memory_()

    def begin(self) -> None:
        """An iteration starts: another permutation."""
        if not self._shuffle:
            return
        order = torch.randperm(len(self._dataset), generator=self._generator)
        self._is_late = not self._is_late
        first = self._first + (self._rest if self._is_late else 0)
        self._numbers.copy_(order[first : first + len(self._numbers)])

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, index: int) -> Any:
        return self._dataset[int(self._numbers[index])]
