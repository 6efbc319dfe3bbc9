"""Your own network: the document's example runs, and its page says what it promises (golden)."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest

from ipu.experiments.lab import store
from ipu.experiments.lab.variants import FLAGS
from tests.tiers import pick

PAGE = Path(__file__).parents[3] / "docs" / "your-network.md"
EXAMPLE = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def example() -> str:
    (code,) = EXAMPLE.findall(PAGE.read_text(encoding="utf-8"))
    return code


def test_the_example_is_about_twenty_lines(example):
    assert len([line for line in example.splitlines() if line]) <= 20


def test_the_example_compares_three_ways_by_layer(example, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    epochs = pick(1, 3, 3)
    exec(example.replace("epochs=3", f"epochs={epochs}"), {})
    (said,) = capsys.readouterr().out.splitlines()
    assert said == "reports/my-network.html"
    text = Path(said).read_text(encoding="utf-8")
    assert "data:image/png;base64" in text
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
