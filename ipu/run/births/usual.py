"""Results of usual numbers, which most are: they are told of by their tallies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fpsim.array import Array
from fpsim.state.tallies import ValueTally
from ipu.run.births.birth import Birth, Origins
from ipu.run.births.book import Book
from ipu.run.births.elements import fits
from ipu.run.births.kinds import ABSORBED, DATA_DIGITS, DIFFERENCE, ONE, ZERO
from ipu.run.births.verbs import is_killer
from ipu.run.births.zeros import zero_of

__all__ = ["origins_of_usual"]

#: Flags with which numbers are born, if they are no zeros.
_BEARING = ("OVERFLOW", "DIVBYZERO", "INVALID")


def origins_of_usual(
    book: Book, operation: str, where: tuple[str, str, int], array: Array,
    operands: Sequence[Array], inherited: Sequence[Origins], flags: Mapping[str, int],
    tally: ValueTally | None,
) -> dict[str, Birth] | None:
    """Of results that are usual numbers, as `origins_of` has them; None where one has to look.

    Nothing is born in them but zeros, and no operand has anything but zeros and lost terms.
    """
    if not _is_usual(array, flags, tally):
        return None
    assert tally is not None
    origins: dict[str, Birth] = {}
    zeros: list[Birth] = []
    for x, before in zip(operands, inherited, strict=True):
        for kind, birth in before.items():
            if kind == ZERO:
                zeros.append(birth)
            elif kind == DIFFERENCE and tally.zeros:
                origins[DIFFERENCE] = birth
            elif kind in (DATA_DIGITS, DIFFERENCE, ONE):
                continue
            elif kind != ABSORBED or is_killer(operation):
                return None
            elif x.shape == array.shape or fits(x.shape, array.shape):
                origins[ABSORBED] = birth
    zero = zero_of(book, operation, where, array, tally.zeros, flags, zeros)
    if zero is not None:
        origins[ZERO] = zero
    return origins


def _is_usual(array: Array, flags: Mapping[str, int], tally: ValueTally | None) -> bool:
    """Whether a result is numbers below the largest, and no flag tells of another one inside."""
    if tally is None or array.carrier.dtype != np.float32:
        return False
    if flags and any(name in flags for name in _BEARING):
        return False
    return tally.is_below_largest(array.format)
