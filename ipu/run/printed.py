"""Numbers that a program prints, as what two of its runs are compared by.

A number is known again by the text of its line without the numbers, and by its place there; what
lines of the same text print is a series. How long something took is none of the program's results.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

__all__ = ["DECIMAL", "PrintedNumber", "Series", "negligible", "printed_series"]

#: A finite number as programs print it.
DECIMAL = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_NUMBER = re.compile(rf"(?<![\w.])(?:{DECIMAL}|[-+]?(?:nan|inf)\b)", re.I)
#: What follows a number that a clock gave, as "12ms/step" and "3.4it/s" do.
_OF_CLOCK = re.compile(r"(?:[mµun]?s(?:/\w+)?|(?:it|steps?|examples|samples)/s(?:ec)?)\b")
#: Of the largest number that a line prints, and of that of all lines, the part below which a
#: difference is none.
_SMALL, _TINY = 0.05, 0.005


class PrintedNumber(NamedTuple):
    """The text of a line, with # for its numbers, and which of them."""

    line: str
    place: int


Series = Mapping[PrintedNumber, Sequence[float]]


def printed_series(text: str) -> dict[PrintedNumber, list[float]]:
    """The series of numbers in what a program printed.

    >>> printed_series("step 1 loss 0.5\\nstep 2 loss nan\\n")
    {PrintedNumber(line='step # loss #', place=0): [1.0, 2.0], \
PrintedNumber(line='step # loss #', place=1): [0.5, nan]}
    >>> list(printed_series("1s loss 0.5 12ms/step").values())
    [[0.5]]
    """
    series: dict[PrintedNumber, list[float]] = {}
    for line in text.splitlines():
        shape = _NUMBER.sub("#", line).strip()
        for index, number in enumerate(_NUMBER.finditer(line)):
            if not _OF_CLOCK.match(line, number.end()):
                series.setdefault(PrintedNumber(shape, index), []).append(float(number.group()))
    return series


def negligible(reference: Series, number: PrintedNumber) -> float:
    """Differences that are small beside what a run prints: an error of 1e-7 that becomes 1e-4.

    >>> told = {PrintedNumber("x # by #", 0): [2.5], PrintedNumber("x # by #", 1): [1e-7],
    ...         PrintedNumber("time #", 0): [100.5]}
    >>> [round(negligible(told, PrintedNumber(line, 0)), 4) for line in ("x # by #", "time #")]
    [0.5025, 5.025]
    """
    def largest(rows: Iterable[Sequence[float]]) -> float:
        sizes = [abs(x) for row in rows for x in row if math.isfinite(x) and x % 1]
        return max(sizes, default=0.0)

    of_line = [row for key, row in reference.items() if key.line == number.line]
    return max(_SMALL * largest(of_line), _TINY * largest(reference.values()))
