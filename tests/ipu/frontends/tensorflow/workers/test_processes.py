"""Two real workers: equal weights, the union's gradients, ends by error (law, golden messages)."""

from __future__ import annotations

import re
import signal

import numpy as np
import pytest

from tests.ipu.frontends.tensorflow.framework import tf  # noqa: F401  skips without TensorFlow
from tests.ipu.frontends.tensorflow.workers.line_program import rows
from tests.ipu.frontends.tensorflow.workers.processes import (
    LINE,
    OVERLAP,
    command,
    ended,
    mpirun,
    tf_configs,
    workers,
)


def weights(output):
    """Variables by name, of what the program prints."""
    actual = re.findall(r"^(\S+) ([0-9a-f]{8,})$", output, re.MULTILINE)
    return {name: bytes.fromhex(text) for name, text in actual}


def final_loss(text):
    return float(re.search(r"Loss for final step: (\S+)\.\s", text)[1])


def first_loss(text):
    return float(re.search(r"loss = (\S+), step = 0", text)[1])


def evaluated(output):
    """Step, loss and metric of the evaluation."""
    return re.search(r"^evaluated (\S+) (\S+) (\S+)$", output, re.MULTILINE).groups()


def trained(folder, steps):
    """What two workers over gRPC leave."""
    lines = [command(LINE, "multi", str(folder), str(steps))] * 2
    with workers(tf_configs(2), *lines) as started:
        done = [ended(process) for process in started]
    for status, _, errors in done:
        assert status == 0, errors[-4000:]
    return done


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("grpc")


@pytest.fixture(scope="module")
def two(folder):
    return trained(folder, 20)


@pytest.mark.source("S1-01", "S1-21", "S1-29")
def test_weights_and_slots_are_equal_and_the_loss_falls(two):
    (_, first, log), (_, second, other) = two
    assert weights(first) == weights(second)
    assert set(weights(first)) >= {"line/w", "line/b", "line/w/Momentum", "global_step"}
    assert final_loss(log) == final_loss(other) < 0.5 * first_loss(log)


def test_a_checkpoint_has_the_mean_of_what_workers_keep_to_themselves(two):
    """The largest feature of the last batch: its mean on read, equal on both workers."""
    x, _ = rows()
    last = [x[rank::2][24:].max() for rank in range(2)]
    for _, output, _ in two:
        (value,) = np.frombuffer(weights(output)["line/largest"], np.float32)
        assert value == (last[0] + last[1]) / np.float32(2)
    assert last[0] != last[1]


def test_an_evaluation_is_the_mean_of_both_parts(two):
    """Each worker evaluates its half of the rows, four batches of eight."""
    first, second = (evaluated(output) for _, output, _ in two)
    assert first == second
    step, loss, largest = map(float, first)
    x, y = rows()
    state = {name: np.frombuffer(code, np.float32) for name, code in weights(two[0][1]).items()
             if name.startswith("line")}
    error = x @ state["line/w"] + state["line/b"] - y[:, 0]
    assert step == 20
    assert loss == pytest.approx(float(np.square(error).mean()), rel=1e-5)
    parts = [x[rank::2].reshape(4, 8, 3).max((1, 2)) for rank in range(2)]
    assert largest == pytest.approx(float(np.mean(parts)), rel=1e-6)


@pytest.mark.tier("full")
def test_a_training_goes_on_from_roots_checkpoint(two, folder):
    (_, first, _), (_, second, _) = trained(folder, 25)
    assert weights(first) == weights(second) != weights(two[0][1])
    assert evaluated(first)[0] == evaluated(second)[0] == "25"


@pytest.mark.source("S1-04", "S1-05")
def test_steps_are_those_of_one_worker_on_the_union_of_the_batches(two):
    """Momentum in binary64 from root's start, which the first and the last state must fit."""
    x, y = (values.astype(float) for values in rows())
    state = {name: np.frombuffer(code, np.float32) for name, code in weights(two[0][1]).items()
             if name.startswith("line")}
    w, b = state["line/w"].astype(float), state["line/b"].astype(float)
    v, c = state["line/w/Momentum"].astype(float), state["line/b/Momentum"].astype(float)
    for step in reversed(range(20)):  # back from the end: w' = w + rate v', v' = 0.9 v + g
        w, b = w + 0.05 * v, b + 0.05 * c
        batch = np.arange(step * 16, step * 16 + 16) % 64
        error = x[batch] @ w + b - y[batch, 0]
        v, c = (v - 2 * x[batch].T @ error / 16) / 0.9, (c - 2 * error.mean()) / 0.9
    np.testing.assert_allclose([*v, *c, *b], 0, atol=1e-4)
    np.testing.assert_allclose(np.square(error).mean(), first_loss(two[0][2]), rtol=1e-4)


@pytest.mark.source("S1-08")
def test_sums_over_two_workers_go_on_beside_the_backward_pass(tmp_path):
    """The program's backward pass waits in its middle for a sum that begins after it did."""
    lines = [command(OVERLAP, str(tmp_path), "3")] * 2
    with workers(tf_configs(2), *lines) as started:
        done = [ended(process) for process in started]
    assert [status for status, _, _ in done] == [0, 0], done[0][2][-4000:]
    assert weights(done[0][1]) == weights(done[1][1]) != {}
    for _, output, _ in done:
        count, account, host = re.search(r"^overlap (\S+) (\S+) (\S+)$", output, re.M).groups()
        assert (count, float(account) > 0, float(host) > 0) == ("2", True, True)
        assert "of them beside the program's" in output
        assert "on this host the sums overlapped the program for" in output


@pytest.mark.source("S1-22")
def test_horovod_has_the_bits_of_the_multi_worker_strategy(two, tmp_path):
    printed = mpirun(2, command(LINE, "horovod", str(tmp_path), "20"))
    lines = re.findall(r"^(\S+) ([0-9a-f]{8,})$", printed, re.MULTILINE)
    assert len(lines) == 2 * len(weights(two[0][1]))
    assert {name: bytes.fromhex(text) for name, text in lines} == weights(two[0][1])


@pytest.mark.tier("full")
def test_a_killed_worker_ends_the_other(tmp_path):
    lines = [command(LINE, "multi", str(tmp_path), "100000")] * 2
    with workers(tf_configs(2), *lines) as (first, second):
        while "step" not in second.stdout.readline():
            assert second.poll() is None
        second.send_signal(signal.SIGKILL)
        status, _, errors = ended(first, 30)
    assert status == 3
    told = r"^fpsim: worker 1 at localhost:\d+ is gone \(step \d+\); the\w* .*checkpoint"
    assert re.search(told, errors, re.MULTILINE), errors


@pytest.mark.tier("full")
def test_an_error_of_one_worker_ends_the_other_with_its_words(tmp_path):
    lines = [command(LINE, "failing", str(tmp_path), "100000")] * 2
    with workers(tf_configs(2), *lines) as (first, second):
        status, _, errors = ended(second)
        assert status == 1
        assert re.search(r"^fpsim: \S+line_program.py:\d+: ArithmeticError: the line", errors, re.M)
        status, _, errors = ended(first, 30)
    assert status == 3
    assert re.search(r"^fpsim: worker 1 at .* stopped: ArithmeticError: the line", errors, re.M)


@pytest.mark.tier("full")
@pytest.mark.parametrize(
    ("config", "message"),
    [("{", "is no JSON"), ('{"cluster": {}}', "has no list 'worker'")],
)
def test_what_is_no_cluster_has_status_2(config, message, tmp_path):
    with workers([config], command(LINE, "multi", str(tmp_path), "1")) as (process,):
        status, _, errors = ended(process)
    assert status == 2
    assert f"fpsim: TF_CONFIG {message}" in errors
    assert "Traceback" not in errors
