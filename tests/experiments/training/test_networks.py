"""The networks of the tutorials have the layers that the tutorials print (golden)."""

from __future__ import annotations

import numpy as np
import pytest

from ipu.experiments.training.networks import mnist
from ipu.learn.optim import SGD
from ipu.learn.tensor import nodes
from ipu.learn.train import Trainer


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
    }  # fmt: skip
    assert output.array.shape == (1, 10)
    order = [node.primitive.name for node in reversed(nodes(output))]
    block = ["conv2d", "bias", "max_pool", "relu"]
    assert order == [*block, *block, "reshape", "matmul", "bias", "relu", "matmul", "bias"]
