"""Schedules against their formulas (golden), data flow of any schedule (law)."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipu.plan.measures import held_between_slots, latency
from ipu.plan.schedule import (
    Phase,
    Program,
    Schedule,
    check,
    n_slots,
    places,
    programs,
    ramp_share,
    recompute_mode,
    required_multiple,
    smallest_count,
)

F, B, R = Phase.FORWARD, Phase.BACKWARD, Phase.RECOMPUTE
NAMES = ("grouped", "popart", "interleaved", "sequential")
LINE = (0, 1, 2, 3)
SEED_EXAMPLE = (0, (1, 2), 2, 3)


def test_interleaved_with_twelve_micro_batches_takes_30_slots():
    assert n_slots("interleaved", 4, LINE, 12) == 30


def formula(name, n, count, training):
    """Slots by the general formulas."""
    if not training:
        return n * count if name == "sequential" else count + n - 1
    return {
        "grouped": count + 2 * n - 1,
        "popart": count + 2 * n - 2,
        "interleaved": 2 * count + 2 * n - 2,
        "sequential": 2 * n * count,
    }[name]


@st.composite
def cases(draw):
    name = draw(st.sampled_from(NAMES))
    n = draw(st.integers(1, 8))
    training = draw(st.booleans())
    multiple = required_multiple(name, n, training=training)
    least = smallest_count(name, n, training=training)
    count = multiple * draw(st.integers(-(-least // multiple), -(-least // multiple) + 2))
    modes = [None, True]
    if name == "popart":
        modes = [None, "then", "interleaved"]
    if name == "grouped":
        modes = [None, "then", "interleaved"]
    return name, n, count, training, draw(st.sampled_from(modes))


@given(cases())
def test_any_schedule_obeys_data_flow(case):
    name, n, count, training, recompute = case
    work = programs(name, n, range(n), count, recompute=recompute, training=training)
    when = {(p.phase, p.stage, p.micro_batch): k for k, p in enumerate(work)}
    assert len(when) == len(work), "a program runs twice"
    slot = {(p.phase, p.stage, p.micro_batch): p.slot for p in work}
    assert [p.slot for p in work] == sorted(p.slot for p in work)
    phases = {F} | ({B} if training else set())
    expected = {(f, i, m) for f in phases for i in range(n) for m in range(count)}
    if recompute and training:
        expected |= {(R, i, m) for i in range(n - 1) for m in range(count)}
    assert set(when) == expected
    for m in range(count):
        for i in range(n):
            assert i == 0 or slot[F, i - 1, m] < slot[F, i, m], "an output crosses slots"
            for phase in {p for p, _, _ in expected}:
                assert (
                    not m or (phase, i, m) not in when or when[phase, i, m - 1] < when[phase, i, m]
                )
            if training:
                assert when[F, i, m] < when[B, i, m]
                assert i + 1 == n or slot[B, i + 1, m] < slot[B, i, m]
            if (R, i, m) in when:
                assert when[F, i, m] < when[R, i, m] < when[B, i, m]
                earlier = recompute_mode(name, recompute) == "then"
                assert slot[R, i, m] == slot[B, i, m] - earlier
    assert work[-1].slot + 1 == n_slots(name, n, range(n), count, training=training)
    assert work[-1].slot + 1 == formula(name, n, count, training)
    assert {p.slot for p in work} == set(range(work[-1].slot + 1))


def test_programs_of_a_slot_run_forwards_then_backwards():
    work = [p for p in programs("grouped", 4, LINE, 8, recompute="interleaved") if p.slot == 7]
    assert [(p.phase, p.stage, p.micro_batch) for p in work] == [
        (F, 0, 7), (F, 1, 6), (F, 2, 5), (F, 3, 4),
        (B, 3, 3), (R, 2, 2), (B, 2, 2), (R, 1, 1), (B, 1, 1), (R, 0, 0), (B, 0, 0),
    ]


def test_recomputation_runs_behind_the_slot_before_the_backward_stage():
    work = programs("interleaved", 4, LINE, 4, recompute="then")
    first = next(p for p in work if p.phase is R and p.stage == 1)
    backward = next(p for p in work if p.phase is B and p.stage == 1)
    # The source counts the slots of its example from 1: recomputation in 6, backward in 7.
    assert (first.slot, backward.slot) == (5, 6)
    slot = [p for p in work if p.slot == 5]
    assert slot[-1] == Program(5, 1, R, 1, 0)
    grouped = [p for p in programs("grouped", 4, LINE, 8, recompute="then") if p.slot == 6]
    assert [p.phase for p in grouped] == [F] * 4 + [B] * 3 + [R] * 3
    assert [(p.stage, p.micro_batch) for p in grouped[-3:]] == [(2, 2), (1, 1), (0, 0)]
    assert all(p.phase is not R for p in slot[:-1])


def test_recomputation_modes_go_with_their_schedules():
    modes = {name: recompute_mode(name, True) for name in NAMES}
    assert modes == dict(zip(NAMES, ("then", "interleaved", "then", "interleaved"), strict=True))
    assert recompute_mode("grouped", None) is recompute_mode("grouped", False) is None
    for name, mode, instead in (
        ("sequential", "then", "interleaved"),
        ("interleaved", "interleaved", "then"),
    ):
        with pytest.raises(ValueError, match=f"recompute='{mode}' does not go .* use '{instead}'"):
            recompute_mode(name, mode)
    with pytest.raises(ValueError, match="recompute='always' is not a mode; use None, True"):
        recompute_mode("grouped", "always")


@pytest.mark.parametrize("name", ["grouped", "popart", "sequential"])
def test_concurrent_stages_share_a_position(name):
    work = programs(name, 4, SEED_EXAMPLE, 8, recompute=True)
    plain = programs(name, 4, LINE, 8, recompute=True)
    assert {p.slot for p in work} == {p.slot for p in plain}
    pair = [(p.phase, p.ipu, p.branch) for p in work if p.stage == 1 and p.micro_batch == 2]
    forwards = [row for row in pair if row[0] is F]
    backwards = [row for row in pair if row[0] is B]
    assert forwards == [(F, 1, 0), (F, 2, 1)]
    assert backwards == [(B, 2, 1), (B, 1, 0)]
    assert len(work) == len(plain) + 3 * 8


def test_interleaved_places_concurrent_stages_by_their_ipus():
    work = programs("interleaved", 3, (0, (1, 2), 3), 6)
    assert held_between_slots(work) == (3, 2, 1)
    slots = [{(p.slot, p.ipu)} for p in work]
    assert len(set().union(*slots)) == len(slots), "an IPU runs two programs in a slot"


@pytest.mark.parametrize("name", NAMES)
def test_inference_runs_forward_stages_only(name):
    work = programs(name, 3, (0, 1, 2), 6, training=False, recompute=True)
    assert {p.phase for p in work} == {F}
    assert work[-1].slot + 1 == (18 if name == "sequential" else 8)
    assert latency(work) == 3


@pytest.mark.source("S3-22")
def test_infeeds_and_outfeeds_overlap_on_io_tiles():
    n, count = 4, 11
    work = programs("grouped", n, LINE, count, io_overlap=True)
    when = {(p.phase, p.stage, p.micro_batch): p.slot for p in work}
    for m in range(count):
        assert when[Phase.INFEED, 0, m] == m
        assert [when[F, i, m] for i in range(n)] == [m + 1 + i for i in range(n)]
        assert when[Phase.OUTFEED, n - 1, m] == when[F, n - 1, m] + 1
        assert [when[B, i, m] for i in range(n)] == [m + 2 * n - i for i in range(n)]
    slots = n_slots("grouped", n, LINE, count, io_overlap=True)
    assert slots == count + 2 * n + 1
    # In training nothing leaves behind B_0, so the last of these slots is empty.
    assert work[-1].slot + 1 == slots - 1
    served = programs("grouped", n, LINE, count, io_overlap=True, training=False)
    assert served[-1].slot + 1 == count + n + 1
    first = [p.phase for p in work if p.slot == 5]
    assert first[:3] == [Phase.OUTFEED, Phase.INFEED, F]


@pytest.mark.source("S3-24")
@pytest.mark.parametrize(
    ("arguments", "options", "sentence"),
    [
        (
            ("grouped", 4, LINE, 10),
            {},
            "count=10: The number of iterations of the pipeline must be a multiple of 8, but it is "
            "10; use 8 or 16",
        ),
        (("interleaved", 4, LINE, 3), {}, "must be a multiple of 4, but it is 3; use 4 or 8"),
        (
            ("grouped", 3, LINE[:3], 10),
            {"training": False},
            "must be a multiple of 3, but it is 10",
        ),
        (("sequential", 4, LINE, 0), {}, "must be a multiple of 1, but it is 0; use 1 or 2"),
        (("popart", 4, LINE, 6), {}, "popart pipeline of 4 stages needs 7 micro-batches or more"),
        (("grouped", 4, LINE, 9), {"io_overlap": True}, "with I/O tiles needs 10 micro-batches"),
        (
            ("interleaved", 4, LINE, 8),
            {"io_overlap": True},
            "io_tiles overlap with schedule='group",
        ),
        (("grouped", 4, LINE[:3], 8), {}, "mapping=[0, 1, 2] has 3 entries for 4 stages"),
        (("interleaved", 4, (0, 1, 1, 0), 8), {}, "cannot place two stages on one IPU"),
        (
            ("grouped", 2, (0, (1, 1)), 8),
            {},
            "the entry [1, 1]; concurrent stages need an IPU each",
        ),
        (("grouped", 0, (), 8), {}, "n_stages=0: use 1 or more"),
        (("alternating", 2, (0, 1), 8), {}, "schedule='alternating' is not a schedule; use one of"),
    ],
)
def test_impossible_schedules_are_refused(arguments, options, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        programs(*arguments, **options)


def test_one_stage_is_no_pipeline_and_takes_any_count():
    for name in NAMES:
        assert required_multiple(name, 1) == 1
        assert check(name, 1, (0,), 3) == ((0,),)
        assert len(programs(name, 1, (0,), 3)) == 6


def test_interleaved_inference_takes_the_rotations_in_which_no_ipu_meets_itself():
    work = programs("interleaved", 4, (0, 1, 1, 0), 4, training=False)
    assert required_multiple("interleaved", 4, (0, 1, 1, 0), training=False) == 2
    assert len({(p.slot, p.ipu) for p in work}) == len(work)


def test_arguments_are_read():
    assert Schedule.parse(Schedule.POPART) is Schedule.POPART
    assert places((0, [1, 2])) == ((0,), (1, 2))


@pytest.mark.source("S0-56")
def test_ramps_take_a_falling_share_of_a_pipeline():
    shares = [ramp_share(count, 4) for count in (8, 16, 64, 512)]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] == 7 / 15
    assert ramp_share(1, 1) == 0.5
    with pytest.raises(ValueError, match="stages=0: use 1 or more"):
        ramp_share(8, 0)
