"""Jobs of an experiment that was interrupted: what had finished is not computed again.

FOLDER/.unfinished/KEY.json holds the outcome of one job while its experiment runs; the folder goes
away when the result stands. A key covers the job, the function, all sources and versions, so code
that changed computes anew.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import NamedTuple, TypeVar

from fpsim.state.files import write_whole
from ipu.experiments.lab.processes import in_processes
from ipu.experiments.lab.versions import sources, versions

Job = TypeVar("Job", bound=NamedTuple)

_folder: ContextVar[Path | None] = ContextVar("_folder", default=None)


@contextmanager
def resumable(folder: Path) -> Iterator[None]:
    """Jobs of `resumed` inside are kept under the folder of a result, until the block ends well."""
    place = folder / ".unfinished"
    token = _folder.set(place)
    try:
        yield
    finally:
        _folder.reset(token)
    shutil.rmtree(place, ignore_errors=True)


def resumed(
    function: Callable[[Job], list[float]], jobs: Sequence[Job], label: str
) -> Iterator[list[float]]:
    """`in_processes` for jobs of minutes; those that an interrupted run finished are read.

    Outside of `resumable` all jobs are computed and none is kept.
    """
    folder = _folder.get()
    if folder is None:
        yield from in_processes(function, jobs, label)
        return
    about = json.dumps([sources(), versions(), function.__module__, function.__qualname__])
    paths = [folder / f"{_key(about, job)}.json" for job in jobs]
    outcomes = [_read(path) for path in paths]
    missing = [job for job, outcome in zip(jobs, outcomes, strict=True) if outcome is None]
    fresh = in_processes(function, missing, label)
    for path, outcome in zip(paths, outcomes, strict=True):
        if outcome is None:
            outcome = next(fresh)
            _keep(path, outcome)
        yield outcome


def _key(about: str, job: NamedTuple) -> str:
    return hashlib.sha256(f"{about}{json.dumps(job._asdict())}".encode()).hexdigest()[:24]


def _read(path: Path) -> list[float] | None:
    """The outcome in a file; None where there is none, or none that is whole."""
    try:
        return [float(number) for number in json.loads(path.read_text(encoding="utf-8"))]
    except (OSError, ValueError, TypeError):
        return None


def _keep(path: Path, outcome: list[float]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps(outcome).encode())
    except OSError as error:
        warnings.warn(
            f"a finished job cannot be kept in {path.parent} ({error.strerror or error}); an "
            "interrupted run would compute it again", RuntimeWarning, stacklevel=2,
        )
