"""The page of a diagnosis, and its lines for a terminal, from diagnosis.json alone."""

from __future__ import annotations

import json
import math
import re

import numpy as np

from tests.experiments.readers.pages import Reading, WholePage, agrees
from tests.experiments.readers.runs import (
    NAMES,
    lost_updates,
    read_evidence,
    way_of_parameters,
)

#: Harm above this is told; harms above the other are compared as it.
TOLD, LARGEST = 0.05, 10.0


def read_sheet(text, lines=""):
    """Every sentence and cell of the page, and of the lines; the answer.

    lines    of diagnosis.txt.
    """
    page = WholePage(text)
    data = json.loads(page.files["diagnosis.json"])
    check_harms(data)
    for table in page.tables:
        TABLES[table[0][0]](table[1:], data)
    for tag, _, piece in page.texts:
        if tag != "pre":
            read_piece(piece, data)
    for line in lines.splitlines():
        read_piece(line, data)
    return data["answer"]


def harm_of(losses, reference, negligible):
    """The mean distance from the reference's losses, beside their fall or deviation."""
    ours, far = (np.array([float(x) for x in row]) for row in (losses, reference))
    if negligible and len(ours) == len(far) and (np.abs(ours - far) <= negligible).all():
        return 0.0
    if len(ours) < len(far) or not np.isfinite(ours).all():
        return math.inf
    if not len(far):
        return 0.0
    size = abs(far[0]) if len(far) == 1 else max(abs(far[0] - far[-1]), np.std(far))
    distance = np.abs(ours[: len(far)] - far).mean()
    return distance / size if size else (math.inf if distance else 0.0)


def check_harms(data):
    """Harms follow from losses, and the answer from the harm where the harm decides."""
    data["harm"] = harm_of(data["losses"], data["reference"], data["negligible"])
    for remedy in data["remedies"]:
        beside = remedy["reference"] or data["reference"]
        remedy["harm"] = harm_of(remedy["losses"], beside, data["negligible"])
        assert not (remedy["cures"] and remedy["harm"] > TOLD)
    if data["harm"] > TOLD:
        assert data["answer"] != "healthy"
    for dose in data["doses"]:
        dose["harm"] = float(dose["harm"])
        assert not (dose["cures"] and dose["harm"] > TOLD)
    for pair in data["pairs"]:
        pair["harms"] = [float(harm) for harm in pair["harms"]]
        neither, one, other, both = (min(harm, LARGEST) for harm in pair["harms"])
        assert pair["interacts"] == (one + other - neither - both > 0.05 * neither)


def says_harms(reading, pattern, *harms):
    """Harms in per cent, or in words where they are beyond 100 times: HARM in a pattern."""
    for harm in harms:
        large = "more than 10,000%" if math.isfinite(harm) else "infinite"
        pattern = pattern.replace("HARM", "{}%" if harm <= 100 else large, 1)
    reading.says(pattern, *[100 * harm for harm in harms if harm <= 100])


def read_piece(text, data):
    reading = Reading(text)
    for begins, read in SENTENCES.items():
        if re.search(begins, text):
            read(reading, data)
    for row in [*data["necessary"], *data["sufficient"], *data["chance"]]:
        reading.skips(*[name for name in (row["layer"], row.get("operation", "")) if name])
    reading.skips(*(remedy["what"] for remedy in data["remedies"]), "binary32", "binary64",
                  "the 95% interval")
    reading.left = NAMES.sub(" ", reading.left)
    reading.is_read()


def read_harm(reading, data):
    says_harms(reading, "Harm HARM:", data["harm"])
    reading.skips(data["measure"])
    reading.says("of {} steps", data["steps"])
    reading.says("{} runs from the same seeds, {} s", data["runs"], data["seconds"])
    reading.left = re.sub(r"Written .* UTC\.", "", reading.left)


def read_first_line(reading, data):
    reading.says("the first {} steps beside", data["steps"])


def read_harm_line(reading, data):
    says_harms(reading, "harm HARM", data["harm"])
    reading.skips(data["measure"])
    ours = "loss" if data["measure"] == "losses" else ";"
    for name, losses in ((ours, data["losses"]), (data["beside"], data["reference"])):
        if losses:
            reading.says(f"{name} {{}} → {{}}", float(losses[0]), float(losses[-1]))


def read_runs(reading, data):
    reading.says("{} runs, {} s", data["runs"], data["seconds"])


def read_sentence(reading, data):
    """The cause, from the report of the run."""
    if reading.text.strip() == data["sentence"]:
        read_evidence(reading, data["report"])
        if data["sentence"].startswith("No backward pass began in"):
            reading.says("began in {} steps", data["steps"])
        if data["noise"]:
            read_undecided(reading, data)


def read_undecided(reading, data):
    """A harm that so few steps do not tell from chance."""
    assert data["answer"] == "cannot tell"
    assert TOLD < data["harm"] <= TOLD + data["noise"]
    reading.says("of {} steps part", data["steps"])
    says_harms(reading, "by HARM, otherwise in each step: HARM of it may be chance", data["harm"],
               data["noise"])
    says_harms(reading, "from HARM on it is harm", TOLD)
    reading.says("--steps {}, with", 4 * data["steps"])


def read_mean(reading, data):
    reading.says("over the {} backward passes", data["report"]["losses_of_step"])


def read_unconfirmed(reading, data):
    assert any(remedy["cures"] and not remedy["steps"] for remedy in data["remedies"])
    reading.says("cures these {} steps", data["steps"])


def read_window(reading, data):
    """Where no gradients are recorded, behind the update of the step before."""
    if data["window"] and re.search(r"(in|after) steps? \d.* alone", reading.text):
        first, behind = data["window"]
        is_after = data["evaluated"] and first > 0
        word = "after" if is_after else "in"
        if behind == first + 1:
            reading.says(f"{word} step {{}} alone", first - is_after)
        else:
            reading.says(f"{word} steps {{}} to {{}} alone", first - is_after,
                         behind - 1 - is_after)


def read_harmless(reading, data):
    """Lost updates and digits, beside the way that parameters go all the same."""
    report = data["report"]
    assert data["harm"] <= TOLD
    reading.left = reading.left.replace(",", "")
    if "updates left" in reading.text:
        nonzero, lost, _, _ = lost_updates(report)
        reading.says("{}% of {} updates", 100 * lost / nonzero, nonzero)
    if "of their digits" in reading.text:
        scale = report["loss_scale"]
        reading.says("lose {}% of their digits", 100 * scale["lost"][0])
    way = way_of_parameters(report)
    if way is not None:
        reading.says("parameters go {}% of their way", 100 * way)


def read_left_out(reading, data):
    """Where the runs ended that would have taken too long."""
    followed = data["followed"]
    assert reading.text.strip().lower().startswith(followed["why"].lower())
    if followed["calls"] is None:
        assert data["steps"] == followed["steps"]
        reading.says("{} steps took {} s", followed["steps"], followed["seconds"])
    else:
        reading.left = reading.left.replace(",", "")
        reading.says("in {} s", followed["seconds"])
        reading.says("stops after {} operations", followed["calls"])


def read_no_format(reading, data):
    assert not data["necessary"]
    reading.says("With all {} sites" if "With" in reading.text else "with all {} sites",
                 data["sites"])


def read_pair(reading, data):
    rest = " (the others are)" if len(data["necessary"]) > 2 else ""
    for pair in data["pairs"]:
        names = [f"{pair[which]['layer']} (" for which in ("first", "second")]
        if pair["interacts"] and all(name in reading.text for name in names):
            says_harms(reading, f"HARM with neither given back{rest}, HARM and HARM with one, "
                       "HARM with", *pair["harms"])
            return
    raise AssertionError(reading.text)


def read_dose(reading, data):
    for dose in data["doses"]:
        if f"{dose['exponent_bits']} bits of exponent, {dose['digits']} digits" in reading.text:
            reading.says("{} bits of exponent, {} digits", dose["exponent_bits"], dose["digits"])
            assert ("does not cure" in reading.text) != dose["cures"]
            says_harms(reading, "harm HARM", dose["harm"])


def read_remedy(reading, data):
    for remedy in data["remedies"]:
        if reading.text.startswith(f"remedy {remedy['way']}: "):
            if remedy["lessens"]:
                says_harms(reading, "harm HARM → HARM.", data["harm"], remedy["harm"])
            elif remedy["steps"]:
                says_harms(reading, "harm HARM → HARM.", float(remedy["before"]), remedy["harm"])
            else:
                says_harms(reading, "harm HARM.", remedy["harm"])
            assert f": {verdict_of(remedy, data)}, harm" in reading.text
            reading.says(verdict_of(remedy, data))


def read_without_help(reading, data):
    """The ways that neither cure nor lessen, and no other one, with the harm that they leave."""
    ways = [remedy for remedy in data["remedies"] if not (remedy["cures"] or remedy["lessens"])]
    listed = [remedy for remedy in ways if len(remedy["way"]) <= 60][:5]
    assert reading.text.count(" (harm ") == len(listed)
    assert (f"{len(ways) - len(listed)} more" in reading.text) == (len(ways) > len(listed))
    for remedy in listed:
        before = float(remedy["before"])
        gone = min(TOLD, before / 2) if before > TOLD else TOLD
        stays = "" if remedy["harm"] > gone else ", a symptom stays"
        more = f" over {remedy['steps']} steps" if remedy["steps"] else ""
        says_harms(reading, f"{remedy['way']} (harm HARM{stays}{more})", remedy["harm"])


def verdict_of(remedy, data):
    """Most of the harm is half of it."""
    if remedy["lessens"]:
        assert TOLD < remedy["harm"] <= 0.5 * min(data["harm"], 1.0)
        return "lessens"
    assert remedy["cures"]
    if remedy["steps"]:
        assert len(remedy["losses"]) == remedy["steps"] > data["steps"]
        return f"cures over {remedy['steps']} steps"
    return "cures" if data["harm"] > TOLD else (
        "the symptom goes; the losses were close to binary32's without it too")


SENTENCES = {
    "^Harm ": read_harm, r"steps beside binary\d\d: ": read_first_line,
    "^  harm ": read_harm_line, r"^\d+ runs, ": read_runs, "": read_sentence,
    "steps? .* alone": read_window, "mean over the .* backward passes": read_mean,
    "was followed no further": read_unconfirmed, "[Ww]ith all .* sites": read_no_format,
    "each run stops after": read_left_out, "with neither given": read_pair, "^dose ": read_dose,
    "^remedy ": read_remedy, "^[Tt]ried, does not help": read_without_help,
    "[Ww]ithout harm: ": read_harmless,
}


def read_doses(rows, data):
    assert len(rows) == len(data["doses"])
    for (bits, digits, harm, verdict), dose in zip(rows, data["doses"], strict=True):
        assert (int(bits), int(digits)) == (dose["exponent_bits"], dose["digits"])
        check_cell(harm, dose["harm"])
        assert verdict == ("cures" if dose["cures"] else "does not cure")


def read_remedies(rows, data):
    mend = [remedy for remedy in data["remedies"] if remedy["cures"] or remedy["lessens"]]
    for (way, harm, verdict, what), remedy in zip(rows, mend, strict=True):
        assert (way, what) == (remedy["way"], remedy["what"])
        check_cell(harm, remedy["harm"])
        assert verdict == verdict_of(remedy, data)


def check_cell(text, harm):
    assert text == "infinite" if not math.isfinite(harm) else agrees(text.rstrip("%"), 100 * harm)


TABLES = {"bits of exponent": read_doses, "way": read_remedies}
