"""The end of an outfeed in a program: what all replicas send at once is one element."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tensorflow.python.ops import script_ops

from ipu.frontends.tensorflow.engine.values import leave
from ipu.frontends.tensorflow.kernels.table import NodeSite, Run, kernel

__all__: list[str] = []


@kernel("Enqueue", rounding="none", is_any=True, keeps=True, is_joint=True)
def _enqueue(site: NodeSite) -> Run:
    """Tensors of several replicas lie side by side along a new first axis."""
    put = script_ops._py_funcs.get(site.attr("token").decode())
    kinds = [tensor.dtype for tensor in site.node.inputs]

    def run(inputs: Sequence[Sequence[Any]]) -> list[Any]:
        rows = [[leave(v, k) for v, k in zip(row, kinds, strict=True)] for row in inputs]
        put(*(rows[0] if len(rows) == 1 else map(np.stack, zip(*rows, strict=True))))
        return [()] * len(rows)

    return run
