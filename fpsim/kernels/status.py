"""Reading and writing the processor's floating-point status register from Python.

Source    Intel SDM vol. 1 §10.2.3 (MXCSR).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from fpsim.kernels.compiling import compiled
from fpsim.kernels.guard import load_status, store_status

__all__ = ["exchange_status"]


@intrinsic
def _exchange(typingctx: Any, bits: Any) -> Any:
    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        before = store_status(builder)
        load_status(builder, builder.trunc(args[0], ir.IntType(32)))
        return builder.zext(before, ir.IntType(64))

    return types.int64(types.int64), codegen


def _exchange_status(bits):
    """Set the register (of an x86) to these bits; what it held."""
    return _exchange(np.int64(bits))


exchange_status = compiled(_exchange_status, guarded=False)
