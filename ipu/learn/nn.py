"""Layers: their scopes, the formats that their policies choose, and the units of their products.

Without a policy a layer computes in the format of its input. Batch norm and dropout ask
`ipu.learn.mode` whether they train.

Source    docs/semantics.md §6.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from fpsim.elementwise.sizes import checked_count, checked_number
from fpsim.records.formats import Format
from fpsim.records.geometry import Padding, Pair, Stride
from ipu import ops
from ipu.learn.address import moment_of
from ipu.learn.mode import PendingUpdates, current_updates
from ipu.learn.policy import Policy
from ipu.learn.scopes import partials_type
from ipu.learn.tensor import Tensor, checked_tensor
from ipu.learn.variables import (
    Variable,
    current_policy,
    get_variable,
    is_overridden,
    variable_scope,
)
from ipu.learn.variables.initialisers import Initialiser, ones, zeros
from ipu.learn.worker import SCOPE
from ipu.machine.device import Device
from ipu.machine.reference import wide
from ipu.ops import fp8, norms
from ipu.ops.dense import LayerRecipe

__all__ = [
    "average_pool", "batch_norm", "conv", "dense", "dropout", "flatten", "gelu", "group_norm",
    "layer_norm", "max_pool", "recomputation_checkpoint", "relu", "sigmoid", "softmax", "tanh",
]

relu, gelu, tanh, sigmoid, softmax = ops.relu, ops.gelu, ops.tanh, ops.sigmoid, ops.softmax
recomputation_checkpoint = ops.recomputation_checkpoint


# A layer and its policy -------------------------------------------------------------------------


def in_layer(op_name: str, x: Tensor, body: Callable[[Tensor], Tensor]) -> Tensor:
    """body(x) in the scope `op_name`, in the formats of the policy that holds there.

    Rounding  x once into the layer's format, the result once into the format of the layer's output,
              where these differ. Without a policy a layer computes in the format of its input.
    """
    checked_tensor(x, "a layer")
    with variable_scope(op_name, use_resource=True):
        policy = current_policy()
        if policy is None:
            return body(x)
        if is_overridden(policy) and x.device.partials != policy.partials:
            with partials_type(policy.partials, x.device):
                return _in_formats(policy, x, body)
        return _in_formats(policy, x, body)


def _in_formats(policy: Policy, x: Tensor, body: Callable[[Tensor], Tensor]) -> Tensor:
    return _in_format(policy.output, body(_in_format(policy.activations, x)))


def _in_format(fmt: Format, x: Tensor) -> Tensor:
    before = x.dtype
    return x if before is fmt or before == fmt else ops.cast(x, dtype=fmt)


def _matmul(x: Tensor, y: Tensor) -> Tensor:
    """x @ y, of quarters or by a recipe where the policy says so."""
    recipe = _recipe_of(x)
    if recipe is not None:
        return ops.matmul(x, y, recipe=recipe)
    return (fp8.matmul if _in_quarters(current_policy()) else ops.matmul)(x, y)


def _conv2d(
    x: Tensor, w: Tensor, *, stride: Stride = 1, padding: Padding = "SAME", groups: int = 1
) -> Tensor:
    """Images with kernels, of quarters or by a recipe where the policy says so."""
    extents: dict[str, Any] = {"stride": stride, "padding": padding, "groups": groups}
    recipe = _recipe_of(x)
    if recipe is None:
        return (fp8.conv2d if _in_quarters(current_policy()) else ops.conv2d)(x, w, **extents)
    if groups == 1:
        return ops.conv2d(x, w, recipe=recipe, **extents)
    x.device.blocks.note_outside(recipe.layer, "conv2d in groups", recipe.recipe, x.dtype)
    return ops.conv2d(x, w, **extents)


def _recipe_of(x: Tensor) -> LayerRecipe | None:
    """The recipe of the layer that computes, at this moment."""
    policy = current_policy()
    if policy is None or policy.recipe is None:
        return None
    moment = moment_of(x.device.clock.operation)
    return LayerRecipe(policy.recipe, _layer_of(x.device), moment)


def _layer_of(device: Device) -> str:
    """The name of the layer that computes, as policies know it."""
    return device.tensor.removeprefix(SCOPE).removeprefix("/")


def _in_quarters(policy: Policy | None) -> bool:
    return policy is not None and policy.in_quarters


# Layers -----------------------------------------------------------------------------------------


def dense(x: Tensor, units: int, op_name: str, *, initializer: Initialiser | None = None) -> Tensor:
    """x @ weights + biases, with variables of the input's format in the scope `op_name`.

    Shapes    x (batch, n): result (batch, units).
    Rounding  the product as the matrix unit does, once into the format; the sum once.

    >>> from ipu.learn.variables import Variables
    >>> device = Device()
    >>> x = Tensor(device.from_host([[1.0, 2.0, 4.0]], "binary16"), device)
    >>> with Variables(device) as variables:
    ...     dense(x, 2, "last", initializer=ones).array.values.tolist()
    [[7.0, 7.0]]
    >>> variables
    Variables(last/weights: binary16 (3, 2), last/biases: binary16 (2,))
    """
    checked_count("units", units, 1)
    if len(checked_tensor(x, "dense").shape) != 2:
        raise ValueError(f"dense takes a matrix (batch, n), got shape {x.shape}; reshape it")

    def body(x: Tensor) -> Tensor:
        weights = get_variable("weights", [x.shape[1], units], x.dtype, initializer)
        biases = get_variable("biases", [units], x.dtype, zeros)
        return ops.bias(_matmul(x, weights), biases, in_place=True)

    return in_layer(op_name, x, body)


def conv(
    x: Tensor, filters: int, kernel_size: int | Pair, op_name: str, *, stride: Stride = 1,
    padding: Padding = "SAME", groups: int = 1, use_bias: bool = True,
    initializer: Initialiser | None = None,
) -> Tensor:
    """The convolution of images with kernels, plus biases, with variables in the scope `op_name`.

    Shapes    x (batch, height, width, channels): result (batch, …, filters).
    Rounding  the product as the unit of the rule does, once into the format; the sum once.

    >>> from ipu.learn.variables import Variables
    >>> device = Device()
    >>> x = Tensor(device.from_host([[[[1.0]] * 3] * 2], "binary16"), device)
    >>> with Variables(device):
    ...     conv(x, 1, 3, "conv", initializer=ones).array.values[0, :, :, 0].tolist()
    [[4.0, 6.0, 4.0], [4.0, 6.0, 4.0]]
    """
    _check_images("conv", x)
    checked_count("filters", filters, 1)
    checked_count("groups", groups, 1)
    pair = isinstance(kernel_size, (tuple, list)) and len(kernel_size) == 2
    size = tuple(kernel_size) if pair else (kernel_size, kernel_size)  # type: ignore[arg-type]
    for extent in size:
        checked_count("kernel_size", extent, 1)

    def body(x: Tensor) -> Tensor:
        shape = [*size, x.shape[3] // groups, filters]
        weights = get_variable("weights", shape, x.dtype, initializer)
        y = _conv2d(x, weights, stride=stride, padding=padding, groups=groups)
        if not use_bias:
            return y
        return ops.bias(y, get_variable("biases", [filters], x.dtype, zeros), in_place=True)

    return in_layer(op_name, x, body)


def max_pool(
    x: Tensor, size: int | Pair, *, stride: Stride | None = None, padding: Padding = "VALID"
) -> Tensor:
    """The largest of every window; stride: by default, windows side by side.

    >>> device = Device()
    >>> x = Tensor(device.from_host([[[[1.0], [2.0]], [[3.0], [5.0]]]], "binary16"), device)
    >>> max_pool(x, 2).array.values.ravel().tolist()
    [5.0]
    """
    return ops.max_pool(x, size=size, stride=stride, padding=padding)


def average_pool(
    x: Tensor, size: int | Pair, *, stride: Stride | None = None, padding: Padding = "VALID"
) -> Tensor:
    """The average of every window; stride: by default, windows side by side.

    >>> device = Device()
    >>> x = Tensor(device.from_host([[[[1.0], [2.0]], [[3.0], [5.0]]]], "binary16"), device)
    >>> average_pool(x, 2).array.values.ravel().tolist()
    [2.75]
    """
    return ops.average_pool(x, size=size, stride=stride, padding=padding)


def dropout(x: Tensor, rate: float) -> Tensor:
    """In training, elements are dropped with this probability and the rest grows by 1/(1 - rate).

    Raises    ValueError for a rate outside 0 to 1, also where nothing is dropped.

    >>> device = Device()
    >>> x = Tensor(device.from_host([[1.0] * 4], "binary16"), device)
    >>> dropout(x, 0.5).array.values.tolist()  # outside of training everything stays
    [[1.0, 1.0, 1.0, 1.0]]
    """
    checked_tensor(x, "dropout")
    if not 0 <= checked_number("rate", rate) < 1:
        raise ValueError(f"rate={rate} is not a probability of dropping; use 0 to less than 1")
    if current_updates() is None or rate == 0:
        return x
    return ops.dropout(x, keep=1 - rate)


def flatten(x: Tensor) -> Tensor:
    """Everything but the batch in one axis.

    >>> device = Device()
    >>> flatten(Tensor(device.zeros((8, 28, 28, 3), "binary16"), device)).shape
    (8, 2352)
    """
    checked_tensor(x, "flatten")
    return ops.reshape(x, shape=(x.shape[0], math.prod(x.shape[1:])))


def _check_images(name: str, x: Tensor) -> None:
    if len(checked_tensor(x, name).shape) != 4:
        raise ValueError(f"{name} takes images (batch, y, x, channels), got shape {x.shape}")


# Norms ----------------------------------------------------------------------------------------


def batch_norm(
    x: Tensor, op_name: str, *, epsilon: float = 1e-3, momentum: float = 0.99,
    use_stable_statistics: bool = False,
) -> Tensor:
    """Normalised by the statistics of the batch in training, by moving ones otherwise.

    Shapes    x (…, channels), as the result.
    Rounding  as `ipu.ops.norms` says. Moving statistics are binary32 variables, which take
              moving + (of the batch - moving) · fl(1 - momentum), each step rounded.

    >>> from ipu.learn.variables import Variables
    >>> device = Device()
    >>> x = Tensor(device.from_host([[1.0], [3.0]], "binary16"), device)
    >>> with Variables(device) as variables:
    ...     batch_norm(x, "norm").array.values.tolist()  # moving statistics, which begin at 0 and 1
    [[0.99951171875], [2.998046875]]
    """

    def body(x: Tensor) -> Tensor:
        gamma, beta = _gamma_and_beta(x)
        moving = [_moving("moving_mean", x, zeros), _moving("moving_variance", x, ones)]
        updates = current_updates()
        if updates is None:
            mean, variance = (v.array for v in moving)
            deviation = norms.inverse_deviation(x.device, variance, epsilon)
            mean, inverse = (x.device.cast(a, x.dtype) for a in (mean, deviation))
            return ops.normalise(x, gamma, beta, mean=mean, inverse=inverse)
        batch = norms.batch_statistics(x.device, x.array, epsilon, use_stable_statistics)
        _note(updates, moving, batch, 1 - momentum)
        return ops.batch_norm(x, gamma, beta, epsilon=epsilon, statistics=batch)

    return in_layer(op_name, x, body)


def group_norm(
    x: Tensor, groups: int, op_name: str, *, epsilon: float = 1e-3, strided: bool = True,
    use_stable_statistics: bool = False,
) -> Tensor:
    """Normalised in each image over groups of channels: every `groups`-th, or neighbours.

    >>> from ipu.learn.variables import Variables
    >>> device = Device()
    >>> x = Tensor(device.from_host([[[[1.0, 2.0, 30.0, 40.0]]]], "binary16"), device)
    >>> with Variables(device):
    ...     group_norm(x, 2, "norm", strided=False, epsilon=0.0).array.values.ravel().tolist()
    [-1.0, 1.0, -1.0, 1.0]
    """
    checked_count("groups", groups, 1)

    def body(x: Tensor) -> Tensor:
        return ops.group_norm(
            x, *_gamma_and_beta(x), groups=groups, strided=strided, epsilon=epsilon,
            stable=use_stable_statistics,
        )

    return in_layer(op_name, x, body)


def layer_norm(
    x: Tensor, op_name: str, *, epsilon: float = 1e-3, use_stable_statistics: bool = False
) -> Tensor:
    """Normalised in each image over all of it.

    >>> from ipu.learn.variables import Variables
    >>> device = Device()
    >>> x = Tensor(device.from_host([[1.0, 2.0, 30.0, 40.0]], "binary16"), device)
    >>> with Variables(device):
    ...     print(layer_norm(x, "norm").array.values.round(2))
    [[-1.01 -0.95  0.69  1.27]]
    """

    def body(x: Tensor) -> Tensor:
        scaling = _gamma_and_beta(x)
        return ops.layer_norm(x, *scaling, epsilon=epsilon, stable=use_stable_statistics)

    return in_layer(op_name, x, body)


def _gamma_and_beta(x: Tensor) -> tuple[Tensor, Tensor]:
    channels = [x.shape[-1]]
    gamma = get_variable("gamma", channels, x.dtype, ones)
    return gamma, get_variable("beta", channels, x.dtype, zeros)


def _moving(name: str, x: Tensor, initializer: Initialiser) -> Variable:
    variable = get_variable(name, [x.shape[-1]], wide(x.dtype), initializer, trainable=False)
    if not isinstance(variable, Variable):
        raise TypeError(
            f"{name} came as a {type(variable).__name__} from a custom getter; "
            "leave variables that are not trainable as they are"
        )
    return variable


def _note(
    updates: PendingUpdates, moving: list[Variable], batch: norms.Statistics, weight: float
) -> None:
    if updates.repeating:
        return
    device = moving[0].device
    for variable, now in zip(moving, (batch.mean, batch.variance), strict=True):
        before = updates.value(variable)
        distance = device.subtract(device.cast(now.reshape(-1), variable.dtype), before)
        updates.note(variable, device.add(before, device.multiply(distance, weight)))
