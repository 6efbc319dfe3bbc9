"""What a branch hands to its gradient: values that may be there, and stand-ins for absent ones.

The gradient of `tf.cond` and `tf.switch_case` reads intermediate values of the branch that was
taken. The other branches give a `FakeParam`, or an optional without a value, which nothing reads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from ipu.frontends.tensorflow.kernels.moving.lists import TensorList
from ipu.frontends.tensorflow.kernels.table import NodeSite, Run, kernel, single

__all__ = ["Optional"]


@dataclass(frozen=True)
class Optional:
    """Values of one place; None: there are none."""

    values: tuple[Any, ...] | None = None


@kernel("FakeParam", rounding="none", is_any=True, keeps=True)
def _stand_in(site: NodeSite) -> Run:
    kind = site.attr("dtype")
    if kind == tf.variant:
        return lambda: TensorList((), ())
    shape, fmt = tf.TensorShape(site.attr("shape")), site.format_of(kind)
    sizes = tuple(n or 0 for n in shape.as_list()) if shape.rank is not None else (0,)
    empty = site.device.zeros(sizes, fmt) if fmt else np.zeros(sizes, kind.as_numpy_dtype)
    return lambda: empty


@kernel("OptionalFromValue", rounding="none", is_any=True, keeps=True)
def _present(site: NodeSite) -> Run:
    return lambda *values: Optional(values)


@kernel("OptionalNone", rounding="none", is_any=True, keeps=True)
def _absent(site: NodeSite) -> Run:
    return lambda: Optional()


@kernel("OptionalHasValue", rounding="none", is_any=True, keeps=True)
def _has_value(site: NodeSite) -> Run:
    return lambda optional: np.array(optional.values is not None)


@kernel("OptionalGetValue", rounding="none", is_any=True, keeps=True)
def _value(site: NodeSite) -> Run:
    def run(optional: Optional) -> Any:
        if optional.values is None:
            raise ValueError(f"node {site.node.name} reads an optional that has no value")
        return single(optional.values)

    return run
