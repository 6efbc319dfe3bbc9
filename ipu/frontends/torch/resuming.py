"""Resuming: what a session adds to the state of an optimiser, so that another one goes on from it.

Random bits depend on the number of the step, and float32 tensors of an optimiser hold formats of
the policy; a program's own checkpoint knows neither. Inside a session `state_dict()` of an
optimiser has one entry more, `fpsim`, of numbers and texts alone, and `load_state_dict()` reads it.
torch itself ignores the entry: a checkpoint loads without a session, and with `weights_only=True`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from typing import Any

import torch

from fpsim.records.formats import Format
from ipu.frontends.torch.values import Memory

__all__ = ["KEY", "check_step", "formats_of_state", "mark_state", "resuming"]

#: The entry in the state of an optimiser.
KEY = "fpsim"


@contextmanager
def resuming(
    note: Callable[[torch.optim.Optimizer], dict[str, Any]],
    go_on: Callable[[torch.optim.Optimizer, Mapping[str, Any]], None],
) -> Iterator[None]:
    """States of optimisers inside have the entry of a session.

    note     the entry of an optimiser's state; {} for none.
    go_on    called with an optimiser that has loaded a state, and its entry.
    """
    optimiser = torch.optim.Optimizer
    state_dict, load_state_dict = optimiser.state_dict, optimiser.load_state_dict

    @wraps(state_dict)
    def with_entry(self: Any) -> Any:
        state, entry = state_dict(self), note(self)
        return {**state, KEY: entry} if entry else state

    @wraps(load_state_dict)
    def with_session(self: Any, state: Any) -> None:
        load_state_dict(self, state)
        entry = state.get(KEY)
        if isinstance(entry, Mapping):
            go_on(self, entry)

    optimiser.state_dict, optimiser.load_state_dict = with_entry, with_session
    try:
        yield
    finally:
        optimiser.state_dict, optimiser.load_state_dict = state_dict, load_state_dict


def check_step(step: Any) -> int:
    """The number of a step.

    Raises    TypeError for what is no whole number, ValueError for a negative one.
    """
    if isinstance(step, bool) or not isinstance(step, int):
        raise TypeError(f"step={step!r} is no number of a step; use a whole number, 0 or more")
    if step < 0:
        raise ValueError(f"step={step} is no number of a step; use 0 or more")
    return step


def _tensors(optimiser: torch.optim.Optimizer) -> Iterator[tuple[str, torch.Tensor]]:
    """Tensors of an optimiser's state: the number of the parameter and the name, the tensor."""
    parameters = [p for group in optimiser.param_groups for p in group["params"]]
    for i, parameter in enumerate(parameters):
        for name, value in optimiser.state.get(parameter, {}).items():
            if isinstance(value, torch.Tensor):
                yield f"{i}.{name}", value


def formats_of_state(optimiser: torch.optim.Optimizer, memory: Memory) -> dict[str, str]:
    """Names of the formats that float32 tensors of an optimiser's state hold."""
    held = {key: memory.format_of(x) for key, x in _tensors(optimiser) if x.dtype == torch.float32}
    return {key: fmt.name for key, fmt in held.items() if fmt is not None}


def mark_state(
    optimiser: torch.optim.Optimizer, memory: Memory, names: Mapping[str, str],
    formats: Iterable[Format],
) -> None:
    """Tensors of an optimiser's state hold these formats, of which the session knows some."""
    by_name = {fmt.name: fmt for fmt in formats}
    for key, x in _tensors(optimiser):
        fmt = by_name.get(names.get(key, ""))
        if fmt is not None:
            memory.mark(x, fmt)
