"""Several ways on one page (golden)."""

from __future__ import annotations

from ipu.run.pages.comparison import HEADS, Compared, summary_rows, write_comparison
from tests.ipu.run.runs import make_report, quiet_report


def test_a_page_has_every_way_and_what_it_printed(tmp_path):
    runs = [
        Compared("fp32", quiet_report(), "accuracy 91 %\n"),
        Compared("fp16", make_report(), "\n".join(map(str, range(100))), "fp16/index.html"),
        Compared("bf16", None, "", "", 2),
    ]
    page = write_comparison(tmp_path, runs, "train.py")
    text = page.read_text(encoding="utf-8")
    for words in ("train.py: side by side", "accuracy 91 %", 'href="fp16/index.html"',
                  "exited with status 2", "64 ÷ 0"):
        assert words in text
    assert text.count("exited with status") == 1
    assert "\n50\n" not in text  # only the last lines of a long output


def test_a_row_for_each_way():
    rows = summary_rows([Compared("fp16", make_report()), Compared("bf16", None, status=2)])
    assert all(len(row) == len(HEADS) for row in rows)
    assert rows[0][0] == "fp16"
    assert rows[0][HEADS.index("÷ 0")] == "64"
    assert rows[0][HEADS.index("swallowed")] == "75.0%"
    assert rows[0][HEADS.index("cycles")] == "× 1.00"
    assert rows[1][1] == "exit status 2"
    uncounted = make_report() | {"units": []}  # as of a target without a ledger
    assert summary_rows([Compared("fp16", uncounted)])[0][HEADS.index("cycles")] == "–"
