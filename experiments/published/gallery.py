"""The page that lists every published claim with its verdict, and the numbers side by side."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ipu.experiments.lab.catalogue import Listed, catalogue
from ipu.experiments.lab.report import page
from ipu.experiments.lab.store import DamagedError
from ipu.experiments.lab.versions import versions
from ipu.experiments.published.claim import Claim, Verdict, tables, verdicts
from ipu.run.pages.rendering import write_page

__all__ = ["ROOM", "Exhibit", "claims", "claims_of", "exhibits", "write_gallery"]

ROOM = __name__.rpartition(".")[0]


@dataclass(frozen=True)
class Exhibit:
    """One claim of a stored result.

    answer    of the whole experiment; quick: it was a quick run.
    """

    experiment: str
    part: str
    verdict: Verdict
    statement: str
    source: str
    lines: list[list[str]]
    answer: str
    quick: bool


def claims() -> list[Listed]:
    """The experiments that compute published claims again."""
    return [e for e in catalogue().values() if e.room == ROOM]


def claims_of(experiment: Listed) -> list[Claim]:
    """What an experiment of the room computes again."""
    stated: list[Claim] = importlib.import_module(f"{ROOM}.{experiment.name}").CLAIMS
    return stated


def exhibits(out: Path) -> Iterator[Exhibit]:
    """Every claim that has a complete result below a folder."""
    for experiment in claims():
        try:
            stored = page(experiment, out)
        except DamagedError:
            continue  # the report says so
        if stored is None:
            continue
        result, about = stored.result, stored.result.parameters["claims"]
        assert isinstance(about, list)
        for claim, table in zip(about, tables(result), strict=True):
            verdict = verdicts(result)[claim["part"]]
            yield Exhibit(
                experiment.name, claim["part"], verdict, claim["statement"], claim["source"],
                [list(map(str, line)) for line in table.lines], result.answer,
                bool(stored.meta["quick"]),
            )


def write_gallery(out: Path) -> list[Exhibit]:
    """Write published.html and published.md for the results below a folder."""
    shown = list(exhibits(out))
    missing = [e.name for e in claims() if e.name not in {x.experiment for x in shown}]
    counts = {str(v): sum(x.verdict is v for x in shown) for v in Verdict}
    content = {"exhibits": shown, "missing": missing, "counts": counts, "versions": versions()}
    for suffix in ("md", "html"):
        write_page(out / f"published.{suffix}", "published", content)
    return shown
