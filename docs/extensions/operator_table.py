"""The directive `operator-table`: every row of `ipu.ops`, by family, from the rows themselves."""

from __future__ import annotations

from types import ModuleType
from typing import ClassVar

from docutils import nodes
from docutils.parsers.rst import Directive
from sphinx.application import Sphinx
from tables import table

import ipu.ops
from ipu.ops.primitive import Primitive

HEADINGS = ("operation", "unit", "rounds (forward)", "rounds (backward)", "evidence", "source")


def families() -> dict[str, ModuleType]:
    """The modules of the table, by name."""
    return {
        name: module
        for name, module in sorted(vars(ipu.ops).items())
        if isinstance(module, ModuleType) and module.__name__ == f"ipu.ops.{name}"
    }


def rows(module: ModuleType) -> list[Primitive]:
    """The operations of a family, in the order of its file."""
    return [value for value in vars(module).values() if isinstance(value, Primitive)
            and value.name in getattr(module, "__all__", ())]


def _cells(row: Primitive) -> tuple[str, ...]:
    return (row.name, row.unit, row.rounding, row.gradient, row.evidence.name, row.source)


class OperatorTable(Directive):
    """A section for each family."""

    has_content: ClassVar[bool] = False

    def run(self) -> list[nodes.Node]:
        sections = []
        for name, module in families().items():
            if not rows(module):
                continue
            section = nodes.section(ids=[f"family-{name}"])
            section += nodes.title(text=name)
            section += nodes.paragraph(text=(module.__doc__ or "").strip().split("\n\n")[0])
            section += table(HEADINGS, (2, 1, 4, 4, 1, 3), map(_cells, rows(module)))
            sections.append(section)
        return sections


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("operator-table", OperatorTable)
    return {"parallel_read_safe": True}
