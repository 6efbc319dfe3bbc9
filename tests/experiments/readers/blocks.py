"""Blocks: scale rules, weights both ways, transforms, delayed scales, stochastic rounding."""

from __future__ import annotations

import numpy as np


def read_two_d_blocks(reading, table):
    one, two = table.one(block="nvfp4"), table.one(block="nvfp4-2d")
    reading.says("With {} x {} blocks of NVFP4 {}% of the elements differ, by {}% of the norm",
                 1, 16, 100 * one["differ"], 100 * one["distance"])
    if two["differ"]:
        reading.says("{} x {} blocks give {}% other elements", 16, 16, 100 * two["differ"])
    else:
        reading.says("{} x {} blocks give the same bits", 16, 16)
    reading.says("cost {} dB ({} to {})", one["sqnr"] - two["sqnr"], one["sqnr"], two["sqnr"])


def read_scale_rules(reading, table):
    def sqnr(block, rule):
        return table.one(data="normal", block=block, rule=rule)["sqnr"]

    floor, rceil, nvfp4 = sqnr("mxfp8", "floor"), sqnr("mxfp8", "rceil"), sqnr("nvfp4", "two_level")
    reading.says("rceil gains {} dB over floor in MXFP8 ({} to {})", rceil - floor, floor, rceil)
    four = {row["rule"]: row["sqnr"] for row in table.where(data="normal", block="mxfp4")}
    best = max(four, key=four.get)
    reading.says(f"in MXFP4 {best} is best, {{}} dB above floor's {{}}.",
                 four[best] - four["floor"], four["floor"])
    reading.says("NVFP4 has {} dB, {} more than MXFP4, and {} with {} x {} blocks", nvfp4,
                 nvfp4 - four["floor"], sqnr("nvfp4-2d", "two_level"), 16, 16)


def read_is_sr_unbiased(reading, table):
    bias = {row["block"]: 100 * row["bias"] for row in table.rows}
    assert bias["nvfp4"] > 0.1
    reading.opens("No:")
    reading.says("misses {}% of the norm in TransformerEngine's NVFP4 recipe and {}% in MXFP4",
                 bias["nvfp4"], bias["mxfp4"])
    reading.says("With headroom {}/{} it is {}%, with three quarters of each element {}%", 17, 16,
                 bias["nvfp4-1617"], bias["mxfp4-34"])


def read_delayed_scaling(reading, table):
    growth = table.column("saturated", series="growth of 1 %")
    saturated = [row["amax"] * row["scale"] > 448 for row in table.where(series="growth of 1 %")]
    assert growth.tolist() == saturated
    reading.says("grow by {} % saturate in {} of {} steps", 1, growth.sum(), len(growth))
    spike = table.where(series="a spike")
    at = max(spike, key=lambda row: row["amax"])
    after = next(row for row in spike if row["step"] == at["step"] + 1)
    reading.says("one spike of {} leaves the scale at {} for {} steps", at["amax"], after["scale"],
                 sum(row["scale"] < 1 for row in spike))
    infinity = table.where(series="an infinity")
    first = next(row for row in infinity if np.isinf(row["amax"]))
    reading.says("keeps it as it was ({})", first["scale"])


def read_hadamard_trades(reading, table):
    for factor in (30, 100):
        plain, turned = (table.one(outliers=factor, transform=t) for t in ("none", "rht16"))
        reading.says(
            "with tokens {} times as large the error of ordinary tokens goes from {} to {} and "
            "their gain from {} to {}", factor, plain["error"], turned["error"], plain["gain"],
            turned["gain"])
    plain, turned = (table.one(outliers=1, transform=t) for t in ("none", "rht16"))
    reading.says("weight gradient is {} without and {} with it", plain["error_of_product"],
                 turned["error_of_product"])
