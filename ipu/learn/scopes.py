"""Scopes: what holds inside a block and no longer afterwards, the inner one winning.

`stochastic_rounding` and `partials_type` change the device for the operations inside; the backward
rules of these operations round and accumulate as the operations did (ASSUMED: the frameworks copy
an operation's settings to its gradient). `in_layer` is the scope of one layer: its names and the
formats that its policy gives it.

Source    tensorflow.python.ipu.scopes; PopART (gradient operations inherit the settings).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from fpsim.records.formats import BINARY16, BINARY32, Format
from ipu.learn import ops
from ipu.learn.tensor import Tensor
from ipu.learn.variables import current_device, current_policy, is_overridden, variable_scope
from ipu.machine.device import Device

__all__ = ["in_layer", "partials_type", "stochastic_rounding"]


@contextmanager
def stochastic_rounding(override: bool, device: Device | None = None) -> Iterator[None]:
    """Operations inside round stochastically, or to nearest, whatever the control register says.

    device    whose operations; default: the one whose variables are in use.
    """
    if not isinstance(override, bool):
        raise TypeError(f"override={override!r} is not a bool; use True or False")
    with (device or current_device()).rounding(override):
        yield


@contextmanager
def partials_type(dtype: Format, device: Device | None = None) -> Iterator[None]:
    """Products and convolutions of binary16 inputs inside keep their partial sums in that format.

    device    whose operations; default: the one whose variables are in use.
    """
    if dtype not in (BINARY16, BINARY32):
        raise ValueError(f"dtype={dtype} is not a format of partials; use BINARY16 or BINARY32")
    machine = device or current_device()
    before = machine.partials, machine.conv_partials
    machine.partials, machine.conv_partials = dtype, None
    try:
        yield
    finally:
        machine.partials, machine.conv_partials = before


def in_layer(op_name: str, x: Tensor, body: Callable[[Tensor], Tensor]) -> Tensor:
    """body(x) in the scope `op_name`, in the formats of the policy that holds there.

    Rounding  x once into the layer's format, the result once into the format that it is handed on
              in, where these differ. Without a policy a layer computes in the format of its input.
    """
    with ExitStack() as stack:
        stack.enter_context(variable_scope(op_name, use_resource=True))
        policy = current_policy()
        if policy is None:
            return body(x)
        if is_overridden() and x.device.partials != policy.partials:
            stack.enter_context(partials_type(policy.partials, x.device))
        return _in(policy.output, body(_in(policy.activations, x)))


def _in(fmt: Format, x: Tensor) -> Tensor:
    return x if x.dtype == fmt else ops.cast(x, dtype=fmt)
