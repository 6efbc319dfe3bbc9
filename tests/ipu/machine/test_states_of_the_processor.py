"""Every verb of a device gives the same bits whatever the thread has set in the processor (law).

Verbs are found, not listed; each is called with the first operands that it accepts.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from fpsim import BFLOAT16, BINARY16, BINARY32, BINARY64, Array, Format
from fpsim.elementwise.codes import from_codes
from fpsim.kernels.status_register import HAS_STATUS
from ipu.machine import Device, FpCtl
from tests.processors import STATES, under
from tests.tiers import pick

pytestmark = pytest.mark.skipif(not HAS_STATUS, reason="no status register that is known")

#: Verbs that neither read nor make numbers.
OTHERS = {
    "account_blocks", "check_blocks", "clear_status", "context", "counting_apart", "naming",
    "partials_for", "recomputing", "registers", "rounding", "settle", "settling", "shard", "twin",
}

#: Operands that are tried: of a device, an array and an image with a kernel.
OPERANDS: list[Callable[[Device, Array], tuple[Any, ...]]] = [
    lambda d, x: (x,), lambda d, x: (x, x[::-1]), lambda d, x: (x.T, x), lambda d, x: (x, 1),
    lambda d, x: (x, 3.0), lambda d, x: (x, BINARY16), lambda d, x: (x, "int32"),
    lambda d, x: (x, (0,)), lambda d, x: (x.codes().T % 2 > 0, x.T),
    lambda d, x: (x.codes(), mask(x.format), x), lambda d, x: (x.values, x.format),
    lambda d, x: (image(x), kernel(x)), lambda d, x: (image(x), kernel(x), image(x).shape),
    lambda d, x: (image(x), image(x), kernel(x).shape), lambda d, x: ((3,), x.format),
    lambda d, x: ((64,), 0.3),
]


def mask(fmt: Format) -> int:
    """The digits of exponents."""
    return (1 << fmt.exponent_bits) - 1 << fmt.precision - 1


def image(x: Array) -> Array:
    return x.reshape(1, 4, 4, 1)


def kernel(x: Array) -> Array:
    return x.ravel()[4:5].reshape(1, 1, 1, 1)


def numbers(device: Device, fmt: Format) -> Array:
    """Zeros, subnormal numbers, their neighbours, ordinary numbers."""
    hidden = 1 << fmt.precision - 1
    few = [0, 1, 2, hidden - 1, hidden, hidden + 1, hidden // 3, 3 * hidden]
    codes = np.array([*few, *(1 << fmt.bits - 1 | code for code in few)])
    if fmt != BINARY64:
        codes[7] += (fmt.bias - 5) * hidden
    return device.context(fmt).wrap(from_codes(codes.astype(fmt.code_dtype), fmt).reshape(4, 4))


def bits_of(result: Any) -> Any:
    """Bits, never values."""
    if isinstance(result, Array):
        return result.codes().tobytes()
    return np.asarray(result).tobytes()


def calls(fmt: Format) -> Iterator[tuple[str, Callable[[], Any]]]:
    for name, member in inspect.getmembers(Device):
        if name.startswith("_") or not callable(member) or name in OTHERS:
            continue
        yield name, first_accepted(name, fmt)


def first_accepted(name: str, fmt: Format) -> Callable[[], Any]:
    for operands in OPERANDS:

        def call(operands: Any = operands) -> Any:
            target = "reference" if fmt == BINARY64 else "hypothetical"
            device = Device(target, FpCtl(), f32_denormals="ieee", seed=1, count=fmt == BINARY16)
            x = numbers(device, fmt)
            result = bits_of(getattr(device, name)(*operands(device, x)))
            return result, device.status_word, device.vector_cycles, device.counts

        try:
            call()
        except (TypeError, ValueError, IndexError, AttributeError, UserWarning):
            continue
        return call
    raise AssertionError(f"no operands for {name}; add some to OPERANDS")


@pytest.mark.parametrize("fmt", [BINARY32, BINARY64, *pick([], *[[BINARY16, BFLOAT16]] * 2)])
def test_no_verb_shows_the_state(fmt):
    every = dict(calls(fmt))
    assert len(every) >= 25
    usual = {name: call() for name, call in every.items()}
    for state in STATES:
        differing = []
        for name, call in every.items():
            with under(state):
                result = call()
            if result != usual[name]:
                differing.append(name)
        assert differing == [], state
