"""Worker: a model's variables on one device (law)."""

from __future__ import annotations

import numpy as np
import pytest

from ipu.learn.address import Region, address
from ipu.learn.nn import dense
from ipu.learn.optim import SGD
from ipu.learn.policy import FP16
from ipu.learn.train import Trainer
from ipu.machine import FpCtl
from tests.ipu.learn import small
from tests.ipu.learn.small import LABELS, X


def trainer(**choices):
    return Trainer(
        small.network, SGD(0.05, 0.9), policy=FP16, control=FpCtl(esr=True), seed=3, **choices
    )


def codes(training):
    return {name: v.array.codes().tolist() for name, v in training.variables.items()}


def test_evaluations_between_steps_move_no_bit_of_a_training():
    alone, watched = trainer(), trainer()
    for _ in range(3):
        alone.step(X, LABELS)
        watched.step(X, LABELS)
        watched.accuracy(X, LABELS)
        watched.scaled_gradients(watched.loss(X, LABELS))
    assert codes(alone) == codes(watched)


def test_an_evaluation_repeats_its_bits_until_the_next_step():
    training = trainer()
    training.step(X, LABELS)
    first, second = (training.forward(X).array.codes().tolist() for _ in range(2))
    assert first == second
    training.worker.numbering.step += 1
    assert training.forward(X).array.codes().tolist() != first


def test_steps_draw_by_their_number():
    training = trainer()
    numbers = []
    training.observe = lambda update: numbers.append(training.device.clock.operation)
    training.step(X, LABELS)
    training.step(X, LABELS)
    variables = len(training.variables.trainable)
    assert numbers == [
        address(t, Region.OPTIMIZER, 0, 0) for t in range(2) for _ in range(variables)
    ]  # every operation of the optimiser was one of a variable's own
    assert training.steps == 2


def test_the_seed_of_rounding_leaves_initial_values():
    one, other = trainer(rounding_seed=1), trainer(rounding_seed=2)
    for training in (one, other):
        training.forward(X)
    assert codes(one) == codes(other)
    for training in (one, other):
        training.step(X, LABELS)
    assert codes(one) != codes(other)


def test_an_error_forgets_what_was_created():
    def model(x):
        dense(x, 2, "layer")
        raise KeyError("of the user")

    training = Trainer(model, SGD(0.1))
    with pytest.raises(KeyError):
        training.forward(np.ones((1, 2)))
    assert not training.variables
