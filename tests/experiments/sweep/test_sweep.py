"""Sweeps with real processes: the table of lost workers is the serial one, byte for byte (law)."""

from __future__ import annotations

import csv
import io
import json
import os

import pytest

from ipu.experiments.lab import store
from ipu.experiments.lab.catalogue import find
from ipu.experiments.lab.result import to_csv
from ipu.experiments.sweep.cluster import DaskCluster
from ipu.experiments.sweep.jobs import jobs_of
from ipu.experiments.sweep.sweep import JOBS, lost, run_sweep, save
from ipu.experiments.sweep.verdicts import NoSuchNumberError
from ipu.run.endpoints import find_endpoint
from tests.experiments.sweep import room

pytest.importorskip("distributed", reason="needs the extra dask; run: make test-distributed")

SEEDS = list(range(8))
ONE, TWO = DaskCluster(workers=1), DaskCluster(workers=2)


def serial(seeds, *, quick=True, **settings) -> bytes:
    """The table of runs one after another, put together here."""
    dice = find("dice")
    rows = [
        {"run_seed": seed, **{f"run_{k}": v for k, v in settings.items()}, **row}
        for seed in seeds for row in dice.run_with(quick, seed, settings).rows
    ]
    return to_csv(rows).encode()


def swept(folder, seeds=SEEDS, cluster=TWO, resume=False, endpoint=None, **settings):
    dice = find("dice")
    jobs = jobs_of(dice, seeds, settings, True)
    with room.on_the_workers():
        return run_sweep(dice, jobs, folder, cluster, resume=resume, endpoint=endpoint)


def tries(folder, seed):
    return len(list(folder.glob(f"tried-{seed}-*")))


def test_lost_workers_and_failed_jobs_leave_no_trace_in_the_table(moody, tmp_path):
    games = moody(once=[1], always=[5], wrong=[2], broken=[4])
    out = tmp_path / "dice"
    result = swept(out, cluster=DaskCluster(workers=2, retries=1))
    failed = result.failed
    assert failed.pop("dice seed=5") == (
        "job dice seed=5 ended 2 workers; run it alone: fpsim run dice --quick --seed 5"
    )
    assert failed.pop("dice seed=2") == "seed=2 is not lucky; use another"
    assert failed.pop("dice seed=4").endswith("RuntimeError: the die rolled off the table\n")
    assert not failed
    before = {seed: tries(games, seed) for seed in SEEDS}
    # A result that is still on a worker when the next job ends it is computed again: others may
    # run more than once, and none of them is blamed.
    assert before[1] >= 2
    assert before[5] == 2
    assert_gone(games)
    assert len(list((out / JOBS).glob("*.json"))) == len(SEEDS) - 3
    moody()
    again = swept(out, resume=True)
    after = {seed: tries(games, seed) - before[seed] for seed in SEEDS}
    assert [seed for seed in SEEDS if after[seed]] == [2, 4, 5]
    save(again, out, "fpsim sweep dice", 1.0)
    assert (out / store.DATA).read_bytes() == serial(SEEDS)
    local = list(csv.DictReader(io.StringIO((out / store.LOCAL).read_text())))
    assert [row["run_seed"] for row in local] == [str(seed) for seed in SEEDS]


def assert_gone(games):
    """The processes that ran jobs have ended."""
    pids = {int(path.name.rpartition("-")[2]) for path in games.glob("tried-*")}
    assert pids
    assert os.getpid() not in pids
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_three_workers_are_named_in_the_documents_sentence():
    from ipu.experiments.sweep.jobs import SweepJob

    assert lost(SweepJob("NAME", 5), DaskCluster().n_tries) == (
        "job NAME seed=5 ended 3 workers; run it alone: fpsim run NAME --seed 5"
    )


def test_an_endpoint_without_a_number_is_told_by_the_first_job(moody, tmp_path):
    moody()
    with pytest.raises(NoSuchNumberError, match="no number's title has it; they are: "):
        swept(tmp_path, endpoint=find_endpoint("highest:luck", 0.1), cluster=ONE)
    assert 1 <= len(list((tmp_path / JOBS).glob("*"))) < len(SEEDS)


@pytest.mark.tier("full")
def test_settings_and_one_worker_change_nothing_but_their_columns(moody, tmp_path):
    moody()
    dice = find("dice")
    outs = []
    for number, n in enumerate((1, 2)):
        out = tmp_path / str(number)
        result = swept(out, [3, 0], DaskCluster(workers=n), sides=[6, 20])
        save(result, out, "", 1.0)
        outs.append((out / store.DATA).read_bytes())
    rows = [
        {"run_seed": seed, "run_sides": sides, **row}
        for sides in (6, 20) for seed in (3, 0)
        for row in dice.run_with(True, seed, {"sides": sides}).rows
    ]
    assert outs == [to_csv(rows).encode()] * 2
    meta = json.loads((tmp_path / "0" / store.META).read_text())
    assert meta["parameters"]["seeds"] == [3, 0]
    assert meta["answer"].startswith("4 of 4 runs finished; ")
