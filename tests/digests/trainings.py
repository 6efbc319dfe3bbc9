"""Trainings of some steps: models, optimisers and their choices."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from fpsim import BINARY32
from ipu.learn import nn, optim, policy
from ipu.learn.address import Region, address
from ipu.learn.loss_scale import (
    EPSILON,
    LEARNING_RATE,
    DynamicLossScale,
    NoLossScale,
    StaticLossScale,
)
from ipu.learn.train import Trainer
from ipu.machine.control import FpCtl
from tests.digests.contexts import table
from tests.digests.operands import SEED
from tests.digests.registry import Item
from tests.digests.rooms import ROOMS

STEPS = 4


def mlp(x: Any) -> Any:
    return nn.dense(nn.relu(nn.dense(x, 9, "hidden")), 3, "output")


def smooth(x: Any) -> Any:
    """Layers with the other activations and a norm."""
    x = nn.gelu(nn.layer_norm(nn.dense(x, 8, "first"), "norm"))
    x = nn.sigmoid(nn.dense(nn.tanh(nn.dense(x, 7, "second")), 6, "third"))
    return nn.dense(nn.softmax(x), 3, "output")


def noisy(x: Any) -> Any:
    """Batch norm and dropout between dense layers."""
    x = nn.relu(nn.batch_norm(nn.dense(x, 10, "hidden"), "norm"))
    return nn.dense(nn.dropout(x, 0.25), 3, "output")


def cnn(x: Any) -> Any:
    """Convolutions on every unit of the rule, norms, both poolings and dropout."""
    x = nn.relu(nn.batch_norm(nn.conv(x, 4, 3, "conv1"), "norm1"))
    x = nn.max_pool(x, 3, stride=1)
    x = nn.conv(x, 8, 3, "conv2", groups=2, stride=2, use_bias=False)
    x = nn.dropout(nn.relu(nn.group_norm(x, 2, "norm2")), 0.2)
    x = nn.average_pool(nn.conv(x, 6, (1, 3), "conv3", padding="VALID"), (2, 1))
    return nn.dense(nn.flatten(x), 3, "output")


def _now(trainer: Trainer) -> tuple[int, int]:
    """The status, and stochastic operations outside of the steps' numbers: there are none."""
    return trainer.device.status.word, trainer.device.clock.operation - address(
        0, Region.OTHER, 0, 0
    )


def training(model: Any, optimizer: Any, esr: bool, choices: dict[str, Any]) -> Iterator[Item]:
    """Variables, losses, status and logits after some steps."""
    choices = dict(choices)
    control = FpCtl(esr=esr, nanoo=choices.pop("nanoo", False))
    steps = choices.pop("steps", STEPS)
    rng = np.random.default_rng([SEED, 3])
    shape = (12, 8, 8, 2) if model is cnn else (12, 11)
    x, labels = rng.integers(-32, 33, (3, *shape)) / 16, rng.integers(0, 3, (3, 12))
    trainer = Trainer(model, optimizer, control=control, seed=SEED, **choices)
    for step in range(steps):
        yield trainer.step(x[step % 3], labels[step % 3])
        yield from (trainer.applied, float(trainer.loss_scale.value), _now(trainer))
    for name, variable in sorted(trainer.variables.items()):
        yield name
        yield variable.dtype.name
        yield variable.array
    yield trainer.forward(x[0]).array
    yield _now(trainer)
    if trainer.device.counts is not None:
        yield from table(trainer.device.counts)


def all_trainings() -> dict[str, tuple[Any, Any, dict[str, Any]]]:
    """Model, optimiser and choices of each training."""
    fp32, fp16, mixed, fp8 = policy.FP32, policy.FP16, policy.MIXED, policy.FP8
    half = policy.Policy.parse("p=f16,c=f16,part=f16")
    wide_sums = policy.Policy.parse("p=f16,c=f16,acc=f32")
    sgd, momentum = optim.SGD(0.125), optim.SGD(0.05, 0.9)
    nesterov = optim.SGD(0.05, 0.9, nesterov=True)
    rms = optim.RMSProp(0.01, momentum=0.5, epsilon=1e-3)
    rms32 = optim.RMSProp(0.01, epsilon=1e-4, format=BINARY32)
    adam, adam16 = optim.Adam(0.01), optim.Adam(0.01, epsilon=1e-4)
    adamw = optim.AdamW(0.01, epsilon=1e-4)
    quarters = {"policy": fp8, "target": "mk2-fp8"}
    summed = ROOMS.Accumulation
    dynamic = {"nanoo": True, "steps": 6}
    return {
        "mlp/fp32/sgd": (mlp, sgd, {"policy": fp32}),
        "mlp/fp32/momentum": (mlp, momentum, {"policy": fp32}),
        "mlp/fp32/rmsprop": (mlp, optim.RMSProp(0.01), {"policy": fp32}),
        "mlp/fp32/adam": (mlp, adam, {"policy": fp32}),
        "mlp/fp32/nesterov/ieee": (mlp, nesterov, {"policy": fp32, "f32_denormals": "ieee"}),
        "mlp/fp16/momentum/static": (
            mlp, momentum, {"policy": fp16, "loss_scale": StaticLossScale(8.0, LEARNING_RATE)},
        ),
        "mlp/fp16/nesterov": (mlp, nesterov, {"policy": fp16, "count": True}),
        "mlp/fp16/rmsprop": (mlp, rms, {"policy": fp16}),
        "mlp/fp16/rmsprop32/static": (
            mlp, rms32, {"policy": fp16, "loss_scale": StaticLossScale(16.0, EPSILON)},
        ),
        "mlp/fp16/adam/static": (
            mlp, adam16, {"policy": fp16, "loss_scale": StaticLossScale(32.0, EPSILON)},
        ),
        "mlp/fp16/half/exact": (mlp, momentum, {"policy": half, "preset": "exact"}),
        "mlp/fp16/sum": (
            mlp, optim.CastGradientsSGD(0.05, 0.9),
            {"policy": wide_sums, "accumulation": summed(3, "sum")},
        ),
        "mlp/fp16/mean": (mlp, momentum, {"policy": fp16, "accumulation": summed(3, "mean")}),
        "mlp/fp16/override": (mlp, momentum, {"policy": fp16.override({"output": fp32})}),
        "mlp/mixed/momentum/dynamic": (
            mlp, momentum,
            {"policy": mixed, "loss_scale": DynamicLossScale(2.0**24, interval=2), **dynamic},
        ),
        "mlp/mixed/adam/dynamic": (
            mlp, adam,
            {"policy": mixed, "loss_scale": DynamicLossScale(2.0**20, EPSILON, interval=2),
             **dynamic},
        ),
        "mlp/mixed/adamw/static": (
            mlp, adamw, {"policy": mixed, "loss_scale": StaticLossScale(1024.0)},
        ),
        "mlp/mixed/running_mean": (
            mlp, momentum, {"policy": mixed, "accumulation": summed(4, "running_mean")},
        ),
        "mlp/mixed/automatic": (
            mlp, momentum,
            {"policy": mixed, "loss_scale": ROOMS.AutomaticLossScale(2.0**14), "steps": 6},
        ),
        "mlp/mixed/keras": (
            mlp, momentum,
            {"policy": mixed, "loss_scale": ROOMS.KerasLossScale(1024.0, frequency=2), "steps": 6},
        ),
        "mlp/fp8/momentum": (mlp, momentum, quarters),
        "mlp/fp8/adam/static": (
            mlp, adam, quarters | {"loss_scale": StaticLossScale(256.0)},
        ),
        "mlp/bfloat16/momentum": (
            mlp, momentum,
            {"policy": policy.Policy.parse("p=bf16,c=bf16"), "target": "hypothetical"},
        ),
        "smooth/fp16/rmsprop": (smooth, rms, {"policy": fp16}),
        "smooth/mixed/adam": (smooth, adam, {"policy": mixed}),
        "noisy/fp16/momentum": (
            noisy, momentum,
            {"policy": fp16, "loss_scale": StaticLossScale(8.0, LEARNING_RATE), "count": True},
        ),
        "noisy/mixed/adam/mean": (
            noisy, adam, {"policy": mixed, "accumulation": summed(2, "mean")},
        ),
        "cnn/fp32/adam": (cnn, adam, {"policy": fp32}),
        "cnn/fp16/momentum/static": (
            cnn, momentum, {"policy": fp16, "loss_scale": StaticLossScale(8.0)},
        ),
        "cnn/fp16/half": (cnn, momentum, {"policy": half, "loss_scale": NoLossScale()}),
        "cnn/mixed/rmsprop/dynamic": (
            cnn, rms,
            {"policy": mixed, "loss_scale": DynamicLossScale(2.0**24, interval=2), **dynamic},
        ),
        "cnn/mixed/momentum/running_mean": (
            cnn, momentum, {"policy": mixed, "accumulation": summed(2, "running_mean")},
        ),
        "cnn/fp8/momentum": (cnn, momentum, quarters),
    }
