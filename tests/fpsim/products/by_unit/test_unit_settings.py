"""Settings of one product through a unit: passes, rounding places, which roundings there are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import fpsim as fp
import ipu.machine  # noqa: F401  (registers the units of the IPU)
from fpsim.judge.oracle.rounding import OracleSettings, decode, round_exact
from fpsim.products.by_unit.unit_settings import UnitSettings, nearest
from fpsim.records.settings import Settings
from fpsim.records.units import MatrixUnit, find_unit
from fpsim.state.draws import NO_PLACES

F32 = MatrixUnit("TEST_F16_F32", "none", (fp.BINARY16,), fp.BINARY32, terms=4, calls=3, window=23)
F16 = replace(F32, partials=fp.BINARY16)
WHOLE = replace(F16, calls=None)


def of(unit, fmt=None, **choices):
    options = {k: choices.pop(k) for k in ("scale", "stochastic_stores") if k in choices}
    policy = choices.pop("policy", None)
    settings = Settings(fmt or unit.partials, **choices)
    return UnitSettings(unit, fp.BINARY16, fp.BINARY16, settings, subnormals=policy, **options)


@pytest.mark.parametrize(
    ("k", "depth", "passes"), [(0, 0, 0), (1, 12, 1), (12, 12, 1), (13, 24, 2)]
)
def test_products_are_filled_up_to_whole_passes(k, depth, passes):
    assert (of(F32).depth(k), of(F32).passes(k)) == (depth, passes)
    # A pass that is the whole of K is filled up to whole calls.
    assert (of(WHOLE).depth(k), of(WHOLE).passes(k)) == (-(-k // 4) * 4, min(k, 1))


@pytest.mark.parametrize(
    ("unit", "fmt", "choices", "places"),
    [
        (F32, fp.BINARY32, {}, range(3, 3)),
        (F32, fp.BINARY16, {}, range(3, 4)),
        (F16, fp.BINARY16, {}, range(3)),
        (F16, fp.F143, {}, range(4)),
        (F16, fp.F143, {"stochastic_stores": False}, range(3, 4)),
        (F16, fp.BINARY16, {"stochastic_stores": False}, range(3, 3)),
        (WHOLE, fp.BINARY16, {}, range(1)),
        (WHOLE, fp.F143, {}, range(2)),
    ],
    ids=str,
)
def test_rounding_places_are_the_stores_and_then_the_last_one(unit, fmt, choices, places):
    assert of(unit, fmt, rounding=fp.SR(5), **choices).rounding_places(30) == places


def test_partials_are_rounded_where_they_are_narrower_than_the_sums():
    present = {
        name: [rounding is not None for rounding in (s.store, s.at_the_end, s.final, s.reduced)]
        for name, s in {
            "f32": of(F32), "f32 to f16": of(F32, fp.BINARY16), "f16": of(F16),
            "f16 to f143": of(F16, fp.F143), "whole": of(WHOLE),
            "half sums": of(replace(F16, accumulator=fp.BINARY16)),
            "joined": of(replace(F16, join=fp.BINARY16)),
        }.items()
    }
    assert present == {
        "f32": [False, False, False, False],
        "f32 to f16": [False, False, True, True],
        "f16": [True, False, False, True],
        "f16 to f143": [True, False, True, True],
        "whole": [False, True, False, True],
        "half sums": [False, False, False, True],
        "joined": [False, False, False, True],
    }


def test_subnormals_of_binary32_follow_the_call_then_the_context():
    assert of(F32).policy == "keep"
    assert of(F32, subnormals="flush_both").policy == "flush_both"
    assert of(F32, subnormals="flush_both", policy="keep").policy == "keep"
    # The policy of a half context is about halves.
    assert of(F16, subnormals="flush_both").policy == "keep"
    assert of(F16, policy="flush_results").policy == "flush_results"


def test_the_kernel_reads_the_record():
    call = of(F32, policy="flush_both", scale=5, tininess="before").kernel_call
    assert (call.terms, call.calls, call.window, call.scale) == (4, 3, 23, 5)
    assert (call.flush_in, call.flush_out, call.tiny_before, call.to_zero) == (1, 1, 1, 0)
    assert call.fraction == 20
    flushed = of(F32, policy="flush_results").kernel_call
    assert (flushed.flush_in, flushed.flush_out) == (0, 1)
    other = of(replace(F32, window=None, cut="sticky", rounding=fp.RTZ, calls=None)).kernel_call
    assert (other.window, other.sticky, other.to_zero, other.calls) == (-1, 1, 1, 1)


NUMBERS = np.float32([0.1, -0.1, 70000.0, -1e30, 1 + 2.0**-11, 3e-8, np.inf, 0.0, -0.0])


@pytest.mark.parametrize("overflow", ["infinity", "saturate", "nan"])
@pytest.mark.parametrize("rounding", [fp.RNE, fp.RTZ], ids=repr)
def test_a_store_rounds_once_and_reads_infinite_partials_out_by_the_policy(rounding, overflow):
    """docs/semantics.md §5: an infinite accumulator goes the way of an overflow."""
    store = of(F16, rounding=rounding, overflow=overflow).store
    values, flags = NUMBERS.copy(), np.zeros(len(NUMBERS), np.uint8)
    raised = store(values, flags, 0, NO_PLACES)
    judge = OracleSettings(rounding, overflow=overflow)
    for x, got, flag in zip(NUMBERS.tolist(), values.tolist(), flags.tolist(), strict=True):
        if np.isinf(x):
            expected = {"infinity": np.inf, "saturate": 65504.0, "nan": np.nan}[overflow]
            np.testing.assert_equal(got, expected)
            assert bool(flag & fp.Flags.OVERFLOW) == (overflow != "infinity")
            continue
        code, wanted = round_exact(
            x, fp.BINARY16, rounding, overflow=judge.overflow, sign_of_zero=int(np.signbit(x))
        )
        datum = decode(code, fp.BINARY16)
        if datum.kind == "finite":
            assert got == datum.value
            assert np.signbit(got) == datum.sign
        else:
            assert not np.isfinite(got)
        assert flag & fp.Flags.OVERFLOW == wanted & fp.Flags.OVERFLOW
    assert raised & fp.Flags.OVERFLOW


def test_without_stochastic_stores_partials_go_to_nearest_and_the_result_does_not():
    stochastic = of(F16, fp.F143, rounding=fp.SR(5))
    plain = of(F16, fp.F143, rounding=fp.SR(5), stochastic_stores=False)
    assert stochastic.store.narrow.stochastic
    assert not plain.store.narrow.stochastic
    assert plain.final.narrow.stochastic
    # A deterministic mode is the context's own in any case.
    directed = of(F16, rounding=fp.RTZ, stochastic_stores=False).store.narrow.mode
    assert directed == of(F16, rounding=fp.RTZ).store.narrow.mode


def test_a_result_with_one_zero_has_no_other():
    values = np.float32([-0.0, -1e-9, 1.0])
    of(F16, fp.F143).final(values, np.zeros(3, np.uint8), 0, NO_PLACES)
    assert values.tobytes() == np.float32([0.0, 0.0, 1.0]).tobytes()


def test_a_units_own_accumulator_rounds_to_nearest_with_infinity():
    values = np.float32([65519.0, 65520.0, 1 + 2.0**-11, 1 + 3 * 2.0**-11])
    nearest(fp.BINARY16)(values, np.zeros(4, np.uint8), 0, NO_PLACES)
    assert values.tolist() == [65504.0, np.inf, 1.0, 1 + 2.0**-9]
    assert nearest(fp.BINARY16) is nearest(fp.BINARY16)


def test_settings_of_two_calls_are_two_though_they_say_the_same():
    assert of(F32) != of(F32)
    assert len({of(F32), of(F32)}) == 2


def test_zeros_stay_where_a_call_cuts_its_own_partial_or_takes_terms_out_of_order():
    cutting = replace(find_unit("AMP_F16_F32"), window=10)
    for unit in (find_unit("H100_E4M3_F16"), find_unit("SLIC_F16_F32"), cutting):
        settings = of(unit)
        assert settings.short(1) is settings
    settings = of(find_unit("AMP_F16_F32"))
    assert settings.short(10) is settings.short(10)
    assert (settings.short(10).unit.terms, settings.short(10).unit.calls) == (4, 3)
    assert (settings.short(3).unit.terms, settings.short(3).unit.calls) == (3, 1)


def test_passes_of_taps_become_passes_of_one_where_no_store_is_between():
    settings = of(find_unit("SLIC_F16_F32"))
    one = settings.by_taps
    assert (one.unit.terms, one.unit.calls, one.unit.taps) == (4, 1, 1)
    assert settings.by_taps is one
    assert (one.short(3).unit.terms, one.short(3).unit.calls) == (3, 1)
    joined = replace(find_unit("SLIC_F16_F32"), join=fp.BINARY32)
    cutting = replace(find_unit("SLIC_F16_F32"), window=10)
    for unit in (find_unit("SLIC_F16_F16"), find_unit("AMP_F16_F32"), joined, cutting):
        settings = of(unit)
        assert settings.by_taps is settings


def test_calls_of_zeros_stay_where_a_sum_may_underflow():
    """They turn the -0 of an underflow into +0."""
    wide = UnitSettings(find_unit("AMP_F32_F32"), fp.BINARY32, fp.BINARY32, Settings(fp.BINARY32))
    last = wide.unit.terms * (wide.unit.chain - 1)
    assert wide.short(last) is wide
    # The least product of two halves is 2**-48, the least normal sum 2**-126.
    for scale, shorter in ((-78, True), (-79, False)):
        settings = of(find_unit("AMP_F16_F32"), scale=scale)
        assert (settings.short(3) is not settings) == shorter
