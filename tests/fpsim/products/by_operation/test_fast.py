"""Fast kernels of products rounded per operation: bit for bit and flag for flag what the general
kernel gives, over all ranges of data (law, differential); binary32 against numpy.
"""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import fpsim as fp
from fpsim.elementwise.codes import to_codes
from fpsim.kernels.status_register import TININESS
from fpsim.kernels.target import HAS_HALF
from fpsim.linalg import rounded_matmul
from fpsim.products.by_operation import bounds as mac_range
from fpsim.products.by_operation import dispatch, fast
from fpsim.products.by_operation.bounds import measure
from fpsim.products.by_operation.fast import run_macs
from fpsim.products.by_operation.rules import mac_rules
from fpsim.records.flags import Flags
from fpsim.records.settings import Settings
from tests.fpsim.kernels.needs import needs_halves
from tests.tiers import pick

WIDE = fp.Format.custom(9, 26, name="wide")
IPU = fp.SR(13, subnormal_bits=16)
DIRECTED = (fp.RTZ, fp.RTP, fp.RTN, fp.RAZ, fp.RTO)

#: Format, rounding, policies: compiled once each, so the quick tier takes those that differ most.
EVERY = [
    *((f, m, {}) for f in (fp.BINARY16, fp.BFLOAT16, fp.E4M3FN, fp.F143, fp.E2M1FN, WIDE)
      for m in (fp.RNE, fp.RNA, fp.RNZ, *DIRECTED, fp.SR(4), fp.SR(16), fp.SR(20), IPU)
      if f != WIDE or m != IPU),
    *((fp.BINARY16, m, {"overflow": "saturate"}) for m in (fp.RNE, fp.RTN, IPU)),
    *((fp.BINARY16, m, {"overflow": "nan"}) for m in (fp.RNE, fp.RTP, fp.SR(16))),
    (fp.TF32, fp.RNE, {"tininess": "before"}),
    *((fp.BINARY32, m, {}) for m in (fp.RNE, fp.RNA, *DIRECTED, fp.SR(), fp.SR(8))),
    (fp.BINARY32, fp.RNE, {"overflow": "saturate"}),
]
CASES = pick(
    [(fp.BINARY16, fp.RNE, {}), (fp.BINARY16, IPU, {})],
    # Every mode and policy in one format; the others to nearest, one directed, one at random.
    [case for case in EVERY if case[0] == fp.BINARY16 or case[1] in (fp.RNE, fp.RTN, fp.SR(20))],
    EVERY,
)


@pytest.fixture(autouse=True)
def _without_halves(monkeypatch):
    """Lanes of 32 bits are what is tested, also where the processor has numbers of 16 bits."""
    monkeypatch.setattr(fast, "HAS_HALF", False)


SHAPES = ((1, 1, 1), (9, 17, 40), (23, 130, 35))


def is_taken(fmt, rounding, fused):
    """Moving off the middle does not work for sums to odd."""
    return not (fused and rounding in (fp.RNA, fp.RNZ)) and (fmt != WIDE or rounding in DIRECTED)


DATA = {
    "normal": lambda x, rng: x,
    "tiny": lambda x, rng: x * 2.0**-10,
    "wide": lambda x, rng: np.sign(x) * 2.0 ** rng.uniform(-26, 8, x.shape),
    "zeros": lambda x, rng: x * (rng.random(x.shape) < 0.3),
    "whole": lambda x, rng: np.round(x),
    "ties": lambda x, rng: np.round(x * 2) * 2.0 ** rng.integers(-8, 2, x.shape),
    "large": lambda x, rng: x * 300,
}


def operands(fmt, shape, change, rng):
    m, k, n = shape
    context = fp.Context(fmt, overflow="saturate")
    return (context.array(change(rng.standard_normal(s), rng)) for s in ((m, k), (k, n)))


def both(a, b, fused, monkeypatch, **choices):
    """Codes and flags by the fast kernels and by the general one; whether there was a fast one."""
    results, taken = [], []

    def watched(*arguments):
        result = run_macs(*arguments)
        taken.append(result is not None)
        return result

    for run in (watched, lambda *_: None):
        with monkeypatch.context() as patch:
            patch.setattr(dispatch, "run_macs", run)
            context = fp.Context(a.format, **choices)
            got = rounded_matmul(a, b, context=context, fused=fused)
            results.append((to_codes(got.values, a.format).tolist(), context.flags))
    return *results, any(taken)


@pytest.mark.parametrize("fused", pick([False], *[[False, True]] * 2))
@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c[0]} {c[1]!r} {c[2]}")
def test_fast_kernels_give_what_the_general_one_gives(case, fused, monkeypatch):
    fmt, rounding, choices = case
    rng = np.random.default_rng(7)
    for change in DATA.values():
        for shape in SHAPES:
            a, b = operands(fmt, shape, change, rng)
            mine, reference, taken = both(
                a, b, fused, monkeypatch, rounding=rounding, seed=5, **choices
            )
            assert mine == reference
            assert taken or not is_taken(fmt, rounding, fused)


@pytest.mark.parametrize(
    "rounding", pick([fp.RNE, IPU], *[[fp.RNE, fp.RTP, IPU, fp.SR(16), fp.SR(20)]] * 2)
)
def test_flags_are_equal_on_data_of_any_range(rounding, monkeypatch):
    rng = np.random.default_rng(11)
    flag_sets = set()
    for _ in range(pick(60, 600, 6000)):
        scale, spread = rng.integers(-16, 12, 2), rng.choice([0, 0, 2, 6], 2)

        def change(x, rng, scale=scale, spread=spread):
            x = x if rng.random() < 0.5 else np.round(x)  # exact products and sums, too
            return x * 2.0 ** (scale[0] + rng.integers(-spread[0] - 1, spread[0] + 1, x.shape))

        a, b = operands(fp.BINARY16, (21, 5, 18), change, rng)
        mine, reference, _ = both(a, b, False, monkeypatch, rounding=rounding)
        assert mine == reference
        flag_sets.add(mine[1])
    assert flag_sets >= {fp.Flags.NONE, fp.Flags.INEXACT, fp.Flags(3), fp.Flags(5)}


@pytest.mark.parametrize(
    ("value", "flag"),
    [(2.0**-9, fp.Flags.NONE), (2.0**-14 * 1.5, fp.Flags.UNDERFLOW), (300.0, fp.Flags.OVERFLOW)],
)
def test_a_flag_of_the_last_row_alone_is_seen(value, flag):
    half = fp.Context(fp.BINARY16)
    x = np.ones((70, 3))
    x[-1, -1] = value
    factor = {fp.Flags.UNDERFLOW: 2.0**-9 * 1.5, fp.Flags.OVERFLOW: 300.0}.get(flag, 1.0)
    half.matmul(half.array(x), half.array([[1.0], [1.0], [factor]]))
    assert half.flags & flag == flag
    assert bool(half.flags) == bool(flag)


@pytest.mark.parametrize("terms", [(2.0**-14, 2048.0), (2048.0, 2.0**-14)])
@pytest.mark.parametrize("rounding", [fp.RNE, IPU], ids=repr)
def test_what_the_processor_itself_loses_is_inexact(terms, rounding):
    half = fp.Context(fp.BINARY16, rounding=rounding)
    half.matmul(half.array([terms]), half.array([[1.0], [1.0]]))
    assert half.flags == fp.Flags.INEXACT


def test_flags_of_infinities_that_meet():
    half = fp.Context(fp.BINARY16)
    a = half.array([[300.0, 300.0]])
    half.matmul(a, half.array([[300.0], [-300.0]]))
    assert half.flags == fp.Flags.INVALID | fp.Flags.OVERFLOW | fp.Flags.INEXACT


def test_rows_and_columns_with_infinities_or_nan_go_their_own_way(monkeypatch):
    rng = np.random.default_rng(3)
    for rounding in (fp.RNE, IPU):
        a, b = operands(fp.BINARY16, (30, 9, 41), DATA["normal"], rng)
        a.carrier[4, 2], a.carrier[20, 0], b.carrier[3, 17] = np.inf, np.nan, -np.inf
        mine, reference, taken = both(a, b, False, monkeypatch, rounding=rounding)
        assert mine == reference
        assert taken


def test_without_the_guard_an_overflowing_sum_would_be_wrong(monkeypatch):
    half = fp.Context(fp.BINARY16)
    a, b = half.array(np.full((4, 3), 256.0)), half.array([[200.0], [200.0], [-200.0]])
    assert np.isinf(rounded_matmul(a, b).values).all()

    def unguarded(*arguments):
        product = measure(*arguments)
        product.checked = False
        return product

    monkeypatch.setattr(fast, "measure", unguarded)
    assert np.isfinite(rounded_matmul(a, b).values).all()


def test_the_bounds_hold_what_they_say():
    rng = np.random.default_rng(5)
    for change in DATA.values():
        a, b = (x.values for x in operands(fp.BINARY16, (6, 20, 7), change, rng))
        product = measure(mac_rules(Settings(fp.BINARY16), False), a, b)
        all_products = np.abs(a[:, :, None].astype(float) * b[None]).ravel()
        positive = all_products[all_products > 0]
        assert product.least == positive.min()
        assert product.largest >= positive.max()
        assert not (positive / product.last < 1).any()
        assert product.most >= np.abs(a.astype(float) @ b).max()


def test_the_bound_holds_what_roundings_add():
    away = fp.Context(fp.BINARY16, rounding=fp.RAZ)
    a, b = away.array(np.full((1, 4096), 1 + 2.0**-10)), away.array(np.ones((4096, 1)))
    result = float(rounded_matmul(a, b).values[0, 0])
    assert result > 8000
    assert measure(mac_rules(away.core.settings, False), a.values, b.values).most >= result


def test_numbers_out_of_the_narrow_lanes_take_the_wide_ones():
    for scale, width in ((1.0, 32), (2.0**-60, 64), (2.0**60, 64)):
        x = np.full((2, 2), scale, np.float32)
        product = measure(mac_rules(Settings(fp.BFLOAT16), False), x, x)
        assert mac_range.find_lane(product).width == width


@pytest.mark.parametrize("fused", [False, True])
def test_binary32_is_what_the_processor_computes(fused):
    rng = np.random.default_rng(2)
    a, b = (rng.standard_normal(s).astype(np.float32) for s in ((11, 50), (50, 37)))
    context = fp.Context(fp.BINARY32)
    got = rounded_matmul(context.array(a), context.array(b), fused=fused).values
    wanted = np.zeros((11, 37), np.float32)
    for k in range(50):
        products = np.multiply.outer(a[:, k].astype(float), b[k].astype(float))
        if fused:
            wanted = (wanted + products).astype(np.float32)  # no middle in sight of 53 digits
        else:
            wanted = wanted + products.astype(np.float32)
    np.testing.assert_array_equal(got, wanted)
    assert context.flags == fp.Flags.INEXACT
    special = context.array([[np.inf, 1.0]]), context.array([[0.0], [1.0]])
    assert np.isnan(rounded_matmul(*special, context=context).values).all()
    assert context.flags == fp.Flags.INEXACT | fp.Flags.INVALID


DIRECTION = """
import numpy as np, fpsim as fp
one, bit = np.float32(1), np.float32(2.0**-24)
for rounding in (fp.RTP, fp.RTN, fp.RTZ, fp.SR(8)):
    context = fp.Context(fp.BINARY16, rounding=rounding)
    context.matmul(context.array([[1.0]]), context.array([[1.0]]))
    assert one + bit == 1 and one + bit * 3 == np.float32(1 + 2.0**-22), rounding
"""


@pytest.mark.tier("full")
@pytest.mark.skipif(not HAS_HALF, reason="the processor has no numbers of 16 bits")
@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize(
    "rounding", pick((fp.RNE, fp.RTN), *[(fp.RNE, fp.RTZ, fp.RTP, fp.RTN)] * 2), ids=repr
)
def test_the_numbers_of_the_processor_are_binary16(rounding, fused, monkeypatch):
    """Its own binary16 gives the values and flags of the lanes of 32 bits on every kind of data."""
    rng = np.random.default_rng(3)
    settings = fp.Context(fp.BINARY16, rounding=rounding).core.settings
    raised = Flags.NONE
    for change in DATA.values():
        for shape in (*SHAPES, (5, 40, 130)):
            a, b = (x.values for x in operands(fp.BINARY16, shape, change, rng))
            outcomes = []
            for has in (False, True):
                monkeypatch.setattr(fast, "HAS_HALF", has)
                values, flags = run_macs(settings, fused, a, b, None, 0)
                outcomes.append((to_codes(values, fp.BINARY16).tolist(), Flags(flags)))
                raised |= Flags(flags)
            assert outcomes[0] == outcomes[1]
    assert raised >= Flags.INEXACT | Flags.UNDERFLOW | Flags.OVERFLOW


@needs_halves
def test_binary16_of_the_processor_is_numpys(monkeypatch):
    """Where it has none the compiler gives the values, through binary32: the kernel is built."""
    monkeypatch.setattr(fast, "HAS_HALF", True)
    codes = np.random.default_rng(4).integers(0, 1 << 16, (2, 70, 70), np.uint16)
    a, b = codes.view(np.float16)
    a, b = (np.where(np.isfinite(x), x, np.float16(0)) for x in (a, b))
    with np.errstate(all="ignore"):
        wanted = a[:, :1] * b[0]
        for k in range(1, len(b)):
            wanted = wanted + a[:, k, None] * b[k]
    settings, wide = Settings(fp.BINARY16), (a.astype(np.float32), b.astype(np.float32))
    values, _ = run_macs(settings, False, *wide, None, 0)
    canonical = np.where(np.isnan(wanted), np.float16(np.nan), wanted)
    assert to_codes(values, fp.BINARY16).tolist() == canonical.view(np.uint16).tolist()
    assert np.isinf(wanted).any()
    assert np.isnan(wanted).any()


@pytest.mark.parametrize("fused", [False, True])
def test_what_is_tiny_before_rounding_alone_is_no_underflow_after_it(fused):
    """(1 - 2**-13) (1 + 2**-13) 2**-126 becomes 2**-126, whenever the processor looks."""
    codes = np.array([[1 - 2.0**-13], [1 + 2.0**-13]], np.float32) * np.float32(2.0**-63)
    flags = {}
    for tininess in ("before", "after"):
        context = fp.Context(fp.BINARY32, tininess=tininess)
        product = rounded_matmul(
            context.wrap(codes[:1]), context.wrap(codes[1:]), context=context, fused=fused
        )
        assert product.values.tolist() == [[2.0**-126]]
        flags[tininess] = context.flags
    assert flags == {"before": Flags.INEXACT | Flags.UNDERFLOW, "after": Flags.INEXACT}


@pytest.mark.parametrize("fused", [False, True])
def test_an_underflow_that_the_processor_is_not_sure_of_is_looked_for_in_lanes(fused, monkeypatch):
    rng, outcomes = np.random.default_rng(6), []
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((9, 17), (17, 40)))
    b *= np.float32(2.0**-126)
    for certain in (True, False):
        settings = Settings(fp.BINARY32, tininess=TININESS)
        monkeypatch.setattr(mac_rules(settings, fused), "certain_tiny", certain)
        values, flags = run_macs(settings, fused, a, b, None, 0)
        outcomes.append((to_codes(values, fp.BINARY32).tolist(), Flags(flags)))
    assert outcomes[0] == outcomes[1]
    assert outcomes[0][1] == Flags.INEXACT | Flags.UNDERFLOW


def test_the_processor_keeps_its_direction():
    subprocess.run([sys.executable, "-c", DIRECTION], check=True)
