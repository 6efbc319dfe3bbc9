"""The documented names of ipu.learn, with one argument of a wrong kind after the other (law)."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

from ipu.learn import checkpoint, loss_scale, nn, optim, policy
from ipu.learn.accumulate import Accumulation
from ipu.learn.train import Trainer
from tests.wrong_kinds import WRONG, arguments_of, defects

IMAGES, LABELS = np.eye(2), np.array([0, 1])

#: A sum of so many mini-batches, units or steps is no mistake of kind.
SMALL = {name: value for name, value in WRONG.items() if name != "huge"}


def network(x: Any) -> Any:
    return nn.dense(x, 2, "only")


def trainer(model: Any = network, **choices: Any) -> Trainer:
    return Trainer(model, optim.SGD(0.1), **choices)


def test_a_trainer():
    valid = arguments_of(Trainer, model=network, optimizer=optim.SGD(0.1))
    assert list(defects(Trainer, valid, SMALL)) == []


def test_its_methods():
    training = trainer()
    training.step(IMAGES, LABELS)
    for method, valid in (
        (training.step, {"x": IMAGES, "labels": LABELS}), (training.forward, {"x": IMAGES}),
        (training.loss, {"x": IMAGES, "labels": LABELS}),
        (training.accuracy, {"x": IMAGES, "labels": LABELS}),
        (training.state, {"source": None, "progress": None}),
        (training.restore, {"state": training.state(), "source": None}),
    ):
        assert list(defects(method, valid)) == [], method.__name__


def test_a_source_without_a_position_changes_nothing():
    training = trainer()
    training.step(IMAGES, LABELS)
    before = training.state()
    training.step(IMAGES, LABELS)
    weights = training.variables.trainable[0].array.values.copy()
    with pytest.raises(TypeError, match=r"source=2\.5 has no position"):
        training.restore(before, source=2.5)  # type: ignore[arg-type]
    assert training.steps == 2
    assert np.array_equal(training.variables.trainable[0].array.values, weights)


SCALES = ("StaticLossScale", "DynamicLossScale", "AutomaticLossScale", "KerasLossScale")


@pytest.mark.parametrize("name", SCALES)
def test_loss_scales(name):
    kind = getattr(loss_scale, name)
    factor = inspect.signature(kind).parameters["factor"]
    valid = arguments_of(kind, **({"factor": 2.0} if factor.default is factor.empty else {}))
    assert list(defects(kind, valid)) == []


OPTIMIZERS = [
    n for n in optim.__all__
    if inspect.isclass(getattr(optim, n))
    and issubclass(getattr(optim, n), optim.Optimizer)
    and not inspect.isabstract(getattr(optim, n))
    and n != "Optimizer"
]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimisers(name):
    kind = getattr(optim, name)
    assert list(defects(kind, arguments_of(kind, rate=0.1))) == []


def test_policies_and_accumulation():
    for function, valid in (
        (policy.Policy, arguments_of(policy.Policy)),
        (policy.Policy.parse, {"text": "p=f32"}), (policy.LayerPolicies.parse, {"text": "p=f32"}),
        (policy.FP16.override, {"layers": {"a": policy.FP32}}),
        (policy.find_policy, {"policy": "fp16"}),
        (Accumulation, arguments_of(Accumulation, count=2)),
    ):
        assert list(defects(function, valid)) == [], function


#: Arguments of layers beside x, and images where they take these.
LAYERS: dict[str, dict[str, Any]] = {
    "dense": {"units": 2, "op_name": "l"}, "conv": {"filters": 2, "kernel_size": 3, "op_name": "l"},
    "max_pool": {"size": 2}, "average_pool": {"size": 2}, "dropout": {"rate": 0.5}, "flatten": {},
    "batch_norm": {"op_name": "l"}, "group_norm": {"groups": 2, "op_name": "l"},
    "layer_norm": {"op_name": "l"},
}
ON_IMAGES = ("conv", "max_pool", "average_pool", "batch_norm", "group_norm")


@pytest.mark.parametrize("name", LAYERS)
def test_layers(name):
    layer, images = getattr(nn, name), np.ones((2, 4, 4, 4) if name in ON_IMAGES else (2, 4))
    choices = arguments_of(layer, **LAYERS[name])

    def forward(**arguments: Any) -> Any:
        return trainer(lambda x: layer(**{"x": x, **arguments})).forward(images)

    forward.__signature__ = inspect.Signature()  # type: ignore[attr-defined]
    assert list(defects(forward, choices, SMALL)) == []
    for value in SMALL.values():
        with pytest.raises(TypeError, match="takes a Tensor, got"):
            forward(**{**choices, "x": value})


def test_checkpoints(tmp_path):
    training, path = trainer(), tmp_path / "f.npz"
    training.step(IMAGES, LABELS)
    state = training.state()
    checkpoint.save(str(path), state)
    assert checkpoint.load(str(path)).step == 1
    for wrong in ((state, str(path)), (str(path), None), (None, state)):
        with pytest.raises(TypeError, match=r"(path|state)=\w+ is not a"):
            checkpoint.save(*wrong)
    with pytest.raises(TypeError, match="path=NoneType is not a file's name"):
        checkpoint.load(None)  # type: ignore[arg-type]


def test_text_and_numbers_are_taken_where_they_are_clear():
    named = trainer(policy="fp16", loss_scale=256)
    built = trainer(policy=policy.FP16, loss_scale=loss_scale.StaticLossScale(256.0))
    assert [named.step(IMAGES, LABELS) for _ in range(3)] == [
        built.step(IMAGES, LABELS) for _ in range(3)
    ]
    assert str(trainer(policy="p=f32,c=f16").policy) == str(policy.MIXED)


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: trainer(policy="half"), ValueError, "policy='half' is not a policy; use one of"),
        (lambda: trainer(policy=16), TypeError, "policy=16 is not a policy; use one of fp8, fp16"),
        (lambda: trainer(loss_scale="x"), TypeError, "loss_scale='x' is not a loss scale; use a n"),
        (lambda: trainer(loss_scale=0), ValueError, "factor=0"),
        (lambda: trainer(accumulation=4), TypeError, "accumulation=4 is not an Accumulation"),
        (lambda: trainer(observe=1), TypeError, "observe=1 is not a function"),
        (lambda: trainer(None), TypeError, "model=None is not a function"),
        (lambda: trainer(lambda x: None).forward(IMAGES), TypeError,
         "model returned NoneType, not a Tensor; return the logits"),
        (lambda: trainer(lambda x: x.array).step(IMAGES, LABELS), TypeError,
         "model returned Array, not a Tensor"),
        (lambda: trainer(control=3), TypeError, "control=3 is not a control register"),
    ],
)
def test_the_entrance_has_a_sentence(call, kind, message):
    with pytest.raises(kind, match=message):
        call()
