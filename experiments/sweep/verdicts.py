"""Settings of a sweep judged beside the first of them: runs of equal seeds are pairs.

Endpoint and margin are declared before the runs, and the answers are those of `--compare`
(`ipu.run.judging`): as good, better, worse, cannot tell.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ipu.experiments.lab.result import Row
from ipu.experiments.sweep.jobs import SweepJob
from ipu.experiments.sweep.metrics import compared
from ipu.run.endpoints import Endpoint, Outcome, find_endpoint
from ipu.run.judging import Declaration, Judged, judge

__all__ = [
    "NoSuchNumberError", "SettingVerdict", "check_question", "check_title", "declared", "verdicts",
]

#: The settings of a job.
_Settings = tuple[tuple[str, object], ...]
#: Titles that a sentence shows.
_SHOWN = 6


class NoSuchNumberError(ValueError):
    """No number of a table has the endpoint's word in its title, or several have."""


class SettingVerdict(NamedTuple):
    """A combination of settings beside the reference, by one number."""

    settings: str
    reference: str
    title: str
    judged: Judged

    def __str__(self) -> str:
        pairs = f"{self.judged.pairs} pairs of equal seeds"
        return (
            f"{self.settings} beside {self.reference}, by {self.title}: {self.judged}, worse by "
            f"{self.judged.difference}, {pairs}"
        )


def check_question(name: str, margin: float | None, jobs: Sequence[SweepJob]) -> Endpoint:
    """The endpoint of a sweep.

    Raises    ValueError for one that is no number of a table, and where nothing is beside anything.

    >>> check_question("progress", None, [])
    Traceback (most recent call last):
    ...
    ValueError: endpoint='progress' is of a training's losses; name a number of the table, as
    highest:accuracy with --margin 0.01
    """
    endpoint = find_endpoint(name, margin)
    if endpoint.is_loss or ":" not in endpoint.name:
        raise ValueError(
            f"endpoint={name!r} is of a training's losses; name a number of the table, as "
            "highest:accuracy with --margin 0.01"
        )
    if len({job.settings for job in jobs}) < 2:
        raise ValueError(
            f"endpoint={name!r} compares settings, and there is one alone; add --set KEY=A,B"
        )
    return endpoint


def declared(endpoint: Endpoint, jobs: Sequence[SweepJob]) -> Declaration:
    """What is fixed before the runs: the first combination of settings is the reference."""
    return Declaration(endpoint, len({job.seed for job in jobs}))


def verdicts(
    endpoint: Endpoint, runs: Sequence[tuple[SweepJob, Sequence[Row]]]
) -> list[SettingVerdict]:
    """Every combination of settings beside the first one.

    Raises    NoSuchNumberError for a word that no number's title has, or several.
    """
    title, numbers = _numbers(endpoint, [rows for _, rows in runs])
    by_settings: dict[_Settings, dict[int, float]] = {}
    for (job, _), number in zip(runs, numbers, strict=True):
        of_setting = by_settings.setdefault(job.settings, {})
        if number is not None:
            of_setting[job.seed] = number
    (first, references), *others = by_settings.items()
    of_score = Endpoint(endpoint.name.partition(":")[0], endpoint.margin)
    answers = []
    for settings, scores in others:
        seeds = [seed for seed in references if seed in scores]
        ours, theirs = (
            [Outcome(score=of_runs[seed]) for seed in seeds] for of_runs in (scores, references))
        judged = judge(of_score, ours, theirs, reference=_text(first))
        answers.append(SettingVerdict(_text(settings), _text(first), title, judged))
    return answers


def check_title(endpoint: Endpoint, rows: Sequence[Row]) -> None:
    """Look for the endpoint's number in the rows of a first run.

    Raises    NoSuchNumberError.
    """
    _numbers(endpoint, [rows])


def _numbers(
    endpoint: Endpoint, runs: Sequence[Sequence[Row]]
) -> tuple[str, list[float | None]]:
    """The title that has the endpoint's word, and its number in each run."""
    word = endpoint.name.partition(":")[2]
    numbers = compared(runs).numbers
    titles = [title for title in numbers if word.lower() in title.lower()]
    if word in numbers:
        titles = [word]
    if len(titles) != 1:
        shown = "; ".join((titles or [*numbers])[:_SHOWN])
        which = "several numbers have it in their titles" if titles else "no number's title has it"
        raise NoSuchNumberError(f"endpoint={endpoint.name!r}: {which}; they are: {shown}")
    return titles[0], numbers[titles[0]]


def _text(settings: _Settings) -> str:
    return " ".join(f"{name}={value}" for name, value in settings)
