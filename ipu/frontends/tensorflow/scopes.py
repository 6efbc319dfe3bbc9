"""`scopes`: where nodes run, and how they round; inner scopes win over outer ones.

Source    graphcore/tensorflow, tensorflow/python/ipu/scopes.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import tensorflow as tf

from ipu.frontends.tensorflow.engine.current import current
from ipu.frontends.tensorflow.engine.node import marked
from ipu.frontends.tensorflow.engine.values import enter, leave
from ipu.frontends.tensorflow.kernels.host import own_kernel
from ipu.frontends.tensorflow.kernels.table import TABLE, NodeSite, Run, kernel, single
from ipu.frontends.tensorflow.settings.notes import note

__all__ = [
    "frontend_attribute", "ipu_scope", "ipu_shard", "outside_compilation_scope", "partials_type",
    "stochastic_rounding",
]

#: Types of partial sums by the libraries' words.
_PARTIALS = {tf.float16: "half", tf.float32: "float"}


@contextmanager
def ipu_scope(device: str) -> Iterator[None]:
    """The nodes inside are for the machine: what `ipu_compiler.compile` builds runs there.

    device    as "/device:IPU:0"; a program has one machine. Variables inside are resources.
    """
    if not isinstance(device, str) or "IPU" not in device.upper():
        raise ValueError(f"device={device!r} is not an IPU; use '/device:IPU:0'")
    with tf.compat.v1.variable_scope("", use_resource=True):
        yield


@contextmanager
def ipu_shard(index: int | list[int]) -> Iterator[None]:
    """The nodes inside lie on that IPU of the program; no bit changes.

    A program takes 2, 4, 8 … IPUs; as many replicas run as the machine's hold.

    Raises    ValueError for IPUs of the machine that are no multiple of the program's.
    """
    numbers = index if isinstance(index, list) else [index]
    if any(isinstance(n, bool) or not isinstance(n, int) or n < 0 for n in numbers):
        raise ValueError(f"index={index!r} is not an IPU of the program; use 0, 1, 2 …")
    current().take(1 << max(numbers, default=0).bit_length())
    with marked(shard=",".join(map(str, numbers))):
        yield


@contextmanager
def stochastic_rounding(override: bool) -> Iterator[None]:
    """The nodes inside, and their gradients, round stochastically, or to nearest."""
    if not isinstance(override, bool):
        raise TypeError(f"override={override!r} is not a switch; use True or False")
    with marked(sr=override):
        yield


@contextmanager
def partials_type(override_type: Any) -> Iterator[None]:
    """Products inside, and their gradients, keep partial sums of this type.

    override_type    np.float16 or np.float32.
    """
    try:
        word = _PARTIALS[tf.as_dtype(np.dtype(override_type) if override_type else None)]
    except (KeyError, TypeError, ValueError):
        raise ValueError(
            f"override_type={override_type!r} is not a type of partial sums; use np.float16 or "
            "np.float32"
        ) from None
    with marked(partials=word):
        yield


@contextmanager
def outside_compilation_scope(name: str = "outside") -> Iterator[None]:
    """The nodes inside run on the host, by TensorFlow's own kernels.

    name    of their scope; it has no other meaning.
    """
    with tf.name_scope(name), marked(kernel="OutsideCompilation"):
        yield


@kernel("OutsideCompilation", rounding="on the host", is_any=True, keeps=True)
def _outside(site: NodeSite) -> Run:
    node = site.node
    if any(tensor.dtype == tf.resource for tensor in node.inputs) or node.type == "Const":
        return TABLE[node.type].build(site)
    run = own_kernel(site)
    kinds = [tensor.dtype for tensor in node.inputs]
    formats = [site.format_of(tensor.dtype) for tensor in node.outputs]

    def on_host(*values: Any) -> Any:
        results = run(*(leave(v, kind) for v, kind in zip(values, kinds, strict=True)))
        flat = [results] if len(formats) == 1 else results
        return single([
            value if fmt is None else enter(site.device, value, fmt)
            for value, fmt in zip(flat, formats, strict=True)
        ])

    return on_host


@contextmanager
def frontend_attribute(attribute_name: str, attribute_value: str) -> Iterator[None]:
    """An attribute for the vendor's compiler; the simulation reads none."""
    note(f"{attribute_name}={attribute_value!r} is accepted, but the simulation does not model it")
    yield
