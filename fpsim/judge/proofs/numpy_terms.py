"""One element of numpy's arrays as terms of a solver: what runs functions of arrays unchanged.

Scales of blocks are computed by numpy, element by element. Run with these elements and with
`functions_of` a module, the same Python text gives terms. What is not known here is refused.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from fpsim.judge.proofs.terms import Real, Theory, Truth, Word, both, choose

__all__ = ["ArrayElement", "functions_of", "numpy_of", "ways_of"]

_TOP = 1 << 31


class _Branches:
    """Which way each branch of a run goes; ways that are not yet run."""

    def __init__(self, way: tuple[bool, ...], others: list[tuple[bool, ...]]) -> None:
        self.way, self.others = way, others
        self.conditions: list[Truth] = []

    def take(self, truth: Truth) -> bool:
        if truth.is_plain:
            return bool(truth)
        at = len(self.conditions)
        if at == len(self.way):
            self.others.append((*self.way, False))
            self.way = (*self.way, True)
        self.conditions.append(truth if self.way[at] else ~truth)
        return self.way[at]


_BRANCHES: ContextVar[_Branches | None] = ContextVar("branches", default=None)


def ways_of(call: Callable[[], Any], theory: Theory) -> Iterator[tuple[Truth, Any]]:
    """Each way through the branches of a function: when it is taken, and its result."""
    others: list[tuple[bool, ...]] = [()]
    while others:
        branches = _Branches(others.pop(), others)
        token = _BRANCHES.set(branches)
        try:
            result = call()
        finally:
            _BRANCHES.reset(token)
        yield both([theory.truth(True), *branches.conditions]), result


class ArrayElement:
    """A number of binary32 or binary64, a whole number of 32 bits, or a truth value."""

    __slots__ = ("content",)
    __hash__ = None  # type: ignore[assignment]
    #: numpy's own numbers leave operators to this class.
    __array_ufunc__ = None
    shape = ()

    def __init__(self, content: Real | Word | Truth) -> None:
        self.content = content

    @property
    def theory(self) -> Theory:
        return self.content.theory

    def _real(self, other: Any) -> Real:
        if isinstance(other, ArrayElement):
            assert isinstance(other.content, Real)
            return other.content
        width = self.content.width if isinstance(self.content, Real) else 32
        form, number = ("<f", np.float32(other)) if width == 32 else ("<d", other)
        bits = int.from_bytes(struct.pack(form, number), "little")
        return self.theory.real(self.theory.word(bits, width))

    def __bool__(self) -> bool:
        branches = _BRANCHES.get()
        if branches is None or not isinstance(self.content, Truth):
            raise TypeError("a branch on an element; run the function by ways_of")
        return branches.take(self.content)

    def _word(self, other: Any) -> Word:
        content = other.content if isinstance(other, ArrayElement) else None
        if isinstance(content, Truth):
            return choose(content, self.theory.word(1, 32), self.theory.word(0, 32))
        return content if isinstance(content, Word) else self.theory.word(int(other), 32)

    def view(self, dtype: Any) -> ArrayElement:
        """The same bits, of another type."""
        to_float, content = np.dtype(dtype).kind == "f", self.content
        if isinstance(content, Real):
            return self if to_float else ArrayElement(content.bits)
        assert isinstance(content, Word)
        return ArrayElement(self.theory.real(content)) if to_float else self

    def astype(self, dtype: Any) -> ArrayElement:
        """Truth values as whole numbers, floats in another width; whole numbers fit their type."""
        if isinstance(self.content, Real) and np.dtype(dtype).kind == "f":
            width = 8 * np.dtype(dtype).itemsize
            same = width == self.content.width
            return self if same else ArrayElement(self.content.converted(width))
        return ArrayElement(self._word(self)) if isinstance(self.content, Truth) else self

    # Whole numbers and truth values -------------------------------------------------------

    def __rshift__(self, n: int) -> ArrayElement:
        return ArrayElement(((self._word(self) ^ _TOP) >> n) - (_TOP >> n))

    def __add__(self, other: Any) -> ArrayElement:
        return ArrayElement(self._word(self) + self._word(other))

    __radd__ = __add__

    def __sub__(self, other: Any) -> ArrayElement:
        return ArrayElement(self._word(self) - self._word(other))

    def __and__(self, other: Any) -> ArrayElement:
        if isinstance(self.content, Truth):
            return ArrayElement(self.content & other.content)
        return ArrayElement(self._word(self) & self._word(other))

    def __or__(self, other: Any) -> ArrayElement:
        if isinstance(self.content, Truth):
            return ArrayElement(self.content | other.content)
        return ArrayElement(self._word(self) | self._word(other))

    def __invert__(self) -> ArrayElement:
        assert isinstance(self.content, Truth)
        return ArrayElement(~self.content)

    # Numbers ------------------------------------------------------------------------------

    def __mul__(self, other: Any) -> ArrayElement:
        return ArrayElement(self._real(self).times(self._real(other)))

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> ArrayElement:
        return ArrayElement(self._real(self).divided(self._real(other)))

    def __rtruediv__(self, other: Any) -> ArrayElement:
        return ArrayElement(self._real(other).divided(self._real(self)))

    def _compared(self, relation: str, other: Any) -> ArrayElement:
        if isinstance(self.content, Real):
            if relation == "!=":  # numpy's is true beside a NaN
                return ~self._compared("==", other)
            return ArrayElement(self.content.compared(relation, self._real(other)))
        a, b = self._word(self), self._word(other)
        below = {
            "<": lambda: a.signed_below(b), ">": lambda: b.signed_below(a),
            "<=": lambda: ~b.signed_below(a), ">=": lambda: ~a.signed_below(b),
            "==": lambda: a == b, "!=": lambda: a != b,
        }
        return ArrayElement(below[relation]())

    def __lt__(self, other: Any) -> ArrayElement:
        return self._compared("<", other)

    def __le__(self, other: Any) -> ArrayElement:
        return self._compared("<=", other)

    def __gt__(self, other: Any) -> ArrayElement:
        return self._compared(">", other)

    def __ge__(self, other: Any) -> ArrayElement:
        return self._compared(">=", other)

    def __eq__(self, other: object) -> ArrayElement:  # type: ignore[override]
        return self._compared("==", other)

    def __ne__(self, other: object) -> ArrayElement:  # type: ignore[override]
        return self._compared("!=", other)

    # Assignment where a truth value holds -------------------------------------------------

    def __getitem__(self, where: ArrayElement) -> ArrayElement:
        return self

    def __setitem__(self, where: ArrayElement, value: Any) -> None:
        """The value where the truth value holds; elsewhere what was there."""
        before = ArrayElement(self.content)
        self.content = numpy_of(self.theory).where(where, value, before).content


def numpy_of(theory: Theory) -> Any:
    """numpy, as far as functions of scales use it, for elements of a theory."""

    def where(condition: ArrayElement, a: Any, b: Any) -> ArrayElement:
        whole = ArrayElement(theory.word(0, 32))
        like = next((v for v in (a, b) if isinstance(v, ArrayElement)), whole)
        holds = condition.content
        assert isinstance(holds, Truth)
        if isinstance(like.content, Real):
            return ArrayElement(like._real(a).or_else(holds, like._real(b)))
        return ArrayElement(choose(holds, like._word(a), like._word(b)))

    def is_nan(x: ArrayElement) -> ArrayElement:
        return ArrayElement(x._real(x).is_nan)

    def extreme(relation: str) -> Callable[[ArrayElement, Any], ArrayElement]:
        def call(x: ArrayElement, y: Any) -> ArrayElement:
            nearer = where(x._compared(relation, y), x, y)
            return where(is_nan(x), x, nearer) if isinstance(x.content, Real) else nearer

        return call

    def is_inf(x: ArrayElement) -> ArrayElement:
        return ArrayElement((x._real(x).bits & 0x7FFFFFFF) == 0x7F800000)

    def is_finite(x: ArrayElement) -> ArrayElement:
        return ArrayElement((x._real(x).bits & 0x7F800000) != 0x7F800000)

    minimum, maximum = extreme("<"), extreme(">")
    return SimpleNamespace(
        where=where, minimum=minimum, maximum=maximum, isnan=is_nan, isinf=is_inf,
        isfinite=is_finite,
        clip=lambda x, low, high: minimum(maximum(x, low), high),
        zeros=lambda shape, dtype: ArrayElement(theory.word(0, 32)), asarray=lambda x: x,
        float32=np.float32, float64=np.float64, int32=np.int32, uint32=np.uint32, uint8=np.uint8,
        errstate=_nothing, nan=np.nan,
    )


@contextlib.contextmanager
def _nothing(**_: Any) -> Iterator[None]:
    yield


def functions_of(module: ModuleType, theory: Theory, **others: Any) -> dict[str, Any]:
    """The functions of a module with numpy, and the others, replaced; tables of functions too."""
    names = dict(vars(module)) | {"np": numpy_of(theory)} | others
    for name, value in vars(module).items():
        of_module = isinstance(value, FunctionType) and value.__module__ == module.__name__
        if of_module and name not in others:
            names[name] = FunctionType(value.__code__, names, name, value.__defaults__)
    for name, value in vars(module).items():
        if isinstance(value, dict) and value and name.startswith("_"):
            names[name] = {
                key: names[entry.__name__] if isinstance(entry, FunctionType) else entry
                for key, entry in value.items()
            }
    return names
