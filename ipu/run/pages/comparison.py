"""One program run in several ways, side by side on one page."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ipu.run.endpoints import final_loss
from ipu.run.pages.page import headline
from ipu.run.pages.rendering import data_url, write_figures, write_page, write_table
from ipu.run.paired import Comparison
from ipu.run.report import totals
from ipu.run.text import COUNTERS, why_no_loss

__all__ = ["HEADS", "Compared", "summary_rows", "verdict_rows", "write_comparison"]

VERDICT_HEADS = ("way", "answer", "", "worse by", "bounds", "pairs", "diverged / reference")
PAIR_HEADS = ("way", "pair", "start", "endpoint", "difference")
HEADS = ("way", "final loss", *COUNTERS.values(), "swallowed", "cycles")
#: Rows of the table of layers, and lines of what a program printed.
_ROWS, _LINES = 40, 12


@dataclass(frozen=True)
class Compared:
    """A program's run in one way.

    report    None where there is none.
    printed   the program's own output.
    page      of the run, beside the comparison.
    status    with which the program exited.
    """

    way: str
    report: Mapping[str, Any] | None
    printed: str = ""
    page: str = ""
    status: int = 0

    @property
    def tail(self) -> str:
        """The last lines that it printed."""
        return "\n".join(self.printed.rstrip().splitlines()[-_LINES:])


def write_comparison(
    folder: Path, runs: Sequence[Compared], title: str, comparison: Comparison
) -> Path:
    """Write index.html, losses.png and pairs.csv for these runs; returns the page's path.

    comparison    the answers, and the pairs that they follow from.
    """
    from ipu.run.pages.figures import loss_figure

    folder.mkdir(parents=True, exist_ok=True)
    reports = {run.way: run.report for run in runs if run.report is not None}
    losses = {way: report["losses"] for way, report in reports.items()}
    images = write_figures(folder, {"losses": loss_figure(losses)})
    content = {
        "title": title, "runs": runs, "images": images, "heads": HEADS,
        "rows": summary_rows(runs), "columns": list(reports), "layers": _layers(reports),
        "headlines": {way: headline(report) for way, report in reports.items()},
        "reasons": {way: why_no_loss(report) for way, report in reports.items()},
        "pages": _pages(folder, runs), "comparison": comparison,
        "verdicts": list(verdict_rows(comparison)),
        "verdict_heads": VERDICT_HEADS, "pairs_table": _write_pairs(folder, comparison),
    }
    return write_page(folder / "index.html", "compare", content)


def verdict_rows(comparison: Comparison) -> Iterator[tuple[str, ...]]:
    """A row for each way that was judged: its answer and what it rests on."""
    for place, judged in sorted(comparison.judged.items()):
        text = judged.endpoint.text
        is_bounded = math.isfinite(judged.low) and math.isfinite(judged.high)
        yield (
            comparison.ways[place], judged.answer, judged.note, judged.difference,
            f"{text(judged.low, sign=True)} to {text(judged.high, sign=True)}" if is_bounded
            else "–",
            str(judged.pairs), " / ".join(map(str, judged.diverged)),
        )


def _write_pairs(folder: Path, comparison: Comparison) -> str:
    """The table that the answers follow from, as a file, and as a URL; "" of one pair."""
    if not comparison.judged:
        return ""
    return write_table(folder / "pairs.csv", PAIR_HEADS, comparison.rows)


def _pages(folder: Path, runs: Sequence[Compared]) -> dict[str, str]:
    """The pages of the runs by way, as URLs that hold them: they travel with the comparison."""
    return {
        run.way: data_url("text/html", (folder / run.page).read_bytes())
        for run in runs if run.page and (folder / run.page).exists()
    }


def summary_rows(runs: Sequence[Compared]) -> list[tuple[str, ...]]:
    """A row for each run: its final loss, exceptions, swallowed updates and cycles."""
    rows = []
    first = next((_cycles(run.report) for run in runs if run.report), 0) or 1
    for run in runs:
        if run.report is None:
            rows.append((run.way, f"exit status {run.status}", *[""] * (len(HEADS) - 2)))
            continue
        report = run.report
        swallowed, nonzero = (
            sum(row[name] for row in report["swallowed"].values()) for name in (
                "swallowed", "nonzero")
        )
        rows.append((
            run.way, _final(report),
            *(f"{totals(report['layers'], name):,}" for name in COUNTERS),
            f"{swallowed / nonzero:.1%}" if nonzero else "–",
            f"× {_cycles(report) / first:.2f}" if _cycles(report) else "–",
        ))
    return rows


def _final(report: Mapping[str, Any]) -> str:
    """The final loss of a run, or why there is none."""
    if report["losses"]:
        return f"{final_loss(report['losses']):.4g}"
    return "nothing on the machine" if report.get("unreached") else "–"


def _cycles(report: Mapping[str, Any]) -> int:
    return sum(int(row["cycles"]) for row in report["units"])


def _layers(reports: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, list[str]]]:
    """By layer and direction: the exceptions of each way, those of the worst rows."""
    places = dict.fromkeys(
        (layer, direction)
        for report in reports.values()
        for layer, directions in report["layers"].items()
        for direction in directions
    )
    rows = []
    for layer, direction in places:
        rows_of_layer = [r["layers"].get(layer, {}).get(direction, {}) for r in reports.values()]
        weight = sum(sum(row.get(name, 0) for name in COUNTERS) for row in rows_of_layer)
        if weight:
            label = f"{layer or 'outside modules'}, {direction}"
            rows.append((weight, label, [_events(row) for row in rows_of_layer]))
    worst = sorted(rows, key=lambda row: -row[0])[:_ROWS]
    return [(label, cells) for row in rows if row in worst for _, label, cells in [row]]


def _events(row: Mapping[str, int]) -> str:
    return ", ".join(
        f"{row[name]:,} {head}" for name, head in COUNTERS.items()
        if row.get(name) and name != "subnormals"
    )
