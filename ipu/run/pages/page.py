"""The page of a run: index.html with its figures inside, report.json, report.txt, PNG.

Where ways were tried, trials.csv has every run of them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fpsim.state.files import write_whole
from ipu.run.advising import Advised
from ipu.run.causes.clauses import name_of
from ipu.run.causes.finding import find_causes
from ipu.run.causes.harmless import harmless
from ipu.run.text import COUNTERS, TRIAL_HEADS, report_lines, trial_cells, why_no_loss
from ipu.run.trials import TrialRun

__all__ = ["headline", "plain", "read_report", "where_rows", "write_run"]

#: Rows of the table of layers.
_ROWS = 60


def write_run(
    folder: Path, report: Mapping[str, Any], advised: Advised, title: str = "A run"
) -> Path:
    """Write the page of a run into a folder; returns its path.

    Raises    OSError where the folder cannot be written.
    """
    from ipu.run.pages.figures import (
        exponent_figure,
        loss_figure,
        overview_figure,
        scale_figure,
    )
    from ipu.run.pages.rendering import data_url, write_figures, write_page, write_table

    folder.mkdir(parents=True, exist_ok=True)
    curves = {str(report["policy"]): report["losses"]}
    if advised.trials:
        curves = {str(trial.way): trial.losses for trial in advised.trials}
    images = write_figures(
        folder,
        {"overview": overview_figure(report), "losses": loss_figure(curves),
         "exponents": exponent_figure(report), "scales": scale_figure(report)},
    )
    data = json.dumps(plain(report), indent=1, ensure_ascii=False).encode()
    write_whole(folder / "report.json", data)
    text = "\n".join([*report_lines(report), "", str(advised), ""])
    write_whole(folder / "report.txt", text.encode())
    runs = folder / "trials.csv"
    runs.unlink(missing_ok=True)
    content = {
        "runs_url": advised.runs and write_table(runs, TrialRun._fields, advised.runs),
        "title": title, "report": report, "images": images, "headline": headline(report),
        "rows": where_rows(report), "heads": list(COUNTERS.values()), "advised": advised,
        "trial_heads": TRIAL_HEADS, "trial_rows": [trial_cells(t) for t in advised.trials],
        "no_loss": why_no_loss(report),
        "json_url": data_url("application/json", data),
    }
    return write_page(folder / "index.html", "run", content)


def headline(report: Mapping[str, Any]) -> str:
    """What hurt first, in a sentence.

    >>> headline({"first": [], "losses": [], "swallowed": {}, "layers": {}, "counted": True})
    'No overflow, invalid operation or division by zero was counted.'
    >>> headline({"counted": True, "layers": {}} | dict.fromkeys(["first", "losses"], []) | {
    ...     "swallowed": {}, "stopped": "net.py:3: ValueError: no data"}).partition(". ")[2]
    'The program stopped: net.py:3: ValueError: no data'
    >>> headline({"unreached": "Use a strategy's scope"})
    'Nothing was computed on the machine.'
    """
    stopped = report.get("stopped", "")
    return _happened(report) + (f" The program stopped: {stopped}" if stopped else "")


def _happened(report: Mapping[str, Any]) -> str:
    if report.get("unreached"):
        return "Nothing was computed on the machine."
    if not report["counted"]:
        return "This session did not count; use count=True."
    causes = find_causes(report)
    if causes:
        return f"{causes[0].sentence}."
    dead = harmless(report)
    if dead:
        row = dead[0]
        where = " and ".join(name.removeprefix("aten.").lstrip("_") for name in row["deaths"])
        return (
            f"No harm was found: {row['count']:,} results of {name_of(row)} left the range of "
            f"{row['format']}, and die in {where}."
        )
    if report["first"]:
        return "No harm was found: what left its range came from outside and was not computed with."
    text = "No overflow, invalid operation or division by zero was counted."
    if report.get("stochastic_rounding"):
        return text
    lost = sum(row["swallowed"] for row in report["swallowed"].values())
    nonzero = sum(row["nonzero"] for row in report["swallowed"].values())
    return text + (
        f" {lost / nonzero:.1%} of the updates left their parameter as it was." if nonzero else ""
    )


def where_rows(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Rows of the table of layers, in the order of the run; those without exceptions left out.

    Each cell has a count and its share of the row's results on a logarithmic scale, 0 to 100.
    """
    rows = []
    for layer, directions in report["layers"].items():
        for direction, counters in directions.items():
            if not any(counters[name] for name in COUNTERS):
                continue
            cells = [
                (f"{counters[name]:,}" if counters[name] else "",
                 _heat(counters[name], counters["results"])) for name in COUNTERS
            ]
            rows.append({
                "layer": layer or "outside modules", "direction": direction,
                "results": f"{counters['results']:,}", "cells": cells,
                "weight": sum(heat for _, heat in cells[:3]),
            })
    if len(rows) > _ROWS:
        worst = sorted(rows, key=lambda row: -row["weight"])[:_ROWS]
        rows = [row for row in rows if row in worst]
    return rows


def _heat(count: int, results: int) -> int:
    """0 for none, 100 for all results; a millionth of them is visible."""
    if not count or not results:
        return 0
    return round(100 * max(0.08, 1 + math.log10(min(count / results, 1.0)) / 6))


def read_report(path: Path) -> dict[str, Any] | None:
    """The report that a page was written with; None where there is none."""
    if not path.exists():
        return None
    report: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return report | {"losses": [float(loss) for loss in report["losses"]]}


def plain(value: Any) -> Any:
    """Data that JSON holds: numbers that are not finite become texts, keys texts."""
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
