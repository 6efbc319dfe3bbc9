"""Handshake: what must be equal on all workers before the first step, compared with both values.

`Hello` is what a worker says when it joins: protocol, version, size and the text of its plan.
`compare` repeats this over any transport for a whole training, with the names, formats, shapes and
values of its variables.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from fpsim import __version__
from fpsim.array import Array
from ipu.members.channel import Channel
from ipu.members.transport import JoinError

__all__ = ["PROTOCOL", "Hello", "compare", "digest"]

#: Grows when the wire changes.
PROTOCOL = 1


@dataclass(frozen=True)
class Hello:
    """What a worker says of itself when it joins.

    plan     what must be equal on all workers, as lines "name: value".
    """

    rank: int
    size: int
    plan: str = ""
    protocol: int = PROTOCOL
    version: str = __version__

    @property
    def lines(self) -> list[str]:
        """What must be equal on all workers."""
        return [
            f"protocol: {self.protocol}", f"fpsim version: {self.version}",
            f"number of workers: {self.size}", *self.plan.splitlines(),
        ]

    def difference(self, other: Hello, own_name: str, other_name: str) -> str | None:
        """A sentence about the first difference, with both values; None if there is none.

        >>> Hello(0, 2, "seed: 1").difference(Hello(1, 2, "seed: 2"), "worker 0", "worker 1")
        'worker 0 has seed: 1, worker 1 has seed: 2; start all workers alike'
        """
        return difference(self.lines, other.lines, own_name, other_name)


def difference(
    lines_here: Sequence[str], other: Sequence[str], own_name: str, other_name: str
) -> str | None:
    """A sentence about the first lines that differ; None if there are none."""
    for i in range(max(len(lines_here), len(other))):
        mine, its = (lines[i] if i < len(lines) else "nothing" for lines in (lines_here, other))
        if mine != its:
            mine, its = _shown(mine), _shown(its)
            return f"{own_name} has {mine}, {other_name} has {its}; start all workers alike"
    return None


def _shown(text: str) -> str:
    """A line that another worker sent, for people: short, and without control characters.

    >>> _shown("seed: \\x1b[2J")
    'seed: ?[2J'
    """
    text = "".join(c if c.isprintable() else "?" for c in text[:120])
    return text if len(text) < 120 else f"{text[:117]}…"


def compare(channel: Channel, lines: Iterable[str]) -> None:
    """Return when these lines are equal on all workers.

    Raises    JoinError, on every worker, with the first lines that differ.
    """
    text = "\n".join(lines)
    digest = hashlib.sha256(text.encode()).digest()
    digests = channel.gather(digest, "the plan's digest")
    if len(set(digests)) == 1:
        return
    texts = [row.decode() for row in channel.gather(text.encode(), "the plan")]
    other = next(rank for rank, row in enumerate(digests) if row != digest)
    names = channel.transport.describe(channel.rank), channel.transport.describe(other)
    channel.barrier("the plan")  # nobody leaves before all have both texts
    sentence = difference(text.splitlines(), texts[other].splitlines(), *names)
    raise JoinError(sentence or f"{names[0]} and {names[1]} have other plans")


def digest(arrays: Iterable[Array | float | int | bool | str | None]) -> str:
    """SHA-256 over codes and numbers."""
    total = hashlib.sha256()
    for item in arrays:
        if isinstance(item, Array):
            total.update(f"{item.format.name}{item.shape}".encode())
            total.update(np.ascontiguousarray(item.codes()).tobytes())
        else:
            total.update(repr(item).encode())
    return total.hexdigest()
