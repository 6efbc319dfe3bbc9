"""A step written with Array operations, called once with places instead of numbers.

While a step is traced, its context has a `TraceCore`, and the carriers of its Arrays hold places of
a memory. What moves numbers (slices, assignment, np.roll, np.concatenate …) moves places and is no
operation of the program; what rounds them is a row of its table. Numbers and Arrays from outside
are constants of the memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from fpsim.array import Array
from fpsim.array_moves import MOVES
from fpsim.elementwise.apply import apply, common_shape
from fpsim.kernels.elementwise.program import ABSOLUTE, NEGATIVE
from fpsim.kernels.elementwise.special import OPERATIONS
from fpsim.records.settings import Settings
from fpsim.records.types import Shape

__all__ = ["Trace", "TracedArray", "places_of"]

#: The type of places: numpy moves them, and refuses to compute with them or, since there is a
#: second field, to store them as numbers.
_PLACE = np.dtype([("place", np.int64), ("mark", np.uint8)])
#: Elements to which the memory of a result is rounded up: two vectors.
_GROUP = 16

#: numpy's functions that move places, or that are operations of the context and moves alone.
_TRACED = {
    *MOVES, np.where, np.outer, np.kron, np.cross, np.diff, np.cumsum, np.shape, np.ndim, np.size,
    np.real, np.ones_like, np.empty_like, np.copyto,
}
_CODES = {name: i for i, name in enumerate(OPERATIONS)} | {
    "negative": NEGATIVE, "absolute": ABSOLUTE
}


def _places(first: int, shape: Shape) -> NDArray[Any]:
    """Places from the first one on, in C order."""
    places = np.zeros(shape, _PLACE)
    places["place"] = np.arange(first, first + places.size).reshape(shape)
    return places


def _refuse(what: str, cause: Exception | None = None) -> NoReturn:
    raise TypeError(
        f"{what} is not traced by ctx.iterate, which takes steps of + - * /, sqrt, fma, powers, "
        "negative, absolute and moves of numbers; call the step in a loop instead"
    ) from cause


class TracedArray(Array):
    """An Array whose numbers are known only to the running program."""

    __slots__ = ()

    def like(self, carrier: NDArray[Any]) -> TracedArray:
        return TracedArray(carrier, self.context)

    def _number(self, *_: Any, **__: Any) -> NoReturn:
        _refuse("the number in an Array")

    def __getitem__(self, index: Any) -> TracedArray:
        part = self.carrier[index]
        # One number is a copy in numpy; one place would be a view of the array.
        return self.like(part if isinstance(part, np.ndarray) else np.array(part, _PLACE))

    def reshape(self, *shape: Any) -> TracedArray:
        return self.like(self.carrier.reshape(*shape))

    values = property(_number)
    item = tolist = codes = to_numpy = _read = _one = __contains__ = __array__ = _number
    any = all = _number

    def _sum(self, *_: Any, **__: Any) -> NoReturn:
        _refuse("a sum")

    sum = mean = _sum

    def to(self, target: Any) -> NoReturn:
        _refuse("a change of format")

    def __repr__(self) -> str:
        return f"TracedArray(shape={self.shape}, {self.format.name})"

    def __array_function__(
        self, function: Any, kinds: Any, arguments: tuple[Any, ...], options: dict[str, Any]
    ) -> Any:
        if function not in _TRACED:
            _refuse(f"np.{function.__name__}")
        if function is np.where and (len(arguments) != 3 or isinstance(arguments[0], Array)):
            _refuse("np.where by traced numbers")
        kinds = tuple({*kinds, Array})
        return super().__array_function__(function, kinds, arguments, options)


def places_of(x: TracedArray) -> NDArray[np.int64]:
    """The places of an Array, in C order."""
    carrier: NDArray[Any] = np.array(x.carrier).reshape(-1)
    places: NDArray[np.int64] = carrier["place"]
    return places


class Trace:
    """The table and the memory of a step, as they are written down.

    >>> import fpsim as fp
    >>> context = fp.Context("binary16")
    >>> trace = Trace(context)
    >>> state = trace.state([(3,)])
    >>> (end,) = trace.called(lambda x: x[1:] + 0.5, state); len(trace.table), end.shape
    (1, (2,))
    """

    def __init__(self, context: Any) -> None:
        self.context, self.core = context, context.core
        self.table: list[tuple[str, int, list[int], int]] = []
        self.places: list[NDArray[np.int64]] = []
        self.n_places = 0
        #: Place 0 is +0: what numpy fills new elements with.
        self.constants: list[tuple[int, NDArray[Any]]] = []
        self.size = _GROUP
        self._numbers: dict[bytes, int] = {}

    def state(self, shapes: Sequence[Shape]) -> list[TracedArray]:
        """Arrays of the state; they lie one behind the other from `_GROUP` on."""
        arrays = []
        for shape in shapes:
            n = int(np.prod(shape, dtype=np.int64))
            arrays.append(TracedArray(_places(self.size, shape), self.context))
            self.size += n
        self.size = -(-self.size // _GROUP) * _GROUP
        return arrays

    def called(self, step: Any, arrays: Sequence[TracedArray]) -> list[TracedArray]:
        """The Arrays that the step returns."""
        self.context.core = TraceCore(self)
        try:
            returned = step(*[x.copy() for x in arrays])
        except TypeError as error:
            if str(_PLACE) in str(error):  # numpy's too: places are no numbers
                _refuse("a write into an outside Array, which cannot hold traced numbers,", error)
            if type(error) is TypeError:
                raise
            _refuse("an operation on numbers", error)  # numpy's own error: it cannot compute places
        finally:
            self.context.core = self.core
        results = list(returned) if isinstance(returned, (tuple, list)) else [returned]
        for i, x in enumerate(results):
            if isinstance(x, TracedArray):
                continue
            if not isinstance(x, Array) or x.context is not self.context:
                raise TypeError(f"step returned {type(x).__name__} at {i}; return the new Arrays")
            results[i] = TracedArray(self.constant(x.carrier), self.context)
        return results

    def allot(self, n: int) -> int:
        """Where n elements may stand."""
        first = self.size
        self.size += -(-n // _GROUP) * _GROUP
        return first

    def constant(self, carrier: NDArray[Any]) -> NDArray[Any]:
        """Places of numbers from outside; one number has one place."""
        if carrier.size == 1:
            key = carrier.tobytes()
            if key not in self._numbers:
                self._numbers[key] = self.allot(1)
                self.constants.append((self._numbers[key], carrier.reshape(-1).copy()))
            return _places(self._numbers[key], carrier.shape)
        first = self.allot(carrier.size)
        self.constants.append((first, carrier.reshape(-1).copy()))
        return _places(first, carrier.shape)

    def row(self, name: str, carriers: Sequence[NDArray[Any]]) -> NDArray[Any]:
        """An operation; places of its result."""
        shape = common_shape(carriers)
        n = int(np.prod(shape, dtype=np.int64))
        begins = []
        for carrier in carriers:
            begins.append(self.n_places)
            flat = np.array(np.broadcast_to(carrier, shape)).reshape(-1)
            self.places.append(flat["place"])  # a copy: results may be stored over operands
            self.n_places += n
        out = self.allot(n)
        self.table.append((name, n, begins, out))
        return _places(out, shape)


class TraceCore:
    """In the place of a context's core while its step is traced."""

    def __init__(self, trace: Trace) -> None:
        self._trace, self.context = trace, trace.context
        self.settings: Settings = trace.core.settings

    def __getattr__(self, name: str) -> Any:
        _refuse(f"what asks for {name!r}")

    @property
    def format(self) -> Any:
        return self.settings.format

    def constant(self, value: Any) -> NDArray[Any]:
        return self._trace.constant(self._trace.core.constant(value))

    def carriers(self, operands: Sequence[Any], *, comparing: bool = False) -> list[NDArray[Any]]:
        """Places of operands, after the checks of any operation."""
        if comparing:
            _refuse("a comparison")
        plain = [0.0 if isinstance(x, TracedArray) else x for x in operands]
        carriers = self._trace.core.carriers(plain)
        return [
            x.carrier if isinstance(x, TracedArray) else self._trace.constant(carrier)
            for x, carrier in zip(operands, carriers, strict=True)
        ]

    def rounded(
        self, name: str, carriers: list[NDArray[Any]], out: Any = None, evaluate: Any = apply
    ) -> Any:
        if evaluate is not apply or name not in _CODES or name == "convert":
            _refuse(name)
        if any(carrier.dtype != _PLACE for carrier in carriers):
            _refuse(f"{name} of numbers from outside")
        return self._stored(self._trace.row(name, carriers), out)

    def signed(self, name: str, carrier: NDArray[Any], out: Any = None) -> Any:
        return self._stored(self._trace.row(name, [carrier]), out)

    def exact(
        self, name: str, carriers: Any, values: NDArray[Any], element_flags: Any, out: Any = None
    ) -> Any:
        if values.dtype != _PLACE:
            _refuse(name)
        return self._stored(values, out)

    def wrapped(self, values: NDArray[Any], out: Any = None) -> Any:
        return self._stored(values, out)

    def _stored(self, places: NDArray[Any], out: Any) -> Any:
        if out is None:
            return TracedArray(places, self.context)
        if not isinstance(out, TracedArray):
            _refuse("a result in memory from outside of the step")
        if out.shape != places.shape:
            raise ValueError(f"out has shape {out.shape}, the result has shape {places.shape}")
        out.carrier[...] = places
        return out
