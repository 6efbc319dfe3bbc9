"""Changes of a program from outside: what users would edit to rescue a training in narrow formats.

A front end applies them to a program that stays as it is, so that advice can be tried.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from fpsim.records.blocks import find_block

__all__ = ["NONE", "Changes", "number_text", "scale_text"]


@dataclass(frozen=True)
class Changes:
    """What is done to a program from outside.

    loss_scale        a power of two by which every backward pass begins; the gradients of
                      parameters are divided by it in binary32 when they are complete.
    eps               of the optimiser, in place of its own.
    wide_states       the optimiser computes and keeps its states in binary32; parameters are
                      rounded into their format after each step.
    wide_data         data of the program enter in binary32, and each layer casts what it reads;
                      under front ends that round them into the policy's format on their way in.
    halves_by_policy  float16 tensors that the program makes are float32 tensors, whose formats the
                      policy decides; so a program that calls `.half()` runs in any format.
    stable_statistics    variances of norms by the stable formula, where a front end has two.
    cache             block of keys and values that attention reads where no gradients are recorded,
                      along a head's numbers: what a cache of these holds.
    constants         numbers of the program, each with the one in its place, wherever it stands.

    Raises    ValueError for a loss scale that is no power of two, and an eps that is not positive.

    >>> str(Changes(loss_scale=1024.0, eps=1e-4))
    'scale=1024+eps=0.0001'
    """

    loss_scale: float = 1.0
    eps: float | None = None
    wide_states: bool = False
    wide_data: bool = False
    halves_by_policy: bool = False
    stable_statistics: bool = False
    cache: str = ""
    constants: tuple[tuple[float, float], ...] = ()

    def __post_init__(self) -> None:
        if not self.loss_scale > 0 or math.frexp(self.loss_scale)[0] != 0.5:
            raise ValueError(
                f"loss_scale={self.loss_scale!r} is not a power of two; use one, as in 1024"
            )
        if self.eps is not None and not self.eps > 0:
            raise ValueError(f"eps={self.eps!r} is not positive; use a number as 1e-4")
        if self.cache:
            find_block(self.cache, "cache")

    def __str__(self) -> str:
        texts = (
            f"scale={scale_text(self.loss_scale)}" if self.loss_scale != 1 else "",
            f"eps={number_text(self.eps)}" if self.eps is not None else "",
            "states=f32" if self.wide_states else "",
            "data=f32" if self.wide_data else "",
            "stable" if self.stable_statistics else "",
            f"cache={self.cache}" if self.cache else "",
            *(f"{number_text(old)}={number_text(new)}" for old, new in self.constants),
        )
        return "+".join(filter(None, texts))


def scale_text(scale: float) -> str:
    """A loss scale with all its digits, and no sign inside, so that it can be read in a way.

    >>> scale_text(2.0**20), scale_text(0.5), scale_text(2.0**-30)
    ('1048576', '0.5', '9.313225746154785e-10')
    """
    return f"{scale:.0f}" if scale == scale // 1 else repr(float(scale))


def number_text(value: float) -> str:
    """A number with all its digits, as a way may hold it.

    >>> number_text(1e-4), number_text(2.0**-20), number_text(-1e9)
    ('0.0001', '9.5367431640625e-07', '-1e09')
    """
    short = f"{value:g}"
    return (short if float(short) == value else repr(float(value))).replace("e+", "e")


#: The program as it is.
NONE = Changes()
