"""Arrival: how far a worker has come on its way to the training, told to the launcher.

MPI starts in calls that wait for all workers and know no time limit, so a worker cannot tell there
that another one is missing. Who starts the workers names a folder of this computer in
`FPSIM_ARRIVALS`; a worker puts an empty file there for each stage that it reaches. Without the
variable, or where the folder is not there, nothing is told.

| stage | a worker |
|---|---|
| STARTED | runs |
| STARTS_MPI | waits in MPI's start, for all others |
| HAS_MPI | has come out of it |
| JOINS | waits for the others' answers |
| HAS_JOINED | takes part in the training |
| GAVE_UP | was refused, or has not waited any longer |
| ENDED | has ended, joined or not |

Source    MPI 4.1, §11.2.1 (MPI_Init_thread is collective), §7.4.2 (MPI_Comm_dup is).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import IntEnum
from pathlib import Path

__all__ = ["FOLDER", "ArrivalStage", "arrivals", "joining", "tell"]

#: The variable that names the folder.
FOLDER = "FPSIM_ARRIVALS"
_INDEX = "POPDIST_INSTANCE_INDEX"
_NAME = re.compile("([0-9]{1,9})[.]([0-9])")


class ArrivalStage(IntEnum):
    """How far a worker has come."""

    STARTED = 0
    STARTS_MPI = 1
    HAS_MPI = 2
    JOINS = 3
    HAS_JOINED = 4
    GAVE_UP = 5
    ENDED = 6


def tell(stage: ArrivalStage, index: str | None = None) -> None:
    """This worker has reached a stage.

    index    its number; None: as the launcher's environment says.
    """
    folder, number = os.environ.get(FOLDER), index or os.environ.get(_INDEX)
    if folder and number:
        with suppress(OSError):  # a folder of another computer
            Path(folder, f"{number}.{stage.value}").touch()


@contextmanager
def joining() -> Iterator[None]:
    """Inside, this worker waits for the others' answers; it joins, or an error says why not."""
    tell(ArrivalStage.JOINS)
    try:
        yield
    except BaseException:
        tell(ArrivalStage.GAVE_UP)
        raise
    tell(ArrivalStage.HAS_JOINED)


def arrivals(folder: Path) -> dict[int, set[ArrivalStage]]:
    """The stages that each worker has reached, of those that have told any."""
    stages: dict[int, set[ArrivalStage]] = {}
    with suppress(OSError):
        for name in os.listdir(folder):
            match = _NAME.fullmatch(name)
            if match and int(match[2]) in list(ArrivalStage):
                stages.setdefault(int(match[1]), set()).add(ArrivalStage(int(match[2])))
    return stages
