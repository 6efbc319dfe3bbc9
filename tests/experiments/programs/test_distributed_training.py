"""The program on several workers (law: one digest for any number of them; its exit statuses)."""

from __future__ import annotations

import signal

import numpy as np
import pytest

from fpsim import BINARY16
from ipu.experiments.programs import distributed_training
from ipu.learn import Tensor
from ipu.learn.variables import Variables, variable_scope
from ipu.machine import Device
from tests.ipu.members import certificates
from tests.ipu.members.processes import (
    PROGRAM,
    STARTED,
    Worker,
    all_ended,
    environment,
    free_addresses,
    guarded,
    limit,
    tf_config,
    workers,
)
from tests.tiers import pick

POPDIST = {
    "POPDIST_NUM_INSTANCES": "2", "POPDIST_INSTANCE_INDEX": "0",
    "POPDIST_NUM_TOTAL_REPLICAS": "4", "FPSIM_TRANSPORT": "local",
}


@pytest.fixture(autouse=True)
def _no_cluster(monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    monkeypatch.delenv("POPDIST_NUM_INSTANCES", raising=False)


def run(capsys, *arguments):
    """Status, digests, losses and errors of a run in this process."""
    status = distributed_training.main(["--steps", "3", *arguments])
    output, errors = capsys.readouterr()
    rows = [line.split() for line in output.splitlines()]
    digests = [row[1] for row in rows if row[0] == "digest"]
    return status, digests, [float(row[3]) for row in rows if row[0] == "step"], errors


def test_one_digest_for_any_number_of_threads(capsys):
    alone, two, four = (
        run(capsys, "--replicas", "4", "--workers", n, "--order", "tf_ring") for n in "124"
    )
    assert alone[0] == two[0] == four[0] == 0
    assert alone[1] * 2 == two[1]
    assert alone[1] * 4 == four[1]
    assert alone[2] == two[2] == four[2]


def test_its_help_has_a_short_name(capsys):
    assert distributed_training.main(["-h"]) == 0
    assert capsys.readouterr().out.startswith("Usage:")


def test_the_model_has_64_hidden_units():
    device, size = Device(), distributed_training.FEATURES
    images = Tensor(device.from_host(np.zeros((2, size)), BINARY16), device, "images")
    with Variables(device) as variables, variable_scope("all", use_resource=True):
        distributed_training.model(images)
    assert variables["all/hidden/weights"].shape == (size, 64)


def test_orders_seeds_and_roundings_have_digests_of_their_own(capsys):
    choices = ([], ["--order", "tree"], ["--seed", "1"], ["--nearest"])
    digests = {run(capsys, "--replicas", "4", *choice)[1][0] for choice in choices}
    assert len(digests) == len(choices)


def test_the_loss_falls(capsys):
    _, _, losses, _ = run(capsys, "--steps", "12")
    assert losses[-1] < 0.7 * losses[0]


def test_threads_take_the_place_of_local_workers(capsys, monkeypatch):
    for name, value in POPDIST.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("FPSIM_ORDER", "tree")
    _, digests, _, _ = run(capsys)
    monkeypatch.delenv("POPDIST_NUM_INSTANCES")
    assert digests == run(capsys, "--replicas", "4", "--order", "tree")[1] * 2


def test_a_training_goes_on_from_its_checkpoint(capsys, tmp_path):
    _, reference, losses, _ = run(capsys, "--replicas", "2")
    saved = ("--replicas", "2", "--checkpoint", str(tmp_path), "--save-every", "1")
    run(capsys, *saved, "--steps", "2", "--workers", "2")
    _, resumed, rest, _ = run(capsys, *saved)
    assert resumed == reference
    assert rest == losses[2:]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--order", "any"], "order='any' is not an order of a sum"),
        (["--replicas", "3", "--workers", "2"], "replicas=3 is no multiple of the 2 workers"),
        (["--replicas", "3", "--order", "recursive_doubling"], "needs a power of two"),
    ],
)
def test_bad_input_is_one_sentence_and_status_2(capsys, arguments, sentence):
    status, _, _, errors = run(capsys, *arguments)
    assert status == 2
    assert sentence in errors


def test_a_worker_that_is_asked_to_stop_stops_all(capsys, monkeypatch, tmp_path):
    from ipu.members.group import Processes

    agree = Processes.agree

    def asked(self, losses, statistic):
        self.interrupted = lambda: self.channel.rank == 1
        return agree(self, losses, statistic)

    monkeypatch.setattr(Processes, "agree", asked)
    status, digests, _, errors = run(capsys, "--workers", "2", "--checkpoint", str(tmp_path))
    assert (status, digests) == (130, [])
    assert f"worker 1 was interrupted; saved in {tmp_path}" in errors
    assert [path.name for path in tmp_path.iterdir()] == ["step-1"]


ARGUMENTS = ["--steps", "3", "--order", "tf_ring"]


def have_digest(started, digest):
    for status, output, errors in all_ended(started, STARTED):
        assert status == 0, errors
        assert output.split()[-1] == digest


def test_processes_have_the_digest_of_one(capsys):
    pytest.importorskip("grpc", reason="grpcio is not installed; run: make test-distributed")
    _, digests, _, _ = run(capsys, *ARGUMENTS, "--replicas", "4")
    for size in pick([2], [2, 4], [2, 4]):
        with workers(size, *ARGUMENTS, "--replicas", "4") as started:
            have_digest(started, digests[0])


@pytest.mark.tier("full")
@pytest.mark.parametrize("secured", [False, True])
def test_processes_of_a_tf_config_have_the_digest_of_one(capsys, secured, tmp_path):
    pytest.importorskip("grpc", reason="grpcio is not installed; run: make test-distributed")
    _, digests, _, _ = run(capsys, *ARGUMENTS, "--replicas", "2")
    files = {}
    if secured:
        pytest.importorskip("cryptography", reason="cryptography makes this test's certificates")
        tls = certificates.worker(tmp_path, "worker", certificates.authority(tmp_path, "ca"), "ca")
        files = {f"FPSIM_TLS_{n.upper()}": str(getattr(tls, n)) for n in ("ca", "cert", "key")}
    addresses = free_addresses(2)
    started = [Worker([PROGRAM, *ARGUMENTS], tf_config(r, addresses, **files)) for r in range(2)]
    with guarded(started):
        have_digest(started, digests[0])


@pytest.mark.tier("full")
def test_an_interrupt_ends_the_wait_for_others():
    pytest.importorskip("grpc", reason="grpcio is not installed; run: make test-distributed")
    worker = Worker(["tests.ipu.members.joining", "1"], environment(0, free_addresses(2), 2))
    with guarded([worker]):
        worker.until("ready")
        worker.tell("go")
        worker.signal(signal.SIGINT)
        assert worker.ended(limit(2.0))[0] not in (0, None)
