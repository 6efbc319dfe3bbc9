"""fpsim list: what the lines say is what --json says (law)."""

from __future__ import annotations

import json

import pytest

from ipu.experiments.cli import main
from ipu.experiments.commands.listing import KINDS


@pytest.mark.parametrize("kind", KINDS)
def test_rows_and_lines_name_the_same_things(kind, capsys):
    assert main(["list", kind]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert main(["list", kind, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert len(rows) > 4
    first_words = {word for line in lines for word in line.split()[:2]}
    assert {row["name"] for row in rows} <= first_words
    assert len({tuple(row) for row in rows}) <= 3  # formats of numbers, of scales, of blocks
