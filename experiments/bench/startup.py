"""How long a user waits before the first number, and per call on small arrays.

Fresh processes import, and make a first call with an empty and with a filled compilation cache.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from operator import add

import numpy as np

from fpsim.context import Context
from fpsim.records.formats import BINARY16
from fpsim.records.rounding import RNE, SR
from ipu.experiments.bench.round import bits_of
from ipu.experiments.bench.timing import Call, Size, TimedCase

__all__ = ["cases", "in_process"]

#: Calls between two looks at the clock.
OFTEN = 1000

IMPORT = """
import time; import numpy, numba, numba.extending, llvmlite.ir
start = time.perf_counter(); import fpsim; print(time.perf_counter() - start)
"""

FIRST = """
import time, numpy as np, fpsim
x = fpsim.Array(np.ones(16, np.float32), fpsim.Context(fpsim.BINARY16))  # no kernel yet
start = time.perf_counter(); x + x; print(time.perf_counter() - start)
"""


def in_process(code: str, cache: str | None = None) -> float:
    """Seconds that a fresh interpreter prints; compiled code is in `cache`, or in a new folder."""
    # Importing fpsim has named this process's own cache folder; a child shall name its own.
    environment = {k: v for k, v in os.environ.items() if k != "NUMBA_CACHE_DIR"}
    with tempfile.TemporaryDirectory() as empty:
        done = subprocess.run(
            [sys.executable, "-c", code], env={**environment, "FPSIM_CACHE_DIR": cache or empty},
            check=True, capture_output=True, text=True,
        )
    return float(done.stdout)


def cases(size: Size, quick: bool) -> Iterator[TimedCase]:
    """Import beyond numpy and numba, first calls, then calls on 16 elements; n counts the calls."""
    yield from _processes(3 if size.repeats > 3 else 1, quick)
    for rounding in (RNE, SR(13)):
        context = Context(BINARY16, rounding=rounding)
        values = np.linspace(0.1, 1.6, 16, dtype=np.float32)
        x, target = context.array(values), context.zeros(16)
        calls: dict[str, Call] = {
            "convert": partial(context.array, values, out=target),
            "add": partial(context.add, x, x, out=target),
            "operator +": partial(add, x, x),
            "constant": partial(add, x, 1.5),
        }
        for name, call in calls.items():
            yield TimedCase(
                f"call {name}", "binary16", partial(_often, call), None, OFTEN, size.repeats,
                rounding.name, bits_of(rounding, BINARY16), True, "16",
            )


def _processes(repeats: int, quick: bool) -> Iterator[TimedCase]:
    with tempfile.TemporaryDirectory() as cache:
        calls = {
            "startup import": partial(in_process, IMPORT, cache),
            "startup cold": partial(in_process, FIRST),
            "startup warm": partial(in_process, FIRST, cache),
        }
        if quick:
            calls = {"startup import": calls["startup import"]}
        for topic, call in calls.items():
            cold = topic == "startup cold"
            yield TimedCase(
                topic, "binary16", partial(_same, call), None, 1, 1 if cold else repeats,
                data="-", flags=True, warm=not cold, clock=_told,
            )


def _same(call: Call) -> Call:
    return call


def _told(call: Call) -> float:
    """Seconds that the call itself has measured."""
    seconds = call()
    assert isinstance(seconds, float)
    return seconds


def _often(call: Call) -> Call:
    def thousand() -> None:
        for _ in range(OFTEN):
            call()

    return thousand
