"""Shadows of trainings by ipu.learn beside binary64 by numpy alone (differential, law)."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import log_softmax, softmax

from fpsim.state import blas
from ipu.learn import (
    SGD,
    Adam,
    DynamicLossScale,
    Trainer,
    batch_norm,
    dense,
    dropout,
    gelu,
    layer_norm,
    relu,
    transpose,
)
from ipu.learn import softmax as attention_of
from ipu.learn.accumulate import Accumulation
from ipu.machine import reference
from ipu.plan.plan import Plan
from ipu.plan.trainer import PlanTrainer
from ipu.run import machine
from tests.blas import BlasLibrary

RNG = np.random.default_rng(1)
X = RNG.normal(size=(8, 6)).astype(np.float32)
LABELS = np.arange(8) % 3
STEPS, RATE = 3, 0.125


def network(x):
    return dense(relu(dense(x, 8, "body")), 3, "head")


def shadowed(policy, model=network, optimizer=None, nanoo=False, **options):
    """A trainer after its steps, the losses, and the shadow of its report."""
    run = machine(policy, count=True, seed=5, nanoo=nanoo)
    run.shadow(STEPS)
    trainer = Trainer(model, optimizer or SGD(RATE), run=run, **options)
    losses = [trainer.step(X, LABELS) for _ in range(STEPS)]
    return trainer, losses, run.report()["shadow"]


def values(trainer):
    return {name: np.float64(v.array.carrier) for name, v in trainer.variables.items()}


def first_values(policy, model=network):
    """Those of a training before its first step."""
    trainer = Trainer(model, SGD(RATE), run=machine(policy, seed=5))
    trainer.forward(X)
    return values(trainer)


def by_hand(w):
    """Losses of the network in binary64, its gradients written out."""
    w1, b1, w2, b2 = w
    x, share = np.float64(X), 1 / len(X)
    for _ in range(STEPS):
        h = np.maximum(x @ w1 + b1, 0)
        logits = h @ w2 + b2
        yield -log_softmax(logits, axis=1)[np.arange(8), LABELS].mean()
        error = (softmax(logits, axis=1) - np.eye(3)[LABELS]) * share
        back = (error @ w2.T) * (h > 0)
        slopes = x.T @ back, back.sum(0), h.T @ error, error.sum(0)
        pairs = zip((w1, b1, w2, b2), slopes, strict=True)
        w1, b1, w2, b2 = (v - RATE * slope for v, slope in pairs)


@pytest.mark.parametrize("options", [{}, {"loss_scale": 1024.0}, {
    "accumulation": Accumulation(2, "mean")}], ids=["plain", "scaled", "accumulated"])
def test_losses_are_those_of_numpy_in_binary64(options):
    _, _, shadow = shadowed("fp32", **options)
    expected = np.array(list(by_hand(first_values("fp32").values())))
    rows = [row["shadow"] for row in shadow["losses"]]
    told = np.mean(np.reshape(rows, (STEPS, -1)), axis=1)
    np.testing.assert_allclose(told, expected, rtol=1e-12)
    assert shadow["rejoined"] == []


def gpt(x):
    """A block of attention and a hidden layer with norms before; a row is a token."""
    h = layer_norm(x, "before")
    q, k, v = (dense(h, 6, name) for name in ("query", "key", "value"))
    x = x + dense(attention_of(q @ transpose(k) / 2.5) @ v, 6, "mix")
    return dense(x + dense(gelu(dense(layer_norm(x, "between"), 24, "up")), 6, "down"), 3, "head")


def test_a_step_of_a_gpt_is_that_of_binary64():
    _, losses, shadow = shadowed("fp32", gpt, Adam(0.0625))
    native = Trainer(gpt, Adam(0.0625), policy="fp64", target="reference", seed=5)
    native.forward(X)
    for (name, first), variable in zip(
        first_values("fp32", gpt).items(), native.variables.values(), strict=True
    ):
        assert variable.name == name
        variable.array = native.device.from_host(first, "binary64")
    expected = [native.step(np.float64(X), LABELS) for _ in range(STEPS)]
    rows = shadow["losses"]
    np.testing.assert_allclose([row["shadow"] for row in rows], expected, rtol=1e-12)
    np.testing.assert_allclose([row["machine"] for row in rows], losses, rtol=0)
    # Roundings of binary32; the bias of the keys has no gradient but rounding's.
    born = [row["born"] for row in shadow["operations"] if row["layer"] != "key"]
    assert max(born) < 2.0**-18


def test_it_moves_no_bit_and_tells_where_errors_are_born():
    def model(x):
        return dense(dropout(relu(dense(x, 8, "body")), 0.25), 3, "head")

    trainer, losses, shadow = shadowed("fp16", model)
    alone = Trainer(model, SGD(RATE), run=machine("fp16", count=True, seed=5))
    assert losses == [alone.step(X, LABELS) for _ in range(STEPS)]
    assert all(np.array_equal(x, y) for x, y in zip(
        values(trainer).values(), values(alone).values(), strict=True))
    rows = {(r["operation"], r["layer"], r["direction"]): r for r in shadow["operations"]}
    product = rows["matmul", "body", "forward"]
    assert 2.0**-13 < product["born"] < 2.0**-11  # one rounding to binary16
    assert product["line"].startswith(__file__)
    assert rows["dropout", "model", "forward"]["inherited"] < 2.0**-9  # the masks are one
    assert {row["name"] for row in shadow["motions"]} == {"body", "head"}


def test_a_statistic_that_stands_still_is_told():
    """Terms of a moving variance that binary32 absorbs: the shadow's moves."""
    def model(x):
        return dense(batch_norm(dense(x, 8, "body"), "norm", momentum=1 - 2.0**-27), 3, "head")

    _, _, shadow = shadowed("fp16", model)
    still = [row for row in shadow["motions"] if not row["name"]]
    assert still[0]["arrived"] == 0.0
    assert still[0]["operation"] == "update of all_vars/norm/moving_variance"


def test_steps_that_a_loss_scale_skips_are_skipped_in_binary64_too():
    scale = DynamicLossScale(2.0**24)
    trainer, losses, shadow = shadowed("fp16", loss_scale=scale, nanoo=True)
    assert trainer.loss_scale.value < 2.0**24
    first = shadow["losses"][0]["shadow"]
    assert [row["shadow"] == first for row in shadow["losses"]] == [x == losses[0] for x in losses]


def test_a_plan_is_told_and_not_followed():
    run = machine("fp32", count=True)
    run.shadow(1)
    plan = Plan([lambda x: dense(x, 8, "body"), lambda x: dense(x, 3, "head")], count=4)
    PlanTrainer(SGD(RATE), plan=plan, run=run).step(X, LABELS)
    (row,) = run.report()["shadow"]["rejoined"]
    assert (row["operation"], row["times"]) == ("PlanTrainer", 1)


def test_wrong_kinds_of_shadows_are_refused():
    run = machine("fp32")
    with pytest.raises(TypeError, match="no number of steps"):
        run.shadow(True)
    Trainer(network, SGD(RATE), run=run)
    with pytest.raises(RuntimeError, match="before a Trainer"):
        run.shadow(1)


def test_products_in_binary64_run_on_one_thread_of_blas(monkeypatch):
    threads, library = [], BlasLibrary(4)
    monkeypatch.setattr(blas, "_control", lambda: library)

    def product(x, y):
        threads.append(library.threads)
        return np.matmul(x, y)

    monkeypatch.setattr(reference, "matmul", product)
    shadowed("f32")
    assert set(threads) == {1}
    assert library.threads == 4
