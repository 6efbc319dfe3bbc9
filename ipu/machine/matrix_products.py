"""The matrix products of a device: their units, partials and rows in the ledger.

Each chooses its unit, computes through it under the device's registers, and writes a row into the
ledger. The AMP returns products of quarters as halves, so a result in quarters is also cast.

Source    docs/semantics.md §5 and §6.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager

from fpsim import linalg
from fpsim.array import Array
from fpsim.context import Context
from fpsim.records.formats import BINARY16, BINARY64, F143, F152, Format
from fpsim.records.types import Carrier
from fpsim.records.units import MatrixUnit, find_unit, with_partials
from ipu.machine import reference
from ipu.machine.choice import ConvolutionTraits, choose, fitting_partials
from ipu.machine.control import DENORMALS
from ipu.machine.cost.ledger import Ledger, LedgerRow
from ipu.machine.cost.planner import Planner
from ipu.machine.cost.rows import WorkOf, ledger_row
from ipu.machine.cost.work import of_matmul
from ipu.machine.target import Target
from ipu.machine.verbs import Verbs

__all__ = ["MatrixProducts"]

#: A product in the context of its result.
Compute = Callable[[Context], Array]


class MatrixProducts(Verbs):
    """MatrixProducts of arrays; what they need of a device stands in its attributes."""

    target: Target
    partials: Format
    conv_partials: Format | None
    preset: str
    f32_denormals: str
    disable_sr_for_amp_vertices: bool
    planner: Planner

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.units_used: dict[str, MatrixUnit] = {}
        self._rows: dict[tuple[object, ...], LedgerRow] = {}
        self._choices: dict[tuple[object, ...], MatrixUnit] = {}
        self._warned = False

    @property
    @abstractmethod
    def tensor(self) -> str:
        """Name of the tensor that operations work on now."""

    @abstractmethod
    def rounding(self, stochastic: bool) -> AbstractContextManager[None]:
        """ESR is on or off for the operations inside."""

    # Partials -------------------------------------------------------------------------------

    def partials_for(
        self, inputs: Format, verb: str = "matmul", *, out: Format | None = None,
        wanted: Format | None = None,
    ) -> Format:  # fmt: skip
        """Partials of a product with these inputs, by the option for matmuls or convolutions.

        wanted    instead of the option, for a policy or a scope. Where the inputs need other
                  partials, or the partials would be narrower than the result, the product keeps
                  those that fit. A warning reports the second case, once.
        """
        option = (self.conv_partials if verb.startswith("conv") else None) or self.partials
        asked = wanted or option
        fitting = fitting_partials(inputs, asked, out or inputs)
        if fitting.precision > asked.precision and fitting == out and not self._warned:
            self._warned = True
            warnings.warn(
                f"partials={asked} are narrower than results in {out}, which keep {out} partials; "
                "this is warned of once",
                RuntimeWarning, stacklevel=3,
            )  # fmt: skip
        return fitting

    # MatrixProducts -------------------------------------------------------------------------------

    def matmul(
        self, x: Array, y: Array, *, partials: Format | None = None, out: Format | None = None,
        unit: MatrixUnit | str | None = None, scale: int = 0, k_split: int = 1,
    ) -> Array:  # fmt: skip
        """The matrix product through the AMP unit for these inputs and partials.

        scale     of quarters: the product is multiplied by 2**scale, the sum of both metadata.
        k_split   parts of the tiles that K is split over; their partials are added in binary32 in
                  index order and rounded once.

        Rounding  inside as the unit's record says; once into `out` (default: the inputs' format).
        Raises    ValueError where no such unit exists, and for partials narrower than `out`.
        """
        if x.format == BINARY64:
            a, b = self._of(x).carriers((x, y))
            return self._native(reference.matmul(a, b), x, out)
        chosen = self._unit("matmul", x, partials, out, unit)
        if k_split > self.target.tiles.value:
            raise ValueError(
                f"k_split={k_split} is more than the {self.target.tiles.value} tiles of "
                f"{self.target.name}; use fewer parts"
            )

        def compute(context: Context) -> Array:
            if k_split == 1:
                return linalg.matmul(
                    x, y, chosen, context=context, scale=scale, subnormals=self._inside
                )
            return linalg.k_split(
                x, y, chosen, k_split, context=context, scale=scale, subnormals=self._inside
            )

        return self._product(
            "matmul", chosen, (x, y), out, compute,
            lambda instruction, _: of_matmul(x.shape, y.shape, instruction), parts=k_split,
        )  # fmt: skip

    # How ------------------------------------------------------------------------------------

    @property
    def _inside(self) -> str:
        """Binary32 partials and accumulators follow the device, whatever the result is."""
        return DENORMALS[self.f32_denormals]

    def _unit(
        self, verb: str, x: Array, partials: Format | None, out: Format | None,
        unit: MatrixUnit | str | None, traits: ConvolutionTraits | None = None,
    ) -> MatrixUnit:  # fmt: skip
        """The unit that the call names, or that the rule chooses, if the target has it."""
        inputs = self._of(x).format
        if unit is None:
            return self._chosen(
                inputs, partials or self.partials_for(inputs, verb, out=out), traits
            )
        named = with_partials(find_unit(unit), partials)
        self.target.instruction(named)
        return named

    def _chosen(
        self, inputs: Format, partials: Format, traits: ConvolutionTraits | None
    ) -> MatrixUnit:
        key = (inputs.name, partials.name, self.preset, traits)
        unit = self._choices.get(key)
        if unit is None:
            unit = choose(self.target, inputs, partials, self.preset, traits)
            self._choices[key] = unit
        return unit

    def _native(self, values: Carrier, x: Array, out: Format | None) -> Array:
        """A product in binary64, which is in no ledger."""
        return self.cast(Array(values, self.context(x.format)), out or x.format)

    def _product(
        self, verb: str, unit: MatrixUnit, operands: tuple[Array, Array], out: Format | None,
        compute: Compute, work_of: WorkOf, options: tuple[object, ...] = (), parts: int = 1,
    ) -> Array:  # fmt: skip
        """Compute; products that do not trap are added to the ledger."""
        wanted = out or operands[0].format
        # A unit has no results in quarters: its halves are cast, as on the machine.
        leaves = BINARY16 if wanted in (F143, F152) else wanted
        context = self.context(leaves)
        if self.disable_sr_for_amp_vertices and context.rounding.stochastic:
            with self.rounding(False):
                product = compute(context)
            # A product has a number whatever its stores do; a generator draws nothing for it.
            context.clock.operation += 1
        else:
            product = compute(context)
        result = self.cast(product, wanted)
        self._account(verb, unit, operands, product, work_of, options, parts)
        return result

    def _account(
        self, verb: str, unit: MatrixUnit, operands: tuple[Array, Array], product: Array,
        work_of: WorkOf, options: tuple[object, ...], parts: int,
    ) -> None:  # fmt: skip
        x, y = operands
        key = (
            verb, unit.name, unit.channels, x.format.name, product.format.name, x.shape, y.shape,
            product.shape, options, parts,
        )  # fmt: skip
        row = self._rows.get(key)
        if row is None:
            row = ledger_row(
                verb, unit, operands, product, work_of, self.target, self.planner, parts
            )
            self._rows[key] = row
        self.units_used[unit.name] = unit
        self.ledger.add(self.tensor, row)
