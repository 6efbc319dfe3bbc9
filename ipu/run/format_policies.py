"""Policies with any format that float32 tensors can hold: FP8, TF32, formats of one's own.

The policies of `ipu.learn` name the formats that an IPU computes in. These take every format of
`fpsim list formats` and `eXmY` (X exponent bits, Y stored digits of the significand).

Source    docs/semantics.md §6 (keys of a policy).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from fpsim.records.formats import BINARY32, CATALOGUE, Format, ScaleFormat, find_format
from ipu.learn.policy import Policy

__all__ = ["FormatPolicy", "named_format"]

_KEYS = {"p": "param", "c": "compute", "part": "partials", "acc": "accumulator", "out": "output"}
_SHORT = {"binary32": "f32", "binary16": "f16", "bfloat16": "bf16"}
_CUSTOM = re.compile(r"e(\d+)m(\d+)")


def named_format(name: str) -> Format:
    """A format by its name, or of one's own by its widths; float32 tensors must hold its values.

    >>> print(named_format("e4m3fn"), named_format("e6m9").max)
    e4m3fn 4290772992.0
    >>> named_format("f64")
    Traceback (most recent call last):
    ...
    ValueError: format f64: float32 tensors do not hold its values; use a narrower format
    """
    custom = _CUSTOM.fullmatch(name)
    if custom and name not in CATALOGUE:
        fmt: Format | ScaleFormat = Format.custom(int(custom[1]), int(custom[2]) + 1)
    else:
        fmt = find_format(name)
    if isinstance(fmt, ScaleFormat) or fmt.carrier != BINARY32.carrier:
        raise ValueError(f"format {name}: float32 tensors do not hold its values; "
                         "use a narrower format")
    return fmt


@dataclass(frozen=True)
class FormatPolicy(Policy):
    """Formats of a run, each any that float32 tensors can hold.

    param       of parameters.
    compute     of the operands of matrix products and convolutions.
    partials    BINARY16 chooses the unit with binary16 partials, where there is one.
    output      of their results, of activations and gradients (None: compute).

    >>> print(FormatPolicy.parse("c=e4m3fn,out=f16"))
    p=f32,c=e4m3fn,part=f32,out=f16
    """

    def __post_init__(self) -> None:
        usual = {"output": self.compute, "partials": BINARY32, "accumulator": self.param}
        for name, fmt in usual.items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, fmt)

    @classmethod
    def parse(cls, text: str) -> FormatPolicy:
        """A policy from its string form."""
        formats: dict[str, Any] = {}
        for item in text.split(","):
            key, _, name = item.partition("=")
            if key not in _KEYS:
                raise ValueError(
                    f"policy item {item!r} is not known; use {', '.join(_KEYS)} with a format of "
                    "`fpsim list formats` or eXmY, as in p=f32,c=e4m3fn,out=f16"
                )
            formats[_KEYS[key]] = named_format(name)
        return cls(**formats)

    @property
    def activations(self) -> Format:
        """In which layers hold values and gradients."""
        return self.output

    def __str__(self) -> str:
        shown = {key: getattr(self, name) for key, name in _KEYS.items()}
        if self.accumulator == self.param:
            del shown["acc"]
        if self.output == self.compute:
            del shown["out"]
        return ",".join(f"{key}={_SHORT.get(f.name, f.name)}" for key, f in shown.items())
