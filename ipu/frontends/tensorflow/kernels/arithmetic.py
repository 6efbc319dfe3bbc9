"""Arithmetic, powers and functions, element by element: names of rows; comparisons."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce
from typing import Any

import numpy as np
import tensorflow as tf

from ipu import ops
from ipu.frontends.tensorflow.engine.values import as_read
from ipu.frontends.tensorflow.kernels.moving.lists import add_lists
from ipu.frontends.tensorflow.kernels.rows import gradients, values
from ipu.frontends.tensorflow.kernels.table import NodeSite, Run, kernel

__all__: list[str] = []

values({
    "AddV2": ops.add, "Add": ops.add, "Sub": ops.subtract, "Mul": ops.multiply,
    "RealDiv": ops.divide, "Div": ops.divide, "Maximum": ops.maximum, "Minimum": ops.minimum,
    "Sqrt": ops.sqrt, "Rsqrt": ops.rsqrt, "Exp": ops.exp, "Log": ops.log, "Tanh": ops.tanh,
    "Sigmoid": ops.sigmoid, "Erf": ops.erf, "Neg": ops.negative, "Abs": ops.absolute,
    "Sign": ops.sign, "Floor": ops.floor, "Ceil": ops.ceil, "Rint": ops.rint, "Round": ops.rint,
    "FloorDiv": ops.floor_divide, "Square": ops.square,
    "SquaredDifference": ops.squared_difference, "Reciprocal": ops.reciprocal,
    "Inv": ops.reciprocal, "DivNoNan": ops.divide_no_nan, "MulNoNan": ops.multiply_no_nan,
    "Xdivy": ops.xdivy, "Xlogy": ops.xlogy, "Xlog1py": ops.xlog1py, "Pow": ops.power,
    "Log1p": ops.log1p, "Expm1": ops.expm1,
})
gradients({
    "SqrtGrad": ops.sqrt, "RsqrtGrad": ops.rsqrt, "ReciprocalGrad": ops.reciprocal,
    "InvGrad": ops.reciprocal,
}, saved_first=True)


@kernel("ClipByValue", of=ops.clamp)
def _clip(site: NodeSite) -> Run:
    device = site.device
    return lambda x, low, high: ops.clamp.value(device, x, low=low, high=high)


@kernel("AddN", of=ops.add, rounding="each addition, in the order of the inputs", is_any=True)
def _add_n(site: NodeSite) -> Run:
    if site.node.outputs[0].dtype == tf.variant:
        return lambda *terms: add_lists(site, terms)
    kind = site.node.outputs[0].dtype
    if site.fmt is None and not kind.is_integer:
        raise NotImplementedError(f"node {site.node.name} adds {kind.name}, which no format holds")
    add = np.add if site.fmt is None else partial(ops.add.value, site.device)
    return lambda *terms: reduce(add, terms)


# Comparisons --------------------------------------------------------------------------------------


def _comparison(node: str, compare: Any) -> None:
    @kernel(node, rounding="none")
    def build(site: NodeSite) -> Run:
        device = site.device
        return lambda x, y: compare(as_read(device, x), as_read(device, y))


for _node, _compare in (
    ("Less", np.less), ("LessEqual", np.less_equal), ("Greater", np.greater),
    ("GreaterEqual", np.greater_equal), ("Equal", np.equal), ("NotEqual", np.not_equal),
):
    _comparison(_node, _compare)


def _test(node: str, test: Any) -> None:
    @kernel(node, rounding="none")
    def build(site: NodeSite) -> Run:
        return lambda x: test(x.carrier)


_test("IsNan", np.isnan)


def _of_gradients(node: str, test: Callable[[Any], Any], *, shows: bool) -> None:
    """A test for infinities: what a loss scaler asks of gradients.

    shows    what the test says where the status register has an overflow.
    """

    @kernel(node, rounding="none")
    def build(site: NodeSite) -> Run:
        if not _hides_overflow(site):
            return lambda x: test(x.carrier)
        machine = site.machine
        return lambda x: np.where(machine.has_overflown, shows, test(x.carrier))


def _hides_overflow(site: NodeSite) -> bool:
    """Whether a test of gradients has to ask the status register, since overflow saturates.

    The formats are those in which the program's gradients are computed: weights of binary32 get
    gradients of binary32 that were cast from others.

    Source    docs/semantics.md §6 (schemes that react to non-finite gradients).
    """
    if site.direction not in ("backward", "optimizer"):
        return False
    saturating = [
        fmt for fmt in site.gradients
        if site.device.context(fmt).core.settings.overflow == "saturate"
    ]
    if saturating and site.found_inf != "status":
        raise RuntimeError(
            f"node {site.node.name} looks for infinities in gradients, and overflow in "
            f"{saturating[0]} saturates here; set floating_point_behaviour.nanoo = True, or ask "
            "for the status register with --found-inf status"
        )
    site.run.account.asks_status |= bool(saturating)
    return bool(saturating)


_of_gradients("IsFinite", np.isfinite, shows=False)
_of_gradients("IsInf", np.isinf, shows=True)
