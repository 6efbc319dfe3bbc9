"""Operations that round nothing: their results hold only numbers that were there (law)."""

from __future__ import annotations

import math

import pytest

from tests.ipu.frontends.torch.framework import machine, torch

exact = pytest.importorskip("ipu.frontends.torch.exact")
aten = torch.ops.aten


@pytest.mark.parametrize(
    "func",
    [aten.view.default, aten.t.default, aten.cat.default, aten.index.Tensor, aten.abs.default,
     aten.zeros_like.default, aten.gt.Scalar, aten.fill_.Scalar, aten.squeeze_.dim,
     aten._local_scalar_dense.default, aten.round.default],
)  # fmt: skip
def test_moves_selections_and_constants(func):
    assert exact.is_exact(func)


@pytest.mark.parametrize(
    "func",
    [aten.add.Tensor, aten.cos.default, aten.cumsum.default, aten.mm.default, aten.mean.default,
     aten.round.decimals, aten.div_.Tensor, aten.prod.default, aten.norm.Scalar],
)  # fmt: skip
def test_arithmetic_is_not_exact(func):
    assert not exact.is_exact(func)


def test_every_name_is_one_of_torch():
    missing = [
        name for name in exact.EXACT
        if not (hasattr(aten, name) or hasattr(aten, f"{name}_"))
    ]  # fmt: skip
    assert not missing


#: Of floating-point samples in which each number differs from every other.
CASES = {
    "sort": lambda x: x.sort(dim=0)[0], "topk": lambda x: x.topk(2)[0], "flip": lambda x: x.flip(0),
    "median": lambda x: x.median(dim=0)[0], "maximum": lambda x: torch.maximum(x, -x),
    "gather": lambda x: x.gather(1, torch.zeros(3, 2, dtype=torch.long)),
    "masked_select": lambda x: x[x > 0], "where": lambda x: torch.where(x > 0, x, -x),
    "pad": lambda x: torch.nn.functional.pad(x, (1, 1)), "tril": lambda x: x.tril(),
    "roll": lambda x: x.roll(1), "amax": lambda x: x.amax(0), "sign": lambda x: x * x.sign(),
    "upsample": lambda x: torch.nn.functional.interpolate(x[None, None], scale_factor=2),
    "max_pool": lambda x: torch.nn.functional.max_pool2d(x[None, None], 2),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_results_are_numbers_that_were_read(name):
    x = torch.linspace(-1.0, 2.0, 12).reshape(3, 4)
    with machine("p=f16,c=f16", count=True) as session:
        result = CASES[name](x * 1.0)
        held = x * 1.0
    there = {abs(v) for v in held.flatten().tolist()} | {0.0}
    assert {abs(v) for v in result.flatten().tolist()} <= there
    assert session.report()["host"]["elements"] == 0


def test_constants_are_rounded_into_the_format():
    with machine("p=f16,c=f16") as session:
        x = torch.ones(3) * 0.5
        filled = x.masked_fill(x > 0, -1e9)
        padded = torch.nn.functional.pad(x, (1, 0), value=0.1)
    assert filled.tolist() == [-65504.0] * 3
    assert padded[0].item() == torch.tensor(0.1).half().item()
    (constant,) = session.report()["constants"]
    assert (constant["value"], constant["becomes"]) == (-1e9, "overflow")


def test_random_numbers_of_the_host_are_rounded_into_the_format_of_their_tensor():
    with machine("p=f16,c=f16"):
        x = torch.ones(100) * 0.5
        x.normal_()
        assert torch.equal(x, x.half().float())
    assert not math.isclose(x.std().item(), 0)


def test_constants_of_an_overload():
    assert exact.constants_of(aten.masked_fill.Scalar) == (2,)
    assert exact.constants_of(aten.sort.default) == ()
