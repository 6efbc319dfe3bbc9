"""Maximum and average over windows of images NHWC, by the rules of `ipu.ops`."""

from __future__ import annotations

import weakref
from typing import Any

from fpsim.array import Array
from ipu import ops
from ipu.frontends.tensorflow.kernels.products import images_last, padding_of
from ipu.frontends.tensorflow.kernels.table import NodeSite, Run, gradient_rule, kernel

__all__: list[str] = []


def _options(site: NodeSite) -> dict[str, Any]:
    images_last(site)
    sizes, strides = list(site.attr("ksize")), list(site.attr("strides"))
    if sizes[0] != 1 or sizes[3] != 1:
        raise NotImplementedError(f"node {site.node.name} pools over images or channels")
    return {
        "size": (sizes[1], sizes[2]), "stride": (strides[1], strides[2]),
        "padding": padding_of(site),
    }


#: What the forward pass of a maximum has saved, by the memory of its result, as long as that lives.
_saved: dict[int, tuple[weakref.ref[Any], Any]] = {}


def _keep(y: Array, saved: Any) -> None:
    key = id(y.carrier)
    _saved[key] = weakref.ref(y.carrier, lambda _: _saved.pop(key, None)), saved


def _remembered(y: Array) -> Any:
    entry = _saved.get(id(y.carrier))
    return entry[1] if entry is not None and entry[0]() is y.carrier else None


@kernel("MaxPool", of=ops.max_pool)
def _max_pool(site: NodeSite) -> Run:
    device, options = site.device, _options(site) | {"ties": site.ties}

    def run(x: Array) -> Array:
        y, saved = ops.max_pool.forward(device, x, **options)
        _keep(y, saved)
        return y

    return run


@kernel("MaxPoolGrad", of=ops.max_pool, gradient=True)
def _max_pool_gradient(site: NodeSite) -> Run:
    """By what the forward node has saved; computed again where the tensors were cast between."""
    device, options = site.device, _options(site) | {"ties": site.ties}

    def run(x: Array, y: Array, gradient: Array) -> Any:
        saved = _remembered(y)
        if saved is None:
            saved = ops.max_pool.forward(device, x, **options)[1]
        return gradient_rule(ops.max_pool)(device, gradient, saved)

    return run


@kernel("AvgPool", of=ops.average_pool)
def _average_pool(site: NodeSite) -> Run:
    device, options = site.device, _options(site)
    return lambda x: ops.average_pool.forward(device, x, **options)[0]


@kernel("AvgPoolGrad", of=ops.average_pool, gradient=True)
def _average_pool_gradient(site: NodeSite) -> Run:
    device, options = site.device, _options(site)

    def run(shape: Any, gradient: Array) -> Any:
        like = device.zeros(tuple(int(n) for n in shape), gradient.format)
        saved = ops.average_pool.forward(device, like, **options)[1]
        return gradient_rule(ops.average_pool)(device, gradient, saved)

    return run
