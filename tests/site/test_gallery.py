"""The gallery: a changed bit is told with both numbers (law); experiments have pages (golden)."""

from __future__ import annotations

import hashlib
import os
import re
import sys
from pathlib import Path

import pytest

from ipu.experiments.lab.catalogue import catalogue

DOCS = Path(__file__).parents[2] / "docs"
RECORDS = DOCS / "outputs" / "gallery"
SITE = Path(os.environ.get("FPSIM_SITE", ""))
built = pytest.mark.skipif(not os.environ.get("FPSIM_SITE"), reason="make site builds it")


@pytest.fixture
def pages(monkeypatch):
    """The extension, which stands beside the pages."""
    pytest.importorskip("sphinx")
    monkeypatch.syspath_prepend(str(DOCS / "extensions"))
    import experiment_pages

    yield experiment_pages
    sys.modules.pop("experiment_pages")


def test_every_experiment_has_a_record_and_every_record_an_experiment():
    names = {path.stem for path in RECORDS.glob("*.csv")}
    assert names == set(catalogue())


def test_no_record_names_a_folder_of_a_machine():
    folder = re.compile(r"(?<![\w.:/])/(?:home|root|tmp|Users|work)/")
    outputs = [path for path in RECORDS.parent.rglob("*") if path.is_file()]
    named = {path.name for path in outputs if folder.search(path.read_text(encoding="utf-8"))}
    assert named == set()


def test_one_bit_that_changes_is_told_with_the_old_and_the_new(pages, tmp_path):
    data = "n,sum\n1,0.3\n2,0.5\n"
    (tmp_path / "one.csv").write_text(data)
    assert pages.difference("one", data, tmp_path) == ""
    told = pages.difference("one", data.replace("0.3", "0.30000000000000004"), tmp_path)
    assert told.splitlines()[2:] == ["@@ -2 +2 @@", "-1,0.3", "+1,0.30000000000000004"]
    assert pages.difference("absent", data, tmp_path).count("\n+") == 3 + 1


def test_a_long_difference_is_cut(pages, tmp_path):
    told = pages.difference("none", "n\n" + "1\n" * 100, tmp_path).splitlines()
    assert len(told) == pages.SHOWN + 1
    assert told[-1] == "and 64 lines more"


def test_a_changed_record_is_a_warning_and_a_recorded_one_none(pages, monkeypatch, tmp_path):
    told = []
    monkeypatch.setattr(pages.logger, "warning", lambda text, *parts, **_: told.append(parts))
    monkeypatch.setattr(pages, "RECORDS", tmp_path / "records")
    difference = pages.difference
    monkeypatch.setattr(pages, "difference", lambda *a: difference(*a, tmp_path / "records"))

    class Shown:
        name = "swamping"
        folder = tmp_path

    (tmp_path / "data.csv").write_text("n\n1\n")

    monkeypatch.delenv("FPSIM_RECORD", raising=False)
    pages.check(Shown())
    assert [name for name, _ in told] == ["swamping"]
    monkeypatch.setenv("FPSIM_RECORD", "1")
    pages.check(Shown())
    monkeypatch.delenv("FPSIM_RECORD")
    pages.check(Shown())
    assert len(told) == 1


@built
def test_every_experiment_has_a_page_with_its_data_digest_and_code():
    for name in set(catalogue()):
        text = (SITE / "gallery" / f"{name}.html").read_text(encoding="utf-8")
        digest = hashlib.sha256((RECORDS / f"{name}.csv").read_bytes()).hexdigest()
        assert digest in text, name
        (link,) = re.findall(r'href="([^"]*/data\.csv|[^"]*\.csv)"', text)
        data = (SITE / "gallery" / link).resolve()
        assert hashlib.sha256(data.read_bytes()).hexdigest() == digest
        assert "QUESTION" in text, "its code"


@built
def test_every_question_of_the_catalogue_stands_on_the_first_page_of_the_gallery():
    text = (SITE / "gallery" / "index.html").read_text(encoding="utf-8")
    for name in catalogue():
        assert name in text
