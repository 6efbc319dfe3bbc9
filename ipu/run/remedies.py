"""Remedies that are tried: what the report advises, parts and sums of it, layers of sites.

Each is a way that the program was run in, and is told with the harm that is left.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from ipu.learn.policy import Policy
from ipu.run.advice import Advice, find_advice
from ipu.run.budget import TimeOverError
from ipu.run.causes.cause import Cause
from ipu.run.causes.finding import find_causes
from ipu.run.changes import number_text, scale_text
from ipu.run.diagnosis import Diagnosis, TriedRemedy
from ipu.run.endpoints import Outcome
from ipu.run.harm import harm_of, most_left
from ipu.run.report import present_scale
from ipu.run.reruns import ROUNDS, Reruns
from ipu.run.responses import last_that_holds
from ipu.run.restoring import UPDATE
from ipu.run.subsets import smallest
from ipu.run.ways import Way

__all__ = [
    "advised", "by_module", "drop_larger", "joined_remedies", "proposed_by", "sort_remedies",
    "told_by_changes", "try_behind", "try_scale_with_room", "try_ways", "with_wide_layers",
    "without_halves", "without_needless",
]

#: Remedies that are tried, at most.
_REMEDIES = 8
#: Harm of a run that is as good as binary32's.
_AS_GOOD = 0.01
#: Modules that are tried as wholes where no advice cures; what a layer's name begins with.
_MODULES, _SEPARATOR = 3, re.compile(r"[./]")
_OUTSIDE = "all that stands outside of modules"
#: Layers of necessary sites that are offered as a policy, at most.
_LAYERS = 6
#: A part of a remedy: the name of a change with its value, or a layer's pattern with its policy.
_Piece = tuple[str, Any]


def try_ways(
    proposed: Mapping[Way, str], runs: Reruns, remedies: list[TriedRemedy], *,
    first: bool = False,
) -> None:
    """Append each way that is new and that there is time for, as it comes out.

    first    one is run without time, too.
    """
    tried = {str(runs.way), *(str(remedy.way) for remedy in remedies)}
    for way, what in proposed.items():
        if str(way) not in tried and runs.can_run(way) and (
                runs.has_time() or (first and not remedies)):
            try:
                outcome = runs.outcome(way)
            except TimeOverError:
                return
            if not outcome.error:  # as of a layer that no policy can name
                remedies.append(_judged_remedy(runs, way, what, outcome))


def _judged_remedy(
    runs: Reruns, way: Way, what: str, outcome: Outcome
) -> TriedRemedy:
    """A remedy that was run; of a number replaced also beside binary32 with the same one."""
    harm, cures = runs.harm(outcome), not runs.is_ill(outcome)
    losses, before = runs.losses_of(outcome), runs.harm(runs.base)
    if cures or way.changes.constants == runs.way.changes.constants or not runs.has_time():
        return TriedRemedy(what, way, harm, cures, losses, before=before)
    with suppress(TimeOverError):
        reference = runs.losses_with_constants(way)
        again = harm_of(losses, reference, runs.negligible) if reference else math.inf
        if again < harm:
            cures = again <= most_left(before) and not runs.shows_symptoms(outcome)
            return TriedRemedy(f"{what} (beside binary32 with the same number)", way, again, cures,
                               losses, reference, before=before)
    return TriedRemedy(what, way, harm, cures, losses, before=before)


def advised(runs: Reruns, report: Mapping[str, Any], base: Way) -> dict[Way, str]:
    """Ways that the report of a way advises, each with its reason."""
    return proposed_by(find_advice(report, base), runs, report, base)


def proposed_by(
    items: Sequence[Advice], runs: Reruns, report: Mapping[str, Any], base: Way
) -> dict[Way, str]:
    """The ways of some items of advice, each with its reason."""
    proposed: dict[Way, str] = {}
    for item in items:
        for way in item.ways:
            proposed.setdefault(replace(way, changes=replace(
                way.changes, halves_by_policy=runs.way.changes.halves_by_policy)),
                _meaning(way, base, item.what, report) or item.what)
    return dict(list(proposed.items())[:_REMEDIES])


def by_module(runs: Reruns) -> dict[Way, str]:
    """Whole modules in binary32, and all operations outside of them: few runs, told in few words.

    Those with most of the shadow's error come first, then those of the most layers.
    """
    layers = [name for name in runs.base.report.get("layers", ()) if name and name != "optimizer"]
    parts: dict[str, list[str]] = {}
    for name in layers:
        parts.setdefault(_SEPARATOR.split(name)[0], []).append(name)
    shares = Counter[str]()
    for row in runs.base.report.get("shadow", {}).get("layers", ()):
        shares[_SEPARATOR.split(row["layer"])[0]] += row["share"]
    ways: dict[Way, str] = {}
    for part in sorted(parts, key=lambda part: (-shares[part], -len(parts[part])))[:_MODULES]:
        way = runs.way.with_policies
        for pattern in dict.fromkeys(
                part if name == part else part + name[len(part)] + "*" for name in parts[part]):
            way = way.with_layer(pattern)
        ways[way] = f"Compute {_OUTSIDE if part == 'aten' else part} in binary32"
    return ways


def _meaning(way: Way, base: Way, advice: str, report: Mapping[str, Any]) -> str:
    """What a way changes of a base, where the advice names several; "" of others.

    report    of the base's run, which says what the program calls its loss scale.
    """
    pieces = list(_pieces(way, base))
    names = [name for name, _ in pieces]
    if way.policy.default.param != base.policy.default.param:
        return "Keep parameters, and what optimisers compute of them, in binary32"
    if pieces == [("wide_states", True)]:
        return ("Let optimisers compute, and keep their states, in binary32; "
                "parameters stay as they are")
    if names == ["loss_scale"]:
        scale, factor = way.changes.loss_scale, way.changes.loss_scale / base.changes.loss_scale
        option = report.get("scale_option")
        if option:
            return f"Set {option}={scale_text(present_scale(report) * factor)}"
        if scale_text(scale) in advice:
            return ""
        present = present_scale(report)
        if present not in (1.0, base.changes.loss_scale):  # the program has one of its own
            verb = "Raise" if factor > 1 else "Lower"
            return (f"{verb} the program's loss scale from {scale_text(present)} to "
                    f"{scale_text(present * factor)}")
        how = f"Multiply the loss by {scale_text(factor)}" if factor > 1 else (
            f"Divide the loss by {scale_text(1 / factor)}")
        return f"{how}, and undo it on the gradients in binary32"
    if names == ["eps"]:
        return f"Set eps={number_text(pieces[0][1])}"
    if names == ["constants"]:
        old, new = map(number_text, way.changes.constants[-1])
        return f"Replace the constant {old} by {new}"
    if pieces and (advice.startswith("Replace ") or _OUTSIDE in advice) and all(
            isinstance(value, Policy) for _, value in pieces):
        return f"Compute {', '.join(map(_layer_told, names))} in binary32"
    return "Round stochastically" if pieces == [("sr", True)] else ""


def _layer_told(pattern: str) -> str:
    """The pattern of a layer; outside of modules an operation, or all of them.

    >>> _layer_told("net.fc1"), _layer_told("aten.pow"), _layer_told("aten.*")
    ('net.fc1', 'the pow', 'all that stands outside of modules')
    """
    operation = pattern.removeprefix("aten.")
    if operation == "*" != pattern:
        return _OUTSIDE
    return pattern if operation == pattern else f"the {operation}"


def try_behind(runs: Reruns, remedies: list[TriedRemedy]) -> None:
    """Where no remedy cures: what is advised once the first cause is mended, round by round.

    A remedy has mended it where the run with it begins with another cause. That which leaves the
    least harm is looked behind first; of several the last one, as advice names the wider later.
    """
    told, tried = {_first_place(runs.causes)}, 0
    for _ in range(ROUNDS):
        if any(remedy.cures for remedy in remedies):
            return
        latest, tried = remedies[tried:][::-1], len(remedies)
        for remedy in sorted(latest, key=lambda remedy: remedy.harm):
            report = runs.explained(remedy.way)
            causes = find_causes(report)
            place = _first_place(causes)
            if place in told or not causes:
                continue
            told.add(place)
            behind = advised(runs, report, remedy.way)
            try_ways({way: f"{remedy.what}. Then: {what}" for way, what in behind.items()},
                 runs, remedies)


def try_scale_with_room(runs: Reruns, remedies: list[TriedRemedy]) -> None:
    """In place of a loss scale that cures, one with room for smaller and for larger gradients.

    It is halfway, in powers of two, between the smallest that cures as well and the largest with
    which no gradient of the cured run overflows: later gradients are smaller than those of the
    first steps, and other batches have larger ones. The smallest leaves no more harm than the scale
    that cures, or than a run has that is as good. It is sought by halving between the present scale
    and the one that cures, where these runs take no more than half of the time that is left. Other
    scales that cure are told as the range around it alone.
    """
    cure = next((remedy for remedy in remedies if remedy.cures), None)
    changes = runs.way.changes
    if cure is None or cure.way != _rescaled(runs.way, cure.way):
        return
    power = round(math.log2(cure.way.changes.loss_scale / changes.loss_scale))
    if power < 1:
        return

    def scaled(exponent: int) -> Way:
        return replace(runs.way, changes=replace(
            changes, loss_scale=changes.loss_scale * 2.0**exponent))

    report = runs.outcome(cure.way).report
    smallest = _smallest_power(runs, scaled, power, max(cure.harm, _AS_GOOD))
    largest = power + max(_room_above(report), 0)
    middle = (smallest + largest) // 2
    others = [remedy for remedy in remedies if remedy.cures and remedy.way != scaled(middle)
              and remedy.way == _rescaled(runs.way, remedy.way)]
    if middle == power and not others:
        return
    least, most, between = (
        scale_text(present_scale(runs.base.report) * 2.0**exponent)
        for exponent in (smallest, largest, middle))
    option = report.get("scale_option")
    what = f"Set {option}={between}" if option else f"Use a loss scale of {between}"
    what += f": halfway between {least}, which cures, and {most}, " + (
        "with which the largest gradient still fits" if largest > power else "which cures too")
    try_ways({scaled(middle): what}, runs, remedies)
    taken = next((r for r in remedies if r.cures and r.way == scaled(middle)), None)
    if taken is None and len(others) > 1:  # not tried, or it does not cure
        rest = ", ".join(scale_text(r.way.changes.loss_scale) for r in others if r is not cure)
        taken, what = cure, f"{cure.what}; a scale of {rest} cures too"
    if taken is not None:
        remedies[:] = [replace(taken, what=what), *(
            remedy for remedy in remedies if remedy is not taken and remedy not in others)]


def _rescaled(way: Way, other: Way) -> Way:
    """A way with the loss scale of another one."""
    return replace(way, changes=replace(way.changes, loss_scale=other.changes.loss_scale))


def _smallest_power(
    runs: Reruns, scaled: Callable[[int], Way], power: int, most: float
) -> int:
    """The smallest power of two of a scale that cures, as this one does; it, without time.

    most    harm that it leaves.
    """
    trials = math.ceil(math.log2(power))
    if not trials or trials * runs.budget.spent / runs.runs > runs.budget.left / 2:
        return power

    def is_too_small(exponent: int) -> bool:
        outcome = runs.outcome(scaled(exponent))
        return runs.is_ill(outcome) or runs.harm(outcome) > most

    return 1 + last_that_holds(is_too_small, power)


def _room_above(report: Mapping[str, Any]) -> int:
    """Powers of two by which the loss scale of a run may grow before a gradient overflows."""
    scales = report.get("loss_scale") or {}
    if not scales or scales["highest_safe"] is None:
        return 0
    return round(math.log2(scales["highest_safe"] / scales["present"]))


def _first_place(causes: Sequence[Cause]) -> tuple[str, ...]:
    """By which the first of causes is told from that of another run."""
    if not causes:
        return ()
    row = causes[0].row
    return (causes[0].kind, causes[0].layer, *(str(row.get(key, "")) for key in (
        "direction", "operation", "line")))


def joined_remedies(remedies: Sequence[TriedRemedy], runs: Reruns) -> dict[Way, str]:
    """The fewest changes and layers of the remedies that cure together, where none does alone."""
    pieces = {piece: None for remedy in remedies for piece in _pieces(remedy.way, runs.way)}
    if len(pieces) < 2 or any(remedy.cures for remedy in remedies):
        return {}

    cures = partial(_do_cure, runs)
    if not (runs.has_time() and cures(list(pieces))):
        return {}
    parts, _ = smallest(list(pieces), cures, runs.has_time)
    return {_joined(runs.way, parts): f"{_told(parts, runs)}. None of these can be left out"}


def without_needless(remedies: Sequence[TriedRemedy], runs: Reruns) -> dict[Way, str]:
    """The first remedy that cures, without changes and layers that it does not need."""
    cure = next((remedy for remedy in remedies if remedy.cures), None)
    pieces = list(_pieces(cure.way, runs.way)) if cure is not None else []
    if cure is None or len(pieces) < 2 or _joined(runs.way, pieces) != cure.way:
        return {}
    parts, _ = smallest(pieces, partial(_do_cure, runs), runs.has_time)
    if len(parts) == len(pieces):
        return {}
    return {_joined(runs.way, parts): f"{_told(parts, runs)}. Only this much is needed"}


def _told(parts: Sequence[_Piece], runs: Reruns) -> str:
    """What these changes and layers are, in words."""
    layers = [_layer_told(name) for name, value in parts if isinstance(value, Policy)]
    words = [
        _meaning(_joined(runs.way, [(name, value)]), runs.way, "", runs.base.report)
        or f"Set {name} to {value}" for name, value in parts if not isinstance(value, Policy)]
    return ". Then: ".join(words + [f"Compute {', '.join(layers)} in binary32"] * bool(layers))


def told_by_changes(remedies: Sequence[TriedRemedy], runs: Reruns) -> list[TriedRemedy]:
    """The same, each told by what it changes: its reason was another cause."""
    told = [_told(list(_pieces(remedy.way, runs.way)), runs) for remedy in remedies]
    return [replace(remedy, what=what or remedy.what)
            for remedy, what in zip(remedies, told, strict=True)]


def _do_cure(runs: Reruns, parts: Sequence[_Piece]) -> bool:
    """Whether these changes and layers cure together."""
    way = _joined(runs.way, parts)
    with suppress(TimeOverError):
        return runs.can_run(way) and not runs.is_ill(runs.outcome(way))
    return False


def with_wide_layers(result: Diagnosis, runs: Reruns) -> dict[Way, str]:
    """The layers of the necessary sites in binary32, where they are few."""
    layers = list(dict.fromkeys(site.layer for site in result.necessary))
    if not layers or len(layers) > _LAYERS:
        return {}
    way = runs.way.with_policies
    for site in result.necessary:
        if site.role == UPDATE:
            way = replace(way, changes=replace(way.changes, wide_states=True))
    for layer in dict.fromkeys(s.layer for s in result.necessary if s.role != UPDATE):
        if layer:
            way = way.with_layer(layer)
    return {way: f"Compute {', '.join(layers)} in binary32"}


def sort_remedies(remedies: list[TriedRemedy], base: Way) -> None:
    """Those that cure in the order of the advice, the others by the harm that they leave.

    Of the others those that lessen it come first.
    One that does all of another, and more, comes behind those of which each part is needed.
    """
    pieces = [frozenset(_pieces(remedy.way, base)) for remedy in remedies if remedy.cures]

    def rank(remedy: TriedRemedy) -> tuple[bool, bool, float]:
        if not remedy.cures:
            return True, not remedy.lessens, remedy.harm
        parts = frozenset(_pieces(remedy.way, base))
        return False, False, any(fewer and fewer < parts for fewer in pieces)

    remedies.sort(key=rank)


def drop_larger(remedies: list[TriedRemedy], base: Way) -> None:
    """Leave out remedies that do all of another one, and more, without any more help."""
    told = [(frozenset(_pieces(remedy.way, base)), remedy) for remedy in remedies if remedy.helps]

    def is_larger(remedy: TriedRemedy) -> bool:
        parts = frozenset(_pieces(remedy.way, base))
        return remedy.helps and any(
            fewer and fewer < parts and (other.cures or remedy.harm >= other.harm)
            for fewer, other in told if other.cures >= remedy.cures)

    remedies[:] = [remedy for remedy in remedies if not is_larger(remedy)]


def without_halves(by_policy: Reruns, harm: float) -> TriedRemedy:
    """Tensors of the program's own that the policy decides of, which was run."""
    base = by_policy.base
    return TriedRemedy(
        "Make the tensors float32 that the program makes float16 itself", by_policy.way,
        by_policy.harm(base), True, by_policy.losses_of(base), before=harm,
        label=f"{by_policy.way} without the program's halves")


def _pieces(way: Way, base: Way) -> Iterator[_Piece]:
    """What a way changes, one by one; none of one with another policy for all layers."""
    if way.policy.default != base.policy.default:
        return
    if way.sr and not base.sr:
        yield "sr", True
    for name, value in vars(way.changes).items():
        if name != "halves_by_policy" and value != getattr(base.changes, name):
            yield name, value
    ours, theirs = (getattr(one.policy, "layers", ()) for one in (way, base))
    yield from (layer for layer in reversed(ours) if layer not in theirs)


def _joined(base: Way, pieces: Sequence[_Piece]) -> Way:
    """The way with these changes and layers."""
    way = base
    for name, value in pieces:
        if name == "sr":
            way = replace(way, sr=True)
        elif isinstance(value, Policy):
            way = way.with_policies.with_layer(name, value)
        else:
            way = replace(way, changes=replace(way.changes, **{name: value}))
    return way
