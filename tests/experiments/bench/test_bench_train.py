"""The benchmark of training at tiny size: what the records hold, never how fast anything is."""

from __future__ import annotations

import json
import time

import pytest

from fpsim import BINARY16
from fpsim.products import conv
from ipu.experiments.bench import phases, train
from ipu.experiments.cli import main
from ipu.machine import Device


def test_records_predict_from_the_products_rate(tmp_path, capsys):
    file = tmp_path / "records.json"
    assert main(["bench", "train", "--quick", "--n", "2", "--json", str(file)]) == 0
    records = json.loads(file.read_text())
    assert [(r["network"], r["preset"]) for r in records] == [
        ("ResNet-8", "exact"), ("ResNet-8", "window"),
    ]  # fmt: skip
    assert capsys.readouterr().out.count("images/s") == 2
    for record in records:
        assert record["predicted"] == pytest.approx(record["gmac_per_s"] * 1e9 / record["macs"])
        assert record["ratio"] == pytest.approx(record["images_per_s"] / record["predicted"])
        assert sum(record["shares"].values()) == pytest.approx(1)
        assert list(record["shares"]) == list(phases.PHASES)
        assert record["memory"] == pytest.approx(record["peak_bytes"] / record["live_bytes"])
        assert record["memory"] > 1


def test_both_networks_are_measured():
    names = [case.args[0] for case in train.cases(train.SIZES[0], quick=False)]
    assert names == ["ResNet-8"] * 2 + ["MNIST CNN"] * 2


def test_each_second_counts_for_the_phase_that_was_entered_last():
    device, before = Device(), conv.conv2d
    x = device.from_host([1.0], BINARY16)

    def step():
        with device.naming("section/norm"):
            device.reduce_sum(x, 0)
        time.sleep(0.05)
        device.add(x, x)

    step()  # compiles
    found = phases.shares(step, device)
    assert found["products"] == 0
    assert found["bookkeeping"] > max(found["norms"], found["elementwise"]) > 0
    assert conv.conv2d is before
    assert "add" not in vars(device)
