"""Activations and their gradients: names of the rows of `ipu.ops.activations`."""

from __future__ import annotations

import numpy as np

from fpsim.array import Array
from fpsim.elementwise.apply import as_read
from ipu import ops
from ipu.frontends.tensorflow.kernels.rows import gradients, values
from ipu.frontends.tensorflow.kernels.table import NodeSite, Run, kernel
from ipu.machine.derived import derived

__all__: list[str] = []

values({
    "Relu": ops.relu, "Relu6": ops.relu6, "Elu": ops.elu, "Selu": ops.selu,
    "Softplus": ops.softplus, "Softsign": ops.softsign,
})
gradients({"Relu6Grad": ops.relu6, "SoftsignGrad": ops.softsign})
gradients({"EluGrad": ops.elu, "SeluGrad": ops.selu}, of_result=True)
gradients({"TanhGrad": ops.tanh, "SigmoidGrad": ops.sigmoid}, saved_first=True)


@kernel("ReluGrad", of=ops.relu, gradient=True)
def _relu_gradient(site: NodeSite) -> Run:
    """By the features as the machine reads them: a subnormal number may be a zero."""
    device = site.device

    def read(features: Array) -> Array:
        """In new memory where a later run may have subnormal numbers to flush."""
        settings = device.context(features.format).core.settings
        if settings.subnormals != "flush_both":
            return features
        return features.like(
            derived(device, lambda x: np.array(as_read(x, settings)), features.carrier))

    def run(gradient: Array, features: Array) -> Array:
        return ops.relu.pull(0, device, gradient, (read(features),))

    return run


@kernel("LeakyRelu", of=ops.leaky_relu)
def _leaky_relu(site: NodeSite) -> Run:
    device, slope = site.device, site.constant(site.attr("alpha"))
    return lambda x: ops.leaky_relu.value(device, x, slope=slope)


@kernel("LeakyReluGrad", of=ops.leaky_relu, gradient=True)
def _leaky_relu_gradient(site: NodeSite) -> Run:
    device, slope = site.device, site.constant(site.attr("alpha"))
    return lambda gradient, x: ops.leaky_relu.pull(0, device, gradient, (x,), slope=slope)
