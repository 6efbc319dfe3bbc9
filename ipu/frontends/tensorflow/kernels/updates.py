"""Updates of variables by optimisers, as the rules of `ipu.learn.optim` compute them.

The gradient is cast to the variable's format first; each operation rounds once there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fpsim.array import Array
from ipu.frontends.tensorflow.engine.resources import Variable
from ipu.frontends.tensorflow.kernels.table import Run, Site, kernel, within
from ipu.machine.device import Device

__all__: list[str] = []


def _operands(device: Device, variable: Variable, *values: Array) -> list[Array]:
    """Values in the variable's format."""
    fmt = variable.value.format
    return [device.cast(value, fmt) for value in values]


@kernel("ResourceApplyGradientDescent", rounding="g·rate, the difference", keeps=True)
def _descent(site: Site) -> Run:
    device = site.device

    def run(variable: Variable, rate: Array, gradient: Array) -> tuple[()]:
        step, g = _operands(device, variable, rate, gradient)
        variable.change(device.subtract, device.multiply(g, step))
        return ()

    return run


@kernel("ResourceApplyMomentum", rounding="v·momentum, v + g, v·rate, the difference", keeps=True)
def _momentum(site: Site) -> Run:
    """With Nesterov: v·momentum·rate is added to g·rate before the difference."""
    device, nesterov = site.device, site.attr("use_nesterov")

    def run(w: Variable, slot: Variable, rate: Array, gradient: Array, m: Array) -> tuple[()]:
        rate, g, m = _operands(device, w, rate, gradient, m)
        v = slot.value = device.add(device.multiply(slot.value, m), g)
        change = device.multiply(v, rate)
        if nesterov:
            ahead = device.multiply(device.multiply(v, m), rate)
            change = device.add(device.multiply(g, rate), ahead)
        w.change(device.subtract, change)
        return ()

    return run


@kernel("ResourceApplyKerasMomentum", rounding="v·momentum, g·rate, the difference, the sum",
        keeps=True)  # fmt: skip
def _keras_momentum(site: Site) -> Run:
    device, nesterov = site.device, site.attr("use_nesterov")

    def run(w: Variable, slot: Variable, rate: Array, gradient: Array, m: Array) -> tuple[()]:
        rate, g, m = _operands(device, w, rate, gradient, m)
        step = device.multiply(g, rate)
        v = slot.value = device.subtract(device.multiply(slot.value, m), step)
        change = device.subtract(device.multiply(v, m), step) if nesterov else v
        w.change(device.add, change)
        return ()

    return run


@kernel("ResourceApplyAdam", rounding="each operation, in the order of ipu.learn.optim.Adam",
        keeps=True)  # fmt: skip
def _adam(site: Site) -> Run:
    device, nesterov = site.device, site.attr("use_nesterov")

    def run(w: Variable, m: Variable, v: Variable, *values: Array) -> tuple[()]:
        power1, power2, rate, beta1, beta2, epsilon, g = _operands(device, w, *values)
        one = device.context(g.format).constant(1.0)
        rest1, rest2, left1, left2 = (
            device.subtract(one, each) for each in (beta1, beta2, power1, power2)
        )
        alpha = device.divide(device.multiply(device.sqrt(left2), rate), left1)
        m.value = device.add(m.value, device.multiply(device.subtract(g, m.value), rest1))
        square = device.multiply(g, g)
        v.value = device.add(v.value, device.multiply(device.subtract(square, v.value), rest2))
        root = device.add(device.sqrt(v.value), epsilon)
        first = m.value
        if nesterov:
            first = device.add(device.multiply(first, beta1), device.multiply(g, rest1))
        change = device.divide(device.multiply(first, alpha), root)
        w.change(device.subtract, change)
        return ()

    return run


@kernel("ResourceApplyRMSProp", rounding="each operation, in the order written", keeps=True)
def _rms_prop(site: Site) -> Run:
    """ms += (g² - ms)(1 - rho); mom = mom·momentum + g·rate / sqrt(ms + epsilon); w -= mom."""
    device = site.device

    def run(w: Variable, ms: Variable, slot: Variable, *values: Array) -> tuple[()]:
        rate, rho, momentum, epsilon, g = _operands(device, w, *values)
        rest = device.subtract(device.context(g.format).constant(1.0), rho)
        square = device.multiply(g, g)
        ms.value = device.add(ms.value, device.multiply(device.subtract(square, ms.value), rest))
        root = device.sqrt(device.add(ms.value, epsilon))
        step = device.divide(device.multiply(g, rate), root)
        slot.value = device.add(device.multiply(slot.value, momentum), step)
        w.change(device.subtract, slot.value)
        return ()

    return run


def _root(device: Device, total: Variable, gradient: Array) -> Array:
    """Of the sum of squares, the gradient's among them."""
    total.value = device.add(total.value, device.multiply(gradient, gradient))
    return device.sqrt(total.value)


@kernel("ResourceApplyAdagrad", rounding="g², the sum, its root, g·rate, the quotient, the change",
        keeps=True)  # fmt: skip
def _adagrad(site: Site) -> Run:
    device = site.device

    def run(w: Variable, total: Variable, rate: Array, gradient: Array) -> tuple[()]:
        rate, g = _operands(device, w, rate, gradient)
        root = _root(device, total, g)
        w.change(device.subtract, device.divide(device.multiply(g, rate), root))
        return ()

    return run


@kernel("ResourceApplyAdagradV2", rounding="as ResourceApplyAdagrad, epsilon added to the root",
        keeps=True)  # fmt: skip
def _adagrad_v2(site: Site) -> Run:
    device = site.device

    def run(
        w: Variable, total: Variable, rate: Array, epsilon: Array, gradient: Array
    ) -> tuple[()]:
        rate, epsilon, g = _operands(device, w, rate, epsilon, gradient)
        root = device.add(_root(device, total, g), epsilon)
        w.change(device.subtract, device.divide(device.multiply(g, rate), root))
        return ()

    return run


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

    def change(self, verb: Callable[[Any, Any], Any], term: Any) -> None:
        """The rows become a sum or difference of themselves and a term."""
        before = self.value
        self.value = after = verb(before, term)
        if self._variable.watch is not None:
            self._variable.watch(before, term, after)


def _in_rows(node: str, rule: Callable[[Site], Run], slots: int, at: int) -> None:
    """The rule for the rows that the input with number `at`, after variables and slots, names."""

    @kernel(node, rounding="as the update of the whole variable", keeps=True)
    def build(site: Site) -> Run:
        update = rule(site)

        def run(*values: Any) -> tuple[()]:
            variables, rest = values[: 1 + slots], list(values[1 + slots :])
            rows = within(site, rest.pop(at), len(variables[0].value.carrier))
            if len(np.unique(rows)) != rows.size:
                raise ValueError(
                    f"node {site.node.name} updates a row twice; add its gradients before, as "
                    "TensorFlow's optimisers do"
                )
            update(*(_Rows(variable, rows) for variable in variables), *rest)
            return ()

        return run


for _node, _rule, _slots, _at in (
    ("ResourceSparseApplyMomentum", _momentum, 1, 2),
    ("ResourceSparseApplyKerasMomentum", _keras_momentum, 1, 2),
    ("ResourceSparseApplyRMSProp", _rms_prop, 2, 5), ("ResourceSparseApplyAdagrad", _adagrad, 1, 2),
    ("ResourceSparseApplyAdagradV2", _adagrad_v2, 1, 3),
):  # fmt: skip
    _in_rows(_node, _rule, _slots, _at)
