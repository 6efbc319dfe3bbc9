"""fpsim bench at tiny size: fields of the records, bad input (golden)."""

from __future__ import annotations

import json
from importlib.util import find_spec

import pytest

from ipu.experiments.bench import TOPICS
from ipu.experiments.bench.timing import TimedCase
from ipu.experiments.cli import main
from tests.tiers import pick

FIELDS = [
    "topic", "format", "rounding", "bits", "flags", "data", "n", "threads", "ns_per_element",
    "reference", "ratio", "peer", "rounds", "range", "share", "hardware",
]


#: Topics whose records have these fields; that of arithmetic compiles a dozen kernels, in the full
#: tier. Graphs have a test of their own, where their framework is.
CALLS = TOPICS.keys() - {"gemm", "compile", "train", "collectives", "graphs"}
#: Those of which every record is beside torch's own, and there is none where torch is not.
BESIDE_TORCH = {"operations", "programs", "learned", "growth", "largest", "updates"}


@pytest.mark.parametrize("topic", pick(sorted(CALLS - {"arith"}), sorted(CALLS), sorted(CALLS)))
def test_records_have_the_promised_fields(topic, tmp_path, capsys):
    file = tmp_path / "records.json"
    assert main(["bench", topic, "--quick", "--n", "300", "--json", str(file)]) == 0
    records = json.loads(file.read_text())
    first, *lines = capsys.readouterr().out.splitlines()
    assert first.startswith("# ")
    assert len(records) == len(lines)
    for record in records:
        assert record["hardware"]["processor"] in first
        least, most = record["range"]
        assert least <= record["ratio" if record["reference"] else "ns_per_element"] <= most
        assert list(record) == FIELDS
        assert record["ns_per_element"] > 0
        assert record["threads"] == 1
        if record["reference"] is not None:
            assert record["ratio"] == pytest.approx(record["ns_per_element"] / record["reference"])
    if topic in BESIDE_TORCH:
        assert bool(records) == (find_spec("torch") is not None)
        assert all(r["peer"].startswith("torch ") for r in records)
    else:
        assert any(r["peer"] is None for r in records)


BAD = {
    "rounds": f"topic='rounds' is not known; use one of {', '.join(TOPICS)}",
    "round --threads 0": "threads",
    "round --n 0": "--n",
    "round --json /dev/null/x.json": "cannot be written to",
    "round other": "other is one argument too many",
    "compare one.json": "compare takes two files of records, got 1",
    "compare one.json two.json": "one.json is no file of records",
    "draw one.json": "draw takes files of records and a picture, got 1",
    "draw one.json picture.png": "one.json is no file of records",
}


@pytest.mark.parametrize("line", BAD)
def test_bad_input_is_one_line_and_status_two(line, capsys):
    assert main(["bench", *line.split()]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert BAD[line] in err
    assert err.count("\n") == 1


def test_what_was_measured_is_kept_when_a_run_is_interrupted(tmp_path, monkeypatch, capsys):
    def cases(size, quick):
        yield TimedCase("first", "f", lambda: lambda: None, None, 1, 1)
        raise KeyboardInterrupt

    monkeypatch.setattr("ipu.experiments.bench.round.cases", cases)
    file = tmp_path / "part.json"
    assert main(["bench", "round", "--busy", "--json", str(file)]) == 130
    assert [r["topic"] for r in json.loads(file.read_text())] == ["first"]
