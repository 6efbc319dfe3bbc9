"""The elementwise loop: blocks, tails, scalars and random words (law); corners of every operation.

Operands stand in the vectors, in the last block and behind the last vector; whatever their place,
results and flags are those of the definition.
"""

from __future__ import annotations

import numpy as np
import pytest

import fpsim as fp
from fpsim.elementwise.apply import apply
from fpsim.elementwise.codes import from_codes, to_codes
from fpsim.elementwise.constants import exact_width, plan
from fpsim.judge.oracle import elementwise_word, operate
from fpsim.judge.oracle.rounding import OracleSettings
from fpsim.kernels.elementwise.loop import BLOCK, WORDS_HALF, LoopVariant, kernel
from fpsim.kernels.elementwise.special import ADD, OPERATIONS
from fpsim.kernels.elementwise.step import FLAGS_STICKY
from fpsim.kernels.random.words import NO_WORDS
from fpsim.records.settings import Settings
from fpsim.state.draws import Draw

HALF = fp.BINARY16
#: Subnormal and normal ends, numbers beside 1 and 2, one third, the largest; without specials.
CORNERS = [0x0001, 0x0002, 0x03FF, 0x0400, 0x0401, 0x3555, 0x3BFF, 0x3C00, 0x3C01, 0x3FFF, 0x4000,
           0x6400, 0x7BFF]
LENGTHS = [1, 2, 15, 16, 17, 33, BLOCK - 1, BLOCK, BLOCK + 1, BLOCK + 40, 2 * BLOCK + 16]


def operands_of(operation, n, seed=0):
    """Codes of n elements, every place with its own."""
    rng = np.random.default_rng(seed)
    codes = np.array(CORNERS, np.uint16)
    count = {"sqrt": 1, "fma": 3, "convert": 1}.get(operation, 2)
    signs = [rng.choice([0, 0x8000], n).astype(np.uint16) for _ in range(count)]
    return [rng.choice(codes, n) | s * (operation != "sqrt") for s in signs]


def run(operation, operands, settings, **bits):
    """Codes and flags of the elements; the flags of all must be theirs together."""
    values = [from_codes(c, HALF) for c in operands]
    flags = np.full(len(operands[0]), 255, np.uint8)
    out, raised = apply(operation, values, settings, element_flags=flags, **bits)
    assert raised == np.bitwise_or.reduce(flags)
    return to_codes(out, settings.format), flags


@pytest.mark.parametrize("operation", OPERATIONS[1:])
def test_corners_are_those_of_the_definition(operation):
    operands = operands_of(operation, 400)
    codes, flags = run(operation, operands, Settings(HALF))
    for i, at in enumerate(zip(*(o.tolist() for o in operands), strict=True)):
        expected = operate(operation, at, HALF, OracleSettings())
        assert (int(codes[i]), int(flags[i])) == (expected[0], int(expected[1])), at


@pytest.mark.parametrize("operation", ["add", "divide", "sqrt", "fma"])
def test_an_element_has_its_result_in_every_length(operation):
    operands = operands_of(operation, max(LENGTHS))
    codes, flags = run(operation, operands, Settings(HALF))
    assert flags.any()
    for n in LENGTHS:
        first, first_flags = run(operation, [o[:n] for o in operands], Settings(HALF))
        assert np.array_equal(first, codes[:n])
        assert np.array_equal(first_flags, flags[:n])


@pytest.mark.parametrize("n", [1, 5, 16, BLOCK + 3, 2 * BLOCK])
def test_one_number_is_spread_over_all_elements(n):
    (x,) = (from_codes(c, HALF) for c in operands_of("sqrt", n))
    y, z = np.float32([1 + 2.0**-10]), np.float32([-(2.0**-24)])
    settings = Settings(HALF)
    for operation, operands in (("subtract", (x, y)), ("fma", (x, y, z))):
        flags = np.zeros((2, n), np.uint8)
        spread, _ = apply(operation, operands, settings, element_flags=flags[0])
        whole = [np.resize(v, n).copy() for v in operands]
        expected, _ = apply(operation, whole, settings, element_flags=flags[1])
        assert np.array_equal(spread, expected)
        assert np.array_equal(*flags)


@pytest.mark.parametrize("n", [1, 16, 19, BLOCK + 5])
def test_nothing_behind_the_last_element_is_written(n):
    (x,) = (from_codes(c, HALF) for c in operands_of("sqrt", n))
    out, flags = np.full(n + 32, 7, np.float32), np.full(n + 32, 9, np.uint8)
    apply("add", (x, x), Settings(HALF), out=out[16 : n + 16], element_flags=flags[16 : n + 16])
    around = np.r_[0:16, n + 16 : n + 32]
    assert set(out[around]) == {7}
    assert set(flags[around]) == {9}


@pytest.mark.parametrize("flags", [0, 1])
def test_the_flags_of_the_call_are_seen_in_every_place(flags):
    """One inexact element among exact ones, in blocks and in the last few elements."""
    for place in (0, 15, 16, BLOCK - 1, BLOCK, BLOCK + 7):
        x, y = np.ones(BLOCK + 8, np.float32), np.ones(BLOCK + 8, np.float32)
        y[place] = 2.0**-12 if flags else 2.0**-10
        _, raised = apply("add", (x, y), Settings(HALF))
        assert raised == flags


@pytest.mark.parametrize("n", [1, 17, 128, 200, BLOCK + 130])
def test_random_words_go_by_the_number_of_the_element(n):
    """Elements beside both ends of the groups of 128, of the blocks, and of the array."""
    rounding = fp.SR(13, subnormal_bits=16)
    operands = operands_of("add", n, seed=n)
    codes, flags = run(
        "add", operands, Settings(HALF, rounding), bits=Draw(np.uint64(3), np.uint64(1 << 33), None)
    )
    for i in {0, n // 2, min(n - 1, 127), min(n - 1, 128), min(n - 1, BLOCK), n - 1}:
        word = elementwise_word(3, 1 << 33, i, 16)
        at = tuple(int(o[i]) for o in operands)
        expected = operate("add", at, HALF, OracleSettings(rounding, word=word))
        assert (int(codes[i]), int(flags[i])) == (expected[0], int(expected[1])), i


def test_operands_below_the_smallest_normal_are_zero_where_they_are_flushed():
    settings = Settings(HALF, subnormals="flush_both")
    x = [0x03FF, 0x83FF, 0x0400, 0x8400]
    for at in [(u, v) for u in x for v in (*x, 0x7BFF, 0xFBFF)]:
        for operation in ("add", "multiply", "divide"):
            codes, flags = run(operation, [np.array([c], np.uint16) for c in at], settings)
            expected = operate(operation, at, HALF, OracleSettings(subnormals="flush_both"))
            assert (int(codes[0]), int(flags[0])) == (expected[0], int(expected[1])), at


@pytest.mark.parametrize("first", [1, 15, 16, 127, 128, 129, BLOCK, BLOCK + 100])
def test_a_range_of_elements_takes_the_words_of_the_whole(first):
    """A range may begin inside a group of counters, as the rows of a larger array do."""
    settings, n = Settings(HALF, fp.SR(13, subnormal_bits=16)), 2 * BLOCK + 16
    x, y = (from_codes(c, HALF) for c in operands_of("add", n))
    constants = plan("add", settings, exact_width("add", settings, 4))
    variant = LoopVariant(ADD, constants.mode, FLAGS_STICKY, False, False, WORDS_HALF, 0)

    def run_range(begin):
        out = np.zeros(n - begin, np.float32)
        kernel(variant)(
            x[begin:], y[begin:], x[begin:], out, np.zeros(1, np.uint8), NO_WORDS,
            constants.constants, begin, np.uint64(3), np.uint64(7), False,
        )
        return to_codes(out, HALF)

    whole = run_range(0)
    assert np.array_equal(run_range(first), whole[first:])
    values, _ = apply("add", (x, y), settings, bits=Draw(np.uint64(3), np.uint64(7), None))
    assert np.array_equal(whole, to_codes(values, HALF))


@pytest.mark.parametrize("random", [fp.SR(8), fp.SR(20)], ids=str)
def test_lanes_beyond_the_last_element_raise_no_flags(random):
    """A last vector is filled up by the last element: 72 + 176 = 248 in F143, where 256 overflows.

    With other random words than the element's own its copies raised OVERFLOW.
    """
    settings = Settings(fp.F143, random)
    x, y = np.float32([-72.0]), np.float32([-176.0])
    raised = set()
    for seed in range(40):
        bits = Draw(np.uint64(seed), np.uint64(0), None)
        for n in (1, 2, 15, 17, 33):
            operands = np.tile(x, n), np.tile(y, n)
            element_flags = np.zeros(n, np.uint8)
            apply("add", operands, settings, element_flags=element_flags, bits=bits)
            _, flags = apply("add", operands, settings, bits=bits)
            assert flags == np.bitwise_or.reduce(element_flags), (seed, n)
            raised.add(flags)
    assert len(raised) == 2
