"""Number formats as records: what each holds, and the catalogue of those with a name.

A `Format` says which values exist; how results are rounded into it is a `Rounding`, what happens
beyond its range an overflow policy. Both are chosen in a `Context`.

Source    IEEE 754-2019 §3.3 (binary16/32/64); OCP OFP8 1.0 (E4M3FN, E5M2); OCP MX 1.0 (E2M1FN,
          E2M3FN, E3M2FN, E8M0); Noune et al., arXiv 2206.02915
          (F143 = E4M3FNUZ, F152 = E5M2FNUZ); NVIDIA's A100 white paper (TF32).
"""

from __future__ import annotations

import difflib
import math
import struct
from dataclasses import dataclass, field
from functools import cached_property

import ml_dtypes
import numpy as np
from numpy.typing import DTypeLike

from fpsim.records.drawings import draw_format

__all__ = [
    "BFLOAT16",
    "BINARY16",
    "BINARY32",
    "BINARY64",
    "CATALOGUE",
    "E1M6",
    "E2M1FN",
    "E2M3FN",
    "E3M2FN",
    "E4M3",
    "E4M3FN",
    "E5M2",
    "E8M0",
    "F143",
    "F152",
    "P3109",
    "TF32",
    "UE4M3",
    "UE5M3",
    "Format",
    "ScaleFormat",
    "find_format",
    "find_number_format",
]

#: How the codes beyond the ordinary numbers are used.
SPECIALS = {
    "ieee": "top exponent holds infinity and NaN",
    "fn": "no infinity; the all-ones code of either sign is NaN",
    "fnuz": "no infinity, one zero; the code of -0 is the only NaN",
    "extended": "one zero; the code of -0 is the only NaN, the all-ones codes are infinities",
    "finite": "neither infinity nor NaN",
}


#: Those whose code of -0 is the only NaN.
_ONE_ZERO = ("fnuz", "extended")


#: The reference, beyond the limits of the others: the processor computes in it.
_NATIVE = ("binary64", 11, 53, 1023, "ieee")


def _power_of_two(exponent: int) -> float:
    """From its bits: ldexp gives 0 for a subnormal one where the thread flushes results.

    >>> _power_of_two(-1022) / 2 == _power_of_two(-1023), _power_of_two(-1074)
    (True, 5e-324)
    """
    bits = exponent + 1023 << 52 if exponent > -1023 else 1 << exponent + 1074
    return float(struct.unpack("<d", struct.pack("<Q", bits))[0])


def _check_integer(label: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{label}={value!r} is not an integer; give a whole number")


def _check_widths(exponent_bits: int, precision: int, specials: str) -> None:
    _check_integer("exponent_bits", exponent_bits)
    _check_integer("precision", precision)
    if not 2 <= precision <= 26:
        raise ValueError(f"precision={precision} is out of range; use 2 to 26 (hidden bit in)")
    # IEEE's top exponent holds no numbers: with one bit there would be no normal ones.
    least = 2 if specials == "ieee" else 1
    if not least <= exponent_bits <= 11:
        raise ValueError(f"exponent_bits={exponent_bits} is out of range; use {least} to 11")


@dataclass(frozen=True)
class Format:
    """A binary floating-point format: sign, `exponent_bits`, and `precision` digits.

    `precision` counts the hidden bit. A value is m * 2**(e - precision + 1) with
    0 <= m < 2**precision and emin <= e <= emax.

    specials    codes that are no numbers: `ieee` has infinities and NaNs, `fn` one NaN of each sign
                and no infinity, `fnuz` one NaN in place of -0, `extended` the same and infinities,
                `finite` has none.
    storage     a packed type of numpy, where there is one.

    >>> BINARY16.max, BINARY16.smallest_normal == 2**-14, BINARY16.smallest_subnormal == 2**-24
    (65504.0, True, True)
    >>> E4M3FN.max, F143.max, F152.max
    (448.0, 240.0, 57344.0)
    """

    name: str
    exponent_bits: int
    precision: int
    bias: int
    specials: str = "ieee"
    storage: np.dtype | None = field(default=None, compare=False)
    source: str = field(default="", compare=False)

    @classmethod
    def custom(
        cls,
        exponent_bits: int,
        precision: int,
        *,
        bias: int | None = None,
        specials: str = "ieee",
        name: str | None = None,
    ) -> Format:
        """A format of your own, within the limits in which every operation is exact inside.

        Raises    ValueError outside 2 <= precision <= 26, exponent_bits >= 2,
                  2*(emin - precision + 1) >= -968, 2*emax <= 1020 (docs/semantics.md §3).

        >>> Format.custom(6, 10).max
        4290772992.0
        """
        if not isinstance(specials, str):
            raise TypeError(f"specials={specials!r} is not known; use one of {', '.join(SPECIALS)}")
        _check_widths(exponent_bits, precision, specials)
        if bias is None:
            bias = (1 << (exponent_bits - 1)) - (0 if specials in _ONE_ZERO else 1)
        if name is not None and not isinstance(name, str):
            raise TypeError(f"name={name!r} is not a name; give a text, or None")
        name = name or f"e{exponent_bits}m{precision - 1}{'' if specials == 'ieee' else specials}"
        return cls(name, exponent_bits, precision, bias, specials)

    def widest(self) -> Format:
        """The same digits with the widest exponent range that there is, 2**-254 to 2**256.

        What neither overflows nor underflows in it is what an unlimited exponent would give: its
        flags OVERFLOW and UNDERFLOW tell.

        >>> from fpsim.records.formats import E4M3FN
        >>> wide = E4M3FN.widest()
        >>> wide.precision, wide.smallest_normal == 2.0**-254, wide.max > 2.0**255
        (4, True, True)
        """
        return Format.custom(9, self.precision, name=f"{self.name}.widest")

    def __post_init__(self) -> None:
        widths = {"exponent_bits": self.exponent_bits, "precision": self.precision}
        if (self.name, *widths.values(), self.bias, self.specials) == _NATIVE:
            return
        _check_widths(**widths, specials=self.specials)
        _check_integer("bias", self.bias)
        if not isinstance(self.specials, str) or self.specials not in SPECIALS:
            raise ValueError(
                f"specials={self.specials!r} is not known; use one of {', '.join(SPECIALS)}"
            )
        for label, value in (widths | {"bias": self.bias}).items():
            object.__setattr__(self, label, int(value))
        if 2 * (self.emin - self.precision + 1) < -968 or 2 * self.emax > 1020:
            raise ValueError(
                f"exponent_bits={self.exponent_bits}, bias={self.bias} reach from 2**{self.emin} "
                f"to 2**{self.emax}; products must stay inside binary64, so use fewer exponent "
                f"bits or another bias (2*(emin-precision+1) >= -968, 2*emax <= 1020)"
            )

    # Every operation compares formats and looks contexts up by them: mostly one object with itself.

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Format):
            return NotImplemented
        return self.name == other.name and self._compared == other._compared

    def __hash__(self) -> int:
        return hash(self.name)

    @cached_property
    def _compared(self) -> tuple[str, int, int, int, str]:
        return self.name, self.exponent_bits, self.precision, self.bias, self.specials

    # Range, named as numpy's finfo names it -------------------------------------------------

    @cached_property
    def emin(self) -> int:
        """Exponent of the smallest normal value."""
        return 1 - self.bias

    @cached_property
    def emax(self) -> int:
        """Exponent of the largest finite value."""
        top = (1 << self.exponent_bits) - 1
        return top - self.bias - (1 if self.specials == "ieee" else 0)

    @cached_property
    def max(self) -> float:
        """Largest finite value."""
        # The all-ones code is NaN or an infinity there, so the largest significand is even.
        top = (1 << self.precision) - (2 if self.specials in ("fn", "extended") else 1)
        return math.ldexp(top, self.emax - self.precision + 1)

    @property
    def min(self) -> float:
        """Smallest (most negative) finite value."""
        return -self.max

    @cached_property
    def smallest_normal(self) -> float:
        """2**emin."""
        return _power_of_two(self.emin)

    @property
    def tiny(self) -> float:
        """numpy's older name of `smallest_normal`."""
        return self.smallest_normal

    @cached_property
    def smallest_subnormal(self) -> float:
        """The quantum of the subnormals, 2**(emin - precision + 1)."""
        return _power_of_two(self.emin - self.precision + 1)

    @cached_property
    def eps(self) -> float:
        """Distance from 1 to the next larger value."""
        return math.ldexp(1.0, 1 - self.precision)

    @property
    def bits(self) -> int:
        """Width of a code."""
        return self.exponent_bits + self.precision

    @property
    def nmant(self) -> int:
        """Stored fraction bits."""
        return self.precision - 1

    @property
    def n_codes(self) -> int:
        """Number of codes, 2**bits."""
        return 1 << self.bits

    @property
    def has_infinity(self) -> bool:
        """Whether there is an infinity; without one overflow gives what `overflow` says."""
        return self.specials in ("ieee", "extended")

    @property
    def has_nan(self) -> bool:
        """Whether there is a NaN."""
        return self.specials != "finite"

    @property
    def has_negative_zero(self) -> bool:
        """Whether zero has two signs."""
        return self.specials not in _ONE_ZERO

    @property
    def has_signalling_nan(self) -> bool:
        """FP8 NaNs are quiet; in wider IEEE-like formats a clear top fraction bit signals."""
        return self.specials == "ieee" and self.bits > 8

    def ulp(self, x: float) -> float:
        """Distance between neighbours at the magnitude of x (the quantum below `smallest_normal`).

        >>> BINARY16.ulp(1.0) == 2**-10, BINARY16.ulp(0.0) == 2**-24
        (True, True)
        """
        x = abs(float(x))
        if not math.isfinite(x):
            raise ValueError(f"x={x} has no ulp; give a finite number")
        exponent = math.frexp(x)[1] - 1 if x else self.emin
        return _power_of_two(max(exponent, self.emin) - self.precision + 1)

    # Holding values -------------------------------------------------------------------------

    @cached_property
    def carrier(self) -> np.dtype:
        """The native type in which every value of this format is held exactly."""
        fits = (
            self.precision <= 24
            and self.emax <= 127
            and self.emin >= -126
            and self.emin - self.precision + 1 >= -149
        )
        return np.dtype(np.float32 if fits else np.float64)

    @cached_property
    def packed(self) -> np.dtype:
        """Storage type of the codes: numpy's or ml_dtypes' own if there is one, else unsigned."""
        if self.storage is not None:
            return self.storage
        return self.code_dtype

    @cached_property
    def code_dtype(self) -> np.dtype:
        """Smallest unsigned integer that holds a code."""
        for dtype in (np.uint8, np.uint16, np.uint32):
            if self.bits <= np.dtype(dtype).itemsize * 8:
                return np.dtype(dtype)
        return np.dtype(np.uint64)

    @property
    def sr_bits_max(self) -> int:
        """Most random bits that SR may use here: min(32, 51 - precision)."""
        return min(32, 51 - self.precision)

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return (
            f"<Format {self.name}: {self.exponent_bits} exponent bits, precision {self.precision}>"
        )

    def _repr_html_(self) -> str:
        """How a notebook shows it."""
        return draw_format(self, SPECIALS[self.specials])


@dataclass(frozen=True)
class ScaleFormat:
    """A format of scales of blocks; it has no arithmetic of its own.

    number   the format whose codes without sign these are; None: powers of two, and one NaN.

    >>> E8M0.decode(127), E8M0.encode(3.0), UE4M3.decode(0x38), UE4M3.encode(1000.0)
    (1.0, 129, 1.0, 126)
    """

    name: str
    bits: int
    bias: int
    source: str = field(default="", compare=False)
    number: Format | None = None

    @property
    def n_codes(self) -> int:
        return 1 << (self.bits if self.number is None else self.number.bits - 1)

    @property
    def nan_code(self) -> int:
        return self.n_codes - 1

    @property
    def max(self) -> float:
        """Largest scale."""
        return self.decode(self.nan_code - 1)

    @property
    def min(self) -> float:
        """Smallest scale above zero."""
        return _power_of_two(-self.bias) if self.number is None else self.number.smallest_subnormal

    def encode(self, x: float) -> int:
        """Code of the nearest power of two, ties up; NaN where x is not a positive number in range.

        With digits to nearest even, and beyond the largest scale that one; NaN for what is
        negative or no number.

        >>> E8M0.encode(0.0), E8M0.encode(2.0**-130), UE4M3.encode(0.0)
        (255, 0, 0)
        """
        x = float(x)
        if self.number is not None:
            return self._nearest(x, self.number)
        if not x > 0 or math.isinf(x):
            return self.nan_code
        significand, exponent = math.frexp(x)
        power = exponent - 1 + (1 if significand >= 0.75 else 0)
        code = power + self.bias
        return self.nan_code if code >= self.nan_code else max(code, 0)

    def _nearest(self, x: float, number: Format) -> int:
        if not x >= 0:
            return self.nan_code
        if x >= number.max:
            return self.nan_code - 1
        if x == 0:
            return 0
        above = max(math.frexp(x)[1] - 1, number.emin) - number.emin
        quanta = round(math.ldexp(x, number.precision - 1 - number.emin - above))
        return (above << (number.precision - 1)) + quanta

    def decode(self, code: int) -> float:
        """Value of a code.

        >>> E8M0.decode(255)
        nan
        """
        _check_integer("code", code)
        if not 0 <= code < self.n_codes:
            raise ValueError(
                f"code={code} is out of range; {self.name} has codes 0 to {self.nan_code}"
            )
        if code == self.nan_code:
            return math.nan
        if self.number is None:
            return math.ldexp(1.0, int(code) - self.bias)
        fraction_bits = self.number.precision - 1
        exponent, fraction = divmod(int(code), 1 << fraction_bits)
        significand = fraction + (1 << fraction_bits if exponent else 0)
        return math.ldexp(significand, max(exponent, 1) - self.bias - fraction_bits)

    def __str__(self) -> str:
        return self.name


def _ml(name: str) -> np.dtype:
    dtype: np.dtype = np.dtype(getattr(ml_dtypes, name))
    return dtype


_IEEE = "IEEE 754-2019 §3.6"
_OFP8 = "OCP OFP8 1.0"
_MX = "OCP MX 1.0"
_QUARTER = "arXiv 2206.02915; PopXL datatype documentation"

BINARY16 = Format("binary16", 5, 11, 15, storage=np.dtype(np.float16), source=_IEEE)
BINARY32 = Format("binary32", 8, 24, 127, storage=np.dtype(np.float32), source=_IEEE)
BINARY64 = Format(*_NATIVE, storage=np.dtype(np.float64), source=_IEEE)
BFLOAT16 = Format("bfloat16", 8, 8, 127, storage=_ml("bfloat16"), source="BFLOAT16, Intel 2018")
TF32 = Format("tf32", 8, 11, 127, source="NVIDIA A100 white paper")
E4M3 = Format("e4m3", 4, 4, 7, storage=_ml("float8_e4m3"), source="IEEE-like; chop's fp8-e4m3")
E4M3FN = Format("e4m3fn", 4, 4, 7, "fn", _ml("float8_e4m3fn"), _OFP8)
E5M2 = Format("e5m2", 5, 3, 15, storage=_ml("float8_e5m2"), source=_OFP8)
F143 = Format("f143", 4, 4, 8, "fnuz", _ml("float8_e4m3fnuz"), _QUARTER)
F152 = Format("f152", 5, 3, 16, "fnuz", _ml("float8_e5m2fnuz"), _QUARTER)
E2M3FN = Format("e2m3fn", 2, 4, 1, "finite", _ml("float6_e2m3fn"), _MX)
E3M2FN = Format("e3m2fn", 3, 3, 3, "finite", _ml("float6_e3m2fn"), _MX)
E2M1FN = Format("e2m1fn", 2, 2, 1, "finite", _ml("float4_e2m1fn"), _MX)
E1M6 = Format("e1m6", 1, 7, 1, "finite", source=f"{_MX}, INT8: k/64 in sign and magnitude")
E8M0 = ScaleFormat("e8m0", 8, 127, _MX)
UE4M3 = ScaleFormat("ue4m3", 8, 7, "PTX ISA, block scaling", E4M3FN)
UE5M3 = ScaleFormat(
    "ue5m3", 8, 15, "arXiv 2509.17791", Format("e5m3fn", 5, 4, 15, "fn", source="with a sign")
)

#: Every named format, by name.
CATALOGUE: dict[str, Format | ScaleFormat] = {
    f.name: f
    for f in (
        BINARY16, BINARY32, BINARY64, BFLOAT16, TF32, E4M3, E4M3FN, E5M2, F143, F152, E2M3FN,
        E3M2FN, E2M1FN, E1M6, E8M0, UE4M3, UE5M3,
    )
}



def _p3109(bits: int, precision: int, extended: bool) -> Format:
    """binary{K}p{P}s{e|f}: signed, bias 2**(K - P - 1), extended by infinities or finite."""
    exponent_bits = bits - precision
    return Format(
        f"binary{bits}p{precision}s{'e' if extended else 'f'}", exponent_bits, precision,
        1 << (exponent_bits - 1), "extended" if extended else "fnuz",
        source="IEEE P3109 interim report 2025; gfloat b142762",
    )


#: IEEE P3109's signed formats of 8, 6 and 4 bits with two digits and more, by name. Those of one
#: digit have no neighbours within a binade, those without a sign no negative results.
P3109 = {
    fmt.name: fmt
    for bits in (8, 6, 4)
    for precision in range(2, bits)
    for fmt in (_p3109(bits, precision, extended) for extended in (True, False))
}

_ALIASES = {
    "fp16": "binary16", "float16": "binary16", "half": "binary16", "f16": "binary16",
    "fp32": "binary32", "float32": "binary32", "single": "binary32", "f32": "binary32",
    "fp64": "binary64", "float64": "binary64", "double": "binary64", "f64": "binary64",
    "bf16": "bfloat16", "e4m3fnuz": "f143", "e5m2fnuz": "f152",
}


def find_format(
    name: str | Format | ScaleFormat | DTypeLike, argument: str = "format"
) -> Format | ScaleFormat:
    """The format of that name (case ignored, common aliases known).

    argument   name of the argument that holds it, for messages.

    >>> find_format("fp16") is BINARY16
    True
    >>> find_format("binry16")
    Traceback (most recent call last):
    ...
    ValueError: format='binry16' is not known. Did you mean 'binary16'? See: fpsim list formats
    """
    if isinstance(name, (Format, ScaleFormat)):
        return name
    if not isinstance(name, str):
        raise TypeError(f"{argument}={name!r} is not a Format; use one of {', '.join(CATALOGUE)}")
    key = name.lower()
    key = _ALIASES.get(key, key)
    if key in CATALOGUE:
        return CATALOGUE[key]
    if key in P3109:
        return P3109[key]
    close = difflib.get_close_matches(key, [*CATALOGUE, *P3109, *_ALIASES], 1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    raise ValueError(f"{argument}={name!r} is not known.{hint} See: fpsim list formats")


def find_number_format(name: str | Format | DTypeLike, argument: str = "format") -> Format:
    """The same for numbers: a format of scales has no arithmetic.

    >>> find_number_format("e8m0", "to")
    Traceback (most recent call last):
    ...
    TypeError: to=e8m0 is a scale format without arithmetic; use E8M0.encode and .decode
    """
    fmt = find_format(name, argument)
    if isinstance(fmt, ScaleFormat):
        raise TypeError(
            f"{argument}={fmt.name} is a scale format without arithmetic; "
            f"use {fmt.name.upper()}.encode and .decode"
        )
    return fmt
