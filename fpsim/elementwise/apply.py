"""Elementwise operations on carriers: checks, shapes, memory layout and threads around the kernels.

Everything numerical is in `fpsim.elementwise.constants` (constants) and `fpsim.kernels` (loops).
Arrays that are contiguous go to the kernel as they are; others pass through it block by block.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fpsim.elementwise.constants import (
    KernelPlan,
    exact_width,
    has_processor_marks,
    plan,
    processor_constants,
    processor_status,
)
from fpsim.kernels.elementwise import loop, step
from fpsim.kernels.elementwise.binary64 import operate, unify_nans
from fpsim.kernels.elementwise.special import OPERATIONS
from fpsim.kernels.elementwise.spreading import spread_numbers
from fpsim.kernels.elementwise.tally import tally_numbers
from fpsim.kernels.random.words import NO_WORDS
from fpsim.records.flags import Flags
from fpsim.records.rounding import RTO, Up
from fpsim.records.settings import ZERO_OR_NORMAL, Settings
from fpsim.records.types import Carrier, ElementFlags, Shape, Words
from fpsim.state.draws import NO_DRAW, Draw
from fpsim.state.memory import flat_in_memory
from fpsim.state.processor import usual_arithmetic
from fpsim.state.publish import check_out
from fpsim.state.threads import run_blocks

__all__ = [
    "KernelCall", "RepeatedOperation", "apply", "as_read", "broadcast", "common_shape", "native",
    "variant",
]

_CODES = {name: i for i, name in enumerate(OPERATIONS)}
# One kernel, three plans: from another format, within one format, to whole numbers.
_CODES["copy"] = _CODES["round_to_integral"] = _CODES["convert"]

#: Below these numbers of elements a second thread costs more than it gives.
_SMALLEST_STREAMING, _SMALLEST_COMPUTING = 1 << 18, 1 << 15

#: Results larger than the caches are written past them, which saves reading their lines first.
_STREAMING_BYTES = 1 << 24

#: Elements that pass through scratch memory at a time where an array is not contiguous.
_CHUNK = 8192
#: The same where the result is contiguous: a box and its operands fit the second-level cache.
_BOX = 1 << 16

_NO_FLAGS = np.zeros(1, np.uint8)


def as_read(x: Carrier, settings: Settings) -> Carrier:
    """Operands as the subnormal policy sees them."""
    if settings.subnormals != "flush_both":
        return x
    _, subnormals = tally_numbers(flat_in_memory(x), x.dtype.type(settings.format.smallest_normal))
    if not subnormals:
        return x
    zero = x.dtype.type(0)
    signed = np.copysign(zero, x) if settings.format.has_negative_zero else zero
    return np.where(np.abs(x) < settings.format.smallest_normal, signed, x)


def variant(
    operation: str, settings: Settings, input_size: int, level: int, supplied: bool
) -> tuple[loop.LoopVariant, KernelPlan, int]:
    """The kernel that an operation takes, its constants, and the width of its lanes.

    input_size: bytes of the widest operand; level: how flags are told (FLAGS_NONE, …); supplied:
    random bits are given, not drawn.
    """
    width = exact_width(operation, settings, input_size)
    rule = plan(operation, settings, width)
    words, residual = 0, rule.residual
    if rule.stochastic:
        words = 3 if supplied else 2 if rule.whole_words else 1
    if rule.in_quanta and not supplied and operation not in ("add", "subtract"):
        residual = step.RESIDUAL_QUANTA
    choices = loop.LoopVariant(
        _CODES[operation], rule.mode, level, rule.flush, rule.one_zero, words, residual
    )
    return choices, rule, width


class KernelCall:
    """A kernel for one operation under one set of choices, with everything but its arrays."""

    __slots__ = ("computing", "constants", "loop")

    def __init__(
        self, operation: str, settings: Settings, input_size: int, level: int, supplied: bool
    ) -> None:
        status = processor_status(operation, settings, input_size)
        marks = level == step.FLAGS_EACH
        if status >= 0 and (not marks or has_processor_marks(operation, settings)):
            code, flush = _CODES[operation], marks and settings.subnormals == "flush_both"
            self.loop = loop.kernel(loop.LoopVariant(code, 0, level, flush, False, 0, 0, status))
            self.constants, self.computing = processor_constants(settings), False
            return
        choices, rule, width = variant(operation, settings, input_size, level, supplied)
        self.loop = loop.kernel(choices)
        self.constants = rule.constants
        #: Bound by arithmetic rather than by memory.
        self.computing = width == 64 or rule.stochastic


#: Where random bits come from: seed and number of a Philox counter, or words; and the index of
#: the first element among those that the counter or the words are of.
_Bits = tuple[np.uint64, np.uint64, Words, int]

_NO_BITS = (np.uint64(0), np.uint64(0), NO_WORDS, 0)


def _random(bits: Draw) -> _Bits:
    """A draw as kernels take it."""
    seed, number, words, first = bits
    return seed, number, NO_WORDS if words is None else words, first


def _run(
    call: KernelCall, operands: Sequence[Carrier], out: Carrier, element_flags: ElementFlags,
    bits: _Bits, first: int, streaming: bool,
) -> int:
    """The kernel on flat contiguous arrays."""
    n = len(operands)
    x = operands[0]
    seed, number, words, origin = bits
    flags: int = call.loop(
        x, operands[1] if n > 1 else x, operands[2] if n > 2 else x, out, element_flags, words,
        call.constants, origin + first, seed, number, streaming,
    )
    return flags


def common_shape(operands: Sequence[Carrier]) -> Shape:
    """The shape that operands broadcast to; most are of that shape already, or numbers."""
    shape: Shape = ()
    for operand in operands:
        if operand.shape != shape and operand.shape:
            if not shape:
                shape = operand.shape
                continue
            if len(operands) == 2:
                return _joint(operands[0].shape, operands[1].shape)
            return _joint(*[o.shape for o in operands])
    return shape


@lru_cache(maxsize=1024)  # numpy takes longer for it than a kernel for a thousand elements
def _joint(*shapes: Shape) -> Shape:
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        text = " and ".join(str(shape) for shape in shapes)
        raise ValueError(
            f"operands have shapes {text}, which do not broadcast; give shapes that agree or are 1"
        ) from None


def broadcast(x: Carrier, y: Carrier) -> tuple[Carrier, Carrier]:
    """Both operands in the shape of the result (views)."""
    shape = common_shape((x, y))
    return np.broadcast_to(x, shape), np.broadcast_to(y, shape)


def apply(
    operation: str,
    operands: Sequence[Carrier],
    settings: Settings,
    *,
    out: Carrier | None = None,
    track: bool = True,
    element_flags: ElementFlags | None = None,
    bits: Draw = NO_DRAW,
) -> tuple[Carrier, int]:
    """One operation on carriers that hold values of the format (a conversion: any floats).

    Shapes    operands broadcast; the result, `element_flags` and the words of `bits` (flat) have
              that shape.
    Rounding  once, as the settings say; stochastic rounding draws `bits`.
    Flags     returned as an integer; 0 if not tracked. `element_flags` receives each element's.
    Source    docs/semantics.md §1 to §3.

    >>> from fpsim.records.formats import BINARY16
    >>> third, flags = apply("divide", (np.float32([1]), np.float32([3])), Settings(BINARY16))
    >>> third, flags
    (array([0.33325195], dtype=float32), 1)
    """
    if settings.subnormals == ZERO_OR_NORMAL:
        return _on_normals(operation, operands, settings, out, element_flags)
    shape, input_size = operands[0].shape, 0
    for operand in operands:
        if operand.itemsize > input_size:
            input_size = operand.itemsize
        if operand.shape != shape and operand.shape:
            shape = common_shape(operands)
    dtype = settings.format.carrier
    if out is None:
        out = np.empty(shape, dtype)
    else:
        check_out(out, shape, dtype, operands)
    if settings.native or out.size == 0:
        return _native(operation, operands, out) if out.size else out, 0
    level = step.FLAGS_STICKY if track else step.FLAGS_NONE
    if element_flags is None:
        element_flags = _NO_FLAGS
    else:
        level = step.FLAGS_EACH
    key = (operation, input_size, level, bits.words is not None)
    call = settings.calls.get(key)
    if call is None:
        call = settings.calls[key] = KernelCall(operation, settings, *key[1:])
    random = _random(bits) if settings.rounding.stochastic else _NO_BITS
    if out.flags.carray:
        ready = _as_they_lie(operands, shape, out.size)
        if ready is not None:
            return out, _run_direct(call, ready, out, element_flags, random)
        if _is_repeating(operands, out):
            return out, _run_repeating(call, operands, out, element_flags, random)
        return out, _run_boxes(call, operands, out, element_flags, random)
    return out, _run_chunks(call, operands, out, element_flags, random)


class RepeatedOperation:
    """One operation on the same arrays time after time, whose shapes and ways are known."""

    __slots__ = ("_arrays", "_call", "_copies")

    def __init__(
        self, call: KernelCall, operands: Sequence[Carrier], out: Carrier,
        copies: Sequence[tuple[Carrier, Carrier]],
    ) -> None:
        x, n = operands[0], len(operands)
        y, z = operands[1] if n > 1 else x, operands[2] if n > 2 else x
        self._call, self._copies = call, copies
        self._arrays = x, y, z, _flat(out), _NO_FLAGS, NO_WORDS, call.constants, 0

    @classmethod
    def of(
        cls, operation: str, operands: Sequence[Carrier], settings: Settings, out: Carrier
    ) -> RepeatedOperation | None:
        """Of an operation that has run into `out`; None where it is not one call of a kernel."""
        call = settings.calls.get((
            operation, max(x.itemsize for x in operands), step.FLAGS_STICKY, False
        ))
        if call is None or not out.flags.carray or not 0 < out.size <= _CHUNK:
            return None
        ready: list[Carrier] = []
        copies: list[tuple[Carrier, Carrier]] = []
        for operand in operands:
            lies = operand.flags.carray and (
                operand.shape == out.shape or (ready and operand.size == 1)
            )
            if not lies:
                copy: Carrier = np.empty(out.shape, operand.dtype)
                copies.append((copy, np.broadcast_to(operand, out.shape)))
                operand = copy
            ready.append(_flat(operand))
        return cls(call, ready, out, copies)

    def run(self, seed: np.uint64, number: np.uint64) -> int:
        """Compute into `out`; the flags."""
        for copy, source in self._copies:
            copy[...] = source
        flags: int = self._call.loop(*self._arrays, seed, number, False)
        return flags


@lru_cache(maxsize=256)
def _beside(settings: Settings) -> tuple[Settings, Settings]:
    """The settings with subnormals kept, and the same rounding to odd."""
    gradual = settings.replace(subnormals="keep")
    return gradual, gradual.replace(rounding=RTO)


def _on_normals(
    operation: str, operands: Sequence[Carrier], settings: Settings, out: Carrier | None,
    element_flags: ElementFlags | None,
) -> tuple[Carrier, int]:
    """One operation whose grid has nothing between zero and the smallest normal number.

    Rounded to odd among subnormals, a result lies on the same side of half the smallest normal
    number as the exact one, and is that half only if the exact one is.
    """
    gradual, to_odd = _beside(settings)
    flags = np.zeros(common_shape(operands), np.uint8)
    values, _ = apply(operation, operands, gradual, element_flags=flags)
    odd, _ = apply(operation, operands, to_odd, track=False)
    size, smallest = np.abs(odd), odd.dtype.type(settings.format.smallest_normal)
    tiny = (size > 0) & (size < smallest)
    if tiny.any():
        up = np.where(
            np.signbit(odd), *(_goes_up(settings, size, n) for n in (True, False))
        )
        signed = np.copysign(np.where(up, smallest, 0), odd).astype(odd.dtype)
        if not settings.format.has_negative_zero:
            signed[signed == 0] = 0
        values[tiny] = signed[tiny]
        flags[tiny] = Flags.UNDERFLOW | Flags.INEXACT
    if element_flags is not None:
        element_flags[...] = flags
    if out is not None:
        check_out(out, values.shape, values.dtype, operands)
        out[...] = values
        values = out
    return values, int(np.bitwise_or.reduce(flags, axis=None))


def _goes_up(settings: Settings, size: Carrier, negative: bool) -> NDArray[np.bool_]:
    """Whether magnitudes between 0, which is even, and the smallest normal number go up to it."""
    half = settings.format.smallest_normal / 2
    step, _ = settings.rounding.steps_of(negative)
    return np.asarray({
        Up.NEVER: size < 0, Up.ABOVE_HALF: size > half, Up.FROM_HALF: size >= half,
        Up.ALWAYS: size > 0,
    }[step])


#: binary64 is the reference and computes with the processor's own arithmetic.
_NATIVE: dict[str, Any] = {
    "convert": np.positive, "copy": np.positive, "add": np.add, "subtract": np.subtract,
    "multiply": np.multiply, "divide": np.divide, "sqrt": np.sqrt, "round_to_integral": np.rint,
}
#: Of these a kernel computes what lies in memory as the result does.
_IN_ONE_PASS = frozenset(_NATIVE) - {"round_to_integral"}
#: numpy has one object for it.
_WIDE = np.dtype(np.float64)


def native(operation: str, operands: Sequence[Carrier]) -> Carrier:
    """An operation of `apply` on carriers of binary64, which raises nothing.

    >>> native("add", (np.array([1.0, 2.0]), np.array(1.0))).tolist()
    [2.0, 3.0]
    """
    out: Carrier = np.empty(common_shape(operands))
    return _native(operation, operands, out) if out.size else out


def _native(operation: str, operands: Sequence[Carrier], out: Carrier) -> Carrier:
    ready = _as_the_result(operands, out) if operation in _IN_ONE_PASS else None
    if ready is not None:
        operate(_CODES[operation], ready[0], ready[-1], _flat(out))
        return out
    _by_numpy(operation, operands, out)
    if out.flags.carray:
        unify_nans(_flat(out))
    else:
        out[np.isnan(out)] = np.nan
    return out


@usual_arithmetic
def _by_numpy(operation: str, operands: Sequence[Carrier], out: Carrier) -> None:
    with np.errstate(all="ignore"):
        _NATIVE[operation](*operands, out=out)


def _as_the_result(operands: Sequence[Carrier], out: Carrier) -> list[Carrier] | None:
    """Operands of binary64 in the order of the result, flat, or one number; None of others."""
    ready: list[Carrier] = []
    shape = out.shape
    for operand in operands:
        fits = operand.shape == shape or operand.size == 1
        if not (fits and operand.dtype is _WIDE and operand.flags.carray):
            return None
        ready.append(operand if operand.ndim == 1 else operand.reshape(-1))
    return ready if out.flags.carray else None


def _as_they_lie(operands: Sequence[Carrier], shape: Shape, size: int) -> list[Carrier] | None:
    """Operands as the kernel reads them, flat: as they lie in memory, or in copies if they are few.

    None where one is large and must be read in another way.
    """
    ready: list[Carrier] = []
    for operand in operands:
        # Contiguous, aligned and writeable; a number, unless it is the first operand.
        if operand.flags.carray and (operand.shape == shape or (ready and operand.size == 1)):
            ready.append(operand if operand.ndim == 1 else operand.reshape(-1))
        elif size <= _CHUNK:  # copies cost less than the other ways
            ready.append(_copied(operand, shape))
        else:
            return None
    return ready


def _copied(x: Carrier, shape: Shape) -> Carrier:
    """x broadcast to the shape, in memory of its own, flat."""
    copy: Carrier = np.empty(shape, x.dtype)
    copy[...] = x
    return copy.reshape(-1)


def _flat(array: NDArray[Any]) -> NDArray[Any]:
    return array if array.ndim == 1 else array.reshape(-1)


def _part(array: NDArray[Any], a: int, b: int) -> NDArray[Any]:
    return array[a:b] if array.size > 1 else array


def _run_direct(
    call: KernelCall, operands: Sequence[Carrier], out: Carrier, element_flags: ElementFlags,
    bits: _Bits,
) -> int:
    """Whole arrays at once, on several threads where they are large; the operands are flat."""
    target = out if out.ndim == 1 else out.reshape(-1)
    if element_flags.ndim != 1:
        element_flags = element_flags.reshape(-1)
    smallest = _SMALLEST_COMPUTING if call.computing else _SMALLEST_STREAMING
    seed, number, words, origin = bits
    if target.size < 2 * smallest:  # small operations cost their calls
        x, n = operands[0], len(operands)
        y, z = operands[1] if n > 1 else x, operands[2] if n > 2 else x
        flags: int = call.loop(
            x, y, z, target, element_flags, words, call.constants, origin, seed, number, False
        )
        return flags
    # Vectors that begin at a multiple of 64 bytes can be written past the caches.
    head = -out.ctypes.data % 64 // out.itemsize
    streaming = out.nbytes >= _STREAMING_BYTES

    def work(a: int, b: int) -> int:
        draw = (seed, number, _part(words, a, b), origin)
        parts = [_part(o, a, b) for o in operands]
        return _run(
            call, parts, target[a:b], _part(element_flags, a, b), draw, a, streaming and a >= head
        )

    flags = work(0, head) if head else 0
    return flags | run_blocks(work, head, target.size, smallest, loop.BLOCK)


def _is_repeating(operands: Sequence[Carrier], out: Carrier) -> bool:
    """Whether operands lie whole in memory, or are the same along all the first axes."""
    for operand in operands:
        shape = operand.shape
        while shape and shape[0] == 1:
            shape = shape[1:]
        if not operand.flags.carray or shape != out.shape[out.ndim - len(shape) :]:
            return False
    return True


def _written_out(x: Carrier, size: int) -> Carrier:
    """So many elements of x, again and again."""
    times = -(-size // x.size)
    again: Carrier = np.empty((times, x.size), x.dtype)
    again[...] = x.reshape(-1)
    return again.reshape(-1)[:size]


def _run_repeating(
    call: KernelCall, operands: Sequence[Carrier], out: Carrier, element_flags: ElementFlags,
    bits: _Bits,
) -> int:
    """Threads begin with whole periods; of what repeats the kernel is given one period and more."""
    target, element_flags = _flat(out), _flat(element_flags)
    seed, number, words, origin = bits
    whole = [o.size == target.size for o in operands]
    ready = [
        _flat(o) if w else _written_out(o, min(target.size, o.size + loop.BLOCK))
        for o, w in zip(operands, whole, strict=True)
    ]
    # Trailing shapes nest: the longest period is a multiple of the others.
    period = max([o.size for o in operands if o.size < target.size], default=1)

    def work(a: int, b: int) -> int:
        parts = [r[a:b] if w else r[: b - a] for r, w in zip(ready, whole, strict=True)]
        draw = (seed, number, _part(words, a, b), origin)
        return _run(call, parts, target[a:b], _part(element_flags, a, b), draw, a, False)

    smallest = _SMALLEST_COMPUTING if call.computing else _SMALLEST_STREAMING
    return run_blocks(work, 0, target.size, smallest, period)


def _box(shape: Shape) -> tuple[int, int]:
    """The axis along which boxes are cut, and so many of its places in each.

    >>> _box((4, 4, 64, 64)), _box((5,))
    ((0, 4), (0, 65536))
    """
    axis, inner = len(shape) - 1, 1
    while axis and inner * shape[axis] <= _BOX:
        inner *= shape[axis]
        axis -= 1
    return axis, max(1, _BOX // inner)


class _Source(NamedTuple):
    """An operand of which boxes are read.

    values    flat, or else of the shape of the result.
    times     how often each of the flat values stands there; 0 where they are not flat.
    room      for a box.
    """

    values: Carrier
    times: int
    room: Carrier

    @classmethod
    def of(cls, x: Carrier, shape: Shape, axis: int, size: int) -> _Source:
        """An operand of a result of this shape, in boxes of a size that are cut along an axis."""
        n = x.ndim
        while n and x.shape[n - 1] == 1:
            n -= 1
        times = math.prod(shape[n:])
        room = np.empty(0 if times == 1 else size, x.dtype)
        if x.flags.carray and x.shape[:n] == shape[:n] and x.ndim == len(shape) and axis < n:
            return cls(x.reshape(-1), times, room)
        room = np.empty(size, x.dtype)
        return cls(np.broadcast_to(x, shape), 0, room)

    def part(self, first: int, last: int, place: tuple[int | slice, ...]) -> Carrier:
        """Elements first … last - 1 of the result, which lie at this place."""
        if self.times == 1:
            return self.values[first:last]
        room = self.room[: last - first]
        if self.times:
            spread_numbers(self.values[first // self.times : last // self.times], room)
        else:
            values = self.values[place]
            room.reshape(values.shape)[...] = values
        return room


def _run_boxes(
    call: KernelCall, operands: Sequence[Carrier], out: Carrier, element_flags: ElementFlags,
    bits: _Bits,
) -> int:
    """A contiguous result, box by box; operands that do not lie like it pass through memory of one.
    """
    shape, target = out.shape, _flat(out)
    axis, places = _box(shape)
    inner = math.prod(shape[axis + 1 :])
    sources = [_Source.of(operand, shape, axis, places * inner) for operand in operands]
    element_flags = element_flags.reshape(-1)
    seed, number, words, origin = bits
    flags = first = 0
    for index in np.ndindex(shape[:axis]):
        for begin in range(0, shape[axis], places):
            end = min(begin + places, shape[axis])
            last = first + (end - begin) * inner
            place = (*index, slice(begin, end))
            parts = [source.part(first, last, place) for source in sources]
            draw = (seed, number, _part(words, first, last), origin)
            flags |= _run(
                call, parts, target[first:last], _part(element_flags, first, last), draw, first,
                False,
            )
            first = last
    return flags


def _run_chunks(
    call: KernelCall, operands: Sequence[Carrier], out: Carrier, element_flags: ElementFlags,
    bits: _Bits,
) -> int:
    """A result that is not contiguous, and its operands, through scratch memory of one chunk each.
    """
    size = min(_CHUNK, out.size)
    rooms = [np.empty(size, o.dtype) for o in operands]
    result = np.empty(size, out.dtype)
    element_flags = element_flags.reshape(-1)
    seed, number, words, origin = bits
    flags, first = 0, 0
    arrays: list[NDArray[Any]] = [*(np.broadcast_to(o, out.shape) for o in operands), out]
    modes = [*(("readonly",) for _ in operands), ("writeonly",)]
    with np.nditer(  # type: ignore[call-overload]
        arrays,
        flags=["external_loop", "buffered"],
        op_flags=modes,
        order="C",
        buffersize=size,
    ) as chunks:
        for *sources, target in chunks:
            m = target.size
            for room, source in zip(rooms, sources, strict=True):
                room[:m] = source
            draw = (seed, number, _part(words, first, first + m), origin)
            part = _part(element_flags, first, first + m)
            flags |= _run(call, [r[:m] for r in rooms], result[:m], part, draw, first, False)
            target[...] = result[:m]
            first += m
    return flags
