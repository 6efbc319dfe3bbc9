"""Updates that rounding swallowed, in words: of which parameter, how small, and where.

Told is the parameter that loses most of its way in binary64; without a shadow, or where none of it
is lost, the one with the largest share of swallowed updates, to a tenth, and the most of them.

Evidence    ASSUMED: the bound.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ipu.run.motions import ways_lost
from ipu.run.sentences import where_told

__all__ = ["LostUpdates", "lost_updates"]

Row = Mapping[str, Any]

#: Share of updates that leave their parameter as it was, above which they are told.
_SWALLOWED = 0.2
#: The same of one parameter, and of the way of all that is lost in it.
_MOST = 0.5
#: Powers of two below a spacing that are told as a fraction, at most.
_FRACTION = 10


class _OfParameter(NamedTuple):
    """Updates of a parameter, or of a layer whose parameters have no names.

    of_layer    the row of its layer in the report.
    """

    layer: str
    name: str
    nonzero: int
    swallowed: int
    of_layer: Row

    @property
    def full_name(self) -> str:
        """By which its motion is known; names of some front ends hold the layer."""
        is_full = self.name.startswith((f"{self.layer}/", f"{self.layer}.", f"{self.layer}:"))
        return self.name if is_full or self.name == self.layer else f"{self.layer}.{self.name}"

    @property
    def row(self) -> Row:
        """The place of its layer's first swallowed update, as of a birth."""
        return {"layer": self.layer, "parameter": self.name, "direction": "optimizer",
                "step": self.of_layer.get("step", 0), "line": self.of_layer.get("line", "")}

    def __str__(self) -> str:
        if not self.name:  # "optimizer" stands for what no module has
            return self.layer if self.layer not in ("", "optimizer") else (
                "parameters outside of modules")
        return self.name if self.name == self.full_name else f"{self.name} ({self.layer})"


class LostUpdates(NamedTuple):
    """Updates that left their parameter as it was: of so many, and where most is lost.

    of_way    the share of the way of all parameters in binary64 that is lost there.
    """

    swallowed: int
    nonzero: int
    worst: _OfParameter
    of_way: float

    @property
    def share(self) -> float:
        """Of all updates."""
        return self.swallowed / self.nonzero

    @property
    def are_many(self) -> bool:
        """Whether that share is told by itself."""
        return self.share > _SWALLOWED

    @property
    def harm(self) -> float:
        """That share; where it is small, that of the way."""
        return self.share if self.are_many else self.of_way

    @property
    def clause(self) -> str:
        """What happened, in words."""
        return f"{self.share:.0%} of {self.nonzero:,} updates left their parameter as it was"

    @property
    def sentence(self) -> str:
        """What happened to the parameter that loses most, beside all."""
        worst = self.worst
        fmt = worst.of_layer.get("format", "its format")
        of_all = "" if worst.nonzero == self.nonzero else (
            f"; of all parameters {self.swallowed:,} of {self.nonzero:,}")
        return (f"Updates are swallowed: {worst.swallowed:,} of {worst.nonzero:,} updates of "
                f"{worst} are at most half a spacing of the parameter in {fmt}"
                f"{_typical(worst.of_layer)} ({where_told(worst.row)}){of_all}")


def lost_updates(
    report: Mapping[str, Any], *, is_harmed: bool = False
) -> LostUpdates | None:
    """The updates that nearest rounding ended; None where they are few.

    is_harmed    the losses part from binary32's: few are told too, of the parameter in which most
                 of the way of all is lost. One number may be all that a program has to learn.
    """
    rows = report.get("swallowed", {})
    nonzero = sum(row["nonzero"] for row in rows.values())
    lost = sum(row["swallowed"] for row in rows.values())
    if report.get("stochastic_rounding") or not lost:
        return None
    ways = ways_lost(report)
    worst = max(_parameters(rows), key=lambda one: (
        ways.get(one.full_name, 0.0) if one.swallowed else 0.0,
        round(one.swallowed / max(one.nonzero, 1), 1), one.swallowed))
    updates = LostUpdates(lost, nonzero, worst, ways.get(worst.full_name, 0.0))
    is_told = updates.are_many or (
        is_harmed and worst.swallowed > _MOST * worst.nonzero and updates.of_way > _MOST)
    return updates if is_told else None


def _parameters(rows: Mapping[str, Row]) -> Iterator[_OfParameter]:
    for layer, row in rows.items():
        for name, counts in (row.get("parameters") or {"": row}).items():
            yield _OfParameter(layer, name, counts["nonzero"], counts["swallowed"], row)


def _typical(row: Row) -> str:
    """The median of a layer's swallowed updates, which are its smallest, beside a spacing."""
    left = row["swallowed"] / 2
    for exponent, n in sorted((int(size), n) for size, n in row.get("in_ulps", {}).items()):
        left -= n
        if left <= 0:
            size = f"1/{2**-exponent}" if exponent >= -_FRACTION else f"2^{exponent}"
            return f", typically {size} of one" if exponent < 0 else ""
    return ""
