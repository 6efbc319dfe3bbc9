"""Advice: each rule from a report that calls for it, and none from one that does not (golden)."""

from __future__ import annotations

import copy

import pytest

from ipu.run.advice import exceptions, find_advice
from ipu.run.causes.finding import find_causes
from ipu.run.ways import Way
from tests.ipu.run.runs import born, make_report, quiet_report

HALF = Way.parse("fp16")


@pytest.fixture
def report():
    """A run in which nothing hurts."""
    calm = copy.deepcopy(make_report())
    for directions in calm["layers"].values():
        for row in directions.values():
            row.update(dict.fromkeys(row, 0))
    calm.update(
        constants=[], first=[], births=[], losses=[2.0, 1.0], loss_scale={}, swallowed={},
        symptom={},
    )
    return calm


def texts(report, way=HALF):
    return [item.what for item in find_advice(report, way)]


def tried(report, way=HALF):
    return [str(w) for item in find_advice(report, way) for w in item.ways]


def test_a_calm_run_needs_nothing(report):
    assert find_advice(report, HALF) == []
    assert find_advice(quiet_report(), HALF) == []


def test_an_eps_of_zero_is_named_with_its_divisions(report):
    report["births"] = [born("division by zero", layer="optimizer", direction="optimizer",
                             operation="torch.optim.adam")]
    report["constants"] = make_report()["constants"]
    (item,) = find_advice(report, HALF)
    assert "zero in binary16, so the arithmetic of torch.optim.adam divides by" in item.evidence
    assert item.layer == "optimizer"
    assert [str(w) for w in item.ways] == ["fp16+eps=0.0001", "fp16+states=f32"]
    assert all(w.changes.halves_by_policy for w in item.ways)


def test_a_constant_that_did_nothing_is_left_alone(report):
    report["constants"] = make_report()["constants"]
    assert texts(report) == []
    report["births"] = [born("division by zero", layer="optimizer", direction="optimizer")]
    report["constants"][0]["value"] = -2e-8  # a step size is no eps
    assert texts(report) == ["Let the optimiser compute in binary32"]


def test_a_factor_that_is_one(report):
    report["constants"] = [{"layer": "optimizer", "direction": "optimizer", "format": "binary16",
                            "value": 0.9999, "becomes": "one", "times": 3}]
    assert texts(report) == []  # a decay of weights
    report["births"] = [born("absorption", layer="optimizer", direction="optimizer",
                             operation="aten.add", count=90, repeated=80,
                             results=100)]
    assert texts(report) == [
        "Let the optimiser compute in binary32, which holds the factor 0.9999"
    ]
    assert tried(report) == ["fp16+states=f32", "mixed"]
    report["constants"] = []
    assert texts(report) == ["Keep averages in binary32"]


def test_a_constant_of_a_layer_that_is_divided_by(report):
    report["births"] = [
        born("constant", operation="1e-12", detail="zero"),
        born("division by zero", number=1, causes=[0], operation="aten.div"),
    ]
    assert texts(report) == [
        "Replace the constant 1e-12 of net.a by one that binary16 holds, or compute net.a in "
        "binary32"]
    assert tried(report) == ["fp16+1e-12=6.103515625e-05", "fp16+net.a=f32"]
    (item,) = find_advice(report, HALF)
    assert item.evidence.startswith("The constant 1e-12 is zero in binary16, so the div of net.a")


def test_overflow_forward(report):
    report["births"] = [born("saturation", number=1, step=1), born("saturation", layer="net.b")]
    (item,) = find_advice(report, HALF)
    assert item.layer == "net.b"
    assert item.evidence == (
        "The mul of net.b overflows binary16 (forward, step 0): 3 of 8 results"
    )
    assert tried(report) == ["fp16+net.b=f32", "fp16+net.a=f32+net.b=f32"]
    narrow = Way.parse("p=f16,c=f16,part=f16")
    assert tried(report, narrow)[0] == "fp16"


def test_of_operations_that_overflow_in_one_line_the_one_with_most_births_is_named(report):
    """As of 90 000 + 25 000 g: few products, and all sums. Other lines and steps are later."""
    outside = [{"layer": f"aten.{verb}", "operation": f"aten.{verb}"} for verb in ("mul", "add")]
    report["births"] = [
        born("saturation", line="a.py:9", count=1, **outside[0]),
        born("saturation", number=1, line="a.py:9", count=7, **outside[1]),
        born("saturation", number=2, line="a.py:10", count=8),
        born("saturation", number=3, line="a.py:9", count=8, step=1),
    ]
    (item,) = find_advice(report, HALF)
    assert item.evidence == (
        "The add overflows binary16 (forward, step 0, a.py:9): 7 of 8 results")
    assert str(item.ways[0]) == "fp16+aten.add=f32"
    report["births"][0]["alone"], report["births"][1]["alone"] = 0.3, 0.1
    assert find_causes(report)[0].layer == "aten.mul"  # tested harm comes before births
    report["births"][0]["alone"] = 0.101
    assert find_causes(report)[0].layer == "aten.add"
    report["births"][1]["line"] = "a.py:8"
    assert find_causes(report)[0].layer == "aten.mul"


def test_a_constant_beyond_the_range_counts_beside_what_overflows_in_its_line(report):
    add = {"layer": "aten.add", "line": "a.py:9"}
    report["births"] = [
        born("saturation", layer="aten.mul", line="a.py:9", alone=0.0, harmless=True),
        born("constant", number=1, operation="90000.0", detail="overflow", count=1, results=1,
             alone=0.2, **add),
    ]
    (item,) = find_advice(report, HALF)
    assert item.evidence == (
        "The constant 90000.0 is beyond the largest number in binary16 (forward, step 0, a.py:9)")
    assert "fp16+aten.add=f32" in map(str, item.ways)
    del report["births"][1]["alone"]
    assert find_causes(report) == []  # as a mask


def test_overflow_that_dies_is_no_cause(report):
    report["births"] = [born("saturation", harmless=True, deaths={"aten._softmax": 1})]
    assert texts(report) == []


def test_no_way_is_the_one_that_ran(report):
    report["births"] = [born("saturation", direction="optimizer", layer="optimizer")]
    assert tried(report, Way.parse("mixed")) == ["mixed+states=f32"]


def test_a_run_that_never_reached_the_machine_speaks_for_nothing_else(report):
    report["births"] = [born("saturation")]
    report["unreached"] = "Use the scope of a strategy"
    assert texts(report) == ["Use the scope of a strategy"]


def test_the_first_invalid_operation(report):
    """Of a front end that tells flags alone."""
    report["first"] = [{"flag": "INVALID", "step": 4, "layer": "net.a", "direction": "forward",
                        "operation": "sqrt", "times": 2}]
    assert texts(report) == ["Compute net.a in binary32"]


def test_gradients_that_lose_digits(report):
    report["loss_scale"] = {
        "present": 1.0, "highest_safe": 65536.0, "best": 1024.0, "limited_by": "head",
        "lost": (0.4, 0.0), "curve": {}, "unseen": 0,
    }
    assert tried(report) == ["fp16+scale=1024"]
    report["loss_scale"] |= {"lost": (0.04, 0.0)}
    assert texts(report) == []


def test_gradients_of_unknown_size_ask_for_a_larger_scale_too(report):
    report["loss_scale"] = {
        "present": 1.0, "highest_safe": 65536.0, "best": 1024.0, "limited_by": "head",
        "lost": (0.4, 0.0), "curve": {}, "unseen": 114,
    }
    (item,) = find_advice(report, HALF)
    assert "; 114 gradients are zero, of a size that is not known" in item.what
    assert [str(way) for way in item.ways] == ["fp16+scale=1024", "fp16+scale=8192"]


def test_gradients_that_are_all_zero(report):
    report["births"] = [born("flush to zero", direction="backward")]
    report["exponents"] = {"gradients": [{"format": "binary16", "counts": {}, "zeros": 8}]}
    (item,) = find_advice(report, HALF)
    assert item.evidence.startswith("Every gradient is zero")
    assert [str(way) for way in item.ways] == ["fp16+scale=1024", "fp16+scale=1048576"]


def test_gradients_that_overflow(report):
    report["births"] = [born("saturation", direction="backward")]
    report["loss_scale"] = {"present": 1024.0, "best": None}
    (item,) = find_advice(report, HALF)
    assert item.what == "Lower the loss scale from 1024, or compute net.a in binary32"
    assert tried(report) == ["fp16+scale=0.0625", "fp16+scale=0.00390625", "fp16+net.a=f32"]


def test_a_scale_beyond_what_the_loss_bears(report):
    report["births"] = [born("NaN", layer="head", direction="forward")]
    scales = {"present": 2.0**16, "highest_safe": 2.0**15, "limited_by": "loss", "best": 1.0,
              "lost": (0.0, 0.0), "unseen": 0}
    report["loss_scale"] = scales
    (item,) = find_advice(report, HALF)
    assert (item.what, item.layer) == ("Lower the loss scale to 32768", "loss")
    assert "the present scale of 65536 takes loss beyond the largest number" in item.evidence
    assert [str(w) for w in item.ways] == ["fp16+scale=0.5"]
    report["loss_scale"] = scales | {"present": 2.0**15}  # the last one that it bears
    (item,) = find_advice(report, HALF)
    assert item.what.endswith("in binary32")


def moving(*shares):
    """Motions of parameters that arrive at these shares of their way in binary64."""
    return {"motions": [{"name": f"p{i}", "arrived": share, "is_state": False}
                        for i, share in enumerate(shares)]}


def test_divisors_of_an_optimiser(report):
    report["births"] = [born("flush to zero", layer="optimizer", direction="optimizer",
                             operation="torch.optim.adam", count=30, results=100)]
    assert texts(report) == []  # nobody followed where parameters go
    report["shadow"] = moving(1.0, 8.0, 12.0)
    (item,) = find_advice(report, HALF)
    assert "30 of 100 results, and parameters move 8.0 times as far" in item.evidence
    assert tried(report) == ["fp16+states=f32", "mixed"]
    report["shadow"] = moving(1.0, 1.9, 12.0)
    assert texts(report) == []


def overshooting(report):
    """An update 100 times binary32's, before a layer overflows."""
    report["births"] = [
        born("flush to zero", layer="optimizer", direction="optimizer", count=30, results=100,
             operation="torch.optim.adam", line="a.py:9"),
        born("saturation", number=1, step=1, operation="aten.addmm", layer="net.b"),
    ]
    report["jumps"], report["binary32"] = {0: 50.0, 1: 9.0}, {"jumps": {0: 0.5, 1: 0.5}}
    return report


def test_an_update_behind_a_wrong_loss_is_no_divisors(report):
    """A wrong loss has wrong gradients, whatever an optimiser divides by."""
    overshooting(report)["losses"] = [9.0, 9.0]
    report["binary32"]["losses"] = [2.0, 1.0]
    report["shadow"] = moving(12.0, 12.0, 12.0)
    assert "states" not in {cause.kind for cause in find_causes(report)}
    report["binary32"]["losses"] = [8.9, 1.0]
    assert find_causes(report)[0].kind == "states"


@pytest.mark.parametrize("losses", [[2.0, 9.0], [2.0, float("nan")]])
def test_divisors_that_are_too_small_come_before_what_overflows_behind_them(report, losses):
    overshooting(report)["losses"] = losses
    cause = find_causes(report)[0]
    assert (cause.kind, cause.row["line"]) == ("states", "a.py:9")
    assert "the update of step 0 is 100 times as large as binary32's. What follows: " in (
        cause.sentence)
    assert cause.sentence.index("the addmm of net.b overflows") > cause.sentence.index("follows")
    assert tried(report)[:2] == ["fp16+states=f32", "mixed"]


@pytest.mark.parametrize(("direction", "kind", "words"), [
    ("backward", "gradients vanish", "Gradients underflow: the mul of net.a underflows to zero"),
    ("forward", "underflow", "The mul of net.a underflows to zero"),
])
def test_zeros_that_alone_do_harm_are_no_overflow(report, direction, kind, words):
    report["births"] = [born("flush to zero", direction=direction, alone=0.4)]
    cause = find_causes(report)[0]
    assert (cause.kind, cause.sentence.startswith(words)) == (kind, True)


def test_an_optimiser_without_divisors_has_none_that_are_too_small(report):
    overshooting(report)["births"][0]["operation"] = "torch.optim.sgd"
    assert [cause.kind for cause in find_causes(report)] == ["overflow"]


def test_an_overflow_before_the_update_does_not_follow_it(report):
    overshooting(report)["births"][1]["step"] = 0
    assert find_causes(report)[0].kind == "overflow"


def test_a_program_that_binary32_trains_does_not_diverge_by_itself(report):
    overshooting(report)["losses"] = [2.0, 300.0]
    assert [cause.kind for cause in find_causes(report)] == ["states", "overflow"]
    del report["binary32"]
    assert [cause.kind for cause in find_causes(report)] == ["diverges"]


def test_a_loss_that_parts_before_any_update_has_its_cause_forward(report):
    report.update(
        swallowed={"net.b": {"nonzero": 4, "swallowed": 4, "share": 1.0}}, harm=0.5,
        births=[born("flush to zero", operation="aten.prod", count=6)],
        losses=[0.0, 0.0], binary32={"losses": [2.0, 1.0]},
    )
    assert [cause.kind for cause in find_causes(report)] == ["underflow", "updates"]
    report["losses"][0] = 2.0
    assert [cause.kind for cause in find_causes(report)] == ["updates"]


def test_a_product_that_underflows_is_told_before_a_constant_that_does_not_keep_it(report):
    """The earliest of what reaches the division is the head, and both are advised upon."""
    report["births"] = [
        born("flush to zero", operation="aten.prod", line="a.py:3"),
        born("flush to zero", number=1, operation="aten.mul", causes=[0], line="a.py:4"),
        born("constant", number=2, operation="1e-30", detail="zero", causes=[1], line="a.py:5"),
        born("division by zero", number=3, operation="aten.log", causes=[2], line="a.py:5"),
    ]
    first, second = find_causes(report)
    assert (first.kind, first.row["operation"], second.kind) == ("division", "aten.prod",
                                                                 "constant")
    words = ("the prod", "the mul", "and the constant 1e-30 is zero", "so the log")
    places = [first.sentence.lower().index(word) for word in words]
    assert places == sorted(places)
    report["births"][2]["direction"] = "optimizer"  # whose eps is there to keep squares from zero
    assert [cause.kind for cause in find_causes(report)] == ["constant"]


def still(**about):
    """A motion of a tensor that stands still beside its shadow."""
    return {"name": "", "arrived": 0.0, "error": 1.0, "in_wide": 1.0, "shape": [4], "steps": 6,
            "line": "train.py:9", "operation": "add_", "is_state": False,
            "is_parameter": False} | about


@pytest.mark.parametrize(("about", "ways"), [
    ({}, ["mixed", "fp16+sr"]),
    ({"name": "net.bn.running_var"}, ["fp16+net.bn=f32", "mixed", "fp16+sr"]),
    ({"in_wide": 0.1}, []),  # binary32 does not move it either
    ({"name": "net.bn.weight", "is_parameter": True}, []), ({"is_state": True}, []),
    ({"arrived": 0.9}, []),
])
def test_a_tensor_that_stands_still(report, about, ways):
    report["shadow"] = {"motions": [still(**about)]}
    assert tried(report) == ways
    for item in find_advice(report, HALF):
        what = "net.bn.running_var, which add_ writes (train.py:9), moves by 0% of its way" if (
            "name" in about) else "a tensor of 4 that add_ writes (train.py:9) moves by 0% of its"
        assert what in item.evidence


def test_a_variable_that_is_no_layers_has_its_name_and_what_follows(report):
    """A counter of steps whose remainder is the rate."""
    rows = [{"operation": "Mul", "line": "train.py:4", "error": 0.9, "amplification": 1.0},
            {"operation": "FloorMod", "line": "train.py:3", "error": 0.9, "amplification": 800.0}]
    report["shadow"] = {
        "motions": [still(shape=[], name="counter")], "operations": rows}
    (cause,) = find_causes(report)
    assert cause.sentence.endswith(
        "counter, which add_ writes (train.py:9), moves by 0% of its way in binary64; the FloorMod "
        "(train.py:3) is wrong by 90%")
    report["shadow"]["operations"] = rows[:1]
    assert find_causes(report)[0].sentence.endswith("of its way in binary64")


def test_digits_that_gradients_lose_without_harm(report):
    report["loss_scale"] = {"present": 1.0, "best": 64.0, "highest_safe": 1024.0, "unseen": 0,
                            "lost": (0.13, 0.0), "limited_by": ""}
    assert len(texts(report)) == 1
    report["shadow"] = moving(0.2, 0.99, 1.01)
    assert texts(report) == []
    report["shadow"] = moving(0.2, 0.7, 1.01)
    assert len(texts(report)) == 1


def test_updates_that_are_swallowed(report):
    report["swallowed"] = make_report()["swallowed"]
    (item,) = find_advice(report, HALF)
    assert item.evidence.endswith("; of all parameters 12 of 16")
    assert tried(report) == ["fp16+sr", "mixed"]
    report["stochastic_rounding"] = True  # each update arrives in the mean
    assert texts(report) == []


def test_functions_of_forward_values_overflow_in_a_backward_pass(report):
    """As 1/σ³ in that of an RMS norm: lowering the loss scale changes nothing."""
    about = {"direction": "backward", "operation": "aten.pow", "count": 9}
    report["births"] = [born("saturation", **about),
                        born("saturation", number=1, layer="net.b", **about)]
    (item,) = find_advice(report, HALF)
    assert "no loss scale changes" in item.evidence
    assert tried(report) == ["fp16+net.a=f32", "fp16+net.a=f32+net.b=f32"]
    report["births"] = [born("saturation", **about | {"operation": "aten.mm"})]
    assert "the loss scale is too high" in find_advice(report, HALF)[0].evidence


def test_a_nan_that_a_selection_leaves_out_is_no_cause(report):
    """log(0) of a table whose small entries are others: no gradient has it."""
    report["losses"] = [2.0, 1.0]
    zero = born("division by zero", operation="aten.log")
    nan = born("NaN", number=1, operation="aten.log", causes=[0], trained_with=False)
    report["births"] = [zero, nan]
    assert texts(report) == []
    nan["trained_with"] = True
    assert len(texts(report)) == 1
    report["births"] = [zero]  # of which no value is told
    assert len(texts(report)) == 1


def test_terms_that_a_sum_absorbs(report):
    report["births"] = [born("absorption", operation="aten.add", count=90, repeated=80, results=100,
                             line="train.py:7")]
    assert texts(report) == ["Keep the sum at train.py:7 in binary32"]
    report["births"][0]["repeated"] = 0  # each term is lost once, as half a unit is
    assert texts(report) == []
    report["births"][0] |= {"count": 40, "repeated": 40}
    assert texts(report) == []


def test_a_sum_of_a_training_that_is_well_may_absorb_terms(report):
    """As a divisor absorbs the small number that keeps it from zero; a metric's sum may not."""
    row = born("absorption", operation="aten.add", count=90, repeated=80, results=90)
    report |= {"births": [row], "shadow": moving(0.9, 0.99, 1.01), "harm": 0.0}
    assert texts(report) == []
    row["direction"] = "evaluation"
    assert len(texts(report)) == 1
    row["direction"], report["harm"] = "forward", 0.2
    assert len(texts(report)) == 1


def test_what_explains_more_comes_first(report):
    report["swallowed"] = make_report()["swallowed"]  # three quarters of the updates
    report["births"] = [born("absorption", operation="aten.add", count=60, repeated=50,
                             results=100)]
    assert [item.what.partition(",")[0] for item in find_advice(report, HALF)] == [
        "Round stochastically", "Keep the sum at net.a in binary32",
    ]
    report["births"][0]["count"] = 90
    assert texts(report)[0] == "Keep the sum at net.a in binary32"


def test_a_training_that_diverges_by_itself(report):
    report["losses"] = [2.0, 300.0, float("inf")]
    report["births"] = [born("saturation", step=2)]
    assert texts(report) == ["Lower the learning rate: no format mends this"]
    report["births"][0]["step"] = 1  # a number left its range with the loss
    assert texts(report) == ["Compute net.a in binary32"]
    report["jumps"] = {0: 30.0}  # after an update that was larger than the weights
    assert texts(report) == ["Lower the learning rate: no format mends this"]


def test_a_loss_with_a_sign_is_no_distance_that_grows(report):
    report["losses"] = [-0.005, -0.2, -0.4]  # as of a policy gradient
    assert texts(report) == []
    report["jumps"] = {0: 30.0}
    assert texts(report) == ["Lower the learning rate: no format mends this"]


def test_what_stands_outside_of_modules_is_widened_together(report):
    """The result of one operation in binary32 is rounded again as the operand of the next."""
    report["births"] = [born("saturation", layer="aten.mul", operation="aten.mul")]
    (item,) = find_advice(report, HALF)
    assert "all that stands outside of modules" in item.what
    assert tried(report)[-2:] == ["fp16+aten.mul=f32", "fp16+aten.*=f32"]
    report["births"].insert(0, born("saturation", operation="aten.mul"))
    assert tried(report)[-1] == "fp16+net.a=f32+aten.*=f32"


def standing(**about):
    return {"name": "", "shape": [4], "arrived": 0.0, "error": 1.0, "steps": 9, "line": "a.py:3",
            "operation": "AssignSub", "is_state": False} | about


def test_an_average_whose_factor_is_one_stands_still(report):
    """Its terms are zero, so that none is absorbed; random rounding brings none back."""
    report["shadow"] = {"motions": [standing()]}
    report["constants"] = [{"layer": "optimizer", "direction": "optimizer", "format": "binary16",
                            "value": 0.9998, "becomes": "one", "times": 1, "line": "a.py:3"}]
    assert find_advice(report, HALF)[0].evidence.startswith(
        "The factor 0.9998 of an average is 1 in binary16: sums are left nearly unchanged")
    report["stochastic_rounding"] = True
    assert len(texts(report)) == 1
    report["constants"] = []
    assert texts(report) == []


def harmed(*rows, births=()):
    """A report of a run whose losses part, with these operations of its shadow and births."""
    return {"losses": [1.0, 0.9], "births": list(births), "harm": 0.5,
            "shadow": {"operations": list(rows), "motions": []}}


@pytest.mark.parametrize(("repeated", "kinds"), [(49, ["sums"]), (20, []), (0, [])])
def test_a_sum_that_goes_on_is_harmed_by_fewer_terms(repeated, kinds):
    """As of an Euler step that is half a unit of a temperature."""
    row = born("absorption", operation="aten.sub", count=49, results=100, repeated=repeated)
    assert [cause.kind for cause in find_causes(harmed(births=[row]))] == kinds


def test_where_digits_are_lost():
    row = {"layer": "net", "direction": "forward", "operation": "aten.sub", "line": "a.py:2",
           "error": 0.5, "amplification": 100.0, "born": 0.001, "calls": 1}
    (cause,) = find_causes(harmed(row))
    sentence = cause.sentence
    assert cause.kind == "cancellation"
    assert sentence.startswith("The sub of net loses the digits of its operands (forward, a.py:2)")
    assert "error of 0.5% is 50% of its results, 100 times" in sentence
    (cause,) = find_causes(harmed(row | {"amplification": 1234.0}))
    assert "error of 0.041% is 50% of its results, 1234 times" in cause.sentence
    for other in ({"amplification": 8.0}, {"error": 0.01}, {"direction": "backward"},
                  {"amplification": None}):
        assert not find_causes(harmed(row | other))
    assert not find_causes(harmed(row) | {"harm": 0.01})
    (cause,) = find_causes(harmed(row | {"amplification": None, "born": 0.4}))
    assert "rounding them costs 40% of its results" in cause.sentence
    peak = {"amplification": 900.0, "error": 0.9, "line": "a.py:7"}  # in an early step
    (cause,) = find_causes(harmed(row | {"amplification": 1.1, "peak": peak}))
    assert "(forward, a.py:7): their error of 0.1% is 90% of its results, 900" in cause.sentence
    of_many_lines = harmed(row | {"peak": peak})
    assert "(forward, a.py:7)" in find_causes(of_many_lines)[0].sentence
    untried = harmed(row | {"amplification": 1.1, "peak": peak})  # beside no run in binary32
    untried["shadow"]["losses"] = [{"machine": x, "shadow": y} for x, y in ((2, 2), (1.9, 1.0))]
    del untried["harm"]
    assert not [c for c in find_causes(untried) if c.kind == "cancellation"]


@pytest.mark.parametrize(("least", "kinds"), [
    (40.0, ["cancellation", "gradients overflow"]), (0.9, ["gradients overflow"])])
def test_an_overflow_of_wrong_operands_is_told_behind_what_makes_them_wrong(least, kinds):
    """Binary64 has the derivative of a root in its range; of too high a loss scale it has not."""
    lossy_sub = {"layer": "net", "direction": "forward", "operation": "aten.sub", "line": "a.py:2",
                 "error": 0.5, "amplification": 100.0, "born": 0.001, "calls": 1, "least": 0.5}
    of_root = {**lossy_sub, "direction": "backward", "operation": "aten.div", "line": "a.py:9",
               "error": 40.0, "amplification": 2.0, "least": least}
    row = born("saturation", direction="backward", operation="aten.div", layer="net")
    report = harmed(lossy_sub, of_root, births=[row])
    assert [cause.kind for cause in find_causes(report)] == kinds


def test_gradients_vanish_where_a_good_part_of_results_becomes_zero():
    """A loss may lose a few of the smallest, and a product behind it all of them."""
    few = born("flush to zero", direction="backward", operation="aten.mse_loss_backward", layer="",
               count=3, results=100)
    all_of_them = born("flush to zero", direction="backward", layer="net", number=1, count=100,
                       results=100)
    report = harmed(births=[few, all_of_them]) | {"exponents": {"gradients": [
        {"format": "binary16", "counts": {}, "zeros": 9}]}}
    assert "it begins where the mul of net underflows" in find_causes(report)[0].sentence
    report["births"][0] = few | {"count": 60}
    assert "it begins where the mse_loss_backward underflows" in find_causes(report)[0].sentence


@pytest.mark.parametrize(("value", "bounds", "words", "way"), [
    ("0.9999999", "Minimum", "bound 0.9999999 of the Minimum of clip is 1",
     "0.9999999=0.99951171875"),
    ("-0.9999999", "clamp", "bound -0.9999999 of the clamp of clip is -1",
     "-0.9999999=-0.99951171875"),
    ("1.0000001", "", "constant 1.0000001 is 1", "1.0000001=1.0009765625")])
def test_a_number_that_is_1_is_replaced_by_its_neighbour(value, bounds, words, way):
    rows = [
        born("constant", operation=value, detail="one", layer="clip", line="a.py:1", bounds=bounds),
        born("division by zero", number=1, causes=[0], operation="Log", line="a.py:2",
             detail="what the sub of equal numbers gives"),
        born("NaN", number=2, causes=[1], operation="Log", line="a.py:2"),
    ]
    report = harmed(births=rows) | {"losses": [float("nan")], "symptom": {
        "step": 0, "births": {"NaN": 2}}}
    assert find_causes(report)[0].sentence == (
        f"The loss is NaN from step 0 on: the {words} in binary16 (a.py:1), so the Log of net.a "
        "takes the logarithm of zero, what the sub of equal numbers gives in binary16 (forward, "
        "step 0, a.py:2)")
    assert tried(report)[0] == f"fp16+{way}"
    assert str(Way.parse(f"fp16+{way}")) == f"fp16+{way}"


def cancelling(births, **of_sum):
    """A difference that is wrong, and a sum of the same layer whose terms are absorbed."""
    row = {"layer": "net", "direction": "forward", "operation": "Sub", "line": "a.py:2",
           "error": 3.0, "amplification": 9000.0, "born": 0.0, "calls": 1}
    sums = {**row, "operation": "Add", "line": "a.py:3", "amplification": 1.0, **of_sum}
    return find_causes(harmed(row, sums, births=births))


@pytest.mark.parametrize(("about", "of_sum", "kind"), [
    ({}, {"brought": ["a.py:3"]}, "cancellation"),
    ({"repeated": 90}, {"brought": ["a.py:3"]}, "cancellation"),
    ({"kind": "flush to zero"}, {"brought": ["a.py:3"]}, "cancellation"),
    ({"running": True}, {"brought": ["a.py:3"]}, "sums"),
    ({"line": ""}, {"brought": [""]}, "sums"),
    ({}, {"brought": ["a.py:4"]}, "sums"),
    ({}, {"brought": ["a.py:3"], "layer": "far"}, "sums"),
    ({"lost": 1e-5}, {"least": 2e-4}, "cancellation"),
    ({"lost": 1e-4}, {"least": 2e-4}, "sums"),
    ({"lost": 1e-5, "repeated": 90}, {"least": 2e-4}, "sums"),
    ({"lost": 0.0}, {"least": 2e-4}, "sums"),
])
def test_terms_are_no_cause_beside_a_result_that_is_wrong_by_far_more(about, of_sum, kind):
    """As an eps beside a variance that is a difference of nearly equal numbers."""
    row = born(about.pop("kind", "absorption"), operation="Add", layer="net", count=89, results=89,
               **{"line": "a.py:3", **about})
    assert cancelling([row], **of_sum)[0].kind == kind


def test_what_magnifies_a_wrong_difference_once_more_comes_behind_it():
    row = {"layer": "net", "direction": "forward", "operation": "sub", "line": "a.py:2",
           "error": 0.19, "amplification": 90.0, "born": 0.0, "calls": 1}
    behind = row | {"operation": "div", "error": 19.0, "amplification": 100.0}
    (cause,) = find_causes(harmed(behind, row))
    assert cause.row["operation"] == "sub"
    (cause,) = find_causes(harmed(behind))
    assert cause.row["operation"] == "div"


def test_what_a_difference_reads_is_widened_with_it():
    """The operations of its line, in one way, which is tried first."""
    row = {"layer": "sub", "direction": "forward", "operation": "Sub", "line": "a.py:2",
           "error": 0.5, "amplification": 100.0, "born": 0.001, "calls": 1}
    others = ({"layer": "mul", "amplification": 1.0}, {"layer": "far", "line": "a.py:1",
              "amplification": 1.0}, {"layer": "grad", "direction": "backward"})
    report = harmed(row, *(row | other for other in others))
    assert tried(report) == ["fp16+sub=f32+mul=f32", "fp16+sub=f32"]


def test_a_constant_of_the_line_whose_digits_are_lost_is_told():
    """As of x * 1e-9: what is lost is the number that stands there, and not a difference."""
    row = {"layer": "aten.mul", "direction": "forward", "operation": "aten.mul", "line": "a.py:2",
           "error": 0.7, "amplification": None, "born": 0.7, "calls": 1}
    constant = born("constant", operation="1e-09", detail="zero", line="a.py:2")
    cause = find_causes(harmed(row, births=[constant]))[0]
    assert cause.sentence == "The constant 1e-09 is zero in binary16 (forward, step 0, a.py:2)"
    for other in ({"line": "a.py:3"}, {"harmless": True}, {"line": ""}):
        assert find_causes(harmed(row, births=[constant | other]))[0].kind == "cancellation"


def test_roundings_of_a_sum_add_up():
    """None of them is large, and no term is absorbed."""
    row = {"layer": "aten.add", "direction": "evaluation", "operation": "aten.add_", "calls": 2000,
           "line": "a.py:2", "error": 0.2, "amplification": 1.0, "born": 0.0002}
    (cause,) = find_causes(harmed(row))
    assert cause.sentence == (
        "Rounding adds up in the add (forward, a.py:2): 2,000 sums are rounded, each by 0.02%, "
        "and they are wrong by 20.0% in the mean")
    assert tried(harmed(row) | {"layers": {}}) == ["fp16+aten.add=f32", "fp16+aten.*=f32"]
    for other in ({"calls": 9}, {"error": 0.002}, {"born": 0.0}, {"direction": "backward"},
                  {"amplification": 1.8}, {"operation": "aten.mul"}):
        assert not find_causes(harmed(row | other))


def lossy(kind, **about):
    """A birth of more than half of a layer's results."""
    return born(kind, **{"layer": "net", "operation": "aten.mul", "line": "a.py:2", "count": 60,
                         "results": 100, **about})


@pytest.mark.parametrize(("row", "kind", "words"), [
    (lossy("data without digits", detail="1013 ± 0.2"), "data", "lose their digits in binary16"),
    (lossy("data to zero", detail="down to 1e-9"), "data", "underflow in binary16: 60 of 100 numb"),
    (lossy("flush to zero"), "underflow", "The mul of net underflows to zero in binary16"),
    (lossy("flush to zero", format="e4m3fn", detail="of operands"), "underflow",
     "The mul of net underflows to zero in the cast of its operands to e4m3fn (forward"),
    (lossy("absorption"), "sums", "60 of 100 terms of the mul of net left the sum unchanged"),
    (lossy("constant", operation="1e-09", detail="zero"), "constant", "The constant 1e-09 is zero"),
])
def test_what_only_a_harmed_program_is_told(row, kind, words):
    """The same births do no harm where the losses are binary32's."""
    (cause,) = find_causes(harmed(births=[row]))
    assert cause.kind == kind
    assert words in cause.sentence
    assert find_advice(harmed(births=[row]) | {"layers": {}}, HALF)[0].ways
    assert not find_causes(harmed(births=[row]) | {"harm": 0.01})


def test_data_beyond_the_range_are_told_where_they_are_computed_with():
    row = lossy("data beyond", detail="up to 2.5e+05")
    (cause,) = find_causes(harmed(births=[row]) | {"harm": 0.0})
    assert cause.sentence.startswith(
        "Data on entry of net leave the range of binary16: 60 of 100 numbers, up to 2.5e+05")
    assert not find_causes(harmed(births=[row | {"harmless": True}]) | {"harm": 0.0})
    (item, *_) = find_advice(harmed(births=[row]) | {"layers": {}}, HALF)
    assert "normalise" in item.what
    assert [str(way) for way in item.ways] == ["fp16+net=f32"]


def test_updates_that_are_lost_do_no_harm_where_losses_and_most_of_the_way_are_binary32s():
    report = harmed() | {"swallowed": {"net": {
        "nonzero": 100, "swallowed": 40, "share": 0.4, "in_ulps": {}}}}
    rows = [standing(name="a", is_parameter=True, is_state=True, arrived=share, shape=[8])
            for share in (1.0, 0.6)]
    report["shadow"]["motions"] = rows
    assert [cause.kind for cause in find_causes(report)] == ["updates"]
    assert not find_causes(report | {"harm": 0.01})
    rows[0]["arrived"] = 0.5
    assert [cause.kind for cause in find_causes(report | {"harm": 0.01})] == ["updates"]


def test_unstable_statistics(report):
    report["stable_statistics"] = False
    assert texts(report) == []
    report["births"] = [born("NaN")]
    assert texts(report)[-1] == "Use stable statistics in norms"


def test_exceptions_are_sums():
    assert exceptions(make_report())["DIVBYZERO"] == 64
