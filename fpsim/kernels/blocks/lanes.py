"""Lane operations that blocks need: the largest lane, and codes of four bits side by side."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types

from fpsim.kernels.lanes.formula import instruction

__all__ = ["max_lanes", "store_nibbles"]


@instruction
def max_lanes(typingctx: Any, a: Any) -> Any:
    """The largest of unsigned lanes, as uint64."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        fn = cgutils.get_or_insert_function(
            builder.module,
            ir.FunctionType(a.element, [a.vector]),
            f"llvm.vector.reduce.umax.v{a.n}i{a.width}",
        )
        return builder.zext(builder.call(fn, [args[0]]), ir.IntType(64))

    return types.uint64(a), codegen


@instruction
def store_nibbles(typingctx: Any, pointer: Any, index: Any, codes: Any) -> Any:
    """Bytes from pointer[index] on = pairs of lanes below 16, the first in the low half."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        where, at, value = args
        n = codes.n
        pairs = ir.VectorType(ir.IntType(16), n // 2)
        small = builder.trunc(value, ir.VectorType(ir.IntType(8), n))
        both = builder.bitcast(small, pairs)
        both = builder.or_(both, builder.lshr(both, ir.Constant(pairs, [4] * (n // 2))))
        packed = builder.trunc(both, ir.VectorType(ir.IntType(8), n // 2))
        address = builder.bitcast(builder.gep(where, [at]), packed.type.as_pointer())
        builder.store(packed, address).align = 1
        return context.get_constant(types.int64, 0)

    return types.int64(pointer, types.intp, codes), codegen
