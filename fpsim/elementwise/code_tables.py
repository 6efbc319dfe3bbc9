"""Functions of one operand in formats of 16 bits, read from tables of all 65 536 codes.

A table is made by the function's own steps, so values and flags are theirs. In a deterministic mode
it holds results; for stochastic rounding it holds binary64 values rounded to odd, which the usual
conversion rounds: 16 random bits look at more digits than binary32 has.

Carriers are binary32: their bits without those that the format lacks are the index, so nothing is
encoded; only indices of codes are filled.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fpsim.elementwise.codes import from_codes
from fpsim.kernels.elementwise.look_up import look_up
from fpsim.records.formats import Format
from fpsim.records.types import Carrier, ElementFlags
from fpsim.state.threads import run_blocks

__all__ = ["CodeTable", "all_values", "has_index", "tabulate"]

#: Elements for which a second thread is worth its cost.
_SMALLEST = 1 << 17
_NO_MARKS = np.zeros(1, np.uint8)


def has_index(fmt: Format) -> bool:
    """Whether a format's carriers tell its codes by their first bits."""
    return fmt.bits == 16 and fmt.carrier == np.float32


def all_values(fmt: Format) -> Carrier:
    """The value of every code, NaNs with their payloads."""
    return from_codes(np.arange(1 << fmt.bits, dtype=fmt.code_dtype), fmt)


class CodeTable(NamedTuple):
    """A value and a mark for each code of a format.

    shift     bits of a carrier that its format lacks.
    """

    shift: int
    values: NDArray[Any]
    marks: ElementFlags

    def read(self, x: Carrier, out: NDArray[Any], marks: ElementFlags | None = None) -> int:
        """out = the value of each element of x; the marks of all, joined.

        Shapes    out and marks as x; x in C order.
        """
        target = out if out.flags.carray else np.empty(out.shape, out.dtype)
        bits, flat = x.reshape(-1).view(np.uint32), target.reshape(-1)
        by_element = marks is not None
        flat_marks = np.empty(x.size, np.uint8) if by_element else _NO_MARKS

        def work(a: int, b: int) -> int:
            part = flat_marks[a:b] if by_element else flat_marks
            joined: int = look_up(
                bits[a:b], np.uint32(self.shift), self.values, self.marks, flat[a:b], part,
                by_element,
            )
            return joined

        joined = run_blocks(work, 0, x.size, _SMALLEST, 1)
        if target is not out:
            out[...] = target
        if marks is not None:
            marks[...] = flat_marks.reshape(marks.shape)
        return joined


def tabulate(fmt: Format, values: NDArray[Any], marks: ElementFlags) -> CodeTable:
    """The table of values and marks that stand in the order of `all_values`.

    >>> from fpsim.records.formats import BFLOAT16
    >>> x = all_values(BFLOAT16)
    >>> table = tabulate(BFLOAT16, -x, np.zeros(x.size, np.uint8))
    >>> out = np.empty(2, np.float32)
    >>> table.read(np.float32([1.5, -3.0]), out), out.tolist()
    (0, [-1.5, 3.0])
    """
    shift = 24 - fmt.precision
    size = 1 << (32 - shift)
    table = CodeTable(shift, np.zeros(size, values.dtype), np.zeros(size, np.uint8))
    places = all_values(fmt).view(np.uint32) >> np.uint32(shift)
    table.values[places], table.marks[places] = values, marks
    return table
