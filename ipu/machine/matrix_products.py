"""The matrix products of a device: their units, partials and rows in the ledger.

Each chooses its unit, computes through it under the device's registers, and writes a row into the
ledger. The AMP returns products of quarters as halves, so a result in quarters is also cast.

Source    docs/semantics.md §5 and §6.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from fpsim import linalg
from fpsim.array import Array
from fpsim.context import Context
from fpsim.elementwise.sizes import checked_count
from fpsim.records.formats import BINARY16, BINARY64, F143, F152, Format
from fpsim.records.types import Carrier, Shape
from fpsim.records.units import MatrixUnit, find_unit, with_partials
from fpsim.state.draws import advance
from fpsim.state.threads import get_threads
from ipu.machine import reference
from ipu.machine.choice import ConvolutionTraits, choose, find_partials, fitting_partials
from ipu.machine.control import DENORMALS
from ipu.machine.cost.ledger import Ledger, LedgerRow
from ipu.machine.cost.planner import Planner
from ipu.machine.cost.rows import WorkOf, ledger_row
from ipu.machine.cost.work import of_matmul
from ipu.machine.late import Late
from ipu.machine.target import Target
from ipu.machine.verbs import Verbs, checked_array

__all__ = ["MatrixProducts"]

#: A product in the context of its result.
Compute = Callable[[Context], Array]

#: Multiply-adds from which on a product is worth a hand-over to another thread.
_WORTH = 1 << 21


class MatrixProducts(Verbs):
    """MatrixProducts of arrays; what they need of a device stands in its attributes."""

    target: Target
    partials: Format
    conv_partials: Format | None
    preset: str
    f32_denormals: str
    disable_sr_for_amp_vertices: bool
    planner: Planner
    puts_off: bool

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.units_used: dict[str, MatrixUnit] = {}
        self._rows: dict[tuple[object, ...], LedgerRow] = {}
        self._choices: dict[tuple[object, ...], MatrixUnit] = {}
        self._warned = False
        self.puts_off = False
        self._late: list[Late] = []

    @property
    @abstractmethod
    def tensor(self) -> str:
        """Name of the tensor that operations work on now."""

    @abstractmethod
    def rounding(self, stochastic: bool) -> AbstractContextManager[None]:
        """ESR is on or off for the operations inside."""

    # Late results ---------------------------------------------------------------------------

    @contextmanager
    def settling(self) -> Iterator[None]:
        """Inside, `puts_off` may be set: another thread may compute products that are asked for
        with `late=True`. At its end they are there.

        Values, flags, numbers and the ledger are those of computing at once; only time differs.
        """
        try:
            yield
        finally:
            self.puts_off = False
            self.settle()

    def settle(self) -> None:
        """Wait for the late results: their flags are raised."""
        while self._late:
            self._late.pop().finish()

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
        unit: MatrixUnit | str | None = None, scale: int = 0, k_split: int = 1, late: bool = False,
    ) -> Array:  # fmt: skip
        """The matrix product through the AMP unit for these inputs and partials.

        late      nobody needs the values soon; see `settling`.
        scale     of quarters: the product is multiplied by 2**scale, the sum of both metadata.
        k_split   parts of the tiles that K is split over; their partials are added in binary32 in
                  index order and rounded once.

        Rounding  inside as the unit's record says; once into `out` (default: the inputs' format).
        Raises    ValueError where no such unit exists, and for partials narrower than `out`.
        """
        checked_array(x)
        if out is not None:
            out = self.context(out).format
        checked_count("k_split", k_split, 1)
        if x.format == BINARY64:
            a, b = self._of(x).core.carriers((x, y))
            return self._native(reference.matmul(a, b), x, out)
        if partials is not None:
            partials = find_partials(partials)
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
            late_shape=(x.shape[0], y.shape[1]) if late and x.ndim == y.ndim == 2 else None,
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
        late_shape: Shape | None = None,
    ) -> Array:  # fmt: skip
        """Compute; products that do not trap are added to the ledger.

        late_shape    of a result that may come late.
        """
        wanted = out or operands[0].format
        # A unit has no results in quarters: its halves are cast, as on the machine.
        leaves = BINARY16 if wanted in (F143, F152) else wanted
        context = self.context(leaves)
        if late_shape is not None and wanted is leaves and self._may_be_late(context):
            key = _row_key(verb, unit, operands, late_shape, leaves, options, parts)
            row = self._rows.get(key)
            if row is not None and row.useful >= _WORTH:
                self._note(unit, row)
                return self._begun(compute, late_shape, context)
        if self.disable_sr_for_amp_vertices and context.rounding.stochastic:
            with self.rounding(False):
                product = compute(context)
            # A product has a number whatever its stores do; a generator draws nothing for it.
            context.operation += 1
        else:
            product = compute(context)
        result = self.cast(product, wanted)
        self._account(verb, unit, operands, product, work_of, options, parts)
        return result

    def _account(
        self, verb: str, unit: MatrixUnit, operands: tuple[Array, Array], product: Array,
        work_of: WorkOf, options: tuple[object, ...], parts: int,
    ) -> None:  # fmt: skip
        key = _row_key(verb, unit, operands, product.shape, product.format, options, parts)
        row = self._rows.get(key)
        if row is None:
            row = ledger_row(
                verb, unit, operands, product, work_of, self.target, self.planner, parts
            )
            self._rows[key] = row
        self._note(unit, row)

    def _note(self, unit: MatrixUnit, row: LedgerRow) -> None:
        self.units_used[unit.name] = unit
        self.ledger.add(self.tensor, row)

    def _may_be_late(self, context: Context) -> bool:
        """Whether a thread is there for a product, and nothing must be known of it at once."""
        if not self.puts_off or context.core.watched or context.seed is None:
            return False
        if self.disable_sr_for_amp_vertices and context.rounding.stochastic:
            return False
        # Operands of results that wait stay in memory.
        return sum(late.is_waiting for late in self._late) < 2 * (get_threads() - 1)

    def _begun(self, compute: Compute, shape: Shape, context: Context) -> Array:
        result = Late(compute, shape, context)
        if context.rounding.stochastic:
            advance(context.core)
        self._late.append(result)
        return result


def _row_key(
    verb: str, unit: MatrixUnit, operands: tuple[Array, Array], shape: Shape, fmt: Format,
    options: tuple[object, ...], parts: int,
) -> tuple[object, ...]:  # fmt: skip
    """What a product's row in the ledger follows from."""
    shapes = (*(x.shape for x in operands), shape)
    formats = operands[0].format.name, fmt.name
    return verb, unit.name, unit.channels, *formats, *shapes, options, parts
