"""Operations that round nothing: their results hold only numbers that were there (law)."""

from __future__ import annotations

import math

import pytest

from fpsim import BINARY16
from ipu.run.births.kinds import CONSTANT
from ipu.run.causes.finding import find_causes
from tests.ipu.frontends.torch.framework import machine, torch

exact = pytest.importorskip("ipu.frontends.torch.exact")
aten = torch.ops.aten


@pytest.mark.parametrize(
    "func",
    [aten.view.default, aten.t.default, aten.cat.default, aten.index.Tensor, aten.abs.default,
     aten.zeros_like.default, aten.gt.Scalar, aten.fill_.Scalar, aten.squeeze_.dim,
     aten._local_scalar_dense.default, aten.round.default],
)
def test_moves_selections_and_constants(func):
    assert exact.is_exact(func)


@pytest.mark.parametrize(
    "func",
    [aten.add.Tensor, aten.cos.default, aten.cumsum.default, aten.mm.default, aten.mean.default,
     aten.round.decimals, aten.div_.Tensor, aten.prod.default, aten.norm.Scalar],
)
def test_arithmetic_is_not_exact(func):
    assert not exact.is_exact(func)


def test_every_name_is_one_of_torch():
    missing = [
        name for name in exact.EXACT
        if not (hasattr(aten, name) or hasattr(aten, f"{name}_"))
    ]
    assert not missing


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
def test_views_and_what_may_be_one_or_a_copy_keep_the_format(mode):
    with machine("p=f16,c=f16") as session, mode():
        y = torch.relu(torch.randn(3, 4, 5))
        moved = y.transpose(0, 2)
        views = [moved, y[1:], y.view(-1), y.detach(), *y.unbind(), y.unfold(1, 2, 1), y.mT]
        either = [moved.reshape(-1), moved.contiguous(), moved.flatten(1), y.to(torch.float32)]
        held = [session.memory.format_of(x) for x in (y, *views, *either)]
    assert held == [BINARY16] * len(held)


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
}


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


LOWEST = torch.finfo(torch.float32).min
FILLED = {
    "masked_fill": lambda x, mask: x + (x * 0).masked_fill(mask, LOWEST),
    "masked_fill_": lambda x, mask: x + (x * 0).masked_fill_(mask, LOWEST),
    "full_like": lambda x, mask: torch.where(mask, torch.full_like(x, LOWEST), x),
}


@pytest.mark.parametrize("name", FILLED)
@pytest.mark.parametrize("reads", ["softmax", "mean"])
def test_a_constant_that_fills_a_mask_is_followed(name, reads):
    """It dies in a softmax; a mean computes on with it, and is what losses that part come from."""
    mask = torch.arange(12).reshape(3, 4) % 4 > 1
    with machine("p=f32,c=f16,part=f32", count=True) as session:
        x = FILLED[name](torch.linspace(-1.0, 2.0, 12).reshape(3, 4) * 1.0, mask)
        result = x.softmax(-1) if reads == "softmax" else x.mean(-1)
    assert result.isfinite().all()
    report = session.report()
    (birth,) = [row for row in report["births"] if row["kind"] == CONSTANT]
    causes = find_causes({**report, "harm": 1.0})
    if reads == "softmax":
        assert birth["harmless"]
        assert list(birth["deaths"]) == ["aten._softmax"]
        assert causes == []
    else:
        assert not birth["harmless"]
        assert [cause.kind for cause in causes] == ["constant"]
        assert "-3.4028234663852886e+38 is beyond the largest number" in causes[0].sentence


@pytest.mark.parametrize("part", ["column", "row", "all"])
def test_what_is_written_into_a_part_leaves_the_others_their_births(part):
    with machine("p=f32,c=f16,part=f32", count=True) as session:
        x = torch.tensor([[1e5, 1.0], [1.0, 2.0], [3.0, 4.0]]) * 1.0
        {"column": x[:, 0], "row": x[0], "all": x}[part].add_(1.0)
        difference = x - x
    assert difference.isnan().any()
    (data,) = [row for row in session.report()["births"] if row["kind"] == "data beyond"]
    assert not data["harmless"]


def test_a_result_that_is_laid_out_as_a_transposed_operand_has_its_births():
    with machine("p=f32,c=f16,part=f32", count=True) as session:
        x = (torch.tensor([[1e5, 1.0], [1.0, 2.0], [3.0, 4.0]]) * 1.0).t() * 2.0
        assert not x.is_contiguous()
        assert (x - x).isnan().any()
    (data,) = [row for row in session.report()["births"] if row["kind"] == "data beyond"]
    assert not data["harmless"]


def test_a_part_without_births_takes_none_from_the_rest():
    with machine("p=f32,c=f16,part=f32", count=True) as session:
        x = torch.tensor([[1e5, 1.0], [1.0, 2.0], [3.0, 4.0]]) * 1.0
        x[1].copy_(torch.ones(2) * 2.0)
        assert (x - x).isnan().any()
    (data,) = [row for row in session.report()["births"] if row["kind"] == "data beyond"]
    assert not data["harmless"]


def test_random_numbers_of_the_host_are_rounded_into_the_format_of_their_tensor():
    with machine("p=f16,c=f16"):
        x = torch.ones(100) * 0.5
        x.normal_()
        assert torch.equal(x, x.half().float())
    assert not math.isclose(x.std().item(), 0)


def test_constants_of_an_overload():
    assert exact.constants_of(aten.masked_fill.Scalar) == (2,)
    assert exact.constants_of(aten.sort.default) == ()


# What torch computes in operations that only seem to move -----------------------------------------

F16 = "p=f16,c=f16"


def holds_binary16(x):
    return torch.equal(x, x.half().float())


@pytest.mark.parametrize(
    "draw",
    [torch.randn_like, torch.rand_like, lambda x: torch.normal(x, x.abs()),
     lambda x: torch.normal(x, 0.3), lambda x: torch.normal(0.3, x.abs()),
     lambda x: torch._standard_gamma(x.abs()), lambda x: torch.poisson(x.abs()),
     lambda x: torch.nextafter(x, -x), lambda x: torch.fmod(x, torch.tensor(0.1))],
)
def test_results_have_the_format_of_their_tensor(draw):
    x = torch.linspace(-2.0, 3.0, 101)
    with machine(F16) as session:
        result = draw(x * 1.0)
        assert holds_binary16(result)
    assert session.report()["native"] == 0


def test_random_numbers_with_tensors_of_means_are_those_of_torch_in_binary32():
    x = torch.linspace(-2.0, 3.0, 11)
    for draw in (lambda: torch.normal(x, x.abs()), lambda: torch.normal(x, 0.3)):
        torch.manual_seed(3)
        expected = draw()
        torch.manual_seed(3)
        with machine() as session:
            torch.testing.assert_close(draw(), expected)  # torch rounds once: a multiply-add
        assert session.report()["operations"]["machine"] > 0


def test_a_number_in_place_of_an_infinity_fits_into_the_format():
    with machine(F16, nanoo=True, target="hypothetical", unit="V100_F16_F32"):
        x = torch.tensor([float("inf"), -float("inf"), float("nan"), 1.0]) * 1.0
        assert torch.nan_to_num(x).tolist() == [65504.0, -65504.0, 0.0, 1.0]
        assert torch.nan_to_num(x, posinf=1e9, nan=0.1)[0] == float("inf")
    with machine():
        assert torch.nan_to_num(x)[0] == torch.finfo(torch.float32).max


@pytest.mark.parametrize("function", [torch.abs, torch.sgn])
def test_complex_absolute_values_are_computed_on_the_host(function):
    z = torch.randn(7, dtype=torch.complex64, generator=torch.Generator().manual_seed(0))
    with machine(F16) as session:
        result = function(z)
    parts = torch.view_as_real(result) if result.is_complex() else result
    assert holds_binary16(parts)
    assert session.report()["host"]["elements"] == 7


def test_numbers_of_two_formats_together_hold_the_wider_one():
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.head = torch.nn.Identity()
            self.head.forward = lambda x: x * 1000.0

        def forward(self, x):
            return torch.cat([x * 1.0, self.head(x)]) * 1.0

    with machine({"head": "f32", "*": F16}, count=True) as session:
        result = Net()(torch.full((2,), 300.0))
    # A cast of the machine saturates; a number from outside would be an infinity, unseen.
    assert result.tolist() == [300.0, 300.0, 65504.0, 65504.0]
    assert session.report()["first"][0]["flag"] == "OVERFLOW"


def test_moves_in_place_cast_numbers_of_another_format():
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.head = torch.nn.Identity()
            self.head.forward = lambda x: x * 1000.0

        def forward(self, x):
            there = x * 1.0
            return there.index_copy_(0, torch.tensor([1]), self.head(x)[:1])

    with machine({"head": "f32", "*": F16}, count=True) as session:
        assert Net()(torch.full((2,), 300.0)).tolist() == [300.0, 65504.0]
    assert session.report()["first"][0]["flag"] == "OVERFLOW"


def test_a_tensor_from_outside_takes_numbers_of_two_formats_as_they_are():
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.head = torch.nn.Identity()
            self.head.forward = lambda x: x * 1000.0

        def forward(self, x):
            is_narrow = torch.tensor([True, False])
            return torch.where(is_narrow, x * 1.0, self.head(x), out=target)

    target = torch.empty(2)
    with machine({"head": "f32", "*": F16}, count=True) as session:
        Net()(torch.full((2,), 300.0))
    assert target.tolist() == [300.0, 300_000.0]
    assert session.report()["first"] == []


def test_results_in_a_tensor_of_the_caller_have_its_format():
    with machine(F16):
        target = torch.ones(2) * 1.0
        torch.maximum(torch.tensor([0.1, 0.2]), torch.tensor([0.3, 0.1]), out=target)
        assert holds_binary16(target)


def test_float64_numbers_are_rounded_once_into_binary16():
    x = torch.tensor([1 + 2.0**-11 + 2.0**-40], dtype=torch.float64)
    expected = [1 + 2.0**-10]
    with machine():
        assert x.half().tolist() == expected
        assert torch.zeros(1).half().copy_(x).tolist() == expected


def test_memory_without_numbers_raises_no_flags():
    """The gradient of a loss is copied into new memory, whose content is whatever it was."""
    torch.use_deterministic_algorithms(True)  # torch fills such memory with NaN
    try:
        x = torch.ones(4, 5, requires_grad=True)
        with machine("f16", traps=True) as session:
            x.sum().backward()
    finally:
        torch.use_deterministic_algorithms(False)
    assert session.device.status_word == 0
    assert torch.equal(x.grad, torch.ones(4, 5))


# Numbers of several formats and data types --------------------------------------------------------


def binary16(n):
    """Zeros that hold binary16 where the policy computes in it."""
    return torch.relu(torch.zeros(1, n))


#: Of a binary32 weight w and a result y of the policy's format.
TAKEN = {
    "cat": lambda w, y: torch.cat([y, w], 1, out=torch.zeros(1, 6).half()),
    "stack": lambda w, y: torch.stack([y, w], out=torch.zeros(2, 1, 3).half()),
    "cat of float32": lambda w, y: torch.cat([y, w], 1, out=binary16(6)),
    "stack of float32": lambda w, y: torch.stack([y, w], out=binary16(6).view(2, 1, 3)),
    "index_put": lambda w, y: binary16(3).index_put_([torch.tensor([0])], w),
    "copy": lambda w, y: torch.zeros(1, 3).half().copy_(w),
    "fill": lambda w, y: y.half().fill_(w[0, 1]),
    "masked_fill": lambda w, y: y.half().masked_fill(y > 0, w[0, 1]),
    "masked_fill_": lambda w, y: y.half().masked_fill_(y > 0, w[0, 1]),
    "index_fill": lambda w, y: y.half().index_fill(1, torch.tensor([2]), w[0, 1]),
    "where": lambda w, y: torch.where(y > 0, w[0, 1], y.half()),
}


@pytest.mark.parametrize("name", TAKEN)
def test_numbers_are_cast_by_the_device_into_a_narrower_tensor_also_from_lists(name):
    """70000 becomes the largest number and a status bit; the host would make an infinity of it."""
    layer = torch.nn.Linear(3, 1, bias=False)
    layer.weight.data[:] = torch.tensor([[0.1, 70000.0, 1e-9]])
    with machine("p=f32,c=f16") as session:
        device, y = session.memory.device, torch.relu(torch.full((1, 3), 0.5))
        layer(y)
        device.clear_status()
        result = TAKEN[name](layer.weight.detach(), y)
        assert device.status.oflo
        assert session.memory.format_of(result) == BINARY16
    taken = result.flatten().tolist()
    assert 65504.0 in taken
    assert set(taken) <= {0.0, 0.5, 0.0999755859375, 65504.0}


@pytest.mark.parametrize("name", ["cat", "stack", "fill", "masked_fill", "where"])
def test_halves_take_numbers_of_float32_by_the_device_under_every_policy(name):
    w, y = torch.tensor([[0.1, 70000.0, 1e-9]]), torch.full((1, 3), 0.5)
    with machine("f32") as session:
        result = TAKEN[name](w, y)
    assert result.isfinite().all()
    assert session.memory.device.status.oflo


def test_types_that_torch_refuses_to_mix_are_refused():
    with machine(), pytest.raises(RuntimeError, match="Half"):
        torch.zeros(1, 3).half().index_copy_(0, torch.tensor([0]), torch.ones(1, 3))


def test_a_double_is_rounded_once_into_halves():
    with machine():
        double = torch.tensor(1 + 2.0**-11 + 2.0**-40, dtype=torch.float64)
        assert torch.zeros(1).half().fill_(double).item() == 1 + 2.0**-10
        assert torch.cat([double[None]], out=torch.zeros(1).half()).item() == 1 + 2.0**-10
