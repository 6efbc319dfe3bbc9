"""Activations and their gradients: names of the rows of `ipu.ops.activations`."""

from __future__ import annotations

from typing import Any

import torch

from fpsim.array import Array
from fpsim.core import Operand
from ipu import ops
from ipu.frontends.torch.aten.rows import gradients, of_one
from ipu.frontends.torch.aten.table import Call, aten
from ipu.ops.primitive import Primitive

__all__: list[str] = []

of_one({
    "relu.default": ops.relu, "silu.default": ops.silu, "mish.default": ops.mish,
})
of_one({"elu.default": ops.elu}, "alpha", "scale", "input_scale")
of_one({"softplus.default": ops.softplus}, "beta", "threshold")
of_one({"glu.default": ops.glu}, "axis")
gradients({
    "tanh_backward.default": ops.tanh, "sigmoid_backward.default": ops.sigmoid,
    "silu_backward.default": ops.silu, "mish_backward.default": ops.mish,
})
gradients({"softplus_backward.default": ops.softplus}, "beta", "threshold")
gradients({"glu_backward.default": ops.glu}, "axis")


def _of_limits(name: str, row: Primitive, *options: str) -> None:
    """An overload of a tensor and limits, which are constants of its format, and its gradient."""

    def limits_of(call: Call, x: Array, values: tuple[float, ...]) -> dict[str, Operand]:
        return {k: call.constant(v, x.format) for k, v in zip(options, values, strict=False)}

    @aten(f"{name}.default", of=row)
    def forward(call: Call, x: torch.Tensor, *values: float) -> Any:
        a = call.array(x)
        return call.result(row.value(call.device, a, **limits_of(call, a, values)))

    @aten(f"{name}_backward.default", of=row, gradient=True)
    def backward(call: Call, gradient: torch.Tensor, x: torch.Tensor, *values: float) -> Any:
        g, a = call.arrays(gradient, x)
        return call.result(row.pull(0, call.device, g, (a,), **limits_of(call, a, values)))


_of_limits("hardtanh", ops.hard_tanh, "low", "high")
_of_limits("hardshrink", ops.hard_shrink, "least")


@aten("threshold_backward.default", of=ops.threshold, gradient=True)
def _threshold_backward(
    call: Call, gradient: torch.Tensor, x: torch.Tensor, threshold: float
) -> Any:
    """Of relu too, where the limit is 0."""
    g, a = call.arrays(gradient, x)
    least = call.constant(threshold, a.format) if threshold else 0.0
    return call.result(ops.threshold.pull(0, call.device, g, (a,), least=least))


@aten("celu.default", of=ops.elu)
def _celu(call: Call, x: torch.Tensor, alpha: float = 1) -> Any:
    y = ops.elu.value(call.device, call.array(x), alpha=alpha, input_scale=1 / alpha)
    return call.result(y)


@aten("elu_backward.default", of=ops.elu, gradient=True)
def _elu_backward(
    call: Call, gradient: torch.Tensor, alpha: float, scale: float, input_scale: float,
    is_result: bool, of: torch.Tensor,
) -> Any:
    g, a = call.arrays(gradient, of)
    slope = ops.elu.pull(
        0, call.device, g, (a,), alpha=alpha, scale=scale, input_scale=input_scale,
        of_result=is_result,
    )
    return call.result(slope)


@aten("log_sigmoid_forward.default", of=ops.log_sigmoid)
def _log_sigmoid(call: Call, x: torch.Tensor) -> tuple[Any, Any]:
    """The result and an empty buffer: the gradient reads x alone."""
    return call.result(ops.log_sigmoid.value(call.device, call.array(x))), x.new_empty(0)


@aten("log_sigmoid_backward.default", of=ops.log_sigmoid, gradient=True)
def _log_sigmoid_backward(
    call: Call, gradient: torch.Tensor, x: torch.Tensor, buffer: torch.Tensor
) -> Any:
    g, a = call.arrays(gradient, x)
    return call.result(ops.log_sigmoid.pull(0, call.device, g, (a,)))


@aten("gelu.default", of=(ops.gelu_erf, ops.gelu))
def _gelu(call: Call, x: torch.Tensor, approximate: str = "none") -> Any:
    row = ops.gelu if approximate == "tanh" else ops.gelu_erf
    return call.result(row.value(call.device, call.array(x)))


@aten("gelu_backward.default", of=(ops.gelu_erf, ops.gelu), gradient=True)
def _gelu_backward(
    call: Call, gradient: torch.Tensor, x: torch.Tensor, approximate: str = "none"
) -> Any:
    """By tanh, what the row saves is computed again: torch keeps x alone."""
    g, a = call.arrays(gradient, x)
    if approximate != "tanh":
        return call.result(ops.gelu_erf.pull(0, call.device, g, (a,)))
    _, saved = ops.gelu.forward(call.device, a)
    return call.result(ops.gelu.pull(0, call.device, g, saved))


@aten("leaky_relu.default", of=ops.leaky_relu)
def _leaky_relu(call: Call, x: torch.Tensor, slope: float = 0.01) -> Any:
    a = call.array(x)
    return call.result(ops.leaky_relu.value(call.device, a, slope=call.constant(slope, a.format)))


@aten("leaky_relu_backward.default", of=ops.leaky_relu, gradient=True)
def _leaky_relu_backward(
    call: Call, gradient: torch.Tensor, x: torch.Tensor, slope: float, self_is_result: bool
) -> Any:
    g, a = call.arrays(gradient, x)
    rounded = call.constant(slope, g.format)
    return call.result(ops.leaky_relu.pull(0, call.device, g, (a,), slope=rounded))


# Dropout ----------------------------------------------------------------------------------------


@aten("native_dropout.default", of=ops.masked_scale)
def _dropout(call: Call, x: torch.Tensor, p: float, train: bool | None) -> tuple[Any, Any]:
    a = call.array(x)
    if train is False or p == 0:
        return call.result(a.like(a.carrier.copy())), torch.ones_like(x, dtype=torch.bool)
    mask = torch.empty(x.shape, dtype=torch.bool).bernoulli_(1 - p)
    scale = call.constant(0.0 if p == 1 else 1 / (1 - p), a.format)
    scaled = ops.masked_scale.value(call.device, a, mask=mask.numpy(), factor=scale)
    return call.result(scaled), mask


@aten("native_dropout_backward.default", of=ops.masked_scale, gradient=True)
def _dropout_backward(call: Call, gradient: torch.Tensor, mask: torch.Tensor, scale: float) -> Any:
    g = call.array(gradient)
    factor = call.constant(scale, g.format)
    return call.result(ops.masked_scale.value(call.device, g, mask=mask.numpy(), factor=factor))
