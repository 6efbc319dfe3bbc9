"""Interpolation and averaging over uneven windows: a few weighted neighbours for each output.

Each axis has a matrix of weights (`ipu.ops.resample`), which torch's own operation
on unit vectors gives in binary64. The gradient uses the transposed matrices.

Neighbours that are copied (nearest) are selections; only their gradients are sums.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from numpy.typing import NDArray

from fpsim.array import Array
from fpsim.records.formats import BINARY32
from ipu import ops
from ipu.frontends.torch.aten.table import Call, aten
from ipu.ops.resampling import Weights

__all__ = ["uneven_average"]


def _matrix(function: Callable[[torch.Tensor], torch.Tensor], n: int) -> Weights:
    """Weights of an operation on rows of numbers (1, channels, n)."""
    rows = function(torch.eye(n, dtype=torch.float64)[None])
    weights: Weights = rows[0].T.numpy()
    return weights


def _axis_of(name: str, align: bool | None, n: int, m: int, scale: float | None) -> Weights:
    """Weights of one axis of an interpolation from n to m elements."""
    ops = torch.ops.aten
    if name == "bicubic":
        return _matrix(
            lambda x: ops.upsample_bicubic2d.default(x[..., None], [m, 1], align, scale, None)[
                ..., 0
            ],
            n,
        )
    if align is None:
        nearest = getattr(ops, f"{name}1d").default
        return _matrix(lambda x: nearest(x, [m], scale), n)
    return _matrix(lambda x: ops.upsample_linear1d.default(x, [m], align, scale), n)


def _weights(
    name: str, inputs: Any, outputs: Any, align: bool | None, scales: Any
) -> list[NDArray[Any]]:
    scales = scales or [None] * len(inputs)
    return [
        _axis_of(name, align, n, m, scale)
        for n, m, scale in zip(inputs, outputs, scales, strict=True)
    ]


def _gradient(
    call: Call, gradient: Any, name: str, inputs: Any, size: Any, align: bool | None, scales: Any
) -> Any:
    """The gradient to images whose last axes were `inputs`: the weights turned."""
    if not gradient.numel():
        return NotImplemented
    g = call.array(gradient)
    matrices = _weights(name, inputs, size, align, scales)
    return call.result(ops.resample.pull(0, call.device, g, (g.format,), weights=matrices))


def _interpolation(overload: str, name: str, axes: int) -> None:
    """Handlers of an interpolation with `align_corners`."""

    def forward(call: Call, x: Any, size: Any, align: bool, *scales: Any) -> Any:
        if not x.numel():
            return NotImplemented
        a = call.array(x)
        matrices = _weights(name, x.shape[-axes:], size, align, scales)
        return call.result(ops.resample.value(call.device, a, weights=matrices))

    def backward(
        call: Call, gradient: Any, size: Any, inputs: Any, align: bool, *scales: Any
    ) -> Any:
        return _gradient(call, gradient, name, inputs[-axes:], size, align, scales)

    aten(f"{overload}.default", of=ops.resample)(forward)
    aten(f"{overload}_backward.default", of=ops.resample, gradient=True)(backward)


_interpolation("upsample_linear1d", "linear", 1)
_interpolation("upsample_bilinear2d", "linear", 2)
_interpolation("upsample_trilinear3d", "linear", 3)
_interpolation("upsample_bicubic2d", "bicubic", 2)


def _nearest_gradient(name: str, axes: int) -> None:
    def backward(call: Call, gradient: Any, size: Any, inputs: Any, *scales: Any) -> Any:
        return _gradient(call, gradient, name, inputs[-axes:], size, None, scales)

    aten(f"{name}{axes}d_backward.default", of=ops.resample, gradient=True)(backward)


for _name in ("upsample_nearest", "_upsample_nearest_exact"):
    for _axes in (1, 2, 3):
        _nearest_gradient(_name, _axes)


def uneven_average(
    call: Call, x: Array, inputs: Sequence[int], outputs: Sequence[int], *, is_gradient: bool
) -> Array:
    """The mean over each of `outputs` windows that cover `inputs` elements, or its gradient.

    Shapes    the windows lie in the last axes.
    Rounding  as the module says: the weights are fl(1/n) in binary32.
    """
    pool = torch.ops.aten._adaptive_avg_pool2d.default
    weights = [
        _matrix(lambda rows, m=m: pool(rows[..., None], [m, 1])[..., 0], n)  # type: ignore[misc]
        for n, m in zip(inputs, outputs, strict=True)
    ]
    if is_gradient:
        return ops.resample.pull(0, call.device, x, (BINARY32,), weights=weights)
    return ops.resample.value(call.device, x, weights=weights, to=BINARY32)
