"""Offload and shards: law (equal bits), differential (bytes counted again), golden (shards)."""

from __future__ import annotations

import json

import pytest
from matplotlib import pyplot as plt

from ipu.experiments.execution import offload_and_sharding as offload
from ipu.experiments.execution.measured_plans import figures_of_rows
from ipu.plan.cycles import remote_share, timeline
from tests.experiments.figures import assert_panels


@pytest.fixture(scope="module")
def quick():
    return offload.run(quick=True, seed=1)


@pytest.fixture(scope="module")
def ways(quick):
    return {row["way"]: row for row in quick.select(part="account")}


@pytest.mark.source("S0-69")
def test_offload_recomputation_and_shards_change_no_bit(quick, ways):
    for replicas, n in ((1, 6), (2, 3), (4, 3)):
        rows = [row for row in ways.values() if row["replicas"] == replicas]
        assert len(rows) == n
        assert len({(row["digest"], row["loss"]) for row in rows}) == 1
    assert len({row["digest"] for row in ways.values()}) == 3, "more replicas see more samples"
    assert quick.answer.endswith("the same bits.")


@pytest.mark.source("S0-64", "S0-68")
def test_bytes_of_the_state_are_counted_a_second_time(ways, quick):
    figures = figures_of_rows(quick.select(part="figures", way="state offloaded"))
    state = sum(x for stage in figures for x in stage.state_tensors if x >= 128)
    row = ways["state offloaded"]
    assert row["remote_bytes"] == state
    assert (row["transfers"], row["moved_bytes"]) == (8, 2 * state)
    weights = sum(stage.parameter_bytes for stage in figures)
    row = ways["weights offloaded"]
    assert row["remote_bytes"] == weights
    # in for 8 forward and 8 backward programs and for the update, out once
    assert row["moved_bytes"] == 18 * weights
    plain = ways["all on the chip"]
    assert (plain["remote_bytes"], plain["moved_bytes"], plain["remote_share"]) == (0, 0, 0.0)


def test_a_shard_is_the_replicas_part_of_the_state(ways):
    for n in (2, 4):
        offloaded, shard = (ways[f"{n} replicas, state {how}"] for how in ("offloaded", "sharded"))
        assert shard["remote_bytes"] == offloaded["remote_bytes"] / n
        assert shard["moved_bytes"] == offloaded["moved_bytes"] / n
        assert shard["cycles"] < offloaded["cycles"]


def test_kinds_add_up_to_what_is_held(quick, ways):
    for way, row in ways.items():
        kinds = quick.select(part="kinds", way=way)
        assert sum(kind["bytes"] for kind in kinds) == row["chip_bytes"]
        assert row["always_bytes"] <= row["chip_bytes"]
    assert ways["state offloaded"]["always_bytes"] < ways["all on the chip"]["always_bytes"]
    assert ways["recomputation"]["chip_bytes"] < ways["all on the chip"]["chip_bytes"]
    assert ways["recomputation"]["cycles"] > ways["all on the chip"]["cycles"]


def test_the_share_of_remote_memory_is_that_of_the_timeline(quick, ways):
    for way in ("activations offloaded", "4 replicas, state sharded"):
        events = timeline(
            offload.plan_of(way), figures_of_rows(quick.select(part="figures", way=way))
        )
        end = max(event.start + event.cycles for event in events)
        lanes: dict[int, float] = {}
        for event in events:
            if event.lane == "remote":
                lanes[event.ipu] = lanes.get(event.ipu, 0) + event.cycles
        assert ways[way]["remote_share"] == pytest.approx(max(lanes.values()) / end)
        assert ways[way]["remote_share"] == remote_share(events)
        assert ways[way]["cycles"] == end


def test_the_sentence_is_computed_a_second_time(quick, ways):
    plain = ways["all on the chip"]
    assert f"Of {plain['chip_bytes'] / 1000:.0f} kB on the chip" in quick.answer
    row = ways["recomputation"]
    saved = 1 - row["chip_bytes"] / plain["chip_bytes"]
    assert f"recomputation saves {saved:.0%} for" in quick.answer
    assert "50% with 2" in quick.answer
    assert "75% with 4" in quick.answer


def test_other_bits_are_told(quick):
    rows = [dict(row) for row in quick.rows]
    next(row for row in rows if row["part"] == "account")["digest"] = "d0"
    assert offload._answer(rows).endswith("different bits.")


def test_the_table_has_every_way(quick):
    (table,) = offload.tables(quick)
    assert [line[0] for line in table.lines] == list(offload.WAYS)
    assert "StreamCopyMidRemoteBuffer" in table.heads
    assert all(len(line) == len(table.heads) for line in table.lines)


def test_every_panel_shows_data(quick):
    assert_panels(offload.plot(quick), 3)


def test_pictures_and_files(quick):
    pictures = offload.pictures(quick)
    assert len(pictures) == len(offload.SHOWN)
    for figure in pictures.values():
        plt.close(figure)
    for name in ("slots.json", "account.json"):
        assert set(json.loads(quick.files[name])) == set(offload.WAYS)
    processes = [
        row for row in json.loads(quick.files["trace.json"])["traceEvents"]
        if row["name"] == "process_name"
    ]
    assert len(processes) == 4 * len(offload.WAYS)
