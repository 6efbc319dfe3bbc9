"""What goes wrong between processes on loopback, each within its limit (golden: the sentences).

Limits are hard: a process that is not at its end by then fails the test (`processes.limit`).
Nobody is left over.
"""

from __future__ import annotations

import json
import random
import signal
import time
from functools import lru_cache
from pathlib import Path

import pytest

pytest.importorskip("grpc", reason="grpcio is not installed; run: make test-distributed")
pytest.importorskip("grpc_tools", reason="grpcio-tools is missing; run: make test-distributed")

from tests.ipu.members.processes import (
    PROGRAM,
    STARTED,
    Worker,
    all_ended,
    environment,
    free_addresses,
    guarded,
    limit,
    workers,
)
from tests.tiers import pick

#: A training that goes on until it is stopped.
ENDLESS = ("--steps", "1000000", "--order", "tf_ring", "--seed", "7")

full = pytest.mark.tier("full")


def digest(output):
    (line,) = [line for line in output.splitlines() if line.startswith("digest ")]
    return line.removeprefix("digest ")


# Before the first step ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ("{", "TF_CONFIG is no JSON"),
        pytest.param('{"task": {}}', "no key 'cluster'", marks=full),
        pytest.param('{"cluster": {"chief": []}}', "no list 'worker'", marks=full),
        pytest.param('{"cluster": {"worker": ["a:1"], "ps": []}}', "the key 'ps'", marks=full),
        pytest.param(
            '{"cluster": {"worker": ["a:1"]}, "task": {"type": "ps"}}', "task type 'ps'", marks=full
        ),
        pytest.param(
            '{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 1}}',
            "task index 1; use 0 … 0", marks=full,
        ),
        pytest.param(
            '{"cluster": {"worker": ["a:1", "a:1"]}}', "address 'a:1' more than once", marks=full
        ),
        pytest.param('{"cluster": {"worker": ["a"]}}', "address 'a' is not host:port", marks=full),
    ],
)
def test_a_bad_tf_config_ends_at_once(config, sentence):
    variables = environment(0, [], 1, TF_CONFIG=config)
    worker = Worker([PROGRAM, "--quick"], variables)
    with guarded([worker]):
        status, _, errors = worker.ended(limit(STARTED))
    assert status == 2
    assert sentence in errors
    assert '"worker": ["127.0.0.1:3737", "127.0.0.1:3738"]' in errors


def joining(size, join_timeout, seeds, ranks=None):
    """Processes that join when they are told to: seconds from then on, and what they say."""
    addresses = free_addresses(size)
    program = "tests.ipu.members.joining"
    started = [
        Worker(
            [program, *str(seed).split()],
            environment(rank, addresses, size, FPSIM_JOIN_TIMEOUT=str(join_timeout)),
        )
        for rank, seed in enumerate(seeds) if ranks is None or rank in ranks
    ]
    with guarded(started):
        for worker in started:
            worker.until("ready")
        for worker in started:
            worker.tell("go")
        rows = [json.loads(output) for _, output, _ in all_ended(started, limit(STARTED))]
    return addresses, rows


def test_a_worker_of_another_plan_is_refused_within_a_second():
    _, rows = joining(2, 60, seeds=[1, 2])
    for row, (mine, other) in zip(rows, ((1, 2), (2, 1)), strict=True):
        assert f"has seed: {mine}, " in row["error"]
        assert f"has seed: {other}; start all workers alike" in row["error"]
        assert row["seconds"] < limit(1)


@full
def test_a_missing_worker_is_named_within_the_timeout_and_a_second():
    addresses, (row,) = joining(2, 2, seeds=[1, 1], ranks=[0])
    assert row["error"].startswith(
        f"worker 1 at {addresses[1]} did not answer within 2 s; start it"
    )
    assert 2 <= row["seconds"] < 2 + limit(1)


@full
def test_a_worker_killed_while_another_is_missing_is_named_within_two_seconds():
    addresses, (row, death) = joining(3, 60, [1, "1 dies"], ranks=[0, 1])
    assert row["error"] == f"worker 1 at {addresses[1]} is gone before all workers had joined"
    assert row["time"] - death["time"] < limit(2.0)


@full
def test_a_port_that_is_taken_is_named_within_a_second():
    addresses = free_addresses(1) * 2
    variables = environment(0, addresses[:1], 1, FPSIM_JOIN_TIMEOUT="5")
    first = Worker([PROGRAM, *ENDLESS], variables)
    with guarded([first]):
        first.until("step 1 ")
        second = Worker([PROGRAM, *ENDLESS], variables)
        with guarded([second]):
            status, _, errors = second.ended(limit(STARTED))
        first.process.kill()
        first.process.wait()
    assert status == 2
    assert f"worker 0 cannot listen on {addresses[0]}: the address is in use; " in errors


@full
def test_a_late_worker_is_waited_for():
    addresses = free_addresses(2)
    first = Worker([PROGRAM, "--quick"], environment(0, addresses, 2))
    time.sleep(4)
    second = Worker([PROGRAM, "--quick"], environment(1, addresses, 2))
    with guarded([first, second]):
        rows = all_ended([first, second], limit(STARTED))
    assert [status for status, _, _ in rows] == [0, 0]
    assert len({digest(output) for _, output, _ in rows}) == 1


@full
def test_a_second_training_in_a_folder_is_refused_and_the_first_goes_on(tmp_path):
    arguments = (*ENDLESS, "--checkpoint", str(tmp_path), "--save-every", "1")
    with workers(2, *arguments) as first:
        first[0].until("step 3 ")
        with workers(2, *arguments) as second:
            rows = all_ended(second, limit(STARTED))
        for status, _, errors in rows:
            assert status == 2
            assert f"checkpoint={str(tmp_path)!r} is in use by the training of process " in errors
        first[0].until("step ")
        first[1].signal(signal.SIGINT)
        assert [status for status, _, _ in all_ended(first, limit(2.0))] == [130] * 2
    assert all((path / "manifest.json").exists() for path in tmp_path.iterdir())


# During the training --------------------------------------------------------------------------


@pytest.mark.parametrize("size", [2, pytest.param(4, marks=full)])
def test_a_killed_worker_is_named_within_two_seconds(size, tmp_path):
    arguments = (*ENDLESS, "--checkpoint", str(tmp_path), "--save-every", "2")
    with workers(size, *arguments) as started:
        started[0].until("step 3 ")
        *others, last = started
        last.process.kill()
        rows = all_ended(others, limit(2.0))
        last.process.wait()
        address = last.address
    for status, _, errors in rows:
        assert status == 3
        assert f"worker {size - 1} at {address} is gone (step " in errors
        assert "; the last checkpoint is step " in errors


@pytest.mark.parametrize("size", [2, pytest.param(4, marks=full)])
def test_a_frozen_worker_is_named_within_its_silence_and_two_seconds(size):
    with workers(size, *ENDLESS, FPSIM_SILENCE="2") as started:
        started[0].until("step 2 ")
        *others, last = started
        last.signal(signal.SIGSTOP)
        rows = all_ended(others, 2.0 + limit(2.0))
        last.signal(signal.SIGCONT)
        # It learns that the others have stopped, and does not go on alone.
        status, _, errors = last.ended(limit(STARTED))
        assert status == 3
        # One sentence, and no lines of gRPC about the connections that have ended.
        assert len(errors.splitlines()) == 1, errors
        address = last.address
    for status, _, errors in rows:
        assert status == 3
        assert f"worker {size - 1} at {address} has been silent for 2 s (step " in errors
        assert "there is no checkpoint" in errors


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ("bit", "checksum is "),
        pytest.param("format", "format is bfloat16, expected binary16", marks=full),
        pytest.param("count", "elements is ", marks=full),
    ],
)
def test_a_damaged_piece_names_sender_and_tensor(how, sentence):
    program = "tests.ipu.members.damaging"
    with workers(2, how, *ENDLESS, program=program) as started:
        rows = all_ended(started, limit(STARTED))
        address = started[1].address
    for status, _, errors in rows:
        assert status == 3
        assert f"worker 1 at {address} sent a wrong piece of the gradient of all_vars/" in errors
        assert sentence in errors
        assert ", expected " in errors


@pytest.mark.parametrize("size", [2, pytest.param(4, marks=full)])
def test_an_interrupt_on_one_saves_on_all_within_two_seconds(size, tmp_path):
    arguments = (*ENDLESS, "--checkpoint", str(tmp_path), "--save-every", "1000000")
    with workers(size, *arguments) as started:
        started[0].until("step 2 ")
        started[-1].signal(signal.SIGINT)
        rows = all_ended(started, limit(2.0))
        address = started[-1].address
    for status, _, errors in rows:
        assert status == 130
        assert f"worker {size - 1} at {address} was interrupted; saved in {tmp_path}" in errors
    (folder,) = tmp_path.iterdir()
    names = {path.name for path in folder.iterdir()}
    assert names == {"manifest.json", "shared.npz", *(f"worker-{r}.npz" for r in range(size))}


# Kills ------------------------------------------------------------------------------------------


#: A training that saves after each step.
SAVING = ("--seed", "3", "--order", "tree", "--save-every", "1")


@lru_cache
def whole_digest(steps):
    """The digest of the training that nobody kills, by one process without checkpoints."""
    with workers(1, "--steps", str(steps), *SAVING, replicas=2) as started:
        ((status, output, errors),) = all_ended(started, limit(STARTED))
    assert status == 0, errors
    return digest(output)


def test_killed_at_random_moments_and_resumed_is_never_killed(tmp_path):
    kills, steps = pick(2, 20, 40), pick(12, 60, 100)
    arguments, rng = ["--steps", str(steps), *SAVING, "--checkpoint"], random.Random(kills)
    for _ in range(kills):
        with workers(2, *arguments, str(tmp_path / "killed")) as started:
            # A moment of a step, of a save, or before the first step after resuming.
            line = started[0].line()
            victim = rng.randrange(2)
            signal.sigtimedwait([], rng.random() * 0.3)
            started[victim].process.kill()
            status, output, errors = started[1 - victim].ended(limit(STARTED))
            started[victim].process.wait()
        assert status in (0, 3), f"after {line!r}, worker {victim} killed: {output}{errors}"
    with workers(2, *arguments, str(tmp_path / "killed")) as started:
        rows = all_ended(started, limit(STARTED))
    assert {(status, digest(output)) for status, output, _ in rows} == {(0, whole_digest(steps))}


#: Each moment of a save on the first worker, and on another; steps are removed by the first.
MOMENTS = {
    0: ("open step-2/.shared", "rename step-2/shared", "open step-2/.worker-0",
        "rename step-2/worker-0", "open step-2/.manifest", "rename step-2/manifest",
        "mkdir step-3", "remove step-1/manifest", "remove step-1/shared", "remove step-1/worker-1",
        "rmdir step-1", "rename .writable", "remove .writable", "open .shared", "remove .shared"),
    1: ("mkdir step-2", "open step-2/.worker-1", "rename step-2/worker-1"),
}


@pytest.mark.parametrize(
    ("victim", "moment"),
    [
        pytest.param(victim, moment, marks=() if moment == "rename step-2/manifest" else full)
        for victim, moments in MOMENTS.items() for moment in moments
    ],
)
def test_killed_while_it_saves_and_resumed_is_never_killed(victim, moment, tmp_path):
    """Nothing that was half written is taken, and nothing of it stays."""
    arguments = ["--steps", "4", *SAVING]
    program, folder = "tests.ipu.members.dying", str(tmp_path / "killed")
    commands = [[moment, "1" if rank == victim else "0", *arguments] for rank in range(2)]
    addresses = free_addresses(2)
    started = [
        Worker([program, *row, "--checkpoint", folder], environment(rank, addresses, 2))
        for rank, row in enumerate(commands)
    ]
    with guarded(started):
        rows = all_ended(started, limit(STARTED))
    assert "moment " in rows[victim][1]
    assert [status for status, _, _ in rows] == [-9 if r == victim else 3 for r in range(2)]
    with workers(2, *arguments, "--checkpoint", folder) as started:
        rows = all_ended(started, limit(STARTED))
    assert [(status, digest(output)) for status, output, _ in rows] == [(0, whole_digest(4))] * 2
    files = {"manifest.json", "shared.npz", "worker-0.npz", "worker-1.npz"}
    left = {str(path.relative_to(folder)) for path in Path(folder).rglob("*") if path.is_file()}
    assert left == {f"step-{step}/{name}" for step in (3, 4) for name in files}
