"""The built site: every public name has a place, and nothing is fetched from anywhere (golden)."""

from __future__ import annotations

import os
import re
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

from ipu.experiments.cli import commands

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "reference"
SITE = Path(os.environ.get("FPSIM_SITE", ""))
LARGEST = 1_000_000

built = pytest.mark.skipif(not os.environ.get("FPSIM_SITE"), reason="make site builds it")

#: The framework that a public module of a front end needs.
NEEDS = {
    "fpsim.torch": "torch", "fpsim.tf": "tensorflow", "ipu.frontends.poptorch": "torch",
}
#: Modules whose `__all__` is public.
PUBLIC = (
    "fpsim", "fpsim.chop", "fpsim.inspect.blocks", "fpsim.inspect.fingerprint",
    "fpsim.inspect.probe", "fpsim.inspect.profile", "fpsim.linalg", "fpsim.testing", "ipu.feed",
    "ipu.frontends.popart", "ipu.frontends.popdist", "ipu.learn", "ipu.machine",
    "ipu.machine.control", "ipu.members.group", "ipu.members.local_transport", "ipu.plan",
    "ipu.run", *NEEDS,
)


def public_names(module: str) -> list[str]:
    """What a public module offers; skips the test where its framework is not installed."""
    # Not by importing it: TensorFlow has to come after the module of ours.
    if module in NEEDS and find_spec(NEEDS[module]) is None:
        pytest.skip(f"it needs {NEEDS[module]}")
    return list(vars(import_module(module))["__all__"])


def test_every_public_module_has_a_page_of_the_reference() -> None:
    documented = {
        name
        for page in PAGES.glob("*.md")
        for name in re.findall(r"automodule:: (\S+)", page.read_text(encoding="utf-8"))
    }
    assert documented == set(PUBLIC)


def test_every_page_has_a_place_in_the_navigation() -> None:
    docs = PAGES.parent
    index = (docs / "index.md").read_text(encoding="utf-8")
    pages = {
        page.relative_to(docs).with_suffix("").as_posix()
        for page in docs.rglob("*.md")
        if not {"_build", "gallery"} & set(page.parts)
    }
    missing = {page for page in pages - {"index"} if not re.search(f"^{page}$", index, re.M)}
    assert missing == set()


def test_every_variable_of_the_environment_has_its_line() -> None:
    """Those that the code, the tests and the build of the site read; none that nothing reads."""
    name = re.compile(r"(?<![A-Z_.])FPSIM_[A-Z0-9_]{2,}[A-Z0-9]\b")

    def named(*files: Path) -> set[str]:
        return {n for file in files for n in name.findall(file.read_text(encoding="utf-8"))}

    rooms = (ROOT / "fpsim", ROOT / "ipu", ROOT / "experiments", ROOT / "docs" / "extensions")
    read = named(*(path for room in rooms for path in room.rglob("*.py")),
                 *(ROOT / "tests").glob("*.py"), ROOT / "Makefile")
    listed = named(PAGES / "environment.md")
    assert read - listed == set()
    assert listed - read - named(*(ROOT / "tests").rglob("*.py")) == set()


def test_every_command_has_its_help_on_the_page_of_commands() -> None:
    page = (PAGES / "commands.md").read_text(encoding="utf-8")
    shown = re.findall(r"^```\{program-output\} fpsim (.*) --help$", page, re.M)
    names = []
    for name in commands.list_commands(None):
        command = commands.get_command(None, name)
        names += [name, *(f"{name} {sub}" for sub in getattr(command, "commands", ()))]
    assert sorted(shown) == sorted(names)


@built
@pytest.mark.parametrize("module", PUBLIC)
def test_every_public_name_is_in_the_inventory(module: str) -> None:
    from sphinx.util.inventory import InventoryFile

    with (SITE / "objects.inv").open("rb") as file:
        inventory = InventoryFile.load(file, "", lambda base, path: path)
    documented = {name for kind in inventory.values() for name in kind}
    names = public_names(module)
    assert [name for name in names if f"{module}.{name}" not in documented] == []


@built
def test_no_page_fetches_anything() -> None:
    loads = re.compile(r'<(?:script|img|iframe|link)\b[^>]*(?:src|href)="((?:https?:)?//[^"]+)"')
    css = re.compile(r"url\(['\"]?((?:https?:)?//[^)]+)\)|@import\s+['\"](?:https?:)?//")
    for page in SITE.rglob("*.html"):
        assert loads.findall(page.read_text(encoding="utf-8")) == [], page
    for style in SITE.rglob("*.css"):
        assert css.findall(style.read_text(encoding="utf-8")) == [], style


@built
def test_no_page_is_large() -> None:
    pages = [page for page in SITE.rglob("*.html") if page.parent.name != "gallery"]
    assert [page for page in pages if page.stat().st_size > LARGEST] == []
