"""Where numbers leave their format: births, what carries them on, and where they die.

A NaN, an infinity, a saturated number, a division by zero, a number flushed to zero and an addition
that changes nothing are *born* in one operation; an operation that has one among its operands only
carries it on, and is counted apart. Every array remembers the births that its elements come from,
so that of a loss that is not finite the way back to the first excursion is known. A birth dies in
an operation whose result is the same as that of the number itself would be, as a masked score in a
softmax does; one that only ever died did no harm.

Elements are compared where the operation goes element by element. Of products and reductions whose
operands hold a NaN, an infinity or a saturated number, all such results count as carried on.

Source    IEEE 754-2019 §7 (exceptions); Lam et al., FlowFPX (births, flow and deaths).
"""

from __future__ import annotations

import math
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim.array import Array
from fpsim.records.formats import BINARY32, Format
from fpsim.state.tallies import ValueTally, tally_of
from ipu.run.account import fit

__all__ = [
    "ABSORBED", "CONSTANT", "DATA_BEYOND", "DATA_DIGITS", "DATA_ZERO", "DIVISION", "INFINITY",
    "INTEGERS", "NAN", "ONE", "SATURATED", "ZERO", "Birth", "Births", "Origins",
]

NAN, INFINITY, SATURATED, ZERO = "NaN", "infinity", "saturation", "flush to zero"
DIVISION, ABSORBED, CONSTANT, INTEGERS = "division by zero", "absorption", "constant", "integers"
#: What numbers from outside lose on their way in.
DATA_BEYOND, DATA_ZERO, DATA_DIGITS = "data beyond", "data to zero", "data without digits"
#: A zero that is exact: told of a division by it alone, and no birth of its own.
_DIFFERENCE = "difference"
#: A constant that is 1 and was none in the program: told of a division by what it leads to alone.
ONE = "one"

#: Births that the elements of an array come from, by kind.
Origins = Mapping[str, "Birth"]
#: Operation, layer, direction and line.
_Place = tuple[str, ...]

#: Words in the names of operations in which a number beyond the largest dies, as its limit does.
_KILLERS = (
    "softmax", "sigmoid", "tanh", "relu", "max", "min", "clamp", "exp", "erf", "gelu", "hardtanh",
    "where", "greater", "less", "equal",
)
#: Of these the result at a saturated operand is the limit only where the operand is negative.
_ONE_SIDED = ("softmax", "exp", "relu", "gelu")
#: Words in the names of operations whose results are computed of several elements of an operand.
_JOINT = (
    "mm", "matmul", "conv", "dot", "linear", "einsum", "softmax", "norm", "cum", "pool", "loss",
    "lstm", "gru", "fft", "attention",
)
#: Words in the names of functions that negative numbers have not.
_OF_POSITIVE = ("sqrt", "log", "pow")
#: The operation in which numbers from outside are born.
_ENTERING = "convert"
#: Numbers of a sum by which it is known again.
_SAMPLE = 512
#: Rows of data by which a column is judged, at least; its deviation is lost where the rounding's is
#: such a part of it.
_ROWS, _LOST = 4, 0.1
#: Share of the zeros of a result that are flushed there, above which it is none that others bring.
_MOST = 0.9
#: Share of the data that is flushed to zero where that is told.
_FLUSHED = 0.5
#: Share of elements that are last sums, at least, where a number is added to them again.
_MOST_SUMS = 0.5
#: Times in a row that terms are lost beside the last sum, at least, where what is lost adds up.
_IN_A_ROW = 2
#: Results of these are one of their operands, or its negative.
_CHOOSING = frozenset((
    "clamp", "clamp_min", "clamp_max", "minimum", "maximum", "min", "max", "fmin", "fmax",
    "hardtanh", "neg",
))
_ADDITIONS = frozenset(("add", "sub", "addv2", "subtract", "assignadd", "assignsub", "rsub"))


@dataclass(eq=False)
class Birth:
    """Excursions of one kind that are born in one place: an operation of a layer and direction.

    step       of the first.
    lines      of the user's program, where they are known, with the elements born in each: in the
               step of the first, as later ones may follow from it; of absorptions in all steps, and
               those that are lost again count twice.
    detail     what made it, in words: "of a negative number", a constant's value, or the
               difference of equal numbers that is divided by.
    count      elements in all steps, of `results` that the operation had.
    causes     births among the operands of the first; of a constant that is zero, the flushed
               numbers that it was added to, and does not keep from zero.
    deaths     operations that ended it, and how often; `spread`: those that computed on with it.
    weights    the layer whose weights it reached first.
    repeated   of an absorption: elements whose sum was one of the same place before, so that what
               is lost adds up. A term that is lost once is an error of half a unit at most.
    lost       by line, of an absorption in the first step: the size of the terms beside that of
               their sum.
    running    lines whose sums come from sums of theirs in the first step: their operands bring
               what these have lost.
    is_trained_with    a backward pass or an optimiser computed with it.
    reader     of data, the layer that read them first.
    bounds     of a constant that is 1, the operation whose results it bounds.
    phase      what a reader calls the direction; "": by its name.
    """

    kind: str
    step: int
    layer: str
    direction: str
    operation: str
    format: str
    detail: str = ""
    count: int = 0
    results: int = 0
    number: int = 0
    causes: tuple[Birth, ...] = ()
    lines: Counter[str] = field(default_factory=Counter)
    deaths: Counter[str] = field(default_factory=Counter)
    spread: int = 0
    weights: str = ""
    repeated: int = 0
    lost: dict[str, float] = field(default_factory=dict)
    running: set[str] = field(default_factory=set)
    is_trained_with: bool = False
    reader: str = ""
    bounds: str = ""
    phase: str = ""

    @property
    def line(self) -> str:
        """The line in which most of it is born; the first of alike ones."""
        return max(self.lines, key=self.lines.__getitem__, default="")

    @property
    def is_harmless(self) -> bool:
        """Whether every operation that read it gave the result of the number itself."""
        if self.kind == DATA_BEYOND:  # of which most may never be computed with
            return not (self.spread or self.is_trained_with)
        return self.kind not in (NAN, DIVISION) and bool(self.deaths) and not self.spread

    def lost_terms(self, n: int, line: str, step: int, operands: Sequence[Origins]) -> None:
        """So many terms of a line were absorbed by a sum whose operands have these origins."""
        is_first = step != self.step or self.lines[line] <= n
        if not is_first and any(origins.get(self.kind) is self for origins in operands):
            self.running.add(line)

    def was_lost_again(self, n: int, line: str) -> None:
        """So many terms of a line were absorbed by a sum that goes on."""
        self.repeated += n
        self.lines[line] += n

    def as_row(self) -> dict[str, Any]:
        """Plain data, causes by their numbers."""
        return {
            "number": self.number, "kind": self.kind, "step": self.step, "layer": self.layer,
            "direction": self.direction, "operation": self.operation, "format": self.format,
            "line": self.line, "detail": self.detail, "count": self.count,
            "results": self.results, "causes": [birth.number for birth in self.causes],
            "deaths": dict(self.deaths), "harmless": self.is_harmless, "weights": self.weights,
            "repeated": self.repeated, "running": self.line in self.running,
            "lost": self.lost.get(self.line, 0.0),
            "trained_with": self.is_trained_with,
            "reader": self.reader, "bounds": self.bounds, "phase": self.phase,
        }


class Births:
    """The births of a run, in order of time.

    >>> from fpsim import BINARY16, Context
    >>> births, half = Births(), Context(BINARY16, count=True)
    >>> x, y = half.array([6e4, 1.0]), half.array([6e4, 1.0])
    >>> births.see("add", ("net", "forward", 0), half.add(x, y), (x, y), {"OVERFLOW": 1})
    >>> [(b.kind, b.layer, b.count) for b in births]
    [('infinity', 'net', 1)]
    """

    def __init__(self) -> None:
        self._births: dict[tuple[str, ...], Birth] = {}
        #: By identity of the carrier, whose reference tells when it is gone.
        self._origins: dict[int, tuple[weakref.ref[Any], Origins]] = {}
        #: The last result of each addition of one number, by operation, place and line.
        self._sums: dict[_Place, NDArray[Any]] = {}
        #: Some numbers of the last result of each addition of many, by the same.
        self._samples: dict[_Place, NDArray[Any]] = {}
        #: How often in a row terms were lost beside the last sum, and how many are not told yet.
        self._standing: dict[_Place, tuple[int, int]] = {}
        #: Elements that operations carried on, by kind.
        self.carried: Counter[str] = Counter()
        #: Of the first loss that is not finite, and its step.
        self.symptom: tuple[int, Origins] | None = None
        #: What is told of the direction now; "": its name.
        self.phase = ""
        #: What was invalid inside of the operation now, as sqrt of an optimiser's; "": itself.
        self.invalid = ""
        #: What is computed now updates a parameter: `Updates` has the terms that it loses.
        self.is_update = False
        #: The line of the user's program now, and its layer, direction and step.
        self.line: Callable[[], str] = str
        self.where: Callable[[], tuple[str, str, int]] = lambda: ("", "forward", 0)

    def __iter__(self) -> Iterator[Birth]:
        return iter(self._births.values())

    def rows(self) -> list[dict[str, Any]]:
        """The births as plain data, in order of time."""
        return [birth.as_row() for birth in self]

    @property
    def has_any(self) -> bool:
        """Whether anything was born, or may be told of a birth."""
        return bool(self._births or self._origins)

    def symptom_row(self) -> dict[str, Any]:
        """The first loss that is not finite: its step, and the births that it comes from."""
        if self.symptom is None:
            return {}
        step, origins = self.symptom
        return {"step": step, "births": {kind: birth.number for kind, birth in origins.items()}}

    # Memory -----------------------------------------------------------------------------------

    def of(self, array: Array) -> Origins:
        """What the elements of an array come from; of a view, those of its base."""
        if not self._origins:
            return {}
        carrier: Any = array.carrier
        while carrier is not None:
            entry = self._origins.get(id(carrier))
            if entry is not None and entry[0]() is carrier:
                return entry[1]
            carrier = getattr(carrier, "base", None)
        return {}

    def has_origins(self, array: Array) -> bool:
        """Whether elements of an array come from births."""
        return bool(self.of(array))

    def note(self, array: Array, origins: Origins) -> None:
        """The elements of an array come from these births."""
        carrier = array.carrier
        key = id(carrier)
        if origins:
            self._origins[key] = weakref.ref(carrier), origins
        else:
            self._origins.pop(key, None)

    def replace_sum(self, place: _Place, values: NDArray[Any]) -> NDArray[Any] | None:
        """Remember the result of an addition of one number; the one before it, if it has one."""
        before = self._sums.get(place)
        self._sums[place] = values.copy()
        return before

    def lost_in_a_row(self, place: _Place, n: int) -> int:
        """Elements that a sum of its last sum has lost; later, where that may be the only time.

        What is computed twice from the same numbers, as by a checkpoint, has its last sum once.
        """
        if not n:
            self._standing.pop(place, None)
            return 0
        times, lost = self._standing.get(place, (0, 0))
        is_told = times + 1 >= _IN_A_ROW
        self._standing[place] = times + 1, 0 if is_told else lost + n
        return lost + n if is_told else 0

    def is_sum_of_sums(
        self, place: _Place, terms: Sequence[NDArray[Any]], values: NDArray[Any]
    ) -> bool:
        """Whether an operand of an addition is the last result of the same place.

        Some numbers of it are compared and remembered.
        """
        sampled = slice(None, None, values.size // _SAMPLE + 1)
        before = self._samples.get(place)
        self._samples[place] = values.reshape(-1)[sampled].copy()
        return before is not None and any(
            np.array_equal(before, term.reshape(-1)[sampled]) for term in terms
        )

    def place(self, operation: str, where: tuple[str, str, int]) -> _Place:
        """What is told apart of operations: name, layer, direction and line."""
        layer, direction, _ = where
        return operation, layer, direction, self.line()

    # Events -----------------------------------------------------------------------------------

    def constant(
        self, where: tuple[str, str, int], fmt: Format, value: float, change: str, line: str = ""
    ) -> Birth:
        """A number of the program is another one in its format.

        One that is 1 then is no birth before it leads to one.
        """
        if change != ONE:
            return self._born(CONSTANT, where, repr(float(value)), fmt, 1, 1, (), change, line)
        layer, direction, step = where
        return Birth(
            CONSTANT, step, layer, direction, repr(float(value)), fmt.name, change, 1, 1,
            lines=Counter((line,)), phase=self.phase)

    def moved(self, operation: str, array: Array, operands: Sequence[Array]) -> None:
        """The elements of a result are operands' elements, of an operation that rounds nothing."""
        if not self._origins:
            return
        inherited = [self.of(x) for x in operands]
        origins = self._ones(operation, array, inherited)
        difference = next((o[_DIFFERENCE] for o in inherited if _DIFFERENCE in o), None)
        if difference is not None and not np.asarray(array.carrier).all():
            origins[_DIFFERENCE] = difference
        if origins:
            self.note(array, {**self.of(array), **origins})

    def _ones(
        self, operation: str, array: Array, inherited: Sequence[Origins]
    ) -> dict[str, Birth]:
        """The constant that ones in a result come from, which chooses among its operands."""
        births = [origins[ONE] for origins in inherited if ONE in origins]
        values = np.asarray(array.carrier) if births else _NOWHERE
        birth = next((b for b in births if (values == math.copysign(1, float(b.operation))).any()),
                     births[0] if (np.abs(values) == 1).any() else None)
        if birth is None:
            return {}
        birth.bounds = birth.bounds or operation
        return {ONE: birth}

    def entered(self, values: NDArray[Any], array: Array) -> None:
        """Numbers from outside are in a format now: what they lost is a birth that they carry."""
        fmt = array.format
        if array.size < 2 or fmt.precision >= BINARY32.precision:
            if array.size == 1:
                self._number_entered(np.reshape(values, ()), array)
            return
        wide, rounded = np.asarray(values, np.float64), np.asarray(array.carrier, np.float64)
        sizes, is_finite = np.abs(wide), np.isfinite(wide)
        origins: dict[str, Birth] = {}
        is_beyond = is_finite & (sizes > fmt.max) & (np.abs(rounded) >= fmt.max)
        n = int(np.count_nonzero(is_beyond))
        if n:
            kind = INFINITY if np.isinf(rounded[is_beyond]).any() else SATURATED
            origins[kind] = self._of_data(
                DATA_BEYOND, fmt, n, wide, f"up to {sizes[is_beyond].max():.3g}")
        is_flushed = (rounded == 0) & (sizes > 0)
        n = int(np.count_nonzero(is_flushed))
        if n > _FLUSHED * np.count_nonzero(sizes):
            origins[ZERO] = self._of_data(
                DATA_ZERO, fmt, n, wide, f"down to {sizes[is_flushed].min():.3g}")
        lost = self._integers(sizes[is_finite], fmt)
        if not (lost or n):
            lost = self._lost_digits(wide, rounded, is_finite & ~is_beyond, fmt)
        origins |= {DATA_DIGITS: lost} if lost else {}
        self.note(array, origins)

    def _number_entered(self, value: NDArray[Any], array: Array) -> None:
        """A number of the program that is 1 now and was none may be a bound, as a constant."""
        if fit(float(value), float(np.reshape(array.carrier, ())), array.format) == ONE:
            as_written = float(str(value))
            self.note(array, {ONE: self.constant(
                self.where(), array.format, as_written, ONE, self.line())})

    def _of_data(
        self, kind: str, fmt: Format, n: int, values: NDArray[Any], detail: str
    ) -> Birth:
        return self._born(
            kind, self.where(), _ENTERING, fmt, n, int(values.size), (), detail)

    def _integers(self, sizes: NDArray[Any], fmt: Format) -> Birth | None:
        """Whole numbers that the format rounds to others are no positions any more."""
        if not sizes.size or not 2.0**fmt.precision < sizes.max() <= fmt.max:
            return None
        if (sizes != np.floor(sizes)).any():
            return None
        ulp = np.exp2(np.floor(np.log2(np.maximum(sizes, 1))) + 1 - fmt.precision)
        n = int(np.count_nonzero(np.remainder(sizes, np.maximum(ulp, 1))))
        return self._of_data(INTEGERS, fmt, n, sizes, f"{float(sizes.max()):g}") if n else None

    def _lost_digits(
        self, wide: NDArray[Any], rounded: NDArray[Any], is_held: NDArray[np.bool_], fmt: Format
    ) -> Birth | None:
        """Columns of data whose numbers differ by little more than neighbours of the format."""
        columns = wide.shape[-1] if wide.ndim > 1 else 1
        if wide.size < _ROWS * columns or not is_held.all():
            return None
        table = wide.reshape(-1, columns)
        error = np.sqrt(np.mean((rounded.reshape(-1, columns) - table) ** 2, axis=0))
        deviation = np.std(table, axis=0)
        is_lost = (error > _LOST * deviation) & (np.ptp(table, axis=0) > 0)
        if not is_lost.any():
            return None
        worst = int(np.argmax(np.where(is_lost, error, 0)))
        return self._of_data(
            DATA_DIGITS, fmt, int(np.count_nonzero(is_lost)) * len(table), wide,
            f"{np.mean(table[:, worst]):.4g} ± {deviation[worst]:.2g}")

    def untold(self, verb: str, where: tuple[str, str, int], flag: str, n: int) -> None:
        """An operation whose result nobody told raised a flag on so many elements.

        Invalid operations may have read a NaN: they are births where there was none before.
        """
        kind = {"OVERFLOW": SATURATED, "DIVBYZERO": DIVISION, "INVALID": NAN}.get(flag)
        if kind is None or (kind == NAN and any(b.kind in (NAN, INFINITY) for b in self)):
            return
        birth = self._born(kind, where, verb, None, n, 0, (), "")
        birth.spread += 1

    def see(
        self, operation: str, where: tuple[str, str, int], array: Array,
        operands: Sequence[Array], flags: Mapping[str, int], tally: ValueTally | None = None,
    ) -> None:
        """An operation has this result, of these operands, and raised flags on so many elements.

        where    layer, direction and step.
        tally    of the result; None: it is made where it is needed.
        """
        inherited = [self.of(x) for x in operands]
        is_sum = len(operands) in (1, 2) and _base(operation) in _ADDITIONS
        if not flags and not is_sum and not any(inherited):
            return
        for birth in (birth for origins in inherited for birth in origins.values()):
            if birth.operation == _ENTERING:
                birth.reader = birth.reader or where[0]
        ones = self._ones(operation, array, inherited) if _base(operation) in _CHOOSING else {}
        if not is_sum or where[1] == "backward":
            origins = self._origins_of_usual(
                operation, where, array, operands, inherited, flags, tally
            )
            if origins is not None:
                self.note(array, origins | ones)
                return
        result = _Result(self, operation, where, array, operands, inherited, flags, tally)
        origins = result.origins() | ones
        if is_sum and where[1] != "backward":
            origins |= {} if self.is_update else result.absorbed()
            if where[1] != "optimizer":
                origins |= result.differences()
        self.note(array, origins)

    def _origins_of_usual(
        self, operation: str, where: tuple[str, str, int], array: Array,
        operands: Sequence[Array], inherited: Sequence[Origins], flags: Mapping[str, int],
        tally: ValueTally | None,
    ) -> dict[str, Birth] | None:
        """Of results that are usual numbers, as `_Result` has them; None where one has to look.

        Nothing is born in them but zeros, and no operand has anything but zeros and lost terms.
        """
        if not _is_usual(array, flags, tally):
            return None
        assert tally is not None
        origins: dict[str, Birth] = {}
        zeros: list[Birth] = []
        for x, before in zip(operands, inherited, strict=True):
            for kind, birth in before.items():
                if kind == ZERO:
                    zeros.append(birth)
                elif kind == _DIFFERENCE and tally.zeros:
                    origins[_DIFFERENCE] = birth
                elif kind in (DATA_DIGITS, _DIFFERENCE, ONE):
                    continue
                elif kind != ABSORBED or _is_killer(operation):
                    return None
                elif x.shape == array.shape or _fits(x.shape, array.shape):
                    origins[ABSORBED] = birth
        zero = self._zero(operation, where, array, tally.zeros, flags, zeros)
        if zero is not None:
            origins[ZERO] = zero
        return origins

    def _zero(
        self, operation: str, where: tuple[str, str, int], array: Array, zeros: int,
        flags: Mapping[str, int], brought: Sequence[Birth],
    ) -> Birth | None:
        """A zero that was flushed here, or that operands brought; of so many in the result."""
        if not zeros:
            return None
        before = _oldest(brought)
        if before is not None and before.kind == CONSTANT and not before.causes:
            before.causes = tuple(birth for birth in brought if birth.kind == ZERO)
        n = min(flags.get("UNDERFLOW", 0), zeros)
        if not n or (before is not None and before.kind == CONSTANT):
            return before
        if before is None or n > _MOST * zeros:
            return self._born(ZERO, where, operation, array.format, n, array.size, (), "")
        self._born(ZERO, where, operation, array.format, n, array.size, (before,), "")
        return before  # the earliest of a chain of products is what the later ones follow from

    def ended(self, step: int, origins: Origins | None = None) -> None:
        """A loss is not finite; the first is the symptom whose cause is sought."""
        if self.symptom is None:
            self.symptom = step, origins or {}

    def told(self, birth: Birth) -> Birth:
        """A constant that has led to a birth is told as one."""
        key = birth.kind, birth.layer, birth.direction, birth.operation, birth.format
        if key not in self._births:
            birth.number = len(self._births)
        return self._births.setdefault(key, birth)

    def _born(
        self, kind: str, where: tuple[str, str, int], operation: str, fmt: Format | None, n: int,
        results: int, causes: tuple[Birth, ...], detail: str, line: str | None = None,
    ) -> Birth:
        layer, direction, step = where
        name = "" if fmt is None else fmt.name
        key = kind, layer, direction, operation, name
        birth = self._births.get(key)
        if birth is None:
            birth = self._births[key] = Birth(
                kind, step, layer, direction, operation, name, detail,
                number=len(self._births), causes=causes, phase=self.phase,
            )
        birth.count += n
        birth.results += results
        if kind == ABSORBED or step == birth.step:
            birth.lines[line or self.line()] += n
        return birth


def _base(operation: str) -> str:
    """The verb of an operation's name.

    >>> _base("aten.add_.Tensor"), _base("AddV2"), _base("aten.add")
    ('add', 'addv2', 'add')
    """
    parts = operation.lower().split(".")
    return (parts[1] if len(parts) > 1 else parts[0]).rstrip("_")


#: Flags with which numbers are born, if they are no zeros.
_BEARING = ("OVERFLOW", "DIVBYZERO", "INVALID")


def _is_usual(array: Array, flags: Mapping[str, int], tally: ValueTally | None) -> bool:
    """Whether a result is numbers below the largest, and no flag tells of another one inside."""
    if tally is None or array.carrier.dtype != np.float32:
        return False
    if flags and any(name in flags for name in _BEARING):
        return False
    return tally.is_below_largest(array.format)


def _is_killer(operation: str) -> bool:
    """Whether numbers beyond the largest die in an operation, as its limits do."""
    name = _base(operation)
    return "backward" not in name and any(word in name for word in _KILLERS)


def _oldest(births: Sequence[Birth]) -> Birth | None:
    """The first of some births; a constant before others."""
    if len(births) < 2:
        return births[0] if births else None
    return min(births, key=lambda b: (b.kind != CONSTANT, b.number))


@dataclass
class _Result:
    """One result beside its operands."""

    births: Births
    operation: str
    where: tuple[str, str, int]
    array: Array
    operands: Sequence[Array]
    inherited: Sequence[Origins]
    flags: Mapping[str, int]
    tally: ValueTally | None

    def __post_init__(self) -> None:
        self.values: NDArray[Any] = np.asarray(self.array.carrier)
        self.fmt = self.array.format
        if self.values.dtype != np.float32:
            self.tally = None  # which is of binary32
        elif self.tally is None:
            self.tally = tally_of(self.values)

    def origins(self) -> dict[str, Birth]:
        """What its elements come from: births here, or those of operands."""
        origins: dict[str, Birth] = {}
        division, is_usual = self._division(), self._is_usual()
        kinds = set[str]().union(*self.inherited)
        if not is_usual or not kinds.isdisjoint(_TESTS):
            self._carried_on(origins, division, is_usual=is_usual)
        self._hidden_overflow(origins)
        if ABSORBED in kinds:
            self._lost_terms(origins)
        zeros = self._n_zeros()
        zero = self.births._zero(
            self.operation, self.where, self.array, zeros, self.flags,
            self._zeros_before() if zeros else ()
        )
        if zero is not None:
            origins[ZERO] = zero
        difference = self._before(_DIFFERENCE)
        if difference is not None and zeros:
            origins[_DIFFERENCE] = difference
        return origins

    def _carried_on(
        self, origins: dict[str, Birth], division: Birth | None, *, is_usual: bool
    ) -> None:
        """NaN, infinities and saturated numbers, born here or in operands."""
        for kind, is_of in _TESTS.items():
            before = self._before(kind)
            n, mask = 0, _NOWHERE
            if not is_usual:
                mask = is_of(self.values, self.fmt)
                n = int(np.count_nonzero(mask))
            if not n:
                if before is not None:
                    self._read(kind, before)
                continue
            born = self._births_among(mask, is_of)
            self.births.carried[kind] += n - born
            if born and self._is_raised(kind):
                detail = self._detail(kind)
                causes = () if detail else (division,) if division else self._causes(kind)
                origins[kind] = self.births._born(
                    kind, self.where, self.operation, self.fmt, born, self.values.size, causes,
                    detail,
                )
            elif before is not None:
                origins[kind] = before
                before.is_trained_with |= self.where[1] in ("backward", "optimizer")

    def absorbed(self) -> dict[str, Birth]:
        """Terms of a sum that left the other one as it was.

        One number that is added to all elements counts where they are its last sums: one that
        keeps a divisor from zero may vanish beside it, each time beside another one.
        """
        alike = [
            x.carrier for x in self.operands if _fits(np.shape(x.carrier), self.values.shape)
        ]
        if len(self.operands) == 1 and alike:
            return self._absorbed_by_number(alike[0])
        if len(alike) != 2:
            return {}
        x, y = (np.broadcast_to(v, self.values.shape) for v in alike)
        inside = np.isfinite(self.values) & (np.abs(self.values) < float(self.fmt.max))
        terms = inside & (x != 0) & (y != 0)
        if 1 in map(np.size, alike):
            terms = self._terms_of_last_sum(terms)
        n = int(np.count_nonzero(terms & ((self.values == x) | (self.values == y))))
        if not n:
            return {}
        line = self.births.line()
        birth = self.births._born(
            ABSORBED, self.where, self.operation, self.fmt, n, int(np.count_nonzero(terms)), (), "",
            line)
        birth.lost_terms(n, line, self.where[2], self.inherited)
        if self.where[2] == birth.step:
            size = self._size_of_terms(terms, x, y)
            birth.lost[line] = max(birth.lost.get(line, 0.0), size)
        again = self._lost_again(n, x, y, is_one=1 in map(np.size, alike))
        if again:
            birth.was_lost_again(again, line)
        return {ABSORBED: birth}

    def _terms_of_last_sum(self, terms: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Those of terms that were added to the last sum of the place, where they are most."""
        place = self.births.place(self.operation, self.where)
        before = self.births.replace_sum(place, self.values)
        if before is not None and before.shape == self.values.shape:
            alike: NDArray[np.bool_] = terms & (self.values == before)
            if np.count_nonzero(alike) >= _MOST_SUMS * np.count_nonzero(terms):
                return alike
        self.births.lost_in_a_row(place, 0)  # alike by chance
        return np.zeros_like(terms)

    def _lost_again(self, n: int, x: NDArray[Any], y: NDArray[Any], *, is_one: bool) -> int:
        """Of n terms that a sum has lost, those that add up with those that it lost before.

        What is added to an average of an optimiser is lost again in each step, though the average
        decays in between.
        """
        if self.where[1] == "optimizer":
            return n
        place = self.births.place(self.operation, self.where)
        is_again = is_one or self.births.is_sum_of_sums(place, (x, y), self.values)
        return self.births.lost_in_a_row(place, n if is_again else 0)

    def _size_of_terms(
        self, terms: NDArray[np.bool_], x: NDArray[Any], y: NDArray[Any]
    ) -> float:
        """How large the terms that a sum has lost are beside it."""
        lost = np.zeros((), np.float64)
        for term, other in ((x, y), (y, x)):
            lost += np.sum(np.square(term, where=terms & (self.values == other),
                                     out=np.zeros(terms.shape)))
        size = np.sum(np.square(self.values, where=np.isfinite(self.values),
                                out=np.zeros(terms.shape)))
        return float(np.sqrt(lost / size)) if size else 0.0

    def _absorbed_by_number(self, terms: NDArray[Any]) -> dict[str, Birth]:
        """Terms below a quarter of a unit of their sum with a number of the program, as 1 - p.

        It is that number then. Most such terms may vanish: it is told of a program that is harmed.
        """
        if self.values.dtype != np.float32:
            return {}
        _, exponents = np.frexp(self.values)
        quarters = np.ldexp(np.float32(0.25), exponents - self.fmt.precision)
        is_term = (terms != 0) & np.isfinite(self.values)
        n = int(np.count_nonzero(is_term & (np.abs(terms) < quarters)))
        if not n:
            return {}
        return {ABSORBED: self.births._born(
            ABSORBED, self.where, self.operation, self.fmt, n, int(np.count_nonzero(is_term)), (),
            "")}

    def differences(self) -> dict[str, Birth]:
        """Zeros of operands that are none: equal numbers, as 1 - p of a p that is rounded to 1."""
        if not self._n_zeros():
            return {}
        zeros = ones = self.values == 0
        for x in self.operands:
            if _fits(np.shape(x.carrier), self.values.shape):
                zeros = zeros & (np.asarray(x.carrier) != 0)
                ones = ones & (np.abs(x.carrier) == 1)
        if not zeros.any():
            return {}
        layer, direction, step = self.where
        return {_DIFFERENCE: Birth(
            _DIFFERENCE, step, layer, direction, self.operation, self.fmt.name,
            causes=tuple(self._all_before(ONE)[:1]) if ones.any() else (),
            lines=Counter((self.births.line(),)),
        )}

    # Parts ------------------------------------------------------------------------------------

    def _n_zeros(self) -> int:
        return self.tally.zeros if self.tally else int(np.count_nonzero(self.values == 0))

    def _is_usual(self) -> bool:
        """Whether all values are known to be numbers smaller than the largest one."""
        return self.tally is not None and self.tally.is_below_largest(self.fmt)

    def _lost_terms(self, origins: dict[str, Birth]) -> None:
        """Terms that a mask absorbed die with it; else the result has them from operands."""
        for x, before in zip(self.operands, self.inherited, strict=True):
            birth = before.get(ABSORBED)
            if birth is None or not _fits(np.shape(x.carrier), self.values.shape):
                continue
            if _is_killer(self.operation) and self._is_masked(x.carrier):
                birth.deaths[self.operation] += 1
            else:
                origins[ABSORBED] = birth

    def _is_masked(self, x: NDArray[Any]) -> bool:
        """Whether the largest numbers of an operand are negative, and zeros in the result."""
        sizes = np.abs(x)
        large = sizes >= 0.5 * np.max(sizes, initial=0)
        return not self.values[large & (x < 0)].any() and not (large & (x > 0)).any()

    def _division(self) -> Birth | None:
        n = self.flags.get("DIVBYZERO", 0)
        if not n:
            return None
        zero, difference = self._before(ZERO), self._before(_DIFFERENCE)
        causes, detail = (self._limits() if zero is None else [zero]), ""
        if difference is not None and zero is None:
            line = difference.line if difference.line != self.births.line() else ""
            detail = (f"what the {_base(difference.operation)} of equal numbers"
                      f"{f', {line},' if line else ''} gives")
            causes = list(difference.causes)
        return self.births._born(
            DIVISION, self.where, self.operation, self.fmt, n, self.values.size,
            tuple(self.births.told(x) if x.detail == ONE else x for x in causes), detail,
        )

    def _limits(self) -> list[Birth]:
        """The constant of a function that has no value at 1, as log1p(-p), and reads no zero."""
        is_only = len(self.operands) == 1 and np.asarray(self.operands[0].carrier).all()
        return self._all_before(ONE) if is_only else []

    def _births_among(self, mask: NDArray[np.bool_], is_of: Callable[..., Any]) -> int:
        """Those of these elements that no operand has; saturated ones may come of infinities."""
        for x in self.operands:
            carrier = np.asarray(x.carrier)
            bad = ~np.isfinite(carrier) | is_of(carrier, x.format)
            if not bad.any():
                continue
            if self._is_joint() or not _fits(carrier.shape, mask.shape):
                return 0
            same = np.isnan(carrier) | is_of(carrier, x.format)
            mask = mask & ~np.broadcast_to(same, mask.shape)
        return int(np.count_nonzero(mask))

    def _is_joint(self) -> bool:
        return any(word in _base(self.operation) for word in _JOINT)

    def _is_raised(self, kind: str) -> bool:
        names = ("OVERFLOW", "DIVBYZERO", "INVALID") if kind == NAN else ("OVERFLOW", "DIVBYZERO")
        return any(self.flags.get(name) for name in names)

    def _before(self, kind: str) -> Birth | None:
        """The birth of this kind among those of the operands; a constant before others."""
        return _oldest(self._all_before(kind))

    def _all_before(self, kind: str) -> list[Birth]:
        """The births of this kind that operands have."""
        return [origins[kind] for origins in self.inherited if kind in origins]

    def _zeros_before(self) -> list[Birth]:
        """The zeros of operands that results have; that of p is none of 1 - p."""
        if _base(self.operation) not in _ADDITIONS:
            return self._all_before(ZERO)
        zeros = self.values == 0
        return [
            origins[ZERO] for x, origins in zip(self.operands, self.inherited, strict=True)
            if ZERO in origins and (not _fits(np.shape(x.carrier), zeros.shape)
                                    or (zeros & (np.asarray(x.carrier) == 0)).any())]

    def _causes(self, kind: str) -> tuple[Birth, ...]:
        kinds = (INFINITY, SATURATED, ZERO) if kind == NAN else (SATURATED,)
        rows = (self._before(k) for k in kinds if k != kind)
        return tuple(birth for birth in rows if birth is not None)

    def _detail(self, kind: str) -> str:
        """Of a NaN: what its operands were."""
        if kind != NAN or not self.operands:
            return ""
        base = _base(self.operation)
        is_zero = self.flags.get("DIVBYZERO")
        if is_zero:
            return ""
        if any(word in base for word in _OF_POSITIVE):
            return "of a negative number"
        if any(word in self.births.invalid for word in _OF_POSITIVE):
            return f"in the {self.births.invalid} of a negative number, as a difference of " \
                   "nearly equal ones may be"
        return ""

    def _read(self, kind: str, birth: Birth) -> None:
        """Operands hold it and the result does not."""
        if kind == NAN:
            birth.deaths[self.operation] += 1
            return
        is_one_sided = any(word in _base(self.operation) for word in _ONE_SIDED)
        if _is_killer(self.operation) and (not is_one_sided or self._is_negative()):
            birth.deaths[self.operation] += 1
        else:
            birth.spread += 1

    def _is_negative(self) -> bool:
        largest = float(self.fmt.max)
        return not any(bool((np.asarray(x.carrier) >= largest).any()) for x in self.operands)

    def _hidden_overflow(self, origins: Mapping[str, Birth]) -> None:
        """An overflow inside of the operation that its result does not show."""
        n = self.flags.get("OVERFLOW", 0)
        if n and not (origins or self.flags.get("DIVBYZERO") or self._holds_excursions()):
            birth = self.births._born(
                SATURATED, self.where, self.operation, self.fmt, n, self.values.size, (), "inside",
            )
            birth.spread += 1

    def _holds_excursions(self) -> bool:
        return any(
            bool(is_of(np.asarray(x.carrier), x.format).any())
            for x in self.operands for is_of in _TESTS.values()
        )


def _fits(shape: tuple[int, ...], result: tuple[int, ...]) -> bool:
    """Whether operands of a shape broadcast to the result."""
    try:
        return np.broadcast_shapes(shape, result) == result
    except ValueError:
        return False


#: The mask of what no element is.
_NOWHERE = np.zeros((), np.bool_)
_TESTS: dict[str, Callable[[NDArray[Any], Format], NDArray[np.bool_]]] = {
    NAN: lambda values, fmt: np.isnan(values),
    INFINITY: lambda values, fmt: np.isinf(values),
    SATURATED: lambda values, fmt: np.abs(values) == float(fmt.max),
}
