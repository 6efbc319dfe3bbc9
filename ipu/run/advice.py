"""Advice from a report: what to change, an item for each cause, the one with the most harm first.

Nothing is advised without a cause (`ipu.run.causes`), and advice is a proposal: `trials` tries it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

from fpsim.records.formats import BINARY16, Format, find_format
from ipu.learn.policy import FP32, LayerPolicies, Policy
from ipu.run.births.kinds import ONE
from ipu.run.block_advice import find_block_advice
from ipu.run.causes.cause import Cause
from ipu.run.causes.clauses import name_of
from ipu.run.causes.finding import find_causes
from ipu.run.causes.rows import is_pass, shadow_rows
from ipu.run.changes import number_text, scale_text
from ipu.run.motions import is_parameter
from ipu.run.report import present_scale, totals
from ipu.run.ways import Way

__all__ = ["Advice", "advice_for", "find_advice"]

Report = Mapping[str, Any]
#: What to do, and ways of trying it.
Remedy = tuple[str, tuple[Way, ...]]

#: Names of torch's operations, which are their layers outside of modules, begin with it.
_TORCH = "aten."
#: An eps that binary16 holds as a normal number.
_EPS = 1e-4
#: Loss scales to try where every gradient is zero, so that none says how large it must be.
_SCALES = (2.0**10, 2.0**20)


@dataclass(frozen=True)
class Advice:
    """One item.

    what        to do, in a sentence.
    evidence    the cause, and the counts behind it.
    layer       where it begins, "" for all layers.
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
    wider = base.with_policies
    items = [advice_for(cause, report, base) for cause in find_causes(report)]
    items.extend(_blocks(report, wider))
    if items and not report.get("stable_statistics", True):
        items.append(Advice(
            "Use stable statistics in norms", "variances are differences of means", "",
            (_with(wider, stable_statistics=True),),
        ))
    return items


def advice_for(cause: Cause, report: Report, base: Way) -> Advice:
    """The advice on one cause, from the way of the report's run."""
    what, ways = _REMEDIES[cause.kind](cause, report, base.with_policies)
    ways = tuple(way for way in ways if str(way) != str(base))
    return Advice(what, cause.sentence, cause.layer, ways)


def _blocks(report: Report, base: Way) -> Iterator[Advice]:
    """What the operands of products in blocks speak for."""
    yield from (Advice(*item) for item in find_block_advice(report, base))


def _unreached(report: Report) -> Iterator[Advice]:
    """How a program reaches the machine: a run beside it speaks for nothing."""
    stopped = report.get("stopped")
    what = f"Mend what stopped the program: {stopped}" if stopped else str(report["unreached"])
    yield Advice(what, "nothing was computed on the machine, so this run says nothing of it", "")


# Remedies, by kind of cause -----------------------------------------------------------------------


def _constant(cause: Cause, report: Report, base: Way) -> Remedy:
    """A number that the format has not, and what it did."""
    row = cause.row
    value, fmt = float(row["operation"]), row["format"]
    is_factor = row["detail"] == ONE and not is_pass(row.get("direction", "optimizer"))
    if is_factor and _is_of_program(row.get("line", ""), report):
        return f"Keep the average of {row['line']} in binary32, which holds {value:g}", (
            _with_parameters(base), _with(base, wide_states=True),
        )
    if is_factor:
        return f"Let the optimiser compute in binary32, which holds the factor {value:g}", (
            _with(base, wide_states=True), _with_parameters(base),
        )
    replaced = _with(base, constants=(*base.changes.constants, (value, _held(row))))
    if row["direction"] == "optimizer" and _is_written_out(row.get("line", ""), report):
        return (f"Replace the constant {value:g} by one that {fmt} holds, or let the optimiser "
                "compute in binary32"), (replaced, _with(base, wide_states=True))
    if row["direction"] == "optimizer" and 0 < value < _EPS:
        return f"Set eps={_EPS:g}, or let the optimiser compute in binary32", (
            _with(base, eps=_EPS), _with(base, wide_states=True),
        )
    if row["direction"] == "optimizer":
        return "Let the optimiser compute in binary32", (_with(base, wide_states=True),)
    wide = _layers_around(cause, report, base)
    or_wide = f", or compute {_place(cause)} in binary32" if wide else ""
    of_layer = f"{number_text(value)} of {cause.layer}"
    return f"Replace the constant {of_layer} by one that {fmt} holds{or_wide}", (
        replaced, *wide,
    )


def _is_written_out(line: str, report: Report) -> bool:
    """Whether a line computes an update in torch's operations: no option of an optimiser's."""
    return bool(line) and any(
        row["line"] == line and row["operation"].startswith(_TORCH)
        for row in report.get("births", ()) if row["direction"] == "optimizer")


def _is_of_program(line: str, report: Report) -> bool:
    """Whether a line writes tensors of the program that are no states of an optimiser's."""
    rows = report.get("shadow", {}).get("motions", ())
    return bool(line) and any(
        row["line"] == line and not row["is_state"] and not is_parameter(row)
        for row in rows)


def _held(row: Mapping[str, Any]) -> float:
    """The number that takes the place of a constant which the format does not hold.

    One that is too large becomes half of the largest power of two, so that two of them can be
    added; one that is too small becomes the smallest normal number; one that is 1 and was none, its
    neighbour on the constant's side.
    """
    fmt, value = find_format(row["format"]), float(row["operation"])
    assert isinstance(fmt, Format), "operations compute in no format of scales"
    sizes = {
        "overflow": 2.0 ** (fmt.emax - 1),
        ONE: 1 - 2.0**-fmt.precision if abs(value) < 1 else 1 + 2.0 ** (1 - fmt.precision),
    }
    return math.copysign(sizes.get(row["detail"], float(fmt.smallest_normal)), value)


def _range(cause: Cause, report: Report, base: Way) -> Remedy:
    """A layer whose results leave the range."""
    if cause.row["direction"] == "optimizer":
        return "Let the optimiser compute in binary32", (
            _with(base, wide_states=True), _with_parameters(base),
        )
    if cause.row["direction"] == "accumulate":
        return "Keep the sums of gradients in binary32", (
            _with(base, wide_states=True), _with_parameters(base),
        )
    ways = _layer(cause, report, base)
    layers = _alike(cause, report) if ways and cause.kind in ("overflow", "underflow") else []
    place = _place(cause)
    if len(layers) > 1:
        place = f"{place}, or all of {', '.join(layers)}"
        ways = (*ways, reduce(Way.with_layer, layers, base))
    if ways and any(_outside_of_modules(layer) for layer in (cause.layer, *layers)):
        place = f"{place}, or with it all that stands outside of modules,"
        wider = [_outside_of_modules(layer) or layer for layer in layers or [cause.layer]]
        ways = (*ways, reduce(Way.with_layer, dict.fromkeys(wider), base))
    half = replace(base, policy=_float_partials(base.policy))
    if half != base and cause.kind == "overflow":
        ways = (half, *ways)
    return f"Compute {place} in binary32", ways


def _lower_to(cause: Cause, report: Report, base: Way) -> Remedy:
    """The highest loss scale that the numbers of the run would have borne."""
    scales = report["loss_scale"]
    down = scales["highest_safe"] / scales["present"]
    return f"Lower {_name_of_scale(report)} to {scales['highest_safe']:g}", (
        _with(base, loss_scale=base.changes.loss_scale * down),
    )


def _name_of_scale(report: Report) -> str:
    """What the program calls its loss scale."""
    return report.get("scale_option") or "the loss scale"


def _lower(cause: Cause, report: Report, base: Way) -> Remedy:
    """A lower loss scale."""
    present = present_scale(report)
    lower = tuple(_with(base, loss_scale=base.changes.loss_scale / f) for f in (16.0, 256.0))
    at = f" from {scale_text(present)}" if present != 1 else ""
    return f"Lower {_name_of_scale(report)}{at}, or compute {_place(cause)} in binary32", (
        *lower, *_layer(cause, report, base),
    )


def _higher(cause: Cause, report: Report, base: Way) -> Remedy:
    """A higher loss scale."""
    scales, option = report.get("loss_scale") or {}, report.get("scale_option")
    if not scales or scales["best"] is None or scales["lost"][0] <= scales["lost"][1]:
        what = f"Raise {option}" if option else (
            "Multiply the loss by a scale, and divide the gradients by it in binary32")
        return what, tuple(
            _with(base, loss_scale=base.changes.loss_scale * factor) for factor in _SCALES
        )
    present, best, unseen = scales["present"], scales["best"], scales["unseen"]
    factors = [best]
    if unseen:  # halfway to where gradients overflow, in powers of two
        factors.append(2.0 ** math.floor(math.log2(best * scales["highest_safe"]) / 2))
    of_unknown = (
        f"; {unseen:,} gradients are zero, of a size that is not known, and may need more"
        if unseen else ""
    )
    raised = f"Set {option}={scale_text(best)}" if option else (
        f"Multiply the loss by {scale_text(best)}")
    return (
        f"{raised}, up to {scale_text(scales['highest_safe'])} no "
        f"gradient overflows{of_unknown}",
        tuple(_with(base, loss_scale=base.changes.loss_scale * scale / present)
              for scale in dict.fromkeys(factors)),
    )


def _states(cause: Cause, report: Report, base: Way) -> Remedy:
    """Squares of gradients that an optimiser holds."""
    return "Let the optimiser compute in binary32", (
        _with(base, wide_states=True), _with_parameters(base),
    )


def _rounding(cause: Cause, report: Report, base: Way) -> Remedy:
    """Stochastic rounding, or parameters in binary32."""
    return "Round stochastically, or keep parameters in binary32", (
        replace(base, sr=True), _with_parameters(base),
    )


def _sum(cause: Cause, report: Report, base: Way) -> Remedy:
    """A sum that is longer than its format is precise."""
    if cause.row["direction"] == "optimizer":
        return "Keep averages in binary32", (_with(base, wide_states=True), _with_parameters(base))
    place = cause.row["line"] or cause.layer
    return f"Keep the sum at {place} in binary32", _layers_around(cause, report, base)


def _drift(cause: Cause, report: Report, base: Way) -> Remedy:
    """A tensor of the program that stands still."""
    return f"Keep what {cause.row['line'] or 'the program'} sums in binary32, or round " \
           "stochastically", (
        *_layer(cause, report, base), _with_parameters(base), replace(base, sr=True))


def _integers(cause: Cause, report: Report, base: Way) -> Remedy:
    return "Compute with positions in integers or in binary32", _layers_around(cause, report, base)


def _data(cause: Cause, report: Report, base: Way) -> Remedy:
    """Numbers of the program that its format does not hold on their way in."""
    place = f"what reads them ({_place(cause)})" if cause.layer else "what reads them"
    ways = _layers_around(cause, report, base)
    if cause.layer != cause.row["layer"]:  # they are rounded before a layer reads them
        ways = tuple(_with(way, wide_data=True) for way in ways)
    return f"Scale or normalise the data before they enter, or keep {place} in binary32", ways


def _cancelled(cause: Cause, report: Report, base: Way) -> Remedy:
    """An operation that magnifies the errors of its operands, with those of its line at first."""
    ways = _layers_around(cause, report, base)
    line = cause.row["line"]
    layers = list(dict.fromkeys(
        row["layer"] for row in shadow_rows(report)
        if line and row["line"] == line and is_pass(row["direction"]) and row["layer"]))
    if ways and cause.layer in layers and len(layers) > 1:
        ways = (reduce(Way.with_layer, layers, base), *ways)
    return f"Compute {_place(cause)}, and what it reads, in binary32", ways


def _diverges(cause: Cause, report: Report, base: Way) -> Remedy:
    return "Lower the learning rate: no format mends this", ()


def _outside(cause: Cause, report: Report, base: Way) -> Remedy:
    return "Look for NaN and infinity in the data and in the first weights", ()


_REMEDIES: Mapping[str, Callable[[Cause, Report, Way], Remedy]] = {
    "constant": _constant, "division": _range, "invalid": _range, "overflow": _range,
    "underflow": _range,
    "gradients overflow": _lower, "scale": _lower_to, "gradients vanish": _higher,
    "states": _states, "updates": _rounding, "sums": _sum, "integers": _integers, "drift": _drift,
    "data": _data, "cancellation": _cancelled, "diverges": _diverges, "outside": _outside,
}


def _alike(cause: Cause, report: Report) -> list[str]:
    """The layers in whose passes the operation of a cause leaves its range too."""
    return list(dict.fromkeys(
        row["layer"] for row in report.get("births", ())
        if row["kind"] == cause.row["kind"] and row["operation"] == cause.row["operation"]
        and row["direction"] != "optimizer" and not row["harmless"]
        and is_pass(row["direction"]) == is_pass(cause.row["direction"])
    ))


def _outside_of_modules(layer: str) -> str:
    """The pattern of all operations outside of modules, of one of them; "" of a layer.

    What one of them computes in binary32 is rounded again as the operand of the next.
    """
    return f"{_TORCH}*" if layer.startswith(_TORCH) else ""


def _place(cause: Cause) -> str:
    """The layer of a cause; outside of modules its operation."""
    return cause.layer if cause.layer != cause.row.get("operation") else name_of(cause.row)


# Ways ------------------------------------------------------------------------------------------


def _layer(cause: Cause, report: Report, base: Way) -> tuple[Way, ...]:
    """The layer of a cause in binary32, outside of modules its operation; none beyond its reach."""
    row = cause.row
    if not cause.layer or not (is_pass(row["direction"]) or row["direction"] == "backward"):
        return ()
    return (base.with_layer(cause.layer),)


def _layers_around(cause: Cause, report: Report, base: Way) -> tuple[Way, ...]:
    """As `_layer`; of an operation outside of modules also all of these."""
    pattern = _outside_of_modules(cause.layer)
    ways = _layer(cause, report, base)
    return (*ways, base.with_layer(pattern)) if ways and pattern else ways


def _with(base: Way, **changes: Any) -> Way:
    return replace(base, changes=replace(base.changes, **changes))


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


def exceptions(report: Report) -> dict[str, int]:
    """Overflow, invalid operations, divisions by zero and underflow of a run."""
    names = ("OVERFLOW", "INVALID", "DIVBYZERO", "UNDERFLOW")
    return {name: totals(report["layers"], name) for name in names}
