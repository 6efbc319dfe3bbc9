"""How a training step grows with layers, width and batch, through PyTorch's front end.

A decoder in binary16 with stochastic rounding, one size changed at a time, beside torch's own step
in binary32. A figure is the time for each layer, each parameter of a layer or each text: where it
stays the same or falls, the step grows no faster than the work. For replicas there is
`fpsim bench replicas`.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import NamedTuple

from ipu.experiments.bench.programs import Decoder, TimedProgram, step_case
from ipu.experiments.bench.timing import Size, TimedCase

__all__ = ["SIZES", "cases"]

#: n is that of an operation: a step.
SIZES = Size(n=1, repeats=3), Size(n=1, repeats=1)


class _GrowingStep(NamedTuple):
    """A program, what of it has grown and to what, and the work of a step in units of that."""

    name: str
    program: TimedProgram
    work: int


def _programs(quick: bool) -> Iterator[_GrowingStep]:
    """Each size doubled again and again, the others as they were."""
    width, layers, heads, context, batch, times = 64, 2, 4, 32, 4, 2 if quick else 5
    for exponent in range(times):
        deep = layers << exponent
        program = TimedProgram(Decoder(width, deep, heads, context), batch, 1)
        yield _GrowingStep(f"layers {deep}", program, deep)
    for exponent in range(0 if quick else times):
        wide = width << exponent
        program = TimedProgram(Decoder(wide, layers, heads, context), batch, 1)
        yield _GrowingStep(f"width {wide}", program, wide**2)
    for exponent in range(0 if quick else times):
        texts = batch << exponent
        program = TimedProgram(Decoder(width, layers, heads, context), texts, 1)
        yield _GrowingStep(f"texts {texts}", program, texts)


def cases(size: Size, quick: bool) -> Iterator[TimedCase]:
    """A step of each program; n is the layers, the square of the width, or the texts of a batch."""
    if importlib.util.find_spec("torch") is None:
        return
    for growing in _programs(quick):
        yield step_case(
            f"step, {growing.name}", growing.program, "fp16", sr=True, repeats=size.repeats,
            n=growing.work,
        )
