"""Benchmarks run at tiny size: what the records hold, never how fast anything is (golden)."""

from __future__ import annotations

import json

import numpy as np
import pytest

from fpsim.elementwise.apply import apply
from fpsim.records.formats import BINARY16
from fpsim.records.rounding import MODES, RNE, RTP, RTZ, SR
from fpsim.records.settings import Settings
from fpsim.state.threads import get_threads
from ipu.experiments.bench import TOPICS, arith, gemm, startup
from ipu.experiments.bench import compile as compiling
from ipu.experiments.bench import round as rounding
from ipu.experiments.bench.data import make
from ipu.experiments.bench.peers import rounding_peers
from ipu.experiments.bench.timing import Case, Size, run
from ipu.experiments.cli import main

FIELDS = [
    "topic", "format", "rounding", "bits", "flags", "data", "n", "threads", "ns_per_element",
    "reference", "ratio", "peer",
]  # fmt: skip
TINY = Size(n=300, repeats=1)


@pytest.mark.parametrize("topic", sorted(TOPICS.keys() - {"gemm", "compile", "train"}))
def test_records_have_the_promised_fields(topic, tmp_path, capsys):
    file = tmp_path / "records.json"
    assert main(["bench", topic, "--quick", "--n", "300", "--json", str(file)]) == 0
    records = json.loads(file.read_text())
    assert len(records) == len(capsys.readouterr().out.splitlines())
    for record in records:
        assert list(record) == FIELDS
        assert record["ns_per_element"] > 0
        assert record["threads"] == 1
        if record["reference"] is not None:
            assert record["ratio"] == pytest.approx(record["ns_per_element"] / record["reference"])
    assert {r["peer"] is None for r in records} >= {True}


PRODUCT_FIELDS = ["gmac_per_s" if f == "ns_per_element" else f for f in FIELDS] + ["kind"]
KINDS = {
    "fp16-mac", "any-mac", "sr-fma", "sr-mac", "amp-exact", "amp-exact-worst", "amp-window",
    "tensor-core", "blas-f32", "blas-f64",
}  # fmt: skip


def test_products_have_a_rate_and_a_kind(tmp_path, capsys):
    file = tmp_path / "records.json"
    assert (
        main(["bench", "gemm", "--quick", "--n", "20", "--threads", "2", "--json", str(file)]) == 0
    )
    records = json.loads(file.read_text())
    for record in records:
        assert list(record) == PRODUCT_FIELDS
        assert record["threads"] == 2
        assert record["ratio"] == pytest.approx(record["gmac_per_s"] / record["reference"])
    assert {r["kind"] for r in records} >= KINDS
    assert capsys.readouterr().out.count("GMAC/s") == len(records)


def test_every_family_of_units_and_any_mode_has_a_row():
    rows = list(gemm.cases(TINY, quick=False))
    units = [c.topic.split()[1] for c in rows if c.kind == "tensor-core"]
    assert [u.split("_")[0] for u in units] == ["V100", "A100", "ADA", "H100", "B200"]
    assert {(c.rounding, c.bits) for c in rows if c.kind == "sr-mac"} >= {("SR", 16), ("SR", 24)}
    assert {c.data for c in rows if c.kind == "any-mac"} == {"normal", "small", "large"}


def test_a_rate_is_multiply_adds_by_time():
    ticks = iter([2.0, 1.0, 4.0])
    case = Case(
        "t", "f", lambda: lambda: None, None, 1000, 3, clock=lambda _: next(ticks), kind="k"
    )
    (record,) = run([case], 1)
    assert record.gmac_per_s == 0.5


def test_compilation_is_timed_in_processes_of_its_own(monkeypatch):
    monkeypatch.setattr(compiling, "PRODUCT", "print({call})")
    family = compiling.Family("BINARY16", "RNE", "2.5")
    monkeypatch.setattr(compiling, "FAMILIES", {"none": family})
    records = list(run(compiling.cases(Size(1, 1), quick=True), 1))
    assert [(r.topic, r.data, r.ns_per_element) for r in records] == [
        ("cold none", "0 kernels", 2.5e9),
        ("warm none", "0 kernels", 2.5e9),
    ]


def described(cases):
    return {(c.topic, c.format, c.rounding, c.bits, c.flags, c.data, c.peer) for c in cases}


def test_the_table_has_every_format_mode_and_kind_of_data():
    mine = {c for c in described(rounding.cases(TINY, quick=False)) if c[-1] is None}
    assert len({c[1] for c in mine if c[0] == "round"}) == 12
    for bits in (4, 13, 32):
        for flags in (False, True):
            for data in ("normal", "mixed"):
                assert ("round", "binary16", "SR", bits, flags, data, None) in mine
    assert ("round", "e4m3fn", "RTO", None, True, "mixed", None) in mine
    assert ("round packed", "bfloat16", "RNE", None, False, "mixed", None) in mine
    assert ("round float64", "binary32", "RTP", None, False, "mixed", None) in mine
    theirs = described(arith.cases(TINY, quick=False))
    assert ("arith fma", "binary32", "SR", 27, True, "normal", None) in theirs
    assert len({c[1] for c in theirs if c[0] == "arith divide"}) == 13
    assert {c[2] for c in theirs if c[:2] == ("arith divide", "binary16")} == {*MODES, "SR"}
    assert any(c[-1] and c[-1].startswith("numpy ") for c in theirs)


def test_startup_measures_processes_and_small_calls():
    names = {case.topic for case in startup.cases(TINY, quick=False)}
    assert {"startup import", "startup cold", "startup warm", "call add"} <= names


@pytest.mark.parametrize("flags", [False, True])
def test_what_is_timed_writes_the_result(flags):
    x, out = make("mixed", 300), np.empty(300, np.float32)
    rounding._call(BINARY16, RNE, flags, x, out)()
    wanted, _ = apply("convert", (x,), Settings(BINARY16))
    np.testing.assert_array_equal(out, wanted)


def test_mixed_data_is_what_it_says():
    x = make("mixed", 200_000)
    size = np.abs(x.astype(np.float64))
    assert x.dtype == np.float32
    assert np.isfinite(x).all()
    # N(0,1) alone has 1.6e-5 below 2**-16; the log-uniform 40 % put 12/45 of theirs there.
    assert 0.09 < (size < 2.0**-16).mean() < 0.13
    assert 0.02 < (size > 2.0**13).mean() < 0.06
    np.testing.assert_array_equal(x, make("mixed", 200_000))


def test_medians_and_ratio_come_from_the_clock():
    ticks = iter([5.0, 1.0, 3.0])
    case = Case("t", "f", lambda: lambda: None, None, 10, 3, clock=lambda call: next(ticks))
    (record,) = run([case], 1)
    assert record.ns_per_element == 3.0 / 10 * 1e9
    assert record.ratio is None


def test_threads_are_set_and_given_back():
    before = get_threads()
    seen = []
    case = Case("t", "f", lambda: lambda: seen.append(get_threads()), None, 1, 1)
    (record,) = run([case], 3)
    assert record.threads == 3
    assert set(seen) == {3}
    assert get_threads() == before


def test_a_tool_of_one_thread_is_measured_beside_one_thread():
    seen = []

    def call():
        seen.append(get_threads())

    (record,) = run([Case("t", "f", lambda: call, call, 1, 1, alone=True)], 3)
    assert record.threads == 1
    assert set(seen) == {1}
    cases = [*rounding.cases(TINY, quick=True), *arith.cases(TINY, quick=True)]
    alone = {c.peer.split()[0] for c in cases if c.peer and c.alone}
    assert alone >= {"numpy", "ml_dtypes", "gfloat"}
    assert "torch" not in alone
    assert not any(c.alone for c in cases if c.peer is None)


BAD = {
    "rounds": f"topic='rounds' is not known; use one of {', '.join(TOPICS)}",
    "round --threads 0": "threads",
    "round --n 0": "--n",
    "round --json /dev/null/x.json": "cannot be written to",
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
        yield Case("first", "f", lambda: lambda: None, None, 1, 1)
        raise KeyboardInterrupt

    monkeypatch.setattr("ipu.experiments.bench.round.cases", cases)
    file = tmp_path / "part.json"
    assert main(["bench", "round", "--json", str(file)]) == 130
    assert [r["topic"] for r in json.loads(file.read_text())] == ["first"]


@pytest.mark.parametrize("fmt", rounding.FORMATS, ids=str)
def test_every_tool_that_is_installed_takes_what_it_is_given(fmt):
    x, out = make("normal", 100), np.empty(100, np.float32)
    for mode in (RNE, RTZ, RTP, SR(13)):
        for _, prepare in rounding_peers(fmt, mode):
            prepare(x, out)()
