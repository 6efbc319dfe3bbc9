"""Swamping keeps of small numbers what is published (golden)."""

from __future__ import annotations

import numpy as np
import pytest

from ipu.experiments.sums import swamping
from tests.experiments.figures import assert_panels

EXPECTATION = 10_000 * 839 / 2**23


@pytest.fixture(scope="module")
def swamped():
    return swamping.run(quick=True, seed=0)


@pytest.mark.source("Graphcore TensorFlow 1 tutorial on half precision, digits corrected")
@pytest.mark.parametrize(
    ("small", "remainder"),
    [(0.2, "0.1999512"), (0.02, "0.0200195"), (0.002, "0.0019531"), (0.0002, "0.0002441"),
     (0.0004, "0.0004883"), (0.0001, "0.0000000")],
)
def test_fp16_keeps_of_a_small_number_what_is_published(swamped, small, remainder):
    (row,) = swamped.select(part="table", arithmetic="FP16", small=small)
    assert f"{row['kept']:.7f}" == remainder


@pytest.mark.source("Graphcore TensorFlow 1 tutorial on half precision, digits corrected")
def test_relative_errors_of_the_table(swamped):
    errors = swamped.column("relative_error", part="table", arithmetic="FP16")
    printed = " ".join(f"{error:+.1%}" for error in errors)
    assert printed == "-0.0% +0.1% -2.3% +22.1% +22.1% -100.0%"


@pytest.mark.source("S4-10")
def test_additions_stop_having_an_effect(swamped):
    ends = {r["arithmetic"]: (r["n"], r["sum"]) for r in swamped.select(part="end")}
    assert ends["FP16"] == (2181, 0.25)
    assert ends["BF16"][1] < 0.25
    assert abs(ends["FP32"][1] - 1) < 1e-4
    assert abs(ends["FP16 + SR"][1] - EXPECTATION) < 5 * 0.0154
    assert "0.25" in swamped.answer
    assert "2181" in swamped.answer


def test_single_stochastic_results_stand_beside_single_results(swamped):
    """Results are steps of 2^-12, the chances of the two neighbours known: so are their errors."""
    step, nearest = 2.0**-12, swamped.column("relative_error", part="curve", arithmetic="FP16")
    rows, exact = swamped.select(part="curve", arithmetic="FP16 + SR"), []
    for row in rows:
        value = float(np.float16(row["small"]))
        low = value // step * step
        up = (value - low) / step
        errors = [abs(x / row["small"] - 1) for x in (low, low + step)]
        exact.append((1 - up) * errors[0] + up * errors[1])
        assert row["relative_error"] == pytest.approx(exact[-1], abs=6 * max(errors) / 1000**0.5)
        if up > 0.07 and up < 0.93:
            assert (row["low"], row["high"]) == pytest.approx((min(errors), max(errors)))
        assert row["error_of_mean"] <= row["high"] + 1e-12
    single = np.array([row["relative_error"] for row in rows])
    assert f"to nearest at {np.mean(single > nearest):.0%} of the points" in swamped.answer
    assert np.mean(np.array(exact) > nearest) == pytest.approx(np.mean(single > nearest), abs=0.1)


def test_the_figure_of_swamping_is_drawn(swamped):
    assert_panels(swamping.plot(swamped), 2)


def test_the_table_says_which_printed_numbers_no_fp16_machine_gives(swamped):
    (table,) = swamping.tables(swamped)
    assert len(table.lines) == len(swamping.TUTORIAL)
    step = 2.0**-12
    misprints = [
        text
        for text in swamping.TUTORIAL.values()
        if round(float(text) / step) * step != pytest.approx(float(text), abs=6e-8)
    ]
    assert misprints == ["0.0200205", "0.0004833"]
    assert all(f"{text} (it is" in table.note for text in misprints)
    assert table.note.count("(it is") == 2
