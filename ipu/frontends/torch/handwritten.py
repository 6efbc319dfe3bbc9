"""Updates that a program writes itself, computed in binary32.

    update    what is part of one outside of all modules (`gradients`), and every operation in the
              step of an optimiser whose step is not torch's.
    wide      where states are asked for in binary32, and where a pattern of the policy names the
              operation (`aten.*=f32`) and gives binary32. torch's own optimisers are rows that no
              pattern of operations names.

A wide operation computes in binary32. What it writes is binary32 from then on, except parameters
and gradients, which keep their formats: the result is rounded once into them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import torch

from fpsim.records.formats import BINARY32
from ipu.frontends.torch.gradients import Gradients, Role
from ipu.frontends.torch.layers import Layers
from ipu.frontends.torch.values import Memory
from ipu.learn.policy import LayerPolicies, Policy
from ipu.run.options import RunOptions

__all__ = ["HandwrittenUpdates"]

#: What keeps its format where an update writes it.
_KEPT = (Role.PARAMETER, Role.LEAF, Role.GRADIENT)


class UpdatingSession(Protocol):
    """What updates ask of a session."""

    gradients: Gradients
    layers: Layers
    memory: Memory
    options: RunOptions
    policy: Policy | LayerPolicies


class HandwrittenUpdates:
    """Which operations of a session are wide."""

    def __init__(self, program: UpdatingSession) -> None:
        self._program = program
        self._layers, self._gradients = program.layers, program.gradients
        #: Whether updates and their states are in binary32.
        self.has_wide_states = program.options.changes.wide_states
        self._named: dict[str, bool] = {}
        #: The step that runs is the program's, of an optimiser of torch's class.
        self._is_in_step = False

    def start(self, optimiser: torch.optim.Optimizer) -> None:
        """An optimiser is about to step."""
        self._is_in_step = not type(optimiser).step.__module__.startswith("torch.")

    def is_here(self) -> bool:
        """Whether the operation that runs now is part of an update that the program writes."""
        layers = self._layers
        return layers.is_updating or (layers.in_update and self._is_in_step)

    def is_wide(self, operation: str) -> bool:
        """Whether the operation of that name, which is part of such an update, is."""
        return self.has_wide_states or self._is_named(operation)

    def reads_state(self, tensors: Iterable[torch.Tensor], *, in_module: bool) -> bool:
        """Whether an operation computes with wide states of an update alone.

        Tensors of another shape are of something else, as of a model that has copied weights.
        """
        if in_module:
            return False
        operands = [x for x in tensors if x.ndim]
        return len({x.shape for x in operands}) == 1 and any(
            self._gradients.role_of(x) is Role.COPY for x in operands)

    def widen(self, targets: Iterable[torch.Tensor]) -> None:
        """What a wide operation writes is binary32 from now on."""
        memory = self._program.memory
        for x in targets:
            is_kept = isinstance(x, torch.nn.Parameter) or self._gradients.role_of(x) in _KEPT
            if not is_kept and memory.format_of(x) not in (None, BINARY32):
                memory.mark(x, BINARY32)

    def _is_named(self, operation: str) -> bool:
        policy = self._program.policy
        if not isinstance(policy, LayerPolicies):
            return False
        is_named = self._named.get(operation)
        if is_named is None:
            is_named = self._named[operation] = policy.names(operation) and (
                policy.of(operation).activations == BINARY32)
        return is_named
