"""What notebooks show of formats, units and arrays (behaviour)."""

from __future__ import annotations

import re
from fractions import Fraction
from xml.etree.ElementTree import fromstring

import numpy as np
import pytest

import fpsim as fp
import ipu.machine  # noqa: F401  (registers the units of the IPU)
from fpsim.records.drawings import bits_of
from fpsim.records.formats import CATALOGUE
from fpsim.records.units import UNITS

FORMATS = [fmt for fmt in CATALOGUE.values() if isinstance(fmt, fp.Format)]
SMALL = [fmt for fmt in FORMATS if fmt.bits <= 8]


def marks(fmt: fp.Format) -> list[float]:
    """Places of the numbers on a format's line."""
    root = fromstring(fmt._repr_html_())
    picture = next(root.iter("svg"))
    lines = [line for line in picture.iter("line") if line.get("x1") == line.get("x2")]
    return [float(line.get("x1", "")) for line in lines]


@pytest.mark.parametrize("fmt", FORMATS, ids=str)
def test_a_format_draws_itself(fmt):
    text = fmt._repr_html_()
    assert f"{fmt.max:.9g}" in text
    assert len(marks(fmt)) >= 2
    assert "<script" not in text
    assert "http" not in text


@pytest.mark.parametrize("fmt", SMALL, ids=str)
def test_the_line_of_a_small_format_has_its_positive_numbers(fmt):
    codes = np.arange(fmt.n_codes // 2)
    values = fp.decode(codes, fmt)
    positive = values[np.isfinite(values) & (values > 0)]
    places = marks(fmt)
    assert len(places) == len(positive)
    assert places == sorted(places)


@pytest.mark.parametrize("fmt", FORMATS, ids=str)
def test_rounding_intervals_are_those_of_rounding(fmt):
    """What a band says of its ends and its mark, asked of the rounding just inside and at a tie."""
    titles = [title.text or "" for title in fromstring(fmt._repr_html_()).iter("title")]
    bands = [re.findall(r"\d[\d.]*", text)[:3] for text in titles if "is rounded to" in text]
    assert len(bands) == (0 if fmt in (fp.E2M1FN, fp.E2M3FN, fp.E1M6) else 6)
    if fmt.precision > 11:
        return  # twelve decimal digits do not tell their ends
    for i, (low, high, mark) in enumerate([map(float, band) for band in bands]):
        inside = np.nextafter(np.float64(low), high), np.nextafter(np.float64(high), low)
        assert [fp.round_to(float(x), fmt) for x in inside] == [mark, mark]
        ties = [fp.round_to(x, fmt) == mark for x in (low, high)]
        assert ties == [i % 2 == 0] * 2


def test_bits_are_those_of_the_code():
    text = bits_of(fp.BINARY16, 0xBC01)
    digits = "".join(part.text or "" for part in fromstring(text))
    assert Fraction(int(digits, 2)) == 0xBC01
    assert digits[0] == "1"


@pytest.mark.parametrize("unit", UNITS.values(), ids=str)
def test_a_unit_tells_its_evidence(unit):
    text = unit._repr_html_()
    fromstring(text)
    for name, fact in unit.facts.items():
        assert name in text
        assert str(fact.evidence) in text


def test_an_array_shows_the_bits_of_its_first_numbers_and_never_all_of_many():
    text = fp.Context("binary16").array(np.linspace(0, 1, 1000))._repr_html_()
    lines = ["".join(part.itertext()) for part in fromstring(text).iter("div")]
    assert lines[1:] == ["0 = 0000000000000000", "0.00100135803 = 0001010000011010",
                         "0.00200271606 = 0001100000011010"]
    assert "..." in text
    assert len(text) < 6000


def test_an_array_counts_its_exponents():
    context = fp.Context("binary16")
    x = context.array([1.0, 1.5, -3.0, 0.0, 2.0**-24, np.inf, np.nan])
    texts = [title.text or "" for title in fromstring(x._repr_html_()).iter("title")]
    titles = [text for text in texts if text.startswith("2^")]
    assert titles == ["2^-24: 1", "2^0: 2", "2^1: 1"]


@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (2, 2), (100, 100)])
def test_arrays_of_every_shape_are_shown(shape):
    x = fp.Context("bfloat16").array(np.ones(shape))
    root = fromstring(x._repr_html_())
    assert "bfloat16" in "".join(root.itertext())
