"""Medians, ratios and threads of a measurement (golden)."""

from __future__ import annotations

from fpsim.state.threads import get_threads
from ipu.experiments.bench.timing import TimedCase, run


def test_a_rate_is_multiply_adds_by_time():
    ticks = iter([2.0, 1.0, 4.0])
    case = TimedCase(
        "t", "f", lambda: lambda: None, None, 1000, 3, clock=lambda _: next(ticks), kind="k"
    )
    (record,) = run([case], 1)
    assert record.gmac_per_s == 0.5


def test_medians_and_ratio_come_from_the_clock():
    ticks = iter([5.0, 1.0, 3.0])
    case = TimedCase("t", "f", lambda: lambda: None, None, 10, 3, clock=lambda call: next(ticks))
    (record,) = run([case], 1)
    assert record.ns_per_element == 3.0 / 10 * 1e9
    assert record.ratio is None


def test_threads_are_set_and_given_back():
    before = get_threads()
    seen = []
    case = TimedCase("t", "f", lambda: lambda: seen.append(get_threads()), None, 1, 1)
    (record,) = run([case], 3)
    assert record.threads == 3
    assert set(seen) == {3}
    assert get_threads() == before
