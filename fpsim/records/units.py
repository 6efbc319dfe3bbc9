"""Matrix units as records: how one instruction aligns, cuts, sums and rounds.

A unit call adds `terms` exact products and an accumulator: every addend is cut to `window` fraction
digits below the largest exponent (or not cut), the sum is exact and is rounded once. Calls are
chained, a pass of several calls ends with a store of the partial result. `fpsim.linalg` runs any
record; the ones here are NVIDIA's tensor cores, those of the IPU are in `ipu.machine`.

Modelled                       source
V100 F16, A100 BF16, Ada E4M3  recorded results (MATLAB-tensor-core, model_validation, commit
                               b12b5a7): bit-equal in 5000 of 5000 rows of each set
other inputs of A100 and Ada;  the same model with the constants of the family (MMA-Sim, commit
T4, A2, L40S, H100, H200, B200 c785138; Khattak & Mikaitis); no recordings among the vectors that
                               tests read
H100, H200, B200 with FP8 and  our inference from their recordings
separate addition of c

Where sources disagree: MMA-Sim has TF32 calls of 8 terms from H100 on, the recordings hold 4; the
recordings are followed. T4 was not measured with 8 terms and follows MMA-Sim's Turing row.

Source    docs/semantics.md §5; Fasi, Higham, Mikaitis & Pranesh 2021 (V100, T4, A100).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from fpsim.records.evidence import Evidence, Fact, weakest
from fpsim.records.formats import (
    BFLOAT16,
    BINARY16,
    BINARY32,
    E4M3FN,
    E5M2,
    TF32,
    Format,
)  # fmt: skip
from fpsim.records.rounding import RNE, RTZ, Rounding

__all__ = ["UNITS", "MatrixUnit", "find_unit", "register", "with_partials"]

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
    order           `ascending`, or `pairs`: in a pass the terms with bit 1 of k clear come first.
    join            None: the partial enters the first call. A format: a pass starts from zero and
                    its partial is added afterwards, rounded to nearest even in this format.
    product_rounded products are rounded to the accumulator's format before they are added.
    evidence        for each constant, how it is known and from where.
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
        self._check_formats()
        for name in ("terms", "window", "calls", "taps"):
            value = getattr(self, name)
            optional = value is None and name in ("window", "calls")
            if not optional and (isinstance(value, bool) or not isinstance(value, int)):
                raise TypeError(f"{name}={value!r} is no whole number; give an integer")
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
        if self.cut not in _CUTS:
            raise ValueError(f"cut={self.cut!r} is not known; use one of {', '.join(_CUTS)}")
        if self.order not in _ORDERS:
            raise ValueError(f"order={self.order!r} is not known; use one of {', '.join(_ORDERS)}")
        if self.window is not None and not 1 <= self.window <= 48:
            raise ValueError(f"window={self.window} is out of range; use 1 to 48, or None (exact)")
        if self.rounding not in (RNE, RTZ):
            raise ValueError(f"rounding={self.rounding!r} of an accumulator; use RNE or RTZ")
        object.__setattr__(self, "evidence", MappingProxyType(dict(self.evidence)))

    def _check_formats(self) -> None:
        """Every number of a unit must be a binary32 number too."""
        for fmt in (*self.inputs, self.partials, self.accumulator, self.join):
            if fmt is not None and fmt.carrier != BINARY32.carrier:
                raise ValueError(
                    f"unit {self.name} has {fmt}; units work on formats that binary32 holds"
                )

    @property
    def chain(self) -> int:
        """Calls between which nothing is stored and that K is padded to a multiple of."""
        return 1 if self.calls is None else self.calls

    @property
    def channels(self) -> int:
        """Products of one pass; K is padded with zeros to a multiple."""
        return self.terms * self.chain

    @property
    def emitted(self) -> Format:
        """Format of the sum that a pass leaves, before it is stored as a partial."""
        return self.join or self.accumulator

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
        return {name: Fact(getattr(self, name), *known) for name, known in self.evidence.items()}

    @property
    def weakest_evidence(self) -> Evidence:
        """What a number that went through this unit rests on."""
        return weakest(self.facts.values())

    def __str__(self) -> str:
        return self.name


#: How names of units begin that another package registers.
_OF_THE_IPU = ("AMP_", "SLIC_", "VMAC_")

#: Every registered unit, by name.
UNITS: dict[str, MatrixUnit] = {}


def register(units: Iterable[MatrixUnit]) -> None:
    """Make units known by name; a name is given once."""
    for unit in units:
        if UNITS.setdefault(unit.name, unit) != unit:
            raise ValueError(f"unit {unit.name} is registered already; choose another name")


def find_unit(unit: str | MatrixUnit) -> MatrixUnit:
    """The unit of that name (case ignored); without a suffix its default preset.

    >>> find_unit("v100_f16_f32").window
    23
    >>> find_unit("V100_F16")
    Traceback (most recent call last):
    ...
    ValueError: unit='V100_F16' is not known. Did you mean 'V100_F16_F32'? See: fpsim list units
    """
    if isinstance(unit, MatrixUnit):
        return unit
    if not isinstance(unit, str):
        raise TypeError(f"unit={unit!r} is not a MatrixUnit; use a name, see: fpsim list units")
    family, dot, preset = unit.partition(".")
    key = family.upper() + dot + preset.lower()
    key = key.removesuffix(".window")
    if key in UNITS:
        return UNITS[key]
    if key.startswith(_OF_THE_IPU) and not any(n.startswith(_OF_THE_IPU) for n in UNITS):
        raise ValueError(
            f"unit={unit!r} is not known yet. Units of the IPU come with: import ipu.machine"
        )
    close = difflib.get_close_matches(key, UNITS, 1, 0.5)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    raise ValueError(f"unit={unit!r} is not known.{hint} See: fpsim list units")


def with_partials(unit: MatrixUnit, partials: Format | None) -> MatrixUnit:
    """The member of a unit's family with these partials and the same preset; None: the unit."""
    if partials is None or partials == unit.partials:
        return unit
    family = [u for u in UNITS.values() if u.family == unit.family and u.preset == unit.preset]
    for member in family:
        if member.partials == partials:
            return member
    raise ValueError(
        f"partials={partials} is not offered by {unit.family}; "
        f"use {' or '.join(str(u.partials) for u in family)}"
    )


# NVIDIA ---------------------------------------------------------------------------------------

_RECORDED = (Evidence.MEASURED, "recorded results, MATLAB-tensor-core b12b5a7")
_PUBLISHED = (Evidence.INFERRED, "MMA-Sim c785138 and Khattak & Mikaitis, not recorded here")
_TURING = (Evidence.INFERRED, "MMA-Sim c785138, Turing; Fasi et al. 2021 measured 4 terms or more")
_GUESSED = (Evidence.INFERRED, "our reading of recordings: even pairs, odd pairs, then c")
_DISPUTED = (Evidence.INFERRED, "4 in recordings, not read here; 8 in MMA-Sim c785138")
_CONSTANTS = ("terms", "window", "cut", "accumulator", "rounding", "order", "join")

#: The result of FP8 instructions whose binary32 results keep 13 fraction digits.
BINARY32_SHORT = Format.custom(8, 14, name="binary32/13")

_INPUTS = {"F16": BINARY16, "BF16": BFLOAT16, "TF32": TF32, "E4M3": E4M3FN, "E5M2": E5M2}
_SHORT = {BINARY32: "F32", BINARY16: "F16"}

#: Machine and inputs of the recorded sets that tests reproduce.
_REPRODUCED = {("V100", "F16"), ("A100", "BF16"), ("ADA", "E4M3")}
_HOPPER_AND_LATER = ("H100", "H200", "B200")


def _evidence(machine: str, inputs: str) -> dict[str, tuple[Evidence, str]]:
    """What each constant of a row rests on."""
    known = _TURING if machine == "T4" else _PUBLISHED
    found = dict.fromkeys(_CONSTANTS, _RECORDED if (machine, inputs) in _REPRODUCED else known)
    if inputs == "TF32" and machine in _HOPPER_AND_LATER:
        found["terms"] = _DISPUTED
    return found


def _tensor_core(
    machine: str, inputs: str, partials: Format, terms: int, window: int, instruction: str = "mma"
) -> MatrixUnit:  # fmt: skip
    """A row of the table: toward zero into binary32, to nearest even into binary16."""
    return MatrixUnit(
        name=f"{machine}_{inputs}_{_SHORT[partials]}",
        instruction=f"{machine} tensor core, {instruction}, {inputs.lower()} to {partials.name}",
        inputs=(_INPUTS[inputs],),
        partials=partials,
        terms=terms,
        window=window,
        accumulator=partials,
        rounding=RNE if partials == BINARY16 else RTZ,
        evidence=_evidence(machine, inputs),
    )


def _short(unit: MatrixUnit) -> MatrixUnit:
    """The same with binary32 results of 13 fraction digits."""
    return replace(unit, accumulator=BINARY32_SHORT) if unit.partials == BINARY32 else unit


def _paired(unit: MatrixUnit) -> MatrixUnit:
    """Two calls chained from zero over the even and the odd pairs of terms, then c added."""
    return replace(
        unit, calls=2, accumulator=BINARY32, rounding=RTZ, order="pairs", join=unit.partials,
        evidence=dict.fromkeys(_CONSTANTS, _GUESSED),
    )  # fmt: skip


def _half_inputs(machine: str, terms: int, window: int, wide: bool = True) -> list[MatrixUnit]:
    rows = [_tensor_core(machine, "F16", p, terms, window) for p in (BINARY32, BINARY16)]
    if wide:
        rows.append(_tensor_core(machine, "BF16", BINARY32, terms, window))
        rows.append(_tensor_core(machine, "TF32", BINARY32, 4, window))
    return rows


def _eight_bit_inputs(machine: str) -> list[MatrixUnit]:
    rows = []
    for inputs in ("E4M3", "E5M2"):
        for partials in (BINARY32, BINARY16):
            if machine in ("ADA", "L40S"):
                row = _short(_tensor_core(machine, inputs, partials, 16, 13))
            elif machine != "B200" and partials == BINARY32:
                row = _short(_tensor_core(machine, inputs, partials, 32, 13, "wgmma"))
            else:
                row = _paired(_tensor_core(machine, inputs, partials, 16, 25))
            rows.append(row)
    return rows


register(_half_inputs("V100", 4, 23, wide=False))
register(_half_inputs("T4", 8, 24, wide=False))
for _machine in ("A100", "A2", "ADA", "L40S"):
    register(_half_inputs(_machine, 8, 24))
for _machine in _HOPPER_AND_LATER:
    register(_half_inputs(_machine, 16, 25))
for _machine in ("ADA", "L40S", *_HOPPER_AND_LATER):
    register(_eight_bit_inputs(_machine))
