"""Policies: their text, defaults and refusals; known answers."""

from __future__ import annotations

import pytest

from fpsim import BFLOAT16, BINARY16, BINARY32, F152
from ipu import ops
from ipu.experiments.lab.machine import units_of
from ipu.learn.accumulate import Accumulation
from ipu.learn.patterns import check_patterns, matches, meant
from ipu.learn.policy import FP8, FP16, FP32, MIXED, LayerPolicies, Policy
from ipu.learn.tensor import Tensor
from ipu.learn.variables import (
    Variables,
    get_variable,
    variable_scope,
)
from ipu.machine import Device
from tests.ipu.learn.small import X, trained, trainer

BF16 = Policy(BINARY32, BFLOAT16)


@pytest.mark.parametrize("text", ["p=f32,c=f32,part=f32", "p=f16,c=f16,part=f16",
                                  "p=f32,c=bf16,part=f32", "p=f16,c=f16,part=f32,acc=f32",
                                  "p=f32,c=f16,part=f32,acc=f16,out=f32",
                                  "p=f32,c=f8,part=f16"])
def test_policies_are_their_string(text):
    assert str(Policy.parse(text)) == text


def test_what_a_policy_does_not_say_follows():
    assert Policy.parse("p=f32,c=f16,part=f32,acc=f32,out=f16") == MIXED
    assert (FP8.partials, FP8.accumulator, FP8.output) == (BINARY16, BINARY32, BINARY16)
    assert (FP16.partials, FP16.accumulator, FP16.output) == (BINARY32, BINARY16, BINARY16)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [("p=f16,c=f32", "parameters are kept in the format of activations or in binary32"),
     ("p=f32,c=bf16,part=f16", "partials=binary16 go with binary16 inputs only"),
     ("p=f32,c=f8,part=f32", "products of quarters keep binary16 partials"),
     ("weights=f16", "policy item 'weights=f16' is not known"),
     ("p=f8", "policy item 'p=f8' is not known"),
     ("p=f32,out=f8", "policy item 'out=f8' is not known")],
)
def test_impossible_policies_are_refused(text, sentence):
    with pytest.raises(ValueError, match=sentence):
        Policy.parse(text)


def test_formats_that_no_policy_has_are_refused():
    with pytest.raises(ValueError, match=r"accumulator=f152 .* use acc=f16\|f32\|bf16"):
        Policy(accumulator=F152)


@pytest.mark.parametrize("text", ["p=f32,c=f32,part=f16", "p=f32,c=f16,part=f16,out=f32"])
def test_partials_narrower_than_the_output_are_raised_and_said_once(text):
    with pytest.warns(
        RuntimeWarning, match="partials=binary16 are narrower than the out"
    ) as warned:
        policy = Policy.parse(text)
    assert len(warned) == 1
    assert policy.partials == BINARY32


def test_the_same_model_runs_in_every_format():
    """Only the policy differs; all learn, and the units are those of the policy."""
    for policy, target, unit in (
        (FP32, "mk2", "AMP_F32_F32"),
        (FP16, "mk2", "AMP_F16_F32"),
        (MIXED, "mk2", "AMP_F16_F32"),
        (BF16, "hypothetical", "AMP_BF16_F32"),
        (FP8, "mk2-fp8", "AMP_F8_F16"),
    ):
        training, losses = trained(policy=policy, target=target)
        assert losses[-1] < losses[0]
        assert set(training.device.units_used) == {unit}
        assert {v.dtype for v in training.variables.values()} == {policy.param}


def test_reports_say_what_is_no_ipu_feature_and_what_is_assumed():
    rests = {}
    for policy, target in ((FP16, "mk2"), (BF16, "hypothetical"), (FP8, "mk2-fp8")):
        training, _ = trained(1, policy=policy, target=target)
        rests[policy] = " ".join(map(str, units_of(training.device)))
    assert "not an IPU feature: bfloat16" in rests[BF16]
    assert "quarters: smallest power of two" in rests[FP8]
    assert not any(word in rests[FP16] for word in ("not an IPU feature", "quarters"))
    with pytest.raises(ValueError, match="hypothetical has bfloat16"):
        trained(policy=BF16)
    with pytest.raises(ValueError, match="mk2-fp8 has quarters"):
        trained(policy=FP8)


def test_policies_of_layers_that_are_not_there_are_refused():
    training = trainer(policy=FP16.override({"out*": FP32, "hiden": MIXED}))
    message = "layers='hiden' matches no layer; did you mean 'hidden'. There are hidden, output"
    for _ in range(2):
        with pytest.raises(ValueError, match=message):
            training.forward(X)
        assert not training.variables


@pytest.mark.source("S4-50")
def test_weights_partials_and_accumulators_have_formats_of_their_own():
    """As arguments of one operation, and as one layer's policy."""
    with Variables(Device()) as variables, variable_scope("model", use_resource=True):
        w = get_variable("weights", [8, 3], BINARY16)
        x = Tensor(variables.device.from_host(X, BINARY16), variables.device)
        ops.matmul(x, w, partials=BINARY16)
        how = Accumulation(2, dtype=BINARY32)
    assert set(variables.device.units_used) == {"AMP_F16_F16"}
    assert [a.format for a in how.start(variables.trainable).values] == [BINARY32]
    message = Policy.parse("p=f16,c=f16,part=f16,acc=f32,out=f16")
    assert [message.param, message.partials, message.accumulator] == [BINARY16, BINARY16, BINARY32]


def test_no_policies_of_layers_that_are_none():
    with pytest.raises(TypeError, match="map patterns of names to policies"):
        LayerPolicies(FP16, (("output", "p=f32"),))


@pytest.mark.parametrize(
    ("layer", "pattern", "expected"),
    [("h", "h", True), ("h", "H", False), ("block1/conv", "block1/*", True), ("a/b/c", "a/*", True),
     ("h2", "h[12]", True), ("all_vars/h", "h", False)],
)
def test_patterns_are_those_of_file_names_with_their_case(layer, pattern, expected):
    assert matches(layer, pattern) == expected


def test_a_pattern_that_matches_nothing_lists_what_there_is():
    check_patterns("layers", ["h*"], {"hidden"})
    with pytest.raises(ValueError, match=r"x='zz' matches no layer; use one of hidden, output$"):
        check_patterns("x", ["h*", "zz"], {"output", "hidden"})
    with pytest.raises(ValueError, match=r"use one of \(no layers\)"):
        check_patterns("x", ["zz"], set())


@pytest.mark.parametrize(("layers", "pattern", "units"), [
    (["blocks.0.up", "blocks.0.down", "blocks.10.up", "head"], "last1", ["blocks.10"]),
    (["layer1.0.conv1", "layer1.1.conv1", "layer2.0.conv1", "fc"], "last2",
     ["layer1.1", "layer2.0"]),
    (["block1/conv", "block1/dense", "block2/conv", "output"], "first1", ["block1"]),
    (["fc1", "fc2", "head"], "last2", ["fc2", "head"]),
    (["0", "2", "4"], "first2", ["0", "2"]),
    (["blocks.0.up", "blocks.0.down", "head"], "last2", ["blocks.0.down", "head"]),
])
def test_what_patterns_by_order_mean(layers, pattern, units):
    """Numbered parts that hold layers, two at least; else the layers themselves."""
    assert meant(pattern, layers) == units
    policy = FP16.override({pattern: FP32}).in_order(layers)
    inside = [layer for layer in layers if policy.of(layer) == FP32]
    ends = tuple(f"{unit}{end}" for unit in units for end in "./")
    assert inside == [layer for layer in layers if layer in units or layer.startswith(ends)]


def test_an_order_without_layers_is_refused():
    with pytest.raises(ValueError, match="'last1' finds no layer with weights"):
        FP16.override({"last1": FP32}).in_order([])
