"""Quantisers against an oracle in exact fractions (differential, corners)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

import fpsim as fp
from fpsim.judge.oracle.blocks import amax, block_scale, element_code
from fpsim.judge.oracle.random import elementwise_word
from fpsim.records.blocks import BLOCKS, SCALE_RULES, Block, find_block
from fpsim.records.formats import UE5M3
from tests.tiers import pick


def _rules(name: str, scales: str, **changes: object) -> dict[str, Block]:
    block = find_block(name)
    rules = [rule for rule, row in SCALE_RULES.items() if row.scales == scales]
    return {f"{name} {rule}": replace(block, scale_rule=rule, **changes) for rule in rules}


#: One of each element, rule and kind of scale.
CASES = {
    **{name: block for name, block in BLOCKS.items() if None not in block.shape},
    **_rules("mxfp8", "power"),
    **_rules("mxfp4", "power", infinite="saturate"),
    **_rules("e4m3-128", "factor", shape=(1, 16)),
    "nvfp4 mse46": replace(find_block("nvfp4-46"), scale_rule="mse46"),
    "nvfp4 own": replace(find_block("nvfp4"), tensor_scale=None, infinite="nan"),
    "ue5m3 eps": replace(find_block("nvfp4-eps"), scale=UE5M3),
    "short": replace(find_block("mxfp8"), shape=(1, 8)),
    "odd": replace(find_block("mxfp6"), shape=(1, 20)),
    "headroom": replace(find_block("mxfp4"), headroom=1.125, scale_rule="rceil"),
}


def adversarial(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """All binades, ties, subnormals, zeros of both signs; rows with few infinities and NaN."""
    kinds = rng.integers(0, 6, (*shape[:-1], 1))
    spread = np.array([1, 8, 30, 250, 2, 12])[kinds]
    centre = np.array([0, -120, 100, -10, 126, -130])[kinds]
    exponent = np.clip(centre + rng.integers(-125, 125, shape) * spread // 250, -149, 127)
    x = rng.integers(-256, 257, shape) * np.exp2(exponent - 8.0)
    fine = rng.random(shape) < 0.3
    x = np.where(fine, rng.standard_normal(shape) * np.exp2(exponent - 2.0), x)
    x = x.astype(np.float32)
    x[rng.random(shape) < 0.05] = -0.0
    special, rare = rng.random(shape), rng.random((*shape[:-1], 1)) < 0.1
    x = np.where(rare & (special < 0.02), np.float32(np.inf), x)
    return np.where(rare & (special > 0.99), np.float32(np.nan), x)


def expected(
    x: np.ndarray, block: Block, rounding: fp.Rounding, word_of: Callable[[int], int]
) -> tuple[np.ndarray, np.ndarray]:
    """Scales and codes (one in a byte) of a matrix by the oracle."""
    rows, columns = x.shape
    tall, wide = block.shape
    tensor = amax(x.reshape(-1).tolist()) if block.tensor_scale else 1.0
    codes = np.empty(x.shape, np.uint8)
    scales = np.empty((rows // tall, columns // wide))
    for i in range(rows // tall):
        for j in range(columns // wide):
            part = slice(i * tall, (i + 1) * tall), slice(j * wide, (j + 1) * wide)
            numbers = x[part].reshape(-1).tolist()
            scales[i, j], factor = block_scale(numbers, block, tensor, rounding)
            for place, number in enumerate(numbers):
                r, c = i * tall + place // wide, j * wide + place % wide
                word = word_of(r * columns + c)
                codes[r, c] = element_code(number, factor, block, rounding, word)
    return scales, codes


def unpacked(q: fp.BlockArray) -> np.ndarray:
    if not q.block.packed:
        return q.codes
    return np.stack([q.codes & 15, q.codes >> 4], -1).reshape(*q.codes.shape[:-1], -1)


def check(x: np.ndarray, block: Block, rounding: fp.Rounding, seed: int = 5) -> None:
    r = rounding.random_bits(block.element)
    scales, codes = expected(
        x, block, rounding, lambda i: elementwise_word(seed, 0, i, r) if r else 0
    )
    for flags in (False, True):
        q = fp.quantize(x, block, rounding=rounding, seed=seed, flags=flags)
        np.testing.assert_array_equal(q.scales.astype(float), scales)
        np.testing.assert_array_equal(unpacked(q), codes)


@pytest.mark.parametrize("name", CASES)
def test_scales_and_codes_are_the_oracles(name):
    block = CASES[name]
    rng = np.random.default_rng(len(name))
    tall, wide = block.shape
    for _ in range(pick(1, 4, 40)):
        rows = tall if tall > 1 else pick(6, 12, 12)
        x = adversarial(rng, (rows, wide if tall * wide > 1000 else 2 * wide))
        if rng.random() < 0.7:  # most tensors are finite, or one NaN would decide all
            x = np.where(np.isfinite(x), x, np.float32(0))
        check(x, block, fp.RNE)


ROUNDINGS = [
    fp.SR(bits=8), fp.SR(bits=20), fp.SR(bits=4, residual="half"), fp.SR_EQUAL, fp.RTZ, fp.RNA,
    fp.RTP,
]


@pytest.mark.parametrize("rounding", ROUNDINGS, ids=repr)
@pytest.mark.parametrize("name", ["nvfp4", "mxfp8", "mxint8", "mxfp8-e5m2"])
def test_every_rounding_of_elements(name, rounding):
    rng = np.random.default_rng(7)
    for _ in range(pick(1, 3, 30)):
        x = adversarial(rng, (4, 64))
        check(np.where(np.isfinite(x), x, np.float32(1)), find_block(name), rounding)


def _products(x: np.ndarray, q: fp.BlockArray) -> np.ndarray:
    """Numbers times factors, these again from what is stored."""
    scale = q.scale_values.astype(np.float32)
    largest = np.finfo(np.float32).max
    with np.errstate(divide="ignore", over="ignore", under="ignore"):
        of_tensor = np.float32(1)
        if q.block.tensor_scale is not None:
            of_tensor = np.minimum(np.float32(2688) / np.abs(x).max(), largest)
        factor = np.minimum(np.float32(1) / (scale * (np.float32(1) / of_tensor)), largest)
        return (x.reshape(*factor.shape, -1) * factor[..., None]).reshape(x.shape)


@pytest.mark.parametrize("rounding", [fp.RNE, fp.SR(bits=8)], ids=repr)
@pytest.mark.parametrize("name", ["mxfp4", "mxfp8", "nvfp4", "mxint8", "mxfp6-e3m2"])
def test_flags_are_those_of_the_conversion(name, rounding):
    rng = np.random.default_rng(11)
    block, x = find_block(name), adversarial(rng, (16, 128))
    x = np.where(np.isfinite(x), x, np.float32(2))
    random = rng.integers(0, 256, x.shape)
    options = {"random": random} if rounding.stochastic else {}
    q = fp.quantize(x, block, rounding=rounding, flags=True, **options)
    context = fp.Context(
        block.element, rounding=rounding, overflow="saturate", infinite_input="saturate",
        bits=fp.Replay([random]) if rounding.stochastic else None, count=True,
    )
    values = context.array(_products(x, q)).values
    np.testing.assert_array_equal(q.element_values, values)
    row, counts = context.counts["", "convert"], q.counts()
    for flag in ("INEXACT", "UNDERFLOW", "OVERFLOW", "INVALID"):
        assert row[flag] == counts[flag], flag
    assert q.flags == context.flags
    blocks = (*q.block_flags.shape, block.elements)
    over = (q.element_flags & fp.Flags.OVERFLOW) != 0
    assert (((q.block_flags & 1) != 0) == over.reshape(blocks).any(-1)).all()
    flushed = (values == 0) & (x != 0)
    assert (((q.block_flags & 2) != 0) == flushed.reshape(blocks).any(-1)).all()


@pytest.mark.parametrize("name", ["nvfp4", "mxfp8", "nvfp4-2d", "mxfp4-34", "e4m3-128"])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_any_axis_takes_the_bits_of_c_order(name, axis):
    rng = np.random.default_rng(axis)
    shape = [16, 16, 16]
    shape[axis] = 128
    x, random = rng.standard_normal(shape).astype(np.float32), rng.integers(0, 256, shape)
    mode = fp.SR(bits=8)
    q = fp.quantize(x, name, axis=axis, rounding=mode, random=random)
    axes = [*(i for i in range(3) if i != axis), axis]
    turned = [np.ascontiguousarray(v.transpose(axes)) for v in (x, random)]
    moved = fp.quantize(turned[0], name, rounding=mode, random=turned[1])
    np.testing.assert_array_equal(q.codes, moved.codes)
    np.testing.assert_array_equal(q.scales, moved.scales)
    np.testing.assert_array_equal(q.values, moved.values.transpose(np.argsort(axes)))
    drawn = fp.quantize(x, name, axis=axis, rounding=mode, seed=9)
    random.reshape(-1)[:64] = [elementwise_word(9, 0, i, 8) >> 24 for i in range(64)]
    same = fp.quantize(x, name, axis=axis, rounding=mode, random=random)
    assert (drawn.values == same.values).reshape(-1)[:64].all()


def test_values_are_codes_times_scales():
    x = np.random.default_rng(0).standard_normal((128, 256)).astype(np.float32)
    for name, block in BLOCKS.items():
        q = fp.quantize(x, name)
        error = np.linalg.norm(q.values - x) / np.linalg.norm(x)
        assert error < {4: 0.2, 6: 0.06, 8: 0.06}[block.element.bits], name
        assert q.values.shape == x.shape


@pytest.mark.parametrize("threads", [1, 3])
def test_threads_and_layout_in_memory_change_nothing(threads):
    x = np.random.default_rng(2).standard_normal((1 << 10, 1 << 9)).astype(np.float32)
    wide = np.zeros((1 << 11, 1 << 10), np.float32)
    wide[::2, ::2] = x
    before = fp.get_threads()
    fp.set_threads(1)
    try:
        for block in ("nvfp4", "mxfp8", "nvfp4-2d"):
            options = {"rounding": fp.SR(bits=8), "seed": 1, "flags": True}
            fp.set_threads(1)
            q = fp.quantize(x, block, **options)
            fp.set_threads(threads)
            for layout in (x, wide[::2, ::2], np.asfortranarray(x)):
                same = fp.quantize(layout, block, **options)
                np.testing.assert_array_equal(q.codes, same.codes)
                np.testing.assert_array_equal(q.scales, same.scales)
                np.testing.assert_array_equal(q.element_flags, same.element_flags)
    finally:
        fp.set_threads(before)


def test_a_context_counts_quantize_as_one_operation():
    def context() -> fp.Context:
        return fp.Context("bfloat16", rounding=fp.SR(bits=8), seed=4)

    sr = context()
    x = sr.array(np.random.default_rng(1).standard_normal((4, 64)))
    q = sr.quantize(x, "nvfp4")
    assert sr.operation == 2
    again = context()
    again.operation = 1
    np.testing.assert_array_equal(again.quantize(x, "nvfp4").codes, q.codes)
    assert sr.flags & q.flags == q.flags
    nearest = sr.quantize(x, "nvfp4", rounding="RNE")
    assert sr.operation == 2
    assert nearest.element_flags is None


def test_a_trap_publishes_nothing():
    half = fp.Context("bfloat16", rounding=fp.SR(bits=8), traps=fp.Flags.OVERFLOW)
    half.traps = fp.Flags.NONE
    x = half.array(np.r_[1.0, 7.0, np.ones(30)])
    half.traps = fp.Flags.OVERFLOW
    n = half.operation
    with pytest.raises(fp.FloatingPointTrap) as trap:
        half.quantize(x, "mxfp4")
    assert trap.value.index == (1,)
    assert half.operation == n


def test_empty_arrays():
    for shape in ((0,), (0, 32), (4, 0), (2, 0, 32)):
        for name in ("mxfp8", "nvfp4", "e4m3-tensor", "e4m3-row"):
            if name == "e4m3-tensor" and len(shape) > 2:
                continue
            q = fp.quantize(np.zeros(shape, np.float32), name, flags=True)
            assert q.values.shape == shape
            assert q.codes.size == 0


def test_whole_axes():
    x = np.random.default_rng(5).standard_normal((6, 50)).astype(np.float32)
    q = fp.quantize(x, "e4m3-tensor")
    assert q.scales.shape == (1, 1)
    assert q.scales[0, 0] == np.float32(1) / (np.float32(448) / np.abs(x).max())
    rows = fp.quantize(x, "e4m3-row")
    assert rows.scales.shape == (6, 1)
    assert all(math.frexp(s)[0] == 0.5 for s in rows.scales.reshape(-1).tolist())


@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf, -0.0, 1e-45])
@pytest.mark.parametrize("name", [n for n, b in BLOCKS.items() if b.rows in (1, None)])
def test_one_special_number_in_a_block(name, special):
    block = BLOCKS[name]
    x = np.float32([special, 6.0, -0.25, *[0.1] * 29] * (4 if block.elements == 128 else 1))
    result = fp.quantize(x[None], block, axis=1)
    numbers = x[: block.elements].tolist()
    stored, factor = block_scale(numbers, block, amax(x.tolist()))
    np.testing.assert_array_equal(result.scales.reshape(-1)[0], stored)
    codes = result.codes[0]
    if block.packed:
        codes = np.stack([codes & 15, codes >> 4], axis=-1).reshape(-1)
    wanted = [element_code(v, factor, block, fp.RNE) for v in numbers]
    assert codes[: len(wanted)].tolist() == wanted


def test_a_nan_makes_a_factor_that_is_a_power_of_two_nan():
    x = np.array([[1.0, np.nan, 3.0, -2.0]], np.float32)
    q = fp.quantize(x, find_block("e4m3-row"))
    assert np.isnan(q.scales).all()
    assert (q.codes & 0x7F == 0x7F).all()
