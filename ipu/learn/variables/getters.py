"""Custom getters: what stands between a layer and its variables.

`fp32_parameter_getter` keeps parameters in binary32 and hands the layer a copy in the format that
it computes in; `policy_getter` does so where the policy of the layer asks for it.

Source    Graphcore's TensorFlow 1 tutorial on half precision (custom getter).
"""

from __future__ import annotations

from typing import Any

from fpsim.records.formats import BINARY32, Format
from ipu import ops
from ipu.learn.tensor import Tensor
from ipu.learn.variables.initialisers import Initialiser
from ipu.learn.variables.regularisers import Regulariser
from ipu.learn.variables.scope import Getter, current_policy

__all__ = ["fp32_parameter_getter", "policy_getter"]


def fp32_parameter_getter(
    getter: Getter,
    name: str,
    shape: Any = None,
    dtype: Format = BINARY32,
    initializer: Initialiser | None = None,
    trainable: bool = True,
    regularizer: Regulariser | None = None,
) -> Tensor:
    """Custom getter: parameters are binary32, the layer gets a copy in its own format.

    The gradient of the cast goes back to binary32, so the parameters are also updated in binary32.

    >>> from fpsim import BINARY16
    >>> from ipu.learn.variables import Variables, get_variable, variable_scope
    >>> from ipu.machine import Device
    >>> with Variables(Device()) as variables, variable_scope(
    ...     "all_vars", use_resource=True, custom_getter=fp32_parameter_getter
    ... ):
    ...     get_variable("weights", [2, 2], BINARY16)
    Tensor('all_vars/weights_cast', shape=(2, 2), binary16)
    >>> variables["all_vars/weights"].dtype
    <Format binary32: 8 exponent bits, precision 24>
    """
    fmt = BINARY32 if trainable else dtype
    variable = getter(
        name, shape=shape, dtype=fmt, initializer=initializer, trainable=trainable,
        **_if_any(regularizer),
    )
    return variable if fmt == dtype else ops.cast(variable, dtype=dtype, name=name + "_cast")


def policy_getter(
    getter: Getter,
    name: str,
    shape: Any = None,
    dtype: Format = BINARY32,
    initializer: Initialiser | None = None,
    trainable: bool = True,
    regularizer: Regulariser | None = None,
) -> Tensor:
    """Custom getter: parameters in the format in which the policy of their layer keeps them.

    Raises    RuntimeError where the variables have no policy.
    """
    policy = current_policy()
    if policy is None:
        raise RuntimeError("the variables have no policy; pass one: Variables(device, policy=…)")
    if policy.has_single_parameters:
        return fp32_parameter_getter(
            getter, name, shape, dtype, initializer, trainable, regularizer
        )
    return getter(
        name, shape=shape, dtype=dtype, initializer=initializer, trainable=trainable,
        **_if_any(regularizer),
    )


def _if_any(regularizer: Regulariser | None) -> dict[str, Regulariser]:
    """Getters of users need not know of regularisers where there are none."""
    return {} if regularizer is None else {"regularizer": regularizer}
