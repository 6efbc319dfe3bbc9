"""Dilated convolutions are those of a kernel with zeros between its taps (law)."""

from __future__ import annotations

import pytest

from tests.ipu.frontends.torch.aten.bits import half, numbers, on_machine, same
from tests.ipu.frontends.torch.framework import machine, torch

dilated = pytest.importorskip("ipu.frontends.torch.aten.dilated")
functional = torch.nn.functional


def stretched(w, down, across):
    """The kernel with zeros between its taps."""
    outputs, channels, rows, columns = w.shape
    wide = torch.zeros(outputs, channels, (rows - 1) * down + 1, (columns - 1) * across + 1)
    wide[:, :, ::down, ::across] = w
    return wide


@pytest.mark.parametrize(
    ("dilation", "padding", "groups"),
    [((2, 2), (0, 0), 1), ((3, 1), (2, 1), 1), ((2, 3), (1, 2), 2)],
)  # fmt: skip
def test_the_result_is_that_of_the_stretched_kernel(dilation, padding, groups):
    x, w = numbers(2, 4, 9, 10), numbers(6, 4 // groups, 2, 3, seed=1)
    options = {"padding": padding, "groups": groups}
    result = on_machine(lambda: functional.conv2d(x, w, dilation=dilation, **options))
    same(result, half(on_machine(lambda: functional.conv2d(x, stretched(w, *dilation), **options))))


def gradients(function, *tensors):
    leaves = [t.clone().requires_grad_() for t in tensors]
    with machine("f32", f32_denormals="ieee") as run:
        function(*leaves).square().sum().backward()
    assert run.report()["host"]["elements"] == 0
    return [t.grad for t in leaves]


@pytest.mark.parametrize("transposed", [False, True])
def test_gradients_are_those_of_torch(transposed):
    x, w = numbers(2, 4, 7, 8), numbers(4, 4, 2, 3, seed=1)
    convolve = functional.conv_transpose2d if transposed else functional.conv2d

    def function(a, b):
        return convolve(a, b, padding=(1, 2), dilation=(2, 3))

    leaves = [t.double().requires_grad_() for t in (x, w)]
    function(*leaves).square().sum().backward()
    for ours, wide in zip(gradients(function, x, w), leaves, strict=True):
        assert torch.allclose(ours.double(), wide.grad, rtol=1e-5, atol=1e-4)


def test_extents():
    phases = dilated.Phases((9, 10), (2, 3), (3, 2), (1, 0))
    assert phases.output == (9 + 2 - 3, 10 - 4)
    assert phases.grid == (4, 5)
