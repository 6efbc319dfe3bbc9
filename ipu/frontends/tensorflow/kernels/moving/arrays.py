"""Constants, casts, and values that pass as they are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from fpsim.array import Array
from fpsim.records.formats import BINARY32
from ipu import ops
from ipu.frontends.tensorflow.engine.scaling import factor_of
from ipu.frontends.tensorflow.engine.values import FORMATS, enter, leave, numbers
from ipu.frontends.tensorflow.kernels.table import NodeSite, Run, kernel
from ipu.run.account import fit

__all__ = ["constant_value"]

_NONE = "none"


@kernel("Identity", "StopGradient", "PreventGradient", "Snapshot", "CheckNumerics",
        rounding=_NONE, is_any=True, keeps=True)
def _identity(site: NodeSite) -> Run:
    return lambda x: x


@kernel("IdentityN", rounding=_NONE, is_any=True, keeps=True)
def _identity_n(site: NodeSite) -> Run:
    return lambda *values: values if len(values) > 1 else values[0]


@kernel("NoOp", rounding=_NONE, is_any=True)
def _no_op(site: NodeSite) -> Run:
    return lambda: ()


@kernel("Const", rounding="to nearest on the host", is_any=True)
def _const(site: NodeSite) -> Run:
    value, fmt = constant_value(site), site.fmt
    if fmt is None:
        return lambda: value
    if factor_of(site.node, 1.0) is not None and value.dtype.itemsize == BINARY32.bits // 8:
        fmt = BINARY32  # whatever the policy says
    array = enter(site.device, value, fmt)
    for number, change in _changes(value, array):
        site.note_constant(fmt, number, change, None if array.ndim else array)
    return lambda: array


def constant_value(site: NodeSite) -> NDArray[Any]:
    """The numbers of a constant, with the changes of the program from outside."""
    value: NDArray[Any] = tf.make_ndarray(site.attr("value"))
    if site.fmt is None or value.ndim:
        return value
    factor = factor_of(site.node, site.machine.loss_scale)
    number = _replaced(site, float(value)) if factor is None else factor
    with np.errstate(over="ignore"):  # a scale beyond the largest number of a half
        return np.asarray(number, value.dtype)


def _replaced(site: NodeSite, value: float) -> float:
    """A number of the program, or the one that a change of it from outside puts in its place."""
    changes = site.run.options.changes
    if changes.eps is not None and site.is_update and _is_eps(site.node.outputs[0]):
        return changes.eps
    for old, new in changes.constants:
        if value in (old, float(np.float32(old))):
            return new
    return value


def _is_eps(tensor: Any) -> bool:
    """Whether an optimiser adds a number to a square root; that of an update is its kernel's."""
    for op in tensor.consumers():
        if op.type in ("Cast", "Identity") and _is_eps(op.outputs[0]):
            return True
        if op.type in ("Add", "AddV2") and any(x.op.type == "Sqrt" for x in op.inputs):
            return True
    return False


def _changes(values: Any, array: Array) -> Iterator[tuple[float, str]]:
    """Numbers that the format does not hold, the first of each kind; of arrays no factors of 1."""
    wide = np.ravel(np.asarray(values, np.float64))
    rounded = np.ravel(np.asarray(array.carrier, np.float64))
    is_suspect = (wide != 0) & (np.abs(rounded) < array.format.smallest_normal)
    is_suspect |= np.abs(wide) > array.format.max
    if not array.ndim:
        is_suspect[:] = True
    told: set[str] = set()
    for i in np.flatnonzero(is_suspect):
        change = fit(float(wide[i]), float(rounded[i]), array.format)
        if change and change not in told:
            told.add(change)
            yield float(str(np.ravel(values)[i])), change  # as the program has it


@kernel("Cast", of=ops.cast,
        rounding="once to a narrower format, to nearest from integers, toward zero to them",
        is_any=True, keeps=True)
def _cast(site: NodeSite) -> Run:
    device, target = site.device, site.attr("DstT")
    fmt = site.format_of(target)
    if fmt is not None:

        def to_floats(x: Any) -> Array:
            return ops.cast.value(device, x, dtype=fmt) if isinstance(x, Array) else (
                enter(device, x, fmt))

        return to_floats
    kind = target.as_numpy_dtype

    def to_numbers(x: Any) -> Any:
        if isinstance(x, Array) and np.issubdtype(kind, np.integer):
            return device.to_integers(x.like(np.trunc(x.carrier)), kind)
        return numbers(x).astype(kind)

    return to_numbers


@kernel("Bitcast", rounding=_NONE, is_any=True)
def _bitcast(site: NodeSite) -> Run:
    device, before = site.device, site.node.inputs[0].dtype
    after = site.attr("type")
    fmt = FORMATS.get(after)

    def run(x: Any) -> Array | NDArray[Any]:
        codes = np.ascontiguousarray(leave(x, before)).view(after.as_numpy_dtype)
        return codes if fmt is None else enter(device, codes, fmt)

    return run
