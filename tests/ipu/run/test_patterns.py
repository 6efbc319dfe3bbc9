"""Patterns that match no layer: which they are, and what the error tells (golden)."""

from __future__ import annotations

import pytest

from ipu.run.patterns import PatternError, patterns_of, refuse_pattern, unmatched
from ipu.run.policies import find_policy

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
