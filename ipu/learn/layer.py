"""One layer: its scope, the formats that its policy chooses for it, and the unit of its products.

Source    docs/semantics.md §6.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from fpsim.records.formats import F143, Format
from fpsim.records.geometry import Padding, Stride
from ipu import ops
from ipu.learn.policy import Policy
from ipu.learn.scopes import partials_type
from ipu.learn.tensor import Tensor, checked_tensor
from ipu.learn.variables import current_policy, is_overridden, variable_scope
from ipu.machine.device import Device
from ipu.ops import fp8

__all__ = ["conv2d", "in_layer", "matmul"]


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
        with _partials(policy, x.device):
            return _in_format(policy.output, body(_in_format(policy.activations, x)))


def _partials(policy: Policy, device: Device) -> AbstractContextManager[None]:
    """Those of the layer's policy, where it is not the model's."""
    if is_overridden() and device.partials != policy.partials:
        return partials_type(policy.partials, device)
    return nullcontext()


def _in_format(fmt: Format, x: Tensor) -> Tensor:
    return x if x.dtype == fmt else ops.cast(x, dtype=fmt)


def matmul(x: Tensor, y: Tensor) -> Tensor:
    """x @ y, of quarters where the policy says so."""
    return (fp8.matmul if _in_quarters() else ops.matmul)(x, y)


def conv2d(
    x: Tensor, w: Tensor, *, stride: Stride = 1, padding: Padding = "SAME", groups: int = 1
) -> Tensor:
    """Images with kernels, of quarters where the policy says so."""
    convolve = fp8.conv2d if _in_quarters() else ops.conv2d
    return convolve(x, w, stride=stride, padding=padding, groups=groups)


def _in_quarters() -> bool:
    policy = current_policy()
    return policy is not None and policy.compute == F143
