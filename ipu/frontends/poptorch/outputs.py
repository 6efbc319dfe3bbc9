"""Inputs and outputs of a call: a batch is cut into micro-batches, their outputs are put together.

Micro-batch m of replica r in device iteration d is number (d·G + m)·R + r of the batch.

Source    Graphcore's PopTorch, user guide (batching; output modes); PopART, StepIO.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch

from ipu.frontends.poptorch.enums import OutputMode

__all__ = ["assemble", "cut", "flatten", "rebuild"]


def flatten(value: Any) -> list[torch.Tensor]:
    """The tensors in tuples, lists and dictionaries."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [x for item in value for x in flatten(item)]
    if isinstance(value, dict):
        return [x for item in value.values() for x in flatten(item)]
    return []


def rebuild(value: Any, change: Callable[[torch.Tensor], Any]) -> Any:
    """The same structure with other tensors."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(rebuild(item, change) for item in value))
    if isinstance(value, (list, tuple)):
        return type(value)(rebuild(item, change) for item in value)
    if isinstance(value, dict):
        return {key: rebuild(item, change) for key, item in value.items()}
    return value


def cut(arguments: Any, parts: int, what: str) -> list[Any]:
    """The arguments of each micro-batch: tensors are cut along their first axis.

    what    of the number of parts, for the error.

    Raises    ValueError for tensors of different lengths, and for one that parts do not divide.
    """
    sizes = {x.shape[0] if x.ndim else 0 for x in flatten(arguments)}
    if not sizes:
        raise ValueError("a model needs an input tensor with a batch axis; got none")
    if len(sizes) > 1 or 0 in sizes:
        raise ValueError(
            f"inputs have batches of {sorted(sizes)} samples; give each tensor the same, one or "
            "more along the first axis"
        )
    (size,) = sizes
    if size % parts:
        raise ValueError(
            f"a batch of {size} samples is no multiple of {parts}, which is {what}; use "
            f"{max(size // parts, 1) * parts} samples, or a poptorch.DataLoader with drop_last=True"
        )
    share = size // parts
    return [rebuild(arguments, partial(_piece, i * share, (i + 1) * share)) for i in range(parts)]


def _piece(first: int, last: int, x: torch.Tensor) -> torch.Tensor:
    """Samples [first, last) of a tensor."""
    return x[first:last]


def assemble(
    outputs: Sequence[Any], mode: OutputMode, period: int, replicas: int,
    add: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
) -> Any:
    """The outputs of a call from those of its micro-batches, in the order of their numbers.

    add    of the device, for Sum; each replica has a sum of its own.

    Shapes    All: every micro-batch along the first axis; EveryN: each period-th; Final and Sum:
              one micro-batch of each replica. Scalars become an axis.
    Raises    ValueError for a period that leaves the last micro-batch out.
    """
    rounds = len(outputs) // replicas
    if mode is OutputMode.Sum:
        return _joined(_sums(outputs, replicas, add))
    if mode is OutputMode.EveryN and rounds % period:
        raise ValueError(
            f"output_return_period={period} does not divide the {rounds} batches of a call; use a "
            "divisor of deviceIterations · gradientAccumulation"
        )
    step = {OutputMode.All: 1, OutputMode.Final: rounds, OutputMode.EveryN: period}[mode]
    returned = [
        output for i in range(step - 1, rounds, step)
        for output in outputs[i * replicas : (i + 1) * replicas]
    ]
    return _joined(returned)


def _sums(outputs: Sequence[Any], replicas: int, add: Callable[..., torch.Tensor]) -> list[Any]:
    totals = list(outputs[:replicas])
    for number, output in enumerate(outputs[replicas:]):
        sums = iter(map(add, flatten(totals[number % replicas]), flatten(output)))
        totals[number % replicas] = rebuild(output, partial(_next, sums))
    return totals


def _next(tensors: Iterator[torch.Tensor], _: torch.Tensor) -> torch.Tensor:
    return next(tensors)


def _joined(rows: Sequence[Any]) -> Any:
    """Outputs of micro-batches along the first axis."""
    columns = zip(*(flatten(row) for row in rows), strict=True)
    joined = iter([torch.cat([x if x.ndim else x[None] for x in column]) for column in columns])
    return rebuild(rows[0], partial(_next, joined))
