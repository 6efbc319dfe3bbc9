"""Lanes in memory: pointers, loads that widen, stores that narrow, room on the stack.

`load` and `store` take an array or a pointer, and move bits: the array's type says how wide an
element is. Inner loops pass pointers (see `pointer`).
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types

from fpsim.kernels.lanes.formula import instruction
from fpsim.kernels.lanes.vectors import Lanes, broadcast
from fpsim.kernels.target import PRODUCT_BITS

__all__ = [
    "copy_item", "copy_items", "load", "load_few", "load_float", "load_raw", "load_word", "pointer",
    "room", "splat_item", "splat_register", "spread_like", "store", "store_few", "store_float",
    "store_low", "stream_float", "transpose",
]


def _address(context: Any, builder: Any, ty: Any, array: Any, index: Any, vector: Any) -> Any:
    data = array
    if isinstance(ty, types.Array):
        data = context.make_array(ty)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [index]), vector.as_pointer())


@instruction
def pointer(typingctx: Any, array: Any) -> Any:
    """Where an array's elements begin; `load` and `store` take it instead of the array.

    An array handed to a function is a counted reference: two calls for each vector, many times the
    cost of the arithmetic. Inner loops therefore work on pointers.
    """
    address = types.CPointer(array.dtype)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return context.make_array(sig.args[0])(context, builder, args[0]).data

    return address(array), codegen


def _loader(array: Any, lanes: Lanes) -> Any:
    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        address = _address(context, builder, sig.args[0], args[0], args[1], lanes.vector)
        value = builder.load(address)
        value.align = array.dtype.bitwidth // 8
        return value

    return codegen


@instruction
def load(typingctx: Any, array: Any, index: Any) -> Any:
    """512 bits from array[index] on, as unsigned lanes of the array's own width."""
    width = array.dtype.bitwidth
    lanes = Lanes("u", width, 512 // width)
    return lanes(array, types.intp), _loader(array, lanes)


@instruction
def load_raw(typingctx: Any, array: Any, index: Any, like: Any) -> Any:
    """As many elements as `like` has lanes, as unsigned lanes of the array's own width."""
    lanes = Lanes("u", array.dtype.bitwidth, like.n)
    return lanes(array, types.intp, like), _loader(array, lanes)


def _widening_load(array: Any, like: Lanes, kind: str) -> tuple[Lanes, Any]:
    """Elements of an array in lanes as wide as `like`: the lanes, and the code that loads them."""
    raw, lanes = Lanes(kind, array.dtype.bitwidth, like.n), like.of(kind)
    load_lanes = _loader(array, raw)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        value = load_lanes(context, builder, sig, args)
        if raw == lanes:
            return value
        return (builder.fpext if kind == "f" else builder.zext)(value, lanes.vector)

    return lanes, codegen


@instruction
def load_float(typingctx: Any, array: Any, index: Any, like: Any) -> Any:
    """As many floats as `like` has lanes, in lanes of its width (widening is exact)."""
    lanes, codegen = _widening_load(array, like, "f")
    return lanes(array, types.intp, like), codegen


@instruction
def load_word(typingctx: Any, array: Any, index: Any, like: Any) -> Any:
    """As many unsigned words as `like` has lanes, in lanes of its width (zeros above)."""
    lanes, codegen = _widening_load(array, like, "u")
    return lanes(array, types.intp, like), codegen


def _masked(name: str, builder: Any, lanes: Lanes, address: Any, count: Any, value: Any) -> Any:
    """A load or store of the first `count` lanes; the others are zeros, or memory as it was."""
    number = ir.VectorType(count.type, lanes.n)
    order = ir.Constant(number, list(range(lanes.n)))
    counts = broadcast(builder, count, Lanes("u", 64, lanes.n))
    mask, align = builder.icmp_signed("<", order, counts), ir.Constant(ir.IntType(32), 4)
    loads = name == "load"
    arguments = [address, align, mask, value] if loads else [value, address, align, mask]
    kind = ir.FunctionType(lanes.vector if loads else ir.VoidType(), [a.type for a in arguments])
    full = f"llvm.masked.{name}.v{lanes.n}f{lanes.width}.p0"
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, full), arguments)


@instruction
def load_few(typingctx: Any, array: Any, index: Any, count: Any, like: Any) -> Any:
    """As `load_float` the first `count` floats of binary32; the other lanes are zeros."""
    raw, lanes = Lanes("f", 32, like.n), like.of("f")

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        address = _address(context, builder, sig.args[0], args[0], args[1], raw.vector)
        zeros = ir.Constant(raw.vector, [0.0] * raw.n)
        value = _masked("load", builder, raw, address, args[2], zeros)
        return value if raw == lanes else builder.fpext(value, lanes.vector)

    return lanes(array, types.intp, types.intp, like), codegen


@instruction
def store_few(typingctx: Any, array: Any, index: Any, count: Any, bits: Any) -> Any:
    """As `store_float` the first `count` floats, into binary32; returns 0."""
    raw = bits.of("f", 32)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        address = _address(context, builder, sig.args[0], args[0], args[1], raw.vector)
        value = builder.bitcast(args[3], bits.of("f").vector)
        if bits.width > 32:
            value = builder.fptrunc(value, raw.vector)
        _masked("store", builder, raw, address, args[2], value)
        return context.get_constant(types.int64, 0)

    return types.int64(array, types.intp, types.intp, bits), codegen


def _keep(builder: Any, context: Any, sig: Any, args: Any, align: int) -> Any:
    address = _address(context, builder, sig.args[0], args[0], args[1], args[2].type)
    written = builder.store(args[2], address)
    written.align = align
    return written


def _float_keeper(array: Any, bits: Lanes, stream: bool) -> Any:
    width = array.dtype.bitwidth

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        if width < bits.width:
            value = builder.bitcast(args[2], bits.of("f").vector)
            args = (*args[:2], builder.fptrunc(value, bits.of("f", width).vector))
        if width > bits.width:
            value = builder.bitcast(args[2], bits.of("f").vector)
            args = (*args[:2], builder.fpext(value, bits.of("f", width).vector))
        written = _keep(builder, context, sig, args, width * bits.n // 8 if stream else width // 8)
        if stream:
            one = builder.module.add_metadata([ir.Constant(ir.IntType(32), 1)])
            written.set_metadata("nontemporal", one)
        return context.get_constant(types.int64, 0)

    return codegen


@instruction
def store(typingctx: Any, array: Any, index: Any, value: Any) -> Any:
    """array[index:index + n] = lanes of the array's own width, as bits. Returns 0."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        _keep(builder, context, sig, args, array.dtype.bitwidth // 8)
        return context.get_constant(types.int64, 0)

    return types.int64(array, types.intp, value), codegen


@instruction
def store_float(typingctx: Any, array: Any, index: Any, bits: Any) -> Any:
    """array[index:index + n] = the floats with these bits, narrowed or widened; returns 0."""
    codegen = _float_keeper(array, bits, stream=False)
    return types.int64(array, types.intp, bits), codegen


@instruction
def stream_float(typingctx: Any, array: Any, index: Any, bits: Any, streaming: Any) -> Any:
    """As `store_float`; where `streaming`, past the caches: no line is read first.

    A streamed address must be a multiple of the vector's bytes.
    """
    past, usual = (_float_keeper(array, bits, stream=stream) for stream in (True, False))

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        with builder.if_else(args[3]) as (then, otherwise):
            with then:
                past(context, builder, sig, args[:3])
            with otherwise:
                usual(context, builder, sig, args[:3])
        return context.get_constant(types.int64, 0)

    return types.int64(array, types.intp, bits, types.boolean), codegen


@instruction
def store_low(typingctx: Any, array: Any, index: Any, value: Any) -> Any:
    """array[index:index + n] = the low bits of the lanes, as many as an element has. Returns 0."""
    width = array.dtype.bitwidth

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        if width < value.width:
            args = (*args[:2], builder.trunc(args[2], value.of("u", width).vector))
        _keep(builder, context, sig, args, width // 8)
        return context.get_constant(types.int64, 0)

    return types.int64(array, types.intp, value), codegen


@instruction
def room(typingctx: Any, array: Any, n: Any) -> Any:
    """A pointer to n elements of an array's type on the stack (n a literal), not initialised."""
    if not isinstance(n, types.IntegerLiteral):
        return None  # numba asks again with the literal
    address = types.CPointer(array.dtype)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        with builder.goto_entry_block():
            data = builder.alloca(
                context.get_data_type(array.dtype), ir.Constant(ir.IntType(64), n.literal_value)
            )
            data.align = 64
        return data

    return address(array, n), codegen


@instruction
def copy_item(typingctx: Any, target: Any, i: Any, source: Any, k: Any) -> Any:
    """target[i] = source[k] by pointers to elements of one type, as bits. Returns 0."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        value = builder.load(builder.gep(args[2], [args[3]]))
        builder.store(value, builder.gep(args[0], [args[1]]))
        return context.get_constant(types.int64, 0)

    return types.int64(target, types.intp, source, types.intp), codegen


@instruction
def copy_items(typingctx: Any, target: Any, source: Any, first: Any, last: Any, n: Any) -> Any:
    """target[:n] = source[first:] by pointers, source[last] being repeated. Returns 0."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        to, origin, begin, end, count = args
        with cgutils.for_range(builder, count) as loop:
            at = builder.add(begin, loop.index)
            at = builder.select(builder.icmp_signed("<", at, end), at, end)
            builder.store(builder.load(builder.gep(origin, [at])), builder.gep(to, [loop.index]))
        return context.get_constant(types.int64, 0)

    return types.int64(target, source, types.intp, types.intp, types.intp), codegen


def _splat(array: Any, bits: int) -> Any:
    width = array.dtype.bitwidth
    lanes = Lanes("u", width, bits // width)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        data = context.make_array(sig.args[0])(context, builder, args[0]).data
        return broadcast(builder, builder.load(builder.gep(data, [args[1]])), lanes)

    return lanes(array, types.intp), codegen


@instruction
def splat_item(typingctx: Any, array: Any, index: Any) -> Any:
    """array[index] in all lanes of 512 bits; the array's type says how wide a lane is."""
    return _splat(array, 512)


@instruction
def splat_register(typingctx: Any, array: Any, index: Any) -> Any:
    """array[index] in all lanes of a register of products."""
    return _splat(array, PRODUCT_BITS)


@instruction
def spread_like(typingctx: Any, pointer: Any, index: Any, like: Any) -> Any:
    """pointer[index] all over a vector as large as `like`: floats of a float array, else unsigned.

    A word of two numbers of 16 bits fills half as many lanes as they will.
    """
    kind, width = "f" if isinstance(pointer.dtype, types.Float) else "u", pointer.dtype.bitwidth
    lanes = Lanes(kind, width, like.n * like.width // width)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return broadcast(builder, builder.load(builder.gep(args[0], [args[1]])), lanes)

    return lanes(pointer, types.intp, like), codegen


@instruction
def transpose(typingctx: Any, pointer: Any, index: Any, like: Any) -> Any:
    """As many rows as `like` has lanes, of as many floats, become columns. Returns 0.

    Rows half of all apart are interleaved; each time the numbers of rows and lanes, written in
    bits one behind the other, turn by a bit.
    """
    n, lanes = like.n, Lanes("f", pointer.dtype.bitwidth, like.n)
    number = ir.IntType(32)
    orders = [
        ir.Constant(ir.VectorType(number, n), [first + i // 2 + n * (i % 2) for i in range(n)])
        for first in (0, n // 2)
    ]

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        address = _address(context, builder, sig.args[0], args[0], args[1], lanes.vector)
        places = [builder.gep(address, [ir.Constant(number, i)]) for i in range(n)]
        rows = [builder.load(place, align=4) for place in places]
        for _ in range(n.bit_length() - 1):
            pairs = zip(rows[: n // 2], rows[n // 2 :], strict=True)
            rows = [builder.shuffle_vector(a, b, order) for a, b in pairs for order in orders]
        for row, place in zip(rows, places, strict=True):
            builder.store(row, place, align=4)
        return context.get_constant(types.int64, 0)

    return types.int64(pointer, types.intp, like), codegen
