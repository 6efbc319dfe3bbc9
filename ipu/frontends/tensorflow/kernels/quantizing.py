"""Fake quantisation: names of the row of `ipu.ops.quantizing`, and of its gradient."""

from __future__ import annotations

from fpsim.array import Array
from ipu import ops
from ipu.frontends.tensorflow.kernels.table import NodeSite, Run, kernel

__all__: list[str] = []

_ARGS, _VARS, _CHANNELS = (
    f"FakeQuantWithMinMax{limits}" for limits in ("Args", "Vars", "VarsPerChannel")
)


def _ends(site: NodeSite) -> dict[str, Array]:
    """The first and the last number of the grid of a node."""
    first, last = float(site.attr("narrow_range")), 2.0 ** site.attr("num_bits") - 1
    return {"first": site.constant(first), "last": site.constant(last)}


def _limits(site: NodeSite) -> tuple[Array, Array]:
    """The limits that a node names."""
    return site.constant(site.attr("min")), site.constant(site.attr("max"))


@kernel(_VARS, _CHANNELS, of=ops.fake_quantize)
def _between(site: NodeSite) -> Run:
    device, ends = site.device, _ends(site)
    return lambda x, low, high: ops.fake_quantize.value(device, x, low, high, **ends)


@kernel(_ARGS, of=ops.fake_quantize)
def _between_numbers(site: NodeSite) -> Run:
    device, ends, limits = site.device, _ends(site), _limits(site)
    return lambda x: ops.fake_quantize.value(device, x, *limits, **ends)


@kernel(f"{_ARGS}Gradient", of=ops.fake_quantize, gradient=True)
def _gradient(site: NodeSite) -> Run:
    device, ends, limits = site.device, _ends(site), _limits(site)
    return lambda gradient, x: ops.fake_quantize.pull(0, device, gradient, (x, *limits), **ends)


@kernel(f"{_VARS}Gradient", f"{_CHANNELS}Gradient", of=ops.fake_quantize, gradient=True)
def _gradients(site: NodeSite) -> Run:
    device, ends, row = site.device, _ends(site), ops.fake_quantize

    def run(gradient: Array, *saved: Array) -> tuple[Array, ...]:
        return tuple(row.pull(k, device, gradient, saved, **ends) for k in range(3))

    return run
