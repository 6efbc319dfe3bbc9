"""Updates of variables by optimisers: names of the rows of `ipu.ops.updates`.

The gradient and the numbers are cast to the variable's format first; each operation rounds once
there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from fpsim.array import Array
from fpsim.records.formats import BINARY32
from ipu.frontends.tensorflow.engine.resources import Variable
from ipu.frontends.tensorflow.kernels.table import NodeSite, Run, kernel, within
from ipu.ops.updates import UPDATES, UpdateRow
from ipu.ops.updates.observed import Observed
from ipu.ops.updates.together import at_once

__all__: list[str] = []

#: Attributes of nodes that choose a form of the equation, and the names that it knows them by.
_FORMS = {
    "use_nesterov": "nesterov", "update_slots": "grows", "multiply_linear_by_lr": "by_rate",
}
_ADAM = {
    "beta1_power": "power1", "beta2_power": "power2", "lr": "rate", "beta1": "beta1",
    "beta2": "beta2", "epsilon": "epsilon", "grad": "g",
}
_RMS_PROP = {"lr": "rate", "rho": "rho", "momentum": "momentum", "epsilon": "epsilon", "grad": "g"}
_MOMENTUM = {"lr": "rate", "grad": "g", "momentum": "momentum"}
_FTRL = {"grad": "g", "lr": "rate", "l1": "l1", "l2": "l2"}
#: Row and inputs of each node, after the variable and its slots: TensorFlow's names and the row's.
NODES: dict[str, tuple[str, dict[str, str]]] = {
    "GradientDescent": ("descent", {"alpha": "rate", "delta": "g"}),
    "Momentum": ("momentum", _MOMENTUM),
    "KerasMomentum": ("keras momentum", _MOMENTUM),
    "Adam": ("adam", _ADAM),
    "AdamWithAmsgrad": ("amsgrad", _ADAM),
    "AdaMax": ("adamax", {k: v for k, v in _ADAM.items() if k != "beta2_power"}),
    "RMSProp": ("rms prop", _RMS_PROP),
    "CenteredRMSProp": ("centred rms prop", _RMS_PROP),
    "Adagrad": ("adagrad", {"lr": "rate", "grad": "g"}),
    "AdagradV2": ("adagrad", {"lr": "rate", "epsilon": "epsilon", "grad": "g"}),
    "Adadelta": ("adadelta", {"lr": "rate", "rho": "rho", "epsilon": "epsilon", "grad": "g"}),
    "Ftrl": ("ftrl", _FTRL | {"lr_power": "power"}),
    "FtrlV2": ("ftrl", _FTRL | {"l2_shrinkage": "shrinkage", "lr_power": "power"}),
}
#: Nodes that update rows of a variable, and where their indices stand among the inputs.
SPARSE = {
    "Momentum": 2, "KerasMomentum": 2, "RMSProp": 5, "CenteredRMSProp": 5, "Adagrad": 2,
    "AdagradV2": 3, "Adadelta": 4, "Ftrl": 1, "FtrlV2": 1,
}


def _row(name: str) -> UpdateRow:
    return UPDATES[f"tensorflow {name}"]


def _update(name: str, inputs: Mapping[str, str]) -> Callable[[NodeSite], Run]:
    """The kernel of a node that updates whole variables."""
    row = _row(name)

    def build(site: NodeSite) -> Run:
        device, attributes = site.device, site.node.op.node_def.attr
        is_wide, eps = site.run.options.changes.wide_states, site.run.options.changes.eps
        forms = {
            option: site.attr(name) for name, option in _FORMS.items() if name in attributes
        }

        def run(w: Variable, *rest: Any) -> tuple[()]:
            slots, values = rest[: len(row.slots)], rest[len(row.slots) :]
            fmt = BINARY32 if is_wide else w.value.format
            named = {n: device.cast(v, fmt) for n, v in zip(inputs.values(), values, strict=True)}
            if eps is not None and "epsilon" in named:
                named["epsilon"] = site.constant(eps, fmt)
            held = tuple(device.cast(slot.value, fmt) for slot in slots)
            g, numbers = named.pop("g"), named | forms
            value = device.cast(w.value, fmt)
            # A variable that is watched is told of the change.
            observed = Observed(change=w.watch is not None)
            after = at_once(row, device, value, g, held, numbers, observed)
            for slot, value in zip(slots, after.slots, strict=True):
                slot.value = value
            w.move(after.value, after.change)
            return ()

        return run

    return build


for _node, (_name, _inputs) in NODES.items():
    kernel(f"ResourceApply{_node}", of=_row(_name), keeps=True)(
        _update(_name, _inputs)
    )


# Updates of rows ----------------------------------------------------------------------------------


class _Rows:
    """Rows of a variable, as a rule for whole variables takes them."""

    def __init__(self, variable: Variable, rows: Any) -> None:
        self._variable, self._rows = variable, rows

    @property
    def value(self) -> Array:
        held = self._variable.value
        rows: Array = held.like(held.carrier[self._rows])
        return rows

    @value.setter
    def value(self, value: Array) -> None:
        carrier = self._variable.value.carrier.copy()
        carrier[self._rows] = value.carrier
        self._variable.value = self._variable.value.like(carrier)

    @property
    def watch(self) -> Callable[[Any, Any, Any], None] | None:
        """Told of sums."""
        return self._variable.watch

    def move(self, value: Array, term: Array | None) -> None:
        """The rows become a value, by adding or subtracting a term."""
        before, self.value = self.value, value
        if self.watch is not None and term is not None:
            self.watch(before, term, value)


def _in_rows(node: str, rule: Callable[[NodeSite], Run], row: UpdateRow, at: int) -> None:
    """The rule for the rows that the input with number `at`, after variables and slots, names."""

    @kernel(node, of=row, keeps=True)
    def build(site: NodeSite) -> Run:
        update = rule(site)

        def run(*values: Any) -> tuple[()]:
            n = 1 + len(row.slots)
            variables, rest = values[:n], list(values[n:])
            rows = within(site, rest.pop(at), len(variables[0].value.carrier))
            if len(np.unique(rows)) != rows.size:
                raise ValueError(
                    f"node {site.node.name} updates a row twice; add its gradients before, as "
                    "TensorFlow's optimisers do"
                )
            update(*(_Rows(variable, rows) for variable in variables), *rest)
            return ()

        return run


for _node, _at in SPARSE.items():
    _name, _inputs = NODES[_node]
    _in_rows(f"ResourceSparseApply{_node}", _update(_name, _inputs), _row(_name), _at)
