"""The page of a sweep: its table sorts and filters in a browser, from a file (golden)."""

from __future__ import annotations

import json
import re

import pytest

from ipu.experiments.lab.catalogue import find
from ipu.experiments.sweep.jobs import SweepJob, read_result
from ipu.experiments.sweep.page import MOST_COLUMNS, write_page
from ipu.experiments.sweep.sweep import Swept, SweptJob, save
from tests.experiments.accessible import WIDE, faults, walk
from tests.experiments.browser import ask, look

VALUES = {0: 10.0, 1: 9.0, 2: -1.5, 3: None}

TOLD = """
async () => {
  const seeds = () => [...document.querySelectorAll(".runs tbody tr")].filter((r) => !r.hidden)
    .map((r) => r.cells[1].textContent).join(" ");
  const head = (n) => document.querySelectorAll(".runs th button")[n];
  const input = document.querySelector(".filter input");
  const filter = (text) => {
    input.value = text;
    input.dispatchEvent(new Event("input"));
    return [seeds(), document.querySelector(".filter output").textContent];
  };
  const told = { first: seeds() };
  head(3).click(); told.up = seeds();
  told.aria = head(3).closest("th").getAttribute("aria-sort");
  head(3).click(); told.down = seeds();
  head(1).click(); told.seed = seeds();
  told.least = filter("seed>=2");
  told.two = filter("seed>0 shown<9.5");
  told.word = filter("odd");
  told.all = filter("");
  return told;
}
"""


@pytest.fixture
def page(moody, tmp_path):
    """Four runs of which one lacks a number, and one that has failed."""
    moody()
    jobs = []
    for seed, value in VALUES.items():
        row = {"same": 1.0} if value is None else {"shown": value, "same": 1.0}
        text = json.dumps({"rows": [row], "local": [], "answer": f"<{seed}>", "policy": "p",
                           "units": []})
        job = SweepJob("dice", seed, True, (("kind", "odd" if seed % 2 else "even"),))
        jobs.append(SweptJob(job, read_result(text)))
    jobs.append(SweptJob(SweepJob("dice", 9, True, (("kind", "odd"),)), None, "not lucky"))
    swept = Swept(find("dice"), jobs)
    folder = tmp_path / "dice"
    return write_page(swept, save(swept, folder, "", 1.0), folder)


def test_the_page_says_what_failed_what_is_equal_and_escapes_texts(page):
    text = page.read_text(encoding="utf-8")
    assert "dice seed=9 kind=odd has no result.</span> not lucky" in text
    assert "the same in all runs are not shown: 1." in text
    assert "4 of 5 runs finished; 1 of 2 numbers differ between them." in text
    assert "&lt;2&gt;" in text
    assert re.findall(r"<th scope=\"col\"><button>(.*?)</button>", text) == [
        "run", "seed", "kind", "shown",
    ]
    assert "http" not in text.replace("http://www.w3.org", "")


def test_the_table_sorts_and_filters(page, tmp_path):
    told = ask(page, tmp_path, TOLD)
    assert told == {
        "first": "0 1 2 3", "up": "2 1 0 3", "aria": "ascending", "down": "0 1 2 3",
        "seed": "0 1 2 3", "least": ["2 3", "2 of 4 runs"], "two": ["1 2", "2 of 4 runs"],
        "word": ["1 3", "2 of 4 runs"], "all": ["0 1 2 3", ""],
    }


def test_the_page_is_read_light_and_dark_and_used_by_keys(page, browser):
    assert (faults(browser, page), walk(browser, page, WIDE)) == ([], [])


def test_the_page_fits_a_narrow_window(page, tmp_path):
    shown = look(page, 400, tmp_path)
    assert shown.scroll <= shown.width
    assert not shown.out


def test_columns_beyond_the_last_are_counted(moody, tmp_path):
    moody()
    jobs = []
    for seed in (0, 1):
        row = {f"n{i}": float(seed) for i in range(MOST_COLUMNS + 2)}
        text = json.dumps({"rows": [row], "local": [], "answer": "", "policy": "", "units": []})
        jobs.append(SweptJob(SweepJob("dice", seed), read_result(text)))
    swept = Swept(find("dice"), jobs)
    text = write_page(swept, save(swept, tmp_path / "d", "", 1.0), tmp_path / "d").read_text()
    assert "2 more columns are in data.csv" in text
    assert "6 more curves and numbers differ" in text


def test_the_figure_is_an_instrument_and_no_picture(page, tmp_path):
    text = page.read_text(encoding="utf-8")
    assert "<svg" in text
    assert "data:image/png" not in text
    (tmp_path / "browser").mkdir()
    told = ask(page, tmp_path / "browser", """
      async () => { const figure = document.querySelector("figure.zoom");
        const before = figure.querySelector("svg").innerHTML;
        figure.querySelector("button[value='+']").click();
        return [figure.dataset.figure !== "", before !== figure.querySelector("svg").innerHTML]; }
    """)
    assert told == [True, True]
