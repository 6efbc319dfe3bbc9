"""Products are those of the device (law), and near binary64 (differential)."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim import BINARY16, BINARY32, F143, F152
from ipu.machine import Device
from ipu.ops.fp8 import quarters
from tests.ipu.frontends.torch.aten.bits import half, numbers, on_machine, same
from tests.ipu.frontends.torch.framework import machine, torch

A, B, C = numbers(5, 20), numbers(20, 7, seed=1), numbers(7, seed=2)


def by_device(partials=BINARY32):
    device = Device()
    a, b = (device.from_host(x.numpy(), BINARY16) for x in (A, B))
    return device.matmul(a, b, partials=partials).carrier


def test_a_product_goes_through_the_unit():
    same(on_machine(torch.mm, A, B), by_device())
    same(on_machine(lambda a, b: a @ b.t().contiguous().t(), A, B), by_device())
    stacked = on_machine(torch.bmm, torch.stack([A, A]), torch.stack([B, B]))
    same(stacked[1], by_device())
    same(on_machine(torch.mv, A, B[:, 0]), by_device()[:, 0])


def test_a_bias_is_added_to_the_rounded_product():
    product = by_device().astype(np.float16)
    same(on_machine(torch.addmm, C, A, B), product + half(C))
    scaled = product * np.float16(0.5) + half(C) * np.float16(0.3)
    same(on_machine(lambda c, a, b: torch.addmm(c, a, b, beta=0.3, alpha=0.5), C, A, B), scaled)


def test_a_bias_times_zero_is_not_read():
    """As torch documents it: a NaN there does not reach the result."""
    nothing = torch.full_like(C, torch.nan)
    same(on_machine(lambda c, a, b: torch.addmm(c, a, b, beta=0), nothing, A, B), by_device())


def test_the_policy_chooses_partials():
    with machine("p=f16,c=f16,part=f16") as session:
        result = A @ B
    same(result, by_device(BINARY16))
    assert list(session.device.units_used) == ["AMP_F16_F16"]


@pytest.mark.parametrize("shapes", [((3,), (3,)), ((0, 3), (3, 2)), ((2, 0), (0, 2))])
def test_vectors_and_empty_products(shapes):
    x, y = (torch.ones(s) for s in shapes)
    with machine():
        result = x @ y
    assert torch.equal(result, x @ y)


def test_products_of_quarters_have_a_scale_for_each_tensor_and_gradients_of_their_own_format():
    x, w = (numbers(4, 40), numbers(40, 3, seed=1).mul_(1000).half().float())
    device = Device("mk2-fp8")
    a, b = (quarters(device, device.from_host(t.numpy(), BINARY16), F143) for t in (x, w))
    expected = device.matmul(a.values, b.values, to=BINARY16, scale=a.scale + b.scale)
    slopes = numbers(4, 3, seed=2)
    g = quarters(device, device.from_host(slopes.numpy(), BINARY16), F152)
    turned = device.matmul(g.values, b.values.T, to=BINARY16, scale=g.scale + b.scale)
    weight = torch.nn.Parameter(w.clone())
    x.requires_grad_()
    with machine("fp8", target="mk2-fp8") as run:
        y = x @ weight
        (y * slopes).sum().backward()
    np.testing.assert_array_equal(y.detach().numpy(), expected.values)
    np.testing.assert_array_equal(x.grad.numpy(), turned.values)
    assert {row["unit"] for row in run.report()["units"]} == {"AMP_F8_F16"}
