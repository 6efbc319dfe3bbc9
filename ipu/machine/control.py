"""$FP_CTL and $FP_STS: the only place that knows how the IPU's registers meet IEEE 754's flags.

`FpCtl` holds the control bits, `FpSts` the three status bits, both as the 32-bit words of the
machine. `choices` turns control bits into the neutral choices of a `Context`, `status` turns the
flags that an operation raised into status bits. `RULES` says what each translation rests on.

Sources disagree on an infinite f32 operand of a cast to f16: the maker's host reference propagates
it but is unreliable elsewhere, so propagation is ASSUMED here.

Source    Poplar's FloatingPointBehaviour (what raises what); the framework's hardware tests of the
          control bits (results); Saghetti0's reverse-engineered constants (bit positions);
          US 11169777 and US 11169778 (overflow and stochastic rounding); docs/semantics.md §6.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cache
from typing import Any

from fpsim.records.evidence import Evidence, Fact
from fpsim.records.flags import Flags
from fpsim.records.formats import (
    BFLOAT16,
    BINARY16,
    BINARY32,
    BINARY64,
    F143,
    F152,
    Format,
    find_number_format,
)
from fpsim.records.rounding import RNA, RNE, RTN, RTP, RTZ, SR, Rounding

__all__ = [
    "ALL_ON", "DENORMALS", "FRAMEWORK_DEFAULT", "POPART_CHECKS", "POPLAR_STRUCT_DEFAULT",
    "POWER_ON", "ROUNDINGS", "RULES", "FpCtl", "FpSts", "choices", "dump", "status",
    "status_words", "traps",
]

RULES: dict[str, Fact] = {
    "bit positions": Fact(
        "INV 0, DIV0 1, OFLO 2, RND 18:16, ESR 19, NANOO 20", Evidence.INFERRED,
        "Saghetti0/graphcore-ipu-research, reverse-engineered constants",
    ),
    "power-on value": Fact("all bits 0", Evidence.ASSUMED, "frameworks default to all off"),
    "RND codes": Fact(
        "0 RNE, 1 RTP, 2 RTN, 3 RTZ, 4 RNA", Evidence.ASSUMED,
        "poplibs uses 3 toward zero and 2 toward minus infinity; 1 and 4 are assumed",
    ),
    "f16 overflow": Fact(
        "65504 and OFLO; with NANOO, NaN and OFLO + INV", Evidence.MEASURED,
        "TensorFlow plugin, floating_point_control_bits_test.py",
    ),
    "f16 division by zero": Fact(
        "NaN and DIV0", Evidence.MEASURED, "TensorFlow plugin, floating_point_control_bits_test.py"
    ),
    "f32 division by zero": Fact(
        "infinity and DIV0", Evidence.MEASURED,
        "TensorFlow plugin, floating_point_control_bits_test.py",
    ),
    "f16 infinite input": Fact("kept", Evidence.ASSUMED, "docs/semantics.md §6"),
    "f8 overflow": Fact(
        "largest value, or NaN with NANOO; infinite and NaN inputs give NaN", Evidence.DOCUMENTED,
        "poplibs, QuarterTypeArithmeticTests.cpp",
    ),
    "f32 denormals": Fact(
        "operands and results flushed to zero", Evidence.INFERRED, "poplibs, LossTransform.S"
    ),
    "quiet NaN": Fact(
        "every operation that reads a NaN raises INV", Evidence.DOCUMENTED,
        "Poplar, FloatingPointBehaviour",
    ),
    "random bits": Fact(
        "SR(bits=13, subnormal_bits=16)", Evidence.ASSUMED,
        "US 11169778: 13 digits are dropped from f32 to f16; a lane owns 16 bits",
    ),
}

#: Rounding by the RND field.
ROUNDINGS: dict[int, Rounding] = {0: RNE, 1: RTP, 2: RTN, 3: RTZ, 4: RNA}

#: How binary32 subnormals are treated, by the switch `f32_denormals`.
DENORMALS = {"flush": "flush_both", "ieee": "keep"}

#: Stochastic rounding when ESR is on; binary32 results are never rounded stochastically.
STOCHASTIC: dict[Format, Rounding] = {
    BINARY16: SR(bits=13, subnormal_bits=16),
    F143: SR(bits=13, subnormal_bits=16),
    F152: SR(bits=13, subnormal_bits=16),
    BFLOAT16: SR(bits=16),
}

#: Formats whose overflow follows NANOO.
_NARROW = (BINARY16, F143, F152)


@dataclass(frozen=True)
class FpCtl:
    """The control register: which exceptions stop the machine, how results are rounded.

    inv, div0, oflo    trap on invalid operation, division by zero, overflow.
    rnd                rounding mode, a key of `ROUNDINGS`; 0 in every program of the frameworks.
    esr                stochastic rounding of binary16 (and quarter) results.
    nanoo              NaN on overflow; off, overflow saturates.

    >>> hex(FpCtl(oflo=True, esr=True).word)
    '0x80004'
    >>> FpCtl.from_word(0x100001)
    FpCtl(inv=True, div0=False, oflo=False, rnd=0, esr=False, nanoo=True)
    """

    inv: bool = False
    div0: bool = False
    oflo: bool = False
    rnd: int = 0
    esr: bool = False
    nanoo: bool = False

    def __post_init__(self) -> None:
        for name in ("inv", "div0", "oflo", "esr", "nanoo"):
            if not isinstance(getattr(self, name), bool):
                raise TypeError(f"{name}={getattr(self, name)!r} is not a bit; use True or False")
        if isinstance(self.rnd, bool) or self.rnd not in ROUNDINGS:
            modes = ", ".join(f"{code} ({mode})" for code, mode in ROUNDINGS.items())
            raise ValueError(f"rnd={self.rnd!r} is not a rounding mode; use {modes}")

    @property
    def word(self) -> int:
        """The 32-bit register."""
        return sum(int(getattr(self, f.name)) << _CONTROL_BITS[f.name] for f in fields(self))

    @classmethod
    def from_word(cls, word: int) -> FpCtl:
        """The register read; bits outside its fields must be 0.

        Raises    ValueError for other bits and for an unknown RND code.
        """
        values: dict[str, Any] = {
            name: bool(word >> bit & 1) for name, bit in _CONTROL_BITS.items() if name != "rnd"
        }
        register = cls(rnd=word >> _CONTROL_BITS["rnd"] & 7, **values)
        if register.word != word:
            raise ValueError(f"word={word:#x} has bits outside the fields of $FP_CTL; clear them")
        return register


_CONTROL_BITS = {"inv": 0, "div0": 1, "oflo": 2, "rnd": 16, "esr": 19, "nanoo": 20}


@dataclass(frozen=True)
class FpSts:
    """The status register: what has happened since it was cleared.

    >>> FpSts(oflo=True).word, FpSts.from_word(5)
    (4, FpSts(inv=True, div0=False, oflo=True))
    """

    inv: bool = False
    div0: bool = False
    oflo: bool = False

    @property
    def word(self) -> int:
        """The 32-bit register."""
        return self.inv | self.div0 << 1 | self.oflo << 2

    @classmethod
    def from_word(cls, word: int) -> FpSts:
        """The register read."""
        if word & ~7:
            raise ValueError(f"word={word:#x} has bits outside INV, DIV0 and OFLO; clear them")
        return cls(bool(word & 1), bool(word & 2), bool(word & 4))

    def __or__(self, other: FpSts) -> FpSts:
        return FpSts.from_word(self.word | other.word)


POWER_ON = FRAMEWORK_DEFAULT = FpCtl()
#: A default-constructed Poplar FloatingPointBehaviour traps; its ESR and NANOO are not known.
POPLAR_STRUCT_DEFAULT = FpCtl(inv=True, div0=True, oflo=True)
POPART_CHECKS = FpCtl(inv=True, div0=True, oflo=True, nanoo=True)
ALL_ON = FpCtl(inv=True, div0=True, oflo=True, esr=True, nanoo=True)


def choices(
    control: FpCtl, fmt: Format | str, f32_denormals: str = "flush"
) -> dict[str, Any]:
    """Arguments of the `Context` that computes in fmt under these control bits.

    >>> from fpsim.records.formats import BINARY16
    >>> rules = choices(FpCtl(nanoo=True), BINARY16)
    >>> rules["overflow"], rules["divide_by_zero"], rules["rounding"]
    ('nan', 'nan', RNE)
    """
    if not isinstance(f32_denormals, str) or f32_denormals not in DENORMALS:
        raise ValueError(
            f"f32_denormals={f32_denormals!r} is not known; use one of {', '.join(DENORMALS)}"
        )
    fmt = find_number_format(fmt, "fmt")
    if fmt == BINARY64:
        return {"traps": Flags.NONE}  # the processor's own arithmetic has no choices
    rules: dict[str, Any] = {
        "rounding": ROUNDINGS[control.rnd],
        "quiet_nan_raises": True,
        "traps": traps(control, fmt),
    }
    if control.esr and fmt in STOCHASTIC:
        rules["rounding"] = STOCHASTIC[fmt]
    if fmt in _NARROW:
        rules["overflow"] = "nan" if control.nanoo else "saturate"
        rules["infinite_input"] = "keep" if fmt.has_infinity else "nan"
        rules["divide_by_zero"] = "nan"
    if fmt == BINARY32:
        rules["subnormals"] = DENORMALS[f32_denormals]
    return rules


def traps(control: FpCtl, fmt: Format | str) -> Flags:
    """Flags that stop an operation in fmt.

    With NANOO an overflow is an invalid operation too, so INV alone catches it.

    >>> from fpsim.records.formats import BINARY16, BINARY32
    >>> control = FpCtl(inv=True, nanoo=True)
    >>> traps(control, BINARY16).names, traps(control, BINARY32).names
    (['INVALID', 'OVERFLOW'], ['INVALID'])
    """
    fmt, armed = find_number_format(fmt, "fmt"), Flags.NONE
    if control.inv:
        armed |= Flags.INVALID
    if control.div0:
        armed |= Flags.DIVBYZERO
    if control.oflo or (control.inv and _overflow_is_invalid(control, fmt)):
        armed |= Flags.OVERFLOW
    return armed


def status(flags: Flags, control: FpCtl, fmt: Format | str) -> FpSts:
    """Status bits of flags raised in fmt; underflow and inexact have none.

    >>> from fpsim.records.formats import BINARY16
    >>> status(Flags.OVERFLOW | Flags.INEXACT, FpCtl(nanoo=True), BINARY16)
    FpSts(inv=True, div0=False, oflo=True)
    """
    fmt, overflow = find_number_format(fmt, "fmt"), bool(flags & Flags.OVERFLOW)
    invalid = bool(flags & Flags.INVALID) or (overflow and _overflow_is_invalid(control, fmt))
    return FpSts(invalid, bool(flags & Flags.DIVBYZERO), overflow)


@cache
def status_words(control: FpCtl, fmt: Format | str) -> tuple[int, ...]:
    """The word of `status` for every set of flags, by their integer.

    >>> from fpsim.records.formats import BINARY16
    >>> status_words(FpCtl(nanoo=True), BINARY16)[int(Flags.OVERFLOW)]
    5
    """
    count = 2 * max(int(flag) for flag in Flags)
    return tuple(status(Flags(flags), control, fmt).word for flags in range(count))


def _overflow_is_invalid(control: FpCtl, fmt: Format) -> bool:
    return control.nanoo and fmt in _NARROW


def dump(control: FpCtl, state: FpSts) -> str:
    """Both registers as text, one field after the other.

    >>> print(dump(FpCtl(oflo=True), FpSts(oflo=True)))
    $FP_CTL 0x00000004  INV 0x0  DIV0 0x0  OFLO 0x1  RND 0x0  ESR 0x0  NANOO 0x0
    $FP_STS 0x00000004  INV 0x0  DIV0 0x0  OFLO 0x1
    """
    lines = []
    for name, register in (("$FP_CTL", control), ("$FP_STS", state)):
        shown = [f"{f.name.upper()} {int(getattr(register, f.name)):#x}" for f in fields(register)]
        lines.append("  ".join([f"{name} {register.word:#010x}", *shown]))
    return "\n".join(lines)
