"""Units that answer alike stand in one line (law)."""

from __future__ import annotations

from fpsim.records.units import UNITS
from ipu.experiments.sums import fingerprints


def test_units_that_answer_alike_stand_in_one_line():
    result = fingerprints.run(quick=True, seed=0)
    groups = [names for names, _ in fingerprints.kinds(result)]
    assert sorted(name for names in groups for name in names) == sorted(fingerprints.FEW)
    assert len(groups) == len(fingerprints.FEW)
    assert set(fingerprints.FEW) <= set(UNITS)
    assert "1 of them" in result.answer  # V100
    (table,) = fingerprints.tables(result)
    assert len(table.lines) == len(groups)
    assert {len(line) for line in table.lines} == {len(table.heads)}
