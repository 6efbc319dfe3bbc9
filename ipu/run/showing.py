"""A report as users hold it: read in a terminal, drawn in a notebook."""

from __future__ import annotations

from typing import Any

from ipu.run.text import report_lines

__all__ = ["Report"]


class Report(dict[str, Any]):
    """A report: a mapping whose text is for a terminal, and that draws itself in a notebook.

    >>> "3 steps" in str(Report({"steps": 3, "policy": "f16", "target": "mk2", "layers": {},
    ...     "operations": {"computed_elements": 9}, "host": {"share": 0.0, "operations": {}},
    ...     "native": 0, "constants": [], "swallowed": {}, "units": [], "loss_scale": {},
    ...     "first": [], "losses": []}))
    True
    """

    def __str__(self) -> str:
        return "\n".join(report_lines(self))

    def _repr_html_(self) -> str:
        """How a notebook shows it: what hurt first, counts by layer, gradients and updates."""
        from ipu.run.pages.notebook import report_html

        return report_html(self)
