"""Your own network: the document's example runs, and its page says what it promises (golden)."""

from __future__ import annotations

import math
import re
import statistics
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from ipu.experiments.lab import store
from ipu.experiments.lab import study as study_module
from ipu.experiments.lab.study import USUAL
from ipu.experiments.lab.variants import FLAGS, Variant
from ipu.experiments.sweep.cluster import DaskCluster
from ipu.feed.data import digits
from ipu.learn.nn import dense
from ipu.learn.optim import SGD
from ipu.learn.policy import FP16, FP32
from ipu.ops import reshape
from tests.experiments.figures import assert_panels
from tests.tiers import pick

PAGE = Path(__file__).parents[3] / "docs" / "your-network.md"
EXAMPLE = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def example() -> str:
    code, *_ = EXAMPLE.findall(PAGE.read_text(encoding="utf-8"))
    return code


def test_the_example_is_about_twenty_lines(example):
    assert len([line for line in example.splitlines() if line]) <= 20


def test_the_example_compares_three_ways_by_layer(example, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    epochs = pick(1, 3, 3)
    exec(example.replace("epochs=3", f"epochs={epochs}"), {})
    (path,) = capsys.readouterr().out.splitlines()
    assert path == "reports/my-network.html"
    text = Path(path).read_text(encoding="utf-8")
    assert "<svg" in text
    assert "Test accuracy: FP32" in text
    result, meta = store.load(tmp_path / "reports" / "my-network")
    names = ["FP32", "mixed", "FP16 + SR"]
    assert [r["policy"] for r in result.select(part="test")] == names
    for name in names:
        losses = result.column("loss", part="loss", policy=name)
        assert all(after < before for before, after in pairwise(losses))
        rows = result.select(part="exceptions", policy=name)
        assert {r["layer"] for r in rows} >= {"hidden", "output", "loss"}
        assert {r["phase"] for r in rows} >= {"forward", "gradient", "update"}
        assert all(flag in row for row in rows for flag in FLAGS.values())
    assert meta["seed"] == 0


def exception_row(policy, layer, results, underflow):
    return {"part": "exceptions", "policy": policy, "layer": layer, "phase": "forward",
            "results": results, "underflow": underflow}


ROWS = [
    *({"part": "test", "policy": "a", "seed": s, "accuracy": x} for s, x in enumerate((0.5, 0.75))),
    *({"part": "test", "policy": "b", "seed": s, "accuracy": 0.25} for s in (0, 1)),
    exception_row("a", "first", 1000, 0),
    exception_row("a", "last", 10_000, 1),
    exception_row("b", "first", 100, 0),
]


def test_the_sentence_is_computed_a_second_time():
    """A small share that underflowed is named; each policy has its own accuracy."""
    a, b = statistics.mean((50, 75)), statistics.mean((25, 25))
    half = stats.t.ppf(0.975, 1) * statistics.stdev((50, 75)) / math.sqrt(2)
    assert study_module._answer(ROWS) == (
        f"Test accuracy: a: {a:.1f} ± {half:.1f} %; b: {b:.1f} ± 0.0 %. Beside a: "
        "b: cannot tell (2 of 5 pairs). Underflow is highest with a in last, forward: "
        "0.01 % of the results."
    )
    quiet = [row for row in ROWS if row.get("layer") != "last"]
    assert study_module._answer(quiet).endswith("Nothing underflowed.")


def network(images):
    return dense(reshape(images, shape=(images.shape[0], 64)), 10, "only")


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """Two ways of training on few digits, tested on more images than a chunk holds."""
    every = digits()
    data = replace(every, learn=every.learn[:64], test=every.test[:270])
    ways = [Variant("FP32", FP32), Variant("FP16 + SR", FP16, stochastic=True)]
    one = study_module.Study("small", "How?", 0.0, False, network, data, SGD(0.05), tuple(ways),
                             1, 32, 1, {})
    return one, one.run(False, 0)


def test_every_test_image_is_scored_once(small):
    one, result = small
    scored = []

    class Counting:
        """Recognises the last image alone."""

        def accuracy(self, values, labels):
            scored.extend(labels)
            last = len(scored) == len(one.data.test)
            return 1 / len(labels) if last else 0.0

    share = one._accuracy(Counting())
    assert np.array_equal(scored, one.data.test.labels)
    assert share == pytest.approx(1 / 270)
    for row in result.select(part="test"):
        assert (row["accuracy"] * 270) == pytest.approx(round(row["accuracy"] * 270))


def test_accuracies_are_those_of_each_policy_alone(small):
    one, result = small
    for variant in one.variants:
        trainer = one._trainer(variant, 0, count=True)
        rows = list(one._train(variant, trainer, 0))
        accuracy = trainer.accuracy(one.data.test.values, one.data.test.labels)
        assert rows[-1]["accuracy"] == pytest.approx(accuracy)
        (stored,) = result.select(part="test", policy=variant.name)
        assert stored["accuracy"] == rows[-1]["accuracy"]


def test_every_panel_shows_data(small):
    one, result = small
    assert_panels(one.plot(result), 2)
    (table,) = one.tables(result)
    assert table.heads == ["layer, phase", "FP32", "FP16 + SR"]


@pytest.mark.parametrize("name", ["../evil", "/evil", "a/b", "..", ".", "", ".hidden", "index",
                                  "a" * 101, 3])
def test_a_study_stays_inside_its_folder(name, tmp_path, small):
    one, _ = small
    out = tmp_path / "out"
    with pytest.raises(ValueError, match=r"^name=.* cannot name a page in"):
        study_module.study(name, network, one.data, SGD(0.05), out=out)
    assert not list(tmp_path.iterdir())


def test_names_of_the_usual_ways_say_what_they_are():
    single, mixed, stochastic = USUAL
    assert (str(single.policy), single.loss_scale.value, single.stochastic) == (
        "p=f32,c=f32,part=f32", 1.0, False,
    )
    assert mixed.name == f"mixed, loss × {mixed.loss_scale.value:g}"
    assert str(mixed.policy) == "p=f32,c=f16,part=f32"
    assert (str(stochastic.policy), stochastic.stochastic) == ("p=f16,c=f16,part=f32", True)


def test_a_cluster_trains_the_same(tmp_path, small):
    """Trainings on two workers give the rows of one process; the network is a closure."""
    pytest.importorskip("distributed", reason="needs the extra dask; run: make test-distributed")
    one, alone = small
    width = 64

    def model(images):
        return dense(reshape(images, shape=(images.shape[0], width)), 10, "only")

    path = study_module.study(
        "small", model, one.data, SGD(0.05), one.variants, epochs=1, out=tmp_path,
        cluster=DaskCluster(workers=2),
    )
    assert path == tmp_path / "small.html"
    result, _ = store.load(tmp_path / "small")
    assert result.to_csv() == alone.to_csv()
    assert result.units == alone.units


def test_a_cluster_that_may_not_be_used_is_refused_before_any_work(tmp_path, small):
    pytest.importorskip("distributed", reason="needs the extra dask; run: make test-distributed")
    one, _ = small
    with pytest.raises(ValueError, match=r"^scheduler='tcp://10.0.0.5:1' is outside"):
        study_module.study("small", network, one.data, SGD(0.05), out=tmp_path / "out",
                           cluster="tcp://10.0.0.5:1")
    assert not (tmp_path / "out" / "small").exists()
