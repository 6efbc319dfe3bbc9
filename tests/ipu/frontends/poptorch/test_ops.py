"""PopTorch's operations in models (golden)."""

from __future__ import annotations

import pytest

from tests.ipu.frontends.poptorch.framework import poptorch, torch


def test_a_loop_hands_its_results_on():
    x, y = poptorch.for_loop(3, lambda a, b: (a + b, b), [torch.zeros(2), torch.ones(2)])
    assert (x.tolist(), y.tolist()) == ([3, 3], [1, 1])
    start = torch.ones(1)
    poptorch.for_loop(2, lambda a: a.mul_(2), [start])
    assert start.item() == 1  # inputs are passed by value


def test_loops_run_on_the_machine_with_gradients():
    class Looped(torch.nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.layer = torch.nn.Linear(3, 3)

        def forward(self, x):
            (y,) = poptorch.for_loop(2, self.layer, [x])
            return torch.nn.functional.mse_loss(y, torch.zeros_like(y))

    net, twin = Looped(), Looped()
    poptorch.trainingModel(net)(torch.ones(4, 3))
    twin(torch.ones(4, 3)).backward()
    expected = twin.layer.weight - 0.01 * twin.layer.weight.grad
    assert torch.allclose(net.layer.weight, expected, atol=1e-6)


def test_printing_shows_values_and_gradients(capsys):
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    (poptorch.ipu_print_tensor(x, "x") * 3).sum().backward()
    assert capsys.readouterr().err == "x: [1.0, 2.0]\nx_gradient: [3.0, 3.0]\n"


def test_what_steers_the_compiler_returns_its_input(monkeypatch):
    from ipu.frontends.poptorch import dictionary

    x, overlap = torch.ones(2, 2), poptorch.OverlapMode.OverlapAccumulationLoop
    calls = (
        lambda: poptorch.recomputationCheckpoint(x),
        lambda: poptorch.set_available_memory(x, 0.2),
        lambda: poptorch.set_overlap_for_input(x, overlap),
        lambda: poptorch.set_overlap_for_output([x], overlap)[0],
        lambda: poptorch.serializedMatMul(x, x, poptorch.MatMulSerializationMode.ReducingDim) / 2,
    )
    for call in calls:
        monkeypatch.setattr(dictionary, "_told", set())
        with pytest.warns(UserWarning, match="has no effect here"):
            assert torch.equal(call(), x)
    assert poptorch.nop(x) is x
    monkeypatch.setattr(dictionary, "_told", {"recomputationCheckpoint", "MultiConv"})
    assert poptorch.recomputationCheckpoint(x, x) == (x, x)
    with poptorch.MultiConv():
        pass


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda x: poptorch.nop(1), TypeError, "nop must take a torch.tensor argument"),
        (lambda x: poptorch.for_loop(1, abs, (x,)), ValueError, "Object is not list"),
        (lambda x: poptorch.for_loop(1, abs, [1]), ValueError, "at index 0 is not torch.tensor"),
        (lambda x: poptorch.for_loop(-1, abs, [x]), ValueError, "runs 0 times or more"),
        (lambda x: poptorch.for_loop(1, lambda a: a[0], [x]), ValueError, "results of one iter"),
        (lambda x: poptorch.set_available_memory(x, 2), ValueError, "use a share from 0 to 1"),
        (lambda x: poptorch.set_overlap_for_input(x, 1), TypeError, "poptorch.OverlapMode"),
        (lambda x: poptorch.serializedMatMul(x, x, "none"), TypeError, "MatMulSerializationMode"),
        (lambda x: poptorch.custom_op([x], "Cube", "d", 1, [x]), NotImplementedError,
         "custom_op 'Cube': its code is compiled for the device"),
    ],
)
def test_bad_input_is_one_sentence(call, error, words):
    with pytest.raises(error, match=words):
        call(torch.ones(2))


@pytest.mark.parametrize("dtype", [torch.half, torch.float])
def test_a_cast_is_the_machines(dtype):
    class Casting(torch.nn.Module):
        def forward(self, x):
            return poptorch.internal_cast(x * 1, dtype)

    x = torch.tensor([0.1, 70000.0])
    y = poptorch.inferenceModel(Casting())(x)
    assert y.dtype is dtype
    assert y.tolist() == (x.tolist() if dtype is torch.float else [x[0].half().item(), 65504.0])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.int32, None])
def test_casts_to_other_types_are_refused_as_by_poptorch(dtype):
    with pytest.raises(ValueError, match=r"Expecting torch\.float or torch\.half"):
        poptorch.internal_cast(torch.ones(1), dtype)


def test_attributes_change_nothing_and_say_so(monkeypatch):
    from ipu.frontends.poptorch import dictionary

    monkeypatch.setattr(dictionary, "_told", set())
    attribute = poptorch.Attribute(__outline={"layer": "embedding"})
    with pytest.warns(UserWarning, match="Attribute is accepted and has no effect"), attribute:
        x = torch.ones(2) * 2
    attribute.__enter__()  # as hooks of modules call it; told once
    attribute.__exit__(None, None, None)
    assert x.tolist() == [2, 2]
    with pytest.raises(TypeError, match="__outline='a' is no dictionary"):
        poptorch.Attribute(__outline="a")
