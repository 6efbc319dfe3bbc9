"""Replicas that run together leave what they leave one after the other (law)."""

from __future__ import annotations

import numpy as np
import pytest

from ipu.learn import nn
from ipu.learn.loss_scale import AutomaticLossScale, DynamicLossScale
from ipu.learn.optim import SGD, Adam
from ipu.learn.policy import FP32
from ipu.learn.variables import variable_scope
from ipu.learn.variables.regularisers import l2_regularizer
from ipu.machine import FpCtl, replica_device
from ipu.plan import replica_batches
from ipu.plan.plan import Plan
from tests.ipu.plan.networks import CLASSES, CONCURRENT, ROW, SKIP, SKIP_MAPPING, batch, trainer
from tests.tiers import pick


def _normed(x):
    return nn.dense(nn.gelu(nn.layer_norm(nn.dense(x, 8, "a"), "norm")), CLASSES, "b")


def _curves(x):
    h = nn.tanh(nn.dense(x, 8, "a"))
    h = nn.softmax(h * nn.sigmoid(nn.dense(h, 8, "b")) + h / 2 - 0.5)
    return nn.dense((h * h)[:, 1:6], CLASSES, "c")


def _regular(x):
    with variable_scope("r", use_resource=True, regularizer=l2_regularizer(0.01)):
        h = nn.relu(nn.dense(x, 8, "a"))
    return nn.dense(h, CLASSES, "b")


def _images(x):
    h = nn.relu(nn.conv(x, 3, 4, "first"))
    return nn.dense(nn.flatten(nn.max_pool(h, 2)), CLASSES, "last")


ROW_PLAN = {"stages": ROW[1], "replicas": 5, "count": 2}
NANOO = FpCtl(esr=True, nanoo=True)
TRAININGS = {
    "a row": ({}, {}),
    "in four stages": ({"stages": ROW[4], "replicas": 3, "count": 8}, {}),
    "to nearest": ({}, {"control": FpCtl()}),
    "in binary32": ({}, {"policy": FP32}),
    "with half partials": ({}, {"policy": "p=f16,c=f16,part=f16"}),
    "of Adam": ({}, {"optimizer": Adam(0.01, epsilon=1e-4)}),
    "with private updates": ({}, {"private_updates": True}),
    "with private updates of Adam": (
        {}, {"private_updates": True, "optimizer": Adam(0.01, epsilon=1e-4)}),
    "alike where they are identical": ({}, {"replica_identical_only": True}),
    "whose third step is skipped": (
        {}, {"control": NANOO, "loss_scale": DynamicLossScale(2.0**14, interval=1)}),
    "that overflows": ({}, {"control": NANOO, "loss_scale": 2.0**15, "optimizer": SGD(8.0)}),
    "with sums in one chain": ({}, {"sums": "chain"}),
    "of running means": ({"reduction": "running_mean"}, {}),
    "in buckets": ({"buffer_size": 1 << 20, "order": "sequential"}, {}),
    "with a skip": ({"stages": SKIP[2], "mapping": SKIP_MAPPING[2], "count": 4}, {}),
    "concurrent": ({"stages": CONCURRENT, "count": 6}, {}),
    "with norms": ({"stages": [_normed]}, {}),
    "with curves": ({"stages": [_curves]}, {}),
    "with regularisers": ({"stages": [_regular]}, {}),
    "with convolutions": ({"stages": [_images], "replicas": 3}, {}),
}
QUICK = ("a row", "in four stages", "with half partials", "with private updates of Adam",
         "whose third step is skipped", "with norms", "with curves", "with convolutions")


def _batch(step, samples, stages):
    x, labels = batch(step, samples)
    if stages == [_images]:
        x = np.random.default_rng([4, step]).standard_normal((samples, 4, 4, 1))
    return x, labels


def _trained(plan_choices, choices, *, steps=3, between=None):
    choices = dict(choices)
    plan_choices = {**ROW_PLAN, **plan_choices}
    stages = plan_choices.pop("stages")
    plan = Plan(stages, **plan_choices)
    training = trainer(plan, **choices)
    losses = []
    for step in range(steps):
        losses.append(training.step(*_batch(step, plan.samples(4), stages)))
        if between is not None:
            between(training)
    return training, losses


def left(training):
    """What a training leaves on the device of each replica."""
    result = []
    for worker in training.workers:
        device = worker.device
        formats = sorted(device.target.formats, key=lambda fmt: fmt.name)
        result.append((
            {name: v.array.codes().tobytes() for name, v in worker.variables.items()},
            {n: [x.codes().tobytes() for x in arrays] for n, arrays in worker.slots.items()},
            device.status_word, [device.context(fmt).core.raised for fmt in formats],
            device.vector_cycles, device.ledger.table(), device.ledger.temporary,
            set(device.units_used), device.clock.operation, worker.numbering.numbers,
        ))
    return result


@pytest.mark.parametrize("most", pick([2], [1, 2, 128], [1, 2, 3, 128]))
@pytest.mark.parametrize("name", pick(QUICK, tuple(TRAININGS), tuple(TRAININGS)))
def test_together_they_leave_what_they_leave_apart(name, most, monkeypatch):
    monkeypatch.setattr(replica_batches, "MOST", 128)
    monkeypatch.setattr(replica_batches, "FEWEST", 1000)
    apart, losses = _trained(*TRAININGS[name])
    assert apart.apart == "they are few"
    monkeypatch.setattr(replica_batches, "FEWEST", 1)
    monkeypatch.setattr(replica_batches, "MOST", most)
    together, others = _trained(*TRAININGS[name])
    assert together.apart == ""
    assert str(losses) == str(others)  # NaN is NaN
    assert left(together) == left(apart)
    assert (together.loss_scale, together.applied) == (apart.loss_scale, apart.applied)


def test_slots_of_one_number_are_arrays_on_each_replica():
    """Adam's powers, which differ between replicas with updates of their own, can be read."""
    training, _ = _trained(*TRAININGS["with private updates of Adam"])
    assert training.apart == ""
    slots = [x for worker in training.workers for xs in worker.slots.values() for x in xs]
    assert {x.ndim for x in slots} == {0, 1, 2}
    for x in slots:
        assert isinstance(x.carrier, np.ndarray)
        assert np.isfinite(x.values).all()


@pytest.mark.parametrize("number", [np.nan, np.inf, 6e4])
def test_a_replica_that_reads_what_is_no_number_stays_with_the_others(number, monkeypatch):
    """In its second step, which the loss scale skips where a gradient is no number."""
    choices = {"control": NANOO, "loss_scale": DynamicLossScale(2.0**10)}
    outcomes = []
    for fewest in (1000, 1):
        monkeypatch.setattr(replica_batches, "FEWEST", fewest)
        plan = Plan(ROW[1], replicas=3, count=2)
        training = trainer(plan, **choices)
        losses = []
        for step in range(4):
            x, labels = batch(step, plan.samples(4))
            if step == 1:
                x[0] = number
            losses.append(training.step(x, labels))
        outcomes.append((str(losses), left(training), training.loss_scale))
    assert training.apart == ""
    assert outcomes[0] == outcomes[1]


def test_replicas_that_a_user_made_unequal_stay_what_they_are(monkeypatch):
    """They draw equal bits on weights of their own."""

    def move(training):
        for r, worker in enumerate(training.workers):
            for variable in worker.variables.trainable:
                values = variable.array.values + r * 2.0**-6
                variable.array = worker.device.from_host(values, variable.dtype)

    outcomes = []
    for fewest in (1000, 1):
        monkeypatch.setattr(replica_batches, "FEWEST", fewest)
        outcomes.append(left(_trained({}, {}, between=move)[0]))
    assert outcomes[0] == outcomes[1]


def test_keys_of_other_replicas_would_give_other_bits(monkeypatch):
    plan = Plan(ROW[1], replicas=3, count=2)
    usual, other = trainer(plan), trainer(plan)
    real = replica_device.ReplicaKeys
    for training in (usual, other):
        for step in range(2):
            training.step(*batch(step, plan.samples(4)))
        monkeypatch.setattr(
            replica_device, "ReplicaKeys", lambda seeds: real([seeds[0]] * len(seeds))
        )
    assert usual.apart == other.apart == ""
    assert left(usual) != left(other)


@pytest.mark.parametrize(
    ("choices", "plan_choices", "reason"),
    [
        ({"count": True}, {}, "operations are counted"),
        ({"control": FpCtl(oflo=True), "loss_scale": None}, {}, "operations may trap"),
        ({"observe": lambda update: None}, {}, "an observer looks at each update"),
        ({"loss_scale": AutomaticLossScale()}, {}, "the loss scale counts gradients"),
        ({}, {"shard_state": True}, "their state is sharded"),
        ({}, {"replicas": 1}, "they are few"),
    ],
)
def test_why_replicas_run_apart_is_told(choices, plan_choices, reason):
    training, _ = _trained(plan_choices, choices, steps=1)
    assert training.apart == "the first step is measured"
    plan = training.plan
    training.step(*batch(1, plan.samples(4)))
    assert training.apart == reason


def _looks(x):
    h = nn.dense(x, 8, "a")
    assert np.isfinite(h.array.values).all()
    return nn.dense(h, CLASSES, "b")


def test_a_model_that_looks_at_values_runs_apart_and_says_so():
    training, _ = _trained({"stages": [_looks]}, {})
    assert training.apart == "values of one replica"


@pytest.mark.parametrize("labels", [np.full(40, CLASSES), np.zeros(40), np.full(40, -1)])
def test_bad_labels_are_refused_as_they_are_apart_and_nothing_changes(labels):
    training, _ = _trained({}, {}, steps=2)
    assert training.apart == ""
    before = left(training)
    x, _ = batch(2, 40)
    with pytest.raises(ValueError, match=r"labels (lie|are)"):
        training.step(x, labels)
    assert left(training)[0][:4] == before[0][:4]
    assert training.steps == 2
