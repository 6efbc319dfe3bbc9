"""What the documents promise is what the code does; `test_blocks` runs their code (golden)."""

from __future__ import annotations

import math
import re
import shlex
from pathlib import Path

import pytest

import fpsim
from ipu.experiments.cli import commands
from ipu.experiments.lab.catalogue import catalogue

ROOT = Path(__file__).parents[1]
KNOWN_ANSWER = re.compile(r"^\| `([^`]+)` \| `([^`]+)` \|$", re.MULTILINE)


def answers() -> list[tuple[str, str]]:
    text = (ROOT / "docs" / "semantics.md").read_text(encoding="utf-8")
    return KNOWN_ANSWER.findall(text.partition("## 8.")[2])


@pytest.mark.parametrize(("expression", "value"), answers())
def test_known_answers_of_the_semantics_page(expression, value):
    names = {"math": math, **vars(fpsim)}
    assert repr(eval(expression, names)) == value


def test_the_semantics_page_has_the_sections_that_code_cites():
    text = (ROOT / "docs" / "semantics.md").read_text(encoding="utf-8")
    sections = re.findall(r"^## (\d)\.", text, re.MULTILINE)
    assert sections == [str(n) for n in range(1, 10)]
    assert len(answers()) >= 10


#: Pages that a build of the site writes; it refuses links that lead nowhere itself.
WRITTEN = ("gallery/index.md",)


def test_files_that_documents_link_to_exist():
    for document in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]:
        for link in re.findall(r"\]\(([^)#:]+)\)", document.read_text(encoding="utf-8")):
            if link not in WRITTEN:
                assert (document.parent / link).exists(), f"{document.name} links to {link}"


DISTRIBUTED = (ROOT / "docs" / "distributed.md").read_text(encoding="utf-8")


COMMANDS = re.findall(r"^fpsim (.*)$", DISTRIBUTED, re.MULTILINE)


@pytest.mark.parametrize("line", COMMANDS)
def test_the_command_lines_of_that_page_exist(line):
    """Options and their values are read; nothing runs."""
    name, *arguments = shlex.split(line)
    command = commands.get_command(None, name)
    assert command is not None
    command.make_context(name, list(arguments))


def test_every_experiment_stands_on_its_page_with_its_question():
    page = (ROOT / "docs" / "experiments.md").read_text(encoding="utf-8")
    for experiment in catalogue().values():
        star = " *" if experiment.default else ""
        row = f"| `{experiment.name}`{star} | {experiment.question} | {experiment.needs or ''} |"
        assert row in page, experiment.name
    assert page.count("\n| `") == len(catalogue())
