"""The state of a training: taken after a step, restored into a training that was built alike.

What a training was built from (policy, optimiser, target, control bits, seeds …) is not restored
but compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, Protocol

from fpsim.array import Array
from fpsim.records.flags import Flags
from ipu.learn.accumulate import Accumulation
from ipu.learn.checkpoint.state import Kept, Number, Positioned, State, format_named
from ipu.learn.loss_scale import LossScale
from ipu.learn.optim import Optimizer
from ipu.learn.policy import PolicyLike
from ipu.learn.variables import Variables
from ipu.machine.control import FpSts
from ipu.machine.device import Device

__all__ = ["Training", "restore", "take"]


class Training(Protocol):
    """What a state is taken from: `ipu.learn.train.Trainer` is one."""

    device: Device
    policy: PolicyLike
    optimizer: Optimizer
    loss_scale: LossScale
    accumulation: Accumulation | None
    variables: Variables
    slots: dict[str, tuple[Array, ...]]


# Taking ---------------------------------------------------------------------------------------


def take(
    training: Training,
    source: Positioned | None = None,
    progress: Mapping[str, Number] | None = None,
) -> State:
    """The state after the last complete step."""
    device, scale = training.device, training.loss_scale
    contexts = {fmt.name: device.context(fmt) for fmt in device.target.formats}
    counts = None
    if device.counts is not None:
        counts = [(tensor, name, dict(row)) for (tensor, name), row in device.counts.items()]
    return State(
        built=_built(training),
        parameters={name: _kept(v.array) for name, v in training.variables.items()},
        slots={name: tuple(map(_slot, slots)) for name, slots in training.slots.items()},
        loss_scale={name: getattr(scale, name) for name in scale.moving},
        operation=device.clock.operation,
        flags={name: int(context.flags) for name, context in contexts.items()},
        status=device.status_word,
        counts=counts,
        position=source.position if source is not None else 0,
        progress=dict(progress or {}),
    )


def _built(training: Training) -> dict[str, str]:
    device = training.device
    return {
        "policy": str(training.policy),
        "optimizer": str(training.optimizer),
        "loss_scale": _fixed_fields(training.loss_scale),
        "accumulation": str(training.accumulation),
        **_accumulators(training),
        "target": device.target.name,
        "control": f"{device.control.word:#010x}",
        "preset": device.preset,
        "f32_denormals": device.f32_denormals,
        "max_nan": device.max_nan,
        "conv_partials": str(device.conv_partials),
        "disable_sr_for_amp_vertices": str(device.disable_sr_for_amp_vertices),
        "seed": str(training.variables.seed),
        "bits": repr(device.source),
    }


def _accumulators(training: Training) -> dict[str, str]:
    """The formats that a function may have chosen, which has no text of its own."""
    accumulation = training.accumulation
    if accumulation is None:
        return {}
    trainable = training.variables.trainable
    return {f"accumulator of {v.name}": accumulation.format_for(v).name for v in trainable}


def _fixed_fields(scale: LossScale) -> str:
    """The loss scale without the fields that steps change."""
    names = [f.name for f in fields(scale) if f.name not in scale.moving]
    text = ", ".join(f"{name}={getattr(scale, name)!r}" for name in names)
    return f"{type(scale).__name__}({text})"


def _kept(array: Array) -> Kept:
    return Kept(array.format.name, array.carrier.copy())


def _slot(item: Any) -> Kept | Number:
    return _kept(item) if isinstance(item, Array) else item


# Restoring ------------------------------------------------------------------------------------


def restore(training: Training, state: State, source: Positioned | None = None) -> None:
    """Put a training, and its data source, where the state was taken.

    Raises    ValueError for the state of another model or another kind of training;
              RuntimeError before the model has variables. Nothing has changed then.
    """
    if not training.variables:
        raise RuntimeError("the model has no variables yet; call trainer.forward(batch) once first")
    _check(training, state)
    device = training.device
    # Everything is computed before anything changes.
    values = {name: _restored(device, kept) for name, kept in state.parameters.items()}
    slots = {
        name: tuple(_restored(device, item) for item in items)
        for name, items in state.slots.items()
    }
    loss_scale = _loss_scale(training.loss_scale, state.loss_scale)
    raised = {device.context(format_named(name)): Flags(f) for name, f in state.flags.items()}
    status = FpSts.from_word(state.status).word
    counts = {(tensor, operation): Counter(row) for tensor, operation, row in state.counts or []}

    for name, array in values.items():
        training.variables[name].assign(array)
    training.slots, training.loss_scale = slots, loss_scale
    device.clock.operation = state.operation
    for context, flags in raised.items():
        context.flags = flags
    device.status_word = status
    if device.counts is not None:
        device.counts.clear()
        device.counts.update(counts)
    if source is not None:
        source.position = state.position


def _check(training: Training, state: State) -> None:
    for name, here in _built(training).items():
        there = state.built.get(name)
        if there != here:
            raise ValueError(
                f"the state is of another training: {name} is {there} there and {here} here; "
                "build the training as it was, or start anew"
            )
    saved = {n: (k.format, k.values.shape) for n, k in state.parameters.items()}
    present = {n: (v.dtype.name, v.shape) for n, v in training.variables.items()}
    for name in sorted(saved.keys() | present.keys()):
        if saved.get(name) != present.get(name):
            raise ValueError(
                f"the state is of another model: variable {name} is {_described(saved.get(name))} "
                f"there and {_described(present.get(name))} here; start anew"
            )
    for name, items in state.slots.items():
        shapes = {(), present[name][1]} if name in present else set()
        if any(isinstance(item, Kept) and item.values.shape not in shapes for item in items):
            raise ValueError(f"the state is of another model: slots of {name} do not fit it")
    scale = training.loss_scale
    if state.loss_scale.keys() - set(scale.moving):
        raise ValueError(f"the state has no loss scale like {scale}; start anew")


def _described(variable: tuple[str, tuple[int, ...]] | None) -> str:
    return "missing" if variable is None else f"{variable[0]} of shape {variable[1]}"


def _restored(device: Device, item: Kept | Number) -> Any:
    if not isinstance(item, Kept):
        return item
    return device.context(item.record).wrap(item.values.copy())


def _loss_scale(template: LossScale, values: Mapping[str, Any]) -> LossScale:
    return replace(
        template, **{k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
    )
