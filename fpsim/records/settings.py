"""What a result depends on besides its operands: format, rounding and the policies at the edges.

`Settings` is the immutable half of a `Context`; two operations with equal settings and equal random
bits give equal results and flags. Every choice is checked here, once.

Source    IEEE 754-2019 §4.3, §6, §7; docs/semantics.md §1 and §3.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from fpsim.records.formats import BINARY64, Format, find_number_format
from fpsim.records.rounding import RNE, Rounding, find_rounding

__all__ = ["SUBNORMALS", "ZERO_OR_NORMAL", "Settings"]

#: Results below the smallest normal number are rounded to zero or to it.
ZERO_OR_NORMAL = "zero_or_normal"
#: What happens to subnormal numbers.
SUBNORMALS = ("keep", "flush_results", "flush_both", ZERO_OR_NORMAL)

#: Formats whose settings are kept with those of another.
_MOST_OTHERS = 64

_CHOICES: dict[str, tuple[Any, ...]] = {
    "overflow": ("infinity", "saturate", "nan"),
    "subnormals": SUBNORMALS,
    "tininess": ("after", "before"),
    "nan": ("canonical", "propagate_first", "x86"),
    "infinite_input": ("keep", "saturate", "nan"),
    "divide_by_zero": ("infinity", "nan"),
    "quiet_nan_raises": (False, True),
}


@dataclass(frozen=True)
class Settings:
    """Format, rounding mode and policies; `None` means the format's own habit.

    overflow          what a finite result beyond the range becomes: infinity | saturate | nan.
                      Default: infinity, else nan, else saturate, whichever the format has first.
    subnormals        keep | flush_results (tiny results become 0) | flush_both (operands too) |
                      zero_or_normal (results between zero and the smallest normal number are
                      rounded to one of the two; deterministic modes, three digits or more).
    tininess          after | before rounding. Stochastic modes always look before.
    nan               canonical | propagate_first | x86.
    infinite_input    what an infinite operand of a conversion becomes: keep | saturate | nan.
                      Default: keep where the format has infinity, else as overflow.
    divide_by_zero    what finite / 0 becomes: infinity | nan.
    quiet_nan_raises  every NaN operand raises INVALID.

    >>> from fpsim.records.formats import E4M3FN
    >>> Settings(E4M3FN).overflow
    'nan'
    """

    format: Format
    rounding: Rounding = RNE
    overflow: str | None = None
    subnormals: str = "keep"
    tininess: str = "after"
    nan: str = "canonical"
    infinite_input: str | None = None
    divide_by_zero: str = "infinity"
    quiet_nan_raises: bool = False
    native: bool = field(init=False, default=False)
    random_bits: int = field(init=False, default=0)
    random_most: int = field(init=False, default=0)
    #: The arguments of the call, None for a habit: with another format it is that format's.
    arguments: dict[str, Any] = field(init=False, default_factory=dict, compare=False, repr=False)
    #: Kernels ready for these settings; a cache of `fpsim.elementwise.apply`.
    calls: dict[tuple[str, int, int, bool], Any] = field(
        init=False, default_factory=dict, compare=False, repr=False
    )

    #: The same for other formats, which products ask for again and again.
    _others: dict[Format, Settings] = field(
        init=False, default_factory=dict, compare=False, repr=False
    )

    def __post_init__(self) -> None:
        fmt = find_number_format(self.format)
        self._set("format", fmt)
        self._set("rounding", find_rounding(self.rounding))
        self._set("arguments", {f.name: getattr(self, f.name) for f in fields(self) if f.init})
        for name, allowed in _CHOICES.items():
            value = getattr(self, name)
            if value is None and name in ("overflow", "infinite_input"):
                continue
            if not isinstance(value, (str, bool)) or value not in allowed:
                offered = ", ".join(map(str, allowed))
                raise ValueError(f"{name}={value!r} is not known; use one of {offered}")
        self._resolve_overflow(fmt)
        if fmt == BINARY64:
            self._refuse_binary64_choices()
            self._set("native", True)
            return
        if self.subnormals == ZERO_OR_NORMAL and (self.rounding.stochastic or fmt.precision < 3):
            raise ValueError(
                f"subnormals='zero_or_normal' is not modelled with rounding={self.rounding} in "
                f"{fmt.name}; it takes deterministic modes and formats of three digits or more"
            )
        self._set("random_bits", self.rounding.random_bits(fmt))
        most = self.rounding.subnormal_bits or self.random_bits
        self._set("random_most", most)

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def _resolve_overflow(self, fmt: Format) -> None:
        holds = {
            "infinity": fmt.has_infinity,
            "keep": fmt.has_infinity,
            "nan": fmt.has_nan,
            "saturate": True,
        }
        offered = [choice for choice in _CHOICES["overflow"] if holds[choice]]
        if self.overflow is None:
            habit = ("infinity", "nan", "saturate")
            self._set("overflow", next(choice for choice in habit if holds[choice]))
        elif not holds[self.overflow]:
            raise ValueError(
                f"overflow={self.overflow!r} is not in {fmt.name}, which has no such value; "
                f"use {' or '.join(offered)}"
            )
        if self.divide_by_zero == "nan" and not fmt.has_nan:
            raise ValueError(
                f"divide_by_zero='nan' is not in {fmt.name}, which has no NaN; use infinity, "
                "which stands for what overflow gives there"
            )
        if self.infinite_input is None:
            self._set("infinite_input", "keep" if fmt.has_infinity else self.overflow)
        elif not holds[self.infinite_input]:
            offered = [choice for choice in _CHOICES["infinite_input"] if holds[choice]]
            raise ValueError(
                f"infinite_input={self.infinite_input!r} is not in {fmt.name}, which has no such "
                f"value; use {' or '.join(offered)}"
            )

    def _refuse_binary64_choices(self) -> None:
        """binary64 is the reference: the processor's own arithmetic and nothing else."""
        usual = (RNE, "infinity", "keep", "after", "canonical", "keep", "infinity", False)
        choices = (
            self.rounding, self.overflow, self.subnormals, self.tininess, self.nan,
            self.infinite_input, self.divide_by_zero, self.quiet_nan_raises,
        )
        if choices != usual:
            raise ValueError(
                "format=binary64 computes natively: RNE, infinity on overflow, subnormals kept, no "
                "flags; choose a narrower format for other rounding or policies"
            )

    def choices(self) -> dict[str, Any]:
        """The arguments that make these settings again."""
        return dict(self.arguments)

    def replace(self, **changes: Any) -> Settings:
        """These settings with some choices changed."""
        return Settings(**(self.arguments | changes))

    def with_format(self, fmt: Format) -> Settings:
        """The same choices for another format; habits of the old one become those of the new."""
        if fmt == self.format:
            return self
        if fmt not in self._others:
            if len(self._others) >= _MOST_OTHERS:
                self._others.clear()
            self._others[fmt] = self.replace(format=fmt)
        return self._others[fmt]
