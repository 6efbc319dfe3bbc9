"""The benchmark of training at tiny size: what the records hold, never how fast anything is."""

from __future__ import annotations

import importlib.util
import json

import pytest

from ipu.experiments.bench import train
from ipu.experiments.bench.steps import phases
from ipu.experiments.bench.timing import Size
from ipu.experiments.cli import main
from tests.tiers import pick

#: Presets of the units, each with kernels of its own.
PRESETS = pick(["window"], *[["exact", "window"]] * 2)


def test_records_predict_from_the_products_rate(tmp_path, capsys, monkeypatch):
    usual = train.cases
    monkeypatch.setattr(train, "cases", lambda *size: list(usual(*size))[-len(PRESETS) :])
    file = tmp_path / "records.json"
    assert main(["bench", "train", "--quick", "--n", "2", "--json", str(file)]) == 0
    records = json.loads(file.read_text())
    assert [(r["network"], r["preset"]) for r in records] == [("ResNet-8", p) for p in PRESETS]
    assert capsys.readouterr().out.count("images/s") == len(PRESETS)
    for record in records:
        assert record["predicted"] == pytest.approx(record["gmac_per_s"] * 1e9 / record["macs"])
        assert record["ratio"] == pytest.approx(record["images_per_s"] / record["predicted"])
        assert sum(record["shares"].values()) == pytest.approx(1)
        assert list(record["shares"]) == list(phases.PHASES)
        assert record["memory"] == pytest.approx(record["peak_bytes"] / record["live_bytes"])
        assert record["memory"] > 1


@pytest.mark.parametrize("has_torch", [False, True])
def test_every_network_is_measured_in_both_ways(monkeypatch, has_torch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: has_torch or None)
    names = [case.args[0] for case in train.cases(train.SIZES[0], quick=False)]
    torch_alone = ["Transformer"] * 2 if has_torch else []
    assert names == ["ResNet-8"] * 2 + ["MNIST CNN"] * 2 + torch_alone


def test_a_network_in_pytorch_runs_through_the_front_end():
    pytest.importorskip("torch")
    *_, measure = train.cases(Size(n=2, repeats=1), quick=False)
    record = measure()
    assert record.network == "Transformer"
    assert record.macs > 10_000
    assert record.memory is None
    assert record.peer in record.peers
    assert record.peers[record.peer] == record.peer_images_per_s
    assert sum(record.shares.values()) == pytest.approx(1)
    assert record.shares["products"] > 0
    assert str(record).count("images/s") == 1
