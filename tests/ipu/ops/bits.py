"""Operands for tests of primitives bit for bit.

numpy rounds + - * / of float16 once (in float32, then to half: innocuous for these), as the machine
does. Functions come from binary64, whose rounding is the correct one on these inputs.
"""

from __future__ import annotations

import numpy as np
import pytest

from fpsim import BINARY16, BINARY32
from ipu.learn.tensor import Tensor, gradients
from ipu.learn.variables import Variable
from ipu.machine import Device

DTYPES = {BINARY16: np.float16, BINARY32: np.float32}


FORMATS = pytest.mark.parametrize("fmt", [BINARY16, BINARY32], ids=str)


def machine(**options) -> Device:
    return Device(f32_denormals="ieee", **options)


def leaf(device, values, fmt) -> Variable:
    return Variable(device.from_host(values, fmt), device, "x")


def numbers(shape, fmt, seed=0, scale=1.0):
    return (scale * np.random.default_rng(seed).standard_normal(shape)).astype(DTYPES[fmt])


def gradient_of(y: Tensor, sources, g):
    results = gradients(y, sources, y.device.from_host(g, y.dtype))
    return [a.to_numpy() for a in results]
