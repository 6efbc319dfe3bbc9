"""Executables: the programs of a model by the shapes of its inputs, and what changing them costs.

Another shape is another program. It is compiled once and kept; later changes switch to it, and the
weights and the state on the chip go out to the host and come in again.

Source    Graphcore, guide on performance: one computational graph. That a switch moves all that
          outlives a call is ASSUMED.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ipu.frontends.poptorch.engine.compiled import Compiled
from ipu.machine.target import Target
from ipu.plan.memory import StageFigures
from ipu.plan.plan import Plan
from ipu.plan.switching import switch_cost

__all__ = ["Executables"]


class Executables:
    """The programs of one model.

    seconds     of the host's processor that compiling took.
    switches    changes between programs that were compiled before.
    """

    def __init__(self) -> None:
        self._programs: dict[Any, Compiled] = {}
        self.seconds = 0.0
        self.switches = 0

    def __len__(self) -> int:
        return len(self._programs)

    @contextmanager
    def compiling(self) -> Iterator[None]:
        """A block that compiles."""
        start = time.thread_time()
        yield
        self.seconds += time.thread_time() - start

    def keep(self, signature: Any, program: Compiled) -> None:
        """A program for inputs of these shapes."""
        self._programs[signature] = program

    def switched(self, signature: Any, now: Compiled | None) -> Compiled | None:
        """The program for such inputs, with optimiser and loss scale of now; or None."""
        program = self._programs.get(signature)
        if program is not None and now is not None:
            program.updater, program.scaling = now.updater, now.scaling
            self.switches += 1
        return program

    def told(self, plan: Plan, figures: tuple[StageFigures, ...] | None, target: Target) -> str:
        """What they have cost, as a line of a report."""
        text = (
            f"{len(self)} program{'s' * (len(self) != 1)} compiled in {self.seconds:.2f} s of the "
            f"host's processor, {self.switches} switches between them"
        )
        if figures is None or not self.switches:
            return text
        return f"{text}: {switch_cost(plan, figures, target)}"
