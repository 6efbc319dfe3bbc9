"""Sites of versions side by side, in a real browser without a server (golden)."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PAGE = """<!doctype html><html lang="en" data-content_root="{root}"><head><title>{title}</title>
<script src="{root}_static/versions.js"></script></head>
<body><a class="sidebar-brand" href="{root}index.html">fpsim</a></body></html>"""


@pytest.fixture
def versions(monkeypatch):
    """The script, which stands beside the pages."""
    monkeypatch.syspath_prepend(str(DOCS / "extensions"))
    import versions

    return versions


def site(folder: Path, version: str, *pages: str) -> Path:
    """A site with the script of the real one."""
    for name in pages:
        page = folder / name
        page.parent.mkdir(parents=True, exist_ok=True)
        root = "../" * name.count("/") or "./"
        page.write_text(PAGE.format(root=root, title=f"{version} {name}"), encoding="utf-8")
    (folder / "_static").mkdir()
    shutil.copy(DOCS / "static" / "versions.js", folder / "_static")
    (folder / "objects.inv").write_bytes(
        f"# Sphinx inventory version 2\n# Project: fpsim\n# Version: {version}\n".encode())
    return folder


@pytest.fixture
def beside(versions, tmp_path):
    """Three versions; the old one lacks a page."""
    told = tmp_path / "told"
    versions.add(site(tmp_path / "a", "0.9.0", "index.html"), told)
    versions.add(site(tmp_path / "b", "1.10.0", "index.html", "recipes/fp8.html"), told)
    versions.add(site(tmp_path / "c", "1.2.0", "index.html", "recipes/fp8.html"), told)
    return told


def title_after_choosing(browser, page: Path, version: str) -> str:
    """What the page shows once a version was chosen in its list."""
    browser.open(page.resolve().as_uri())
    browser.follow(f"""(() => {{ const list = document.querySelector(".versions select");
      list.value = "{version}"; list.dispatchEvent(new Event("change")); }})()""")
    return browser.evaluate("document.title")


def test_the_list_has_all_versions_the_newest_first(browser, beside):
    browser.open((beside / "1.2.0" / "recipes" / "fp8.html").resolve().as_uri())
    told = browser.evaluate("""(() => { const list = document.querySelector(".versions select");
      return [[...list.options].map((option) => option.value), list.value]; })()""")
    assert told == [["1.10.0", "1.2.0", "0.9.0"], "1.2.0"]


def test_a_version_is_entered_at_the_same_page_or_at_its_first(browser, beside):
    page = beside / "1.2.0" / "recipes" / "fp8.html"
    assert title_after_choosing(browser, page, "1.10.0") == "1.10.0 recipes/fp8.html"
    assert title_after_choosing(browser, page, "0.9.0") == "0.9.0 index.html"


def test_a_site_that_lies_alone_has_no_list(browser, tmp_path):
    alone = site(tmp_path / "html", "1.2.0", "index.html")
    browser.open((alone / "index.html").resolve().as_uri())
    assert browser.evaluate("document.querySelector('.versions')") is None


def test_a_site_takes_the_place_of_an_earlier_one_of_its_version(versions, beside, tmp_path):
    versions.add(site(tmp_path / "again", "1.2.0", "index.html"), beside)
    assert {page.name for page in (beside / "1.2.0").rglob("*.html")} == {"index.html"}
    assert "0.9.0" in (beside / "versions.js").read_text(encoding="utf-8")
