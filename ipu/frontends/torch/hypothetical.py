"""A machine that is none: products through any unit, everything else by IEEE 754.

modelled                         source
products whose inputs it takes   the unit's record (`fpsim list units`), with its evidence
other products                   ASSUMED: a fused multiply-add in binary32 for each term, in order
everything else                  IEEE 754-2019: subnormals are kept, overflow gives infinity
eight bits and fewer             saturate, or overflow as the format does with nanoo (OCP OFP8 1.0
                                 has both)
stochastic rounding              the IPU's of binary16; 16 random bits in other narrow formats

It is a model of the products alone: order of work, caches, libraries' own algorithms and times of a
GPU are not modelled, and there is no row in the ledger.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from fpsim.array import Array
from fpsim.context import Context
from fpsim.records.evidence import Evidence
from fpsim.records.flags import Flags
from fpsim.records.formats import (
    BINARY16,
    BINARY32,
    E4M3FN,
    E5M2,
    F143,
    F152,
    Format,
    find_number_format,
)
from fpsim.records.rounding import SR, Rounding
from fpsim.records.settings import Settings
from fpsim.records.units import UNITS, MatrixUnit, find_unit
from ipu.learn.policy import PolicyLike
from ipu.machine.choice import ConvolutionTraits
from ipu.machine.contexts import DeviceLike, MachineContext, MachineCore
from ipu.machine.control import ROUNDINGS, STOCHASTIC, FpCtl, status_words, traps
from ipu.machine.device import Device
from ipu.machine.product_calls import ProductCall
from ipu.machine.target import HYPOTHETICAL, Target
from ipu.run.policies import formats_of, recipes_of

__all__ = [
    "EightBitDevice",
    "IeeeContext",
    "ProductsDevice",
    "find_device",
    "ieee_unit",
]

_STOCHASTIC_BITS = 16
#: Formats of torch's tensors of eight bits, which a program may use under any policy.
_EIGHT_BITS = (E4M3FN, E5M2, F143, F152)


def find_device(
    policy: PolicyLike, target: Target, control: FpCtl, *, unit: str | MatrixUnit | None = None,
    seed: int = 0, count: bool = False, preset: str = "window", f32_denormals: str = "flush",
    max_nan: str = "number", sums: str = "spread",
) -> Device:
    """The device of a target that computes in the formats of a policy.

    Raises    ValueError for formats that the target lacks, and a unit that is no unit of it.
    """
    for recipe in recipes_of(policy):
        target.check_blocks(recipe)
    lacking = sorted(str(f) for f in formats_of(policy) - set(target.formats))
    if target != HYPOTHETICAL:
        if unit is not None:
            raise ValueError(
                f"unit={unit} with target={target.name}: an IPU chooses among its own units; use "
                "target='hypothetical', whose products take any unit"
            )
        if lacking:
            quarters = ", or 'mk2-fp8', which has quarters" if F143.name in lacking else ""
            raise ValueError(
                f"policy={policy} with target={target.name}, which computes in "
                f"{', '.join(map(str, target.formats))}, not in {', '.join(lacking)}; use "
                f"target='hypothetical', which takes any format{quarters}"
            )
    elif unit is not None or lacking:
        return ProductsDevice(policy, control, unit=unit, seed=seed, count=count, sums=sums)
    kind = EightBitDevice if target == HYPOTHETICAL else Device
    return kind(
        target, control, seed=seed, count=count, preset=preset, f32_denormals=f32_denormals,
        max_nan=max_nan, sums=sums,
    )


@lru_cache
def ieee_unit(fmt: Format) -> MatrixUnit:
    """A fused multiply-add in binary32 for each term, in index order.

    >>> ieee_unit(BINARY16).name, ieee_unit(BINARY16).terms
    ('FMA_BINARY16_F32', 1)
    """
    assumed = (Evidence.ASSUMED, "IEEE 754-2019 §5.4.1, fusedMultiplyAdd")
    names = ("terms", "window", "accumulator", "rounding")
    return MatrixUnit(
        f"FMA_{fmt.name.upper()}_F32", "none: IEEE 754", (fmt,), BINARY32, terms=1, window=None,
        calls=None, evidence=dict.fromkeys(names, assumed),
    )


@lru_cache
def _rules(control: FpCtl, fmt: Format) -> tuple[Settings, Flags]:
    """Settings and traps of a format under control bits."""
    rounding: Rounding = ROUNDINGS[control.rnd]
    if control.esr and fmt.precision < BINARY32.precision:
        rounding = STOCHASTIC.get(fmt) or SR(bits=min(_STOCHASTIC_BITS, fmt.sr_bits_max))
    overflow = "saturate" if fmt.bits <= 8 and not control.nanoo else None
    return Settings(fmt, rounding, overflow), traps(control, fmt)


class IeeeCore(MachineCore):
    """What stands behind arithmetic by IEEE 754 under the traps and the rounding of a device."""

    def __init__(self, context: Context, device: DeviceLike, fmt: Format) -> None:
        super().__init__(context, device, fmt)
        self.obey(device.control)

    def obey(self, control: FpCtl) -> None:
        """Compute under these control bits from now on."""
        self.settings, self.traps = _rules(control, self.format)
        self._status_words = status_words(control, self.format)


class IeeeContext(MachineContext):
    """A format's arithmetic by IEEE 754, under the traps and the rounding of a device."""

    core_class = IeeeCore


class EightBitDevice(Device):
    """The hypothetical target, with tensors of eight bits by IEEE 754's rules.

    >>> device = EightBitDevice(HYPOTHETICAL)
    >>> device.cast(device.from_host([500.0], BINARY32), E4M3FN).values.tolist(), device.status.oflo
    ([448.0], True)
    """

    def context(self, fmt: Format | str) -> MachineContext:
        """The context that computes in fmt on this device."""
        fmt = find_number_format(fmt)
        context = self._contexts.get(fmt)
        if context is None and fmt in _EIGHT_BITS:
            context = self._contexts[fmt] = IeeeContext(self, fmt)
        return super().context(fmt) if context is None else context


class ProductsDevice(Device):
    """IEEE arithmetic in the formats of a policy, with products through a unit.

    unit    for products of the formats that it takes; None: every product is a chain of fused
            multiply-adds.

    Raises    ValueError for a unit that takes none of the formats that the policy multiplies in.

    >>> from ipu.run.policies import find_policy
    >>> device = ProductsDevice(find_policy("f16"), FpCtl(), unit="V100_F16_F32")
    >>> big = device.from_host([[60000.0]], BINARY16)
    >>> device.add(big, big).values.tolist(), device.matmul(big, big).values.tolist()
    ([[inf]], [[inf]])
    """

    def __init__(
        self, policy: PolicyLike, control: FpCtl, *, unit: str | MatrixUnit | None = None,
        seed: int = 0, count: bool = False, sums: str = "spread",
    ) -> None:
        formats = (BINARY16, BINARY32, *_EIGHT_BITS, *sorted(formats_of(policy), key=str))
        target = replace(
            HYPOTHETICAL, formats=tuple(dict.fromkeys((*HYPOTHETICAL.formats, *formats))),
            note="no machine: products through any unit, everything else by IEEE 754",
        )
        super().__init__(
            target,
            control,
            seed=seed,
            count=count,
            f32_denormals="ieee",
            max_nan="propagate",
            sums=sums,
        )
        self.unit = None if unit is None else find_unit(unit)
        self._policy = policy
        multiplied = {p.compute for p in policy.all}
        if self.unit is not None and not multiplied & set(self.unit.inputs):
            inputs = " or ".join(str(f) for f in self.unit.inputs)
            raise ValueError(
                f"unit={self.unit} takes {inputs}, and the policy {policy} multiplies in "
                f"{', '.join(sorted(map(str, multiplied)))}; use policy='c={self.unit.inputs[0]},"
                "out=f32' or 'out=f16'"
            )

    def twin(self) -> ProductsDevice:
        """Another one for the same policy."""
        return ProductsDevice(
            self._policy, self.control, unit=self.unit, seed=self.source.seed or 0,
            count=self.counts is not None, sums=self.options.sums,
        )

    def context(self, fmt: Format | str) -> MachineContext:
        """The context that computes in fmt on this device."""
        fmt = find_number_format(fmt)
        context = self._contexts.get(fmt)
        if context is None:
            super().context(fmt)  # refuses a format that no layer's policy names
            context = self._contexts[fmt] = IeeeContext(self, fmt)
        return context

    def partials_for(
        self, inputs: Format, verb: str = "matmul", *, to: Format | None = None,
        wanted: Format | None = None,
    ) -> Format:
        """The partials of the unit that multiplies these inputs."""
        return self._of_inputs(inputs, wanted).partials

    def _of_inputs(self, inputs: Format, partials: Format | None) -> MatrixUnit:
        if self.unit is None or inputs not in self.unit.inputs:
            return ieee_unit(inputs)
        if partials == BINARY16:
            narrow = f"{self.unit.family}_F16"
            return UNITS.get(narrow, self.unit)
        return self.unit

    def _unit(
        self, verb: str, x: Array, partials: Format | None, to: Format | None,
        unit: MatrixUnit | str | None, traits: ConvolutionTraits | None = None,
    ) -> MatrixUnit:
        return self._of_inputs(x.format, partials)

    def _account(self, call: ProductCall, product: Array) -> None:
        """Other machines have no row in the ledger."""
        self.units_used[call.unit.name] = call.unit
