"""The native calls of a plan, by what decides them beside numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fpsim.array import Array
from ipu.frontends.tensorflow.engine.machine import Machine
from ipu.frontends.tensorflow.engine.native.noting import Noting
from ipu.frontends.tensorflow.engine.native.rules import rules_of
from ipu.frontends.tensorflow.engine.native.running import NativeCalls
from ipu.frontends.tensorflow.engine.native.steps import PlannedStep

__all__ = ["NativePlan", "NativePlans"]

#: Runs with inputs alike before calls are noted: rules that run in one call then do.
_FIRST_RUNS = 2
#: Runs in which a call had no result, after which the nodes run by their kernels.
_MOST_FALLS = 8
#: Kinds of inputs that are kept.
_KEPT = 2


class NativePlans:
    """One plan for each kind of inputs that is met."""

    def __init__(self, machine: Machine, template: Sequence[Any], inputs: Sequence[int],
                 steps: Sequence[PlannedStep], results: Sequence[int]) -> None:
        self._machine, self._template, self._inputs = machine, template, inputs
        self._steps, self._results = steps, results
        self._plans: dict[tuple[Any, ...], NativePlan] = {}
        self._has_recipe = any(step.site.policy.recipe is not None for step in steps)

    def find(self, frame: Sequence[Any]) -> NativePlan | None:
        """Of a frame with these inputs; None where all nodes have to run by their kernels."""
        rules = None if self._has_recipe else rules_of(self._machine)
        if rules is None:
            return None
        key = (*map(id, rules), *[_facts(frame[slot]) for slot in self._inputs])
        plan = self._plans.get(key)
        if plan is None:
            if len(self._plans) >= _KEPT:
                self._plans.clear()
            plan = self._plans[key] = NativePlan(
                self._machine, self._template, self._inputs, self._steps, self._results, rules)
        return plan


def _facts(value: Any) -> Any:
    """What an input decides beside its numbers."""
    if isinstance(value, Array):
        return value.carrier.shape, value.context
    if isinstance(value, (np.ndarray, np.generic)):
        return value.shape, value.dtype
    return type(value)


class NativePlan:
    """A plan for inputs alike: some runs by kernels, one in which calls are noted, then these.

    rules    by which they are noted, kept alive.
    """

    def __init__(
        self, machine: Machine, template: Sequence[Any], inputs: Sequence[int],
        steps: Sequence[PlannedStep], results: Sequence[int], rules: Sequence[object],
    ) -> None:
        self._machine, self._template, self._inputs = machine, template, inputs
        self._steps, self._results, self._rules = steps, results, rules
        self._n_runs = 0
        self._calls: NativeCalls | None = None
        #: Runs in which nodes had to run by their kernels.
        self.n_falls = 0

    @property
    def is_ready(self) -> bool:
        """Whether calls are noted."""
        return self._calls is not None

    @property
    def n_native(self) -> int:
        """Nodes that run below their kernels."""
        return 0 if self._calls is None else self._calls.n_native

    def is_due(self) -> bool:
        """Whether this run is the one in which calls are noted."""
        self._n_runs += 1
        return self._n_runs == _FIRST_RUNS + 1

    def note(self, frame: list[Any], begin: Callable[[PlannedStep], None]) -> None:
        """Run the nodes by their kernels, and note what they call.

        begin    called with each step before it runs.
        """
        noting = Noting(self._machine, self._template, self._steps, self._rules)
        self._calls = noting.run(frame, begin, self._inputs, self._results)

    def run(self, frame: list[Any], begin: Callable[[PlannedStep], None]) -> None:
        """Run what is noted, and by their kernels the nodes for which it has no result."""
        assert self._calls is not None
        if not self._calls.run(frame, begin, self._results):
            self.n_falls += 1
            if self.n_falls >= _MOST_FALLS:
                self._calls = None
