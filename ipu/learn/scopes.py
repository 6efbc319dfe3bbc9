"""Scopes: what holds inside a block and no longer afterwards, the inner one winning.

`stochastic_rounding` and `partials_type` change the device for the operations inside; the backward
rules of these operations round and accumulate as the operations did (ASSUMED: the frameworks copy
an operation's settings to its gradient).

Source    tensorflow.python.ipu.scopes; PopART (gradient operations inherit the settings).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fpsim.records.formats import BINARY16, BINARY32, Format, find_number_format
from ipu.learn.variables import current_device
from ipu.machine.device import Device

__all__ = ["partials_type", "stochastic_rounding"]


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
def partials_type(dtype: Format | str, device: Device | None = None) -> Iterator[None]:
    """Products and convolutions of binary16 inputs inside keep their partial sums in that format.

    device    whose operations; default: the one whose variables are in use.
    """
    fmt = find_number_format(dtype, "dtype")
    if fmt not in (BINARY16, BINARY32):
        raise ValueError(f"dtype={fmt} is not a format of partials; use BINARY16 or BINARY32")
    machine = device or current_device()
    before = machine.partials, machine.conv_partials
    machine.partials, machine.conv_partials = fmt, None
    try:
        yield
    finally:
        machine.partials, machine.conv_partials = before
