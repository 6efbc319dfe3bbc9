"""Softmax, its logarithm, and losses: binary32 inside, rounded once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from fpsim.array import Array
from fpsim.records.formats import BINARY32
from ipu import ops
from ipu.frontends.torch.aten.reductions import axes_of
from ipu.frontends.torch.aten.table import Call, aten
from ipu.ops.losses import share_of
from ipu.ops.primitive import Primitive

__all__: list[str] = []


def _moved(x: Array, axis: int, to: int) -> Array:
    """x with an axis moved to the end, or the last one elsewhere; itself where it stands there."""
    last = -1, x.ndim - 1
    if axis in last and to in last:
        return x
    return x.like(np.moveaxis(x.carrier, axis, to))


def _along(call: Call, primitive: Any, x: Array, dim: int) -> Array:
    """The rule of the last axis, along another one."""
    if x.ndim == 0:
        single: Array = primitive.forward(call.device, x.reshape(1))[0]
        return single.reshape(())
    y: Array = primitive.forward(call.device, _moved(x, dim, -1))[0]
    return _moved(y, -1, dim)


def _softmax_like(name: str, primitive: Primitive) -> None:
    def forward(call: Call, x: Any, dim: int, half_to_float: bool) -> Any:
        if half_to_float or not x.numel():
            return NotImplemented
        return call.result(_along(call, primitive, call.array(x), dim))

    def backward(call: Call, gradient: Any, output: Any, dim: int, input_dtype: torch.dtype) -> Any:
        if not output.numel() or not output.ndim:
            return NotImplemented
        y = call.arrays(output, gradient)[0]
        fmt, g = y.format, call.slope(gradient, y.format)
        x = primitive.pull(0, call.device, _moved(g, dim, -1), (_moved(y, dim, -1),))
        return call.rounded(_moved(x, -1, dim), fmt, input_dtype)

    aten(f"{name}.default", of=primitive)(forward)
    aten(f"{name}_backward_data.default", of=primitive, gradient=True)(backward)


_softmax_like("_softmax", ops.softmax)
_softmax_like("_log_softmax", ops.log_softmax)


@aten("_safe_softmax.default", of=ops.safe_softmax)
def _safe_softmax(call: Call, x: torch.Tensor, dim: int, dtype: torch.dtype | None = None) -> Any:
    if dtype not in (None, x.dtype) or not x.numel() or not x.ndim:
        return NotImplemented
    return call.result(_along(call, ops.safe_softmax, call.array(x), dim))


@aten("logsumexp.default", of=ops.logsumexp)
def _logsumexp(call: Call, x: torch.Tensor, dim: Sequence[int], keepdim: bool = False) -> Any:
    if not x.numel() or not x.ndim:
        return NotImplemented
    a = call.array(x)
    return call.result(
        ops.logsumexp.value(call.device, a, axis=axes_of(a, dim), keepdims=keepdim)
    )


# Losses -----------------------------------------------------------------------------------------

#: Names of torch's numbers for reductions.
_REDUCTIONS = ("none", "mean", "sum")


@aten("nll_loss_forward.default", "nll_loss2d_forward.default", of=ops.nll)
def _nll_loss(
    call: Call, x: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None, reduction: int,
    ignore_index: int,
) -> Any:
    if not x.numel() or x.ndim == 1:
        return NotImplemented
    a, w = call.arrays(x, weight)
    classes, name = target.numpy(), _REDUCTIONS[reduction]
    loss = ops.nll.value(
        call.device, a, classes=classes, weight=w, reduction=name, ignored=ignore_index
    )
    if name == "none":
        return call.rounded(loss, a.format), torch.zeros((), dtype=x.dtype)
    share = share_of(call.device, a, classes, ignore_index, w)
    return call.loss(loss, a.format), call.result(share, torch.float32).to(x.dtype)


@aten("nll_loss_backward.default", "nll_loss2d_backward.default", of=ops.nll, gradient=True)
def _nll_loss_backward(
    call: Call, gradient: torch.Tensor, x: torch.Tensor, target: torch.Tensor,
    weight: torch.Tensor | None, reduction: int, ignore_index: int, total_weight: torch.Tensor,
) -> Any:
    """What reads the gradient of a loss stays in binary32: that of the logits is rounded first."""
    if not x.numel() or x.ndim == 1:
        return NotImplemented
    fmt = call.format_of(x, gradient)
    g = call.slope(gradient, fmt)
    w = None if weight is None else call.wide(call.memory.read(weight, fmt))
    saved = tuple(x.shape), fmt, w
    is_root = call.memory.format_of(gradient) == BINARY32
    slope = ops.nll.pull(
        0, call.device, g, saved, classes=target.numpy(), reduction=_REDUCTIONS[reduction],
        ignored=ignore_index, to=BINARY32 if is_root else fmt,
    )
    return call.result(slope)


@aten("binary_cross_entropy_with_logits.default", of=ops.binary_cross_entropy_with_logits)
def _two_classes(
    call: Call, x: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None = None,
    positive: torch.Tensor | None = None, reduction: int = 1,
) -> Any:
    if not x.numel():
        return NotImplemented
    a, t, w, p = call.arrays(x, target, weight, positive)
    loss = ops.binary_cross_entropy_with_logits.value(
        call.device, a, t, weight=w, positive=p, reduction=_REDUCTIONS[reduction]
    )
    return call.loss(loss, a.format)


@aten("binary_cross_entropy.default", of=ops.binary_cross_entropy)
def _cross_entropy(
    call: Call, x: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None = None,
    reduction: int = 1,
) -> Any:
    if not x.numel():
        return NotImplemented
    a, t, w = call.arrays(x, target, weight)
    loss = ops.binary_cross_entropy.value(
        call.device, a, t, weight=w, reduction=_REDUCTIONS[reduction]
    )
    return call.loss(loss, a.format)


@aten("binary_cross_entropy_backward.default", of=ops.binary_cross_entropy, gradient=True)
def _cross_entropy_backward(
    call: Call, gradient: torch.Tensor, x: torch.Tensor, target: torch.Tensor,
    weight: torch.Tensor | None = None, reduction: int = 1,
) -> Any:
    if not x.numel():
        return NotImplemented
    a, t, w = call.arrays(x, target, weight)
    slope = ops.binary_cross_entropy.pull(
        0, call.device, call.slope(gradient, a.format), (a, t, w),
        reduction=_REDUCTIONS[reduction],
    )
    return call.result(slope)


@aten("mse_loss.default", of=ops.mean_square)
def _mse_loss(call: Call, x: torch.Tensor, y: torch.Tensor, reduction: int = 1) -> Any:
    a, b = call.arrays(x, y)
    if reduction and not (a.size and b.size and (a.ndim or b.ndim)):
        return NotImplemented
    name = _REDUCTIONS[reduction]
    return call.loss(ops.mean_square.value(call.device, a, b, reduction=name), a.format)


@aten("mse_loss_backward.default", of=ops.mean_square, gradient=True)
def _mse_loss_backward(
    call: Call, gradient: torch.Tensor, x: torch.Tensor, y: torch.Tensor, reduction: int
) -> Any:
    """torch keeps the operands: their difference is computed again."""
    a, b = call.arrays(x, y)
    gap, g = ops.subtract.value(call.device, a, b), call.slope(gradient, a.format)
    if not gap.size:
        return NotImplemented
    slope = ops.mean_square.pull(0, call.device, g, (gap,), reduction=_REDUCTIONS[reduction])
    return call.result(slope)
