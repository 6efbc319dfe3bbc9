"""The processor's rounding direction inside a kernel, and the flags that it raises there.

A sum that the processor itself rounds toward zero, up or down, rounded again the same way to fewer
digits, is the exact sum rounded once. Kernels therefore set a direction before their loops; the
guard around every kernel gives back the setting that was found.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from fpsim.kernels.status_register import (
    FLAG_BITS,
    USUAL,
    fence,
    load_status,
    room_for_status,
    store_flags,
)

__all__ = ["raised", "set_modes"]

_WORD = ir.IntType(64)


@intrinsic
def set_modes(typingctx: Any, modes: Any) -> Any:
    """The usual status with these modes beside (TOWARD_ZERO), all flags lowered. Returns 0."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        fence(builder)
        wanted = builder.or_(args[0], ir.Constant(_WORD, USUAL))
        load_status(builder, wanted, room_for_status(builder))
        fence(builder)
        return context.get_constant(types.int64, 0)

    return types.int64(types.int64), codegen


@intrinsic
def raised(typingctx: Any) -> Any:
    """The flags raised since, INEXACT in the lowest bit up to INVALID; store the results first.

    UNDERFLOW by the processor's own rule, see TININESS in `fpsim.kernels.status_register`.
    """

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        fence(builder)
        status, flags, one = store_flags(builder), ir.Constant(_WORD, 0), ir.Constant(_WORD, 1)
        for place, bit in enumerate(FLAG_BITS):
            flag = builder.and_(builder.lshr(status, ir.Constant(_WORD, bit)), one)
            flags = builder.or_(flags, builder.shl(flag, ir.Constant(_WORD, place)))
        return flags

    return types.int64(), codegen
