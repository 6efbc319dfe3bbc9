"""Where .half() hurts: counted under the optimiser, and removed by the advice (golden, law)."""

from __future__ import annotations

import importlib.util

import pytest

from ipu.experiments.lab.result import to_csv
from ipu.experiments.training import torch_where_it_hurts
from tests.experiments.figures import assert_panels

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="torch is not installed; make test-torch"
)
NETWORKS = ["transformer", "CNN"]


@pytest.fixture(scope="module")
def result():
    return torch_where_it_hurts.run(quick=True, seed=0)


@pytest.mark.parametrize("network", NETWORKS)
def test_divisions_by_zero_begin_in_the_optimiser(result, network):
    first = result.select(network=network, part="first")[0]
    assert (first["flag"], first["step"], first["direction"]) == ("DIVBYZERO", 0, "optimizer")
    divided = [r for r in result.select(network=network, part="counts") if r["divbyzero"]]
    assert [row["layer"] for row in divided] == ["optimizer"]
    assert "1e-08 is zero in binary16" in result.select(network=network, part="advice")[0][
        "evidence"
    ]


@pytest.mark.parametrize("network", NETWORKS)
def test_the_advice_removes_them(result, network):
    trials = {row["way"]: row for row in result.select(network=network, part="trial")}
    assert trials["fp16"]["divbyzero"] > 0
    assert trials["fp16"]["restores"] == "no"
    for way in ("fp16+eps=0.0001", "fp16+states=f32"):
        assert trials[way]["divbyzero"] == trials[way]["invalid"] == 0
    # The states in binary32 follow binary32 closely: six steps, the same batches.
    assert abs(trials["fp16+states=f32"]["above"]) < 0.01
    assert result.select(network=network, part="trial")[0]["restores"] == "yes"


def test_the_answer_names_the_way(result):
    assert result.answer.count("DIVBYZERO began in step 0 in optimizer") == 2
    assert result.answer.count("restores binary32's loss") == 2


def test_the_rows_can_be_kept(result):
    assert "CNN,counts," in to_csv(result.rows)


def test_the_figure_and_the_tables(result):
    assert_panels(torch_where_it_hurts.plot(result), 2)
    tables = torch_where_it_hurts.tables(result)
    assert len(tables) == 4
    for table in tables:
        assert all(len(line) == len(table.heads) for line in table.lines)
