"""Results for a paper: vector graphics, tables that LaTeX reads, a citation (golden, law)."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from ipu.experiments.cli import main
from ipu.experiments.lab import store
from ipu.experiments.lab.catalogue import find
from ipu.experiments.lab.paper import _TITLE, latex, write_paper
from ipu.experiments.lab.result import Table

ROOT = Path(__file__).parents[3]


def test_a_stored_result_becomes_five_kinds_of_files_twice_with_the_same_bytes(out, tmp_path):
    result, meta = store.load(out / "dice")
    folders = [tmp_path / name for name in ("a", "b")]
    first, second = (write_paper(find("dice"), result, meta, folder) for folder in folders)
    assert [path.name for path in first] == [
        "dice.pdf", "dice.svg", "dice-table-1.tex", "dice.bib"]
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes()
    pdf = first[0].read_bytes()
    assert pdf.startswith(b"%PDF")
    assert b"CreationDate" not in pdf
    assert b"/Subtype /Type3" not in pdf, "letters are letters"
    ET.fromstring(first[1].read_text())
    assert meta["data_sha256"] in first[3].read_text()
    table = first[2].read_text()
    assert table.count(r"\\") == 1 + len(result.rows)


@pytest.mark.parametrize("text", ["a_b", "50 %", "x & y", "{$}", r"a\b", "~^#", "−1 ± 2 ≥ 0"])
def test_no_letter_is_left_that_latex_reads_as_its_own(text):
    cell = latex(Table("T", ["h"], [[text]]), "tab:t").splitlines()[7].removesuffix(r" \\").strip()
    plain = re.sub(r"\\(text\w+\{\}|[{}$&%#_,])|\$(\\\w+(12)?|-)\$", "", cell)
    assert not set(plain) & set("\\{}$&%#_~^−±≥")


def test_the_title_is_that_of_the_citation_file():
    told = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f'title: "{_TITLE}"' in told


def test_a_result_that_is_not_there_says_how_to_compute_it(tmp_path, capsys):
    assert main(["paper", "swamping", "--results", str(tmp_path)]) == 2
    assert f"compute it with: fpsim run swamping --out {tmp_path}" in capsys.readouterr().err
