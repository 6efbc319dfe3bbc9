"""A sweep: jobs to workers, results kept as they come, one table in the order of the jobs.

The folder OUT/NAME holds jobs/KEY.json of each finished job, and data.csv, machine.csv, meta.json
and figure.png as a single run does. data.csv has the same bytes for any number of workers, any
order of completion and any loss of workers: it is read from the kept results, job by job.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from ipu.experiments.lab import store
from ipu.experiments.lab.catalogue import Listed
from ipu.experiments.lab.result import Collected, Result, Row
from ipu.experiments.lab.runner import now
from ipu.experiments.lab.versions import commit, processor, versions
from ipu.experiments.sweep import kept
from ipu.experiments.sweep.cluster import DaskCluster
from ipu.experiments.sweep.engine import WorkersLostError, as_they_come
from ipu.experiments.sweep.jobs import (
    JobOutcome,
    JobResult,
    SweepJob,
    key_of,
    own_version,
    read_result,
    run_job,
)
from ipu.experiments.sweep.metrics import compared, differs
from ipu.experiments.sweep.verdicts import SettingVerdict, check_title, declared, verdicts
from ipu.run.endpoints import Endpoint
from ipu.run.sentences import capital

#: The folder of the jobs' results.
JOBS = "jobs"


class SweptJob(NamedTuple):
    """A job of a sweep with its result, or the sentence of what stopped it."""

    job: SweepJob
    result: JobResult | None
    error: str = ""


@dataclass(frozen=True)
class Swept:
    """All jobs of a sweep, in their order.

    endpoint    by which its settings are judged; None: they are not.
    """

    experiment: Listed
    jobs: list[SweptJob]
    endpoint: Endpoint | None = None

    @property
    def declared(self) -> str:
        """What was fixed before the runs; "" where nothing is judged."""
        if self.endpoint is None:
            return ""
        return str(declared(self.endpoint, [one.job for one in self.jobs]))

    @cached_property
    def verdicts(self) -> list[SettingVerdict]:
        """Settings beside the first of them.

        Raises    ValueError for an endpoint that is no number of the table.
        """
        if self.endpoint is None:
            return []
        return verdicts(self.endpoint, [(job, result.rows) for job, result in self.finished])

    @property
    def finished(self) -> list[tuple[SweepJob, JobResult]]:
        """Jobs that have a result."""
        return [(one.job, one.result) for one in self.jobs if one.result is not None]

    @property
    def failed(self) -> dict[str, str]:
        """Sentences of the others, by their jobs."""
        return {str(one.job): one.error for one in self.jobs if one.result is None}


def run_sweep(
    experiment: Listed,
    jobs: Sequence[SweepJob],
    folder: Path,
    cluster: DaskCluster,
    *,
    resume: bool = False,
    endpoint: Endpoint | None = None,
) -> Swept:
    """Run the jobs on a cluster, and keep each result below folder/jobs as it comes.

    resume      results that are kept from before, of this version, are not computed again.
    endpoint    by which settings are judged (`verdicts`).

    Raises    ClusterRefusedError when the scheduler goes away, NoSuchNumberError when the first
              result has no such number; what has finished is kept.
    """
    version = own_version()
    texts = {job: kept.kept(folder / JOBS, job, version) if resume else None for job in jobs}
    rest = [job for job, text in texts.items() if text is None]
    errors: dict[SweepJob, str] = {}
    keys = [key_of(job, version) for job in rest]
    for number, outcome in as_they_come(run_job, version, rest, keys, cluster, experiment.name):
        job = rest[number]
        if isinstance(outcome, WorkersLostError):
            outcome = JobOutcome("", lost(job, outcome.workers))
        if outcome.error:
            errors[job] = outcome.error
            continue
        kept.keep(folder / JOBS, job, version, outcome.text)
        is_first = not any(texts.values())
        texts[job] = outcome.text
        if is_first and endpoint is not None:
            check_title(endpoint, read_result(outcome.text).rows)
    return Swept(
        experiment, [_swept(job, text, errors) for job, text in texts.items()], endpoint)


def lost(job: SweepJob, workers: int) -> str:
    """The sentence of a job whose workers all ended.

    >>> lost(SweepJob("swamping", 5), 3)
    'job swamping seed=5 ended 3 workers; run it alone: fpsim run swamping --seed 5'
    """
    return f"job {job} ended {workers} workers; run it alone: {job.command}"


def _swept(job: SweepJob, text: str | None, errors: dict[SweepJob, str]) -> SweptJob:
    return SweptJob(job, None, errors[job]) if text is None else SweptJob(job, read_result(text))


def table(swept: Swept) -> Result:
    """One result of all finished jobs: their rows, in the order of the jobs, labelled.

    run_seed and run_KEY stand before the columns of the experiment, which may have a seed itself.
    """
    collected, local = Collected(), Collected()
    for job, result in swept.finished:
        label = {"run_seed": job.seed, **{f"run_{name}": value for name, value in job.settings}}
        collected.add(result.rows, result.units, **label)
        local.add(result.local, (), **label)
    first = swept.finished[0][1]
    seeds = list(dict.fromkeys(one.job.seed for one in swept.jobs))
    settings = list(dict.fromkeys(one.job.settings for one in swept.jobs))
    parameters = {"seeds": seeds, "settings": [dict(setting) for setting in settings],
                  "failed": list(swept.failed)}
    if swept.endpoint is not None:
        parameters["declared"] = swept.declared
    return Result(collected.rows, answer(swept), first.policy, parameters, collected.units,
                  local.rows)


def answer(swept: Swept) -> str:
    """How many runs there are, how far they agree, and what is judged of them."""
    rows: list[list[Row]] = [result.rows for _, result in swept.finished]
    numbers = compared(rows).numbers
    different = sum(differs(values) for values in numbers.values())
    runs = f"{len(rows)} of {len(swept.jobs)} runs finished"
    if len(rows) < 2:
        return f"{runs}."
    agree = f"{runs}; {different} of {len(numbers)} numbers differ between them."
    told = list(map(str, swept.verdicts))
    return " ".join([agree, *(f"{capital(one)}." for one in told)])


def save(swept: Swept, folder: Path, command: str, seconds: float) -> Result:
    """Store the table of a sweep; the result that it holds.

    Raises    ValueError for a sweep without a finished job.
    """
    if not swept.finished:
        raise ValueError(f"no job of {swept.experiment.name} has finished; nothing is written")
    result = table(swept)
    about = {
        "name": swept.experiment.name, "question": swept.experiment.question,
        "quick": swept.jobs[0].job.quick, "command": command, "date": now(), "commit": commit(),
        "processor": processor(), "versions": versions(), "wall_seconds": round(seconds, 2),
    }
    store.save_data(folder, result, about)
    return result
