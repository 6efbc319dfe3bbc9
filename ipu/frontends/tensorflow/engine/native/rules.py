"""Whether nodes may run below their kernels now, and what decides their calls beside inputs."""

from __future__ import annotations

from collections.abc import Sequence

from ipu.frontends.tensorflow.engine.machine import Machine
from ipu.ops.in_one_call import may_join

__all__ = ["are_rules_of", "rules_of"]


def rules_of(machine: Machine) -> tuple[object, ...] | None:
    """What decides the calls of a node beside its inputs; None: nodes run by their kernels."""
    if not _may_run_below(machine):
        return None
    device = machine.device
    return (
        device.control, device.source, device.options, device.planner, device.conv_planner,
        device.partials, device.conv_partials,
    )


def are_rules_of(machine: Machine, rules: Sequence[object]) -> bool:
    """Whether calls are still those of the rules: a function may have changed the machine."""
    now = rules_of(machine)
    return now is not None and all(x is before for x, before in zip(now, rules, strict=True))


def _may_run_below(machine: Machine) -> bool:
    """Whether nothing looks at single operations, and nothing but the kernels changes results."""
    run, device = machine.run, machine.device
    return (
        may_join(device) and device.notes is None and device.counts is None
        and device.compute is None and not device.clock.first and not device.puts_off
        and not run.is_watched and machine.shadows is None
        and machine.choices.restoring.is_empty and run.account.watching is None
    )
