"""Reading and writing the processor's floating-point status word from Python."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.core import types
from numba.extending import intrinsic

from fpsim.kernels.compiling import compiled
from fpsim.kernels.status_register import load_status, room_for_status, store_status

__all__ = ["exchange_status"]


@intrinsic
def _exchange(typingctx: Any, bits: Any) -> Any:
    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        before = store_status(builder)
        load_status(builder, args[0], room_for_status(builder))
        return before

    return types.int64(types.int64), codegen


def _exchange_status(bits):
    """Set the word to these bits; what it held."""
    return _exchange(np.int64(bits))


exchange_status = compiled(_exchange_status, guarded=False)
