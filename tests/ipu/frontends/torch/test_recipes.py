"""Recipes of blocks in PyTorch programs: the law of dense layers, what is outside (law)."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from tests.ipu.frontends.torch.framework import torch
from tests.ipu.ops.dense_law import KINDS, convolution_passes, images, layer_passes, operands

from fpsim.torch import machine  # isort: skip
from ipu.run.places import Place  # isort: skip

SHAPE = 20, 40, 24
#: Autograd asks for the gradient of the second operand of mm first.
ORDER = 1, 0


def passes(policy, model, x, dy, weight):
    """y, dx and dw of a layer in a session."""
    with machine(policy, seed=3) as run:
        x = torch.from_numpy(x).requires_grad_()
        y = model(x)
        y.backward(torch.from_numpy(dy))
    return y.detach().numpy(), x.grad.numpy(), weight.grad.numpy().T, run


def linear(shape=SHAPE):
    x, w, dy = operands(*shape)
    layer = torch.nn.Linear(shape[1], shape[2], bias=False)
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(w.T.copy()))
    return layer, x, dy


@pytest.mark.parametrize("name", KINDS)
def test_a_linear_layer_has_the_bits_of_the_rows(name):
    layer, x, dy = linear()
    *arrays, _ = passes(name, layer, x, dy, layer.weight)
    at = [Place(0, 0, 0, "Linear", direction) for direction in ("forward", "backward")]
    rows = layer_passes(name, SHAPE, *at, order=ORDER)
    for one, other in zip(arrays, rows, strict=True):
        np.testing.assert_array_equal(one, other)


def test_sequences_and_biases_are_the_same_layer():
    layer, x, dy = linear()
    whole, *_ = passes("nvfp4", layer, x, dy, layer.weight)
    with_bias = torch.nn.Linear(SHAPE[1], SHAPE[2])
    with torch.no_grad():
        with_bias.weight.copy_(layer.weight)
        with_bias.bias.zero_()
    in_two = [v.reshape(2, 10, -1) for v in (x, dy)]
    y, dx, dw, _ = passes("nvfp4", with_bias, *in_two, with_bias.weight)
    at = [Place(0, 0, 0, "Linear", direction) for direction in ("forward", "backward")]
    expected = layer_passes("nvfp4", SHAPE, *at)  # addmm asks for that of the first one first
    np.testing.assert_array_equal(y.reshape(20, -1), whole)
    np.testing.assert_array_equal(dx.reshape(20, -1), expected[1])
    np.testing.assert_array_equal(dw, expected[2])


@pytest.mark.parametrize("write", [
    lambda w, x: x @ w.T, lambda w, x: (w @ x.T).T, lambda w, x: torch.nn.functional.linear(x, w),
])
def test_weights_are_known_however_the_product_is_written(write):
    layer, x, dy = linear()
    model = torch.nn.Module()
    model.weight = layer.weight
    model.forward = lambda x: write(model.weight, x)
    *arrays, run = passes("mxfp8", model, x, dy, layer.weight)
    for one, other in zip(arrays, layer_passes("mxfp8", SHAPE), strict=True):
        np.testing.assert_array_equal(one, other)
    assert run.device.blocks.outside == {}


@pytest.mark.parametrize("name", ["mxfp8", "fp8-current", "nvfp4-plain+wgrad=bf16"])
def test_a_convolution_has_the_bits_of_the_rows(name):
    x, w, dy = images((2, 7, 6, 8), (3, 2, 8, 16), 2)
    layer = torch.nn.Conv2d(8, 16, (3, 2), stride=2, bias=False)
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(w.transpose(3, 2, 0, 1).copy()))
    first = [np.ascontiguousarray(v.transpose(0, 3, 1, 2)) for v in (x, dy)]
    with machine(name, seed=3) as run:
        leaf = torch.from_numpy(first[0]).requires_grad_()
        y = layer(leaf)
        y.backward(torch.from_numpy(first[1]))
    expected = convolution_passes(name, x, w, dy, stride=2)
    arrays = [v.numpy().transpose(0, 2, 3, 1) for v in (y.detach(), leaf.grad)]
    arrays.append(layer.weight.grad.numpy().transpose(2, 3, 1, 0))
    for one, other in zip(arrays, expected, strict=True):
        np.testing.assert_array_equal(one, other)
    assert run.device.blocks.outside == {}


@pytest.mark.parametrize("equation", ["btk,kn->btn", "nk,btk->btn"])
def test_an_einsum_with_a_weight_is_its_layer(equation):
    layer, x, dy = linear()
    model = torch.nn.Module()
    model.weight = layer.weight if equation[0] == "n" else torch.nn.Parameter(
        layer.weight.detach().T.clone())
    order = (0, 1) if equation[0] == "b" else (1, 0)

    def forward(x):
        pair = [x, model.weight]
        return torch.einsum(equation, *(pair[i] for i in order))

    model.forward = forward
    shaped = [v.reshape(2, 10, -1) for v in (x, dy)]
    y, dx, dw, run = passes("mxfp8", model, *shaped, model.weight)
    expected = layer_passes("mxfp8", SHAPE)
    np.testing.assert_array_equal(y.reshape(20, -1), expected[0])
    np.testing.assert_array_equal(dx.reshape(20, -1), expected[1])
    np.testing.assert_array_equal(dw.T if equation[0] == "b" else dw, expected[2])
    assert run.device.blocks.outside == {}


def test_a_batch_of_weights_is_a_layer_for_each():
    x, w, dy = operands(*SHAPE)
    weight = torch.nn.Parameter(torch.from_numpy(np.stack([w, 2 * w])))
    pairs = [np.stack([v, v]) for v in (x, dy)]
    model = torch.nn.Module()
    model.weight = weight
    model.forward = lambda x: torch.bmm(x, model.weight)
    y, dx, dw, run = passes("mxfp8", model, *pairs, weight)
    expected = layer_passes("mxfp8", SHAPE)
    np.testing.assert_array_equal(y[0], expected[0])
    np.testing.assert_array_equal(y[1], 2 * expected[0])
    np.testing.assert_array_equal(dx[1], 2 * expected[1])
    np.testing.assert_array_equal(dw.T[0], expected[2])
    assert run.device.blocks.outside == {}


def test_autocast_checkpoints_and_frozen_weights_keep_their_passes():
    from torch.utils.checkpoint import checkpoint

    layer, x, dy = linear()
    expected = layer_passes("mxfp8", SHAPE)
    for reentrant in (True, False):
        def model(x, reentrant=reentrant):
            return checkpoint(layer, x, use_reentrant=reentrant)

        layer.zero_grad()
        *arrays, run = passes("mxfp8", model, x, dy, layer.weight)
        for one, other in zip(arrays, expected, strict=True):
            np.testing.assert_array_equal(one, other)
    layer.zero_grad()

    def cast(x):
        with torch.autocast("cpu", torch.bfloat16):
            return layer(x)

    *arrays, run = passes("mxfp8", lambda x: cast(x).float(), x, dy, layer.weight)
    for one, other in zip(arrays, expected, strict=True):
        np.testing.assert_array_equal(one, other)
    assert run.device.blocks.outside == {}
    layer.weight.requires_grad_(False)
    with machine("mxfp8", seed=3) as run:
        leaf = torch.from_numpy(x).requires_grad_()
        layer(leaf).backward(torch.from_numpy(dy))
    np.testing.assert_array_equal(leaf.grad.numpy(), expected[1])


def test_products_of_activations_are_told_and_stay_in_the_layers_format():
    x = torch.from_numpy(operands(16, 16, 16)[0])

    def program():
        q = x.clone().requires_grad_() * 1.0
        (q @ q.T).sum().backward()
        torch.bmm(q[None], q[None])
        torch.conv1d(q[None], torch.ones(1, 16, 3))  # a kernel that nobody trains
        torch.nn.Conv1d(16, 16, 3, groups=4)(q[None])
        torch.nn.ConvTranspose1d(16, 4, 3)(q[None])

    with machine("nvfp4", count=True) as run, pytest.warns(RuntimeWarning, match="is none and"):
        program()
    names = {"mm", "bmm", "conv2d", "conv2d in groups", "conv_transpose"}
    assert {operation for _, operation in run.device.blocks.outside} == names
    assert "B200_TC05_NVF4_F32" not in run.device.units_used
    report = run.report()
    assert {row["operation"] for row in report["uncovered"]} == names
    assert "no recipe covers" in str(report)


def test_layers_by_pattern_and_targets():
    model = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.Linear(32, 32))
    x = torch.ones(4, 32)
    for policy in ("nvfp4+1=bf16", {"0": "nvfp4", "*": "bf16-mixed"}):
        with machine(policy) as run:
            model(x)
        assert {u.partition("_")[0] for u in run.device.units_used} == {"AMP", "B200"}
    assert run.device.target.name == "hypothetical"
    with pytest.raises(ValueError, match="recipe=nvfp4 with target=mk2, which has no unit"):
        machine("nvfp4", target="mk2")


def test_evaluations_use_delayed_scales_and_record_nothing():
    layer, x, _ = linear()
    with machine("fp8-delayed") as run, torch.no_grad():
        layer(torch.from_numpy(100 * x))
    assert all(not scale.history for *_, scale in run.device.blocks.delayed)


def test_delayed_scales_go_on_from_a_checkpoint(tmp_path):
    def run_steps(layer, optimizer, steps):
        losses = []
        for step in steps:
            loss = layer(torch.from_numpy(operands(20, 40, 24, seed=step)[0])).square().sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    def fresh():
        layer, *_ = linear()
        return layer, torch.optim.SGD(layer.parameters(), 1e-3, momentum=0.9)

    with machine("fp8-delayed+dy=sr", seed=1):
        layer, optimizer = fresh()
        whole = run_steps(layer, optimizer, range(6))
        wanted = layer.weight.detach().clone()
    with machine("fp8-delayed+dy=sr", seed=1):
        layer, optimizer = fresh()
        begun = run_steps(layer, optimizer, range(3))
        state = {"model": layer.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save(state, tmp_path / "state.pt")
    with machine("fp8-delayed+dy=sr", seed=1):
        layer, optimizer = fresh()
        state = torch.load(tmp_path / "state.pt", weights_only=True)
        layer.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        rest = run_steps(layer, optimizer, range(3, 6))
    assert begun + rest == whole
    assert torch.equal(layer.weight, wanted)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        layer, optimizer = fresh()
        optimizer.load_state_dict(state["optimizer"])  # without a session it is left out


def test_weights_of_one_layer_have_delayed_scales_of_their_own():
    torch.manual_seed(0)
    attention = torch.nn.MultiheadAttention(16, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of products of two activations
        with machine("fp8-delayed") as run:
            x = torch.randn(4, 2, 16)
            attention(x, x, x)[0].square().mean().backward()
    layers = {layer for layer, *_ in run.device.blocks.delayed}
    assert layers == {"MultiheadAttention 48x16", "MultiheadAttention 16x16"}


class Residual(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = torch.nn.Linear(16, 32), torch.nn.Linear(32, 16)

    def forward(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(x)))


class Blocks(torch.nn.Module):
    """An embedding, numbered blocks, and a head that is none of them."""

    def __init__(self):
        super().__init__()
        self.bytes = torch.nn.Embedding(8, 16)
        self.blocks = torch.nn.Sequential(*(Residual() for _ in range(3)))
        self.head = torch.nn.Linear(16, 8)

    def forward(self, x):
        return self.head(self.blocks(self.bytes(x)))


def trained(policy, make, x):
    """Parameters after two steps, and the policy in the report."""
    torch.manual_seed(1)
    model = make()
    with machine(policy, seed=3) as run:
        optimiser = torch.optim.SGD(model.parameters(), 0.1)
        for _ in range(2):
            optimiser.zero_grad()
            model(x).square().mean().backward()
            optimiser.step()
    return [p.detach().numpy() for p in model.parameters()], run



def perceptron():
    return torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4))


@pytest.mark.parametrize(("make", "x", "by_order", "by_name", "names"), [
    (Blocks, torch.arange(8), "last2=bf16", "blocks.1.*=bf16+blocks.2.*=bf16",
     ["blocks.1", "blocks.2"]),
    (Blocks, torch.arange(8), "first1=f32+head=bf16", "blocks.0=f32+blocks.0.*=f32+head=bf16",
     ["blocks.0"]),
    (perceptron, torch.ones(4, 16), "last1=bf16", "2=bf16", ["2"]),
])
def test_the_last_layers_are_those_at_the_end_of_the_module(make, x, by_order, by_name, names):
    """Bit for bit the training in which they are named, and another one than without."""
    ordered, run = trained(f"nvfp4-plain+{by_order}", make, x)
    named, _ = trained(f"nvfp4-plain+{by_name}", make, x)
    plain, _ = trained("nvfp4-plain", make, x)
    for one, other in zip(ordered, named, strict=True):
        np.testing.assert_array_equal(one, other)
    assert any((a != b).any() for a, b in zip(ordered, plain, strict=True))
    assert run.report()["by_order"] == {by_order.partition("=")[0]: names}


def test_more_last_layers_than_there_are_and_none_at_all_are_refused():
    with pytest.raises(ValueError, match=r"'last4' asks for 4 of 3 blocks \(blocks.0, .*last1 to"):
        trained("nvfp4+last4=bf16", Blocks, torch.arange(8))
    with pytest.raises(ValueError, match="'last2' matches no layer"):
        without_modules("nvfp4+last2=bf16")


def without_modules(policy):
    weight = torch.nn.Parameter(torch.ones(16, 16))
    optimiser = torch.optim.SGD([weight], 0.1)
    with machine(policy):
        (torch.ones(16, 16) @ weight).sum().backward()
        optimiser.step()
