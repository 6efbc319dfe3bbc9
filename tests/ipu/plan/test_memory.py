"""The account of a plan's memory: known answers of a tutorial's network (golden), sums (law)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fpsim.records.evidence import Evidence
from ipu.machine.target import MK1, MK2
from ipu.plan.memory import (
    KINDS,
    REMOTE_MINIMUM,
    Holding,
    Live,
    Peak,
    StageFigures,
    always_live,
    capacity,
    figures_of,
    guide_io_tiles,
    io_tiles_for,
    kept_bytes,
    lives,
    peaks,
    remote_bytes,
    transfers,
    update_program,
)
from ipu.plan.plan import Plan
from ipu.plan.schedule import Phase

F, B, R, UPDATE = Phase.FORWARD, Phase.BACKWARD, Phase.RECOMPUTE, Phase.UPDATE
#: Stage inputs of the tutorial's network, batch 40 in FP32.
INPUTS = (125440, 230400, 51200, 40960)
STASH = ("fifo", "activations")


def stage(x):
    return x


def plan_of(schedule="grouped", **choices):
    count = {"grouped": 8, "popart": 8, "interleaved": 8}.get(schedule, 3)
    return Plan([stage] * 4, **{"schedule": schedule, "count": count, "offload": (), **choices})


def figures(**sizes):
    return [StageFigures(input_bytes=n, saved_bytes=n, **sizes) for n in INPUTS]


def most(rows, kinds):
    """The largest sum over those kinds of each IPU."""
    sums = {}
    for row in rows:
        if row.kind in kinds:
            sums[row.ipu, row.slot] = sums.get((row.ipu, row.slot), 0) + row.bytes
    return tuple(max(n for (i, _), n in sums.items() if i == ipu) for ipu in range(4))


@pytest.mark.source("S0-47", "S0-50")
@pytest.mark.parametrize(
    ("schedule", "peak"),
    [
        ("grouped", (1003520, 1382400, 204800, 81920)),
        ("popart", (878080, 1152000, 153600, 40960)),
        ("interleaved", (501760, 691200, 102400, 40960)),
        ("sequential", INPUTS),
    ],
)
def test_stage_inputs_of_a_tutorials_network_until_backward(schedule, peak):
    rows = lives(plan_of(schedule, recompute=True), figures())
    assert most(rows, STASH) == peak


def test_queues_live_always_and_the_rest_while_it_is_needed():
    rows = lives(plan_of(), figures())
    depths = {row.ipu: row.bytes for row in rows if row.kind == "fifo"}
    assert depths == {0: 6 * 125440, 1: 4 * 230400, 2: 2 * 51200}
    beyond = {(row.slot, row.ipu): row.bytes for row in rows if row.kind == "activations"}
    assert {slot for slot, ipu in beyond if ipu == 0} == set(range(6, 9))
    assert beyond[6, 0] == 125440
    assert beyond[7, 0] == 2 * 125440
    assert (14, 0) not in beyond


def test_a_recomputed_stage_keeps_its_inputs_and_checkpoints_and_has_a_tape_for_a_while():
    one_stage = StageFigures(input_bytes=10, saved_bytes=100, checkpoint_bytes=3)
    plain, again = plan_of(), plan_of(recompute="then")
    assert kept_bytes(plain, 0, one_stage) == kept_bytes(plain, 3, one_stage) == 100
    assert (kept_bytes(again, 0, one_stage), kept_bytes(again, 3, one_stage)) == (13, 100)
    assert kept_bytes(plan_of(training=False), 0, one_stage) == 0
    tapes = [row for row in lives(again, [one_stage] * 4) if row.kind == "tape" and row.ipu == 1]
    # B_1 runs in slots 6 … 13; its recomputation in the slot before.
    assert [row.slot for row in tapes] == list(range(5, 14))
    assert {row.bytes for row in tapes} == {100}
    together = lives(plan_of(recompute="interleaved"), [one_stage] * 4)
    assert [r.slot for r in together if (r.kind, r.ipu) == ("tape", 1)] == list(range(6, 14))
    assert all(row.ipu != 3 for row in lives(again, [one_stage] * 4) if row.kind == "tape")
    peak, without = (peaks(lives(p, [one_stage] * 4))[0].bytes for p in (again, plain))
    assert peak < without


def test_variables_live_always_and_state_in_remote_memory_at_the_update_only():
    stages = [StageFigures(parameter_bytes=1000, accumulator_bytes=500, state_bytes=2000)] * 4
    on_chip = lives(plan_of(), stages)
    assert always_live(on_chip) == dict.fromkeys(range(4), 3500)
    away = lives(plan_of(offload=None), stages)
    assert always_live(away) == dict.fromkeys(range(4), 1500)
    assert [row for row in away if row.kind == "state" and row.ipu == 2] == [
        Live(15, 2, "state", 2000)
    ]
    assert peaks(away)[2] == Peak(
        2, 15, 3500, {"weights": 1000, "accumulators": 500, "state": 2000}
    )
    assert not [row for row in lives(plan_of(training=False), stages) if row.kind == "state"]


@pytest.mark.source("S0-64", "S0-68")
def test_state_moves_twice_for_an_update_and_small_tensors_stay():
    one_stage = StageFigures(state_bytes=1000 + 127 + 128, state_tensors=(1000, 127, 128))
    plan = plan_of(offload=None)
    assert one_stage.state_in(plan) == (127, 1128)
    moves = transfers(plan, [one_stage] * 4)
    assert len(moves) == 2 * 4
    assert [(m.program.slot, m.program.phase, m.kind, m.direction, m.bytes) for m in moves[:2]] == [
        (15, UPDATE, "state", "in", 1128), (15, UPDATE, "state", "out", 1128),
    ]
    assert transfers(plan_of(), [one_stage] * 4) == ()
    assert remote_bytes(plan, [one_stage] * 4) == {"state": 4 * 1128}
    assert REMOTE_MINIMUM.evidence is Evidence.DOCUMENTED
    assert peaks(lives(plan, [one_stage] * 4))[0].bytes >= 127


@pytest.mark.source("S3-33")
def test_sharded_state_takes_the_rth_part():
    one_stage = StageFigures(state_bytes=4 * 1001 + 40, state_tensors=(4 * 1001, 40))
    plan = plan_of(offload=("state",), replicas=4, shard_state=True)
    assert one_stage.state_in(plan) == (12, 4 * 251)
    assert one_stage.state_in(plan_of(replicas=4)) == (4044, 0)
    large = plan_of(offload=("state",), replicas=4, shard_state=True, shard_minimum=8192)
    assert one_stage.state_in(large) == (40, 4004)


def test_activations_in_remote_memory_go_out_behind_forward_and_come_before_backward():
    plan = plan_of(offload=("activations",))
    moves = transfers(plan, figures())
    assert remote_bytes(plan, figures()) == {"activations": 6 * 125440 + 4 * 230400 + 2 * 51200}
    assert {(m.program.phase, m.direction) for m in moves} == {(F, "out"), (B, "in")}
    assert len(moves) == 2 * 8 * 3
    assert {m.program.stage for m in moves} == {0, 1, 2}
    again = transfers(plan_of(offload=("activations",), recompute="then"), figures())
    assert {(m.program.phase, m.direction) for m in again} == {(F, "out"), (R, "in")}
    rows = lives(plan, figures())
    assert not [row for row in rows if row.kind == "fifo"]
    assert most(rows, STASH) == (2 * 125440, 2 * 230400, 2 * 51200, 2 * 40960)


def test_accumulators_and_weights_in_remote_memory_move_with_the_programs_that_use_them():
    stages = [StageFigures(parameter_bytes=1000, accumulator_bytes=500)] * 4
    plan = plan_of(offload=("accumulators", "weights"))
    moves = transfers(plan, stages)
    weights = [m for m in moves if m.kind == "weights"]
    accumulators = [m for m in moves if m.kind == "accumulators"]
    assert len(weights) == 4 * (2 * 8 + 2)
    assert len(accumulators) == 4 * (2 * 8 + 1)
    assert [m.direction for m in weights if m.program.phase is UPDATE][:2] == ["in", "out"]
    assert remote_bytes(plan, stages) == {"accumulators": 2000, "weights": 4000}
    rows = lives(plan, stages)
    assert {r.slot for r in rows if (r.kind, r.ipu) == ("weights", 3)} == {*range(3, 12), 15}
    assert {r.slot for r in rows if (r.kind, r.ipu) == ("accumulators", 3)} == {*range(4, 12), 15}


@pytest.mark.source("S3-22")
def test_io_tiles_hold_what_comes_and_what_is_used():
    stages = [StageFigures(infeed_bytes=7, outfeed_bytes=2)] * 4
    plain = lives(plan_of(), stages)
    assert {(r.slot, r.bytes) for r in plain if (r.kind, r.ipu) == ("io", 0)} == {
        (slot, 7) for slot in range(8)
    }
    beside = lives(plan_of(count=10, io_tiles=32), stages)
    first = {r.slot: r.bytes for r in beside if (r.kind, r.ipu) == ("io", 0)}
    assert first == {0: 7, **dict.fromkeys(range(1, 10), 14), 10: 7}


def test_temporaries_of_stages_on_one_ipu_share_their_room():
    stages = [StageFigures(work_bytes=n, parameter_bytes=n) for n in (1, 20, 3, 4)]
    rows = lives(plan_of(mapping=[0, 1, 1, 0]), stages)
    assert max(r.bytes for r in rows if (r.kind, r.ipu) == ("work", 0)) == 4
    assert max(r.bytes for r in rows if (r.kind, r.ipu) == ("work", 1)) == 20
    assert {r.bytes for r in rows if (r.kind, r.ipu) == ("weights", 0)} == {5}


@given(
    st.sampled_from(["grouped", "popart", "interleaved", "sequential"]),
    st.lists(st.integers(0, 1000), min_size=4, max_size=4),
    st.booleans(),
    st.sets(st.sampled_from(["state", "activations", "accumulators", "weights"])),
)
def test_every_row_counts_once_and_offloading_never_raises_a_peak(schedule, sizes, again, away):
    stages = [
        StageFigures(
            parameter_bytes=3 * n, state_bytes=200 * n, accumulator_bytes=2 * n, input_bytes=n,
            saved_bytes=5 * n, checkpoint_bytes=n // 2,
        )
        for n in sizes
    ]
    rows = lives(plan_of(schedule, recompute=again, offload=away), stages)
    assert len({(r.slot, r.ipu, r.kind) for r in rows}) == len(rows)
    assert {r.kind for r in rows} <= set(KINDS)
    assert all(r.bytes > 0 for r in rows)
    chip = peaks(lives(plan_of(schedule, recompute=again), stages))
    for ipu, peak in peaks(rows).items():
        assert peak.bytes == sum(peak.by_kind.values()) <= chip[ipu].bytes
        assert always_live(rows)[ipu] <= peak.bytes


@pytest.mark.source("S3-23", "X-02")
def test_io_tiles_for_a_micro_batch():
    size = 16 * 224 * 224 * 3 * 2
    assert size == 4816896
    assert io_tiles_for(size, MK2) == 8
    assert io_tiles_for(size, MK2, poptorch=True) == 32
    assert io_tiles_for(10**9, MK2, poptorch=True) == 192
    assert io_tiles_for(1, MK2) == 2
    assert io_tiles_for(0, MK2) == 0
    assert io_tiles_for(3 * 638976 // 105 * 100, MK2) == 4
    assert guide_io_tiles(size, MK2) == pytest.approx(1.05 * size**2 / 638976)


def test_tiles_for_transfers_take_their_memory_from_the_model():
    assert capacity(plan_of(), MK2) == 1472 * 638976
    assert capacity(plan_of(count=10, io_tiles=32), MK2) == 1440 * 638976
    assert capacity(plan_of(), MK1) == 1216 * 262144


def test_figures_go_with_the_stages():
    with pytest.raises(ValueError, match="figures has 3 entries for 4 stages; give those of each"):
        figures_of(plan_of(), figures()[:3])
    with pytest.raises(ValueError, match="state_tensors add up to 5 bytes, but state_bytes=4"):
        StageFigures(state_bytes=4, state_tensors=(5,))
    plan = Plan([stage, [stage, abs]], count=4, mapping=[0, [1, 2]])
    assert figures_of(plan, figures()[:3])[1, 1][0].run is abs
    assert update_program(plan, plan.entries[2]) == (7, 2, UPDATE, 1, -1, 1)


@pytest.mark.source("S3-33")
def test_a_sharded_state_on_the_chip_is_there_in_parts():
    one_stage = StageFigures(parameter_bytes=4000, state_bytes=8000, state_itemsize=4)
    for replicas in (2, 4):
        plan = Plan([abs], count=2, replicas=replicas, shard_state=True, offload=())
        (peak,) = peaks(lives(plan, [one_stage])).values()
        assert peak.by_kind["state"] == 8000 // replicas
        assert remote_bytes(plan, [one_stage]) == {}


def test_outputs_that_stay_on_the_device_are_no_transfer():
    one_stage = StageFigures(outfeed_bytes=100)
    for period, sent in ((1, 4), (2, 2), (4, 1)):
        plan = Plan([abs], count=4, output_period=period, training=False)
        assert sum(row.bytes for row in lives(plan, [one_stage]) if row.kind == "io") == 100 * sent


@pytest.mark.source("S0-68")
def test_an_update_brings_one_variable_after_the_other():
    """Offloading lowers the peak: the update holds the state of one variable, not of all."""
    variables = tuple(Holding(size, size, (size, size)) for size in (4000, 2000, 1000, 1000))
    one_stage = StageFigures(
        parameter_bytes=8000, accumulator_bytes=8000, state_bytes=16000,
        state_tensors=tuple(s for v in variables for s in v.state), variables=variables,
    )
    chip, away = (
        peaks(lives(plan_of(offload=offload), [one_stage] * 4))[0] for offload in ((), ("state",))
    )
    assert chip.by_kind == {"weights": 8000, "accumulators": 8000, "state": 16000}
    assert away.by_kind == {"weights": 8000, "accumulators": 8000, "state": 8000}
    everything = plan_of(offload=("state", "accumulators", "weights"))
    rows = lives(everything, [one_stage] * 4)
    update = {r.kind: r.bytes for r in rows if (r.slot, r.ipu) == (15, 2)}
    assert update == {"weights": 4000, "accumulators": 4000, "state": 8000}
    assert remote_bytes(everything, [one_stage] * 4)["state"] == 4 * 16000
