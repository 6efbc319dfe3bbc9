"""Convolutions of every kind against torch, in binary32 (differential).

Dilated ones are those of a kernel with zeros between its taps (law).
"""

from __future__ import annotations

import pytest

from tests.ipu.frontends.torch.aten.bits import half, numbers, on_machine, same
from tests.ipu.frontends.torch.framework import machine, torch

F = torch.nn.functional
IMAGES, ROWS = numbers(2, 4, 7, 6), numbers(2, 4, 9)
CASES = {
    "plain": (F.conv2d, IMAGES, (5, 4, 3, 3), {}),
    "stride and padding": (F.conv2d, IMAGES, (5, 4, 3, 2), {"stride": (2, 1), "padding": (1, 2)}),
    "groups": (F.conv2d, IMAGES, (6, 2, 3, 3), {"groups": 2, "padding": 1}),
    "depthwise": (F.conv2d, IMAGES, (4, 1, 3, 3), {"groups": 4}),
    "1-D": (F.conv1d, ROWS, (5, 4, 3), {"stride": 2, "padding": 1}),
    "transposed": (F.conv_transpose2d, IMAGES, (4, 5, 3, 3), {"stride": 2, "padding": 1,
                                                              "output_padding": 1}),
    "transposed, groups": (F.conv_transpose2d, IMAGES, (4, 3, 2, 3), {"stride": 2, "groups": 2}),
    "dilated, stride": (F.conv2d, IMAGES, (5, 4, 2, 2), {"stride": 2, "dilation": 2}),
    "dilated, coprime stride": (F.conv2d, IMAGES, (6, 2, 2, 2), {"stride": (2, 4), "groups": 2,
                                                                 "dilation": (3, 2), "padding": 2}),
    "dilated 1-D, stride": (F.conv1d, ROWS, (5, 4, 2), {"stride": 3, "dilation": 2}),
    "transposed, dilated, stride": (F.conv_transpose2d, IMAGES, (4, 5, 3, 3),
                                    {"stride": 2, "dilation": 3, "padding": 1}),
    "transposed 1-D": (F.conv_transpose1d, ROWS, (4, 5, 3), {"stride": 2}),
}


def results(function, x, w, bias, options):
    x, w, b = (t.clone().requires_grad_() for t in (x, w, bias))
    y = function(x, w, b, **options)
    slope = torch.linspace(-1, 1, y.numel()).reshape(y.shape)
    return [y, *torch.autograd.grad(y, (x, w, b), slope)]


@pytest.mark.parametrize("name", CASES)
def test_results_and_gradients(name):
    function, x, shape, options = CASES[name]
    w = numbers(*shape, seed=1)
    outputs = shape[1] * options.get("groups", 1) if "transposed" in name else shape[0]
    bias = numbers(outputs, seed=2)
    expected = results(function, x, w, bias, options)
    with machine() as session:
        got = results(function, x, w, bias, options)
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=2e-5, atol=2e-5)
        assert a.is_contiguous()
    assert session.report()["host"]["elements"] == 0


def test_convolutions_of_volumes_run_on_the_host():
    x, w = numbers(1, 2, 4, 4, 4), numbers(3, 2, 2, 2, 2, seed=1)
    with machine() as session:
        y = F.conv3d(x, w)
    torch.testing.assert_close(y, F.conv3d(x, w))
    assert list(session.report()["host"]["operations"]) == ["aten.convolution.default"]


# Dilated ------------------------------------------------------------------------------------------


def stretched(w, down, across):
    """The kernel with zeros between its taps."""
    outputs, channels, rows, columns = w.shape
    wide = torch.zeros(outputs, channels, (rows - 1) * down + 1, (columns - 1) * across + 1)
    wide[:, :, ::down, ::across] = w
    return wide


@pytest.mark.parametrize(
    ("dilation", "padding", "groups"),
    [((2, 2), (0, 0), 1), ((3, 1), (2, 1), 1), ((2, 3), (1, 2), 2)],
)
def test_a_dilated_result_is_that_of_the_stretched_kernel(dilation, padding, groups):
    x, w = numbers(2, 4, 9, 10), numbers(6, 4 // groups, 2, 3, seed=1)
    options = {"padding": padding, "groups": groups}
    result = on_machine(lambda: F.conv2d(x, w, dilation=dilation, **options))
    same(result, half(on_machine(lambda: F.conv2d(x, stretched(w, *dilation), **options))))


def dilated_gradients(function, *tensors):
    leaves = [t.clone().requires_grad_() for t in tensors]
    with machine("f32", f32_denormals="ieee") as run:
        function(*leaves).square().sum().backward()
    assert run.report()["host"]["elements"] == 0
    return [t.grad for t in leaves]


@pytest.mark.parametrize("transposed", [False, True])
def test_gradients_of_dilated_ones_are_those_of_torch(transposed):
    x, w = numbers(2, 4, 7, 8), numbers(4, 4, 2, 3, seed=1)
    convolve = F.conv_transpose2d if transposed else F.conv2d

    def function(a, b):
        return convolve(a, b, padding=(1, 2), dilation=(2, 3))

    leaves = [t.double().requires_grad_() for t in (x, w)]
    function(*leaves).square().sum().backward()
    for ours, wide in zip(dilated_gradients(function, x, w), leaves, strict=True):
        assert torch.allclose(ours.double(), wide.grad, rtol=1e-5, atol=1e-4)
