"""Recipes of blocks in trainings of `ipu.learn` (law, differential)."""

from __future__ import annotations

import numpy as np
import pytest

import fpsim as fp
from ipu.learn import SGD, Trainer, conv, dense, flatten
from ipu.learn.checkpoint import load, save
from ipu.learn.policy import FP16, FP32
from ipu.learn.tensor import Tensor, gradients
from ipu.learn.variables import Variable, variable_scope
from ipu.machine import Device
from ipu.ops.products import conv2d, matmul
from ipu.run import machine
from tests.ipu.ops.dense_law import KINDS, convolution_passes, images, layer_passes, operands

from fpsim.records.recipes import find_recipe  # isort: skip
from ipu.ops.dense import LayerRecipe  # isort: skip

SHAPE = 20, 40, 24


@pytest.mark.parametrize("name", KINDS)
def test_the_tape_has_the_bits_of_the_rows(name):
    device = Device("hypothetical", seed=3)
    x, w, dy = (device.from_host(v, fp.BFLOAT16) for v in operands(*SHAPE))
    sources = [Variable(a, device, n) for n, a in (("x", x), ("w", w))]
    y = matmul(*sources, recipe=LayerRecipe(find_recipe(name), "layer"))
    arrays = [y.array, *gradients(y, sources, dy)]
    for one, other in zip(arrays, layer_passes(name, SHAPE), strict=True):
        np.testing.assert_array_equal(one.values, other)
    assert isinstance(y, Tensor)


@pytest.mark.parametrize("name", ["nvfp4", "fp8-current"])
def test_the_tape_has_the_bits_of_the_rows_of_convolutions(name):
    device = Device("hypothetical", seed=3)
    x, w, dy = images((2, 7, 6, 8), (3, 2, 8, 16), 2)
    arrays = {"x": x, "w": w}
    sources = [
        Variable(device.from_host(v, fp.BFLOAT16), device, n) for n, v in arrays.items()
    ]
    y = conv2d(*sources, stride=2, padding="VALID", recipe=LayerRecipe(find_recipe(name), "layer"))
    passes_here = [y.array, *gradients(y, sources, device.from_host(dy, fp.BFLOAT16))]
    for one, other in zip(passes_here, convolution_passes(name, x, w, dy, stride=2), strict=True):
        np.testing.assert_array_equal(one.values, other)


def test_a_layer_of_convolutions_is_in_blocks():
    run = machine("mxfp8", count=True)

    def images(x):
        return dense(flatten(conv(x, 4, 3, "conv")), 4, "head")

    Trainer(images, SGD(0.01), run=run).step(np.ones((4, 5, 5, 3)), np.arange(4))
    assert {row["layer"] for row in run.report()["operands"]} == {"conv", "head"}
    assert run.report()["uncovered"] == []


def network(x):
    return dense(dense(x, 32, "hidden"), 4, "head")


def batch(step, size=16):
    x, *_ = operands(size, 20, 4, seed=step)
    return x, np.arange(size) % 4


def steps(trainer, numbers):
    return [float(trainer.step(*batch(i))) for i in numbers]


@pytest.mark.parametrize("policy", ["fp8-delayed+dy=sr", "nvfp4+head=bf16"])
def test_a_training_goes_on_from_a_checkpoint(policy, tmp_path):
    def trainer():
        return Trainer(network, SGD(0.01), run=machine(policy, seed=2))

    whole = steps(trainer(), range(6))
    begun = trainer()
    first = steps(begun, range(3))
    save(tmp_path / "c", begun.state())
    resumed = trainer()
    resumed.step(*batch(9))  # of another past
    resumed.restore(load(tmp_path / "c"))
    assert first + steps(resumed, range(3, 6)) == whole


def test_layers_by_pattern_and_what_no_recipe_covers():
    run = machine("nvfp4+head=bf16", count=True)
    trainer = Trainer(network, SGD(0.01), run=run)
    trainer.step(*batch(0))
    rows = run.report()["operands"]
    assert {row["layer"] for row in rows} == {"hidden"}
    assert {row["product"] for row in rows} == {"forward", "weight_gradient"}  # x needs no gradient
    run = machine("nvfp4")

    def images(x):
        return dense(flatten(conv(x, 4, 3, "conv", groups=2)), 4, "head")

    with pytest.warns(RuntimeWarning, match="conv2d in groups of conv is none and computes in"):
        Trainer(images, SGD(0.01), run=run).step(np.ones((4, 5, 5, 4)), np.arange(4))
    row = {"layer": "conv", "operation": "conv2d in groups", "times": 1}
    assert run.report()["uncovered"] == [row]
    with pytest.raises(ValueError, match="recipe=nvfp4 with target=mk2"):
        machine("nvfp4", target="mk2")


def test_statistics_of_operands():
    run = machine("nvfp4-plain", count=True)
    trainer = Trainer(network, SGD(1e-9), run=run)
    trainer.step(*batch(0))
    (row,) = [r for r in run.report()["operands"] if r["layer"] == "hidden" and (
        r["product"], r["operand"]) == ("forward", "x")]
    x = np.float32(fp.round_to(batch(0)[0], fp.BFLOAT16))
    blocks = fp.quantize(np.pad(x, [(0, 0), (0, 12)]), "nvfp4", axis=1, flags=True)
    error = np.square(blocks.values - np.pad(x, [(0, 0), (0, 12)])).sum()
    assert row["snr"] == pytest.approx(10 * np.log10(np.square(np.float64(x)).sum() / error))
    assert row["clipped"] * np.count_nonzero(x) == pytest.approx(blocks.counts()["OVERFLOW"])
    zeros = (blocks.values[:, :20] == 0) & (x != 0)
    assert (row["flushed"] + row["zero_scale"]) * np.count_nonzero(x) == pytest.approx(zeros.sum())


def blocks(x):
    for number in range(3):
        with variable_scope(f"block{number}", use_resource=True):
            x = dense(x, 16, "hidden")
    return dense(x, 4, "output")


@pytest.mark.parametrize(("by_order", "by_name"), [
    ("last2=bf16", "block1/*=bf16+block2/*=bf16"), ("first1=f32", "block0/*=f32"),
])
@pytest.mark.parametrize("begins_with", ["step", "forward"])
def test_the_last_layers_are_those_that_the_network_makes_last(by_order, by_name, begins_with):
    rng = np.random.default_rng(1)
    x, labels = rng.standard_normal((8, 16)), np.arange(8) % 4

    def losses(addition):
        run = machine(f"nvfp4-plain{addition}", seed=3)
        training = Trainer(blocks, SGD(0.1), run=run)
        if begins_with == "forward":
            training.forward(x)
        return [training.step(x, labels) for _ in range(3)], run.report()["by_order"]

    ordered, meanings = losses(f"+{by_order}")
    assert ordered == losses(f"+{by_name}")[0]
    assert ordered != losses("")[0]
    assert [f"{name}/" for names in meanings.values() for name in names] == [
        name for name in by_name.replace("*=bf16", "").replace("*=f32", "").split("+")
        if name.endswith("/")
    ]


def test_more_last_layers_than_a_network_has_are_refused():
    training = Trainer(blocks, SGD(0.1), policy=FP16.override({"last4": FP32}))
    with pytest.raises(ValueError, match="'last4' asks for 4 of 3 blocks"):
        training.step(np.ones((4, 16)), np.arange(4))


@pytest.mark.parametrize("addition", ["last2=bf16", "output=f32", "block0/*=mxfp8", "wgrad=bf16"])
def test_a_trainer_takes_the_text_that_a_run_takes(addition):
    x, labels = np.random.default_rng(1).standard_normal((8, 16)), np.arange(8) % 4
    text = f"nvfp4-plain+{addition}"
    alone = Trainer(blocks, SGD(0.1), policy=text, seed=3, target="hypothetical")
    of_run = Trainer(blocks, SGD(0.1), run=machine(text, seed=3))
    plain = Trainer(blocks, SGD(0.1), policy="nvfp4-plain", seed=3, target="hypothetical")
    steps = [[training.step(x, labels) for _ in range(2)] for training in (alone, of_run, plain)]
    assert steps[0] == steps[1]
    assert steps[0] != steps[2]


@pytest.mark.parametrize(("text", "message"), [
    ("nvfp4+foo", "policy='nvfp4.foo': 'foo' is not known; use RECIPE"),
    ("nvfp4+output=foo", "policy='foo' is not a policy"),
    ("nvfp4+output=fp16+last9=bf16", "'last9' asks for 9 of 3 blocks"),
])
def test_a_trainer_refuses_additions_that_mean_nothing(text, message):
    with pytest.raises(ValueError, match=message):
        Trainer(blocks, SGD(0.1), policy=text, target="hypothetical").step(
            np.ones((4, 16)), np.arange(4))
