"""Sums, products, quotients, roots and functions, element by element.

Each verb of the device rounds once in the format of the result; Python numbers are constants, to
nearest.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from fpsim.array import Array
from fpsim.records.formats import BINARY16, BINARY32
from ipu.frontends.torch.aten.table import Call, aten
from ipu.ops.random import shifted_normal

__all__ = ["number_of", "power"]


@aten("add.Tensor", "add.Scalar", rounding="alpha times y if alpha is not 1, then the sum")
def _add(call: Call, x: Any, y: Any, alpha: float = 1) -> Any:
    return _combine(call, "add", x, y, alpha)


@aten("sub.Tensor", "sub.Scalar", rounding="alpha times y if alpha is not 1, then the difference")
def _sub(call: Call, x: Any, y: Any, alpha: float = 1) -> Any:
    return _combine(call, "subtract", x, y, alpha)


@aten("rsub.Tensor", "rsub.Scalar", rounding="alpha times x if alpha is not 1, then y - x")
def _rsub(call: Call, x: Any, y: Any, alpha: float = 1) -> Any:
    return _combine(call, "subtract", y, x, alpha)


def _combine(call: Call, verb: str, x: Any, y: Any, alpha: float) -> Any:
    a, b = call.terms(x, y)
    if alpha != 1:
        fmt = (a if isinstance(a, Array) else b).format
        b = call.device.multiply(b, call.constant(alpha, fmt))
    return call.result(getattr(call.device, verb)(a, b))


@aten("mul.Tensor", "mul.Scalar", rounding="once")
def _mul(call: Call, x: Any, y: Any) -> Any:
    return call.result(call.device.multiply(*call.terms(x, y)))


@aten("div.Tensor", "div.Scalar", "true_divide.Tensor", rounding="once")
def _div(call: Call, x: Any, y: Any) -> Any:
    return call.result(call.device.divide(*call.terms(x, y)))


@aten("reciprocal.default", rounding="once")
def _reciprocal(call: Call, x: Any) -> Any:
    return call.result(call.device.divide(1.0, call.array(x)))


@aten("square.default", rounding="once")
def _square(call: Call, x: Any) -> Any:
    a = call.array(x)
    return call.result(call.device.multiply(a, a))


def _unary(name: str, verb: str) -> None:
    def handler(call: Call, x: Any) -> Any:
        return call.result(getattr(call.device, verb)(call.array(x)))

    aten(f"{name}.default", rounding="once")(handler)


for _name in ("sqrt", "rsqrt", "exp", "log", "tanh", "sigmoid", "erf"):
    _unary(_name, _name)


@aten("pow.Tensor_Scalar", rounding="once for each product, root or quotient")
def _pow(call: Call, x: Any, exponent: float) -> Any:
    known = power(call, call.array(x), exponent)
    return NotImplemented if known is None else call.result(known)


def power(call: Call, x: Array, exponent: float) -> Array | None:
    """x to a power that has a rule; None for another one."""
    device = call.device
    if exponent in (2, 3, 4):
        square = device.multiply(x, x)
        return square if exponent == 2 else device.multiply(square, x if exponent == 3 else square)
    if exponent == 1.5:
        return device.multiply(x, device.sqrt(x))
    if exponent == 1:
        return x.like(x.carrier.copy())
    if exponent == 0.5:
        return device.sqrt(x)
    if exponent == -0.5:
        return device.rsqrt(x)
    return device.divide(1.0, x) if exponent == -1 else None


# Random numbers of the host ---------------------------------------------------------------------


@aten(
    "normal.Tensor_float", "normal.float_Tensor", "normal.Tensor_Tensor", of=shifted_normal
)  # fmt: skip
def _normal(call: Call, mean: Any, deviation: Any = 1.0, *, generator: Any = None) -> Any:
    fmt = call.format_of(mean, deviation)
    shape = torch.broadcast_shapes(*(x.shape for x in (mean, deviation) if not _is_number(x)))
    drawn = torch.empty(shape, dtype=call.dtype).normal_(generator=generator)
    m, d, z = (call.operand(x, fmt) for x in (mean, deviation, drawn))
    return call.result(shifted_normal.value(call.device, z, m, d))


def _is_number(x: Any) -> bool:
    return isinstance(x, (int, float))


# Bounds -----------------------------------------------------------------------------------------


@aten("clamp.default", "hardtanh.default", rounding="none; bounds are constants")
def _clamp(call: Call, x: Any, low: Any = None, high: Any = None) -> Any:
    a = call.array(x)
    bounds = [None if b is None else number_of(call.constant(b, a.format)) for b in (low, high)]
    clamped: torch.Tensor = torch.ops.aten.clamp.default(_tensor(a), *bounds)
    return call.result(a.like(clamped.numpy()))


@aten("clamp.Tensor", rounding="none")
def _clamp_by_tensors(call: Call, x: Any, low: Any = None, high: Any = None) -> Any:
    a, lowest, highest = call.arrays(x, low, high)
    bounds = [None if b is None else _tensor(b) for b in (lowest, highest)]
    values: torch.Tensor = torch.ops.aten.clamp.Tensor(_tensor(a), *bounds)
    return call.result(a.like(values.numpy()))


@aten("clamp_min.Tensor", rounding="none")
def _clamp_min_by_tensor(call: Call, x: Any, low: Any) -> Any:
    return _clamp_by_tensors(call, x, low)


@aten("clamp_max.Tensor", rounding="none")
def _clamp_max_by_tensor(call: Call, x: Any, high: Any) -> Any:
    return _clamp_by_tensors(call, x, None, high)


@aten("nan_to_num.default", rounding="none; what stands for NaN and infinities are constants")
def _nan_to_num(call: Call, x: Any, nan: Any = None, posinf: Any = None, neginf: Any = None) -> Any:
    a = call.array(x)
    largest = a.format.max
    standing = [
        default if number is None else number_of(call.constant(number, a.format))
        for number, default in ((nan, 0.0), (posinf, largest), (neginf, -largest))
    ]
    values: torch.Tensor = torch.ops.aten.nan_to_num.default(_tensor(a), *standing)
    return call.result(a.like(values.numpy()))


@aten("fmod.Tensor", "fmod.Scalar", rounding="none: a remainder is exact")
def _fmod(call: Call, x: Any, y: Any) -> Any:
    a, b = call.arrays(x, y)
    values: torch.Tensor = torch.ops.aten.fmod.Tensor(_tensor(a), _tensor(b))
    return call.result(a.like(values.numpy()))


#: Formats whose neighbours numpy knows.
_STORED = {BINARY16: np.float16, BINARY32: np.float32}


@aten("nextafter.default", rounding="none: the neighbour in the format")
def _nextafter(call: Call, x: Any, y: Any) -> Any:
    a, b = call.arrays(x, y)
    stored = _STORED.get(a.format)
    if stored is None:
        raise NotImplementedError(f"aten.nextafter has no rule in {a.format}; use binary16 or f32")
    with np.errstate(all="ignore"):
        neighbours = np.nextafter(a.carrier.astype(stored), b.carrier.astype(stored))
    return call.result(a.like(neighbours.astype(a.carrier.dtype)))


def _tensor(x: Any) -> torch.Tensor:
    return torch.from_numpy(np.array(x.carrier, order="C"))


@aten("clamp_min.default", rounding="none; the bound is a constant")
def _clamp_min(call: Call, x: Any, low: float) -> Any:
    return _clamp(call, x, low)


@aten("clamp_max.default", rounding="none; the bound is a constant")
def _clamp_max(call: Call, x: Any, high: float) -> Any:
    return _clamp(call, x, None, high)


def number_of(x: Any) -> float:
    """A constant as a Python number."""
    return float(x.carrier) if isinstance(x, Array) else float(x)
