"""Random numbers of a program: by the machine's seed and the place of the node.

A stateful node draws by the number of its place (docs/semantics.md §2), as an operation that rounds
stochastically does, so its numbers differ by step, micro-batch and replica and are the same in
every run; seeds of TensorFlow's nodes do not matter. Uniform numbers have 23 bits in float32 and 10
in half, as on TensorFlow; normal ones are computed in binary64 on the host and rounded once, to
nearest. A stateless node gives what TensorFlow's kernel gives for its seed.

Source    TensorFlow's random_distributions.h (bits of uniform numbers); which generator serves the
          vendor's nodes is not known (ASSUMED: any).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

from fpsim.array import Array
from ipu.frontends.tensorflow.engine.values import enter
from ipu.frontends.tensorflow.kernels.host import own_kernel
from ipu.frontends.tensorflow.kernels.table import Run, Site, kernel

__all__: list[str] = []

Generator = np.random.Generator


def _generator(site: Site) -> Generator:
    """Numbers of the place that the executor has set; the next node there draws others."""
    clock = site.machine.clock
    number = clock.operation
    clock.operation = number + 1
    return np.random.Generator(np.random.Philox(key=[site.machine.seed, number]))


def _drawn(site: Site, draw: Callable[[Generator, tuple[int, ...]], Any]) -> Run:
    fmt = site.fmt
    assert fmt is not None

    def run(shape: Any) -> Array:
        values = draw(_generator(site), tuple(int(n) for n in shape))
        return site.device.from_host(values, fmt)

    return run


@kernel("RandomUniform", rounding="none", draws=True)
def _uniform(site: Site) -> Run:
    bits = 23 if site.attr("dtype").size == 4 else 10 if site.attr("dtype").name == "float16" else 7
    return _drawn(site, lambda g, shape: g.integers(0, 1 << bits, shape) * 2.0**-bits)


@kernel("RandomStandardNormal", rounding="once, to nearest", draws=True, on_host=True)
def _normal(site: Site) -> Run:
    return _drawn(site, lambda g, shape: g.standard_normal(shape))


@kernel("TruncatedNormal", rounding="once, to nearest", draws=True, on_host=True)
def _truncated_normal(site: Site) -> Run:
    """A normal number within two deviations, by the inverse of its distribution."""
    low, high = ndtr(-2.0), ndtr(2.0)
    return _drawn(site, lambda g, shape: ndtri(low + (high - low) * g.random(shape)))


@kernel("StatelessRandomUniformV2", "StatelessRandomNormalV2", "StatelessTruncatedNormalV2",
        rounding="to nearest on the host")  # fmt: skip
def _stateless(site: Site) -> Run:
    own, device, fmt = own_kernel(site), site.device, site.fmt
    assert fmt is not None
    return lambda *values: enter(device, own(*values), fmt)
