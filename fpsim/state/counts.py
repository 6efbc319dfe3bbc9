"""Counters of what operations did: flags, zeros and subnormals, per operation and tensor."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim.records.flags import Flags
from fpsim.records.formats import Format
from fpsim.state.processor import usual_arithmetic

__all__ = ["Counts"]

_NAMES = {int(f): str(f.name) for f in Flags}


class Counts(dict[tuple[str, str], Counter[str]]):
    """Per tensor and operation: results, zeros, subnormals, and each flag by its name.

    Zeros and subnormals are results, exact ones too; a flag counts the elements that raised it.
    Truth values and integers are results that are neither. Operations count under the name that
    `tensor` has when they run.

    >>> import fpsim as fp
    >>> half = fp.Context(fp.BINARY16, count=True)
    >>> half.counts.tensor = "gradient"
    >>> tiny = half.array([1e-9, 1e-3])
    >>> half.counts["gradient", "convert"]["UNDERFLOW"], half.counts.total("zeros")
    (1, 1)
    """

    def __init__(self) -> None:
        super().__init__()
        self.tensor = ""
        #: Whether operations count now.
        self.is_on = True
        #: Elements by tensor, operation and flag, in order of time, since a reader emptied it;
        #: None: nobody reads it.
        self.raised: Counter[tuple[str, str, str]] | None = None

    @usual_arithmetic
    def add(
        self, operation: str, values: NDArray[Any] | None, marks: NDArray[np.uint8], fmt: Format
    ) -> None:
        """Count one operation's results (`values`, if they are of the format) and their flags."""
        if not self.is_on:
            return
        key = (self.tensor, operation)
        row = self.get(key)
        if row is None:
            row = self[key] = Counter()
        row["results"] += marks.size
        if values is not None:
            small = int(np.count_nonzero(np.abs(values) < fmt.smallest_normal))
            # Where nothing is small nothing is zero: most results are read once.
            zeros = values.size - int(np.count_nonzero(values)) if small else 0
            row["zeros"] += zeros
            row["subnormals"] += small - zeros
        raised = int(np.bitwise_or.reduce(marks, axis=None)) if marks.size else 0
        for flag, name in _NAMES.items():
            n = int(np.count_nonzero(marks & flag)) if raised & flag else 0
            row[name] += n
            if n and self.raised is not None:
                self.raised[self.tensor, operation, name] += n

    def total(self, name: str, tensor: str | None = None) -> int:
        """Sum of one counter over all operations, or over those of one tensor."""
        return sum(row[name] for (of, _), row in self.items() if tensor in (None, of))
