"""Updates of the same tensors time after time, into the memory that they have.

What follows from tensors alone is known after the first time: where they lie, and which of them
are updated alike. Programs, numbers of operations, flags and cycles are those of
`ipu.ops.updates.together`.

Source    docs/semantics.md §2 (numbering), §6 (updates).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fpsim.elementwise.recorded_program import RecordedJob, are_apart
from fpsim.records.types import Carrier
from fpsim.state.memory import memory_addresses
from ipu.machine.device import Device
from ipu.ops.updates.row import Number
from ipu.ops.updates.together import Changed, Equation, Together, UpdateRequest

__all__ = ["RepeatedUpdate", "RepeatedUpdates"]


class RepeatedUpdate(NamedTuple):
    """An update, and the memory of its variable and of each slot."""

    request: UpdateRequest
    places: Sequence[Carrier | None]

    @property
    def singles(self) -> list[Carrier]:
        """Its single numbers."""
        arrays = self.request.arrays
        return [x.carrier for x in arrays if x is not None and x.carrier.shape == ()]

    def is_in_place(self, equation: Equation) -> bool:
        """Whether all that the equation changes has memory of its own."""
        changed = {i for i, output in enumerate(equation.slots) if output is not None}
        changed |= {-1 if home is None else home for home in equation.outputs}
        return all(
            0 <= i < len(self.places) and self.places[i] is not None for i in changed
        )

    def job(self, equation: Equation) -> RecordedJob | None:
        """Where the tensors of an equation lie; None where it cannot run on them."""
        if not self.is_in_place(equation):
            return None
        inputs = [
            x.carrier for x in self.request.arrays if x is not None and x.carrier.shape != ()
        ]
        homes = [self.places[home] for home in equation.outputs if home is not None]
        outputs = [x for x in homes if x is not None]
        shape, n = self.request.w.carrier.shape, len(inputs)
        if any(x.shape != shape or not x.flags.c_contiguous for x in (*inputs, *outputs)):
            return None
        starts, size = memory_addresses(inputs + outputs), inputs[0].size
        if not are_apart(starts[:n], starts[n:], size):
            return None
        return RecordedJob(tuple(starts[:n]), tuple(starts[n:]), size, 0, ())


class _Alike(NamedTuple):
    """Updates with the same formats: which they are, and where their tensors lie.

    jobs    by the outputs of an equation.
    """

    numbers: list[int]
    singles: list[list[Carrier]]
    jobs: dict[tuple[int | None, ...], list[RecordedJob | None]]


class RepeatedUpdates:
    """Updates of a group of variables, in order."""

    def __init__(self, together: Together, updates: Sequence[RepeatedUpdate]) -> None:
        self._together, self._updates = together, updates
        alike: dict[tuple[object, ...], _Alike] = {}
        for i, update in enumerate(updates):
            key = tuple([
                None if x is None else (id(x.context.core.settings.format), x.carrier.shape == ())
                for x in update.request.arrays
            ])
            row = alike.setdefault(key, _Alike([], [], {}))
            row.numbers.append(i)
            row.singles.append(update.singles)
        self._alike = list(alike.values())

    def run(self, device: Device, numbers: Mapping[str, Number]) -> Changed | None:
        """Compute with these numbers; constants that did not fit, of each variable.

        None, and nothing has happened, where they have to be computed one by one.
        """
        equations: list[Equation | None] = [None] * len(self._updates)
        jobs: list[RecordedJob | None] = [None] * len(self._updates)
        for alike in self._alike:
            equation = self._equation(device, alike, numbers)
            if equation is None:
                return None
            rows = alike.jobs.get(equation.outputs)
            if rows is None:
                rows = [self._updates[i].job(equation) for i in alike.numbers]
                alike.jobs[equation.outputs] = rows
            for i, job in zip(alike.numbers, rows, strict=True):
                if job is None or not self._updates[i].is_in_place(equation):
                    return None
                equations[i], jobs[i] = equation, job
        ready = [e for e in equations if e is not None]
        request = self._updates[0].request._replace(numbers=numbers)
        self._together.compute(self._numbered(device, ready, jobs, request.singles))
        for update, equation in zip(self._updates, ready, strict=True):
            for place, output in zip(update.places, equation.slots, strict=False):
                if output is not None and not isinstance(output, int) and place is not None:
                    place[...] = output
        return tuple([changed for equation in ready for changed in equation.changed])

    def _equation(
        self, device: Device, alike: _Alike, numbers: Mapping[str, Number]
    ) -> Equation | None:
        """The one of updates alike; None where their single numbers differ."""
        first, *others = [[x.tobytes() for x in singles] for singles in alike.singles]
        if any(singles != first for singles in others):
            return None
        request = self._updates[alike.numbers[0]].request
        return self._together.equation(device, request._replace(numbers=numbers))

    @staticmethod
    def _numbered(
        device: Device, equations: Sequence[Equation], jobs: Sequence[RecordedJob | None],
        singles: Sequence[Carrier],
    ) -> list[tuple[Equation, RecordedJob]]:
        """Jobs with their single inputs and the numbers of their operations, in order."""
        drawn = device.clock.take(sum([e.program.n_draws for e in equations]))
        rows: list[tuple[Equation, RecordedJob]] = []
        first, beside = 0, tuple(memory_addresses(singles))
        for equation, job in zip(equations, jobs, strict=True):
            n = equation.program.n_draws
            assert job is not None
            rows.append((
                equation, job._replace(numbers=drawn[first : first + n], singles=beside)
            ))
            first += n
        return rows
