"""Matrix units against the oracle; the catalogue; published probes (differential, golden)."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

import fpsim as fp
import ipu.machine.units.amp
from fpsim.elementwise.codes import from_codes, to_codes
from fpsim.judge.oracle.random import product_word
from fpsim.judge.oracle.rounding import canonical_nan, encode, infinity
from fpsim.judge.oracle.units import Ask, one_output
from fpsim.products.by_unit import dispatch as engines
from fpsim.records.evidence import Evidence
from fpsim.records.rounding import RNE
from fpsim.records.units import UNITS, MatrixUnit, find_unit, register
from fpsim.state.bits import Replay
from fpsim.state.counts import Counts
from tests.fpsim.in_partials import matmul
from tests.tiers import pick, reaches

ROWS = pick(24, 1_700, 10_000)
DATA = ("normal", "wide", "cancelling", "subnormal", "overflowing", "special")
#: One of each kind of record, whose kernels later tests run; the full tier takes all of them.
SOME = [
    "AMP_F16_F32", "AMP_F16_F32.sticky", "AMP_F16_F32.exact", "AMP_F16_F32.sequential_f32",
    "AMP_F16_F16", "AMP_F32_F32", "AMP_F8_F16", "V100_F16_F32", "V100_F16_F16", "ADA_E4M3_F32",
    "VMAC_F16_F16",
]


def operand(kind, shape, fmt, rng):
    """Values of a format that are hard in one way."""
    codes = rng.integers(0, fmt.n_codes, shape).astype(fmt.code_dtype)
    anything = from_codes(codes, fmt)
    x = rng.standard_normal(shape)
    if kind == "wide":
        x = np.where(np.isfinite(anything), anything, 0)
    elif kind == "cancelling":
        x = np.round(x * 2) * 2.0 ** rng.integers(-6, 6, shape)
    elif kind == "subnormal":
        x = x * fmt.smallest_normal
    elif kind == "overflowing":
        x = x * fmt.max / 4
    values = fp.Context(fmt, overflow="saturate").array(x).carrier
    return np.where(rng.random(shape) < 0.1, anything, values) if kind == "special" else values


def operands(kind, unit, rows, k, rng):
    """Contexts' arrays (rows, 1, K), (rows, K, 1) and accumulators (rows, 1, 1)."""
    a_format, b_format = unit.inputs[0], unit.inputs[-1]
    a = operand(kind, (rows, 1, k), a_format, rng)
    b = operand(kind, (rows, k, 1), b_format, rng)
    if kind == "cancelling" and k > 1:
        a[:, :, 1::2], b[:, 1::2] = -a[:, :, : k - k % 2 : 2], b[:, : k - k % 2 : 2]
    c = operand(kind, (rows, 1, 1), unit.partials, rng)
    c[rng.random(c.shape) < 0.4] = 0
    arrays = ((a, a_format), (b, b_format), (c, unit.partials))
    return [fp.Array(x.astype(f.carrier), fp.Context(f)) for x, f in arrays]


def number(datum, fmt):
    """Code of the oracle's answer."""
    if datum.kind == "nan":
        return canonical_nan(fmt)
    return infinity(datum.sign, fmt) if datum.kind == "infinite" else encode(*datum[1:3], fmt)


def check(unit, a, b, c, context, **choices):
    """A product's values and how many raised each flag, against the oracle."""
    before, context.core.counts = context.operation, Counts()
    got = matmul(a, b, unit, context=context, accumulator=c, **choices)
    if context.format == fp.BINARY32:
        choices = {"subnormals": context.core.settings.subnormals} | choices
    ask = Ask(unit, a.format, b.format, context.core.settings, **choices)
    r = context.core.settings.random_most
    raised = Counter()
    x, y, z, d = (to_codes(v.values, v.format) for v in (a, b, c, got))
    for i in range(len(x)):

        def draw(place, i=i):
            return product_word(context.core.seed, before, i, place, r) if r else 0

        want, flags = one_output(
            ask, [int(v) for v in x[i, 0]], [int(v) for v in y[i, :, 0]], int(z[i, 0, 0]), draw
        )
        raised.update(flags)
        wanted = number(want, got.format)
        assert int(d[i, 0, 0]) == wanted, (i, hex(int(d[i, 0, 0])), hex(wanted))
    counted = {flag.name: raised[flag] for flag in fp.Flags}
    assert counted.items() <= context.counts["", "matmul"].items()
    assert set(context.flags) == set(raised)


@pytest.mark.parametrize("name", pick(SOME, list(UNITS), list(UNITS)))
@pytest.mark.parametrize("kind", DATA)
def test_units_agree_with_the_oracle(name, kind):
    rng = np.random.default_rng([DATA.index(kind), list(UNITS).index(name)])
    unit = find_unit(name)
    for k in (unit.channels, unit.channels + 3, 1):
        a, b, c = operands(kind, unit, ROWS // 3, k, rng)
        check(unit, a, b, c, fp.Context(unit.partials))


#: Units with policies, and roundings, each with a kernel: the quick tier has one of each.
HALVES = [
    (name, overflow)
    for overflow in ("saturate", "infinity", "nan")
    for name in ("AMP_F16_F16", "AMP_F16_F16.exact", "AMP_F8_F16", "VMAC_F16_F16")
]
STORES = ["RTZ", fp.SR(13, subnormal_bits=16), fp.SR(20)]


@pytest.mark.parametrize("kind", DATA)
@pytest.mark.parametrize(("name", "overflow"), pick(HALVES[:1], HALVES, HALVES))
def test_half_partials_are_rounded_by_the_context(name, overflow, kind):
    rng = np.random.default_rng([DATA.index(kind), len(overflow)])
    unit = find_unit(name)
    for rounding in pick(STORES[1:2], STORES, STORES):
        a, b, c = operands(kind, unit, ROWS // 6, 9 * unit.channels, rng)
        context = fp.Context(fp.BINARY16, rounding=rounding, overflow=overflow, seed=7)
        check(unit, a, b, c, context)
        assert context.operation == int(context.rounding.stochastic)


@pytest.mark.parametrize("kind", DATA)
def test_the_last_rounding_has_the_place_after_the_stores(kind):
    rng = np.random.default_rng(DATA.index(kind))
    a, b, c = operands(kind, find_unit("AMP_F16_F32"), ROWS // 2, 40, rng)
    context = fp.Context(fp.BINARY16, rounding=fp.SR(8), overflow="saturate", seed=1 << 40)
    check(find_unit("AMP_F16_F32"), a, b, c, context)


@pytest.mark.parametrize("engine", ["fast", "general"])
def test_presets_differ_where_digits_are_cut_off(engine, general_only):
    """1 + 2**-24 is a tie; what lies below the window decides it, or is not seen."""
    general_only(engine == "general")
    terms = [1.0, 2.0**-12, 2.0**-20], [1.0, 2.0**-12, 2.0**-20]
    results = [probe(f"AMP_F16_F32.{p}", *terms) for p in ipu.machine.units.amp.PRESETS]
    assert results == [1.0, 1 + 2.0**-23, 1 + 2.0**-23, 1.0]


@pytest.mark.parametrize("engine", ["fast", "general"])
def test_a_sum_of_zero_is_positive_also_after_an_underflow(engine, general_only):
    general_only(engine == "general")
    tiny = 2.0**-100
    zero = probe("AMP_F32_F32", [-tiny] + [0.0] * 7, [tiny] + [-1.0] * 7)
    assert zero == 0
    assert not np.signbit(zero)
    underflow = probe("AMP_F32_F32", [0.0] * 7 + [-tiny], [-1.0] * 7 + [tiny])
    assert underflow == 0
    assert np.signbit(underflow)
    for unit in ("AMP_F16_F32", "AMP_F16_F32.exact", "AMP_F16_F16", "V100_F16_F32", "V100_F16_F16"):
        assert not np.signbit(probe(unit, [0.0] * 16, [-1.0] * 16, -0.0))


@pytest.mark.parametrize("kind", DATA)
@pytest.mark.parametrize("subnormals", ["flush_results", "flush_both"])
@pytest.mark.parametrize(
    "name", pick(["AMP_F32_F32"], *[["AMP_F32_F32", "AMP_BF16_F32", "AMP_F16_F32"]] * 2)
)
def test_binary32_subnormals_are_flushed_on_request(name, subnormals, kind):
    rng = np.random.default_rng(DATA.index(kind))
    unit = find_unit(name)
    a, b, c = operands(kind, unit, ROWS // 2, 2 * unit.channels, rng)
    check(unit, a, b, c, fp.Context(fp.BINARY32), subnormals=subnormals)
    tiny = fp.Context(fp.BINARY32).array(np.full((1, 1, 1), 2.0**-127))
    one, zero = (fp.Context(unit.inputs[0]).array(np.full((1, 1, 1), v)) for v in (1.0, 0.0))
    check(unit, one, zero, tiny, fp.Context(fp.BINARY32, subnormals=subnormals))


@pytest.mark.parametrize("scale", [-63, -5, 7, 62])
def test_metadata_scales_shift_the_products(scale):
    rng = np.random.default_rng(scale + 100)
    unit = find_unit("AMP_F8_F16")
    for kind in ("normal", "wide"):
        a, b, c = operands(kind, unit, ROWS // 2, 40, rng)
        check(unit, a, b, c, fp.Context(fp.BINARY16), scale=scale)


#: The last two have kernels of their own.
CHANGES = ["window up", "window down", "cut", "rounding", "terms"]


@pytest.mark.parametrize("change", pick(CHANGES[:3], CHANGES, CHANGES))
def test_a_changed_constant_shows(change):
    """The tests above would see a window one bit off, another order or another rounding."""
    unit = find_unit("AMP_F16_F32")
    changed = {
        "window up": replace(unit, window=32),
        "window down": replace(unit, window=30),
        "rounding": replace(unit, rounding=fp.RTZ),
        "cut": replace(unit, cut="sticky"),
        "terms": replace(unit, terms=2, calls=8),
    }[change]
    rng = np.random.default_rng(5)
    half = fp.Context(fp.BINARY16)
    a = half.array(rng.choice([-1, 1], (300, 64)) * 2.0 ** rng.uniform(-14, 10, (300, 64)))
    b = half.array(rng.choice([-1, 1], (64, 300)) * 2.0 ** rng.uniform(-14, 10, (64, 300)))
    results = [matmul(a, b, u, context=fp.Context(fp.BINARY32)).values for u in (unit, changed)]
    assert (results[0] != results[1]).any()


# Every engine ---------------------------------------------------------------------------------


@pytest.fixture
def general_only(monkeypatch):
    """Products by the general kernel alone."""

    def use(general):
        monkeypatch.setattr(engines, "ENGINES", fast[-1:] if general else fast)

    fast = engines.ENGINES
    return use


FAST = [
    "AMP_F16_F32", "AMP_F16_F16", "AMP_F16_F32.exact", "AMP_F16_F16.exact", "AMP_F32_F32",
    "AMP_F8_F16", "AMP_BF16_F32.exact", "V100_F16_F32", "H100_BF16_F32", "V100_F16_F16",
    "ADA_E4M3_F32", "ADA_E5M2_F16",
]


def stores(unit):
    """Roundings of the partials; the quick tier has the random one with one unit."""
    if unit.partials != fp.BINARY16 or not (reaches("full") or unit.name == "AMP_F16_F16"):
        return [RNE]
    return [RNE, fp.SR(11)]


@pytest.mark.parametrize("kind", DATA)
@pytest.mark.parametrize("name", pick([n for n in FAST if n in SOME], FAST, FAST))
def test_fast_engines_give_what_the_general_one_gives(name, kind, general_only):
    rng = np.random.default_rng([DATA.index(kind), 77])
    unit = find_unit(name)
    for rounding in stores(unit):
        for m, k, n in ((1, 1, 1), (5, 35, 17), (9, 300, 8), (21, 64, 40)):
            a = fp.Array(operand(kind, (m, k), unit.inputs[0], rng), fp.Context(unit.inputs[0]))
            b = fp.Array(operand(kind, (k, n), unit.inputs[-1], rng), fp.Context(unit.inputs[-1]))
            results = []
            for general in (True, False):
                general_only(general)
                context = fp.Context(unit.partials, rounding=rounding, seed=3)
                values = matmul(a, b, unit, context=context).values
                results.append((to_codes(values, unit.partials).tolist(), context.flags))
            assert results[0] == results[1]


# Catalogue ------------------------------------------------------------------------------------


def test_every_constant_of_a_record_has_evidence():
    for unit in UNITS.values():
        assert {"terms", "order", "rounding"} <= unit.facts.keys(), unit.name
        assert all(fact.source for fact in unit.facts.values())
    assert find_unit("AMP_F16_F32").facts["window"].evidence is Evidence.INFERRED
    assert find_unit("V100_F16_F32").weakest_evidence is Evidence.MEASURED


def test_names_are_found_and_close_ones_offered():
    assert find_unit("amp_f16_f32.EXACT").preset == "exact"
    assert find_unit("AMP_F16_F32.window") is find_unit("AMP_F16_F32")
    with pytest.raises(ValueError, match="Did you mean 'AMP_F16_F32'"):
        find_unit("AMP_F16_F23")
    with pytest.raises(TypeError, match="not a MatrixUnit"):
        find_unit(3)


def test_a_name_is_given_once():
    with pytest.raises(ValueError, match="registered already"):
        register([replace(find_unit("V100_F16_F32"), window=22)])
    assert find_unit("V100_F16_F32").window == 23


@pytest.mark.parametrize(
    "wrong",
    [
        {"terms": 0},
        {"window": 0},
        {"cut": "jam"},
        {"order": "random"},
        {"rounding": fp.RTP},
        {"taps": 3},
        {"calls": None, "join": fp.BINARY32},
    ],
)
def test_impossible_records_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        MatrixUnit(**{
            "name": "X_F16_F32", "instruction": "none", "inputs": (fp.BINARY16,),
            "partials": fp.BINARY32, "terms": 4, "window": 23, **wrong,
        })


# Published probes -----------------------------------------------------------------------------


def probe(unit, a, b, c=0.0):
    """One row times one column plus c."""
    unit = find_unit(unit)
    x, y = (fp.Context(unit.inputs[0]).wrap(np.float32(v)) for v in ([a], [[w] for w in b]))
    z = fp.Context(unit.partials).wrap(np.float32([[c]]))
    return float(matmul(x, y, unit, context=fp.Context(unit.partials), accumulator=z).values[0, 0])


@pytest.mark.source("Fasi et al. 2021, commit 9dae3fc")
def test_probes_of_the_tensor_cores():
    tiny = 2.0**-24
    for partials in ("F32", "F16"):
        assert probe(f"V100_F16_{partials}", [tiny], [4.0]) == 2.0**-22
    assert probe("V100_F16_F32", [0.0], [0.0], 2.0**-149) == 2.0**-149
    assert probe("V100_F16_F16", [1.0, 1.0], [2.0**-14, -(2.0**-15)]) == 2.0**-15
    x = 1 - 2.0**-11
    assert probe("V100_F16_F32", [x] * 4, [x] * 4) == 4 * (1 - 2.0**-10 + 2.0**-22)
    for sign in (1, -1):
        terms = [2.0, *[2.0**-12] * 3], [sign, *[sign * 2.0**-12] * 3]
        assert probe("V100_F16_F32", *terms) == 2 * sign
    assert probe("V100_F16_F16", [2.0**-12] * 2, [2.0**-13, 2.0**-14]) == 2.0**-24
    step = [1.0], [1.0], -(1 - 2.0**-24)
    assert [probe(f"{m}_F16_F32", *step) for m in ("V100", "A100", "H100")] == [
        2.0**-23, 2.0**-24, 2.0**-24,
    ]
    carries = [1.0] * 4, [1.5, 1.75, 1.875, 1.875], 1.0
    assert probe("V100_F16_F32", *carries) == 8.0


@pytest.mark.source("Fasi et al. 2021, commit 9dae3fc")
def test_the_v100_is_not_monotone():
    terms = [2.0**-12] * 4, [2.0**-12] * 4
    assert probe("V100_F16_F32", *terms, 1 - 2.0**-24) == 1 + 2.0**-23
    assert probe("V100_F16_F32", *terms, 1.0) == 1.0


def test_other_sources_hand_out_the_bits_of_the_stores_place_by_place():
    half = fp.Context(fp.BINARY16)
    a, b = half.array(np.full((1, 32), 2.0**-3)), half.array(np.full((32, 2), 2.0**-9))
    c = half.array([[1.0, 1.0]])
    bits = Replay([[[[0, 1]], [[1, 0]]]])
    context = fp.Context(fp.BINARY16, rounding=fp.SR(1), bits=bits)
    got = matmul(a, b, "AMP_F16_F16", context=context, accumulator=c)
    # 16 products of 2**-12 are 2**-8, four units: exact, so no bit moves them.
    assert got.values.tolist() == [[1 + 2.0**-7, 1 + 2.0**-7]]
    assert context.operation == 1


@pytest.mark.parametrize(("overflow", "expected"), [("saturate", 240.0), ("nan", np.nan)])
def test_half_partials_of_a_quarter_result_overflow_as_its_context_says(overflow, expected):
    """A first pass of 2**19, saturated at 65504, is taken far below zero by the second."""
    quarter = fp.Context(fp.F143, overflow=overflow)
    a = quarter.wrap(np.array([[128.0] * 32 + [-64.0] * 32], np.float32))
    b = quarter.wrap(np.full((64, 1), 128.0, np.float32))
    got = matmul(a, b, "AMP_F8_F16", context=quarter)
    assert 65504.0 - 32 * 64 * 128.0 < -240
    np.testing.assert_array_equal(got.values, [[-expected]])


@pytest.mark.parametrize("start", [0.0, np.inf])
def test_products_that_overflow_are_infinities_like_others(start):
    """fl32(2**140) and fl32(-2**140) of a sequential sum: inf - inf, also beside an infinite c."""
    wide = fp.Context(fp.BFLOAT16)
    a = wide.array([[2.0**70, -(2.0**70)]])
    b = wide.array([[2.0**70], [2.0**70]])
    context = fp.Context(fp.BINARY32)
    c = context.wrap(np.full((1, 1), start, np.float32))
    got = matmul(a, b, "AMP_BF16_F32.sequential_f32", context=context, accumulator=c)
    assert np.isnan(got.values).all()
    assert context.flags == fp.Flags.OVERFLOW | fp.Flags.INVALID
