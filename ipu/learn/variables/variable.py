"""Variable: a named tensor that keeps its place while its values change.

Source    tf.Variable.
"""

from __future__ import annotations

from operator import attrgetter

from fpsim.array import Array
from ipu.learn.tensor import Tensor
from ipu.machine.device import Device

__all__ = ["Variable"]


class Variable(Tensor):
    """A named tensor that keeps its place while its values change.

    first    index of element 0 in the whole variable, where this is a shard of one.
    """

    __slots__ = ("first", "trainable")

    def __init__(self, array: Array, device: Device, name: str, trainable: bool = True) -> None:
        super().__init__(array, device, name)
        self.trainable = trainable
        self.first = 0

    needs_gradient: bool = property(attrgetter("trainable"))  # type: ignore[assignment]

    @property
    def layer(self) -> str:
        """The scope in which it was created."""
        return self.name.rpartition("/")[0]

    def assign(self, array: Array) -> None:
        """Take new values of the same shape and format."""
        fmt, before = array.context.core.settings.format, self.dtype
        if array.shape != self.shape or (fmt is not before and fmt != before):
            raise ValueError(
                f"variable {self.name} is {self.dtype.name} of shape {self.shape}, got "
                f"{array.format.name} of shape {array.shape}; cast or reshape it first"
            )
        self.array = array
