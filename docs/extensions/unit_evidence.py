"""The directive `unit-evidence`: what every constant of a matrix unit rests on, and its source."""

from __future__ import annotations

from itertools import groupby
from typing import ClassVar

from docutils import nodes
from docutils.parsers.rst import Directive
from sphinx.application import Sphinx
from tables import table

import ipu.machine  # noqa: F401  (registers the units of the IPU)
from fpsim.records.evidence import Fact
from fpsim.records.formats import Format
from fpsim.records.units import SCALED_UNITS, UNITS

HEADS = ("unit", "constants", "evidence", "source")


def _shown(name: str, fact: Fact[object]) -> str:
    value = fact.value
    if value is None:
        value = "exact" if name == "window" else "none"
    return f"{name} {value.name if isinstance(value, Format) else value}"


def lines(name: str, facts: dict[str, Fact[object]]) -> list[tuple[str, str, str, str]]:
    """A line for each source of a unit's constants, with their values."""
    by_source: dict[tuple[str, str], list[str]] = {}
    for constant, fact in facts.items():
        if constant == "cut" and facts["window"].value is None:
            continue  # nothing is cut
        by_source.setdefault((fact.evidence.name, fact.source), []).append(_shown(constant, fact))
    return [
        (name, ", ".join(constants), evidence, source)
        for (evidence, source), constants in by_source.items()
    ]


def machine(name: str) -> str:
    """The part of a unit's name that says which machine it is of.

    >>> machine("H100_F16_F32")
    'H100'
    """
    return name.partition("_")[0]


class UnitEvidence(Directive):
    """A section for each machine."""

    has_content: ClassVar[bool] = False

    def run(self) -> list[nodes.Node]:
        units = sorted({**UNITS, **SCALED_UNITS}.items())
        sections = []
        for name, members in groupby(units, lambda item: machine(item[0])):
            section = nodes.section(ids=[f"evidence-{name.lower()}"])
            section += nodes.title(text=name)
            section += table(HEADS, (3, 4, 2, 4), [
                line for unit, record in members for line in lines(unit, dict(record.facts))
            ])
            sections.append(section)
        return sections


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("unit-evidence", UnitEvidence)
    return {"parallel_read_safe": True}
