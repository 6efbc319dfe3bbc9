"""How the outcome of an operation leaves it: flags, traps, counts, the number, the result.

The order is fixed: everything is checked before anything is computed; flags are raised before a
trap; an operation that traps publishes nothing else and leaves its random bits to the next one.

Source    docs/semantics.md §3.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim.records.flags import Flags, FloatingPointTrap
from fpsim.records.types import Carrier, ElementFlags, Index, OperandsAt, Shape
from fpsim.state.draws import advance
from fpsim.state.processor import usual_arithmetic
from fpsim.state.state import State

__all__ = ["broadcast_operands", "check_out", "fold", "no_operands", "publish"]


#: Elements whose flags are compared with zeros faster as bytes than by numpy.
_FEW = 1 << 12


def check_out(
    out: Any, shape: Shape, dtype: np.dtype[Any], operands: Sequence[Carrier] = ()
) -> None:
    """Refuse an output that cannot take the result, before anything is computed."""
    if not isinstance(out, np.ndarray):
        raise TypeError(f"out={type(out).__name__} is not an ndarray of {dtype}; give one")
    if out.dtype != dtype:
        raise TypeError(f"out has dtype {out.dtype}; this result is held in {dtype}")
    if out.shape != shape:
        raise ValueError(
            f"out has shape {out.shape}, the result has shape {shape}; give out that shape"
        )
    if not out.flags.writeable:
        raise ValueError("out is read-only; give an array that can be written")
    for operand in operands:
        # Two arrays with memory of their own share none: no need to ask numpy, which takes longer.
        both_own = out.flags.owndata and operand.flags.owndata
        if operand is out or both_own or not np.may_share_memory(out, operand):
            continue
        same = (
            operand.ctypes.data == out.ctypes.data
            and operand.strides == out.strides
            and operand.shape == out.shape
        )
        if not same and np.shares_memory(out, operand):
            raise ValueError(
                "out overlaps an operand in part; give the operand itself or other memory"
            )


def fold(element_flags: ElementFlags) -> int:
    """All flags of the elements together."""
    if element_flags.size <= _FEW and element_flags.tobytes() == bytes(element_flags.size):
        return 0
    return int(np.bitwise_or.reduce(element_flags, axis=None))


def no_operands(index: Index) -> Sequence[Any]:
    """Of an operation whose trap shows none."""
    return ()


def broadcast_operands(operands: Sequence[Carrier], shape: Shape) -> OperandsAt:
    """Operands that broadcast to the result, element by element."""
    return lambda index: [float(np.broadcast_to(o, shape)[index]) for o in operands]


def publish(
    state: State,
    name: str,
    values: NDArray[Any],
    flags: int,
    element_flags: ElementFlags | None = None,
    operands: OperandsAt = no_operands,
    target: Carrier | None = None,
    *,
    advances: bool = False,
    in_format: bool = True,
) -> NDArray[Any]:
    """The result of an operation, in `target` if there is one; its flags go to the state.

    element_flags   of each element, needed where `state.watched`; None otherwise.
    operands        of the element at an index, for a trap to show.
    advances        the operation has a number, so that the next one draws other bits.
    in_format       values are of the state's format, and their zeros and subnormals are counted.

    Raises    FloatingPointTrap at the first element in C order that raised an armed flag.
    """
    if state.settings.native:
        return values if target is None else _stored(values, target)
    if flags:
        state.raise_flags(flags)
    if element_flags is not None:
        if flags & state.armed:
            raise _trap(state, name, flags, element_flags, operands)
        if state.counts is not None:
            state.counts.add(name, values if in_format else None, element_flags, state.format)
    if advances:
        advance(state)
    return values if target is None else _stored(values, target)


def _stored(values: NDArray[Any], target: Carrier) -> NDArray[Any]:
    if target is values:
        return values
    target[...] = values
    return target


@usual_arithmetic
def _trap(
    state: State, name: str, flags: int, element_flags: ElementFlags, operands: OperandsAt
) -> FloatingPointTrap:
    first = int(np.argmax((element_flags & state.armed) != 0))
    index = tuple(int(i) for i in np.unravel_index(first, element_flags.shape))
    return FloatingPointTrap(name, Flags(flags), index, operands(index), state.dump())
