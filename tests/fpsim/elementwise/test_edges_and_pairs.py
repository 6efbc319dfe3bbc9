"""Formats at the edge of a carrier, and pairs of policies on special operands (differential).

A format whose subnormals lie below the smallest normal number of binary32, but whose own smallest
normal does not, cannot leave its subnormals to lanes of 32 bits.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from fpsim.elementwise.constants import exact_width
from fpsim.records.formats import BINARY16, BINARY32, E4M3FN, E5M2, F143, Format
from fpsim.records.rounding import RNA, RNE, RTN, RTO, RTP, SR, Rounding
from fpsim.records.settings import Settings
from tests.fpsim.elementwise.test_apply import check, settings_of
from tests.tiers import pick, reaches

ALL: list[Rounding] = [RNE, RNA, RTN, RTO, SR(5, subnormal_bits=7)]
EDGES = [
    Format.custom(7, 8, bias=126, name="emin -125, quantum 2^-132"),
    Format.custom(7, 8, bias=121, name="emin -120, quantum 2^-127"),
    Format.custom(7, 3, bias=125, name="emin -124, quantum 2^-126"),
    Format.custom(8, 8, bias=128, name="emin -127, quantum 2^-134"),
    Format.custom(8, 12, name="emin -126, quantum 2^-137"),
]
MODES: list[Rounding] = pick([RNE, SR(5, subnormal_bits=7)], ALL, ALL)


def small_codes(fmt: Format, n: int) -> list[int]:
    """Zeros, subnormals, the smallest normals and their neighbours, of both signs."""
    first = 1 << (fmt.precision - 1)
    rng = np.random.default_rng(7)
    body = [0, 1, 2, 3, first - 1, first, first + 1, 2 * first - 1, 2 * first]
    body += rng.integers(0, 4 * first, n).tolist()
    return [b | sign << (fmt.bits - 1) for b in body for sign in (0, 1)]


def test_the_edges_are_edges():
    """Lanes of 32 bits serve a quantum of 2^-126 and the format of binary32's own range only."""
    widths = [exact_width("convert", Settings(fmt), fmt.carrier.itemsize) for fmt in EDGES]
    assert widths == [64, 64, 32, 64, 32]
    assert exact_width("convert", Settings(EDGES[2], SR(1)), 4) == 64


@pytest.mark.parametrize("rounding", MODES, ids=repr)
@pytest.mark.parametrize("fmt", EDGES, ids=str)
def test_conversions_into_subnormals(fmt, rounding):
    rng = np.random.default_rng(3)
    exponents = np.arange(fmt.emin - fmt.precision - 1, fmt.emin + 2)
    middles = [1.0, 1.5, 1.25, 1.75, 1 + 2.0**-20, 1.5 - 2.0**-20, *rng.uniform(1, 2, 4)]
    x = np.ldexp(np.array(middles)[:, None], exponents).ravel().astype(np.float32)
    codes = np.concatenate([x, -x]).view(np.uint32).tolist()
    policies = [{}, {"tininess": "before"}, {"subnormals": "flush_results"}]
    for policy in policies if reaches("full") or rounding == RNE else policies[:1]:
        check("convert", [(c,) for c in codes], Settings(fmt, rounding, **policy), BINARY32)


@pytest.mark.parametrize("rounding", [RNE, RTP], ids=repr)
@pytest.mark.parametrize(("quantum", "width"), [(104, 32), (105, 64)])
def test_conversions_into_subnormals_that_are_large(quantum, width, rounding):
    """Lanes of 32 bits end where 1.5 * 2^23 quanta, which small magnitudes meet, would overflow."""
    fmt = Format.custom(2, 3, bias=-1 - quantum)
    assert exact_width("convert", Settings(fmt, rounding), 4) == width
    x = np.float32(np.ldexp(np.arange(72), quantum - 3)).view(np.uint32).tolist()
    codes = [c + step for c in x[1:] for step in (-1, 0, 1)]
    rows = [(c | sign,) for c in (0, 1, *codes) for sign in (0, 1 << 31)]
    check("convert", rows, Settings(fmt, rounding), BINARY32)


@pytest.mark.parametrize("rounding", [RNE, RTP, RTO, SR(13)], ids=repr)
@pytest.mark.parametrize("overflow", ["infinity", "saturate"])
def test_what_overflows_beside_what_is_no_number(rounding, overflow):
    """Lanes of one vector: a conversion asks for infinities and NaN after it has seen overflow."""
    rng = np.random.default_rng(11)
    x = [np.inf, -np.inf, np.nan, 57344.0, 61439.9, -61440.0, 65535.9, -1e30, 1.0, 2.0**-16, 1e-30]
    codes = [*np.float32(x).view(np.uint32).tolist(), 0x7F800001, 0xFF80F00F]
    rows = [(int(c),) for c in rng.choice(codes, 400)]
    check("convert", rows, Settings(E5M2, rounding, overflow=overflow), BINARY32)


@pytest.mark.parametrize("bits", [1, 5, 8])
def test_zero_stays_zero_with_any_random_digits(bits):
    """Where the quantum is the smallest normal number of binary32 SR once made it of zero."""
    for quantum in (-126, -125, -126 + bits - 1, -126 + bits):
        fmt = Format.custom(7, 3, bias=-1 - quantum)
        zero, s = [(0, 0)] * 64, Settings(fmt, SR(bits))
        assert fmt.emin - fmt.precision + 1 == quantum
        check("add", zero, s)
        tiny = np.array([2.0**-149, 2.0**-127, 2.0**-128 * 3, 0.0], np.float32).view(np.uint32)
        check("convert", [(int(c),) for c in np.repeat(tiny, 32)], s, BINARY32)


@pytest.mark.parametrize("rounding", MODES, ids=repr)
@pytest.mark.parametrize("fmt", EDGES, ids=str)
def test_sums_and_products_of_subnormals(fmt, rounding):
    small = small_codes(fmt, pick(2, 60, 200))
    pairs = list(product(small[::3], small))
    s = Settings(fmt, rounding)
    check("add", pairs, s)
    if rounding != RNE and not reaches("full"):
        return  # additions have every mode of the quick tier
    # Products that come to lie among the subnormals: a factor near 2**emin, one near 1.
    bias, unit = fmt.bias, 1 << (fmt.precision - 1)
    near_one = [(bias + e) * unit + m for e in (-3, -2, -1, 0) for m in (0, 1, unit // 2, unit - 1)]
    check("multiply", list(product(small[::2], near_one)), s)
    check("divide", list(product(small[::2], near_one)), s)
    check("fma", [(x, y, z) for x, y in product(small[::7], near_one[:6]) for z in small[::5]], s)


POLICIES = {
    "nan": ["canonical", "propagate_first", "x86"],
    "divide_by_zero": ["infinity", "nan"],
    "overflow": ["infinity", "saturate", "nan"],
    "infinite_input": ["keep", "saturate", "nan"],
    "quiet_nan_raises": [False, True],
}


def specials(fmt: Format) -> list[int]:
    """Zeros, ones, the largest and smallest numbers, infinities, NaN of all kinds, both signs."""
    top, fraction = (1 << (fmt.bits - 1)) - 1, (1 << (fmt.precision - 1)) - 1
    body = {0, 1, fmt.bias << (fmt.precision - 1), top, top - 1, top - fraction, top - fraction - 1}
    if fmt.specials == "ieee":
        quiet = (fraction + 1) >> 1
        body |= {top - fraction + 1, top - fraction + quiet, top - fraction + quiet + 1}
    return [b | sign << (fmt.bits - 1) for b in sorted(body) for sign in (0, 1)]


@pytest.mark.parametrize(
    "fmt", pick([BINARY16, E4M3FN], *[[BINARY16, E5M2, E4M3FN, F143]] * 2), ids=str
)
def test_pairs_of_policies_on_special_operands(fmt):
    codes = specials(fmt)
    pairs, triples = list(product(codes, codes)), list(product(codes[::3], codes[::2], codes[::3]))
    names = list(POLICIES)
    n_asked = 0
    for i, first in enumerate(names):
        for second in names[i + 1 :]:
            for a, b in product(POLICIES[first], POLICIES[second]):
                if {"infinity", "keep"} & {a, b} and not fmt.has_infinity:
                    if "divide_by_zero" not in (first, second) or "keep" in (a, b):
                        continue
                    if "overflow" in (first, second):
                        continue
                s = settings_of(fmt, RNE, {first: a, second: b})
                if s is None:
                    continue
                n_asked += 1
                for operation in ("divide", "multiply"):
                    check(operation, pairs, s)
                check("convert", [(c,) for c in specials(BINARY16)], s, BINARY16)
                if n_asked % 4 == 0:
                    check("fma", triples, s)
                    check("sqrt", [(c,) for c in codes], s)
    assert n_asked >= 15
