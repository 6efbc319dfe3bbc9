"""Every public name has an example that runs (golden): in its docstring, or where its page has it.

Docstrings run as doctests of their modules; a constant has none, so its example stands on its page
of the reference, and pages run here.
"""

from __future__ import annotations

import doctest
import re
from functools import cached_property
from importlib import import_module
from inspect import getattr_static, getdoc, isclass, ismodule, isroutine
from pathlib import Path

import pytest

from tests.site.test_built import PUBLIC, public_names

PAGES = Path(__file__).parents[2] / "docs" / "reference"
#: An entry of a constant and what its page says below it.
ENTRY = re.compile(r"^\.\. autodata:: (\S+)\n((?:   .*\n|\n)*)", re.MULTILINE)


def example(module: str, name: str, entries: dict[str, str]) -> str:
    """The lines that show a public name: of its docstring, or of its entry on a page."""
    value = getattr(import_module(module), name)
    has_docstring = isclass(value) or isroutine(value) or ismodule(value)
    text = (value.__doc__ or "") if has_docstring else entries.get(f"{module}.{name}", "")
    return "\n".join(re.findall(r"^ *(?:>>>|\.\.\.) (.*)$", text, re.MULTILINE))


@pytest.fixture(scope="module")
def entries() -> dict[str, str]:
    """What the pages say of each constant."""
    text = "".join(page.read_text(encoding="utf-8") for page in sorted(PAGES.glob("*.md")))
    return dict(ENTRY.findall(text))


@pytest.mark.parametrize("module", PUBLIC)
def test_every_public_name_has_an_example(module, entries):
    """Of a class it may be one of what returns it; a function or constant stands in its own."""
    names, inside = public_names(module), import_module(module)
    without = [
        name for name in names
        if not (shown := example(module, name, entries))
        or not (isclass(getattr(inside, name)) or re.search(rf"\b{name}\b", shown))
    ]
    assert without == []


def methods(value: type) -> dict[str, str]:
    """Docstrings of what a public class offers, of itself and of classes of ours below it."""
    documented = {}
    for name in (name for name in dir(value) if not name.startswith("_")):
        owner = next(base for base in value.__mro__ if name in vars(base))
        member = getattr_static(value, name)
        is_code = isroutine(member) or isinstance(member, (property, cached_property))
        if is_code and owner.__module__.startswith(("fpsim", "ipu")):
            documented[name] = getdoc(member) or getdoc(getattr(value, name, None)) or ""
    return documented


@pytest.mark.parametrize("module", PUBLIC)
def test_every_method_of_a_public_class_is_documented(module):
    names, inside = public_names(module), import_module(module)
    classes = [value for name in names if isclass(value := getattr(inside, name))]
    without = [f"{value.__name__}.{name}" for value in classes
               for name, text in methods(value).items() if not text]
    assert without == []


@pytest.mark.parametrize("page", sorted(PAGES.glob("*.md")), ids=lambda page: page.stem)
def test_examples_of_a_page_show_what_they_give(page):
    text = re.sub(r"^```.*", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    part = doctest.DocTestParser().get_doctest(text, {}, page.stem, str(page), 0)
    told: list[str] = []
    result = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(
        part, out=told.append
    )
    assert result.failed == 0, "".join(told)


def test_a_method_without_a_docstring_is_found():
    class Bare:
        def silent(self):
            return self

        @property
        def told(self):
            """It is."""

    Bare.__module__ = "fpsim.bare"
    assert methods(Bare) == {"silent": "", "told": "It is."}


def test_a_name_without_an_example_is_found():
    entries = dict(ENTRY.findall(
        ".. autodata:: fpsim.RNE\n   :no-value:\n\n   >>> fp.RNE\n   RNE\n\n"
        ".. autodata:: fpsim.RTZ\n"
    ))
    assert "fp.RNE" in example("fpsim", "RNE", entries)
    assert example("fpsim", "RTZ", entries) == ""
