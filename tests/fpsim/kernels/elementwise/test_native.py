"""Binary32 by the processor: values and flags of the general kernel, which the oracle judges.

Differential over corners: exponents at every brink, significands at both ends, all pairs of them;
flags of each element also of usual numbers with others among them.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from fpsim.elementwise.apply import apply
from fpsim.elementwise.constants import has_processor_marks, processor_status
from fpsim.kernels.elementwise.loop import BLOCK
from fpsim.kernels.status_register import FLUSHING, HAS_STATUS, IS_ARM, TININESS
from fpsim.kernels.target import HAS_FMA
from fpsim.records.formats import BFLOAT16, BINARY32
from fpsim.records.rounding import RNA, RNE, RTN, RTP, RTZ, SR
from fpsim.records.settings import SUBNORMALS, ZERO_OR_NORMAL, Settings
from tests.tiers import pick

pytestmark = pytest.mark.skipif(not HAS_STATUS, reason="no status register that is known")

OPERATIONS = {"add": 2, "subtract": 2, "multiply": 2, "divide": 2, "sqrt": 1, "fma": 3}
_MANY = [*range(4), *range(22, 26), 102, 103, 104, *range(125, 129), 150, 151, 152, 253, 254, 255]
_ENDS = [0, 1, 2, 3, 0x400000, 0x400001, 0x3FFFFF, 0x7FFFFE, 0x7FFFFF, 0x555555]
EXPONENTS = pick([0, 1, 2, 24, 102, 103, 126, 127, 128, 151, 253, 254, 255], *[_MANY] * 2)
SIGNIFICANDS = pick([0, 1, 0x400001, 0x7FFFFF, 0x555555], *[_ENDS] * 2)
MODES = {"RNE": RNE, "RTZ": RTZ, "RTP": RTP, "RTN": RTN}


def corners() -> np.ndarray:
    codes = [
        sign << 31 | exponent << 23 | significand
        for sign in (0, 1) for exponent in EXPONENTS for significand in SIGNIFICANDS
    ]
    return np.array(codes, np.uint32).view(np.float32)


def operands(operation: str) -> list[np.ndarray]:
    """All pairs of corners; the third operand is another one, or near minus the product."""
    v = corners()
    if OPERATIONS[operation] == 1:
        return [v]
    x, y = (part.ravel().copy() for part in np.meshgrid(v, v))
    if OPERATIONS[operation] == 2:
        return [x, y]
    with np.errstate(all="ignore"):
        z = np.where(np.arange(x.size) % 2 > 0, np.roll(x, 7), -x * y).astype(np.float32)
    return [x, y, z]


def by_lanes(
    monkeypatch, operation: str, sources: list[np.ndarray], settings: Settings
) -> tuple[np.ndarray, np.ndarray]:
    """Values and flags of each element by the general kernel."""
    flags = np.zeros(sources[0].shape, np.uint8)
    with monkeypatch.context() as patch:
        patch.setattr("fpsim.elementwise.apply.has_processor_marks", lambda *_: False)
        values, _ = apply(operation, sources, settings.replace(), element_flags=flags)
    return values, flags


#: Without the one that no kernel has: it is made of others.
OF_KERNELS = [policy for policy in SUBNORMALS if policy != ZERO_OR_NORMAL]
PAIRS = pick(
    [("RNE", "keep"), ("RNE", "flush_both"), ("RTP", "flush_results"), ("RTN", "keep")],
    *[list(product(MODES, OF_KERNELS))] * 2,
)


@pytest.mark.parametrize(("mode", "subnormals"), PAIRS)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_values_and_flags_are_those_of_the_general_kernel(
    operation, mode, subnormals, monkeypatch
):
    if operation == "fma" and not HAS_FMA:
        pytest.skip("the processor has no fma")
    for quiet in (True,) if operation == "fma" else (True, False):
        settings = Settings(
            BINARY32, rounding=MODES[mode], subnormals=subnormals, quiet_nan_raises=quiet,
            tininess=TININESS,
        )
        assert (processor_status(operation, settings, 4) >= 0) == (subnormals in FLUSHING)
        sources = operands(operation)
        fast, _ = apply(operation, sources, settings)
        slow, flags = by_lanes(monkeypatch, operation, sources, settings)
        np.testing.assert_array_equal(fast.view(np.uint32), slow.view(np.uint32))
        for value in np.unique(flags):
            alike = np.flatnonzero(flags == value)
            # In parts: a flag that some raise and others do not would show in one of them.
            for part in np.array_split(alike, min(alike.size, 64)):
                assert apply(operation, [s[part] for s in sources], settings)[1] == value


def mixed(rng: np.random.Generator, n: int) -> np.ndarray:
    """Usual numbers, of few digits in places, with small, large and special ones among them."""
    x = rng.standard_normal(n).astype(np.float32)
    x[: n // 4].view(np.uint32)[...] &= np.uint32(0xFFFFE000)
    few = rng.integers(0, n, n // 30)
    x.view(np.uint32)[few] = rng.integers(0, 1 << 32, few.size, dtype=np.uint32)
    few = rng.integers(0, n, n // 30)
    x[few] = rng.choice(corners(), few.size)
    return x


@pytest.mark.skipif(IS_ARM or not HAS_FMA, reason="flags of each element are the general kernel's")
@pytest.mark.parametrize("subnormals", ["keep", "flush_both"])
@pytest.mark.parametrize("operation", [name for name in OPERATIONS if name != "fma"])
def test_flags_of_each_element_are_those_of_the_general_kernel(
    operation, subnormals, monkeypatch
):
    """Of corners, of usual numbers with hard ones among them, of sums that cancel; and together."""
    rng, settings = np.random.default_rng(4), Settings(BINARY32, subnormals=subnormals)
    assert has_processor_marks(operation, settings)
    x, y = (mixed(rng, pick(40_000, 400_000, 4_000_000)) for _ in range(2))
    negated = x.view(np.int32) ^ np.int32(-(1 << 31))
    near = (negated + rng.integers(-2, 3, x.size, dtype=np.int32)).view(np.float32)
    cases = [operands(operation), [x, y], [x, near], [x[:77], y[:77]], [x, x[:1]]]
    for sources in [case[: OPERATIONS[operation]] for case in cases]:
        flags = np.zeros(sources[0].shape, np.uint8)
        values, together = apply(operation, sources, settings, element_flags=flags)
        expected, marks = by_lanes(monkeypatch, operation, sources, settings)
        np.testing.assert_array_equal(values.view(np.uint32), expected.view(np.uint32))
        np.testing.assert_array_equal(flags, marks)
        assert together == np.bitwise_or.reduce(marks)
        for value in np.unique(marks):  # alone, so that no other flag hides one of looking
            alike = [s[marks == value] if s.size > 1 else s for s in sources]
            none = np.zeros(len(alike[0]), np.uint8)
            _, raised = apply(operation, alike, settings, element_flags=none)
            assert raised == value


@pytest.mark.parametrize("operation", ["add", "subtract"])
def test_what_a_sum_beside_the_largest_number_has_lost_overflows_nowhere(operation):
    """s = largest - k - 1/2 units rounds up to an even number; s - y is half a unit too large."""
    largest, unit = np.finfo(np.float32).max, np.float32(2.0**104)
    less = (np.arange(1, 64, 2, dtype=np.float32) + np.float32(0.5)) * -unit
    x, y = np.full_like(less, largest), less if operation == "add" else -less
    turned = (y, x) if operation == "add" else (-y, -x)
    for sources in ((x, y), (-x, -y), turned):
        flags = np.zeros(x.shape, np.uint8)
        _, together = apply(operation, sources, Settings(BINARY32), element_flags=flags)
        assert set(flags.tolist()) == {1}
        assert together == 1


@pytest.mark.parametrize("mode", pick(["RNE", "RTP"], *[list(MODES)] * 2))
@pytest.mark.parametrize("operation", ["add", "subtract", "divide", "sqrt"])
def test_when_the_processor_looks_for_tiny_results_shows_in_products_alone(operation, mode):
    sources, results = operands(operation), []
    for tininess in ("before", "after"):
        settings = Settings(BINARY32, rounding=MODES[mode], tininess=tininess)
        assert processor_status(operation, settings, 4) >= 0
        flags = np.zeros(sources[0].shape, np.uint8)
        apply(operation, sources, settings, element_flags=flags)
        results.append(flags)
    np.testing.assert_array_equal(*results)


@pytest.mark.parametrize("n", [1, 5, 16, BLOCK - 1, BLOCK + 17])
def test_every_length_and_a_number_as_an_operand(n):
    rng = np.random.default_rng(n)
    x, y = rng.standard_normal((2, n)).astype(np.float32)
    settings = Settings(BINARY32)
    for other in (y, y[:1]):
        result, flags = apply("multiply", [x, other], settings)
        np.testing.assert_array_equal(result, x * other)
        exact = result.astype(float) == x.astype(float) * other.astype(float)
        assert flags == (0 if exact.all() else 1)


def test_other_choices_are_not_for_the_processor():
    assert processor_status("add", Settings(BINARY32, rounding=RNA), 4) < 0
    assert processor_status("add", Settings(BINARY32, rounding=SR()), 4) < 0
    assert processor_status("add", Settings(BINARY32, overflow="saturate"), 4) < 0
    other = "before" if TININESS == "after" else "after"
    assert processor_status("multiply", Settings(BINARY32, tininess=other), 4) < 0
    assert processor_status("fma", Settings(BINARY32, tininess=other, quiet_nan_raises=True), 4) < 0
    assert processor_status("add", Settings(BINARY32, nan="x86"), 4) < 0
    assert processor_status("divide", Settings(BINARY32, divide_by_zero="nan"), 4) < 0
    assert processor_status("add", Settings(BFLOAT16), 4) < 0
    assert processor_status("add", Settings(BINARY32), 8) < 0
    assert processor_status("convert", Settings(BINARY32), 4) < 0
    assert processor_status("fma", Settings(BINARY32), 4) < 0  # its NaN of inf * 0 + NaN
