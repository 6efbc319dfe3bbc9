"""Swallowed updates in words (golden)."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim import BINARY16
from ipu.run.causes.finding import find_causes
from ipu.run.swallowed import lost_updates
from ipu.run.updates import Updates


def row(nonzero, swallowed, sizes=None, **about):
    return {"nonzero": nonzero, "swallowed": swallowed, "share": swallowed / nonzero,
            "in_ulps": sizes or {}, "format": "binary16", "step": 2, "line": "train.py:40"} | about


def of_parameters(**counts):
    return {name: {"nonzero": n, "swallowed": lost} for name, (n, lost) in counts.items()}


def test_the_parameter_the_size_and_the_line_are_told():
    report = {"losses": [2.0, 1.0], "swallowed": {"Elo": row(
        235, 235, {-7: 100, -6: 100, -1: 35}, parameters=of_parameters(rating=(235, 235)))}}
    (cause,) = find_causes(report)
    assert cause.sentence == (
        "Updates are swallowed: 235 of 235 updates of rating (Elo) are at most half a spacing of "
        "the parameter in binary16, typically 1/64 of one (optimizer, step 2, train.py:40)")
    assert cause.layer == "Elo"


@pytest.mark.parametrize(("length", "worst"), [(None, "weight (a)"), (9.0, "scale (b)")])
def test_the_parameter_that_loses_most_of_its_way_is_told(length, worst):
    """Without a shadow it is the one with the most swallowed updates."""
    report = {"swallowed": {
        "a": row(100, 90, parameters=of_parameters(weight=(96, 88), bias=(4, 2))),
        "b": row(4, 3, parameters=of_parameters(scale=(4, 3)))}}
    if length:
        report["shadow"] = {"motions": [
            {"name": name, "arrived": share, "length": size, "is_parameter": True}
            for name, share, size in (("a.weight", 0.1, 1.0), ("b.scale", 0.2, length))]}
    sentence = lost_updates(report).sentence
    assert f"updates of {worst} are" in sentence
    assert sentence.endswith("; of all parameters 93 of 104")


@pytest.mark.parametrize(("layer", "names", "told"), [
    ("net/dense", ("net/dense/kernel:0",), "net/dense/kernel:0"), ("w", ("weight",), "weight (w)"),
    ("table", ("table",), "table"), ("head", (), "head"),
    ("optimizer", (), "parameters outside of modules"),
])
def test_names_of_parameters(layer, names, told):
    parameters = of_parameters(**dict.fromkeys(names, (4, 4)))
    lost = lost_updates({"swallowed": {layer: row(4, 4, parameters=parameters)}})
    assert f"4 of 4 updates of {told} are" in lost.sentence


def test_few_swallowed_updates_and_stochastic_rounding_are_not_told():
    assert lost_updates({"swallowed": {"a": row(100, 20)}}) is None
    assert lost_updates({"swallowed": {"a": row(9, 9)}, "stochastic_rounding": True}) is None


@pytest.mark.parametrize(("swallowed", "length", "told"), [
    (10, 9.0, True), (4, 9.0, False), (10, 0.5, False)])
def test_few_updates_are_told_of_a_harm_where_most_of_the_way_is_lost_with_them(
    swallowed, length, told
):
    """As of a mean temperature, the one number far from its end."""
    rows = {"a": row(990, 20, parameters=of_parameters(weight=(990, 20))),
            "b": row(10, swallowed, parameters=of_parameters(mean=(10, swallowed)))}
    report = {"swallowed": rows, "shadow": {"motions": [
        {"name": "a.weight", "arrived": 0.9, "length": 1.0, "is_parameter": True},
        {"name": "b.mean", "arrived": 0.0, "length": length, "is_parameter": True}]}}
    assert lost_updates(report) is None
    lost = lost_updates(report, is_harmed=True)
    assert (lost is not None) == told
    if told:
        assert lost.sentence.startswith(f"Updates are swallowed: {swallowed} of 10 updates of mean")
        assert 0.98 < lost.harm < 1


def test_the_first_swallowed_update_has_the_place():
    places = iter([(1, "train.py:7"), (2, "train.py:8")])
    updates, one = Updates(lambda: next(places)), np.ones(1, np.float32)
    for term in (0.5, 1e-5, 1e-5):
        after = np.where(term > 0.1, 1 + term, 1).astype(np.float32) * one
        updates.move("a", BINARY16, one, "add", (np.float32([term]),), 1.0, after, "w")
    told = updates.summary()["a"]
    assert (told["format"], told["step"], told["line"]) == ("binary16", 1, "train.py:7")
    assert told["parameters"] == {"w": {"nonzero": 3, "swallowed": 2}}
