"""Matrix units as records: how one instruction aligns, cuts, sums and rounds.

A unit call adds `terms` exact products and an accumulator: every addend is cut to `window` fraction
digits below the largest exponent (or not cut), the sum is exact and is rounded once. Calls are
chained, a pass of several calls ends with a store of the partial result. `fpsim.linalg` runs any
record. A module that models a machine registers its rows here; those of NVIDIA's tensor cores are
in `fpsim.records.tensor_cores`, which `fpsim.records` imports.

Source    docs/semantics.md §5.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import cache, cached_property
from importlib.metadata import entry_points
from types import MappingProxyType
from typing import Any

from fpsim.records.drawings import table
from fpsim.records.evidence import Evidence, Fact, weakest
from fpsim.records.formats import BINARY32, Format, find_number_format
from fpsim.records.rounding import RNE, RTN, RTZ, Rounding

__all__ = ["SCALED_UNITS", "UNITS", "MatrixUnit", "find_unit", "register", "with_partials"]

_CUTS = ("truncate", "sticky")
_ORDERS = ("ascending", "pairs")

#: Terms of one call: 48 digits of each and their carries stay within 63.
_TERMS = 256


@dataclass(frozen=True)
class MatrixUnit:
    """One matrix instruction.

    name            <MACHINE>_<INPUT>_<PARTIALS>; a preset that is not the default is a suffix.
    instruction     what is modelled.
    inputs          formats that either operand may have.
    partials        format in which a pass takes its partial result and leaves it.
    terms, calls    products of one call, calls of one pass; calls=None: a pass is the whole of K.
    taps            neighbours along a row of a convolution's kernel that a pass takes in.
    window          fraction digits kept of every addend below the largest exponent; None: all.
    cut             what happens to the digits below: `truncate`, or `sticky` (rounded to odd).
    accumulator     format and rounding of the sum of each call.
    order           `ascending`, or `pairs`: in a pass the terms with bit 1 of k clear come first;
                    k counts in the pass, a multiple of four terms.
    join            None: the partial enters the first call. A format: a pass starts from zero and
                    its partial is added afterwards, rounded to nearest even in this format.
    product_rounded products are rounded as the sums are before they are added: with a window to the
                    format of the partials, without one to the accumulator's.
    evidence        for each constant, how it is known and from where.

    >>> import fpsim as fp
    >>> from fpsim.linalg import matmul
    >>> half = fp.Context("binary16")
    >>> x, ones = half.array([[2.0**12] + [2.0**-12] * 7]), half.array([[1.0]] * 8)
    >>> for window in (23, None):
    ...     unit = MatrixUnit("MINE", "eight products", (half.format,), BINARY32, 8, window)
    ...     print(window, matmul(x, ones, unit, to="binary32").item() - 2**12)
    23 0.0
    None 0.001953125
    >>> find_unit("V100_F16_F32").terms, find_unit("V100_F16_F32").window
    (4, 23)
    """

    name: str
    instruction: str
    inputs: tuple[Format, ...]
    partials: Format
    terms: int
    window: int | None
    calls: int | None = 1
    taps: int = 1
    cut: str = "truncate"
    accumulator: Format = BINARY32
    rounding: Rounding = RNE
    order: str = "ascending"
    join: Format | None = None
    product_rounded: bool = False
    preset: str = "window"
    evidence: Mapping[str, tuple[Evidence, str]] = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        self._check_kinds()
        self._check_formats()
        for name in ("terms", "window", "calls", "taps"):
            value = getattr(self, name)
            optional = value is None and name in ("window", "calls")
            if not optional and (isinstance(value, bool) or not isinstance(value, int)):
                raise TypeError(f"{name}={value!r} is not an integer; give a whole number")
        if self.terms > _TERMS:
            raise ValueError(f"terms={self.terms} of one call; use at most {_TERMS}")
        if self.terms < 1 or self.chain < 1:
            raise ValueError(
                f"terms={self.terms}, calls={self.calls}; a pass has at least one each"
            )
        if self.taps < 1 or self.channels % self.taps:
            raise ValueError(
                f"taps={self.taps} do not divide the {self.channels} products of a pass"
            )
        if self.calls is None and self.join is not None:
            raise ValueError(
                "calls=None has one pass, whose partial enters the first call; no join"
            )
        if self.order == "pairs" and self.channels % 4:
            raise ValueError(
                f"order='pairs' takes four terms at a time and a pass has terms={self.terms} times "
                f"calls={self.calls}; use a multiple of 4 (of terms, where calls=None)"
            )
        if self.cut not in _CUTS:
            raise ValueError(f"cut={self.cut!r} is not known; use one of {', '.join(_CUTS)}")
        if self.order not in _ORDERS:
            raise ValueError(f"order={self.order!r} is not known; use one of {', '.join(_ORDERS)}")
        if self.window is not None and not 1 <= self.window <= 48:
            raise ValueError(f"window={self.window} is out of range; use 1 to 48, or None (exact)")
        # Units of blocks have loops of their own, which round down too.
        modes = (RNE, RTZ, RTN) if self.takes_blocks else (RNE, RTZ)
        if self.rounding not in modes:
            names = " or ".join(map(repr, modes))
            raise ValueError(f"rounding={self.rounding!r} of an accumulator; use {names}")
        object.__setattr__(self, "evidence", MappingProxyType(dict(self.evidence)))

    def __hash__(self) -> int:
        return hash(self.name)

    def __reduce__(self) -> tuple[Callable[..., MatrixUnit], tuple[object, ...]]:
        """Its arguments again: the evidence is a view, which cannot be pickled."""
        arguments = (getattr(self, f.name) for f in fields(self))
        return _unit, tuple(dict(v) if isinstance(v, MappingProxyType) else v for v in arguments)

    def _check_kinds(self) -> None:
        if not isinstance(self.evidence, Mapping):
            raise TypeError(f"evidence={self.evidence!r} is no mapping; give facts by field")
        if not isinstance(self.inputs, (tuple, list)):
            raise TypeError(f"inputs={self.inputs!r} are no formats; give a tuple of them")
        if not self.inputs:
            raise ValueError(f"unit {self.name} has inputs=(); give the formats that it takes")
        formats: dict[str, Any] = {"inputs": tuple(_format("inputs", f) for f in self.inputs)}
        for name in ("partials", "accumulator", "join"):
            fmt = getattr(self, name)
            optional = fmt is None and name in ("accumulator", "join")
            formats[name] = None if optional else _format(name, fmt)
        for name, value in formats.items():
            object.__setattr__(self, name, value)

    def _check_formats(self) -> None:
        """Numbers of a unit are binary32 numbers; sums may be infinite, partials NaN."""
        for fmt in (*self.inputs, self.partials, self.accumulator, self.join):
            if fmt is not None and fmt.carrier != BINARY32.carrier:
                raise ValueError(
                    f"unit {self.name} has {fmt}; units work on formats that binary32 holds"
                )
        sums = {"accumulator": self.accumulator, "join": self.join}
        if self.products is not None:
            sums["format of rounded products"] = self.products
        for name, fmt in sums.items():
            if fmt is not None and not fmt.has_infinity:
                raise ValueError(
                    f"unit {self.name} has {name} {fmt}, which has no infinity for what overflows; "
                    "use a format with specials='ieee'"
                )
        if not self.partials.has_nan:
            raise ValueError(
                f"unit {self.name} has partials={self.partials}, which has no NaN for inf - inf; "
                "use a format with one"
            )

    @cached_property
    def chain(self) -> int:
        """Calls between which nothing is stored and that K is padded to a multiple of."""
        return 1 if self.calls is None else self.calls

    @cached_property
    def channels(self) -> int:
        """Products of one pass; K is padded with zeros to a multiple."""
        return self.terms * self.chain

    @property
    def takes_blocks(self) -> bool:
        """Whether operands are blocks (`fpsim.records.scaled_units`)."""
        return False

    @property
    def emitted(self) -> Format:
        """Format of the sum that a pass leaves, before it is stored as a partial."""
        return self.join or self.accumulator

    @cached_property
    def stores(self) -> bool:
        """Whether the context rounds sums into the partials, which do not hold all of them."""
        return not _holds(self.partials, self.emitted)

    @property
    def products(self) -> Format | None:
        """The format that products are rounded to first; None where they enter exact."""
        if not self.product_rounded:
            return None
        return self.accumulator if self.window is None else self.partials

    @property
    def family(self) -> str:
        """The name without partials and preset."""
        return self.name.partition(".")[0].rpartition("_")[0]

    @property
    def facts(self) -> dict[str, Fact]:
        """The constants with their evidence.

        >>> print(find_unit("A100_BF16_F32").facts["window"])
        24 (MEASURED: recorded results, MATLAB-tensor-core b12b5a7)
        """
        return {name: Fact(getattr(self, name), *facts) for name, facts in self.evidence.items()}

    @property
    def weakest_evidence(self) -> Evidence:
        """What a number that went through this unit rests on."""
        return weakest(self.facts.values())

    def __str__(self) -> str:
        return self.name

    def _repr_html_(self) -> str:
        """How a notebook shows it."""
        return table(self.facts, self.name)


def _unit(*arguments: Any) -> MatrixUnit:
    """A unit from all of its fields, in their order."""
    return MatrixUnit(*arguments)


def _format(name: str, fmt: Format | str) -> Format:
    try:
        return find_number_format(fmt, name)
    except TypeError:
        raise TypeError(f"{name}={fmt!r} is no format; give one, as BINARY16") from None


def _holds(wide: Format, fmt: Format) -> bool:
    """Whether every value of a format with infinities is one of another format too."""
    last = fmt.emin - fmt.precision + 1
    return (
        wide.has_infinity
        and wide.precision >= fmt.precision
        and wide.emax >= fmt.emax
        and wide.emin - wide.precision + 1 <= last
    )


#: Every registered unit whose operands are numbers, by name.
UNITS: dict[str, MatrixUnit] = {}
#: Every one whose operands are blocks.
SCALED_UNITS: dict[str, MatrixUnit] = {}

#: Earlier names of units: rows of mma.sync, which B200's libraries do not use for these formats.
_EARLIER = {
    f"B200_{inputs}_{partials}": f"B200_MMA_{inputs}_{partials}"
    for inputs in ("E4M3", "E5M2") for partials in ("F32", "F16")
}


def register(units: Iterable[MatrixUnit]) -> None:
    """Make units known by name; a name is registered once."""
    for unit in units:
        if UNITS.setdefault(unit.name, unit) != unit:
            raise ValueError(f"unit {unit.name} is registered already; choose another name")


@cache
def _import_registering() -> None:
    """Import the modules that installed packages name as those that register units."""
    for module in entry_points(group="fpsim.units"):
        module.load()


def find_unit(unit: str | MatrixUnit) -> MatrixUnit:
    """The unit of that name (case ignored); without a suffix its default preset.

    Where no imported module has registered it, those are imported that installed packages name in
    the group `fpsim.units` of their entry points.

    >>> find_unit("v100_f16_f32").window
    23
    >>> find_unit("V100_F16")
    Traceback (most recent call last):
    ...
    ValueError: unit='V100_F16' is not known. Did you mean 'V100_F16_F32'? See: fpsim list units;
    units of another package are known once that package is imported.
    """
    if isinstance(unit, MatrixUnit):
        return unit
    if not isinstance(unit, str):
        raise TypeError(f"unit={unit!r} is not a MatrixUnit; use a name, see: fpsim list units")
    family, dot, preset = unit.partition(".")
    key = family.upper() + dot + preset.lower()
    key = key.removesuffix(".window")
    key = _EARLIER.get(key, key)
    if key not in UNITS and key not in SCALED_UNITS:
        _import_registering()
    if key in UNITS:
        return UNITS[key]
    if key in SCALED_UNITS:
        return SCALED_UNITS[key]
    close = difflib.get_close_matches(key, [*UNITS, *SCALED_UNITS], 1, 0.5)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    raise ValueError(
        f"unit={unit!r} is not known.{hint} See: fpsim list units; "
        "units of another package are known once that package is imported."
    )


def with_partials(unit: MatrixUnit, partials: Format | str | None) -> MatrixUnit:
    """The member of a unit's family with these partials and the same preset; None: the unit."""
    if partials is None:
        return unit
    fmt = find_number_format(partials, "partials")
    if fmt == unit.partials:
        return unit
    family = [u for u in UNITS.values() if u.family == unit.family and u.preset == unit.preset]
    for member in family:
        if member.partials == fmt:
            return member
    raise ValueError(
        f"partials={fmt} is not offered by {unit.family}; "
        f"use {' or '.join(str(u.partials) for u in family)}"
    )
