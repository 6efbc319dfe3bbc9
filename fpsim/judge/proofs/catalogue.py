"""Every theorem by name."""

from __future__ import annotations

import difflib
from functools import cache

from fpsim.judge.proofs import (
    blocks,
    bounds,
    conversions,
    instances,
    layouts,
    odd_sums,
    operations,
    packing,
    quotients,
    stores,
    windows,
)
from fpsim.judge.proofs.theorem import Theorem

__all__ = ["find", "theorems"]

_FAMILIES = (
    conversions, stores, operations, odd_sums, blocks, quotients, packing, windows, instances,
    layouts, bounds,
)


@cache
def theorems() -> dict[str, Theorem]:
    """All of them, in the order of the page."""
    named: dict[str, Theorem] = {}
    for family in _FAMILIES:
        for theorem in family.theorems():
            assert theorem.name not in named, f"two theorems are called {theorem.name}"
            named[theorem.name] = theorem
    return named


def find(words: tuple[str, ...]) -> list[Theorem]:
    """Those of a name, of a kind, or whose names begin with the words.

    Raises    ValueError, with the close name, where there is none.
    """
    everything = theorems()
    if not words:
        return list(everything.values())
    asked = " ".join(words)
    if asked in everything:
        return [everything[asked]]
    matches = [t for t in everything.values() if t.kind == asked or t.name.startswith(f"{asked} ")]
    if matches:
        return matches
    close = difflib.get_close_matches(asked, everything, 1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    raise ValueError(
        f"theorem={asked!r} is not known.{hint} See: fpsim verify proof --list"
    )
