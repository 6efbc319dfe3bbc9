"""Elementwise operations on carriers: checks, shapes, memory layout and threads around the kernels.

Everything numerical is in `fpsim.plan` (constants) and `fpsim.kernels` (loops). Arrays that are
contiguous go to the kernel as they are; others pass through it block by block.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim.kernels import elementwise
from fpsim.kernels.special import OPERATIONS
from fpsim.parallel import run_blocks
from fpsim.plan import Plan, exact_width, plan
from fpsim.settings import Settings

__all__ = ["apply", "check_out"]

_CODES = {name: i for i, name in enumerate(OPERATIONS)}
_CODES["round_to_integral"] = _CODES["convert"]

#: Below these numbers of elements a second thread costs more than it gives.
_SMALLEST_STREAMING, _SMALLEST_COMPUTING = 1 << 20, 1 << 17

#: Elements that pass through scratch memory at a time where an array is not contiguous.
_CHUNK = 8192

_NO_MARKS = np.zeros(1, np.uint8)

Carrier = NDArray[np.floating[Any]]


def check_out(
    out: Any, shape: tuple[int, ...], dtype: np.dtype[Any], operands: Sequence[Carrier]
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
        same = operand.ctypes.data == out.ctypes.data and operand.strides == out.strides
        if not same and np.may_share_memory(out, operand) and np.shares_memory(out, operand):
            raise ValueError(
                "out overlaps an operand in part; give the operand itself or other memory"
            )


class _Call:
    """One kernel with everything but its arrays."""

    def __init__(
        self, operation: str, settings: Settings, chosen: Plan, flags: int,
        seed: int, number: int, given: bool,
    ) -> None:  # fmt: skip
        words = 0
        if chosen.stochastic:
            words = 3 if given else 2 if chosen.whole_words else 1
        self.loop = elementwise.kernel(
            elementwise.Variant(
                _CODES[operation], chosen.mode, flags, chosen.flush, words, chosen.residual
            )
        )
        self.constants = chosen.constants
        self.seed, self.number = np.uint64(seed), np.uint64(number)

    def __call__(
        self, operands: Sequence[Carrier], out: Carrier, marks: NDArray[np.uint8],
        words: NDArray[np.uint32], first: int,
    ) -> int:  # fmt: skip
        x = operands[0]
        y = operands[1] if len(operands) > 1 else x
        z = operands[2] if len(operands) > 2 else x
        return self.loop(x, y, z, out, marks, words, self.constants, first, self.seed, self.number)  # type: ignore[no-any-return]


def _is_plain(array: NDArray[Any]) -> bool:
    flags = array.flags
    return flags.c_contiguous and flags.aligned and flags.writeable


def apply(
    operation: str,
    operands: Sequence[Carrier],
    settings: Settings,
    *,
    out: Carrier | None = None,
    track: bool = True,
    element_flags: NDArray[np.uint8] | None = None,
    seed: int = 0,
    number: int = 0,
    random: NDArray[np.uint32] | None = None,
) -> tuple[Carrier, int]:
    """One operation on carriers that hold values of the format (a conversion: any floats).

    Shapes    operands broadcast; the result, `element_flags` and `random` (flat) have that shape.
    Rounding  once, as the settings say; random bits from Philox (seed, number) or `random`.
    Flags     returned as an integer; 0 if not tracked. `element_flags` receives each element's.
    Source    docs/semantics.md §1 to §3.

    >>> from fpsim.formats import BINARY16
    >>> third, flags = apply("divide", (np.float32([1]), np.float32([3])), Settings(BINARY16))
    >>> third, flags
    (array([0.33325195], dtype=float32), 1)
    """
    shape = operands[0].shape
    for operand in operands[1:]:
        if operand.shape != shape:
            shape = np.broadcast_shapes(*(o.shape for o in operands))
            break
    dtype = settings.format.carrier
    if out is None:
        out = np.empty(shape, dtype)
    else:
        check_out(out, shape, dtype, operands)
    width = exact_width(operation, settings, max(o.dtype.itemsize for o in operands))
    chosen = plan(operation, settings, width)
    level = elementwise.FLAGS_STICKY if track else elementwise.FLAGS_NONE
    if element_flags is not None:
        level = elementwise.FLAGS_EACH
    call = _Call(operation, settings, chosen, level, seed, number, random is not None)
    n = out.size
    if n == 0:
        return out, 0
    marks = _NO_MARKS if element_flags is None else element_flags
    words = elementwise.NO_WORDS if random is None else random
    direct = _is_plain(out) and all(
        _is_plain(o) and (o.shape == shape or (o.size == 1 and k > 0))
        for k, o in enumerate(operands)
    )
    if direct:
        return out, _run_direct(
            call, operands, out, marks, words, n, width == 64 or chosen.stochastic
        )
    return out, _run_chunks(call, operands, out, marks, words, shape)


def _part(array: NDArray[Any], a: int, b: int) -> NDArray[Any]:
    return array[a:b] if array.size > 1 else array


def _run_direct(
    call: _Call, operands: Sequence[Carrier], out: Carrier, marks: NDArray[np.uint8],
    words: NDArray[np.uint32], n: int, computing: bool,
) -> int:  # fmt: skip
    flat = [o.reshape(-1) for o in operands]
    target, marks = out.reshape(-1), marks.reshape(-1)
    smallest = _SMALLEST_COMPUTING if computing else _SMALLEST_STREAMING
    if n < 2 * smallest:
        return call(flat, target, marks, words, 0)

    def work(a: int, b: int) -> int:
        return call(
            [_part(o, a, b) for o in flat], target[a:b], _part(marks, a, b), _part(words, a, b), a
        )

    return run_blocks(work, n, smallest, elementwise.BLOCK)


def _run_chunks(
    call: _Call, operands: Sequence[Carrier], out: Carrier, marks: NDArray[np.uint8],
    words: NDArray[np.uint32], shape: tuple[int, ...],
) -> int:  # fmt: skip
    """Strided, broadcast or read-only arrays, through scratch memory of one chunk each."""
    size = min(_CHUNK, out.size)
    rooms = [np.empty(size, o.dtype) for o in operands]
    result = np.empty(size, out.dtype)
    flat_marks = marks.reshape(-1)
    flags, first = 0, 0
    with np.nditer(
        [*(np.broadcast_to(o, shape) for o in operands), out],
        flags=["external_loop", "buffered"],
        op_flags=[["readonly"]] * len(operands) + [["writeonly"]],
        order="C",
        buffersize=size,
    ) as chunks:
        for *sources, target in chunks:
            m = target.size
            for room, source in zip(rooms, sources, strict=True):
                room[:m] = source
            part = slice(first, first + m)
            flags |= call(
                [room[:m] for room in rooms],
                result[:m],
                flat_marks[part] if marks.size > 1 else flat_marks,
                words[part] if words.size > 1 else words,
                first,
            )
            target[...] = result[:m]
            first += m
    return flags
