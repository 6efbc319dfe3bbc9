"""The smallest set of items that suffices for something, by trying sets of them.

Source    Zeller and Hildebrandt, IEEE Trans. Software Eng. 28(2), 2002 (ddmin).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

__all__ = ["smallest"]

T = TypeVar("T")


def smallest(
    items: Sequence[T], holds: Callable[[Sequence[T]], bool],
    go_on: Callable[[], bool] = lambda: True,
) -> tuple[list[T], bool]:
    """A set of items for which `holds`, none of which can be left out; and whether that was tried.

    items    for all of which it holds.
    go_on    asked before each trial; once it says no, what there is by then is the answer.

    >>> smallest(range(20), lambda items: {3, 11} <= set(items))
    ([3, 11], True)
    """
    present, pieces = list(items), 2
    while len(present) >= 2:
        size = -(-len(present) // pieces)
        chunks = [present[i : i + size] for i in range(0, len(present), size)]
        candidates = [*chunks, *([x for x in present if x not in chunk] for chunk in chunks)]
        if pieces == 2:  # the complement of a half is the other half
            candidates = chunks
        for candidate in candidates:
            if not go_on():
                return present, False
            if holds(candidate):
                pieces = 2 if candidate in chunks else max(pieces - 1, 2)
                present = candidate
                break
        else:
            if pieces >= len(present):
                break
            pieces = min(2 * pieces, len(present))
    return present, True
