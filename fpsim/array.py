"""Array: values of one format in one Context, with operators.

An Array is a carrier ndarray and the context that computes with it. Nothing is promoted: two
formats do not meet without a conversion, arrays of different settings do not mix in operators, and
numpy's own functions work where the context has the operation and refuse where it has not
(`fpsim.array_functions`, docs/arrays.md).

A Context makes Arrays, so this file does not know its class: `context` is a `fpsim.Context`.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim.array_functions import NumpyProtocols
from fpsim.array_moves import check_alike, find_storage_format, is_type_of
from fpsim.elementwise import codes
from fpsim.elementwise.apply import as_read
from fpsim.records.drawings import bars, bits_of
from fpsim.records.formats import Format
from fpsim.records.types import Axis, Carrier
from fpsim.state.processor import usual_arithmetic_in

__all__ = ["Array"]

#: Elements that a notebook shows: up to so many all of them, and the bits of the first ones.
_SHOWN_WHOLE, _SHOWN_AS_BITS = 60, 3

#: What moves numbers as they are, and operators, which the context computes.
_MOVING = (
    "__init__", "like", "to_device", "__len__", "__iter__", "copy", "__copy__", "__deepcopy__",
    "reshape", "transpose", "ravel", "flatten", "squeeze", "take", "__getitem__", "__setitem__",
    "_with", "conj", "dot", "cumsum", "__add__", "__radd__", "__sub__", "__rsub__", "__mul__",
    "__rmul__", "__truediv__", "__rtruediv__", "__mod__", "__rmod__", "__imod__", "__matmul__",
    "__rmatmul__", "__pow__", "__iadd__", "__isub__", "__imul__",
    "__itruediv__", "__ipow__", "__neg__", "__pos__", "__abs__", "__eq__", "__ne__", "__lt__",
    "__le__", "__gt__", "__ge__",
)


@usual_arithmetic_in(*_MOVING)
class Array(NumpyProtocols):
    """Values of a format, computed with in a context.

    carrier   the writable memory of the values as native floats, for kernels, `out=` and code
              that puts only values of the format there; `values` is the face for people.

    >>> import fpsim as fp
    >>> half = fp.Context(fp.BINARY16)
    >>> half.array([1, 2]) / 3
    Array([0.33325195, 0.66650391], binary16)
    """

    __slots__ = ("_view", "carrier", "context")
    #: Ahead of ndarray, so that ndarray + Array is refused here, with our sentence.
    __array_priority__ = 1000.0

    def __init__(self, carrier: NDArray[Any], context: Any) -> None:
        self.carrier = carrier
        self.context = context

    def like(self, carrier: NDArray[Any]) -> Array:
        """Other values of the same context."""
        return Array(carrier, self.context)

    # Faces ----------------------------------------------------------------------------------

    @property
    def values(self) -> NDArray[Any]:
        """The values as native floats: a view that cannot be written, since numbers that the
        format lacks must not enter; assign to the Array, or use `context.array`.
        """
        try:
            return self._view
        except AttributeError:
            self._view: NDArray[Any] = self.carrier.view()
            self._view.flags.writeable = False
            return self._view

    # Every operation asks for these: `attrgetter` answers without a call of Python.
    format: Format = property(  # type: ignore[assignment]
        attrgetter("context.core.settings.format"), doc="The format of the values."
    )
    shape: tuple[int, ...] = property(  # type: ignore[assignment]
        attrgetter("carrier.shape"), doc="Elements along each axis."
    )
    ndim: int = property(  # type: ignore[assignment]
        attrgetter("carrier.ndim"), doc="The number of axes."
    )
    size: int = property(  # type: ignore[assignment]
        attrgetter("carrier.size"), doc="The number of elements."
    )

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the memory, which is wider than most formats: float32, or float64.

        The codes have the width of `format`; `to_numpy` packs them.

        >>> import fpsim as fp
        >>> x = fp.Context("binary16", asarray="allow").array([1.0, 2.0])
        >>> x.dtype.name, x.itemsize, x.nbytes, np.asarray(x).dtype.name
        ('float32', 4, 8, 'float32')
        >>> x.format.bits, x.to_numpy().dtype.name, x.storage_bytes
        (16, 'float16', 4)
        """
        return self.format.carrier

    @property
    def itemsize(self) -> int:
        """Bytes of an element in memory."""
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return self.size * self.dtype.itemsize

    @property
    def storage_bytes(self) -> int:
        """Bytes of the packed storage, which are what a machine of this format holds."""
        return self.size * self.format.packed.itemsize

    @property
    def device(self) -> str:
        """Where numpy's memory is."""
        return "cpu"

    def to_device(self, device: str, /, *, stream: None = None) -> Array:
        """Itself, on the only device."""
        if device != "cpu" or stream is not None:
            raise ValueError(f"device={device!r} is not offered; an Array is on 'cpu'")
        return self

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        # Imported where it is asked for: few programs do, and importing fpsim must not wait for it.
        from fpsim.array_namespace import Namespace

        return Namespace(self.context, api_version)

    def to(self, target: Format | str | Any) -> Array:
        """Converted to another format (by this context's other choices) or context.

        Rounding  a format: an operation of this context, whose flags, counts and random bits the
                  result's context shares (`Context.in_format`); a context: one of that context.

        >>> import fpsim as fp
        >>> fp.Context(fp.BINARY32).array([0.1]).to("binary16")
        Array([0.09997559], binary16)
        """
        if isinstance(target, (Format, str)):
            return self.context.in_format(find_storage_format(target)).array(self)
        if not hasattr(target, "core"):
            raise TypeError(
                f"target={target!r} is no format and no context; give one, or a format's name"
            )
        return target.array(self)

    def astype(self, dtype: Any, copy: bool = True) -> Any:
        """Converted to a format, by its name or storage type; integers and bool give an ndarray.

        Rounding  a format: as `to`; integers: toward zero, as in numpy (`ctx.to_integers` rounds
                  as the context does).
        Flags     as `to` and `Context.to_integers`.
        """
        of_numpy = isinstance(dtype, str) and dtype in ("bool", "int32", "int64")
        if of_numpy or not isinstance(dtype, (Format, str)):
            kind = np.dtype(dtype)
            if kind == np.bool_:
                return self._read() != 0
            if kind.kind in "iu":
                return self.context.to_integers(self.context.trunc(self), kind)
        fmt = find_storage_format(dtype)
        if fmt != self.format:
            return self.to(fmt)
        return self.copy() if copy else self

    def to_numpy(self) -> NDArray[Any]:
        """Packed storage: np.float16, an ml_dtypes type, or unsigned codes."""
        return codes.pack(self.carrier, self.format)

    def codes(self) -> NDArray[Any]:
        """Bit patterns as unsigned integers."""
        return codes.to_codes(self.carrier, self.format)

    def item(self, *index: Any) -> float:
        """One element as a Python float, exactly."""
        return float(self.carrier.item(*index))

    def tolist(self) -> Any:
        """Python floats in nested lists, exactly."""
        return self.carrier.tolist()

    def _read(self) -> Carrier:
        """The values as operations read them."""
        return as_read(self.carrier, self.context.core.settings)

    def __len__(self) -> int:
        return len(self.carrier)

    def __iter__(self) -> Iterator[Array]:
        if self.carrier.ndim == 0:
            raise TypeError("an Array without dimensions has no elements to iterate over")
        return (self[i] for i in range(len(self.carrier)))

    def __contains__(self, value: Any) -> bool:
        return bool((self == value).any())

    def __float__(self) -> float:
        return float(self._one())

    def __int__(self) -> int:
        return int(self._one())

    def __complex__(self) -> complex:
        return complex(self._one())

    def __bool__(self) -> bool:
        return bool(self._one(self._read()))

    def _one(self, values: Carrier | None = None) -> float:
        values = self.carrier if values is None else values
        if values.size != 1:
            raise ValueError(
                f"an Array of shape {self.shape} is not one number; take an element, or use "
                ".any() or .all()"
            )
        return float(values.item())

    def __format__(self, spec: str) -> str:
        if self.ndim == 0:
            return format(float(self), spec)
        if spec:
            raise TypeError(f"format {spec!r} is for one number; this Array has shape {self.shape}")
        return repr(self)

    def __repr__(self) -> str:
        text = np.array2string(self.carrier.astype(np.float64), separator=", ", prefix="Array(")
        if self.size == 0 and self.shape != (0,):
            text += f", shape={self.shape}"
        return f"Array({text}, {self.format.name})"

    def _repr_html_(self) -> str:
        """How a notebook shows it: numbers, bits of the first, exponents in the format's range."""
        finite = self.carrier[np.isfinite(self.carrier) & (self.carrier != 0)]
        exponents, counts = np.unique(np.frexp(finite)[1] - 1, return_counts=True)
        picture = bars(list(zip(exponents.tolist(), counts.tolist(), strict=True)), self.format)
        with np.printoptions(threshold=_SHOWN_WHOLE):
            numbers = f"<pre>{escape(repr(self))}</pre>"
        first = self.ravel()[:_SHOWN_AS_BITS]
        bits = "".join(
            f"<div>{value:.9g} = {bits_of(self.format, code)}</div>"
            for value, code in zip(first.tolist(), first.codes().tolist(), strict=True)
        )
        return f"<div>{numbers}{bits}{picture if self.size > 1 else ''}</div>"

    __hash__ = None  # type: ignore[assignment]

    # Copies and selection -------------------------------------------------------------------

    def copy(self) -> Array:
        """An Array of its own with the same numbers."""
        return self.like(self.carrier.copy())

    __copy__ = copy

    def __deepcopy__(self, memo: Any) -> Array:
        return self.copy()  # the context is no part of the values

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (self.context, self.to_numpy())

    def reshape(self, *shape: Any) -> Array:
        """The same numbers in another shape, as numpy's `reshape` takes it."""
        return Array(self.carrier.reshape(*shape), self.context)

    def transpose(self, *axes: Any) -> Array:
        """Axes in this order; in reverse order without one."""
        return self.like(self.carrier.transpose(*axes))

    def ravel(self) -> Array:
        """One axis, in C order; a view where numpy gives one."""
        return self.like(self.carrier.ravel())

    def flatten(self) -> Array:
        """One axis, in C order; always a copy."""
        return self.like(self.carrier.flatten())

    def squeeze(self, axis: Axis = None) -> Array:
        """Without axes of length one: all of them, or these."""
        return self.like(self.carrier.squeeze(axis))

    def take(self, indices: Any, axis: int | None = None) -> Array:
        """Elements by their indices along an axis, or of all in C order."""
        return self.like(np.asarray(self.carrier.take(indices, axis)))

    @property
    def T(self) -> Array:
        """All axes in reverse order."""
        return self.transpose()

    @property
    def real(self) -> Array:
        """Itself: an Array has real numbers only."""
        return self

    def conj(self) -> Array:
        """A copy: the conjugate of a real number is itself."""
        return self.copy()

    @property
    def mT(self) -> Array:
        """The last two axes exchanged."""
        return self.like(self.carrier.mT)

    def __getitem__(self, index: Any) -> Array:
        return Array(np.asarray(self.carrier[index]), self.context)

    def __setitem__(self, index: Any, value: Any) -> None:
        (carrier,) = self.context.core.carriers((value,))
        self.carrier[index] = carrier

    # Operators ------------------------------------------------------------------------------

    def _with(self, y: Any) -> Any:
        """The context, once it is clear that an Array y computes alike."""
        if isinstance(y, Array) and y.context is not self.context:
            check_alike((self, y))
        return self.context

    def __add__(self, y: Any) -> Array:
        return self._with(y).add(self, y)

    def __radd__(self, y: Any) -> Array:
        return self.context.add(y, self)

    def __sub__(self, y: Any) -> Array:
        return self._with(y).subtract(self, y)

    def __rsub__(self, y: Any) -> Array:
        return self.context.subtract(y, self)

    def __mul__(self, y: Any) -> Array:
        return self._with(y).multiply(self, y)

    def __rmul__(self, y: Any) -> Array:
        return self.context.multiply(y, self)

    def __truediv__(self, y: Any) -> Array:
        return self._with(y).divide(self, y)

    def __rtruediv__(self, y: Any) -> Array:
        return self.context.divide(y, self)

    def __matmul__(self, y: Any) -> Array:
        return self._with(y).matmul(self, self._beside(y))

    def __rmatmul__(self, y: Any) -> Array:
        return self.context.matmul(self._beside(y), self)

    def _beside(self, y: Any) -> Any:
        """An ndarray as an Array, where the format holds its values: a product takes no other."""
        if not isinstance(y, np.ndarray):
            return y
        (carrier,) = self.context.core.carriers((y,))
        return self.like(carrier)

    def __pow__(self, n: Any) -> Array:
        return self._with(n).power(self, n)

    def __rpow__(self, x: Any) -> Array:
        return self.context.power(x, self)

    def __iadd__(self, y: Any) -> Array:
        return self._with(y).add(self, y, out=self)

    def __isub__(self, y: Any) -> Array:
        return self._with(y).subtract(self, y, out=self)

    def __imul__(self, y: Any) -> Array:
        return self._with(y).multiply(self, y, out=self)

    def __itruediv__(self, y: Any) -> Array:
        return self._with(y).divide(self, y, out=self)

    def __ipow__(self, n: Any) -> Array:
        return self._with(n).power(self, n, out=self)

    def __neg__(self) -> Array:
        return self.context.negative(self)

    def __pos__(self) -> Array:
        return self

    def __abs__(self) -> Array:
        return self.context.absolute(self)

    def __mod__(self, y: Any) -> Array:
        return self._with(y).remainder(self, y)

    def __rmod__(self, y: Any) -> Array:
        return self.context.remainder(y, self)

    def __imod__(self, y: Any) -> Array:
        return self._with(y).remainder(self, y, out=self)

    def __eq__(self, y: Any) -> Any:
        return self._with(y).equal(self, y)

    def __ne__(self, y: Any) -> Any:
        return self._with(y).not_equal(self, y)

    def __lt__(self, y: Any) -> Any:
        return self._with(y).less(self, y)

    def __le__(self, y: Any) -> Any:
        return self._with(y).less_equal(self, y)

    def __gt__(self, y: Any) -> Any:
        return self._with(y).greater(self, y)

    def __ge__(self, y: Any) -> Any:
        return self._with(y).greater_equal(self, y)

    # Many to one ----------------------------------------------------------------------------

    def sum(
        self, axis: Axis = None, order: str = "sequential", *, keepdims: bool = False,
        dtype: Any = None,
    ) -> Array:
        """Sum over axes in this array's context, in whose format it is."""
        self._check_type("sum", dtype)
        return self.context.sum(self, axis, order, keepdims=keepdims)

    def mean(
        self, axis: Axis = None, order: str = "sequential", *, keepdims: bool = False,
        dtype: Any = None,
    ) -> Array:
        """Mean over axes in this array's context, in whose format it is."""
        self._check_type("mean", dtype)
        return self.context.mean(self, axis, order, keepdims=keepdims)

    def _check_type(self, name: str, dtype: Any) -> None:
        if dtype is not None and not is_type_of(self, dtype):
            raise TypeError(
                f"{name} with dtype={dtype} is not offered: the result is {self.format.name}, "
                f"carried in {self.dtype}; convert before or after: x.to(format)"
            )

    def dot(self, y: Any) -> Array:
        """As np.dot: products over the last axis of x and the last but one of y."""
        product: Array = np.dot(self, y)
        return product

    def cumsum(self, axis: int | None = None, dtype: Any = None) -> Array:
        """As np.cumsum: s₀ = x₀, sᵢ = fl(sᵢ₋₁ + xᵢ), each addition an operation."""
        self._check_type("cumsum", dtype)
        sums: Any = np.cumsum(self, axis)
        return sums

    def max(self, axis: Axis = None, *, keepdims: bool = False) -> Array:
        """The largest over axes; a NaN wins, -0 < +0 (`Context.max`)."""
        return self.context.max(self, axis, keepdims=keepdims)

    def min(self, axis: Axis = None, *, keepdims: bool = False) -> Array:
        """The smallest over axes; a NaN wins, -0 < +0 (`Context.min`)."""
        return self.context.min(self, axis, keepdims=keepdims)

    def clip(self, min: Any = None, max: Any = None) -> Array:
        """minimum(maximum(x, min), max)."""
        return self.context.clip(self, min, max)

    def any(self, axis: Axis = None, *, keepdims: bool = False) -> Any:
        """Whether an element is not zero; NaN is not."""
        return self._read().any(axis, keepdims=keepdims)

    def all(self, axis: Axis = None, *, keepdims: bool = False) -> Any:
        """Whether no element is zero."""
        return self._read().all(axis, keepdims=keepdims)


def _restore(context: Any, packed: NDArray[Any]) -> Array:
    return context.unpack(packed)
