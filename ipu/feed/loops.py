"""Loops on the device: one launch from the host for all iterations.

The body gets the carried values and then the infeed's next element, and returns the carried values.
Their types stay as they were: the device's program is built once, for fixed types and shapes.

Source    TensorFlow user guide §6.1; graphcore/tensorflow loops.py. Optimising for performance
          §4.5.3.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from fpsim.array import Array
from ipu.feed.counters import Launch, launching
from ipu.feed.infeed import Infeed
from ipu.feed.structures import LEAF, leaves_of, structure_of

__all__ = ["repeat", "while_loop"]

Values = tuple[Any, ...]


def repeat(n: int, body: Callable[..., Any], *carried: Any, infeed: Infeed | None = None) -> Any:
    """Run the body n times; the carried values in the end.

    body      body(*carried, *element) -> the carried values, in a tuple where there are several
              and None where there are none. An element that is a tuple or a list gives positional
              arguments, a dictionary whose keys are strings gives keyword arguments, another
              element is one argument.
    Raises    TypeError where the body takes other arguments, or returns values of other types;
              EndOfDataError where the data set ends. The element of an iteration that failed comes
              again, and threads of the queues have ended.

    >>> with Infeed([(1.0, 2.0), (3.0, 4.0)]) as infeed:
    ...     repeat(2, lambda total, x, y: total + x * y, np.float64(0), infeed=infeed)
    np.float64(14.0)
    """
    return while_loop(None, body, *carried, infeed=infeed, maximum_iterations=_count(n, "n"))


def while_loop(
    condition: Callable[..., Any] | None,
    body: Callable[..., Any],
    *carried: Any,
    infeed: Infeed | None = None,
    maximum_iterations: int | None = None,
) -> Any:
    """Run the body while the condition holds for the carried values; the values in the end.

    condition             condition(*carried), asked before each iteration; None holds always.
    maximum_iterations    the loop ends after so many.
    body, Raises          as in `repeat`.

    >>> while_loop(lambda n: n < 100, lambda n: n * 3, 1)
    243
    """
    if infeed is not None and not isinstance(infeed, Infeed):
        raise TypeError(f"infeed is a {type(infeed).__name__}; use infeed=Infeed(data)")
    most = None if maximum_iterations is None else _count(maximum_iterations, "maximum_iterations")
    if condition is None and most is None:
        raise TypeError("condition=None and maximum_iterations=None never end; give one of them")
    with launching() as launch:
        loop = _Loop(body, carried, infeed, launch)
        done = 0
        while done != most and (condition is None or condition(*loop.values)):
            loop.iterate()
            done += 1
    return loop.result


class _Loop:
    """The state of one loop."""

    def __init__(
        self, body: Callable[..., Any], carried: Values, infeed: Infeed | None, launch: Launch
    ) -> None:
        self._body = body
        self.values = carried
        self._infeed = infeed
        self._launch = launch
        self._is_checked = False
        self._structures = [structure_of(value) for value in carried]
        self._types = [self._types_of(i, value) for i, value in enumerate(carried)]

    def iterate(self) -> None:
        """One iteration. If it fails, its element is not consumed and the infeed's thread ends."""
        infeed = self._infeed
        if infeed is None:
            self.values = self._returned(self._call((), {}))
        else:
            position = infeed.position
            try:
                self.values = self._returned(self._call(*_arguments(infeed.dequeue())))
            except BaseException:
                infeed.position = position
                raise
        self._launch.counters.iterations += 1

    @property
    def result(self) -> Any:
        """The values as the caller gets them."""
        if len(self.values) == 1:
            return self.values[0]
        return self.values or None

    def _call(self, positional: Values, named: dict[str, Any]) -> Any:
        if not self._is_checked:
            self._check_arguments(positional, named)
            self._is_checked = True
        return self._body(*self.values, *positional, **named)

    def _check_arguments(self, positional: Values, named: dict[str, Any]) -> None:
        try:
            signature = inspect.signature(self._body)
        except (TypeError, ValueError):
            return  # some functions of C have none; they check their arguments themselves
        try:
            signature.bind(*self.values, *positional, **named)
        except TypeError as error:
            names = f", by name: {', '.join(named)}" if named else ""
            raise TypeError(
                f"the loop body is called with {len(self.values)} carried values and "
                f"{len(positional) + len(named)} of the infeed{names}; its signature is "
                f"{signature} ({error})"
            ) from None

    def _returned(self, returned: Any) -> Values:
        """What the body returned, as carried values of the same types."""
        values = self._as_values(returned)
        for i, value in enumerate(values):
            types = self._types_of(i, value)
            if types != self._types[i]:
                raise self._mismatch(i, types)
        return values

    def _as_values(self, returned: Any) -> Values:
        n = len(self.values)
        if n == 1:
            return (returned,)
        values = () if returned is None else returned
        if not isinstance(values, tuple | list) or len(values) != n:
            got = f"{len(values)} values" if isinstance(values, tuple | list) else "one value"
            raise TypeError(
                f"the loop carries {n} values, and its body returned {got}; return the carried "
                f"values, {'a tuple of them' if n else 'here none'}"
            )
        return tuple(values)

    def _types_of(self, i: int, value: Any) -> list[tuple[Any, ...]]:
        structure = self._structures[i]
        if structure is LEAF:
            return [_carried_type(value)]
        try:
            return [_carried_type(leaf) for leaf in leaves_of(value, structure)]
        except TypeError as error:
            raise TypeError(
                f"{_MISMATCH} at carried value {i}: {error}; return it as it was"
            ) from None

    def _mismatch(self, i: int, types: list[tuple[Any, ...]]) -> TypeError:
        paths = self._structures[i].paths
        path, before, after = next(
            (path, _words(x), _words(y))
            for path, x, y in zip(paths, self._types[i], types, strict=True)
            if x != y
        )
        return TypeError(
            f"{_MISMATCH} at carried value {i}{path}: {before} became {after}; convert it back in "
            "the body, or carry the other type from the start"
        )


#: The words of the framework's error.
_MISMATCH = "Mismatch between input types and output types for loop body"


def _arguments(element: Any) -> tuple[Values, dict[str, Any]]:
    """Positional and named arguments for an element."""
    if isinstance(element, dict) and all(isinstance(key, str) for key in element):
        return (), element
    return tuple(element) if isinstance(element, tuple | list) else (element,), {}


def _carried_type(value: Any) -> tuple[Any, ...]:
    """What must not change: class, format or dtype, and shape."""
    kind = type(value)
    if kind is Array:
        return (kind, value.format, value.shape)
    if isinstance(value, np.ndarray | np.generic):
        return (np.ndarray, value.dtype, value.shape)
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return (kind, value.dtype, tuple(value.shape))
    return (kind,)


def _words(of: tuple[Any, ...]) -> str:
    if len(of) == 1:
        return str(of[0].__name__)
    kind, dtype, shape = of
    return f"{kind.__name__} {getattr(dtype, 'name', dtype)} {shape}"


def _count(n: Any, name: str) -> int:
    try:
        count = operator.index(n)
    except TypeError:
        count = -1
    if isinstance(n, bool) or count < 0:
        raise ValueError(f"{name}={n!r} is not a number of iterations; use 0 or more")
    return count
