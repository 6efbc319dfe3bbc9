"""Programs of the hospital under every front end: an illness, its name in a sentence, its cure."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ipu.run.pages.page import headline
from ipu.run.ways import Way

__all__ = [
    "BAR", "MIXED", "Illness", "check_healthy_programs", "check_remedies", "check_sentences",
    "run_of", "sample",
]

#: Parameters in binary32, results in binary16: what most users run.
MIXED = "p=f32,c=f16,part=f32"
#: Steps whose values in binary64 are carried along.
_SHADOW = 6
#: Of the first sentences, those that must name the cause.
BAR = 0.95


@dataclass(frozen=True)
class Illness:
    """What makes a program ill; texts that are "" are a healthy program's.

    names       what the first sentence must hold, as regular expressions.
    sizes       of the cause: values of {a}; the last is held back.
    remedy      a way in which the same program is well; "": the text of `well` replaces {a}.
    """

    names: tuple[str, ...]
    policy: str = MIXED
    stage: str = ""
    optimiser: str = ""
    before: str = ""
    weight: str = ""
    update: str = ""
    after: str = ""
    steps: int = 6
    sizes: tuple[str, ...] = ("",)
    remedy: str = ""
    well: str = ""

    def is_named_by(self, sentence: str) -> bool:
        """Whether a sentence names the cause."""
        return all(re.search(name, sentence, re.IGNORECASE) for name in self.names)


def run_of(
    machine: Callable[..., Any], execute: Callable[[Any, Path], int], folder: Path, text: str,
    policy: str,
) -> tuple[Any, Any]:
    """A run of a user's file, written into a folder, in a way; its report and advice.

    execute    runs the file in a session; its status.
    """
    path = folder / "train.py"
    path.write_text(text)
    way = Way.parse(policy)
    run = machine(way.policy, sr=way.sr, count=True, changes=way.changes)
    run.shadow(_SHADOW)
    with contextlib.redirect_stdout(io.StringIO()):
        assert execute(run, path) == 0
    report = run.report()
    return report, run.advice(report).items


def sample(
    illnesses: Mapping[str, Illness], models: Mapping[str, str], reaches: Callable[[str], bool]
) -> Iterator[tuple[str, str, int]]:
    """Names of illnesses and models, and which size of the cause.

    The quick tier takes one model for each illness, another one each time; the full tier takes all
    models in all sizes.
    """
    names, full = list(models), reaches("full")
    for i, (name, illness) in enumerate(illnesses.items()):
        for j, model in enumerate(names):
            for number in range(len(illness.sizes)):
                if full or (j == i % len(names) and number == i % len(illness.sizes)):
                    yield name, model, number


#: Runs a program in a way; its report and advice.
Run = Callable[[str, str], tuple[Any, Any]]
#: The text of a program: model, illness, size of the cause, seed.
Text = Callable[..., str]
Row = tuple[str, str, int]


def check_sentences(
    illnesses: Mapping[str, Illness], rows: Iterable[Row], text_of: Text, run: Run
) -> None:
    """The first sentence names the cause in the share of the bar, and there is advice."""
    missed, n_programs = [], 0
    for name, model, number in rows:
        illness = illnesses[name]
        text = text_of(model, illness, illness.sizes[number], seed=number)
        report, items = run(text, illness.policy)
        n_programs += 1
        if not illness.is_named_by(headline(report)) or not items:
            missed.append((name, model, illness.sizes[number], headline(report)))
    assert n_programs
    assert len(missed) <= (1 - BAR) * n_programs, missed


def check_healthy_programs(
    healthy: Mapping[str, Illness], rows: Iterable[Row], text_of: Text, run: Run
) -> None:
    """They get no advice, and the first sentence says that they are well."""
    for name, model, number in rows:
        program = healthy[name]
        report, items = run(
            text_of(model, program, program.sizes[number], seed=number), program.policy
        )
        assert items == [], (name, model, headline(report))
        assert program.is_named_by(headline(report)), (name, model, headline(report))


def check_remedies(
    illnesses: Mapping[str, Illness], rows: Iterable[Row], text_of: Text, run: Run
) -> None:
    """Without the cause, or in the way that is told, the same program is not ill of it."""
    for name, model, number in rows:
        illness = illnesses[name]
        size = illness.well or illness.sizes[number]
        policy = illness.policy if illness.well else illness.remedy
        report, _ = run(text_of(model, illness, size, seed=number), policy)
        sentence = headline(report)
        is_healthy = sentence.startswith("No ") or not illness.is_named_by(sentence)
        assert is_healthy, (name, model, sentence)
