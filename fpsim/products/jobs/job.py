"""A matrix product on its way through the engines.

Engines are functions run(job) -> bool, tried in order; the first that can run the job writes values
and flags and returns True. Which one runs changes the time and never a bit.

Source    docs/semantics.md §2 (numbers of outputs).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from math import frexp
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from fpsim.kernels.by_unit.reach import extents
from fpsim.products.jobs.rows import Rows
from fpsim.products.jobs.stack import Stack
from fpsim.products.jobs.windows import Windows
from fpsim.records.types import Carrier, ElementFlags
from fpsim.state.draws import NO_PLACES, Places

__all__ = ["Engine", "Job", "Reach", "around_specials", "matrices", "run", "to_read"]

#: Share of rows and columns with infinities or NaN up to which the rest is worth a run of its own.
_MOST_SPECIAL = 0.5

_NO_CODES = np.zeros(0, np.uint32)

Values = TypeVar("Values", bound=NDArray[Any])


class Reach(NamedTuple):
    """Magnitudes of the operands of a product and of the partials it starts from.

    least_a …   the smallest that is not zero; infinity where all are zero.
    most_a …    the largest; infinity or NaN where one of them is.
    """

    least_a: float
    most_a: float
    least_b: float
    most_b: float
    least_start: float
    most_start: float

    def exponents(self, emin_a: int, emin_b: int, scale: int) -> tuple[int, int, int, int]:
        """Of the smallest and the largest product times 2**scale, and of the largest a and b.

        None of a number is below its emin; they are 0 and -1 where all numbers are zero.

        >>> Reach(3.0, 3.0, 0.5, 1.0, math.inf, 0.0).exponents(-14, -14, 0)
        (0, 1, 1, 0)
        """
        least_a, most_a, least_b, most_b, *_ = self
        low_a, top_a, low_b, top_b = 0, -1, 0, -1
        if most_a:
            low_a, top_a = max(frexp(least_a)[1] - 1, emin_a), max(frexp(most_a)[1] - 1, emin_a)
        if most_b:
            low_b, top_b = max(frexp(least_b)[1] - 1, emin_b), max(frexp(most_b)[1] - 1, emin_b)
        return low_a + low_b + scale, top_a + top_b + scale, top_a, top_b

    @property
    def finite(self) -> bool:
        """Whether every operand and partial is a number."""
        return self.most_a < math.inf and self.most_b < math.inf and self.most_start < math.inf


class Job:
    """One product a @ b, with everything that an engine reads and writes.

    settings       what is multiplied how; each family of engines has its own kind.
    a, b           operands, in carriers.
    values         the partials to start from; engines write the result there.
    element_flags  engines add the flags of each output; None: only `flags` are wanted.
    places         random words, of the outputs of this job.
    fresh          values are all zeros, so their magnitudes are not scanned.
    flags          the flags of all outputs, where `element_flags` is None.

    Shapes    a (M, K) or Rows of that matrix, b (K, N), values and element_flags (M, N); of a Stack
              b (n, K, N).
    """

    __slots__ = (
        "_reach",
        "a",
        "b",
        "element_flags",
        "flags",
        "fresh",
        "places",
        "settings",
        "values",
    )

    def __init__(
        self, settings: Any, a: Carrier | Rows | Stack | Windows, b: Carrier, values: Carrier,
        element_flags: ElementFlags | None, places: Places = NO_PLACES, *, fresh: bool = False,
    ) -> None:
        self.settings = settings
        self.a, self.b = a, b
        self.values, self.element_flags = values, element_flags
        self.places = places
        self.fresh = fresh
        self.flags = 0
        self._reach: Reach | None = None

    def reach(self) -> Reach:
        """How far the numbers reach, from one look at binary32 operands at the first call."""
        if self._reach is None:
            a = self.a if isinstance(self.a, np.ndarray) else self.a.values
            left, right = a.ravel("K").view(np.uint32), self.b.ravel("K").view(np.uint32)
            start = _NO_CODES if self.fresh else self.values.ravel("K").view(np.uint32)
            if not (left.flags.writeable and right.flags.writeable):
                left, right = to_read(left), to_read(right)
            self._reach = Reach(*extents(left, right, start))
        return self._reach

    def pieces(self, values: Carrier) -> Iterator[Job]:
        """The same product in pieces of its windows, whose values are some of these.

        Flags of a weight gradient, which has all outputs in every piece, are of that piece alone
        until the next one is asked for.
        """
        assert isinstance(self.a, Windows)
        assert self.element_flags is not None
        for begin, end, rows in self.a.pieces(self.settings.piece(len(self.b))):
            lines = slice(begin, end)
            if self.a.target:
                at = self.a.outputs(begin, end, values.shape[1])
                part, flags = values.reshape(-1)[at], self.element_flags.reshape(-1)[at]
                places = self.places.part(begin)
                yield Job(self.settings, rows, self.b, part, flags, places, fresh=self.fresh)
                values.reshape(-1)[at], self.element_flags.reshape(-1)[at] = part, flags
                continue
            if not self.a.turned:
                yield Job(
                    self.settings, rows, self.b, values[lines], self.element_flags[lines],
                    self.places.part(begin), fresh=self.fresh,
                )
                continue
            flags = np.zeros_like(self.element_flags)
            places = self.places.part(place=self.settings.passes(begin))
            yield Job(
                self.settings, rows, self.b[lines], values, flags, places,
                fresh=self.fresh and begin == 0,
            )
            self.element_flags |= flags

    def part(self, rows: slice, columns: slice, values: Carrier) -> Job:
        """The job of some rows and columns in memory of its own, with these partials."""
        assert not isinstance(self.a, Stack | Windows)
        a = self.a.part(rows) if isinstance(self.a, Rows) else self.a[rows]
        flags = None if self.element_flags is None else np.zeros(values.shape, np.uint8)
        places = self.places.part(rows.start, columns.start)
        return Job(self.settings, a, self.b[:, columns], values, flags, places)

    def with_operands(self, a: Carrier, b: Carrier) -> Job:
        """The same job with other operands of the same shapes."""
        return Job(self.settings, a, b, self.values, self.element_flags, self.places)


Engine = Callable[[Job], bool]


def run(engines: Iterable[Engine], job: Job) -> None:
    """Run a job on the first engine that can."""
    if job.values.size == 0 or len(job.b) == 0:
        return
    for engine in engines:
        if engine(job):
            return


def matrices(
    settings: Any, a: Carrier, b: Carrier, values: Carrier, element_flags: ElementFlags | None,
    places: Places, *, fresh: bool,
) -> Iterator[Job]:
    """The jobs of a product with leading dimensions: one where b is a matrix, else one for each.

    Shapes    a (..., M, K), b (..., K, N), values and element_flags (..., M, N) in C order.
    """
    if b.ndim == 2:
        rows = math.prod(a.shape[:-1])  # not -1: a dimension may be 0
        a, values = a.reshape(rows, a.shape[-1]), values.reshape(rows, values.shape[-1])
        flags = None if element_flags is None else element_flags.reshape(values.shape)
        yield Job(settings, a, b, values, flags, places, fresh=fresh)
        return
    batch, rows = values.shape[:-2], values.shape[-2]
    a, b = (np.broadcast_to(x, (*batch, *x.shape[-2:])) for x in (a, b))
    for i, index in enumerate(np.ndindex(*batch)):
        flags = None if element_flags is None else element_flags[index]
        part = places.part(i * rows)
        yield Job(settings, a[index], b[index], values[index], flags, part, fresh=fresh)


def around_specials(job: Job, fast: Iterable[Engine], general: Engine) -> bool:
    """Rows and columns with infinities or NaN by the general engine, the others by a fast one."""
    assert isinstance(job.a, np.ndarray)
    rows = np.asarray(~(np.isfinite(job.a).all(axis=1) & np.isfinite(job.values).all(axis=1)))
    columns = np.asarray(~np.isfinite(job.b).all(axis=0))
    if not 0 < rows.mean() + columns.mean() <= _MOST_SPECIAL:
        return False
    start = job.values.copy()
    a, b = job.a.copy(), job.b.copy()
    a[rows], b[:, columns], job.values[rows] = 0, 0, 0
    clean = job.with_operands(a, b)
    if not any(engine(clean) for engine in fast):
        job.values[...] = start
        return False
    job.flags |= clean.flags
    every_row, every_column = slice(0, len(a)), slice(0, b.shape[1])
    parts = [(span, every_column) for span in _runs(rows)]
    parts += [(every_row, span) for span in _runs(columns)]
    for part in parts:
        special = job.part(*part, start[part].copy())
        general(special)
        job.values[part] = special.values
        job.flags |= special.flags
        if job.element_flags is not None and special.element_flags is not None:
            job.element_flags[part] = special.element_flags
    return True


def _runs(selected: NDArray[np.bool_]) -> Iterator[slice]:
    """Neighbouring chosen numbers as slices."""
    edges = np.flatnonzero(np.diff(selected, prepend=False, append=False))
    for first, last in edges.reshape(-1, 2).tolist():
        yield slice(first, last)


class _Memory:
    """The memory of an array, which lives as long as this."""

    def __init__(self, owner: NDArray[Any]) -> None:
        self.owner = owner
        interface = owner.__array_interface__  # which numpy makes anew whenever it is asked
        address, _ = interface["data"]
        self.__array_interface__ = interface | {"data": (address, False)}


def to_read(values: Values) -> Values:
    """The same memory for a kernel that reads it, of the type of arrays that can be written.

    Numba compiles a kernel once for arrays that can be written and once more for those that
    cannot, such as views that an `Array` hands out, memory maps and constants of a graph. An array
    that can be written is returned as it is: the check is all that small products pay.

    >>> values = np.zeros(3)
    >>> values.flags.writeable = False
    >>> to_read(values).flags.writeable, np.shares_memory(to_read(values), values)
    (True, True)
    """
    if values.flags.writeable:
        return values
    return cast(Values, np.asarray(_Memory(values)))
