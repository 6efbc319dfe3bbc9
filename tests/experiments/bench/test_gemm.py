"""The benchmark of products at tiny size: fields and rows (golden)."""

from __future__ import annotations

import json

import pytest

from ipu.experiments.bench import gemm
from ipu.experiments.bench.timing import Size
from ipu.experiments.cli import main
from tests.tiers import pick, reaches

FIELDS = [
    "topic", "format", "rounding", "bits", "flags", "data", "n", "threads", "ns_per_element",
    "reference", "ratio", "peer", "rounds", "range",
]


TINY = Size(n=300, repeats=1)


PRODUCT_FIELDS = ["gmac_per_s" if f == "ns_per_element" else f for f in FIELDS] + [
    "kind",
    "share", "hardware",
]


KINDS = {
    "fp16-mac", "any-mac", "sr-fma", "sr-mac", "amp-exact", "amp-exact-worst", "amp-window",
    "tensor-core", "blas-f32", "blas-f64",
}


#: What the quick tier measures: every kind compiles kernels of its own.
MEASURED = pick({"fp16-mac", "amp-window", "blas-f32"}, KINDS, KINDS)


def test_products_have_a_rate_and_a_kind(tmp_path, capsys, monkeypatch):
    if not reaches("full"):
        first = {case.kind: case for case in reversed(list(gemm.cases(TINY, quick=True)))}
        assert first.keys() >= KINDS
        few = [first[kind] for kind in sorted(MEASURED)]
        monkeypatch.setattr(gemm, "cases", lambda size, quick: few)
    file = tmp_path / "records.json"
    assert (
        main(["bench", "gemm", "--quick", "--n", "20", "--threads", "2", "--json", str(file)]) == 0
    )
    records = json.loads(file.read_text())
    for record in records:
        assert list(record) == PRODUCT_FIELDS
        assert record["threads"] == 2
        assert record["ratio"] == pytest.approx(record["gmac_per_s"] / record["reference"])
    assert {r["kind"] for r in records} >= MEASURED
    assert capsys.readouterr().out.count("GMAC/s") == len(records)


def test_every_family_of_units_and_any_mode_has_a_row():
    rows = list(gemm.cases(TINY, quick=False))
    units = [c.topic.split()[1] for c in rows if c.kind == "tensor-core"]
    assert [u.split("_")[0] for u in units] == ["V100", "A100", "ADA", "H100", "B200"]
    assert {(c.rounding, c.bits) for c in rows if c.kind == "sr-mac"} >= {("SR", 16), ("SR", 24)}
    assert {c.data for c in rows if c.kind == "any-mac"} == {"normal", "small", "large"}
