"""Products through units of other machines, and IEEE 754 elsewhere (differential, golden)."""

from __future__ import annotations

import numpy as np
import pytest

import fpsim as fp
from tests.ipu.frontends.torch.framework import machine, mlp, torch, train

hypothetical = pytest.importorskip("ipu.frontends.torch.hypothetical")


def matrices(fmt, seed=0):
    """Two matrices with values of a format, as float32 tensors."""
    random = np.random.default_rng(seed)
    shapes = ((5, 70), (70, 3))
    rounded = [fp.round_to(random.normal(size=s), fmt).astype(np.float32) for s in shapes]
    return [torch.from_numpy(x) for x in rounded]


@pytest.mark.parametrize(
    ("unit", "policy", "fmt", "out"),
    [
        ("V100_F16_F32", "f16", fp.BINARY16, fp.BINARY16),
        ("A100_TF32_F32", "c=tf32,out=f32", fp.TF32, fp.BINARY32),
        ("H100_E4M3_F32", "c=e4m3fn,out=f32", fp.E4M3FN, fp.BINARY32),
        ("B200_MMA_E5M2_F16", "c=e5m2,out=f16", fp.E5M2, fp.BINARY16),
    ],
)
def test_a_product_is_that_of_the_unit(unit, policy, fmt, out):
    x, y = matrices(fmt)
    context = fp.Context(fmt)
    a, b = (context.array(z.numpy()) for z in (x, y))
    expected = fp.linalg.matmul(a, b, unit, context=fp.Context(out)).values
    with machine(policy, target="hypothetical", unit=unit) as run:
        result = x @ y
    np.testing.assert_array_equal(result.numpy(), expected.astype(np.float32))
    assert [row["unit"] for row in run.report()["units"]] == [unit]
    assert "everything else by IEEE 754" in run.report()["note"]


def test_half_partials_choose_the_unit_that_has_them():
    x, y = matrices(fp.BINARY16)
    with machine("p=f16,c=f16,part=f16", target="hypothetical", unit="V100_F16_F32") as run:
        x @ y
    assert [row["unit"] for row in run.report()["units"]] == ["V100_F16_F16"]


def test_without_a_unit_a_product_is_a_chain_of_fused_multiply_adds():
    fmt = fp.Format.custom(5, 7)
    x, y = matrices(fmt)
    total = np.zeros((5, 3))
    for k in range(70):  # exact products; each sum of binary64 is rounded to binary32
        total = (np.outer(x[:, k].double(), y[k].double()) + total).astype(np.float32).astype(float)
    with machine("e5m6", target="hypothetical"):
        result = x @ y
    np.testing.assert_array_equal(result.numpy(), fp.round_to(total, fmt).astype(np.float32))


def test_everything_else_follows_ieee_754():
    big = torch.tensor([60000.0])
    with machine("f16", target="hypothetical", unit="V100_F16_F32"):
        assert torch.isinf(big + big)
        assert float(torch.tensor([2.0**-24]) * 1) == 2.0**-24
        assert torch.isinf(torch.ones(1) / torch.zeros(1))


def test_eight_bits_saturate_unless_overflow_is_not_a_number():
    x = torch.tensor([400.0])
    with machine("e4m3fn", target="hypothetical"):
        assert float(x + x) == 448
    with machine("e4m3fn", target="hypothetical", nanoo=True):
        assert torch.isnan(x + x)
    y = torch.tensor([50000.0])
    with machine("e5m2", target="hypothetical", nanoo=True):
        assert torch.isinf(y + y)


@pytest.mark.parametrize("policy", ["e5m6", "c=e4m3fn,out=f16", "c=e5m2,out=f32"])
def test_values_of_the_format_and_the_same_bits_in_two_runs(policy):
    def losses():
        net = mlp()
        with machine(policy, target="hypothetical", sr=True) as run:
            values = train(net, (6,), 3)
        output = run.policy.default.output
        for parameter in net.parameters():
            held = fp.round_to(parameter.grad.numpy(), output).astype(np.float32)
            np.testing.assert_array_equal(parameter.grad.numpy(), held)
        assert run.report()["native"] == run.report()["host"]["elements"] == 0
        return values

    assert losses() == losses()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"policy": "f32", "unit": "V100_F16_F32", "target": "hypothetical"},
         "takes binary16, and the policy .* multiplies in binary32; use policy='c=binary16"),
        ({"unit": "V100_F16_F32"}, "use target='hypothetical', whose products take any unit"),
        ({"policy": "c=e4m3fn"}, "target=mk2, which computes in .*, not in e4m3fn; use target="),
        ({"policy": "bf16"}, "not in bfloat16; use target='hypothetical'"),
        ({"policy": "fp8"}, "any format, or 'mk2-fp8'"),
        ({"unit": "V100_F16", "target": "hypothetical"}, "Did you mean 'V100_F16_F32'"),
    ],
)
def test_units_and_formats_that_do_not_fit_are_refused(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        machine(**options)
