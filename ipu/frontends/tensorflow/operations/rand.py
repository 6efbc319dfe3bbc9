"""`rand_ops`: dropout by the machine's own instruction.

Source    graphcore/tensorflow, tensorflow/python/ipu/ops/rand_ops.py: arguments, messages; poplibs,
          poprand (the mask, then the scale).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from fpsim.array import Array
from ipu import ops
from ipu.frontends.tensorflow.kernels.table import NodeSite, Run, gradient_rule, kernel
from ipu.frontends.tensorflow.operations.composite import composite, gradient_of
from ipu.machine.device import Device
from ipu.ops.random import seeded_mask

__all__ = ["dropout"]


def dropout(
    x: Any, seed: Any = None, rate: float = 0.5, seed_modifier: int = 1,
    noise_shape: Sequence[int] | None = None, name: str | None = None,
) -> Any:
    """x with a share of its elements set to zero, the others divided by 1 - rate.

    seed            two integers: the mask follows them alone; None: the machine's seed and the
                    node's place, so that every step, mini-batch and replica has its own.
    seed_modifier   another mask for the same seed.
    noise_shape     of the mask: axes of 1 are set to zero as a whole.

    Raises          ValueError for a rate outside of [0, 1), and other shapes of seed and noise.
    """
    if not 0 <= rate < 1:
        raise ValueError(f"The rate must be in the range [0, 1), but was {rate}")
    x = tf.convert_to_tensor(x)
    shape = _mask_shape(x.shape, noise_shape)
    seeds = tf.convert_to_tensor([0, 0] if seed is None else seed, tf.int32)
    if seeds.shape != [2]:
        raise ValueError(f"Expected the seed to have a shape [2], but got {seeds.shape}.")
    drop = _Dropout(1 - rate, seed is not None, seed_modifier, shape)
    with tf.name_scope(name or "dropout"):
        return drop(x, seeds)


def _mask_shape(shape: Any, noise_shape: Sequence[int] | None) -> tuple[int, ...]:
    if noise_shape is None:
        return tuple(shape)
    if len(noise_shape) != shape.rank:
        raise ValueError("The length of noise_shape must equal the rank of x.")
    for size, noise in zip(shape, noise_shape, strict=True):
        if noise not in (1, size):
            raise ValueError(f"Dimension mismatch, {size} != {noise}.")
    return tuple(noise_shape)


class _Dropout:
    """The node of a dropout, and its gradient, which has the same mask."""

    def __init__(self, keep: float, is_seeded: bool, modifier: int, shape: Any) -> None:
        self.keep, self.is_seeded, self.modifier, self.shape = keep, is_seeded, modifier, shape

    def __call__(self, x: Any, seed: Any) -> Any:
        spec, mask_spec = tf.TensorSpec(x.shape, x.dtype), tf.TensorSpec(self.shape, tf.bool)
        marks = {
            "keep": self.keep, "seeded": self.is_seeded, "modifier": self.modifier,
        }

        @tf.custom_gradient  # type: ignore[untyped-decorator]
        def compute(x: Any) -> Any:
            y, mask = composite("Dropout", [x, seed], [spec, mask_spec], self._seeded, **marks)

            def gradient(upstream: Any) -> Any:
                with gradient_of(y):
                    (slope,) = composite(
                        "DropoutGrad", [upstream, mask], [spec], self._masked, **marks
                    )
                    return slope

            return y, gradient

        return compute(x)

    def _seeded(self, device: Device, x: Array, seed: Any) -> tuple[Array, Any]:
        mask = seeded_mask(seed, self.modifier, _full(self.shape, x.shape), self.keep)
        return self._masked(device, x, mask), mask

    def _masked(self, device: Device, x: Array, mask: Any) -> Array:
        return ops.dropout.pull(0, device, x, (np.broadcast_to(mask, x.shape),), keep=self.keep)


def _full(noise: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of a mask where sizes were not known when the graph was built."""
    return tuple(1 if n == 1 else size for n, size in zip(noise, shape, strict=True))


# The machine ------------------------------------------------------------------------------------


def _scaled(site: NodeSite) -> Run:
    """Elements of a mask divided by the share that is kept: the rule of ipu.learn."""
    device, fmt, rule = site.device, site.fmt, gradient_rule(ops.dropout)
    keep = float(site.node.marks["keep"])
    assert fmt is not None

    def run(x: Array, mask: Any) -> Array:
        wide_mask = np.broadcast_to(mask, x.shape)
        result: Array = rule(device, device.cast(x, fmt), (wide_mask,), keep=keep)
        return result

    return run


@kernel("Dropout", of=ops.dropout, rounding="the scale", keeps=True, draws=True)
def _dropout(site: NodeSite) -> Run:
    device, marks, scaled = site.device, site.node.marks, _scaled(site)
    keep, noise = float(marks["keep"]), site.node.outputs[1].shape

    def run(x: Array, seed: Any) -> tuple[Array, Any]:
        shape = _full(noise, x.shape)
        if marks["seeded"]:
            mask = seeded_mask(seed, marks["modifier"], shape, keep)
        else:
            mask = device.random_mask(shape, keep)
        return scaled(x, mask), mask

    return run


@kernel("DropoutGrad", of=ops.dropout, gradient=True, rounding="the scale", keeps=True)
def _dropout_gradient(site: NodeSite) -> Run:
    return _scaled(site)
