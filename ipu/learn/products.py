"""Products of a layer, by the policy that holds where it is called: in quarters, or as they are."""

from __future__ import annotations

from typing import Any

from fpsim.records.formats import F143
from ipu.learn import fp8, ops
from ipu.learn.tensor import Tensor
from ipu.learn.variables import current_policy

__all__ = ["conv2d", "matmul"]


def matmul(x: Tensor, y: Tensor, **options: Any) -> Tensor:
    """x @ y, of quarters where the policy says so."""
    return (fp8.matmul if _in_quarters() else ops.matmul)(x, y, **options)


def conv2d(x: Tensor, w: Tensor, **options: Any) -> Tensor:
    """Images with kernels, of quarters where the policy says so."""
    return (fp8.conv2d if _in_quarters() else ops.conv2d)(x, w, **options)


def _in_quarters() -> bool:
    policy = current_policy()
    return policy is not None and policy.compute == F143
