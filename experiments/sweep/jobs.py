"""Jobs of a sweep: one experiment with one set of settings and one seed, as plain values.

A job is pure: its rows depend on the job and on the version of fpsim alone. So it may run anywhere,
be run again when its worker is lost, and be kept under a key that names both.
"""

from __future__ import annotations

import hashlib
import json
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import cache
from itertools import product
from typing import Any, NamedTuple

import numpy as np

import fpsim
from ipu.experiments.lab.catalogue import Listed, find
from ipu.experiments.lab.progress import be_quiet
from ipu.experiments.lab.result import WORDS, Row, UnitUsed, Value
from ipu.experiments.lab.versions import sources
from ipu.ops.heap import keep_freed_memory

#: Seeds of a sweep, so that a mistyped range is seen.
MOST_JOBS = 100_000
SEED_LIMIT = 1 << 64
#: Characters of an argument that a sentence shows.
_SHOWN = 60


class Version(NamedTuple):
    """What the rows of a job depend on beside the job."""

    fpsim: str
    sources: str

    def __str__(self) -> str:
        return f"fpsim {self.fpsim} (sources {self.sources[:12]})"


class SweepJob(NamedTuple):
    """One run of an experiment."""

    name: str
    seed: int
    quick: bool = False
    settings: tuple[tuple[str, Value], ...] = ()

    def __str__(self) -> str:
        """As messages name it.

        >>> print(SweepJob("swamping", 5, settings=(("lanes", 10),)))
        swamping seed=5 lanes=10
        """
        pairs = (("seed", self.seed), *self.settings)
        return " ".join([self.name, *(f"{name}={value}" for name, value in pairs)])

    @property
    def command(self) -> str:
        """The command line that runs it alone."""
        quick = " --quick" if self.quick else ""
        if not self.settings:
            return f"fpsim run {self.name}{quick} --seed {self.seed}"
        settings = "".join(f" --set {name}={value}" for name, value in self.settings)
        return f"fpsim sweep {self.name}{quick} --seeds {self.seed}{settings}"


class JobOutcome(NamedTuple):
    """What a job returns: its result as JSON text, or the sentence of what stopped it."""

    text: str
    error: str = ""


@cache
def own_version() -> Version:
    """The version that runs here."""
    return Version(fpsim.__version__, sources())


def key_of(job: SweepJob, version: Version) -> str:
    """SHA-256 of a job and the version that runs it.

    >>> key_of(SweepJob("swamping", 0), Version("1", ""))[:8]
    '7e3e61b2'
    """
    record = json.dumps([*job, *version], sort_keys=True)
    return hashlib.sha256(record.encode()).hexdigest()


# Reading the command line -----------------------------------------------------------------------


def read_seeds(text: str) -> list[int]:
    """Seeds of a range FIRST:STOP, or of a list with commas.

    Raises    ValueError for anything else, for a seed that comes twice, and for no seed.

    >>> read_seeds("0:3"), read_seeds("7,5")
    ([0, 1, 2], [7, 5])
    """
    first, colon, stop = text.partition(":")
    try:
        if colon:
            seeds: Sequence[int] = range(int(first), int(stop))
        else:
            seeds = [int(part) for part in text.split(",")]
    except ValueError:
        seeds = ()
    few = bool(seeds) and (isinstance(seeds, list) or seeds[-1] - seeds[0] < MOST_JOBS)
    if not few or len(seeds) > MOST_JOBS or min(seeds) < 0 or max(seeds) >= SEED_LIMIT:
        raise ValueError(
            f"seeds={_short(text)!r} are no seeds; use FIRST:STOP as 0:8, or a list as 3,5, with "
            f"1 to {MOST_JOBS} whole numbers from 0 to 2**64 - 1"
        )
    if len(set(seeds)) < len(seeds):
        twice = next(seed for seed, times in Counter(seeds).items() if times > 1)
        raise ValueError(
            f"seeds={_short(text)!r} has the seed {twice} more than once; name each once"
        )
    return list(seeds)


def _short(text: str) -> str:
    """A text of a command line as a sentence can hold it."""
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def read_settings(texts: Sequence[str]) -> dict[str, list[Value]]:
    """Values of each setting from texts KEY=A,B.

    Raises    ValueError for a text without a key or value, and for a key that comes twice.

    >>> read_settings(["rate=0.1,0.2", "sr=true"])
    {'rate': [0.1, 0.2], 'sr': [True]}
    """
    settings: dict[str, list[Value]] = {}
    for text in texts:
        key, _, values = (part.strip() for part in text.partition("="))
        parts = [part.strip() for part in values.split(",")]
        if not key.isidentifier() or not all(parts) or len(set(parts)) < len(parts):
            raise ValueError(
                f"set={_short(text)!r} is no setting; use KEY=A,B with different values"
            )
        if key in settings:
            raise ValueError(f"set={text!r} names {key!r} again; give all its values at once")
        settings[key] = [_value(part) for part in parts]
    return settings


def _value(text: str) -> Value:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return WORDS.get(text.lower(), text)


def jobs_of(
    experiment: Listed, seeds: Sequence[int], settings: Mapping[str, Sequence[Value]], quick: bool
) -> list[SweepJob]:
    """Every combination of settings with every seed, the seeds of a combination as neighbours.

    Raises    ValueError for a setting that the experiment does not have, or of another kind.

    >>> from ipu.experiments.lab.catalogue import find
    >>> [str(job) for job in jobs_of(find("swamping"), [0, 1], {}, True)]
    ['swamping seed=0', 'swamping seed=1']
    """
    for name, values in settings.items():
        for value in values:
            experiment.check_setting(name, value)
    choices = [[(name, value) for value in values] for name, values in settings.items()]
    jobs = [
        SweepJob(experiment.name, seed, quick, combination)
        for combination in product(*choices) for seed in seeds
    ]
    if len(jobs) > MOST_JOBS:
        raise ValueError(f"{len(jobs)} jobs are too many; use {MOST_JOBS} at most")
    return jobs


# Running, on a worker ----------------------------------------------------------------------------


def run_job(version: Version, job: SweepJob) -> JobOutcome:
    """Run a job where this is called; what it raises becomes the outcome's sentence.

    A ValueError is the user's, and its sentence is enough; of others the traceback is kept.
    """
    try:
        begin(version)
        return JobOutcome(_run(job))
    except ValueError as error:
        return JobOutcome("", str(error))
    except Exception:
        return JobOutcome("", traceback.format_exc())


@cache
def begin(version: Version) -> None:
    """Once in a worker: no bars and one thread, as jobs run side by side.

    Raises    ValueError for a worker of another version, which may have joined at any time.
    """
    if own_version() != version:
        raise ValueError(f"a worker runs {own_version()}, this {version}; install one version")
    be_quiet()
    keep_freed_memory()
    fpsim.set_threads(1)


def _run(job: SweepJob) -> str:
    result = find(job.name).run_with(job.quick, job.seed, dict(job.settings))
    content = {
        "rows": list(_plain(result.rows)),
        "local": list(_plain(result.local)),
        "answer": result.answer,
        "policy": result.policy,
        "units": [asdict(unit) for unit in result.units],
    }
    return json.dumps(content, ensure_ascii=False)


def _plain(rows: Sequence[Row]) -> Iterator[dict[str, Any]]:
    """Rows without numpy's types."""
    for row in rows:
        yield {name: value.item() if isinstance(value, np.generic) else value
               for name, value in row.items()}


class JobResult(NamedTuple):
    """The content of a finished job."""

    rows: list[Row]
    local: list[Row]
    answer: str
    policy: str
    units: tuple[UnitUsed, ...]


def read_result(text: str) -> JobResult:
    """The result that a job returned as text.

    Raises    ValueError for a text that is no result.
    """
    try:
        content = json.loads(text)
        units = tuple(UnitUsed(**unit) for unit in content["units"])
        return JobResult(content["rows"], content["local"], content["answer"], content["policy"],
                         units)
    except (KeyError, TypeError) as error:
        raise ValueError(f"it is no result of a job ({error!r})") from None
