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

A deterministic mode is the record of its steps: for which w the magnitude goes up, if m is even
and if m is odd. All that the core knows of a mode is derived from its record, so a new one is a
record and nothing else: `fpsim.Rounding("RNU", steps=(Up.FROM_HALF, Up.FROM_HALF),
negative_steps=(Up.ABOVE_HALF, Up.ABOVE_HALF))` takes ties toward +infinity.

Source    IEEE 754-2019 §4.3; Boldo & Melquiond 2008 (round to odd); Croci et al. 2022 and
          El Arar et al. 2024 (SR with few random bits); docs/semantics.md §1.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from fpsim.records.formats import Format

__all__ = [
    "MODES", "RAZ", "RNA", "RNE", "RNZ", "RTN", "RTO", "RTP", "RTZ", "SR", "SR_EQUAL", "Rounding",
    "Steps", "Up", "find_rounding",
]

RESIDUALS = ("truncate", "half", "even")


class Up(IntEnum):
    """For which tails w the magnitude goes up; w = 0 never moves. Kernels take these numbers.

    >>> import fpsim as fp
    >>> ties_up = {"steps": (Up.FROM_HALF,) * 2, "negative_steps": (Up.ABOVE_HALF,) * 2}
    >>> mode = fp.Rounding("RNU", **ties_up)
    >>> fp.round_to([2049.0, -2049.0], "binary16", rounding=mode).tolist()
    [2050.0, -2048.0]
    """

    NEVER = 0
    ABOVE_HALF = 1  # w > 1/2
    FROM_HALF = 2  # w >= 1/2
    ALWAYS = 3  # w > 0


#: For even m, and for odd m.
Steps = tuple[Up, Up]


@dataclass(frozen=True)
class Rounding:
    """A rounding mode: deterministic with `steps`, or `stochastic`.

    steps           when the magnitude goes up
    negative_steps  the same for negative numbers; None: as `steps`
    minus_zero      an exact zero sum of numbers of both signs is -0
    proportional    a stochastic mode goes up with a probability of about w, else of 1/2
    residual        how w is cut to the digits that a proportional mode looks at
    subnormal_bits  random bits at most, below the smallest normal number; None: as everywhere

    A name alone means the mode of that name.

    >>> Rounding("RTZ") == RTZ
    True
    """

    name: str
    stochastic: bool = False
    steps: Steps | None = None
    negative_steps: Steps | None = None
    minus_zero: bool = False
    proportional: bool = False
    residual: str = "truncate"
    subnormal_bits: int | None = None

    def __post_init__(self) -> None:
        if self.steps is None and not self.stochastic and self.name in MODES:
            for label, value in vars(MODES[self.name]).items():
                object.__setattr__(self, label, value)

    def steps_of(self, negative: bool) -> Steps:
        """When a magnitude of this sign goes up, for even and odd m, in a deterministic mode.

        >>> RTN.steps_of(negative=True)
        (<Up.ALWAYS: 3>, <Up.ALWAYS: 3>)
        """
        steps = self.negative_steps if negative and self.negative_steps else self.steps
        if steps is None:
            raise ValueError(f"rounding={self!r} has no steps; give steps=(even, odd)")
        return steps

    def stops_at_largest(self, negative: bool) -> bool:
        """Whether a result beyond the largest finite value of this sign becomes that value.

        >>> [RTP.stops_at_largest(negative) for negative in (False, True)]
        [False, True]
        """
        return not self.stochastic and Up.NEVER in self.steps_of(negative)

    def random_bits(self, fmt: Format) -> int:
        """Random bits that one rounding into fmt takes (0 for a deterministic mode)."""
        return 1 if self.stochastic else 0

    def __repr__(self) -> str:
        return self.name


_NEVER, _ALWAYS = (Up.NEVER, Up.NEVER), (Up.ALWAYS, Up.ALWAYS)
RNE = Rounding("RNE", steps=(Up.ABOVE_HALF, Up.FROM_HALF))
RNA = Rounding("RNA", steps=(Up.FROM_HALF, Up.FROM_HALF))
RNZ = Rounding("RNZ", steps=(Up.ABOVE_HALF, Up.ABOVE_HALF))
RTZ = Rounding("RTZ", steps=_NEVER)
RTP = Rounding("RTP", steps=_ALWAYS, negative_steps=_NEVER)
RTN = Rounding("RTN", steps=_NEVER, negative_steps=_ALWAYS, minus_zero=True)
RAZ = Rounding("RAZ", steps=_ALWAYS)
RTO = Rounding("RTO", steps=(Up.ALWAYS, Up.NEVER))
SR_EQUAL = Rounding("SR_EQUAL", stochastic=True)


@dataclass(frozen=True, repr=False)
class SR(Rounding):
    """Stochastic rounding with `bits` random bits.

    The residual 2**bits * w is truncated, rounded half up (`half`) or to nearest even (`even`) to
    an integer t; the magnitude is rounded up iff t + R >= 2**bits for the random R. `bits=None` is
    the most the format allows, min(32, 51 - precision). With `subnormal_bits`, a result k
    binades below the smallest normal uses min(bits + k, subnormal_bits), as in
    SR(bits=13, subnormal_bits=16).

    >>> SR(bits=13), SR()
    (SR(bits=13), SR())
    """

    name: str = "SR"
    stochastic: bool = True
    proportional: bool = True
    bits: int | None = None

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
        if not isinstance(residual, str) or residual not in RESIDUALS:
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
        }
        for label, setting in fields.items():
            object.__setattr__(self, label, setting)

    def random_bits(self, fmt: Format) -> int:
        """Bits for a normal result, checked against the format's limit.

        >>> from fpsim.records.formats import BINARY32
        >>> SR().random_bits(BINARY32)
        27
        """
        most = fmt.sr_bits_max
        if most < 1:
            raise ValueError(f"format={fmt.name} has no stochastic rounding; use a narrower one")
        bits = self.subnormal_bits or self.bits
        if bits is not None and bits > most:
            raise ValueError(
                f"bits={bits} is more than SR can use in {fmt.name}; "
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
    """The rounding of that name ("SR" is `SR()`), or a record with steps and a name of its own.

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
    if isinstance(rounding, Rounding):
        member = MODES.get(rounding.name)
        if member == rounding:
            return member
        if member is None and rounding.steps is not None and rounding.name != "SR":
            return rounding
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
