"""Plans explain themselves and refuse what does not fit (golden)."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from fpsim.records.evidence import Evidence, Fact
from ipu.machine.target import MK2
from ipu.plan.explain import TECHNIQUES, alternatives, check_fit, explain, few_rounds
from ipu.plan.memory import OutOfMemoryError, StageFigures, capacity, lives, peaks
from ipu.plan.plan import Plan

MB = 1_000_000
OWN = [
    StageFigures(
        parameter_bytes=80 * MB, accumulator_bytes=80 * MB, state_bytes=80 * MB,
        input_bytes=MB, saved_bytes=20 * MB,
        forward_cycles=MB, backward_cycles=2 * MB, update_cycles=1000,
    )
] * 4
#: A machine of 300 MB.
SMALL = replace(MK2, name="small", tiles=Fact(3, Evidence.ASSUMED, "a test"),
                tile_memory=Fact(100 * MB, Evidence.ASSUMED, "a test"))


def stage(x):
    return x


def plan_of(**choices):
    return Plan([stage] * 4, **{"count": 16, **choices})


def most(plan, figures=OWN):
    return max(peak.bytes for peak in peaks(lives(plan, figures)).values())


def test_an_explanation_tells_time_memory_and_what_else_would_fit():
    text = explain(plan_of(), OWN)
    assert "utilisation 84.2% of the slots' 57000000 cycles, bubble 15.8%" in text
    # 57 M cycles, then twice 80 MB at 20 GB/s and 1.325 GHz around 1000 cycles of update.
    assert "with copies, transfers and the update 67601000 cycles" in text
    assert "IPU 0: compute 71.0%, remote 15.7%, idle 13.3%" in text
    assert "IPU 0: peak 360000000 bytes in the update, 38.3% of 940572672: fifo 120000000" in text
    # Weights, accumulators and the queue of six micro-batches; the state comes for the update.
    assert "accumulators 80000000, state 80000000; 280000000 bytes always live" in text
    assert "micro-batches held between slots, by stage: 7 5 3 1" in text
    assert "the guide's rule for 4 stages says 9 7 5 3" in text
    assert "with recompute=True: 246000000 bytes, fits" in text
    assert "pipeline: good for large models" in text
    assert "26% of the slots fill or drain the pipeline; count=64 has fewer" in text
    assert "cycles are ASSUMED" in text


def test_the_lowest_alternative_comes_first_and_each_is_what_it_says():
    rows = alternatives(plan_of(), OWN)
    assert [row.bytes for row in rows] == sorted(row.bytes for row in rows)
    for row in rows:
        assert row.bytes == most(row.plan) < most(plan_of())
    changes = [row.change for row in rows]
    assert "recompute=True" in changes
    assert "offload=('state', 'activations')" in changes
    assert "schedule='interleaved'" in changes
    assert "recompute=True, schedule='sequential'" in changes


def test_alternatives_change_no_bit():
    changes = [row.change for row in alternatives(plan_of(shared_gradients="stage"), OWN)]
    assert changes
    assert not [change for change in changes if "schedule" in change]
    allowed = re.compile(r"(recompute|offload|schedule|shard_state)=")
    for row in alternatives(plan_of(replicas=2), OWN):
        assert all(allowed.match(change) for change in re.split(r", (?=\w+=)", row.change))
        for name in ("count", "replicas", "order", "reduction", "dtype", "ring", "buffer_size"):
            assert getattr(row.plan, name) == getattr(plan_of(replicas=2), name)


@pytest.mark.parametrize("schedule", ["grouped", "popart", "interleaved", "sequential"])
def test_a_few_rounds_show_the_peak_of_many(schedule):
    figures = [
        StageFigures(parameter_bytes=7, state_bytes=300, input_bytes=n, saved_bytes=9 * n)
        for n in (5, 0, 40, 41)
    ]
    rows = alternatives(plan_of(schedule=schedule, count=40, offload=()), figures)
    assert len(rows) > 3 or schedule == "sequential"
    for row in rows:
        assert row.bytes == most(row.plan, figures)


@pytest.mark.parametrize("schedule", ["popart", "grouped", "sequential"])
def test_rounds_are_eight_micro_batches_for_each_stage(schedule):
    plan = Plan([stage] * 3, schedule=schedule, count=6 * 64)
    assert few_rounds(plan) == replace(plan, count=8 * 3)


def test_a_plan_of_few_micro_batches_is_not_made_longer():
    tiny = replace(SMALL, tiles=Fact(1, Evidence.ASSUMED, "a test"))
    figures = [StageFigures(saved_bytes=60 * MB)]
    check_fit(Plan([stage]), figures, tiny)
    with pytest.raises(ValueError, match="the plan needs 120000000 bytes"):
        check_fit(Plan([stage], count=2), figures, tiny)


def test_what_does_not_fit_is_refused_with_what_would():
    assert capacity(plan_of(), SMALL) == 300 * MB
    with pytest.raises(
        OutOfMemoryError,
        match=re.escape(
            "out of memory: the plan needs 360000000 bytes on IPU 0 (in the update), target=small "
            "has 300000000; stage 0: fifo 120000000 (always), weights 80000000 (always), "
            "accumulators 80000000 (always), state 80000000 (always); "
            "use schedule='interleaved', or check_memory=False to run it all the same"
        ),
    ):
        explain(plan_of(), OWN, SMALL)
    check_fit(plan_of(check_memory=False), OWN, SMALL)
    check_fit(plan_of(recompute=True), OWN, SMALL)
    assert "120.0% of 300000000" in explain(plan_of(check_memory=False), OWN, SMALL)
    tiny = replace(SMALL, name="tiny", tiles=Fact(1, Evidence.ASSUMED, "a test"))
    with pytest.raises(OutOfMemoryError, match=r"has 100000000; .*; use more stages on more IPU"):
        check_fit(plan_of(), OWN, tiny)
    with pytest.raises(OutOfMemoryError, match="; use smaller micro-batches, or more stage"):
        check_fit(Plan([stage], offload=()), [StageFigures(saved_bytes=200 * MB)], tiny)
    late = [replace(s, state_bytes=0) for s in OWN]
    with pytest.raises(ValueError, match=re.escape("on IPU 0 (in slot 7)")):
        check_fit(plan_of(), late, tiny)


@pytest.mark.source("S3-41")
def test_all_six_tables_of_the_guide_are_told_where_memory_is_short():
    plan = plan_of(replicas=2, shard_state=True, io_tiles=32, check_memory=False)
    told = [t.name for t in TECHNIQUES if f"{t.name}: good for" in explain(plan, OWN, SMALL)]
    assert told == [
        "pipeline", "replicas", "I/O tiles", "sharded state", "reduced precision",
        "other schemes (domain sharding, tensor parallelism)",
    ]


@pytest.mark.source("S3-04")
@pytest.mark.source("S3-41")
def test_advice_comes_where_it_applies():
    plan = plan_of(replicas=2, shard_state=True, io_tiles=32)
    fed = [replace(OWN[0], infeed_bytes=4816896, state_bytes=400 * MB), *OWN[1:3], OWN[3]]
    slow = [*fed[:3], replace(OWN[3], forward_cycles=9 * MB)]
    text = explain(plan, slow)
    assert [t.name for t in TECHNIQUES if f"{t.name}: good for" in text] == [
        "pipeline", "replicas", "I/O tiles", "sharded state",
    ]
    assert "IPU 3 computes 2.20 times the mean; move layers away from it" in text
    assert "a micro-batch of 4816896 bytes fits 8 I/O tiles" in text
    assert "squares the size, says 38127584); the plan has 32" in text
    away = explain(plan_of(offload=("state", "weights")), OWN)
    assert re.search(r"remote memory takes \d\d% of an IPU's cycles; offload=\(\) needs 400000000 "
                     "bytes and fits", away)
    full = explain(plan_of(offload=("state", "weights"), check_memory=False), OWN, SMALL)
    assert "offload=() needs 400000000 bytes and does not fit" in full


def test_one_stage_and_inference_are_explained_too():
    text = explain(Plan([stage], schedule="sequential"), OWN[:1])
    assert "pipeline" not in text
    assert "utilisation 100.0%" in text
    served = explain(plan_of(training=False), OWN)
    assert "held between slots" not in served
    nothing = explain(Plan([stage], training=False), [StageFigures()])
    assert "utilisation 0.0%" in nothing


@pytest.mark.source("S3-15")
def test_the_published_growth_of_exchange_code_is_told_with_replicas():
    """BERT-Large from 1 to 4 replicas: +28 %, +17 %, +0 %, +350 %."""
    assert "exchange code" not in explain(plan_of(), OWN)
    told = explain(plan_of(replicas=2), OWN)
    assert "control code +28%, internal exchange +17%, host exchange +0%" in told
    assert "global exchange +350% (DOCUMENTED" in told
