"""A search against all plans (exhaustive, small), against plans by chance, and against training."""

from __future__ import annotations

import hashlib
import random
from dataclasses import replace
from itertools import combinations, pairwise

import numpy as np
import pytest

from ipu.learn import nn
from ipu.learn.optim import SGD
from ipu.learn.policy import FP16
from ipu.machine import FpCtl
from ipu.machine.target import MK2
from ipu.plan.binding import bounds
from ipu.plan.chain import ChainLayer, ChainRanges, LayerChain
from ipu.plan.cycles import Rates
from ipu.plan.memory import Holding, code_bytes, loads
from ipu.plan.plan import Plan
from ipu.plan.search import (
    POPTORCH,
    TENSORFLOW,
    PlanSpace,
    asked_of,
    evaluate,
    front,
    search,
)
from ipu.plan.trainer import PlanTrainer
from ipu.plan.written import HEADS, cells, evidence, search_lines, times, verdict
from tests.ipu.plan.chains import chain_of, costs, faster_by_chance
from tests.ipu.plan.networks import batch
from tests.tiers import pick


@pytest.mark.parametrize("shared", [False, True])
def test_all_plans_at_once_cost_what_each_costs(shared):
    chain = chain_of(6, shared=shared)
    ranges, rng = ChainRanges(chain), random.Random(1)
    both = {**TENSORFLOW, **POPTORCH}
    plans = list(PlanSpace(3, 12, both).plans(chain))
    for plan in rng.sample(plans, min(len(plans), pick(60, 400, 2000))):
        n = plan.n_stages - 1
        cuts = sorted(rng.sample(range(1, 6), n))
        (cycles,), (size,) = evaluate(plan, ranges, np.array([cuts]).reshape(1, n), Rates())
        expected = costs(plan, chain.stages(cuts))
        assert cycles == pytest.approx(expected[0], rel=1e-12)
        assert size == expected[1]


@pytest.mark.parametrize("sends_all", [False, True])
def test_what_many_micro_batches_ask_of_the_memory_is_what_few_ask(sends_all):
    both = {**TENSORFLOW, **POPTORCH}
    space = PlanSpace(4, 48, both, offloads=((), ("activations",)), sends_all=sends_all)
    for plan in space.plans(chain_of(5, shared=True)):
        rows = loads(plan)
        for numbers, slots in asked_of(plan):
            assert slots == {tuple(row[number, 0] for number in numbers) for row in rows}


def test_the_front_of_a_small_chain_is_that_of_all_plans():
    chain = chain_of(5, seed=3)
    space = PlanSpace(2, 4, offloads=((), ("state",), ("activations", "state")))
    result = search(chain, space)
    every = [
        costs(plan, chain.stages(cuts))
        for plan in space.plans(chain)
        for cuts in combinations(range(1, 5), plan.n_stages - 1)
    ]
    assert len(every) == result.tried + result.excluded == result.of_all
    for row in result.rows:
        assert any(row.bytes == s and row.cycles == pytest.approx(c, rel=1e-12) for c, s in every)
    for cycles, size in every:
        assert any(r.bytes <= size and r.cycles <= cycles * (1 + 1e-12) for r in result.rows)
    assert result.rows == front(result.rows)


@pytest.mark.parametrize("n_layers", [12, 40])
def test_no_plan_by_chance_beats_the_best_of_its_memory(n_layers):
    chain = chain_of(n_layers, seed=n_layers)
    result = search(chain, PlanSpace(4, 32, POPTORCH, offloads=((), ("state",))))
    assert not list(faster_by_chance(result, 200))


def test_families_that_a_bound_leaves_out_have_no_better_plan():
    """16 IPUs: most families are out; plans by chance are of all families."""
    chain = chain_of(8, seed=8)
    result = search(chain, PlanSpace(16, 32, POPTORCH, offloads=((), ("state",), ("weights",),
                                                                ("state", "weights"))))
    assert result.excluded > 500
    assert not list(faster_by_chance(result, pick(100, 400, 2000)))


def test_layers_that_share_a_variable_stay_on_one_ipu():
    chain = chain_of(6, shared=True)
    result = search(chain, PlanSpace(2, 8, offloads=((),)))
    for row in result.rows:
        stages = [sum(cut <= layer for cut in row.cuts) for layer in (0, 5)]
        one, other = (row.plan.places[stage] for stage in stages)
        assert one == other
    assert any(row.plan.mapping == (0, 1, 0) for row in result.rows)


# Bits -------------------------------------------------------------------------------------------

LAYERS = [
    lambda x: nn.relu(nn.dense(x, 8, "a")), lambda x: nn.dropout(x, 0.25),
    lambda x: nn.relu(nn.dense(x, 8, "b")), lambda x: nn.dense(x, 3, "c"),
]


def run_of(layers):
    def stage(x):
        for layer in layers:
            x = layer(x)
        return x

    return stage


def test_no_plan_of_a_search_changes_a_bit():
    training = PlanTrainer(
        SGD(0.1, 0.9), plan=Plan(LAYERS, count=8, schedule="sequential"), policy=FP16,
    )
    training.step(*batch(0, 32))
    chain = LayerChain.of_stages(training.figures)
    # Little memory that is worth something, so that the front has plans of many kinds.
    result = search(chain, PlanSpace(3, 8, replicas=1))
    rng = random.Random(3)
    plans = list(result.space.plans(chain))
    rows = [(row.plan, row.cuts) for row in result.rows]
    rows += [
        (plan, tuple(sorted(rng.sample(range(1, 4), plan.n_stages - 1))))
        for plan in rng.sample(plans, pick(8, 40, 200))
    ]
    digests = set()
    for plan, cuts in rows:
        stages = [run_of(LAYERS[a:b]) for a, b in pairwise((0, *cuts, 4))]
        trainer = PlanTrainer(
            SGD(0.1, 0.9), plan=replace(plan, stages=stages), policy=FP16,
            control=FpCtl(esr=True), seed=5,
        )
        for step in range(2):
            trainer.step(*batch(step, 32))
        codes = [v.array.codes().tobytes() for v in trainer.workers[0].variables.values()]
        digests.add(hashlib.sha256(b"".join(codes)).hexdigest())
    assert len({str(plan.schedule) for plan, _ in rows}) >= 2
    assert len(digests) == 1


# Words ------------------------------------------------------------------------------------------


def test_what_binds_is_what_costs():
    chain = chain_of(8, seed=2)
    slow = Rates(MK2, link=replace(Rates().link, value=1e6))
    space = PlanSpace(2, 8, replicas=1, offloads=((),))
    result = search(chain, space, rates=slow)
    row = next(r for r in (*result.rows, *search(chain, space).rows) if r.plan.n_stages == 2)
    assert bounds(result, row, slow)[0].name == "exchange between IPUs"
    few, many = (
        {b.name: b.share for b in bounds(result, row._replace(plan=replace(row.plan, count=n)))}
        for n in (row.plan.count, 16 * row.plan.count)
    )
    assert few["bubble"] > 4 * many["bubble"]
    assert few["update"] > many["update"]


def test_a_model_that_fits_nowhere_is_told_by_how_much():
    chain = replace(chain_of(4), variables={
        i: Holding(size, size, (size, size)) for i, size in enumerate([125 * 10**6] * 4)
    })
    result = search(chain, PlanSpace(2, 8, POPTORCH, offloads=((),)))
    assert result.best is None
    sentence, advice = verdict(result)
    room = result.room - code_bytes(result.smallest.plan)[0]
    assert sentence.startswith(f"no plan fits: the smallest needs {result.smallest.bytes} bytes")
    assert f", {result.smallest.bytes - room} more than the {room} that an IPU of mk2" in sentence
    assert advice.startswith("use more IPUs, smaller micro-batches")
    roomy = search(chain, PlanSpace(2, 8, POPTORCH))
    assert roomy.best is not None
    assert "state" in roomy.best.plan.offloaded
    names = [bound.name for bound in bounds(roomy, roomy.best)]
    assert "remote memory" in names
    assert any(name.startswith("memory of stage") for name in names)


def test_code_may_decide_whether_a_plan_fits():
    """BERT-Large's code, 267 MB, lay on one IPU or on four: the guide does not say."""
    plan = Plan([abs])
    low, high = code_bytes(plan)
    assert (low, high) == (267_019_324 // 4, 267_019_324)
    assert code_bytes(Plan([abs], replicas=2, count=1))[1] == 314_389_272
    room = 1472 * 638976
    for size, fits in ((room - high, 2), (room - low, 1), (room - low + 1, 0)):
        chain = LayerChain([ChainLayer("a", 1, 2, 0, 0, ("w",))], [], {"w": Holding(size)})
        result = search(chain, PlanSpace(1, 1, POPTORCH, offloads=((),)))
        (row,) = result.rows
        assert result.fits(row) + result.fits(row, surely=True) == fits
        lines = "\n".join(verdict(result))
        assert ("no plan fits" in lines) == (fits == 0)
        assert ("it fits if its code takes less than" in lines) == (fits == 1)


def test_times_are_intervals():
    result = search(chain_of(6), PlanSpace(2, 8, POPTORCH))
    for row in result.rows:
        fast, slow = times(result, row)
        assert fast < 1e3 * row.cycles / MK2.clock.value < slow
    lines = list(evidence(result))
    assert lines[0].startswith("clock, Hz: 1330000000.0 (INFERRED")
    assert len(lines) == 7


def test_a_search_in_words_has_a_row_for_each_plan_of_its_front():
    result = search(chain_of(6), PlanSpace(2, 8, POPTORCH))
    lines = list(search_lines(result))
    assert lines[0].split() == " ".join(HEADS).split()
    assert [line.startswith("*") for line in lines[1 : 1 + len(result.rows)]].count(True) == 1
    assert all(len(cells(result, row)) == len(HEADS) for row in result.rows)
    assert any(line.startswith("it is bound by ") for line in lines)
    assert f"{result.tried} of {result.of_all} plans were tried" in "\n".join(lines)


def test_what_cannot_be_searched_is_refused():
    with pytest.raises(ValueError, match="ipus=0 is no number of them; use 1 or more"):
        PlanSpace(0, 4)
    with pytest.raises(ValueError, match="replicas=3 do not share micro_batches=4 on ipus=4"):
        PlanSpace(4, 4, replicas=3)
    with pytest.raises(ValueError, match="chain has no layers; measure a program"):
        search(LayerChain([], []), PlanSpace(1, 4))
