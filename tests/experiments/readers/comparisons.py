"""Pair 0 of a comparison: its tables from the reports inside of the pages of its runs."""

from __future__ import annotations

import json
import math

import numpy as np

from tests.experiments.readers.pages import Reading, WholePage, agrees
from tests.experiments.readers.runs import COUNTERS, read_run

#: Counters of the tables, by their heads; layers have no subnormals.
HEADS = list(COUNTERS)
#: Rows of the table of layers, at most.
MOST = 40


def reports_of(page):
    """The report of each way, out of the page of its run."""
    reports = {}
    for name, content in page.files.items():
        if name.endswith(".html"):
            way = name.removesuffix("-index.html")
            reports[way] = json.loads(WholePage(content).files["report.json"])
    return reports


def read_first_pair(text):
    """Both tables and the headline of each way; the ways."""
    page = WholePage(text)
    reports = reports_of(page)
    (summary,) = [table for table in page.tables if table[0][1] == "final loss"]
    assert [row[0] for row in summary[1:]] == list(reports)
    cycles = [sum(unit["cycles"] for unit in report["units"]) for report in reports.values()]
    first = next((n for n in cycles if n), 1)
    for row, report, of_way in zip(summary[1:], reports.values(), cycles, strict=True):
        read_summary(dict(zip(summary[0], row, strict=True)), report, of_way / first)
    for table in page.tables:
        if table[0][0] == "layer, direction":
            read_layers(table, reports)
    answers = [piece for _, kind, piece in page.texts if kind == "answer"]
    for sentence, report in zip(answers, reports.values(), strict=True):
        read_run(f"   {sentence}", report)
    return list(reports)


def final_loss(losses):
    last = max(3, math.ceil(0.1 * len(losses)))
    return float(np.mean(losses[-last:]))


def read_summary(cells, report, cycles):
    losses = [float(loss) for loss in report["losses"]]
    assert agrees(cells["final loss"], final_loss(losses))
    for head in HEADS:
        assert int(cells[head].replace(",", "")) == sum(
            row[COUNTERS[head]] for by_direction in report["layers"].values()
            for row in by_direction.values())
    lost, nonzero = (sum(row[name] for row in report["swallowed"].values())
                     for name in ("swallowed", "nonzero"))
    assert cells["swallowed"] == "–" if not nonzero else agrees(
        cells["swallowed"].rstrip("%"), 100 * lost / nonzero)
    assert cells["cycles"] == "–" if not cycles else agrees(
        cells["cycles"].removeprefix("× "), cycles)


def read_layers(table, reports):
    """Exceptions of each way by layer and direction: those of the worst rows."""
    ways = table[0][1:]
    weights = {}
    for report in reports.values():
        for layer, by_direction in report["layers"].items():
            for direction, row in by_direction.items():
                label = f"{layer or 'outside modules'}, {direction}"
                weights[label] = weights.get(label, 0) + sum(
                    row[counter] for counter in COUNTERS.values())
    told = [row[0] for row in table[1:]]
    others = [n for label, n in weights.items() if label not in told]
    assert len(told) == min(MOST, sum(n > 0 for n in weights.values()))
    assert max(others, default=0) <= min(weights[label] for label in told)
    for label, *cells in table[1:]:
        layer, _, direction = label.rpartition(", ")
        for way, cell in zip(ways, cells, strict=True):
            rows = reports[way]["layers"].get("" if layer == "outside modules" else layer, {})
            row, reading = rows.get(direction, {}), Reading(cell.replace(",", ""))
            for head in HEADS[:-1]:
                if row.get(COUNTERS[head]):
                    reading.says(f"{{}} {head}", row[COUNTERS[head]])
            reading.skips("÷ 0")
            reading.is_read()
