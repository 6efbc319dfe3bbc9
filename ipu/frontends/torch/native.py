"""Native operations: torch's own kernels compute what the machine would, in the same session.

Layers, directions, steps and names are those of a run on the machine, so that both are compared
operation by operation. Whole kernels are cut as there (attention, lists of tensors, fused updates),
which is torch's own mathematics in more calls; values are in the formats of the tensors' types.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch

from fpsim.array import Array
from fpsim.records.formats import BINARY32
from ipu.frontends.torch.aten import Call
from ipu.frontends.torch.observing import host_values
from ipu.frontends.torch.values import FORMATS, Memory, is_abstract

__all__ = ["native_plan"]


class NativeSession(Protocol):
    """What a native operation asks of a session."""

    memory: Memory

    def call(self, operation: str) -> Call: ...
    def scale_updated(self) -> None: ...


def native_plan(
    program: NativeSession, func: Any, operation: str
) -> Callable[[tuple[Any, ...], dict[str, Any]], Any]:
    """How an overload runs by torch's own kernel: its results are told as those of the machine.

    Under a perturbation they are moved in place.
    """
    base = func._schema.name.partition("::")[2]

    def run(args: Any, kwargs: Any) -> Any:
        program.call(operation)
        result = func(*args, **kwargs)
        results = result if isinstance(result, (tuple, list)) else (result,)
        for x in results:
            if isinstance(x, torch.Tensor) and not is_abstract(x):
                _tell(program.memory, x)
        if base == "_amp_update_scale_":
            program.scale_updated()
        return result

    return run


def _tell(memory: Memory, x: torch.Tensor) -> None:
    """A result is known to those who watch; of a type with a format of the machine."""
    fmt = BINARY32 if x.dtype is torch.float32 else FORMATS.get(x.dtype)
    if fmt is None:
        return
    values = host_values(x)
    if memory.alter is not None:
        values = memory.alter(values, fmt)
        x.detach().copy_(torch.from_numpy(values))
    if memory.watch is not None:
        memory.watch(Array(values.copy(), memory.context(fmt)), ())
