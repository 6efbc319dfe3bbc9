"""Random numbers of a program: by the machine's seed and the place of the node.

A stateful node draws by the number of its place (docs/semantics.md §2), as an operation that rounds
stochastically does, so its numbers differ by step, micro-batch and replica and are the same in
every run; seeds of TensorFlow's nodes do not matter. Uniform numbers have 23 bits in float32 and 10
in half, as on TensorFlow. A stateless node gives what TensorFlow's kernel gives for its seed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fpsim.array import Array
from ipu import ops
from ipu.frontends.tensorflow.engine.values import FORMATS, enter
from ipu.frontends.tensorflow.kernels.host import own_kernel
from ipu.frontends.tensorflow.kernels.table import NodeSite, Run, kernel
from ipu.ops.primitive import Primitive

__all__: list[str] = []

Generator = np.random.Generator


def _generator(site: NodeSite) -> Generator:
    """Numbers of the place that the executor has set; the next node there draws others."""
    clock = site.machine.clock
    number = clock.operation
    clock.operation = number + 1
    return np.random.Generator(np.random.Philox(key=[site.machine.seed, number]))


def _drawn(site: NodeSite, row: Primitive, **options: Any) -> Run:
    device, fmt = site.device, site.fmt
    assert fmt is not None

    def run(shape: Any) -> Array:
        sizes = tuple(int(n) for n in shape)
        return row.value(device, shape=sizes, generator=_generator(site), dtype=fmt, **options)

    return run


@kernel("RandomUniform", of=ops.uniform, draws=True)
def _uniform(site: NodeSite) -> Run:
    return _drawn(site, ops.uniform, bits=FORMATS[site.attr("dtype")].precision - 1)


@kernel("RandomStandardNormal", of=ops.normal, draws=True, on_host=True)
def _normal(site: NodeSite) -> Run:
    return _drawn(site, ops.normal)


@kernel("TruncatedNormal", of=ops.truncated_normal, draws=True, on_host=True)
def _truncated_normal(site: NodeSite) -> Run:
    return _drawn(site, ops.truncated_normal)


@kernel("StatelessRandomUniformV2", "StatelessRandomNormalV2", "StatelessTruncatedNormalV2",
        rounding="to nearest on the host")
def _stateless(site: NodeSite) -> Run:
    kernel, device, fmt = own_kernel(site), site.device, site.fmt
    assert fmt is not None
    return lambda *values: enter(device, kernel(*values), fmt)
