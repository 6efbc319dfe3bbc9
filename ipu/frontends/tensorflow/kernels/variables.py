"""Variables: reads, assignments, in-place sums."""

from __future__ import annotations

from typing import Any

import numpy as np

from fpsim.array import Array
from ipu.frontends.tensorflow.engine.resources import Variable
from ipu.frontends.tensorflow.kernels.table import Run, Site, kernel

__all__: list[str] = []


@kernel("ReadVariableOp", rounding="none", is_any=True, keeps=True)
def _read(site: Site) -> Run:
    return lambda variable: variable.value


@kernel("AssignVariableOp", rounding="none; a cast where the variable's format is another",
        is_any=True, keeps=True)  # fmt: skip
def _assign(site: Site) -> Run:
    def run(variable: Variable, value: Any) -> tuple[()]:
        variable.value = value
        return ()

    return run


def _in_place(node: str, verb: str) -> None:
    @kernel(node, rounding="once", is_any=True, keeps=True)
    def build(site: Site) -> Run:
        compute = getattr(site.device, verb)
        exact = getattr(np, verb)

        def run(variable: Variable, value: Any) -> tuple[()]:
            held = variable.value
            if isinstance(held, Array):
                variable.change(compute, site.device.cast(value, held.format))
            else:
                variable.value = exact(held, value)
            return ()

        return run


_in_place("AssignAddVariableOp", "add")
_in_place("AssignSubVariableOp", "subtract")
