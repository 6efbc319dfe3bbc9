"""Sums and products as methods of a Context, in its format.

Source    docs/semantics.md §4 and §5.
"""

from __future__ import annotations

from typing import Any

from fpsim import rounded_products
from fpsim.array import Array
from fpsim.operands import ContextOperands, Out
from fpsim.products.jobs.shapes import result_shape
from fpsim.products.sums import AxisSum
from fpsim.records.formats import Format
from fpsim.records.types import Axis, Carrier
from fpsim.records.units import MatrixUnit
from fpsim.state.processor import usual_arithmetic_in
from fpsim.unit_products import matmul

__all__ = ["Reductions"]


@usual_arithmetic_in("dot", "matmul", "_matmul_of_vectors")
class Reductions(ContextOperands):
    """What a Context inherits to reduce arrays; each takes `out=`, but for `dot`."""

    def sum(
        self, x: Array, axis: Axis = None, order: str = "sequential", *, block: int = 256,
        keepdims: bool = False, out: Out = None,
    ) -> Array:  # fmt: skip
        """Sum over axes, every addition rounded; see `fpsim.linalg.sum`.

        >>> import fpsim as fp
        >>> half = fp.Context(fp.BINARY16)
        >>> half.sum(half.array([2048.0, 1.0, 1.0])).values.tolist()
        2048.0
        """
        return rounded_products.sum(
            x, axis, order, context=self, block=block, keepdims=keepdims, out=out
        )

    def native_sum(
        self, values: Carrier, axes: tuple[int, ...], *, squared: bool = False
    ) -> Array | None:
        """Sum of binary32 numbers in index order by the processor's own additions.

        None, and nothing published, where they may differ (see `fpsim.products.native_sums`), as
        for a NaN, so that callers need not look for one.

        squared   the sum of squares, which must be numbers of binary32.
        """
        total = AxisSum(values, axes, "sequential", 1, divide=False)
        result = total.run_native(self, squared=squared)
        return None if result is None else self.wrapped(result)

    def mean(
        self, x: Array, axis: Axis = None, order: str = "sequential", *, block: int = 256,
        keepdims: bool = False, out: Out = None,
    ) -> Array:  # fmt: skip
        """Sum over axes, then one division; see `fpsim.linalg.mean`."""
        return rounded_products.mean(
            x, axis, order, context=self, block=block, keepdims=keepdims, out=out
        )

    def dot(self, x: Array, y: Array, *, fused: bool = False, kahan: bool = False) -> Array:
        """Inner product of two vectors, every operation rounded; see `fpsim.linalg.dot`."""
        return rounded_products.dot(x, y, context=self, fused=fused, kahan=kahan)

    def matmul(
        self,
        a: Array,
        b: Array,
        unit: str | MatrixUnit | None = None,
        *,
        fused: bool = False,
        kahan: bool = False,
        partials: Format | None = None,
        accumulator: Array | None = None,
        scale: int = 0,
        subnormals: str | None = None,
        stochastic_stores: bool = True,
        out: Out = None,
    ) -> Array:
        """The product a @ b: through a unit, or without one rounded after every operation.

        fused, kahan    without a unit, as for `fpsim.linalg.rounded_matmul`.
        partials, accumulator, scale, subnormals, stochastic_stores    of a unit, as for
                        `fpsim.linalg.matmul`.

        Raises    ValueError for choices of the other kind.

        >>> import fpsim as fp
        >>> half = fp.Context(fp.BINARY16)
        >>> row, column = half.array([[2048.0, 1.0, 1.0]]), half.array([[1.0]] * 3)
        >>> [half.matmul(row, column, u).values.tolist() for u in (None, "V100_F16_F32")]
        [[[2048.0]], [[2050.0]]]
        """
        if isinstance(a, Array) and isinstance(b, Array) and (
            a.carrier.ndim == 1 or b.carrier.ndim == 1
        ):  # fmt: skip
            return self._matmul_of_vectors(
                a, b, unit, out, fused=fused, kahan=kahan, partials=partials,
                accumulator=accumulator, scale=scale, subnormals=subnormals,
                stochastic_stores=stochastic_stores,
            )  # fmt: skip
        if unit is not None:
            if fused or kahan:
                name = "fused" if fused else "kahan"
                raise ValueError(f"{name}=True goes with unit=None; drop unit or {name}")
            return matmul(
                a, b, unit, context=self, partials=partials, accumulator=accumulator, scale=scale,
                subnormals=subnormals, stochastic_stores=stochastic_stores, out=out,
            )  # fmt: skip
        of_units = {
            "partials": partials, "accumulator": accumulator, "subnormals": subnormals,
            "scale": None if type(scale) is int and scale == 0 else scale,
            "stochastic_stores": None if stochastic_stores else False,
        }  # fmt: skip
        for name, value in of_units.items():
            if value is not None:
                raise ValueError(f"{name}={value} goes with a unit; name one or drop {name}")
        return rounded_products.rounded_matmul(
            a, b, context=self, fused=fused, kahan=kahan, out=out
        )

    def _matmul_of_vectors(
        self, a: Array, b: Array, unit: str | MatrixUnit | None, out: Out, **choices: Any
    ) -> Array:
        """A vector is a matrix of one row (a) or column (b), which the result does not have."""
        row, column = a.carrier.ndim == 1, b.carrier.ndim == 1
        x = a.reshape(1, -1) if row else a
        y = b.reshape(-1, 1) if column else b
        shape = result_shape(x.shape, y.shape)
        if row:
            shape = (*shape[:-2], shape[-1])
        if column:
            shape = shape[:-1]
        target = self.checked_target(out, shape)
        if choices["accumulator"] is not None:
            raise ValueError("accumulator goes with matrices; give a and b two dimensions")
        product = self.matmul(x, y, unit, **choices).reshape(shape)
        if target is None:
            return product
        target[...] = product.carrier
        return self.wrapped(target, out)
