"""Maxima that torch chooses, by the device's rules for NaN, zeros and subnormal numbers.

torch's own loops choose values and indices. Where a result is a NaN, a negative zero or subnormal,
the rules of `Device.reduce_max` differ, and the choice is made again by them: a NaN wins only if
the device is asked for it (`max_nan`), −0 is below +0, subnormal numbers are what the device reads.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch

from fpsim.elementwise.apply import as_read
from fpsim.elementwise.notes import CallNotes
from fpsim.records.formats import Format
from ipu.frontends.torch.aten.table import Call
from ipu.ops.rules import read_nan

__all__ = ["as_float32", "largest_by"]

#: The largest of each group of a tensor, as values and their indices.
Choice = Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]]

#: Of binary32: the bits of its smallest normal number, how far infinity lies above, magnitudes.
_NORMAL, _NORMALS, _MAGNITUDE = np.uint32(1 << 23), np.uint32(254 << 23), np.uint32(0x7FFFFFFF)


def largest_by(
    call: Call, x: torch.Tensor, choose: Choice, *, negative: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """The largest of each group that `choose` forms, in x's format, and their indices.

    negative    the smallest instead.
    """
    fmt = call.format_of(x)
    held = as_float32(call, x, fmt)
    if negative:
        held = -held
    values, indices = choose(held)
    is_plain = _is_plain(values)
    if not is_plain:
        values, indices = _by_rule(call, fmt, held, choose)
    if call.device.notes is not None:
        if is_plain and not negative and call.dtype is torch.float32:
            _note(call.device.notes, held, choose, values, indices)
        else:
            call.device.notes.refuse()
    if negative:
        values = -values
    call.memory.mark(values, fmt)
    call.memory.read(values, fmt)
    return values.to(call.dtype), indices


def _note(
    notes: CallNotes, held: torch.Tensor, choose: Choice, values: torch.Tensor,
    indices: torch.Tensor,
) -> None:
    """The choice by torch's rule, to be made again while the device's agrees."""
    def again(*_: object) -> bool:
        largest, places = choose(held)
        if not _is_plain(largest):
            return False
        values.copy_(largest)
        indices.copy_(places)
        return True

    notes.note((held.numpy(),), (values.numpy(), indices.numpy()), again)


def as_float32(call: Call, x: torch.Tensor, fmt: Format) -> torch.Tensor:
    """The values of a tensor in a format, as a float32 tensor that is only read."""
    if x.dtype == torch.float32 and call.memory.format_of(x) == fmt:
        return x.detach()
    return torch.from_numpy(np.array(call.memory.read(x, fmt).carrier, order="C"))


def _is_plain(values: torch.Tensor) -> bool:
    """Whether all are normal, infinite or +0: then torch's rule and the device's agree."""
    bits = values.numpy().view(np.uint32)
    return not (((bits & _MAGNITUDE) - _NORMAL > _NORMALS) & (bits != 0)).any()


def _by_rule(
    call: Call, fmt: Format, held: torch.Tensor, choose: Choice
) -> tuple[torch.Tensor, torch.Tensor]:
    held = torch.from_numpy(as_read(held.numpy(), call.device.context(fmt).core.settings))
    is_nan = held.isnan()
    if not (choose(is_nan.to(held.dtype))[0] > 0).any():  # no group has one
        values, indices = choose(held)
    else:
        read_nan(call.device, fmt)
        rule = _of_numbers if call.device.options.max_nan == "number" else _of_nans
        values, indices = rule(choose, held, is_nan)
    has_plus, _ = choose(((held == 0) & ~held.signbit()).to(held.dtype))
    return values.masked_fill((values == 0) & (has_plus > 0), 0.0), indices


def _of_numbers(
    choose: Choice, x: torch.Tensor, is_nan: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Maxima that a NaN never is where a number stands beside it, and their indices."""
    values, indices = choose(x.masked_fill(is_nan, -math.inf))
    # Of groups without a number above -inf: whether they have a number, and where the first is.
    has_number, numbers = choose((~is_nan).to(x.dtype))
    lowest = values == -math.inf
    indices = torch.where(lowest & (has_number > 0), numbers, indices)
    return values.masked_fill(lowest & (has_number <= 0), math.nan), indices


def _of_nans(
    choose: Choice, x: torch.Tensor, is_nan: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Maxima where a NaN comes before every number: the first of them, where torch has the last."""
    (values, indices), (has_nan, nans) = choose(x), choose(is_nan.to(x.dtype))
    return values, torch.where(has_nan > 0, nans, indices)
