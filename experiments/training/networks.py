"""The networks of the tutorials. They know no format.

Source    Graphcore's TensorFlow 1 tutorial on half precision; He et al. 2015, arXiv 1512.03385
          (ResNet of 6N + 2 layers for CIFAR-10); Graphcore's PopTorch tutorial on pipelining.
"""

from __future__ import annotations

from ipu import ops
from ipu.learn.nn import batch_norm, conv, dense, flatten, max_pool, relu
from ipu.learn.tensor import Tensor
from ipu.learn.variables import variable_scope

__all__ = ["fashion", "mnist", "resnet"]

CLASSES = 10


def resnet(images: Tensor, depth: int) -> Tensor:
    """Three sections of blocks with 16, 32 and 64 filters; the later two halve the image.

    Batch norm stands before each block. The way around a block is the identity, or a 2 × 2
    convolution with stride 2 where the image is halved.
    """
    x = relu(conv(images, 16, 3, "first"))
    for section, filters in enumerate((16, 32, 64), 1):
        for number in range(1, (depth - 2) // 6 + 1):
            with variable_scope(f"section{section}_block{number}"):
                halve = section > 1 and number == 1
                x = _block(batch_norm(x, "norm"), filters, halve)
    return dense(ops.reduce_mean(x, axis=(1, 2)), CLASSES, "output")


def _block(x: Tensor, filters: int, halve: bool) -> Tensor:
    stride = 2 if halve else 1
    inside = relu(conv(x, filters, 3, "conv1", stride=stride))
    inside = conv(inside, filters, 3, "conv2")
    around = conv(x, filters, 2, "skip", stride=2) if halve else x
    return relu(ops.add(inside, around))


def fashion(images: Tensor) -> Tensor:
    """Two convolutions without biases, and a dense layer."""
    x = relu(conv(images, 32, 3, "conv1", use_bias=False))
    x = conv(x, 32, 3, "conv2", use_bias=False)
    return dense(flatten(x), CLASSES, "dense")


def mnist(images: Tensor) -> Tensor:
    """Two convolutions, each pooled and then cut at zero, and two dense layers."""
    x = relu(max_pool(conv(images, 10, 5, "conv1", padding="VALID"), 2))
    x = relu(max_pool(conv(x, 20, 5, "conv2", padding="VALID"), 2))
    x = relu(dense(flatten(x), 256, "hidden"))
    return dense(x, CLASSES, "output")
