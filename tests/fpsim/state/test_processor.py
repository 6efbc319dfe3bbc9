"""Flush-to-zero and rounding modes that somebody else set in the processor (differential).

Every operation gives the same values and flags under them, and puts back what it found. A fresh
process that is set from the start makes its constants under them too.
"""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from fpsim.context import Context
from fpsim.elementwise.codes import from_codes
from fpsim.kernels.status import exchange_status
from fpsim.kernels.status_register import (
    FLAGS,
    HAS_STATUS,
    TOWARD_MINUS,
    TOWARD_PLUS,
    TOWARD_ZERO,
    USUAL,
)
from fpsim.records.formats import BFLOAT16, BINARY32, E5M2, Format
from fpsim.records.rounding import RTO, SR
from fpsim.state.processor import usual_arithmetic, usual_arithmetic_in
from fpsim.state.tasks import offer
from tests.machine import digest
from tests.processors import FLUSH

pytestmark = pytest.mark.skipif(not HAS_STATUS, reason="no status register that is known")

#: Flush results and operands; toward -inf; toward +inf; toward zero, flushing, every flag up.
FLUSHING = USUAL | FLUSH
STATES = [
    FLUSHING, USUAL | TOWARD_MINUS, USUAL | TOWARD_PLUS, FLUSHING | TOWARD_ZERO | FLAGS,
]

#: All of the word but the flags of exceptions.
MODES = ~FLAGS


def numbers(fmt: Format, seed: int) -> np.ndarray:
    """Subnormals and the smallest normal numbers, of both signs."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 5 << (fmt.precision - 1), 96) | rng.integers(0, 2, 96) << fmt.bits - 1
    return from_codes(codes, fmt)


def results() -> Iterator[tuple[str, str]]:
    """Name and hash of the values and flags of each operation."""
    context, short = Context(BINARY32), Context(BFLOAT16, rounding=SR(8), seed=1)
    x, y = (context.wrap(numbers(BINARY32, seed)) for seed in (1, 2))
    z = short.wrap(numbers(BFLOAT16, 3))
    operations = {
        "add": lambda: x + y,
        "subtract": lambda: x - y,
        "multiply": lambda: x * 0.375,
        "divide": lambda: x / 3.0,
        "divide small": lambda: x / y,
        "sqrt": lambda: context.sqrt(abs(x)),
        "fma": lambda: context.fma(x, 1.5, y),
        "stochastic": lambda: z * 0.3,
        "convert": lambda: short.convert(x),
        "odd": lambda: x.to(Context(BFLOAT16, rounding=RTO)),
        "to FP8": lambda: (x * 2.0**110).to(E5M2),
        "remainder": lambda: context.ieee_remainder(x, y),
        "maximum": lambda: context.maximum(x, y),
        "sum": lambda: x.sum(),
        "kahan": lambda: x.sum(order="kahan"),
        "matmul": lambda: x.reshape(8, 12) @ y.reshape(12, 8),
        "exp": lambda: context.exp(x),
        "log": lambda: context.log(abs(x)),
    }
    for name, operation in operations.items():
        context.clear_flags()
        short.clear_flags()
        result = operation()
        flags = int(context.flags | short.flags | result.context.flags)
        yield name, digest(result.values, result.codes(), np.array([flags]))
    yield "less", digest(x < y, x == y, np.array([int(context.flags)]))
    yield "integers", digest(context.to_integers(x, "int32"), np.array([int(context.flags)]))


def under(status: int) -> dict[str, str]:
    """The results while the register is so set; it must be as set afterwards, flags and all."""
    result = exchange_status(status)
    try:
        actual = dict(results())
    finally:
        left = exchange_status(result)
    # numpy lowers the flags around its own arithmetic.
    assert left & MODES == status & MODES
    return actual


@pytest.fixture(scope="module")
def usual() -> dict[str, str]:
    return under(USUAL)


@pytest.mark.parametrize("status", STATES, ids=hex)
def test_no_state_of_the_processor_shows(status, usual):
    assert under(status) == usual


def test_a_process_set_from_the_start_gives_the_same(usual):
    script = (
        "import json, tests.fpsim.state.test_processor as t\n"
        "print(json.dumps(t.under(t.FLUSHING | t.TOWARD_ZERO)))"
    )
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=root, check=True, text=True, capture_output=True
    )
    assert json.loads(done.stdout) == usual


@pytest.mark.parametrize("status", [*STATES, USUAL], ids=hex)
def test_a_kernel_leaves_the_register_as_it_was(status):
    context = Context(BFLOAT16, rounding=SR(8))
    x = context.wrap(numbers(BFLOAT16, 4))
    target = x + x
    context.divide(x, x, out=target)  # compiled here: a compiler computes as well
    result = exchange_status(status)
    try:
        context.add(x, x, out=target)
        context.divide(x, x, out=target)
    finally:
        left = exchange_status(result)
    assert left == status


def test_the_state_would_show_without_care():
    tiny = np.float32([2.0**-140])
    result = exchange_status(FLUSHING)
    try:
        flushed = tiny + tiny
    finally:
        exchange_status(result)
    assert flushed == 0
    assert tiny + tiny == np.float32(2.0**-139)


# The guard ---------------------------------------------------------------------------------------


def modes() -> int:
    """The modes under which this body runs, read from the register itself."""
    status = exchange_status(USUAL)
    exchange_status(status)
    return status & MODES


@usual_arithmetic_in("moves")
class Guarded:
    """Its methods compute; `moves` is left as it is."""

    def computes(self) -> int:
        return modes()

    def moves(self) -> int:
        return modes()

    def lazily(self) -> Iterator[int]:
        yield modes()

    @property
    def shown(self) -> int:
        return modes()

    def fails(self) -> int:
        raise ValueError


def test_methods_of_a_class_are_guarded_but_for_those_that_are_named():
    before = exchange_status(FLUSHING)
    try:
        states = [Guarded().computes(), Guarded().moves(), *Guarded().lazily(), Guarded().shown]
        with suppress(ValueError):
            Guarded().fails()
    finally:
        left = exchange_status(before)
    assert states == [USUAL, *[FLUSHING & MODES] * 3]
    assert left & MODES == FLUSHING & MODES


def test_a_name_that_the_class_lacks_is_refused():
    with pytest.raises(AssertionError, match="Guarded has no wrong"):
        usual_arithmetic_in("wrong")(Guarded)


def test_a_guarded_function_keeps_its_name_signature_and_module():
    def function(x: int, *, y: int = 2) -> int:
        """Its text."""
        return x + y

    guarded = usual_arithmetic(function)
    assert guarded(1) == 3
    assert (guarded.__name__, guarded.__doc__) == ("function", "Its text.")
    assert inspect.signature(guarded) == inspect.signature(function)
    assert guarded.__globals__ is function.__globals__  # where doctest looks


def test_tasks_run_in_the_usual_state_whoever_runs_them():
    before = exchange_status(FLUSHING)
    try:
        results = [offer(modes).finish() for _ in range(20)]
    finally:
        exchange_status(before)
    assert results == [USUAL] * 20


def test_the_smallest_number_of_binary64_is_not_flushed():
    fmt = Format("binary64", 11, 53, 1023)  # without what another has cached
    before = exchange_status(FLUSHING)
    try:
        smallest = np.array(fmt.smallest_subnormal).view(np.int64).item()
    finally:
        exchange_status(before)
    assert smallest == 1
