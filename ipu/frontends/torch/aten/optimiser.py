"""Operations that optimisers and gradient scalers are made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from fpsim.array import Array
from fpsim.records.formats import Format
from ipu import ops
from ipu.frontends.torch.aten.table import Call, aten
from ipu.frontends.torch.values import EIGHTHS, FORMATS, WEIGHT, to_narrow
from ipu.ops.primitive import Primitive
from ipu.ops.updates.scales import unscaled

__all__: list[str] = []


@aten("addcmul.default", of=ops.addcmul)
def _addcmul(
    call: Call, x: torch.Tensor, y: torch.Tensor, z: torch.Tensor, *, value: float = 1
) -> Any:
    return _combined(call, ops.addcmul, x, y, z, value)


@aten("addcdiv.default", of=ops.addcdiv)
def _addcdiv(
    call: Call, x: torch.Tensor, y: torch.Tensor, z: torch.Tensor, *, value: float = 1
) -> Any:
    return _combined(call, ops.addcdiv, x, y, z, value)


def _combined(call: Call, row: Primitive, x: Any, y: Any, z: Any, value: float) -> Any:
    a, b, c = call.arrays(x, y, z)
    factor = 1.0 if value == 1 else call.constant(value, a.format)
    return call.result(row.value(call.device, a, b, c, factor=factor))


@aten("lerp.Scalar", "lerp.Tensor", of=ops.lerp)
def _lerp(call: Call, x: torch.Tensor, y: torch.Tensor, weight: Any) -> Any:
    return call.result(ops.lerp.value(call.device, *call.arrays(x, y, weight)))


# Gradient scalers -------------------------------------------------------------------------------


@aten(
    "_amp_foreach_non_finite_check_and_unscale_.default", rounding="times 1/scale in binary32, once"
)
def _unscale(
    call: Call, gradients: Sequence[torch.Tensor], found_inf: torch.Tensor, inverse: torch.Tensor
) -> Any:
    scale = float(inverse)
    has_overflown = call.device.status.oflo or call.device.status.inv
    for gradient in gradients:
        g = call.array(gradient)
        is_hidden = _hides_overflow(call, g.format)
        if (is_hidden and has_overflown) or not np.isfinite(g.carrier).all():
            found_inf.fill_(1.0)
        if scale != 1:
            smaller = call.device.cast(unscaled(call.device, g, scale), g.format)
            gradient.copy_(call.memory.write(smaller, gradient.dtype))
            call.memory.mark(gradient, g.format)


def _hides_overflow(call: Call, held: Format) -> bool:
    """Whether a scaler has to ask the status register, as overflow of the passes saturates.

    Raises    RuntimeError where it looks at values alone.

    The formats that count are those in which the pass computed: under autocast gradients of
    binary32 parameters come from binary16.
    """
    for fmt in sorted({held, *call.memory.of_passes}, key=str):
        if call.device.context(fmt).core.settings.overflow == "saturate":
            if call.found_inf == "status":
                call.run.account.asks_status = True
                return True
            raise RuntimeError(
                f"a gradient scaler looks for infinities, and overflow in {fmt} saturates here; "
                "use machine(nanoo=True), where it gives NaN, or machine(found_inf='status') to "
                "read the status register of the backward pass (fpsim torch: --nanoo, --found-inf "
                "status)"
            )
    return False


@aten("_amp_update_scale_.default", rounding="on the host, as torch does")
def _update_scale(
    call: Call, scale: torch.Tensor, growth: torch.Tensor, found_inf: torch.Tensor, up: float,
    down: float, interval: int,
) -> Any:
    # The scale is a number of the host: it is no tensor of the machine.
    return torch.ops.aten._amp_update_scale_.default(scale, growth, found_inf, up, down, interval)


#: Data types of scales, without arithmetic.
_SCALES = (torch.float8_e8m0fnu, torch.float4_e2m1fn_x2)


# Casts ----------------------------------------------------------------------------------------


@aten("_to_copy.default", rounding="once, to a narrower format")
def _to_copy(
    call: Call, x: torch.Tensor, *, dtype: torch.dtype | None = None, **options: Any
) -> Any:
    dtype = dtype or x.dtype
    device, memory = options.get("device"), call.memory
    if device is not None and torch.device(device).type == "meta":
        return NotImplemented
    if dtype in _SCALES:
        return NotImplemented
    held = memory.format_of(x)
    if held is None and x.dtype == torch.float32 and dtype in EIGHTHS:
        held = call.policy.activations  # rounded as data first: torch's cast is its own
    if x.dtype == torch.float64 and dtype in EIGHTHS:
        return memory.cast_wide(x, dtype)
    if x.dtype == torch.float64 and dtype in FORMATS:
        x = to_narrow(x, dtype)
    if held is None or not dtype.is_floating_point or dtype == torch.float64:
        # Integers and values from outside: torch converts them on the host, to nearest.
        return torch.ops.aten._to_copy.default(x, dtype=dtype, **options)
    result = torch.ops.aten._to_copy.default(x, dtype=torch.float32, **options)
    if dtype == torch.float32:
        memory.mark(result, held)
        return result
    if memory.format_of(x) is None:
        array = memory.read(x, held)
    else:
        array = Array(result.numpy(), call.device.context(held))
    copy = memory.write(array, dtype)
    if memory.role_of(x) == WEIGHT:
        memory.give_role(copy, WEIGHT)
    return memory.laid_as_operands(copy, (result,))
