"""How much memory a training step takes: growth of a fresh process's resident memory over one step.

The process has trained two steps before, so kernels are loaded and variables exist, and has given
freed memory back to the system. What grows then is everything: arrays, the kernels' own memory,
buffers of the C library. The system's peak is reset before the step and read after it (Linux).
"""

from __future__ import annotations

import gc
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from fpsim.state.threads import get_threads
from ipu.ops.heap import give_back

__all__ = ["growth", "of_step"]

_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def growth(step: Callable[[], object]) -> int | None:
    """Bytes by which the resident memory of this process grows over a step; None if not told."""
    step()
    step()
    gc.collect()
    try:
        give_back()
        before = _resident("VmRSS")
        _RESET.write_text("5")
        step()
        return _resident("VmHWM") - before
    except (AttributeError, OSError, TypeError):  # another system, or another C library
        return None


def _resident(name: str) -> int:
    """A row of the process's status, in bytes."""
    row = re.search(rf"{name}:\s+(\d+) kB", _STATUS.read_text(encoding="ascii"))
    if row is None:
        raise OSError(f"{_STATUS} has no row {name}")
    return int(row[1]) * 1024


def of_step(network: str, preset: str, n: int) -> int | None:
    """The growth over a step of a network of `fpsim bench train`, in a fresh process.

    It uses as many threads as this one: products that others compute meanwhile take memory too.
    """
    code = (
        "from ipu.experiments.bench import train; "
        "from ipu.experiments.bench.steps import memory; "
        f"print(memory.growth(train.step_of({network!r}, {preset!r}, {n})))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True,
        env=os.environ | {"FPSIM_THREADS": str(get_threads())},
    )
    text = done.stdout.strip()
    return None if text == "None" else int(text)
