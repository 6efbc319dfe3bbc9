"""Formulas of the kernels as terms of a solver: what stands in for the instruction builder.

The functions that write LLVM instructions into a kernel are run unchanged; the builder that they
call makes terms. One lane stands for all of them: no instruction here moves values between lanes,
and where a formula asks for "any lane", the other lanes may answer either way. An instruction that
is not known here is refused, never guessed.

Between plain numbers everything is computed, so a replayed formula can be compared with the kernel.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable, Iterator
from typing import Any

from llvmlite import ir
from numba.core import types
from numba.core.registry import cpu_target

from fpsim.judge.proofs.terms import Real, Theory, Truth, Word, choose
from fpsim.kernels.lanes.formula import InsertionPoint, Term
from fpsim.kernels.lanes.vectors import Lanes

__all__ = ["TermBuilder", "LaneValue", "MemoryPlace", "UnknownInstructionError"]


class UnknownInstructionError(NotImplementedError):
    """A formula used an instruction whose meaning is not written down here."""


class LaneValue:
    """One lane of a value: unsigned bits, a float, or a truth value."""

    def __init__(self, content: Word | Real | Truth) -> None:
        self.content = content
        self.align = 0

    @property
    def type(self) -> ir.Type:
        """That of the one lane; a pointer to it is a pointer to its elements."""
        if isinstance(self.content, Real):
            return _TYPES[self.content.width]
        return ir.IntType(1 if isinstance(self.content, Truth) else self.content.width)

    def set_metadata(self, *_: Any) -> None:
        """How memory is written concerns no value."""


class MemoryPlace:
    """A pointer: a named piece of memory, and the number of an element."""

    def __init__(self, name: str, index: int, element: ir.Type) -> None:
        self.name, self.index, self.element = name, index, element
        self.type = element.as_pointer()


class _Joined:
    """What a branch and the way around it give; `LaneValue` once both are known."""

    def __init__(self, builder: TermBuilder) -> None:
        self.builder = builder
        self.sides: list[tuple[Any, str]] = []

    def add_incoming(self, value: Any, block: str) -> None:
        self.sides.append((value, block))

    @property
    def type(self) -> ir.Type:
        return self.lane().type

    def lane(self) -> LaneValue:
        (inside, block), (around, _) = self.sides
        return self.builder.select(self.builder.entered[block], inside, around)


def _element(kind: ir.Type) -> ir.Type:
    return kind.element if isinstance(kind, ir.VectorType) else kind


_FLOATS = {ir.HalfType: 16, ir.FloatType: 32, ir.DoubleType: 64}
_TYPES = {16: ir.HalfType(), 32: ir.FloatType(), 64: ir.DoubleType()}
_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b,
    "and_": lambda a, b: a & b, "or_": lambda a, b: a | b, "xor": lambda a, b: a ^ b,
}
_COMPARED: dict[str, Callable[[Any, Any], Truth]] = {
    "<": lambda a, b: a < b, "<=": lambda a, b: a <= b, ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b, "==": lambda a, b: a == b, "!=": lambda a, b: a != b,
}
_SIGNED: dict[str, Callable[[Word, Word], Truth]] = {
    "<": lambda a, b: a.signed_below(b), ">": lambda a, b: b.signed_below(a),
    "<=": lambda a, b: ~b.signed_below(a), ">=": lambda a, b: ~a.signed_below(b),
}


class TermBuilder:
    """llvmlite's IRBuilder, as far as formulas use it.

    `contracts.get(name, usual)` names another function of Reals for an operation of floats.
    """

    def __init__(self, theory: Theory, contracts: Any = None) -> None:
        self.theory = theory
        self.contracts: Any = contracts if contracts is not None else {}
        self.memory: dict[tuple[str, int], LaneValue] = {}
        self.module = ir.Module()
        self.block = "entry"
        self.entered: dict[str, Truth] = {}
        self._inside: list[Truth] = []
        self._blocks = 0
        cpu_target.target_context.refresh()
        self.point = InsertionPoint(cpu_target.target_context, self)

    def __getattr__(self, name: str) -> Any:
        raise UnknownInstructionError(f"instruction={name!r} has no meaning in {__name__}")

    # Between formulas and terms -----------------------------------------------------------

    def bits(self, word: Word) -> Term:
        """Unsigned lanes for a formula."""
        return Term(Lanes("u", word.width, 512 // word.width), LaneValue(word), self.point)

    def floats(self, real: Real) -> Term:
        """Lanes of floats for a formula."""
        return Term(Lanes("f", real.width, 512 // real.width), LaneValue(real), self.point)

    def pointer(self, name: str, kind: Any) -> Term:
        """A pointer for a formula, to a type of numba's."""
        element = cpu_target.target_context.get_data_type(kind)
        return Term(types.CPointer(kind), MemoryPlace(name, 0, element), self.point)

    def content(self, value: Any) -> Any:
        """The word, float or truth value behind an instruction's value."""
        if isinstance(value, Term):
            return self.content(value.value)
        if isinstance(value, LaneValue):
            return value.content
        if isinstance(value, _Joined):
            return value.lane().content
        if isinstance(value, ir.Constant):
            return self._constant(value)
        raise UnknownInstructionError(f"value={value!r} has no meaning in {__name__}")

    def word(self, value: Any) -> Word:
        """The bits of an instruction's value."""
        content = self.content(value)
        return content.bits if isinstance(content, Real) else content

    def _constant(self, value: ir.Constant) -> Word | Real | Truth:
        kind, number = _element(value.type), value.constant
        if isinstance(value.type, ir.VectorType):
            first, *others = number
            if any(str(other) != str(first) for other in others):
                raise UnknownInstructionError(f"lanes of {value} differ")
            number = first.constant if isinstance(first, ir.Constant) else first
        if type(kind) in _FLOATS:
            width = _FLOATS[type(kind)]
            packed = struct.pack({16: "<e", 32: "<f", 64: "<d"}[width], number)
            return self.theory.real(self.theory.word(int.from_bytes(packed, "little"), width))
        if kind.width == 1:
            return self.theory.truth(bool(number))
        return self.theory.word(int(number), kind.width)

    # Integers and truth values ------------------------------------------------------------

    def _binary(self, name: str, a: Any, b: Any) -> LaneValue:
        return LaneValue(_BINARY[name](self.content(a), self.content(b)))

    def add(self, a: Any, b: Any) -> LaneValue:
        return self._binary("add", a, b)

    def sub(self, a: Any, b: Any) -> LaneValue:
        return self._binary("sub", a, b)

    def mul(self, a: Any, b: Any) -> LaneValue:
        return self._binary("mul", a, b)

    def and_(self, a: Any, b: Any) -> LaneValue:
        return self._binary("and_", a, b)

    def or_(self, a: Any, b: Any) -> LaneValue:
        return self._binary("or_", a, b)

    def xor(self, a: Any, b: Any) -> LaneValue:
        return self._binary("xor", a, b)

    def not_(self, a: Any) -> LaneValue:
        return LaneValue(~self.content(a))

    def _counted(self, name: str, count: Word) -> Word:
        """A count of a shift, which LLVM leaves undefined from the width on."""
        below = count < count.width
        for condition in self._inside:
            below = condition.implies(below)
        self.theory.duties.append((f"{name} by less than {count.width}", below))
        return count

    def shl(self, a: Any, b: Any) -> LaneValue:
        return LaneValue(self.content(a) << self._counted("shl", self.content(b)))

    def lshr(self, a: Any, b: Any) -> LaneValue:
        return LaneValue(self.content(a) >> self._counted("lshr", self.content(b)))

    def icmp_unsigned(self, relation: str, a: Any, b: Any) -> LaneValue:
        a = self.content(a)
        if isinstance(a, Truth):  # a mask read as a number: whether any lane is set
            if relation != "!=" or not isinstance(b, ir.Constant) or b.constant != 0:
                raise UnknownInstructionError(f"a mask compared by {relation} {b}")
            return LaneValue(a)
        return LaneValue(_COMPARED[relation](a, self.content(b)))

    def icmp_signed(self, relation: str, a: Any, b: Any) -> LaneValue:
        return LaneValue(_SIGNED[relation](self.content(a), self.content(b)))

    def select(self, condition: Any, a: Any, b: Any) -> LaneValue:
        if not isinstance(condition, Truth):
            condition = self.content(condition)
        a, b = self.content(a), self.content(b)
        if isinstance(a, Real):
            return LaneValue(a.or_else(condition, b))
        return LaneValue(choose(condition, a, b))

    # Floats -------------------------------------------------------------------------------

    def _float(self, name: str, usual: Callable[..., Real], *operands: Any) -> LaneValue:
        operation = self.contracts.get(name, usual)
        return LaneValue(operation(*(self.content(x) for x in operands)))

    def fadd(self, a: Any, b: Any) -> LaneValue:
        return self._float("fadd", Real.plus, a, b)

    def fsub(self, a: Any, b: Any) -> LaneValue:
        return self._float("fsub", Real.minus, a, b)

    def fmul(self, a: Any, b: Any) -> LaneValue:
        return self._float("fmul", Real.times, a, b)

    def fdiv(self, a: Any, b: Any) -> LaneValue:
        return self._float("fdiv", Real.divided, a, b)

    def fcmp_ordered(self, relation: str, a: Any, b: Any) -> LaneValue:
        return LaneValue(self.content(a).compared(relation, self.content(b)))

    def fcmp_unordered(self, relation: str, a: Any, b: Any) -> LaneValue:
        if relation != "uno":
            raise UnknownInstructionError(f"comparison={relation!r} of floats")
        return LaneValue(self.content(a).is_nan | self.content(b).is_nan)

    # Conversions --------------------------------------------------------------------------

    def bitcast(self, value: Any, kind: ir.Type) -> Any:
        if isinstance(value, MemoryPlace):
            return MemoryPlace(value.name, value.index, _element(kind.pointee))
        content, element = self.content(value), _element(kind)
        if isinstance(content, Truth):
            return LaneValue(self._of_any_lane(content))
        to_float = type(element) in _FLOATS
        width = _FLOATS[type(element)] if to_float else element.width
        if content.width != width:
            raise UnknownInstructionError(f"{content.width} bits read as lanes of {width}")
        if to_float == isinstance(content, Real):
            return LaneValue(content)
        return LaneValue(self.theory.real(content) if to_float else content.bits)

    def _of_any_lane(self, mask: Truth) -> Truth:
        """This lane's truth, or that of another lane, which may be either."""
        return mask if mask.is_plain else mask | self.theory.chance()

    def zext(self, value: Any, kind: ir.Type) -> LaneValue:
        return LaneValue(self.content(value).extended(_element(kind).width))

    def trunc(self, value: Any, kind: ir.Type) -> Any:
        width = _element(kind).width
        if isinstance(value, ir.Constant) and not isinstance(kind, ir.VectorType):
            return ir.Constant(kind, value.constant & ((1 << width) - 1))
        return LaneValue(self.content(value).cut(width - 1, 0))

    def fptrunc(self, value: Any, kind: ir.Type) -> Any:
        if isinstance(value, ir.Constant) and not isinstance(kind, ir.VectorType):
            return ir.Constant(kind, value.constant)
        return LaneValue(self.content(value).converted(_FLOATS[type(_element(kind))]))

    def fpext(self, value: Any, kind: ir.Type) -> LaneValue:
        widened = self.contracts.get("fpext", Real.converted)
        return LaneValue(widened(self.content(value), _FLOATS[type(_element(kind))]))

    def fptosi(self, value: Any, kind: ir.Type) -> LaneValue:
        cut = self.contracts.get("fptosi", Real.to_word)
        return LaneValue(cut(self.content(value), _element(kind).width, signed=True))

    def fptoui(self, value: Any, kind: ir.Type) -> LaneValue:
        return LaneValue(self.content(value).to_word(_element(kind).width, signed=False))

    def uitofp(self, value: Any, kind: ir.Type) -> LaneValue:
        width = _FLOATS[type(_element(kind))]
        rounded = self.contracts.get("itofp", Word.to_real)
        return LaneValue(rounded(self.content(value), width, signed=False))

    def sitofp(self, value: Any, kind: ir.Type) -> LaneValue:
        width = _FLOATS[type(_element(kind))]
        rounded = self.contracts.get("itofp", Word.to_real)
        return LaneValue(rounded(self.content(value), width, signed=True))

    def call(self, function: Any, arguments: Any) -> Any:
        """Instructions that LLVM has as functions."""
        name = function.name
        operands = [self.content(x) for x in arguments if not isinstance(x, ir.Constant)]
        if name.startswith("llvm.sqrt."):
            return LaneValue(operands[0].root())
        if name.startswith("llvm.trunc."):
            return LaneValue(operands[0].whole())
        if name.startswith("llvm.fma."):
            x, y, z = (self.content(value) for value in arguments)
            return LaneValue(x.fused(y, z))
        if name.startswith("llvm.vector.reduce.or."):
            return arguments[0]
        return self._with_rounding(name, arguments)

    def _with_rounding(self, name: str, arguments: Any) -> LaneValue:
        """AVX-512's instructions that carry a rounding mode of their own."""
        *values, how = arguments
        mode = {8: "RNE", 9: "RTN", 10: "RTP", 11: "RTZ"}.get(how.constant)
        operands = [self.content(x) for x in values]
        with_mode: dict[str, Callable[..., Real]] = {
            "add": Real.plus, "sub": Real.minus, "vfmadd": Real.fused,
        }
        for stem, operation in with_mode.items():
            if mode and name.startswith(f"llvm.x86.avx512.{stem}.p"):
                return LaneValue(operation(*operands, mode))
        for stem, signed in (("uitofp", False), ("sitofp", True)):
            if mode and name.startswith(f"llvm.x86.avx512.{stem}.round."):
                rounded = self.contracts.get("itofp", Word.to_real)
                return LaneValue(rounded(operands[0], operands[0].width, signed, mode))
        raise UnknownInstructionError(f"instruction={name!r} has no meaning in {__name__}")

    # Lanes: one stands for all ------------------------------------------------------------

    def insert_element(self, _vector: Any, scalar: Any, _index: Any) -> Any:
        return scalar

    def shuffle_vector(self, first: Any, _second: Any, order: ir.Constant) -> Any:
        if len({item.constant if isinstance(item, ir.Constant) else item
                for item in order.constant}) != 1:
            raise UnknownInstructionError("lanes that change places")
        return first

    # Memory: named places -----------------------------------------------------------------

    def gep(self, place: MemoryPlace, indices: Any) -> MemoryPlace:
        index = self.content(indices[0])
        if not index.is_plain:
            raise UnknownInstructionError("an index that only the running kernel knows")
        return MemoryPlace(place.name, place.index + index.value, place.element)

    def load(self, place: MemoryPlace) -> Any:
        lane = self.memory[place.name, place.index]
        if isinstance(lane, ir.Constant):
            return lane
        loaded = self.bitcast(lane, place.element)
        loaded.align = 0
        return loaded

    def store(self, value: Any, place: MemoryPlace) -> LaneValue:
        """In a branch memory stays as it was where the branch is not taken."""
        key = place.name, place.index
        written = LaneValue(self.content(value))
        for condition in self._inside:
            before = self.memory.get(key) or LaneValue(self.theory.unnamed(self.word(value).width))
            old = self.bitcast(before, place.element)
            written = self.select(condition, written, old)
        self.memory[key] = written
        return written

    # Branches -----------------------------------------------------------------------------

    def _new_block(self, condition: Truth | None) -> None:
        self._blocks += 1
        self.block = f"block{self._blocks}"
        if condition is not None:
            self.entered[self.block] = condition

    @contextlib.contextmanager
    def if_then(self, condition: Any, likely: Any = None) -> Iterator[None]:
        """What is done here holds where the condition does; see `phi`."""
        self._inside.append(self.content(condition))
        self._new_block(self._inside[-1])
        yield
        self._inside.pop()
        self._new_block(self._inside[-1] if self._inside else None)

    @contextlib.contextmanager
    def if_else(self, condition: Any) -> Iterator[Any]:
        """Both sides, each where the condition says."""
        holds = self.content(condition)
        yield self.if_then(condition), self.if_then(LaneValue(~holds))

    def phi(self, _kind: Any) -> _Joined:
        return _Joined(self)
