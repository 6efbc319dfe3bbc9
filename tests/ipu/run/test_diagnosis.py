"""Diagnosis by runs, on made-up programs whose sites are known (golden, corners)."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from ipu.learn.policy import FP32
from ipu.run.advice import Advice
from ipu.run.budget import Budget, TimeOverError
from ipu.run.diagnosing import diagnose
from ipu.run.diagnosis import TriedRemedy
from ipu.run.endpoints import Outcome
from ipu.run.harm import harm_of, unit_of
from ipu.run.patches import _with_loss_scaling, patch_of
from ipu.run.remedies import _meaning, drop_larger, sort_remedies
from ipu.run.restoring import PrecisionSite
from ipu.run.ways import Way
from tests.ipu.run.runs import born

WAY = Way.parse("p=f32,c=f16,part=f32")
LAYERS = [f"layer{i}" for i in range(7)]
GOOD = [4.0, 3.0, 2.0, 1.5]


def report_of(losses):
    counters = dict.fromkeys(
        ("results", "zeros", "subnormals", "OVERFLOW", "INVALID", "DIVBYZERO", "UNDERFLOW"), 0)
    layers = {name: {"forward": counters, "backward": counters} for name in LAYERS}
    return {"losses": losses, "layers": layers, "first": [], "births": [], "swallowed": {},
            "constants": [], "loss_scale": {}, "parameters": {}, "exponents": {}}


def program(is_harmed, *, reference=GOOD, harmed=(4.0, 4.0, 4.0, 4.0)):
    """A replay: harmed(sites, moved) where the way is low."""

    def replay(way, restoring, has_shadow):
        is_low = way.policy != FP32
        wide = {pattern for pattern, _ in getattr(way.policy, "layers", ())}
        sites = {*restoring.sites, *(PrecisionSite(layer, role) for layer in wide
                                     for role in ("forward", "backward"))}
        ill = is_low and is_harmed(sites, restoring.moved)
        losses = list(harmed) if ill else list(reference)
        return Outcome(losses, report_of(losses))

    return replay


def at(number, role="forward"):
    return PrecisionSite(f"layer{number}", role)


def test_one_site_is_necessary_and_sufficient():
    result = diagnose(program(lambda back, moved: at(3) not in back), WAY, 4)
    assert (result.answer, result.necessary, result.sufficient) == ("ill", [at(3)], [at(3)])
    assert result.is_smallest
    assert result.chance == []
    assert str(result.cure.way) == "mixed+layer3=f32"
    assert "layer3 (forward)" in str(result)


NOISE = [-0.2, 0.3, -0.1, 0.2, -0.3, 0.25, -0.2, 0.05]


@pytest.mark.parametrize(("parts", "births", "answer"), [
    (NOISE, [], "cannot tell"),                                   # 9 % of the fall, in turn
    ([abs(x) for x in NOISE], [], "ill"),                         # always above
    ([0.0] * 7 + [1.0], [], "cannot tell"),                       # in one step alone
    ([8 * x for x in NOISE], [], "ill"),                          # more than chance makes
    ([x / 4 for x in NOISE], [], "healthy"),
    (NOISE, [born("saturation", operation="aten.exp")], "ill"),   # a symptom without losses
])
def test_a_harm_that_may_be_chance_is_none_yet(parts, births, answer):
    fall = [4.0 - 2 * i / 7 for i in range(8)]
    whole = program(lambda back, moved: True, reference=fall,
                    harmed=[x + part for x, part in zip(fall, parts, strict=True)])

    def replay(way, restoring, has_shadow):
        outcome = whole(way, restoring, has_shadow)
        is_low = way.policy != FP32
        return replace(outcome, report={**outcome.report, "births": births if is_low else []})

    result = diagnose(replay, WAY, 8)
    assert result.answer == answer
    told = "of it may be chance, and from 5.0% on it is harm" in str(result)
    assert told == (answer == "cannot tell") == ("--steps 32" in str(result))
    if told:
        assert "\n  harm " in str(result)
        assert result.remedies == []


def test_losses_that_are_means_are_told_so():
    def replay(way, restoring, has_shadow):
        return Outcome(GOOD, {**report_of(GOOD), "losses_of_step": 3})

    assert "mean over the 3 backward passes of a step" in str(diagnose(replay, WAY, 4))
    assert "mean" not in str(diagnose(program(lambda back, moved: False), WAY, 4))


def test_of_either_of_two_both_are_necessary_and_one_suffices():
    result = diagnose(
        program(lambda back, moved: not {at(1), at(5, "backward")} <= back), WAY, 4)
    assert set(result.necessary) == {at(1), at(5, "backward")}
    assert len(result.sufficient) == 1
    assert "interact" in str(result)


def test_of_two_together_one_is_necessary_and_both_suffice():
    result = diagnose(program(lambda back, moved: not {at(1), at(5)} & back), WAY, 4)
    assert len(result.necessary) == 1
    assert set(result.sufficient) == {at(1), at(5)}


def test_a_site_that_a_unit_cures_is_told_as_chance():
    result = diagnose(program(lambda back, moved: at(3) not in back | set(moved)), WAY, 4)
    assert result.chance == [at(3)]
    assert "no cause" in str(result)


def test_a_program_like_binary32_is_healthy():
    result = diagnose(program(lambda back, moved: False), WAY, 4)
    assert (result.answer, result.remedies, result.harm) == ("healthy", [], 0.0)
    assert result.runs == 2


def test_binary32_that_diverges_is_told():
    replay = program(lambda back, moved: True, reference=[4.0, math.nan, math.nan, math.nan])
    assert diagnose(replay, WAY, 4).answer == "binary32 does not train here"


def test_harm_that_no_site_brings_has_no_site():
    result = diagnose(program(lambda back, moved: True), WAY, 4)
    assert (result.answer, result.necessary, result.cure) == ("ill", [], None)
    assert "no format is its cause" in str(result)


def test_without_time_sites_are_told_as_not_tried():
    result = diagnose(program(lambda back, moved: at(3) not in back), WAY, 4, Budget(0.0))
    assert not result.is_smallest
    assert (result.runs, result.necessary, len(result.remedies)) == (3, [], 1)
    assert "no time was left to search 14 sites; give more --seconds" in str(result)
    # A search that was cut tells no list of sites of which most are innocent.
    result.necessary = [at(number) for number in range(7)]
    assert ("time ran out: the harm goes with 7 of 14 sites given back to binary32; more --seconds "
            "leave fewer") in str(result)
    assert "layer6 (forward)" not in str(result)
    result.necessary = [at(0), at(1)]
    assert "time ran out: not all of them may be needed" in str(result)
    assert "  layer0 (forward)" in str(result)


@pytest.mark.parametrize("trials", range(12))
def test_a_trial_that_is_cut_tells_nothing_and_the_page_is_written(trials):
    """What is told was run: the sites that are told cure, though more than are needed."""
    whole, runs, cut = program(lambda back, moved: at(3) not in back), [], []

    def replay(way, restoring, has_shadow):
        if len(runs) == trials + 2:
            cut.append(restoring)
            raise TimeOverError
        runs.append(restoring)
        return whole(way, restoring, has_shadow)

    result = diagnose(replay, WAY, 4, has_windows=True)
    assert result.answer == "ill"
    assert result.runs == len(runs)
    assert len(cut) <= 1
    if result.is_smallest:
        assert (result.necessary, result.sufficient) == ([at(3)], [at(3)])
    assert result.is_smallest or cut
    assert at(3) in result.necessary or not result.necessary
    assert all(remedy.way.policy.of("layer3") == FP32 for remedy in result.remedies
               if remedy.cures)
    assert "binary32 the harm stays" not in str(result)


@pytest.mark.parametrize(("losses", "reference", "harm"), [
    ([4, 3], [4, 3], 0.0), ([4, 4], [4, 3], 0.5), ([4.0], [4, 3], math.inf),
    ([4, math.inf], [4, 3], math.inf), ([], [], 0.0), ([2, 2], [1, 1], math.inf),
    ([5.0], [4.0], 0.25),
])
def test_harm_is_beside_what_binary32_goes_through(losses, reference, harm):
    assert harm_of(losses, reference) == harm


@pytest.mark.parametrize(("losses", "unit"), [
    ([1.384765625, 0.5], 2.0**-10), ([1.384765625, 1.0 + 2**-20], 0.0), ([1.5, 1.0], 2.0**-7),
    ([1.384765625 + 2.0**-13, 0.5], 2.0**-10), ([0.0, 2.0], 2.0**-6), ([], 0.0), ([math.nan], 0.0),
])
def test_a_unit_of_losses_is_that_of_the_format_that_holds_them(losses, unit):
    assert unit_of(losses) == unit
    harm = math.inf if any(map(math.isnan, losses)) else 0.0
    assert harm_of([x + unit for x in losses], losses, unit) == harm


def test_patches():
    words = "fpsim torch", "--found-inf status a.py"
    base = Way.parse("fp16")
    constant = TriedRemedy("", Way.parse("fp16+1e-12=1e-4"), 0.0, True)
    lines = patch_of(constant, base, "a.py", "x = x + 1e-12\ny = 11e-12\n", words).splitlines()
    assert [row for row in lines if row[0] in "+-"][2:] == ["-x = x + 1e-12", "+x = x + 0.0001"]
    text = "# 1e-12\ny = '1e-12', -1e-12, 2j\n"
    lines = patch_of(constant, base, "a.py", text, words).splitlines()
    assert [row for row in lines if row[0] in "+-"][3:] == ["+y = '1e-12', -0.0001, 2j"]
    stochastic = TriedRemedy("", Way.parse("fp16+sr"), 0.0, True)
    assert patch_of(stochastic, base, "a.py", "x = 1\n", words).splitlines() == [
        "-fpsim torch --policy fp16 --found-inf status a.py",
        "+fpsim torch --policy fp16+sr --found-inf status a.py"]


SCALED = """\
import poptorch
from poptorch import optim as po
a = poptorch.optim.SGD(net.parameters(), lr=(0.1))
b = po.Adam(
    net.parameters(),  # é
    lr=(0.1), loss_scaling=64.0, eps=1e-4)
c = po.AdamW(p, lr=0.1, loss_scaling=args.scale); d = po.SGD(p, lr=0.1, loss_scaling=2.0 ** 4)
e = po.SGD(p, **options), torch.optim.SGD(p, lr=0.1)
"""


def test_a_loss_scale_is_a_patch_of_the_optimisers_that_take_one():
    words, base = ("fpsim torch", "a.py"), Way.parse("mixed+scale=2")

    def patched(way, text):
        rows = patch_of(TriedRemedy("", Way.parse(way), 0.0, True), base, "a.py", text, words)
        return [row for row in rows.splitlines() if row[0] in "+-" and "a.py" not in row[:8]]

    assert [row for row in patched("mixed+scale=16", SCALED) if row[0] == "+"] == [
        "+a = poptorch.optim.SGD(net.parameters(), loss_scaling=8.0, lr=(0.1))",
        "+    lr=(0.1), loss_scaling=512.0, eps=1e-4)",
        "+c = po.AdamW(p, lr=0.1, loss_scaling=args.scale * 8.0); "
        "d = po.SGD(p, lr=0.1, loss_scaling=(2.0 ** 4) * 8.0)"]
    by_policy = ["-fpsim torch --policy mixed+scale=2 a.py"]
    for way, text in (("mixed+scale=16", SCALED.splitlines()[-1]), ("mixed+scale=16", "a b"),
                      ("mixed+scale=16+states=f32", SCALED), ("mixed+sr+scale=16", SCALED)):
        assert patched(way, text) == [*by_policy, f"+fpsim torch --policy {way} a.py"]


def test_a_program_that_computes_nothing_on_the_machine_is_not_healthy():
    healthy = program(lambda back, moved: False)

    def replay(way, restoring, has_shadow):
        outcome = healthy(way, restoring, has_shadow)
        outcome.report["unreached"] = "Compute with tensors"
        return outcome

    result = diagnose(replay, WAY, 4)
    assert (result.answer, result.runs) == ("cannot tell", 2)
    assert result.sentence == "Nothing was computed on the machine. Compute with tensors."


def test_what_is_known_is_told_before_sites_are_searched():
    told = []
    diagnose(program(lambda back, moved: at(3) not in back), WAY, 4,
             tell=lambda so_far: told.append((so_far.runs, so_far.so_far)))
    assert [runs for runs, _ in told] == [2, 6]  # three modules are tried between, and all three
    assert "the first 4 steps beside binary32: ill" in told[0][1]
    assert told[0][1].endswith("; remedies are tried")


def test_what_binary32_does_too_is_no_cause():
    """A division by zero in both runs, as of a table that holds log(0) and never reads it."""
    healthy, quiet = program(lambda back, moved: False), GOOD

    def replay(way, restoring, has_shadow):
        outcome = healthy(way, restoring, has_shadow)
        outcome.report["births"] = [born("division by zero", operation="aten.log")]
        if way.policy != FP32 and quiet is not GOOD:
            outcome.report["births"].append(born("saturation", number=1, operation="aten.exp"))
        return outcome

    result = diagnose(replay, WAY, 4)
    assert (result.answer, result.sentence) == ("healthy", "No harm was found.")
    quiet = ()
    result = diagnose(replay, WAY, 4)
    assert result.answer == "ill"
    assert result.sentence.startswith("The exp of net.a overflows")


def test_one_birth_in_binary32_does_not_excuse_many(monkeypatch):
    """Of a thousand terms that are absorbed binary32 absorbs one."""
    quiet = program(lambda back, moved: True)

    def replay(way, restoring, has_shadow):
        outcome = quiet(way, restoring, has_shadow)
        n = 1 if way.policy == FP32 else 1000
        outcome.report["births"] = [born("absorption", operation="aten.add", count=n, repeated=n,
                                         results=1000)]
        return outcome

    assert diagnose(replay, WAY, 4).sentence.startswith("Terms are absorbed: 1,000 of 1,000")


def test_a_program_that_stops_in_binary32_too_is_not_ill():
    def replay(way, restoring, has_shadow):
        return Outcome([], report_of([]), "train.py:3: ValueError: no such axis")

    result = diagnose(replay, WAY, 4)
    assert result.answer == "cannot tell"
    assert "The program stops in binary32 too: train.py:3: ValueError" in str(result)
    assert "harm" not in str(result)


def test_what_stops_a_program_stands_behind_the_cause():
    """As a distribution does that refuses NaN, whose error names no cause."""

    def replay(way, restoring, has_shadow):
        if way.policy == FP32:
            return Outcome(GOOD, report_of(GOOD))
        report = report_of([math.nan])
        report["births"] = [born("NaN")]
        return Outcome([math.nan], report, "train.py:3: ValueError: logits")

    sentence = diagnose(replay, WAY, 4).sentence
    assert sentence.startswith("The loss is NaN from step 0 on: the mul of net.a is invalid")
    assert sentence.endswith("The program stops: train.py:3: ValueError: logits")


def test_the_search_begins_where_numbers_left_their_range():
    """The second place shows once the first is in binary32, as behind a NaN."""
    quiet, tried = program(lambda back, moved: not {at(1), at(5)} <= back), []

    def replay(way, restoring, has_shadow):
        outcome = quiet(way, restoring, has_shadow)
        tried.append(restoring.sites)
        layer = "layer5" if at(1) in restoring.sites else "layer1"
        if outcome.losses != GOOD:
            outcome.report["births"] = [born("saturation", layer=layer)]
        return outcome

    result = diagnose(replay, WAY, 4)
    assert result.necessary == [at(1), at(5)]
    first = tried.index(frozenset([at(1)]))
    assert [len(sites) for sites in tried[first - 1 : first + 2]] == [14, 1, 2]


OUTSIDE = [f"aten.{verb}" for verb in ("mul", "add", "sqrt")]


def overflowing(harm_alone, *, counts):
    """A program two of whose operations overflow in one line, outside of modules.

    harm_alone    of the losses where only that operation is low.
    """
    sites = [PrecisionSite(name, "forward") for name in OUTSIDE]

    def replay(way, restoring, has_shadow):
        low = [] if way.policy == FP32 else [
            i for i, site in enumerate(sites)
            if site not in restoring.sites and way.policy.of(site.layer) != FP32]
        losses = [x + 2.5 * max([0.0, *(harm_alone[i] for i in low)]) for x in GOOD]
        report = report_of(losses)
        report["layers"] = {
            name: {"forward": report["layers"]["layer0"]["forward"]} for name in OUTSIDE}
        report["births"] = [
            born("saturation", number=i, operation=OUTSIDE[i], layer=OUTSIDE[i], line="a.py:9",
                 count=counts[i]) for i in low if counts[i]]
        return Outcome(losses, report)

    return diagnose(replay, WAY, 4)


@pytest.mark.parametrize(("harms", "counts", "named"), [
    ((0.01, 0.5, 0.0), (9, 3, 0), 1), ((0.5, 0.01, 0.0), (3, 9, 0), 0),
    ((0.3, 0.31, 0.0), (9, 3, 0), 0), ((0.31, 0.3, 0.0), (3, 9, 0), 1),
])
def test_of_two_operations_of_a_line_the_one_that_does_the_harm_is_named(harms, counts, named):
    """Of two that do as much, the one with more births."""
    result = overflowing(harms, counts=counts)
    verb = OUTSIDE[named].removeprefix("aten.")
    assert result.sentence.startswith(f"The {verb} overflows binary16")
    assert result.sufficient == [PrecisionSite(OUTSIDE[named], "forward")]
    assert f"mixed+{OUTSIDE[named]}=f32" in [str(remedy.way) for remedy in result.remedies]


def test_sites_that_suffice_begin_with_the_one_that_is_named():
    """Any low site of these brings the harm on."""
    either = program(lambda back, moved: not {at(1), at(5)} <= back)

    def replay(way, restoring, has_shadow):
        outcome = either(way, restoring, has_shadow)
        if outcome.losses != GOOD and at(1) not in restoring.sites:
            outcome.report["births"] = [born("saturation", layer="layer1")]
        return outcome

    result = diagnose(replay, WAY, 4)
    assert (result.necessary, result.sufficient) == ([at(1), at(5)], [at(1)])


def test_sites_of_a_remedy_that_cures_are_tried_before_all_others(monkeypatch):
    items = [Advice("try", "why", "", (Way.parse(f"{WAY}+layer3=f32"),))]
    monkeypatch.setattr("ipu.run.remedies.find_advice", lambda report, way: items)
    whole, tried = program(lambda back, moved: at(3) not in back), []

    def replay(way, restoring, has_shadow):
        tried.append(restoring.sites)
        return whole(way, restoring, has_shadow)

    result = diagnose(replay, WAY, 4)
    assert (result.necessary, result.sufficient) == ([at(3)], [at(3)])
    assert [len(sites) for sites in tried if at(3) in sites][:2] == [14, 2]


def test_what_is_advised_behind_the_first_cause_is_tried_with_it():
    """A constant is zero, and once it is replaced another one is."""

    def replay(way, restoring, has_shadow):
        values = dict(way.changes.constants)
        wrong = next((x for x in (1e-12, 1e-9) if x not in values), None)
        if way.policy == FP32 or wrong is None:
            return Outcome(GOOD, report_of(GOOD))
        report = report_of([math.nan] * 4)
        zero = born("constant", operation=repr(wrong), detail="zero")
        report["births"] = [zero, born("NaN", number=1, causes=[0])]
        return Outcome([math.nan] * 4, report)

    cure = diagnose(replay, WAY, 4).cure
    assert cure is not None
    assert str(cure.way) == "mixed+1e-12=6.103515625e-05+1e-09=6.103515625e-05"
    assert cure.what.count("Replace the constant") == 2


def test_behind_the_wider_of_two_remedies_that_leave_as_much_is_looked_first(monkeypatch):
    """What is behind both shows at one place, and the narrower one leaves more of it."""
    def advice(report, base):
        layers = ["net"] if getattr(base.policy, "layers", ()) else ["aten.add", "aten.*"]
        return [Advice("Try", "", "", tuple(map(base.with_policies.with_layer, layers)))]

    def replay(way, restoring, has_shadow):
        wide = {pattern for pattern, _ in getattr(way.policy, "layers", ())}
        if way.policy == FP32 or {"aten.*", "net"} <= wide:
            return Outcome(GOOD, report_of(GOOD))
        losses = [4.0] * 4 if wide else [math.nan] * 4
        layer = "net" if wide else "aten.add"
        return Outcome(losses, {**report_of(losses), "births": [born("saturation", layer=layer)]})

    monkeypatch.setattr("ipu.run.remedies.find_advice", advice)
    cures = [remedy for remedy in diagnose(replay, WAY, 4).remedies if remedy.cures]
    assert [(str(r.way), r.what) for r in cures] == [
        (f"{WAY}+aten.*=f32+net=f32", "Try. Then: Try")]


@pytest.mark.parametrize(("makes", "born_in", "answer"), [
    (True, "evaluation", "ill"), (False, "evaluation", "healthy"), (True, "", "healthy"),
])
def test_halves_of_the_program_are_judged_as_it_makes_them(makes, born_in, answer):
    """As of a metric summed in float16: the policy would have its sum in binary32."""
    runs = []

    def replay(way, restoring, has_shadow):
        is_half = not way.changes.halves_by_policy
        runs.append(is_half)
        report = report_of(GOOD) | {"makes_halves": makes}
        if is_half and born_in:
            report["births"] = [born("saturation", direction=born_in, operation="aten.sum")]
        return Outcome(GOOD, report, printed=f"rmse {11.31 if is_half else 73.42}")

    result = diagnose(replay, WAY.with_policies, 4)
    assert (result.answer, result.is_of_halves) == (answer, answer == "ill")
    assert any(runs) == makes
    if result.is_of_halves:
        assert "a number beside it is wrong" in result.sentence
        assert "the program prints 11.31 where binary32's run prints 73.42" in str(result)
        assert "necessary: tensors that the program makes float16" in str(result)
        (remedy,) = result.remedies
        assert "without the program's halves: the symptom goes" in str(remedy)
        assert patch_of(remedy, WAY, "a.py", "", ("fpsim torch", "a.py")) == ""


@pytest.mark.parametrize("seconds", [math.inf, 0.0])
def test_where_nothing_is_advised_whole_modules_are_tried(seconds):
    """The one with most error first, which has time in any case."""
    names = ["stem", "head", "body.0.up", "body.0.down", "body.1", "optimizer"]
    site = PrecisionSite("body.0.up", "forward")
    counters = report_of(GOOD)["layers"]["layer0"]

    def replay(way, restoring, has_shadow):
        is_wide = way.policy == FP32 or str(way).endswith("+body.*=f32") or site in restoring.sites
        losses = GOOD if is_wide else [4.0] * 4
        report = report_of(losses) | {"layers": {
            name: {"forward": counters, "backward": counters} for name in names}}
        report["shadow"] = {"layers": [{"layer": site.layer, "share": 1.0}]}
        return Outcome(losses, report)

    result = diagnose(replay, WAY, 4, Budget(seconds))
    assert result.cure is not None
    assert result.cure.what == "Compute body in binary32"
    if seconds:
        assert result.necessary == [site]


def test_a_remedy_moves_a_harm_that_is_there():
    """Where the losses were binary32's before, what a remedy ends is a symptom."""
    told = [str(TriedRemedy("Wide", WAY, 0.001, True, before=before)) for before in (0.5, 0.001)]
    assert ": cures, harm" in told[0]
    assert ": the symptom goes; the losses were close to binary32's without it too, harm" in told[1]


def test_halves_that_stay_in_binary32s_run_are_judged_beside_binary64():
    """As of Keras' mixed_float16: weights are binary32, activations binary16."""
    shadow = {"losses": [
        {"step": i, "machine": 4.0, "shadow": loss} for i, loss in enumerate(GOOD)]}

    def replay(way, restoring, has_shadow):
        report = report_of([4.0] * 4) | {"shadow": shadow, "exponents": {
            "activations": [{"format": "binary16"}]}}
        report["births"] = [born("saturation", operation="Square")]
        return Outcome([4.0] * 4, report)

    result = diagnose(replay, WAY, 4)
    assert (result.answer, result.beside) == ("ill", "binary64")
    assert result.sentence.startswith("The Square of net.a overflows")


def moving(name, arrived, length=1.0, **about):
    """The motion of a parameter; or of another tensor of the program."""
    return {"name": name, "arrived": arrived, "error": abs(1 - arrived), "in_wide": 1.0,
            "length": length, "shape": [8], "steps": 4, "line": "train.py:9", "operation": "add",
            "is_parameter": True, "is_state": False} | about


SWALLOWED = {"layer1": {"nonzero": 100, "swallowed": 77, "share": 0.77, "in_ulps": {}}}


@pytest.mark.parametrize(("large", "small", "harm", "answer"), [
    (1.0, 0.0, 0.001, "healthy"),  # a matrix whose tiny updates are lost
    (0.0, 0.0, 0.001, "ill"),  # all stand still, and four losses do not show it yet
    (0.6, 1.0, 0.001, "ill"), (1.0, 0.0, 0.9, "ill"),
])
def test_updates_that_are_lost_make_a_program_ill_where_they_cost_progress(
    large, small, harm, answer
):
    def replay(way, restoring, has_shadow):
        losses, report = list(GOOD), report_of(GOOD)
        if way.policy != FP32:
            losses = [loss + harm for loss in GOOD]
            report |= {"losses": losses, "swallowed": SWALLOWED, "shadow": {"motions": [
                moving("w", large), moving("v", small, 0.1)]}}
        return Outcome(losses, report)

    result = diagnose(replay, WAY, 4)
    assert result.answer == answer
    if answer == "healthy":
        assert result.sentence == "No harm was found."
        assert result.remedies == []
        assert ("  without harm: 77% of 100 updates left their parameter as it was; parameters go "
                "99% of their way in binary64") in str(result)
    else:
        assert result.sentence.startswith("Updates are swallowed: 77 of 100 updates of layer1")
        assert result.harmless == []


@pytest.mark.parametrize(("arrived", "offset", "answer"), [
    (1.0, 0.0, "healthy"), (0.5, 0.0, "ill"), (None, 0.0, "ill"), (1.0, 1e-5, "ill"),
])
def test_losses_that_cannot_tell_more_are_no_harm(arrived, offset, answer):
    """Losses of binary16 stand where binary32's move by less than a unit, 2^-10 here.

    That is no harm where the parameters go their way; without a shadow, or in losses that binary16
    does not hold, it is one.
    """
    def replay(way, restoring, has_shadow):
        losses = [1.3850, 1.3852, 1.3849, 1.3853]
        report = report_of(losses)
        if way.policy != FP32:
            losses = [1.384765625 + offset] * 4
            report = report_of(losses)
            if arrived is not None:
                report["shadow"] = {"motions": [moving("w", arrived)]}
        return Outcome(losses, report)

    result = diagnose(replay, WAY, 4)
    assert (result.answer, result.harm > 0.05) == (answer, answer == "ill")


def averaging(way, restoring, has_shadow):
    """An average in binary16: arithmetic in binary32 absorbs nothing, and its memory rounds."""
    is_stored = way.policy.default.param == FP32.param or at(2, "parameters") in restoring.sites
    is_wide = is_stored or way.changes.wide_states or restoring.widens_updates or (
        at(1) in restoring.sites)
    report = report_of(GOOD)
    error = 0.0 if is_stored else 0.6 if is_wide else 0.8
    report["shadow"] = {"motions": [
        moving("w", 1.0), moving("ema", 0.9, is_parameter=False, error=error)]}
    if not is_wide:
        report["births"] = [born("absorption", direction="optimizer", line="train.py:9", count=9,
                                 repeated=9, results=10)]
    return Outcome(GOOD, report)


def test_a_cure_brings_the_tensor_back_that_went_astray():
    """Its terms are absorbed no longer, and what holds it rounds it all the same."""
    sites = [at(1), at(2, "parameters"), PrecisionSite("optimizer", "update")]
    result = diagnose(averaging, Way.parse("fp16"), 4, sites=lambda report: sites)
    assert result.sentence.startswith("Terms are absorbed: 9 of 10")
    assert {str(r.way): r.cures for r in result.remedies} == {
        "mixed": True, "fp16+states=f32": False, "fp16+layer2=f32": False}
    assert (result.necessary, result.harm) == ([at(2, "parameters")], 0.0)


def test_what_a_remedy_leaves_is_explained_by_a_shadow():
    """Behind lost updates a difference loses its digits, which no birth tells."""
    lossy = {"layer": "layer2", "direction": "forward", "operation": "aten.sub", "line": "a.py:2",
             "error": 0.5, "amplification": 100.0, "born": 0.001}

    def replay(way, restoring, has_shadow):
        wide = {pattern for pattern, _ in getattr(way.policy, "layers", ())}
        is_stored = way.policy.default.param == FP32.param
        harm = 0.0 if way.policy == FP32 else 0.4 * ("layer2" not in wide) + 0.5 * (not is_stored)
        losses = [GOOD[0], *(loss + harm for loss in GOOD[1:])]
        report = report_of(losses)
        if not is_stored:
            report["swallowed"] = SWALLOWED
        if has_shadow and "layer2" not in wide and way.policy != FP32:
            report["shadow"] = {"operations": [lossy], "motions": []}
        return Outcome(losses, report)

    result = diagnose(replay, Way.parse("fp16"), 4)
    assert result.sentence.startswith("Updates are swallowed: 77 of 100")
    assert str(result.cure.way) == "mixed+layer2=f32"


def test_a_shadow_of_a_remedy_for_which_no_time_is_left_ends_the_search():
    """What was found until then is told."""
    cut = []

    def replay(way, restoring, has_shadow):
        harm = 0.0 if way.policy == FP32 else 0.9 if way.policy.default.param == FP32.param else 0.5
        report = report_of([loss + harm for loss in GOOD])
        if harm == 0.5:
            report["swallowed"] = SWALLOWED
        elif harm and has_shadow:
            cut.append(way)
            raise TimeOverError
        return Outcome([loss + harm for loss in GOOD], report)

    result = diagnose(replay, Way.parse("fp16"), 4)
    assert result.sentence.startswith("Updates are swallowed: 77 of 100")
    assert len(cut) == 1
    assert str(result.remedies[0].way) == "fp16+sr"
    assert result.cure is None


def test_the_smallest_loss_scale_cures_as_well_as_the_one_that_was_tried(monkeypatch):
    """From 16 on there is no more harm than is told; up to 256 there is still some, of 1.5 %."""
    advising(monkeypatch, lambda changes: True, f"{WAY}+scale={2**12}")

    def replay(way, restoring, has_shadow):
        scale = way.changes.loss_scale
        part = 0.0 if way.policy == FP32 else 0.5 if scale < 16 else 0.0375 if scale < 256 else 0.01
        losses = [loss + part for loss in GOOD]
        return Outcome(losses, report_of(losses))

    cure = diagnose(replay, WAY, 4).cure
    assert cure.what == (
        "Use a loss scale of 1024: halfway between 256, which cures, and 4096, which cures too")


def test_absorbed_terms_of_an_average_that_goes_its_way_are_none():
    """As of a difference that is made anew in each step; of another line one stands still."""
    still = moving("variance", 0.0, is_parameter=False, line="train.py:10", error=1.0)

    def replay(way, restoring, has_shadow):
        report = report_of(GOOD)
        if way.policy != FP32:
            report["births"] = [born("absorption", direction="optimizer", line="train.py:9",
                                     count=9, repeated=9, results=10)]
            report["shadow"] = {"motions": [
                still, moving("mean", 1.0, is_parameter=False), moving("w", 1.0)]}
        return Outcome(GOOD, report)

    result = diagnose(replay, WAY, 4)
    assert "variance, which add writes (train.py:10), moves by 0% of its way" in result.sentence
    assert "absorbed" not in result.sentence
    still["arrived"], still["error"] = 1.0, 0.0
    assert diagnose(replay, WAY, 4).answer == "healthy"


@pytest.mark.parametrize(("needed", "safe", "told"), [
    (7, None, 13), (1, None, 10), (18, None, 19), (20, None, 20), (7, 30, 18), (7, 3, 13),
])
def test_a_loss_scale_is_halfway_between_too_small_and_too_large(monkeypatch, needed, safe, told):
    """Between the smallest that cures and the largest with which the gradients seen still fit."""
    replay = advising(monkeypatch, lambda changes: changes.loss_scale >= 2.0**needed,
                      f"{WAY}+scale={2**20}")

    def replay_with_gradients(way, restoring, has_shadow):
        outcome = replay(way, restoring, has_shadow)
        if safe is not None:
            outcome.report["loss_scale"] = {
                "present": way.changes.loss_scale, "highest_safe": 2.0**safe, "best": 1.0,
                "limited_by": "head", "lost": (0.0, 0.0), "curve": {}, "unseen": 0}
        return outcome

    cure = diagnose(replay_with_gradients, WAY, 4).cure
    assert str(cure.way) == f"mixed+scale={2**told}"
    assert cure.cures
    if told != 20:
        assert cure.what.startswith(f"Use a loss scale of {2**told}: halfway between {2**needed},")


def test_a_program_without_losses_is_not_called_healthy():
    result = diagnose(program(lambda back, moved: False, reference=()), WAY, 4)
    assert result.answer == "cannot tell"
    assert "No backward pass began in 4 steps" in str(result)


@pytest.mark.parametrize(("deviation", "answer"), [("5.6", "ill"), ("1.25", "healthy")])
def test_a_line_of_small_numbers_counts_beside_one_of_large_ones(deviation, answer):
    """What is small beside its own line and beside all lines is none: 0.25 of 150.5."""
    def replay(way, restoring, has_shadow):
        printed = f"mean 150.5 by 75.5\ndeviation {'1.0' if way.policy == FP32 else deviation}\n"
        return Outcome([], report_of([]), printed=printed)

    result = diagnose(replay, WAY, 4)
    assert result.answer == answer
    if answer == "ill":
        assert result.measure == "numbers in 'deviation #'"


@pytest.mark.parametrize(("direction", "sentence"), [
    ("forward", "The Square of layer2 underflows to zero in binary16"),
    ("backward", "Updates are swallowed: 2 of 4 updates of layer5"),
])
def test_updates_that_are_lost_behind_a_layer_are_its_symptom(direction, sentence):
    """Where nothing is born forward in it, they are told themselves."""
    is_harmed = program(lambda back, moved: at(2) not in back)

    def replay(way, restoring, has_shadow):
        outcome = is_harmed(way, restoring, has_shadow)
        if outcome.losses != GOOD:
            outcome.report["swallowed"] = {"layer5": {"nonzero": 4, "swallowed": 2, "share": 0.5}}
            outcome.report["births"] = [
                born("flush to zero", layer="layer2", operation="Square", count=6,
                     direction=direction)]
        return outcome

    result = diagnose(replay, WAY, 4)
    assert result.necessary == [at(2)]
    assert result.sentence.startswith(sentence)


def test_a_layer_that_may_stay_low_is_no_cause_where_parameters_may_not():
    """Results of layer5 go wrong, too; giving it back to binary32 changes nothing."""
    held = PrecisionSite("layer2", "parameters")
    is_harmed = program(lambda back, moved: held not in back)

    def replay(way, restoring, has_shadow):
        outcome = is_harmed(way, restoring, has_shadow)
        if outcome.losses != GOOD:
            outcome.report["swallowed"] = {
                name: {"nonzero": 100, "swallowed": n, "share": n / 100}
                for name, n in (("layer1", 70), ("layer2", 60))}
            outcome.report["births"] = [born("saturation", layer="layer5", operation="Square")]
        return outcome

    result = diagnose(replay, WAY, 4, sites=lambda report: [at(2), at(5), held])
    assert result.necessary == [held]
    assert result.sentence.startswith("Updates are swallowed: 60 of 100 updates of layer2")


@pytest.mark.parametrize(("swallowed", "sentence"), [
    (60, "Updates are swallowed: 60 of 100 updates of layer2"), (10, "The losses part from")])
def test_few_updates_are_told_of_parameters_that_must_be_wide(swallowed, sentence):
    """As of the level of marks around 70, beside many small factors that go their way."""
    held = PrecisionSite("layer2", "parameters")
    is_harmed = program(lambda back, moved: held not in back)

    def replay(way, restoring, has_shadow):
        outcome = is_harmed(way, restoring, has_shadow)
        if outcome.losses != GOOD:
            outcome.report["swallowed"] = {
                name: {"nonzero": nonzero, "swallowed": n, "share": n / nonzero}
                for name, nonzero, n in (("layer1", 900, 0), ("layer2", 100, swallowed))}
        return outcome

    result = diagnose(replay, WAY, 4, sites=lambda report: [at(2), at(5), held])
    assert result.necessary == [held]
    assert result.sentence.startswith(sentence)
    assert any(remedy.way.sr for remedy in result.remedies) == (swallowed == 60)


@pytest.mark.parametrize(("by_parameters", "begin"), [
    (3.2, "Updates are swallowed: 10 of 10 updates of layer2"), (0.3, "Terms are absorbed"),
])
def test_of_a_layer_that_must_be_wide_parameters_are_told_where_most_harm_goes_with_them(
    by_parameters, begin
):
    """As of a temperature that a layer holds and adds: its updates are swallowed, its terms too."""
    held = PrecisionSite("layer2", "parameters")

    def replay(way, restoring, has_shadow):
        back = restoring.sites
        is_wide = FP32 in (way.policy, way.policy.of("layer2")) or {held, at(2)} <= back
        gain = 4.0 if is_wide else by_parameters if held in back else 0.2 if at(2) in back else 0.0
        losses = [4.0 - gain * step / 8 for step in range(4)]
        outcome = Outcome(losses, report_of(losses))
        if is_wide:
            return outcome
        outcome.report["swallowed"] = {
            "layer2": {"nonzero": 10, "swallowed": 10, "share": 1.0},
            "layer1": {"nonzero": 990, "swallowed": 9, "share": 0.01}}
        outcome.report["births"] = [born("absorption", layer="layer2", operation="add", line="a:1",
                                         count=90, results=100, repeated=90)]
        return outcome

    result = diagnose(replay, WAY, 4, sites=lambda report: [at(2), held])
    assert set(result.necessary) >= {held}
    assert result.sentence.startswith(begin)
    (cure,) = [remedy for remedy in result.remedies if str(remedy.way) == "mixed+layer2=f32"]
    is_of_updates = begin.startswith("Updates")
    assert cure.what.startswith("Compute layer2" if is_of_updates else "Keep the sum at a:1")
    assert any(remedy.way.sr for remedy in result.remedies) == is_of_updates


def test_gradients_that_underflow_behind_a_layer_are_its_symptom():
    is_harmed = program(lambda back, moved: at(2) not in back)
    scales = {"present": 1.0, "best": 64.0, "highest_safe": 1024.0, "unseen": 0,
              "lost": (0.13, 0.0), "limited_by": ""}

    def replay(way, restoring, has_shadow):
        outcome = is_harmed(way, restoring, has_shadow)
        if outcome.losses != GOOD:
            outcome.report["loss_scale"] = scales
            outcome.report["shadow"] = {"operations": [
                {"layer": "layer2", "direction": "forward", "operation": "Sub", "line": "a.py:2",
                 "error": 0.5, "amplification": 100.0, "born": 0.001, "calls": 4}]}
        return outcome

    result = diagnose(replay, WAY, 4)
    assert result.necessary == [at(2)]
    assert result.sentence.startswith("The Sub of layer2 loses the digits of its operands")


def test_a_cure_that_does_more_than_another_comes_behind_it_and_is_not_told():
    ways = f"{WAY}+eps=1e-4+states=f32", f"{WAY}+sr+eps=1e-4", f"{WAY}+eps=1e-4"
    remedies = [TriedRemedy("try", Way.parse(way), 0.0, True) for way in ways]
    sort_remedies(remedies, WAY)
    assert [str(remedy.way) for remedy in remedies] == [
        "mixed+eps=0.0001", "mixed+eps=0.0001+states=f32", "mixed+sr+eps=0.0001"]
    drop_larger(remedies, WAY)
    assert [str(remedy.way) for remedy in remedies] == ["mixed+eps=0.0001"]


def test_what_lessens_no_more_with_more_changes_is_not_told():
    ways = {"eps=1e-4": 0.2, "eps=1e-4+states=f32": 0.2, "sr+eps=1e-4": 0.1}
    remedies = [TriedRemedy("try", Way.parse(f"{WAY}+{way}"), harm, False, lessens=True)
                for way, harm in ways.items()]
    drop_larger(remedies, WAY)
    assert [remedy.harm for remedy in remedies] == [0.2, 0.1]
    assert str(remedies[1].way) == "mixed+sr+eps=0.0001"


def test_without_time_one_remedy_is_run_all_the_same(monkeypatch):
    replay = advising(monkeypatch, lambda changes: changes.eps == 1e-4, f"{WAY}+eps=1e-4",
                      f"{WAY}+states=f32")
    result = diagnose(replay, WAY, 4, Budget(0.0))
    assert [str(remedy.way) for remedy in result.remedies] == ["mixed+eps=0.0001"]


def advising(monkeypatch, cures, *ways):
    """A program that is ill in every way but those, whose report advises some."""
    items = [Advice("try", "why", "", tuple(map(Way.parse, ways)))]
    monkeypatch.setattr("ipu.run.remedies.find_advice", lambda report, way: items)

    def replay(way, restoring, has_shadow):
        ill = way.policy != FP32 and not cures(way.changes)
        losses = [4.0] * 4 if ill else GOOD
        return Outcome(losses, report_of(losses))

    return replay


def test_remedies_that_cure_only_together_are_told_without_what_is_not_needed(monkeypatch):
    replay = advising(
        monkeypatch, lambda changes: changes.eps == 1e-4 and changes.loss_scale == 1024,
        *(f"{WAY}+{addition}" for addition in ("eps=1e-4", "states=f32", "scale=1024")),
    )
    result = diagnose(replay, WAY, 4)
    assert result.cure is not None
    assert str(result.cure.way) == "mixed+scale=1024+eps=0.0001"
    assert [remedy.cures for remedy in result.remedies] == [True, False, False, False]
    assert "None of these can be left out" in str(result)


def test_whole_modules_are_joined_where_none_cures_alone():
    """Before sites are searched, for which there may be no time."""
    told = []
    diagnose(program(lambda back, moved: not {at(1), at(2)} <= set(back)), WAY, 4,
             tell=lambda so_far: told.append([str(r.way) for r in so_far.remedies if r.cures]))
    assert any("layer1*=f32+layer2*=f32" in way or "layer1=f32+layer2=f32" in way
               for way in told[1]), told


def test_a_cure_takes_half_of_the_harm_at_least(monkeypatch):
    """Where it was little, less than what is told is soon reached by chance."""
    monkeypatch.setattr("ipu.run.remedies.find_advice", lambda report, base: [
        Advice("Try it", "", "", (Way.parse(f"{WAY}+eps=1e-4"), Way.parse(f"{WAY}+states=f32")))])

    def replay(way, restoring, has_shadow):
        above = 0.0 if way.policy == FP32 else 0.11 if way.changes.eps else (
            0.05 if way.changes.wide_states else 0.2)
        losses = [loss + above for loss in GOOD]
        return Outcome(losses, report_of(losses))

    result = diagnose(replay, WAY, 4)
    assert [(str(r.way), r.cures) for r in result.remedies[:2]] == [
        (f"{WAY}+states=f32", True), (f"{WAY}+eps=0.0001", False)]


def test_remedies_that_hold_one_that_cures_are_not_told(monkeypatch):
    replay = advising(monkeypatch, lambda changes: changes.eps == 1e-4,
                      f"{WAY}+scale=1024+eps=1e-4", f"{WAY}+eps=1e-4", f"{WAY}+states=f32")
    ways = [str(r.way) for r in diagnose(replay, WAY, 4).remedies]
    assert ways == [f"{WAY}+eps=0.0001", f"{WAY}+states=f32"]


def test_many_ways_without_help_are_counted(monkeypatch):
    replay = advising(monkeypatch, lambda changes: False,
                      *(f"{WAY}+scale={2**k}" for k in range(1, 9)))
    (line,) = [x for x in str(diagnose(replay, WAY, 4)).splitlines() if x.startswith("tried")]
    assert line.count("(harm ") == 5
    assert line.endswith(" more")


def test_one_remedy_that_cures_is_not_joined_with_others(monkeypatch):
    replay = advising(
        monkeypatch, lambda changes: changes.eps == 1e-4, f"{WAY}+eps=1e-4", f"{WAY}+states=f32")
    result = diagnose(replay, WAY, 4)
    assert [str(remedy.way) for remedy in result.remedies if remedy.cures] == ["mixed+eps=0.0001"]


def test_a_change_and_a_layer_that_cure_only_together_are_joined(monkeypatch):
    """Stochastic rounding is advised too, and not needed."""
    replay = advising(monkeypatch, lambda changes: False,
                      *(f"{WAY}+{addition}" for addition in ("sr", "eps=1e-4", "layer2=f32")))

    def joined(way, restoring, has_shadow):
        wide = dict(getattr(way.policy, "layers", ()))
        is_cured = way.changes.eps == 1e-4 and wide.get("layer2") == FP32
        return replay(Way() if is_cured else way, restoring, has_shadow)

    result = diagnose(joined, WAY, 4)
    assert str(result.cure.way) == "mixed+eps=0.0001+layer2=f32"
    assert result.cure.what == (
        "Set eps=0.0001. Then: Compute layer2 in binary32. None of these can be left out")
    assert [remedy.cures for remedy in result.remedies] == [True, False, False, False]


def test_what_was_not_followed_is_said():
    whole = program(lambda back, moved: at(3) not in back)

    def replay(way, restoring, has_shadow):
        outcome = whole(way, restoring, has_shadow)
        followed = {"steps": 2, "calls": None, "seconds": 90.0,
                    "why": "2 steps took 90 s, so each run stops after them"}
        return Outcome(outcome.losses, outcome.report | {"followed": followed})

    result = diagnose(replay, WAY, 4)
    assert result.steps == 2
    assert "the first 2 steps beside binary32: ill" in str(result)
    assert "2 steps took 90 s, so each run stops after them" in str(result)


def test_a_cure_keeps_nothing_that_it_does_not_need(monkeypatch):
    """Rounding that was advised first is dropped where the scale alone cures."""
    replay = advising(monkeypatch, lambda changes: changes.loss_scale == 1024.0,
                      f"{WAY}+sr+scale=1024")
    result = diagnose(replay, WAY, 4)
    assert str(result.cure.way) == "mixed+scale=1024"
    assert result.cure.what == (
        "Multiply the loss by 1024, and undo it on the gradients in binary32. "
        "Only this much is needed")


def test_a_run_that_stops_for_another_reason_shows_no_sufficient_site():
    """As where a program cannot compute with sites of two formats."""
    whole = program(lambda back, moved: at(3) not in back and at(6) not in back)

    def replay(way, restoring, has_shadow):
        outcome = whole(way, restoring, has_shadow)
        stops = restoring.sites and at(5) not in restoring.sites and at(6) in restoring.sites
        return replace(outcome, error="train.py:7: two formats") if stops else outcome

    assert set(diagnose(replay, WAY, 4).sufficient) == {at(3), at(6)}


def test_a_program_that_makes_halves_itself_is_told_in_the_heading():
    def replay(way, restoring, has_shadow):
        return Outcome(GOOD, report_of(GOOD) | {"makes_halves": True})

    assert str(diagnose(replay, WAY, 4)).startswith("mixed, the program makes halves itself, the")


@pytest.mark.parametrize(("about", "is_beside"), [
    ({"direction": "evaluation"}, True), ({"trained_with": False}, True), ({}, False)])
def test_a_number_beside_a_training_that_is_well_is_told_as_that(about, is_beside):
    def replay(way, restoring, has_shadow):
        report = report_of(GOOD)
        if way.policy != FP32:
            report["births"] = [born("saturation", operation="Square", **about)]
            report["losses"] = GOOD if not about or "direction" in about else []
        return Outcome(GOOD, report)

    result = diagnose(replay, WAY, 4)
    assert result.answer == "ill"
    begin = "The training is binary32's, and a number beside it is wrong"
    assert result.sentence.startswith(begin) == is_beside
    assert "the Square of net.a overflows" in result.sentence.replace("The S", "the S")


def test_each_way_of_an_advice_is_told_by_what_it_changes(monkeypatch):
    ways = [f"{WAY}+{addition}" for addition in (
        "1e-30=1e-4", "layer2=f32", "states=f32", "eps=1e-4")]
    monkeypatch.setattr("ipu.run.remedies.find_advice", lambda report, base: [
        Advice("Replace the constant, or compute layer2 in binary32", "", "",
               tuple(map(Way.parse, ways)))])
    remedies = diagnose(program(lambda back, moved: True), WAY, 4).remedies
    told = {str(remedy.way): remedy.what for remedy in remedies}
    assert told["mixed+1e-30=0.0001"] == "Replace the constant 1e-30 by 0.0001"
    assert told["mixed+layer2=f32"] == "Compute layer2 in binary32"
    assert told["mixed+eps=0.0001"] == "Set eps=0.0001"
    assert "parameters stay as they are" in told["mixed+states=f32"]


@pytest.mark.parametrize(("births", "printed", "lost", "count", "told"), [
    (["forward"], "rmse 73.4", 0.0, 3, "No harm was found."),  # as a square that is not selected
    (["forward"], "rmse 73.4", 0.0, 90, "overflows"),  # most of what the operation computes
    (["forward", "evaluation"], "rmse 22.0", 0.0, 3, "beside it is wrong"),
    (["forward"], "rmse 22.0", 0.0, 3, "overflows"),  # a metric with gradients recorded
    (["forward"], "rmse 73.4", 0.9, 3, "overflows"),  # parameters do not go their way
])
def test_what_leaves_its_range_in_a_training_that_is_well(births, printed, lost, count, told):
    def replay(way, restoring, has_shadow):
        report, is_low = report_of(GOOD), way.policy != FP32
        if is_low:
            report["births"] = [
                born("saturation", number=i, operation=f"op{i}", direction=direction, count=count,
                     results=100, trained_with=False) for i, direction in enumerate(births)]
            report["shadow"] = {"motions": [moving("w", 1.0 - lost)]}
        return Outcome(GOOD, report, printed=printed if is_low else "rmse 73.4")

    result = diagnose(replay, WAY, 4)
    assert told in result.sentence
    assert (result.answer == "healthy") == told.startswith("No ")
    if "evaluation" in births:
        assert "The op1" in result.sentence.replace("the op1", "The op1")


@pytest.mark.parametrize(("moved", "answer"), [(0.0, "healthy"), (0.03, "ill")])
def test_what_leaves_its_range_is_unseen_beside_losses_that_are_as_good(moved, answer):
    """Not beside losses that part by less than what is a harm by itself."""
    def replay(way, restoring, has_shadow):
        report, is_low = report_of(GOOD), way.policy != FP32
        if is_low:
            report["births"] = [born("saturation", operation="op", count=3, results=100,
                                     trained_with=False)]
            report["shadow"] = {"motions": [moving("w", 1.0)]}
        away = moved * (max(GOOD) - min(GOOD)) if is_low else 0.0
        return Outcome([loss + away for loss in GOOD], report, printed="rmse 73.4")

    result = diagnose(replay, WAY, 4)
    assert result.harm == pytest.approx(moved)
    assert result.answer == answer


@pytest.mark.parametrize(("fall", "cures"), [(1.0, True), (0.1, False)])
def test_a_number_replaced_is_judged_beside_binary32_with_the_same_one(monkeypatch, fall, cures):
    """But for one with which binary32 learns nothing either."""
    way = f"{WAY}+1e-30=1e-4"
    replaced = [9.0 - fall * (GOOD[0] - loss) for loss in GOOD]

    def replay(way, restoring, has_shadow):
        losses = replaced if way.changes.constants else GOOD if way.policy == FP32 else [4.0] * 4
        return Outcome(losses, report_of(losses))

    monkeypatch.setattr("ipu.run.remedies.find_advice", lambda report, base: [
        Advice("Replace it", "", "", (Way.parse(way),))])
    remedy = diagnose(replay, WAY, 4).remedies[0]
    assert remedy.cures == cures
    assert list(remedy.reference) == (replaced if cures else [])
    assert remedy.what.endswith("binary32 with the same number)") == cures


def test_what_does_not_cure_is_no_remedy_and_is_told_in_one_line(monkeypatch):
    replay = advising(monkeypatch, lambda changes: changes.eps == 1e-4, f"{WAY}+states=f32",
                      f"{WAY}+eps=1e-4", f"{WAY}+scale=1024")
    lines = str(diagnose(replay, WAY, 4)).splitlines()
    (remedy,) = [line for line in lines if line.startswith("remedy ")]
    assert remedy.startswith(f"remedy {WAY}+eps=0.0001: cures")
    (other,) = [line for line in lines if f"{WAY}+scale=1024" in line or "states=f32" in line]
    assert other.startswith("tried, does not help: ")
    assert f"{WAY}+states=f32 (harm 55.0%)" in other


def test_losses_like_binary32s_with_a_symptom_left_are_told_as_that():
    text = str(TriedRemedy("why", WAY, 0.01, False))
    assert "the losses are close to binary32's, and a symptom of the report stays" in text


def test_the_window_and_the_dose_of_a_site_are_told():
    """A program that is ill without 6 bits of exponent in step 2."""

    def replay(way, restoring, has_shadow):
        is_given = at(3) in restoring.sites and (
            restoring.steps is None or restoring.steps[0] <= 2 < restoring.steps[1]
        ) and (restoring.dose is None or restoring.dose.exponent_bits >= 6)
        ill = way.policy != FP32 and not is_given
        losses = [4.0] * 4 if ill else GOOD
        return Outcome(losses, report_of(losses))

    result = diagnose(replay, WAY, 4, has_windows=True)
    assert (result.necessary, result.window) == ([at(3)], (2, 3))
    assert [dose.cures for dose in result.doses] == [False] * 4 + [True] * 3
    text = str(result)
    assert "in step 2 alone" in text
    assert "dose 6 bits of exponent, 11 digits: cures, harm 0.0%" in text
    assert "the matter is range: more bits of exponent cure, more digits do not" in text
    assert diagnose(replay, WAY, 4).window is None


@pytest.mark.parametrize(("about", "low"), [
    ({"format": "e4m3fn", "detail": "of operands"}, (4, 4)), ({"format": "binary16"}, (5, 11))])
def test_doses_widen_the_format_that_flushes(about, low):
    """Where operands are cast to a narrower format than results have, that one."""
    is_harmed = program(lambda back, moved: at(3) not in back)

    def replay(way, restoring, has_shadow):
        outcome = is_harmed(way, restoring, has_shadow)
        if outcome.losses != GOOD:
            outcome.report["births"] = [
                born("flush to zero", layer="layer3", count=60, results=100, **about)]
        return outcome

    result = diagnose(replay, Way.parse("c=e4m3fn,out=f16"), 4)
    bits, digits = low
    formats = [(dose.format.exponent_bits, dose.format.precision) for dose in result.doses]
    assert formats == [*((bits, digits + n) for n in (1, 2, 4, 8)),
                       *((bits + n, digits) for n in (1, 2, 3))]


def test_a_loss_scale_that_the_advice_does_not_name_is_told_by_its_factor():
    base, advice = Way.parse("fp16+scale=16"), "Multiply the loss by 1024"
    assert _meaning(Way.parse("fp16+scale=1024"), base, advice, {}) == ""
    assert _meaning(Way.parse("fp16+scale=8192"), base, advice, {}) == (
        "Multiply the loss by 512, and undo it on the gradients in binary32")
    assert _meaning(Way.parse("fp16+scale=0.0625"), base, "Lower the loss scale", {}) == (
        "Divide the loss by 256, and undo it on the gradients in binary32")
    report = {"loss_scale": {"present": 64.0}}
    assert _meaning(Way.parse("fp16+scale=2"), base, "Lower it", report) == (
        "Lower the program's loss scale from 64 to 8")
    report = {"scale_option": "loss_scaling", "loss_scale": {"present": 64.0}}
    assert _meaning(Way.parse("fp16+scale=1024"), base, advice, report) == "Set loss_scaling=4096"


def test_the_edit_of_a_loss_scale_counts_lines_as_python_does():
    """A form feed, or a separator inside of a text, begins none."""
    text = 'from poptorch.optim import SGD\nmark = "\x0c\u2028"\nopt = SGD(p, loss_scaling=2.0)\n'
    assert _with_loss_scaling(text, 4.0) == text.replace("2.0", "8.0")


def test_of_several_loss_scales_that_cure_one_is_told_with_the_range(monkeypatch):
    """The one that is halfway was advised, too: it is no other remedy."""
    replay = advising(monkeypatch, lambda changes: changes.loss_scale >= 2.0**11,
                      f"{WAY}+scale={2**11}", f"{WAY}+scale={2**24}")

    def replay_with_gradients(way, restoring, has_shadow):
        outcome = replay(way, restoring, has_shadow)
        outcome.report["loss_scale"] = {
            "present": way.changes.loss_scale, "highest_safe": 2.0**37, "best": 1.0,
            "limited_by": "head", "lost": (0.0, 0.0), "curve": {}, "unseen": 0}
        return outcome

    remedies = diagnose(replay_with_gradients, WAY, 4).mending
    assert [str(remedy.way) for remedy in remedies] == [f"mixed+scale={2**24}"]
    assert remedies[0].what == (
        "Use a loss scale of 16777216: halfway between 2048, which cures, and 137438953472, with "
        "which the largest gradient still fits")


def test_without_a_scale_halfway_the_first_one_is_told_with_the_others(monkeypatch):
    """As where those between do not cure."""
    cures = {2.0**4, 2.0**9}
    replay = advising(monkeypatch, lambda changes: changes.loss_scale in cures,
                      f"{WAY}+scale=16", f"{WAY}+scale=512")

    def replay_with_gradients(way, restoring, has_shadow):
        outcome = replay(way, restoring, has_shadow)
        outcome.report["loss_scale"] = {
            "present": way.changes.loss_scale, "highest_safe": 2.0**12, "best": 1.0,
            "limited_by": "head", "lost": (0.0, 0.0), "curve": {}, "unseen": 0}
        return outcome

    remedies = diagnose(replay_with_gradients, WAY, 4).mending
    assert [str(remedy.way) for remedy in remedies] == ["mixed+scale=16"]
    assert remedies[0].what.endswith("; a scale of 512 cures too")


@pytest.mark.parametrize(("moved", "is_beside"), [
    ([("ema", False, False)], True), ([("ema", False, False), ("w", True, False)], False),
    ([("momentum", False, True)], False), ([], False),
])
def test_terms_that_an_average_of_weights_loses_are_beside_the_training(moved, is_beside):
    """Where the line writes no parameter and no state of an optimiser."""
    def replay(way, restoring, has_shadow):
        report = report_of(GOOD)
        if way.policy != FP32:
            report["births"] = [born("absorption", layer="optimizer", direction="optimizer",
                                     operation="aten.add", line="train.py:9", count=9, repeated=9,
                                     results=10)]
            report["shadow"] = {"motions": [
                moving("", 0.1, is_parameter=False, owner="teacher", line="train.py:12"),
                moving("head", 1.0, line="train.py:12"), *(
                    moving(name, 1.0 if is_parameter else 0.1, is_parameter=is_parameter,
                           is_state=is_state, owner="teacher", error=0.9)
                    for name, is_parameter, is_state in moved)]}
            if not moved or moved[0][0] != "ema":
                report["shadow"] = {"motions": [
                    row for row in report["shadow"]["motions"] if row["line"] == "train.py:9"]}
        return Outcome(GOOD, report)

    sentence = diagnose(replay, WAY, 4).sentence
    told = ("The training is binary32's; what is wrong is beside it, in a tensor that no optimiser "
            "updates, as an average of weights is: Terms are absorbed: 9 of 10 terms of the add "
            "left the sum unchanged in binary16 (beside the optimiser, step 0, train.py:9), in "
            "parameters of teacher.")
    assert (sentence == told) == is_beside
    assert ("beside the optimiser" in sentence) == is_beside


@pytest.mark.parametrize(("is_copy", "begins"), [(True, "The training is binary32's; what is"),
                                                 (False, "Sums are left nearly unchanged")])
def test_a_copy_of_weights_that_stands_still_is_beside_the_training(is_copy, begins):
    def replay(way, restoring, has_shadow):
        report = report_of(GOOD)
        if way.policy != FP32:
            report["shadow"] = {"motions": [moving("w", 1.0), moving(
                "", 0.1, is_parameter=False, error=0.9, is_copy=is_copy,
                owner="teacher" if is_copy else "")]}
        return Outcome(GOOD, report)

    sentence = diagnose(replay, WAY, 4).sentence
    assert sentence.startswith(begins)
    assert sentence.endswith("in parameters of teacher.") == is_copy


def metric(prints):
    """A training that is well beside a metric whose overflow no dose tells: `prints` it."""

    def replay(way, restoring, has_shadow):
        report = report_of(GOOD)
        is_low = way.policy != FP32 and not {at(1), at(2)} & {
            PrecisionSite(pattern, "forward") for pattern, _ in getattr(way.policy, "layers", ())}
        if is_low and not restoring.sites:
            report["births"] = [born("saturation", layer="layer1", direction="evaluation",
                                     operation="aten.pow", count=6)]
        return Outcome(GOOD, report, printed=f"R2 {prints(way, restoring)}\n")

    return replay


def test_a_metric_is_mended_where_what_it_prints_is_binary32s():
    """No birth is told of results that are rounded to a dose; the number that is printed tells."""
    def prints(way, restoring):
        if way.policy == FP32:
            return 0.309
        is_given = {at(1), at(2)} <= restoring.sites and (
            restoring.dose is None or (restoring.dose.exponent_bits >= 7))
        return 0.309 if is_given else 0.889

    result = diagnose(metric(prints), WAY, 4)
    assert result.sentence.startswith("The training is binary32's, and a number beside it is wrong")
    assert result.misprint.startswith("the program prints 0.889 where binary32's run prints 0.309")
    assert set(result.necessary) == {at(1), at(2)}
    assert [dose.cures for dose in result.doses] == [False] * 5 + [True] * 2
    assert not any(remedy.cures for remedy in result.remedies
                   if not {"layer1", "layer2"} <= {p for p, _ in remedy.way.policy.layers})


def test_a_number_that_binary32_does_not_print_again_is_no_misprint():
    clock = iter(range(10_000))
    result = diagnose(metric(lambda way, restoring: 1.5 + 7.25 * next(clock)), WAY, 4)
    assert (result.answer, result.misprint) == ("ill", "")
    assert result.doses == []  # nothing would show them
