"""Programs as they are compared: what is listed, and which differences are found."""

from __future__ import annotations

import numpy as np
import pytest

from ipu.learn import nn
from ipu.learn.loss_scale import DynamicLossScale
from ipu.learn.optim import SGD
from ipu.learn.train import Trainer
from ipu.machine import Device
from ipu.members.group import Processes
from ipu.members.local_transport import run_local
from ipu.members.transport import JoinError
from ipu.ops.listing import LONGEST, Listing, list_operation
from ipu.plan.plan import Plan
from tests.ipu.plan.networks import batch, trainer

X, LABELS = np.eye(4), np.arange(4) % 2


def network(activation, rate=0.5):
    def model(x):
        return nn.dense(nn.dropout(activation(nn.dense(x, 8, "first")), rate), 2, "second")

    return model


def train(activation=nn.relu, rate=0.5, steps=2, state=None, **options):
    training = Trainer(network(activation, rate), SGD(0.5), **options)
    if state is not None:
        training.forward(X)
        training.restore(state)
    for _ in range(steps):
        training.step(X, LABELS)
    return training


def test_a_training_lists_its_first_step_once():
    training = train(steps=3, loss_scale=DynamicLossScale(2.0, interval=1))
    listed = training.program.shapeless
    assert any("relu" in line for line in listed)
    assert not any("factor=2.0" in line for line in listed)
    assert not training.program.is_open
    before = training.program.lines
    training.step(X[:2], LABELS[:2])
    assert training.program.lines == before


def test_a_step_that_fails_is_listed_anew():
    training = Trainer(network(nn.relu), SGD(0.5))
    with pytest.raises(ValueError, match="labels are int64 of shape"):
        training.step(X, LABELS[:3])
    training.step(X, LABELS)
    assert training.program.lines == train(steps=1).program.lines


@pytest.mark.parametrize(
    ("other", "words"),
    [({"activation": nn.tanh}, "relu there and .*tanh here"), ({"rate": 0.25}, "dropout.*dropout")],
)
@pytest.mark.parametrize("steps_before", [0, 1])
def test_a_state_of_another_program_is_refused(other, words, steps_before):
    """At its first step, or at once where a step was made before; nothing has changed then."""
    state = train().state()
    training = Trainer(network(**{"activation": nn.relu} | other), SGD(0.5))
    training.forward(X)
    for _ in range(steps_before):
        training.step(X, LABELS)
    before = [v.array.tolist() for v in state_of(training)]

    def go_on():
        training.restore(state)
        nonlocal before
        before = [v.array.tolist() for v in state_of(training)]
        training.step(X, LABELS)

    with pytest.raises(ValueError, match=f"the state is of another model: it has .*{words}"):
        go_on()
    assert [v.array.tolist() for v in state_of(training)] == before


def state_of(training):
    return training.variables.values()


def test_a_state_goes_on_with_batches_of_another_size():
    training = train(state=train().state(), steps=0)
    training.step(X[:2], LABELS[:2])
    again = train(state=training.state(), steps=1)
    assert again.steps == 4


def test_a_state_that_was_restored_and_not_trained_keeps_its_program():
    state = train().state()
    copied = train(state=state, steps=0).state()
    assert copied.built["program"] == state.built["program"] != ""


@pytest.mark.parametrize(
    ("others", "size", "words"),
    [(nn.tanh, 4, [": relu of", ": tanh of"]), (nn.relu, 8, ["(2, 6)", "(4, 6)"]),
     (nn.relu, 4, None)],
)
def test_processes_with_other_programs_are_refused_at_their_first_meeting(others, size, words):
    def work(transport):
        activation = others if transport.rank else nn.relu
        stages = [lambda x: nn.dense(activation(nn.dense(x, 8, "first")), 3, "second")]
        work_plan = Plan(stages, count=2, replicas=2, order="tree")
        training = trainer(work_plan, group=Processes(transport, 2))
        try:
            training.step(*batch(0, size if transport.rank else 4))
        except JoinError as error:
            assert training.steps == 0
            return str(error)

    errors = run_local(2, work)
    if words is None:
        assert errors == [None, None]
    else:
        assert all("start all workers alike" in text for text in errors), errors
        assert all(word in text for word in words for text in errors), errors


def test_only_so_many_operations_are_listed():
    listing = Listing()
    for i in range(LONGEST + 3):
        listing.add("place", str(i), [])
    assert len(listing.lines) == LONGEST


def test_arrays_in_options_are_known_by_their_names():
    listing, x = Listing(), Device().from_host([1.0], "binary16")
    list_operation(listing, "p", "norm", [x], {"epsilon": 0.5, "statistics": (x, x), "axis": (1,)})
    assert listing.lines == ["p: norm of binary16 (1,), axis=(1,), epsilon=0.5, statistics"]
