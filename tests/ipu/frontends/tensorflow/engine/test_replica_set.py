"""Replicas of several processes: values by number, one order, sentences (law, golden)."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.ipu.frontends.tensorflow.framework import machine

from fpsim import Context  # isort: skip
from fpsim.records.formats import BFLOAT16, BINARY16, BINARY32
from ipu.frontends.tensorflow.engine.replica_set import ALONE, ReplicaProcesses
from ipu.frontends.tensorflow.engine.replicas import in_replicas
from ipu.members.channel import Channel
from ipu.members.local_transport import run_local
from ipu.members.members import Meeting, Members
from ipu.members.transport import StoppedError
from ipu.plan.orders import Order
from ipu.run.places import Place


def test_values_of_one_process_are_its_own():
    values = [np.ones(2), np.zeros(2)]
    assert ALONE.every(values, "node x", 0) is not values
    pairs = zip(ALONE.every(values, "node x", 0), values, strict=True)
    assert [x is y for x, y in pairs] == [True] * 2
    ALONE.check(7)


@pytest.mark.parametrize("fmt", [BINARY16, BINARY32, BFLOAT16])
def test_values_of_all_replicas_come_by_number_with_every_bit(fmt):
    """-0, a subnormal, the largest number, infinity and NaN among them."""
    context = Context(fmt)
    rows = [context.array([float(r), -0.0, fmt.smallest_subnormal, np.inf, np.nan])
            for r in range(4)]

    def work(transport):
        share = rows[2 * transport.rank : 2 * transport.rank + 2]
        values = ReplicaProcesses(Members(Channel(transport))).every(share, "node x", 3)
        return [np.ascontiguousarray(v.carrier).tobytes() for v in values], values[3].format

    expected = [np.ascontiguousarray(row.carrier).tobytes() for row in rows]
    assert run_local(2, work) == [(expected, fmt)] * 2


def test_whole_numbers_and_scalars_come_too():
    def work(transport):
        share = [np.int32(transport.rank)]
        processes = ReplicaProcesses(Members(Channel(transport)))
        return [x.item() for x in processes.every(share, "node x", 0)]

    assert run_local(3, work) == [[0, 1, 2]] * 3


@pytest.mark.parametrize(
    ("node", "shape", "message"),
    [
        ("node y", 2, r"worker 1 .*has come to node y of float32 \[2\] in step 5, .* to node x of"),
        ("node x", 3, r"to node x of float32 \[3\] in step 5.*with the same number of batches"),
    ],
)
def test_processes_at_different_places_stop_with_both(node, shape, message):
    def work(transport):
        processes = ReplicaProcesses(Members(Channel(transport)))
        try:
            if transport.rank:
                processes.every([np.ones(shape, np.float32)], node, 5)
            else:
                processes.every([np.ones(2, np.float32)], "node x", 5)
        except StoppedError as stop:
            return str(stop)

    texts = run_local(2, work)
    assert any(re.search(message, text) for text in texts), texts


def test_a_process_at_its_end_stops_one_that_goes_on():
    def work(transport):
        processes = ReplicaProcesses(Members(Channel(transport)))
        try:
            if transport.rank:
                processes.members.meet(Meeting("the model's digest", 4), "digest 1")
            else:
                processes.every([np.ones(2, np.float32)], "node x", 4)
        except StoppedError as stop:
            return str(stop)

    assert any("has come to the model's digest in step 4" in text for text in run_local(2, work))


def test_replicas_are_those_that_poprun_deals():
    def work(transport):
        processes = ReplicaProcesses(Members(Channel(transport)), Order.RECURSIVE_DOUBLING)
        processes.local = 2
        with pytest.raises(ValueError, match="on 4 replicas of this process, and poprun deals 2"):
            processes.check(4)
        processes.local = None
        with pytest.raises(ValueError, match="needs a power of two of replicas, got replicas=6"):
            processes.check(3)
        processes.check(2)
        return True

    assert run_local(2, work) == [True, True]


def test_random_bits_are_of_the_replica_among_all():
    def work(transport):
        return ReplicaProcesses(Members(Channel(transport)))

    second = run_local(2, work)[1]
    with machine(sr=True) as used, in_replicas(used, 3, second):
        assert used.first_replica == 3
        assert Place(0, 0, used.first_replica + 1, "x", "forward").text == "0/0/4/x/forward"
    assert used.first_replica == 0
