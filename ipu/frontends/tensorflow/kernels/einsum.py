"""Einsum: a product of matrices, batch by batch, of operands whose axes were put in order.

Labels that only one operand has, and the result lacks, are summed before. Without a label to
contract it is a product element by element.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fpsim.array import Array
from ipu.frontends.tensorflow.kernels.table import Run, Site, kernel
from ipu.machine.device import Device

__all__: list[str] = []

#: Labels that stand for the axes of an ellipsis, its last axis first.
_HIDDEN = "ZYXWVUTSRQPONMLKJIHGFEDCBA"


@kernel("Einsum", rounding="sums of one operand once; the product as the unit's record says")
def _einsum(site: Site) -> Run:
    device, partials = site.device, site.partials("matmul")
    left, _, result = site.attr("equation").decode().replace(" ", "").partition("->")

    def run(*operands: Array) -> Array:
        terms, wanted = _labels(left.split(","), result, [x.ndim for x in operands])
        unique = "".join(dict.fromkeys(wanted))
        pairs = [_plain(x, labels) for x, labels in zip(operands, terms, strict=True)]
        if len(pairs) == 1:
            ((x, labels),) = pairs
            y = _ordered(*_summed(device, x, labels, unique), unique)
        else:
            (x, a), (y, b) = pairs
            x, a = _summed(device, x, a, unique + b)
            y, b = _summed(device, y, b, unique + a)
            y = _product(device, (x, a), (y, b), unique, partials)
        return y if unique == wanted else _on_diagonal(device, y, unique, wanted)

    return run


def _labels(terms: Sequence[str], result: str, ranks: Sequence[int]) -> tuple[list[str], str]:
    """Labels of all axes: those of an ellipsis are aligned at its last axis."""
    longest = 0
    named = []
    for term, rank in zip(terms, ranks, strict=True):
        hidden = rank - len(term.replace("...", ""))
        longest = max(longest, hidden)
        named.append(term.replace("...", _HIDDEN[:hidden][::-1]))
    return named, result.replace("...", _HIDDEN[:longest][::-1])


def _plain(x: Array, labels: str) -> tuple[Array, str]:
    """An operand without repeated labels: its diagonals."""
    unique = "".join(dict.fromkeys(labels))
    if unique == labels:
        return x, labels
    return x.like(np.array(_numpys(x.carrier, labels, unique), order="C")), unique


def _numpys(values: Any, before: str, after: str) -> Any:
    """numpy's view of a tensor with other labels; nothing is computed."""
    known = {label: i for i, label in enumerate(dict.fromkeys(before))}
    return np.einsum(values, [known[c] for c in before], [known[c] for c in after])


def _summed(device: Device, x: Array, labels: str, needed: str) -> tuple[Array, str]:
    """x summed over the labels that nothing needs."""
    axes = tuple(i for i, label in enumerate(labels) if label not in needed)
    if not axes:
        return x, labels
    kept = "".join(label for label in labels if label in needed)
    shape = [n for i, n in enumerate(x.shape) if i not in axes]
    return device.reduce_sum(x, axes).reshape(shape), kept


def _ordered(x: Array, labels: str, wanted: str) -> Array:
    """x with its axes in another order."""
    order = [labels.index(label) for label in wanted]
    return x.like(np.array(x.carrier.transpose(order), order="C"))


def _product(
    device: Device, left: tuple[Array, str], right: tuple[Array, str], wanted: str, partials: Any
) -> Array:
    (x, a), (y, b) = left, right
    shared = [label for label in a if label in b]
    batch = [label for label in shared if label in wanted]
    inner = [label for label in shared if label not in wanted]
    rows = [label for label in a if label not in b]
    columns = [label for label in b if label not in a]
    sizes = dict(zip(a, x.shape, strict=True))
    for label, n in zip(b, y.shape, strict=True):
        sizes[label] = max(n, sizes.get(label, n)) if 0 not in (n, sizes.get(label, n)) else 0
    x = _spread(_ordered(x, a, "".join([*batch, *rows, *inner])), [*batch, *rows, *inner], sizes)
    y = _spread(_ordered(y, b, "".join([*batch, *inner, *columns])), [*batch, *inner, *columns],
                sizes)  # fmt: skip
    counts = [math.prod(sizes[label] for label in group) for group in (batch, rows, inner, columns)]
    b_count, m, k, n = counts
    x, y = x.reshape(b_count, m, k), y.reshape(b_count, k, n)
    if not inner:
        z = device.multiply(x, y)
    elif batch:
        z = device.matmul(x, y, partials=partials)
    else:
        z = device.matmul(x.reshape(m, k), y.reshape(k, n), partials=partials)
    labels = [*batch, *rows, *columns]
    return _ordered(z.reshape([sizes[label] for label in labels]), "".join(labels), wanted)


def _spread(x: Array, labels: Sequence[str], sizes: dict[str, int]) -> Array:
    """x with axes of length 1 repeated to the lengths of the other operand's."""
    shape = tuple(sizes[label] for label in labels)
    return x if x.shape == shape else x.like(np.array(np.broadcast_to(x.carrier, shape)))


def _on_diagonal(device: Device, x: Array, labels: str, wanted: str) -> Array:
    """Zeros with x where repeated labels agree."""
    sizes = dict(zip(labels, x.shape, strict=True))
    y = device.zeros(tuple(sizes[label] for label in wanted), x.format)
    _numpys(y.carrier, wanted, labels)[...] = x.carrier
    return y
