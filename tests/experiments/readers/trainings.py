"""Trainings: ways beside FP32, updates that are lost, loss scales."""

from __future__ import annotations

import numpy as np

from tests.experiments.readers.pairs import answer, needed, read_way, student

#: Points of test accuracy that do not matter.
POINT = 1.0


def accuracies(table, name):
    return 100 * table.column("accuracy", part="test", policy=name)


def fallen(table, name):
    """By how much the loss of each seed fell, from the first tenth of the epochs to the last."""
    falls = []
    for seed in table.values("seed", part="test", policy=name):
        losses = table.column("loss", part="loss", policy=name, seed=seed)
        if len(losses) < 2:
            return None
        tenth = -(-len(losses) // 10)
        falls.append(np.median(losses[:tenth]) - losses[-max(3, tenth):].mean())
    return np.array(falls)


def lost_of(table, name, reference):
    return accuracies(table, reference) - accuracies(table, name)


def read_mean(reading, pattern, values):
    """"{mean} ± {half} %", or without ± of one value."""
    if len(values) > 1:
        reading.says(pattern.replace("MEAN", "{} ± {} %"), values.mean(), student(values))
    else:
        reading.says(pattern.replace("MEAN", "{} %"), values.mean())


def read_digits(reading, table):
    small, usual = [], []
    for name in table.values("policy", part="test"):
        (usual if ", rate " in name else small).append(name)
    rate = float(usual[0].rpartition(" ")[2])
    told = {
        name.partition(", rate")[0]: answer(
            lost_of(table, name, usual[0]), POINT, fallen(table, usual[0]))[0]
        for name in usual[1:]
    }
    if told["FP16"] in ("as good", "better"):
        opening = "At a usual rate there is nothing to rescue."
    elif told["FP16"] == "worse" and told["FP16 + SR"] in ("as good", "better"):
        opening = "Yes."
    elif told["FP16"] == told["FP16 + SR"] == "worse":
        opening = "No."
    else:
        opening = "Undecided by this run; "
    reading.opens(opening)
    if opening.startswith("Undecided"):
        reading.says("{} pairs of runs would decide it.", *deciding(table, usual, told))
    read_mean(reading, f"At a rate of {rate:g} FP32 reaches MEAN test", accuracies(table, usual[0]))
    for name in usual[1:]:
        read_way(reading, name.partition(", rate")[0], lost_of(table, name, usual[0]), POINT,
                 fell=fallen(table, usual[0]))
    underfit = answer(lost_of(table, small[0], usual[0]), POINT, fallen(table, usual[0]))[0]
    learns = {"worse": "itself is underfit", "cannot tell": "itself may be underfit"}.get(
        underfit, "itself learns")
    read_mean(reading, f"At the small rate FP32 {learns} (MEAN)", accuracies(table, small[0]))
    lost = {
        name: 100 * table.column(
            "movement_lost", part="updates", policy=name, layer="hidden").mean()
        for name in ("FP16", "FP16 + SR")
    }
    reading.says("swallows {} % of the hidden layer's movement, stochastic rounding {} %",
                 lost["FP16"], lost["FP16 + SR"])
    for name in ("FP16, loss × 256", "FP16 + SR", "FP16", "mixed"):
        read_way(reading, name, lost_of(table, name, small[0]), POINT,
                 fell=fallen(table, small[0]))
    reading.skips("FP16", "FP32")


def deciding(table, usual, told):
    """Pairs that would settle the way on which the answer hangs."""
    name = "FP16" if told["FP16"] != "worse" else "FP16 + SR"
    lost = lost_of(table, next(n for n in usual if n.startswith(f"{name}, rate")), usual[0])
    return [needed(lost, POINT) if len(lost) >= 5 else 5]


def read_update_methods(reading, table):
    first, *others = table.values("method")
    rate = min(r for r in table.values("rate") if r >= 1e-4)
    here = {name: table.where(method=name, rate=rate) for name in (first, *others)}
    reading.says("At a learning rate of {} plain FP16 parameters ignore {}% of", rate,
                 100 * np.mean([row["lost"] for row in here[others[0]]]))
    fell = np.array([row["before"] - row["after"] for row in here[first]])
    for name in sorted(others, key=len, reverse=True):
        after = np.array([[a["after"], b["after"]]
                          for a, b in zip(here[name], here[first], strict=True)])
        lost = 100 * (after[:, 0] - after[:, 1]) / np.maximum(fell, 0.1 * np.median(fell))
        read_way(reading, name, lost, 1.0, fell=fell, unit="of FP32's progress", percent=" %")
    reading.skips("FP16", "FP32")


def read_loss_scales(reading, table):
    before, after = (row for row in table.where(part="limit"))
    state, powers = after["state"], []
    for row in (before, after):
        powers.append(np.log2(row["highest"]))
        assert powers[-1] == round(powers[-1])
    reading.says(f"is 2^{{}} before training and 2^{{}} {state}", *powers)
    sweep = table.where(part="sweep", state=state)
    worst = max((r for r in sweep if r["exponent"] == 0), key=lambda r: r["underflow"])["tensor"]
    shares = {r["exponent"]: 100 * r["underflow"] for r in sweep if r["tensor"] == worst}
    reading.says(
        f"the gradient of the {worst} suffers most: {{}} % of its entries underflow without "
        "scaling, {} % with the usual {}, {} % at the highest scale.",
        shares[0], shares[8], 2**8, shares[powers[1]])
    reading.says(f"The next scale is stopped in {after['stopped_by']}.")


def read_momentum(reading, table):
    factors = {}
    for rate in table.values("rate"):
        plain, averaged = (table.one(rate=rate, method=m) for m in ("SGD", "SGD with momentum"))
        factors[rate] = (plain["spread"] / averaged["spread"]) ** 2
    low, high = (f(factors, key=factors.get) for f in (min, max))
    reading.says("divides the variance that stochastic rounding gives the parameters by {} (at a "
                 "learning rate of {}) to {} (at {})", factors[low], low, factors[high], high)


def read_study(reading, table):
    """Test accuracies, each way beside the first one, and where most underflowed."""
    first, *others = table.values("policy", part="test")
    for name in sorted(others, key=len, reverse=True):
        lost = lost_of(table, name, first)
        if f". Beside {first}" in reading.left:
            read_way(reading, name, lost, POINT, fell=fallen(table, first))
    for name in sorted((first, *others), key=len, reverse=True):
        read_mean(reading, f"{name}: MEAN", accuracies(table, name))
    shares = {
        (row["policy"], row["layer"], row["phase"]): row["underflow"] / max(row["results"], 1)
        for row in table.where(part="exceptions")
    }
    worst = max(shares, key=shares.get)
    if shares[worst]:
        reading.says(f"Underflow is highest with {worst[0]} in {worst[1]}, {worst[2]}: {{}} % of",
                     100 * shares[worst])
    else:
        assert "Nothing underflowed." in reading.left
    reading.skips("FP16", "FP32", "FP8", "× 256")


def opening_of(told):
    """Of all ways together: yes, no, or undecided."""
    if set(told) <= {"as good", "better"}:
        return "Yes."
    return "No." if "worse" in told else "Undecided by this run; "


def read_mnist(reading, table):
    first, *others = table.values("policy", part="test")
    losses = [lost_of(table, name, first) for name in others]
    told = [answer(lost, POINT, fallen(table, first))[0] for lost in losses]
    reading.opens(opening_of(told))
    if opening_of(told).startswith("Undecided"):
        open_ones = [lost for lost, one in zip(losses, told, strict=True) if one == "cannot tell"]
        reading.says("{} pairs of runs would decide it.", max(
            needed(lost, POINT) if len(lost) >= 5 else 5 for lost in open_ones))
    reading.left = reading.left.partition(": Test accuracy")[2]  # what the data are
    read_study(reading, table)


def read_input_formats(reading, table):
    small, single = (
        100 * table.column("accuracy", part="training", way=way)
        for way in ("uint8, device in FP16", "FP32, host")
    )
    lost = single - small
    told = answer(lost, POINT)[0]
    reading.opens(opening_of([told]))
    if told == "cannot tell":
        reading.says("{} pairs of runs would decide it.",
                     needed(lost, POINT) if len(lost) >= 5 else 5)
    read_way(reading, "uint8, device in FP16", lost, POINT)
    seconds = {row["way"]: 1e6 * row["seconds"] for row in table.where(part="transfer")}
    reading.says("A batch of 16 × 224 × 224 × 3 takes {} µs as bytes instead of {} µs in FP32",
                 seconds["uint8, device in FP16"], seconds["FP32, host"])
    pixels = table.where(part="pixels", way="uint8, device in FP16")
    reading.says("up to {} of 256 pixel values differ from one rounding, by up to {} standard",
                 max(r["different"] for r in pixels), max(r["largest"] for r in pixels))
    for way, words in (("uint8, device in FP32", "in FP32 with a cast after it, up to {};"),
                       ("FP32, host", "by the host, sent in FP32, up to {}.")):
        reading.says(words, table.column("different", part="pixels", way=way).max())
    reading.skips("FP16", "FP32")
