"""Two reports side by side, from both folders' data: equal ones, others, longer ones (law)."""

from __future__ import annotations

import shutil

import pytest

from ipu.experiments.lab import store
from ipu.experiments.lab.beside import write_beside
from ipu.experiments.lab.result import Result
from tests.experiments.readers.beside import read_beside


@pytest.fixture
def folders(out, tmp_path):
    """A report, and makes one of which rows are others."""

    def changed(change):
        other = tmp_path / "other"
        shutil.copytree(out, other)
        result, meta = store.load(other / "dice")
        rows = [dict(row) for row in result.rows]
        change(rows)
        told = Result(rows, "It shows 7.", result.policy, {}, result.units)
        store.save_data(other / "dice", told, meta)
        return out, other

    return changed


def last_bit(rows):
    rows[4]["share"] = float(rows[4]["share"]) + 2.0**-50


def many(rows):
    for row in rows[3:20]:
        row["shown"] = 9


@pytest.mark.parametrize(("change", "differing"), [
    (lambda rows: None, []), (last_bit, ["dice"]), (many, ["dice"]),
    (lambda rows: rows.append({"roll": 30, "shown": 6, "share": 1.0}), ["dice"]),
    (lambda rows: rows.pop(), ["dice"]),
])
def test_verdicts_and_cells_follow_from_the_data(folders, tmp_path, change, differing):
    left, right = folders(change)
    page = tmp_path / "page.html"
    write_beside(left, right, page)
    text = page.read_text(encoding="utf-8")
    assert read_beside(text, left, right) == differing
    wrong = text.replace("of 30 rows differ", "of 29 rows differ").replace(
        "bits: 30 rows", "bits: 31 rows").replace("of 31 rows", "of 30 rows")
    with pytest.raises(AssertionError):
        read_beside(wrong, left, right)
