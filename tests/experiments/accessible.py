"""Whether people who see little, or use no pointer, can use a page: WCAG 2.1 in a real browser.

What is measured is in `accessible.js`, which runs in the page.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.experiments.devtools import Tab

__all__ = ["NARROW", "WIDE", "faults", "walk"]

NARROW, WIDE = 390, 1300
#: At most so many presses of Tab: no page has more places.
_PRESSES = 2000
_SCRIPT = (Path(__file__).parent / "accessible.js").read_text(encoding="utf-8")


def _ask(tab: Tab, expression: str) -> Any:
    return tab.evaluate(f"(() => {{{_SCRIPT}\nreturn {expression};}})()")


def _ask_drawn(tab: Tab, expression: str) -> Any:
    """The same once the browser has drawn what has changed."""
    drawn = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
    return tab.evaluate(f"(async () => {{{_SCRIPT}\nawait {drawn}; return {expression};}})()")


def faults(tab: Tab, page: Path) -> list[tuple[str, ...]]:
    """What is wrong with a page on a phone and beside it, light and dark; it stays open.

    A fault is its kind, and what has it: text of too little contrast, what no key reaches, fields
    without a name, a page that scrolls sideways.
    """
    told: set[tuple[str, ...]] = set()
    tab.open(page.resolve().as_uri())
    for width in (NARROW, WIDE):
        for dark in (False, True):
            tab.show(width, dark=dark)
            state = f"{width} px, {'dark' if dark else 'light'}"
            told |= {("faint", state, *map(str, row)) for row in _ask(tab, "faint()")}
            told |= {("no key reaches", html) for html in _ask(tab, "unreachable()")}
            told |= {("no name", html) for html in _ask(tab, "nameless()")}
            root = "document.documentElement"
            if _ask(tab, f"{root}.scrollWidth > {root}.clientWidth"):
                told.add(("scrolls sideways", state))
    return sorted(told)


def walk(tab: Tab, page: Path, width: int) -> list[tuple[str, str]]:
    """What is wrong on the way of Tab through a page; empty where it reaches all, in sight.

    The way ends where the keyboard leaves the page or comes round.
    """
    tab.show(width)
    tab.open(page.resolve().as_uri())
    told = []
    for _ in range(_PRESSES):
        tab.press("Tab", 9)
        place = _ask_drawn(tab, "focused()")
        if place is None:
            break
        told += [("out of sight", place["html"])] * (not place["inSight"])
        told += [("not marked", place["html"])] * (not place["isMarked"])
    return told + [("passed by", html) for html in _ask(tab, "passed()")]
