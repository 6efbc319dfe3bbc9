"""The operations of a step in order, which run again on other tensors.

Values of a step are numbered: tensors that it is given, those that it finds, gradients that it
finds, then results in the order in which operations make them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import _disable_current_modes

from ipu.frontends.torch.layers import Where

__all__ = [
    "CalledPlace", "EventEntry", "OperationEntry", "OutsideTensor", "Slot", "StepTape",
    "UpdateEntry", "difference", "filled", "slots_of",
]


class Slot(NamedTuple):
    """A tensor of a step.

    kind     "argument", "outside", "gradient" or "result".
    number   among those of its kind.
    """

    kind: str
    number: int


class CalledPlace(NamedTuple):
    """Where an operation stands.

    k    stochastic operations there before it.
    """

    operation: str
    where: Where
    is_replaying: bool
    k: int


class OperationEntry(NamedTuple):
    """An operation of torch below autograd.

    plan        what runs it.
    is_view     it gives a view: nothing is computed, and formats go with the memory.
    is_copied   a copy outside of modules, which may be one of a parameter.
    is_update   it belongs to an update without an optimiser.
    """

    overload: Any
    plan: Callable[[Any, Any], Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: Any
    is_view: bool
    is_copied: bool
    is_update: bool


class EventEntry(NamedTuple):
    """What the session is told beside operations."""

    kind: str
    operands: Any = ()
    result: Any = None


class UpdateEntry(NamedTuple):
    """An update of a parameter group by a row.

    lists      tensors by the name of the list.
    options    numbers and switches of the update.
    sources    group, key and item of those that are read from the group in every step.
    """

    name: str
    row: Any
    lists: Mapping[str, Any]
    options: Mapping[str, Any]
    sources: Mapping[str, tuple[dict[str, Any], str, int | None]]

    def arguments(self, fill: Callable[[Any], Any]) -> dict[str, Any]:
        """Arguments of the function of the update, with numbers as the groups have them now."""
        rows = {name: list(fill(tensors)) for name, tensors in self.lists.items()}
        return rows | self.numbers()

    def numbers(self) -> dict[str, Any]:
        """Its numbers and switches, as the groups have them now."""
        numbers = dict(self.options)
        for name, (group, key, item) in self.sources.items():
            numbers[name] = group[key] if item is None else group[key][item]
        return numbers


Entry = OperationEntry | EventEntry | UpdateEntry


class OutsideTensor(NamedTuple):
    """A tensor that the step finds, and what is as it was when it is replayed.

    is_constant    made anew in each step from Python's numbers; `tensor` is a copy then.
    """

    tensor: torch.Tensor
    facts: tuple[Any, ...]
    is_constant: bool


class StepTape(NamedTuple):
    """A step.

    calls       places, in the order in which operations ask for theirs.
    had_gradients  of which leaves, before the step.
    names       for torch's profiler, by the overload that gives them.
    start_counts  stochastic operations by place, before the step.
    gradients   leaves, and the value that each has as its gradient after the step.
    returned    what the step gives back.
    """

    entries: Sequence[Entry]
    calls: Sequence[CalledPlace]
    outside: Sequence[OutsideTensor]
    leaves: Sequence[torch.Tensor]
    gradients: Sequence[Any]
    returned: Any
    storages: frozenset[int]
    had_gradients: tuple[bool, ...]
    n_arguments: int
    n_results: int
    names: Counter[str]
    start_counts: Mapping[tuple[Any, ...], int]

    @property
    def declared(self) -> set[tuple[int, str]]:
        """Numbers that are read in every step: identities of parameter groups, and keys."""
        updates = [entry for entry in self.entries if isinstance(entry, UpdateEntry)]
        sources = [source for entry in updates for source in entry.sources.values()]
        return {(id(group), key) for group, key, _ in sources}

    def has_other_numbers(self, later: StepTape | None = None) -> bool:
        """Whether numbers of parameter groups are others now, or in a later step."""
        updates = [entry for entry in self.entries if isinstance(entry, UpdateEntry)]
        if later is None:
            return any(entry.numbers() != entry.options for entry in updates)
        others = [entry for entry in later.entries if isinstance(entry, UpdateEntry)]
        return [x.options for x in updates] != [x.options for x in others]

    def uncomputed(self) -> Counter[str]:
        """How often each overload gives a view or a name."""
        operations = [entry for entry in self.entries if isinstance(entry, OperationEntry)]
        return self.names + Counter(str(entry.overload) for entry in operations if entry.is_view)


def filled(template: Any, value_of: Callable[[Slot], Any]) -> Any:
    """A structure with values in the places of slots.

    >>> filled((Slot("result", 0), [2.0]), lambda slot: slot.number)
    (0, [2.0])
    """
    if isinstance(template, Slot):
        return value_of(template)
    if isinstance(template, (list, tuple)):
        items = [filled(item, value_of) for item in template]
        return items if isinstance(template, list) else tuple(items)
    if isinstance(template, dict):
        return {name: filled(item, value_of) for name, item in template.items()}
    return template


def slots_of(template: Any) -> list[Slot]:
    """The slots in a structure, in order."""
    if isinstance(template, Slot):
        return [template]
    if isinstance(template, (list, tuple)):
        return [slot for item in template for slot in slots_of(item)]
    if isinstance(template, dict):
        return [slot for item in template.values() for slot in slots_of(item)]
    return []


# Two tapes --------------------------------------------------------------------------------------


def difference(first: StepTape, second: StepTape) -> str:
    """What is not the same in two steps, as a sentence; "" where one replays the other."""
    for i, (one, other) in enumerate(zip(first.entries, second.entries, strict=False)):
        if words := _difference_of_entries(one, other):
            return f"operation {i} {words}"
    if len(first.entries) != len(second.entries):
        return f"one step has {len(first.entries)} operations, the next {len(second.entries)}"
    for call, next_call in zip(first.calls, second.calls, strict=False):
        if not _is_same_place(call, next_call):
            return (
                f"{call.operation} stands at {call[1:]} in one step, at {next_call[1:]} in the next"
            )
    if len(first.calls) != len(second.calls):
        return "operations stand at other places in the next step"
    for tensor, next_tensor in zip(first.outside, second.outside, strict=False):
        if not _is_same_outside(tensor, next_tensor):
            shape = list(tensor.tensor.shape)
            return (
                f"a tensor of shape {shape} that the step reads is another one in the next step; "
                "give it as an argument"
            )
    return _difference_of_ends(first, second)


def _is_same_place(one: CalledPlace, other: CalledPlace) -> bool:
    """Whether a replay takes one for the other: an update counts its draws itself."""
    return one[:3] == other[:3] and (one.k == other.k or one.where.direction == "optimizer")


def _difference_of_ends(first: StepTape, second: StepTape) -> str:
    """Of what two steps begin with and leave behind."""
    pairs: tuple[tuple[Any, Any, str], ...] = (
        (first.gradients, second.gradients, "gradients that it leaves"),
        (first.returned, second.returned, "result"),
        (first.start_counts, second.start_counts, "operations before"),
        (first.had_gradients, second.had_gradients, "gradients before"),
    )
    for one, other, what in pairs:
        if not _is_equal(one, other):
            return f"the {what} of the step are others in the next step: {one} and {other}"
    is_same = len(first.leaves) == len(second.leaves) and all(
        one is other for one, other in zip(first.leaves, second.leaves, strict=True)
    )
    return "" if is_same else "the step has other parameters in the next step"


def _difference_of_entries(one: Entry, other: Entry) -> str:
    if type(one) is not type(other):
        return f"is {_title(one)} in one step, {_title(other)} in the next"
    if isinstance(one, OperationEntry) and isinstance(other, OperationEntry):
        if one.overload is not other.overload:
            return f"is {one.overload} in one step, {other.overload} in the next"
        for i, (x, y) in enumerate(zip(one.args, other.args, strict=False)):
            if not _is_equal(x, y):
                return f"({one.overload}) has argument {i} = {x} in one step, {y} in the next"
    if isinstance(one, UpdateEntry) and isinstance(other, UpdateEntry) and one.name == other.name:
        for name, x in one.options.items():
            if name not in one.sources and not _is_equal(x, other.options.get(name)):
                return (
                    f"(torch.optim.{one.name}) has {name} = {x} in one step, "
                    f"{other.options.get(name)} in the next, which is in no parameter group"
                )
        is_same = one.lists == other.lists and one.sources.keys() == other.sources.keys()
        return "" if is_same else f"(torch.optim.{one.name}) updates other tensors in the next step"
    if not _is_equal(one, other):
        return f"({_title(one)}) is another one in the next step"
    return ""


def _title(entry: Entry) -> str:
    if isinstance(entry, OperationEntry):
        return str(entry.overload)
    return entry.kind if isinstance(entry, EventEntry) else f"torch.optim.{entry.name}"


def _is_equal(one: Any, other: Any) -> bool:
    """Whether structures have the same slots and the same constants, by value and kind."""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, OperationEntry):
        return _is_equal(
            (one.overload, one.args, one.kwargs, one.result, one.is_copied, one.is_update),
            (other.overload, other.args, other.kwargs, other.result, other.is_copied,
             other.is_update),
        )
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(_is_equal, one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_is_equal(one[k], other[k]) for k in one)
    if isinstance(one, (float, complex)):
        return repr(one) == repr(other)  # the text tells -0.0 from 0.0
    if isinstance(one, (int, str, bytes, torch.dtype, torch.device, torch.layout)):
        return bool(one == other)
    return False


def _is_same_outside(one: OutsideTensor, other: OutsideTensor) -> bool:
    if one.tensor is other.tensor:
        return True
    if not (one.is_constant and other.is_constant) or one.facts[:3] != other.facts[:3]:
        return False
    with _disable_current_modes():
        return bool(one.tensor.numpy().tobytes() == other.tensor.numpy().tobytes())
