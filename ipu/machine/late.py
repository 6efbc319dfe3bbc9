"""Results that another thread computes while the machine goes on.

Such a product has its number, its settings and its row in the ledger at once; values and flags come
later: at the first use of the values, or when somebody reads the flags of the machine.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from numpy.typing import NDArray

from fpsim.array import Array
from fpsim.context import Context
from fpsim.core import Core
from fpsim.records.flags import Flags
from fpsim.records.types import Carrier, Shape
from fpsim.state.draws import advance
from fpsim.state.tasks import offer
from fpsim.state.threads import get_threads

__all__ = ["WORTH", "Late", "LateResults", "apart"]

#: Multiply-adds from which on a product is worth a hand-over to another thread.
WORTH = 1 << 21


def apart(context: Context) -> Context:
    """Its settings and random bits from the next operation on, with flags and counts of its own
    and no traps: for another thread.

    >>> half = Context("binary16")
    >>> other = apart(half); _ = other.array([0.1]); other.flags, half.flags
    (<Flags.INEXACT: 1>, <Flags.NONE: 0>)
    """
    core, other = context.core, Context.__new__(Context)
    other.core = Core(other, core.settings, core.source, Flags.NONE, count=False)
    other.core.clock.operation, other.core.clock.first = core.clock.operation, core.clock.first
    return other


class Late(Array):
    """An array whose values another thread computes in a context apart."""

    __slots__ = ("_alone", "_carrier", "_shape", "_task")

    def __init__(self, compute: Callable[[Context], Array], shape: Shape, context: Context) -> None:
        alone = apart(context)
        self.context: Context = context
        self._shape, self._alone = shape, alone
        self._task = offer(lambda: compute(alone).carrier)
        self._carrier: Carrier | None = None

    def finish(self) -> Carrier:
        """The values; whoever asks computes them if nobody has begun, and the flags are raised."""
        if self._carrier is None:
            self._carrier = self._task.finish()
            self.context.core.raise_flags(self._alone.core.raised)
        return self._carrier

    @property
    def is_waiting(self) -> bool:
        """Whether the values are not there yet."""
        return not self._task.ended

    @property
    def carrier(self) -> NDArray[Any]:  # type: ignore[override]
        return self.finish()

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        return self._shape

    @property
    def size(self) -> int:  # type: ignore[override]
        return math.prod(self._shape)


class LateResults:
    """The results of a machine that are not there yet."""

    def __init__(self) -> None:
        self._results: list[Late] = []

    def may_have(self, context: Context) -> bool:
        """Whether a thread is there for a result of this context, of which nobody must know."""
        if context.core.watched or context.core.seed is None:
            return False
        # Operands of results that wait stay in memory.
        return sum(late.is_waiting for late in self._results) < 2 * (get_threads() - 1)

    def begin(self, compute: Callable[[Context], Array], shape: Shape, context: Context) -> Late:
        """The result that `compute` gives, with its number."""
        result = Late(compute, shape, context)
        if context.rounding.stochastic:
            advance(context.core)
        self._results.append(result)
        return result

    def finish(self) -> None:
        """Wait for all: their flags are raised."""
        while self._results:
            self._results.pop().finish()

    def clear(self) -> None:
        """Forget them; nobody computes those that have not begun."""
        self._results.clear()
