"""Convolutions against unfolded products and the oracle; gradients; refusals.

Kinds: differential (oracle, matmul of unfolded data), law (inner products), corners.
"""

from __future__ import annotations

import math
import tracemalloc

import numpy as np
import pytest

import fpsim as fp
import ipu.machine  # noqa: F401  (registers the units of the IPU)
from fpsim.elementwise.codes import from_codes, to_codes
from fpsim.judge.oracle.random import product_word
from fpsim.judge.oracle.units import Ask, one_output
from fpsim.products import conv, unfold
from fpsim.products.by_unit import images as pieces
from fpsim.products.by_unit.unit_settings import UnitSettings
from fpsim.records.units import find_unit
from fpsim.state.bits import Replay
from tests.fpsim.in_partials import conv2d, conv2d_input_gradient, conv2d_weight_gradient, matmul
from tests.fpsim.products.by_unit.test_dispatch import DATA, number
from tests.fpsim.products.convolution import WAYS, Case
from tests.threads import on_threads
from tests.tiers import pick, reaches

HALF, SINGLE = fp.Context(fp.BINARY16), fp.Context(fp.BINARY32)

CASES = [
    Case((5, 7), 17, (3, 3), 4),
    Case((6, 5), 4, (3, 2), 3, stride=2, padding="VALID"),
    Case((4, 6), 6, (2, 5), 4, stride=(1, 2), padding=((0, 3), (2, 1)), groups=2),
    Case((5, 5), 3, (1, 1), 5, stride=2),
    Case((4, 5), 2, (3, 4), 2, stride=(3, 1), padding=((2, 2), (5, 0)), groups=2, batch=1),
    Case((3, 3), 1, (3, 3), 2, padding="VALID", batch=3),
    Case((7, 4), 5, (2, 2), 3, stride=3),
    Case((7, 9), 5, (3, 2), 4, dilation=(2, 3)),
    Case((9, 8), 4, (2, 3), 6, stride=(2, 3), padding=((1, 2), (0, 3)), groups=2, dilation=2),
    Case((6, 7), 8, (2, 3), 8, padding="VALID", groups=8, dilation=(3, 2), batch=3),
]
#: With dilation, and strides and groups of their own.
DILATED = CASES[-3:]


#: Units of the tests, each with kernels of its own; the quick tier takes the first of each list.
UNFOLDED = ["AMP_F16_F16", "AMP_F32_F32", "SLIC_F16_F32", "VMAC_F16_F16"]
JUDGED = ["AMP_F16_F32", "SLIC_F16_F16", "AMP_F16_F16.exact", "SLIC_F8_F16", "VMAC_F32_F32"]
THREADED = ["AMP_F16_F16", "SLIC_F16_F16.exact", "VMAC_F16_F16"]


#: Strides, groups and padding do not know of the partials, which have a kernel for each length of
#: the last pass: in the quick tier the passes of half partials are complete.
COMPLETE = Case((4, 5), 16, (3, 3), 16)
PAIRS = [(name, case) for name in UNFOLDED for case in [*CASES, COMPLETE]]
FEW = [
    ("AMP_F16_F16", COMPLETE), *(("AMP_F32_F32", case) for case in [*CASES[:3], *DILATED]),
]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("name", "case"), pick(FEW, PAIRS, PAIRS))
def test_a_convolution_is_the_product_of_its_unfolded_operands(name, case, way):
    """Bit for bit, with the random bits of each group's outputs cut out of those of all."""
    unit = find_unit(name)
    rng = np.random.default_rng([*CASES, COMPLETE].index(case))
    a, b, result = case.operands(way, "normal", unit, rng)
    x, y = (v.codes() for v in (a, b))
    terms = getattr(case.convolution(unit), way)
    per_group = result[3] // case.groups
    k = len(terms(x, y, (0, 0, 0, 0)))
    for rounding in ("RNE", fp.SR(10)) if reaches("full") or case is COMPLETE else ("RNE",):
        out_format = fp.BINARY16
        bits = rng.integers(0, 1 << 10, (_rounded(unit, out_format, k), *result)).astype(np.uint32)
        context = _context(out_format, rounding, bits)
        got = case.run(way, a, b, unit, result, context=context)
        assert got.shape == result
        for g in range(case.groups):
            rows = [i[:3] for i in np.ndindex(*result[:3], 1)]
            columns = range(g * per_group, (g + 1) * per_group)
            left = [[t[0] for t in terms(x, y, (*row, columns[0]))] for row in rows]
            right = [[t[1] for t in terms(x, y, (*rows[0], column))] for column in columns]
            matrix = fp.Array(from_codes(np.array(left), a.format), a.context)
            other = fp.Array(from_codes(np.array(right), b.format).T.copy(), b.context)
            subset = bits.reshape(len(bits), len(rows), -1)[:, :, columns]
            wanted = matmul(matrix, other, unit, context=_context(out_format, rounding, subset))
            values = got.values.reshape(len(rows), -1)[:, columns]
            assert np.array_equal(values, wanted.values)


def _rounded(unit, fmt, k):
    """How many places of an output round."""
    passes = 1 if unit.calls is None else -(-k // unit.channels)
    return (passes if unit.partials == fp.BINARY16 else 0) + int(unit.partials != fmt)


def _context(fmt, rounding, bits):
    if rounding == "RNE":
        return fp.Context(fmt)
    return fp.Context(fmt, rounding=rounding, bits=Replay([bits]))


def check(case, way, kind, unit, context, outputs, rng, **choices):
    """Some outputs and, if those are all, the flags, against exact fractions."""
    a, b, result = case.operands(way, kind, unit, rng)
    before = context.operation
    got = case.run(way, a, b, unit, result, context=context, **choices)
    ask = Ask(unit, a.format, b.format, context.core.settings, **choices)
    terms = getattr(case.convolution(unit), way)
    x, y, d = a.codes(), b.codes(), to_codes(got.values, got.format)
    r = context.core.settings.random_most
    flags = fp.Flags.NONE
    for i in rng.permutation(math.prod(result))[:outputs]:
        at = tuple(int(n) for n in np.unravel_index(i, result))
        pairs = terms(x, y, at)

        def draw(place, i=int(i)):
            return product_word(context.core.seed, before, i, place, r) if r else 0

        want, raised = one_output(ask, [p[0] for p in pairs], [p[1] for p in pairs], 0, draw)
        flags |= raised
        wanted = number(want, got.format)
        assert int(d[at]) == wanted, at
    if outputs >= math.prod(result):
        assert context.flags == flags


OUTPUTS = pick(12, 200, 2_000)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", DATA)
@pytest.mark.parametrize("name", pick(JUDGED[:1], JUDGED, JUDGED))
def test_convolutions_agree_with_the_oracle(name, kind, way):
    seed = [DATA.index(kind), WAYS.index(way)]
    rng = np.random.default_rng(seed)
    unit = find_unit(name)
    case = CASES[int(rng.integers(len(CASES)))]
    rounding = fp.SR(7) if unit.partials == fp.BINARY16 else "RNE"
    context = fp.Context(unit.partials, rounding=rounding, overflow="saturate", seed=3)
    check(case, way, kind, unit, context, OUTPUTS, rng)
    context = fp.Context(unit.partials)
    small = Case((2, 3), 2, (2, 2), 2, batch=1)
    check(small, way, kind, unit, context, 99, rng)


def test_metadata_scales_and_subnormals_pass_through():
    rng = np.random.default_rng(0)
    scaled = fp.Context(fp.BINARY16)
    case = pick(Case((5, 7), 32, (3, 3), 4), CASES[2], CASES[2])
    check(case, "forward", "normal", find_unit("AMP_F8_F16"), scaled, 10, rng, scale=-7)
    for way in WAYS:
        flushed = fp.Context(fp.BINARY32)
        unit = find_unit("SLIC_F32_F32")
        check(CASES[1], way, "subnormal", unit, flushed, 10, rng, subnormals="flush_both")


@pytest.mark.parametrize("case", CASES)
def test_inner_products_tell_the_gradients(case):
    """<g, conv(x, w)> = <dx, x> = <dw, w>: equal where integers keep every sum exact."""
    rng = np.random.default_rng(CASES.index(case))
    x, w, g = (HALF.array(rng.integers(-3, 4, shape)) for shape in case.shapes())
    for unit in ("AMP_F16_F32", "VMAC_F16_F32", "SLIC_F16_F32"):
        y = case.run("forward", x, w, unit, g.shape)
        dx = case.run("input_gradient", g, w, unit, x.shape)
        dw = case.run("weight_gradient", x, g, unit, w.shape)
        left = (y.values * g.values).sum(dtype=np.float64)
        assert left == (dx.values * x.values).sum(dtype=np.float64)
        assert left == (dw.values * w.values).sum(dtype=np.float64)
    if case is not CASES[0] and not reaches("full"):  # half partials have kernels of their own
        return
    x, w, g = (HALF.array(rng.standard_normal(shape)) for shape in case.shapes())
    y = case.run("forward", x, w, "AMP_F16_F16", g.shape).values.astype(np.float64)
    dx = case.run("input_gradient", g, w, "AMP_F16_F16", x.shape).values.astype(np.float64)
    dw = case.run("weight_gradient", x, g, "AMP_F16_F16", w.shape).values.astype(np.float64)
    # Each result is rounded into half a few times, relative to its own size.
    size = np.abs(y * g.values).sum()
    assert abs((y * g.values).sum() - (dx * x.values).sum()) < 2.0**-9 * size
    assert abs((y * g.values).sum() - (dw * w.values).sum()) < 2.0**-9 * size


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", pick(THREADED[:1], THREADED, THREADED))
def test_results_do_not_depend_on_threads_or_blocks(name, way, monkeypatch):
    # In the quick tier passes are complete: terms of the gradient are outputs of a group.
    outputs = 32 if way == "input_gradient" and not reaches("full") else 8
    case = Case((13, 11), 32, (3, 3), outputs, stride=2, groups=2, batch=5)
    unit = find_unit(name)
    a, b, result = case.operands(way, "normal", unit, np.random.default_rng(1))
    b = HALF.multiply(b, 4_000.0)  # some partials overflow

    def convolved():
        choices = {"overflow": "saturate", "count": True}
        context = fp.Context(fp.BINARY16, rounding=fp.SR(12), seed=9, **choices)
        values = case.run(way, a, b, unit, result, context=context).values
        return values.tolist(), context.flags, context.counts.total("OVERFLOW")

    results = []
    for n, piece in ((1, 1 << 18), (3, 1 << 18), (2, 1), (1, 700), (2, 5_000)):
        monkeypatch.setattr(pieces, "_PIECE", piece)
        monkeypatch.setattr(pieces, "_SMALLEST", 1)
        results.append(on_threads(n, convolved))
    assert all(r == results[0] for r in results)


def test_the_order_of_the_terms_shows():
    """Bits are lost that another order keeps: channels of a pass before kernel positions."""
    half = fp.Context(fp.BINARY16)
    x = np.zeros((1, 1, 2, 32))
    x[0, 0, :, 0] = 2048.0, -2048.0
    x[0, 0, 0, 16], w = 1.0, np.ones((1, 2, 32, 1))
    got = conv2d(half.array(x), half.array(w), "AMP_F16_F16", padding="VALID")
    assert got.values.item() == 1.0  # positions first: 2048, 0, then 1
    one_pass = matmul(half.array(x.reshape(1, 64)), half.array(w.reshape(64, 1)), "AMP_F16_F16")
    assert one_pass.values.item() == 0.0  # 2048, 2049 rounded to 2048, 0


def test_half_partials_are_stored_after_every_position():
    half = fp.Context(fp.BINARY16)
    x, w = half.array(np.full((1, 1, 4, 1), 1.0)), np.ones((1, 4, 1, 1))
    w[0, :, 0, 0] = 2048.0, 1.0, 1.0, 1.0
    results = [
        conv2d(x, half.array(w), unit, padding="VALID").values.item()
        for unit in ("AMP_F16_F16", "SLIC_F16_F16", "VMAC_F16_F16")
    ]
    assert results == [2048.0, 2052.0, 2052.0]  # 2051 rounded once is 2052


def test_more_taps_than_a_window_are_stored_again():
    half = fp.Context(fp.BINARY16)
    x, w = half.array(np.full((1, 1, 6, 1), 1.0)), np.ones((1, 6, 1, 1))
    w[0, :, 0, 0] = 2048.0, 0.0, 0.0, 1.0, 1.0, 1.0
    got = conv2d(x, half.array(w), "SLIC_F16_F16", padding="VALID").values.item()
    assert got == 2050.0  # 2049 stored as 2048, then 2050


def test_zeros_around_an_image_meet_the_weights_and_zeros_of_a_pass_meet_zeros():
    x, w = HALF.array(np.ones((1, 1, 2, 3))), np.ones((1, 3, 3, 1))
    w[0, 2] = np.inf
    context = fp.Context(fp.BINARY32)
    got = conv2d(x, HALF.array(w), "SLIC_F16_F32", context=context).values.ravel()
    assert np.isinf(got[0])
    assert np.isnan(got[1])  # an infinity times the zero to the right of the image
    assert context.flags == fp.Flags.INVALID
    x.carrier[...] = np.inf
    context = fp.Context(fp.BINARY32)
    w = HALF.array(np.ones((1, 1, 3, 1)))
    assert np.isinf(conv2d(x, w, "SLIC_F16_F32", context=context).values).all()
    assert context.flags == fp.Flags.NONE  # three channels of four, one tap of four


@pytest.mark.source("S4-49")
def test_half_partials_lose_more_than_float_ones():
    rng = np.random.default_rng(3)
    x, w = HALF.array(rng.random((1, 8, 8, 64))), HALF.array(rng.random((3, 3, 64, 4)))
    exact = conv2d(x.to(fp.BINARY32), w.to(fp.BINARY32), "AMP_F32_F32").values
    errors = [
        np.abs(conv2d(x, w, "AMP_F16_F32", context=HALF, partials=p).values - exact).max()
        for p in (fp.BINARY32, fp.BINARY16)
    ]
    assert 2 * errors[0] < errors[1]


@pytest.mark.parametrize("way", WAYS)
def test_no_batch_is_unfolded_as_a_whole(way):
    """The windows of this one are 72 MiB; what is held besides the result is far less."""
    case = Case((64, 64), 64, (3, 3), 64, batch=8)
    x, w, y = (HALF.zeros(shape) for shape in case.shapes())
    a, b, result = {
        "forward": (x, w[..., :1], (8, 64, 64, 1)),
        "input_gradient": (y, w[:, :, :1], (8, 64, 64, 1)),
        "weight_gradient": (x, y[..., :1], (3, 3, 64, 1)),
    }[way]
    tracemalloc.start()
    case.run(way, a, b, "AMP_F16_F16", result)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 40 << 20


#: Channels and outputs of products whose passes are complete, with few results of a group.
TRAPPED = {"forward": (32, 8), "input_gradient": (8, 32), "weight_gradient": (8, 8)}


@pytest.mark.parametrize("way", WAYS)
def test_a_trap_publishes_nothing_and_names_the_first_output(way):
    channels, outputs = (8, 8) if reaches("full") else TRAPPED[way]
    case = Case((4, 4), channels, (3, 3), outputs, padding="SAME", groups=2, batch=2)
    unit = find_unit("AMP_F16_F16")
    a, b, result = case.operands(way, "normal", unit, np.random.default_rng(2))
    for v in (a, b):
        v.carrier[..., -1] = 6000.0
    context = fp.Context(fp.BINARY16, rounding=fp.SR(4), seed=5)
    values = case.run(way, a, b, unit, result, context=context).values
    assert context.flags == fp.Flags.OVERFLOW
    trapping = fp.Context(fp.BINARY16, rounding=fp.SR(4), seed=5, traps=fp.Flags.OVERFLOW)
    out = trapping.zeros(result)
    with pytest.raises(fp.FloatingPointTrap) as caught:
        case.run(way, a, b, unit, result, context=trapping, out=out)
    assert caught.value.index == tuple(int(i) for i in np.argwhere(np.isinf(values))[0])
    assert not out.values.any()
    assert trapping.operation == 0
    terms = getattr(case.convolution(unit), way)(a.codes(), b.codes(), caught.value.index)
    left, right = caught.value.operands
    assert to_codes(left, fp.BINARY16).tolist() == [t[0] for t in terms]
    assert to_codes(right, fp.BINARY16).tolist() == [t[1] for t in terms]


def test_out_receives_the_result():
    case = CASES[1]
    for way in WAYS:
        a, b, result = case.operands(
            way, "normal", find_unit("AMP_F16_F32"), np.random.default_rng(0)
        )
        wanted = case.run(way, a, b, "AMP_F16_F32", result).values
        out = SINGLE.zeros(result)
        assert case.run(way, a, b, "AMP_F16_F32", result, out=out) is out
        assert np.array_equal(out.values, wanted)


def test_partials_pick_the_member_of_the_family():
    case = CASES[0]
    a, b, result = case.operands(
        "forward", "normal", find_unit("AMP_F16_F32"), np.random.default_rng(0)
    )
    half = case.run("forward", a, b, "AMP_F16_F32", result, partials=fp.BINARY16)
    assert half.format == fp.BINARY16
    assert np.array_equal(half.values, case.run("forward", a, b, "AMP_F16_F16", result).values)


def test_nothing_gives_zeros():
    x, w = HALF.zeros((0, 4, 4, 3)), HALF.array(np.ones((3, 3, 3, 2)))
    assert conv2d(x, w, "AMP_F16_F32").shape == (0, 4, 4, 2)
    dw = conv2d_weight_gradient(x, HALF.zeros((0, 4, 4, 2)), "AMP_F16_F32", w.shape)
    assert not dw.values.any()
    for unit in ("AMP_F16_F16", "SLIC_F16_F16", "VMAC_F16_F16"):
        none = conv2d(HALF.zeros((1, 2, 2, 0)), HALF.zeros((2, 2, 0, 1)), unit)
        assert none.values.tolist() == np.zeros((1, 2, 2, 1)).tolist()


def test_wrong_extents_are_refused_with_advice():
    x, w = HALF.zeros((2, 5, 5, 4)), HALF.zeros((3, 3, 4, 6))
    unit = "AMP_F16_F32"
    for wrong, choices, words in [
        ((x[0], w), {}, "give images"),
        ((x, w[0]), {}, "and kernels"),
        ((x, w), {"groups": 2}, "x has 4 channels, w takes 4 in each of groups=2; give w 2"),
        ((x, w), {"groups": 4}, "groups=4 does not divide the 6 outputs"),
        ((x, w), {"groups": 0}, "groups=0 does not divide"),
        ((x, w), {"stride": 0}, "stride=0 is no step"),
        ((x, w), {"stride": (1, 2, 3)}, "is no step"),
        ((x, w), {"stride": 1.5}, "is no step"),
        ((x, w), {"padding": "same"}, "padding='same' is not known; use SAME, VALID or"),
        ((x, w), {"padding": (1, 1)}, "is not known"),
        ((x, w), {"padding": ((0, -1), (0, 0))}, "is not known"),
        ((x[:, :2], w), {"padding": "VALID"}, "a kernel of 3x3 does not fit into 2x5"),
    ]:
        with pytest.raises(ValueError, match=words.replace("(", r"\(")):
            conv2d(*wrong, unit, **choices)
    with pytest.raises(
        TypeError, match="unit AMP_F16_F32 takes binary16 inputs, got binary32 for w"
    ):
        conv2d(x, w.to(fp.BINARY32), unit)
    with pytest.raises(ValueError, match="gradient has shape"):
        conv2d_input_gradient(x, w, unit, x.shape)
    with pytest.raises(ValueError, match="gradient has shape"):
        conv2d_weight_gradient(x, x, unit, w.shape)


def test_a_changed_order_shows(monkeypatch):
    """The tests above would see two terms change places."""
    case, unit = CASES[0], find_unit("AMP_F32_F32")
    a, b, result = case.operands("forward", "normal", unit, np.random.default_rng(4))
    usual = case.run("forward", a, b, unit, result).values

    def swapped(*choice):
        table = unfold.order(*choice).copy()
        table[[3, 4]] = table[[4, 3]]
        return table

    monkeypatch.setattr(conv, "order", swapped)
    monkeypatch.setattr(conv, "_parts", conv._parts.__wrapped__)  # nothing is kept of it
    assert not np.array_equal(case.run("forward", a, b, unit, result).values, usual)


SHORT = ["AMP_F16_F32", "AMP_F32_F32", "AMP_F16_F16.exact", "AMP_F16_F32.sticky", "AMP_BF16_F32"]
CHANNELS = [4, 35, 3, 16, 1, 10, 20]


@pytest.mark.parametrize("name", pick(SHORT[:2], SHORT, SHORT))
@pytest.mark.parametrize("channels", pick(CHANNELS[:2], CHANNELS, CHANNELS))
@pytest.mark.parametrize("kind", ["normal", "special", "subnormal"])
def test_passes_without_their_zeros_give_what_whole_ones_give(kind, channels, name, monkeypatch):
    """The record as it stands, with zeros up to whole passes, is the other opinion."""
    case, unit = Case((4, 3), channels, (2, 3), 3), find_unit(name)
    outcomes = []
    for _ in range(2):
        a, b, result = case.operands("forward", kind, unit, np.random.default_rng(channels))
        context = fp.Context(unit.partials, rounding=fp.SR(13), seed=3)
        got = case.run("forward", a, b, unit, result, context=context)
        outcomes.append((got.codes().tolist(), context.flags))
        monkeypatch.setattr(UnitSettings, "short", lambda self, n: self)
    assert outcomes[0] == outcomes[1]


TAPS = ["SLIC_F16_F32", "SLIC_F16_F32.exact", "SLIC_F16_F16", "SLIC_F16_F32.sequential_f32"]


@pytest.mark.parametrize("name", pick(TAPS[:2], TAPS, TAPS))
@pytest.mark.parametrize("channels", pick([1, 3], [1, 3, 4, 9], [1, 3, 4, 9]))
@pytest.mark.parametrize("kind", ["normal", "special", "subnormal"])
def test_passes_of_one_tap_give_what_those_of_four_give(kind, channels, name, monkeypatch):
    """The places of the last rounding are those of the whole passes."""
    case, unit = Case((4, 6), channels, (2, 5), 3), find_unit(name)
    outcomes = []
    for _ in range(2):
        a, b, result = case.operands("forward", kind, unit, np.random.default_rng(channels))
        context = fp.Context(fp.BINARY16, rounding=fp.SR(13), seed=3)
        got = case.run("forward", a, b, unit, result, context=context)
        outcomes.append((got.codes().tolist(), context.flags))
        monkeypatch.setattr(UnitSettings, "by_taps", property(lambda self: self))
        monkeypatch.setattr(UnitSettings, "short", lambda self, n: self)
    assert outcomes[0] == outcomes[1]
