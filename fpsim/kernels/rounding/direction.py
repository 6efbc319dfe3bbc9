"""The processor's rounding direction inside a kernel.

A sum that the processor itself rounds toward zero, up or down, rounded again the same way to fewer
digits, is the exact sum rounded once. Kernels therefore set a direction before their loops; the
guard around every kernel gives back the setting that was found.

Source    Intel SDM vol. 1 §10.2.3 (MXCSR).
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from fpsim.kernels.guard import HAS_STATUS, USUAL, load_status, store_status

__all__ = [
    "DOWN", "FLUSH_OPERANDS", "FLUSH_RESULTS", "HAS_STATUS", "NEAREST", "UP", "ZERO", "raised",
    "set_direction", "set_usual",
]

#: Directions as the status register has them.
NEAREST, DOWN, UP, ZERO = range(4)

#: Bits of the register: tiny results become zero, subnormal operands are zero.
FLUSH_RESULTS, FLUSH_OPERANDS = 1 << 15, 1 << 6

_WORD, _FLAGS = ir.IntType(32), 0x3F


def _fence(builder: Any) -> None:
    """Loads and stores, and the arithmetic between them, stay on their side; costs nothing."""
    builder.fence("seq_cst", "singlethread")


def _setter(shift: int) -> Any:
    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        _fence(builder)
        wanted = builder.shl(builder.trunc(args[0], _WORD), ir.Constant(_WORD, shift))
        load_status(builder, builder.or_(wanted, ir.Constant(_WORD, USUAL)))
        _fence(builder)
        return context.get_constant(types.int64, 0)

    return codegen


@intrinsic
def set_direction(typingctx: Any, direction: Any) -> Any:
    """Round in this direction from here on, with all flags lowered. Returns 0."""
    return types.int64(types.int64), _setter(13)


@intrinsic
def set_usual(typingctx: Any, bits: Any) -> Any:
    """The usual register with these bits beside, all flags lowered. Returns 0."""
    return types.int64(types.int64), _setter(0)


@intrinsic
def raised(typingctx: Any) -> Any:
    """The flags raised since, as the processor numbers them; store the results first."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        _fence(builder)
        flags = builder.and_(store_status(builder), ir.Constant(_WORD, _FLAGS))
        return builder.zext(flags, ir.IntType(64))

    return types.int64(), codegen
