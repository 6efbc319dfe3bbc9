"""Advice: each rule from a report that calls for it, and none from one that does not (golden)."""

from __future__ import annotations

import copy

import pytest

from ipu.run.advice import exceptions, find_advice
from ipu.run.ways import Way
from tests.ipu.run.runs import make_report, quiet_report

HALF = Way.parse("fp16")


@pytest.fixture
def report():
    """A run in which nothing hurts."""
    calm = copy.deepcopy(make_report())
    for directions in calm["layers"].values():
        for row in directions.values():
            row.update(dict.fromkeys(row, 0))
    calm.update(constants=[], first=[], loss_scale={}, swallowed={})
    return calm


def texts(report, way=HALF):
    return [item.what for item in find_advice(report, way)]


def tried(report, way=HALF):
    return [str(w) for item in find_advice(report, way) for w in item.ways]


def test_a_calm_run_needs_nothing(report):
    assert find_advice(report, HALF) == []
    assert find_advice(quiet_report(), HALF) == []


def test_an_eps_of_zero_is_named_with_its_divisions(report):
    report["constants"] = make_report()["constants"]
    report["layers"]["optimizer"]["optimizer"]["DIVBYZERO"] = 64
    (item,) = find_advice(report, HALF)
    assert "1e-08 is zero in binary16 (1 times); 64 divisions by zero" in item.evidence
    assert item.layer == "optimizer"
    assert [str(w) for w in item.ways] == ["fp16+eps=0.0001", "fp16+states=f32"]
    assert all(w.changes.halves_by_policy for w in item.ways)


def test_a_factor_that_is_one(report):
    report["constants"] = [{"layer": "optimizer", "direction": "optimizer", "format": "binary16",
                            "value": 0.9999, "becomes": "one", "times": 3}]
    assert texts(report) == [
        "Let the optimiser compute in binary32: the factor 0.9999 changes nothing"
    ]
    assert tried(report) == ["fp16+states=f32", "mixed"]


def test_a_constant_of_a_layer(report):
    report["constants"] = [{"layer": "net.a", "direction": "forward", "format": "binary16",
                            "value": -1e9, "becomes": "overflow", "times": 3}]
    assert texts(report) == ["Replace the constant -1e+09 of net.a by one that binary16 holds"]
    assert tried(report) == ["fp16+-1e09=-16384", "fp16+net.a=f32"]


def test_overflow_forward(report):
    report["layers"]["net.a"]["forward"]["OVERFLOW"] = 3
    report["layers"]["net.b"]["forward"]["OVERFLOW"] = 7
    (item,) = find_advice(report, HALF)
    assert item.layer == "net.b"
    assert "10 results overflow forward, most of them in net.b (7)" in item.evidence
    assert tried(report) == ["fp16+net.b=f32+net.a=f32"]
    narrow = Way.parse("p=f16,c=f16,part=f16")
    assert tried(report, narrow)[0] == "fp16"


def test_overflow_in_an_evaluation_counts_as_forward(report):
    row = dict(report["layers"]["net.a"]["forward"], OVERFLOW=5)
    report["layers"]["net.a"]["evaluation"] = row
    report["layers"]["only.evaluated"] = {"evaluation": dict(row, OVERFLOW=1)}
    (item,) = find_advice(report, HALF)
    assert "6 results overflow forward, most of them in net.a (5)" in item.evidence


def test_a_run_that_never_reached_the_machine_speaks_for_nothing_else(report):
    report["layers"]["net.a"]["forward"]["OVERFLOW"] = 3
    report["unreached"] = "Use the scope of a strategy"
    assert texts(report) == ["Use the scope of a strategy"]


def test_half_partials_alone(report):
    assert tried(report, Way.parse("p=f16,c=f16,part=f16")) == ["fp16"]


def test_the_first_invalid_operation(report):
    report["first"] = [{"flag": "INVALID", "step": 4, "layer": "net.a", "direction": "forward",
                        "operation": "sqrt", "times": 2}]
    assert texts(report) == ["Compute net.a in binary32"]
    report["first"][0]["direction"] = "optimizer"
    assert texts(report) == []


def test_gradients_that_lose_digits(report):
    report["loss_scale"] = make_report()["loss_scale"] | {"unseen": 0}
    (way,) = tried(report)
    assert way == f"fp16+scale={report['loss_scale']['best']:g}"
    report["loss_scale"] |= {"lost": (0.0, 0.0)}
    assert texts(report) == []


def test_gradients_of_unknown_size_ask_for_a_larger_scale_too(report):
    report["loss_scale"] = {
        "present": 1.0, "highest_safe": 65536.0, "best": 1024.0, "limited_by": "head",
        "lost": (0.4, 0.0), "curve": {}, "unseen": 114,
    }
    (item,) = find_advice(report, HALF)
    assert "; 114 gradients beside them are zero, of a size that is not known" in item.evidence
    assert [str(way) for way in item.ways] == ["fp16+scale=1024", "fp16+scale=16384"]


def test_gradients_that_overflow(report):
    report["layers"]["net.a"]["backward"]["OVERFLOW"] = 5
    report["loss_scale"] = make_report()["loss_scale"] | {
        "best": None, "highest_safe": None, "limited_by": "net.a", "present": 1024.0,
    }
    (item,) = find_advice(report, HALF)
    assert "5 gradient results of net.a overflow at the present scale of 1024" in item.evidence
    assert tried(report) == ["fp16+scale=0.0625", "fp16+scale=0.00390625", "fp16+net.a=f32"]


def test_updates_that_are_swallowed(report):
    report["swallowed"] = make_report()["swallowed"]
    (item,) = find_advice(report, HALF)
    assert "75% of 16 updates" in item.evidence
    assert tried(report) == ["fp16+sr", "mixed"]
    assert tried(report, Way.parse("fp16+sr")) == ["mixed+sr"]


def test_unstable_statistics(report):
    report["stable_statistics"] = False
    assert texts(report) == ["Use stable statistics in norms"]


def test_exceptions_are_sums():
    assert exceptions(make_report())["DIVBYZERO"] == 64
