"""Vectors of n lanes as a numba type, so that a kernel reads like the scalar formula it computes.

A value of type `Lanes` is one LLVM vector: 512 bits wide (16 lanes of 32 bits or 8 of 64), which
the compiler splits where the processor has narrower registers, or as wide as a register (see
`fpsim.kernels.target`). One source therefore serves every
machine, and nothing depends on the auto-vectoriser (it computes 32-bit integers in 64 bits).

Inside compiled code
    splat(x, U32)                    a scalar in every lane; operators also take scalars directly
    + - * / & | ^ << >> ~ < <= > >= == !=      lane by lane; comparisons give a mask
    select(mask, a, b), umin, umax, as_float, as_bits, widen, narrow, sqrt, any_lane, or_lanes
Loads and stores are in `fpsim.kernels.lanes.memory`; a `formula` (`fpsim.kernels.lanes.formula`)
joins several.

Shifts by the lane width or more are undefined: clamp the counts.
"""

from __future__ import annotations

import operator
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.imputils import lower_constant
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import lower_builtin, models, register_model, typeof_impl

from fpsim.kernels.lanes.formula import (
    OPERATORS,
    FormulaInstruction,
    InsertionPoint,
    Term,
    instruction,
)

__all__ = [
    "F32", "F64", "Lanes", "U32", "U64", "VECTOR_WIDTH", "any_lane", "as_bits", "as_float",
    "broadcast", "concat", "high_half", "infinity_like", "iota", "is_nan", "lanes_of", "low_half",
    "narrow", "or_lanes", "pairs_apart", "pairs_joined", "quiet_like", "select", "sign_like",
    "splat", "sqrt", "umax", "umin", "unary", "widen", "width_of",
]


#: Lanes of 32 bits in a vector of 512 bits.
VECTOR_WIDTH = 16


class Lanes(types.Type):
    """n lanes of unsigned integers (u), floats (f) or truth values (m).

    Floats of 16 bits are only for processors that compute with them (see `HAS_HALF`).
    """

    def __init__(self, kind: str, width: int, n: int) -> None:
        self.kind, self.width, self.n = kind, width, n
        super().__init__(name=f"{kind}{width}x{n}")

    @property
    def element(self) -> ir.Type:
        if self.kind == "f":
            return {16: ir.HalfType, 32: ir.FloatType, 64: ir.DoubleType}[self.width]()
        return ir.IntType(self.width if self.kind == "u" else 1)

    @property
    def vector(self) -> ir.Type:
        return ir.VectorType(self.element, self.n)

    def of(self, kind: str, width: int | None = None) -> Lanes:
        """The type with as many lanes of another kind; truth values have no width of their own."""
        return Lanes(kind, 1 if kind == "m" else width or self.width, self.n)


@register_model(Lanes)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, dmm: Any, fe_type: Lanes) -> None:
        super().__init__(dmm, fe_type, fe_type.vector)


class LaneKind:
    """Names a lane type inside compiled code: U32, F32, U64, F64."""

    def __init__(self, lanes: Lanes) -> None:
        self.lanes = lanes


class LaneKindType(types.Type):
    """Numba's type of a `LaneKind`: the lanes it names are known at compile time."""

    def __init__(self, lanes: Lanes) -> None:
        self.lanes = lanes
        super().__init__(name=f"kind_{lanes.name}")


register_model(LaneKindType)(models.OpaqueModel)


@typeof_impl.register(LaneKind)
def _typeof_kind(value: LaneKind, _context: Any) -> LaneKindType:
    return LaneKindType(value.lanes)


@lower_constant(LaneKindType)
def _constant_kind(context: Any, builder: Any, ty: Any, pyval: Any) -> Any:
    return context.get_dummy_value()


U32, F32 = LaneKind(Lanes("u", 32, 16)), LaneKind(Lanes("f", 32, 16))
U64, F64 = LaneKind(Lanes("u", 64, 8)), LaneKind(Lanes("f", 64, 8))


# Building blocks ------------------------------------------------------------------------------


def broadcast(builder: Any, scalar: Any, lanes: Lanes) -> Any:
    """A scalar of the lanes' element type in every lane."""
    if isinstance(scalar, ir.Constant):
        return ir.Constant(lanes.vector, [scalar] * lanes.n)
    first = builder.insert_element(
        ir.Constant(lanes.vector, ir.Undefined), scalar, ir.Constant(ir.IntType(32), 0)
    )
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), lanes.n), [0] * lanes.n)
    return builder.shuffle_vector(first, ir.Constant(lanes.vector, ir.Undefined), zeros)


def _scalar_to_lanes(context: Any, builder: Any, value: Any, ty: Any, lanes: Lanes) -> Any:
    if lanes.kind == "f":
        wide = context.cast(builder, value, ty, types.float64)
        if lanes.width < 64:
            wide = builder.fptrunc(wide, lanes.element)
        return broadcast(builder, wide, lanes)
    if isinstance(ty, types.Boolean):
        value = context.cast(builder, value, ty, types.uint64)
        ty = types.uint64
    bits = context.get_value_type(ty).width
    if bits < lanes.width:
        value = context.cast(builder, value, ty, types.uint64)
        bits = 64
    if bits > lanes.width:
        value = builder.trunc(value, lanes.element)
    return broadcast(builder, value, lanes)


# Operators ------------------------------------------------------------------------------------

_INTEGER = {
    operator.add: "add", operator.sub: "sub", operator.mul: "mul", operator.and_: "and_",
    operator.or_: "or_", operator.xor: "xor", operator.lshift: "shl", operator.rshift: "lshr",
}
_FLOAT = {
    operator.add: "fadd", operator.sub: "fsub", operator.mul: "fmul", operator.truediv: "fdiv",
}
_MASK = {operator.and_: "and_", operator.or_: "or_", operator.xor: "xor"}
_COMPARE = {
    operator.lt: "<", operator.le: "<=", operator.gt: ">", operator.ge: ">=",
    operator.eq: "==", operator.ne: "!=",
}
_TABLES = {"u": _INTEGER, "f": _FLOAT, "m": _MASK}


def _common(args: Any) -> Lanes | None:
    """The lane type two operands agree on: equal lanes, or lanes and a scalar."""
    a, b = (types.unliteral(t) for t in args)
    if isinstance(a, Lanes) and (a == b or isinstance(b, (types.Number, types.Boolean))):
        return a
    if isinstance(b, Lanes) and isinstance(a, (types.Number, types.Boolean)):
        return b
    return None


def _result(op: Any, args: Any) -> Lanes | None:
    """Lanes that an operator gives, or None where it has no meaning."""
    if op is operator.invert:
        return args[0] if isinstance(args[0], Lanes) and args[0].kind in "um" else None
    lanes = _common(args)
    if lanes is None:
        return None
    if op in _COMPARE and lanes.kind != "m":
        return lanes.of("m")
    return lanes if op in _TABLES[lanes.kind] else None


def _emit(op: Any, point: InsertionPoint, kinds: Any, values: Any) -> Any:
    context, builder = point
    if op is operator.invert:
        return builder.not_(values[0])
    lanes = _common(kinds)
    assert lanes is not None
    a, b = (
        v if isinstance(t, Lanes) else _scalar_to_lanes(context, builder, v, t, lanes)
        for v, t in zip(values, kinds, strict=True)
    )
    if op in _COMPARE:
        compare = builder.icmp_unsigned if lanes.kind == "u" else builder.fcmp_ordered
        return compare(_COMPARE[op], a, b)
    return getattr(builder, _TABLES[lanes.kind][op])(a, b)


def _register(op: Any, *operands: tuple[Any, ...]) -> None:
    OPERATORS[op] = _result, _emit

    @infer_global(op)
    class Template(AbstractTemplate):
        def generic(self, args: Any, kws: Any) -> Any:
            if kws or len(args) != len(operands[0]):
                return None
            lanes = _result(op, args)
            return lanes and signature(lanes, *args)

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return _emit(op, InsertionPoint(context, builder), sig.args, args)

    for kinds in operands:
        lower_builtin(op, *kinds)(lower)


_PAIRS = (
    (Lanes, Lanes), (Lanes, types.Number), (types.Number, Lanes), (Lanes, types.Boolean)
)
for _op in {*_INTEGER, *_FLOAT, *_COMPARE}:
    _register(_op, *_PAIRS)
_register(operator.invert, (Lanes,))


# Making and choosing --------------------------------------------------------------------------


@instruction
def splat(typingctx: Any, scalar: Any, kind: Any) -> Any:
    """A scalar in every lane (integers modulo the lane width)."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return _scalar_to_lanes(context, builder, args[0], sig.args[0], kind.lanes)

    return kind.lanes(types.unliteral(scalar), kind), codegen


def _width(typingctx: Any, value: Any) -> Any:
    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return context.get_constant(types.int64, value.width)

    return types.int64(value), codegen


class _Width(FormulaInstruction):
    """Bits of a lane, a constant to the compiler and a plain number in a formula."""

    def __call__(self, value: Term) -> int:
        width: int = value.type.width
        return width


width_of = _Width("width_of", _width)
width_of._register()


def _count(typingctx: Any, value: Any) -> Any:
    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return context.get_constant(types.int64, value.n)

    return types.int64(value), codegen


class _Count(FormulaInstruction):
    """How many lanes a vector has, known as `width_of` is."""

    def __call__(self, value: Term) -> int:
        count: int = value.type.n
        return count


lanes_of = _Count("lanes_of", _count)
lanes_of._register()


@instruction
def iota(typingctx: Any, kind: Any) -> Any:
    """0, 1, 2, … in lanes of a kind, or in as many as a vector of integers has."""
    lanes = getattr(kind, "lanes", kind)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return ir.Constant(lanes.vector, list(range(lanes.n)))

    return lanes(kind), codegen


@instruction
def select(typingctx: Any, mask: Any, a: Any, b: Any) -> Any:
    """a where mask, else b."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.select(*args)

    return a(mask, a, a), codegen


def _min_max(relation: str) -> Any:
    def typer(typingctx: Any, a: Any, b: Any) -> Any:
        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            x, y = args
            return builder.select(builder.icmp_unsigned(relation, x, y), x, y)

        return a(a, a), codegen

    return typer


umin = instruction(_min_max("<"))
umax = instruction(_min_max(">"))


# Reinterpreting and converting ----------------------------------------------------------------


def unary(typer_result: Any, build: Any) -> Any:
    def typer(typingctx: Any, a: Any) -> Any:
        result = typer_result(a)

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            return build(builder, args[0], sig.args[0], result)

        return result(a), codegen

    return instruction(typer)


#: The same bits read as floats, as unsigned integers.
as_float = unary(lambda a: a.of("f"), lambda b, v, a, r: b.bitcast(v, r.vector))
as_bits = unary(lambda a: a.of("u"), lambda b, v, a, r: b.bitcast(v, r.vector))


def _widen(builder: Any, value: Any, a: Lanes, result: Lanes) -> Any:
    return (builder.fpext if a.kind == "f" else builder.zext)(value, result.vector)


def _narrow(builder: Any, value: Any, a: Lanes, result: Lanes) -> Any:
    return (builder.fptrunc if a.kind == "f" else builder.trunc)(value, result.vector)


#: 32 to 64 bits (floats exactly), and back (floats to nearest even; integers keep the low half).
widen = unary(lambda a: a.of(a.kind, 64), _widen)
narrow = unary(lambda a: a.of(a.kind, 32), _narrow)


def _sqrt(builder: Any, value: Any, a: Lanes, result: Lanes) -> Any:
    fn = cgutils.get_or_insert_function(
        builder.module,
        ir.FunctionType(a.vector, [a.vector]),
        f"llvm.sqrt.v{a.n}f{a.width}",
    )
    return builder.call(fn, [value])


sqrt = unary(lambda a: a, _sqrt)


def _rebit(width: int) -> Any:
    def result(a: Lanes) -> Lanes:
        return Lanes("u", width, a.width * a.n // width)

    return unary(result, lambda b, v, a, r: b.bitcast(v, r.vector))


#: The same 512 bits as pairs joined to 64-bit lanes, and taken apart again.
pairs_joined = _rebit(64)
pairs_apart = _rebit(32)


def _shuffle(builder: Any, value: Any, a: Lanes, result: Lanes, first: int) -> Any:
    order = ir.Constant(
        ir.VectorType(ir.IntType(32), result.n), [first + i for i in range(result.n)]
    )
    return builder.shuffle_vector(value, ir.Constant(a.vector, ir.Undefined), order)


low_half = unary(
    lambda a: Lanes(a.kind, a.width, a.n // 2), lambda b, v, a, r: _shuffle(b, v, a, r, 0)
)
high_half = unary(
    lambda a: Lanes(a.kind, a.width, a.n // 2), lambda b, v, a, r: _shuffle(b, v, a, r, r.n)
)


@instruction
def concat(typingctx: Any, a: Any, b: Any) -> Any:
    """The lanes of a, then those of b."""
    result = Lanes(a.kind, a.width, 2 * a.n)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        order = ir.Constant(ir.VectorType(ir.IntType(32), result.n), list(range(result.n)))
        return builder.shuffle_vector(args[0], args[1], order)

    return result(a, a), codegen


# Landmarks of the floats --------------------------------------------------------------------


def _pattern(value_of: Any) -> Any:
    """One constant in all lanes, as wide as those given."""

    def build(builder: Any, value: Any, a: Lanes, result: Lanes) -> Any:
        return ir.Constant(result.vector, [ir.Constant(result.element, value_of(a.width))] * a.n)

    return unary(lambda a: a.of("u"), build)


sign_like = _pattern(lambda width: 1 << (width - 1))
infinity_like = _pattern({16: 0x7C00, 32: 0x7F800000, 64: 0x7FF0000000000000}.__getitem__)
#: The top fraction bit, which quiet NaNs have set.
quiet_like = _pattern({16: 1 << 9, 32: 1 << 22, 64: 1 << 51}.__getitem__)
is_nan = unary(lambda a: a.of("m"), lambda b, v, a, r: b.fcmp_unordered("uno", v, v))


# Across lanes ---------------------------------------------------------------------------------


@instruction
def any_lane(typingctx: Any, mask: Any) -> Any:
    """Whether the mask holds in any lane."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        whole = ir.IntType(mask.n)
        return builder.icmp_unsigned("!=", builder.bitcast(args[0], whole), ir.Constant(whole, 0))

    return types.boolean(mask), codegen


@instruction
def or_lanes(typingctx: Any, a: Any) -> Any:
    """Bitwise or of all lanes, as uint64."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        fn = cgutils.get_or_insert_function(
            builder.module,
            ir.FunctionType(a.element, [a.vector]),
            f"llvm.vector.reduce.or.v{a.n}i{a.width}",
        )
        value = builder.call(fn, [args[0]])
        return value if a.width == 64 else builder.zext(value, ir.IntType(64))

    return types.uint64(a), codegen
