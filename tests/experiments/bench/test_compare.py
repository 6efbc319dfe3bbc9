"""Two files of records side by side (golden)."""

from __future__ import annotations

import json

import pytest

from ipu.experiments.bench.compare import changes, read
from ipu.experiments.cli import main

HARDWARE = {
    "processor": "P", "cores": 2, "vector_bits": 256, "halves": None, "compiler": "LLVM",
}


def record(ratio, low, high, **fields):
    names = {"topic": "add", "format": "binary16", "rounding": "RNE", "flags": True, "n": 10}
    return {
        **names, "ratio": ratio, "range": [low, high], "rounds": 7, "hardware": HARDWARE,
        "ns_per_element": 9.0, **fields,
    }


@pytest.mark.parametrize(
    ("new", "verdict"),
    [
        (record(1.0, 0.9, 1.1), "faster"),
        (record(1.9, 1.7, 2.1), "within noise"),
        (record(3.0, 2.5, 3.1), "slower"),
        (record(1.0, 0.9, 1.1, rounds=3), "too few rounds"),
    ],
)
def test_a_verdict_needs_every_pair_of_rounds(new, verdict):
    (change,) = changes([record(2.0, 1.8, 2.2)], [new])
    assert change.verdict == verdict
    assert change.least == new["range"][0] / 2.2
    assert change.most == new["range"][1] / 1.8
    assert str(change).startswith("add binary16 RNE flags 10 ")


def test_more_is_better_for_rates():
    old, new = (record(r, r, r, gmac_per_s=r) for r in (1.0, 2.0))
    assert [c.verdict for c in changes([old], [new])] == ["faster"]


def test_without_a_reference_the_figure_is_compared():
    old = record(None, 8.0, 10.0)
    assert [
        c.new / c.old for c in changes([old], [record(None, 3.0, 4.0, ns_per_element=3.0)])
    ] == [3.0 / 9.0]


def test_rows_of_one_file_alone_are_left_out_and_told(tmp_path, capsys):
    files = [tmp_path / "a.json", tmp_path / "b.json"]
    files[0].write_text(json.dumps([record(1.0, 1.0, 1.0)]))
    files[1].write_text(json.dumps([record(1.0, 1.0, 1.0), record(1.0, 1.0, 1.0, n=11)]))
    assert main(["bench", "compare", *map(str, files)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["# old: P, 2 cores, vectors of 256 bits; LLVM",
                         "# new: P, 2 cores, vectors of 256 bits; LLVM"]
    assert len(lines) == 4
    assert lines[-1] == f"# 1 rows in both, 1 only in {files[1]}"
    files[1].write_text(json.dumps([record(1.0, 1.0, 1.0, n=12)]))
    assert main(["bench", "compare", *map(str, files)]) == 2
    assert "no measurement in common" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", "{}", "[1]", '[{"topic": "add"}]'])
def test_what_holds_no_records_is_refused(text, tmp_path):
    file = tmp_path / "records.json"
    file.write_text(text)
    with pytest.raises(ValueError, match=r"holds no records|is no file of records"):
        read(file)
