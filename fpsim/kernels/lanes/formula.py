"""Formulas over lanes, written down as instructions while Python reads them.

Numba infers types and compiles every function that a kernel calls; for a function of a few lines
that is a tenth of a second each. A `formula` is run by Python instead, on `Term`s: an operator
between two terms emits its instruction into the kernel and is a term itself. The text of a formula
is that of a function for numba, and choices (an operation, a mode) are plain values in it, known
when the kernel is compiled: `if mode == RTZ` leaves one branch and no trace.

A kernel calls a formula as any function. It is run twice: first without instructions, for the
type of its result, then with them.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable
from typing import Any, NamedTuple

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.extending import _Intrinsic

__all__ = [
    "OPERATORS", "FormulaInstruction", "InsertionPoint", "Term", "formula", "instruction", "when",
]

#: For each operator, the type of its result, and what emits it; `fpsim.kernels.lanes.vectors` fills
#: it.
OPERATORS: dict[Any, tuple[Callable[..., Any], Callable[..., Any]]] = {}


class UndecidedError(TypeError):
    """A formula asked for the truth of a number that only the running kernel knows."""


class InsertionPoint(NamedTuple):
    """Where instructions go; without a builder they are only typed."""

    context: Any = None
    builder: Any = None


class Term:
    """A value of the kernel that is being compiled: its type, and the instruction that makes it."""

    __slots__ = ("point", "type", "value")

    def __init__(self, kind: Any, value: Any, point: InsertionPoint) -> None:
        self.type, self.value, self.point = kind, value, point

    def __bool__(self) -> bool:
        raise UndecidedError(f"a choice is not known when the kernel is compiled ({self.type})")

    def __invert__(self) -> Term:
        return _emit(operator.invert, self)

    __hash__ = None  # type: ignore[assignment]


def _emit(op: Any, *operands: Any) -> Term:
    point = next(x.point for x in operands if isinstance(x, Term))
    terms = [_as_term(x, point) for x in operands]
    kinds = [t.type for t in terms]
    result_of, lower = OPERATORS[op]
    kind = result_of(op, kinds)
    if kind is None:
        raise TypeError(f"{op.__name__} is not defined for {kinds}")
    return Term(kind, point.builder and lower(op, point, kinds, [t.value for t in terms]), point)


def _method(op: Any, swapped: bool) -> Any:
    return (lambda x, y: _emit(op, y, x)) if swapped else (lambda x, y: _emit(op, x, y))


for _name in ("add", "sub", "mul", "truediv", "and", "or", "xor", "lshift", "rshift"):
    _op = getattr(operator, f"{_name}_" if _name in ("and", "or") else _name)
    setattr(Term, f"__{_name}__", _method(_op, swapped=False))
    setattr(Term, f"__r{_name}__", _method(_op, swapped=True))
for _name in ("lt", "le", "gt", "ge", "eq", "ne"):
    setattr(Term, f"__{_name}__", _method(getattr(operator, _name), swapped=False))


def _as_term(x: Any, point: InsertionPoint) -> Term:
    """A term, or a Python number as a constant of the kernel."""
    if isinstance(x, Term):
        return x
    if isinstance(x, bool):
        return Term(types.boolean, ir.Constant(ir.IntType(1), int(x)), point)
    if isinstance(x, float):
        return Term(types.float64, ir.Constant(ir.DoubleType(), x), point)
    kind = types.uint64 if x >= 1 << 63 else types.int64
    return Term(kind, ir.Constant(ir.IntType(64), int(x)), point)


class FormulaInstruction(_Intrinsic):
    """An intrinsic of numba's that formulas can call too."""

    def __call__(self, *arguments: Any) -> Any:
        point = next(x.point for x in arguments if isinstance(x, Term))
        terms = [_as_term(x, point) for x in arguments]
        sig, emit = self._defn(None, *(t.type for t in terms))
        value = point.builder and emit(*point, sig, [t.value for t in terms])
        return Term(sig.return_type, value, point)


def instruction(definition: Callable[..., Any]) -> Any:
    """An instruction: (typing context, types) -> (signature, what emits it), as for numba."""
    result = FormulaInstruction(definition.__name__, definition)
    result._register()
    return result


class _Formula(_Intrinsic):
    """A formula as numba sees it; another formula calls its text."""

    def __call__(self, *arguments: Any) -> Any:
        return self._defn.__wrapped__(*arguments)


def formula(function: Callable[..., Any]) -> Any:
    """Make a function of terms callable from kernels.

    Its arguments are lanes, pointers, scalars, tuples of them, and choices: literals to numba.
    """

    def definition(_typing: Any, *kinds: Any) -> Any:
        nothing = [None] * len(kinds)
        try:
            result = _type_of(
                function(*map(_argument, kinds, nothing, [InsertionPoint()] * len(kinds)))
            )
        except UndecidedError:
            return None  # numba asks again where it knows the choices

        def emit(context: Any, builder: Any, sig: Any, values: Any) -> Any:
            point = InsertionPoint(context, builder)
            return _value_of(
                function(*(_argument(k, v, point) for k, v in zip(sig.args, values, strict=True))),
                sig.return_type, point,
            )

        return result(*kinds), emit

    names = ["_typing", *inspect.signature(function).parameters]
    usual = inspect.Parameter.POSITIONAL_OR_KEYWORD
    definition.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(name, usual) for name in names]
    )
    definition.__wrapped__ = function  # type: ignore[attr-defined]
    definition.__doc__ = function.__doc__
    result = _Formula(function.__name__, definition, prefer_literal=True)
    result._register()
    return result


def _argument(kind: Any, value: Any, point: InsertionPoint) -> Any:
    """An argument as the formula takes it: plain where it is a choice, a tuple, or a term."""
    if isinstance(kind, types.Literal):
        return kind.literal_value
    if not isinstance(kind, types.BaseTuple):
        return Term(kind, value, point)
    parts = [None] * len(kind)
    if point.builder:
        parts = cgutils.unpack_tuple(point.builder, value, len(kind))
    items = [_argument(k, v, point) for k, v in zip(kind.types, parts, strict=True)]
    return kind.instance_class(*items) if isinstance(kind, types.BaseNamedTuple) else tuple(items)


def _type_of(result: Any) -> Any:
    if isinstance(result, Term):
        return result.type
    named = type(result) if hasattr(result, "_fields") else None
    return types.BaseTuple.from_types([_type_of(r) for r in result], named)


def _value_of(result: Any, kind: Any, point: InsertionPoint) -> Any:
    if isinstance(result, Term):
        return result.value
    values = [_value_of(r, k, point) for r, k in zip(result, kind.types, strict=True)]
    return point.context.make_tuple(point.builder, kind, values)


def when(condition: Term, then: Callable[..., tuple[Term, ...]], *otherwise: Term) -> Any:
    """then(*otherwise) where the condition, a truth value of the kernel, holds; else `otherwise`.

    The one branch of a formula that the running kernel takes; what `then` emits is jumped over.
    """
    point = condition.point
    if not point.builder:
        return then(*otherwise)
    before = point.builder.block
    with point.builder.if_then(condition.value, likely=False):
        changed = then(*otherwise)
        inside = point.builder.block
    joined = []
    for new, old in zip(changed, otherwise, strict=True):
        phi = point.builder.phi(new.value.type)
        phi.add_incoming(new.value, inside)
        phi.add_incoming(old.value, before)
        joined.append(Term(new.type, phi, point))
    return tuple(joined)
