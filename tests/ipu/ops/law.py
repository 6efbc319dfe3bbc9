"""The law of the table: what a front end computes is what the row computes.

Value, status and trap are equal: on all codes of a format of 16 bits where a row has one operand,
on hard codes × hard codes and a sample where it has two. The row itself is compared with other
judges in its own tests.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fpsim import BFLOAT16, BINARY16, round_to
from fpsim.array import Array
from fpsim.elementwise.codes import from_codes, to_codes
from ipu.machine import Device
from ipu.machine.control import FpCtl

__all__ = [
    "FORMATS", "Outcome", "codes_of", "codes_of_one", "codes_of_two", "hard_codes", "of_row",
    "outcome",
]

FORMATS = (BINARY16, BFLOAT16)


class Outcome(NamedTuple):
    """Codes of a result, NaNs as -1, the status register then, and whether a trap came."""

    codes: list[int]
    status: int
    trapped: bool


def all_codes(fmt):
    return np.arange(1 << fmt.bits, dtype=fmt.code_dtype)


def hard_codes(fmt):
    """Zeros, the ends of every range, neighbours of 1 and of powers of two, infinities, NaNs."""
    one = int(to_codes(np.array(1.0, fmt.carrier), fmt))
    positive = {0, 1, 2, 3, one - 1, one, one + 1, one // 2, one + (one >> 2)}
    infinity = int(to_codes(np.array(np.inf, fmt.carrier), fmt))
    least = int(to_codes(np.array(fmt.smallest_normal, fmt.carrier), fmt))
    positive |= {least - 1, least, least + 1, infinity - 1, infinity - 2, infinity, infinity + 1}
    values = [0.25, 0.3, 0.5, 0.7071, 1.5, 2.0, 3.0, 6.0, 10.0, 300.0]
    rounded = np.asarray(round_to(values, fmt), fmt.carrier)
    positive |= {int(c) for c in to_codes(rounded, fmt)}
    quiet = int(to_codes(np.array(np.nan, fmt.carrier), fmt)) & (1 << fmt.bits - 1) - 1
    positive.add(quiet)
    sign = 1 << fmt.bits - 1
    codes = sorted(positive | {c | sign for c in positive})
    return np.array(codes, fmt.code_dtype)


def codes_of_one(fmt):
    return (all_codes(fmt),)


def codes_of_two(fmt, seed=0):
    """Hard codes with hard codes, and a sample of all pairs."""
    hard = hard_codes(fmt)
    x, y = (side.reshape(-1) for side in np.meshgrid(hard, hard))
    sample = np.random.default_rng(seed).integers(0, 1 << fmt.bits, (2, 4096))
    return tuple(
        np.concatenate([side, part.astype(fmt.code_dtype)])
        for side, part in zip((x, y), sample, strict=True)
    )


def codes_of(count, fmt):
    """Of one operand all codes, of two as `codes_of_two`, of three a sample of both kinds."""
    if count == 1:
        return codes_of_one(fmt)
    if count == 2:
        return codes_of_two(fmt)
    rng, hard = np.random.default_rng(count), hard_codes(fmt)
    sample = rng.integers(0, 1 << fmt.bits, (count, 4096)).astype(fmt.code_dtype)
    return tuple(np.concatenate([rng.choice(hard, 16384), part]) for part in sample)


def of_row(compute, fmt, codes, *, traps=False, **choices):
    """What compute(device, *arrays) gives on a device of its own."""
    control = FpCtl(inv=traps, div0=traps, oflo=traps)
    device = Device("hypothetical", control, **choices)
    context = device.context(fmt)
    arrays = [Array(from_codes(c, fmt), context) for c in codes]
    try:
        result = compute(device, *arrays)
    except FloatingPointError:
        return Outcome([], device.status_word, True)
    return outcome(to_codes(result.carrier, result.format), fmt, device.status_word)


def outcome(codes, fmt, status):
    """What came out, by its codes."""
    infinity = int(to_codes(np.array(np.inf, fmt.carrier), fmt))
    is_nan = (codes & (1 << fmt.bits - 1) - 1) > infinity
    return Outcome(np.where(is_nan, -1, codes.astype(int)).tolist(), status, False)
