"""A format may be text wherever it may be a Format, by one list of names (law)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import find

import fpsim as fp
from fpsim import linalg, testing
from fpsim.inspect.probe import fields, neighbours, probability_up, value_table
from fpsim.inspect.profile import profile
from fpsim.records.settings import Settings
from fpsim.records.units import find_unit

UNIT = "V100_F16_F32"


def operands() -> list[fp.Array]:
    half = fp.Context("half", seed=3)
    return [half.array(np.arange(16.0).reshape(4, 4) / 3) for _ in range(2)]


def images() -> list[fp.Array]:
    half = fp.Context("half")
    shapes = ((36, (1, 3, 3, 4)), (16, (1, 1, 4, 4)))
    return [half.array(np.arange(n).reshape(shape) / 7.0) for n, shape in shapes]


def unit(fmt: Any) -> fp.MatrixUnit:
    return fp.MatrixUnit("MINE_F16_F32", "ours", (fmt,), "single", terms=4, window=None)


#: Entrances of a format, each as a function of it.
ENTRANCES = {
    "Context": lambda f: fp.Context(f).array(0.1).codes().tolist(),
    "Context.replace": lambda f: fp.Context(fp.BINARY32).replace(format=f).array(0.1).item(),
    "Context.in_format": lambda f: fp.Context(fp.BINARY32).in_format(f).array(0.1).item(),
    "Context.matmul": lambda f: fp.Context("half").matmul(*operands(), UNIT, to=f).tolist(),
    "Context.matmul, partials": lambda f: (
        fp.Context("half").matmul(*operands(), UNIT, partials=f).tolist()
    ),
    "Context.k_split": lambda f: fp.Context("half").k_split(*operands(), UNIT, 1, to=f).tolist(),
    "Context.conv2d": lambda f: fp.Context("half").conv2d(*images(), UNIT, to=f).tolist(),
    "linalg.matmul": lambda f: linalg.matmul(*operands(), UNIT, to=f, partials=f).tolist(),
    "linalg.conv2d_input_gradient": lambda f: linalg.conv2d_input_gradient(
        *images(), UNIT, (1, 3, 3, 4), to=f
    ).tolist(),
    "linalg.conv2d_weight_gradient": lambda f: linalg.conv2d_weight_gradient(
        images()[0], images()[0], UNIT, (1, 1, 4, 4), to=f
    ).tolist(),
    "Array.to": lambda f: fp.Context(fp.BINARY32).array(0.1).to(f).item(),
    "Array.astype": lambda f: fp.Context(fp.BINARY32).array(0.1).astype(f).item(),
    "round_to": lambda f: fp.round_to(0.1, f),
    "encode": lambda f: fp.encode(0.1, f),
    "decode": lambda f: fp.decode(3, f),
    "Settings": lambda f: Settings(f),
    "MatrixUnit": lambda f: unit(f).inputs,
    "fields": lambda f: fields(3, f),
    "value_table": lambda f: len(value_table(f)),
    "neighbours": lambda f: neighbours("0.1", f),
    "probability_up": lambda f: probability_up("0.1", f, "RTP"),
    "profile": lambda f: repr(profile(np.float32([1e-9, 3.0]), f)),
    "testing.codes": lambda f: find(testing.codes(f), lambda c: c > 20),
    "testing.numbers": lambda f: find(testing.numbers(f), lambda x: x > 20),
    "testing.subnormal": lambda f: find(testing.subnormal(f), bool),
    "testing.near_tie": lambda f: find(testing.near_tie(f), bool),
    "testing.near_overflow": lambda f: find(testing.near_overflow(f), bool),
    "testing.arrays": lambda f: find(testing.arrays(f, 2), lambda a: a[0] > 1).tolist(),
}


@pytest.mark.parametrize("name", ENTRANCES)
def test_a_name_is_as_good_as_the_format(name):
    enter = ENTRANCES[name]
    expected = enter(fp.BINARY16)
    assert enter("binary16") == enter("FP16") == enter("half") == expected
    with pytest.raises(ValueError, match=r"='binry16' is not known\. Did you mean 'binary16'\?"):
        enter("binry16")


@pytest.mark.parametrize("name", [n for n in ENTRANCES if n not in ("encode", "decode")])
def test_scales_are_no_numbers(name):
    with pytest.raises(TypeError, match=r"e8m0'?.* is (a scale format without|no format)"):
        ENTRANCES[name]("e8m0")


def test_formats_of_blocks_have_names():
    named = fp.Block("mine", "e2m1fn", "ue4m3", tensor_scale="single", scale_rule="two_level")
    assert named == fp.Block(
        "mine", fp.E2M1FN, fp.UE4M3, tensor_scale=fp.BINARY32, scale_rule="two_level"
    )
    for name in ("element", "scale", "tensor_scale"):
        formats = {"element": "e2m1fn", "scale": "ue4m3", "tensor_scale": "single", name: "e8m"}
        with pytest.raises(ValueError, match=rf"^{name}='e8m' is not known"):
            fp.Block("mine", scale_rule="two_level", **formats)


def test_a_unit_is_public_and_its_formats_have_names():
    assert unit("bf16") == unit(fp.BFLOAT16)
    assert isinstance(find_unit(UNIT), fp.MatrixUnit)


def test_memory_is_not_a_format():
    half = fp.Context("half")
    for fmt in (fp.BINARY32, "binary32"):
        with pytest.raises(TypeError, match=r"out=binary32 is a format; .* is to=binary32"):
            half.matmul(*operands(), UNIT, out=fmt)
        with pytest.raises(TypeError, match="out= is memory for the result"):
            half.add(1.0, half.array(2.0), out=fmt)
