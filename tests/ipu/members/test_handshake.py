"""What must be equal before the first step (law: both values, on both sides)."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim import BINARY16, BINARY32, Context
from ipu.members.channel import Channel
from ipu.members.handshake import Hello, compare, digest
from ipu.members.local_transport import run_local
from ipu.members.transport import JoinError


@pytest.mark.parametrize(
    ("other", "sentence"),
    [
        (Hello(1, 2, "a: 1\nb: 2", protocol=0), "A has protocol: 1, B has protocol: 0;"),
        (Hello(1, 2, "a: 1\nb: 2", version="0.0"), "B has fpsim version: 0.0;"),
        (Hello(1, 3, "a: 1\nb: 2"), "A has number of workers: 2, B has number of workers: 3;"),
        (Hello(1, 2, "a: 1\nb: 3"), "A has b: 2, B has b: 3; start all workers alike"),
        (Hello(1, 2, "a: 1"), "A has b: 2, B has nothing;"),
    ],
)
def test_a_difference_is_told_with_both_values(other, sentence):
    assert sentence in Hello(0, 2, "a: 1\nb: 2").difference(other, "A", "B")


def test_long_lines_are_shortened():
    long = Hello(0, 2, "a: " + "x" * 1000).difference(Hello(1, 2, "a: y"), "A", "B")
    assert len(long) < 300


def test_equal_workers_differ_in_nothing():
    assert Hello(0, 2, "a: 1").difference(Hello(1, 2, "a: 1"), "A", "B") is None


def test_a_comparison_fails_on_every_worker():
    def work(transport):
        try:
            compare(Channel(transport), ["a: 1", f"seed: {transport.rank == 1}"])
        except JoinError as error:
            return str(error)
        return None

    sentences = run_local(3, work)
    assert sentences[0] == "worker 0 has seed: False, worker 1 has seed: True; " + (
        "start all workers alike"
    )
    assert "worker 1 has seed: True, worker 0 has seed: False" in sentences[1]
    assert "worker 2 has seed: False, worker 1 has seed: True" in sentences[2]
    assert run_local(2, lambda transport: compare(Channel(transport), ["a: 1"])) == [None, None]


def test_digests_are_of_codes():
    half, single = Context(BINARY16), Context(BINARY32)
    arrays = [
        half.array([0.0]), half.array([-0.0]), half.array([[0.0]]), single.array([0.0]),
        half.array([np.nan]),
    ]
    assert len({digest([array]) for array in arrays}) == len(arrays)
    assert digest([1.0, None]) != digest([1.0, 0])
