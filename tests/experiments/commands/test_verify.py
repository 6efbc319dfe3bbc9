"""fpsim verify: files and exit status (golden); the vectors have tests of their own."""

from __future__ import annotations

import gzip

import pytest

from ipu.experiments.cli import main

#: Lines of testfloat_gen f16_add: 1 + 1 = 2 without flags, and one with a wrong digit.
RIGHT, WRONG = "3C00 3C00 4000 00\n", "3C00 3C00 4001 00\n"


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(("line", "status"), [(RIGHT, 0), (WRONG, 1)])
def test_the_status_tells_agreement_from_mismatch(packed, line, status, tmp_path):
    file = tmp_path / "vectors"
    file.write_bytes(gzip.compress(line.encode()) if packed else line.encode())
    assert main(["verify", "testfloat", "f16_add", str(file)]) == status


def test_a_missing_file_is_one_line(tmp_path, capsys):
    assert main(["verify", "testfloat", "f16_add", str(tmp_path / "none")]) == 2
    assert "cannot be read" in capsys.readouterr().err


def test_an_unknown_operation_is_one_line(capsys):
    assert main(["verify", "exhaustive", "ad"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_engines_are_judged_and_a_product_is_repeated(capsys):
    assert main(["verify", "engines", "--outputs", "20", "--unit", "V100_F16_F32"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("engines, seed 0: ")
    assert " outputs, 0 mismatches, " in out
    assert main(["verify", "engines", "--product", "3"]) == 0  # a unit of the general engine alone
    assert main(["verify", "engines", "--unit", "V100_F16_F33"]) == 2
    assert "Did you mean" in capsys.readouterr().err


def test_one_file_of_vectors_is_enough(tmp_path, capsys):
    vectors, empty = tmp_path / "add.fptest", tmp_path / "empty.fptest"
    vectors.write_text("b32+ =0 +1.000000P0 +1.000000P0 -> +1.000000P1\n")
    empty.write_text("")
    assert main(["verify", "fpgen", str(vectors), str(empty)]) == 0
    assert main(["verify", "fpgen", str(empty)]) == 2
    assert "no vectors to compare in" in capsys.readouterr().err
