"""Stochastic chains word by word against exact fractions: tails, binades, subnormals (corners)."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import fpsim as fp
from fpsim.judge.oracle import decode, product_word, round_exact
from fpsim.kernels.status_register import HAS_STATUS
from fpsim.products.by_operation import dispatch
from fpsim.products.by_operation.bounds import find_lane, measure
from fpsim.products.by_operation.calls import Bits, random_call
from fpsim.products.by_operation.fast import run_macs
from fpsim.products.by_operation.rules import mac_rules
from fpsim.records.flags import Flags
from fpsim.records.settings import Settings

pytestmark = pytest.mark.skipif(not HAS_STATUS, reason="no status register that is known")

HALF = fp.BINARY16
#: 13 digits, and 16 of them at most below the smallest normal number.
IPU = fp.SR(13, subnormal_bits=16)
SEED, NUMBER = 11, 5
FUSED = pytest.mark.parametrize("fused", [False, True])


def run(a, b, fused):
    """Codes and flags of the fast kernel, which must take the operands."""
    a, b = np.float32(a), np.float32(b)
    outcome = run_macs(Settings(HALF, IPU), fused, a, b, Bits(SEED, NUMBER), 0)
    assert outcome is not None
    return fp.Array(outcome[0], fp.Context(HALF)).codes(), outcome[1]


def chain(x, y, output, fused):
    """Code and flags of one output from its words."""
    s, flags = Fraction(0), Flags.NONE

    def rounded(exact, place, zero_sign):
        nonlocal flags
        word = product_word(SEED, NUMBER, output, place, 16)
        code, raised = round_exact(exact, HALF, IPU, word=word, sign_of_zero=zero_sign)
        flags |= raised
        return code

    code = None
    for k, (u, v) in enumerate(zip(x, y, strict=True)):
        exact = Fraction(float(u)) * Fraction(float(v))
        if not fused or k == 0:
            code = rounded(exact, k if fused else 2 * k, int((u < 0) != (v < 0)))
            exact = decode(code, HALF).value
        if k:
            code = rounded(s + exact, k if fused else 2 * k + 1, 0)
        s = decode(code, HALF).value
    return code, flags


def check(a, b, fused):
    codes, raised = run(a, b, fused)
    expected = Flags.NONE
    for i, j in np.ndindex(codes.shape):
        code, flags = chain(a[i], b[:, j], i * codes.shape[1] + j, fused)
        assert int(codes[i, j]) == code, (i, j)
        expected |= flags
    assert raised == int(expected)


@FUSED
@pytest.mark.parametrize("shape", [(1, 1, 1), (5, 9, 17), (9, 4, 33)])
def test_every_rounding_takes_the_word_of_its_place_and_output(shape, fused):
    """Nine terms have 18 rounding places: words of three counters, the last one half used."""
    m, k, n = shape
    rng = np.random.default_rng(k)
    a, b = (fp.Context(HALF).array(rng.standard_normal(s) * 2).values for s in ((m, k), (k, n)))
    check(a, b, fused)


@FUSED
@pytest.mark.parametrize("sign", [1, -1])
def test_tails_around_every_binade(sign, fused):
    """Sums just below powers of two go up into the next binade, or stay; tiny accumulators."""
    tops = [2 - 2.0**-10, 1.0, 1 + 2.0**-10, 0.5 - 2.0**-12, 4 - 2.0**-9]
    rests = [2.0**-11, 2.0**-12, 3 * 2.0**-13, 2.0**-23, -(2.0**-12), -(2.0**-24), 2.0**-10]
    a = np.float32([[t * sign, r * sign] for t in tops for r in rests])
    check(a, np.float32([[1.0] * 16, [1.0, 0.5] * 8]), fused)
    check(a[:, ::-1], np.float32([[1.0] * 16, [1.0, 1023 / 1024] * 8]), fused)


@FUSED
@pytest.mark.parametrize("sign", [1, -1])
def test_subnormal_products_look_at_more_digits(sign, fused):
    """Products in all subnormal binades and below the smallest one, with tails of many digits."""
    x = [(1 + n / 1024) * 2.0**e for e in range(-13, -6) for n in (0, 1, 511, 1023)]
    y = [s * (1 + n / 1024) * 2.0**e for e in (-6, -9, -12, -14) for n in (0, 1) for s in (1, -1)]
    check(np.float32(x)[:, None] * sign, np.float32(y)[None], fused)


def factors(n):
    """Two numbers of at most eleven digits with this product, or None."""
    return next(((u, n // u) for u in range(1, 2048) if n % u == 0 and n // u < 2048), None)


@FUSED
@pytest.mark.parametrize("down", [0, 1])
def test_the_last_of_sixteen_digits_decides_a_subnormal(down, fused):
    """Output (i, i) is (m + w) 2**-24; w and its R just carry, or lack one of 2**-16.

    Three binades below the smallest normal number and further down, 16 digits are looked at; with
    13 of them no w + R that is exactly one would carry.
    """
    n = 40
    pairs, first = [], []
    for i in range(n):
        word = product_word(SEED, NUMBER, i * n + i, 0, 16) >> 16
        m, pair = next(
            (m, pair) for m in range(1, 256) if (pair := factors((m + 1 << 16) - word - down))
        )
        pairs.append(pair)
        first.append(m)
    a, b = np.float32(pairs).T * np.float32(2.0**-20)
    codes, _ = run(a[:, None], b[None], fused)
    assert np.diagonal(codes).tolist() == [m + 1 - down for m in first]
    check(a[:, None], b[None], fused)


@FUSED
def test_exact_results_are_the_same_for_all_words(fused):
    """Of the least subnormal number, and with all eleven digits."""
    a = np.float32([[2.0**-24, 0.0, -0.0], [1.0, 1024.0, 1.0]])
    b = np.float32([[2.0], [1.0], [1.0]]).repeat(64, axis=1)
    codes, raised = run(a, b, fused)
    assert [set(row) for row in codes.tolist()] == [{2}, {int(np.float16(1027).view(np.uint16))}]
    assert raised == 0


@FUSED
@pytest.mark.parametrize("sign", [1, -1])
def test_a_result_overflows_where_its_word_takes_it_up(sign, fused):
    """65504 + 31 is one of 32 units below the next power of two, where infinity begins."""
    a = np.float32([[65504.0, 31.0]]) * np.float32(sign)
    b = np.ones((2, 96), np.float32)
    check(a, b, fused)
    codes, raised = run(a, b, fused)
    infinity = 0x7C00 | (sign < 0) << 15
    assert set(codes.ravel().tolist()) == {infinity, infinity - 1}
    assert raised == int(Flags.OVERFLOW | Flags.INEXACT)


@FUSED
def test_rows_of_a_part_have_the_numbers_of_the_whole(fused):
    rng = np.random.default_rng(1)
    a, b = (fp.Context(HALF).array(rng.standard_normal(s)).values for s in ((9, 4), (4, 5)))
    product = measure(mac_rules(Settings(HALF, IPU), fused), a, b)
    call = random_call(product, find_lane(product), Bits(SEED, NUMBER))
    whole, parts = np.zeros((9, 5), np.float32), np.zeros((9, 5), np.float32)
    call(whole, 0, 9, watched=0)
    for first, last in ((0, 4), (4, 5), (5, 9)):
        call(parts, first, last, watched=0)
    assert np.array_equal(whole, parts)


def test_the_kernel_is_the_one_that_contexts_use(monkeypatch):
    taken = []

    def spy(*arguments):
        taken.append(run_macs(*arguments) is not None)
        return run_macs(*arguments)

    monkeypatch.setattr(dispatch, "run_macs", spy)
    context = fp.Context(HALF, rounding=IPU, seed=SEED)
    context.array([[1.0]]) @ context.array([[1.0]])
    assert taken == [True]
