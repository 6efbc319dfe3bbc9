"""IEEE P3109's formats: every code, and roundings, beside gfloat (exhaustive, differential)."""

from __future__ import annotations

import math

import numpy as np
import pytest

import fpsim as fp
from fpsim.judge.oracle.rounding import decode, round_exact
from fpsim.records.formats import P3109

gfloat = pytest.importorskip("gfloat")


def of_gfloat(fmt: fp.Format):
    from gfloat.formats import Domain, Signedness, format_info_p3109

    domain = Domain.Extended if fmt.has_infinity else Domain.Finite
    return format_info_p3109(fmt.bits, fmt.precision, Signedness.Signed, domain)


@pytest.mark.parametrize("fmt", P3109.values(), ids=str)
def test_every_code_is_gfloats(fmt):
    info = of_gfloat(fmt)
    ours = fp.decode(np.arange(fmt.n_codes, dtype=np.uint8), fmt)
    theirs = [gfloat.decode_float(info, code).fval for code in range(fmt.n_codes)]
    np.testing.assert_array_equal(ours, np.array(theirs))
    assert (fmt.max, fmt.has_nan) == (info.max if math.isfinite(info.max) else fmt.max, True)
    for code in range(fmt.n_codes):
        datum = decode(code, fmt)
        value = theirs[code]
        kind = "nan" if math.isnan(value) else "finite" if math.isfinite(value) else "infinite"
        assert datum.kind == kind
        assert kind != "finite" or float(datum.value) == value
    values = ours[~np.isnan(ours)]
    np.testing.assert_array_equal(fp.decode(fp.encode(values, fmt), fmt), values)


@pytest.mark.parametrize("fmt", P3109.values(), ids=str)
def test_roundings_are_gfloats_and_the_oracles(fmt):
    info = of_gfloat(fmt)
    finite = np.unique([v for v in fp.decode(np.arange(fmt.n_codes, dtype=np.uint8), fmt)
                        if math.isfinite(v)])
    middles = (finite[1:] + finite[:-1]) / 2
    x = np.concatenate([
        finite, middles, np.nextafter(middles, np.inf), finite * 1.01, [fmt.max * 1.2, 1e9, -1e9],
    ])
    modes = {
        "RNE": gfloat.RoundMode.TiesToEven, "RTZ": gfloat.RoundMode.TowardZero,
        "RTP": gfloat.RoundMode.TowardPositive,
    }
    for name, mode in modes.items():
        context = fp.Context(fmt, rounding=name, overflow="saturate", infinite_input="saturate")
        ours = context.array(x.astype(np.float64)).values
        for value, result in zip(x.tolist(), ours.tolist(), strict=True):
            theirs = gfloat.round_float(info, value, mode, gfloat.OverflowMode.SATURATING
                                        if hasattr(gfloat, "OverflowMode") else True)
            assert result == theirs, (value, name)
            code, _ = round_exact(value, fmt, fp.Rounding(name), overflow="saturate")
            assert float(decode(code, fmt).value) == result


def test_overflow_and_specials_by_default():
    extended, finite = P3109["binary8p4se"], P3109["binary8p4sf"]
    assert fp.encode(1e9, extended) == 0x7F
    assert fp.encode(-np.inf, extended) == 0xFF
    assert fp.encode(1e9, finite) == 0x80
    assert fp.encode(-0.0, extended) == 0
    assert fp.encode(np.nan, extended) == 0x80
    assert fp.find_format("Binary8P3SE").max == 49152.0
