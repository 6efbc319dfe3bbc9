"""Resources: variables that stay on the machine during a launch, and iterators of the host."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import numpy as np
from tensorflow.python.eager import context
from tensorflow.python.framework import errors
from tensorflow.python.ops import gen_dataset_ops

from fpsim.array import Array
from fpsim.records.formats import Format
from ipu.frontends.tensorflow.engine.values import enter, leave
from ipu.machine.device import Device

__all__ = ["IteratorHandle", "Variable"]


class Variable:
    """A variable's value on the machine: read from the host when first used.

    name     of the variable, which is the layer of what accumulates into it.
    read     gives the host's numbers, or the array that they were when they left the machine.
    fmt      the format it holds, None for integers.
    """

    def __init__(
        self, name: str, dtype: Any, fmt: Format | None, read: Callable[[], Any], device: Device
    ) -> None:
        self.name, self.dtype, self.fmt = name, dtype, fmt
        #: The same in every launch, and no other variable's.
        self.key: Hashable = name
        self._read, self._device = read, device
        self._value: Any = None
        #: Told of sums: the value before, the term, the value after.
        self.watch: Callable[[Any, Any, Any], None] | None = None
        #: Whether the value is newer than the host's.
        self.is_written = False

    @property
    def value(self) -> Any:
        """What the variable holds; nobody may write into it."""
        if self._value is None:
            host = self._read()
            self._value = host if isinstance(host, Array) else self._entered(host)
            if isinstance(host, Array) and host.format != self.fmt:
                self._value = self._entered(leave(host, self.dtype))
        return self._value

    @value.setter
    def value(self, value: Any) -> None:
        if self.fmt is not None and value.format != self.fmt:
            value = self._device.cast(value, self.fmt)
        self._value, self.is_written = value, True

    def _entered(self, host: Any) -> Any:
        return enter(self._device, host, self.fmt) if self.fmt else np.array(host)

    def change(self, verb: Callable[[Any, Any], Any], term: Any) -> None:
        """The value becomes a sum or difference of itself and a term."""
        self.move(verb(self.value, term), term)

    def move(self, value: Any, term: Any) -> None:
        """The value becomes another one, by adding or subtracting a term; None: by other means."""
        before, self.value = self.value, value
        if self.watch is not None and term is not None:
            self.watch(before, term, self._value)

    @property
    def was_used(self) -> bool:
        """Whether the value was read or written."""
        return self._value is not None

    def host(self) -> Any:
        """The value as TensorFlow has it."""
        return leave(self.value, self.dtype)


class IteratorHandle:
    """An iterator of a data set on the host, by TensorFlow's handle."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle

    def take(self, types: Any, shapes: Any) -> list[Any]:
        """The leaves of the next element, as ndarrays."""
        with context.eager_mode():
            try:
                leaves = gen_dataset_ops.iterator_get_next(self._handle, types, shapes)
            except errors.OutOfRangeError:
                raise errors.OutOfRangeError(
                    None, None,
                    "End of sequence: the data set of the iterator ends; use a longer one, one "
                    "without end (repeat), or fewer iterations",
                ) from None
            return [leaf.numpy() for leaf in leaves]
