"""The account of a run (golden, law)."""

from __future__ import annotations

import pytest

from fpsim import BINARY16, BINARY32
from ipu.machine import Device
from ipu.run.account import KINDS, Account, counted_name, fit


@pytest.mark.parametrize(
    ("value", "rounded", "change"),
    [(0.9999, 1.0, "one"), (-1.0001, -1.0, "one"), (1.0, 1.0, ""), (0.0, 0.0, ""),
     (1e-8, 0.0, "zero"), (1e-6, 1e-6, "subnormal"), (1e-4, 1e-4, ""),
     (1e5, 65504.0, "overflow"), (-1e5, -65504.0, "overflow"), (float("inf"), float("inf"), ""),
     (float("nan"), float("nan"), "")],
)
def test_constants_that_do_not_fit(value, rounded, change):
    assert fit(value, rounded, BINARY16) == change


def test_the_summary_adds_up():
    account = Account()
    for n, kind in enumerate(KINDS, start=1):
        for _ in range(n):
            account.add(kind, f"aten.{kind}", 10)
    summary = account.summary()
    assert summary["operations"]["all"] == sum(summary["operations"][kind] for kind in KINDS) == 10
    assert summary["host"]["share"] == 30 / (10 + 30)
    assert summary["host"]["operations"] == {"aten.host": {"calls": 3, "elements": 30}}
    assert summary["native"] == 0


def test_an_empty_run_has_no_share():
    assert Account().summary()["host"]["share"] == 0


def test_constants_are_listed_with_their_places():
    account = Account()
    for line in ("net.py:3", "net.py:4"):
        account.constant("optimizer", "optimizer", BINARY16, 1e-8, "zero", line)
    assert account.summary()["constants"] == [
        {"layer": "optimizer", "direction": "optimizer", "format": "binary16", "value": 1e-8,
         "becomes": "zero", "times": 2, "line": "net.py:3"}
    ]


def test_layers_sum_the_counters_of_a_device():
    device = Device(count=True)
    x = device.from_host([1e-30, 1.0], BINARY32)
    for layer, direction in (("a.b", "forward"), ("a.b", "backward"), ("", "other")):
        with device.naming(counted_name(layer, direction)):
            device.multiply(x, x)
            device.add(x, x)
    table = Account.layers(device.counts)
    assert set(table) == {"a.b", ""}
    assert table["a.b"]["forward"]["results"] == 4
    assert table["a.b"]["forward"]["UNDERFLOW"] == 1
    assert Account.layers(None) == {}
