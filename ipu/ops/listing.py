"""A program as it is compared: operations, options and shapes of its first step.

Processes that build other models, or give them batches of another shape, would train on sums of
gradients that belong to nothing; a checkpoint of another model with the same variables would go on
as something else. Both are refused, by the first operations that differ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from enum import Enum
from hashlib import sha256

from fpsim.array import Array
from ipu.machine.assigned import Bound

__all__ = ["Listing", "current_listing", "list_operation", "unlisted"]

#: Operations that are listed; only long sequences have more in a step.
LONGEST = 1 << 16
_AS_IT_IS = nullcontext()
#: Kinds of options that are told.
_TOLD = (bool, int, float, str, Enum, type(None))


class Listing:
    """Operations in the order in which a program first runs them, each once.

    is_open  it is still written.

    >>> listing = Listing()
    >>> listing.add("net.1 forward", "elu", ["float16 (4, 8)"], ["alpha=0.5"])
    >>> listing.lines, listing.shapeless
    (['net.1 forward: elu of float16 (4, 8), alpha=0.5'], ['net.1 forward: elu, alpha=0.5'])
    """

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str], None] = {}
        self.is_open = True

    def add(
        self, place: str, operation: str, operands: Sequence[str], options: Sequence[str] = ()
    ) -> None:
        """An operation with its operands, as types and shapes, and its options."""
        if self.is_open and len(self._rows) < LONGEST:
            head, tail = f"{place}: {operation}", "".join(f", {option}" for option in options)
            of = f" of {', '.join(operands)}" if operands else ""
            self._rows[f"{head}{of}{tail}", f"{head}{tail}"] = None

    @property
    def lines(self) -> list[str]:
        """One for each operation."""
        return [line for line, _ in self._rows]

    @property
    def shapeless(self) -> list[str]:
        """The lines without operands: a program may go on with batches of another size."""
        return list(dict.fromkeys(line for _, line in self._rows))

    @property
    def digest(self) -> str:
        """SHA-256 of the lines."""
        return sha256("\n".join(self.lines).encode()).hexdigest()

    def listing(self) -> AbstractContextManager[object]:
        """Operations of tapes inside are listed; those of an attempt that failed are forgotten."""
        if not self.is_open:
            return _AS_IT_IS
        self._rows.clear()
        return Bound(_listing, self)


_listing: ContextVar[Listing | None] = ContextVar("listing", default=None)


def unlisted() -> Bound[None]:
    """Operations inside are not listed."""
    return Bound(_listing, None)


def current_listing() -> Listing | None:
    """Where operations of a tape are listed; None where they are not."""
    return _listing.get()


def list_operation(
    listing: Listing, place: str, name: str, arrays: Sequence[Array], options: Mapping[str, object]
) -> None:
    """An operation of a tape; options that are arrays or functions are known by their names."""
    listing.add(
        place, name, [f"{x.format.name} {x.shape}" for x in arrays],
        [f"{k}={v}" if _is_told(v) else k for k, v in sorted(options.items())],
    )


def _is_told(value: object) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_told, value))
    return isinstance(value, _TOLD)
