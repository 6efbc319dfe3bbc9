"""Sums, products, quotients, powers, functions and limits, element by element: names of rows.

Each row rounds once in the format of the result, or says where else; Python numbers are constants,
to nearest.
"""

from __future__ import annotations

from typing import Any

import torch

from fpsim.array import Array
from ipu import ops
from ipu.frontends.torch.aten.rows import of_one, of_terms
from ipu.frontends.torch.aten.table import Call, aten
from ipu.ops.primitive import Primitive
from ipu.ops.random import shifted_normal

__all__: list[str] = []

of_terms({
    "mul.Tensor": ops.multiply, "mul.Scalar": ops.multiply, "div.Tensor": ops.divide,
    "div.Scalar": ops.divide, "true_divide.Tensor": ops.divide,
})
of_one({
    "reciprocal.default": ops.reciprocal, "square.default": ops.square, "sqrt.default": ops.sqrt,
    "rsqrt.default": ops.rsqrt, "exp.default": ops.exp, "log.default": ops.log,
    "tanh.default": ops.tanh, "sigmoid.default": ops.sigmoid, "erf.default": ops.erf,
    "log1p.default": ops.log1p, "expm1.default": ops.expm1,
})
# Functions without an instruction.
of_one({
    "sin.default": ops.sin, "cos.default": ops.cos, "tan.default": ops.tan,
    "asin.default": ops.asin, "acos.default": ops.acos, "atan.default": ops.atan,
    "sinh.default": ops.sinh, "cosh.default": ops.cosh, "asinh.default": ops.asinh,
    "acosh.default": ops.acosh, "atanh.default": ops.atanh, "exp2.default": ops.exp2,
    "log2.default": ops.log2, "log10.default": ops.log10, "erfc.default": ops.erfc,
    "erfinv.default": ops.erfinv, "lgamma.default": ops.lgamma, "digamma.default": ops.digamma,
    "i0.default": ops.bessel_i0, "special_i0e.default": ops.bessel_i0e,
    "special_i1.default": ops.bessel_i1, "special_i1e.default": ops.bessel_i1e,
    "special_ndtri.default": ops.ndtri, "special_bessel_j0.default": ops.bessel_j0,
    "special_bessel_j1.default": ops.bessel_j1, "special_bessel_y0.default": ops.bessel_y0,
    "special_bessel_y1.default": ops.bessel_y1,
    "special_modified_bessel_i0.default": ops.bessel_i0,
    "special_modified_bessel_i1.default": ops.bessel_i1,
    "special_modified_bessel_k0.default": ops.bessel_k0,
    "special_modified_bessel_k1.default": ops.bessel_k1,
    "special_scaled_modified_bessel_k0.default": ops.bessel_k0e,
    "special_scaled_modified_bessel_k1.default": ops.bessel_k1e,
})


@aten("add.Tensor", "add.Scalar", of=ops.scaled_sum)
def _add(call: Call, x: torch.Tensor, y: Any, alpha: float = 1) -> Any:
    if alpha == 1:
        return call.result(ops.add.value(call.device, *call.terms(x, y)))
    return _scaled(call, ops.scaled_sum, x, y, alpha)


@aten("sub.Tensor", "sub.Scalar", of=ops.scaled_difference)
def _sub(call: Call, x: torch.Tensor, y: Any, alpha: float = 1) -> Any:
    if alpha == 1:
        return call.result(ops.subtract.value(call.device, *call.terms(x, y)))
    return _scaled(call, ops.scaled_difference, x, y, alpha)


@aten("rsub.Tensor", "rsub.Scalar", of=ops.scaled_difference)
def _rsub(call: Call, x: torch.Tensor, y: Any, alpha: float = 1) -> Any:
    return _sub(call, y, x, alpha)


def _scaled(call: Call, row: Primitive, x: Any, y: Any, alpha: float) -> Any:
    a, b = call.terms(x, y)
    fmt = (a if isinstance(a, Array) else b).format
    operands = (_as_array(call, v, fmt) for v in (a, b))
    return call.result(row.value(call.device, *operands, factor=call.constant(alpha, fmt)))


def _as_array(call: Call, x: Any, fmt: Any) -> Array:
    return x if isinstance(x, Array) else call.device.context(fmt).constant(x)


def _of_arrays(row: Primitive, *overloads: str, **options: Any) -> None:
    """Overloads of tensors and numbers whose row takes arrays, and has these options."""

    def handler(call: Call, *operands: Any) -> Any:
        return _value(call, row, *operands, **options)

    aten(*overloads, of=row)(handler)


def _value(call: Call, row: Primitive, *operands: Any, **options: Any) -> Any:
    fmt = call.format_of(*operands)
    arrays = (_as_array(call, call.operand(x, fmt), fmt) for x in operands)
    return call.result(row.value(call.device, *arrays, **options))


_of_arrays(ops.power, "pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar")
_of_arrays(ops.atan2, "atan2.default")
_of_arrays(ops.maximum, "maximum.default", "max.other")
_of_arrays(ops.minimum, "minimum.default", "min.other")
_of_arrays(ops.fmax, "fmax.default")
_of_arrays(ops.fmin, "fmin.default")
_of_arrays(ops.fmod, "fmod.Tensor", "fmod.Scalar")
_of_arrays(ops.floor_mod, "remainder.Tensor", "remainder.Scalar", "remainder.Scalar_Tensor")
_of_arrays(ops.floor_divide, "floor_divide.default", "floor_divide.Scalar")
_of_arrays(
    ops.xlogy, "xlogy.Tensor", "xlogy.Scalar_Self", "xlogy.Scalar_Other", passes_nan=True
)
_of_arrays(
    ops.xlog1py, "special_xlog1py.default", "special_xlog1py.self_scalar",
    "special_xlog1py.other_scalar", passes_nan=True,
)

#: Rows of quotients by torch's names of how they are rounded to whole numbers.
_QUOTIENTS = {None: ops.divide, "floor": ops.floor_divide, "trunc": ops.trunc_divide}


@aten("div.Tensor_mode", "div.Scalar_mode", of=tuple(_QUOTIENTS.values()))
def _div(call: Call, x: Any, y: Any, *, rounding_mode: str | None) -> Any:
    return _value(call, _QUOTIENTS[rounding_mode], x, y)


# Random numbers of the host ---------------------------------------------------------------------


@aten(
    "normal.Tensor_float", "normal.float_Tensor", "normal.Tensor_Tensor", of=shifted_normal
)
def _normal(call: Call, mean: Any, deviation: Any = 1.0, *, generator: Any = None) -> Any:
    fmt = call.format_of(mean, deviation)
    shape = torch.broadcast_shapes(*(x.shape for x in (mean, deviation) if not _is_number(x)))
    drawn = torch.empty(shape, dtype=call.dtype).normal_(generator=generator)
    m, d, z = (call.operand(x, fmt) for x in (mean, deviation, drawn))
    return call.result(shifted_normal.value(call.device, z, m, d))


def _is_number(x: Any) -> bool:
    return isinstance(x, (int, float))


# Bounds -----------------------------------------------------------------------------------------


@aten("clamp.default", of=ops.clamp)
def _clamp(call: Call, x: torch.Tensor, low: Any = None, high: Any = None) -> Any:
    a = call.array(x)
    limits = [None if b is None else call.constant(b, a.format) for b in (low, high)]
    return call.result(ops.clamp.value(call.device, a, low=limits[0], high=limits[1]))


@aten("clamp.Tensor", of=ops.clamp)
def _clamp_by_tensors(
    call: Call, x: torch.Tensor, low: torch.Tensor | None = None, high: torch.Tensor | None = None
) -> Any:
    a, least, most = call.arrays(x, low, high)
    return call.result(ops.clamp.value(call.device, a, low=least, high=most))


@aten("clamp_min.Tensor", "clamp_min.default", of=ops.clamp)
def _clamp_min(call: Call, x: torch.Tensor, low: Any) -> Any:
    return (
        _clamp_by_tensors(call, x, low) if isinstance(low, torch.Tensor) else _clamp(call, x, low)
    )


@aten("clamp_max.Tensor", "clamp_max.default", of=ops.clamp)
def _clamp_max(call: Call, x: torch.Tensor, high: Any) -> Any:
    limit = _clamp_by_tensors if isinstance(high, torch.Tensor) else _clamp
    return limit(call, x, None, high)


@aten("nan_to_num.default", of=ops.finite)
def _nan_to_num(
    call: Call, x: torch.Tensor, nan: float | None = None, posinf: float | None = None,
    neginf: float | None = None,
) -> Any:
    a = call.array(x)
    above, below = (None if n is None else call.constant(n, a.format) for n in (posinf, neginf))
    number = 0.0 if nan is None else call.constant(nan, a.format)
    return call.result(ops.finite.value(call.device, a, nan=number, above=above, below=below))


@aten("nextafter.default", of=ops.next_after)
def _nextafter(call: Call, x: torch.Tensor, y: torch.Tensor) -> Any:
    a, b = call.arrays(x, y)
    if a.format not in ops.NEIGHBOURS:
        raise NotImplementedError(f"aten.nextafter has no rule in {a.format}; use binary16 or f32")
    return call.result(ops.next_after.value(call.device, a, b))
