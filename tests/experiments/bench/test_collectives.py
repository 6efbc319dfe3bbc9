"""The benchmark of collectives moves what it says, and says what is left out (law)."""

from __future__ import annotations

import numpy as np
import pytest

from ipu.experiments.bench import collectives
from ipu.experiments.bench.collectives import GOALS, SIZES, WAYS, CollectiveRecord, cases
from ipu.experiments.bench.timing import Size
from ipu.experiments.lab.instances import why_not
from ipu.members.channel import Channel
from ipu.members.local_transport import run_local


@pytest.mark.source("S1-09")
@pytest.mark.parametrize("n", [64, 5, 3])
def test_moving_sends_as_much_as_a_ring(n):
    """2·(R - 1)/R of the tensor from each process, whatever the length of the last chunk."""
    codes = np.arange(n, dtype=np.uint16).tobytes()

    def work(transport):
        channel = Channel(transport)
        collectives._move(channel, codes)
        return channel.sent

    sent = run_local(4, work)
    assert sum(sent) == 2 * 3 * len(codes)
    if n % 4 == 0:
        assert set(sent) == {2 * 3 * len(codes) // 4}


def test_a_round_takes_as_long_as_its_slowest_process():
    rows = [[[1.0, 5.0], [2.0, 2.0]], [[3.0, 4.0], [1.0, 3.0]]]  # process, way, round
    assert collectives._best(rows) == [3.0, 2.0]


def test_what_is_not_installed_is_left_out_with_the_reason(monkeypatch):
    monkeypatch.setattr(collectives, "why_not", lambda transport: f"no {transport}")
    monkeypatch.setattr(collectives, "find_spec", lambda name: None)
    lines = [str(case()) for case in cases(Size(10, 1), quick=True)]
    assert [line.rpartition(": ")[2] for line in lines] == [
        "no grpc", "no grpc", "no mpi", "no mpi", "torch is not installed",
    ]


def test_goals_are_those_of_ten_megabytes():
    assert SIZES[0].n * 2 == 10_000_000
    assert GOALS == {"grpc": (0.35, 0.6), "mpi": (0.15, 0.35)}
    record = CollectiveRecord("collectives grpc", "moving", 4, 5, 5, 0.4, 0.001, 0.35)
    assert str(record).endswith("400.000 ms    400.0 copies   goal 0.35 s: missed")


@pytest.mark.parametrize("transport", list(GOALS))
def test_each_transport_is_measured_in_both_ways(transport, monkeypatch):
    monkeypatch.setenv("OMPI_ALLOW_RUN_AS_ROOT", "1")
    monkeypatch.setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
    reason = why_not(transport)
    if reason:
        pytest.skip(f"{reason}; or run: make test-distributed")
    taken = {}
    records = [collectives._record(transport, way, Size(1000, 2), taken) for way in WAYS]
    for record in records:
        assert 0 < record.seconds < 60
        assert record.fields()["n"] == 1000
    assert list(taken) == [transport]
