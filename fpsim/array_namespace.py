"""The Python array API standard for Arrays of one context, as far as it can be honest.

A namespace has one real floating type, that of its context, by the name of the memory that carries
it; `finfo` tells the format. Its arrays are Arrays; truth values and
integers are numpy's own arrays. What the standard has and this has not, because no operation
rounds it correctly, is missing or refused with a sentence; docs/arrays.md lists it.

Source    Python array API standard 2024.12, data-apis.org/array-api.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim.array_moves import Held, arrays_in, values_in
from fpsim.elementwise import order
from fpsim.elementwise.sizes import check_size, checked_shape
from fpsim.state.processor import usual_arithmetic_in

__all__ = ["Namespace"]

_VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12")

#: Types of numpy's arrays beside Arrays.
_INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")

#: numpy's functions under the standard's names; on Arrays they are those of the context.
_SHARED: dict[str, Callable[..., Any]] = {
    "abs": np.absolute, "add": np.add, "all": np.all, "any": np.any, "argmax": np.argmax,
    "argmin": np.argmin, "bitwise_and": np.bitwise_and, "bitwise_invert": np.invert,
    "bitwise_left_shift": np.left_shift, "bitwise_or": np.bitwise_or,
    "bitwise_right_shift": np.right_shift, "bitwise_xor": np.bitwise_xor,
    "broadcast_shapes": np.broadcast_shapes,
    "broadcast_to": np.broadcast_to, "ceil": np.ceil, "isin": np.isin,
    "clip": np.clip, "concat": np.concatenate, "copysign": np.copysign,
    "conj": np.conjugate, "diff": np.diff, "real": np.real,
    "count_nonzero": np.count_nonzero, "equal": np.equal, "expand_dims": np.expand_dims,
    "flip": np.flip, "floor": np.floor, "floor_divide": np.floor_divide, "greater": np.greater,
    "greater_equal": np.greater_equal, "isfinite": np.isfinite,
    "isinf": np.isinf, "isnan": np.isnan, "less": np.less, "less_equal": np.less_equal,
    "logical_and": np.logical_and, "logical_not": np.logical_not, "logical_or": np.logical_or,
    "logical_xor": np.logical_xor, "matmul": np.matmul, "matrix_transpose": np.matrix_transpose,
    "max": np.max, "maximum": np.maximum, "min": np.min,
    "minimum": np.minimum, "moveaxis": np.moveaxis, "multiply": np.multiply,
    "negative": np.negative, "nonzero": np.nonzero, "not_equal": np.not_equal,
    "permute_dims": np.permute_dims, "positive": np.positive, "pow": np.power,
    "remainder": np.remainder, "repeat": np.repeat, "reshape": np.reshape, "roll": np.roll,
    "round": np.round, "sign": np.sign, "signbit": np.signbit, "square": np.square,
    "squeeze": np.squeeze, "stack": np.stack, "subtract": np.subtract,
    "take": np.take, "tensordot": np.tensordot, "tile": np.tile, "tril": np.tril, "triu": np.triu,
    "trunc": np.trunc, "unstack": np.unstack, "where": np.where,
}
#: Those whose result is of the floating type, which numpy's integers do not become by themselves.
_FLOATING: dict[str, Callable[..., Any]] = {
    "cos": np.cos, "cosh": np.cosh, "divide": np.divide, "exp": np.exp, "expm1": np.expm1,
    "log": np.log, "log1p": np.log1p, "mean": np.mean, "reciprocal": np.reciprocal, "sin": np.sin,
    "sinh": np.sinh, "sqrt": np.sqrt, "tanh": np.tanh,
}

_UniqueAll = namedtuple("_UniqueAll", "values indices inverse_indices counts")
_UniqueCounts = namedtuple("_UniqueCounts", "values counts")
_UniqueInverse = namedtuple("_UniqueInverse", "values inverse_indices")
_Finfo = namedtuple("_Finfo", "bits eps max min smallest_normal dtype")


class _Info:
    """What the standard's inspection asks of a namespace."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace

    def capabilities(self) -> dict[str, Any]:
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> str:
        return "cpu"

    def devices(self) -> list[str]:
        return ["cpu"]

    def default_dtypes(self, *, device: str | None = None) -> dict[str, Any]:
        integer = np.dtype(np.int64)
        return {"real floating": self._namespace.dtype, "integral": integer, "indexing": integer}

    def dtypes(self, *, device: str | None = None, kind: Any = None) -> dict[str, Any]:
        names = ["bool", *_INTEGERS, self._namespace.dtype.name]
        types = {name: getattr(self._namespace, name) for name in names}
        if kind is None:
            return types
        return {k: t for k, t in types.items() if self._namespace.isdtype(t, kind)}


@usual_arithmetic_in()
class Namespace:
    """The standard's functions for Arrays of a context.

    >>> import fpsim as fp
    >>> xp = fp.Context(fp.BINARY16).array([1.0]).__array_namespace__()
    >>> xp.sum(xp.asarray([0.5, 0.25])), xp.sum(xp.asarray([1, 2])).item()
    (Array(0.75, binary16), 3)
    """

    __array_api_version__ = _VERSIONS[-1]
    e, inf, nan, newaxis, pi = float(np.e), float("inf"), float("nan"), None, float(np.pi)

    def __init__(self, context: Any, version: str | None = None) -> None:
        fmt = context.core.settings.format
        if version is not None and version not in _VERSIONS:
            raise ValueError(f"api_version={version!r} is not known; use {', '.join(_VERSIONS)}")
        self.context, self.dtype = context, fmt.carrier
        #: Consumers take namespaces of one name for one.
        self.__name__ = f"fpsim {context!r}"
        self.bool = np.dtype(np.bool_)
        for name in _INTEGERS:
            setattr(self, name, np.dtype(name))
        setattr(self, self.dtype.name, self.dtype)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Namespace):
            return False
        return bool(other.context.core.settings == self.context.core.settings)

    def __hash__(self) -> int:
        return hash(self.__name__)

    def __repr__(self) -> str:
        return f"<array API of {self.context!r}>"

    def __getattr__(self, name: str) -> Any:
        if name in _SHARED:
            return _SHARED[name]
        if name in _FLOATING:
            return self._floating(name)
        raise AttributeError(
            f"{name!r} is not offered by the array API of fpsim; docs/arrays.md lists what is"
        )

    def __dir__(self) -> Iterable[str]:
        return [*super().__dir__(), *_SHARED, *_FLOATING]

    def _floating(self, name: str) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            if next(arrays_in(arguments), None) is None:
                raise TypeError(
                    f"{name} takes arrays of {self.dtype}; convert: xp.astype(x, xp.{self.dtype})"
                )
            return _FLOATING[name](*arguments, **options)

        call.__name__ = name
        return call

    def __array_namespace_info__(self) -> _Info:
        return _Info(self)

    # Creation -------------------------------------------------------------------------------

    def asarray(
        self, obj: Any, /, *, dtype: Any = None, device: str | None = None,
        copy: bool | None = None,
    ) -> Any:
        """Floating numbers as an Array, rounded by the context; others as numpy has them."""
        _check_device(device)
        if isinstance(obj, Held):
            array: Any = obj
            return array.copy() if copy and dtype in (None, self.dtype) else self._cast(obj, dtype)
        obj = values_in(obj)
        kind = np.asarray(obj).dtype.kind if dtype is None else np.dtype(dtype).kind
        if (dtype is None and kind not in "biu") or self._is_floating(dtype):
            if copy is False:
                raise ValueError("copy=False is not offered where numbers are rounded")
            return self.context.array(obj)
        self._check_type(dtype)
        return np.array(obj, dtype, copy=copy)

    def _cast(self, x: Any, dtype: Any) -> Any:
        if dtype is None or self._is_floating(dtype):
            return x
        self._check_type(dtype)
        return x.astype(dtype)

    def zeros(self, shape: Any, *, dtype: Any = None, device: str | None = None) -> Any:
        return self.full(shape, 0.0 if dtype is None else 0, dtype=dtype, device=device)

    empty = zeros

    def ones(self, shape: Any, *, dtype: Any = None, device: str | None = None) -> Any:
        return self.full(shape, 1.0 if dtype is None else 1, dtype=dtype, device=device)

    def full(
        self, shape: Any, fill_value: Any, *, dtype: Any = None, device: str | None = None
    ) -> Any:
        _check_device(device)
        if self._is_floating(dtype) or (dtype is None and isinstance(fill_value, float)):
            return self.context.full(shape, fill_value)
        self._check_type(dtype)
        kind = np.asarray(fill_value).dtype if dtype is None else np.dtype(dtype)
        return np.full(checked_shape(shape, kind.itemsize), fill_value, dtype)

    def zeros_like(self, x: Any, /, *, dtype: Any = None, device: str | None = None) -> Any:
        return self.zeros(x.shape, dtype=dtype or x.dtype, device=device)

    empty_like = zeros_like

    def ones_like(self, x: Any, /, *, dtype: Any = None, device: str | None = None) -> Any:
        return self.ones(x.shape, dtype=dtype or x.dtype, device=device)

    def full_like(
        self, x: Any, /, fill_value: Any, *, dtype: Any = None, device: str | None = None
    ) -> Any:
        return self.full(x.shape, fill_value, dtype=dtype or x.dtype, device=device)

    def eye(
        self, n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: Any = None,
        device: str | None = None,
    ) -> Any:
        columns = n_rows if n_cols is None else n_cols
        if isinstance(k, bool) or not isinstance(k, (int, np.integer)):
            raise TypeError(f"k={k!r} is not the number of a diagonal; use a whole number")
        result = self.zeros((n_rows, columns), dtype=dtype, device=device)
        row, column = max(0, -k), max(0, k)
        count = max(0, min(n_rows - row, columns - column))
        result[range(row, row + count), range(column, column + count)] = 1
        return result

    def arange(
        self, start: Any, /, stop: Any = None, step: Any = 1, *, dtype: Any = None,
        device: str | None = None,
    ) -> Any:
        _check_device(device)
        whole = all(isinstance(n, int) for n in (start, stop, step) if n is not None)
        if self._is_floating(dtype) or (dtype is None and not whole):
            return self.context.arange(start, stop, step)
        self._check_type(dtype)
        first, end = (0, start) if stop is None else (start, stop)
        return _whole_numbers(first, end, step, np.dtype(np.int64 if dtype is None else dtype))

    def linspace(
        self, start: Any, stop: Any, /, num: int, *, dtype: Any = None, device: str | None = None,
        endpoint: bool = True,
    ) -> Any:
        _check_device(device)
        if dtype is not None and not self._is_floating(dtype):
            raise TypeError(f"dtype={dtype} is not offered; linspace has the type {self.dtype}")
        return self.context.linspace(start, stop, num, endpoint=endpoint)

    # Types ----------------------------------------------------------------------------------

    def _is_floating(self, dtype: Any) -> bool:
        return dtype is not None and np.dtype(dtype) == self.dtype

    def _check_type(self, dtype: Any) -> None:
        if dtype is not None and np.dtype(dtype).name not in ("bool", *_INTEGERS):
            raise TypeError(
                f"dtype={dtype} is not offered; this namespace has {self.dtype}, bool, "
                f"{', '.join(_INTEGERS)}"
            )

    def astype(self, x: Any, dtype: Any, /, *, copy: bool = True, device: str | None = None) -> Any:
        """Rounded by the context where numbers become floating, toward zero where integers."""
        _check_device(device)
        if isinstance(x, Held):
            array: Any = x
            # The type of its memory, to which an Array's own astype converts.
            if self._is_floating(dtype):
                return array.copy() if copy else array
            return array.astype(dtype, copy)
        if self._is_floating(dtype):
            return self.context.array(x)
        self._check_type(dtype)
        return np.asarray(x).astype(dtype, copy=copy)

    def isdtype(self, dtype: Any, kind: Any) -> bool:
        if isinstance(kind, tuple):
            return any(self.isdtype(dtype, k) for k in kind)
        if not self._is_floating(dtype):
            return bool(np.isdtype(np.dtype(dtype), kind))
        return kind in ("real floating", "numeric") if isinstance(kind, str) else kind == dtype

    def can_cast(self, from_: Any, to: Any, /) -> bool:
        """By the standard's promotion, which mixes no truth values with integers."""
        source, target = _dtype_of(from_), np.dtype(to)
        if any(self._is_floating(t) or t.kind == "b" for t in (source, target)):
            return bool(source == target)
        return bool(np.can_cast(source, target))

    def result_type(self, *arrays_and_dtypes: Any) -> Any:
        numbers = [x for x in arrays_and_dtypes if isinstance(x, (bool, int, float, complex))]
        types = [
            _dtype_of(x) for x in arrays_and_dtypes
            if not isinstance(x, (bool, int, float, complex))
        ]
        floating = [self._is_floating(t) for t in types]
        if all(floating) and types:
            return self.dtype
        if any(floating) or any(isinstance(x, (float, complex)) for x in numbers):
            raise TypeError("integers and floating numbers do not mix; convert with xp.astype")
        return np.result_type(*types, *numbers)

    def finfo(self, type: Any, /) -> _Finfo:
        dtype = _dtype_of(type)
        if not self._is_floating(dtype):
            raise TypeError(f"dtype={dtype} is not the floating type {self.dtype}")
        fmt = self.context.core.settings.format
        return _Finfo(fmt.bits, fmt.eps, fmt.max, fmt.min, fmt.smallest_normal, self.dtype)

    def iinfo(self, type: Any, /) -> Any:
        dtype = _dtype_of(type)
        if dtype.name not in _INTEGERS:
            raise TypeError(
                f"type={dtype} is not an integer type; use one of {', '.join(_INTEGERS)}"
            )
        return np.iinfo(dtype)

    # What numpy answers in another kind of container, or not for several types ---------------

    def broadcast_arrays(self, *arrays: Any) -> list[Any]:
        """Arrays of any types in one shape: nothing is promoted."""
        shape = np.broadcast_shapes(*(x.shape for x in _checked_arrays(arrays)))
        return [np.broadcast_to(x, shape) for x in arrays]

    def meshgrid(self, *arrays: Any, indexing: str = "xy") -> list[Any]:
        """Coordinates of a grid; each array keeps its type."""
        if indexing not in ("xy", "ij"):
            raise ValueError(f"indexing={indexing!r} is not known; use 'xy' or 'ij'")
        n, spread = len(_checked_arrays(arrays)), []
        for i, x in enumerate(arrays):
            if x.ndim > 1:
                raise ValueError(f"arrays[{i}] has shape {x.shape}; meshgrid takes vectors")
            # The first two axes change places; a single one has no other.
            axis = 1 - i if indexing == "xy" and n > 1 and i < 2 else i
            spread.append(np.reshape(x, tuple(-1 if k == axis else 1 for k in range(n))))
        return [x.copy() for x in self.broadcast_arrays(*spread)]

    def sum(self, x: Any, /, *, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Any:
        """The floating type is that of every sum here; integers have numpy's sums."""
        if self._is_floating(dtype) and not isinstance(x, Held):
            x = self.astype(x, dtype)
        if isinstance(x, Held):
            if dtype is not None and not self._is_floating(dtype):
                raise TypeError(f"dtype={dtype} is not offered for sums; they have {self.dtype}")
            return np.sum(x, axis=axis, keepdims=keepdims)  # type: ignore[call-overload]
        self._check_type(dtype)
        return np.sum(x, axis=axis, dtype=dtype, keepdims=keepdims)

    def cumulative_sum(
        self, x: Any, /, *, axis: int | None = None, dtype: Any = None,
        include_initial: bool = False,
    ) -> Any:
        """The sums of `np.cumsum`, behind a zero if `include_initial`."""
        if axis is None and x.ndim != 1:
            raise ValueError(f"axis=None is for vectors; x has shape {x.shape}, name an axis")
        axis = 0 if axis is None else axis
        if dtype is not None and not isinstance(x, Held):
            x = self.astype(x, dtype)
        sums = np.cumsum(x, axis, dtype=dtype)
        if not include_initial:
            return sums
        shape = [1 if i == axis % x.ndim else n for i, n in enumerate(x.shape)]
        return np.concatenate([self.zeros(shape, dtype=sums.dtype), sums], axis)

    # What has other arguments than numpy's --------------------------------------------------

    def vecdot(self, x1: Any, x2: Any, /, *, axis: int = -1) -> Any:
        return np.vecdot(np.moveaxis(x1, axis, -1), np.moveaxis(x2, axis, -1))

    def take_along_axis(self, x: Any, indices: Any, /, *, axis: int = -1) -> Any:
        return np.take_along_axis(x, indices, axis)

    def argsort(
        self, x: Any, /, *, axis: int = -1, descending: bool = False, stable: bool = True
    ) -> NDArray[np.intp]:
        if not descending:
            return np.argsort(x, axis=axis, kind="stable")
        # Backwards twice, so that equal elements keep their order; NaN stays the largest.
        places = np.flip(np.argsort(np.flip(x, axis), axis=axis, kind="stable"), axis)
        return np.asarray(x.shape[axis] - 1 - places)

    def sort(
        self, x: Any, /, *, axis: int = -1, descending: bool = False, stable: bool = True
    ) -> Any:
        places = self.argsort(x, axis=axis, descending=descending)
        return np.take_along_axis(x, places, axis)

    def unique_all(self, x: Any, /) -> _UniqueAll:
        """As the standard has it: every NaN is a value of its own."""
        flat = np.reshape(x, -1)
        carrier = x.carrier if isinstance(x, Held) else np.asarray(x)
        first, inverse, counts = order.distinct(carrier, equal_nan=False)
        return _UniqueAll(flat[first], first, inverse, counts)

    def unique_counts(self, x: Any, /) -> _UniqueCounts:
        values, _, _, counts = self.unique_all(x)
        return _UniqueCounts(values, counts)

    def unique_inverse(self, x: Any, /) -> _UniqueInverse:
        values, _, inverse, _ = self.unique_all(x)
        return _UniqueInverse(values, inverse)

    def unique_values(self, x: Any, /) -> Any:
        return self.unique_all(x).values


def _dtype_of(x: Any) -> np.dtype[Any]:
    """The type of an array, or the type itself."""
    if isinstance(x, (Held, np.ndarray, np.generic)):
        x = x.dtype  # type: ignore[union-attr]  # an Array's is its storage type
    dtype: np.dtype[Any] = np.dtype(x)
    return dtype


def _checked_arrays(arrays: Sequence[Any]) -> Sequence[Any]:
    for i, x in enumerate(arrays):
        if not isinstance(x, (Held, np.ndarray, np.generic)):
            kind = type(x).__name__
            raise TypeError(f"arrays[{i}] is {kind}, not an array; convert it with xp.asarray")
    return arrays


def _whole_numbers(start: Any, stop: Any, step: Any, dtype: np.dtype[Any]) -> NDArray[Any]:
    """numpy's arange, which says nothing clear of what has no end or no room."""
    for name, value in (("start", start), ("stop", stop), ("step", step)):
        if not isinstance(value, (int, float, np.integer, np.floating)):
            raise TypeError(f"{name}={value!r} is no number; give an int or a float")
        if value - value != 0:
            raise ValueError(f"{name}={value} is not finite; give a finite number")
    if step == 0:
        raise ValueError("step=0 reaches no stop; use another step")
    check_size("stop", stop, int(max(0, -((start - stop) // step))), dtype.itemsize)
    return np.arange(start, stop, step, dtype=dtype)


def _check_device(device: str | None) -> None:
    if device not in (None, "cpu"):
        raise ValueError(f"device={device!r} is not offered; use 'cpu'")
