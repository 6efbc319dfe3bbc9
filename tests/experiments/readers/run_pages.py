"""The page of a run: every cell and sentence of index.html from report.json, which is inside it."""

from __future__ import annotations

import json
import re

from tests.experiments.readers.pages import Reading, WholePage, agrees
from tests.experiments.readers.runs import (
    COUNTERS,
    NAMES,
    read_evidence,
    read_item,
    read_uncounted,
)
from tests.experiments.readers.trials import read_trials

#: Rows of a table of the page, at most, by its first heads.
MOST = {("layer", "direction"): 60, ("constant", "format"): 40, ("operation", "layer"): 20}


def read_run_page(text):
    """Tables by their heads, then each sentence; the heads that were read."""
    page = WholePage(text)
    report = json.loads(page.files["report.json"])
    heads = []
    for table in page.tables:
        head = tuple(table[0][:2])
        if head == ("way", "beside binary32"):
            read_trials(page, table)
        else:
            TABLES[head](table[1:], report)
        heads.append(head)
    for tag, kind, piece in page.texts:
        if tag == "pre" or kind == "name" or piece.startswith(("Written ", "Declared before")):
            continue
        read_piece(Reading(re.sub(r"(?<=\d),(?=\d{3})", "", piece)), report, tag)
    return heads


def read_piece(reading, report, tag):
    if tag in ("dd", "dt"):
        assert reading.text in {*report["evidence"], *report["evidence"].values()}
        return
    for begins, read in SENTENCES.items():
        if re.search(begins, reading.text):
            read(reading, report)
            break
    else:
        (read_item if tag == "li" else read_evidence)(reading, report)
    reading.left = NAMES.sub(" ", reading.left)
    reading.is_read()


def of_layer(name, report):
    return report["layers"]["" if name == "outside modules" else name]


def read_layers(rows, report):
    raised = [row for by_direction in report["layers"].values() for row in by_direction.values()
              if any(row[counter] for counter in COUNTERS.values())]
    assert len(rows) == min(len(raised), MOST["layer", "direction"])
    for name, direction, *cells in rows:
        counters = of_layer(name, report)[direction]
        expected = [counters["results"], *(counters[key] or "" for key in COUNTERS.values())]
        assert [cell.replace(",", "") for cell in cells] == list(map(str, expected))


def read_constants(rows, report):
    assert len(rows) == min(len(report["constants"]), MOST["constant", "format"])
    for cells, row in zip(rows, report["constants"], strict=False):
        value, *words, times, line = cells
        assert agrees(value, row["value"])
        assert words == [row["format"], row["becomes"], row["layer"], row["direction"]]
        assert (int(times), line) == (row["times"], row.get("line", ""))


def read_units(rows, report):
    macs = sum(row["macs"] for row in report["units"])
    assert len(rows) == len(report["units"])
    for cells, row in zip(rows, report["units"], strict=True):
        unit, verb, instruction, *numbers = cells
        assert (unit, verb, instruction) == (row["unit"], row["verb"], row["instruction"])
        if row["products"] is None:
            continue
        products, macs_of, share, most, rate = numbers
        assert [int(c.replace(",", "")) for c in (products, macs_of)] == [
            row["products"], row["macs"]]
        assert agrees(share.removesuffix(" %"), 100 * row["macs"] / macs)
        assert row["layers"][most] == max(row["layers"].values())
        assert rate == row["rate_is"]


def read_shadow_operations(rows, report):
    operations = report["shadow"]["operations"]
    assert len(rows) == min(len(operations), MOST["operation", "layer"])
    for cells, row in zip(rows, operations, strict=False):
        operation, layer, direction, born, inherited, factor, calls, line = cells
        assert [operation, layer, direction, line] == [
            row[name] for name in ("operation", "layer", "direction", "line")]
        assert agrees(born, row["born"])
        assert agrees(inherited, row["inherited"])
        assert factor == "" if row["amplification"] is None else agrees(
            factor, row["amplification"])
        assert int(calls) == row["calls"]


def read_operands(rows, report):
    assert len(rows) == len(report["operands"])
    for cells, row in zip(rows, report["operands"], strict=True):
        layer, product, operand, block, noise, gain, *shares, lag = cells
        assert [layer, product, operand, block] == [
            row["layer"], row["product"].replace("_", " "), row["operand"], row["block"]]
        assert noise == "exact" if row["snr"] is None else agrees(noise, row["snr"])
        assert agrees(gain, row["gain"])
        for share, name in zip(shares, ("clipped", "flushed", "zero_scale"), strict=True):
            assert agrees(share.removesuffix(" %"), 100 * row[name])
        assert lag == "" if row["lag"] is None else agrees(lag, row["lag"][1])


TABLES = {
    ("layer", "direction"): read_layers, ("constant", "format"): read_constants,
    ("unit", "verb"): read_units, ("operation", "layer"): read_shadow_operations,
    ("layer", "product"): read_operands,
}


def read_nothing(reading, report):
    """What the page says of its tables, with numbers that are no results."""
    reading.skips("below 1", "above 1")


def read_fact(reading, report):
    """A number over its name."""
    computed = report["operations"]["computed_elements"]
    losses = [float(x) for x in report["losses"]]
    for words, numbers in {
        "{}steps of an optimiser": [report["steps"]],
        "{} → {}loss, first and last step": [losses[0], losses[-1]] if losses else [],
        "{}elements computed": [computed],
        "{} %of them on the host": [
            100 * report["host"]["elements"] / computed if computed else 0.0],
        "{}operations that ran natively": [report["native"]],
    }.items():
        if words.rpartition("}")[2] in reading.text:
            reading.says(words, *numbers)


def read_operations(reading, report):
    kinds = ("machine", "exact", "host", "integer")
    reading.says(", ".join(f"{{}} {kind}" for kind in kinds) + "; {} native",
                 *(report["operations"][kind] for kind in kinds), report["native"])
    for name, row in report["host"]["operations"].items():
        reading.says(f"{name} ({{}} calls, {{}} elements)", row["calls"], row["elements"])


def read_shadow(reading, report):
    shadow = report["shadow"]
    reading.says("Of the first {} steps", shadow["steps"])
    for row in shadow["branches"][:8]:
        reading.says(f"{row['operation']} ({row['layer'] or 'no module'}, {row['line']}) would "
                     "choose otherwise for {} of {}.", row["differing"], row["elements"])
    for row in shadow["motions"][:8]:
        if row["arrived"] < 0.95:
            reading.says(f"{row['name'] or 'A tensor'} ({row['line']}) moves by {{}} % of its way",
                         100 * row["arrived"])


def read_empty_shadow(reading, report):
    assert not report["shadow"]["operations"]
    reading.says("The shadow of {} steps is empty", report["shadow"]["steps"])


def read_uncovered(reading, report):
    for row in report["uncovered"][:40]:
        reading.says(f"{row['operation']} of {row['layer'] or 'the program'} ({{}})", row["times"])


def read_uncounted_in_lead(reading, report):
    if report["uncounted"]:
        read_uncounted(reading, report)


SENTENCES = {
    "^(Highest safe: the largest|What quantising did)": read_nothing,
    "(steps of an optimiser|first and last step|elements computed|them on the host|natively)$":
        read_fact,
    r"machine, \d+ exact": read_operations, "^Of the first .* every tensor": read_shadow,
    "^No recipe covers": read_uncovered, "^The shadow of": read_empty_shadow,
    "^Results of operations that raised": read_uncounted_in_lead,
}
