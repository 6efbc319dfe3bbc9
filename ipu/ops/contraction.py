"""Einsum: a product of matrices, batch by batch, of operands whose axes were put in order.

Labels that only one operand has, and the result lacks, are summed before. Without a label to
contract it is a product element by element. The gradient of an operand is the einsum of the
gradient and the other operand.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fpsim.array import Array
from fpsim.records.formats import Format
from ipu.machine.device import Device
from ipu.ops.dense import LayerRecipe
from ipu.ops.passes import DensePass, product
from ipu.ops.primitive import OperationCost, Primitive
from ipu.ops.products import matmul
from ipu.ops.rules import Saved, sum_to

__all__ = ["DenseEinsum", "einsum"]

#: Labels that stand for the axes of an ellipsis, its last axis first.
_HIDDEN = "ZYXWVUTSRQPONMLKJIHGFEDCBA"

Term = tuple[Array, str]


class DenseEinsum(NamedTuple):
    """An einsum as a pass of a dense layer, by its recipe."""

    of: DensePass
    how: LayerRecipe


def _einsum(
    device: Device, *operands: Array, equation: str, partials: Format | None = None,
    dense: DenseEinsum | None = None,
) -> tuple[Array, Saved]:
    left, _, result = equation.replace(" ", "").partition("->")
    terms, wanted = _labels(left.split(","), result, [x.ndim for x in operands])
    pairs = list(zip(operands, terms, strict=True))
    return _of_terms(device, pairs, wanted, partials, dense), (*operands, terms, wanted, partials)


def _of_terms(
    device: Device, terms: Sequence[Term], wanted: str, partials: Format | None,
    dense: DenseEinsum | None = None,
) -> Array:
    """The einsum of operands with their labels, an ellipsis spelt out."""
    unique = "".join(dict.fromkeys(wanted))
    pairs = [_plain(x, labels) for x, labels in terms]
    if len(pairs) == 1:
        ((x, labels),) = pairs
        y = _ordered(*_summed(device, x, labels, unique), unique)
    else:
        (x, a), (y, b) = pairs
        x, a = _summed(device, x, a, unique + b)
        y, b = _summed(device, y, b, unique + a)
        y = _product(device, (x, a), (y, b), unique, partials, dense)
    return y if unique == wanted else _on_diagonal(device, y, unique, wanted)


def _gradient(device: Device, gradient: Array, saved: Saved, argument: int) -> Array:
    """What an operand was summed over is repeated, what it was repeated over is summed."""
    *operands, terms, wanted, partials = saved
    pairs: list[Term] = list(zip(operands, terms, strict=True))
    x, labels = pairs[argument]
    others = [pair for i, pair in enumerate(pairs) if i != argument]
    unique = "".join(dict.fromkeys(labels))
    reached = "".join(c for c in unique if c in wanted or any(c in b for _, b in others))
    slope = _of_terms(device, [(gradient, wanted), *others], reached, partials)
    sizes_of = dict(zip(reached, slope.shape, strict=True))
    sizes = dict(zip(labels, x.shape, strict=True))
    shape = tuple(sizes_of.get(c, 1) for c in unique)
    narrow = tuple(1 if sizes[c] == 1 else sizes_of.get(c, 1) for c in unique)
    slope = sum_to(device, slope.reshape(shape), narrow, slope.format)
    shape = tuple(sizes[c] for c in unique)
    slope = slope.like(np.array(np.broadcast_to(slope.carrier, shape)))
    return slope if unique == labels else _on_diagonal(device, slope, unique, labels)


def _einsum_x(device: Device, gradient: Array, saved: Saved, **_: Any) -> Array:
    return _gradient(device, gradient, saved, 0)


def _einsum_y(device: Device, gradient: Array, saved: Saved, **_: Any) -> Array:
    return _gradient(device, gradient, saved, 1)


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
    numbers = {label: i for i, label in enumerate(dict.fromkeys(before))}
    return np.einsum(values, [numbers[c] for c in before], [numbers[c] for c in after])


def _summed(device: Device, x: Array, labels: str, needed: str) -> tuple[Array, str]:
    """x summed over the labels that nothing needs."""
    axes = tuple(i for i, label in enumerate(labels) if label not in needed)
    if not axes:
        return x, labels
    remaining = "".join(label for label in labels if label in needed)
    shape = [n for i, n in enumerate(x.shape) if i not in axes]
    return device.reduce_sum(x, axes).reshape(shape), remaining


def _ordered(x: Array, labels: str, wanted: str) -> Array:
    """x with its axes in another order."""
    order = [labels.index(label) for label in wanted]
    return x.like(np.array(x.carrier.transpose(order), order="C"))


def _product(
    device: Device, left: Term, right: Term, wanted: str, partials: Format | None,
    dense: DenseEinsum | None,
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
                sizes)
    counts = [math.prod(sizes[label] for label in group) for group in (batch, rows, inner, columns)]
    b_count, m, k, n = counts
    shapes = ((b_count, m, k), (b_count, k, n)) if batch or not inner else ((m, k), (k, n))
    x, y = x.reshape(*shapes[0]), y.reshape(*shapes[1])
    if not inner:
        z = device.multiply(x, y)
    elif dense is not None:
        z = product(device, x, y, dense.of, dense.how, partials=partials)
    else:
        z = matmul.value(device, x, y, partials=partials)
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


def _cost(arrays: Sequence[Array], output: Array) -> OperationCost:
    """Multiply-adds of a matrix product with these operands and this result, were it one batch."""
    if len(arrays) == 1:
        return OperationCost(results=arrays[0].size)
    x, y = arrays
    return OperationCost(macs=math.isqrt(x.size * y.size * output.size))


#: The einsum of one operand or two, by its `equation`; options `partials` of the product and
#: `dense`, where it is a pass of a dense layer.
einsum = Primitive(
    "einsum", _einsum, (_einsum_x, _einsum_y), "AMP", _cost,
    rounding="sums of one operand once; the product as the unit's record says",
    gradient="the einsum of the gradient and the other operand",
    source="docs/semantics.md §6; TensorFlow, einsum_op_impl.h (the product of matrices)",
)
