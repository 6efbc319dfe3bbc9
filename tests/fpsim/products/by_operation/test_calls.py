"""Calls of the fast kernels: law (any rows, what the general engine gives), numpy's binary32."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import fpsim as fp
from fpsim.elementwise.codes import to_codes
from fpsim.kernels.by_operation.results import LOOK_FOR_ALL, LOOK_FOR_NONE, LOOK_FOR_OVERFLOW
from fpsim.kernels.status_register import HAS_STATUS
from fpsim.products.by_operation import calls
from fpsim.products.by_operation.bounds import block_lows, find_lane, measure
from fpsim.products.by_operation.calls import Bits, deterministic_call, native_call, random_call
from fpsim.products.by_operation.chain import Chain
from fpsim.products.by_operation.dispatch import rounding_places
from fpsim.products.by_operation.general import run_general
from fpsim.products.by_operation.rules import mac_rules
from fpsim.products.jobs.job import Job
from fpsim.records.settings import Settings
from fpsim.state.draws import draw_places
from tests.tiers import pick, reaches

pytestmark = pytest.mark.skipif(not HAS_STATUS, reason="no status register that is known")

SEED = 77
SHAPES = (20, 33, 35)


def operands(fmt, scale=1.0):
    rng = np.random.default_rng(8)
    context = fp.Context(fmt, overflow="saturate")
    m, k, n = SHAPES
    return [context.array(rng.standard_normal(s) * scale).values for s in ((m, k), (k, n))]


def general(context, a, b):
    shape = len(a), b.shape[1]
    places = draw_places(context.core, rounding_places("separate", len(b)), shape)
    values = np.zeros(shape, np.float32)
    chain = Chain(context.core.settings, "separate")
    job = Job(chain, a, b, values, np.zeros(shape, np.uint8), places)
    assert run_general(job)
    return to_codes(values, context.format).tolist(), job.flags


def in_pieces(call, cuts, watched):
    """The rows of a result, written a piece at a time; the flags of all."""
    out, flags = np.full((SHAPES[0], SHAPES[2]), np.nan, np.float32), 0
    for first, last in pairwise(cuts):
        flags |= call(out, first, last, watched)
        assert np.isnan(out[last:]).all()
    return out, flags & int(fp.Flags.INEXACT | fp.Flags.UNDERFLOW | fp.Flags.OVERFLOW)


#: Modes of calls; the quick tier has two of each kind, since each is a kernel of both engines.
MODES = pick((fp.RNE, fp.RTN), *[(fp.RNE, fp.RTN, fp.RTO)] * 2)
IPU, WIDE = fp.SR(13, subnormal_bits=16), fp.SR(20)
RANDOM = pick((IPU, WIDE), *[(fp.SR(9), WIDE, IPU)] * 2)
ZEROS = [(f, mode) for mode in (fp.RNE, fp.RTN) for f in (fp.BINARY32, fp.F143, fp.BINARY16)]

CUTS = ((0, 20), (0, 8, 20), (0, 4, 16, 20))


@pytest.mark.parametrize("scale", [1.0, 2.0**-11])
@pytest.mark.parametrize("mode", MODES, ids=repr)
def test_a_deterministic_call_gives_any_rows(mode, scale):
    context = fp.Context(fp.BINARY16, rounding=mode)
    a, b = operands(fp.BINARY16, scale)
    values, flags = general(context, a, b)
    product = measure(mac_rules(context.core.settings, False), a, b)
    call = deterministic_call(product, find_lane(product))
    for cuts in CUTS:
        out, raised = in_pieces(call, cuts, LOOK_FOR_ALL)
        assert to_codes(out, fp.BINARY16).tolist() == values
        assert raised | int(product.certain) == flags
    out, _ = in_pieces(call, CUTS[0], LOOK_FOR_NONE)
    assert to_codes(out, fp.BINARY16).tolist() == values


@pytest.mark.parametrize("mode", pick((fp.RNE,), *[(fp.RNE, fp.RTZ, fp.RAZ, fp.RTO)] * 2), ids=repr)
def test_a_processor_without_fused_multiply_add_gives_the_same(mode, monkeypatch):
    context = fp.Context(fp.BINARY16, rounding=mode)
    a, b = operands(fp.BINARY16, 2.0**-7)
    product = measure(mac_rules(context.core.settings, False), a, b)
    out, flags = in_pieces(deterministic_call(product, find_lane(product)), CUTS[0], LOOK_FOR_ALL)
    monkeypatch.setattr(calls, "HAS_FMA", False)
    call = deterministic_call(product, find_lane(product))
    other, seen_too = in_pieces(call, CUTS[0], LOOK_FOR_ALL)
    assert (other.tobytes(), seen_too) == (out.tobytes(), flags)


@pytest.mark.parametrize("mode", pick((fp.RNE,), *[(fp.RNE, fp.RTZ, fp.RAZ, fp.RTO)] * 2))
def test_products_that_cannot_be_small_are_rounded_in_fewer_steps(mode, monkeypatch):
    """The same bits either way; where a product is small, the short way would be wrong."""
    context = fp.Context(fp.BINARY16, rounding=mode)
    for scale, small in ((1.0, False), (2.0**-9, True)):
        a, b = operands(fp.BINARY16, scale)
        a, b = (np.where(x < 0, -1, 1) * np.maximum(abs(x), np.float32(scale)) for x in (a, b))
        product = measure(mac_rules(context.core.settings, False), a, b)
        assert product.small == small
        outs = []
        for forced in (small, not small):
            monkeypatch.setattr(product, "small", forced)
            call = deterministic_call(product, find_lane(product))
            outs.append(in_pieces(call, CUTS[0], LOOK_FOR_ALL)[0].tobytes())
        monkeypatch.undo()
        assert (outs[0] == outs[1]) == (not small)
        out = np.frombuffer(outs[0], np.float32).reshape(SHAPES[0], SHAPES[2])
        assert to_codes(out, fp.BINARY16).tolist() == general(context, a, b)[0]


#: What overflow becomes and where it occurs; largest numbers of both operands.
OVERFLOWS = [("infinity", 300.0), ("saturate", 300.0), ("infinity", 9.0), ("saturate", 9.0)]


@pytest.mark.parametrize(("overflow", "scale"), pick(OVERFLOWS[::3], OVERFLOWS, OVERFLOWS))
def test_overflow_in_sums_and_in_products_is_what_the_general_engine_gives(overflow, scale):
    """Products of numbers up to 9 times 2700 stay below 65504, their sums do not."""
    context = fp.Context(fp.BINARY16, overflow=overflow)
    a, b = operands(fp.BINARY16, scale)
    b = np.clip(b * np.float32(300 / scale), -2700, 2700)
    a, b = (fp.Context(fp.BINARY16).array(x).values for x in (a, b))
    a = np.abs(a)
    a[:, 0] = 4.0
    values, flags = general(context, a, b)
    product = measure(mac_rules(context.core.settings, False), a, b)
    assert (product.largest > fp.BINARY16.max) == (scale > 9)
    call = deterministic_call(product, find_lane(product))
    out, raised = in_pieces(call, CUTS[0], LOOK_FOR_ALL)
    assert to_codes(out, fp.BINARY16).tolist() == values
    assert raised | int(product.certain) == flags & ~int(fp.Flags.INVALID)
    if overflow == "saturate" and not reaches("full"):  # a kernel for each thing to look for
        return
    for watched in (LOOK_FOR_OVERFLOW, LOOK_FOR_NONE):
        assert in_pieces(call, CUTS[0], watched)[0].tobytes() == out.tobytes()


#: Modes with a short way for products that are not small.
SHORT = pick((fp.RTO,), *[(fp.RTZ, fp.RAZ, fp.RNA, fp.RNZ, fp.RTO)] * 2)


@pytest.mark.parametrize("overflow", pick(("infinity",), *[("infinity", "saturate")] * 2))
@pytest.mark.parametrize("mode", SHORT, ids=str)
def test_stretches_without_small_products_are_rounded_in_fewer_steps(mode, overflow, monkeypatch):
    """The same bits either way; where the smallest factors were taken for larger, they differ."""
    context = fp.Context(fp.BINARY16, rounding=mode, overflow=overflow)
    a, b = operands(fp.BINARY16)
    a, b = (np.where(x < 0, -1, 1) * np.maximum(abs(x), np.float32(0.25)) for x in (a, b))
    a[12, :9], a[12, 12:], a[0], b[:, 34] = 0, 0, 0, 0
    a[5:13, 9:12] *= np.float32(2.0**-11)
    b[9:12, 3:30] *= np.float32(2.0**-8)
    product, outs, blocks = measure(mac_rules(context.core.settings, False), a, b), [], []
    assert product.small
    for least, lows in ((1 << 60, block_lows), (0, block_lows), (0, lambda *_: np.ones((8, 8)))):
        monkeypatch.setattr(calls, "_LEAST_WORK", least)
        monkeypatch.setattr(calls, "block_lows", lows)
        blocks.append(len(calls._lows(product, 32)[0]))
        call = deterministic_call(product, find_lane(product))
        out, _ = in_pieces(call, CUTS[2], LOOK_FOR_NONE)
        outs.append(to_codes(out, fp.BINARY16).tolist() if len(outs) < 2 else out.tobytes())
    assert blocks == [1, 5, 8]
    assert outs[0] == outs[1] == general(context, a, b)[0]
    values = np.frombuffer(outs[2], np.float32).reshape(SHAPES[0], SHAPES[2])
    assert (values != values.astype(np.float16)).any()


#: What overflow becomes, modes, and whether sums are fused.
CALM = [(o, m, f) for o in ("nan", "infinity", "saturate") for m in (fp.RNE, fp.RTN, fp.RAZ)
        for f in (False, True)]


@pytest.mark.parametrize(("overflow", "mode", "fused"), pick(CALM[:1], CALM, CALM), ids=repr)
def test_stretches_that_begin_far_from_overflow_are_not_checked(overflow, mode, fused, monkeypatch):
    """The same bits and flags as when all are checked, also where some sums overflow and some
    come near; with another bound they would differ."""
    rng = np.random.default_rng(4)
    signs = np.where(np.arange(SHAPES[0]) % 5 == 0, 1, rng.choice((-1, 1), (SHAPES[1], SHAPES[0])))
    fmt = fp.Format.custom(4, 4) if overflow == "infinity" else fp.E4M3FN
    a, b = (rng.uniform(0.7, 1, s) * (fmt.max / 18) ** 0.5 for s in (SHAPES[:2], SHAPES[1:]))
    a *= signs.T
    context = fp.Context(fmt, rounding=mode, overflow=overflow)
    a, b = (context.array(x).values for x in (a, b))
    product = measure(mac_rules(context.core.settings, fused), a, b)
    assert product.checked
    assert 0 < product.calm < fmt.max
    for watched in (LOOK_FOR_OVERFLOW, LOOK_FOR_NONE):
        outs = []
        for limit in (product.calm, 0.0, 2 * fmt.max):
            monkeypatch.setattr(product, "calm", limit)
            call = deterministic_call(product, find_lane(product))
            out, raised = in_pieces(call, CUTS[0], watched)
            outs.append((out.tobytes(), raised))
            monkeypatch.undo()
        assert outs[0] == outs[1] != outs[2]


@pytest.mark.parametrize("fused", pick((False,), *[(False, True)] * 2))
@pytest.mark.parametrize("mode", pick((IPU,), *[RANDOM] * 2), ids=repr)
def test_random_calls_without_fused_multiply_add_give_the_same(mode, fused, monkeypatch):
    """Products of all sizes from below the smallest subnormal number to normal ones."""
    settings, bits, outs = Settings(fp.BINARY16, mode), Bits(SEED, 3), []
    a, b = operands(fp.BINARY16, 2.0**-7)
    product = measure(mac_rules(settings, fused), a, b)
    assert product.small
    for has_fma in (calls.HAS_FMA, False):
        monkeypatch.setattr(calls, "HAS_FMA", has_fma)
        call = random_call(product, find_lane(product), bits)
        out, raised = in_pieces(call, CUTS[0], LOOK_FOR_ALL)
        outs.append((out.tobytes(), raised))
    assert outs[0] == outs[1]


@pytest.mark.parametrize("mode", pick((fp.SR(9),), *[RANDOM] * 2), ids=repr)
def test_random_products_that_cannot_be_small_are_rounded_in_fewer_steps(mode, monkeypatch):
    """The same bits either way; where a product is small, the short way would be wrong."""
    settings, bits = Settings(fp.BINARY16, mode), Bits(SEED, 3)
    for scale, small in ((1.0, False), (2.0**-9, True)):
        a, b = operands(fp.BINARY16, scale)
        a, b = (np.where(x < 0, -1, 1) * np.maximum(abs(x), np.float32(scale)) for x in (a, b))
        product, outs = measure(mac_rules(settings, False), a, b), []
        assert product.small == small
        for forced in (True, False):
            monkeypatch.setattr(product, "small", forced)
            call = random_call(product, find_lane(product), bits)
            outs.append(in_pieces(call, CUTS[0], LOOK_FOR_NONE)[0].tobytes())
        monkeypatch.undo()
        assert (outs[0] == outs[1]) == (not small)


@pytest.mark.parametrize("mode", RANDOM, ids=repr)
def test_a_random_call_gives_any_rows_their_own_bits(mode):
    context = fp.Context(fp.BINARY16, rounding=mode, seed=SEED)
    context.operation = 3
    a, b = operands(fp.BINARY16)
    values, _ = general(context, a, b)
    product = measure(mac_rules(context.core.settings, False), a, b)
    call = random_call(product, find_lane(product), Bits(SEED, 3))
    for cuts in CUTS:
        out, _ = in_pieces(call, cuts, LOOK_FOR_ALL)
        assert to_codes(out, fp.BINARY16).tolist() == values
    call = random_call(product, find_lane(product), Bits(SEED, 4))
    other, _ = in_pieces(call, CUTS[0], LOOK_FOR_ALL)
    assert to_codes(other, fp.BINARY16).tolist() != values


def test_a_native_call_is_binary32_of_the_processor():
    a, b = operands(fp.BINARY32)
    context = fp.Context(fp.BINARY32)
    call = native_call(mac_rules(context.core.settings, False), a, b)
    wanted = np.zeros((SHAPES[0], SHAPES[2]), np.float32)
    for k in range(SHAPES[1]):
        wanted = wanted + a[:, k, None] * b[k]
    for cuts in CUTS:
        out, _ = in_pieces(call, cuts, LOOK_FOR_NONE)
        assert out.tobytes() == wanted.tobytes()


@pytest.mark.parametrize(
    ("fmt", "mode"), pick([ZEROS[0], ZEROS[1], ZEROS[5]], ZEROS, ZEROS), ids=repr
)
def test_a_sum_of_minus_zeros_has_the_sign_of_the_definition(fmt, mode):
    context = fp.Context(fmt, rounding=mode)
    a, b = np.float32([[-0.0, 0.0], [0.0, 1.0]]), np.float32([[1.0, 0.0], [0.0, 0.0]])
    if not fmt.has_negative_zero:
        a = np.abs(a)
    product = measure(mac_rules(context.core.settings, False), a, b)
    out = np.empty((2, 2), np.float32)
    deterministic_call(product, find_lane(product))(out, 0, 2, LOOK_FOR_ALL)
    assert to_codes(out, fmt).tolist() == general(context, a, b)[0]
