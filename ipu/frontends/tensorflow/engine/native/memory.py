"""Memory of values that stays from run to run: native calls read it, and write it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fpsim.array import Array
from fpsim.elementwise.notes import CallNotes
from ipu.run.noted import KnownMemory

__all__ = ["StayingMemory"]


class StayingMemory:
    """Values that are kept alive, and where they lie."""

    def __init__(self) -> None:
        self._ranges = KnownMemory()
        self._alive: list[Any] = []
        #: Carriers that no run writes, by identity.
        self._constants: set[int] = set()

    @property
    def n_bytes(self) -> int:
        """Bytes of all of it."""
        return self._ranges.n_bytes

    def add(self, value: Array, *, is_constant: bool = False) -> None:
        """A value that calls may read from now on."""
        self._ranges.add(*np.lib.array_utils.byte_bounds(value.carrier))
        self._alive.append(value)
        if is_constant:
            self._constants.add(id(value.carrier))

    def add_calls(self, notes: CallNotes) -> bool:
        """Whether calls read nothing else; what they write is part of it then."""
        def is_constant(x: Any) -> bool:
            return notes.is_constant(x) or id(x) in self._constants

        for call in notes.calls:
            self._alive += call.results
            if not self._ranges.takes(call, is_constant):
                return False
        return True

    def keep(self, values: Sequence[Array]) -> None:
        """Views of it live as long as it does."""
        self._alive += values

    def holds(self, values: Sequence[Any]) -> bool:
        """Whether all values lie in it."""
        return all(isinstance(x, Array) and self._ranges.holds(x.carrier) for x in values)

    def owned(self, value: Any) -> Any:
        """A value in memory that no later run writes."""
        if isinstance(value, Array):
            is_ours = self._ranges.holds(value.carrier)
            return value.like(value.carrier.copy()) if is_ours else value
        if isinstance(value, (tuple, list)):
            items = [self.owned(item) for item in value]
            return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
        return value
