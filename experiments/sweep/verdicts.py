"""Settings of a sweep judged beside the first of them: runs of equal seeds are pairs.

Endpoint and margin are declared before the runs, and the answers are those of `--compare`
(`ipu.run.judging`): as good, better, worse, cannot tell. Several settings share the level by Holm's
procedure: of ten that are all equal, one may not be called better by chance.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ipu.experiments.lab.result import Row
from ipu.experiments.sweep.jobs import SweepJob
from ipu.experiments.sweep.metrics import compared
from ipu.run.endpoints import Endpoint, Outcome, find_endpoint
from ipu.run.judging import (
    AS_GOOD,
    BETTER,
    CANNOT_TELL,
    WORSE,
    Declaration,
    Judged,
    judge,
    judge_sharing,
)
from ipu.run.looks import LOOKS, MOST_SHARING

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
        answer = {
            BETTER: f"{self.settings} is better than {self.reference}",
            AS_GOOD: f"{self.settings} is as good as {self.reference}",
            WORSE: f"{self.settings} is worse than {self.reference}",
            CANNOT_TELL: f"whether {self.settings} is as good as {self.reference} cannot be told",
        }.get(self.judged.answer)
        if answer is None:
            return f"{self.settings} is not judged: {self.judged}"
        if self.judged.answer == CANNOT_TELL and self.judged.low > 0:
            answer = f"{self.settings} is worse than {self.reference}, how much cannot be told"
        return f"{answer}: {self._evidence}"

    @property
    def _evidence(self) -> str:
        """The mean difference with its bound, of how many pairs; what would tell more."""
        judged, pairs = self.judged, f"{self.judged.pairs} pairs of equal seeds"
        if judged.pairs < LOOKS[0]:
            return f"{pairs}, and {LOOKS[0]} are the fewest"
        ours, theirs = judged.diverged
        if ours or theirs:
            told = f"of {pairs} “{self.title}” is no number in {ours}, of {self.reference} in "\
                   f"{theirs}"
        else:
            told = f"“{self.title}” is {self._difference} over {pairs}"
        if judged.answer != CANNOT_TELL:
            return told
        return f"{told}; {judged.needs or 'no number of pairs that anyone runs'} would tell" + (
            "" if judged.needs is None else " in four of five cases")

    @property
    def _difference(self) -> str:
        """By how much the number is higher or lower, and at least or at most."""
        judged, text = self.judged, self.judged.endpoint.text
        mean, half = judged.effect.value, judged.effect.uncertainty
        if not mean and not half:
            return "the same"
        told = f"{text(abs(mean))} ± {text(half)} {self._side(mean)}"
        bound = {BETTER: judged.high, AS_GOOD: judged.high, WORSE: judged.low}.get(judged.answer)
        if bound is None:
            return told
        # How much worse at most, or better at least: of a mean that is negative all the same.
        is_most = judged.answer == AS_GOOD and bound > 0
        side = "" if (bound > 0) == (mean > 0) else f" {self._side(bound)}"
        return f"{told} (at {'most' if is_most else 'least'} {text(abs(bound))}{side})"

    def _side(self, worse_by: float) -> str:
        is_lower = (worse_by > 0) == self.judged.endpoint.name.startswith("highest")
        return "lower" if is_lower else "higher"


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
    if _others(jobs) > MOST_SHARING:
        raise ValueError(
            f"endpoint={name!r} compares {_others(jobs)} settings with the first one, and at most "
            f"{MOST_SHARING} share the level; give --set fewer values, or sweep without --endpoint"
        )
    return endpoint


def declared(endpoint: Endpoint, jobs: Sequence[SweepJob]) -> Declaration:
    """What is fixed before the runs: the first combination of settings is the reference."""
    return Declaration(endpoint, len({job.seed for job in jobs}), _others(jobs))


def _others(jobs: Sequence[SweepJob]) -> int:
    """Settings beside the first one."""
    return len({job.settings for job in jobs}) - 1


def verdicts(
    endpoint: Endpoint, runs: Sequence[tuple[SweepJob, Sequence[Row]]]
) -> list[SettingVerdict]:
    """Every combination of settings beside the first one; they share the level.

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
    scores_of = dict(others)

    def judge_one(settings: _Settings, sharing: int) -> Judged:
        scores = scores_of[settings]
        seeds = [seed for seed in references if seed in scores]
        ours, theirs = (
            [Outcome(score=of_runs[seed]) for seed in seeds] for of_runs in (scores, references))
        return judge(of_score, ours, theirs, sharing, _text(first))

    return [
        SettingVerdict(_text(settings), _text(first), title, judged)
        for settings, judged in judge_sharing(judge_one, scores_of).items()
    ]


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
