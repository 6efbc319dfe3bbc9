"""Moves by TensorFlow's own kernels, on codes: integers of the width of the numbers.

No number is read, so no bit and no flag changes; a padding of +0 is the code 0. Nodes whose
gradients add what meets are in `rows` and `resizing`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from fpsim.array import Array
from ipu.frontends.tensorflow.engine.values import FORMATS
from ipu.frontends.tensorflow.kernels.host import own_kernel
from ipu.frontends.tensorflow.kernels.table import NodeSite, Run, kernel, single

__all__: list[str] = []

_CODES = {size: (np.dtype(f"i{size}"), tf.as_dtype(f"int{8 * size}")) for size in (2, 4)}


def _moved_codes(site: NodeSite) -> Run:
    """The kernel for carriers of two and of four bytes."""
    kernels = {
        size: own_kernel(site, kinds=dict.fromkeys(FORMATS, kind))
        for size, (_, kind) in _CODES.items()
    }

    def run(*values: Any) -> Any:
        first = next(value for value in values if isinstance(value, Array))
        size = first.carrier.itemsize
        code, _ = _CODES[size]
        results = kernels[size](*[
            np.ascontiguousarray(v.carrier).view(code).reshape(v.shape) if isinstance(v, Array)
            else v for v in values
        ])
        parts = results if isinstance(results, tuple) else (results,)
        return single([
            first.like(value.view(first.carrier.dtype)) if tensor.dtype in FORMATS else value
            for value, tensor in zip(parts, site.node.outputs, strict=True)
        ])

    return run


kernel("Roll", "ReverseSequence", "EnsureShape", "SpaceToDepth", "DepthToSpace", "SpaceToBatchND",
       "BatchToSpaceND", "MatrixDiagPartV3", "MatrixBandPart", "GatherNd", "ExtractImagePatches",
       "ResizeNearestNeighbor", "DynamicPartition",
       rounding="none", keeps=True)(_moved_codes)

#: What puts several tensors together takes them in one format.
kernel("MatrixDiagV3", "MatrixSetDiagV3", "TensorScatterUpdate", "DynamicStitch",
       "ParallelDynamicStitch", rounding="none, in one format")(_moved_codes)
