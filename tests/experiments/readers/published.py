"""Published claims: their verdicts from the comparisons, their sentences from the rows beside them.

The claims themselves are in meta.json: their names, and what their sources leave open.
"""

from __future__ import annotations

import itertools
import re

import numpy as np
from scipy.stats import t

YES, NO, OPEN = "REPRODUCED", "NOT REPRODUCED", "CANNOT BE TOLD"


def read_verdicts(reading, table, parameters):
    """The words that the answer begins with, and each comparison of two numbers or words."""
    claims = parameters["claims"]
    words = [verdict_of(claim, table) for claim in claims]
    if len(claims) > 1:
        words = [f"{claim['part']}: {word}" for claim, word in zip(claims, words, strict=True)]
    reading.opens(f"{'; '.join(words)}.")
    for row in table.where(row="comparison"):
        printed, computed = (str(row[name]).removeprefix("'") for name in ("published", "ours"))
        if printed == computed:
            assert row["agrees"] == "yes", row
        elif is_number(printed) and "±" not in computed:
            assert row["agrees"] == "no", row


def verdict_of(claim, table):
    answers = {r["agrees"] for r in table.where(row="comparison", part=claim["part"])}
    if claim["missing"] or not answers:
        return OPEN
    return NO if "no" in answers else OPEN if "undecided" in answers else YES


def is_number(text):
    return re.fullmatch(r"-?\d+(\.\d+)?(e[-+]?\d+)?", text) is not None


def compared(table, part, quantity):
    """What came out here, as it is printed."""
    return str(table.one(row="comparison", part=part, quantity=quantity)["ours"]).removeprefix("'")


def check_printed(text, number):
    """A printed number is this one, in all of its digits."""
    digits = len(re.sub(r"e.*", "", text).partition(".")[2])
    shown = f"{number:.{digits}e}" if "e" in text else f"{number:.{digits}f}"
    assert float(shown) == float(text), (text, number)


def read_bf16_steps(reading, table, parameters):
    position = 15962
    unit = 2.0 ** (np.floor(np.log2(position)) - 7)  # of numbers with 8 bits
    below = unit * np.floor(position / unit)
    reading.says("BF16 numbers are {} apart at {}: {}, {}.", unit, position, below, below + unit)
    assert compared(table, "positions", f"spacing at {position}") == str(unit)
    rounded = table.column("rounded", row="beta", curve="to nearest")
    assert "both decay rates become 1," in reading.text
    assert rounded.tolist() == [1.0, 1.0]
    reading.skips("become 1,", "BF16", "beta2")


def read_biased_attention(reading, table, parameters):
    def pairs(curve, error):
        rows = table.where(row="error", curve=curve, error=error)
        return sum(r["pairs"] for r in rows)

    assert pairs("alone", -0.5) == pairs("alone", 0.5) > 0
    assert pairs("with a residue", -0.5) == 0 < pairs("with a residue", 0.5)
    for name in ("alone", "with a residue"):
        errors, n = (table.column(c, row="error", curve=name) for c in ("error", "pairs"))
        mean = float(errors @ n / n.sum())
        check_printed(compared(table, "the bias", f"mean error {name}, ulp"), mean)


def read_chunked_sums(reading, table, parameters):
    (single,) = table.where(row="sum", chunk=1)
    assert single["least"] == single["most"]
    rows = table.where(row="sum")
    best = min(rows, key=lambda row: abs(row["ratio"] - 1))
    reading.says("each of {} sums stops at {} of about {};", parameters["lanes"], single["most"],
                 parameters["n"])
    reading.says("chunks of {} reach {} of the exact sum.", best["chunk"], best["ratio"])


def read_eight_bits(reading, table, parameters):
    for data in table.values("data", row="ratio"):
        rows = sorted(table.where(row="ratio", data=data), key=lambda row: -row["decibels"])
        best = compared(table, "order", f"best for {data} data")
        assert best.split(" or ")[0] == rows[0]["format"]

    def decibels(data, name):
        return table.one(row="ratio", data=data, format=name)["decibels"]

    reading.skips("INT8", "5M2E")
    reading.says(" has {} dB of uniform data,", decibels("uniform", "INT8"))
    reading.says("{} dB of normal ones, where   has {} dB.", decibels("normal", "5M2E"),
                 decibels("normal", "INT8"))


def read_euler_stagnation(reading, table, parameters):
    for row in table.where(row="comparison"):
        n = float(row["quantity"].removeprefix("n = "))
        (point,) = table.where(row="error", curve=row["part"], n=n)
        check_printed(str(row["ours"]).removeprefix("'"), point["error"])
    flushed = table.where(row="error", curve="FP16 without subnormals")
    still = [r["n"] for r in flushed if r["error"] == flushed[-1]["error"]]
    assert len(still) > 1
    reading.says("stands still from {} steps on.", still[0])
    twist = table.one(row="error", curve="FP16, zero or normal", n=63.0)
    reading.says("the smallest normal number give {} at n = {}.", twist["error"], 63)
    reading.skips("FP16", "BF16")


def read_fp8_promotion(reading, table, parameters):
    def error(column, inputs, curve):
        return table.one(row="error", inputs=inputs, curve=curve)[column]

    for inputs, column in (("uniform", "largest"), ("normal", "norm")):
        ratio = error(column, inputs, "4096 at once") / error(column, inputs, "128, then FP32")
        shown = compared(table, "promotion", f"error before / after, {inputs}")
        assert abs(float(shown) / ratio - 1) < 5e-3
        assert (table.one(row="comparison", part="promotion", quantity=(
            f"error before / after, {inputs}"))["agrees"] == "yes") == (ratio >= 10)
    reading.says("The largest error is {}% for uniform numbers and {}% for normal ones",
                 100 * error("largest", "uniform", "4096 at once"),
                 100 * error("largest", "normal", "4096 at once"))
    reading.skips("2 percent")


def read_frozen_soil(reading, table, parameters):
    depths = [5, 15, 30, 60]
    kelvin = [table.one(row="profile", curve="FP32 to nearest", depth=float(d))["kelvin"]
              for d in depths]
    steps, whole = parameters["steps"], parameters["steps_of_60_years"]
    verb = "is" if compared_names(table, "single precision") == 0 else "stands still"
    reading.says(f"After {{}} of {{}} steps FP32 to nearest {verb} at {{}}/{{}}/{{}}/{{}} K in "
                 "{}/{}/{}/{} m.", steps, whole, *kelvin, *depths)
    for depth in depths:
        mean, exact = (table.one(row="profile", curve=curve, depth=float(depth))["kelvin"]
                       for curve in ("FP32 stochastic at the same time", "FP64 at the same time"))
        shown = compared(table, "stochastic rounding", f"error of the mean at {depth} m, kelvin")
        assert abs(float(shown) - (mean - exact)) <= 5e-3 * abs(mean - exact) + 1e-9


def compared_names(table, part):
    return len(table.where(row="comparison", part=part))


def read_half_matrix_products(reading, table, parameters):
    rows = table.where(row="error", curve="sums in FP16")
    first, last = rows[0], rows[-1]
    reading.says("From n = {} to {} the error grows {} times;", first["n"], last["n"],
                 last["error"] / first["error"])
    assert max(table.column("error", row="error", curve="rounded once")) < 2.0**-11
    reading.skips("2⁻¹¹")
    for row in table.where(row="comparison"):
        n, name = re.fullmatch(r"n = (\d+), (.*)", row["quantity"]).groups()
        (point,) = table.where(row="error", curve=name, n=float(n))
        check_printed(str(row["ours"]).removeprefix("'"), point["error"])


def read_heat_slopes(reading, table, parameters):
    pieces = []
    for part in ("nearest", "stochastic"):
        rows = table.where(row="error", curve=part)
        slopes = []
        for _, series in itertools.groupby(rows, key=lambda r: (r["digits"], r["seed"])):
            steps, errors = zip(*((r["step"], r["error"]) for r in series), strict=True)
            slopes.append(np.polyfit(np.log(steps), np.log(errors), 1)[0])
        half = t.ppf(0.975, len(slopes) - 1) * np.std(slopes, ddof=1) / np.sqrt(len(slopes))
        pieces += [float(np.mean(slopes)), float(half)]
    reading.says("to the power {} ± {} (nearest) and {} ± {} (stochastic).", *pieces)


def read_narrow_underflow(reading, table, parameters):
    ratios = []
    for row in table.where(row="error", curve="E4M3 and FP16"):
        free = table.one(row="error", part=row["part"], n=row["n"], curve="unlimited range")
        ratios.append(row["error"] / free["error"])
    reading.says("The error is at most {} times", max(ratios))


def read_rump_polynomial(reading, table, parameters):
    values = {r["curve"]: r["value"] for r in table.where(row="value")}
    reading.says("Pure binary32 gives {};", values["single"])
    exact = -54767 / 66192
    assert all(f"{value:.0e}" != f"{exact:.0e}" for value in values.values())
    for name, value in values.items():
        check_printed(compared(table, name, "value"), value)


def read_split_significands(reading, table, parameters):
    means = {}
    for name in ("to nearest", "toward zero"):
        bits, shares = (table.column(c, row="lost", curve=name) for c in ("bits", "share"))
        assert abs(shares.sum() - 1) < 1e-12
        means[name] = 23 - float(bits @ shares)
        check_printed(compared(table, name, "bits kept, mean"), means[name])
    if "half a bit" in reading.text:
        assert means["to nearest"] - means["toward zero"] == 0.5


def read_square_root_errors(reading, table, parameters):
    slopes = {r["format"]: r["slope"] for r in table.where(row="slope", curve="stochastic")}
    reading.says("Slopes of stochastic rounding: {} in BF16 and {} in FP16,", slopes["BF16"],
                 slopes["FP16"])
    reading.skips("BF16", "FP16", "4/u")
    for name, slope in slopes.items():
        mean, _, half = compared(table, "root of n", f"slope, {name}").partition(" ± ")
        assert abs(float(mean) - slope) < 1e-3
        low, high = slope - float(half), slope + float(half)
        is_inside = low >= 0.4 and high <= 0.6
        assert (table.one(row="comparison", part="root of n", quantity=f"slope, {name}")["agrees"]
                == "yes") == is_inside


def read_three_precisions(reading, table, parameters):
    limits = {r["curve"]: r["exponent"] for r in table.where(row="limit")}
    reading.says("Half of the systems are solved to 10^{} by substitution and to 10^{} by GMRES.",
                 limits["LU"], limits["GMRES"])
    for part, limit in limits.items():
        rows = table.where(row="system", curve=part)
        ends = []
        for _, series in itertools.groupby(rows, key=lambda r: (r["mode"], r["seed"])):
            points = list(series)
            step = points[1]["exponent"] - points[0]["exponent"]
            ends.append(points[0]["exponent"] + step * sum(r["solved"] for r in points))
        assert abs(float(np.mean(ends)) - limit) <= step, part  # a limit lies between two systems


def read_wrong_limits(reading, table, parameters):
    ends = {(r["row"], r["curve"]): r["value"] for r in table.rows if r["row"] != "comparison"}
    check_printed(compared(table, "Kahan and Muller", "v20, double"), ends["v", "double"])
    decimal = "25 years, decimal constant"
    check_printed(compared(table, "the chaotic bank", decimal), ends["balance", "double"])
    other = float(compared(table, "the chaotic bank", "25 years, exp(1) - 1"))
    assert other < 0 < ends["balance", "double"]


READERS = {name.removeprefix("read_"): function for name, function in list(globals().items())
           if name.startswith("read_") and name != "read_verdicts"}
