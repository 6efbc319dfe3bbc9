"""Lane operations that products need: broadcasts from memory, cutting to whole numbers, fused
multiply-add, and the processor's sticky inexact flag.

Source    LLVM language reference (llvm.trunc, llvm.fma).
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from fpsim.kernels.lanes.formula import instruction
from fpsim.kernels.lanes.vectors import Lanes, broadcast, unary
from fpsim.kernels.status_register import FLAG_BITS, load_flags, store_flags

__all__ = [
    "add_down",
    "add_up",
    "again",
    "clear_inexact",
    "floats_like",
    "fused",
    "is_index",
    "inexact",
    "item",
    "long_to_float",
    "plus",
    "quiet_add",
    "quiet_fused",
    "quiet_subtract",
    "smax",
    "spread_item",
    "to_whole",
    "to_word",
    "trunc",
    "upper_words",
    "whole_to_float",
    "whole_to_float_cut",
    "word_to_float",
    "word_to_float_cut",
]


def _upper_words(builder: Any, value: Any, a: Lanes, result: Lanes) -> Any:
    words = Lanes("u", 32, 2 * a.n)
    order = ir.Constant(ir.VectorType(ir.IntType(32), words.n), [i | 1 for i in range(words.n)])
    pairs = builder.bitcast(value, words.vector)
    moved = builder.shuffle_vector(pairs, ir.Constant(words.vector, ir.Undefined), order)
    return builder.bitcast(moved, result.vector)


#: The upper word of lanes of 64 bits in both halves: a move, where a shift would wait for the
#: multiplier's port.
upper_words = unary(lambda a: a, _upper_words)


@instruction
def spread_item(typingctx: Any, pointer: Any, index: Any) -> Any:
    """pointer[index] in all lanes of 512 bits: floats of a float array, else unsigned lanes."""
    kind = "f" if isinstance(pointer.dtype, types.Float) else "u"
    lanes = Lanes(kind, pointer.dtype.bitwidth, 512 // pointer.dtype.bitwidth)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return broadcast(builder, builder.load(builder.gep(args[0], [args[1]])), lanes)

    return lanes(pointer, types.intp), codegen


def _math(name: str) -> Any:
    def build(builder: Any, value: Any, a: Lanes, result: Lanes) -> Any:
        fn = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(a.vector, [a.vector]), f"llvm.{name}.v{a.n}f{a.width}"
        )
        return builder.call(fn, [value])

    return build


#: Toward zero to a whole number, as a float.
trunc = unary(lambda a: a, _math("trunc"))


#: A signed integer of 64 bits to binary32, to nearest even.
long_to_float = unary(lambda a: a.of("f", 32), lambda b, v, a, r: b.sitofp(v, r.vector))

#: Toward zero to a signed integer, to an unsigned one, and from there to nearest even.
to_whole = unary(lambda a: a.of("u"), lambda b, v, a, r: b.fptosi(v, r.vector))
to_word = unary(lambda a: a.of("u"), lambda b, v, a, r: b.fptoui(v, r.vector))
word_to_float = unary(lambda a: a.of("f"), lambda b, v, a, r: b.uitofp(v, r.vector))
#: A signed one to nearest even.
whole_to_float = unary(lambda a: a.of("f"), lambda b, v, a, r: b.sitofp(v, r.vector))


@instruction
def floats_like(typingctx: Any, bits: Any, like: Any) -> Any:
    """512 bits as the floats that `like` has."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.bitcast(args[0], like.of("f").vector)

    return like.of("f")(bits, like), codegen


@instruction
def smax(typingctx: Any, a: Any, b: Any) -> Any:
    """The larger of signed integers."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        x, y = args
        return builder.select(builder.icmp_signed(">", x, y), x, y)

    return a(a, a), codegen


def _rounded(builder: Any, name: str, result: ir.Type, args: list[Any], how: int) -> Any:
    """An AVX-512 instruction with its own rounding, silent in the status register."""
    kinds = [*(v.type for v in args), ir.IntType(32)]
    fn = cgutils.get_or_insert_function(builder.module, ir.FunctionType(result, kinds), name)
    return builder.call(fn, [*args, ir.Constant(ir.IntType(32), how)])


def _codegen_quiet(name: str, x: Lanes, how: int) -> Any:
    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        short = "ps" if x.width == 32 else "pd"
        return _rounded(builder, f"llvm.x86.avx512.{name}.{short}.512", x.vector, args, how)

    return codegen


def _quiet(name: str, how: int = 8) -> Any:
    return instruction(lambda typingctx, x, y: (x(x, y), _codegen_quiet(name, x, how)))


#: Sum and difference that leave the inexact flag alone; only where `HAS_QUIET_ADD`.
quiet_add, quiet_subtract = _quiet("add"), _quiet("sub")
#: The sum rounded down, and up; likewise.
add_down, add_up = _quiet("add", 9), _quiet("add", 10)


@instruction
def quiet_fused(typingctx: Any, x: Any, y: Any, z: Any) -> Any:
    """`fused` without the inexact flag; only where `HAS_QUIET_ADD`."""
    return x(x, x, x), _codegen_quiet("vfmadd", x, 8)


def _cut(kind: str) -> Any:
    def build(builder: Any, value: Any, a: Lanes, result: Lanes) -> Any:
        name = f"llvm.x86.avx512.{kind}tofp.round.v{a.n}f{a.width}.v{a.n}i{a.width}"
        return _rounded(builder, name, result.vector, [value], 11)

    return unary(lambda a: a.of("f"), build)


#: An unsigned or signed integer toward zero to binary32; only where `HAS_QUIET_ADD`.
word_to_float_cut, whole_to_float_cut = _cut("ui"), _cut("si")


@instruction
def item(typingctx: Any, pointer: Any, index: Any) -> Any:
    """pointer[index]."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.load(builder.gep(args[0], [args[1]]))

    return pointer.dtype(pointer, types.intp), codegen


@instruction
def moved(typingctx: Any, pointer: Any, index: Any) -> Any:
    """Where pointer[index] stands."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.gep(args[0], [args[1]])

    return pointer(pointer, types.intp), codegen


@instruction
def beside(typingctx: Any, row: Any, index: Any, table: Any, other: Any) -> Any:
    """Where what belongs to row[index] stands in another table, whose elements are as wide.

    `row` points into the first `table`.
    """
    size = other.dtype.bitwidth // 8

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        begin, i, *tables = args
        first, second = (builder.ptrtoint(p, i.type) for p in tables)
        byte = builder.bitcast(begin, ir.IntType(8).as_pointer())
        at = builder.add(builder.mul(i, ir.Constant(i.type, size)), builder.sub(second, first))
        return builder.bitcast(builder.gep(byte, [at]), args[3].type)

    return other(row, types.intp, table, other), codegen


@instruction
def plus(typingctx: Any, i: Any, k: Any) -> Any:
    """The sum of two indices."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.add(*args)

    return types.intp(types.intp, types.intp), codegen


@instruction
def is_index(typingctx: Any, i: Any, k: Any) -> Any:
    """Whether two indices are the same."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.icmp_signed("==", *args)

    return types.boolean(types.intp, types.intp), codegen


@instruction
def again(typingctx: Any, i: Any) -> Any:
    """An index that the compiler does not know to be i.

    What is read there is not kept in a register from the reading at i: a broadcast that is used
    once is part of the instruction that uses it.
    """

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        index = args[0].type
        return builder.asm(ir.FunctionType(index, [index]), "", "=r,0", args, side_effect=False)

    return types.intp(types.intp), codegen


@instruction
def fused(typingctx: Any, x: Any, y: Any, z: Any) -> Any:
    """x * y + z, rounded once by the processor; only where `HAS_FMA`."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        fn = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(x.vector, [x.vector] * 3), f"llvm.fma.v{x.n}f{x.width}"
        )
        return builder.call(fn, args)

    return x(x, x, x), codegen


@intrinsic
def inexact(typingctx: Any) -> Any:
    """Whether an operation was inexact since `clear_inexact`. Store its results first.

    LLVM does not know that arithmetic writes this flag; a store that the read cannot pass pins it.
    """

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        status = store_flags(builder)
        shift = ir.Constant(status.type, FLAG_BITS[0])
        return builder.trunc(builder.lshr(status, shift), ir.IntType(1))

    return types.boolean(), codegen


@intrinsic
def clear_inexact(typingctx: Any) -> Any:
    """Lower the inexact flag and leave every other bit of the status. Returns 0."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        status = store_flags(builder)
        others = ir.Constant(status.type, 0xFFFFFFFF & ~(1 << FLAG_BITS[0]))
        load_flags(builder, builder.and_(status, others))
        return context.get_constant(types.int64, 0)

    return types.int64(), codegen
