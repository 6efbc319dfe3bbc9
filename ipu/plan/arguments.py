"""What a plan's arguments may be: stages, mappings and offloads, read into one form."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Sequence
from itertools import combinations
from typing import Any

from ipu.plan.schedule import places

__all__ = ["OFFLOADS", "Stage", "read_mapping", "read_offload", "read_stages"]

#: A stage takes the outputs of the one before.
Stage = Callable[..., Any]

#: What can live in remote memory.
OFFLOADS = ("state", "activations", "accumulators", "weights")


def read_stages(stages: Sequence[Stage | Sequence[Stage]]) -> tuple[Any, ...]:
    """Stages as tuples of callables."""
    if callable(stages) or not isinstance(stages, Sequence):
        raise TypeError(f"stages={stages!r} is not a list of callables; use [{stages!r}]")
    if not stages:
        raise ValueError("stages=[] is empty; give one callable for each stage")
    read: list[Any] = []
    for i, position in enumerate(stages):
        group = tuple(position) if isinstance(position, list | tuple) else (position,)
        for run in group:
            if not callable(run):
                raise TypeError(
                    f"stages[{i}] holds {run!r}, which is not callable; use callables, and lists "
                    "of callables for concurrent stages"
                )
        if not group:
            raise ValueError(f"stages[{i}] is empty; give one callable for each concurrent stage")
        _check_arguments(i, group)
        read.append(group if len(group) > 1 else group[0])
    return tuple(read)


def _check_arguments(position: int, group: tuple[Stage, ...]) -> None:
    """Concurrent stages take the same arguments."""
    lists = [names for run in group if (names := _arguments(run)) is not None]
    for one, other in combinations(lists, 2):
        if len(one) != len(other):
            raise ValueError(
                f"stages[{position}]: concurrent stages take other arguments: ({', '.join(one)}) "
                f"and ({', '.join(other)}); every one gets all outputs of the stage before"
            )


def _arguments(run: Stage) -> list[str] | None:
    """Names of the positional arguments, or None when their number is open."""
    try:
        parameters = inspect.signature(run).parameters.values()
    except (TypeError, ValueError):
        return None
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return None
    return [p.name for p in parameters if p.kind is not p.KEYWORD_ONLY and p.default is p.empty]


def read_mapping(mapping: Sequence[Any], positions: Sequence[tuple[Stage, ...]]) -> Any:
    """IPUs as tuples, nested as the stages."""
    read = tuple(tuple(p) if isinstance(p, list | tuple) else p for p in mapping)
    for p in read:
        for ipu in p if isinstance(p, tuple) else (p,):
            if isinstance(ipu, bool) or not isinstance(ipu, int) or ipu < 0:
                raise ValueError(f"mapping={list(mapping)} holds {ipu!r}; use numbers of IPUs, 0 …")
    if len(read) == len(positions):
        for i, (p, runs) in enumerate(zip(places(read), positions, strict=True)):
            if len(p) != len(runs):
                raise ValueError(
                    f"mapping[{i}]={list(p)} has {len(p)} IPUs for {len(runs)} concurrent stages; "
                    "give every one its own"
                )
    return read


def read_offload(offload: Collection[str], remote_buffers: bool) -> frozenset[str]:
    """What is offloaded, when the machine has remote memory for it."""
    if not isinstance(offload, (str, Collection)):
        raise TypeError(
            f"offload={offload!r} names nothing; use a set of {', '.join(OFFLOADS)}, () for "
            "none, or None for the default"
        )
    named = frozenset({offload} if isinstance(offload, str) else offload)
    if unknown := sorted(named - set(OFFLOADS)):
        raise ValueError(f"offload has {', '.join(unknown)}; use some of {', '.join(OFFLOADS)}")
    if named and not remote_buffers:
        raise ValueError(
            f"offload={', '.join(sorted(named))} needs remote buffers, and remote_buffers=False; "
            "use offload=None, or a machine with remote memory"
        )
    return named
