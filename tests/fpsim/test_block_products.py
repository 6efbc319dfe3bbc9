"""Products of blocks through their units against an oracle in fractions (differential, golden)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import fpsim as fp
from fpsim.block_layouts import from_codes
from fpsim.judge.oracle.random import product_word
from fpsim.judge.oracle.rounding import encode, round_exact
from fpsim.judge.oracle.scaled_units import ScaledRow, scaled_output
from fpsim.linalg import matmul
from fpsim.records.blocks import Block, find_block
from fpsim.records.formats import UE4M3, Format
from fpsim.records.units import SCALED_UNITS, find_unit
from tests.tiers import pick

FP32 = fp.Context("binary32")

#: Blocks of a unit's operands: what either may be.
OPERANDS = {
    "MXF8": [find_block(n) for n in ("mxfp8", "mxfp8-e5m2", "mxfp6", "mxfp6-e3m2", "mxfp4")],
    "MXF4": [find_block("mxfp4")],
    "NVF4": [replace(find_block("nvfp4"), tensor_scale=None)],
    "E4M3X128": [find_block("e4m3-128"), replace(find_block("e4m3-128"), element=fp.E5M2)],
}


def operands(unit: str) -> list[Block]:
    return next(blocks for name, blocks in OPERANDS.items() if f"_{name}_" in unit)


def random_codes(
    rng: np.random.Generator, block: Block, rows: int, depth: int, kind: str
) -> tuple[np.ndarray, np.ndarray]:
    """Codes (one in a byte) and scales of rows; finite but for the kind `special`."""
    codes = rng.integers(0, block.element.n_codes, (rows, depth)).astype(np.uint8)
    body = (1 << (block.element.bits - 1)) - 1
    top = int(fp.encode(block.element.max, block.element))
    if kind != "special":
        codes = np.where((codes & body) > top, codes & ~np.uint8(body) | np.uint8(top), codes)
    if kind == "sparse":
        codes[rng.random(codes.shape) < 0.8] = 0
    if kind == "cancel":
        codes[:, 1::2] = codes[:, ::2] ^ np.uint8(1 << (block.element.bits - 1))
    blocks = (rows, depth // block.elements)
    spread = {"wide": 60, "far": 250}.get(kind, 6)
    if isinstance(block.scale, Format):
        scales = np.exp2(rng.integers(-spread // 4, spread // 4 + 1, blocks))
        scales = (scales * rng.uniform(1, 2, blocks)).astype(np.float32)
        return codes, scales
    if block.scale == UE4M3:
        low, high = (0, 127) if kind in ("wide", "far") else (40, 70)
        scales = rng.integers(low, high, blocks).astype(np.uint8)
        scales[rng.random(blocks) < 0.05] |= 0x80  # the sign is not looked at
    else:
        scales = np.clip(127 + rng.integers(-spread, spread + 1, blocks), 0, 254).astype(np.uint8)
    if kind == "special":
        scales[rng.random(blocks) < 0.02] = 0x7F if block.scale == UE4M3 else 0xFF
    return codes, scales


def packed(codes: np.ndarray, block: Block) -> np.ndarray:
    return codes[:, ::2] | codes[:, 1::2] << 4 if block.packed else codes


def masked(scales: np.ndarray, block: Block) -> np.ndarray:
    return scales & 0x7F if block.scale == UE4M3 else scales


def check(unit_name: str, kind: str, seed: int, shape: tuple[int, int], depth: int) -> int:
    rng, unit = np.random.default_rng([seed, len(kind)]), find_unit(unit_name)
    blocks = operands(unit_name)
    left, right = (blocks[rng.integers(len(blocks))] for _ in range(2))
    a, sa = random_codes(rng, left, shape[0], depth, kind)
    b, sb = random_codes(rng, right, shape[1], depth, kind)
    start = (rng.standard_normal(shape) * np.exp2(rng.integers(-60, 40, shape))).astype(np.float32)
    start[rng.random(shape) < 0.4] = 0
    x = from_codes(packed(a, left), sa, left, (shape[0], depth), 1)
    y = from_codes(packed(b, right), sb, right, (depth, shape[1]), 0)
    context = fp.Context("binary32", count=True)
    result = matmul(x, y, unit, context=context, accumulator=context.wrap(start))
    codes = np.ascontiguousarray(result.values).view(np.uint32)
    flags = fp.Flags.NONE
    for i in range(shape[0]):
        for j in range(shape[1]):
            rows = (
                ScaledRow(left.element, a[i].tolist(), left.scale, masked(sa, left)[i].tolist()),
                ScaledRow(right.element, b[j].tolist(), right.scale, masked(sb, right)[j].tolist()),
            )
            datum, raised = scaled_output(unit, *rows, float(start[i, j]))
            flags |= raised
            expected = {
                "nan": 0x7FC00000, "infinite": 0x7F800000 | datum.sign << 31,
            }.get(datum.kind)
            if expected is None:
                expected = encode(datum.sign, datum.magnitude, fp.BINARY32)
            assert codes[i, j] == expected, (unit_name, kind, seed, i, j, left.name, right.name)
    assert context.flags == flags
    return codes.size


KINDS = ("usual", "sparse", "cancel", "wide", "far", "special")
#: Units whose loops differ; the others differ in a name.
FEW = [
    "B200_TC05_MXF8_F32", "B200_TC05_NVF4_F32", "B200_TC05_NVF4_F32.nonzero", "B200_TC05_MXF4_F32",
    "H100_E4M3X128_F32", "H100_E4M3X128_F32.cublas", "CDNA4_MXF8_F32", "CDNA4_MXF8_F32.down",
]


UNITS = pick(FEW, sorted(SCALED_UNITS), sorted(SCALED_UNITS))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("unit", UNITS)
def test_outputs_are_the_oracles(unit, kind):
    """The full tier takes many outputs of two kinds for each unit, few of the others."""
    is_long = (UNITS.index(unit) + KINDS.index(kind)) % 3 == 0
    few, many = ((3, 8), 24), ((24, 40), 700)
    shape, most = pick(few, many if is_long else few, ((24, 40), 4200))
    depth = 256 if "X128" in unit else 128
    outputs, seed = 0, 0
    while outputs < most:  # four calls an output, six kinds: deep has 10**5 calls
        outputs += check(unit, kind, seed, shape, depth)
        seed += 1


@pytest.mark.source("MMA-Sim c785138")
@pytest.mark.parametrize(("terms", "answer"), [
    ([(1, 1), (2**-9, 2**-9)], 1.0 + 2.0**-18),
    ([(256, 1), (2**-9, 2**-9)], 256.0),
    ([(448, 448), (-448, 448), (2**-9, 2**-9)], 0.0),
])
def test_known_sums_of_mxf8(terms, answer):
    a, b = (np.zeros(32) for _ in range(2))
    for k, (u, v) in enumerate(terms):
        a[k], b[k] = u, v
    block = replace(find_block("mxfp8"), scale_rule="ceil")
    ones = np.full((1, 1), 127, np.uint8)
    x, y = (from_codes(fp.encode(v, fp.E4M3FN).astype(np.uint8)[None], ones, block) for v in (a, b))
    assert float(FP32.matmul(x, y.T, "B200_TC05_MXF8_F32").values[0, 0]) == answer


@pytest.mark.source("MMA-Sim c785138")
def test_a_group_of_zeros_with_large_scales_counts_unless_it_does_not():
    codes = np.zeros((1, 64), np.uint8)
    codes[0, 0] = 1  # 0.5 in a group of scale 2**-9 each
    scales = np.uint8([[1, 0x7E, 0x30, 0x30]])
    block = replace(find_block("nvfp4"), tensor_scale=None)
    x = from_codes(packed(codes, block), scales, block)
    results = [
        float(FP32.matmul(x, x.T, f"B200_TC05_NVF4_F32{preset}").values[0, 0])
        for preset in ("", ".nonzero")
    ]
    assert results == [0.0, 2.0**-20]


def test_the_last_factor_and_the_last_rounding():
    rng = np.random.default_rng(4)
    a, b = rng.standard_normal((5, 64)), rng.standard_normal((64, 9))
    x, y = fp.quantize(a, "nvfp4"), fp.quantize(b, "nvfp4", axis=0)
    plain = replace(find_block("nvfp4"), tensor_scale=None)
    bare = [from_codes(q.codes, q.scales, plain, q.shape, q.axis) for q in (x, y)]
    unit = "B200_TC05_NVF4_F32"
    sums = FP32.matmul(*bare, unit).values
    factor = np.float32(x.tensor_amax) * np.float32(y.tensor_amax)
    factor = factor * (np.float32(1) / np.float32(36 * 448**2))
    scaled = sums * factor
    np.testing.assert_array_equal(FP32.matmul(x, y, unit).values, scaled)
    half = fp.Context("bfloat16", rounding=fp.SR(bits=8), seed=3)
    result = half.matmul(x, y, unit)
    assert half.operation == 1
    for i, value in enumerate(scaled.reshape(-1).tolist()):
        code, _ = round_exact(
            value, fp.BFLOAT16, fp.SR(bits=8), word=product_word(3, 0, i, 1, 8)
        )
        assert int(result.codes().reshape(-1)[i]) == code
    shrunk = [fp.quantize(v, "mxfp4-34", axis=i) for v, i in ((a, 1), (b, 0))]
    product = FP32.matmul(*shrunk, "B200_TC05_MXF4_F32").values
    exact = shrunk[0].values @ shrunk[1].values
    np.testing.assert_allclose(product, exact, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("threads", [1, 3])
def test_threads_and_neighbours_change_nothing(threads):
    rng = np.random.default_rng(8)
    a, b = rng.standard_normal((70, 256)), rng.standard_normal((256, 75))
    before = fp.get_threads()
    try:
        for block, unit in (("mxfp8", "B200_TC05_MXF8_F32"), ("nvfp4-2d", "B200_TC05_NVF4_F32")):
            if block == "nvfp4-2d":
                a, b = a[:64], b[:, :64]
            x, y = fp.quantize(a, block, axis=1), fp.quantize(b, block, axis=0)
            fp.set_threads(1)
            whole = FP32.matmul(x, y, unit).values
            fp.set_threads(threads)
            np.testing.assert_array_equal(FP32.matmul(x, y, unit).values, whole)
            if block == "mxfp8":
                part = from_codes(y.codes[3:20], y.scales[3:20], y.block, (256, 17), 0)
                np.testing.assert_array_equal(FP32.matmul(x, part, unit).values, whole[:, 3:20])
    finally:
        fp.set_threads(before)


def test_k_that_is_no_whole_call_is_filled_up():
    rng = np.random.default_rng(1)
    block = replace(find_block("nvfp4"), tensor_scale=None)
    x = fp.quantize(rng.standard_normal((3, 96)), block)
    y = fp.quantize(rng.standard_normal((96, 5)), block, axis=0)
    result = FP32.matmul(x, y, "B200_TC05_NVF4_F32").values
    rows = [
        [ScaledRow(fp.E2M1FN, np.stack([q.codes[i] & 15, q.codes[i] >> 4], -1).ravel().tolist(),
                   UE4M3, q.scales[i].tolist()) for i in range(len(q.codes))]
        for q in (x, y)
    ]
    unit = find_unit("B200_TC05_NVF4_F32")
    for i, left in enumerate(rows[0]):
        for j, right in enumerate(rows[1]):
            assert float(scaled_output(unit, left, right, 0.0)[0].value) == result[i, j]


def test_empty_products():
    block = find_block("mxfp8")
    for m, k, n in ((0, 32, 4), (4, 0, 3), (2, 64, 0)):
        x = fp.quantize(np.ones((m, k)), block)
        y = fp.quantize(np.ones((k, n)), block, axis=0)
        result = FP32.matmul(x, y, "B200_TC05_MXF8_F32")
        assert result.shape == (m, n)
        assert (result.values == 0).all()


BAD = {
    "axis": (lambda x, y: FP32.matmul(x, x, "B200_TC05_MXF8_F32"), ValueError, "along axis 1"),
    "depth": (
        lambda x, y: FP32.matmul(x, fp.quantize(np.ones((64, 2)), "mxfp8", axis=0),
                                 "B200_TC05_MXF8_F32"), ValueError, "K must agree"),
    "unit": (lambda x, y: FP32.matmul(x, y, "A100_F16_F32"), TypeError, "takes numbers"),
    "none": (lambda x, y: FP32.matmul(x, y), ValueError, "name one"),
    "element": (lambda x, y: FP32.matmul(x, y, "B200_TC05_NVF4_F32"), TypeError, "elements of"),
    "scale": (
        lambda x, y: FP32.matmul(
            fp.quantize(np.ones((2, 32)), "nvfp4"), fp.quantize(np.ones((32, 2)), "nvfp4", axis=0),
            "B200_TC05_MXF4_F32"), TypeError, "for every 32 elements"),
    "array": (
        lambda x, y: FP32.matmul(x, FP32.array(np.ones((32, 2))), "B200_TC05_MXF8_F32"), TypeError,
        "takes blocks"),
    "numbers": (
        lambda x, y: matmul(*[fp.Context("e4m3fn").array(np.ones((32, 32)))] * 2,
                            "B200_TC05_MXF8_F32"), TypeError, "takes blocks along K"),
    "context": (lambda x, y: matmul(x, y, "B200_TC05_MXF8_F32"), ValueError, "name one: context"),
    "wide": (lambda x, y: fp.Context("binary64").matmul(x, y, "B200_TC05_MXF8_F32"), ValueError,
             "narrower than the result in binary64"),
    "fused": (lambda x, y: FP32.matmul(x, y, "B200_TC05_MXF8_F32", fused=True), ValueError,
              "fused=True goes with Arrays"),
    "choice": (lambda x, y: FP32.matmul(x, y, "B200_TC05_MXF8_F32", scale=3), ValueError,
               "no choice of a product of blocks"),
    "dimensions": (
        lambda x, y: FP32.matmul(fp.quantize(np.ones(32), "mxfp8"), y, "B200_TC05_MXF8_F32"),
        ValueError, "takes matrices"),
    "accumulator": (
        lambda x, y: FP32.matmul(x, y, "B200_TC05_MXF8_F32", accumulator=FP32.array([1.0])),
        ValueError, "accumulator has shape"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_operands_are_refused_in_a_sentence(name):
    call, error, text = BAD[name]
    x = fp.quantize(np.ones((2, 32)), "mxfp8")
    y = fp.quantize(np.ones((32, 2)), "mxfp8", axis=0)
    with pytest.raises(error, match=text):
        call(x, y)
