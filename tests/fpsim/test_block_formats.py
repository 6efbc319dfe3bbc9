"""Block-scaled formats against published digests and known answers (golden)."""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace

import numpy as np
import pytest

import fpsim as fp
from fpsim.block_layouts import from_codes
from fpsim.records.blocks import find_block

RECIPES = pytest.mark.source(
    "TransformerEngine d0067d0 and torchao 36027d8, reproduced with numpy and ml_dtypes"
)


def standard_input() -> np.ndarray:
    """128 x 128 numbers over eleven binades, ties and zeros among them."""
    k = np.arange(16384, dtype=np.uint64) * np.uint64(2654435761) & np.uint64(0xFFFFFFFF)
    whole = (k >> np.uint64(16)).astype(np.int64) % 255 - 127
    power = (k >> np.uint64(8)).astype(np.int64) % 11 - 5
    return (whole / 64 * np.exp2(power)).astype(np.float32).reshape(128, 128)


def digest(array: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:12]


DIGESTS = [
    ("mxfp8", {}, "e55e449573b8", "e415d321bfe3"),
    ("mxfp8", {"scale_rule": "rceil"}, "74337fd9c90b", "55b5aa85adc6"),
    ("mxfp4", {}, "c5fdcdc67c97", "376df7d30779"),
    ("nvfp4", {}, "0bef801cd435", "c14309abf076"),
    ("nvfp4-eps", {}, "0bef801cd435", "37774e57c529"),
    ("nvfp4-46", {}, "a503d8406b90", "06a653e8e89c"),
    ("e4m3-128", {"scale_rule": "amax"}, "50d51fdc1638", "06d46427dc28"),
]


@RECIPES
@pytest.mark.parametrize("flags", [False, True])
@pytest.mark.parametrize(("name", "changes", "scales", "codes"), DIGESTS)
def test_digests_of_scales_and_codes(name, changes, scales, codes, flags):
    x = standard_input()
    assert digest(x) == "8de9292f1e0a"
    q = fp.quantize(x, replace(find_block(name), **changes), flags=flags)
    assert (digest(q.scales), digest(q.codes)) == (scales, codes)


def nibbles(q: fp.BlockArray) -> list[int]:
    return np.stack([q.codes & 15, q.codes >> 4], -1).reshape(-1).tolist()


TIES = [6, 0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5]


@RECIPES
def test_ties_flip_by_the_order_of_quotients():
    x = np.r_[TIES, np.zeros(8)]
    assert nibbles(fp.quantize(x, "nvfp4"))[:8] == [7, 0, 2, 2, 4, 4, 6, 6]
    assert nibbles(fp.quantize(x, "nvfp4-eps"))[:8] == [7, 0, 1, 2, 3, 4, 5, 6]
    beside = fp.quantize(np.r_[x, 1000, np.zeros(15)], "nvfp4")
    assert beside.scales[0] == 0x43
    assert nibbles(beside)[:8] == [7, 0, 1, 2, 3, 4, 5, 6]


@RECIPES
def test_a_small_block_beside_a_large_tensor_has_a_zero_scale():
    q = fp.quantize(np.r_[np.ones(16), 1e6, np.zeros(15)], "nvfp4", flags=True)
    assert q.scales[0] == 0
    assert nibbles(q)[:16] == [7] * 16
    assert (q.values[:16] == 0).all()
    assert fp.BlockFlags(int(q.block_flags[0])) & fp.BlockFlags.SCALE_UNDERFLOW


SCALE_CODES = {
    "mxfp8": {
        448.0: (127, 127, 127, 128), 449.0: (127, 127, 128, 128), 1.9375: (119, 120, 120, 120),
        1.9: (119, 119, 120, 120),
    },
    "mxfp4": {
        6.0: (127, 127, 127, 128), 6.1: (127, 127, 128, 128), 7.0: (127, 128, 128, 128),
        3.9999998: (126, 127, 127, 127),
    },
}


@RECIPES
@pytest.mark.parametrize("name", SCALE_CODES)
def test_four_rules_for_one_exponent(name):
    for amax, codes in SCALE_CODES[name].items():
        for rule, code in zip(("floor", "even", "rceil", "ceil"), codes, strict=True):
            x = np.zeros(32)
            x[5] = amax
            q = fp.quantize(x, replace(find_block(name), scale_rule=rule))
            assert q.scales.tolist() == [code], (amax, rule)


@RECIPES
def test_stochastic_ups_of_all_256_draws():
    values = [0.1, 1.1, 2.3, 2.9, 3.1, 4.1, 5.0, 5.9]
    x = np.tile(np.r_[values, 6.0, np.zeros(7)].astype(np.float32), (256, 1))
    random = np.tile(np.arange(256)[:, None], (1, 16))
    # Without a scale of the tensor the factor is exactly 1.
    block = replace(find_block("nvfp4"), tensor_scale=None)
    q = fp.quantize(x, block, rounding=fp.SR(bits=8), random=random)
    down = fp.quantize(x, block, rounding="RTZ").values
    ups = (q.values > down).sum(axis=0)[:8]
    assert ups.tolist() == [51, 51, 76, 230, 25, 12, 128, 243]


def test_square_blocks_are_those_of_the_transposed_matrix():
    w = np.random.default_rng(3).standard_normal((64, 96)).astype(np.float32)
    along, turned = fp.quantize(w, "nvfp4-2d"), fp.quantize(np.ascontiguousarray(w.T), "nvfp4-2d")
    assert (turned.values == along.values.T).all()
    assert along.T.axis == 0
    assert (along.T.along(1).codes == turned.codes).all()
    plain, other = fp.quantize(w, "nvfp4"), fp.quantize(w, "nvfp4", axis=0)
    assert (plain.values != other.values).mean() > 0.5


@pytest.mark.parametrize("factor", [0.0, -1.0, 1e-60, 1e60, 2.0**-140, float("nan")])
def test_a_factor_that_binary32_or_its_inverse_does_not_hold_is_refused(factor):
    with pytest.raises(ValueError, match=re.escape(f"factor={factor} is out of range")):
        fp.quantize(np.ones((4, 32)), "e4m3-tensor", factor=factor)


@pytest.mark.parametrize(("name", "most"), [("mxfp6", 63), ("mxfp6-e3m2", 63)])
def test_codes_beyond_those_of_the_element_are_refused(name, most):
    scales = np.full((1, 1), 127, np.uint8)
    codes = np.full((1, 32), most, np.uint8)
    assert np.isfinite(from_codes(codes, scales, name).values).all()
    with pytest.raises(ValueError, match=f"codes reach {most + 1}; elements of {name} have 6 bits"):
        from_codes(codes + np.uint8(1), scales, name)


def test_numpy_is_told_what_to_take_of_blocks():
    with pytest.raises(TypeError, match=r"BlockArray of nvfp4; give numpy x\.values"):
        np.asarray(fp.quantize(np.ones(16), "nvfp4"))
