"""numpy's functions that only move values of an Array, and how arguments of numpy reach them.

A move runs on carriers, exactly. Each of its lines has numpy's arguments in numpy's order: `*name`
holds values (Arrays, sequences of them, or Python numbers, which become constants), `-name` is
refused unless it is None or False, `...` stands for all positional arguments.

Source    NumPy enhancement proposal 18 (__array_function__).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim.elementwise.sizes import check_size, checked_shape
from fpsim.records.formats import CATALOGUE, Format, find_number_format
from fpsim.records.types import Carrier

__all__ = [
    "MOVES", "Held", "CarrierMove", "Offer", "arrays_in", "carriers_in", "check_alike",
    "find_storage_format", "is_type_of", "values_in", "without",
]


def _broadcast_arrays(*arrays: Carrier) -> tuple[Carrier, ...]:
    """As numpy's, without its warning on what may be written: these may not."""
    shape = np.broadcast_shapes(*(x.shape for x in arrays))
    return tuple(np.broadcast_to(x, shape) for x in arrays)


class Held:
    """What every function asks of an Array: its memory, its context, and others like it."""

    __slots__ = ()
    carrier: Carrier
    context: Any

    @property
    def values(self) -> NDArray[Any]:
        """A view that cannot be written."""
        raise NotImplementedError

    def like(self, carrier: NDArray[Any]) -> Any:
        """Other values of the same context."""
        raise NotImplementedError

    def to_numpy(self) -> NDArray[Any]:
        """Packed storage."""
        raise NotImplementedError


def check_alike(arrays: Sequence[Held]) -> None:
    """Refuse arrays of one format whose contexts compute by different settings.

    The operation itself refuses arrays of two formats, where it takes no others.
    """
    first = arrays[0].context
    for x in arrays[1:]:
        other = x.context
        if other is first or other.core.settings.format != first.core.settings.format:
            continue
        if other.core.settings != first.core.settings:
            raise TypeError(
                f"one Array computes in {first!r}, another in {other!r}; arrays of different "
                "settings do not mix. Convert one: y.to(x.context), or name the context that "
                "computes: ctx.add(x, y)"
            )


def find_storage_format(dtype: Any) -> Format:
    """The format of that name, or with that storage type.

    >>> find_storage_format("half").name, find_storage_format(np.float32).name
    ('binary16', 'binary32')
    """
    if isinstance(dtype, (Format, str)):
        return find_number_format(dtype, "dtype")
    kind = np.dtype(dtype)
    for fmt in CATALOGUE.values():
        if isinstance(fmt, Format) and fmt.storage == kind:
            return fmt
    raise TypeError(f"dtype={kind} is no storage type of a format; name the format: x.to('tf32')")


MOVES: dict[Callable[..., Any], str] = {
    # Shape
    np.reshape: "*a shape -order copy", np.ravel: "*a order", np.squeeze: "*a axis",
    np.expand_dims: "*a axis", np.transpose: "*a axes", np.permute_dims: "*a axes",
    np.matrix_transpose: "*x", np.swapaxes: "*a axis1 axis2", np.moveaxis: "*a source destination",
    np.rollaxis: "*a axis start", np.atleast_1d: "*...", np.atleast_2d: "*...",
    np.atleast_3d: "*...", np.broadcast_to: "*array shape -subok",
    np.broadcast_arrays: "*... -subok",
    np.meshgrid: "*... copy sparse indexing",
    # Order
    np.flip: "*m axis", np.fliplr: "*m", np.flipud: "*m", np.roll: "*a shift axis",
    np.rot90: "*m k axes",
    # Joining and splitting
    np.concatenate: "*arrays axis -out -dtype -casting",
    np.stack: "*arrays axis -out -dtype -casting",
    np.vstack: "*tup -dtype -casting", np.hstack: "*tup -dtype -casting", np.dstack: "*tup",
    np.column_stack: "*tup", np.block: "*arrays", np.append: "*arr *values axis",
    np.insert: "*arr obj *values axis", np.delete: "*arr obj axis",
    np.split: "*ary indices_or_sections axis", np.array_split: "*ary indices_or_sections axis",
    np.hsplit: "*ary indices_or_sections", np.vsplit: "*ary indices_or_sections",
    np.dsplit: "*ary indices_or_sections", np.unstack: "*x axis",
    # Repeating
    np.tile: "*A reps", np.repeat: "*a repeats axis", np.resize: "*a new_shape",
    # Choosing
    np.take: "*a indices axis -out mode", np.take_along_axis: "*arr indices axis",
    np.compress: "condition *a axis -out", np.extract: "condition *arr",
    np.select: "condlist *choicelist *default", np.tril: "*m k", np.triu: "*m k",
    np.diag: "*v k", np.diagflat: "*v k", np.diagonal: "*a offset axis1 axis2",
    np.trim_zeros: "*filt trim axis",
    # New arrays
    np.copy: "*a order -subok", np.zeros_like: "*a -dtype order -subok shape -device",
    np.full_like: "*a *fill_value -dtype order -subok shape -device",
}


def arrays_in(value: Any) -> Iterator[Held]:
    """Every Array in nested sequences."""
    if isinstance(value, Held):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from arrays_in(item)


def carriers_in(value: Any, context: Any) -> Any:
    """The same with carriers in place of Arrays and of numbers."""
    if isinstance(value, (list, tuple)):
        return type(value)(carriers_in(item, context) for item in value)
    (carrier,) = context.core.carriers((value,))  # refuses another format and an ndarray
    return carrier if isinstance(value, Held) else carrier.copy()


def values_in(value: Any) -> Any:
    """The same with values in place of Arrays: their way into a context, where nothing leaves."""
    if isinstance(value, (list, tuple)):
        return [values_in(item) for item in value]
    return value.values if isinstance(value, Held) else value


def is_type_of(x: Held, dtype: Any) -> bool:
    """Whether a `dtype=` names what x is already: `x.dtype`, its format, or that one's storage.

    np.float32 and "float32" are the format binary32, which is not what a binary16 Array is, though
    float32 memory carries it: who asks for sums in binary32 must not get sums in binary16.
    """
    if isinstance(dtype, np.dtype):
        return bool(dtype == x.carrier.dtype)
    try:
        return bool(find_storage_format(dtype) == x.context.core.settings.format)
    except (TypeError, ValueError):
        return False


def without(function: Any, options: Iterable[str]) -> TypeError:
    """The sentence for arguments that are not offered."""
    return TypeError(f"np.{function.__name__} with {', '.join(options)} is not offered for Array")


class Offer:
    """One of numpy's functions, and what computes it from the arguments that came, by name."""

    def __init__(
        self, line: str, function: Callable[..., Any], call: Callable[..., Any] | None = None
    ) -> None:
        words = line.split()
        self.names = [word.lstrip("*-") for word in words]
        self.values = {word[1:] for word in words if word.startswith("*")}
        self.refused = {word[1:] for word in words if word.startswith("-")}
        self.function, self.call = function, call or function

    def named(self, arguments: Sequence[Any], options: dict[str, Any]) -> dict[str, Any]:
        """The arguments by name; those that are not offered are refused."""
        if self.names[0] == "...":
            named = {"...": arguments} | options
        else:
            named = dict(zip(self.names, arguments, strict=False)) | options
        first = next(arrays_in(list(named.values())), None)
        if first is not None and is_type_of(first, named.get("dtype", np.void)):
            del named["dtype"]
        unknown = [
            name for name, value in named.items()
            if (name not in self.names or name in self.refused)
            and value is not None and value is not False
        ]
        if unknown:
            raise without(self.function, sorted(unknown))
        return {n: v for n, v in named.items() if n in self.names and n not in self.refused}

    def run(self, arguments: Sequence[Any], options: dict[str, Any]) -> Any:
        """The result for the arguments as the user wrote them."""
        named = self.named(arguments, options)
        check_alike(list(arrays_in(list(named.values()))))
        return self.call(**named)


def _resize(a: Carrier, new_shape: Any) -> Carrier:
    """As numpy's, which makes a reference for every repetition."""
    shape = checked_shape(new_shape, a.itemsize)
    if a.size == 0:
        return np.zeros(shape, a.dtype)
    times = -(-math.prod(shape) // a.size)
    again: Carrier = np.empty((times, a.size), a.dtype)
    again[...] = a.reshape(-1)
    return again.reshape(-1)[: math.prod(shape)].reshape(shape)


def _array_split(ary: Carrier, indices_or_sections: Any, axis: int = 0) -> list[Carrier]:
    """As numpy's, for a number of parts that memory holds."""
    parts = indices_or_sections
    if isinstance(parts, (int, np.integer)):
        check_size("indices_or_sections", parts, int(parts), _ARRAY_BYTES)
    return np.array_split(ary, parts, axis)


#: Bytes of an Array without elements, or so.
_ARRAY_BYTES = 1 << 10

#: Moves that numpy itself does not make as they should be made.
_OWN_MOVES: dict[Callable[..., Any], Callable[..., Any]] = {
    np.broadcast_arrays: _broadcast_arrays, np.resize: _resize, np.array_split: _array_split,
}


class CarrierMove(Offer):
    """One that numpy computes on carriers."""

    def __init__(self, line: str, function: Callable[..., Any]) -> None:
        super().__init__(line, function, _OWN_MOVES.get(function))

    def run(self, arguments: Sequence[Any], options: dict[str, Any]) -> Any:
        named = self.named(arguments, options)
        arrays = list(arrays_in([value for name, value in named.items() if name in self.values]))
        if not arrays:
            raise TypeError(f"np.{self.call.__name__} takes an Array only among its values")
        check_alike(arrays)
        context = arrays[0].context
        names = ["..."] * len(arguments) if "..." in named else self.names
        moved = [self._carriers(n, x, context) for n, x in zip(names, arguments, strict=False)]
        keywords = {n: self._carriers(n, x, context) for n, x in options.items()}
        return _wrapped(self.call(*moved, **keywords), arrays[0])

    def _carriers(self, name: str, value: Any, context: Any) -> Any:
        if name == "dtype":  # the Array's own, which its carrier has
            return None
        return carriers_in(value, context) if name in self.values else value


def _wrapped(result: Any, first: Held) -> Any:
    if isinstance(result, (list, tuple)):
        return type(result)(_wrapped(item, first) for item in result)
    return first.like(np.asarray(result))
