"""The law of dense layers: what every front end must give for one layer by a recipe.

Random bits belong to places, whose names differ from front end to front end: a front end's result
is compared with rows at its own place.
"""

from __future__ import annotations

import hashlib

import numpy as np

import fpsim as fp
from fpsim.records.recipes import find_recipe
from ipu import ops
from ipu.machine import Device
from ipu.ops.dense import LayerRecipe
from ipu.run.places import PlaceClock

__all__ = ["convolution_passes", "images", "layer_bits", "layer_passes", "operands"]

#: A recipe of each kind: to nearest, stochastic, turned, with scales of tensors and of rows.
KINDS = ["mxfp8", "nvfp4", "mxfp4+sr34+rht64", "fp8-delayed", "fp8-current", "fp8-rowwise",
         "nvfp4-plain+wgrad=bf16"]


def operands(tokens, inputs, outputs, seed=4):
    """x, w (inputs, outputs) and dy; bfloat16 values, some of them far from the others."""
    rng = np.random.default_rng(seed)
    shapes = (tokens, inputs), (inputs, outputs), (tokens, outputs)
    values = [rng.standard_normal(s) * 2.0 ** rng.integers(-4, 3, s) for s in shapes]
    return [np.asarray(fp.round_to(v, fp.BFLOAT16), np.float32) for v in values]


def layer_passes(name, shape, forward=None, backward=None, seed=3, order=(0, 1)):
    """y, dx and dw (inputs, outputs) of the rows; at these places, the gradients in this order."""
    machine = Device("hypothetical", seed=seed)
    if forward is not None:
        machine.clock = PlaceClock()
        machine.clock.place = forward
    x, w, dy = (machine.from_host(v, fp.BFLOAT16) for v in operands(*shape))
    how = LayerRecipe(find_recipe(name), "layer")
    y, saved = ops.matmul.forward(machine, x, w, recipe=how)
    if backward is not None:
        machine.clock.place = backward
    slopes = {i: ops.matmul.pull(i, machine, dy, saved, recipe=how) for i in order}
    return y.values, slopes[0].values, slopes[1].values


def layer_bits(name, shape):
    """A digest of all three passes."""
    codes = [np.asarray(v, np.float32).tobytes() for v in layer_passes(name, shape)]
    return hashlib.sha256(b"".join(codes)).hexdigest()[:12]


def images(shape, kernel, stride, seed=5):
    """x NHWC, w HWIO and dy for no padding; bfloat16 values, some of them far from the others."""
    rng = np.random.default_rng(seed)
    rows, columns = ((n - k) // stride + 1 for n, k in zip(shape[1:3], kernel[:2], strict=True))
    shapes = shape, kernel, (shape[0], rows, columns, kernel[3])
    values = [rng.standard_normal(s) * 2.0 ** rng.integers(-4, 3, s) for s in shapes]
    return [np.asarray(fp.round_to(v, fp.BFLOAT16), np.float32) for v in values]


def convolution_passes(name, x, w, dy, order=(0, 1), padding="VALID", **options):
    """y, dx and dw of the row of convolutions; the gradients in this order, None for others."""
    machine = Device("hypothetical", seed=3)
    a, b, c = (machine.from_host(v, fp.BFLOAT16) for v in (x, w, dy))
    how = None if name is None else LayerRecipe(find_recipe(name), "layer")
    options |= {"padding": padding, "recipe": how}
    y, saved = ops.conv2d.forward(machine, a, b, **options)
    slopes = {i: ops.conv2d.pull(i, machine, c, saved, **options).values for i in order}
    return y.values, slopes.get(0), slopes.get(1)
