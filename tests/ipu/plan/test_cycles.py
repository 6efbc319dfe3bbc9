"""The timeline of a plan against its schedule's cycles (law) and small cases (golden)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fpsim.records.evidence import Evidence, weakest
from ipu.machine.target import BOW, MK1, MK2
from ipu.plan.cycles import (
    HOST,
    LANES,
    LINK,
    REMOTE,
    Rates,
    compute_cycles,
    copies,
    program_cycles,
    remote_share,
    shares,
    timeline,
    update_time,
    waits,
)
from ipu.plan.memory import StageFigures
from ipu.plan.plan import Plan
from ipu.plan.schedule import Phase, Program

#: One byte takes one cycle, on every way.
CLOCK = MK2.clock.value
UNIT = Rates(MK2, *(replace(fact, value=CLOCK) for fact in (LINK, REMOTE, HOST)))
EQUAL = StageFigures(forward_cycles=1, backward_cycles=2)


def stage(x):
    return x


def plan_of(n=4, schedule="grouped", count=8, **choices):
    return Plan([stage] * n, **{"schedule": schedule, "count": count, "offload": (), **choices})


def end(events):
    return max((e.start + e.cycles for e in events), default=0)


@given(
    st.sampled_from(["grouped", "popart", "interleaved", "sequential"]),
    st.lists(st.tuples(*[st.integers(1, 9)] * 3), min_size=4, max_size=4),
    st.booleans(),
    st.sampled_from(["slot", "group"]),
)
def test_without_copies_a_timeline_takes_the_schedules_cycles(schedule, costs, again, sync):
    figures = [
        StageFigures(forward_cycles=f, backward_cycles=b, update_cycles=u) for f, b, u in costs
    ]
    plan = plan_of(schedule=schedule, recompute=again, sync=sync)
    events = timeline(plan, figures)
    compute = plan.cycles(program_cycles(plan, figures))
    assert end(events) == compute + max(u for _, _, u in costs)
    assert {e.lane for e in events} == {"compute"}
    updates = [e for e in events if e.kind == "update"]
    assert len(updates) == 4
    assert {e.start for e in updates} == {compute}
    busy = {}
    for e in sorted(events):
        assert e.start >= busy.get(e.ipu, 0), "an IPU runs two programs at once"
        busy[e.ipu] = e.start + e.cycles


def test_cycles_of_a_program_come_from_its_stage():
    plan = plan_of(2, count=4, replicas=2, shard_state=True, offload=None)
    figures = [StageFigures(forward_cycles=3, backward_cycles=5, update_cycles=7)] * 2
    figures[1] = replace(figures[1], recompute_cycles=2)
    cost = program_cycles(plan, figures)
    phases = (Phase.FORWARD, Phase.BACKWARD, Phase.RECOMPUTE, Phase.UPDATE, Phase.INFEED)
    rows = [[cost(Program(0, i, phase, i, 0)) for phase in phases] for i in range(2)]
    assert rows == [[3, 5, 3, 4, 0], [3, 5, 2, 4, 0]]
    assert compute_cycles(10, 6 * 1472, MK2) == 11
    assert compute_cycles(10, 6 * 1472 + 1, MK2) == 12
    assert compute_cycles(10, 0, MK2) == 10


def test_bandwidths_are_assumed():
    assert weakest(Rates().facts) is Evidence.ASSUMED
    assert (LINK.value, REMOTE.value, HOST.value) == (160e9, 20e9, 20e9)
    assert Rates().cycles(16e9, "link") == pytest.approx(CLOCK / 10)
    assert Rates(BOW).cycles(20e9, "host") == BOW.clock.value
    assert Rates().cycles(20e9, "remote") == CLOCK


def test_outputs_go_to_the_next_ipu_and_gradients_come_back():
    figures = [replace(EQUAL, output_bytes=n) for n in (10, 20, 30, 40)]
    plan = plan_of()
    rows = [(c.program.phase, c.program.ipu, c.target, c.bytes) for c in copies(plan, figures)]
    forward, backward = Phase.FORWARD, Phase.BACKWARD
    assert set(rows) == {
        (forward, 0, 1, 10), (forward, 1, 2, 20), (forward, 2, 3, 30),
        (backward, 3, 2, 30), (backward, 2, 1, 20), (backward, 1, 0, 10),
    }
    assert len(rows) == 6 * 8
    assert len(copies(plan_of(mapping=[0, 1, 1, 0]), figures)) == 4 * 8
    assert copies(plan_of(mapping=[0, 0, 0, 0]), figures) == ()
    fork = Plan([stage, [stage, stage], stage], count=6)
    assert len(copies(fork, figures)) == 8 * 6


def test_copies_stand_at_the_end_of_a_slot():
    figures = [replace(EQUAL, output_bytes=5)] * 2
    events = timeline(plan_of(2, count=4), figures, UNIT)
    first = [(e.start, e.cycles, e.ipu, e.kind) for e in events if e.slot < 2]
    assert first == [
        (0, 1, 0, "forward"), (1, 5, 0, "copy"),
        (6, 1, 0, "forward"), (6, 1, 1, "forward"), (7, 5, 0, "copy"),
    ]
    assert end(events) == plan_of(2, count=4).cycles() + 5 * 4 + 5 * 4


@pytest.mark.source("S3-22")
def test_streams_come_before_compute_or_beside_it_on_io_tiles():
    figures = [replace(EQUAL, infeed_bytes=3), EQUAL]
    before = timeline(plan_of(2, count=8), figures, UNIT)
    beside = timeline(plan_of(2, count=8, io_tiles=2), figures, UNIT)
    assert [(e.kind, e.start) for e in before if e.ipu == 0 and e.slot == 1] == [
        ("infeed", 4), ("forward", 7),
    ]
    assert [(e.kind, e.start) for e in beside if e.ipu == 0 and e.slot == 1] == [
        ("infeed", 3), ("forward", 3),
    ]
    assert end(beside) < end(before)
    assert shares(before)[0].by_lane["host"] == shares(beside)[0].by_lane["host"] == 24
    leaving = [EQUAL, replace(EQUAL, outfeed_bytes=2)]
    assert [e.kind for e in timeline(plan_of(2, count=4), leaving, UNIT) if e.ipu == 1][:2] == [
        "forward", "outfeed",
    ]


@pytest.mark.source("S0-68", "S3-26")
def test_offloaded_state_lengthens_the_update():
    figures = [replace(EQUAL, update_cycles=4, state_bytes=200)] * 4
    chip, away = timeline(plan_of(), figures, UNIT), timeline(plan_of(offload=None), figures, UNIT)
    assert (end(chip), end(away)) == (33 + 4, 33 + 200 + 4 + 200)
    assert [e.kind for e in away if e.slot == 15 and e.ipu == 0] == [
        "state in", "update", "state out",
    ]
    assert remote_share(chip) == 0
    assert remote_share(away) == pytest.approx(400 / 437)
    assert remote_share(away) > 0.58
    assert remote_share(()) == 0


def test_replicas_sum_their_gradients_before_the_update():
    figures = [replace(EQUAL, accumulator_bytes=n, update_cycles=1) for n in (40, 80, 40, 40)]
    events = timeline(plan_of(replicas=4), figures, UNIT)
    sums = {e.ipu: e.cycles for e in events if e.kind == "reduce"}
    assert sums == {0: 60, 1: 120, 2: 60, 3: 60}
    assert end(events) == 33 + 120 + 1
    assert not [e for e in timeline(plan_of(), figures, UNIT) if e.kind == "reduce"]


def test_shares_of_an_ipus_time():
    events = timeline(plan_of(), [EQUAL] * 4)
    rows = shares(events)
    assert [rows[ipu].by_lane["compute"] for ipu in range(4)] == [24] * 4
    assert [rows[ipu].idle for ipu in range(4)] == [33 - 24] * 4
    assert all(set(row.by_lane) == set(LANES) for row in rows.values())
    beside = timeline(
        plan_of(2, count=8, io_tiles=2), [replace(EQUAL, infeed_bytes=3), EQUAL], UNIT
    )
    first = shares(beside)[0]
    assert first.idle < first.total - first.by_lane["compute"]
    assert first.idle >= first.total - sum(first.by_lane.values())


@pytest.mark.source("S3-21")
@given(st.integers(1, 20), st.integers(1, 20), st.integers(1, 6), st.integers(0, 40))
def test_a_prefetch_buffer_never_holds_more_than_its_depth(produce, consume, depth, count):
    waited, most = waits(produce, consume, depth, count)
    assert len(waited) == count
    assert most <= depth
    assert all(w >= 0 for w in waited)
    if produce <= consume:
        assert sum(waited) == (produce if count else 0)
    deeper = waits(produce, consume, depth + 1, count)[0]
    assert sum(deeper) <= sum(waited)


def test_a_slow_host_is_waited_for():
    assert waits(5, 2, 3, 4) == ([5, 3, 3, 3], 1)
    assert waits(1, 2, 3, 5) == ([1, 0, 0, 0, 0], 3)


def test_a_span_has_both_ends_of_what_sources_say():
    fast, slow = Rates.span(MK2)
    figures = [replace(
        EQUAL, forward_cycles=1000, backward_cycles=2000, output_bytes=10**6, infeed_bytes=10**6,
        forward_exchange=100, backward_exchange=10, forward_saving=300, backward_saving=30,
    )] * 2
    plan = plan_of(2, count=4)
    ends = [update_time(plan, figures, rates) / rates.target.clock.value for rates in (fast, slow)]
    assert ends[0] < update_time(plan, figures) / CLOCK < ends[1]
    costs = [program_cycles(plan, figures, rates) for rates in (fast, None, slow)]
    forth, back = (Program(0, 0, phase, 0, 0) for phase in (Phase.FORWARD, Phase.BACKWARD))
    assert [(cost(forth), cost(back)) for cost in costs] == [
        (700, 1970), (1000, 2000), (1100, 2010),
    ]
    for one, other in zip(fast.facts[:4], slow.facts[:4], strict=True):
        assert one.value > other.value
        assert one.source != other.source
    assert [rates.link.value for rates in Rates.span(MK1)] == [160e9, 160e9]
    assert Rates.span(BOW)[0].target is BOW


FIGURES = st.builds(
    StageFigures, **{
        name: st.integers(0, 10**6) for name in (
            "parameter_bytes", "state_bytes", "accumulator_bytes", "input_bytes", "output_bytes",
            "saved_bytes", "checkpoint_bytes", "infeed_bytes", "outfeed_bytes", "forward_cycles",
            "backward_cycles", "update_cycles",
        )
    },
)


@given(
    st.sampled_from(["grouped", "popart", "interleaved", "sequential"]),
    st.lists(st.lists(FIGURES, min_size=4, max_size=4), min_size=2, max_size=3),
    st.booleans(),
    st.sets(st.sampled_from(["state", "activations", "accumulators", "weights"])),
    st.sampled_from([1, 3, 16]),
    st.sampled_from([1, 2]),
)
def test_the_time_of_an_update_is_the_end_of_its_timeline(
    schedule, rows, again, away, period, replicas
):
    plan = plan_of(
        schedule=schedule, count=16, recompute=again, offload=away, output_period=period,
        replicas=replicas,
    )
    ends = [end(timeline(plan, row)) for row in rows]
    assert [update_time(plan, row) for row in rows] == pytest.approx(ends, rel=1e-12)


def test_an_idle_plan_takes_no_time():
    assert update_time(plan_of(), [StageFigures()] * 4) == 0
