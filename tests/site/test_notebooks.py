"""Cells of tutorials show what their record says, without a notebook (golden).

The site runs the notebooks and compares byte for byte; here blanks do not count, which IPython sets
in long lists. A tutorial about a framework runs where that is installed.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = {page.stem: page for page in sorted((ROOT / "docs" / "tutorials").glob("*.md"))}
RECORDS = ROOT / "docs" / "outputs" / "tutorials"
CELL = re.compile(r"^```\{code-cell\} python\n(.*?)^```$", re.MULTILINE | re.DOTALL)

#: Reads cells as JSON, runs them as a notebook does and prints what they show, as JSON.
RUN = """
import ast, contextlib, io, json, sys
space, shown = {"__name__": "__main__"}, []
for number, (text, varies) in enumerate(json.loads(sys.stdin.read())):
    tree, stream, last = ast.parse(text), io.StringIO(), None
    if isinstance(tree.body[-1], ast.Expr):
        last = ast.Expression(tree.body.pop().value)
    with contextlib.redirect_stdout(stream):
        exec(compile(tree, f"/cell/{number}", "exec"), space)
        value = eval(compile(last, f"/cell/{number}", "eval"), space) if last else None
    is_text = value is not None and not hasattr(value, "_repr_html_")
    texts = [stream.getvalue(), repr(value) if is_text else ""]
    shown += [] if varies else filter(None, texts)
print(json.dumps(shown))
"""


def cells(page: Path) -> list[tuple[str, bool]]:
    """The code of each cell, and whether what it shows may vary."""
    texts = CELL.findall(page.read_text(encoding="utf-8"))
    tag = re.compile(r"^:tags: \[(.*)\]\n+")
    return [(tag.sub("", text), bool(tag.match(text))) for text in texts]


def framework(page: Path) -> str:
    """What its cells import: torch, tensorflow, or "" for neither."""
    names = re.findall(r"^(?:import|from) .*\b(torch|tensorflow)\b", page.read_text("utf-8"), re.M)
    return next(iter(names), "")


def show(page: Path, folder: Path) -> list[str]:
    """What its cells show, run in an empty folder."""
    done = subprocess.run(
        [sys.executable, "-c", RUN], input=json.dumps(cells(page)), cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT), "MPLBACKEND": "agg"},
        capture_output=True, text=True, check=False, timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def without_blanks(text: str) -> str:
    return "".join(text.split())


@pytest.mark.parametrize("name", PAGES)
def test_cells_show_what_is_recorded(name, tmp_path):
    page = PAGES[name]
    needs = framework(page)
    if needs and find_spec(needs) is None:
        pytest.skip(f"it needs {needs}; run: make test-{needs}")
    if not needs and any(map(find_spec, ("torch", "tensorflow"))):
        pytest.skip("it needs no framework; run: make test")
    recorded = (RECORDS / f"{name}.txt").read_text(encoding="utf-8")
    assert without_blanks("---".join(show(page, tmp_path))) == without_blanks(recorded)


def test_every_tutorial_is_a_notebook_that_can_be_downloaded():
    assert len(PAGES) >= 8
    for name, page in PAGES.items():
        text = page.read_text(encoding="utf-8")
        assert text.startswith("---\nfile_format: mystnb\n"), name
        assert f"{{nb-download}}`{name}.ipynb`" in text, name
        assert len(cells(page)) == text.count("```{code-cell}"), name
