"""float8 tensors hold formats of the machine (exhaustive, differential)."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim import BINARY32, E4M3FN, E5M2, F143, F152, Context, Flags
from tests.ipu.frontends.torch.framework import machine, torch

KINDS = {
    torch.float8_e4m3fn: E4M3FN, torch.float8_e5m2: E5M2, torch.float8_e4m3fnuz: F143,
    torch.float8_e5m2fnuz: F152,
}
PARAMETERS = pytest.mark.parametrize(("dtype", "fmt"), KINDS.items(), ids=lambda x: str(x))
HYPOTHETICAL = {"target": "hypothetical"}


def halves():
    """Every finite number of binary16 as binary32."""
    codes = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    return torch.from_numpy(codes[np.isfinite(codes)].astype(np.float32))


def codes_of(x):
    return x.view(torch.uint8).numpy()


@PARAMETERS
@pytest.mark.parametrize("how", ["to", "copy_", "of data"])
@pytest.mark.parametrize("nanoo", [False, True])
def test_casts_are_the_machines(dtype, fmt, how, nanoo):
    x = halves()
    context = Context(fmt, overflow=None if nanoo else "saturate")
    expected = context.array(Context(BINARY32).array(x.numpy()))
    with machine("f32", count=True, nanoo=nanoo, **HYPOTHETICAL) as session:
        source = x if how == "of data" else x * 1.0
        if how == "copy_":
            result = torch.zeros(len(x), dtype=dtype)
            result.copy_(source)
        else:
            result = source.to(dtype)
    np.testing.assert_array_equal(codes_of(result), expected.codes())
    assert session.device.status.oflo == bool(context.flags & Flags.OVERFLOW)
    rows = [d for row in session.report()["layers"].values() for d in row.values()]
    assert sum(r["OVERFLOW"] for r in rows) > 0
    assert sum(r["results"] for r in rows) >= len(x)
    assert session.report()["native"] == 0


@PARAMETERS
@pytest.mark.parametrize("policy", ["f32", "f16", "e5m2"])
def test_casts_round_stochastically(dtype, fmt, policy):
    x = torch.full((4096,), 1.0 + 2.0**-6)
    with machine(policy, sr=True, **HYPOTHETICAL):
        y = (x.half() * 1.0).to(dtype).float()
    assert set(y.tolist()) == {1.0, 1.0 + 2.0 ** (1 - fmt.precision)}


@PARAMETERS
def test_values_come_back_exactly(dtype, fmt):
    tensor = torch.arange(256, dtype=torch.uint8).view(dtype)
    with machine("f32", **HYPOTHETICAL) as session:
        wide = tensor.float() * 1.0
        half = tensor.to(torch.bfloat16)
    expected = tensor.float()
    torch.testing.assert_close(wide, expected, rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(half.float(), expected, rtol=0, atol=0, equal_nan=True)
    assert session.report()["host"]["elements"] == 0


def test_a_machine_without_the_format_says_which_has_it():
    with (
        machine(),
        pytest.raises(ValueError, match=r"not in e4m3fn; choose .*hypo"),
    ):
        torch.ones(3).to(torch.float8_e4m3fn)


def test_the_ipus_quarters_are_tensors_of_eight_bits():
    with machine("f16", target="mk2-fp8") as session:
        x = (torch.tensor([300.0, 1.0]) * 1.0).to(torch.float8_e4m3fnuz)
    assert x.float().tolist() == [240.0, 1.0]
    assert session.device.status.oflo


def test_a_product_of_eight_bits_is_refused():
    x = torch.ones(16, 16).to(torch.float8_e4m3fn)
    with machine("f32", **HYPOTHETICAL), pytest.raises(NotImplementedError, match="has no rule"):
        torch._scaled_mm(x, x.t(), torch.tensor(1.0), torch.tensor(1.0), out_dtype=torch.bfloat16)


def test_scales_are_converted_on_the_host():
    with machine("f32", **HYPOTHETICAL) as session:
        x = torch.tensor([1.0, 4.0]).to(torch.float8_e8m0fnu)
        back = x.float()
    assert back.tolist() == [1.0, 4.0]
    assert session.report()["native"] == 0
    assert session.report()["host"]["elements"] > 0


@pytest.mark.parametrize("in_place", [False, True])
def test_a_float64_tensor_is_cast_by_the_machine_too(in_place):
    """As from float32: saturation with OVERFLOW, and stochastic rounding."""
    wide = torch.tensor([464.1, 1e6, *[1.0625] * 64], dtype=torch.float64)
    with machine("f32", target="hypothetical", sr=True, count=True) as session:
        if in_place:
            narrow = torch.empty(len(wide), dtype=torch.float8_e4m3fn)
            narrow.copy_(wide)
        else:
            narrow = wide.to(torch.float8_e4m3fn)
        values = narrow.float()
    assert values[:2].tolist() == [448, 448]
    assert sorted(set(values[2:].tolist())) == [1, 1.125]
    assert [row["flag"] for row in session.report()["first"]] == ["OVERFLOW"]
