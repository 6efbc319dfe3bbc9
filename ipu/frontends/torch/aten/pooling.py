"""Pooling by the rules of `ipu.ops`; the maximum is a selection and rounds nothing.

The gradient of a maximum goes to the first element that has it, or to all (`ties`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fpsim.array import Array
from fpsim.records.formats import BINARY32
from fpsim.records.types import Carrier
from ipu import ops
from ipu.frontends.torch.aten.choosing import as_float32, largest_by
from ipu.frontends.torch.aten.resampling import uneven_average
from ipu.frontends.torch.aten.table import Call, aten
from ipu.machine.derived import derived

__all__: list[str] = []


def _pair(values: Any) -> tuple[int, int]:
    numbers = list(values)
    return (numbers[0], numbers[-1])


def _images(x: Array) -> Array:
    carrier = x.carrier if x.ndim == 4 else x.carrier[None]
    return x.like(np.ascontiguousarray(carrier.transpose(0, 2, 3, 1)))


def _from_images(y: Array, ndim: int) -> Array:
    carrier = y.carrier.transpose(0, 3, 1, 2)
    return y.like(carrier if ndim == 4 else carrier[0])


def _sides(
    shape: Any, size: Any, stride: Any, padding: Any, ceil: bool
) -> tuple[tuple[Any, Any], ...]:
    """Padding before and after: with `ceil`, so much more behind that the last window fits."""
    sides = []
    for n, k, s, p in zip(shape[-2:], size, stride, padding, strict=True):
        after = p
        if ceil:
            windows = -(-(n + 2 * p - k) // s) + 1
            if (windows - 1) * s >= n + p:
                windows -= 1
            after = max((windows - 1) * s + k - n - p, p)
        sides.append((p, after))
    return tuple(sides)


@aten("max_pool2d_with_indices.default", of=ops.max_pool)
def _max_pool(
    call: Call, x: torch.Tensor, size: Sequence[int], stride: Sequence[int] = (),
    padding: Sequence[int] = (0, 0), dilation: Sequence[int] = (1, 1), ceil: bool = False,
) -> tuple[Any, Any]:
    pool = torch.ops.aten.max_pool2d_with_indices.default
    return largest_by(call, x, lambda v: pool(v, size, stride, padding, dilation, ceil))


@aten("max_pool3d_with_indices.default", of=ops.max_pool)
def _max_pool_of_volumes(
    call: Call, x: torch.Tensor, size: Sequence[int], stride: Sequence[int] = (),
    padding: Sequence[int] = (0, 0, 0), dilation: Sequence[int] = (1, 1, 1), ceil: bool = False,
) -> tuple[Any, Any]:
    pool = torch.ops.aten.max_pool3d_with_indices.default
    return largest_by(call, x, lambda v: pool(v, size, stride, padding, dilation, ceil))


def _adaptive_maximum(name: str) -> None:
    @aten(f"{name}.default", of=ops.max_pool)
    def of_outputs(call: Call, x: torch.Tensor, output_size: Sequence[int]) -> tuple[Any, Any]:
        pool = getattr(torch.ops.aten, name).default
        return largest_by(call, x, lambda v: pool(v, output_size))


_adaptive_maximum("adaptive_max_pool2d")
_adaptive_maximum("adaptive_max_pool3d")


def _fractional_maximum(name: str) -> None:
    @aten(f"{name}.default", of=ops.max_pool)
    def at_random(
        call: Call, x: torch.Tensor, size: Sequence[int], output_size: Sequence[int],
        samples: torch.Tensor,
    ) -> tuple[Any, Any]:
        pool, drawn = getattr(torch.ops.aten, name).default, as_float32(call, samples, BINARY32)
        return largest_by(call, x, lambda v: pool(v, size, output_size, drawn))


_fractional_maximum("fractional_max_pool2d")
_fractional_maximum("fractional_max_pool3d")


def _spread(n: int, slopes: Carrier, indices: NDArray[np.int64]) -> Carrier:
    """Rows of n zeros, with slopes at these indices."""
    spread = np.zeros((*slopes.shape[:-1], n), slopes.dtype)
    torch.from_numpy(spread).scatter_(-1, torch.from_numpy(indices), torch.from_numpy(slopes))
    return spread


@aten("max_pool2d_with_indices_backward.default", of=ops.max_pool, gradient=True)
def _max_pool_backward(
    call: Call, gradient: torch.Tensor, x: torch.Tensor, size: Sequence[int], stride: Sequence[int],
    padding: Sequence[int], dilation: Sequence[int], ceil: bool, indices: torch.Tensor,
) -> Any:
    if any(d != 1 for d in dilation) or not x.numel():
        return NotImplemented
    window = _pair(size)
    step = _pair(stride) if len(stride) else window
    if call.ties == "first" and all(n <= s for n, s in zip(window, step, strict=True)):
        # Windows side by side: each gradient is moved to where its maximum was.
        fmt = call.format_of(gradient, x)
        # torch's own kernel adds to zeros, which turns -0 into +0.
        slopes = as_float32(call, gradient, fmt).flatten(-2)
        spread = derived(
            call.device, partial(_spread, math.prod(x.shape[-2:])), slopes.numpy(),
            indices.flatten(-2).numpy(),
        )
        return call.result(Array(spread.reshape(x.shape), call.device.context(fmt)))
    g, a = call.arrays(gradient, x)
    sides = _sides(x.shape, window, step, _pair(padding), ceil)
    _, saved = ops.max_pool.forward(
        call.device, _images(a), size=window, stride=step, padding=sides, ties=call.ties
    )
    slope = ops.max_pool.vjps[0](call.device, _images(g), saved)  # type: ignore[misc]
    return call.result(_from_images(slope, x.ndim))


@aten("adaptive_max_pool2d_backward.default", of=ops.max_pool, gradient=True)
def _adaptive_max_backward(
    call: Call, gradient: torch.Tensor, x: torch.Tensor, indices: torch.Tensor
) -> Any:
    if not x.numel() or not gradient.numel():
        return NotImplemented
    window = _even_windows(x, gradient.shape[-2:])
    if window is None:
        return NotImplemented
    return _max_pool_backward(
        call, gradient, x, window, window, (0, 0), (1, 1), False, indices
    )


# Average --------------------------------------------------------------------------------------


def _averaging(
    call: Call, a: Array, size: Any, stride: Any, padding: Any, ceil: bool, include: bool
) -> tuple[Array, dict[str, Any], tuple[int, int]] | None:
    """The images, options of the rule, and how much zero padding they have now; None: no rule."""
    window = _pair(size)
    step = _pair(stride) if len(stride) else window
    pad = _pair(padding)
    if ceil and (include or any(pad)):
        return None
    images, added = _images(a), (0, 0)
    sides = _sides(a.shape, window, step, pad, ceil)
    if include and any(pad):  # zeros count as elements
        width = ((0, 0), (pad[0], pad[0]), (pad[1], pad[1]), (0, 0))
        images, sides, added = images.like(np.pad(images.carrier, width)), ((0, 0), (0, 0)), pad
    return images, {"size": window, "stride": step, "padding": sides}, added


@aten("avg_pool2d.default", of=ops.average_pool)
def _avg_pool(
    call: Call, x: torch.Tensor, size: Sequence[int], stride: Sequence[int] = (),
    padding: Sequence[int] = (0, 0), ceil: bool = False, include: bool = True,
    divisor: int | None = None,
) -> Any:
    if divisor is not None or not x.numel():
        return NotImplemented
    averaging = _averaging(call, call.array(x), size, stride, padding, ceil, include)
    if averaging is None:
        return NotImplemented
    images, options, _ = averaging
    y, _ = ops.average_pool.forward(call.device, images, **options)
    return call.result(_from_images(y, x.ndim))


@aten("avg_pool2d_backward.default", of=ops.average_pool, gradient=True)
def _avg_pool_backward(
    call: Call, gradient: torch.Tensor, x: torch.Tensor, size: Sequence[int], stride: Sequence[int],
    padding: Sequence[int], ceil: bool, include: bool, divisor: int | None,
) -> Any:
    if divisor is not None or not x.numel():
        return NotImplemented
    g, a = call.arrays(gradient, x)
    averaging = _averaging(call, a, size, stride, padding, ceil, include)
    if averaging is None:
        return NotImplemented
    images, options, (top, left) = averaging
    return call.result(_average_gradient(call, g, images, options, (top, left), x))


def _average_gradient(
    call: Call, g: Array, images: Array, options: Any, added: tuple[int, int], x: Any
) -> Array:
    saved = _average_saved(images, options, call)
    spread = ops.average_pool.vjps[0](call.device, _images(g), saved)  # type: ignore[misc]
    (top, left), (height, width) = added, x.shape[-2:]
    return _from_images(spread[:, top : top + height, left : left + width, :], x.ndim)


def _average_saved(images: Array, options: Any, call: Call) -> tuple[tuple[int, ...], Any, Any]:
    """What the forward rule saves: shapes and shares, without rounding anything again."""
    with call.device.rounding(False):
        zeros = call.device.zeros((1, *images.shape[1:3], 1), images.format)
        _, (_, windows, share) = ops.average_pool.forward(call.device, zeros, **options)
    return images.shape, windows, share


@aten(
    "_adaptive_avg_pool2d.default", of=(ops.average_pool, ops.resample),
    rounding="fl(x · fl(1/n)), then each sum; uneven windows: as resampled",
)
def _adaptive(call: Call, x: torch.Tensor, output_size: Sequence[int]) -> Any:
    if not x.numel() or not all(output_size):
        return NotImplemented
    window = _even_windows(x, output_size)
    a = call.array(x)
    if window is None:
        y = uneven_average(call, a, x.shape[-2:], output_size, is_gradient=False)
        return call.rounded(y, a.format)
    y, _ = ops.average_pool.forward(call.device, _images(a), size=window)
    return call.result(_from_images(y, x.ndim))


@aten(
    "_adaptive_avg_pool2d_backward.default", of=(ops.average_pool, ops.resample), gradient=True,
    rounding="fl(g · fl(1/n)); uneven windows: binary32 inside, once at the end",
)
def _adaptive_backward(call: Call, gradient: torch.Tensor, x: torch.Tensor) -> Any:
    if not x.numel() or not gradient.numel():
        return NotImplemented
    window, outputs = _even_windows(x, gradient.shape[-2:]), gradient.shape[-2:]
    g, a = call.arrays(gradient, x)
    if window is None:
        y = uneven_average(call, g, x.shape[-2:], outputs, is_gradient=True)
        return call.rounded(y, g.format)
    return call.result(_average_gradient(call, g, _images(a), {"size": window}, (0, 0), x))


def _even_windows(x: Any, output_size: Any) -> tuple[int, int] | None:
    """Windows side by side that give this many outputs, where such windows exist."""
    sizes = [(n, m) for n, m in zip(x.shape[-2:], output_size, strict=True)]
    if any(n % m for n, m in sizes):
        return None
    (height, rows), (width, columns) = sizes
    return height // rows, width // columns
