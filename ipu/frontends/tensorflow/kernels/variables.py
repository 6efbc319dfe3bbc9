"""Variables: reads, assignments, in-place sums."""

from __future__ import annotations

from typing import Any

import numpy as np

from fpsim.array import Array
from ipu import ops
from ipu.frontends.tensorflow.engine.resources import Variable
from ipu.frontends.tensorflow.kernels.table import NodeSite, Run, kernel, within
from ipu.ops.primitive import Primitive
from ipu.run.updates import term_of_rows

__all__: list[str] = []


@kernel("ReadVariableOp", rounding="none", is_any=True, keeps=True)
def _read(site: NodeSite) -> Run:
    return lambda variable: variable.value


@kernel("AssignVariableOp", rounding="none; a cast where the variable's format is another",
        is_any=True, keeps=True)
def _assign(site: NodeSite) -> Run:
    def run(variable: Variable, value: Any) -> tuple[()]:
        variable.value = value
        return ()

    return run


@kernel("VariableShape", rounding="none", is_any=True)
def _shape(site: NodeSite) -> Run:
    kind = site.attr("out_type").as_numpy_dtype
    return lambda variable: np.array(variable.value.shape, kind)


def _in_place(node: str, verb: str) -> None:
    @kernel(node, rounding="once", is_any=True, keeps=True)
    def build(site: NodeSite) -> Run:
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


# Rows ---------------------------------------------------------------------------------------------


def _in_rows(node: str, row: Primitive) -> None:
    @kernel(node, of=row, keeps=True)
    def build(site: NodeSite) -> Run:
        device = site.device

        def run(variable: Variable, rows: Any, updates: Array) -> tuple[()]:
            rows = within(site, rows, variable.value.shape[0]).reshape(-1)

            held = variable.value
            terms = device.cast(updates, held.format).reshape(len(rows), *held.shape[1:])
            after = row.value(device, held, terms, rows=rows)
            told = None
            if variable.watch is not None:
                told = held.like(term_of_rows(held.shape, rows, terms.carrier))
            variable.move(after, told)
            return ()

        return run


_in_rows("ResourceScatterAdd", ops.scatter_add)
_in_rows("ResourceScatterSub", ops.scatter_subtract)
_in_rows("ResourceScatterMul", ops.scatter_multiply)
_in_rows("ResourceScatterMax", ops.scatter_max)
_in_rows("ResourceScatterMin", ops.scatter_min)


@kernel("ResourceScatterUpdate", rounding="none; a cast where the variable's format is another",
        keeps=True)
def _update_rows(site: NodeSite) -> Run:
    def run(variable: Variable, rows: Any, updates: Array) -> tuple[()]:
        held = variable.value
        value = site.device.cast(updates, held.format).carrier
        changed = held.carrier.copy()
        at = within(site, rows, len(changed))
        changed[at] = value
        variable.value = held.like(changed)
        return ()

    return run
