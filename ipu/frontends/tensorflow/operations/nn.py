"""`nn_ops`: activations of the libraries, softmax, convolutions side by side.

Source    graphcore/tensorflow, tensorflow/python/ipu/ops/nn_ops.py: names, arguments; poplibs,
          NonLinearityDef.hpp: formulas.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from fpsim.array import Array
from ipu import ops
from ipu.frontends.tensorflow.kernels.table import NodeSite, Run, gradient_rule, kernel
from ipu.frontends.tensorflow.missing import refusing
from ipu.frontends.tensorflow.operations.composite import SAVED, composite, gradient_of
from ipu.frontends.tensorflow.settings.notes import note
from ipu.machine.device import Device

__all__ = ["gelu", "hard_sigmoid", "multi_conv", "softmax", "swish"]

#: Names of the vendor's module without a rule here.
_MISSING = (
    "ctc_beam_search_decoder", "ctc_beam_search_decoder_with_log_probs", "ctc_loss", "ctc_loss_v2",
    "ctc_loss_with_log_probs", "ctc_loss_with_logits", "nce_loss", "sampled_softmax_loss",
)

__getattr__ = refusing("ipu.nn_ops", _MISSING, __all__)


def gelu(x: Any, name: str | None = None) -> Any:
    """x · Phi(x), Phi by tanh, as the rule of `ipu.ops.gelu` rounds it."""
    with tf.name_scope(name or "gelu"):
        return _gelu(tf.convert_to_tensor(x))


@tf.custom_gradient  # type: ignore[untyped-decorator]
def _gelu(x: Any) -> Any:
    spec = tf.TensorSpec(x.shape, x.dtype)
    y, saved = composite("Gelu", [x], [spec, SAVED], ops.gelu.forward)

    def gradient(upstream: Any) -> Any:
        with gradient_of(y):
            return composite("GeluGrad", [upstream, x, saved], [spec], _gelu_slope)[0]

    return y, gradient


def _gelu_slope(device: Device, upstream: Array, x: Array, _: Any) -> Array:
    """TensorFlow keeps x alone: what the rule saves is computed again."""
    return ops.gelu.pull(0, device, upstream, ops.gelu.forward(device, x)[1])


def hard_sigmoid(x: Any, name: str | None = None) -> Any:
    """0.2 · x + 0.5 between 0 and 1: a product, a sum and two limits."""
    with tf.name_scope(name or "hard_sigmoid"):
        x = tf.convert_to_tensor(x)
        line = x * tf.constant(0.2, x.dtype) + tf.constant(0.5, x.dtype)
        return tf.minimum(tf.nn.relu(line), tf.constant(1.0, x.dtype))


def swish(x: Any, name: str | None = None) -> Any:
    """x · sigmoid(x): the sigmoid rounds once, then the product."""
    with tf.name_scope(name or "swish"):
        x = tf.convert_to_tensor(x)
        return x * tf.sigmoid(x)


def softmax(x: Any, stable: bool = False, name: str | None = None) -> Any:
    """Softmax of the last axis, in binary32 inside.

    stable    is read: the largest number is always subtracted first.
    """
    return tf.nn.softmax(x, name=name)


def multi_conv(
    func: Callable[..., Any] | None = None, options: dict[str, str] | None = None
) -> Any:
    """A decorator: the convolutions of a function run side by side, which changes no bit.

    Raises    TypeError for options that are no dictionary.
    """
    if options is not None and not isinstance(options, dict):
        raise TypeError(
            f"Expected the multi_conv `options` to be a `dict`, but got {options} instead."
        )
    if options:
        note("options of multi_conv are accepted, but the simulation does not model them")
    if func is None:
        return lambda inner: multi_conv(inner)
    return func


# The machine ------------------------------------------------------------------------------------

_RULE = "each operation of the rule of ipu.learn"


@kernel("Gelu", of=ops.gelu, rounding=_RULE, keeps=True)
def _gelu_kernel(site: NodeSite) -> Run:
    device, fmt = site.device, site.fmt
    assert fmt is not None
    return lambda x: ops.gelu.forward(device, device.cast(x, fmt))


@kernel("GeluGrad", of=ops.gelu, gradient=True, rounding=_RULE, keeps=True)
def _gelu_gradient(site: NodeSite) -> Run:
    device, rule = site.device, gradient_rule(ops.gelu)

    def run(upstream: Array, x: Array, saved: Any) -> Array:
        result: Array = rule(device, device.cast(upstream, saved[0].format), saved)
        return result

    return run
