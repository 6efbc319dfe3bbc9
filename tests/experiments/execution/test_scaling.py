"""Scaling: the model by hand (golden), measured steps with and without extras (law)."""

from __future__ import annotations

import pytest

from ipu.experiments.execution import scaling
from ipu.experiments.execution.scaling import BETWEEN, HOP, HOP_BETWEEN, LINKED, REPLICAS, model
from ipu.experiments.lab.instances import why_not
from ipu.machine.target import MK2
from ipu.plan.cycles import LINK
from ipu.plan.memory import StageFigures
from tests.experiments.figures import assert_panels

#: A program of 1 ms forward and 2 ms backward, an update of 0.5 ms, gradients of 16 MB.
MS = int(MK2.clock.value / 1000)
FIGURES = (
    StageFigures(
        forward_cycles=MS, backward_cycles=2 * MS, update_cycles=MS // 2,
        accumulator_bytes=16_000_000,
    ),
)


@pytest.fixture(scope="module")
def alone(few):
    few.setattr(scaling, "why_not", lambda transport: f"no {transport}")
    return scaling.run(quick=True, seed=1)


@pytest.mark.parametrize(("replicas", "count"), [(1, 1), (2, 1), (64, 8), (128, 8), (1024, 64)])
def test_the_model_by_hand(replicas, count):
    row = model(FIGURES, replicas, count)
    work = 3e-3 * count + 0.5e-3
    inside = replicas <= LINKED.value
    sent = 2 * (replicas - 1) / replicas * 16e6 / (LINK if inside else BETWEEN).value
    hops = 2 * (replicas - 1) * (HOP if inside else HOP_BETWEEN).value
    assert row["seconds"] == pytest.approx(work + sent + hops)
    assert row["bytes"] == pytest.approx(sent, abs=1e-12)
    assert row["hops"] == pytest.approx(hops)
    assert row["efficiency"] == pytest.approx(work / (work + sent + hops))


def test_the_overlap_by_hand():
    """Two layers: the second gradient's way out, sum and way back follow the backward pass."""
    figures = StageFigures(
        backward_cycles=MS, accumulator_bytes=20_000_000, parameter_bytes=40_000_000
    )
    row = scaling.overlapped([figures, figures], 2, 3)
    ring = 20e6 / BETWEEN.value + 2 * HOP_BETWEEN.value
    assert row["backward"] == pytest.approx(6e-3)
    assert row["communicated"] == pytest.approx(2 * (1e-3 + ring + 2e-3))
    assert row["exposed"] == pytest.approx(1e-3 + ring + 2e-3)
    assert row["hidden"] == pytest.approx(row["exposed"])
    assert [row[name] for name in ("bytes_out", "bytes_sent", "bytes_back")] == [40e6, 40e6, 80e6]


def test_more_work_hides_more(alone):
    for workers in scaling.WORKERS:
        hidden = [row["hidden"] for row in alone.select(part="overlap", replicas=workers)]
        assert hidden == sorted(hidden)
        assert hidden[0] < hidden[-1]
        assert all(row["exposed"] > 0 for row in alone.select(part="overlap"))


def test_every_constant_has_its_evidence_and_is_assumed_but_the_clock():
    words = {name: str(fact.evidence) for name, fact in scaling.CONSTANTS.items()}
    clock = words.pop("clock, Hz")
    assert clock == str(MK2.clock.evidence)
    assert set(words.values()) == {"ASSUMED"}
    assert all(fact.source for fact in scaling.CONSTANTS.values())


def test_without_extras_it_runs_and_says_what_is_left_out(alone):
    assert [row["replicas"] for row in alone.select(part="model", count=1)] == list(REPLICAS)
    assert [(row["place"], row["replicas"]) for row in alone.local] == [
        (scaling.ONE, n) for n in scaling.QUICK_MEASURED
    ]
    assert all(row["least"] <= row["seconds"] for row in alone.local)
    assert alone.answer.endswith("Left out: no grpc; no mpi.")
    assert "Measured here" not in alone.answer
    assert {unit.evidence for unit in alone.units} >= {"ASSUMED"}
    assert_panels(scaling.plot(alone), 3)
    measured, overlap = scaling.tables(alone)
    assert measured.note.startswith("MEASURED on this machine")
    assert overlap.note.startswith("ASSUMED bandwidths")
    assert len(overlap.lines) == len(scaling.LOADS) * len(scaling.WORKERS)


def test_the_answer_is_computed_a_second_time(alone):
    for count in scaling.COUNTS:
        paid = [row["replicas"] for row in alone.select(part="model", count=count)
                if row["efficiency"] >= scaling.PAYS]
        assert f"{max(paid)} for {count}" in alone.answer


def test_a_replica_of_each_process_is_measured(alone):
    if why_not("grpc"):
        pytest.skip(f"{why_not('grpc')}; or run: make test-distributed")
    every = scaling.run_instances(scaling.in_process, 2, "grpc", steps=2, seed=1)
    assert [len(seconds) for seconds in every] == [2, 2]
    row = scaling._row("grpc", 2, 2, every[0])
    assert 0 < row["least"] <= row["seconds"]
    assert "with 2 processes over grpc" in scaling._answer(alone.rows, [*alone.local, row], [])


@pytest.mark.parametrize(("ours", "text"), [
    ((0.05, 0.06, 0.07), "with 2 processes over grpc 1.67 times that speed (1.29 to 2.20)."),
    ((0.05, 0.09, 0.12), "over grpc 90 ms: steps differ too much to tell which is faster."),
    ((0.02, 0.03, 0.04), "over grpc less than its share: other work ran beside it, so this tells"),
])
def test_a_speed_is_told_where_the_steps_tell_it(ours, text):
    """One process took 90 to 110 ms; two of them cannot be more than twice as fast."""
    row = {"replicas": 2, "place": "grpc", "processes": 2}
    alone, other = (
        {**row, "least": least, "seconds": median, "most": most}
        for least, median, most in ((0.09, 0.1, 0.11), ours)
    )
    assert text in scaling._speed(alone, other)
