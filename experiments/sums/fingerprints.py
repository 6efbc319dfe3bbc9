"""Every matrix unit as a black box: what products of powers of two tell about it.

The probes read nothing of a unit's record but its formats. Units whose answers are the same stand
in one line, so the table shows how many kinds of arithmetic there are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

import ipu.machine  # noqa: F401  (registers the units of the IPU)
from fpsim.inspect.fingerprint import fingerprint
from fpsim.records.units import UNITS, MatrixUnit
from ipu.experiments.lab.progress import progress
from ipu.experiments.lab.result import Result, Row, Table, UnitUsed

QUESTION = "What can be told from outside about how a matrix unit adds?"
BUDGET = 60
DEFAULT = False

#: Columns of the table and their heads.
FOUND = {
    "terms": "terms of a call", "order": "order", "window": "digits kept below the largest",
    "cut": "digits below", "digits": "digits of the sum", "rounding": "rounding",
    "stored": "digits stored", "channels": "products per store", "joined": "c added afterwards",
    "monotone": "monotone",
}
#: Without presets, half partials and newer names of the same parts.
FEW = ("AMP_F16_F32", "V100_F16_F32", "A100_F16_F32", "H100_F16_F32", "AMP_F32_F32")


def run(quick: bool, seed: int) -> Result:
    del seed  # nothing is drawn
    names = list(FEW) if quick else sorted(UNITS)
    rows = [_row(UNITS[name]) for name in progress(names, "units")]
    used = tuple(
        UnitUsed(name, str(UNITS[name].weakest_evidence), UNITS[name].instruction) for name in names
    )
    return Result(rows, _answer(rows), "rounding of each unit's own", {"units": len(rows)}, used)


def _row(unit: MatrixUnit) -> Row:
    probes = asdict(fingerprint(unit))
    inputs = "|".join(f.name for f in unit.inputs)
    return {"unit": unit.name, "inputs": inputs, "partials": unit.partials.name, **probes}


def kinds(result: Result) -> Iterator[tuple[list[str], list[str]]]:
    """Units that the probes cannot tell apart: their names, and the cells of their line."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for row in result.rows:
        cells = tuple(_cell(name, row.get(name)) for name in FOUND)
        groups.setdefault(cells, []).append(str(row["unit"]))
    for cells, names in groups.items():
        yield names, list(cells)


def _cell(name: str, value: object) -> str:
    if value is None:
        return {"window": "all", "cut": "none"}.get(name, "–")
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)


def _answer(rows: list[Row]) -> str:
    table = Result(rows, "", "")
    n = len(list(kinds(table)))
    uneven = [str(r["unit"]) for r in rows if not r["monotone"]]
    return (
        f"Everything that fixes its bits: {len(rows)} units fall into {n} kinds by terms per call, "
        f"order, digits kept and cut, and rounding. {len(uneven)} of them are not monotone: there "
        "a larger accumulator can give a smaller result."
    )


def tables(result: Result) -> list[Table]:
    lines = [[", ".join(names), *cells] for names, cells in kinds(result)]
    return [Table("Kinds of units", ["units", *FOUND.values()], lines)]
