"""The benchmark of training at tiny size: what the records hold, never how fast anything is."""

from __future__ import annotations

import json

import pytest

from ipu.experiments.bench import phases, train
from ipu.experiments.cli import main


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
