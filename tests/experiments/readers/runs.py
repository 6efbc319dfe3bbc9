"""The report of a run: every number of its text, and of its advice, from report.json alone."""

from __future__ import annotations

import re
from statistics import median

from tests.experiments.readers.pages import Reading, agrees

COUNTERS = {"overflow": "OVERFLOW", "invalid": "INVALID", "÷ 0": "DIVBYZERO",
            "underflow": "UNDERFLOW", "subnormal": "subnormals"}
#: Rows of a table.
SHOWN = 14
#: A way, a policy, a format, an operation or a line of the user's file: names with digits.
NAMES = re.compile(r"[pc]=[\w,=-]+|\bfp16[\w+=.*-]*|binary(?:16|32|64)|aten\.\w+|[\w/.]+\.py:\d+|"
                   r"AMP_\w+|\bmk2\b|\b\w+\.\d+\b(?=[ :)])|f32_\w+")


def read_run(text, report):
    """Each line of report.txt; one that no reader knows must have no number."""
    for line in text.splitlines():
        reading = Reading(re.sub(r"(?<=\d),(?=\d{3})", "", line))
        for begins, read in LINES.items():
            if re.match(begins, reading.text):
                read(reading, report)
                break
        reading.left = NAMES.sub(" ", reading.left)
        reading.is_read()


def read_title(reading, report):
    reading.says("{} steps", report["steps"])
    assert ("stochastic rounding" in reading.text) == report["stochastic_rounding"]
    reading.skips(report["policy"])


def read_elements(reading, report):
    computed = report["operations"]["computed_elements"]
    share = report["host"]["elements"] / computed if computed else 0.0
    reading.says("{} elements computed, {}% of them on the host; native operations: {}", computed,
                 100 * share, report["native"])


def read_losses(reading, report):
    first, last = (float(report["losses"][i]) for i in (0, -1))
    reading.says("loss {} → {}", first, last)


def read_uncounted(reading, report):
    bad = [x for x in map(float, report["losses"]) if x - x != 0]
    reading.says("{} backward passes", len(bad))


def read_first(reading, report):
    word = re.match(r"first (\S+(?: 0)?):", reading.text)[1]
    (row,) = (r for r in report["first"] if r["flag"] == COUNTERS[word])
    reading.says(f"first {word}: step {{}}, {row['operation']}", row["step"])
    reading.says(", {} results", row["times"])
    reading.skips(f"in {row['layer']}")


def read_birth(reading, report):
    (row,) = (r for r in report["births"] if reading.text.startswith(
        f"born: {r['kind']} in {r['operation']} of {r['layer'] or 'no module'} ({r['direction']},"))
    reading.says(", step {}", row["step"])
    reading.says(", {} times", row["count"])
    assert ("harmless" in reading.text) == row["harmless"]
    reading.skips(f"of {row['layer']}", f"in {row['operation']}", row["kind"], *row["deaths"])


def read_more(reading, report):
    if "more births" in reading.text:
        reading.says("… and {} more births", len(report["births"]) - SHOWN)
        return
    rows = [row for of_layer in report["layers"].values() for row in of_layer.values()
            if any(row[key] for key in COUNTERS.values())]
    reading.says("… and {} more rows", len(rows) - SHOWN)


def read_carried(reading, report):
    for kind, n in report["carried"].items():
        if n:
            reading.says(f"{{}} of {kind}", n)


def read_layer(reading, report):
    name, direction, *cells = reading.text.split()
    counters = report["layers"]["" if name == "-" else name][direction]
    expected = [counters[key] for key in ("results", *COUNTERS.values())]
    assert [int(cell) for cell in cells] == expected
    reading.left = ""


def read_constant(reading, report):
    rows = [r for r in report["constants"] if reading.text.startswith(
        f"constant {r['value']:g} becomes {r['becomes']} in {r['format']}: {r['layer']} "
        f"({r['direction']})")]
    reading.says("constant {} becomes", rows[0]["value"])
    times = int(re.search(r", (\d+) times", reading.text)[1])
    assert times in [row["times"] for row in rows]
    reading.says(", {} times", times)
    reading.skips(f": {rows[0]['layer']} (")


def read_scale(reading, report):
    scale = report["loss_scale"]
    reading.says("present {},", scale["present"])
    if scale["best"] is not None:
        reading.says("best {}", scale["best"])
    if scale["highest_safe"] is not None:
        reading.says("highest safe {}", scale["highest_safe"])
    if scale["unseen"]:
        reading.says("; {} gradients are zero", scale["unseen"])
    reading.skips(f"limited by {scale['limited_by']}")


def lost_updates(report):
    """Updates, those that are lost, and of the worst layer the name and the share."""
    rows = report["swallowed"]
    shares = {name: row["swallowed"] / row["nonzero"] for name, row in rows.items()
              if row["nonzero"]}
    worst = max(shares, key=shares.__getitem__)
    return (sum(r["nonzero"] for r in rows.values()), sum(r["swallowed"] for r in rows.values()),
            worst, shares[worst])


def read_updates(reading, report):
    nonzero, lost, worst, share = lost_updates(report)
    reading.says("{}% of {}", 100 * lost / nonzero, nonzero)
    if "largest share" in reading.text:
        reading.says(f"the largest share in {worst}, {{}}%", 100 * share)


def read_unit(reading, report):
    macs = sum(row["macs"] for row in report["units"])
    (row,) = (r for r in report["units"]
              if reading.text.startswith(f"unit {r['unit']}, {r['verb']}:"))
    reading.says(": {}% of the multiply-adds, {} products", 100 * row["macs"] / macs,
                 row["products"])


def read_shadow(reading, report):
    if "is empty" in reading.text:
        assert not report["shadow"]["operations"]
    reading.says("of {} steps", report["shadow"]["steps"])
    for row in report["shadow"]["layers"]:
        if row["share"] >= 0.005:
            reading.says(f"{row['layer'] or '-'} ({row['direction']}) {{}}%", 100 * row["share"])


def read_shadow_row(reading, report):
    """A row below the line of shares: an operation, a choice, a motion, what was not followed."""
    shadow = report["shadow"]
    for row in shadow["operations"]:
        if f"  {row['operation']} of {row['layer'] or '-'} ({row['direction']}): born" in (
                reading.text):
            reading.says(": born {}, inherited {}", row["born"], row["inherited"])
            if row["amplification"] is not None:
                reading.says(", × {}", row["amplification"])
    for row in shadow["branches"]:
        if f"in {row['operation']} of {row['layer'] or '-'}" in reading.text:
            reading.says(", step {}, ", row["step"])
            reading.says("): {} of {}", row["differing"], row["elements"])
    for row in shadow["motions"]:
        if f"  {row['name'] or 'a tensor'} moves by" in reading.text:
            reading.says("moves by {}% of its way", 100 * row["arrived"])
            reading.says("(error {}%,", 100 * row["error"])
    for row in shadow["rejoined"]:
        if f"not followed: {row['operation']} " in reading.text:
            reading.says(", {} times", row["times"])


def read_operand(reading, report):
    (row,) = [row for row in report["operands"] if reading.text.split()[:3] == [
        row["layer"], row["product"], row["operand"]]]
    _, _, _, noise, gain, *shares = reading.text.split()
    assert noise == "exact" if row["snr"] is None else agrees(noise, row["snr"])
    assert agrees(gain, row["gain"])
    for share, name in zip(shares, ("clipped", "flushed", "zero_scale"), strict=False):
        assert agrees(share.rstrip("%"), 100 * row[name])
    assert shares[3:] == [] if row["lag"] is None else agrees(shares[3], row["lag"][1])
    reading.left = ""


def read_uncovered(reading, report):
    operation = re.match(r"no recipe covers (\S+) of", reading.text)[1]
    rows = [row for row in report["uncovered"] if row["operation"] == operation]
    if len(rows) > 3:
        reading.says("and {} more", len(rows) - 3)
    reading.says(": {} products", sum(row["times"] for row in rows))


# Advice and its evidence --------------------------------------------------------------------------


def read_item(reading, report):
    reading.left = re.sub(r"^\d+\. ", "", reading.left)
    scale = report["loss_scale"]
    if "up to " in reading.left:
        reading.says("Multiply the loss by {}, up to {} no gradient overflows", scale["best"],
                     scale["highest_safe"])
        if scale["unseen"]:
            reading.says("; {} gradients are zero", scale["unseen"])
    if "Lower the loss scale" in reading.left and scale:
        if reading.left.startswith("Lower the loss scale to"):
            reading.says("loss scale to {}", scale["highest_safe"])
        elif "loss scale from" in reading.left:
            reading.says("loss scale from {}", scale["present"])
    constants = [f"{row['value']:g}" for row in report["constants"]]
    reading.skips("eps=0.0001", *(f"ompute {name} " for name in report["layers"]),
                  *(f"{word} {value}" for value in constants for word in ("constant", "factor")))


def read_evidence(reading, report):
    """A cause with its counts; of a run without one what the headline says."""
    if reading.text.strip().startswith("No overflow,") and report["swallowed"]:
        nonzero, lost, _, _ = lost_updates(report)
        reading.says("counted. {}% of the updates", 100 * lost / nonzero)
        return
    for words, read in CLAUSES.items():
        if words in reading.text:
            read(reading, report)
    for row in report["births"]:
        read_counts(reading, row)
    steps = {row["step"] for row in [*report["births"], *report["first"]]}
    steps |= {row.get("step", 0) for row in report["swallowed"].values()}
    for step in re.findall(r"forward, after step (\d+)", reading.left):
        assert int(step) + 1 in steps
        reading.left = reading.left.replace(f", after step {step}", "")
    for step in re.findall(r", step (\d+)", reading.left):
        assert int(step) in {*steps, 0}  # of a constant that no birth holds
        reading.left = reading.left.replace(f", step {step}", "")
    reading.skips(*(f"{the} constant {row['value']:g}" for row in report["constants"]
                    for the in ("the", "The")))


def read_counts(reading, row):
    for words in ("found: {} results", "): {} results"):
        if words.format(row["count"]) in reading.left:
            reading.says(words, row["count"])
    for word in ("results", "terms"):
        if f"{row['count']} of {row['results']} {word}" in reading.left:
            reading.says(f"{{}} of {{}} {word}", row["count"], row["results"])
    if row["kind"] == "integers" and "Whole numbers" in reading.left:
        reading.says("Whole numbers up to {} are rounded", float(row["detail"]))
        reading.says("does not hold {} of them", row["count"])
    if row["layer"]:
        reading.skips(f" of {row['layer']} ", f" of module {row['layer']} ",
                      f" of module {row['weights']} ")


def read_swallowed(reading, report):
    """A parameter, its updates, their median beside a spacing, and those of all parameters."""
    reading.left = re.sub(r"(?<=\d),(?=\d{3})", "", reading.left)
    rows = report["swallowed"]
    counts = dict(rows)
    for layer, row in rows.items():
        for name, of_name in row.get("parameters", {}).items():
            counts |= {name: of_name, f"{name} ({layer})": of_name}
    told = re.search(r"updates of (.+?) are at most", reading.text)[1]
    reading.says(f"{{}} of {{}} updates of {told} are at most", counts[told]["swallowed"],
                 counts[told]["nonzero"])
    if "typically" in reading.text:
        assert any(_median_size(row) in reading.left for row in rows.values())
        reading.left = re.sub(r"typically \S+ of one", "", reading.left)
    if "of all parameters" in reading.text:
        nonzero, lost, _, _ = lost_updates(report)
        reading.says("of all parameters {} of {}", lost, nonzero)


def _median_size(row):
    """Of the swallowed updates, the smallest ones, in words; powers of two from 1/2 to 1/1024."""
    sizes = [int(e) for e, n in sorted(row["in_ulps"].items(), key=lambda pair: int(pair[0]))
             for _ in range(n)]
    median = sizes[(row["swallowed"] + 1) // 2 - 1] if sizes else 0
    return f"typically 1/{2**-median} of one" if median > -11 else f"typically 2^{median} of one"


def read_digits(reading, report):
    (present,) = (n for exponent, n in report["loss_scale"]["curve"].items()
                  if 2.0 ** int(exponent) == report["loss_scale"]["present"])
    reading.says("Gradients underflow: {}% of their digits", 100 * present)


def read_symptom(reading, report):
    losses = [float(x) for x in report["losses"]]
    first = next(i for i, x in enumerate(losses) if x - x != 0)
    reading.says("from step {} on", report.get("symptom", {}).get("step", first))


def read_divisors(reading, report):
    shares = [r["arrived"] for r in report["shadow"]["motions"] if is_parameter(r)]
    reading.says("parameters move {} times as far", median(shares))


def read_overshot(reading, report):
    """An update of an optimiser beside binary32's of the same step."""
    ours, theirs = report["jumps"], report["binary32"]["jumps"]
    for step, jump in ours.items():
        if f"update of step {step} is" in reading.text:
            reading.says(f"update of step {step} is {{}} times as large as binary32's",
                         float(jump) / float(theirs[step]))


def is_parameter(row):
    return row.get("is_parameter", row["name"])


def way_of_parameters(report):
    """The part of their way in binary64 that parameters go, in squares; None without a shadow."""
    rows = [row for row in report.get("shadow", {}).get("motions", ()) if is_parameter(row)]
    squares = sum(row["length"] ** 2 for row in rows)
    gone = sum(row["length"] ** 2 * min(row["arrived"], 1.0) for row in rows)
    return gone / squares if squares else None


def read_factor(reading, report):
    assert any(row["becomes"] == "one" for row in report["constants"])
    reading.skips("is 1 in")


def read_divergence(reading, report):
    losses = [float(x) for x in report["losses"]]
    step = next(i for i, x in enumerate(losses) if not abs(x) <= 20 * abs(losses[0]))
    for begin, jump in report["jumps"].items():
        if f"update of step {begin} is" in reading.text:
            reading.says(f"update of step {begin} is {{}} times as large", float(jump))
            reading.says("goes from {} to {} in step {},", losses[0], losses[step], step)
            return
    reading.says("grew from {} to {} in step {},", losses[0], losses[step], step)


def read_magnified(reading, report):
    """The operation that magnifies errors most."""
    rows = report["shadow"]["operations"]
    if not any(row["error"] > 0.1 and (row["amplification"] or 0.0) > 16 for row in rows):
        rows = [{**row, **row["peak"]} for row in rows if "peak" in row] or rows
    row = max(rows, key=lambda row: row["amplification"] or 0.0)
    reading.says("error of {}% is {}% of its results, {} times", 100 * row["error"] / row[
        "amplification"], 100 * row["error"], row["amplification"])
    if "the error comes of" in reading.text:
        reading.says("together {} times as large", row["grown"]["amplification"])


def read_drift(reading, report):
    row = next(row for row in report["shadow"]["motions"] if (
        f"{row['operation']} writes ({row['line']})" in reading.text))
    reading.says("over {} steps", row["steps"])
    reading.skips(row["name"] or f"of {' × '.join(map(str, row['shape']))} that")
    reading.says("moves by {}% of its way", max(100 * row["arrived"], 0.0))
    if "is wrong by" in reading.text:
        row = max(report["shadow"]["operations"], key=lambda row: row["amplification"] or 0.0)
        assert f"the {row['operation']} ({row['line']})" in reading.text
        reading.says("is wrong by {}%", 100 * row["error"])


def read_roundings(reading, report):
    """The sum whose error is the largest."""
    sums = [row for row in report["shadow"]["operations"] if re.search(r"\b(add|sub|assignadd)",
                                                                      row["operation"].lower())]
    row = max(sums, key=lambda row: row["error"])
    reading.left = reading.left.replace(f"{row['calls']:,}", str(row["calls"]))
    reading.says("{} sums are rounded, each by {}%", row["calls"], 100 * row["born"])
    reading.says("wrong by {}% in the mean", 100 * row["error"])


CLAUSES = {
    "Updates are swallowed": read_swallowed, "of their digits are lost": read_digits,
    "The loss is ": read_symptom, "times as far as in binary64": read_divisors,
    "times as large as binary32's": read_overshot,
    "is 1 in": read_factor, "loses the digits of its operands": read_magnified,
    "left nearly unchanged": read_drift, "Rounding adds up": read_roundings,
    "The training diverges": read_divergence,
}
LINES = {
    r"\d+ steps": read_title, r"\d+ elements": read_elements, "loss .* →": read_losses,
    r"\d+ backward passes": read_uncounted, "first ": read_first, "born: ": read_birth,
    r"\S+ +(forward|backward|optimizer|evaluation) +\d": read_layer, "constant ": read_constant,
    "loss scale:": read_scale, "updates swallowed": read_updates, "unit ": read_unit,
    "shadow in binary64": read_shadow, r"  (?=\S)": read_shadow_row,
    r"\S+ +(forward|input_gradient|weight_gradient) +(first|second) ": read_operand,
    "no recipe covers": read_uncovered, "layer +product": lambda reading, _: (
        reading.skips("0 scale")),
    "… and ": read_more, "carried on ": read_carried,
    "the program stopped": lambda reading, report: reading.skips(report["stopped"]),
    r"\d+\. ": read_item, "   ": read_evidence, "layer +direction": lambda reading, _: (
        reading.skips("÷ 0")),
}
