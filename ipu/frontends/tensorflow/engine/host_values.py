"""Variables of the host whose values the machine has already: they enter without a conversion.

After a launch the host's variable is the tensor that left it. While a later read gives the memory
of that tensor, which is held here, the value is the one that the machine had: TensorFlow writes
into memory of a variable in place only where nothing else holds it.

Source    TensorFlow, core/kernels/training_op_helpers.h (PrepareToUpdateVariable).
"""

from __future__ import annotations

from typing import Any, NamedTuple
from weakref import ref

from numpy.typing import NDArray

from fpsim.array import Array
from fpsim.state.memory import memory_address

__all__ = ["HostValues"]


class _HeldValue(NamedTuple):
    """The handle of a variable, as long as it lives, its memory on the host, and its value."""

    handle: ref[Any]
    memory: NDArray[Any]
    value: Array


class HostValues:
    """Values by handles of variables."""

    def __init__(self) -> None:
        self._values: dict[int, _HeldValue] = {}

    def may_recall(self, handle: Any) -> bool:
        """Whether the host's variable was one that the machine had."""
        held = self._values.get(id(handle))
        return held is not None and held.handle() is handle

    def recall(self, handle: Any, tensor: Any) -> Array | None:
        """The value of a variable that the host holds in this tensor; None: it is another one."""
        if not self.may_recall(handle):
            return None
        held, memory = self._values[id(handle)], tensor._numpy()
        is_same = memory.shape == held.memory.shape and (
            memory_address(memory) == memory_address(held.memory))
        return held.value if is_same else None

    def keep(self, handle: Any, tensor: Any, value: Array) -> None:
        """The host's variable is this tensor now, which has this value; NaNs enter anew."""
        key = id(handle)
        largest = value.carrier.max() if value.size and value.ndim else None
        if largest is not None and largest == largest:
            watched = ref(handle, lambda _: self._values.pop(key, None))
            self._values[key] = _HeldValue(watched, tensor._numpy(), value)
        else:
            self._values.pop(key, None)
