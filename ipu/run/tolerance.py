"""Where a run leaves the tolerance around another one: policy against policy, machine and torch.

Bits of such runs differ from the first operation on. What may differ is measured by more runs: the
reference with its parameters and all results moved by a unit in the last place of the other's
format, at random. They show what that precision does to the program, as the program amplifies it;
what goes beyond is of another kind: range, accumulation, a constant, another computation.

    tolerance = factor · max(unit roundoff, errors of the perturbed runs)

of the same operation in this step and the steps before it: in one run an error may be small by
chance. Errors are relative norms, estimated from sketches (`ipu.run.sketches`). Operations are
matched by step, layer, direction, name and shape. Of results of one name that follow each other
the nearest are matched, since a kernel tells its results in an order of its own. Where a tolerance
is as large as the result, nothing can be told there. A choice (the sign of what a ReLU is given, a
maximum) may fall differently in a few elements by a unit in the last place: it is told, and from
there on the tolerance is not less than what it has moved, in the perturbed runs too.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fpsim.records.formats import Format, find_format
from ipu.run.digests import DigestLine, check_hashes, noise_of, read_digests
from ipu.run.sketches import Sketch

__all__ = ["FACTOR", "Compliance", "compare_within"]

#: An estimate is off by up to a half, a perturbed run by chance: docs/pytorch.md, false alarms.
FACTOR = 8.0
#: In names of operations that choose by their operands.
_CHOICES = (
    "relu", "threshold", "max", "min", "clamp", "clip", "hardtanh", "hardswish", "hardsigmoid",
    "abs", "sign", "sgn", "median", "sort", "topk", "where", "floor", "ceil", "round", "select",
)
#: Sums of a sketch that a choice in few elements moves, at most; of so many elements at least.
_FEW, _MANY = 4, 64
#: Place, layer, direction, name, shapes; the number among equal ones.
_Key = tuple[str, str, str, str, str, int]


class _SketchedLine(NamedTuple):
    """A line of a file, and its sketch."""

    line: DigestLine
    sketch: Sketch


@dataclass(frozen=True)
class Compliance:
    """The first operation beyond the tolerance, or the nearest to it.

    matched, unmatched    operations of the reference with and without a partner.
    untold                those of the matched where the tolerance is as large as the result.
    first_untold          the first of these.
    first_choice          the first that chose differently in a few elements.
    error, tolerance      of `line`, relative to its norm.
    """

    line: DigestLine | None = None
    error: float = 0.0
    tolerance: float = 0.0
    matched: int = 0
    unmatched: int = 0
    untold: int = 0
    first_untold: DigestLine | None = None
    first_choice: DigestLine | None = None

    @property
    def is_within(self) -> bool:
        """No operation leaves the tolerance, and some could have."""
        return self.line is not None and self.error <= self.tolerance

    @property
    def can_tell(self) -> bool:
        """There is an operation whose tolerance is smaller than its result."""
        return self.line is not None

    def __str__(self) -> str:
        if self.line is None and not self.matched:
            return f"cannot tell: no operation of {self.unmatched} has a partner in all runs"
        if self.line is None:
            return (
                f"cannot tell: a perturbation alone moves the results of all {self.matched} "
                "operations by as much as they are"
            )
        place = f"operation {self.line.operation}, {self.line}"
        if not self.is_within:
            return f"{place}: the error {self.error:.2g} passes the tolerance {self.tolerance:.2g}"
        counts = f"{self.matched - self.untold} operations"
        if self.unmatched:
            counts += f" ({self.unmatched} more have no partner in the other runs)"
        text = (
            f"within the tolerance: {counts}; nearest to it {place}: error {self.error:.2g}, "
            f"tolerance {self.tolerance:.2g}"
        )
        if self.first_choice is not None:
            text += (
                f"; operation {self.first_choice.operation}, {self.first_choice}, chose "
                "differently in a few elements, and the tolerance is larger from there on"
            )
        if self.first_untold is not None:
            text += (
                f"; cannot tell of {self.untold} more, the first of them operation "
                f"{self.first_untold.operation}, {self.first_untold}: a perturbation alone moves "
                "them by as much as they are"
            )
        return text


def compare_within(
    reference: str | Path, other: str | Path, perturbed: Sequence[str | Path],
    factor: float = FACTOR,
) -> Compliance:
    """Compare a run with the reference by the tolerance that perturbed references give.

    Raises    ValueError for files without sketches or with digests of another hash, no perturbed
              run, one that is not perturbed, and one that is by smaller units than the other run's.
    """
    check_hashes(*map(Path, (reference, other, *perturbed)))
    unit = _noise_unit(perturbed)
    theirs = dict(_by_key(other))
    moved = [dict(_by_key(path)) for path in perturbed]
    _check_unit(Path(other), (x.line for results in theirs.values() for x in results), unit)
    comparison = _Comparison(factor, unit)
    for key, results in _by_key(reference):
        if key not in theirs or any(key not in run for run in moved):
            comparison.alone(len(results))
            continue
        runs = (_in_order_of(results, run[key]) for run in (theirs, *moved))
        for (number, (line, here)), there, *around in zip(enumerate(results), *runs, strict=True):
            if comparison.compare((*key, number), line, here, there, around):
                return comparison.compliance
    return comparison.compliance


class _Comparison:
    """What is known after so many operations."""

    def __init__(self, factor: float, unit: float) -> None:
        self.compliance = Compliance()
        self._factor, self._unit = factor, unit
        self._nearest, self._moved_by_choice = -1.0, 0.0
        #: Errors of the perturbed runs, by operation in all steps.
        self._floors: dict[tuple[object, ...], float] = {}

    def alone(self, results: int) -> None:
        """So many results have no partner."""
        self.compliance = replace(
            self.compliance, unmatched=self.compliance.unmatched + results)

    def compare(
        self, key: tuple[str, *tuple[object, ...]], line: DigestLine, here: Sketch,
        there: Sketch, around: Sequence[Sketch],
    ) -> bool:
        """Whether the next operation is beyond its tolerance."""
        told = self.compliance = replace(self.compliance, matched=self.compliance.matched + 1)
        scale = here.norm or 1.0
        error = here.distance(there) / scale
        in_all_steps = (key[0].partition("/")[2], *key[1:])
        floor = self._floors[in_all_steps] = max(
            self._floors.get(in_all_steps, self._unit),
            *(here.distance(x) / scale for x in around))
        for moved in around:
            if self._factor * self._unit < here.distance(moved) / scale and _has_chosen(
                line, here, moved
            ):
                self._moved_by_choice = max(self._moved_by_choice, here.distance(moved) / scale)
        tolerance = self._factor * max(floor, self._moved_by_choice)
        if tolerance >= 1:
            self.compliance = replace(
                told, untold=told.untold + 1, first_untold=told.first_untold or line)
        elif error > tolerance and _has_chosen(line, here, there):
            self._moved_by_choice = error
            self.compliance = replace(told, first_choice=told.first_choice or line)
        elif error / tolerance > self._nearest:
            self._nearest = error / tolerance
            self.compliance = replace(told, line=line, error=error, tolerance=tolerance)
        return self._nearest > 1


def _has_chosen(line: DigestLine, here: Sketch, there: Sketch) -> bool:
    """Whether an operation may have chosen differently in a few elements of many."""
    if not any(word in line.name.lower() for word in _CHOICES):
        return False
    if math.prod(map(int, line.shape.split("x"))) < _MANY or here.extremes != there.extremes:
        return False
    return 1 <= here.sums_apart(there, here.distance(there)) <= _FEW


def _noise_unit(perturbed: Sequence[str | Path]) -> float:
    """Unit roundoff of the format by which the runs were perturbed: of the finest."""
    if not perturbed:
        raise ValueError("there is no perturbed run; write one with --perturb FORMAT")
    units = []
    for path in perturbed:
        noise = noise_of(Path(path))
        if not noise:
            raise ValueError(
                f"{str(path)!r} is no perturbed run; write it with --perturb FORMAT, the format of "
                "the other run"
            )
        units.append(_unit(noise))
    return min(units)


def _check_unit(path: Path, lines: Iterable[DigestLine], unit: float) -> None:
    """Raises    ValueError for results in a coarser format than those that were perturbed by."""
    coarsest = max(
        {line.format for line in lines}, key=_unit, default="")
    if coarsest and _unit(coarsest) > unit:
        raise ValueError(
            f"{str(path)!r} has results in {coarsest}, and the runs of its tolerance are perturbed "
            f"by less; write them with --perturb {coarsest}"
        )


def _by_key(path: str | Path) -> Iterator[tuple[_Key, list[_SketchedLine]]]:
    """Results of one name and shape that follow each other, by what they are, without the format.

    How many there are is part of the key: where one run tells more of them, none matches.
    """
    numbers: Counter[tuple[str, ...]] = Counter()
    lines = read_digests(Path(path))
    for what, group in groupby(lines, lambda x: (x.place, x.layer, x.direction, x.name)):
        by_shape: dict[str, list[_SketchedLine]] = {}
        for line in group:
            if not line.sketch:
                raise ValueError(
                    f"{str(path)!r} has digests alone; write sketches too: --digest FILE --sketch"
                )
            result = _SketchedLine(line, Sketch.read(line.sketch))
            by_shape.setdefault(line.shape, []).append(result)
        for shape, results in by_shape.items():
            of_shape = (*what, f"{len(results)} {shape}")
            numbers[of_shape] += 1
            yield (*of_shape, numbers[of_shape]), results


def _in_order_of(here: Sequence[_SketchedLine], there: Sequence[_SketchedLine]) -> list[Sketch]:
    """Sketches of another run, each the nearest to that of this one's result."""
    left = [result.sketch for result in there]
    nearest = []
    for result in here:
        place = int(np.argmin([result.sketch.distance(x) for x in left]))
        nearest.append(left.pop(place))
    return nearest


def _unit(fmt: str) -> float:
    """Unit roundoff."""
    record = find_format(fmt)
    assert isinstance(record, Format), "operations compute in no format of scales"
    return record.eps / 2
