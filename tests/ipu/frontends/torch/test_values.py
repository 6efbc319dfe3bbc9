"""Tensors as arrays and back (law, golden)."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim import BFLOAT16, BINARY16, BINARY32
from ipu.machine import Device
from tests.ipu.frontends.torch.framework import machine, torch

values = pytest.importorskip("ipu.frontends.torch.values")
NUMBERS = [0.0, -0.0, 1.0, -65504.0, 2.0**-24, float("inf"), float("-inf")]


def memory(*, is_plain=False, target="mk2"):
    return values.Memory(Device(target), is_plain=is_plain)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_every_number_of_a_type_goes_there_and_back(dtype):
    codes = torch.arange(-(1 << 15), 1 << 15).to(torch.int16)
    x = codes.view(dtype)
    numbers = x[~x.isnan()]
    m = memory(target="hypothetical")
    array = m.read(numbers, values.FORMATS[dtype])
    assert array.format == values.FORMATS[dtype]
    assert torch.equal(m.write(array, dtype).view(torch.int16), numbers.view(torch.int16))


def test_a_written_tensor_remembers_its_format_and_so_do_its_views():
    m = memory()
    x = m.write(m.device.from_host(np.array([[1.1, 2.0]]), BINARY16), torch.float32)
    assert m.format_of(x) == m.format_of(x.t()) == m.format_of(x.detach()[0]) == BINARY16
    assert m.format_of(x.clone()) is None
    assert memory().format_of(x) is None  # another session


def test_values_from_outside_are_rounded_to_nearest_without_flags():
    m = memory()
    x = torch.tensor([0.1, 1e6])
    array = m.read(x, BINARY16)
    np.testing.assert_array_equal(array.carrier, [np.float32(np.float16(0.1)), np.inf])
    assert m.device.status.word == 0


def test_another_format_is_a_cast_of_the_device():
    m = memory()
    x = torch.tensor([0.1, 1e6])
    m.mark(x, BINARY32)
    m.read(x, BINARY16)
    assert m.device.status.oflo


def test_parameters_are_rounded_once_in_place():
    m = memory()
    p = torch.nn.Parameter(torch.tensor([0.1, 0.2]))
    m.enter(p, BINARY16)
    assert torch.equal(p, torch.tensor([0.1, 0.2]).half().float())
    assert m.format_of(p) == BINARY16
    m.enter(p, BINARY32)
    assert m.format_of(p) == BINARY16


def test_a_plain_memory_marks_nothing():
    m = memory(is_plain=True)
    x = torch.tensor([0.1])
    m.enter(x, BINARY32)
    assert m.format_of(x) == BINARY32
    assert not hasattr(x.untyped_storage(), "_fpsim_format")


def test_writing_leaves_the_memory_of_others_alone():
    m = memory()
    array = m.device.from_host(np.arange(6.0).reshape(2, 3), BINARY16)
    for view in (array.T, array.reshape(3, 2), array[:, 1:]):
        x = m.write(view, torch.float32)
        assert x.is_contiguous()
        x += 1
    np.testing.assert_array_equal(array.carrier, np.arange(6.0).reshape(2, 3))


def test_what_is_saved_lives_with_the_memory():
    m = memory()
    x = torch.zeros(3)
    m.save(x, "whitened")
    assert m.saved(x.detach().view(3, 1)) == "whitened"
    assert m.saved(x.clone()) is None
    assert memory().saved(x) is None


def test_the_widest_format():
    assert values.widest([BINARY16, BINARY16]) == BINARY16
    assert values.widest([BFLOAT16, BINARY16]) == BINARY32


LAID = {
    "unary": lambda x, y: x.t().exp().t().view(-1),
    "number": lambda x, y: (x.t() * 2).t().view(-1),
    "operands": lambda x, y: (x.t() + y.t()).t().view(-1),
    "first contiguous": lambda x, y: (x + y.t().contiguous().t()).view(-1),
    "one broadcast": lambda x, y: (y[0] * x.t().contiguous().t()).t().view(-1),
    "half": lambda x, y: x.t().half().t().view(-1),
    "permuted": lambda x, y: (x.view(2, 2, 3).permute(2, 0, 1) * 3).permute(1, 2, 0).view(-1),
}


@pytest.mark.parametrize("name", LAID)
@pytest.mark.parametrize("policy", ["f32", "p=f16,c=f16"])
def test_elementwise_results_lie_in_memory_as_in_torch(name, policy):
    x, y = torch.linspace(-1, 1, 12).view(4, 3), torch.linspace(1, 2, 12).view(4, 3)
    expected = LAID[name](x, y)
    with machine(policy) as session:
        got = LAID[name](x, y)
        assert session.memory.format_of(got) is not None
    torch.testing.assert_close(got, expected, rtol=1e-2, atol=1e-2)


def test_images_keep_their_channels_last():
    layers = (
        torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
    )
    x = torch.randn(2, 3, 8, 8).contiguous(memory_format=torch.channels_last)
    with machine("p=f16,c=f16"):
        for layer in layers:
            x = layer(x)
            assert x.is_contiguous(memory_format=torch.channels_last), layer
        assert torch.equal(x, x.half().float())


def test_a_parameter_of_no_module_that_the_program_computed_holds_the_format_of_parameters():
    """Its first step is a quarter of binary16's unit of 128, and none of binary32's is lost."""
    with machine("p=f32,c=f16,part=f32") as run:
        palette = torch.nn.Parameter(torch.full((3,), 64.0) * 2)
        optimiser = torch.optim.SGD([palette], lr=0.03125)
        palette.sum().backward()
        optimiser.step()
        assert palette.tolist() == [127.96875] * 3
        assert run.memory.format_of(palette) == BINARY32
