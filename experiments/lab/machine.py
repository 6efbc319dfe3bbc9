"""What a device's results rest on, as a report prints it."""

from __future__ import annotations

from fpsim.records.formats import BINARY16, F143
from ipu.experiments.lab.result import UnitUsed
from ipu.machine import Device
from ipu.ops.fp8 import RULE


def units_of(device: Device) -> tuple[UnitUsed, ...]:
    """Its matrix units, each with the weakest evidence among its constants, and register rules."""
    units = [
        UnitUsed(unit.name, str(unit.weakest_evidence), unit.instruction)
        for unit in device.units_used.values()
    ]
    names = ["f16 overflow", "f32 denormals"]
    if any(verb.startswith("conv") for _, verb, _ in device.ledger.rows):
        names.append("choice of the unit")
    if device.context(BINARY16).rounding.stochastic:
        names.append("random bits")
    rules = [
        UnitUsed(f"{name}: {fact.value}", str(fact.evidence), fact.source)
        for name, fact in device.facts.items()
        if name in names
    ]
    if any(F143 in unit.inputs for unit in device.units_used.values()):
        rules.append(UnitUsed(f"quarters: {RULE.value}", str(RULE.evidence), RULE.source))
    if device.target.note:
        rules.append(UnitUsed(f"target {device.target.name}", "ASSUMED", device.target.note))
    return (*units, *rules)


def costs_of(device: Device) -> tuple[UnitUsed, ...]:
    """What the cycles and bytes of its ledger rest on."""
    return tuple(
        UnitUsed(f"{name} = {fact.value}", str(fact.evidence), fact.source)
        for name, fact in device.ledger.facts.items()
    )
