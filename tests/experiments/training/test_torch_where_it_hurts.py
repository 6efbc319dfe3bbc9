"""Where .half() hurts: counted under the optimiser, and removed by the advice (golden, law)."""

from __future__ import annotations

import importlib.util

import pytest

from ipu.experiments.lab import store
from ipu.experiments.lab.result import Result, to_csv
from ipu.experiments.training import torch_where_it_hurts
from tests.experiments.figures import assert_panels

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="torch is not installed; make test-torch"
)
NETWORKS = ["transformer", "CNN"]
UNTRAINED = "binary32 itself does not train here"


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
    assert trials["fp16"]["answer"] in ("worse", UNTRAINED)
    for way in ("fp16+eps=0.0001", "fp16+states=f32"):
        assert trials[way]["divbyzero"] == trials[way]["invalid"] == 0
    assert trials["fp32"]["answer"] == "reference"


def test_the_answer_names_the_way(result):
    assert result.answer.count("DIVBYZERO began in step 0 in optimizer") == 2
    told = result.answer.count(UNTRAINED) + result.answer.count("cannot tell")
    assert told == len(NETWORKS), "six steps show too little to call any way as good"


def test_the_sentence_is_computed_a_second_time():
    """Made-up rows whose answers are as good, cannot tell, and none."""
    where = {"network": "CNN", "part": "trial"}
    good = {**where, "way": "mixed", "answer": "as good", "pairs": 8, "lost": 0.002,
            "lost_uncertainty": 0.001, "bits": 2.0}
    open_ = good | {"way": "fp16", "answer": "cannot tell", "lost": 0.015}
    sentences = [
        torch_where_it_hurts._answer_of("CNN", Result(rows, "", ""))
        for rows in ([good, open_], [open_], [good | {"answer": "worse", "lost": None}],
                     [good | {"answer": UNTRAINED, "note": "3 of 5 of its runs diverge"}])
    ]
    assert sentences[3].endswith(f"{UNTRAINED}: 3 of 5 of its runs diverge.")
    assert "mixed is as good as binary32 on 8 pairs of runs (0.2 % ± 0.1 % of" in sentences[0]
    assert "nearest is fp16, cannot tell (1.5 % ± 0.1 % of" in sentences[1]
    assert sentences[2].endswith("no way that was tried trains as binary32 does.")


def test_the_rows_can_be_kept(result):
    assert "CNN,counts," in to_csv(result.rows)


def test_the_tables_of_a_stored_result_are_those_of_the_result(result, tmp_path):
    store.save_data(tmp_path, result, {})
    stored, _ = store.load(tmp_path)
    assert torch_where_it_hurts.tables(stored) == torch_where_it_hurts.tables(result)


def test_the_figure_and_the_tables(result):
    assert_panels(torch_where_it_hurts.plot(result), 2)
    tables = torch_where_it_hurts.tables(result)
    assert len(tables) == 4
    for table in tables:
        assert all(len(line) == len(table.heads) for line in table.lines)
