"""numpy's functions that make arrays, with `like=` an Array: an Array of its context.

Numbers enter as by the context's own methods: those of `np.array` and `np.arange` are rounded by
it, the number of `np.full` is a constant. With an integer or truth type they make an ndarray.

Source    NumPy enhancement proposal 35 (like=).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fpsim.array_moves import is_type_of

__all__ = ["MAKERS", "make"]


def make(like: Any, function: Callable[..., Any], arguments: Any, options: dict[str, Any]) -> Any:
    """What function(*arguments, **options, like=like) is."""
    return MAKERS[function](like, function, *arguments, **options)


def _as_wanted(like: Any, function: Any, dtype: Any, arguments: tuple[Any, ...]) -> Any:
    """None for the Array's own type; numpy's array where integers or truth values are asked for."""
    if dtype is None or is_type_of(like, dtype):
        return None
    if not isinstance(dtype, str) or dtype in np.sctypeDict:
        kind = np.dtype(dtype)
        if kind.kind in "biu":
            return function(*arguments, dtype=kind)
    raise TypeError(
        f"np.{function.__name__} with dtype={dtype} is not offered for like= an Array of "
        f"{like.format.name}; leave dtype out, or name an integer type"
    )


def _array(
    like: Any, function: Any, values: Any, dtype: Any = None, *, copy: Any = True,
    order: Any = None,
    subok: bool = False, ndmin: int = 0, device: Any = None,
) -> Any:
    other = _as_wanted(like, np.array, dtype, (values,))
    result = like.context.array(values) if other is None else other
    return result.reshape((1,) * (ndmin - result.ndim) + result.shape)


def _filled(value: int) -> Callable[..., Any]:
    def call(
        like: Any, function: Any, shape: Any, dtype: Any = None, order: Any = None,
        device: Any = None
    ) -> Any:
        other = _as_wanted(like, function, dtype, (shape,))
        return like.context.full(shape, value) if other is None else other

    return call


def _full(
    like: Any, function: Any, shape: Any, fill_value: Any, dtype: Any = None, order: Any = None,
    device: Any = None,
) -> Any:
    other = _as_wanted(like, function, dtype, (shape, fill_value))
    return like.context.full(shape, fill_value) if other is None else other


def _named(dtype: Any) -> Any:
    """None for float, which numpy passes on where nobody named a type."""
    return None if dtype is float else dtype


def _eye(
    like: Any, function: Any, N: int, M: int | None = None, k: int = 0, dtype: Any = float,
    order: Any = None, device: Any = None,
) -> Any:
    other = _as_wanted(like, np.eye, _named(dtype), (N, M, k))
    return like.context.array(np.eye(N, M, k, np.int8)) if other is None else other


def _identity(like: Any, function: Any, n: int, dtype: Any = None) -> Any:
    return _eye(like, function, n, dtype=dtype)


def _tri(
    like: Any, function: Any, N: int, M: int | None = None, k: int = 0, dtype: Any = float
) -> Any:
    other = _as_wanted(like, function, _named(dtype), (N, M, k))
    return like.context.array(np.tri(N, M, k, np.int8)) if other is None else other


def _arange(
    like: Any, function: Any, start: Any, stop: Any = None, step: Any = 1, dtype: Any = None,
    device: Any = None,
) -> Any:
    other = _as_wanted(like, np.arange, dtype, (start, stop, step))
    return like.context.arange(start, stop, step) if other is None else other


MAKERS: dict[Callable[..., Any], Callable[..., Any]] = {
    np.array: _array, np.asarray: _array, np.asanyarray: _array, np.ascontiguousarray: _array,
    np.zeros: _filled(0), np.empty: _filled(0), np.ones: _filled(1), np.full: _full, np.eye: _eye,
    np.identity: _identity, np.tri: _tri, np.arange: _arange,
}
