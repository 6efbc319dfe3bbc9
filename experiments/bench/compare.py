"""Two files of records side by side: how figures changed, and which changes are more than noise.

Rows are the same measurement if everything but their figures agrees. What is compared is the ratio
to the reference of the same run, so that two machines, or two hours of one, may be compared; where
there is none, the figure itself. The bounds are those of the rounds: the least and the largest
change that any round of one file and any of the other allow. The smallest and the largest of n
rounds hold the median with a probability of 1 - 2^(1 - n), so a verdict needs a few.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["FigureChange", "changes", "read"]

#: What tells rows apart.
_NAMES = (
    "topic", "network", "preset", "format", "rounding", "bits", "flags", "data", "n", "threads",
    "peer", "kind",
)
#: Rounds that a verdict needs: their ends hold the median in 94 of 100 cases.
_ENOUGH = 5
#: Figures of which more is better.
_RATES = ("gmac_per_s", "images_per_s")


@dataclass(frozen=True)
class FigureChange:
    """A row of both files: the new figure over the old one, with bounds.

    rounds  fewest of a figure.
    rate    more is better.
    """

    name: str
    old: float
    new: float
    least: float
    most: float
    rounds: int
    rate: bool

    @property
    def verdict(self) -> str:
        """Faster or slower where every pair of rounds says so."""
        if self.rounds < _ENOUGH:
            return "too few rounds"
        if self.least <= 1 <= self.most:
            return "within noise"
        return "faster" if (self.least > 1) == self.rate else "slower"

    def __str__(self) -> str:
        return (
            f"{self.name:58} {self.old:9.3f} {self.new:9.3f}  x {self.new / self.old:6.3f} "
            f"[{self.least:.3f}, {self.most:.3f}]  {self.verdict}"
        )


def read(file: Path) -> list[dict[str, Any]]:
    """The records of `fpsim bench TOPIC --json FILE`."""
    try:
        records = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise ValueError(
            f"{file} is no file of records ({error}); write one: fpsim bench TOPIC --json {file}"
        ) from None
    if not isinstance(records, list) or not all(_is_record(r) for r in records):
        raise ValueError(
            f"{file} holds no records with the rounds' range; measure again: "
            f"fpsim bench TOPIC --json {file}"
        )
    return records


def _is_record(record: object) -> bool:
    return isinstance(record, dict) and {"topic", "rounds", "range", "hardware"} <= record.keys()


def changes(old: list[dict[str, Any]], new: list[dict[str, Any]]) -> Iterator[FigureChange]:
    """Rows that both files have, in the order of the new one."""
    before = {_name(record): record for record in old}
    for record in new:
        name = _name(record)
        if name in before:
            a, b = before[name], record
            (a_least, a_most), (b_least, b_most) = a["range"], b["range"]
            yield FigureChange(
                name, _figure(a), _figure(b), b_least / a_most, b_most / a_least,
                min(a["rounds"], b["rounds"]), any(b.get(rate) is not None for rate in _RATES),
            )


def _name(record: dict[str, Any]) -> str:
    fields = {**record, "flags": "flags" if record.get("flags") else None}
    return " ".join(str(fields[k]) for k in _NAMES if fields.get(k) is not None)


def _figure(record: dict[str, Any]) -> float:
    """The ratio to the reference, else the first figure that there is."""
    names = ("ratio", *_RATES, "ns_per_element")
    return float(next(record[name] for name in names if record.get(name) is not None))
