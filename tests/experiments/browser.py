"""What a page looks like in Chromium, where one is installed."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
#: Without a window, and without what a browser does for itself.
QUIET = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
         "--disable-background-networking", "--disable-component-update", "--disable-sync")
#: Headless windows have a least width; a frame has any.
FRAME = """<!doctype html><body><iframe src="page.html" width="{width}" height="900"></iframe>
<pre id="told"></pre><script>
onmessage = (event) => { document.getElementById("told").textContent = event.data; };
</script>"""
#: Tells the frame around it how wide the page is, and what sticks out where nothing scrolls.
MEASURE = """<script>
addEventListener("load", () => {
  const width = document.documentElement.clientWidth;
  const out = [];
  for (const node of document.querySelectorAll("body *")) {
    const scrolls = node.closest(".scroll, figure");
    if (scrolls && scrolls !== node) continue;
    if (node.getBoundingClientRect().right > width + 0.5) out.push(node.outerHTML.slice(0, 90));
  }
  const style = getComputedStyle(document.body);
  parent.postMessage(JSON.stringify({width, out, scroll: document.documentElement.scrollWidth,
    ink: style.color, page: style.backgroundColor}), "*");
});
</script>"""


#: Sends what a script's function `told` returns to the frame around the page.
ASK = """<script>
addEventListener("load", async () => {{
  const told = {script};
  parent.postMessage(JSON.stringify(await told()), "*");
}});
</script>"""


class Seen(NamedTuple):
    """A page in a frame: widths in CSS pixels, elements that stick out, colours of the text."""

    width: int
    scroll: int
    out: list[str]
    ink: str
    page: str


def look(page: Path, width: int, folder: Path, dark: bool = False) -> Seen:
    """The page in a frame so many pixels wide; skips the test where there is no Chromium."""
    return Seen(**_told(page, width, folder, MEASURE, dark))


def ask(page: Path, folder: Path, script: str, width: int = 1000, dark: bool = False) -> Any:
    """What a function of JavaScript returns once the page is loaded."""
    return _told(page, width, folder, ASK.format(script=script), dark)


def _told(page: Path, width: int, folder: Path, script: str, dark: bool) -> Any:
    frame = _prepared(page, width, folder, script)
    scheme = f"--blink-settings=preferredColorScheme={int(not dark)}"
    dom = _chromium(folder, "--virtual-time-budget=8000", scheme, "--dump-dom", frame.as_uri())
    (told,) = re.findall(r'<pre id="told">(.*?)</pre>', dom, re.DOTALL)
    return json.loads(html.unescape(told))


def _prepared(page: Path, width: int, folder: Path, script: str) -> Path:
    text = page.read_text(encoding="utf-8").replace("</body>", script + "</body>")
    (folder / "page.html").write_text(text, encoding="utf-8")
    (folder / "frame.html").write_text(FRAME.replace("{width}", str(width)), encoding="utf-8")
    return folder / "frame.html"


def dump(url: str, folder: Path) -> str:
    """The page at an address once its scripts have run, as HTML."""
    return _chromium(folder, "--virtual-time-budget=8000", "--dump-dom", url)


def print_page(page: Path, folder: Path) -> bytes:
    """The page as a PDF."""
    target = folder / "page.pdf"
    _chromium(folder, f"--print-to-pdf={target}", "--no-pdf-header-footer", page.as_uri())
    return target.read_bytes()


def _chromium(folder: Path, *arguments: str) -> str:
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        pytest.skip("no Chromium on the PATH")
    profile = f"--user-data-dir={folder / 'profile'}"
    done = subprocess.run([program, *QUIET, profile, *arguments], capture_output=True, text=True,
                          check=True, timeout=120)
    return done.stdout
