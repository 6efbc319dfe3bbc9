"""Runs of trainings by ipu.learn: equal bits, layers, updates, trials, refusals (law, golden)."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from fpsim import FloatingPointTrap
from ipu.learn import (
    SGD,
    Adam,
    DynamicLossScale,
    StaticLossScale,
    Trainer,
    batch_norm,
    dense,
    max_pool,
    relu,
    reshape,
)
from ipu.learn.accumulate import Accumulation
from ipu.machine.control import FpCtl
from ipu.plan.plan import Plan
from ipu.plan.trainer import PlanTrainer
from ipu.run import machine
from ipu.run.changes import Changes
from ipu.run.options import RunOptions
from ipu.run.restoring import Restoring

X = np.random.default_rng(1).normal(size=(8, 6))
LABELS = np.arange(8) % 3


def network(x):
    return dense(relu(dense(x, 8, "body")), 3, "head")


def trained(trainer, steps=3):
    """Losses, and the codes of all variables and slots afterwards."""
    losses = [trainer.step(X, LABELS) for _ in range(steps)]
    arrays = [v.array for v in trainer.variables.trainable]
    arrays += [slot for slots in trainer.slots.values() for slot in slots]
    return losses, [x.codes().tolist() for x in arrays]


@pytest.mark.parametrize("count", [False, True])
def test_a_training_with_a_run_has_the_bits_of_one_without(count):
    run = machine("fp16", sr=True, seed=7, count=count, max_nan="propagate", sums="chain")
    told = Trainer(network, SGD(0.1, 0.9), run=run, loss_scale=16)
    alone = Trainer(
        network, SGD(0.1, 0.9), policy="fp16", control=FpCtl(esr=True), seed=7, loss_scale=16,
        max_nan="propagate", sums="chain",
    )
    assert trained(told) == trained(alone)


def test_a_watched_training_has_the_same_bits_and_tells_every_result():
    events = []
    run = machine("fp16", sr=True, seed=7)
    trainer = Trainer(network, SGD(0.1), run=run, accumulation=Accumulation(2, "mean"))
    run.watch(events.append)
    alone = Trainer(
        network, SGD(0.1), policy="fp16", control=FpCtl(esr=True), seed=7,
        accumulation=Accumulation(2, "mean"),
    )
    assert trained(trainer) == trained(alone)
    products = [e for e in events if e.operation == "matmul" and e.direction == "forward"]
    assert [(e.layer, e.place.step, e.place.micro_batch) for e in products] == [
        (layer, step, m) for step in range(3) for m in range(2) for layer in ("body", "head")
    ]
    assert {e.place.layer for e in products} == {"body", "head"}
    assert {e.place.replica for e in events} == {0}
    assert {e.direction for e in events} == {"forward", "backward", "optimizer"}
    updates = [e for e in events if e.direction == "optimizer"]
    assert [e.place.step for e in updates] == sorted([0, 1, 2] * (len(updates) // 3))
    assert run.report()["layers"] == {}
    events.clear()
    trainer.forward(X)
    assert {(e.direction, e.place.step, e.place.micro_batch) for e in events} == {
        ("evaluation", 3, 0)
    }


def test_a_report_has_layers_directions_and_losses(tmp_path):
    run = machine("fp16", count=True, seed=2)
    trainer = Trainer(network, SGD(0.1), run=run, loss_scale=StaticLossScale(64.0))
    losses = [trainer.step(X, LABELS) for _ in range(2)]
    trainer.accuracy(X, LABELS)
    report = run.report(tmp_path)
    assert (report["steps"], report["first_step"], report["seed"]) == (2, 0, 2)
    assert report["losses"] == losses
    assert report["loss_scale"]["present"] == 64.0
    assert set(report["layers"]["body"]) == {"forward", "backward", "optimizer", "evaluation"}
    assert report["layers"]["body"]["evaluation"]["results"] * 2 == (
        report["layers"]["body"]["forward"]["results"]
    )
    assert report["parameters"] == {"body": 6 * 8 + 8, "head": 8 * 3 + 3}
    assert report["units"][0]["layers"].keys() == {"body", "head"}
    assert (report["native"], report["unreached"]) == (0, "")
    assert json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))["steps"] == 2
    assert str(report).startswith("2 steps on mk2, p=f16,c=f16,part=f32, to nearest")


def test_names_of_operations_are_counted_by_kind():
    run = machine(count=True)

    def images(x):
        x = reshape(x, shape=(8, 2, 3, 1))
        return dense(reshape(max_pool(batch_norm(x, "norm"), (2, 1)), shape=(8, 3)), 3, "head")

    Trainer(images, SGD(0.1), run=run).step(X, LABELS)
    operations = run.report()["operations"]
    assert operations["exact"] == 2 + 1  # two moves, and the gradient of the second
    assert operations["host"] == operations["integer"] == 0
    assert operations["machine"] > 10


def test_what_is_evaluated_alone_is_in_no_step_and_reached_the_machine():
    run = machine("fp16", count=True)
    trainer = Trainer(network, SGD(0.1), run=run)
    trainer.loss(X, LABELS)
    report = run.report()
    assert (report["steps"], report["losses"], report["unreached"]) == (0, [], "")
    assert set(report["layers"]) == {"body", "model", "head", "loss"}
    assert all(list(row) == ["evaluation"] for row in report["layers"].values())
    quiet = machine("fp16")
    Trainer(network, SGD(0.1), run=quiet).forward(X)
    assert quiet.report()["operations"]["machine"] == 5  # two products, two biases, one relu
    assert (quiet.report()["unreached"], quiet.report()["layers"]) == ("", {})


def test_updates_that_rounding_swallows_are_told_by_layer():
    run = machine("fp16", count=True)
    Trainer(network, SGD(1e-4), run=run).step(X, LABELS)
    swallowed = run.report()["swallowed"]
    assert set(swallowed) == {"body", "head"}
    assert swallowed["body"]["share"] > 0.5
    weights = {row["layer"]: row for row in run.report()["exponents"]["weights"]}
    assert sum(weights["body"]["counts"].values()) + weights["body"]["zeros"] == 6 * 8 + 8


def test_constants_of_the_optimiser_that_do_not_fit_are_told():
    run = machine("fp16", count=True)
    trainer = Trainer(network, Adam(0.01), run=run)
    with pytest.warns(RuntimeWarning, match="epsilon 1e-08 rounds to 0"):
        trainer.step(X, LABELS)
    (constant,) = run.report()["constants"]
    assert (constant["value"], constant["becomes"]) == (1e-8, "zero")
    assert (constant["layer"], constant["times"]) == ("optimizer", 4)
    items = [item.what for item in run.advise().items]
    assert "Set eps=0.0001, or let the optimiser compute in binary32" in items


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_advice_is_tried_with_runs_of_the_trials():
    seeds = []

    def step(run):
        seeds.append(run.seed)
        trainer = Trainer(network, Adam(0.01), run=run)
        return [trainer.step(X, LABELS) for _ in range(12)]

    run = machine("fp16", count=True)
    step(run)
    advised = run.advise(step, ["fp16+eps=1e-4", "fp16+states=f32", "fp16+sr+head=f32"], pairs=5)
    trials = {str(trial.way): trial for trial in advised.trials}
    assert trials["fp16"].judged.answer == "worse"
    assert trials["fp16+eps=0.0001"].counts["DIVBYZERO"] == 0
    assert trials["fp16+states=f32"].judged.answer == "as good"
    assert trials["fp16"].losses[0] == run.report()["losses"][0]
    assert sorted(set(seeds)) == list(range(7))


def test_changes_reach_optimiser_and_loss_scale():
    run = machine("fp16", changes=Changes(loss_scale=8.0, eps=1e-3, wide_states=True))
    trainer = Trainer(network, Adam(0.01), run=run, loss_scale=4)
    assert trainer.optimizer.epsilon == 1e-3
    assert trainer.optimizer.format.name == "binary32"
    assert trainer.loss_scale.value == 32.0
    plain = Trainer(network, SGD(0.01), run=machine(changes=Changes(loss_scale=8.0)))
    assert (plain.loss_scale.value, plain.optimizer) == (8.0, SGD(0.01))
    dynamic = Trainer(
        network, SGD(0.01), loss_scale=DynamicLossScale(16.0),
        run=machine(nanoo=True, changes=Changes(loss_scale=2.0)),
    )
    assert dynamic.loss_scale.value == 32.0


def test_a_step_that_a_trap_stops_tells_no_update():
    run = machine("fp16", count=True, traps=True)
    trainer = Trainer(network, SGD(0.1), run=run)
    trainer.step(X, LABELS)
    before = run.report()["swallowed"]["body"]["nonzero"]
    with pytest.raises(FloatingPointTrap):
        trainer.step(X * 60000, LABELS)
    trainer.step(X, LABELS)
    after = run.report()
    assert after["steps"] == 2
    assert before < after["swallowed"]["body"]["nonzero"] <= 2 * (6 * 8 + 8)


def test_while_the_loss_is_not_finite_nothing_counts():
    run = machine("fp16", count=True, nanoo=True)
    trainer = Trainer(network, SGD(0.1), run=run)
    trainer.step(X * 60000, LABELS)
    report = run.report()
    assert report["uncounted"] == 1
    assert "backward" not in report["layers"]["head"]
    assert report["first"][0]["step"] == 0


def test_a_restored_training_goes_on_in_its_report():
    first = Trainer(network, SGD(0.1), run=machine("fp16", sr=True))
    for _ in range(2):
        first.step(X, LABELS)
    run = machine("fp16", sr=True, count=True)
    second = Trainer(network, SGD(0.1), run=run)
    second.forward(X)
    second.restore(first.state())
    assert second.step(X, LABELS) == first.step(X, LABELS)
    report = run.report()
    assert (report["steps"], report["first_step"]) == (1, 2)
    assert len(report["losses"]) == 1


def test_a_plan_takes_a_run_whose_report_is_of_the_first_replica():
    stages = [lambda x: relu(dense(x, 8, "body")), lambda x: dense(x, 3, "head")]
    plan = Plan(stages, count=4, replicas=2)
    run = machine("fp16", sr=True, seed=3, count=True)
    told = PlanTrainer(SGD(0.1), plan=plan, run=run)
    alone = PlanTrainer(
        SGD(0.1), plan=plan, policy=run.policy, control=FpCtl(esr=True), seed=3,
    )
    assert trained(told, 2) == trained(alone, 2)
    report = run.report()
    assert report["steps"] == 2
    assert {"forward", "backward", "optimizer"} <= set(report["layers"]["head"])
    assert report["layers"]["body"]["forward"]["results"] > 0
    assert report["plan"] == told.explain().splitlines()


def test_a_user_still_observes_updates():
    names = []
    run = machine(count=True)
    trainer = Trainer(
        network, SGD(0.1), run=run, observe=lambda update: names.append(update.variable.name)
    )
    trainer.step(X, LABELS)
    assert len(names) == 4
    assert set(run.report()["swallowed"]) == {"body", "head"}


def test_every_argument_reaches_the_options_and_the_device():
    arguments = {
        "policy": "mixed", "sr": True, "seed": 5, "count": True, "target": "mk1", "nanoo": True,
        "traps": True, "preset": "exact", "f32_denormals": "ieee", "max_nan": "propagate",
        "sums": "chain", "changes": Changes(eps=1e-3),
    }
    run = machine(**arguments)
    assert run.options == RunOptions(**arguments, ties="all")
    assert (run.device.target.name, run.device.source.seed, run.device.counts) == ("mk1", 5, {})
    assert run.device.control == run.options.control
    options = run.device.options
    assert (options.preset, options.f32_denormals, options.max_nan, options.sums) == (
        "exact", "ieee", "propagate", "chain"
    )
    assert (run.seed, run.is_counting, run.way.changes) == (5, True, Changes(eps=1e-3))


@pytest.mark.parametrize("run", [3, "fp16", object()])
def test_what_is_no_run_is_refused(run):
    with pytest.raises(TypeError, match=r"is not a run of a training; use one of ipu\.run"):
        Trainer(network, SGD(0.1), run=run)


def test_a_run_is_of_one_training():
    run = machine()
    assert "Trainer(model, optimizer, run=run)" in run.report()["unreached"]
    Trainer(network, SGD(0.1), run=run)
    with pytest.raises(RuntimeError, match="this run has a training already"):
        Trainer(network, SGD(0.1), run=run)


@pytest.mark.parametrize(
    "argument",
    [{"policy": "fp16"}, {"seed": 1}, {"control": FpCtl(esr=True)}, {"count": True},
     {"target": "hypothetical"}, {"rounding_seed": 0}, {"sums": "chain"}],
)
def test_what_a_run_brings_along_is_not_given_twice(argument):
    (name,) = argument
    run = machine()
    with pytest.raises(TypeError, match=rf"{name}=.* beside run=, which brings policy"):
        Trainer(network, SGD(0.1), run=run, **argument)
    Trainer(network, SGD(0.1), run=run)


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"policy": "f17"}, ValueError, "policy item 'f17' is not known"),
        ({"policy": "e4m3fn"}, ValueError, "has a format that layers of ipu.learn do not compute"),
        ({"policy": "bf16"}, ValueError, "target=mk2 computes in binary16, binary32, not in"),
        ({"sr": None}, TypeError, "sr=None is neither True nor False"),
        ({"count": 1}, TypeError, "count=1 is neither True nor False"),
        ({"changes": "eps"}, TypeError, "changes='eps' is no fpsim"),
        ({"target": "mk9"}, ValueError, "target='mk9' is not known"),
    ],
)
def test_bad_arguments_are_refused_in_a_sentence(arguments, error, text):
    with pytest.raises(error, match=text):
        machine(**arguments)


def test_a_policy_of_layers_that_are_not_there_is_refused():
    run = machine({"haed": "f16"})
    trainer = Trainer(network, SGD(0.1), run=run)
    with pytest.raises(ValueError, match="haed"):
        trainer.step(X, LABELS)


def test_a_run_in_blocks_shows_its_operands_on_the_page(tmp_path):
    run = machine("nvfp4", count=True)
    trainer = Trainer(lambda x: dense(x, 16, "only"), SGD(0.5), run=run)
    trainer.step(np.eye(16), np.arange(16))
    report = run.report(tmp_path)
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert "Operands in blocks" in page
    assert "<td>only</td><td>weight gradient</td><td>dy</td><td>nvfp4</td>" in page
    assert "weight_gradient dy" in str(report)


# Diagnosis --------------------------------------------------------------------------------------


def test_all_sites_given_back_are_binary32_bit_for_bit():
    """And none given back is the run itself, which differs."""
    def losses(run):
        return trained(Trainer(network, SGD(0.1, 0.9), run=run))[0]

    low = machine("p=f16,c=f16,part=f16", count=True)
    before, sites = losses(low), low.sites(low.report())
    wide = replace(low.way, changes=Changes(wide_states=True))
    assert losses(low.again(low.way, 0)) == before
    binary32 = losses(machine("fp32"))
    assert losses(low.again(wide, 0, Restoring(frozenset(sites)))) == binary32
    moved = losses(low.again(low.way, 0, Restoring(moved=frozenset(sites))))
    assert moved not in (before, binary32)
    assert [str(site) for site in sites] == [
        "input (layer)", "body (layer)", "body (parameters)", "head (layer)", "head (parameters)",
        "optimizer (update)",
    ]


def test_a_training_is_diagnosed():
    def step(run):
        trainer = Trainer(network, Adam(0.01, epsilon=1e-9), run=run)
        for _ in range(9):
            trainer.step(X * (np.arange(6) > 0), LABELS)

    result = machine("fp16").diagnose(step, steps=3)
    assert (result.answer, len(result.losses)) == ("ill", 3)
    assert [str(site) for site in result.necessary] == ["optimizer (update)"]
    assert {str(r.way) for r in result.remedies if r.cures} == {
        "fp16+eps=0.0001", "fp16+states=f32"}
    assert machine("fp16").diagnose(lambda run: Trainer(network, SGD(0.1), run=run).step(
        X, LABELS), steps=3).answer == "healthy"
