"""State of the arithmetic in one format: settings, random bits, flags, traps and counts.

A `fpsim.Context` is a state with operations. The rooms below it take a state and return carriers;
`fpsim.state.draws` advances it and `fpsim.state.publish` writes the outcome of an operation to it.

Source    IEEE 754-2019 §7; docs/semantics.md §2 and §3.
"""

from __future__ import annotations

from collections.abc import Sequence

from fpsim.records.flags import Flags, as_integer
from fpsim.records.formats import Format
from fpsim.records.rounding import Rounding
from fpsim.records.settings import Settings
from fpsim.state.bits import BitSource
from fpsim.state.counts import Counts

__all__ = ["Clock", "State"]


class Clock:
    """Number of the next stochastic operation; the contexts of one machine share a clock.

    first    index that element 0 of elementwise operations has in the whole tensor, of which a
             shard is computed. Only Philox has the bits of a shard.
    """

    __slots__ = ("first", "operation")

    def __init__(self) -> None:
        self.operation = 0
        self.first = 0

    def take(self, n: int) -> Sequence[int]:
        """Numbers of the next n stochastic operations, which have then been."""
        first = self.operation
        self.operation += n
        return range(first, first + n)

    def give_back(self, n: int) -> None:
        """The last n that were taken have not been: they are the next again."""
        self.operation -= n

    @property
    def k(self) -> int:
        """How many stochastic operations have been."""
        return self.operation


class _Status:
    """Sticky flags as an integer; a context and those of `in_format` share one."""

    __slots__ = ("flags",)

    def __init__(self) -> None:
        self.flags = 0


class State:
    """What operations depend on, and what they leave behind.

    settings   format, rounding and policies.
    source     of random bits; `clock` counts the stochastic operations.
    traps      flags that stop an operation.
    count      whether `counts` has a row for each operation.

    >>> from fpsim.records.formats import BINARY16
    >>> from fpsim.state.bits import Philox
    >>> State(Settings(BINARY16), Philox(3), Flags.NONE, count=False).seed
    3
    """

    def __init__(self, settings: Settings, source: BitSource, traps: Flags, *, count: bool) -> None:
        if settings.native and (traps or count):
            raise ValueError(
                "format=binary64 computes natively and raises no flags; leave traps and count off"
            )
        self.settings = settings
        self.source = source
        self.clock = Clock()
        self.counts: Counts | None = Counts() if count else None
        # Plain integers inside: an operation on sixteen elements takes less time than one on enums.
        self._traps, self._status = as_integer("traps", traps), _Status()

    @property
    def format(self) -> Format:
        return self.settings.format

    @property
    def rounding(self) -> Rounding:
        return self.settings.rounding

    @property
    def flags(self) -> Flags:
        """Flags raised since they were last lowered; assign to set or lower them."""
        return Flags(self._status.flags)

    @flags.setter
    def flags(self, flags: Flags) -> None:
        self._status.flags = as_integer("flags", flags)

    @property
    def raised(self) -> int:
        """The flags as an integer."""
        return self._status.flags

    def clear_flags(self) -> None:
        """Lower every flag."""
        self._status.flags = 0

    def raise_flags(self, flags: int) -> None:
        """Add the flags of an operation; every operation calls this once, before it traps.

        Raises    TypeError or ValueError for what are no flags; the flags are then as before.
        """
        plain = type(flags) is int and 0 <= flags < 32
        self._status.flags |= flags if plain else as_integer("flags", flags)

    @property
    def traps(self) -> Flags:
        """Flags that stop an operation; assign to arm or disarm them."""
        return Flags(self._traps)

    @traps.setter
    def traps(self, traps: Flags) -> None:
        self._traps = as_integer("traps", traps)

    @property
    def armed(self) -> int:
        """The traps as an integer."""
        return self._traps

    @property
    def watched(self) -> bool:
        """Whether operations must report the flags of each element: to a trap or to the counts."""
        return self._traps != 0 or self.counts is not None

    @property
    def operation(self) -> int:
        """Number of the next stochastic operation."""
        return self.clock.operation

    @operation.setter
    def operation(self, number: int) -> None:
        self.clock.operation = number

    @property
    def seed(self) -> int | None:
        """Key of the Philox bits; None with another source."""
        return self.source.seed

    def share(self, other: State) -> None:
        """Use the flags, counts and clock of another state from now on."""
        if not isinstance(other, State):
            raise TypeError(f"other={other!r} is not a context; give one whose flags are shared")
        self._status, self.counts, self.clock = other._status, other.counts, other.clock

    def dump(self) -> str:
        """The state as text, as a trap shows it."""
        return f"flags {'|'.join(self.flags.names)}; traps {'|'.join(self.traps.names)}"
