"""The update: all parameters take their step, or, after an error, none of them has.

Source    PopART, clipping of gradients by their global norm; `ipu.ops.updates.popart`.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils._python_dispatch import _disable_current_modes

from fpsim.array import Array
from fpsim.records.formats import BINARY32
from ipu.frontends.poptorch.engine.gradients import (
    MicroBatchGradients,
    ReplicaAdditions,
    as_array,
    format_of,
)
from ipu.frontends.poptorch.engine.machine import PoptorchMachine
from ipu.frontends.poptorch.engine.processes import PoptorchProcesses
from ipu.frontends.poptorch.optim import rule_of, slots_of
from ipu.frontends.torch.aten import Call
from ipu.ops.updates import Around
from ipu.ops.updates.popart import (
    clipping,
    combined_decay,
    combined_share,
    scaled,
    started_velocity,
)
from ipu.plan.orders import Order

__all__ = ["Updater", "taken"]


def taken(optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
    """The optimiser's groups as they are now, which is what the device gets to know."""
    return [dict(group) for group in optimizer.param_groups]


class Change(NamedTuple):
    """What an update does to a parameter: `term` is added to `before`, which becomes `after`."""

    parameter: torch.Tensor
    before: Array
    term: NDArray[Any]
    after: Array
    slots: dict[str, Array]


class Updater:
    """Applies an optimiser on the machine.

    optimizer    one of torch's or PopTorch's; its state holds the slots.
    groups       its groups as the device has them: as `taken` copied them.
    """

    def __init__(
        self, machine: PoptorchMachine, optimizer: torch.optim.Optimizer,
        groups: list[dict[str, Any]],
    ) -> None:
        self.machine, self.optimizer = machine, optimizer
        self._row, self._missing = rule_of(optimizer)
        self._taken, self._has_warned = groups, False
        #: Those that train the model together; None for this one alone.
        self.processes: PoptorchProcesses | None = None

    @property
    def groups(self) -> list[dict[str, Any]]:
        """The groups with every argument that PopART's rules know."""
        return [self._missing | group for group in self._taken]

    def check_arguments(self) -> None:
        """Warns once where the program changed an argument that the device has not."""
        if self._has_warned:
            return
        for group, taken in zip(self.optimizer.param_groups, self._taken, strict=False):
            name = next((n for n in group if n != "params" and group[n] != taken.get(n)), None)
            if name is not None:
                self._has_warned = True
                warnings.warn(
                    f"the optimiser's {name} is {group[name]}, and {taken.get(name)} on the "
                    "device; changes take effect with model.setOptimizer(optimizer)", stacklevel=2,
                )
                return

    @property
    def parameters(self) -> list[torch.Tensor]:
        """All trained parameters, in order."""
        return [p for group in self._taken for p in group["params"] if p.requires_grad]

    @property
    def loss_scaling(self) -> float:
        """Of the first group, as a loss has one scale, times the one of the run's changes.

        Raises    ValueError for groups with different ones.
        """
        scales = {float(group["loss_scaling"]) for group in self.groups}
        if len(scales) > 1:
            raise ValueError(
                f"loss_scaling of the optimiser's groups is {sorted(scales)}; a loss has one scale"
            )
        return scales.pop() * self.machine.session.options.changes.loss_scale

    @property
    def types(self) -> dict[int, torch.dtype]:
        """Of each parameter's accumulator."""
        return {
            id(p): self._kept(group["accum_type"]) for group in self.groups for p in group["params"]
        }

    def _kept(self, dtype: torch.dtype) -> torch.dtype:
        """The type of an accumulator or slot that the program makes of this one.

        It is torch.float32 where a run gives what is float16 the formats of a policy in binary32
        (`Changes.halves_by_policy`), or keeps the optimiser's states in it.
        """
        session = self.machine.session
        is_wide = session.halves_by_policy and session.policy.default.param == BINARY32
        return torch.float32 if is_wide or session.changer.widens else dtype

    def combined(self, parameter: torch.Tensor, unscale: float) -> tuple[Array | None, float]:
        """Start and share of a combined accumulator; None, 1 for a separate one."""
        for group in self.groups:
            if group.get("use_combined_accum") and any(p is parameter for p in group["params"]):
                share = combined_share(group["dampening"], group["velocity_scaling"], unscale)
                return self._velocity(parameter, group), share
        return None, 1.0

    def _velocity(self, parameter: torch.Tensor, group: dict[str, Any]) -> Array:
        """Of a combined accumulator; before the first update it holds the weight's decay."""
        velocity = self._slots(parameter, group)["velocity"]
        if "velocity" in self.optimizer.state[parameter] or not group["weight_decay"]:
            return velocity
        decay = combined_decay(
            group["dampening"], group["weight_decay"], group["velocity_scaling"]
        )
        weight = as_array(self.machine, parameter)
        return started_velocity(self.machine.device, weight, decay, velocity)

    def check(self, replicas: int) -> None:
        """Refuses what is not modelled with several replicas."""
        combined = any(group.get("use_combined_accum") for group in self.groups)
        for group in self.groups if combined else ():
            _check_combined(group)
        if combined and replicas > 1:
            raise ValueError(
                f"use_combined_accum=True with {replicas} replicas is not modelled; use "
                "use_combined_accum=False"
            )

    # The update -----------------------------------------------------------------------------

    def apply(
        self, gradients: MicroBatchGradients, replicas: ReplicaAdditions, order: Order | str,
        unscale: float,
    ) -> None:
        """One step of all parameters that have a gradient.

        unscale    1 / (loss scale · G), or 1 / loss scale where the sum is a mean already.
        """
        with _disable_current_modes():
            self._apply(gradients, replicas, order, unscale)

    def _apply(
        self, gradients: MicroBatchGradients, replicas: ReplicaAdditions, order: Order | str,
        unscale: float,
    ) -> None:
        session = self.machine.session
        if self.processes is not None:
            self.processes.meet(
                [f"parameter {v}" for v, p in enumerate(self.parameters) if p in gradients],
                session.step,
            )
        summed = [
            (v, parameter, replicas.sum(gradients.of(parameter), v, order))
            for v, parameter in enumerate(self.parameters) if parameter in gradients
        ]
        session.layers.in_update = True
        try:
            after = self._stepped(session.call("poptorch.update"), summed, unscale)
        finally:
            session.layers.in_update = False
        self._commit(after)
        if self.processes is not None:
            self.processes.check(self._trained(), session.step + 1)

    def _trained(self) -> Iterator[torch.Tensor]:
        """Parameters and slots."""
        for parameter in self.parameters:
            yield parameter
            state = self.optimizer.state.get(parameter, {})
            yield from (state[name] for name in sorted(state) if torch.is_tensor(state[name]))

    def _stepped(
        self, call: Call, summed: Sequence[tuple[int, torch.Tensor, Array]], unscale: float
    ) -> list[Change]:
        arrays = {id(parameter): s for _, parameter, s in summed}
        factor = clipping(call.device, list(arrays.values()), unscale, self._largest_norm())
        around, row, after = Around(call.constant), self._row, []
        for group in self.groups:
            numbers = {n: group[n] for n in row.numbers if n != "unscale"} | {"unscale": unscale}
            for parameter in (p for p in group["params"] if id(p) in arrays):
                before = as_array(self.machine, parameter, call.policy.param)
                held = self._slots(parameter, group)
                s = scaled(call.device, arrays[id(parameter)], factor, around)
                slots = [held.get(name) for name in row.slots]
                w, slots_after, change, _ = row(call.device, before, s, slots, around, **numbers)
                assert change is not None
                after.append(Change(
                    parameter, before, -np.asarray(change.carrier, np.float32), w,
                    {name: x for name, x in zip(row.slots, slots_after, strict=True)
                     if name in held},
                ))
        return after

    def _largest_norm(self) -> float:
        """That all gradients together may have."""
        norms = {float(group["max_grad_norm"]) for group in self.groups}
        if len(norms) > 1:
            raise ValueError(
                f"max_grad_norm of the optimiser's groups is {sorted(norms)}; it is the norm of "
                "all gradients, use one value"
            )
        return norms.pop()

    def _slots(self, parameter: torch.Tensor, group: dict[str, Any]) -> dict[str, Array]:
        """The optimiser's state of a parameter; zeros before the first update."""
        device, state = self.machine.device, self.optimizer.state[parameter]
        slots = {}
        for name, dtype in slots_of(self.optimizer, group).items():
            fmt = format_of(self._kept(dtype))
            shape = () if name == "step" else tuple(parameter.shape)
            slot = state.get(name)
            slots[name] = (
                device.zeros(shape, fmt) if slot is None
                else device.from_host(slot.detach().float().numpy(), fmt)
            )
        return slots

    def _commit(self, after: list[Change]) -> None:
        """Nothing can fail from here on."""
        session = self.machine.session
        memory = session.memory
        with torch.no_grad():
            for parameter, before, term, w, slots in after:
                was = np.array(before.carrier)  # may be the parameter's own memory
                parameter.copy_(memory.write(w, parameter.dtype))
                session.observer.note_update(parameter, w.format, was, term)
                state = self.optimizer.state[parameter]
                for name, array in slots.items():
                    dtype = next(
                        (d for d in (torch.float16,) if format_of(d) == array.format),
                        torch.float32,
                    )
                    state[name] = memory.write(array, dtype)


def _check_combined(group: dict[str, Any]) -> None:
    """Refuses what a combined accumulator does not go together with here."""
    for name, neutral in (("nesterov", False), ("max_grad_norm", math.inf)):
        if group["use_combined_accum"] and group[name] != neutral:
            raise ValueError(
                f"{name}={group[name]} with use_combined_accum=True is not modelled; use "
                "use_combined_accum=False"
            )
