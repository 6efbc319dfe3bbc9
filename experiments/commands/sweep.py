"""fpsim sweep NAME: one experiment with many seeds and settings, as jobs on Dask."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ipu.experiments.commands.options import bad_input, completing
from ipu.experiments.lab.catalogue import catalogue, find

if TYPE_CHECKING:
    from ipu.experiments.sweep.cluster import DaskCluster
    from ipu.experiments.sweep.jobs import SweepJob
    from ipu.experiments.sweep.sweep import Swept
    from ipu.run.endpoints import Endpoint

OUT = Path("reports", "sweeps")


@click.command("sweep")
@click.argument("name", metavar="NAME", shell_complete=completing(lambda: list(catalogue())))
@click.option("--seeds", default="0:8", show_default=True, metavar="FIRST:STOP",
              help="Seeds, as 0:8 (0 to 7) or 3,5.")
@click.option("--set", "settings", multiple=True, metavar="KEY=A,B",
              help="Values of a setting of the experiment; every combination runs.")
@click.option("--scheduler", default="", metavar="ADDRESS",
              help="tcp:// or tls:// address of a Dask scheduler; without it, processes here. Dask "
              "runs what it is sent: name only a scheduler that you trust.")
@click.option("--workers", type=click.IntRange(1, 256), default=None, metavar="N",
              help="Processes on this machine; else as many as threads.")
@click.option("--retries", type=click.IntRange(0, 100), default=None, metavar="N",
              help="Times a job is run again after its worker was lost.  [default: 2]")
@click.option("--endpoint", default=None, metavar="NAME",
              help="Judge each setting beside the first by a number of the table, over pairs of "
              "equal seeds: highest:WORD or lowest:WORD of its title, with --margin.")
@click.option("--margin", type=float, default=None, metavar="X",
              help="Difference of the endpoint that does not matter, in its units.")
@click.option("--resume", is_flag=True, help="Keep the results of an earlier, equal sweep.")
@click.option("--quick", is_flag=True, help="Seconds instead of minutes; fewer points.")
@click.option("--trust-network", is_flag=True,
              help="Allow a scheduler outside of this machine without TLS.")
@click.option("--out", type=click.Path(path_type=Path), default=OUT, show_default=True,
              help="Folder for the results.")
def command(
    name: str, seeds: str, settings: tuple[str, ...], scheduler: str, workers: int | None,
    retries: int | None, endpoint: str | None, margin: float | None, resume: bool, quick: bool,
    trust_network: bool, out: Path,
) -> int:
    """Run an experiment with every seed and setting, and write a page that compares the runs.

    OUT/NAME.html is the page, OUT/NAME/data.csv the table, OUT/NAME/jobs the finished jobs. The
    table has the same bytes for any number of workers.

    With --endpoint what is judged is printed before the runs; 5 seeds are the fewest for an answer.
    """
    from ipu.experiments.lab.store import check_writable
    from ipu.experiments.sweep.cluster import DaskCluster, check_installed
    from ipu.experiments.sweep.jobs import jobs_of, read_seeds, read_settings
    from ipu.experiments.sweep.verdicts import check_question, declared

    with bad_input():
        check_installed()
        experiment = find(name)
        if experiment.missing:
            raise ValueError(experiment.missing)
        jobs = jobs_of(experiment, read_seeds(seeds), read_settings(settings), quick)
        cluster = DaskCluster(scheduler, workers or 0, retries, trust_network)
        cluster.check()
        if endpoint is None and margin is not None:
            raise ValueError(f"margin={margin} belongs to --endpoint highest:WORD or lowest:WORD")
        judged_by = None if endpoint is None else check_question(endpoint, margin, jobs)
        check_writable(out)
    if judged_by is not None:
        declaration = declared(judged_by, jobs)
        click.echo(f"declared: {declaration} (digest {declaration.digest})")
    started = time.perf_counter()
    swept = _run(experiment.name, jobs, out / experiment.name, cluster, resume,
                 judged_by)
    return 1 if swept is None else _finish(swept, out, time.perf_counter() - started)


def _run(
    name: str, jobs: list[SweepJob], folder: Path, cluster: DaskCluster, resume: bool,
    endpoint: Endpoint | None,
) -> Swept | None:
    """The jobs of a sweep; None where they cannot be run or kept, which is said."""
    from ipu.experiments.sweep.cluster import ClusterRefusedError
    from ipu.experiments.sweep.kept import JobNotKeptError
    from ipu.experiments.sweep.sweep import JOBS, run_sweep
    from ipu.experiments.sweep.verdicts import NoSuchNumberError

    advice = f"finished jobs are kept in {folder / JOBS}; the same command with --resume goes on"
    try:
        return run_sweep(find(name), jobs, folder, cluster, resume=resume, endpoint=endpoint)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(advice) from None
    except NoSuchNumberError as error:
        raise click.UsageError(str(error)) from None
    except (ClusterRefusedError, JobNotKeptError) as error:
        click.echo(f"fpsim: {error}; {advice}", err=True)
        return None


def _finish(swept: Swept, out: Path, seconds: float) -> int:
    """Write table and page; the exit status."""
    from ipu.experiments.sweep.page import write_page
    from ipu.experiments.sweep.sweep import save

    for job, sentence in swept.failed.items():
        click.echo(f"fpsim: {job}: {sentence}", err=True)
    if not swept.finished:
        click.echo("fpsim: no job has finished; no table was written", err=True)
        return 1
    folder = out / swept.experiment.name
    with bad_input():
        _ = swept.verdicts  # an endpoint that is no number is the user's
    result = save(swept, folder, " ".join(["fpsim", *sys.argv[1:]]), seconds)
    click.echo(result.answer)
    click.echo(write_page(swept, result, folder).resolve())
    return 1 if swept.failed else 0
