"""Native calls of operations, noted as they run, to be run again on the same memory.

A call that is noted computes, when it runs again, from what its operands hold then, into the memory
that its results had: values, flags and random bits are those of the operation. Where data need
another way than the one that was noted it has no result, and the operation has to run as it is
written. What has run and is not noted is refused: what is computed from it cannot run again.

Source    docs/semantics.md §2 (numbering).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fpsim.elementwise.apply import RepeatedOperation, apply
from fpsim.records.types import Carrier
from fpsim.state.draws import NO_DRAW, Draw
from fpsim.state.state import State

__all__ = ["Again", "CallNotes", "NotedCall", "rounded_again"]

#: Runs a call again. It gets numbers of stochastic operations, and where its own begin among them.
#: False: it has no result, and the operation has to run as it is written.
Again = Callable[[NDArray[np.uint64], int], bool]


class NotedCall(NamedTuple):
    """A call that has run.

    operands   what it reads: arrays, and views of arrays.
    results    memory that it writes.
    numbers    of its stochastic operations, in order.
    fixed      numbers of no dimension that are part of the call: it holds for these alone.
    """

    operands: tuple[NDArray[Any], ...]
    results: tuple[NDArray[Any], ...]
    numbers: tuple[int, ...]
    again: Again
    fixed: tuple[NDArray[Any], ...] = ()


class CallNotes:
    """Calls in order.

    constants   numbers of Python, as carriers.
    is_whole    whether all that ran is noted.
    """

    def __init__(self) -> None:
        self.calls: list[NotedCall] = []
        self.constants: list[Carrier] = []
        self.is_whole = True

    def note(
        self, operands: Sequence[NDArray[Any]], results: Sequence[NDArray[Any]], again: Again,
        numbers: Sequence[int] = (), fixed: Sequence[NDArray[Any]] = (),
    ) -> None:
        """A call has run."""
        self.calls.append(
            NotedCall(tuple(operands), tuple(results), tuple(numbers), again, tuple(fixed))
        )

    def is_constant(self, x: NDArray[Any]) -> bool:
        """Whether it is the carrier of a number of Python."""
        return x.shape == () and any(x is number for number in self.constants)

    def starts(self) -> set[int]:
        """Where the memory begins that calls have written."""
        return {
            np.lib.array_utils.byte_bounds(x)[0] for call in self.calls for x in call.results}

    def refuse(self) -> None:
        """Something else has run."""
        self.is_whole = False


def rounded_again(
    state: State, name: str, carriers: Sequence[Carrier], values: Carrier,
    evaluate: Callable[..., tuple[Carrier, int]],
) -> Again:
    """An elementwise operation that was published, as it runs again; nothing traps or counts."""
    settings, is_drawn = state.settings, state.settings.rounding.stochastic
    seed = np.uint64(state.source.seed or 0)
    if evaluate is apply and (repeated := RepeatedOperation.of(name, carriers, settings, values)):
        run, no_number = repeated.run, NO_DRAW.number

        def directly(numbers: NDArray[np.uint64], first: int) -> bool:
            flags = run(seed, numbers[first] if is_drawn else no_number)
            if flags:
                state.raise_flags(flags)
            return True

        return directly

    def again(numbers: NDArray[np.uint64], first: int) -> bool:
        bits = Draw(seed, numbers[first], None) if is_drawn else NO_DRAW
        _, flags = evaluate(name, carriers, settings, out=values, bits=bits)
        if flags:
            state.raise_flags(flags)
        return True

    return again
