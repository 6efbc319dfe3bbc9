"""fpsim fingerprint, from the command line (golden)."""

from __future__ import annotations

import json

from ipu.experiments.cli import main


def test_a_unit_is_probed_as_a_line_and_as_json(capsys):
    assert main(["fingerprint", "--unit", "V100_F16_F32"]) == 0
    head, line = capsys.readouterr().out.splitlines()
    assert head.split()[:3] == ["unit", "terms", "order"]
    assert main(["fingerprint", "--unit", "V100_F16_F32", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert line.split()[0] == row["unit"] == "V100_F16_F32"
    assert line.split()[1] == str(row["terms"]) == "4"
    assert line.split()[-1] == ("yes" if row["monotone"] else "no") == "no"


def test_an_unknown_unit_is_one_line(capsys):
    assert main(["fingerprint", "--unit", "V100_F16_F3"]) == 2
    assert "V100_F16_F32" in capsys.readouterr().err
