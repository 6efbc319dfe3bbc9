"""An experiment that lives outside the package, in this process and in workers that preload this.

FPSIM_TEST_ROOM names its folder. moods.json there says what seeds do: "once" ends their worker at
the first try, "always" at every try, "wrong" raise a ValueError, "broken" another error.
"""

from __future__ import annotations

import json
import os
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import fpsim
import ipu.experiments

VARIABLE = "FPSIM_TEST_ROOM"
#: The version that a worker says it has.
VERSION = "FPSIM_TEST_VERSION"

DICE = """
QUESTION = "What does a die show?"
BUDGET = 1
DEFAULT = False

import json, os, signal, time
from pathlib import Path
import numpy as np
from ipu.experiments.lab.result import Result, UnitUsed

def run(quick: bool, seed: int, *, sides: int = 6, share: float = 1.0, fair: bool = True) -> Result:
    folder = Path(os.environ["FPSIM_TEST_ROOM"])
    moods = json.loads((folder / "moods.json").read_text())
    tries = folder / f"tried-{seed}-{sides}-{os.getpid()}"
    first = not list(folder.glob(f"tried-{seed}-{sides}-*"))
    tries.touch()
    if seed in moods.get("always", ()) or (seed in moods.get("once", ()) and first):
        os.kill(os.getpid(), signal.SIGKILL)
    if seed in moods.get("wrong", ()):
        raise ValueError(f"seed={seed} is not lucky; use another")
    if seed in moods.get("broken", ()):
        raise RuntimeError("the die rolled off the table")
    rolls = np.random.default_rng(seed).integers(1, sides + 1, 3 if quick else 30)
    time.sleep(0.01 * (seed % 3))
    rows = [{"roll": i, "shown": n, "share": n / sides} for i, n in enumerate(rolls)]
    local = [{"seconds": 0.5}]
    return Result(rows, f"It shows {rolls[0]}.", "p=fair", {"sides": sides},
                  (UnitUsed("die", "ASSUMED", "a game"),), local)
"""


def write(folder: Path, **moods: list[int]) -> None:
    """The room's files in a folder."""
    (folder / "games").mkdir(exist_ok=True)
    (folder / "games" / "dice.py").write_text(textwrap.dedent(DICE))
    (folder / "moods.json").write_text(json.dumps(moods))


@contextmanager
def on_the_workers() -> Iterator[None]:
    """Workers that start inside have the room."""
    import dask

    with dask.config.set({"distributed.worker.preload": [__name__]}):
        yield


if VARIABLE in os.environ:  # in a worker
    ipu.experiments.__path__.append(os.environ[VARIABLE])
if VERSION in os.environ:
    fpsim.__version__ = os.environ[VERSION]
