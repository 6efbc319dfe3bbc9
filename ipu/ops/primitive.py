"""A row of the table of operations: its rules, what they round, what they cost, and the evidence.

A rule is a function of a device and arrays. The tape of `ipu.learn` and every front end call the
same rules: the forward rule, and one vector-Jacobian product per argument. Backward rules see only
what the forward rule has saved, so the bytes saved are the memory that a training step keeps alive.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from inspect import Parameter, signature
from typing import Any, NamedTuple, Protocol, Self, TypeVar

from fpsim.array import Array
from fpsim.records.evidence import Evidence
from fpsim.state.processor import usual_arithmetic

__all__ = ["Forward", "OperationCost", "Primitive", "Saved", "Taped", "Vjp"]

#: What a forward rule leaves for its backward rules.
Saved = tuple[Any, ...]
#: forward(device, *arrays, **options) -> (output, saved)
Forward = Callable[..., tuple[Array, Saved]]
#: vjp(device, gradient of the output, saved, **options) -> gradient of one argument
Vjp = Callable[..., Array]


class OperationCost(NamedTuple):
    """Cost of an operation: multiply-adds of a matrix unit, results of the vector unit.

    cycles    of a thread for these results; see `ipu.machine.vector`.
    """

    macs: int = 0
    results: int = 0
    cycles: int = 0


def one_result_each(arrays: Sequence[Array], output: Array) -> OperationCost:
    """The cost of most element-wise operations."""
    return OperationCost(results=output.size)


class Taped(Protocol):
    """What a row can be called with: a tensor of a tape, which computes and writes the tape."""

    def record(
        self, primitive: Primitive, inputs: Sequence[Self], name: str, options: dict[str, Any]
    ) -> Self:
        """The result of the primitive on these inputs, on the tape."""


T = TypeVar("T", bound=Taped)


@dataclass(frozen=True)
class Primitive:
    """One differentiable operation; called with tensors it computes and writes their tape.

    vjps      one per argument, or None where no gradient flows.
    unit      what runs it: "AMP", "vector", or "none" (no arithmetic).
    cost      of the forward rule, from its arrays and its output.
    passing   options of the forward rule that no backward rule reads: the tape does not keep them.
    rounding  the places where the forward rule rounds, in words.
    gradient  those of the backward rules.
    verb      the device's verb that is the forward rule, for those that are one.
    check     refuses arrays that the tape does not take, though the forward rule would.
    evidence  that the machine computes it by these steps, and the `source` that says so.
    """

    name: str
    forward: Forward
    vjps: tuple[Vjp | None, ...]
    unit: str = "vector"
    cost: Callable[[Sequence[Array], Array], OperationCost] = field(default=one_result_each)
    passing: tuple[str, ...] = ()
    rounding: str = ""
    gradient: str = ""
    verb: str = ""
    check: Callable[..., None] | None = None
    evidence: Evidence = Evidence.ASSUMED
    source: str = ""

    @usual_arithmetic
    def __call__(self, *inputs: T, name: str | None = None, **options: Any) -> T:
        if len(inputs) != len(self.vjps):
            raise TypeError(f"{self.name} takes {len(self.vjps)} tensors, got {len(inputs)}")
        if not options.keys() <= self.options:
            raise self._unknown_option(options)
        for x in inputs:
            if not hasattr(x, "record"):
                raise TypeError(
                    f"{self.name} takes a Tensor, got {type(x).__name__}; make one with "
                    "Tensor(array, device)"
                )
        return inputs[0].record(self, inputs, name or self.name, options)

    def value(self, device: Any, *arrays: Any, **options: Any) -> Array:
        """The output of the forward rule alone; operands of a verb may be numbers."""
        if self.verb:
            result: Array = getattr(device, self.verb)(*arrays)
            return result
        return self.forward(device, *arrays, **options)[0]

    def pull(
        self, argument: int, device: Any, gradient: Array, saved: Saved, **options: Any
    ) -> Array:
        """The gradient of one argument."""
        vjp = self.vjps[argument]
        assert vjp is not None, (self.name, argument)
        return vjp(device, gradient, saved, **options)

    def _unknown_option(self, options: dict[str, Any]) -> TypeError:
        unknown = sorted(options.keys() - self.options)
        return TypeError(
            f"{self.name} has no option {unknown[0]}={options[unknown[0]]!r}; "
            f"use {', '.join(sorted(self.options)) or 'none'}"
        )

    @cached_property
    def options(self) -> frozenset[str]:
        """Names of the options of the forward rule."""
        parameters = signature(self.forward).parameters.values()
        return frozenset(p.name for p in parameters if p.kind is Parameter.KEYWORD_ONLY)
