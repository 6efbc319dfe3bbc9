"""Every case gets its name and its tags, in one order."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

from fpsim import BINARY16, BINARY32, F152, SR, Context
from ipu.machine.control import FpCtl
from tests.digests.blocks import block_products, delayed, quantised
from tests.digests.contexts import seeded
from tests.digests.conversions import among_formats, conversions, integers
from tests.digests.convolutions import convolutions
from tests.digests.device import CONTROLS, device_case, device_numbering, device_registers
from tests.digests.elementwise import arithmetic, functions, selections
from tests.digests.many_operations import (
    counters,
    everything,
    layouts,
    numbering,
    traps,
    without_products,
)
from tests.digests.operands import FORMATS, MODES, SR13, SR_IPU
from tests.digests.random_bits import decided, replayed, sources
from tests.digests.registry import CASES, Items, add
from tests.digests.rooms import ROOMS
from tests.digests.sums import rounded_products, sums
from tests.digests.trainings import all_trainings, cnn, noisy, training
from tests.digests.units import (
    split_products,
    unit_choices,
    unit_numbering,
    unit_products,
    unit_stochastic,
)

__all__ = ["CASES"]


def sr(rounding: Any) -> str:
    """The tag of a mode that takes random bits."""
    return "stochastic" if "SR" in repr(rounding) else ""


def in_context(compute: Callable[[Context], Items], *arguments: Any, **choices: Any) -> Any:
    """The case of a function of a context."""
    return lambda: compute(seeded(*arguments, **choices))


FEW_MODES = ("RNE", "RTN", "SR13")
POLICIES: dict[str, dict[str, Any]] = {
    "saturate": {"overflow": "saturate"},
    "nan": {"overflow": "nan", "infinite_input": "nan"},
    "flush_results": {"subnormals": "flush_results"},
    "flush_both": {"subnormals": "flush_both"},
    "before": {"tininess": "before"},
    "propagate_first": {"nan": "propagate_first"},
    "x86": {"nan": "x86"},
    "machine": {"divide_by_zero": "nan", "quiet_nan_raises": True, "overflow": "saturate"},
}
RARE_MODES: dict[str, Any] = {
    "SR": SR(), "SR20": SR(bits=20), "SR8half": SR(bits=8, residual="half"),
    "SR13even": SR(bits=13, residual="even"),
}


def _register_arithmetic() -> None:
    for (shown, fmt), (mode, rounding) in product(FORMATS.items(), MODES.items()):
        tags = sr(rounding)
        add(f"arithmetic/{shown}/{mode}", in_context(arithmetic, fmt, rounding), tags=tags)
        add(f"convert/{shown}/{mode}", in_context(conversions, fmt, rounding), tags=tags)
        if mode in FEW_MODES or shown == "binary16":
            add(f"sums/{shown}/{mode}", in_context(sums, fmt, rounding), tags=tags)
        if mode in FEW_MODES or (shown == "binary16" and mode in ("RTZ", "SR13+16", "SR_EQUAL")):
            whole = in_context(rounded_products, fmt, rounding)
            add(f"products/{shown}/{mode}", whole, tags=tags)
        if mode in FEW_MODES:
            add(f"functions/{shown}/{mode}", in_context(functions, fmt, rounding), tags=tags)
            add(f"integers/{shown}/{mode}", in_context(integers, fmt, rounding), tags=tags)
    for (mode, rounding), (shown, fmt) in product(
        RARE_MODES.items(), {"binary16": BINARY16, "binary32": BINARY32}.items()
    ):
        add(f"rare/{shown}/{mode}", in_context(without_products, fmt, rounding), tags="stochastic")


def _register_context() -> None:
    for shown, fmt in FORMATS.items():
        add(f"exact/{shown}", in_context(selections, fmt))
    add("exact/binary16/RTN", in_context(selections, BINARY16, "RTN"))
    two_formats = {"binary16": BINARY16, "f152": F152}
    for (shown, fmt), (name, choices), mode in product(
        two_formats.items(), POLICIES.items(), ("RNE", "SR13")
    ):
        place, rounding = f"policy/{name}/{shown}", MODES[mode]
        whole = name in ("saturate", "flush_both", "machine")
        rounds = everything if whole else without_products
        rounded = in_context(rounds, fmt, rounding, **choices)
        add(f"{place}/{mode}", rounded, tags=sr(rounding))
        if mode == "RNE":
            add(f"{place}/exact", in_context(selections, fmt, **choices))
    single = in_context(everything, BINARY32, subnormals="flush_both", quiet_nan_raises=True)
    add("policy/machine/binary32/RNE", single)
    for mode in ("RNE", "RTP", "SR13", "SR_EQUAL"):
        add(f"among_formats/{mode}", among_formats, MODES[mode], tags=sr(MODES[mode]))
    for shown, mode in product(("binary16", "f143", "binary32"), ("RNE", "SR13")):
        tags, rounding = sr(MODES[mode]), MODES[mode]
        # Operators include - and abs(), which round nothing.
        more = f"{tags} counts" if tags else ""
        add(f"layouts/{shown}/{mode}", layouts, FORMATS[shown], rounding, tags=more)
        add(f"counters/{shown}/{mode}", counters, FORMATS[shown], rounding, tags=tags)
        add(f"traps/{shown}/{mode}", traps, FORMATS[shown], rounding, tags=tags)
    for shown in ("binary16", "binary32", "f143"):
        add(f"numbering/{shown}", numbering, FORMATS[shown], tags="stochastic counts")
    for kind in ("philox", "xoroshiro"):
        add(f"sources/{kind}", sources, kind, tags="stochastic")
    add("sources/replay", replayed, tags="stochastic")
    rare_modes = {"SR13": SR13, "SR13+16": SR_IPU} | RARE_MODES
    for (mode, rounding), shown in product(rare_modes.items(), ("binary16", "binary32", "f143")):
        add(f"decided/{shown}/{mode}", decided, FORMATS[shown], rounding, tags="stochastic")


#: One unit for each way of summing: these are run under every choice.
VARIED_UNITS = (
    "AMP_F16_F16", "AMP_F16_F32", "AMP_F16_F16.exact", "AMP_F16_F16.sticky",
    "AMP_F16_F16.sequential_f32", "AMP_F8_F16", "AMP_F32_F32", "AMP_BF16_F32", "SLIC_F16_F16",
    "VMAC_F16_F16", "VMAC_F32_F32", "V100_F16_F32", "H100_F16_F16", "A100_TF32_F32",
    "ADA_E4M3_F32", "H100_E5M2_F16",
)


def _register_units() -> None:
    for name in ROOMS.UNITS:
        add(f"units/{name}/products", unit_products, name)
    for name in VARIED_UNITS:
        add(f"units/{name}/choices", unit_choices, name)
        # Sums in the format of half partials leave nothing to round.
        exact = ROOMS.UNITS[name].accumulator == BINARY16 or ROOMS.UNITS[name].join == BINARY16
        tags = "stochastic counts" if exact else "stochastic"
        add(f"units/{name}/sr", unit_stochastic, name, tags=tags)
    for mode in ("RNE", "SR13"):
        add(f"k_split/{mode}", split_products, MODES[mode], tags=sr(MODES[mode]))
    for family, partials in product(("AMP", "SLIC", "VMAC"), ("F16_F32", "F16_F16", "F32_F32")):
        name = f"{family}_{partials}"
        add(f"conv/{name}/RNE", convolutions, name, "RNE")
        if partials != "F32_F32":
            add(f"conv/{name}/SR", convolutions, name, SR_IPU, tags="stochastic")
    for name in ("AMP_F8_F16", "SLIC_F8_F16", "SLIC_F16_F16.exact"):
        add(f"conv/{name}/RNE", convolutions, name, "RNE")
        add(f"conv/{name}/SR", convolutions, name, SR_IPU, tags="stochastic")
    add("numbering/units", unit_numbering, tags="stochastic counts")


def _register_blocks() -> None:
    for name in ("mxfp8", "mxfp8-rceil", "mxfp6", "mxfp4-34", "mxint8", "nvfp4", "nvfp4-2d",
                 "nvfp4-46", "nvfp4-eps", "e4m3-128x128", "e4m3-tensor"):
        add(f"blocks/{name}", quantised, name, tags="stochastic")
    for unit, name in (
        ("B200_TC05_MXF8_F32", "mxfp8"), ("B200_TC05_NVF4_F32", "nvfp4"),
        ("B200_TC05_MXF4_F32.nonzero", "mxfp4"), ("H100_E4M3X128_F32", "e4m3-128"),
        ("CDNA4_MXF8_F32.down", "mxfp8-e5m2"), ("CDNA4_MXF8_F32", "mxfp6-e3m2"),
    ):
        add(f"blocks/{unit}", block_products, unit, name, tags="stochastic")
    add("blocks/delayed", delayed, tags="stochastic")


def _register_devices() -> None:
    for target, (shown, control), part in product(
        ("mk2-fp8", "hypothetical"), CONTROLS.items(), ("elementwise", "exact", "products")
    ):
        tags = "stochastic" if control.esr or part == "exact" else ""
        if control.esr and part == "exact":
            tags += " counts"
        add(f"device/{target}/{part}/{shown}", device_case, part, target, control, {}, tags=tags)
    options: dict[str, dict[str, Any]] = {
        "ieee": {"f32_denormals": "ieee"}, "propagate": {"max_nan": "propagate"},
        "half": {"partials": "half"}, "conv_half": {"conv_partials": "half"},
        "exact": {"preset": "exact"}, "sticky": {"preset": "sticky"},
        "sequential": {"preset": "sequential_f32"}, "count": {"count": True},
        "no_sr": {"disable_sr_for_amp_vertices": True},
    }
    for name, device_options in options.items():
        for part in ("elementwise",) if name in ("ieee", "count") else ():
            add(f"device/mk2/{part}/{name}", device_case, part, "mk2", FpCtl(), device_options)
        if name in ("ieee", "count", "propagate"):
            add(f"device/mk2/exact/{name}", device_case, "exact", "mk2", FpCtl(), device_options,
                tags="stochastic")
        if name not in ("propagate", "half"):
            add(f"device/mk2/products/{name}", device_case, "products", "mk2", FpCtl(esr=True),
                device_options, tags="stochastic")
    add("device/registers", device_registers, tags="stochastic")
    add("numbering/device", device_numbering, tags="stochastic counts")


def _register_trainings() -> None:
    for name, (model, optimizer, choices) in all_trainings().items():
        drops = "stochastic" if model in (noisy, cnn) else ""
        add(f"training/rne/{name}", training, model, optimizer, False, choices, tags=drops)
        if "fp32" not in name:
            add(f"training/sr/{name}", training, model, optimizer, True, choices,
                tags="stochastic")


_register_arithmetic()
_register_context()
_register_units()
_register_blocks()
_register_devices()
_register_trainings()
