"""Regularisers: losses of variables, which `Variables.regularization_loss` adds up.

A regulariser is a function of a tensor to a scalar tensor in its format, computed by operations of
the device, each rounded once.

Source    tf.contrib.layers.l1_regularizer and l2_regularizer; tf.nn.l2_loss (sum of squares / 2).
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ipu import ops
from ipu.learn.tensor import Tensor

__all__ = ["Regulariser", "l1_regularizer", "l2_regularizer"]

Regulariser = Callable[[Tensor], Tensor]


def l2_regularizer(scale: float) -> Regulariser:
    """scale · sum(w²) / 2, the squares added in binary32 and rounded once.

    >>> from fpsim import BINARY32
    >>> from ipu.machine import Device
    >>> device = Device()
    >>> w = Tensor(device.from_host([3.0, 4.0], BINARY32), device)
    >>> float(l2_regularizer(0.5)(w).array)
    6.25
    """
    _check_scale(scale)

    def regularise(w: Tensor) -> Tensor:
        return ops.scale(ops.reduce_sum(ops.square(w)), factor=scale / 2)

    return regularise


def l1_regularizer(scale: float) -> Regulariser:
    """scale · sum(|w|), added in binary32 and rounded once; its gradient at zero is zero.

    >>> from fpsim import BINARY32
    >>> from ipu.machine import Device
    >>> device = Device()
    >>> w = Tensor(device.from_host([3.0, -4.0], BINARY32), device)
    >>> float(l1_regularizer(0.5)(w).array)
    3.5
    """
    _check_scale(scale)

    def regularise(w: Tensor) -> Tensor:
        # One of the two is zero, so their sum is exact.
        magnitudes = ops.add(ops.relu(w), ops.relu(ops.scale(w, factor=-1.0)))
        return ops.scale(ops.reduce_sum(magnitudes), factor=scale)

    return regularise


def _check_scale(scale: float) -> None:
    if not (math.isfinite(scale) and scale >= 0):
        raise ValueError(f"scale={scale} is not a regulariser's; use a finite number from 0 on")
