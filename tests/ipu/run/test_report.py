"""The mapping of a run (golden)."""

from __future__ import annotations

import json

from fpsim.records.units import find_unit
from ipu.machine import Device
from ipu.run.report import KINDS_OF_VALUES, totals, units
from ipu.run.text import report_lines
from tests.ipu.run.runs import make_report, quiet_report


def test_layers_and_totals():
    report = make_report()
    assert list(report["layers"]) == ["net.a", "net.b", "optimizer"]
    assert report["layers"]["optimizer"]["optimizer"]["DIVBYZERO"] == 64
    assert totals(report["layers"], "DIVBYZERO") == 64
    assert totals(report["layers"], "results") == 2 * (16 + 64) + 64


def test_exponents_by_kind():
    exponents = make_report()["exponents"]
    assert set(exponents) == set(KINDS_OF_VALUES)
    assert [row["layer"] for row in exponents["activations"]] == ["net.a", "net.b"]
    assert all(row["emin"] == -14 for row in exponents["gradients"])
    assert exponents["updates"][0]["counts"] == {-14: 6, -2: 2}


def test_swallowed_updates_by_layer():
    row = make_report()["swallowed"]["net.a"]
    assert (row["nonzero"], row["swallowed"], row["share"]) == (8, 6, 0.75)


def test_loss_scale_of_gradients_that_underflow():
    scale = make_report()["loss_scale"]
    assert scale["present"] == 1.0
    assert 1 < scale["best"] <= scale["highest_safe"]
    assert scale["lost"][1] < scale["lost"][0]


def test_units_share_all_multiply_adds():
    (row,) = make_report()["units"]
    assert (row["unit"], row["products"], row["macs"], row["share"]) == ("AMP_F16_F32", 2, 512, 1.0)
    assert row["layers"] == {"net.a": 256, "net.b": 256}


def test_units_without_a_ledger_are_named():
    device = Device()
    device.units_used["V100_F16_F32"] = find_unit("V100_F16_F32")
    (row,) = units(device)
    assert (row["unit"], row["products"], row["share"]) == ("V100_F16_F32", None, 0.0)
    lines = list(report_lines(quiet_report() | {"units": [row]}))
    assert (
        lines[-1] == "unit V100_F16_F32: computed products, which are not counted for this target"
    )


def test_a_run_that_did_not_count_has_the_same_keys():
    assert quiet_report().keys() == make_report().keys()
    json.dumps(quiet_report())
