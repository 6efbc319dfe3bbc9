"""The update: all parameters take their step, or, after an error, none of them has.

Source    PopART, clipping of gradients by their global norm; `ipu.frontends.poptorch.engine.rules`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from fpsim.array import Array
from ipu.frontends.poptorch.engine.gradients import Gradients, Replicas, as_array, format_of
from ipu.frontends.poptorch.engine.machine import Machine
from ipu.frontends.poptorch.engine.rules import Rule, combined_share
from ipu.frontends.poptorch.optim import rule_of, slots_of
from ipu.parallel.orders import Order

__all__ = ["Updater"]


class Updater:
    """Applies an optimiser on the machine.

    optimizer    one of torch's or PopTorch's; its state holds the slots.
    """

    def __init__(self, machine: Machine, optimizer: torch.optim.Optimizer) -> None:
        self.machine, self.optimizer = machine, optimizer
        self._rule, self._missing = rule_of(optimizer)

    @property
    def groups(self) -> list[dict[str, Any]]:
        """The groups with every argument that PopART's rules know."""
        return [self._missing | group for group in self.optimizer.param_groups]

    @property
    def parameters(self) -> list[torch.Tensor]:
        """All trained parameters, in order."""
        return [p for group in self.optimizer.param_groups for p in group["params"]
                if p.requires_grad]  # fmt: skip

    @property
    def loss_scaling(self) -> float:
        """Of the first group: a loss has one scale.

        Raises    ValueError for groups with different ones.
        """
        scales = {float(group["loss_scaling"]) for group in self.groups}
        if len(scales) > 1:
            raise ValueError(
                f"loss_scaling of the optimiser's groups is {sorted(scales)}; a loss has one scale"
            )
        return scales.pop()

    @property
    def types(self) -> dict[int, torch.dtype]:
        """Of each parameter's accumulator."""
        return {id(p): group["accum_type"] for group in self.groups for p in group["params"]}

    def combined(self, parameter: torch.Tensor, unscale: float) -> tuple[Array | None, float]:
        """Start and share of a combined accumulator; None, 1 for a separate one."""
        for group in self.groups:
            if group.get("use_combined_accum") and any(p is parameter for p in group["params"]):
                velocity = self._slots(parameter, group)["velocity"]
                return velocity, combined_share(group, unscale)
        return None, 1.0

    def check(self, replicas: int) -> None:
        """Refuses what is not modelled with several replicas."""
        combined = any(group.get("use_combined_accum") for group in self.groups)
        if combined and replicas > 1:
            raise ValueError(
                f"use_combined_accum=True with replicationFactor({replicas}) is not modelled; use "
                "use_combined_accum=False"
            )

    # The update -----------------------------------------------------------------------------

    def apply(
        self, gradients: Gradients, replicas: Replicas, order: Order | str, unscale: float
    ) -> None:
        """One step of all parameters that have a gradient.

        unscale    1 / (loss scale · G), or 1 / loss scale where the sum is a mean already.
        """
        with _disable_current_modes():
            self._apply(gradients, replicas, order, unscale)

    def _apply(
        self, gradients: Gradients, replicas: Replicas, order: Order | str, unscale: float
    ) -> None:
        session = self.machine.session
        summed = [
            (v, parameter, replicas.sum(gradients.of(parameter), v, order))
            for v, parameter in enumerate(self.parameters) if parameter in gradients
        ]  # fmt: skip
        session.layers.in_update = True
        try:
            rule = Rule(session.call("poptorch.update"))
            after = self._stepped(rule, summed, unscale)
        finally:
            session.layers.in_update = False
        self._commit(after)

    def _stepped(
        self, rule: Rule, summed: Sequence[tuple[int, torch.Tensor, Array]], unscale: float
    ) -> list[tuple[torch.Tensor, Array, dict[str, Array]]]:
        arrays = {id(parameter): s for _, parameter, s in summed}
        after = []
        for group in self.groups:
            own = [p for p in group["params"] if id(p) in arrays]
            clipped = self._clipped(rule, [arrays[id(p)] for p in own], group, unscale)
            for parameter, s in zip(own, clipped, strict=True):
                w = as_array(self.machine, parameter, rule.call.policy.param)
                slots = self._slots(parameter, group)
                w, slots = self._rule(rule, w, s, slots, group, unscale)
                after.append((parameter, w, slots))
        return after

    def _clipped(
        self, rule: Rule, gradients: list[Array], group: dict[str, Any], unscale: float
    ) -> list[Array]:
        """Gradients of a group, scaled down to the largest norm that is allowed."""
        largest = group["max_grad_norm"]
        if math.isinf(largest) or not gradients:
            return gradients
        norm = math.hypot(*(rule.norm(s) for s in gradients)) * unscale
        factor = largest / max(norm, largest)
        return [rule.times(s, factor) for s in gradients]

    def _slots(self, parameter: torch.Tensor, group: dict[str, Any]) -> dict[str, Array]:
        """The optimiser's state of a parameter; zeros before the first update."""
        device, state = self.machine.device, self.optimizer.state[parameter]
        slots = {}
        for name, dtype in slots_of(self.optimizer, group).items():
            fmt = format_of(dtype)
            shape = () if name == "step" else tuple(parameter.shape)
            kept = state.get(name)
            slots[name] = (
                device.zeros(shape, fmt) if kept is None
                else device.from_host(kept.detach().float().numpy(), fmt)
            )  # fmt: skip
        return slots

    def _commit(self, after: list[tuple[torch.Tensor, Array, dict[str, Array]]]) -> None:
        """Nothing can fail from here on."""
        memory = self.machine.session.memory
        with torch.no_grad():
            for parameter, w, slots in after:
                parameter.copy_(memory.write(w, parameter.dtype))
                state = self.optimizer.state[parameter]
                for name, array in slots.items():
                    dtype = next(
                        (d for d in (torch.float16,) if format_of(d) == array.format),
                        torch.float32,
                    )
                    state[name] = memory.write(array, dtype)
