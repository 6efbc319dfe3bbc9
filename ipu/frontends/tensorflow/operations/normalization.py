"""`normalization_ops`: group, instance and layer norm on the rule of `ipu.ops.group_norm`.

Instance norm has as many groups as channels, layer norm one. Statistics are those of the batch in
training and after it, so both give the same bits.

Source    graphcore/tensorflow, tensorflow/python/ipu/ops/normalization_ops.py: arguments, messages;
          docs/semantics.md §6 (roundings).
"""

from __future__ import annotations

from functools import partial
from typing import Any

import tensorflow as tf

from fpsim.array import Array
from ipu import ops
from ipu.frontends.tensorflow.kernels.table import NodeSite, Run, gradient_rule, kernel
from ipu.frontends.tensorflow.operations.composite import SAVED, composite, gradient_of
from ipu.frontends.tensorflow.settings.notes import note
from ipu.machine.device import Device

__all__ = ["channels_of", "group_norm", "instance_norm", "layer_norm", "normalised"]


def group_norm(
    inputs: Any, groups: int = 2, channels_axis: int = -1, reduction_axes: Any = None,
    center: bool = True, scale: bool = True, epsilon: float = 1e-6,
    param_initializers: Any = None, reuse: bool | None = None, variables_collections: Any = None,
    training: bool = True, trainable: bool = True, scope: Any = None,
) -> Any:
    """Whitens groups of channels of each image, then scales and shifts each channel.

    groups           channels c, c + groups, c + 2·groups … are whitened together.
    channels_axis    1 or the last.
    center, scale    whether there are variables beta and gamma.
    reduction_axes   is read: it has no effect.

    Raises    ValueError for another axis, and groups that do not divide the channels.
    """
    return _with_variables(
        "GroupNorm", inputs, groups, channels_axis, reduction_axes, center, scale, epsilon,
        param_initializers, reuse, variables_collections, trainable, scope,
    )


def layer_norm(
    inputs: Any, channels_axis: int = -1, reduction_axes: Any = None, center: bool = True,
    scale: bool = True, epsilon: float = 1e-6, param_initializers: Any = None,
    reuse: bool | None = None, variables_collections: Any = None, training: bool = True,
    trainable: bool = True, scope: Any = None,
) -> Any:
    """Group norm with one group: every image is whitened as a whole; see `group_norm`."""
    return _with_variables(
        "LayerNorm", inputs, 1, channels_axis, reduction_axes, center, scale, epsilon,
        param_initializers, reuse, variables_collections, trainable, scope,
    )


def instance_norm(
    inputs: Any, channels_axis: int = -1, reduction_axes: Any = None, center: bool = True,
    scale: bool = True, epsilon: float = 1e-6, param_initializers: Any = None,
    reuse: bool | None = None, variables_collections: Any = None, training: bool = True,
    trainable: bool = True, scope: Any = None,
) -> Any:
    """Group norm with a group for each channel; see `group_norm`."""
    _, channels = channels_of(tf.convert_to_tensor(inputs).shape, channels_axis)
    return _with_variables(
        "InstanceNorm", inputs, channels, channels_axis, reduction_axes, center, scale, epsilon,
        param_initializers, reuse, variables_collections, trainable, scope,
    )


def _with_variables(
    kind: str, inputs: Any, groups: int, channels_axis: int, reduction_axes: Any, center: bool,
    scale: bool, epsilon: float, initializers: Any, reuse: bool | None, collections: Any,
    trainable: bool, scope: Any,
) -> Any:
    """Normalise with the variables of a scope of TensorFlow 1."""
    inputs = tf.convert_to_tensor(inputs)
    if reduction_axes is not None:
        note("reduction_axes is deprecated as it has no effect.")
    _, channels = channels_of(inputs.shape, channels_axis, groups)
    v1, starts, dtype = tf.compat.v1, initializers or {}, inputs.dtype.base_dtype

    def parameter(name: str, is_wanted: bool, start: Any) -> Any:
        if not is_wanted:
            return start()((channels,), dtype)
        where = collections.get(name) if isinstance(collections, dict) else collections
        return v1.get_variable(
            name, (channels,), dtype, starts.get(name, start()), collections=where,
            trainable=trainable,
        )

    with v1.variable_scope(scope, kind, [inputs], reuse=reuse):
        beta = parameter("beta", center, v1.zeros_initializer)
        gamma = parameter("gamma", scale, v1.ones_initializer)
        return normalised(inputs, gamma, beta, groups, channels_axis, epsilon)


def channels_of(shape: Any, axis: int, groups: int | None = None) -> tuple[int, int]:
    """The axis of the channels, counted from the front, and their number.

    Raises    ValueError for another axis than 1 and the last, unknown shapes, and groups that do
              not divide the channels.
    """
    if shape.rank is None:
        raise ValueError("Inputs have an undefined rank.")
    if not -shape.rank <= axis < shape.rank:
        raise ValueError("Axis is out of bounds.")
    axis %= shape.rank
    if axis not in (1, shape.rank - 1):
        raise ValueError(
            "Unsupported data format, group norm only supports NCHW (channel axis 1) and NHWC "
            "(channel axis -1)."
        )
    channels = shape[axis]
    if channels is None:
        raise ValueError(f"Inputs have an undefined channel dimension: {axis}.")
    if groups is not None and not 0 < groups <= channels:
        raise ValueError(f"Invalid groups {groups} for {channels} channels.")
    if groups is not None and channels % groups:
        raise ValueError(f"{channels} channels is not commensurate with {groups} groups.")
    return axis, int(channels)


def normalised(
    x: Any, gamma: Any, beta: Any, groups: int, channels_axis: int = -1, epsilon: float = 1e-6,
    strided: bool = True,
) -> Any:
    """x whitened by groups of channels, times gamma, plus beta.

    strided    whether a group takes every groups-th channel, else neighbours.
    """
    axis, _ = channels_of(x.shape, channels_axis, groups)
    rank = x.shape.rank
    last = [i for i in range(rank) if i != axis] + [axis]
    if axis != rank - 1:
        x = tf.transpose(x, last)
    y = _Norm(groups, strided, epsilon)(x, tf.convert_to_tensor(gamma), tf.convert_to_tensor(beta))
    return y if axis == rank - 1 else tf.transpose(y, [last.index(i) for i in range(rank)])


class _Norm:
    """The node of a group norm, and its gradient."""

    def __init__(self, groups: int, strided: bool, epsilon: float) -> None:
        self.groups, self.strided, self.epsilon = groups, strided, epsilon

    def __call__(self, x: Any, gamma: Any, beta: Any) -> Any:
        specs = [tf.TensorSpec(t.shape, t.dtype) for t in (x, gamma, beta)]
        marks = {"groups": self.groups, "strided": self.strided, "epsilon": self.epsilon}

        rule = partial(ops.group_norm.forward, stable=True, **marks)

        @tf.custom_gradient  # type: ignore[untyped-decorator]
        def compute(x: Any, gamma: Any, beta: Any) -> Any:
            y, saved = composite("GroupNorm", [x, gamma, beta], [specs[0], SAVED], rule, **marks)

            def gradient(upstream: Any) -> Any:
                with gradient_of(y):
                    return composite(
                        "GroupNormGrad", [upstream, x, gamma, beta, saved], specs, slopes, **marks
                    )

            return y, gradient

        def slopes(device: Device, upstream: Array, *operands: Any) -> tuple[Array, ...]:
            """TensorFlow keeps the operands: what the rule saves is computed again."""
            _, saved = rule(device, *operands[:3])
            return tuple(
                ops.group_norm.pull(i, device, upstream, saved, groups=self.groups,
                                    strided=self.strided)
                for i in range(3)
            )

        return compute(x, gamma, beta)


# The machine ------------------------------------------------------------------------------------

_RULE = "as the rule of ipu.learn: statistics in binary32, each operation after that"


def _options(site: NodeSite) -> dict[str, Any]:
    marks = site.node.marks
    return {"groups": marks["groups"], "strided": marks["strided"]}


@kernel("GroupNorm", of=ops.group_norm, rounding=_RULE, keeps=True)
def _group_norm(site: NodeSite) -> Run:
    device, fmt, options = site.device, site.fmt, _options(site)
    epsilon, stable = float(site.node.marks["epsilon"]), site.machine.stable_norms
    assert fmt is not None

    def run(*operands: Array) -> tuple[Array, Any]:
        x, gamma, beta = (device.cast(operand, fmt) for operand in operands)
        return ops.group_norm.forward(
            device, x, gamma, beta, epsilon=epsilon, stable=stable, **options
        )

    return run


@kernel("GroupNormGrad", of=ops.group_norm, gradient=True, rounding=_RULE, keeps=True)
def _group_norm_gradient(site: NodeSite) -> Run:
    device, options = site.device, _options(site)
    rules = [gradient_rule(ops.group_norm, argument) for argument in range(3)]

    def run(upstream: Array, x: Array, gamma: Array, beta: Array, saved: Any) -> Any:
        upstream = device.cast(upstream, saved[0].format)
        to_x, *others = (rule(device, upstream, saved, **options) for rule in rules)
        formats = (gamma.format, beta.format)
        return to_x, *map(device.cast, others, formats)

    return run
