"""Where a run leaves the tolerance around another one: policy against policy, machine and torch.

Bits of such runs differ from the first operation on. What may differ is measured by more runs: the
reference with its parameters and all results moved by a unit in the last place of the other's
format, at random. They show what that precision does to the program, as the program amplifies it;
what goes beyond is of another kind: range, accumulation, a constant, another computation.

    tolerance = factor · max(unit roundoff, errors of the perturbed runs)

of the same operation in this step and the steps before it: in one run an error may be small by
chance. Errors are relative norms, estimated from sketches (`ipu.run.sketches`). Operations are
matched by step, layer, direction, name and shape. Results of one name that follow each other are
matched by their norms, since a kernel tells its results in an order of its own. Where a tolerance
is as large as the result, nothing can be told there. A choice (the sign of what a ReLU is given, a
maximum) may fall differently in a few elements by a unit in the last place: it is told, and from
there on the tolerance is not less than what it has moved.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

from fpsim.records.formats import Format, find_format
from ipu.run.digests import DigestLine, noise_of, read_digests
from ipu.run.sketches import Sketch

__all__ = ["FACTOR", "Compliance", "compare_within"]

#: An estimate is off by up to a half, and a perturbed run by chance; see docs/semantics.md.
FACTOR = 8.0
#: In names of operations that choose by their operands.
_CHOICES = (
    "relu", "threshold", "max", "min", "clamp", "clip", "hardtanh", "hardswish", "hardsigmoid",
    "abs", "sign", "sgn", "median", "sort", "topk", "where", "floor", "ceil", "round", "select",
)
#: Sums of a sketch that a choice in few elements moves, at most.
_FEW = 4
#: Step and micro-batch, layer, direction, name, shape; the number among equal ones, and the place
#: by norm.
_Key = tuple[str, str, str, str, str, int, int]


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

    Raises    ValueError for files without sketches, no perturbed run, one that is not perturbed,
              and one that is by smaller units than the other run's.
    """
    unit = _noise_unit(perturbed)
    theirs = dict(_by_key(other))
    moved = [dict(_by_key(path)) for path in perturbed]
    _check_unit(Path(other), theirs.values(), unit)
    compliance, nearest, moved_by_choice = Compliance(), -1.0, 0.0
    floors: dict[tuple[object, ...], float] = {}
    for key, line in _by_key(reference):
        if key not in theirs or any(key not in run for run in moved):
            compliance = replace(compliance, unmatched=compliance.unmatched + 1)
            continue
        compliance = replace(compliance, matched=compliance.matched + 1)
        here, there, *around = (
            Sketch.read(x.sketch) for x in (line, theirs[key], *(run[key] for run in moved)))
        scale = here.norm or 1.0
        error = here.distance(there) / scale
        in_all_steps = (key[0].partition("/")[2], *key[1:])
        floors[in_all_steps] = max(
            floors.get(in_all_steps, unit), *(here.distance(x) / scale for x in around))
        tolerance = factor * max(floors[in_all_steps], moved_by_choice)
        if tolerance >= 1:
            compliance = replace(
                compliance, untold=compliance.untold + 1,
                first_untold=compliance.first_untold or line)
        elif error > tolerance and _has_chosen(line, here, there, tolerance * scale):
            moved_by_choice = error
            compliance = replace(compliance, first_choice=compliance.first_choice or line)
        elif error / tolerance > nearest:
            nearest = error / tolerance
            compliance = replace(compliance, line=line, error=error, tolerance=tolerance)
            if nearest > 1:
                break
    return compliance


def _has_chosen(line: DigestLine, here: Sketch, there: Sketch, distance: float) -> bool:
    """Whether an operation may have chosen differently in a few elements of many."""
    if not any(word in line.name.lower() for word in _CHOICES):
        return False
    return here.extremes == there.extremes and here.sums_apart(there, distance) <= _FEW


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


def _by_key(path: str | Path) -> Iterator[tuple[_Key, DigestLine]]:
    """Lines by what they are, without the format."""
    numbers: dict[tuple[str, ...], int] = {}
    lines = read_digests(Path(path))
    for what, group in groupby(lines, lambda x: (x.place, x.layer, x.direction, x.name)):
        by_shape: dict[str, list[DigestLine]] = {}
        for line in group:
            if not line.sketch:
                raise ValueError(
                    f"{str(path)!r} has digests alone; write sketches too: --digest FILE --sketch"
                )
            by_shape.setdefault(line.shape, []).append(line)
        yield from sorted(
            _numbered(what, by_shape, numbers), key=lambda entry: entry[1].operation)


def _numbered(
    what: tuple[str, str, str, str], by_shape: dict[str, list[DigestLine]],
    numbers: dict[tuple[str, ...], int],
) -> Iterator[tuple[_Key, DigestLine]]:
    """Results of one name that follow each other, each shape in the order of norms."""
    for shape, lines in by_shape.items():
        # How many there are is part of the key: where one run tells more of them, none matches.
        of_shape = (*what, f"{len(lines)} {shape}")
        number = numbers[of_shape] = numbers.get(of_shape, 0) + 1
        for place, line in enumerate(sorted(lines, key=lambda x: Sketch.read(x.sketch).norm)):
            yield (*what, of_shape[-1], number, place), line


def _unit(fmt: str) -> float:
    """Unit roundoff."""
    record = find_format(fmt)
    assert isinstance(record, Format), "operations compute in no format of scales"
    return record.eps / 2
