"""Sums by the processor (differential): values and flags of the context's own additions.

Blocks that are longer than the sum make the same additions in the same order, but in the kernel
that rounds each of them in software.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fpsim import BINARY16, BINARY32, Context, Flags, linalg
from fpsim.elementwise.codes import from_codes
from fpsim.kernels.status import exchange_status
from fpsim.kernels.status_register import HAS_STATUS, TOWARD_ZERO, USUAL
from fpsim.products.native_sums import native_sums
from fpsim.records.flags import FloatingPointTrap
from tests.processors import FLUSH

SHAPES = [
    ((999, 16), (0,)), ((5, 7, 11, 3), (0, 1, 2)), ((5, 7, 11, 19), (1, 2)), ((2, 1, 40, 35), (1,)),
    ((1, 8), (0,)), ((70, 2), (0,)), ((5000, 3), (0,)), ((3, 1500, 2), (1,)),
    ((19, 40), (1,)), ((3, 40), (-1,)), ((40,), (0,)), ((4, 5, 6), (0, 2)), ((7, 9, 2, 3), (1, 3)),
    ((3, 4, 5), (0, 1, 2)),
]
POLICIES = ("keep", "flush_results", "flush_both")
#: Exponents, and what some elements are instead.
DATA = {
    "usual": (range(-30, 30), ()), "exact": (range(2), (1.0, 2.0, -3.0)),
    "tiny": (range(-149, -120), (0.0, -0.0)), "huge": (range(120, 128), (3.4e38, -3.4e38)),
    "special": (range(4), (np.inf, -np.inf, np.nan, 0.0)), "zeros": (range(1), (0.0, -0.0)),
}


def numbers(shape, kind, seed):
    rng = np.random.default_rng(seed)
    exponents, others = DATA[kind]
    x = rng.standard_normal(shape) * np.ldexp(1.0, rng.choice(exponents, shape))
    if others:
        share = 1.0 if kind in ("exact", "zeros") else 0.01
        x = np.where(rng.random(shape) < share, rng.choice(others, shape), x)
    with np.errstate(all="ignore"):
        return np.clip(x, -3.4e38, 3.4e38).astype(np.float32) if kind == "huge" else np.float32(x)


def both(x, axes, policy):
    """Bits, flags and counts of the sum, by the processor and in software."""
    results = []
    for order, block in (("sequential", 256), ("blocked", x.size + 1)):
        for count in (False, True):
            context = Context(BINARY32, subnormals=policy, count=count)
            total = linalg.sum(context.wrap(x), axes, order, block=block)
            results.append((total.codes().tolist(), context.flags, total.shape))
        results[-2:] = [(*results[-2], *results[-1], str(context.counts))]
    return results


@pytest.mark.parametrize(("shape", "axes"), SHAPES)
@pytest.mark.parametrize("kind", DATA)
def test_additions_of_the_processor_are_those_of_the_context(shape, axes, kind):
    for policy in POLICIES:
        native, software = both(numbers(shape, kind, 1), axes, policy)
        assert native == software


@given(st.integers(0, 2**32), st.sampled_from(sorted(DATA)), st.sampled_from(POLICIES))
def test_any_few_numbers_sum_as_in_the_context(seed, kind, policy):
    native, software = both(numbers((4, 17), kind, seed), (0,), policy)
    assert native == software


@pytest.mark.parametrize("layout", ["C", "F", "read-only"])
def test_the_layout_does_not_matter(layout):
    x = np.array(numbers((60, 20), "usual", 2), order="F" if layout == "F" else "C")
    x.flags.writeable = layout != "read-only"
    expected = [np.add.accumulate(column, dtype=np.float32)[-1] for column in x.T]
    result, marks = native_sums(x, (0,))
    np.testing.assert_array_equal(result, np.float32(expected))
    assert marks.all()


@pytest.mark.parametrize(("shape", "axes"), [((4, 6), ()), ((0, 4), (0,)), ((4, 0), (0,))])
def test_empty_sums_are_left_to_the_context(shape, axes):
    assert native_sums(np.ones(shape, np.float32), axes) is None


def test_what_could_raise_another_flag_is_left_to_the_context():
    for column in ([np.inf, 1.0], [np.nan, 1.0], [3e38, 3e38], [1e-39, 1.0], [1.2e-38, -1.1e-38]):
        assert native_sums(np.float32([column, [1, 2]]).T, (0,)) is None


@pytest.mark.parametrize(("shape", "axes"), [((999, 17), (0,)), ((50, 3), (0,)), ((6, 90), (1,))])
def test_squares_of_halves_sum_as_products_do(shape, axes):
    rng = np.random.default_rng(7)
    half, single = Context(BINARY16), Context(BINARY32, subnormals="flush_both")
    codes = rng.integers(0, 0x7C00, shape) | rng.integers(0, 2, shape) << 15
    x = single.wrap(from_codes(codes.astype(np.uint16), half.format))
    expected = linalg.sum(single.multiply(x, x), axes, "blocked", block=x.size + 1)
    raised = single.flags
    sums, marks = native_sums(x.values, axes, squared=True)
    assert sums.tolist() == expected.values.tolist()
    assert marks.max() == int(raised) == int(Flags.INEXACT)
    x.carrier[0, 0] = np.nan
    assert native_sums(x.values, axes, squared=True) is None
    x.carrier[0, 0] = np.inf
    assert native_sums(x.values, axes, squared=True) is None


def test_exact_squares_leave_no_mark():
    sums, marks = native_sums(np.float32([[3, 2.0**-24], [4, 0]]), (0,), squared=True)
    assert (sums.tolist(), marks.tolist()) == ([25, 2.0**-48], [0, 0])


def test_a_trap_names_the_first_inexact_sum():
    context = Context(BINARY32, traps=Flags.INEXACT)
    x = np.ones((3, 4, 16), np.float32)
    x[2, 1, 5] = 2.0**-40
    with pytest.raises(FloatingPointTrap, match=r"sum raised INEXACT at \(2, 5\)"):
        linalg.sum(context.wrap(x), 1)
    assert context.flags == Flags.INEXACT


@pytest.mark.skipif(not HAS_STATUS, reason="no status register that is known")
def test_a_processor_that_flushes_makes_no_difference():
    x = numbers((9, 16), "usual", 3)
    usual = linalg.sum(Context(BINARY32).wrap(x), 0).values
    before = exchange_status(USUAL | FLUSH | TOWARD_ZERO)
    try:
        result = linalg.sum(Context(BINARY32).wrap(x), 0).values
    finally:
        exchange_status(before)
    np.testing.assert_array_equal(result, usual)
