"""Counters of what operations did: flags, zeros and subnormals, per operation and tensor."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fpsim.kernels.elementwise.tally import TALLIED, tally_flags, tally_numbers, tally_results
from fpsim.records.flags import Flags
from fpsim.records.formats import Format
from fpsim.state.memory import flat_in_memory

__all__ = ["Counts"]

#: Of the flags, from the lowest bit on.
_NAMES = [str(f.name) for f in sorted(Flags)]


class CountedResults(NamedTuple):
    """Results that counted under a name; those of no format have none."""

    tensor: str
    operation: str
    size: int
    format: Format | None


class FlushedNumbers(NamedTuple):
    """What conversions to a format lost: underflows, by so many of which numbers became zero."""

    format: Format
    underflows: int = 0
    zeros: int = 0


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
        #: Conversions with underflows by tensor and format, since a reader of `raised` emptied it.
        self.flushed: dict[tuple[str, Format], FlushedNumbers] = {}
        #: What counted since a recording asked, whether or not counting is on; None: none asks.
        self.noted: list[CountedResults] | None = None

    def add(
        self, operation: str, values: NDArray[Any] | None, marks: NDArray[np.uint8], fmt: Format
    ) -> None:
        """Count one operation's results (`values`, if they are of the format) and their flags."""
        if self.noted is not None:
            self.noted.append(CountedResults(
                self.tensor, operation, marks.size, None if values is None else fmt
            ))
        if not self.is_on:
            return
        if self.raised is not None and operation == "convert" and values is not None:
            self._note_flushed(values, marks, fmt)
        raised = flat_in_memory(marks)
        if values is not None and values.dtype == np.float32:
            numbers = np.empty(TALLIED, np.int64)
            smallest = np.float32(fmt.smallest_normal)
            tally_results(flat_in_memory(values), raised, smallest, numbers)
            zeros, subnormals, *flags = numbers.tolist()
            self.add_numbers(operation, marks.size, (zeros, subnormals), flags)
            return
        small = None
        if values is not None:
            smallest = fmt.carrier.type(fmt.smallest_normal)
            small = tally_numbers(flat_in_memory(values), smallest)
        numbers = np.empty(len(_NAMES), np.int64)
        tally_flags(raised, numbers)
        self.add_numbers(operation, marks.size, small, numbers.tolist())

    def add_numbers(
        self, operation: str, results: int, small: tuple[int, int] | None, flags: Sequence[int]
    ) -> None:
        """Count results: so many zeros and subnormals among them, and elements of each flag."""
        if not self.is_on:
            return
        key = (self.tensor, operation)
        row = self.get(key)
        if row is None:
            row = self[key] = Counter()
        row["results"] += results
        if small is not None:
            row["zeros"] += small[0]
            row["subnormals"] += small[1]
        if len(row) <= len(_NAMES):  # all counters stand in it, those of flags behind the others
            row.update(dict.fromkeys(_NAMES, 0))
        if not any(flags):
            return
        for name, n in zip(_NAMES, flags, strict=True):
            if n:
                row[name] += n
                if self.raised is not None:
                    self.raised[self.tensor, operation, name] += n

    def _note_flushed(
        self, values: NDArray[Any], marks: NDArray[np.uint8], fmt: Format
    ) -> None:
        """How many numbers underflowed in a conversion, and how many zeros were none before."""
        is_tiny = (marks & Flags.UNDERFLOW) != 0
        underflows = int(np.count_nonzero(is_tiny))
        if underflows:
            zeros = int(np.count_nonzero(is_tiny & (values == 0)))
            before = self.flushed.get((self.tensor, fmt), FlushedNumbers(fmt))
            self.flushed[self.tensor, fmt] = FlushedNumbers(
                fmt, before.underflows + underflows, before.zeros + zeros)

    def total(self, name: str, tensor: str | None = None) -> int:
        """Sum of one counter over all operations, or over those of one tensor."""
        return sum(row[name] for (of, _), row in self.items() if tensor in (None, of))
