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
from fpsim.records.types import Carrier, Shape
from fpsim.state.tasks import offer

__all__ = ["Late"]


class Late(Array):
    """An array whose values another thread computes in a context apart."""

    __slots__ = ("_alone", "_carrier", "_shape", "_task")

    def __init__(self, compute: Callable[[Context], Array], shape: Shape, context: Context) -> None:
        alone = context.apart()
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
    def shape(self) -> tuple[int, ...]:
        return self._shape

    @property
    def size(self) -> int:
        return math.prod(self._shape)
