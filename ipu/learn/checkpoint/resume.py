"""The state of a training: taken after a step, restored into a training that was built alike.

What a training was built from (policy, optimiser, target, control bits, seeds …) is not restored
but compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from itertools import zip_longest
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from fpsim.array import Array
from fpsim.elementwise.codes import to_codes
from fpsim.records.flags import Flags
from fpsim.state.streams import XoroshiroStreams
from ipu.learn.accumulate import Accumulation
from ipu.learn.address import Numbering
from ipu.learn.checkpoint.state import (
    Kept,
    Number,
    Positioned,
    Replica,
    TrainingState,
    format_named,
)
from ipu.learn.loss_scale import LossScale
from ipu.learn.optim import Optimizer
from ipu.learn.policy import PolicyLike
from ipu.learn.variables import Variables
from ipu.machine.control import FpSts
from ipu.machine.device import Device
from ipu.ops.listing import Listing

__all__ = ["TrainingLike", "check_program", "restore", "take"]

#: What the operations of a step stand under.
_PROGRAM = "program"

T = TypeVar("T")


class WorkerLike(Protocol):
    """A replica's variables on its device: `ipu.learn.worker.Worker` is one."""

    variables: Variables
    numbering: Numbering
    slots: dict[str, tuple[Array, ...]]

    @property
    def device(self) -> Device: ...


class TrainingLike(Protocol):
    """What a state is taken from: `ipu.learn.train.Trainer` is one."""

    policy: PolicyLike
    optimizer: Optimizer
    loss_scale: LossScale
    accumulation: Accumulation | None
    program: Listing
    restored: str

    @property
    def workers(self) -> Sequence[WorkerLike]: ...

    def built(self) -> dict[str, str]:
        """What reaches the bits beyond what is named here, as text."""


# Taking ---------------------------------------------------------------------------------------


def take(
    training: TrainingLike,
    source: Positioned | None = None,
    progress: Mapping[str, Number] | None = None,
) -> TrainingState:
    """The state after the last complete step."""
    _check_source(source)
    if progress is not None and not isinstance(progress, Mapping):
        raise TypeError(f"progress={progress!r} is not a mapping; give numbers by name, or None")
    scale = training.loss_scale
    first, *others = training.workers
    parameters, slots = _parameters(first), _slots(first)
    return TrainingState(
        built=_built(training) | _program(training),
        parameters=parameters,
        slots=slots,
        loss_scale={name: getattr(scale, name) for name in scale.moving},
        **_registers(first.device),
        step=first.numbering.step,
        replicas=tuple(
            Replica(
                parameters=_differing(_parameters(worker), parameters),
                slots=_differing(_slots(worker), slots),
                **_registers(worker.device),
            )
            for worker in others
        ),
        position=source.position if source is not None else 0,
        progress=dict(progress or {}),
        streams=_streams(first.device),
    )


def _check_source(source: Any) -> None:
    """Refuse a data source whose position is not known, before anything is read or changed."""
    if source is not None and not hasattr(source, "position"):
        raise TypeError(
            f"source={source!r} has no position; give a data source of ipu.feed, or None"
        )


def _registers(device: Device) -> dict[str, Any]:
    """What operations have left behind on a device."""
    contexts = {fmt.name: device.context(fmt) for fmt in device.target.formats}
    counts = None
    if device.counts is not None:
        counts = [(tensor, name, dict(row)) for (tensor, name), row in device.counts.items()]
    return {
        "operation": device.clock.operation,
        "flags": {name: int(context.flags) for name, context in contexts.items()},
        "status": device.status_word,
        "counts": counts,
        "delayed": device.blocks.delayed.state(),
    }


def _parameters(worker: WorkerLike) -> dict[str, Kept]:
    return {name: _copied(v.array) for name, v in worker.variables.items()}


def _slots(worker: WorkerLike) -> dict[str, tuple[Kept | Number, ...]]:
    return {name: tuple(map(_slot, slots)) for name, slots in worker.slots.items()}


def _differing(items: Mapping[str, T], first: Mapping[str, T]) -> dict[str, T]:
    """The entries of a replica that are not those of the first one."""
    return {name: item for name, item in items.items() if not _equal(item, first[name])}


def _equal(x: Any, y: Any) -> bool:
    if isinstance(x, Kept):
        return bool(np.array_equal(to_codes(x.values, x.record), to_codes(y.values, y.record)))
    if isinstance(x, tuple):
        return len(x) == len(y) and all(map(_equal, x, y))
    return bool(x == y)


def _built(training: TrainingLike) -> dict[str, str]:
    device = training.workers[0].device
    return {
        "policy": str(training.policy),
        "optimizer": str(training.optimizer),
        "loss_scale": _fixed_fields(training.loss_scale),
        "accumulation": str(training.accumulation),
        **_accumulators(training),
        "target": device.target.name,
        "control": f"{device.control.word:#010x}",
        "preset": device.options.preset,
        "f32_denormals": device.options.f32_denormals,
        "max_nan": device.options.max_nan,
        "sums": device.options.sums,
        "conv_partials": str(device.conv_partials),
        "disable_sr_for_amp_vertices": str(device.options.disable_sr_for_amp_vertices),
        "seed": str(training.workers[0].variables.seed),
        "bits": repr(device.source),
        **training.built(),
    }


def _program(training: TrainingLike) -> dict[str, str]:
    """The operations of a step, where one was made here or before the state that was restored."""
    lines = training.restored if training.program.is_open else "\n".join(training.program.shapeless)
    return {_PROGRAM: lines} if lines else {}


def check_program(restored: str, program: Listing) -> None:
    """Refuse a model whose first step runs other operations than the state's training.

    Raises    ValueError with the first that differ.
    """
    pairs = zip_longest(restored.splitlines(), program.shapeless, fillvalue="nothing")
    for there, here in pairs if restored else ():
        if there != here:
            raise ValueError(
                f"the state is of another model: it has {there} there and {here} here; build the "
                "model as it was, or start anew"
            )


def _streams(device: Device) -> NDArray[np.uint64] | None:
    """The words of the machine's own generator."""
    return device.source.states if isinstance(device.source, XoroshiroStreams) else None


def _accumulators(training: TrainingLike) -> dict[str, str]:
    """The formats that a function may have chosen, which has no text of its own."""
    accumulation = training.accumulation
    if accumulation is None:
        return {}
    trainable = training.workers[0].variables.trainable
    return {f"accumulator of {v.name}": accumulation.format_for(v).name for v in trainable}


def _fixed_fields(scale: LossScale) -> str:
    """The loss scale without the fields that steps change."""
    names = [f.name for f in fields(scale) if f.name not in scale.moving]
    text = ", ".join(f"{name}={getattr(scale, name)!r}" for name in names)
    return f"{type(scale).__name__}({text})"


def _copied(array: Array) -> Kept:
    return Kept(array.format.name, array.carrier.copy())


def _slot(item: Any) -> Kept | Number:
    return _copied(item) if isinstance(item, Array) else item


# Restoring ------------------------------------------------------------------------------------


def restore(training: TrainingLike, state: TrainingState, source: Positioned | None = None) -> None:
    """Put a training, and its data source, where the state was taken.

    Raises    ValueError for the state of another model or another kind of training;
              RuntimeError before the model has variables. Nothing has changed then.
    """
    if not isinstance(state, TrainingState):
        raise TypeError(
            f"state={state!r} is not a State; give what trainer.state() or load returned"
        )
    _check_source(source)
    if not training.workers[0].variables:
        raise RuntimeError("the model has no variables yet; call trainer.forward(batch) once first")
    _check(training, state)
    if not training.program.is_open:
        check_program(state.built.get(_PROGRAM, ""), training.program)
    # Everything is computed before anything changes.
    states: list[TrainingState | Replica] = [state, *state.replicas]
    ways_back = [
        _way_back(worker, replica, state)
        for worker, replica in zip(training.workers, states, strict=True)
    ]
    training.loss_scale = _loss_scale(training.loss_scale, state.loss_scale)
    for way_back in ways_back:
        way_back()
    training.restored = state.built.get(_PROGRAM, "")
    first = training.workers[0].device.source
    if isinstance(first, XoroshiroStreams) and state.streams is not None:
        first.states = state.streams
    if source is not None:
        source.position = state.position


def _way_back(
    worker: WorkerLike, of_replica: TrainingState | Replica, state: TrainingState
) -> Callable[[], None]:
    """What puts a worker where it was; everything that can fail has been done."""
    device = worker.device
    items_of = {**state.parameters, **of_replica.parameters}
    values = {name: _restored(device, item) for name, item in items_of.items()}
    slots = {
        name: tuple(_restored(device, item) for item in items)
        for name, items in {**state.slots, **of_replica.slots}.items()
    }
    raised = {device.context(format_named(name)): Flags(f) for name, f in of_replica.flags.items()}
    status = FpSts.from_word(of_replica.status).word
    counts = {
        (tensor, operation): Counter(row) for tensor, operation, row in of_replica.counts or []
    }

    def way_back() -> None:
        for name, array in values.items():
            worker.variables[name].assign(array)
        worker.slots = slots
        worker.numbering.step = state.step
        device.clock.operation = of_replica.operation
        for context, flags in raised.items():
            context.flags = flags
        device.status_word = status
        device.blocks.delayed.load(of_replica.delayed)
        if device.counts is not None:
            device.counts.clear()
            device.counts.update(counts)

    return way_back


def _check(training: TrainingLike, state: TrainingState) -> None:
    for name, here in _built(training).items():
        there = state.built.get(name)
        if there != here:
            raise ValueError(
                f"the state is of another training: {name} is {there} there and {here} here; "
                "build the training as it was, or start anew"
            )
    device = training.workers[0].device
    streams = [None if s is None else s.shape for s in (state.streams, _streams(device))]
    if streams[0] != streams[1]:
        raise ValueError("the state has no random streams of this target; start anew")
    saved = {n: (k.format, k.values.shape) for n, k in state.parameters.items()}
    variables = training.workers[0].variables
    present = {n: (v.dtype.name, v.shape) for n, v in variables.items()}
    for name in sorted(saved.keys() | present.keys()):
        if saved.get(name) != present.get(name):
            raise ValueError(
                f"the state is of another model: variable {name} is {_described(saved.get(name))} "
                f"there and {_described(present.get(name))} here; start anew"
            )
    if len(state.replicas) + 1 != len(training.workers):
        raise ValueError(
            f"the state is of {len(state.replicas) + 1} replicas, the training has "
            f"{len(training.workers)}; build it as it was, or start anew"
        )
    everything = [*state.slots.items(), *(i for r in state.replicas for i in r.slots.items())]
    for name, items in everything:
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
