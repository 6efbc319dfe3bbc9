"""Policies as users write them (golden)."""

from __future__ import annotations

import pytest

from fpsim import BFLOAT16, BINARY16, BINARY32
from ipu.learn.policy import FP16, FP32, MIXED
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
