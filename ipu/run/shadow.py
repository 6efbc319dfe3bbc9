"""Shadow values: how far each number of a run is from binary64's, and where that began.

A front end carries, beside every tensor, its value in binary64, computed of the shadows of its
operands with the program's own random numbers. It tells this account of three results of each
operation: the machine's; binary64's of the machine's operands; the shadow. So

    error born       machine - binary64 of the same operands: the rounding of this operation.
    error inherited  binary64 of the machine's operands - shadow: what the operands brought.
    amplification    error inherited beside the largest error of an operand, both relative.

Errors are relative: the root of the sum of squares beside that of the shadow. Over several calls of
an operation they are the root of the mean square. Where one of the three is not finite an element
is left out of the sums and counted.

Whole numbers and truth values that follow from numbers (the place of a maximum, a mask, whether a
norm is clipped) have no shadow: where binary64 would have chosen otherwise that is counted, and
both go on with the machine's choice.

A tensor that is written in place over several steps *moves*: a parameter, an average of weights, a
statistic, a sum. Of its way in binary64 the share that arrives is what the machine's way has along
it: 0 for one that stands still, 1 for one that follows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fpsim.kernels.elementwise.distances import sum_squares
from fpsim.state.processor import usual_arithmetic, usual_arithmetic_in
from ipu.run.growth import GROWS, Growth, carried, growth_of

__all__ = [
    "OUTWEIGHS", "WRONG", "Motion", "Shadow", "check_shadow_steps", "motion", "shadow_lines",
    "squares_of",
]

#: Shares below this are not worth a word; a motion that arrives by so much is none.
_LEAST_SHARE, _FOLLOWS = 0.01, 0.95
#: The error of a result that is told as wrong, and of one whose line may be told.
WRONG, _BLAMED = 0.1, 0.01
#: Times that what operands bring is as large as what is born, at least, where it alone is to blame.
OUTWEIGHS = 10.0
#: Why a shadow is empty.
_EMPTY = "no number was computed on the machine while it was followed"
#: The least half of a unit in the last place of binary32, of a number that is 1.
_HALF_ULP = 2.0**-25

Numbers = NDArray[np.floating]
#: Layer, direction and operation.
Key = tuple[str, str, str]


def _dot(x: Numbers, y: Numbers) -> float:
    """The sum of the products; without a library's threads, which wait for each other here."""
    return float(np.einsum("i,i", x, y))


def _squares(machine: Numbers, local: Numbers, shadow: Numbers) -> list[float]:
    sums = np.empty(4)
    sum_squares(machine, local, shadow, sums)
    squares: list[float] = sums.tolist()
    return squares


def squares_of(machine: Numbers, local: Numbers, shadow: Numbers) -> tuple[list[float], int]:
    """Sums of squares over the elements where all three are finite, and how many are not.

    Of the shadow, of what is born, of what is inherited, and of both added.
    """
    flat = [np.ascontiguousarray(x).reshape(-1) for x in (machine, local, shadow)]
    squares = _squares(*flat)
    if math.isfinite(sum(squares)):
        return squares, 0
    finite = _finite(*flat)
    return _squares(*(x[finite] for x in flat)), int(np.count_nonzero(~finite))


def _finite(machine: Numbers, local: Numbers, shadow: Numbers) -> NDArray[np.bool_]:
    """Where what is born, what is inherited and the shadow are finite."""
    with np.errstate(all="ignore"):
        parts = machine - local, local - shadow, shadow
    finite: NDArray[np.bool_] = np.logical_and.reduce([np.isfinite(part) for part in parts])
    return finite


class Motion(NamedTuple):
    """How a tensor moved over steps beside its shadow.

    arrived    the part of the shadow's way that the machine went along it.
    error      the distance between both ways beside the length of the shadow's.
    in_wide    the part of the shadow's way, in squares, of numbers whose moves a sum in binary32
               holds: those of a step are no smaller than half a unit in their last place.
    length     of the shadow's way.
    """

    arrived: float
    error: float
    in_wide: float = 1.0
    length: float = 1.0


@usual_arithmetic
def motion(
    machine: tuple[Numbers, Numbers], shadow: tuple[Numbers, Numbers], steps: int = 1
) -> Motion | None:
    """The motion between two states, before and after so many steps; None of one without a way.

    >>> start = np.zeros(2)
    >>> motion((start, np.array([1.0, 0.0])), (start, np.array([2.0, 0.0])))
    Motion(arrived=0.5, error=0.5, in_wide=1.0, length=2.0)
    >>> motion((start + 1, start + 1), (start + 1, start + 1 + 2.0**-27)).in_wide
    0.0
    """
    with np.errstate(all="ignore"):
        way, full = machine[1] - machine[0], shadow[1] - shadow[0]
    finite = np.isfinite(way) & np.isfinite(full)
    way, full, size = way[finite], full[finite], np.abs(shadow[1][finite])
    length = _dot(full, full)
    if not length:
        return None
    lost, moves = way - full, np.abs(full) >= steps * _HALF_ULP * size
    return Motion(
        _dot(way, full) / length, math.sqrt(_dot(lost, lost) / length),
        _dot(full * moves, full) / length, math.sqrt(length))


def check_shadow_steps(steps: int) -> int:
    """The number of steps that a shadow follows.

    Raises    TypeError for one that is no whole number, ValueError for one below 1.
    """
    if isinstance(steps, bool) or not isinstance(steps, int):
        raise TypeError(f"steps={steps!r} is no number of steps; use a whole number, as 3")
    if steps < 1:
        raise ValueError(f"steps={steps} of a shadow; use 1 or more")
    return steps


@dataclass
class _OperationSums:
    """Sums of one operation of a layer and direction.

    first_line    of the first call; `passes`: backward passes that had begun before it.
    blamed        what is born in calls with results far from binary64's, in squares, by line.
    at_first      the most that is born and inherited in calls with wrong results, in squares, by
                  line: of calls before the next backward pass, as parameters that have parted bring
                  errors back to where they come from.
    least         the smallest error of their results, in squares.
    """

    first_line: str
    passes: int = 0
    calls: int = 0
    elements: int = 0
    left_out: int = 0
    born: float = 0.0
    inherited: float = 0.0
    total: float = 0.0
    operands: float = 0.0
    #: Of the calls whose operands have an error: squares of what is inherited.
    passed: float = 0.0
    #: Of the call with a wrong result that magnifies most: by how much, its error and line.
    peak: tuple[float, float, str] = (0.0, 0.0, "")
    #: The sum in which the error of that call's operands grew.
    grown: Growth | None = None
    blamed: dict[str, float] = field(default_factory=dict)
    at_first: dict[str, tuple[float, float]] = field(default_factory=dict)
    least: float = math.inf

    def note_wrong(self, line: str, born: float, inherited: float) -> None:
        """A result is wrong, in a call that no parameter has been updated before."""
        most = self.at_first.get(line, (0.0, 0.0))
        self.at_first[line] = max(most[0], born), max(most[1], inherited)

    @property
    def brought(self) -> list[str]:
        """Lines whose results are wrong at first by what their operands bring alone."""
        return [line for line, (born, inherited) in self.at_first.items()
                if inherited > OUTWEIGHS**2 * born]

    @property
    def line(self) -> str:
        """Where most error is born, of the lines whose calls are one row."""
        return max(self.blamed, key=self.blamed.__getitem__, default=self.first_line)

    def told(self, key: Key) -> dict[str, Any]:
        """Plain data."""
        layer, direction, operation = key
        rms = [math.sqrt(x / self.calls) for x in (self.born, self.inherited, self.total)]
        return {
            "layer": layer, "direction": direction, "operation": operation, "calls": self.calls,
            "elements": self.elements, "left_out": self.left_out, "born": rms[0],
            "inherited": rms[1], "error": rms[2], "line": self.line,
            "amplification": math.sqrt(self.passed / self.operands) if self.operands else None,
            "peak": dict(zip(("amplification", "error", "line"), self.peak, strict=True)),
            "grown": self.grown._asdict() if self.grown else {}, "brought": self.brought,
            "least": math.sqrt(self.least) if math.isfinite(self.least) else 0.0,
        }


@dataclass
class _Branch:
    """Choices that binary64 would have made otherwise."""

    step: int
    line: str
    differing: int = 0
    elements: int = 0


@usual_arithmetic_in("loss", "branched", "rejoined", "moved")
@dataclass
class Shadow:
    """The account of the shadows of a run.

    steps    that are followed, from the first on.
    line     FILE:LINE of the user's program that runs now.

    >>> shadow = Shadow(1)
    >>> third = np.array([1 / 3])
    >>> shadow.compared(("net", "forward", "div"), np.array([0.333]), third, third, 0.0) < 0.0011
    True
    >>> shadow.summary()["layers"]
    [{'layer': 'net', 'direction': 'forward', 'share': 1.0}]
    """

    steps: int
    line: Callable[[], str] = str
    _rows: dict[Key, _OperationSums] = field(default_factory=dict)
    _branches: dict[Key, _Branch] = field(default_factory=dict)
    _rejoined: dict[str, dict[str, Any]] = field(default_factory=dict)
    _motions: list[dict[str, Any]] = field(default_factory=list)
    _losses: list[dict[str, float]] = field(default_factory=list)

    def compared(
        self, key: Key, machine: Numbers, local: Numbers, shadow: Numbers, operands: float
    ) -> float:
        """An operation is done; its relative error.

        machine     its result, in binary32 or binary64; `local`: binary64's of the same operands;
                    `shadow`: the shadow.
        operands    the largest relative error of an operand.
        """
        squares, left_out = squares_of(machine, local, shadow)
        return self.added(key, squares, shadow.size, operands, left_out)

    def added(
        self, key: Key, squares: Sequence[float], elements: int, operands: float, left_out: int = 0
    ) -> float:
        """An operation is done, with these sums of squares; its relative error.

        squares     of the shadow, of what is born, of what is inherited, and of both added.
        """
        row = self._rows.get(key)
        if row is None:
            row = self._rows[key] = _OperationSums(self.line(), len(self._losses))
        row.calls += 1
        row.elements += elements
        row.left_out += left_out
        size, born, inherited, total = squares
        if not (size and math.isfinite(sum(squares))):
            return operands
        row.born += born / size
        row.inherited += inherited / size
        row.total += total / size
        is_first = len(self._losses) == row.passes
        if is_first:
            row.least = min(row.least, total / size)
        error = math.sqrt(total / size)
        line = ""
        if error > _BLAMED:  # a line takes time, and none is told of results that are right
            line = self.line()
            row.blamed[line] = row.blamed.get(line, 0.0) + born / size
            if is_first and error > WRONG:
                row.note_wrong(line, born / size, inherited / size)
        if operands:
            row.operands += operands**2
            row.passed += inherited / size
            times = math.sqrt(inherited / size) / operands
            if error > WRONG and times > row.peak[0]:
                row.peak, row.grown = (times, error, line), growth_of(operands)
            if inherited > born and (times > GROWS or type(operands) is not float):
                return carried(error, operands, times, key, self.line)
        return error

    def branched(self, key: Key, step: int, differing: int, elements: int) -> None:
        """A choice was made for so many elements, and would be another one for some of them."""
        if differing and key not in self._branches:
            self._branches[key] = _Branch(step, self.line())
        if key in self._branches:
            self._branches[key].differing += differing
            self._branches[key].elements += elements

    def rejoined(self, operation: str, why: str) -> None:
        """The shadow of a result is taken from the machine: the operation is not followed."""
        row = self._rejoined.setdefault(
            operation, {"operation": operation, "why": why, "times": 0, "line": self.line()})
        row["times"] += 1

    def moved(self, name: str, shape: tuple[int, ...], how: Motion, **about: Any) -> None:
        """A tensor moved over the steps that are followed.

        name    "" of one that belongs to no layer.
        about   line, operation and number of steps that wrote it, whether it is_state of an
                optimiser, whether it is_parameter: an optimiser's step moves it, and, where a front
                end knows it, whether it is_sum: of what it was before, whether it is_copy: of
                parameters, as an average of them is, and its owner: the module whose it is.
        """
        self._motions.append({"name": name, "shape": list(shape), **how._asdict(), **about})

    def loss(self, step: int, machine: float, shadow: float) -> None:
        """A backward pass begins here."""
        self._losses.append({"step": step, "machine": machine, "shadow": shadow})

    def summary(self) -> dict[str, Any]:
        """Plain data.

        operations  by layer, direction and operation: the most error born first; `line` is the one
                    whose calls bear the most of it, of results that are far off; `peak` is the
                    call that magnifies most of those with a wrong result: once the parameters have
                    parted, the mean over the steps no longer shows where they began to, and
                    `grown` the sum before it in which its operands' error grew most; `brought` are
                    lines whose results are wrong from the first by what operands bring alone,
                    `least` is the smallest error of a result before any update.
        layers      shares of all error born, in squares, by layer and direction.
        branches    choices that differ; `rejoined`: operations whose shadow is the machine's.
        motions     of tensors that several steps wrote, the one that arrives least first.
        losses      where backward passes began.
        empty       why there is nothing; "": there is something.
        """
        operations = [row.told(key) for key, row in self._rows.items()]
        operations.sort(key=lambda row: -row["born"] ** 2 * row["calls"])
        branches = [
            dict(zip(("layer", "direction", "operation"), key, strict=True)) | vars(branch)
            for key, branch in self._branches.items() if branch.differing
        ]
        return {
            "steps": self.steps, "operations": operations, "layers": list(_shares(operations)),
            "branches": branches, "rejoined": list(self._rejoined.values()),
            "motions": sorted(self._motions, key=lambda row: row["arrived"]),
            "losses": self._losses,
            "empty": "" if operations or self._rejoined else _EMPTY,
        }


def _shares(operations: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Shares of the error born by layer and direction, the largest first."""
    sums: dict[tuple[str, str], float] = {}
    for row in operations:
        place = row["layer"], row["direction"]
        sums[place] = sums.get(place, 0.0) + row["born"] ** 2 * row["calls"]
    whole = sum(sums.values())
    for (layer, direction), square in sorted(sums.items(), key=lambda item: -item[1]):
        if whole:
            yield {"layer": layer, "direction": direction, "share": square / whole}


def shadow_lines(shadow: Mapping[str, Any], rows: int = 8) -> Iterator[str]:
    """What the shadow shows, in lines for a terminal."""
    if not shadow:
        return
    if shadow.get("empty"):
        yield f"shadow in binary64 of {shadow['steps']} steps is empty: {shadow['empty']}"
        return
    yield (
        f"shadow in binary64 of {shadow['steps']} steps: error born by layer: " + (", ".join(
            f"{row['layer'] or '-'} ({row['direction']}) {row['share']:.0%}"
            for row in shadow["layers"][:rows] if row["share"] >= _LEAST_SHARE) or "none")
    )
    for row in shadow["operations"][:rows]:
        factor = "" if row["amplification"] is None else f", × {row['amplification']:.2g}"
        yield (
            f"  {row['operation']} of {row['layer'] or '-'} ({row['direction']}): born "
            f"{row['born']:.2g}, inherited {row['inherited']:.2g}{factor}"
        )
    for row in shadow["branches"][:rows]:
        yield (
            f"  binary64 chooses otherwise in {row['operation']} of {row['layer'] or '-'} "
            f"({row['direction']}, step {row['step']}, {row['line']}): {row['differing']:,} of "
            f"{row['elements']:,}"
        )
    for row in [row for row in shadow["motions"] if row["arrived"] < _FOLLOWS][:rows]:
        yield (
            f"  {row['name'] or 'a tensor'} moves by {row['arrived']:.0%} of its way in binary64 "
            f"(error {row['error']:.0%}, {row['line']})"
        )
    for row in shadow["rejoined"]:
        yield f"  not followed: {row['operation']} ({row['why']}), {row['times']} times"
