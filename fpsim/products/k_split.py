"""Products whose K is split over tiles, and the reduction of their partial results.

K is cut in whole passes, as evenly as that goes, the longer ranges first; each range is a product
of its own that starts from zero and leaves partials. A reduction adds the partials of an output in
binary32 in the order of the ranges, from the first one on, and rounds the sum once into the result.

Not modelled: reductions in several stages, which poplibs plans from sixteen ranges on (each stage
stores the partials' format; how many ranges it adds is chosen by cost).

Source    poplibs ReduceAdd.cpp, ConvReducePlan.cpp; docs/semantics.md §2 (places) and §5.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from fpsim.array import Array
from fpsim.elementwise.apply import Carrier, apply
from fpsim.linalg import result_shape
from fpsim.products.by_unit.dispatch import accumulate, round_outputs
from fpsim.products.by_unit.product import Marks, Product
from fpsim.products.request import Request
from fpsim.records.flags import Flags
from fpsim.records.formats import BINARY32, Format
from fpsim.records.settings import Settings
from fpsim.records.units import MatrixUnit
from fpsim.state.draws import Places
from fpsim.state.publish import Out, row_and_column

if TYPE_CHECKING:
    from fpsim.context import Context

__all__ = ["k_split", "ranges"]

#: What a unit reports.
_REPORTED = np.uint8(Flags.INVALID | Flags.OVERFLOW)


def k_split(
    a: Array, b: Array, unit: str | MatrixUnit, parts: int, *, context: Context | None = None,
    partials: Format | None = None, scale: int = 0, subnormals: str | None = None, out: Out = None,
) -> Array:  # fmt: skip
    """The matrix product a @ b with K split over `parts` tiles, and their partials reduced.

    context, partials, scale, subnormals    as for `fpsim.linalg.matmul`.

    Shapes    as `matmul`. One part is `matmul`.
    Rounding  in each part as the unit's record says; additions in binary32 to nearest even, then
              once into the result by the context.
    Flags     INVALID and OVERFLOW, of the products and of the reduction.
    Raises    ValueError for more parts than passes over K; the rest as `matmul`.
    Source    docs/semantics.md §5.

    >>> import fpsim as fp, ipu.machine
    >>> half = fp.Context(fp.BINARY16)
    >>> a, b = half.array(np.ones((1, 4096))), half.array(np.ones((4096, 1)) * (1 + 2.0**-8))
    >>> [float(k_split(a, b, "AMP_F16_F16", parts).values[0, 0]) for parts in (1, 16, 64)]
    [4100.0, 4104.0, 4112.0]
    """
    request = Request(
        "k_split", unit, {"a": a, "b": b}, context=context, partials=partials, scale=scale,
        subnormals=subnormals, out=out,
    )  # fmt: skip
    shape, product = result_shape(a, b), request.product
    cuts = ranges(a.shape[-1], parts, request.unit)
    passed = sum(product.passes(len(cut)) for cut in cuts)
    last = product.final if parts == 1 else product.reduced
    first = 0 if product.store or product.whole else passed
    places = request.open(shape, range(first, passed + 1 if last else passed))
    total, marks = np.zeros(shape, np.float32), np.zeros(shape, np.uint8)
    place = 0
    for cut in cuts:
        inside = slice(cut.start, cut.stop)
        left, right = a.values[..., inside], b.values[..., inside, :]
        partial, found = _part(product, left, right, shape, places.part(place=place))
        marks |= found
        total = _added(product, total, partial, marks) if cut.start else partial
        place += product.passes(len(cut))
    if last:
        round_outputs(last, passed, total, marks, places)
    return request.publish(total, marks, lambda index: row_and_column(a.values, b.values, index))


def ranges(k: int, parts: int, unit: MatrixUnit) -> list[range]:
    """Where K is cut: whole passes (calls, where a pass is the whole of K), longer ranges first.

    >>> from fpsim.records.units import find_unit
    >>> [len(cut) for cut in ranges(39, 3, find_unit("V100_F16_F32"))]
    [16, 12, 11]
    """
    passes = -(-k // unit.channels)
    if isinstance(parts, bool) or not isinstance(parts, int) or not 1 <= parts <= max(1, passes):
        raise ValueError(
            f"parts={parts!r} of a K of {k}; {unit} takes {unit.channels} at a time, so use 1 to "
            f"{max(1, passes)}"
        )
    each, longer = divmod(passes, parts)
    sizes = [each + (i < longer) for i in range(parts)]
    ends = [min(int(end) * unit.channels, k) for end in np.cumsum(sizes)]
    return [range(begin, end) for begin, end in pairwise([0, *ends])]


def _part(
    product: Product, a: Carrier, b: Carrier, shape: tuple[int, ...], places: Places
) -> tuple[Carrier, Marks]:
    """The partials of one range and their flags."""
    partial, marks = np.zeros(shape, np.float32), np.zeros(shape, np.uint8)
    accumulate(product, a, b, partial, marks, places)
    if product.whole:
        round_outputs(product.whole, 0, partial, marks, places)
    return partial, marks


def _added(product: Product, total: Carrier, partial: Carrier, marks: Marks) -> Carrier:
    """One addition of the reduction; its flags into the marks."""
    rule = Settings(
        BINARY32, subnormals=product.policy, tininess=product.settings.tininess,
        quiet_nan_raises=product.settings.quiet_nan_raises,
    )  # fmt: skip
    found = np.zeros(marks.shape, np.uint8)
    total, _ = apply("add", (total, partial), rule, element_flags=found)
    marks |= found & _REPORTED
    return total
