"""Mode: whether layers train, and what training changes beside the parameters.

Inside `with training() as updates:` batch norm takes the statistics of its batch and notes the
moving ones, and dropout drops. Outside, layers infer. What was noted is published by
`updates.apply()`, so that a step which a trap stops changes nothing.
"""

from __future__ import annotations

from contextvars import ContextVar

from fpsim.array import Array
from ipu.learn.variables import Variable
from ipu.ops.saved import packing

__all__ = ["PendingUpdates", "current_updates", "training"]


class PendingUpdates:
    """New values of variables, noted but not published."""

    def __init__(self) -> None:
        #: Whether layers repeat what they have done, and note nothing.
        self.repeating = False
        self._noted: dict[int, tuple[Variable, Array]] = {}

    def value(self, variable: Variable) -> Array:
        """What the variable will be."""
        return self._noted.get(id(variable), (variable, variable.array))[1]

    def note(self, variable: Variable, array: Array) -> None:
        """The variable is to take these values."""
        self._noted[id(variable)] = (variable, array)

    @property
    def noted(self) -> list[tuple[Variable, Array]]:
        """The variables, each with what it is to take."""
        return list(self._noted.values())

    def apply(self) -> None:
        """Publish what was noted."""
        for variable, array in self._noted.values():
            variable.assign(array)
        self._noted.clear()


_current: ContextVar[PendingUpdates | None] = ContextVar("updates", default=None)


def current_updates() -> PendingUpdates | None:
    """Where layers note what training changes; None where they infer."""
    return _current.get()


class _Training:
    """See `training`."""

    def __init__(self, updates: PendingUpdates) -> None:
        self._updates = updates

    def __enter__(self) -> PendingUpdates:
        self._packing = packing()
        self._packing.__enter__()
        self._token = _current.set(self._updates)
        return self._updates

    def __exit__(self, *_: object) -> None:
        _current.reset(self._token)
        self._packing.__exit__()


def training(updates: PendingUpdates | None = None) -> _Training:
    """Layers inside train, and note what they update; a training may go on from block to block."""
    return _Training(PendingUpdates() if updates is None else updates)
