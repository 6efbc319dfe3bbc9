"""Images of another size: neighbours with weights in binary32, rows before columns, rounded once.

The weights of an axis are what TensorFlow's own kernel gives for unit vectors, so they follow the
node's attributes (corners, half pixels). Gradients use the transposed weights.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from fpsim.array import Array
from ipu import ops
from ipu.frontends.tensorflow.kernels.host import own_kernel
from ipu.frontends.tensorflow.kernels.table import NodeSite, Run, kernel
from ipu.ops.resampling import Weights

__all__: list[str] = []

Find = Callable[[int, int], Weights]


def _finder(site: NodeSite, name: str) -> Find:
    """Weights of an axis of n elements that becomes one of m."""
    kernel = own_kernel(site, name, {"T": tf.float32})
    cache: dict[tuple[int, int], Weights] = {}

    def find(n: int, m: int) -> Weights:
        if (n, m) not in cache:
            units = np.eye(n, dtype=np.float32).reshape(1, n, 1, n)
            cache[n, m] = kernel(units, np.array([m, 1], np.int32)).reshape(m, n)
        return cache[n, m]

    return find


@kernel("ResizeBilinear", "ResizeBicubic", "ResizeArea", of=ops.resample, keeps=True)
def _resize(site: NodeSite) -> Run:
    device, fmt, find = site.device, site.fmt, _finder(site, site.node.type)
    assert fmt is not None

    def run(x: Array, size: Any) -> Array:
        weights = [find(n, int(m)) for n, m in zip(x.shape[1:3], size, strict=True)]
        return ops.resample.value(device, x, weights=weights, first=1, to=fmt)

    return run


def _turned(site: NodeSite, gradient: Array, shape: Any, find: Find) -> Array:
    fmt = site.fmt
    assert fmt is not None
    pairs = zip(shape, gradient.shape[1:3], strict=True)
    weights = [find(int(n), m) for n, m in pairs]
    return ops.resample.pull(0, site.device, gradient, (fmt,), weights=weights, first=1)


@kernel("ResizeBilinearGrad", "ResizeBicubicGrad", of=ops.resample, gradient=True, keeps=True)
def _resize_gradient(site: NodeSite) -> Run:
    find = _finder(site, site.node.type.removesuffix("Grad"))
    return lambda gradient, image: _turned(site, gradient, image.shape[1:3], find)


@kernel("ResizeNearestNeighborGrad", of=ops.resample, gradient=True, keeps=True)
def _nearest_gradient(site: NodeSite) -> Run:
    find = _finder(site, "ResizeNearestNeighbor")
    return lambda gradient, size: _turned(site, gradient, size, find)
