"""Digests of a run: one line for each operation, so that two runs show where they part first.

A line has columns that tabs separate: the number of the operation, `step/micro-batch/replica`,
layer, direction, operation, format, shape, digest, and the line of the program. The digest is XXH3
(64 bits) of the bits of all values, with that of format and shape as its seed; two results that
differ have equal ones in one of 2^64 cases. After each step stands `# step N` with the digest of
those of its lines, so that steps can be compared before operations. Shell tools read it: `diff`,
`grep`.

>>> import tempfile, numpy as np
>>> from fpsim import Context
>>> from ipu.run.places import Place
>>> place, ctx = Place(0, 0, 0, "net", "forward"), Context("binary16")
>>> def events(*values):
...     for value in values:
...         yield "add", place, ctx.array([value, 1.0])
>>> folder = tempfile.mkdtemp()
>>> for name, values in {"a": (1.0, 2.0), "b": (1.0, 2.0009765625 * 1.0005)}.items():
...     with DigestFile(f"{folder}/{name}") as file:
...         for event in events(*values):
...             file.add(*event)
>>> print(first_difference(f"{folder}/a", f"{folder}/b").operation)
1
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import count, zip_longest
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from fpsim.array import Array
from fpsim.kernels.elementwise.hashing import xxh3
from fpsim.records.formats import Format, ScaleFormat, find_format
from fpsim.state.processor import usual_arithmetic
from ipu.run.places import Place
from ipu.run.sketches import Sketch

__all__ = ["DigestFile", "Difference", "DigestLine", "ValuesDifference", "check_hashes",
           "first_difference", "noise_of", "read_digests"]

_HEAD = "# fpsim digest 3: operation, place, layer, direction, name, format, shape, XXH3, line"
#: With sketches at the end of each line.
_SKETCHED = f"{_HEAD}, sketch"
#: The first line of any layout, with its number and hash.
_ANY_HEAD = re.compile(r"# fpsim digest (\d+): .*, shape, (\w+), line.*")
#: Operations whose lines wait to be written, at most.
_MOST_ROWS = 512
#: Place, layer, direction, name, format, shape, digest, line and sketch of an operation.
_Row = tuple[Place, str, str, str, str, str, int, str, str]
#: Name, layer, direction, place, result and operands of an operation, as `OperationEvent`.
_Event = tuple[str, str, str, Place, Array, Sequence[Array]]
#: Of a run whose results are moved by units of this format.
_NOISE = "# results moved by units of "


class DigestLine(NamedTuple):
    """One operation of a file."""

    operation: int
    place: str
    layer: str
    direction: str
    name: str
    format: str
    shape: str
    digest: str
    line: str
    sketch: str = ""

    @property
    def what(self) -> tuple[str, ...]:
        """What was computed and where, without its bits and the program's line."""
        return self[1:7]

    def __str__(self) -> str:
        step = self.place.partition("/")[0]
        line = f", {self.line}" if self.line else ""
        return f"{self.name} in {self.layer} ({self.direction}), step {step}{line}"


class DigestFile:
    """Writes the digests of a run.

    line    gives FILE:LINE of the program at each operation.
    keep    the number of an operation whose values and operands are stored too, beside the file.

    sketch  each line ends with a sketch of the values (`ipu.run.sketches`), for tolerances.
    noise   the format by whose units the run's results are moved; "" for none.

    Raises    OSError for a path that cannot be written.
    """

    def __init__(
        self, path: str | Path, line: Callable[[], str] = str, keep: int | None = None,
        *, sketch: bool = False, noise: str = "",
    ) -> None:
        self.path = Path(path)
        self._line, self._keep, self._sketch = line, keep, sketch
        self._file = self.path.open("w", encoding="utf-8")
        self._file.write(f"{_SKETCHED if sketch else _HEAD}\n")
        if noise:
            self._file.write(f"{_NOISE}{noise}\n")
        self._count, self._step = 0, -1
        #: Operations that are not written yet, and digests of the step.
        self._rows: list[_Row] = []
        self._of_step: list[int] = []

    def add(
        self, name: str, place: Place, array: Array, operands: Sequence[Array] = ()
    ) -> None:
        """The next operation has this result, of these operands."""
        self.note((name, place.layer, place.direction, place, array, operands))

    def note(self, event: _Event) -> None:
        """The next operation counts to a layer and direction that may not be those of its place."""
        name, layer, direction, place, array, operands = event
        if place[0] != self._step:  # each operation asks: no more calls, and text later
            self._end_step()
            self._step = place[0]
        fmt, carrier, rows = array.format, array.carrier, self._rows
        shape, start = _head(fmt.name, carrier.shape)
        line, sketch = self._line(), f"\t{Sketch.of(carrier, fmt.max)}" if self._sketch else ""
        rows.append((
            place, layer, direction, name, fmt.name, shape, xxh3(carrier, start), line, sketch))
        if self._count == self._keep:
            for number, values in enumerate((array, *operands)):
                np.save(values_path(self.path, self._count, number), values.carrier)
        self._count += 1
        if len(rows) == _MOST_ROWS:
            self._write_rows()

    def _write_rows(self) -> None:
        """Write the operations that wait: behind one another their text takes half the time."""
        rows = self._rows
        self._file.write("".join([
            f"{number}\t{place[0]}/{place[1]}/{place[2]}\t{layer or '-'}\t{direction}\t{name}\t"
            f"{fmt}\t{shape}\t{digest:016x}\t{line}{sketch}\n"
            for number, (place, layer, direction, name, fmt, shape, digest, line, sketch)
            in enumerate(rows, self._count - len(rows))
        ]))
        self._of_step += [row[6] for row in rows]
        rows.clear()

    def _end_step(self) -> None:
        if self._step >= 0:
            self._write_rows()
            total = xxh3(np.array(self._of_step, np.uint64))
            self._file.write(f"# step {self._step}\t{total:016x}\n")
            self._of_step.clear()

    def close(self) -> None:
        """The run is over."""
        if not self._file.closed:
            self._end_step()
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


@cache
def _head(fmt: str, shape: tuple[int, ...]) -> tuple[str, np.uint64]:
    """A shape as it is written, and the digest of it and the format."""
    digest = xxh3(np.frombuffer(f"{fmt} {shape}".encode(), np.uint8))
    return "x".join(map(str, shape)) or "1", np.uint64(digest)


def values_path(path: Path, operation: int, number: int = 0) -> Path:
    """Where the values of an operation lie; from number 1 on those of its operands."""
    operand = f".operand{number}" if number else ""
    return path.with_name(f"{path.name}.{operation}{operand}.npy")


class ValuesDifference(NamedTuple):
    """How far the results of the operation are apart.

    ulps        the largest difference, in units of the last place of the operation's format.
    operands    in how many elements each operand differs, of how many.
    """

    elements: int
    of: int
    first: tuple[int, ...]
    values: tuple[float, float]
    ulps: float
    operands: tuple[tuple[int, int], ...] = ()

    @property
    def of_operands(self) -> str:
        """Whether the operation parts, or what it was given."""
        if not self.operands:
            return ""
        if not any(elements for elements, _ in self.operands):
            return f"; its {len(self.operands)} operands have equal bits"
        differ = " and ".join(
            f"operand {number} in {elements} of {of}"
            for number, (elements, of) in enumerate(self.operands, 1) if elements
        )
        return f"; its operands differ too, which no operation before gave: {differ}"


@dataclass(frozen=True)
class Difference:
    """The first operation at which two runs part.

    one, other    their lines; None where a run has ended.
    values        None where the runs did not keep them.
    """

    operation: int
    one: DigestLine | None
    other: DigestLine | None
    values: ValuesDifference | None = None

    def __str__(self) -> str:
        if self.one is None or self.other is None:
            ended, goes_on = ("the first", self.other) if self.one is None else (
                "the second", self.one)
            return f"operation {self.operation}: {ended} run has ended, the other has {goes_on}"
        if self.one.what != self.other.what:
            return (
                f"operation {self.operation}: the runs compute different things: {self.one} "
                f"[{self.one.format} {self.one.shape}], and {self.other} [{self.other.format} "
                f"{self.other.shape}]"
            )
        text = f"operation {self.operation}: {self.one}: the bits of its results differ"
        if self.values is None:
            return f"{text}; for the values run both again with --keep {self.operation}"
        at, (here, there) = self.values.first, self.values.values
        return (
            f"{text} in {self.values.elements} of {self.values.of} elements, by up to "
            f"{self.values.ulps:.4g} ulps of {self.one.format}; the first at {list(at)}: "
            f"{here!r} and {there!r}{self.values.of_operands}"
        )


def first_difference(
    one: str | Path, other: str | Path, *, direction: str = ""
) -> Difference | None:
    """Where two runs part first; None for equal runs.

    direction    of the operations that are compared; "" for all. Two workers of a training have
                 data of their own, but one "optimizer".

    Lines of the program are not compared: it may have been edited.

    Raises    ValueError for a file that holds no digests, or those of another hash.
    """
    one, other = Path(one), Path(other)
    check_hashes(one, other)
    lines = (
        (line for line in read_digests(path) if direction in ("", line.direction))
        for path in (one, other)
    )
    for here, there in zip_longest(*lines):
        if here is None or there is None:
            return Difference((here or there).operation, here, there)
        if here.what != there.what:
            return Difference(here.operation, here, there)
        if here.digest != there.digest:
            return Difference(here.operation, here, there, _values(
                one, other, here.operation, here.format))
    return None


def check_hashes(*paths: Path) -> None:
    """See that digests of runs can be compared.

    Raises    ValueError for a file that holds none, or those of another layout or hash.
    """
    heads = {path: _head_of(path) for path in paths}
    if not {*heads.values()} <= {_HEAD, _SKETCHED}:
        hashes = " and ".join(f"{str(path)!r} has {_hash_in(head)}" for path, head in heads.items())
        raise ValueError(
            f"{hashes}, and this version compares {_hash_in(_HEAD)}; write the others again"
        )


def _head_of(path: Path) -> str:
    with path.open(encoding="utf-8") as file:
        head = file.readline().rstrip("\n")
    if _ANY_HEAD.fullmatch(head) is None:
        raise ValueError(
            f"{str(path)!r} holds no digests of a run; write it with: fpsim torch --digest FILE"
        )
    return head


def _hash_in(head: str) -> str:
    match = _ANY_HEAD.fullmatch(head)
    assert match is not None
    return f"digests by {match[2]} (layout {match[1]})"


def read_digests(path: Path) -> Iterator[DigestLine]:
    """The lines of a file.

    Raises    ValueError for a file that holds no digests, or those of another hash, or ends in a
              line.
    """
    check_hashes(path)
    with path.open(encoding="utf-8") as file:
        head = file.readline()
        for text in file:
            if not text.startswith("#"):
                number, *cells = text.rstrip("\n").split("\t")
                if len(cells) != head.count(","):
                    raise ValueError(f"{str(path)!r} ends in the middle of a line: {text[:60]!r}")
                yield DigestLine(int(number), *cells)


def noise_of(path: Path) -> str:
    """The format by whose units the results of a run were moved; "" for none."""
    with path.open(encoding="utf-8") as file:
        file.readline()
        line = file.readline()
    return line.removeprefix(_NOISE).rstrip("\n") if line.startswith(_NOISE) else ""


def _values(one: Path, other: Path, operation: int, fmt: str) -> ValuesDifference | None:
    """What the runs kept of the operation."""
    paths = [values_path(path, operation) for path in (one, other)]
    if not all(path.exists() for path in paths):
        return None
    here, there = (np.load(path) for path in paths)
    apart = _apart(here, there)
    place = tuple(int(i) for i in np.unravel_index(int(apart.argmax()), here.shape))
    return ValuesDifference(
        int(apart.sum()), apart.size, place, (float(here[place]), float(there[place])),
        _ulps(here, there, find_format(fmt)), tuple(_operands(one, other, operation)),
    )


def _apart(here: NDArray[Any], there: NDArray[Any]) -> NDArray[np.bool_]:
    """By bits, as a digest: zeros of both signs differ, and a NaN is equal to itself."""
    kind = f"u{here.itemsize}"
    return np.asarray(np.frombuffer(here.tobytes(), kind) != np.frombuffer(there.tobytes(), kind))


def _operands(one: Path, other: Path, operation: int) -> Iterator[tuple[int, int]]:
    """Elements of each operand that differ, and all of them."""
    for number in count(1):
        paths = [values_path(path, operation, number) for path in (one, other)]
        if not all(path.exists() for path in paths):
            return
        here, there = (np.load(path) for path in paths)
        if here.shape != there.shape or here.dtype != there.dtype:
            yield here.size, here.size
        else:
            yield int(_apart(here, there).sum()), here.size


@usual_arithmetic
def _ulps(here: NDArray[Any], there: NDArray[Any], fmt: Format | ScaleFormat) -> float:
    """The largest distance, in units of the last place of the larger magnitude."""
    assert isinstance(fmt, Format), "operations compute in no format of scales"
    a, b = (np.asarray(x, np.float64) for x in (here, there))
    if not (np.isfinite(a) & np.isfinite(b)).all():
        return math.inf
    exponents = np.maximum(np.frexp(np.maximum(abs(a), abs(b)))[1] - 1, fmt.emin)
    return float(np.max(abs(a - b) / np.ldexp(1.0, exponents - fmt.precision + 1)))
