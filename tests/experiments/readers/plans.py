"""The page of a search for a plan: every number from search.json, which is inside of it."""

from __future__ import annotations

import json
import re

from tests.experiments.readers.pages import Reading, WholePage, agrees

#: What a sentence says of a limit, at most so many.
LIMITS = 3
#: Names with digits.
NAMES = re.compile(r"\bmk\d\S*|\blayer\d+|IPU-\S+|Mk\d|BERT-Large|C600|GC200|v\d\S*")


def read_plan_page(text):
    """Each sentence and cell; the opening words of the verdict."""
    page = WholePage(text)
    data = json.loads(page.files["search.json"])
    best = best_of(data)
    rows = page.tables[0][1:]
    assert len(rows) == len(data["front"])
    for cells, plan in zip(rows, data["front"], strict=True):
        read_cells(cells, plan, data, is_best=plan is best)
    facts = iter([text for tag, _, text in page.texts if tag == "li"])
    for constant in data["constants"]:
        read_constant(next(facts), constant)
    read_code(next(facts), data)
    assert next(facts, None) is None
    for tag, _, text in page.texts:
        if tag not in ("li", "pre") and not text.startswith("Written "):
            reading = Reading(re.sub(r"(?<=\d),(?=\d{3})", "", text))
            read_sentence(reading, data, best)
            reading.left = NAMES.sub(" ", reading.left)
            reading.is_read()
    return page.text("Use the plan" if best else "No plan fits").partition(":")[0]


def best_of(data):
    """The fastest plan that fits beside the least code."""
    fitting = [p for p in data["front"] if p["bytes"] + p["code"]["least"] <= data["room"]]
    return min(fitting, key=lambda plan: (plan["cycles"], plan["bytes"]), default=None)


def smallest_of(data):
    return min(data["front"], key=lambda plan: (plan["bytes"], plan["cycles"]))


def times_of(plan):
    return [1e3 * end["cycles"] / end["clock"] for end in (plan["fast"], plan["slow"])]


def read_interval(reading, before, plan, after):
    """The times of a plan; ends that look the same are told once."""
    ends = times_of(plan)
    if f"{ends[0]:.3g}" == f"{ends[1]:.3g}":
        reading.says(f"{before}{{}}{after}", ends[0])
    else:
        reading.says(f"{before}{{}} … {{}}{after}", *ends)


def read_cells(cells, plan, data, *, is_best):
    star, ms, megabytes, share, *numbers = cells[:7]
    schedule, recomputed, remote, shards, first = cells[7:]
    assert star == ("*" if is_best else "")
    reading = Reading(ms)
    read_interval(reading, "", plan, "")
    reading.is_read()
    assert agrees(megabytes, plan["bytes"] / 1e6)
    assert agrees(share.rstrip("%"), 100 * plan["bytes"] / data["room"])
    ipus, replicas, count = map(int, numbers)
    assert (ipus, replicas, count) == (plan["ipus"], plan["replicas"], plan["micro_batches"])
    assert replicas * count == data["micro_batches"]
    assert ipus <= data["ipus"]
    assert schedule == (plan["schedule"] if plan["begin_with"] else "-")
    assert recomputed == (plan["recomputed"] or "-")
    assert remote == (" ".join(plan["remote"]) or "-")
    assert shards == ("state" if plan["shards_state"] else "-")
    assert first == (", ".join(plan["begin_with"]) or "-")


def read_constant(text, constant):
    """A constant by both ends, each with its evidence and its source."""
    ends = [f"{fact['value']} ({fact['evidence']}: {fact['source']})"
            for fact in (constant["fast"], constant["slow"])]
    assert text == f"{constant['name']}: " + " … ".join(dict.fromkeys(ends))


def read_code(text, data):
    low, high = smallest_of(data)["code"].values()
    reading = Reading(text)
    reading.says("code, bytes of an IPU: {} … {}", low, high)
    reading.is_read()


def read_sentence(reading, data, best):
    for begins, read in SENTENCES.items():
        if re.match(begins, reading.text):
            read(reading, data, best)


def read_title(reading, data, best):
    reading.skips(data["target"])
    reading.says("{} IPUs · {} micro-batches of an update", data["ipus"], data["micro_batches"])


def read_tried(reading, data, best):
    reading.says("{} of {} plans were tried", data["tried"], data["of_all"])
    assert data["tried"] + data["excluded"] <= data["of_all"]


def read_filled(reading, plan):
    """Where a plan needs most memory, and what fills it."""
    peak = max(plan["peaks"], key=lambda peak: sum(peak["bytes_by_kind"].values()))
    sizes = peak["bytes_by_kind"]
    assert sum(sizes.values()) == plan["bytes"]
    stages = [row["stage"] for row in plan["stages"] if row["ipu"] == peak["ipu"]]
    kind = max(sizes, key=sizes.get)
    in_slot = peak["slot"] != plan["slots"]
    where = "in slot {}" if in_slot else "in the update"
    holes = ", ".join("{}" for _ in stages)
    reading.says(
        f"stage{'s' * (len(stages) > 1)} {holes} on IPU {{}} ({{}} bytes {where}, of them {kind} "
        "{})", *stages, peak["ipu"], plan["bytes"], *[peak["slot"]] * in_slot, sizes[kind])


def read_best(reading, data, best):
    n = best["ipus"]
    ending = f" ms for an update on {n} IPU{'s' * (n > 1)}, "
    read_interval(reading, "", best, ending)
    reading.says("{}% of an IPU's memory", 100 * best["bytes"] / data["room"])
    read_filled(reading, best)


def read_perhaps(reading, data, best):
    assert best["bytes"] + best["code"]["most"] > data["room"]
    reading.says("takes less than {} bytes of an IPU; that may be {} … {},",
                 data["room"] - best["bytes"], *best["code"].values())


def read_limit(reading, data, best):
    """Limits, the hardest first."""
    (name, cycles), = [(row["name"], row["cycles"]) for row in data["limits"]
                       if f" by {row['name']}: " in reading.text]
    cost = {row["name"]: row["total"] - row["cycles"] for row in data["limits"]}
    assert {row["total"] for row in data["limits"]} == {best["cycles"]}
    rank = sorted(cost, key=cost.get, reverse=True).index(name)
    assert rank < LIMITS
    assert reading.text.startswith("Then by" if rank else "It is bound by")
    fastest = data["front"][0]
    if name.startswith("memory of"):
        assert fastest["bytes"] + fastest["code"]["least"] > data["room"]
        assert cycles == min(fastest["cycles"], best["cycles"])
        read_filled(reading, fastest)
    reading.says(": {}% of its time", 100 * cost[name] / best["cycles"])


def read_none(reading, data, best):
    assert best is None
    smallest = smallest_of(data)
    room = data["room"] - smallest["code"]["least"]
    reading.says("the smallest needs {} bytes in", smallest["bytes"])
    read_filled(reading, smallest)
    reading.says("{} more than the {} that an IPU", smallest["bytes"] - room, room)


def read_advice(reading, data, best):
    smallest = smallest_of(data)
    reading.says("(at most {} of the samples",
                 (data["room"] - smallest["code"]["least"]) / smallest["bytes"])


SENTENCES = {
    r"\S+ · \d+ IPUs": read_title, r"[\d,]+ of [\d,]+ plans": read_tried,
    "Use the plan with": read_best, "It fits if": read_perhaps,
    "(It is bound|Then) by": read_limit, "No plan fits": read_none,
    "Use more IPUs": read_advice,
}
