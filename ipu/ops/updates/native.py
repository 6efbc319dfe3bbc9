"""Updates that `ipu.learn` has beside those of frameworks.

sgd      TensorFlow's steps with what torch adds to them.
adamw    PopART's equation, whose corrections are computed on the machine.

Source    TensorFlow, compiler/tf2xla/kernels/training_ops.cc (the steps of sgd); PyTorch,
          torch/optim/sgd.py (weight_decay, dampening, maximize and the order in which they act);
          PopART, accumulatex.cpp (moments) and adamupdaterx.cpp (update).
"""

from __future__ import annotations

from fpsim.array import Array
from ipu.machine.device import Device
from ipu.ops.updates.row import Number, Slots, Updated, UpdateRow
from ipu.ops.updates.tensorflow import lowered, velocity_step

__all__ = ["ROWS"]


def _sgd(
    device: Device, w: Array, g: Array, slots: Slots, *, rate: float, momentum: float,
    nesterov: bool, weight_decay: float, dampening: float, maximize: bool,
) -> Updated:
    if maximize:
        g = device.negative(g)
    if weight_decay:
        g = device.add(g, device.multiply(w, weight_decay))
    v = g
    after: tuple[Array, ...] = ()
    if momentum:
        if slots:
            fresh = device.multiply(g, 1 - dampening) if dampening else g
            v = device.multiply(slots[0], momentum)
            device.add(v, fresh, out=v)
        after = (v,)
    change = velocity_step(device, g, v, rate, momentum, nesterov=nesterov)
    return lowered(device, w, change, after, v)


def _adamw(
    device: Device, w: Array, g: Array, slots: Slots, *, rate: float, beta1: float, beta2: float,
    epsilon: float, weight_decay: float, left1: Number, left2: Number,
) -> Updated:
    """left1 and left2 are what is left to one of the powers of the betas."""
    m, v = slots
    fresh = device.multiply(g, 1 - beta1)
    m = device.add(device.multiply(m, beta1), fresh)
    fresh = device.multiply(device.multiply(g, 1 - beta2), g)
    v = device.add(device.multiply(v, beta2), fresh)
    root = device.add(device.sqrt(device.divide(v, left2)), epsilon)
    u = device.divide(device.divide(m, left1), root)
    if weight_decay:
        u = device.add(u, device.multiply(w, weight_decay))
    return lowered(device, w, device.multiply(u, rate), (m, v), u)


#: Equations of `ipu.learn.optim` that no single source has.
ROWS = (
    UpdateRow(
        "native sgd", _sgd, ("momentum",), "-g; g + w·decay; v·momentum + g·(1 - dampening) from "
        "the second step on; as tensorflow momentum",
        "TensorFlow, compiler/tf2xla/kernels/training_ops.cc, ResourceApplyMomentum; PyTorch, "
        "torch/optim/sgd.py",
    ),
    UpdateRow(
        "native adamw", _adamw, ("m", "v"), "m·b1 + g·(1 - b1); v·b2 + (g·(1 - b2))·g; √(v / left2)"
        " + ε; m / left1 / it; + w·decay; times rate",
        "PopART, accumulatex.cpp, adamupdaterx.cpp",
    ),
)
