"""Cells of recurrent layers: what a step of time computes from its gates, each in one call.

The order of the operations is that of a program which is written in single ones: torch's, whose
backward pass asks for the gradient of a product's second factor first.

Source    PyTorch 2.13, aten/src/ATen/native/RNN.cpp (LSTMCell).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from fpsim.array import Array
from fpsim.records.types import Carrier
from ipu.machine.device import Device
from ipu.ops.activations import sigmoid, tanh
from ipu.ops.in_one_call import in_one_call

__all__ = ["lstm_cell", "lstm_cell_gradients", "side_by_side"]


@in_one_call
def lstm_cell(
    device: Device, i: Array, f: Array, g: Array, o: Array, cell: Array
) -> tuple[Array, ...]:
    """Hidden state and cell behind a step; then gates i, f, g, o and tanh of that cell.

    i, f, g, o    sums of the gates, which pass through sigmoid, sigmoid, tanh and sigmoid.

    >>> from fpsim import BINARY16
    >>> device = Device()
    >>> zero, one = (device.from_host([x], BINARY16) for x in (0.0, 1.0))
    >>> lstm_cell(device, zero, zero, zero, zero, one)[1].values.tolist()
    [0.5]
    """
    i, f = sigmoid.value(device, i), sigmoid.value(device, f)
    g, o = tanh.value(device, g), sigmoid.value(device, o)
    after = device.add(device.multiply(f, cell), device.multiply(i, g))
    bent = tanh.value(device, after)
    return device.multiply(o, bent), after, i, f, g, o, bent


@in_one_call
def lstm_cell_gradients(
    device: Device, hidden: Array, after: Array | None, gates: tuple[Array, ...], bent: Array,
    cell: Array, *, to_before: bool = True,
) -> tuple[Array, ...]:
    """Gradients of the sums of the gates i, f, g, o, and of the cell before the step.

    hidden, after    gradients of the hidden state and of the cell behind the step, if that has one.
    to_before        whether the cell before the step wants a gradient; there is none else.
    gates, bent      what `lstm_cell` gave.
    cell             before the step.
    """
    i, f, g, o = gates
    of_bent, of_o = device.multiply(hidden, o), device.multiply(hidden, bent)
    total = tanh.pull(0, device, of_bent, (bent,))
    if after is not None:
        total = device.add(after, total)
    of_g, of_i = device.multiply(total, i), device.multiply(total, g)
    before = (device.multiply(total, f),) if to_before else ()
    of_f = device.multiply(total, cell)
    slope_o, slope_g = sigmoid.pull(0, device, of_o, (o,)), tanh.pull(0, device, of_g, (g,))
    slope_f, slope_i = sigmoid.pull(0, device, of_f, (f,)), sigmoid.pull(0, device, of_i, (i,))
    return slope_i, slope_f, slope_g, slope_o, *before


def side_by_side(device: Device, arrays: Sequence[Array]) -> Array:
    """Matrices of one format in a row, as sums of gates stand."""
    carriers = [x.carrier for x in arrays]
    joined: Carrier = np.concatenate(carriers, 1)
    if device.notes is not None:
        device.notes.note(carriers, (joined,), partial(_joined_again, carriers, joined))
    return arrays[0].like(joined)


def _joined_again(
    carriers: Sequence[Carrier], joined: Carrier, *_: NDArray[np.uint64] | int
) -> bool:
    np.concatenate(carriers, 1, out=joined)
    return True
