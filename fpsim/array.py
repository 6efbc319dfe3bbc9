"""Array: values of one format in one Context, with operators and numpy's protocols.

An Array is a carrier ndarray and the context that computes with it. Nothing is promoted: two
formats do not meet without a conversion, and numpy's own functions work where the context has the
operation and refuse where it has not.

Source    NumPy enhancement proposals 13 (__array_ufunc__) and 18 (__array_function__).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fpsim.elementwise import codes
from fpsim.records.formats import Format
from fpsim.records.settings import Settings
from fpsim.records.types import Axis, Carrier

__all__ = ["Array", "Computes"]

#: numpy's functions and the context's methods that they are.
_UFUNCS: dict[np.ufunc, str] = {
    np.add: "add", np.subtract: "subtract", np.multiply: "multiply", np.divide: "divide",
    np.sqrt: "sqrt", np.negative: "negative", np.absolute: "absolute", np.rint: "round_to_integral",
    np.maximum: "maximum", np.minimum: "minimum", np.fmax: "fmax", np.fmin: "fmin", np.fmod: "fmod",
    np.matmul: "matmul",
}  # fmt: skip
_RELATIONS: dict[np.ufunc, str] = {
    np.equal: "equal", np.not_equal: "not_equal", np.less: "less", np.less_equal: "less_equal",
    np.greater: "greater", np.greater_equal: "greater_equal",
}  # fmt: skip
#: The same, with numpy's arguments in order and those of them that the methods take by name.
_FUNCTIONS: dict[Callable[..., Any], tuple[str, tuple[str, ...], set[str]]] = {
    np.sum: ("sum", ("a", "axis", "dtype", "out"), {"axis", "out"}),
    np.mean: ("mean", ("a", "axis", "dtype", "out"), {"axis", "out"}),
    np.dot: ("dot", ("a", "b", "out"), set()),
}
_QUESTIONS = (np.isnan, np.isfinite, np.isinf, np.signbit)


class Computes(Protocol):
    """What an Array asks of the context that computes with it."""

    settings: Settings

    def in_format(self, fmt: Format) -> Any: ...
    def carriers(self, operands: Sequence[Any]) -> list[Carrier]: ...
    def convert(self, x: Any, out: Any = None) -> Array: ...
    def add(self, x: Any, y: Any, out: Any = None) -> Array: ...
    def subtract(self, x: Any, y: Any, out: Any = None) -> Array: ...
    def multiply(self, x: Any, y: Any, out: Any = None) -> Array: ...
    def divide(self, x: Any, y: Any, out: Any = None) -> Array: ...
    def negative(self, x: Any, out: Any = None) -> Array: ...
    def absolute(self, x: Any, out: Any = None) -> Array: ...
    def matmul(self, a: Any, b: Any) -> Array: ...
    def sum(self, x: Any, axis: Axis = None, order: str = "sequential") -> Array: ...
    def mean(self, x: Any, axis: Axis = None, order: str = "sequential") -> Array: ...
    def compare(self, name: str, x: Any, y: Any) -> NDArray[np.bool_]: ...


class Array:
    """Values of a format, computed with in a context.

    >>> import fpsim as fp
    >>> half = fp.Context(fp.BINARY16)
    >>> half.array([1, 2]) / 3
    Array([0.33325195, 0.66650391], binary16)
    """

    __slots__ = ("context", "values")
    #: Ahead of ndarray, so that ndarray + Array is refused here, with our sentence.
    __array_priority__ = 1000.0

    def __init__(self, values: NDArray[Any], context: Computes) -> None:
        self.values = values
        self.context: Computes = context

    # Faces ----------------------------------------------------------------------------------

    @property
    def format(self) -> Format:
        return self.context.settings.format

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape

    @property
    def ndim(self) -> int:
        return self.values.ndim

    @property
    def size(self) -> int:
        return self.values.size

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the packed storage."""
        return self.format.packed

    @property
    def nbytes(self) -> int:
        """Bytes of the packed storage."""
        return self.size * self.dtype.itemsize

    def to(self, target: Format | Computes) -> Array:
        """Converted to another format (by this context's other choices) or context.

        Rounding  a format: an operation of this context, whose flags, counts and random bits the
                  result's context shares (`Context.in_format`); a context: one of that context.

        >>> import fpsim as fp
        >>> fp.Context(fp.BINARY32).array([0.1]).to(fp.BINARY16)
        Array([0.09997559], binary16)
        """
        context = self.context.in_format(target) if isinstance(target, Format) else target
        return context.convert(self)

    def to_numpy(self) -> NDArray[Any]:
        """Packed storage: np.float16, an ml_dtypes type, or unsigned codes."""
        return codes.pack(self.values, self.format)

    def codes(self) -> NDArray[Any]:
        """Bit patterns as unsigned integers."""
        return codes.to_codes(self.values, self.format)

    def copy(self) -> Array:
        return Array(self.values.copy(), self.context)

    def reshape(self, *shape: Any) -> Array:
        return Array(self.values.reshape(*shape), self.context)

    def transpose(self, *axes: Any) -> Array:
        return Array(self.values.transpose(*axes), self.context)

    @property
    def T(self) -> Array:
        return self.transpose()

    def __getitem__(self, index: Any) -> Array:
        return Array(np.asarray(self.values[index]), self.context)

    def __setitem__(self, index: Any, value: Any) -> None:
        (carrier,) = self.context.carriers((value,))
        self.values[index] = carrier

    def __len__(self) -> int:
        return len(self.values)

    def __float__(self) -> float:
        return float(self.values)

    def __bool__(self) -> bool:
        return bool(self.values)

    def __repr__(self) -> str:
        text = np.array2string(self.values.astype(np.float64), separator=", ", prefix="Array(")
        return f"Array({text}, {self.format.name})"

    __hash__ = None  # type: ignore[assignment]

    # Operators ------------------------------------------------------------------------------

    def __add__(self, y: Any) -> Array:
        return self.context.add(self, y)

    def __radd__(self, y: Any) -> Array:
        return self.context.add(y, self)

    def __sub__(self, y: Any) -> Array:
        return self.context.subtract(self, y)

    def __rsub__(self, y: Any) -> Array:
        return self.context.subtract(y, self)

    def __mul__(self, y: Any) -> Array:
        return self.context.multiply(self, y)

    def __rmul__(self, y: Any) -> Array:
        return self.context.multiply(y, self)

    def __truediv__(self, y: Any) -> Array:
        return self.context.divide(self, y)

    def __rtruediv__(self, y: Any) -> Array:
        return self.context.divide(y, self)

    def __matmul__(self, y: Any) -> Array:
        return self.context.matmul(self, y)

    def sum(self, axis: Any = None, order: str = "sequential") -> Array:
        """Sum over axes in this array's context."""
        return self.context.sum(self, axis, order)

    def mean(self, axis: Any = None, order: str = "sequential") -> Array:
        """Mean over axes in this array's context."""
        return self.context.mean(self, axis, order)

    def __iadd__(self, y: Any) -> Array:
        return self.context.add(self, y, out=self)

    def __isub__(self, y: Any) -> Array:
        return self.context.subtract(self, y, out=self)

    def __imul__(self, y: Any) -> Array:
        return self.context.multiply(self, y, out=self)

    def __itruediv__(self, y: Any) -> Array:
        return self.context.divide(self, y, out=self)

    def __neg__(self) -> Array:
        return self.context.negative(self)

    def __pos__(self) -> Array:
        return self

    def __abs__(self) -> Array:
        return self.context.absolute(self)

    def __mod__(self, y: Any) -> Array:
        raise TypeError(_WHICH_REMAINDER)

    __rmod__ = __mod__

    def __eq__(self, y: Any) -> Any:
        return self.context.compare("equal", self, y)

    def __ne__(self, y: Any) -> Any:
        return self.context.compare("not_equal", self, y)

    def __lt__(self, y: Any) -> Any:
        return self.context.compare("less", self, y)

    def __le__(self, y: Any) -> Any:
        return self.context.compare("less_equal", self, y)

    def __gt__(self, y: Any) -> Any:
        return self.context.compare("greater", self, y)

    def __ge__(self, y: Any) -> Any:
        return self.context.compare("greater_equal", self, y)

    # numpy's protocols ----------------------------------------------------------------------

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        raise TypeError(
            "an Array does not turn into an ndarray by itself; use .values or .to_numpy()"
        )

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *inputs: Any, out: tuple[Any, ...] = (), **options: Any
    ) -> Any:
        if method != "__call__" or options:
            raise _without(ufunc, [method] if method != "__call__" else options)
        if ufunc is np.remainder:
            raise TypeError(_WHICH_REMAINDER)
        target = out[0] if out else None
        if ufunc in _QUESTIONS and not isinstance(target, Array):
            return ufunc(inputs[0].values, out=target)
        if out and (ufunc in _QUESTIONS or ufunc in _RELATIONS):
            raise _without(ufunc, ["out"])
        context = _context_of((*inputs, target))
        if ufunc in _RELATIONS:
            return context.compare(_RELATIONS[ufunc], *inputs)
        if ufunc not in _UFUNCS:
            raise _not_offered(ufunc, sorted(f.__name__ for f in (*_UFUNCS, *_RELATIONS)))
        result = getattr(context, _UFUNCS[ufunc])(*inputs, out=target)
        return result if target is None else target

    def __array_function__(
        self, function: Any, kinds: Any, arguments: tuple[Any, ...], options: dict[str, Any]
    ) -> Any:
        if function not in _FUNCTIONS:
            raise _not_offered(function, [f.__name__ for f in _FUNCTIONS])
        name, numpys, ours = _FUNCTIONS[function]
        given = dict(zip(numpys, arguments, strict=False)) | options
        context = _context_of(given.values())
        operands = [given.pop(x) for x in ("a", "b") if x in given]
        chosen = {k: v for k, v in given.items() if v is not None and v is not False}
        if not chosen.keys() <= ours:
            raise _without(function, sorted(chosen.keys() - ours))
        result = getattr(context, name)(*operands, **chosen)
        return chosen.get("out", result)


def _context_of(values: Iterable[Any]) -> Any:
    """Of the first Array; numpy asks only where there is one."""
    return next(x for x in values if isinstance(x, Array)).context


def _not_offered(function: Any, offered: Iterable[str]) -> TypeError:
    return TypeError(
        f"np.{function.__name__} is not offered for Array; there are {', '.join(offered)}"
    )


def _without(function: Any, options: Iterable[str]) -> TypeError:
    return TypeError(f"np.{function.__name__} with {', '.join(options)} is not offered for Array")


_WHICH_REMAINDER = (
    "% and np.remainder are not offered for Array: IEEE 754 and C define different remainders; "
    "use ctx.ieee_remainder(x, y) or ctx.fmod(x, y)"
)
