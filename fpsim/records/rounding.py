"""Rounding modes: what each one means.

For an exact result x != 0 let e = max(floor(log2|x|), emin), q = 2**(e - precision + 1) and
|x| = (m + w) q with an integer m and 0 <= w < 1. The grid goes on above the largest finite value.
A mode decides whether the magnitude becomes m q or (m + 1) q; w = 0 never moves.

========  ==================================================================================
RNE       w > 1/2, or w = 1/2 and m odd                       (roundTiesToEven)
RNA       w >= 1/2                                            (roundTiesToAway)
RNZ       w > 1/2                                             (ties toward zero)
RTZ       never                                               (roundTowardZero)
RTP, RTN  w > 0 and the sign is +, -                          (roundTowardPositive, -Negative)
RAZ       w > 0                                               (away from zero)
RTO       w > 0 and m even                                    (round to odd, "jamming")
SR_EQUAL  w > 0 and one random bit is 1
SR        t + R >= 2**bits, with t the residual 2**bits * w cut to an integer
========  ==================================================================================

Source    IEEE 754-2019 §4.3; Boldo & Melquiond 2008 (round to odd); Croci et al. 2022 and
          El Arar et al. 2024 (SR with few random bits); docs/semantics.md §1.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass

import numpy as np

from fpsim.records.formats import Format

__all__ = [
    "MODES", "RAZ", "RNA", "RNE", "RNZ", "RTN", "RTO", "RTP", "RTZ", "SR", "SR_EQUAL", "Rounding",
    "find_rounding",
]  # fmt: skip

RESIDUALS = ("truncate", "half", "even")


@dataclass(frozen=True)
class Rounding:
    """A rounding mode; `stochastic` ones take random bits."""

    name: str
    stochastic: bool = False

    def random_bits(self, fmt: Format) -> int:
        """Random bits that one rounding into fmt takes (0 for a deterministic mode)."""
        return 1 if self.stochastic else 0

    def __repr__(self) -> str:
        return self.name


RNE = Rounding("RNE")
RNA = Rounding("RNA")
RNZ = Rounding("RNZ")
RTZ = Rounding("RTZ")
RTP = Rounding("RTP")
RTN = Rounding("RTN")
RAZ = Rounding("RAZ")
RTO = Rounding("RTO")
SR_EQUAL = Rounding("SR_EQUAL", stochastic=True)


@dataclass(frozen=True, repr=False)
class SR(Rounding):
    """Stochastic rounding with `bits` random bits.

    The residual 2**bits * w is truncated, rounded half up (`half`) or to nearest even (`even`) to
    an integer t; the magnitude is rounded up iff t + R >= 2**bits for the random R. `bits=None` is
    the most the format allows, min(32, 51 - precision). With `subnormal_bits`, a result k
    binades below the smallest normal uses min(bits + k, subnormal_bits): the IPU's rule is
    SR(bits=13, subnormal_bits=16).

    >>> SR(bits=13), SR()
    (SR(bits=13), SR())
    """

    name: str = "SR"
    stochastic: bool = True
    bits: int | None = None
    residual: str = "truncate"
    subnormal_bits: int | None = None

    def __init__(
        self, bits: int | None = None, residual: str = "truncate", subnormal_bits: int | None = None
    ) -> None:
        for label, value in (("bits", bits), ("subnormal_bits", subnormal_bits)):
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
                raise TypeError(
                    f"{label}={value!r} is not a number of bits; give an integer or None"
                )
            if not 1 <= value <= 32:
                raise ValueError(
                    f"{label}={value} is out of range; use 1 to 32 (or None for the most)"
                )
        if residual not in RESIDUALS:
            raise ValueError(
                f"residual={residual!r} is not known; use one of {', '.join(RESIDUALS)}"
            )
        if subnormal_bits is not None and (bits is None or subnormal_bits < bits):
            raise ValueError(
                f"subnormal_bits={subnormal_bits} needs bits at most as large, got bits={bits}"
            )
        fields = {
            "name": "SR", "stochastic": True, "bits": bits and int(bits), "residual": residual,
            "subnormal_bits": subnormal_bits and int(subnormal_bits),
        }  # fmt: skip
        for label, setting in fields.items():
            object.__setattr__(self, label, setting)

    def random_bits(self, fmt: Format) -> int:
        """Bits for a normal result, checked against the format's limit.

        >>> from fpsim.records.formats import BINARY32
        >>> SR().random_bits(BINARY32)
        27
        """
        most = fmt.sr_bits_max
        wanted = self.subnormal_bits or self.bits
        if wanted is not None and wanted > most:
            raise ValueError(
                f"bits={wanted} is more than SR can use in {fmt.name}; "
                f"use at most min(32, 51 - precision) = {most}"
            )
        return self.bits or most

    def __repr__(self) -> str:
        parts = []
        if self.bits is not None:
            parts.append(f"bits={self.bits}")
        if self.residual != "truncate":
            parts.append(f"residual={self.residual!r}")
        if self.subnormal_bits is not None:
            parts.append(f"subnormal_bits={self.subnormal_bits}")
        return f"SR({', '.join(parts)})"


#: The modes without parameters, by name; `SR(...)` is made by its constructor.
MODES: dict[str, Rounding] = {m.name: m for m in (RNE, RNA, RNZ, RTZ, RTP, RTN, RAZ, RTO, SR_EQUAL)}


def find_rounding(rounding: str | Rounding) -> Rounding:
    """The rounding of that name ("SR" is `SR()`).

    >>> find_rounding("RTZ") is RTZ
    True
    >>> find_rounding("nearest")
    Traceback (most recent call last):
    ...
    ValueError: rounding='nearest' is not a Rounding; use one of RNE, RNA, RNZ, RTZ, RTP, RTN, RAZ,
    RTO, SR_EQUAL, SR(...).
    """
    if isinstance(rounding, SR):
        return rounding
    if isinstance(rounding, Rounding) and MODES.get(rounding.name) == rounding:
        return MODES[rounding.name]
    if isinstance(rounding, str):
        key = rounding.upper()
        if key in MODES:
            return MODES[key]
        if key == "SR":
            return SR()
        close = difflib.get_close_matches(key, [*MODES, "SR"], 1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
    else:
        hint = ""
    kind = ValueError if isinstance(rounding, (str, Rounding)) else TypeError
    raise kind(
        f"rounding={rounding!r} is not a Rounding; use one of {', '.join(MODES)}, SR(...).{hint}"
    )
