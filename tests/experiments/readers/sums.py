"""Sums: what a small number loses beside a large one, and what stochastic rounding makes of it."""

from __future__ import annotations

import numpy as np


def read_swamping(reading, table):
    lost = table.one(part="end", arithmetic="FP16")["term"]
    big = table.values("big", part="table")[0]
    rows = {small: table.one(part="table", arithmetic="FP16", small=small)
            for small in table.values("small", part="table")}
    small = 2 * lost
    reading.says("Beside {}, FP16 turns {} into {} ({}%) and {} into {}.", big, small,
                 rows[small]["kept"], 100 * (rows[small]["kept"] / small - 1), lost,
                 rows[lost]["kept"])
    ends = {row["arithmetic"]: row for row in table.where(part="end")}
    additions = table.column("n", part="sum").max()
    sums = table.where(part="sum", arithmetic="FP16")
    stopped = [row["sum"] for row in sums if row["n"] >= ends["FP16"]["n"]]
    assert set(stopped) == {ends["FP16"]["sum"]}
    reading.says(
        "of {} additions of {} only the first {} have an effect and the sum stays at {} (BF16: {})",
        additions, lost, ends["FP16"]["n"], stopped[-1], ends["BF16"]["sum"])
    reading.says("FP32 reaches {}, FP16 with stochastic rounding {}.", ends["FP32"]["sum"],
                 ends["FP16 + SR"]["sum"])
    single, nearest = (table.column("relative_error", part="curve", arithmetic=name)
                       for name in ("FP16 + SR", "FP16"))
    reading.says("Beside {} the error of a single stochastic result is on average larger than that "
                 "to nearest at {}% of the points", big, 100 * np.mean(single > nearest))
    reading.skips("FP16", "FP32", "BF16")


def read_stochastic_accumulation(reading, table):
    nearest = table.one(part="final", rounding="RNE")["final"]
    ends = table.column("final", part="final", rounding="SR")
    x, p = (table.column(name, part="law") for name in ("final", "probability"))
    mean = np.sum(x * p)
    deviation = np.sqrt(np.sum(p * np.square(x - mean)))
    error = 4 * deviation / np.sqrt(len(ends))
    is_unbiased, gains = abs(ends.mean() - mean) < error, ends.mean() - nearest > error
    reading.opens("Yes." if gains and is_unbiased else "No." if not is_unbiased else
                  "Undecided by this run; more lanes would decide it.")
    reading.says("to nearest stops at {};", nearest)
    reading.says("ends at {} on average over {} lanes (exact expectation {}) with a standard "
                 "deviation of {} (exact {})", ends.mean(), len(ends), mean, ends.std(ddof=1),
                 deviation)
    reading.says(f": {'unbiased' if is_unbiased else 'biased'}, and each single sum is off by "
                 "about {}%", 100 * deviation / mean)


def read_running_loss(reading, table):
    off = {}
    for name in table.values("total", part="reported"):
        true, told = (table.column(c, part="reported", total=name) for c in ("loss", "reported"))
        off[name] = np.abs(told / true - 1).max()
    batches = table.one(part="case", loss=0.4)["batches"]
    reading.opens("Yes." if off["FP16"] > 0.01 else "No.")
    reading.says("Over {} batches a constant loss of {} is reported as {} and one of {} as {}",
                 batches, 0.4, table.one(part="case", loss=0.4)["reported"], 0.3,
                 table.one(part="case", loss=0.3)["reported"])
    reading.says("losses up to {} the report", table.column("loss", part="reported").max())
    reading.says("off by up to {}%, with stochastic rounding by {}%, with an FP32 total by {}.",
                 100 * off["FP16"], 100 * off["FP16 + SR"], off["FP32"])
    reading.skips("FP16", "FP32")


def read_accumulation_order(reading, table):
    text = reading.left
    reading.left = text[0].lower() + text[1:]
    for kind in table.values("data", part="spread"):
        ulps, distinct = (table.column(c, part="spread", data=kind) for c in ("ulps", "distinct"))
        units = len(table.values("unit"))
        reading.says(
            f"on {kind} data the results of {{}} units lie {{}} ulps apart (median; largest {{}}) "
            "and all agree in {}% of products",
            units, np.median(ulps), ulps.max(), 100 * np.mean(distinct == 1))


def read_k_split(reading, table):
    half, single = (table.where(partials=p) for p in ("half partials", "float partials"))
    reading.says("one tile with half partials loses {}% (rms), {} tiles lose {}%; with float "
                 "partials {} and {}.", 100 * half[0]["rms"], half[-1]["tiles"],
                 100 * half[-1]["rms"], single[0]["rms"], single[-1]["rms"])
    best = min(single, key=lambda row: row["cycles"])
    reading.says("{} tiles are fastest with float partials: {} cycles beside {} on one",
                 best["tiles"], best["cycles"], single[0]["cycles"])


def read_accumulation_dtype(reading, table):
    small, large = table.values("gradients")
    most = table.column("count").max()

    def since(way, kind):
        off = [row["count"] for row in table.where(way=way, gradients=kind) if row["error"] > 0.01]
        return ("from G = {} on", min(off)) if off else ("nowhere up to G = {}", most)

    def error(way, kind=small):
        return table.one(way=way, gradients=kind, count=most)["error"]

    sums, shares, means = (
        since("SUM in FP16", small), since("SUM in FP16", large), since("MEAN in FP16", small))
    full = table.one(way="SUM in FP16", gradients=large, count=most)["saturated"]
    reading.says("may be off by {}% at most", 1)
    reading.says(
        f"SUM in FP16 is worse {sums[0]} with small gradients and {shares[0]} with large ones, "
        "where {}% of the sums", sums[1], shares[1], 100 * full)
    reading.says(f"whose shares underflow, {means[0]} with small ones. Over {{}} small ones SUM in "
                 "FP16 is off by {}% ({}% with stochastic rounding), RUNNING_MEAN by {}%, SUM in "
                 "FP32 by {} at most.", means[1], most, 100 * error("SUM in FP16"),
                 100 * error("SUM in FP16 + SR"), 100 * error("RUNNING_MEAN in FP16"),
                 max(error("SUM in FP32", kind) for kind in (small, large)))
    reading.skips("FP16", "FP32")
