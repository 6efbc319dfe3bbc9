"""Plans say what they are and refuse what cannot run (golden), without any machine."""

from __future__ import annotations

import re
from dataclasses import FrozenInstanceError, replace
from itertools import permutations

import pytest

from fpsim import BINARY32
from ipu.learn.accumulate import Accumulation, Reduction
from ipu.plan.orders import Order, Ring
from ipu.plan.plan import Entry, Plan, Stash, equal_stages, replica_count
from ipu.plan.schedule import Phase, Schedule, programs


def stage(x):
    return x


def other(x):
    return -x


def two(x, y):
    return x


FOUR = [stage] * 4
CONCURRENT = [stage, [stage, other], stage, stage]


def test_a_plan_of_four_stages_tells_what_it_does():
    plan = Plan(FOUR, count=8, reduction="mean", dtype=BINARY32)
    assert plan.schedule is Schedule.GROUPED
    assert (plan.n_stages, plan.ipus, plan.n_ipus) == (4, (0, 1, 2, 3), 4)
    assert plan.slots == 15
    assert plan.programs == programs("grouped", 4, range(4), 8)
    assert plan.stash == Stash((6, 4, 2, 0), (7, 5, 3, 1), (8, 6, 4, 2))
    assert plan.utilisation() == pytest.approx(0.727, abs=5e-4)
    assert plan.utilisation(lambda p: 1) == pytest.approx(64 / 4 / (2 * 7 + 8), abs=1e-12)
    assert (plan.cycles(), plan.cycles(equal_stages)) == (33, 33)
    assert plan.accumulation == Accumulation(8, Reduction.MEAN, BINARY32)
    assert plan.latency == 8


def test_one_stage_and_one_replica_are_a_plan():
    plan = Plan([stage])
    assert (plan.n_stages, plan.ipus, plan.count, plan.replicas) == (1, (0,), 1, 1)
    assert [p.phase for p in plan.programs] == [Phase.FORWARD, Phase.BACKWARD]
    assert plan.offloaded == frozenset()
    assert Plan([stage], count=3).slots == 4
    assert plan.entries == (Entry(0, 0, 0, stage),)


def test_plans_are_compared_replaced_and_printed():
    plan = Plan(FOUR, count=8)
    assert plan == Plan(tuple(FOUR), count=8, schedule="GROUPED", ring="flat")
    assert hash(plan) == hash(Plan(FOUR, count=8))
    longer = replace(plan, stages=[stage] * 6, count=12)
    assert longer.ipus == (0, 1, 2, 3, 4, 5)
    assert longer != plan
    assert replace(longer, schedule="popart", count=11).slots == 21
    with pytest.raises(FrozenInstanceError):
        plan.count = 9
    with pytest.raises(ValueError, match="must be a multiple of 8, but it is 9; use 8 or 16"):
        replace(plan, count=9)
    assert str(plan) == (
        "4 stages on IPU 0 1 2 3, grouped, 15 slots\n"
        "SUM of 8 in the variable's, 1 replica\n"
        "in remote memory: state"
    )
    full = Plan(
        CONCURRENT, mapping=[0, [1, 2], 2, 3], count=10, recompute=True, replicas=4,
        order="tf_ring", ring="interleaved", shard_state=True, io_tiles=32,
    )
    assert (full.order, full.ring) == (Order.TF_RING, Ring.INTERLEAVED)
    assert str(full) == (
        "4 stages on IPU 0 1+2 2 3, grouped, 19 slots\n"
        "SUM of 10 in the variable's, 4 replicas summed in order tf_ring\n"
        "recomputation: then\n"
        "in remote memory: state\n"
        "optimiser state in 4 parts\n"
        "32 I/O tiles"
    )
    assert "Plan(stages=(<function stage" in repr(full)


@pytest.mark.source("S0-41")
def test_the_default_mapping_is_the_shortest_on_a_line():
    shortest = min(Plan(FOUR, mapping=m, count=8).distance for m in permutations(range(4)))
    assert Plan(FOUR, count=8).distance == shortest == 3
    assert Plan(FOUR, mapping=[0, 2, 3, 1], count=8).distance == 5
    assert Plan(FOUR, mapping=[0, 1, 1, 0], count=8).distance == 2
    assert Plan(CONCURRENT, count=8).places == ((0,), (1, 2), (3,), (4,))
    assert Plan(CONCURRENT, count=8).distance == 1 + 2 + 2 + 1 + 1


@pytest.mark.source("S0-45")
def test_concurrent_stages_make_a_pipeline_shorter():
    parallel = Plan([stage, [stage, other], stage], count=24)
    serial = Plan(FOUR, count=24)
    assert len(parallel.ipus) == len(serial.ipus) == 4
    assert (parallel.latency, serial.latency) == (6, 8)
    assert (sum(parallel.stash.held), sum(serial.stash.held)) == (9, 16)
    assert parallel.slots < serial.slots


def test_entries_name_every_callable_and_its_ipu():
    rows = Plan(CONCURRENT, mapping=[0, [1, 2], 2, 3], count=8).entries
    assert [(e.stage, e.branch, e.ipu) for e in rows] == [
        (0, 0, 0), (1, 0, 1), (1, 1, 2), (2, 0, 2), (3, 0, 3),
    ]
    assert rows[2].run is other


def test_recomputation_and_inference():
    assert Plan(FOUR, count=8, recompute=True).recomputation == "then"
    assert Plan(FOUR, schedule="sequential", recompute=True).recomputation == "interleaved"
    assert any(p.phase is Phase.RECOMPUTE for p in Plan(FOUR, count=8, recompute=True).programs)
    served = Plan(FOUR, count=4, recompute=True, training=False)
    assert served.recomputation is None
    assert served.slots == 7
    assert served.stash == Stash(*((0, 0, 0, 0),) * 3)
    assert served.offloaded == frozenset()


@pytest.mark.source("S0-65", "S0-66", "S0-67")
def test_the_state_is_offloaded_where_gradients_accumulate_unless_told_otherwise():
    assert Plan(FOUR, count=8).offloaded == {"state"}
    assert Plan([stage], count=2).offloaded == {"state"}
    assert Plan([stage]).offloaded == frozenset()
    assert Plan(FOUR, count=8, offload=()).offloaded == frozenset()
    assert Plan(FOUR, count=8, offload=["activations"]).offloaded == {"activations"}
    assert Plan(FOUR, count=8, remote_buffers=False).offloaded == frozenset()


@pytest.mark.source("S0-26")
def test_replicas_take_a_multiple_of_the_stages_ipus():
    assert replica_count(8, 2) == 4
    plan = Plan([stage, stage], count=4).on_ipus(8)
    assert (plan.replicas, plan.n_ipus) == (4, 8)
    with pytest.raises(ValueError, match=r"n_ipus=7 is no multiple of the 2 IPUs .*; use 6"):
        plan.on_ipus(7)
    with pytest.raises(ValueError, match=r"n_ipus=1 is no multiple of the 2 IPUs .*; use 2"):
        plan.on_ipus(1)


@pytest.mark.source("S0-54")
def test_a_batch_is_cut_by_micro_batches_and_replicas():
    plan = Plan(FOUR, count=8, replicas=2)
    assert plan.samples(4) == 64
    assert plan.micro_batch(64) == 4
    with pytest.raises(ValueError, match="batch=40 is no multiple of 16, which is count=8 times "
                                         "replicas=2; use 32"):
        plan.micro_batch(40)
    with pytest.raises(ValueError, match="batch=0 is no multiple of 16"):
        plan.micro_batch(0)


@pytest.mark.source("S0-71")
def test_small_tensors_are_not_sharded():
    plan = Plan(FOUR, count=8, replicas=2, shard_state=True, shard_minimum=8192)
    assert plan.is_sharded(8192)
    assert not plan.is_sharded(8191)
    assert not Plan(FOUR, count=8, replicas=2).is_sharded(10**6)
    on_chip = Plan(FOUR, count=8, replicas=2, shard_state=True, remote_buffers=False)
    assert on_chip.offloaded == frozenset()


@pytest.mark.source("S0-43")
def test_stages_share_variables_on_one_ipu_only():
    plan = Plan(FOUR, mapping=[0, 1, 1, 0], count=8)
    plan.check_variables([["a"], ["b", "c"], ["c"], ["a"]])
    with pytest.raises(ValueError, match="stages 0 and 2 share the variable a, but run on IPUs 0 "
                                         "and 1; map both to one IPU"):
        plan.check_variables([["a"], ["b"], ["a"], ["c"]])
    concurrent = Plan(CONCURRENT, mapping=[0, [1, 2], 2, 3], count=8)
    concurrent.check_variables([["a"], ["b"], ["c"], ["c"], ["d"]])
    with pytest.raises(ValueError, match="concurrent stages 0 and 1 of position 1 share the "
                                         "variable b; give each its own"):
        concurrent.check_variables([["a"], ["b"], ["b"], ["c"], ["d"]])
    with pytest.raises(ValueError, match="zip"):
        plan.check_variables([["a"]])


@pytest.mark.source("S0-52")
def test_explicit_checkpoints_need_their_schedules():
    Plan(FOUR, count=8).check_checkpoints()
    Plan([stage], schedule="sequential").check_checkpoints()
    Plan(FOUR, mapping=[0] * 4, schedule="sequential").check_checkpoints()
    with pytest.raises(ValueError, match="checkpoints on several IPUs need schedule='grouped', not "
                                         "'interleaved'"):
        Plan(FOUR, count=8, schedule="interleaved").check_checkpoints()
    with pytest.raises(ValueError, match="on one IPU need schedule='sequential', not 'grouped'"):
        Plan([stage]).check_checkpoints()


@pytest.mark.source("S0-59")
def test_a_plan_accumulates_by_itself():
    Plan(FOUR, count=8).check_accumulation(None)
    with pytest.raises(ValueError, match="a plan accumulates by itself; use Plan\\(count=4\\) and"):
        Plan(FOUR, count=8).check_accumulation(Accumulation(4))


@pytest.mark.parametrize(
    ("arguments", "error", "sentence"),
    [
        (
            {"count": 10},
            ValueError,
            "count=10: The number of iterations of the pipeline must be a multiple of 8, but it is "
            "10; use 8 or 16",
        ),
        ({}, ValueError, "must be a multiple of 8, but it is 1; use 8 or 16"),
        (
            {"schedule": "popart", "count": 6},
            ValueError,
            "needs 7 micro-batches or more; use count=",
        ),
        ({"mapping": [0, 1]}, ValueError, "mapping=[0, 1] has 2 entries for 4 stages; give every"),
        ({"mapping": [0, 1, 2, "3"]}, ValueError, "holds '3'; use numbers of IPUs"),
        (
            {"schedule": "interleaved", "mapping": [0, 1, 1, 0]},
            ValueError,
            "schedule='interleaved' cannot place two stages on one IPU, mapping=[0, 1, 1, 0]; use",
        ),
        (
            {"schedule": "interleaved", "io_tiles": 32},
            ValueError,
            "io_tiles overlap with schedule='",
        ),
        ({"schedule": "sequential", "io_tiles": 32}, ValueError, "not with 'sequential'"),
        ({"io_tiles": 3}, ValueError, "io_tiles=3 is odd; use 4"),
        ({"io_tiles": -2}, ValueError, "io_tiles=-2: use 0 or more"),
        ({"io_tiles": 32}, ValueError, "4 stages with I/O tiles needs 10 micro-batches or more"),
        (
            {"order": "recursive_doubling", "replicas": 3},
            ValueError,
            "order='recursive_doubling' needs a power of two of replicas, got replicas=3",
        ),
        ({"order": "star"}, ValueError, "order='star' is not an order of a sum"),
        (
            {"ring": "double"},
            ValueError,
            "ring='double' is not a ring; use one of flat, interleaved",
        ),
        ({"replicas": 0}, ValueError, "replicas=0: use 1 … 1024"),
        ({"replicas": 1025}, ValueError, "replicas=1025: use 1 … 1024"),
        ({"replicas": 2.0}, TypeError, "replicas=2.0 is not a number; use an integer"),
        ({"count": 65544}, ValueError, "count=65544: use 1 … 65536"),
        ({"count": "8"}, TypeError, "count='8' is not a number of mini-batches"),
        ({"reduction": "median"}, ValueError, "Cannot parse 'median' as one of Reduction"),
        ({"dtype": 3}, TypeError, "dtype=3 is not an accumulator's format"),
        ({"prefetch": 0}, ValueError, "prefetch=0: use 1 … 255"),
        ({"buffer_size": -1}, ValueError, "buffer_size=-1: use 0 or more"),
        (
            {"shared_gradients": "all"},
            ValueError,
            "shared_gradients='all': use 'variable' or 'stage'",
        ),
        ({"sync": "never"}, ValueError, "sync='never': use 'slot' or 'group'"),
        ({"recompute": "always"}, ValueError, "recompute='always' is not a mode"),
        (
            {"schedule": "sequential", "recompute": "then"},
            ValueError,
            "recompute='then' does not go with schedule='sequential'; use 'interleaved'",
        ),
        (
            {"offload": ["weights"], "remote_buffers": False},
            ValueError,
            "offload=weights needs remote buffers",
        ),
        (
            {"shard_state": True},
            ValueError,
            "shard_state=True with replicas=1: there is nothing to",
        ),
        ({"output_period": 0}, ValueError, "output_period=0: use 1 or more"),
        ({"stages": [stage, [stage, two]]}, ValueError, "concurrent stages take other arguments"),
        ({"stages": []}, ValueError, "stages=[] is empty"),
    ],
)
def test_plans_that_cannot_run_are_refused(arguments, error, sentence):
    usual = {"stages": FOUR, "count": 8 if len(arguments) > 0 else 1}
    with pytest.raises(error, match=re.escape(sentence)):
        Plan(**{**usual, **arguments})


def test_one_stage_may_overlap_its_transfers():
    plan = Plan([stage], schedule="sequential", count=2, io_tiles=32)
    assert [p.phase.name for p in plan.programs][:3] == ["INFEED", "FORWARD", "OUTFEED"]
