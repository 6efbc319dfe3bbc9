"""The configured machine: what the rest of the front end reads after `configure_ipu_system`.

Source    graphcore/tensorflow, tensorflow/python/ipu/config.py: what excludes what, and messages.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fpsim.records.formats import BINARY32, Format
from ipu.frontends.tensorflow.settings.choices import (
    DeviceConnectionType,
    StochasticRoundingBehaviour,
)
from ipu.frontends.tensorflow.settings.notes import note
from ipu.frontends.tensorflow.settings.options import OPTIONS
from ipu.machine.choice import find_partials
from ipu.machine.control import FpCtl
from ipu.machine.cost.planner import Planner

__all__ = ["PROCESS_COUNT", "System", "configure", "current", "is_configured", "reset", "restore"]

_FLOATING = "floating_point_behaviour"
_PROPORTION = "availableMemoryProportion"
#: Options of products that the machine obeys.
_MODELLED = {"partialsType", _PROPORTION}
_GROUP = "norms.experimental.distributed_batch_norm_replica_group_size"
_PROCESSES = "experimental.multi_replica_distribution"
#: Number of processes; 0: one alone.
PROCESS_COUNT = f"{_PROCESSES}.process_count"


@dataclass(frozen=True)
class System:
    """Options in the simulation's words.

    n_ipus               of each TensorFlow device.
    control              $FP_CTL; esr is set for both kinds of stochastic rounding.
    rounding             where rounding is stochastic.
    partials             of matrix products; conv_partials: of convolutions.
    planner              of matrix products; conv_planner: of convolutions.
    stable_statistics    normalisations subtract the mean before the variance.
    recompute            activations are recomputed.
    io_tiles             tiles that only transfer.
    buffer_size          bytes of gradients that replicas sum as one tensor.
    options              every option by its full name.
    """

    n_ipus: tuple[int, ...]
    control: FpCtl
    rounding: StochasticRoundingBehaviour
    partials: Format
    conv_partials: Format
    planner: Planner
    conv_planner: Planner
    stable_statistics: bool
    recompute: bool
    io_tiles: int
    buffer_size: int
    options: Mapping[str, Any]


    @property
    def overlapping_tiles(self) -> int:
        """I/O tiles that transfer beside computation: an even number, where feeds run there."""
        is_placed = self.options["io_tiles.place_ops_on_io_tiles"]
        return self.io_tiles + self.io_tiles % 2 if is_placed else 0


_current: System | None = None


def current() -> System:
    """The machine as it is configured.

    Raises    RuntimeError where it is not.
    """
    if _current is None:
        raise RuntimeError(
            "No IPU devices configured. Call configure_ipu_system() of an IPUConfig with "
            "auto_select_ipus before the program uses the machine."
        )
    return _current


def is_configured() -> bool:
    """Whether there is a configuration."""
    return _current is not None


def reset() -> None:
    """Forget the configuration."""
    restore(None)


def restore(configured: System | None) -> None:
    """Make a configuration of before the present one again; None: there was none."""
    global _current
    _current = configured


def configure(options: Mapping[str, Any], *, reset_configuration: bool = True) -> System:
    """Make options, by full name, the machine's configuration.

    Raises    ValueError for options that exclude each other; nothing is configured then.
    """
    global _current
    _check(options)
    system = _read(options)
    for sentence in _not_modelled(options):
        note(sentence)
    if _current is not None and _current.options != system.options and reset_configuration:
        warnings.warn(
            "Resetting existing IPU configuration before applying new configuration",
            RuntimeWarning,
            stacklevel=3,
        )
    _current = system
    return system


def _check(options: Mapping[str, Any]) -> None:
    selected = _numbers(options["select_ipus"])
    if _numbers(options["auto_select_ipus"]) and selected:
        raise ValueError("Only one of `auto_select_ipus` and `select_ipus` can be set.")
    if len(set(selected)) != len(selected):
        raise ValueError("All MultiIPU indices in `select_ipus` must be unique.")
    if options["io_tiles.num_io_tiles"] > 0 and options[_GROUP] > 1:
        raise ValueError(f"{_GROUP} is not supported with I/O tiles.")
    if options[_GROUP] < 1:
        raise ValueError(f"{_GROUP} must be at least 1.")
    if options["io_tiles.place_ops_on_io_tiles"] and options["io_tiles.num_io_tiles"] == 0:
        raise ValueError("Cannot place ops on I/O tiles when io_tiles.num_io_tiles == 0")
    index, count = (options[f"{_PROCESSES}.process_{word}"] for word in ("index", "count"))
    if count and not 0 <= index < count:
        raise ValueError(
            f"{_PROCESSES}.process_index must be in the range [0, {_PROCESSES}.process_count)."
        )
    never = (DeviceConnectionType.NEVER.value, DeviceConnectionType.PRE_COMPILE.value)
    if options["device_connection.type"] in never and not options["device_connection.version"]:
        raise ValueError(
            "device_connection.version must be set when device_connection.type is "
            "DeviceConnectionType.NEVER or DeviceConnectionType.PRE_COMPILE"
        )
    wrong = [n for n in _numbers(options["auto_select_ipus"]) if n < 1]
    if wrong:
        raise ValueError(f"auto_select_ipus={wrong[0]} is not a number of IPUs; use 1 or more")


def _numbers(value: int | list[int] | tuple[int, ...]) -> tuple[int, ...]:
    return (value,) if isinstance(value, int) else tuple(value)


def _read(options: Mapping[str, Any]) -> System:
    every = options[f"{_FLOATING}.set_all"]
    bits = {bit: every or options[f"{_FLOATING}.{bit}"] for bit in ("inv", "div0", "oflo", "nanoo")}
    rounding = StochasticRoundingBehaviour(
        StochasticRoundingBehaviour.ON.value if every else options[f"{_FLOATING}.esr"]
    )
    esr = rounding is not StochasticRoundingBehaviour.OFF
    selected = (1,) * len(_numbers(options["select_ipus"]))
    return System(
        n_ipus=selected or _numbers(options["auto_select_ipus"]),
        control=FpCtl(esr=esr, **bits),
        rounding=rounding,
        partials=_partials(options, "matmuls"),
        conv_partials=_partials(options, "convolutions"),
        planner=_planner(options, "matmuls"),
        conv_planner=_planner(options, "convolutions"),
        stable_statistics=options["norms.use_stable_statistics"],
        recompute=options["allow_recompute"],
        io_tiles=options["io_tiles.num_io_tiles"],
        buffer_size=options["optimizations.maximum_cross_replica_sum_buffer_size"],
        options=dict(options),
    )


def _partials(options: Mapping[str, Any], category: str) -> Format:
    """Format of partial sums; the libraries' words are "float" and "half"."""
    partials = options[f"{category}.poplar_options"].get("partialsType")
    if partials is None:
        return BINARY32
    if partials not in ("float", "half"):
        raise ValueError(
            f"{category}.poplar_options: partialsType={partials!r} is not known; use 'float' or "
            "'half'"
        )
    return find_partials(partials)


def _planner(options: Mapping[str, Any], category: str) -> Planner:
    """Choices of the cost model; the libraries' option is a text, "0.6" without one."""
    text = options[f"{category}.poplar_options"].get(_PROPORTION)
    if text is None:
        return Planner()
    try:
        share = float(text)
    except (TypeError, ValueError):
        share = -1.0
    if not 0 <= share <= 1:
        raise ValueError(
            f"{category}.poplar_options: {_PROPORTION}={text!r} is not a share; use '0' to '1'"
        )
    return Planner.of_share(share)


def _not_modelled(options: Mapping[str, Any]) -> list[str]:
    """A sentence for each option that was changed and that the simulation does not obey."""
    sentences = [
        f"{name} = {options[name]!r} is accepted, but the simulation does not model it"
        for name, metadata in OPTIONS.items()
        if not metadata.modelled
        and not (name == "io_tiles.num_io_tiles" and options["io_tiles.place_ops_on_io_tiles"])
        and metadata.default != options[name]
        and getattr(metadata.default, "value", metadata.default) != options[name]
    ]
    for category in ("matmuls", "convolutions"):
        others = sorted(set(options[f"{category}.poplar_options"]) - _MODELLED)
        if others:
            sentences.append(
                f"{category}.poplar_options: {', '.join(others)} is accepted, but the simulation "
                f"models {' and '.join(sorted(_MODELLED, reverse=True))} alone"
            )
    return sentences
