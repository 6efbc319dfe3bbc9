"""fpsim sweep: sentences and statuses (golden); in full, workers that are killed from outside."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ipu.experiments.cli import main
from ipu.experiments.lab.catalogue import find
from ipu.experiments.lab.result import to_csv
from ipu.experiments.sweep.jobs import SweepJob, key_of, own_version
from ipu.installation import how_to_install

ROOT = Path(__file__).parents[3]
SWEEP = [sys.executable, "-m", "ipu.experiments.cli", "sweep", "swamping", "--quick"]


def test_without_dask_one_sentence_names_the_extra(monkeypatch, capsys):
    from ipu.experiments.sweep import cluster

    monkeypatch.setattr(cluster.importlib.util, "find_spec", lambda name: None)
    assert main(["sweep", "swamping"]) == 2
    assert capsys.readouterr().err == (
        "fpsim: a sweep needs Dask, which is not installed; install it with: "
        f"{how_to_install('dask')}\n"
    )


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [(["swampin"], "experiment='swampin' is not known. Did you mean 'swamping'? See: fpsim list"),
     (["swamping", "--seeds", "8:"], "seeds='8:' are no seeds; use FIRST:STOP as 0:8"),
     (["swamping", "--set", "lanes=5"], "set='lanes' is no setting of swamping; its settings are: "
      "none"),
     (["swamping", "--scheduler", "tcp://10.1.1.1:1"], "scheduler='tcp://10.1.1.1:1' is outside"),
     (["swamping", "--scheduler", "tcp://127.0.0.1:1", "--workers", "2"], "workers=2 is set where"),
     (["swamping", "--scheduler", "tls://10.1.1.1:1"], "scheduler='tls://10.1.1.1:1' needs cert")],
)
def test_bad_input_is_one_sentence_before_any_work(
    arguments, sentence, capsys, tmp_path, monkeypatch
):
    pytest.importorskip("distributed", reason="needs the extra dask; run: make test-distributed")
    for name in ("FPSIM_TLS_CA", "FPSIM_TLS_CERT", "FPSIM_TLS_KEY"):
        monkeypatch.delenv(name, raising=False)
    assert main(["sweep", *arguments, "--out", str(tmp_path / "out")]) == 2
    output = capsys.readouterr().err
    assert output.startswith(f"fpsim: {sentence}")
    assert output.count("\n") == 1
    assert not (tmp_path / "out").exists()


def started(out: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*SWEEP, "--out", str(out), *arguments], cwd=ROOT, text=True, start_new_session=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )


def wait_for_jobs(process: subprocess.Popen[str], out: Path, n: int) -> None:
    while len(list((out / "swamping" / "jobs").glob("*.json"))) < n:
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.02)


def workers(parent: int) -> list[int]:
    """Processes of a sweep that run jobs."""
    children = Path(f"/proc/{parent}/task/{parent}/children")
    threads = Path(f"/proc/{parent}/task").glob("*/children") if children.exists() else ()
    pids = [int(pid) for file in threads for pid in file.read_text().split()]
    return [pid for pid in pids if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def assert_gone(group: int) -> None:
    """No process of a group is left; multiprocessing's own tracker ends after the others."""
    until = time.monotonic() + 20
    while time.monotonic() < until:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return
        time.sleep(0.05)
    raise AssertionError("processes are left over")


def serial() -> bytes:
    rows = [{"run_seed": seed, **row} for seed in range(8)
            for row in find("swamping").run(True, seed).rows]
    return to_csv(rows).encode()


@pytest.mark.tier("full")
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds workers in /proc")
def test_a_worker_killed_from_outside_leaves_the_serial_table(tmp_path):
    pytest.importorskip("distributed", reason="needs the extra dask; run: make test-distributed")
    process = started(tmp_path, "--workers", "2")
    wait_for_jobs(process, tmp_path, 2)
    killed = workers(process.pid)[0]
    os.kill(killed, signal.SIGKILL)
    out, err = process.communicate(timeout=300)
    assert (process.returncode, err) == (0, "")
    assert out.startswith("8 of 8 runs finished; ")
    assert (tmp_path / "swamping" / "data.csv").read_bytes() == serial()


@pytest.mark.tier("full")
def test_an_interrupted_sweep_goes_on(tmp_path):
    """^C keeps what has finished, leaves no process, and prints one line."""
    pytest.importorskip("distributed", reason="needs the extra dask; run: make test-distributed")
    process = started(tmp_path, "--workers", "2")
    wait_for_jobs(process, tmp_path, 1)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    jobs = tmp_path / "swamping" / "jobs"
    assert (process.returncode, err.lstrip()) == (130, (  # click ends the line of the ^C
        f"fpsim: interrupted; finished jobs are kept in {jobs}; the same command with --resume "
        "goes on\n"
    ))
    assert_gone(process.pid)
    before = {path: path.stat().st_mtime_ns for path in jobs.glob("*.json")}
    assert before
    again = started(tmp_path, "--workers", "2", "--resume")
    _, err = again.communicate(timeout=300)
    assert (again.returncode, err) == (0, "")
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert (tmp_path / "swamping" / "data.csv").read_bytes() == serial()


@pytest.mark.tier("full")
def test_a_result_that_cannot_be_written_is_one_sentence(tmp_path):
    """A folder lies where the result of seed 3 belongs; what has finished is kept."""
    pytest.importorskip("distributed", reason="needs the extra dask; run: make test-distributed")
    job = SweepJob("swamping", 3, True)
    (tmp_path / "swamping" / "jobs" / f"{key_of(job, own_version())}.json").mkdir(parents=True)
    process = started(tmp_path, "--workers", "2")
    _, err = process.communicate(timeout=300)
    assert process.returncode == 1
    assert err.startswith("fpsim: the result of swamping seed=3 cannot be written to ")
    assert "--resume goes on" in err
    assert "Traceback" not in err
    assert_gone(process.pid)
