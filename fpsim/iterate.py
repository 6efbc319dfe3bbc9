"""A step, called again and again as one kernel: `Context.iterate`.

Values, flags, random bits and the number of the next operation are those of a loop that calls the
step. A state that a step leaves as it is, without a stochastic rounding that could have changed it,
stays for ever: the run ends there and says when.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fpsim.array import Array
from fpsim.core import Core
from fpsim.elementwise.constants import exact_width, plan
from fpsim.elementwise.sizes import check_size
from fpsim.kernels.elementwise.loop import BLOCK, WORDS_HALF, WORDS_NONE, WORDS_WHOLE
from fpsim.kernels.elementwise.program import (
    ABSOLUTE,
    FIXED,
    NEGATIVE,
    STOPPED,
    ProgramVariant,
    program_kernel,
)
from fpsim.kernels.elementwise.special import OPERATIONS
from fpsim.kernels.random.words import NO_WORDS
from fpsim.kernels.rounding.rule import FIELDS
from fpsim.records.settings import Settings
from fpsim.trace import Trace, TracedArray, places_of

__all__ = ["Iteration", "iterate"]

_NUMBERS = {name: i for i, name in enumerate(OPERATIONS)}
_SIGNS = {"negative": NEGATIVE, "absolute": ABSOLUTE}
#: Roundings after which Python looks for an interrupt.
_ROUNDINGS = 1 << 26


class Iteration(NamedTuple):
    """What a run of n steps leaves.

    x         the state after n steps: an Array, or a tuple of them.
    fixed     the step after which the state no longer changes; None where it may still change.
    watched   the states after the steps that were watched, along a new first axis; None for none.
    """

    x: Any
    fixed: int | None
    watched: Any


class _Program(NamedTuple):
    """A traced step, ready for the kernel."""

    kernel: Any
    table: NDArray[np.int64]
    places: NDArray[np.int64]
    memory: NDArray[Any]
    rules: tuple[NDArray[np.uint32], NDArray[np.uint64]]
    state: NDArray[np.int64]
    result: NDArray[np.int64]
    draws: int


def iterate(context: Any, step: Callable[..., Any], x: Any, n: int, watch: Any) -> Iteration:
    """n steps from x; what is refused is refused before anything has changed."""
    arrays = list(x) if isinstance(x, (tuple, list)) else [x]
    _check(context, step, arrays, n)
    watched_steps = _watched(watch, n, sum(a.carrier.nbytes for a in arrays))
    program = _traced(context, step, arrays)
    run = _Steps(context, program, n, watched_steps)
    fixed = run.all(step, [a.shape for a in arrays])
    many = isinstance(x, (tuple, list))

    def shaped(flat: NDArray[Any], *leading: int) -> Any:
        parts, first = [], 0
        for a in arrays:
            part = flat[..., first : first + a.size].reshape((*leading, *a.shape))
            parts.append(Array(part.copy(), context))
            first += a.size
        return tuple(parts) if many else parts[0]

    watched = None if watch is None else shaped(run.history, len(watched_steps))
    return Iteration(shaped(run.values), fixed, watched)


def _check(context: Any, step: Any, arrays: Sequence[Any], n: int) -> None:
    core: Core = context.core
    if not callable(step):
        raise TypeError(f"step={step!r} is no function; give one that takes and returns the state")
    if isinstance(n, bool) or not isinstance(n, (int, np.integer)) or n < 0:
        raise ValueError(f"n={n!r} is not a number of steps; use a whole number from 0 on")
    if not arrays:
        raise TypeError("x is empty; give an Array of this context, or a tuple of them")
    for a in arrays:
        if not isinstance(a, Array) or a.context is not context:
            raise TypeError(f"x={type(a).__name__} is not an Array of this context; use ctx.array")
    if core.settings.native:
        raise TypeError("iterate is not offered in binary64, the native reference; use numpy")
    if core.counts is not None:
        raise ValueError("count=True counts each operation of a loop; iterate with count=False")
    if core.settings.rounding.stochastic and (core.seed is None or core.clock.first):
        raise ValueError(f"iterate draws the bits of Philox; {core.source!r} needs a loop")


#: Bytes of a number of a step, in a list and in an array.
_NUMBER_BYTES = 48


def _watched(watch: Any, n: int, size: int) -> list[int]:
    """Numbers of steps, ascending, from 0 to n; a state has so many bytes."""
    if watch is None:
        return []
    if isinstance(watch, (int, np.integer)) and not isinstance(watch, bool):
        if watch < 1:
            raise ValueError(f"watch={watch} is not a distance of steps; use one from 1 on")
        check_size("watch", watch, int(n) // int(watch), size + _NUMBER_BYTES)
        return list(range(int(watch), int(n) + 1, int(watch)))
    steps = list(watch) if isinstance(watch, Iterable) and not isinstance(watch, str) else [watch]
    whole = all(isinstance(k, (int, np.integer)) and not isinstance(k, bool) for k in steps)
    if not whole or any(b <= a for a, b in pairwise(steps)) or (
        steps and not 0 <= steps[0] <= steps[-1] <= n
    ):
        raise ValueError(f"watch={watch!r}; give every how many steps, or steps 0 to {n} ascending")
    return [int(k) for k in steps]


def _traced(context: Any, step: Callable[..., Any], arrays: Sequence[Array]) -> _Program:
    trace = Trace(context)
    shapes = [a.shape for a in arrays]
    results = trace.called(step, trace.state(shapes))
    again = Trace(context)
    others = again.called(step, again.state(shapes))
    if _text(trace, results) != _text(again, others):
        raise ValueError("step does something else when it is called again; call it in a loop")
    if [r.shape for r in results] != shapes:
        raise ValueError(f"step turns shapes {shapes} into {[r.shape for r in results]}; a state "
                         "keeps its shapes")
    settings = context.core.settings
    memory = np.zeros(trace.size, settings.format.carrier)
    first = 16
    for values, a in zip(_state_parts(memory, first, arrays), arrays, strict=True):
        values[...] = a.carrier.reshape(-1)
    for place, numbers in trace.constants:
        memory[place : place + numbers.size] = numbers
    flat = [places_of(r) for r in results]
    result = np.concatenate(flat) if flat else np.zeros(0, np.int64)
    places = np.concatenate([*trace.places, np.zeros(1, np.int64)])
    return _compiled(trace, settings, memory, places, result)


def _state_parts(memory: NDArray[Any], first: int, arrays: Sequence[Array]) -> Iterable[Any]:
    for a in arrays:
        yield memory[first : first + a.size]
        first += a.size


def _text(trace: Trace, results: Sequence[TracedArray]) -> tuple[Any, ...]:
    """All that a program is."""
    return (
        trace.table, [p.tobytes() for p in trace.places],
        [(place, numbers.tobytes()) for place, numbers in trace.constants],
        [(r.shape, places_of(r).tobytes()) for r in results],
    )


def _compiled(
    trace: Trace, settings: Settings, memory: NDArray[Any], places: NDArray[np.int64],
    result: NDArray[np.int64],
) -> _Program:
    """The table by numbers, the constants of its operations, and the kernel for them."""
    size = len(FIELDS)
    narrow, wide = np.zeros(size, np.uint32), np.zeros(size, np.uint64)
    rows_of: dict[str, int] = {}
    present = wides = quanta = 0
    rules: dict[int, list[NDArray[Any]]] = {32: [narrow], 64: [wide]}
    rule = plan("add", settings, exact_width("add", settings, memory.itemsize))
    for name in dict.fromkeys(row[0] for row in trace.table if row[0] in _NUMBERS):
        width = exact_width(name, settings, memory.itemsize)
        rule, bit = plan(name, settings, width), 1 << _NUMBERS[name]
        present |= bit
        wides |= bit * (width == 64)
        quanta |= bit * (rule.in_quanta and name not in ("add", "subtract"))
        rows_of[name] = len(rules[width]) * size
        rules[width].append(rule.constants)
    stochastic = rule.stochastic
    table = np.array([
        (
            _NUMBERS.get(name, _SIGNS.get(name, 0)), n, *begins, *[begins[0]] * (3 - len(begins)),
            out, rows_of.get(name, 0), stochastic and name in _NUMBERS,
        )
        for name, n, begins, out in trace.table
    ], np.int64).reshape(-1, 8)
    words = WORDS_NONE if not stochastic else WORDS_WHOLE if rule.whole_words else WORDS_HALF
    variant = ProgramVariant(
        rule.mode, rule.flush, rule.one_zero, words, rule.residual, present, wides, quanta
    )
    state = np.array([16, result.size], np.int64)
    return _Program(
        program_kernel(variant), table, places, memory,
        (np.concatenate(rules[32]), np.concatenate(rules[64])), state, result,
        int(table[:, 7].sum()),
    )


class _Steps:
    """Steps of a program; the context changes at the end alone, or before a step that traps."""

    def __init__(self, context: Any, program: _Program, n: int, watched: list[int]) -> None:
        self.context, self.program, self.n, self.watched = context, program, n, watched
        self.size = program.result.size
        memory = program.memory
        self.values = memory[16 : 16 + self.size]
        self.history = np.zeros((len(watched) + 1, self.size), memory.dtype)
        self.bits = f"u{memory.itemsize}"
        self.scratch = np.zeros((3, BLOCK), memory.dtype)
        self.done, self.flags, self.filled = 0, 0, 0

    def all(self, step: Callable[..., Any], shapes: Sequence[Any]) -> int | None:
        """Every step; the one after which nothing changes."""
        if self.watched and self.watched[0] == 0:
            self.history[0], self.filled = self.values, 1
        per_step = max(1, int(self.program.table[:, 1].sum()))
        fixed = None
        while self.done < self.n and fixed is None:
            why = self._run(min(self.n - self.done, max(1, _ROUNDINGS // per_step)))
            if why == FIXED:
                fixed = self.done
            elif why == STOPPED:
                self._publish()
                self._step_itself(step, shapes)
        if fixed is not None:
            self.history[self.filled : len(self.watched)] = self.values
            self.done = self.n
        self._publish()
        self.history = self.history[: len(self.watched)]
        return fixed

    def _run(self, steps: int) -> int:
        """So many steps by the kernel; why it ended."""
        program, core = self.program, self.context.core
        watched = np.array([k - self.done for k in self.watched[self.filled :]], np.int64)
        history = self.history[self.filled :]
        outcome = np.zeros(2, np.int64)
        number = core.clock.operation + program.draws * (self.done - self._published)
        sign = program.memory.view(self.bits).dtype.type(1 << (8 * program.memory.itemsize - 1))
        done = program.kernel(
            program.table, program.places, program.memory, program.memory.view(self.bits),
            self.scratch, self.scratch.view(self.bits), *program.rules, NO_WORDS, program.state,
            program.result, np.uint64(core.seed or 0), np.uint64(number), program.draws, steps,
            core.armed, watched, history.view(self.bits), outcome, sign,
        )
        self.done += int(done)
        self.filled = sum(k <= self.done for k in self.watched)
        self.flags |= int(outcome[1])
        return int(outcome[0])

    _published = 0

    def _publish(self) -> None:
        """Flags and the number of the next operation, as after the steps that are done."""
        core = self.context.core
        if self.flags:
            core.raise_flags(self.flags)
        core.clock.operation += self.program.draws * (self.done - self._published)
        self._published = self.done

    def _step_itself(self, step: Callable[..., Any], shapes: Sequence[Any]) -> None:
        """The step that raises an armed flag, called: it says where and why."""
        arrays, first = [], 0
        for shape in shapes:
            n = int(np.prod(shape, dtype=np.int64))
            arrays.append(Array(self.values[first : first + n].reshape(shape).copy(), self.context))
            first += n
        step(*arrays)
        raise AssertionError("a step that raised an armed flag raised none when it was called")
