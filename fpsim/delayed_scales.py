"""Delayed scaling: the scale of a tensor follows from what its largest magnitudes were before.

A state is a value: quantising gives codes under the scale of now, and the state of the next step.

Source    TransformerEngine d0067d0, recipe/delayed_scaling.cu: the scale used at step t comes from
          the history up to t - 1 and begins as 1; max of the history; a largest magnitude that is
          zero or not finite keeps the scale.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fpsim.array import Array
from fpsim.block_array import BlockArray
from fpsim.quantizers import quantize
from fpsim.records.blocks import find_block
from fpsim.records.formats import E4M3FN, Format, find_number_format
from fpsim.records.rounding import RNE, Rounding
from fpsim.state.processor import usual_arithmetic

__all__ = ["DelayedScale"]


@dataclass(frozen=True)
class DelayedScale:
    """The scale of a tensor from step to step.

    element   format of the elements.
    length    steps that the history remembers.
    margin    powers of two that the largest magnitude stays below the largest value.
    scale     binary32 factor of now.
    history   largest magnitudes, the newest last.

    >>> state = DelayedScale(length=2)
    >>> codes, state = state.quantize(np.full(4, 1000.0, np.float32)); codes.values[0], state.scale
    (np.float64(448.0), 0.4480000138282776)
    """

    element: Format = E4M3FN
    length: int = 1024
    margin: int = 0
    scale: float = 1.0
    history: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "element", find_number_format(self.element, "element"))
        for label, least in (("length", 1), ("margin", 0)):
            value = getattr(self, label)
            if isinstance(value, bool) or not isinstance(value, int):
                raise TypeError(f"{label}={value!r} is not an integer; give a whole number")
            if value < least:
                raise ValueError(f"{label}={value} is out of range; use {least} or more")

    @usual_arithmetic
    def quantize(
        self, x: ArrayLike | Array, rounding: Rounding | str = RNE, *, seed: int = 0,
        flags: bool = False,
    ) -> tuple[BlockArray, DelayedScale]:
        """x under the scale of now, and the state after its largest magnitude is known."""
        block = replace(
            find_block("e4m3-tensor"), name=f"{self.element}-delayed", element=self.element,
            scale_rule="amax",
        )
        values = x.carrier if isinstance(x, Array) else np.asarray(x, np.float32)
        codes = quantize(
            values, block, rounding=rounding, seed=seed, flags=flags, factor=self.scale
        )
        amax = float(np.max(np.abs(values), initial=0.0))
        return codes, self.after(amax)

    @usual_arithmetic
    def after(self, amax: float) -> DelayedScale:
        """The state of the next step, this one having had such a largest magnitude."""
        history = (*self.history, float(amax))[-self.length :]
        largest = max((v for v in history if not math.isnan(v)), default=0.0)
        if any(math.isnan(v) for v in history) or not 0 < largest < math.inf:
            return replace(self, history=history)
        with np.errstate(over="ignore"):
            top = np.float32(math.ldexp(self.element.max, -self.margin))
            scale = np.minimum(top / np.float32(largest), np.finfo(np.float32).max)
        return replace(self, history=history, scale=float(scale))

    def state(self) -> dict[str, Any]:
        """What a checkpoint holds: plain numbers and texts."""
        return {
            "element": self.element.name, "length": self.length, "margin": self.margin,
            "scale": self.scale, "history": list(self.history),
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> DelayedScale:
        """The scale that `state` was taken of.

        >>> DelayedScale.from_state(DelayedScale(margin=1).state()) == DelayedScale(margin=1)
        True
        """
        return cls(**{**state, "history": tuple(state["history"])})
