"""Ways and their texts (law, corners)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ipu.learn.policy import FP16, FP32
from ipu.run.ways import Way, parse_ways


@pytest.mark.parametrize(
    "text",
    ["fp32", "fp16", "mixed", "fp16+sr", "fp16+scale=1024", "fp16+scale=1048576",
     "fp16+eps=0.0001", "fp16+sr+scale=2+states=f32", "p=f16,c=f16,part=f16+sr", "fp16+head=f32",
     "fp16+encoder.*=mixed+head=f32"],
)
def test_a_way_is_its_text(text):
    assert Way.parse(str(Way.parse(text))) == Way.parse(text)
    if "+encoder" not in text:
        assert str(Way.parse(text)) == text


def test_a_layer_that_is_named_as_an_option_is_one():
    """scale= and states= are options; in brackets they are patterns of a layer."""
    for name in ("scale", "eps", "cache", "states", "data"):
        way = Way.parse("fp16+sr").with_layer(name)
        assert str(way) == f"fp16+sr+[{name[0]}]{name[1:]}=f32"
        again = Way.parse(str(way))
        assert (again.changes, again.policy.of(name)) == (way.changes, FP32)
    with pytest.raises(ValueError, match=r"a layer of that name is \[s\]cale"):
        Way.parse("fp16+scale=f32")


def test_a_layer_is_told_once():
    way = Way.parse("fp16").with_layer("a").with_layer("b").with_layer("a")
    assert str(way) == "fp16+b=f32+a=f32"


def test_additions():
    way = Way.parse("fp16+scale=2^10+head=f32+halves")
    assert way.changes.loss_scale == 1024
    assert way.changes.halves_by_policy
    assert (way.policy.of("head"), way.policy.of("body")) == (FP32, FP16)
    assert Way.parse("fp16").with_layer("a").with_layer("b", FP16).policy.of("a") == FP32


@pytest.mark.parametrize(
    ("text", "message"),
    [("f99", "f99"), ("fp16+nonsense", "'nonsense' is not known"), ("fp16+scale=3", "power of two"),
     ("fp16+eps=x", "could not convert"), ("fp16+head=f99", "f99"), ("fp16+=f32", "is not known")],
)
def test_bad_texts(text, message):
    with pytest.raises(ValueError, match=message):
        Way.parse(text)


@pytest.mark.parametrize("text", ["", "fp16,fp16", "fp16,p=f16,c=f16"])
def test_lists_name_different_ways(text):
    with pytest.raises(ValueError, match="must name one way at least"):
        parse_ways(text)


@pytest.mark.parametrize("text", ["fp32,,fp16", "fp32,", ",fp32", "fp32, ,fp16"])
def test_an_empty_way_is_refused(text):
    with pytest.raises(ValueError, match="has an empty way; put one comma between two ways"):
        parse_ways(text)


def test_ways_of_the_document_are_known():
    text = (Path(__file__).parents[3] / "docs" / "pytorch.md").read_text(encoding="utf-8")
    table = text.partition("## Ways,")[2].partition("\n\n`run.advise")[0]
    additions = [t for line in table.splitlines() if line.startswith("| `")
                 for t in re.findall(r"`([^`]+)`", line.split("|")[1])]
    assert len(additions) == 12
    for addition in additions:
        Way.parse(f"fp16{addition}" if addition.startswith("+") else addition)


@pytest.mark.parametrize("text", [
    "fp16+scale=8.38861e+06", "fp16+scale=1/16", "fp16+eps=1.234567891e-05", "fp16+-1e9=-3e4+sr",
    "fp16+1e-12=6.103515625e-05", "p=e5m6,c=e5m6+3=f32", "fp16+eps=1e-30+head=f32",
])
def test_a_way_comes_back_as_it_is_printed(text):
    way = Way.parse(text)
    assert Way.parse(str(way)) == way
    assert str(Way.parse(str(way))) == str(way)


def test_a_scale_of_six_digits_is_its_power_of_two():
    assert Way.parse("fp16+scale=8.38861e+06").changes.loss_scale == 2**23
    with pytest.raises(ValueError, match="is not a power of two"):
        Way.parse("fp16+scale=8.38862e+06")
