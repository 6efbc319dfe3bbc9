"""Policy: which format parameters, computation and partial sums have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fpsim.formats import BFLOAT16, BINARY16, BINARY32, Format
from ipu.learn.variables import fp32_parameter_getter

__all__ = ["FP16", "FP32", "MIXED", "Policy"]

_SHORT = {BINARY16: "f16", BINARY32: "f32", BFLOAT16: "bf16"}
_LONG = {short: fmt for fmt, short in _SHORT.items()}
_KEYS = {"p": "param", "c": "compute", "part": "partials"}


@dataclass(frozen=True)
class Policy:
    """Formats of a training run.

    param      in which parameters are stored and updated.
    compute    of activations and gradients.
    partials   of the partial sums inside matrix products with binary16 inputs.

    >>> print(Policy(param=BINARY32, compute=BINARY16))
    p=f32,c=f16,part=f32
    >>> Policy.parse("p=f32,c=f16,part=f32") == Policy(BINARY32, BINARY16)
    True
    """

    param: Format = BINARY32
    compute: Format = BINARY32
    partials: Format = BINARY32

    def __post_init__(self) -> None:
        for key, name in _KEYS.items():
            if getattr(self, name) not in _SHORT:
                raise ValueError(
                    f"{name}={getattr(self, name)} is not a policy's format; "
                    f"use {key}={'|'.join(_LONG)}"
                )
        if self.param not in (self.compute, BINARY32):
            raise ValueError(
                f"param={self.param}, compute={self.compute}: parameters are kept in the compute "
                "format or in binary32; change one"
            )
        if self.partials != BINARY32 and self.compute != BINARY16:
            raise ValueError(
                f"partials={self.partials} go with binary16 inputs only, got {self.compute}; "
                "use binary32"
            )

    @classmethod
    def parse(cls, text: str) -> Policy:
        """A policy from its string form; what is not mentioned is f32."""
        chosen: dict[str, Format] = {}
        for item in text.split(","):
            key, _, short = item.partition("=")
            if key not in _KEYS or short not in _LONG:
                raise ValueError(
                    f"policy item {item!r} is not known; use {', '.join(_KEYS)} with "
                    f"{'|'.join(_LONG)}, as in p=f32,c=f16,part=f32"
                )
            chosen[_KEYS[key]] = _LONG[short]
        return cls(**chosen)

    @property
    def getter(self) -> Any:
        """The custom getter that keeps parameters as this policy says; None for plain variables."""
        return None if self.param == self.compute else fp32_parameter_getter

    def __str__(self) -> str:
        return ",".join(f"{key}={_SHORT[getattr(self, name)]}" for key, name in _KEYS.items())


FP32 = Policy()
FP16 = Policy(param=BINARY16, compute=BINARY16)
MIXED = Policy(param=BINARY32, compute=BINARY16)
