"""The report of a run, as a mapping of plain data.

It is made of the account (operations by kind, constants), the device's counters and ledger, and,
where the run was recorded, exponents, updates, losses and loss scales.

Source    docs/pytorch.md (keys).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from ipu.machine.device import Device
from ipu.run.account import Account, split_name
from ipu.run.exponents import Histogram
from ipu.run.loss_scales import HOW, find_scales
from ipu.run.recorder import Recorder, merged

__all__ = ["KINDS_OF_VALUES", "describe", "present_scale", "totals", "units"]

#: Directions of results, and the kind of values that they are.
_KINDS = {
    "forward": "activations", "recompute": "activations", "evaluation": "activations",
    "backward": "gradients", "optimizer": "optimizer",
}
#: Of exponents in a report.
KINDS_OF_VALUES = ("weights", "activations", "gradients", "updates", "optimizer")


def describe(
    account: Account, device: Device, recorder: Recorder | None, about: Mapping[str, Any]
) -> dict[str, Any]:
    """What a run did.

    about    of the run: policy, steps, status, versions and others, as they are.
    """
    layers = account.layers(device.counts)
    counted = recorder is not None and device.counts is not None
    return account.summary() | {
        "counted": counted,
        "layers": layers,
        "exponents": exponents(recorder) if recorder else {},
        "swallowed": recorder.updates.summary() if recorder else {},
        "loss_scale": loss_scale(recorder, layers) if recorder else {},
        "scale_option": recorder.scale_option if recorder else "",
        "losses": recorder.losses if recorder else [],
        "losses_of_step": recorder.losses_of_step if recorder else 0,
        "uncounted": recorder.uncounted if recorder else 0,
        "unread": sorted(recorder.unread) if recorder else [],
        "first": recorder.first if recorder else [],
        "births": recorder.births.rows() if recorder else [],
        "carried": dict(recorder.births.carried) if recorder else {},
        "jumps": dict(recorder.jumps) if recorder else {},
        "symptom": recorder.births.symptom_row() if recorder else {},
        "operands": recorder.operands.summary() if recorder else [],
        "uncovered": [
            {"layer": layer, "operation": operation, "times": times}
            for (layer, operation), times in sorted(device.blocks.outside.items())
        ],
        "units": units(device),
        "target": device.target.name,
        "choices": {"f32_denormals": device.options.f32_denormals,
                    "max_nan": device.options.max_nan, "sums": device.options.sums},
        "evidence": {name: str(fact) for name, fact in device.ledger.facts.items()},
        **about,
    }


def exponents(recorder: Recorder) -> dict[str, list[dict[str, Any]]]:
    """Histograms by kind of value: a row for each layer and format."""
    kinds: dict[str, list[Histogram]] = {kind: [] for kind in KINDS_OF_VALUES}
    for h in recorder.results:
        layer, direction = split_name(str(h.name))
        if direction in _KINDS:
            kinds[_KINDS[direction]].append(h._replace(name=layer))
    kinds["weights"] = recorder.weight_histograms()
    kinds["updates"] = recorder.updates.histograms()
    return {kind: [_row(h) for h in merged(rows)] for kind, rows in kinds.items()}


def _row(h: Histogram) -> dict[str, Any]:
    fmt = h.format
    return {
        "layer": str(h.name), "format": fmt.name, "counts": h.counts, "zeros": h.zeros,
        "nonfinite": h.nonfinite, "emin": fmt.emin, "emax": fmt.emax, "precision": fmt.precision,
    }


def loss_scale(recorder: Recorder, layers: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Present, highest safe and best loss scale; empty without gradients in a narrow format."""
    gradients = [
        h._replace(name=split_name(str(h.name))[0])
        for h in recorder.results
        if split_name(str(h.name))[1] == "backward"
    ]
    backward = {name: row["backward"] for name, row in layers.items() if "backward" in row}
    overflowed = max(backward, key=lambda name: backward[name]["OVERFLOW"], default="")
    if overflowed and not backward[overflowed]["OVERFLOW"]:
        overflowed = ""
    vanished = sum(max(row["UNDERFLOW"] - row["subnormals"], 0) for row in backward.values())
    present = recorder.scale
    bounds = {key: value * present for key, value in recorder.bounds.items()}
    scales = find_scales(gradients, present, overflowed, vanished, bounds)
    return {} if scales is None else {**asdict(scales), "how": HOW}


def units(device: Device) -> list[dict[str, Any]]:
    """Products by unit: the largest first, with their share of all multiply-adds, by layer.

    A unit of a machine that has no ledger of products stands there without numbers.
    """
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for (tensor, verb, unit), total in device.ledger.rows.items():
        row = rows.setdefault(
            (unit, verb),
            {"unit": unit, "verb": verb, "instruction": total.last.instruction, "products": 0,
             "macs": 0, "cycles": 0, "rate_is": total.last.evidence, "layers": {}},
        )
        row["products"] += total.products
        row["macs"] += total.useful
        row["cycles"] += total.cycles
        layer, _ = split_name(tensor)
        row["layers"][layer] = row["layers"].get(layer, 0) + total.useful
    for unit in device.units_used.keys() - {unit for unit, _ in rows}:
        rows[unit, ""] = {
            "unit": unit, "verb": "", "instruction": "", "products": None, "macs": 0, "cycles": 0,
            "rate_is": "", "layers": {},
        }
    all_macs = sum(row["macs"] for row in rows.values())
    for row in rows.values():
        row["share"] = row["macs"] / all_macs if all_macs else 0.0
    return sorted(rows.values(), key=lambda row: -int(row["macs"]))


def present_scale(report: Mapping[str, Any]) -> float:
    """The loss scale of a run, its changes' included; 1 where no gradient tells one.

    >>> present_scale({"loss_scale": {"present": 8.0}}), present_scale({"loss_scale": {}})
    (8.0, 1.0)
    """
    return float((report.get("loss_scale") or {}).get("present", 1.0))


def totals(layers: Mapping[str, Mapping[str, Mapping[str, int]]], name: str) -> int:
    """One counter over all layers and directions."""
    return sum(row[name] for directions in layers.values() for row in directions.values())
