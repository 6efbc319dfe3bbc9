"""The causes of a report, or of a part of it: the order in which rules are asked.

A loss that is not finite is traced back to the first excursion; where every loss is finite the
rules are asked in this order: a loss that grows before any number has left its range, numbers that
saturate and are computed on with, gradients that vanish, updates that change nothing, sums that
lose their terms, whole numbers that are rounded.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

from ipu.run.causes.cancellation import behind_overflow
from ipu.run.causes.cause import Cause, is_of_sums
from ipu.run.causes.data import integers
from ipu.run.causes.divergence import diverges
from ipu.run.causes.drift import drifts
from ipu.run.causes.forward import OF_HARM
from ipu.run.causes.losses import harm_of_run, parts_at_once
from ipu.run.causes.rows import Report, Row, births_of
from ipu.run.causes.saturation import saturated
from ipu.run.causes.states import overshot_updates, small_divisors
from ipu.run.causes.symptom import causes_of_symptom
from ipu.run.causes.terms import absorbed, constant_factors
from ipu.run.causes.training import swallowed, vanished
from ipu.run.harm import HARM

__all__ = ["causes_forward", "causes_of_updates", "find_causes"]

#: Kinds of causes that show in no loss before the first update.
_FOLLOWERS = frozenset(("updates", "gradients vanish"))


def find_causes(report: Report) -> list[Cause]:
    """The causes of a report, the first explains the most harm."""
    births = births_of(report)
    causes: list[Cause] = []
    symptom = causes_of_symptom(report, births)
    overshot = list(overshot_updates(report, births, symptom))
    causes.extend(overshot or symptom)
    grown = diverges(report, births)
    if grown is not None:
        return [grown]
    rules: tuple[Callable[[Report, Sequence[Row]], Iterator[Cause]], ...] = (
        saturated, vanished, small_divisors, swallowed, constant_factors, absorbed, integers,
    )
    if symptom:  # what was told by its symptom is no second cause
        rules = (vanished, swallowed, constant_factors)
    others = [cause for rule in rules for cause in rule(report, births)]
    causes.extend(sorted(others, key=lambda cause: -cause.harm))
    if all(is_of_sums(cause) for cause in causes):  # what else broke moves a tensor too
        causes = sorted([*causes, *drifts(report)], key=lambda cause: -cause.harm)
    follow = all(cause.kind in _FOLLOWERS for cause in causes) and parts_at_once(report)
    if (not causes or follow) and harm_of_run(report) > HARM:
        causes = [*(cause for rule in OF_HARM for cause in rule(report, births)), *causes]
    causes = [*(c for cause in causes[:1] for c in behind_overflow(cause, report, births)), *causes]
    first: dict[str, Cause] = {}
    for cause in causes:
        first.setdefault(cause.kind, cause)
    return list(first.values())


def causes_forward(report: Report, layers: Collection[str]) -> list[Cause]:
    """What the passes forward of these layers tell, as if nothing else had been seen."""
    shadow = report.get("shadow", {})
    operations = [row for row in shadow.get("operations", ()) if row["layer"] in layers]
    births = [row for row in births_of(report) if row["layer"] in layers]
    alone = {**report, "shadow": {**shadow, "operations": operations}}
    return [cause for rule in OF_HARM for cause in rule(alone, births)]


def causes_of_updates(report: Report, layers: Collection[str]) -> list[Cause]:
    """What the updates of these layers' parameters tell, as if nothing else had been seen."""
    rows = report.get("swallowed", {})
    alone = {**report, "swallowed": {name: rows[name] for name in layers if name in rows}}
    return list(swallowed(alone, ()))
