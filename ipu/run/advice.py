"""Advice from a report: what to change, each item with the counts and the layer that speak for it.

Nothing is advised without evidence in the report, and advice is a proposal: `trials` tries it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from fpsim.records.formats import BINARY16, Format, find_format
from ipu.learn.policy import FP32, LayerPolicies, Policy
from ipu.run.block_advice import find_block_advice
from ipu.run.changes import scale_text
from ipu.run.report import totals
from ipu.run.ways import Way

__all__ = ["Advice", "find_advice"]

Report = Mapping[str, Any]

#: An eps that binary16 holds as a normal number.
_EPS = 1e-4
#: Share of a layer's results, or of updates, from which underflow and swallowing are worth a word.
_NOTABLE = 0.01
#: Share of the gradients' digits from which a loss scale is.
_DIGITS = 0.001
#: Below the highest safe scale, where gradients of unknown size ask for much: other batches differ.
_HEADROOM = 4
#: Layers that one item names.
_LAYERS = 3
#: Directions of a pass forward.
_FORWARD = ("forward", "evaluation")


@dataclass(frozen=True)
class Advice:
    """One item.

    what        to do, in a sentence.
    evidence    the counts behind it.
    layer       where they are, "" for all layers.
    ways        of trying it, from the way of the report's run.
    """

    what: str
    evidence: str
    layer: str
    ways: tuple[Way, ...] = ()


def find_advice(report: Report, base: Way) -> list[Advice]:
    """The advice that a report gives, the most urgent first.

    base    the way of the report's run.
    """
    if report.get("unreached"):
        return list(_unreached(report))
    rules: tuple[Callable[[Report, Way], Iterator[Advice]], ...] = (
        _constants, _products, _gradients, _blocks, _updates, _statistics,
    )
    base = base.with_policies
    return [item for rule in rules for item in rule(report, base)]


def _blocks(report: Report, base: Way) -> Iterator[Advice]:
    """What the operands of products in blocks speak for."""
    yield from (Advice(*item) for item in find_block_advice(report, base))


def _unreached(report: Report) -> Iterator[Advice]:
    """How a program reaches the machine: a run beside it speaks for nothing."""
    stopped = report.get("stopped")
    what = f"Mend what stopped the program: {stopped}" if stopped else str(report["unreached"])
    yield Advice(what, "nothing was computed on the machine, so this run says nothing of it", "")


def _constants(report: Report, base: Way) -> Iterator[Advice]:
    """Numbers that the format has not, and what they did."""
    updates = [row["optimizer"] for row in report["layers"].values() if "optimizer" in row]
    divisions = sum(row.get("DIVBYZERO", 0) for row in updates)
    for constant in report["constants"]:
        value, fmt, layer = constant["value"], constant["format"], constant["layer"]
        text = f"{value:g} {_BECOMES[constant['becomes']]} in {fmt} ({constant['times']} times)"
        if constant["direction"] != "optimizer":
            if constant["becomes"] != "one":
                yield Advice(
                    f"Replace the constant {value:g} of {layer} by one that {fmt} holds", text,
                    layer, (
                        _with(base, constants=((value, _held(constant)),)),
                        base.with_layer(layer),
                    ),
                )
            continue
        if constant["becomes"] in ("zero", "subnormal") and abs(value) < _EPS:
            if divisions:
                text += f"; {divisions} divisions by zero in the optimiser"
            yield Advice(
                f"Set eps={_EPS:g}, or let the optimiser compute in binary32", text, layer,
                (_with(base, eps=_EPS), _with(base, wide_states=True)),
            )
        elif constant["becomes"] == "one":
            yield Advice(
                f"Let the optimiser compute in binary32: the factor {value:g} changes nothing",
                text, layer, (_with(base, wide_states=True), _with_parameters(base)),
            )


def _held(constant: Mapping[str, Any]) -> float:
    """The number that takes the place of a constant which the format does not hold.

    One that is too large becomes half of the largest power of two, so that two of them can be
    added; one that is too small becomes the smallest normal number.
    """
    fmt = find_format(constant["format"])
    assert isinstance(fmt, Format), "operations compute in no format of scales"
    size = 2.0 ** (fmt.emax - 1) if constant["becomes"] == "overflow" else fmt.smallest_normal
    return math.copysign(float(size), constant["value"])


_BECOMES = {
    "zero": "is zero", "subnormal": "is subnormal", "overflow": "is beyond the largest value",
    "one": "is 1",
}


def _products(report: Report, base: Way) -> Iterator[Advice]:
    """Layers whose forward results overflow or are invalid before anything else is."""
    rows = _passes(report)
    over = sorted((n for n in rows if rows[n]["OVERFLOW"]), key=lambda n: -rows[n]["OVERFLOW"])
    if over:
        count = sum(rows[name]["OVERFLOW"] for name in over)
        ways = [_with_layers(base, over[:_LAYERS])]
        half = replace(base, policy=_float_partials(base.policy))
        if half != base:
            ways.insert(0, half)
        yield Advice(
            f"Compute {_names(over)} in binary32",
            f"{count} results overflow forward, most of them in {over[0]} "
            f"({rows[over[0]]['OVERFLOW']})", over[0], tuple(ways),
        )
    elif replace(base, policy=_float_partials(base.policy)) != base:
        yield Advice(
            "Try float partials", f"policy {base.policy} keeps partial sums in binary16", "",
            (replace(base, policy=_float_partials(base.policy)),),
        )
    first = report.get("first", [])
    invalid = next((row for row in first if row["flag"] == "INVALID"), None)
    if invalid and invalid is first[0] and invalid["direction"] in _FORWARD:
        yield Advice(
            f"Compute {invalid['layer']} in binary32",
            f"the first invalid operation is {invalid['operation']} of {invalid['layer']} in step "
            f"{invalid['step']}, {invalid['times']} results", str(invalid["layer"]),
            (base.with_layer(str(invalid["layer"])),),
        )


def _passes(report: Report) -> dict[str, dict[str, int]]:
    """Counters of each layer in passes forward, those of evaluations among them."""
    rows: dict[str, dict[str, int]] = {}
    for name, directions in report["layers"].items():
        passes = [row for direction, row in directions.items() if direction in _FORWARD]
        if passes:
            rows[name] = {key: sum(row[key] for row in passes) for key in passes[0]}
    return rows


def _gradients(report: Report, base: Way) -> Iterator[Advice]:
    """A higher or lower loss scale."""
    scales = report.get("loss_scale")
    if not scales:
        return
    present = scales["present"]
    if scales["best"] is None:
        over = scales["limited_by"]
        count = report["layers"].get(over, {}).get("backward", {}).get("OVERFLOW", 0)
        lower = tuple(_with(base, loss_scale=base.changes.loss_scale / f) for f in (16.0, 256.0))
        yield Advice(
            f"Lower the loss scale, or compute {over} in binary32",
            f"{count} gradient results of {over} overflow at the present scale of "
            f"{scale_text(present)}",
            over, (*lower, base.with_layer(over)),
        )
        return
    now, then = scales["lost"]
    if scales["highest_safe"] < present:
        down = scales["highest_safe"] / present
        way = _with(base, loss_scale=base.changes.loss_scale * down)
        yield Advice(
            f"Lower the loss scale to {scales['highest_safe']:g}",
            f"the present scale of {present:g} takes {scales['limited_by']} beyond the largest "
            "number of its format", scales["limited_by"], (way,),
        )
        return
    if scales["best"] != present and now - then > _DIGITS:
        safe, unseen = scales["highest_safe"] / _HEADROOM, scales["unseen"]
        factors = [scales["best"], safe] if unseen and safe > scales["best"] else [scales["best"]]
        of_unknown = (
            f"; {unseen} gradients beside them are zero, of a size that is not known and may need "
            "more" if unseen else ""
        )
        yield Advice(
            f"Multiply the loss by {scale_text(scales['best'])}",
            f"gradients lose {now:.1%} of their digits to subnormals and zero, {then:.2%} with "
            f"that scale; up to {scale_text(scales['highest_safe'])} none overflows "
            f"(the largest are in layer {scales['limited_by']}){of_unknown}", scales["limited_by"],
            tuple(_with(base, loss_scale=base.changes.loss_scale * s / present) for s in factors),
        )


def _updates(report: Report, base: Way) -> Iterator[Advice]:
    """Stochastic rounding, or parameters in binary32."""
    rows = report.get("swallowed", {})
    nonzero = sum(row["nonzero"] for row in rows.values())
    swallowed = sum(row["swallowed"] for row in rows.values())
    if not nonzero or swallowed < _NOTABLE * nonzero:
        return
    worst = max(rows, key=lambda name: rows[name]["share"])
    evidence = (
        f"{swallowed / nonzero:.0%} of {nonzero} updates left their parameter as it was, most of "
        f"them in layer {worst} ({rows[worst]['share']:.0%})"
    )
    ways = [_with_parameters(base)]
    if not base.sr:
        ways.insert(0, replace(base, sr=True))
    what = "Keep parameters in binary32" if base.sr else (
        "Round stochastically, or keep parameters in binary32"
    )
    yield Advice(what, evidence, worst, tuple(ways))


def _statistics(report: Report, base: Way) -> Iterator[Advice]:
    """Variances by the stable formula, where a front end computes the other."""
    if report.get("stable_statistics", True):
        return
    rows = _passes(report)
    norms = [name for name in rows if "norm" in name.lower() and rows[name]["INVALID"]]
    yield Advice(
        "Use stable statistics in norms",
        f"variances are differences of means; {len(norms)} norms had invalid operations", "",
        (_with(base, stable_statistics=True),),
    )


# Ways ------------------------------------------------------------------------------------------


def _with(base: Way, **changes: Any) -> Way:
    return replace(base, changes=replace(base.changes, **changes))


def _with_layers(base: Way, layers: list[str]) -> Way:
    for layer in layers:
        base = base.with_layer(layer)
    return base


def _with_parameters(base: Way) -> Way:
    """Parameters in binary32, in every layer."""
    return replace(base, policy=_mapped(base.policy, lambda p: replace(
        p, param=FP32.param, accumulator=FP32.param)))


def _float_partials(policy: Policy | LayerPolicies) -> Policy | LayerPolicies:
    return _mapped(policy, lambda p: replace(p, partials=FP32.partials)
                   if p.partials == BINARY16 and p.compute == BINARY16 else p)


def _mapped(
    policy: Policy | LayerPolicies, change: Callable[[Policy], Policy]
) -> Policy | LayerPolicies:
    if isinstance(policy, LayerPolicies):
        layers = tuple((pattern, change(rule)) for pattern, rule in policy.layers)
        return LayerPolicies(change(policy.default), layers)
    return change(policy.default)


def _names(layers: list[str]) -> str:
    shown = ", ".join(layers[:_LAYERS])
    return shown if len(layers) <= _LAYERS else f"{shown} and {len(layers) - _LAYERS} more"


def exceptions(report: Report) -> dict[str, int]:
    """Overflow, invalid operations, divisions by zero and underflow of a run."""
    names = ("OVERFLOW", "INVALID", "DIVBYZERO", "UNDERFLOW")
    return {name: totals(report["layers"], name) for name in names}
