"""The four variants of the pipelining tutorial: golden (schedules), law (equal bits)."""

from __future__ import annotations

import importlib.util
import json

import pytest
from matplotlib import pyplot as plt

from ipu.experiments.execution import mnist_pipeline as variants
from ipu.experiments.lab.catalogue import catalogue
from ipu.plan.memory import peaks
from tests.experiments.figures import assert_panels


@pytest.fixture(scope="module")
def quick():
    pytest.importorskip("torch", reason="torch is not installed; run: make test-torch")
    return variants.run(quick=True, seed=1)


def test_without_torch_the_catalogue_says_what_is_missing(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    missing = catalogue()["mnist_pipeline"].missing
    assert missing.startswith("mnist_pipeline needs torch, which is not installed; install it with")


@pytest.mark.source("S2-26", "S2-28", "S2-29")
def test_variants_differ_in_time_and_memory_and_in_no_bit(quick):
    rows = {row["variant"]: row for row in quick.rows if "digest" in row}
    assert list(rows) == [
        "pipelined", "pipelined, state offloaded", "sharded", "sharded, state offloaded",
    ]
    assert len({row["digest"] for row in rows.values()}) == 1
    assert [row["slots"] for row in rows.values()] == [16, 16, 80, 80]
    pipelined, away = rows["pipelined"], rows["pipelined, state offloaded"]
    sharded = rows["sharded"]
    assert sharded["utilisation"] == pytest.approx(0.25)
    assert pipelined["utilisation"] > sharded["utilisation"]
    assert pipelined["cycles"] < sharded["cycles"]
    assert pipelined["bytes_of_all"] > sharded["bytes_of_all"]
    assert (pipelined["remote_bytes"], away["remote_bytes"] > 700_000) == (0, True)
    assert away["bytes_of_all"] < pipelined["bytes_of_all"]
    assert away["end"] > pipelined["end"]
    assert "the same bits" in quick.answer


@pytest.mark.source("S2-11")
def test_stages_exchange_the_tutorials_activations(quick):
    """Batch 40 in binary32: images with labels, then 10×12×12, 20×4×4, 256 numbers each."""
    figures = variants._plans(quick)["pipelined"].figures
    images, labels = 40 * 784 * 4, 40 * 8
    inputs = [images + labels, 40 * 1440 * 4, 40 * 320 * 4, 40 * 256 * 4]
    assert [f.input_bytes for f in figures] == inputs
    assert [f.parameter_bytes for f in figures] == [1040, 20080, 328_704, 10_280]
    assert [f.state_bytes for f in figures] == [2 * f.parameter_bytes for f in figures]


def test_pictures_show_every_ipu(quick):
    figure = variants.plot(quick)
    try:
        assert_panels(figure, 4)
        assert [axes.get_title(loc="left") for axes in figure.axes[:4]] == [
            title for title in (axes.get_title(loc="left") for axes in figure.axes[:4]) if title
        ]
    finally:
        plt.close(figure)
    measured = variants._plans(quick)["sharded"]
    assert sorted(peaks(measured.lives)) == [0, 1, 2, 3]
    assert {"slots.json", "account.json", "trace.json"} <= set(quick.files)
    assert json.loads(quick.files["account.json"])
    (table,) = variants.tables(quick)
    assert all(len(line) == len(table.heads) for line in table.lines)
