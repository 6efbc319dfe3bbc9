"""Counters of what operations did: flags, zeros and subnormals, per operation."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim.flags import Flags
from fpsim.formats import Format

__all__ = ["Counts"]


class Counts(dict[str, dict[str, int]]):
    """Per operation name: results, zeros, subnormals, and each flag by its name.

    Zeros and subnormals are results, exact ones too; a flag counts the elements that raised it.
    """

    def add(
        self, operation: str, values: NDArray[Any], marks: NDArray[np.uint8], fmt: Format
    ) -> None:
        """Count one operation's results and the flags of its elements."""
        row = self.setdefault(operation, defaultdict(int))
        magnitude = np.abs(values)
        row["results"] += values.size
        row["zeros"] += int(np.count_nonzero(values == 0))
        tiny = (magnitude < fmt.smallest_normal) & (values != 0)
        row["subnormals"] += int(np.count_nonzero(tiny))
        for flag in Flags:
            row[str(flag.name)] += int(np.count_nonzero(marks & flag))

    def total(self, name: str) -> int:
        """Sum of one counter over all operations."""
        return sum(row.get(name, 0) for row in self.values())
