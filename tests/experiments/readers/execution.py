"""Executions: loops on the device, orders of sums, replicas that drift."""

from __future__ import annotations

import math

import numpy as np
from scipy import stats

from tests.experiments.readers.pairs import student


def read_training_loop(reading, table):
    waits = {(r["pattern"], r["depth"]): r["waiting"] for r in table.where(part="prefetch")}
    patterns = table.values("pattern", part="prefetch")
    short, long = patterns[1], patterns[2]
    worst = max(waits[pattern, 3] for pattern in patterns[:3])
    reading.opens("Yes." if worst < 0.01 else "No.")
    reading.says("They hide a host that stalls for {} steps: the device waits {}% of its time with "
                 "one batch read ahead and {}% with three", 3, 100 * waits[short, 1],
                 100 * waits[short, 3])
    enough = min(d for p, d in waits if p == long and waits[p, d] < 0.01)
    reading.says("Where it stalls for {} steps, three leave {}% and {} are enough", 6.4,
                 100 * waits[long, 3], enough)
    launches = table.where(part="launches")
    reading.says("Launches of {} batches:", launches[0]["elements_in"])
    for row in launches:
        reading.left = reading.left.replace(f"{row['launches']:.0f} for {row['way']}", " ", 1)
    same = len({(row["digest"], row["digest_losses"]) for row in launches}) == 1
    assert f"are {'the same bits' if same else 'different bits'}." in reading.left
    # What follows is measured, and its data are in machine.csv.
    reading.left = reading.left.partition("Measured with threads")[0]


def _advantage(table, one, other, **where):
    """Mean and half width of log(other's error / one's) over the sets."""
    tiny = np.finfo(np.float64).tiny
    errors = [np.log(np.maximum(table.column("error", part="error", order=order, **where), tiny))
              for order in (one, other)]
    logs = errors[1] - errors[0]
    return logs.mean(), stats.t.ppf(0.975, len(logs) - 1) * stats.sem(logs)


def read_reduction_orders(reading, table):
    most = table.column("replicas", part="error").max()
    orders = table.values("order", part="error")
    rings = [order for order in orders if "ring" in order]
    ways = [(row["format"], row["rounding"]) for row in table.where(part="error")]
    ways, data = list(dict.fromkeys(ways)), table.values("data", part="error")
    natural = next(kind for kind in data if "digits" in kind)
    leads = [_advantage(table, "tree", ring, data=natural, format=f, rounding=r, replicas=most)
             for f, r in ways for ring in rings]
    above, below = ([mean - half > 0 for mean, half in leads], [m + h < 0 for m, h in leads])
    reading.opens("Yes." if all(above) else "No." if any(below) else
                  "Undecided by this run; more sets of gradients would decide it.")
    factors = [math.exp(mean) for mean, _ in leads]
    reading.says("With the gradients of {} replicas the rings' errors are {} to {} times the "
                 "tree's", most, min(factors), max(factors))
    beaten, cases = {}, 0
    for kind in data:
        for name, rounding in ways:
            for replicas in sorted(table.values("replicas", part="error")):
                where = {"data": kind, "format": name, "rounding": rounding, "replicas": replicas}
                errors = {o: table.column("error", part="error", order=o, **where).mean()
                          for o in orders}
                first = min(errors, key=errors.get)
                mean, half = _advantage(table, first, "tree", **where)
                cases += 1
                if mean - half > 0:
                    beaten[kind, name, rounding, replicas] = (errors["tree"], errors[first], first)
    if beaten:
        place = max(beaten, key=lambda key: beaten[key][0] - beaten[key][1])
        tree, error, first = beaten[place]
        reading.says(
            f"In {{}} of {{}} cases (data, format, rounding, R) another order is more exact than "
            f"the tree: most on {place[0]} in {place[1]} {place[2]} at R = {{}}, where {first} is "
            "off by {} u, the tree by {}.", len(beaten), cases, place[3], error, tree)
    half = {"format": "FP16", "replicas": most}
    for kind in data:
        means = {o: table.column("error", part="error", order=o, data=kind, rounding="RNE",
                                 **half).mean() for o in orders}
        first = min(means, key=means.get)
        equal = [o for o in sorted(means, key=means.get)[1:] if np.subtract(*_advantage(
            table, first, o, data=kind, rounding="RNE", **half)) <= 0]
        text = f" or {', '.join(equal)}, undecided by this run" if equal else ""
        reading.says(f"on {kind} {first}{text} ({{}} u)", means[first])
    ring = table.column("error", part="error", data=natural, rounding="RNE", order="tf_ring",
                        **half).mean()
    differ = table.column("differ", part="between", data=natural, rounding="RNE", **half).mean()
    reading.says("TensorFlow's ring is off by {} u on gradients, and orders disagree in {}% of",
                 ring, 100 * differ)
    spread = [table.column("spread", part="error", data=natural, rounding="SR", order=o,
                           **half).mean() for o in ("tree", "tf_ring")]
    reading.says("scatter by {} u in the tree and {} u in the ring", *spread)
    reading.skips("FP16", "FP32", "BF16")


def read_replica_rounding(reading, table):
    steps = table.column("step", part="drift").max()
    last = {"part": "drift", "way": "private bits", "step": steps}
    private = {r: table.column("mean_ulps", replicas=r, **last) for r in (2, 4)}
    stray = max(r["largest_ulps"] for r in table.where(part="drift") if r["way"] != "private bits")
    sure = all(x.mean() - student(x) > 0 for x in private.values())
    none = all(x.mean() == 0 for x in private.values())
    reading.opens("Yes." if sure and stray == 0 else "No." if none else "Undecided by this run; ")
    reading.says(
        "After {} steps with private bits the parameters of the replicas are {} ± {} ulps (R = {}) "
        "and {} ± {} ulps (R = {}) apart", steps, private[2].mean(), student(private[2]), 2,
        private[4].mean(), student(private[4]), 4)
    last["replicas"] = 4
    reading.says("{}% of them differ and the worst by {} ulps (R = {})",
                 100 * table.column("differ", **last).mean(),
                 table.column("largest_ulps", **last).max(), 4)
    exponents = []
    for seed in table.values("seed", part="drift"):
        rows = table.where(part="drift", way="private bits", replicas=4, seed=seed)
        late = [row for row in rows if row["step"] >= math.sqrt(steps)]
        logs = np.log([[row["step"], row["mean_ulps"]] for row in late])
        exponents.append(np.polyfit(logs[:, 0], logs[:, 1], 1)[0])
    reading.says("the drift grows as steps to the power {} ± {}", np.mean(exponents),
                 student(exponents))
    apart = [
        np.ptp(table.column("accuracy", part="accuracy", way="private bits", replicas=4, seed=s))
        for s in table.values("seed", part="accuracy")
    ]
    reading.says("replicas lie up to {} points apart", 100 * max(apart))
    reading.says("the largest drift is {} ulps at every step", stray)
    of_many = table.where(part="many")
    if of_many:
        last = max(row["step"] for row in of_many)
        (end,) = [r for r in of_many if r["step"] == last and r["way"] == "private bits"]
        reading.says("{} replicas with private bits are {} ulps apart after {} steps, and {}% of",
                     end["replicas"], end["mean_ulps"], last, 100 * end["differ"])
        equal = [r["largest_ulps"] for r in of_many if r["way"] == "equal bits"]
        reading.says("with equal bits the largest drift is {} ulps", max(equal))
