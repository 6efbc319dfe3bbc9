"""Steps of many variables as one vector: the bits of a step for each (differential, law)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fpsim import BINARY64
from ipu.learn import SGD, Adam, AdamW, RMSProp, Trainer, dense, relu
from ipu.learn.optim.base import Asked, TableOptimizer
from ipu.machine import Device
from ipu.run.jointly import StepOperands, jointly, steps_of

DEVICE = Device("reference")
RNG = np.random.default_rng(4)
SHAPES = (3, 4), (5,), (1,), (2, 1, 3), ()
RULES = {
    "sgd": SGD(0.1), "momentum": SGD(0.1, 0.9, nesterov=True), "adam": Adam(0.01),
    "adamw": AdamW(0.01, weight_decay=0.1), "rmsprop": RMSProp(0.01, momentum=0.5),
}


def array(shape):
    return DEVICE.from_host(RNG.normal(size=shape), BINARY64)


def codes(step):
    return [
        (x.shape, np.asarray(x.carrier).view(np.int64).tolist())
        for x in (step.direction, step.change, step.values, *step.slots)
    ]


@pytest.mark.parametrize("name", RULES)
def test_each_variable_takes_the_step_that_it_takes_alone(name):
    """Over three steps; one variable joins later, so that its powers are others."""
    rule = replace(RULES[name], format=BINARY64)
    rows = [StepOperands(array(shape), array(shape), ()) for shape in SHAPES]
    for number in range(3):
        now = rows[: 3 if number == 0 else None]
        steps = steps_of(rule, DEVICE, now, rule.rate)
        assert list(map(codes, steps)) == [
            codes(rule.rule(DEVICE, *row, rule.rate)) for row in now]
        rows[: len(now)] = [
            StepOperands(step.values, array(row.w.shape), step.slots)
            for row, step in zip(now, steps, strict=True)
        ]


def test_large_variables_are_several_vectors(monkeypatch):
    monkeypatch.setattr("ipu.run.jointly._MOST", 8)
    test_each_variable_takes_the_step_that_it_takes_alone("adam")


class ByNorm(SGD):
    """A rule of a user: the gradient is divided by its norm."""

    def rule(self, device, w, g, slots, rate):
        norm = float(np.sqrt(np.square(g.carrier).sum()))
        return super().rule(device, w, device.divide(g, norm), slots, rate)


def test_a_rule_that_looks_at_a_whole_variable_takes_each_alone():
    rule = ByNorm(0.1, format=BINARY64)
    assert ByNorm.rule is not TableOptimizer.rule
    rows = [StepOperands(array(shape), array(shape), ()) for shape in SHAPES]
    steps = steps_of(rule, DEVICE, rows, rule.rate)
    assert list(map(codes, steps)) == [codes(rule.rule(DEVICE, *row, rule.rate)) for row in rows]


class ByRowWithNorms(SGD):
    """A rule of a user that asks for a row of the table with norms."""

    def asked(self, device, g, slots, rate):
        zeros = tuple(device.zeros(g.shape, g.format) for _ in range(2))
        return Asked("popart lamb", slots or (*zeros, device.zeros((), g.format)), {
            "lr": rate, "betas": (0.9, 0.99), "eps": 1e-6, "weight_decay": 0.0,
            "bias_correction": True, "max_weight_norm": 10.0, "unscale": 1.0,
        })


def test_a_row_with_norms_takes_each_alone():
    rule = ByRowWithNorms(0.1, format=BINARY64)
    rows = [StepOperands(array(shape), array(shape), ()) for shape in SHAPES[:2]]
    together = steps_of(rule, DEVICE, rows, rule.rate)
    for step, row in zip(together, rows, strict=True):
        expected = rule.rule(DEVICE, *row, rule.rate).values
        assert step.values.carrier.tobytes() == expected.carrier.tobytes()


@pytest.mark.parametrize("name", RULES)
def test_a_training_has_the_same_values(name):
    def network(x):
        return dense(relu(dense(x, 8, "body")), 3, "head")

    trained = []
    for change in (lambda rule: rule, jointly):
        optimizer = change(replace(RULES[name], format=BINARY64))
        trainer = Trainer(network, optimizer, policy="fp64", target="reference")
        x = np.random.default_rng(2).normal(size=(8, 6))
        losses = [trainer.step(x, np.arange(8) % 3) for _ in range(3)]
        trained.append((losses, [v.array.tolist() for v in trainer.variables.values()]))
    assert trained[0] == trained[1]
