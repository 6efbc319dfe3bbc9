"""numpy's protocols for Array: which of its functions there are, and the sentence of the others.

A function works on an Array where the context has the operation, or where nothing is computed. The
others are refused: they would round as numpy does, not as the context does. docs/arrays.md lists
both.

Source    NumPy enhancement proposals 13 (__array_ufunc__) and 18 (__array_function__).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim.array_moves import (
    MOVES,
    CarrierMove,
    Held,
    Offer,
    arrays_in,
    carriers_in,
    check_alike,
    without,
)
from fpsim.composed import (
    as_arrays,
    convolve,
    correlate,
    cross,
    cumsum,
    diff,
    kron,
    trapezoid,
)
from fpsim.einsum import einsum
from fpsim.elementwise import codes, order
from fpsim.elementwise.apply import as_read
from fpsim.like import MAKERS, make
from fpsim.state.processor import usual_arithmetic_in

__all__ = ["NumpyProtocols", "offered"]

#: numpy's functions and the context's methods that they are.
_UFUNCS: dict[np.ufunc, str] = {
    np.add: "add", np.subtract: "subtract", np.multiply: "multiply", np.divide: "divide",
    np.sqrt: "sqrt", np.negative: "negative", np.absolute: "absolute", np.rint: "round_to_integral",
    np.floor: "floor", np.ceil: "ceil", np.trunc: "trunc", np.exp: "exp", np.log: "log",
    np.tanh: "tanh", np.power: "power", np.copysign: "copysign",
    np.maximum: "maximum", np.minimum: "minimum",
    np.fmax: "fmax", np.fmin: "fmin", np.fmod: "fmod", np.remainder: "remainder",
    np.matmul: "matmul", np.sin: "sin", np.cos: "cos", np.expm1: "expm1",
    np.log1p: "log1p", np.sinh: "sinh", np.cosh: "cosh",
}
_RELATIONS: dict[np.ufunc, str] = {
    np.equal: "equal", np.not_equal: "not_equal", np.less: "less", np.less_equal: "less_equal",
    np.greater: "greater", np.greater_equal: "greater_equal",
}
_QUESTIONS = (np.isnan, np.isfinite, np.isinf, np.signbit)
#: Those that are other operations of the context.
_DERIVED: dict[np.ufunc, Callable[..., Any]] = {
    np.square: lambda context, x, out: context.multiply(x, x, out),
    np.positive: lambda context, x, out: context.core.exact(
        "positive", [x.carrier], x.carrier.copy(), np.zeros(x.shape, np.uint8), out
    ),
    np.conjugate: lambda context, x, out: x.copy() if out is None else _copied(x, out),
    np.sign: lambda context, x, out: context.sign(x, out),
    np.reciprocal: lambda context, x, out: context.divide(1, x, out),
    np.vecdot: lambda context, x, y, out: context.matmul(
        x.like(x.carrier[..., None, :]), y.like(y.carrier[..., None])
    )[..., 0, 0],
}


def _copied(x: Any, out: Any) -> Any:
    out[...] = x
    return out


@usual_arithmetic_in()
class NumpyProtocols(Held):
    """What numpy asks of an Array; `Array` inherits it."""

    __slots__ = ()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """The values, exactly: in the carrier's type, binary64 or the packed storage.

        Raises    TypeError where the context refuses (`asarray`), and for other types.
        """
        target_type = self.carrier.dtype if dtype is None else np.dtype(dtype)
        core = self.context.core
        fmt = core.settings.format
        core.asarray.leave(core.settings)
        if target_type == self.carrier.dtype:
            return self.carrier.copy() if copy else self.values
        if target_type != np.float64 and target_type != fmt.storage:
            offered_types = " or ".join(dict.fromkeys((self.carrier.dtype.name, "float64")))
            raise TypeError(
                f"dtype={target_type} does not hold the values of {fmt.name}, or is another "
                f"format; take {offered_types}, or convert: x.to(format).to_numpy()"
            )
        if copy is False:
            raise ValueError(
                f"copy=False is not offered with dtype={target_type}, which takes new memory"
            )
        return self.carrier.astype(target_type) if target_type == np.float64 else self.to_numpy()

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *inputs: Any, out: tuple[Any, ...] = (), **options: Any
    ) -> Any:
        if method != "__call__" or options:
            raise without(ufunc, [method] if method != "__call__" else options)
        target = out[0] if out else None
        if ufunc in _QUESTIONS and not isinstance(target, Held):
            return ufunc(inputs[0].carrier, out=target)
        if out and (ufunc in _QUESTIONS or ufunc in _RELATIONS or ufunc is np.vecdot):
            raise without(ufunc, ["out"])
        if ufunc not in _UFUNCS and ufunc not in _RELATIONS and ufunc not in _DERIVED:
            raise _refusal(ufunc)
        arrays = [x for x in (*inputs, target) if isinstance(x, Held)]
        if target is arrays[0]:
            raise TypeError(f"np.{ufunc.__name__} with out= alone an Array; convert the operands")
        check_alike(arrays)
        context = arrays[0].context
        if ufunc in _RELATIONS:
            return getattr(context, _RELATIONS[ufunc])(*inputs)
        if ufunc is np.matmul or ufunc is np.vecdot:
            inputs = tuple(arrays[0]._beside(x) for x in inputs)  # type: ignore[attr-defined]
        if ufunc in _DERIVED:
            result = _DERIVED[ufunc](context, *inputs, target)
        else:
            result = getattr(context, _UFUNCS[ufunc])(*inputs, out=target)
        return result if target is None else target

    def __array_function__(
        self, function: Any, kinds: Any, arguments: tuple[Any, ...], options: dict[str, Any]
    ) -> Any:
        if function in MAKERS and next(arrays_in([*arguments, *options.values()]), None) is None:
            return make(self, function, arguments, options)
        offer = _offers().get(function)
        if offer is None:
            raise _refusal(function)
        return offer.run(arguments, options)


# What is offered ------------------------------------------------------------------------------


@cache
def _offers() -> dict[Any, Offer]:
    offers = {function: CarrierMove(line, function) for function, line in MOVES.items()}
    return offers | {f: Offer(line, f, call) for f, (line, call) in _FUNCTIONS.items()}


def offered() -> set[Callable[..., Any]]:
    """numpy's functions that take an Array."""
    return {*_UFUNCS, *_RELATIONS, *_DERIVED, *_QUESTIONS, *_offers(), *MAKERS}


#: Functions of `numpy.linalg` that `fpsim.linalg` has by the same name.
_LINEAR_ALGEBRA = frozenset({"cholesky", "cond", "inv", "norm", "qr", "solve"})


def _refusal(function: Any) -> TypeError:
    module = getattr(function, "__module__", None) or "numpy"
    room = module.replace("numpy", "np", 1) if module.startswith("numpy.") else "np"
    if room == "np.linalg" and function.__name__ in _LINEAR_ALGEBRA:
        return TypeError(
            f"np.linalg.{function.__name__} is not offered for Array: it would round as numpy "
            f"does; fpsim.linalg.{function.__name__} computes it in the context"
        )
    return TypeError(
        f"{room}.{function.__name__} is not offered for Array: it would round as numpy does; "
        "compute with the context's operations, or on x.values and come back by ctx.array. "
        "docs/arrays.md lists what works"
    )


# Functions of the context, and questions ------------------------------------------------------


def _context_of(*values: Any) -> Any:
    """Of the first Array; numpy asks only where there is one."""
    return next(arrays_in(values)).context


def _read(x: Any) -> Any:
    """Values as operations read them; what is no Array stays."""
    return as_read(x.carrier, x.context.core.settings) if isinstance(x, Held) else x


def _asking(name: str) -> Callable[..., Any]:
    """numpy's function of that name on the values as they are read."""
    return lambda **arguments: getattr(np, name)(
        *(_read(v) for k, v in arguments.items() if k in ("a", "x", "arr")),
        **{k: v for k, v in arguments.items() if k not in ("a", "x", "arr")},
    )


def _reducing(name: str, **options: Any) -> Callable[..., Any]:
    """The context's reduction of that name."""
    return lambda a, **arguments: getattr(_context_of(a, *arguments.values()), name)(
        a, **arguments, **options
    )


def _where(condition: Any, x: Any = None, y: Any = None) -> Any:
    truth = _read(condition) != 0
    if x is None and y is None:
        return np.nonzero(truth)
    first = next(arrays_in([x, y]), None)
    if first is None:
        raise TypeError("np.where chooses between numbers here; give an Array: ctx.array(…)")
    context = first.context
    return first.like(np.asarray(np.where(truth, carriers_in(x, context), carriers_in(y, context))))


def _dot(a: Any, b: Any) -> Any:
    """As np.dot: over the last axis of a and the last but one of b."""
    a, b = as_arrays(a, b)
    context = a.context
    x, y = a.carrier, b.carrier
    if x.ndim == 0 or y.ndim == 0:
        return context.multiply(a, b)
    if y.ndim == 1 or (x.ndim <= 2 and y.ndim == 2):
        return context.matmul(a, b)
    columns = np.moveaxis(y, -2, 0)
    product = context.matmul(
        a.like(x.reshape(-1, x.shape[-1])), b.like(columns.reshape(len(columns), -1))
    )
    return product.reshape((*x.shape[:-1], *columns.shape[1:]))


def _inner(a: Any, b: Any) -> Any:
    a, b = as_arrays(a, b)
    return _dot(a, b if b.carrier.ndim < 2 else b.like(b.carrier.swapaxes(-1, -2)))


def _vdot(a: Any, b: Any) -> Any:
    a, b = as_arrays(a, b)
    return a.context.dot(a.reshape(-1), b.reshape(-1))


def _outer(a: Any, b: Any) -> Any:
    a, b = as_arrays(a, b)
    return a.context.multiply(a.reshape(-1, 1), b.reshape(1, -1))


def _tensordot(a: Any, b: Any, axes: Any = 2) -> Any:
    a, b = as_arrays(a, b)
    if isinstance(axes, int):
        left, right = list(range(a.ndim - axes, a.ndim)), list(range(axes))
    else:
        left, right = ([i] if isinstance(i, int) else list(i) for i in axes)
    x = np.moveaxis(a.carrier, left, range(-len(left), 0))
    y = np.moveaxis(b.carrier, right, range(len(right)))
    outer, inner = x.shape[: x.ndim - len(left)], y.shape[len(right) :]
    if x.shape[x.ndim - len(left) :] != y.shape[: len(right)]:
        raise ValueError(f"axes={axes} pair axes of different lengths: {a.shape} and {b.shape}")
    k = math.prod(y.shape[: len(right)])
    sizes = [math.prod(shape) for shape in (outer, inner)]
    matrices = a.like(x.reshape(sizes[0], k)), b.like(y.reshape(k, sizes[1]))
    return a.context.matmul(*matrices).reshape((*outer, *inner))


def _place(name: str) -> Callable[..., Any]:
    def call(a: Any, axis: int | None = None, keepdims: bool = False) -> Any:
        place = getattr(_context_of(a), name)(a, axis, keepdims=keepdims)
        return place if place.ndim else place[()]

    return call


def _argsort(a: Any, axis: int | None = -1, kind: Any = None, stable: Any = None) -> Any:
    return order.keys(a.carrier).argsort(axis=axis, kind="stable")


def _sort(a: Any, axis: int | None = -1, kind: Any = None, stable: Any = None) -> Any:
    x = a.carrier.reshape(-1) if axis is None else a.carrier
    axis = -1 if axis is None else axis
    return a.like(np.take_along_axis(x, order.keys(x).argsort(axis=axis, kind="stable"), axis))


def _unique(
    ar: Any, return_index: bool = False, return_inverse: bool = False, return_counts: bool = False
) -> Any:
    first, inverse, counts = order.distinct(ar.carrier)
    extras = (return_index, first), (return_inverse, inverse), (return_counts, counts)
    results = [ar.like(ar.carrier.reshape(-1)[first]), *(r for asked_for, r in extras if asked_for)]
    return tuple(results) if len(results) > 1 else results[0]


def _isin(element: Any, test_elements: Any, invert: bool = False) -> Any:
    context = _context_of(element, test_elements)
    sides = []
    for side in (element, test_elements):
        items = side if isinstance(side, (Held, list, tuple)) else [side]
        if not isinstance(items, Held):
            # A comparison refuses no number.
            items = [x if isinstance(x, Held) else context.constant(x) for x in items]
            sides.append(np.array([float(x) for x in items]))
        else:
            sides.append(_read(items))
    return np.isin(sides[0], sides[1], invert=invert)


def _array_equal(a1: Any, a2: Any, equal_nan: bool = False) -> bool:
    if not (isinstance(a1, Held) and isinstance(a2, Held)):
        return False
    if a1.carrier.shape != a2.carrier.shape:
        return False
    same = a1.context.equal(a1, a2)
    if equal_nan:
        same = same | (np.isnan(a1.carrier) & np.isnan(a2.carrier))
    return bool(same.all())


def _round(a: Any, decimals: int = 0, out: Any = None) -> Any:
    if decimals != 0:
        raise TypeError(
            f"decimals={decimals} is not offered for Array; only whole numbers are exact"
        )
    return _context_of(a).round_to_integral(a, out=out)


def _pad(array: Any, pad_width: Any, mode: str = "constant", constant_values: Any = 0) -> Any:
    modes = ("constant", "edge", "wrap", "reflect", "symmetric")
    if mode not in modes:
        raise TypeError(f"mode={mode!r} is not offered for Array; use one of {', '.join(modes)}")
    if mode != "constant":
        return array.like(np.pad(array.carrier, pad_width, mode))  # type: ignore[call-overload]
    values = _numbers(constant_values, array.context)
    return array.like(np.pad(array.carrier, pad_width, constant_values=values))


def _numbers(value: Any, context: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_numbers(item, context) for item in value]
    return context.core.carriers((value,))[0].item()


def _clip(a: Any, a_min: Any = None, a_max: Any = None, out: Any = None, **bounds: Any) -> Any:
    least, most = bounds.get("min", a_min), bounds.get("max", a_max)
    return _context_of(a, a_min, a_max).clip(a, least, most, out)


def _copyto(dst: Any, src: Any, where: Any = True) -> None:
    context = _context_of(dst, src)
    if not isinstance(dst, Held):
        raise TypeError("dst is an ndarray and src an Array; take src.values")
    np.copyto(dst.carrier, context.core.carriers((src,))[0], where=where)


def _save(file: Any, arr: Any, allow_pickle: bool = True) -> None:
    """Packed storage: codes where numpy's files know no such type."""
    packed = arr.to_numpy()
    is_builtin = packed.dtype.isbuiltin == 1
    np.save(
        file, packed if is_builtin else codes.to_codes(arr.carrier, arr.format), allow_pickle=False
    )


def _ones_like(a: Any, shape: Any = None) -> Any:
    return np.full_like(a, 1, shape=shape)


def _result_type(**named: Any) -> np.dtype[Any]:
    """Of the memory that carries Arrays: `x.format` tells what they hold."""
    return np.result_type(*(x.carrier.dtype if isinstance(x, Held) else x for x in named["..."]))


def _einsum(optimize: Any = False, **named: Any) -> Any:
    return einsum(*named["..."], optimize=optimize)


_REDUCTION = "a axis -dtype out keepdims -initial -where"
#: numpy's arguments, and what computes the result; `-` as in MOVES.
_FUNCTIONS: dict[Callable[..., Any], tuple[str, Callable[..., Any]]] = {
    np.sum: (_REDUCTION, _reducing("sum")), np.mean: (_REDUCTION, _reducing("mean")),
    np.max: ("a axis out keepdims -initial -where", _reducing("max")),
    np.min: ("a axis out keepdims -initial -where", _reducing("min")),
    np.amax: ("a axis out keepdims -initial -where", _reducing("max")),
    np.amin: ("a axis out keepdims -initial -where", _reducing("min")),
    np.nanmax: ("a axis out keepdims -initial -where", _reducing("max", number_wins=True)),
    np.nanmin: ("a axis out keepdims -initial -where", _reducing("min", number_wins=True)),
    np.argmax: ("a axis -out keepdims", _place("argmax")),
    np.argmin: ("a axis -out keepdims", _place("argmin")),
    np.sort: ("a axis kind -order stable", _sort),
    np.argsort: ("a axis kind -order stable", _argsort),
    np.unique: ("ar return_index return_inverse return_counts -axis", _unique),
    np.isin: ("element test_elements -assume_unique invert -kind", _isin),
    np.array_equal: ("a1 a2 equal_nan", _array_equal),
    np.clip: ("a a_min a_max out min max", _clip), np.round: ("a decimals out", _round),
    np.around: ("a decimals out", _round),
    np.fix: ("x out", lambda x, out=None: _context_of(x).trunc(x, out)),
    np.dot: ("a b -out", _dot), np.inner: ("a b", _inner), np.vdot: ("a b", _vdot),
    np.outer: ("a b -out", _outer), np.tensordot: ("a b axes", _tensordot),
    np.kron: ("a b", kron), np.cross: ("a b axisa axisb axisc axis", cross),
    np.einsum: ("... optimize -out -dtype -order -casting", _einsum),
    np.convolve: ("a v mode", convolve), np.correlate: ("a v mode", correlate),
    np.cumsum: ("a axis -dtype out", cumsum), np.diff: ("a n axis prepend append", diff),
    np.trapezoid: ("y x dx axis", trapezoid),
    np.result_type: ("...", _result_type), np.real: ("val", lambda val: val),
    np.where: ("condition x y", _where), np.pad: ("array pad_width mode constant_values", _pad),
    np.ones_like: ("a -dtype -order -subok shape -device", _ones_like),
    np.empty_like: (
        "a -dtype -order -subok shape -device",
        lambda a, shape=None: np.zeros_like(a, shape=shape),
    ),
    np.copyto: ("dst src -casting where", _copyto),
    np.save: ("file arr allow_pickle", _save),
    np.shape: ("a", lambda a: a.shape), np.ndim: ("a", lambda a: a.ndim),
    np.size: ("a axis", lambda a, axis=None: a.size if axis is None else a.shape[axis]),
    np.any: ("a axis -out keepdims -where", _asking("any")),
    np.all: ("a axis -out keepdims -where", _asking("all")),
    np.nonzero: ("a", _asking("nonzero")), np.flatnonzero: ("a", _asking("flatnonzero")),
    np.argwhere: ("a", _asking("argwhere")),
    np.count_nonzero: ("a axis keepdims", _asking("count_nonzero")),
    np.astype: ("x dtype copy", lambda x, dtype, copy=True: x.astype(dtype, copy)),
    np.shares_memory: ("a b", lambda a, b: np.shares_memory(_memory(a), _memory(b))),
    np.may_share_memory: ("a b", lambda a, b: np.may_share_memory(_memory(a), _memory(b))),
    np.iscomplexobj: ("x", lambda x: False), np.isrealobj: ("x", lambda x: True),
    np.array_repr: ("arr", repr), np.array_str: ("a", str),
}


def _memory(x: Any) -> Any:
    return x.carrier if isinstance(x, Held) else x
