"""The networks of the tutorials have the layers that the tutorials print (golden)."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from ipu.experiments.training.networks import fashion, mnist, resnet
from ipu.learn.optim import SGD
from ipu.learn.tensor import nodes
from ipu.learn.train import Trainer


def weights_of(network, shape):
    """Shapes of the weights by the name of their layer, and the shape of the output."""
    trainer = Trainer(network, SGD(0.1))
    output = trainer.forward(np.zeros(shape))
    weights = {
        "/".join(name.split("/")[1:-1]): variable.array.shape
        for name, variable in trainer.variables.items()
        if name.endswith("weights")
    }
    return weights, output.array.shape


def test_the_residual_network_halves_images_in_its_later_sections():
    """The way around is a convolution of 2 x 2 where the image is halved, else nothing."""
    weights, output = weights_of(partial(resnet, depth=14), (1, 8, 8, 3))
    expected, before = {"first": (3, 3, 3, 16), "output": (64, 10)}, 16
    for section, filters in enumerate((16, 32, 64), 1):
        for number in (1, 2):
            name = f"section{section}_block{number}"
            expected[f"{name}/conv1"] = (3, 3, before, filters)
            expected[f"{name}/conv2"] = (3, 3, filters, filters)
            if before != filters:
                expected[f"{name}/skip"] = (2, 2, before, filters)
            before = filters
    assert (weights, output) == (expected, (1, 10))


def test_the_network_of_the_fashion_program_has_two_convolutions_and_a_dense_layer():
    assert weights_of(fashion, (1, 28, 28, 1)) == (
        {"conv1": (3, 3, 1, 32), "conv2": (3, 3, 32, 32), "dense": (28 * 28 * 32, 10)}, (1, 10)
    )


@pytest.mark.source("S2-11")
def test_the_mnist_network_of_the_pipelining_tutorial():
    trainer = Trainer(mnist, SGD(0.1))
    output = trainer.forward(np.zeros((1, 28, 28, 1)))
    weights = {
        name.split("/")[-2]: variable.array.shape
        for name, variable in trainer.variables.items()
        if name.endswith("weights")
    }
    assert weights == {
        "conv1": (5, 5, 1, 10), "conv2": (5, 5, 10, 20), "hidden": (320, 256), "output": (256, 10)
    }
    assert output.array.shape == (1, 10)
    order = [node.primitive.name for node in reversed(nodes(output))]
    block = ["conv2d", "bias", "max_pool", "relu"]
    assert order == [*block, *block, "reshape", "matmul", "bias", "relu", "matmul", "bias"]
