"""Policies as users write them (golden)."""

from __future__ import annotations

import re

import pytest

from fpsim import BFLOAT16, BINARY16, BINARY32, E4M3FN
from ipu.learn.policy import FP16, FP32, MIXED
from ipu.run.changes import NONE, Changes
from ipu.run.format_policies import FormatPolicy, named_format
from ipu.run.patterns import PatternError, patterns_of, refuse_pattern, unmatched
from ipu.run.policies import find_policy


@pytest.mark.parametrize(
    ("argument", "text"),
    [
        ("bf16", "p=bf16,c=bf16,part=f32"),
        ("mixed", str(MIXED)),
        (FP16, str(FP16)),
        ("f16", "p=f16,c=f16,part=f32"),
        ("p=f16,c=f16;output:p=f32", "p=f16,c=f16,part=f32;output:p=f32,c=f32,part=f32"),
    ],
)
def test_texts_and_policies(argument, text):
    assert str(find_policy(argument)) == text


def test_patterns_of_module_paths():
    policy = find_policy({"encoder.*": "c=f16,part=f16", "head": "f32", "*": "f16"})
    assert policy.of("encoder.layer.0").partials == BINARY16
    assert policy.of("encoder.layer.0").param == BINARY32
    assert policy.of("head").compute == BINARY32
    assert policy.of("decoder").param == BINARY16
    assert find_policy({"head": "bf16"}).of("other") == FP32
    assert find_policy({"head": "bf16"}).of("head").compute == BFLOAT16


def test_what_is_no_policy_is_refused():
    with pytest.raises(TypeError, match="policy=3 is not a policy; use a text"):
        find_policy(3)
    with pytest.raises(ValueError, match="policy item 'hlaf' is not known"):
        find_policy("hlaf")
    with pytest.raises(ValueError, match="float32 tensors hold no binary64 values"):
        find_policy("p=f64,c=f64")
    with pytest.raises(ValueError, match="Did you mean 'e4m3"):
        find_policy("c=e4m3nf")


@pytest.mark.parametrize(
    ("argument", "text"),
    [
        ("e5m6", "p=e5m6,c=e5m6,part=f32"),
        ("c=e4m3fn,out=f16", "p=f32,c=e4m3fn,part=f32,out=f16"),
        ("fp8", "p=f32,c=f8,part=f16"),
        ("f8", "p=f32,c=f8,part=f16"),
    ],
)
def test_formats_without_a_data_type(argument, text):
    assert str(find_policy(argument)) == text


def test_what_follows_from_the_compute_format():
    policy = FormatPolicy.parse("c=e4m3fn,out=f16")
    assert policy.compute == E4M3FN
    assert policy.activations == policy.output == BINARY16
    assert policy.param == policy.accumulator == policy.partials == BINARY32
    assert FormatPolicy.parse(str(policy)) == policy


def test_names_of_formats():
    assert (named_format("e5m6").exponent_bits, named_format("e5m6").precision) == (5, 7)
    assert named_format("e4m3fn") == E4M3FN
    # The catalogue's own names come first.
    assert named_format("e4m3").name == "e4m3"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("c=e4m3nf", "Did you mean 'e4m3"),
        ("q=e4m3", "policy item 'q=e4m3' is not known; use p, c, part, acc, out"),
        ("c=e8m0", "float32 tensors do not hold its values"),
        ("c=f64", "float32 tensors do not hold its values"),
        ("c=e9m20", "float32 tensors do not hold its values"),
    ],
)
def test_what_is_no_format_is_refused(text, sentence):
    with pytest.raises(ValueError, match=sentence):
        FormatPolicy.parse(text)


LAYERS = ["Net", "encoder.0", "encoder.1", "head"]


@pytest.mark.parametrize(
    ("policy", "expected"),
    [("fp16", []), ({"*": "f16"}, []), ({"*": "f16", "head": "f32"}, ["head"]),
     ("p=f16,c=f16;encoder.*:p=f32;*:p=f16,c=f16", ["encoder.*"])],
)
def test_patterns_of_a_policy(policy, expected):
    assert patterns_of(find_policy(policy)) == expected


def test_patterns_that_match_nothing():
    assert unmatched(["head", "Head", "encoder.*", "*.2", "encoder"], LAYERS) == [
        "Head", "*.2", "encoder",
    ]


@pytest.mark.parametrize(
    ("pattern", "hint"),
    [("haed", "did you mean 'head'? "), ("encoder", "did you mean 'encoder.0' or 'encoder.1'? "),
     ("Encoder.*", "did you mean 'encoder."), ("net", "did you mean 'Net'? "),
     ("xyz", "f32; There")],
)
def test_the_error_names_what_is_near(pattern, hint):
    error = refuse_pattern(pattern, LAYERS, "p=f32,c=f32")
    assert isinstance(error, PatternError)
    assert isinstance(error, ValueError)
    assert hint in str(error)
    assert f"policy pattern {pattern!r} matches no layer" in str(error)


def test_of_many_layers_some_are_named():
    text = str(refuse_pattern("x", [f"layer.{i}" for i in range(100)], "p"))
    assert "and 92 more" in text
    assert len(text) < 400


@pytest.mark.parametrize("scale", [0.0, -2.0, 3.0, float("nan"), float("inf")])
def test_a_loss_scale_is_a_power_of_two(scale):
    with pytest.raises(ValueError, match=r"loss_scale=.* is not a power of two"):
        Changes(loss_scale=scale)


@pytest.mark.parametrize("eps", [0.0, -1e-4, float("nan")])
def test_eps_is_positive(eps):
    with pytest.raises(ValueError, match=r"eps=.* is not positive"):
        Changes(eps=eps)


def test_texts():
    assert str(NONE) == ""
    everything = Changes(2.0**-3, 1e-4, wide_states=True, halves_by_policy=True)
    assert str(everything) == "scale=0.125+eps=0.0001+states=f32"


@pytest.mark.parametrize("text", ["fp16+sr", "fp16+states=f32", "f16+head=f32", "mixed+scale=1024"])
def test_a_way_is_no_policy_and_is_told_what_to_write(text):
    base = text.partition("+")[0]
    with pytest.raises(ValueError, match=re.escape(f"give policy={base!r} with sr=True")):
        find_policy(text)
