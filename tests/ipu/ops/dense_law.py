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

__all__ = ["layer_bits", "layer_passes", "operands"]

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
