"""Plans reach no bit, replicas stay equal, and a training by a plan goes on after any end (law)."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from fpsim import BINARY16, BINARY32, FloatingPointTrap
from ipu.learn import nn
from ipu.learn.accumulate import Accumulation
from ipu.learn.loss_scale import (
    LEARNING_RATE,
    AutomaticLossScale,
    DynamicLossScale,
    StaticLossScale,
)
from ipu.learn.optim import SGD, Adam, CastGradientsSGD
from ipu.learn.policy import FP8, FP16, FP32, FP64, MIXED
from ipu.learn.train import Trainer as Plain
from ipu.learn.variables import variable_scope
from ipu.learn.variables.regularisers import l2_regularizer
from ipu.machine import FpCtl
from ipu.plan.orders import tree
from ipu.plan.plan import Plan
from ipu.plan.trainer import PlanTrainer, chain
from tests.ipu.plan import networks
from tests.ipu.plan.networks import (
    CONCURRENT,
    ROW,
    SKIP,
    SKIP_MAPPING,
    batch,
    joined,
    outcome,
    trainer,
)
from tests.tiers import pick

SCHEDULES = ("grouped", "interleaved", "sequential", "popart")
REDUCTIONS = ("sum", "mean", "running_mean")
BOTH = (None, True)


#: Cuts, schedules, mappings and recomputation. The quick tier has each schedule and each cut once,
#: with and without recomputation, under one reduction; the others have one plan each.
PLANS = [
    *({"n": n, "schedule": s, "recompute": r} for n, s, r in product((2, 4), SCHEDULES, BOTH)),
    *(
        {"n": 4, "schedule": s, "recompute": r, "mapping": [0, 1, 1, 0]}
        for s, r in product(("grouped", "sequential", "popart"), BOTH)
    ),
]
CHOSEN = {
    name: pick(PLANS[i :: len(PLANS) - 1] if i else PLANS[::3], PLANS, PLANS)
    for i, name in enumerate(REDUCTIONS)
}


@pytest.mark.source("S0-31")
@pytest.mark.source("S0-36")
@pytest.mark.source("S0-49")
@pytest.mark.source("S0-53")
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_cut_schedule_mapping_and_recomputation_reach_no_bit(reduction):
    reference = outcome(Plan(ROW[1], count=8, reduction=reduction))
    for choices in CHOSEN[reduction]:
        others = {key: value for key, value in choices.items() if key != "n"}
        plan = Plan(ROW[choices["n"]], count=8, reduction=reduction, **others)
        assert outcome(plan) == reference, plan


@pytest.mark.parametrize("policy", [FP16, MIXED], ids=str)
def test_skips_and_shared_layers_are_cut_without_a_change(policy):
    reference = outcome(Plan(SKIP[1], count=8), policy=policy)
    plans = list(product((2, 4), ("grouped", "sequential", "popart"), BOTH))
    for n, schedule, recompute in pick(plans[::5], plans, plans):
        plan = Plan(
            SKIP[n], mapping=SKIP_MAPPING[n], count=8, schedule=schedule, recompute=recompute
        )
        assert outcome(plan, policy=policy) == reference, plan


@pytest.mark.source("S0-42")
@pytest.mark.source("S0-44")
@pytest.mark.parametrize(
    ("schedule", "recompute"),
    pick(list(zip(SCHEDULES, BOTH * 2, strict=True)), *[list(product(SCHEDULES, BOTH))] * 2),
)
def test_concurrent_stages_are_those_one_after_the_other(schedule, recompute):
    plan = Plan(
        CONCURRENT, mapping=[0, [1, 2], 3], count=12, schedule=schedule, recompute=recompute
    )
    assert outcome(plan) == outcome(Plan(networks.ONE_AFTER_THE_OTHER, count=12))


def _pass_on(x):
    return x


@pytest.mark.parametrize("n_empty", [1, 2])
@pytest.mark.parametrize(
    ("schedule", "recompute"),
    pick([("grouped", None), ("grouped", True)], *[list(product(SCHEDULES, BOTH))] * 2),
)
def test_a_last_stage_that_returns_its_input_changes_nothing(schedule, recompute, n_empty):
    reference = outcome(Plan(ROW[1], count=12), control=FpCtl(esr=True))
    stages = [*ROW[1], *[_pass_on] * n_empty]
    plan = Plan(stages, count=12, schedule=schedule, recompute=recompute)
    assert outcome(plan, control=FpCtl(esr=True)) == reference
    between = Plan([*ROW[2][:1], _pass_on, *ROW[2][1:]], count=12, schedule=schedule)
    assert outcome(between, control=FpCtl(esr=True)) == reference


def test_parts_of_shared_gradients_that_are_added_stage_by_stage_depend_on_the_schedule():
    ends = {}
    for schedule in ("grouped", "sequential"):
        plan = Plan(
            SKIP[4], mapping=SKIP_MAPPING[4], count=8, schedule=schedule, shared_gradients="stage"
        )
        with pytest.warns(RuntimeWarning, match="the bits depend on the plan"):
            ends[schedule] = outcome(plan)
    assert ends["grouped"] != ends["sequential"]
    running = Plan(SKIP[1], count=8, shared_gradients="stage", reduction="running_mean")
    with pytest.raises(ValueError, match="which a running mean cannot"):
        trainer(running)


#: Optimiser, stochastic rounding and reduction; the quick tier has each once.
MOMENTUM, ADAM = SGD(0.1, 0.9), Adam(0.01, epsilon=1e-4)
ALIKE = pick(
    list(zip((MOMENTUM, ADAM, MOMENTUM), (True, False, False), REDUCTIONS, strict=True)),
    *[list(product((MOMENTUM, ADAM), (False, True), REDUCTIONS))] * 2,
)


@pytest.mark.source("S0-40")
@pytest.mark.parametrize(("optimizer", "esr", "reduction"), ALIKE, ids=str)
def test_one_stage_is_the_training_without_a_plan(optimizer, esr, reduction):
    """Two trainers, of which one knows no plan."""
    choices = {"policy": FP16, "control": FpCtl(esr=esr), "seed": 5}
    plain = Plain(
        ROW[1][0], optimizer, accumulation=Accumulation(8, reduction),
        loss_scale=StaticLossScale(64.0), **choices,
    )
    losses = [plain.step(*batch(t, 16)) for t in range(4)]
    planned = trainer(Plan(ROW[4], count=8, reduction=reduction), optimizer=optimizer, **choices)
    assert [planned.step(*batch(t, 16)) for t in range(4)] == losses
    for name, variable in plain.variables.items():
        assert np.array_equal(variable.array.codes(), planned.variables[name].array.codes()), name
    x = batch(9, 5)[0]
    assert np.array_equal(plain.forward(x).array.codes(), planned.forward(x).array.codes())


#: Choices of a training whose steps differ from the usual one.
CHOICES = {
    "quarters": {"policy": FP8, "target": "mk2-fp8"},
    "mixed, dynamic scale": {
        "policy": MIXED, "loss_scale": DynamicLossScale(2.0**10),
        "control": FpCtl(esr=True, nanoo=True), "optimizer": Adam(0.01, epsilon=1e-4),
    },
    "scaled slots": {
        "loss_scale": DynamicLossScale(2.0**4, route=LEARNING_RATE, interval=1),
        "control": FpCtl(esr=True, nanoo=True),
    },
    "automatic scale": {"policy": MIXED, "loss_scale": AutomaticLossScale()},
    "a layer in FP32": {"policy": FP16.override({"third": FP32})},
    "binary64": {"policy": FP64, "target": "reference", "control": FpCtl()},
    "exact units": {"preset": "exact"},
    "units to nearest": {"disable_sr_for_amp_vertices": True},
    "other machine": {"max_nan": "propagate", "f32_denormals": "ieee"},
    "casts in the optimiser": {"optimizer": CastGradientsSGD(0.1, 0.9), "dtype": BINARY32},
}


@pytest.mark.parametrize("choices", CHOICES.values(), ids=CHOICES.keys())
def test_trainings_of_every_kind_are_cut_without_a_change(choices):
    settings = {"policy": FP16, "control": FpCtl(esr=True), "seed": 5, "count": True} | choices
    if settings["policy"] is FP64:
        settings["count"] = False
    optimizer, dtype = settings.pop("optimizer", SGD(0.1, 0.9)), settings.pop("dtype", None)
    accumulation = Accumulation(8, "mean", dtype)
    plain = Plain(ROW[1][0], optimizer, accumulation=accumulation, **settings)
    plan = Plan(ROW[4], count=8, reduction="mean", dtype=dtype, recompute=True)
    planned = PlanTrainer(optimizer, plan=plan, **settings)
    for t in range(3):
        assert plain.step(*batch(t, 16)) == planned.step(*batch(t, 16))
    for name, variable in plain.variables.items():
        assert np.array_equal(variable.array.carrier, planned.variables[name].array.carrier), name
    assert plain.device.status == planned.device.status
    assert plain.loss_scale == planned.loss_scale
    if plain.device.counts is not None:
        rows = {key: dict(row) for key, row in planned.device.counts.items()}
        assert {key: dict(row) for key, row in plain.device.counts.items()} == {
            key: row for key, row in rows.items() if not key[0].endswith("/recompute")
        }


def test_regularisers_of_all_stages_are_in_the_loss():
    def regular(stage):
        def layers(*values):
            with variable_scope("all", use_resource=True, regularizer=l2_regularizer(0.01)):
                return stage(*values)

        return layers

    stages = [regular(stage) for stage in ROW[4]]
    reference = outcome(Plan([joined(*stages)], count=8))
    assert outcome(Plan(stages, count=8, recompute=True)) == reference
    assert reference != outcome(Plan(ROW[1], count=8))


def test_accumulators_have_the_format_of_the_plan_or_the_policy():
    for dtype in (BINARY32, lambda variable: BINARY32):
        wide = outcome(Plan(ROW[4], count=8, dtype=dtype), optimizer=SGD(0.1, format=BINARY32))
        assert wide == outcome(
            Plan(ROW[1], count=8, dtype=dtype), optimizer=SGD(0.1, format=BINARY32)
        )
        assert wide != outcome(
            Plan(ROW[1], count=8, dtype=BINARY16), optimizer=SGD(0.1, format=BINARY32)
        )


# Traps, refusals, state -----------------------------------------------------------------------


def test_a_trap_names_its_place_and_changes_nothing():
    plan = Plan(ROW[4], count=8, replicas=2)
    training = trainer(plan, control=FpCtl(oflo=True), loss_scale=StaticLossScale(2.0**40))
    training.forward(batch(0, 2)[0])
    before = networks.digest(training)
    with pytest.raises(FloatingPointTrap) as caught:
        training.step(*batch(0, 32))
    assert str(caught.value).endswith(
        "in loss/gradient, replica 0, IPU 3, stage 3, micro-batch 0, slot 4"
    )
    assert networks.digest(training) == before
    assert training.steps == 0
    assert training.figures is None


def test_an_error_of_a_stage_leaves_no_variables():
    def broken(x):
        raise KeyError("of the user")

    training = trainer(Plan([ROW[4][0], broken], count=4))
    with pytest.raises(KeyError, match="of the user"):
        training.step(*batch(0, 8))
    assert not training.variables


@pytest.mark.parametrize(
    ("plan", "samples", "message"),
    [
        ({"count": 8}, 15, r"batch=15 is no multiple of 8.*use 8"),
        ({"count": 8, "replicas": 2}, 24, r"count=8 times replicas=2; use 16"),
        ({"count": 1, "training": False}, 4, "training=False; a PlanTrainer needs the backward"),
    ],
)
def test_refusals(plan, samples, message):
    with pytest.raises(ValueError, match=message):
        trainer(Plan(ROW[1], **plan)).step(*batch(0, samples))


def test_stages_that_share_a_variable_across_ipus_are_refused():
    training = trainer(Plan(SKIP[4], count=8))
    with pytest.raises(
        ValueError, match=r"share the variable .*shared/layer/\w+, but run on IPUs 2"
    ):
        training.step(*batch(0, 16))
    assert not training.variables


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        (
            [lambda x: (x, x), ROW[4][1]],
            "stage 1 takes .*, and gets 2 values from the stage before",
        ),
        ([lambda x: None, ROW[1][0]], "returned None; return a tensor, or a tuple of them"),
        ([lambda x: (ROW[1][0](x), None)], "returned None; return a tensor"),
    ],
)
def test_what_a_stage_may_return(stages, message):
    training = trainer(Plan(stages, count=4))
    with pytest.raises((TypeError, ValueError), match=message):
        training.step(*batch(0, 8))
    assert not training.variables


def test_wrong_kinds_of_arguments_are_named():
    with pytest.raises(TypeError, match="plan=None is not a plan; use Plan"):
        PlanTrainer(SGD(0.1), plan=None)
    with pytest.raises(TypeError, match=r"optimizer=0\.1 is not an optimiser; use one of"):
        PlanTrainer(0.1, plan=Plan(ROW[1]))
    with pytest.raises(TypeError, match="private_updates='yes' is not a bool"):
        PlanTrainer(SGD(0.1), plan=Plan(ROW[1]), private_updates="yes")
    with pytest.raises(TypeError, match=r"replicas=4\.0 is not a number"):
        tree("tree", 4.0, 0)
    with pytest.raises(TypeError, match="offload=True names nothing; use a set of state"):
        Plan(ROW[1], offload=True)


def test_the_last_stage_returns_logits_alone():
    training = trainer(Plan([lambda x: (ROW[1][0](x), x)]))
    with pytest.raises(ValueError, match="returned 2 values; return the logits alone"):
        training.step(*batch(0, 4))


def test_a_variable_without_gradient_is_named():
    def unused(x):
        from ipu.learn.nn import dense

        dense(x, 2, "unused")
        return ROW[1][0](x)

    with pytest.raises(ValueError, match="does not depend on all_vars/unused/weights"):
        trainer(Plan([unused])).step(*batch(0, 4))


def test_a_plan_that_does_not_fit_is_refused_with_what_would(monkeypatch):
    monkeypatch.setattr("ipu.plan.explain.capacity", lambda plan, target: 1300)
    training = trainer(Plan(ROW[4], count=8))
    training.forward(batch(0, 2)[0])
    before = networks.digest(training)
    with pytest.raises(ValueError, match=r"needs \d+ bytes on IPU \d .*check_memory=False"):
        training.step(*batch(0, 16 * 2))
    assert networks.digest(training) == before
    unchecked = trainer(Plan(ROW[4], count=8, check_memory=False))
    unchecked.step(*batch(0, 32))
    assert unchecked.figures is not None


def test_a_dynamic_scale_skips_a_step_on_every_replica():
    plan = Plan(ROW[4], count=8, replicas=2)
    training = trainer(
        plan, control=FpCtl(esr=True, nanoo=True), loss_scale=DynamicLossScale(2.0**40)
    )
    training.forward(batch(0, 2)[0])
    before = networks.digest(training)
    training.step(*batch(0, 32))
    assert (training.applied, training.steps, networks.digest(training)) == (False, 1, before)
    assert training.loss_scale.value == 2.0**39


def test_counts_of_recomputation_stand_by_themselves():
    plain, repeated = (
        trainer(Plan(ROW[4], count=8, recompute=recompute), count=True)
        for recompute in (None, True)
    )
    for training in (plain, repeated):
        training.step(*batch(0, 16))
    rows = {key: dict(row) for key, row in repeated.device.counts.items()}
    extra = {key for key in rows if key[0].endswith("/recompute")}
    assert extra
    assert {k: v for k, v in rows.items() if k not in extra} == {
        key: dict(row) for key, row in plain.device.counts.items()
    }
    assert plain.device.status == repeated.device.status


@pytest.mark.source("S3-28")
def test_a_new_shape_is_a_new_program():
    training = trainer(Plan(ROW[1], count=2))
    for samples in (4, 4, 8, 4):
        training.step(*batch(0, samples))
    training.forward(batch(0, 4)[0])
    assert sorted(training.signatures.values()) == [1, 1, 3]
    assert {key[0] for key in training.signatures} == {"step", "forward"}


@pytest.mark.source("S0-48")
@pytest.mark.source("S0-51")
def test_explicit_checkpoints_cost_memory_and_change_no_bit():
    def checkpointed(x):
        return nn.recomputation_checkpoint(ROW[4][1](ROW[4][0](x)))

    stages = [checkpointed, joined(*ROW[4][2:])]
    plan = Plan(stages, count=4, recompute=True)
    assert Plan(stages, count=4).recomputation is None
    assert outcome(plan) == outcome(Plan(ROW[1], count=4))
    training = trainer(plan)
    training.step(*batch(0, 8))
    # The mask of dropout, a byte each, and the output of the second layer in binary16.
    assert training.figures[0].checkpoint_bytes == 2 * 8 + 2 * 8 * 2
    with pytest.raises(ValueError, match="explicit recomputation checkpoints on several IPUs need"):
        trainer(Plan(stages, count=4, schedule="interleaved")).step(*batch(0, 8))


@pytest.mark.source("S3-31")
def test_half_precision_halves_the_bytes_and_saves_cycles():
    figures = {}
    for policy in (FP16, FP32):
        training = trainer(Plan(ROW[1], count=2), policy=policy, control=FpCtl())
        training.step(*batch(0, 64))
        figures[policy] = training.figures[0]
    half, single = figures[FP16], figures[FP32]
    assert 2 * half.parameter_bytes == single.parameter_bytes
    assert 2 * half.input_bytes == single.input_bytes
    assert half.forward_cycles < single.forward_cycles


def test_the_whole_model_is_the_chain_of_its_stages():
    plan = Plan(CONCURRENT, mapping=[0, [1, 2], 3], count=12)
    training = trainer(plan)
    x = batch(0, 4)[0]
    logits = training.forward(x)
    assert logits.shape == (4, networks.CLASSES)
    assert callable(chain(plan))
    assert isinstance(training, PlanTrainer)
