"""IBM FPgen's format, on lines written by hand from its description (golden)."""

from __future__ import annotations

import gzip

import pytest

from fpsim.judge.verify import fpgen
from fpsim.judge.verify.fpgen import decode, encode, verify
from ipu.experiments.cli import main

FILE = """\
Floating point tests: a heading is no operation that is known
b32+ =0 +1.000000P0 +1.000000P0 -> +1.000000P1
b32+ =0 i +Inf -Inf -> Q i
b32+ =0 +Inf -Inf -> Q i
b32- > +1.000000P0 +1.000000P0 -> +Zero
b32- < +1.000000P0 +1.000000P0 -> -Zero
b32* 0 +1.7FFFFFP127 +1.000000P1 -> +1.7FFFFFP127 xo
b32* =0 x +1.7FFFFFP127 +1.000000P1 -> +Inf xo
b32* =0 o +1.7FFFFFP127 +1.000000P1 -> +1.7FFFFFP-64 o
b32* =0 +1.7FFFFFP-64 +1.000000P-63 -> +1.000000P-126 xu
b32* > -1.000000P-126 +0.000001P-126 -> -Zero xu
b32/ =^ +1.000000P0 +1.400000P1 -> +1.2AAAABP-2 x
b32/ =0 -1.000000P0 +Zero -> -Inf z
b32/ =0 z -1.000000P0 +Zero -> # z
b32/ =0 +Zero S -> Q i
b32*+ =0 +1.000001P0 +1.000001P0 -1.000002P0 -> +1.000000P-46
b32*+ =0 +Inf +Zero Q -> Q i
b32*+ =0 +1.000000P0 -1.000000P0 +1.000000P0 -> # x
b64+ =0 +1.000000P0 nothing we read
d64* =0 1 2 -> 3
"""


@pytest.mark.source("IBM FPgen, description of the format")
def test_lines_written_by_hand():
    report = verify("sample", FILE.splitlines())
    # The last fused line is wrong on purpose: 1 * -1 + 1 is exact.
    assert str(report) == "sample: 14 vectors, 1 mismatches, 3 skipped, 3 ignored"
    assert report.failures == [
        "  line 18: b32*+ =0 +1.000000P0 -1.000000P0 +1.000000P0 -> # x  got +Zero "
    ]


@pytest.mark.parametrize("batch", [1, 5, 18])
def test_batches_of_lines_add_up(batch, monkeypatch):
    monkeypatch.setattr(fpgen, "_BATCH", batch)
    report = verify("sample", iter(FILE.splitlines()))
    assert str(report) == "sample: 14 vectors, 1 mismatches, 3 skipped, 3 ignored"
    assert report.failures[0].startswith("  line 18:")


@pytest.mark.parametrize(
    "line",
    [
        "b32+ =0 +1.000000P0 +1.000000P0 -> +1.000001P1",
        "b32+ =0 +1.000000P0 +1.000000P0 -> +1.000000P1 x",
        "b32+ =0 +Inf -Inf -> +Inf i",
        "b32* =0 +1.7FFFFFP-64 +1.000000P-63 -> +1.000000P-126 x",
        "b32- > +1.000000P0 +1.000000P0 -> -Zero",
    ],
)
def test_a_wrong_line_is_seen(line):
    assert verify("sample", [line]).mismatches == 1


def test_the_notation_there_and_back():
    for code in (0, 1, 0x7FFFFF, 0x800000, 0x3F800001, 0x7F7FFFFF, 0x7F800000, 0x7FC00000):
        assert decode(encode(code)) == code
        if code != 0x7FC00000:
            assert decode(encode(code | 1 << 31)) == code | 1 << 31


MALFORMED = {
    "b32+ =0 +1.000000P0 +1.000000P0": "has no ->",
    "b32+": "has no ->",
    "b32+ =0 +1.000000P0 -> +1.000000P1": "does not have 2 operands",
    "b32*+ =0 +1.000000P0 +1.000000P0 -> Q": "does not have 3 operands",
    "b32+ =1 +1.000000P0 +1.000000P0 -> +1.000000P1": "'=1' is no mode",
    "b32+ =0 y +1.000000P0 +1.000000P0 -> +1.000000P1": "'y' is no flag",
    "b32+ =0 +1.000000P0 +1.000000P0 -> +1.000000P1 y": "'y' is no flag",
    "b32+ =0 +1.800000P0 +1.000000P0 -> +1.000000P1": "'+1.800000P0' is no value",
    "b32+ =0 +1.000000P128 +1.000000P0 -> +1.000000P1": "'+1.000000P128' is no value",
    "b32+ =0 +0.000001P-125 +1.000000P0 -> +1.000000P1": "'+0.000001P-125' is no value",
    "b32+ =0 1.0 +1.000000P0 -> +1.000000P1": "'1.0' is no value",
    "b32+ =0 +1.000000P0 +1.000000P0 -> ## x": "'##' is no value",
}


@pytest.mark.parametrize("line", MALFORMED)
def test_a_malformed_line_is_named(line, tmp_path, capsys):
    file = tmp_path / "vectors.fptest"
    file.write_text(f"heading\n{line}\n")
    assert main(["verify", "fpgen", str(file)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "vectors.fptest, line 2: " in err
    assert MALFORMED[line] in err
    assert err.count("\n") == 1


def test_the_command(tmp_path, capsys):
    plain, packed = tmp_path / "a.fptest", tmp_path / "b.fptest.gz"
    plain.write_text(FILE)
    packed.write_bytes(gzip.compress(b"b32+ =0 +1.000000P0 +1.000000P0 -> +1.000000P1\n"))
    assert main(["verify", "fpgen", str(packed)]) == 0
    assert main(["verify", "fpgen", str(plain), str(packed)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("b.fptest.gz: 1 vectors, 0 mismatches, 0 skipped, 0 ignored")
    assert lines[2].startswith("  line 18: b32*+")


@pytest.mark.parametrize(
    "content",
    [b"\x1f\x8bno", gzip.compress(FILE.encode())[:-9],
     gzip.compress(FILE.encode())[:20] + b"\xff" * 20],
    ids=["a head alone", "cut short", "damaged"],
)
def test_damaged_files_are_refused_in_one_line(content, tmp_path, capsys):
    path = tmp_path / "a.fptest.gz"
    path.write_bytes(content)
    assert main(["verify", "fpgen", str(path)]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "a.fptest.gz is no text of vectors" in err


@pytest.mark.parametrize(
    "text", ["", "3C00 3C00 4000 00\n", "b32* =0 o +1.7FFFFFP127 +1.000000P1 -> +1.7FFFFFP-64 o\n"]
)
def test_files_without_a_vector_to_compare_are_refused(text, tmp_path, capsys):
    none, subset = tmp_path / "none.fptest", tmp_path / "some.fptest"
    none.write_text(text)
    subset.write_text(FILE.splitlines()[1])
    assert main(["verify", "fpgen", str(none)]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "none.fptest" in err
    assert main(["verify", "fpgen", str(none), str(subset)]) == 0
