"""Quantisers against torchao on the CPU, where it is installed (differential).

Run in an environment with torch and torchao 0.18. Rows in which that version leaves its own
description are named below, with what it gives.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import fpsim as fp
from fpsim.block_layouts import from_tiles, from_torchao, scales_shape, to_tiles, to_torchao
from fpsim.records.blocks import find_block
from tests.fpsim.elementwise.blocks.test_quantise import adversarial
from tests.tiers import pick

torch = pytest.importorskip("torch", reason="torch is not installed; make test-torch")
pytest.importorskip("torchao", reason="torchao is not installed")

MODES = ("floor", "ceil", "even", "rceil")
BLOCKS = ("mxfp8", "mxfp8-e5m2", "mxfp4")


def elements(name: str) -> object:
    return {
        "mxfp8": torch.float8_e4m3fn, "mxfp8-e5m2": torch.float8_e5m2,
        "mxfp4": torch.float4_e2m1fn_x2,
    }[name]


def of_torchao(x: np.ndarray, name: str, mode: str) -> tuple[np.ndarray, np.ndarray]:
    from torchao.prototype.mx_formats.config import ScaleCalculationMode
    from torchao.prototype.mx_formats.mx_tensor import to_mx

    scale, data = to_mx(
        torch.from_numpy(x), elements(name), 32, ScaleCalculationMode(mode)
    )[:2]
    codes = data.view(torch.uint8).numpy().reshape(len(x), -1)
    return scale.view(torch.uint8).numpy().reshape(len(x), -1), codes


def finite(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    x = adversarial(rng, shape)
    return np.where(np.isfinite(x), x, np.float32(3))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", BLOCKS)
def test_mx_is_torchaos(name, mode):
    rng = np.random.default_rng(1)
    for _ in range(pick(4, 40, 400)):
        x = finite(rng, (64, 128))
        block = replace(find_block(name), scale_rule=mode)
        q = fp.quantize(x, block)
        scales, codes = of_torchao(x, name, mode)
        np.testing.assert_array_equal(q.scales, scales)
        # Under code 0, which is 2**-127, torchao 0.18 divides by 2**-126: half of each element. Its
        # rceil makes zeros of them.
        usual = scales > 0
        per = codes.shape[1] // scales.shape[1]
        same = (codes == q.codes).reshape(*scales.shape, per).all(-1)
        assert same[usual].all()
        assert usual.mean() > 0.5


def test_nvfp4_is_torchaos():
    from torchao.prototype.mx_formats.nvfp4_tensor import (
        nvfp4_quantize,
        per_tensor_amax_to_scale,
    )

    rng = np.random.default_rng(2)
    for k in range(pick(4, 40, 400)):
        x = (rng.standard_normal((64, 128)) * np.exp2(rng.integers(-9, 9, (64, 1)) * (k % 3)))
        x = x.astype(np.float32)
        of_tensor = per_tensor_amax_to_scale(torch.tensor(np.abs(x).max()))
        scale, data = nvfp4_quantize(torch.from_numpy(x), 16, of_tensor)
        q = fp.quantize(x, "nvfp4-eps")
        np.testing.assert_array_equal(q.scales, scale.view(torch.uint8).numpy().reshape(64, -1))
        np.testing.assert_array_equal(q.codes, data.view(torch.uint8).numpy().reshape(64, -1))
        assert np.float32(q.tensor_scale) == of_tensor.numpy()


def test_tiles_are_torchaos():
    from torchao.prototype.mx_formats.utils import from_blocked, to_blocked

    scales = np.random.default_rng(3).integers(0, 255, (200, 9)).astype(np.uint8)
    tiles = to_tiles(scales)
    blocked = to_blocked(torch.from_numpy(scales), use_triton_kernel=False)
    np.testing.assert_array_equal(tiles, blocked.numpy().reshape(-1))
    np.testing.assert_array_equal(from_tiles(tiles, scales.shape), scales)
    np.testing.assert_array_equal(from_blocked(blocked, 200, 9).numpy(), scales)


def test_there_and_back_and_by_dlpack():
    x = np.random.default_rng(4).standard_normal((160, 256)).astype(np.float32)
    for name in ("mxfp8", "mxfp4", "nvfp4"):
        q = fp.quantize(x, name)
        for tiles in (False, True):
            held = to_torchao(q, tiles)
            codes, scale = (torch.from_dlpack(held[key]) for key in ("qdata", "scale"))
            back = from_torchao(codes, scale, name, held["per_tensor_scale"], tiles)
            np.testing.assert_array_equal(back.codes, q.codes)
            np.testing.assert_array_equal(back.scales, q.scales)
            np.testing.assert_allclose(back.values, q.values, rtol=2.0**-22)
        assert scales_shape(q.shape, q.block) == q.scales.shape
