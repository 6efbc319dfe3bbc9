"""Policies with formats that no IPU has (golden)."""

from __future__ import annotations

import pytest

from fpsim import BINARY16, BINARY32, E4M3FN
from ipu.run.format_policies import FormatPolicy, named_format


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
