"""Every link of the built site leads somewhere: pages, anchors in them, files (golden)."""

from __future__ import annotations

import os
import re
from functools import cache
from html import unescape
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

SITE = Path(os.environ.get("FPSIM_SITE", "")).resolve()
built = pytest.mark.skipif(not os.environ.get("FPSIM_SITE"), reason="make site builds it")

_TARGETS = re.compile(r"""\b(?:id|name)=["']([^"']+)["']""")
_LINKS = re.compile(r"""<(?:a|link|img|script|iframe)\b[^>]*?\b(?:href|src)=["']([^"']*)["']""")


@cache
def anchors(page: Path) -> frozenset[str]:
    """What a page can be entered at."""
    return frozenset(map(unescape, _TARGETS.findall(page.read_text(encoding="utf-8"))))


def broken(page: Path) -> list[str]:
    """Links of a page that lead to no file, or to no place in their page."""
    wrong = []
    for link in map(unescape, _LINKS.findall(page.read_text(encoding="utf-8"))):
        if urlsplit(link).scheme or link.startswith("//"):
            continue
        path, anchor = unquote(urlsplit(link).path), unquote(urlsplit(link).fragment)
        target = (page.parent / path).resolve() if path else page
        is_entered = bool(anchor) and target.suffix == ".html"
        if not target.is_file() or (is_entered and anchor not in anchors(target)):
            wrong.append(link)
    return wrong


def test_a_missing_page_file_or_anchor_is_told(tmp_path: Path) -> None:
    (tmp_path / "there.html").write_text('<p id="here"></p>')
    page = tmp_path / "page.html"
    page.write_text("".join(f'<a class="x" href="{link}"></a>' for link in (
        "there.html", "there.html#here", "there.html#gone", "gone.html", "#gone", "?q=1",
        "https://example.org/gone",
    )) + '<img src="gone.png">')
    assert broken(page) == ["there.html#gone", "gone.html", "#gone", "gone.png"]


@built
def test_no_link_is_broken() -> None:
    wrong = {
        str(page.relative_to(SITE)): links
        for page in sorted(SITE.rglob("*.html")) if (links := broken(page))
    }
    assert wrong == {}
