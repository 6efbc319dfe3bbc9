"""Running an experiment: do it, store its result, then draw it."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path

from fpsim import get_threads
from fpsim.state.files import refusal, write_whole
from ipu.experiments.lab import store
from ipu.experiments.lab.catalogue import Experiment
from ipu.experiments.lab.progress import clock
from ipu.experiments.lab.result import Result
from ipu.experiments.lab.unfinished import resumable
from ipu.experiments.lab.versions import commit, processor, versions
from ipu.ops.heap import keep_freed_memory


class UnsavedError(Exception):
    """The disk took no result: reason, the answer and the rows as CSV, which are nowhere else."""

    def __init__(self, reason: str, answer: str, rows: str) -> None:
        super().__init__(reason, answer, rows)
        self.reason, self.answer, self.rows = reason, answer, rows


def run(experiment: Experiment, out: Path, *, quick: bool, seed: int) -> Result:
    """Run one experiment into out/NAME; what was there stays until the new result is complete.

    Jobs of minutes that an interrupted run had finished are not run again.

    Raises    UnsavedError with the result where the disk does not take it.
    """
    keep_freed_memory()
    started = time.perf_counter()
    with clock(experiment.name, experiment.budget), resumable(out / experiment.name):
        result = experiment.run(quick, seed)
        about = {
            "name": experiment.name,
            "question": experiment.question,
            "seed": seed,
            "quick": quick,
            "command": experiment.command(quick, seed),
            "date": now(),
            "commit": commit(),
            "processor": processor(),
            "threads": get_threads(),
            "versions": versions(),
            "wall_seconds": round(time.perf_counter() - started, 2),
            "budget_seconds": experiment.budget,
        }
        try:
            store.save_data(out / experiment.name, result, about)
            draw(experiment, out, result)
        except OSError as error:
            reason = refusal(error) or str(error)
            raise UnsavedError(reason, result.answer, result.to_csv()) from None
    return result


def now() -> str:
    """The time in UTC, to the microsecond, so that times compare as text."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


def draw(experiment: Experiment, out: Path, result: Result) -> None:
    """Draw a result's pictures to zoom and its figure beside its data, where it has them.

    The figure as PNG is the last, so where it stands all others do.
    """
    from ipu.run.pages.drawing import to_png
    from ipu.run.pages.vector import to_svg

    for number, (title, picture) in enumerate(experiment.pictures(result).items(), 1):
        path = out / experiment.name / store.PICTURE.format(number)
        write_whole(path, to_svg(picture, title).encode())
    figure = experiment.plot(result)
    if figure is not None:
        png, svg = to_png(figure), to_svg(figure, experiment.question)
        write_whole(out / experiment.name / store.VECTOR, svg.encode())
        write_whole(out / experiment.name / store.FIGURE, png)
