"""A training step that is followed in binary64, and one that is digested, beside itself alone.

A decoder in `ipu.learn`, and through the front ends of frameworks that are installed. TensorFlow
computes in threads of its own, so times are the processor time of all threads.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from weakref import finalize

from fpsim.state.threads import get_threads
from ipu.experiments.bench.gemm import blas_threads
from ipu.experiments.bench.steps.decoders import Prepare, decoder_steps
from ipu.experiments.bench.timing import Size, TimedCase, processor_seconds
from ipu.ops.heap import keep_freed_memory
from ipu.run.run import Run

__all__ = ["SIZES", "cases"]

#: n is that of an operation: a step.
SIZES = Size(n=1, repeats=7), Size(n=1, repeats=1)
#: Policy, its format, and whether rounding is stochastic.
_ROUNDINGS = ("fp16", "binary16", True), ("fp32", "binary32", False)
#: Steps that are followed: all that are timed.
_ENDLESS = 1 << 30


def cases(size: Size, quick: bool) -> Iterator[TimedCase]:
    """Each front end in FP16 with stochastic rounding and in binary32."""
    keep_freed_memory()
    with blas_threads(get_threads()):
        for name, make in decoder_steps(quick):
            for policy, fmt, sr in _ROUNDINGS:
                alone = make(policy, sr, _nothing)
                alone()  # which compiles, and builds graphs
                for topic, prepare in _BESIDE.items():
                    yield TimedCase(
                        f"{topic} {name}", fmt, partial(make, policy, sr, prepare), alone, 1,
                        size.repeats, "SR" if sr else "RNE", flags=True, clock=processor_seconds,
                    )


def _nothing(run: Run) -> None:
    """A step alone."""


def _shadowed(run: Run) -> None:
    run.shadow(_ENDLESS)


def _digested(run: Run) -> None:
    finalize(run, run.digest(os.devnull).close)


#: What is carried beside a step.
_BESIDE: dict[str, Prepare] = {"shadow": _shadowed, "digest": _digested}
