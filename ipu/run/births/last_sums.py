"""Sums that go on: the last results of additions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["LastSums", "Place"]

#: Operation, layer, direction and line.
Place = tuple[str, ...]
#: Numbers of a sum by which it is known again.
_SAMPLE = 512
#: Times in a row that terms are lost beside the last sum, at least, where what is lost adds up.
_IN_A_ROW = 2


class LastSums:
    """Last results of additions, by place: whether what is lost there adds up.

    >>> sums = LastSums()
    >>> [sums.lost_in_a_row(("add", "net", "forward", ""), n) for n in (3, 2, 2)]
    [0, 5, 2]
    """

    def __init__(self) -> None:
        #: The last result of each addition of one number, by operation, place and line.
        self._sums: dict[Place, NDArray[Any]] = {}
        #: Some numbers of the last result of each addition of many, by the same.
        self._samples: dict[Place, NDArray[Any]] = {}
        #: How often in a row terms were lost beside the last sum, and how many are not told yet.
        self._standing: dict[Place, tuple[int, int]] = {}

    def replace(self, place: Place, values: NDArray[Any]) -> NDArray[Any] | None:
        """Remember the result of an addition of one number; the one before it, if it has one."""
        before = self._sums.get(place)
        self._sums[place] = values.copy()
        return before

    def lost_in_a_row(self, place: Place, n: int) -> int:
        """Elements that a sum of its last sum has lost; later, where that may be the only time.

        What is computed twice from the same numbers, as by a checkpoint, has its last sum once.
        """
        if not n:
            self._standing.pop(place, None)
            return 0
        times, lost = self._standing.get(place, (0, 0))
        is_told = times + 1 >= _IN_A_ROW
        self._standing[place] = times + 1, 0 if is_told else lost + n
        return lost + n if is_told else 0

    def is_sum_of_sums(
        self, place: Place, terms: Sequence[NDArray[Any]], values: NDArray[Any]
    ) -> bool:
        """Whether an operand of an addition is the last result of the same place.

        Some numbers of it are compared and remembered.
        """
        sampled = slice(None, None, values.size // _SAMPLE + 1)
        before = self._samples.get(place)
        self._samples[place] = values.reshape(-1)[sampled].copy()
        return before is not None and any(
            np.array_equal(before, term.reshape(-1)[sampled]) for term in terms
        )
