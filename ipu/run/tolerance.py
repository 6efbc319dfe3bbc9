"""Where a run leaves the tolerance around another one: policy against policy.

Bits of runs in two formats differ from the first operation on. What may differ is derived from a
third run: the reference with its parameters moved by a unit in the last place. It shows how the
program amplifies an error; a coarser format begins with an error so many times as large:

    tolerance = factor · max(u, perturbed run's error · u / u of the reference)

with u the largest unit roundoff in the other run so far: errors are inherited. Errors are relative
norms, estimated from sketches (`ipu.run.sketches`). Operations are matched by step, layer,
direction, name, shape and their number among equal ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fpsim.records.formats import Format, find_format
from ipu.run.digests import DigestLine, read_digests
from ipu.run.sketches import Sketch

__all__ = ["FACTOR", "Compliance", "compare_within"]

#: An estimate is off by up to a half, and errors of equal size do not add up equally.
FACTOR = 8.0


@dataclass(frozen=True)
class Compliance:
    """The first operation beyond the tolerance, or the nearest to it.

    matched, unmatched    operations of the reference with and without a partner.
    error, tolerance      of `line`, relative to its norm.
    """

    line: DigestLine | None
    error: float
    tolerance: float
    matched: int
    unmatched: int

    @property
    def is_within(self) -> bool:
        """No operation leaves the tolerance."""
        return self.line is None or self.error <= self.tolerance

    def __str__(self) -> str:
        counts = f"{self.matched} operations"
        if self.unmatched:
            counts += f" ({self.unmatched} more have no partner in the other run)"
        if self.line is None:
            return f"nothing to compare: {counts}"
        place = f"operation {self.line.operation}, {self.line}"
        if self.is_within:
            return (
                f"within the tolerance: {counts}; nearest to it {place}: error {self.error:.2g}, "
                f"tolerance {self.tolerance:.2g}"
            )
        return f"{place}: the error {self.error:.2g} passes the tolerance {self.tolerance:.2g}"


def compare_within(
    reference: str | Path, other: str | Path, perturbed: str | Path, factor: float = FACTOR
) -> Compliance:
    """Compare a run with the reference by the tolerance that the perturbed reference gives.

    Raises    ValueError for files without sketches.
    """
    theirs, moved = (dict(_by_place(path)) for path in (other, perturbed))
    matched = unmatched = 0
    nearest, largest = None, -1.0
    error = tolerance = unit = 0.0
    for key, line in _by_place(reference):
        if key not in theirs or key not in moved:
            unmatched += 1
            continue
        matched += 1
        here, there, nudged = (Sketch.read(x.sketch) for x in (line, theirs[key], moved[key]))
        scale = here.norm or 1.0
        off, floor = here.distance(there) / scale, here.distance(nudged) / scale
        unit = max(unit, _unit(theirs[key].format))
        allowed = factor * max(unit, floor * max(unit / _unit(line.format), 1.0))
        if off > allowed:
            return Compliance(line, off, allowed, matched, unmatched)
        if off / allowed > largest:
            nearest, largest, error, tolerance = line, off / allowed, off, allowed
    return Compliance(nearest, error, tolerance, matched, unmatched)


def _by_place(path: str | Path) -> Iterator[tuple[tuple[object, ...], DigestLine]]:
    """Lines by what they are, without the format."""
    counts: Counter[tuple[str, ...]] = Counter()
    for line in read_digests(Path(path)):
        if not line.sketch:
            raise ValueError(
                f"{str(path)!r} has digests alone; write sketches too: --digest FILE --sketch"
            )
        what = (line.place, line.layer, line.direction, line.name, line.shape)
        counts[what] += 1
        yield (*what, counts[what]), line


def _unit(fmt: str) -> float:
    """Unit roundoff."""
    record = find_format(fmt)
    assert isinstance(record, Format), "operations compute in no format of scales"
    return record.eps / 2
