"""Full runs of experiments: their records, and the command that computes them again.

docs/outputs/full/NAME holds the data and the description of a run without `--quick`, with its
digests, commit and time. `make gallery` computes all of them again, or those that NAMES lists, and
fails where a bit differs; `FPSIM_RECORD=1 make gallery` writes the records anew. It takes an hour
or two, so a build of the site draws the records and computes the quick runs alone.
"""

from __future__ import annotations

import difflib
import os
import shutil
import sys
from pathlib import Path

from ipu.experiments.lab import store
from ipu.experiments.lab.catalogue import Listed, catalogue, find
from ipu.experiments.lab.report import Page, page
from ipu.experiments.lab.runner import draw, run
from ipu.experiments.lab.versions import sources

DOCS = Path(__file__).parents[1]
RECORDS = DOCS / "outputs" / "full"
#: Records with their figures, and results of `make gallery`; both stay until a source file changes.
DRAWN, RESULTS = DOCS / "_build" / "full", DOCS / "_build" / "full-again"
#: Beside a stored result: the digest of the sources that computed or drew it.
STAMP = "sources.txt"
#: Lines of a difference that are shown.
SHOWN = 40


def difference(path: Path, data: str) -> str:
    """What differs between data and their record; "" for the same bits."""
    expected = path.read_text(encoding="utf-8") if path.exists() else ""
    if expected == data:
        return ""
    lines = list(difflib.unified_diff(
        expected.splitlines(), data.splitlines(), str(path), "this build", lineterm="", n=0
    ))
    more = [f"and {len(lines) - SHOWN} lines more"] if len(lines) > SHOWN else []
    return "\n".join([*lines[:SHOWN], *more])


def is_current(folder: Path) -> bool:
    """Whether these sources wrote what stands in a folder."""
    stamp = folder / STAMP
    return stamp.exists() and stamp.read_text(encoding="utf-8") == sources()


def mark_current(folder: Path) -> None:
    """These sources wrote what stands in the folder."""
    (folder / STAMP).write_text(sources(), encoding="utf-8")


def recorded(experiment: Listed, drawn: Path = DRAWN, records: Path = RECORDS) -> Page | None:
    """The recorded full run, drawn by these sources; None where there is none.

    Raises    DamagedError where the data are not those of the description's digest.
    """
    record, folder = records / experiment.name, drawn / experiment.name
    if not record.exists():
        return None
    if not is_current(folder):
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(record, folder)
        stored = store.load(folder)
        assert stored is not None
        draw(experiment, drawn, stored[0])
        mark_current(folder)
    return page(experiment, drawn)


def keep(folder: Path, record: Path) -> None:
    """Write the record of a complete run: all of it but what is drawn."""
    shutil.rmtree(record, ignore_errors=True)
    shutil.copytree(folder, record, ignore=shutil.ignore_patterns("*.png", "*.svg", STAMP))


def compute(experiment: Listed, results: Path = RESULTS, records: Path = RECORDS) -> str:
    """Compute a full run unless it is there; what differs from its record, or "" and record it."""
    folder = results / experiment.name
    if not is_current(folder):
        run(experiment, results, quick=False, seed=0)
        mark_current(folder)
    if os.environ.get("FPSIM_RECORD"):
        keep(folder, records / experiment.name)
    data = (folder / store.DATA).read_text(encoding="utf-8")
    return difference(records / experiment.name / store.DATA, data)


def main(names: list[str]) -> None:
    """Compute the full runs of these experiments, or of all."""
    # Everybody's records are those of the data that fpsim brings.
    os.environ.pop("FPSIM_DATA", None)
    changed = 0
    for experiment in map(find, names or catalogue()):
        told = experiment.missing or compute(experiment)
        changed += bool(told)
        print(f"{experiment.name}: {told or 'the same bits'}", flush=True)
    sys.exit(changed > 0)


if __name__ == "__main__":
    main(sys.argv[1:])
