"""A step of a decoder of GPT-2's smallest size through PyTorch's front end, beside torch's own.

Twelve layers of width 768, a vocabulary of 50 257 whose head is not tied to it, one text of 128
characters: 163 million parameters. It tells what a real model costs; a row takes a minute and 8 GB.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

from ipu.experiments.bench.programs import Decoder, TimedProgram, step_case
from ipu.experiments.bench.timing import Size, TimedCase

__all__ = ["SIZES", "cases"]

#: n is that of an operation: a step.
SIZES = Size(n=1, repeats=2), Size(n=1, repeats=1)
#: As a rule, and with --quick.
_PROGRAMS = (
    TimedProgram(Decoder(768, 12, 12, 128, 50_257), 1, 1),
    TimedProgram(Decoder(16, 1, 2, 16), 1, 1),
)
#: Policy, and whether rounding is stochastic.
_WAYS = ("fp16", True), ("fp32", False)


def cases(size: Size, quick: bool) -> Iterator[TimedCase]:
    """The decoder in binary16 with stochastic rounding, and in binary32."""
    if importlib.util.find_spec("torch") is None:
        return
    program = _PROGRAMS[quick]
    for policy, sr in _WAYS:
        yield step_case("step GPT-2", program, policy, sr, size.repeats)
