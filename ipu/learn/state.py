"""State: everything that the next training step depends on, as plain data in one record.

Values are kept with the name of their format and in its carrier, so they come back bit for bit.
What a training was built from (policy, optimiser, target, control bits, seeds …) is not restored
but compared: a state fits a training that was built as the one it was taken from.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from numpy.typing import NDArray

from fpsim.array import Array
from fpsim.records.flags import Flags
from fpsim.records.formats import Format, find_format
from ipu.learn.loss_scale import LossScale

if TYPE_CHECKING:
    from ipu.learn.train import Trainer
    from ipu.machine.device import Device

__all__ = ["Kept", "Number", "Positioned", "State", "format_named", "restore", "take"]

Number = bool | int | float | str | None


class Kept(NamedTuple):
    """Values of a format in its carrier."""

    format: str
    values: NDArray[Any]

    @property
    def record(self) -> Format:
        """The format."""
        return format_named(self.format)


def format_named(name: str) -> Format:
    """A format of numbers, by the name that `Kept` keeps."""
    found = find_format(name)
    assert isinstance(found, Format)
    return found


class Positioned(Protocol):
    """A data source that knows where it is."""

    position: int


@dataclass(frozen=True)
class State:
    """What a training goes on from.

    built        what the training was built from, in words; compared when it is restored.
    parameters   every variable, by its full name.
    slots        the optimiser's memory, by the variable's name: values or numbers.
    loss_scale   the fields of the loss scale that move from step to step.
    operation    number of the next stochastic operation.
    flags        flags raised so far, by format.
    counts       exception counters: [tensor, operation, {counter: n}]; None if nothing is counted.
    position     batches that the data source has given.
    progress     numbers that the caller keeps beside, by name.
    """

    built: Mapping[str, str]
    parameters: Mapping[str, Kept]
    slots: Mapping[str, tuple[Kept | Number, ...]]
    loss_scale: Mapping[str, Any]
    operation: int
    flags: Mapping[str, int]
    counts: list[tuple[str, str, dict[str, int]]] | None = None
    position: int = 0
    progress: Mapping[str, Number] | None = None


# Taking ---------------------------------------------------------------------------------------


def take(
    trainer: Trainer, source: Positioned | None = None, progress: Mapping[str, Number] | None = None
) -> State:
    """The state after the last whole step."""
    device = trainer.device
    contexts = {fmt.name: device.context(fmt) for fmt in device.target.formats}
    counts = None
    if device.counts is not None:
        counts = [(tensor, name, dict(row)) for (tensor, name), row in device.counts.items()]
    return State(
        built=_built(trainer),
        parameters={name: _kept(v.array) for name, v in trainer.variables.items()},
        slots={name: tuple(map(_slot, kept)) for name, kept in trainer.slots.items()},
        loss_scale={name: getattr(trainer.loss_scale, name) for name in trainer.loss_scale.moving},
        operation=device.clock.operation,
        flags={name: int(context.flags) for name, context in contexts.items()},
        counts=counts,
        position=source.position if source is not None else 0,
        progress=dict(progress or {}),
    )


def _built(trainer: Trainer) -> dict[str, str]:
    device = trainer.device
    return {
        "policy": str(trainer.policy),
        "optimizer": str(trainer.optimizer),
        "loss_scale": _chosen(trainer.loss_scale),
        "accumulation": str(trainer.accumulation),
        **_accumulators(trainer),
        "target": device.target.name,
        "control": f"{device.control.word:#010x}",
        "preset": device.preset,
        "f32_denormals": device.f32_denormals,
        "max_nan": device.max_nan,
        "conv_partials": str(device.conv_partials),
        "disable_sr_for_amp_vertices": str(device.disable_sr_for_amp_vertices),
        "seed": str(trainer.variables.seed),
        "bits": repr(device.source),
    }


def _accumulators(trainer: Trainer) -> dict[str, str]:
    """The formats that a function may have chosen, which has no words of its own."""
    how = trainer.accumulation
    if how is None:
        return {}
    return {f"accumulator of {v.name}": how.format_for(v).name for v in trainer.variables.trainable}


def _chosen(scale: LossScale) -> str:
    """The loss scale without what moves."""
    stay = [f.name for f in fields(scale) if f.name not in scale.moving]
    said = ", ".join(f"{name}={getattr(scale, name)!r}" for name in stay)
    return f"{type(scale).__name__}({said})"


def _kept(array: Array) -> Kept:
    return Kept(array.format.name, array.values.copy())


def _slot(item: Any) -> Kept | Number:
    return _kept(item) if isinstance(item, Array) else item


# Giving back ----------------------------------------------------------------------------------


def restore(trainer: Trainer, state: State, source: Positioned | None = None) -> None:
    """Put a training, and its data source, where the state was taken.

    Raises    ValueError for the state of another model or another kind of training;
              RuntimeError before the model has variables. Nothing has changed then.
    """
    if not trainer.variables:
        raise RuntimeError("the model has no variables yet; call trainer.forward(batch) once first")
    _check(trainer, state)
    device = trainer.device
    # All is made before anything is put in its place.
    values = {name: _given(device, kept) for name, kept in state.parameters.items()}
    slots = {
        name: tuple(_given(device, item) for item in kept) for name, kept in state.slots.items()
    }
    loss_scale = _loss_scale(trainer.loss_scale, state.loss_scale)
    raised = {device.context(format_named(name)): Flags(f) for name, f in state.flags.items()}
    counts = {(tensor, operation): Counter(row) for tensor, operation, row in state.counts or []}

    for name, array in values.items():
        trainer.variables[name].assign(array)
    trainer.slots, trainer.loss_scale = slots, loss_scale
    device.clock.operation = state.operation
    for context, flags in raised.items():
        context.flags = flags
    if device.counts is not None:
        device.counts.clear()
        device.counts.update(counts)
    if source is not None:
        source.position = state.position


def _check(trainer: Trainer, state: State) -> None:
    for name, here in _built(trainer).items():
        there = state.built.get(name)
        if there != here:
            raise ValueError(
                f"the state is of another training: {name} is {there} there and {here} here; "
                "build the training as it was, or start anew"
            )
    there_all = {n: (k.format, k.values.shape) for n, k in state.parameters.items()}
    here_all = {n: (v.dtype.name, v.shape) for n, v in trainer.variables.items()}
    for name in sorted(there_all.keys() | here_all.keys()):
        if there_all.get(name) != here_all.get(name):
            raise ValueError(
                f"the state is of another model: variable {name} is {_words(there_all.get(name))} "
                f"there and {_words(here_all.get(name))} here; start anew"
            )


def _words(found: tuple[str, tuple[int, ...]] | None) -> str:
    return "missing" if found is None else f"{found[0]} of shape {found[1]}"


def _given(device: Device, item: Kept | Number) -> Any:
    if not isinstance(item, Kept):
        return item
    return device.context(item.record).wrap(item.values.copy())


def _loss_scale(template: LossScale, values: Mapping[str, Any]) -> LossScale:
    return replace(
        template, **{k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
    )
