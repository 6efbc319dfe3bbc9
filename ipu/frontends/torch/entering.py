"""Parameters enter the machine: they take the policy's format where their layer first runs.

Lazy modules make theirs later, parameters that no module has come with their optimiser.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol
from weakref import WeakKeyDictionary, WeakSet

import torch

from ipu.frontends.torch.changing import Changer
from ipu.frontends.torch.gradients import Gradients
from ipu.frontends.torch.layers import Layers
from ipu.frontends.torch.observing import WeightObserver, host_values
from ipu.frontends.torch.shadowing import Shadowing
from ipu.frontends.torch.values import (
    WEIGHT,
    Memory,
    TensorMap,
    is_lazy,
    outside_transforms,
    stored,
)
from ipu.learn.policy import LayerPolicies, Policy
from ipu.run.account import Account
from ipu.run.options import RunOptions
from ipu.run.restoring import PARAMETERS, PrecisionSite, nudged

__all__ = ["Entering"]


class EnteringSession(Protocol):
    """What entering asks of a session."""

    account: Account
    changer: Changer
    gradients: Gradients
    layers: Layers
    memory: Memory
    observer: WeightObserver
    options: RunOptions
    policy: Policy | LayerPolicies
    shadowing: Shadowing | None

    def policy_of(self, layer: str, direction: str) -> Policy: ...


class Entering:
    """Which parameters and modules have entered, and the way in."""

    def __init__(self, program: EnteringSession) -> None:
        self._program = program
        #: Parameters that have their format, those that no module has, and modules that ran.
        self._parameters, self._loose = TensorMap[bool](), TensorMap[bool]()
        self._entered: WeakSet[torch.nn.Module] = WeakSet()
        #: Lazy modules that have been entered without parameters, and their layers.
        self._unmade: WeakKeyDictionary[torch.nn.Module, str] = WeakKeyDictionary()
        self.has_unmade = False

    def module(self, module: torch.nn.Module, layer: str) -> None:
        """Parameters of a module take the policy's format, where they have numbers."""
        with outside_transforms():
            present = [stored(parameter) for parameter in module.parameters(recurse=False)]
            parameters = [parameter for parameter in present if parameter is not None]
            if len(parameters) == len(present):
                self._take(module, layer, parameters)
            elif any(map(is_lazy, module.parameters(recurse=False))):
                self._unmade[module], self.has_unmade = layer, True

    def _take(
        self, module: torch.nn.Module, layer: str, parameters: Iterable[torch.Tensor]
    ) -> None:
        program, memory = self._program, self._program.memory
        is_new = module not in self._entered
        self._entered.add(module)
        names = self._name_for_shadows(module, layer)
        for parameter in parameters:
            is_first = self._is_first(parameter)
            if is_first:
                program.account.parameter(layer, parameter.numel())
            if is_new:
                program.gradients.know(parameter)
                memory.give_role(parameter, WEIGHT)
            if program.shadowing is not None:
                program.shadowing.name(parameter, names.get(id(parameter), layer))
            if not memory.is_plain:
                param = program.policy_of(layer, "optimizer").param
                memory.enter(parameter, param, is_first=is_first)
                if is_first and PrecisionSite(layer, PARAMETERS) in program.options.restoring.moved:
                    values = host_values(parameter)
                    values[...] = nudged(values, param)
            if is_new:
                program.changer.follow(parameter)
                program.observer.note_weights(parameter)

    def _name_for_shadows(self, module: torch.nn.Module, layer: str) -> dict[int, str]:
        """Names of a module's parameters by identity; its buffers have theirs."""
        shadowing = self._program.shadowing
        if shadowing is None or not shadowing.is_on:
            return {}
        for name, buffer in module.named_buffers(recurse=False):
            shadowing.name(buffer, f"{layer}.{name}")
        named = module.named_parameters(recurse=False)
        return {id(parameter): f"{layer}.{name}" for name, parameter in named}

    def _is_first(self, parameter: torch.Tensor) -> bool:
        """Whether a parameter of a module enters for the first time."""
        if not isinstance(parameter, torch.nn.Parameter) or parameter in self._parameters:
            return False
        self._parameters[parameter] = True
        return True

    def made(self) -> None:
        """Lazy modules make their parameters after they are entered."""
        for module, layer in list(self._unmade.items()):
            if not any(map(is_lazy, module.parameters(recurse=False))):
                del self._unmade[module]
                self.module(module, layer)
        self.has_unmade = bool(self._unmade)

    def of_optimiser(self, parameters: Iterable[torch.Tensor]) -> None:
        """Parameters of an optimiser, those among them that no module has."""
        program = self._program
        for parameter in parameters:
            is_first = not program.layers.layer_of(parameter) and parameter not in self._loose
            if is_first:
                self._loose[parameter] = True
                program.account.parameter("optimizer", parameter.numel())
            if not program.memory.is_plain:
                param = program.policy.default.param
                program.memory.enter(parameter, param, is_first=is_first)
