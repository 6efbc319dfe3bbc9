"""Random numbers: drawn by a generator of the caller, rounded to nearest; and masks of dropout.

Normal ones are computed in binary64 on the host and rounded once. A mask keeps an element by 16
random bits.

Source    TensorFlow's random_distributions.h (bits of uniform numbers); poplibs, poprand (masks).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from fpsim.array import Array
from fpsim.records.formats import Format
from ipu.machine.device import Device
from ipu.ops.primitive import Forward, Primitive
from ipu.ops.rules import Saved

__all__ = ["normal", "shifted_normal", "truncated_normal", "uniform"]

Shape = tuple[int, ...]
Generator = np.random.Generator
Draw = Callable[[Generator, Shape], NDArray[np.float64]]


def _drawn(draw: Draw) -> Forward:
    """Numbers of a generator in a format."""

    def forward(
        device: Device, *, shape: Shape, generator: Generator, dtype: Format
    ) -> tuple[Array, Saved]:
        return device.from_host(draw(generator, shape), dtype), ()

    return forward


def _uniform(
    device: Device, *, shape: Shape, generator: Generator, dtype: Format, bits: int | None = None
) -> tuple[Array, Saved]:
    bits = dtype.precision - 1 if bits is None else bits
    return device.from_host(generator.integers(0, 1 << bits, shape) * 2.0**-bits, dtype), ()


def _normal_numbers(generator: Generator, shape: Shape) -> NDArray[np.float64]:
    return np.asarray(generator.standard_normal(shape))


def _truncated_numbers(generator: Generator, shape: Shape) -> NDArray[np.float64]:
    """By the inverse of the distribution, so that each number takes one draw."""
    low, high = ndtr(-2.0), ndtr(2.0)
    return np.asarray(ndtri(low + (high - low) * generator.random(shape)))


def _shifted_normal(
    device: Device, numbers: Array, mean: Array | float, deviation: Array | float
) -> tuple[Array, Saved]:
    return device.add(mean, device.multiply(deviation, numbers)), ()


def seeded_mask(seed: Sequence[int], modifier: int, shape: Shape, keep: float) -> NDArray[np.bool_]:
    """A mask that follows two integers: 16 random bits for each element, as the instruction's.

    >>> seeded_mask([1, 2], 0, (4,), 1.0).all()
    np.True_
    """
    low, high = (int(word) & 0xFFFFFFFF for word in seed)
    # A list with numbers from 2**63 on would become one of binary64, without the low bits.
    key = np.array([low | high << 32, modifier % 2**64], np.uint64)
    draws = np.random.Generator(np.random.Philox(key=key))
    mask: NDArray[np.bool_] = draws.integers(0, 1 << 16, shape) < int(np.float32(keep) * 65536)
    return mask


_SOURCE = "TensorFlow, random_distributions.h; the vendor's generator is not known"

#: Numbers from 0 to less than 1; options `shape`, `generator` (numpy's), `dtype`, and `bits` of the
#: numbers, by default those that the format holds.
uniform = Primitive(
    "uniform", _uniform, (), rounding="to nearest, where the format holds fewer bits",
    source=_SOURCE,
)
#: Normal numbers; options as `uniform`.
normal = Primitive(
    "normal", _drawn(_normal_numbers), (), rounding="once, to nearest", source=_SOURCE
)
#: Normal numbers within two deviations; options as `uniform`.
truncated_normal = Primitive(
    "truncated_normal", _drawn(_truncated_numbers), (), rounding="once, to nearest", source=_SOURCE
)
#: mean + deviation · numbers. It has no gradient.
shifted_normal = Primitive(
    "shifted_normal", _shifted_normal, (None, None, None),
    rounding="the deviation times a number of the host, then the sum", source=_SOURCE,
)
