"""What is chosen for a device when it is made.

Source    docs/semantics.md §5 (units, partials) and §6 (the switches and their evidence).
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, fields

from fpsim.records.evidence import Evidence, Fact
from ipu.machine.control import DENORMALS
from ipu.machine.cost.planner import Planner
from ipu.machine.target import Target
from ipu.machine.units import amp

__all__ = ["CHOSEN", "MAXIMUM", "SUMS", "DeviceOptions"]

#: Which of two is larger if one is NaN, by the switch `max_nan`: the Context's method.
MAXIMUM = {"number": "fmax", "propagate": "maximum"}

#: Orders of the sums of a device, by the switch `sums`, and what each rests on.
SUMS = {
    "spread": Fact(
        "parts of at most 64 neighbours, then the sums of the parts", Evidence.ASSUMED,
        "poplibs, Reduction.cpp, spreads sums over workers and tiles; how, depends on the layout",
    ),
    "chain": Fact("one summand after the other", Evidence.ASSUMED, "asked for by sums='chain'"),
}


@dataclass(frozen=True)
class DeviceOptions:
    """The choices of a device that stay as they are; their meaning is said by `Device`.

    >>> from ipu.machine import Device
    >>> Device(sums="chain").options.sums
    'chain'
    """

    target: Target
    random: str
    f32_denormals: str
    max_nan: str
    sums: str
    preset: str
    planner: Planner
    disable_sr_for_amp_vertices: bool

    def __post_init__(self) -> None:
        if not isinstance(self.planner, Planner):
            raise TypeError(f"planner={self.planner!r} is not a Planner; use Planner(...), or None")
        _check("f32_denormals", self.f32_denormals, f"one of {', '.join(DENORMALS)}", DENORMALS)
        _check("max_nan", self.max_nan, "number or propagate", MAXIMUM)
        _check("sums", self.sums, f"one of {', '.join(SUMS)}", SUMS)
        _check("preset", self.preset, f"one of {', '.join(amp.PRESETS)}", amp.PRESETS)


#: Options that are arguments of every device, by name.
CHOSEN = tuple(option.name for option in fields(DeviceOptions) if option.name != "target")


def _check(name: str, word: object, allowed: str, words: Container[str]) -> None:
    if not isinstance(word, str) or word not in words:
        raise ValueError(f"{name}={word!r} is not known; use {allowed}")
