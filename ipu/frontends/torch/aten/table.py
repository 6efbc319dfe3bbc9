"""The table of operations: a handler for each overload, and a sentence on its roundings.

A handler gets a `Call` and the arguments of the overload. It reads tensors as arrays of one
format, computes with the device's verbs or the rules of `ipu.ops`, and returns tensors. The
in-place and `out=` forms of an overload need no entry: they compute the same and copy the result.

A handler returns NotImplemented for arguments that it does not know; the operation is then
computed on the host.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from fpsim.array import Array
from fpsim.records.formats import BINARY32, Format
from ipu.frontends.torch.values import FORMATS, Memory, widest
from ipu.ops.functions import HOST
from ipu.ops.primitive import Primitive
from ipu.run.restoring import Alter
from ipu.run.site import Site

__all__ = ["TABLE", "AtenEntry", "Call", "NoFormatError", "Operand", "aten", "result_dtype"]

Operand = Array | float
Handler = Callable[..., Any]


class NoFormatError(TypeError):
    """A data type that no format of the machine stands for: float64 and complex numbers."""


@dataclass(frozen=True)
class AtenEntry:
    """How an overload runs.

    rounding    its rounding places in words.
    rows        the rows of `ipu.ops` that compute it; none where nothing is computed.
    gradient    it computes with the backward rules of the rows.
    """

    name: str
    handler: Handler
    rounding: str
    rows: tuple[Primitive, ...] = ()
    gradient: bool = False

    @property
    def on_host(self) -> bool:
        """Whether the host computes in binary64."""
        return any(row.name in HOST for row in self.rows)


#: By name of the overload, as add.Tensor.
TABLE: dict[str, AtenEntry] = {}


def aten(
    *overloads: str, of: Primitive | Sequence[Primitive] = (), gradient: bool = False,
    rounding: str | None = None,
) -> Callable[[Handler], Handler]:
    """Enter a handler for these overloads.

    of          the rows that it computes with; `gradient`: with their backward rules.
    rounding    by default what the first row says.
    """
    rows = (of,) if isinstance(of, Primitive) else tuple(of)
    if rounding is None:
        rounding = rows[0].gradient if gradient else rows[0].rounding
    words = rounding

    def enter(handler: Handler) -> Handler:
        for overload in overloads:
            assert overload not in TABLE, overload
            TABLE[overload] = AtenEntry(overload, handler, words, rows, gradient)
        return handler

    return enter


@dataclass(slots=True)
class Call(Site):
    """One operation: its site, and how tensors become arrays.

    In the direction optimizer float32 tensors keep the formats that they hold, unless it is wide.
    """

    memory: Memory
    #: Data type of the result.
    dtype: torch.dtype = torch.float32
    #: What a diagnosis does to results: moves them by a unit, or rounds them to some of their bits.
    alter: Alter | None = None
    #: What `result` rounds into, where operands were taken in binary32 by `terms`.
    narrow: Format | None = None
    #: An operation of an update computes in binary32 (`handwritten`).
    is_wide: bool = False

    # Formats --------------------------------------------------------------------------------

    def format_of(self, *tensors: Any) -> Format:
        """The format to compute in: that of the result's data type, for float32 by the policy.

        A loss is binary32, and what is computed from it and other single numbers too.
        """
        self.narrow = None
        self.dtype = dtype = result_dtype(tensors)
        if dtype is not torch.float32:
            if dtype in FORMATS:
                return FORMATS[dtype]
            raise NoFormatError(
                f"{self.dtype} has no arithmetic on the machine; use float16, bfloat16 or float32"
            )
        if self.memory.is_plain:
            return BINARY32
        if self.direction != "optimizer":
            first = tensors[0]
            if isinstance(first, torch.Tensor) and first.ndim:
                return self.activations
            return BINARY32 if self._is_loss(tensors) else self.activations
        if self.is_wide:
            return BINARY32
        held = {self.memory.format_of(x) for x in tensors if isinstance(x, torch.Tensor)}
        return widest(fmt for fmt in held if fmt) if held - {None} else self.policy.param

    def _is_loss(self, operands: Sequence[Any]) -> bool:
        """Whether an operation computes with a loss, or its gradient, and single numbers alone."""
        is_loss = self.memory.is_scaling
        for x in operands:
            if isinstance(x, torch.Tensor):
                if x.ndim:
                    return False
                is_loss = is_loss or self.memory.format_of(x) == BINARY32
        return is_loss

    def terms(self, *tensors: Any) -> list[Any]:
        """Operands of an elementwise operation, which may read the gradient of a loss.

        That one is not rounded by itself: the operation computes in binary32, and its result is
        rounded once.
        """
        fmt = self.format_of(*tensors)
        if self.direction == "backward" and fmt != BINARY32 and self.dtype is torch.float32:
            is_root = self.memory.is_root
            if any(isinstance(x, torch.Tensor) and is_root(x) for x in tensors):
                self.narrow, fmt = fmt, BINARY32
        return self._operands(tensors, fmt)

    def _operands(self, values: Sequence[Any], fmt: Format) -> list[Any]:
        """Each as `operand` says."""
        # A loop, since a comprehension is one more call of Python 3.11.
        operands, read = list(values), self.memory.read
        for i, x in enumerate(values):
            operands[i] = read(x, fmt) if isinstance(x, torch.Tensor) else self.operand(x, fmt)
        return operands

    def slope(self, gradient: torch.Tensor, fmt: Format) -> Array:
        """The gradient that reaches a loss, in binary32 if it is held so, else cast to fmt first.

        Source    docs/semantics.md §6 (the first rounding is that of the gradient of the logits).
        """
        held = self.memory.format_of(gradient)
        return self.wide(self.memory.read(gradient, BINARY32 if held == BINARY32 else fmt))

    def arrays(self, *tensors: Any) -> list[Any]:
        """Tensors as arrays of one format, numbers as constants of it, None as None."""
        return self._operands(tensors, self.format_of(*tensors))

    def array(self, x: torch.Tensor) -> Array:
        """One tensor as an array."""
        return self.memory.read(x, self.format_of(x))

    def operand(self, x: Any, fmt: Format) -> Array | float | None:
        if x is None:
            return None
        if isinstance(x, torch.Tensor):
            return self.memory.read(x, fmt)
        return self.constant(x, fmt)

    def constant(self, value: float, fmt: Format) -> Operand:
        """A number in a format, to nearest; one that does not fit is noted."""
        if isinstance(value, bool):
            return float(value)
        rounded, change = self.memory.constant(value, fmt)
        if change:
            self.note_constant(fmt, float(value), change, rounded)
            self.memory.operands.append(rounded)
        return rounded

    @property
    def line(self) -> str:
        """FILE:LINE of the user's program."""
        return self.run.user_line()

    # Results --------------------------------------------------------------------------------

    def result(self, array: Array, dtype: torch.dtype | None = None) -> torch.Tensor:
        """An array as a tensor of the result's data type."""
        if self.narrow is not None:
            array, self.narrow = self.device.cast(array, self.narrow), None
        return self.memory.write(array, dtype or self.dtype, self.direction == "backward")

    def keeps_wide(self, ndim: int, dtype: torch.dtype | None = None) -> bool:
        """Whether a sum or loss with so many dimensions is binary32: one number, going forward."""
        is_single = ndim == 0 and self.dtype is torch.float32 and dtype in (None, torch.float32)
        return is_single and self.direction not in ("backward", "optimizer")

    def loss(self, array: Array, fmt: Format) -> torch.Tensor:
        """A loss that was computed in binary32: one number is kept, several are rounded."""
        return self.result(array) if self.keeps_wide(array.ndim) else self.rounded(array, fmt)

    def rounded(self, array: Array, fmt: Format, dtype: torch.dtype | None = None) -> torch.Tensor:
        """An array that is cast once more, as a tensor."""
        return self.result(self.device.cast(array, fmt), dtype)


def result_dtype(operands: Sequence[Any]) -> torch.dtype:
    """The data type that torch computes in, of tensors and numbers."""
    first = operands[0]
    if isinstance(first, torch.Tensor) and first.ndim and first.dtype.is_floating_point:
        dtype = first.dtype
        for x in operands:
            if isinstance(x, torch.Tensor) and x.dtype is not dtype:
                break
        else:
            return dtype
    tensors = [x for x in operands if isinstance(x, torch.Tensor)]
    if len(tensors) == 1 and tensors[0].dtype.is_floating_point:
        return tensors[0].dtype
    kinds = {x.dtype for x in tensors}
    if len(kinds) == 1:
        (only,) = kinds
        if only.is_floating_point:
            return only
    result: Any = None
    for x in operands:
        if x is None:
            continue
        result = x if result is None else torch.empty((), dtype=_joined(result, x))
    dtype = result.dtype if isinstance(result, torch.Tensor) else torch.get_default_dtype()
    # Tensors with dimensions decide before those without, which torch.result_type knows of pairs.
    if dtype.is_complex:
        return dtype
    with_axes = [x for x in tensors if x.ndim and x.dtype.is_floating_point]
    if with_axes:
        dtype = with_axes[0].dtype
        for x in with_axes[1:]:
            dtype = torch.promote_types(dtype, x.dtype)
    return dtype if dtype.is_floating_point else torch.get_default_dtype()


def _joined(x: Any, y: Any) -> torch.dtype:
    return torch.result_type(x, y)
